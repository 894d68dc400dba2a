//! Prepared statements on a link: translates clients' names to servers' names. Howdah relies only
//! on changes that PostgreSQL has confirmed.

use std::borrow::Cow;
use std::sync::Arc;

use howdah_wire::tag::{backend, frontend};
use howdah_wire::write;

use super::portal::Portal;
use super::side::Side;
use super::upstream::{Flow, Upstream};
use crate::client::Client;
use crate::effect::Names;
use crate::effect::first::Forgets;
use crate::event::Out;
use crate::ledger::{Asked, Change, Consequences, Entry, NameOp, Refusal, Reply, SetOp};
use crate::limits;
use crate::server::Server;
use crate::statement::{
    self, Constants, Held, Interner, Named, SchemaId, Statement, Unnamed, server_name,
};

/// The statement that a client's portal of `DEALLOCATE name` runs instead, in the form of a Parse.
const VOID_DEALLOCATION: &[u8] = b"DEALLOCATE howdah_void\0\0\0";

impl Upstream<'_> {
    /// Returns `Ok` only if the meaning of `name` is certain at this point of the stream. It is
    /// uncertain while PostgreSQL owes the answer to a message of another group about the name, or
    /// to a message that may drop names.
    pub(super) fn wait_for(&mut self, name: &[u8]) -> Result<(), Flow> {
        if self.server.link.ledger.has_barrier() {
            return Err(self.stall());
        }
        self.wait_for_groups(name)
    }

    /// Waits for the answers to other groups' messages about a name.
    fn wait_for_groups(&mut self, name: &[u8]) -> Result<(), Flow> {
        let ledger = &self.server.link.ledger;
        let group = ledger.group();
        if ledger.pending(name).is_some_and(|op| op.group != group) {
            Err(self.stall())
        } else {
            Ok(())
        }
    }

    /// Returns `Ok` only if PostgreSQL has confirmed settings that were sent along with the
    /// client's first messages. If no message of the client was sent yet, the client waits for the
    /// settings alone.
    pub(crate) fn await_settings(&mut self) -> Result<(), Flow> {
        if !self.server.link.ledger.has_settings() {
            return Ok(());
        }
        let flow = self.stall();
        if self.server.link.ledger.has_settings_only() {
            super::bind_held((self.id, self.client), (self.server_id, self.server));
        }
        Err(flow)
    }

    /// The next message waits for answers. Without a Sync, PostgreSQL holds its answers back, so
    /// Howdah sends a Flush.
    #[cold]
    pub(crate) fn stall(&mut self) -> Flow {
        let to = self.to();
        if self.server.link.ledger.needs_flush() {
            self.out
                .send_with(to, |buf| write::empty(buf, frontend::FLUSH));
        }
        self.client.end.stalls();
        Flow::Stalled
    }

    /// The statement with this name, including changes by the same group.
    pub(crate) fn lookup(&mut self, name: &[u8]) -> Option<Arc<Statement>> {
        self.find(name).map(|named| named.statement)
    }

    /// Like `lookup`, with the number of the name.
    fn find(&mut self, name: &[u8]) -> Option<Named> {
        match self.server.link.ledger.pending(name) {
            Some(NameOp {
                change: Change::Define(named),
                ..
            }) => Some(named.clone()),
            Some(_) => None,
            None if name.is_empty() => {
                let unnamed = self.client.statements.unnamed()?;
                Some(Named::new(unnamed.clone(), 0))
            }
            None => self.client.statements.get(name).cloned(),
        }
    }

    /// Makes sure that the server has the statement that a Bind or Describe names.
    pub(super) fn statement(&mut self, name: &[u8]) -> Result<Referent, Flow> {
        if name.is_empty() {
            self.settle_meaning()?;
            return self.unnamed();
        }
        self.wait_for(name)?;
        self.settle_meaning()?;
        let Some(named) = self.find(name) else {
            // PostgreSQL reports that the statement does not exist, unless SQL's PREPARE made it.
            // Howdah replaces a name that looks like its own names.
            let ours = statement::is_ours(name);
            return Ok(Referent {
                name: ours.then_some(ServerName::Unknown),
                ..Referent::default()
            });
        };
        let Some(there) = self.ensure(&named.statement)? else {
            return Ok(Referent::refused(Refusal::Settings));
        };
        let key = there.key;
        if self.has_changed(there, &named)? {
            return Ok(Referent::refused(Refusal::Changed));
        }
        Ok(Referent {
            name: Some(ServerName::Of),
            told: named.told.is_some(),
            statement: Some(named.statement),
            named: named.number,
            key,
        })
    }

    /// Remembers a portal whose Execute affects its client. If the portal runs `DEALLOCATE name`
    /// for a statement of the client, Howdah binds `DEALLOCATE howdah_void` instead.
    #[cold]
    pub(super) fn bind_portal(
        &mut self,
        portal: &[u8],
        found: &mut Referent,
        names: Names,
    ) -> Result<(), Flow> {
        let effect = found.statement.clone();
        let effect = effect.filter(|s| names != Names::Same || self.has_effect(s));
        if effect.is_some() && self.server.link.portals.len() >= limits::CLIENT_NAMES {
            *found = Referent::refused(Refusal::TooManyNames);
            return Ok(());
        }
        let mut void = false;
        if let Some(statement) = &effect
            && let Forgets::Name(name) = &statement.first.forgets
        {
            self.wait_for(name)?;
            void = self.lookup(name).is_some() || statement::is_ours(name);
            if void {
                let meaning = self.meaning();
                let void = self
                    .interner
                    .intern(self.schema, meaning, VOID_DEALLOCATION);
                let there = self.ensure(&void)?;
                found.name = there.map(|_| ServerName::Of);
                found.key = there.map_or(0, |there| there.key);
            }
        }
        self.server.link.binds_portal(portal, effect, void, names);
        Ok(())
    }

    /// Makes sure that the server's unnamed statement is the client's.
    fn unnamed(&mut self) -> Result<Referent, Flow> {
        self.wait_for_groups(b"")?;
        let client = self.lookup(b"");
        let server = &mut *self.server;
        let group = server.link.ledger.group();
        let theirs = match server.link.ledger.unnamed() {
            // PostgreSQL may skip the Parse that is under way. The end of that group decides.
            Some(op) if op.group != group => return Err(self.stall()),
            Some(op) => Unnamed::Known(op.statement.clone()),
            None => server.statements.unnamed().clone(),
        };
        let has = match (&client, &theirs) {
            (Some(ours), Unnamed::Known(Some(theirs))) => ours.same(theirs),
            (None, Unnamed::Known(None)) => true,
            _ => false,
        };
        if has {
            return Ok(Referent::of_unnamed(client));
        }
        let Some(ours) = &client else {
            let to = self.to();
            self.out
                .send_with(to, |buf| write::of_statement(buf, frontend::CLOSE, b""));
            let mut entry = Entry::swallow(Reply::Close);
            entry.changes_unnamed(self.unnamed_op(None));
            self.push(entry);
            return Ok(Referent::of_unnamed(client));
        };
        if self.server.link.ledger.has_barrier() {
            return Err(self.stall());
        }
        if self.terms.shares_unnamed
            && let Some(kept) = self.kept_unnamed(ours)
        {
            return Ok(kept);
        }
        if !self.may_be_parsed_late(ours) {
            return Ok(Referent::refused(Refusal::Settings));
        }
        let to = self.to();
        self.out
            .send_with(to, |buf| write::parse(buf, b"", &ours.definition));
        self.counts.server_parses += 1;
        self.parses_unnamed(ours);
        let mut entry = Entry::swallow(Reply::Parse);
        entry.changes_unnamed(self.unnamed_op(Some(ours.clone())));
        self.push(entry);
        Ok(Referent::of_unnamed(client))
    }

    /// Makes sure that the server has a statement. `None` if the server can't parse it: under the
    /// present settings, its constants would have another meaning than at the client's Parse
    /// (`'01/02/2020'::date` after `SET DateStyle`).
    pub(super) fn ensure(&mut self, statement: &Arc<Statement>) -> Result<Option<There>, Flow> {
        let (key, held) = self.server.statements.find(statement);
        if held == Some(Held::Sure) {
            return Ok(Some(There { key, late: false }));
        }
        if matches!(held, None | Some(Held::Going(_))) {
            if !self.may_be_parsed_late(statement) {
                return Ok(None);
            }
            let (schema, meaning) = (self.schema, self.meaning());
            // Under another search path, PostgreSQL would look up the names in the text again.
            if !statement.private && !self.interner.is_of(statement, schema, meaning) {
                let late = self.interner.intern(schema, meaning, &statement.definition);
                late.charge_to(self.share);
                let (key, held) = self.server.statements.find(&late);
                self.await_or_add(key, held, &late)?;
                return Ok(Some(There { key, late: true }));
            }
        }
        self.await_or_add(key, held, statement)?;
        Ok(Some(There { key, late: false }))
    }

    /// True if the constants of the text have the same meaning now as at the client's Parse.
    pub(super) fn may_be_parsed_late(&mut self, statement: &Statement) -> bool {
        let settled = self.server.session.changes.are_settled();
        let meaning = self.meaning();
        statement.constants == Constants::Fixed || settled && statement.constants.fit(meaning)
    }

    /// Waits for a Parse or Close of this key that is under way, or sends a Parse.
    fn await_or_add(
        &mut self,
        key: u128,
        held: Option<Held>,
        statement: &Arc<Statement>,
    ) -> Result<(), Flow> {
        let group = self.server.link.ledger.group();
        match held {
            Some(Held::Sure) => Ok(()),
            Some(Held::Coming(when)) if when == group => Ok(()),
            Some(Held::Coming(_)) => Err(self.stall()),
            Some(Held::Going(when)) if when != group => Err(self.stall()),
            Some(Held::Going(_)) | None => {
                let definition = statement.definition.clone();
                self.add(key, statement, &definition, Entry::swallow(Reply::Parse));
                Ok(())
            }
        }
    }

    /// Handles a client's Parse. Howdah sends the Parse unless the server has the statement already
    /// and PostgreSQL would certainly accept the Parse.
    pub(super) fn define(&mut self, name: &[u8], statement: &Arc<Statement>) -> Result<(), Flow> {
        let server = &mut *self.server;
        let group = server.link.ledger.group();
        let sure = server.link.ledger.sure_of_transaction(server.not_failed());
        let (key, held) = server.statements.find(statement);
        if !statement.private && server.statements.confirmed(statement).is_some() {
            self.keepers.note(key, self.server_id);
        }
        let mut entry = Entry::forward(Reply::Parse);
        match held {
            Some(Held::Coming(when) | Held::Going(when)) if when != group => {
                return Err(self.stall());
            }
            Some(Held::Sure | Held::Coming(_)) if sure => {
                entry.effects_mut().name = Some(self.definition(name, statement));
                entry.reply = Reply::MadeParse;
                self.push(entry);
                self.make();
                return Ok(());
            }
            Some(Held::Sure | Held::Coming(_)) => self.take_away(key, statement),
            Some(Held::Going(_)) | None => {}
        }
        entry.effects_mut().name = Some(self.definition(name, statement));
        let definition = statement.definition.clone();
        self.add(key, statement, &definition, entry);
        Ok(())
    }

    /// Sends a Parse that adds a statement to the server's set.
    pub(super) fn add(
        &mut self,
        key: u128,
        statement: &Arc<Statement>,
        text: &[u8],
        mut entry: Entry,
    ) {
        self.parses(key, statement);
        if !statement.private {
            self.keepers.offer(key, self.server_id);
        }
        let server = &mut *self.server;
        let group = server.link.ledger.group();
        server.statements.mark(key, statement, Held::Coming(group));
        entry.effects_mut().set = Some(Box::new(SetOp { key, add: true }));
        self.send_parse(key, text, entry);
    }

    /// Sends a Parse with the server's name of a statement.
    pub(super) fn send_parse(&mut self, key: u128, definition: &[u8], entry: Entry) {
        let to = self.to();
        self.counts.server_parses += 1;
        self.out
            .send_with(to, |buf| write::parse(buf, &server_name(key), definition));
        self.push(entry);
    }

    /// Sends a Close that removes a statement from the server's set.
    pub fn take_away(&mut self, key: u128, statement: &Arc<Statement>) {
        let to = self.to();
        let server = &mut *self.server;
        let group = server.link.ledger.group();
        server.statements.mark(key, statement, Held::Going(group));
        let mut entry = Entry::swallow(Reply::Close);
        entry.effects_mut().set = Some(Box::new(SetOp { key, add: false }));
        self.out.send_with(to, |buf| {
            write::of_statement(buf, frontend::CLOSE, &server_name(key));
        });
        self.push(entry);
    }

    /// Sends the replies made by Howdah at the front of the ledger.
    pub(super) fn make(&mut self) {
        if !self.server.inbox.at_boundary() {
            // A notice is being relayed. The replies follow it.
            return;
        }
        let mut side = Side::Client(self.id, self.client);
        make(&mut side, self.server, self.out);
    }
}

