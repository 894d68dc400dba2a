//! Orders about what a client does at its server.

use crate::client::{Client, ClientState};
use crate::event::{ClientId, Close, Out, ServerId, WorkerId};
use crate::fault::Fault;
use crate::pool::key::PoolId;
use crate::pooler::Pooler;
use crate::server::task::Over;
use crate::server::{Ending, Server, ServerState};

impl Pooler {
    /// Sends PostgreSQL a cancel request for what a client runs. `from`: the search that gets the
    /// answer. False if the client runs nothing.
    pub(crate) fn cancel_what_runs(
        &mut self,
        id: ClientId,
        from: (WorkerId, u64),
        out: &mut Out,
    ) -> bool {
        let ClientState::Linked(server) = *self.clients.at(id).state() else {
            return false;
        };
        if !self.servers.at(server).link.is_owed() {
            return false;
        }
        self.send_cancel(server, Some(from), out);
        true
    }

    /// The listener has delivered everything up to the client's round. True if the client's server
    /// is in the middle of a message.
    pub(crate) fn mark_heard(&mut self, id: ClientId) -> bool {
        let server = self.clients.at(id).linked_server();
        let server = gone!(server.and_then(|id| self.servers.get_mut(id)));
        server.session.mark_heard();
        server.inbox.relaying()
    }

    /// A client gives its server back and waits for permission to keep one.
    pub(crate) fn part_and_wait(&mut self, id: ClientId, out: &mut Out) {
        let server = gone!(self.clients.get(id).and_then(Client::linked_server));
        let pool = self.servers.at(server).pool;
        self.unlink(id, server, out);
        self.stands_in_pin_line(id, pool, out);
        self.release(server, Over::Transaction, out);
    }

    /// A client's deadlines may have changed: sets its timer anew, if it has a server.
    pub(crate) fn watch_link_again(&mut self, id: ClientId) {
        let client = gone!(self.clients.get(id));
        if client.linked_server().is_some()
            && client
                .login
                .is_some_and(|login| self.logins.at(login).terms.watched)
        {
            self.watch_link(id);
        }
    }

    /// A client that has a server ends with its transaction. False if the client has none.
    pub(crate) fn end_with_transaction(&mut self, id: ClientId) -> bool {
        let client = gone!(self.clients.get_mut(id));
        let has_server = client.linked_server().is_some();
        if has_server {
            client.ends_with_transaction();
        }
        has_server
    }

    /// Closes a server that must be replaced: at once if no client has it, otherwise when its client
    /// gives it back.
    pub(crate) fn replace(&mut self, id: ServerId, why: &'static str, out: &mut Out) {
        self.replace_as(id, Ending::Ordered(why), out);
    }

    /// As `replace`. A client that keeps the server may learn of the reason, too.
    pub(crate) fn replace_as(&mut self, id: ServerId, ending: Ending, out: &mut Out) {
        let why = ending.text();
        // An unconnected server may have been closed together with an earlier one.
        let server = gone!(self.servers.get_mut(id));
        match *server.state() {
            ServerState::Idle | ServerState::Listening { .. } | ServerState::Examining(_) => {
                self.close_server(id, why, Close::Await, out);
            }
            // A successor decides about packed servers itself.
            ServerState::Cancel(_) | ServerState::Closing | ServerState::Packed => {}
            // The client may stream for ever. As with PgBouncer, client and server end at once.
            _ if server.is_reserved() && server.is_linked() => {
                self.drop_linked(id, Fault::DatabaseChanged, out);
                self.close_server(id, why, Close::Await, out);
            }
            _ => {
                server.ensure_close_at_release(ending);
                self.settle(id, out);
            }
        }
    }

    /// Closes a pool's servers: idle ones now, others when they are released.
    pub(crate) fn call_in(&mut self, id: PoolId, why: &'static str, out: &mut Out) {
        self.call_in_those(|server| server.pool == id, why, out);
    }

    /// As `call_in`, except for servers of replication clients.
    pub(crate) fn call_in_shared(&mut self, id: PoolId, why: &'static str, out: &mut Out) {
        let shared = |server: &Server| server.pool == id && !server.is_reserved();
        self.call_in_those(shared, why, out);
    }

    /// As `call_in`, for servers of any pool.
    pub(crate) fn call_in_those(
        &mut self,
        which: impl Fn(&Server) -> bool,
        why: &'static str,
        out: &mut Out,
    ) {
        let all: Vec<_> = self
            .servers
            .iter()
            .filter(|(_, server)| which(server))
            .map(|(id, _)| id)
            .collect();
        for server_id in all {
            self.replace(server_id, why, out);
        }
    }
}
