//! The tokens of a text, as PostgreSQL's scanner splits it, with their places.

use std::borrow::Cow;
use std::ops::Range;

/// The kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A keyword or a name without quotes.
    Word,
    /// `"name"`, `U&"name"`.
    Quoted,
    /// `$1`
    Parameter,
    /// Decimal digits only.
    Integer,
    /// A number with a point or an exponent.
    Decimal,
    /// A number that versions of PostgreSQL read differently: `0x1F`, `1_000`, `1and`.
    OddNumber,
    /// `'...'`, `E'...'`, `$$...$$`
    Text,
    /// `N'...'`
    National,
    /// `U&'...'`
    Unicode,
    /// `B'...'`
    Bits,
    /// `X'...'`
    Hex,
    /// A run of operator characters.
    Operator,
    /// Any other character.
    Sign,
}

/// A token, and where the token stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) range: Range<usize>,
    /// Blanks or a comment stand before the token.
    pub(crate) blank: bool,
}

/// The tokens of a text.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    /// A backslash escapes in every string (`standard_conforming_strings = off`).
    escapes: bool,
    /// The last block comment, with its marks.
    comment: Option<Range<usize>>,
    /// The text has ended inside quotes or a comment.
    cut: bool,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a [u8], escapes: bool) -> Lexer<'a> {
        let end = memchr::memchr(0, text).unwrap_or(text.len());
        Lexer {
            text: &text[..end],
            at: 0,
            escapes,
            comment: None,
            cut: false,
        }
    }

    /// The bytes of a token.
    pub(crate) fn bytes(&self, token: &Token) -> &'a [u8] {
        &self.text[token.range.clone()]
    }

    /// True if the text has ended inside quotes or a comment: PostgreSQL refuses such a text.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// The last block comment so far.
    pub(crate) fn last_comment(&self) -> Option<Range<usize>> {
        self.comment.clone()
    }

    /// True if the next token is this sign; the place does not change.
    pub(crate) fn sees(&self, sign: u8) -> bool {
        let mut ahead = self.clone();
        ahead
            .next()
            .is_some_and(|token| ahead.bytes(&token) == [sign])
    }

    /// Passes over blanks, and one block comment behind them.
    pub(crate) fn pass_first_comment(&mut self) {
        self.pass_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r'));
        if (self.byte(0), self.byte(1)) == (b'/', b'*') {
            self.pass_comment();
        }
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Passes over blanks and comments; true if there were any.
    fn pass_blanks(&mut self) -> bool {
        let start = self.at;
        loop {
            match (self.byte(0), self.byte(1)) {
                (b' ' | b'\t'..=b'\r', _) => self.at += 1,
                (b'-', b'-') => self.pass_line(),
                (b'/', b'*') => self.pass_comment(),
                _ => return self.at > start,
            }
        }
    }

    fn pass_line(&mut self) {
        let end = memchr::memchr2(b'\n', b'\r', &self.text[self.at..]);
        self.at = end.map_or(self.text.len(), |end| self.at + end);
    }

    fn pass_comment(&mut self) {
        let start = self.at;
        self.at += 2;
        let mut depth = 1;
        while depth > 0 {
            let Some(next) = memchr::memchr2(b'/', b'*', &self.text[self.at..]) else {
                self.at = self.text.len();
                self.cut = true;
                return;
            };
            self.at += next;
            match (self.byte(0), self.byte(1)) {
                (b'/', b'*') => (depth, self.at) = (depth + 1, self.at + 2),
                (b'*', b'/') => (depth, self.at) = (depth - 1, self.at + 2),
                _ => self.at += 1,
            }
        }
        self.comment = Some(start..self.at);
    }

    fn pass_while(&mut self, is: impl Fn(u8) -> bool) {
        while self.text.get(self.at).is_some_and(|byte| is(*byte)) {
            self.at += 1;
        }
    }

    fn token(&mut self) -> Kind {
        let (first, second) = (self.byte(0), self.byte(1));
        match (first, second) {
            (b'e' | b'E', b'\'') => self.string(1, true, Kind::Text),
            (b'n' | b'N', b'\'') => self.string(1, self.escapes, Kind::National),
            (b'b' | b'B', b'\'') => self.string(1, false, Kind::Bits),
            (b'x' | b'X', b'\'') => self.string(1, false, Kind::Hex),
            (b'u' | b'U', b'&') if self.byte(2) == b'\'' => {
                self.string(2, self.escapes, Kind::Unicode)
            }
            (b'u' | b'U', b'&') if self.byte(2) == b'"' => {
                self.at += 2;
                self.name()
            }
            _ if is_start(first) => {
                self.pass_while(is_word);
                Kind::Word
            }
            (b'\'', _) => self.string(0, self.escapes, Kind::Text),
            (b'"', _) => self.name(),
            (b'$', b'0'..=b'9') => {
                self.at += 1;
                self.pass_while(|byte| byte.is_ascii_digit());
                Kind::Parameter
            }
            (b'$', _) => self.dollar(),
            (b'0'..=b'9', _) | (b'.', b'0'..=b'9') => self.number(),
            _ if is_operator(first) => self.operator(),
            _ => {
                self.at += 1;
                Kind::Sign
            }
        }
    }

    /// A string constant over all its lines, behind a prefix of this length.
    fn string(&mut self, prefix: usize, escapes: bool, kind: Kind) -> Kind {
        self.at += prefix;
        loop {
            self.at += 1;
            self.pass_quoted(b'\'', escapes);
            let Some(next) = next_line_quote(&self.text[self.at..]) else {
                return kind;
            };
            self.at += next;
        }
    }

    /// Passes over the rest of what is in quotes, and the closing quote.
    fn pass_quoted(&mut self, quote: u8, escapes: bool) {
        loop {
            let rest = &self.text[self.at..];
            let escape = if escapes { b'\\' } else { quote };
            let Some(next) = memchr::memchr2(quote, escape, rest) else {
                self.at = self.text.len();
                self.cut = true;
                return;
            };
            self.at += next;
            match (self.byte(0), self.byte(1)) {
                (b'\\', _) if escapes => self.at = (self.at + 2).min(self.text.len()),
                (_, second) if second == quote => self.at += 2,
                _ => {
                    self.at += 1;
                    return;
                }
            }
        }
    }

    fn name(&mut self) -> Kind {
        self.at += 1;
        self.pass_quoted(b'"', false);
        Kind::Quoted
    }

    /// `$tag$...$tag$`, or only the dollar.
    fn dollar(&mut self) -> Kind {
        let rest = &self.text[self.at..];
        let tag = rest[1..].iter().position(|byte| !is_tag(*byte));
        let Some(tag) = tag.filter(|tag| rest[tag + 1] == b'$') else {
            self.at += 1;
            return Kind::Sign;
        };
        let (quote, behind) = rest.split_at(tag + 2);
        match memchr::memmem::find(behind, quote) {
            Some(end) => self.at += quote.len() * 2 + end,
            None => {
                self.at = self.text.len();
                self.cut = true;
            }
        }
        Kind::Text
    }

    fn number(&mut self) -> Kind {
        let digit = |byte: u8| byte.is_ascii_digit();
        let start = self.at;
        self.pass_while(digit);
        let mut kind = Kind::Integer;
        // `1..2` is a number, two dots and a number.
        if self.byte(0) == b'.' && (self.at == start || self.byte(1) != b'.') {
            kind = Kind::Decimal;
            self.at += 1;
            self.pass_while(digit);
        }
        if matches!(self.byte(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(1), b'+' | b'-'));
            if digit(self.byte(1 + sign)) {
                kind = Kind::Decimal;
                self.at += 1 + sign;
                self.pass_while(digit);
            }
        }
        if is_start(self.byte(0)) {
            self.pass_while(is_word);
            kind = Kind::OddNumber;
        }
        kind
    }

    fn operator(&mut self) -> Kind {
        let rest = &self.text[self.at..];
        let run = rest.iter().position(|byte| !is_operator(*byte));
        let run = &rest[..run.unwrap_or(rest.len())];
        let comment = run
            .windows(2)
            .position(|pair| pair == b"--" || pair == b"/*");
        let mut run = &run[..comment.unwrap_or(run.len())];
        if !run.iter().any(|byte| b"~!@#^&|`?%".contains(byte)) {
            while let [before @ .., b'+' | b'-'] = run
                && !before.is_empty()
            {
                run = before;
            }
        }
        self.at += run.len();
        Kind::Operator
    }
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        let blank = self.pass_blanks();
        let start = self.at;
        if start >= self.text.len() {
            return None;
        }
        let kind = self.token();
        Some(Token {
            kind,
            range: start..self.at,
            blank,
        })
    }
}

