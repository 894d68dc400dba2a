//! How the reading of catalogues goes, for the console and for metrics.

use std::sync::Arc;

use crate::config::Shard;
use crate::pooler::Pooler;

impl Pooler {
    /// A shard's catalogue was read, or could not be.
    pub(crate) fn note_reading(&mut self, database: &Arc<str>, shard: Shard, is_read: bool) {
        if let Some(map) = self.map_of(database) {
            let tally = self.shard_tallies.of(database, &map, self.now);
            tally.catalogue_is_read(shard, is_read);
        }
    }

    /// Why a shard's catalogue can't be read. `name`: the shard's entry.
    pub(crate) fn note_unread(&mut self, name: &str, why: &str) {
        let of = self.config.databases.get(name);
        let Some(database) = of.and_then(|entry| entry.shard_of.clone()) else {
            return;
        };
        if let Some(map) = self.map_of(&database)
            && let Some(shard) = map.shard_named(name)
        {
            let tally = self.shard_tallies.of(&database, &map, self.now);
            tally.catalogue_fails(shard, why);
        }
    }
}
