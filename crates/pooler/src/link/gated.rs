//! The messages of a client of a sharded database, while it has a server: what belongs to another
//! shard is refused ([`crate::shard`]).

use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, Header};
use howdah_wire::frontend::BindNames;
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use super::upstream::{Flow, Upstream, await_whole, needs_server, whole};
use crate::effect::ShardedText;
use crate::event::{ClientId, Out};
use crate::inbox::Chunk;
use crate::ledger::{Entry, Refusal, Reply};
use crate::limits;
use crate::link::ends::Farewell;
use crate::next::Next;
use crate::pooler::Pooler;
use crate::shard::bound_text::{BoundText, Decision};
use crate::shard::error::ShardError;
use crate::shard::group::{GroupRead, read_group};
use crate::shard::{Sharded, hint_of};

impl Upstream<'_> {
    /// Looks at a message before it is sent. True if the message is handled.
    #[cold]
    pub(super) fn gate(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Result<bool, Flow> {
        if !needs_server(header.tag) && header.tag != tag::FUNCTION_CALL {
            return Ok(false);
        }
        if self.server.link.ledger.owes_ready() {
            // Those answers show whether the transaction is over.
            return Err(self.stall());
        }
        if !self.server.link.group_open()
            && let Some(sharded) = self.client.sharded_mut()
        {
            sharded.binds(false);
        }
        self.gate_group(chunk, header)?;
        let refused = match header.tag {
            tag::QUERY => return self.gate_query(chunk, header),
            tag::FUNCTION_CALL => self
                .client
                .sharded
                .as_ref()
                .map_or(Ok(()), |of| of.function_call()),
            tag::BIND => self.gate_bind(chunk, header)?,
            _ => Ok(()),
        };
        let Err(error) = refused else {
            return Ok(false);
        };
        let reply = match header.tag {
            tag::BIND => Reply::Bind,
            _ => Reply::Query,
        };
        self.refuse_elsewhere(chunk, header, (reply, error));
        Ok(true)
    }

    fn gate_query(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Result<bool, Flow> {
        let text = match whole(chunk, header) {
            Some(body) => Some(body.strip_suffix(b"\0").unwrap_or(body)),
            None => {
                self.hold_for_gate(header)?;
                None
            }
        };
        let is_over = self.server.status == Status::Idle && !self.server.link.group_open();
        let sharded = self.client.sharded_mut();
        let sharded = sharded.expect("the database is sharded");
        if is_over {
            sharded.transaction_is_over();
        }
        let refused = match text.map(ShardedText::read) {
            Some(ShardedText::Set {
                setting,
                value,
                local: true,
            }) => {
                let hint = value.map(|value| hint_of(setting, &value));
                let shard = hint.as_ref().map(|hint| sharded.shard_of(hint)).transpose();
                let fits = shard.and_then(|shard| match shard {
                    Some(shard) => sharded.fits(&Decision::At(shard)),
                    None => Ok(()),
                });
                if fits.is_ok() && !is_over {
                    sharded.says_locally(hint);
                }
                fits
            }
            Some(ShardedText::Set { .. } | ShardedText::Reset(_)) => Err(ShardError::set_inside()),
            Some(ShardedText::Show(setting)) => {
                let value = sharded.value(setting).replace('\'', "''");
                let name = setting.name();
                let sql = format!("SELECT '{value}'::text AS \"{name}\"");
                let mut entry = self.query_entry();
                entry.barrier = true;
                self.push(entry);
                let to = self.to();
                self.out
                    .send_with(to, |buf| write::query(buf, sql.as_bytes()));
                self.skip(chunk, header);
                return Ok(true);
            }
            read => {
                if read == Some(ShardedText::ResetAll) && is_over {
                    sharded.says_as_at_login();
                }
                self.gate_statement(&BoundText::query(text))?
            }
        };
        let Err(error) = refused else {
            return Ok(false);
        };
        self.refuse_elsewhere(chunk, header, (Reply::Query, error));
        Ok(true)
    }

    /// A message of which a part is missing must be held whole. Returns `Ok` if there will never be room
    /// for it.
    fn hold_for_gate(&mut self, header: Header) -> Result<(), Flow> {
        if header.total() <= limits::SHARDED {
            await_whole(self.client, self.share, true, header)?;
        }
        Ok(())
    }

    /// Whether a statement may be bound here.
    fn gate_bind(
        &mut self,
        chunk: &Chunk<'_>,
        header: Header,
    ) -> Result<Result<(), ShardError>, Flow> {
        if self.client.status_ahead() != Status::Idle {
            self.leave_group()?;
            return Ok(Err(ShardError::begins_in_group()));
        }
        let Some(body) = whole(chunk, header) else {
            self.hold_for_gate(header)?;
            return self.gate_statement(&BoundText::query(None));
        };
        let Some(names) = BindNames::read(body) else {
            // PostgreSQL answers with its own error.
            return Ok(Ok(()));
        };
        let Some(statement) = self.lookup(names.statement) else {
            // Too long to be remembered, or it does not exist.
            return self.gate_statement(&BoundText::query(None));
        };
        if let ShardedText::Set { .. } | ShardedText::Reset(_) | ShardedText::Show(_) =
            ShardedText::read(statement.text())
        {
            return Ok(Err(ShardError::set_in_group()));
        }
        self.gate_statement(&BoundText::bound(&statement.definition, body))
    }

    /// Whether a statement may run on the client's server.
    fn gate_statement(
        &mut self,
        statement: &BoundText<'_>,
    ) -> Result<Result<(), ShardError>, Flow> {
        let changes = &self.server.session.changes;
        let is_private = changes.are_private() || changes.looks_elsewhere();
        let is_over = self.server.status == Status::Idle && !self.client.is_pinned();
        let sharded = self.client.sharded.as_deref();
        let sharded = sharded.expect("the database is sharded");
        let planning = self.planning.as_mut().expect("the database is sharded");
        let mut reader = planning.reader(self.client, self.tracked, is_private);
        let decision = sharded.decide(statement, &mut reader, sharded.has_all());
        let noted = std::mem::take(&mut reader.noted);
        if let Decision::NeedsCatalogue { unknown } = decision {
            return Err(Flow::NeedCatalogue { unknown });
        }
        if sharded.has_guessed_wrong(&decision) && self.may_leave() {
            return Err(Flow::NeedShard);
        }
        let fits = sharded.fits(&decision);
        let is_elsewhere = !matches!(decision, Decision::Refused(_)) && fits.is_err();
        if is_elsewhere && (is_over || sharded.is_guessing()) {
            self.leave_group()?;
        }
        if let (Some(sharded), Some(planning)) = (self.client.sharded_mut(), &mut self.planning) {
            let begins = is_over && !sharded.has_bound();
            planning.count(sharded, statement.text, &fits, (noted, begins));
            sharded.knows_all(false);
            sharded.guesses(&decision, statement.text);
            sharded.binds(true);
        }
        Ok(fits)
    }

    /// The client has sent only Parse and Describe since its last Sync, perhaps with a Flush, and its Bind
    /// belongs elsewhere: a Sync, whose answer the client does not see, ends the group here.
    fn leave_group(&mut self) -> Result<(), Flow> {
        let link = &self.server.link;
        let sharded = self.client.sharded.as_ref();
        if !link.group_open() || sharded.is_some_and(|sharded| sharded.has_bound()) {
            return Ok(());
        }
        let to = self.to();
        self.out.send_with(to, |buf| write::empty(buf, tag::SYNC));
        self.push(Entry::swallow(Reply::Sync));
        Err(self.stall())
    }

    /// True if nothing but the transaction is open on the server.
    fn may_leave(&self) -> bool {
        let server = &*self.server;
        server.status == Status::Transaction
            && !server.link.is_owed()
            && !server.link.group_open()
            && !self.client.is_pinned()
    }

    /// The first message of a group in a transaction that runs on a guess: a statement of the group may
    /// belong elsewhere.
    fn gate_group(&mut self, chunk: &Chunk<'_>, header: Header) -> Result<(), Flow> {
        let is_guessing = self.client.sharded.as_ref();
        let is_guessing = is_guessing.is_some_and(|sharded| sharded.is_guessing());
        if !is_guessing || !matches!(header.tag, tag::PARSE | tag::BIND) || !self.may_leave() {
            return Ok(());
        }
        let sharded = self.client.sharded.as_deref();
        let sharded = sharded.expect("the database is sharded");
        let planning = self.planning.as_mut().expect("the database is sharded");
        let mut reader = planning.reader(self.client, self.tracked, false);
        let read = read_group(self.client, chunk.rest(), &mut |statement| {
            sharded.decide(&statement, &mut reader, sharded.has_all())
        });
        match read {
            GroupRead::Partial(size) => {
                let body = size.saturating_sub(HEADER) as u32;
                self.hold_for_gate(Header { body, ..header })
            }
            GroupRead::Decided(Decision::NeedsCatalogue { unknown }) => {
                Err(Flow::NeedCatalogue { unknown })
            }
            GroupRead::Decided(decision) if sharded.has_guessed_wrong(&decision) => {
                Err(Flow::NeedShard)
            }
            _ => Ok(()),
        }
    }

    /// Refuses a message, and so fails the transaction.
    fn refuse_elsewhere(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        (reply, error): (Reply, ShardError),
    ) {
        if let Some(sharded) = self.client.sharded_mut() {
            sharded.refuses(error);
        }
        let mut entry = match reply {
            Reply::Query => self.query_entry(),
            reply => Entry::forward(reply),
        };
        entry.barrier = reply == Reply::Query;
        self.client.inbox.gives_room_back();
        self.refuse(chunk, header, entry, Refusal::Shard);
    }
}

impl Pooler {
    /// A client's server begins the transaction that the client has begun. The client's messages wait.
    #[cold]
    pub(crate) fn begin_late(&mut self, id: ClientId, out: &mut Out) {
        let client = self.clients.at_mut(id);
        let server_id = client.linked_server().expect("the client has a server");
        let text = client.sharded_mut().and_then(Sharded::takes_begin);
        let server = self.servers.at_mut(server_id);
        if let Some(text) = text {
            server.runs_for_us(server_id, &text, out);
            super::bind::bind_held((id, client), (server_id, server));
        }
    }

    /// A client's transaction has begun on the wrong shard, on a guess. It is rolled back there, and
    /// begins again where its next statement belongs.
    pub(super) fn leave_guess(&mut self, id: ClientId, out: &mut Out) {
        if let Some(sharded) = self.clients.at_mut(id).sharded_mut() {
            sharded.begins_elsewhere();
        }
        self.leave_server(id, Farewell::Orderly, out);
        self.next.note(Next::Resume(id));
    }
}
