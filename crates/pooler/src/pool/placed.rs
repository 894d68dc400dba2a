//! Which of its hosts serves a placed database, as the last view of the hosts says.

use chacha20::rand_core::Rng;

use crate::config::{LoadBalance, SessionAttrs};
use crate::login::{LoginId, ReadPool};
use crate::pool::fit::fit_hosts;
use crate::pool::key::{PoolId, Purpose};
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::reads::hindrance::Hindrance;
use crate::roster::view::{Rank, Role};

impl Pooler {
    /// The pool of a placed login for a purpose, at a host that fits now.
    pub(crate) fn placed_pool(&mut self, id: LoginId, purpose: Purpose) -> PoolId {
        if purpose == Purpose::Clients {
            if self.logins.at(id).home().is_none() && self.logins.at(id).shares().is_empty() {
                self.set_home(id);
            }
            let home = self.logins.at(id).home();
            return home.unwrap_or_else(|| self.share_out(id));
        }
        let terms = &self.logins.at(id).terms;
        let (database, max_lag) = (terms.database.clone(), terms.max_lag);
        let view = self.hosts.clone();
        let list = view.lists.get(&*database.hosts);
        let fit = fit_hosts(list, (&database, max_lag), purpose);
        let target = fit
            .first()
            .map_or(TargetName::NoHost, |host| TargetName::host(host));
        self.pool_at(id, purpose, target)
    }

    /// One of the pools that share the work, by chance and weight, but none that can't log in now. If
    /// the pool has no idle server and a limit holds it back, the client gets an idle one of another
    /// pool.
    pub(crate) fn share_out(&mut self, id: LoginId) -> PoolId {
        let random = self.random.next_u64();
        let shares = self.logins.at(id).shares();
        let works = |(pool, _): &(PoolId, u32)| self.pools.at(*pool).failure.is_none();
        let all = shares.iter().copied();
        let chosen =
            by_weight(all.clone().filter(works), random).or_else(|| by_weight(all, random));
        let Some(chosen) = chosen else {
            return self.pool_at(id, Purpose::Clients, TargetName::NoHost);
        };
        let has_idle = |pool: &PoolId| !self.pools.at(*pool).idle.is_empty();
        let pool = self.pools.at(chosen);
        let most = pool.supply.bounds.size;
        let is_full = most > 0 && pool.servers() >= most || pool.held_by().is_some();
        if !is_full || has_idle(&chosen) {
            return chosen;
        }
        let mut pools = shares.iter().map(|(pool, _)| *pool);
        pools.find(has_idle).unwrap_or(chosen)
    }

    /// Finds the pools that serve the clients of a placed login now.
    pub(crate) fn set_home(&mut self, id: LoginId) {
        let login = self.logins.at(id);
        let (database, view) = (login.terms.database.clone(), self.hosts.clone());
        let list = view.lists.get(&*database.hosts);
        let fit = fit_hosts(list, (&database, login.terms.max_lag), Purpose::Clients);
        let fit = match database.load_balance_hosts {
            LoadBalance::Disable => fit.get(..1).unwrap_or_default(),
            _ => &fit,
        };
        let mut shares: Vec<(PoolId, u32)> = Vec::new();
        for host in fit {
            let pool = self.pool_at(id, Purpose::Clients, TargetName::host(host));
            shares.push((pool, self.config.weight(host)));
        }
        if shares.is_empty() {
            let pool = self.pool_at(id, Purpose::Clients, TargetName::NoHost);
            shares.push((pool, 1));
        }
        if self.logins.at(id).terms.reads.is_some() {
            // Each request is routed.
            self.find_read_pools(id);
            return self.logins.at_mut(id).finds_home(None, shares);
        }
        let home = match shares[..] {
            // A forsaken login's clients are routed one by one.
            [(only, _)] if !self.logins.at(id).is_forsaken() => Some(only),
            _ => None,
        };
        if home.is_some() {
            shares.clear();
        }
        self.logins.at_mut(id).finds_home(home, shares);
    }

    /// Finds the pools that may serve the reads of a login: at standbys that are up, and at the
    /// primary. What each of them shows is known at each read.
    fn find_read_pools(&mut self, id: LoginId) {
        let (database, view) = (
            self.logins.at(id).terms.database.clone(),
            self.hosts.clone(),
        );
        let hosts = view.lists.get(&*database.hosts);
        let hosts = hosts.map_or(&[][..], |list| &list.hosts);
        let mut pools = Vec::new();
        for (host, standing) in hosts {
            let is_standby = Hindrance::of_host(standing).is_none();
            if is_standby || standing.rank(SessionAttrs::Primary) == Some(Rank::Wished) {
                pools.push(ReadPool {
                    pool: self.pool_at(id, Purpose::Clients, TargetName::host(host)),
                    weight: self.config.weight(host),
                    is_primary: standing.role == Some(Role::Primary),
                });
            }
        }
        let covers = self.covers.get(&*database.hosts).cloned();
        let login = self.logins.at_mut(id);
        login.finds_read_pools(pools);
        login.reads.set_covers(covers);
    }

    /// True for an empty pool at a host that the database does not have any more.
    pub(crate) fn is_left_over(&self, id: PoolId) -> bool {
        let pool = self.pools.at(id);
        let login = self.logins.at(pool.login);
        let database = &login.terms.database;
        let stays = match &pool.key.target {
            TargetName::Entry => true,
            TargetName::Host(host) => {
                database.is_placed() && self.standing(pool.login, host).is_some()
            }
            TargetName::NoHost => database.is_placed(),
        };
        let is_used = pool.servers() > 0 || pool.is_waited_for() || !pool.pin_line.is_empty();
        let is_only = login.pools().len() == 1 || login.home() == Some(id);
        !(stays || is_used || is_only)
    }
}

/// One of several pools, by chance; one with twice the weight twice as often. `None` of no pools.
pub(crate) fn by_weight(
    shares: impl Iterator<Item = (PoolId, u32)> + Clone,
    random: u64,
) -> Option<PoolId> {
    let sum: u64 = shares.clone().map(|(_, weight)| u64::from(weight)).sum();
    let mut at = random.checked_rem(sum)?;
    for (pool, weight) in shares {
        match at.checked_sub(u64::from(weight)) {
            Some(rest) => at = rest,
            None => return Some(pool),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_shared_by_weight() {
        let shares = [(PoolId(1), 1), (PoolId(2), 3), (PoolId(3), 1)];
        let chosen = |random| by_weight(shares.into_iter(), random).map(|pool| pool.0);
        let chosen: Vec<_> = (0..10).filter_map(chosen).collect();
        assert_eq!(chosen, [1, 2, 2, 2, 3, 1, 2, 2, 2, 3]);
        assert_eq!(by_weight(std::iter::empty(), 7), None);
    }
}
