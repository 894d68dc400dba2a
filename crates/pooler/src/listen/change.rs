//! A new listening connection replaces an old one, and its clients notice nothing.
//!
//! ```text
//!   old:  ... LISTEN mark;            | n1  n2  mark |
//!   new:      LISTEN all; LISTEN mark;    n2  mark   | n3 ...
//!             NOTIFY mark;
//! ```
//!
//! PostgreSQL sends notifications to all sessions of a database in one order. So Howdah takes notifications
//! before the mark from the old connection, and notifications after the mark from the new one. No
//! notification is lost, and none is delivered twice. No round begins meanwhile.

use super::Notification;
use crate::event::{ServerId, Time};

/// The channel of the mark. Each replacement sends its own mark; the process id in the notification
/// tells them apart.
pub(super) const MARK: &[u8] = b"howdah_change";

/// The replacement of a listening connection, under way.
#[derive(Debug)]
pub struct Replacement {
    /// When the current step began.
    pub since: Time,
    /// The old connection is closed even if no new connection can be opened.
    pub must: bool,
    /// The new connection must itself be replaced as soon as it has taken over.
    pub again: bool,
    /// The new connection, once it is logged in, with its process id.
    pub heir: Option<(ServerId, u32)>,
    step: Step,
    /// Notifications that the new connection received after the mark, while the old connection has
    /// not received the mark.
    behind: Vec<Notification>,
    /// The mark has arrived: on the old connection, on the new one.
    seen: [bool; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The new connection is not ready.
    Opens,
    /// The new connection is ready. A round may still be under way on the old one.
    Ready,
    /// Both connections have been sent LISTEN commands. The number counts the answers that are
    /// owed.
    Listens(u8),
    /// The mark has been sent: the answer to its Query is owed.
    Marks,
    /// The mark's Query is answered.
    Marked,
}

/// The next thing to do.
#[derive(PartialEq, Eq, Debug)]
pub enum ReplacementStep {
    /// Nothing yet.
    Waits,
    /// Send the mark.
    Mark,
    /// The new connection has taken over. These notifications came after the mark.
    Over(Vec<Notification>),
}

impl Replacement {
    /// A new connection is wanted, but not open yet.
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

    /// The replacement has sent commands. New rounds wait for its end.
    pub fn is_begun(&self) -> bool {
        !matches!(self.step, Step::Opens | Step::Ready)
    }

    /// The new connection is ready to be sent its commands.
    pub fn is_ready(&self) -> bool {
        self.step == Step::Ready
    }

    /// The new connection has answered its first query.
    pub fn readies(&mut self, now: Time) {
        self.since = now;
        self.step = Step::Ready;
    }

    /// Both connections are being sent their LISTEN commands.
    pub fn begins(&mut self, now: Time) {
        self.since = now;
        self.step = Step::Listens(2);
    }

    /// One of the two connections has answered.
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

    /// A connection received a notification. Returns the notification if the clients must get it
    /// now.
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
