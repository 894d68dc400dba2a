//! The first look at a text. Most texts have no effect, which shows without tokens: a single
//! reading or writing command can only act on its session through a few functions, `INTO`, or
//! `UPDATE pg_settings`, and none of these words stands anywhere in the text, not even in strings.
//!
//! The look needs no rules for quotes, comments and encodings: a word that is not in the text can't
//! act.

use std::sync::LazyLock;

use aho_corasick::packed;

use super::kinds::Kinds;
use super::token::is_word;

/// The words of the functions that act on a session, and of identifiers with escapes. A single
/// SELECT, INSERT, UPDATE, DELETE or VALUES without any of them calls none of the functions.
static CALLS: LazyLock<Words> = LazyLock::new(|| {
    Words::new(&[
        "set_config",
        "setseed",
        "set_limit",
        "set_user",
        "set_session_auth",
        "pg_settings",
        "advisory",
        "currval",
        "lastval",
        "pg_notify",
        "pg_listening",
        "dblink_connect",
        "pg_replication_origin",
        "replication_slot",
        "pg_backup_start",
        "pg_start_backup",
        // Functions that run a string as SQL.
        "query_to_xml",
        "ts_stat",
        "ts_rewrite",
        "crosstab",
        "connectby",
        "xpath_table",
        "u&\"",
    ])
});

/// The words of everything that acts on a session, for a text that runs another text, such as the
/// body of a DO.
static ACTS: LazyLock<Words> = LazyLock::new(|| {
    Words::new(&[
        "set",
        "create",
        "temp",
        "execute",
        "prepare",
        "allocate",
        "discard",
        "listen",
        "load",
        "lock",
        "hold",
        "dblink",
        "currval",
        "lastval",
        "xml",
        "ts_stat",
        "ts_rewrite",
        "crosstab",
        "connectby",
        "xpath",
        "origin",
        "slot",
        "backup",
        "import",
        "u&",
    ])
});

static NOTIFIES: LazyLock<Words> = LazyLock::new(|| Words::new(&["notify"]));

/// Words of what DISCARD ALL does not remove.
const LASTING: [&[u8]; 9] = [
    b"load",
    b"setseed",
    b"seed",
    b"dblink_connect",
    b"dblink_connect_u",
    b"set_user",
    b"pg_replication_origin_session_setup",
    b"pg_backup_start",
    b"pg_start_backup",
];

/// Parts of these words, for a quick look.
static STAYS: LazyLock<Words> =
    LazyLock::new(|| Words::new(&["load", "seed", "dblink", "set_user", "origin", "backup"]));

/// The functions that act, and those that run a string as SQL.
pub(super) fn has_calls(text: &[u8]) -> bool {
    CALLS.stand_in(text)
}

/// Any word that may act, for text that runs as SQL.
pub(super) fn has_acts(text: &[u8]) -> bool {
    ACTS.stand_in(text)
}

/// Whether a text that runs may notify.
pub(super) fn has_notify(text: &[u8]) -> bool {
    NOTIFIES.stand_in(text)
}

/// A word of what DISCARD ALL does not remove.
pub(super) fn has_lasting(text: &[u8]) -> bool {
    let words = text.split(|byte| !is_word(*byte));
    STAYS.stand_in(text) && { words }
        .any(|word| LASTING.iter().any(|one| word.eq_ignore_ascii_case(one)))
}

/// Words to look for, in any case.
struct Words {
    /// In lower case, as [`lower`] makes them.
    words: Vec<Vec<u8>>,
    longest: usize,
    /// Looks for all words at once. `None` on processors without the instructions.
    searcher: Option<packed::Searcher>,
}

impl Words {
    fn new(words: &[&str]) -> Words {
        let words: Vec<Vec<u8>> = words
            .iter()
            .map(|word| word.bytes().map(lower).collect())
            .collect();
        Words {
            longest: words.iter().map(Vec::len).max().unwrap_or(0),
            searcher: packed::Searcher::new(&words),
            words,
        }
    }

