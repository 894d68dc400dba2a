//! Work of a server without a client: tests, resets, cleaning.

use crate::event::{Out, ServerId};
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
