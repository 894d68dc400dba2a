//! From a client to its server: Howdah relays, holds, answers or rewrites each message. Rare cases
//! are marked `#[cold]`, so that the compiler keeps the way of nearly all messages in one function.

use std::sync::Arc;

use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, Header, header};
use howdah_wire::tag::frontend as tag;
use howdah_wire::{WireError, tag as tags, write};

use crate::account::Allowance;
use crate::client::Client;
use crate::config::Globals;
use crate::event::{ClientId, Out, Peer, ServerId};
use crate::fault::Fault;
use crate::inbox::{Chunk, Fate};
use crate::ledger::{Change, Entry, NameOp, Reply, UnnamedOp};
use crate::limits;
use crate::listen::Name;
use crate::login::terms::Terms;
use crate::opening::QueryRead;
use crate::params::Tracked;
use crate::queries::watched::Watching;
use crate::server::Server;
use crate::shard::placed::HandedOn;
use crate::shard::planning::Planning;
use crate::statement::{self, Interner, Keepers, Named, SchemaId, Statement};

/// Why `Upstream::run` stopped.
#[derive(Debug)]
pub enum Flow {
    /// All bytes are handled.
    Done,
    /// Only the beginning of a message is there; more bytes must come.
    Partial,
    /// Only the beginning of a message is there. So many bytes must be held for it, for which the
    /// account has no room now.
    NeedRoom(usize),
    /// The next message waits until more answers have come.
    Stalled,
    /// With the next message, the client would keep its server. The client needs permission
    /// (`pin_limit`).
    NeedPermission {
        /// The client gives its server back and waits. If false, Howdah answers the client at once.
        waits: bool,
    },
    /// The next message is a LISTEN for these channels. The listening connection must listen to
    /// them first.
    NeedChannels(Vec<Name>),
    /// A signal must go to the client that was told this process id.
    NeedSignal {
        /// The process id.
        pid: u32,
        /// The client is disconnected. If false, its statement is cancelled.
        ends: bool,
    },
    /// The client must first get the notifications of everything committed by now.
    NeedPass,
    /// The transaction has begun on the wrong shard, on a guess.
    NeedShard,
    /// The catalogue of a sharded database must be read first.
    NeedCatalogue {
        /// The statement has a name that the last catalogue does not have.
        unknown: bool,
    },
    /// The client sent a Terminate.
    Terminate,
    /// The client broke the protocol.
    Broken(Fault),
}

/// What becomes of the values from a client's login that a text resets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoginValues {
    /// Howdah restores them right after the text.
    Restored,
    /// They are gone until Howdah sets them again.
    Gone,
}

/// Counters for the statistics of one call of `Upstream::run`.
#[derive(Debug, Default)]
pub struct SentCounts {
    /// Parse messages from clients.
    pub client_parses: u32,
    /// Parse messages to servers.
    pub server_parses: u32,
    /// Bind messages.
    pub binds: u32,
    /// Syncs that Howdah has answered in place of PostgreSQL.
    pub syncs: u32,
    /// A text asks for values of sequences.
    pub sequences: bool,
}

/// The parts of a `Pooler` that a client's messages need.
pub struct Upstream<'a> {
    /// The id of the client.
    pub id: ClientId,
    /// The client.
    pub client: &'a mut Client,
    /// The id of the server.
    pub server_id: ServerId,
    /// The client's server.
    pub server: &'a mut Server,
    /// Howdah renames statements, so that a server can hold the statements of many clients.
    pub renames: bool,
    /// The global settings.
    pub globals: &'a Globals,
    /// The settings of the client's login.
    pub terms: &'a Terms,
    /// The tracked parameters.
    pub tracked: &'a Tracked,
    /// How Howdah watches queries, if it does.
    pub watch: Option<Watching<'a>>,
    /// The schema of the client's database.
    pub schema: SchemaId,
    /// The table of shared statements.
    pub interner: &'a mut Interner,
    /// The login's share of the account.
    pub share: &'a Arc<Allowance>,
    /// Which server of the login has a statement.
    pub keepers: &'a mut Keepers,
    /// What plans need, if the client's database is sharded.
    pub planning: Option<Box<Planning<'a>>>,
    /// Where a message of the chunk belongs, as was found before the client had the server.
    pub(crate) placed: Option<Box<HandedOn<'a>>>,
    /// The list of actions.
    pub out: &'a mut Out,
    /// The counters.
    pub counts: SentCounts,
}

/// `Err` if `run` must stop.
pub(super) type Step = Result<(), Flow>;

