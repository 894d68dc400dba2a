//! SUSPEND: Howdah reads every connection up to the end of its current message and no further, and
//! hands all queued output to the kernel. A connection that is not quiet in time is closed.

use std::collections::BTreeMap;

use crate::client::ClientState;
use crate::config::nanos;
use crate::event::{Action, ClientId, Close, Out, Peer, Question, ServerId, Time};
use crate::fault::Fault;
use crate::janitor::{SuspendProgress, Suspension};
use crate::pooler::Pooler;
use crate::server::ServerState;

/// The reason in the log and for clients that are closed.
const WHY: &str = "suspend_timeout";

impl Pooler {
    /// SUSPEND.
    pub(crate) fn suspend(&mut self, out: &mut Out) {
        if self.janitor.holds() {
            return;
        }
        let limit = nanos(self.config.globals.suspend_timeout);
        self.janitor.suspension = Some(Suspension {
            until: Time(self.now.0.saturating_add(limit)),
            peers: BTreeMap::new(),
        });
        self.hold_pools(out);
        self.accept(false, out);
        for id in self.clients.keys() {
            self.suspend_client(id, out);
        }
        for id in self.servers.keys() {
            self.suspend_server(id, out);
        }
    }

    /// Undoes SUSPEND.
    pub(crate) fn unsuspend(&mut self, out: &mut Out) {
        if self.janitor.suspension.take().is_none() {
            return;
        }
        for id in self.clients.keys() {
            self.unpause_client(id, out);
        }
        for id in self.servers.keys() {
            self.unpause_server(id, out);
        }
        for lore in self.shard_lore.values_mut() {
            lore.waits_anew(self.now);
        }
        self.accept(true, out);
        self.hold_pools(out);
    }

    /// Stops or resumes giving out servers in all pools.
    pub(crate) fn hold_pools(&mut self, out: &mut Out) {
        let held = self.janitor.holds();
        for id in self.pools.ids() {
            self.pools.at_mut(id).set_held(held);
            self.need(id, out);
        }
    }

    /// Switches accepting on or off. One worker does so for all.
    pub(crate) fn accept(&self, on: bool, out: &mut Out) {
        if self.worker == Self::FIRST {
            out.push(Action::Ask(Question::Accept(on)));
        }
    }

    /// Under SUSPEND: a client is new here or has sent bytes. It is read up to the end of its
    /// message and no further.
    pub(crate) fn suspend_client(&mut self, id: ClientId, out: &mut Out) {
        if self.janitor.suspension.is_none() {
            return;
        }
        let client = gone!(self.clients.get_mut(id));
        let concerned = !matches!(
            client.state(),
            ClientState::Console(_)
                | ClientState::Canceller
                | ClientState::Moving(_)
                | ClientState::Leaving { .. }
                | ClientState::Successor
                | ClientState::Packed(_)
                | ClientState::Closing
        );
        let between = client.inbox.at_boundary();
        if concerned {
            if between {
                client.valve.pause(Peer::Client(id), out);
            }
            self.suspend_peer(Peer::Client(id), between, out);
        }
        if let Some(other) = self.other_side(Peer::Client(id)) {
            self.flush_again(other, out);
        }
    }

    /// As `suspend_client`, for a server.
    pub(crate) fn suspend_server(&mut self, id: ServerId, out: &mut Out) {
        if self.janitor.suspension.is_none() {
            return;
        }
        let server = gone!(self.servers.get_mut(id));
        // Logins and cancels end by themselves, and carry no client's work.
        let concerned = !matches!(
            server.state(),
            ServerState::Resolving
                | ServerState::Connecting
                | ServerState::Securing(_)
                | ServerState::Login(_)
                | ServerState::ConnectQuery
                | ServerState::Maturing(_)
                | ServerState::Cancel(_)
                | ServerState::Examining(_)
                | ServerState::Lent(_)
                | ServerState::Packed
                | ServerState::Closing
        );
        let between = server.inbox.at_boundary();
        if concerned {
            if between {
                server.valve.pause(Peer::Server(id), out);
            }
            self.suspend_peer(Peer::Server(id), between, out);
        }
        if let Some(other) = self.other_side(Peer::Server(id)) {
            self.flush_again(other, out);
        }
    }

    fn suspend_peer(&mut self, peer: Peer, between: bool, out: &mut Out) {
        let Some(suspension) = &mut self.janitor.suspension else {
            return;
        };
        let step = suspension
            .peers
            .entry(peer)
            .or_insert(SuspendProgress::Reading);
        if *step == SuspendProgress::Reading && between {
            *step = SuspendProgress::Flushing;
            out.push(Action::TellFlushed(peer));
        }
    }

    /// Bytes that were on their way when reading stopped may have become output for this peer.
    fn flush_again(&mut self, peer: Peer, out: &mut Out) {
        if let Some(suspension) = &mut self.janitor.suspension
            && let Some(step) = suspension.peers.get_mut(&peer)
            && *step == SuspendProgress::Quiet
        {
            *step = SuspendProgress::Flushing;
            out.push(Action::TellFlushed(peer));
        }
    }

    /// The kernel has taken all queued bytes of a peer.
    pub(crate) fn flushed(&mut self, peer: Peer, out: &mut Out) {
        if let Peer::Client(id) = peer {
            self.client_flushed(id, out);
        }
        if let Some(suspension) = &mut self.janitor.suspension
            && let Some(step) = suspension.peers.get_mut(&peer)
            && *step == SuspendProgress::Flushing
        {
            *step = SuspendProgress::Quiet;
        }
    }

    fn is_there(&self, peer: Peer) -> bool {
        match peer {
            Peer::Client(id) => {
                let client = self.clients.get(id);
                client.is_some_and(|c| !matches!(c.state(), ClientState::Closing))
            }
            Peer::Server(id) => {
                let server = self.servers.get(id);
                server.is_some_and(|s| !matches!(s.state(), ServerState::Closing))
            }
        }
    }

    /// True if all connections here are quiet (or SUSPEND is over).
    pub(crate) fn is_suspended(&self) -> bool {
        let Some(suspension) = &self.janitor.suspension else {
            return true;
        };
        let mut peers = suspension.peers.iter();
        peers.all(|(peer, step)| *step == SuspendProgress::Quiet || !self.is_there(*peer))
    }

    /// Closes connections that are not quiet in time.
    pub(crate) fn drop_unsuspended(&mut self, out: &mut Out) {
        let now = self.now;
        let Some(suspension) = &mut self.janitor.suspension else {
            return;
        };
        if now < suspension.until {
            return;
        }
        suspension.until = Time(u64::MAX);
        let late = suspension.peers.iter();
        let late = late.filter(|(_, step)| **step != SuspendProgress::Quiet);
        let late: Vec<Peer> = late.map(|(peer, _)| *peer).collect();
        for peer in late {
            self.close_late(peer, out);
        }
    }

    /// Closes a connection that is not at rest in time.
    pub(crate) fn close_late(&mut self, peer: Peer, out: &mut Out) {
        match peer {
            Peer::Client(id) => self.disconnect(id, Fault::Suspended, out),
            Peer::Server(id) => {
                // Closing a late client may already have closed its server.
                gone!(self.servers.get(id));
                self.drop_linked(id, Fault::Suspended, out);
                self.close_server(id, WHY, Close::Abort, out);
            }
        }
    }
}
