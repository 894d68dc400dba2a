//! The first look at a text: most texts show without being read by token that they have no effect.

use std::cell::OnceCell;

use super::Kinds;
use super::token::is_word;

/// The longest name of a function that has an effect, in bytes.
const LONGEST: usize = 35;

/// Which signs are somewhere in a text, a set. They are looked for all at once, sixteen bytes a step.
#[derive(Clone, Copy)]
pub(super) struct Signs(u8);

impl Signs {
    pub(super) const CALL: u8 = 1;
    pub(super) const SEMICOLON: u8 = 1 << 1;
    pub(super) const NUL: u8 = 1 << 2;
    /// Two letters that TEMP ends in.
    pub(super) const TEMP: u8 = 1 << 3;
    pub(super) const DOT: u8 = 1 << 4;
    /// How many bytes a step looks at: each with the one behind it.
    const STEP: usize = 17;

    /// Those of this text.
    pub(super) fn of(text: &[u8]) -> Signs {
        let mut seen = [0; Self::STEP - 1];
        let mut rest = text;
        while let Some(step) = rest.first_chunk() {
            Self::look(step, &mut seen);
            rest = &rest[Self::STEP - 1..];
        }
        // What is left is looked at with what stands before it, and blanks behind it.
        let left = &text[text.len().saturating_sub(Self::STEP - 1)..];
        let mut padded = [b' '; Self::STEP];
        padded[..left.len()].copy_from_slice(left);
        Self::look(&padded, &mut seen);
        Signs(seen.into_iter().fold(0, |all, one| all | one))
    }

    /// Without a branch, so that the compiler makes it a few instructions for all sixteen bytes.
    fn look(step: &[u8; Self::STEP], seen: &mut [u8; Self::STEP - 1]) {
        let sign = |is: bool, sign: u8| if is { sign } else { 0 };
        for (at, seen) in seen.iter_mut().enumerate() {
            let (byte, behind) = (step[at], step[at + 1]);
            *seen |= sign(byte == b'(', Self::CALL);
            *seen |= sign(byte == b';', Self::SEMICOLON);
            *seen |= sign(byte == 0, Self::NUL);
            *seen |= sign(byte == b'.', Self::DOT);
            *seen |=
                sign(byte | 0x20 == b'm', Self::TEMP) & sign(behind | 0x20 == b'p', Self::TEMP);
        }
    }

    pub(super) fn has(self, sign: u8) -> bool {
        self.0 & sign != 0
    }
}

/// The part of a text that PostgreSQL reads: up to the first zero, without what [`trim`] takes off.
pub(super) fn front(text: &[u8], signs: Signs) -> &[u8] {
    let end = match signs.has(Signs::NUL) {
        true => memchr::memchr(0, text),
        false => None,
    };
    trim(&text[..end.unwrap_or(text.len())])
}

/// What a text does that needs no reading by token. `None` says nothing. `signs`: at least those of
/// the text.
pub(super) fn tells(text: &[u8], signs: Signs) -> Option<Kinds> {
    let is = |command: &[u8]| text.eq_ignore_ascii_case(command);
    let first = text.first().map_or(0, |byte| byte | 0x20);
    match first {
        b'b' if is(b"begin") => Some(Kinds::BEGINS),
        b'c' if is(b"commit") => Some(Kinds::ENDS),
        b'r' if is(b"rollback") => Some(Kinds::ENDS),
        b'e' if is(b"end") => Some(Kinds::ENDS),
        _ => is_harmless(text, signs).then_some(Kinds::NOTHING),
    }
}

/// True for a text that certainly does nothing that is looked for. False says nothing.
pub(super) fn is_harmless(text: &[u8], signs: Signs) -> bool {
    let Some((word, rest)) = text.split_first_chunk::<6>() else {
        return text.is_empty();
    };
    if rest.first().is_some_and(|b| is_word(*b)) {
        return false;
    }
    let harmless = match &word.map(|byte| byte | 0x20) {
        b"insert" | b"delete" | b"values" => true,
        b"select" => !signs.has(Signs::TEMP) || has_no_temp(rest),
        b"update" => !may_update_settings(rest),
        _ => false,
    };
    harmless
        && (!signs.has(Signs::SEMICOLON) || is_single(rest))
        && (!signs.has(Signs::CALL) || has_no_call(rest))
        && (!signs.has(Signs::DOT) || !has_attribute(rest))
}

