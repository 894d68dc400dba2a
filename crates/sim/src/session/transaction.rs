//! The ends of a session's transactions.

use std::collections::VecDeque;

use super::{Block, Deed, Fault, READY_LENGTH, Session};

impl Session {
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
    }

    pub(super) fn end_implicit(&mut self) {
        if self.block == Block::None {
            self.commit();
        }
    }
}
