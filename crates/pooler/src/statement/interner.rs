//! All statements of a worker, each stored once, and the schemas that they depend on.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::FixedState;
use hashbrown::hash_table::HashTable;
use hashbrown::{HashMap, HashSet};
use howdah_sql::constants::{is_of_one_session, tells_time};

use super::constants::text_of;
use super::seen::SeenTexts;
use super::{Constants, Statement};
use crate::Seeded;
use crate::account::Allowance;
use crate::event::WorkerId;
use crate::limits;
use crate::params::Meaning;

/// The id of a database's schema, on one worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SchemaId(u32);

/// Known facts about a database's schema.
#[derive(Debug)]
struct Schema {
    /// PostgreSQL's name of the database.
    database: Arc<str>,
    /// A hash of that name.
    hash: u64,
    /// Number of changes that this worker was the first to notice.
    noticed: u64,
    /// The sum of all known changes, with one number for each. Workers that know the same changes
    /// have the same sum, in whatever order they learned of them.
    sum: u64,
    /// The sum of the changes that other workers have not been told of.
    untold: u64,
}

/// All statements of a worker.
#[derive(Debug)]
pub struct Interner {
    statements: HashTable<Arc<Statement>>,
    seeded: Seeded,
    purge_at: usize,
    worker: WorkerId,
    schemas: Vec<Schema>,
    schemas_by_name: HashMap<Arc<str>, SchemaId, Seeded>,
    /// Slots of schemas that were forgotten.
    free_schemas: Vec<SchemaId>,
    /// Some changes of schemas have not been sent to the other workers.
    untold: bool,
    /// Number of private statements so far.
    private: u64,
    /// Total size of all texts, in bytes.
    bytes: usize,
    /// Size of the texts added since the last purge, in bytes.
    added: usize,
    /// The next purge is due when `added` reaches this.
    purge_at_bytes: usize,
    /// Unnamed statements that may be shared.
    seen: SeenTexts,
}

impl Interner {
    /// An empty table for a worker.
    pub fn new(seeded: Seeded, worker: WorkerId) -> Self {
        Interner {
            statements: HashTable::new(),
            seeded,
            purge_at: 1024,
            worker,
            schemas: Vec::new(),
            schemas_by_name: HashMap::with_hasher(seeded),
            free_schemas: Vec::new(),
            untold: false,
            private: 0,
            bytes: 0,
            added: 0,
            purge_at_bytes: limits::UNUSED_TEXTS,
            seen: SeenTexts::default(),
        }
    }

    /// The hash of a definition.
    fn hashed(seeded: &Seeded, definition: &[u8]) -> u64 {
        seeded.hash_one(definition)
    }

    fn with_meaning(seeded: &Seeded, definition: u64, meaning: u64) -> u64 {
        seeded.hash_one((definition, meaning))
    }

    fn rehash(seeded: &Seeded, statement: &Statement) -> u64 {
        let hash = Self::hashed(seeded, &statement.definition);
        Self::with_meaning(seeded, hash, statement.meaning)
    }

    /// The shared copy of a statement that a client with these settings parses, or has parsed
    /// since the schema last changed. A statement with constants that depend on the time of its
    /// Parse (`'today'`), or with columns that depend on its session (`FETCH`), is not shared.
    pub fn intern(
        &mut self,
        schema: SchemaId,
        meaning: Meaning,
        definition: &[u8],
    ) -> Arc<Statement> {
        let hash = Self::hashed(&self.seeded, definition);
        let plain = self.number(schema, meaning, Constants::Fixed);
        let now = self.schema(schema);
        if let Some(found) = self.find(hash, plain, definition, now) {
            return found;
        }
        let number = self.number(schema, meaning, Constants::Unknown);
        if let Some(found) = self.find(hash, number, definition, now) {
            return found;
        }
        let constants = Constants::of(definition, meaning);
        let text = text_of(definition);
        if constants != Constants::Fixed && tells_time(text) || is_of_one_session(text) {
            return self.private(schema, meaning, true, definition);
        }
        let number = match constants {
            Constants::Fixed => plain,
            _ => number,
        };
        self.insert(hash, Statement::new(number, constants, definition, now))
    }

