//! The host names of placed databases. A name with several addresses stands for as many hosts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use howdah_pooler::config::{Config, Host};
use howdah_pooler::roster::lore::RosterLore;

/// How many addresses of a name are hosts. The others are left out.
const MOST: usize = 64;

/// The names, each with the addresses that are hosts of their own.
#[derive(Debug, Default)]
pub struct PlacedNames {
    /// Without addresses: the name is one host.
    names: BTreeMap<String, Vec<IpAddr>>,
}

impl PlacedNames {
    /// The names that the predecessor knew as several hosts.
    pub fn inherit(lore: &RosterLore) -> PlacedNames {
        let mut names: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for known in &lore.hosts {
            if let Host::Address { name, ip } = &known.host.host {
                let addresses = names.entry(name.clone()).or_default();
                addresses.push(*ip);
            }
        }
        for addresses in names.values_mut() {
            addresses.sort_unstable();
            addresses.dedup();
        }
        PlacedNames { names }
    }

    /// Takes the names of a configuration. What is known of names that stay is kept; `known` has the
    /// addresses of others, if they were looked up before.
    pub fn set(&mut self, config: &Config, known: impl Fn(&str) -> Vec<IpAddr>) {
        let mut before = std::mem::take(&mut self.names);
        let databases = config.databases.values().chain(&config.fallback);
        let placed = databases.filter(|database| database.is_placed());
        for to in placed.flat_map(|database| &database.hosts) {
            let Host::Name(name) = &to.host else { continue };
            if self.names.contains_key(name) {
                continue;
            }
            let addresses = before.remove(name);
            self.names
                .insert(name.clone(), addresses.unwrap_or_default());
            self.found(name, &known(name));
        }
    }

    /// A look-up has ended, and these are the addresses that are known now. True if the name is one
    /// of these names, and stands for other hosts than before.
    ///
    /// A name that has had several addresses is still known by its address when only one is left: so
    /// the servers there stay when another host leaves.
    pub fn found(&mut self, name: &str, known: &[IpAddr]) -> bool {
        let Some(addresses) = self.names.get_mut(name) else {
            return false;
        };
        let now = of_one_family(known, addresses.first());
        if now.is_empty() || now == *addresses || (now.len() == 1 && addresses.is_empty()) {
            return false;
        }
        *addresses = now;
        true
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(|name| &**name)
    }

    /// The addresses of a name that are hosts of their own, sorted. Empty for a name that is one
    /// host.
    pub fn addresses(&self, name: &str) -> Vec<IpAddr> {
        self.names.get(name).cloned().unwrap_or_default()
    }
}

/// The addresses that are hosts, sorted. A host with an IPv4 and an IPv6 address is one host, so only
/// one family counts: the one in use while it has any address, or else the larger one.
fn of_one_family(known: &[IpAddr], in_use: Option<&IpAddr>) -> Vec<IpAddr> {
    let of = |is_four: bool| known.iter().filter(move |ip| ip.is_ipv4() == is_four);
    let is_four = match in_use.map(IpAddr::is_ipv4) {
        Some(is_four) if of(is_four).next().is_some() => is_four,
        _ => of(true).count() >= of(false).count(),
    };
    let mut addresses: Vec<IpAddr> = of(is_four).copied().collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(MOST);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_pooler::config::HostPort;
    use howdah_pooler::roster::lore::HostLore;

    fn config(list: &str) -> Config {
        let text = format!(
            "[pgbouncer]\n[databases]\na = host={list} target_session_attrs=primary\nb = host=plain"
        );
        let (config, _) = Config::load("x.ini", &text, &mut |_| Ok(String::new())).unwrap();
        config
    }

    fn four(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn six(last: u16) -> IpAddr {
        [0xfd00, 0, 0, 0, 0, 0, 0, last].into()
    }

    /// The names of one configuration, with one name, `pg`.
    fn names() -> PlacedNames {
        let mut names = PlacedNames::default();
        names.set(&config("pg,10.0.0.9"), |_| Vec::new());
        names
    }

    #[test]
    fn a_name_with_several_addresses_is_several_hosts() {
        let mut names = names();
        assert_eq!(names.names().collect::<Vec<_>>(), ["pg"]);
        assert!(!names.found("plain", &[four(1), four(2)]));
        assert!(!names.found("pg", &[four(1)]));
        assert!(!names.found("pg", &[four(2)]), "the one host has moved");
        assert!(names.addresses("pg").is_empty());
        assert!(names.found("pg", &[four(2), four(1), four(2)]));
        assert_eq!(names.addresses("pg"), [four(1), four(2)]);
        assert!(!names.found("pg", &[four(1), four(2)]), "in another order");
        assert!(!names.found("pg", &[]), "the look-up has failed");
        assert!(names.found("pg", &[four(2)]));
        assert_eq!(names.addresses("pg"), [four(2)]);
        assert!(names.found("pg", &[four(3)]));
        let many: Vec<IpAddr> = (0..100).map(four).collect();
        assert!(names.found("pg", &many));
        assert_eq!(names.addresses("pg"), many[..64]);
    }

    #[test]
    fn two_addresses_of_one_host_are_one_host() {
        let mut names = names();
        assert!(!names.found("pg", &[six(1), four(1)]));
        assert!(names.found("pg", &[six(1), six(2), four(1)]));
        assert_eq!(names.addresses("pg"), [six(1), six(2)]);
        assert!(names.found("pg", &[six(2), four(1), four(2)]), "six stays");
        assert_eq!(names.addresses("pg"), [six(2)]);
        assert!(names.found("pg", &[four(1), four(2)]));
        assert_eq!(names.addresses("pg"), [four(1), four(2)]);
        let mut names = self::names();
        assert!(names.found("pg", &[six(1), six(2), four(1), four(2)]));
        assert_eq!(names.addresses("pg"), [four(1), four(2)]);
    }

    #[test]
    fn a_reload_keeps_what_is_known() {
        let mut names = names();
        names.found("pg", &[four(1), four(2)]);
        let known = |name: &str| match name {
            "other" => vec![four(3), four(4)],
            _ => Vec::new(),
        };
        names.set(&config("pg,other,new"), known);
        assert_eq!(names.names().collect::<Vec<_>>(), ["new", "other", "pg"]);
        assert_eq!(names.addresses("pg"), [four(1), four(2)]);
        assert_eq!(names.addresses("other"), [four(3), four(4)]);
        assert!(names.addresses("new").is_empty());
        names.set(&config("new"), known);
        names.set(&config("pg"), known);
        assert!(names.addresses("pg").is_empty());
    }

    #[test]
    fn a_successor_begins_with_what_was_known() {
        let lore = |host, port| HostLore {
            host: HostPort { host, port },
            is_drained: false,
            down: None,
            report: None,
        };
        let address = |last| Host::Address {
            name: "pg".into(),
            ip: four(last),
        };
        let lore = RosterLore {
            hosts: vec![
                lore(address(2), 1),
                lore(address(1), 2),
                lore(address(2), 2),
                lore(Host::Name("other".into()), 1),
            ],
            lists: Vec::new(),
        };
        let mut names = PlacedNames::inherit(&lore);
        names.set(&config("pg,other"), |_| Vec::new());
        assert_eq!(names.addresses("pg"), [four(1), four(2)]);
        assert!(names.addresses("other").is_empty());
    }
}
