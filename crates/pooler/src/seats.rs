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
use crate::login::key::LoginKey;

/// The seats of all pools.
#[derive(Debug)]
pub struct Spread {
    /// How many workers may have clients.
    pub(crate) usable: u16,
    pools: HashMap<Arc<LoginKey>, Seats, Seeded>,
    pub(crate) new_pools: WorkerId,
    /// The turn of pools without seats.
    turn: u16,
    /// When the worker next reports its load.
    pub(crate) next_load: Option<Time>,
    /// The thread's load, as last measured.
    pub(crate) signals: ThreadLoad,
    /// The number of mails to other workers, as last counted.
    pub(crate) posted: u64,
    /// The recently active clients, by login, as last counted. Empty if nobody asks.
    pub(crate) active: Vec<u32>,
    /// When they may be counted again.
    pub(crate) next_count: Time,
}

/// The seats of a pool.
#[derive(Debug)]
struct Seats {
    workers: Arc<[WorkerId]>,
    /// The next client's turn.
    turn: u16,
}

impl Spread {
    /// No pool has seats yet.
    pub fn new(usable: u16, seeded: Seeded) -> Spread {
        Spread {
            usable,
            pools: HashMap::with_hasher(seeded),
            new_pools: WorkerId(0),
            turn: 0,
            next_load: None,
            signals: ThreadLoad::default(),
            posted: 0,
            active: Vec::new(),
            next_count: Time(0),
        }
    }

    /// Sets a pool's seats. An empty list removes them.
    pub(crate) fn seat(&mut self, login: Arc<LoginKey>, workers: Arc<[WorkerId]>) {
        if workers.is_empty() {
            self.pools.remove(&login);
            return;
        }
        let turn = self.pools.get(&login).map_or(0, |seats| seats.turn);
        self.pools.insert(login, Seats { workers, turn });
    }

    /// The seats of a pool, if it has any.
    pub(crate) fn seats(&self, pool: &LoginKey) -> Option<&Arc<[WorkerId]>> {
        self.pools.get(pool).map(|seats| &seats.workers)
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
        let may_widen = self.usable > 1 && self.signals.busy() >= FREE;
        may_widen || { self.pools.values() }.any(|seats| seats.workers.len() > 1)
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

    /// Which of this many workers a pool's next client gets. Each pool has a turn of its own:
    /// logins that alternate between two pools would otherwise all go to one worker each.
    pub(crate) fn next(&mut self, pool: &LoginKey, count: usize) -> usize {
        let seats = self.pools.get_mut(pool);
        let turn = seats.map_or(&mut self.turn, |seats| &mut seats.turn);
        let now = *turn;
        *turn = now.wrapping_add(1);
        usize::from(now) % count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logins_of_each_pool_go_to_its_seats_in_turn() {
        let mut spread = Spread::new(2, crate::seeded(1));
        let key = |user: &str| LoginKey::new("d", user);
        let pools = [key("p"), key("q")];
        let seats: Arc<[WorkerId]> = Arc::new([WorkerId(0), WorkerId(1)]);
        for pool in &pools {
            spread.seat(pool.clone(), seats.clone());
        }
        let mut counts = [[0; 2]; 2];
        for login in 0..8 {
            let seat = spread.next(&pools[login % 2], 2);
            counts[login % 2][seat] += 1;
            // The same workers again, or others, do not begin a new turn.
            spread.seat(pools[login % 2].clone(), seats.clone());
        }
        assert_eq!(counts, [[2, 2], [2, 2]]);
    }
}
