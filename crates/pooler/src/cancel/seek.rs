//! Searches for a client that may be on any worker.

use std::collections::BTreeMap;

use crate::ids::{ClientId, WorkerId};
use crate::signal::Signal;

/// After so many rounds without success a search is over, however many clients move.
const MOST_ROUNDS: u8 = 8;

/// The client that is sought, and what is to happen to it.
#[derive(Clone, Debug)]
pub enum Whom {
    /// Cancel the statement of the client with this key.
    Key {
        /// The key's first half.
        pid: u32,
        /// The key's second half.
        secret: Box<[u8]>,
    },
    /// Send a signal to the client that was told a process id.
    Told(Box<Signal>),
}

/// A question to each worker.
#[derive(Clone, Debug)]
pub struct Seek {
    /// The client.
    pub whom: Whom,
    /// The worker that asks, and the number of its search.
    pub from: (WorkerId, u64),
    /// A second look: nothing ran when the question came, and all earlier bytes have been handled
    /// since.
    pub again: bool,
}

/// A worker's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The request is carried out, or there was nothing to cancel.
    Done,
    /// The worker does not have the client. So many clients have moved away from the worker so far.
    NotHere {
        /// This number.
        departed: u64,
    },
}

/// The rounds of questions to all workers about one client.
///
/// A client between two workers is on neither of them, so a round may miss the client. Then the
/// client's departure counts in the answers of this round and not in those of the round before: had
/// it left before its worker answered the round before, it would have been posted before this
/// round's question, and mail that caused another mail arrives first. So the search is over when two
/// rounds have the same sum of departures, or when nobody has ever departed. The proof needs that a
/// worker posts its mail in the order of its actions. (A client that has not logged in yet has no
/// key: its way to its first worker does not count.)
#[derive(Clone, Copy, Default, Debug)]
pub struct Rounds {
    departed: u64,
    done: u8,
}

impl Rounds {
    /// No worker has the client, and so many clients have departed from all workers. True if the
    /// client may have been between two workers: another round is due.
    pub(crate) fn missed(&mut self, departed: u64) -> bool {
        self.done += 1;
        let before = std::mem::replace(&mut self.departed, departed);
        before != departed && self.done < MOST_ROUNDS
    }
}

/// A search of this worker.
#[derive(Debug)]
pub(crate) struct Search {
    /// The client that waits for the result.
    pub(crate) asker: ClientId,
    pub(crate) whom: Whom,
    /// How many workers have not answered in this round.
    pub(crate) owed: u16,
    /// The sum of departures in this round.
    pub(crate) departed: u64,
    pub(crate) rounds: Rounds,
}

/// The searches of a worker, by their numbers.
#[derive(Debug, Default)]
pub struct Searches {
    pub(crate) open: BTreeMap<u64, Search>,
    /// The number of the latest search.
    pub(crate) last: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_over_when_nobody_has_departed_meanwhile() {
        assert!(!Rounds::default().missed(0));
        let mut rounds = Rounds::default();
        assert!(rounds.missed(3) && rounds.missed(4) && !rounds.missed(4));
        let mut rounds = Rounds::default();
        let more = (1..).take_while(|all| rounds.missed(*all)).count();
        assert_eq!(more + 1, usize::from(MOST_ROUNDS));
    }
}
