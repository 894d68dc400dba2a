//! Connection strings, the values in `[databases]`, `[users]` and `[peers]`: `key=value` pairs with blanks
//! between them. A value may be in single quotes; inside them `''` stands for a quote.

/// The pairs of a connection string, in order.
///
/// # Errors
/// What is wrong, and how to correct it.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(['=', ' ', '\t']).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        let Some(after) = after.trim_start().strip_prefix('=') else {
            // The word may be the rest of a password that contains a blank.
            return Err(
                "a word has no value: write `key=value` pairs parted by blanks, and values with \
                 blanks in quotes"
                    .into(),
            );
        };
        if key.is_empty() {
            return Err("a key is missing before `=`".into());
        }
        let (value, after) = take_value(after.trim_start())
            .ok_or_else(|| format!("the quoted value of {key} is not closed"))?;
        if value.is_empty() {
            return Err(format!("the value of {key} is empty: leave the pair out"));
        }
        pairs.push((key.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(pairs)
}

/// The value at the start of the text, and the text after it; `None` if a quote is not closed.
fn take_value(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('\'') else {
        let end = text.find([' ', '\t']).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    loop {
        let (part, after) = rest.split_once('\'')?;
        value.push_str(part);
        match after.strip_prefix('\'') {
            Some(more) => {
                value.push('\'');
                rest = more;
            }
            None => return Some((value, after)),
        }
    }
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
            let seen: Vec<_> = seen.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(seen, pairs, "{text:?}");
        }
    }

    #[test]
    fn mistakes() {
        for (text, said) in [
            ("a", "a word has no value"),
            ("a b=c", "a word has no value"),
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
