//! A starved pool: its clients wait because other pools hold all servers that a shared limit
//! allows.

use std::sync::Arc;

use crate::ids::Time;
use crate::pool::key::PoolKey;

/// A report that a shared limit starves a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Starved {
    /// The time since which the pool's oldest client has waited.
    pub since: Time,
    /// When this report expires. A pool that still waits reports again before.
    pub until: Time,
    /// The starved pool.
    pub who: Arc<PoolKey>,
}

/// How much longer a starved pool's clients must have waited, in nanoseconds, before another
/// pool's server is closed for them. A new server costs PostgreSQL some milliseconds.
pub(crate) const STARVED_NS: u64 = 50_000_000;

impl Starved {
    /// Whether a released server of another pool must be closed for this starved pool. `here` is
    /// how long the oldest client that could use the server has waited, in nanoseconds. Clients of
    /// the starved pool must have waited longer, by at least half of `here` and by 50 ms.
    pub(super) fn outweighs(&self, here: Option<u64>, now: Time) -> bool {
        let there = now.0.saturating_sub(self.since.0);
        let slack = |here: u64| (here / 2).max(STARVED_NS);
        let longer = |here: u64| there > here.saturating_add(slack(here));
        now <= self.until && here.is_none_or(longer)
    }
}
