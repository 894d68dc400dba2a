//! Statements that a server parses later than they were named, under the settings they were named
//! under: PostgreSQL reads constants when it parses.
//!
//! That is a group of ours between the client's, so that nothing in those is of a pipeline with it.
//! Outside of a transaction block its settings end with it. Inside, a savepoint takes them back,
//! exactly, whatever the client has done to them. The client's message waits for the end. If
//! PostgreSQL refuses the text there, it is parsed where the client's message stands, and the error
//! is PostgreSQL's answer to that. If something else befalls it (a cancel, a timeout), that is what
//! befell the client's message.

use std::sync::Arc;

use howdah_wire::backend::{Fields, Status};
use howdah_wire::tag::{backend, frontend};
use howdah_wire::write;

use super::upstream::{Flow, Upstream};
use crate::event::Peer;
use crate::ledger::{Entry, Part, Reply};
use crate::params::{Params, set_one};
use crate::statement::Statement;

const SAVE: &[u8] = b"SAVEPOINT howdah_detour";
const BACK: [&[u8]; 2] = [
    b"ROLLBACK TO SAVEPOINT howdah_detour",
    b"RELEASE SAVEPOINT howdah_detour",
];

/// What a server is doing so that a message can go on, which its client has sent.
#[derive(Debug)]
pub struct Detour {
    /// The key of the statement that it parses.
    key: u128,
    /// Why it failed.
    error: Option<Error>,
    /// It failed inside a transaction block, and that was to be taken back.
    undone: bool,
}

#[derive(Debug)]
struct Error {
    /// The ErrorResponse's body, as far as it was looked at.
    body: Box<[u8]>,
    /// It says something of the text, or of the settings.
    of_text: bool,
}

impl Detour {
    /// Of a statement.
    fn of(key: u128) -> Detour {
        Detour {
            key,
            error: None,
            undone: false,
        }
    }

    /// PostgreSQL says that something of it has failed.
    pub(super) fn fails(&mut self, body: &[u8]) {
        const OF_TEXT: [&[u8]; 6] = [b"0A", b"22", b"26", b"28", b"3F", b"42"];
        let class = Fields::new(body).sqlstate().and_then(|code| code.get(..2));
        let of_text = class.is_some_and(|class| OF_TEXT.contains(&class));
        let body = body.into();
        self.error = Some(Error { body, of_text });
    }
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
        if let Some(detour) = server.detour.take_if(|detour| detour.key == key) {
            return self.come_back(detour, has);
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
        server.detour = Some(Detour::of(key));
        if block {
            self.run_for_us(SAVE, Part::Whole);
        }
        for sql in self.settings_of_before(&settings) {
            self.run_for_us(&sql, Part::Whole);
        }
        parse(self);
        if block {
            self.back();
        }
        self.end_detour();
        Err(self.stall())
    }

    /// Its server is under way, or back.
    fn come_back(&mut self, mut detour: Detour, has: bool) -> Result<Where, Flow> {
        let server = self.linked();
        if !server.ledger.is_empty() {
            server.detour = Some(detour);
            return Err(self.stall());
        }
        let failed = server.status == Status::Failed;
        match &detour.error {
            Some(error) if !error.of_text || (failed && detour.undone) => {
                self.refuse(&error.body);
                Err(Flow::Refused)
            }
            Some(_) if failed => {
                detour.undone = true;
                server.detour = Some(detour);
                self.back();
                self.end_detour();
                Err(self.stall())
            }
            _ if has => Ok(Where::Done),
            _ => Ok(Where::Here),
        }
    }

    /// Takes settings back to the savepoint.
    fn back(&mut self) {
        for sql in BACK {
            self.run_for_us(sql, Part::Whole);
        }
    }

    /// The client's message fails, as its detour has. PostgreSQL's words may be in another encoding
    /// than the client's: what is not ASCII is left out.
    fn refuse(&mut self, error: &[u8]) {
        self.client.group_failed = true;
        self.out.send_with(Peer::Client(self.id), |buf| {
            write::message(buf, backend::ERROR, |buf| {
                for (field, value) in Fields::new(error).iter() {
                    buf.push(field);
                    buf.extend(value.iter().filter(|byte| byte.is_ascii()));
                    buf.push(0);
                }
                buf.push(0);
            });
        });
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
