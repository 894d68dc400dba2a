//! Checkout and checkin; how a pool grows, lends and borrows.

use std::sync::Arc;

use howdah_wire::write;

use crate::client;
use crate::config::{Database, PoolMode, User};
use crate::event::{Action, ClientId, Close, LooseSocket, Out, Peer, ServerId, Time, WorkerId};
use crate::fault::Fault;
use crate::inbox::Inbox;
use crate::ledger::{Entry, Ledger, Reply};
use crate::mail::{Bounds, Evict, Mail, ServerParcel, ToBroker};
use crate::note::Level;
use crate::pool::{Failure, Pool, PoolId, PoolKey, Starved, Terms, Welcome};
use crate::pooler::Pooler;
use crate::server::{self, Server, Unnamed};
use crate::statement::{Held, ServerSet};

/// For how long it is kept in mind that another pool needs a server to go, in nanoseconds: it says
/// so anew several times a second.
const STARVED_FOR_NS: u64 = 1_000_000_000;

/// A setting's time in nanoseconds; 0 for none.
pub(crate) fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// For how long after its login an unused server needs no test, in nanoseconds.
const FRESH_NS: u64 = 1_000_000_000;

impl Pooler {
    /// The pool of this name; made if it is not there.
    pub(crate) fn pool_for(&mut self, key: PoolKey, database: &Arc<Database>) -> PoolId {
        if let Some(id) = self.pools.find(&key) {
            return id;
        }
        let terms = self.terms(&key, database.clone());
        let mut pool = Pool::new(Arc::new(key), terms, self.now);
        pool.paused = self.janitor.is_paused(&pool.key.database);
        pool.held = self.janitor.holds();
        self.pools.insert(pool)
    }

    /// What the settings say of a pool.
    pub(crate) fn terms(&self, key: &PoolKey, database: Arc<Database>) -> Terms {
        let config = &self.config;
        let user: Option<Arc<User>> = config.user(&key.user).cloned();
        let of = user.as_deref();
        let globals = &config.globals;
        let query_timeout = nanos(config.query_timeout(of));
        let idle_transaction_timeout = nanos(config.idle_transaction_timeout(of));
        let transaction_timeout = nanos(config.transaction_timeout(of));
        let client_idle_timeout = nanos(config.client_idle_timeout(of));
        let limits = [
            query_timeout,
            idle_transaction_timeout,
            transaction_timeout,
            client_idle_timeout,
        ];
        let shortest = limits.into_iter().filter(|limit| *limit > 0).min();
        Terms {
            shortest: shortest.unwrap_or(u64::MAX),
            mode: config.pool_mode(&database, of),
            bounds: Bounds {
                size: config.pool_size(&database, of),
                reserve: config.reserve_pool_size(&database, of),
                reserve_after: nanos(globals.reserve_pool_timeout),
                database: config.max_db_connections(&database),
                user: config.max_user_connections(of),
            },
            min_size: config.min_pool_size(&database),
            query_timeout,
            query_wait_timeout: nanos(config.query_wait_timeout(&database, of)),
            idle_transaction_timeout,
            transaction_timeout,
            client_idle_timeout,
            watched: query_timeout
                | idle_transaction_timeout
                | transaction_timeout
                | client_idle_timeout
                > 0,
            database,
            user,
        }
    }

    /// A client needs a server. True if it has one that takes its messages at once; else it waits.
    pub(crate) fn checkout(&mut self, id: ClientId, out: &mut Out) -> bool {
        let now = self.now;
        let Some(client) = self.clients.get_mut(id) else {
            return false;
        };
        client.request = now;
        let Some(pool_id) = client.pool else {
            return false;
        };
        let replication = client.replication.any();
        let pool_id = self.current_pool(id, pool_id);
        let pool = self.pools.at(pool_id);
        if pool.waiting.is_empty()
            && pool.gives()
            && !replication
            && let Some(server) = self.take_idle(pool_id, out)
        {
            return self.link(id, server, out);
        }
        if let Some(fault) = self.vain(pool_id) {
            self.disconnect(id, fault, out);
            return false;
        }
        let Some(client) = self.clients.get_mut(id) else {
            return false;
        };
        client.state = client::State::Waiting;
        self.await_server(id, pool_id);
        self.watch_client(id, out);
        self.need(pool_id, out);
        // Another idle server may have been at hand, behind one that must be tested.
        let linked = |client: &client::Client| matches!(client.state, client::State::Linked(_));
        self.clients.get(id).is_some_and(linked)
    }

