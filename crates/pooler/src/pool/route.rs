//! Which pool serves a client: usually the pool of its login. After a reload, a database may force
//! another user. Its clients then stay connected, and each goes to that user's pool when it next
//! needs a server. The login still says who the client is; this file says which servers it gets.

use std::sync::Arc;

use crate::client::ClientState;
use crate::config::Database;
use crate::event::{ClientId, Out};
use crate::pool::{Pool, PoolId, PoolKey, Terms};
use crate::pooler::Pooler;

/// Whether clients of a pool must go to another user's pool, by the entry of their database before
/// and after a reload. `before`: they already had to before the reload.
pub(crate) fn is_forsaken(key: &PoolKey, before: bool, old: &Database, new: &Database) -> bool {
    let forces = |database: &Database| database.forced_user.as_deref() == Some(&*key.login.user);
    new.forced_user.is_some() && !forces(new) && (before || forces(old))
}

impl Pooler {
    /// The pool that serves a client's next transaction: the client's current pool, or the pool of
    /// the user that its database now forces. Called at checkout, and when waiting clients move.
    pub(crate) fn route(&mut self, id: ClientId, pool_id: PoolId) -> PoolId {
        let pool = self.pools.at(pool_id);
        if !pool.forsaken() {
            return pool_id;
        }
        let database = pool.terms.database.clone();
        let Some(user) = &database.forced_user else {
            return pool_id;
        };
        let login = self.shared.names.login(&pool.key.login.database, user);
        let new = self.pool_for(PoolKey::of_clients(login), &database);
        let pool = self.pools.at_mut(new);
        pool.client_enters();
        self.clients.at_mut(id).joins(new, &pool.share);
        self.pools.at_mut(pool_id).client_leaves(self.now);
        new
    }

    /// Moves the clients that wait in a forsaken pool to the queue of the pool that serves them
    /// now.
    pub(crate) fn move_waiting(&mut self, pool_id: PoolId, out: &mut Out) {
        for (id, since) in self.pools.at_mut(pool_id).waiting.take_all() {
            let moves = self.clients.get(id).is_some_and(|client| {
                matches!(client.state(), ClientState::Waiting)
                    && client.pool == Some(pool_id)
                    && !client.replication.any()
            });
            if moves {
                let new = self.route(id, pool_id);
                self.await_server(id, new);
                self.need(new, out);
            } else {
                self.pools.at_mut(pool_id).waiting.join(id, since);
            }
        }
    }

    /// The pool with this name. Creates the pool if it does not exist.
    pub(crate) fn pool_for(&mut self, key: PoolKey, database: &Arc<Database>) -> PoolId {
        if let Some(id) = self.pools.find(&key) {
            return id;
        }
        let terms = Terms::of(&self.config, &key, database.clone());
        let schema = self.shared.statements.schema_of(database.target());
        let share = self.shared.account.share();
        let mut pool = Pool::new(Arc::new(key), terms, (schema, share), self.now);
        pool.set_paused(self.janitor.is_paused(&pool.key.login.database));
        pool.set_held(self.janitor.holds());
        self.pools.insert(pool)
    }
}
