//! The tokens of an SQL text, as PostgreSQL's scanner splits it.

use std::borrow::Cow;

/// A token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token<'a> {
    /// A keyword or an identifier without quotes.
    Word(&'a [u8]),
    /// The contents of a double-quoted identifier.
    Quoted(&'a [u8]),
    /// `U&"..."`: an identifier that may mean any name.
    Unicode,
    /// A string constant.
    Text {
        /// The characters between the quotes.
        inside: &'a [u8],
        /// How they make the value.
        form: Form,
    },
    /// Any other character.
    Sign(u8),
}

/// How the characters between the quotes of a string constant make its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// They are the value.
    Plain,
    /// A doubled quote stands for one.
    Doubled,
    /// A backslash escapes: `E'...'`.
    Escaped,
    /// The text does not tell: `U&'...'`, `x'...'`, or a backslash that escapes or not, depending
    /// on `standard_conforming_strings`.
    Unknown,
}

impl Form {
    /// The value of a constant; `None` if it is not certain.
    fn value(self, inside: &[u8]) -> Option<Cow<'_, [u8]>> {
        match self {
            Form::Plain => Some(Cow::Borrowed(inside)),
            Form::Doubled => Some(Cow::Owned(undoubled(inside, b'\''))),
            Form::Escaped => unescaped(inside).map(Cow::Owned),
            Form::Unknown => None,
        }
    }
}

/// The remaining tokens of a text.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<'a> {
    rest: &'a [u8],
    /// A backslash escapes in every string (`standard_conforming_strings = off`).
    escapes: bool,
    cut: bool,
    /// PostgreSQL may have read other tokens.
    unsure: bool,
    /// The string continues on another line. The value says whether a backslash escapes there.
    goes_on: Option<bool>,
}

impl<'a> Tokens<'a> {
    /// The tokens of a text in which a backslash escapes only after an E.
    pub fn new(text: &'a [u8]) -> Self {
        Tokens {
            rest: text,
            escapes: false,
            cut: false,
            unsure: false,
            goes_on: None,
        }
    }

    /// The tokens of a text under `standard_conforming_strings = off`.
    pub fn escaping(text: &'a [u8]) -> Self {
        Tokens {
            escapes: true,
            ..Tokens::new(text)
        }
    }

    /// True if the text has ended inside quotes: PostgreSQL refuses such a text.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// True if PostgreSQL may have read other tokens so far. A setting decides whether a backslash
    /// before a quote escapes the quote (`standard_conforming_strings`). And a few encodings have
    /// characters that end in a backslash, or that PostgreSQL turns into one.
    pub fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// True if the string that was read last goes on in another line.
    pub fn goes_on(&self) -> bool {
        self.goes_on.is_some()
    }

