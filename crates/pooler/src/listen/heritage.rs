//! LISTEN across a takeover (`-R`): two processes number the notifications that they hear alike, and a
//! client moves with the number of its last one.
//!
//! ```text
//!   old:  ... n n n  mark | 1 2 3 4 5 6 7 ...      the client got up to 4
//!   new:      LISTEN all; | 1 2 3 4 5 6 7 ...      the client goes on with 5
//!             NOTIFY mark
//! ```
//!
//! Job queues listen for ever. If their clients did not move, each `-R` would leave a process behind for
//! good. PostgreSQL sends notifications to all sessions of a database in one order. So:
//!
//! 1. The old process makes up a mark that nobody can guess, and listens to [`MARK`]. It tells the new
//!    process the mark and all channels that it listens to, and later the channels that are added
//!    ([`Reach`]). From then on it stops listening to none of them.
//! 2. The new process listens to the same channels, and then notifies the mark. When the old process hears
//!    the mark, it knows that both are in the same database and hear the same from there on. Both number
//!    the notifications behind the mark, and remember the last of them ([`Heritage`]).
//! 3. A client travels when it is idle and has got every notification, with the number of the last one.
//!    The new process delivers the later ones, from those that it remembers. So a client may move at any
//!    time. If a client comes back, the old process does the same.
//!
//! While clients listen in the old process, it makes up another mark every few seconds. Clients move by
//! the last mark that the new process was told of, once that mark has come. This covers two cases:
//!
//! - A client listens to a channel that the new process does not hear yet. The client moves when the new
//!   process does.
//! - The new process has lost its connection, and with it what it remembered. The next mark does not come
//!   until the new process listens again, so only clients that have moved in between are treated as if
//!   their listening connection were lost.
//!
//! If no mark comes, all clients stay: there may be no room for a second connection, or it may lead to
//! another database. A process remembers a bounded amount. If a client's next number is no longer
//! remembered, the client is treated as if its listening connection were lost.
//!
//! Clients can't listen to the channels of the marks by these connections (`MARKS` in `hearing.rs`), because
//! the two processes do not hear the same on them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Hearer, Name, Notification, NotificationPosition, Reach};
use crate::event::{ClientId, Time, WorkerId};
use crate::limits;

/// The channel of the marks.
pub(super) const MARK: &[u8] = b"howdah_takeover";

/// Who hears what another process hears, too, so that neither stops listening to it. No client.
pub(super) const PARTNER: Hearer = (
    WorkerId(u16::MAX),
    ClientId {
        index: u32::MAX,
        generation: u32::MAX,
    },
);

/// After that time another mark is made up for those who have not followed, in nanoseconds.
const AGAIN_NS: u64 = 10_000_000_000;

/// For how long after the end of the old process what was heard is remembered, in nanoseconds: its
/// last clients are on their way.
const LINGERS_NS: u64 = 30_000_000_000;

/// How many marks are known at a time of those who leave, and of those who come: one may be tried
/// while clients are still on their way by another.
const MARKS: usize = 3;

/// What was heard behind a mark.
#[derive(Debug)]
struct Heritage {
    reach: Arc<Reach>,
    /// Clients leave this process, and don't come to it.
    leaves: bool,
    since: Time,
    /// The other process is told of it, or the mark is sent.
    told: bool,
    /// How many notifications were heard, once the mark is.
    count: Option<u64>,
    /// The last of them.
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

/// What a listener has to do with other processes.
#[derive(Debug, Default)]
pub struct Heritages {
    all: VecDeque<Heritage>,
    /// The next round's end is where another process is told what is listened to, with this mark.
    prepares: Option<u128>,
    /// When the old process has ended, and some time has passed.
    over_at: Option<Time>,
}

/// What a client that has come has missed.
#[derive(PartialEq, Eq, Debug)]
pub enum Since {
    /// This, perhaps more than it listens to.
    Missed(Vec<Arc<Notification>>),
    /// It was told more than was heard here.
    Ahead,
    /// Nobody knows.
    Unknown,
}

impl Heritages {
    /// Another process is to be told what is listened to. False if it was, a short time ago, or nobody
    /// is left: `hears` says whether any client still hears something here.
    pub fn prepare(&mut self, now: Time, mark: u128, hears: bool) -> bool {
        let last = self.all.iter().rfind(|heritage| heritage.leaves);
        let due = |last: &Heritage| now.0 >= last.since.0.saturating_add(AGAIN_NS);
        let wants = self.prepares.is_none() && last.is_none_or(|last| hears && due(last));
        if wants {
            self.prepares = Some(mark);
        }
        wants
    }

    /// The connection listens to the marks. True if that was awaited: this is what else it listens to.
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

    /// Another process hears this, and its clients come here.
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

    /// The oldest mark of these is forgotten if there are too many, but never the last one that has
    /// come: clients count by that.
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

    /// It knows this mark.
    pub fn knows(&self, mark: u128) -> bool {
        self.all.iter().any(|heritage| heritage.reach.mark == mark)
    }

    /// What the new process is to be told now.
    pub fn untold(&mut self) -> Option<Arc<Reach>> {
        let mut all = self.all.iter_mut();
        let untold = all.find(|heritage| heritage.leaves && !heritage.told)?;
        untold.told = true;
        Some(untold.reach.clone())
    }

    /// The marks to be sent now: `hears` says what both processes listen to.
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

    /// The connection was notified. True if that was the mark behind which clients can leave.
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

    /// Which clients can leave, and how far those have been told that have been told all. No number:
    /// none can, as the last mark that the other process was told of has not come.
    pub fn reached(&self) -> Option<(Arc<Reach>, Option<u64>)> {
        let mut all = self.all.iter();
        let last = all.rfind(|heritage| heritage.leaves && heritage.told)?;
        Some((last.reach.clone(), last.count))
    }

    /// What a client that listens to this has missed on its way.
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

    /// True if nobody comes any more, or leaves, and the partner of the other process hears nothing.
    pub fn are_over(&mut self, now: Time) -> bool {
        if self.over_at.is_none_or(|at| now < at) {
            return false;
        }
        self.over_at = None;
        self.all.retain(|heritage| heritage.leaves);
        self.all.is_empty() && self.prepares.is_none()
    }
}

/// A mark as it is notified.
fn payload(mark: u128) -> String {
    format!("{mark:032x}")
}
