//! The catalogues of shards: PostgreSQL is asked on connections of Howdah's own, because clients may
//! leave something on theirs that changes the answer. All workers learn it.

use std::collections::HashSet;
use std::sync::Arc;

use howdah_shard::{Part, ShardCatalogue};
use howdah_wire::backend::{Fields, Status, parameter_status};
use howdah_wire::tag::backend as tag;
use howdah_wire::write;

use crate::client::{Client, ClientState};
use crate::config::Shard;
use crate::event::{Action, ClientId, Out, Peer, ServerId, WorkerId};
use crate::mail::Mail;
use crate::next::Next;
use crate::note::Level;
use crate::pool::key::{PoolId, Purpose};
use crate::pooler::Pooler;
use crate::server::ServerState;
use crate::shard::lore::{CatalogueAnswer, ShardLore};

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
            if lore.gives_up(now) {
                late.push(name.clone());
            }
        }
        for name in late {
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

    /// A server has logged in, or was lent, to tell a shard's catalogue.
    pub(crate) fn read_catalogue(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at(id);
        let (pool, login) = (server.pool, server.login);
        self.pools.at_mut(pool).listener_wanted(false);
        self.sated(pool, out);
        let schema = self.logins.at(login).schema;
        let answer = CatalogueAnswer {
            schema: self.shared.statements.schema(schema),
            ..CatalogueAnswer::default()
        };
        let parts = Part::ALL.map(Part::query).join(";");
        self.servers.at_mut(id).statements.set_unnamed(None);
        out.send_with(Peer::Server(id), |buf| write::query(buf, parts.as_bytes()));
        self.await_task(id, ServerState::Cataloguing(Box::new(answer)));
    }

    /// A message of a server that tells a shard's catalogue.
    pub(crate) fn catalogue_message(
        &mut self,
        id: ServerId,
        message: u8,
        body: &[u8],
        out: &mut Out,
    ) {
        if message == tag::PARAMETER_STATUS {
            if let Ok((name, value)) = parameter_status(body) {
                self.learn(id, name, value);
            }
            return;
        }
        let server = self.servers.at_mut(id);
        let answer = gone!(server.catalogue_mut());
        match message {
            tag::DATA_ROW => {
                let part = Part::ALL.get(answer.parts).copied();
                let fields = fields(body);
                let read = part
                    .zip(fields)
                    .map(|(part, row)| answer.reader.row(part, &row));
                match read {
                    Some(Ok(())) => {}
                    Some(Err(odd)) => answer.error = Some(odd.to_string()),
                    None => answer.error = Some("an answer that is none".into()),
                }
            }
            tag::COMMAND_COMPLETE => answer.parts += 1,
            tag::ERROR => answer.error = Some(Fields::new(body).texts("XX000").1),
            tag::READY => self.catalogue_is_told(id, body, out),
            _ => {}
        }
    }

    fn catalogue_is_told(&mut self, id: ServerId, ready: &[u8], out: &mut Out) {
        let server = self.servers.at_mut(id);
        let answer = std::mem::take(gone!(server.catalogue_mut()));
        server.mark_ready(Status::read(ready).unwrap_or(Status::Failed));
        let shard = self.logins.at(server.login).key.database.clone();
        let found = match answer.error {
            None => Some(Arc::new(answer.reader.finish())),
            Some(why) => {
                let text = format!("the catalogue of the shard can't be read: {why}");
                self.note_server(Level::Warning, id, &text, out);
                None
            }
        };
        if let Some(found) = &found {
            for to in (0..self.workers)
                .map(WorkerId)
                .filter(|to| *to != self.worker)
            {
                let (shard, found) = (shard.clone(), found.clone());
                let mail = Mail::ShardCatalogue(shard, answer.schema, found);
                out.push(Action::Post(to, mail));
            }
        }
        self.learn_catalogue(&shard, answer.schema, found);
        self.next.note(Next::BringToRest(id));
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

/// The columns of a DataRow.
fn fields(row: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    let (count, mut rest) = row.split_first_chunk::<2>()?;
    let mut fields = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        // NULL has the length -1.
        let field = match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                let (value, after) = rest.split_at_checked(length)?;
                rest = after;
                Some(value)
            }
            Err(_) => None,
        };
        fields.push(field);
    }
    Some(fields)
}
