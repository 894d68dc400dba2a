//! The ends of a session's transactions.

use std::collections::VecDeque;

use howdah_wire::tag::frontend;

use super::{Ailment, Block, Deed, Fault, READY_LENGTH, Session};
use crate::sql::{Modes, Sql};

/// What is known of a transaction when it begins.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// It must not change anything.
    pub read_only: bool,
    /// Its first text asks for a standby.
    wants_standby: bool,
    /// It has done something else than read, or begun with BEGIN.
    does_more: bool,
}

impl Transaction {
    /// A statement runs.
    pub fn does(&mut self, sql: &Sql) {
        self.does_more |= !matches!(sql, Sql::Select { .. });
    }
}

/// How the error of a read begins that a standby does not carry out.
pub const CONFLICT: &str = "canceling statement due to conflict with recovery";

/// A standby does not carry a read out.
pub(super) fn conflict(sqlstate: &'static str) -> Fault {
    (sqlstate, CONFLICT.into())
}

/// The texts that ask for a standby begin so.
const HINTS: [&str; 2] = [
    "/* howdah.route=standby */",
    "/* howdah.route=prefer-standby */",
];

impl Session {
    /// A transaction begins without a BEGIN, with this text.
    pub(super) fn begin(&mut self, text: &str) {
        self.implicit = true;
        self.transaction = Transaction {
            read_only: self.settings.read_only(),
            wants_standby: HINTS.iter().any(|hint| text.starts_with(hint)),
            does_more: false,
        };
    }

    /// BEGIN has these modes.
    pub(super) fn set_modes(&mut self, modes: Modes) -> Result<(), Fault> {
        if self.read_only && modes.serializable {
            let text = "cannot use serializable mode in a hot standby";
            return Err(("0A000", text.into()));
        }
        if self.read_only && modes.read_only == Some(false) {
            let text = "cannot set transaction read-write mode during recovery";
            return Err(("0A000", text.into()));
        }
        let transaction = &mut self.transaction;
        transaction.read_only = modes.read_only.unwrap_or(transaction.read_only);
        Ok(())
    }

    /// The text that a message of the extended protocol is about.
    pub(super) fn text_of(&self, tag: u8, body: &[u8]) -> String {
        let mut parts = body.split(|byte| *byte == 0);
        let (first, second) = (parts.next(), parts.next());
        let name = match tag {
            frontend::PARSE => {
                return String::from_utf8_lossy(second.unwrap_or_default()).into_owned();
            }
            frontend::BIND => second,
            frontend::DESCRIBE => first.and_then(|name| name.strip_prefix(b"S")),
            _ => None,
        };
        let prepared = name.and_then(|name| self.statements.get(name));
        prepared.map_or_else(String::new, |prepared| prepared.text.clone())
    }

    /// True if what runs now may run at a standby: the transaction is declared a read, or an earlier
    /// one has left a statement there.
    pub fn may_be_read(&self) -> bool {
        let of = &self.transaction;
        of.read_only || of.wants_standby || self.statements(true).next().is_some()
    }

    /// True if what runs now is a read of its own.
    pub fn reads_alone(&self) -> bool {
        !self.transaction.does_more && !self.several
    }

    /// What befalls a read of its own: true if it ends after its first row.
    ///
    /// # Errors
    /// It is refused.
    pub(super) fn ails(&mut self) -> Result<bool, Fault> {
        let of = &self.transaction;
        let is_asked_for = of.read_only || of.wants_standby;
        let is_kept = self.statements(true).next().is_some();
        if is_asked_for || is_kept || !self.reads_alone() {
            return Ok(false);
        }
        match self.ailment.take() {
            Some(Ailment::Refuses(sqlstate)) => Err(conflict(sqlstate)),
            gives_up => Ok(gives_up.is_some()),
        }
    }

    /// The last message has failed instead, because of its standby. The error was already sent.
    pub fn conflicts(&mut self, simple: bool) {
        self.slow = None;
        self.refuse_last(simple);
    }

    /// True if a write is refused now: by the transaction, or by a standby.
    pub(super) fn must_not_write(&self) -> bool {
        let at_standby = self.refuses_write && self.transaction.wants_standby;
        self.read_only || self.transaction.read_only || at_standby
    }

    /// An error ends the transaction, and the Query or the group.
    pub(super) fn fail(&mut self, fault: &Fault) {
        self.error(fault.0, &fault.1);
        if self.block == Block::None {
            self.abort();
        } else {
            // After a ROLLBACK TO a savepoint, the earlier changes still count.
            if self.savepoints.is_empty() {
                self.undo_changes();
            }
            self.view.undo();
            self.portals.clear();
            self.block = Block::Failed;
            self.settings.undo();
            self.fails_at_shard();
        }
        if self.rest.take().is_some() {
            self.ready();
        } else {
            self.skipping = true;
        }
    }

    /// The last message, in a Query of its own or not, has failed instead. The error was already
    /// sent.
    pub(super) fn refuse_last(&mut self, simple: bool) {
        self.undecided = None;
        let mut told = 0;
        if simple {
            self.rest = Some(VecDeque::new());
            told = READY_LENGTH;
        }
        self.fail(&("", String::new()));
        self.out.drain(..self.out.len() - told);
        self.flushed = self.out.len();
    }

    pub(super) fn undo_changes(&mut self) {
        self.deeds.extend(self.changes.drain(..).map(Deed::Undone));
    }

    pub(super) fn abort(&mut self) {
        self.undo_changes();
        self.settings.undo();
        self.view.undo();
        self.channels_end(false);
        self.objects.end(false);
        self.end_transaction();
    }

    pub(super) fn commit(&mut self) {
        self.deeds.extend(self.changes.drain(..).map(Deed::Kept));
        self.settings.commit();
        self.view.keep();
        self.channels_end(true);
        self.objects.end(true);
        self.end_transaction();
    }

    pub(super) fn end_transaction(&mut self) {
        self.portals.clear();
        self.authors.clear();
        self.savepoints.clear();
        self.view.end();
        for plan in self.statements.values_mut().flat_map(|s| &mut s.plan) {
            plan.leave();
        }
        self.block = Block::None;
        self.implicit = false;
        self.leaves_shard();
    }

    pub(super) fn end_implicit(&mut self) {
        if self.block == Block::None {
            self.commit();
        }
    }
}
