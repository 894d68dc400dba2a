//! The words of a rule line.

use super::super::written::NO_TEXT;
use super::Wrong;
use crate::quotes::quoted;

/// The mark that some editors put at the beginning of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A word, or a comma between words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RuleToken {
    /// A word without quotes: may be a keyword.
    Word(String),
    /// A word in quotes: never a keyword.
    Quoted(String),
    /// `,`
    Comma,
}

impl RuleToken {
    /// True if the token had bytes that are not UTF-8. In a comment such bytes do no harm.
    fn is_broken(&self) -> bool {
        match self {
            RuleToken::Word(text) | RuleToken::Quoted(text) => text.contains(NO_TEXT),
            RuleToken::Comma => false,
        }
    }
}

/// Splits a line. White space, a comma, a quote or a `#` ends a word. A `#` begins a comment.
/// Inside quotes, a quote is written twice.
///
/// # Errors
/// A quote is not closed.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn split(line: &str) -> Result<Vec<RuleToken>, ()> {
    let tokens = split_with_rest(line)?;
    Ok(tokens.into_iter().map(|(token, _)| token).collect())
}

/// The same, each token with the text after it.
fn split_with_rest(line: &str) -> Result<Vec<(RuleToken, &str)>, ()> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start_matches(is_space);
    while let Some(first) = rest.chars().next() {
        match first {
            '#' => break,
            ',' => {
                rest = &rest[1..];
                tokens.push((RuleToken::Comma, rest));
            }
            '"' => {
                let (text, after) = quoted(rest, '"').ok_or(())?;
                tokens.push((RuleToken::Quoted(text), after));
                rest = after;
            }
            _ => {
                let ends = |c: char| is_space(c) || matches!(c, ',' | '#' | '"');
                let (word, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
                tokens.push((RuleToken::Word(word.into()), after));
                rest = after;
            }
        }
        rest = rest.trim_start_matches(is_space);
    }
    Ok(tokens)
}

/// White space as C's `isspace` defines it.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// The tokens of a line, read one after the other.
pub(super) struct RuleTokens<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<(RuleToken, &'a str)>>,
    /// The text after the last token that was read.
    rest: &'a str,
}

impl<'a> RuleTokens<'a> {
    /// The tokens of a line.
    ///
    /// # Errors
    /// The reason why the line can't be read.
    pub(super) fn of(line: &'a str) -> Result<RuleTokens<'a>, Wrong> {
        let wrong = |text: &str, remedy: &str| Err((text.to_owned(), remedy.to_owned()));
        if line.starts_with(BYTE_ORDER_MARK) {
            let remedy = "write the file in UTF-8 without one";
            return wrong("the file begins with a byte-order mark", remedy);
        }
        let Ok(tokens) = split_with_rest(line) else {
            return wrong("a quote is not closed", "close it");
        };
        if tokens.iter().any(|(token, _)| token.is_broken()) {
            let text = "there are bytes in it that are not UTF-8";
            return wrong(text, "write the file in UTF-8");
        }
        if let Some((RuleToken::Word(last), _)) = tokens.last()
            && last.ends_with('\\')
        {
            let text = "continued lines are not supported, here or in PgBouncer";
            return wrong(text, "write all of it on one line");
        }
        let tokens = tokens.into_iter().peekable();
        Ok(RuleTokens { tokens, rest: line })
    }

    /// The next token, if `wanted` accepts it.
    fn take_if(&mut self, wanted: impl FnOnce(&RuleToken) -> bool) -> Option<RuleToken> {
        let (token, rest) = self.tokens.next_if(|(token, _)| wanted(token))?;
        self.rest = rest;
        Some(token)
    }

    /// The rest of the line as it was written.
    pub(super) fn take_rest(&mut self) -> &'a str {
        self.tokens.by_ref().for_each(drop);
        self.rest
    }

    /// The next token.
    pub(super) fn take(&mut self) -> Option<RuleToken> {
        self.take_if(|_| true)
    }

    /// The next token, if it is a word without quotes.
    pub(super) fn word(&mut self) -> Option<String> {
        match self.take_if(|token| matches!(token, RuleToken::Word(_)))? {
            RuleToken::Word(word) => Some(word),
            _ => None,
        }
    }

    /// The next token, if it is a word, with or without quotes.
    pub(super) fn text(&mut self) -> Option<String> {
        match self.take_if(|token| *token != RuleToken::Comma)? {
            RuleToken::Word(text) | RuleToken::Quoted(text) => Some(text),
            RuleToken::Comma => None,
        }
    }

    /// Takes a comma, if one is next.
    pub(super) fn comma(&mut self) -> bool {
        self.take_if(|token| *token == RuleToken::Comma).is_some()
    }

    /// True if no token is left.
    pub(super) fn is_empty(&mut self) -> bool {
        self.tokens.peek().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens as text: quoted words between ', commas unchanged.
    fn shown(line: &str) -> Result<String, ()> {
        let words = split(line)?.into_iter().map(|token| match token {
            RuleToken::Word(word) => word,
            RuleToken::Quoted(text) => format!("'{text}'"),
            RuleToken::Comma => ",".into(),
        });
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn lines_are_split() {
        for (line, words) in [
            ("", Ok("")),
            (" \t\x0b\x0c\r\n", Ok("")),
            ("# all of it", Ok("")),
            ("a b\tc # d", Ok("a b c")),
            ("a#b", Ok("a")),
            ("a,b , c,,d", Ok("a , b , c , , d")),
            ("\"a b\" \"c\"\"d\" \"\"", Ok("'a b' 'c\"d' ''")),
            ("a\"b\"c", Ok("a 'b' c")),
            ("\"#\",\"\"\"\"", Ok("'#' , '\"'")),
            ("ö ü", Ok("ö ü")),
            ("a \"b", Err(())),
            ("\"a\"\"", Err(())),
        ] {
            assert_eq!(shown(line), words.map(String::from), "{line:?}");
        }
    }
}
