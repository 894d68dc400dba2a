//! Before a client of a sharded database gets a server: to which shard its message goes, and what
//! Howdah answers itself.

use howdah_shard::NoKey;
use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, Header, header};
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use crate::client::Client;
use crate::config::Shard;
use crate::effect::ends_first;
use crate::event::{ClientId, Out, Peer};
use crate::inbox::{Chunk, Fate};
use crate::limits;
use crate::link::upstream::{Flow, await_whole, whole};
use crate::login::key::LoginKey;
use crate::pool::key::Purpose;
use crate::pooler::Pooler;
use crate::shard::Sharded;
use crate::shard::bound_text::{BoundText, Decision, PlanReader};
use crate::shard::error::ShardError;
use crate::shard::group::{CommandGroup, CommandStep, GroupRead, read_group};
use crate::shard::placed::{Basis, HandedOn, PlacedMessage};
use crate::shard::planning::Planning;
use crate::statement::Named;

/// What has become of a message.
#[derive(Debug)]
pub(crate) enum Placing<'a> {
    /// The client is in the login of the message's shard, and needs a server.
    Goes(Option<Box<HandedOn<'a>>>),
    /// Howdah has answered.
    Done,
}

impl<'a> Placing<'a> {
    /// A message that goes takes its decision along.
    fn with(self, placed: Option<Box<HandedOn<'a>>>) -> Placing<'a> {
        match self {
            Placing::Goes(_) => Placing::Goes(placed),
            Placing::Done => Placing::Done,
        }
    }
}

impl Pooler {
    /// Brings a client without a server to the shard of its next message, or answers the message.
    #[cold]
    pub(crate) fn place_sharded<'a>(
        &mut self,
        id: ClientId,
        chunk: &mut Chunk<'a>,
        out: &mut Out,
    ) -> Result<Placing<'a>, Flow> {
        let Some(Ok(header)) = header(chunk.rest()) else {
            return Err(Flow::Partial);
        };
        if self.janitor.is_paused(&self.clients.at(id).who.database) {
            return Err(self.waits_to_be_placed(id));
        }
        self.sharded_mut(id).forgets_server();
        let placing = match header.tag {
            tag::QUERY => self.place_query(id, chunk, header, out),
            tag::FUNCTION_CALL => {
                let failed = self.sharded(id).transaction.status() == Status::Failed;
                let decision = match self.sharded(id).function_call() {
                    _ if failed => Decision::Refused(ShardError::aborted()),
                    Ok(()) => Decision::At(Shard(0)),
                    Err(error) => Decision::Refused(error),
                };
                Ok(self.goes(id, decision, (chunk, header), out))
            }
            _ => self.place_group(id, chunk, header, out),
        }?;
        if matches!(placing, Placing::Done) {
            let sharded = self.sharded_mut(id);
            sharded.knows_all(false);
            sharded.settles_message();
        }
        Ok(placing)
    }

    fn place_query<'a>(
        &mut self,
        id: ClientId,
        chunk: &mut Chunk<'a>,
        header: Header,
        out: &mut Out,
    ) -> Result<Placing<'a>, Flow> {
        let text = self.text_of_query(id, chunk, header)?;
        let sharded = self.sharded_mut(id);
        let answer = match text {
            Some(text) => sharded.answers(text),
            None if sharded.transaction.status() == Status::Failed => {
                Some(Err(ShardError::aborted()))
            }
            None => None,
        };
        match answer {
            None => {}
            Some(Ok(answer)) => {
                let status = sharded.transaction.status();
                self.answer_ahead(id, (chunk, header), out, |buf| {
                    answer.write_to_query(buf);
                    write::ready(buf, status);
                });
                return Ok(Placing::Done);
            }
            Some(Err(error)) => return Ok(self.refuse_ahead(id, &error, (chunk, header), out)),
        }
        let (decision, basis) = self.decide_ahead(id, |_, sharded, reader| {
            sharded.decide(&BoundText::query(text), reader, sharded.has_all())
        })?;
        let message = PlacedMessage {
            at: chunk.at,
            binds: None,
        };
        let placed = HandedOn::new(message, &decision, basis);
        self.sharded_mut(id).transaction.fails_at_server();
        let placing = self.goes(id, decision, (chunk, header), out);
        Ok(placing.with(placed))
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

    fn place_group<'a>(
        &mut self,
        id: ClientId,
        chunk: &mut Chunk<'a>,
        header: Header,
        out: &mut Out,
    ) -> Result<Placing<'a>, Flow> {
        let (bytes, from) = (chunk.rest(), chunk.at);
        let failed = self.sharded(id).transaction.status() == Status::Failed;
        let mut commands = None;
        let mut partial = None;
        let mut first_bind = None;
        let (decision, basis) = self.decide_ahead(id, |client, sharded, reader| {
            (commands, partial, first_bind) = (None, None, None);
            let mut ends = None;
            let read = read_group(client, bytes, &mut |statement, at, definition| {
                let mut first_ends =
                    || *ends.get_or_insert_with(|| statement.text.is_some_and(ends_first));
                let decision = if failed && !first_ends() {
                    Decision::Refused(ShardError::aborted())
                } else {
                    sharded.decide(&statement, reader, sharded.has_all())
                };
                first_bind.get_or_insert_with(|| {
                    let (at, binds) = (from + at, Some(definition.kept()));
                    (PlacedMessage { at, binds }, decision.clone())
                });
                decision
            });
            match read {
                GroupRead::Commands(group) => {
                    // If a server must answer them, it is one of the shard that they say.
                    let hinted = sharded.local_hint(&group.texts);
                    let decision = hinted.unwrap_or_else(|| group.decision.clone());
                    commands = Some(group);
                    decision
                }
                GroupRead::Unbound if failed => Decision::Refused(ShardError::aborted()),
                GroupRead::Decided(decision) => decision,
                GroupRead::Partial(size) => {
                    partial = Some(size);
                    Decision::NoKey(NoKey::Any)
                }
                GroupRead::Long => sharded.unread(),
                // Statements mean the same on all shards.
                GroupRead::Unbound => Decision::Guess {
                    kind: NoKey::Any,
                    repeats: false,
                },
                GroupRead::Mixed => Decision::Refused(ShardError::set_in_group()),
            }
        })?;
        if let Some(size) = partial {
            let body = size.saturating_sub(HEADER) as u32;
            self.hold_whole(id, Header { body, ..header })?;
            // There will never be room for the rest.
            let decision = self.sharded(id).unread();
            return Ok(self.goes(id, decision, (chunk, header), out));
        }
        if let Some(group) = commands
            && self.answer_commands(id, &group, chunk, out)
        {
            return Ok(Placing::Done);
        }
        let placed = first_bind
            .filter(|_| !failed)
            .and_then(|(message, decision)| HandedOn::new(message, &decision, basis));
        self.sharded_mut(id).transaction.fails_at_server();
        let placing = self.goes(id, decision, (chunk, header), out);
        Ok(placing.with(placed))
    }

    /// Where a statement of a client without a server belongs, and what that goes by if it may be
    /// handed on. The client waits if the catalogue must be read for that.
    fn decide_ahead(
        &mut self,
        id: ClientId,
        mut decide: impl FnMut(&Client, &Sharded, &mut PlanReader<'_>) -> Decision,
    ) -> Result<(Decision, Option<Basis>), Flow> {
        loop {
            let client = self.clients.at(id);
            let login = self
                .logins
                .at(client.login.expect("the client is logged in"));
            let lore = self.shard_lore.get_mut(&client.who.database);
            let schema = self.shared.statements.schema(login.schema);
            let planner = lore.and_then(|lore| lore.planner(schema, self.moves.arriving));
            let map = &client
                .sharded
                .as_ref()
                .expect("the database is sharded")
                .map;
            let tally = self.shard_tallies.of(&client.who.database, map, self.now);
            let mut planning = Planning::new(planner, tally, login.as_home());
            let mut reader = planning.reader(client, &self.shared.tracked, false);
            let sharded = client.sharded.as_deref().expect("the database is sharded");
            let decision = decide(client, sharded, &mut reader);
            let noted = std::mem::take(&mut reader.noted);
            let basis = sharded.hands_on().then(|| reader.basis()).flatten();
            planning.count_ahead(&decision, &noted);
            match decision {
                Decision::NeedsCatalogue { unknown } => {
                    if !self.has_catalogue(id, unknown) {
                        return Err(self.waits_to_be_placed(id));
                    }
                }
                decision => return Ok((decision, basis)),
            }
        }
    }

    /// Answers a group of commands. False if a server must; then nothing has happened.
    fn answer_commands(
        &mut self,
        id: ClientId,
        group: &CommandGroup<'_>,
        chunk: &mut Chunk<'_>,
        out: &mut Out,
    ) -> bool {
        if !self.has_room_for(id, group) {
            return false;
        }
        let is_failed = self.sharded(id).transaction.status() == Status::Failed;
        if is_failed && group.steps.iter().any(CommandStep::begins_anew) {
            // PostgreSQL refuses the Parse, and skips what follows.
            return false;
        }
        let sharded = self.sharded_mut(id);
        let Some(answers) = sharded.answers_all(&group.texts) else {
            return false;
        };
        if let Some(Err(_)) = answers.last() {
            sharded.transaction.fails();
        }
        let status = sharded.transaction.status();
        let mut answer = Vec::new();
        let mut failed = None;
        for step in &group.steps {
            if let Err(error) = step.write(&answers, &mut answer) {
                error.write(&mut answer);
                failed = Some(error.sqlstate);
                break;
            }
            self.names_command(id, step);
        }
        let client = self.clients.at_mut(id);
        client.inbox.gives_room_back();
        if group.synced {
            write::ready(&mut answer, status);
        } else if failed.is_some() {
            client.end.group_fails();
        }
        out.send_with(Peer::Client(id), |buf| buf.extend_from_slice(&answer));
        chunk.at += group.length;
        if let (Some(sqlstate), Some(login)) = (failed, client.login) {
            self.logins.at_mut(login).count_error(sqlstate.as_bytes());
        }
        self.count_answer(id, out);
        true
    }

    /// True if a client may have the names that a group of commands gives.
    fn has_room_for(&self, id: ClientId, group: &CommandGroup<'_>) -> bool {
        let client = self.clients.at(id);
        let Some(login) = client.login else {
            return false;
        };
        let names = &client.statements;
        let parses = group.steps.iter().filter_map(|step| match *step {
            CommandStep::Parse(name, definition) => Some((name.len(), definition.len())),
            _ => None,
        });
        let (mut count, mut size) = (0, 0);
        for (name, definition) in parses {
            if name > limits::STATEMENT_NAME || definition > limits::SHORT as usize {
                return false;
            }
            (count, size) = (count + 1, size + name + definition);
        }
        count == 0
            || names.len() + count <= limits::CLIENT_NAMES
                && names.texts() + size <= limits::CLIENT_TEXTS
                && self.logins.at(login).share.will_have_room(size)
    }

    /// A client gives a name to a statement of a command that Howdah answers, or takes a name back.
    fn names_command(&mut self, id: ClientId, step: &CommandStep<'_>) {
        let client = self.clients.at_mut(id);
        match *step {
            CommandStep::Parse(name, definition) => {
                let Some(login) = client.login else { return };
                let login = self.logins.at(login);
                let statements = &mut self.shared.statements;
                let statement = statements.intern(login.schema, client.meaning, definition);
                statement.charge_to(&login.share);
                if name.is_empty() {
                    return client.statements.set_unnamed(Some(statement));
                }
                let number = client.statements.next_number();
                let named = Named::new(statement, number);
                client.statements.insert(name.into(), named);
            }
            CommandStep::Close(name) => client.statements.remove(name),
            _ => {}
        }
    }

    /// A message goes where the decision says, or is refused.
    fn goes(
        &mut self,
        id: ClientId,
        decision: Decision,
        (chunk, header): (&mut Chunk<'_>, Header),
        out: &mut Out,
    ) -> Placing<'static> {
        let guesses = matches!(decision, Decision::Guess { .. });
        let is_free = decision.is_free();
        let shard = self
            .sharded(id)
            .shard_of_decision(decision, self.shard_of(id));
        let shard = match shard {
            Ok(shard) if is_free && self.is_shard_down(id, shard) => Ok(self.another(id, shard)),
            shard => shard,
        };
        match shard.and_then(|shard| self.enter_shard(id, shard)) {
            Ok(()) => {
                self.sharded_mut(id).transaction.guesses(guesses);
                Placing::Goes(None)
            }
            Err(error) => self.refuse_ahead(id, &error, (chunk, header), out),
        }
    }

    /// True if a shard gives no servers, as far as its pool for a client's user knows.
    fn is_shard_down(&self, id: ClientId, shard: Shard) -> bool {
        let who = &self.clients.at(id).who;
        let name = self.sharded(id).map.name_of(shard);
        let Some(database) = self.config.databases.get(name) else {
            return true;
        };
        if self.janitor.is_disabled(name) {
            return true;
        }
        let key = LoginKey {
            database: name.into(),
            user: database.pooled_as(&who.user).into(),
        };
        let pool = self
            .logins
            .find(&key)
            .and_then(|login| self.pool_if_any(login, Purpose::Clients));
        pool.is_some_and(|pool| self.hopeless(pool).is_some())
    }

    /// A shard that is not down, for a statement that any shard can answer.
    fn another(&self, id: ClientId, shard: Shard) -> Shard {
        let mut all = self.sharded(id).map.all().iter();
        all.find(|other| !self.is_shard_down(id, *other))
            .unwrap_or(shard)
    }

    /// The shard whose login a client is in; `None` if a reload has removed the shard.
    pub(crate) fn shard_of(&self, id: ClientId) -> Option<Shard> {
        let login = self.clients.at(id).login?;
        let database = &self.logins.at(login).key.database;
        self.sharded(id).shard_of_login(database)
    }

    /// Refuses a message of a client without a server.
    fn refuse_ahead(
        &mut self,
        id: ClientId,
        error: &ShardError,
        (chunk, header): (&mut Chunk<'_>, Header),
        out: &mut Out,
    ) -> Placing<'static> {
        let sharded = self.sharded_mut(id);
        sharded.transaction.fails();
        let status = sharded.transaction.status();
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
        self.count_answer(id, out);
    }

    fn count_answer(&mut self, id: ClientId, out: &mut Out) {
        // It may have waited to keep a server, and needs none now.
        self.give_permission_back(id, out);
        let now = self.now;
        let client = self.clients.at_mut(id);
        client.times.begin_request(now);
        client.times.set_quiet(now);
        let in_transaction = client.status_ahead() != Status::Idle;
        let must_end = client.end_of_transaction(now).is_some();
        if let Some(sharded) = client.sharded_mut() {
            sharded.settles_message();
        }
        if let Some(login) = client.login {
            self.logins.at_mut(login).count_answered(1, 0);
        }
        if in_transaction || must_end {
            self.watch_client(id);
        }
    }

    /// A client without a server becomes a client of a shard.
    fn enter_shard(&mut self, id: ClientId, shard: Shard) -> Result<(), ShardError> {
        let name = self.sharded(id).map.name_of(shard);
        if self.janitor.is_disabled(name) {
            return Err(ShardError::disabled(name));
        }
        if self.shard_of(id) == Some(shard) {
            return Ok(());
        }
        let (client, sharded) = (self.clients.at(id), self.sharded(id));
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