    /// The unread rest of the text.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads a string constant, if one comes next, over all its lines. The outer `None`: no
    /// constant comes next. The inner `None`: its value is not certain.
    pub fn constant(&mut self) -> Option<Option<Cow<'a, [u8]>>> {
        let mut ahead = *self;
        let Some(Token::Text { inside, form }) = ahead.next() else {
            return None;
        };
        *self = ahead;
        let mut value = form.value(inside);
        while self.goes_on.is_some() {
            let Some(Token::Text { inside, form }) = self.next() else {
                break;
            };
            let more = form.value(inside);
            value = value.zip(more).map(|(value, more)| {
                let mut value = value.into_owned();
                value.extend_from_slice(&more);
                Cow::Owned(value)
            });
        }
        Some(value)
    }

    /// Passes over a keyword, if it comes next.
    pub fn word(&mut self, keyword: &[u8]) -> bool {
        let mut ahead = *self;
        let is = matches!(ahead.next(), Some(Token::Word(w)) if w.eq_ignore_ascii_case(keyword));
        if is {
            *self = ahead;
        }
        is
    }

    /// Passes over a sign, if it comes next.
    pub fn sign(&mut self, sign: u8) -> bool {
        let mut ahead = *self;
        let is = ahead.next() == Some(Token::Sign(sign));
        if is {
            *self = ahead;
        }
        is
    }

    /// True if this sign comes next.
    pub fn sign_is_next(mut self, sign: u8) -> bool {
        self.sign(sign)
    }

    /// Passes over the rest of a word: `1_000`, `0x1f`.
    pub fn pass_word(&mut self) {
        self.rest = &self.rest[word_end(self.rest)..];
    }

    /// Passes over digits: those of a parameter, behind its `$`.
    #[inline]
    pub(super) fn pass_digits(&mut self) {
        let end = self.rest.iter().position(|b| !b.is_ascii_digit());
        self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
    }

    /// Passes over a comment, if one comes next.
    #[inline]
    fn comment(&mut self) -> bool {
        match self.rest {
            [b'-', b'-', rest @ ..] => {
                let end = rest.iter().position(|b| matches!(b, b'\n' | b'\r'));
                self.rest = &rest[end.unwrap_or(rest.len())..];
            }
            [b'/', b'*', rest @ ..] => self.rest = behind_comment(rest),
            _ => return false,
        }
        true
    }

    /// A name in double quotes.
    #[inline]
    fn name(&mut self) -> &'a [u8] {
        let inside = &self.rest[1..];
        let mut at = 0;
        loop {
            match inside[at..].iter().position(|b| *b == b'"') {
                None => {
                    self.cut = true;
                    self.rest = &[];
                    return inside;
                }
                Some(end) if inside.get(at + end + 1) == Some(&b'"') => at += end + 2,
                Some(end) => {
                    self.rest = &inside[at + end + 1..];
                    return &inside[..at + end];
                }
            }
        }
    }

    /// The contents up to a closing quote, and whether quotes are doubled in them. `open` is the
    /// length of the opening quote.
    fn quoted(&mut self, open: usize, quote: u8, escapes: bool) -> (&'a [u8], bool) {
        let text = self.rest;
        let mut at = open;
        let mut doubled = false;
        loop {
            // Most bytes of a long constant are neither.
            let rest = text.get(at..).unwrap_or_default();
            let Some(next) = memchr::memchr2(quote, b'\\', rest) else {
                // The closing quote is missing.
                self.cut = true;
                self.rest = &[];
                return (&text[open.min(text.len())..], doubled);
            };
            at += next;
            if text[at] == b'\\' {
                at += self.pass_backslash(at, quote, escapes);
                continue;
            }
            if text.get(at + 1) != Some(&quote) {
                let inside = &text[open..at];
                // In SHIFT_JIS_2004, these two bytes are a backslash.
                self.unsure |=
                    quote == b'\'' && memchr::memmem::find(inside, b"\x81\x5f").is_some();
                self.rest = &text[at + 1..];
                return (inside, doubled);
            }
            doubled = true;
            at += 2;
        }
    }

    /// A backslash stands at this place of the rest, inside quotes: returns how many bytes to pass.
    fn pass_backslash(&mut self, at: usize, quote: u8, escapes: bool) -> usize {
        let text = self.rest;
        if escapes {
            // It may be the second byte of a character.
            self.unsure |= text[at - 1] >= 0x80;
            return 2;
        }
        let row = text[at..].iter().take_while(|byte| **byte == b'\\').count();
        // In a row of backslashes each escapes the next one, if any escapes. The first may be the
        // second byte of a character.
        let may_escape = row % 2 == 1 || text[at - 1] >= 0x80;
        self.unsure |= quote == b'\'' && may_escape && text.get(at + row) == Some(&b'\'');
        row
    }

    /// Reads a string constant. `decodes`: the characters stand for others (`U&'...'`, `x'...'`).
    fn text(&mut self, open: usize, escapes: bool, decodes: bool) -> Token<'a> {
        let (inside, doubled) = self.quoted(open, b'\'', escapes);
        self.goes_on = goes_on(self.rest).then_some(escapes);
        let backslash = memchr::memchr(b'\\', inside).is_some();
        let form = match (decodes, backslash, doubled) {
            (true, ..) => Form::Unknown,
            (_, true, _) if escapes && !self.escapes => Form::Escaped,
            (_, true, _) => Form::Unknown,
            (_, _, true) => Form::Doubled,
            _ => Form::Plain,
        };
        Token::Text { inside, form }
    }

    /// `$tag$...$tag$`, or only the dollar.
    fn dollar(&mut self) -> Token<'a> {
        let dollar = self.rest;
        self.rest = &dollar[1..];
        self.dollar_text(dollar).unwrap_or(Token::Sign(b'$'))
    }

    /// `$tag$...$tag$`, if the text is one.
    fn dollar_text(&mut self, text: &'a [u8]) -> Option<Token<'a>> {
        let tag = text[1..].iter().position(|b| !is_tag(*b))?;
        let bad = text.get(tag + 1) != Some(&b'$') || text[1].is_ascii_digit();
        if bad {
            return None;
        }
        let (quote, behind) = text.split_at(tag + 2);
        self.unsure |= !quote.is_ascii();
        let end = memchr::memmem::find(behind, quote);
        let (inside, rest) = match end {
            Some(end) => (&behind[..end], &behind[end + quote.len()..]),
            None => (behind, &behind[behind.len()..]),
        };
        self.cut |= end.is_none();
        self.rest = rest;
        Some(Token::Text {
            inside,
            form: Form::Plain,
        })
    }

    /// Passes over a number. Letters directly after it are another token.
    fn number(&mut self) {
        let digits = |text: &[u8]| {
            let end = text.iter().position(|b| !b.is_ascii_digit());
            end.unwrap_or(text.len())
        };
        let mut at = digits(self.rest);
        if self.rest.get(at) == Some(&b'.') {
            at += 1 + digits(&self.rest[at + 1..]);
        }
        if let Some(b'e' | b'E') = self.rest.get(at) {
            let sign = matches!(self.rest.get(at + 1), Some(b'+' | b'-'));
            let exponent = at + 1 + usize::from(sign);
            let count = digits(self.rest.get(exponent..).unwrap_or_default());
            if count > 0 {
                at = exponent + count;
            }
        }
        self.rest = &self.rest[at..];
    }

    /// The next token, like `next`, but as a part of the caller's loop.
    #[inline(always)] // For the one loop that reads nearly every text.
    pub(super) fn take_next(&mut self) -> Option<Token<'a>> {
        loop {
            let text = self.rest;
            let first = *text.first()?;
            match BEGINS[usize::from(first)] {
                Begins::Blank => self.rest = &text[1..],
                Begins::Word => {
                    let (word, rest) = text.split_at(word_end(text));
                    self.rest = rest;
                    if word.len() > 1 || !matches!(rest.first(), Some(b'\'' | b'&')) {
                        return Some(Token::Word(word));
                    }
                    return Some(self.prefixed(text));
                }
                Begins::Sign => {
                    self.rest = &text[1..];
                    return Some(Token::Sign(first));
                }
                Begins::Name => return Some(Token::Quoted(self.name())),
                Begins::Number => {
                    self.number();
                    return Some(Token::Sign(first));
                }
                Begins::Text => {
                    let escapes = self.goes_on.unwrap_or(self.escapes);
                    return Some(self.text(1, escapes, false));
                }
                Begins::Dollar => return Some(self.dollar()),
                Begins::Comment => {
                    if !self.comment() {
                        self.rest = &text[1..];
                        return Some(Token::Sign(first));
                    }
                }
            }
        }
    }

    /// A letter before a quote, or what looks like one.
    #[inline(never)] // Rare.
    fn prefixed(&mut self, text: &'a [u8]) -> Token<'a> {
        let behind = std::mem::replace(&mut self.rest, text);
        match (text[0] | 0x20, text.get(1), text.get(2)) {
            (b'e', Some(b'\''), _) => self.text(2, true, false),
            (b'n', Some(b'\''), _) => self.text(2, self.escapes, false),
            (b'b' | b'x', Some(b'\''), _) => self.text(2, false, true),
            (b'u', Some(b'&'), Some(b'\'')) => self.text(3, self.escapes, true),
            (b'u', Some(b'&'), Some(b'"')) => {
                self.quoted(3, b'"', false);
                Token::Unicode
            }
            _ => {
                self.rest = behind;
                Token::Word(&text[..1])
            }
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    #[inline(never)] // Long, and called in many places.
    fn next(&mut self) -> Option<Token<'a>> {
        self.take_next()
    }
}

/// What a byte outside of quotes begins, perhaps.
#[derive(Clone, Copy)]
enum Begins {
    Sign,
    Blank,
    Word,
    Number,
    Name,
    Text,
    Dollar,
    Comment,
}

/// What each byte begins.
static BEGINS: [Begins; 256] = {
    let mut begins = [Begins::Sign; 256];
    let mut byte = 0;
    while byte < 256 {
        begins[byte] = match byte as u8 {
            b' ' | b'\t'..=b'\r' => Begins::Blank,
            b'0'..=b'9' => Begins::Number,
            b'"' => Begins::Name,
            b'\'' => Begins::Text,
            b'$' => Begins::Dollar,
            b'-' | b'/' => Begins::Comment,
            other if is_start(other) => Begins::Word,
            _ => Begins::Sign,
        };
        byte += 1;
    }
    begins
};

/// True if a string continues after its closing quote: another quote follows on a later line, with
/// only blanks and `--` comments between.
fn goes_on(mut rest: &[u8]) -> bool {
    let mut line = false;
    loop {
        match rest {
            [b'\n' | b'\r', after @ ..] => (line, rest) = (true, after),
            [b' ' | b'\t' | 0x0b | 0x0c, after @ ..] => rest = after,
            [b'-', b'-', after @ ..] => {
                let end = after.iter().position(|b| matches!(b, b'\n' | b'\r'));
                rest = &after[end.unwrap_or(after.len())..];
            }
            [b'\'', ..] => return line,
            _ => return false,
        }
    }
}

pub(super) const fn is_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

pub(super) const fn is_tag(byte: u8) -> bool {
    is_start(byte) || byte.is_ascii_digit()
}

/// True if the byte may stand in an identifier.
#[inline]
pub const fn is_word(byte: u8) -> bool {
    IN_WORDS[byte as usize]
}

/// The bytes that may stand in an identifier.
static IN_WORDS: [bool; 256] = {
    let mut words = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        words[byte] = is_tag(byte as u8) || byte as u8 == b'$';
        byte += 1;
    }
    words
};

