//! Descriptors kept back, so that new clients cannot take those that servers need.
//!
//! A descriptor cannot be booked, only used. So the reserve consists of descriptors that lead nowhere, one
//! for each server that a pool may still open. Opening a server gives one up, and closing it takes one
//! back. The kernel then refuses new clients in time, whichever worker accepts them. A few more
//! descriptors are held while clients are accepted, and given up when accepting pauses: files, host names
//! and logins by other services need descriptors for a moment, too.
//!
//! The limit on descriptors is the process's, so there is one reserve for all workers.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// Places of servers that are held at most: what lies idle should not grow with the limit.
const MOST: usize = 256;
/// Descriptors for passing needs.
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
    /// Of servers, those that are open included.
    places: usize,
    passing: usize,
    /// What is for passing needs is not held now.
    eased: bool,
    servers: usize,
}

impl Reserve {
    fn wanted(&self) -> usize {
        let passing = if self.eased { 0 } else { self.passing };
        self.places.saturating_sub(self.servers) + passing
    }

    /// Takes or gives up what makes it as large as wanted; false if there is too little.
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

/// How many places are held for servers, where the process may have `limit` descriptors, needs
/// `own` for itself, and the settings let it open `servers`: at most half of what is left.
pub fn places(limit: u64, own: u64, servers: u64) -> u64 {
    let half = limit.saturating_sub(own) / 2;
    servers.min(half).min(MOST as u64)
}

/// From now on so many places of servers are held, and the few more. They are taken when workers
/// begin to accept.
pub fn keep(places: u64) {
    let mut reserve = reserve();
    reserve.places = usize::try_from(places).unwrap_or(MOST);
    reserve.passing = PASSING.min(reserve.places);
}

/// A server is about to be opened, or came from elsewhere.
pub(crate) fn server_comes() {
    let mut reserve = reserve();
    reserve.servers += 1;
    reserve.settle();
}

/// A server is closed, or went elsewhere.
pub(crate) fn server_goes() {
    let mut reserve = reserve();
    reserve.servers = reserve.servers.saturating_sub(1);
    reserve.settle();
}

/// Gives one descriptor up, because a newcomer was quicker than the server for which it was given
/// up first. False if none is left.
pub(crate) fn spend() -> bool {
    reserve().held.pop().is_some()
}

/// Accepting pauses: what is held for passing needs is given up.
pub(crate) fn ease() {
    let mut reserve = reserve();
    reserve.eased = true;
    reserve.settle();
}

/// Takes what is missing. True if nothing is: then accepting may go on.
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
