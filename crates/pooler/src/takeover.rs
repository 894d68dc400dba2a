//! A successor takes over: links come to their ends, then everything at rest travels.
//!
//! A process that is to take over asks on the console (`TAKEOVER version`, by unix socket, with our user
//! id). Then, on every worker:
//!
//! 1. Nothing is accepted and no server is given out ([`Order::HandOver`](crate::event::Order)), until each
//!    link has ended or `suspend_timeout` has passed; but for a moment only, so that clients hardly notice.
//! 2. The drivers detach everything that is at rest. It goes to the control thread as [`Parcel`]s
//!    ([`Order::Pack`](crate::event::Order)).
//! 3. If the successor confirms that it has everything, this process goes on serving the clients that
//!    stayed ([`Order::Drain`](crate::event::Order)). If not, the parcels come back, as they would come to
//!    a successor (`adoption.rs`).
//!
//! The driver detaches a client only when the kernel has all output queued for it. No one must wait for a
//! client that does not read. So Howdah first asks about each client ([`Action::TellFlushed`]), and packs
//! the client, with the server of its session, when the answer comes. A client that is not flushed within
//! [`SLOW_NS`] stays, as if Howdah had not asked.
//!
//! Clients that stayed (in a transaction, say) follow: the same happens again from time to time, for a
//! moment, and what is at rest then travels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cancel::OldKey;
use crate::client::{Client, ClientState};
use crate::config::nanos;
use crate::event::{Action, ClientId, Close, LooseSocket, Out, Peer, Question, ServerId, Time};
use crate::fault::Fault;
use crate::janitor::Takeover;
use crate::mail::ToBroker;
use crate::order::Shutdown;
use crate::parcel::{Estate, Parcel, Passenger, Standing};
use crate::pool::key::PoolKey;
use crate::pooler::Pooler;
use crate::server::{Server, ServerState};

/// How long links and logins under way may take before their clients are left behind, in
/// nanoseconds: everybody waits meanwhile. They follow later.
const STANDSTILL_NS: u64 = 150_000_000;

/// For how long after that a worker awaits the order to pack, in nanoseconds: it comes when all
/// workers are at rest, and one that stands still is not to hold up the others.
const ORDER_NS: u64 = 1_000_000_000;

/// How long a client may take to read what was sent to it before it is left behind, in nanoseconds:
/// everybody waits meanwhile. It follows later.
const SLOW_NS: u64 = 50_000_000;

impl Pooler {
    /// Links are to end.
    pub(crate) fn begin_takeover(&mut self, tls: bool, out: &mut Out) {
        // Who of several that ask will be the successor is not known yet.
        let first = matches!(self.janitor.takeover, Takeover::No);
        self.janitor.tls_travels = tls && (first || self.janitor.tls_travels);
        self.tell_reached(out);
        if let Takeover::Holding { asked, .. } = &mut self.janitor.takeover {
            *asked += 1;
        }
        if self.janitor.holds() || self.janitor.takeover.is_over() && !self.anybody_may_follow() {
            return;
        }
        let limit = nanos(self.config.globals.suspend_timeout).min(STANDSTILL_NS);
        let until = Time(self.now.0.saturating_add(limit));
        self.janitor.takeover = Takeover::Holding { until, asked: 1 };
        self.janitor.hurry(until);
        self.accept(false, out);
        self.hold_pools(out);
        // Sessions between two transactions stay there.
        for id in self.servers.keys() {
            self.settle(id, out);
        }
    }

    /// Of those left behind: replication never travels, sessions over TLS may not, and nobody is to wait
    /// for them in vain.
    fn anybody_may_follow(&self) -> bool {
        let tls = self.janitor.tls_travels;
        self.clients.iter().any(|(_, client)| {
            let held = client.is_held_by_tls(tls) || client.replication.any();
            !held && !self.is_bound_by_tls(client)
        })
    }

