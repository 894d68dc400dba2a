//! What is known of the shards of a database: their catalogues.

use std::collections::HashSet;
use std::sync::Arc;

use howdah_shard::{Catalogue, CatalogueReader, Planner, ShardCatalogue};

use crate::config::{Shard, ShardMap};
use crate::ids::Time;

/// How long a catalogue is believed, in nanoseconds.
const BELIEVED_NS: u64 = 60_000_000_000;

/// How soon a catalogue may be read again, whatever clients ask for, in nanoseconds.
const AGAIN_NS: u64 = 1_000_000_000;

/// How soon a catalogue is read again after a schema change, in nanoseconds.
const CHANGED_NS: u64 = 100_000_000;

/// How long statements wait for the catalogue of a shard that does not answer, in nanoseconds.
const PATIENCE_NS: u64 = 5_000_000_000;

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
}

/// What is known of one shard.
#[derive(Clone, Debug, Default)]
struct ShardSight {
    found: Option<Arc<ShardCatalogue>>,
    /// When PostgreSQL last told, or did not answer.
    told: Option<Time>,
    /// When PostgreSQL was asked, while the answer is awaited.
    asked: Option<Time>,
    /// The schema changes that were known when PostgreSQL was asked, for what it has told.
    schema: u64,
    /// The same for the answer that is awaited.
    asked_schema: u64,
}

/// A shard's catalogue, while a server tells it.
#[derive(Debug, Default)]
pub struct CatalogueAnswer {
    /// The rows so far.
    pub(super) reader: CatalogueReader,
    /// How many parts have been told.
    pub(super) parts: usize,
    /// The schema changes that were known when PostgreSQL was asked.
    pub(super) schema: u64,
    /// Why there is no answer.
    pub(super) error: Option<String>,
}

impl ShardLore {
    /// Nothing is known yet.
    pub fn new(map: Arc<ShardMap>, functions: HashSet<String>) -> ShardLore {
        ShardLore {
            shards: vec![ShardSight::default(); map.shards().len()],
            map,
            number: 0,
            planner: None,
            functions,
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

    /// What makes plans; `None` while statements wait for a catalogue that knows the schema changes so
    /// far.
    pub fn planner(&mut self, schema: u64) -> Option<&mut Planner> {
        self.is_ready(schema).then_some(self.planner.as_mut())?
    }

    /// The number of the shard with this name.
    pub fn shard_named(&self, name: &str) -> Option<Shard> {
        self.map.shard_named(name)
    }

    /// The shards that PostgreSQL is to be asked for now. `schema`: the schema changes that are known.
    /// `unknown`: a name is not known.
    pub fn due(&mut self, now: Time, schema: u64, unknown: bool, worker: u16) -> Vec<Shard> {
        let believed = BELIEVED_NS + u64::from(worker) * WORKER_NS;
        let mut due = Vec::new();
        for (sight, shard) in self.shards.iter_mut().zip(0..) {
            let age = sight.told.map(|told| now.0.saturating_sub(told.0));
            let is_old = age.is_none_or(|age| {
                age >= believed
                    || age >= AGAIN_NS && unknown
                    || age >= CHANGED_NS && sight.schema != schema
            });
            if is_old && !sight.awaits(now) {
                (sight.asked, sight.asked_schema) = (Some(now), schema);
                due.push(Shard(shard));
            }
        }
        due
    }

    /// True unless statements wait for a catalogue that knows the schema changes so far.
    pub fn is_ready(&self, schema: u64) -> bool {
        self.planner.is_some() && self.shards.iter().all(|sight| sight.schema == schema)
    }

    /// The shards that have not answered in time.
    pub fn silent(&self, now: Time) -> Vec<Shard> {
        let sights = self.shards.iter().zip(0..);
        let silent = sights.filter(|(sight, _)| sight.asked.is_some() && !sight.awaits(now));
        silent.map(|(_, shard)| Shard(shard)).collect()
    }

    /// Gives up shards that do not answer. True if there are any.
    pub fn gives_up(&mut self, now: Time) -> bool {
        let mut late = false;
        for sight in &mut self.shards {
            if sight.asked.is_some() && !sight.awaits(now) {
                (sight.asked, sight.told, late) = (None, Some(now), true);
                sight.schema = sight.asked_schema;
            }
        }
        if late {
            self.merge(false);
        }
        late
    }

    /// True while an answer is awaited.
    pub fn awaits(&self, now: Time) -> bool {
        let awaited = |sight: &ShardSight| {
            sight
                .asked
                .is_some_and(|asked| now.0 < asked.0 + PATIENCE_NS)
        };
        self.shards.iter().any(awaited)
    }

    /// True if PostgreSQL is asked for a shard.
    pub fn is_asked(&self, shard: Shard) -> bool {
        self.sight(shard).is_some_and(|sight| sight.asked.is_some())
    }

    fn sight(&self, shard: Shard) -> Option<&ShardSight> {
        self.shards.get(usize::from(shard.0))
    }

    /// PostgreSQL has told a shard's catalogue, or does not answer: then the last one counts on.
    pub fn learn(
        &mut self,
        shard: Shard,
        found: Option<Arc<ShardCatalogue>>,
        schema: u64,
        now: Time,
    ) {
        let Some(sight) = self.shards.get_mut(usize::from(shard.0)) else {
            return;
        };
        sight.told = Some(now);
        sight.asked = None;
        sight.schema = schema;
        let is_news = found.is_some() && sight.found != found;
        if is_news {
            sight.found = found;
        }
        self.merge(is_news);
    }

    /// Makes one catalogue of all, once each shard was asked.
    fn merge(&mut self, is_news: bool) {
        let is_complete = self.shards.iter().all(|sight| sight.told.is_some());
        if !is_complete || !is_news && self.planner.is_some() {
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
    fn awaits(&self, now: Time) -> bool {
        self.asked
            .is_some_and(|asked| now.0 < asked.0 + PATIENCE_NS)
    }
}
