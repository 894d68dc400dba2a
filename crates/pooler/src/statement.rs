//! Prepared statements: shared texts, the names servers know them by, and what a client named.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use hashbrown::hash_table::HashTable;
use howdah_wire::frame::cstr;
use sha2::{Digest, Sha256};
use std::hash::BuildHasher;

use crate::Seeded;
use crate::command::{Alters, Forgets, Resets, alters, forgets, is_planned, resets};
use crate::event::WorkerId;
use crate::params::Params;

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

/// A statement's text and parameter types, once per worker however many clients have it.
#[derive(Debug)]
pub struct Statement {
    /// Text (zero-terminated) and parameter types, as in a Parse.
    pub definition: Box<[u8]>,
    /// Settings under which the text was parsed, as a hash of [`Params::meaning`], or of what was
    /// done to those of which PostgreSQL had not told yet.
    pub meaning: u64,
    /// Which changes of the schema were known when it was parsed, as [`Interner::schema`] has them:
    /// what tells it from the same text parsed before.
    pub schema: u64,
    /// What running it forgets.
    pub forgets: Forgets,
    /// Which settings running it resets.
    pub resets: Resets,
    /// What running it does to what others mean.
    pub alters: Alters,
    /// PostgreSQL refuses it once its rows have changed.
    pub planned: bool,
    key: OnceLock<u128>,
    /// Those settings, once they are known.
    settings: OnceLock<Arc<Params>>,
    /// What the first client that had it described was told: the others are told the same, as a
    /// rule.
    told: OnceLock<Arc<Told>>,
}

impl Statement {
    pub(crate) fn new(meaning: u64, definition: &[u8], schema: u64) -> Self {
        let text = cstr(definition).map_or(&[][..], |(text, _)| text);
        Statement {
            definition: definition.into(),
            meaning,
            schema,
            forgets: forgets(text),
            resets: resets(text),
            alters: alters(text),
            planned: is_planned(text),
            key: OnceLock::new(),
            settings: OnceLock::new(),
            told: OnceLock::new(),
        }
    }

    /// Its text.
    pub fn text(&self) -> &[u8] {
        cstr(&self.definition).map_or(&[], |(text, _)| text)
    }

    /// 128 bits of SHA-256 over text, types, meaning and schema: every worker finds the same.
    pub fn key(&self) -> u128 {
        *self.key.get_or_init(|| {
            let mut hash = Sha256::new();
            hash.update(self.meaning.to_be_bytes());
            hash.update(&self.definition);
            if self.schema != 0 {
                hash.update(self.schema.to_be_bytes());
            }
            let digest = hash.finalize();
            let (front, _) = digest.split_first_chunk::<16>().expect("32 bytes");
            u128::from_be_bytes(*front)
        })
    }

    /// The settings under which the text was parsed, if they are known.
    pub fn settings(&self) -> Option<&Arc<Params>> {
        self.settings.get()
    }

    /// These are the settings of its [`Statement::meaning`].
    pub fn settle(&self, settings: &Arc<Params>) {
        self.settings.get_or_init(|| settings.clone());
    }

    /// What a client is told, once for all who are told the same.
    pub fn share(&self, told: Told) -> Arc<Told> {
        let first = self.told.get_or_init(|| Arc::new(told.clone()));
        match **first == told {
            true => first.clone(),
            false => Arc::new(told),
        }
    }

    /// The same statement, though perhaps another worker's copy.
    pub fn same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other)
            || (self.meaning == other.meaning
                && self.schema == other.schema
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

/// What a statement was described as: hashes of what was told.
///
/// They are told to a successor, which may be another version of this program: other hashes are
/// another version of [`crate::parcel`]'s format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Of all that PostgreSQL compares before it says that a "cached plan must not change result
    /// type" (names, types and modifiers of columns), and of the types of parameters. None if only
    /// a portal was described, which has no parameters, and may have other modifiers.
    pub whole: Option<u64>,
    /// Of the names and types of columns.
    pub columns: u64,
}