    /// The client is in session mode, and its server's TLS can't travel.
    fn is_bound_by_tls(&self, client: &Client) -> bool {
        let server = client.link().and_then(|id| self.servers.get(id));
        server.is_some_and(|server| server.is_tls() && self.is_session(server.pool))
    }

    /// A process that wanted to take over has left before anything was given to it. If no other
    /// wants to, everything goes on here.
    pub(crate) fn successor_left(&mut self, out: &mut Out) {
        match &mut self.janitor.takeover {
            // The control thread knows better.
            Takeover::Packing { .. } => {}
            Takeover::Holding { asked, .. } if *asked > 1 => *asked -= 1,
            _ => self.give_up_takeover(out),
        }
    }

    /// The order to pack does not come: everything goes on here until it does.
    pub(crate) fn go_on_without_successor(&mut self, out: &mut Out) {
        if let Takeover::Holding { until, .. } = self.janitor.takeover
            && self.now.0 >= until.0.saturating_add(ORDER_NS)
        {
            self.give_up_takeover(out);
        }
    }

    /// It does not come to pass: everything goes on here.
    pub(crate) fn give_up_takeover(&mut self, out: &mut Out) {
        if !self.janitor.takeover.holds() {
            return;
        }
        let over = self.janitor.succeeded.is_some();
        self.janitor.takeover = if over { Takeover::Over } else { Takeover::No };
        self.unpark(out);
        self.begin_held_logins(out);
        if !over {
            self.accept(true, out);
        }
        self.hold_pools(out);
        self.maybe_end(out);
    }

    /// Sessions go on here.
    fn unpark(&mut self, out: &mut Out) {
        for id in self.clients.keys() {
            if let Some(client) = self.clients.get_mut(id)
                && client.unparks()
            {
                self.resume(id, out);
            }
        }
    }

    /// Nothing is left to wait for before packing: also when it took too long.
    pub(crate) fn is_at_rest(&self) -> bool {
        let Takeover::Holding { until, .. } = self.janitor.takeover else {
            return true;
        };
        let moves = self.moves.under_way() > 0;
        self.now >= until || !(moves || self.a_server_works() || self.a_client_logs_in())
    }

    fn a_server_works(&self) -> bool {
        self.servers
            .iter()
            .any(|(_, server)| match *server.state() {
                ServerState::Idle
                | ServerState::Used
                | ServerState::Packed
                | ServerState::Closing => false,
                ServerState::Listening { .. } => false,
                // They are closed: the successor opens its own.
                ServerState::Resolving
                | ServerState::Connecting
                | ServerState::Securing(_)
                | ServerState::Login(_)
                | ServerState::ConnectQuery => false,
                ServerState::Linked(client) => self.clients.get(client).is_some_and(|client| {
                    // Replication stays here, however long it lasts.
                    !client.parked && !client.replication.any()
                }),
                _ => true,
            })
    }

    fn a_client_logs_in(&self) -> bool {
        self.clients
            .iter()
            .any(|(_, client)| match *client.state() {
                ClientState::Login(_)
                | ClientState::Lookup
                | ClientState::Moving(_)
                | ClientState::Canceller => true,
                ClientState::Leaving { .. } => true,
                ClientState::Welcome => client.pool.is_none(),
                _ => false,
            })
    }

