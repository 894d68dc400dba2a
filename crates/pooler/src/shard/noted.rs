//! What is noted of a statement while its shard is found.

use howdah_shard::{Hint, Verdict};

use crate::config::{Shard, ShardMap};
use crate::shard::error::ShardError;

/// What is noted of a statement, besides where it goes.
#[derive(Debug, Default)]
pub struct Noted {
    /// The beginning of a text that is refused.
    pub(super) text: Option<Box<[u8]>>,
    /// Why the statement would be refused if there were several shards.
    pub(super) refusal: Option<ShardError>,
    /// The part of the spread map that has the rows of the statement.
    pub(super) part: Option<Shard>,
}

impl Noted {
    /// Why the statement would be refused if there were several shards.
    pub fn refusal(&self) -> Option<&ShardError> {
        self.refusal.as_ref()
    }

    /// Notes where a statement would go if there were several shards.
    pub(super) fn spread(&mut self, map: &ShardMap, verdict: Verdict, hint: Option<&Hint>) {
        let verdict = match hint {
            None => verdict,
            // A shard that a client names has all that the client wants.
            Some(Hint::Shard(_)) => return,
            Some(hint) => match hint.shard(map) {
                Ok(part) => verdict.with_hint(map, part),
                Err(refusal) => Verdict::Refused(refusal),
            },
        };
        self.part = verdict.must();
        if let Verdict::Refused(refusal) = verdict {
            self.refusal = Some(refusal.into());
        }
    }
}
