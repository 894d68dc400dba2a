//! To which shard a statement belongs: what its plan proves, and what its client says.

use howdah_shard::{Hint, NoKey, Plan, Planned, Values, Verdict};

use crate::config::Shard;
use crate::effect::{ShardedText, repeats};
use crate::shard::bound_text::{BoundText, Decision, PlanReader};
use crate::shard::error::ShardError;
use crate::shard::{Sharded, setting_of};

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
            return Ok(of_session(&read, text));
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
        if hint.is_some_and(|hint| !reader.names.utf8 && !setting_of(hint).1.is_ascii()) {
            return Err(ShardError::unread_hint());
        }
        let said = hint;
        let hint = said.map(|hint| hint.shard(&self.map)).transpose()?;
        if reader.is_private || reader.is_another {
            let error = match reader.is_private {
                true => ShardError::private(),
                false => ShardError::another_user(),
            };
            return hint.map(Decision::At).ok_or(error);
        }
        let Some(planner) = reader.planner.as_deref_mut() else {
            return Ok(Decision::NeedsCatalogue { unknown: false });
        };
        let planned = match statement.again {
            true => planner.plan_bound(text, &reader.names),
            false => planner.plan(text, &reader.names),
        };
        let verdict = match &planned {
            Ok(Planned { plan, .. }) if plan.has_unknown_name && !is_final && hint.is_none() => {
                return Ok(Decision::NeedsCatalogue { unknown: true });
            }
            Ok(Planned { plan, constants }) => {
                let values = Values {
                    text,
                    constants,
                    parameters: &statement.parameters,
                    same_encoding: reader.same_encoding,
                };
                if let Some(spread) = reader.spread {
                    let verdict = plan.place(spread, &values);
                    reader.noted.spread(spread, verdict, said);
                }
                plan.place(&self.map, &values)
            }
            Err(refusal) => Verdict::Refused(refusal.clone()),
        };
        let verdict = match hint {
            Some(hint) => verdict.with_hint(&self.map, hint),
            None => verdict,
        };
        let plan = planned.ok().map(|planned| planned.plan);
        Ok(match verdict {
            Verdict::Shard(shard) => Decision::At(shard),
            Verdict::NoKey(no_key) => self.anywhere(plan.as_deref(), no_key)?,
            Verdict::Refused(refusal) if refusal.has_unknown_name && !is_final => {
                Decision::NeedsCatalogue { unknown: true }
            }
            Verdict::Refused(refusal) => {
                let trouble = reader.trouble.filter(|_| refusal.has_unknown_name);
                let error = ShardError::from(refusal);
                Decision::Refused(match trouble {
                    Some((shard, why)) => error.with_trouble(shard, why),
                    None => error,
                })
            }
        })
    }

    /// Where a statement without a key may run: anywhere, if its names mean the same on all shards.
    fn anywhere(&self, plan: Option<&Plan>, no_key: NoKey) -> Result<Decision, ShardError> {
        let map = &self.map;
        let has = |shard: Shard| plan.is_none_or(|plan| plan.shards(map).has(shard));
        let (some, others): (Vec<Shard>, Vec<Shard>) = map.all().iter().partition(|of| has(*of));
        let Some(lacks) = others.first() else {
            let may_guess = is_repeatable(no_key) && plan.is_some_and(|plan| plan.guess);
            return Ok(match may_guess {
                true => Decision::Guess {
                    kind: no_key,
                    repeats: false,
                },
                false => Decision::NoKey(no_key),
            });
        };
        match (no_key, &some[..]) {
            (NoKey::Replicated { home, .. }, _) if has(home) => Ok(Decision::At(home)),
            (NoKey::Catalogue | NoKey::First, _) if has(Shard(0)) => Ok(Decision::At(Shard(0))),
            (_, [only]) => Ok(Decision::At(*only)),
            _ => {
                let checked = plan.map_or(Ok(()), |plan| plan.check(map, *lacks));
                checked.map_err(ShardError::from)?;
                Err(ShardError::no_hint())
            }
        }
    }
}

/// Where a command about the session or the transaction belongs.
fn of_session(read: &ShardedText, text: &[u8]) -> Decision {
    let guess = |kind, repeats| Decision::Guess { kind, repeats };
    match (read, repeats(text)) {
        (ShardedText::Begin(_), _) => guess(NoKey::Begin, true),
        (ShardedText::Nothing, _) => guess(NoKey::Any, false),
        (_, Some(repeats)) => guess(NoKey::Setting, repeats),
        (_, None) => Decision::NoKey(NoKey::Setting),
    }
}

/// True for reads whose answer counts, wherever the transaction goes on.
fn is_repeatable(kind: NoKey) -> bool {
    matches!(
        kind,
        NoKey::Any | NoKey::Catalogue | NoKey::Replicated { write: false, .. }
    )
}
