//! `min_pool_size`: the servers that a pool has before clients need them.

use crate::auth::Secret;
use crate::config::ServerSecret;
use crate::event::{Action, Out};
use crate::mail::ToBroker;
use crate::pool::key::{PoolId, Purpose};
use crate::pool::target::TargetName;
use crate::pooler::Pooler;

impl Pooler {
    /// `min_pool_size`: asks for one server a period while the pool exists.
    pub(crate) fn warm(&mut self, id: PoolId, out: &mut Out) {
        let pool = self.pools.at(id);
        let wanted = pool.supply.min_size;
        let due =
            wanted > 0 && pool.connecting() == 0 && pool.gives() && !pool.key.login.user.is_empty();
        if !due
            || !self.serves_clients(id)
            || self.need_not_warm(id)
            || self.janitor.is_shutting_down()
        {
            return;
        }
        self.warm_to(id, wanted, out);
    }

    /// False for a pool that clients of a placed database do not get at present, or did not get before
    /// a reload changed the database.
    fn serves_clients(&self, id: PoolId) -> bool {
        let pool = self.pools.at(id);
        let login = self.logins.at(pool.login);
        let (database, user) = (&login.terms.database, &*login.key.user);
        if pool.key.purpose == Purpose::Clients && database.pooled_as(user) != user {
            // A reload has given its clients another login.
            return false;
        }
        if !database.is_placed() {
            return pool.key.target == TargetName::Entry;
        }
        let mut shares = login.shares().iter();
        login.home() == Some(id) || shares.any(|(pool, _)| *pool == id)
    }

    /// Asks for one server, unless the pool has as many.
    pub(crate) fn warm_to(&mut self, id: PoolId, wanted: u32, out: &mut Out) {
        let pool = self.pools.at(id);
        let warm = ToBroker::Warm {
            worker: self.worker,
            pool: pool.key.clone(),
            wanted,
            bounds: pool.supply.bounds.clone(),
        };
        out.push(Action::Broker(warm));
    }

    /// `min_pool_size` holds without clients, too, where servers can log in without them: in the pool
    /// of a forced user, and of a user whose entry in a database says how. Such a pool is created on
    /// one worker.
    pub(crate) fn found_forced_pools(&mut self) {
        let config = self.config.clone();
        for database in config.databases.values() {
            let knows = |user: &&String| {
                let secret = || config.server_secret(database, user);
                !database.lends_secrets(user)
                    || matches!(
                        secret(),
                        ServerSecret::Fetched { .. }
                            | ServerSecret::Written(Some(Secret::Plain(_)))
                    )
            };
            let forced = database.forced_user.iter();
            for user in forced.chain(database.users.keys().filter(knows)) {
                let scopes = config.scopes(Some(database), Some(user));
                let login = self.shared.names.login(&database.name, user);
                if scopes.min_pool_size() > 0 && self.first_seat(&login) == self.worker {
                    let login = self.login_of(&login.database, &login.user, database);
                    self.pool_of(login, Purpose::Clients);
                }
            }
        }
    }
}
