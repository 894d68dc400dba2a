//! The line of a mistake, without what may be secret.

use std::borrow::Cow;

use super::connstr::Pair;

/// The greatest number of characters that are shown of a line.
const MAX_SHOWN: usize = 100;

/// What stands in place of text that is not shown.
pub(super) const HIDDEN: &str = "...";

/// A line of a file, with the place to look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Excerpt {
    /// The line, with single blanks around its `=`, and without values that may be secret.
    line: String,
    /// How many characters stand before the place.
    before: usize,
}

impl Excerpt {
    /// A line whose value is wrong. What may be secret in the value is not shown.
    pub(super) fn of_value(key: &str, value: &str) -> Excerpt {
        let front = format!("{key} = ");
        Excerpt {
            before: front.chars().count(),
            line: front + &without_secrets(value),
        }
    }

    /// A line whose value is wrong, and is not shown.
    pub(super) fn of_hidden(key: &str) -> Excerpt {
        Excerpt::of_value(key, HIDDEN)
    }

    /// A line whose key is wrong. Its value is not shown: what it is, is not known.
    pub(super) fn of_key(key: &str) -> Excerpt {
        Excerpt {
            before: 0,
            ..Excerpt::of_hidden(key)
        }
    }

    /// A line that can't be read behind these characters.
    pub(super) fn of_start(read: &str) -> Excerpt {
        Excerpt {
            before: read.chars().count(),
            line: format!("{read}{HIDDEN}"),
        }
    }

    /// An entry, with the place of one of its pairs. The values of unknown keys are not shown. `None`
    /// if there is a password.
    pub(super) fn of_pair(
        entry: &str,
        pairs: &[Pair],
        wrong: usize,
        known: impl Fn(&str) -> bool,
    ) -> Option<Excerpt> {
        let mut line = format!("{entry} =");
        let mut before = 0;
        for (at, Pair { key, value, .. }) in pairs.iter().enumerate() {
            if key.to_ascii_lowercase().contains("pass") {
                return None;
            }
            let (is_known, value) = (known(key), without_secrets(value));
            line.push_str(&format!(" {key}="));
            if at == wrong {
                let back = if is_known { 0 } else { key.len() + 1 };
                before = line.chars().count().saturating_sub(back);
            }
            match value.contains([' ', '\t', '\'']) {
                _ if !is_known => line.push_str(HIDDEN),
                true => line.push_str(&format!("'{}'", value.replace('\'', "''"))),
                false => line.push_str(&value),
            }
        }
        Some(Excerpt { line, before })
    }

    /// Two lines: the line with its number, and a caret below the place.
    pub fn show(&self, number: u32) -> String {
        // A long line is shown around its place.
        let from = if self.before > MAX_SHOWN * 3 / 4 {
            self.before - MAX_SHOWN / 4
        } else {
            0
        };
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let shown = self.line.chars().skip(from).take(MAX_SHOWN).map(plain);
        let shown: String = shown.collect();
        let number = number.to_string();
        let (margin, gap) = (" ".repeat(number.len()), " ".repeat(self.before - from));
        format!("  {number} | {shown}\n  {margin} | {gap}^\n")
    }
}

/// A value without the user and password of a URL in it; hidden if a password may follow the word
/// for one. (`require_auth=md5,!password` names a method.)
pub(super) fn without_secrets(value: &str) -> Cow<'_, str> {
    let lower = value.to_ascii_lowercase();
    let follows = |at: &str| {
        !at.trim_start_matches(|c: char| c.is_alphabetic())
            .is_empty()
    };
    let mut parts = lower.split(',');
    if parts.any(|part| {
        part.split_once("passw")
            .is_some_and(|(_, rest)| follows(rest))
    }) {
        return HIDDEN.into();
    }
    match (value.split_once("://"), value.rsplit_once('@')) {
        (Some((scheme, rest)), Some((_, host))) if rest.contains('@') => {
            format!("{scheme}://...@{host}").into()
        }
        _ => value.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::connstr;
    use super::*;

    #[test]
    fn the_caret_is_below_the_place() {
        let seen = Excerpt::of_value("pool_mode", "carpool").show(12);
        assert_eq!(seen, "  12 | pool_mode = carpool\n     |             ^\n");
        let seen = Excerpt::of_key("colour").show(3);
        assert_eq!(seen, "  3 | colour = ...\n    | ^\n");
        let long = format!("{}x", "ä".repeat(500));
        let seen = Excerpt::of_start(&long).show(1);
        let lines: Vec<_> = seen.lines().collect();
        let place = lines[1].chars().count() - 1;
        assert_eq!(lines[0].chars().nth(place - 1), Some('x'), "{seen}");
        let seen = Excerpt::of_value("a", "b\x1b[2Jc").show(1);
        assert!(!seen.contains('\x1b'), "{seen}");
    }

    #[test]
    fn what_may_be_secret_is_hidden() {
        let entry = |text: &str, wrong| {
            let pairs = connstr::parse(text).unwrap();
            let known = |key: &str| ["host", "port", "connect_query"].contains(&key);
            Excerpt::of_pair("x", &pairs, wrong, known).map(|excerpt| excerpt.show(1))
        };
        assert_eq!(
            entry("host=h port=y", 1).unwrap(),
            "  1 | x = host=h port=y\n    |                 ^\n"
        );
        assert_eq!(
            entry("host=h pwd=hush connect_query='it''s'", 1).unwrap(),
            "  1 | x = host=h pwd=... connect_query='it''s'\n    |            ^\n"
        );
        for text in ["password=hush", "PGPASSWORD=hush"] {
            assert_eq!(entry(&format!("host=h port=y {text}"), 1), None);
        }
        for text in [
            "host=postgres://u:hu@sh@h port=y",
            "connect_query='ALTER ROLE a PASSWORD ''hush''' port=y",
        ] {
            let shown = entry(text, 1).unwrap();
            assert!(shown.contains("...") && !shown.contains("sh@") && !shown.contains("hush"));
        }
    }
}
