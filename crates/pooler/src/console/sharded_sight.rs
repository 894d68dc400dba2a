//! Sharded databases over all workers, for SHOW SHARDS and for metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use howdah_shard::RefusalReason;

use crate::console::holdings::{Holdings, ShardFigures};

/// A sharded database.
#[derive(Clone, Debug)]
pub struct ShardedSight {
    /// The database.
    pub database: Arc<str>,
    /// Its shards by name, in order.
    pub shards: Vec<(String, ShardFigures)>,
    /// By reason: refusals, and statements that would be refused with several shards.
    pub reasons: BTreeMap<RefusalReason, [u64; 2]>,
}

impl ShardedSight {
    /// All sharded databases, by name.
    pub(crate) fn all(holdings: &[Holdings]) -> Vec<ShardedSight> {
        let mut all: BTreeMap<&str, ShardedSight> = BTreeMap::new();
        for share in holdings.iter().flat_map(|holding| &holding.sharded) {
            let names = share.map.shards().iter();
            let sight = all.entry(&share.database).or_insert_with(|| ShardedSight {
                database: share.database.clone(),
                shards: names
                    .map(|name| (name.clone(), ShardFigures::default()))
                    .collect(),
                reasons: BTreeMap::new(),
            });
            // A worker may not have the map yet that the others have.
            for (name, figures) in share.map.shards().iter().zip(&share.shards) {
                if let Some((_, sum)) = sight.shards.iter_mut().find(|of| of.0 == *name) {
                    sum.add(figures);
                }
            }
            for (reason, counts) in &share.reasons {
                let sum = sight.reasons.entry(*reason).or_default();
                (sum[0], sum[1]) = (sum[0] + counts[0], sum[1] + counts[1]);
            }
        }
        all.into_values().collect()
    }
}
