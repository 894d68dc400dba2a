//! Sharded databases: each statement goes to the one shard that has its rows, or is refused.
//!
//! A client of a sharded database is a client of the login of **one of its shards**, the one that it
//! used last; of the first, at the beginning. So its servers, limits, settings and statistics are
//! those of the shard's own entry, and a link is what a link always is. Before a client without a
//! server gets one, `place.rs` finds the shard for the message, and the client enters that shard's
//! login. While a client has a server, `link/gated.rs` refuses what belongs elsewhere.
//!
//! A `BEGIN` shows no shard. Howdah answers it, and sends it along with the first statement that
//! does.

pub mod answer;
pub mod bound_text;
mod decide;
mod due;
pub mod error;
mod figures;
mod front;
pub mod group;
pub(crate) mod kept_map;
pub mod lore;
pub mod noted;
mod place;
pub(crate) mod placed;
pub mod planning;
mod read;
pub mod rehearsal;
mod reload;
mod said;
pub mod tally;
pub mod transaction;
mod waiting;

use std::sync::Arc;

use howdah_shard::{Hint, NoKey};

use crate::config::{Shard, ShardMap};
use crate::effect::ShardSetting;
use crate::shard::bound_text::Decision;
use crate::shard::error::ShardError;
use crate::shard::transaction::Transaction;

pub(crate) use place::Placing;

/// What a client of a sharded database has besides. Which shard the client is at, its login says
/// ([`Sharded::shard_of_login`]).
#[derive(Debug)]
pub struct Sharded {
    /// Where the rows lie.
    pub map: Arc<ShardMap>,
    /// What the client says for its session.
    session: Option<Hint>,
    /// What it said at its login, and says again after RESET.
    at_login: Option<Hint>,
    /// What it says for its transaction.
    local: Option<Hint>,
    /// What of its transaction only Howdah knows.
    pub(crate) transaction: Transaction,
    /// Why messages under way are refused.
    refused: Option<ShardError>,
    /// The catalogue has been read again for the client's statement.
    is_final: bool,
    /// How often the client has left a server with the message under way, to be placed anew.
    placed_anew: u8,
    /// The group of messages under way has bound a statement.
    bound: bool,
    /// The part of the spread map that the transaction has touched.
    part: Option<Shard>,
}

/// The hint that a setting with this value is.
pub fn hint_of(setting: ShardSetting, value: &[u8]) -> Hint {
    // No shard and no distribution has such a name.
    let value = String::from_utf8_lossy(value).into_owned();
    match setting {
        ShardSetting::Shard => Hint::Shard(value),
        ShardSetting::Key => Hint::Key(value),
    }
}

/// The setting that says a hint, and its value.
pub fn setting_of(hint: &Hint) -> (ShardSetting, &str) {
    match hint {
        Hint::Shard(name) => (ShardSetting::Shard, name),
        Hint::Key(key) => (ShardSetting::Key, key),
    }
}

/// How often one message may be placed anew.
const MOST_PLACED: u8 = 3;

impl Sharded {
    /// A client that begins.
    pub fn new(map: Arc<ShardMap>, hint: Option<Hint>) -> Sharded {
        Sharded {
            map,
            session: hint.clone(),
            at_login: hint,
            local: None,
            transaction: Transaction::default(),
            refused: None,
            is_final: false,
            placed_anew: 0,
            bound: false,
            part: None,
        }
    }

    /// A reload has changed the map.
    pub(crate) fn gets(&mut self, map: Arc<ShardMap>) {
        self.map = map;
    }

    /// The shard of a client whose login has this database; `None` if that is no shard any more.
    pub fn shard_of_login(&self, database: &str) -> Option<Shard> {
        self.map.shard_named(database)
    }

    /// The BEGIN of the client's transaction goes to its server. Returns its text.
    pub(crate) fn begins(&mut self) -> Box<[u8]> {
        self.part = None;
        self.transaction.begins()
    }

    /// The client has no server.
    fn forgets_server(&mut self) {
        self.transaction.loses_server();
        if !self.transaction.is_begun() {
            self.local = None;
        }
    }

    /// A statement of the transaction goes to the client's server.
    pub(crate) fn goes_on(&mut self, decision: &Decision, text: Option<&[u8]>) {
        self.transaction.goes_on(decision, text);
    }

    /// True if the transaction must be begun on another shard than `at`, and can be.
    pub fn has_guessed_wrong(&self, decision: &Decision, at: Option<Shard>) -> bool {
        self.transaction.is_guessed()
            && at.is_some()
            && decision.must_be_at().is_some_and(|must| at != Some(must))
    }

    /// Why messages under way are refused.
    pub(crate) fn refusal(&self) -> Option<&ShardError> {
        self.refused.as_ref()
    }