/// Where the quote is by which a string continues on a later line, with only blanks and `--`
/// comments between.
fn next_line_quote(text: &[u8]) -> Option<usize> {
    let (mut at, mut line) = (0, false);
    loop {
        match text.get(at..)? {
            [b'\n' | b'\r', ..] => (line, at) = (true, at + 1),
            [b' ' | b'\t' | 0x0b | 0x0c, ..] => at += 1,
            [b'-', b'-', rest @ ..] => {
                at += 2 + memchr::memchr2(b'\n', b'\r', rest)?;
            }
            [b'\'', ..] if line => return Some(at),
            _ => return None,
        }
    }
}

/// The value of a string constant (`'...'`, `E'...'`, `$$...$$`). `None` if the value depends on
/// settings or encodings.
pub(crate) fn text_value(token: &[u8], escapes: bool) -> Option<Cow<'_, [u8]>> {
    if token.first() == Some(&b'$') {
        let quote = memchr::memchr(b'$', &token[1..])? + 2;
        return token.get(quote..token.len() - quote).map(Cow::Borrowed);
    }
    let escaped = matches!(token.first(), Some(b'e' | b'E'));
    let mut rest = &token[usize::from(escaped)..];
    let escapes = escapes || escaped;
    if let [b'\'', inside @ .., b'\''] = rest
        && memchr::memchr2(b'\'', b'\\', inside).is_none()
    {
        return Some(Cow::Borrowed(inside));
    }
    let mut value = Vec::with_capacity(rest.len());
    loop {
        rest = rest.get(next_quote(rest)? + 1..)?;
        loop {
            match rest {
                [b'\'', b'\'', after @ ..] => {
                    value.push(b'\'');
                    rest = after;
                }
                [b'\'', after @ ..] => {
                    rest = after;
                    break;
                }
                [b'\\', after @ ..] if escapes => {
                    let (byte, after) = escape(after)?;
                    value.push(byte);
                    rest = after;
                }
                [byte, after @ ..] => {
                    value.push(*byte);
                    rest = after;
                }
                [] => return None,
            }
        }
        if rest.is_empty() {
            return Some(Cow::Owned(value));
        }
    }
}

