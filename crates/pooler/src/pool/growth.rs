//! How a pool grows: what a worker tells the Broker about waiting clients. A permit then opens a
//! server (`server/connect.rs`).

use crate::client;
use crate::event::{Action, Out, Time};
use crate::mail::ToBroker;
use crate::pool::Pool;
use crate::pool::key::PoolId;
use crate::pooler::Pooler;

/// How often hungry workers report to the Broker if there are several workers, in nanoseconds.
const HUNGER_NS: u64 = 10_000_000;

impl Pooler {
    /// True if this worker can use a permit for a server now: logins do not fail, and no server is
    /// logging in, unless the Broker was told before that login.
    pub(super) fn opens(&self, pool_id: PoolId) -> bool {
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
            bounds: pool.supply.bounds.clone(),
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

    /// Arms the next report of hunger, if any pool has an unmet need, or clients that wait for a
    /// login.
    pub(crate) fn mind_hunger(&mut self) {
        let unmet =
            |pool: &Pool| pool.is_in_need() || pool.connecting() > 0 && pool.is_waited_for();
        if self.workers > 1
            && self.janitor.next_hunger.is_none()
            && self.pools.iter().any(|(_, pool)| unmet(pool))
        {
            self.janitor.next_hunger = Some(Time(self.now.0 + HUNGER_NS));
        }
    }

    /// Tells the Broker if no client of the pool waits any more.
    pub(crate) fn settle_hunger(&mut self, id: PoolId, out: &mut Out) {
        let pool = self.pools.at(id);
        if !pool.is_waited_for() {
            self.sated(id, out);
        }
    }
}
