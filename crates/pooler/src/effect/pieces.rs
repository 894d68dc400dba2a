//! Reads a text that arrives in pieces and is not kept.
//!
//! A [`Scan`] keeps the scanner's state between two pieces. It rewrites the code outside of
//! strings and comments as SQL with the same meaning: comments and blanks become one blank; a
//! short plain string stays; any other string becomes a short string that is not plain. The tokens
//! of this SQL are read portion by portion, and dropped. The body of a DO has a scan of its own.

use super::token::{LexRules, Pairs, Token, Tokens, is_start, is_tag, is_word};
use super::{At, Effects, Kinds, Reader};
use crate::limits;

/// Reads a text that comes in pieces.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// One scan for each way to read the text so far.
    scans: Vec<Scan>,
    /// A backslash has come: each way exists with and without escapes.
    escapes: bool,
    /// A byte that is not ASCII has come: there is a way for each of [`Pairs`].
    high: bool,
    /// A backslash followed such a byte: it may be half of a character.
    pairs: bool,
    last: u8,
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces {
            scans: vec![Scan::new(LexRules::default(), false, 0)],
            escapes: false,
            high: false,
            pairs: false,
            last: 0,
        }
    }
}

impl Pieces {
    /// Reads the next piece.
    pub fn read(&mut self, piece: &[u8]) {
        let mut done = 0;
        if !self.high
            && let Some(at) = piece.iter().position(|b| *b >= 0x80)
        {
            self.high = true;
            // Before the first such byte, a backslash means the same in each way.
            self.read_escapes(&piece[..at]);
            done = at;
            for pairs in [Pairs::All, Pairs::Sjis] {
                let ways = self.scans.iter().filter(|s| s.reading.pairs == Pairs::None);
                let more: Vec<Scan> = ways.map(|scan| scan.read_as(|r| r.pairs = pairs)).collect();
                self.scans.extend(more);
            }
        }
        self.read_escapes(&piece[done..]);
    }

    fn read_escapes(&mut self, piece: &[u8]) {
        let mut done = 0;
        if !self.escapes
            && let Some(at) = memchr::memchr(b'\\', piece)
        {
            self.escapes = true;
            self.pass(&piece[..at]);
            done = at;
            let more = self.scans.iter();
            let more: Vec<Scan> = more.map(|s| s.read_as(|r| r.escapes = true)).collect();
            self.scans.extend(more);
        }
        self.pass(&piece[done..]);
    }

    fn pass(&mut self, piece: &[u8]) {
        let Some(last) = piece.last() else { return };
        if self.high && !self.pairs {
            let mut all = memchr::memchr_iter(b'\\', piece);
            self.pairs = all.any(|at| match at {
                0 => self.last >= 0x80,
                at => piece[at - 1] >= 0x80,
            });
        }
        self.last = *last;
        for scan in &mut self.scans {
            scan.read(piece);
        }
    }

    /// The possible effects of the whole text.
    pub fn end(self) -> Effects {
        let mut found = Effects::default();
        let mut drops_at_end = true;
        for scan in self.scans {
            if self.pairs || scan.reading.pairs == Pairs::None {
                let (more, drops) = scan.end();
                drops_at_end &= drops;
                found.extend(more);
            }
        }
        // The values in the text were not kept.
        found.doubts_names();
        found.told(drops_at_end)
    }
}

/// Bytes of code that are kept back: more than any decision looks ahead.
const AHEAD: usize = 2 << 10;

/// Bytes of code that are read at once.
const PORTION: usize = 8 << 10;

/// The longest string, word or name in `code`. No setting's name is as long.
const LONGEST: usize = 4 * limits::NAME + 4;

/// One way to read a text.
#[derive(Clone, Debug)]
struct Scan {
    reading: LexRules,
    depth: u32,
    state: State,
    /// The next byte belongs to the current character.
    skips: bool,
    /// The last byte was a backslash that escapes.
    escapes: bool,
    /// Code that is not read yet.
    code: Vec<u8>,
    /// The length of the word at the end of `code`.
    run: usize,
    /// The beginning of the command's first word, to recognise DO.
    first: Vec<u8>,
    /// After a string, with only blanks and `--` comments since: whether a backslash escapes in
    /// the string, and whether a line has ended. If so, a quote continues the string.
    after_string: Option<(bool, bool)>,
    /// Strings are commands, and a command may begin at any word.
    loose: bool,
    /// The scan of a string that contains commands.
    body: Option<Box<Scan>>,
    found: Effects,
    at: At,
    before: [Vec<u8>; 2],
}

