//! A worker's knowledge of moves (`moving.rs`).

use std::sync::Arc;

use crate::cancel::seek::Seek;
use crate::ids::{ClientId, Time, WorkerId};
use crate::login::key::LoginKey;

/// How often a worker looks for clients that can move, in nanoseconds.
pub(crate) const SHED_NS: u64 = 5_000_000;

/// An order to move clients to another worker.
#[derive(Debug)]
pub(crate) struct Shed {
    pub(crate) login: Arc<LoginKey>,
    pub(crate) to: WorkerId,
    pub(crate) left: u32,
    /// Idle clients move, too.
    pub(crate) idle: bool,
    pub(crate) until: Time,
    /// When to look again for clients that can move.
    pub(crate) next: Time,
    /// How many clients moved in this round; in how many rounds in a row none could.
    pub(crate) gone: u32,
    pub(crate) vain: u32,
}

/// A worker's knowledge of moves.
#[derive(Debug, Default)]
pub struct Moves {
    pub(crate) sheds: Vec<Shed>,
    /// When all clients were last searched for clients that can move.
    pub(crate) looked: Time,
    pub(crate) next_shed: Option<Time>,
    /// Since when a client has waited for a server that is just arriving from another worker, or is just
    /// being placed.
    pub(crate) arriving: Option<Time>,
    /// Clients that have left and not arrived yet.
    pub(crate) under_way: usize,
    /// Searches for clients that are about to leave.
    pub(crate) held: Vec<(ClientId, Seek)>,
    /// Clients that have left for other workers.
    pub(crate) departed: u64,
    /// Clients that have come from other workers.
    pub(crate) arrived: u64,
}

impl Moves {
    /// When to look for clients that can move.
    pub fn next(&self) -> Option<Time> {
        self.next_shed
    }

    /// The earliest time for the next search of all clients.
    pub(crate) fn looks_next(&self) -> Time {
        Time(self.looked.0 + SHED_NS)
    }

    /// Sets the time of the next search.
    pub(crate) fn plan(&mut self) {
        let next = self.sheds.iter().map(|shed| shed.next).min();
        self.next_shed = next.map(|next| next.max(self.looks_next()));
    }
}
