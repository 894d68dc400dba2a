//! A takeover: clients finish their transactions, then all connections at rest move to the
//! successor process.
//!
//! The successor process asks for the takeover on the console (`TAKEOVER version`), through the
//! unix socket and with the same user id. Then, on every worker:
//!
//! 1. The worker accepts no client and gives out no server
//!    ([`Order::HandOver`](crate::event::Order)) until each link has ended or `suspend_timeout` has
//!    passed. This lasts at most a moment, so clients hardly notice.
//! 2. The driver detaches all connections at rest. They go to the control thread as [`Parcel`]s
//!    ([`Order::Pack`](crate::event::Order)).
//! 3. If the successor confirms that it has received everything, this process goes on serving the
//!    clients that stayed ([`Order::Drain`](crate::event::Order)). If not, the parcels come back,
//!    and this process adopts them as a successor would (`adoption.rs`).
//!
//! The driver detaches a client only when the kernel has all output queued for it. No other client
//! may have to wait for a client that does not read. So Howdah first asks the driver to report when
//! a client is flushed ([`Action::TellFlushed`]). When the report comes, Howdah packs the client,
//! with the server of its session. If the report does not come within [`SLOW_NS`], the client stays
//! as if Howdah had not asked.
//!
//! Clients that stayed, for example in a transaction, follow later: from time to time the same
//! three steps repeat for a moment.

use std::collections::{BTreeMap, BTreeSet};

use crate::cancel::OldKey;
use crate::client::{Client, ClientState};
use crate::config::nanos;
use crate::event::{Action, ClientId, Close, LooseSocket, Out, Peer, Question, ServerId, Time};
use crate::fault::Fault;
use crate::janitor::Takeover;
use crate::mail::ToBroker;
use crate::order::Shutdown;
use crate::parcel::{Estate, Parcel, Passenger, PoolLore, Standing};
use crate::pool::key::PoolId;
use crate::pooler::Pooler;
use crate::server::{Server, ServerState};

/// How long Howdah waits for links and logins to end, in nanoseconds. All other clients wait
/// meanwhile. A client that takes longer is left behind and follows later.
const STANDSTILL_NS: u64 = 150_000_000;

/// How much longer a worker waits for the order to pack, in nanoseconds. The order comes when all
/// workers are at rest. A worker that hangs must not hold up the others.
const ORDER_NS: u64 = 1_000_000_000;

/// How long a client may take to read the bytes sent to it, in nanoseconds. All other clients wait
/// meanwhile. A client that takes longer is left behind and follows later.
const SLOW_NS: u64 = 50_000_000;

impl Pooler {
    /// A successor asks for the takeover: no link begins any more.
    pub(crate) fn begin_takeover(&mut self, tls: bool, out: &mut Out) {
        // Several processes may ask, and any of them may become the successor. TLS sessions travel
        // only if all of them can take TLS.
        let first = matches!(self.janitor.takeover, Takeover::No);
        self.janitor.tls_travels = tls && (first || self.janitor.tls_travels);
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
        // Parks each client in session mode that is between two transactions.
        for id in self.servers.keys() {
            self.settle(id, out);
        }
    }

    /// True if a client that was left behind may still follow. Replication never travels, and TLS
    /// sessions travel only in some cases; no other client may wait for them in vain.
    fn anybody_may_follow(&self) -> bool {
        let tls = self.janitor.tls_travels;
        self.clients.iter().any(|(_, client)| {
            let held = client.is_held_by_tls(tls) || client.is_replicating() || hears(client);
            !held && !self.is_bound_by_tls(client)
        })
    }

    /// A process that asked for the takeover is gone before it received anything. If no other
    /// process asks, everything goes on here.
    pub(crate) fn successor_left(&mut self, out: &mut Out) {
        match &mut self.janitor.takeover {
            // The control thread decides.
            Takeover::Packing { .. } => {}
            Takeover::Holding { asked, .. } if *asked > 1 => *asked -= 1,
            _ => self.give_up_takeover(out),
        }
    }

    /// If the order to pack does not come, everything goes on here for now.
    pub(crate) fn go_on_without_successor(&mut self, out: &mut Out) {
        if let Takeover::Holding { until, .. } = self.janitor.takeover
            && self.now.0 >= until.0.saturating_add(ORDER_NS)
        {
            self.give_up_takeover(out);
        }
    }

    /// The takeover fails: everything goes on here.
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

    /// Parked sessions go on here.
    fn unpark(&mut self, out: &mut Out) {
        for id in self.clients.keys() {
            if let Some(client) = self.clients.get_mut(id)
                && client.unparks()
            {
                self.resume(id, out);
            }
        }
    }

