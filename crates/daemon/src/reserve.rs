//! Reserved descriptors, so that new clients can't take the descriptors that servers need.
//!
//! A descriptor can't be reserved without being open. So the reserve consists of open descriptors that lead
//! nowhere, one for each server that a pool may still open. Opening a server frees one of them, and closing a
//! server opens one again. So the kernel refuses new clients in time, whichever worker accepts them. A few
//! more descriptors are reserved while clients are accepted, and freed while accepting pauses: files, host
//! names and logins by LDAP or PAM need descriptors for a moment, too.
//!
//! The limit on descriptors belongs to the process, so all workers share one reserve.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// The most descriptors reserved for servers: the reserve must not grow with the limit.
const MOST: usize = 256;
/// Descriptors for short needs.
const PASSING: usize = 4;

static RESERVE: Mutex<Reserve> = Mutex::new(Reserve {
    held: Vec::new(),
    places: 0,
    passing: 0,
    eased: false,
    servers: 0,
});

struct Reserve {
    held: Vec<OwnedFd>,
    /// Places for servers, including open servers.
    places: usize,
    passing: usize,
    /// The descriptors for short needs are free at present.
    eased: bool,
    servers: usize,
}

impl Reserve {
    fn wanted(&self) -> usize {
        let passing = if self.eased { 0 } else { self.passing };
        self.places.saturating_sub(self.servers) + passing
    }

    /// Opens or closes descriptors until the reserve has the right size. False if descriptors are
    /// missing.
    fn settle(&mut self) -> bool {
        let wanted = self.wanted();
        self.held.truncate(wanted);
        while self.held.len() < wanted {
            let more = match self.held.first() {
                Some(held) => rustix::io::fcntl_dupfd_cloexec(held, 0),
                None => eventfd(0, EventfdFlags::CLOEXEC),
            };
            match more {
                Ok(more) => self.held.push(more),
                Err(_) => return false,
            }
        }
        true
    }
}

fn reserve() -> MutexGuard<'static, Reserve> {
    RESERVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many places are reserved for servers. The process may have `limit` descriptors, and needs
/// `own` for itself. The settings allow `servers` servers. At most half of the remaining
/// descriptors are reserved.
pub fn places(limit: u64, own: u64, servers: u64) -> u64 {
    let half = limit.saturating_sub(own) / 2;
    servers.min(half).min(MOST as u64)
}

/// Sets the number of places for servers. The descriptors are opened when workers begin to accept.
pub fn keep(places: u64) {
    let mut reserve = reserve();
    reserve.places = usize::try_from(places).unwrap_or(MOST);
    reserve.passing = PASSING.min(reserve.places);
}

/// A server is about to be opened, or has come from another process.
pub(crate) fn server_comes() {
    let mut reserve = reserve();
    reserve.servers += 1;
    reserve.settle();
}

/// A server is closed, or has gone to another process.
pub(crate) fn server_goes() {
    let mut reserve = reserve();
    reserve.servers = reserve.servers.saturating_sub(1);
    reserve.settle();
}

/// Frees one more descriptor, because a new client has taken the one freed for a server. False if
/// none is left.
pub(crate) fn spend() -> bool {
    reserve().held.pop().is_some()
}

/// Accepting pauses: frees the descriptors for short needs.
pub(crate) fn ease() {
    let mut reserve = reserve();
    reserve.eased = true;
    reserve.settle();
}

/// Opens the missing descriptors. True if none is missing: accepting may go on.
pub(crate) fn refill() -> bool {
    let mut reserve = reserve();
    reserve.eased = false;
    let whole = reserve.settle();
    if !whole {
        reserve.eased = true;
        reserve.settle();
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_leave_half_to_clients() {
        assert_eq!(places(40, 20, 100), 10);
        assert_eq!(places(40, 20, 3), 3);
        assert_eq!(places(10, 20, 3), 0);
        assert_eq!(places(1 << 20, 20, 1 << 19), MOST as u64);
    }

    #[test]
    fn servers_take_their_places() {
        let mut reserve = Reserve {
            held: Vec::new(),
            places: 3,
            passing: 1,
            eased: false,
            servers: 0,
        };
        for (servers, held) in [(0, 4), (2, 2), (3, 1), (7, 1), (1, 3), (0, 4)] {
            reserve.servers = servers;
            assert!(reserve.settle());
            assert_eq!(reserve.held.len(), held, "{servers} servers");
        }
        reserve.eased = true;
        assert!(reserve.settle());
        assert_eq!(reserve.held.len(), 3);
    }
}
