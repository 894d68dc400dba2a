//! The first steps on an open socket to PostgreSQL, before the login or a cancel request: TLS or
//! not, and which operating-system user runs the server behind a unix socket.

use howdah_wire::write;

use crate::config::SslMode;
use crate::event::{Action, Address, Close, Out, Peer, Question, ServerId};
use crate::note::Level;
use crate::pooler::{Asker, Pooler};
use crate::server::state::{Securing, ServerState};
use crate::tls::{AGAIN, TlsConnect, TlsFacts, TlsStart};

/// PostgreSQL's answer to an SSLRequest.
pub(crate) enum SslAnswer {
    /// `S`: the handshake may begin.
    Yes,
    /// `N`: the connection may go on in clear text.
    No,
    /// The reason to give up.
    Fails(&'static str),
}

impl Pooler {
    /// The TLS handshake that a connection to a server needs. `None` for a connection without TLS.
    pub(crate) fn tls_to(&self, id: ServerId) -> Option<TlsConnect> {
        let server = self.servers.get(id)?;
        let Address::Tcp(ip, _) = *server.connection.remote()? else {
            return None;
        };
        let database = &self.logins.at(server.login).terms.database;
        let mode = database.sslmode.unwrap_or(self.config.tls.servers);
        (mode != SslMode::Disable).then(|| TlsConnect {
            mode,
            host: server
                .connection
                .host
                .as_deref()
                .map_or_else(|| ip.to_string(), str::to_string),
            direct: database.sslnegotiation.is_direct(),
            files: database.tls_files(),
        })
    }

    /// The socket of a server is open. Begins TLS or the login. With `requirepeer`, Howdah first
    /// asks which operating-system user runs the server.
    pub(crate) fn secure(&mut self, id: ServerId, out: &mut Out) {
        if let Some(uid) = self.unknown_peer(id) {
            self.servers.at_mut(id).secures(Securing::Peer);
            let question = |ticket| Question::NameUser { ticket, uid };
            return self.ask(Asker::Server(id), question, out);
        }
        let Some(tls) = self.tls_to(id) else {
            return self.begin_server_login(id, out);
        };
        let server = self.servers.at_mut(id);
        if tls.direct {
            server.secures(Securing::Handshake);
            let start = Box::new(TlsStart::Connect(tls));
            return out.push(Action::StartTls(Peer::Server(id), start));
        }
        server.secures(Securing::Asked);
        out.send_with(Peer::Server(id), write::ssl_request);
    }

    /// The operating-system user that runs a server behind a unix socket, if `requirepeer` is set.
    fn unknown_peer(&self, id: ServerId) -> Option<u32> {
        let server = self.servers.get(id)?;
        let peer = server.connection.ends.as_ref()?.unix_peer?;
        let database = &self.logins.at(server.login).terms.database;
        let scopes = self.config.scopes(Some(database), None);
        scopes.peer_user().map(|_| peer.uid)
    }

    /// The control thread has found the name of the operating-system user that runs a server.
    pub(crate) fn server_peer_named(
        &mut self,
        id: ServerId,
        name: Result<String, String>,
        out: &mut Out,
    ) {
        let server = gone!(self.servers.get(id));
        if !matches!(server.state(), ServerState::Securing(Securing::Peer)) {
            return;
        }
        let database = &self.logins.at(server.login).terms.database;
        // A reload may have removed `requirepeer`.
        let required = self.config.scopes(Some(database), None).peer_user();
        let detail = match (&name, &required) {
            (_, None) => None,
            (Ok(name), Some(required)) if name == required => None,
            (Ok(name), Some(required)) => Some(format!(
                "requirepeer specifies \"{required}\", but actual peer user name is \"{name}\""
            )),
            (Err(why), Some(_)) => Some(format!("requirepeer: {why}")),
        };
        match detail {
            None => self.begin_server_login(id, out),
            Some(detail) => {
                self.note_server(Level::Warning, id, &detail, out);
                // Not 08006: another try would find the same user.
                self.login_failed(id, "08001", &detail, out);
                self.close_server(id, "requirepeer", Close::Abort, out);
            }
        }
    }

    /// Interprets PostgreSQL's answer to an SSLRequest.
    pub(crate) fn ssl_answer(&self, id: ServerId, bytes: &[u8]) -> SslAnswer {
        let required = self.tls_to(id).is_some_and(|tls| tls.mode.is_required());
        match bytes {
            b"S" => SslAnswer::Yes,
            b"N" if required => SslAnswer::Fails("server refused SSL"),
            b"N" => SslAnswer::No,
            // The extra bytes were not encrypted. An attacker may have added them.
            [b'S' | b'N', ..] => SslAnswer::Fails("received unencrypted data after SSL response"),
            [b'E', ..] => SslAnswer::Fails("server answered the SSL request with an error"),
            _ => SslAnswer::Fails("server gave no answer to the SSL request"),
        }
    }

    /// Handles bytes of a server before its login.
    pub(crate) fn securing_bytes(&mut self, id: ServerId, bytes: &[u8], out: &mut Out) {
        let asked = self
            .servers
            .get(id)
            .is_some_and(|server| matches!(server.state(), ServerState::Securing(Securing::Asked)));
        if !asked || bytes.is_empty() {
            return;
        }
        match self.ssl_answer(id, bytes) {
            SslAnswer::No => self.begin_server_login(id, out),
            SslAnswer::Fails(why) => self.not_secured(id, why, why, out),
            SslAnswer::Yes => {
                let Some(tls) = self.tls_to(id) else {
                    return self.not_secured(id, "server refused SSL", "TLS was switched off", out);
                };
                self.servers.at_mut(id).secures(Securing::Handshake);
                let start = Box::new(TlsStart::Connect(tls));
                out.push(Action::StartTls(Peer::Server(id), start));
            }
        }
    }

    /// A TLS handshake with a server has ended.
    pub(crate) fn server_tls_done(
        &mut self,
        id: ServerId,
        result: Result<Box<TlsFacts>, String>,
        out: &mut Out,
    ) {
        let server = gone!(self.servers.get_mut(id));
        self.handshakes[1].count(&result);
        let facts = match result {
            Ok(facts) => facts,
            Err(why) => {
                let text = format!("TLS handshake failed: {why}");
                return match *server.state() {
                    ServerState::Cancel(_) => self.carrier_failed(id, &text, out),
                    // No client gets an error and no time is lost: waiting clients make Howdah open
                    // another server.
                    ServerState::Securing(_) if why == AGAIN => {
                        self.note_server(Level::Warning, id, &text, out);
                        self.close_server(id, "TLS 1.2 is tried", Close::Flush, out);
                    }
                    ServerState::Securing(_) => {
                        self.not_secured(id, "TLS startup failed", &text, out)
                    }
                    _ => {}
                };
            }
        };
        let established = format!("SSL established: {}", facts.summary());
        server.connection.set_tls(facts);
        let level = if self.config.globals.log_connections {
            Level::Log
        } else {
            Level::Noise
        };
        self.note_server(level, id, &established, out);
        let server = gone!(self.servers.get(id));
        match *server.state() {
            ServerState::Cancel(_) => self.carrier_ready(id, out),
            ServerState::Securing(_) => self.begin_server_login(id, out),
            _ => {}
        }
    }

    fn not_secured(&mut self, id: ServerId, why: &str, detail: &str, out: &mut Out) {
        self.note_server(Level::Warning, id, detail, out);
        self.login_failed(id, "08006", detail, out);
        // Flushing sends the TLS alert, which tells PostgreSQL the reason.
        self.close_server(id, why, Close::Flush, out);
    }
}
