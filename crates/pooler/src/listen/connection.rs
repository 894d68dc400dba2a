//! A listening connection: how it begins and ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use howdah_wire::write;

use crate::config::nanos;
use crate::event::{Action, ClientId, Close, Out, Peer, ServerId, WorkerId};
use crate::listen::{FromListener, Hearer, Refused, Requirements, SharedListener};
use crate::login::key::LoginKey;
use crate::mail::Mail;
use crate::note::Level;
use crate::pool::key::{PoolId, Purpose};
use crate::pooler::Pooler;

/// How long clients wait for the listener's login before they listen on servers of their own, in
/// nanoseconds.
const LOGIN_NS: u64 = 5_000_000_000;

/// How long the listening connection may take to answer, in nanoseconds. All listening clients wait
/// meanwhile.
const ANSWER_NS: u64 = 15_000_000_000;

/// The first query: PostgreSQL must not end the connection because it is idle.
const FIRST: &[u8] = b"SELECT pg_catalog.set_config(name,'0',false) FROM pg_catalog.pg_settings \
    WHERE name OPERATOR(pg_catalog.=) 'idle_session_timeout'";

impl Pooler {
    pub(super) fn listeners_wish(&mut self, pool: PoolId, wants: bool) {
        self.pools.at_mut(pool).listener_wanted(wants);
    }

    /// True if a listening connection leads to the same address as a client's server, and has the
    /// client's encoding.
    pub(super) fn suits(&self, server: ServerId, demand: &Requirements) -> bool {
        let encoding = self.encoding_at(server);
        let place = self.servers.at(server).connection.remote();
        let same_place = demand.place.is_none() || place == demand.place.as_ref();
        same_place && encoding.is_some() && encoding == demand.encoding.as_deref()
    }

    fn encoding_at(&self, server: ServerId) -> Option<&[u8]> {
        let position = self.shared.tracked.position(b"client_encoding")?;
        self.servers.at(server).session.params.get(position)
    }

    /// A listening connection has logged in.
    pub(crate) fn listener_ready(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let pool = server.pool;
        let key = self.logins.at(server.login).key.clone();
        self.listeners_wish(pool, false);
        self.sated(pool, out);
        let connected = |listener: &SharedListener| listener.server.is_some();
        let found = if self.listeners.get(&key).is_some_and(connected) {
            None
        } else {
            self.listeners.remove(&key)
        };
        let Some(mut listener) = found.filter(|listener| !listener.is_unused()) else {
            return self.close_server(id, "nobody listens", Close::Await, out);
        };
        for hearer in listener.connected(id, |demand| self.suits(id, demand)) {
            tell_hears(hearer, Err(Refused::Unfit), out);
        }
        listener.since = self.now;
        listener.asked = Some(self.now);
        self.listeners.insert(key, listener);
        let server = self.servers.at_mut(id);
        server.becomes_listener(self.now);
        out.send_with(Peer::Server(id), |buf| write::query(buf, FIRST));
        self.note_server(Level::Debug, id, "listens for clients", out);
    }

    /// A listening connection is closed.
    pub(crate) fn listener_closes(&mut self, id: ServerId, out: &mut Out) {
        let key = self.logins.at(self.servers.at(id).login).key.clone();
        let listener = self.listeners.get(&key);
        if listener.is_some_and(|listener| listener.server == Some(id)) {
            self.lose_listener(&key, out);
        }
    }

    /// A listening connection is lost, or could not be opened. Its clients may have missed
    /// notifications.
    pub(crate) fn lose_listener(&mut self, key: &LoginKey, out: &mut Out) {
        let login = self.logins.find(key);
        let pool = login.and_then(|login| self.pool_if_any(login, Purpose::Listening));
        if let Some(pool) = pool {
            self.listeners_wish(pool, false);
            self.sated(pool, out);
        }
        let Some(mut listener) = self.listeners.remove(key) else {
            return;
        };
        let (hearers, wishes) = listener.lose();
        for (worker, clients) in by_worker(hearers.into_iter()) {
            let mail = FromListener::Lost(clients);
            out.push(Action::Post(worker, Mail::FromListener(mail)));
        }
        for hearer in wishes {
            tell_hears(hearer, Err(Refused::Unfit), out);
        }
    }

    /// All listening connections must go.
    pub(crate) fn silence_all(&mut self, why: &str, out: &mut Out) {
        let keys: Vec<Arc<LoginKey>> = self.listeners.keys().cloned().collect();
        for key in keys {
            let listener = self.listeners.get(&key);
            match listener.and_then(|listener| listener.server) {
                Some(id) => self.close_server(id, why, Close::Await, out),
                None => self.lose_listener(&key, out),
            }
        }
    }

    /// A listening connection must make room for other servers.
    pub(crate) fn silence_listener(&mut self, key: &LoginKey, out: &mut Out) {
        let listener = self.listeners.get(key);
        if let Some(id) = listener.and_then(|listener| listener.server) {
            self.close_server(id, "evicted", Close::Await, out);
        }
    }

    /// Several times a second: gives up logins that take too long, and closes connections that do
    /// not answer or that no client needs.
    pub(crate) fn mind_listeners(&mut self, out: &mut Out) {
        let idle = nanos(self.config.globals.server_idle_timeout);
        let (mut late, mut unused, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        for (key, listener) in &self.listeners {
            let age = self.now.0.saturating_sub(listener.since.0);
            let asked = listener.asked;
            let waits = asked.map_or(0, |asked| self.now.0.saturating_sub(asked.0));
            match listener.server {
                Some(id) if waits >= ANSWER_NS => silent.push(id),
                None if age >= LOGIN_NS || listener.is_unused() => late.push(key.clone()),
                Some(id) if listener.is_unused() && idle > 0 && age >= idle => unused.push(id),
                _ => {}
            }
        }
        for key in late {
            self.lose_listener(&key, out);
        }
        for id in silent {
            self.close_server(
                id,
                "the listening connection does not answer",
                Close::Abort,
                out,
            );
        }
        for id in unused {
            self.close_server(id, "server idle timeout", Close::Await, out);
        }
    }
}

pub(super) fn tell_hears((worker, client): Hearer, result: Result<(), Refused>, out: &mut Out) {
    let mail = FromListener::Hears(client, result);
    out.push(Action::Post(worker, Mail::FromListener(mail)));
}

pub(super) fn by_worker(
    hearers: impl Iterator<Item = Hearer>,
) -> BTreeMap<WorkerId, Vec<ClientId>> {
    let mut all = BTreeMap::<WorkerId, Vec<ClientId>>::new();
    for (worker, client) in hearers {
        all.entry(worker).or_default().push(client);
    }
    all
}
