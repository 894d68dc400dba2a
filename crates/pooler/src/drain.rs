//! Clients that end in turn, each at the end of a transaction: when they are old, and when the process is
//! about to end. Each has one entry in the timers, so transactions cost nothing.

use chacha20::rand_core::Rng;

use crate::client::{Client, ClientState};
use crate::config::nanos;
use crate::event::{ClientId, Time};
use crate::pooler::Pooler;

impl Pooler {
    /// A client has logged in, or `client_lifetime` is new: the client ends when it is as old as that,
    /// less a random fifth, so that clients that came together do not leave together. If the setting is gone,
    /// so is that end.
    pub(crate) fn begin_lifetime(&mut self, id: ClientId) {
        let lifetime = nanos(self.config.globals.client_lifetime);
        let client = gone!(self.clients.get_mut(id));
        if lifetime == 0 || !may_be_ended(client) {
            if let Some(ends) = client.ends_if_any() {
                ends.lifetime = None;
                client.end_has_gone(self.now);
            }
            return;
        }
        let fifth = self.random.next_u64() % (lifetime / 5).max(1);
        let at = client.times.connected.0.saturating_add(lifetime - fifth);
        // If the setting is new, those that are too old by now do not leave at one moment either.
        let at = Time(if at > self.now.0 {
            at
        } else {
            self.now.0 + fifth
        });
        client.ends_mut().lifetime = Some(at);
        client.end_has_gone(self.now);
    }

    /// A client has come from elsewhere. It keeps the end that it had there, unless that was the end of
    /// another process.
    pub(crate) fn keeps_lifetime(&mut self, id: ClientId) {
        let drains = self.janitor.drained_at.is_some();
        let client = gone!(self.clients.get_mut(id));
        if let Some(ends) = client.ends_if_any() {
            ends.drain = ends.drain.filter(|_| drains);
            if ends.lifetime.is_some() {
                return;
            }
        }
        self.begin_lifetime(id);
    }

    /// Ends all clients, spread evenly over so many nanoseconds, in random order.
    pub(crate) fn end_clients(&mut self, over: u64) {
        self.janitor.drained_at = Some(Time(self.now.0.saturating_add(over)));
        let all = self.clients.iter();
        let all = all.filter(|(_, client)| may_be_ended(client));
        let mut all: Vec<ClientId> = all.map(|(id, _)| id).collect();
        for end in (1..all.len()).rev() {
            let other = self.random.next_u64() % (end as u64 + 1);
            all.swap(end, other as usize);
        }
        let step = over / (all.len() as u64).max(1);
        // The ends of the workers lie between each other.
        let first = step / u64::from(self.workers) * u64::from(self.worker.0);
        let mut at = Time(self.now.0.saturating_add(first));
        for id in all {
            self.end_client_at(id, at);
            at = Time(at.0.saturating_add(step));
        }
    }

    /// While all clients are being ended: ends those that have logged in or come from another worker
    /// meanwhile, in what is left of the time.
    pub(crate) fn end_latecomers(&mut self) {
        let Some(until) = self.janitor.drained_at else {
            return;
        };
        let left = until.0.saturating_sub(self.now.0).max(1);
        let late = self.clients.iter().filter(|(_, client)| {
            let first = client.ends_at.as_ref().and_then(|ends| ends.first());
            let ends = first.is_some_and(|at| at <= until);
            may_be_ended(client) && !ends
        });
        let late: Vec<ClientId> = late.map(|(id, _)| id).collect();
        for id in late {
            let at = Time(self.now.0 + 1 + self.random.next_u64() % left);
            self.end_client_at(id, at);
        }
    }

    fn end_client_at(&mut self, id: ClientId, at: Time) {
        let ends = self.clients.at_mut(id).ends_mut();
        ends.drain = Some(ends.drain.map_or(at, |own| own.min(at)));
        self.watch_client(id);
    }
}

/// True for a client that has logged in, and has transactions with ends. Replication has none, and
/// administrators see to it themselves.
fn may_be_ended(client: &Client) -> bool {
    let ends = matches!(
        client.state(),
        ClientState::Closing | ClientState::Console(_) | ClientState::Successor
    );
    client.welcomed && !ends && !client.is_replicating()
}
