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
pub mod leave;
pub mod meaning;
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
use crate::server::ServerState;
use crate::statement::Statement;
use portal::{Bound, Portal};

/// A link: what stands between one client and the server that it has, and what is left of that until
/// the server is at rest.
///
/// A link has one server, and is kept in the slot of that server: so it takes one step from the client
/// to the link, and none from the server. The server's [`ServerState`] names the client.
#[derive(Debug, Default)]
pub struct Link {
    /// What PostgreSQL will answer, in order, and what of it the client sees.
    ledger: Ledger,
    /// The COPY that is open, if one is.
    copy: Copy,
    /// Portals that do something to their client when they are executed.
    portals: Vec<Portal>,
    /// How many portals of that kind there were since the link began.
    portals_bound: u64,
    /// What was bound last, if its client may learn from its description what the statement is.
    bound: Option<Bound>,
    /// What the transaction has changed for texts that are parsed.
    changes: Changes,
    /// Something that answers a request has come since the last ReadyForQuery.
    answering: bool,
    /// Something else than BEGIN or SET was sent since the server was last idle.
    worked: bool,
    /// For how long the client waited for this server, in nanoseconds; 0 once a watched query has taken
    /// the figure over.
    pub(crate) waited: u64,
    /// Texts of queries, where somebody wants to know of those.
    watch: Option<Box<known::Watch>>,
}

impl Link {
    /// PostgreSQL owes an answer.
    pub(crate) fn is_owed(&self) -> bool {
        !self.ledger.is_empty()
    }

    /// Nothing is under way: no answer is owed, no COPY is open.
    fn is_quiet(&self) -> bool {
        self.ledger.is_empty() && !self.copy.is_open() && !self.copy.is_both()
    }

    /// Messages of the extended protocol were sent, and no Sync or Query after them.
    pub(crate) fn group_open(&self) -> bool {
        self.ledger.group_open()
    }

    /// Every transaction that was begun is over for sure.
    pub(crate) fn rests(&self) -> bool {
        !self.ledger.owes_ready() && !self.ledger.group_works()
    }

    /// How many requests are under way, each with a ReadyForQuery at its end.
    pub(crate) fn requests(&self) -> u32 {
        self.ledger.readies()
    }

    /// What is under way ends without anything more from the client.
    pub(crate) fn will_answer(&self) -> bool {
        self.ledger.owes_ready() && !self.copy.is_open() && !self.copy.is_both()
    }

    /// Both sides send (replication).
    pub(crate) fn streams(&self) -> bool {
        self.copy.is_both()
    }

    /// PostgreSQL reads from the client: rows of a COPY, or what a replication client confirms.
    fn reads(&self) -> bool {
        self.copy.is_open() || self.copy.is_both()
    }

    /// A ReadyForQuery is owed.
    pub(crate) fn owes_ready(&self) -> bool {
        self.ledger.owes_ready()
    }

    /// Something was parsed that nobody else may find.
    pub(crate) fn is_transient(&self) -> bool {
        !self.changes.left_nothing()
    }

    /// Its client gets the server after a wait, in nanoseconds.
    fn begins(&mut self, wait: u64) {
        self.waited = wait;
    }

    /// Something is sent that may draw numbers from sequences.
    pub(crate) fn works(&mut self) {
        self.worked = true;
    }

    /// No number was drawn from a sequence in the transaction that is open.
    pub(crate) fn has_drawn_nothing(&self) -> bool {
        !self.worked
    }

    /// The server is idle.
    fn rests_at_ready(&mut self) {
        if self.ledger.is_empty() && !self.ledger.group_open() {
            self.worked = false;
        }
    }

    /// A portal is bound: kept in mind if its client may learn from its description.
    fn binds(&mut self, bound: Option<Bound>) {
        self.bound = bound;
    }

    /// What was kept in mind of this portal of the group that is being sent.
    fn take_bound(&mut self, portal: &[u8]) -> Option<Bound> {
        let group = self.ledger.group();
        let its = |bound: &mut Bound| bound.group == group && *bound.portal == *portal;
        self.bound.take_if(its)
    }

    /// A portal is bound whose statement does something to its client when it is executed.
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

    /// A transaction is over, and its portals with it.
    fn drop_portals(&mut self) {
        let over = self.ledger.groups_over();
        let stays = |portal: &Portal| portal.group.wrapping_sub(over) < u32::MAX / 2;
        self.portals.retain(stays);
    }

    /// The COPY that is open, if one is.
    fn copy_mut(&mut self) -> &mut Copy {
        &mut self.copy
    }

