//! The choice of a new client's worker, and the client's way there.

use howdah_wire::startup::{FirstPacket, length, read};

use super::startup::LoginWish;
use crate::client::ClientState;
use crate::console;
use crate::event::{Action, ClientId, LooseSocket, Out, Peer, Question, WorkerId};
use crate::mail::{ClientParcel, Mail};
use crate::pooler::Pooler;

impl Pooler {
    /// Chooses the client's worker.
    pub(super) fn place(
        &mut self,
        id: ClientId,
        wish: LoginWish<'_>,
        packet: &[u8],
        out: &mut Out,
    ) {
        let home = self.home(&wish);
        if home == self.worker {
            return self.placed(id, wish, out);
        }
        let client = self.clients.at_mut(id);
        client.inbox.hold_first(packet);
        client.moves_to(home);
        out.push(Action::Detach(Peer::Client(id)));
    }

    fn home(&mut self, wish: &LoginWish<'_>) -> WorkerId {
        // If the process ends soon, other workers may already have reported that they have no
        // clients.
        let ends = self.janitor.ending.is_some();
        if self.workers == 1 || ends || console::is_console(wish.database) {
            return self.worker;
        }
        let database = self.front(wish.database).to_owned();
        let Some(entry) = self.config.entry(&database) else {
            return self.worker;
        };
        let user = entry.pooled_as(wish.user);
        let login = self.shared.names.login(&database, user);
        self.seat_for(&login)
    }

    /// The driver has detached a client that moves to another worker.
    pub(crate) fn client_detached(&mut self, id: ClientId, socket: LooseSocket, out: &mut Out) {
        self.packs_instead(id);
        let Some(client) = self.clients.remove(id) else {
            out.push(Action::Discard(socket));
            return;
        };
        self.keep_no_blocks();
        if matches!(client.state(), ClientState::Successor) {
            return out.push(Action::Ask(Question::HandOver(socket)));
        }
        if let ClientState::Packed(standing) = *client.state() {
            return self.client_packed(id, *client, standing, socket, out);
        }
        if let ClientState::Leaving { to, waits } = *client.state() {
            return self.set_out(id, *client, (to, waits), socket, out);
        }
        let ClientState::Moving(to) = *client.state() else {
            out.push(Action::Discard(socket));
            return;
        };
        let parcel = ClientParcel {
            socket,
            via: client.via(),
            ends: client.ends,
            tls: client.tls,
            number: client.number,
            connected: client.times.connected,
            bytes: client.inbox.into_held(),
        };
        out.push(Action::Post(to, Mail::Client(Box::new(parcel))));
    }

    /// A client came from another worker.
    pub(crate) fn client_arrived(&mut self, parcel: ClientParcel, out: &mut Out) {
        self.tell_busy(out);
        let id = self.new_client(parcel.ends, parcel.number, parcel.connected);
        out.push(Action::Attach(Peer::Client(id), parcel.socket));
        self.watch_client(id);
        self.suspend_client(id, out);
        let client = self.clients.at_mut(id);
        client.comes_via(parcel.via);
        client.set_secured(parcel.tls);
        if self.janitor.takeover.holds() {
            client.inbox.hold(&parcel.bytes);
            return;
        }
        let Some(Ok(size)) = length(&parcel.bytes) else {
            return;
        };
        client.inbox.hold(&parcel.bytes[size..]);
        let Ok(FirstPacket::Startup(startup)) = read(&parcel.bytes[..size]) else {
            return;
        };
        match self.wish(id, startup) {
            Err(fault) => self.disconnect(id, fault, out),
            Ok(wish) => self.placed(id, wish, out),
        }
    }
}