    /// Puts a client at the end of its pool's queue.
    pub(crate) fn await_server(&mut self, id: ClientId, pool_id: PoolId) {
        let pool = self.pools.at_mut(pool_id);
        // Those who have left are passed over at the front; where they pile up they go at once.
        if pool.waiting.len() > 2 * pool.clients as usize + 16 {
            let clients = &self.clients;
            pool.waiting.retain(|(waiter, _)| {
                let client = clients.get(*waiter);
                client.is_some_and(client::Client::waits)
            });
        }
        pool.waiting.push_back((id, self.now));
    }

    /// Idle servers go to those who wait; one that was idle for long is tested first. There are
    /// both when the newest idle server had to be tested, or when a replication client waits.
    fn serve_waiting(&mut self, pool_id: PoolId, out: &mut Out) {
        loop {
            let pool = self.pools.at(pool_id);
            let tested = pool.testing as usize >= pool.waiting.len();
            if !pool.gives() || tested || pool.idle.is_empty() {
                return;
            }
            let Some(client) = self.next_waiter(pool_id) else {
                return;
            };
            match self.take_idle(pool_id, out) {
                Some(server) => self.serve(client, server, out),
                None => {
                    let since = self.clients.get(client).map_or(self.now, |c| c.request);
                    let waiting = &mut self.pools.at_mut(pool_id).waiting;
                    waiting.push_front((client, since));
                }
            }
        }
    }

    /// An idle server fit for use. One that was idle for long is tested first, which is begun here;
    /// whoever waits then gets it.
    fn take_idle(&mut self, pool_id: PoolId, out: &mut Out) -> Option<ServerId> {
        let oldest_first = self.config.globals.server_round_robin;
        let pool = self.pools.at_mut(pool_id);
        let id = if oldest_first {
            pool.idle.pop_front()
        } else {
            pool.idle.pop_back()
        }?;
        let server = self.servers.get(id)?;
        let age = self.now.0.saturating_sub(server.connected.0);
        // A login that has just succeeded is a test.
        let fresh = !server.served && age < FRESH_NS;
        if !fresh && self.needs_test(server.since) {
            self.test_server(id, out);
            return None;
        }
        Some(id)
    }

    /// Whether a server that has been idle since then must be tested before it is used.
    fn needs_test(&self, since: Time) -> bool {
        let globals = &self.config.globals;
        let idle_for = self.now.0.saturating_sub(since.0);
        !globals.server_check_query.is_empty() && idle_for > nanos(globals.server_check_delay)
    }

