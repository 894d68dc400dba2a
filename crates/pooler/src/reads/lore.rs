//! What a login knows about the reads of its database.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::effect::VolatileNames;
use crate::ids::Time;
use crate::limits;
use crate::reads::tally::ReadCounts;
use crate::roster::round::Covers;

/// How long the names of volatile functions are believed, in nanoseconds.
const BELIEVED_NS: u64 = 60_000_000_000;

/// When a question without an answer is asked again, in nanoseconds.
const ASKED_AGAIN_NS: u64 = 5_000_000_000;

/// After so long without an answer, nothing is known of the functions, in nanoseconds.
const FORGOTTEN_NS: u64 = 600_000_000_000;

/// What a login knows about the reads of its database.
#[derive(Debug, Default)]
pub struct LoginReads {
    /// The volatile functions; `None` until PostgreSQL has told.
    volatile: Option<Arc<VolatileNames>>,
    /// When PostgreSQL has told.
    learned: Time,
    /// When to ask for them, if the schema does not change.
    ask_at: Time,
    /// When they may be asked for again, if the schema has changed.
    rests_until: Time,
    /// [`crate::statement::Interner::schema`] when PostgreSQL was asked for what it has told.
    schema: u64,
    /// Texts that standbys have refused, and the primary has not.
    at_primary: HashSet<u64, FixedState>,
    /// What the standbys cover, as they have told last.
    covers: Option<Arc<Covers>>,
    /// Where reads have gone.
    pub(crate) counts: ReadCounts,
}

impl LoginReads {
    /// The volatile functions of the database, once they are known.
    #[inline]
    pub fn volatile(&self) -> Option<&VolatileNames> {
        self.volatile.as_deref()
    }

    /// What the standbys cover, as they have told last.
    pub fn covers(&self) -> Option<&Covers> {
        self.covers.as_deref()
    }

    /// The standbys have told what they cover.
    pub fn set_covers(&mut self, covers: Option<Arc<Covers>>) {
        self.covers = covers;
    }

    /// The schema that the volatile functions are of.
    pub(super) fn schema(&self) -> u64 {
        self.schema
    }

    /// Single reads do not go to standbys any more, or the database is another one.
    pub fn forget(&mut self) {
        *self = LoginReads {
            counts: self.counts,
            covers: self.covers.take(),
            ..LoginReads::default()
        };
    }

    /// True if PostgreSQL must be asked for the volatile functions. The caller does so.
    pub fn asks(&mut self, now: Time, schema: u64) -> bool {
        let is_changed = self.schema != schema && now >= self.rests_until;
        if now < self.ask_at && !is_changed {
            return false;
        }
        if now.0 >= self.learned.0 + FORGOTTEN_NS {
            self.volatile = None;
        }
        self.ask_at = Time(now.0 + ASKED_AGAIN_NS);
        self.rests_until = self.ask_at;
        true
    }

    /// PostgreSQL has told the volatile functions. The schema is that of the question. They are asked
    /// for again `later` than the usual time, in nanoseconds.
    pub fn learn(&mut self, volatile: Arc<VolatileNames>, now: Time, schema: u64, later: u64) {
        if self.schema != schema || self.volatile.as_ref() != Some(&volatile) {
            self.at_primary.clear();
        }
        self.ask_at = Time(now.0 + BELIEVED_NS + later);
        self.rests_until = Time(now.0 + ASKED_AGAIN_NS);
        self.schema = schema;
        self.learned = now;
        self.volatile = Some(volatile);
    }

    /// A standby has refused this text, and the primary has not.
    pub fn keep_at_primary(&mut self, text: u64) {
        if self.at_primary.len() >= limits::TEXTS_AT_PRIMARY {
            // They may be texts that never come again.
            self.at_primary.clear();
        }
        self.at_primary.insert(text);
    }

    /// True if a text stays with the primary.
    #[inline]
    pub fn stays_at_primary<'a>(&self, text: impl FnOnce() -> Option<&'a [u8]>) -> bool {
        !self.at_primary.is_empty()
            && text().is_some_and(|text| self.at_primary.contains(&text_number(text)))
    }
}

/// The number of a text among those that stay with the primary.
pub fn text_number(text: &[u8]) -> u64 {
    FixedState::default().hash_one(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_asked_for_each_minute_and_after_changes_of_the_schema() {
        let mut reads = LoginReads::default();
        let minute = |times: u64, more: u64| Time(BELIEVED_NS * times + more);
        assert!(reads.asks(minute(1, 0), 0) && !reads.asks(minute(1, 0), 0));
        assert!(!reads.asks(minute(1, 0), 7), "the question is under way");
        assert!(reads.asks(minute(1, ASKED_AGAIN_NS), 7));
        reads.learn(Arc::default(), minute(2, 0), 7, 0);
        assert!(!reads.asks(minute(2, ASKED_AGAIN_NS), 7));
        assert!(!reads.asks(minute(2, 0), 8), "it has just told");
        assert!(
            reads.asks(minute(2, ASKED_AGAIN_NS), 8),
            "the schema has changed"
        );
        reads.learn(Arc::default(), minute(3, 0), 8, 5);
        assert!(!reads.asks(minute(4, 4), 8) && reads.asks(minute(4, 5), 8));
        assert!(reads.volatile().is_some());
        let late = minute(3, FORGOTTEN_NS);
        assert!(reads.asks(late, 8) && reads.volatile().is_none());
        reads.learn(Arc::default(), minute(3, 0), 8, 5);
        reads.forget();
        assert!(reads.volatile().is_none() && reads.asks(minute(4, 5), 8));
    }

    #[test]
    fn a_text_stays_with_the_primary_until_the_schema_changes() {
        let mut reads = LoginReads::default();
        let stays = |reads: &LoginReads, text: &'static [u8]| reads.stays_at_primary(|| Some(text));
        reads.learn(Arc::default(), Time(0), 0, 0);
        reads.keep_at_primary(text_number(b"a"));
        assert!(stays(&reads, b"a") && !stays(&reads, b"b"));
        reads.learn(Arc::default(), Time(1), 0, 0);
        assert!(stays(&reads, b"a"));
        reads.learn(Arc::default(), Time(1), 1, 0);
        assert!(!stays(&reads, b"a"));
        for number in 0..limits::TEXTS_AT_PRIMARY as u64 * 3 / 2 {
            reads.keep_at_primary(number);
        }
        assert_eq!(reads.at_primary.len(), limits::TEXTS_AT_PRIMARY / 2);
    }
}
