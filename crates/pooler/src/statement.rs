//! Prepared statements: shared texts, the names servers know them by, and what a client named.

use std::sync::{Arc, OnceLock};

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_table::HashTable;
use howdah_wire::frame::cstr;
use sha2::{Digest, Sha256};
use std::hash::BuildHasher;

use crate::Seeded;
use crate::effect::token::{Reading, Token, Tokens};
use crate::effect::{Effects, First, effects, first};
use crate::event::WorkerId;
use crate::limits;
use crate::params::Meaning;
use crate::queries::text::{QueryText, Texts};

/// How our names on servers begin.
pub const PREFIX: &[u8] = b"howdah_";

/// A statement on a server that is there only to be deallocated, or found to exist, in place of a
/// client's.
pub const VOID: &[u8] = b"howdah_void";

/// A name on servers that no statement ever has.
pub const UNKNOWN: &[u8] = b"howdah_unknown";

/// A statement's text and parameter types, once per worker however many clients have it.
#[derive(Debug)]
pub struct Statement {
    /// Text (zero-terminated) and parameter types, as in a Parse.
    pub definition: Box<[u8]>,
    /// What tells it from other statements of the same text: a hash of the settings that it depends
    /// on, or a number of its own.
    pub meaning: u64,
    /// The settings under which its constants were read.
    pub constants: Constants,
    /// It belongs to the transaction that it was parsed in: nobody else finds it.
    pub private: bool,
    /// Which changes of its database's schema were known when it was parsed, as
    /// [`Interner::schema`] has them:
    /// what tells it from the same text parsed before.
    pub schema: u64,
    /// What follows from its first command.
    pub first: First,
    /// What running it may do to its session, if anything.
    pub effects: Option<Box<Effects>>,
    key: OnceLock<u128>,
    /// Its text without constants, once somebody wants to know of its queries.
    query_text: OnceLock<Arc<QueryText>>,
    /// What the first client that had it described was told: the others are told the same, as a
    /// rule.
    told: OnceLock<Arc<Told>>,
}

impl Statement {
    pub(crate) fn new(meaning: u64, constants: Constants, definition: &[u8], schema: u64) -> Self {
        let text = cstr(definition).map_or(&[][..], |(text, _)| text);
        Statement {
            definition: definition.into(),
            meaning,
            constants,
            private: false,
            schema,
            first: first(text),
            effects: Some(effects(text))
                .filter(|effects| !effects.is_nothing())
                .map(Box::new),
            key: OnceLock::new(),
            query_text: OnceLock::new(),
            told: OnceLock::new(),
        }
    }

    /// Its text without constants: found out once, so that an Execute costs no reading.
    pub fn query_text(&self, texts: &mut Texts) -> &Arc<QueryText> {
        self.query_text.get_or_init(|| texts.of(self.text()))
    }

    /// Its text.
    pub fn text(&self) -> &[u8] {
        cstr(&self.definition).map_or(&[], |(text, _)| text)
    }

    /// The front of its text, of so many bytes at most.
    pub fn front(&self, most: usize) -> &[u8] {
        let front = &self.definition[..self.definition.len().min(most)];
        cstr(front).map_or(front, |(text, _)| text)
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

    /// What a client is told, once for all who are told the same.
    pub fn share(&self, told: Told) -> Arc<Told> {
        let first = self.told.get_or_init(|| Arc::new(told.clone()));
        match **first == told {
            true => first.clone(),
            false => Arc::new(told),
        }
    }

    /// What clients are told as a rule.
    pub fn told(&self) -> Option<&Arc<Told>> {
        self.told.get()
    }

    /// The same statement, though perhaps another worker's copy.
    pub fn same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other)
            || (self.meaning == other.meaning
                && self.schema == other.schema
                && self.definition == other.definition)
    }
}

/// The settings under which a statement's constants were read, as [`Meaning::constants`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constants {
    /// It has none that settings could change.
    Fixed,
    /// Those of this hash.
    Of(u64),
    /// Not known: PostgreSQL had not told of a SET yet.
    Unknown,
}

