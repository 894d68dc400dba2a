//! Readers of PostgreSQL's messages. Each takes a message's body.

use crate::WireError;
use crate::frame::{cstr, u32_be};
use crate::tag::backend as tag;

/// The transaction status in ReadyForQuery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Status {
    /// Not in a transaction block.
    #[default]
    Idle,
    /// In a transaction block.
    Transaction,
    /// In a failed transaction block.
    Failed,
}

impl Status {
    /// Reads a ReadyForQuery's body: one of `I`, `T` and `E`, or an error.
    pub fn read(body: &[u8]) -> Result<Self, WireError> {
        match body {
            b"I" => Ok(Status::Idle),
            b"T" => Ok(Status::Transaction),
            b"E" => Ok(Status::Failed),
            _ => Err(WireError::Body { tag: tag::READY }),
        }
    }

    /// The byte on the wire.
    pub fn byte(self) -> u8 {
        match self {
            Status::Idle => b'I',
            Status::Transaction => b'T',
            Status::Failed => b'E',
        }
    }
}

/// Reads a ParameterStatus's body: name and value. An error unless these are two zero-terminated
/// strings and nothing else.
pub fn parameter_status(body: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let bad = WireError::Body {
        tag: tag::PARAMETER_STATUS,
    };
    let (name, rest) = cstr(body).ok_or(bad)?;
    match cstr(rest) {
        Some((value, [])) => Ok((name, value)),
        _ => Err(bad),
    }
}

/// Reads a BackendKeyData's body: process id and secret (4 bytes; up to 256 from protocol 3.2). An
/// error if the secret has another length.
pub fn key_data(body: &[u8]) -> Result<(u32, &[u8]), WireError> {
    match u32_be(body) {
        Some((pid, secret)) if (4..=256).contains(&secret.len()) => Ok((pid, secret)),
        _ => Err(WireError::Body {
            tag: tag::BACKEND_KEY_DATA,
        }),
    }
}

/// The tag in a CommandComplete's body, without its zero. An error if the zero is missing.
#[inline]
pub fn command_tag(body: &[u8]) -> Result<&[u8], WireError> {
    match body {
        [tag @ .., 0] => Ok(tag),
        _ => Err(WireError::Body {
            tag: tag::COMMAND_COMPLETE,
        }),
    }
}

/// The fields of an ErrorResponse or a NoticeResponse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Takes a body. Fields after a malformed one are ignored.
    pub fn new(body: &'a [u8]) -> Self {
        Fields(body)
    }

    /// Code letters and values in order.
    pub fn iter(self) -> impl Iterator<Item = (u8, &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (&code, after) = rest.split_first()?;
            if code == 0 {
                return None;
            }
            let (value, after) = cstr(after)?;
            rest = after;
            Some((code, value))
        })
    }

    /// A field's value.
    pub fn get(self, code: u8) -> Option<&'a [u8]> {
        self.iter().find(|(c, _)| *c == code).map(|(_, v)| v)
    }

    /// The severity in English, whatever `lc_messages` is: field V (PostgreSQL 9.6 and later), else
    /// field S.
    pub fn severity(self) -> &'a [u8] {
        self.get(b'V')
            .or_else(|| self.get(b'S'))
            .unwrap_or(b"ERROR")
    }

    /// The routine of PostgreSQL that reports the error.
    pub fn routine(self) -> &'a [u8] {
        self.get(b'R').unwrap_or_default()
    }

    /// The SQLSTATE.
    pub fn sqlstate(self) -> Option<&'a [u8]> {
        self.get(b'C')
    }

    /// The message.
    pub fn message(self) -> &'a [u8] {
        self.get(b'M').unwrap_or(b"")
    }

    /// The SQLSTATE and the message as texts. `absent` stands for the SQLSTATE of an error without
    /// one.
    pub fn texts(self, absent: &str) -> (String, String) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let sqlstate = self.sqlstate().map_or_else(|| absent.to_owned(), text);
        (sqlstate, text(self.message()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        assert_eq!(Status::read(b"T"), Ok(Status::Transaction));
        assert!(Status::read(b"X").is_err());
        assert!(Status::read(b"").is_err());
        assert_eq!(parameter_status(b"a\0b\0"), Ok((&b"a"[..], &b"b"[..])));
        assert!(parameter_status(b"a\0b").is_err());
        assert_eq!(key_data(b"\0\0\0\x07abcd"), Ok((7, &b"abcd"[..])));
        assert!(key_data(b"\0\0\0\x07abc").is_err());
        assert_eq!(command_tag(b"SELECT 1\0"), Ok(&b"SELECT 1"[..]));
        assert!(command_tag(b"SELECT 1").is_err());
    }

    #[test]
    fn fields() {
        let fields = Fields::new(b"SERREUR\0VERROR\0C26000\0Mno\0\0");
        assert_eq!(fields.severity(), b"ERROR");
        assert_eq!(fields.sqlstate(), Some(&b"26000"[..]));
        assert_eq!(fields.message(), b"no");
        assert_eq!(fields.texts("XX000"), ("26000".into(), "no".into()));
        assert_eq!(Fields::new(b"").texts("XX000"), ("XX000".into(), "".into()));
        assert_eq!(Fields::new(b"Sx").iter().count(), 0);
        assert_eq!(Fields::new(b"").message(), b"");
    }
}
