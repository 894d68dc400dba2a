//! Packs clients and servers at rest into parcels for the successor process ([`crate::takeover`]).

use howdah_wire::backend::Status;

use crate::cancel::OldKey;
use crate::client::{Client, ClientState};
use crate::event::{Action, ClientId, Close, LooseSocket, Out, Peer, Question, ServerId};
use crate::fault::Fault;
use crate::janitor::Takeover;
use crate::mail::ToBroker;
use crate::parcel::{Estate, Parcel, Passenger, Standing};
use crate::pooler::Pooler;
use crate::roster::lore::RosterLore;
use crate::server::{Server, ServerState};

impl Pooler {
    /// True if packing must wait for a client: until it is flushed, until the driver has let go of
    /// it, or until its console has answered.
    pub(crate) fn may_be_packed(&mut self, id: ClientId, out: &mut Out) -> bool {
        let travels = self.session_to_pack(id).is_some() || self.standing_of(id).is_some();
        let client = gone!(self.clients.get_mut(id));
        match client.state() {
            ClientState::Console(session) if !travels => return session.rests_soon(),
            _ if !travels => return false,
            // The client moves to another worker: the driver already lets go of it.
            ClientState::Moving(_) | ClientState::Leaving { .. } => return true,
            _ => {}
        }
        // An earlier round asked for a report about this client, which has not come.
        if client.valve.is_unread() {
            return false;
        }
        client.valve.mark_unread();
        out.push(Action::TellFlushed(Peer::Client(id)));
        true
    }

    /// The kernel has all bytes queued for a client: if the client travels, it leaves now.
    pub(crate) fn client_flushed(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        client.valve.mark_read();
        use ClientState::{Console, Leaving, Moving, Packed};
        let later = match client.state() {
            // The driver already lets go of the client or of its server.
            Packed(_) | Moving(_) | Leaving { .. } => true,
            Console(session) => session.rests_soon(),
            _ => false,
        };
        let Takeover::Packing { left, .. } = &self.janitor.takeover else {
            return;
        };
        if later || !left.contains(&Peer::Client(id)) {
            return;
        }
        if let Some(server) = self.session_to_pack(id) {
            return self.pack_session(server, id, out);
        }
        if self.pack_client(id) {
            out.push(Action::Detach(Peer::Client(id)))
        } else {
            self.unpacked(Peer::Client(id), out)
        }
    }

    /// The server of a client in session mode between two transactions, if both travel.
    fn session_to_pack(&self, id: ClientId) -> Option<ServerId> {
        let client = self.clients.get(id)?;
        let stays = hears(client) || client.is_held_by_tls(self.janitor.tls_travels);
        self.session_at_rest(id).filter(|_| !stays)
    }

    /// Packs a client and the server of its session: the server leaves first.
    fn pack_session(&mut self, server: ServerId, id: ClientId, out: &mut Out) {
        self.clients.at_mut(id).packs(Standing::Bound);
        self.servers.at_mut(server).packs();
        if let Takeover::Packing { left, bound, .. } = &mut self.janitor.takeover {
            left.insert(Peer::Server(server));
            bound.insert(server, id);
        }
        out.push(Action::Detach(Peer::Server(server)));
    }

    /// True if the server travels.
    pub(crate) fn pack_server(&mut self, id: ServerId, out: &mut Out) -> bool {
        let server = gone!(self.servers.get_mut(id));
        match *server.state() {
            // The TLS library can't export a session in which Howdah is the TLS client.
            ServerState::Idle if server.may_travel() && !server.is_tls() => {
                server.packs();
                let pool = self.pools.at_mut(server.pool);
                pool.idle.remove(id);
                return true;
            }
            // These close when the successor has everything (`drain_behind`).
            ServerState::Idle if server.is_tls() => {}
            ServerState::Idle => self.close_server(id, "obsolete connection", Close::Await, out),
            ServerState::Resolving
            | ServerState::Connecting
            | ServerState::Securing(_)
            | ServerState::Login(_)
            | ServerState::ConnectQuery
            | ServerState::Maturing(_) => {
                self.close_server(id, "obsolete connection", Close::Abort, out);
            }
            _ => {}
        }
        false
    }

