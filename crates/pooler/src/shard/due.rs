//! When the catalogues of shards are read, and who waits for them.

use std::collections::HashSet;
use std::sync::Arc;

use howdah_shard::ShardCatalogue;

use crate::client::{Client, ClientState};
use crate::config::Shard;
use crate::event::{ClientId, Out};
use crate::login::LoginId;
use crate::next::Next;
use crate::pool::key::{PoolId, Purpose};
use crate::pooler::Pooler;
use crate::shard::lore::{CatalogueFailure, CatalogueQuestion, ShardLore};

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
        let functions = self.shard_functions(&who.database);
        let name = &who.database;
        let new = || ShardLore::new(map.clone(), schema, now);
        let lore = self.shard_lore.entry(name.clone()).or_insert_with(new);
        lore.follow(&map, &functions);
        lore.notice(schema, now);
        for shard in lore.due(now, unknown, worker) {
            self.ask_catalogue(map.name_of(shard), (&map.shards()[0], &who.user));
        }
        let lore = self.shard_lore.get(name);
        let is_ready = lore.is_some_and(|lore| lore.is_ready() && !(unknown && lore.awaits()));
        self.sharded_mut(id).knows_all(is_ready && unknown);
        is_ready
    }

    /// The functions that touch one shard only, as the user says.
    fn shard_functions(&self, database: &str) -> HashSet<String> {
        let entry = self.config.databases.get(database);
        let functions = entry.and_then(|entry| entry.shard_functions.as_deref());
        functions.unwrap_or_default().iter().cloned().collect()
    }

    /// Maps have changed: no plan is made by an old one. What is known of other shards, or of shards
    /// in another order, is forgotten.
    pub(crate) fn plan_by_new_maps(&mut self) {
        for name in self.shard_lore.keys().cloned().collect::<Vec<_>>() {
            let (map, functions) = (self.map_of(&name), self.shard_functions(&name));
            let lore = self.shard_lore.get_mut(&name);
            match (lore, map) {
                (Some(lore), Some(map)) if !lore.is_of_other_shards(&map) => {
                    lore.follow(&map, &functions);
                }
                _ => _ = self.shard_lore.remove(&name),
            }
        }
    }

    /// Several times a second: statements do not wait for ever for shards that do not answer.
    pub(crate) fn mind_catalogues(&mut self) {
        if self.janitor.suspension.is_some() {
            // No statement may be sent.
            return;
        }
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

    /// Asks for a server that tells a shard's catalogue, on behalf of a user who has logged in at the
    /// first shard. If that user has no server there yet, another user's login may be known to work.
    fn ask_catalogue(&mut self, shard: &str, (first, user): (&str, &str)) {
        let Some(database) = self.config.database(shard) else {
            return;
        };
        let user = database.pooled_as(user);
        let works = |id: &LoginId| {
            let login = self.logins.at(*id);
            *login.key.database == *shard && login.welcome.is_some()
        };
        let own = |id: &LoginId| *self.logins.at(*id).key.user == *user;
        let known: Vec<LoginId> = self.logins.ids().into_iter().filter(works).collect();
        let login = match known.iter().find(|id| own(id)).or(known.first()) {
            Some(login) => *login,
            None => self.login_of(shard, user, &database),
        };
        let is_own = *self.logins.at(login).key.user == *user;
        if is_own && database.lends_secrets(user) {
            self.lend_secrets(first, user, login);
        }
        let pool = self.pool_of(login, Purpose::Catalogue);
        let asked = self.pools.at_mut(pool);
        asked.listener_wanted(true);
        // The pauses between questions are long enough.
        asked.login_may_succeed();
        self.next.note(Next::Need(pool));
    }

    /// PostgreSQL has told a shard's catalogue. Clients that wait for it go on.
    pub(crate) fn learn_catalogue(
        &mut self,
        name: &str,
        question: CatalogueQuestion,
        found: Arc<ShardCatalogue>,
    ) {
        let now = self.now;
        let Some((database, shard)) = self.sharded_with(name) else {
            return;
        };
        self.note_reading(&database, shard, true);
        if let Some(lore) = self.shard_lore.get_mut(&database) {
            lore.learn(shard, found, question, now);
        }
        self.resume_waiting(&database);
    }

    /// PostgreSQL does not tell a shard's catalogue. Clients that wait for it may go on.
    pub(crate) fn miss_catalogue(&mut self, name: &str, failure: CatalogueFailure) {
        let now = self.now;
        let Some((database, shard)) = self.sharded_with(name) else {
            return;
        };
        let lore = self.shard_lore.get_mut(&database);
        if let Some(lore) = lore.filter(|lore| lore.is_asked(shard)) {
            lore.learn_failure(shard, failure, now);
            self.note_reading(&database, shard, false);
            self.resume_waiting(&database);
        }
    }

    /// Clients that wait for the catalogue of a database go on.
    fn resume_waiting(&mut self, database: &str) {
        self.place_waiting();
        let waits = |client: &Client| {
            client.sharded.is_some()
                && *client.who.database == *database
                && !client.inbox.held().is_empty()
                && matches!(client.state(), ClientState::Linked(_))
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
    pub(crate) fn catalogue_server_gone(&mut self, id: PoolId, out: &mut Out) {
        let pool = self.pools.at(id);
        let name = pool.key.login.database.clone();
        if !pool.wants_listener {
            let why = "the connection is lost".into();
            return self.miss_catalogue(&name, CatalogueFailure::Refused(why));
        }
        // Else the server had told, and another one is wanted.
        if let Some(failure) = &pool.failure {
            let why = failure.text.as_str().into();
            self.pools.at_mut(id).listener_wanted(false);
            self.sated(id, out);
            self.miss_catalogue(&name, CatalogueFailure::Unreachable(why));
        }
    }
}
