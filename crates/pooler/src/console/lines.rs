//! The clients that wait for servers, and the clients that have servers.

use std::cmp::Reverse;

use howdah_wire::backend::Status;

use super::rows::{Row, number, text};
use crate::client::Client;
use crate::console::holdings::{Holder, HolderState, Holdings, WaiterRow, Who};
use crate::event::Time;
use crate::login::key::LoginId;
use crate::metrics::{PoolVerdict, Process, Sight, verdicts};
use crate::params::Params;
use crate::place;
use crate::pooler::Pooler;
use crate::server::Server;

impl Pooler {
    /// The first `most` clients that wait for servers of a login, longest first.
    pub(super) fn first_waiters(&self, id: LoginId, most: usize) -> Vec<WaiterRow> {
        let login = self.logins.at(id);
        let mut rows = Vec::new();
        for id in login.pools() {
            let pool = self.pools.at(*id);
            let reason = self.reason(*id).word();
            let line = pool.waiting.iter().chain(pool.pin_line.iter());
            let line = line.map(|(client, _)| client);
            let line = line.chain(pool.newcomers().iter().copied());
            let line = line.filter_map(|client| self.clients.get(client));
            let waits = line.filter(|client| client.is_waiting()).take(most);
            rows.extend(waits.map(|client| WaiterRow {
                login: login.key.clone(),
                who: self.teller(client),
                waited: self.now.0.saturating_sub(client.times.request.0),
                reason: if client.awaits_permission() {
                    crate::pool::Reason::PinLimit.word()
                } else {
                    reason
                },
            }));
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.waited));
        rows.truncate(most);
        rows
    }

    /// All clients that have servers.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let servers = self.servers.iter();
        servers
            .filter_map(|(_, server)| self.holder(server))
            .collect()
    }

    /// The client that has this server, if any.
    pub(super) fn holder(&self, server: &Server) -> Option<Holder> {
        let client = self.client_of(server)?;
        let state = state_of(server);
        let pinned = client.session.as_deref().map(|session| session.pinned);
        let since = |at: Time| self.now.0.saturating_sub(at.0);
        Some(Holder {
            login: self.logins.at(server.login).key.clone(),
            who: self.teller(client),
            server: server.number,
            pid: server.cancels.pid().unwrap_or(0),
            state,
            held: since(server.times.transaction),
            stayed: since(if state == HolderState::Active {
                server.times.request
            } else {
                client.times.quiet
            }),
            kept_for: pinned.map_or_else(String::new, crate::session::reasons),
            query: server.link.known_text().cloned(),
        })
    }

    fn teller(&self, client: &Client) -> Who {
        Who {
            number: client.number,
            address: place::remote(&client.ends),
            application: self.application(client.params.as_deref()),
        }
    }

    /// The client's `application_name`.
    pub(crate) fn application(&self, params: Option<&Params>) -> String {
        let position = self.shared.tracked.position(b"application_name");
        let name = position.and_then(|position| params?.get(position));
        name.map_or_else(String::new, |name| {
            String::from_utf8_lossy(name).into_owned()
        })
    }
}

/// The rows of SHOW VERDICT: the worst first.
pub(super) fn show_verdicts(holdings: Vec<Holdings>) -> Vec<Row> {
    let sight = Sight::of(holdings, Process::default());
    let row = |verdict: PoolVerdict| {
        let pool = verdict.pool.as_ref();
        vec![
            pool.map(|pool| pool.database.to_string()),
            pool.map(|pool| pool.user.to_string()),
            text(&verdict.text),
        ]
    };
    verdicts(&sight).into_iter().map(row).collect()
}

/// What the client of a linked server does.
pub(super) fn state_of(server: &Server) -> HolderState {
    match server.status {
        _ if server.link.is_owed() => HolderState::Active,
        Status::Transaction => HolderState::InTransaction,
        Status::Failed => HolderState::InFailedTransaction,
        Status::Idle if server.link.group_open() => HolderState::InTransaction,
        Status::Idle => HolderState::Idle,
    }
}

/// The rows of SHOW HOLDERS: by pool, and in a pool the longest holder first.
pub(super) fn show_holders(mut holders: Vec<Holder>) -> Vec<Row> {
    holders.sort_by(|a, b| (&a.login, Reverse(a.held)).cmp(&(&b.login, Reverse(b.held))));
    let row = |holder: Holder| {
        vec![
            text(&holder.login.database),
            text(&holder.login.user),
            text(holder.state.word()),
            number(holder.held / 1000),
            number(holder.stayed / 1000),
            number(holder.who.number),
            text(&holder.who.address),
            text(&holder.who.application),
            number(holder.server),
            number(holder.pid),
            (!holder.kept_for.is_empty()).then(|| holder.kept_for.clone()),
            holder.query.as_ref().map(|query| query.text.to_string()),
        ]
    };
    holders.into_iter().map(row).collect()
}
