//! To which shard a statement belongs: what its plan proves, and what its client says.

use howdah_shard::{Hint, NoKey, Values, Verdict};

use crate::config::ShardMap;
use crate::effect::ShardedText;
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
        match decision {
            Ok(decision) => decision,
            Err(error) => Decision::Refused(error),
        }
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
        let hint = hint.map(|hint| hint.shard(&self.map)).transpose()?;
        let of_session = !matches!(read, ShardedText::Other);
        let verdict = if of_session {
            Verdict::NoKey(NoKey::Setting)
        } else if reader.is_private {
            return hint.map(Decision::At).ok_or_else(ShardError::private);
        } else {
            match plan(&self.map, text, statement, reader) {
                Some(verdict) => verdict,
                None => return Ok(Decision::NeedsCatalogue { unknown: false }),
            }
        };
        let verdict = match hint {
            Some(hint) => verdict.with_hint(&self.map, hint),
            None => verdict,
        };
        Ok(match verdict {
            Verdict::Shard(shard) => Decision::At(shard),
            Verdict::NoKey(no_key) => Decision::NoKey(no_key),
            Verdict::Refused(refusal) if refusal.has_unknown_name && !is_final => {
                Decision::NeedsCatalogue { unknown: true }
            }
            Verdict::Refused(refusal) => Decision::Refused(refusal.into()),
        })
    }
}

/// What the plan of a text says with these values; `None` while the catalogue is not known.
fn plan(
    map: &ShardMap,
    text: &[u8],
    statement: &BoundText<'_>,
    reader: &mut PlanReader<'_>,
) -> Option<Verdict> {
    let planner = reader.planner.as_deref_mut()?;
    Some(match planner.plan(text, &reader.names) {
        Ok(planned) => planned.plan.place(
            map,
            &Values {
                text,
                constants: &planned.constants,
                parameters: &statement.parameters,
                same_encoding: reader.same_encoding,
            },
        ),
        Err(refusal) => Verdict::Refused(refusal),
    })
}