    /// A message of the client is refused for this reason.
    pub(crate) fn refuses(&mut self, error: ShardError) {
        self.refused = Some(error);
    }

    /// The client's transaction says this.
    pub(crate) fn says_locally(&mut self, hint: Option<Hint>) {
        self.local = hint;
    }

    /// The client's transaction is over, and the client keeps its server.
    pub(crate) fn transaction_is_over(&mut self) {
        self.local = None;
        self.transaction = Transaction::AtServer;
    }

    /// The client takes back what it has said in its session.
    pub(crate) fn says_as_at_login(&mut self) {
        self.session.clone_from(&self.at_login);
    }

    /// What the client says for its session, and said at its login.
    pub(crate) fn hints(&self) -> [Option<&Hint>; 2] {
        [self.session.as_ref(), self.at_login.as_ref()]
    }

    /// The client came from another worker or process, where it said this for its session.
    pub(crate) fn goes_on_with(&mut self, session: Option<Hint>) {
        self.session = session;
    }

    /// The value of a setting now; empty if the client does not set it.
    pub fn value(&self, setting: ShardSetting) -> &str {
        let hint = self.local.as_ref().or(self.session.as_ref());
        let said = hint.map(setting_of).filter(|(of, _)| *of == setting);
        said.map_or("", |(_, value)| value)
    }

    /// The shard of a hint.
    pub fn shard_of(&self, hint: &Hint) -> Result<Shard, ShardError> {
        Ok(hint.shard(&self.map)?)
    }

    /// The shard of a decision, for a client without a server that is `at` this one.
    fn shard_of_decision(
        &self,
        decision: Decision,
        at: Option<Shard>,
    ) -> Result<Shard, ShardError> {
        let here = at.unwrap_or(Shard(0));
        match decision {
            Decision::At(shard) => Ok(shard),
            Decision::Guess { .. } if self.transaction.is_begun() => Ok(here),
            Decision::NoKey(kind) | Decision::Guess { kind, .. } => Ok(match kind {
                NoKey::Catalogue | NoKey::First => Shard(0),
                NoKey::Replicated { home, write } if write || !self.transaction.is_begun() => home,
                _ => here,
            }),
            Decision::Refused(error) => Err(error),
            Decision::NeedsCatalogue { .. } => Err(ShardError::no_hint()),
        }
    }

    /// Whether a decision fits the server that the client has, which is `at` this shard.
    pub fn fits(&self, decision: &Decision, at: Option<Shard>) -> Result<(), ShardError> {
        match (decision, decision.must_be_at()) {
            (Decision::Refused(error), _) => Err(error.clone()),
            (Decision::NeedsCatalogue { .. }, _) => Err(ShardError::no_hint()),
            (_, Some(must)) if at != Some(must) => {
                Err(ShardError::elsewhere(&self.map, at.unwrap_or(must), must))
            }
            _ => Ok(()),
        }
    }

    /// The shard that the client says, whatever its statement is.
    fn hinted(&self) -> Option<Result<Shard, ShardError>> {
        let hint = self.local.as_ref().or(self.session.as_ref())?;
        Some(hint.shard(&self.map).map_err(ShardError::from))
    }

    /// Where a statement belongs that is too long to be read.
    fn unread(&self) -> Decision {
        match self.hinted() {
            Some(Ok(shard)) => Decision::At(shard),
            Some(Err(error)) => Decision::Refused(error),
            None if self.rehearses() => Decision::At(Shard(0)),
            None => Decision::Refused(ShardError::too_long()),
        }
    }

    /// The catalogue has been read again for the client's statement: a name that is unknown now does
    /// not exist.
    pub(crate) fn knows_all(&mut self, all: bool) {
        self.is_final = all;
    }

    /// A message may bring its client to another server a few times: the rule that places a client reads a whole
    /// group, and a server's gate reads its first statement, so both could disagree for ever.
    pub(crate) fn may_be_placed_anew(&mut self) -> bool {
        let may = self.placed_anew < MOST_PLACED;
        self.placed_anew += u8::from(may);
        may
    }

    /// The message under way passes, or is refused.
    pub(crate) fn settles_message(&mut self) {
        self.placed_anew = 0;
    }

    /// True if the group under way has bound a statement.
    pub fn has_bound(&self) -> bool {
        self.bound
    }

    /// The group under way binds a statement; or it begins, and has bound none.
    pub(crate) fn binds(&mut self, bound: bool) {
        self.bound = bound;
    }

    /// True if a decision about the client's statement may be handed on: the client says nothing that
    /// holds for less than its session, and nothing but the decision counts.
    fn hands_on(&self) -> bool {
        self.local.is_none() && !self.is_final && !self.rehearses()
    }

    /// True if the catalogue has been read again for the client's statement.
    pub fn has_all(&self) -> bool {
        self.is_final
    }
}
