//! Counts of connections under each limit that pools share.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::Seeded;
use crate::login::key::LoginKey;
use crate::pool::bound::{Each, SharedBound};

/// Connections by database and by user: each connection counts once under each limit.
#[derive(Debug)]
pub(super) struct BoundCounts {
    by_name: Each<HashMap<Arc<str>, u32, Seeded>>,
}

impl BoundCounts {
    pub(super) fn new(seeded: Seeded) -> BoundCounts {
        BoundCounts {
            by_name: SharedBound::ALL.map(|_| HashMap::with_hasher(seeded)),
        }
    }

    /// The number of connections under a pool's bound.
    pub(super) fn under(&self, bound: SharedBound, key: &LoginKey) -> u32 {
        let counts = &self.by_name[bound.place()];
        counts.get(bound.name(key)).copied().unwrap_or(0)
    }

    /// Counts a connection.
    pub(super) fn add(&mut self, key: &LoginKey) {
        for bound in SharedBound::ALL {
            let counts = &mut self.by_name[bound.place()];
            *counts.entry(bound.name(key).clone()).or_default() += 1;
        }
    }

    /// Removes a connection.
    pub(super) fn take(&mut self, key: &LoginKey) {
        for bound in SharedBound::ALL {
            let (counts, name) = (&mut self.by_name[bound.place()], bound.name(key));
            if let Some(count) = counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(name);
                }
            }
        }
    }

    /// The number of all connections, by bound. All entries must be equal.
    pub(super) fn sums(&self) -> Each<u32> {
        SharedBound::ALL.map(|bound| self.by_name[bound.place()].values().sum())
    }

    /// For invariants: verifies that the counts are exactly `had`.
    pub(super) fn check(&self, bound: SharedBound, had: &BTreeMap<&str, u32>) {
        for (name, count) in &self.by_name[bound.place()] {
            assert_eq!(had.get(&**name), Some(count), "connections under a bound");
        }
        let all = self.sums()[bound.place()];
        assert_eq!(
            all,
            had.values().sum::<u32>(),
            "connections under all bounds"
        );
    }
}
