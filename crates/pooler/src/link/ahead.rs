//! What a client's messages do before the client has a server. Some messages need none. A Query is
//! read before its client asks for a server.

use std::sync::Arc;

use howdah_wire::frame::{HEADER, Header, header};
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use super::asked::QueryReader;
use super::signalled::signal_ahead;
use super::upstream::{Flow, Step, await_whole, is_long_parse, needs_server, next, skip};
use crate::client::{Client, ClientState};
use crate::config::Globals;
use crate::event::{ClientId, Out, Peer, ServerId};
use crate::fault::Fault;
use crate::inbox::Chunk;
use crate::limits;
use crate::login::Login;
use crate::opening::QueryRead;
use crate::reads::group::{GroupKind, group_kind};
use crate::server::Server;
use crate::session::Tracking;
use crate::session::note::{read_piece, tracking};
use crate::statement::{Interner, Shape, Statement};
use crate::table::Table;

/// The parts of a `Pooler` that the messages of a client without a server need.
pub(super) struct Ahead<'a> {
    /// The id of the client.
    pub id: ClientId,
    /// The client.
    pub client: &'a mut Client,
    /// The global settings.
    pub globals: &'a Globals,
    /// The client's login.
    pub login: &'a Login,
    /// All servers.
    pub servers: &'a Table<ServerId, Server>,
    /// The table of shared statements.
    pub interner: &'a Interner,
    /// The list of actions.
    pub out: &'a mut Out,
    /// The counters.
    pub counts: AheadCounts,
}

/// Counters for the statistics of one call of `Ahead::run`.
#[derive(Debug, Default)]
pub(super) struct AheadCounts {
    /// Groups of messages that Howdah has answered.
    pub groups: u32,
    /// Parse messages in these groups.
    pub parses: u32,
    /// Describe messages in these groups.
    pub describes: u32,
}