    /// The successor is there: everything at rest goes to it.
    pub(crate) fn pack(&mut self, out: &mut Out) {
        self.pack_bequests(out);
        if self.janitor.takeover.is_over() {
            // Nobody here can follow.
            return self.all_packed(out);
        }
        // Perhaps it has gone on meanwhile.
        self.accept(false, out);
        let limit = nanos(self.config.globals.suspend_timeout);
        let slow = Time(self.now.0.saturating_add(limit.min(SLOW_NS)));
        self.janitor.takeover = Takeover::Packing {
            until: Time(self.now.0.saturating_add(limit)),
            slow,
            left: BTreeSet::new(),
            bound: BTreeMap::new(),
            back: BTreeSet::new(),
            carried: BTreeMap::new(),
        };
        self.hold_pools(out);
        for id in self.pools.ids() {
            if self.pools.at(id).key.listens {
                continue;
            }
            let lore = self.lore(id);
            out.push(packed(Parcel::Pool(Box::new(lore))));
        }
        let mut leaving = BTreeSet::new();
        for id in self.servers.keys() {
            if self.pack_server(id, out) {
                leaving.insert(Peer::Server(id));
                out.push(Action::Detach(Peer::Server(id)));
            }
        }
        for id in self.clients.keys() {
            if self.may_be_packed(id, out) {
                leaving.insert(Peer::Client(id));
            }
        }
        if leaving.is_empty() {
            return self.all_packed(out);
        }
        self.janitor.hurry(slow);
        if let Takeover::Packing { left, .. } = &mut self.janitor.takeover {
            *left = leaving;
        }
    }

    /// Whether a client is waited for: it travels once it is flushed, once the driver has let go of
    /// it, or once its console has answered.
    fn may_be_packed(&mut self, id: ClientId, out: &mut Out) -> bool {
        let travels = self.session_to_pack(id).is_some() || self.standing_of(id).is_some();
        let client = gone!(self.clients.get_mut(id));
        match client.state() {
            ClientState::Console(session) if !travels => return session.rests_soon(),
            _ if !travels => return false,
            // On its way to another worker: the driver lets go already.
            ClientState::Moving(_) | ClientState::Leaving { .. } => return true,
            _ => {}
        }
        // It was asked about in an earlier round, and is not flushed yet.
        if client.is_unread() {
            return false;
        }
        client.asked_about();
        out.push(Action::TellFlushed(Peer::Client(id)));
        true
    }

