//! Giving servers to clients, and taking released servers back.
//!
//! A client that needs a server gets an idle one (`checkout`) or waits. A server that comes back
//! (`checkin`) is closed, cleaned, lent, given to a waiting client, or kept idle.

use std::sync::Arc;

use crate::client::ClientState;
use crate::config::nanos;
use crate::deadlines::idle_deadline;
use crate::event::{ClientId, Close, Out, ServerId, Time};
use crate::inbox::Chunk;
use crate::next::Next;
use crate::opening::QueryRead;
use crate::pool::key::PoolId;
use crate::pool::key::Purpose;
use crate::pooler::Pooler;
use crate::server::ServerState;
use crate::{client, server};

/// How long a server that was never used needs no test after its login, in nanoseconds.
const FRESH_NS: u64 = 1_000_000_000;

/// How many idle servers Howdah searches for the client's settings.
const LOOKED_AT: usize = 8;

/// How long a client must have waited before its worker borrows a server although one of its own
/// is logging in, in nanoseconds. The login may hang.
const LOGS_IN_NS: u64 = 500_000_000;

impl Pooler {
    /// A client needs a server. Returns true if the client gets a server that takes its messages
    /// at once. Otherwise the client waits. The client's first message begins the chunk.
    pub(crate) fn checkout(
        &mut self,
        id: ClientId,
        read: &QueryRead,
        chunk: &Chunk<'_>,
        out: &mut Out,
    ) -> bool {
        let now = self.now;
        let client = self.clients.at_mut(id);
        client.times.begin_request(now);
        let Some(login) = client.login else {
            return false;
        };
        let replication = client.is_replicating();
        let home = self.logins.at(login).home();
        let Some(pool_id) = home.or_else(|| self.route(id, read.opening(chunk))) else {
            return false;
        };
        let pool = self.pools.at(pool_id);
        if pool.waiting.is_empty()
            && pool.gives()
            && !replication
            && let Some(server) = self.take_idle(pool_id, id, out)
        {
            return self.link(id, server, out);
        }
        if let Some(fault) = self.fault_if_in_vain(pool_id) {
            self.disconnect(id, fault, out);
            return false;
        }
        let client = self.clients.at_mut(id);
        client.stands_in_line(pool_id);
        self.await_server(id, pool_id);
        if let Some(since) = self.moves.arriving.take() {
            self.stand_in_line(id, since);
        }
        self.watch_client(id);
        self.need(pool_id, out);
        // If the newest idle server is being tested, the client may have got another idle one.
        let linked = |client: &client::Client| matches!(client.state(), ClientState::Linked(_));
        self.clients.get(id).is_some_and(linked)
    }

    /// Gives idle servers to waiting clients; a server that was idle for long is tested first.
    /// Both exist at once if the newest idle server had to be tested, or a replication client
    /// waits.
    pub(super) fn serve_waiting(&mut self, pool_id: PoolId, out: &mut Out) {
        loop {
            let pool = self.pools.at(pool_id);
            let tested = pool.testing() as usize >= pool.waiting.len();
            if !pool.gives() || tested || pool.idle.is_empty() {
                return;
            }
            let Some(client) = self.next_to_serve(pool_id) else {
                return;
            };
            match self.take_idle(pool_id, client, out) {
                Some(server) => self.serve(client, server, out),
                None => {
                    let since = self
                        .clients
                        .get(client)
                        .map_or(self.now, |c| c.times.request);
                    self.pools.at_mut(pool_id).waiting.rejoin(client, since);
                }
            }
        }
    }

    /// Takes an idle server for a client, if possible with the client's settings. If the server
    /// was idle for long, its test begins instead: the next waiting client then gets it.
    fn take_idle(&mut self, pool_id: PoolId, client: ClientId, out: &mut Out) -> Option<ServerId> {
        let id = if self.config.globals.server_round_robin {
            self.pools.at_mut(pool_id).idle.take_oldest()?
        } else {
            self.take_fit(pool_id, client)?
        };
        let server = self.servers.get(id)?;
        let age = self.now.0.saturating_sub(server.times.connected.0);
        // A login that has just succeeded counts as a test.
        let fresh = !server.served() && age < FRESH_NS;
        if !fresh && self.needs_test(server.times.used) {
            self.test_server(id, out);
            return None;
        }
        Some(id)
    }

