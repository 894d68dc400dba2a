//! Errors from PostgreSQL: whether the client sees them, and with which text.

use howdah_wire::backend::{Fields, Status};
use howdah_wire::frame::Header;
use howdah_wire::tag::backend as tag;
use howdah_wire::write;

use super::downstream::{Downstream, Halt};
use super::prepare::{Concerned, concerned, failed};
use crate::errors::ErrorSource;
use crate::fault::Fault;
use crate::inbox::{Chunk, Fate};
use crate::ledger::{Part, Refusal, Reply};
use crate::limits;
use crate::server::Ending;

/// Stands for the SQLSTATE of an error without one.
const NO_SQLSTATE: &str = "XX000";

/// What Howdah sends the client for an error of PostgreSQL.
enum Telling {
    /// Nothing yet: the error came after the answer to an inquiry of Howdah, and it is undecided
    /// whether the client keeps this server.
    NothingYet,
    /// Nothing: a request of Howdah's has failed, or there is no client.
    Ours,
    /// Nothing: a message that Howdah sent along with the client's command has failed. The client's
    /// command has failed before, or is about to fail.
    Echo,
    /// The error of a message that Howdah sent along before: for that error the client's command
    /// has failed.
    Earlier(Box<[u8]>),
    /// PostgreSQL's error for a transaction that has failed before.
    FailedBefore,
    /// The reason why the statement can't be used here.
    Refusal(Refusal),
    /// The error, with the client's name for the statement instead of the server's.
    Renamed(Concerned),
    /// The unchanged error.
    AsItIs,
}

