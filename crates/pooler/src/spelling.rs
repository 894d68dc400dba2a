//! PostgreSQL's spelling of parameter values. Howdah reports the values of a start-up packet to the
//! client in this spelling before any server has seen them.
//!
//! Only certain spellings are changed. Wrong values are left for PostgreSQL to refuse.

use crate::limits;
use std::borrow::Cow;

use crate::params::{Params, Tracked};

/// Names of encodings, letters and digits only, and PostgreSQL's own names.
const ENCODINGS: [(&str, &str); 34] = [
    ("utf8", "UTF8"),
    ("unicode", "UTF8"),
    ("sqlascii", "SQL_ASCII"),
    ("latin1", "LATIN1"),
    ("iso88591", "LATIN1"),
    ("latin2", "LATIN2"),
    ("iso88592", "LATIN2"),
    ("latin3", "LATIN3"),
    ("latin4", "LATIN4"),
    ("latin5", "LATIN5"),
    ("latin6", "LATIN6"),
    ("latin7", "LATIN7"),
    ("latin8", "LATIN8"),
    ("latin9", "LATIN9"),
    ("iso885915", "LATIN9"),
    ("latin10", "LATIN10"),
    ("win1250", "WIN1250"),
    ("windows1250", "WIN1250"),
    ("win1251", "WIN1251"),
    ("windows1251", "WIN1251"),
    ("win1252", "WIN1252"),
    ("windows1252", "WIN1252"),
    ("win1253", "WIN1253"),
    ("win1254", "WIN1254"),
    ("win1257", "WIN1257"),
    ("koi8r", "KOI8R"),
    ("koi8u", "KOI8U"),
    ("eucjp", "EUC_JP"),
    ("euckr", "EUC_KR"),
    ("euccn", "EUC_CN"),
    ("euctw", "EUC_TW"),
    ("sjis", "SJIS"),
    ("gbk", "GBK"),
    ("gb18030", "GB18030"),
];

/// The first version that replaces unwanted bytes of a name by `\xhh`. Older ones write `?`.
const ESCAPES_SINCE: u32 = 16;

/// A client's parameters as PostgreSQL of version `major` would report them. `server` has the
/// server's defaults.
pub fn canonical(tracked: &Tracked, asked: &Params, server: &Params, major: u32) -> Params {
    let mut params = asked.clone();
    for (position, value) in asked.known() {
        let name = tracked.names()[position].as_str();
        if name.eq_ignore_ascii_case("application_name") {
            params = params.with(position, &plain_name(value, major));
            continue;
        }
        let text = String::from_utf8_lossy(value);
        if let Some(spelled) = spelling(name, &text, server.get(position)) {
            params = params.with(position, spelled.as_bytes());
        }
    }
    params
}

/// The value that PostgreSQL reports for an untracked setting that a client asked for.
pub fn reported<'a>(name: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
    let text = std::str::from_utf8(value).ok();
    let text = text.filter(|_| name == b"default_transaction_read_only");
    let spelled = text.and_then(boolean);
    spelled.map_or(Cow::Borrowed(value), |on| Cow::Owned(on.into_bytes()))
}

/// PostgreSQL's spelling of a value, if certain.
fn spelling(name: &str, value: &str, server: Option<&[u8]>) -> Option<String> {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    if is("client_encoding") {
        encoding(value)
    } else if is("DateStyle") {
        date_style(value, std::str::from_utf8(server?).ok()?)
    } else if is("standard_conforming_strings") {
        boolean(value)
    } else if is("IntervalStyle") {
        let styles = ["postgres", "postgres_verbose", "sql_standard", "iso_8601"];
        let lower = value.to_ascii_lowercase();
        styles.contains(&lower.as_str()).then_some(lower)
    } else if is("TimeZone") {
        let upper = value.to_ascii_uppercase();
        matches!(&*upper, "UTC" | "GMT").then_some(upper)
    } else {
        None
    }
}

/// The part that PostgreSQL keeps, with a notice, of a name that is too long.
pub fn cut_name(value: &[u8]) -> Option<&[u8]> {
    (value.len() > limits::NAME).then(|| &value[..name_end(value)])
}

fn name_end(value: &[u8]) -> usize {
    let mut end = value.len().min(limits::NAME);
    if let Ok(text) = std::str::from_utf8(value) {
        while !text.is_char_boundary(end) {
            end -= 1;
        }
    }
    end
}

