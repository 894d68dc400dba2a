//! The PROXY protocol, versions 1 and 2: the header with which a balancer begins a connection, and
//! which names the client's own address.
//!
//! Source: the PROXY protocol's specification of HAProxy, revision 2020/03/05.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The bytes with which version 2 begins.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The word with which version 1 begins, and the blank behind it.
pub const WORD: [u8; 6] = *b"PROXY ";

/// A header of version 1 that leaves the address as it is.
pub const NO_ADDRESS: &[u8] = b"PROXY UNKNOWN\r\n";

/// The longest header that is read, in bytes. Version 2 could have 65,551.
pub const HEADER_MAX: usize = 4096;

/// The longest line of version 1, with CR LF.
const LINE_MAX: usize = 107;

/// The bytes of version 2 before the addresses.
const FRONT: usize = 16;

/// A header that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyHeader {
    /// The bytes of the header.
    pub size: usize,
    /// The client's address and port. `None` if the connection is the balancer's own (LOCAL), or if
    /// the balancer names no address (UNKNOWN, a unix socket).
    pub source: Option<(IpAddr, u16)>,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyError {
    /// The bytes do not begin like a header.
    Missing,
    /// The header has more bytes than are read.
    TooLong,
    /// The version of the binary form is not 2.
    Version,
    /// A command, family or transport that does not exist or is not for streams.
    Kind,
    /// The addresses are not of the family that the header names, or are no addresses.
    Addresses,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProxyError::Missing => "the first bytes are no header",
            ProxyError::TooLong => {
                "the header is too long: a line has up to 107 bytes, version 2 up to 4096 here"
            }
            ProxyError::Version => "the binary form has a version other than 2",
            ProxyError::Kind => "the command, the family or the transport is unknown",
            ProxyError::Addresses => "the addresses do not belong to the family",
        })
    }
}

impl std::error::Error for ProxyError {}

/// True if bytes begin like a header, as far as four bytes can show. No start-up packet begins like
/// this: read as a length, it would mean hundreds of megabytes.
pub fn is_header(bytes: &[u8]) -> bool {
    bytes.starts_with(&SIGNATURE[..4]) || bytes.starts_with(&WORD[..4])
}

/// Reads the header at the start of a stream. `None` if more bytes are needed.
///
/// # Errors
/// The bytes are no header, whatever follows.
pub fn read(bytes: &[u8]) -> Option<Result<ProxyHeader, ProxyError>> {
    if begins(bytes, &WORD) {
        return line(bytes);
    }
    if !begins(bytes, &SIGNATURE) {
        return Some(Err(ProxyError::Missing));
    }
    let (_, rest) = bytes.split_first_chunk::<12>()?;
    let &[version, family, high, low, ..] = rest else {
        // A wrong version needs no more bytes.
        let wrong = rest.first().is_some_and(|version| version >> 4 != 2);
        return wrong.then_some(Err(ProxyError::Version));
    };
    let size = FRONT + usize::from(u16::from_be_bytes([high, low]));
    if version >> 4 != 2 {
        return Some(Err(ProxyError::Version));
    }
    if size > HEADER_MAX {
        return Some(Err(ProxyError::TooLong));
    }
    let body = bytes.get(FRONT..size)?;
    Some(source(version & 0xf, family, body).map(|source| ProxyHeader { size, source }))
}

/// True if bytes begin with a word, or are the beginning of one.
fn begins(bytes: &[u8], word: &[u8]) -> bool {
    let both = bytes.len().min(word.len());
    bytes[..both] == word[..both]
}

/// The source in the body of version 2. What follows the addresses (TLVs) is skipped.
fn source(command: u8, family: u8, body: &[u8]) -> Result<Option<(IpAddr, u16)>, ProxyError> {
    match (command, family) {
        (0, _) => Ok(None),
        (1, 0x00) => Ok(None),
        // Source and target of four bytes each, then both ports.
        (1, 0x11) => {
            let body = body.first_chunk::<12>().ok_or(ProxyError::Addresses)?;
            let &[a, b, c, d, _, _, _, _, high, low, _, _] = body;
            let port = u16::from_be_bytes([high, low]);
            Ok(Some((Ipv4Addr::new(a, b, c, d).into(), port)))
        }
        (1, 0x21) => {
            let body = body.first_chunk::<36>().ok_or(ProxyError::Addresses)?;
            let (address, rest) = body
                .split_first_chunk::<16>()
                .ok_or(ProxyError::Addresses)?;
            let port = u16::from_be_bytes([rest[16], rest[17]]);
            Ok(Some((Ipv6Addr::from(*address).into(), port)))
        }
        // A client of the balancer's unix socket: two paths of 108 bytes.
        (1, 0x31) if body.len() >= 216 => Ok(None),
        (1, 0x31) => Err(ProxyError::Addresses),
        _ => Err(ProxyError::Kind),
    }
}

/// Reads a line of version 1.
fn line(bytes: &[u8]) -> Option<Result<ProxyHeader, ProxyError>> {
    let seen = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = seen.iter().position(|byte| *byte == b'\n') else {
        return (seen.len() == LINE_MAX).then_some(Err(ProxyError::TooLong));
    };
    let size = end + 1;
    let words = seen[..end].strip_suffix(b"\r");
    let words = words.and_then(|line| line.strip_prefix(&WORD));
    let words = words.ok_or(ProxyError::Addresses);
    Some(
        words
            .and_then(source_of_line)
            .map(|source| ProxyHeader { size, source }),
    )
}

