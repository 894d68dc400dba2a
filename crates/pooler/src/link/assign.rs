//! Assigns a server to a client: the server gets the client's parameters, then the client's
//! messages.

use howdah_wire::tag::frontend;
use howdah_wire::write;

use crate::client::ClientState;
use crate::config::PoolMode;
use crate::event::{ClientId, Out, Peer, ServerId};
use crate::ledger::{Entry, Reply};
use crate::login::key::Parameter;
use crate::note::Level;
use crate::pool::checkout::has_settings;
use crate::pooler::Pooler;
use crate::session::server::Trial;
use crate::session::settings::{Settings, change, give, go_along, same, take_back};
use crate::{client, server, standby};

const INSUFFICIENT_PRIVILEGE: &str = "42501";

impl Pooler {
    /// Links a client with a server at rest. True if the client's messages may go at once. False if
    /// the server's parameters must be set first; Howdah holds the messages until then.
    pub(crate) fn link(&mut self, client_id: ClientId, server_id: ServerId, out: &mut Out) -> bool {
        let now = self.now;
        let client = self.clients.at_mut(client_id);
        let server = self.servers.at_mut(server_id);
        let login = self.logins.at_mut(server.login);
        let wait = match client.state() {
            ClientState::Waiting(_) => now.0.saturating_sub(client.times.request.0),
            _ => 0,
        };
        server.link.begins(wait);
        if matches!(client.state(), ClientState::Waiting(_)) {
            login.count_wait(wait);
        }
        login.count_assignment();
        client.set_notified(false);
        server.begin_to_serve(now);
        server.session.note_user(client.listens());
        standby::tell(client_id, client, server, out);
        let (watched, routes) = (login.terms.watched, login.terms.reads.is_some());
        let max = self.config.globals.max_prepared_statements as usize;
        let asked_for = login.asks_numbers(now);
        let again = client.used_last(server.number);
        let forgets = server.session.give_numbers(client.number, again, asked_for);
        client.set_last_server(server.number);
        let ready = !forgets && has_settings(client, server) || {
            let reported = login.welcome.as_ref().map(|welcome| &*welcome.parameters);
            let goes = login.terms.mode != PoolMode::Session
                && !forgets
                && client.needs_no_answer()
                // Else the first answers would be those to the settings.
                && !client.is_to_be_guarded()
                && !client.begins_late();
            let along = reported.filter(|_| goes);
            Self::align(
                &self.shared,
                client,
                (server_id, server),
                forgets,
                along,
                out,
            )
        };
        // Before the first message passes, a client of a sharded database may still leave.
        let evict = ready && client.sharded.is_none() && server.statements.outgrows(max);
        if ready {
            super::bind((client_id, client), (server_id, server))
        } else {
            crate::link::bind::bind_held((client_id, client), (server_id, server))
        }
        if server.valve.is_congested() {
            client.valve.pause(Peer::Client(client_id), out);
        }
        if client.valve.is_congested() {
            server.valve.pause(Peer::Server(server_id), out);
        }
        if evict {
            evict_statements(server_id, server, max, out);
        }
        if watched {
            self.watch_link(client_id);
        }
        if !ready {
            self.note_apply(server_id, out);
        }
        if routes {
            self.read_begins(client_id, server_id, out);
        }
        ready
    }

    /// A client that keeps its server has reset a setting to its value at login, and the server has
    /// another value. Howdah sets the value before the client's next message.
    pub(crate) fn align_pinned(&mut self, client: ClientId, id: ServerId, out: &mut Out) {
        let (of, server) = (self.clients.at_mut(client), self.servers.at_mut(id));
        // The server is not cleaned for this: the client's temporary tables and other state must
        // stay.
        server.session.set_trial(Trial::Clean);
        if !Self::align(&self.shared, of, (id, server), false, None, out) {
            crate::link::bind::bind_held((client, of), (id, server));
        }
    }

