//! Prepared statements: shared texts, the names servers know them by, and what a client named.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use hashbrown::hash_table::HashTable;
use howdah_wire::frame::cstr;
use sha2::{Digest, Sha256};
use std::hash::BuildHasher;

use crate::Seeded;
use crate::command::{Forgets, Resets, forgets, resets};
use crate::event::WorkerId;

/// How our names on servers begin.
pub const PREFIX: &[u8] = b"howdah_";

/// A statement on a server that is there only to be deallocated, or found to exist, in place of a
/// client's.
pub const VOID: &[u8] = b"howdah_void";

/// A name on servers that no statement ever has.
pub const UNKNOWN: &[u8] = b"howdah_unknown";

/// The longest Parse that is held to be remembered, in bytes. PostgreSQL's own limit is 1 GB.
pub const PARSE_MAX: u32 = 64 << 20;

/// Texts that nobody has any more may take this many bytes, or as many as those in use do.
const PURGE_BYTES: usize = 16 << 20;

/// Of so many statements whose result has changed it is remembered although nobody has them.
const EPOCHS_MAX: usize = 1024;

/// The longest text of which that is remembered, in bytes.
const EPOCH_TEXT_MAX: usize = 8 << 10;

/// A statement's text and parameter types, once per worker however many clients have it.
#[derive(Debug)]
pub struct Statement {
    /// Text (zero-terminated) and parameter types, as in a Parse.
    pub definition: Box<[u8]>,
    /// Settings under which the text was parsed, as a hash of [`crate::params::Params::meaning`].
    pub meaning: u64,
    /// 0, or what tells it from the same text parsed before its result changed.
    pub epoch: u64,
    /// What running it forgets.
    pub forgets: Forgets,
    /// Which settings running it resets.
    pub resets: Resets,
    key: OnceLock<u128>,
}

impl Statement {
    fn new(meaning: u64, definition: &[u8], epoch: u64) -> Self {
        let text = cstr(definition).map_or(&[][..], |(text, _)| text);
        Statement {
            definition: definition.into(),
            meaning,
            epoch,
            forgets: forgets(text),
            resets: resets(text),
            key: OnceLock::new(),
        }
    }

    /// Running it does something to its client that the server does not do by itself.
    pub fn has_effect(&self) -> bool {
        self.forgets != Forgets::Nothing || self.resets != Resets::Nothing
    }

    /// 128 bits of SHA-256 over text, types and meaning: every worker finds the same.
    pub fn key(&self) -> u128 {
        *self.key.get_or_init(|| {
            let mut hash = Sha256::new();
            hash.update(self.meaning.to_be_bytes());
            hash.update(&self.definition);
            if self.epoch != 0 {
                hash.update(self.epoch.to_be_bytes());
            }
            let digest = hash.finalize();
            let (front, _) = digest.split_first_chunk::<16>().expect("32 bytes");
            u128::from_be_bytes(*front)
        })
    }

    /// The same statement, though perhaps another worker's copy.
    pub fn same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other)
            || (self.meaning == other.meaning
                && self.epoch == other.epoch
                && self.definition == other.definition)
    }
}

