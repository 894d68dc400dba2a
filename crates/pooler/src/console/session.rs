//! The state of an administrator's connection: the statements still to run, and the answers it waits for.

use std::collections::VecDeque;

use howdah_wire::backend::Status;

use crate::console::columns::Show;
use crate::console::prepared::Extended;
use crate::console::report::WorkerAnswer;
use crate::event::Order;
use crate::parcel::Standing;

/// An administrator's connection.
#[derive(Debug, Default)]
pub struct ConsoleSession {
    /// May give every command, not SHOW alone.
    pub(super) admin: bool,
    /// What is left of the Query at hand.
    pub(super) statements: VecDeque<String>,
    /// A Query is at hand: its ReadyForQuery is owed.
    pub(super) in_query: bool,
    /// A driver has begun a transaction block, which holds nothing.
    pub(super) block: bool,
    /// What is prepared and bound.
    pub(super) extended: Extended,
    /// What an answer is awaited for.
    pub(super) wait: Option<PendingSurvey>,
    /// It gave SUSPEND, which ends with it.
    pub(super) suspender: bool,
    /// Tells answers to this wait from late ones to an earlier.
    pub(super) serial: u64,
}

/// An answer is awaited.
#[derive(Debug)]
pub(super) struct PendingSurvey {
    pub(super) goal: Goal,
    /// How many workers have yet to answer.
    pub(super) left: u16,
    /// What the others said.
    pub(super) parts: Vec<WorkerAnswer>,
}

/// What an answer is awaited for.
#[derive(Debug)]
pub(super) enum Goal {
    /// Rows of a SHOW.
    Show(Show),
    /// All workers' obedience, for this command tag; a cancel request gives the other order.
    Order(&'static str, Option<Order>),
    /// Rest, so that a successor can take over.
    HandOver,
    /// Whether any worker had the client.
    KillClient,
    /// The control thread's word on a RELOAD.
    Reload,
    /// The same on a SET, with its command tag.
    Set(String),
    /// The end of the process.
    End,
}

impl ConsoleSession {
    /// One that begins.
    pub fn of(admin: bool) -> ConsoleSession {
        ConsoleSession {
            admin,
            ..ConsoleSession::default()
        }
    }

    /// What ReadyForQuery says.
    pub(super) fn status(&self) -> Status {
        if self.block {
            Status::Transaction
        } else {
            Status::Idle
        }
    }

    /// What undoes what it ordered, if that holds only while it is there.
    pub fn undo(&self) -> Option<Order> {
        let takes_over = |wait: &PendingSurvey| matches!(wait.goal, Goal::HandOver);
        if self.wait.as_ref().is_some_and(takes_over) {
            return Some(Order::GiveUp);
        }
        self.suspender.then_some(Order::Unsuspend)
    }

    /// How it stands, if nothing is under way.
    pub fn at_rest(&self) -> Option<Standing> {
        let busy = self.wait.is_some() || self.in_query || !self.statements.is_empty();
        let admin = self.admin;
        (!busy).then_some(Standing::Console { admin })
    }

    /// It is busy with what is over in a moment.
    pub fn rests_soon(&self) -> bool {
        use Goal::*;
        self.at_rest().is_none()
            && self
                .wait
                .as_ref()
                .is_none_or(|wait| matches!(wait.goal, Show(_) | KillClient | Reload | Set(_)))
    }
}
