//! Handles bytes that arrive from a client or a server, and then resumes work that waited for them.

use howdah_wire::backend::Status;
use howdah_wire::frame::header;

use super::ahead::Ahead;
use super::assign::evict_statements;
use super::downstream::{self, Downstream};
use super::side::Side;
use super::upstream::{self, Flow, Upstream};
use crate::client::{Client, ClientState};
use crate::effect::Depth;
use crate::event::{Action, ClientId, Close, Out, ServerId, Time, WorkerId};
use crate::fault::Fault;
use crate::inbox::Chunk;
use crate::limits;
use crate::listen::Hush;
use crate::login::{Login, LoginId};
use crate::mail::Mail;
use crate::opening::QueryRead;
use crate::pooler::Pooler;
use crate::queries::tally::Ended;
use crate::queries::watched::Watching;
use crate::server::{Server, ServerState};
use crate::session::Tracking;

/// The result of handling a chunk.
enum After {
    /// All bytes are handled.
    Consumed,
    /// Howdah must hold the rest.
    Keep,
    /// The client has left or is about to leave.
    Gone,
}

impl Pooler {
    pub(crate) fn client_sent(&mut self, id: ClientId, bytes: &[u8], out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        match *client.state() {
            ClientState::Linked(_) | ClientState::Idle => {
                if let Some(login) = client.login {
                    self.logins.at_mut(login).count_received(bytes.len());
                }
                let waits = client.end.is_stalled() || client.parked || client.is_hushed();
                if !client.inbox.held().is_empty() || client.is_leaving() || waits {
                    client.inbox.hold(bytes);
                    if !waits && !client.is_leaving() {
                        self.resume(id, out);
                    }
                    self.mind_held(id, out);
                    return;
                }
                let mut chunk = Chunk::fresh(bytes);
                if let After::Keep = self.upstream(id, &mut chunk, out) {
                    self.hold(id, chunk.rest(), out);
                }
                self.settle_client(id, out);
            }
            // Howdah always reads from a client that is not logged in, to notice when it
            // disconnects.
            ClientState::Admission | ClientState::Lookup(_)
                if client.inbox.held().len() + bytes.len() > limits::PROOF =>
            {
                self.disconnect(id, Fault::TooEarly, out);
            }
            ClientState::Welcome(_)
                if client.inbox.held().len() + bytes.len() > limits::PASSWORD_PACKET =>
            {
                self.disconnect(id, Fault::TooEarly, out);
            }
            ClientState::Waiting(_)
            | ClientState::Aligning(_)
            | ClientState::Admission
            | ClientState::Welcome(_)
            | ClientState::Lookup(_) => {
                self.hold(id, bytes, out);
            }
            ClientState::Startup => self.startup_bytes(id, bytes, out),
            ClientState::Login(_) => self.login_bytes(id, bytes, out),
            ClientState::Console(_) => self.console_bytes(id, bytes, out),
            ClientState::Moving(_) | ClientState::Packed(_) => client.inbox.hold(bytes),
            ClientState::Leaving { waits, .. } => {
                if client.inbox.held().is_empty() && !waits {
                    client.times.begin_request(self.now);
                }
                client.inbox.hold(bytes);
            }
            // Bytes that come before the TLS session exists belong to the daemon.
            ClientState::Handshake
            | ClientState::Canceller
            | ClientState::Successor
            | ClientState::Closing => {}
        }
    }

    /// Handles the bytes that Howdah has held for a client.
    pub(crate) fn resume(&mut self, id: ClientId, out: &mut Out) {
        let client = self.clients.at_mut(id);
        let waits = client.parked || client.is_hushed() || client.login.is_none();
        if waits || matches!(client.state(), ClientState::Aligning(_)) {
            return;
        }
        client.end.goes_on();
        if client.inbox.held().is_empty() {
            // Howdah may have dropped the held bytes.
            return self.unpause_client(id, out);
        }
        let feed = client.inbox.feed(b"");
        let mut chunk = feed.chunk();
        let after = self.upstream(id, &mut chunk, out);
        let done = chunk.at;
        match (after, self.clients.get_mut(id)) {
            (After::Keep, Some(client)) => client.inbox.keep(feed, done),
            _ => self.unblock(feed.into_memory()),
        }
        self.unpause_client(id, out);
        self.settle_client(id, out);
    }

