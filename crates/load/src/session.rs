//! A model of a PostgreSQL session: it writes messages and computes the expected replies.
//!
//! Every method appends a message to `out`, appends PostgreSQL's replies to `want`, and changes the
//! model's state as PostgreSQL changes its own: statements, portals, the transaction, and the rest
//! of a group that is skipped after an error.

use std::collections::{BTreeMap, HashMap};

use crate::expect::{Text, Want, error};
use crate::messages::{
    self, Arguments, Column, Message, Row, data_row, parameter_description, row_description,
    text_body,
};
use crate::statement::{Call, Statement};

/// The transaction state in ReadyForQuery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// No transaction block.
    Idle,
    /// In a block.
    Open,
    /// In a block that has failed.
    Failed,
}

impl Block {
    fn byte(self) -> u8 {
        match self {
            Block::Idle => b'I',
            Block::Open => b'T',
            Block::Failed => b'E',
        }
    }
}

/// A bound portal, and how many rows were read.
#[derive(Clone, Debug)]
struct Portal {
    statement: Statement,
    call: Call,
    read: usize,
}

/// One statement of a simple query, and the expected reply.
#[derive(Clone, Debug)]
pub enum Part {
    /// A result set.
    Rows(Vec<Column>, Vec<Row>),
    /// A command that returns only its tag.
    Tag(String),
    /// `begin`.
    Begin,
    /// `commit`.
    Commit,
    /// `rollback`.
    Rollback,
    /// An error. No statement after it runs.
    Error(Want),
    /// Any other reply of a statement that does not change the block.
    Raw(Vec<Want>),
    /// The following statements change these reported settings.
    Change(Vec<(String, String)>),
    /// A statement that changes a reported setting.
    Set {
        /// The command tag.
        tag: &'static str,
        /// Names and new values of the settings.
        values: Vec<(String, String)>,
    },
}

/// A text value of a row.
pub fn text(value: impl Into<String>) -> Option<Vec<u8>> {
    Some(value.into().into_bytes())
}

/// The model, with the messages to send and to expect.
#[derive(Debug, Default)]
pub struct Session {
    /// The messages to send.
    pub out: Vec<u8>,
    /// The expected replies.
    pub want: Vec<Want>,
    /// Named statements.
    pub statements: HashMap<String, Statement>,
    /// The unnamed statement.
    pub unnamed: Option<Statement>,
    portals: HashMap<String, Portal>,
    block: Option<Block>,
    skipping: bool,
    /// The settings last reported.
    pub settings: BTreeMap<String, String>,
    /// The settings at login, which RESET and DISCARD ALL restore.
    pub initial: BTreeMap<String, String>,
    /// The current settings, reported or not yet.
    current: BTreeMap<String, String>,
    /// The settings that a rollback restores.
    before_block: BTreeMap<String, String>,
    /// Values hidden by SET LOCAL, which a commit restores.
    local: BTreeMap<String, String>,
    /// The model does not know the replies of the unnamed statement.
    pub opaque: bool,
}

const ABORTED: &str =
    "current transaction is aborted, commands ignored until end of transaction block";

/// The error of a statement in a failed transaction.
pub fn aborted() -> Want {
    error("25P02", ABORTED)
}

/// The error for an unknown statement.
pub fn no_statement(name: &str) -> Want {
    if name.is_empty() {
        return error("26000", "unnamed prepared statement does not exist");
    }
    error(
        "26000",
        format!("prepared statement \"{name}\" does not exist"),
    )
}

impl Session {
    /// A session whose login reported `settings`.
    pub fn new(settings: BTreeMap<String, String>) -> Session {
        Session {
            current: settings.clone(),
            before_block: settings.clone(),
            initial: settings.clone(),
            settings,
            ..Session::default()
        }
    }

    /// The transaction state.
    pub fn block(&self) -> Block {
        self.block.unwrap_or(Block::Idle)
    }

    /// Expects an exact message.
    pub fn exact(&mut self, tag: u8, body: Vec<u8>) {
        self.want.push(Want::Exact(Message { tag, body }));
    }

    /// Expects a CommandComplete.
    pub fn complete(&mut self, tag: &str) {
        self.exact(b'C', text_body(tag));
    }

