//! Prepared statements: shared texts, the names servers know them by, and what a client named.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use hashbrown::hash_table::HashTable;
use howdah_wire::frame::cstr;
use sha2::{Digest, Sha256};
use std::hash::BuildHasher;

use crate::Seeded;

/// How our names on servers begin.
pub const PREFIX: &[u8] = b"howdah_";

/// A statement on a server that is there only to be deallocated, or found to exist, in place of a
/// client's.
pub const VOID: &[u8] = b"howdah_void";

/// The longest Parse that is held to be remembered, in bytes. PostgreSQL's own limit is 1 GB.
pub const PARSE_MAX: u32 = 64 << 20;

/// What running a statement makes clients forget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Forgets {
    /// Nothing.
    Nothing,
    /// `DEALLOCATE name`.
    Name(Box<[u8]>),
    /// `DEALLOCATE ALL` or `DISCARD ALL`.
    All,
}

/// A statement's text and parameter types, once per worker however many clients have it.
#[derive(Debug)]
pub struct Statement {
    /// Text (zero-terminated) and parameter types, as in a Parse.
    pub definition: Box<[u8]>,
    /// Settings under which the text was parsed, as a hash of [`crate::params::Params::meaning`].
    pub meaning: u64,
    /// What running it forgets.
    pub forgets: Forgets,
    key: OnceLock<u128>,
}

impl Statement {
    /// 128 bits of SHA-256 over text, types and meaning: every worker finds the same.
    pub fn key(&self) -> u128 {
        *self.key.get_or_init(|| {
            let mut hash = Sha256::new();
            hash.update(self.meaning.to_be_bytes());
            hash.update(&self.definition);
            let digest = hash.finalize();
            let (front, _) = digest.split_first_chunk::<16>().expect("32 bytes");
            u128::from_be_bytes(*front)
        })
    }

    /// The same statement, though perhaps another worker's copy.
    pub fn same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other)
            || (self.meaning == other.meaning && self.definition == other.definition)
    }
}

/// The name of a key on servers.
pub fn server_name(key: u128) -> [u8; 39] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut name = [0; 39];
    name[..7].copy_from_slice(PREFIX);
    for (i, byte) in key.to_be_bytes().into_iter().enumerate() {
        name[7 + 2 * i] = HEX[usize::from(byte >> 4)];
        name[8 + 2 * i] = HEX[usize::from(byte & 15)];
    }
    name
}

/// All statements of a worker.
#[derive(Debug)]
pub struct Interner {
    statements: HashTable<Arc<Statement>>,
    seeded: Seeded,
    purge_at: usize,
}

impl Interner {
    /// Empty.
    pub fn new(seeded: Seeded) -> Self {
        Interner {
            statements: HashTable::new(),
            seeded,
            purge_at: 1024,
        }
    }

    fn hash(seeded: &Seeded, meaning: u64, definition: &[u8]) -> u64 {
        seeded.hash_one((meaning, definition))
    }

    /// The shared copy of a statement.
    pub fn intern(&mut self, meaning: u64, definition: &[u8]) -> Arc<Statement> {
        let hash = Self::hash(&self.seeded, meaning, definition);
        let found = self.statements.find(hash, |s| {
            s.meaning == meaning && *s.definition == *definition
        });
        if let Some(found) = found {
            return found.clone();
        }
        if self.statements.len() >= self.purge_at {
            // What nobody but this table has is forgotten; done seldom enough to cost nothing.
            self.statements.retain(|s| Arc::strong_count(s) > 1);
            self.purge_at = (self.statements.len() * 2).max(1024);
        }
        let text = cstr(definition).map_or(&[][..], |(text, _)| text);
        let statement = Arc::new(Statement {
            definition: definition.into(),
            meaning,
            forgets: forgets(text),
            key: OnceLock::new(),
        });
        let seeded = &self.seeded;
        self.statements.insert_unique(hash, statement.clone(), |s| {
            Self::hash(seeded, s.meaning, &s.definition)
        });
        statement
    }

    /// How many are known, those about to be purged included.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// True if none is known.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }
}