/// The source in the words behind `PROXY`.
fn source_of_line(line: &[u8]) -> Result<Option<(IpAddr, u16)>, ProxyError> {
    let mut words = line.split(|byte| *byte == b' ');
    let family = words.next().unwrap_or_default();
    if family == b"UNKNOWN" {
        return Ok(None);
    }
    if !matches!(family, b"TCP4" | b"TCP6") {
        return Err(ProxyError::Kind);
    }
    let mut address = || {
        let word = std::str::from_utf8(words.next()?).ok()?;
        let address: IpAddr = word.parse().ok()?;
        (address.is_ipv4() == (family == b"TCP4")).then_some(address)
    };
    let pair = address().zip(address());
    let mut port = || {
        let word = words.next()?;
        let digits = (1..=5).contains(&word.len()) && word.iter().all(u8::is_ascii_digit);
        let word = std::str::from_utf8(word).ok().filter(|_| digits)?;
        word.parse::<u16>().ok()
    };
    let ports = port().zip(port());
    let source = pair.zip(ports).map(|((from, _), (port, _))| (from, port));
    let source = source.filter(|_| words.next().is_none());
    source.map(Some).ok_or(ProxyError::Addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Option<Result<Option<String>, ProxyError>> {
        let shown = |header: ProxyHeader| {
            assert!(header.size <= bytes.len());
            header
                .source
                .map(|(address, port)| format!("{address} {port}"))
        };
        read(bytes).map(|result| result.map(shown))
    }

    fn binary(version: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([version, family]);
        header.extend((body.len() as u16).to_be_bytes());
        header.extend(body);
        header
    }

    #[test]
    fn lines() {
        use ProxyError::*;
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(91));
        assert_eq!(long.len(), 107);
        let longer = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
        for (line, read) in [
            (
                "PROXY TCP4 10.0.0.1 10.0.0.2 5000 6432\r\n",
                Ok(Some("10.0.0.1 5000")),
            ),
            (
                "PROXY TCP6 2001:db8::1 ::1 65535 0\r\nrest",
                Ok(Some("2001:db8::1 65535")),
            ),
            ("PROXY UNKNOWN\r\n", Ok(None)),
            ("PROXY UNKNOWN ff:: whatever\r\n", Ok(None)),
            (&long, Ok(None)),
            (&longer, Err(TooLong)),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 5000 6432\n", Err(Addresses)),
            ("PROXY TCP4 ::1 ::2 5000 6432\r\n", Err(Addresses)),
            ("PROXY TCP6 10.0.0.1 10.0.0.2 1 2\r\n", Err(Addresses)),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 5000\r\n", Err(Addresses)),
            (
                "PROXY TCP4 10.0.0.1 10.0.0.2 5000 65536\r\n",
                Err(Addresses),
            ),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 +500 6432\r\n", Err(Addresses)),
            ("PROXY TCP4 10.0.0.1  10.0.0.2 1 2\r\n", Err(Addresses)),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 1 2 3\r\n", Err(Addresses)),
            ("PROXY UDP4 10.0.0.1 10.0.0.2 1 2\r\n", Err(Kind)),
            ("PROXX", Err(Missing)),
            ("\0\0\0\x08", Err(Missing)),
        ] {
            let read = read.map(|source| source.map(String::from));
            assert_eq!(of(line.as_bytes()), Some(read), "{line}");
        }
        assert_eq!(of(b""), None);
        assert_eq!(of(b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 6432\r"), None);
    }

    #[test]
    fn binary_headers() {
        use ProxyError::*;
        let four = [10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88, 0x19, 0x20];
        let six: Vec<u8> = [[0xff; 16], [1; 16]]
            .concat()
            .into_iter()
            .chain([0, 7, 0, 8])
            .collect();
        let with_tlv = [&four[..], &[3, 0, 4, 1, 2, 3, 4]].concat();
        let most = [&four[..], &[0; HEADER_MAX - FRONT - 12]].concat();
        let too_much = [&most[..], &[0]].concat();
        for (header, read) in [
            (binary(0x21, 0x11, &four), Ok(Some("10.0.0.1 5000"))),
            (binary(0x21, 0x11, &with_tlv), Ok(Some("10.0.0.1 5000"))),
            (binary(0x21, 0x11, &most), Ok(Some("10.0.0.1 5000"))),
            (
                binary(0x21, 0x21, &six),
                Ok(Some("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 7")),
            ),
            (binary(0x20, 0x11, &four), Ok(None)),
            (binary(0x20, 0x00, b""), Ok(None)),
            (binary(0x21, 0x00, b"tlvs"), Ok(None)),
            (binary(0x21, 0x31, &[b'/'; 216]), Ok(None)),
            (binary(0x21, 0x31, &four), Err(Addresses)),
            (binary(0x21, 0x11, &four[..11]), Err(Addresses)),
            (binary(0x21, 0x21, &four), Err(Addresses)),
            (binary(0x21, 0x12, &four), Err(Kind)),
            (binary(0x22, 0x11, &four), Err(Kind)),
            (binary(0x11, 0x11, &four), Err(Version)),
            (binary(0x21, 0x11, &too_much), Err(TooLong)),
        ] {
            let read = read.map(|source: Option<&str>| source.map(String::from));
            assert_eq!(of(&header), Some(read), "{header:?}");
        }
        // The length alone is refused, before the bytes come.
        let long = [&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat();
        assert_eq!(of(&long), Some(Err(TooLong)));
        assert_eq!(of(&long[..15]), None);
        let old = [&SIGNATURE[..], &[0x11]].concat();
        assert_eq!(of(&old), Some(Err(Version)));
    }
}
