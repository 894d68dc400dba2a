//! What texts mean in the transaction under way, where that is another than before and after it.
//!
//! PostgreSQL reads names and constants when it parses. DDL that may be undone, a temporary table
//! in the place of another, a search path of its own and settings of which PostgreSQL has not told
//! yet make something else out of a text, here and now: what is parsed then must be nobody else's,
//! and what holds no longer must go.

use std::hash::{BuildHasher, Hash};

use howdah_wire::backend::{Fields, Status};
use howdah_wire::frame::{HEADER, Header};
use howdah_wire::tag::frontend;
use howdah_wire::write;

use super::downstream::Downstream;
use super::upstream::{FRONT_MAX, Flow, Upstream, whole};
use crate::command::{Alters, Setting, alters, changes_schema, setting};
use crate::event::{Out, Peer, ServerId};
use crate::inbox::Chunk;
use crate::ledger::{Entry, Reply};
use crate::params::Params;
use crate::pooler::Pooler;
use crate::server::{Server, State, Unnamed};
use crate::statement::{Statement, server_name};

/// What a server's transaction has changed for texts that are parsed in it.
#[derive(Debug, Default)]
pub struct Changes {
    /// The schema.
    pub schema: bool,
    /// Names that the client had given until then are of statements of before.
    old_names: u64,
    /// Settings that have a meaning were reported to be others.
    settings: bool,
    /// How many temporary things it has made, in whose place others may have stood.
    temporaries: u32,
    /// Settings may be others since an Execute in this group, which PostgreSQL tells at its end:
    /// what texts mean until then.
    unsettled: Option<u64>,
    /// The search path, if that was set: a hash of how.
    path: Option<u64>,
    parsed: Vec<Parsed>,
    /// The unnamed statement is such a one, too.
    unnamed: bool,
    /// Some were late, and what they were late for may be undone by now.
    undone: bool,
}

/// A statement that is something else outside the transaction.
#[derive(Clone, Copy, Debug)]
struct Parsed {
    key: u128,
    /// It was named before the schema changed: once that is undone, PostgreSQL refuses it.
    late: bool,
}

impl Changes {
    /// Nothing is left of it that may stay on a server.
    pub fn left_nothing(&self) -> bool {
        self.parsed.is_empty() && !self.unnamed
    }

    /// A name, by its number, is of a statement from before the schema changed.
    pub fn is_older(&self, named: u64) -> bool {
        self.schema && named <= self.old_names
    }

    /// Something temporary may stand in the place of something else.
    pub fn has_temporary(&self) -> bool {
        self.temporaries > 0
    }

    /// The end of the transaction, or of a part of it, changes what texts mean.
    pub fn end_matters(&self) -> bool {
        self.schema || self.settings || self.path.is_some() || self.has_temporary()
    }

    /// What a text means that is parsed now, for a client whose settings have that meaning.
    pub fn meaning(&self, of_client: u64) -> u64 {
        let settings = self.unsettled.unwrap_or(of_client);
        match (self.path, self.temporaries) {
            (None, 0) => settings,
            made => mixed((settings, made)),
        }
    }

    /// What texts mean that are parsed now is what they mean to a client of such settings.
    pub(super) fn is_usual(&self) -> bool {
        self.unsettled.is_none() && self.path.is_none() && self.temporaries == 0
    }

    fn note(&mut self, key: u128, late: bool) {
        match self.parsed.iter_mut().find(|parsed| parsed.key == key) {
            Some(parsed) => parsed.late |= late,
            None => self.parsed.push(Parsed { key, late }),
        }
    }
}

/// A meaning made of others: the same for all who have the same.
fn mixed(parts: impl Hash) -> u64 {
    foldhash::quality::FixedState::with_seed(0x6d65_616e).hash_one(parts)
}

/// What setting a setting does that PostgreSQL does not tell of.
fn path(name: &[u8], text: &[u8]) -> Alters {
    match name == b"search_path" {
        true => Alters::Path(mixed(text)),
        false => Alters::Nothing,
    }
}

