//! Placed databases: which of their hosts serves a client. The control thread says what the hosts
//! are ([`View`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::client::ClientState;
use crate::config::HostPort;
use crate::event::{ClientId, Close, Out, Time};
use crate::fault::Fault;
use crate::login::{Login, LoginId};
use crate::maintenance::PERIOD_NS;
use crate::next::Next;
use crate::opening::Opening;
use crate::pool::Pool;
use crate::pool::fit::fit_hosts;
use crate::pool::key::{PoolId, PoolKey, Purpose};
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::roster::view::{HostStanding, Role, State, View};
use crate::server::ServerState;
use crate::server::host::UNFIT;

/// Why servers are closed at once.
const FENCED: &str = "host is fenced";

/// Why servers are closed whose host does not answer.
const SILENT: &str = "host does not answer";

impl Pooler {
    /// The control thread says that something about the hosts has changed.
    pub(crate) fn hosts_changed(&mut self, view: Arc<View>, out: &mut Out) {
        let before = std::mem::replace(&mut self.hosts, view);
        if self.hosts.fences_more_than(&before) {
            // Servers in the mail are replaced when they arrive. Every worker counts every fence.
            self.janitor.epoch += 1;
        }
        for id in self.logins.ids() {
            self.place_login(id, out);
        }
        self.promoted_servers_mature();
        self.welcome_back(&before, out);
        self.follow_hosts();
        let view = self.hosts.clone();
        self.past_checkouts.retain(|host, _| view.has(host));
    }

    /// Sends the clients of a login where the hosts fit now, and ends the use of hosts that do not.
    pub(crate) fn place_login(&mut self, id: LoginId, out: &mut Out) {
        let login = self.logins.at(id);
        let (database, max_lag) = (login.terms.database.clone(), login.terms.max_lag);
        let mut pools = login.pools().iter().map(|pool| &self.pools.at(*pool).key);
        if database.is_placed() && pools.any(|key| key.purpose == Purpose::Clients) {
            self.set_home(id);
        }
        let view = self.hosts.clone();
        let list = view.lists.get(&*database.hosts);
        for pool_id in self.logins.at(id).pools().to_vec() {
            let key = self.pools.at(pool_id).key.clone();
            if key.purpose == Purpose::Checks {
                continue;
            }
            let fit = fit_hosts(list, (&database, max_lag), key.purpose);
            if let (TargetName::Host(host), Some(list)) = (&key.target, list) {
                self.judge_servers(pool_id, (host, list.standing(host)), &fit, out);
            }
            let stays = match &key.target {
                _ if !database.is_placed() => key.target == TargetName::Entry,
                TargetName::Host(host) => fit.iter().any(|fit| **fit == **host),
                TargetName::Entry => false,
                TargetName::NoHost => fit.is_empty() && self.logins.at(id).read_pools().is_empty(),
            };
            if !stays {
                self.send_on(pool_id, &key, out);
            }
        }
    }

    /// Closes the servers of a pool whose host must not be used.
    fn judge_servers(
        &mut self,
        pool_id: PoolId,
        (host, standing): (&HostPort, Option<&HostStanding>),
        fit: &[&HostPort],
        out: &mut Out,
    ) {
        let pool = self.pools.at(pool_id);
        let purpose = pool.key.purpose;
        let fits = |standing| self.may_serve(pool.login, purpose, standing);
        let fits = standing.is_some_and(fits);
        let elsewhere = fit.iter().any(|other| *other != host);
        match standing {
            Some(standing) if standing.state == State::Fenced => {
                self.cut_off(pool_id, FENCED, out);
            }
            Some(standing) if standing.state == State::Silent && elsewhere => {
                self.cut_off(pool_id, SILENT, out);
            }
            Some(standing) if standing.state == State::Silent => {}
            Some(standing) if keeps_servers(standing, fits) => {}
            Some(standing) if purpose == Purpose::Lookups && standing.state <= State::Down => {}
            _ => self.call_in(pool_id, UNFIT, out),
        }
    }

