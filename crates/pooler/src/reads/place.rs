//! Where a read goes: to a standby that shows all that its client has seen, or to the primary.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chacha20::rand_core::Rng;

use crate::client::ClientState;
use crate::config::ReadTarget;
use crate::event::{ClientId, Out, ServerId, Time};
use crate::host_check::tell;
use crate::login::LoginId;
use crate::next::Next;
use crate::opening::Opening;
use crate::pool::key::{PoolId, Purpose};
use crate::pool::placed::by_weight;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::reads::ReadTerms;
use crate::reads::mark::ReadMark;
use crate::reads::wish::wish;
use crate::roster::fact::Fact;
use crate::roster::round::Covers;
use crate::roster::view::{HostList, Role};

impl Pooler {
    /// The pool for a client's request, if the request is a read. `None` if it goes where all others
    /// go.
    pub(crate) fn read_pool(&mut self, id: ClientId, opening: Opening<'_>) -> Option<PoolId> {
        let client = self.clients.at_mut(id);
        let login_id = client.login?;
        let terms = self.logins.at(login_id).terms.reads?;
        if client.is_replicating() {
            return None;
        }
        let waits = matches!(client.state(), ClientState::Waiting(_));
        let wish = match opening {
            // It has waited, and is routed again.
            Opening::Unread if waits => client.read_mark.as_ref().and_then(|mark| mark.wish),
            _ => wish(client, opening, terms.target),
        };
        let begun = self.begun.load(Ordering::SeqCst);
        let mark = client
            .read_mark
            .get_or_insert_with(|| Box::new(ReadMark::new(begun)));
        if !waits {
            mark.begins(wish);
        }
        let wish = wish?;
        let mark = **mark;
        let mut choice = self.choice(login_id, &mark, &terms, wish);
        let is_alone = !choice.is_near;
        if !choice.is_free
            && choice.at.is_some()
            && (is_alone || mark.stays(self.now) || !self.waits_for_standby(id, &terms))
        {
            choice.pools.extend(choice.at);
        }
        let pools = choice.pools.iter().copied();
        if let Some(pool) = by_weight(pools, self.random.next_u64()) {
            let (now, is_free) = (self.now, choice.is_free);
            if let Some(mark) = &mut self.clients.at_mut(id).read_mark {
                mark.finds(now, is_free);
            }
            return Some(pool);
        }
        if choice.is_near && self.waits_for_standby(id, &terms) {
            return Some(self.pool_at(login_id, Purpose::Clients, TargetName::NoHost));
        }
        if let Some(mark) = &mut self.clients.at_mut(id).read_mark {
            mark.gives_up(self.now);
        }
        match wish {
            // It waits for a standby, however long.
            ReadTarget::Standby => {
                Some(self.pool_at(login_id, Purpose::Clients, TargetName::NoHost))
            }
            ReadTarget::PreferStandby | ReadTarget::Any => None,
        }
    }

    /// The pools that may serve a client's read.
    fn choice(
        &self,
        login: LoginId,
        mark: &ReadMark,
        terms: &ReadTerms,
        wish: ReadTarget,
    ) -> Choice {
        let login = self.logins.at(login);
        let covers = self.covers.get(&*login.terms.database.hosts);
        let mut choice = Choice::default();
        for (pool_id, weight) in login.read_pools() {
            let pool = self.pools.at(*pool_id);
            let TargetName::Host(host) = &pool.key.target else {
                continue;
            };
            if self.backs_off(*pool_id) {
                continue;
            }
            let standing = self.standing(pool.login, host);
            if standing.is_some_and(|of| of.role == Some(Role::Primary)) {
                if wish == ReadTarget::Any {
                    choice.pools.push((*pool_id, *weight));
                }
                continue;
            }
            let cover = covers.and_then(|covers| covers.get(host));
            let lags = cover.map_or(terms.max_lag < u64::MAX, |cover| cover.lag > terms.max_lag);
            match cover {
                _ if lags => {}
                _ if !terms.is_session => choice.pools.push((*pool_id, *weight)),
                Some(cover) if cover.round > mark.floor => choice.pools.push((*pool_id, *weight)),
                Some(cover) if mark.at == Some(cover.instance) => {
                    choice.at = Some((*pool_id, *weight));
                }
                _ => choice.is_near |= cover.is_some(),
            }
        }
        choice.is_free = !choice.pools.is_empty();
        choice
    }

    /// True if a read waits for a standby that shows enough. A round begins at once.
    fn waits_for_standby(&mut self, id: ClientId, terms: &ReadTerms) -> bool {
        let now = self.now;
        let client = self.clients.at_mut(id);
        let mark = gone!(client.read_mark.as_mut());
        if !mark.waits(now, terms.wait) {
            return false;
        }
        self.next.note(Next::AwaitRound(id));
        true
    }

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

    /// A client has got its last answer from a server.
    pub(crate) fn client_has_seen(&mut self, client: ClientId, server: ServerId) {
        let begun = self.begun.load(Ordering::SeqCst);
        let instance = self.servers.get(server).and_then(|server| server.instance);
        let client = gone!(self.clients.get_mut(client));
        let mark = client
            .read_mark
            .get_or_insert_with(|| Box::new(ReadMark::new(begun)));
        mark.sees(begun, instance);
    }
}

/// The pools that may serve a read, with their weights.
#[derive(Debug, Default)]
struct Choice {
    /// They show all that the client has seen.
    pools: Vec<(PoolId, u32)>,
    /// There is one, whatever the client has seen there.
    is_free: bool,
    /// The pool at the standby that answered last, if that shows all only because of this.
    at: Option<(PoolId, u32)>,
    /// There are other standbys that may show all soon.
    is_near: bool,
}
