//! How a pool grows: what a worker tells the Broker about waiting clients, and what the Broker
//! permits.

use std::sync::Arc;

use crate::client;
use crate::event::{Action, Out};
use crate::mail::ToBroker;
use crate::note::Level;
use crate::pool::key::{PoolId, PoolKey};
use crate::pooler::Pooler;

/// How long a client must have waited before its worker borrows a server although one of its own
/// is logging in, in nanoseconds. The login may hang.
const LOGS_IN_NS: u64 = 500_000_000;

impl Pooler {
    /// Tells the Broker that clients wait, unless the Broker knows it already or a server is on
    /// its way.
    pub(crate) fn need(&mut self, pool_id: PoolId, out: &mut Out) {
        self.serve_waiting(pool_id, out);
        let opens = self.opens(pool_id);
        let pool = self.pools.at(pool_id);
        let tested = pool.testing() > 0 && pool.testing() as usize >= pool.waiting.len();
        let held_back = pool.is_need_told(opens) || !pool.gives() || tested;
        // Other workers may have servers to lend even if this worker can't open any.
        if !pool.is_waited_for() || held_back || self.workers == 1 && !opens {
            return;
        }
        if pool.connecting() > 0 && self.oldest_wait(pool_id) < LOGS_IN_NS {
            self.mind_hunger()
        } else {
            self.tell_need(pool_id, out)
        }
    }

    /// True if this worker can use a permit for a server now: logins do not fail, and no server is
    /// logging in, unless the Broker was told before that login.
    fn opens(&self, pool_id: PoolId) -> bool {
        let pool = self.pools.at(pool_id);
        (pool.connecting() == 0 || pool.is_need_told(true)) && !self.backs_off(pool_id)
    }

    /// How long the oldest client has waited, in nanoseconds. Clients that wait for the pool's first
    /// server count, too. Otherwise they would never get one while all other servers are busy.
    pub(crate) fn oldest_wait(&self, pool_id: PoolId) -> u64 {
        let (now, pool) = (self.now, self.pools.at(pool_id));
        let newcomers = { pool.newcomers().iter() }.filter_map(|id| self.clients.get(*id));
        let newcomers = newcomers.map(|client| now.0.saturating_sub(client.times.connected.0));
        newcomers.chain(pool.longest_wait(now)).max().unwrap_or(0)
    }

    /// Tells the Broker again, even if the Broker was told before: much may have changed since.
    pub(crate) fn need_anew(&mut self, pool_id: PoolId, out: &mut Out) {
        let pool = self.pools.at(pool_id);
        let asks = self.workers > 1 || !self.backs_off(pool_id);
        if pool.is_in_need() && pool.is_waited_for() && asks {
            self.tell_need(pool_id, out);
        } else {
            self.need(pool_id, out);
        }
    }

    /// Tells the Broker how long clients have waited.
    pub(crate) fn tell_need(&mut self, pool_id: PoolId, out: &mut Out) {
        let worker = self.worker;
        let (age, opens) = (self.oldest_wait(pool_id), self.opens(pool_id));
        let pool = self.pools.at(pool_id);
        let need = ToBroker::Need {
            worker,
            pool: pool.key.clone(),
            age,
            waiting: u32::try_from(pool.waiting.len()).unwrap_or(u32::MAX),
            unwelcomed: pool.is_untried(),
            replication: self.wants_replication(pool_id),
            opens,
            bounds: pool.supply.bounds,
        };
        self.pools.at_mut(pool_id).tells_need(age, opens);
        out.push(Action::Broker(need));
        self.mind_hunger();
    }

    /// Tells the Broker that the need is met. The Broker must also forget a repeated report.
    pub(crate) fn sated(&mut self, pool_id: PoolId, out: &mut Out) {
        let worker = self.worker;
        let pool = self.pools.at_mut(pool_id);
        if pool.take_need() {
            let sated = ToBroker::Sated {
                worker,
                pool: pool.key.clone(),
            };
            out.push(Action::Broker(sated));
        }
    }

    /// True if a client waits for a server of its own (replication).
    fn wants_replication(&self, pool_id: PoolId) -> bool {
        let mut waiting = self.pools.at(pool_id).waiting.iter();
        waiting.any(|(id, _)| {
            self.clients
                .get(id)
                .is_some_and(client::Client::waits_for_its_own)
        })
    }

    /// The Broker permits this worker to open a server.
    pub(crate) fn permitted(&mut self, key: &PoolKey, reserve: bool, warm: bool, out: &mut Out) {
        let found = self.pools.find(key);
        if let Some(pool_id) = found {
            self.trim_waiting(pool_id);
        }
        let wanted = found.filter(|id| {
            let pool = self.pools.at(*id);
            (warm || pool.is_waited_for()) && pool.gives() && !self.backs_off(*id)
        });
        if let Some(pool_id) = found
            && !warm
        {
            self.sated(pool_id, out);
        }
        let Some(pool_id) = wanted else {
            let (worker, pool) = (self.worker, Arc::new(key.clone()));
            let freed = ToBroker::Freed { worker, pool };
            out.push(Action::Broker(freed));
            return;
        };
        if reserve {
            let text = format!(
                "pool {}/{}: taking connection from reserve_pool",
                key.login.database, key.login.user
            );
            out.note(crate::note::Note::new(Level::Log, text));
        }
        self.open_server(pool_id, out);
    }
}
