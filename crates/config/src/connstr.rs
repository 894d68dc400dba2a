//! Connection strings, the values in `[databases]`, `[users]` and `[peers]`: `key=value` pairs with blanks
//! between them. A value may be in single quotes; inside them `''` stands for a quote.

use super::quotes::quoted;

/// One pair of a connection string.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    pub key: String,
    pub value: String,
    /// The value stands in double quotes, which are read like single ones: it contains blanks, so
    /// the text means nothing otherwise. (A word in double quotes keeps them, as in PgBouncer.)
    pub in_double_quotes: bool,
}

/// The pairs of a connection string, in order.
///
/// # Errors
/// What is wrong, and how to correct it.
pub(super) fn parse(text: &str) -> Result<Vec<Pair>, String> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(['=', ' ', '\t']).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        if key.contains("://") {
            return Err("there is a URL in it: write `key=value` pairs instead".into());
        }
        let Some(after) = after.trim_start().strip_prefix('=') else {
            // The word may be the rest of a password that contains a blank.
            return Err(
                "missing = after a word: write `key=value` pairs separated by spaces, and values with \
                 blanks in quotes"
                    .into(),
            );
        };
        if key.is_empty() {
            return Err("a key is missing before `=`".into());
        }
        let after = after.trim_start();
        let doubly = in_double_quotes(after);
        let (value, after) = doubly
            .map(|(value, after)| (value.to_owned(), after))
            .or_else(|| take_value(after))
            .ok_or_else(|| format!("the quoted value of {key} is not closed"))?;
        if value.is_empty() {
            return Err(format!("the value of {key} is empty: leave the pair out"));
        }
        pairs.push(Pair {
            key: key.to_owned(),
            value,
            in_double_quotes: doubly.is_some(),
        });
        rest = after.trim_start();
    }
    Ok(pairs)
}

/// A text with blanks in double quotes at the start of the text, and the text after it.
fn in_double_quotes(text: &str) -> Option<(&str, &str)> {
    let (inside, after) = text.strip_prefix('"')?.split_once('"')?;
    let ends = after.is_empty() || after.starts_with([' ', '\t']);
    (ends && inside.contains([' ', '\t'])).then_some((inside, after))
}

/// The value at the start of the text, and the text after it; `None` if a quote is not closed.
fn take_value(text: &str) -> Option<(String, &str)> {
    if text.starts_with('\'') {
        return quoted(text, '\'');
    }
    let end = text.find([' ', '\t']).unwrap_or(text.len());
    Some((text[..end].to_owned(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs() {
        for (text, pairs) in [
            ("", &[][..]),
            ("   ", &[]),
            ("a=b", &[("a", "b")]),
            ("  a = b   c=d ", &[("a", "b"), ("c", "d")]),
            (
                "q='it''s; so = what' x=1",
                &[("q", "it's; so = what"), ("x", "1")],
            ),
            ("a='b'c=d", &[("a", "b"), ("c", "d")]),
            ("a=b=c", &[("a", "b=c")]),
            ("host=127.0.0.1,::1", &[("host", "127.0.0.1,::1")]),
            ("a=x'y", &[("a", "x'y")]),
        ] {
            let seen = parse(text).unwrap();
            let seen = seen.iter().map(|pair| (&*pair.key, &*pair.value));
            assert_eq!(seen.collect::<Vec<_>>(), pairs, "{text:?}");
        }
    }

    #[test]
    fn double_quotes_around_blanks() {
        for (text, value, doubly) in [
            ("a=\"select 1\"", "select 1", true),
            ("a = \"it's so\" b=c", "it's so", true),
            ("a=\"word\"", "\"word\"", false),
            ("a=\"x\"y b=\"z\"", "\"x\"y", false),
            ("a='\"select 1\"'", "\"select 1\"", false),
        ] {
            let seen = parse(text).unwrap().swap_remove(0);
            let seen = (&*seen.value, seen.in_double_quotes);
            assert_eq!(seen, (value, doubly), "{text:?}");
        }
        assert!(parse("a=\"select 1").is_err() && parse("a=\"b c\"d").is_err());
    }

    #[test]
    fn mistakes() {
        for (text, said) in [
            ("a", "missing ="),
            ("a b=c", "missing ="),
            ("a=b c://d:e@f/?g=h", "there is a URL"),
            ("=b", "a key is missing"),
            ("a=", "the value of a is empty"),
            ("a='' b=c", "the value of a is empty"),
            ("a='b", "the quoted value of a is not closed"),
            ("a='b''", "the quoted value of a is not closed"),
        ] {
            let seen = parse(text).unwrap_err();
            assert!(seen.starts_with(said), "{text:?}: {seen}");
        }
    }
}