    /// Takes the newest idle server, or a slightly older one that has the client's settings and
    /// needs no test.
    fn take_fit(&mut self, pool_id: PoolId, client: ClientId) -> Option<ServerId> {
        let client = self.clients.at(client);
        let pool = self.pools.at_mut(pool_id);
        let newest = self.servers.get(pool.idle.newest()?);
        if newest.is_some_and(|server| has_settings(client, server)) {
            return pool.idle.take_newest();
        }
        let (servers, tested) = (&self.servers, self.tested_since());
        let fit =
            |server: &server::Server| server.times.used >= tested && has_settings(client, server);
        let fit = |id| servers.get(id).is_some_and(fit);
        self.pools.at_mut(pool_id).idle.take_fit(LOOKED_AT, fit)
    }

    /// Whether a server that has been idle since `since` must be tested before use.
    pub(crate) fn needs_test(&self, since: Time) -> bool {
        since < self.tested_since()
    }

    /// A server that has been idle since before this time must be tested before use.
    fn tested_since(&self) -> Time {
        let globals = &self.config.globals;
        if globals.server_check_query.is_empty() {
            Time(0)
        } else {
            Time(self.now.0.saturating_sub(nanos(globals.server_check_delay)))
        }
    }

    /// The client that has waited longest. If a client waits for an auth_query lookup, but its
    /// user has become known meanwhile, the client needs no server and goes on.
    fn next_to_serve(&mut self, pool_id: PoolId) -> Option<ClientId> {
        loop {
            let client = self.next_waiter(pool_id)?;
            if self.pools.at(pool_id).key.purpose != Purpose::Lookups
                || !self.is_known_by_now(client)
            {
                return Some(client);
            }
            self.next.note(Next::LookUp(client));
        }
    }

    fn serve(&mut self, client: ClientId, server: ServerId, out: &mut Out) {
        let looks_up = |c: &client::Client| matches!(c.state(), ClientState::Lookup(_));
        if self.clients.get(client).is_some_and(looks_up) {
            self.ask_who(client, server, out);
        } else if self.link(client, server, out) {
            self.next.note(Next::Resume(client));
        }
    }

    /// Handles a released server: closes, cleans or lends it, gives it to a waiting client, or
    /// keeps it idle.
    pub(crate) fn checkin(&mut self, id: ServerId, out: &mut Out) {
        let now = self.now;
        let mut server = self.servers.at_mut(id);
        debug_assert!(!server.link.is_owed() && !server.inbox.relaying());
        if server.cancels.are_under_way() {
            server.awaits_cancels();
            return;
        }
        if let Some(ending) = server.ending() {
            return self.close_server(id, ending.text(), Close::Await, out);
        }
        if server.statements.has_sql_prepared() {
            return self.forget_sql_prepared(id, out);
        }
        if server.session.changes.has_left_statements() {
            if self.close_transient(id, out) {
                return;
            }
            server = self.servers.at_mut(id);
        }
        let pool_id = server.pool;
        let mut pool = self.pools.at_mut(pool_id);
        if pool.paused() {
            return self.close_server(id, "pause mode", Close::Await, out);
        }
        // With a server_lifetime of 0, a server serves only once.
        let age = now.0.saturating_sub(server.times.connected.0);
        let old = server.served() && age >= pool.supply.server_lifetime;
        if old && now >= pool.next_life() {
            return self.end_life(id, out);
        }
        server.times.rest(now);
        if pool.servers() > pool.keep || pool.is_sought() {
            if self.hand_on(id, pool_id, out) {
                return;
            }
            (server, pool) = (self.servers.at_mut(id), self.pools.at_mut(pool_id));
        }
        server.becomes_idle();
        pool.idle.push(id);
        let (at, _) = idle_deadline(server, pool);
        server.arm_timer(&mut self.timers, id, at);
    }