/// What a text, if it is one statement, makes clients forget.
pub fn forgets(text: &[u8]) -> Forgets {
    let mut words = Words { rest: text };
    let all = |word: &Option<Word<'_>>| matches!(word, Some(Word::Bare(w)) if w.eq_ignore_ascii_case(b"all"));
    let Some(Word::Bare(first)) = words.next() else {
        return Forgets::Nothing;
    };
    if first.eq_ignore_ascii_case(b"discard") {
        return if all(&words.next()) {
            Forgets::All
        } else {
            Forgets::Nothing
        };
    }
    if !first.eq_ignore_ascii_case(b"deallocate") {
        return Forgets::Nothing;
    }
    let mut word = words.next();
    if matches!(word, Some(Word::Bare(w)) if w.eq_ignore_ascii_case(b"prepare"))
        && let Some(after) = words.clone().next()
        && !matches!(after, Word::Other)
    {
        word = Some(after);
        words.next();
    }
    if all(&word) {
        return Forgets::All;
    }
    let name: Box<[u8]> = match word {
        Some(Word::Bare(name)) => name.to_ascii_lowercase().into(),
        Some(Word::Quoted(name)) => name.into(),
        _ => return Forgets::Nothing,
    };
    if words.ends() {
        Forgets::Name(name)
    } else {
        Forgets::Nothing
    }
}

/// The first words of an SQL text, comments skipped.
#[derive(Clone)]
struct Words<'a> {
    rest: &'a [u8],
}

enum Word<'a> {
    /// An identifier or keyword.
    Bare(&'a [u8]),
    /// A quoted identifier, unquoted.
    Quoted(Vec<u8>),
    /// Anything else.
    Other,
}

impl<'a> Words<'a> {
    /// Skips blanks and comments.
    fn skip(&mut self) {
        loop {
            match self.rest {
                [b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, rest @ ..] => self.rest = rest,
                [b'-', b'-', rest @ ..] => {
                    let end = rest.iter().position(|b| matches!(b, b'\n' | b'\r'));
                    self.rest = &rest[end.unwrap_or(rest.len())..];
                }
                [b'/', b'*', rest @ ..] => self.rest = after_comment(rest),
                _ => return,
            }
        }
    }

    fn next(&mut self) -> Option<Word<'a>> {
        self.skip();
        let rest = self.rest;
        let first = *rest.first()?;
        if first == b'"' {
            return self.quoted();
        }
        let bare = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$') || *b >= 0x80;
        let end = rest.iter().position(|b| !bare(b)).unwrap_or(rest.len());
        if end == 0 || first.is_ascii_digit() || first == b'$' {
            return Some(Word::Other);
        }
        self.rest = &rest[end..];
        Some(Word::Bare(&rest[..end]))
    }

    fn quoted(&mut self) -> Option<Word<'a>> {
        let mut name = Vec::new();
        let mut at = 1;
        loop {
            match (self.rest.get(at)?, self.rest.get(at + 1)) {
                (b'"', Some(b'"')) => {
                    name.push(b'"');
                    at += 2;
                }
                (b'"', _) => {
                    self.rest = &self.rest[at + 1..];
                    return Some(Word::Quoted(name));
                }
                (&byte, _) => {
                    name.push(byte);
                    at += 1;
                }
            }
        }
    }

    /// Nothing follows but blanks, comments and semicolons.
    fn ends(&mut self) -> bool {
        loop {
            self.skip();
            match self.rest {
                [] => return true,
                [b';', rest @ ..] => self.rest = rest,
                _ => return false,
            }
        }
    }
}

/// What follows a comment, comments inside it skipped; the argument begins behind its `/*`.
fn after_comment(mut rest: &[u8]) -> &[u8] {
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

/// What a client named, by its own names.
pub type Names = HashMap<Box<[u8]>, Arc<Statement>, Seeded>;

/// How sure it is that a server has a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// PostgreSQL has confirmed it.
    Sure,
    /// A Parse of it was sent in this group of the link, not confirmed yet.
    Coming(u32),
    /// A Close of it was sent in this group of the link, not confirmed yet.
    Going(u32),
}

#[derive(Debug)]
struct SetEntry {
    statement: Arc<Statement>,
    held: Held,
    used: u64,
}

/// The statements a server has, under which names.
#[derive(Debug)]
pub struct ServerSet {
    entries: HashMap<u128, SetEntry, Seeded>,
    clock: u64,
}

impl ServerSet {
    /// Empty.
    pub fn new(seeded: Seeded) -> Self {
        ServerSet {
            entries: HashMap::with_hasher(seeded),
            clock: 0,
        }
    }

