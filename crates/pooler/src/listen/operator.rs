//! Verbs of a listener's worker: its connection, and who is told what it hears.

use std::collections::BTreeMap;
use std::sync::Arc;

use howdah_wire::backend::{Fields, parameter_status};
use howdah_wire::frame::{HEADER, cstr, header, u32_be};
use howdah_wire::tag::backend as tag;
use howdah_wire::write;

use super::{
    Demand, FromListener, Hearer, Listener, Notification, Refused, ToListener, Told, Wish,
};
use crate::config::nanos;
use crate::event::{Action, ClientId, Close, Out, Peer, ServerId, WorkerId};
use crate::limits;
use crate::mail::Mail;
use crate::note::Level;
use crate::pool::{PoolId, PoolKey};
use crate::pooler::Pooler;
use crate::server::State;

/// How long clients wait for the listener's login before they listen on servers of their own, in
/// nanoseconds.
const LOGIN_NS: u64 = 5_000_000_000;

/// How long the listening connection may take to answer, in nanoseconds: whoever listens waits for it.
const ANSWER_NS: u64 = 15_000_000_000;

/// What is run first: nothing is to end the connection because it is idle.
const FIRST: &[u8] = b"SELECT pg_catalog.set_config(name,'0',false) FROM pg_catalog.pg_settings \
    WHERE name OPERATOR(pg_catalog.=) 'idle_session_timeout'";

impl Pooler {
    /// A client wants something of a listener.
    pub(crate) fn listener_hears(&mut self, mail: ToListener, out: &mut Out) {
        match mail {
            ToListener::Hear(wish) => self.wished(*wish, out),
            ToListener::Pass { listener, hearer } => {
                match self.listeners.get_mut(&listener) {
                    Some(found) => found.pass(hearer),
                    // It was told so, or is about to be.
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
        let Some(pool) = self.listening_pool(&wish) else {
            return tell_hears(hearer, Err(Refused::Unfit), out);
        };
        let (now, seeded) = (self.now, self.seeded);
        let fresh = || Listener::new(seeded, now);
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
        let pool_of = self.pools.at_mut(pool);
        pool_of.scram_keys = wish.keys.or(pool_of.scram_keys.take());
        pool_of.found_secret = wish.secret.or(pool_of.found_secret.take());
        self.need(pool, out);
    }

    /// The pool of a listener, if a connection of it can serve a client.
    fn listening_pool(&mut self, wish: &Wish) -> Option<PoolId> {
        let database = self.config.database(&wish.listener.database)?;
        let id = self.pool_for((*wish.listener).clone(), &database);
        let listener = self.listeners.get(&wish.listener);
        let connected = listener.is_some_and(|listener| listener.server.is_some());
        let pool = self.pools.at(id);
        let fit = connected || pool.gives() && !self.backs_off(id);
        fit.then_some(id)
    }

    fn listeners_wish(&mut self, pool: PoolId, wants: bool) {
        self.pools.at_mut(pool).wants_listener = wants;
    }

    /// A listening connection is to the same place as a client's server, and speaks its encoding.
    fn suits(&self, server: ServerId, demand: &Demand) -> bool {
        let server = self.servers.at(server);
        let place = server.ends.as_ref().map(|ends| &ends.remote);
        let position = self.shared.tracked.position(b"client_encoding");
        let encoding = position.and_then(|position| server.params.get(position));
        let same_place = demand.place.is_none() || place == demand.place.as_ref();
        same_place && encoding.is_some() && encoding == demand.encoding.as_deref()
    }

    /// A listening connection has logged in.
    pub(crate) fn listener_ready(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let pool = server.pool;
        let key = self.pools.at(pool).key.clone();
        self.listeners_wish(pool, false);
        self.sated(pool, out);
        let found = self.listeners.remove(&key);
        let Some(mut listener) = found.filter(|l| l.server.is_none() && !l.is_unused()) else {
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

    /// Sends what is wanted of a listener, unless something is under way.
    fn begin_round(&mut self, key: &Arc<PoolKey>, out: &mut Out) {
        let listener = gone!(self.listeners.get_mut(key));
        let Some(id) = listener.server else { return };
        let ready = self
            .servers
            .get(id)
            .is_some_and(|server| matches!(server.state(), State::Listening { first: false }));
        if !ready {
            return;
        }
        if let Some(sql) = listener.begin(self.now) {
            out.send_with(Peer::Server(id), |buf| write::query(buf, &sql));
        }
    }

    /// Bytes of a listening connection.
    pub(crate) fn listener_bytes(&mut self, id: ServerId, bytes: &[u8], out: &mut Out) {
        let server = self.servers.at_mut(id);
        let key = self.pools.at(server.pool).key.clone();
        let mut held = std::mem::take(&mut server.inbox.held);
        held.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let message = match header(&held[at..]) {
                None => break,
                Some(Ok(header)) if header.total() <= limits::HELD_MESSAGE => header,
                Some(_) => return self.close_server(id, "bad pkt header", Close::Await, out),
            };
            let Some(body) = held.get(at + HEADER..at + message.total()) else {
                break;
            };
            at += message.total();
            if !self.listener_message(id, &key, message.tag, body, out) {
                return self.close_server(id, "unknown pkt", Close::Await, out);
            }
        }
        held.drain(..at);
        if let Some(server) = self.servers.get_mut(id) {
            server.inbox.held = held;
        }
    }

    /// False if the message can't be read.
    fn listener_message(
        &mut self,
        id: ServerId,
        key: &Arc<PoolKey>,
        message: u8,
        body: &[u8],
        out: &mut Out,
    ) -> bool {
        match message {
            tag::NOTIFICATION => match notification(body) {
                Some(notification) => self.listener_notified(key, notification, out),
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

    fn listener_notified(&mut self, key: &PoolKey, heard: Notification, out: &mut Out) {
        let listener = gone!(self.listeners.get(key));
        let hearers = by_worker(listener.hearers(&heard.channel).iter().copied());
        let heard = Arc::new(heard);
        for (worker, clients) in hearers {
            let mail = FromListener::Notified(heard.clone(), clients);
            out.push(Action::Post(worker, Mail::FromListener(mail)));
        }
    }

    fn round_ends(&mut self, id: ServerId, key: &Arc<PoolKey>, out: &mut Out) {
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
                Told::Hears(hearer, result) => tell_hears(hearer, result, out),
                Told::Passed(hearer) => passed.push(hearer),
            }
        }
        for (worker, clients) in by_worker(passed.into_iter()) {
            let mail = FromListener::Passed(clients);
            out.push(Action::Post(worker, Mail::FromListener(mail)));
        }
        self.begin_round(key, out);
    }

    /// A listening connection is lost, or there will be none: who has heard by it has missed
    /// something, perhaps.
    pub(crate) fn listener_lost(&mut self, pool: PoolId, out: &mut Out) {
        self.listeners_wish(pool, false);
        self.sated(pool, out);
        let key = self.pools.at(pool).key.clone();
        self.forget_listener(&key, out);
    }

    /// There is no room for a listening connection any more.
    pub(crate) fn silence_listener(&mut self, key: &PoolKey, out: &mut Out) {
        let listener = self.listeners.get(key);
        if let Some(id) = listener.and_then(|listener| listener.server) {
            self.close_server(id, "evicted", Close::Await, out);
        }
    }

    fn forget_listener(&mut self, key: &PoolKey, out: &mut Out) {
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

    /// Several times a second: clients do not wait for a login for long, and a connection that
    /// nobody needs goes.
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
            match self.pools.find(&key) {
                Some(pool) => self.listener_lost(pool, out),
                None => self.forget_listener(&key, out),
            }
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