/// Sends the replies made by Howdah at the front of the ledger, and removes marks.
#[inline]
pub fn make(side: &mut Side<'_>, server: &mut Server, out: &mut Out) {
    if server.link.ledger.front().is_some_and(Entry::is_made) {
        make_all(side, server, out);
    }
}

fn make_all(side: &mut Side<'_>, server: &mut Server, out: &mut Out) {
    while let Some(entry) = server.link.ledger.front() {
        let tag = match entry.reply {
            Reply::MadeParse => backend::PARSE_COMPLETE,
            Reply::MadeClose => backend::CLOSE_COMPLETE,
            Reply::CopyEnd => 0,
            _ => return,
        };
        if tag != 0 && !entry.swallow {
            side.tell(out, |buf| write::empty(buf, tag));
        }
        answered(side.client_mut(), server);
    }
}

/// PostgreSQL has answered the first entry. Removes the entry and applies its effects.
#[inline(always)]
pub fn answered(client: Option<&mut Client>, server: &mut Server) {
    let Some(entry) = server.link.ledger.pop() else {
        return;
    };
    if entry.reply == Reply::Close && entry.named != 0 {
        server.link.portals.close(entry.named);
    }
    if let Some(effects) = entry.effects {
        take_effect(*effects, client, server);
    }
}

