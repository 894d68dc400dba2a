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

mod ahead;
mod ahead_group;
mod aligned;
mod asked;
pub mod assign;
pub mod bind;
pub mod changed;
mod check;
pub mod copy;
pub mod downstream;
pub mod effects;
pub mod end;
pub(crate) mod ends;
mod error;
pub mod extended;
mod gated;
mod guarded;
mod kept_unnamed;
pub mod known;
mod late_begin;
pub mod meaning;
mod orders;
mod pause;
pub mod permission;
mod placed;
pub mod portal;
pub mod prepare;
pub mod pressure;
mod query;
pub mod release;
mod resume;
mod side;
mod signalled;
mod sql_names;
pub mod traffic;
pub mod upstream;
pub(crate) mod view;
mod watch;

pub(crate) use bind::{bind, bind_held};
pub use copy::CopyPhase;
pub use end::End;

use std::sync::Arc;

use howdah_wire::frame::header;
use howdah_wire::tag::frontend;
use howdah_wire::write;

use crate::effect::Names;
use crate::event::{Out, Peer, Time};
use crate::ledger::{Entry, Ledger, Reply};
use crate::queries::text::QueryText;
use crate::queries::watched::Watched;
use crate::reads::guard::{FirstAnswer, Guard};
use crate::statement::Statement;
use placed::Placed;
use portal::{Bound, Portal, Portals};

/// The state between a client and its server. After the client has left, the link holds the answers
/// that PostgreSQL still owes.
///
/// Each link is kept in the slot of its server. So code that has the server has the link, and code
/// that has the client finds the link in one step. The server's
/// [`ServerState`](crate::server::ServerState) names the client.
#[derive(Debug, Default)]
pub struct Link {
    /// The answers that PostgreSQL owes, in order, and which of them the client sees.
    ledger: Ledger,
    /// The open COPY, if any.
    copy: CopyPhase,
    /// Bound portals, not yet executed, whose Execute affects the client, such as a portal of
    /// `DEALLOCATE a`.
    portals: Portals,
    /// Statements that the server has under their client's names until the group's Sync.
    placed: Vec<Placed>,
    /// PostgreSQL's error for a statement that a Query names, until the Query fails for it.
    refused_name: Option<Box<[u8]>>,
    /// The last portal bound, if the client has not yet seen the description of its statement.
    bound: Option<Bound>,
    /// PostgreSQL has sent a part of an answer since the last ReadyForQuery.
    answering: bool,
    /// How long the client waited for this server, in nanoseconds. A watched query takes this value
    /// and leaves 0.
    waited: u64,
    /// Texts of queries, if queries are watched.
    watch: Option<Box<known::Watch>>,
    /// A standby carries out a single read, of which the client has seen nothing yet.
    guard: Option<Box<Guard>>,
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

    /// True if messages of the extended protocol were sent without a Sync or Query after them.
    pub(crate) fn group_open(&self) -> bool {
        self.ledger.group_open()
    }

    /// True if a message of the open group may have begun a transaction.
    fn is_group_at_work(&self) -> bool {
        self.ledger.is_group_at_work()
    }

