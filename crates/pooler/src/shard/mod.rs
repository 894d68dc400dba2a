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
pub mod group;
pub mod lore;
pub mod noted;
mod place;
pub mod planning;
mod read;
pub mod rehearsal;
mod reload;
pub mod tally;

use std::sync::Arc;

use howdah_shard::{Hint, NoKey};
use howdah_wire::backend::Status;

use crate::config::{Shard, ShardMap};
use crate::effect::{ShardSetting, ShardedText};
use crate::limits;
use crate::shard::answer::OwnAnswer;
use crate::shard::bound_text::Decision;
use crate::shard::error::ShardError;

pub(crate) use place::Placing;

/// What a client of a sharded database has besides.
#[derive(Debug)]
pub struct Sharded {
    /// Where the rows lie.
    pub map: Arc<ShardMap>,
    /// The number of the shard whose login the client is in; `None` if a reload has removed it.
    at: Option<Shard>,
    /// What the client says for its session.
    session: Option<Hint>,
    /// What it said at its login, and says again after RESET.
    at_login: Option<Hint>,
    /// What it says for its transaction.
    local: Option<Hint>,
    /// A transaction that no server knows yet.
    begun: Option<Begun>,
    /// The client's server needs this BEGIN before the client's next message.
    begins: bool,
    /// The transaction runs where the client was, on a guess.
    guess: Option<Guess>,
    /// Why messages under way are refused.
    refused: Option<ShardError>,
    /// The catalogue has been read again for the client's statement.
    is_final: bool,
    /// The group of messages under way has bound a statement.
    bound: bool,
    /// The part of the spread map that the transaction has touched.
    part: Option<Shard>,
}

/// A transaction of which no statement says its shard yet. It can be rolled back and begun elsewhere.
#[derive(Debug, Default)]
struct Guess {
    /// The client's BEGIN.
    begin: Box<[u8]>,
    /// The commands to repeat, in order.
    commands: Vec<Box<[u8]>>,
    /// How many statements have run.
    count: usize,
}

/// A transaction that Howdah has begun for a client, without a server.
#[derive(Debug)]
struct Begun {
    /// The client's BEGIN.
    text: Box<[u8]>,
    /// A statement was refused: the transaction has failed.
    failed: bool,
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

impl Sharded {
    /// A client that begins.
    pub fn new(map: Arc<ShardMap>, hint: Option<Hint>) -> Sharded {
        Sharded {
            map,
            at: Some(Shard(0)),
            session: hint.clone(),
            at_login: hint,
            local: None,
            begun: None,
            begins: false,
            guess: None,
            refused: None,
            is_final: false,
            bound: false,
            part: None,
        }
    }

    /// A reload has changed the map.
    pub(crate) fn gets(&mut self, map: Arc<ShardMap>) {
        let name = self.at.map(|at| self.map.name_of(at).to_owned());
        self.at = name.and_then(|name| map.shard_named(&name));
        self.map = map;
    }

    /// The shard whose login the client is in.
    pub fn at(&self) -> Option<Shard> {
        self.at
    }

    /// The state of the transaction, while the client has no server.
    pub fn status(&self) -> Status {
        match &self.begun {
            None => Status::Idle,
            Some(begun) if begun.failed => Status::Failed,
            Some(_) => Status::Transaction,
        }
    }

    /// True if Howdah has begun a transaction of which no server knows.
    pub fn is_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// True if the client's server must begin a transaction before the client's next message.
    pub fn begins(&self) -> bool {
        self.begins
    }

    /// The BEGIN goes to the client's server now.
    pub(crate) fn takes_begin(&mut self) -> Option<Box<[u8]>> {
        self.begins = false;
        self.part = None;
        let text = self.begun.take()?.text;
        if let Some(guess) = &mut self.guess {
            guess.begin.clone_from(&text);
        }
        Some(text)
    }

    /// The client's next message goes to its shard; `begins`: behind its BEGIN.
    fn goes(&mut self, begins: bool, decision: &Decision) {
        self.begins = begins && self.is_begun();
        let guesses = self.begins && matches!(decision, Decision::Guess { .. });
        // The message itself is noted when it is sent.
        self.guess = guesses.then(Guess::default);
    }

    /// A statement of the transaction runs where the client is. If it says its shard, or may not run
    /// twice, the transaction stays there.
    pub(crate) fn guesses(&mut self, decision: &Decision, text: Option<&[u8]>) {
        let Some(guess) = &mut self.guess else {
            return;
        };
        guess.count += 1;
        match (decision, text) {
            (Decision::Guess { .. }, _) if guess.count > limits::GUESSED => self.guess = None,
            (Decision::Guess { repeats: false }, _) => {}
            (Decision::Guess { repeats: true }, Some(text)) => guess.commands.push(text.into()),
            _ => self.guess = None,
        }
    }

    /// True if the transaction must be begun on another shard, and can be.
    pub fn has_guessed_wrong(&self, decision: &Decision) -> bool {
        self.guess.is_some()
            && self.at.is_some()
            && self
                .must_be_at(decision)
                .is_some_and(|must| self.at != Some(must))
    }

    /// True while no statement of the transaction has said its shard.
    pub fn is_guessing(&self) -> bool {
        self.guess.is_some()
    }

