//! Howdah stops reading from a connection, and reads from it again. A client's bytes that Howdah
//! can't handle yet are held, up to a bound.

use crate::event::{ClientId, Out, Peer, ServerId};
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
                client.and_then(|client| Some((client.inbox.waits_for_room()?, client.login?)));
            if let Some((size, login)) = wish {
                let share = &self.logins.at(login).share;
                if !share.will_have_room(size) {
                    // Texts have taken the room for good. The message is answered without it.
                    self.clients.at_mut(id).inbox.gives_room_back();
                    self.next.note(Next::Resume(id));
                } else if full.contains(&login) || !share.has_room(size) {
                    full.push(login);
                    self.room_line.push_back(id);
                } else {
                    self.clients.at_mut(id).inbox.gets_room(share, size);
                    self.next.note(Next::Resume(id));
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

    /// Reads from a server again, unless a reason against it remains.
    pub(crate) fn unpause_server(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let full = server
            .linked_client()
            .and_then(|client| self.clients.get(client))
            .is_some_and(|client| client.valve.is_congested());
        if self.janitor.suspension.is_none() && !full {
            server.valve.unpause(Peer::Server(id), out);
        }
    }
}
