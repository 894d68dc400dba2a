//! Before a client of a sharded database gets a server: to which shard its message goes, and what
//! Howdah answers itself.

use howdah_shard::NoKey;
use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, Header, header};
use howdah_wire::tag::{backend, frontend as tag};
use howdah_wire::write;

use crate::client::Client;
use crate::config::Shard;
use crate::event::{ClientId, Out, Peer};
use crate::inbox::{Chunk, Fate};
use crate::limits;
use crate::link::upstream::{Flow, await_whole, whole};
use crate::pool::key::Purpose;
use crate::pooler::Pooler;
use crate::shard::Sharded;
use crate::shard::bound_text::{BoundText, Decision, PlanReader};
use crate::shard::error::ShardError;
use crate::shard::group::{GroupCommand, GroupRead, messages, read_group};
use crate::shard::planning::Planning;

/// What has become of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placing {
    /// The client is in the login of the message's shard, and needs a server.
    Goes,
    /// Howdah has answered.
    Done,
}

impl Pooler {
    /// Brings a client without a server to the shard of its next message, or answers the message.
    #[cold]
    pub(crate) fn place_sharded(
        &mut self,
        id: ClientId,
        chunk: &mut Chunk<'_>,
        out: &mut Out,
    ) -> Result<Placing, Flow> {
        let Some(Ok(header)) = header(chunk.rest()) else {
            return Err(Flow::Partial);
        };
        if self.janitor.is_paused(&self.clients.at(id).who.database) {
            return Err(self.waits_to_be_placed(id));
        }
        self.sharded_mut(id).forgets_transaction();
        let placing = match header.tag {
            tag::QUERY => self.place_query(id, chunk, header, out),
            tag::FUNCTION_CALL => {
                let error = ShardError::function_call();
                Ok(self.refuse_ahead(id, &error, (chunk, header), out))
            }
            _ => self.place_group(id, chunk, header, out),
        }?;
        self.sharded_mut(id).knows_all(false);
        Ok(placing)
    }

    fn place_query(
        &mut self,
        id: ClientId,
        chunk: &mut Chunk<'_>,
        header: Header,
        out: &mut Out,
    ) -> Result<Placing, Flow> {
        let text = self.text_of_query(id, chunk, header)?;
        let sharded = self.sharded_mut(id);
        if let Some(text) = text
            && let Some(answer) = sharded.answers(text)
        {
            let status = sharded.status();
            match answer {
                Ok(answer) => {
                    self.answer_ahead(id, (chunk, header), out, |buf| {
                        answer.write_to_query(buf);
                        write::ready(buf, status);
                    });
                    return Ok(Placing::Done);
                }
                Err(error) => return Ok(self.refuse_ahead(id, &error, (chunk, header), out)),
            }
        }
        let decision = self.decide_ahead(id, |_, sharded, reader| {
            sharded.decide(&BoundText::query(text), reader, sharded.has_all())
        })?;
        let shard = self.sharded(id).shard_of_decision(decision.clone());
        let placing = self.goes_to(id, shard, (chunk, header), out);
        if placing == Placing::Goes {
            self.sharded_mut(id).goes(true, &decision);
        }
        Ok(placing)
    }

