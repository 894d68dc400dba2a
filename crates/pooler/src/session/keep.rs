//! `Pooler` with a client's session: before its server is released, and when the client leaves.

use std::sync::Arc;

use howdah_wire::write;

use super::inquiry::{Inquiry, InquiryAnswer};
use super::settings::Maybe;
use super::{Session, settings};
use crate::effect::Kinds;
use crate::event::{ClientId, Out, Peer, ServerId};
use crate::fault::Fault;
use crate::listen::Name;
use crate::next::Next;
use crate::note::Level;
use crate::pooler::Pooler;
use crate::server::{Ending, Server, ServerState};
use crate::session::ticket::Ticket;
use crate::{limits, link};

/// The shortest time between two questions about what still pins a client, in nanoseconds.
const ASK_EVERY_NS: u64 = 5_000_000_000;

/// Pinning state that PostgreSQL can't be asked about. It lasts until the session ends or is reset.
const STICKS: Kinds = Kinds::STAYS.and(Kinds::SETS_ANY).and(Kinds::SEQUENCES);

impl Pooler {
    /// A server could be released. True if its client's session keeps it: for good, or until
    /// PostgreSQL has said what is left.
    pub(crate) fn session_keeps(
        &mut self,
        client_id: ClientId,
        id: ServerId,
        out: &mut Out,
    ) -> bool {
        let now = self.now;
        let (client, server) = (self.clients.at_mut(client_id), self.servers.at_mut(id));
        let Some(session) = &client.session else {
            return false;
        };
        if client.is_leaving() {
            // No client is left to keep the server for.
            return false;
        }
        let blank = session.pending.is_empty() && session.pinned.is_empty();
        if !blank && server.ending() == Some(Ending::CrashedUnheard) {
            // The server is gone: PostgreSQL can't say what the client has changed.
            self.disconnect(client_id, Fault::ServerGone, out);
            return true;
        }
        let asked = session.ticket.as_ref().is_some_and(Ticket::is_asked);
        if asked && session.pending.kinds.any(Kinds::SEQUENCES) {
            // Whether the client may keep its sequence values is not decided yet.
            return true;
        }
        if session.pending.is_empty() {
            if session.pinned.is_empty() {
                return false;
            }
            let params = client.params.as_ref();
            let misses = params.is_some_and(|params| {
                !Arc::ptr_eq(params, &server.session.params)
                    && params.missing_on(&server.session.params).next().is_some()
            });
            if misses || session.misses_login(&server.session.settings) {
                self.align_pinned(client_id, id, out);
                return true;
            }
            let due = now.0.saturating_sub(session.asked.0) >= ASK_EVERY_NS;
            if !due || !session.pinned.only(STICKS).is_empty() {
                server.session.keep_numbers();
                if server.user_has_ended {
                    client.ends_with_user(now);
                    self.next.note(Next::Over(client_id));
                }
                self.rest_pinned(client_id);
                return true;
            }
        }
        let inquiry = Inquiry::of(
            session,
            &server.session.settings,
            &self.shared.tracked,
            &server.session.params,
            client.asked.as_deref(),
        );
        client.session_mut().asked = now;
        if inquiry.is_empty() {
            self.learn_session(client_id, id, Some(InquiryAnswer::default()), out);
            return self.session_keeps(client_id, id, out);
        }
        let sql = inquiry.sql();
        server.session.begin_inquiry(inquiry);
        server.runs_for_us(id, &sql, out);
        link::bind_held((client_id, client), (id, server));
        true
    }

    /// A pinned client is between two transactions.
    fn rest_pinned(&mut self, id: ClientId) {
        let client = self.clients.at_mut(id);
        client.times.set_quiet(self.now);
        let terms = client.login.map(|login| &self.logins.at(login).terms);
        if terms.is_some_and(|terms| terms.watched || terms.pin_idle_timeout > 0) {
            self.watch_client(id);
        }
    }

