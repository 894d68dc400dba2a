//! The life of a link: bytes from either side, and the release rule.
//!
//! A server goes back to its pool only when nothing is owed, no group is open, the last
//! ReadyForQuery said idle, and what was sent to it ended on a message boundary. No cancel for it
//! may be under way either; `checkin` sees to that.

use howdah_wire::backend::Status;
use howdah_wire::tag::frontend;
use howdah_wire::write;

use super::downstream::{self, Downstream};
use super::upstream::{self, Upstream};
use crate::client;
use crate::config::PoolMode;
use crate::event::{Action, ClientId, Close, Out, Peer, ServerId, WorkerId};
use crate::fault::Fault;
use crate::inbox::{Chunk, HELD_MAX};
use crate::ledger::{Entry, Reply};
use crate::mail::Mail;
use crate::note::Level;
use crate::pooler::Pooler;
use crate::server;
use crate::standby;

/// What became of a chunk.
enum After {
    /// All of it is done with.
    Consumed,
    /// The rest must be held.
    Keep,
    /// The client is gone, or going.
    Gone,
}

impl Pooler {
    /// Bytes came from a client.
    pub(crate) fn client_sent(&mut self, id: ClientId, bytes: &[u8], out: &mut Out) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        match client.state {
            client::State::Linked(_) | client::State::Idle => {
                if let Some(pool) = client.pool {
                    self.pools.at_mut(pool).stats.received += bytes.len() as u64;
                }
                if !client.inbox.held.is_empty()
                    || client.leaving
                    || client.stalled
                    || client.parked
                {
                    client.inbox.held.extend_from_slice(bytes);
                    if !client.stalled && !client.leaving && !client.parked {
                        self.resume(id, out);
                    }
                    self.mind_held(id, out);
                    return;
                }
                let mut chunk = Chunk {
                    bytes,
                    at: 0,
                    fresh: true,
                };
                if let After::Keep = self.upstream(id, &mut chunk, out) {
                    self.hold(id, chunk.rest(), out);
                }
                self.settle_client(id, out);
            }
            client::State::Waiting | client::State::Preparing(_) | client::State::Welcome => {
                self.hold(id, bytes, out);
            }
            client::State::Startup => self.startup_bytes(id, bytes, out),
            client::State::Login(_) | client::State::Lookup => self.login_bytes(id, bytes, out),
            client::State::Console(_) => self.console_bytes(id, bytes, out),
            client::State::Moving(_) | client::State::Packed(_) => {
                client.inbox.held.extend_from_slice(bytes)
            }
            client::State::Canceller | client::State::Successor | client::State::Closing => {}
        }
    }

    /// Works through what a client had held back.
    pub(crate) fn resume(&mut self, id: ClientId, out: &mut Out) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if client.parked {
            return;
        }
        client.stalled = false;
        let mut held = std::mem::take(&mut client.inbox.held);
        if held.is_empty() {
            // What was held may have been dropped.
            return self.unpause_client(id, out);
        }
        let mut chunk = Chunk {
            bytes: &held,
            at: 0,
            fresh: false,
        };
        let after = self.upstream(id, &mut chunk, out);
        let at = chunk.at;
        match (after, self.clients.get_mut(id)) {
            (After::Keep, Some(client)) => {
                held.drain(..at);
                client.inbox.held = held;
            }
            _ => self.unblock(held),
        }
        self.unpause_client(id, out);
        self.settle_client(id, out);
    }

    fn upstream(&mut self, id: ClientId, chunk: &mut Chunk<'_>, out: &mut Out) -> After {
        loop {
            match self.run_upstream(id, chunk, out) {
                None => return After::Gone,
                Some(upstream::Flow::Done) => return After::Consumed,
                Some(upstream::Flow::Partial | upstream::Flow::Stalled) => return After::Keep,
                Some(upstream::Flow::NeedServer) => {
                    if !self.checkout(id, out) {
                        return After::Keep;
                    }
                }
                Some(upstream::Flow::Terminate) => {
                    self.client_parts(id, Fault::ClientClosed, out);
                    return After::Gone;
                }
                Some(upstream::Flow::Broken(fault)) => {
                    self.client_parts(id, fault, out);
                    return After::Gone;
                }
            }
        }
    }

    fn run_upstream(
        &mut self,
        id: ClientId,
        chunk: &mut Chunk<'_>,
        out: &mut Out,
    ) -> Option<upstream::Flow> {
        let now = self.now;
        let client = self.clients.get_mut(id)?;
        let link = client.link();
        let pool = self.pools.at_mut(client.pool?);
        let server = match link {
            Some(server) => {
                let entry = self.servers.get_mut(server)?;
                if entry.ledger.is_empty() {
                    entry.request = now;
                    if entry.status == Status::Idle {
                        entry.linked = now;
                    }
                }
                Some((server, entry))
            }
            None => None,
        };
        let globals = &self.config.globals;
        let mut upstream = Upstream {
            id,
            client,
            server,
            renames: pool.renames(globals.max_prepared_statements),
            packet_max: globals.max_packet_size,
            refuses_queries: globals.disable_pqexec,
            tracked: &self.shared.tracked,
            interner: &mut self.shared.statements,
            out,
            counts: upstream::Counts::default(),
        };
        let flow = upstream.run(chunk);
        let counts = upstream.counts;
        pool.stats.client_parses += u64::from(counts.client_parses);
        pool.stats.server_parses += u64::from(counts.server_parses);
        pool.stats.binds += u64::from(counts.binds);
        Some(flow)
    }

    /// Keeps bytes of a client for later.
    pub(crate) fn hold(&mut self, id: ClientId, bytes: &[u8], out: &mut Out) {
        let block = match self.clients.get(id) {
            Some(client) if client.inbox.held.capacity() == 0 => Some(self.block()),
            _ => None,
        };
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if let Some(block) = block {
            client.inbox.held = block;
        }
        client.inbox.held.extend_from_slice(bytes);
        self.mind_held(id, out);
    }

    /// A client whose bytes can't be handled for now is not read from beyond a bound; one message
    /// that must be whole may be longer.
    fn mind_held(&mut self, id: ClientId, out: &mut Out) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if client.holds_back() && !client.paused && client.inbox.held.len() > HELD_MAX {
            client.paused = true;
            out.push(Action::Receive {
                peer: Peer::Client(id),
                on: false,
            });
        }
    }

    /// Reads from a client again, if nothing speaks against it.
    pub(crate) fn unpause_client(&mut self, id: ClientId, out: &mut Out) {
        let Some(client) = self.clients.get(id) else {
            return;
        };
        // More than that may be held only of a message that must be whole, whose rest is wanted.
        if self.janitor.suspension.is_some() {
            return;
        }
        if !client.paused || (client.holds_back() && client.inbox.held.len() > HELD_MAX) {
            return;
        }
        let full = client
            .link()
            .and_then(|s| self.servers.get(s))
            .is_some_and(|s| s.congested);
        if full || client.congested {
            return;
        }
        if let Some(client) = self.clients.get_mut(id) {
            client.paused = false;
            out.push(Action::Receive {
                peer: Peer::Client(id),
                on: true,
            });
        }
    }

    /// A send queue is full: the other side of the link is not read from. Nor is a client that does
    /// not read itself: some of its messages are answered here, without a server.
    pub(crate) fn congested(&mut self, peer: Peer, out: &mut Out) {
        match peer {
            Peer::Client(id) => {
                let Some(client) = self.clients.get_mut(id) else {
                    return;
                };
                client.congested = true;
                let link = client.link();
                // Nor is it itself: much of what it is sent may be of our own making. PostgreSQL
                // reads no more than it can answer, either.
                if !client.paused {
                    client.paused = true;
                    out.push(Action::Receive { peer, on: false });
                }
                if let Some(server) = link.and_then(|id| self.servers.get_mut(id))
                    && !server.paused
                {
                    server.paused = true;
                    let peer = Peer::Server(link.expect("just looked up"));
                    out.push(Action::Receive { peer, on: false });
                }
            }
            Peer::Server(id) => {
                let Some(server) = self.servers.get_mut(id) else {
                    return;
                };
                server.congested = true;
                let link = server.link();
                if let Some(client) = link.and_then(|id| self.clients.get_mut(id))
                    && !client.paused
                {
                    client.paused = true;
                    let peer = Peer::Client(link.expect("just looked up"));
                    out.push(Action::Receive { peer, on: false });
                }
            }
        }
    }

    /// A send queue has room again.
    pub(crate) fn drained(&mut self, peer: Peer, out: &mut Out) {
        match peer {
            Peer::Client(id) => {
                let Some(client) = self.clients.get_mut(id) else {
                    return;
                };
                client.congested = false;
                if let Some(server) = client.link() {
                    self.unpause_server(server, out);
                }
                self.unpause_client(id, out);
                self.console_run(id, out);
            }
            Peer::Server(id) => {
                let Some(server) = self.servers.get_mut(id) else {
                    return;
                };
                server.congested = false;
                if let Some(client) = server.link() {
                    self.unpause_client(client, out);
                }
            }
        }
    }

    pub(crate) fn unpause_server(&mut self, id: ServerId, out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        if server.paused && self.janitor.suspension.is_none() {
            server.paused = false;
            out.push(Action::Receive {
                peer: Peer::Server(id),
                on: true,
            });
        }
    }

    /// Bytes came from a server.
    pub(crate) fn server_sent(&mut self, id: ServerId, bytes: &[u8], out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        match server.state {
            server::State::Login(_) => return self.server_login_bytes(id, bytes, out),
            server::State::Lookup(_) => return self.lookup_bytes(id, bytes, out),
            server::State::Closing | server::State::Cancel(_) => return,
            server::State::Resolving | server::State::Connecting => return,
            _ => {}
        }
        self.pools.at_mut(server.pool).stats.sent += bytes.len() as u64;
        if server.inbox.held.is_empty() {
            let mut chunk = Chunk {
                bytes,
                at: 0,
                fresh: true,
            };
            self.downstream(id, &mut chunk, out);
            let rest = chunk.rest();
            if !rest.is_empty()
                && let Some(server) = self.servers.get_mut(id)
            {
                server.inbox.held.extend_from_slice(rest);
            }
        } else {
            let mut held = std::mem::take(&mut server.inbox.held);
            held.extend_from_slice(bytes);
            let mut chunk = Chunk {
                bytes: &held,
                at: 0,
                fresh: false,
            };
            self.downstream(id, &mut chunk, out);
            let at = chunk.at;
            if at < held.len()
                && let Some(server) = self.servers.get_mut(id)
            {
                held.drain(..at);
                server.inbox.held = held;
            }
        }
        self.after_server(id, out);
    }

    fn downstream(&mut self, id: ServerId, chunk: &mut Chunk<'_>, out: &mut Out) {
        // On its way to a successor, what it says is still for its client.
        let session = self.session_of(id).map(|(client, _)| client);
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        let linked = match server.state {
            server::State::Linked(client) => Some(client),
            server::State::Packed => session,
            _ => None,
        };
        let client = linked.and_then(|id| Some((id, self.clients.get_mut(id)?)));
        let pool_id = server.pool;
        let pool = self.pools.at_mut(pool_id);
        let replicates = client.as_ref().is_some_and(|(_, c)| c.replication.any());
        let kept = pool.terms.mode == PoolMode::Session || replicates;
        let mut downstream = Downstream {
            id,
            server,
            client,
            kept,
            shared: &mut self.shared,
            out,
            counts: downstream::Counts::default(),
            task_error: None,
            standby: None,
        };
        let flow = downstream.run(chunk);
        let (counts, task_error) = (downstream.counts, downstream.task_error);
        let standby = downstream.standby;
        if counts.queries > 0 {
            let server = &mut *downstream.server;
            let now = self.now.0;
            pool.stats.queries += u64::from(counts.queries);
            pool.stats.transactions += u64::from(counts.transactions);
            pool.stats.query_ns += now.saturating_sub(server.request.0);
            if counts.transactions > 0 {
                pool.stats.transaction_ns += now.saturating_sub(server.linked.0);
            }
            // In a pipeline the next one begins when this one ends.
            server.request = self.now;
            if server.status == Status::Idle {
                server.linked = self.now;
            }
        }
        self.tell_schema(out);
        if let Some(standby) = standby {
            self.standby_reported(pool_id, standby, out);
        }
        if let Some(error) = task_error {
            self.task_failed(id, &error, out);
        }
        if let downstream::Flow::Broken(fault) = flow {
            chunk.at = chunk.bytes.len();
            self.server_broken(id, fault, out);
        }
    }

    /// Tells the other workers what was noticed here about the schema.
    fn tell_schema(&mut self, out: &mut Out) {
        let changes = self.shared.statements.untold();
        if changes == 0 {
            return;
        }
        for to in (0..self.workers).map(WorkerId) {
            if to != self.worker {
                out.push(Action::Post(to, Mail::SchemaChanged(changes)));
            }
        }
    }

    /// A server's bytes are worked through: what was waiting for them goes on.
    pub(crate) fn after_server(&mut self, id: ServerId, out: &mut Out) {
        let Some(server) = self.servers.get(id) else {
            return;
        };
        match server.state {
            server::State::Linked(client) => {
                let stalled = self.clients.get(client).is_some_and(|entry| entry.stalled);
                self.settle(id, out);
                let Some(entry) = self.clients.get(client) else {
                    return;
                };
                if entry.leaving {
                    self.leave_when_answered(client, out);
                } else if stalled && !self.repeats_cancel(client) {
                    // Bound still, or again in need of a server.
                    self.resume(client, out);
                }
            }
            server::State::Idle | server::State::Used | server::State::BeingCancelled => {
                if let Some(why) = server.close_why {
                    self.close_server(id, why, Close::Await, out);
                }
            }
            _ => self.task_moves(id, out),
        }
    }

    /// A cancel is out for what a client's server runs, and must hit nothing that comes now.
    fn repeats_cancel(&self, id: ClientId) -> bool {
        let link = self.clients.get(id).and_then(client::Client::link);
        let server = link.and_then(|id| self.servers.get(id));
        server.is_some_and(server::Server::repeats)
    }

    /// The client's side moved on: perhaps that was all that kept its server.
    fn settle_client(&mut self, id: ClientId, out: &mut Out) {
        if let Some(server) = self.clients.get(id).and_then(client::Client::link) {
            self.settle(server, out);
        }
    }

    /// Gives a server back if the release rule holds.
    pub(crate) fn settle(&mut self, id: ServerId, out: &mut Out) {
        let Some(server) = self.servers.get(id) else {
            return;
        };
        let server::State::Linked(client_id) = server.state else {
            return;
        };
        let Some(client) = self.clients.get(client_id) else {
            return;
        };
        if !server.ledger.is_empty() || server.copy_in || server.copy_both {
            return;
        }
        let between = server.inbox.at_boundary() && !client.inbox.relaying();
        if !between {
            return;
        }
        if server.ledger.group_open() {
            // In a transaction that waits for its client.
            if let Some(client) = self.clients.get_mut(client_id) {
                client.quiet = self.now;
            }
            return;
        }
        let pool = self.pools.at(server.pool);
        let mode = pool.terms.mode;
        if server.status != Status::Idle {
            if mode == PoolMode::Statement {
                self.disconnect(client_id, Fault::TransactionBlock, out);
                return;
            }
            let watched = pool.terms.watched;
            if let Some(client) = self.clients.get_mut(client_id) {
                client.quiet = self.now;
            }
            if watched {
                self.watch_client(client_id, out);
            }
            return;
        }
        let session = mode == PoolMode::Session || client.replication.any();
        if session && server.close_why.is_some() && self.config.globals.server_fast_close {
            self.disconnect(client_id, Fault::DatabaseChanged, out);
            return;
        }
        if session {
            let watched = pool.terms.watched;
            if let Some(client) = self.clients.get_mut(client_id) {
                client.quiet = self.now;
                // Its session goes to the successor as it is now.
                client.parked |= self.janitor.takeover.holds() && !client.replication.any();
            }
            if watched {
                self.watch_client(client_id, out);
            }
            return;
        }
        self.unlink(client_id, id, out);
        self.release(id, false, out);
    }

    /// Ends a link. The client is idle from then; the server is its caller's to place.
    pub(crate) fn unlink(&mut self, client_id: ClientId, server_id: ServerId, out: &mut Out) {
        let now = self.now;
        if let Some(client) = self.clients.get_mut(client_id) {
            client.state = client::State::Idle;
            client.quiet = now;
            client.stalled = false;
            let watched = self
                .pools
                .at(client.pool.expect("a linked client has a pool"));
            if watched.terms.client_idle_timeout > 0 {
                self.watch_client(client_id, out);
            }
        }
        if let Some(server) = self.servers.get_mut(server_id) {
            server.state = server::State::Draining;
            server.portals.clear();
            // What was to be cancelled is over.
            server.repeat = None;
            if server.paused {
                self.unpause_server(server_id, out);
            }
            // If it was the server's congestion that kept it, it does no more.
            self.unpause_client(client_id, out);
        }
    }

    /// Binds a client to a server that is at rest. True if messages may go at once; false if the
    /// server's parameters must be set first (the client's messages are held until then).
    pub(crate) fn link(&mut self, client_id: ClientId, server_id: ServerId, out: &mut Out) -> bool {
        let now = self.now;
        let (Some(client), Some(server)) = (
            self.clients.get_mut(client_id),
            self.servers.get_mut(server_id),
        ) else {
            return false;
        };
        let pool = self.pools.at_mut(server.pool);
        if matches!(client.state, client::State::Waiting) {
            pool.stats.wait_ns += now.0.saturating_sub(client.request.0);
        }
        pool.stats.server_assignments += 1;
        client.notified = false;
        server.linked = now;
        server.request = now;
        server.since = now;
        server.served = true;
        standby::tell(client_id, client, server, out);
        let watched = pool.terms.watched;
        let max = self.config.globals.max_prepared_statements as usize;
        let ready = Self::align(&self.shared, client, server_id, server, out);
        let evict = ready && server.set.outgrows(max);
        if ready {
            client.state = client::State::Linked(server_id);
            server.state = server::State::Linked(client_id);
        } else {
            client.state = client::State::Preparing(server_id);
            server.state = server::State::Preparing(client_id);
        }
        if server.congested && !client.paused {
            client.paused = true;
            out.push(Action::Receive {
                peer: Peer::Client(client_id),
                on: false,
            });
        }
        if client.congested {
            server.paused = true;
            out.push(Action::Receive {
                peer: Peer::Server(server_id),
                on: false,
            });
        }
        if evict {
            self.evict_statements(server_id, max, out);
        }
        if watched {
            self.watch_link(client_id);
        }
        if !ready {
            self.note_apply(server_id, out);
        }
        ready
    }

    /// Sends what makes a server's parameters the client's. True if nothing had to be sent.
    fn align(
        shared: &crate::Shared,
        client: &client::Client,
        server_id: ServerId,
        server: &mut server::Server,
        out: &mut Out,
    ) -> bool {
        let Some(wanted) = &client.params else {
            return true;
        };
        if std::sync::Arc::ptr_eq(wanted, &server.params) {
            return true;
        }
        let sql = crate::params::set_statement(&shared.tracked, wanted.missing_on(&server.params));
        if sql.is_empty() {
            return true;
        }
        out.send_with(Peer::Server(server_id), |buf| write::query(buf, &sql));
        server.unnamed = server::Unnamed::Known(None);
        server.ledger.push(Entry::swallow(Reply::Query), true);
        false
    }

    fn note_apply(&mut self, id: ServerId, out: &mut Out) {
        if self.noisy(Level::Debug) {
            let Some(server) = self.servers.get(id) else {
                return;
            };
            let client = server.link().and_then(|client| self.clients.get(client));
            let Some(wanted) = client.and_then(|client| client.params.as_ref()) else {
                return;
            };
            let missing = wanted.missing_on(&server.params);
            let sql = crate::params::set_statement(&self.shared.tracked, missing);
            let text = format!("varcache_apply: {}", String::from_utf8_lossy(&sql));
            self.note_server(Level::Debug, id, &text, out);
        }
    }

    /// Closes the statements a server has too many of, those unused for longest first; the answers
    /// come with those to the client's own messages.
    fn evict_statements(&mut self, id: ServerId, max: usize, out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        while server.set.len() > max {
            let Some(key) = server.set.oldest() else {
                return;
            };
            server.set.remove(key);
            let name = crate::statement::server_name(key);
            out.send_with(Peer::Server(id), |buf| {
                write::of_statement(buf, frontend::CLOSE, &name);
            });
            server.ledger.push(Entry::swallow(Reply::Close), true);
        }
    }

    /// A server's parameters are set: they are the client's, in PostgreSQL's spelling, and the
    /// client's messages go.
    pub(crate) fn prepared(&mut self, id: ServerId, out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        let server::State::Preparing(client_id) = server.state else {
            return;
        };
        server.state = server::State::Linked(client_id);
        let params = server.params.clone();
        if let Some(client) = self.clients.get_mut(client_id) {
            client.state = client::State::Linked(id);
            if let Some(wanted) = &client.params {
                let canonical = wanted.overlaid(&params);
                client.params = Some(self.shared.params.intern(canonical));
            }
        }
        self.resume(client_id, out);
        // All it had sent may have been cancelled meanwhile.
        self.settle_client(client_id, out);
    }
}
