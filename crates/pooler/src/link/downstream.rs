//! From a server to its client: the ledger says which messages Howdah relays and which it drops.

use howdah_wire::backend::{Status, command_tag, parameter_status};
use howdah_wire::frame::{HEADER, Header, cstr, header, run_of};
use howdah_wire::tag::backend as tag;
use howdah_wire::{WireError, tag as tags, write};

use super::prepare::{answered, forget_all, make};
use super::side::Side;
use crate::cancel::Keys;
use crate::errors::ErrorCounts;
use crate::event::{Out, Peer, ServerId};
use crate::fault::Fault;
use crate::inbox::{Chunk, Fate};
use crate::ledger::{Change, Entry, Part, Reply};
use crate::params::Params;
use crate::peering::{Peering, login_pid};
use crate::server::{Ending, Server};
use crate::statement::SchemaId;
use crate::{Seeded, Shared, limits, standby};

/// Why `Downstream::run` stopped.
#[derive(Debug)]
pub enum Halt {
    /// All bytes are handled.
    Done,
    /// Only the beginning of a message is there; more bytes must come.
    Partial,
    /// The server broke the protocol, or sent an answer without a request.
    Broken(Fault),
    /// PostgreSQL refused settings that Howdah sent along with the client's first messages. Carries
    /// SQLSTATE and text.
    Refused(String, String),
    /// A cancel request hit these settings, and the client got the error.
    Missed {
        /// The client has sent a whole request and waits for ReadyForQuery.
        request: bool,
    },
}

/// Counters for the statistics of one call of `Downstream::run`.
#[derive(Debug, Default)]
pub struct AnswerCounts {
    /// ReadyForQuery messages that clients saw.
    pub queries: u32,
    /// Those of them that came outside a transaction block.
    pub transactions: u32,
}

/// The parts of a `Pooler` that a server's messages need.
pub struct Downstream<'a> {
    /// The id of the server.
    pub id: ServerId,
    /// The server.
    pub server: &'a mut Server,
    /// Who gets the answers: the server's client, if there is a link.
    pub side: Side<'a>,
    /// The client keeps the server between transactions.
    pub kept: bool,
    /// Howdah knows which channels the pool's clients listen to.
    pub knows_listeners: bool,
    /// The schema of the server's database.
    pub schema: SchemaId,
    /// State that all connections of the worker share.
    pub shared: &'a mut Shared,
    /// The cancel keys that clients got at login.
    pub keys: &'a Keys,
    /// The cancel keys that clients of peers got at login.
    pub peering: &'a Peering,
    /// Hashes the meaning of settings.
    pub meaning: Seeded,
    /// The list of actions.
    pub out: &'a mut Out,
    /// The counters.
    pub counts: AnswerCounts,
    /// Rare news from the server, other than answers.
    pub aside: Option<Box<Aside>>,
}

/// Rare news from a server, other than answers.
#[derive(Debug, Default)]
pub struct Aside {
    /// The error (SQLSTATE and text) of a request of Howdah's own, which no client has seen.
    pub task_error: Option<(String, String)>,
    /// The server's value of `in_hot_standby`, if reported.
    pub standby: Option<bool>,
    /// A notification came, and no client listens on this server.
    pub stray: bool,
    /// The errors that the client got.
    pub errors: ErrorCounts,
}