#[derive(Clone, Debug)]
enum State {
    /// Outside of strings, names and comments.
    Code,
    /// In a `--` comment.
    Line,
    /// In a `/*` comment, which may be nested.
    Comment { depth: u32, last: u8 },
    /// In a string.
    Text(Inside),
    /// After a quote that ends a string, or that is the first of a doubled one.
    Behind { escapes: bool },
    /// In a double-quoted name, of which `length` bytes are written.
    Name { length: usize },
    /// In a name `U&"..."`.
    Unicode,
    /// After a dollar that may begin a string.
    Tag(Vec<u8>),
    /// In a dollar-quoted string: its end tag, and how much of it has matched.
    Dollar {
        inside: Inside,
        end: Vec<u8>,
        seen: usize,
    },
    /// After the end of the text.
    Done,
}

#[derive(Clone, Debug, Default)]
struct Inside {
    escapes: bool,
    /// The string continues after a doubled quote.
    goes_on: bool,
    value: Vec<u8>,
    /// The string is too long for `value`, or has characters that are not plain.
    odd: bool,
}

impl Inside {
    fn push(&mut self, byte: u8) {
        let plain = matches!(byte, b' '..=b'~') && !matches!(byte, b'\\' | b'\'');
        self.odd |= !plain || self.value.len() >= LONGEST;
        if !self.odd {
            self.value.push(byte);
        }
    }
}

impl Scan {
    fn new(reading: LexRules, loose: bool, depth: u32) -> Scan {
        Scan {
            reading,
            depth,
            state: State::Code,
            skips: false,
            escapes: false,
            code: Vec::new(),
            run: 0,
            first: Vec::new(),
            after_string: None,
            loose,
            body: None,
            found: Effects::default(),
            at: At::start(loose),
            before: Default::default(),
        }
    }

    /// A copy that reads the rest of the text in another way.
    fn read_as(&self, change: impl Fn(&mut LexRules)) -> Scan {
        let mut scan = self.clone();
        scan.change(&change);
        scan
    }

    fn change(&mut self, change: &impl Fn(&mut LexRules)) {
        let before = self.reading;
        change(&mut self.reading);
        let escapes = self.reading.escapes && !before.escapes;
        match &mut self.state {
            // Strings without a prefix letter; at worst, also a few with one.
            State::Text(inside) => inside.escapes |= escapes,
            State::Behind { escapes: known } => *known |= escapes,
            _ => {}
        }
        if let Some((known, _)) = &mut self.after_string {
            *known |= escapes;
        }
        if let Some(body) = &mut self.body {
            body.change(change);
        }
    }

    fn read(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while let Some((byte, after)) = rest.split_first() {
            self.byte(*byte);
            rest = after;
            let State::Text(inside) = &self.state else {
                continue;
            };
            let passes = inside.odd && !self.skips && self.body.is_none();
            if passes && self.reading.pairs == Pairs::None {
                let end = memchr::memchr3(b'\'', b'\\', 0, rest);
                rest = &rest[end.unwrap_or(rest.len())..];
            }
        }
    }

