//! Deadlines of connections. A connection has at most one valid entry, which is corrected only when
//! it expires, so transactions never touch the timers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::event::{Peer, Time};

/// The timers of a worker.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Time, Peer)>>,
}

impl Timers {
    /// Makes sure that the entry of `peer` expires no later than `at`. `entry` is the current
    /// entry, kept by the connection (zero: none).
    #[inline]
    pub fn arm(&mut self, peer: Peer, at: Time, entry: &mut Time) {
        if entry.0 != 0 && *entry <= at {
            return;
        }
        *entry = at;
        self.heap.push(Reverse((at, peer)));
    }

    /// The time of the earliest entry.
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// All entries, including replaced ones.
    pub fn entries(&self) -> impl Iterator<Item = (Time, Peer)> {
        self.heap.iter().map(|Reverse(entry)| *entry)
    }

    /// Removes one expired entry. It may be an old one: compare it with the connection's.
    pub fn pop_due(&mut self, now: Time) -> Option<(Time, Peer)> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| due)
    }
}
