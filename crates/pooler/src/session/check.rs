//! A spot check before a server is released (`session_state_check`): has its client left state
//! that no text showed? Functions, triggers and rules can do so. Howdah logs a finding with the
//! last texts, counts it, and cleans the server before another client gets it.

use super::Tracking;
use super::inquiry::{Inquiry, InquiryAnswer, KnownSettings};
use crate::effect::Kinds;
use crate::event::{ClientId, Out, ServerId};
use crate::note::Level;
use crate::pool::Pool;
use crate::pooler::Pooler;
use crate::server::ServerState;
use crate::{link, server};

/// Whether the next server given to a client of the pool is checked: one in `one_in` is.
pub(crate) fn is_due(pool: &Pool, one_in: u32) -> bool {
    let keeps = matches!(
        pool.terms.tracking,
        Tracking::Keeps | Tracking::KeepsSettings
    );
    keeps
        && pool
            .stats()
            .server_assignments
            .checked_rem(u64::from(one_in))
            .is_some_and(|rest| rest == 0)
}

impl Pooler {
    /// Begins the spot check of a server that could be released. Returns false if this server is
    /// not checked.
    pub(crate) fn checks_session(
        &mut self,
        client_id: ClientId,
        id: ServerId,
        out: &mut Out,
    ) -> bool {
        let server = gone!(self.servers.get_mut(id));
        let leaving = self
            .clients
            .get(client_id)
            .is_none_or(|client| client.leaving);
        if server.check.is_none() || server.soiled() || server.ending().is_some() || leaving {
            return false;
        }
        let database = &self.pools.at(server.pool).terms.database;
        let tracked = self.shared.tracked.names().iter();
        let own = server.session.iter().flat_map(|settings| settings.iter());
        let own = own.map(|(name, _)| String::from_utf8_lossy(name).into_owned());
        let known = KnownSettings {
            names: tracked.map(|name| name.to_lowercase()).chain(own).collect(),
            all: database.connect_query.is_some(),
        };
        // Howdah knows the channels of a listening client.
        let without = match server.listens() {
            true => Kinds::LISTENS,
            false => Kinds::NOTHING,
        };
        let inquiry = Inquiry::check(known, without);
        let sql = inquiry.sql();
        server.begin_inquiry(inquiry);
        server.runs_for_us(id, &sql, out);
        let client = self.clients.at_mut(client_id);
        link::bind_held((client_id, client), (id, server));
        true
    }

    /// PostgreSQL has answered the spot check.
    pub(crate) fn checked(
        &mut self,
        client_id: ClientId,
        id: ServerId,
        answer: Option<InquiryAnswer>,
        out: &mut Out,
    ) {
        let server = gone!(self.servers.get_mut(id));
        let texts = server.take_check().map(|check| check.told());
        let found = match answer {
            Some(answer) => found(&answer),
            None => "unknown (PostgreSQL did not answer)".to_string(),
        };
        if found.is_empty() {
            return;
        }
        server.mark_soiled_unseen();
        self.pools.at_mut(server.pool).count_unseen();
        let text = format!(
            "left session state that none of its statements revealed: {found}; last run: {}",
            texts.unwrap_or_default()
        );
        self.note_client(Level::Warning, client_id, &text, out);
    }

    /// A server has sent a notification, but no client listens there: some text has run a hidden
    /// LISTEN.
    pub(crate) fn stray_notification(&mut self, id: ServerId, out: &mut Out) {
        let server = gone!(self.servers.get_mut(id));
        match *server.state() {
            ServerState::Linked(_) => server.mark_soiled_unseen(),
            ServerState::Idle => {
                server.must_close_too(server::Ending::Listens);
            }
            // The server is about to be cleaned.
            _ => return,
        }
        self.pools.at_mut(server.pool).count_unseen();
        let text = "listens without its clients' texts telling: a notification was dropped";
        self.note_server(Level::Warning, id, text, out);
    }
}

/// The state that was found, in words.
fn found(answer: &InquiryAnswer) -> String {
    let mut found = super::reasons(answer.left);
    if !answer.unseen.is_empty() {
        let names = String::from_utf8_lossy(&answer.unseen);
        let comma = if found.is_empty() { "" } else { ", " };
        found.push_str(&format!("{comma}settings ({names})"));
    }
    found
}
