//! Statements whose result columns a change of the schema has changed.
//!
//! A client prepares `SELECT * FROM t`; then `ALTER TABLE t ADD c int` runs. A server that parsed
//! the statement before the ALTER refuses it. A server that parses it only now would send the new
//! columns, and the client would read them by the old description. So after a change of the schema,
//! Howdah compares the description that the client received at its Describe with the server's
//! description. If they differ, the client gets PostgreSQL's error.

use std::sync::Arc;

use howdah_wire::backend::Fields;
use howdah_wire::frame::{HEADER, Header, header};
use howdah_wire::frontend::Subject;
use howdah_wire::tag::{backend as tag, frontend};
use howdah_wire::write;

use super::downstream::{self, Downstream, Halt};
use super::portal::Bound;
use super::prepare::There;
use super::upstream::{self, Upstream};
use crate::fault::refusal;
use crate::inbox::Chunk;
use crate::ledger::{Asked, Change, Described, Entry, Refusal, Reply};
use crate::limits;
use crate::statement::{Named, Shape, Statement, StatementDescription, server_name};

/// Messages from clients.
impl Upstream<'_> {
    /// True if this server's result columns differ from the description that the client received.
    /// This happens if the server parsed the statement after a change of the schema. (PostgreSQL
    /// itself refuses a statement that was parsed before.) Stalls the client until the server's
    /// description is known.
    pub(super) fn has_changed(
        &mut self,
        there: There,
        named: &Named,
    ) -> Result<bool, upstream::Flow> {
        let There { key, late } = there;
        let Some(told) = &named.told else {
            return Ok(false);
        };
        let same = named.statement.schema == self.interner.schema(self.schema);
        let server = &mut *self.server;
        // Compare also if the server parsed the text under other settings, or if the statement was
        // private to a transaction that has ended: either may give other columns.
        // Or if only Howdah has described the statement: the schema may have changed unnoticed.
        let late = late || named.statement.private || named.recited;
        if same && !late && !server.session.changes.are_private() {
            return Ok(false);
        }
        if let Some(shape) = server.statements.shape(key) {
            let changed = told.shape != shape;
            if changed && !server.session.changes.are_private() {
                // The change may be one that Howdah has not seen, such as DDL in a function. Then
                // other statements are to be compared, too.
                self.interner.stale(self.schema, &named.statement);
            }
            return Ok(changed);
        }
        if !server.link.ledger.is_checking(key) {
            self.describe_for_us(key, named.number, None);
        }
        Err(self.stall())
    }

    /// A client describes a portal, and has not described the portal's statement. The client may
    /// take the portal's description for that of the statement. So Howdah must know the statement's
    /// description.
    pub(super) fn learn(&mut self, bound: Bound) {
        let Bound {
            key,
            statement,
            asked,
            ..
        } = bound;
        let server = &mut *self.server;
        if server.link.ledger.is_describing(asked.number) {
            return;
        }
        // In a transaction with DDL, Howdah asks PostgreSQL for the description. `was_told` decides
        // when the answer arrives, because a pipelined COMMIT may have ended the transaction by
        // then.
        let transient = server.session.changes.are_private() && !statement.private;
        let here = server.statements.shape(key).filter(|_| !transient);
        let known = statement.told().filter(|told| here == Some(told.shape));
        let Some(known) = known.cloned() else {
            return self.describe_for_us(key, asked.number, Some(asked));
        };
        let named = match server.link.ledger.pending_definition(asked.number) {
            Some(named) => Some(named),
            None => self.client.statements.told_mut(&asked.name),
        };
        if let Some(named) = named.filter(|named| named.number == asked.number) {
            named.told = Some(known);
        }
    }

    fn describe_for_us(&mut self, key: u128, number: u64, asked: Option<Asked>) {
        let to = self.to();
        self.out.send_with(to, |buf| {
            write::of_statement(buf, frontend::DESCRIBE, &server_name(key));
        });
        let mut entry = Entry::swallow(Reply::Describe);
        entry.effects_mut().described = Some(Box::new(Described {
            asked,
            key,
            parameters: None,
        }));
        entry.named = number;
        self.push(entry);
    }
}

