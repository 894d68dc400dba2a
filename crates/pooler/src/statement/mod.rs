//! Prepared statements: the shared texts, their names on servers, and their names at clients.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use howdah_wire::frame::cstr;
use sha2::{Digest, Sha256};

use crate::Seeded;
use crate::effect::{Effects, First, effects, first};
use crate::params::Params;
use crate::queries::text::{QueryText, Texts};

mod constants;
mod interner;
mod set;
mod shape;

pub use constants::Constants;
pub use interner::{Interner, SchemaId};
pub use set::{Held, ServerSet};
pub use shape::{Shape, StatementDescription};

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
    /// Its key, and the name of that on servers.
    key: OnceLock<(u128, [u8; 39])>,
    /// Its text without constants, once somebody wants to know of its queries.
    query_text: OnceLock<Arc<QueryText>>,
    /// What the first client that had it described was told: the others are told the same, as a
    /// rule.
    told: OnceLock<Arc<StatementDescription>>,
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
        self.key_and_name().0
    }

    /// What it is called on a server that has it under a key: as a rule its own.
    pub fn name_under(&self, key: u128) -> [u8; 39] {
        match self.key_and_name() {
            (own, name) if *own == key => *name,
            _ => server_name(key),
        }
    }

    fn key_and_name(&self) -> &(u128, [u8; 39]) {
        self.key.get_or_init(|| {
            let mut hash = Sha256::new();
            hash.update(self.meaning.to_be_bytes());
            hash.update(&self.definition);
            if self.schema != 0 {
                hash.update(self.schema.to_be_bytes());
            }
            let digest = hash.finalize();
            let (front, _) = digest.split_first_chunk::<16>().expect("32 bytes");
            let key = u128::from_be_bytes(*front);
            (key, server_name(key))
        })
    }

    /// What a client is told, once for all who are told the same.
    pub fn share(&self, told: StatementDescription) -> Arc<StatementDescription> {
        let first = self.told.get_or_init(|| Arc::new(told.clone()));
        match **first == told {
            true => first.clone(),
            false => Arc::new(told),
        }
    }

    /// What clients are told as a rule.
    pub fn told(&self) -> Option<&Arc<StatementDescription>> {
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

/// A client's name for a statement.
#[derive(Clone, Debug)]
pub struct Named {
    /// What it means.
    pub statement: Arc<Statement>,
    /// Which of the names that this client ever gave it is, from 1. The same name given again has
    /// another number.
    pub number: u64,
    /// What its client was told that it is, if it had it, or a portal of it, described.
    pub told: Option<Arc<StatementDescription>>,
    /// The settings under which its constants were read, if it has any. After a takeover they are known
    /// if they were the client's still.
    pub under: Option<Arc<Params>>,
}

impl Named {
    /// Bytes of its text.
    pub fn size(&self) -> usize {
        self.statement.definition.len()
    }
}

/// What a client named, by its own names.
pub type NamedStatements = HashMap<Box<[u8]>, Named, Seeded>;
