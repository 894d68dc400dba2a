//! Statements that belong to one transaction.
//!
//! PostgreSQL reads names and constants when it parses a text. A text can have another meaning
//! inside a transaction than outside:
//!
//! ```sql
//! BEGIN;
//! CREATE TEMPORARY TABLE t ON COMMIT DROP AS SELECT 1 AS z;
//! SELECT * FROM t;   -- a temporary table, outside perhaps a permanent one
//! COMMIT;
//! ```
//!
//! The same is true after other DDL that may be rolled back, after `SET search_path`, and after a
//! SET whose result PostgreSQL has not reported yet. So Howdah parses statements anew in such a
//! transaction, shares them with no other client, and closes them when the transaction is over.

use std::sync::Arc;

use howdah_wire::backend::Status;
use howdah_wire::tag::frontend;
use howdah_wire::write;

use super::downstream::Downstream;
use super::portal::Portal;
use super::upstream::{Flow, Upstream};
use crate::effect::first::{Alters, SettingChange};
use crate::effect::{Effects, First, Names};
use crate::event::{Out, Peer, ServerId};
use crate::ledger::{Entry, Reply};
use crate::params::{Meaning, Params};
use crate::pooler::Pooler;
use crate::server::Server;
use crate::server::ServerState;
use crate::statement::{Constants, Statement, server_name};

/// Texts that are parsed.
impl Upstream<'_> {
    /// Notes in the entry of a Query how the Query affects later texts, unless the command's tag or
    /// the end of the Query shows this anyway.
    pub(super) fn query_alters(&mut self, first: Option<&First>, looks: Names, entry: &mut Entry) {
        if !self.renames {
            return;
        }
        entry.alters = match first.map_or(Alters::Nothing, |first| self.alters(first)) {
            // PostgreSQL reports settings at the end of the Query.
            Alters::Settings | Alters::Ends => Alters::Nothing,
            other => other,
        };
        if looks != Names::Same && matches!(entry.alters, Alters::Nothing | Alters::Path) {
            entry.looks_elsewhere(looks);
        }
    }

    /// Like `query_alters`, for an Execute.
    pub(super) fn execute_alters(&mut self, portal: &Portal, entry: &mut Entry) {
        entry.alters = self.alters(&portal.statement.first);
        if portal.names != Names::Same && matches!(entry.alters, Alters::Nothing | Alters::Path) {
            entry.looks_elsewhere(portal.names);
        }
    }

    /// The meaning of texts that are parsed or bound now.
    pub(super) fn meaning(&mut self) -> Meaning {
        let outside = self.client.meaning;
        self.server.session.changes.meaning(outside)
    }

    /// The effect of a SET, RESET or similar command on later texts.
    fn sets(&self, setting: Option<&SettingChange>) -> Alters {
        let told = |name: &[u8]| self.tracked.position(name).is_some_and(Params::has_meaning);
        match setting {
            Some(SettingChange::AllBack) => Alters::Settings,
            Some(SettingChange::To(name) | SettingChange::Back(name)) if told(name) => {
                Alters::Settings
            }
            Some(SettingChange::To(name) | SettingChange::Back(name))
                if **name == *b"search_path" =>
            {
                Alters::Path
            }
            _ => Alters::Nothing,
        }
    }

    /// Waits if PostgreSQL is about to report settings at the end of a group. Closes the statements
    /// of a transaction that has ended.
    pub(super) fn settle_meaning(&mut self) -> Result<(), Flow> {
        let server = &*self.server;
        if !server.session.changes.are_settled() && server.link.owes_ready() {
            return Err(self.stall());
        }
        if server.session.changes.has_statements_to_close() {
            self.close_what_is_over();
        }
        Ok(())
    }

    #[inline(never)] // Rare: few transactions change the meaning of texts.
    fn close_what_is_over(&mut self) {
        if self.server.session.changes.take_unnamed() {
            self.server.statements.doubt_unnamed();
        }
        for key in self.server.session.changes.take_over() {
            if let Some(statement) = self.server.statements.get(key) {
                self.take_away(key, &statement);
            }
        }
    }

    /// The statement for a text that is parsed now.
    #[inline(always)] // Every Parse passes here; the other caller is rare.
    pub(super) fn parsed_now(&mut self, definition: &[u8]) -> Arc<Statement> {
        let (schema, meaning) = (self.schema, self.meaning());
        let temporary = self.client.has_temporary();
        let changes = &self.server.session.changes;
        let (private, settled) = (changes.are_private(), changes.are_settled());
        if private || temporary {
            return self.interner.private(schema, meaning, settled, definition);
        }
        let statement = self.interner.intern(schema, meaning, definition);
        // What `EXECUTE p` returns depends on the client's own `p`.
        let effects = statement.effects.as_deref();
        let executes = effects.is_some_and(Effects::executes_by_name);
        if !executes && (settled || statement.constants == Constants::Fixed) {
            statement
        } else {
            self.interner.private(schema, meaning, settled, definition)
        }
    }

    /// A statement is about to be parsed with this key.
    pub(super) fn parses(&mut self, key: u128, statement: &Statement) {
        let (server, temporary) = (&mut *self.server, self.client.has_temporary());
        server.session.changes.add_parsed(key, statement, temporary);
    }

    /// The unnamed statement is about to be parsed.
    pub(super) fn parses_unnamed(&mut self, statement: &Statement) {
        let (server, temporary) = (&mut *self.server, self.client.has_temporary());
        server.session.changes.set_unnamed(statement, temporary);
    }

    /// The effect of running a statement on later texts.
    pub(super) fn alters(&mut self, first: &First) -> Alters {
        match first.alters {
            Alters::Settings => self.sets(first.setting.as_ref()),
            Alters::Temporary | Alters::Schema => self.server.session.changes.make_or_drop(first),
            Alters::Ends => self.server.session.changes.alters_at_end(),
            other => other,
        }
    }
}

