//! From admission to ReadyForQuery: the proof of identity, and the welcome.

use std::sync::Arc;

use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, header};
use howdah_wire::tag::frontend;
use howdah_wire::{WireError, write};

use super::State;
use crate::config::{AuthType, Database};
use crate::event::{ClientId, Out, Peer, ServerId};
use crate::fault::Fault;
use crate::pool::PoolKey;
use crate::pooler::Pooler;

/// The longest password or SASL message accepted, in bytes (PgBouncer's limit on passwords and
/// some room).
const PASSWORD_MAX: u32 = 70_000;

/// A login under way.
#[derive(Debug)]
pub struct Login {}

impl Pooler {
    /// The client may prove who it is.
    pub(crate) fn begin_login(&mut self, id: ClientId, out: &mut Out) {
        let Some(client) = self.clients.get(id) else { return };
        let user = client.user.clone();
        match self.config.globals.auth_type {
            AuthType::Any => self.logged_in(id, out),
            AuthType::Trust if self.config.user(&user).is_some() => self.logged_in(id, out),
            AuthType::Trust => {
                let fault = Fault::LoginFailed("\"trust\" authentication failed");
                self.disconnect(id, fault, out);
            }
            _ => self.disconnect(id, Fault::Config("auth_type is not built yet"), out),
        }
    }

    /// Bytes of a client that is proving who it is.
    pub(crate) fn login_bytes(&mut self, id: ClientId, bytes: &[u8], out: &mut Out) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.inbox.held.extend_from_slice(bytes);
        while let Some(client) = self.clients.get_mut(id) {
            if !matches!(client.state, State::Login(_)) {
                return;
            }
            let held = &client.inbox.held;
            let header = match header(held) {
                None => return,
                Some(Err(error)) => return self.disconnect(id, Fault::ClientBytes(error), out),
                Some(Ok(header)) => header,
            };
            if header.tag == frontend::TERMINATE {
                return self.disconnect(id, Fault::ClientClosed, out);
            }
            if header.tag != frontend::PASSWORD {
                return self.disconnect(id, Fault::TooEarly, out);
            }
            if header.body > PASSWORD_MAX {
                let error = WireError::Length { tag: header.tag, length: header.body + 4 };
                return self.disconnect(id, Fault::ClientBytes(error), out);
            }
            if held.len() < header.total() {
                return;
            }
            let body: Vec<u8> = held[HEADER..header.total()].to_vec();
            client.inbox.held.drain(..header.total());
            self.password(id, &body, out);
        }
    }

    fn password(&mut self, _id: ClientId, _body: &[u8], _out: &mut Out) {}

    /// The control thread has derived a key for a client's login.
    pub(crate) fn client_derived(&mut self, _id: ClientId, _key: [u8; 32], _out: &mut Out) {}

    /// The client has proved who it is: its pool is found.
    pub(crate) fn logged_in(&mut self, id: ClientId, out: &mut Out) {
        if self.is_console_client(id) {
            return self.open_console(id, out);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        client.state = State::Welcome;
        let (name, user) = (client.database.clone(), client.user.clone());
        let Some(database) = self.config.database(&name) else {
            return self.disconnect(id, Fault::NoDatabase(name.to_string()), out);
        };
        if self.config.globals.auth_type == AuthType::Any && database.forced_user.is_none() {
            let fault = Fault::Config("auth_type=any requires forced user");
            return self.disconnect(id, fault, out);
        }
        let key = PoolKey { user: self.pool_user(&database, user), database: name };
        if database.auto && self.pools.find(&key).is_none() {
            let text = format!("registered new auto-database: db={}", key.database);
            self.note_client(crate::note::Level::Log, id, &text, out);
        }
        let pool_id = self.pool_for(key, &database);
        let pool = self.pools.at_mut(pool_id);
        pool.clients += 1;
        let welcomed = pool.welcome.is_some();
        let Some(client) = self.clients.get_mut(id) else { return };
        client.pool = Some(pool_id);
        if client.replication.any() {
            // It gets a server of its own, and is welcomed with what that says.
            client.state = State::Waiting;
            client.request = self.now;
            self.pools.at_mut(pool_id).waiting.push_back((id, self.now));
        } else if welcomed {
            return self.welcome(id, out);
        } else {
            self.pools.at_mut(pool_id).newcomers.push(id);
        }
        self.watch_client(id, out);
        self.need(pool_id, out);
    }

    fn pool_user(&mut self, database: &Database, user: Arc<str>) -> Arc<str> {
        match &database.forced_user {
            Some(forced) => self.consoles.name(forced),
            None => user,
        }
    }

    /// Tells a client that it is logged in, with its pool's parameters and its own on top.
    pub(crate) fn welcome(&mut self, id: ClientId, out: &mut Out) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if !matches!(client.state, State::Welcome) {
            return;
        }
        client.state = State::Idle;
        client.quiet = self.now;
        self.send_welcome(id, out);
        self.resume(id, out);
        self.watch_client(id, out);
    }

    /// Likewise for a client with a server of its own.
    pub(crate) fn welcome_replication(&mut self, id: ClientId, _: ServerId, out: &mut Out) {
        self.send_welcome(id, out);
    }

    fn send_welcome(&mut self, id: ClientId, out: &mut Out) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(pool_id) = client.pool else { return };
        let pool = self.pools.at_mut(pool_id);
        let Some(welcome) = pool.welcome.clone() else { return };
        pool.stats.logins += 1;
        client.welcomed = true;
        let asked = client.params.take();
        let wanted = match &asked {
            Some(asked) => welcome.tracked.overlaid(asked),
            None => (*welcome.tracked).clone(),
        };
        let params = self.shared.params.intern(wanted);
        let mut meaning = Vec::new();
        params.meaning(&mut meaning);
        client.meaning = std::hash::BuildHasher::hash_one(&self.keys.meaning(), &meaning);
        client.params = Some(params.clone());
        let (pid, secret, length) = self.keys.of(id, client.long_key);
        let notify = self.config.globals.login_notify_message.as_str();
        let tracked = &self.shared.tracked;
        out.send_with(Peer::Client(id), |buf| {
            write::authentication(buf, 0, b"");
            for (name, value) in &*welcome.parameters {
                let own = tracked.position(name).and_then(|position| params.get(position));
                write::parameter_status(buf, name, own.unwrap_or(value));
            }
            write::key_data(buf, pid, &secret[..length]);
            if !notify.is_empty() {
                write::notice(buf, "NOTICE", "00000", notify, None);
            }
            write::ready(buf, Status::Idle);
        });
    }
}
