//! What is known of the shards of a database: their catalogues.

use std::collections::HashSet;
use std::sync::Arc;

use howdah_shard::{Catalogue, CatalogueReader, Planner, ShardCatalogue};

use crate::config::{Shard, ShardMap};
use crate::ids::Time;

/// How long a catalogue is believed, in nanoseconds.
const BELIEVED_NS: u64 = 60_000_000_000;

/// How soon catalogues are read again because of a name that they lack, in nanoseconds.
const AGAIN_NS: u64 = 1_000_000_000;

/// How soon a catalogue is read again after a schema change, in nanoseconds.
const CHANGED_NS: u64 = 100_000_000;

/// How long statements wait for the catalogue of a shard that does not answer, in nanoseconds.
const PATIENCE_NS: u64 = 5_000_000_000;

/// The pause after the first failed reading, in nanoseconds. Each further failure doubles the pause.
const FAILED_NS: u64 = 1_000_000_000;

/// The longest pause after a failed reading, in nanoseconds.
const FAILED_MOST_NS: u64 = 30_000_000_000;

/// How much memory the plans of a database may take on a worker, about, in bytes.
const PLANS: usize = 16 << 20;

/// How much later each further worker reads, in nanoseconds: the first one reads for all.
const WORKER_NS: u64 = 1_000_000_000;

/// The catalogues of a sharded database, as one worker knows them.
#[derive(Debug)]
pub struct ShardLore {
    map: Arc<ShardMap>,
    shards: Vec<ShardSight>,
    /// How many catalogues there were.
    number: u64,
    /// Makes plans by the catalogue.
    planner: Option<Planner>,
    /// The functions that touch one shard only, as the user says.
    functions: HashSet<String>,
    /// The schema changes that are known, and since when.
    schema: u64,
    changed: Time,
    /// When the last reading of all shards that answer was over.
    looked: Option<Time>,
}

/// What is known of one shard.
#[derive(Clone, Debug, Default)]
struct ShardSight {
    found: Option<Arc<ShardCatalogue>>,
    /// The question that `found` answers.
    read: Option<CatalogueQuestion>,
    /// When PostgreSQL was asked, while the answer is awaited.
    asked: Option<Time>,
    /// The schema changes that were known then.
    asked_schema: u64,
    /// When the last question was over: with an answer or without.
    tried: Option<Time>,
    /// How many questions had no answer, since the last answer.
    failures: u32,
    /// Why the last question had no answer.
    trouble: Option<Arc<str>>,
    /// Since when statements wait for the shard.
    holds_since: Option<Time>,
    /// Statements wait for the shard no longer, while these schema changes are the last ones; and
    /// since when.
    given_up: Option<(u64, Time)>,
}

/// What makes plans, and what it may not know.
#[derive(Debug)]
pub struct PlannerInUse<'a> {
    /// Makes plans.
    pub planner: &'a mut Planner,
    /// A shard whose catalogue could not be read the last time, and why.
    pub trouble: Option<(&'a str, Arc<str>)>,
}

/// When PostgreSQL was asked for a catalogue, and the schema changes that were known then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CatalogueQuestion {
    /// When it was asked.
    pub asked: Time,
    /// The sum of schema changes ([`crate::statement::Interner::schema`]).
    pub schema: u64,
}

/// Why a question for a catalogue has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CatalogueFailure {
    /// Nobody answers, or the login fails. Statements do not wait for the shard.
    Unreachable(Arc<str>),
    /// PostgreSQL answers with an error. Statements wait a little for the next try.
    Refused(Arc<str>),
}

/// A shard's catalogue, while a server tells it.
#[derive(Debug, Default)]
pub struct CatalogueAnswer {
    /// The rows so far.
    pub(super) reader: CatalogueReader,
    /// How many parts have been told.
    pub(super) parts: usize,
    /// The question.
    pub(super) question: CatalogueQuestion,
    /// Why there is no answer.
    pub(super) error: Option<String>,
}

