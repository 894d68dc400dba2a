//! The shape of a text: PostgreSQL's tokens, each constant replaced by a short one of its kind.
//!
//! `SELECT a FROM t WHERE k IN (17, 18)` has the shape `select a from t where k in (1)` and the
//! constants 17 and 18, both for the one place of a constant in the shape. Texts with equal shapes
//! have equal trees but for the constants, so they share a plan.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use crate::lexer::{Kind, Lexer, Token, is_word, text_value};
use crate::refusal::Refusal;

/// The most tokens of a shape.
pub const MOST_TOKENS: usize = 10_000;

/// The shape of a text.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    text: String,
    /// Where in the shape each constant stands.
    places: Vec<u32>,
}

impl Shape {
    /// The text of the shape.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of the constant that the grammar places here: at the constant, or at its sign.
    pub fn constant_at(&self, at: usize) -> Option<u32> {
        let number = self.places.partition_point(|place| (*place as usize) < at);
        let place = *self.places.get(number)? as usize;
        let between = self.text.as_bytes().get(at..place)?;
        let signs = between.iter().all(|byte| matches!(byte, b'-' | b' '));
        signs.then_some(number as u32)
    }
}

/// What is known about a constant before its value is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConstantKind {
    /// Decimal digits.
    Integer,
    /// Another number.
    Decimal,
    /// A string.
    Text,
    /// A constant that no key is compared with: bits, `N'...'`, `U&'...'`.
    Other,
}

/// A constant of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Constant {
    /// Its number in the shape. Several have one number if they are folded.
    number: u32,
    kind: ConstantKind,
    start: u32,
    end: u32,
}

/// The constants of a text, by their number in the shape.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Constants {
    sorted: Vec<Constant>,
    escapes: bool,
}

/// A constant as a text has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) kind: ConstantKind,
    /// The digits of a number, or the value of a string. `None` if the value is not certain.
    pub(crate) value: Option<Cow<'a, [u8]>>,
}

impl Constants {
    /// The constants with a number, of the text that was scanned.
    pub(crate) fn of_number<'a>(
        &'a self,
        number: u32,
        text: &'a [u8],
    ) -> impl Iterator<Item = Found<'a>> {
        let start = self
            .sorted
            .partition_point(|constant| constant.number < number);
        let behind = self.sorted.get(start..).unwrap_or_default();
        let mine = behind
            .iter()
            .take_while(move |constant| constant.number == number);
        mine.map(move |constant| {
            let bytes = text.get(constant.start as usize..constant.end as usize);
            let value = match constant.kind {
                ConstantKind::Text => bytes.and_then(|bytes| text_value(bytes, self.escapes)),
                _ => bytes.map(Cow::Borrowed),
            };
            Found {
                kind: constant.kind,
                value,
            }
        })
    }

    /// How many constants the text has.
    pub(crate) fn count(&self) -> usize {
        self.sorted.len()
    }

    /// How much memory the constants take.
    pub(crate) fn bytes(&self) -> usize {
        self.sorted.len() * size_of::<Constant>()
    }

    /// Where the constants stand in the text.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let range = |constant: &Constant| constant.start as usize..constant.end as usize;
        self.sorted.iter().map(range)
    }
}

/// The shape of a text and its constants. `escapes`: a backslash escapes in every string
/// (`standard_conforming_strings = off`).
pub fn scan(text: &[u8], escapes: bool) -> Result<(Shape, Constants), Refusal> {
    scan_as(text, escapes, true)
}

/// Like [`scan`]; without `folds`, each constant keeps a place of its own.
pub(crate) fn scan_as(
    text: &[u8],
    escapes: bool,
    folds: bool,
) -> Result<(Shape, Constants), Refusal> {
    if u32::try_from(text.len()).is_err() {
        return Err(Refusal::too_complex("the statement is too long").firm());
    }
    let mut scan = Scan {
        lexer: Lexer::new(text, escapes),
        shape: Vec::with_capacity(text.len().min(4096)),
        places: Vec::new(),
        constants: Vec::new(),
        tokens: 0,
        before: Before::Other,
    };
    while let Some(token) = scan.lexer.next() {
        if folds {
            scan.token(&token, true)?;
        } else {
            scan.add(&token)?;
        }
    }
    if scan.lexer.is_cut() {
        return Err(Refusal::syntax(
            "the statement ends inside quotes or a comment",
        ));
    }
    let Ok(shape) = String::from_utf8(scan.shape) else {
        return Err(
            Refusal::unproved("the statement has names that are not in UTF-8")
                .hint("Set client_encoding to UTF8."),
        );
    };
    let mut sorted = scan.constants;
    sorted.sort_by_key(|constant| constant.number);
    let constants = Constants { sorted, escapes };
    Ok((
        Shape {
            text: shape,
            places: scan.places,
        },
        constants,
    ))
}

