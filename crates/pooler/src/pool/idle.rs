//! Servers of a pool that are ready for use.

use std::collections::VecDeque;

use crate::event::ServerId;

/// Idle servers, in the order in which they were laid aside.
#[derive(Debug, Default)]
pub struct Idle {
    servers: VecDeque<ServerId>,
}

impl Idle {
    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// All, the one laid aside first in front.
    pub fn iter(&self) -> impl Iterator<Item = ServerId> {
        self.servers.iter().copied()
    }

    /// Those `most` that were laid aside last, the last one in front.
    pub fn latest(&self, most: usize) -> impl Iterator<Item = ServerId> {
        self.servers.iter().rev().take(most).copied()
    }

    /// A server is laid aside.
    pub fn lay_aside(&mut self, id: ServerId) {
        self.servers.push_back(id);
    }

    /// The server that was laid aside last.
    #[inline]
    pub fn newest(&self) -> Option<ServerId> {
        self.servers.back().copied()
    }

    /// Takes the server that was laid aside last.
    pub fn take_newest(&mut self) -> Option<ServerId> {
        self.servers.pop_back()
    }

    /// Takes the first that is fit of those `most` that were laid aside last, the last one in front; or,
    /// if none is, the last one.
    pub fn take_fit(&mut self, most: usize, fit: impl Fn(ServerId) -> bool) -> Option<ServerId> {
        let behind = self.latest(most).position(fit).unwrap_or(0);
        let last = self.servers.len().checked_sub(1)?;
        self.servers.remove(last - behind)
    }

    /// Takes the server that was laid aside first.
    pub fn take_oldest(&mut self) -> Option<ServerId> {
        self.servers.pop_front()
    }

    /// A server goes.
    pub fn remove(&mut self, id: ServerId) {
        self.servers.retain(|idle| *idle != id);
    }
}