impl ShardLore {
    /// Nothing is known yet but the sum of the schema changes.
    pub fn new(map: Arc<ShardMap>, schema: u64, now: Time) -> ShardLore {
        ShardLore {
            shards: vec![ShardSight::default(); map.shards().len()],
            map,
            number: 0,
            planner: None,
            functions: HashSet::new(),
            schema,
            changed: now,
            looked: None,
        }
    }

    /// True if this is what is known of the shards of another map.
    pub fn is_of_other_shards(&self, map: &Arc<ShardMap>) -> bool {
        !Arc::ptr_eq(&self.map, map) && self.map.shards() != map.shards()
    }

    /// A reload has brought another map of the same shards, or other functions.
    pub fn follow(&mut self, map: &Arc<ShardMap>, functions: &HashSet<String>) {
        if Arc::ptr_eq(&self.map, map) && self.functions == *functions {
            return;
        }
        self.map = map.clone();
        self.functions.clone_from(functions);
        if let Some(planner) = &mut self.planner {
            planner.set_map(map.clone(), functions.clone());
        }
    }

    /// The last catalogue, and the map that it belongs to.
    pub fn catalogue(&self) -> Option<(&Arc<Catalogue>, &Arc<ShardMap>)> {
        Some((self.planner.as_ref()?.catalogue(), &self.map))
    }

    /// Notes the sum of the schema changes that are known now.
    pub fn notice(&mut self, schema: u64, now: Time) {
        if self.schema != schema {
            (self.schema, self.changed) = (schema, now);
        }
    }

