//! How Howdah closes a server.

use howdah_wire::tag::frontend;
use howdah_wire::write;

use crate::deadlines::LIFE_OVER;
use crate::event::{Action, Close, Out, Peer, ServerId};
use crate::next::Next;
use crate::note::Level;
use crate::pooler::Pooler;
use crate::server::ServerState;

impl Pooler {
    /// Closes a server without a client.
    pub(crate) fn close_server(&mut self, id: ServerId, why: &str, how: Close, out: &mut Out) {
        let server = gone!(self.servers.get_mut(id));
        if matches!(server.state(), ServerState::Closing) {
            return;
        }
        debug_assert!(!server.is_linked(), "a linked server is not closed");
        if let ServerState::Lookup(lookup) = server.state() {
            self.next.note(Next::TellLost(lookup.client));
        }
        let pool = self.pools.at_mut(server.pool);
        match *server.state() {
            ServerState::Idle => pool.idle.remove(id),
            ServerState::Resolving => {
                pool.server_is_through();
                server.closes();
                self.note_closing(id, why, out);
                return self.next.note(Next::Forget(id));
            }
            ServerState::Connecting
            | ServerState::Securing(_)
            | ServerState::Login(_)
            | ServerState::ConnectQuery
            | ServerState::Maturing(_) => {
                pool.server_is_through();
            }
            ServerState::Checking => pool.test_ends(),
            ServerState::Listening { .. } => {
                self.listener_closes(id, out);
            }
            _ => {}
        }
        self.note_closing(id, why, out);
        let server = self.servers.at_mut(id);
        // After an SSLRequest, PostgreSQL would log a Terminate in clear text as an attack.
        let answers = !matches!(
            server.state(),
            ServerState::Connecting | ServerState::Securing(_)
        );
        if matches!(how, Close::Await) && answers && !server.cut_off() {
            out.send_with(Peer::Server(id), |buf| {
                write::empty(buf, frontend::TERMINATE)
            });
        }
        server.closes();
        out.push(Action::Close {
            peer: Peer::Server(id),
            how,
        });
    }

    pub(super) fn note_closing(&mut self, id: ServerId, why: &str, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        if self.config.globals.log_disconnections {
            let age = self.now.0.saturating_sub(server.times.connected.0) / 1_000_000_000;
            self.note_server(
                Level::Log,
                id,
                &format!("closing because: {why} (age={age}s)"),
                out,
            );
        }
    }

    /// Closes a server at the end of its lifetime. The pool's next server is closed some time
    /// later, so that servers that were opened together are not closed together.
    pub(crate) fn end_life(&mut self, id: ServerId, out: &mut Out) {
        let pool_id = gone!(self.servers.get(id)).pool;
        let pool = self.pools.at(pool_id);
        // Like PgBouncer if one worker has all servers of the pool: lifetime / pool_size.
        let share = match pool.supply.bounds.size {
            0 => 0,
            size => (size / u32::from(self.width(&pool.key.login))).max(pool.servers()),
        };
        let gap = pool.supply.server_lifetime.checked_div(share.into());
        self.pools
            .at_mut(pool_id)
            .ends_a_life(self.now, gap.unwrap_or(0));
        self.close_server(id, LIFE_OVER, Close::Await, out);
    }
}
