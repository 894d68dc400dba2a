//! Permissions for clients of a pool to keep a server between transactions, on all workers.

use std::collections::{BTreeSet, VecDeque};

use crate::event::{ClientId, Time, WorkerId};
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
    /// When the client asked.
    pub(super) since: Time,
}

impl Applicant {
    fn answer(self, granted: bool, post: Post<'_>) {
        let Applicant {
            worker,
            ticket,
            client,
            ..
        } = self;
        let answer = FromBroker::Pinned {
            client,
            ticket,
            granted,
        };
        post(worker, Mail::Brokered(answer));
    }
}

/// How long all clients that keep a server must have been silent before nobody waits for them, in
/// nanoseconds.
const SILENCE_NS: u64 = 10_000_000_000;

/// How long a client waits at least, in nanoseconds: meanwhile every worker has said in a
/// maintenance whether its clients work.
const NEWS_NS: u64 = 700_000_000;

/// How many clients may keep a server; 0 for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    /// Now.
    pub(super) limit: u32,
    /// While no client waits for a server.
    pub(super) most: u32,
}

/// Clients of a pool that keep a server between transactions, or wait for permission.
#[derive(Debug, Default)]
pub(super) struct Pins {
    held: BTreeSet<(WorkerId, u64)>,
    line: VecDeque<Applicant>,
    /// When a client that keeps a server last worked, or began or ceased to keep the server.
    moved: Time,
}

impl Pins {
    /// Handles a client's request.
    pub(super) fn ask(
        &mut self,
        asker: Applicant,
        wish: PinWish,
        room: Room,
        now: Time,
        post: Post<'_>,
    ) {
        self.line.push_back(asker);
        self.feed(room, now, post);
        if wish == PinWish::Knows && self.line.back() == Some(&asker) {
            self.line.pop_back();
            asker.answer(false, post);
        }
    }

    /// A client has ceased to keep a server or to wait. (It may have left before it got the
    /// answer.)
    pub(super) fn give_back(&mut self, worker: WorkerId, ticket: u64, now: Time) {
        if self.held.remove(&(worker, ticket)) {
            self.moved = now;
        } else {
            let other = |asker: &Applicant| (asker.worker, asker.ticket) != (worker, ticket);
            self.line.retain(other);
        }
    }

    /// A worker says whether one of its clients that keep a server works.
    pub(super) fn hear(&mut self, works: bool, now: Time) {
        if works {
            self.moved = now;
        }
    }

    /// Gives permissions to waiting clients, the oldest request first. Refuses the rest if only
    /// clients that keep a server could end the wait, and all of those are silent: they may well
    /// belong to the application that waits.
    pub(super) fn feed(&mut self, room: Room, now: Time, post: Post<'_>) {
        while self.has_room(room.limit)
            && let Some(asker) = self.line.pop_front()
        {
            self.held.insert((asker.worker, asker.ticket));
            self.moved = now;
            asker.answer(true, post);
        }
        let age = |since: Time| now.0.saturating_sub(since.0);
        let in_vain = !self.has_room(room.most) && age(self.moved) >= SILENCE_NS;
        while in_vain
            && let Some(asker) = self.line.front().copied()
            && age(asker.since) >= NEWS_NS
        {
            self.line.pop_front();
            asker.answer(false, post);
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

    const NOW: Time = Time(SILENCE_NS);

    /// The same limit whether or not clients wait for servers.
    fn room(limit: u32) -> Room {
        Room { limit, most: limit }
    }

    fn asker(ticket: u64, since: Time) -> Applicant {
        Applicant {
            worker: WorkerId(0),
            ticket,
            client: ClientId {
                index: 1,
                generation: 1,
            },
            since,
        }
    }

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
            answers(|post| pins.ask(asker(ticket, NOW), wish, room(2), NOW, post))
        };
        assert_eq!(ask(&mut pins, 1, PinWish::Waits), [(1, true)]);
        assert_eq!(ask(&mut pins, 2, PinWish::Knows), [(2, true)]);
        assert_eq!(ask(&mut pins, 3, PinWish::Knows), [(3, false)]);
        assert_eq!(ask(&mut pins, 4, PinWish::Waits), []);
        assert_eq!(ask(&mut pins, 5, PinWish::Waits), []);
        assert_eq!(answers(|post| pins.feed(room(2), NOW, post)), []);
        // A waiting client may leave.
        pins.give_back(WorkerId(0), 4, NOW);
        pins.give_back(WorkerId(0), 2, NOW);
        assert_eq!(answers(|post| pins.feed(room(2), NOW, post)), [(5, true)]);
        assert_eq!(pins.len(), 2);
        pins.give_back(WorkerId(1), 5, NOW);
        assert_eq!(pins.len(), 2);
        pins.give_back(WorkerId(0), 5, NOW);
        pins.give_back(WorkerId(0), 1, NOW);
        assert!(pins.is_empty());
    }

