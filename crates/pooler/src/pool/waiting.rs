//! Who waits for a server of a pool, or to be let in: the line, and how it ends in vain.

use crate::client;
use crate::event::{ClientId, Out};
use crate::fault::Fault;
use crate::pool::PoolId;
use crate::pool::line::Turn;
use crate::pooler::Pooler;

impl Pooler {
    /// Puts a client at the end of its pool's queue.
    pub(crate) fn await_server(&mut self, id: ClientId, pool_id: PoolId) {
        let pool = self.pools.at_mut(pool_id);
        // Those who have left are passed over at the front; where they pile up they go at once.
        if pool.waiting.len() > 2 * pool.clients() as usize + 16 {
            let clients = &self.clients;
            let waits = |id| clients.get(id).is_some_and(client::Client::waits);
            pool.waiting.retain(waits);
        }
        pool.waiting.join(id, self.now);
    }

    /// The client that has waited longest; those that have left are passed over.
    /// So are those who want a server of their own, but they stay in line.
    pub(super) fn next_waiter(&mut self, pool_id: PoolId) -> Option<ClientId> {
        let waiting = &mut self.pools.at_mut(pool_id).waiting;
        waiting.take_next(|id| match self.clients.get(id) {
            Some(client) if client.waits_for_its_own() => Turn::Stays,
            Some(client) if client.waits() => Turn::Served,
            _ => Turn::Gone,
        })
    }

    /// Forgets waiters at the front that have left, so that ages are those of who still waits, and
    /// newcomers that have.
    pub(crate) fn trim_waiting(&mut self, pool_id: PoolId) {
        let (clients, pool) = (&self.clients, self.pools.at_mut(pool_id));
        let awaits = |c: &client::Client| matches!(c.state(), client::State::Welcome);
        pool.trim_newcomers(|id| clients.get(id).is_some_and(awaits));
        let stands = |id| clients.get(id).is_some_and(client::Client::awaits_leave);
        pool.pin_line.retain(stands);
        let waits = |id| clients.get(id).is_some_and(client::Client::waits);
        pool.waiting.trim(waits);
    }

    /// Forgets clients that have left before they were welcome.
    pub(crate) fn trim_newcomers(&mut self, pool_id: PoolId) {
        let clients = &self.clients;
        let stays = |c: &client::Client| matches!(c.state(), client::State::Welcome);
        let pool = self.pools.at_mut(pool_id);
        pool.trim_newcomers(|id| clients.get(id).is_some_and(stays));
    }

    /// Disconnects everybody who waits for a server of a pool, or for its first.
    pub(crate) fn drop_waiters(&mut self, pool_id: PoolId, fault: &Fault, out: &mut Out) {
        let pool = self.pools.at_mut(pool_id);
        let lines = pool.waiting.take_all().chain(pool.pin_line.take_all());
        let newcomers = pool.take_newcomers();
        for client in lines.map(|(client, _)| client).chain(newcomers) {
            let waits =
                |c: &client::Client| c.waits() || matches!(c.state(), client::State::Welcome);
            if self.clients.get(client).is_some_and(waits) {
                self.disconnect(client, fault.clone(), out);
            }
        }
    }

    /// Disconnects those of them who are not logged in yet.
    pub(crate) fn drop_newcomers(&mut self, pool_id: PoolId, fault: &Fault, out: &mut Out) {
        let pool = self.pools.at_mut(pool_id);
        let newcomers = pool.take_newcomers();
        let waiting = pool.waiting.iter().map(|(client, _)| client);
        let all: Vec<_> = newcomers.into_iter().chain(waiting).collect();
        for id in all {
            let new = |c: &client::Client| {
                use client::State::{Lookup, Waiting, Welcome};
                !c.welcomed && matches!(c.state(), Welcome | Waiting | Lookup)
            };
            if self.clients.get(id).is_some_and(new) {
                self.disconnect(id, fault.clone(), out);
            }
        }
    }
}
