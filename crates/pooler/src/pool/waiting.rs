//! Who waits for a server of a pool, or to be let in: the line, and how it ends in vain.

use crate::client;
use crate::event::{ClientId, Out};
use crate::fault::Fault;
use crate::pool::PoolId;
use crate::pooler::Pooler;

impl Pooler {
    /// Puts a client at the end of its pool's queue.
    pub(crate) fn await_server(&mut self, id: ClientId, pool_id: PoolId) {
        let pool = self.pools.at_mut(pool_id);
        // Those who have left are passed over at the front; where they pile up they go at once.
        if pool.waiting.len() > 2 * pool.clients() as usize + 16 {
            let clients = &self.clients;
            pool.waiting.retain(|(waiter, _)| {
                let client = clients.get(*waiter);
                client.is_some_and(client::Client::waits)
            });
        }
        pool.waiting.push_back((id, self.now));
    }

    /// The client that has waited longest; those that have left are passed over.
    /// So are those who want a server of their own, but they stay in line.
    pub(super) fn next_waiter(&mut self, pool_id: PoolId) -> Option<ClientId> {
        let waiting = &mut self.pools.at_mut(pool_id).waiting;
        let mut at = 0;
        loop {
            let (id, _) = *waiting.get(at)?;
            let client = self.clients.get(id);
            match client.filter(|c| c.waits()) {
                Some(client) if client.waits_for_its_own() => at += 1,
                waits => {
                    waiting.remove(at);
                    if waits.is_some() {
                        return Some(id);
                    }
                }
            }
        }
    }

    /// Forgets waiters at the front that have left, so that ages are those of who still waits, and
    /// newcomers that have.
    pub(crate) fn trim_waiting(&mut self, pool_id: PoolId) {
        let (clients, pool) = (&self.clients, self.pools.at_mut(pool_id));
        let awaits = |c: &client::Client| matches!(c.state(), client::State::Welcome);
        pool.newcomers
            .retain(|id| clients.get(*id).is_some_and(awaits));
        let stands = |id: &ClientId| clients.get(*id).is_some_and(client::Client::awaits_leave);
        pool.pin_line.retain(|(id, _)| stands(id));
        while let Some((client, _)) = self.pools.at(pool_id).waiting.front() {
            let client = self.clients.get(*client);
            if client.is_some_and(client::Client::waits) {
                return;
            }
            self.pools.at_mut(pool_id).waiting.pop_front();
        }
    }

    /// Forgets clients that have left before they were welcome.
    pub(crate) fn trim_newcomers(&mut self, pool_id: PoolId) {
        let clients = &self.clients;
        let stays = |c: &client::Client| matches!(c.state(), client::State::Welcome);
        let newcomers = &mut self.pools.at_mut(pool_id).newcomers;
        newcomers.retain(|id| clients.get(*id).is_some_and(stays));
    }

    /// Disconnects everybody who waits for a server of a pool, or for its first.
    pub(crate) fn drop_waiters(&mut self, pool_id: PoolId, fault: &Fault, out: &mut Out) {
        let pool = self.pools.at_mut(pool_id);
        let waiting: Vec<_> = pool.waiting.drain(..).map(|(client, _)| client).collect();
        let line = std::mem::take(&mut pool.pin_line);
        let newcomers = std::mem::take(&mut pool.newcomers);
        let line = line.into_iter().map(|(client, _)| client);
        for client in waiting.into_iter().chain(line).chain(newcomers) {
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
        let newcomers = std::mem::take(&mut pool.newcomers);
        let waiting = pool.waiting.iter().map(|(client, _)| *client);
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