impl Upstream<'_> {
    /// Handles as many messages of a chunk as possible. `read` is what was read of the first one.
    #[inline(always)] // Called in one place.
    pub fn run(&mut self, chunk: &mut Chunk<'_>, read: &mut QueryRead) -> Flow {
        loop {
            if !self.client.inbox.at_boundary() {
                self.client.inbox.gives_room_back();
                if self.client.session.is_some() {
                    let count = chunk.rest().len().min(self.client.inbox.left());
                    self.note_piece(&chunk.rest()[..count]);
                }
                self.stream(chunk);
            }
            if chunk.rest().is_empty() {
                return Flow::Done;
            }
            if let Err(flow) = self.message(chunk, read) {
                return flow;
            }
            // What was read was of this message, whatever became of it.
            read.forget();
        }
    }

    /// Relays or drops more of the current message.
    pub(super) fn stream(&mut self, chunk: &mut Chunk<'_>) {
        let (count, fate) = self.client.inbox.advance(chunk.rest().len());
        match fate {
            Fate::Relay => chunk.pass(count, self.to(), self.out),
            Fate::Drop => chunk.at += count,
        }
    }

    fn message(&mut self, chunk: &mut Chunk<'_>, read: &mut QueryRead) -> Step {
        let header = next(chunk, self.globals)?;
        let tag = header.tag;
        // If PostgreSQL refuses the client's settings, it skips the following messages, but only up
        // to a Sync. So a message after a Sync must wait.
        if self.server.link.ledger.has_settings() && self.server.link.owes_ready() {
            return Err(self.stall());
        }
        if tag == tag::QUERY && self.globals.disable_pqexec {
            return Err(Flow::Broken(Fault::QueriesRefused));
        }
        if self.in_copy() {
            return self.during_copy(chunk, header);
        }
        if self.client.end.skips() && tag != tag::SYNC {
            return self.skipped(chunk, header);
        }
        if self.server.link.ledger.len() >= limits::OWED {
            return Err(self.stall());
        }
        // Howdah holds back the ReadyForQuery of a listening client. No other answer may follow it.
        // Nor may anything follow a read to its standby.
        let reads = self.client.reads_at_standby();
        let waits = self.client.listens() || reads;
        let waits = waits && (needs_server(tag) || begins_or_ends(tag));
        if waits && (self.server.link.ledger.owes_ready() || reads && self.is_over()) {
            return Err(self.stall());
        }
        if self.client.sharded.is_some() && self.gate(chunk, header)? {
            return Ok(());
        }
        match tag {
            tag::QUERY => self.query(chunk, header, read),
            tag::PARSE => self.parse(chunk, header),
            tag::BIND => self.bind(chunk, header),
            tag::DESCRIBE => self.describe(chunk, header),
            tag::CLOSE => self.close(chunk, header),
            tag::EXECUTE => self.execute(chunk, header),
            tag::SYNC => {
                self.client.end.group_ends();
                if self.may_answer_sync(header) {
                    self.answer_sync(chunk, header);
                    return Ok(());
                }
                self.enter(Entry::forward(Reply::Sync));
                self.relay(chunk, header);
                if !self.server.link.placed.is_empty() {
                    self.remove_placed();
                }
                Ok(())
            }
            tag::FLUSH => {
                // A Flush with a body is an error, and PostgreSQL skips the following messages.
                if header.body > 0 {
                    self.enter(Entry::forward(Reply::Refused));
                }
                self.relay(chunk, header);
                Ok(())
            }
            tag::FUNCTION_CALL => {
                let mut entry = self.query_entry();
                entry.barrier = true;
                self.ask(chunk, header, entry);
                Ok(())
            }
            _ => {
                self.copy_piece(chunk, header);
                Ok(())
            }
        }
    }

    /// True if the link ends as soon as the rest of a message comes that nobody has asked for.
    fn is_over(&self) -> bool {
        let server = &*self.server;
        server.link.is_quiet()
            && !server.link.group_open()
            && server.status == Status::Idle
            && !server.inbox.at_boundary()
    }

    /// True if PostgreSQL would only say that it is idle: Howdah itself has answered the whole group
    /// (a Parse of a statement that the server has), outside a transaction.
    fn may_answer_sync(&mut self, header: Header) -> bool {
        let server = &mut *self.server;
        server.link.ledger.is_group_unsent()
            && server.status == Status::Idle
            && server.ending().is_none()
            && server.inbox.at_boundary()
            && header.body == 0
            && self.client.session.is_none()
            && !self.client.listens()
            // PostgreSQL's answer holds back what must not follow a read to its standby.
            && !self.client.reads_at_standby()
    }

    /// Answers a Sync in place of PostgreSQL.
    #[cold]
    fn answer_sync(&mut self, chunk: &mut Chunk<'_>, header: Header) {
        let server = &mut *self.server;
        server.link.ledger.end_unsent_group();
        server.times.mark_silent();
        self.out
            .send_with(Peer::Client(self.id), |buf| write::ready(buf, Status::Idle));
        self.counts.syncs += 1;
        self.skip(chunk, header);
    }

    /// Drops a message, as PostgreSQL would: an earlier one has failed, and no Sync came since.
    #[cold]
    fn skipped(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Step {
        let begets_nothing = matches!(
            header.tag,
            tag::FLUSH | tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL
        );
        if self.server.link.copy.eaten() > 0 && !begets_nothing {
            // PostgreSQL answers this message only if the COPY had failed before a Sync inside it.
            return Err(Flow::Broken(Fault::CopyUnclear));
        }
        self.client.inbox.gives_room_back();
        self.skip(chunk, header);
        Ok(())
    }

    fn in_copy(&self) -> bool {
        self.server.link.is_reading()
    }

    /// While PostgreSQL reads a COPY, it ignores Flush and Sync. Any other message that is not part
    /// of the COPY makes the COPY fail.
    fn during_copy(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Step {
        let copy = self.server.link.copy_mut();
        match header.tag {
            tag::COPY_DATA | tag::FLUSH => {}
            tag::SYNC => copy.eat(),
            tag::COPY_DONE | tag::COPY_FAIL => {
                copy.end();
            }
            _ if copy.is_broken() => {
                self.client.end.stalls();
                return Err(Flow::Stalled);
            }
            // PostgreSQL fails the COPY at this message and drops the message. The client's next
            // messages wait until the error has come.
            _ => copy.break_off(),
        }
        self.relay(chunk, header);
        Ok(())
    }

    /// Handles CopyData, CopyDone or CopyFail while no COPY is known to be open. While PostgreSQL
    /// owes answers, a COPY may be about to open, so Howdah relays the message. Otherwise the
    /// message is late, and Howdah drops it.
    fn copy_piece(&mut self, chunk: &mut Chunk<'_>, header: Header) {
        if self.server.link.ledger.is_empty() {
            self.skip(chunk, header);
            return;
        }
        if matches!(header.tag, tag::COPY_DONE | tag::COPY_FAIL) {
            self.enter(Entry::forward(Reply::CopyEnd));
        }
        self.relay(chunk, header);
    }

    /// Makes the entry of a Query or FunctionCall.
    pub(super) fn query_entry(&mut self) -> Entry {
        let mut entry = Entry::forward(Reply::Query);
        entry.inside = self.server.link.ledger.is_group_at_work();
        entry
    }

    /// The effect of `DEALLOCATE name` on the name. Creates `howdah_void` exactly if the name
    /// exists, so that deallocating `howdah_void` gets the same answer.
    pub(super) fn void_or_nothing(&mut self, name: &[u8]) -> Change {
        if self.lookup(name).is_some() {
            self.make_void();
            return Change::Forget;
        }
        let to = self.to();
        self.out.send_with(to, |buf| {
            write::of_statement(buf, tag::CLOSE, statement::VOID)
        });
        self.push(Entry::swallow(Reply::Close));
        Change::Nothing
    }

    #[cold]
    pub(super) fn make_void(&mut self) {
        let to = self.to();
        self.out.send_with(to, |buf| {
            write::of_statement(buf, tag::CLOSE, statement::VOID);
            write::parse(buf, statement::VOID, b"\0\0\0");
        });
        self.push(Entry::swallow(Reply::Close));
        self.push(Entry::swallow(Reply::Parse));
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.enter(entry);
    }

    /// Like `push`, but inlined, for messages of nearly every transaction. The caller knows much of
    /// the entry.
    #[inline(always)]
    pub(super) fn enter(&mut self, entry: Entry) {
        let server = &mut *self.server;
        debug_assert!(!server.link.ledger.has_settings() || !server.link.owes_ready());
        let not_failed = server.not_failed();
        server.link.ledger.push(entry, not_failed);
    }

    /// The change that makes a name refer to a statement.
    pub(super) fn definition(&mut self, name: &[u8], statement: &Arc<Statement>) -> Box<NameOp> {
        let number = if name.is_empty() {
            0
        } else {
            self.client.statements.next_number()
        };
        let named = Named::new(statement.clone(), number);
        self.name_op(name.into(), Change::Define(named))
    }

    /// A change of a client's name, made by the current message.
    pub(super) fn name_op(&mut self, name: Box<[u8]>, change: Change) -> Box<NameOp> {
        let group = self.server.link.ledger.group();
        Box::new(NameOp {
            name,
            group,
            change,
        })
    }

    /// A change of the server's unnamed statement, made by the current message.
    pub(super) fn unnamed_op(&mut self, statement: Option<Arc<Statement>>) -> Option<UnnamedOp> {
        let group = self.server.link.ledger.group();
        self.renames.then_some(UnnamedOp { group, statement })
    }

    /// The client's server.
    pub(crate) fn to(&self) -> Peer {
        Peer::Server(self.server_id)
    }

    /// Relays a message that PostgreSQL answers.
    pub(super) fn ask(&mut self, chunk: &mut Chunk<'_>, header: Header, entry: Entry) {
        self.push(entry);
        self.relay(chunk, header);
    }

    /// Relays a message unchanged, from its tag on.
    pub(super) fn relay(&mut self, chunk: &mut Chunk<'_>, header: Header) {
        let count = chunk.rest().len().min(header.total());
        let to = self.to();
        chunk.pass(count, to, self.out);
        let left = header.total() - count;
        self.client.inbox.begin(header.tag, Fate::Relay, left);
    }

    /// Skips a message, from its tag on: the server does not get it.
    pub(super) fn skip(&mut self, chunk: &mut Chunk<'_>, header: Header) {
        skip(self.client, chunk, header);
    }
}

/// The header of the next message.
#[inline(always)]
pub(super) fn next(chunk: &Chunk<'_>, globals: &Globals) -> Result<Header, Flow> {
    let Some(read) = header(chunk.rest()) else {
        // Howdah reports an invalid tag at once, without waiting for the rest of the header.
        let first = chunk.rest()[0];
        return if tags::is_frontend(first) {
            Err(Flow::Partial)
        } else {
            Err(unknown(first))
        };
    };
    let tag = chunk.rest()[0];
    if !tags::is_frontend(tag) {
        return Err(unknown(tag));
    }
    // At an invalid length PostgreSQL closes the connection without a message.
    let header = read.map_err(|e| Flow::Broken(Fault::ClientLength(e)))?;
    if header.body + 4 > globals.max_packet_size.min(limits::SHORT) {
        check_length(globals, header)?;
    }
    match tag {
        tag::TERMINATE => Err(Flow::Terminate),
        _ => Ok(header),
    }
}

/// Refuses a message that is too long for its tag.
#[cold]
fn check_length(globals: &Globals, header: Header) -> Step {
    let (tag, length) = (header.tag, header.body + 4);
    let error = WireError::Length { tag, length };
    match tags::is_short(tag) {
        true if length > limits::SHORT => Err(Flow::Broken(Fault::ClientLength(error))),
        false if length > globals.max_packet_size => Err(Flow::Broken(Fault::ClientBytes(error))),
        _ => Ok(()),
    }
}

/// Skips a message, from its tag on.
pub(super) fn skip(client: &mut Client, chunk: &mut Chunk<'_>, header: Header) {
    let count = chunk.rest().len().min(header.total());
    chunk.at += count;
    let left = header.total() - count;
    client.inbox.begin(header.tag, Fate::Drop, left);
}

/// True if only a server can handle a message with this tag.
pub fn needs_server(tag: u8) -> bool {
    matches!(
        tag,
        tag::QUERY | tag::PARSE | tag::BIND | tag::DESCRIBE | tag::CLOSE | tag::EXECUTE
    )
}

/// True if a message with this tag only begins or ends a request.
fn begins_or_ends(tag: u8) -> bool {
    matches!(tag, tag::SYNC | tag::FUNCTION_CALL)
}

/// The body of a message, if all of it is there.
pub(crate) fn whole<'a>(chunk: &Chunk<'a>, header: Header) -> Option<&'a [u8]> {
    chunk.rest().get(HEADER..header.total())
}