    /// Handles a chunk of a client that is logged in.
    fn upstream(&mut self, id: ClientId, chunk: &mut Chunk<'_>, out: &mut Out) -> After {
        // Everybody reads or fills this value in place.
        let mut read = QueryRead::default();
        if !chunk.fresh {
            self.clients.at_mut(id).inbox.take_gist(&mut read.gist);
        }
        if self.clients.at(id).linked_server().is_none() {
            if let Err(flow) = self.ahead(id, chunk, &mut read, out) {
                return self.stopped(id, flow, chunk, &mut read, out);
            }
            if !self.checkout(id, read.opening(chunk), out) {
                self.keep_gist(id, &mut read);
                return After::Keep;
            }
        }
        match self.run_upstream(id, chunk, &mut read, out) {
            Flow::Done => After::Consumed,
            flow => self.stopped(id, flow, chunk, &mut read, out),
        }
    }

    /// The client's first message waits. What was read of the message stays with it.
    fn keep_gist(&mut self, id: ClientId, read: &mut QueryRead) {
        if read.gist.depth != Depth::NOTHING
            && let Some(client) = self.clients.get_mut(id)
        {
            client.inbox.keep_gist(&mut read.gist);
        }
    }

    /// A client's messages are handled up to a point where something else must happen.
    fn stopped(
        &mut self,
        id: ClientId,
        flow: Flow,
        chunk: &Chunk<'_>,
        read: &mut QueryRead,
        out: &mut Out,
    ) -> After {
        match flow {
            Flow::Done => return After::Consumed,
            Flow::Partial | Flow::Stalled => {}
            Flow::NeedRoom(size) => self.await_room(id, size, out),
            Flow::NeedPermission { waits } => self.need_permission(id, waits, out),
            Flow::NeedChannels(names) => self.wish_for_channels(id, names, chunk.rest(), out),
            Flow::NeedSignal { pid, ends } => self.ask_for_signal(id, pid, ends, out),
            Flow::NeedPass => self.await_pass(id, Hush::Passes, out),
            Flow::Terminate => {
                self.client_parts(id, Fault::ClientClosed, out);
                return After::Gone;
            }
            Flow::Broken(fault) => {
                self.client_parts(id, fault, out);
                return After::Gone;
            }
        }
        self.keep_gist(id, read);
        After::Keep
    }

    /// Handles the messages of a client without a server, up to the first that needs one.
    #[inline(always)] // Called once.
    fn ahead(
        &mut self,
        id: ClientId,
        chunk: &mut Chunk<'_>,
        read: &mut QueryRead,
        out: &mut Out,
    ) -> Result<(), Flow> {
        let client = self.clients.at_mut(id);
        let login = self
            .logins
            .at(client.login.expect("the client is logged in"));
        let globals = &self.config.globals;
        let mut ahead = Ahead {
            id,
            client,
            renames: login.renames(globals.max_prepared_statements),
            globals,
            terms: &login.terms,
            share: &login.share,
            out,
        };
        ahead.run(chunk, read)
    }