/// Whether constants of a text tell when it is parsed: `'now'`, `'today 10:00'`.
fn tells_time(definition: &[u8]) -> bool {
    let text = cstr(definition).map_or(&[][..], |(text, _)| text);
    const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];
    let has = |inside: &[u8]| {
        let mut words = inside.split(|b| !b.is_ascii_alphabetic());
        words.any(|word| WORDS.iter().any(|one| word.eq_ignore_ascii_case(one)))
    };
    let quoted = |token| matches!(token, Token::Text { inside, .. } if has(inside));
    let reads = |escapes| {
        let reading = Reading {
            escapes,
            ..Reading::default()
        };
        Tokens::new(text, reading).any(quoted)
    };
    has(text) && (reads(false) || reads(true))
}

impl Constants {
    /// They are the same if the text is parsed by a client of such settings.
    pub fn fit(self, meaning: Meaning) -> bool {
        match self {
            Constants::Fixed => true,
            Constants::Of(constants) => constants == meaning.constants,
            Constants::Unknown => false,
        }
    }
}

/// Whether settings may change what a text's constants are: `'01/02/2020'::date` is a day in January
/// or in February. In doubt they may. They change none of letters alone (`status = 'open'`), but for
/// `'today'` and its kin, and nothing outside of quotes.
fn has_constants(text: &[u8]) -> bool {
    let (mut literals, mut inside, mut outside, mut unsure) = (false, false, false, false);
    let (mut before, mut quote, mut in_parameter) = (0, 0, false);
    for &byte in text {
        // `client_encoding` changes what is not ASCII, `standard_conforming_strings` a backslash.
        if byte == b'\\' || !byte.is_ascii() {
            return true;
        }
        let digit = byte.is_ascii_digit();
        in_parameter = digit && (in_parameter || before == b'$');
        inside |= digit && quote == b'\'';
        outside |= digit && quote == 0 && !in_parameter;
        match (before, byte) {
            (_, quoted) if quote != 0 => quote = if quoted == quote { 0 } else { quote },
            (_, b'\'' | b'"') => quote = byte,
            // Comments may hold quotes; of dollars, all but those of parameters are quotes.
            (b'-', b'-') | (b'/', b'*') => unsure = true,
            (b'$', _) if !digit => (literals, unsure) = (true, true),
            _ => {}
        }
        literals |= quote == b'\'';
        before = byte;
    }
    const WORDS: [&[u8]; 3] = [b"now", b"day", b"morrow"];
    let has = |word: &&[u8]| {
        let mut parts = text.windows(word.len());
        parts.any(|part| part.eq_ignore_ascii_case(word))
    };
    literals && (inside || unsure && (outside || quote != 0) || WORDS.iter().any(has))
}

/// True for a name that could be one of ours on a server. Others that begin like them are just names.
pub fn is_ours(name: &[u8]) -> bool {
    let hex = |b: &u8| b.is_ascii_digit() || matches!(b, b'a'..=b'f');
    match name.strip_prefix(PREFIX) {
        Some(rest) => name == VOID || name == UNKNOWN || (rest.len() == 32 && rest.iter().all(hex)),
        None => false,
    }
}

/// What a statement was described as: a hash of all that PostgreSQL compares before it says that a
/// "cached plan must not change result type" (names, types and modifiers of columns), and of the types
/// of parameters.
///
/// It is told to a successor, which may be another version of this program: another hash is another
/// version of [`crate::parcel`]'s format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape(pub u64);

impl Shape {
    /// Of what was described in words that can't be read: in practice no other one's.
    pub const UNREADABLE: Shape = Shape(0);

