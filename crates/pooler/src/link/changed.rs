//! Statements that a change of the schema made into others.
//!
//! After `ALTER TABLE t ADD c int` PostgreSQL refuses a `SELECT * FROM t` that was parsed before. A
//! server that has not parsed this statement yet would give the new rows instead, and the client would
//! read them by the old description. So once the schema is known to have changed, what clients were
//! told at their Describes is compared with what servers have. Where the two differ, the client gets
//! PostgreSQL's error.

use howdah_wire::backend::Fields;
use howdah_wire::frame::{HEADER, Header, header};
use howdah_wire::frontend::Target;
use howdah_wire::tag::{backend as tag, frontend};
use howdah_wire::write;

use super::downstream::{self, Downstream, Halt};
use super::portal::Bound;
use super::prepare::There;
use super::upstream::{self, Upstream};
use crate::event::Peer;
use crate::fault;
use crate::inbox::Chunk;
use crate::ledger::{Asked, Change, Described, Entry, Refusal, Reply};
use crate::limits;
use crate::statement::{Named, Shape, StatementDescription, server_name};

/// What clients ask.
impl Upstream<'_> {
    /// Whether a statement gives other rows on this server than its client was told, because the server
    /// has parsed it after the schema changed. (PostgreSQL refuses a statement that was parsed before.)
    /// Waits until that is known.
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
        let server = self.linked();
        // Parsed under other settings a text is another statement. So it is once the transaction has
        // ended that the statement was private to.
        let late = late || named.statement.private;
        if same && !late && !server.link.changes.are_private() {
            return Ok(false);
        }
        if let Some(shape) = server.set.shape(key) {
            return Ok(told.shape != shape);
        }
        if !server.link.ledger.checks(key) {
            self.describe_for_us(key, named.number, None);
        }
        Err(self.stall())
    }

    /// A client has a portal described, and has not had its statement described. The client may take
    /// the portal's description for the statement's: so what the statement is must be known.
    pub(super) fn learn(&mut self, bound: Bound) {
        let Bound {
            key,
            statement,
            asked,
            ..
        } = bound;
        let server = self.linked();
        if server.link.ledger.tells(asked.number) {
            return;
        }
        // In a transaction with DDL PostgreSQL is asked, and `was_told` decides when the answer comes:
        // by then a pipelined COMMIT may have ended that transaction.
        let transient = server.link.changes.are_private() && !statement.private;
        let here = server.set.shape(key).filter(|_| !transient);
        let known = statement.told().filter(|told| here == Some(told.shape));
        let Some(known) = known.cloned() else {
            return self.describe_for_us(key, asked.number, Some(asked));
        };
        let named = match server.link.ledger.pending_definition(asked.number) {
            Some(named) => Some(named),
            None => self.client.names.get_mut(&asked.name),
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

/// What PostgreSQL answers.
impl Downstream<'_> {
    /// What comes is the description of a statement that may become something else.
    pub(super) fn describes(&self) -> bool {
        let front = self.server.link.ledger.front();
        front.is_some_and(|entry| entry.effects().described.is_some())
    }

    /// Remembers the description of a statement: behind a client's Describe as what the client was
    /// told, else as what the server has. A description that can't be read (PostgreSQL sends none such)
    /// is not compared.
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
                self.server.set.describe(key, shape);
                if let Some(asked) = asked {
                    self.was_told(&asked, told);
                }
            }
        }
        self.passing(chunk, header)
    }

    /// The client is told what one of its statements is.
    fn was_told(&mut self, asked: &Asked, told: Option<StatementDescription>) {
        let Some((_, client)) = &mut self.client else {
            return;
        };
        // The client may have given the name to another statement since.
        let named = client.names.get_mut(&asked.name);
        let Some(named) = named.filter(|named| named.number == asked.number) else {
            return;
        };
        // A statement that was parsed before may be something else once this transaction is over.
        if self.server.link.changes.are_private() && !named.statement.private {
            return;
        }
        named.told = told.map(|told| named.statement.share(told));
    }

    /// An error about a statement that PostgreSQL had parsed without one: what it was parsed for
    /// has changed.
    pub(super) fn is_stale(&self, fields: Fields<'_>) -> bool {
        let routine = fields.iter().find(|(code, _)| *code == b'R');
        if routine.is_some_and(|(_, routine)| routine == b"RevalidateCachedQuery") {
            // "cached plan must not change result type", in any language.
            return true;
        }
        // A type, table, column or function that is gone.
        let reply = self.server.link.ledger.front().map(|entry| entry.reply);
        matches!(reply, Some(Reply::Bind | Reply::Describe))
            && fields.sqlstate().is_some_and(|code| {
                // 42501: the user may not read the table, which says nothing about its columns.
                code == b"XX000" || code.starts_with(b"42") && code != b"42501"
            })
    }

    /// PostgreSQL refuses what stands in the place of a statement that can't be used here.
    pub(super) fn refusal(&self, fields: Fields<'_>) -> Option<Refusal> {
        let front = self.server.link.ledger.front()?;
        match front.effects().name.as_ref()?.change {
            Change::Refused(why) if fields.sqlstate() == Some(b"26000") => Some(why),
            _ => None,
        }
    }

    /// To a Describe PostgreSQL tells the parameters' types before it finds that the rows have
    /// changed, or can't be told.
    pub(super) fn tell_described_parameters(&mut self) {
        let Some((id, client)) = &self.client else {
            return;
        };
        let front = self.server.link.ledger.front();
        let name = match front {
            // The client's own Describe, which waits for ours.
            Some(front) if front.effects().described.is_some() && front.swallow => {
                described(client.inbox.held())
            }
            Some(front) if front.reply == Reply::Describe => {
                front.effects().name.as_ref().map(|op| &*op.name)
            }
            _ => None,
        };
        let named = name.and_then(|name| client.names.get(name));
        if let Some(told) = named.and_then(|named| named.told.as_ref()) {
            self.out.send_with(Peer::Client(*id), |buf| {
                write::message(buf, tag::PARAMETER_DESCRIPTION, |buf| {
                    buf.extend_from_slice(&told.parameters);
                });
            });
        }
    }

    /// Why a statement can't be used here.
    pub(super) fn tell_refusal(&mut self, fields: Fields<'_>, why: Refusal) {
        self.tell_instead(fields, why.words());
    }

    /// What PostgreSQL says of a statement that it has, in a transaction that has failed.
    pub(super) fn tell_failed(&mut self, fields: Fields<'_>) {
        self.tell_instead(fields, fault::ABORTED);
    }

    /// An error of the severity of one that came.
    fn tell_instead(&mut self, fields: Fields<'_>, others: fault::Words) {
        let Some((client, _)) = &self.client else {
            return;
        };
        self.out.send_with(Peer::Client(*client), |buf| {
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

/// The statement that a client's next message describes, if it does that.
fn described(held: &[u8]) -> Option<&[u8]> {
    let header = header(held)?.ok()?;
    let body = held.get(HEADER..header.total())?;
    match Target::read(header.tag, body) {
        Ok(Target::Statement(name)) if header.tag == frontend::DESCRIBE => Some(name),
        _ => None,
    }
}
