//! What happens because time passes or the settings change: timeouts, minimum sizes, reloads.

use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashSet;
use howdah_wire::write;

use crate::client::{self, Client};
use crate::config::{Config, Host, PoolMode};
use crate::event::{
    Action, Address, ClientId, Close, Out, Peer, Question, ServerId, Time, WorkerId,
};
use crate::fault::Fault;
use crate::forced_user::is_forsaken;
use crate::mail::{Mail, ToBroker};
use crate::note::{Level, Note};
use crate::orders::Ending;
use crate::pool::{PoolId, PoolKey, Terms};
use crate::pooler::Pooler;
use crate::pooling::nanos;
use crate::server::{self, Server};
use crate::suspend::Suspension;
use crate::takeover::Takeover;

/// PgBouncer's maintenance period.
const PERIOD_NS: u64 = 333_333_333;

/// How often hungry workers say how hungry they are, while there are several.
const HUNGER_NS: u64 = 10_000_000;

/// How long a server may take to come to rest after its client has left, in nanoseconds.
const REST_NS: u64 = 15_000_000_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Janitor {
    next: Time,
    next_hunger: Option<Time>,
    pub(crate) paused_all: bool,
    pub(crate) paused: HashSet<String, foldhash::quality::FixedState>,
    pub(crate) disabled: HashSet<String, foldhash::quality::FixedState>,
    /// How often all servers were called in (RECONNECT, changed settings).
    pub(crate) epoch: u64,
    pub(crate) ending: Option<Ending>,
    pub(crate) told_idle: bool,
    pub(crate) suspension: Option<Suspension>,
    pub(crate) takeover: Takeover,
    turn: u16,
    stats_at: Time,
    older_stats_at: Time,
}

impl Janitor {
    /// When there is something to do.
    pub fn next(&self) -> Time {
        self.next_hunger
            .map_or(self.next, |hunger| hunger.min(self.next))
    }

    /// PAUSE holds for this database.
    pub fn is_paused(&self, database: &str) -> bool {
        self.paused_all || self.paused.contains(database)
    }

    /// PAUSE holds for everything.
    pub fn is_paused_all(&self) -> bool {
        self.paused_all
    }

    /// PAUSE holds for this database by its name.
    pub fn is_paused_alone(&self, database: &str) -> bool {
        self.paused.contains(database)
    }

    /// No server is given out, by SUSPEND or because a successor takes over.
    pub fn holds(&self) -> bool {
        self.suspension.is_some() || self.takeover.holds()
    }

    /// PAUSE holds for some databases by their names.
    pub fn pauses_some(&self) -> bool {
        !self.paused.is_empty()
    }

    /// DISABLE holds for this database.
    pub fn is_disabled(&self, database: &str) -> bool {
        self.disabled.contains(database)
    }

    /// When the pools' `older_stats` were taken.
    pub fn older_stats_at(&self) -> Time {
        self.older_stats_at
    }

    /// No new clients.
    pub fn is_shutting_down(&self) -> bool {
        self.ending.is_some()
    }

    /// The end waits for servers to be free: who has none gets none any more, a pause that no
    /// RESUME undoes. (An end that waits for clients needs RESUME: paused, they would never leave.)
    pub fn awaits_servers(&self) -> bool {
        self.ending == Some(Ending::Servers)
    }

    /// The end has begun, and a RESUME has no pause to undo, or must not undo it.
    pub fn ignores_resume(&self) -> bool {
        let paused = self.paused_all || self.pauses_some();
        self.awaits_servers() || self.is_shutting_down() && !paused
    }

    /// The number of the last order that called servers in.
    pub fn epoch(&self, _database: &str) -> u64 {
        self.epoch
    }

    /// Workers in turn, beginning with the one that asks.
    pub fn next_turn(&mut self, worker: WorkerId, workers: u16) -> WorkerId {
        let to = WorkerId((worker.0 + self.turn) % workers);
        self.turn = (self.turn + 1) % workers;
        to
    }
}

impl Pooler {
    /// A deadline has passed.
    pub(crate) fn tick(&mut self, out: &mut Out) {
        let now = self.now;
        while let Some((at, peer)) = self.timers.pop_due(now) {
            match peer {
                Peer::Client(id) => self.client_due(id, at, out),
                Peer::Server(id) => self.server_due(id, at, out),
            }
        }
        if self.janitor.next_hunger.is_some_and(|at| at <= now) {
            self.janitor.next_hunger = None;
            self.say_hunger(out);
        }
        if self.janitor.next <= now {
            self.janitor.next = Time(now.0 + PERIOD_NS);
            self.maintain(out);
        }
    }

