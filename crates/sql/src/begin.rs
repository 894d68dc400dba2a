//! The command that begins a transaction, and its modes.

use crate::token::{Token, Tokens};

/// `BEGIN` or `START TRANSACTION`: what it says about the transaction. `None` where a setting
/// decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Begin {
    /// `READ ONLY` or `READ WRITE`.
    pub read_only: Option<bool>,
    /// `ISOLATION LEVEL SERIALIZABLE`, or another level.
    pub serializable: Option<bool>,
    /// `DEFERRABLE` or `NOT DEFERRABLE`.
    pub deferrable: Option<bool>,
}

impl Begin {
    /// Reads a text. `None` unless the text is this command alone, as PostgreSQL accepts it.
    pub fn read(text: &[u8]) -> Option<Begin> {
        let mut tokens = Tokens::new(text);
        if tokens.word(b"start") {
            tokens.word(b"transaction").then_some(())?;
        } else {
            tokens.word(b"begin").then_some(())?;
            let _ = tokens.word(b"work") || tokens.word(b"transaction");
        }
        let mut begin = Begin::default();
        let mut separated = false;
        while begin.read_mode(&mut tokens) {
            separated = tokens.sign(b',');
        }
        let ends = tokens.all(|token| token == Token::Sign(b';'));
        (ends && !separated).then_some(begin)
    }

    /// Reads one mode, if one comes next.
    fn read_mode(&mut self, tokens: &mut Tokens<'_>) -> bool {
        let mut ahead = *tokens;
        let mut words = |words: &[&[u8]]| {
            let mut behind = ahead;
            let come = words.iter().all(|word| behind.word(word));
            if come {
                ahead = behind;
            }
            come
        };
        if words(&[b"read", b"only"]) {
            self.read_only = Some(true);
        } else if words(&[b"read", b"write"]) {
            self.read_only = Some(false);
        } else if words(&[b"isolation", b"level", b"serializable"]) {
            self.serializable = Some(true);
        } else if words(&[b"isolation", b"level", b"repeatable", b"read"])
            || words(&[b"isolation", b"level", b"read", b"committed"])
            || words(&[b"isolation", b"level", b"read", b"uncommitted"])
        {
            self.serializable = Some(false);
        } else if words(&[b"deferrable"]) {
            self.deferrable = Some(true);
        } else if words(&[b"not", b"deferrable"]) {
            self.deferrable = Some(false);
        } else {
            return false;
        }
        *tokens = ahead;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_transactions() {
        let modes = |read_only, serializable, deferrable| {
            Some(Begin {
                read_only,
                serializable,
                deferrable,
            })
        };
        let none = modes(None, None, None);
        for (text, expected) in [
            ("begin", none),
            ("BEGIN;", none),
            (" /* a */ Begin -- b\n work ; ;", none),
            ("begin transaction", none),
            ("start transaction", none),
            ("BEGIN READ ONLY", modes(Some(true), None, None)),
            ("begin read/**/write", modes(Some(false), None, None)),
            (
                "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE;",
                modes(Some(true), Some(true), Some(true)),
            ),
            (
                "begin isolation level repeatable read not deferrable read only",
                modes(Some(true), Some(false), Some(false)),
            ),
            (
                "begin isolation level read committed",
                modes(None, Some(false), None),
            ),
            (
                "begin isolation level read uncommitted, isolation level serializable",
                modes(None, Some(true), None),
            ),
            (
                "begin read only, read write",
                modes(Some(false), None, None),
            ),
            ("", None),
            ("start", None),
            ("start work", None),
            ("begin work transaction", None),
            ("begin read", None),
            ("begin read only,", None),
            ("begin , read only", None),
            ("begin read only;; read write", None),
            ("begin isolation level", None),
            ("begin isolation level serializable read", None),
            ("begin; select 1", None),
            ("begin read \"only\"", None),
            ("beginning", None),
            ("select 1", None),
            ("set transaction read only", None),
        ] {
            assert_eq!(Begin::read(text.as_bytes()), expected, "{text}");
        }
    }
}
