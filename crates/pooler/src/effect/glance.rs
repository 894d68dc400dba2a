//! The first look at a text: it shows without tokens that most texts have no effect.

use std::cell::OnceCell;

use super::Kinds;
use super::token::is_word;

/// The longest name of a function with an effect, in bytes.
const LONGEST: usize = 35;

/// Signs that occur in a text, as a set. One search checks sixteen bytes a step for all signs.
#[derive(Clone, Copy)]
pub(super) struct Signs(u8);

impl Signs {
    pub(super) const CALL: u8 = 1;
    pub(super) const SEMICOLON: u8 = 1 << 1;
    pub(super) const NUL: u8 = 1 << 2;
    /// The letters `mp`, as in TEMP.
    pub(super) const TEMP: u8 = 1 << 3;
    pub(super) const DOT: u8 = 1 << 4;
    /// How many bytes a step looks at: sixteen, and the one after them.
    const STEP: usize = 17;

    pub(super) fn of(text: &[u8]) -> Signs {
        let mut seen = [0; Self::STEP - 1];
        let mut rest = text;
        while let Some(step) = rest.first_chunk() {
            Self::look(step, &mut seen);
            rest = &rest[Self::STEP - 1..];
        }
        // Checks the last bytes of the text again, with a blank after them.
        let left = &text[text.len().saturating_sub(Self::STEP - 1)..];
        let mut padded = [b' '; Self::STEP];
        padded[..left.len()].copy_from_slice(left);
        Self::look(&padded, &mut seen);
        Signs(seen.into_iter().fold(0, |all, one| all | one))
    }

    /// Without a branch, so that the compiler makes a few instructions for all sixteen bytes.
    fn look(step: &[u8; Self::STEP], seen: &mut [u8; Self::STEP - 1]) {
        let sign = |is: bool, sign: u8| if is { sign } else { 0 };
        for (at, seen) in seen.iter_mut().enumerate() {
            let (byte, after) = (step[at], step[at + 1]);
            *seen |= sign(byte == b'(', Self::CALL);
            *seen |= sign(byte == b';', Self::SEMICOLON);
            *seen |= sign(byte == 0, Self::NUL);
            *seen |= sign(byte == b'.', Self::DOT);
            *seen |= sign(byte | 0x20 == b'm', Self::TEMP) & sign(after | 0x20 == b'p', Self::TEMP);
        }
    }

    pub(super) fn has(self, sign: u8) -> bool {
        self.0 & sign != 0
    }
}

/// The part of a text that PostgreSQL reads, up to the first zero byte, after [`trim`].
pub(super) fn front(text: &[u8], signs: Signs) -> &[u8] {
    let end = match signs.has(Signs::NUL) {
        true => memchr::memchr(0, text),
        false => None,
    };
    trim(&text[..end.unwrap_or(text.len())])
}

/// The effects of a text, if they are clear without tokens; otherwise `None`. `signs` has at least
/// the signs of the text.
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

/// True for a text that certainly has no effect. False means unknown.
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

/// Removes blanks and semicolons from the end of a text, and blanks and comments from its
/// beginning.
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

/// The length of the comment that a text begins with, unless the comment is nested.
fn comment(text: &[u8]) -> Option<usize> {
    let inside = text.strip_prefix(b"/*")?;
    let end = memchr::memmem::find(inside, b"*/")?;
    // `/*/*/` opens two comments.
    let nested = memchr::memmem::find(&inside[..end + 1], b"/*").is_some();
    (!nested).then_some(end + 4)
}

/// True if the text is one command, without a semicolon. (The last ones are trimmed.)
fn is_single(text: &[u8]) -> bool {
    memchr::memchr(b';', text).is_none()
}

/// True if the text calls no function with an effect, judging by the word before each parenthesis.
fn has_no_call(text: &[u8]) -> bool {
    let marks = Marks::of(text);
    memchr::memchr_iter(b'(', text)
        .all(|at| is_harmless_call(&text[..at], &marks) && !begins_update(&text[at + 1..]))
}

