//! Prepared statements: the shared texts, their names on servers, and their names at clients.

use std::borrow::Cow;
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

/// The prefix of Howdah's names on servers.
pub const PREFIX: &[u8] = b"howdah_";

/// A statement on servers that stands in for a client's statement: PostgreSQL deallocates it, or
/// reports that it exists already.
pub const VOID: &[u8] = b"howdah_void";

/// A name on servers that no statement ever has.
pub const UNKNOWN: &[u8] = b"howdah_unknown";

/// A statement's text and parameter types, once per worker however many clients have it.
#[derive(Debug)]
pub struct Statement {
    /// Text (zero-terminated) and parameter types, as in a Parse.
    pub definition: Box<[u8]>,
    /// The length of the text, which each Bind asks for.
    text: usize,
    /// Distinguishes it from other statements of the same text: a hash of the settings that it
    /// depends on, or a number of its own.
    pub meaning: u64,
    /// The settings under which its constants were read.
    pub constants: Constants,
    /// It belongs to the transaction that it was parsed in: no other client can use it.
    pub private: bool,
    /// The changes of its database's schema that were known when it was parsed, as
    /// [`Interner::schema`] gives them. Distinguishes it from the same text parsed before a change.
    pub schema: u64,
    /// What follows from its first command.
    pub first: First,
    /// The effects that running it may have on its session, if any.
    pub effects: Option<Box<Effects>>,
    /// Its key, and its name on servers.
    key: OnceLock<(u128, [u8; 39])>,
    /// Its text without constants, once its queries are watched.
    query_text: OnceLock<Arc<QueryText>>,
    /// The description that the first client got. Usually the others get the same.
    told: OnceLock<Arc<StatementDescription>>,
}

impl Statement {
    pub(crate) fn new(meaning: u64, constants: Constants, definition: &[u8], schema: u64) -> Self {
        let text = cstr(definition).map_or(&[][..], |(text, _)| text);
        Statement {
            definition: definition.into(),
            text: text.len(),
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

    /// Its text without constants. Computed once, so that an Execute costs no reading.
    pub fn query_text(&self, texts: &mut Texts) -> &Arc<QueryText> {
        self.query_text.get_or_init(|| texts.of(self.text()))
    }

    /// Its text.
    pub fn text(&self) -> &[u8] {
        &self.definition[..self.text]
    }

    /// The first bytes of its text, at most so many.
    pub fn front(&self, most: usize) -> &[u8] {
        &self.definition[..self.text.min(most)]
    }

    /// 128 bits of SHA-256 over text, types, meaning and schema: the same on every worker.
    pub fn key(&self) -> u128 {
        self.key_and_name().0
    }

    /// Its name on a server that has it under this key, which is usually its own key.
    pub fn name_under(&self, key: u128) -> Cow<'_, [u8]> {
        match self.key_and_name() {
            (own, name) if *own == key => Cow::Borrowed(name),
            _ => Cow::Owned(server_name(key).into()),
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

    /// A description, shared by all clients that get the same.
    pub fn share(&self, told: StatementDescription) -> Arc<StatementDescription> {
        let first = self.told.get_or_init(|| Arc::new(told.clone()));
        match **first == told {
            true => first.clone(),
            false => Arc::new(told),
        }
    }

    /// The description that clients usually get.
    pub fn told(&self) -> Option<&Arc<StatementDescription>> {
        self.told.get()
    }

    /// True for the same statement, or another worker's copy of it.
    pub fn same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other)
            || (self.meaning == other.meaning
                && self.schema == other.schema
                && self.definition == other.definition)
    }
}

/// True for a name of the form that Howdah's names on servers have. Other names with the same
/// prefix are ordinary names.
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
    /// The statement that it means.
    pub statement: Arc<Statement>,
    /// The number of the name among all that this client ever gave, from 1. The same name given
    /// again has another number.
    pub number: u64,
    /// The description that the client got of it, or of a portal of it, if any.
    pub told: Option<Arc<StatementDescription>>,
    /// The settings under which its constants were read, if it has any. After a takeover they are
    /// known only if the client still had these settings.
    pub under: Option<Arc<Params>>,
}

impl Named {
    /// The length of its text, in bytes.
    pub fn size(&self) -> usize {
        self.statement.definition.len()
    }
}

/// A client's named statements, by the client's names.
pub type NamedStatements = HashMap<Box<[u8]>, Named, Seeded>;
