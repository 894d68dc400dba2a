//! A PostgreSQL session as a value: messages go in, replies come out. It has no clock. A slow statement stops
//! the session ([`Session::slow`]) until [`Session::finish`].

use std::collections::{BTreeMap, VecDeque};

use howdah_wire::frame::cstr;
use howdah_wire::tag::{backend, frontend};
use howdah_wire::write;

use crate::schema::{Change, Shape};
use crate::settings::Settings;
use crate::sharding::{Key, Place, Placed};
use crate::sql::{Author, Sql, Token, split};
use crate::view::{Plan, View};
use crate::wal::Position;

mod channels;
mod copy;
mod extended;
mod objects;
mod reply;
mod shards;
mod transaction;

pub use channels::Listening;
use channels::{Channels, Mark};
use copy::CopyIn;
pub use objects::Keeping;
use objects::{Objects, Refusable};
use reply::COLUMN;
pub use shards::{REFUSED, Sense};
pub use transaction::CONFLICT;
use transaction::{Transaction, conflict};

/// The length of a ReadyForQuery.
const READY_LENGTH: usize = 6;

/// The error of a cancelled statement.
pub const CANCELLED: &str = "canceling statement due to user request";

/// A deed of a session, for the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// A statement ran.
    Ran(Token),
    /// A statement ran that says where it must run.
    At(Placed),
    /// A statement's change is committed.
    Kept(Token),
    /// A statement's change was rolled back.
    Undone(Token),
    /// A change of the session's channels is committed.
    Listening(Listening),
}

/// What a standby does to a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ailment {
    /// It refuses the read, with this SQLSTATE.
    Refuses(&'static str),
    /// It gives up after the first row.
    GivesUp,
}

/// One session.
pub struct Session {
    /// The session's settings.
    pub settings: Settings,
    /// The session's view of the tables.
    pub view: View,
    statements: BTreeMap<Vec<u8>, Prepared>,
    portals: BTreeMap<Vec<u8>, Portal>,
    channels: Channels,
    objects: Objects,
    savepoints: Vec<Savepoint>,
    block: Block,
    /// A transaction is open without a BEGIN.
    implicit: bool,
    changes: Vec<Token>,
    /// All clients whose statements ran in this transaction.
    authors: Vec<u32>,
    skipping: bool,
    copy: Option<CopyIn>,
    /// The rest of a Query.
    rest: Option<VecDeque<Sql>>,
    several: bool,
    slow: Option<Slow>,
    /// A statement with this name is described, and the reply is not known yet.
    undecided: Option<Vec<u8>>,
    /// Settings may have changed within the current group.
    unsettled: bool,
    /// The portal that was bound last in the group, and its statement.
    bound: Option<(Vec<u8>, Vec<u8>)>,
    /// The last message is about a statement whose constants a pooler may be unable to reproduce.
    refusable: bool,
    /// How a pooler in between keeps servers for clients.
    pub keeping: Keeping,
    /// No statement may change anything, as on a standby.
    pub read_only: bool,
    /// What the host shows: for rows, if hosts differ.
    pub shows: Option<Position>,
    /// What befalls the next statement that is a read of its own, at a standby.
    pub ailment: Option<Ailment>,
    /// The next reply says that a write is refused, as a standby does.
    pub refuses_write: bool,
    /// A write was refused.
    pub refused_write: bool,
    /// The transaction under way, or the last one.
    transaction: Transaction,
    /// What was fed last may keep its server, which too many may do.
    keeper: Option<Refusable>,
    /// The open group has begun a transaction. (A Close does not.)
    works: bool,
    /// The open transaction has begun with what may keep its server.
    permitted: bool,
    /// What was fed last has told the last value of a sequence, which another server may not know: in a
    /// Query, or not.
    forgettable: Option<bool>,
    /// What a client of a sharded database knows of its shards.
    pub sense: Option<Sense>,
    /// The second parameter of the portal that runs.
    key: Option<u8>,
    /// BEGIN of a serializable transaction is refused.
    pub refuses_begin: bool,
    /// A savepoint whose name the transaction has twice.
    pub doubled: Option<String>,
    /// The replies.
    pub out: Vec<u8>,
    /// How many bytes of `out` PostgreSQL would have sent by now.
    pub flushed: usize,
    /// Deeds that were not recorded yet.
    pub deeds: Vec<Deed>,
}

