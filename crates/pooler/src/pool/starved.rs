//! A starved pool: its clients wait because other pools have all servers under a limit that they share.

use std::sync::Arc;

use crate::ids::Time;
use crate::pool::key::PoolKey;

/// A pool that a limit holds back, because other pools have all servers under that limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Starved {
    /// Since when its oldest client waits.
    pub since: Time,
    /// Until when this counts: a pool that still waits reports again before.
    pub until: Time,
    /// The pool.
    pub who: Arc<PoolKey>,
}

/// A server of one pool is closed for a server of another only if clients of the other have waited
/// longer, by at least so many nanoseconds: a new server costs PostgreSQL some milliseconds.
pub(crate) const STARVED_NS: u64 = 50_000_000;

impl Starved {
    /// Whether a server given back to another pool is better closed. There the oldest client that could
    /// have the server has waited for `here` nanoseconds. The clients of the starved pool must have
    /// waited longer by half of `here`, and by 50 ms.
    pub(super) fn outweighs(&self, here: Option<u64>, now: Time) -> bool {
        let there = now.0.saturating_sub(self.since.0);
        let slack = |here: u64| (here / 2).max(STARVED_NS);
        let longer = |here: u64| there > here.saturating_add(slack(here));
        now <= self.until && here.is_none_or(longer)
    }
}