    /// Stores PostgreSQL's answer in the session.
    pub(crate) fn learn_session(
        &mut self,
        client_id: ClientId,
        id: ServerId,
        mut answer: Option<InquiryAnswer>,
        out: &mut Out,
    ) {
        let now = self.now;
        let back = answer
            .as_mut()
            .map(|answer| std::mem::take(&mut answer.back));
        let (client, server) = (self.clients.at_mut(client_id), self.servers.at_mut(id));
        let done = client.inbox.held().is_empty();
        let Some(session) = client.session_if_any() else {
            return;
        };
        let before = session.pinned;
        if let Some(own) = session.channels.as_mut().filter(|_| done) {
            own.ahead.clear();
        }
        let limited = self.logins.at(server.login).terms.pins > 0;
        let held = session.ticket.as_ref().is_some_and(Ticket::is_held);
        let gone = learn_answer(session, server, answer, held || !limited);
        let listener = session.channels.as_ref().map(|own| own.listener.clone());
        if !session.pinned.any(Kinds::LISTENS) {
            session.channels.take_if(|own| own.are_over());
        }
        let shelf = &mut self.shared.settings;
        session.settings = super::intern(shelf, session.settings.take());
        server.session.share_settings(shelf);
        let pinned = session.pinned;
        if before.is_empty() && !pinned.is_empty() {
            session.since = now;
        }
        client.forgets_blank_session();
        if let (Some(asked), Some(params)) = (&client.asked, &client.params) {
            let back = back.into_iter().flatten();
            let back = back.filter_map(|position| Some((position, asked.get(position)?)));
            let mut now = (**params).clone();
            for (position, value) in back.filter(|(at, value)| params.get(*at) != Some(*value)) {
                now = now.with(position, value);
                let name = self.shared.tracked.names()[position].as_bytes();
                out.send_with(Peer::Client(client_id), |buf| {
                    write::parameter_status(buf, name, value);
                });
            }
            if now != **params {
                client.set_params(self.shared.params.intern(now));
            }
        }
        if let Some(params) = client.params.clone() {
            let (tracked, hasher) = (&self.shared.tracked, self.keys.meaning());
            client.set_meaning(params.meaning(tracked, hasher, client.path().as_deref()));
        }
        let login = server.login;
        if let Some(listener) = listener.filter(|_| !gone.is_empty()) {
            self.leave_channels(client_id, listener, gone, false, out);
        }
        if before.is_empty() == pinned.is_empty() {
            return;
        }
        let login = self.logins.at_mut(login);
        if pinned.is_empty() {
            login.count_unpin();
        } else {
            login.count_pin(pinned);
        }
        self.pin_changed(client_id, pinned, out);
    }

    /// A server has sent a notification, but no client listens there: some text has run a hidden
    /// LISTEN.
    pub(crate) fn stray_notification(&mut self, id: ServerId, out: &mut Out) {
        let server = gone!(self.servers.get_mut(id));
        match *server.state() {
            ServerState::Linked(_) => server.session.mark_doubted(),
            ServerState::Idle => {
                server.ensure_close_at_release(Ending::Listens);
            }
            // The server is about to be cleaned.
            _ => return,
        }
        self.logins.at_mut(server.login).count_unseen();
        let text = "listens without its clients' texts telling: a notification was dropped";
        self.note_server(Level::Warning, id, text, out);
    }

    /// A client's link to its server has ended. Its state there must not reach another client.
    pub(crate) fn session_leaves(&mut self, client_id: ClientId, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let client = self.clients.at_mut(client_id);
        let Some(session) = client.session_if_any() else {
            return;
        };
        if session.pinned.any(Kinds::STAYS) || session.pending.kinds.any(Kinds::STAYS) {
            server.ensure_close_at_release(Ending::StateStays);
        }
        // PostgreSQL was not asked about the last texts, so the server's settings are unknown, too.
        server.session.soil(!session.pending.is_empty());
        if !session.pinned.is_empty() {
            session.pinned = Kinds::NOTHING;
            self.logins.at_mut(server.login).count_unpin();
        }
        self.give_permission_back(client_id, out);
    }

    /// Marks a server's settings as unknown: texts that Howdah has not read, or a reset query, may
    /// have changed them. (A reset query `DISCARD ALL` shows in its CommandComplete.)
    pub(crate) fn doubt_session(&mut self, id: ServerId) {
        let server = self.servers.at_mut(id);
        if server.session.settings.is_some() {
            let doubted = settings::doubted(&server.session.settings);
            server
                .session
                .set_settings(super::intern(&mut self.shared.settings, doubted));
        }
    }

    /// Whether DISCARD ALL must clean a server. Where there is a `connect_query`, it also removes
    /// settings: RESET would not restore those of that query.
    pub(crate) fn discards_all(&self, id: ServerId) -> bool {
        let server = self.servers.at(id);
        let database = &self.logins.at(server.login).terms.database;
        server.session.needs_cleaning()
            || server.session.settings.is_some() && database.connect_query.is_some()
    }

