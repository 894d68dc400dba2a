//! Standbys advance: reads that wait go on, and a round is asked for where they can't.

use std::sync::Arc;

use crate::client::ClientState;
use crate::event::{ClientId, Out, Time};
use crate::host_check::tell;
use crate::login::LoginId;
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::roster::fact::Fact;
use crate::roster::round::Covers;
use crate::roster::view::{HostList, Role};

impl Pooler {
    /// A client's read waits until a standby covers a round above its floor.
    pub(crate) fn read_awaits_round(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        let mark = client.read_mark.as_ref();
        let (Some(login), Some(mark)) = (client.login, mark) else {
            return;
        };
        if let Some(until) = mark.waits_until() {
            self.await_round(login, mark.floor, until, out);
        }
    }

    /// A standby is to cover a later round than this, until then: asks for one.
    pub(crate) fn await_round(&self, login: LoginId, above: u64, until: Time, out: &mut Out) {
        let login = self.logins.at(login);
        let list = self.hosts.lists.get(&*login.terms.database.hosts);
        let hosts = list.map_or(&[][..], |list| &list.hosts);
        let primary = hosts.iter().find(|(_, of)| of.role == Some(Role::Primary));
        if let Some((host, _)) = primary {
            tell(host.clone(), Fact::RoundAwaited { above, until }, out);
        }
    }

    /// The standbys of a list of hosts have come further: reads that wait go on, and servers mature.
    pub(crate) fn standbys_advance(&mut self, list: HostList, covers: Arc<Covers>, out: &mut Out) {
        self.covers.insert(list.clone(), covers);
        self.call_in_other_instances(&list, out);
        self.mature_servers(&list, out);
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
        if let Some(mark) = &mut client.read_mark {
            mark.gives_up(now);
        }
        if let ClientState::Waiting(pool) = *client.state() {
            self.route_waiting(pool, out);
        }
    }
}
