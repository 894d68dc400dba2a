//! Permissions for clients of a pool to keep a server between transactions, on all workers.

use std::collections::{BTreeSet, VecDeque};

use crate::event::{ClientId, WorkerId};
use crate::mail::{FromBroker, Mail, PinWish, Post};

/// A client that asks to keep a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Applicant {
    /// The client's worker.
    pub(super) worker: WorkerId,
    /// The number of the request on this worker.
    pub(super) ticket: u64,
    /// The client.
    pub(super) client: ClientId,
}

impl Applicant {
    fn answer(self, granted: bool, post: Post<'_>) {
        let Applicant {
            worker,
            ticket,
            client,
        } = self;
        let answer = FromBroker::Pinned {
            client,
            ticket,
            granted,
        };
        post(worker, Mail::Brokered(answer));
    }
}

/// Clients of a pool that keep a server between transactions, or wait for permission.
#[derive(Debug, Default)]
pub(super) struct Pins {
    held: BTreeSet<(WorkerId, u64)>,
    line: VecDeque<Applicant>,
}

impl Pins {
    /// Handles a client's request.
    pub(super) fn ask(&mut self, asker: Applicant, wish: PinWish, limit: u32, post: Post<'_>) {
        let room = self.line.is_empty() && self.has_room(limit);
        if room {
            self.held.insert((asker.worker, asker.ticket));
            asker.answer(true, post);
        } else if wish == PinWish::Waits {
            self.line.push_back(asker);
        } else {
            asker.answer(false, post);
        }
    }

    /// A client has ceased to keep a server or to wait. (It may have left before it got the
    /// answer.)
    pub(super) fn give_back(&mut self, worker: WorkerId, ticket: u64) {
        if !self.held.remove(&(worker, ticket)) {
            let other = |asker: &Applicant| (asker.worker, asker.ticket) != (worker, ticket);
            self.line.retain(other);
        }
    }

    /// Gives permissions to waiting clients, the oldest request first.
    pub(super) fn feed(&mut self, limit: u32, post: Post<'_>) {
        while self.has_room(limit)
            && let Some(asker) = self.line.pop_front()
        {
            self.held.insert((asker.worker, asker.ticket));
            asker.answer(true, post);
        }
    }

    fn has_room(&self, limit: u32) -> bool {
        limit == 0 || self.held.len() < limit as usize
    }

    /// True if no client keeps a server or waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many clients keep a server or wait.
    pub(super) fn len(&self) -> usize {
        self.held.len() + self.line.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answered tickets, with the answers.
    fn answers(act: impl FnOnce(Post<'_>)) -> Vec<(u64, bool)> {
        let mut answers = Vec::new();
        act(&mut |_, mail| {
            if let Mail::Brokered(FromBroker::Pinned {
                ticket, granted, ..
            }) = mail
            {
                answers.push((ticket, granted));
            }
        });
        answers
    }

    #[test]
    fn there_are_as_many_as_the_limit_says() {
        let mut pins = Pins::default();
        let ask = |pins: &mut Pins, ticket, wish| {
            let asker = Applicant {
                worker: WorkerId(0),
                ticket,
                client: ClientId {
                    index: 1,
                    generation: 1,
                },
            };
            answers(|post| pins.ask(asker, wish, 2, post))
        };
        assert_eq!(ask(&mut pins, 1, PinWish::Waits), [(1, true)]);
        assert_eq!(ask(&mut pins, 2, PinWish::Knows), [(2, true)]);
        assert_eq!(ask(&mut pins, 3, PinWish::Knows), [(3, false)]);
        assert_eq!(ask(&mut pins, 4, PinWish::Waits), []);
        assert_eq!(ask(&mut pins, 5, PinWish::Waits), []);
        assert_eq!(answers(|post| pins.feed(2, post)), []);
        // A waiting client may leave.
        pins.give_back(WorkerId(0), 4);
        pins.give_back(WorkerId(0), 2);
        assert_eq!(answers(|post| pins.feed(2, post)), [(5, true)]);
        assert_eq!(pins.len(), 2);
        pins.give_back(WorkerId(1), 5);
        assert_eq!(pins.len(), 2);
        pins.give_back(WorkerId(0), 5);
        pins.give_back(WorkerId(0), 1);
        assert!(pins.is_empty());
    }

    #[test]
    fn ten_thousand_wait_in_order_and_may_leave() {
        let mut pins = Pins::default();
        for ticket in 0..10_000 {
            let asker = Applicant {
                worker: WorkerId(0),
                ticket,
                client: ClientId {
                    index: 1,
                    generation: 1,
                },
            };
            let granted = answers(|post| pins.ask(asker, PinWish::Waits, 2, post));
            assert_eq!(granted.len(), usize::from(ticket < 2));
        }
        for ticket in (2..10_000).rev().filter(|ticket| ticket % 100 != 0) {
            pins.give_back(WorkerId(0), ticket);
        }
        assert_eq!(pins.len(), 2 + 99);
        pins.give_back(WorkerId(0), 0);
        pins.give_back(WorkerId(0), 1);
        let granted = answers(|post| pins.feed(2, post));
        assert_eq!(granted, [(100, true), (200, true)]);
    }

    #[test]
    fn a_higher_limit_lets_those_in_who_wait() {
        let mut pins = Pins::default();
        for ticket in 1..=3 {
            let asker = Applicant {
                worker: WorkerId(0),
                ticket,
                client: ClientId {
                    index: 1,
                    generation: 1,
                },
            };
            answers(|post| pins.ask(asker, PinWish::Waits, 1, post));
        }
        assert_eq!(answers(|post| pins.feed(2, post)), [(2, true)]);
        assert_eq!(answers(|post| pins.feed(0, post)), [(3, true)]);
    }
}
