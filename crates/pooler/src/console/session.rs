//! The state of an administrator's connection: the statements still to run, and the answers it waits for.

use std::collections::VecDeque;

use howdah_wire::backend::Status;

use crate::cancel::seek::Rounds;
use crate::console::columns::Show;
use crate::console::prepared::Extended;
use crate::console::report::{Want, WorkerAnswer};
use crate::console::sentence::RouteQuestion;
use crate::event::Order;
use crate::parcel::Standing;

/// An administrator's connection.
#[derive(Debug, Default)]
pub struct ConsoleSession {
    /// The administrator may send every command, not only SHOW.
    pub(super) admin: bool,
    /// The rest of the current Query.
    pub(super) statements: VecDeque<String>,
    /// A Query is running: its ReadyForQuery is owed.
    pub(super) in_query: bool,
    /// A driver has begun a transaction block, which has no effect.
    pub(super) block: bool,
    /// The prepared statements and portals.
    pub(super) extended: Extended,
    /// The answer that the console waits for.
    pub(super) wait: Option<PendingSurvey>,
    /// The console has sent SUSPEND, which ends when the console leaves.
    pub(super) suspender: bool,
    /// The number of the current wait. It distinguishes its answers from late answers to earlier
    /// waits.
    pub(super) serial: u64,
}

/// A wait for workers' answers.
#[derive(Debug)]
pub(super) struct PendingSurvey {
    pub(super) goal: Goal,
    /// The number of workers that have not answered yet.
    pub(super) left: u16,
    /// The answers of the other workers.
    pub(super) parts: Vec<WorkerAnswer>,
    /// The next question, when all workers have answered this one.
    pub(super) again: Option<Want>,
}

/// The purpose of a wait.
#[derive(Debug)]
pub(super) enum Goal {
    /// Rows of a SHOW.
    Show(Show),
    /// All workers must carry out an order; the answer is this command tag. A cancel request sends
    /// the second order.
    Order(&'static str, Option<Order>),
    /// All workers must be at rest, so that a successor can take over.
    HandOver,
    /// Some worker must disconnect the client with this number.
    KillClient(u64, Rounds),
    /// The control thread's answer to a RELOAD.
    Reload,
    /// The control thread's answer to a SET, with the command tag.
    Set(String),
    /// What SHARD_SQL says of a database.
    ShardSql(String),
    /// What ROUTE says of a statement.
    Route(Box<RouteQuestion>),
    /// The end of the process.
    End,
}

impl ConsoleSession {
    /// A new session.
    pub fn of(admin: bool) -> ConsoleSession {
        ConsoleSession {
            admin,
            ..ConsoleSession::default()
        }
    }

    /// The status in ReadyForQuery.
    pub(super) fn status(&self) -> Status {
        if self.block {
            Status::Transaction
        } else {
            Status::Idle
        }
    }

    /// The order that undoes the session's own order, if that lasts only while the session does.
    pub fn undo(&self) -> Option<Order> {
        let takes_over = |wait: &PendingSurvey| matches!(wait.goal, Goal::HandOver);
        if self.wait.as_ref().is_some_and(takes_over) {
            return Some(Order::GiveUp);
        }
        self.suspender.then_some(Order::Unsuspend)
    }

    /// The session's state, if nothing is under way.
    pub fn at_rest(&self) -> Option<Standing> {
        let busy = self.wait.is_some() || self.in_query || !self.statements.is_empty();
        let admin = self.admin;
        (!busy).then_some(Standing::Console { admin })
    }

    /// True if everything under way will be over in a moment.
    pub fn rests_soon(&self) -> bool {
        use Goal::*;
        self.at_rest().is_none()
            && self.wait.as_ref().is_none_or(|wait| {
                matches!(
                    wait.goal,
                    Show(_) | KillClient(..) | Reload | Set(_) | ShardSql(_) | Route(_)
                )
            })
    }
}
