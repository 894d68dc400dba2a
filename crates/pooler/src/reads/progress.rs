//! Standbys advance: reads that wait go on, and servers mature.

use std::sync::Arc;

use crate::client::ClientState;
use crate::event::{ClientId, Out};
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::roster::round::Covers;
use crate::roster::view::HostList;
use crate::server::Server;

impl Pooler {
    /// The standbys of a list of hosts have come further: reads that wait go on, and servers mature.
    pub(crate) fn standbys_advance(&mut self, list: HostList, covers: Arc<Covers>, out: &mut Out) {
        self.covers.insert(list.clone(), covers);
        self.call_in_other_instances(&list, out);
        self.mature_servers(&list);
        for id in self.logins.ids() {
            let login = self.logins.at(id);
            if login.terms.reads.is_none() || *login.terms.database.hosts != *list {
                continue;
            }
            let covers = self.covers.get(&list).cloned();
            self.logins.at_mut(id).reads.set_covers(covers);
            if let Some(pool) = self.pool_there(id, Purpose::Clients, &TargetName::NoHost) {
                self.route_waiting(pool);
            }
        }
    }

    /// A client's read has waited for a standby long enough: it is routed again.
    pub(crate) fn read_gives_up(&mut self, id: ClientId) {
        let now = self.now;
        let client = gone!(self.clients.get_mut(id));
        client.read_gives_up(now);
        if let ClientState::Waiting(pool) = *client.state() {
            self.route_waiter(id, pool);
        }
    }

    /// A standby has been restarted, or another PostgreSQL has its address: servers of the one before
    /// serve no reads.
    fn call_in_other_instances(&mut self, list: &HostList, out: &mut Out) {
        let covers = gone!(self.covers.get(list)).clone();
        let (logins, pools) = (&self.logins, &self.pools);
        let is_other = |server: &Server| {
            let Some(instance) = server.instance else {
                return false;
            };
            let TargetName::Host(host) = &pools.at(server.pool).key.target else {
                return false;
            };
            let cover = covers.get(&**host);
            *logins.at(server.login).terms.database.hosts == **list
                && cover.is_some_and(|cover| cover.instance != instance)
        };
        let others = self.servers.iter().filter(|(_, server)| is_other(server));
        for id in others.map(|(id, _)| id).collect::<Vec<_>>() {
            self.replace(id, "another instance answers at its host", out);
        }
    }
}