    #[test]
    fn ten_thousand_wait_in_order_and_may_leave() {
        let mut pins = Pins::default();
        for ticket in 0..10_000 {
            let wish = PinWish::Waits;
            let granted = answers(|post| pins.ask(asker(ticket, NOW), wish, room(2), NOW, post));
            assert_eq!(granted.len(), usize::from(ticket < 2));
        }
        for ticket in (2..10_000).rev().filter(|ticket| ticket % 100 != 0) {
            pins.give_back(WorkerId(0), ticket, NOW);
        }
        assert_eq!(pins.len(), 2 + 99);
        pins.give_back(WorkerId(0), 0, NOW);
        pins.give_back(WorkerId(0), 1, NOW);
        let granted = answers(|post| pins.feed(room(2), NOW, post));
        assert_eq!(granted, [(100, true), (200, true)]);
    }

    #[test]
    fn a_higher_limit_lets_those_in_who_wait() {
        let mut pins = Pins::default();
        for ticket in 1..=3 {
            let wish = PinWish::Waits;
            answers(|post| pins.ask(asker(ticket, NOW), wish, room(1), NOW, post));
        }
        assert_eq!(answers(|post| pins.feed(room(2), NOW, post)), [(2, true)]);
        assert_eq!(answers(|post| pins.feed(room(0), NOW, post)), [(3, true)]);
    }

    #[test]
    fn who_waits_is_refused_while_all_who_keep_a_server_are_silent() {
        let mut pins = Pins::default();
        let ask = |pins: &mut Pins, ticket, now| {
            answers(|post| pins.ask(asker(ticket, now), PinWish::Waits, room(1), now, post))
        };
        let after = |ns| Time(NOW.0 + ns);
        assert_eq!(ask(&mut pins, 1, NOW), [(1, true)]);
        assert_eq!(ask(&mut pins, 2, after(SILENCE_NS - 1)), []);
        // Somebody works.
        pins.hear(true, after(SILENCE_NS));
        pins.hear(false, after(SILENCE_NS + 1));
        let feed = |pins: &mut Pins, room, now| answers(|post| pins.feed(room, now, post));
        assert_eq!(feed(&mut pins, room(1), after(2 * SILENCE_NS - 1)), []);
        // A wait that the end of other clients' waits could end goes on.
        let busy = Room { limit: 1, most: 2 };
        assert_eq!(feed(&mut pins, busy, after(2 * SILENCE_NS)), []);
        let silent = after(2 * SILENCE_NS);
        assert_eq!(feed(&mut pins, room(1), silent), [(2, false)]);
        // The last news may be old.
        assert_eq!(ask(&mut pins, 3, silent), []);
        let later = after(2 * SILENCE_NS + NEWS_NS);
        assert_eq!(feed(&mut pins, room(1), later), [(3, false)]);
        pins.give_back(WorkerId(0), 1, later);
        assert_eq!(ask(&mut pins, 4, later), [(4, true)]);
    }
}