/// Messages from servers.
impl Downstream<'_> {
    /// True if the next answer is a statement's description that Howdah must remember.
    pub(super) fn describes(&self) -> bool {
        let front = self.server.link.ledger.front();
        front.is_some_and(|entry| entry.effects().described.is_some())
    }

    /// Remembers a statement's description: for the server always, and for the client if the
    /// Describe was the client's. A description that can't be read is not compared; PostgreSQL
    /// sends none.
    pub(super) fn described(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Result<(), Halt> {
        let body = chunk.rest().get(HEADER..header.total());
        if body.is_none() && header.total() <= limits::HELD_MESSAGE {
            return Err(downstream::Halt::Partial);
        }
        if let Some(described) = self.server.link.ledger.described() {
            if header.tag == tag::PARAMETER_DESCRIPTION {
                described.parameters = body.map(Box::from);
            } else {
                let (key, asked) = (described.key, described.asked.clone());
                let parameters = described.parameters.take();
                let told = parameters.zip(body).and_then(|(parameters, body)| {
                    let shape = Shape::read(&parameters, body)?;
                    Some(StatementDescription { shape, parameters })
                });
                let shape = told.as_ref().map_or(Shape::UNREADABLE, |told| told.shape);
                self.server.statements.describe(key, shape);
                if let Some((told, body)) = told.as_ref().zip(body)
                    && let Some(statement) = self.server.statements.get(key)
                    && self.is_for_all(&statement)
                {
                    statement.keep_columns(told, header.tag, body);
                }
                if let Some(asked) = asked {
                    self.was_told(&asked, told);
                }
            }
        }
        self.passing(chunk, header)
    }

    /// True if the description that has come is certain to be the one that any client would get who
    /// parses this text now with the settings of this one.
    fn is_for_all(&self, statement: &Arc<Statement>) -> bool {
        let Some(client) = self.side.client() else {
            return false;
        };
        // Where PostgreSQL looks names up is not what the client's settings say.
        let session = client.session.as_deref();
        let elsewhere = self.server.session.changes.end_matters()
            || client.has_temporary()
            || session.is_some_and(|session| !session.pending.is_empty());
        let interner = &self.shared.statements;
        !elsewhere
            && statement.schema == interner.schema(self.schema)
            && interner.is_of(statement, self.schema, client.meaning)
            && self.server.confirms(statement).is_some()
    }

    /// A client has received the description of one of its statements.
    fn was_told(&mut self, asked: &Asked, told: Option<StatementDescription>) {
        let Some(client) = self.side.client_mut() else {
            return;
        };
        // The client may have given the name to another statement since.
        let named = client.statements.told_mut(&asked.name);
        let Some(named) = named.filter(|named| named.number == asked.number) else {
            return;
        };
        // After this transaction, a statement that was parsed before it may have other columns.
        if self.server.session.changes.are_private() && !named.statement.private {
            return;
        }
        named.told = told.map(|told| named.statement.share(told));
        named.recited = false;
    }

    /// True for an error because PostgreSQL's objects changed after the statement was parsed.
    pub(super) fn is_stale(&self, fields: Fields<'_>) -> bool {
        let routine = fields.iter().find(|(code, _)| *code == b'R');
        if routine.is_some_and(|(_, routine)| routine == b"RevalidateCachedQuery") {
            // "cached plan must not change result type", in any language of PostgreSQL.
            return true;
        }
        // A type, table, column or function was dropped.
        let reply = self.server.link.ledger.front().map(|entry| entry.reply);
        matches!(reply, Some(Reply::Bind | Reply::Describe))
            && fields.sqlstate().is_some_and(|code| {
                // 42501: the user may not read the table. This says nothing about the table's
                // columns. 42601: a value is no `tsquery` or `jsonpath`, or the like.
                let of_values = [&b"42501"[..], b"42601"].contains(&code);
                code == b"XX000" || code.starts_with(b"42") && !of_values
            })
    }

    /// Howdah sends an unknown statement name in place of a statement that the server can't use. If
    /// this error is PostgreSQL's answer to that name, returns the reason that the client must get.
    pub(super) fn refusal(&self, fields: Fields<'_>) -> Option<Refusal> {
        let front = self.server.link.ledger.front()?;
        match front.effects().name.as_ref()?.change {
            Change::Refused(why) if fields.sqlstate() == Some(b"26000") => Some(why),
            _ => None,
        }
    }

    /// At a Describe, PostgreSQL sends the parameters' types first, and only then finds that the
    /// columns have changed. So before the error, the client gets the parameter types that it
    /// knows.
    pub(super) fn tell_described_parameters(&mut self) {
        let Some(client) = self.side.client() else {
            return;
        };
        let front = self.server.link.ledger.front();
        let name = match front {
            // The client's own Describe, which waits for Howdah's Describe.
            Some(front) if front.effects().described.is_some() && front.swallow => {
                described(client.inbox.held())
            }
            Some(front) if front.reply == Reply::Describe => {
                front.effects().name.as_ref().map(|op| &*op.name)
            }
            _ => None,
        };
        let named = name.and_then(|name| client.statements.get(name));
        if let Some(told) = named.and_then(|named| named.told.as_ref()) {
            self.side.tell(self.out, |buf| {
                write::message(buf, tag::PARAMETER_DESCRIPTION, |buf| {
                    buf.extend_from_slice(&told.parameters);
                });
            });
        }
    }

    /// Sends the client the reason why the statement can't be used here.
    pub(super) fn tell_refusal(&mut self, fields: Fields<'_>, why: Refusal) {
        let sharded = self
            .side
            .client()
            .and_then(|client| client.sharded.as_ref());
        if let (Refusal::Shard, Some(error)) = (why, sharded.and_then(|sharded| sharded.refusal()))
        {
            let error = error.clone();
            return self.side.tell(self.out, |buf| error.write(buf));
        }
        self.tell_instead(fields, why.words());
    }

    /// Sends the client PostgreSQL's error for any statement in a failed transaction.
    pub(super) fn tell_failed(&mut self, fields: Fields<'_>) {
        self.tell_instead(fields, refusal::ABORTED);
    }

    /// Sends an error with other words, but with the severity of the error that came.
    fn tell_instead(&mut self, fields: Fields<'_>, others: refusal::Words) {
        self.side.tell(self.out, |buf| {
            write::message(buf, tag::ERROR, |buf| {
                let severity = fields
                    .iter()
                    .filter(|(field, _)| matches!(field, b'S' | b'V'));
                for (field, value) in severity.chain(others.iter().copied()) {
                    buf.push(field);
                    buf.extend_from_slice(value);
                    buf.push(0);
                }
                buf.push(0);
            });
        });
    }
}

/// The name of the statement, if the client's next message is a Describe of a statement.
fn described(held: &[u8]) -> Option<&[u8]> {
    let header = header(held)?.ok()?;
    let body = held.get(HEADER..header.total())?;
    match Subject::read(header.tag, body) {
        Ok(Subject::Statement(name)) if header.tag == frontend::DESCRIBE => Some(name),
        _ => None,
    }
}
