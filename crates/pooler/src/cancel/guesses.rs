//! Cancel requests with wrong keys: whoever sends many is examined ever slower, so that nobody finds
//! a key by trying.
//!
//! The first requests with wrong keys cost nothing. A key may be that of a client that is gone, or of
//! another process behind the same address. Further requests from the same place wait for their
//! turn, one behind the other, a short while: honest requests may come from the same place. If too
//! many wait, further ones are refused. Requests from other places do not wait.

use std::net::{IpAddr, Ipv6Addr};

use hashbrown::HashMap;

use crate::event::{Address, ClientId, Time};
use crate::{Seeded, limits};

/// How many wrong keys a place may send before its requests have to wait.
const FREE: u64 = 100;

/// How long it takes until a wrong key is forgotten, in nanoseconds.
const FORGETS_NS: u64 = 1_000_000_000;

/// No more wrong keys of a place are counted, so that all are forgotten in a few minutes.
const MOST: u64 = FREE + 100;

/// The time between two requests that have to wait, in nanoseconds.
const WAIT_NS: u64 = 50_000_000;

/// No request waits longer, in nanoseconds.
const LONGEST_NS: u64 = 2_000_000_000;

/// The place that a client comes from: an address, or a network of IPv6 addresses that one host may
/// use. `None` for a unix socket.
pub(crate) fn place(remote: &Address) -> Option<IpAddr> {
    match remote {
        Address::Tcp(IpAddr::V6(ip), _) => {
            let ip = ip.to_canonical();
            Some(match ip {
                IpAddr::V4(_) => ip,
                IpAddr::V6(ip) => {
                    let [a, b, c, d, ..] = ip.segments();
                    Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
                }
            })
        }
        Address::Tcp(ip, _) => Some(*ip),
        Address::Unix(..) => None,
    }
}

/// The wrong keys of one place.
#[derive(Debug)]
struct Guesser {
    /// The wrong keys that are not forgotten, and at what time.
    wrong: u64,
    at: Time,
    /// When the next request may be examined.
    next: Time,
}

/// A request that waits for its turn.
#[derive(Debug)]
pub(crate) struct HeldRequest {
    pub(crate) turn: Time,
    pub(crate) pid: u32,
    pub(crate) secret: Box<[u8]>,
}

/// The places that have sent wrong keys to a worker, and their requests that wait.
#[derive(Debug)]
pub struct Guesses {
    places: HashMap<IpAddr, Guesser, Seeded>,
    /// The places of the requests that are being examined. (The connection may have ended.)
    examined: HashMap<ClientId, IpAddr, Seeded>,
    held: HashMap<ClientId, HeldRequest, Seeded>,
}

impl Guesses {
    /// Nobody has sent a wrong key.
    pub fn new(seeded: Seeded) -> Guesses {
        Guesses {
            places: HashMap::with_hasher(seeded),
            examined: HashMap::with_hasher(seeded),
            held: HashMap::with_hasher(seeded),
        }
    }

    /// When the next request of a place may be examined; `None` if too many wait.
    pub(crate) fn turn(&mut self, place: IpAddr, now: Time) -> Option<Time> {
        let Some(guesser) = self.places.get_mut(&place) else {
            return Some(now);
        };
        guesser.forget(now);
        let turn = guesser.next.max(now);
        if guesser.wrong < FREE {
            return Some(turn);
        }
        if turn.0 > now.0 + LONGEST_NS {
            return None;
        }
        guesser.next = Time(turn.0 + WAIT_NS);
        Some(turn)
    }

    /// A request from this place is examined from now on.
    pub(crate) fn examine(&mut self, id: ClientId, place: IpAddr) {
        self.examined.insert(id, place);
    }

    /// The request has been examined, or another process examines it. Returns its place.
    pub(crate) fn examined(&mut self, id: ClientId) -> Option<IpAddr> {
        self.examined.remove(&id)
    }

    /// A place has sent a wrong key.
    pub(crate) fn wrong(&mut self, place: IpAddr, now: Time) {
        if self.places.len() >= limits::GUESSERS && !self.places.contains_key(&place) {
            self.places.retain(|_, guesser| {
                guesser.forget(now);
                guesser.wrong > 0
            });
            if self.places.len() >= limits::GUESSERS {
                return;
            }
        }
        let guesser = self.places.entry(place).or_insert(Guesser {
            wrong: 0,
            at: now,
            next: now,
        });
        guesser.forget(now);
        guesser.wrong = (guesser.wrong + 1).min(MOST);
    }