    /// A server is free: it is closed, cleaned, lent, handed to who waits, or laid aside.
    pub(crate) fn checkin(&mut self, id: ServerId, out: &mut Out) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        debug_assert!(server.ledger.is_empty() && !server.inbox.relaying());
        if server.cancels > 0 {
            server.state = server::State::BeingCancelled;
            return;
        }
        if let Some(why) = server.close_why {
            return self.close_server(id, why, Close::Await, out);
        }
        if server.sql_prepared {
            return self.forget_sql_prepared(id, out);
        }
        let pool = self.pools.at_mut(server.pool);
        if pool.paused {
            return self.close_server(id, "pause mode", Close::Await, out);
        }
        let lifetime = nanos(self.config.server_lifetime(&pool.terms.database));
        // With a lifetime of 0 a server serves once.
        if server.served && now.0.saturating_sub(server.connected.0) >= lifetime {
            return self.close_server(id, "server lifetime over", Close::Await, out);
        }
        server.since = now;
        let held = pool.held;
        if !held
            && !pool.hungry.is_empty()
            && let Some(index) = pool.hungrier(now)
        {
            let (worker, _) = pool.hungry.swap_remove(index);
            return self.lend(id, worker, out);
        }
        let pool_id = server.pool;
        if !held && pool.starved.is_some() && self.yields(pool_id) {
            return self.close_server(id, "evicted", Close::Await, out);
        }
        if !held && let Some(client) = self.next_waiter(pool_id) {
            return self.serve(client, id, out);
        }
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        server.state = server::State::Idle;
        self.pools.at_mut(pool_id).idle.push_back(id);
        self.watch_server(id);
    }

    /// Whether a server given back is to make room for one of another pool. One such server is
    /// enough.
    fn yields(&mut self, pool_id: PoolId) -> bool {
        self.trim_waiting(pool_id);
        let pool = self.pools.at(pool_id);
        let Some(starved) = pool.starved.clone() else {
            return false;
        };
        if !pool.starves(&starved, self.now) {
            return false;
        }
        for id in self.pools.ids() {
            let pool = self.pools.at_mut(id);
            pool.starved.take_if(|other| *other == starved);
        }
        true
    }

    /// Gives a server to a client that has waited for it.
    fn serve(&mut self, client: ClientId, server: ServerId, out: &mut Out) {
        let looks_up = |c: &client::Client| matches!(c.state, client::State::Lookup);
        if self.clients.get(client).is_some_and(looks_up) {
            self.ask_who(client, server, out);
        } else if self.link(client, server, out) {
            self.resume(client, out);
        }
    }

    /// The client that has waited longest; those that have left are passed over.
    /// So are those who want a server of their own, but they stay in line.
    fn next_waiter(&mut self, pool_id: PoolId) -> Option<ClientId> {
        let waiting = &mut self.pools.at_mut(pool_id).waiting;
        let mut at = 0;
        loop {
            let (id, _) = *waiting.get(at)?;
            let client = self.clients.get(id);
            match client.filter(|c| c.waits()) {
                Some(client) if client.waits_for_its_own() => at += 1,
                waits => {
                    waiting.remove(at);
                    if waits.is_some() {
                        return Some(id);
                    }
                }
            }
        }
    }

    /// Forgets waiters at the front that have left, so that ages are those of who still waits, and
    /// newcomers that have.
    pub(crate) fn trim_waiting(&mut self, pool_id: PoolId) {
        let (clients, pool) = (&self.clients, self.pools.at_mut(pool_id));
        let awaits = |c: &client::Client| matches!(c.state, client::State::Welcome);
        pool.newcomers
            .retain(|id| clients.get(*id).is_some_and(awaits));
        while let Some((client, _)) = self.pools.at(pool_id).waiting.front() {
            let client = self.clients.get(*client);
            if client.is_some_and(client::Client::waits) {
                return;
            }
            self.pools.at_mut(pool_id).waiting.pop_front();
        }
    }

    /// Forgets clients that have left before they were welcome.
    pub(crate) fn trim_newcomers(&mut self, pool_id: PoolId) {
        let clients = &self.clients;
        let stays = |c: &client::Client| matches!(c.state, client::State::Welcome);
        let newcomers = &mut self.pools.at_mut(pool_id).newcomers;
        newcomers.retain(|id| clients.get(*id).is_some_and(stays));
    }

    /// Clients wait: the Broker is told, unless it knows, or a server is coming anyway.
    pub(crate) fn need(&mut self, pool_id: PoolId, out: &mut Out) {
        self.serve_waiting(pool_id, out);
        let pool = self.pools.at_mut(pool_id);
        let tested = pool.testing > 0 && pool.testing as usize >= pool.waiting.len();
        let held_back = pool.need || pool.connecting > 0 || !pool.gives() || tested;
        let waited_for = !pool.waiting.is_empty() || !pool.newcomers.is_empty();
        // Other workers may have servers to lend even while we can't open any.
        if waited_for && !held_back && (self.workers > 1 || !self.backs_off(pool_id)) {
            self.tell_need(pool_id, out);
        }
    }

    /// Tells the Broker how long clients have waited.
    pub(crate) fn tell_need(&mut self, pool_id: PoolId, out: &mut Out) {
        let now = self.now;
        let worker = self.worker;
        self.pools.at_mut(pool_id).need = true;
        let pool = self.pools.at(pool_id);
        // Those who wait for the pool's first server count, too: where all others are busy, no
        // server would ever come by for them.
        let newcomers = pool.newcomers.iter().filter_map(|id| self.clients.get(*id));
        let newcomers = newcomers.map(|client| now.0.saturating_sub(client.connected.0));
        let age = newcomers.chain(pool.longest_wait(now)).max();
        let need = ToBroker::Need {
            worker,
            pool: pool.key.clone(),
            age: age.unwrap_or(0),
            unwelcomed: pool.welcome.is_none(),
            replication: self.wants_replication(pool_id),
            opens: !self.backs_off(pool_id),
            bounds: pool.terms.bounds,
        };
        out.push(Action::Post(Self::BROKER, Mail::Broker(need)));
        self.mind_hunger();
    }

    /// What was needed has come. The need may have been said anew while it was on its way, and the
    /// Broker is not to believe that.
    pub(crate) fn sated(&mut self, pool_id: PoolId, out: &mut Out) {
        let worker = self.worker;
        let pool = self.pools.at_mut(pool_id);
        if std::mem::take(&mut pool.need) {
            let sated = ToBroker::Sated {
                worker,
                pool: pool.key.clone(),
            };
            out.push(Action::Post(Self::BROKER, Mail::Broker(sated)));
        }
    }

    /// Some client waits for a server of its own.
    fn wants_replication(&self, pool_id: PoolId) -> bool {
        let mut waiting = self.pools.at(pool_id).waiting.iter();
        waiting.any(|(id, _)| {
            self.clients
                .get(*id)
                .is_some_and(client::Client::waits_for_its_own)
        })
    }

    /// True while `server_login_retry` has not passed since a login failed.
    pub(crate) fn backs_off(&self, pool_id: PoolId) -> bool {
        let retry = nanos(self.config.globals.server_login_retry);
        let failure = self.pools.at(pool_id).failure.as_ref();
        failure.is_some_and(|f| self.now.0.saturating_sub(f.at.0) < retry)
    }

    /// Why a client that is logged in need not wait for a server of this pool: logins fail for a
    /// reason that time does not mend. (Of others it was spared until now, and may be yet.)
    fn vain(&self, pool_id: PoolId) -> Option<Fault> {
        let failure = self.pools.at(pool_id).failure.as_ref();
        let passes = failure.is_some_and(Failure::passes);
        if passes && !self.janitor.awaits_servers() {
            return None;
        }
        self.hopeless(pool_id)
    }

    /// Why a client need not log in to wait for a server of this pool. Who waits already when
    /// servers begin to fail goes on waiting: the next attempt may serve it.
    pub(crate) fn hopeless(&self, pool_id: PoolId) -> Option<Fault> {
        if self.janitor.awaits_servers() {
            return Some(Fault::ServerShuttingDown);
        }
        let failure = self.pools.at(pool_id).failure.as_ref()?;
        let fails = self.backs_off(pool_id) && !self.has_usable_server(pool_id);
        fails.then(|| Fault::ServerLoginFailing(failure.text.clone()))
    }

    /// A server is there that clients may get yet.
    pub(crate) fn has_usable_server(&self, pool_id: PoolId) -> bool {
        use server::State::{Cancel, Closing, ConnectQuery, Connecting, Login, Resolving};
        self.servers.iter().any(|(_, server)| {
            server.pool == pool_id
                && server.close_why.is_none()
                && !matches!(
                    server.state,
                    Resolving | Connecting | Login(_) | ConnectQuery | Cancel(_) | Closing
                )
        })
    }

    /// Disconnects everybody who waits for a server of a pool, or for its first.
    pub(crate) fn drop_waiters(&mut self, pool_id: PoolId, fault: &Fault, out: &mut Out) {
        let pool = self.pools.at_mut(pool_id);
        let waiting: Vec<_> = pool.waiting.drain(..).map(|(client, _)| client).collect();
        let newcomers = std::mem::take(&mut pool.newcomers);
        for client in waiting.into_iter().chain(newcomers) {
            let waits = |c: &client::Client| c.waits() || matches!(c.state, client::State::Welcome);
            if self.clients.get(client).is_some_and(waits) {
                self.disconnect(client, fault.clone(), out);
            }
        }
    }

    /// Disconnects those of them who are not logged in yet.
    pub(crate) fn drop_newcomers(&mut self, pool_id: PoolId, fault: &Fault, out: &mut Out) {
        let pool = self.pools.at_mut(pool_id);
        let newcomers = std::mem::take(&mut pool.newcomers);
        let waiting = pool.waiting.iter().map(|(client, _)| *client);
        let all: Vec<_> = newcomers.into_iter().chain(waiting).collect();
        for id in all {
            let new = |c: &client::Client| {
                use client::State::{Lookup, Waiting, Welcome};
                !c.welcomed && matches!(c.state, Welcome | Waiting | Lookup)
            };
            if self.clients.get(id).is_some_and(new) {
                self.disconnect(id, fault.clone(), out);
            }
        }
    }

    /// Logins fail here, and no other worker has a server: who is not logged in learns that.
    pub(crate) fn alone(&mut self, key: &PoolKey, out: &mut Out) {
        let Some(pool_id) = self.pools.find(key) else {
            return;
        };
        let failure = self.pools.at(pool_id).failure.as_ref();
        let Some(failure) = failure.filter(|failure| failure.is_full()).cloned() else {
            return;
        };
        if self.backs_off(pool_id) && !self.has_usable_server(pool_id) {
            let fault = Fault::ServerLogin(failure.sqlstate, failure.text);
            self.drop_newcomers(pool_id, &fault, out);
        }
    }

    /// The Broker lets us open a server.
    pub(crate) fn permitted(&mut self, key: &PoolKey, reserve: bool, warm: bool, out: &mut Out) {
        let found = self.pools.find(key);
        if let Some(pool_id) = found {
            self.trim_waiting(pool_id);
        }
        let wanted = found.filter(|id| {
            let pool = self.pools.at(*id);
            let waited_for = !pool.waiting.is_empty() || !pool.newcomers.is_empty();
            (warm || waited_for) && pool.gives() && !self.backs_off(*id)
        });
        if let Some(pool_id) = found
            && !warm
        {
            self.sated(pool_id, out);
        }
        let Some(pool_id) = wanted else {
            let (worker, pool) = (self.worker, Arc::new(key.clone()));
            let freed = ToBroker::Freed { worker, pool };
            out.push(Action::Post(Self::BROKER, Mail::Broker(freed)));
            return;
        };
        if reserve {
            let text = format!(
                "pool {}/{}: taking connection from reserve_pool",
                key.database, key.user
            );
            out.note(crate::note::Note {
                level: Level::Log,
                text,
            });
        }
        self.open_server(pool_id, out);
    }

    /// Another worker's clients wait.
    pub(crate) fn hungry(
        &mut self,
        worker: WorkerId,
        key: &PoolKey,
        age: u64,
        unwelcomed: bool,
        idle_only: bool,
        out: &mut Out,
    ) {
        let Some(pool_id) = self.pools.find(key) else {
            return;
        };
        self.trim_waiting(pool_id);
        let pool = self.pools.at_mut(pool_id);
        pool.hungry.retain(|(who, _)| *who != worker);
        if !pool.gives() {
            return;
        }
        if pool.waiting.is_empty()
            && let Some(server) = pool.idle.pop_front()
        {
            return self.lend(server, worker, out);
        }
        // A lent server would have brought the welcome.
        if unwelcomed && let Some(welcome) = pool.welcome.clone() {
            let epoch = self.janitor.epoch(&key.database);
            let mail = Mail::Welcome(pool.key.clone(), Box::new(welcome), epoch);
            out.push(Action::Post(worker, mail));
        }
        if !idle_only {
            pool.hungry.push((worker, age));
        }
    }

    /// A bound holds a pool back: an idle server goes, or else one that is given back soon, if the
    /// clients of that pool have waited for long.
    pub(crate) fn evict(&mut self, key: &PoolKey, from: Evict, age: u64, out: &mut Out) {
        let mut oldest: Option<(Time, ServerId)> = None;
        for (_, pool) in self.pools.iter() {
            if !from.concerns(key, &pool.key) {
                continue;
            }
            for id in &pool.idle {
                let Some(server) = self.servers.get(*id) else {
                    continue;
                };
                if oldest.is_none_or(|(since, _)| server.since < since) {
                    oldest = Some((server.since, *id));
                }
            }
        }
        match oldest {
            Some((_, id)) => self.close_server(id, "evicted", Close::Await, out),
            None => {
                let pool = Arc::new(key.clone());
                let starved = Starved {
                    since: Time(self.now.0.saturating_sub(age)),
                    until: Time(self.now.0 + STARVED_FOR_NS),
                    who: pool.clone(),
                };
                for id in self.pools.ids() {
                    let pool = self.pools.at_mut(id);
                    if from.concerns(key, &pool.key) {
                        pool.starved = Some(starved.clone());
                    }
                }
                let worker = self.worker;
                let nothing = ToBroker::NothingToEvict { worker, pool };
                out.push(Action::Post(Self::BROKER, Mail::Broker(nothing)));
            }
        }
    }

    /// A pool that starved has been fed: what was kept in mind for it is forgotten.
    pub(crate) fn content(&mut self, key: &PoolKey) {
        for id in self.pools.ids() {
            let pool = self.pools.at_mut(id);
            if pool
                .starved
                .as_ref()
                .is_some_and(|other| *other.who == *key)
            {
                pool.starved = None;
            }
        }
    }

    /// Sends an idle server to another worker, as soon as the driver has let go of it.
    fn lend(&mut self, id: ServerId, to: WorkerId, out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        server.state = server::State::Lent(to);
        out.push(Action::Detach(Peer::Server(id)));
    }

    /// The driver has let go of a server.
    pub(crate) fn server_detached(&mut self, id: ServerId, socket: LooseSocket, out: &mut Out) {
        let Some(server) = self.servers.get(id) else {
            out.push(Action::Discard(socket));
            return;
        };
        if matches!(server.state, server::State::Packed) {
            return self.server_packed(id, socket, out);
        }
        let server::State::Lent(to) = server.state else {
            // It was to be closed meanwhile; the driver knows it no more, so nothing else will come.
            out.push(Action::Discard(socket));
            return self.server_closed(id, true, out);
        };
        if !server.may_travel() {
            // It said something odd on the way out: it comes back only to be closed.
            out.push(Action::Attach(Peer::Server(id), socket));
            return self.close_server(id, "idle server got dirty", Close::Await, out);
        }
        let Some(mut server) = self.servers.remove(id) else {
            return;
        };
        let pool = self.pools.at_mut(server.pool);
        pool.servers -= 1;
        pool.stats.lends += 1;
        let moved = ToBroker::Moved {
            from: self.worker,
            to,
            pool: pool.key.clone(),
        };
        let parcel = ServerParcel {
            socket,
            ends: server.ends.take().expect("a server at rest is connected"),
            number: server.number,
            served: server.served,
            pool: pool.key.clone(),
            key: server.key.take(),
            params: server.params.clone(),
            statements: server.set.drain(),
            status: server.status,
            connected: server.connected,
            since: server.since,
            standby: server.standby,
            welcome: pool.welcome.clone(),
            epoch: self.janitor.epoch(&pool.key.database),
        };
        out.push(Action::Post(Self::BROKER, Mail::Broker(moved)));
        out.push(Action::Post(to, Mail::Server(Box::new(parcel))));
    }

    /// A server came from another worker.
    pub(crate) fn server_arrived(&mut self, mut parcel: ServerParcel, out: &mut Out) {
        let database = match self.pools.find(&parcel.pool) {
            Some(id) => Some(self.pools.at(id).terms.database.clone()),
            None => self.config.database(&parcel.pool.database),
        };
        let Some(database) = database else {
            // The database left the configuration while the server was in the mail.
            let (worker, pool) = (self.worker, parcel.pool);
            let freed = ToBroker::Freed { worker, pool };
            out.push(Action::Discard(parcel.socket));
            out.push(Action::Post(Self::BROKER, Mail::Broker(freed)));
            return;
        };
        let pool_id = self.pool_for((*parcel.pool).clone(), &database);
        let stale = parcel.epoch < self.janitor.epoch(&parcel.pool.database);
        let (welcome, since) = (parcel.welcome.take(), parcel.since);
        self.sated(pool_id, out);
        let id = self.insert_server(pool_id, parcel, stale, out);
        if !stale && let Some(welcome) = welcome {
            self.learn_welcome(pool_id, welcome, out);
        }
        let unused = self.needs_test(since) && !self.pools.at(pool_id).waiting.is_empty();
        if unused && !stale && self.pools.at(pool_id).gives() {
            self.test_server(id, out);
        } else {
            self.checkin(id, out);
        }
        self.suspend_server(id, out);
        self.need(pool_id, out);
    }

    /// A server that was elsewhere is here now.
    pub(crate) fn insert_server(
        &mut self,
        pool_id: PoolId,
        parcel: ServerParcel,
        stale: bool,
        out: &mut Out,
    ) -> ServerId {
        let mut set = ServerSet::new(self.seeded);
        for (key, statement) in parcel.statements {
            let own = self.shared.statements.adopt(statement);
            set.mark(key, &own, Held::Sure);
        }
        let params = self.shared.params.intern((*parcel.params).clone());
        let (now, connected) = (self.now, parcel.connected);
        let id = self.servers.insert(|_| Server {
            state: server::State::Idle,
            pool: pool_id,
            number: parcel.number,
            served: parcel.served,
            ends: Some(parcel.ends),
            params,
            set,
            status: parcel.status,
            key: parcel.key,
            standby: parcel.standby,
            permitted: true,
            connected,
            close_why: stale.then_some("database configuration changed"),
            ..Server::blank(pool_id, self.seeded, now)
        });
        self.pools.at_mut(pool_id).servers += 1;
        out.push(Action::Attach(Peer::Server(id), parcel.socket));
        id
    }

    /// A lent server tells what no server of our own has told yet: those who wait for that are
    /// welcome. (There may be no permit for a server of our own.)
    pub(crate) fn learn_welcome(&mut self, pool_id: PoolId, welcome: Welcome, out: &mut Out) {
        // One that is known may come from a server that was lost before it was ready.
        if self.pools.at(pool_id).welcome.is_none() {
            let tracked = self.shared.params.intern((*welcome.tracked).clone());
            self.pools.at_mut(pool_id).welcome = Some(Welcome { tracked, ..welcome });
        }
        for client in std::mem::take(&mut self.pools.at_mut(pool_id).newcomers) {
            self.welcome(client, out);
        }
    }

    /// Statements of SQL's PREPARE must not outlive the link of who made them. Theirs can only go
    /// together with ours.
    fn forget_sql_prepared(&mut self, id: ServerId, out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        server.sql_prepared = false;
        server.state = server::State::Resetting;
        server.since = self.now;
        server.unnamed = Unnamed::Known(None);
        server.ledger.push(Entry::swallow(Reply::Query), true);
        out.send_with(Peer::Server(id), |buf| write::query(buf, b"DEALLOCATE ALL"));
        self.watch_server(id);
    }

    /// True if sessions are what this pool gives out.
    pub(crate) fn is_session(&self, pool_id: PoolId) -> bool {
        self.pools.at(pool_id).terms.mode == PoolMode::Session
    }
}

