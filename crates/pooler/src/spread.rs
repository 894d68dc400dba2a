//! Chooses the worker of a new client.
//!
//! Workers may disagree for a moment. Then a client may go to a worker from which the balancer
//! moves it away again, and servers are lent there meanwhile.

use crate::config::PoolSpread;
use crate::event::{Action, Out, Question, Time, WorkerId};
use crate::load::{Load, PoolLoad, ThreadLoad};
use crate::login::key::LoginKey;
use crate::pool::key::Purpose;
use crate::pooler::Pooler;

/// How many servers a pool must have for each of its workers. With fewer, clients would wait for
/// servers that are idle elsewhere.
pub const SERVERS_PER_WORKER: u32 = 4;

/// How often a worker with work reports its load, in nanoseconds. Without work, it does so when it
/// wakes for its maintenance.
const LOAD_NS: u64 = 100_000_000;
/// How long a client counts as active after its last request, in nanoseconds. Many applications
/// reuse the connection that came back last, so most of their connections are idle.
const ACTIVE_NS: u64 = 1_000_000_000;
/// How long after a count of the active clients the next one waits, in nanoseconds for each client:
/// about a hundred times what the count takes. Below 5,000 clients, each report counts.
const COUNT_NS: u64 = 20_000;

/// How many workers a pool of this size may have, at most `usable`. A size of 0 means no limit.
pub fn widest(size: u32, usable: u16) -> u16 {
    match size {
        0 => usable,
        size => usable.min(u16::try_from(size / SERVERS_PER_WORKER).unwrap_or(u16::MAX)),
    }
    .max(1)
}

impl Pooler {
    /// The worker for a new client of a pool.
    pub(crate) fn seat_for(&mut self, key: &LoginKey) -> WorkerId {
        let own = self.worker.0;
        // Another worker may have reported that it waits for no client, and the process could end
        // while a client travels there.
        if self.janitor.is_shutting_down() {
            return self.worker;
        }
        match self.config.globals.pool_spread {
            PoolSpread::Load => {
                let Some(seats) = self.spread.seats(key).cloned() else {
                    return self.spread.new_pools;
                };
                seats[self.spread.next(key, seats.len())]
            }
            PoolSpread::Always => {
                // Each worker's turn begins with itself.
                let width = self.width(key);
                let turn = self.spread.next(key, usize::from(width)) as u16;
                WorkerId((own % width + turn) % width)
            }
        }
    }

    /// The first seat of a pool: the worker that keeps the pool's minimum of servers.
    pub(crate) fn first_seat(&self, key: &LoginKey) -> WorkerId {
        let seats = self.spread.seats(key);
        let by_load = self.config.globals.pool_spread == PoolSpread::Load;
        let first = seats.filter(|_| by_load).and_then(|seats| seats.first());
        first.copied().unwrap_or(WorkerId(0))
    }

    /// Begins to report the load to the control thread.
    pub(crate) fn begin_loads(&mut self) {
        if self.spread.next_load.is_none() && !self.clients.is_empty() {
            self.spread.next_load = Some(Time(self.now.0 + LOAD_NS));
        }
    }

    /// Reports the load, and once more after the last client has left.
    pub(crate) fn tell_load(&mut self, out: &mut Out) {
        let (mut pools, mut busy) = (Vec::new(), false);
        self.count_active_clients();
        for id in self.logins.ids() {
            let key = self.logins.at(id).key.clone();
            let widest = self.width(&key);
            let moves = self.pool_if_any(id, Purpose::Clients).is_some();
            let login = self.logins.at_mut(id);
            let transactions = login.tells_transactions();
            let active = self.spread.active.get(id.0 as usize).copied();
            busy |= transactions > 0;
            if moves && (login.clients() > 0 || transactions > 0) {
                pools.push(PoolLoad {
                    login: key,
                    clients: login.clients(),
                    active: active.unwrap_or(u32::MAX).min(login.clients()),
                    transactions,
                    widest,
                });
            }
        }
        let clients = self.clients.len() as u32;
        let load = Load {
            signals: ThreadLoad::default(),
            clients,
            servers: self.servers.len() as u32,
            pools,
        };
        out.push(Action::Ask(Question::Load(Box::new(load))));
        let next = if busy {
            Time(self.now.0 + LOAD_NS)
        } else {
            self.janitor.next
        };
        self.spread.next_load = (clients > 0).then_some(next);
    }

    /// A client that was active since then counts as recently active.
    pub(crate) fn lately(&self) -> Time {
        Time(self.now.0.saturating_sub(ACTIVE_NS))
    }

    /// Counts the recently active clients by login, for `Spread::active`. Counts nothing where this
    /// does not matter, because counting looks at all clients.
    fn count_active_clients(&mut self) {
        if !self.spread.asks_who_is_active() {
            self.spread.active.clear();
            return;
        }
        if self.now < self.spread.next_count {
            return;
        }
        let slots = { self.logins.iter() }
            .map(|(id, _)| id.0 as usize + 1)
            .max();
        let (mut counts, since) = (vec![0; slots.unwrap_or(0)], self.lately());
        for (_, client) in self.clients.iter() {
            if let Some(login) = client.login.filter(|_| client.is_active(since)) {
                counts[login.0 as usize] += 1;
            }
        }
        self.spread.active = counts;
        self.spread.next_count = Time(self.now.0 + self.clients.len() as u64 * COUNT_NS);
    }

    /// Stores the thread's load since the last report, and the number of mails to other workers so
    /// far, for the console.
    pub fn measured(&mut self, signals: ThreadLoad, posted: u64) {
        self.spread.signals = signals;
        self.spread.posted = posted;
    }

    /// How many workers a pool may have.
    pub(crate) fn width(&self, key: &LoginKey) -> u16 {
        let Some(entry) = self.config.entry(&key.database) else {
            return 1;
        };
        let scopes = self.config.scopes(Some(entry), Some(&key.user));
        widest(scopes.pool_size(), self.spread.usable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_as_wide_as_its_servers_allow() {
        let wide = [(1, 1), (3, 1), (7, 1), (8, 2), (20, 5), (100, 8), (0, 8)];
        for (size, width) in wide {
            assert_eq!(widest(size, 8), width, "{size} servers");
        }
        assert_eq!(widest(20, 2), 2);
    }
}
