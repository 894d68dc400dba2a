//! A link: a client bound to a server, for a transaction, a statement or a session.
//!
//! ```text
//!            upstream: classify, rename, inject          relay
//!   client ------------------------------------------------------> server
//!          <------------------------------------------------------
//!            relay, swallow, make            downstream: ledger
//! ```
//!
//! The link lasts until the release rule holds (see [`release`]).

pub mod assign;
pub mod bind;
pub mod changed;
pub mod copy;
pub mod downstream;
pub mod effects;
pub mod end;
mod error;
pub mod extended;
pub mod known;
pub mod meaning;
pub mod permission;
pub mod portal;
pub mod prepare;
pub mod pressure;
pub mod release;
pub mod traffic;
pub mod upstream;
mod watch;

pub(crate) use bind::{bind, bind_held, part};
pub use copy::Copy;
pub use end::End;

use std::sync::Arc;

use howdah_wire::tag::frontend;
use howdah_wire::write;

use crate::effect::Names;
use crate::event::{Out, Peer, Time};
use crate::ledger::{Entry, Ledger, Reply};
use crate::params::Meaning;
use crate::queries::watched::Watched;
use crate::statement::Statement;
use portal::{Bound, Portal};

/// A link: the state between a client and its server. After the client has left, the link holds
/// what the server still owes, until the server is at rest.
///
/// A link has one server, and is kept in that server's slot. So code that has the server has the
/// link, and code that has the client finds the link in one step. The server's [`ServerState`](crate::server::ServerState)
/// names the client.
#[derive(Debug, Default)]
pub struct Link {
    /// The answers that PostgreSQL owes, in order, and which of them the client sees.
    ledger: Ledger,
    /// The open COPY, if any.
    copy: Copy,
    /// Portals whose Execute has an effect on their client: `DEALLOCATE a`, bound and not yet
    /// executed.
    portals: Vec<Portal>,
    /// The number of such portals since the link began.
    portals_bound: u64,
    /// The last portal bound, if its description may tell the client for the first time what the
    /// statement returns.
    bound: Option<Bound>,
    /// What the transaction has changed for the meaning of texts.
    changes: Changes,
    /// A part of an answer has come since the last ReadyForQuery.
    answering: bool,
    /// A command other than BEGIN or SET was sent since the server was last idle.
    worked: bool,
    /// How long the client waited for this server, in nanoseconds. 0 once a watched query has taken
    /// the figure.
    pub(crate) waited: u64,
    /// Texts of queries, if queries are watched.
    watch: Option<Box<known::Watch>>,
}

impl Link {
    /// True while PostgreSQL owes an answer.
    pub(crate) fn is_owed(&self) -> bool {
        !self.ledger.is_empty()
    }

    /// True if PostgreSQL owes no answer and no COPY is open.
    fn is_quiet(&self) -> bool {
        self.ledger.is_empty() && !self.copy.is_open() && !self.copy.is_both()
    }

    /// True if messages of the extended protocol were sent, and no Sync or Query behind them.
    pub(crate) fn group_open(&self) -> bool {
        self.ledger.group_open()
    }

    /// True if a message of the open group may have begun a transaction.
    fn group_works(&self) -> bool {
        self.ledger.group_works()
    }

    /// True if every transaction that was begun is certainly over.
    pub(crate) fn rests(&self) -> bool {
        !self.ledger.owes_ready() && !self.ledger.group_works()
    }

    /// How many ReadyForQuery PostgreSQL owes.
    pub(crate) fn requests(&self) -> u32 {
        self.ledger.readies()
    }

    /// True if the request under way ends without more messages from the client.
    pub(crate) fn will_answer(&self) -> bool {
        self.ledger.owes_ready() && !self.copy.is_open() && !self.copy.is_both()
    }

    /// True while both sides send (replication).
    pub(crate) fn streams(&self) -> bool {
        self.copy.is_both()
    }

    /// True while PostgreSQL reads data from the client: rows of a COPY, or a replication client's
    /// confirmations.
    fn reads(&self) -> bool {
        self.copy.is_open() || self.copy.is_both()
    }

    /// True while PostgreSQL owes a ReadyForQuery.
    pub(crate) fn owes_ready(&self) -> bool {
        self.ledger.owes_ready()
    }