/// Applies the effects of an entry that PostgreSQL has confirmed.
#[inline(never)] // Most answers have no effect and should not pay for this.
fn take_effect(effects: Consequences, client: Option<&mut Client>, server: &mut Server) {
    if let (Some(op), Some(client)) = (effects.name, client) {
        client.confirm_name(*op);
    }
    if let Some(op) = effects.unnamed {
        server.statements.set_unnamed(op.statement);
    }
    match effects.set.as_deref() {
        Some(&SetOp { key, add: true }) => server.statements.confirm(key),
        // A later message of the group may parse the same statement again.
        Some(&SetOp { key, add: false }) if !server.link.ledger.is_adding(key) => {
            server.statements.remove(key)
        }
        _ => {}
    }
}

/// A message of the extended protocol failed. Removes the entries of all messages that PostgreSQL
/// now skips, without their effects. If no Sync has ended the client's group yet, the group has
/// failed.
pub fn failed(client: Option<&mut Client>, server: &mut Server) {
    let front = server.link.ledger.front();
    let dropped_unnamed = front.is_some_and(|entry| entry.unnamed);
    if front.is_some_and(|entry| entry.effects().unnamed.is_some() && entry.reply == Reply::Parse) {
        // PostgreSQL dropped the old unnamed statement before the new one failed.
        server.statements.set_unnamed(None);
    }
    let mut not_taken = Vec::new();
    while let Some(entry) = server.link.ledger.pop_failed() {
        if let Some(op) = &entry.effects().set {
            // A statement whose Close was skipped is still there, even if a later message of the
            // group was to parse it again. A statement with only a skipped Parse is not there.
            if !op.add {
                not_taken.push(op.key);
            }
            if not_taken.contains(&op.key) {
                server.statements.confirm(op.key);
            } else {
                server.statements.remove(op.key);
            }
        }
    }
    if let Some(client) = client {
        if dropped_unnamed {
            client.statements.set_unnamed(None);
        }
        if server.link.ledger.ends_in_failed_group() && server.link.ledger.group_open() {
            client.end.group_fails();
        }
    }
}

