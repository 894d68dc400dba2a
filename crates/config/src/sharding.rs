//! Sharded databases: entries of `[databases]` with `shards`, and the sections of their maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use howdah_shard::Map;

use super::resolve::ConfigReader;
use super::value::{PoolMode, ReadRouting, SessionState};
use super::written::{Path, WrittenLine};
use super::{Database, Excerpt, Mistake, Place, Scope, SecretSource, SecretText};

/// The settings that the entry of a sharded database may have. All others belong to its shards.
const OWN: [&str; 8] = [
    "shard_functions",
    "shards",
    "unlisted_tables",
    "auth_dbname",
    "auth_query",
    "auth_user",
    "client_tls_sslmode",
    "max_db_client_connections",
];

/// A part of a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MapPart {
    /// `[distributions:NAME]`
    Distributions,
    /// `[tables:NAME]`
    Tables,
}

impl MapPart {
    /// The part with this name.
    pub(super) fn named(name: &str) -> Option<MapPart> {
        match name {
            "distributions" => Some(MapPart::Distributions),
            "tables" => Some(MapPart::Tables),
            _ => None,
        }
    }

    /// The section of an ini file: `distributions:prod`.
    pub(super) fn of_section(section: &str) -> Option<Path> {
        let (part, database) = section.split_once(':')?;
        MapPart::named(part)?;
        let database = database.trim().to_owned();
        Some([Scope::Database.section().into(), database, part.into()].into())
    }
}

impl WrittenLine {
    /// The database and the part of its map that the line belongs to.
    pub(super) fn map_part(&self) -> Option<(&str, MapPart)> {
        match &*self.path {
            [section, database, part] if section == Scope::Database.section() => {
                Some((database, MapPart::named(part)?))
            }
            _ => None,
        }
    }
}

/// The lines of a database's map, as they were written.
#[derive(Debug, Default)]
pub(super) struct WrittenMap {
    distributions: Vec<WrittenLine>,
    tables: Vec<WrittenLine>,
}

impl WrittenMap {
    fn place(&self) -> Option<&Place> {
        let first = self.distributions.first().or(self.tables.first());
        first.map(|line| &line.place)
    }
}

/// The maps that were written, by the names of their databases.
pub(super) type WrittenMaps = BTreeMap<String, WrittenMap>;

impl ConfigReader {
    /// A line of a map.
    pub(super) fn map_line(&mut self, line: &WrittenLine) {
        let Some((database, part)) = line.map_part() else {
            return;
        };
        let map = self.maps.entry(database.to_owned()).or_default();
        let lines = match part {
            MapPart::Distributions => &mut map.distributions,
            MapPart::Tables => &mut map.tables,
        };
        let first = lines.iter().find(|other| other.key == line.key);
        if let Some(first) = first {
            let key = line.key.as_deref().unwrap_or_default();
            let text = format!(
                "database \"{database}\": \"{key}\" is already written at {}",
                first.place
            );
            let mistake = Mistake::new(Some(&line.place), text, "leave one of the two out");
            return self.mistakes.push(mistake.showing(Excerpt::of_key(key)));
        }
        lines.push(line.clone());
    }

    /// Makes the maps of sharded databases, and refuses those that can't work.
    pub(super) fn judge_shards(&mut self) {
        if self
            .config
            .fallback
            .as_ref()
            .is_some_and(|entry| entry.shards.is_some())
        {
            let remedy = "write an entry with the name that clients use";
            self.refuse_entry(
                "*",
                "an entry for all names can't have shards".into(),
                remedy,
            );
        }
        let sharded = self.config.databases.values();
        let sharded = sharded.filter(|database| database.shards.is_some());
        let sharded: Vec<Arc<Database>> = sharded.cloned().collect();
        for database in &sharded {
            match self.what_forbids(database, &sharded) {
                None => self.make_map(database),
                Some((what, remedy)) => self.refuse_entry(&database.name, what, remedy),
            }
        }
        self.judge_lost_maps();
    }

    /// Refuses maps of databases without shards.
    fn judge_lost_maps(&mut self) {
        let shards = |name: &str| self.config.databases.get(name)?.shards.as_ref();
        let lost = self.maps.iter().filter(|(name, _)| shards(name).is_none());
        let lost: Vec<Mistake> = lost
            .map(|(name, map)| {
                let text = format!("there is a map of database \"{name}\", which has no shards");
                Mistake::new(map.place(), text, "write shards= into the database's entry")
            })
            .collect();
        self.mistakes.extend(lost);
        let entries = self.config.databases.values();
        let lost = entries
            .filter(|entry| entry.shards.is_none())
            .filter_map(|entry| {
                let setting = if entry.unlisted_tables != "refuse" {
                    "unlisted_tables"
                } else if entry.shard_functions.is_some() {
                    "shard_functions"
                } else {
                    return None;
                };
                Some((entry.name.clone(), setting))
            });
        for (name, setting) in lost.collect::<Vec<_>>() {
            let what = format!("it has {setting}, and no shards");
            let remedy = format!("write shards=, or leave {setting} out");
            self.refuse_entry(&name, what, &remedy);
        }
    }

