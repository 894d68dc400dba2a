//! Readers of clients' messages. Each takes a message's body.

use crate::WireError;
use crate::frame::{cstr, u16_be};
use crate::tag::frontend as tag;

/// Parse: a statement's name, then its text and parameter types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parse<'a> {
    /// Empty for the unnamed statement.
    pub name: &'a [u8],
    /// Text (zero-terminated) and parameter types, as on the wire. Two statements with the same
    /// definition are the same statement.
    pub definition: &'a [u8],
}

impl<'a> Parse<'a> {
    /// Reads a Parse's body. An error if it is malformed.
    pub fn read(body: &'a [u8]) -> Result<Self, WireError> {
        let bad = WireError::Body { tag: tag::PARSE };
        let (name, definition) = cstr(body).ok_or(bad)?;
        let (_, types) = cstr(definition).ok_or(bad)?;
        let (count, types) = u16_be(types).ok_or(bad)?;
        if types.len() != usize::from(count) * 4 {
            return Err(bad);
        }
        Ok(Parse { name, definition })
    }

    /// The statement's text.
    pub fn text(self) -> &'a [u8] {
        cstr(self.definition).map_or(&[], |(text, _)| text)
    }
}

/// The start of a Bind: the names of the portal and of its statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindNames<'a> {
    /// Empty for the unnamed portal.
    pub portal: &'a [u8],
    /// Empty for the unnamed statement.
    pub statement: &'a [u8],
}

impl<'a> BindNames<'a> {
    /// Reads the two names; `None` if they are cut short.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let (portal, rest) = cstr(body)?;
        let (statement, _) = cstr(rest)?;
        Some(BindNames { portal, statement })
    }

    /// Bytes of both names with their zeros.
    pub fn size(self) -> usize {
        self.portal.len() + self.statement.len() + 2
    }
}

/// The object of a Describe or a Close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject<'a> {
    /// A prepared statement.
    Statement(&'a [u8]),
    /// A portal.
    Portal(&'a [u8]),
}

impl<'a> Subject<'a> {
    /// Reads the body of a Describe or a Close. The tag is only for the error.
    pub fn read(tag: u8, body: &'a [u8]) -> Result<Self, WireError> {
        let bad = WireError::Body { tag };
        let (kind, rest) = body.split_first().ok_or(bad)?;
        let (name, rest) = cstr(rest).ok_or(bad)?;
        match kind {
            b'S' if rest.is_empty() => Ok(Subject::Statement(name)),
            b'P' if rest.is_empty() => Ok(Subject::Portal(name)),
            _ => Err(bad),
        }
    }
}

/// A Bind makes a portal from a statement and values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bind<'a> {
    /// The names of the portal and the statement.
    pub names: BindNames<'a>,
    /// Formats of the values: none (all text), one for all, or one for each.
    pub formats: Vec<u16>,
    /// The values of the parameters; `None` is NULL.
    pub values: Vec<Option<&'a [u8]>>,
    /// Formats of the result's columns: none (all text), one for all, or one for each.
    pub wanted: Vec<u16>,
}

impl<'a> Bind<'a> {
    /// Reads a complete Bind. An error if the body is malformed.
    pub fn read(body: &'a [u8]) -> Result<Self, WireError> {
        let bad = WireError::Body { tag: tag::BIND };
        let names = BindNames::read(body).ok_or(bad)?;
        let (formats, rest) = numbers(&body[names.size()..]).ok_or(bad)?;
        let (count, mut rest) = u16_be(rest).ok_or(bad)?;
        let mut values = Vec::new();
        for _ in 0..count {
            let (length, after) = rest.split_first_chunk::<4>().ok_or(bad)?;
            rest = after;
            values.push(match i32::from_be_bytes(*length) {
                -1 => None,
                length => {
                    let length = usize::try_from(length).map_err(|_| bad)?;
                    let (value, after) = rest.split_at_checked(length).ok_or(bad)?;
                    rest = after;
                    Some(value)
                }
            });
        }
        let (wanted, rest) = numbers(rest).ok_or(bad)?;
        let fits = |formats: &[u16]| formats.len() <= 1 || formats.len() == values.len();
        if !rest.is_empty() || !fits(&formats) {
            return Err(bad);
        }
        Ok(Bind {
            names,
            formats,
            values,
            wanted,
        })
    }
}