impl Shape {
    /// Of what was described in words that can't be read: in practice no other one's.
    pub const UNREADABLE: Shape = Shape {
        whole: Some(0),
        columns: 0,
    };

    /// By the bodies of a ParameterDescription and a RowDescription (or a NoData). `None` if they
    /// are not what they should be.
    pub fn of_statement(parameters: &[u8], body: &[u8]) -> Option<Shape> {
        let hash = Sha256::new().chain_update(parameters);
        let whole = columns(hash, body, |numbers| &numbers[6..16])?;
        let portal = Shape::of_portal(body)?;
        Some(Shape {
            whole: Some(whole),
            ..portal
        })
    }

    /// By the body of a RowDescription (or a NoData). `None` if it is not what it should be.
    pub fn of_portal(body: &[u8]) -> Option<Shape> {
        let columns = columns(Sha256::new(), body, |numbers| &numbers[6..10])?;
        let whole = None;
        Some(Shape { whole, columns })
    }

    /// Whether who was told this reads rightly what a statement of that shape gives.
    pub fn fits(self, now: Shape) -> bool {
        self.columns == now.columns && (self.whole.is_none() || self.whole == now.whole)
    }
}

/// A hash over the names of columns and some of the numbers behind each: its table and its number
/// there, type, length, modifier; format.
fn columns(mut hash: Sha256, body: &[u8], part: fn(&[u8]) -> &[u8]) -> Option<u64> {
    let (_, mut rest) = body.split_at_checked(2).unwrap_or_default();
    while !rest.is_empty() {
        let (name, behind) = cstr(rest)?;
        let (numbers, behind) = behind.split_at_checked(18)?;
        hash.update(name);
        hash.update([0]);
        hash.update(part(numbers));
        rest = behind;
    }
    let front = hash.finalize().first_chunk().copied();
    front.map(u64::from_be_bytes)
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
    worker: WorkerId,
    /// How many changes of the schema were noticed here first.
    noticed: u64,
    /// All changes of the schema that are known of, as the sum of a number for each: workers that
    /// know of the same ones agree, in whichever order they heard of them.
    schema: u64,
    /// Those of them that the other workers have not been told of, as such a sum.
    untold: u64,
    /// How many meanings were given to settings that are not known.
    unknown: u64,
    /// Bytes of texts that were added since the last purge.
    added: usize,
    /// At how many of those the next is due.
    purge_at_bytes: usize,
}

impl Interner {
    /// Empty, of a worker.
    pub fn new(seeded: Seeded, worker: WorkerId) -> Self {
        Interner {
            statements: HashTable::new(),
            seeded,
            purge_at: 1024,
            worker,
            noticed: 0,
            schema: 0,
            untold: 0,
            unknown: 0,
            added: 0,
            purge_at_bytes: PURGE_BYTES,
        }
    }

    fn hash(seeded: &Seeded, meaning: u64, definition: &[u8]) -> u64 {
        seeded.hash_one((meaning, definition))
    }

    /// The shared copy of a statement that is parsed now, or was since the schema last changed.
    pub fn intern(&mut self, meaning: u64, definition: &[u8]) -> Arc<Statement> {
        let hash = Self::hash(&self.seeded, meaning, definition);
        let schema = self.schema;
        let found = self.statements.find_mut(hash, |s| {
            s.meaning == meaning && *s.definition == *definition
        });
        if let Some(found) = found {
            if found.schema != schema {
                // Who has the old one keeps it.
                *found = Arc::new(Statement::new(meaning, definition, schema));
            }
            return found.clone();
        }
        self.added += definition.len();
        if self.statements.len() >= self.purge_at || self.added >= self.purge_at_bytes {
            self.purge();
        }
        let statement = Arc::new(Statement::new(meaning, definition, schema));
        let seeded = &self.seeded;
        self.statements.insert_unique(hash, statement.clone(), |s| {
            Self::hash(seeded, s.meaning, &s.definition)
        });
        statement
    }

    /// What a statement is on a server where it was parsed under other settings than those it was
    /// named under, which are not known: nothing that anybody else can have named.
    pub fn under(&mut self, statement: &Arc<Statement>, meaning: u64) -> Arc<Statement> {
        let both = foldhash::quality::FixedState::default().hash_one((statement.meaning, meaning));
        self.intern(both, &statement.definition)
    }

