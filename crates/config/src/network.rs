//! Networks of addresses, and lists of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::value::{Kind, List, Value};

/// The addresses whose leading bits are the same. Bits of the base beyond the mask are ignored, as in
/// PostgreSQL: `10.1.2.3/8` is `10.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Network {
    V4 { base: u32, mask: u32 },
    V6 { base: u128, mask: u128 },
}

impl Network {
    /// A network by an address and a mask; `None` if they are not of one kind.
    pub(super) fn new(base: IpAddr, mask: IpAddr) -> Option<Network> {
        match (base, mask) {
            (IpAddr::V4(base), IpAddr::V4(mask)) => Some(Network::V4 {
                base: base.to_bits() & mask.to_bits(),
                mask: mask.to_bits(),
            }),
            (IpAddr::V6(base), IpAddr::V6(mask)) => Some(Network::V6 {
                base: base.to_bits() & mask.to_bits(),
                mask: mask.to_bits(),
            }),
            _ => None,
        }
    }

    /// Reads `address/bits`, or a single address. IPv4 in IPv6 form is IPv4.
    fn read(text: &str) -> Option<Network> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let base: IpAddr = address.parse().ok()?;
        let whole = if base.is_ipv4() { "32" } else { "128" };
        let mask = mask_of_bits(base, bits.unwrap_or(whole))?;
        match (base.to_canonical(), mask) {
            (short @ IpAddr::V4(_), IpAddr::V6(mask)) if mask.to_bits().leading_ones() >= 96 => {
                let mask = Ipv4Addr::from_bits(mask.to_bits() as u32);
                Network::new(short, mask.into())
            }
            _ => Network::new(base, mask),
        }
    }

    /// True if an address is in the network.
    pub(super) fn has(self, address: IpAddr) -> bool {
        match (self, address) {
            (Network::V4 { base, mask }, IpAddr::V4(address)) => address.to_bits() & mask == base,
            (Network::V6 { base, mask }, IpAddr::V6(address)) => address.to_bits() & mask == base,
            _ => false,
        }
    }

    /// True if all addresses of its kind are in the network.
    fn has_all(self) -> bool {
        matches!(
            self,
            Network::V4 { mask: 0, .. } | Network::V6 { mask: 0, .. }
        )
    }
}

/// The mask of so many leading bits; `None` if an address has fewer, or the text is no number.
pub(super) fn mask_of_bits(base: IpAddr, bits: &str) -> Option<IpAddr> {
    let digits = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    let number = bits.parse::<u32>().ok().filter(|_| digits)?;
    match base {
        IpAddr::V4(_) if number <= 32 => {
            let mask = u32::MAX.checked_shl(32 - number).unwrap_or(0);
            Some(IpAddr::V4(Ipv4Addr::from_bits(mask)))
        }
        IpAddr::V6(_) if number <= 128 => {
            let mask = u128::MAX.checked_shl(128 - number).unwrap_or(0);
            Some(IpAddr::V6(Ipv6Addr::from_bits(mask)))
        }
        _ => None,
    }
}

/// Networks separated by commas or white space, with the text from which they were read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Networks {
    written: String,
    networks: Box<[Network]>,
}

impl Networks {
    /// True if an address is in one of the networks. IPv4 in IPv6 form counts as IPv4.
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.has(address))
    }

    /// True if one of the networks has all addresses.
    pub(super) fn has_all(&self) -> bool {
        self.networks.iter().any(|network| network.has_all())
    }
}

impl Value for Networks {
    const KIND: Kind = Kind::List;
    fn read(text: &str) -> Option<Networks> {
        let words = List::read(text)?;
        let networks: Option<Box<[Network]>> =
            words.iter().map(|word| Network::read(word)).collect();
        Some(Networks {
            written: text.into(),
            networks: networks?,
        })
    }
    fn show(&self) -> Option<String> {
        Some(self.written.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_addresses() {
        let networks = Networks::read("10.1.2.3/8, 192.0.2.7\t2001:db8::/32").unwrap();
        for (address, has) in [
            ("10.255.0.1", true),
            ("11.0.0.1", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8:1::1", true),
            ("2001:db9::1", false),
            ("::ffff:10.0.0.1", true),
            ("::ffff:11.0.0.1", false),
        ] {
            assert_eq!(networks.has(address.parse().unwrap()), has, "{address}");
        }
        assert!(!networks.has_all());
        let mapped = Networks::read("::ffff:10.0.0.0/104").unwrap();
        assert!(mapped.has("10.9.9.9".parse().unwrap()) && !mapped.has_all());
        for all in ["0.0.0.0/0", "10.0.0.0/8 ::/0", "::ffff:0.0.0.0/96"] {
            assert!(Networks::read(all).unwrap().has_all(), "{all}");
        }
        assert_eq!(Networks::read(""), Some(Networks::default()));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/255.0.0.0",
            "balancer",
            "unix",
            "*",
        ] {
            assert_eq!(Networks::read(text), None, "{text}");
        }
    }
}
