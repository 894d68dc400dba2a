//! Back-pressure: Howdah stops reading from a connection while Howdah can't handle its bytes, or
//! while the other side of its link reads too slowly.

use crate::event::{Action, ClientId, Out, Peer, ServerId};
use crate::next::Next;
use crate::pooler::Pooler;

impl Pooler {
    /// Holds bytes of a client for later.
    pub(crate) fn hold(&mut self, id: ClientId, bytes: &[u8], out: &mut Out) {
        let spare = || self.spare.pop().unwrap_or_default();
        self.clients.at_mut(id).inbox.hold_in(bytes, spare);
        self.mind_held(id, out);
    }

    /// Stops reading from a client if Howdah holds too many of its bytes. A message that must be
    /// held whole may exceed the bound.
    pub(crate) fn mind_held(&mut self, id: ClientId, out: &mut Out) {
        let client = self.clients.at_mut(id);
        if client.holds_back()
            && !client.valve.is_paused()
            && client.inbox.held().len() > client.held_max()
        {
            // The buffer doubled as it grew, and the client may wait for long.
            client.inbox.shrink();
            client.valve.pause(Peer::Client(id), out);
        }
    }

    /// A client's message must be held whole, and the account has no room for it: nothing more is
    /// read until the message's turn.
    #[cold]
    pub(crate) fn await_room(&mut self, id: ClientId, size: usize, out: &mut Out) {
        let client = self.clients.at_mut(id);
        client.inbox.awaits_room(size);
        client.valve.pause(Peer::Client(id), out);
        self.room_line.push_back(id);
    }

    /// Gives room to messages that wait for it, the longest wait first. A pool without room holds
    /// up no other pool.
    #[cold]
    pub(crate) fn give_room(&mut self) {
        let mut full = Vec::new();
        for id in std::mem::take(&mut self.room_line) {
            let client = self.clients.get(id);
            let wish =
                client.and_then(|client| Some((client.inbox.waits_for_room()?, client.pool?)));
            if let Some((size, pool)) = wish {
                let share = &self.pools.at(pool).share;
                if !share.will_have_room(size) {
                    // Texts have taken the room for good. The message is answered without it.
                    self.next.note(Next::Resume(id));
                } else if full.contains(&pool) || !share.has_room(size) {
                    full.push(pool);
                    self.room_line.push_back(id);
                } else {
                    self.clients.at_mut(id).inbox.gets_room(share, size);
                    self.next.note(Next::Resume(id));
                }
            }
        }
    }

    /// Checks clients that wait for a server or for room, and are not read from: no other event
    /// would tell that such a client has left.
    pub(crate) fn look_for_ends(&self, out: &mut Out) {
        for id in &self.room_line {
            if self.clients.get(*id).is_some() {
                out.push(Action::LookForEnd(Peer::Client(*id)));
            }
        }
        for (_, pool) in self.pools.iter() {
            for (id, _) in pool.waiting.iter() {
                if self.clients.get(id).is_some_and(|c| c.valve.is_paused()) {
                    out.push(Action::LookForEnd(Peer::Client(id)));
                }
            }
        }
    }

    /// Reads from a client again, unless a reason against it remains.
    pub(crate) fn unpause_client(&mut self, id: ClientId, out: &mut Out) {
        let client = self.clients.at(id);
        // Only a message that must be held whole may exceed the bound. Howdah needs the rest of it.
        if self.janitor.suspension.is_some() {
            return;
        }
        if !client.valve.is_paused()
            || client.inbox.waits_for_room().is_some()
            || (client.holds_back() && client.inbox.held().len() > client.held_max())
        {
            return;
        }
        let full = client
            .linked_server()
            .and_then(|s| self.servers.get(s))
            .is_some_and(|s| s.valve.is_congested());
        if full || client.valve.is_congested() {
            return;
        }
        let client = self.clients.at_mut(id);
        client.valve.unpause(Peer::Client(id), out);
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

    pub(crate) fn unpause_server(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        if self.janitor.suspension.is_none() {
            server.valve.unpause(Peer::Server(id), out);
        }
    }
}
