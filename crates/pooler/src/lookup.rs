//! `auth_query`: asks PostgreSQL for the secret of a user who is not in auth_file.
//!
//! The client waits for a server of the pool in which `auth_user` runs the query. This pool serves
//! no other purpose: state that clients leave on a server (a temporary table `pg_shadow`, a search
//! path) could change the rows that the query reads.

mod query;

use howdah_wire::backend::{Fields, parameter_status};
use howdah_wire::tag::backend as tag;

use crate::auth::Secret;
use crate::client::ClientState;
use crate::config::nanos;
use crate::event::{ClientId, Close, Out, ServerId, Time};
use crate::fault::Fault;
use crate::known::{LookedUp, row};
use crate::note::Level;
use crate::pool::key::Purpose;
use crate::pooler::Pooler;
use crate::{client, limits};

impl Pooler {
    /// Begins the look-up of a client's user: the client waits for a server.
    pub(crate) fn look_up(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        if client.inbox.held().len() > limits::PROOF {
            // The client has not been asked for anything yet.
            return self.disconnect(id, Fault::TooEarly, out);
        }
        let name = client.who.database.clone();
        let target = match self.lookup_database(&name) {
            Ok(Some(target)) => target,
            // The database does not exist. The client learns this after a login that can't succeed.
            Ok(None) => return self.was_looked_up(id, LookedUp::Nobody, out),
            Err(fault) => return self.disconnect(id, fault, out),
        };
        let Some(user) = self.auth_user(&name) else {
            return;
        };
        if let Some(who) = self.who(id)
            && let Some(found) = self.known.find(&who, self.now)
        {
            return self.was_looked_up(id, found, out);
        }
        let login_id = self.login_of(&target.name, &user, &target);
        let pool_id = self.pool_of(login_id, Purpose::Lookups);
        if let Some(fault) = self.hopeless(pool_id) {
            return self.disconnect(id, fault, out);
        }
        self.logins.at_mut(login_id).client_enters();
        let client = self.clients.at_mut(id);
        client.begin_lookup((login_id, pool_id), self.now);
        self.watch_client(id);
        self.await_server(id, pool_id);
        self.need(pool_id, out);
    }

    /// Repeats a client's look-up, because a cached answer now makes a server unnecessary.
    pub(crate) fn look_up_again(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        if matches!(client.state(), ClientState::Lookup(_)) {
            self.leave_line(id);
            self.look_up(id, out);
        }
    }

    /// Ends a client's wait for a look-up.
    fn leave_line(&mut self, id: ClientId) {
        let client = gone!(self.clients.get_mut(id));
        if let Some(login) = client.leaves_login() {
            self.logins.at_mut(login).client_leaves(self.now);
        }
    }

    /// A message of a server that runs the query.
    pub(crate) fn lookup_message(&mut self, id: ServerId, message: u8, body: &[u8], out: &mut Out) {
        if message == tag::PARAMETER_STATUS {
            if let Ok((name, value)) = parameter_status(body) {
                self.learn(id, name, value);
            }
            return;
        }
        let server = self.servers.at_mut(id);
        let lookup = gone!(server.lookup_mut());
        match message {
            tag::DATA_ROW if lookup.row.is_none() => match row(body) {
                Some(row) => lookup.row = Some(row),
                None => lookup.error = Some("it must give a name and a password".into()),
            },
            tag::ERROR => {
                let text = String::from_utf8_lossy(Fields::new(body).message()).into_owned();
                lookup.error.get_or_insert(text);
            }
            tag::READY => {
                let idle = body.first() == Some(&b'I');
                self.looked_up(id, idle, out);
            }
            _ => {}
        }
    }

    /// The query is complete: releases the server and continues the client's login.
    fn looked_up(&mut self, id: ServerId, idle: bool, out: &mut Out) {
        let server = gone!(self.servers.get_mut(id));
        let lookup = gone!(server.ends_lookup(self.now));
        if let Some(error) = &lookup.error {
            let text = format!("error in auth_query: {error}");
            self.note_server(Level::Warning, id, &text, out);
        }
        let asker = lookup.client;
        let found = match (lookup.error, lookup.row) {
            (Some(error), _) => Err(Fault::Config(format!("error in auth_query: {error}"))),
            (None, Some((Some(_), secret))) => {
                let secret = secret.filter(|secret| !secret.is_empty());
                let secret = secret.map(Secret::classify);
                // Before the next client gets the server: it may need the same secret.
                self.remember(asker, &secret);
                Ok(LookedUp::User(secret))
            }
            // PgBouncer's text. It reveals which users exist, as in PgBouncer.
            (None, _) => Err(Fault::NoSuchUser),
        };
        if idle {
            self.checkin(id, out);
        } else {
            self.close_server(id, "auth_query left a transaction open", Close::Await, out);
        }
        let waits = |client: &client::Client| matches!(client.state(), ClientState::Lookup(_));
        if !self.clients.get(asker).is_some_and(waits) {
            return;
        }
        self.leave_line(asker);
        match found {
            Ok(found) => self.was_looked_up(asker, found, out),
            Err(fault) => self.disconnect(asker, fault, out),
        }
    }

    fn remember(&mut self, id: ClientId, secret: &Option<Secret>) {
        let kept = nanos(self.config.globals.auth_query_cache);
        if let Some(who) = self.who(id)
            && kept > 0
        {
            let until = Time(self.now.0.saturating_add(kept));
            self.known.learn(who, secret.clone(), self.now, until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_two_columns() {
        let both = b"\0\x02\0\0\0\x01a\0\0\0\x02bc";
        assert_eq!(row(both), Some((Some("a".into()), Some("bc".into()))));
        let null = b"\0\x02\0\0\0\x01a\xff\xff\xff\xff";
        assert_eq!(row(null), Some((Some("a".into()), None)));
        assert_eq!(row(b"\0\x01\0\0\0\x01a"), None);
        assert_eq!(row(b"\0\x02\0\0\0\x01a\0\0\0\x09bc"), None);
    }
}
