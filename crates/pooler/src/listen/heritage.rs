//! LISTEN across a takeover (`-R`). Old and new process number notifications in the same way. A client moves
//! with the number of the last notification that it received.
//!
//! ```text
//!   old:  ... n n n  mark | 1 2 3 4 5 6 7 ...      the client got up to 4
//!   new:      LISTEN all; | 1 2 3 4 5 6 7 ...      the client goes on with 5
//!             NOTIFY mark
//! ```
//!
//! Clients of job queues listen for ever. If these clients did not move, each `-R` would leave an old process
//! behind for good. PostgreSQL sends notifications to all sessions of a database in one order. So:
//!
//! 1. The old process makes up a mark that nobody can guess, and listens to [`MARK`]. It sends the new
//!    process the mark and all channels that it listens to. Channels that are added later are sent with a
//!    later mark ([`Reach`]). From then on the old process keeps listening to these channels.
//! 2. The new process listens to the same channels, and then notifies the mark. When the old process receives
//!    the mark, it knows that both processes are in the same database and receive the same notifications from
//!    the mark on. Both processes number the notifications after the mark, and remember the last of them
//!    ([`Heritage`]).
//! 3. A client moves when it is idle and has received every notification. The number of the last one moves
//!    with it. The new process delivers the later notifications, which it remembers. So a client may move at
//!    any time. If a client comes back, the old process does the same.
//!
//! While clients listen in the old process, the old process makes up another mark every few seconds. Clients
//! move by the last mark that was sent to the new process, once that mark has come back. This covers two
//! cases:
//!
//! - A client listens to a channel that the new process does not hear yet. The client moves with a later
//!   mark, when the new process hears the channel.
//! - The new process has lost its connection, and with it the notifications that it remembered. The next mark
//!   comes back only when the new process listens again. Clients that moved in between are treated as if
//!   their listening connection were lost.
//!
//! If no mark comes back, all clients stay. (There may be no room for a second connection, or the second
//! connection may lead to another database.) A process remembers a bounded amount of notifications. If the
//! new process no longer remembers the notifications after a client's number, the client is treated as if its
//! listening connection were lost.
//!
//! The listener never serves the channels of the marks to clients (`MARKS` in `hearing.rs`), because the two
//! processes do not receive the same notifications on them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Hearer, Name, Notification, NotificationPosition, Reach};
use crate::event::{ClientId, Time, WorkerId};
use crate::limits;

/// The channel of the marks.
pub(super) const MARK: &[u8] = b"howdah_takeover";

/// A hearer that is no client. It stands for the other process: while it hears a channel, this
/// process keeps listening to the channel.
pub(super) const PARTNER: Hearer = (
    WorkerId(u16::MAX),
    ClientId {
        index: u32::MAX,
        generation: u32::MAX,
    },
);

/// How long after one mark the next mark is made up, for clients that have not moved, in
/// nanoseconds.
const AGAIN_NS: u64 = 10_000_000_000;

/// How long after the end of the old process its notifications are remembered, in nanoseconds: its
/// last clients are still on their way.
const LINGERS_NS: u64 = 30_000_000_000;

/// How many marks are kept at a time for clients that leave, and how many for clients that come.
/// While a new mark is tried, clients are still on their way with an older mark.
const MARKS: usize = 3;

/// The notifications that were received after a mark.
#[derive(Debug)]
struct Heritage {
    reach: Arc<Reach>,
    /// Clients leave this process by this mark. False: clients come to this process by this mark.
    leaves: bool,
    since: Time,
    /// For leaving clients: the mark was sent to the other process. For arriving clients: the mark
    /// was notified.
    told: bool,
    /// How many notifications came after the mark. `None` until the mark itself has come.
    count: Option<u64>,
    /// The last of these notifications.
    last: VecDeque<Arc<Notification>>,
    size: usize,
}

impl Heritage {
    fn keeps(&mut self, heard: &Arc<Notification>) {
        let Some(count) = self.count.as_mut() else {
            return;
        };
        *count += 1;
        self.size += heard.size();
        self.last.push_back(heard.clone());
        while self.size > limits::HEARD
            && let Some(oldest) = self.last.pop_front()
        {
            self.size -= oldest.size();
        }
    }

    fn covers(&self, heard: &Notification) -> bool {
        self.count.is_some() && self.reach.names.contains(&heard.channel)
    }
}

/// The marks that a listener shares with other processes.
#[derive(Debug, Default)]
pub struct Heritages {
    all: VecDeque<Heritage>,
    /// At the end of the next round, the other process is sent all channels of this listener, with
    /// this mark.
    prepares: Option<u128>,
    /// Some time after the end of the old process: when its marks can be forgotten.
    over_at: Option<Time>,
}

/// The notifications that an arriving client has missed.
#[derive(PartialEq, Eq, Debug)]
pub enum Since {
    /// These. The client may not listen to all of their channels.
    Missed(Vec<Arc<Notification>>),
    /// The client has received notifications that this process has not received yet.
    Ahead,
    /// This process does not remember them.
    Unknown,
}

impl Heritages {
    /// Begins to prepare the other process with a new mark. False if a mark is already being
    /// prepared or recent, or if no client needs another one. `hears` says whether any client still
    /// hears a channel here.
    pub fn prepare(&mut self, now: Time, mark: u128, hears: bool) -> bool {
        let last = self.all.iter().rfind(|heritage| heritage.leaves);
        let due = |last: &Heritage| now.0 >= last.since.0.saturating_add(AGAIN_NS);
        let wants = self.prepares.is_none() && last.is_none_or(|last| hears && due(last));
        if wants {
            self.prepares = Some(mark);
        }
        wants
    }

