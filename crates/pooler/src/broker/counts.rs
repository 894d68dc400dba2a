//! Counts of connections under each limit that pools share.

use hashbrown::HashMap;

use crate::Seeded;
use crate::pool::bound::BoundName;

/// How many connections count under each limit. A connection counts once under each of its limits.
#[derive(Debug)]
pub(super) struct BoundCounts {
    counts: HashMap<BoundName, u32, Seeded>,
}

impl BoundCounts {
    pub(super) fn new(seeded: Seeded) -> BoundCounts {
        BoundCounts {
            counts: HashMap::with_hasher(seeded),
        }
    }

    /// The number of connections under a limit.
    pub(super) fn under(&self, name: &BoundName) -> u32 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Counts connections under their limits.
    pub(super) fn add(&mut self, names: impl IntoIterator<Item = BoundName>, connections: u32) {
        for name in names {
            if connections > 0 {
                *self.counts.entry(name).or_default() += connections;
            }
        }
    }

    /// Removes connections.
    pub(super) fn take(&mut self, names: impl IntoIterator<Item = BoundName>, connections: u32) {
        for name in names {
            if let Some(count) = self.counts.get_mut(&name) {
                *count -= connections;
                if *count == 0 {
                    self.counts.remove(&name);
                }
            }
        }
    }

    /// The number of all connections under limits of one kind.
    pub(super) fn sum(&self, is_kind: fn(&BoundName) -> bool) -> u32 {
        let kind = self.counts.iter().filter(|(name, _)| is_kind(name));
        kind.map(|(_, count)| count).sum()
    }

    /// For invariants: verifies that the counts are exactly `had`.
    pub(super) fn check(&self, had: &HashMap<BoundName, u32, Seeded>) {
        assert_eq!(*had, self.counts, "connections under each limit");
    }
}