/// Where the word that a text begins with ends.
#[inline]
fn word_end(text: &[u8]) -> usize {
    let end = text.iter().position(|byte| !is_word(*byte));
    end.unwrap_or(text.len())
}

/// The text after a comment, which may be nested; `rest` begins after the first `/*`.
fn behind_comment(mut rest: &[u8]) -> &[u8] {
    let mut depth = 1;
    while depth > 0 {
        match rest {
            [] => break,
            [b'/', b'*', after @ ..] => {
                depth += 1;
                rest = after;
            }
            [b'*', b'/', after @ ..] => {
                depth -= 1;
                rest = after;
            }
            [_, after @ ..] => rest = after,
        }
    }
    rest
}

/// The value of a name or constant in which a doubled quote stands for one.
pub(super) fn undoubled(inside: &[u8], quote: u8) -> Vec<u8> {
    let mut quotes = 0;
    let keeps = |byte: &&u8| {
        quotes += usize::from(**byte == quote);
        **byte != quote || quotes % 2 == 1
    };
    inside.iter().filter(keeps).copied().collect()
}

/// The value of `E'...'`. `None` if an escape stands for more than an ASCII character: its bytes
/// depend on the encoding.
fn unescaped(inside: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(inside.len());
    let mut rest = inside;
    while let Some((&byte, after)) = rest.split_first() {
        rest = match byte {
            b'\\' => {
                let (byte, after) = escape(after)?;
                value.push(byte);
                after
            }
            b'\'' => {
                value.push(byte);
                after.strip_prefix(b"'").unwrap_or(after)
            }
            byte => {
                value.push(byte);
                after
            }
        };
    }
    Some(value)
}

