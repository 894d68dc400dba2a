//! A server's way to another worker, and the welcome that it brings along.

use crate::event::{Action, LooseSocket, Out, ServerId};
use crate::login::key::{LoginId, Welcome};
use crate::mail::{Mail, ToBroker};
use crate::pool::key::Purpose;
use crate::pooler::Pooler;
use crate::server::{Server, ServerParcel, ServerState};

impl Pooler {
    pub(crate) fn server_detached(&mut self, id: ServerId, socket: LooseSocket, out: &mut Out) {
        let Some(server) = self.servers.get(id) else {
            out.push(Action::Discard(socket));
            return;
        };
        let pool_id = server.pool;
        if matches!(server.state(), ServerState::Packed) {
            return self.server_packed(id, socket, out);
        }
        let ServerState::Lent(to) = *server.state() else {
            // The server was to be closed meanwhile. The driver has given it up, so no more events
            // follow.
            out.push(Action::Discard(socket));
            return self.server_gone(id, out);
        };
        let Some(parcel) = self.take_out(id, socket, out) else {
            return;
        };
        let pool = self.pools.at_mut(pool_id);
        let login = self.logins.at_mut(pool.login);
        login.count_lend();
        let moved = ToBroker::Moved {
            from: self.worker,
            to,
            pool: pool.key.clone(),
        };
        let parcel = ServerParcel {
            welcome: login.welcome.clone(),
            ..parcel
        };
        out.push(Action::Broker(moved));
        out.push(Action::Post(to, Mail::Server(Box::new(parcel))));
    }

    pub(crate) fn server_arrived(&mut self, mut parcel: ServerParcel, out: &mut Out) {
        let database = match self.pools.find(&parcel.pool) {
            Some(id) => {
                let login = self.pools.at(id).login;
                Some(self.logins.at(login).terms.database.clone())
            }
            None => self.config.database(&parcel.pool.login.database),
        };
        let Some(database) = database else {
            // The database left the configuration while the server was on its way.
            let (worker, pool) = (self.worker, parcel.pool);
            let freed = ToBroker::Freed { worker, pool };
            out.push(Action::Discard(parcel.socket));
            out.push(Action::Broker(freed));
            return;
        };
        let pool_id = self.pool_for(&parcel.pool, &database);
        let stale = parcel.epoch < self.janitor.epoch();
        let (welcome, since) = (parcel.welcome.take(), parcel.since);
        self.sated(pool_id, out);
        let id = self.insert_server(pool_id, parcel, stale, out);
        let pool = self.pools.at_mut(pool_id);
        if pool.key.purpose != Purpose::Clients {
            // The server has logged in somewhere.
            pool.mark_proved();
        } else if let Some(welcome) = welcome.filter(|_| !stale) {
            let login = pool.login;
            self.learn_welcome(login, welcome, out);
        }
        let unused = self.needs_test(since) && !self.pools.at(pool_id).waiting.is_empty();
        if unused && !stale && self.pools.at(pool_id).gives() {
            self.test_server(id, out);
        } else {
            self.checkin(id, out);
            // No client has used the server meanwhile: a move is not use.
            let idle = |server: &&mut Server| matches!(server.state(), ServerState::Idle);
            if let Some(server) = self.servers.get_mut(id).filter(idle) {
                server.times.set_used(since);
                self.watch_server(id);
            }
        }
        self.suspend_server(id, out);
        self.need(pool_id, out);
    }

    /// Stores the login parameters reported to another worker, if no server here has reported them
    /// yet, and tells newcomers. (This worker may get no permit for a server.)
    pub(crate) fn learn_welcome(&mut self, id: LoginId, welcome: Welcome, out: &mut Out) {
        // Known parameters stay, even if they came from a server that was lost before it was ready.
        let login = self.logins.at_mut(id);
        if login.welcome.is_none() {
            let tracked = self.shared.params.intern((*welcome.tracked).clone());
            login.learns_welcome(Welcome { tracked, ..welcome });
        }
        for pool_id in self.logins.at(id).pools().to_vec() {
            let pool = self.pools.at_mut(pool_id);
            if pool.key.purpose == Purpose::Clients {
                pool.mark_proved();
            }
        }
        self.greet_newcomers(id, out);
    }
}
