//! A client's messages of the extended protocol: the server's names for their statements, and the
//! answers to expect.

use std::borrow::Cow;
use std::sync::Arc;

use howdah_wire::frame::{HEADER, Header, cstr};
use howdah_wire::frontend::{BindNames, Parse, Subject};
use howdah_wire::write;

use super::portal::Bound;
use super::prepare::{Referent, ServerName};
use super::upstream::{
    Flow, LoginValues, Step, Upstream, Verdict, await_whole, is_long_parse, whole,
};
use crate::effect::first::Resets;
use crate::effect::{Effects, Kinds, Names};
use crate::inbox::{Chunk, Fate};
use crate::ledger::{Change, Described, Entry, NameOp, Refusal, Reply};
use crate::limits;
use crate::statement::{self, Statement};

impl Upstream<'_> {
    pub(super) fn parse(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Step {
        if !self.renames {
            self.note_signal_as_is(chunk, header)?;
            self.watch_parse(chunk, header)?;
            let verdict = self.note_parse(chunk, header)?;
            let entry = Entry::forward(Reply::Parse);
            match verdict {
                Verdict::Runs => self.ask(chunk, header, entry),
                Verdict::Refused => self.refuse_to_keep(chunk, header, entry),
            }
            self.client.inbox.gives_room_back();
            return Ok(());
        }
        if is_long_parse(chunk.rest(), header) {
            return self.parse_long(chunk, header, Refusal::TooLong);
        }
        let Some(body) = whole(chunk, header) else {
            await_whole(self.client, self.share, true, header)?;
            return self.parse_long(chunk, header, Refusal::TooMuch);
        };
        match Parse::read(body) {
            Ok(parse) => {
                self.note_signal(parse);
                self.parse_renamed(chunk, header, parse)?;
            }
            // The Parse is malformed. PostgreSQL answers with its own error.
            Err(_) => self.ask(chunk, header, Entry::forward(Reply::Parse)),
        }
        self.client.inbox.gives_room_back();
        self.counts.client_parses += 1;
        Ok(())
    }

    /// Handles a Parse that is too long to hold. A Parse without a name passes through. Its
    /// statement belongs to the transaction, and Howdah does not remember the text.
    #[cold]
    fn parse_long(&mut self, chunk: &mut Chunk<'_>, header: Header, why: Refusal) -> Step {
        let there = &chunk.rest()[HEADER..];
        let name = match cstr(there) {
            Some((name, _)) => name,
            None if there.len() < limits::FRONT => return Err(Flow::Partial),
            None => b"?",
        };
        if name.is_empty() {
            self.pass_parse(chunk, header)?
        } else {
            self.refuse(chunk, header, Entry::forward(Reply::Parse), why)
        }
        self.counts.client_parses += 1;
        Ok(())
    }

    /// Passes a Parse of the unnamed statement. The statement belongs to the open transaction.
    #[cold]
    fn pass_parse(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Step {
        self.settle_meaning()?;
        let verdict = self.note_parse(chunk, header)?;
        let mut entry = Entry::forward(Reply::Parse);
        if verdict == Verdict::Refused {
            self.refuse_to_keep(chunk, header, entry);
            return Ok(());
        }
        self.counts.server_parses += 1;
        self.server.session.changes.mark_unnamed();
        entry.drops_unnamed();
        entry.effects_mut().name = Some(self.name_op(Box::default(), Change::Forget));
        entry.changes_unnamed(self.unnamed_op(None));
        self.ask(chunk, header, entry);
        Ok(())
    }

    /// The reason why Howdah can't remember one more text, or one more name, if there is one.
    pub(super) fn lacks_room(&mut self, parse: &Parse<'_>) -> Result<Option<Refusal>, Flow> {
        if parse.name.len() > limits::STATEMENT_NAME {
            return Ok(Some(Refusal::TooLong));
        }
        let size = parse.definition.len() + parse.name.len();
        if !self.interner.has_room(self.share, size) {
            return Ok(Some(Refusal::TooMuch));
        }
        let names = &self.client.statements;
        if parse.name.is_empty() {
            return Ok(None);
        }
        let (count, texts) = (names.len(), names.texts());
        let coming = self.server.link.ledger.names_changing();
        if count + coming >= limits::CLIENT_NAMES {
            // A Close may be under way.
            return if coming > 0 {
                Err(self.stall())
            } else {
                Ok(Some(Refusal::TooManyNames))
            };
        }
        Ok((texts + size > limits::CLIENT_TEXTS).then_some(Refusal::TooMuch))
    }

    fn parse_renamed(&mut self, chunk: &mut Chunk<'_>, header: Header, parse: Parse<'_>) -> Step {
        if self.server.link.ledger.has_barrier() {
            // Those answers decide the meaning of the text.
            return Err(self.stall());
        }
        self.settle_meaning()?;
        if let Some(why) = self.lacks_room(&parse)? {
            if parse.name.is_empty() {
                return self.pass_parse(chunk, header);
            }
            self.refuse(chunk, header, Entry::forward(Reply::Parse), why);
            return Ok(());
        }
        let statement = self.parsed_now(parse.definition);
        statement.charge_to(self.share);
        if let Some(effects) = statement.effects.as_deref() {
            if effects.executes_by_name() {
                // PostgreSQL describes an EXECUTE as of its Parse.
                self.names_in_group(&mut effects.clone())?;
            }
            if effects.touches_session() {
                self.await_settings()?;
            }
            self.client.statements.note_effects(effects);
            self.await_permission(effects)?;
            self.may_ask_numbers(effects);
            self.hear_parse(effects)?;
        }
        if parse.name.is_empty() {
            if self.terms.shares_unnamed && self.shares(&statement) {
                self.define_shared(&statement);
                self.skip(chunk, header);
            } else {
                self.parse_unnamed(chunk, header, statement);
            }
            return Ok(());
        }
        self.parse_named(chunk, header, parse, statement)
    }

    fn parse_unnamed(&mut self, chunk: &mut Chunk<'_>, header: Header, statement: Arc<Statement>) {
        self.parses_unnamed(&statement);
        let mut entry = Entry::forward(Reply::Parse);
        entry.drops_unnamed();
        entry.changes_name(self.define_unnamed(&statement));
        self.counts.server_parses += 1;
        entry.changes_unnamed(self.unnamed_op(Some(statement)));
        self.ask(chunk, header, entry);
    }

    /// The name change that a Parse of the unnamed statement makes. `None` if the statement stays
    /// the same.
    pub(super) fn define_unnamed(&mut self, statement: &Arc<Statement>) -> Option<Box<NameOp>> {
        let known = self.client.statements.unnamed();
        let same = known.is_some_and(|known| Arc::ptr_eq(known, statement));
        if same && !self.server.link.ledger.changes_names() {
            return None;
        }
        Some(self.definition(b"", statement))
    }

    fn parse_named(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        parse: Parse<'_>,
        statement: Arc<Statement>,
    ) -> Step {
        self.wait_for(parse.name)?;
        if self.lookup(parse.name).is_some() {
            // PostgreSQL checks the text first and the name last. The name `howdah_void` exists, so
            // PostgreSQL refuses it in any state of the transaction.
            self.make_void();
            let mut entry = Entry::forward(Reply::Parse);
            entry.effects_mut().name = Some(self.name_op(parse.name.into(), Change::Nothing));
            let to = self.to();
            self.push(entry);
            self.out.send_with(to, |buf| {
                write::parse(buf, statement::VOID, parse.definition)
            });
        } else {
            self.define(parse.name, &statement)?;
        }
        self.skip(chunk, header);
        Ok(())
    }

    pub(super) fn execute(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Step {
        let mut entry = Entry::forward(Reply::Execute);
        if self.server.link.portals.is_empty() || header.total() > limits::FRONT {
            if self.watch.is_some() {
                entry.watch_for(self.watch_execute(chunk, header)?);
            }
            self.enter(entry);
            self.relay(chunk, header);
            return Ok(());
        }
        let body = whole(chunk, header).ok_or(Flow::Partial)?;
        let portal = cstr(body).and_then(|(name, _)| self.portal(name).cloned());
        let (mut entry, tail) = match &portal {
            Some(portal) => self.take_effect(portal)?,
            None => (entry, Vec::new()),
        };
        entry.watch_for(self.watch_execute(chunk, header)?);
        self.ask(chunk, header, entry);
        self.set_back(&tail);
        Ok(())
    }

    pub(super) fn bind(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Step {
        if self.signal_by_bind(chunk, header)? {
            return Ok(());
        }
        if !self.renames {
            self.watch_bind_as_is(chunk, header)?;
            self.ask(chunk, header, Entry::forward(Reply::Bind));
            return Ok(());
        }
        let there = &chunk.rest()[HEADER..];
        let body = &there[..there.len().min(header.body as usize)];
        match BindNames::read(body) {
            Some(names) => self.bind_renamed(chunk, header, names)?,
            None if body.len() < header.body as usize && body.len() < limits::FRONT => {
                return Err(Flow::Partial);
            }
            // The names are too long. PostgreSQL would cut them, and run the portal.
            None if body.len() < header.body as usize => {
                self.refuse(chunk, header, Entry::forward(Reply::Bind), Refusal::TooLong);
            }
            // The Bind is malformed. PostgreSQL answers with its own error.
            None => self.ask(chunk, header, Entry::forward(Reply::Bind)),
        }
        self.counts.binds += 1;
        Ok(())
    }

    fn bind_renamed(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        names: BindNames<'_>,
    ) -> Step {
        if names.portal.len() > limits::STATEMENT_NAME {
            self.refuse(chunk, header, Entry::forward(Reply::Bind), Refusal::TooLong);
            return Ok(());
        }
        let found = self.bound(names, chunk, header)?;
        if self.watch.is_some() {
            self.watch_bind(names.portal, found.statement.as_ref(), whole(chunk, header));
        }
        let mut entry = Entry::forward(Reply::Bind);
        let Some(name) = self.renamed(&mut entry, names.statement, &found) else {
            self.ask(chunk, header, entry);
            return Ok(());
        };
        let rest = header.body as usize - names.size();
        let to = self.to();
        self.enter(entry);
        self.out
            .send_with(to, |buf| write::bind_head(buf, names.portal, &name, rest));
        chunk.at += HEADER + names.size();
        let count = chunk.rest().len().min(rest);
        chunk.pass(count, to, self.out);
        let left = rest - count;
        self.client.inbox.begin(header.tag, Fate::Relay, left);
        Ok(())
    }

    /// Finds the statement that a Bind names, and records the effects of its portal.
    fn bound(
        &mut self,
        names: BindNames<'_>,
        chunk: &Chunk<'_>,
        header: Header,
    ) -> Result<Referent, Flow> {
        let with_values = self.effects_with_values(names, chunk, header)?;
        let mut found = self.statement(names.statement)?;
        self.remember_description(names, &found);
        let statement = found.statement.as_deref();
        let known = statement.and_then(|statement| statement.effects.as_deref());
        let effects = with_values.as_deref().or(known);
        if self.note_bind(statement, effects)? == Verdict::Refused {
            self.server.link.set_bound(None);
            return Ok(Referent::refused(Refusal::Pins));
        }
        let looks = effects.map_or(Names::Same, Effects::names);
        let matters = statement.is_some_and(|s| looks != Names::Same || self.has_effect(s));
        if matters || !self.server.link.portals.is_empty() {
            self.bind_portal(names.portal, &mut found, looks)?;
        }
        Ok(found)
    }

    /// Waits for whatever a Bind must follow. Returns the effects that its values decide, if any
    /// do.
    fn effects_with_values(
        &mut self,
        names: BindNames<'_>,
        chunk: &Chunk<'_>,
        header: Header,
    ) -> Result<Option<Box<Effects>>, Flow> {
        let sets = self.server.link.ledger.has_settings();
        if !sets && !self.client.statements.may_keep_server() {
            return Ok(None);
        }
        let statement = self.lookup(names.statement);
        let Some(effects) = statement.as_ref().and_then(|s| s.effects.as_deref()) else {
            return Ok(None);
        };
        if sets && effects.touches_session() {
            // A Parse that Howdah may have to send must follow the answer to the settings.
            self.await_settings()?;
        }
        if !self.client.statements.may_keep_server() {
            return Ok(None);
        }
        let mut with_values = None;
        if effects.kinds.any(Kinds::SETS_BOUND) {
            let bind = whole(chunk, header);
            if bind.is_none() && header.total() <= limits::FRONT {
                return Err(Flow::Partial);
            }
            let values = bind.map(|bind| &bind[names.size()..]);
            with_values = Some(Box::new(effects.bound(values)));
        }
        if !effects.statements.is_empty() {
            let mut effects = effects.clone();
            self.names_in_group(&mut effects)?;
            with_values = Some(Box::new(effects));
        }
        let effects = with_values.as_deref().unwrap_or(effects);
        self.await_permission(effects)?;
        self.may_ask_numbers(effects);
        // Howdah must ask before it sends anything else of the group.
        self.listen_alone_to_ask(effects)?;
        Ok(with_values)
    }

    /// Remembers the portal if the client has not seen the description of its statement, since a
    /// Describe of the portal would show it.
    fn remember_description(&mut self, names: BindNames<'_>, found: &Referent) {
        let group = self.server.link.ledger.group();
        let bound = match &found.statement {
            Some(statement) if found.is_described() && !found.told => Some(Bound {
                portal: names.portal.into(),
                key: found.key,
                statement: statement.clone(),
                asked: found.asked(names.statement),
                group,
            }),
            _ => None,
        };
        self.server.link.set_bound(bound);
    }

    /// Notes the effects of a Bind, if it may run.
    fn note_bind(
        &mut self,
        statement: Option<&Statement>,
        effects: Option<&Effects>,
    ) -> Result<Verdict, Flow> {
        let values = if statement.is_some_and(|s| s.first.resets != Resets::Nothing) {
            LoginValues::Restored
        } else {
            LoginValues::Gone
        };
        match effects {
            Some(effects) => self.note_first(effects, values),
            None => Ok(Verdict::Runs),
        }
    }

    /// The name on the server for a message about a statement, if it differs from the client's
    /// name. Also records the statement in the message's entry.
    fn renamed<'a>(
        &mut self,
        entry: &mut Entry,
        name: &[u8],
        found: &'a Referent,
    ) -> Option<Cow<'a, [u8]>> {
        entry.named = found.named;
        let refused = match found.name? {
            ServerName::Of => None,
            ServerName::Kept => {
                entry.named = statement::KEPT_UNNAMED;
                None
            }
            ServerName::Unknown => Some(Change::Nothing),
            ServerName::Refused(why) => Some(Change::Refused(why)),
        };
        entry.changes_name(refused.map(|refused| self.name_op(name.into(), refused)));
        found.server_name()
    }

    pub(super) fn describe(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Step {
        let mut entry = Entry::forward(Reply::Describe);
        if !self.renames || header.total() > limits::FRONT {
            self.ask(chunk, header, entry);
            return Ok(());
        }
        let body = whole(chunk, header).ok_or(Flow::Partial)?;
        let subject = Subject::read(header.tag, body);
        if let Ok(Subject::Portal(portal)) = subject
            && let Some(bound) = self.server.link.take_bound(portal)
        {
            self.learn(bound);
        }
        let Ok(Subject::Statement(name)) = subject else {
            self.enter(entry);
            self.relay(chunk, header);
            return Ok(());
        };
        let found = self.statement(name)?;
        if found.is_described() {
            entry.effects_mut().described = Some(Box::new(Described {
                asked: Some(found.asked(name)),
                key: found.key,
                parameters: None,
            }));
        }
        let Some(server_name) = self.renamed(&mut entry, name, &found) else {
            self.ask(chunk, header, entry);
            return Ok(());
        };
        let to = self.to();
        self.push(entry);
        self.out
            .send_with(to, |buf| write::of_statement(buf, header.tag, &server_name));
        self.skip(chunk, header);
        Ok(())
    }

    pub(super) fn close(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Step {
        let mut entry = Entry::forward(Reply::Close);
        if !self.renames || header.total() > limits::FRONT {
            self.ask(chunk, header, entry);
            return Ok(());
        }
        let body = whole(chunk, header).ok_or(Flow::Partial)?;
        let name = match Subject::read(header.tag, body) {
            Ok(Subject::Statement(name)) => name,
            subject => {
                if let Ok(Subject::Portal(name)) = subject {
                    entry.named = self.portal(name).map_or(0, |portal| portal.number);
                }
                self.ask(chunk, header, entry);
                return Ok(());
            }
        };
        self.wait_for(name)?;
        if name.is_empty() {
            entry.changes_unnamed(self.unnamed_op(None));
            entry.effects_mut().name = Some(self.name_op(Box::default(), Change::Forget));
            self.ask(chunk, header, entry);
            return Ok(());
        }
        let known = self.lookup(name).is_some();
        if !known && !statement::is_ours(name) {
            // SQL's PREPARE may have made the name. PostgreSQL answers with CloseComplete in any
            // case.
            self.ask(chunk, header, entry);
            return Ok(());
        }
        let mut made = Entry::forward(Reply::MadeClose);
        if known {
            made.effects_mut().name = Some(self.name_op(name.into(), Change::Forget));
        }
        self.push(made);
        self.make();
        self.skip(chunk, header);
        Ok(())
    }
}