    /// True if packing may begin: no work is under way, or the wait has lasted too long.
    pub(crate) fn is_at_rest(&self) -> bool {
        let Takeover::Holding { until, .. } = self.janitor.takeover else {
            return true;
        };
        let moves = self.moves.under_way > 0;
        self.now >= until || !(moves || self.a_server_works() || self.a_client_logs_in())
    }

    fn a_server_works(&self) -> bool {
        self.servers
            .iter()
            .any(|(_, server)| match *server.state() {
                ServerState::Idle | ServerState::Packed | ServerState::Closing => false,
                ServerState::Listening { .. } => false,
                // These servers are closed at packing: the successor opens its own.
                ServerState::Resolving
                | ServerState::Connecting
                | ServerState::Securing(_)
                | ServerState::Login(_)
                | ServerState::ConnectQuery => false,
                ServerState::Linked(client) => self.clients.get(client).is_some_and(|client| {
                    // Replication stays here, however long it lasts.
                    !client.parked && !client.is_replicating()
                }),
                _ => true,
            })
    }

    fn a_client_logs_in(&self) -> bool {
        let logs_in = |client: &Client| {
            matches!(
                client.state(),
                ClientState::Admission
                    | ClientState::Login(_)
                    | ClientState::Lookup(_)
                    | ClientState::Moving(_)
                    | ClientState::Canceller
                    | ClientState::Leaving { .. }
            )
        };
        self.clients.iter().any(|(_, client)| logs_in(client))
    }

    /// The successor is ready: everything at rest goes to it.
    pub(crate) fn pack(&mut self, out: &mut Out) {
        if self.janitor.takeover.is_over() {
            // No client here can follow.
            return self.all_packed(out);
        }
        // The worker may have given up the takeover meanwhile, and accepted clients again.
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
            if self.pools.at(id).key.listens() {
                continue;
            }
            let lore = PoolLore {
                left_behind: self.idle_tls_servers(id).count() as u32,
                ..self.lore(id)
            };
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

    /// True if packing must wait for a client: until it is flushed, until the driver has let go of
    /// it, or until its console has answered.
    fn may_be_packed(&mut self, id: ClientId, out: &mut Out) -> bool {
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
    fn pack_server(&mut self, id: ServerId, out: &mut Out) -> bool {
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
            | ServerState::ConnectQuery => {
                self.close_server(id, "obsolete connection", Close::Abort, out);
            }
            _ => {}
        }
        false
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

    /// True if the client travels.
    fn pack_client(&mut self, id: ClientId) -> bool {
        let standing = self.standing_of(id);
        if let (Some(standing), Some(client)) = (standing, self.clients.get_mut(id)) {
            client.packs(standing);
        }
        standing.is_some()
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

    /// Clients that are slow to read stay for now: the other clients must not wait for them.
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
                client.valve.is_unread() || matches!(client.state(), Moving(_) | Leaving { .. })
            }),
            Peer::Server(_) => false,
        };
        let slow: Vec<Peer> = left.iter().copied().filter(slow).collect();
        for peer in slow {
            self.unpacked(peer, out);
        }
    }

    /// Closes connections that the kernel can't flush in time: the others must not wait for them.
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

    /// The successor has everything. This process serves the clients left behind until they follow
    /// or leave.
    pub(crate) fn drain_behind(&mut self, out: &mut Out) {
        self.janitor.takeover = Takeover::Over;
        let first = self.janitor.succeeded.is_none();
        self.janitor.succeeded.get_or_insert(self.now);
        self.unpark(out);
        self.begin_held_logins(out);
        self.hold_pools(out);
        self.janitor.ending = Some(Shutdown::Clients);
        // Later rounds leave the servers to the clients that stay.
        if first {
            self.close_tls_servers(out);
        }
        self.silence_all("a new process takes over", out);
        self.maybe_end(out);
    }

    /// The idle servers of a pool that can't travel: the TLS library can't export a session in
    /// which Howdah is the TLS client.
    fn idle_tls_servers(&self, pool: PoolId) -> impl Iterator<Item = ServerId> {
        let idle = self.pools.at(pool).idle.iter();
        idle.filter(|id| self.servers.at(*id).is_tls())
    }

    /// The successor opens servers of its own instead of these.
    fn close_tls_servers(&mut self, out: &mut Out) {
        for pool in self.pools.ids() {
            let stay: Vec<ServerId> = self.idle_tls_servers(pool).collect();
            for id in stay {
                let why = "obsolete connection: TLS to servers does not move to a new process";
                self.close_server(id, why, Close::Await, out);
            }
        }
    }

    /// `takeover_timeout` has passed: clients still here get an error, and the process ends.
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

/// True if the client hears channels through a listener, or has heard some.
fn hears(client: &Client) -> bool {
    client.channels().is_some()
}

pub(crate) fn packed(parcel: Parcel) -> Action {
    Action::Ask(Question::Packed(Box::new(parcel)))
}