/// What the token before was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    /// A dot or AS: a name follows.
    Name,
    Constant,
    Other,
}

struct Scan<'a> {
    lexer: Lexer<'a>,
    shape: Vec<u8>,
    places: Vec<u32>,
    constants: Vec<Constant>,
    tokens: usize,
    before: Before,
}

/// How far a scan has come.
struct Mark {
    shape: usize,
    places: usize,
    constants: usize,
    tokens: usize,
}

impl Scan<'_> {
    /// Adds a token to the shape, and what is folded behind IN and VALUES.
    fn token(&mut self, token: &Token, folds_rows: bool) -> Result<(), Refusal> {
        let before = self.before;
        self.add(token)?;
        if token.kind != Kind::Word || before == Before::Name {
            return Ok(());
        }
        let word = self.lexer.bytes(token);
        if word.eq_ignore_ascii_case(b"in") && self.lexer.sees(b'(') {
            self.fold_list()?;
        } else if folds_rows && word.eq_ignore_ascii_case(b"values") && self.lexer.sees(b'(') {
            self.fold_rows()?;
        }
        Ok(())
    }

    /// Adds a token to the shape.
    fn add(&mut self, token: &Token) -> Result<(), Refusal> {
        self.tokens += 1;
        if self.tokens > MOST_TOKENS {
            let message = format!("the statement has more than {MOST_TOKENS} words and signs");
            return Err(Refusal::too_complex(message).hint(
                "Lists behind IN and rows of VALUES don't count if they have only constants.",
            ));
        }
        let bytes = self.lexer.bytes(token);
        let (standing, kind): (&[u8], ConstantKind) = match token.kind {
            Kind::Integer if is_int4(bytes) => (b"1", ConstantKind::Integer),
            Kind::Integer => (b"3000000000", ConstantKind::Integer),
            Kind::Decimal => (b"1.5", ConstantKind::Decimal),
            Kind::Text => (b"'s'", ConstantKind::Text),
            Kind::National => (b"n's'", ConstantKind::Other),
            // Empty: `UESCAPE 's'` may follow.
            Kind::Unicode => (b"u&''", ConstantKind::Other),
            Kind::Bits => (b"b'1'", ConstantKind::Other),
            Kind::Hex => (b"x'1'", ConstantKind::Other),
            Kind::OddNumber => {
                let number = String::from_utf8_lossy(bytes).into_owned();
                let message = "versions of PostgreSQL read a number differently";
                let hint = "Write the number in decimal digits, with a blank behind.";
                return Err(Refusal::unproved(message).detail(number).hint(hint));
            }
            Kind::Quoted if bytes[0] != b'"' => {
                // Its UESCAPE is a constant on which the name depends.
                return Err(Refusal::unproved("names like U&\"...\" are not read")
                    .hint("Write the name's characters themselves."));
            }
            Kind::Word | Kind::Quoted | Kind::Parameter | Kind::Operator | Kind::Sign => {
                self.put(token, bytes, false);
                let names = bytes == b"." || bytes.eq_ignore_ascii_case(b"as");
                self.before = if names { Before::Name } else { Before::Other };
                return Ok(());
            }
        };
        self.put(token, standing, true);
        self.before = Before::Constant;
        let at = self.shape.len() - standing.len();
        let number = self.places.len() as u32;
        self.places.push(at as u32);
        self.constant(number, kind, &token.range);
        Ok(())
    }

    fn constant(&mut self, number: u32, kind: ConstantKind, range: &Range<usize>) {
        self.constants.push(Constant {
            number,
            kind,
            start: range.start as u32,
            end: range.end as u32,
        });
    }

    /// Adds the bytes of a token, behind a blank if the text has one, or if the bytes would
    /// otherwise make one token with those before.
    fn put(&mut self, token: &Token, bytes: &[u8], is_constant: bool) {
        let joins = |byte: u8| is_word(byte) || b"'\".".contains(&byte);
        let last = self.shape.last().copied();
        let first = bytes.first().copied().unwrap_or(b' ');
        // `u&` and a dollar-quoted string are not `u&'..'`.
        let prefixes = last == Some(b'&') && first == b'\'';
        let touches = (last.is_some_and(joins) && joins(first)) || prefixes;
        let replaced = is_constant || self.before == Before::Constant;
        if last.is_some() && (token.blank || (touches && replaced)) {
            self.shape.push(b' ');
        }
        let from = self.shape.len();
        self.shape.extend_from_slice(bytes);
        if token.kind == Kind::Word {
            self.shape[from..].make_ascii_lowercase();
        }
    }

    fn mark(&self) -> Mark {
        Mark {
            shape: self.shape.len(),
            places: self.places.len(),
            constants: self.constants.len(),
            tokens: self.tokens,
        }
    }

    /// Takes back what was added since a mark, but for the constants.
    fn back(&mut self, mark: &Mark) {
        self.shape.truncate(mark.shape);
        self.places.truncate(mark.places);
        self.tokens = mark.tokens;
    }

    /// A list of constants behind IN becomes a list with one of each kind.
    fn fold_list(&mut self) -> Result<(), Refusal> {
        if !is_list_of_constants(self.lexer.clone()) {
            return Ok(());
        }
        if let Some(open) = self.lexer.next() {
            self.add(&open)?;
        }
        let mut kinds: Vec<(bool, Kind, bool, u32)> = Vec::new();
        while let Some(mut constant) = self.lexer.next() {
            let sign = Some(constant.clone()).filter(|token| token.kind == Kind::Operator);
            if sign.is_some() {
                let Some(behind) = self.lexer.next() else {
                    break;
                };
                constant = behind;
            }
            let small = constant.kind == Kind::Integer && is_int4(self.lexer.bytes(&constant));
            let same = |(signed, kind, is_small, _): &&(bool, Kind, bool, u32)| {
                *signed == sign.is_some() && *kind == constant.kind && *is_small == small
            };
            if let Some((.., number)) = kinds.iter().find(same) {
                let (number, kind) = (*number, kind_of(constant.kind));
                self.constant(number, kind, &constant.range);
            } else {
                if !kinds.is_empty() {
                    self.shape.push(b',');
                    self.tokens += 1;
                }
                self.before = Before::Other;
                if let Some(sign) = &sign {
                    self.add(sign)?;
                }
                let number = self.places.len() as u32;
                kinds.push((sign.is_some(), constant.kind, small, number));
                self.add(&constant)?;
            }
            match self.lexer.next() {
                Some(end) if self.lexer.bytes(&end) == b")" => return self.add(&end),
                _ => {}
            }
        }
        Ok(())
    }

    /// Rows of VALUES that differ in constants only become one row.
    fn fold_rows(&mut self) -> Result<(), Refusal> {
        let mut rows: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut before = self.mark();
        let mut is_first = true;
        loop {
            let mark = self.mark();
            let Some(row) = self.row()? else {
                return Ok(());
            };
            match rows.get(&self.shape[row..]) {
                // A row like an earlier one: its constants go there.
                Some(number) if !is_first => {
                    let less = mark.places as u32 - number;
                    for constant in &mut self.constants[mark.constants..] {
                        constant.number -= less;
                    }
                    self.back(&before);
                }
                _ => {
                    rows.insert(self.shape[row..].to_vec(), mark.places as u32);
                }
            }
            is_first = false;
            before = self.mark();
            let mut ahead = self.lexer.clone();
            let comma = ahead.next().filter(|token| ahead.bytes(token) == b",");
            let Some(comma) = comma.filter(|_| ahead.sees(b'(')) else {
                return Ok(());
            };
            self.lexer = ahead;
            self.add(&comma)?;
        }
    }

    /// Adds a row in parentheses. Where the row begins in the shape; `None` if the row does not end.
    fn row(&mut self) -> Result<Option<usize>, Refusal> {
        let mut start = None;
        let mut depth = 0_usize;
        while let Some(token) = self.lexer.next() {
            self.token(&token, false)?;
            start = start.or(Some(self.shape.len() - 1));
            match self.lexer.bytes(&token) {
                b"(" => depth += 1,
                b")" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(start);
            }
        }
        Ok(None)
    }
}

