//! When the catalogues of shards are read, and who waits for them.

use std::collections::HashSet;
use std::sync::Arc;

use howdah_shard::ShardCatalogue;

use crate::client::{Client, ClientState};
use crate::config::Shard;
use crate::event::{ClientId, Out};
use crate::next::Next;
use crate::pool::key::{PoolId, Purpose};
use crate::pooler::Pooler;
use crate::shard::lore::ShardLore;

impl Pooler {
    /// True if a client's statement need not wait for the catalogue. Otherwise PostgreSQL is asked.
    /// `unknown`: the statement has a name that the last catalogue does not have.
    pub(crate) fn has_catalogue(&mut self, id: ClientId, unknown: bool) -> bool {
        let client = self.clients.at(id);
        let (who, map) = (client.who.clone(), self.sharded(id).map.clone());
        let (now, worker) = (self.now, self.worker.0);
        let Some(login) = client.login else {
            return false;
        };
        let schema = self.logins.at(login).schema;
        let schema = self.shared.statements.schema(schema);
        let entry = self.config.databases.get(&*who.database);
        let functions = entry.and_then(|entry| entry.shard_functions.as_deref());
        let functions = functions.unwrap_or_default().iter().cloned().collect();
        let name = &who.database;
        if self
            .shard_lore
            .get(name)
            .is_some_and(|lore| lore.is_of_other_shards(&map))
        {
            self.shard_lore.remove(name);
        }
        let new = || ShardLore::new(map.clone(), HashSet::new());
        let lore = self.shard_lore.entry(name.clone()).or_insert_with(new);
        lore.follow(&map, &functions);
        for shard in lore.due(now, schema, unknown, worker) {
            self.ask_catalogue(map.name_of(shard), &who.user);
        }
        let lore = self.shard_lore.get(name);
        let is_ready =
            lore.is_some_and(|lore| lore.is_ready(schema) && !(unknown && lore.awaits(now)));
        self.sharded_mut(id).knows_all(is_ready && unknown);
        is_ready
    }

    /// Several times a second: statements do not wait for ever for shards that do not answer.
    pub(crate) fn mind_catalogues(&mut self) {
        let now = self.now;
        let mut late = Vec::new();
        for (name, lore) in &mut self.shard_lore {
            let silent = lore.silent(now);
            if lore.gives_up(now) {
                late.push((name.clone(), silent));
            }
        }
        for (name, silent) in late {
            for shard in silent {
                self.note_reading(&name, shard, false);
            }
            self.resume_waiting(&name);
        }
        // Catalogues grow old.
        for name in self.shard_lore.keys().cloned().collect::<Vec<_>>() {
            let of = |client: &Client| client.sharded.is_some() && client.who.database == name;
            let found = self
                .clients
                .iter()
                .find(|(_, client)| of(client) && client.login.is_some());
            if let Some(id) = found.map(|(id, _)| id) {
                self.has_catalogue(id, false);
            }
        }
    }

    /// Asks for a server that tells a shard's catalogue.
    fn ask_catalogue(&mut self, shard: &str, user: &str) {
        let Some(database) = self.config.database(shard) else {
            return;
        };
        let user = database.pooled_as(user);
        let login = self.login_of(shard, user, &database);
        let pool = self.pool_of(login, Purpose::Catalogue);
        self.pools.at_mut(pool).listener_wanted(true);
        self.next.note(Next::NeedCatalogue(pool));
    }

    /// PostgreSQL has told a shard's catalogue, or does not answer. Clients that wait for it go on.
    pub(crate) fn learn_catalogue(
        &mut self,
        name: &str,
        schema: u64,
        found: Option<Arc<ShardCatalogue>>,
    ) {
        let now = self.now;
        let Some((database, shard)) = self.sharded_with(name) else {
            return;
        };
        self.note_reading(&database, shard, found.is_some());
        if let Some(lore) = self.shard_lore.get_mut(&database) {
            lore.learn(shard, found, schema, now);
        }
        self.resume_waiting(&database);
    }

    /// Clients that wait for the catalogue of a database go on.
    fn resume_waiting(&mut self, database: &str) {
        let waits = |client: &Client| {
            client.sharded.is_some()
                && *client.who.database == *database
                && !client.inbox.held().is_empty()
                && matches!(client.state(), ClientState::Idle | ClientState::Linked(_))
        };
        let waiting = self.clients.iter().filter(|(_, client)| waits(client));
        for client in waiting.map(|(id, _)| id).collect::<Vec<_>>() {
            self.next.note(Next::Resume(client));
        }
    }

    /// The sharded database of which something is known and that has a shard of this name.
    fn sharded_with(&self, shard: &str) -> Option<(Arc<str>, Shard)> {
        let mut known = self.shard_lore.iter();
        known.find_map(|(name, lore)| Some((name.clone(), lore.shard_named(shard)?)))
    }

    /// A server for a shard's catalogue is gone, perhaps before it has told.
    pub(crate) fn catalogue_server_gone(&mut self, pool: PoolId, out: &mut Out) {
        self.pools.at_mut(pool).listener_wanted(false);
        self.sated(pool, out);
        let login = self.logins.at(self.pools.at(pool).login);
        let name = login.key.database.clone();
        let schema = self.shared.statements.schema(login.schema);
        let asked = self.sharded_with(&name).is_some_and(|(database, shard)| {
            let lore = self.shard_lore.get(&database);
            lore.is_some_and(|lore| lore.is_asked(shard))
        });
        if asked {
            self.learn_catalogue(&name, schema, None);
        }
    }
}