/// PostgreSQL has dropped all statements (`DEALLOCATE ALL`, `DISCARD ALL`).
pub fn forget_all(client: &mut Client, server: &mut Server) {
    client.statements.clear();
    server.statements.clear_sure();
}

/// A statement on a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct There {
    /// The key of the statement on the server.
    pub key: u128,
    /// The server parses the statement under other settings than the client did, under a key of its
    /// own.
    pub late: bool,
}

/// The statement of the failed entry at the front.
#[derive(Debug)]
pub struct Concerned {
    /// The statement's name on the server.
    pub server_name: Box<[u8]>,
    /// The client's name for the statement.
    pub name: Box<[u8]>,
    /// The statement, if it belongs to the client and the server has it.
    pub statement: Option<Arc<Statement>>,
}

/// The statement of the failed entry at the front, if its name on the server differs from the
/// client's name.
pub fn concerned(
    client: &Client,
    server: &mut Server,
    schema: SchemaId,
    statements: &mut Interner,
) -> Option<Concerned> {
    let front = server.link.ledger.front()?;
    let is_kept = front.named == statement::KEPT_UNNAMED;
    let (name, statement) = match front.effects().name.as_deref() {
        Some(op) if op.name.is_empty() => return None,
        Some(op) => match &op.change {
            Change::Define(named) => (op.name.clone(), named.statement.clone()),
            _ => {
                let server_name = match front.reply {
                    Reply::Bind | Reply::Describe => statement::UNKNOWN,
                    _ => statement::VOID,
                };
                return Some(Concerned {
                    server_name: server_name.into(),
                    name: op.name.clone(),
                    statement: None,
                });
            }
        },
        None => {
            let mut names = client.statements.iter();
            let kept = names.find(|(_, named)| front.named != 0 && named.number == front.named);
            match kept {
                Some(kept) => (kept.0.into(), kept.1.statement.clone()),
                None if is_kept || front.reply == Reply::Bind && front.named == 0 => {
                    (Box::default(), client.statements.unnamed()?.clone())
                }
                None => return None,
            }
        }
    };
    let meaning = server.session.changes.meaning(client.meaning);
    // Howdah bound a portal of `DEALLOCATE name` to a replacement statement.
    let void = |p: &Portal| p.void && Arc::ptr_eq(&p.statement, &statement);
    let replaced = front.reply == Reply::Bind && server.link.portals.iter().any(void);
    let late = match replaced {
        true => Some(statements.intern(schema, meaning, VOID_DEALLOCATION)),
        false if name.is_empty() && !is_kept => return None,
        false => None,
    };
    let key = match server.statements.find(late.as_ref().unwrap_or(&statement)) {
        (_, None) => {
            let late = statements.intern(schema, meaning, &statement.definition);
            server.statements.find(&late).0
        }
        (key, _) => key,
    };
    Some(Concerned {
        server_name: server_name(key)[..].into(),
        name,
        statement: Some(statement),
    })
}

