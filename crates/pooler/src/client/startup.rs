//! A client's first packet, and the TLS handshake before it.

use std::sync::Arc;

use howdah_shard::Hint;
use howdah_wire::WireError;
use howdah_wire::startup::{FirstPacket, Startup, length, read};

use super::{Client, ClientTimes, Protocol, Replication};
use crate::auth::CERT_REQUIRED;
use crate::client::ClientState;
use crate::config::{SessionState, SslMode};
use crate::effect::ShardSetting;
use crate::event::{Action, Address, ClientId, Ends, Out, Peer, Time};
use crate::fault::{Fault, Foreign};
use crate::inbox::Inbox;
use crate::link::End;
use crate::params::{Meaning, Params};
use crate::place::Via;
use crate::pooler::Pooler;
use crate::reads::wish::{ROUTE, route_of};
use crate::session::settings::{Settings, at_login};
use crate::shard::hint_of;
use crate::statement::ClientStatements;
use crate::tls::{TlsFacts, TlsStart};
use crate::valve::Valve;
use crate::{console, limits};

/// The first byte of a TLS handshake, the record's type. Read as a length, it would mean 369 MB.
const TLS_HANDSHAKE: u8 = 0x16;

/// Another name of `howdah.route`, for clients that speak libpq's language. PostgreSQL has no such
/// setting.
const SESSION_ATTRS: &[u8] = b"target_session_attrs";

/// The content of a start-up packet.
#[derive(Debug)]
pub struct LoginWish<'packet> {
    pub(super) user: &'packet str,
    pub(super) database: &'packet str,
    pub(super) replication: Replication,
    pub(super) params: Params,
    /// Other settings.
    pub(super) settings: Settings,
    /// Which shard of a sharded database the client means.
    pub(super) shard: Option<Hint>,
    pub(super) minor: u16,
    /// `_pq_.` options. Howdah knows none of them.
    pub(super) options: Vec<&'packet [u8]>,
    /// The start-up parameter `options` of a client that gets a server of its own.
    pub(super) server_options: Option<Box<[u8]>>,
}

impl Pooler {
    /// A listener accepted a connection.
    pub(crate) fn accepted(&mut self, ends: Ends, out: &mut Out) {
        let (number, now) = (self.number(), self.now);
        let via = self.via(&ends);
        let id = self.new_client(ends, number, now);
        self.clients.at_mut(id).comes_via(via);
        out.push(Action::Adopt(id));
        self.watch_client(id);
    }

    pub(crate) fn new_client(&mut self, ends: Ends, number: u64, connected: Time) -> ClientId {
        let (seeded, now) = (self.seeded, self.now);
        let nobody = self.shared.names.nobody();
        self.clients.insert(|_| Client {
            state: ClientState::Startup,
            number,
            ends,
            via: Via::Direct,
            tls: None,
            inbox: Inbox::default(),
            login: None,
            who: nobody,
            params: None,
            asked: None,
            session: None,
            meaning: Meaning::default(),
            statements: ClientStatements::new(seeded),
            signal: None,
            last_server: 0,
            end: End::default(),
            parked: false,
            listens: false,
            hush: Default::default(),
            valve: Valve::default(),
            leaving: None,
            admitted: false,
            welcomed: false,
            standby: None,
            read_mark: None,
            sharded: None,
            notified: false,
            protocol: Protocol::default(),
            old_key: None,
            times: ClientTimes::new(connected, now),
            ends_at: None,
            timer: Time(0),
        })
    }

    /// Handles bytes of a client that has not completed its first packet.
    pub(crate) fn startup_bytes(&mut self, id: ClientId, bytes: &[u8], out: &mut Out) {
        let client = self.clients.at_mut(id);
        client.inbox.hold(bytes);
        if !self.header_is_read(id, out) {
            return;
        }
        if self.begins_with_tls(id) {
            return self.accept_tls(id, true, out);
        }
        while let Some(client) = self.clients.get_mut(id) {
            if !matches!(client.state(), ClientState::Startup) {
                return;
            }
            let size = match length(client.inbox.held()) {
                None => return,
                Some(Err(error)) => return self.refuse_first(id, error, out),
                Some(Ok(size)) if client.inbox.held().len() < size => return,
                Some(Ok(size)) => size,
            };
            let login = || {
                matches!(
                    read(&client.inbox.held()[..size]),
                    Ok(FirstPacket::Startup(_))
                )
            };
            if self.janitor.takeover.holds() && login() {
                // The login begins in the process that serves the client: in the successor, or here
                // later.
                return self.mind_held(id, out);
            }
            let packet = client.inbox.take_front(size);
            self.first_packet(id, &packet, out);
        }
    }