    /// The shared copy of a statement, if there is one for the present schema: what
    /// [`Interner::intern`] would find.
    pub fn shared(
        &self,
        schema: SchemaId,
        meaning: Meaning,
        definition: &[u8],
    ) -> Option<&Arc<Statement>> {
        let hash = Self::hashed(&self.seeded, definition);
        let now = self.schema(schema);
        [Constants::Fixed, Constants::Unknown]
            .into_iter()
            .find_map(|constants| {
                let number = self.number(schema, meaning, constants);
                let hash = Self::with_meaning(&self.seeded, hash, number);
                self.statements.find(hash, |s| {
                    s.meaning == number && *s.definition == *definition
                })
            })
            .filter(|found| found.schema == now)
    }

    /// The [`Statement::meaning`] of a text with such constants in a database.
    fn number(&self, schema: SchemaId, meaning: Meaning, constants: Constants) -> u64 {
        let database = self.schemas[schema.0 as usize].hash;
        match constants {
            Constants::Fixed => meaning.names ^ database,
            _ => meaning.both() ^ database,
        }
    }

    /// True if a client with these settings would get this statement for its text now.
    pub fn is_of(&self, statement: &Statement, schema: SchemaId, meaning: Meaning) -> bool {
        statement.meaning == self.number(schema, meaning, statement.constants)
    }

    fn find(
        &mut self,
        hash: u64,
        meaning: u64,
        definition: &[u8],
        schema: u64,
    ) -> Option<Arc<Statement>> {
        let hash = Self::with_meaning(&self.seeded, hash, meaning);
        let found = self.statements.find_mut(hash, |s| {
            s.meaning == meaning && *s.definition == *definition
        })?;
        if found.schema != schema {
            // Clients with the old statement keep it.
            let new = Statement::new(meaning, found.constants, definition, schema);
            *found = Arc::new(new);
        }
        Some(found.clone())
    }

    fn insert(&mut self, hash: u64, statement: Statement) -> Arc<Statement> {
        let hash = Self::with_meaning(&self.seeded, hash, statement.meaning);
        self.added += statement.definition.len();
        self.bytes += statement.definition.len();
        if self.statements.len() >= self.purge_at || self.added >= self.purge_at_bytes {
            self.purge();
        }
        let statement = Arc::new(statement);
        let seeded = &self.seeded;
        self.statements
            .insert_unique(hash, statement.clone(), |s| Self::rehash(seeded, s));
        statement
    }

    /// A statement that belongs to one transaction, because texts have another meaning inside it.
    /// `settled`: PostgreSQL has reported all settings.
    pub fn private(
        &mut self,
        schema: SchemaId,
        meaning: Meaning,
        settled: bool,
        definition: &[u8],
    ) -> Arc<Statement> {
        self.private += 1;
        let number = self.seeded.hash_one(("private", self.private));
        let constants = match Constants::of(definition, meaning) {
            Constants::Of(_) if !settled => Constants::Unknown,
            constants => constants,
        };
        let mut statement = Statement::new(number, constants, definition, self.schema(schema));
        statement.private = true;
        Arc::new(statement)
    }

    /// A client parses this statement without a name: true if that has happened before.
    pub fn comes_again(&mut self, statement: &Statement) -> bool {
        let what = (&statement.definition, statement.meaning, statement.schema);
        self.seen.again(self.seeded.hash_one(what))
    }

    /// Forgets statements that only this table holds. Purges are rare enough to cost nothing.
    fn purge(&mut self) {
        self.statements.retain(|s| Arc::strong_count(s) > 1);
        self.purge_at = (self.statements.len() * 2).max(1024);
        let kept = self.statements.iter().map(|s| s.definition.len());
        self.bytes = kept.sum();
        self.purge_at_bytes = self.bytes.max(limits::UNUSED_TEXTS);
        self.added = 0;
    }

