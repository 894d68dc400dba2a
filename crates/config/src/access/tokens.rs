//! The words of a line.

use super::super::resolve::NO_TEXT;
use super::Wrong;
use crate::quotes::quoted;

/// What some editors put at the beginning of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A word, or what stands between words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RuleToken {
    /// As it is written: may be a keyword.
    Word(String),
    /// From between quotes: never a keyword.
    Quoted(String),
    /// `,`
    Comma,
}

impl RuleToken {
    /// There were bytes that are no UTF-8 in it; in a comment they do no harm.
    fn is_broken(&self) -> bool {
        match self {
            RuleToken::Word(text) | RuleToken::Quoted(text) => text.contains(NO_TEXT),
            RuleToken::Comma => false,
        }
    }
}

/// Splits a line. A word ends at white space, a comma, a quote or a `#`, which begins a comment;
/// within quotes a quote is written twice.
///
/// # Errors
/// A quote is not closed.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn split(line: &str) -> Result<Vec<RuleToken>, ()> {
    let tokens = split_with_rest(line)?;
    Ok(tokens.into_iter().map(|(token, _)| token).collect())
}

/// Likewise, each token with what is behind it.
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

/// What C's `isspace` takes.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// The tokens of a line, taken one after the other.
pub(super) struct RuleTokens<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<(RuleToken, &'a str)>>,
    /// What is behind the last token taken.
    rest: &'a str,
}

impl<'a> RuleTokens<'a> {
    /// Of a line.
    ///
    /// # Errors
    /// It can't be read as what it seems to say.
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

    /// The next if it is one of those wanted.
    fn take_if(&mut self, wanted: impl FnOnce(&RuleToken) -> bool) -> Option<RuleToken> {
        let (token, rest) = self.tokens.next_if(|(token, _)| wanted(token))?;
        self.rest = rest;
        Some(token)
    }

    /// All the rest of the line as it is written.
    pub(super) fn take_rest(&mut self) -> &'a str {
        self.tokens.by_ref().for_each(drop);
        self.rest
    }

    /// The next, whatever it is.
    pub(super) fn take(&mut self) -> Option<RuleToken> {
        self.take_if(|_| true)
    }

    /// The next if it is a word without quotes.
    pub(super) fn word(&mut self) -> Option<String> {
        match self.take_if(|token| matches!(token, RuleToken::Word(_)))? {
            RuleToken::Word(word) => Some(word),
            _ => None,
        }
    }

    /// The next if it is a word, with or without quotes.
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

    /// Nothing is left.
    pub(super) fn is_empty(&mut self) -> bool {
        self.tokens.peek().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens as text: quoted ones in ', commas as they are.
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
