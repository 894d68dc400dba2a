//! The release rule: when a link ends.
//!
//! A server goes back to its pool only if all of this holds:
//!
//! - the ledger is empty: PostgreSQL owes no answer;
//! - no group of messages is open: a Sync followed the Parse, Bind, Execute and so on;
//! - the last ReadyForQuery said idle: no transaction is open;
//! - both streams are between two messages.
//!
//! No cancel request for the server may be under way either; `checkin` checks this.

use howdah_wire::backend::Status;

use crate::client::Client;
use crate::config::PoolMode;
use crate::event::{ClientId, Out, ServerId};
use crate::fault::Fault;
use crate::next::Next;
use crate::pooler::Pooler;
use crate::server::task::Over;
use crate::server::{Ending, Server, ServerState};

/// The part of the release rule that does not hold yet.
enum Blocked {
    /// PostgreSQL owes an answer.
    Owed,
    /// A stream is in the middle of a message.
    MidMessage,
    /// The Sync of a group is still to come.
    GroupOpen,
    /// A transaction is open.
    InTransaction,
}

/// What blocks the release of the server of a link, if anything does.
fn release_blocked(server: &Server, client: &Client) -> Option<Blocked> {
    if !server.link.is_quiet() {
        Some(Blocked::Owed)
    } else if !server.inbox.at_boundary() || client.inbox.relaying() {
        Some(Blocked::MidMessage)
    } else if server.link.ledger.group_open() {
        Some(Blocked::GroupOpen)
    } else if server.status != Status::Idle {
        Some(Blocked::InTransaction)
    } else {
        None
    }
}

impl Pooler {
    /// The client's stream has advanced. The server may now be free.
    #[inline]
    pub(crate) fn settle_client(&mut self, id: ClientId, out: &mut Out) {
        if let Some(id) = self.clients.get(id).and_then(Client::linked_server)
            && !self.servers.at(id).link.is_owed()
        {
            self.settle(id, out);
        }
    }

    /// Gives a server back if the release rule holds.
    pub(crate) fn settle(&mut self, id: ServerId, out: &mut Out) {
        let now = self.now;
        let server = self.servers.at(id);
        let ServerState::Linked(client_id) = *server.state() else {
            return;
        };
        let client = self.clients.at_mut(client_id);
        match release_blocked(server, client) {
            None => {}
            Some(Blocked::Owed | Blocked::MidMessage) => return,
            // The open group waits for the client's next message.
            Some(Blocked::GroupOpen) => return client.times.set_quiet(now),
            Some(Blocked::InTransaction) => {
                let terms = &self.logins.at(server.login).terms;
                if terms.mode == PoolMode::Statement {
                    return self.disconnect(client_id, Fault::TransactionBlock, out);
                }
                client.times.set_quiet(now);
                if terms.watched {
                    self.watch_client(client_id);
                }
                return;
            }
        }
        let terms = &self.logins.at(server.login).terms;
        let (mut ending, watched) = (server.ending(), terms.watched);
        let user_has_ended = server.user_has_ended;
        let session = terms.mode == PoolMode::Session || client.is_replicating();
        let mut has_session = client.session.is_some();
        // Session mode needs this, too: the client may have listened before a reload changed the
        // mode.
        if client.is_hushed() {
            if !self.has_heard(client_id, id, out) {
                return;
            }
            ending = self.servers.at(id).ending();
        }
        if session && ending.is_some() {
            if user_has_ended {
                self.clients.at_mut(client_id).ends_with_user(now);
                has_session = true;
            } else if self.config.globals.server_fast_close {
                return self.disconnect(client_id, Fault::DatabaseChanged, out);
            }
        }
        if has_session && let Some(why) = self.clients.at(client_id).end_of_transaction(self.now) {
            if !why.is_patient() || !self.clients.at(client_id).inbox.held().is_empty() {
                return self.disconnect(client_id, why.fault(), out);
            }
            self.next.note(Next::Over(client_id));
        }
        if session {
            let client = self.clients.at_mut(client_id);
            client.times.set_quiet(self.now);
            // The client's session goes to the successor process as it is now.
            if self.janitor.takeover.holds() && !client.is_replicating() {
                client.parks();
            }
            if watched {
                self.watch_client(client_id);
            }
            return;
        }
        if ending == Some(Ending::Crashed) {
            // The client kept this server, so Howdah relayed PostgreSQL's FATAL after the client's
            // last answer. The server is lost, even if that answer freed it.
            return self.server_lost(id, None, out);
        }
        if has_session && self.session_keeps(client_id, id, out) {
            return;
        }
        self.unlink(client_id, id, out);
        if self.clients.at(client_id).listens() {
            self.tell_if_idle(client_id, out);
        }
        self.release(id, Over::Transaction, out);
    }
}
