//! The idle servers of a pool.

use std::collections::VecDeque;

use crate::event::ServerId;

/// Idle servers, in the order in which they became idle.
#[derive(Debug, Default)]
pub struct Idle {
    servers: VecDeque<ServerId>,
}

impl Idle {
    /// True if no server is idle.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// How many servers are idle.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// All idle servers, the longest idle first.
    pub fn iter(&self) -> impl Iterator<Item = ServerId> {
        self.servers.iter().copied()
    }

    /// The `most` newest idle servers, the newest first.
    pub fn latest(&self, most: usize) -> impl Iterator<Item = ServerId> {
        self.servers.iter().rev().take(most).copied()
    }

    /// A server becomes idle.
    pub fn push(&mut self, id: ServerId) {
        self.servers.push_back(id);
    }

    /// The server that became idle last.
    #[inline]
    pub fn newest(&self) -> Option<ServerId> {
        self.servers.back().copied()
    }

    /// Takes the server that became idle last.
    pub fn take_newest(&mut self) -> Option<ServerId> {
        self.servers.pop_back()
    }

    /// Takes the newest fit server among the `most` newest ones. If none of them is fit, takes the
    /// newest.
    pub fn take_fit(&mut self, most: usize, fit: impl Fn(ServerId) -> bool) -> Option<ServerId> {
        let behind = self.latest(most).position(fit).unwrap_or(0);
        let last = self.servers.len().checked_sub(1)?;
        self.servers.remove(last - behind)
    }

    /// Takes the server that became idle first.
    pub fn take_oldest(&mut self) -> Option<ServerId> {
        self.servers.pop_front()
    }

    /// Removes a server.
    pub fn remove(&mut self, id: ServerId) {
        self.servers.retain(|idle| *idle != id);
    }
}
