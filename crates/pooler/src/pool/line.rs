//! A queue of clients that wait for the same thing.

use std::collections::VecDeque;

use crate::event::{ClientId, Time};

/// A queue of clients, the one that has waited longest in front. A client that leaves stays in the
/// queue at first: it is skipped when its turn comes, or removed when the queue is trimmed.
#[derive(Debug, Default)]
pub struct Line {
    clients: VecDeque<(ClientId, Time)>,
}

/// What happens to a client at its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The client is served.
    Served,
    /// The client waits for something else, and keeps its place.
    Stays,
    /// The client has left and is removed.
    Gone,
}

impl Line {
    /// True if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// How many clients are in the queue, including those that have left.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// The clients in the queue, each with the time since which it has waited.
    pub fn iter(&self) -> impl Iterator<Item = (ClientId, Time)> {
        self.clients.iter().copied()
    }

    /// The client that has waited longest, and the time since which it has waited.
    pub fn first(&self) -> Option<(ClientId, Time)> {
        self.clients.front().copied()
    }

    /// How long the first client has waited, in nanoseconds.
    pub fn longest_wait(&self, now: Time) -> Option<u64> {
        self.first().map(|(_, since)| now.0.saturating_sub(since.0))
    }

    /// How many clients have waited since before `then`.
    pub fn before(&self, then: Time) -> usize {
        self.clients.partition_point(|(_, since)| *since < then)
    }

    /// A client joins at the end of the queue.
    pub fn join(&mut self, id: ClientId, since: Time) {
        self.clients.push_back((id, since));
    }

    /// A client that was just taken out returns to its place, before those that joined later.
    pub fn rejoin(&mut self, id: ClientId, since: Time) {
        let place = self.before(since);
        self.clients.insert(place, (id, since));
    }

    /// A client joins at the place that matches its waiting time.
    pub fn join_since(&mut self, id: ClientId, since: Time) {
        self.leave(id);
        self.join_behind(id, since);
    }

    /// As `join_since`, for a client that is not in the queue.
    pub fn join_behind(&mut self, id: ClientId, since: Time) {
        let place = self.clients.partition_point(|(_, other)| *other <= since);
        self.clients.insert(place, (id, since));
    }

    /// Removes one client.
    pub fn leave(&mut self, id: ClientId) {
        self.retain(|waiter| waiter != id);
    }

    /// Removes the clients for which `stays` is false.
    pub fn retain(&mut self, mut stays: impl FnMut(ClientId) -> bool) {
        self.clients.retain(|(id, _)| stays(*id));
    }

    /// Removes clients from the front until `stays` is true.
    pub fn trim(&mut self, mut stays: impl FnMut(ClientId) -> bool) {
        while let Some((id, _)) = self.first()
            && !stays(id)
        {
            self.clients.pop_front();
        }
    }

    /// Takes out the first client that can be served. Removes clients that have left on the way.
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

    /// Removes all clients.
    pub fn take_all(&mut self) -> impl Iterator<Item = (ClientId, Time)> + use<> {
        std::mem::take(&mut self.clients).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_returns_stands_where_it_stood() {
        let client = |index| ClientId {
            index,
            generation: 0,
        };
        let mut line = Line::default();
        for index in 0..3 {
            line.join(client(index), Time(u64::from(index)));
        }
        // The first one waits for something else and keeps its place.
        let turn = |id: ClientId| match id.index {
            0 => Turn::Stays,
            _ => Turn::Served,
        };
        assert_eq!(line.take_next(turn), Some(client(1)));
        line.rejoin(client(1), Time(1));
        let order: Vec<_> = line.iter().map(|(id, _)| id.index).collect();
        assert_eq!(order, [0, 1, 2]);
        assert_eq!(line.first(), Some((client(0), Time(0))));
    }
}
