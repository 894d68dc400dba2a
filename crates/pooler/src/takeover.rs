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
//!    ([`Order::Pack`](crate::event::Order), `packing.rs`).
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

use crate::client::{Client, ClientState};
use crate::config::nanos;
use crate::event::{Action, Close, Out, Peer, ServerId, Time};
use crate::fault::Fault;
use crate::janitor::Takeover;
use crate::order::Shutdown;
use crate::packing::{hears, packed};
use crate::parcel::{Parcel, PoolLore};
use crate::pool::key::{PoolId, Purpose};
use crate::pooler::Pooler;
use crate::server::ServerState;

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
                ServerState::Listening { .. } | ServerState::Examining(_) => false,
                // These servers are closed at packing: the successor opens its own.
                ServerState::Resolving
                | ServerState::Connecting
                | ServerState::Securing(_)
                | ServerState::Login(_)
                | ServerState::ConnectQuery
                | ServerState::Maturing(_) => false,
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
            if matches!(
                self.pools.at(id).key.purpose,
                Purpose::Listening | Purpose::Checks
            ) {
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
        // Perhaps an operator has ended this process meanwhile.
        self.janitor.ending.get_or_insert(Shutdown::Clients);
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
