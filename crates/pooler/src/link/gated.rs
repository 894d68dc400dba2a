//! The messages of a client of a sharded database, while it has a server: what belongs to another
//! shard is refused ([`crate::shard`]).

use std::sync::Arc;

use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, Header};
use howdah_wire::frontend::BindNames;
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use super::assign::evict_statements;
use super::upstream::{Flow, Upstream, await_whole, is_long_parse, needs_server, whole};
use crate::config::Shard;
use crate::effect::{ShardSetting, ShardedText, resets_all};
use crate::event::{ClientId, Out, Peer};
use crate::inbox::Chunk;
use crate::ledger::{Entry, Refusal, Reply};
use crate::limits;
use crate::link::ends::Farewell;
use crate::next::Next;
use crate::pooler::Pooler;
use crate::shard::bound_text::{BoundText, Decision};
use crate::shard::error::ShardError;
use crate::shard::group::{GroupRead, read_group};
use crate::shard::hint_of;
use crate::shard::noted::Noted;
use crate::statement::Statement;

impl Upstream<'_> {
    /// Looks at a message before it is sent. True if the message is handled.
    #[cold]
    pub(super) fn gate(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Result<bool, Flow> {
        if !needs_server(header.tag) && header.tag != tag::FUNCTION_CALL {
            return Ok(false);
        }
        let handled = self.gate_message(chunk, header)?;
        let server = &mut *self.server;
        let most = self.globals.max_prepared_statements as usize;
        if !handled && !server.link.group_open() && server.statements.outgrows(most) {
            evict_statements(self.server_id, server, most, self.out);
        }
        Ok(handled)
    }

    fn gate_message(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Result<bool, Flow> {
        if self.server.link.ledger.owes_ready() {
            // Those answers show whether the transaction is over.
            return Err(self.stall());
        }
        if !self.server.link.group_open() {
            let is_over = self.server.status == Status::Idle;
            let sharded = self.client.sharded_mut();
            let sharded = sharded.expect("the database is sharded");
            sharded.binds(false);
            if is_over {
                sharded.transaction_is_over();
            }
            let may_go = is_over || sharded.transaction.is_guessed();
            if may_go && !self.client.is_pinned() && !self.server.inbox.at_boundary() {
                // The client must not leave its server in the middle of a notice.
                return Err(self.stall());
            }
        }
        self.gate_group(chunk, header)?;
        let refused = match header.tag {
            tag::QUERY => return self.gate_query(chunk, header),
            tag::FUNCTION_CALL => self
                .client
                .sharded
                .as_ref()
                .map_or(Ok(()), |of| of.function_call()),
            // Howdah does not remember the text.
            tag::PARSE if is_long_parse(chunk.rest(), header) => {
                self.gate_statement(&BoundText::query(None), None)?
            }
            tag::BIND => self.gate_bind(chunk, header)?,
            _ => Ok(()),
        };
        let Err(error) = refused else {
            return Ok(false);
        };
        let reply = match header.tag {
            tag::PARSE | tag::BIND => Reply::Bind,
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
        let read = text.map(ShardedText::read);
        let is_over = self.server.status == Status::Idle && !self.client.is_pinned();
        if is_over && read.as_ref().is_some_and(ShardedText::is_own) {
            // Howdah answers once the client has no server.
            self.leave_group()?;
        }
        if let Some(ShardedText::Set { .. } | ShardedText::Reset(_) | ShardedText::Show(_)) = &read
        {
            if self.may_be_placed_anew() {
                return Err(Flow::NeedShard);
            }
            if let Some(text) = text
                && self.answer_kept(chunk, header, text)
            {
                return Ok(true);
            }
        }
        let refused = match read {
            Some(ShardedText::Set {
                setting,
                value,
                local: true,
            }) => self.gate_local((setting, value))?,
            Some(ShardedText::Set { .. } | ShardedText::Reset(_)) => Err(ShardError::set_inside()),
            Some(ShardedText::Show(setting)) => {
                self.show_hint(setting);
                self.skip(chunk, header);
                return Ok(true);
            }
            _ => {
                let handed = self.handed(chunk.at, None);
                let fits = self.gate_statement(&BoundText::query(text), handed)?;
                self.resets_hints(fits.is_ok(), text.unwrap_or_default());
                fits
            }
        };
        let Err(error) = refused else {
            return Ok(false);
        };
        self.refuse_elsewhere(chunk, header, (Reply::Query, error));
        Ok(true)
    }

    /// Outside of a transaction, RESET ALL and DISCARD ALL take back what the client says.
    fn resets_hints(&mut self, runs: bool, text: &[u8]) {
        if runs
            && self.server.status == Status::Idle
            && resets_all(text)
            && let Some(sharded) = self.client.sharded_mut()
        {
            sharded.says_as_at_login();
        }
    }

    /// Answers SET, RESET and SHOW of a hint for a client that keeps its server, outside of a
    /// transaction. False if they can't be answered now.
    fn answer_kept(&mut self, chunk: &mut Chunk<'_>, header: Header, text: &[u8]) -> bool {
        let server = &*self.server;
        let rests = server.status == Status::Idle
            && !server.link.group_open()
            && !server.link.is_owed()
            && server.inbox.at_boundary();
        if !rests || self.client.listens() {
            return false;
        }
        let at = self.shard();
        let sharded = self.client.sharded_mut();
        let sharded = sharded.expect("the database is sharded");
        let Some(answer) = sharded.answers_at(text, at) else {
            return false;
        };
        let to = Peer::Client(self.id);
        self.out.send_with(to, |buf| {
            match &answer {
                Ok(answer) => answer.write_to_query(buf),
                Err(error) => error.write(buf),
            }
            write::ready(buf, Status::Idle);
        });
        self.counts.syncs += 1;
        self.skip(chunk, header);
        true
    }

    /// SET LOCAL of a hint, which goes to PostgreSQL, too: there it is a custom setting.
    fn gate_local(
        &mut self,
        (setting, value): (ShardSetting, Option<Box<[u8]>>),
    ) -> Result<Result<(), ShardError>, Flow> {
        let (at, may_leave) = (self.shard(), self.may_leave());
        let server = &*self.server;
        let in_group = server.status == Status::Idle && server.link.group_open();
        let in_transaction = server.status == Status::Transaction || in_group;
        let hint = value.map(|value| hint_of(setting, &value));
        let sharded = self.client.sharded_mut();
        let sharded = sharded.expect("the database is sharded");
        if let Some(hint) = &hint {
            let decision = match sharded.shard_of(hint) {
                Ok(shard) => Decision::At(shard),
                Err(error) => return Ok(Err(error)),
            };
            if sharded.has_guessed_wrong(&decision, at) && may_leave {
                return Err(Flow::NeedShard);
            }
            if let Err(error) = sharded.fits(&decision, at) {
                return Ok(Err(error));
            }
            sharded.goes_on(&decision, None);
        }
        if in_transaction {
            sharded.says_locally(hint);
        }
        Ok(Ok(()))
    }

    /// SHOW of a hint, in a transaction, which may have failed.
    fn show_hint(&mut self, setting: ShardSetting) {
        let sharded = self.client.sharded.as_deref();
        let sharded = sharded.expect("the database is sharded");
        let value = sharded.value(setting).replace('\'', "''");
        let name = setting.name();
        let sql = format!("SELECT '{value}'::text AS \"{name}\"");
        let mut entry = self.query_entry();
        entry.barrier = true;
        self.push(entry);
        let to = self.to();
        self.out
            .send_with(to, |buf| write::query(buf, sql.as_bytes()));
    }

    /// The shard of the client's server.
    fn shard(&self) -> Option<Shard> {
        let sharded = self.client.sharded.as_deref()?;
        sharded.shard_of_login(self.planning.as_ref()?.shard())
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
        let Some(body) = whole(chunk, header) else {
            self.hold_for_gate(header)?;
            return self.gate_statement(&BoundText::query(None), None);
        };
        let Some(names) = BindNames::read(body) else {
            // PostgreSQL answers with its own error.
            return Ok(Ok(()));
        };
        let Some(statement) = self.lookup(names.statement) else {
            // It does not exist, as PostgreSQL says, or was placed when it was parsed.
            if let Some(sharded) = self.client.sharded_mut() {
                sharded.binds(true);
            }
            return Ok(Ok(()));
        };
        match ShardedText::read(statement.text()) {
            ShardedText::Set {
                setting,
                value,
                local: true,
            } => return self.gate_local((setting, value)),
            ShardedText::Set { .. } | ShardedText::Reset(_) => {
                return Ok(Err(ShardError::set_inside()));
            }
            ShardedText::Show(_) => return Ok(Err(ShardError::set_in_group())),
            ShardedText::Begin(_) if self.server.status == Status::Idle => {
                // What the group has run before is of the same transaction, and is not repeated.
                if let Some(sharded) = self.client.sharded_mut()
                    && !sharded.has_bound()
                {
                    sharded.transaction.begins_in_group();
                }
            }
            _ => {}
        }
        let handed = self.handed(chunk.at, Some(&statement));
        let bound = match handed {
            // The values have said all.
            Some(_) => BoundText::query(Some(statement.text())),
            None => BoundText::bound(&statement.definition, body),
        };
        let fits = self.gate_statement(&bound, handed)?;
        self.resets_hints(fits.is_ok(), statement.text());
        Ok(fits)
    }

    /// True if the transaction has changed where names are looked up.
    fn is_private(&self) -> bool {
        let changes = &self.server.session.changes;
        changes.are_private() || changes.looks_elsewhere()
    }

    /// Where the message that begins here belongs, a Query or the Bind of this statement, if that was
    /// found before the client had its server, and by what still counts.
    fn handed(&mut self, at: usize, statement: Option<&Arc<Statement>>) -> Option<Decision> {
        let placed = self.placed.take_if(|placed| placed.is_of(at, statement))?;
        let is_private = self.is_private();
        let planning = self.planning.as_mut()?;
        let mut reader = planning.reader(self.client, self.tracked, is_private);
        placed.unchanged(&mut reader)
    }

    /// Whether a statement may run on the client's server. `handed`: where it belongs, if that is known.
    fn gate_statement(
        &mut self,
        statement: &BoundText<'_>,
        handed: Option<Decision>,
    ) -> Result<Result<(), ShardError>, Flow> {
        let at = self.shard();
        let is_private = self.is_private();
        let is_over = self.server.status == Status::Idle && !self.client.is_pinned();
        let sharded = self.client.sharded.as_deref();
        let sharded = sharded.expect("the database is sharded");
        let (decision, noted) = match handed {
            Some(decision) => (decision, Noted::default()),
            None => {
                let planning = self.planning.as_mut().expect("the database is sharded");
                let mut reader = planning.reader(self.client, self.tracked, is_private);
                let decision = sharded.decide(statement, &mut reader, sharded.has_all());
                (decision, reader.noted)
            }
        };
        let goes_elsewhere = decision.must_be_at().is_some_and(|must| at != Some(must));
        let needs = matches!(decision, Decision::NeedsCatalogue { .. });
        // Without a server the client waits for the catalogue, and is placed anew.
        if needs && self.rests() {
            return Err(Flow::NeedShard);
        }
        // It may have its server for an earlier statement, which was cancelled before it ran.
        if goes_elsewhere && self.may_be_placed_anew() {
            return Err(Flow::NeedShard);
        }
        let sharded = self.client.sharded.as_deref();
        let sharded = sharded.expect("the database is sharded");
        match decision {
            Decision::NeedsCatalogue { unknown } => return Err(Flow::NeedCatalogue { unknown }),
            _ if sharded.has_guessed_wrong(&decision, at) && self.may_leave() => {
                return Err(Flow::NeedShard);
            }
            _ => {}
        }
        let fits = sharded.fits(&decision, at);
        let is_elsewhere = !matches!(decision, Decision::Refused(_)) && fits.is_err();
        if is_elsewhere && (is_over || sharded.transaction.is_guessed()) {
            self.leave_group()?;
        }
        if let (Some(sharded), Some(planning)) = (self.client.sharded_mut(), &mut self.planning) {
            let begins = is_over && !sharded.has_bound();
            planning.count(sharded, statement.text, &fits, (noted, begins));
            sharded.knows_all(false);
            sharded.settles_message();
            sharded.goes_on(&decision, statement.text);
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
        if self.server.link.is_owed() {
            // If a Parse fails, PostgreSQL skips the rest of the group.
            self.out.send_with(to, |buf| write::empty(buf, tag::FLUSH));
            return Err(self.stall());
        }
        self.out.send_with(to, |buf| write::empty(buf, tag::SYNC));
        self.push(Entry::swallow(Reply::Sync));
        Err(self.stall())
    }

    /// True if the client may leave its server with the message that begins here, to be placed anew.
    fn may_be_placed_anew(&mut self) -> bool {
        self.rests()
            && self
                .client
                .sharded_mut()
                .is_some_and(|sharded| sharded.may_be_placed_anew())
    }

    /// True if nothing is open on the server.
    fn rests(&self) -> bool {
        let server = &*self.server;
        server.status == Status::Idle
            && !server.link.is_owed()
            && !server.link.group_open()
            && !self.client.is_pinned()
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
        let sharded = self.client.sharded.as_deref();
        let sharded = sharded.expect("the database is sharded");
        let is_guessed = sharded.transaction.is_guessed();
        if !is_guessed || !matches!(header.tag, tag::PARSE | tag::BIND) || !self.may_leave() {
            return Ok(());
        }
        let at = self.shard();
        let planning = self.planning.as_mut().expect("the database is sharded");
        let mut reader = planning.reader(self.client, self.tracked, false);
        let read = read_group(self.client, chunk.rest(), &mut |statement, _, _| {
            sharded.decide(&statement, &mut reader, sharded.has_all())
        });
        let decision = match read {
            GroupRead::Partial(size) => {
                let body = size.saturating_sub(HEADER) as u32;
                return self.hold_for_gate(Header { body, ..header });
            }
            GroupRead::Decided(decision) => Some(decision),
            GroupRead::Commands(group) => sharded.local_hint(&group.texts),
            _ => None,
        };
        match decision {
            Some(Decision::NeedsCatalogue { unknown }) => Err(Flow::NeedCatalogue { unknown }),
            Some(decision) if sharded.has_guessed_wrong(&decision, at) => Err(Flow::NeedShard),
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
        let sharded = client.sharded_mut().expect("the database is sharded");
        let text = sharded.begins();
        let server = self.servers.at_mut(server_id);
        server.runs_for_us(server_id, &text, out);
        super::bind::bind_held((id, client), (server_id, server));
    }

    /// A client's transaction has begun on the wrong shard, on a guess. It is rolled back there, and
    /// begins again where its next statement belongs.
    pub(super) fn leave_guess(&mut self, id: ClientId, out: &mut Out) {
        if let Some(sharded) = self.clients.at_mut(id).sharded_mut() {
            sharded.transaction.begins_elsewhere();
        }
        self.leave_server(id, Farewell::Orderly, out);
        self.next.note(Next::Resume(id));
    }
}