impl Server {
    /// Nothing is under way between it and us, and nothing speaks against using it elsewhere.
    pub(crate) fn may_travel(&self) -> bool {
        self.close_why.is_none()
            && self.ledger.is_empty()
            && self.inbox.held.is_empty()
            && self.inbox.at_boundary()
            && self.cancels == 0
    }

    /// A server of which nothing is known yet.
    pub(crate) fn blank(pool: PoolId, seeded: crate::Seeded, now: Time) -> Self {
        Server {
            state: server::State::Resolving,
            number: 0,
            pool,
            ends: None,
            inbox: Inbox::default(),
            ledger: Ledger::default(),
            status: howdah_wire::backend::Status::Idle,
            params: Arc::new(crate::params::Params::none()),
            set: ServerSet::new(seeded),
            unnamed: Unnamed::Unknown,
            portals: Vec::new(),
            portals_bound: 0,
            copy_in: false,
            copy_broken: false,
            answering: false,
            copy_both: false,
            eaten: 0,
            sql_prepared: false,
            rolled_back: false,
            cut_off: false,
            served: false,
            close_why: None,
            changed_schema: false,
            cancels: 0,
            repeat: None,
            key: None,
            standby: None,
            paused: false,
            congested: false,
            permitted: false,
            reserved: None,
            replication: false,
            connected: now,
            since: now,
            linked: now,
            request: now,
            timer: Time(0),
        }
    }
}
