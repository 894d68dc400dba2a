//! What a worker counts of sharded databases: statements by shard, refusals by text, and how the
//! reading of catalogues goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use howdah_shard::RefusalReason;

use crate::Seeded;
use crate::config::{Shard, ShardMap};
use crate::ids::Time;
use crate::limits;
use crate::queries::text::{QueryText, Texts};
use crate::shard::error::ShardError;

/// The counts of all sharded databases.
#[derive(Debug)]
pub struct ShardTallies {
    seeded: Seeded,
    of: BTreeMap<Arc<str>, ShardTally>,
}

/// The counts of a sharded database.
#[derive(Debug)]
pub struct ShardTally {
    map: Arc<ShardMap>,
    /// The map as if there were several shards, while there is one.
    spread: Option<ShardMap>,
    /// By shard.
    shards: Vec<ShardCounts>,
    texts: Texts,
    /// By text and reason, so many at most: [`limits::REFUSED_TEXTS`].
    refused: BTreeMap<(Arc<QueryText>, RefusalReason), RefusedText>,
    /// By reason: refusals, and statements that would have been refused with several shards.
    reasons: BTreeMap<RefusalReason, [u64; 2]>,
    now: Time,
}

/// The counts of a shard.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ShardCounts {
    /// Statements that went there.
    pub statements: u64,
    /// When its catalogue was read last.
    pub read: Option<Time>,
    /// How often its catalogue could not be read.
    pub failures: u64,
    /// Why not, if that was so the last time.
    pub error: Option<String>,
}

/// A text that was refused, or that would have been with several shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedText {
    /// The text without its constants.
    pub text: Arc<QueryText>,
    /// How often.
    pub count: u64,
    /// When last.
    pub last: Time,
    /// The last refusal.
    pub error: ShardError,
    /// The text has run: there is only one shard.
    pub is_rehearsal: bool,
}

impl ShardCounts {
    /// Adds another worker's counts.
    pub(crate) fn add(&mut self, other: &ShardCounts) {
        self.statements += other.statements;
        self.read = self.read.max(other.read);
        self.failures += other.failures;
        self.error = self.error.take().or_else(|| other.error.clone());
    }
}

impl RefusedText {
    /// Adds another worker's count of the text.
    pub(crate) fn add(&mut self, other: &RefusedText) {
        self.count += other.count;
        if other.last > self.last {
            self.last = other.last;
            self.is_rehearsal = other.is_rehearsal;
            self.error.clone_from(&other.error);
        }
    }
}

impl ShardTallies {
    /// Nothing is counted yet.
    pub fn new(seeded: Seeded) -> ShardTallies {
        ShardTallies {
            seeded,
            of: BTreeMap::new(),
        }
    }

    /// The counts of a database.
    pub fn of(&mut self, database: &Arc<str>, map: &Arc<ShardMap>, now: Time) -> &mut ShardTally {
        let new = || ShardTally::new(self.seeded, map);
        let tally = self.of.entry(database.clone()).or_insert_with(new);
        tally.now = now;
        if !Arc::ptr_eq(&tally.map, map) {
            tally.follow(map);
        }
        tally
    }

    /// The counts of a database, if there are any.
    pub fn get(&self, database: &str) -> Option<&ShardTally> {
        self.of.get(database)
    }

    /// Forgets databases that are sharded no more.
    pub fn keep(&mut self, is_sharded: impl Fn(&str) -> bool) {
        self.of.retain(|name, _| is_sharded(name));
    }
}

impl ShardTally {
    fn new(seeded: Seeded, map: &Arc<ShardMap>) -> ShardTally {
        let mut tally = ShardTally {
            map: map.clone(),
            spread: None,
            shards: Vec::new(),
            texts: Texts::new(seeded),
            refused: BTreeMap::new(),
            reasons: BTreeMap::new(),
            now: Time(0),
        };
        tally.shards = vec![ShardCounts::default(); map.shards().len()];
        tally.spread = (map.shards().len() == 1).then(|| map.spread());
        tally
    }

    /// A reload has brought another map. Shards keep their counts.
    fn follow(&mut self, map: &Arc<ShardMap>) {
        let counts = map.shards().iter().map(|name| {
            let before = self.map.shard_named(name);
            before.map_or_else(ShardCounts::default, |shard| self.counts(shard))
        });
        self.shards = counts.collect();
        self.map = map.clone();
        self.spread = (map.shards().len() == 1).then(|| map.spread());
    }