impl Ahead<'_> {
    /// Handles messages up to the first that needs a server. If that is a Query, reads it.
    #[inline(always)] // Called in one place.
    pub fn run(&mut self, chunk: &mut Chunk<'_>, read: &mut QueryRead) -> Step {
        match plain(self.client, self.globals, chunk) {
            Some(header) if header.tag == tag::QUERY || !may_be_known(chunk.rest()) => {
                self.read(chunk, header, read)
            }
            _ => self.run_slowly(chunk, read),
        }
    }

    /// If a server of the login is certain to have the statement: the server's description of it,
    /// as far as known.
    pub(super) fn confirmed(&self, statement: &Arc<Statement>) -> Option<Option<Shape>> {
        let keeper = self.login.keepers.of(statement.key())?;
        gone!(self.servers.get(keeper)).confirms(statement)
    }

    /// Howdah renames statements, so that a server can hold the statements of many clients.
    #[inline]
    pub(super) fn renames(&self) -> bool {
        self.login.renames(self.globals.max_prepared_statements)
    }

    /// A group that may be a read waits for its Sync: the whole group decides where it goes.
    fn read_group(&mut self, chunk: &Chunk<'_>, read: &mut QueryRead) -> Step {
        let Some(volatile) = self.login.volatile() else {
            return Ok(());
        };
        match group_kind(self.client, chunk.rest(), volatile) {
            GroupKind::Unsure => return Err(Flow::Partial),
            GroupKind::Read => read.begins_read_group(),
            GroupKind::Other => {}
        }
        Ok(())
    }

    #[cold]
    fn run_slowly(&mut self, chunk: &mut Chunk<'_>, read: &mut QueryRead) -> Step {
        loop {
            if !self.client.inbox.at_boundary() {
                self.client.inbox.gives_room_back();
                let count = chunk.rest().len().min(self.client.inbox.left());
                read_piece(self.client, &chunk.rest()[..count]);
                self.client.inbox.advance(count);
                chunk.at += count;
            }
            if chunk.rest().is_empty() {
                return Err(Flow::Done);
            }
            let header = next(chunk, self.globals)?;
            if !self.is_done(chunk, header)? && !self.answer_group(chunk) {
                self.await_enough(chunk, header)?;
                return self.read(chunk, header, read);
            }
            read.forget();
        }
    }

    /// Handles a message that needs no server. False if the message needs one.
    fn is_done(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Result<bool, Flow> {
        match header.tag {
            tag::QUERY if self.globals.disable_pqexec => {
                return Err(Flow::Broken(Fault::QueriesRefused));
            }
            // An earlier message has failed, and no Sync came since.
            tag if tag != tag::SYNC && self.client.end.skips() => {
                self.client.inbox.gives_room_back();
            }
            // The message is malformed: PostgreSQL answers it with its own error.
            tag::SYNC | tag::FLUSH if header.body > 0 => return Ok(false),
            // The client must first get the notifications of everything committed by now. That
            // needs no server.
            tag::SYNC if self.client.listens() && !self.client.has_heard_all() => {
                return Err(Flow::NeedPass);
            }
            tag::SYNC => {
                self.client.end.group_ends();
                let status = self.client.status_ahead();
                self.out
                    .send_with(Peer::Client(self.id), |buf| write::ready(buf, status));
            }
            // The message is the rest of a failed COPY, or a Flush with nothing to flush.
            tag::FLUSH | tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => {}
            _ => return Ok(false),
        }
        skip(self.client, chunk, header);
        Ok(true)
    }

    /// No server should wait for the rest of a message. So a message that Howdah must read whole,
    /// or that is short, gets a server only when complete.
    fn await_enough(&mut self, chunk: &Chunk<'_>, header: Header) -> Step {
        let there = chunk.rest().len();
        if matches!(header.tag, tag::SYNC | tag::FLUSH) {
            return if there < header.total() {
                Err(Flow::Partial)
            } else {
                Ok(())
            };
        }
        if there < header.total().min(limits::FRONT) {
            return Err(Flow::Partial);
        }
        let held_whole = match header.tag {
            tag::PARSE if self.renames() => !is_long_parse(chunk.rest(), header),
            tag::PARSE => {
                let tracked = tracking(self.client, &self.login.terms) != Tracking::Nothing;
                header.total() <= limits::QUERY_READ && tracked
            }
            _ => false,
        };
        if held_whole && there < header.total() {
            // Without room, it is answered at once, or passes through.
            await_whole(self.client, &self.login.share, false, header)?;
        }
        Ok(())
    }

    /// Reads a message that needs a server, if it is a Query.
    #[inline(always)]
    fn read(&mut self, chunk: &Chunk<'_>, header: Header, read: &mut QueryRead) -> Step {
        if header.tag != tag::QUERY {
            return self.read_group(chunk, read);
        }
        if !read.filled {
            let tracking = tracking(self.client, &self.login.terms);
            let mut reader = QueryReader {
                client: self.client,
                has_server: false,
                tracking,
                renames: self.login.renames(self.globals.max_prepared_statements),
                routes: self.login.terms.reads.is_some(),
                volatile: self.login.volatile(),
                share: &self.login.share,
            };
            reader.read(chunk, header, read)?;
        }
        match &read.gist.signal {
            Some(signal) => signal_ahead(self.client, signal),
            None => Ok(()),
        }
    }
}

/// True for a message that may begin a group that Howdah can answer. `message` is its beginning.
#[inline(always)]
fn may_be_known(message: &[u8]) -> bool {
    match message[0] {
        tag::PARSE => message.get(HEADER) != Some(&0),
        tag::DESCRIBE | tag::CLOSE => true,
        _ => false,
    }
}

/// The header of the next message, if that is a short, complete message that only a server can
/// answer. No closer look is then needed.
#[inline(always)]
fn plain(client: &Client, globals: &Globals, chunk: &Chunk<'_>) -> Option<Header> {
    if !matches!(client.state(), ClientState::Idle)
        || client.end.skips()
        || !client.inbox.at_boundary()
        || globals.disable_pqexec
    {
        return None;
    }
    let rest = chunk.rest();
    let header = header(rest)?.ok()?;
    let most = rest.len().min(limits::SHORT as usize);
    let is_plain = needs_server(header.tag)
        && header.total() <= most
        && header.body + 4 <= globals.max_packet_size;
    is_plain.then_some(header)
}