    /// A host that was away is back, or a standby has been promoted: its pools need not wait any longer
    /// because logins have failed there before.
    fn welcome_back(&mut self, before: &View, out: &mut Out) {
        let standing = |view: &View, pool: &Pool, login: &Login| {
            let TargetName::Host(host) = &pool.key.target else {
                return None;
            };
            let list = view.lists.get(&*login.terms.database.hosts);
            let standing = list.and_then(|list| list.standing(host));
            Some(standing.map_or((false, None), |of| (of.state == State::Up, of.role)))
        };
        for id in self.pools.ids() {
            let pool = self.pools.at(id);
            let login = self.logins.at(pool.login);
            let then = standing(before, pool, login);
            let now = standing(&self.hosts, pool, login);
            let is_there = |of: Option<(bool, Option<Role>)>| of.is_none_or(|(is_up, _)| is_up);
            let role = |of: Option<(bool, Option<Role>)>| of.and_then(|(_, role)| role);
            let returns = !is_there(then) && is_there(now);
            let rises = role(then) == Some(Role::Standby) && role(now) == Some(Role::Primary);
            if pool.failure.is_some() && (returns || rises) {
                self.pools.at_mut(id).login_may_succeed();
                self.need_anew(id, out);
            }
        }
    }

    /// What views do not bring about: hosts whose roles only logins tell are tried, and so is a pool
    /// whose logins fail while other pools share its work. Its clients wait at those.
    pub(crate) fn try_hosts(&mut self, out: &mut Out) {
        for id in self.logins.ids() {
            let login = self.logins.at(id);
            if !login.terms.database.is_placed() || login.clients() == 0 {
                continue;
            }
            self.try_hidden_host(id, out);
            self.route_reads_again(id);
            let fails = |(pool, _): &&(PoolId, u32)| self.pools.at(*pool).failure.is_some();
            let shares = self.logins.at(id).shares();
            let failing: Vec<PoolId> = shares.iter().filter(fails).map(|(pool, _)| *pool).collect();
            if failing.len() == shares.len() {
                continue;
            }
            for pool in failing {
                let key = self.pools.at(pool).key.clone();
                self.send_on(pool, &key, out);
                self.try_pool(pool, out);
            }
        }
    }

    /// Reads that wait for a standby try again: one may be done with a failed login.
    fn route_reads_again(&mut self, id: LoginId) {
        if self.logins.at(id).terms.reads.is_none() {
            return;
        }
        if let Some(pool) = self.pool_there(id, Purpose::Clients, &TargetName::NoHost) {
            self.route_waiting(pool);
        }
    }

    /// Where checks can't find the roles, logins must: one host after the other gets a login, or a test
    /// of an idle server, if its role is not known, if it is down, or if clients wait.
    fn try_hidden_host(&mut self, id: LoginId, out: &mut Out) {
        let login = self.logins.at(id);
        let database = &login.terms.database;
        // They wait for a host, or for one that is away.
        let own = login.home().into_iter();
        let mut own = own.chain(login.shares().iter().map(|(pool, _)| *pool));
        let waits = own.any(|id| {
            let pool = self.pools.at(id);
            pool.is_waited_for() && (pool.key.target == TargetName::NoHost || self.backs_off(id))
        });
        let due = |(_, standing): &&(HostPort, HostStanding)| {
            let is_up = standing.state == State::Up && (waits || standing.role.is_none());
            standing.hidden && (is_up || standing.state == State::Down)
        };
        let due: Vec<&(HostPort, HostStanding)> =
            self.hosts.hosts(database).iter().filter(due).collect();
        let turn = (self.now.0 / PERIOD_NS) as usize;
        let Some((host, _)) = due.get(turn % due.len().max(1)) else {
            return;
        };
        let target = TargetName::host(host);
        let pool = self.pool_at(id, Purpose::Clients, target);
        self.try_pool(pool, out);
    }

    /// Tests an idle server of a pool, or asks for one more, though no client waits for it.
    fn try_pool(&mut self, pool: PoolId, out: &mut Out) {
        match self.pools.at(pool).idle.newest() {
            Some(server) => {
                self.pools.at_mut(pool).idle.remove(server);
                self.test_server(server, out);
            }
            None if self.backs_off(pool) || self.pools.at(pool).connecting() > 0 => {}
            // One more, however many there are.
            None => self.warm_to(pool, u32::MAX, out),
        }
    }

