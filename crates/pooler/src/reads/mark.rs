//! What a client has seen, as far as its next read must know.

use crate::config::ReadTarget;
use crate::ids::Time;
use crate::reads::tally::ReadPlace;
use crate::roster::view::Instance;

/// How long a client's reads wait for no standby after one has waited in vain, in nanoseconds.
const NO_WAIT_NS: u64 = 1_000_000_000;

/// How long a client's reads stay at one standby, in nanoseconds. Then the next one waits for a round,
/// as a read after a write does, and goes to any standby that covers it.
const CHOOSE_AGAIN_NS: u64 = 10_000_000_000;

/// Where a read may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadWish {
    /// The hosts.
    pub target: ReadTarget,
    /// The whole request is one read, whose answer is guarded at a standby
    /// ([`crate::reads::guard`]).
    pub is_guarded: bool,
    /// The request begins a transaction. If it does nothing else, it is sent again when its standby is
    /// lost before the answer.
    pub is_begin: bool,
}

/// A read that a standby has refused, and that runs again at the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Again {
    /// When the client sent the read.
    pub since: Time,
    /// The text, if the primary is to keep it once it has carried the read out
    /// ([`crate::reads::lore::text_number`]).
    pub text: Option<u64>,
}

/// What a client has seen, and what its request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadMark {
    /// How many rounds had begun when the client's last answer had come.
    pub floor: u64,
    /// The instance that answered, if that was a standby.
    pub at: Option<Instance>,
    /// Where the request under way may go; `None` if it is no read.
    pub wish: Option<ReadWish>,
    /// Where the request goes, if it is a read and no server has got it yet.
    pub place: Option<ReadPlace>,
    /// The request goes to a standby, or is there: nothing may follow it to its server.
    pub is_at_standby: bool,
    /// The request runs again.
    pub again: Option<Again>,
    /// The BEGIN under way was sent before, to a standby that was lost; and when it came.
    pub repeated: Option<Time>,
    /// The client was told of something meanwhile that `at` need not have replayed.
    heard: bool,
    /// Until when the request waits for a standby.
    waits_until: Option<Time>,
    /// Until when reads wait no more.
    no_wait_until: Time,
    /// When a standby was last chosen among all that show enough, not because it was `at`.
    chosen: Time,
}

impl ReadMark {
    /// A client that may have seen anything before this many rounds had begun.
    pub fn new(floor: u64) -> ReadMark {
        ReadMark {
            floor,
            at: None,
            wish: None,
            place: None,
            is_at_standby: false,
            again: None,
            repeated: None,
            heard: false,
            waits_until: None,
            no_wait_until: Time(0),
            chosen: Time(0),
        }
    }

    /// A new request begins.
    pub fn begins(&mut self, wish: Option<ReadWish>) {
        self.wish = wish;
        self.goes(None);
        self.heard = false;
        self.waits_until = None;
    }

    /// The read goes there; `None` if that is open, or the request is no read.
    pub fn goes(&mut self, place: Option<ReadPlace>) {
        self.place = place;
        self.is_at_standby = place == Some(ReadPlace::Standby);
    }

    /// The client has seen something, `begun` rounds after the start: an answer of this standby, or
    /// of another host.
    pub fn sees(&mut self, begun: u64, at: Option<Instance>) {
        self.floor = begun;
        self.at = at.filter(|_| !self.heard);
        self.again = None;
        self.repeated = None;
        self.begins(None);
    }

    /// The client's BEGIN of this time goes to another host. It has seen no answer: what it `had` seen
    /// before counts.
    pub fn repeats(&mut self, since: Time, had: (u64, Option<Instance>)) {
        (self.floor, self.at) = had;
        self.repeated = Some(since);
    }

    /// The client was told of a commit, perhaps in the middle of a request.
    pub fn hears(&mut self, begun: u64) {
        self.floor = begun;
        self.at = None;
        self.heard = true;
    }

    /// True if the request waits for a standby: so long at most, and only if no other has waited in
    /// vain lately.
    pub fn waits(&mut self, now: Time, wait: u64) -> bool {
        if self.waits_until.is_none() && (wait == 0 || now < self.no_wait_until) {
            return false;
        }
        let until = *self.waits_until.get_or_insert(Time(now.0 + wait));
        if until <= now {
            self.waits_until = None;
            self.no_wait_until = Time(now.0 + NO_WAIT_NS);
            return false;
        }
        true
    }

    /// The request has found its standby: a free choice, or `at`.
    pub fn finds(&mut self, now: Time, is_free: bool) {
        self.waits_until = None;
        if is_free {
            self.chosen = now;
        }
    }

    /// True if reads may stay at `at`. Once in a while they choose anew, so that a standby which
    /// comes back gets work.
    pub fn stays(&self, now: Time) -> bool {
        let again = now.0.saturating_sub(self.chosen.0) >= CHOOSE_AGAIN_NS;
        !again || now < self.no_wait_until
    }

    /// The request waits for no standby any more: the wait was in vain, if it is over.
    pub fn gives_up(&mut self, now: Time) {
        if self.waits_until.take().is_some_and(|until| until <= now) {
            self.no_wait_until = Time(now.0 + NO_WAIT_NS);
        }
    }

    /// When the request stops waiting for a standby, if it waits.
    pub fn waits_until(&self) -> Option<Time> {
        self.waits_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hears_of_a_commit_stays_at_no_standby() {
        let at = Some(Instance(5));
        let mut mark = ReadMark::new(1);
        let wish = Some(ReadWish {
            target: ReadTarget::Standby,
            is_guarded: false,
            is_begin: false,
        });
        mark.begins(wish);
        mark.hears(4);
        assert_eq!((mark.floor, mark.wish), (4, wish));
        mark.sees(4, at);
        assert_eq!(mark.at, None, "the answer may be older");
        mark.begins(None);
        mark.sees(6, at);
        assert_eq!((mark.floor, mark.at), (6, at));
    }

    #[test]
    fn a_read_waits_once_and_then_none_for_a_second() {
        let mut mark = ReadMark::new(3);
        let now = Time(5_000_000_000);
        let until = Time(now.0 + 20);
        assert!(mark.waits(now, 20) && mark.waits_until() == Some(until));
        assert!(mark.waits(Time(now.0 + 19), 20) && mark.waits_until() == Some(until));
        assert!(
            !mark.waits(until, 20) && mark.waits_until().is_none(),
            "the wait is over"
        );
        mark.sees(4, None);
        assert!(!mark.waits(Time(until.0 + NO_WAIT_NS - 1), 20));
        assert!(mark.waits(Time(until.0 + NO_WAIT_NS), 20));
        mark.sees(5, None);
        assert!(!mark.waits(Time(u64::MAX / 2), 0), "read_wait = 0");
    }
}
