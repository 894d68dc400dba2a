//! Commands that Howdah itself answers for a client of a sharded database without a server: what the
//! client says of its shard, and the ends of a transaction of which no server knows.

use howdah_wire::backend::Status;

use crate::config::Shard;
use crate::effect::{ShardSetting, ShardedText, ends_first};
use crate::shard::answer::OwnAnswer;
use crate::shard::bound_text::Decision;
use crate::shard::error::ShardError;
use crate::shard::transaction::Transaction;
use crate::shard::{Sharded, hint_of};

impl Sharded {
    /// Answers a text of a client without a server; `None` if a server must.
    pub(super) fn answers(&mut self, text: &[u8]) -> Option<Result<OwnAnswer, ShardError>> {
        let read = ShardedText::read(text);
        let done = |tag| Some(Ok(OwnAnswer::Done(tag)));
        if self.transaction.status() == Status::Failed {
            return match read {
                ShardedText::Rollback | ShardedText::Commit => {
                    self.ends_unsent();
                    done("ROLLBACK")
                }
                _ if ends_first(text) => None,
                _ => Some(Err(ShardError::aborted())),
            };
        }
        let is_begun = self.transaction.is_begun();
        match read {
            ShardedText::Begin(tag) if !is_begun => {
                self.transaction = Transaction::begun(text);
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
            _ => None,
        }
    }

    /// Answers SET, RESET and SHOW of a hint for a client that keeps its server `at` a shard, outside of
    /// a transaction.
    pub(crate) fn answers_at(
        &mut self,
        text: &[u8],
        at: Option<Shard>,
    ) -> Option<Result<OwnAnswer, ShardError>> {
        if let ShardedText::Set {
            setting,
            value: Some(value),
            local: false,
        } = ShardedText::read(text)
        {
            match self.shard_of(&hint_of(setting, &value)) {
                Ok(shard) if at == Some(shard) => {}
                Ok(shard) => return Some(Err(ShardError::kept(&self.map, at, shard))),
                Err(error) => return Some(Err(error)),
            }
        }
        self.answers(text)
    }

    /// The shard that SET LOCAL of a hint says, if it is among these commands.
    pub fn local_hint(&self, texts: &[Box<[u8]>]) -> Option<Decision> {
        let hint = texts
            .iter()
            .find_map(|text| match ShardedText::read(text) {
                ShardedText::Set {
                    setting,
                    value: Some(value),
                    local: true,
                } => Some(hint_of(setting, &value)),
                _ => None,
            })?;
        Some(Decision::At(self.shard_of(&hint).ok()?))
    }

    /// Answers all commands of a group, up to the first that fails. `None` if a server must answer one
    /// of them; then nothing has happened.
    pub(super) fn answers_all(
        &mut self,
        texts: &[Box<[u8]>],
    ) -> Option<Vec<Result<OwnAnswer, ShardError>>> {
        let before = (
            self.session.clone(),
            self.local.clone(),
            self.transaction.to_unsent(),
        );
        let mut answers = Vec::new();
        for text in texts {
            match self.answers(text) {
                Some(answer) => answers.push(answer),
                None => {
                    (self.session, self.local, self.transaction) = before;
                    return None;
                }
            }
            if let Some(Err(_)) = answers.last() {
                // PostgreSQL takes back what the group has set.
                self.session = before.0;
                break;
            }
        }
        Some(answers)
    }

    fn ends_unsent(&mut self) {
        self.transaction = Transaction::AtServer;
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
            self.shard_of(hint)?;
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
