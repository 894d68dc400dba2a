//! The query of `auth_query`: for whom it is needed, in which database and as which user it runs.

use std::sync::Arc;

use howdah_wire::tag::frontend;
use howdah_wire::write;

use crate::config::{Database, Scopes};
use crate::console::is_console;
use crate::event::{ClientId, Out, Peer, ServerId};
use crate::fault::Fault;
use crate::known::Lookup;
use crate::login::key::LoginKey;
use crate::pooler::Pooler;

impl Pooler {
    /// True if PostgreSQL must be asked for the secret of this client's user.
    pub(crate) fn needs_lookup(&self, id: ClientId) -> bool {
        let client = gone!(self.clients.get(id));
        let who = &client.who;
        let listed = self.listed(&who.database, &who.user).is_some();
        !listed && self.auth_user(&client.who.database).is_some()
    }

    pub(super) fn auth_user(&self, database: &str) -> Option<String> {
        let user = self.scopes_of(database).auth_user();
        user.filter(|user| !user.is_empty())
    }

    /// The settings for all users of a database.
    fn scopes_of(&self, database: &str) -> Scopes<'_> {
        let entry = self.config.entry(database).map(|entry| &**entry);
        self.config.scopes(entry, None)
    }

    /// True if another client has looked up the same user in the meantime.
    pub(crate) fn is_known_by_now(&self, id: ClientId) -> bool {
        let who = self.who(id);
        who.is_some_and(|who| self.known.find(&who, self.now).is_some())
    }

    /// The database and user whose secret a client's login needs.
    pub(super) fn who(&self, id: ClientId) -> Option<Arc<LoginKey>> {
        Some(self.clients.get(id)?.who.clone())
    }

    /// A client's login has failed, so its user's cached secret may be out of date: forgets it.
    pub(crate) fn doubt(&mut self, id: ClientId) {
        if let Some(who) = self.who(id) {
            self.known.secrets.remove(&who);
        }
    }

    /// The database in which the query runs for clients of `name`; `None` if `name` does not exist.
    pub(super) fn lookup_database(&self, name: &str) -> Result<Option<Arc<Database>>, Fault> {
        let named = self.scopes_of(name).auth_dbname();
        let named = named.filter(|name| !name.is_empty());
        let target = self.front(named.as_deref().unwrap_or(name));
        if is_console(target) {
            let text = format!("cannot use the reserved \"{target}\" database as an auth_dbname");
            return Err(Fault::Config(text));
        }
        if self.janitor.is_disabled(target) {
            return Err(Fault::AuthDatabaseDisabled(target.to_string()));
        }
        match (self.config.database(target), &named) {
            (Some(database), _) => Ok(Some(database)),
            (None, None) => Ok(None),
            (None, Some(named)) => Err(Fault::Config(format!(
                "authentication database \"{named}\" is not configured."
            ))),
        }
    }

    /// Runs the query on a server for a client that waits for its look-up.
    pub(crate) fn ask_who(&mut self, client_id: ClientId, id: ServerId, out: &mut Out) {
        let client = self.clients.at(client_id);
        let query = self.scopes_of(&client.who.database).auth_query();
        let user = client.who.user.clone();
        let server = self.servers.at_mut(id);
        let lookup = Lookup {
            client: client_id,
            row: None,
            error: None,
        };
        server.looks_up(lookup, self.now);
        out.send_with(Peer::Server(id), |buf| ask(buf, &query, &user));
        self.watch_server(id);
    }
}

/// Appends the query as the unnamed statement with one parameter.
fn ask(buf: &mut Vec<u8>, query: &str, user: &str) {
    write::message(buf, frontend::PARSE, |buf| {
        buf.push(0);
        buf.extend_from_slice(query.as_bytes());
        // No parameter types.
        buf.extend_from_slice(&[0, 0, 0]);
    });
    write::message(buf, frontend::BIND, |buf| {
        // Unnamed portal and statement, all formats text, one parameter.
        buf.extend_from_slice(&[0, 0, 0, 0, 0, 1]);
        buf.extend_from_slice(&(user.len() as u32).to_be_bytes());
        buf.extend_from_slice(user.as_bytes());
        buf.extend_from_slice(&[0, 0]);
    });
    write::message(buf, frontend::EXECUTE, |buf| {
        // The unnamed portal, all rows.
        buf.extend_from_slice(&[0; 5]);
    });
    write::empty(buf, frontend::SYNC);
}
