//! Back-pressure: a connection is not read from while its bytes can't be handled, or while the other side
//! of its link reads too slowly.

use crate::event::{Action, ClientId, Out, Peer, ServerId};
use crate::pooler::Pooler;

impl Pooler {
    /// Keeps bytes of a client for later.
    pub(crate) fn hold(&mut self, id: ClientId, bytes: &[u8], out: &mut Out) {
        let spare = || self.spare.pop().unwrap_or_default();
        self.clients.at_mut(id).inbox.hold_in(bytes, spare);
        self.mind_held(id, out);
    }

    /// A client whose bytes can't be handled for now is not read from beyond a bound; one message
    /// that must be whole may be longer.
    pub(crate) fn mind_held(&mut self, id: ClientId, out: &mut Out) {
        let client = self.clients.at_mut(id);
        if client.holds_back()
            && !client.valve.is_paused()
            && client.inbox.held().len() > client.held_max()
        {
            // Doubled as it grew; it may wait for long.
            client.inbox.shrink();
            client.valve.pause(Peer::Client(id), out);
        }
    }

    /// A client that waits for a server and is not read from may have gone: nothing else would tell.
    pub(crate) fn look_for_ends(&self, out: &mut Out) {
        for (_, pool) in self.pools.iter() {
            for (id, _) in pool.waiting.iter() {
                if self.clients.get(id).is_some_and(|c| c.valve.is_paused()) {
                    out.push(Action::LookForEnd(Peer::Client(id)));
                }
            }
        }
    }

    /// Reads from a client again, if nothing speaks against it.
    pub(crate) fn unpause_client(&mut self, id: ClientId, out: &mut Out) {
        let client = self.clients.at(id);
        // More than that may be held only of a message that must be whole, whose rest is wanted.
        if self.janitor.suspension.is_some() {
            return;
        }
        if !client.valve.is_paused()
            || (client.holds_back() && client.inbox.held().len() > client.held_max())
        {
            return;
        }
        let full = client
            .link()
            .and_then(|s| self.servers.get(s))
            .is_some_and(|s| s.valve.is_congested());
        if full || client.valve.is_congested() {
            return;
        }
        let client = self.clients.at_mut(id);
        client.valve.unpause(Peer::Client(id), out);
    }

    /// A send queue is full: the other side of the link is not read from. Nor is a client that does
    /// not read itself: some of its messages are answered here, without a server.
    pub(crate) fn congested(&mut self, peer: Peer, out: &mut Out) {
        match peer {
            Peer::Client(id) => {
                let client = gone!(self.clients.get_mut(id));
                client.valve.congests();
                let link = client.link();
                // Nor is it itself: much of what it is sent may be of our own making. PostgreSQL
                // reads no more than it can answer, either.
                client.valve.pause(Peer::Client(id), out);
                if let Some(id) = link {
                    let server = self.servers.at_mut(id);
                    server.valve.pause(Peer::Server(id), out);
                }
            }
            Peer::Server(id) => {
                let server = gone!(self.servers.get_mut(id));
                server.valve.congests();
                if let Some(id) = server.client() {
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
                if let Some(server) = client.link() {
                    self.unpause_server(server, out);
                }
                self.unpause_client(id, out);
                self.tell_if_idle(id, out);
                self.console_run(id, out);
            }
            Peer::Server(id) => {
                let server = gone!(self.servers.get_mut(id));
                server.valve.drains();
                if let Some(client) = server.client() {
                    self.unpause_client(client, out);
                }
            }
        }
    }

    pub(crate) fn unpause_server(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        if self.janitor.suspension.is_none() {
            server.valve.unpause(Peer::Server(id), out);
        }
    }
}
