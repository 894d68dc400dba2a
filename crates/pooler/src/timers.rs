//! Deadlines of connections. A connection has at most one entry, which is corrected only when it comes up,
//! so a transaction touches nothing here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::event::{Peer, Time};

/// Deadlines of connections, at most one entry for each.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Time, Peer)>>,
}

impl Timers {
    /// Makes sure that `peer` comes up no later than `at`. `entry` is when it comes up now (zero:
    /// never); it is kept by the connection.
    #[inline]
    pub fn arm(&mut self, peer: Peer, at: Time, entry: &mut Time) {
        if entry.0 != 0 && *entry <= at {
            return;
        }
        *entry = at;
        self.heap.push(Reverse((at, peer)));
    }

    /// The earliest entry's time.
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// All entries, old ones among them.
    pub fn entries(&self) -> impl Iterator<Item = (Time, Peer)> {
        self.heap.iter().map(|Reverse(entry)| *entry)
    }

    /// Takes out one entry that is due. It may be an old one: compare it with the connection's.
    pub fn pop_due(&mut self, now: Time) -> Option<(Time, Peer)> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| due)
    }
}
