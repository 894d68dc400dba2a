//! What is known of the shards of a database: their catalogues.

use std::sync::Arc;

use howdah_shard::{Catalogue, CatalogueReader, ShardCatalogue};

use crate::config::{Shard, ShardMap};
use crate::ids::Time;

/// How long a catalogue is believed, in nanoseconds.
const BELIEVED_NS: u64 = 60_000_000_000;

/// How soon a catalogue may be read again, whatever clients ask for, in nanoseconds.
const AGAIN_NS: u64 = 1_000_000_000;

/// How long statements wait for the catalogue of a shard that does not answer, in nanoseconds.
const PATIENCE_NS: u64 = 5_000_000_000;

/// How much later each further worker reads, in nanoseconds: the first one reads for all.
const WORKER_NS: u64 = 1_000_000_000;

/// The catalogues of a sharded database, as one worker knows them.
#[derive(Debug)]
pub struct ShardLore {
    map: Arc<ShardMap>,
    shards: Vec<ShardSight>,
    /// All of them as one, once each shard was asked.
    catalogue: Option<Arc<Catalogue>>,
    /// How many catalogues there were.
    number: u64,
}

/// What is known of one shard.
#[derive(Clone, Debug, Default)]
struct ShardSight {
    found: Option<Arc<ShardCatalogue>>,
    /// When PostgreSQL last told, or did not answer.
    told: Option<Time>,
    /// When PostgreSQL was asked, while the answer is awaited.
    asked: Option<Time>,
    /// The schema changes that were known when PostgreSQL was asked.
    schema: u64,
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
    pub fn new(map: Arc<ShardMap>) -> ShardLore {
        ShardLore {
            shards: vec![ShardSight::default(); map.shards().len()],
            map,
            catalogue: None,
            number: 0,
        }
    }

    /// True if this is what is known of the shards of another map.
    pub fn is_of_other_shards(&self, map: &Arc<ShardMap>) -> bool {
        !Arc::ptr_eq(&self.map, map) && self.map.shards() != map.shards()
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
                age >= believed || age >= AGAIN_NS && (unknown || sight.schema != schema)
            });
            let waits = sight
                .asked
                .is_some_and(|asked| now.0 < asked.0 + PATIENCE_NS);
            if is_old && !waits {
                sight.asked = Some(now);
                due.push(Shard(shard));
            }
        }
        due
    }

    /// The catalogue; `None` while statements wait for one that knows the schema changes so far.
    pub fn catalogue(&self, now: Time, schema: u64) -> Option<&Arc<Catalogue>> {
        let awaited = |sight: &ShardSight| {
            let is_new = sight.told.is_some() && sight.schema == schema;
            let asks = sight
                .asked
                .is_some_and(|asked| now.0 < asked.0 + PATIENCE_NS);
            !is_new && asks
        };
        let catalogue = self.catalogue.as_ref();
        catalogue.filter(|_| !self.shards.iter().any(awaited))
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
        let is_complete = self.shards.iter().all(|sight| sight.told.is_some());
        if is_complete && (is_news || self.catalogue.is_none()) {
            self.number += 1;
            let shards = self.shards.iter().map(|sight| sight.found.clone());
            self.catalogue = Some(Arc::new(Catalogue::new(self.number, shards.collect())));
        }
    }
}