    /// What texts mean that are parsed under settings of which PostgreSQL has not told yet: nobody
    /// else's, here or in another process.
    pub fn unknown_meaning(&mut self) -> u64 {
        self.unknown += 1;
        self.seeded.hash_one(("unknown", self.unknown))
    }

    /// What nobody but this table has is forgotten; done seldom enough to cost nothing.
    fn purge(&mut self) {
        self.statements.retain(|s| Arc::strong_count(s) > 1);
        self.purge_at = (self.statements.len() * 2).max(1024);
        let kept = self.statements.iter().map(|s| s.definition.len());
        self.purge_at_bytes = kept.sum::<usize>().max(PURGE_BYTES);
        self.added = 0;
    }

    /// A statement that another worker interned: this worker's copy, unless one of the two knows of
    /// a change of the schema that the other does not.
    pub fn adopt(&mut self, statement: Arc<Statement>) -> Arc<Statement> {
        if statement.schema == self.schema {
            let own = self.intern(statement.meaning, &statement.definition);
            if let Some(settings) = statement.settings() {
                own.settle(settings);
            }
            own
        } else {
            statement
        }
    }

    /// The schema has changed: who parses a text from now on gets another statement, parsed anew,
    /// on whichever server. Who has an old one keeps it, and PostgreSQL's errors.
    pub fn schema_changed(&mut self) {
        // Spread, so that no two sums of changes are alike.
        self.noticed += 1;
        let change = foldhash::quality::FixedState::with_seed(u64::from(self.worker.0))
            .hash_one(self.noticed);
        self.schema = self.schema.wrapping_add(change);
        self.untold = self.untold.wrapping_add(change);
    }

    /// All changes of the schema that are known of, as a sum: it tells the schema as it is known
    /// here from what it was before.
    pub fn schema(&self) -> u64 {
        self.schema
    }

    /// What other workers noticed.
    pub fn schema_changed_elsewhere(&mut self, changes: u64) {
        self.schema = self.schema.wrapping_add(changes);
    }

    /// What the other workers must be told; 0 for nothing.
    pub fn untold(&mut self) -> u64 {
        std::mem::take(&mut self.untold)
    }

    /// A statement turned out to be stale: unless it is older than what is known, something has
    /// changed the schema unnoticed.
    pub fn stale(&mut self, statement: &Arc<Statement>) {
        if statement.schema == self.schema {
            self.schema_changed();
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
    /// What its client was told that it is, if it had it, or a portal of it, described.
    pub told: Option<Arc<Told>>,
}

impl Named {
    /// Its client was told the types of its parameters.
    pub fn knows_parameters(&self) -> bool {
        self.told
            .as_ref()
            .is_some_and(|told| told.parameters.is_some())
    }
}

/// What a client was told of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// What it is.
    pub shape: Shape,
    /// The body of the ParameterDescription; none if only a portal was described.
    pub parameters: Option<Box<[u8]>>,
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
    /// What it is here, if it was described: it stays that, as long as it is there.
    shape: Option<Shape>,
}

/// The statements a server has, under which names.
#[derive(Debug)]
pub struct ServerSet {
    entries: HashMap<u128, SetEntry, Seeded>,
    clock: u64,
    /// Something was added since it was last cut down to size.
    grown: bool,
}

impl ServerSet {
    /// Empty.
    pub fn new(seeded: Seeded) -> Self {
        ServerSet {
            entries: HashMap::with_hasher(seeded),
            clock: 0,
            grown: false,
        }
    }

