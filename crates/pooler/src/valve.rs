//! The valve of a socket: whether Howdah receives from it, and whether its send queue is full. A
//! full send queue on one side of a link stops receiving on the other (`link/pressure.rs`).

use crate::event::{Action, Out, Peer};

/// The valve of a client's or a server's socket.
#[derive(Debug, Default)]
pub struct Valve {
    paused: bool,
    congested: bool,
    /// Howdah has asked `TellFlushed`, and `Flushed` has not come yet.
    unread: bool,
}

impl Valve {
    /// Receiving is off.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// The send queue is full.
    pub fn is_congested(&self) -> bool {
        self.congested
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.unread
    }

    /// Howdah asks whether the send queue is empty.
    pub(crate) fn mark_unread(&mut self) {
        self.unread = true;
    }

    /// The send queue is empty.
    pub(crate) fn mark_read(&mut self) {
        self.unread = false;
    }

    /// The send queue has become full.
    pub(crate) fn congests(&mut self) {
        self.congested = true;
    }

    /// The send queue has room again.
    pub(crate) fn drains(&mut self) {
        self.congested = false;
    }

    /// Stops receiving from `peer`, the owner of this valve.
    pub(crate) fn pause(&mut self, peer: Peer, out: &mut Out) {
        if !std::mem::replace(&mut self.paused, true) {
            out.push(Action::Receive { peer, on: false });
        }
    }

    /// Receives from `peer` again.
    pub(crate) fn unpause(&mut self, peer: Peer, out: &mut Out) {
        if std::mem::take(&mut self.paused) {
            out.push(Action::Receive { peer, on: true });
        }
    }
}