    /// A client's first bytes are no start-up packet. PostgreSQL closes the connection without a
    /// message. A browser gets an answer that it can show.
    fn refuse_first(&mut self, id: ClientId, error: WireError, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        let foreign = Foreign::of(client.inbox.held()).map(Fault::OtherProtocol);
        let fault = foreign
            .or_else(|| client.stray_header())
            .unwrap_or(Fault::ClientLength(error));
        if fault == Fault::OtherProtocol(Foreign::Http) {
            let place = match self.config.globals.http_listen_port {
                0 => "Set http_listen_port for metrics, probes and the page.".to_owned(),
                port => format!("Metrics, probes and the page are on port {port}."),
            };
            let body = format!("This port is for PostgreSQL clients. {place}\n");
            let answer = format!(
                "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{body}",
                body.len()
            );
            out.send(Peer::Client(id), answer.as_bytes());
        }
        self.disconnect(id, fault, out);
    }

    /// Begins the logins that a takeover has delayed.
    pub(crate) fn begin_held_logins(&mut self, out: &mut Out) {
        for id in self.clients.keys() {
            let state = self.clients.get(id).map(|client| client.state());
            if let Some(ClientState::Startup) = state {
                self.startup_bytes(id, b"", out);
                self.unpause_client(id, out);
            }
        }
    }

    fn is_tls(&self, id: ClientId) -> bool {
        self.clients.get(id).is_some_and(Client::is_tls)
    }

    /// True if a client may use TLS: the client uses TCP, and TLS is not disabled for clients.
    fn takes_tls(&self, id: ClientId) -> bool {
        let tcp = |client: &Client| matches!(client.ends.remote, Address::Tcp(..));
        self.config.tls.clients != SslMode::Disable && self.clients.get(id).is_some_and(tcp)
    }

    /// The fault if a client lacks the TLS session or certificate that its database demands.
    fn lacks_tls(&self, id: ClientId, startup: &Startup<'_>) -> Option<Fault> {
        let client = self.clients.get(id)?;
        if !matches!(client.ends.remote, Address::Tcp(..)) {
            return None;
        }
        let named = |key| startup.get(key).filter(|name: &&[u8]| !name.is_empty());
        let database = named("database").or_else(|| named("user")).unwrap_or(b"");
        let mode = match std::str::from_utf8(database) {
            Ok(name) => self.config.demanded_of_clients(name),
            // The name is not valid UTF-8. A later check refuses the client.
            Err(_) => self.config.tls.clients,
        };
        match &client.tls {
            None if mode.is_required() => Some(Fault::TlsRequired),
            Some(tls) if mode.is_verified() && tls.peer.is_none() => {
                Some(Fault::LoginFailed(CERT_REQUIRED))
            }
            _ => None,
        }
    }

    /// True if a client begins with a handshake, without SSLRequest.
    fn begins_with_tls(&self, id: ClientId) -> bool {
        let record = |client: &Client| {
            let fresh = matches!(client.state(), ClientState::Startup) && !client.is_tls();
            fresh && client.inbox.held().first() == Some(&TLS_HANDSHAKE)
        };
        self.clients.get(id).is_some_and(record) && self.takes_tls(id)
    }

    /// The handshake of a client begins.
    fn accept_tls(&mut self, id: ClientId, direct: bool, out: &mut Out) {
        let client = self.clients.at_mut(id);
        client.shakes_hands();
        let received = client.inbox.take_held();
        let start = Box::new(TlsStart::Accept { direct, received });
        out.push(Action::StartTls(Peer::Client(id), start));
    }

    /// The handshake of a client ended.
    pub(crate) fn client_tls_done(
        &mut self,
        id: ClientId,
        result: Result<Box<TlsFacts>, String>,
        out: &mut Out,
    ) {
        let client = gone!(self.clients.get_mut(id));
        if !matches!(client.state(), ClientState::Handshake) {
            return;
        }
        self.handshakes[0].count(&result);
        match result {
            Ok(facts) => {
                client.set_secured(Some(Arc::from(facts)));
                client.starts_again();
            }
            Err(why) => self.disconnect(id, Fault::TlsHandshake(why), out),
        }
    }