    /// True if it holds more than `max`, and did not when it was last looked at: as in PgBouncer,
    /// a smaller `max_prepared_statements` takes nothing away until something is added.
    pub fn outgrows(&mut self, max: usize) -> bool {
        std::mem::take(&mut self.grown) && self.entries.len() > max
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

    /// The key of a definition that the server has, in the newest of its meanings to us.
    pub fn key_of(&self, meaning: u64, definition: &[u8]) -> Option<u128> {
        let of = |entry: &SetEntry| {
            entry.statement.meaning == meaning && *entry.statement.definition == *definition
        };
        let found = self.entries.iter().filter(|(_, entry)| of(entry));
        found
            .max_by_key(|(_, entry)| entry.used)
            .map(|(key, _)| *key)
    }

    /// Notes what was sent or confirmed about a key.
    pub fn mark(&mut self, key: u128, statement: &Arc<Statement>, held: Held) {
        self.clock += 1;
        let entry = SetEntry {
            statement: statement.clone(),
            held,
            used: self.clock,
            shape: None,
        };
        self.grown |= self.entries.insert(key, entry).is_none();
    }

    /// The statement under a key.
    pub fn statement(&self, key: u128) -> Option<Arc<Statement>> {
        self.entries.get(&key).map(|entry| entry.statement.clone())
    }

    /// What the statement under a key was described as here.
    pub fn shape(&self, key: u128) -> Option<Shape> {
        self.entries.get(&key).and_then(|entry| entry.shape)
    }

    /// The statement under a key was described.
    pub fn describe(&mut self, key: u128, shape: Shape) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.shape = Some(shape);
        }
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

    /// The confirmed statements that were not used for longest, up to so many of them, oldest first.
    /// One client may have added any number.
    pub fn oldest(&self, count: usize) -> Vec<u128> {
        let sure = self.entries.iter();
        let sure = sure.filter(|(_, entry)| entry.held == Held::Sure);
        let mut sure: Vec<_> = sure.map(|(key, entry)| (entry.used, *key)).collect();
        if count < sure.len() {
            sure.select_nth_unstable(count);
            sure.truncate(count);
        }
        sure.sort_unstable();
        sure.into_iter().map(|(_, key)| key).collect()
    }

    /// Takes all out, with what they were described as, for the way to another worker.
    pub fn drain(&mut self) -> Vec<(u128, Arc<Statement>, Option<Shape>)> {
        self.entries
            .drain()
            .map(|(key, entry)| (key, entry.statement, entry.shape))
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
    fn a_changed_schema_makes_other_statements() {
        let text = b"select * from t\0\0\0";
        let mut here = Interner::new(seeded(1), WorkerId(2));
        let mut there = Interner::new(seeded(1), WorkerId(3));
        let old = here.intern(0, text);
        here.stale(&old);
        let new = here.intern(0, text);
        assert!(!new.same(&old) && new.key() != old.key());
        // Somebody else finds out later that the old one is stale.
        here.stale(&old);
        assert!(Arc::ptr_eq(&new, &here.intern(0, text)));
        there.schema_changed();
        let other = there.intern(0, text);
        assert!(!other.same(&new), "each knows what the other does not");
        assert!(Arc::ptr_eq(&other, &here.adopt(other.clone())));
        let (news, more) = (here.untold(), there.untold());
        assert_eq!(here.untold(), 0);
        here.schema_changed_elsewhere(more);
        there.schema_changed_elsewhere(news);
        let (one, two) = (here.intern(0, text), there.intern(0, text));
        assert!(one.same(&two) && !one.same(&new) && !one.same(&other));
        assert!(Arc::ptr_eq(&one, &here.adopt(two)));
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

    #[test]
    fn those_unused_for_longest_come_first() {
        let mut set = ServerSet::new(seeded(1));
        let statements = [b"a", b"b", b"c", b"d", b"e"].map(|text| Statement::new(0, text, 0));
        let statements = statements.map(Arc::new);
        for statement in &statements {
            set.mark(statement.key(), statement, Held::Sure);
        }
        let keys = statements.each_ref().map(|statement| statement.key());
        set.mark(keys[1], &statements[1], Held::Going(1));
        set.find(&statements[0]);
        assert_eq!(set.oldest(0), []);
        assert_eq!(set.oldest(2), [keys[2], keys[3]]);
        let all = [keys[2], keys[3], keys[4], keys[0]];
        assert_eq!(set.oldest(4), all);
        assert_eq!(set.oldest(9), all);
    }
}