/// Without blanks and semicolons at its end, and blanks and comments at its beginning.
pub(super) fn trim(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|b| !is_blank(*b) && *b != b';');
    let mut text = &text[..end.map_or(0, |end| end + 1)];
    loop {
        let start = text.iter().position(|b| !is_blank(*b));
        text = &text[start.unwrap_or(text.len())..];
        match comment(text) {
            Some(length) => text = &text[length..],
            None => return text,
        }
    }
}

/// How long the comment is that a text begins with, if there is no other in it.
fn comment(text: &[u8]) -> Option<usize> {
    let inside = text.strip_prefix(b"/*")?;
    let end = memchr::memmem::find(inside, b"*/")?;
    // `/*/*/` opens two.
    let nested = memchr::memmem::find(&inside[..end + 1], b"/*").is_some();
    (!nested).then_some(end + 4)
}

/// No semicolon: it is one command. (The last ones are trimmed.)
fn is_single(text: &[u8]) -> bool {
    memchr::memchr(b';', text).is_none()
}

/// No function is called that has an effect: what stands before each parenthesis is looked at.
fn has_no_call(text: &[u8]) -> bool {
    let marks = Marks::of(text);
    memchr::memchr_iter(b'(', text)
        .all(|at| is_harmless_call(&text[..at], &marks) && !begins_update(&text[at + 1..]))
}

/// Where in a text names may be hidden, which is looked for once and only if that matters.
struct Marks<'a> {
    text: &'a [u8],
    comment: OnceCell<usize>,
    unicode: OnceCell<usize>,
}

