//! Making room for a pool that a shared limit holds back: a server of another pool is closed.

use std::sync::Arc;

use crate::client::Client;
use crate::event::{Action, Close, Out, ServerId, Time};
use crate::mail::{Evict, ToBroker};
use crate::pool::key::{PoolId, PoolKey};
use crate::pool::starved::Starved;
use crate::pooler::Pooler;

/// How long a worker remembers that another pool is starved, in nanoseconds. A starved pool
/// repeats its report several times a second.
const STARVED_FOR_NS: u64 = 1_000_000_000;

impl Pooler {
    /// Whether a released server must be closed to make room for a starved pool. One closed server
    /// is enough. If clients wait here, a newly opened server serves a client first.
    pub(super) fn yields(&mut self, pool_id: PoolId, served: bool) -> bool {
        self.trim_waiting(pool_id);
        let Some(starved) = self.pools.at(pool_id).starved.clone() else {
            return false;
        };
        // Clients of this pool on other workers count like clients here.
        let elsewhere = self.pools.at(pool_id).hungry.longest_wait();
        let wait = self.longest_shared_wait(pool_id).max(elsewhere);
        if !served && wait.is_some() || !starved.outweighs(wait, self.now) {
            return false;
        }
        for id in self.pools.ids() {
            let pool = self.pools.at_mut(id);
            pool.yields_no_more_to(|other| *other == starved);
        }
        true
    }

    /// How long the oldest client has waited that a released server can serve, in nanoseconds.
    /// Clients that want a server of their own (replication) do not count: such a client may
    /// itself be the reason why a server must close.
    fn longest_shared_wait(&self, pool_id: PoolId) -> Option<u64> {
        let shares = |client: &Client| client.waits() && !client.waits_for_its_own();
        let mut waiting = self.pools.at(pool_id).waiting.iter();
        let (_, since) = waiting.find(|&(id, _)| self.clients.get(id).is_some_and(shares))?;
        Some(self.now.0.saturating_sub(since.0))
    }

    /// A limit holds the pool `key` back: closes the longest idle server of another pool. If
    /// none is idle, the next released one is closed, once clients of `key` have waited long.
    pub(crate) fn evict(&mut self, key: &PoolKey, from: &Evict, age: u64, out: &mut Out) {
        let mut oldest: Option<(Time, ServerId)> = None;
        for (_, pool) in self.pools.iter() {
            // Under SUSPEND and in a takeover, servers stay.
            if pool.held() || !from.concerns(key, &pool.key, pool.supply.bounds.host.as_ref()) {
                continue;
            }
            for id in pool.idle.iter() {
                let server = self.servers.at(id);
                if oldest.is_none_or(|(since, _)| server.times.used < since) {
                    oldest = Some((server.times.used, id));
                }
            }
        }
        match oldest {
            Some((_, id)) => {
                let login = self.servers.at(id).login;
                self.logins.at_mut(login).count_eviction();
                self.close_server(id, "evicted", Close::Await, out);
            }
            None => {
                let pool = Arc::new(key.clone());
                let starved = Starved {
                    since: Time(self.now.0.saturating_sub(age)),
                    until: Time(self.now.0 + STARVED_FOR_NS),
                    who: pool.clone(),
                };
                for id in self.pools.ids() {
                    let pool = self.pools.at_mut(id);
                    if from.concerns(key, &pool.key, pool.supply.bounds.host.as_ref()) {
                        pool.yields_to(starved.clone());
                    }
                }
                let worker = self.worker;
                let nothing = ToBroker::NothingToEvict { worker, pool };
                out.push(Action::Broker(nothing));
            }
        }
    }

    /// A starved pool got a server: no server must be closed for it any more.
    pub(crate) fn content(&mut self, key: &PoolKey) {
        for id in self.pools.ids() {
            let pool = self.pools.at_mut(id);
            pool.yields_no_more_to(|starved| *starved.who == *key);
        }
    }
}
