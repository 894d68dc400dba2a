//! Query texts without the parts that differ from call to call: constants, blanks, comments, case.
//!
//! ```text
//! SELECT * FROM t WHERE id IN (1, 2, 3) AND name = 'x'   -- why
//! select * from t where id in (?, ...) and name = ?
//! ```
//!
//! Constants and parameters become `?`, lists of them `?, ...`. So do the values of settings, which
//! need no quotes (`SET a = secret`, `ALTER ROLE r SET a TO secret`), and the names of channels. The
//! tokens of [`crate::effect`] split the text. Reading stops at a string that can be read in two ways (`'\'`), so that no
//! constant is ever taken for a word.

use crate::limits;
use std::borrow::Cow;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::FixedState;
use hashbrown::hash_table::HashTable;

use crate::Seeded;
use crate::effect::token::{Token, Tokens};

/// The seed of fingerprints, equal in all processes.
const SEED: u64 = 0x686f_7764_6168;

/// A query text without constants.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QueryText {
    /// A hash of the text, equal in all processes. Clients can make texts with equal fingerprints, so
    /// texts are equal only if the texts are, too.
    pub fingerprint: u64,
    /// The text without constants, shortened to about 1 KB.
    pub text: Box<str>,
}

impl QueryText {
    /// The fingerprint in hexadecimal digits.
    pub fn shown(&self) -> String {
        format!("{:016x}", self.fingerprint)
    }

    /// Stands for an unknown text: a portal that was bound long ago, or a function call.
    pub fn unknown() -> QueryText {
        QueryText {
            fingerprint: 0,
            text: "(unknown)".into(),
        }
    }
}

/// The query texts of a worker, each stored once.
#[derive(Debug)]
pub struct Texts {
    known: HashTable<Arc<QueryText>>,
    seeded: Seeded,
    scratch: Vec<u8>,
    purge_at: usize,
    unknown: Arc<QueryText>,
}

impl Texts {
    /// No texts.
    pub fn new(seeded: Seeded) -> Texts {
        Texts {
            known: HashTable::new(),
            seeded,
            scratch: Vec::new(),
            purge_at: limits::QUERY_TEXTS_UNUSED,
            unknown: Arc::new(QueryText::unknown()),
        }
    }

    /// Stands for an unknown text.
    pub fn unknown(&self) -> Arc<QueryText> {
        self.unknown.clone()
    }

