//! A queue of clients that wait for the same thing.

use std::collections::VecDeque;

use crate::event::{ClientId, Time};

/// Clients in line, the one that has waited longest first. A client that goes away is not taken out at
/// once: it is skipped when its turn comes, or when the line is trimmed.
#[derive(Debug, Default)]
pub struct Line {
    clients: VecDeque<(ClientId, Time)>,
}

/// What becomes of a client whose turn it would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It is its turn.
    Served,
    /// It waits for something else, and stays where it is.
    Stays,
    /// It has left.
    Gone,
}

impl Line {
    /// Nobody stands in it.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// How many stand in it, with those that have left.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Who stands in it, and since when.
    pub fn iter(&self) -> impl Iterator<Item = (ClientId, Time)> {
        self.clients.iter().copied()
    }

    /// Who has waited longest, and since when.
    pub fn first(&self) -> Option<(ClientId, Time)> {
        self.clients.front().copied()
    }

    /// How long the first client has waited, in nanoseconds.
    pub fn longest_wait(&self, now: Time) -> Option<u64> {
        self.first().map(|(_, since)| now.0.saturating_sub(since.0))
    }

    /// How many have waited since before `then`.
    pub fn before(&self, then: Time) -> usize {
        self.clients.partition_point(|(_, since)| *since < then)
    }

    /// A client comes to the end of the line.
    pub fn join(&mut self, id: ClientId, since: Time) {
        self.clients.push_back((id, since));
    }

    /// A client whose turn it was comes back to the front.
    pub fn rejoin(&mut self, id: ClientId, since: Time) {
        self.clients.push_front((id, since));
    }

    /// A client stands where it belongs by the time since which it waits.
    pub fn join_since(&mut self, id: ClientId, since: Time) {
        self.leave(id);
        let place = self.clients.partition_point(|(_, other)| *other <= since);
        self.clients.insert(place, (id, since));
    }

    /// A client leaves.
    pub fn leave(&mut self, id: ClientId) {
        self.retain(|waiter| waiter != id);
    }

    /// Who does not stay leaves.
    pub fn retain(&mut self, mut stays: impl FnMut(ClientId) -> bool) {
        self.clients.retain(|(id, _)| stays(*id));
    }

    /// Those at the front that have left are forgotten.
    pub fn trim(&mut self, mut stays: impl FnMut(ClientId) -> bool) {
        while let Some((id, _)) = self.first()
            && !stays(id)
        {
            self.clients.pop_front();
        }
    }

    /// Takes out the first client whose turn it is. Those that have left are forgotten on the way.
    pub fn take_next(&mut self, mut turn: impl FnMut(ClientId) -> Turn) -> Option<ClientId> {
        let mut at = 0;
        loop {
            let (id, _) = *self.clients.get(at)?;
            match turn(id) {
                Turn::Stays => at += 1,
                Turn::Gone => {
                    self.clients.remove(at);
                }
                Turn::Served => {
                    self.clients.remove(at);
                    return Some(id);
                }
            }
        }
    }

    /// Takes everybody out.
    pub fn take_all(&mut self) -> impl Iterator<Item = (ClientId, Time)> + use<> {
        std::mem::take(&mut self.clients).into_iter()
    }
}
