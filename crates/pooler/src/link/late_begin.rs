//! PostgreSQL has answered the BEGIN that Howdah had answered before, to a client of a sharded database
//! ([`crate::shard::transaction`]).

use howdah_wire::write;

use crate::event::{ClientId, Out, ServerId};
use crate::link::ends::Farewell;
use crate::next::Next;
use crate::pooler::Pooler;
use crate::server::ServerState;
use crate::shard::transaction::AfterBegin;

impl Pooler {
    /// True while a server runs the late BEGIN of its client.
    pub(crate) fn begins_late(&self, id: ServerId) -> bool {
        let ServerState::Aligning(client) = *self.servers.at(id).state() else {
            return false;
        };
        let client = self.clients.get(client);
        let sharded = client.and_then(|client| client.sharded.as_deref());
        sharded.is_some_and(|sharded| sharded.transaction.is_beginning())
    }

    /// PostgreSQL has refused a client's late BEGIN, and will say its state.
    pub(crate) fn begin_refused(&mut self, id: ClientId, sqlstate: &str, message: &str) {
        if let Some(sharded) = self.clients.at_mut(id).sharded_mut() {
            sharded.transaction.learns_refusal(sqlstate, message);
        }
    }

    /// PostgreSQL has answered a client's late BEGIN.
    pub(crate) fn begin_answered(&mut self, id: ServerId, client: ClientId, out: &mut Out) {
        let status = self.servers.at(id).status;
        let transaction = match self.clients.at_mut(client).sharded_mut() {
            Some(sharded) => &mut sharded.transaction,
            None => return,
        };
        let refused = match transaction.is_answered(status) {
            AfterBegin::Goes => return self.aligned(id, out),
            AfterBegin::Over => None,
            AfterBegin::Refused(sqlstate, message) => Some((sqlstate, message)),
        };
        self.leave_server(client, Farewell::Orderly, out);
        if let Some((sqlstate, message)) = refused {
            let error = |buf: &mut Vec<u8>| write::error(buf, "ERROR", &sqlstate, &message);
            self.fail_waiting(client, sqlstate.as_bytes(), error, out);
        }
        self.next.note(Next::Resume(client));
    }
}