    /// Holds a request until its turn. False if too many are held.
    pub(crate) fn hold(&mut self, id: ClientId, request: HeldRequest) -> bool {
        let room = self.held.len() < limits::GUESSES_HELD;
        if room {
            self.held.insert(id, request);
        }
        room
    }

    /// The turn of a client's request, if the request is held.
    pub(crate) fn turn_of(&self, id: ClientId) -> Option<Time> {
        Some(self.held.get(&id)?.turn)
    }

    /// Takes out a request, at its turn or at its client's end.
    pub(crate) fn take(&mut self, id: ClientId) -> Option<HeldRequest> {
        self.held.remove(&id)
    }
}

impl Guesser {
    fn forget(&mut self, now: Time) {
        let forgotten = now.0.saturating_sub(self.at.0) / FORGETS_NS;
        self.wrong = self.wrong.saturating_sub(forgotten);
        self.at = match self.wrong {
            0 => now,
            _ => Time(self.at.0 + forgotten * FORGETS_NS),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

    #[test]
    fn wrong_keys_are_examined_slowly_and_others_at_once() {
        let mut guesses = Guesses::new(crate::seeded(1));
        let mut now = Time(5);
        let mut examined = 0;
        // Somebody tries all the time for an hour.
        while now.0 < 3_600_000_000_000 {
            now = guesses.turn(HERE, now).unwrap();
            guesses.wrong(HERE, now);
            examined += 1;
            assert_eq!(guesses.turn(THERE, now), Some(now), "another place");
        }
        assert!((100..75_000).contains(&examined), "{examined}");
        // After some minutes, all is forgotten.
        let later = Time(now.0 + 200_000_000_000);
        for _ in 0..1000 {
            assert_eq!(guesses.turn(HERE, later), Some(later));
        }
    }

    #[test]
    fn a_flood_is_refused_and_delays_what_follows_a_short_while() {
        let mut guesses = Guesses::new(crate::seeded(1));
        for _ in 0..60_000 {
            guesses.wrong(HERE, Time(5));
        }
        let turns: Vec<_> = (0..60_000).map(|_| guesses.turn(HERE, Time(5))).collect();
        let held = turns.iter().flatten().count() as u64;
        assert_eq!(held, LONGEST_NS / WAIT_NS + 1);
        let late = Time(5 + 2 * LONGEST_NS);
        assert_eq!(guesses.turn(HERE, late), Some(late));
    }

    #[test]
    fn a_few_wrong_keys_delay_nobody() {
        let mut guesses = Guesses::new(crate::seeded(1));
        for _ in 0..FREE - 1 {
            guesses.wrong(HERE, Time(5));
            assert_eq!(guesses.turn(HERE, Time(5)), Some(Time(5)));
        }
    }

    #[test]
    fn who_has_many_addresses_is_one_place() {
        let tcp = |ip: &str| place(&Address::Tcp(ip.parse().unwrap(), 1));
        assert_eq!(tcp("2001:db8:1:2:3::4"), tcp("2001:db8:1:2:ffff::9"));
        assert_ne!(tcp("2001:db8:1:2:3::4"), tcp("2001:db8:1:3:3::4"));
        assert_eq!(tcp("::ffff:10.0.0.1"), tcp("10.0.0.1"));
        assert_ne!(tcp("10.0.0.1"), tcp("10.0.0.2"));
    }

    #[test]
    fn places_and_held_requests_are_bounded() {
        let mut guesses = Guesses::new(crate::seeded(1));
        for number in 0..=limits::GUESSERS as u32 {
            guesses.wrong(IpAddr::V4(number.into()), Time(5));
        }
        assert_eq!(guesses.places.len(), limits::GUESSERS);
        guesses.wrong(HERE, Time(5 + FORGETS_NS));
        assert_eq!(guesses.places.len(), 1, "the others are forgotten");
        for index in 0..=limits::GUESSES_HELD as u32 {
            let id = ClientId {
                index,
                generation: 0,
            };
            let (turn, pid, secret) = (Time(9), 1, Box::default());
            let held = guesses.hold(id, HeldRequest { turn, pid, secret });
            assert_eq!(held, index < limits::GUESSES_HELD as u32);
        }
    }
}