/// A message of which a part is missing must be held whole. Returns `Ok` if there will never be
/// room for it.
#[cold]
pub(crate) fn await_whole(
    client: &mut Client,
    share: &Arc<Allowance>,
    has_server: bool,
    header: Header,
) -> Step {
    let size = header.total();
    if size <= limits::FRONT || client.inbox.asked_for_room(size) {
        return Err(Flow::Partial);
    }
    // Who has a server does not wait: others may wait for that server.
    if share.has_room(size) || has_server && share.will_have_room(size) {
        client.inbox.gets_room(share, size);
        return Err(Flow::Partial);
    }
    if share.will_have_room(size) {
        Err(Flow::NeedRoom(size))
    } else {
        Ok(())
    }
}

/// True for a Query that begins with EXECUTE: its arguments may be long.
pub(super) fn is_execute(message: &[u8]) -> bool {
    message
        .get(HEADER..HEADER + 7)
        .is_some_and(|word| word.eq_ignore_ascii_case(b"execute"))
}

/// True if a Parse is too long to remember. `front` is its beginning.
pub(super) fn is_long_parse(front: &[u8], header: Header) -> bool {
    let unnamed = front.get(HEADER) == Some(&0);
    header.body
        > if unnamed {
            limits::PARSE_UNNAMED
        } else {
            limits::PARSE
        }
}

#[cold]
fn unknown(tag: u8) -> Flow {
    Flow::Broken(Fault::ClientBytes(WireError::Tag(tag)))
}

/// Whether a text may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Runs,
    /// The text would make its client keep a server, and too many clients keep one.
    Refused,
}