    /// The connection listens to the marks, and to the channels `names`. True if a mark was being
    /// prepared.
    pub fn prepared(&mut self, now: Time, names: &[Name]) -> bool {
        let Some(mark) = self.prepares.take() else {
            return false;
        };
        self.add(now, mark, names, true);
        true
    }

    /// The connection can't listen to the marks.
    pub fn unprepared(&mut self) {
        self.prepares = None;
    }

    /// Another process hears these channels, and its clients come here.
    pub fn inherit(&mut self, now: Time, mark: u128, names: &[Name]) {
        self.over_at = None;
        self.add(now, mark, names, false);
    }

    fn add(&mut self, now: Time, mark: u128, names: &[Name], leaves: bool) {
        let names = names.iter().filter(|name| ***name != *MARK);
        self.make_room(leaves);
        let names = names.cloned().collect();
        self.all.push_back(Heritage {
            reach: Arc::new(Reach { mark, names }),
            leaves,
            since: now,
            told: false,
            count: None,
            last: VecDeque::new(),
            size: 0,
        });
    }

    /// Forgets the oldest mark of this direction if there are too many marks. The last mark that
    /// has come stays, because clients count from this mark.
    fn make_room(&mut self, leaves: bool) {
        let alike = |heritage: &Heritage| heritage.leaves == leaves;
        if self.all.iter().filter(|h| alike(h)).count() < MARKS {
            return;
        }
        let last = self.all.iter().rposition(|h| alike(h) && h.count.is_some());
        let mut all = self.all.iter().enumerate();
        let oldest = all.find(|(at, heritage)| alike(heritage) && Some(*at) != last);
        if let Some((at, _)) = oldest {
            self.all.remove(at);
        }
    }

    /// The listener knows this mark.
    pub fn knows(&self, mark: u128) -> bool {
        self.all.iter().any(|heritage| heritage.reach.mark == mark)
    }

    /// The channels and the mark that the new process must be sent now.
    pub fn untold(&mut self) -> Option<Arc<Reach>> {
        let mut all = self.all.iter_mut();
        let untold = all.find(|heritage| heritage.leaves && !heritage.told)?;
        untold.told = true;
        Some(untold.reach.clone())
    }

    /// The marks that must be notified now. `hears` says whether both processes listen to a
    /// channel.
    pub fn marks(&mut self, hears: impl Fn(&[u8]) -> bool) -> Vec<String> {
        let mut marks = Vec::new();
        for heritage in self.all.iter_mut().filter(|h| !h.leaves && !h.told) {
            let mut names = heritage.reach.names.iter();
            if hears(MARK) && names.all(|name| hears(name)) {
                heritage.told = true;
                marks.push(payload(heritage.reach.mark));
            }
        }
        marks
    }

    /// The connection received a notification. True if the notification is a mark by which clients
    /// can leave.
    pub fn hears(&mut self, mut heard: Notification) -> (Arc<Notification>, bool) {
        let mut leave = false;
        if *heard.channel == *MARK {
            let unmarked = self.all.iter_mut().filter(|h| h.count.is_none());
            for heritage in unmarked {
                if *heard.payload == *payload(heritage.reach.mark).as_bytes() {
                    heritage.count = Some(0);
                    leave |= heritage.leaves;
                }
            }
        }
        let leaving = self.leaving().filter(|leaving| leaving.covers(&heard));
        heard.number = leaving.map_or(0, |leaving| leaving.count.unwrap_or(0) + 1);
        let heard = Arc::new(heard);
        for heritage in self.all.iter_mut().filter(|h| h.covers(&heard)) {
            heritage.keeps(&heard);
        }
        (heard, leave)
    }

    fn leaving(&self) -> Option<&Heritage> {
        let mut last = self.all.iter().rev();
        last.find(|heritage| heritage.leaves && heritage.count.is_some())
    }

    /// The channels of the clients that can leave, and the number of the last notification. No
    /// number: no client can leave, because the last mark sent to the other process has not come
    /// back.
    pub fn reached(&self) -> Option<(Arc<Reach>, Option<u64>)> {
        let mut all = self.all.iter();
        let last = all.rfind(|heritage| heritage.leaves && heritage.told)?;
        Some((last.reach.clone(), last.count))
    }

    /// The notifications that an arriving client has missed on its way.
    pub fn since(&self, place: &NotificationPosition, names: &[Name]) -> Since {
        let found = self.all.iter().find(|h| h.reach.mark == place.mark);
        let Some(found) = found.filter(|h| names.iter().all(|n| h.reach.names.contains(n))) else {
            return Since::Unknown;
        };
        let Some(missed) = found.count.unwrap_or(0).checked_sub(place.number) else {
            return Since::Ahead;
        };
        let missed = usize::try_from(missed).unwrap_or(usize::MAX);
        match found.last.len().checked_sub(missed) {
            _ if found.count.is_none() => Since::Ahead,
            Some(known) => Since::Missed(found.last.iter().skip(known).cloned().collect()),
            None => Since::Unknown,
        }
    }

    /// The old process has ended.
    pub fn ends(&mut self, now: Time) {
        self.over_at = Some(Time(now.0.saturating_add(LINGERS_NS)));
    }

    /// True if no client comes or leaves any more. The caller then also drops the other process as
    /// a hearer.
    pub fn are_over(&mut self, now: Time) -> bool {
        if self.over_at.is_none_or(|at| now < at) {
            return false;
        }
        self.over_at = None;
        self.all.retain(|heritage| heritage.leaves);
        self.all.is_empty() && self.prepares.is_none()
    }
}

/// The payload with which a mark is notified.
fn payload(mark: u128) -> String {
    format!("{mark:032x}")
}