    /// Several times a second.
    fn maintain(&mut self, out: &mut Out) {
        self.found_forced_pools();
        for id in self.pools.ids() {
            self.trim_waiting(id);
            self.trim_newcomers(id);
            let pool = self.pools.at(id);
            let waited_for = !pool.waiting.is_empty() || !pool.newcomers.is_empty();
            let asks = self.workers > 1 || !self.backs_off(id);
            if waited_for && self.pools.at(id).need && asks {
                self.tell_need(id, out);
            } else {
                self.need(id, out);
            }
            self.warm(id, out);
            self.settle_hunger(id, out);
            self.collect(id, out);
        }
        self.average(out);
        self.drop_all_waiters(out);
        self.drop_unsuspended(out);
        self.drop_unpacked(out);
        self.maybe_end(out);
    }

    /// While clients of several workers wait, each says for how long, often.
    fn say_hunger(&mut self, out: &mut Out) {
        for id in self.pools.ids() {
            self.trim_waiting(id);
            let pool = self.pools.at(id);
            let waited_for = !pool.waiting.is_empty() || !pool.newcomers.is_empty();
            if pool.need && waited_for && !self.backs_off(id) {
                self.tell_need(id, out);
            }
        }
        self.mind_hunger();
    }

    /// Arms the next saying of hunger, if any pool has a need that is not met.
    pub(crate) fn mind_hunger(&mut self) {
        if self.workers > 1
            && self.janitor.next_hunger.is_none()
            && self.pools.iter().any(|(_, pool)| pool.need)
        {
            self.janitor.next_hunger = Some(Time(self.now.0 + HUNGER_NS));
        }
    }

    /// Nobody waits any more: the Broker need not think so.
    fn settle_hunger(&mut self, id: PoolId, out: &mut Out) {
        let pool = self.pools.at(id);
        if pool.waiting.is_empty() && pool.newcomers.is_empty() {
            self.sated(id, out);
        }
    }

    /// `min_pool_size`: one server a period, as long as the pool has clients.
    fn warm(&mut self, id: PoolId, out: &mut Out) {
        let worker = self.worker;
        let pool = self.pools.at(id);
        let wanted = pool.terms.min_size;
        let due = wanted > 0 && pool.connecting == 0 && pool.gives() && !pool.key.user.is_empty();
        if !due || self.backs_off(id) || self.janitor.is_shutting_down() {
            return;
        }
        let pool = self.pools.at(id);
        let warm = ToBroker::Warm {
            worker,
            pool: pool.key.clone(),
            wanted,
            bounds: pool.terms.bounds,
        };
        out.push(Action::Post(Self::BROKER, Mail::Broker(warm)));
    }

    /// `min_pool_size` of a database with a forced user holds without clients, too: that database
    /// has one pool only, which is then founded on its home worker.
    fn found_forced_pools(&mut self) {
        let config = self.config.clone();
        for database in config.databases.values() {
            let Some(user) = &database.forced_user else {
                continue;
            };
            let home = self.keys.home(&database.name, user, self.workers);
            if config.min_pool_size(database) == 0 || home != self.worker {
                continue;
            }
            let key = PoolKey {
                database: self.consoles.name(&database.name),
                user: self.consoles.name(user),
            };
            self.pool_for(key, database);
        }
    }

    /// Forgets a pool that nobody uses.
    fn collect(&mut self, id: PoolId, out: &mut Out) {
        let globals = &self.config.globals;
        let pool = self.pools.at(id);
        let empty = pool.clients == 0 && pool.servers == 0 && pool.terms.min_size == 0;
        let idle_for = self.now.0.saturating_sub(pool.quiet.0);
        let limit = if pool.terms.database.auto {
            nanos(globals.autodb_idle_timeout)
        } else {
            nanos(globals.pool_idle_timeout)
        };
        if empty && limit > 0 && idle_for > limit {
            let text = format!(
                "cleaning up idle pool {}/{}",
                pool.key.database, pool.key.user
            );
            out.note(Note {
                level: Level::Log,
                text,
            });
            self.pools.remove(id);
        }
    }

