//! A server's parcel: the state that moves with the server to another worker or a successor
//! process.

use super::{Ending, Server, ServerConnection, ServerTimes};
use crate::cancel::errand::Cancels;
use crate::event::{Action, Close, LooseSocket, Out, Peer, ServerId};
use crate::parcel::ServerParcel;
use crate::pool::key::PoolId;
use crate::pooler::Pooler;
use crate::server::state::ServerState;
use crate::session::Tracking;
use crate::session::server::{Numbers, ServerSession};
use crate::standby;
use crate::statement::{Held, ServerSet};

impl Server {
    /// True if nothing is under way on the connection, and nothing prevents its use elsewhere.
    pub(crate) fn may_travel(&self) -> bool {
        self.ending.is_none()
            && !self.link.is_owed()
            && self.inbox.held().is_empty()
            && self.inbox.at_boundary()
            && !self.cancels.are_under_way()
    }

    /// True if the server has sent the beginning of a message without a request.
    pub(crate) fn is_in_a_message(&self) -> bool {
        let between = self.inbox.held().is_empty() && self.inbox.at_boundary();
        !between && self.ending.is_none() && !self.link.is_owed() && !self.cancels.are_under_way()
    }
}

impl Pooler {
    /// Takes a server, which the driver has detached, out of its pool and packs it. The caller
    /// moves the server's permit, or returns it. `None` if the server can't travel; then Howdah
    /// closes it.
    ///
    /// The parcel has no welcome: lending adds it, and a successor gets the data of each pool
    /// separately. (Nor does a successor get `epoch`: it has given no order yet.)
    pub(crate) fn take_out(
        &mut self,
        id: ServerId,
        socket: LooseSocket,
        out: &mut Out,
    ) -> Option<ServerParcel> {
        if !self.servers.get(id).is_some_and(Server::may_travel) {
            self.return_dirty(id, socket, out);
            return None;
        }
        let server = *self.servers.remove(id)?;
        self.keep_no_blocks();
        let pool = self.pools.at_mut(server.pool);
        pool.server_leaves(server.checkouts);
        let connection = server.connection;
        Some(ServerParcel {
            socket,
            ends: connection.ends.expect("a server at rest is connected"),
            host: connection.host,
            tls: connection.tls,
            number: server.number,
            pool: pool.key.clone(),
            key: server.cancels.key,
            params: server.session.params,
            session: server.session.settings,
            statements: server.statements.into_statements(),
            status: server.status,
            connected: server.times.connected,
            since: server.times.used,
            served: server.served,
            followed: self.logins.at(server.login).terms.tracking != Tracking::Nothing,
            standby: server.standby,
            instance: server.instance,
            vanishing: server.vanishing,
            welcome: None,
            epoch: self.janitor.epoch(),
        })
    }

    /// The server sent unexpected bytes while moving. Attaches it again, only to close it.
    pub(crate) fn return_dirty(&mut self, id: ServerId, socket: LooseSocket, out: &mut Out) {
        out.push(Action::Attach(Peer::Server(id), socket));
        self.close_server(id, "idle server got dirty", Close::Await, out);
    }

    /// Inserts a server that comes from elsewhere.
    pub(crate) fn insert_server(
        &mut self,
        pool_id: PoolId,
        parcel: ServerParcel,
        stale: bool,
        out: &mut Out,
    ) -> ServerId {
        let mut statements = ServerSet::new(self.seeded);
        let pool = self.pools.at(pool_id);
        let (login_id, target) = (pool.login, pool.target.clone());
        let connection = ServerConnection::open(target, parcel.ends, parcel.host, parcel.tls);
        let login = self.logins.at(login_id);
        let (schema, share) = (login.schema, &login.share);
        for (key, statement, shape) in parcel.statements {
            let own = self.shared.statements.adopt(schema, statement);
            own.charge_to(share);
            statements.mark(key, &own, Held::Sure);
            if let Some(shape) = shape {
                statements.describe(key, shape);
            }
        }
        let keys = statements.keys();
        let params = self.shared.params.intern((*parcel.params).clone());
        let settings = crate::session::intern(&mut self.shared.settings, parcel.session);
        let numbers = if parcel.served {
            Numbers::OF_SOMEBODY
        } else {
            Numbers::default()
        };
        let known = login.welcome.as_ref();
        let known = known.and_then(|welcome| standby::among(&welcome.parameters));
        let now = self.now;
        let id = self.servers.insert(|_| Server {
            state: ServerState::Idle,
            number: parcel.number,
            served: parcel.served,
            session: ServerSession::new(params, settings, numbers),
            statements,
            status: parcel.status,
            cancels: Cancels::new(parcel.key),
            // A server from the predecessor process comes without this value.
            standby: parcel.standby.or(known),
            instance: parcel.instance,
            vanishing: parcel.vanishing,
            permitted: true,
            times: ServerTimes::new(parcel.connected, now),
            ending: stale.then_some(Ending::Ordered("database configuration changed")),
            ..Server::blank((login_id, pool_id), connection, self.seeded, now)
        });
        self.watch_vanishing(id);
        let login = self.logins.at_mut(login_id);
        for key in keys {
            login.keepers.note(key, id);
        }
        self.pools.at_mut(pool_id).server_enters();
        out.push(Action::Attach(Peer::Server(id), parcel.socket));
        id
    }
}
