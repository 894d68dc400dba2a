//! A worker's load, as it reports it to the balancer ([`crate::balance`]).

use std::sync::Arc;

use crate::pool::key::PoolKey;

/// How busy a worker may be to take a part of a pool. ([`crate::balance::ROOM`]: to take whole
/// pools.)
pub const FREE: f64 = 0.5;

/// The load of a worker's thread in a window of time. All figures are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadLoad {
    /// The length of the window.
    pub window: u64,
    /// How long its loop did not wait.
    pub working: u64,
    /// CPU time.
    pub cpu: u64,
    /// How long it was ready to run and had no core.
    pub delayed: u64,
}

impl ThreadLoad {
    /// How much of the time it worked, from 0 to 1.
    pub fn busy(&self) -> f64 {
        let loops = self.working.saturating_sub(self.delayed);
        self.part(loops.max(self.cpu))
    }

    /// How much of the time it waited for a core, from 0 to 1.
    pub fn delay(&self) -> f64 {
        self.part(self.delayed)
    }

    fn part(&self, of: u64) -> f64 {
        (of as f64 / self.window.max(1) as f64).min(1.0)
    }
}

/// A worker's load since its last report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Load {
    /// What its thread did.
    pub signals: ThreadLoad,
    /// All clients, those in no pool included.
    pub clients: u32,
    /// Its pools.
    pub pools: Vec<PoolLoad>,
}

/// A pool's part of a worker's load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolLoad {
    /// Which pool.
    pub pool: Arc<PoolKey>,
    /// Its clients.
    pub clients: u32,
    /// How many of them were active recently.
    pub active: u32,
    /// Transactions since the last report.
    pub transactions: u64,
    /// On how many workers it may be.
    pub widest: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_keeps_it_from_more() {
        // Of a hundred: the loop did not wait, the thread had a core, it had none; busy, delay.
        for (working, cpu, delayed, busy, delay) in [
            (0, 0, 0, 0.0, 0.0),
            (50, 50, 0, 0.5, 0.0),
            // The kernel works for it while the loop waits.
            (10, 60, 0, 0.6, 0.0),
            // Work that the kernel puts down to others.
            (80, 20, 0, 0.8, 0.0),
            // Half of the time it would have worked, but had no core.
            (90, 40, 50, 0.4, 0.5),
            // The three are not read at one moment.
            (10, 5, 20, 0.05, 0.2),
            (120, 130, 110, 1.0, 1.0),
        ] {
            let signals = ThreadLoad {
                window: 100,
                working,
                cpu,
                delayed,
            };
            assert_eq!(
                (signals.busy(), signals.delay()),
                (busy, delay),
                "{signals:?}"
            );
        }
        assert_eq!(ThreadLoad::default().busy(), 0.0);
    }
}