    /// What makes plans; `None` while a statement waits for a catalogue that knows these schema changes.
    /// A statement that has waited `since` then needs the changes until then only.
    pub fn planner(&mut self, schema: u64, since: Option<Time>) -> Option<PlannerInUse<'_>> {
        let holds =
            |sight: &ShardSight| self.schema != schema || sight.holds(self.schema, self.changed);
        let has_waited = |sight: &ShardSight| since.is_some_and(|since| sight.is_settled(since));
        if self
            .shards
            .iter()
            .any(|sight| holds(sight) && !has_waited(sight))
        {
            return None;
        }
        let mut shards = self.shards.iter().zip(self.map.shards());
        let trouble =
            shards.find_map(|(sight, name)| Some((name.as_str(), sight.trouble.clone()?)));
        Some(PlannerInUse {
            planner: self.planner.as_mut()?,
            trouble,
        })
    }

    /// The number of the shard with this name.
    pub fn shard_named(&self, name: &str) -> Option<Shard> {
        self.map.shard_named(name)
    }

    /// The shards that PostgreSQL is to be asked for now. `unknown`: a name is not known.
    pub fn due(&mut self, now: Time, unknown: bool, worker: u16) -> Vec<Shard> {
        let believed = BELIEVED_NS + u64::from(worker) * WORKER_NS;
        let looks =
            unknown && !self.awaits() && self.looked.is_none_or(|at| now.0 >= at.0 + AGAIN_NS);
        let (schema, changed) = (self.schema, self.changed);
        let mut due = Vec::new();
        for (sight, shard) in self.shards.iter_mut().zip(0..) {
            let holds = sight.holds(schema, changed);
            if holds {
                sight.holds_since.get_or_insert(now);
            }
            let is_due = match sight.tried.map(|tried| now.0.saturating_sub(tried.0)) {
                None => true,
                // A change of the schema is looked for at once.
                Some(age) if holds && sight.asked_schema != schema => age >= CHANGED_NS,
                Some(age) if sight.failures > 0 => age >= pause(sight.failures),
                Some(age) => age >= believed || holds && age >= CHANGED_NS || looks,
            };
            if is_due && sight.asked.is_none() {
                (sight.asked, sight.asked_schema) = (Some(now), schema);
                due.push(Shard(shard));
            }
        }
        due
    }

    /// True unless statements wait for a catalogue that knows the schema changes so far.
    pub fn is_ready(&self) -> bool {
        let holds = |sight: &ShardSight| sight.holds(self.schema, self.changed);
        self.planner.is_some() && !self.shards.iter().any(holds)
    }

    /// The shards that have not answered in time.
    pub fn silent(&self, now: Time) -> Vec<Shard> {
        let is_late = |sight: &ShardSight| {
            sight
                .asked
                .is_some_and(|asked| now.0 >= asked.0 + PATIENCE_NS)
        };
        let sights = self.shards.iter().zip(0..);
        let silent = sights.filter(|(sight, _)| is_late(sight));
        silent.map(|(_, shard)| Shard(shard)).collect()
    }

    /// SUSPEND is over: until now no shard could answer.
    pub fn waits_anew(&mut self, now: Time) {
        for sight in &mut self.shards {
            sight.asked = sight.asked.map(|_| now);
            sight.holds_since = sight.holds_since.map(|_| now);
        }
    }

    /// Gives up shards that do not answer. True if there are any.
    pub fn gives_up(&mut self, now: Time) -> bool {
        let is_late = |since: Option<Time>| since.is_some_and(|at| now.0 >= at.0 + PATIENCE_NS);
        let (schema, mut late) = (self.schema, false);
        for sight in &mut self.shards {
            if is_late(sight.holds_since) {
                sight.holds_since = None;
                (sight.given_up, late) = (Some((schema, now)), true);
            }
            if is_late(sight.asked) {
                sight.fails("it does not answer".into(), now);
                late = true;
            }
        }
        if late {
            self.notes_end(now);
        }
        late
    }

    /// True while the answer of a shard is awaited that has answered before.
    pub fn awaits(&self) -> bool {
        let mut shards = self.shards.iter();
        shards.any(|sight| sight.asked.is_some() && sight.failures == 0)
    }

    /// True if PostgreSQL is asked for a shard.
    pub fn is_asked(&self, shard: Shard) -> bool {
        let sight = self.shards.get(usize::from(shard.0));
        sight.is_some_and(|sight| sight.asked.is_some())
    }

    /// PostgreSQL has told a shard's catalogue, perhaps another worker. An older one than is known
    /// does not count.
    pub fn learn(
        &mut self,
        shard: Shard,
        found: Arc<ShardCatalogue>,
        question: CatalogueQuestion,
        now: Time,
    ) {
        let Some(sight) = self.shards.get_mut(usize::from(shard.0)) else {
            return;
        };
        if sight.read.is_some_and(|read| read.asked > question.asked) {
            return;
        }
        sight.read = Some(question);
        sight.asked.take_if(|asked| *asked <= question.asked);
        (sight.tried, sight.failures, sight.trouble) = (Some(now), 0, None);
        let is_news = sight.found.as_ref() != Some(&found);
        if is_news {
            sight.found = Some(found);
        }
        if !sight.holds(self.schema, self.changed) {
            sight.holds_since = None;
        }
        self.merge(is_news);
        self.notes_end(now);
    }

    /// A question for a shard's catalogue has no answer. The last catalogue counts on.
    pub fn learn_failure(&mut self, shard: Shard, failure: CatalogueFailure, now: Time) {
        let schema = self.schema;
        let Some(sight) = self.shards.get_mut(usize::from(shard.0)) else {
            return;
        };
        match failure {
            CatalogueFailure::Unreachable(why) => {
                (sight.holds_since, sight.given_up) = (None, Some((schema, now)));
                sight.fails(why, now);
            }
            CatalogueFailure::Refused(why) => sight.fails(why, now),
        }
        self.notes_end(now);
    }

    /// Questions may be over.
    fn notes_end(&mut self, now: Time) {
        if !self.awaits() {
            self.looked = Some(now);
        }
        if self.planner.is_none() {
            self.merge(true);
        }
    }

    /// Makes one catalogue of all, once each shard has told or was given up.
    fn merge(&mut self, is_news: bool) {
        let holds = |sight: &ShardSight| sight.holds(self.schema, self.changed);
        if !is_news || self.planner.is_none() && self.shards.iter().any(holds) {
            return;
        }
        self.number += 1;
        let shards = self.shards.iter().map(|sight| sight.found.clone());
        let catalogue = Arc::new(Catalogue::new(self.number, shards.collect()));
        match &mut self.planner {
            Some(planner) => planner.set_catalogue(catalogue),
            None => {
                let (map, functions) = (self.map.clone(), self.functions.clone());
                self.planner = Some(Planner::new(map, catalogue, functions, PLANS));
            }
        }
    }
}

