//! Text between quotes, as PostgreSQL's and PgBouncer's files and SQL write it: a quote within is
//! written twice.

/// The text between the quotes that `text` begins with, and what is behind them; `None` where it
/// begins with something else, or they are not closed.
pub fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix(quote)?;
    let mut inside = String::new();
    loop {
        let (part, after) = rest.split_once(quote)?;
        inside.push_str(part);
        match after.strip_prefix(quote) {
            Some(more) => {
                inside.push(quote);
                rest = more;
            }
            None => return Some((inside, after)),
        }
    }
}

/// The text between double quotes.
pub fn in_quotes(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_within_are_written_twice() {
        assert_eq!(quoted("\"a\"\"b\"c", '"'), Some(("a\"b".into(), "c")));
        assert_eq!(quoted("'it''s' \"", '\''), Some(("it's".into(), " \"")));
        assert_eq!(quoted("\"\"", '"'), Some((String::new(), "")));
        for text in ["", "a\"", "\"a", "\"a\"\"", "'a\""] {
            assert_eq!(quoted(text, '"'), None, "{text}");
        }
        let odd = "a\"\"'b\"";
        assert_eq!(quoted(&in_quotes(odd), '"'), Some((odd.into(), "")));
    }
}
