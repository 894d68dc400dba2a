//! Which login and which pool serve a client: usually those of what it asked for. After a reload, a
//! user's pool may be another's. Clients then stay connected, and each goes to the login of its own
//! user's pool ([`super::stray`]).

use std::sync::Arc;

use crate::client::{Client, ClientState};
use crate::config::{Database, HostPort};
use crate::event::ClientId;
use crate::login::{Login, LoginId, Terms};
use crate::opening::Opening;
use crate::pool::{Pool, PoolId, PoolKey, Purpose, Supply, Target, TargetName};
use crate::pooler::Pooler;

impl Pooler {
    /// The one function that chooses the pool for a client's request. Called only where
    /// [`Login::home`] does not say the pool. `None` for a client without a login.
    #[cold]
    pub(crate) fn route(&mut self, id: ClientId, opening: Opening<'_>) -> Option<PoolId> {
        let login_id = self.clients.at(id).login?;
        let login = self.logins.at(login_id);
        if !login.is_forsaken() || !self.is_stray(id) {
            if login.terms.reads.is_some()
                && let Some(pool) = self.read_pool(id, opening)
            {
                return Some(pool);
            }
            let login = self.logins.at(login_id);
            return Some(if login.shares().is_empty() {
                self.pool_of(login_id, Purpose::Clients)
            } else {
                self.share_out(login_id)
            });
        }
        let database = login.terms.database.clone();
        // The client of a sharded database has asked for another name.
        let name = login.key.database.clone();
        let who = self.clients.at(id).who.clone();
        let (new, pool) = self.home_for(&name, &who.user, &database);
        self.join(id, new);
        // The other login may not have followed what the client has seen.
        self.clients.at_mut(id).forgets_reads();
        self.logins.at_mut(login_id).client_leaves(self.now);
        Some(pool)
    }

    /// True if another login serves the client now.
    pub(crate) fn is_stray(&self, id: ClientId) -> bool {
        let client = self.clients.at(id);
        let strays = |login| {
            let login: &Login = self.logins.at(login);
            is_stray(client, login, &login.terms.database)
        };
        client.login.is_some_and(strays)
    }

    /// True if an entry of its database gives a login's clients, or some of them, another login.
    pub(crate) fn has_strays(&self, id: LoginId, database: &Database) -> bool {
        let login = self.logins.at(id);
        let mut clients = self.clients.iter();
        clients.any(|(_, client)| client.login == Some(id) && is_stray(client, login, database))
    }

    /// A client enters a login.
    pub(crate) fn join(&mut self, id: ClientId, login_id: LoginId) {
        let login = self.logins.at_mut(login_id);
        login.client_enters();
        let client = self.clients.at_mut(id);
        client.joins(login_id, &login.share);
    }

    /// The login and the pool that serve a client: as the client's own user, or as the user that
    /// its database forces.
    pub(crate) fn home_for(
        &mut self,
        name: &str,
        user: &str,
        database: &Arc<Database>,
    ) -> (LoginId, PoolId) {
        let user = database.pooled_as(user);
        let login = self.login_of(name, user, database);
        (login, self.pool_of(login, Purpose::Clients))
    }

    /// The login with these names. Creates the login if it does not exist.
    pub(crate) fn login_of(&mut self, name: &str, user: &str, database: &Arc<Database>) -> LoginId {
        let key = self.shared.names.login(name, user);
        if let Some(id) = self.logins.find(&key) {
            return id;
        }
        let terms = Terms::of(&self.config, &key, database.clone());
        let schema = self.shared.statements.schema_of(database.schema());
        let share = self.shared.account.share();
        let login = Login::new(key, terms, (schema, share), self.seeded, self.now);
        self.logins.insert(login)
    }

    /// A pool of a login for a purpose, if there is one.
    pub(crate) fn pool_if_any(&self, login: LoginId, purpose: Purpose) -> Option<PoolId> {
        let mut pools = self.logins.at(login).pools().iter().copied();
        pools.find(|id| self.pools.at(*id).key.purpose == purpose)
    }