    fn first_packet(&mut self, id: ClientId, packet: &[u8], out: &mut Out) {
        let more = self
            .clients
            .get(id)
            .is_some_and(|client| !client.inbox.held().is_empty());
        match read(packet) {
            Err(error) => self.disconnect(id, Fault::ClientBytes(error), out),
            // The bytes after the request were not encrypted. An attacker may have added them.
            Ok(FirstPacket::Ssl) if more => {
                self.disconnect(id, Fault::BytesBeforeAnswer("SSL request"), out);
            }
            Ok(FirstPacket::GssEnc) if more => {
                self.disconnect(
                    id,
                    Fault::BytesBeforeAnswer("GSSAPI encryption request"),
                    out,
                );
            }
            // PostgreSQL also reads an SSLRequest inside TLS as a protocol version.
            Ok(FirstPacket::Ssl) if self.is_tls(id) => {
                self.disconnect(id, Fault::Protocol(1234, 5679), out);
            }
            Ok(FirstPacket::Ssl) if self.takes_tls(id) => {
                out.send(Peer::Client(id), b"S");
                self.accept_tls(id, false, out);
            }
            Ok(FirstPacket::Ssl | FirstPacket::GssEnc) => out.send(Peer::Client(id), b"N"),
            Ok(FirstPacket::Cancel { pid, secret }) => {
                self.cancel_came(id, pid, secret, out);
            }
            Ok(FirstPacket::Unsupported(major, minor)) => {
                self.disconnect(id, Fault::Protocol(major, minor), out);
            }
            Ok(FirstPacket::Startup(startup)) => {
                let lack = self.lacks_tls(id, &startup);
                match lack.map_or_else(|| self.wish(id, startup), Err) {
                    Err(fault) => self.disconnect(id, fault, out),
                    Ok(wish) => self.place(id, wish, packet, out),
                }
            }
        }
    }

