//! The tokens of an SQL text, as PostgreSQL's scanner splits it.

/// A token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token<'a> {
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
        /// The value equals `inside`: there are no escapes and no doubled quotes.
        plain: bool,
        /// The constant contains escapes with a backslash.
        escapes: bool,
    },
    /// Any other character.
    Sign(u8),
}

/// Rules for reading a text that depend on settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LexRules {
    /// A backslash escapes in every string (`standard_conforming_strings = off`).
    pub escapes: bool,
    /// Which bytes begin a two-byte character, whose second byte may be a backslash.
    pub pairs: Pairs,
}

/// First bytes of two-byte characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Pairs {
    /// None: UTF-8 and other encodings whose later bytes are never ASCII.
    #[default]
    None,
    /// BIG5, GBK, GB18030, UHC.
    All,
    /// SJIS: the bytes from 0xa0 to 0xdf are characters of their own.
    Sjis,
}

impl Pairs {
    pub fn begins_with(self, byte: u8) -> bool {
        match self {
            Pairs::None => false,
            Pairs::All => byte >= 0x81,
            Pairs::Sjis => matches!(byte, 0x81..=0x9f | 0xe0..=0xfc),
        }
    }
}

/// The remaining tokens of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens<'a> {
    rest: &'a [u8],
    reading: LexRules,
    cut: bool,
    /// The string continues on another line. The value says whether a backslash escapes there.
    goes_on: Option<bool>,
}

impl<'a> Tokens<'a> {
    pub fn new(text: &'a [u8], reading: LexRules) -> Self {
        Tokens {
            rest: text,
            reading,
            cut: false,
            goes_on: None,
        }
    }

    /// True if the text has ended inside quotes: PostgreSQL refuses such a text.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The unread rest of the text.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn reading(&self) -> LexRules {
        self.reading
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

    pub fn sign_is_next(mut self, sign: u8) -> bool {
        self.sign(sign)
    }

    /// Passes over the rest of a word: `1_000`, `0x1f`.
    pub fn pass_word(&mut self) {
        let end = self.rest.iter().position(|b| !is_word(*b));
        self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
    }

    /// Skips blanks and comments.
    fn skip(&mut self) {
        loop {
            match self.rest {
                [b' ' | b'\t'..=b'\r', rest @ ..] => self.rest = rest,
                [b'-', b'-', rest @ ..] => {
                    let end = rest.iter().position(|b| matches!(b, b'\n' | b'\r'));
                    self.rest = &rest[end.unwrap_or(rest.len())..];
                }
                [b'/', b'*', rest @ ..] => self.rest = behind_comment(rest),
                _ => return,
            }
        }
    }

    /// The contents up to a closing quote, and whether they are plain. `open` is the length of the
    /// opening quote.
    fn quoted(&mut self, open: usize, quote: u8, escapes: bool) -> (&'a [u8], bool) {
        let text = self.rest;
        let mut at = open;
        let mut plain = true;
        let pairs = self.reading.pairs != Pairs::None;
        while let Some(&byte) = text.get(at) {
            if !pairs && byte != quote && byte != b'\\' {
                // Most bytes of a long constant are neither.
                let next = memchr::memchr2(quote, b'\\', &text[at..]);
                at += next.unwrap_or(text.len() - at);
                continue;
            }
            if byte == quote {
                if text.get(at + 1) != Some(&quote) {
                    self.rest = &text[at + 1..];
                    return (&text[open..at], plain);
                }
                plain = false;
                at += 2;
            } else if byte == b'\\' && escapes {
                plain = false;
                at += 2;
            } else if byte >= 0x80 && self.reading.pairs.begins_with(byte) {
                at += 2;
            } else {
                at += 1;
            }
        }
        // The closing quote is missing.
        self.cut = true;
        self.rest = &[];
        (&text[open.min(text.len())..], plain)
    }

    fn text(&mut self, open: usize, escapes: bool, decodes: bool) -> Token<'a> {
        let (inside, plain) = self.quoted(open, b'\'', escapes);
        self.goes_on = goes_on(self.rest).then_some(escapes);
        Token::Text {
            inside,
            plain: plain && !decodes,
            escapes: escapes && !plain && memchr::memchr(b'\\', inside).is_some(),
        }
    }

    /// `$tag$...$tag$`, if it comes next.
    fn dollar(&mut self) -> Option<Token<'a>> {
        let text = self.rest;
        let tag = text[1..].iter().position(|b| !is_tag(*b))?;
        let bad = text.get(tag + 1) != Some(&b'$') || text[1].is_ascii_digit();
        if bad {
            return None;
        }
        let (quote, behind) = text.split_at(tag + 2);
        let end = memchr::memmem::find(behind, quote);
        let (inside, rest) = match end {
            Some(end) => (&behind[..end], &behind[end + quote.len()..]),
            None => (behind, &behind[behind.len()..]),
        };
        self.rest = rest;
        Some(Token::Text {
            inside,
            plain: true,
            escapes: false,
        })
    }

    /// Passes over a number. Letters directly after it are another token.
    fn number(&mut self) -> Token<'a> {
        let digits = |text: &[u8]| {
            let end = text.iter().position(|b| !b.is_ascii_digit());
            end.unwrap_or(text.len())
        };
        let first = self.rest[0];
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
        Token::Sign(first)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.skip();
        let text = self.rest;
        let first = *text.first()?;
        let token = match (first, text.get(1), text.get(2)) {
            (b'\'', ..) => {
                let escapes = self.goes_on.unwrap_or(self.reading.escapes);
                self.text(1, escapes, false)
            }
            (b'"', ..) => Token::Quoted(self.quoted(1, b'"', false).0),
            (b'e' | b'E', Some(b'\''), _) => self.text(2, true, false),
            (b'n' | b'N', Some(b'\''), _) => self.text(2, self.reading.escapes, false),
            (b'b' | b'B' | b'x' | b'X', Some(b'\''), _) => self.text(2, false, true),
            (b'u' | b'U', Some(b'&'), Some(b'\'')) => self.text(3, self.reading.escapes, true),
            (b'u' | b'U', Some(b'&'), Some(b'"')) => {
                self.quoted(3, b'"', false);
                Token::Unicode
            }
            (b'$', Some(_), _) => match self.dollar() {
                Some(token) => token,
                None => {
                    self.rest = &text[1..];
                    Token::Sign(b'$')
                }
            },
            _ if first.is_ascii_digit() => self.number(),
            _ if is_start(first) => {
                let end = text.iter().position(|b| !is_word(*b));
                let (word, rest) = text.split_at(end.unwrap_or(text.len()));
                self.rest = rest;
                Token::Word(word)
            }
            _ => {
                self.rest = &text[1..];
                Token::Sign(first)
            }
        };
        Some(token)
    }
}

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

pub(super) fn is_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

pub(super) fn is_tag(byte: u8) -> bool {
    is_start(byte) || byte.is_ascii_digit()
}

/// True if the byte may stand in an identifier.
pub(crate) fn is_word(byte: u8) -> bool {
    is_tag(byte) || byte == b'$'
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