/// What is parsed.
impl Upstream<'_> {
    /// Whether a Query begins with a command that alters what PostgreSQL does not tell of by its
    /// tag, or at the end of the Query.
    pub(super) fn query_alters(&self, chunk: &Chunk<'_>, header: Header) -> Result<Alters, Flow> {
        let body = &chunk.rest()[HEADER..];
        let body = &body[..body.len().min(header.body as usize)];
        let word =
            |text: &[u8]| text.eq_ignore_ascii_case(b"cre") || text.eq_ignore_ascii_case(b"set");
        let may = match body.first() {
            Some(b'-' | b'/' | b'\t'..=b'\r' | b' ') => true,
            _ => body.get(..3).is_none_or(word),
        };
        if !may || !self.renames || header.total() > FRONT_MAX {
            return Ok(Alters::Nothing);
        }
        let whole = whole(chunk, header).ok_or(Flow::Partial)?;
        let text = whole.strip_suffix(b"\0").unwrap_or(whole);
        Ok(match alters(text) {
            creates @ (Alters::Creates | Alters::CreatesTemporary) => creates,
            Alters::Settings(_) => match setting(text) {
                Some(Setting::To(name)) if self.tracked.position(&name).is_none() => {
                    path(&name, text)
                }
                _ => Alters::Nothing,
            },
            _ => Alters::Nothing,
        })
    }

    /// What texts mean that are parsed now.
    pub(super) fn meaning(&mut self) -> u64 {
        let of_client = self.client.meaning;
        self.linked().changes.meaning(of_client)
    }

    /// Waits where what texts mean is told at the end of a group that is over, and where what was
    /// parsed late may have become useless. Then that is taken away.
    pub(super) fn settle_meaning(&mut self) -> Result<(), Flow> {
        let server = self.linked();
        let untold = server.changes.unsettled.is_some() && !server.ledger.group_open();
        let ends = server.changes.schema && !server.changes.left_nothing();
        if untold || (ends && server.ledger.has_barrier()) {
            return Err(self.stall());
        }
        if !server.changes.undone {
            return Ok(());
        }
        server.changes.undone = false;
        let late = server.changes.parsed.extract_if(.., |parsed| parsed.late);
        let late: Vec<Parsed> = late.collect();
        if std::mem::take(&mut server.changes.unnamed) {
            server.unnamed = Unnamed::Unknown;
        }
        for Parsed { key, .. } in late {
            if let Some(statement) = self.linked().set.statement(key) {
                self.take_away(key, &statement);
            }
        }
        Ok(())
    }

    /// A statement is about to be parsed under a key.
    pub(super) fn parses(&mut self, key: u128, statement: &Statement) {
        let old = statement.schema != self.interner.schema();
        let changes = &mut self.linked().changes;
        if changes.schema || changes.has_temporary() {
            changes.note(key, old && changes.schema);
        }
    }

    /// The unnamed statement is about to be parsed. In doubt it is nobody else's.
    pub(super) fn parses_unnamed(&mut self) {
        let changes = &mut self.linked().changes;
        changes.unnamed = changes.end_matters() || changes.unsettled.is_some();
    }

    /// Whether running a statement changes what texts mean behind it.
    pub(super) fn alters(&mut self, statement: &Statement) -> Alters {
        let told = |name: &[u8]| self.tracked.position(name).is_some_and(Params::has_meaning);
        match statement.alters {
            Alters::Settings(_) => match setting(statement.text()) {
                Some(Setting::To(name)) if told(&name) => {
                    Alters::Settings(mixed(statement.text()).max(1))
                }
                Some(Setting::Back(name)) if told(&name) => Alters::Settings(0),
                Some(Setting::AllBack) => Alters::Settings(0),
                Some(Setting::To(name) | Setting::Back(name)) => path(&name, statement.text()),
                None => Alters::Nothing,
            },
            Alters::Ends => match &self.linked().changes {
                changes if changes.settings || changes.unsettled.is_some() => Alters::Settings(0),
                changes if changes.end_matters() => Alters::Ends,
                _ => Alters::Nothing,
            },
            other => other,
        }
    }
}

