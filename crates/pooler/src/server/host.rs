//! What a server finds out about its host, and what follows for the server.

use crate::config::{HostPort, nanos};
use crate::event::{Close, Out, ServerId};
use crate::host_check::tell;
use crate::note::Level;
use crate::opening::Opening;
use crate::pool::Failure;
use crate::pool::fit::wish;
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::roster::fact::Fact;
use crate::roster::view::{HostStanding, Role, State};

/// Why servers are closed whose host has another role, or is to be empty.
pub(crate) const UNFIT: &str = "host is not used any more";

impl Pooler {
    /// A host refuses connections, can't be reached or is starting up: tells the roster.
    pub(crate) fn host_is_down(&mut self, id: ServerId, why: &str, out: &mut Out) {
        let server = self.servers.at(id);
        let pool = self.pools.at(server.pool);
        let TargetName::Host(host) = &pool.key.target else {
            return;
        };
        let standing = self.standing(server.login, host);
        if standing.is_none_or(|standing| standing.state == State::Up) {
            tell((**host).clone(), Fact::Down(why.into()), out);
        }
    }

    /// A server has logged in to a host of a placed database. False if the host has reported another
    /// role than the pool wants: then the server is closed.
    pub(crate) fn host_serves(&mut self, id: ServerId, out: &mut Out) -> bool {
        let server = self.servers.at(id);
        let key = self.pools.at(server.pool).key.clone();
        let TargetName::Host(host) = &key.target else {
            return true;
        };
        let database = self.logins.at(server.login).terms.database.clone();
        let list = self.hosts.lists.get(&*database.hosts);
        let Some(list) = list.filter(|_| key.purpose != Purpose::Checks) else {
            return true;
        };
        let standing = list.standing(host).cloned();
        let is_for_reads = standing.as_ref().is_some_and(|known| {
            known.role == Some(Role::Standby) && self.may_serve(server.login, key.purpose, known)
        });
        let found = standing.map(|standing| self.found_by_login(id, host, standing, out));
        // Neither a check nor this login tells the role.
        let serves = |found: HostStanding| {
            let is_standby = found.role == Some(Role::Standby);
            let fits = found.rank(wish(&database, key.purpose)).is_some();
            found.role.is_some() && (fits || is_for_reads && is_standby)
        };
        if found.is_some_and(|found| key.purpose == Purpose::Lookups || serves(found)) {
            return true;
        }
        let text = "the host has another role, or none that it tells";
        self.note_server(Level::Log, id, text, out);
        self.rest_for_a_moment(id, text);
        self.line_up_again(id);
        self.close_server(id, UNFIT, Close::Await, out);
        false
    }

    /// A server has passed its test: its host is up.
    pub(crate) fn host_passes(&self, id: ServerId, out: &mut Out) {
        let server = self.servers.at(id);
        let TargetName::Host(host) = &self.pools.at(server.pool).key.target else {
            return;
        };
        let standing = self.standing(server.login, host);
        if standing.is_some_and(|of| matches!(of.state, State::Down | State::Silent)) {
            tell((**host).clone(), Fact::Up, out);
        }
    }

    /// What a login says of a host, which the roster is told if it is new.
    pub(crate) fn found_by_login(
        &self,
        id: ServerId,
        host: &HostPort,
        known: HostStanding,
        out: &mut Out,
    ) -> HostStanding {
        let server = self.servers.at(id);
        let mut found = known.clone();
        if matches!(known.state, State::Down | State::Silent) {
            found.state = State::Up;
            tell(host.clone(), Fact::Up, out);
        }
        let Some(in_recovery) = server.standby else {
            return found;
        };
        found.role = Some(if in_recovery {
            Role::Standby
        } else {
            Role::Primary
        });
        if found.role != known.role {
            let fact = Fact::Role {
                in_recovery,
                since: server.times.connected,
            };
            tell(host.clone(), fact, out);
        }
        found
    }

    /// The next login to this host must wait, or the same would come again and again until the roster
    /// has told all workers.
    pub(crate) fn rest_for_a_moment(&mut self, id: ServerId, why: &str) {
        let retry = nanos(self.config.globals.server_login_retry);
        let pool = self.servers.at(id).pool;
        let pool = self.pools.at_mut(pool);
        let last = pool.failure.as_ref();
        // As a host that is starting up.
        let failure = Failure::new((self.now, 0), ("57P03", why), last, retry);
        self.janitor.retry_at(failure.until);
        pool.logins_fail(failure);
    }

    /// The client that a server is reserved for waits for another one.
    pub(crate) fn line_up_again(&mut self, id: ServerId) {
        let server = self.servers.at(id);
        let (pool, client) = (server.pool, server.reserved_for());
        let Some(client) = client.filter(|_| !server.is_linked()) else {
            return;
        };
        let waiter = gone!(self.clients.get(client));
        let since = waiter.times.request;
        let pool = self.route(client, Opening::Unread).unwrap_or(pool);
        self.clients.at_mut(client).stands_in_line(pool);
        self.pools.at_mut(pool).waiting.rejoin(client, since);
    }
}
