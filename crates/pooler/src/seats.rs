//! The **seats** of a pool: the workers that get its new clients in turn.
//!
//! With `pool_spread = load` the control thread chooses a pool's seats; until then the only seat is
//! worker 0. With `always` a pool has as many seats as it may. Each worker with clients reports its
//! load to the control thread ten times a second (`balance.rs`).

use std::sync::Arc;

use hashbrown::HashMap;

use crate::Seeded;
use crate::ids::{Time, WorkerId};
use crate::load::{FREE, ThreadLoad};
use crate::pool::key::PoolKey;

/// The seats of all pools.
#[derive(Debug)]
pub struct Spread {
    /// How many workers may have clients.
    pub(crate) usable: u16,
    pub(crate) seats: HashMap<Arc<PoolKey>, Arc<[WorkerId]>, Seeded>,
    pub(crate) new_pools: WorkerId,
    pub(crate) turn: u16,
    /// When the worker next reports its load.
    pub(crate) next_load: Option<Time>,
    /// The thread's load, as last measured.
    pub(crate) signals: ThreadLoad,
    /// The number of mails to other workers, as last counted.
    pub(crate) posted: u64,
}

impl Spread {
    /// No pool has seats yet.
    pub fn new(usable: u16, seeded: Seeded) -> Spread {
        Spread {
            usable,
            seats: HashMap::with_hasher(seeded),
            new_pools: WorkerId(0),
            turn: 0,
            next_load: None,
            signals: ThreadLoad::default(),
            posted: 0,
        }
    }

    /// Sets a pool's seats. An empty list removes them.
    pub(crate) fn seat(&mut self, pool: Arc<PoolKey>, seats: Arc<[WorkerId]>) {
        match seats.is_empty() {
            true => self.seats.remove(&pool),
            false => self.seats.insert(pool, seats),
        };
    }

    /// Sets the worker for new clients of pools without seats.
    pub(crate) fn seat_new_pools(&mut self, at: WorkerId) {
        self.new_pools = at;
    }

    /// When the worker next reports its load.
    pub(crate) fn next_load(&self) -> Option<Time> {
        self.next_load
    }

    /// True if it may matter which clients are active: a pool has, or may soon have, more seats.
    pub(crate) fn asks_who_is_active(&self) -> bool {
        self.signals.busy() >= FREE || self.seats.values().any(|seats| seats.len() > 1)
    }

    /// The thread's load, as last measured; zero if the worker has no clients.
    pub(crate) fn signals(&self) -> ThreadLoad {
        self.next_load
            .map_or_else(ThreadLoad::default, |_| self.signals)
    }

    /// The number of mails to other workers, as last counted.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    pub(crate) fn next(&mut self, count: usize) -> usize {
        let turn = self.turn;
        self.turn = turn.wrapping_add(1);
        usize::from(turn) % count
    }
}
