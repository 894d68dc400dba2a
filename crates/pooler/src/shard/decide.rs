//! To which shard a statement belongs: what its plan proves, and what its client says.

use howdah_shard::{Hint, NoKey, Values, Verdict};

use crate::config::ShardMap;
use crate::effect::{ShardedText, repeats};
use crate::shard::Sharded;
use crate::shard::bound_text::{BoundText, Decision, PlanReader};
use crate::shard::error::ShardError;

impl Sharded {
    /// Where a statement belongs. `is_final`: a name that the catalogue lacks does not exist.
    pub fn decide(
        &self,
        statement: &BoundText<'_>,
        reader: &mut PlanReader<'_>,
        is_final: bool,
    ) -> Decision {
        let decision = self.decided(statement, reader, is_final);
        let decision = decision.unwrap_or_else(Decision::Refused);
        self.rehearsed(decision, statement, reader)
    }

    fn decided(
        &self,
        statement: &BoundText<'_>,
        reader: &mut PlanReader<'_>,
        is_final: bool,
    ) -> Result<Decision, ShardError> {
        let Some(text) = statement.text else {
            return Ok(self.unread());
        };
        let read = ShardedText::read(text);
        if read == ShardedText::Prepares {
            return Err(ShardError::sql_prepare());
        }
        if read != ShardedText::Other {
            // Whatever a client says of its shard: a COMMIT is for the transaction that there is.
            return Ok(match repeats(text) {
                Some(repeats) => Decision::Guess { repeats },
                None => Decision::NoKey(NoKey::Setting),
            });
        }
        let comment = match self.local {
            None => Hint::read(text, reader.names.escapes)?,
            Some(_) => None,
        };
        let comment = comment.map(|comment| comment.hint);
        let hint = self
            .local
            .as_ref()
            .or(comment.as_ref())
            .or(self.session.as_ref());
        let said = hint;
        let hint = said.map(|hint| hint.shard(&self.map)).transpose()?;
        if reader.is_private {
            return hint.map(Decision::At).ok_or_else(ShardError::private);
        }
        let Some((verdict, may_guess)) = plan(&self.map, text, (statement, said), reader) else {
            return Ok(Decision::NeedsCatalogue { unknown: false });
        };
        let is_alone = verdict == Verdict::NoKey(NoKey::Any);
        let guess = (may_guess && is_alone).then_some(false);
        let verdict = match hint {
            Some(hint) => verdict.with_hint(&self.map, hint),
            None => verdict,
        };
        Ok(match (verdict, guess) {
            (Verdict::Shard(shard), _) => Decision::At(shard),
            (Verdict::NoKey(_), Some(repeats)) => Decision::Guess { repeats },
            (Verdict::NoKey(no_key), None) => Decision::NoKey(no_key),
            (Verdict::Refused(refusal), _) if refusal.has_unknown_name && !is_final => {
                Decision::NeedsCatalogue { unknown: true }
            }
            (Verdict::Refused(refusal), _) => Decision::Refused(refusal.into()),
        })
    }
}

/// What the plan of a text says with these values, and whether the text may run on a guess. `None`
/// while the catalogue is not known.
fn plan(
    map: &ShardMap,
    text: &[u8],
    (statement, said): (&BoundText<'_>, Option<&Hint>),
    reader: &mut PlanReader<'_>,
) -> Option<(Verdict, bool)> {
    let planner = reader.planner.as_deref_mut()?;
    Some(match planner.plan(text, &reader.names) {
        Ok(planned) => {
            let values = Values {
                text,
                constants: &planned.constants,
                parameters: &statement.parameters,
                same_encoding: reader.same_encoding,
            };
            if let Some(spread) = reader.spread {
                let verdict = planned.plan.place(spread, &values);
                reader.noted.spread(spread, verdict, said);
            }
            (planned.plan.place(map, &values), planned.plan.guess)
        }
        Err(refusal) => (Verdict::Refused(refusal), false),
    })
}