    /// True if statements were parsed that no other client may use.
    pub(crate) fn is_transient(&self) -> bool {
        !self.changes.left_nothing()
    }

    /// The client gets the server, after a wait of so many nanoseconds.
    fn begins(&mut self, wait: u64) {
        self.waited = wait;
    }

    /// A command is sent that may draw numbers from sequences.
    pub(crate) fn works(&mut self) {
        self.worked = true;
    }

    /// True if the open transaction has drawn no number from a sequence.
    pub(crate) fn has_drawn_nothing(&self) -> bool {
        !self.worked
    }

    /// ReadyForQuery came. If nothing is owed, the server is idle.
    fn rests_at_ready(&mut self) {
        if self.ledger.is_empty() && !self.ledger.group_open() {
            self.worked = false;
        }
    }

    /// A portal is bound. It is remembered if its description may tell the client what the
    /// statement returns.
    fn binds(&mut self, bound: Option<Bound>) {
        self.bound = bound;
    }

    /// Takes what is remembered of this portal, if it was bound in the current group.
    fn take_bound(&mut self, portal: &[u8]) -> Option<Bound> {
        let group = self.ledger.group();
        let its = |bound: &mut Bound| bound.group == group && *bound.portal == *portal;
        self.bound.take_if(its)
    }

    /// A portal is bound; `effect` is its statement, if executing that has an effect on the client.
    fn binds_portal(
        &mut self,
        name: &[u8],
        effect: Option<Arc<Statement>>,
        void: bool,
        names: Names,
    ) {
        self.portals.retain(|portal| *portal.name != *name);
        if let Some(statement) = effect {
            self.portals_bound += 1;
            self.portals.push(Portal {
                name: name.into(),
                number: self.portals_bound,
                group: self.ledger.group(),
                statement,
                names,
                void,
            });
        }
    }

    /// A transaction is over: its portals are gone.
    fn drop_portals(&mut self) {
        let over = self.ledger.groups_over();
        let stays = |portal: &Portal| portal.group.wrapping_sub(over) < u32::MAX / 2;
        self.portals.retain(stays);
    }

    /// The open COPY, if any.
    fn copy_mut(&mut self) -> &mut Copy {
        &mut self.copy
    }

    /// From now on, texts may mean something else in this transaction than outside of it.
    pub(crate) fn doubts_meaning(&mut self) {
        self.changes.private = true;
    }

    /// A part of an answer comes from the server.
    fn hears_answer(&mut self) {
        self.answering = true;
    }

    /// At ReadyForQuery: whether a part of an answer has come before it.
    fn was_answered(&mut self) -> bool {
        std::mem::take(&mut self.answering)
    }

    /// At ReadyForQuery: no COPY is open any more.
    fn copies_nothing(&mut self) {
        self.copy = Copy::None;
    }

    /// The client's settings were sent to the server. The client's first messages follow them.
    pub(crate) fn await_settings(&mut self) {
        self.ledger.push(Entry::swallow(Reply::Settings), true);
    }

    /// Howdah sent a Query of its own. The client does not see the answer.
    pub(crate) fn await_query(&mut self) {
        self.ledger.push(Entry::swallow(Reply::Query), true);
    }

    /// The client leaves the link. Answers that PostgreSQL owes stay in the ledger.
    #[inline(always)]
    fn ends(&mut self) {
        self.portals.clear();
        self.bound = None;
        self.changes.client_leaves();
        if let Some(watch) = &mut self.watch {
            watch.clear();
        }
    }

    /// Takes the query that runs, if it is watched, and how long it has run, in nanoseconds. Its
    /// end will not be seen.
    pub(crate) fn take_watched(&mut self, now: Time) -> Option<(Watched, u64)> {
        self.ledger.take_watched(now)
    }

