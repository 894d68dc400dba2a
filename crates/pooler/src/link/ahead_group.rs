//! A group of a client without a server that only prepares, describes and closes statements. If it
//! is certain what PostgreSQL would answer, Howdah answers, and the client needs no server:
//!
//! ```text
//! Parse(a, "select 1") Describe(a) Sync
//! ```
//!
//! All servers may be busy in transactions, and a program with one thread (pgbench) may have to
//! prepare a statement before it can end one of them.

use std::sync::Arc;

use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, header};
use howdah_wire::frontend::{Parse, Subject};
use howdah_wire::tag::{backend, frontend as tag};
use howdah_wire::write;

use super::ahead::Ahead;
use crate::client::ClientState;
use crate::event::Peer;
use crate::inbox::Chunk;
use crate::limits;
use crate::signal::SignalText;
use crate::statement::{Named, Shape, Statement, StatementDescription};

/// A message of the group, with its known answer.
enum Known<'a> {
    /// A Parse that gives this name to the statement.
    Parse(&'a [u8], Arc<Statement>),
    /// A Describe of the statement with this name, and its shape.
    Describe(&'a [u8], Arc<Statement>, Shape),
    /// A Close of this name.
    Close(&'a [u8]),
}

/// A group with known answers.
struct KnownGroup<'a> {
    messages: Vec<Known<'a>>,
    /// Its length with its Sync, in bytes.
    length: usize,
}

impl Ahead<'_> {
    /// Answers the group that begins these bytes, if all of it is there and all its answers are
    /// known. False if nothing was done.
    pub(super) fn answer_group(&mut self, chunk: &mut Chunk<'_>) -> bool {
        if !self.may_answer_groups() {
            return false;
        }
        let Some(group) = self.known_group(chunk.rest()) else {
            return false;
        };
        for known in group.messages {
            self.answer(known);
        }
        let status = self.client.status_ahead();
        self.out
            .send_with(Peer::Client(self.id), |buf| write::ready(buf, status));
        self.client.inbox.gives_room_back();
        chunk.at += group.length;
        self.counts.groups += 1;
        true
    }

    fn may_answer_groups(&self) -> bool {
        let client = &*self.client;
        self.renames()
            && self.client.status_ahead() != Status::Failed
            && matches!(client.state(), ClientState::Idle)
            // Its ReadyForQuery must follow all notifications.
            && !client.listens()
            && !client.has_temporary()
            && !client.is_replicating()
    }

    fn known_group<'b>(&self, bytes: &'b [u8]) -> Option<KnownGroup<'b>> {
        let mut messages = Vec::new();
        let mut length = 0;
        while messages.len() < limits::KNOWN_GROUP {
            let rest = &bytes[length..];
            let header = header(rest)?.ok()?;
            if header.body + 4 > self.globals.max_packet_size.min(limits::SHORT) {
                return None;
            }
            let body = rest.get(HEADER..header.total())?;
            length += header.total();
            messages.push(match header.tag {
                tag::SYNC if body.is_empty() => return Some(KnownGroup { messages, length }),
                tag::PARSE => self.known_parse(body, &messages)?,
                tag::DESCRIBE => self.known_describe(body, &messages)?,
                tag::CLOSE => self.known_close(body, &messages)?,
                _ => return None,
            });
        }
        None
    }

    /// A Parse of a text that PostgreSQL has accepted, with a name that is free.
    fn known_parse<'b>(&self, body: &'b [u8], before: &[Known<'b>]) -> Option<Known<'b>> {
        let names = &self.client.statements;
        if body.first() == Some(&0) {
            return None;
        }
        let parse = Parse::read(body).ok()?;
        let size = parse.name.len() + parse.definition.len();
        let fits = parse.name.len() <= limits::STATEMENT_NAME
            && names.len() + before.len() < limits::CLIENT_NAMES
            && names.texts() + size <= limits::CLIENT_TEXTS
            && self.login.share.will_have_room(size);
        if !fits || self.named(parse.name, before).is_some() {
            return None;
        }
        let (interner, schema) = (self.interner, self.login.schema);
        let statement = interner.shared(schema, self.client.meaning, parse.definition)?;
        self.confirmed(statement)?;
        let plain = statement.only_moves_transaction() && SignalText::read(parse.text()).is_none();
        plain.then(|| Known::Parse(parse.name, statement.clone()))
    }

    /// A Describe of a statement whose description is known.
    fn known_describe<'b>(&self, body: &'b [u8], before: &[Known<'b>]) -> Option<Known<'b>> {
        let Ok(Subject::Statement(name)) = Subject::read(tag::DESCRIBE, body) else {
            return None;
        };
        let (statement, told) = self.named(name, before)?;
        if !self.is_current(statement) {
            return None;
        }
        let shape = self.confirmed(statement)??;
        statement.description(shape)?;
        let same = told.is_none_or(|told| told.shape == shape);
        let describes = |known: &&Known<'_>| matches!(known, Known::Describe(..));
        let described = self.counts.describes + before.iter().filter(describes).count() as u32;
        let few = described < limits::KNOWN_DESCRIBES;
        (same && few).then(|| Known::Describe(name, statement.clone(), shape))
    }

    /// A Close of a name that Howdah knows. (Others may be those of SQL's PREPARE.)
    fn known_close<'b>(&self, body: &'b [u8], before: &[Known<'b>]) -> Option<Known<'b>> {
        match Subject::read(tag::CLOSE, body) {
            Ok(Subject::Statement(name)) if self.named(name, before).is_some() => {
                Some(Known::Close(name))
            }
            _ => None,
        }
    }

    /// The statement with this name behind these messages, and the description that the client has
    /// got before them.
    fn named<'s>(
        &'s self,
        name: &[u8],
        before: &'s [Known<'_>],
    ) -> Option<(&'s Arc<Statement>, Option<&'s Arc<StatementDescription>>)> {
        for known in before.iter().rev() {
            match known {
                Known::Parse(given, statement) if *given == name => return Some((statement, None)),
                Known::Close(given) if *given == name => return None,
                _ => {}
            }
        }
        let named = self.client.statements.get(name)?;
        Some((&named.statement, named.told.as_ref()))
    }

    /// True if the client would get this statement if it parsed the text now.
    fn is_current(&self, statement: &Statement) -> bool {
        let (interner, schema) = (self.interner, self.login.schema);
        let meaning = self.client.meaning;
        !statement.private
            && statement.schema == interner.schema(schema)
            && statement.constants.fit(meaning)
            && interner.is_of(statement, schema, meaning)
    }

    /// Answers a message of the group.
    fn answer(&mut self, known: Known<'_>) {
        let to = Peer::Client(self.id);
        match known {
            Known::Parse(name, statement) => {
                if self.client.has_signal() {
                    self.client.forgets_signal(Some(name));
                }
                statement.charge_to(&self.login.share);
                let number = self.client.statements.next_number();
                let named = Named::new(statement, number);
                self.client.statements.insert(name.into(), named);
                self.counts.parses += 1;
                self.out
                    .send_with(to, |buf| write::empty(buf, backend::PARSE_COMPLETE));
            }
            Known::Describe(name, statement, shape) => {
                self.counts.describes += 1;
                let named = self.client.statements.told_mut(name);
                if let (Some((told, columns)), Some(named)) = (statement.description(shape), named)
                {
                    if named.told.is_none() {
                        named.recite(told.clone());
                    }
                    self.out.send_with(to, |buf| {
                        write::message(buf, backend::PARAMETER_DESCRIPTION, |buf| {
                            buf.extend_from_slice(&told.parameters);
                        });
                        columns.write(buf);
                    });
                }
            }
            Known::Close(name) => {
                self.client.statements.remove(name);
                self.out
                    .send_with(to, |buf| write::empty(buf, backend::CLOSE_COMPLETE));
            }
        }
    }
}