impl<'a> Marks<'a> {
    fn of(text: &'a [u8]) -> Marks<'a> {
        Marks {
            text,
            comment: OnceCell::new(),
            unicode: OnceCell::new(),
        }
    }

    /// There is a comment, or what looks like one, in the first so many bytes.
    fn has_comment(&self, end: usize) -> bool {
        let first = *self.comment.get_or_init(|| {
            let line = memchr::memmem::find(self.text, b"--");
            let front = &self.text[..line.unwrap_or(self.text.len())];
            let block = memchr::memmem::find(front, b"/*");
            block.or(line).unwrap_or(self.text.len())
        });
        first + 2 <= end
    }

    /// There is a `U&"..."`, or what looks like one, in the first so many bytes.
    fn has_unicode(&self, end: usize) -> bool {
        let first = *self.unicode.get_or_init(|| {
            let first = memchr::memmem::find(self.text, b"&\"");
            first.unwrap_or(self.text.len())
        });
        first + 2 <= end
    }
}

/// `WITH changed AS (UPDATE pg_settings ...`; what a comment hides may be one.
fn begins_update(inside: &[u8]) -> bool {
    let start = inside.iter().position(|b| !is_blank(*b));
    let inside = &inside[start.unwrap_or(inside.len())..];
    match inside.first() {
        Some(b'/' | b'-') => true,
        Some(b'u' | b'U') => inside
            .get(..6)
            .is_none_or(|front| front.eq_ignore_ascii_case(b"update")),
        _ => false,
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// What stands before a parenthesis is the name of no function that has an effect.
fn is_harmless_call(before: &[u8], marks: &Marks<'_>) -> bool {
    let end = before.iter().rposition(|b| !matches!(b, b' ' | b'\t'));
    let Some(end) = end else { return true };
    match before[end] {
        // A line's end, which a comment may end in; a comment; a quoted name.
        b'\n' | b'\r' | 0x0b | 0x0c | b'/' => {
            is_harmless_name_before_comment(&before[..=end], marks)
        }
        b'"' => is_harmless_quoted(&before[..end]),
        // `U&"..." UESCAPE '!' (`
        b'\'' => !marks.has_unicode(before.len()),
        byte if !is_word(byte) => true,
        _ => is_harmless_word(&before[..=end]),
    }
}

/// The word at the end is no function's that has an effect.
fn is_harmless_word(before: &[u8]) -> bool {
    let last = before.iter().rev().take(LONGEST + 1);
    let length = last.take_while(|b| is_word(**b)).count();
    let word = &before[before.len() - length..];
    // A string in dollars, or a number, may end in the middle of it.
    let start = word.iter().position(|b| !b.is_ascii_digit());
    let word = &word[start.unwrap_or(length)..];
    !may_be_named(word) && (length <= 1 || memchr::memchr(b'$', word).is_none())
}

/// Blanks of several lines, or a comment, stand before a parenthesis: the word before them counts,
/// unless that is a comment, too.
fn is_harmless_name_before_comment(before: &[u8], marks: &Marks<'_>) -> bool {
    if marks.has_comment(before.len()) {
        return false;
    }
    let end = before.iter().rposition(|b| !is_blank(*b));
    let Some(end) = end else { return true };
    match before[end] {
        b'"' => is_harmless_quoted(&before[..end]),
        b'\'' => !marks.has_unicode(before.len()),
        byte if !is_word(byte) => true,
        _ => is_harmless_word(&before[..=end]),
    }
}

/// A name in double quotes, of which the closing one is taken off.
fn is_harmless_quoted(before: &[u8]) -> bool {
    let Some(open) = before.iter().rposition(|b| *b == b'"') else {
        return false;
    };
    let unicode = open > 0 && before[open - 1] == b'&';
    !unicode && !may_be_named(&before[open + 1..])
}

/// A word that may have an effect wherever it stands.
pub(super) fn may_be_named(word: &[u8]) -> bool {
    let begins = |name: &[u8]| {
        word.get(..name.len())
            .is_some_and(|front| front.eq_ignore_ascii_case(name))
    };
    match word.first().map_or(0, |b| b | 0x20) {
        b'p' => begins(b"pg_"),
        b's' => begins(b"set_") || begins(b"setseed"),
        b'd' => begins(b"dblink"),
        b'c' => begins(b"currval") || runs_a_string(word),
        b'l' => begins(b"lastval"),
        b't' => word.len() <= 9 && begins(b"temp") || runs_a_string(word),
        b'q' => runs_a_string(word),
        _ => false,
    }
}

/// A function that runs a string as SQL.
pub(super) fn runs_a_string(word: &[u8]) -> bool {
    let begins = |name: &[u8]| {
        word.get(..name.len())
            .is_some_and(|front| front.eq_ignore_ascii_case(name))
    };
    match word.first().map_or(0, |b| b | 0x20) {
        b'q' => begins(b"query_to_xml"),
        b't' => begins(b"ts_stat") || begins(b"ts_rewrite"),
        b'c' => begins(b"crosstab"),
        _ => false,
    }
}

/// A function that has an effect is called as if it were an attribute: `(5::bigint).pg_advisory_lock`.
/// What stands behind each dot is looked at.
fn has_attribute(text: &[u8]) -> bool {
    memchr::memchr_iter(b'.', text).any(|at| {
        let behind = &text[at + 1..];
        let start = behind.iter().position(|b| !is_blank(*b));
        let behind = &behind[start.unwrap_or(behind.len())..];
        let behind = behind.strip_prefix(b"\"").unwrap_or(behind);
        match behind.first().map_or(0, |b| b | 0x20) {
            b'p' => {
                let front = behind.get(..6).unwrap_or_default();
                let names: [&[u8]; 5] = [b"pg_adv", b"pg_try", b"pg_bac", b"pg_sta", b"pg_rep"];
                names.iter().any(|name| front.eq_ignore_ascii_case(name))
            }
            // A comment.
            b'/' | b'-' => true,
            b'u' => behind.get(1) == Some(&b'&'),
            b's' | b'd' | b'c' | b't' | b'q' => may_be_named(behind),
            _ => false,
        }
    })
}

/// The word TEMP or TEMPORARY is nowhere in it.
fn has_no_temp(text: &[u8]) -> bool {
    memchr::memchr2_iter(b'p', b'P', text).all(|at| {
        let before = at.checked_sub(3).map(|start| &text[start..at]);
        before.is_none_or(|before| !before.eq_ignore_ascii_case(b"tem"))
    })
}

/// What follows UPDATE may be `pg_settings`.
fn may_update_settings(rest: &[u8]) -> bool {
    let start = rest.iter().position(|b| !is_blank(*b));
    let rest = &rest[start.unwrap_or(rest.len())..];
    let only = rest
        .get(..4)
        .is_some_and(|front| front.eq_ignore_ascii_case(b"only"));
    let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
    let front = rest.get(..2).unwrap_or_default();
    only || front.eq_ignore_ascii_case(b"pg")
        || front.eq_ignore_ascii_case(b"u&")
        || matches!(front.first(), Some(b'/' | b'-') | None)
}