    fn fail(&mut self, want: Want) {
        self.want.push(want);
        self.skipping = true;
        self.abort();
    }

    fn abort(&mut self) {
        self.current.clone_from(&self.before_block);
        self.local.clear();
        match self.block() {
            Block::Idle => self.portals.clear(),
            // The portals remain, but are unusable, until the block ends.
            Block::Open | Block::Failed => self.block = Some(Block::Failed),
        }
    }

    /// Expects an error as the reply to messages that the caller wrote.
    pub fn fail_with(&mut self, want: Want) {
        if !self.skipping {
            self.fail(want);
        }
    }

    /// A simple query that returns a failed block to a savepoint.
    pub fn recover(&mut self, sql: &str, tag: &str) {
        messages::query(&mut self.out, sql);
        self.unnamed = None;
        self.opaque = false;
        self.block = Some(Block::Open);
        self.complete(tag);
        self.ready();
    }

    /// `name` is set to `value` until the end of the block.
    pub fn set_local(&mut self, name: &str, value: &str) {
        let old = self.current.insert(name.to_owned(), value.to_owned());
        self.local.extend(old.map(|old| (name.to_owned(), old)));
    }

    fn begin(&mut self) {
        if self.block() == Block::Idle {
            self.block = Some(Block::Open);
        } else {
            self.want.push(Want::Report {
                tag: b'N',
                severity: "WARNING",
                code: "25001",
                text: Text::Is("there is already a transaction in progress".to_owned()),
            });
        }
    }

