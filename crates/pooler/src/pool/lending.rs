//! Lending servers to hungry workers.

use crate::event::{Action, Out, Peer, ServerId};
use crate::ids::WorkerId;
use crate::mail::Mail;
use crate::pool::key::{PoolKey, Purpose};
use crate::pooler::Pooler;

impl Pooler {
    /// Clients of another worker wait: lends an idle server, or remembers the report.
    pub(crate) fn hungry(
        &mut self,
        worker: WorkerId,
        key: &PoolKey,
        age: u64,
        unwelcomed: bool,
        idle_only: bool,
        out: &mut Out,
    ) {
        let Some(pool_id) = self.pools.find(key) else {
            return;
        };
        self.trim_waiting(pool_id);
        let pool = self.pools.at_mut(pool_id);
        pool.hungry.forget(worker);
        if !pool.gives() {
            return;
        }
        if pool.waiting.is_empty()
            && let Some(server) = pool.idle.take_oldest()
        {
            return self.lend(server, worker, out);
        }
        // A lent server would have brought the welcome along.
        let login = self.logins.at(pool.login);
        if unwelcomed
            && pool.key.purpose == Purpose::Clients
            && let Some(welcome) = login.welcome.clone()
        {
            let epoch = self.janitor.epoch();
            let mail = Mail::Welcome(login.key.clone(), Box::new(welcome), epoch);
            out.push(Action::Post(worker, mail));
        }
        if !idle_only {
            pool.hungry.says(worker, age, self.now);
        }
    }

    /// The Broker says that another worker has too few servers: lends an idle one, or the next
    /// released.
    pub(crate) fn give(&mut self, key: &PoolKey, to: WorkerId, out: &mut Out) {
        let Some(pool_id) = self.pools.find(key) else {
            return;
        };
        let pool = self.pools.at_mut(pool_id);
        if !pool.gives() {
            return;
        }
        match pool.idle.take_oldest() {
            Some(server) => self.lend(server, to, out),
            None => pool.hungry.name(to),
        }
    }

    /// Sends an idle server to another worker, as soon as the driver has detached it.
    pub(super) fn lend(&mut self, id: ServerId, to: WorkerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        server.lend_to(to);
        out.push(Action::Detach(Peer::Server(id)));
    }
}
