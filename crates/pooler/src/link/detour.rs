//! Statements that a server parses later than they were named, under the settings they were named
//! under: PostgreSQL reads constants when it parses.
//!
//! That is a group of ours between the client's, so that nothing in those is of a pipeline with it.
//! Outside of a transaction block its settings end with it. Inside, a savepoint takes them back,
//! exactly, whatever the client has done to them. The client's message waits for the end. If
//! PostgreSQL refuses the text there, it is parsed where the client's message stands, and the error
//! is PostgreSQL's answer to that.

use std::sync::Arc;

use howdah_wire::backend::Status;
use howdah_wire::tag::frontend;
use howdah_wire::write;

use super::upstream::{Flow, Upstream};
use crate::ledger::{Entry, Part, Reply};
use crate::params::{Params, set_one};
use crate::statement::Statement;

const SAVE: &[u8] = b"SAVEPOINT howdah_detour";
const BACK: [&[u8]; 2] = [
    b"ROLLBACK TO SAVEPOINT howdah_detour",
    b"RELEASE SAVEPOINT howdah_detour",
];

/// What a server is doing so that a message can go on, which its client has sent.
#[derive(Clone, Copy, Debug)]
pub struct Detour {
    /// The key of the statement that it parses.
    key: u128,
    /// It failed inside a transaction block, and that was taken back.
    undone: bool,
}

/// Whether a statement can be parsed where the client's message stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Where {
    /// The server has it, from a detour.
    Done,
    /// Only there: under the settings of now.
    Here,
}

impl Upstream<'_> {
    /// A server that lacks a statement is to parse it, of which texts mean something else by now. It
    /// is sent on a detour, if that can be. `has`: it has come back with it.
    pub(super) fn detour(
        &mut self,
        statement: &Arc<Statement>,
        has: bool,
        parse: impl FnOnce(&mut Self),
    ) -> Result<Where, Flow> {
        let key = statement.key();
        let server = self.linked();
        if let Some(detour) = server.detour.filter(|detour| detour.key == key) {
            if !server.ledger.is_empty() {
                return Err(self.stall());
            }
            if !has && server.status == Status::Failed && !detour.undone {
                self.undo_detour(key);
                return Err(self.stall());
            }
            self.linked().detour = None;
            return Ok(if has { Where::Done } else { Where::Here });
        }
        // Closes alone, of the client's or ours, may as well end with it.
        let open = server.ledger.group_works();
        let usual = server.changes.is_usual();
        let Some(settings) = statement.settings().filter(|_| usual && !open).cloned() else {
            return Ok(Where::Here);
        };
        if !server.ledger.is_empty() {
            // What settings are, and whether the transaction has failed, is known behind that.
            return Err(self.stall());
        }
        if server.status == Status::Failed {
            return Ok(Where::Here);
        }
        let block = server.status != Status::Idle;
        server.detour = Some(Detour { key, undone: false });
        if block {
            self.run_for_us(SAVE, Part::Whole);
        }
        for sql in self.settings_of_before(&settings) {
            self.run_for_us(&sql, Part::Whole);
        }
        parse(self);
        if block {
            BACK.iter()
                .for_each(|sql| self.run_for_us(sql, Part::Whole));
        }
        self.end_detour();
        Err(self.stall())
    }

    /// It failed in a transaction block.
    fn undo_detour(&mut self, key: u128) {
        self.linked().detour = Some(Detour { key, undone: true });
        BACK.iter()
            .for_each(|sql| self.run_for_us(sql, Part::Whole));
        self.end_detour();
    }

    fn end_detour(&mut self) {
        let to = self.to();
        self.out
            .send_with(to, |buf| write::empty(buf, frontend::SYNC));
        self.push(Entry::swallow(Reply::Sync));
    }

    /// Commands that take the transaction from the client's settings to others.
    fn settings_of_before(&self, settings: &Params) -> Vec<Vec<u8>> {
        let Some(now) = &self.client.params else {
            return Vec::new();
        };
        let others = settings.missing_on(now);
        let others = others.filter(|(position, _)| Params::has_meaning(*position));
        let set = others.map(|(position, value)| {
            let mut sql = Vec::new();
            set_one(&mut sql, &self.tracked.names()[position], value, true);
            sql
        });
        set.collect()
    }
}