    /// Whether any word stands in the text, perhaps as a part of another word.
    fn stand_in(&self, text: &[u8]) -> bool {
        const PORTION: usize = 512;
        let mut lowered = [0; PORTION];
        let mut at = 0;
        loop {
            let portion = &text[at..text.len().min(at + PORTION)];
            for (to, from) in lowered.iter_mut().zip(portion) {
                *to = lower(*from);
            }
            let portion = &lowered[..portion.len()];
            let found = match &self.searcher {
                Some(searcher) => searcher.find(portion).is_some(),
                None => self.words.iter().any(|word| contains(portion, word)),
            };
            if found || at + PORTION >= text.len() {
                return found;
            }
            // A word may begin in this portion and end in the next one.
            at += PORTION - self.longest + 1;
        }
    }
}

/// Makes letters lower case. Maps a few other characters to one another, in words and texts alike.
fn lower(byte: u8) -> u8 {
    byte | 0x20
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(text, word).is_some()
}

/// What the first look tells about a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FirstLook {
    /// Exactly these kinds of effects.
    Only(Kinds),
    /// Its tokens must be read.
    Unclear,
}

/// The first look at a text. `text` is trimmed.
pub(super) fn look(text: &[u8]) -> FirstLook {
    let is = |command: &[u8]| text.eq_ignore_ascii_case(command);
    match text.first().map_or(0, |byte| byte | 0x20) {
        b'b' if is(b"begin") => FirstLook::Only(Kinds::BEGINS),
        b'c' if is(b"commit") => FirstLook::Only(Kinds::ENDS),
        b'r' if is(b"rollback") => FirstLook::Only(Kinds::ENDS),
        b'e' if is(b"end") => FirstLook::Only(Kinds::ENDS),
        _ if is_plain(text) => FirstLook::Only(Kinds::NOTHING),
        _ => FirstLook::Unclear,
    }
}

/// True for a text that certainly has no effect. False means unknown.
fn is_plain(text: &[u8]) -> bool {
    let Some((command, rest)) = Reading::begins(text) else {
        return text.is_empty();
    };
    let signs = Signs::of(rest);
    let acts = match command {
        Reading::Select => signs.has(Signs::TO) && has_into(rest),
        Reading::Update => may_update_settings(rest),
        Reading::Other => false,
    };
    let acts = acts || signs.has(Signs::SEMICOLON);
    !acts && (!signs.has(Signs::CALL) || !has_calls(rest))
}

/// A command that reads or writes rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    Select,
    Update,
    Other,
}

impl Reading {
    /// The command that a trimmed text begins with, and the text after the first word.
    fn begins(text: &[u8]) -> Option<(Reading, &[u8])> {
        let (word, rest) = text.split_first_chunk::<6>()?;
        let word = word.map(|byte| byte | 0x20);
        let (command, rest) = match &word {
            b"select" => (Reading::Select, rest),
            b"insert" | b"delete" | b"values" => (Reading::Other, rest),
            b"update" => (Reading::Update, rest),
            // `WITH x AS (...) SELECT`
            [b'w', b'i', b't', b'h', ..] => (Reading::Select, &text[4..]),
            _ => return None,
        };
        let ends = rest.first().is_none_or(|byte| !is_word(*byte));
        ends.then_some((command, rest))
    }
}

/// True if `pg_settings` may follow UPDATE.
fn may_update_settings(rest: &[u8]) -> bool {
    let front = &rest[..rest.len().min(64)];
    let start = front.iter().position(|byte| !is_blank(*byte));
    let table = &front[start.unwrap_or(front.len())..];
    match table.first().map_or(0, |byte| byte | 0x20) {
        // `pg_settings`, `pg_catalog.pg_settings`, `ONLY (pg_settings)`, `U&"..."`, `"a"."b"`, a
        // comment.
        b'p' | b'o' | b'u' | b'"' | b'/' | b'-' | 0 => has_calls(rest),
        _ => false,
    }
}

/// Removes blanks and semicolons from the end of a text, and blanks and comments from its
/// beginning.
pub(super) fn trim(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|b| !is_blank(*b) && *b != b';');
    trim_front(&text[..end.map_or(0, |end| end + 1)])
}