    /// True if the client travels.
    fn pack_client(&mut self, id: ClientId) -> bool {
        let standing = self.standing_of(id);
        if let (Some(standing), Some(client)) = (standing, self.clients.get_mut(id)) {
            client.packs(standing);
        }
        standing.is_some()
    }

    /// The state in which a client without a server travels. `None` if the client stays.
    fn standing_of(&self, id: ClientId) -> Option<Standing> {
        let tls = self.janitor.tls_travels;
        let client = self.clients.get(id)?;
        match client.state() {
            _ if client.is_leaving() || client.is_replicating() || client.is_held_by_tls(tls) => {
                None
            }
            // The client is certainly slow to read.
            _ if client.valve.is_congested() => None,
            // Only this process hears the client's channels.
            _ if hears(client) => None,
            // A signal that it sends must not be sent twice.
            _ if client.is_signalling() => None,
            // No server knows the client's transaction yet.
            _ if client.status_ahead() != Status::Idle => None,
            ClientState::Startup | ClientState::Moving(_) => Some(Standing::Startup),
            ClientState::Welcome(_) => Some(Standing::Newcomer),
            ClientState::Idle | ClientState::Waiting(_) | ClientState::Leaving { .. } => {
                Some(Standing::Ready)
            }
            ClientState::Console(session) => session.at_rest(),
            // The client is in the middle of its login, which the successor could not continue.
            _ => None,
        }
    }

    /// A console client has got the answer that packing waited for. The successor handles its
    /// further messages. True if the client travels.
    pub(crate) fn pack_console(&mut self, id: ClientId, out: &mut Out) -> bool {
        let Takeover::Packing { left, .. } = &self.janitor.takeover else {
            return false;
        };
        let travels = left.contains(&Peer::Client(id)) && self.pack_client(id);
        if travels {
            out.push(Action::Detach(Peer::Client(id)));
        }
        travels
    }

    /// A client was on its way to another worker, and the driver has let go of it. The client
    /// travels to the successor instead.
    pub(crate) fn packs_instead(&mut self, id: ClientId) {
        if let Takeover::Packing { left, .. } = &self.janitor.takeover
            && left.contains(&Peer::Client(id))
        {
            self.pack_client(id);
        }
    }

    /// The driver has let go of a client that travels. The client is no longer in the table.
    pub(crate) fn client_packed(
        &mut self,
        id: ClientId,
        client: Client,
        standing: Standing,
        socket: LooseSocket,
        out: &mut Out,
    ) {
        if client.admitted {
            let login = client.who.clone();
            let left = ToBroker::Left { login };
            out.push(Action::Broker(left));
        }
        if let Some(key) = &client.old_key {
            self.keys.forget(key, id);
        }
        self.settle_held(id, out);
        self.permission_ends(&client, out);
        let mut passenger = self.take_passenger(id, client, standing, socket);
        if let Takeover::Packing { carried, .. } = &mut self.janitor.takeover {
            passenger.server = carried.remove(&id);
        }
        out.push(packed(Parcel::Client(Box::new(passenger))));
        self.unpacked(Peer::Client(id), out);
    }

    /// Takes everything that travels with a client, but for its server. The client is no longer in
    /// the table.
    pub(crate) fn take_passenger(
        &mut self,
        id: ClientId,
        client: Client,
        standing: Standing,
        socket: LooseSocket,
    ) -> Passenger {
        if let Some(login) = client.login {
            self.logins.at_mut(login).client_leaves(self.now);
        }
        let (pid, secret, length) = self.own_key(id, client.protocol.long_keys);
        self.peering.forget(id);
        let own = || OldKey {
            pid,
            secret: secret[..length].into(),
        };
        let key = client.old_key.as_deref().cloned().unwrap_or_else(own);
        if let Some(key) = &client.old_key {
            self.keys.forget(key, id);
        }
        client.travels(socket, standing, key)
    }