    /// The shared copy of a text without its constants.
    pub fn of(&mut self, sql: &[u8]) -> Arc<QueryText> {
        normalise(sql, &mut self.scratch);
        let fingerprint = FixedState::with_seed(SEED).hash_one(&self.scratch[..]);
        let seeded = self.seeded;
        let kept = shortened(&self.scratch);
        let hash = seeded.hash_one(&*kept);
        let same = |text: &Arc<QueryText>| text.fingerprint == fingerprint && *text.text == *kept;
        if let Some(found) = self.known.find(hash, same) {
            return found.clone();
        }
        if self.known.len() >= self.purge_at {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.purge_at = (self.known.len() * 2).max(limits::QUERY_TEXTS_UNUSED);
        }
        let text = Arc::new(QueryText {
            fingerprint,
            text: kept.into(),
        });
        let rehash = |text: &Arc<QueryText>| seeded.hash_one(&*text.text);
        self.known.insert_unique(hash, text.clone(), rehash);
        text
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// True if there are no texts.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

fn shortened(text: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(text);
    if text.len() <= limits::QUERY_TEXT_KEPT {
        return text;
    }
    let end = (0..=limits::QUERY_TEXT_KEPT)
        .rev()
        .find(|at| text.is_char_boundary(*at));
    format!("{} ...", text[..end.unwrap_or(0)].trim_end()).into()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Last<'a> {
    Nothing,
    Word(&'a [u8]),
    Quoted,
    Constant,
    Sign(u8),
}

/// What of the current command becomes `?` besides constants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hidden {
    Nothing,
    /// Names: of channels.
    Names,
    /// The value of a setting, which follows the next SET.
    AfterSet,
    /// The value of a setting, which follows the next `=` or TO.
    AfterSign,
    /// All up to the end of the command.
    Rest,
}

/// Writes a text without its constants.
pub fn normalise(sql: &[u8], to: &mut Vec<u8>) {
    to.clear();
    let end = memchr::memchr(0, &sql[..sql.len().min(limits::QUERY_TEXT_READ + 1)]);
    let whole = end.is_some() || sql.len() <= limits::QUERY_TEXT_READ;
    let sql = &sql[..end.unwrap_or(sql.len()).min(limits::QUERY_TEXT_READ)];
    let mut writer = Writer {
        to,
        last: Last::Nothing,
        before: Last::Nothing,
        hidden: Hidden::Nothing,
    };
    let mut tokens = Tokens::new(sql);
    while let Some(token) = tokens.next() {
        if !whole && tokens.rest().is_empty() {
            // The last token may continue.
            break;
        }
        match token {
            Token::Sign(sign) if writer.hidden == Hidden::Rest && sign != b';' => writer.secret(),
            Token::Word(_) | Token::Quoted(_) | Token::Unicode if writer.hides_names() => {
                writer.secret();
            }
            Token::Word(word) => writer.word(word),
            Token::Quoted(name) => writer.quoted(name),
            Token::Unicode => writer.quoted(b"?"),
            Token::Text { inside, .. } => {
                match writer.hidden {
                    Hidden::Rest => writer.secret(),
                    _ => writer.constant(false),
                }
                if inside.ends_with(b"\\") {
                    // With `standard_conforming_strings = off`, the constant continues.
                    writer.to.extend_from_slice(b" ...");
                    return;
                }
            }
            Token::Sign(digit) if digit.is_ascii_digit() => {
                tokens.pass_word();
                writer.constant(true);
            }
            Token::Sign(b'$') if tokens.rest().first().is_some_and(u8::is_ascii_digit) => {
                tokens.next();
                writer.constant(false);
            }
            Token::Sign(sign) => writer.sign(sign),
        }
    }
    if !whole {
        writer.cut();
    }
    while to.ends_with(b";") {
        to.pop();
    }
}

struct Writer<'a, 'b> {
    to: &'b mut Vec<u8>,
    last: Last<'a>,
    before: Last<'a>,
    hidden: Hidden,
}

impl<'a> Writer<'a, '_> {
    fn word(&mut self, word: &'a [u8]) {
        self.hidden = self.hidden_after(word);
        self.gap();
        let at = self.to.len();
        self.to.extend_from_slice(word);
        self.to[at..].make_ascii_lowercase();
        self.is(Last::Word(word));
    }

    /// What is hidden after a word.
    fn hidden_after(&self, word: &[u8]) -> Hidden {
        let is = |keywords: &[&str]| {
            let mut keywords = keywords.iter();
            keywords.any(|keyword| word.eq_ignore_ascii_case(keyword.as_bytes()))
        };
        let first = matches!(self.last, Last::Nothing | Last::Sign(b';'));
        match self.hidden {
            _ if first && is(&["set"]) => Hidden::AfterSign,
            _ if first && is(&["alter", "create"]) => Hidden::AfterSet,
            _ if first && is(&["listen", "notify", "unlisten"]) => Hidden::Names,
            _ if first => Hidden::Nothing,
            Hidden::AfterSet if is(&["set"]) => Hidden::AfterSign,
            Hidden::AfterSign if is(&["to"]) => Hidden::Rest,
            hidden => hidden,
        }
    }

    fn hides_names(&self) -> bool {
        matches!(self.hidden, Hidden::Names | Hidden::Rest)
            && !matches!(self.last, Last::Sign(b';'))
    }

    /// Writes `?` in place of a token, once for all that stand in a row.
    fn secret(&mut self) {
        if self.last != Last::Constant {
            self.constant(false);
        }
    }

    fn quoted(&mut self, name: &[u8]) {
        self.gap();
        self.to.push(b'"');
        self.to.extend_from_slice(name);
        self.to.push(b'"');
        self.is(Last::Quoted);
    }

    /// Writes a constant or a parameter. A number includes its sign.
    fn constant(&mut self, number: bool) {
        if number && matches!(self.last, Last::Sign(b'-' | b'+')) && self.is_unary() {
            self.to.pop();
            if self.to.ends_with(b" ") {
                self.to.pop();
            }
            self.last = self.before;
        }
        if self.to.ends_with(b"?,") {
            self.to.extend_from_slice(b" ...");
        } else if self.to.ends_with(b"?, ...,") {
            self.to.pop();
        } else {
            self.gap();
            self.to.push(b'?');
        }
        self.is(Last::Constant);
    }

    /// True if the last sign can't be an operator between two values.
    fn is_unary(&self) -> bool {
        matches!(self.before, Last::Sign(sign) if !matches!(sign, b')' | b']'))
    }

    fn sign(&mut self, sign: u8) {
        self.hidden = match (self.hidden, sign) {
            (_, b';') => Hidden::Nothing,
            (Hidden::AfterSign, b'=') => Hidden::Rest,
            (hidden, _) => hidden,
        };
        let joins = match (self.last, sign) {
            (_, b')' | b']' | b',' | b';' | b'.' | b':') | (Last::Nothing, _) => true,
            (Last::Word(word), b'(') => !is_keyword(word),
            (Last::Sign(b',' | b')' | b';'), b'(') => false,
            (Last::Quoted, b'(') | (_, b'[') => true,
            (Last::Sign(b'(' | b'[' | b'.' | b':'), _) => true,
            (Last::Sign(b')' | b']' | b',' | b';'), _) => false,
            (Last::Sign(_), sign) => sign != b'(',
            _ => false,
        };
        if !joins {
            self.to.push(b' ');
        }
        self.to.push(sign);
        if sign == b')' {
            self.join_rows();
        }
        self.is(Last::Sign(sign));
    }

    /// Joins rows, because their number differs: `(?), (?)` becomes `(?), ...`.
    fn join_rows(&mut self) {
        for row in [&b"(?, ...)"[..], b"(?)"] {
            let Some(head) = self.to.strip_suffix(row) else {
                continue;
            };
            let Some(head) = head.strip_suffix(b", ") else {
                return;
            };
            let length = head.len();
            let more = head.strip_suffix(b", ...");
            if more.is_some_and(|first| first.ends_with(row)) {
                self.to.truncate(length);
            } else if head.ends_with(row) {
                self.to.truncate(length);
                self.to.extend_from_slice(b", ...");
            }
            return;
        }
    }

    /// Ends a text that was cut. Wherever a long list was cut, the end is the same.
    fn cut(&mut self) {
        let open = self.to.iter().rposition(|b| matches!(b, b'(' | b')'));
        if let Some(at) = open.filter(|at| self.to[*at] == b'(') {
            let head = self.to[..at].strip_suffix(b", ");
            let of_rows = head.filter(|head| head.ends_with(b")") || head.ends_with(b", ..."));
            let end = of_rows.map_or(self.to.len(), <[u8]>::len);
            self.to.truncate(end);
        }
        while self.to.ends_with(b",") || self.to.ends_with(b" ") {
            self.to.pop();
        }
        if !self.to.ends_with(b", ...") {
            self.to.extend_from_slice(b", ...");
        }
    }

    /// Writes a blank before a word or a constant, if needed.
    fn gap(&mut self) {
        let joins = matches!(
            self.last,
            Last::Nothing | Last::Sign(b'(' | b'[' | b'.' | b':')
        );
        if !joins {
            self.to.push(b' ');
        }
    }

    fn is(&mut self, token: Last<'a>) {
        self.before = self.last;
        self.last = token;
    }
}

/// True for a keyword: a parenthesis after it begins no call.
fn is_keyword(word: &[u8]) -> bool {
    const WORDS: [&[u8]; 22] = [
        b"in",
        b"as",
        b"by",
        b"on",
        b"or",
        b"and",
        b"not",
        b"all",
        b"any",
        b"set",
        b"from",
        b"over",
        b"then",
        b"else",
        b"when",
        b"where",
        b"using",
        b"union",
        b"values",
        b"exists",
        b"select",
        b"returning",
    ];
    let is = |keyword: &&[u8]| word.eq_ignore_ascii_case(keyword);
    word.len() <= 9 && WORDS.iter().any(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(sql: &str) -> String {
        let mut to = Vec::new();
        normalise(sql.as_bytes(), &mut to);
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn constants_blanks_comments_and_case_are_left_out() {
        for (sql, text) in [
            (
                "SELECT  a,b\nFROM T where id=42 AND name = 'it''s';",
                "select a, b from t where id = ? and name = ?",
            ),
            ("select 1 -- c\n/* d /* e */ */ ;", "select ?"),
            (
                "select $1::int, E'a\\'b', B'1', x'ff', U&'\\0041', $$a$$, $t$b$t$ from t",
                "select ?::int, ?, ... from t",
            ),
            (
                "select count(*), t.* from s.t",
                "select count(*), t.* from s.t",
            ),
            ("SELECT \"Name\" FROM \"T\"", "select \"Name\" from \"T\""),
            (
                "select * from t where id in (1, 2, 3)",
                "select * from t where id in (?, ...)",
            ),
            (
                "select * from t where id in ($1,$2)",
                "select * from t where id in (?, ...)",
            ),
            ("insert into t values (1)", "insert into t values (?)"),
            (
                "insert into t(a, b) values (1,'x'),(2,'y'),(3,'z') returning id",
                "insert into t(a, b) values (?, ...), ... returning id",
            ),
            (
                "insert into t values (1),(2),(3)",
                "insert into t values (?), ...",
            ),
            (
                "insert into t values (1, now()), (2, now())",
                "insert into t values (?, now()), (?, now())",
            ),
            ("select a - 1, b-1", "select a - ?, b - ?"),
            (
                "where a=-1 and b in (-1, +2)",
                "where a = ? and b in (?, ...)",
            ),
            ("a->>'k' || b >= 1.5e-3", "a ->> ? || b >= ?"),
            ("select 0x1f, 1_000, 12a", "select ?, ..."),
            ("select arr[1], arr[2:3]", "select arr[?], arr[?:?]"),
            ("", ""),
            (";", ""),
            ("select 'open", "select ?"),
            ("BEGIN; SELECT 1; COMMIT", "begin; select ?; commit"),
        ] {
            assert_eq!(normal(sql), text, "{sql}");
        }
    }

    #[test]
    fn a_constant_is_never_taken_for_words() {
        // With `standard_conforming_strings = off`, the quote after the backslash ends no string.
        let text = normal("select 'it\\'s secret', 'more' from t");
        assert_eq!(text, "select ? ...");
        let sjis = b"select '\x95\\' secret' from t";
        let mut to = Vec::new();
        normalise(sjis, &mut to);
        assert_eq!(to, b"select ? ...");
        for sql in [
            "select 'secret",
            "select $$secret",
            "select E'secret\\'",
            "select 7secret",
        ] {
            assert!(!normal(sql).contains("secret"), "{sql}");
        }
    }

    #[test]
    fn values_of_settings_and_names_of_channels_are_constants() {
        for (sql, text) in [
            ("SET app.key = secret", "set app.key = ?"),
            (
                "set app.key to \"secret\"; select a",
                "set app.key to ?; select a",
            ),
            ("set local a.b = -1, 'secret', secret;", "set local a.b = ?"),
            (
                "set session a=secret;set b=0x1fsecret",
                "set session a = ?; set b = ?",
            ),
            ("set a = U&\"secret\" uescape '!'", "set a = ?"),
            ("set time zone 'secret'", "set time zone ?"),
            (
                "ALTER ROLE r IN DATABASE d SET app.key TO secret, secret",
                "alter role r in database d set app.key to ?",
            ),
            (
                "alter database d set app.key = secret",
                "alter database d set app.key = ?",
            ),
            (
                "alter table t alter c set default 1",
                "alter table t alter c set default ?",
            ),
            ("alter table t rename to u", "alter table t rename to u"),
            (
                "create function f() returns int set app.key = secret as 'x' language sql",
                "create function f() returns int set app.key = ?",
            ),
            ("listen secret", "listen ?"),
            (
                "notify \"secret\", 'secret'; unlisten secret",
                "notify ?, ...; unlisten ?",
            ),
            ("unlisten *", "unlisten *"),
            (
                "update t set a = b where c = d",
                "update t set a = b where c = d",
            ),
            (
                "select a; update t set a = b",
                "select a; update t set a = b",
            ),
            ("set a = 'x\\' secret", "set a = ? ..."),
        ] {
            assert_eq!(normal(sql), text, "{sql}");
        }
    }

    #[test]
    fn texts_with_equal_fingerprints_are_not_equal() {
        let mut texts = Texts::new(crate::seeded(1));
        let one = texts.of(b"select a");
        // As if another text had the same hash.
        let other = Arc::new(QueryText {
            fingerprint: one.fingerprint,
            text: "select b".into(),
        });
        assert_ne!(one, other);
        let hash = texts.seeded.hash_one("select b");
        let rehash = |_: &Arc<QueryText>| hash;
        texts.known.insert_unique(hash, other.clone(), rehash);
        assert!(Arc::ptr_eq(&one, &texts.of(b"select a")));
    }

    #[test]
    fn long_texts_are_cut_alike() {
        let insert = |rows: usize| {
            let rows: Vec<String> = (0..rows).map(|i| format!("({i}, 'name {i}')")).collect();
            normal(&format!("insert into t values {}", rows.join(", ")))
        };
        let text = "insert into t values (?, ...), ...";
        assert_eq!(insert(10), text);
        assert_eq!(insert(1000), text);
        assert_eq!(insert(1001), text);
        let mut texts = Texts::new(crate::seeded(1));
        let long = texts.of("select a_long_name ".repeat(500).as_bytes());
        assert!(long.text.len() <= limits::QUERY_TEXT_KEPT + 4 && long.text.ends_with(" ..."));
    }

    #[test]
    fn texts_are_shared_and_forgotten() {
        let mut texts = Texts::new(crate::seeded(1));
        let one = texts.of(b"select 1\0");
        assert!(Arc::ptr_eq(&one, &texts.of(b"SELECT  2")));
        for i in 0..5000 {
            texts.of(format!("select c{i}").as_bytes());
        }
        assert!(texts.len() <= limits::QUERY_TEXTS_UNUSED && !texts.is_empty());
        assert!(Arc::ptr_eq(&one, &texts.of(b"select 3")));
        assert_eq!(
            one.fingerprint,
            Texts::new(crate::seeded(2)).of(b"select 9").fingerprint
        );
        assert_eq!(one.shown().len(), 16);
    }
}