    /// Those who wait in a pool whose host does not fit go to one that does, with their time.
    fn send_on(&mut self, pool_id: PoolId, key: &PoolKey, out: &mut Out) {
        match key.purpose {
            Purpose::Clients => {
                for client in self.pools.at_mut(pool_id).take_newcomers() {
                    self.newcomer_goes_on(client, out);
                }
                self.route_waiting(pool_id);
            }
            Purpose::Lookups => {
                for (client, _) in self.pools.at_mut(pool_id).waiting.take_all() {
                    self.next.note(Next::LookUp(client));
                }
            }
            Purpose::Listening | Purpose::Checks | Purpose::Catalogue | Purpose::Placing => {}
        }
    }

    /// Routes the clients again that wait in a pool, with their time.
    pub(crate) fn route_waiting(&mut self, pool_id: PoolId) {
        if !self.has_pool(pool_id) {
            return;
        }
        let mut reached = BTreeSet::new();
        for (client, since) in self.pools.at_mut(pool_id).waiting.take_all() {
            reached.extend(self.waiter_goes_on(client, (pool_id, since)));
            self.watch_client(client);
        }
        // Other lines may be routed to the same pools in this event. Nobody is served before them.
        for pool in reached {
            self.next.note(Next::Need(pool));
        }
    }

    /// Routes one client again that waits in a pool, with its time.
    pub(crate) fn route_waiter(&mut self, id: ClientId, pool_id: PoolId) {
        let is_own = |(other, _): &(ClientId, Time)| *other == id;
        let place = self.pools.at(pool_id).waiting.iter().find(is_own);
        let Some((_, since)) = place else {
            return;
        };
        self.pools.at_mut(pool_id).waiting.leave(id);
        if let Some(reached) = self.waiter_goes_on(id, (pool_id, since)) {
            self.next.note(Next::Need(reached));
        }
        self.watch_client(id);
    }

    /// True if a pool is still there.
    pub(crate) fn has_pool(&self, id: PoolId) -> bool {
        self.pools.iter().any(|(other, _)| other == id)
    }

    /// A client that waits for a server waits at another host, with its time: in which pool.
    fn waiter_goes_on(&mut self, id: ClientId, (from, since): (PoolId, Time)) -> Option<PoolId> {
        let client = gone!(self.clients.get(id));
        if !matches!(client.state(), ClientState::Waiting(pool) if *pool == from) {
            return None;
        }
        let pool = self.route(id, Opening::Unread)?;
        self.clients.at_mut(id).stands_in_line(pool);
        self.pools.at_mut(pool).waiting.join_behind(id, since);
        Some(pool)
    }

    /// A client that waits for its login's first server waits at another host.
    pub(crate) fn newcomer_goes_on(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        if !matches!(client.state(), ClientState::Welcome(_)) {
            return;
        }
        if let Some(pool) = self.route(id, Opening::Unread) {
            self.clients.at_mut(id).awaits_welcome(pool);
            self.pools.at_mut(pool).awaits_welcome(id);
            self.need(pool, out);
        }
    }

    /// Closes all servers of a pool at once, inside transactions, too.
    fn cut_off(&mut self, pool_id: PoolId, why: &'static str, out: &mut Out) {
        let of_pool = self
            .servers
            .iter()
            .filter(|(_, server)| server.pool == pool_id);
        for id in of_pool.map(|(id, _)| id).collect::<Vec<_>>() {
            match self.servers.at(id).state() {
                // It is on its way to another worker, and closes there.
                ServerState::Lent(_) | ServerState::Packed => self.replace(id, why, out),
                ServerState::Cancel(_) | ServerState::Closing => {}
                _ => {
                    self.line_up_again(id);
                    self.drop_linked(id, Fault::ServerGone, out);
                    self.close_server(id, why, Close::Abort, out);
                }
            }
        }
    }
}

/// Whether a host keeps its servers: its role is right (`fits`), or not known.
fn keeps_servers(standing: &HostStanding, fits: bool) -> bool {
    let is_decided = matches!(standing.role, Some(Role::Primary | Role::Standby));
    standing.state <= State::Down && (!is_decided || fits)
}
