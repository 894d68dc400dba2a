//! A listening connection is replaced, and its clients notice nothing.
//!
//! ```text
//!   old:  ... LISTEN mark;            | n1  n2  mark |
//!   new:      LISTEN all; LISTEN mark;    n2  mark   | n3 ...
//!             NOTIFY mark;
//! ```
//!
//! PostgreSQL sends notifications to all sessions of a database in one order. So notifications before the
//! mark are taken from the old connection, and those behind it from the new one: none is missed, and none
//! is delivered twice. No round begins meanwhile.

use super::Notification;
use crate::event::{ServerId, Time};

/// The channel of the mark. The notifying process id tells which connection's mark it is.
pub(super) const MARK: &[u8] = b"howdah_change";

/// The replacement of a listening connection, under way.
#[derive(Debug)]
pub struct Replacement {
    /// When this step began.
    pub since: Time,
    /// The old connection is closed even if there is no new one.
    pub must: bool,
    /// The new connection must be replaced, too, as soon as it has taken over.
    pub again: bool,
    /// The new connection, once it is logged in: its process id, too.
    pub heir: Option<(ServerId, u32)>,
    step: Step,
    /// What the new connection has heard behind the mark, while the old one has not heard the mark.
    behind: Vec<Notification>,
    /// The mark has come, on the old connection and the new one.
    seen: [bool; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The new connection is not ready.
    Opens,
    /// It is, and a round may be under way.
    Ready,
    /// Each connection begins to listen to the channels that it lacks; so many answers are owed.
    Listens(u8),
    /// The mark is under way: the answer to its Query is owed.
    Marks,
    /// It is answered.
    Marked,
}

/// What is to be done next.
#[derive(PartialEq, Eq, Debug)]
pub enum ReplacementStep {
    /// Nothing yet.
    Waits,
    /// The mark is to be sent.
    Mark,
    /// The new connection has taken over. These notifications came behind the mark.
    Over(Vec<Notification>),
}

impl Replacement {
    /// A new connection is wanted.
    pub fn new(now: Time, must: bool) -> Replacement {
        Replacement {
            since: now,
            must,
            again: false,
            heir: None,
            step: Step::Opens,
            behind: Vec::new(),
            seen: [false; 2],
        }
    }

    /// Rounds wait for its end.
    pub fn is_begun(&self) -> bool {
        !matches!(self.step, Step::Opens | Step::Ready)
    }

    /// The new connection may begin.
    pub fn is_ready(&self) -> bool {
        self.step == Step::Ready
    }

    /// The new connection has answered its first query.
    pub fn readies(&mut self, now: Time) {
        self.since = now;
        self.step = Step::Ready;
    }

    /// Both connections are sent what makes them listen.
    pub fn begins(&mut self, now: Time) {
        self.since = now;
        self.step = Step::Listens(2);
    }

    /// One of the two is ready again.
    pub fn answered(&mut self) -> ReplacementStep {
        match self.step {
            Step::Listens(1) => {
                self.step = Step::Marks;
                ReplacementStep::Mark
            }
            Step::Listens(owed) => {
                self.step = Step::Listens(owed - 1);
                ReplacementStep::Waits
            }
            Step::Marks => {
                self.step = Step::Marked;
                self.turn()
            }
            _ => ReplacementStep::Waits,
        }
    }

    /// A connection was notified. Returns what is to be told now.
    pub fn hears(
        &mut self,
        by: ServerId,
        heard: Notification,
    ) -> (Option<Notification>, ReplacementStep) {
        let new = self.heir.is_some_and(|(heir, _)| heir == by);
        let mark = self.heir.is_some_and(|(_, pid)| pid == heard.pid) && *heard.channel == *MARK;
        if mark {
            self.seen[usize::from(new)] = true;
            return (None, self.turn());
        }
        match (new, self.seen) {
            (false, [false, _]) => return (Some(heard), ReplacementStep::Waits),
            (true, [_, true]) => self.behind.push(heard),
            _ => {}
        }
        (None, ReplacementStep::Waits)
    }

    fn turn(&mut self) -> ReplacementStep {
        match self.step == Step::Marked && self.seen == [true; 2] {
            true => ReplacementStep::Over(std::mem::take(&mut self.behind)),
            false => ReplacementStep::Waits,
        }
    }
}
