//! A worker's knowledge of moves (`moving.rs`): clients that are to move, and the locations of
//! clients whose cancel keys name this worker.

use std::sync::Arc;

use crate::cancel::keys::OldKey;
use crate::ids::{ClientId, Time, WorkerId};
use crate::pool::key::PoolKey;

/// How often a worker looks for clients that can move, in nanoseconds.
pub(crate) const SHED_NS: u64 = 5_000_000;

/// How long a note is still followed after the client's home knows the client's worker, in
/// nanoseconds.
const FOLLOWED_NS: u64 = 300_000_000;

/// A note of a client's move.
#[derive(Debug)]
pub(crate) struct MoveNote {
    pub(crate) number: u64,
    pub(crate) key: OldKey,
    /// The client's number in the console.
    pub(crate) client: u64,
    pub(crate) to: WorkerId,
    /// When the client's home learned the client's worker. Mail sent before that still follows the
    /// note for a while.
    pub(crate) told: Option<Time>,
    /// The client has come back since, so the note does not count.
    pub(crate) past: bool,
}

/// An order to move clients to another worker.
#[derive(Debug)]
pub(crate) struct Shed {
    pub(crate) pool: Arc<PoolKey>,
    pub(crate) to: WorkerId,
    pub(crate) left: u32,
    /// Idle clients move, too.
    pub(crate) idle: bool,
    pub(crate) until: Time,
    /// When to look again for clients that can move.
    pub(crate) next: Time,
    /// How many clients moved in this round; in how many rounds in a row none could.
    pub(crate) gone: u32,
    pub(crate) vain: u32,
}

/// A cancel request for a client that is about to leave.
#[derive(Debug)]
pub(crate) struct HeldCancel {
    pub(crate) client: ClientId,
    pub(crate) pid: u32,
    pub(crate) secret: Box<[u8]>,
    pub(crate) from: (WorkerId, ClientId),
}

/// A worker's knowledge of moves.
#[derive(Debug, Default)]
pub struct Moves {
    pub(crate) sheds: Vec<Shed>,
    /// When all clients were last searched for clients that can move.
    pub(crate) looked: Time,
    pub(crate) next_shed: Option<Time>,
    /// Since when the client that is just arriving has waited for a server on its old worker.
    pub(crate) arriving: Option<Time>,
    pub(crate) notes: Vec<MoveNote>,
    pub(crate) noted: u64,
    pub(crate) cancels: Vec<HeldCancel>,
    /// Clients that have left for other workers.
    pub(crate) departed: u64,
    /// Clients that have come from other workers.
    pub(crate) arrived: u64,
}

impl Moves {
    /// When to look for clients that can move.
    pub fn next(&self) -> Option<Time> {
        self.next_shed
    }

    /// The earliest time for the next search of all clients.
    pub(crate) fn looks_next(&self) -> Time {
        Time(self.looked.0 + SHED_NS)
    }

    /// Sets the time of the next search.
    pub(crate) fn plan(&mut self) {
        let next = self.sheds.iter().map(|shed| shed.next).min();
        self.next_shed = next.map(|next| next.max(self.looks_next()));
    }

    /// How many clients have moved without their homes knowing yet.
    pub fn under_way(&self) -> usize {
        let untold = self.notes.iter().filter(|note| note.told.is_none());
        untold.count()
    }

    /// Forgets notes that mail need not follow.
    pub(crate) fn tidy(&mut self, now: Time) {
        let over = |since: Time| now.0 >= since.0 + FOLLOWED_NS;
        self.notes.retain(|note| !note.told.is_some_and(over));
    }

    /// The worker that the client with this key moved to, and whether the client's home knows.
    pub(crate) fn gone_to(&self, is_it: impl Fn(&OldKey) -> bool) -> Option<(WorkerId, bool)> {
        let mut latest = self.notes.iter().rev();
        let latest = latest.find(|note| !note.past && is_it(&note.key));
        latest.map(|note| (note.to, note.told.is_some()))
    }

    /// The client with this key is here again, so its older notes do not count. All notes about a
    /// client thus lead forward in time, and mail never circles.
    pub(crate) fn comes_back(&mut self, key: &OldKey) {
        let notes = self.notes.iter_mut();
        notes
            .filter(|note| note.key == *key)
            .for_each(|note| note.past = true);
    }

    /// The worker that the client with this console number moved to.
    pub(crate) fn followed(&self, client: u64) -> Option<WorkerId> {
        let mut latest = self.notes.iter().rev();
        let latest = latest.find(|note| !note.past && note.client == client);
        latest.map(|note| note.to)
    }

    /// The client's home knows the client's worker.
    pub(crate) fn noted(&mut self, number: u64, now: Time) {
        let found = self.notes.binary_search_by_key(&number, |note| note.number);
        if let Ok(at) = found {
            self.notes[at].told = Some(now);
        }
    }

    /// Holds a cancel request until its client has left.
    pub(crate) fn hold_cancel(
        &mut self,
        client: ClientId,
        pid: u32,
        secret: Box<[u8]>,
        from: (WorkerId, ClientId),
    ) {
        self.cancels.push(HeldCancel {
            client,
            pid,
            secret,
            from,
        });
    }
}