/// A name in printable ASCII, truncated. Like PostgreSQL's `pg_clean_ascii`, this replaces other
/// bytes, so the name can be set on any server, whatever its encoding.
fn plain_name(value: &[u8], major: u32) -> Vec<u8> {
    let end = name_end(value);
    let mut plain = Vec::with_capacity(end);
    for &byte in &value[..end] {
        match byte {
            b' '..=b'~' => plain.push(byte),
            _ if major >= ESCAPES_SINCE => plain.extend(format!("\\x{byte:02x}").bytes()),
            _ => plain.push(b'?'),
        }
    }
    // SET would truncate the name again.
    plain.truncate(limits::NAME);
    plain
}

fn encoding(value: &str) -> Option<String> {
    let letters = value.chars().filter(char::is_ascii_alphanumeric);
    let plain: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    let mut known = ENCODINGS.iter();
    known
        .find(|(spelled, _)| *spelled == plain)
        .map(|(_, name)| (*name).to_string())
}

/// A boolean may be abbreviated while it is unambiguous.
fn boolean(value: &str) -> Option<String> {
    let lower = value.to_ascii_lowercase();
    let begins = |word: &str, least| lower.len() >= least && word.starts_with(&lower);
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || lower == "1" {
        Some("on".to_string())
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || lower == "0" {
        Some("off".to_string())
    } else {
        None
    }
}

/// Style and order. The server's value stands in for a missing one.
fn date_style(value: &str, server: &str) -> Option<String> {
    let (mut style, mut order) = server.split_once(", ")?;
    let mut ordered = false;
    for word in value.split(',') {
        let word = word.trim().to_ascii_lowercase();
        match word.as_str() {
            "iso" => style = "ISO",
            "sql" => style = "SQL",
            "postgres" => style = "Postgres",
            "german" => {
                style = "German";
                if !ordered {
                    order = "DMY";
                }
            }
            "ymd" => (order, ordered) = ("YMD", true),
            "dmy" | "european" => (order, ordered) = ("DMY", true),
            "mdy" | "us" | "noneuropean" => (order, ordered) = ("MDY", true),
            _ => return None,
        }
    }
    Some(format!("{style}, {order}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_postgresql_reports_it() {
        for (name, value, expected) in [
            ("DateStyle", "iso", Some("ISO, MDY")),
            ("datestyle", "German", Some("German, DMY")),
            ("DateStyle", "ymd, German", Some("German, YMD")),
            ("DateStyle", "european", Some("SQL, DMY")),
            ("DateStyle", "nonsense", None),
            ("client_encoding", "'utf-8'", Some("UTF8")),
            ("client_encoding", "ISO_8859_1", Some("LATIN1")),
            ("client_encoding", "nonsense", None),
            ("standard_conforming_strings", "T", Some("on")),
            ("standard_conforming_strings", "of", Some("off")),
            ("standard_conforming_strings", "o", None),
            ("IntervalStyle", "ISO_8601", Some("iso_8601")),
            ("TimeZone", "utc", Some("UTC")),
            ("TimeZone", "europe/berlin", None),
        ] {
            let server = if value == "european" {
                "SQL, MDY"
            } else {
                "ISO, MDY"
            };
            let found = spelling(name, value, Some(server.as_bytes()));
            assert_eq!(found.as_deref(), expected, "{name}={value}");
        }
    }

    #[test]
    fn names_are_plain() {
        let (exact, over) = ("x".repeat(63), "x".repeat(62) + "\u{e9}");
        for (value, old, new) in [
            (&b"a 'b' \\"[..], "a 'b' \\", "a 'b' \\"),
            (b"", "", ""),
            ("caf\u{e9}".as_bytes(), "caf??", "caf\\xc3\\xa9"),
            (b"\xff\n", "??", "\\xff\\x0a"),
            ("x".repeat(70).as_bytes(), &exact, &exact),
            (over.as_bytes(), &exact[1..], &exact[1..]),
        ] {
            assert_eq!(plain_name(value, 15), old.as_bytes());
            assert_eq!(plain_name(value, 16), new.as_bytes());
        }
        assert_eq!(plain_name("\u{e9}".repeat(40).as_bytes(), 18).len(), 63);
    }
}