    /// The text of a Query; `None` if it is too long to be held.
    fn text_of_query<'a>(
        &mut self,
        id: ClientId,
        chunk: &Chunk<'a>,
        header: Header,
    ) -> Result<Option<&'a [u8]>, Flow> {
        if let Some(body) = whole(chunk, header) {
            return Ok(Some(body.strip_suffix(b"\0").unwrap_or(body)));
        }
        if header.total() <= limits::SHARDED {
            self.hold_whole(id, header)?;
        }
        Ok(None)
    }

    /// A message of which a part is missing is held whole. Returns `Ok` if there will never be room.
    fn hold_whole(&mut self, id: ClientId, header: Header) -> Result<(), Flow> {
        let client = self.clients.at_mut(id);
        let login = client.login.expect("the client is logged in");
        let share = self.logins.at(login).share.clone();
        await_whole(client, &share, false, header)
    }

    fn place_group(
        &mut self,
        id: ClientId,
        chunk: &mut Chunk<'_>,
        header: Header,
        out: &mut Out,
    ) -> Result<Placing, Flow> {
        let bytes = chunk.rest();
        let failed = self.sharded(id).status() == Status::Failed;
        let mut read = GroupRead::Unbound;
        let decision = self.decide_ahead(id, |client, sharded, reader| {
            read = read_group(client, bytes, &mut |statement| {
                if failed {
                    Decision::Refused(ShardError::aborted())
                } else {
                    sharded.decide(&statement, reader, sharded.has_all())
                }
            });
            match &read {
                GroupRead::Decided(decision) => decision.clone(),
                _ => Decision::NoKey(NoKey::Any),
            }
        })?;
        let decided = decision.clone();
        let sharded = self.sharded(id);
        let unread = || sharded.shard_of_decision(sharded.unread());
        let (shard, begins) = match read {
            GroupRead::Command(command) => {
                return Ok(self.answer_command(id, command, (chunk, header), out));
            }
            _ if failed => (Err(ShardError::aborted()), true),
            GroupRead::Partial(size) => {
                let body = size.saturating_sub(HEADER) as u32;
                self.hold_whole(id, Header { body, ..header })?;
                let sharded = self.sharded(id);
                (sharded.shard_of_decision(sharded.unread()), true)
            }
            GroupRead::Long => (unread(), true),
            GroupRead::Decided(_) => (sharded.shard_of_decision(decision), true),
            // Statements mean the same on all shards.
            GroupRead::Unbound => (Ok(sharded.at().unwrap_or(Shard(0))), false),
            GroupRead::Mixed => (Err(ShardError::set_in_group()), true),
        };
        let placing = self.goes_to(id, shard, (chunk, header), out);
        if placing == Placing::Goes {
            self.sharded_mut(id).goes(begins, &decided);
        }
        Ok(placing)
    }

    /// Where a statement of a client without a server belongs. The client waits if the catalogue must
    /// be read for that.
    fn decide_ahead(
        &mut self,
        id: ClientId,
        mut decide: impl FnMut(&Client, &Sharded, &mut PlanReader<'_>) -> Decision,
    ) -> Result<Decision, Flow> {
        loop {
            let client = self.clients.at(id);
            let login = self
                .logins
                .at(client.login.expect("the client is logged in"));
            let lore = self.shard_lore.get_mut(&client.who.database);
            let schema = self.shared.statements.schema(login.schema);
            let planner = lore.and_then(|lore| lore.planner(schema, self.moves.arriving));
            let mut planning = Planning::new(planner, login);
            let mut reader = planning.reader(client, &self.shared.tracked, false);
            let sharded = client.sharded.as_deref().expect("the database is sharded");
            match decide(client, sharded, &mut reader) {
                Decision::NeedsCatalogue { unknown } => {
                    if !self.has_catalogue(id, unknown) {
                        return Err(self.waits_to_be_placed(id));
                    }
                }
                decision => return Ok(decision),
            }
        }
    }

    /// Answers a command, alone in its group, if Howdah can. Otherwise it goes to a shard.
    fn answer_command(
        &mut self,
        id: ClientId,
        command: GroupCommand,
        (chunk, header): (&mut Chunk<'_>, Header),
        out: &mut Out,
    ) -> Placing {
        let sharded = self.sharded_mut(id);
        let answer = match sharded.answers(&command.text) {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => return self.refuse_ahead(id, &error, (chunk, header), out),
            None => {
                let decision = Decision::NoKey(NoKey::Setting);
                let shard = match sharded.hinted() {
                    Some(hinted) => hinted,
                    None => sharded.shard_of_decision(decision.clone()),
                };
                let placing = self.goes_to(id, shard, (chunk, header), out);
                if placing == Placing::Goes {
                    self.sharded_mut(id).goes(true, &decision);
                }
                return placing;
            }
        };
        let status = sharded.status();
        let client = self.clients.at_mut(id);
        client.inbox.gives_room_back();
        let group = &chunk.rest()[..command.length];
        out.send_with(Peer::Client(id), |buf| {
            for (of, body) in messages(group) {
                match of {
                    tag::PARSE => write::empty(buf, backend::PARSE_COMPLETE),
                    tag::BIND => write::empty(buf, backend::BIND_COMPLETE),
                    tag::CLOSE => write::empty(buf, backend::CLOSE_COMPLETE),
                    tag::DESCRIBE => {
                        if body.first() == Some(&b'S') {
                            write::message(buf, backend::PARAMETER_DESCRIPTION, |buf| {
                                buf.extend_from_slice(&[0, 0]);
                            });
                        }
                        answer.describe(buf);
                    }
                    tag::EXECUTE => answer.write(buf),
                    _ => {}
                }
            }
            write::ready(buf, status);
        });
        chunk.at += command.length;
        self.count_answer(id);
        Placing::Done
    }

    /// A message goes to a shard, or is refused.
    fn goes_to(
        &mut self,
        id: ClientId,
        shard: Result<Shard, ShardError>,
        (chunk, header): (&mut Chunk<'_>, Header),
        out: &mut Out,
    ) -> Placing {
        match shard.and_then(|shard| self.enter_shard(id, shard)) {
            Ok(()) => Placing::Goes,
            Err(error) => self.refuse_ahead(id, &error, (chunk, header), out),
        }
    }

    /// Refuses a message of a client without a server.
    fn refuse_ahead(
        &mut self,
        id: ClientId,
        error: &ShardError,
        (chunk, header): (&mut Chunk<'_>, Header),
        out: &mut Out,
    ) -> Placing {
        let sharded = self.sharded_mut(id);
        sharded.fails();
        let status = sharded.status();
        let is_group = !matches!(header.tag, tag::QUERY | tag::FUNCTION_CALL);
        self.answer_ahead(id, (chunk, header), out, |buf| {
            error.write(buf);
            if !is_group {
                write::ready(buf, status);
            }
        });
        let client = self.clients.at_mut(id);
        if is_group {
            client.end.group_fails();
        }
        if let Some(login) = client.login {
            let login = self.logins.at_mut(login);
            login.count_error(error.sqlstate.as_bytes());
        }
        Placing::Done
    }

    /// Answers a message of a client without a server, and skips the message.
    fn answer_ahead(
        &mut self,
        id: ClientId,
        (chunk, header): (&mut Chunk<'_>, Header),
        out: &mut Out,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        out.send_with(Peer::Client(id), write);
        let client = self.clients.at_mut(id);
        client.inbox.gives_room_back();
        let count = chunk.rest().len().min(header.total());
        chunk.at += count;
        let left = header.total() - count;
        client.inbox.begin(header.tag, Fate::Drop, left);
        self.count_answer(id);
    }

    fn count_answer(&mut self, id: ClientId) {
        let now = self.now;
        let client = self.clients.at_mut(id);
        client.times.begin_request(now);
        client.times.set_quiet(now);
        if let Some(login) = client.login {
            self.logins.at_mut(login).count_answered(1, 0);
        }
    }

    /// A client without a server becomes a client of a shard.
    fn enter_shard(&mut self, id: ClientId, shard: Shard) -> Result<(), ShardError> {
        let client = self.clients.at(id);
        let sharded = self.sharded(id);
        if self.janitor.is_disabled(sharded.map.name_of(shard)) {
            return Err(ShardError::disabled(sharded.map.name_of(shard)));
        }
        if sharded.at() == Some(shard) && client.login.is_some() {
            return Ok(());
        }
        let (map, who) = (sharded.map.clone(), client.who.clone());
        let database = self.config.database(map.name_of(shard));
        let database = database.ok_or_else(|| ShardError::gone(map.name_of(shard)))?;
        let user = database.pooled_as(&who.user);
        let login = self.login_of(&database.name, user, &database);
        self.pool_of(login, Purpose::Clients);
        if database.lends_secrets(user) {
            self.lend_secrets(&map.shards()[0], user, login);
        }
        let before = self.clients.at(id).login;
        if before != Some(login) {
            self.join(id, login);
            self.clients.at_mut(id).forgets_reads();
            if let Some(before) = before {
                self.logins.at_mut(before).client_leaves(self.now);
            }
        }
        self.sharded_mut(id).at = Some(shard);
        Ok(())
    }

    pub(crate) fn sharded(&self, id: ClientId) -> &Sharded {
        let sharded = self.clients.at(id).sharded.as_deref();
        sharded.expect("the client's database is sharded")
    }

    pub(crate) fn sharded_mut(&mut self, id: ClientId) -> &mut Sharded {
        let sharded = self.clients.at_mut(id).sharded_mut();
        sharded.expect("the client's database is sharded")
    }
}