#[derive(Clone, Debug)]
struct Prepared {
    text: String,
    sql: Sql,
    /// The statement was made by SQL's PREPARE.
    by_sql: bool,
    /// The statement's needs of a table.
    plan: Option<Plan>,
    /// The statement's constants depend on settings that its client did not know of.
    vague: bool,
}

#[derive(Clone, Debug)]
struct Portal {
    text: String,
    sql: Sql,
    token: Option<Token>,
    /// The second parameter.
    key: Option<u8>,
    /// The rows already sent; `None` before the first Execute.
    sent: Option<u32>,
    done: bool,
    /// The table's shape that the rows have.
    shape: Option<Shape>,
}

/// A savepoint: the state of the transaction.
#[derive(Debug)]
struct Savepoint {
    name: String,
    changes: usize,
    channels: Mark,
    objects: objects::Mark,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    None,
    Open,
    Failed,
}

/// The work after a pause.
#[derive(Debug)]
enum Slow {
    Simple(Sql, u32),
    Portal(Vec<u8>, u32, u32),
}

/// An error: SQLSTATE and text.
pub type Fault = (&'static str, String);

/// The result of a statement.
enum Ran {
    Done,
    Waits,
}

impl Session {
    /// A session that has just logged in.
    pub fn new(settings: Settings, view: View) -> Session {
        Session {
            settings,
            view,
            undecided: None,
            unsettled: false,
            refusable: false,
            keeping: Keeping::default(),
            read_only: false,
            shows: None,
            ailment: None,
            refuses_write: false,
            refused_write: false,
            transaction: Transaction::default(),
            keeper: None,
            works: false,
            permitted: false,
            forgettable: None,
            sense: None,
            key: None,
            refuses_begin: false,
            doubled: None,
            bound: None,
            statements: BTreeMap::new(),
            channels: Channels::default(),
            objects: Objects::default(),
            savepoints: Vec::new(),
            portals: BTreeMap::new(),
            block: Block::None,
            implicit: false,
            changes: Vec::new(),
            authors: Vec::new(),
            skipping: false,
            copy: None,
            rest: None,
            several: false,
            slow: None,
            out: Vec::new(),
            flushed: 0,
            deeds: Vec::new(),
        }
    }

    /// The duration of the slow statement, in milliseconds; `None` if there is none.
    pub fn slow(&self) -> Option<u32> {
        match self.slow.as_ref()? {
            Slow::Simple(_, millis) | Slow::Portal(_, _, millis) => Some(*millis),
        }
    }

    /// True if the session awaits COPY data from its client.
    pub fn copies_in(&self) -> bool {
        self.copy.is_some()
    }

    /// True if nothing is open: no transaction, no group, no COPY.
    pub fn is_idle(&self) -> bool {
        self.block == Block::None
            && !self.implicit
            && !self.skipping
            && self.copy.is_none()
            && self.slow.is_none()
            && self.rest.is_none()
    }

    /// True between two statements of a transaction block.
    pub fn in_block(&self) -> bool {
        self.block != Block::None && self.rest.is_none() && self.copy.is_none()
    }

    /// True if all messages up to a Sync are skipped.
    pub fn skips(&self) -> bool {
        self.skipping
    }

    /// The last reply was an error instead: skips all messages up to a Sync.
    pub fn skip(&mut self) {
        self.out.clear();
        self.undecided = None;
        self.skipping = true;
    }

    /// The last reply was an error instead, which this session had not expected.
    pub fn lose(&mut self) {
        self.undecided = None;
        self.fail(&("42P01", String::new()));
        self.out.clear();
    }

    /// True if the transaction has failed.
    pub fn has_failed(&self) -> bool {
        self.block == Block::Failed
    }

    /// The names of the session's statements: those of SQL's PREPARE, or the others.
    pub fn statements(&self, by_sql: bool) -> impl Iterator<Item = &[u8]> {
        let of = self.statements.iter();
        of.filter(move |(name, prepared)| prepared.by_sql == by_sql && !name.is_empty())
            .map(|(name, _)| &name[..])
    }

    /// The clients whose statements ran in the open transaction.
    pub fn authors(&self) -> &[u32] {
        &self.authors
    }

    /// Takes a message. Must not be called while a slow statement runs.
    pub fn feed(&mut self, tag: u8, body: &[u8]) {
        assert!(self.slow.is_none(), "a slow session is not fed");
        if self.copy.is_some() {
            return self.copy_message(tag, body);
        }
        if self.skipping && tag != frontend::SYNC {
            return;
        }
        self.refusable = false;
        self.keeper = None;
        self.forgettable = None;
        match tag {
            frontend::QUERY => {
                self.query(body);
            }
            frontend::SYNC => {
                (self.skipping, self.works) = (false, false);
                self.end_implicit();
                self.ready();
            }
            frontend::FLUSH => self.flushed = self.out.len(),
            frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL => {}
            frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::CLOSE => {
                self.several = false;
                if self.block == Block::None && (!self.implicit || !self.works) {
                    let text = self.text_of(tag, body);
                    self.begin(&text);
                }
                if let Err(fault) = self.extended(tag, body) {
                    self.fail(&fault);
                }
                self.works |= tag != frontend::CLOSE;
            }
            _ => self.fail(&("08P01", format!("invalid frontend message type {tag}"))),
        }
    }

    /// Ends the slow statement, or cancels it.
    pub fn finish(&mut self, cancelled: bool) {
        let Some(slow) = self.slow.take() else { return };
        if cancelled {
            return self.fail(&("57014", CANCELLED.into()));
        }
        match slow {
            Slow::Simple(sql, _) => {
                if let Err(fault) = self.simple(&sql, true) {
                    return self.fail(&fault);
                }
                self.go_on();
            }
            Slow::Portal(name, most, _) => {
                if let Err(fault) = self.run_portal(&name, most) {
                    self.fail(&fault);
                }
            }
        }
    }

    /// True if the next reply depends on other sessions.
    pub fn is_undecided(&self) -> bool {
        self.undecided.is_some()
    }

    /// The next reply must be this one, if that is allowed.
    pub fn decide(&mut self, message: &[u8]) {
        self.view.hear(message);
        if let Some(name) = self.undecided.take()
            && let Err(fault) = self.describe_planned(&name)
        {
            self.fail(&fault);
        }
    }

    /// A cancel arrives. False if no statement runs.
    pub fn cancel(&mut self) -> bool {
        if self.slow.is_some() {
            self.finish(true);
            return true;
        }
        if self.copy.take().is_some() {
            self.fail(&("57014", CANCELLED.into()));
            return true;
        }
        false
    }

    /// Refuses a message, as if a cancel had hit at its very beginning.
    pub fn refuse(&mut self, tag: u8) {
        if tag == frontend::QUERY {
            self.error("57014", CANCELLED);
            self.ready();
        } else {
            self.error("57014", CANCELLED);
            self.skipping = true;
        }
    }

    /// Refuses a message in a transaction that no server has, as a cancel does.
    pub fn refuse_in_block(&mut self, simple: bool) {
        if simple {
            self.rest = Some(VecDeque::new());
        }
        self.fail(&("57014", CANCELLED.into()));
    }

    /// The connection is gone: uncommitted changes are rolled back.
    pub fn end(&mut self) {
        self.abort();
    }

    fn query(&mut self, body: &[u8]) {
        let text = cstr(body).map_or(&[][..], |(text, _)| text);
        let text = String::from_utf8_lossy(text).into_owned();
        self.statements.remove(&b""[..]);
        self.portals.remove(&b""[..]);
        if self.block == Block::None && !self.implicit {
            self.begin(&text);
        }
        let parts: VecDeque<Sql> = split(&text).into_iter().map(Sql::read).collect();
        self.several = parts.len() > 1;
        let empty = parts.is_empty();
        let unreadable = parts.contains(&Sql::Unreadable);
        if parts.iter().any(Sql::keeps_server) {
            self.may_keep(true);
        }
        self.works = false;
        self.rest = Some(parts);
        if unreadable {
            return self.fail(&("42601", "syntax error".into()));
        }
        if empty {
            write::empty(&mut self.out, backend::EMPTY_QUERY);
        }
        if self.is_sharded() {
            let parts: Vec<Sql> = self.rest.iter().flatten().cloned().collect();
            if let Err(fault) = self.placed(&parts, None) {
                return self.fail(&fault);
            }
        }
        self.go_on();
    }

    /// Runs the rest of a Query, as far as possible.
    fn go_on(&mut self) {
        while let Some(sql) = self.rest.as_mut().and_then(VecDeque::pop_front) {
            if self.block == Block::None && !self.implicit {
                self.begin("");
            }
            match self.simple(&sql, false) {
                Ok(Ran::Done) => {}
                Ok(Ran::Waits) => return,
                Err(fault) => return self.fail(&fault),
            }
        }
        self.rest = None;
        self.end_implicit();
        self.ready();
    }

    /// Runs one statement of a Query.
    fn simple(&mut self, sql: &Sql, rested: bool) -> Result<Ran, Fault> {
        if !rested {
            self.refuse_in_failed(sql)?;
        }
        if let Sql::Select { slow, .. } = sql
            && *slow > 0
            && !rested
        {
            self.slow = Some(Slow::Simple(sql.clone(), *slow));
            return Ok(Ran::Waits);
        }
        let token = sql.token();
        self.view.record(token);
        let table = sql.table();
        let shape = table.map(|at| self.view.runs(at, token)).transpose()?;
        if sql.has_rows() {
            self.describe_rows(sql, shape);
        }
        self.run(sql, None, "", shape)
    }

    fn refuse_in_failed(&self, sql: &Sql) -> Result<(), Fault> {
        if self.block == Block::Failed && !sql.is_exit() {
            let text = "current transaction is aborted, commands ignored until end of transaction \
                        block";
            return Err(("25P02", text.into()));
        }
        Ok(())
    }

    fn ran(&mut self, author: Author, parameter: Option<Token>) -> Option<Token> {
        let token = match author {
            Author::Token(token) => Some(token),
            Author::Parameter => parameter,
            Author::Nobody => None,
        }?;
        if !self.authors.contains(&token.client) {
            self.authors.push(token.client);
        }
        self.deeds.push(Deed::Ran(token));
        self.channels_ran(token);
        Some(token)
    }

    /// Notes where and how a statement runs, if it says where it must.
    fn notes_place(&mut self, token: Option<Token>, place: Place) {
        let (key, bound) = (place.key, self.key.take());
        let key = match key {
            Key::Nothing => None,
            Key::Constant(key) => Some(key),
            Key::Parameter => bound,
        };
        let says = key.is_some() || place.shard.is_some() || place.block.is_some();
        if let Some(token) = token.filter(|_| says) {
            self.deeds.push(Deed::At(Placed {
                token,
                place,
                key,
                in_block: self.block == Block::Open,
            }));
        }
    }

    /// Runs a statement that is not a portal's with rows.
    fn run(
        &mut self,
        sql: &Sql,
        parameter: Option<Token>,
        text: &str,
        shape: Option<Shape>,
    ) -> Result<Ran, Fault> {
        self.transaction.does(sql);
        if sql.writes() && self.must_not_write() {
            self.refused_write = true;
            return Err((
                "25006",
                "cannot execute this in a read-only transaction".into(),
            ));
        }
        let done = match sql {
            Sql::Empty => {
                write::empty(&mut self.out, backend::EMPTY_QUERY);
                return Ok(Ran::Done);
            }
            Sql::Unreadable => return Err(("42601", "syntax error".into())),
            Sql::Ask(asked) => {
                self.answer(asked);
                "SELECT 1".to_string()
            }
            Sql::Select {
                author,
                rows,
                size,
                notice,
                place,
                ..
            } => {
                let gives_up = self.ails()?;
                let token = self.ran(*author, parameter);
                self.notes_place(token, *place);
                if *notice {
                    write::notice(&mut self.out, "NOTICE", "00000", "noted", None);
                    self.flushed = self.out.len();
                }
                for row in 0..*rows {
                    self.row(token, row, *size, text, shape);
                    if gives_up {
                        return Err(conflict("40001"));
                    }
                }
                format!("SELECT {rows}")
            }
            Sql::Show(name) => {
                let Some(value) = self.settings.get(name).map(str::to_string) else {
                    return Err(("42704", format!("unrecognized parameter \"{name}\"")));
                };
                let value = [Some(value.as_bytes())];
                write::data_row(&mut self.out, value.into_iter());
                "SHOW".into()
            }
            Sql::Insert(author, _, place) => {
                let token = self.ran(*author, parameter);
                self.notes_place(token, *place);
                self.changes.extend(token);
                "INSERT 0 1".into()
            }
            Sql::Ddl {
                author,
                table,
                change,
                hidden,
            } => {
                let uses =
                    |portal: &Portal| portal.shape.is_some() && portal.sql.table() == Some(*table);
                if self.portals.values().any(uses) {
                    let text = format!(
                        "cannot change table \"t{table}\" because it is being used by active \
                         queries in this session"
                    );
                    return Err(("55006", text));
                }
                let token = self.ran(*author, parameter);
                // A new table does not count as a change: statements that need it have failed
                // before.
                let by_tag = !hidden && !matches!(change, Change::Create(_));
                self.view.change(*table, *change, token, by_tag)?;
                self.changes.extend(token);
                if *hidden {
                    self.row(token, 0, 0, text, None);
                    "SELECT 1".into()
                } else {
                    match change {
                        Change::Alter(_) => "ALTER TABLE".into(),
                        Change::Create(_) => "CREATE TABLE".into(),
                        Change::Drop => "DROP TABLE".into(),
                    }
                }
            }
            Sql::Listen(channel, author) => {
                let token = self.ran(*author, parameter);
                self.channels_change(token, Some(channel), true);
                "LISTEN".into()
            }
            Sql::Unlisten(channel, author) => {
                let token = self.ran(*author, parameter);
                self.channels_change(token, channel.as_deref(), false);
                "UNLISTEN".into()
            }
            Sql::Notify {
                channel,
                author,
                by_select,
                shown,
            } => {
                let token = self.ran(*author, parameter);
                self.notifies(channel, token, *shown);
                if *by_select {
                    self.row(token, 0, 0, text, None);
                    "SELECT 1".into()
                } else {
                    "NOTIFY".into()
                }
            }
            Sql::Fail(author, place) => {
                let token = self.ran(*author, parameter);
                self.notes_place(token, *place);
                return Err(("22012", "division by zero".into()));
            }
            Sql::CopyIn(author) => {
                let token = self.ran(*author, parameter);
                let (rows, sum) = (0, 0);
                self.copy = Some(CopyIn { token, rows, sum });
                write::message(&mut self.out, backend::COPY_IN, |buf| {
                    buf.extend_from_slice(&[0, 0, 1, 0, 0]);
                });
                self.flushed = self.out.len();
                return Ok(Ran::Waits);
            }
            Sql::CopyOut(author, rows, size) => {
                let token = self.ran(*author, parameter);
                self.copy_out(token, *rows, *size);
                format!("COPY {rows}")
            }
            _ => self.command(sql)?,
        };
        write::command_complete(&mut self.out, &done);
        Ok(Ran::Done)
    }

    /// Runs a statement that changes the session.
    fn command(&mut self, sql: &Sql) -> Result<String, Fault> {
        Ok(match sql {
            Sql::Begin(modes) if modes.serializable && self.refuses_begin => {
                return Err(("0A000", "no transaction begins now".into()));
            }
            Sql::Begin(modes) => {
                self.set_modes(*modes)?;
                if self.block == Block::None {
                    self.block = Block::Open;
                    self.implicit = false;
                } else {
                    self.warn("25001", "there is already a transaction in progress");
                }
                "BEGIN".into()
            }
            Sql::Commit if self.block == Block::Failed => {
                self.abort();
                "ROLLBACK".into()
            }
            Sql::Commit | Sql::Rollback => {
                if self.block == Block::None {
                    self.warn("25P01", "there is no transaction in progress");
                }
                if *sql == Sql::Commit {
                    self.commit();
                } else {
                    self.abort();
                }
                if *sql == Sql::Commit {
                    "COMMIT"
                } else {
                    "ROLLBACK"
                }
                .into()
            }
            Sql::Savepoint(name) => {
                if self.block == Block::None {
                    let text = "SAVEPOINT can only be used in transaction blocks";
                    return Err(("25P01", text.into()));
                }
                if self.savepoints.iter().any(|s| s.name == *name) {
                    self.doubled = Some(name.clone());
                }
                self.savepoints.push(Savepoint {
                    name: name.clone(),
                    changes: self.changes.len(),
                    channels: self.channels_mark(),
                    objects: self.objects.mark(),
                });
                "SAVEPOINT".into()
            }
            Sql::RollbackTo(name) => {
                if self.block == Block::None {
                    let text = "ROLLBACK TO SAVEPOINT can only be used in transaction blocks";
                    return Err(("25P01", text.into()));
                }
                let at = self.savepoints.iter().rposition(|s| s.name == *name);
                let Some(at) = at else {
                    let text = format!("savepoint \"{name}\" does not exist");
                    return Err(("3B001", text));
                };
                self.savepoints.truncate(at + 1);
                let (changes, mark) = (self.savepoints[at].changes, self.savepoints[at].channels);
                self.objects.back_to(&self.savepoints[at].objects);
                let undone = self.changes.drain(changes..);
                self.deeds.extend(undone.map(Deed::Undone));
                self.channels_back_to(mark);
                self.block = Block::Open;
                "ROLLBACK".into()
            }
            Sql::Set(name, value, local) => {
                if *local && self.block == Block::None {
                    self.warn("25P01", "SET LOCAL can only be used in transaction blocks");
                }
                if let Some(done) = self.set_shard(name, value, *local) {
                    done?;
                } else if !self.settings.set(name, value, *local) {
                    let text = format!("invalid value for parameter \"{name}\": \"{value}\"");
                    return Err(("22023", text));
                }
                "SET".into()
            }
            Sql::Change(all) => {
                for (name, value) in all {
                    let done = match value {
                        Some(value) => self.settings.set(name, value, false),
                        None => self.settings.reset(Some(name)),
                    };
                    if !done {
                        return Err(("22023", format!("invalid value for parameter \"{name}\"")));
                    }
                }
                "SELECT 1".into()
            }
            Sql::Reset(name) => {
                if let Some(done) = self.reset_shard(name.as_deref()) {
                    done?;
                } else if !self.settings.reset(name.as_deref()) {
                    return Err(("42704", "unrecognized parameter".into()));
                }
                "RESET".into()
            }
            Sql::DiscardAll => {
                if self.block != Block::None || self.several {
                    let text = "DISCARD ALL cannot run inside a transaction block";
                    return Err(("25001", text.into()));
                }
                self.settings.reset(None);
                let _ = self.reset_shard(None);
                self.channels_change(None, None, false);
                self.forget_named();
                self.portals.clear();
                self.discard_all_objects();
                "DISCARD ALL".into()
            }
            Sql::Object(object) => self.object(object)?,
            Sql::Create => {
                self.view.tell(None);
                "CREATE FUNCTION".into()
            }
            Sql::Deallocate(None) => {
                self.forget_named();
                "DEALLOCATE ALL".into()
            }
            Sql::Deallocate(Some(name)) => {
                if self.statements.remove(name.as_bytes()).is_none() {
                    return Err(no_statement(name.as_bytes()));
                }
                "DEALLOCATE".into()
            }
            Sql::Prepare(name, text) => {
                let prepared = Prepared {
                    text: text.clone(),
                    sql: Sql::read(text),
                    by_sql: true,
                    plan: None,
                    vague: false,
                };
                self.keep(name.as_bytes(), prepared)?;
                if let Some(keeper) = &mut self.keeper {
                    keeper.prepares = Some(name.as_bytes().to_vec());
                }
                "PREPARE".into()
            }
            Sql::Execute(name, author) => {
                let Some(prepared) = self.statements.get(name.as_bytes()).cloned() else {
                    return Err(no_statement(name.as_bytes()));
                };
                let token = self.ran(*author, None);
                write::row_description(&mut self.out, &[COLUMN]);
                self.row(token, 0, 0, &prepared.text, None);
                "SELECT 1".into()
            }
            _ => return Err(("0A000", "not known here".into())),
        })
    }

    /// Removes all named statements; the unnamed one stays.
    fn forget_named(&mut self) {
        self.statements.retain(|name, _| name.is_empty());
    }

    fn keep(&mut self, name: &[u8], prepared: Prepared) -> Result<(), Fault> {
        if !name.is_empty() && self.statements.contains_key(name) {
            let name = String::from_utf8_lossy(name);
            let text = format!("prepared statement \"{name}\" already exists");
            return Err(("42P05", text));
        }
        self.statements.insert(name.to_vec(), prepared);
        Ok(())
    }

    /// True if the last message may be refused because its constants depend on other settings.
    pub fn may_be_refused(&self) -> bool {
        self.refusable
    }
}

fn no_statement(name: &[u8]) -> Fault {
    if name.is_empty() {
        return ("26000", "unnamed prepared statement does not exist".into());
    }
    let name = String::from_utf8_lossy(name);
    (
        "26000",
        format!("prepared statement \"{name}\" does not exist"),
    )
}
