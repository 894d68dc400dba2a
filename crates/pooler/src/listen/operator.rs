//! `Pooler` on the worker of a listening connection: the wishes of clients, the connection's
//! rounds, and the delivery of notifications. The connection itself: `connection.rs`.

use std::sync::Arc;

use howdah_wire::backend::{Fields, parameter_status};
use howdah_wire::frame::{cstr, u32_be};
use howdah_wire::tag::backend as tag;
use howdah_wire::write;

use super::connection::{by_worker, tell_hears};
use super::{FromListener, Notification, Refused, RoundOutcome, SharedListener, ToListener, Wish};
use crate::event::{Action, Close, Out, Peer, ServerId};
use crate::limits;
use crate::login::key::LoginKey;
use crate::login::secrets::Secrets;
use crate::mail::Mail;
use crate::note::Level;
use crate::pool::key::{PoolId, Purpose};
use crate::pooler::Pooler;
use crate::server::ServerState;

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
