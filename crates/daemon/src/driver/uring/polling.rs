//! Busy polling, for one client that talks to one server.
//!
//! With many clients a worker seldom sleeps: answers to some clients arrive while it works for others. With
//! one client alone, the worker sleeps twice in each transaction. On a virtual machine, waking a thread on a
//! sleeping core takes longer than all of Howdah's work for the transaction. So if bytes arrive from two
//! connections in turn, each time soon, the worker polls for a moment before it sleeps.
//!
//! Polling takes CPU, so it is bounded. A worker polls only if bytes arrive from two connections and no
//! third, only after a row of short waits, and never longer than the limit. Only one worker polls at a time.
//! After one wait without success, polling ends until the next row of short waits.

use std::sync::atomic::{AtomicBool, Ordering};

use howdah_pooler::event::Time;

use crate::driver::Key;

/// Polling begins after this many short waits in a row.
const ROW: u32 = 32;

/// A worker of this process is polling. Only one may: with two polling workers, no core might be
/// left for PostgreSQL and the client.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Decides whether to poll. Time is an argument.
pub(super) struct Polling {
    /// The longest polling of one wait, in nanoseconds; 0 for never.
    limit: u64,
    /// The connections whose bytes arrived last and before.
    pair: [Key; 2],
    /// How often bytes arrived from the two connections in turn.
    turns: u32,
    /// The number of short waits in a row.
    short: u32,
}

/// The right to poll now.
pub(super) struct PollTurn {
    /// When polling must end.
    pub(super) until: Time,
}

impl Drop for PollTurn {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Relaxed);
    }
}

impl Polling {
    pub(super) fn new(limit: std::time::Duration) -> Polling {
        // On one core, the sender of the answer needs the core.
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

    /// Bytes arrived from a connection.
    pub(super) fn heard(&mut self, key: Key) {
        let [last, before] = self.pair;
        if key == last {
            return;
        }
        self.turns = if key == before { self.turns + 1 } else { 0 };
        self.pair = [key, last];
    }

    /// True if bytes have arrived from two connections, and no third, for a while. Only then the
    /// lengths of waits are measured.
    pub(super) fn talk(&self) -> bool {
        self.limit > 0 && self.turns >= ROW
    }

    /// A wait begins. `Some` if it may begin with polling.
    pub(super) fn begin(&self, now: Time) -> Option<PollTurn> {
        // Read before the write: while one worker polls, the others only read.
        let free = self.short >= ROW
            && !TAKEN.load(Ordering::Relaxed)
            && !TAKEN.swap(true, Ordering::Relaxed);
        free.then_some(PollTurn {
            until: Time(now.0.saturating_add(self.limit)),
        })
    }

    /// A wait that began while [`Polling::talk`] was true is over.
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

    /// As on a machine with spare cores, whatever this machine has.
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

    // One test for all cases, because all polling shares one flag.
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

        // After one wait without success, a new row is needed.
        other.waited(Time(0), Time(LIMIT));
        assert!(other.begin(Time(0)).is_none());
        talk(&mut other, ROW / 2, 50_000);
        assert!(other.begin(Time(0)).is_some());

        // A long answer in pieces is not a third connection.
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
