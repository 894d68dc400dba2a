//! A bug in Howdah ends one link, not the process, and is reported.
//!
//! A broken invariant panics, and so does a look-up that must find a connection and does not. In
//! tests and in the simulation a panic ends the run. In production the worker's loop catches the
//! panic and gives up the connection of the current event: the event's output is dropped, the
//! connection and the other side of its link are closed, and the log and a counter report the bug.
//! Then [`Pooler::check`] verifies the rest. If the check fails, or the event belonged to no
//! connection, the process ends.

use crate::event::{Action, Event, Out, Peer};
use crate::fault::Fault;
use crate::limits;
use crate::pooler::Pooler;

impl Event<'_> {
    /// The connection to close if handling this event panics; `None` if there is none, or it is
    /// just beginning or ending.
    pub fn blamed(&self) -> Option<Peer> {
        match self {
            Event::Received(peer, _)
            | Event::Congested(peer)
            | Event::Drained(peer)
            | Event::Flushed(peer)
            | Event::TlsDone(peer, _) => Some(*peer),
            _ => None,
        }
    }
}

impl Pooler {
    /// Gives up the connection of an event that panicked, and the other side of its link. `out` is
    /// as the panic left it.
    ///
    /// # Panics
    /// The remaining state breaks an invariant, or there were too many bugs: the process must end.
    pub fn give_up(&mut self, peer: Peer, out: &mut Out) {
        self.internal_errors += 1;
        assert!(
            self.internal_errors <= limits::INTERNAL_ERRORS,
            "too many internal errors"
        );
        let (client, server) = self.sides_of(peer);
        let pool = server.and_then(|id| Some(self.servers.get(id)?.pool));
        let pool = pool.or_else(|| self.clients.get(client?)?.pool);
        if let Some(pool) = pool {
            self.pools.at_mut(pool).count_internal_error();
        }
        let sides = [client.map(Peer::Client), server.map(Peer::Server)];
        let is_side = |peer: &Peer| sides.contains(&Some(*peer));
        // If a part of a message was taken back, the client can't be sent an error.
        let mut cut = false;
        out.actions.retain(|action| match action {
            Action::Send(to, _) | Action::Relay(to, _) if is_side(to) => {
                cut |= matches!(to, Peer::Client(_));
                false
            }
            _ => true,
        });
        if let (None, Some(id), true) = (server, client, cut) {
            self.cut_short(id, Fault::Internal, out);
        }
        if let Some(id) = server {
            self.break_up(id, cut, out);
        }
        if let Some(id) = client {
            self.disconnect(id, Fault::Internal, out);
        }
        self.go_on(out);
        self.check();
    }
}
