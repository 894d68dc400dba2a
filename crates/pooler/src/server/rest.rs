//! How a server without a client comes to rest: what follows from PostgreSQL's answers to
//! Howdah's own queries.

use howdah_wire::backend::Status;

use crate::event::{Close, Out, ServerId};
use crate::fault::Fault;
use crate::note::Level;
use crate::pooler::Pooler;
use crate::server::task::Over;
use crate::server::{Ending, ServerState};

impl Pooler {
    /// PostgreSQL has refused a query of Howdah.
    pub(crate) fn task_failed(&mut self, id: ServerId, sqlstate: &str, error: &str, out: &mut Out) {
        let begins = self.begins_late(id);
        let server = self.servers.at_mut(id);
        match *server.state() {
            // The server has reported its shutdown.
            ServerState::Aligning(client) if server.ending() == Some(Ending::CrashedUnheard) => {
                self.disconnect(client, Fault::ServerGone, out);
            }
            ServerState::Aligning(_) if server.session.inquiry.is_some() => {
                server.session.fail_inquiry(sqlstate == "57014");
            }
            ServerState::Aligning(client) if begins => {
                self.begin_refused(client, sqlstate, error);
            }
            ServerState::Aligning(client) => {
                let asked = server.ending() != Some(Ending::SettingsRefused);
                if asked && self.tries_again(client, id, sqlstate) {
                    return;
                }
                let text = format!("invalid server parameter: {error}");
                self.note_server(Level::Warning, id, &text, out);
                let fault = Fault::ServerParameter(sqlstate.to_string(), error.to_string());
                self.disconnect(client, fault, out);
            }
            ServerState::ConnectQuery => {
                self.note_server(Level::Warning, id, &format!("connect_query: {error}"), out);
            }
            ServerState::Resetting => server.close_at_release(Ending::ResetFailed),
            ServerState::Checking => server.close_at_release(Ending::TestFailed),
            // The error answers a client that has left.
            ServerState::Draining => {}
            _ => {
                let text = format!("error while idle: {error}");
                server.ensure_close_at_release(Ending::Dirty);
                self.note_server(Level::Log, id, &text, out);
            }
        }
    }

    /// A server without a client has answered.
    pub(crate) fn task_moves(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        if server.link.is_owed() || !server.inbox.at_boundary() {
            return;
        }
        let begins = self.begins_late(id);
        let server = self.servers.at_mut(id);
        match *server.state() {
            ServerState::Aligning(_) if server.session.inquiry.is_some() => self.inquired(id, out),
            ServerState::Aligning(client) if server.session.trial().goes_on() => {
                self.try_again(client, id, out)
            }
            ServerState::Aligning(client) if begins => {
                self.begin_answered(id, client, out);
            }
            ServerState::Aligning(_) => self.aligned(id, out),
            ServerState::ConnectQuery if server.status != Status::Idle => {
                let text = "connect_query left a transaction open";
                self.note_server(Level::Warning, id, text, out);
                self.login_failed(id, "25001", text, out);
                self.close_server(id, "connect_query failed", Close::Await, out);
            }
            ServerState::ConnectQuery => self.server_is_born(id, out),
            ServerState::Cataloguing(_) => {
                self.close_server(id, "the catalogue is read", Close::Await, out);
            }
            ServerState::Draining => self.drained_of_client(id, out),
            ServerState::Resetting | ServerState::Checking | ServerState::Naming(_) => {
                if matches!(server.state(), ServerState::Checking) {
                    self.pools.at_mut(server.pool).test_ends();
                    server.comes_free(self.now);
                    self.host_passes(id, out);
                }
                let server = self.servers.at(id);
                if server.status == Status::Idle {
                    self.checkin(id, out);
                } else {
                    self.close_server(id, "reset query failed", Close::Await, out);
                }
            }
            _ => {}
        }
    }

    /// A server whose client has left owes no more answers. Rolls back an open transaction, or
    /// releases the server.
    fn drained_of_client(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let login = server.login;
        if server.ending().is_none() && server.status != Status::Idle {
            if !server.rolls_back() {
                return self.close_server(id, "rollback failed", Close::Await, out);
            }
            server.runs_for_us(id, b"ROLLBACK", out);
            return;
        }
        server.mark_out_of_transaction();
        let over = if self.logins.at(login).is_session() {
            Over::Session
        } else {
            Over::Transaction
        };
        self.release(id, over, out);
    }
}