    /// The kernel has all that was queued for a client: if it is to travel, it sets out.
    pub(crate) fn client_flushed(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        client.was_flushed();
        use ClientState::{Console, Leaving, Moving, Packed};
        let later = match client.state() {
            // The driver lets go of it already, or of its server.
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
        match self.pack_client(id) {
            true => out.push(Action::Detach(Peer::Client(id))),
            false => self.unpacked(Peer::Client(id), out),
        }
    }

    /// The server of a client whose session is between two transactions, if both travel.
    fn session_to_pack(&self, id: ClientId) -> Option<ServerId> {
        let client = self.clients.get(id)?;
        let server_id = client.link()?;
        let server = self.servers.get(server_id)?;
        let stays = client.leaving || client.valve.is_congested() || server.is_tls();
        let stays = stays || hears(client);
        let stays = stays || client.is_held_by_tls(self.janitor.tls_travels);
        (client.parked && !stays && server.may_travel()).then_some(server_id)
    }

    /// A client and the server of its session travel: the server first.
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
    fn pack_server(&mut self, id: ServerId, out: &mut Out) -> bool {
        let server = gone!(self.servers.get_mut(id));
        match *server.state() {
            // The library can't give away a session in which we are the TLS client.
            ServerState::Idle if server.may_travel() && !server.is_tls() => {
                server.packs();
                let pool = self.pools.at_mut(server.pool);
                pool.idle.remove(id);
                return true;
            }
            ServerState::Idle => self.close_server(id, "obsolete connection", Close::Await, out),
            ServerState::Resolving
            | ServerState::Connecting
            | ServerState::Securing(_)
            | ServerState::Login(_)
            | ServerState::ConnectQuery => {
                self.close_server(id, "obsolete connection", Close::Abort, out);
            }
            _ => {}
        }
        false
    }

    /// How a client that has no server stands, if it travels.
    fn standing_of(&self, id: ClientId) -> Option<Standing> {
        let tls = self.janitor.tls_travels;
        let client = self.clients.get(id)?;
        match client.state() {
            _ if client.leaving || client.replication.any() || client.is_held_by_tls(tls) => None,
            // It is slow to read for certain.
            _ if client.valve.is_congested() => None,
            // What it listens to is heard here alone.
            _ if hears(client) && !may_be_heard_elsewhere(client) => None,
            ClientState::Startup | ClientState::Moving(_) => Some(Standing::Startup),
            ClientState::Welcome if client.pool.is_some() => Some(Standing::Newcomer),
            ClientState::Idle | ClientState::Waiting | ClientState::Leaving { .. } => {
                Some(Standing::Ready)
            }
            ClientState::Console(session) => session.at_rest(),
            // In the middle of proving who it is: nobody could go on there.
            _ => None,
        }
    }

    /// True if the client travels.
    fn pack_client(&mut self, id: ClientId) -> bool {
        let standing = self.standing_of(id);
        if let (Some(standing), Some(client)) = (standing, self.clients.get_mut(id)) {
            client.packs(standing);
        }
        standing.is_some()
    }

    /// A client that the driver has let go of, on its way to another worker, travels to our successor
    /// instead.
    pub(crate) fn packs_instead(&mut self, id: ClientId) {
        if let Takeover::Packing { left, .. } = &self.janitor.takeover
            && left.contains(&Peer::Client(id))
        {
            self.pack_client(id);
        }
    }

    /// A console that packing waits for has had its answer: what else it has sent is the
    /// successor's. True if it travels.
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

    /// The driver has let go of a client that travels; it is in no table any more.
    pub(crate) fn client_packed(
        &mut self,
        id: ClientId,
        client: Client,
        standing: Standing,
        socket: LooseSocket,
        out: &mut Out,
    ) {
        if client.admitted {
            let login = PoolKey::new(client.database.clone(), client.user.clone());
            let login = Arc::new(login);
            let left = ToBroker::Left { login };
            out.push(Action::Broker(left));
        }
        self.drop_key(client.old_key.clone(), id, out);
        self.settle_cancels(id, out);
        self.permission_ends(&client, out);
        let hearing = self.hearing_goes(id, &client, out);
        let mut passenger = self.take_passenger(id, client, standing, socket);
        passenger.hearing = hearing;
        if let Takeover::Packing { carried, .. } = &mut self.janitor.takeover {
            passenger.server = carried.remove(&id);
        }
        out.push(packed(Parcel::Client(Box::new(passenger))));
        self.unpacked(Peer::Client(id), out);
    }

    /// All that travels of a client that is in no table any more, but for its server.
    pub(crate) fn take_passenger(
        &mut self,
        id: ClientId,
        client: Client,
        standing: Standing,
        socket: LooseSocket,
    ) -> Passenger {
        if let Some(pool) = client.pool {
            self.pools.at_mut(pool).client_leaves(self.now);
        }
        let (pid, secret, length) = self.own_key(id, client.long_key);
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

    /// The same for a server, which is still in the table.
    pub(crate) fn server_packed(&mut self, id: ServerId, socket: LooseSocket, out: &mut Out) {
        let pool = gone!(self.servers.get(id).map(|server| server.pool));
        let session = self.session_of(id);
        if session.is_some_and(|(_, there)| there)
            && self.servers.get(id).is_some_and(Server::is_in_a_message)
            && let Takeover::Packing { back, .. } = &mut self.janitor.takeover
        {
            // PostgreSQL says something of itself: a session is not to end for that.
            back.insert(id);
            return out.push(Action::Attach(Peer::Server(id), socket));
        }
        // A session whose client has gone is nobody else's.
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
        let database = self.pools.at(pool).terms.fingerprint;
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

    /// A server that came back in the middle of a message travels once that is whole.
    pub(crate) fn pack_again(&mut self, id: ServerId, out: &mut Out) {
        let whole = self.servers.get(id).is_some_and(|s| !s.is_in_a_message());
        if let Takeover::Packing { back, .. } = &mut self.janitor.takeover
            && whole
            && back.remove(&id)
        {
            out.push(Action::Detach(Peer::Server(id)));
        }
    }

    /// The client whose session a server that travels is, and whether it is there still.
    pub(crate) fn session_of(&self, id: ServerId) -> Option<(ClientId, bool)> {
        let Takeover::Packing { bound, .. } = &self.janitor.takeover else {
            return None;
        };
        let client = *bound.get(&id)?;
        let there = self.clients.get(client);
        let there = there.is_some_and(|c| matches!(c.state(), ClientState::Packed(_)));
        Some((client, there))
    }

    /// A peer need not be waited for any more: it travels, or is gone.
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
                // It is gone, or dirty: so is its session.
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

    fn all_packed(&mut self, out: &mut Out) {
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
        };
        out.push(Action::Ask(Question::AllPacked(Box::new(estate))));
    }

    /// Clients that are slow to read stay for now, so that the others need not wait.
    pub(crate) fn leave_slow_readers(&mut self, out: &mut Out) {
        let Takeover::Packing { slow, left, .. } = &mut self.janitor.takeover else {
            return;
        };
        if self.now < *slow {
            let slow = *slow;
            return self.janitor.hurry(slow);
        }
        *slow = Time(u64::MAX);
        use ClientState::{Leaving, Moving};
        let slow = |peer: &Peer| match peer {
            Peer::Client(id) => self.clients.get(*id).is_some_and(|client| {
                client.is_unread() || matches!(client.state(), Moving(_) | Leaving { .. })
            }),
            Peer::Server(_) => false,
        };
        let slow: Vec<Peer> = left.iter().copied().filter(slow).collect();
        for peer in slow {
            self.unpacked(peer, out);
        }
    }

    /// Closes those for whom the kernel takes nothing, so that the others need not wait.
    pub(crate) fn drop_unpacked(&mut self, out: &mut Out) {
        let Takeover::Packing { until, left, .. } = &self.janitor.takeover else {
            return;
        };
        if self.now < *until {
            return;
        }
        for peer in left.clone() {
            self.close_late(peer, out);
            self.unpacked(peer, out);
        }
    }

    /// The successor has everything: who was left behind is served until they follow or leave.
    pub(crate) fn drain_behind(&mut self, out: &mut Out) {
        self.janitor.takeover = Takeover::Over;
        self.janitor.succeeded.get_or_insert(self.now);
        self.unpark(out);
        self.begin_held_logins(out);
        self.hold_pools(out);
        self.janitor.ending = Some(Shutdown::Clients);
        self.prepare_bequests(out);
        self.maybe_end(out);
    }

    /// `takeover_timeout`: clients that have not moved by then get an error, and the process ends.
    pub(crate) fn drop_left_behind(&mut self, out: &mut Out) {
        let limit = nanos(self.config.globals.takeover_timeout);
        let due = |since: Time| limit > 0 && self.now.0 >= since.0.saturating_add(limit);
        if !self.janitor.takeover.is_over() || !self.janitor.succeeded.is_some_and(due) {
            return;
        }
        for id in self.clients.keys() {
            self.disconnect(id, Fault::ShuttingDown, out);
        }
    }
}

/// It listens by a listening connection, or has.
fn hears(client: &Client) -> bool {
    let session = client.session.as_ref();
    session.is_some_and(|session| session.channels.is_some())
}

/// It is owed nothing that the listener has told, and a successor hears what it listens to.
fn may_be_heard_elsewhere(client: &Client) -> bool {
    let session = client.session.as_ref();
    let settled = session.filter(|session| session.pending.is_empty() && session.pieces.is_none());
    let own = settled.and_then(|session| session.channels.as_ref());
    !client.is_hushed() && own.is_some_and(|own| own.place().is_some())
}

pub(crate) fn packed(parcel: Parcel) -> Action {
    Action::Ask(Question::Packed(Box::new(parcel)))
}
