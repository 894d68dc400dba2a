//! Busy polling, for one client that talks to one server.
//!
//! With many clients a worker seldom sleeps: answers to some clients arrive while it works for others. One
//! client alone makes the worker sleep twice in each transaction. On a virtual machine, waking a thread on
//! a sleeping core takes longer than everything Howdah does for the transaction. So a worker that hears
//! two connections in turn, each soon after the other, polls for the next bytes for a moment before it
//! sleeps.
//!
//! Polling takes CPU, so it is bounded. A worker polls only while it hears two connections and no third,
//! only after a row of short waits, and never longer than the limit. One worker polls at a time. One wait
//! without success ends polling until the next row of short waits.

use std::sync::atomic::{AtomicBool, Ordering};

use howdah_pooler::event::Time;

use crate::driver::Key;

/// So many waits in a row must have been short before polling begins.
const ROW: u32 = 32;

/// A worker of this process is polling. One is enough: with two of them awake all the time,
/// nothing may be left for those whose answers they await.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether it is worth to poll. Time is an argument.
pub(super) struct Polling {
    /// The longest that one wait polls, in nanoseconds; 0 for never.
    limit: u64,
    /// Who was heard last, and who before.
    pair: [Key; 2],
    /// How often one of the pair was heard in turn with the other.
    turns: u32,
    /// How many waits in a row were short.
    short: u32,
}

/// The right to poll now.
pub(super) struct PollTurn {
    /// When to give up.
    pub(super) until: Time,
}

impl Drop for PollTurn {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Relaxed);
    }
}

impl Polling {
    pub(super) fn new(limit: std::time::Duration) -> Polling {
        // Whoever sends the answer needs a core of its own.
        let alone = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let nobody = Key {
            slot: u32::MAX,
            generation: 0,
        };
        Polling {
            limit: if alone { 0 } else { limit },
            pair: [nobody; 2],
            turns: 0,
            short: 0,
        }
    }

    /// Bytes of a connection arrived.
    pub(super) fn heard(&mut self, key: Key) {
        let [last, before] = self.pair;
        if key == last {
            return;
        }
        self.turns = if key == before { self.turns + 1 } else { 0 };
        self.pair = [key, last];
    }

    /// Whether two connections, and no third, have been heard for a while: only then is the time
    /// of waits of interest.
    pub(super) fn talk(&self) -> bool {
        self.limit > 0 && self.turns >= ROW
    }

    /// A wait begins. Something if it shall begin with polling.
    pub(super) fn begin(&self, now: Time) -> Option<PollTurn> {
        // Looked at before it is written: while one worker polls, the others only read.
        let free = self.short >= ROW
            && !TAKEN.load(Ordering::Relaxed)
            && !TAKEN.swap(true, Ordering::Relaxed);
        free.then_some(PollTurn {
            until: Time(now.0.saturating_add(self.limit)),
        })
    }

    /// A wait that began while [`Polling::talk`] held is over.
    pub(super) fn waited(&mut self, from: Time, to: Time) {
        let short = to.0.saturating_sub(from.0) < self.limit;
        self.short = if short { (self.short + 1).min(ROW) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LIMIT: u64 = 100_000;

    fn key(slot: u32) -> Key {
        Key {
            slot,
            generation: 1,
        }
    }

    /// A machine with cores to spare, whatever the one at hand has.
    fn polling() -> Polling {
        Polling {
            limit: LIMIT,
            ..Polling::new(Duration::ZERO)
        }
    }

    fn talk(polling: &mut Polling, rounds: u32, wait: u64) {
        for _ in 0..rounds {
            for slot in [1, 2] {
                polling.heard(key(slot));
                if polling.talk() {
                    polling.waited(Time(0), Time(wait));
                }
            }
        }
    }

    // One test, since all share who polls.
    #[test]
    fn one_worker_polls_for_two_connections_that_answer_soon() {
        let mut fresh = polling();
        assert!(fresh.begin(Time(0)).is_none());
        talk(&mut fresh, 2 * ROW, 50_000);
        let turn = fresh.begin(Time(7)).expect("a row of short waits");
        assert_eq!(turn.until, Time(7 + LIMIT));

        let mut other = polling();
        talk(&mut other, 2 * ROW, 50_000);
        assert!(other.begin(Time(0)).is_none(), "another worker polls");
        drop(turn);
        assert!(other.begin(Time(0)).is_some());

        // In vain once, and the row starts anew.
        other.waited(Time(0), Time(LIMIT));
        assert!(other.begin(Time(0)).is_none());
        talk(&mut other, ROW / 2, 50_000);
        assert!(other.begin(Time(0)).is_some());

        // A long answer in pieces is no third voice; a third connection is.
        other.heard(key(2));
        assert!(other.talk());
        other.heard(key(3));
        assert!(!other.talk());

        let mut slow = polling();
        talk(&mut slow, 10 * ROW, LIMIT);
        assert!(slow.begin(Time(0)).is_none(), "the waits are long");

        let mut off = Polling::new(Duration::ZERO);
        talk(&mut off, 10 * ROW, 50_000);
        assert!(!off.talk() && off.begin(Time(0)).is_none());
    }
}
