//! What a worker had to do: it tells the balancer ([`crate::balance`]).

use std::sync::Arc;

use crate::pool::key::PoolKey;

/// How busy a worker is at most that takes a part of a pool, and one that takes whole pools.
pub const FREE: f64 = 0.5;

/// What a worker's thread did in some time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Signals {
    /// That time.
    pub window: u64,
    /// Its loop did not wait.
    pub working: u64,
    /// Processor time.
    pub cpu: u64,
    /// It was ready to run and had no core.
    pub delayed: u64,
}

impl Signals {
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

/// What a worker had to do since it last told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Load {
    /// What its thread did.
    pub signals: Signals,
    /// All clients, those in no pool included.
    pub clients: u32,
    /// Its pools.
    pub pools: Vec<PoolLoad>,
}

/// A pool's part of that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolLoad {
    /// Which pool.
    pub pool: Arc<PoolKey>,
    /// Its clients.
    pub clients: u32,
    /// Of those, who were active lately.
    pub active: u32,
    /// Transactions since the worker last told.
    pub transactions: u64,
    /// On how many workers it may be.
    pub widest: u16,
}