    /// Runs `connect_query` again after a DISCARD ALL by Howdah.
    pub(crate) fn connect_again(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let database = &self.logins.at(server.login).terms.database;
        if let Some(query) = database.connect_query.as_ref().filter(|q| !q.is_empty()) {
            server.runs_for_us(id, query.as_bytes(), out);
        }
    }

    /// Cleans a server before another client gets it, if needed. True if this is under way.
    pub(crate) fn clean_session(&mut self, id: ServerId, out: &mut Out) -> bool {
        if self.discards_all(id) {
            let server = self.servers.at_mut(id);
            server.session.mark_cleaned();
            self.run_task(id, ServerState::Resetting, b"DISCARD ALL", out);
            self.connect_again(id, out);
            return true;
        }
        let server = self.servers.at_mut(id);
        let mut sql = Vec::new();
        if server.session.stop_listening() {
            sql.extend_from_slice(b"UNLISTEN *;");
        }
        if let Some(there) = &server.session.settings
            && there.at_once().next().is_some()
        {
            let mut left = (**there).clone();
            for name in there.at_once() {
                settings::reset(&mut sql, name);
                left.put(name, None);
            }
            server
                .session
                .set_settings(super::intern(&mut self.shared.settings, left.shared()));
        }
        if sql.is_empty() {
            return false;
        }
        self.run_task(id, ServerState::Resetting, &sql, out);
        true
    }
}

/// Stores PostgreSQL's answer about a session; `None` if PostgreSQL refused. Sequence values pin
/// the client only if it `may_keep` a server. Returns the channels that the listener need not hear
/// for the client any more.
fn learn_answer(
    session: &mut Session,
    server: &mut Server,
    answer: Option<InquiryAnswer>,
    may_keep: bool,
) -> Vec<Name> {
    let pending = std::mem::take(&mut session.pending);
    let mut sticks = session.pinned.only(STICKS);
    // Functions may have left state that RESET ALL does not remove: cleans once more.
    let mut soiled = false;
    if pending.discarded {
        session.settings = session.login.clone();
        // The client may have set settings again after the DISCARD ALL.
        server
            .session
            .set_settings(settings::doubted(&session.login));
        sticks = sticks.only(Kinds::STAYS);
    } else if pending.all_back && !pending.doubtful && sticks.any(Kinds::SETS_ANY) {
        sticks = sticks.without(Kinds::SETS_ANY);
        soiled = true;
    }
    sticks.add(pending.kinds.only(STICKS));
    if !may_keep {
        sticks = sticks.without(Kinds::SEQUENCES);
    }
    let mut gone = Vec::new();
    let mut listens = Kinds::NOTHING;
    if let Some(own) = &mut session.channels {
        let there = answer
            .as_ref()
            .and_then(|answer| answer.channels.as_deref());
        let (left, keeps) = own.settle(there, pending.discarded, pending.doubtful);
        gone = left;
        if keeps {
            listens = Kinds::LISTENS;
        }
    }
    match answer {
        Some(answer) => {
            let before = session.settings.clone();
            server.session.tell_settings(session, &answer.settings);
            session.pinned = answer.left.and(sticks).and(listens);
            if answer.rights && !has_same_rights(&before, &session.settings) {
                // With its own rights, the client could not set these values on another server.
                session.pinned.add(Kinds::SETS_ANY);
            }
            server
                .statements
                .set_sql_prepared(answer.left.any(Kinds::PREPARES));
        }
        None => {
            let kinds = pending.kinds.only(Kinds::PINNING).and(session.pinned);
            session.pinned = kinds.and(Kinds::SETS_ANY);
        }
    }
    let own = session.settings.as_deref();
    let (many, weight) = own.map_or((0, 0), |own| (own.len(), own.weight()));
    if many > limits::SETTINGS || weight > limits::SETTINGS_WEIGHT {
        session.pinned.add(Kinds::SETS_ANY);
    }
    server
        .session
        .set_soiled(soiled || !session.pinned.is_empty());
    gone
}

/// True if the session now has the rights of another role, and if it had the same rights, or those
/// of its login, when its settings were `before`.
fn has_same_rights(before: &Maybe, now: &Maybe) -> bool {
    let identity = |settings: &Maybe| {
        let settings = settings.as_deref();
        settings.map_or([None, None], |settings| {
            settings.identity().map(|v| v.map(<[u8]>::to_vec))
        })
    };
    let (before, now) = (identity(before), identity(now));
    now != [None, None] && (before == [None, None] || before == now)
}
