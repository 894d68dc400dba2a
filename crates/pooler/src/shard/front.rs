//! The front of a sharded database: its map in force, and the first shard, at which its clients log in.

use std::sync::Arc;

use crate::auth::Secret;
use crate::client::Client;
use crate::config::ShardMap;
use crate::login::LoginId;
use crate::pooler::Pooler;

impl Client {
    /// True for a client of this sharded database.
    pub(super) fn is_of_sharded(&self, database: &str) -> bool {
        self.sharded.is_some() && *self.who.database == *database
    }
}

impl Pooler {
    /// The map in force of a sharded database.
    pub(crate) fn map_of(&self, database: &str) -> Option<Arc<ShardMap>> {
        self.map_in_force(database).cloned()
    }

    fn map_in_force(&self, database: &str) -> Option<&Arc<ShardMap>> {
        let kept = self.maps.get(database).map(|kept| &kept.map);
        if !self.config.has_shards {
            return kept;
        }
        kept.or_else(|| self.config.databases.get(database)?.sharding.as_ref())
    }

    /// The entry at which the clients of a database log in: the database's own, or that of its first
    /// shard.
    pub(crate) fn front<'a>(&'a self, database: &'a str) -> &'a str {
        let map = self.map_in_force(database);
        map.map_or(database, |map| &map.shards()[0])
    }

    /// The secret of a user who is known without auth_query ([`crate::config::Config::listed`]) where
    /// the clients of a database log in.
    pub(crate) fn listed(&self, database: &str, user: &str) -> Option<Option<&Secret>> {
        self.config.listed(self.front(database), user)
    }

    /// A database with its shards, by name.
    pub(crate) fn with_shards(&self, database: &str) -> Vec<String> {
        let map = self.map_of(database);
        let shards = map.iter().flat_map(|map| map.shards());
        std::iter::once(database.to_owned())
            .chain(shards.cloned())
            .collect()
    }

    /// True if a database is this one, or has a shard of this name.
    pub(crate) fn has_part(&self, database: &str, name: &str) -> bool {
        database == name
            || self
                .map_in_force(database)
                .is_some_and(|map| map.shard_named(name).is_some())
    }

    /// True if the entry of a shard says that a user has no access.
    pub(crate) fn a_shard_keeps_out(&self, database: &str, user: &str) -> bool {
        let map = self.map_in_force(database);
        let shards = map.iter().flat_map(|map| map.shards());
        let mut entries = shards.filter_map(|shard| self.config.databases.get(shard));
        entries.any(|entry| entry.keeps_out(user))
    }

    /// True if a client of this sharded database has a server, or may have left a shard's server with a
    /// statement that still runs. PAUSE waits for the end.
    pub(crate) fn is_sharded_at_work(&self, database: &str) -> bool {
        self.links().any(|link| link.client.is_of_sharded(database))
            || self.servers.iter().any(|(_, server)| {
                server.runs_for_nobody()
                    && self.has_part(database, &self.logins.at(server.login).key.database)
            })
    }

    /// Servers of a shard log in with what the clients have shown, who log in at the first shard.
    pub(crate) fn lend_secrets(&mut self, first: &str, user: &str, login: LoginId) {
        let key = self.shared.names.login(first, user);
        if let Some(front) = self.logins.find(&key)
            && front != login
        {
            let secrets = self.logins.at(front).secrets.clone();
            let login = self.logins.at_mut(login);
            login.secrets.learn(secrets.keys, secrets.found, true);
        }
    }
}