    /// The driver has let go of a server that travels. The server is still in the table.
    pub(crate) fn server_packed(&mut self, id: ServerId, socket: LooseSocket, out: &mut Out) {
        let login = gone!(self.servers.get(id).map(|server| server.login));
        let session = self.session_of(id);
        if session.is_some_and(|(_, there)| there)
            && self.servers.get(id).is_some_and(Server::is_in_a_message)
            && let Takeover::Packing { back, .. } = &mut self.janitor.takeover
        {
            // A message that PostgreSQL sent unasked has begun to arrive. The session must not end
            // because of it.
            back.insert(id);
            return out.push(Action::Attach(Peer::Server(id), socket));
        }
        // The client of this session is gone: no other client may get the server.
        let alone = session.is_some_and(|(_, there)| !there);
        let parcel = if alone {
            self.return_dirty(id, socket, out);
            None
        } else {
            self.take_out(id, socket, out)
        };
        let Some(parcel) = parcel else {
            return self.unpacked(Peer::Server(id), out);
        };
        let database = self.logins.at(login).terms.fingerprint;
        let freed = ToBroker::Freed {
            worker: self.worker,
            pool: parcel.pool.clone(),
        };
        out.push(Action::Broker(freed));
        let parcel = Box::new(parcel);
        if let Takeover::Packing { bound, carried, .. } = &mut self.janitor.takeover
            && let Some(client) = bound.remove(&id)
        {
            carried.insert(client, (parcel, database));
            out.push(Action::Detach(Peer::Client(client)));
        } else {
            out.push(packed(Parcel::Server { parcel, database }));
        }
        self.unpacked(Peer::Server(id), out);
    }

    /// Packing no longer waits for this connection: it has left, or it is closed.
    pub(crate) fn unpacked(&mut self, peer: Peer, out: &mut Out) {
        let Takeover::Packing {
            left,
            bound,
            carried,
            ..
        } = &mut self.janitor.takeover
        else {
            return;
        };
        let removed = left.remove(&peer);
        match peer {
            Peer::Server(id) => {
                // The server is closed or dirty: the session ends.
                if let Some(client) = bound.remove(&id) {
                    left.remove(&Peer::Client(client));
                    self.disconnect(client, Fault::ServerGone, out);
                }
            }
            Peer::Client(id) => {
                if let Some((server, _)) = carried.remove(&id) {
                    out.push(Action::Discard(server.socket));
                }
            }
        }
        if let Takeover::Packing { left, .. } = &self.janitor.takeover
            && removed
            && left.is_empty()
        {
            self.all_packed(out);
        }
    }

    pub(crate) fn all_packed(&mut self, out: &mut Out) {
        let last_number = self.number();
        let disabled = self.janitor.disabled.iter().cloned();
        let schemas = self.shared.statements.changed_schemas();
        let schemas = schemas.map(|(database, changes)| (database.to_string(), changes));
        let schemas = schemas.collect();
        let estate = Estate {
            lasting: self.keys.lasting(),
            schemas,
            last_number,
            disabled: disabled.collect(),
            tracked: self.shared.tracked.names().to_vec(),
            // The control thread adds it.
            roster: RosterLore::default(),
        };
        out.push(Action::Ask(Question::AllPacked(Box::new(estate))));
    }

    /// The client whose session uses a travelling server, and whether the client is still there.
    pub(crate) fn session_of(&self, id: ServerId) -> Option<(ClientId, bool)> {
        let Takeover::Packing { bound, .. } = &self.janitor.takeover else {
            return None;
        };
        let client = *bound.get(&id)?;
        let there = self.clients.get(client);
        let there = there.is_some_and(|c| matches!(c.state(), ClientState::Packed(_)));
        Some((client, there))
    }

    /// A server that came back in the middle of a message travels when the message is complete.
    pub(crate) fn pack_again(&mut self, id: ServerId, out: &mut Out) {
        let whole = self.servers.get(id).is_some_and(|s| !s.is_in_a_message());
        if let Takeover::Packing { back, .. } = &mut self.janitor.takeover
            && whole
            && back.remove(&id)
        {
            out.push(Action::Detach(Peer::Server(id)));
        }
    }
}

/// True if the client hears channels through a listener, or has heard some.
pub(crate) fn hears(client: &Client) -> bool {
    client.channels().is_some()
}

pub(crate) fn packed(parcel: Parcel) -> Action {
    Action::Ask(Question::Packed(Box::new(parcel)))
}