    /// By the bodies of a ParameterDescription and a RowDescription (or a NoData). `None` if they
    /// are not what they should be.
    pub fn read(parameters: &[u8], body: &[u8]) -> Option<Shape> {
        let mut hash = Sha256::new().chain_update(parameters);
        let (_, mut rest) = body.split_at_checked(2).unwrap_or_default();
        while !rest.is_empty() {
            let (name, behind) = cstr(rest)?;
            // Its table and its number there; type, length and modifier; format.
            let (numbers, behind) = behind.split_at_checked(18)?;
            hash.update(name);
            hash.update([0]);
            hash.update(&numbers[6..16]);
            rest = behind;
        }
        let front = hash.finalize().first_chunk().copied();
        front.map(u64::from_be_bytes).map(Shape)
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

/// The constants of a text that is parsed under such settings.
fn constants(definition: &[u8], meaning: Meaning) -> Constants {
    let text = cstr(definition).map_or(&[][..], |(text, _)| text);
    match has_constants(text) {
        true => Constants::Of(meaning.constants),
        false => Constants::Fixed,
    }
}

/// A database's schema, by its place among those that a worker has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchemaId(u32);

/// What is known of a database's schema.
#[derive(Debug)]
struct Schema {
    /// What PostgreSQL calls the database.
    database: Arc<str>,
    /// A hash of that.
    hash: u64,
    /// How many changes were noticed here first.
    noticed: u64,
    /// All changes that are known of, as the sum of a number for each: workers that know of the same
    /// ones agree, in whichever order they heard of them.
    sum: u64,
    /// Those of them that the other workers have not been told of, as such a sum.
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
    /// The other workers have not been told of all changes of schemas.
    untold: bool,
    /// How many statements belonged to their transactions.
    private: u64,
    /// Bytes of all their texts.
    bytes: usize,
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
            schemas: Vec::new(),
            untold: false,
            private: 0,
            bytes: 0,
            added: 0,
            purge_at_bytes: limits::UNUSED_TEXTS,
        }
    }

    /// The hash of a definition, and of it with a meaning.
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

