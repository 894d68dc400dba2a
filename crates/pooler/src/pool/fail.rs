//! Failed logins to PostgreSQL: which clients get the error, and which ones go on waiting.

use crate::client;
use crate::config::nanos;
use crate::event::{Out, ServerId};
use crate::fault::Fault;
use crate::next::Next;
use crate::pool::Failure;
use crate::pool::key::{PoolId, PoolKey, Purpose};
use crate::pooler::Pooler;

impl Pooler {
    /// Retries logins in pools with waiting clients, if the time has come.
    pub(crate) fn retry_logins(&mut self, out: &mut Out) {
        for id in self.pools.ids() {
            let Some(until) = self.pools.at(id).failure.as_ref().map(|f| f.until) else {
                continue;
            };
            self.trim_waiting(id);
            if !self.pools.at(id).is_waited_for() {
                continue;
            }
            if self.now < until {
                self.janitor.retry_at(until);
            } else {
                self.need_anew(id, out);
            }
        }
    }

    /// The last connect found nobody at the host: clients that wait for the pool's first server get
    /// the error after a while.
    pub(crate) fn nobody_is_there(&mut self, pool_id: PoolId) {
        let pool = self.pools.at_mut(pool_id);
        pool.finds_nobody();
        let waiting = pool.waiting.iter().map(|(client, _)| client);
        let new: Vec<_> = pool.newcomers().iter().copied().chain(waiting).collect();
        for id in new {
            self.watch_client(id);
        }
    }

    /// Logins fail on this worker, none is under way, and no other worker has a server: clients that are not logged
    /// in yet get the error.
    pub(crate) fn alone(&mut self, key: &PoolKey, out: &mut Out) {
        let Some(pool_id) = self.pools.find(key) else {
            return;
        };
        let pool = self.pools.at(pool_id);
        let failure = pool.failure.as_ref().filter(|_| !pool.awaits_room());
        let Some(failure) = failure.filter(|failure| failure.is_full()).cloned() else {
            return;
        };
        let connects = pool.connecting() > 0;
        if self.backs_off(pool_id) && !connects && !self.has_usable_server(pool_id) {
            let fault = Fault::ServerLogin(failure.sqlstate, failure.text);
            self.drop_newcomers(pool_id, &fault, out);
        }
    }

    /// Disconnects all clients that wait for a server of a pool, or for its first one.
    pub(crate) fn drop_waiters(&mut self, pool_id: PoolId, fault: &Fault, out: &mut Out) {
        let pool = self.pools.at_mut(pool_id);
        let lines = pool.waiting.take_all().chain(pool.pin_line.take_all());
        let newcomers = pool.take_newcomers();
        for client in lines.map(|(client, _)| client).chain(newcomers) {
            if self
                .clients
                .get(client)
                .is_some_and(client::Client::is_waiting)
            {
                self.disconnect(client, fault.clone(), out);
            }
        }
    }

    /// Disconnects those waiting clients of a pool that are not logged in yet.
    pub(crate) fn drop_newcomers(&mut self, pool_id: PoolId, fault: &Fault, out: &mut Out) {
        let pool = self.pools.at_mut(pool_id);
        let newcomers = pool.take_newcomers();
        let waiting = pool.waiting.iter().map(|(client, _)| client);
        let all: Vec<_> = newcomers.into_iter().chain(waiting).collect();
        for id in all {
            let new = |c: &client::Client| !c.welcomed && c.is_waiting();
            if self.clients.get(id).is_some_and(new) {
                self.disconnect(id, fault.clone(), out);
            }
        }
    }

    /// Notes that a pool's new servers fail for now, because the login of one has.
    pub(crate) fn pool_fails(&mut self, id: ServerId, sqlstate: &str, text: &str) {
        let server = gone!(self.servers.get(id));
        let took = self.now.0.saturating_sub(server.times.connected.0);
        let pool = self.pools.at_mut(server.pool);
        self.logins.at_mut(server.login).count_connect_failure();
        pool.host_fails();
        let retry = nanos(self.config.globals.server_login_retry);
        let last = pool.failure.as_ref();
        let failure = Failure::new((self.now, took), (sqlstate, text), last, retry);
        self.janitor.retry_at(failure.until);
        pool.logins_fail(failure);
    }

    /// Notes that new servers fail for now, and tells clients that wait for the first server.
    pub(crate) fn login_failed(&mut self, id: ServerId, sqlstate: &str, text: &str, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        let (login_id, pool_id, reserved) = (server.login, server.pool, server.reserved_for());
        if self.pools.at(pool_id).key.purpose == Purpose::Checks {
            return self.check_fails(id, sqlstate, text, out);
        }
        if let Some(client) = reserved {
            let fault = Fault::ServerLogin(sqlstate.to_string(), text.to_string());
            return self.disconnect(client, fault, out);
        }
        let pool = self.pools.at(pool_id);
        // The host of this login is one more.
        if sqlstate == "08006" && (pool.hosts_failed() as usize) + 1 < pool.target.hosts.len() {
            self.logins.at_mut(login_id).count_connect_failure();
            return self.pools.at_mut(pool_id).host_fails();
        }
        self.pool_fails(id, sqlstate, text);
        let (pool, login) = (self.pools.at(pool_id), self.logins.at(login_id));
        let failure = gone!(pool.failure.as_ref());
        let (absent, full) = (failure.is_absent(), failure.is_full());
        if pool.key.listens() {
            let key = login.key.clone();
            return self.lose_listener(&key, out);
        }
        let has = |pools: &[(PoolId, u32)]| pools.iter().any(|(pool, _)| *pool == pool_id);
        let serves_reads = login.read_pools().iter().any(|of| of.pool == pool_id);
        if serves_reads && !has(login.shares()) {
            // Reads go elsewhere.
            return self.next.note(Next::RouteWaiting(pool_id));
        }
        // A working server, or another try, may still serve the waiting clients.
        if absent || self.has_usable_server(pool_id) {
            return;
        }
        let fault = Fault::ServerLogin(sqlstate.to_string(), text.to_string());
        if !full {
            self.drop_waiters(pool_id, &fault, out);
        } else if self.workers == 1 && !self.pools.at(pool_id).awaits_room() {
            // With several workers, Howdah first asks the Broker whether others have servers.
            self.drop_newcomers(pool_id, &fault, out);
        }
    }
}