    /// The key under which a statement is, or would go, and how sure it is that it is there.
    /// Another statement under the wanted key is passed over: the next key is tried.
    pub fn find(&mut self, statement: &Arc<Statement>) -> (u128, Option<Held>) {
        self.clock += 1;
        let mut key = statement.key();
        loop {
            match self.entries.get_mut(&key) {
                None => return (key, None),
                Some(entry) if entry.statement.same(statement) => {
                    entry.used = self.clock;
                    return (key, Some(entry.held));
                }
                Some(_) => key = key.wrapping_add(1),
            }
        }
    }

    /// Notes what was sent or confirmed about a key.
    pub fn mark(&mut self, key: u128, statement: &Arc<Statement>, held: Held) {
        self.clock += 1;
        let entry = SetEntry {
            statement: statement.clone(),
            held,
            used: self.clock,
        };
        self.entries.insert(key, entry);
    }

    /// The statement under a key is there for sure, if it is still known of.
    pub fn confirm(&mut self, key: u128) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.held = Held::Sure;
        }
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: u128) {
        self.entries.remove(&key);
    }

    /// PostgreSQL dropped all it had; what was sent after that is still coming.
    pub fn clear_sure(&mut self) {
        self.entries
            .retain(|_, entry| matches!(entry.held, Held::Coming(_)));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The confirmed statement that was not used for longest.
    pub fn oldest(&self) -> Option<u128> {
        let sure = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.held == Held::Sure);
        sure.min_by_key(|(_, entry)| entry.used)
            .map(|(key, _)| *key)
    }

    /// Takes all out, for the way to another worker.
    pub fn drain(&mut self) -> Vec<(u128, Arc<Statement>)> {
        self.entries
            .drain()
            .map(|(key, entry)| (key, entry.statement))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded;

    fn name(name: &str) -> Forgets {
        Forgets::Name(name.as_bytes().into())
    }

    #[test]
    fn texts_that_forget() {
        for (text, expected) in [
            ("select 1", Forgets::Nothing),
            ("", Forgets::Nothing),
            ("deallocate", Forgets::Nothing),
            ("DEALLOCATE all", Forgets::All),
            (
                " /* a /* b */ */ -- c\n deallocate prepare ALL ;",
                Forgets::All,
            ),
            ("discard all", Forgets::All),
            ("discard plans", Forgets::Nothing),
            ("DEALLOCATE Foo", name("foo")),
            ("DEALLOCATE PREPARE \"Fo\"\"o\";;", name("Fo\"o")),
            ("DEALLOCATE prepare", name("prepare")),
            ("DEALLOCATE prepare;", name("prepare")),
            ("DEALLOCATE a; select 1", Forgets::Nothing),
            ("DEALLOCATE 1", Forgets::Nothing),
            ("DEALLOCATE \"open", Forgets::Nothing),
            ("/* never closed", Forgets::Nothing),
        ] {
            assert_eq!(forgets(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn equal_texts_are_one_statement() {
        let mut interner = Interner::new(seeded(1));
        let a = interner.intern(0, b"select 1\0\0\0");
        let b = interner.intern(0, b"select 1\0\0\0");
        let c = interner.intern(1, b"select 1\0\0\0");
        assert!(Arc::ptr_eq(&a, &b));
        assert!(!a.same(&c));
        assert_ne!(a.key(), c.key());
        assert_eq!(server_name(a.key()).len(), 39);
    }

    #[test]
    fn unused_texts_are_forgotten() {
        let mut interner = Interner::new(seeded(1));
        let kept = interner.intern(0, b"kept\0\0\0");
        for i in 0..5000 {
            interner.intern(0, format!("select {i}\0\0\0").as_bytes());
        }
        assert!(interner.len() < 1100);
        assert!(Arc::ptr_eq(&kept, &interner.intern(0, b"kept\0\0\0")));
    }

    #[test]
    fn two_statements_with_one_key() {
        let make = |text: &[u8], key: u128| {
            let statement = Statement {
                definition: text.into(),
                meaning: 0,
                forgets: Forgets::Nothing,
                key: OnceLock::new(),
            };
            statement.key.set(key).unwrap();
            Arc::new(statement)
        };
        let (a, b) = (make(b"a", 7), make(b"b", 7));
        let mut set = ServerSet::new(seeded(1));
        assert_eq!(set.find(&a), (7, None));
        set.mark(7, &a, Held::Sure);
        assert_eq!(set.find(&b), (8, None));
        set.mark(8, &b, Held::Coming(1));
        assert_eq!(set.find(&a), (7, Some(Held::Sure)));
        assert_eq!(set.find(&b), (8, Some(Held::Coming(1))));
        set.clear_sure();
        assert_eq!(set.len(), 1);
    }
}
