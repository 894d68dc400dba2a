//! Standbys advance: reads that wait go on, and servers mature.

use std::sync::Arc;

use crate::client::ClientState;
use crate::event::{ClientId, Out};
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::roster::round::Covers;
use crate::roster::view::HostList;

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
            if let Some(pool) = self.pool_there(id, Purpose::Clients, &TargetName::NoHost) {
                self.route_waiting(pool, out);
            }
        }
    }

    /// A client's read has waited for a standby long enough: it is routed again.
    pub(crate) fn read_gives_up(&mut self, id: ClientId, out: &mut Out) {
        let now = self.now;
        let client = gone!(self.clients.get_mut(id));
        client.read_gives_up(now);
        if let ClientState::Waiting(pool) = *client.state() {
            self.route_waiting(pool, out);
        }
    }
}
