//! Text between quotes, as in SQL and in the files of PostgreSQL and PgBouncer: a quote inside is written
//! twice.

/// The text between the quotes at the start of `text`, and the text after them. `None` if `text`
/// does not begin with a quote, or the quote is not closed.
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
