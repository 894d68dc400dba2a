//! How links end: at their release, or by force, because a client leaves, a server is lost, or
//! Howdah itself has failed.

use crate::event::{ClientId, Close, Out, Peer, ServerId};
use crate::fault::Fault;
use crate::link::bind::part;
use crate::next::Next;
use crate::pooler::Pooler;
use crate::server::{Ending, ServerState};

/// How a client leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Farewell {
    /// The client sent Terminate, or no request of it is running.
    Orderly,
    /// The connection broke, or Howdah disconnects the client. Howdah cancels the running query.
    Abrupt,
}

impl Pooler {
    /// Ends a link. The client is then idle. The caller decides where the server goes.
    #[inline]
    pub(crate) fn unlink(&mut self, client_id: ClientId, server_id: ServerId, out: &mut Out) {
        let now = self.now;
        let mut client = self.clients.at_mut(client_id);
        if client.session.is_some() {
            self.session_leaves(client_id, server_id, out);
            client = self.clients.at_mut(client_id);
        }
        let server = self.servers.at_mut(server_id);
        crate::link::bind::part(client, server, now);
        let paused = client.valve.is_paused();
        let server_paused = server.valve.is_paused();
        let terms = &self.logins.at(server.login).terms;
        let routes_reads = terms.reads.is_some();
        if terms.client_idle_timeout > 0 || client.end_of_transaction(now).is_some() {
            self.watch_client(client_id);
        }
        if routes_reads {
            self.client_has_seen(client_id, server_id);
        }
        if server_paused {
            self.unpause_server(server_id, out);
        }
        if paused {
            // Howdah may have stopped reading from the client because this server's send queue was
            // full.
            self.unpause_client(client_id, out);
        }
    }

    /// A client leaves, whatever it does at the moment. If success is certain, Howdah brings its
    /// server to rest: Howdah fails a COPY, ends an open group, cancels a running query of a client
    /// that broke off, and rolls a transaction back. Otherwise Howdah closes the server.
    pub(crate) fn leave_server(&mut self, client_id: ClientId, how: Farewell, out: &mut Out) {
        let client = self.clients.at_mut(client_id);
        let Some(id) = client.linked_server() else {
            return;
        };
        client.read_fails();
        let left_by_sharded = client.sharded.is_some();
        let relaying = client.inbox.relaying();
        let replication = client.is_replicating();
        let group_failed = client.end.skips();
        // While Howdah sets the client's parameters, no query of the client runs.
        let runs = matches!(self.servers.at(id).state(), ServerState::Linked(_));
        self.break_off_query(client_id, id, "its client left", out);
        self.unlink(client_id, id, out);
        let server = self.servers.at_mut(id);
        server.loses_client(left_by_sharded);
        // Several requests all run, as in PostgreSQL. A cancel request could hit a BEGIN, and
        // PostgreSQL would then commit the following INSERT on its own.
        let single = server.link.has_one_request();
        if relaying {
            server.mark_cut_off();
            return self.close_server(id, "client disconnect while sending", Close::Await, out);
        }
        if replication || server.link.is_streaming() {
            return self.close_server(id, "replication client was closed", Close::Await, out);
        }
        let left = server.link.undo(Peer::Server(id), group_failed, out);
        if left.is_doubtful {
            server.close_at_release(Ending::CopyFailed);
        }
        let breaks_off = how == Farewell::Abrupt;
        if breaks_off && runs && single && left.runs {
            self.cancel_for_us(id, out);
        }
        self.watch_server(id);
        self.next.note(Next::BringToRest(id));
    }

    /// A server is lost or closing. Its client is disconnected, with the reason as its error, unless it
    /// goes on at another host.
    pub(crate) fn drop_linked(&mut self, id: ServerId, fault: Fault, out: &mut Out) {
        let client = self.servers.at(id).linked_client();
        if fault == Fault::ServerGone && client.is_some_and(|of| self.begin_again(of, id, out)) {
            return;
        }
        let between = !self.servers.at(id).inbox.relaying();
        if let Some(client) = self.cut_link(id, out) {
            if between {
                self.disconnect(client, fault, out);
            } else {
                self.cut_short(client, fault, out);
            }
        }
    }

    /// Like `drop_linked`, but the client has got its error already or can't get one.
    pub(crate) fn drop_linked_untold(&mut self, id: ServerId, fault: Fault, out: &mut Out) {
        if let Some(client) = self.cut_link(id, out) {
            self.cut_short(client, fault, out);
        }
    }

    /// The server of a link is lost or closing, and will not be brought to rest. Returns its
    /// client.
    fn cut_link(&mut self, id: ServerId, out: &mut Out) -> Option<ClientId> {
        let client = self.servers.at(id).linked_client()?;
        self.break_off_query(client, id, "its server was lost", out);
        let server = self.servers.at_mut(id);
        let entry = self.clients.at_mut(client);
        part(entry, server, self.now);
        if entry.inbox.relaying() {
            server.mark_cut_off();
        }
        Some(client)
    }

    /// Gives up a server after an internal error, with its link. `cut`: a part of a message to the
    /// client was taken back, so the client can't be sent an error.
    pub(crate) fn break_up(&mut self, id: ServerId, cut: bool, out: &mut Out) {
        if cut {
            self.drop_linked_untold(id, Fault::Internal, out);
        } else {
            self.drop_linked(id, Fault::Internal, out);
        }
        if let Some(server) = self.servers.get_mut(id) {
            // The bytes that the server received may end in the middle of a message.
            server.mark_cut_off();
        }
        self.close_server(id, "internal error", Close::Await, out);
    }
}
