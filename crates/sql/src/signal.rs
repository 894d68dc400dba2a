//! `SELECT pg_cancel_backend(N)` and `SELECT pg_terminate_backend(N)`.

use howdah_wire::frontend::{Bind, format_of};

/// The highest process id that Linux gives to a process. The ids that Howdah tells its clients are
/// higher.
pub const HIGHEST_PID: u32 = 1 << 22;

/// No longer text is read.
const LONGEST: usize = 160;

/// A text that is nothing but such a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignalText {
    /// `pg_terminate_backend`.
    pub ends: bool,
    /// The process id in the text; `None`: the only parameter of the text.
    pub pid: Option<i64>,
    /// The name of the result's column, as written.
    pub column: Box<[u8]>,
}

impl SignalText {
    /// A first look, in a few instructions: false for most texts that are no such call.
    #[inline]
    pub fn may_be(text: &[u8]) -> bool {
        matches!(
            text,
            [_, _, _, _, _, _, _, b'p' | b'P', b'g' | b'G', b'_', ..]
        )
    }

    /// Reads a text. `None` for all other texts.
    #[inline]
    pub fn read(text: &[u8]) -> Option<SignalText> {
        let begins = text.len() < LONGEST
            && SignalText::may_be(text)
            && text[..6].eq_ignore_ascii_case(b"select");
        begins.then(|| read(&text[6..])).flatten()
    }

    /// The process id, if Howdah may have told it to a client. `bind` is the Bind's body.
    pub fn told(&self, bind: Option<&[u8]>) -> Option<u32> {
        let bind = bind.and_then(|body| Bind::read(body).ok());
        let pid = match (self.pid, &bind) {
            (Some(pid), _) => pid,
            (None, Some(bind)) => match bind.values.as_slice() {
                [Some(value)] if format_of(&bind.formats, 0) == 0 => number(value)?,
                [Some(value)] => match **value {
                    [a, b, c, d] => i32::from_be_bytes([a, b, c, d]).into(),
                    _ => i64::from_be_bytes((*value).try_into().ok()?),
                },
                _ => return None,
            },
            (None, None) => return None,
        };
        u32::try_from(pid).ok().filter(|pid| *pid > HIGHEST_PID)
    }

    /// A text with the same result if the signal was sent.
    pub fn success(&self) -> Vec<u8> {
        [b"SELECT true AS ".as_slice(), &self.column].concat()
    }
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

fn read(text: &[u8]) -> Option<SignalText> {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text).trim_ascii_end();
    let text = match word(text) {
        (name, rest) if name.eq_ignore_ascii_case(b"pg_catalog") => rest
            .trim_ascii_start()
            .strip_prefix(b".")?
            .trim_ascii_start(),
        _ => text,
    };
    let (name, rest) = word(text);
    let (ends, column): (bool, &[u8]) = match name.to_ascii_lowercase().as_slice() {
        b"pg_cancel_backend" => (false, b"pg_cancel_backend"),
        b"pg_terminate_backend" => (true, b"pg_terminate_backend"),
        _ => return None,
    };
    let rest = rest.trim_ascii_start().strip_prefix(b"(")?;
    let close = rest.iter().position(|byte| *byte == b')')?;
    let (argument, rest) = (rest[..close].trim_ascii(), rest[close + 1..].trim_ascii());
    let pid = match argument {
        b"$1" => None,
        digits if digits.iter().all(u8::is_ascii_digit) => Some(number(digits)?),
        _ => return None,
    };
    let column = match word(rest) {
        (b"", b"") => column,
        (word_as, alias) if word_as.eq_ignore_ascii_case(b"as") => {
            let alias = alias.trim_ascii_start();
            let plain = match alias {
                [b'"', name @ .., b'"'] => name,
                name => name,
            };
            if plain.is_empty() || !word(plain).1.is_empty() || plain[0].is_ascii_digit() {
                return None;
            }
            alias
        }
        _ => return None,
    };
    Some(SignalText {
        ends,
        pid,
        column: column.into(),
    })
}

/// The word at the beginning of a text, and the rest.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let ends = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_';
    let end = text.iter().position(ends).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_a_call_is_a_signal() {
        let read = |text: &str| {
            let read = SignalText::read(text.as_bytes())?;
            let column = String::from_utf8(read.column.to_vec()).unwrap();
            Some((read.ends, read.pid, column))
        };
        let cancel = |pid, column: &str| Some((false, pid, column.to_string()));
        for text in [
            "select pg_cancel_backend(7)",
            "SELECT\tPG_cancel_backend ( 7 ) ;\n",
            "select pg_catalog.pg_cancel_backend(7)",
            "select pg_catalog . pg_cancel_backend(7);",
        ] {
            assert_eq!(read(text), cancel(Some(7), "pg_cancel_backend"), "{text}");
        }
        let text = "SELECT pg_cancel_backend($1) AS done;";
        assert_eq!(read(text), cancel(None, "done"));
        let text = "select pg_terminate_backend(7) as \"Done\"";
        assert_eq!(read(text), Some((true, Some(7), "\"Done\"".into())));
        for text in [
            "",
            "select",
            "select pg_sleep(7)",
            "select pg_cancel_backend(7), 1",
            "select pg_cancel_backend(7) from t",
            "select pg_cancel_backend(7) as a b",
            "select pg_cancel_backend(7) as \"a\"\"b\"",
            "select pg_cancel_backend(7) as 1",
            "select pg_cancel_backend(7) as",
            "select pg_cancel_backend(pid)",
            "select pg_cancel_backend($2)",
            "select pg_cancel_backend(7);select 1",
            "select pg_cancel_backend()",
            "select pg_cancel_backend(99999999999999999999)",
            "select pg_terminate_backend(7, 100)",
            "select other.pg_cancel_backend(7)",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_id_that_howdah_may_have_told_is_above_those_of_processes() {
        let bind = |format: u8, value: &[u8]| {
            let mut body = vec![0, 0, 0, 1, 0, format, 0, 1];
            body.extend_from_slice(&(value.len() as u32).to_be_bytes());
            body.extend_from_slice(value);
            body.extend_from_slice(&[0, 0]);
            body
        };
        let told = |text: &str, bind: Option<Vec<u8>>| {
            SignalText::read(text.as_bytes())
                .unwrap()
                .told(bind.as_deref())
        };
        assert_eq!(
            told("select pg_cancel_backend(4194305)", None),
            Some(4_194_305)
        );
        assert_eq!(told("select pg_cancel_backend(4194304)", None), None);
        let text = "select pg_cancel_backend($1)";
        assert_eq!(told(text, Some(bind(0, b"5000000"))), Some(5_000_000));
        let four = 5_000_000_u32.to_be_bytes();
        assert_eq!(told(text, Some(bind(1, &four))), Some(5_000_000));
        let eight = 5_000_000_u64.to_be_bytes();
        assert_eq!(told(text, Some(bind(1, &eight))), Some(5_000_000));
        for (format, value) in [(0, b"-1".as_slice()), (0, b"x"), (1, b"xx"), (0, b"77")] {
            assert_eq!(told(text, Some(bind(format, value))), None);
        }
        assert_eq!(told(text, None), None);
    }
}