    /// Reads the start-up packet, or finds its error.
    pub(super) fn wish<'packet>(
        &self,
        id: ClientId,
        startup: Startup<'packet>,
    ) -> Result<LoginWish<'packet>, Fault> {
        let text = |bytes, what| std::str::from_utf8(bytes).map_err(|_| Fault::NameNotUtf8(what));
        let user = startup
            .get("user")
            .filter(|user| !user.is_empty())
            .ok_or(Fault::NoUser)?;
        let database = startup
            .get("database")
            .filter(|name| !name.is_empty())
            .unwrap_or(user);
        if user.len() > limits::USER_NAME {
            return Err(Fault::NameTooLong("user"));
        }
        if database.len() > limits::DATABASE_NAME {
            return Err(Fault::NameTooLong("database"));
        }
        let mut wish = LoginWish {
            user: text(user, "user")?,
            database: text(database, "database")?,
            replication: Replication::None,
            params: Params::unknown(&self.shared.tracked),
            settings: Settings::default(),
            shard: None,
            minor: startup.minor,
            options: Vec::new(),
            server_options: None,
        };
        if let Some(value) = startup.get("replication") {
            wish.replication = replication(value)?;
        }
        let keeps = self.keeps_settings(&wish);
        for (name, value) in startup.parameters() {
            match name {
                b"user" | b"database" => {}
                b"replication" => {}
                // A client with a server of its own may send any `options` that PostgreSQL accepts.
                b"options" if wish.replication.any() => wish.server_options = Some(value.into()),
                b"options" => match self.options(value, keeps, &mut wish) {
                    Err(_) if self.ignores(name) || console::is_console(wish.database) => {}
                    result => result?,
                },
                _ if name.starts_with(b"_pq_.") => wish.options.push(name),
                _ if self.take(name, value, keeps, &mut wish)? => {}
                _ => return Err(Fault::Parameter(shown(name))),
            }
        }
        if self.config.globals.application_name_add_host {
            self.add_host(id, &mut wish.params);
        }
        Ok(wish)
    }

    /// Takes a parameter that Howdah tracks, keeps or ignores. False for other parameters. Fails if
    /// Howdah itself must understand the value, and does not.
    fn take(
        &self,
        name: &[u8],
        value: &[u8],
        keeps: bool,
        wish: &mut LoginWish<'_>,
    ) -> Result<bool, Fault> {
        if let Some(position) = self.shared.tracked.position(name) {
            wish.params = wish.params.with(position, value);
            return Ok(true);
        }
        if let Some(setting) = ShardSetting::named(&name.to_ascii_lowercase())
            && let Some(map) = self.map_of(wish.database)
        {
            let hint = hint_of(setting, value);
            hint.shard(&map)
                .map_err(|error| Fault::Shard(error.message))?;
            wish.shard = Some(hint);
            return Ok(true);
        }
        // On the console a setting has no effect at login, as later.
        if self.ignores(name) || console::is_console(wish.database) {
            return Ok(true);
        }
        let room = keeps && wish.settings.len() < limits::SETTINGS;
        let Some(name) = at_login(name).filter(|_| room) else {
            return Ok(false);
        };
        if *name == *SESSION_ATTRS {
            let route = route_of(value).ok_or_else(|| Fault::SessionAttrs(shown(value)))?;
            // A route by its own name goes before. Without a route, the client has the usual one.
            if route != b"auto" && wish.settings.get(ROUTE).is_none() {
                wish.settings.put(ROUTE, Some(route));
            }
        } else {
            wish.settings.set(&name, value);
        }
        Ok(true)
    }

    /// True if Howdah sets the client's settings on each of its servers.
    fn keeps_settings(&self, wish: &LoginWish<'_>) -> bool {
        if wish.replication.any() || console::is_console(wish.database) {
            return false;
        }
        let config = &self.config;
        let Some(entry) = config.entry(self.front(wish.database)) else {
            return false;
        };
        let user = entry.pooled_as(wish.user);
        config.scopes(Some(entry), Some(user)).session_state() == SessionState::Keep
    }

    /// Drivers set `extra_float_digits` above 0 at every login. Since PostgreSQL 12, this has the
    /// effect of the default.
    fn ignores(&self, name: &[u8]) -> bool {
        let listed = &self.config.globals.ignore_startup_parameters;
        name.eq_ignore_ascii_case(b"extra_float_digits")
            || listed
                .iter()
                .any(|n| n.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Reads the settings in `options`: `-c k=v`, `-ck=v` or `--k=v`. A backslash escapes the next
    /// byte, and a hyphen in a name means an underscore.
    fn options(&self, value: &[u8], keeps: bool, wish: &mut LoginWish<'_>) -> Result<(), Fault> {
        let keeps = keeps && !self.ignores(b"options");
        let words = split_options(value);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let setting = match word.as_slice() {
                b"-c" => words.next().ok_or(Fault::OptionsForm)?.as_slice(),
                [b'-', b'c', setting @ ..] | [b'-', b'-', setting @ ..] => setting,
                _ => return Err(Fault::OptionsForm),
            };
            let equals = setting
                .iter()
                .position(|b| *b == b'=')
                .ok_or(Fault::OptionsForm)?;
            let (name, value) = (&setting[..equals], &setting[equals + 1..]);
            let name = &name
                .iter()
                .map(|&b| if b == b'-' { b'_' } else { b })
                .collect::<Vec<_>>();
            if !self.take(name, value, keeps, wish)? && !self.ignores(b"options") {
                return Err(Fault::OptionsSetting(shown(name)));
            }
        }
        Ok(())
    }

    fn add_host(&self, id: ClientId, params: &mut Params) {
        let client = self.clients.at(id);
        let Some(position) = self.shared.tracked.position(b"application_name") else {
            return;
        };
        let name = String::from_utf8_lossy(params.get(position).unwrap_or(b"app")).into_owned();
        let name = format!("{name} - {}", crate::place::remote(&client.ends));
        *params = params.with(position, name.as_bytes());
    }
}

/// The beginning of bytes from an unknown client, for the log.
fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 128;
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).into_owned()
}

/// The value of the start-up parameter `replication`, in any spelling of a boolean.
fn replication(value: &[u8]) -> Result<Replication, Fault> {
    let text = String::from_utf8_lossy(value).to_ascii_lowercase();
    match text.as_str() {
        "database" => Ok(Replication::Logical),
        "1" | "true" | "on" | "yes" | "t" | "y" => Ok(Replication::Physical),
        "0" | "false" | "off" | "no" | "f" | "n" => Ok(Replication::None),
        _ => Err(Fault::ReplicationValue(shown(value))),
    }
}

/// Splits at blanks. A backslash escapes the next byte.
fn split_options(value: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word = None::<Vec<u8>>;
    let mut bytes = value.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b' ' | b'\t'..=b'\r' => words.extend(word.take()),
            b'\\' => word.get_or_insert_default().extend(bytes.next()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_words() {
        let words = split_options(b" -c a=b\\ c  --d=\\\\e ");
        assert_eq!(
            words,
            [b"-c".to_vec(), b"a=b c".to_vec(), b"--d=\\e".to_vec()]
        );
        assert!(split_options(b"  ").is_empty());
    }
}