impl ShardSight {
    /// True if statements wait for the shard: its catalogue may be older than the last change of the
    /// schema.
    fn holds(&self, schema: u64, changed: Time) -> bool {
        let is_new = |read: CatalogueQuestion| read.schema == schema || read.asked > changed;
        let is_given_up = self.given_up.is_some_and(|(of, _)| of == schema);
        !self.read.is_some_and(is_new) && !is_given_up
    }

    /// True if the shard was read, or given up, later than at this time.
    fn is_settled(&self, since: Time) -> bool {
        let read = self.read.is_some_and(|read| read.asked > since);
        read || self.given_up.is_some_and(|(_, at)| at > since)
    }

    fn fails(&mut self, why: Arc<str>, now: Time) {
        (self.asked, self.tried, self.trouble) = (None, Some(now), Some(why));
        self.failures = self.failures.saturating_add(1);
    }
}

/// How long a shard is not asked after so many failures, in nanoseconds.
fn pause(failures: u32) -> u64 {
    let doubled = failures.saturating_sub(1).min(10);
    (FAILED_NS << doubled).min(FAILED_MOST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// What is known of two shards, both told at 0.
    fn lore() -> ShardLore {
        let map = ShardMap::builder(["a", "b"]).expect("a map").finish();
        let mut lore = ShardLore::new(Arc::new(map), 7, Time(0));
        assert_eq!(lore.due(Time(0), false, 0), [Shard(0), Shard(1)]);
        assert!(!lore.is_ready() && lore.due(Time(1), false, 0).is_empty());
        tells(&mut lore, 0, 1, 7);
        assert!(!lore.is_ready());
        tells(&mut lore, 1, 1, 7);
        assert!(lore.is_ready());
        lore
    }

    /// A shard tells what it was asked for at a time, in nanoseconds.
    fn tells(lore: &mut ShardLore, shard: u8, asked: u64, schema: u64) {
        let asked = Time(asked);
        let question = CatalogueQuestion { asked, schema };
        lore.learn(Shard(shard), Arc::default(), question, Time(asked.0 + 1));
    }

    fn fails(lore: &mut ShardLore, shard: u8, at: u64, is_there: bool) {
        let failure = match is_there {
            true => CatalogueFailure::Refused("why".into()),
            false => CatalogueFailure::Unreachable("why".into()),
        };
        lore.learn_failure(Shard(shard), failure, Time(at));
    }

    #[test]
    fn after_a_schema_change_statements_wait_until_each_shard_was_read_later() {
        let mut lore = lore();
        assert!(lore.planner(7, None).is_some() && lore.planner(8, None).is_none());
        lore.notice(8, Time(S));
        assert!(!lore.is_ready());
        assert_eq!(lore.due(Time(S), false, 0), [Shard(0), Shard(1)]);
        tells(&mut lore, 0, S, 8);
        // A question of another worker, from before the change.
        tells(&mut lore, 1, S - 1, 7);
        assert!(!lore.is_ready() && lore.is_asked(Shard(1)));
        // Another worker knows other changes, and has asked later.
        tells(&mut lore, 1, S + 1, 9);
        assert!(lore.is_ready());
        // That answer is older than what is known.
        lore.notice(9, Time(2 * S));
        tells(&mut lore, 0, S - 1, 9);
        assert!(!lore.is_ready());
        // One change follows another: who has waited goes on with what was read meanwhile.
        lore.notice(10, Time(4 * S));
        tells(&mut lore, 0, 3 * S, 9);
        tells(&mut lore, 1, 3 * S, 9);
        assert!(lore.planner(10, Some(Time(2 * S))).is_some());
        assert!(lore.planner(10, Some(Time(4 * S))).is_none());
    }

    #[test]
    fn a_shard_that_does_not_answer_is_waited_for_once() {
        let mut lore = lore();
        lore.notice(8, Time(S));
        assert_eq!(lore.due(Time(S), false, 0).len(), 2);
        tells(&mut lore, 0, S, 8);
        assert!(!lore.gives_up(Time(5 * S)) && !lore.is_ready());
        assert!(lore.gives_up(Time(6 * S)) && lore.is_ready());
        // The pauses grow, and nobody waits.
        let mut asked = Vec::new();
        for tenth in 60..1500 {
            let now = Time(tenth * S / 10);
            let due = lore.due(now, true, 0);
            if due.contains(&Shard(1)) {
                asked.push(now.0 / S);
            }
            if due.contains(&Shard(0)) {
                tells(&mut lore, 0, now.0, 8);
            }
            lore.gives_up(now);
            assert!(lore.is_ready() && !lore.awaits());
        }
        assert_eq!(asked, [7, 14, 23, 36, 57, 92, 127]);
        // It is waited for again after the next change.
        lore.notice(9, Time(150 * S));
        assert!(lore.due(Time(150 * S), false, 0).contains(&Shard(0)));
        tells(&mut lore, 0, 150 * S, 9);
        assert!(!lore.is_ready());
        tells(&mut lore, 1, 150 * S, 9);
        assert!(lore.is_ready() && !lore.gives_up(Time(156 * S)));
    }

    #[test]
    fn a_failed_reading_is_no_reading() {
        let mut lore = lore();
        lore.notice(8, Time(S));
        assert_eq!(lore.due(Time(S), false, 0).len(), 2);
        tells(&mut lore, 0, S, 8);
        fails(&mut lore, 1, S + 1, true);
        let trouble = |lore: &mut ShardLore| {
            let plans = lore.planner(8, None).expect("a planner");
            plans.trouble.map(|(shard, why)| format!("{shard}: {why}"))
        };
        assert!(!lore.is_ready() && lore.due(Time(S + S / 2), false, 0).is_empty());
        assert_eq!(lore.due(Time(2 * S + 1), false, 0), [Shard(1)]);
        fails(&mut lore, 1, 2 * S + 2, true);
        assert!(lore.gives_up(Time(6 * S)) && lore.is_ready());
        assert_eq!(trouble(&mut lore).as_deref(), Some("b: why"));
        assert_eq!(lore.due(Time(6 * S), false, 0), [Shard(1)]);
        tells(&mut lore, 1, 6 * S, 8);
        assert_eq!(trouble(&mut lore), None);
        // Nobody is there: statements go on at once.
        lore.notice(9, Time(8 * S));
        assert_eq!(lore.due(Time(8 * S), false, 0).len(), 2);
        tells(&mut lore, 0, 8 * S, 9);
        fails(&mut lore, 1, 8 * S + 1, false);
        assert!(lore.is_ready());
    }

    #[test]
    fn an_unknown_name_is_looked_for_once_a_second() {
        let mut lore = lore();
        assert!(lore.due(Time(S / 2), true, 0).is_empty() && !lore.awaits());
        assert_eq!(lore.due(Time(2 * S), true, 0).len(), 2);
        assert!(lore.is_ready() && lore.awaits());
        tells(&mut lore, 0, 2 * S, 7);
        // One shard is slow: the other one is not asked again.
        assert!(lore.due(Time(4 * S), true, 0).is_empty());
        tells(&mut lore, 1, 4 * S, 7);
        assert!(!lore.awaits() && lore.due(Time(4 * S + S / 2), true, 0).is_empty());
    }
}
