//! Clients that wait to be placed: for the catalogues of the shards, or for RESUME of their database.
//! They stand in the line of a pool that gives no servers. When they go on, their messages are read
//! again, and so go to the shard that is right then.

use crate::client::ClientState;
use crate::event::{ClientId, Out, Time};
use crate::link::upstream::Flow;
use crate::next::Next;
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;

impl Pooler {
    /// The next message of a client without a server can't be placed yet: the client waits. It is
    /// cancelled, and times out, as one that waits for a server.
    pub(crate) fn waits_to_be_placed(&mut self, id: ClientId) -> Flow {
        let now = self.now;
        let since = self.moves.arriving.take().unwrap_or(now);
        self.stands_to_be_placed(id, since);
        Flow::Stalled
    }

    fn stands_to_be_placed(&mut self, id: ClientId, since: Time) {
        let Some(login) = self.clients.at(id).login else {
            return;
        };
        let pool = self.pool_at(login, Purpose::Placing, TargetName::Entry);
        let client = self.clients.at_mut(id);
        client.times.begin_request(since);
        client.stands_in_line(pool);
        self.pools.at_mut(pool).waiting.join_since(id, since);
        self.watch_client(id);
    }

    /// All who wait to be placed are placed, or go on waiting, with their time.
    pub(crate) fn place_waiting(&mut self) {
        for pool in self.pools.ids() {
            if self.pools.at(pool).key.purpose != Purpose::Placing {
                continue;
            }
            for (id, since) in self.pools.at_mut(pool).waiting.take_all() {
                let stands =
                    |state: &ClientState| matches!(state, ClientState::Waiting(of) if *of == pool);
                let client = self.clients.get_mut(id);
                if let Some(client) = client.filter(|client| stands(client.state())) {
                    client.becomes_idle(self.now);
                    self.next.note(Next::Place(id, since));
                }
            }
        }
    }

    /// PAUSE: clients of paused sharded databases that wait for a server of a shard get none. They
    /// will be placed again.
    pub(crate) fn call_waiting_back(&mut self, out: &mut Out) {
        for pool in self.pools.ids() {
            let line = self.pools.at(pool);
            if line.key.purpose != Purpose::Clients || line.waiting.is_empty() {
                continue;
            }
            // By the map in force the pool may be a shard's, though the configuration says otherwise.
            let is_called = |(id, _): (ClientId, Time)| {
                let client = self.clients.get(id);
                client.is_some_and(|client| {
                    client.sharded.is_some() && self.janitor.is_paused(&client.who.database)
                })
            };
            if !line.waiting.iter().any(is_called) {
                continue;
            }
            for (id, since) in self.pools.at_mut(pool).waiting.take_all() {
                let client = self.clients.get(id).filter(|client| client.waits());
                let Some(client) = client else { continue };
                if client.sharded.is_some() && self.janitor.is_paused(&client.who.database) {
                    self.stands_to_be_placed(id, since);
                } else {
                    self.pools.at_mut(pool).waiting.join(id, since);
                }
            }
            if !self.pools.at(pool).is_waited_for() {
                self.sated(pool, out);
            }
        }
    }
}