    /// The client has left for good. Howdah fails its COPY and undoes its open group of messages.
    /// Answers still owed are swallowed.
    pub(crate) fn undo(&mut self, server: Peer, group_failed: bool, out: &mut Out) -> Left {
        self.ledger.orphan();
        let is_doubtful = self.copy.eaten() > 0;
        if self.copy.is_open() {
            self.copy.end();
            out.send_with(server, write::copy_fail);
            self.ledger.push(Entry::swallow(Reply::CopyEnd), true);
        }
        if self.ledger.group_open() && !group_failed {
            // A Sync alone would commit the group's work, which the client has not asked for. An
            // Execute that must fail undoes it.
            out.send_with(server, |buf| {
                write::message(buf, frontend::EXECUTE, |buf| {
                    buf.extend_from_slice(b"howdah_unknown\0\0\0\0\0");
                });
            });
            self.ledger.push(Entry::swallow(Reply::Execute), true);
        }
        if self.ledger.group_open() || !self.ledger.is_empty() {
            // An earlier message may still fail. PostgreSQL then skips everything up to a Sync,
            // even if a Query seems to have ended its group.
            out.send_with(server, |buf| write::empty(buf, frontend::SYNC));
            self.ledger.push(Entry::swallow(Reply::Sync), true);
        }
        Left {
            is_doubtful,
            runs: self.ledger.owes_ready(),
        }
    }

    /// Verifies invariants.
    pub(crate) fn check(&self) {
        self.ledger.check();
    }
}

/// What a client that leaves has left on its server.
pub(crate) struct Left {
    /// Messages were sent in the middle of a COPY. It is unknown whether PostgreSQL has dropped
    /// them or will answer them.
    pub is_doubtful: bool,
    /// A request is still running.
    pub runs: bool,
}

/// What an open transaction has changed for the meaning of texts that are parsed in it.
#[derive(Debug, Default)]
pub struct Changes {
    /// Statements that are parsed now belong to this transaction.
    private: bool,
    /// PostgreSQL looks names up elsewhere than outside of the transaction. Statements parsed now
    /// are shared by all clients for which PostgreSQL looks in the same place.
    names: Names,
    /// The transaction has changed the schema.
    schema: bool,
    /// The last command that ended the transaction, or a part of it, was a ROLLBACK.
    undone: bool,
    /// Settings that PostgreSQL reports have changed in the transaction.
    settings: bool,
    /// An Execute may have changed settings. PostgreSQL reports that only at the end of the group.
    unsettled: bool,
    /// Temporary tables and the like that the client has made, each with whether it is dropped at
    /// the transaction's end.
    temporary: Vec<(Box<[u8]>, bool)>,
    /// Statements that were parsed in the transaction.
    parsed: Vec<Parsed>,
    /// The unnamed statement was parsed in the transaction.
    unnamed: bool,
    /// The transaction is over: statements parsed in it must be closed.
    over: bool,
    /// A part of the transaction was undone: older statements that this server parsed in it must be
    /// closed.
    partly_over: bool,
    /// More statements were parsed than are kept for a client that keeps its server.
    crowded: bool,
}

/// A statement that means something else outside of the transaction.
#[derive(Clone, Copy, Debug)]
struct Parsed {
    key: u128,
    /// The client named it before the transaction; this server has parsed it in the transaction.
    late: bool,
    /// It lasts as long as its client keeps the server. On this server its text may name a temporary
    /// table of the client, and elsewhere a permanent one.
    lasts: bool,
}

impl Changes {
    /// Nothing is left of it that may stay on a server.
    pub fn left_nothing(&self) -> bool {
        self.parsed.is_empty() && !self.unnamed
    }

    /// Statements that are parsed now belong to this transaction.
    pub fn are_private(&self) -> bool {
        self.private
    }

    /// PostgreSQL has told what settings are.
    pub fn are_settled(&self) -> bool {
        !self.unsettled
    }

    /// The client leaves: its temporary tables are not the next client's.
    pub(super) fn client_leaves(&mut self) {
        self.temporary.clear();
    }

    /// The end of the transaction, or of a part of it, changes what texts mean.
    pub fn end_matters(&self) -> bool {
        self.private || self.settings || self.unsettled || self.names != Names::Same
    }

    /// What a client's texts mean in it, which mean this outside of it.
    pub fn meaning(&self, outside: Meaning) -> Meaning {
        match self.names {
            Names::By(hash) => outside.looking(hash),
            Names::Same | Names::Anywhere => outside,
        }
    }

    /// A command has set where names are looked for.
    fn look_elsewhere(&mut self, names: Names) {
        self.names = self.names.then(names);
        self.private |= !matches!(self.names, Names::By(_));
    }

    /// Names may be looked for where they were before, or not.
    fn doubt_names(&mut self) {
        self.private |= self.names != Names::Same;
    }
}
