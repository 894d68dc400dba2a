//! The first steps on an open socket to PostgreSQL, up to the first message of the login or of a cancel
//! request: TLS or not, and which user runs a server behind a unix socket.

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
    /// `N`: and the connection may go on in clear text.
    No,
    /// Why it can't go on.
    Fails(&'static str),
}

impl Pooler {
    /// The handshake that a connection to a server needs; `None` where there is no TLS.
    pub(crate) fn tls_to(&self, id: ServerId) -> Option<TlsConnect> {
        let server = self.servers.get(id)?;
        let Address::Tcp(ip, _) = server.ends.as_ref()?.remote else {
            return None;
        };
        let database = &self.pools.at(server.pool).terms.database;
        let mode = database.sslmode.unwrap_or(self.config.tls.servers);
        (mode != SslMode::Disable).then(|| TlsConnect {
            mode,
            host: server
                .host
                .as_deref()
                .map_or_else(|| ip.to_string(), str::to_string),
            direct: database.sslnegotiation.is_direct(),
        })
    }

    /// The socket of a server is open: TLS begins, or the login. With `requirepeer` the system is asked
    /// first who runs the server.
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

    /// The system's user who runs a server behind a unix socket, where it matters who that is.
    fn unknown_peer(&self, id: ServerId) -> Option<u32> {
        let server = self.servers.get(id)?;
        let peer = server.ends.as_ref()?.unix_peer?;
        let database = &self.pools.at(server.pool).terms.database;
        self.config.require_peer(database).map(|_| peer.uid)
    }

    /// The control thread has named the system's user who runs a server.
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
        let database = &self.pools.at(server.pool).terms.database;
        // A reload may have taken the demand away.
        let required = self.config.require_peer(database);
        let detail = match (&name, required) {
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
                // Not 08006: waiting does not change who runs it.
                self.login_failed(id, "08001", &detail, out);
                self.close_server(id, "requirepeer", Close::Abort, out);
            }
        }
    }

    /// PostgreSQL's answer to an SSLRequest, and what follows from it for this connection.
    pub(crate) fn ssl_answer(&self, id: ServerId, bytes: &[u8]) -> SslAnswer {
        let required = self.tls_to(id).is_some_and(|tls| tls.mode.is_required());
        match bytes {
            b"S" => SslAnswer::Yes,
            b"N" if required => SslAnswer::Fails("server refused SSL"),
            b"N" => SslAnswer::No,
            // Whoever put them there, they were not encrypted.
            [b'S' | b'N', ..] => SslAnswer::Fails("received unencrypted data after SSL response"),
            [b'E', ..] => SslAnswer::Fails("server answered the SSL request with an error"),
            _ => SslAnswer::Fails("server gave no answer to the SSL request"),
        }
    }

    /// Bytes of a server before its login.
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

    /// A handshake with a server ended.
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
                    // Nobody is told, and no time is lost: whoever waits has another server opened.
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
        server.set_secured(facts);
        match *server.state() {
            ServerState::Cancel(_) => self.carrier_ready(id, out),
            ServerState::Securing(_) => self.begin_server_login(id, out),
            _ => {}
        }
    }

    fn not_secured(&mut self, id: ServerId, why: &str, detail: &str, out: &mut Out) {
        self.note_server(Level::Warning, id, detail, out);
        self.login_failed(id, "08006", detail, out);
        // The alert that tells PostgreSQL why is still sent.
        self.close_server(id, why, Close::Flush, out);
    }
}
