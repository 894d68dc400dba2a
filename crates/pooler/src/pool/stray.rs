//! Strays: clients that a reload has left in the login of another user. An entry of a database that
//! forces another user, or that has a table for one more user, gives clients other pools. No client
//! may get a server that has logged in for another user's pool.

use crate::client::ClientState;
use crate::event::{ClientId, Out};
use crate::fault::Fault;
use crate::opening::Opening;
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;

impl Pooler {
    /// After a reload: strays that have no server go to their logins at once. Those with a server go
    /// when they next need one.
    pub(crate) fn send_strays_home(&mut self, out: &mut Out) {
        for id in self.logins.ids() {
            if !self.logins.at(id).is_forsaken() {
                continue;
            }
            let of_login = self.clients.iter().filter(|(_, of)| of.login == Some(id));
            let clients = of_login.map(|(client, _)| client);
            let strays: Vec<_> = clients.filter(|client| self.is_stray(*client)).collect();
            for client in strays {
                self.send_stray_home(client, out);
            }
            for pool in self.logins.at(id).pools().to_vec() {
                if self.pools.at(pool).key.purpose == Purpose::Clients {
                    for client in self.pools.at_mut(pool).take_newcomers() {
                        self.newcomer_goes_on(client, out);
                        self.welcome_stray(client, out);
                    }
                    self.route_waiting(pool);
                }
                self.need(pool, out);
            }
            self.place_login(id, out);
        }
        self.end_forsaking();
    }

    fn send_stray_home(&mut self, id: ClientId, out: &mut Out) {
        let client = self.clients.at(id);
        if client.is_replicating() {
            // Its server would be its own until it leaves.
            return self.disconnect(id, Fault::DatabaseChanged, out);
        }
        if matches!(client.state(), ClientState::Idle) {
            self.route(id, Opening::Unread);
        }
    }

    /// A newcomer's new login may know PostgreSQL's parameters already.
    fn welcome_stray(&mut self, id: ClientId, out: &mut Out) {
        let login = gone!(self.clients.get(id)).login;
        if login.is_some_and(|login| self.logins.at(login).welcome.is_some()) {
            self.welcome(id, out);
        }
    }

    /// Logins whose strays are gone know the pool of their clients again.
    pub(crate) fn end_forsaking(&mut self) {
        for id in self.logins.ids() {
            let login = self.logins.at(id);
            let is_placed = login.terms.database.is_placed();
            if login.is_forsaken() && !self.has_strays(id, &login.terms.database) {
                let home = self.pool_there(id, Purpose::Clients, &TargetName::Entry);
                let home = home.filter(|_| !is_placed);
                self.logins.at_mut(id).mark_kept(home);
                if is_placed {
                    self.set_home(id);
                }
            }
        }
    }
}