    /// Whether a pool with this share may remember a text of `size` more bytes.
    pub fn has_room(&mut self, share: &Allowance, size: usize) -> bool {
        // Messages give their room back soon: they refuse no text.
        if share.will_have_room(size) {
            return true;
        }
        // So many new texts pay for a purge.
        if self.added > limits::TIDIED_TEXTS {
            self.purge();
        }
        share.will_have_room(size)
    }

    /// True if there may be many statements that no client or server holds any more.
    pub fn is_untidy(&self) -> bool {
        self.bytes > limits::TIDIED_TEXTS
    }

    /// Called now and then: forgets statements that no client or server holds, if there may be
    /// many.
    pub fn tidy(&mut self) {
        if self.is_untidy() {
            self.purge();
            if self.statements.capacity() > 4 * self.statements.len().max(1024) {
                let seeded = &self.seeded;
                self.statements.shrink_to(1024, |s| Self::rehash(seeded, s));
            }
        }
    }

    /// Number of statements, and the total size of their texts in bytes.
    pub fn size(&self) -> (usize, usize) {
        (self.len(), self.bytes)
    }

    /// This worker's copy of another worker's statement. If the two workers know different changes
    /// of the schema, returns the statement unchanged.
    pub fn adopt(&mut self, schema: SchemaId, statement: Arc<Statement>) -> Arc<Statement> {
        let schema = self.schema(schema);
        if statement.schema != schema {
            return statement;
        }
        let (meaning, constants) = (statement.meaning, statement.constants);
        let hash = Self::hashed(&self.seeded, &statement.definition);
        self.find(hash, meaning, &statement.definition, schema)
            .unwrap_or_else(|| {
                let own = Statement::new(meaning, constants, &statement.definition, schema);
                self.insert(hash, own)
            })
    }

    /// The schema of a database, by PostgreSQL's name of the database.
    pub fn schema_of(&mut self, database: &str) -> SchemaId {
        if let Some(id) = self.schemas_by_name.get(database) {
            return *id;
        }
        let name: Arc<str> = database.into();
        let schema = Schema {
            database: name.clone(),
            hash: FixedState::default().hash_one(database),
            noticed: 0,
            sum: 0,
            untold: 0,
        };
        let id = match self.free_schemas.pop() {
            Some(id) => {
                self.schemas[id.0 as usize] = schema;
                id
            }
            None => {
                self.schemas.push(schema);
                SchemaId(self.schemas.len() as u32 - 1)
            }
        };
        self.schemas_by_name.insert(name, id);
        id
    }

    /// Number of known schemas.
    pub fn schemas(&self) -> usize {
        self.schemas_by_name.len()
    }

    /// Forgets unused schemas. Keeps changed schemas, to distinguish statements parsed before the
    /// change from newer ones.
    pub fn forget_schemas(&mut self, used: &HashSet<SchemaId, Seeded>) {
        let (schemas, free) = (&self.schemas, &mut self.free_schemas);
        self.schemas_by_name.retain(|_, id| {
            let schema = &schemas[id.0 as usize];
            let kept = used.contains(id) || schema.sum != 0 || schema.noticed != 0;
            if !kept {
                free.push(*id);
            }
            kept
        });
    }

    /// A schema has changed: a client that parses a text from now on gets a new statement, which
    /// every server parses again. Clients keep their old statements, and get PostgreSQL's errors.
    pub fn schema_changed(&mut self, schema: SchemaId) {
        let worker = u64::from(self.worker.0);
        let schema = &mut self.schemas[schema.0 as usize];
        // The hash spreads the number over 64 bits, so that different changes have different sums.
        schema.noticed += 1;
        let change = FixedState::with_seed(worker).hash_one(schema.noticed);
        schema.sum = schema.sum.wrapping_add(change);
        schema.untold = schema.untold.wrapping_add(change);
        self.untold = true;
    }