/// Answers that change the meaning of texts.
impl Downstream<'_> {
    /// A command has ended.
    pub(super) fn may_alter(&mut self, tag: &[u8]) {
        let server = &mut *self.server;
        let alters = server.link.ledger.take_alters();
        let names = || server.link.ledger.names();
        if server.session.changes.end_command(alters, names, tag) {
            self.shared.statements.schema_changed(self.schema);
        }
    }

    /// At ReadyForQuery, PostgreSQL has reported all settings. When a transaction ends, other
    /// sessions see its changes.
    pub(super) fn changes_are_told(&mut self, status: Status) {
        if self.server.session.changes.end_request(status) {
            self.shared.statements.schema_changed(self.schema);
        }
    }
}

impl Pooler {
    /// Closes the statements of a server that no other client may use. True if PostgreSQL owes
    /// answers.
    pub(crate) fn close_transient(&mut self, id: ServerId, out: &mut Out) -> bool {
        let server = self.servers.at_mut(id);
        if server.session.changes.take_unnamed() {
            server.statements.doubt_unnamed();
        }
        let mut closes = false;
        for key in server.session.changes.take_all() {
            if server.statements.get(key).is_some() {
                closes = true;
                close_for_us(id, server, key, out);
            }
        }
        if closes {
            server.link.ledger.push(Entry::swallow(Reply::Sync), true);
            out.send_with(Peer::Server(id), |buf| write::empty(buf, frontend::SYNC));
            self.await_task(id, ServerState::Resetting);
        }
        closes
    }
}

/// Closes a statement on a server without a client.
fn close_for_us(id: ServerId, server: &mut Server, key: u128, out: &mut Out) {
    server.statements.remove(key);
    server.link.ledger.push(Entry::swallow(Reply::Close), true);
    out.send_with(Peer::Server(id), |buf| {
        write::of_statement(buf, frontend::CLOSE, &server_name(key));
    });
}
