//! Headers: where one message ends and the next begins.

use crate::WireError;

/// Bytes of a tag and a length.
pub const HEADER: usize = 5;

/// The greatest length field that PostgreSQL accepts (`PQ_LARGE_MESSAGE_LIMIT`, 1 GB less two).
pub const LENGTH_MAX: u32 = 0x3fff_fffe;

/// The first five bytes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The tag.
    pub tag: u8,
    /// Bytes after the header.
    pub body: u32,
}

impl Header {
    /// Bytes of the whole message, header included.
    pub fn total(self) -> usize {
        HEADER + self.body as usize
    }
}

/// Reads a header; `None` if there are fewer than five bytes.
#[inline]
pub fn header(bytes: &[u8]) -> Option<Result<Header, WireError>> {
    let &[tag, a, b, c, d, ..] = bytes else {
        return None;
    };
    let length = u32::from_be_bytes([a, b, c, d]);
    if !(4..=LENGTH_MAX).contains(&length) {
        return Some(Err(WireError::Length { tag, length }));
    }
    Some(Ok(Header {
        tag,
        body: length - 4,
    }))
}

/// The number of bytes of the complete messages with this tag at the start of `bytes`: rows of a
/// result, or pieces of a COPY. 0 if the first message has another tag, is cut short, or is
/// malformed.
pub fn run_of(tag: u8, bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some((&[first, a, b, c, d], _)) = bytes[at..].split_first_chunk::<HEADER>() {
        let length = u32::from_be_bytes([a, b, c, d]);
        let end = at + 1 + length as usize;
        if first != tag || !(4..=LENGTH_MAX).contains(&length) || end > bytes.len() {
            break;
        }
        at = end;
    }
    at
}

/// Splits a zero-terminated string off the front: the string, and the bytes after its zero.
pub fn cstr(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&b| b == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Splits a big-endian `u16` off the front.
pub fn u16_be(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*head), rest))
}

/// Splits a big-endian `u32` off the front.
pub fn u32_be(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*head), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        assert_eq!(header(b"Q\0\0\0"), None);
        assert_eq!(
            header(b"Q\0\0\0\x04"),
            Some(Ok(Header { tag: b'Q', body: 0 }))
        );
        assert_eq!(header(b"Q\0\0\x01\x04xyz").unwrap().unwrap().total(), 261);
        let short = WireError::Length {
            tag: b'Q',
            length: 3,
        };
        assert_eq!(header(b"Q\0\0\0\x03"), Some(Err(short)));
        let long = WireError::Length {
            tag: b'Q',
            length: 0x4000_0000,
        };
        assert_eq!(header(b"Q\x40\0\0\0"), Some(Err(long)));
        let negative = WireError::Length {
            tag: b'Q',
            length: 0xffff_ffff,
        };
        assert_eq!(header(b"Q\xff\xff\xff\xff"), Some(Err(negative)));
    }

    #[test]
    fn runs_end_before_what_is_not_whole_or_not_alike() {
        let row = b"D\0\0\0\x06ab";
        let rows = [&row[..], b"D\0\0\0\x04", row].concat();
        assert_eq!(run_of(b'D', &rows), rows.len());
        for (rest, what) in [
            (&b"D\0\0\0\x06a"[..], "a body that is cut short"),
            (b"D\0\0\0", "a header that is cut short"),
            (b"C\0\0\0\x04", "another message"),
            (b"D\0\0\0\x03a", "a length that is too short"),
            (b"D\xff\xff\xff\xffa", "a length that is too long"),
            (b"", "nothing"),
        ] {
            assert_eq!(
                run_of(b'D', &[&rows[..], rest].concat()),
                rows.len(),
                "{what}"
            );
            assert_eq!(run_of(b'D', rest), 0, "{what}");
        }
    }

    #[test]
    fn strings_and_numbers() {
        assert_eq!(cstr(b"abc\0d"), Some((&b"abc"[..], &b"d"[..])));
        assert_eq!(cstr(b"\0"), Some((&b""[..], &b""[..])));
        assert_eq!(cstr(b"abc"), None);
        assert_eq!(u16_be(b"\x01\x02\x03"), Some((258, &b"\x03"[..])));
        assert_eq!(u16_be(b"\x01"), None);
        assert_eq!(u32_be(b"\0\0\x01\x02"), Some((258, &b""[..])));
    }
}