    /// Handles the messages of a client with a server.
    fn run_upstream(
        &mut self,
        id: ClientId,
        chunk: &mut Chunk<'_>,
        read: &mut QueryRead,
        out: &mut Out,
    ) -> Flow {
        let now = self.now;
        let client = self.clients.at_mut(id);
        let server_id = client.linked_server().expect("the client has a server");
        let globals = &self.config.globals;
        let server = self.servers.at_mut(server_id);
        if server.link.ledger.is_empty() {
            server.begin_request(now);
        } else if server.link.is_reading() {
            client.times.set_quiet(now);
        }
        // Other servers close surplus statements when they get a client. A kept server gets no new
        // client, so Howdah closes the surplus here.
        let most = globals.max_prepared_statements as usize;
        let rests = server.status == Status::Idle && client.inbox.at_boundary();
        if server.statements.has_grown()
            && rests
            && server.link.is_quiet()
            && !server.link.group_open()
            && header(chunk.rest()).is_some()
            && server.statements.outgrows(most)
        {
            evict_statements(server_id, server, most, out);
        }
        let login = self
            .logins
            .at_mut(client.login.expect("the client is logged in"));
        let wanted = login.terms.wanted;
        let watch = (wanted.any && !client.is_replicating()).then_some(Watching {
            now,
            wanted,
            texts: &mut self.queries.texts,
            random: &mut self.random,
        });
        let mut upstream = Upstream {
            id,
            client,
            server_id,
            server,
            renames: login.renames(globals.max_prepared_statements),
            globals,
            terms: &login.terms,
            tracked: &self.shared.tracked,
            watch,
            schema: login.schema,
            interner: &mut self.shared.statements,
            share: &login.share,
            out,
            counts: upstream::SentCounts::default(),
        };
        let flow = upstream.run(chunk, read);
        let counts = upstream.counts;
        login.count_parses(counts.client_parses, counts.server_parses, counts.binds);
        if counts.syncs > 0 {
            let answers = downstream::AnswerCounts {
                queries: counts.syncs,
                transactions: counts.syncs,
            };
            count_ended(login, self.servers.at_mut(server_id), &answers, now);
        }
        if counts.sequences {
            login.notes_question_for_numbers(now);
            if login.terms.tracking == Tracking::Keeps {
                self.ask_permission(id, crate::mail::PinWish::Knows, out);
            }
        }
        flow
    }

    pub(crate) fn server_sent(&mut self, id: ServerId, bytes: &[u8], out: &mut Out) {
        let server = gone!(self.servers.get_mut(id));
        match *server.state() {
            ServerState::Securing(_) => return self.securing_bytes(id, bytes, out),
            ServerState::Login(_) => return self.server_login_bytes(id, bytes, out),
            ServerState::Lookup(_) => return self.lookup_bytes(id, bytes, out),
            ServerState::Listening { .. } => return self.listener_bytes(id, bytes, out),
            ServerState::Cancel(_) => return self.carrier_bytes(id, bytes, out),
            ServerState::Closing => return,
            ServerState::Resolving | ServerState::Connecting => return,
            _ => {}
        }
        let feed = server.inbox.feed(bytes);
        let mut chunk = feed.chunk();
        self.downstream(id, &mut chunk, bytes.len(), out);
        let (done, all) = (chunk.at, chunk.bytes.len());
        if done < all
            && let Some(server) = self.servers.get_mut(id)
        {
            server.inbox.keep(feed, done);
        }
        self.after_server(id, out);
    }

    /// Handles the bytes in `chunk` from a server. `new` of them were not counted before.
    #[inline(never)] // Saves registers only for this work, not for the work after it.
    fn downstream(&mut self, id: ServerId, chunk: &mut Chunk<'_>, new: usize, out: &mut Out) {
        // The server is on its way to a successor. Its messages are still for its client.
        let session = self.session_of(id).map(|(client, _)| client);
        let server = self.servers.at_mut(id);
        let linked = match *server.state() {
            ServerState::Linked(client) => Some(client),
            ServerState::Aligning(client) if server.session.inquiry.is_some() => Some(client),
            // The client kept this server. A notification for the client may come while Howdah sets
            // the client's settings on the server again.
            ServerState::Aligning(client)
                if self.clients.get(client).is_some_and(|c| c.is_pinned()) =>
            {
                Some(client)
            }
            ServerState::Packed => session,
            _ => None,
        };
        let client = linked.and_then(|id| Some((id, self.clients.get_mut(id)?)));
        let side = client.map_or(Side::Nobody, |(id, client)| Side::Client(id, client));
        let login_id = server.login;
        let login = self.logins.at_mut(login_id);
        login.count_sent(new);
        let replicates = side.client().is_some_and(|c| c.is_replicating());
        let hears = side.client().is_some_and(Client::hears);
        let kept = login.is_session() || replicates || hears;
        let mut downstream = Downstream {
            id,
            server,
            side,
            kept,
            knows_listeners: matches!(
                login.terms.tracking,
                crate::session::Tracking::Keeps | crate::session::Tracking::KeepsSettings
            ),
            schema: login.schema,
            shared: &mut self.shared,
            keys: &self.keys,
            peering: &self.peering,
            meaning: self.keys.meaning(),
            out,
            counts: downstream::AnswerCounts::default(),
            aside: None,
        };
        let flow = downstream.run(chunk);
        let (counts, aside) = (downstream.counts, downstream.aside);
        if counts.queries > 0 {
            count_ended(login, downstream.server, &counts, self.now);
        }
        if downstream.server.link.ledger.has_ended() {
            self.queries_ended(id, linked, out);
        }
        if self.shared.statements.has_news() {
            self.tell_schema(out);
        }
        if let Some(aside) = aside {
            self.take_aside(id, login_id, *aside, out);
        }
        match flow {
            downstream::Halt::Done | downstream::Halt::Partial => return,
            downstream::Halt::Broken(fault) => self.server_broken(id, fault, out),
            downstream::Halt::Refused(sqlstate, error) => {
                self.settings_refused(id, sqlstate, error, out);
            }
            downstream::Halt::Missed { request } => self.settings_cancelled(id, request, out),
        }
        chunk.at = chunk.bytes.len();
    }