    fn byte(&mut self, byte: u8) {
        if byte == 0 {
            self.close();
            self.state = State::Done;
            return;
        }
        let skipped = std::mem::take(&mut self.skips);
        match &mut self.state {
            State::Done => {}
            State::Code => self.code(byte),
            State::Line => {
                if matches!(byte, b'\n' | b'\r') {
                    self.state = State::Code;
                    self.after_string = self.after_string.map(|(escapes, _)| (escapes, true));
                }
            }
            State::Comment { depth, last } => match (*last, byte) {
                (b'/', b'*') => {
                    *depth += 1;
                    *last = 0;
                }
                (b'*', b'/') => {
                    *depth -= 1;
                    *last = 0;
                    if *depth == 0 {
                        self.state = State::Code;
                    }
                }
                _ => *last = byte,
            },
            State::Text(inside) => {
                let escapes = inside.escapes;
                if !skipped && byte == b'\'' {
                    self.close();
                    self.state = State::Behind { escapes };
                    return;
                }
                let escapes = !skipped && byte == b'\\' && escapes;
                let pair = !skipped && byte >= 0x80 && self.reading.pairs.begins_with(byte);
                self.skips = escapes || pair;
                inside.push(byte);
                let escaped = std::mem::replace(&mut self.escapes, escapes);
                match escaped {
                    _ if escapes => {}
                    true => self.run_escaped(byte),
                    false => self.run_inside(byte),
                }
            }
            State::Behind { escapes } => {
                let escapes = *escapes;
                self.state = State::Code;
                match byte {
                    b'\'' => {
                        self.open(escapes);
                        if let State::Text(inside) = &mut self.state {
                            inside.goes_on = true;
                        }
                    }
                    _ => {
                        self.after_string = Some((escapes, false));
                        self.code(byte);
                    }
                }
            }
            State::Name { length } => {
                if !skipped && byte == b'"' {
                    self.code.push(b'"');
                    self.state = State::Code;
                    return;
                }
                self.skips = !skipped && self.reading.pairs.begins_with(byte);
                if *length < LONGEST {
                    *length += 1;
                    // A backslash has no meaning in a name.
                    self.code.push(if byte < 0x80 { byte } else { b'\x7f' });
                }
            }
            State::Unicode => {
                if !skipped && byte == b'"' {
                    self.code.push(b'"');
                    self.state = State::Code;
                    return;
                }
                self.skips = !skipped && self.reading.pairs.begins_with(byte);
            }
            State::Tag(tag) => {
                if byte == b'$' {
                    let end = [b"$", &tag[..], b"$"].concat();
                    self.open(false);
                    if let State::Text(inside) = std::mem::replace(&mut self.state, State::Code) {
                        self.state = State::Dollar {
                            inside,
                            end,
                            seen: 0,
                        };
                    }
                    return;
                }
                let may = is_tag(byte) && (!tag.is_empty() || is_start(byte));
                if may && tag.len() < limits::DOLLAR_TAG {
                    tag.push(byte);
                    return;
                }
                if may {
                    self.found.kinds.add(Kinds::DOUBT);
                }
                let tag = std::mem::take(tag);
                self.state = State::Code;
                self.write(b'$');
                self.run = 0;
                tag.iter().for_each(|byte| self.write(*byte));
                self.code(byte);
            }
            State::Dollar { inside, end, seen } => {
                if byte != end[*seen] && *seen > 0 {
                    // No end tag: in a tag, only the first and the last byte are dollars.
                    inside.odd = true;
                    let passed = std::mem::take(seen);
                    if let Some(body) = &mut self.body {
                        body.read(&end[..passed]);
                    }
                }
                if byte != end[*seen] {
                    inside.push(byte);
                    return self.run_inside(byte);
                }
                *seen += 1;
                if *seen == end.len() {
                    self.close();
                }
            }
        }
    }

    fn code(&mut self, byte: u8) {
        let comment = self.code.last() == Some(&b'-');
        let after = self.after_string.take();
        self.after_string = match byte {
            b'\n' | b'\r' => after.map(|(escapes, _)| (escapes, true)),
            b' ' | b'\t' | 0x0b | 0x0c | b'-' => after,
            _ => None,
        };
        // A single dash begins no comment.
        self.after_string.take_if(|_| comment && byte != b'-');
        match byte {
            b'\'' => {
                let escapes = match (after, self.letter()) {
                    (Some((escapes, true)), _) if !comment => escapes,
                    (_, b'e') => true,
                    (_, b'b' | b'x') => false,
                    _ => self.reading.escapes,
                };
                return self.open(escapes);
            }
            b'"' => {
                self.begins_word(byte);
                let unicode = self.letter() == b'&';
                self.code.push(b'"');
                self.run = 0;
                self.state = match unicode {
                    true => State::Unicode,
                    false => State::Name { length: 0 },
                };
                return;
            }
            b'$' if !matches!(self.last_token(), Some(Token::Word(_))) => {
                self.state = State::Tag(Vec::new());
                return;
            }
            b'-' if self.code.last() == Some(&b'-') => {
                self.code.pop();
                self.write(b' ');
                self.state = State::Line;
                return;
            }
            b'*' if self.code.last() == Some(&b'/') => {
                self.code.pop();
                self.write(b' ');
                self.state = State::Comment { depth: 1, last: 0 };
                return;
            }
            _ => {}
        }
        self.write(byte);
        if self.code.len() >= PORTION {
            self.tokens(AHEAD);
        }
    }

    fn write(&mut self, byte: u8) {
        self.begins_word(byte);
        match byte {
            b' ' | b'\t'..=b'\r' => {
                self.run = 0;
                if self.code.last() != Some(&b' ') {
                    self.code.push(b' ');
                }
            }
            byte if is_word(byte) => {
                self.run += 1;
                if self.run <= LONGEST {
                    self.code.push(byte);
                }
            }
            byte => {
                self.run = 0;
                self.code.push(byte);
            }
        }
    }