/// True if only constants are in the parentheses that come next, numbers perhaps behind a minus.
fn is_list_of_constants(mut ahead: Lexer<'_>) -> bool {
    let mut next = || {
        let token = ahead.next()?;
        let first = ahead.bytes(&token).first().copied();
        Some((token.kind, first.unwrap_or_default(), token.range.len()))
    };
    next();
    loop {
        let Some((mut kind, first, length)) = next() else {
            return false;
        };
        let signed = kind == Kind::Operator && (first, length) == (b'-', 1);
        if signed {
            kind = next().map_or(Kind::Sign, |(kind, ..)| kind);
        }
        let is_number = matches!(kind, Kind::Integer | Kind::Decimal);
        if !is_number && (signed || kind != Kind::Text) {
            return false;
        }
        match next() {
            Some((Kind::Sign, b',', _)) => {}
            Some((Kind::Sign, b')', _)) => return true,
            _ => return false,
        }
    }
}

fn kind_of(kind: Kind) -> ConstantKind {
    match kind {
        Kind::Integer => ConstantKind::Integer,
        Kind::Decimal => ConstantKind::Decimal,
        Kind::Text => ConstantKind::Text,
        _ => ConstantKind::Other,
    }
}

/// True for digits that PostgreSQL takes as an `integer` at once.
fn is_int4(digits: &[u8]) -> bool {
    let text = std::str::from_utf8(digits).ok();
    text.and_then(|digits| digits.parse::<i32>().ok()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match scan(text.as_bytes(), false) {
            Ok((shape, constants)) => {
                let mut shown = shape.text().to_owned();
                for constant in &constants.sorted {
                    let value = &text[constant.start as usize..constant.end as usize];
                    shown.push_str(&format!(" | {} {value}", constant.number));
                }
                shown
            }
            Err(refusal) => refusal.code.into(),
        }
    }

    #[test]
    fn shapes() {
        for (text, expected) in [
            (
                "SELECT a FROM t WHERE k = 17",
                "select a from t where k = 1 | 0 17",
            ),
            ("select  1/* */+ -2.5", "select 1 + -1.5 | 0 1 | 1 2.5"),
            (
                "select 3000000000,$1,'a''b'",
                "select 3000000000,$1,'s' | 0 3000000000 | 1 'a''b'",
            ),
            ("select \"A\"$$b$$x", "select \"A\" 's' x | 0 $$b$$"),
            ("select a.5", "select a 1.5 | 0 .5"),
            ("select u&$$a$$", "select u& 's' | 0 $$a$$"),
            ("select $1.5", "select $1 1.5 | 0 .5"),
            ("select 'a'$$b$$", "select 's' 's' | 0 'a' | 1 $$b$$"),
            (
                "select N'a', U&'b', b'0', x'f'",
                "select n's', u&'', b'1', x'1' | 0 N'a' | 1 U&'b' | 2 b'0' | 3 x'f'",
            ),
            (
                "k in (1, 2,-3,'a',4)",
                "k in (1,-1,'s') | 0 1 | 0 2 | 0 4 | 1 3 | 2 'a'",
            ),
            ("k IN(1,$1)", "k in(1,$1) | 0 1"),
            ("k in (1, 2::int)", "k in (1, 1::int) | 0 1 | 1 2"),
            ("t.in (1, 2)", "t.in (1, 1) | 0 1 | 1 2"),
            ("f(1, 2)", "f(1, 1) | 0 1 | 1 2"),
            ("k in (select 1)", "k in (select 1) | 0 1"),
            (
                "values (1,'a'),(2,'b'), (3, 'c'),(4,'d')",
                "values (1,'s'), (1, 's') | 0 1 | 0 2 | 0 4 | 1 'a' | 1 'b' | 1 'd' | 2 3 | 3 'c'",
            ),
            ("values ($1),($2),($1)", "values ($1),($2)"),
            (
                "values (f(1)),(f(2)) returning 3",
                "values (f(1)) returning 1 | 0 1 | 0 2 | 1 3",
            ),
            (
                "values (1), (k in (1,2)), (k in (3))",
                "values (1), (k in (1)) | 0 1 | 1 1 | 1 2 | 1 3",
            ),
            ("t.values (1),(2)", "t.values (1),(1) | 0 1 | 1 2"),
            ("values (1", "values (1 | 0 1"),
            ("values (1),", "values (1), | 0 1"),
            ("values (1),(2", "values (1),(1 | 0 1 | 1 2"),
            ("select 'a", "42601"),
            ("select 0x1f", "0A000"),
            ("select 1_000", "0A000"),
            ("select U&\"d!0061\" uescape '!'", "0A000"),
            ("", ""),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn where_constants_stand() {
        let (shape, _) = scan(b"select - 5, a-7", false).expect("a shape");
        assert_eq!(shape.text(), "select - 1, a-1");
        for (at, number) in [
            (7, Some(0)),
            (9, Some(0)),
            (6, Some(0)),
            (12, None),
            (14, Some(1)),
            (15, None),
        ] {
            assert_eq!(shape.constant_at(at), number, "{at}");
        }
    }

    #[test]
    fn lists_and_rows_are_short_but_nothing_else() {
        let many = |front: &str, element: &str, count: usize| {
            let text = format!("{front}{}", vec![element; count].join(","));
            (scan(text.as_bytes(), false).map(|(shape, _)| shape.text.len())).map_err(|e| e.code)
        };
        assert_eq!(many("values ", "(1, 'a')", 100_000), Ok(15));
        assert_eq!(many("select 1", "1", 100_000), Err("54001"));
        let list = format!("k in ({}1)", "17, ".repeat(100_000));
        let (shape, constants) = scan(list.as_bytes(), false).expect("a shape");
        assert_eq!(shape.text(), "k in (1)");
        assert_eq!(constants.of_number(0, list.as_bytes()).count(), 100_001);
    }
}