    /// True if no message since the last ReadyForQuery may have begun a transaction.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.ledger.owes_ready() && !self.ledger.is_group_at_work()
    }

    /// True if PostgreSQL owes no more than one ReadyForQuery to the client.
    pub(crate) fn has_one_request(&self) -> bool {
        self.ledger.readies() <= 1 || self.ledger.readies_to_client() <= 1
    }

    /// True if the current request ends without more messages from the client.
    pub(crate) fn will_answer(&self) -> bool {
        self.ledger.owes_ready() && !self.copy.is_open() && !self.copy.is_both()
    }

    /// True while both sides send data (replication).
    pub(crate) fn is_streaming(&self) -> bool {
        self.copy.is_both()
    }

    /// True while PostgreSQL reads data from the client: rows of a COPY, or confirmations of a
    /// replication client.
    fn is_reading(&self) -> bool {
        self.copy.is_open() || self.copy.is_both()
    }

    /// True while PostgreSQL owes a ReadyForQuery.
    pub(crate) fn owes_ready(&self) -> bool {
        self.ledger.owes_ready()
    }

    /// A standby is about to carry out a client's single read.
    pub(crate) fn guards(&mut self, guard: Guard) {
        self.guard = Some(Box::new(guard));
    }

    /// How many bytes of these messages, a group that has just been sent, Howdah itself has answered:
    /// those of a Parse at its beginning whose statement the server has. The name is the client's
    /// already.
    pub(crate) fn answered_of(&self, group: &[u8]) -> usize {
        match header(group) {
            Some(Ok(header)) if header.tag == frontend::PARSE && !self.ledger.owes_parse() => {
                header.total()
            }
            _ => 0,
        }
    }

    /// True while the client has seen nothing of the answer to its single read.
    #[inline]
    pub(crate) fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// Looks at the answer to a single read, from the first byte on. The guard ends once something
    /// decides.
    pub(crate) fn hears_first(&mut self, answer: &[u8]) -> FirstAnswer {
        let guard = self.guard.as_mut();
        guard.map_or(FirstAnswer::Shown, |guard| guard.hears(answer))
    }

    /// True while PostgreSQL has not answered a client's BEGIN, and there is nothing else to answer.
    pub(crate) fn guards_begin(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.is_begin())
    }

    /// The guard ends.
    pub(crate) fn take_guard(&mut self) -> Option<Box<Guard>> {
        self.guard.take()
    }

    /// The client gets the server after a wait of `wait` nanoseconds.
    fn begins(&mut self, wait: u64) {
        self.waited = wait;
    }

    /// A watched query takes the client's wait.
    fn take_waited(&mut self) -> u64 {
        std::mem::take(&mut self.waited)
    }

    /// The texts of queries. Queries are watched.
    fn watch_mut(&mut self) -> &mut known::Watch {
        self.watch.get_or_insert_default()
    }

    /// The client binds a portal. `bound` is set if the client has not yet seen the statement's
    /// description.
    fn set_bound(&mut self, bound: Option<Bound>) {
        self.bound = bound;
    }

    /// Takes the last bound portal, if it has this name and belongs to the current group.
    fn take_bound(&mut self, portal: &[u8]) -> Option<Bound> {
        let group = self.ledger.group();
        let its = |bound: &mut Bound| bound.group == group && *bound.portal == *portal;
        self.bound.take_if(its)
    }

    /// The client binds a portal. `effect` is its statement, if executing the portal affects the
    /// client.
    fn binds_portal(
        &mut self,
        name: &[u8],
        effect: Option<Arc<Statement>>,
        void: bool,
        names: Names,
    ) {
        self.portals.forget(name);
        if let Some(statement) = effect {
            self.portals.add(Portal {
                name: name.into(),
                number: self.portals.next_number(),
                group: self.ledger.group(),
                statement,
                names,
                void,
            });
        }
    }

    /// What the server has under this name of its client until the group's Sync.
    fn placed(&self, name: &[u8]) -> Option<&Placed> {
        self.placed.iter().find(|placed| *placed.name == *name)
    }

    /// The server gets a statement under its client's name until the group's Sync.
    fn places(&mut self, new: Placed) {
        self.placed.retain(|placed| placed.name != new.name);
        self.placed.push(new);
    }

    /// PostgreSQL has refused a statement that the next Query names.
    fn refuses_name(&mut self, error: &[u8]) {
        self.refused_name.get_or_insert_with(|| error.into());
    }

    /// A Query that names statements is about to be sent.
    fn refuses_no_name(&mut self) {
        self.refused_name = None;
    }

    /// Takes PostgreSQL's error for a statement that the Query names.
    fn take_refused_name(&mut self) -> Option<Box<[u8]>> {
        self.refused_name.take()
    }

    /// The group is over: the names to remove.
    fn take_placed(&mut self) -> Vec<Placed> {
        std::mem::take(&mut self.placed)
    }

    /// A transaction has ended, and its portals with it.
    fn drop_portals(&mut self) {
        let over = self.ledger.groups_over();
        let stays = |portal: &Portal| portal.group.wrapping_sub(over) < u32::MAX / 2;
        self.portals.forget_while(|portal| !stays(portal));
    }

    /// The open COPY, if any.
    fn copy_mut(&mut self) -> &mut CopyPhase {
        &mut self.copy
    }

    /// PostgreSQL sends a part of an answer.
    fn hears_answer(&mut self) {
        self.answering = true;
    }

    /// Called at ReadyForQuery: true if a part of an answer came before.
    fn was_answered(&mut self) -> bool {
        std::mem::take(&mut self.answering)
    }

    /// Called at ReadyForQuery: no COPY is open.
    fn copies_nothing(&mut self) {
        self.copy = CopyPhase::None;
    }

    /// Howdah has sent the client's settings to the server. The client's first messages follow.
    pub(crate) fn await_settings(&mut self) {
        self.ledger.push(Entry::swallow(Reply::Settings), true);
    }

    /// Howdah has sent a Query of its own. The client does not see the answer.
    pub(crate) fn await_query(&mut self) {
        self.ledger.push(Entry::swallow(Reply::Query), true);
    }

    /// The client leaves the link. Answers that PostgreSQL owes stay in the ledger. True if the
    /// server may still have statements under their client's names.
    #[inline(always)]
    fn ends(&mut self) -> bool {
        let named = !self.placed.is_empty();
        if !self.portals.is_empty() {
            self.portals.clear();
        }
        self.bound = None;
        self.guard = None;
        if let Some(watch) = &mut self.watch {
            watch.clear();
        }
        if named {
            self.placed.clear();
        }
        named
    }

    /// Takes the running query, if it is watched, with its run time in nanoseconds. The end of this
    /// query is not recorded.
    pub(crate) fn take_watched(&mut self, now: Time) -> Option<(Watched, u64)> {
        self.ledger.take_watched(now)
    }

    /// A watched query has ended.
    fn query_ended(&mut self, text: &Arc<QueryText>) {
        self.watch_mut().query_ended(text);
    }

    /// The text of the running query, or else of the query that ended last, without constants, if
    /// queries are watched.
    pub(crate) fn known_text(&self) -> Option<&Arc<QueryText>> {
        let last = || self.watch.as_ref()?.last.as_ref();
        self.ledger.running_text().or_else(last)
    }

    /// The client has left. Howdah fails its COPY and undoes its open group of messages. Howdah
    /// drops the answers that PostgreSQL still owes.
    pub(crate) fn undo(&mut self, server: Peer, group_failed: bool, out: &mut Out) -> Left {
        self.ledger.orphan();
        let is_doubtful = self.copy.eaten() > 0;
        if self.copy.is_open() {
            self.copy.end();
            out.send_with(server, write::copy_fail);
            self.ledger.push(Entry::swallow(Reply::CopyEnd), true);
        }
        if self.ledger.group_open() && !group_failed {
            // A Sync alone would commit the group's work, and the client has not asked for a
            // commit. So an Execute that fails undoes the work.
            out.send_with(server, |buf| {
                write::message(buf, frontend::EXECUTE, |buf| {
                    buf.extend_from_slice(b"howdah_unknown\0\0\0\0\0");
                });
            });
            self.ledger.push(Entry::swallow(Reply::Execute), true);
        }
        if self.ledger.group_open() || !self.ledger.is_empty() {
            // An earlier message may still fail. PostgreSQL then skips everything up to a Sync,
            // even a Query that seems to end the group.
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

/// The state in which a client leaves its server.
pub(crate) struct Left {
    /// Howdah sent messages in the middle of a COPY. PostgreSQL may have dropped them or may answer
    /// them.
    pub is_doubtful: bool,
    /// A request is still running.
    pub runs: bool,
}