    /// What is parsed from now on may be something else outside of the transaction.
    pub(crate) fn doubts_meaning(&mut self) {
        self.changes.private = true;
    }

    /// Something comes from the server that answers a request, before its ReadyForQuery.
    fn hears_answer(&mut self) {
        self.answering = true;
    }

    /// ReadyForQuery: whether anything that answers a request has come before it.
    fn was_answered(&mut self) -> bool {
        std::mem::take(&mut self.answering)
    }

    /// ReadyForQuery: no COPY is open.
    fn copies_nothing(&mut self) {
        self.copy = Copy::None;
    }

    /// A client's settings were sent, and its first messages go behind them.
    pub(crate) fn await_settings(&mut self) {
        self.ledger.push(Entry::swallow(Reply::Settings), true);
    }

    /// A Query of ours was sent, whose answer nobody is to see.
    pub(crate) fn await_query(&mut self) {
        self.ledger.push(Entry::swallow(Reply::Query), true);
    }

    /// Its client has gone to another server, or away: what is owed stays.
    #[inline(always)]
    fn ends(&mut self) {
        self.portals.clear();
        self.bound = None;
        self.changes.client_leaves();
        if let Some(watch) = &mut self.watch {
            watch.clear();
        }
    }

    /// The query that runs, if somebody wants to know of it, and for how long it has run, in
    /// nanoseconds: nobody will see its end.
    pub(crate) fn take_watched(&mut self, now: Time) -> Option<(Watched, u64)> {
        self.ledger.take_watched(now)
    }

    /// Its client has left for good: a COPY is failed, an open group undone, and nobody sees what is
    /// still owed.
    pub(crate) fn undo(&mut self, server: Peer, group_failed: bool, out: &mut Out) -> Left {
        self.ledger.orphan();
        let is_doubtful = self.copy.eaten() > 0;
        if self.copy.is_open() {
            self.copy.end();
            out.send_with(server, write::copy_fail);
            self.ledger.push(Entry::swallow(Reply::CopyEnd), true);
        }
        if self.ledger.group_open() && !group_failed {
            // A Sync alone would commit what the group has done; its client has not asked for
            // that. An Execute that must fail undoes it.
            out.send_with(server, |buf| {
                write::message(buf, frontend::EXECUTE, |buf| {
                    buf.extend_from_slice(b"howdah_unknown\0\0\0\0\0");
                });
            });
            self.ledger.push(Entry::swallow(Reply::Execute), true);
        }
        if self.ledger.group_open() || !self.ledger.is_empty() {
            // Something before may fail yet and have PostgreSQL skip all up to a Sync, even if a
            // Query seems to have ended its group.
            out.send_with(server, |buf| write::empty(buf, frontend::SYNC));
            self.ledger.push(Entry::swallow(Reply::Sync), true);
        }
        Left {
            is_doubtful,
            runs: self.ledger.owes_ready(),
        }
    }

    /// For invariants.
    pub(crate) fn check(&self) {
        self.ledger.check();
    }
}

/// What a client leaves behind.
pub(crate) struct Left {
    /// Nobody knows whether PostgreSQL has dropped what was sent in the middle of a COPY, or will
    /// answer it.
    pub is_doubtful: bool,
    /// Something runs.
    pub runs: bool,
}

/// What a server's transaction has changed for texts that are parsed in it.
#[derive(Debug, Default)]
pub struct Changes {
    /// What is parsed belongs to the transaction.
    private: bool,
    /// Names are looked for elsewhere than outside of it; what is parsed is for all who look there.
    names: Names,
    /// It has changed the schema.
    schema: bool,
    /// The last command that ended it, or a part of it, was a ROLLBACK.
    undone: bool,
    /// Settings that PostgreSQL reports have become others in it.
    settings: bool,
    /// Settings may be others since an Execute, which PostgreSQL tells at the end of its group.
    unsettled: bool,
    /// Temporary tables and the like that its client has made, and whether they go at its end.
    temporary: Vec<(Box<[u8]>, bool)>,
    /// What was parsed in it.
    parsed: Vec<Parsed>,
    /// The unnamed statement was parsed in it.
    unnamed: bool,
    /// It is over: what was parsed in it must go.
    over: bool,
    /// A part of it was undone: statements of before that were parsed in it must go.
    partly_over: bool,
    /// More has been parsed than is kept for a client that keeps its server.
    crowded: bool,
}

/// A statement that is something else outside of the transaction.
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

    /// What is parsed belongs to the transaction.
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
