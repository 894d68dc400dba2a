//! Work of a server without a client: tests, resets, coming to rest.

use howdah_wire::backend::Status;

use super::Ending;
use crate::event::{Close, Out, ServerId};
use crate::fault::Fault;
use crate::note::Level;
use crate::pooler::Pooler;
use crate::server::ServerState;

/// The reason for the release of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// The client's transaction has ended.
    Transaction,
    /// The client's session has ended (session mode).
    Session,
}

impl Pooler {
    /// Tests a server that was idle for a long time.
    pub(crate) fn test_server(&mut self, id: ServerId, out: &mut Out) {
        let query = self.config.globals.server_check_query.clone();
        // In PgBouncer, `<empty>` means an empty query.
        let query = if query == "<empty>" {
            String::new()
        } else {
            query
        };
        let pool = self.servers.at(id).pool;
        self.pools.at_mut(pool).test_begins();
        self.run_task(id, ServerState::Checking, query.as_bytes(), out);
    }

    /// Runs `server_reset_query` on a server.
    pub(crate) fn reset_server(&mut self, id: ServerId, out: &mut Out) {
        let query = self.config.globals.server_reset_query.clone();
        self.run_task(id, ServerState::Resetting, query.as_bytes(), out);
    }

    pub(crate) fn run_task(
        &mut self,
        id: ServerId,
        state: ServerState,
        query: &[u8],
        out: &mut Out,
    ) {
        let server = self.servers.at_mut(id);
        server.runs_for_us(id, query, out);
        self.await_task(id, state);
    }

    /// A server begins a task. Howdah has sent the query.
    pub(crate) fn await_task(&mut self, id: ServerId, state: ServerState) {
        self.servers.at_mut(id).begins(state, self.now);
        self.watch_server(id);
    }

    /// PostgreSQL has refused a query of Howdah.
    pub(crate) fn task_failed(&mut self, id: ServerId, sqlstate: &str, error: &str, out: &mut Out) {
        let server = self.servers.at_mut(id);
        match *server.state() {
            // The server has reported its shutdown.
            ServerState::Aligning(client) if server.ending() == Some(Ending::CrashedUnheard) => {
                self.disconnect(client, Fault::ServerGone, out);
            }
            ServerState::Aligning(_) if server.session.inquiry.is_some() => {
                server.session.fail_inquiry(sqlstate == "57014");
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
        match *server.state() {
            ServerState::Aligning(_) if server.session.inquiry.is_some() => self.inquired(id, out),
            ServerState::Aligning(client) if server.session.trial().goes_on() => {
                self.try_again(client, id, out)
            }
            ServerState::Aligning(_) => self.aligned(id, out),
            ServerState::ConnectQuery if server.status != Status::Idle => {
                let text = "connect_query left a transaction open";
                self.note_server(Level::Warning, id, text, out);
                self.login_failed(id, "25001", text, out);
                self.close_server(id, "connect_query failed", Close::Await, out);
            }
            ServerState::ConnectQuery => self.server_ready(id, out),
            ServerState::Draining => self.drained_of_client(id, out),
            ServerState::Resetting | ServerState::Checking => {
                if matches!(server.state(), ServerState::Checking) {
                    self.pools.at_mut(server.pool).test_ends();
                    server.comes_free(self.now);
                }
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

    /// Returns a server to its pool after a client, with a reset if due.
    #[inline]
    pub(crate) fn release(&mut self, id: ServerId, over: Over, out: &mut Out) {
        let session = over == Over::Session;
        let globals = &self.config.globals;
        let resets = (session || globals.server_reset_query_always)
            && !globals.server_reset_query.is_empty();
        if !resets && !session && self.servers.at(id).session.is_clean() {
            self.checkin(id, out)
        } else {
            self.clean(id, session, resets, out)
        }
    }

    /// Removes the state that a client has left on a server, then returns the server. `session`:
    /// the client's session has ended (session mode). `resets`: `server_reset_query` is due.
    #[inline(never)] // Most servers are clean.
    fn clean(&mut self, id: ServerId, session: bool, resets: bool, out: &mut Out) {
        let fit = self.servers.at(id).ending().is_none();
        // After DISCARD ALL, no reset is needed.
        let discards = self.discards_all(id);
        if fit && (session || resets) {
            self.doubt_session(id);
        }
        let cleans = fit && self.clean_session(id, out);
        if resets && fit && !discards {
            self.reset_server(id, out)
        } else if !cleans {
            self.checkin(id, out)
        }
    }
}