fn trim_front(mut text: &[u8]) -> &[u8] {
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

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Signs that occur in a text, as a set. One search checks sixteen bytes a step for all signs.
#[derive(Clone, Copy)]
struct Signs(u8);

impl Signs {
    /// Characters without which no function is called: `(`, `.` for calls that look like an
    /// attribute (`(5::bigint).pg_advisory_lock`), `&` for names that hide a call (`U&"..."`).
    const CALL: u8 = 1;
    const SEMICOLON: u8 = 1 << 1;
    /// The letters `to`, as in INTO.
    const TO: u8 = 1 << 2;
    /// How many bytes a step looks at: sixteen, and the one after them.
    const STEP: usize = 17;

    fn of(text: &[u8]) -> Signs {
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
            *seen |= sign(byte == b'.', Self::CALL);
            *seen |= sign(byte == b'&', Self::CALL);
            *seen |= sign(byte == b';', Self::SEMICOLON);
            *seen |= sign(byte | 0x20 == b't', Self::TO) & sign(after | 0x20 == b'o', Self::TO);
        }
    }

    fn has(self, sign: u8) -> bool {
        self.0 & sign != 0
    }
}

/// True if the letters `into` stand anywhere in a text.
fn has_into(text: &[u8]) -> bool {
    memchr::memchr2_iter(b'o', b'O', text).any(|at| {
        let before = at.checked_sub(3).map(|start| &text[start..at]);
        before.is_some_and(|before| before.eq_ignore_ascii_case(b"int"))
    })
}

/// The look at a text that is too long to be held: it comes in pieces, cut anywhere. Whatever was
/// seen in any piece counts, in any order.
#[derive(Clone, Debug, Default)]
pub struct LongText {
    /// The command; `None` before the first piece, and for a text that is in doubt anyway.
    command: Option<Reading>,
    begun: bool,
    /// The end of what came so far: a word may go on in the next piece.
    end: Vec<u8>,
    /// A semicolon came.
    over: bool,
    /// Something came behind the semicolon.
    goes_on: bool,
    /// There may be a call, or the name of a view.
    calls: bool,
    /// A word of [`CALLS`] came.
    words: bool,
    into: bool,
}

impl LongText {
    /// Reads one more piece. The first one is as long as a usual text.
    pub fn read(&mut self, piece: &[u8]) {
        let piece = piece.strip_suffix(b"\0").unwrap_or(piece);
        if !std::mem::replace(&mut self.begun, true) {
            self.command = Reading::begins(trim_front(piece)).map(|(command, _)| command);
            // The name of the table may come later.
            self.calls = self.command == Some(Reading::Update);
        }
        if self.command.is_none() {
            return;
        }
        let joined = [&self.end[..], piece].concat();
        self.calls |= Signs::of(&joined).has(Signs::CALL);
        self.words |= has_calls(&joined);
        self.into |= has_into(&joined);
        let semicolon = memchr::memchr(b';', piece);
        let behind = match (self.over, semicolon) {
            (true, _) => piece,
            (false, Some(at)) => &piece[at..],
            (false, None) => b"",
        };
        self.over |= semicolon.is_some();
        self.goes_on |= behind.iter().any(|b| !is_blank(*b) && *b != b';');
        // The longest word is shorter.
        let keep = joined.len().min(32);
        self.end = joined[joined.len() - keep..].to_vec();
    }

    /// Nobody has seen where the text begins.
    pub fn doubt(&mut self) {
        (self.begun, self.command) = (true, None);
    }

