//! Back-pressure: Howdah stops reading from a connection (`pause.rs`) while the other side of its
//! link reads too slowly.

use crate::event::{Action, Out, Peer};
use crate::pooler::Pooler;

impl Pooler {
    /// Checks clients that wait for a server or for room, and are not read from: no other event
    /// would tell that such a client has left.
    pub(crate) fn look_for_ends(&self, out: &mut Out) {
        for id in &self.room_line {
            if self.clients.get(*id).is_some() {
                out.push(Action::LookForEnd(Peer::Client(*id)));
            }
        }
        for (_, pool) in self.pools.iter() {
            for (id, _) in pool.waiting.iter().chain(pool.pin_line.iter()) {
                if self.clients.get(id).is_some_and(|c| c.valve.is_paused()) {
                    out.push(Action::LookForEnd(Peer::Client(id)));
                }
            }
        }
    }

    /// A send queue is full. Howdah stops reading from the other side of the link, and also from a
    /// client that does not read its answers: Howdah itself makes some of these answers.
    pub(crate) fn congested(&mut self, peer: Peer, out: &mut Out) {
        match peer {
            Peer::Client(id) => {
                let client = gone!(self.clients.get_mut(id));
                client.valve.congests();
                let link = client.linked_server();
                // Howdah itself may make many of the client's answers. PostgreSQL does not read
                // more requests than it can answer, either.
                client.valve.pause(Peer::Client(id), out);
                if let Some(id) = link {
                    let server = self.servers.at_mut(id);
                    server.valve.pause(Peer::Server(id), out);
                }
            }
            Peer::Server(id) => {
                let server = gone!(self.servers.get_mut(id));
                server.valve.congests();
                if let Some(id) = server.linked_client() {
                    let client = self.clients.at_mut(id);
                    client.valve.pause(Peer::Client(id), out);
                }
            }
        }
    }

    /// A send queue has room again.
    pub(crate) fn drained(&mut self, peer: Peer, out: &mut Out) {
        match peer {
            Peer::Client(id) => {
                let client = gone!(self.clients.get_mut(id));
                client.valve.drains();
                if let Some(server) = client.linked_server() {
                    self.unpause_server(server, out);
                }
                self.unpause_client(id, out);
                self.tell_if_idle(id, out);
                self.console_run(id, out);
            }
            Peer::Server(id) => {
                let server = gone!(self.servers.get_mut(id));
                server.valve.drains();
                if let Some(client) = server.linked_client() {
                    self.unpause_client(client, out);
                }
            }
        }
    }
}
