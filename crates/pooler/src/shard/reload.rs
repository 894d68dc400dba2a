//! A sharded database gets another map, or is gone.

use std::sync::Arc;

use crate::config::ShardMap;
use crate::event::{ClientId, Out};
use crate::fault::Fault;
use crate::note::{Level, Note};
use crate::pooler::Pooler;

impl Pooler {
    /// The map in force of a sharded database.
    pub(crate) fn map_of(&self, database: &str) -> Option<Arc<ShardMap>> {
        let kept = self.maps.get(database).cloned();
        kept.or_else(|| self.config.databases.get(database)?.sharding.clone())
    }

    /// A reload has brought other maps: they come into force where the database is paused. Clients of
    /// databases that are sharded no more leave, and so do those of databases that now are.
    pub(crate) fn new_maps(&mut self, before: &crate::config::Config, out: &mut Out) {
        let config = self.config.clone();
        for (name, database) in &config.databases {
            let old = self.maps.remove(name);
            let old = old.or_else(|| before.databases.get(name)?.sharding.clone());
            let (Some(old), Some(new)) = (old, &database.sharding) else {
                continue;
            };
            if old != *new && !self.janitor.is_paused(name) {
                if self.worker == Self::FIRST {
                    let text = format!(
                        "database \"{name}\": its map of shards stays as it was: PAUSE {name}, RELOAD and \
                         RESUME {name} to change it"
                    );
                    out.note(Note::new(Level::Warning, text));
                }
                self.maps.insert(name.clone(), old);
            }
        }
        let is_sharded = |name: &str| {
            config
                .databases
                .get(name)
                .is_some_and(|of| of.sharding.is_some())
        };
        self.shard_tallies.keep(is_sharded);
        self.maps
            .retain(|name, _| config.databases.contains_key(name));
        let clients: Vec<ClientId> = self.clients.iter().map(|(id, _)| id).collect();
        for id in clients {
            self.follow_map(id, out);
        }
    }

    /// A database with its shards, by name.
    pub(crate) fn with_shards(&self, database: &str) -> Vec<String> {
        let map = self.map_of(database);
        let shards = map.iter().flat_map(|map| map.shards());
        std::iter::once(database.to_owned())
            .chain(shards.cloned())
            .collect()
    }

    /// KILL of a sharded database: its clients are dropped. Their servers end with the pause.
    pub(crate) fn kill_sharded(&mut self, database: &str, out: &mut Out) {
        let of = self
            .clients
            .iter()
            .filter(|(_, client)| client.sharded.is_some() && *client.who.database == *database);
        for id in of.map(|(id, _)| id).collect::<Vec<_>>() {
            self.disconnect(id, Fault::DatabaseRemoved, out);
        }
    }

    /// A client came from another worker or process: it is where it was. What it has said of its shard
    /// came among its settings.
    pub(crate) fn enter_map(&mut self, id: ClientId) {
        let client = self.clients.at(id);
        let Some(map) = self.map_of(&client.who.database) else {
            return;
        };
        let client = self.clients.at_mut(id);
        let [session, login] = client.takes_hints(&mut self.shared.settings);
        client.enters_map(map, login);
        if let Some(sharded) = client.sharded_mut() {
            sharded.goes_on_with(session);
        }
    }

    fn follow_map(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        let map = self.map_of(&client.who.database);
        let client = self.clients.at_mut(id);
        let is_in = client.login.is_some();
        match (client.sharded_mut(), map) {
            (Some(sharded), Some(map)) if Arc::ptr_eq(&sharded.map, &map) => {}
            (Some(sharded), Some(map)) => sharded.gets(map),
            (None, None) => {}
            (None, Some(_)) if !is_in => {}
            (Some(_), None) | (None, Some(_)) => {
                self.disconnect(id, Fault::DatabaseRemoved, out);
            }
        }
    }
}