    /// The pool of a login for a purpose: of a placed database, at a host that fits now. Creates the
    /// pool if it does not exist.
    pub(crate) fn pool_of(&mut self, login_id: LoginId, purpose: Purpose) -> PoolId {
        if self.logins.at(login_id).terms.database.is_placed() {
            return self.placed_pool(login_id, purpose);
        }
        self.pool_at(login_id, purpose, TargetName::Entry)
    }

    /// The pool of a login for a purpose at a target, if it exists.
    pub(crate) fn pool_there(
        &self,
        login: LoginId,
        purpose: Purpose,
        target: &TargetName,
    ) -> Option<PoolId> {
        let mut pools = self.logins.at(login).pools().iter().copied();
        pools.find(|id| {
            let key = &self.pools.at(*id).key;
            key.purpose == purpose && key.target == *target
        })
    }

    /// The pool of a login for a purpose at a target. Creates the pool if it does not exist.
    pub(crate) fn pool_at(
        &mut self,
        login_id: LoginId,
        purpose: Purpose,
        target: TargetName,
    ) -> PoolId {
        if let Some(id) = self.pool_there(login_id, purpose, &target) {
            return id;
        }
        let login = self.logins.at_mut(login_id);
        let scopes = &login.terms.database;
        let scopes = self.config.scopes(Some(scopes), Some(&login.key.user));
        let is_home = purpose == Purpose::Clients && target == TargetName::Entry;
        let is_home = is_home && !login.terms.database.is_placed();
        let target = self
            .shared
            .targets
            .intern(Target::of(&login.terms.database, target));
        let supply = Supply::of(&self.config, scopes, purpose, &target);
        let key = PoolKey {
            login: login.key.clone(),
            target: target.name.clone(),
            purpose,
        };
        let proved = purpose == Purpose::Clients && login.welcome.is_some();
        let mut pool = Pool::new(Arc::new(key), login_id, (target, supply), proved);
        pool.set_paused(self.janitor.is_paused(&login.key.database));
        pool.set_held(self.janitor.holds());
        let id = self.pools.insert(pool);
        login.gets_pool(id, is_home);
        id
    }

    /// The pool with this name. Creates the pool if it does not exist.
    pub(crate) fn pool_for(&mut self, key: &PoolKey, database: &Arc<Database>) -> PoolId {
        if let Some(id) = self.pools.find(key) {
            return id;
        }
        let login = self.login_of(&key.login.database, &key.login.user, database);
        self.pool_at(login, key.purpose, key.target.clone())
    }

    /// Removes a pool, which has no servers, and its login, if that has neither clients nor another
    /// pool.
    pub(crate) fn remove_pool(&mut self, id: PoolId) {
        let Some(pool) = self.pools.remove(id) else {
            return;
        };
        self.logins.at_mut(pool.login).loses_pool(id);
        if let TargetName::Host(host) = &pool.key.target {
            let host = HostPort::clone(host);
            *self.past_checkouts.entry(host).or_default() += pool.past_checkouts();
        }
        if pool.key.purpose == Purpose::Clients
            && self.pool_if_any(pool.login, Purpose::Clients).is_none()
        {
            let login = self.logins.at_mut(pool.login);
            // The next client waits for a server, which may be of another PostgreSQL by then.
            login.forgets_servers();
        }
        if self.logins.at(pool.login).pools().is_empty() {
            self.logins.remove(pool.login);
        }
    }
}

/// True if a client of a login belongs in another user's pool. A client whose user is looked up is
/// a client of no pool yet.
fn is_stray(client: &Client, login: &Login, database: &Database) -> bool {
    !matches!(client.state(), ClientState::Lookup(_))
        && database.pooled_as(&client.who.user) != &*login.key.user
}
