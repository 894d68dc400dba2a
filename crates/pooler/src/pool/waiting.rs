//! Clients that wait for a server or for their login: the queue, the reason, and the final error.

use crate::client;
use crate::client::ClientState;
use crate::fault::Fault;
use crate::ids::ClientId;
use crate::pool::key::{PoolId, PoolKey, Purpose};
use crate::pool::line::Turn;
use crate::pool::reason::Reason;
use crate::pool::supply::HeldBy;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;

impl Pooler {
    /// Puts a client at the end of its pool's queue.
    pub(crate) fn await_server(&mut self, id: ClientId, pool_id: PoolId) {
        let pool = self.pools.at_mut(pool_id);
        let clients = self.logins.at(pool.login).clients() as usize;
        // Clients that have left are skipped when they reach the front. If the queue has too many
        // of them, they are all removed here.
        if pool.waiting.len() > 2 * clients + 16 {
            let clients = &self.clients;
            let waits = |id| clients.get(id).is_some_and(client::Client::waits);
            pool.waiting.retain(waits);
        }
        pool.waiting.join(id, self.now);
    }

    /// Takes the client that has waited longest. Clients that have left are removed. Clients that
    /// want a server of their own (replication) are skipped, but keep their places.
    pub(super) fn next_waiter(&mut self, pool_id: PoolId) -> Option<ClientId> {
        let pool = self.pools.at_mut(pool_id);
        pool.waiting.take_next(|id| match self.clients.get(id) {
            Some(client) if client.waits_for_its_own() => Turn::Stays,
            Some(client) if client.waits() => Turn::Served,
            _ => Turn::Gone,
        })
    }

    /// Removes clients that have left, from the front of the queue and from the newcomers. So ages
    /// are those of clients that still wait.
    pub(crate) fn trim_waiting(&mut self, pool_id: PoolId) {
        let (clients, pool) = (&self.clients, self.pools.at_mut(pool_id));
        let awaits = |c: &client::Client| matches!(c.state(), ClientState::Welcome(_));
        pool.trim_newcomers(|id| clients.get(id).is_some_and(awaits));
        let stands = |id| {
            clients
                .get(id)
                .is_some_and(client::Client::awaits_permission)
        };
        pool.pin_line.retain(stands);
        let waits = |id| clients.get(id).is_some_and(client::Client::waits);
        pool.waiting.trim(waits);
    }
}

impl Pooler {
    /// The Broker says which limit holds a pool back.
    pub(crate) fn held_back(&mut self, key: &PoolKey, by: HeldBy) {
        if let Some(id) = self.pools.find(key) {
            self.pools.at_mut(id).set_held_by(by);
        }
    }

    /// Why clients of a pool wait, if any do.
    pub(crate) fn reason(&self, pool_id: PoolId) -> Reason {
        let pool = self.pools.at(pool_id);
        if pool.paused() {
            return Reason::Paused;
        }
        if pool.key.purpose == Purpose::Placing {
            let entry = &self.logins.at(pool.login).terms.database;
            let sharded = entry.shard_of.as_deref();
            return match sharded.is_some_and(|name| self.janitor.is_paused(name)) {
                true => Reason::Paused,
                false => Reason::Catalogue,
            };
        }
        if pool.key.target == TargetName::NoHost {
            let login = self.logins.at(pool.login);
            return Reason::NoHost(self.why_no_host(&login.terms.database));
        }
        if pool.held() {
            return Reason::Suspended;
        }
        if let Some(failure) = &pool.failure {
            return if failure.secret.is_some() {
                Reason::Secret(failure.text.clone())
            } else if failure.is_absent() && pool.key.target != TargetName::Entry {
                let login = self.logins.at(pool.login);
                Reason::NoHost(self.why_no_host(&login.terms.database))
            } else if failure.is_unreachable() {
                Reason::Unreachable(failure.text.clone())
            } else {
                Reason::LoginFailed(failure.text.clone())
            };
        }
        if !pool.is_waited_for() && !pool.pin_line.is_empty() {
            return Reason::PinLimit;
        }
        if pool.testing() > 0 {
            return Reason::ServerTest;
        }
        if pool.connecting() > 0 {
            return Reason::ServerLogin;
        }
        match pool.held_by() {
            Some(by) => Reason::HeldBy(by),
            None => Reason::Asked,
        }
    }

    /// The text for a waiting client: the reason, its place in this worker's queue, and how long
    /// it has waited. The queue is ordered by arrival time, so a binary search finds the place.
    pub(crate) fn wait_detail(&self, id: ClientId) -> Option<String> {
        let client = self.clients.get(id)?;
        let pool_id = client.waits_in()?;
        let (waiting, reason) = if client.awaits_permission() {
            (&self.pools.at(pool_id).pin_line, Reason::PinLimit)
        } else {
            (&self.pools.at(pool_id).waiting, self.reason(pool_id))
        };
        let before = waiting.before(client.times.request);
        let lookup = match client.state() {
            ClientState::Lookup(_) => "It waits for auth_query. ",
            _ => "",
        };
        Some(format!(
            "{lookup}Reason: {}. Place in the queue: {} of {}. Waiting for {} s.",
            reason.text(),
            before + 1,
            waiting.len().max(before + 1),
            self.now.0.saturating_sub(client.times.request.0) / 1_000_000_000,
        ))
    }

    /// The text for a client whose wait has timed out: what it was waiting for.
    pub(crate) fn why_in_vain(&self, id: ClientId, fault: &Fault) -> Option<String> {
        match fault {
            Fault::QueryWait
            | Fault::QueryWaitServerDown
            | Fault::QueryTimeoutWaiting
            | Fault::LoginTimeout
            | Fault::LoginTimeoutServerDown => self.wait_detail(id),
            _ => None,
        }
    }
}