/// Where the next part of a string begins: its first quote, or the one on a later line.
fn next_quote(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'\'' => Some(0),
        _ => next_line_quote(text),
    }
}

/// The character for which an escape of one letter stands, and the text behind. Other escapes are
/// not read: no key needs them.
fn escape(rest: &[u8]) -> Option<(u8, &[u8])> {
    let (first, after) = rest.split_first()?;
    let byte = match first {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'f' => 12,
        b'\\' | b'\'' | b'"' => *first,
        _ => return None,
    };
    Some((byte, after))
}

fn is_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn is_tag(byte: u8) -> bool {
    is_start(byte) || byte.is_ascii_digit()
}

/// Whether each byte may stand in a name without quotes: looked up, because most bytes of a text are
/// in names.
const IN_NAMES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let letter = byte as u8;
        table[byte] = letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'$' | 0x80..);
        byte += 1;
    }
    table
};

/// True if the byte may stand in a name without quotes.
pub(crate) fn is_word(byte: u8) -> bool {
    IN_NAMES[usize::from(byte)]
}

fn is_operator(byte: u8) -> bool {
    b"~!@#^&|`?+-*/%<>=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> String {
        let mut lexer = Lexer::new(text.as_bytes(), false);
        let mut found = Vec::new();
        while let Some(token) = lexer.next() {
            let bytes = String::from_utf8_lossy(lexer.bytes(&token)).into_owned();
            found.push(format!("{:?}:{bytes}", token.kind));
        }
        found.join(" ")
    }

    #[test]
    fn as_postgresql_splits() {
        for (text, expected) in [
            ("a=-5", "Word:a Operator:= Operator:- Integer:5"),
            ("a@-5", "Word:a Operator:@- Integer:5"),
            ("a+--b\n-1", "Word:a Operator:+ Operator:- Integer:1"),
            ("a@/*b*/c", "Word:a Operator:@ Word:c"),
            ("1.5.6", "Decimal:1.5 Decimal:.6"),
            ("1..2", "Integer:1 Sign:. Decimal:.2"),
            ("1e5 1e 5.e3", "Decimal:1e5 OddNumber:1e Decimal:5.e3"),
            (
                "0x1F 1_000 1and 12",
                "OddNumber:0x1F OddNumber:1_000 OddNumber:1and Integer:12",
            ),
            ("$1 $12a", "Parameter:$1 Parameter:$12 Word:a"),
            (
                "a$1 $$b$$ $c$ $$ $c$",
                "Word:a$1 Text:$$b$$ Text:$c$ $$ $c$",
            ),
            ("'a''b' E'\\'' e'a'", "Text:'a''b' Text:E'\\'' Text:e'a'"),
            ("'a' 'b'", "Text:'a' Text:'b'"),
            (
                "N'a' U&'b' b'0' X'1' u&\"n\"",
                "National:N'a' Unicode:U&'b' Bits:b'0' Hex:X'1' Quoted:u&\"n\"",
            ),
            (
                "\"a\"\"b\"::int",
                "Quoted:\"a\"\"b\" Sign:: Sign:: Word:int",
            ),
            ("/* a /* b */ */ c -- d", "Word:c"),
            ("u & 'a'", "Word:u Operator:& Text:'a'"),
        ] {
            assert_eq!(tokens(text), expected, "{text}");
        }
        assert_eq!(tokens("'a' -- x\n 'b'").matches("Text").count(), 1);
        for text in ["'a", "\"a", "$$a", "/* a", "E'a\\'"] {
            let mut lexer = Lexer::new(text.as_bytes(), false);
            while lexer.next().is_some() {}
            assert!(lexer.is_cut(), "{text}");
        }
    }

    #[test]
    fn values_of_strings() {
        for (text, expected) in [
            ("'a'", Some("a")),
            ("''", Some("")),
            ("'it''s'", Some("it's")),
            (r"'a\b'", Some(r"a\b")),
            (r"E'a\\\'\n'", Some("a\\'\n")),
            (r"E'\x41'", None),
            ("$$a'b$$", Some("a'b")),
            ("$x$$$$x$", Some("$$")),
            ("'a'\n'b''' -- c\n 'd'", Some("ab'd")),
        ] {
            let value = text_value(text.as_bytes(), false);
            let expected = expected.map(str::as_bytes);
            assert_eq!(value.as_deref(), expected, "{text}");
        }
        assert_eq!(text_value(br"'a\\'", true).as_deref(), Some(&br"a\"[..]));
    }
}