    /// A server has sent something other than answers.
    fn take_aside(
        &mut self,
        id: ServerId,
        login: LoginId,
        aside: downstream::Aside,
        out: &mut Out,
    ) {
        if aside.stray {
            self.stray_notification(id, out);
        }
        if let Some(standby) = aside.standby {
            self.standby_reported(id, standby, out);
        }
        self.logins.at_mut(login).count_errors(&aside.errors);
        if let Some((sqlstate, error)) = aside.task_error {
            self.task_failed(id, &sqlstate, &error, out);
        }
    }

    /// Watched queries have ended.
    fn queries_ended(&mut self, id: ServerId, client: Option<ClientId>, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let login = self.logins.at_mut(server.login);
        let mut remarkable = Vec::new();
        while let Some((query, run_ns)) = server.link.ledger.next_ended(self.now) {
            let failed = query.sqlstate.is_some();
            let ended = Ended::new(&query, run_ns, failed);
            server.link.query_ended(&query.text);
            if self.queries.counts(login, &query, &ended) {
                remarkable.push((query, ended));
            }
        }
        for (query, ended) in remarkable {
            if let Some(client) = client {
                self.tell_of_query(client, &query, &ended, None, out);
            }
        }
    }

    /// Tells the other workers which schema changes this worker has noticed.
    fn tell_schema(&mut self, out: &mut Out) {
        for (database, changes) in self.shared.statements.untold() {
            for to in (0..self.workers).map(WorkerId) {
                if to != self.worker {
                    let database = database.clone();
                    out.push(Action::Post(to, Mail::SchemaChanged(database, changes)));
                }
            }
        }
    }

    /// A server's bytes are handled. Resumes work that waited for them.
    #[inline(always)] // Called once.
    fn after_server(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at(id);
        match *server.state() {
            ServerState::Linked(client) => {
                let stalled = self
                    .clients
                    .get(client)
                    .is_some_and(|entry| entry.end.is_stalled());
                self.settle(id, out);
                let entry = self.clients.at(client);
                if entry.is_leaving() {
                    self.leave_when_answered(client, out);
                } else if stalled {
                    // The client is still linked, or needs a server again.
                    self.resume(client, out);
                }
            }
            ServerState::Idle | ServerState::BeingCancelled => {
                if let Some(ending) = server.ending() {
                    self.close_server(id, ending.text(), Close::Await, out);
                }
            }
            ServerState::Packed => self.pack_again(id, out),
            _ => self.task_moves(id, out),
        }
    }
}

/// Counts the queries and transactions that have ended on a server.
#[inline]
fn count_ended(
    login: &mut Login,
    server: &mut Server,
    counts: &downstream::AnswerCounts,
    now: Time,
) {
    let since = |then: Time| now.0.saturating_sub(then.0);
    login.count_queries(counts.queries, since(server.times.request));
    if counts.transactions > 0 {
        login.count_transactions(counts.transactions, since(server.times.transaction));
    }
    // In a pipeline the next query begins when this one ends.
    server.begin_request(now);
}