    /// Why a sharded database can't be one, and what helps.
    fn what_forbids(
        &self,
        database: &Database,
        sharded: &[Arc<Database>],
    ) -> Option<(String, &'static str)> {
        let shards = database.shards.as_deref().unwrap_or_default();
        if shards.is_empty() {
            let remedy = "write the names of entries of [databases], separated by commas";
            return Some(("shards names nobody".into(), remedy));
        }
        if let Some(setting) = self.setting_of_shards(&database.name) {
            let what = format!("it has shards, and {setting}, too");
            return Some((what, "write that into the entry of each shard"));
        }
        if !database.users.is_empty() {
            let what = "it has shards, and users, too".into();
            return Some((what, "write the users into the entry of each shard"));
        }
        for (at, name) in shards.iter().enumerate() {
            if let Some((what, remedy)) = self.what_forbids_shard(name) {
                return Some((format!("shard \"{name}\" {what}"), remedy));
            }
            if shards[..at].contains(name) {
                return Some((
                    format!("shard \"{name}\" stands twice"),
                    "write each shard once",
                ));
            }
            let has = |other: &&Arc<Database>| {
                let shards = other.shards.as_deref().unwrap_or_default();
                other.name != database.name && shards.contains(name)
            };
            if let Some(other) = sharded.iter().find(has) {
                let what = format!(
                    "shard \"{name}\" is a shard of database \"{}\", too",
                    other.name
                );
                return Some((
                    what,
                    "write one more entry that leads to the same PostgreSQL",
                ));
            }
        }
        if self.config.globals.max_prepared_statements == 0 {
            let what = "it has shards, and max_prepared_statements is 0".into();
            return Some((what, "set max_prepared_statements above 0, or leave it out"));
        }
        None
    }

    /// A setting of a sharded database's entry that belongs to its shards.
    fn setting_of_shards(&self, database: &str) -> Option<&'static str> {
        let path = [Scope::Database.section().to_owned(), database.to_owned()];
        let given = &self.entries.get(&path[..])?.given;
        let mut names: Vec<_> = given.keys().filter(|name| !OWN.contains(name)).collect();
        names.sort_unstable();
        names.first().copied().copied()
    }

    /// Why an entry can't be a shard, and what helps.
    fn what_forbids_shard(&self, name: &str) -> Option<(String, &'static str)> {
        let Some(shard) = self.config.databases.get(name) else {
            let remedy = "write an entry for it: NAME = host=... dbname=...";
            return Some(("is no entry of [databases]".into(), remedy));
        };
        if shard.shards.is_some() {
            return Some(("has shards itself".into(), "name entries that have hosts"));
        }
        let passwords = [shard.server_password.as_ref()].into_iter();
        let members = shard.users.values();
        let passwords = passwords.chain(members.map(|user| user.server_password.as_ref()));
        let mut sources = passwords.flatten().filter_map(SecretText::source);
        if sources.any(SecretSource::makes_users) {
            let what = "has users that Vault makes: its \"$user\" is another one each time";
            let remedy = "use a static role of Vault (static-creds), or another source";
            return Some((what.into(), remedy));
        }
        let own = shard.users.keys();
        let users = own.chain(self.config.users.keys());
        let scopes = users.map(|user| self.config.scopes(Some(shard), Some(user)));
        for scopes in scopes.chain([self.config.scopes(Some(shard), None)]) {
            if scopes.pool_mode() != PoolMode::Transaction {
                let remedy = "set pool_mode = transaction for all, or for each shard and its users";
                return Some(("needs pool_mode = transaction".into(), remedy));
            }
            if scopes.session_state() == SessionState::Share {
                let what =
                    "needs session_state = keep: tables are looked up by a client's search_path";
                return Some((what.into(), "leave session_state = share out"));
            }
            if scopes.read_routing() != ReadRouting::Off {
                let remedy = "leave read_routing out for this entry";
                return Some(("has read_routing, which knows no shards".into(), remedy));
            }
        }
        shard.connect_query.is_some().then(|| {
            let what = "has a connect_query, which may change where tables are looked up".into();
            (what, "use parameters of the entry instead")
        })
    }

    fn make_map(&mut self, database: &Arc<Database>) {
        let shards = database.shards.as_deref().unwrap_or_default().to_vec();
        let written = self.maps.remove(&database.name).unwrap_or_default();
        let mut wrong = Vec::new();
        let mut builder = match Map::builder(shards.iter().map(String::as_str)) {
            Ok(builder) => builder,
            Err(error) => return self.refuse_entry(&database.name, error.message, &error.remedy),
        };
        for line in &written.distributions {
            let key = line.key.as_deref().unwrap_or_default();
            wrong.extend(
                builder
                    .distribution(key, &line.text)
                    .err()
                    .map(|error| (line, error)),
            );
        }
        for line in &written.tables {
            let key = line.key.as_deref().unwrap_or_default();
            wrong.extend(
                builder
                    .table(key, &line.text)
                    .err()
                    .map(|error| (line, error)),
            );
        }
        if let Err(error) = builder.unlisted_tables(&database.unlisted_tables) {
            self.refuse_entry(&database.name, error.message, &error.remedy);
        }
        for (line, error) in wrong {
            let key = line.key.as_deref().unwrap_or_default();
            let at = error
                .position
                .map(|at| format!(" (at character {})", at + 1));
            let text = format!(
                "database \"{}\", {key} = {}: {}{}",
                database.name,
                line.text,
                error.message,
                at.unwrap_or_default()
            );
            let mistake = Mistake::new(Some(&line.place), text, error.remedy);
            self.mistakes.push(mistake.showing(Excerpt::of_key(key)));
        }
        let name: Arc<str> = (*database.name).into();
        for shard in shards {
            if let Some(entry) = self.config.databases.get_mut(&shard) {
                Arc::make_mut(entry).shard_of = Some(name.clone());
            }
        }
        if let Some(entry) = self.config.databases.get_mut(&database.name) {
            Arc::make_mut(entry).sharding = Some(Arc::new(builder.finish()));
        }
    }
}