    /// The shared copy of a statement that is parsed now by a client of such settings, or was since
    /// the schema last changed. One whose constants tell the time of its Parse is not shared.
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
        let constants = constants(definition, meaning);
        if constants != Constants::Fixed && tells_time(definition) {
            return self.private(schema, meaning, true, definition);
        }
        let number = match constants {
            Constants::Fixed => plain,
            _ => number,
        };
        self.insert(hash, Statement::new(number, constants, definition, now))
    }

    /// [`Statement::meaning`] of a text with such constants in a database.
    fn number(&self, schema: SchemaId, meaning: Meaning, constants: Constants) -> u64 {
        let database = self.schemas[schema.0 as usize].hash;
        match constants {
            Constants::Fixed => meaning.names ^ database,
            _ => meaning.both() ^ database,
        }
    }

    /// It is what a client of such settings has parsed now.
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
            // Who has the old one keeps it.
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

    /// A statement of a transaction that texts mean something else in than outside. `settled`:
    /// PostgreSQL has told all settings.
    pub fn private(
        &mut self,
        schema: SchemaId,
        meaning: Meaning,
        settled: bool,
        definition: &[u8],
    ) -> Arc<Statement> {
        self.private += 1;
        let number = self.seeded.hash_one(("private", self.private));
        let constants = match constants(definition, meaning) {
            Constants::Of(_) if !settled => Constants::Unknown,
            constants => constants,
        };
        let mut statement = Statement::new(number, constants, definition, self.schema(schema));
        statement.private = true;
        Arc::new(statement)
    }

    /// What nobody but this table has is forgotten; done seldom enough to cost nothing.
    fn purge(&mut self) {
        self.statements.retain(|s| Arc::strong_count(s) > 1);
        self.purge_at = (self.statements.len() * 2).max(1024);
        let kept = self.statements.iter().map(|s| s.definition.len());
        self.bytes = kept.sum();
        self.purge_at_bytes = self.bytes.max(limits::UNUSED_TEXTS);
        self.added = 0;
    }

    /// Whether a text of so many bytes more may be remembered.
    pub fn has_room(&mut self, size: usize) -> bool {
        if self.bytes + size > limits::WORKER_TEXTS && self.added > 0 {
            self.purge();
        }
        self.bytes + size <= limits::WORKER_TEXTS
    }

    /// There are so many bytes of texts that it matters whose they are.
    pub fn is_large(&self) -> bool {
        self.bytes > limits::UNUSED_TEXTS
    }

    /// There may be much that nobody has any more.
    pub fn is_untidy(&self) -> bool {
        self.bytes > limits::TIDIED_TEXTS
    }

    /// Every now and then: what nobody has any more goes, where that may be much.
    pub fn tidy(&mut self) {
        if self.is_untidy() {
            self.purge();
            if self.statements.capacity() > 4 * self.statements.len().max(1024) {
                let seeded = &self.seeded;
                self.statements.shrink_to(1024, |s| Self::rehash(seeded, s));
            }
        }
    }

    /// How many there are, and bytes of their texts.
    pub fn size(&self) -> (usize, usize) {
        (self.len(), self.bytes)
    }

    /// A statement that another worker interned: this worker's copy, unless one of the two knows of
    /// a change of the schema that the other does not.
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

    /// The schema of a database, by the name that PostgreSQL has for it.
    pub fn schema_of(&mut self, database: &str) -> SchemaId {
        let mut known = self.schemas.iter();
        let at = known.position(|schema| *schema.database == *database);
        let at = at.unwrap_or_else(|| {
            self.schemas.push(Schema {
                database: database.into(),
                hash: FixedState::default().hash_one(database),
                noticed: 0,
                sum: 0,
                untold: 0,
            });
            self.schemas.len() - 1
        });
        SchemaId(at as u32)
    }

    /// A schema has changed: who parses a text from now on gets another statement, parsed anew,
    /// on whichever server. Who has an old one keeps it, and PostgreSQL's errors.
    pub fn schema_changed(&mut self, schema: SchemaId) {
        let worker = u64::from(self.worker.0);
        let schema = &mut self.schemas[schema.0 as usize];
        // Spread, so that no two sums of changes are alike.
        schema.noticed += 1;
        let change = FixedState::with_seed(worker).hash_one(schema.noticed);
        schema.sum = schema.sum.wrapping_add(change);
        schema.untold = schema.untold.wrapping_add(change);
        self.untold = true;
    }

    /// All changes of a schema that are known of, as a sum: it tells the schema as it is known
    /// here from what it was before.
    pub fn schema(&self, schema: SchemaId) -> u64 {
        self.schemas[schema.0 as usize].sum
    }

    /// All schemas that have changed, with those sums.
    pub fn changed_schemas(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        let all = self.schemas.iter().map(|s| (&s.database, s.sum));
        all.filter(|(_, sum)| *sum != 0)
    }

    /// What other workers noticed of a database.
    pub fn schema_changed_elsewhere(&mut self, database: &str, changes: u64) {
        let at = self.schema_of(database);
        let schema = &mut self.schemas[at.0 as usize];
        schema.sum = schema.sum.wrapping_add(changes);
    }

    /// What the other workers must be told: of which databases, and what.
    pub fn untold(&mut self) -> Vec<(Arc<str>, u64)> {
        if !std::mem::take(&mut self.untold) {
            return Vec::new();
        }
        let news = self.schemas.iter_mut().filter(|schema| schema.untold != 0);
        news.map(|s| (s.database.clone(), std::mem::take(&mut s.untold)))
            .collect()
    }

    /// A statement turned out to be stale: unless it is older than what is known, something has
    /// changed the schema unnoticed.
    pub fn stale(&mut self, schema: SchemaId, statement: &Arc<Statement>) {
        if statement.schema == self.schema(schema) {
            self.schema_changed(schema);
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
    /// Bytes of its text.
    pub fn size(&self) -> usize {
        self.statement.definition.len()
    }
}

/// What a client was told of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// What it is.
    pub shape: Shape,
    /// The body of the ParameterDescription.
    pub parameters: Box<[u8]>,
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
    /// Bytes of their texts.
    bytes: usize,
    /// Something was added since it was last cut down to size.
    grown: bool,
}

impl ServerSet {
    /// Empty.
    pub fn new(seeded: Seeded) -> Self {
        ServerSet {
            entries: HashMap::with_hasher(seeded),
            clock: 0,
            bytes: 0,
            grown: false,
        }
    }

