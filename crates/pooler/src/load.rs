//! A worker's load, as reported to the balancer ([`crate::balance`]).

use std::sync::Arc;

use crate::login::key::LoginKey;

/// How busy a worker may be to take a part of a pool. (For whole pools: [`crate::balance::ROOM`].)
pub const FREE: f64 = 0.5;

/// The load of a worker's thread in a window of time. All figures are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadLoad {
    /// The length of the window.
    pub window: u64,
    /// The time outside of the loop's wait.
    pub working: u64,
    /// CPU time.
    pub cpu: u64,
    /// How long the thread was ready to run but had no core.
    pub delayed: u64,
}

impl ThreadLoad {
    /// The share of time spent working, from 0 to 1.
    pub fn busy(&self) -> f64 {
        let loops = self.working.saturating_sub(self.delayed);
        self.part(loops.max(self.cpu))
    }

    /// The share of time spent waiting for a core, from 0 to 1.
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
    /// The load of the worker's thread.
    pub signals: ThreadLoad,
    /// All clients, including those without a pool.
    pub clients: u32,
    /// All connections to PostgreSQL.
    pub servers: u32,
    /// The worker's pools.
    pub pools: Vec<PoolLoad>,
}

/// A pool's part of a worker's load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolLoad {
    /// The login.
    pub login: Arc<LoginKey>,
    /// The pool's clients.
    pub clients: u32,
    /// How many of these clients were active recently.
    pub active: u32,
    /// Transactions since the last report.
    pub transactions: u64,
    /// How many workers the pool may have.
    pub widest: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_keeps_it_from_more() {
        // Percent: loop not waiting, CPU time, delayed; then the expected busy and delay.
        for (working, cpu, delayed, busy, delay) in [
            (0, 0, 0, 0.0, 0.0),
            (50, 50, 0, 0.5, 0.0),
            // The kernel works for the thread while the loop waits.
            (10, 60, 0, 0.6, 0.0),
            // The kernel accounts the thread's work elsewhere.
            (80, 20, 0, 0.8, 0.0),
            // Half of the time the thread was ready to run but had no core.
            (90, 40, 50, 0.4, 0.5),
            // The three figures are not read at the same moment.
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