    /// True if the text may have any effect.
    pub fn is_doubtful(&self) -> bool {
        let creates = self.command == Some(Reading::Select) && self.into;
        self.command.is_none() || self.goes_on || creates || self.calls && self.words
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_found_wherever_they_stand() {
        for word in [
            "set_config",
            "SET_Config",
            "xpg_advisory_lockx",
            "U&\"",
            "Currval",
        ] {
            for before in [0, 1, 15, 16, 17, 500, 507, 512, 3000] {
                for after in [0, 1, 20, 600] {
                    let text = ["'".repeat(before), word.to_string(), " ".repeat(after)].concat();
                    assert!(has_calls(text.as_bytes()), "{word} {before} {after}");
                }
            }
        }
        for text in [
            "",
            "set",
            "setconfig",
            "u&'a'",
            "lock",
            &"set_confi ".repeat(200),
        ] {
            assert!(!has_calls(text.as_bytes()), "{text}");
        }
        let mut slow = Words::new(&["advisory"]);
        slow.searcher = None;
        assert!(slow.stand_in(b"select PG_ADVISORY_LOCK(1)") && !slow.stand_in(b"select 1"));
    }

    #[test]
    fn what_the_first_look_tells() {
        let tells = |text: &str| look(trim(text.as_bytes()));
        for (text, kinds) in [
            ("", Kinds::NOTHING),
            (";", Kinds::NOTHING),
            ("BEGIN", Kinds::BEGINS),
            ("commit", Kinds::ENDS),
            ("ROLLBACK; ", Kinds::ENDS),
            (" end ;", Kinds::ENDS),
            ("select 1", Kinds::NOTHING),
            (
                "SELECT abalance FROM pgbench_accounts WHERE aid = 1;",
                Kinds::NOTHING,
            ),
            ("/* a */ /*b*/ select f(1)", Kinds::NOTHING),
            ("/**//***/ COMMIT", Kinds::ENDS),
            (
                "select count(*), max (x) from t where a in (1, 2)",
                Kinds::NOTHING,
            ),
            (
                "insert into \"Users\" (\"id\", \"temp\") values (1, 'set work_mem')",
                Kinds::NOTHING,
            ),
            ("UPDATE t SET a = a + 1 WHERE b = 'x'", Kinds::NOTHING),
            ("update \"public\".\"t\" set a = f(1)", Kinds::NOTHING),
            ("with a as (select 1) select * from a", Kinds::NOTHING),
            ("select temperature, template from t", Kinds::NOTHING),
            (
                "select * from c where d = '(it''s) set, listen, prepare'",
                Kinds::NOTHING,
            ),
        ] {
            assert_eq!(tells(text), FirstLook::Only(kinds), "{text}");
        }
        for text in [
            "/*/*/ set a = 1 */ */ set b = 1",
            "/*/*/*/*/ set b = 1",
            "set a = 1",
            "selects",
            "select 1; set a = 1",
            "select 1 into t",
            "select 1INTO/**/t",
            "with a as (insert into t values (1)) select 1",
            "with a as (update pg_settings set setting = '1') select 1",
            "update pg_settings set setting = '1'",
            "update only (pg_catalog.pg_settings) set setting = '1'",
            "update U&\"pg!005fsettings\" uescape '!' set setting = '1'",
            "select set_config('a', 'b', false)",
            "select 'set_config'::text, f(1)",
            "select (5::bigint).pg_advisory_lock",
            "select U&\"set!005fconfig\"",
        ] {
            assert_eq!(tells(text), FirstLook::Unclear, "{text}");
        }
    }

    fn long(text: &str, size: usize) -> bool {
        let mut long = LongText::default();
        let (front, rest) = text.as_bytes().split_at(text.len().min(200));
        long.read(front);
        rest.chunks(size).for_each(|piece| long.read(piece));
        long.is_doubtful()
    }

    #[test]
    fn long_texts() {
        let rows = "(1, 'It''s &nbsp, set up, \"listen\" -- /*'),\n".repeat(50);
        for size in [1, 7, 100, 65536] {
            for text in [
                format!("insert into t values {rows} (1)"),
                format!("/* a */ insert into t values {rows} (1);; \n"),
                format!("update t set a = '{rows}' where b = f(1)"),
            ] {
                assert!(!long(&text, size), "{size} {}", &text[..60]);
            }
            for text in [
                format!("insert into t values {rows} (1); set a = 1"),
                format!("insert into t values {rows} (set_config('a', 'b', false))"),
                format!("select '{rows}' into t"),
                format!("do $$ {rows} $$"),
                format!("/* {rows} */ insert into t values {rows}"),
                format!("insert into t values ('{}');set role x", "x".repeat(177)),
                format!("select set_config {}('role', 'x', false)", " ".repeat(300)),
                format!("update {} pg_settings set setting = '1'", " ".repeat(300)),
            ] {
                assert!(long(&text, size), "{size} {}", &text[..60]);
            }
        }
        assert!(LongText::default().is_doubtful());
    }

    proptest! {
        #[test]
        fn signs_are_found_wherever_they_stand(text in "[a;(&intoINTO.]{0,60}") {
            let bytes = text.as_bytes();
            let signs = Signs::of(bytes);
            let call = bytes.iter().any(|byte| b"(&.".contains(byte));
            prop_assert_eq!(signs.has(Signs::CALL), call, "{:?}", text);
            prop_assert_eq!(signs.has(Signs::SEMICOLON), bytes.contains(&b';'), "{:?}", text);
            let to = text.to_lowercase().contains("to");
            prop_assert_eq!(signs.has(Signs::TO), to, "{:?}", text);
            let into = text.to_lowercase().contains("into");
            prop_assert_eq!(has_into(bytes), into, "{:?}", text);
        }
    }
}
