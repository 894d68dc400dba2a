//! A sharded database gets another map, or is gone.

use std::sync::Arc;

use crate::event::{ClientId, Out};
use crate::fault::Fault;
use crate::note::{Level, Note};
use crate::pooler::Pooler;
use crate::shard::kept_map::KeptMap;

impl Pooler {
    /// A reload has brought other maps. The old ones stay in force, until RESUME if the database is
    /// paused. Clients of databases that are sharded no more leave, and so do those of databases that
    /// now are.
    pub(crate) fn new_maps(&mut self, before: &crate::config::Config, out: &mut Out) {
        let config = self.config.clone();
        for (name, database) in &config.databases {
            let old = self.maps.remove(name).map(|kept| kept.map);
            let old = old.or_else(|| before.databases.get(name)?.sharding.clone());
            let (Some(old), Some(new)) = (old, &database.sharding) else {
                continue;
            };
            if old == *new {
                continue;
            }
            let until_resume = self.janitor.is_paused(name);
            if self.worker == Self::FIRST {
                let (level, what) = match until_resume {
                    true => (
                        Level::Log,
                        format!("RESUME {name} brings its new map of shards"),
                    ),
                    false => (
                        Level::Warning,
                        format!(
                            "its map of shards stays as it was: PAUSE {name}, RELOAD and RESUME {name} to \
                             change it"
                        ),
                    ),
                };
                out.note(Note::new(level, format!("database \"{name}\": {what}")));
            }
            let map = old;
            self.maps
                .insert(name.clone(), KeptMap { map, until_resume });
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
        self.follow_maps(out);
    }

    /// RESUME: new maps come into force, and who waits is placed by them. A client that has begun
    /// something by the old map, because RESUME came before the end of PAUSE, is disconnected.
    pub(crate) fn resume_sharded(&mut self, out: &mut Out) {
        let paused = |name: &String| self.janitor.is_paused(name);
        let is_due = |(name, kept): &(&String, &KeptMap)| kept.until_resume && !paused(name);
        let due: Vec<String> = (self.maps.iter().filter(is_due))
            .map(|(name, _)| name.clone())
            .collect();
        for name in &due {
            self.maps.remove(name);
            let of = self.links().filter(|link| link.client.is_of_sharded(name));
            for id in of.map(|link| link.client_id).collect::<Vec<_>>() {
                let text = "the map of shards has changed: RESUME came before the end of PAUSE";
                self.disconnect(id, Fault::Shard(text.into()), out);
            }
        }
        if !due.is_empty() {
            self.follow_maps(out);
        }
        self.place_waiting();
    }

    fn follow_maps(&mut self, out: &mut Out) {
        let clients: Vec<ClientId> = self.clients.iter().map(|(id, _)| id).collect();
        for id in clients {
            self.follow_map(id, out);
        }
        self.plan_by_new_maps();
    }

    /// KILL of a sharded database: its clients are dropped. Their servers end with the pause.
    pub(crate) fn kill_sharded(&mut self, database: &str, out: &mut Out) {
        let of = self.clients.iter();
        let of = of.filter(|(_, client)| client.is_of_sharded(database));
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
        match (client.sharded_mut(), map) {
            (Some(sharded), Some(map)) if Arc::ptr_eq(&sharded.map, &map) => {}
            (Some(sharded), Some(map)) => sharded.gets(map),
            (None, None) => {}
            (Some(_), None) | (None, Some(_)) => {
                self.disconnect(id, Fault::DatabaseRemoved, out);
            }
        }
    }
}