    /// At the end of each `stats_period`.
    fn average(&mut self, out: &mut Out) {
        let period = nanos(self.config.globals.stats_period).max(1);
        if self.janitor.stats_at == Time(0) {
            self.janitor.stats_at = self.now;
            self.janitor.older_stats_at = self.now;
        }
        if self.now.0.saturating_sub(self.janitor.stats_at.0) < period {
            return;
        }
        self.janitor.older_stats_at = self.janitor.stats_at;
        self.janitor.stats_at = self.now;
        self.consoles.end_period();
        let mut total = crate::stats::Stats::default();
        for id in self.pools.ids() {
            let pool = self.pools.at_mut(id);
            total.add(&pool.stats.since(&pool.last_stats));
            pool.older_stats = pool.last_stats;
            pool.last_stats = pool.stats;
        }
        if self.config.globals.log_stats {
            let seconds = (period / 1_000_000_000).max(1);
            out.push(Action::Ask(Question::LogStats {
                stats: Box::new(total),
                seconds,
            }));
        }
    }

    /// Makes sure that a client comes up when its next deadline passes.
    pub(crate) fn watch_client(&mut self, id: ClientId, _out: &mut Out) {
        let Some((at, _)) = self.client_deadline(id) else {
            return;
        };
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        self.timers.arm(Peer::Client(id), at, &mut client.timer);
    }

    /// Makes sure that a linked client comes up before any deadline that may begin to count while
    /// it is linked: nothing that happens then need touch the timers.
    pub(crate) fn watch_link(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let Some(pool) = client.pool else { return };
        let shortest = self.pools.at(pool).terms.shortest;
        let at = Time(self.now.0.saturating_add(shortest));
        self.timers.arm(Peer::Client(id), at, &mut client.timer);
    }

    /// Likewise for a server.
    pub(crate) fn watch_server(&mut self, id: ServerId) {
        let Some((at, _)) = self.server_deadline(id) else {
            return;
        };
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        self.timers.arm(Peer::Server(id), at, &mut server.timer);
    }