    /// The sum of all known changes of a schema. It distinguishes the present schema from older
    /// ones.
    pub fn schema(&self, schema: SchemaId) -> u64 {
        self.schemas[schema.0 as usize].sum
    }

    /// All schemas that have changed, with their sums.
    pub fn changed_schemas(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        let all = self.schemas.iter().map(|s| (&s.database, s.sum));
        all.filter(|(_, sum)| *sum != 0)
    }

    /// Other workers have noticed changes of a database's schema.
    pub fn schema_changed_elsewhere(&mut self, database: &str, changes: u64) {
        let at = self.schema_of(database);
        let schema = &mut self.schemas[at.0 as usize];
        schema.sum = schema.sum.wrapping_add(changes);
    }

    /// True if other workers have not been told of all changes.
    pub fn has_news(&self) -> bool {
        self.untold
    }

    /// Takes the databases and changes that other workers must be told of.
    pub fn untold(&mut self) -> Vec<(Arc<str>, u64)> {
        self.untold = false;
        let news = self.schemas.iter_mut().filter(|schema| schema.untold != 0);
        news.map(|s| (s.database.clone(), std::mem::take(&mut s.untold)))
            .collect()
    }

    /// A statement turned out to be stale. If it was parsed after all known changes, the schema
    /// has changed unnoticed.
    pub fn stale(&mut self, schema: SchemaId, statement: &Arc<Statement>) {
        if statement.schema == self.schema(schema) {
            self.schema_changed(schema);
        }
    }

    /// Number of statements, including those that the next purge removes.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// True if there are no statements.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded;
    use crate::statement::server_name;

    /// Settings with this search path.
    fn meaning(names: u64) -> Meaning {
        Meaning {
            names,
            constants: 0,
        }
    }

