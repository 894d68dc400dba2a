//! Prepared statements: the shared texts, their names on servers, and their names at clients.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use howdah_wire::frame::cstr;
use sha2::{Digest, Sha256};

use crate::account::{Allowance, Charge, KeptFor};
use crate::effect::{Depth, Effects, First, Gist, Kinds, VolatileNames, is_read};
use crate::limits;
use crate::queries::text::{QueryText, Texts};

pub use crate::effect::name::{PREFIX, UNKNOWN, VOID, is_ours};

mod constants;
mod interner;
mod keepers;
mod named;
mod seen;
mod set;
mod shape;

pub use constants::Constants;
pub use interner::{Interner, SchemaId};
pub use keepers::Keepers;
pub use named::{ClientStatements, Named};
pub use set::{Held, ServerSet, Unnamed};
pub use shape::{ColumnsMessage, Shape, StatementDescription};

/// The number of a client's unnamed statement that its server keeps under a name of Howdah's. No
/// name of a client has it.
pub const KEPT_UNNAMED: u64 = u64::MAX;

/// The text and parameter types of a statement, stored once per worker for all clients.
#[derive(Debug)]
pub struct Statement {
    /// Text (zero-terminated) and parameter types, as in a Parse.
    pub definition: Box<[u8]>,
    /// The length of the text, stored because each Bind needs it.
    text: usize,
    /// Distinguishes statements of the same text: a hash of the settings that the statement
    /// depends on, or a unique number.
    pub meaning: u64,
    /// The settings with which PostgreSQL read the constants.
    pub constants: Constants,
    /// The statement belongs to the transaction of its Parse: no other client can use it.
    pub private: bool,
    /// The schema changes known at the Parse, as a sum ([`Interner::schema`]). Distinguishes the
    /// statement from the same text parsed before a change.
    pub schema: u64,
    /// The effects of the first command.
    pub first: First,
    /// The effects that running the statement may have on its session, if any.
    pub effects: Option<Box<Effects>>,
    /// The key of the statement, and its name on servers.
    key: OnceLock<(u128, [u8; 39])>,
    /// The text without constants, once Howdah watches queries of the statement.
    query_text: OnceLock<Arc<QueryText>>,
    /// The description that the first client got. Other clients usually get the same.
    told: OnceLock<Arc<StatementDescription>>,
    /// The columns of that description, to describe the statement without a server.
    columns: OnceLock<ColumnsMessage>,
    /// Its bytes in the account of the pool whose client parsed it first.
    charge: OnceLock<Charge>,
    /// Whether the text is a read, in the lowest bit, and [`VolatileNames::id`] of the names that
    /// say so in the others; 0 if nobody has asked.
    read: AtomicU64,
}

impl Statement {
    pub(crate) fn new(meaning: u64, constants: Constants, definition: &[u8], schema: u64) -> Self {
        let text = cstr(definition).map_or(&[][..], |(text, _)| text);
        let mut gist = Gist::default();
        gist.read(text, Depth::FIRST.and(Depth::EFFECTS));
        Statement {
            definition: definition.into(),
            text: text.len(),
            meaning,
            constants,
            private: false,
            schema,
            first: gist.first.unwrap_or_default(),
            effects: gist.effects.map(Box::new),
            key: OnceLock::new(),
            query_text: OnceLock::new(),
            told: OnceLock::new(),
            columns: OnceLock::new(),
            charge: OnceLock::new(),
            read: AtomicU64::new(0),
        }
    }

    /// Charges its bytes to a pool, unless they are charged already.
    pub fn charge_to(&self, share: &Arc<Allowance>) {
        let kind = if self.private {
            KeptFor::PrivateTexts
        } else {
            KeptFor::Texts
        };
        let size = self.definition.len() + size_of::<Statement>();
        self.charge.get_or_init(|| share.charge(kind, size));
    }

    /// The text without constants. Computed once, so that an Execute need not read the text.
    pub fn query_text(&self, texts: &mut Texts) -> &Arc<QueryText> {
        self.query_text.get_or_init(|| texts.of(self.text()))
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.definition[..self.text]
    }

    /// At most the first `most` bytes of the text.
    pub fn front(&self, most: usize) -> &[u8] {
        &self.definition[..self.text.min(most)]
    }

    /// True if the text is a read in a database with these volatile functions. The text is read
    /// once, not at each Bind.
    #[inline]
    pub fn is_read(&self, volatile: &VolatileNames) -> bool {
        // Nobody has asked if this is 0: so that no number is.
        let names = volatile.id() | 2;
        let known = self.read.load(Ordering::Relaxed);
        if known | 1 == names | 1 {
            return known & 1 == 1;
        }
        let is_read = is_read(self.text(), volatile);
        self.read
            .store(names & !1 | u64::from(is_read), Ordering::Relaxed);
        is_read
    }

    /// 128 bits of SHA-256 over text, types, meaning and schema: equal on all workers.
    pub fn key(&self) -> u128 {
        self.key_and_name().0
    }

    /// The name of the statement on a server that has it under `key`, which is usually its own key.
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

    /// A description, shared by all clients that get an equal one.
    pub fn share(&self, told: StatementDescription) -> Arc<StatementDescription> {
        let first = self.told.get_or_init(|| Arc::new(told.clone()));
        if **first == told {
            first.clone()
        } else {
            Arc::new(told)
        }
    }

    /// The description that clients usually get.
    pub fn told(&self) -> Option<&Arc<StatementDescription>> {
        self.told.get()
    }

    /// Remembers the first answer to a Describe, whose RowDescription or NoData this is, if the
    /// pool that pays for the text has room.
    pub fn keep_columns(&self, told: &StatementDescription, tag: u8, body: &[u8]) {
        let size = told.parameters.len() + body.len();
        if self.columns.get().is_some() || size > limits::DESCRIPTION {
            return;
        }
        let charge = self.charge.get().and_then(|text| text.more(size));
        if let Some(charge) = charge.filter(|_| shape::is_ascii(body)) {
            self.share(told.clone());
            let columns = ColumnsMessage::new(told.shape, tag, body, charge);
            // Another thread may have been first.
            let _ = self.columns.set(columns);
        }
    }

    /// The answer to a Describe, if it is known for this shape.
    pub fn description(
        &self,
        shape: Shape,
    ) -> Option<(&Arc<StatementDescription>, &ColumnsMessage)> {
        let columns = self
            .columns
            .get()
            .filter(|columns| columns.shape == shape)?;
        let told = self.told.get().filter(|told| told.shape == shape)?;
        Some((told, columns))
    }

    /// True if the text at most begins or ends a transaction, or a part of one: a Parse of it
    /// concerns nothing else of its client's session.
    pub fn only_moves_transaction(&self) -> bool {
        self.effects.as_deref().is_none_or(|effects| {
            let others = effects.kinds.without(Kinds::BEGINS.and(Kinds::ENDS));
            others.is_empty() && effects.statements.is_empty()
        })
    }

    /// True if the statement seems to have parameters.
    pub fn has_parameters(&self) -> bool {
        let types = self.definition.get(self.text + 1..self.text + 3);
        let mut pairs = self.text().windows(2);
        types != Some(&[0, 0]) || pairs.any(|pair| pair[0] == b'$' && pair[1].is_ascii_digit())
    }

    /// True for the same statement, or another worker's copy of it.
    pub fn same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other)
            || (self.meaning == other.meaning
                && self.schema == other.schema
                && self.definition == other.definition)
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