    /// True if it holds more than `max`, and did not when it was last looked at: as in PgBouncer,
    /// a smaller `max_prepared_statements` takes nothing away until something is added.
    pub fn outgrows(&mut self, max: usize) -> bool {
        let grown = std::mem::take(&mut self.grown);
        grown && (self.entries.len() > max || self.bytes > limits::SERVER_TEXTS)
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
            shape: None,
        };
        let size = statement.definition.len();
        match self.entries.insert(key, entry) {
            Some(before) => self.bytes -= before.statement.definition.len(),
            None => self.grown = true,
        }
        self.bytes += size;
    }

    /// The statement under a key.
    pub fn statement(&self, key: u128) -> Option<Arc<Statement>> {
        self.entries.get(&key).map(|entry| entry.statement.clone())
    }

    /// What is under a key is another statement.
    pub fn is_other(&self, key: u128, statement: &Arc<Statement>) -> bool {
        let under = self.entries.get(&key);
        under.is_some_and(|entry| !entry.statement.same(statement))
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
        if let Some(entry) = self.entries.remove(&key) {
            self.bytes -= entry.statement.definition.len();
        }
    }

    /// PostgreSQL dropped all it had; what was sent after that is still coming.
    pub fn clear_sure(&mut self) {
        self.entries
            .retain(|_, entry| matches!(entry.held, Held::Coming(_)));
        let left = self.entries.values();
        self.bytes = left.map(|entry| entry.statement.definition.len()).sum();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The confirmed statements that are too many where `max` are allowed, or too large: those not
    /// used for longest, oldest first.
    pub fn surplus(&self, max: usize) -> Vec<u128> {
        let many = self.entries.len().saturating_sub(max);
        if self.bytes <= limits::SERVER_TEXTS {
            return self.oldest(many);
        }
        let mut too_much = self.bytes - limits::SERVER_TEXTS;
        let mut keys = self.oldest(self.entries.len());
        let enough = keys.iter().position(|key| {
            let size = self.entries[key].statement.definition.len();
            let enough = too_much == 0;
            too_much = too_much.saturating_sub(size);
            enough
        });
        keys.truncate(enough.unwrap_or(keys.len()).max(many));
        keys
    }

    /// The confirmed statements that were not used for longest, up to so many of them, oldest first.
    /// One client may have added any number.
    fn oldest(&self, count: usize) -> Vec<u128> {
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
        self.bytes = 0;
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

    /// Names are looked for in that path.
    fn meaning(names: u64) -> Meaning {
        Meaning {
            names,
            constants: 0,
        }
    }

    #[test]
    fn some_constants_tell_the_time() {
        for (text, expected) in [
            ("select 'now'::timestamptz", true),
            ("select * from o where d >= ' Today'", true),
            ("select date 'yesterday', 1", true),
            ("select '[today,tomorrow)'::daterange", true),
            ("select $a$tomorrow 10:00$a$::timestamp", true),
            ("select 'today10:00'::timestamp", true),
            ("select now(), today from t where a = 'x'", false),
            ("select 'unknown', 'Monday', 'holiday' from t", false),
            ("select 'x' -- right now\n, 'it''s'", false),
        ] {
            let definition = [text.as_bytes(), b"\0\0\0"].concat();
            assert_eq!(tells_time(&definition), expected, "{text}");
        }
    }

    #[test]
    fn statements_that_tell_the_time_are_not_shared() {
        let mut interner = Interner::new(seeded(1), WorkerId(0));
        let schema = interner.schema_of("d");
        let text = b"select 'today'::date\0\0\0";
        let one = interner.intern(schema, meaning(0), text);
        let other = interner.intern(schema, meaning(0), text);
        assert_ne!(one.key(), other.key());
        assert!(one.private && interner.is_empty());
    }

    #[test]
    fn settings_change_some_constants() {
        for (text, expected) in [
            ("select $1, t0.a from t0 limit 10", false),
            ("select * from t where status = 'open' and a = $12", false),
            ("select 1, 'it''s', \"it's\", t1.\"2\" from \"a'b1\"", false),
            ("select 1 -- don't\n, 'x', '1'", true),
            ("select /* ' */ 'x' || 1", true),
            ("select '01/02/2020'::date", true),
            ("select timestamptz 'Tomorrow'", true),
            ("select $a$2020-01-02$a$::date", true),
            ("select $$today$$::date", true),
            ("select 'a\\b'", true),
            ("select '\u{e4}'", true),
            ("", false),
        ] {
            assert_eq!(has_constants(text.as_bytes()), expected, "{text}");
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
        // Somebody else finds out later that the old one is stale.
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
    fn two_statements_with_one_key() {
        let make = |text: &[u8], key: u128| {
            let statement = Statement::new(0, Constants::Fixed, text, 0);
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
        let statements =
            [b"a", b"b", b"c", b"d", b"e"].map(|text| Statement::new(0, Constants::Fixed, text, 0));
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