    /// The transaction is rolled back where it is, and begins again elsewhere.
    pub(crate) fn begins_elsewhere(&mut self) {
        if let Some(guess) = self.guess.take() {
            let mut text = guess.begin.into_vec();
            for command in guess.commands {
                // The command before may end in a comment.
                text.extend_from_slice(b"\n;");
                text.extend_from_slice(&command);
            }
            self.begun = Some(Begun {
                text: text.into(),
                failed: false,
            });
        }
    }

    /// The client has no server, and no transaction anywhere.
    fn forgets_transaction(&mut self) {
        if self.begun.is_none() {
            self.local = None;
            self.guess = None;
        }
    }

    /// A message of the client has failed.
    pub(crate) fn fails(&mut self) {
        if let Some(begun) = &mut self.begun {
            begun.failed = true;
        }
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
        self.guess = None;
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

    /// The shard of a decision, for a client without a server.
    fn shard_of_decision(&self, decision: Decision) -> Result<Shard, ShardError> {
        match decision {
            Decision::At(shard) => Ok(shard),
            Decision::NoKey(NoKey::Catalogue | NoKey::First) => Ok(Shard(0)),
            Decision::NoKey(NoKey::Replicated { home, write }) if write || !self.is_begun() => {
                Ok(home)
            }
            Decision::NoKey(_) | Decision::Guess { .. } => Ok(self.at.unwrap_or(Shard(0))),
            Decision::Refused(error) => Err(error),
            Decision::NeedsCatalogue { .. } => Err(ShardError::no_hint()),
        }
    }

    /// The shard at which a statement must run, if there is one.
    fn must_be_at(&self, decision: &Decision) -> Option<Shard> {
        match decision {
            Decision::At(shard) => Some(*shard),
            Decision::NoKey(NoKey::First) => Some(Shard(0)),
            Decision::NoKey(NoKey::Replicated { home, write: true }) => Some(*home),
            _ => None,
        }
    }

    /// Whether a decision fits the server that the client has.
    pub fn fits(&self, decision: &Decision) -> Result<(), ShardError> {
        match (decision, self.must_be_at(decision)) {
            (Decision::Refused(error), _) => Err(error.clone()),
            (Decision::NeedsCatalogue { .. }, _) => Err(ShardError::no_hint()),
            (_, Some(must)) if self.at != Some(must) => {
                let at = self.at.unwrap_or(must);
                Err(ShardError::elsewhere(&self.map, at, must))
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

    /// True if the group under way has bound a statement.
    pub fn has_bound(&self) -> bool {
        self.bound
    }

    /// The group under way binds a statement; or it begins, and has bound none.
    pub(crate) fn binds(&mut self, bound: bool) {
        self.bound = bound;
    }

    /// True if the catalogue has been read again for the client's statement.
    pub fn has_all(&self) -> bool {
        self.is_final
    }

    /// Answers a text of a client without a server; `None` if a server must.
    fn answers(&mut self, text: &[u8]) -> Option<Result<OwnAnswer, ShardError>> {
        let read = ShardedText::read(text);
        let done = |tag| Some(Ok(OwnAnswer::Done(tag)));
        if self.status() == Status::Failed {
            return match read {
                ShardedText::Rollback | ShardedText::Commit => {
                    self.ends_unsent();
                    done("ROLLBACK")
                }
                _ => Some(Err(ShardError::aborted())),
            };
        }
        let is_begun = self.is_begun();
        match read {
            ShardedText::Begin(tag) if !is_begun => {
                self.begun = Some(Begun {
                    text: text.into(),
                    failed: false,
                });
                done(tag)
            }
            ShardedText::Commit if is_begun => {
                self.ends_unsent();
                done("COMMIT")
            }
            ShardedText::Rollback if is_begun => {
                self.ends_unsent();
                done("ROLLBACK")
            }
            ShardedText::Set {
                setting,
                value,
                local,
            } => Some(self.sets((setting, value), local, is_begun)),
            ShardedText::Reset(_) if is_begun => Some(Err(ShardError::set_inside())),
            ShardedText::Reset(_) => {
                self.says_as_at_login();
                done("RESET")
            }
            ShardedText::Show(setting) => {
                let value = self.value(setting).into();
                Some(Ok(OwnAnswer::Row(setting, value)))
            }
            ShardedText::ResetAll if !is_begun => {
                self.says_as_at_login();
                None
            }
            _ => None,
        }
    }

    fn ends_unsent(&mut self) {
        self.begun = None;
        self.local = None;
    }

    fn sets(
        &mut self,
        (setting, value): (ShardSetting, Option<Box<[u8]>>),
        local: bool,
        is_begun: bool,
    ) -> Result<OwnAnswer, ShardError> {
        if is_begun && !local {
            return Err(ShardError::set_inside());
        }
        let hint = value.map(|value| hint_of(setting, &value));
        if let Some(hint) = &hint {
            hint.shard(&self.map)?;
        }
        match (local, hint) {
            (true, _) if !is_begun => return Ok(OwnAnswer::LocalOutside),
            (true, hint) => self.local = hint,
            (false, None) => self.says_as_at_login(),
            (false, hint) => self.session = hint,
        }
        Ok(OwnAnswer::Done("SET"))
    }
}