    /// The map as if there were several shards, while there is one.
    pub fn spread(&self) -> Option<&ShardMap> {
        self.spread.as_ref()
    }

    /// The counts of a shard.
    pub fn counts(&self, shard: Shard) -> ShardCounts {
        let counts = self.shards.get(usize::from(shard.0));
        counts.cloned().unwrap_or_default()
    }

    /// The counts by reason.
    pub fn reasons(&self) -> &BTreeMap<RefusalReason, [u64; 2]> {
        &self.reasons
    }

    /// The texts that were refused.
    pub fn refused(&self) -> impl Iterator<Item = &RefusedText> {
        self.refused.values()
    }

    /// A statement goes to a shard.
    pub fn count(&mut self, shard: Option<Shard>) {
        let shard = shard.and_then(|shard| self.shards.get_mut(usize::from(shard.0)));
        if let Some(counts) = shard {
            counts.statements += 1;
        }
    }

    /// A statement is refused; or would be, with several shards.
    pub fn count_refusal(&mut self, text: Option<&[u8]>, error: &ShardError, is_rehearsal: bool) {
        self.reasons.entry(error.reason).or_default()[usize::from(is_rehearsal)] += 1;
        let text = match text {
            Some(text) => self.texts.of(text),
            None => self.texts.unknown(),
        };
        if let Some(known) = self.refused.get_mut(&(text.clone(), error.reason)) {
            known.count += 1;
            known.last = self.now;
            known.is_rehearsal = is_rehearsal;
            known.error.clone_from(error);
            return;
        }
        if self.refused.len() >= limits::REFUSED_TEXTS {
            let oldest = self.refused.iter().min_by_key(|(_, refused)| refused.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.refused.remove(&oldest);
            }
        }
        let refused = RefusedText {
            text: text.clone(),
            count: 1,
            last: self.now,
            error: error.clone(),
            is_rehearsal,
        };
        self.refused.insert((text, error.reason), refused);
    }

    /// A catalogue was read, or could not be.
    pub fn catalogue_is_read(&mut self, shard: Shard, is_read: bool) {
        let now = self.now;
        let Some(counts) = self.shards.get_mut(usize::from(shard.0)) else {
            return;
        };
        if is_read {
            (counts.read, counts.error) = (Some(now), None);
        } else {
            counts.failures += 1;
            let none = || "no connection, or no answer in time: SHOW VERDICT says more".to_owned();
            counts.error.get_or_insert_with(none);
        }
    }

    /// Why a catalogue can't be read.
    pub fn catalogue_fails(&mut self, shard: Shard, why: &str) {
        if let Some(counts) = self.shards.get_mut(usize::from(shard.0)) {
            counts.error = Some(why.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(shards: &[&str]) -> Arc<ShardMap> {
        let builder = ShardMap::builder(shards.iter().copied());
        Arc::new(builder.expect("shards").finish())
    }

    #[test]
    fn any_number_of_refused_texts_takes_bounded_memory() {
        let mut tallies = ShardTallies::new(crate::seeded(1));
        let (name, map) = ("prod".into(), map(&["a"]));
        for at in 0..2 * limits::REFUSED_TEXTS as u64 {
            let tally = tallies.of(&name, &map, Time(at));
            let text = format!("select {}", "a".repeat(at as usize % 700 + 1));
            let text = format!("{text}, b{at}");
            tally.count_refusal(Some(text.as_bytes()), &ShardError::no_hint(), true);
        }
        let tally = tallies.of(&name, &map, Time(1));
        assert_eq!(tally.refused().count(), limits::REFUSED_TEXTS);
        let oldest = tally.refused().map(|refused| refused.last).min();
        assert_eq!(oldest, Some(Time(limits::REFUSED_TEXTS as u64)));
        let counts: Vec<_> = tally.reasons().values().copied().collect();
        assert_eq!(counts, [[0, 2 * limits::REFUSED_TEXTS as u64]]);
    }

    #[test]
    fn shards_keep_their_counts_when_the_map_changes() {
        let mut tallies = ShardTallies::new(crate::seeded(1));
        let name = "prod".into();
        let tally = tallies.of(&name, &map(&["a"]), Time(0));
        assert!(tally.spread().is_some());
        tally.count(Some(Shard(0)));
        let tally = tallies.of(&name, &map(&["b", "a"]), Time(0));
        assert!(tally.spread().is_none());
        assert_eq!(tally.counts(Shard(0)).statements, 0);
        assert_eq!(tally.counts(Shard(1)).statements, 1);
    }
}
