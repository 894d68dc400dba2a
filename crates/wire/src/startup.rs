//! The first packet of a connection, which has no tag.

use crate::WireError;
use crate::frame::{cstr, u32_be};

/// The longest start-up packet that PostgreSQL accepts, with its length field.
/// (`MAX_STARTUP_PACKET_LENGTH` counts without the length field.)
pub const PACKET_MAX: u32 = 10_004;

/// The request code of SSLRequest.
pub const SSL_REQUEST: u32 = 80_877_103;
/// The request code of GSSENCRequest.
pub const GSSENC_REQUEST: u32 = 80_877_104;
/// The request code of CancelRequest.
pub const CANCEL_REQUEST: u32 = 80_877_102;

/// A first packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstPacket<'a> {
    /// StartupMessage of protocol 3.
    Startup(Startup<'a>),
    /// SSLRequest.
    Ssl,
    /// GSSENCRequest.
    GssEnc,
    /// CancelRequest: process id and secret (4 bytes; up to 256 from protocol 3.2).
    Cancel {
        /// The process id of the key.
        pid: u32,
        /// The secret of the key.
        secret: &'a [u8],
    },
    /// A protocol other than 3: major and minor.
    Unsupported(u16, u16),
}

/// A StartupMessage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Startup<'a> {
    /// The minor version that the client asks for; the major version is 3.
    pub minor: u16,
    parameters: &'a [u8],
}

impl<'a> Startup<'a> {
    /// Names and values, in the order in which they came.
    pub fn parameters(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.parameters;
        std::iter::from_fn(move || {
            let (name, after) = cstr(rest)?;
            if name.is_empty() {
                return None;
            }
            let (value, after) = cstr(after)?;
            rest = after;
            Some((name, value))
        })
    }

    /// The last value of a parameter.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.parameters()
            .filter(|(n, _)| *n == name.as_bytes())
            .last()
            .map(|(_, v)| v)
    }
}

/// The length of the whole first packet; `None` if there are fewer than four bytes.
pub fn length(bytes: &[u8]) -> Option<Result<usize, WireError>> {
    let (length, _) = u32_be(bytes)?;
    if !(8..=PACKET_MAX).contains(&length) {
        return Some(Err(WireError::Length { tag: 0, length }));
    }
    Some(Ok(length as usize))
}

/// Reads a whole first packet, with its length field. An error if the packet is malformed.
pub fn read(packet: &[u8]) -> Result<FirstPacket<'_>, WireError> {
    let bad = WireError::Body { tag: 0 };
    let (_, rest) = u32_be(packet).ok_or(bad)?;
    let (code, rest) = u32_be(rest).ok_or(bad)?;
    match code {
        SSL_REQUEST if rest.is_empty() => return Ok(FirstPacket::Ssl),
        GSSENC_REQUEST if rest.is_empty() => return Ok(FirstPacket::GssEnc),
        SSL_REQUEST | GSSENC_REQUEST => return Err(bad),
        CANCEL_REQUEST => {
            let (pid, secret) = u32_be(rest).ok_or(bad)?;
            if !(4..=256).contains(&secret.len()) {
                return Err(bad);
            }
            return Ok(FirstPacket::Cancel { pid, secret });
        }
        _ => {}
    }
    let (major, minor) = ((code >> 16) as u16, code as u16);
    if major != 3 {
        return Ok(FirstPacket::Unsupported(major, minor));
    }
    check_parameters(rest)?;
    Ok(FirstPacket::Startup(Startup {
        minor,
        parameters: rest,
    }))
}

/// Checks pairs of strings, and the zero at the packet's end.
fn check_parameters(mut rest: &[u8]) -> Result<(), WireError> {
    let bad = WireError::Body { tag: 0 };
    loop {
        let (name, after) = cstr(rest).ok_or(bad)?;
        if name.is_empty() {
            return if after.is_empty() { Ok(()) } else { Err(bad) };
        }
        (_, rest) = cstr(after).ok_or(bad)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write;

    #[test]
    fn startup_round_trip() {
        let mut packet = Vec::new();
        write::startup(
            &mut packet,
            0,
            [("user", "ann"), ("database", "d"), ("user", "bob")],
        );
        assert_eq!(length(&packet), Some(Ok(packet.len())));
        let Ok(FirstPacket::Startup(startup)) = read(&packet) else {
            panic!()
        };
        assert_eq!(startup.minor, 0);
        assert_eq!(startup.get("user"), Some(&b"bob"[..]));
        assert_eq!(startup.get("nope"), None);
        assert_eq!(startup.parameters().count(), 3);
    }

    #[test]
    fn odd_packets() {
        assert_eq!(length(&[0, 0, 0]), None);
        assert!(matches!(length(&[0, 0, 0, 7]), Some(Err(_))));
        assert!(matches!(length(&[0, 1, 0, 0]), Some(Err(_))));
        assert_eq!(read(b"\0\0\0\x08\x04\xd2\x16\x2f"), Ok(FirstPacket::Ssl));
        assert_eq!(read(b"\0\0\0\x08\x04\xd2\x16\x30"), Ok(FirstPacket::GssEnc));
        assert_eq!(
            read(b"\0\0\0\x08\0\x02\0\0"),
            Ok(FirstPacket::Unsupported(2, 0))
        );
        let key = read(b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01abcd");
        assert_eq!(
            key,
            Ok(FirstPacket::Cancel {
                pid: 1,
                secret: b"abcd"
            })
        );
        assert!(read(b"\0\0\0\x0c\x04\xd2\x16\x2e\0\0\0\x01").is_err());
        assert!(
            read(b"\0\0\0\x0d\0\x03\0\0user\0").is_err(),
            "no final zero"
        );
        assert!(
            read(b"\0\0\0\x0d\0\x03\0\0user\0ann\0\0x").is_err(),
            "bytes after the end"
        );
        assert!(read(b"\0\0\0\x0d\0\x03\0\0user").is_err());
    }
}