    #[test]
    fn shared_finds_what_intern_would_find() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let schema = interner.schema_of("d");
        for text in [&b"select 1\0\0\0"[..], b"select '1.2.2020'\0\0\0"] {
            assert!(interner.shared(schema, meaning(1), text).is_none());
            let statement = interner.intern(schema, meaning(1), text);
            let found = |interner: &Interner, names| {
                let found = interner.shared(schema, meaning(names), text);
                found.map(|found| Arc::ptr_eq(found, &statement))
            };
            assert_eq!(
                [1, 2].map(|names| found(&interner, names)),
                [Some(true), None]
            );
            interner.schema_changed(schema);
            assert_eq!(found(&interner, 1), None);
            interner.intern(schema, meaning(1), text);
            assert_eq!(found(&interner, 1), Some(false));
        }
    }

    #[test]
    fn constants_are_those_of_their_settings() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let schema = interner.schema_of("d");
        let [here, there] = [1, 2].map(|constants| Meaning {
            names: 5,
            constants,
        });
        let (plain, dated) = (&b"select $1\0\0\0"[..], &b"select '1/2'::date\0\0\0"[..]);
        assert!(Arc::ptr_eq(
            &interner.intern(schema, here, plain),
            &interner.intern(schema, there, plain)
        ));
        let (one, other) = (
            interner.intern(schema, here, dated),
            interner.intern(schema, there, dated),
        );
        assert!(!one.same(&other) && one.key() != other.key());
        assert!(one.constants.fit(here) && !one.constants.fit(there));
        let own = interner.private(schema, here, true, dated);
        assert!(!own.same(&one) && own.constants.fit(here));
        assert!(
            !interner
                .private(schema, here, false, dated)
                .constants
                .fit(here)
        );
        assert!(
            interner
                .private(schema, here, false, plain)
                .constants
                .fit(there)
        );
    }

    #[test]
    fn equal_texts_are_one_statement() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let schema = interner.schema_of("d");
        let a = interner.intern(schema, meaning(0), b"select 1\0\0\0");
        let b = interner.intern(schema, meaning(0), b"select 1\0\0\0");
        let c = interner.intern(schema, meaning(1), b"select 1\0\0\0");
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
        let schema = here.schema_of("d");
        let (other_schema, same) = (here.schema_of("e"), there.schema_of("d"));
        assert_eq!(schema, same);
        let apart = here.intern(other_schema, meaning(0), text);
        let old = here.intern(schema, meaning(0), text);
        here.stale(schema, &old);
        let new = here.intern(schema, meaning(0), text);
        assert!(!new.same(&old) && new.key() != old.key());
        // Another client finds out later that the old statement is stale.
        here.stale(schema, &old);
        assert!(Arc::ptr_eq(&new, &here.intern(schema, meaning(0), text)));
        there.schema_changed(schema);
        let other = there.intern(schema, meaning(0), text);
        assert!(!other.same(&new), "each knows what the other does not");
        assert!(Arc::ptr_eq(&other, &here.adopt(schema, other.clone())));
        let (news, more) = (here.untold(), there.untold());
        assert!(here.untold().is_empty());
        here.schema_changed_elsewhere("d", more[0].1);
        there.schema_changed_elsewhere("d", news[0].1);
        let still = here.intern(other_schema, meaning(0), text);
        assert!(Arc::ptr_eq(&apart, &still), "another database's");
        let (one, two) = (
            here.intern(schema, meaning(0), text),
            there.intern(schema, meaning(0), text),
        );
        assert!(one.same(&two) && !one.same(&new) && !one.same(&other));
        assert!(Arc::ptr_eq(&one, &here.adopt(schema, two)));
    }

    #[test]
    fn schemas_that_nobody_uses_are_forgotten() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let [used, changed, gone] = ["used", "changed", "gone"].map(|d| interner.schema_of(d));
        interner.schema_changed(changed);
        let sum = interner.schema(changed);
        let mut keep = HashSet::with_hasher(seeded(1));
        keep.insert(used);
        interner.forget_schemas(&keep);
        assert_eq!(interner.schemas(), 2);
        assert_eq!(interner.schema_of("new"), gone, "its place is used again");
        assert_eq!(interner.schema_of("used"), used);
        assert_eq!(interner.schema_of("changed"), changed);
        assert_eq!(interner.schema(changed), sum);
        assert_eq!(interner.changed_schemas().count(), 1);
        let text = b"select 1\0\0\0";
        let old = interner.intern(used, meaning(0), text);
        let new = interner.intern(gone, meaning(0), text);
        assert!(!old.same(&new), "it is another database's");
    }

    #[test]
    fn unused_texts_are_forgotten() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let schema = interner.schema_of("d");
        let kept = interner.intern(schema, meaning(0), b"kept\0\0\0");
        for i in 0..5000 {
            interner.intern(schema, meaning(0), format!("select {i}\0\0\0").as_bytes());
        }
        assert!(interner.len() < 1100);
        assert!(Arc::ptr_eq(
            &kept,
            &interner.intern(schema, meaning(0), b"kept\0\0\0")
        ));
    }

    #[test]
    fn long_texts_are_forgotten_sooner() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let schema = interner.schema_of("d");
        let kept = interner.intern(schema, meaning(0), b"kept\0\0\0");
        for i in 0..100 {
            let mut text = format!("select {i}").into_bytes();
            text.resize(1 << 20, b' ');
            text.extend_from_slice(b"\0\0\0");
            interner.intern(schema, meaning(0), &text);
            assert!(interner.len() <= 18, "{}", interner.len());
        }
        assert!(Arc::ptr_eq(
            &kept,
            &interner.intern(schema, meaning(0), b"kept\0\0\0")
        ));
    }

    #[test]
    fn statements_of_one_time_or_session_are_not_shared() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let schema = interner.schema_of("d");
        for text in [&b"select 'today'::date\0\0\0"[..], b"Fetch 2 from c\0\0\0"] {
            let one = interner.intern(schema, meaning(0), text);
            let other = interner.intern(schema, meaning(0), text);
            assert_ne!(one.key(), other.key());
            assert!(one.private && interner.is_empty());
        }
    }
}