    /// Ends the block. Returns the command tag.
    fn end(&mut self, commit: bool) -> &'static str {
        let was = self.block();
        if was == Block::Idle {
            self.want.push(Want::Report {
                tag: b'N',
                severity: "WARNING",
                code: "25P01",
                text: Text::Is("there is no transaction in progress".to_owned()),
            });
        }
        self.block = Some(Block::Idle);
        self.portals.clear();
        if commit && was != Block::Failed {
            self.current.append(&mut self.local);
            self.before_block.clone_from(&self.current);
            return "COMMIT";
        }
        self.local.clear();
        self.current.clone_from(&self.before_block);
        "ROLLBACK"
    }

    /// Expects ReadyForQuery, after the changed settings.
    fn ready(&mut self) {
        let changed: BTreeMap<String, String> = self
            .current
            .iter()
            .filter(|(name, value)| self.settings.get(*name) != Some(value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !changed.is_empty() {
            self.want.push(Want::Settings(changed));
            self.settings.clone_from(&self.current);
        }
        let byte = self.block().byte();
        self.exact(b'Z', vec![byte]);
    }

    /// The end of a command outside of a block: its settings remain.
    fn settle(&mut self) {
        if self.block() == Block::Idle {
            self.before_block.clone_from(&self.current);
            self.portals.clear();
        }
    }

    /// A simple query with these expected replies.
    pub fn query(&mut self, sql: &str, parts: &[Part]) {
        messages::query(&mut self.out, sql);
        self.unnamed = None;
        self.opaque = false;
        self.skipping = false;
        if parts.is_empty() {
            self.exact(b'I', vec![]);
        } else {
            self.portals.remove("");
        }
        for part in parts {
            let exit = matches!(part, Part::Commit | Part::Rollback);
            if self.block() == Block::Failed && !exit {
                // PostgreSQL parses before it checks the transaction: a syntax error comes first.
                self.want.push(match part {
                    Part::Error(want @ Want::Report { code: "42601", .. }) => want.clone(),
                    _ => aborted(),
                });
                break;
            }
            if !self.part(part) {
                break;
            }
        }
        self.settle();
        self.ready();
    }

    /// One statement of a simple query; false after an error.
    fn part(&mut self, part: &Part) -> bool {
        match part {
            Part::Rows(columns, rows) => {
                self.exact(b'T', row_description(columns, &[]));
                for row in rows {
                    self.exact(b'D', data_row(row));
                }
                self.complete(&format!("SELECT {}", rows.len()));
            }
            Part::Tag(tag) => self.complete(tag),
            Part::Begin => {
                self.begin();
                self.complete("BEGIN");
            }
            Part::Commit | Part::Rollback => {
                let tag = self.end(matches!(part, Part::Commit));
                self.complete(tag);
            }
            Part::Error(want) => {
                self.want.push(want.clone());
                self.abort();
                return false;
            }
            Part::Raw(wants) => self.want.extend(wants.iter().cloned()),
            Part::Change(values) => self.current.extend(values.iter().cloned()),
            Part::Set { tag, values } => {
                self.current.extend(values.iter().cloned());
                self.complete(tag);
            }
        }
        true
    }

    /// Parse.
    pub fn parse(&mut self, name: &str, statement: &Statement) {
        messages::parse(&mut self.out, name, &statement.text(), &statement.given());
        if self.skipping {
            return;
        }
        if name.is_empty() {
            self.unnamed = None;
            self.opaque = false;
        }
        if statement.shape == crate::statement::Shape::Broken {
            self.fail(error("42601", "syntax error at or near \"selekt\""));
        } else if self.block() == Block::Failed && !statement.ends_transaction() {
            self.fail(aborted());
        } else if self.statements.contains_key(name) {
            self.fail(error(
                "42P05",
                format!("prepared statement \"{name}\" already exists"),
            ));
        } else {
            if name.is_empty() {
                self.unnamed = Some(*statement);
            } else {
                self.statements.insert(name.to_owned(), *statement);
            }
            self.exact(b'1', vec![]);
        }
    }

    /// The statement with this name.
    pub fn statement(&self, name: &str) -> Option<Statement> {
        if name.is_empty() {
            self.unnamed
        } else {
            self.statements.get(name).copied()
        }
    }

    /// Bind of `call`: a call of the session's statement `name`, or any call if the name is
    /// unknown.
    pub fn bind(&mut self, portal: &str, name: &str, call: &Call) {
        messages::bind(&mut self.out, portal, name, &call.arguments);
        if self.skipping {
            return;
        }
        let Some(statement) = self.statement(name) else {
            return self.fail(no_statement(name));
        };
        let (given, needed) = (call.arguments.values.len(), statement.parameters().len());
        if given != needed {
            // A pooler renames statements, so the name in the text is not compared.
            let start = format!("bind message supplies {given} parameters, but prepared statement");
            let text = Text::Starts(start);
            return self.fail(Want::Report {
                tag: b'E',
                severity: "ERROR",
                code: "08P01",
                text,
            });
        }
        if self.block() == Block::Failed && !statement.ends_transaction() {
            return self.fail(aborted());
        }
        if !portal.is_empty() && self.portals.contains_key(portal) {
            return self.fail(error(
                "42P03",
                format!("cursor \"{portal}\" already exists"),
            ));
        }
        let bound = Portal {
            statement,
            call: call.clone(),
            read: 0,
        };
        self.portals.insert(portal.to_owned(), bound);
        self.exact(b'2', vec![]);
    }

    /// Describe of a statement.
    pub fn describe_statement(&mut self, name: &str) {
        messages::describe(&mut self.out, b'S', name);
        if self.skipping {
            return;
        }
        let Some(statement) = self.statement(name) else {
            return self.fail(no_statement(name));
        };
        let columns = statement.columns();
        if self.block() == Block::Failed && columns.is_some() {
            return self.fail(aborted());
        }
        self.exact(b't', parameter_description(&statement.parameters()));
        match columns {
            Some(columns) => self.exact(b'T', row_description(&columns, &[])),
            None => self.exact(b'n', vec![]),
        }
    }

    fn no_portal(name: &str) -> Want {
        error("34000", format!("portal \"{name}\" does not exist"))
    }

    /// Describe of a portal.
    pub fn describe_portal(&mut self, name: &str) {
        messages::describe(&mut self.out, b'P', name);
        if self.skipping {
            return;
        }
        let Some(portal) = self.portals.get(name) else {
            return self.fail(Self::no_portal(name));
        };
        match portal.statement.columns() {
            Some(_) if self.block() == Block::Failed => self.fail(aborted()),
            Some(columns) => {
                let body = row_description(&columns, &portal.call.arguments.results);
                self.exact(b'T', body);
            }
            None => self.exact(b'n', vec![]),
        }
    }

    /// Execute of at most `limit` rows (0: all).
    pub fn execute(&mut self, name: &str, limit: usize) {
        messages::execute(&mut self.out, name, limit as u32);
        if self.skipping {
            return;
        }
        let block = self.block();
        let Some(portal) = self.portals.get_mut(name) else {
            return self.fail(Self::no_portal(name));
        };
        let statement = portal.statement;
        if block == Block::Failed && !statement.ends_transaction() {
            return self.fail(aborted());
        }
        if statement.columns().is_none() {
            if portal.read > 0 {
                return self.fail(error("55000", format!("portal \"{name}\" cannot be run")));
            }
            portal.read = 1;
            match statement.shape {
                crate::statement::Shape::Begin => {
                    self.begin();
                    self.complete("BEGIN");
                }
                shape => {
                    let tag = self.end(shape == crate::statement::Shape::Commit);
                    self.complete(tag);
                }
            }
            return;
        }
        self.fetch(name, limit);
    }

    fn fetch(&mut self, name: &str, limit: usize) {
        let portal = self.portals.get_mut(name).expect("looked up by the caller");
        let left = portal.call.rows.len() - portal.read;
        let count = if limit == 0 { left } else { left.min(limit) };
        let rows: Vec<Row> = portal.call.rows[portal.read..portal.read + count].to_vec();
        portal.read += count;
        let failure = portal.call.error.clone();
        let tag = portal.statement.tag();
        for row in &rows {
            self.exact(b'D', data_row(row));
        }
        if limit > 0 && count == limit {
            self.exact(b's', vec![]);
        } else if let Some(want) = failure {
            self.fail(want);
        } else {
            self.complete(&format!("{tag} {count}"));
        }
    }

    /// Close of a statement.
    pub fn close_statement(&mut self, name: &str) {
        messages::close(&mut self.out, b'S', name);
        if self.skipping {
            return;
        }
        if name.is_empty() {
            self.unnamed = None;
            self.opaque = false;
        } else {
            self.statements.remove(name);
        }
        self.exact(b'3', vec![]);
    }

    /// Close of a portal.
    pub fn close_portal(&mut self, name: &str) {
        messages::close(&mut self.out, b'P', name);
        if !self.skipping {
            self.portals.remove(name);
            self.exact(b'3', vec![]);
        }
    }

    /// Flush.
    pub fn flush(&mut self) {
        messages::bare(&mut self.out, b'H');
    }

    /// The end of a simple query with messages and replies by the caller.
    pub fn ready_after_simple(&mut self) {
        self.skipping = false;
        self.settle();
        self.ready();
    }

    /// Sync.
    pub fn sync(&mut self) {
        messages::bare(&mut self.out, b'S');
        self.skipping = false;
        self.settle();
        self.ready();
    }

    /// Parse of the unnamed statement. The caller writes the replies to its execution.
    pub fn parse_text(&mut self, sql: &str, types: &[u32]) {
        messages::parse(&mut self.out, "", sql, types);
        self.unnamed = None;
        self.opaque = true;
        self.exact(b'1', vec![]);
    }

    /// Bind of the statement of [`Session::parse_text`].
    pub fn bind_text(&mut self, arguments: &Arguments) {
        messages::bind(&mut self.out, "", "", arguments);
        self.portals.remove("");
        self.exact(b'2', vec![]);
    }

    /// Execute of the portal of [`Session::bind_text`]. The caller writes the replies.
    pub fn execute_text(&mut self) {
        messages::execute(&mut self.out, "", 0);
    }

    /// Parse, Bind and Execute of an unnamed text without parameters, with the reply `part`.
    ///
    /// The model does not know the remaining unnamed portal. A Sync outside of a block, the end of
    /// the block, or a Bind of the unnamed portal must follow.
    pub fn command(&mut self, sql: &str, part: &Part) {
        self.parse_text(sql, &[]);
        self.bind_text(&Arguments::default());
        self.execute_text();
        if !self.part(part) {
            self.skipping = true;
        }
    }

    /// Forgets all statements, like DEALLOCATE ALL.
    pub fn forget_statements(&mut self) {
        self.statements.clear();
    }

    /// All settings with their values at login.
    pub fn initial_settings(&self) -> Vec<(String, String)> {
        self.initial
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}