/// The statement that a Bind or a Describe names.
#[derive(Debug, Default)]
pub struct Referent {
    /// The kind of name on the server, if it differs from the client's name.
    pub name: Option<ServerName>,
    /// The client's statement.
    pub statement: Option<Arc<Statement>>,
    /// The number of the client's name, or 0.
    pub named: u64,
    /// The key on the server: of the statement itself, or of `DEALLOCATE howdah_void` in its place.
    /// 0 for none.
    pub key: u128,
    /// The client has seen the statement's description.
    pub told: bool,
}

impl Referent {
    fn of_unnamed(statement: Option<Arc<Statement>>) -> Referent {
        Referent {
            statement,
            ..Referent::default()
        }
    }

    pub(super) fn refused(why: Refusal) -> Referent {
        Referent {
            name: Some(ServerName::Refused(why)),
            ..Referent::default()
        }
    }

    /// The statement's name on the server, if it differs from the client's name.
    pub fn server_name(&self) -> Option<Cow<'_, [u8]>> {
        Some(match self.name? {
            ServerName::Of | ServerName::Kept => self.statement.as_ref()?.name_under(self.key),
            ServerName::Unknown | ServerName::Refused(_) => Cow::Borrowed(statement::UNKNOWN),
        })
    }

    /// True if the client may later read rows by this description, so that the description must
    /// stay true.
    pub fn is_described(&self) -> bool {
        self.named != 0 && self.statement.as_ref().is_some_and(|s| s.first.planned)
    }

    /// The client's name with its number, for a description.
    pub fn asked(&self, name: &[u8]) -> Asked {
        Asked {
            name: name.into(),
            number: self.named,
        }
    }
}

/// The name of a statement on a server.
#[derive(Clone, Copy, Debug)]
pub enum ServerName {
    /// The name made from the statement's key.
    Of,
    /// The same, for the client's unnamed statement.
    Kept,
    /// A name that no statement ever has.
    Unknown,
    /// A name that no statement ever has, because the server can't use the statement.
    Refused(Refusal),
}
