//! Handles the messages of a client that is logged in, as they come or after they were held.

use howdah_wire::backend::Status;
use howdah_wire::frame::header;

use crate::client::ClientState;
use crate::effect::Depth;
use crate::event::{ClientId, Out, Time};
use crate::fault::Fault;
use crate::inbox::Chunk;
use crate::link::ahead::{Ahead, AheadCounts};
use crate::link::assign::evict_statements;
use crate::link::downstream;
use crate::link::upstream::{self, Flow, Upstream};
use crate::listen::Hush;
use crate::login::Login;
use crate::next::Next;
use crate::opening::QueryRead;
use crate::pooler::Pooler;
use crate::queries::watched::Watching;
use crate::server::Server;
use crate::session::Tracking;
use crate::shard::Placing;
use crate::shard::placed::HandedOn;
use crate::shard::planning::Planning;

/// The result of handling a chunk.
pub(super) enum After {
    /// All bytes are handled.
    Consumed,
    /// Howdah must hold the rest.
    Keep,
    /// The client has left or is about to leave.
    Gone,
}

impl Pooler {
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
        if let Some(fault) = client.ends_when_it_asks() {
            // In the middle of a notice, a timer sees to it.
            if !self.is_being_told(id) {
                self.disconnect(id, fault, out);
            }
            return;
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
    pub(super) fn upstream(&mut self, id: ClientId, chunk: &mut Chunk<'_>, out: &mut Out) -> After {
        // Everybody reads or fills this value in place.
        let mut read = QueryRead::default();
        if !chunk.fresh {
            self.clients.at_mut(id).inbox.take_gist(&mut read.gist);
        }
        let mut placed = None;
        if self.clients.at(id).linked_server().is_none() {
            loop {
                if let Err(flow) = self.ahead(id, chunk, &mut read, out) {
                    return self.stopped(id, flow, chunk, &mut read, out);
                }
                if self.clients.at(id).sharded.is_none() {
                    break;
                }
                match self.place_sharded(id, chunk, out) {
                    Ok(Placing::Goes(decision)) => {
                        placed = decision;
                        break;
                    }
                    Ok(Placing::Done) => read.forget(),
                    Err(flow) => return self.stopped(id, flow, chunk, &mut read, out),
                }
            }
            if !self.checkout(id, &read, chunk, out) {
                self.keep_gist(id, &mut read);
                return After::Keep;
            }
        }
        if self.clients.at(id).begins_late() {
            self.begin_late(id, out);
            self.keep_gist(id, &mut read);
            return After::Keep;
        }
        let from = chunk.at;
        let flow = self.run_upstream(id, chunk, (&mut read, placed), out);
        if let Some(is_begin) = self.clients.at(id).may_be_sent_again() {
            self.guard_read((id, is_begin), &chunk.bytes[from..], chunk.at - from);
        }
        match flow {
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
            Flow::NeedShard => self.leave_guess(id, out),
            Flow::NeedCatalogue { unknown } => {
                if self.has_catalogue(id, unknown) {
                    self.next.note(Next::Resume(id));
                }
            }
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
        let now = self.now;
        let client = self.clients.at_mut(id);
        let login_id = client.login.expect("the client is logged in");
        let mut ahead = Ahead {
            id,
            client,
            globals: &self.config.globals,
            login: self.logins.at(login_id),
            servers: &self.servers,
            interner: &self.shared.statements,
            out,
            counts: AheadCounts::default(),
        };
        let step = ahead.run(chunk, read);
        let counts = ahead.counts;
        if counts.groups > 0 {
            client.times.begin_request(now);
            client.times.set_quiet(now);
            self.logins
                .at_mut(login_id)
                .count_answered(counts.groups, counts.parses);
        }
        step
    }

    /// Handles the messages of a client with a server.
    fn run_upstream(
        &mut self,
        id: ClientId,
        chunk: &mut Chunk<'_>,
        (read, placed): (&mut QueryRead, Option<Box<HandedOn<'_>>>),
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
            // Else the client may still leave: its gate closes the surplus.
            && client.sharded.is_none()
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
        let renames = login.renames(globals.max_prepared_statements);
        let schema = login.schema;
        let (terms, share, keepers, home) = login.for_messages();
        let planning = client.sharded.is_some().then(|| {
            let schema = self.shared.statements.schema(schema);
            let lore = self.shard_lore.get_mut(&client.who.database);
            let planner = lore.and_then(|lore| lore.planner(schema, None));
            let map = &client.sharded.as_ref()?.map;
            let tally = self.shard_tallies.of(&client.who.database, map, now);
            Some(Box::new(Planning::new(planner, tally, home)))
        });
        let planning = planning.flatten();
        let mut upstream = Upstream {
            id,
            client,
            server_id,
            server,
            renames,
            globals,
            terms,
            tracked: &self.shared.tracked,
            watch,
            schema,
            interner: &mut self.shared.statements,
            share,
            keepers,
            planning,
            placed,
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
}

/// Counts the queries and transactions that have ended on a server.
#[inline]
pub(super) fn count_ended(
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