/// True for a name that could be one of ours on a server. Others that begin like them are just names.
pub fn is_ours(name: &[u8]) -> bool {
    let hex = |b: &u8| b.is_ascii_digit() || matches!(b, b'a'..=b'f');
    match name.strip_prefix(PREFIX) {
        Some(rest) => name == VOID || name == UNKNOWN || (rest.len() == 32 && rest.iter().all(hex)),
        None => false,
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
    /// Bytes of texts that were added since the last purge.
    added: usize,
    /// At how many of those the next is due.
    purge_at_bytes: usize,
    /// The last one given: worker above, count below.
    epoch: u64,
}

impl Interner {
    /// Empty, of a worker.
    pub fn new(seeded: Seeded, worker: WorkerId) -> Self {
        Interner {
            statements: HashTable::new(),
            seeded,
            purge_at: 1024,
            added: 0,
            purge_at_bytes: PURGE_BYTES,
            epoch: u64::from(worker.0) << 48,
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
        self.added += definition.len();
        if self.statements.len() >= self.purge_at || self.added >= self.purge_at_bytes {
            self.purge();
        }
        let statement = Arc::new(Statement::new(meaning, definition, 0));
        let seeded = &self.seeded;
        self.statements.insert_unique(hash, statement.clone(), |s| {
            Self::hash(seeded, s.meaning, &s.definition)
        });
        statement
    }

    /// What nobody but this table has is forgotten; done seldom enough to cost nothing. The epoch of
    /// one is remembered, as servers may still have what it replaced, unless there are too many:
    /// then its text fails once more where it is parsed next.
    fn purge(&mut self) {
        let mut unused_epochs = 0;
        self.statements.retain(|s| {
            if Arc::strong_count(s) > 1 {
                return true;
            }
            let kept = s.epoch != 0 && s.definition.len() <= EPOCH_TEXT_MAX;
            unused_epochs += usize::from(kept);
            kept && unused_epochs <= EPOCHS_MAX
        });
        self.purge_at = (self.statements.len() * 2).max(1024);
        let kept = self.statements.iter().map(|s| s.definition.len());
        self.purge_at_bytes = kept.sum::<usize>().max(PURGE_BYTES);
        self.added = 0;
    }

    /// A statement's result has changed since PostgreSQL parsed it: who parses the same text from
    /// now on gets another statement, parsed anew, on whichever server. Who has the old one keeps
    /// it, and PostgreSQL's error, until then.
    pub fn retire(&mut self, old: &Arc<Statement>) {
        let hash = Self::hash(&self.seeded, old.meaning, &old.definition);
        let found = self.statements.find_mut(hash, |s| Arc::ptr_eq(s, old));
        if let Some(found) = found {
            self.epoch += 1;
            let new = Statement::new(old.meaning, &old.definition, self.epoch);
            *found = Arc::new(new);
        }
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

/// A client's name for a statement.
#[derive(Clone, Debug)]
pub struct Named {
    /// What it means.
    pub statement: Arc<Statement>,
    /// Which of the names that this client ever gave it is, from 1. The same name given again has
    /// another number.
    pub number: u64,
}

/// What a client named, by its own names.
pub type Names = HashMap<Box<[u8]>, Named, Seeded>;

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

    #[test]
    fn equal_texts_are_one_statement() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let a = interner.intern(0, b"select 1\0\0\0");
        let b = interner.intern(0, b"select 1\0\0\0");
        let c = interner.intern(1, b"select 1\0\0\0");
        assert!(Arc::ptr_eq(&a, &b));
        assert!(!a.same(&c));
        assert_ne!(a.key(), c.key());
        assert_eq!(server_name(a.key()).len(), 39);
    }

    #[test]
    fn a_retired_text_is_another_statement() {
        let mut interner = Interner::new(seeded(1), WorkerId(2));
        let old = interner.intern(0, b"select * from t\0\0\0");
        interner.retire(&old);
        let new = interner.intern(0, b"select * from t\0\0\0");
        assert!(!new.same(&old) && new.key() != old.key());
        // Somebody else finds out later that the old one is stale.
        interner.retire(&old);
        assert!(Arc::ptr_eq(
            &new,
            &interner.intern(0, b"select * from t\0\0\0")
        ));
        let mut elsewhere = Interner::new(seeded(1), WorkerId(3));
        let other = elsewhere.intern(0, b"select * from t\0\0\0");
        elsewhere.retire(&other);
        let other = elsewhere.intern(0, b"select * from t\0\0\0");
        assert_ne!(
            other.key(),
            new.key(),
            "workers do not share what they retired"
        );
    }

    #[test]
    fn unused_texts_are_forgotten() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let kept = interner.intern(0, b"kept\0\0\0");
        for i in 0..5000 {
            interner.intern(0, format!("select {i}\0\0\0").as_bytes());
        }
        assert!(interner.len() < 1100);
        assert!(Arc::ptr_eq(&kept, &interner.intern(0, b"kept\0\0\0")));
    }

    #[test]
    fn long_texts_are_forgotten_sooner() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let kept = interner.intern(0, b"kept\0\0\0");
        for i in 0..100 {
            let mut text = format!("select {i}").into_bytes();
            text.resize(1 << 20, b' ');
            text.extend_from_slice(b"\0\0\0");
            interner.intern(0, &text);
            assert!(interner.len() <= 18, "{}", interner.len());
        }
        assert!(Arc::ptr_eq(&kept, &interner.intern(0, b"kept\0\0\0")));
    }

    #[test]
    fn what_is_remembered_of_stale_statements_has_a_bound() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let old = interner.intern(0, b"select * from t\0\0\0");
        interner.retire(&old);
        let new = interner.intern(0, b"select * from t\0\0\0").key();
        for i in 0..20_000 {
            let text = format!("select {i}\0\0\0");
            if i == 2000 {
                let same = interner.intern(0, b"select * from t\0\0\0");
                assert_eq!(same.key(), new, "remembered");
            }
            let stale = interner.intern(0, text.as_bytes());
            if i > 2000 {
                interner.retire(&stale);
            }
        }
        assert!(interner.len() <= 2 * EPOCHS_MAX + 1, "{}", interner.len());
    }

    #[test]
    fn two_statements_with_one_key() {
        let make = |text: &[u8], key: u128| {
            let statement = Statement::new(0, text, 0);
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