/// The format of the value at `position`. `formats` has no format (all text), one for all, or one
/// for each.
pub fn format_of(formats: &[u16], position: usize) -> u16 {
    match formats {
        [] => 0,
        [one] => *one,
        each => each.get(position).copied().unwrap_or(0),
    }
}

/// Reads a count, and as many numbers of two bytes.
fn numbers(body: &[u8]) -> Option<(Vec<u16>, &[u8])> {
    let (count, mut rest) = u16_be(body)?;
    let mut all = Vec::new();
    for _ in 0..count {
        let (number, after) = u16_be(rest)?;
        all.push(number);
        rest = after;
    }
    Some((all, rest))
}

/// The maximum number of rows of an Execute; 0 for all rows.
pub fn execute_rows(body: &[u8]) -> u32 {
    body.last_chunk::<4>()
        .map_or(0, |most| u32::from_be_bytes(*most))
}

/// The portal that an Execute's body names. An error if the body is malformed.
pub fn execute_portal(body: &[u8]) -> Result<&[u8], WireError> {
    match cstr(body) {
        Some((portal, rest)) if rest.len() == 4 => Ok(portal),
        _ => Err(WireError::Body { tag: tag::EXECUTE }),
    }
}

/// Reads a body that is one zero-terminated string (Query, PasswordMessage). Returns the string
/// without its zero, or an error for any other body.
pub fn string(tag: u8, body: &[u8]) -> Result<&[u8], WireError> {
    match cstr(body) {
        Some((text, [])) => Ok(text),
        _ => Err(WireError::Body { tag }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_bodies() {
        let parse = Parse::read(b"s\0select $1\0\0\x01\0\0\0\x17").unwrap();
        assert_eq!(parse.name, b"s");
        assert_eq!(parse.text(), b"select $1");
        for bad in [
            &b""[..],
            b"s",
            b"s\0x",
            b"s\0x\0",
            b"s\0x\0\0\x01",
            b"s\0x\0\0\0y",
        ] {
            assert!(Parse::read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn bind_bodies() {
        let body = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\x01\0\x01";
        let bind = Bind::read(body).unwrap();
        assert_eq!(bind.names.statement, b"s");
        assert_eq!(bind.values, [Some(&b"x"[..]), None]);
        assert_eq!((&bind.formats[..], &bind.wanted[..]), (&[1][..], &[1][..]));
        assert_eq!(
            (format_of(&[], 1), format_of(&[1], 1), format_of(&[1, 0], 1)),
            (0, 1, 0)
        );
        for length in 0..body.len() {
            assert!(Bind::read(&body[..length]).is_err(), "{length}");
        }
        assert!(Bind::read(b"\0\0\0\0\0\x01\xff\xff\xff\xf0\0\0").is_err());
        assert!(Bind::read(b"\0\0\0\x02\0\0\0\0\0\0\0\0").is_err());
        assert_eq!(execute_rows(b"\0\0\0\0\x07"), 7);
    }

    #[test]
    fn names() {
        let names = BindNames::read(b"p\0st\0rest").unwrap();
        assert_eq!(
            (names.portal, names.statement, names.size()),
            (&b"p"[..], &b"st"[..], 5)
        );
        assert!(BindNames::read(b"p\0st").is_none());
        assert_eq!(Subject::read(b'D', b"Sx\0"), Ok(Subject::Statement(b"x")));
        assert_eq!(Subject::read(b'D', b"P\0"), Ok(Subject::Portal(b"")));
        for bad in [&b""[..], b"S", b"Sx", b"Qx\0", b"Sx\0y"] {
            assert!(Subject::read(b'C', bad).is_err(), "{bad:?}");
        }
        assert_eq!(execute_portal(b"p\0\0\0\0\0"), Ok(&b"p"[..]));
        assert!(execute_portal(b"p\0\0\0\0").is_err());
        assert_eq!(string(b'Q', b"x\0"), Ok(&b"x"[..]));
        assert!(string(b'Q', b"x").is_err());
        assert!(string(b'Q', b"x\0y").is_err());
    }
}