/// The first places in a text that may hide names; each is searched for once, and only if needed.
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

    /// True if the first `end` bytes may contain a comment.
    fn has_comment(&self, end: usize) -> bool {
        let first = *self.comment.get_or_init(|| {
            let line = memchr::memmem::find(self.text, b"--");
            let front = &self.text[..line.unwrap_or(self.text.len())];
            let block = memchr::memmem::find(front, b"/*");
            block.or(line).unwrap_or(self.text.len())
        });
        first + 2 <= end
    }

    /// True if the first `end` bytes may contain a `U&"..."`.
    fn has_unicode(&self, end: usize) -> bool {
        let first = *self.unicode.get_or_init(|| {
            let first = memchr::memmem::find(self.text, b"&\"");
            first.unwrap_or(self.text.len())
        });
        first + 2 <= end
    }
}

/// True for `UPDATE` after a parenthesis, as in `WITH changed AS (UPDATE pg_settings ...`, and for
/// a comment, which may hide an UPDATE.
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

/// True if the text before a parenthesis does not end in a function with an effect.
fn is_harmless_call(before: &[u8], marks: &Marks<'_>) -> bool {
    let end = before.iter().rposition(|b| !matches!(b, b' ' | b'\t'));
    let Some(end) = end else { return true };
    match before[end] {
        // The end of a line, perhaps with a `--` comment; or the end of a `/*` comment.
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

/// True if the last word is no function with an effect.
fn is_harmless_word(before: &[u8]) -> bool {
    let last = before.iter().rev().take(LONGEST + 1);
    let length = last.take_while(|b| is_word(**b)).count();
    let word = &before[before.len() - length..];
    // A dollar-quoted string or a number may end in the middle of the word.
    let start = word.iter().position(|b| !b.is_ascii_digit());
    let word = &word[start.unwrap_or(length)..];
    !may_be_named(word) && (length <= 1 || memchr::memchr(b'$', word).is_none())
}

/// Line ends or a comment precede a parenthesis. Judges the word before them, and returns false if
/// there is any comment.
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

/// True if a double-quoted name is no function with an effect. The closing quote is cut off.
fn is_harmless_quoted(before: &[u8]) -> bool {
    let Some(open) = before.iter().rposition(|b| *b == b'"') else {
        return false;
    };
    let unicode = open > 0 && before[open - 1] == b'&';
    !unicode && !may_be_named(&before[open + 1..])
}

/// True for a word that may have an effect, depending on its context.
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

/// True for a function that runs a string as SQL.
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

/// True if a function with an effect may be called like an attribute:
/// `(5::bigint).pg_advisory_lock`. Judges the word after each dot.
fn has_attribute(text: &[u8]) -> bool {
    memchr::memchr_iter(b'.', text).any(|at| {
        let after = &text[at + 1..];
        let start = after.iter().position(|b| !is_blank(*b));
        let after = &after[start.unwrap_or(after.len())..];
        let after = after.strip_prefix(b"\"").unwrap_or(after);
        match after.first().map_or(0, |b| b | 0x20) {
            b'p' => {
                let front = after.get(..6).unwrap_or_default();
                let names: [&[u8]; 5] = [b"pg_adv", b"pg_try", b"pg_bac", b"pg_sta", b"pg_rep"];
                names.iter().any(|name| front.eq_ignore_ascii_case(name))
            }
            // A comment.
            b'/' | b'-' => true,
            b'u' => after.get(1) == Some(&b'&'),
            b's' | b'd' | b'c' | b't' | b'q' => may_be_named(after),
            _ => false,
        }
    })
}

/// True if TEMP and TEMPORARY do not occur in the text.
fn has_no_temp(text: &[u8]) -> bool {
    memchr::memchr2_iter(b'p', b'P', text).all(|at| {
        let before = at.checked_sub(3).map(|start| &text[start..at]);
        before.is_none_or(|before| !before.eq_ignore_ascii_case(b"tem"))
    })
}

/// True if `pg_settings` may follow UPDATE.
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
