//! Carriers: connections that take a CancelRequest to PostgreSQL. A carrier counts as a server
//! until PostgreSQL has closed the connection.

use howdah_wire::write;

use crate::cancel::answer_done;
use crate::cancel::errand::Errand;
use crate::event::{Action, Close, Ends, Out, Peer, ServerId, Unreached};
use crate::note::Level;
use crate::pooler::Pooler;
use crate::server::secure::SslAnswer;
use crate::server::{Ending, Server, ServerState};
use crate::tls::TlsStart;

/// How long a carrier may take, in nanoseconds.
pub(crate) const CARRIER_NS: u64 = 15_000_000_000;

impl Pooler {
    pub(crate) fn carrier_connected(
        &mut self,
        id: ServerId,
        result: Result<Ends, Unreached>,
        out: &mut Out,
    ) {
        let server = self.servers.at_mut(id);
        let ends = match result {
            Ok(ends) => ends,
            Err(error) => {
                // The carrier has signalled nothing.
                return self.carrier_failed(id, &error.text, out);
            }
        };
        server.connection.set_ends(ends);
        let target = self.errand(id).map(|errand| errand.target);
        let target = target.and_then(|target| self.servers.get(target));
        if let Some(why) = target.and_then(|target| self.stranger(id, target)) {
            return self.carrier_failed(id, &why, out);
        }
        let secured = target.is_some_and(Server::is_tls);
        match self.tls_to(id).filter(|_| secured) {
            None => self.carrier_ready(id, out),
            Some(tls) if tls.direct => {
                let start = Box::new(TlsStart::Connect(tls));
                out.push(Action::StartTls(Peer::Server(id), start));
            }
            Some(_) => {
                if let Some(errand) = self.errand(id) {
                    errand.asked = true;
                }
                out.send_with(Peer::Server(id), write::ssl_request);
            }
        }
    }

    /// `requirepeer` has accepted the system user that ran the server behind a unix socket. The
    /// server's cancel key may go to no process of another user. Returns an error if the carrier
    /// leads to one.
    fn stranger(&self, id: ServerId, target: &Server) -> Option<String> {
        let uid = |server: &Server| Some(server.connection.ends.as_ref()?.unix_peer?.uid);
        let database = &self.logins.at(target.login).terms.database;
        self.config.scopes(Some(database), None).peer_user()?;
        let (now, then) = (uid(self.servers.get(id)?), uid(target));
        (now != then).then(|| "requirepeer: another user runs the server now".to_string())
    }

    fn errand(&mut self, id: ServerId) -> Option<&mut Errand> {
        self.servers.get_mut(id)?.errand_mut()
    }

    /// Bytes from PostgreSQL on a carrier: its answer to an SSLRequest. Other bytes do not matter.
    pub(crate) fn carrier_bytes(&mut self, id: ServerId, bytes: &[u8], out: &mut Out) {
        let asked = self.errand(id).map(|errand| &mut errand.asked);
        if bytes.is_empty() || !asked.is_some_and(std::mem::take) {
            return;
        }
        match (self.ssl_answer(id, bytes), self.tls_to(id)) {
            (SslAnswer::No, _) => self.carrier_ready(id, out),
            (SslAnswer::Yes, Some(tls)) => {
                let start = Box::new(TlsStart::Connect(tls));
                out.push(Action::StartTls(Peer::Server(id), start));
            }
            (SslAnswer::Yes, None) => self.carrier_failed(id, "TLS was switched off", out),
            (SslAnswer::Fails(why), _) => self.carrier_failed(id, why, out),
        }
    }

    /// A carrier can't deliver its request.
    pub(crate) fn carrier_failed(&mut self, id: ServerId, why: &str, out: &mut Out) {
        let text = format!("cancel request failed: {why}");
        self.note_server(Level::Warning, id, &text, out);
        self.end_errand(id, true, out);
    }

    /// A carrier is ready to send its request.
    pub(crate) fn carrier_ready(&mut self, id: ServerId, out: &mut Out) {
        let Some(errand) = self.errand(id) else {
            return;
        };
        errand.sent = true;
        let target = errand.target;
        let key = self
            .servers
            .get(target)
            .and_then(|server| server.cancels.key.clone());
        match key {
            Some((pid, secret)) => {
                out.send_with(Peer::Server(id), |buf| {
                    write::cancel_request(buf, pid, &secret)
                });
            }
            None => self.end_errand(id, true, out),
        }
    }

    /// A carrier's stream has ended. A clean end means that PostgreSQL has carried the request out.
    pub(crate) fn carrier_lost(&mut self, id: ServerId, why: Option<String>, out: &mut Out) {
        // A request that was not sent has signalled nothing.
        let sent = self.errand(id).is_some_and(|errand| errand.sent);
        self.end_errand(id, !sent || why.is_none(), out);
    }

    /// A carrier takes too long.
    pub(crate) fn carrier_timeout(&mut self, id: ServerId, out: &mut Out) {
        self.note_server(Level::Warning, id, "cancel request took too long", out);
        self.end_errand(id, false, out);
    }

    fn end_errand(&mut self, id: ServerId, clean: bool, out: &mut Out) {
        let server = gone!(self.servers.get_mut(id));
        let errand = gone!(server.errand_mut());
        let askers = std::mem::take(&mut errand.askers);
        let target = errand.target;
        server.closes();
        out.push(Action::Close {
            peer: Peer::Server(id),
            how: Close::Abort,
        });
        for asker in askers {
            answer_done(asker, out);
        }
        let server = gone!(self.servers.get_mut(target));
        server.cancels.end();
        if !clean {
            server.ensure_close_at_release(Ending::CancelFailed);
        }
        if server.cancels.are_under_way() {
            return;
        }
        if matches!(server.state(), ServerState::BeingCancelled) {
            self.checkin(target, out);
        }
    }

    /// The driver has ended a carrier.
    pub(crate) fn carrier_closed(&mut self, id: ServerId, out: &mut Out) {
        self.end_errand(id, false, out);
        self.server_gone(id, out);
    }
}
