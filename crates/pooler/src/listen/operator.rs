//! `Pooler` on the worker of a listening connection: the connection itself, and the delivery of
//! notifications.

use std::collections::BTreeMap;
use std::sync::Arc;

use howdah_wire::backend::{Fields, parameter_status};
use howdah_wire::frame::{cstr, u32_be};
use howdah_wire::tag::backend as tag;
use howdah_wire::write;

use super::{
    FromListener, Hearer, Notification, Refused, Requirements, RoundOutcome, SharedListener,
    ToListener, Wish,
};
use crate::config::nanos;
use crate::event::{Action, ClientId, Close, Out, Peer, ServerId, WorkerId};
use crate::limits;
use crate::login::key::LoginKey;
use crate::login::secrets::Secrets;
use crate::mail::Mail;
use crate::note::Level;
use crate::pool::key::{PoolId, Purpose};
use crate::pooler::Pooler;
use crate::server::ServerState;

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
    /// Mail from a client's worker to a listener.
    pub(crate) fn listener_hears(&mut self, mail: ToListener, out: &mut Out) {
        match mail {
            ToListener::Hear(wish) => self.wished(*wish, out),
            ToListener::Pass { listener, hearer } => {
                match self.listeners.get_mut(&listener) {
                    Some(found) => found.pass(hearer),
                    // The client was told that the listener is lost, or is about to be told.
                    None => return,
                }
                self.begin_round(&listener, out);
            }
            ToListener::Leave {
                listener,
                hearer,
                channels,
                ends,
            } => {
                let found = gone!(self.listeners.get_mut(&listener));
                found.leave(hearer, &channels, ends);
                found.since = self.now;
                self.begin_round(&listener, out);
            }
        }
    }

    fn wished(&mut self, wish: Wish, out: &mut Out) {
        let key = wish.listener.clone();
        let hearer = wish.hearer;
        let pool = self.listening_pool(&key);
        // Clients that listen do not follow to a successor: none begins to share.
        let Some(pool) = pool.filter(|_| self.janitor.succeeded.is_none()) else {
            return tell_hears(hearer, Err(Refused::Unfit), out);
        };
        let (now, seeded) = (self.now, self.seeded);
        let fresh = || SharedListener::new(seeded, now);
        let server = self
            .listeners
            .get(&key)
            .and_then(|listener| listener.server);
        if server.is_some_and(|server| !self.suits(server, &wish.demand)) {
            return tell_hears(hearer, Err(Refused::Unfit), out);
        }
        let listener = self.listeners.entry(key.clone()).or_insert_with(fresh);
        if listener.is_unused() {
            listener.since = now;
        }
        if !listener.hear(hearer, wish.channels, wish.demand) {
            return tell_hears(hearer, Err(Refused::TooMany), out);
        }
        if server.is_some() {
            return self.begin_round(&key, out);
        }
        self.listeners_wish(pool, true);
        let Secrets { keys, found } = wish.secrets;
        self.pools.at_mut(pool).secrets.learn(keys, found, true);
        self.need(pool, out);
    }

    /// The pool of a listener, if a connection of it can serve a client.
    fn listening_pool(&mut self, key: &LoginKey) -> Option<PoolId> {
        let database = self.config.database(&key.database)?;
        let login = self.login_of(&key.database, &key.user, &database);
        let id = self.pool_of(login, Purpose::Listening);
        let listener = self.listeners.get(key);
        let connected = listener.is_some_and(|listener| listener.server.is_some());
        let pool = self.pools.at(id);
        let fit = connected || pool.gives() && !self.backs_off(id);
        fit.then_some(id)
    }

    fn listeners_wish(&mut self, pool: PoolId, wants: bool) {
        self.pools.at_mut(pool).listener_wanted(wants);
    }

    /// True if a listening connection leads to the same address as a client's server, and has the
    /// client's encoding.
    fn suits(&self, server: ServerId, demand: &Requirements) -> bool {
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

    /// Begins the next round of a listener, unless a round is under way.
    fn begin_round(&mut self, key: &Arc<LoginKey>, out: &mut Out) {
        let listener = gone!(self.listeners.get_mut(key));
        let Some(id) = listener.server else { return };
        let ready = self.servers.get(id).is_some_and(|server| {
            matches!(server.state(), ServerState::Listening { first: false })
        });
        if !ready {
            return;
        }
        if let Some(sql) = listener.begin(self.now) {
            out.send_with(Peer::Server(id), |buf| write::query(buf, &sql));
        }
    }

    /// Bytes from a listening connection.
    pub(crate) fn listener_bytes(&mut self, id: ServerId, bytes: &[u8], out: &mut Out) {
        let server = self.servers.at_mut(id);
        let key = self.logins.at(server.login).key.clone();
        let feed = server.inbox.feed(bytes);
        let mut chunk = feed.chunk();
        loop {
            let (message, body) = match chunk.next_message(limits::HELD_MESSAGE) {
                Ok(None) => break,
                Ok(Some(message)) => message,
                Err(_) => return self.close_server(id, "bad pkt header", Close::Await, out),
            };
            if !self.listener_message(id, &key, message, body, out) {
                return self.close_server(id, "unknown pkt", Close::Await, out);
            }
        }
        let done = chunk.at;
        if let Some(server) = self.servers.get_mut(id) {
            server.inbox.keep(feed, done);
        }
    }

    /// False if the message can't be read.
    fn listener_message(
        &mut self,
        id: ServerId,
        key: &Arc<LoginKey>,
        message: u8,
        body: &[u8],
        out: &mut Out,
    ) -> bool {
        match message {
            tag::NOTIFICATION => match notification(body) {
                Some(notification) => self.tell_hearers(key, notification, out),
                None => return false,
            },
            tag::PARAMETER_STATUS => match parameter_status(body) {
                Ok((name, value)) => return self.learn(id, name, value),
                Err(_) => return false,
            },
            tag::ERROR => {
                let text = String::from_utf8_lossy(Fields::new(body).message()).into_owned();
                self.note_server(Level::Warning, id, &format!("listening: {text}"), out);
                if let Some(listener) = self.listeners.get_mut(key) {
                    listener.fail();
                }
            }
            tag::READY => self.round_ends(id, key, out),
            _ => {}
        }
        true
    }

    fn tell_hearers(&mut self, key: &LoginKey, heard: Notification, out: &mut Out) {
        let listener = gone!(self.listeners.get(key));
        let heard = Arc::new(heard);
        let hearers = by_worker(listener.hearers(&heard.channel).iter().copied());
        for (worker, clients) in hearers {
            let mail = FromListener::Notified(heard.clone(), clients);
            out.push(Action::Post(worker, Mail::FromListener(mail)));
        }
    }

    fn round_ends(&mut self, id: ServerId, key: &Arc<LoginKey>, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let listener = gone!(self.listeners.get_mut(key));
        if server.first_query_ends() {
            listener.asked = None;
            return self.begin_round(key, out);
        }
        listener.since = self.now;
        let mut passed = Vec::new();
        for told in listener.end() {
            match told {
                RoundOutcome::Hears(hearer, result) => tell_hears(hearer, result, out),
                RoundOutcome::Passed(hearer) => passed.push(hearer),
            }
        }
        for (worker, clients) in by_worker(passed.into_iter()) {
            let mail = FromListener::Passed(clients);
            out.push(Action::Post(worker, Mail::FromListener(mail)));
        }
        self.begin_round(key, out);
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

    /// A listening connection is closed.
    pub(crate) fn listener_closes(&mut self, id: ServerId, out: &mut Out) {
        let key = self.logins.at(self.servers.at(id).login).key.clone();
        let listener = self.listeners.get(&key);
        if listener.is_some_and(|listener| listener.server == Some(id)) {
            self.lose_listener(&key, out);
        }
    }
}

fn tell_hears((worker, client): Hearer, result: Result<(), Refused>, out: &mut Out) {
    let mail = FromListener::Hears(client, result);
    out.push(Action::Post(worker, Mail::FromListener(mail)));
}

fn by_worker(hearers: impl Iterator<Item = Hearer>) -> BTreeMap<WorkerId, Vec<ClientId>> {
    let mut all = BTreeMap::<WorkerId, Vec<ClientId>>::new();
    for (worker, client) in hearers {
        all.entry(worker).or_default().push(client);
    }
    all
}

/// Reads a NotificationResponse's body.
fn notification(body: &[u8]) -> Option<Notification> {
    let (pid, rest) = u32_be(body)?;
    let (channel, rest) = cstr(rest)?;
    let (payload, rest) = cstr(rest)?;
    rest.is_empty().then(|| Notification {
        pid,
        channel: channel.into(),
        payload: payload.into(),
    })
}
