//! The rehearsal: with one shard nothing is refused. What would be refused with several is noted.

use crate::config::Shard;
use crate::limits;
use crate::shard::Sharded;
use crate::shard::bound_text::{BoundText, Decision, PlanReader};
use crate::shard::error::ShardError;
use crate::shard::noted::Noted;
use crate::shard::planning::Planning;

impl Sharded {
    /// True if there is one shard only.
    pub fn rehearses(&self) -> bool {
        self.map.shards().len() == 1
    }

    /// Whether a FunctionCall may be sent.
    pub(crate) fn function_call(&self) -> Result<(), ShardError> {
        match self.rehearses() {
            true => Ok(()),
            false => Err(ShardError::function_call()),
        }
    }

    /// What becomes of a decision: with one shard, a refusal is noted, and the statement goes there.
    pub(super) fn rehearsed(
        &self,
        decision: Decision,
        statement: &BoundText<'_>,
        reader: &mut PlanReader<'_>,
    ) -> Decision {
        let noted = &mut reader.noted;
        if statement.text.is_none() && self.rehearses() {
            noted.refusal = Some(ShardError::too_long());
        }
        match decision {
            Decision::Refused(error) if self.rehearses() => {
                noted.refusal = Some(error);
                Decision::At(Shard(0))
            }
            Decision::Refused(error) => {
                let kept = statement
                    .text
                    .map(|text| &text[..text.len().min(limits::FRONT)]);
                noted.text = kept.map(Into::into);
                Decision::Refused(error)
            }
            decision => decision,
        }
    }

    /// True if a statement of the client's transaction touches another part of the spread map than
    /// those before. `begins`: it is the first of its transaction.
    fn leaves_part(&mut self, part: Option<Shard>, begins: bool) -> bool {
        if begins {
            self.part = None;
        }
        let before = self.part;
        self.part = before.or(part);
        before.is_some() && part.is_some() && before != part
    }
}

impl Planning<'_> {
    /// Counts a statement of a client without a server, if it is refused.
    pub fn count_ahead(&mut self, decision: &Decision, noted: &Noted) {
        if let Decision::Refused(error) = decision {
            self.tally
                .count_refusal(noted.text.as_deref(), error, false);
        }
    }

    /// Counts a statement that goes to its client's server, or is refused. `begins`: it is the first
    /// of its transaction.
    pub fn count(
        &mut self,
        sharded: &mut Sharded,
        text: Option<&[u8]>,
        fits: &Result<(), ShardError>,
        (noted, begins): (Noted, bool),
    ) {
        if let Err(error) = fits {
            return self.tally.count_refusal(text, error, false);
        }
        self.tally.count(sharded.shard_of_login(self.shard()));
        if !sharded.rehearses() {
            return;
        }
        let leaves = sharded.leaves_part(noted.part, begins);
        let elsewhere = || leaves.then(ShardError::several_parts);
        if let Some(error) = noted.refusal.or_else(elsewhere) {
            self.tally.count_refusal(text, &error, true);
        }
    }
}
