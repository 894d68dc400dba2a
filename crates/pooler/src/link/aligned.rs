//! PostgreSQL has answered what Howdah ran on a server for its client: it has the client's
//! settings or refuses them, or says what the session has left.

use howdah_wire::backend::Status;
use howdah_wire::write;

use crate::event::{ClientId, Close, Out, Peer, ServerId};
use crate::fault::Fault;
use crate::next::Next;
use crate::note::Level;
use crate::pooler::Pooler;
use crate::server::Ending;
use crate::session::server::Trial;
use crate::{link, standby};

impl Pooler {
    /// The server has the client's parameters. The client takes over PostgreSQL's spelling of them,
    /// and its messages go.
    pub(crate) fn aligned(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let client_id = gone!(server.aligns());
        let client = self.clients.at_mut(client_id);
        super::bind((client_id, client), (id, server));
        server
            .session
            .set_settings(client.session.as_ref().and_then(|s| s.settings.clone()));
        server.session.set_soiled(client.is_pinned());
        standby::tell(client_id, client, server, out);
        if let Some(wanted) = &client.params {
            let canonical = wanted.overlaid(&server.session.params);
            client.set_params(self.shared.params.intern(canonical));
        }
        self.resume(client_id, out);
        // A cancel request may have dropped all messages of the client.
        self.settle_client(client_id, out);
        self.tell_if_idle(client_id, out);
    }

    /// PostgreSQL has refused settings that went along with their client's first messages, and has
    /// skipped the messages.
    pub(super) fn settings_refused(
        &mut self,
        id: ServerId,
        sqlstate: String,
        error: String,
        out: &mut Out,
    ) {
        let text = format!("invalid server parameter: {error}");
        self.note_server(Level::Warning, id, &text, out);
        self.drop_linked(id, Fault::ServerParameter(sqlstate, error), out);
        self.close_server(id, Ending::SettingsRefused.text(), Close::Await, out);
    }

    /// A cancel request has hit settings that went along with their client's first messages, and
    /// PostgreSQL has skipped the messages. The client got the error, as if its own request had
    /// been cancelled.
    pub(super) fn settings_cancelled(&mut self, id: ServerId, request: bool, out: &mut Out) {
        let client = gone!(self.servers.at(id).linked_client());
        if request {
            out.send_with(Peer::Client(client), |buf| write::ready(buf, Status::Idle));
        }
        self.unlink(client, id, out);
        self.close_server(id, Ending::SettingsRefused.text(), Close::Await, out);
        if self.clients.at(client).is_leaving() {
            return self.leave_when_answered(client, out);
        }
        self.next.note(Next::Resume(client));
    }

    /// Sends the next try.
    pub(crate) fn try_again(&mut self, client: ClientId, id: ServerId, out: &mut Out) {
        let (client, server) = (self.clients.at(client), self.servers.at_mut(id));
        if server.session.trial() == Trial::Refused {
            server.session.set_trial(Trial::Cleans);
            // Another client's timeout must not end the cleaning.
            for query in [&b"SET statement_timeout=0"[..], b"DISCARD ALL"] {
                server.runs_for_us(id, query, out);
            }
            return self.connect_again(id, out);
        }
        server.session.set_trial(match server.session.trial() {
            Trial::Denied => Trial::Last,
            _ => Trial::Clean,
        });
        if Self::align(&self.shared, client, (id, server), false, None, out) {
            self.aligned(id, out);
        }
    }

    /// PostgreSQL has answered the inquiry.
    pub(crate) fn inquired(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        if let Some(sql) = server.session.ask_once_more() {
            return server.runs_for_us(id, &sql, out);
        }
        let (Some(client_id), Some(inquiry)) = (server.aligns(), server.session.take_inquiry())
        else {
            return;
        };
        let client = self.clients.at_mut(client_id);
        link::bind((client_id, client), (id, server));
        self.learn_session(client_id, id, inquiry.answer(), out);
        self.settle(id, out);
        self.resume(client_id, out);
        // Passes on notifications that came while PostgreSQL answered the inquiry.
        self.tell_if_idle(client_id, out);
    }
}