/// What changes what texts mean.
impl Downstream<'_> {
    /// A command has ended.
    pub(super) fn may_alter(&mut self, tag: &[u8]) {
        let changes = &mut self.server.changes;
        let altered = match self.server.ledger.take_alters() {
            Alters::CreatesTemporary => {
                changes.temporaries += 1;
                false
            }
            // CREATE TABLE AS tells how many rows there are.
            Alters::Creates if tag.starts_with(b"SELECT") => true,
            Alters::Exists => false,
            Alters::Settings(how) => {
                let of_client = self.client.as_ref().map_or(0, |(_, client)| client.meaning);
                let before = changes.unsettled.unwrap_or(of_client);
                changes.unsettled = Some(match how {
                    0 => self.shared.statements.unknown_meaning(),
                    text => mixed((before, text)),
                });
                changes_schema(tag)
            }
            Alters::Path(text) => {
                changes.path = Some(mixed((changes.path, text)));
                false
            }
            _ => changes_schema(tag),
        };
        if tag == b"ROLLBACK" && changes.path.is_some() {
            changes.path = Some(self.shared.statements.unknown_meaning());
        }
        if altered {
            changes.schema = true;
            changes.old_names = self
                .client
                .as_ref()
                .map_or(0, |(_, client)| client.names_given);
            self.shared.statements.schema_changed();
        } else if changes.schema && tag == b"ROLLBACK" {
            // To a savepoint, perhaps.
            changes.undone = true;
            self.shared.statements.schema_changed();
        }
    }

    /// A notice on its way: CREATE TABLE IF NOT EXISTS may have found that there is nothing to do.
    pub(super) fn may_say_exists(&mut self, chunk: &Chunk<'_>, header: Header) {
        let creates = |entry: &Entry| matches!(entry.alters, Alters::Creates);
        if self.server.ledger.front().as_ref().is_some_and(creates)
            && let Some(body) = chunk.rest().get(HEADER..header.total())
            && Fields::new(body).sqlstate() == Some(b"42P07")
        {
            self.server.ledger.set_alters(Alters::Exists);
        }
    }

    /// Settings were reported to be others.
    pub(super) fn settings_changed(&mut self) {
        self.server.changes.settings = true;
    }

    /// PostgreSQL has told all. At the end of a transaction others see what it has changed, or
    /// it is no more.
    pub(super) fn changes_are_told(&mut self, status: Status) {
        let changes = &mut self.server.changes;
        changes.unsettled = None;
        if status == Status::Idle {
            changes.temporaries = 0;
            changes.path = None;
            changes.settings = false;
            if std::mem::take(&mut changes.schema) {
                self.shared.statements.schema_changed();
            }
        }
    }
}

impl Pooler {
    /// Closes what a server has parsed that nobody may find there. True if that takes a while.
    pub(crate) fn close_transient(&mut self, id: ServerId, out: &mut Out) -> bool {
        let Some(server) = self.servers.get_mut(id) else {
            return false;
        };
        let changes = std::mem::take(&mut server.changes);
        if changes.unnamed {
            server.unnamed = Unnamed::Unknown;
        }
        let mut closes = false;
        for Parsed { key, .. } in changes.parsed {
            if server.set.statement(key).is_some() {
                closes = true;
                close_for_us(id, server, key, out);
            }
        }
        if closes {
            server.ledger.push(Entry::swallow(Reply::Sync), true);
            out.send_with(Peer::Server(id), |buf| write::empty(buf, frontend::SYNC));
            self.await_task(id, State::Resetting);
        }
        closes
    }
}

/// Takes a statement away from a server that is nobody's.
fn close_for_us(id: ServerId, server: &mut Server, key: u128, out: &mut Out) {
    server.set.remove(key);
    server.ledger.push(Entry::swallow(Reply::Close), true);
    out.send_with(Peer::Server(id), |buf| {
        write::of_statement(buf, frontend::CLOSE, &server_name(key));
    });
}