    /// Sends commands that give the server the client's parameters. True if the client's messages
    /// may follow at once, because nothing had to be sent, or because the settings go `along` with
    /// the messages. `along` holds the parameters that PostgreSQL reports; those can't go along,
    /// because the client must not see the reports.
    pub(super) fn align(
        shared: &crate::Shared,
        client: &client::Client,
        (server_id, server): (ServerId, &mut server::Server),
        forgets: bool,
        along: Option<&[Parameter]>,
        out: &mut Out,
    ) -> bool {
        let Some(wanted) = &client.params else {
            return true;
        };
        let own = client.session.as_ref().and_then(|s| s.settings.clone());
        let same = same(&own, &server.session.settings);
        if let Some(reported) = along
            && !same
            && wanted.missing_on(&server.session.params).next().is_none()
            && go_along(&server.session.settings, &own, reported)
        {
            let statement = change(&server.session.settings, &own);
            server.sets_along(server_id, &statement, own, out);
            return true;
        }
        let mut sql = Vec::new();
        if forgets {
            sql.extend_from_slice(b"DISCARD SEQUENCES;");
        }
        if !same {
            take_back(&mut sql, &server.session.settings, &own);
        }
        let missing = wanted.missing_on(&server.session.params);
        sql.extend(crate::params::set_statement(
            &shared.tracked,
            wanted,
            missing,
        ));
        if !same {
            let denied = server.session.trial() == Trial::Last;
            give(&mut sql, &server.session.settings, &own, denied);
            // The server counts as soiled until PostgreSQL has accepted the settings.
            server.session.set_soiled(true);
        }
        if sql.is_empty() {
            return true;
        }
        server.runs_for_us(server_id, &sql, out);
        false
    }

    /// PostgreSQL has refused a client's settings. True if another try may succeed: removing
    /// others' settings may need other rights or a longer `statement_timeout`, and the client's own
    /// settings may need the rights of its role.
    pub(crate) fn tries_again(&mut self, client: ClientId, id: ServerId, sqlstate: &str) -> bool {
        let (client, server) = (self.clients.at(client), self.servers.at_mut(id));
        let own = client.session.as_ref().and_then(|s| s.settings.as_deref());
        let next = match server.session.trial() {
            Trial::First if server.session.settings.is_some() => Trial::Refused,
            Trial::First | Trial::Clean
                if sqlstate == INSUFFICIENT_PRIVILEGE
                    && own.is_some_and(Settings::has_identity_and_more) =>
            {
                Trial::Denied
            }
            _ => return false,
        };
        server.session.set_trial(next);
        true
    }

    fn note_apply(&mut self, id: ServerId, out: &mut Out) {
        if self.noisy(Level::Debug) {
            let server = self.servers.at(id);
            let client = server
                .linked_client()
                .and_then(|client| self.clients.get(client));
            let Some(wanted) = client.and_then(|client| client.params.as_ref()) else {
                return;
            };
            let missing = wanted.missing_on(&server.session.params);
            let sql = crate::params::set_statement(&self.shared.tracked, wanted, missing);
            let text = format!("varcache_apply: {}", String::from_utf8_lossy(&sql));
            self.note_server(Level::Debug, id, &text, out);
        }
    }
}

/// Closes the surplus statements of a server, the longest unused first. PostgreSQL's answers
/// precede those to the client's own messages.
pub(super) fn evict_statements(
    id: ServerId,
    server: &mut server::Server,
    max: usize,
    out: &mut Out,
) {
    for key in server.statements.surplus(max) {
        server.statements.remove(key);
        let name = crate::statement::server_name(key);
        out.send_with(Peer::Server(id), |buf| {
            write::of_statement(buf, frontend::CLOSE, &name);
        });
        let not_failed = server.not_failed();
        server
            .link
            .ledger
            .push(Entry::swallow(Reply::Close), not_failed);
    }
}
