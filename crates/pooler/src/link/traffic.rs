//! Handles bytes that arrive from a client (`resume.rs` has the messages of one that is logged in)
//! or from a server, and then resumes work that waited for them.

use super::downstream::{self, Downstream};
use super::resume::{After, count_ended};
use super::side::Side;
use crate::client::{Client, ClientState};
use crate::event::{Action, ClientId, Close, Out, ServerId, WorkerId};
use crate::fault::Fault;
use crate::inbox::Chunk;
use crate::limits;
use crate::login::LoginId;
use crate::mail::Mail;
use crate::pooler::Pooler;
use crate::queries::tally::Ended;
use crate::server::ServerState;

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
                    if let Some(fault) = client.ends_when_it_asks()
                        && !self.is_being_told(id)
                    {
                        return self.disconnect(id, fault, out);
                    }
                    let client = self.clients.at_mut(id);
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

    pub(crate) fn server_sent(&mut self, id: ServerId, bytes: &[u8], out: &mut Out) {
        let server = gone!(self.servers.get_mut(id));
        server.times.mark_heard(self.now);
        match *server.state() {
            ServerState::Securing(_) => return self.securing_bytes(id, bytes, out),
            ServerState::Login(_)
            | ServerState::Lookup(_)
            | ServerState::Examining(_)
            | ServerState::Maturing(_)
            | ServerState::Naming(_)
            | ServerState::Cataloguing(_) => {
                return self.own_bytes(id, bytes, out);
            }
            ServerState::Listening { .. } => return self.listener_bytes(id, bytes, out),
            ServerState::Cancel(_) => return self.carrier_bytes(id, bytes, out),
            ServerState::Closing => return,
            ServerState::Resolving | ServerState::Connecting => return,
            _ => {}
        }
        if server.link.is_guarded() {
            return self.guarded_bytes(id, bytes, out);
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

    /// A standby has sent a part of the answer to a guarded read. The answer is held back until
    /// something decides.
    #[cold]
    fn guarded_bytes(&mut self, id: ServerId, bytes: &[u8], out: &mut Out) {
        if let Some(bytes) = self.guard_hears(id, bytes) {
            self.server_sent(id, bytes, out);
        }
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
                if entry.is_leaving() && entry.ends_when_it_asks().is_none() {
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