    /// A client's entry has come up: it may be an old one, or corrected since.
    fn client_due(&mut self, id: ClientId, at: Time, out: &mut Out) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if client.timer != at {
            return;
        }
        client.timer = Time(0);
        match self.client_deadline(id) {
            Some((deadline, due)) if deadline <= self.now => self.client_late(id, due, out),
            later => {
                if later.is_some() {
                    self.watch_client(id, out);
                }
                let linked = self
                    .clients
                    .get(id)
                    .is_some_and(|client| client.link().is_some());
                if linked {
                    self.watch_link(id);
                }
            }
        }
    }

    fn client_late(&mut self, id: ClientId, due: ClientDue, out: &mut Out) {
        match due {
            ClientDue::Close(fault) => self.disconnect(id, fault, out),
            ClientDue::Notify => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.notified = true;
                    let text = "No server connection available in postgres backend, \
                                client being queued";
                    out.send_with(Peer::Client(id), |buf| {
                        write::notice(buf, "NOTICE", "00000", text, None);
                    });
                }
                self.watch_client(id, out);
            }
        }
    }

    /// When a client's time is up, and what happens then.
    fn client_deadline(&self, id: ClientId) -> Option<(Time, ClientDue)> {
        let client = self.clients.get(id)?;
        let globals = &self.config.globals;
        let mut deadlines = Deadlines::default();
        let pool = client.pool.map(|pool| self.pools.at(pool));
        match (&client.state, pool) {
            (client::State::Canceller, _) => {
                let limit = nanos(globals.cancel_wait_timeout);
                deadlines.add(client.request, limit, Fault::CancelWait);
            }
            (client::State::Closing | client::State::Console(_), _) => return None,
            (client::State::Idle, Some(pool)) => {
                let limit = pool.terms.client_idle_timeout;
                deadlines.add(client.quiet, limit, Fault::ClientIdle);
            }
            (client::State::Waiting, Some(pool)) => {
                let limit = pool.terms.query_wait_timeout;
                deadlines.add(client.request, limit, Fault::QueryWait);
                let limit = pool.terms.query_timeout;
                deadlines.add(client.request, limit, Fault::QueryTimeoutWaiting);
                if !client.notified && client.welcomed {
                    deadlines.notify(client.request, nanos(globals.query_wait_notify));
                }
            }
            (client::State::Linked(server) | client::State::Preparing(server), Some(pool)) => {
                self.linked_deadlines(client, self.servers.get(*server)?, pool, &mut deadlines);
            }
            (client::State::Welcome, Some(pool)) => {
                let limit = nanos(globals.client_login_timeout);
                deadlines.add(client.connected, limit, Fault::LoginTimeoutServerDown);
                let limit = pool.terms.query_timeout;
                deadlines.add(client.connected, limit, Fault::QueryTimeoutWaiting);
            }
            _ => {
                let limit = nanos(globals.client_login_timeout);
                deadlines.add(client.connected, limit, Fault::LoginTimeout);
            }
        }
        deadlines.first
    }

    fn linked_deadlines(
        &self,
        client: &Client,
        server: &Server,
        pool: &crate::pool::Pool,
        deadlines: &mut Deadlines,
    ) {
        let terms = &pool.terms;
        if server.ledger.is_empty() {
            if server.status == howdah_wire::backend::Status::Idle && !server.ledger.group_open() {
                deadlines.add(client.quiet, terms.client_idle_timeout, Fault::ClientIdle);
                return;
            }
            let limit = terms.idle_transaction_timeout;
            deadlines.add(client.quiet, limit, Fault::IdleTransaction);
        } else {
            deadlines.add(server.request, terms.query_timeout, Fault::QueryTimeout);
        }
        deadlines.add(
            server.linked,
            terms.transaction_timeout,
            Fault::TransactionTimeout,
        );
    }

    fn server_due(&mut self, id: ServerId, at: Time, out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        if server.timer != at {
            return;
        }
        server.timer = Time(0);
        match self.server_deadline(id) {
            Some((deadline, why)) if deadline <= self.now => self.server_late(id, why, out),
            Some(_) => self.watch_server(id),
            None => {}
        }
    }

    fn server_late(&mut self, id: ServerId, why: &'static str, out: &mut Out) {
        let Some(server) = self.servers.get(id) else {
            return;
        };
        match server.state {
            server::State::Cancel(_) => self.carrier_timeout(id, out),
            server::State::Linked(_) => self.repeat_cancel(id, out),
            server::State::Resolving
            | server::State::Connecting
            | server::State::Login(_)
            | server::State::ConnectQuery => {
                self.login_failed(id, "08006", why, out);
                self.close_server(id, why, Close::Abort, out);
            }
            server::State::Idle => {
                // A pool keeps its minimum, younger servers excepted. One worker does so, or each
                // would keep as many.
                let pool = self.pools.at(server.pool);
                let min = pool.terms.min_size;
                let (database, user) = (&pool.key.database, &pool.key.user);
                let keeps = self.keys.home(database, user, self.workers) == self.worker;
                if why == "server idle timeout" && pool.servers <= min && keeps {
                    if let Some(server) = self.servers.get_mut(id) {
                        server.since = self.now;
                    }
                    return self.watch_server(id);
                }
                self.close_server(id, why, Close::Await, out);
            }
            _ => self.close_server(id, why, Close::Await, out),
        }
    }

    /// When a server's time is up, and why.
    fn server_deadline(&self, id: ServerId) -> Option<(Time, &'static str)> {
        let server = self.servers.get(id)?;
        let globals = &self.config.globals;
        let after = |from: Time, limit: u64| Time(from.0.saturating_add(limit));
        match server.state {
            server::State::Resolving
            | server::State::Connecting
            | server::State::Login(_)
            | server::State::ConnectQuery => {
                let limit = nanos(globals.server_connect_timeout);
                (limit > 0).then(|| (after(server.connected, limit), "connect timeout"))
            }
            server::State::Idle => {
                let database = &self.pools.at(server.pool).terms.database;
                let lifetime = nanos(self.config.server_lifetime(database));
                // Of 0, too, one that has served nobody yet is given time to.
                let over = after(server.connected, lifetime.max(PERIOD_NS));
                let over = (over, "server lifetime over");
                let limit = nanos(globals.server_idle_timeout);
                if limit == 0 {
                    return Some(over);
                }
                Some(over.min((after(server.since, limit), "server idle timeout")))
            }
            server::State::Cancel(_) => Some((
                after(server.connected, crate::cancel::CARRIER_NS),
                "cancel timeout",
            )),
            server::State::Lookup(_) => {
                let limit = nanos(globals.client_login_timeout);
                (limit > 0).then(|| (after(server.request, limit), "client_login_timeout"))
            }
            server::State::Draining => Some((
                after(server.since, REST_NS),
                "client left, query did not end",
            )),
            server::State::Resetting => Some((after(server.since, REST_NS), "reset query failed")),
            server::State::Checking => Some((after(server.since, REST_NS), "test query failed")),
            server::State::Linked(_) => server.repeat_due().map(|at| (at, "cancel repeated")),
            _ => None,
        }
    }

    /// The configuration was read anew.
    pub(crate) fn new_settings(&mut self, config: Arc<Config>, out: &mut Out) {
        self.config = config;
        self.peers_changed();
        // Every worker counts alike, whatever pools it has, or their counts could not be compared.
        self.janitor.epoch += 1;
        for id in self.pools.ids() {
            let pool = self.pools.at(id);
            let key = (*pool.key).clone();
            match self.config.database(&key.database) {
                Some(database) => self.new_terms(id, &key, database, out),
                None => self.kill_pool(id, out),
            }
        }
        self.janitor.next = self.now;
    }

    fn new_terms(
        &mut self,
        id: PoolId,
        key: &PoolKey,
        database: Arc<crate::config::Database>,
        out: &mut Out,
    ) {
        let terms = self.terms(key, database);
        let pool = self.pools.at_mut(id);
        let moved = !pool.terms.database.same_servers(&terms.database);
        let session = |terms: &Terms| terms.mode == PoolMode::Session;
        let sessions_end = session(&pool.terms) && !session(&terms);
        let old = &pool.terms.database;
        pool.forsaken = is_forsaken(key, pool.forsaken, old, &terms.database);
        let forsaken = pool.forsaken;
        pool.terms = terms;
        pool.failure = None;
        if moved {
            pool.welcome = None;
            self.call_in(id, "database configuration changed", out);
        } else if sessions_end {
            // Sessions leave locks and the like, and between transactions nothing is reset.
            self.call_in(id, "pool mode changed", out);
        }
        if forsaken {
            self.move_waiting(id, out);
        }
        self.need(id, out);
    }

    /// Closes a pool's servers: idle ones now, others when they are given back.
    pub(crate) fn call_in(&mut self, id: PoolId, why: &'static str, out: &mut Out) {
        self.call_in_those(|server| server.pool == id, why, out);
    }

    /// A host name leads elsewhere now: servers at its old addresses are called in.
    pub(crate) fn host_moved(&mut self, host: &str, gone: &[IpAddr], out: &mut Out) {
        let named = |known: &Host| matches!(known, Host::Name(name) if name == host);
        let mut pools = self.pools_of(None);
        pools.retain(|id| {
            let database = &self.pools.at(*id).terms.database;
            database.hosts.iter().any(named)
        });
        let there = |server: &Server| {
            let remote = server.ends.as_ref().map(|ends| &ends.remote);
            matches!(remote, Some(Address::Tcp(ip, _)) if gone.contains(ip))
                && pools.contains(&server.pool)
        };
        self.call_in_those(there, "database configuration changed", out);
    }

    fn call_in_those(&mut self, which: impl Fn(&Server) -> bool, why: &'static str, out: &mut Out) {
        let all: Vec<_> = self
            .servers
            .iter()
            .filter(|(_, server)| which(server))
            .map(|(id, _)| id)
            .collect();
        for server_id in all {
            let Some(server) = self.servers.get_mut(server_id) else {
                continue;
            };
            match server.state {
                server::State::Idle => self.close_server(server_id, why, Close::Await, out),
                server::State::Cancel(_) | server::State::Closing => {}
                _ => {
                    server.close_why.get_or_insert(why);
                    let linked = server.link();
                    if linked.is_some() {
                        self.settle(server_id, out);
                    }
                }
            }
        }
    }

    /// The database is gone: so are its clients and servers.
    pub(crate) fn kill_pool(&mut self, id: PoolId, out: &mut Out) {
        let of_pool = |client: &Client| client.pool == Some(id);
        let clients: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, c)| of_pool(c))
            .map(|(id, _)| id)
            .collect();
        for client in clients {
            self.disconnect(client, Fault::DatabaseRemoved, out);
        }
        self.call_in(id, "database removed", out);
    }
}

/// What is due for a client.
#[derive(Clone, Debug)]
enum ClientDue {
    /// It is disconnected.
    Close(Fault),
    /// It is told that it waits.
    Notify,
}

/// The earliest of several deadlines.
#[derive(Debug, Default)]
struct Deadlines {
    first: Option<(Time, ClientDue)>,
}

impl Deadlines {
    fn add(&mut self, from: Time, limit: u64, fault: Fault) {
        self.put(from, limit, ClientDue::Close(fault));
    }

    fn notify(&mut self, from: Time, limit: u64) {
        self.put(from, limit, ClientDue::Notify);
    }

    fn put(&mut self, from: Time, limit: u64, due: ClientDue) {
        if limit == 0 {
            return;
        }
        let at = Time(from.0.saturating_add(limit));
        if self.first.as_ref().is_none_or(|(first, _)| at < *first) {
            self.first = Some((at, due));
        }
    }
}