    fn begins_word(&mut self, byte: u8) {
        match byte {
            b';' => self.first.clear(),
            byte if is_word(byte) => {
                if self.first.len() < 3 {
                    self.first.push(byte);
                }
            }
            _ if self.first.is_empty() || self.first.len() >= 3 => {}
            _ => self.first.resize(3, b' '),
        }
    }

    /// The last token of `code`, perhaps incomplete.
    fn last_token(&self) -> Option<Token<'_>> {
        let run = self.run.min(LONGEST);
        let word = &self.code[self.code.len() - run..];
        Tokens::new(word, LexRules::default()).last()
    }

    /// The prefix letter before a quote; `&` for `U&`.
    fn letter(&self) -> u8 {
        if let Some(Token::Word([letter])) = self.last_token() {
            return letter.to_ascii_lowercase();
        }
        let Some(before) = self.code.strip_suffix(b"&") else {
            return 0;
        };
        let run = before.iter().rev().take(LONGEST);
        let run = run.take_while(|b| is_word(**b)).count();
        let word = Tokens::new(&before[before.len() - run..], LexRules::default());
        match word.last() {
            Some(Token::Word(b"u" | b"U")) => b'&',
            _ => 0,
        }
    }

    fn open(&mut self, escapes: bool) {
        self.begins_word(b'\'');
        self.run = 0;
        self.state = State::Text(Inside {
            escapes,
            ..Inside::default()
        });
        if !self.loose && !self.first.eq_ignore_ascii_case(b"do ") {
            return;
        }
        match self.depth >= crate::limits::DO_DEPTH {
            true => self.found.kinds.add(Kinds::DOUBT),
            false => {
                let body = Scan::new(self.reading, true, self.depth + 1);
                self.body = Some(Box::new(body));
            }
        }
    }

    fn run_escaped(&mut self, byte: u8) {
        match super::escaped(byte, !self.reading.escapes) {
            Some(byte) => self.run_inside(byte),
            None if self.body.is_some() => self.found.kinds.add(Kinds::DOUBT),
            None => {}
        }
    }

    fn run_inside(&mut self, byte: u8) {
        if let Some(body) = &mut self.body {
            body.byte(byte);
        }
    }

    /// Ends the current string, if there is one, and writes it to `code`.
    fn close(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Code);
        let (State::Text(inside) | State::Dollar { inside, .. }) = state else {
            return;
        };
        let body = self.body.take();
        match (inside.goes_on, inside.odd) {
            // One doubled quote in the string is enough.
            (true, _) if self.code.ends_with(b"'''") => {}
            (true, _) => self.code.extend_from_slice(b"''"),
            // The body has its own scan.
            _ if body.is_some() => self.code.extend_from_slice(b"''"),
            (_, true) => self.code.extend_from_slice(b"''''"),
            (_, false) => self.code.extend([b"'", &inside.value[..], b"'"].concat()),
        }
        if let Some(body) = body {
            let (found, drops_at_end) = body.end();
            self.at.lasting += i32::from(!drops_at_end);
            self.found.extend(found);
        }
        if self.code.len() >= PORTION {
            self.tokens(AHEAD);
        }
    }

    /// Reads the tokens of `code`; the last `ahead` bytes are only looked at.
    fn tokens(&mut self, ahead: usize) {
        let code = std::mem::take(&mut self.code);
        let [last, first] = std::mem::take(&mut self.before);
        let mut reader = Reader {
            tokens: Tokens::new(&code, self.reading),
            found: std::mem::take(&mut self.found),
            depth: self.depth,
            at: self.at,
        };
        let (last, first) = reader.commands((&last, &first), ahead);
        let left = reader.tokens.rest().len();
        let short = |word: &[u8]| word.get(..limits::NAME).unwrap_or(word).to_vec();
        self.before = [short(last), short(first)];
        self.at = reader.at;
        self.found = reader.found;
        self.code = code[code.len() - left..].to_vec();
    }

    /// The effects, and whether each temporary object is dropped at the end.
    fn end(mut self) -> (Effects, bool) {
        if let State::Tag(_) = self.state {
            self.byte(b' ');
        }
        self.close();
        self.tokens(0);
        self.at.ends_command(&mut self.found);
        (self.found, self.at.lasting <= 0)
    }
}