impl Downstream<'_> {
    /// Handles an error from PostgreSQL. `body` is its beginning.
    #[cold]
    #[inline(never)]
    pub(super) fn error(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        body: &[u8],
    ) -> Result<(), Halt> {
        let fields = Fields::new(body);
        self.server.link.ledger.note_error(fields.sqlstate());
        self.note_failure();
        let concerned = self.concerned(header);
        self.doubt_statements(fields, concerned.as_ref());
        let refusal = self.refusal(fields);
        let reply = self.server.link.ledger.front().map(|entry| entry.reply);
        let simple = reply.is_none_or(Reply::gets_ready);
        let copy_unclear = self.fail_copy(fields);
        let dies = matches!(fields.severity(), b"FATAL" | b"PANIC");
        if self.server.link.ledger.has_settings() && !dies {
            return self.settings_refused(chunk, header, fields);
        }
        if dies {
            self.server.close_at_release(Ending::Crashed);
        }
        if self.parameters_come_first(refusal) {
            self.tell_described_parameters();
        }
        let telling = self.telling(fields, body, simple, refusal, concerned);
        self.count(&telling, fields);
        match telling {
            Telling::NothingYet => {
                self.server.close_at_release(if dies {
                    Ending::CrashedUnheard
                } else {
                    Ending::Dirty
                });
                self.pass_front(chunk, header, Fate::Drop);
            }
            Telling::Ours => {
                self.aside().task_error = Some(fields.texts(NO_SQLSTATE));
                if dies {
                    self.server.close_at_release(Ending::CrashedUnheard);
                }
                self.pass_front(chunk, header, Fate::Drop);
            }
            Telling::Echo => {
                // A longer error is not kept: the client gets the Query's own.
                if reply == Some(Reply::Parse) && header.total() <= chunk.rest().len() {
                    self.server.link.refuses_name(body);
                }
                self.pass_front(chunk, header, Fate::Drop);
            }
            Telling::Earlier(error) => {
                self.tell_earlier(&error);
                self.pass_front(chunk, header, Fate::Drop);
            }
            Telling::FailedBefore => {
                self.tell_failed(fields);
                self.pass_front(chunk, header, Fate::Drop);
            }
            Telling::Refusal(refusal) => {
                self.tell_refusal(fields, refusal);
                self.pass_front(chunk, header, Fate::Drop);
            }
            Telling::Renamed(concerned) => {
                self.rename_error(fields, &concerned);
                chunk.at += header.total();
            }
            Telling::AsItIs => self.pass_front(chunk, header, Fate::Relay),
        }
        if simple {
            self.server.link.ledger.keep_names();
        } else {
            failed(self.side.client_mut(), self.server);
        }
        if copy_unclear {
            Err(Halt::Broken(Fault::CopyUnclear))
        } else {
            Ok(())
        }
    }

    /// Counts an error that the client gets.
    fn count(&mut self, telling: &Telling, fields: Fields<'_>) {
        let (source, sqlstate) = match telling {
            Telling::NothingYet | Telling::Ours | Telling::Echo => return,
            Telling::Earlier(error) => (ErrorSource::Server, Fields::new(error).sqlstate()),
            Telling::Refusal(refusal) => (ErrorSource::Pooler, Some(refusal.sqlstate())),
            Telling::FailedBefore => (ErrorSource::Server, Some(&b"25P02"[..])),
            Telling::Renamed(_) | Telling::AsItIs => (ErrorSource::Server, fields.sqlstate()),
        };
        let sqlstate = sqlstate.unwrap_or(NO_SQLSTATE.as_bytes());
        self.aside().errors.count(source, sqlstate);
    }

    /// PostgreSQL has refused the client's settings and skips the client's messages after them.
    fn settings_refused(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        fields: Fields<'_>,
    ) -> Result<(), Halt> {
        const CANCELLED: &str = "57014";
        // It is unknown which settings the server has, and Howdah's own transaction is open there.
        self.server.close_at_release(Ending::SettingsRefused);
        let (sqlstate, message) = fields.texts(NO_SQLSTATE);
        let request = self.server.link.owes_ready();
        let whole = header.total() <= chunk.rest().len();
        let Some(client) = self.side.client_mut() else {
            // The client has left, or Howdah holds its messages.
            self.aside().task_error = Some((sqlstate, message));
            self.pass_front(chunk, header, Fate::Drop);
            failed(None, self.server);
            if self.server.link.ledger.ends_in_failed_group() {
                // The server will be closed without a Sync.
                self.server.link.ledger.close_group();
            }
            return Ok(());
        };
        if sqlstate != CANCELLED || client.inbox.relaying() || !whole {
            return Err(Halt::Refused(sqlstate, message));
        }
        failed(Some(client), self.server);
        if request {
            client.end.group_ends();
        }
        self.pass_front(chunk, header, Fate::Relay);
        Err(Halt::Missed { request })
    }

    /// A message of the client has failed. The session may have less state than the client's texts
    /// suggest.
    fn note_failure(&mut self) {
        let Some(client) = self.side.client_mut() else {
            return;
        };
        client.read_fails();
        if let Some(sharded) = client.sharded_mut() {
            sharded.transaction.fails();
        }
        let listens = client.listens();
        let Some(session) = client.session_if_any() else {
            return;
        };
        session.pending.fails();
        if let Some(own) = session.channels.as_mut().filter(|_| listens) {
            own.failed = true;
        }
    }

    /// The statement of an error, if the error is short enough to rewrite.
    fn concerned(&mut self, header: Header) -> Option<Concerned> {
        let client = self.side.client()?;
        let statements = &mut self.shared.statements;
        let concerned = concerned(client, self.server, self.schema, statements);
        concerned.filter(|_| header.total() <= limits::ERROR_FRONT)
    }

    /// The error may say that the server lacks a statement, or that the statement's schema has
    /// changed.
    fn doubt_statements(&mut self, fields: Fields<'_>, concerned: Option<&Concerned>) {
        let Some(statement) = concerned.and_then(|concerned| concerned.statement.as_ref()) else {
            return;
        };
        if fields.sqlstate() == Some(b"26000") {
            self.server.close_at_release(Ending::StatementsLost);
        }
        if self.is_stale(fields) && !self.server.session.changes.are_private() {
            self.shared.statements.stale(self.schema, statement);
        }
    }

    /// An error ends the COPY from the client, if one is open. True if the client has sent a
    /// message that breaks the COPY, but another error came: PostgreSQL may answer the message.
    fn fail_copy(&mut self, fields: Fields<'_>) -> bool {
        let copy = self.server.link.copy;
        if copy.eaten() > 0 || copy.is_broken() {
            // PostgreSQL may have failed before it read a message that does not belong in a COPY.
            // It may then still answer the message, and no other client may get that answer.
            self.server.close_at_release(Ending::CopyFailed);
        }
        self.server.link.copy.fail();
        copy.is_broken() && fields.sqlstate() != Some(b"08P01")
    }

    /// True if PostgreSQL would have sent the parameter types before the error.
    fn parameters_come_first(&mut self, refusal: Option<Refusal>) -> bool {
        let changed = refusal == Some(Refusal::Changed) && !self.failed_before();
        let described = self.server.link.ledger.described();
        let in_check = described.is_some_and(|d| d.asked.is_none() && d.parameters.is_some());
        changed || in_check
    }

    /// True if the transaction had failed before. PostgreSQL checks this first.
    fn failed_before(&self) -> bool {
        self.server.status == Status::Failed
    }

    fn telling(
        &mut self,
        fields: Fields<'_>,
        body: &[u8],
        simple: bool,
        refusal: Option<Refusal>,
        concerned: Option<Concerned>,
    ) -> Telling {
        let front = self.server.link.ledger.front();
        let echo = front.is_some_and(|entry| {
            let named = entry.swallow && entry.reply == Reply::Parse;
            entry.part() == Part::Rest && (named || fields.sqlstate() == Some(b"25P02"))
        });
        let names = front.is_some_and(|entry| entry.effects().sql_names.is_some());
        let nobody = !self.side.is_client() || self.is_nobodys();
        if self.server.session.inquiry.is_some() && front.is_none() {
            Telling::NothingYet
        } else if simple && self.swallowing() || nobody {
            Telling::Ours
        } else if echo {
            Telling::Echo
        } else if names
            && matches!(fields.sqlstate(), Some(b"26000" | b"25P02"))
            && let Some(error) = self.server.link.take_refused_name()
        {
            Telling::Earlier(error)
        } else if let Some(refusal) = refusal {
            if self.failed_before() {
                Telling::FailedBefore
            } else {
                Telling::Refusal(refusal)
            }
        } else if let Some(concerned) = concerned
            && contains(body, &concerned.server_name)
        {
            Telling::Renamed(concerned)
        } else {
            Telling::AsItIs
        }
    }

    /// Sends an error that came before.
    fn tell_earlier(&mut self, error: &[u8]) {
        self.side.tell(self.out, |buf| {
            write::message(buf, tag::ERROR, |buf| buf.extend_from_slice(error));
        });
    }

    /// Rewrites the error with the client's name for the statement instead of the server's.
    fn rename_error(&mut self, fields: Fields<'_>, concerned: &Concerned) {
        self.side.tell(self.out, |buf| {
            write::message(buf, tag::ERROR, |buf| {
                for (code, value) in fields.iter() {
                    buf.push(code);
                    replace(buf, value, &concerned.server_name, &concerned.name);
                    buf.push(0);
                }
                buf.push(0);
            });
        });
    }
}

/// Appends a text with each `from` replaced by `to`.
fn replace(buf: &mut Vec<u8>, mut text: &[u8], from: &[u8], to: &[u8]) {
    while let Some(at) = text.windows(from.len()).position(|window| window == from) {
        buf.extend_from_slice(&text[..at]);
        buf.extend_from_slice(to);
        text = &text[at + from.len()..];
    }
    buf.extend_from_slice(text);
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