/// The character that an escape stands for, and the text after the escape. `rest` begins behind the
/// backslash.
fn escape(rest: &[u8]) -> Option<(u8, &[u8])> {
    let (&first, after) = rest.split_first()?;
    let digits = |from: &[u8], base: u32, least: usize, most: usize| {
        let digits = from.iter().take(most);
        let digits = digits.map_while(|byte| char::from(*byte).to_digit(base));
        let (code, many) = digits.fold((0u32, 0), |(code, many), digit| {
            (code.wrapping_mul(base) + digit, many + 1)
        });
        (many >= least).then_some((code, many))
    };
    let (code, after) = match first {
        b'0'..=b'7' => {
            let (code, many) = digits(rest, 8, 1, 3)?;
            (code, &rest[many..])
        }
        b'x' | b'u' | b'U' => {
            let (least, most) = match first {
                b'x' => (1, 2),
                b'u' => (4, 4),
                _ => (8, 8),
            };
            let (code, many) = digits(after, 16, least, most)?;
            (code, &after[many..])
        }
        b'b' => (8, after),
        b'f' => (12, after),
        b'n' => (10, after),
        b'r' => (13, after),
        b't' => (9, after),
        other => (u32::from(other), after),
    };
    let byte = u8::try_from(code).ok()?;
    (byte != 0 && byte < 0x80).then_some((byte, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<String> {
        let mut tokens = Tokens::new(text.as_bytes());
        let value = tokens.constant().expect("a constant")?;
        assert!(tokens.next().is_none() && !tokens.is_cut(), "{text}");
        Some(String::from_utf8_lossy(&value).into())
    }

    #[test]
    fn values_of_constants() {
        for (text, expected) in [
            ("'a'", "a"),
            ("''", ""),
            ("'it''s'", "it's"),
            ("''''''", "''"),
            ("n'a'", "a"),
            ("e'a'", "a"),
            (r"E'\a\'''\\\n\t'", "a''\\\n\t"),
            (r"E'\x53\123\u0053\U00000053\53'", "SSSS+"),
            ("$$it''s$$", "it''s"),
            ("$a$x$$y$a$", "x$$y"),
            ("'set_'\n'config'", "set_config"),
            ("E'\\x73'  -- a\n '\\x65' \n 't'", "set"),
            ("'\u{e9}'", "\u{e9}"),
        ] {
            assert_eq!(value(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            r"'a\b'",
            "'a'\n'\\b'",
            "U&'a'",
            "x'53'",
            r"E'\xe9'",
            r"E'\u12'",
            r"E'\000'",
        ] {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn where_strings_may_end_elsewhere() {
        let unsure = |text: &[u8]| {
            let mut tokens = Tokens::new(text);
            while tokens.next().is_some() {}
            tokens.is_unsure()
        };
        for text in [
            &br"'\' , '"[..],
            br"'a\\\'",
            br"'a\''b'",
            b"e'\x95\\'",
            b"'\x81\x5f'",
            b"e'\x81\x5f\\', a, '",
            b"$\xe9$a$\xe9$",
        ] {
            assert!(unsure(text), "{text:?}");
        }
        for text in [
            &br#"'a\b', e'\'', '\\', "a\""#[..],
            b"'\x95', e'\x95', '\xc3\xa9_'",
            b"$a$\xe9$a$",
        ] {
            assert!(!unsure(text), "{text:?}");
        }
    }
}