impl Downstream<'_> {
    /// The rare news so far. The caller adds to them.
    pub(super) fn aside(&mut self) -> &mut Aside {
        self.aside.get_or_insert_default()
    }

    /// Handles as many messages of a chunk as possible.
    pub fn run(&mut self, chunk: &mut Chunk<'_>) -> Halt {
        loop {
            if !self.server.inbox.at_boundary() {
                self.stream(chunk);
                if !self.server.inbox.at_boundary() {
                    return Halt::Done;
                }
                self.end(self.server.inbox.tag());
            }
            if chunk.rest().is_empty() {
                return Halt::Done;
            }
            if let Err(flow) = self.message(chunk) {
                return flow;
            }
        }
    }

    fn stream(&mut self, chunk: &mut Chunk<'_>) {
        let (count, fate) = self.server.inbox.advance(chunk.rest().len());
        self.pass(chunk, count, fate);
    }

    #[inline(always)] // Every message passes here. A call would cost as much as the work.
    fn pass(&mut self, chunk: &mut Chunk<'_>, count: usize, fate: Fate) {
        match fate {
            Fate::Relay => self.side.pass(chunk, count, self.out),
            Fate::Drop => chunk.at += count,
        }
    }

    /// Relays the part of a message that is there. The rest follows.
    #[inline(always)]
    pub(super) fn pass_front(&mut self, chunk: &mut Chunk<'_>, header: Header, fate: Fate) {
        // A message that began without a client is dropped, even if a client is linked before its
        // end.
        let fate = if self.side.is_client() {
            fate
        } else {
            Fate::Drop
        };
        let count = chunk.rest().len().min(header.total());
        self.pass(chunk, count, fate);
        let left = header.total() - count;
        self.server.inbox.begin(header.tag, fate, left);
    }

    fn message(&mut self, chunk: &mut Chunk<'_>) -> Result<(), Halt> {
        let Some(read) = header(chunk.rest()) else {
            return Err(Halt::Partial);
        };
        let first = chunk.rest()[0];
        let header = read.map_err(|error| {
            if may_follow_login(first) {
                broken(error)
            } else {
                broken(WireError::Tag(first))
            }
        })?;
        match header.tag {
            tag::READY => {
                let status = Status::read(whole(chunk, header)?).map_err(broken)?;
                self.ready(chunk, header, status)
            }
            tag::COMMAND_COMPLETE => {
                let command = command_tag(whole(chunk, header)?).map_err(broken)?;
                self.server.link.hears_answer();
                self.complete(chunk, header, command)
            }
            tag::PARSE_COMPLETE => self.acknowledged(chunk, header, Reply::Parse),
            tag::BIND_COMPLETE => self.acknowledged(chunk, header, Reply::Bind),
            tag::CLOSE_COMPLETE => self.acknowledged(chunk, header, Reply::Close),
            tag::ERROR => {
                let front = HEADER..header.total().min(limits::ERROR_FRONT);
                let body = chunk.rest().get(front).ok_or(Halt::Partial)?;
                self.server.link.hears_answer();
                self.error(chunk, header, body)
            }
            tag::PARAMETER_STATUS => {
                let body = whole(chunk, header)?;
                self.parameter(chunk, header, body)
            }
            tag::PARAMETER_DESCRIPTION | tag::ROW_DESCRIPTION | tag::NO_DATA
                if self.describes() =>
            {
                self.described(chunk, header)
            }
            // A longer row is not read. Its client then keeps the server.
            tag::DATA_ROW
                if self.server.session.inquiry.is_some()
                    && header.total() <= limits::HELD_MESSAGE =>
            {
                let row = whole(chunk, header)?.to_vec();
                self.server.session.set_inquiry_row(row);
                self.passing(chunk, header)
            }
            tag::NOTIFICATION if self.server.session.has_listened() => {
                if !self.is_heard_elsewhere(whole(chunk, header)?) {
                    return self.notification(chunk, header);
                }
                chunk.at += header.total();
                Ok(())
            }
            tag::NOTIFICATION => self.notification(chunk, header),
            tag if may_follow_login(tag) => self.passing(chunk, header),
            tag => Err(broken(WireError::Tag(tag))),
        }
    }

    /// Handles a notification. If the client sent it itself on a server that it keeps, Howdah
    /// replaces the process id by the one that the client got at login.
    fn notification(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Result<(), Halt> {
        const PID: usize = HEADER + size_of::<u32>();
        let nobodys = !self.kept || self.is_nobodys() || header.total() < PID;
        let (false, Side::Client(id, client)) = (nobodys, &self.side) else {
            return self.passing(chunk, header);
        };
        let Some(front) = chunk.rest().get(..PID) else {
            return Err(Halt::Partial);
        };
        let own = self.server.cancels.pid().map(u32::to_be_bytes);
        if own.is_none_or(|own| own != front[HEADER..]) {
            return self.passing(chunk, header);
        }
        let pid = login_pid(self.keys, self.peering, *id, client);
        self.side.tell(self.out, |buf| {
            buf.extend_from_slice(&front[..HEADER]);
            buf.extend_from_slice(&pid.to_be_bytes());
        });
        chunk.at += PID;
        let left = header.total() - PID;
        self.server.inbox.begin(header.tag, Fate::Relay, left);
        if left == 0 {
            self.end(header.tag);
        }
        Ok(())
    }

    /// Relays or drops a message without reading its body.
    pub(super) fn passing(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Result<(), Halt> {
        let is_notice = matches!(header.tag, tag::NOTICE | tag::NOTIFICATION);
        if !is_notice {
            self.server.link.hears_answer();
        }
        let fate = match self.server.link.ledger.front() {
            _ if is_notice => self.fate_of_notice(header.tag),
            Some(entry) if entry.is_hidden() => Fate::Drop,
            Some(_) => Fate::Relay,
            None if self.server.link.copy.eaten() > 0 => Fate::Relay,
            None => return Err(broken(WireError::Tag(header.tag))),
        };
        if matches!(header.tag, tag::DATA_ROW | tag::COPY_DATA)
            && self.server.session.inquiry.is_none()
        {
            // Rows change no state. Howdah relays all complete rows of the chunk at once.
            let rows = run_of(header.tag, chunk.rest());
            if rows > 0 {
                self.pass(chunk, rows, fate);
                return Ok(());
            }
        }
        self.pass_front(chunk, header, fate);
        if self.server.inbox.at_boundary() {
            self.end(header.tag);
        }
        Ok(())
    }

    /// Notices and notifications belong to no request. The client that has the server gets them.
    fn fate_of_notice(&mut self, tag: u8) -> Fate {
        if tag == tag::NOTIFICATION && self.knows_listeners && !self.kept {
            self.aside().stray = true;
            return Fate::Drop;
        }
        let ours = self.server.link.ledger.front().is_some_and(|entry| {
            entry.swallow && matches!(entry.reply, Reply::Parse | Reply::Execute | Reply::Settings)
        });
        if self.is_nobodys() || tag == tag::NOTICE && ours {
            Fate::Drop
        } else {
            Fate::Relay
        }
    }

    /// Handles ParseComplete, BindComplete or CloseComplete, which have no body and answer the
    /// first entry. (A group in which Howdah sets settings gets several of these answers. They pass
    /// like its other answers.)
    fn acknowledged(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        reply: Reply,
    ) -> Result<(), Halt> {
        let front = match self.server.link.ledger.front() {
            Some(front) if front.reply == reply && header.body == 0 => front,
            None => return self.passing(chunk, header),
            Some(front) if front.reply == Reply::Settings => return self.passing(chunk, header),
            Some(_) => return Err(broken(WireError::Tag(header.tag))),
        };
        let part = front.part();
        let fate = if front.is_hidden() {
            Fate::Drop
        } else {
            Fate::Relay
        };
        self.server.link.hears_answer();
        self.pass(chunk, header.total(), fate);
        self.answered_whole(part);
        Ok(())
    }

    /// The last byte of a message has passed. The message may have answered the first entry.
    fn end(&mut self, tag: u8) {
        let Some(front) = self.server.link.ledger.front() else {
            return;
        };
        let answers = match tag {
            // Replies made by Howdah may have waited for the end of this message.
            tag::NOTICE | tag::NOTIFICATION => return self.make(),
            _ if front.reply == Reply::Settings => return,
            tag::ROW_DESCRIPTION | tag::NO_DATA => Reply::Describe,
            tag::EMPTY_QUERY => Reply::Execute,
            tag::PORTAL_SUSPENDED => Reply::Execute,
            tag::COPY_IN => return self.copy_begins(),
            tag::COPY_BOTH => return self.server.link.copy.begin_both(),
            _ => return,
        };
        if front.reply == answers {
            let part = front.part();
            if tag == tag::PORTAL_SUSPENDED {
                self.server.link.ledger.fill_rows();
            }
            self.answered_whole(part);
        }
    }

    /// A message that passes unchanged has answered the first entry.
    #[inline]
    fn answered_whole(&mut self, part: Part) {
        if part == Part::Rest {
            self.tell_parameters();
        }
        self.answered();
    }

    fn copy_begins(&mut self) {
        let simple = self
            .server
            .link
            .ledger
            .front()
            .is_some_and(|entry| entry.reply == Reply::Query);
        let begun = self.server.link.ledger.begin_copy_in();
        let ended = begun.ended || begun.breaks;
        // PostgreSQL skips a message that breaks a COPY started by Execute, unless a Sync precedes
        // the message. If the COPY had failed before that Sync, PostgreSQL answers the Sync and all
        // later messages.
        let broken = begun.breaks && (simple || begun.eaten > 0);
        let copy = self.server.link.copy_mut();
        copy.begin(begun.eaten as u32, ended, broken);
        let stays = self
            .side
            .client()
            .is_some_and(|client| !client.is_leaving());
        if !ended && !stays {
            // The client that should send the rows has left.
            copy.end();
            self.out.send_with(Peer::Server(self.id), write::copy_fail);
            if copy.eaten() > 0 {
                self.server.close_at_release(Ending::CopyFailed);
            }
        }
    }

    #[inline]
    fn answered(&mut self) {
        answered(self.side.client_mut(), self.server);
        self.make();
    }

    #[inline]
    fn make(&mut self) {
        make(&mut self.side, self.server, self.out);
    }

    /// True if Howdah holds back the idle ReadyForQuery of a listening client, so that earlier
    /// notifications come first. False in the middle of a message (of a failed COPY) or of a group
    /// (a Query without a Sync before it): Howdah can't ask the server there, and the server needs
    /// the client's next bytes.
    fn keeps_back(&mut self) -> bool {
        let group_open = self.server.link.ledger.group_open();
        let client = self.side.client_mut().filter(|_| !group_open);
        client.is_some_and(|client| !client.inbox.relaying() && client.keeps_ready_back())
    }

    /// True for a notification that the client gets from the listening connection, or that no
    /// client wants.
    fn is_heard_elsewhere(&self, body: &[u8]) -> bool {
        if !self.kept {
            return self.server.session.has_listened();
        }
        let client = self.side.client();
        let session = client.and_then(|client| client.session.as_ref());
        let own = session.and_then(|session| session.channels.as_ref());
        let channel = body.get(4..).and_then(cstr);
        own.zip(channel)
            .is_some_and(|(own, (name, _))| own.has(name))
    }

    pub(super) fn swallowing(&self) -> bool {
        self.server
            .link
            .ledger
            .front()
            .is_some_and(|entry| entry.swallow)
    }

    fn ready(&mut self, chunk: &mut Chunk<'_>, header: Header, status: Status) -> Result<(), Halt> {
        let front = self.server.link.ledger.front();
        let inside = front.is_some_and(|entry| entry.inside);
        let hidden = front.is_some_and(Entry::hides_ready);
        let part = front.map(Entry::part);
        let reply = front.map(|entry| entry.reply);
        let answered = self.server.link.was_answered();
        let stray = self.is_ready_stray(reply, answered);
        if stray && self.server.ending() != Some(Ending::CopyFailed) {
            return Err(broken(WireError::Tag(tag::READY)));
        }
        if matches!(part, Some(Part::Rest | Part::Both { .. })) {
            self.tell_parameters();
        }
        if inside && self.server.status == Status::Idle && status != Status::Idle {
            // PostgreSQL 17 and newer keep the group's transaction open. After a Sync ends it, the
            // next statement fails. This must not be another client's statement.
            let server = &mut self.server;
            server.ensure_close_at_release(Ending::QueryInGroup);
        }
        self.server.mark_ready(status);
        self.changes_are_told(status);
        self.server.link.copies_nothing();
        let kept_back = !hidden && status == Status::Idle && self.keeps_back();
        self.pass(
            chunk,
            header.total(),
            if hidden || kept_back {
                Fate::Drop
            } else {
                Fate::Relay
            },
        );
        if stray {
            // A COPY seemed to ignore this Sync, but PostgreSQL has answered it. The Sync's group
            // is over.
            self.server.link.ledger.close_group();
            if let Some(client) = self.side.client_mut() {
                client.end.group_ends();
            }
            return Ok(());
        }
        if !hidden {
            self.counts.queries += 1;
            self.counts.transactions += u32::from(status == Status::Idle);
        }
        self.answered();
        if status == Status::Idle && !self.server.link.portals.is_empty() {
            self.server.link.drop_portals();
        }
        Ok(())
    }

    /// True if a ReadyForQuery does not answer the front entry, which gets `reply`. Only after a
    /// failed COPY may there be one: it answers a Sync that the COPY seemed to ignore. `answered`: a
    /// part of an answer came before.
    fn is_ready_stray(&self, reply: Option<Reply>, answered: bool) -> bool {
        match reply {
            // PostgreSQL answers a Query with more than a ReadyForQuery.
            Some(Reply::Query) => !answered && self.server.ending() == Some(Ending::CopyFailed),
            reply => reply != Some(Reply::Sync),
        }
    }

    fn complete(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        command: &[u8],
    ) -> Result<(), Halt> {
        let Some(front) = self.server.link.ledger.front() else {
            return Err(broken(WireError::Tag(header.tag)));
        };
        let (swallow, part, reply) = (front.swallow, front.part(), front.reply);
        let hidden = front.is_hidden();
        let watched = front.effects().watched.is_some();
        self.may_alter(command);
        if watched {
            self.server.link.ledger.add_rows(rows(command));
        }
        match command {
            b"DISCARD ALL" if swallow => {
                self.server.session.set_settings(None);
                self.server.statements.clear_sure();
            }
            b"DEALLOCATE ALL" | b"DISCARD ALL" => match self.side.client_mut() {
                Some(client) => {
                    if let (b"DISCARD ALL", Some(session)) = (command, client.session_if_any()) {
                        session.pending.discarded = true;
                    }
                    forget_all(client, self.server)
                }
                None => self.server.statements.clear_sure(),
            },
            b"PREPARE" | b"DEALLOCATE" => self.follow_sql_name(),
            b"ROLLBACK" => self.note_rollback(),
            _ => {}
        }
        self.pass(
            chunk,
            header.total(),
            if hidden { Fate::Drop } else { Fate::Relay },
        );
        if part != Part::Whole {
            self.server.link.ledger.set_part(part.next());
        }
        if reply == Reply::Execute || reply == Reply::Settings && command == b"COMMIT" {
            self.answered();
        }
        Ok(())
    }

    /// SQL's PREPARE or DEALLOCATE has succeeded. If Howdah does not follow it, nobody knows which
    /// statements the server has.
    #[cold]
    fn follow_sql_name(&mut self) {
        let op = self.server.link.ledger.take_sql_name();
        let front = self.server.link.ledger.front();
        let named = front.and_then(|entry| entry.effects().name.as_ref());
        if op.is_none() && named.is_some_and(|named| !named.name.is_empty()) {
            // The message itself changes the client's name.
            return;
        }
        let op = op.filter(|op| !matches!(op.change, Change::Nothing));
        match (op, self.side.client_mut()) {
            (Some(op), Some(client)) => client.confirm_name(op),
            (Some(_), None) => {}
            (None, _) => self.server.statements.set_sql_prepared(true),
        }
    }

    /// A parameter has a new value on the server. If the client caused the change, the client's own
    /// value changes, too.
    fn parameter(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        body: &[u8],
    ) -> Result<(), Halt> {
        let (name, value) = parameter_status(body).map_err(broken)?;
        let front = self.server.link.ledger.front();
        let whole = front.is_none_or(|entry| entry.part() == Part::Whole);
        // A value that comes after the client's last answer belongs to the server, not to the
        // client.
        let mut seen = !front.is_some_and(|entry| entry.swallow) && !self.is_nobodys();
        if let Some(position) = self.shared.tracked.position(name) {
            let params = self.server.session.params.with(position, value);
            self.server
                .session
                .set_params(self.shared.params.intern(params));
            // The client gets these values at the end of the reset.
            seen &= whole;
            if let (true, Some(client)) = (seen, self.side.client_mut())
                && let Some(params) = &client.params
            {
                let params = params.with(position, value);
                let has_meaning = Params::has_meaning(position);
                if has_meaning {
                    client.set_meaning(params.meaning(
                        &self.shared.tracked,
                        self.meaning,
                        client.path().as_deref(),
                    ));
                }
                client.set_params(self.shared.params.intern(params));
                if has_meaning {
                    self.server.session.changes.mark_settings();
                }
            }
        }
        if name == standby::NAME {
            // No client sets this value. The client that has the server sees it even while Howdah
            // hides other values.
            seen |= self.side.is_client();
            let standby = Some(standby::read(value));
            self.aside().standby = standby;
            self.server.tells_standby(standby);
            if let (true, Some(client)) = (seen, self.side.client_mut()) {
                client.set_told_standby(standby);
            }
        }
        self.pass(
            chunk,
            header.total(),
            if seen { Fate::Relay } else { Fate::Drop },
        );
        Ok(())
    }

    /// After a reset, sends the client the parameter values that it does not know.
    fn tell_parameters(&mut self) {
        let Some(known) = self.side.client().and_then(|client| client.params.clone()) else {
            return;
        };
        let server = self.server.session.params.clone();
        for (position, value) in server.missing_on(&known) {
            let name = self.shared.tracked.names()[position].as_bytes();
            self.side
                .tell(self.out, |buf| write::parameter_status(buf, name, value));
        }
        let Some(client) = self.side.client_mut() else {
            return;
        };
        let params = known.overlaid(&server);
        client.set_meaning(params.meaning(
            &self.shared.tracked,
            self.meaning,
            client.path().as_deref(),
        ));
        client.set_params(self.shared.params.intern(params));
    }

    /// A transaction, or a part of one, is rolled back.
    fn note_rollback(&mut self) {
        let session = self.side.client_mut().and_then(|c| c.session.as_mut());
        if let Some(session) = session {
            session.pending.fails();
        }
    }

    /// True if the client has got all answers and is about to give the server back. Later messages
    /// in the same chunk are not for this client.
    pub(super) fn is_nobodys(&self) -> bool {
        self.server.link.ledger.is_empty()
            && !self.kept
            && self.server.link.copy.eaten() == 0
            && self.server.status == Status::Idle
            && !self.server.link.ledger.group_open()
    }
}

/// True if PostgreSQL may send a message with this tag after login.
fn may_follow_login(tag: u8) -> bool {
    tags::is_backend(tag)
        && !matches!(
            tag,
            tag::AUTHENTICATION | tag::BACKEND_KEY_DATA | tag::NEGOTIATE
        )
}

/// The body of a message that Howdah reads.
fn whole<'a>(chunk: &Chunk<'a>, header: Header) -> Result<&'a [u8], Halt> {
    match chunk.rest().get(HEADER..header.total()) {
        Some(body) => Ok(body),
        None if header.total() > limits::HELD_MESSAGE => Err(broken(WireError::Length {
            tag: header.tag,
            length: header.body + 4,
        })),
        None => Err(Halt::Partial),
    }
}

/// The number at the end of a command's tag: `INSERT 0 5`.
fn rows(command: &[u8]) -> u64 {
    let digits = command.iter().rev().take_while(|b| b.is_ascii_digit());
    let digits = digits.count();
    let number = &command[command.len() - digits..];
    number.iter().fold(0u64, |rows, digit| {
        rows.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    })
}

fn broken(error: WireError) -> Halt {
    Halt::Broken(Fault::ServerBytes(error))
}