    /// Passes a released server on: closes it because there are too many or another pool needs
    /// room, lends it, or gives it to a waiting client. False if the server stays.
    fn hand_on(&mut self, id: ServerId, pool_id: PoolId, out: &mut Out) -> bool {
        if self.has_surplus(pool_id) {
            self.close_server(id, crate::pool::surplus::WHY, Close::Await, out);
            return true;
        }
        let served = self.servers.at(id).served();
        let pool = self.pools.at(pool_id);
        if pool.key.purpose == Purpose::Catalogue {
            // It closes soon enough for those that wait for room.
            self.next.note(Next::ReadCatalogue(id));
            return true;
        }
        let held = pool.held;
        if !held && pool.starved.is_some() && self.yields(pool_id, served) {
            let login = self.servers.at(id).login;
            self.logins.at_mut(login).count_eviction();
            self.close_server(id, "evicted", Close::Await, out);
            return true;
        }
        let pool = self.pools.at_mut(pool_id);
        if pool.key.listens() {
            self.listener_ready(id, out);
            return true;
        }
        if held {
            return false;
        }
        if pool.is_sought_for_names() {
            // It becomes idle first.
            self.next.note(Next::AskVolatile(pool.login, Some(id)));
            return false;
        }
        let pool = self.pools.at_mut(pool_id);
        if let Some(worker) = pool.take_hungrier(self.now) {
            self.lend(id, worker, out);
            return true;
        }
        if let Some(client) = self.next_to_serve(pool_id) {
            self.serve(client, id, out);
            return true;
        }
        false
    }

    /// Drops the statements of SQL's PREPARE, which must not outlive their client's link. There is
    /// no command that spares Howdah's own statements.
    fn forget_sql_prepared(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        server.statements.set_sql_prepared(false);
        self.run_task(id, ServerState::Resetting, b"DEALLOCATE ALL", out);
    }

    /// Tells the Broker that clients wait, unless the Broker knows it already or a server is on
    /// its way.
    pub(crate) fn need(&mut self, pool_id: PoolId, out: &mut Out) {
        self.serve_waiting(pool_id, out);
        let opens = self.opens(pool_id);
        let pool = self.pools.at(pool_id);
        // A server whose network has gone does not answer its test for long.
        let tested = pool.testing() > 0
            && pool.testing() as usize >= pool.waiting.len()
            && self.oldest_wait(pool_id) < LOGS_IN_NS;
        let held_back = pool.is_need_told(opens) || !pool.gives() || tested;
        // Other workers may have servers to lend even if this worker can't open any.
        if !pool.is_waited_for() || held_back || self.workers == 1 && !opens {
            return;
        }
        if pool.connecting() > 0 && self.oldest_wait(pool_id) < LOGS_IN_NS {
            self.mind_hunger()
        } else {
            self.tell_need(pool_id, out)
        }
    }

    /// Tells the Broker again, even if the Broker was told before: much may have changed since.
    pub(crate) fn need_anew(&mut self, pool_id: PoolId, out: &mut Out) {
        let pool = self.pools.at(pool_id);
        let asks = self.workers > 1 || !self.backs_off(pool_id);
        if pool.is_in_need() && pool.is_waited_for() && asks {
            self.tell_need(pool_id, out);
        } else {
            self.need(pool_id, out);
        }
    }

    /// A client waits here that has waited since this time elsewhere.
    pub(crate) fn stand_in_line(&mut self, id: ClientId, since: Time) {
        let client = self.clients.at_mut(id);
        let ClientState::Waiting(pool) = *client.state() else {
            return;
        };
        // A client that waits for permission to keep a server is in another queue.
        if client.awaits_permission() {
            return;
        }
        client.times.begin_request(since);
        self.pools.at_mut(pool).waiting.join_since(id, since);
        self.watch_client(id);
    }
}

/// Whether a server has the settings of a client. (Equal settings are one shared value.)
pub(crate) fn has_settings(client: &client::Client, server: &server::Server) -> bool {
    let own = client
        .session
        .as_ref()
        .and_then(|session| session.settings.as_ref());
    let session = match (own, &server.session.settings) {
        (None, None) => true,
        (Some(own), Some(there)) => Arc::ptr_eq(own, there),
        _ => false,
    };
    let params = client.params.as_ref();
    session && params.is_none_or(|params| Arc::ptr_eq(params, &server.session.params))
}
