//! Our login to PostgreSQL.

use howdah_wire::backend::{Fields, key_data, parameter_status};
use howdah_wire::frame::{HEADER, header};
use howdah_wire::tag::backend as tag;
use howdah_wire::write;

use super::State;
use crate::client::Replication;
use crate::event::{Close, Out, Peer, ServerId};
use crate::note::Level;
use crate::params::Params;
use crate::pool::Welcome;
use crate::pooler::Pooler;

/// The longest message accepted from PostgreSQL before its login is done, in bytes.
const MESSAGE_MAX: usize = 1 << 20;

/// Keys of a client's SCRAM login, with which we can log in as that user ourselves.
#[derive(Debug)]
pub struct PassThrough {
    /// ClientKey.
    pub client_key: [u8; 32],
    /// ServerKey.
    pub server_key: [u8; 32],
}

/// A login under way.
#[derive(Debug, Default)]
pub struct Login {
    /// Every ParameterStatus so far.
    parameters: Vec<(Box<[u8]>, Box<[u8]>)>,
}

impl Pooler {
    /// The socket is open: our start-up packet goes out.
    pub(crate) fn begin_server_login(&mut self, id: ServerId, out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else { return };
        server.state = State::Login(Box::default());
        server.params = std::sync::Arc::new(Params::unknown(&self.shared.tracked));
        let pool = self.pools.at(server.pool);
        let database = &pool.terms.database;
        let mut parameters: Vec<(&str, &[u8])> =
            vec![("user", pool.key.user.as_bytes()), ("database", database.target().as_bytes())];
        let of_database = [
            ("client_encoding", &database.client_encoding),
            ("datestyle", &database.datestyle),
            ("timezone", &database.timezone),
            ("application_name", &database.application_name),
        ];
        for (name, value) in of_database {
            if let Some(value) = value {
                parameters.push((name, value.as_bytes()));
            }
        }
        let client = server.reserved.and_then(|client| self.clients.get(client));
        if let Some(client) = client {
            let how: &[u8] = match client.replication {
                Replication::Physical => b"true",
                _ => b"database",
            };
            parameters.push(("replication", how));
            if let Some(params) = &client.params {
                for (position, name) in self.shared.tracked.names().iter().enumerate() {
                    if let Some(value) = params.get(position) {
                        parameters.push((name, value));
                    }
                }
            }
        }
        out.send_with(Peer::Server(id), |buf| write::startup(buf, 0, parameters));
        self.note_connection(id, out);
    }

    fn note_connection(&mut self, id: ServerId, out: &mut Out) {
        if !self.config.globals.log_connections {
            return;
        }
        let Some(ends) = self.servers.get(id).and_then(|server| server.ends.as_ref()) else {
            return;
        };
        let from = match &ends.local {
            crate::event::Address::Tcp(ip, port) if ip.is_ipv6() => format!("[{ip}]:{port}"),
            crate::event::Address::Tcp(ip, port) => format!("{ip}:{port}"),
            crate::event::Address::Unix(..) => "unix".to_string(),
        };
        let text = format!("new connection to server (from {from})");
        self.note_server(Level::Log, id, &text, out);
    }

    /// Bytes of a server that we log in to.
    pub(crate) fn server_login_bytes(&mut self, id: ServerId, bytes: &[u8], out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else { return };
        server.inbox.held.extend_from_slice(bytes);
        while let Some(server) = self.servers.get_mut(id) {
            if !matches!(server.state, State::Login(_)) {
                // What came behind the login's end is handled as everything later.
                let rest = std::mem::take(&mut server.inbox.held);
                if !rest.is_empty() {
                    self.server_sent(id, &rest, out);
                }
                return;
            }
            let held = &server.inbox.held;
            let header = match header(held) {
                None => return,
                Some(Ok(header)) if header.total() <= MESSAGE_MAX => header,
                Some(_) => return self.not_postgres(id, out),
            };
            if held.len() < header.total() {
                return;
            }
            let body: Vec<u8> = held[HEADER..header.total()].to_vec();
            server.inbox.held.drain(..header.total());
            self.login_message(id, header.tag, &body, out);
        }
    }

    fn not_postgres(&mut self, id: ServerId, out: &mut Out) {
        self.login_failed(id, "08P01", "bad pkt header", out);
        self.close_server(id, "bad pkt header", Close::Abort, out);
    }

    fn login_message(&mut self, id: ServerId, message: u8, body: &[u8], out: &mut Out) {
        match message {
            tag::AUTHENTICATION => self.challenge(id, body, out),
            tag::PARAMETER_STATUS => match parameter_status(body) {
                Ok((name, value)) => self.learn(id, name, value),
                Err(_) => self.not_postgres(id, out),
            },
            tag::BACKEND_KEY_DATA => match (key_data(body), self.servers.get_mut(id)) {
                (Ok((pid, secret)), Some(server)) => server.key = Some((pid, secret.into())),
                _ => self.not_postgres(id, out),
            },
            tag::ERROR => self.refused(id, body, out),
            tag::NOTICE | tag::NEGOTIATE => {}
            tag::READY => self.logged_in_to_server(id, out),
            _ => self.not_postgres(id, out),
        }
    }

    fn challenge(&mut self, id: ServerId, body: &[u8], out: &mut Out) {
        if body != [0; 4] {
            self.login_failed(id, "08P01", "authentication is not built yet", out);
            self.close_server(id, "login failed", Close::Abort, out);
        }
    }

    /// The control thread has derived a key for our login.
    pub(crate) fn server_derived(&mut self, _id: ServerId, _key: [u8; 32], _out: &mut Out) {}

    fn learn(&mut self, id: ServerId, name: &[u8], value: &[u8]) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if let Some(position) = self.shared.tracked.position(name) {
            let params = server.params.with(position, value);
            server.params = self.shared.params.intern(params);
        }
        if let State::Login(login) = &mut server.state {
            login.parameters.push((name.into(), value.into()));
        }
    }

    /// PostgreSQL refuses us; its words go to the log and to who waits.
    fn refused(&mut self, id: ServerId, body: &[u8], out: &mut Out) {
        let fields = Fields::new(body);
        let text = String::from_utf8_lossy(fields.message()).into_owned();
        let severity = String::from_utf8_lossy(fields.severity()).into_owned();
        let sqlstate =
            fields.sqlstate().map_or_else(|| "08P01".into(), |s| String::from_utf8_lossy(s).into());
        let sqlstate: String = sqlstate;
        let line = format!("server login failed: {severity} {text}");
        self.note_server(Level::Warning, id, &line, out);
        self.login_failed(id, &sqlstate, &text, out);
        self.close_server(id, "login failed", Close::Abort, out);
    }

    fn logged_in_to_server(&mut self, id: ServerId, out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let State::Login(login) = &mut server.state else { return };
        let parameters = std::mem::take(&mut login.parameters);
        let tracked = server.params.clone();
        let pool = self.pools.at_mut(server.pool);
        pool.welcome = Some(Welcome { parameters: parameters.into(), tracked });
        let query = pool.terms.database.connect_query.clone();
        match query.filter(|query| !query.is_empty()) {
            Some(query) => self.run_task(id, State::ConnectQuery, query.as_bytes(), out),
            None => self.server_ready(id, out),
        }
    }
}
