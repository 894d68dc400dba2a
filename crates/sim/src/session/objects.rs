//! The objects of a session that outlive its transactions: advisory locks, temporary tables, cursors WITH
//! HOLD, and the last value of a sequence. Each returned row lists the objects, except for that value.

use std::fmt;

use howdah_wire::write;

use super::reply::COLUMN;
use super::{Block, Fault, Session};
use crate::sql::{Author, Object, Token};

/// The objects of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    /// The keys of the session's advisory locks. ROLLBACK does not release them.
    locks: Vec<u32>,
    /// The keys of the transaction's advisory locks.
    passing: Vec<u32>,
    tables: Vec<Table>,
    /// The tables before the transaction.
    before: Vec<Table>,
    cursors: Vec<Cursor>,
    /// The number of cursors that the transaction has declared.
    declared: usize,
    /// The last value of `nextval`.
    number: Option<Token>,
    /// `nextval` was called in this transaction.
    has_drawn: bool,
    /// The last value of a sequence was asked for.
    asked: bool,
}

#[derive(Clone, Debug)]
struct Table {
    name: String,
    /// ON COMMIT DROP.
    passing: bool,
}

/// A cursor. ROLLBACK undoes neither CLOSE nor FETCH.
#[derive(Clone, Debug)]
struct Cursor {
    name: String,
    rows: u32,
    /// The number of rows fetched.
    fetched: u32,
    /// The cursor's number in the transaction; `None` if an earlier transaction declared it.
    of_transaction: Option<usize>,
}

/// The state of a transaction at a savepoint.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    passing: usize,
    tables: Vec<Table>,
    declared: usize,
}

impl Objects {
    /// The objects that outlive the transaction: kind, and name or key.
    pub fn left(&self) -> impl Iterator<Item = String> {
        let locks = self
            .locks
            .iter()
            .map(|key| format!("lock{}_{}", key / 10, key % 10));
        let tables = self.tables.iter().map(|table| table.name.clone());
        let cursors = self.cursors.iter().map(|cursor| cursor.name.clone());
        locks.chain(tables).chain(cursors)
    }

    pub fn has_locks(&self) -> bool {
        !self.locks.is_empty() || !self.passing.is_empty()
    }

    pub fn has_tables(&self) -> bool {
        !self.tables.is_empty()
    }

    pub fn has_cursors(&self) -> bool {
        !self.cursors.is_empty()
    }

    pub fn mark(&self) -> Mark {
        Mark {
            passing: self.passing.len(),
            tables: self.tables.clone(),
            declared: self.declared,
        }
    }

    pub fn back_to(&mut self, mark: &Mark) {
        self.passing.truncate(mark.passing);
        self.tables.clone_from(&mark.tables);
        self.drop_declared(mark.declared);
    }

    /// The transaction is committed, or rolled back.
    pub fn end(&mut self, kept: bool) {
        self.passing.clear();
        if kept {
            self.tables.retain(|table| !table.passing);
            self.before.clone_from(&self.tables);
            for cursor in &mut self.cursors {
                cursor.of_transaction = None;
            }
        } else {
            self.tables.clone_from(&self.before);
            self.drop_declared(0);
        }
        self.declared = 0;
        self.has_drawn = false;
    }

    /// Drops the cursors that the transaction declared after a savepoint.
    fn drop_declared(&mut self, from: usize) {
        let stays = |cursor: &Cursor| cursor.of_transaction.is_none_or(|at| at < from);
        self.cursors.retain(stays);
    }

    /// Drops everything but the last value of a sequence.
    pub fn clear(&mut self) {
        self.locks.clear();
        self.tables.clear();
        self.before.clear();
        self.cursors.clear();
    }

    fn unlock(&mut self, key: u32) -> bool {
        let at = self.locks.iter().position(|held| *held == key);
        at.map(|at| self.locks.remove(at)).is_some()
    }

    fn create(&mut self, name: &str, passing: bool) -> Result<(), Fault> {
        if self.tables.iter().any(|table| table.name == name) {
            return Err(("42P07", format!("relation \"{name}\" already exists")));
        }
        let name = name.to_string();
        self.tables.push(Table { name, passing });
        Ok(())
    }

    fn drop(&mut self, name: &str) -> Result<(), Fault> {
        let at = self.tables.iter().position(|table| table.name == name);
        let at = at.ok_or_else(|| ("42P01", format!("table \"{name}\" does not exist")))?;
        self.tables.remove(at);
        Ok(())
    }

    fn declare(&mut self, name: &str, rows: u32) -> Result<(), Fault> {
        if self.cursor(name).is_ok() {
            return Err(("42P03", format!("cursor \"{name}\" already exists")));
        }
        self.cursors.push(Cursor {
            name: name.to_string(),
            rows,
            fetched: 0,
            of_transaction: Some(self.declared),
        });
        self.declared += 1;
        Ok(())
    }

    fn cursor(&mut self, name: &str) -> Result<&mut Cursor, Fault> {
        let found = self.cursors.iter_mut().find(|cursor| cursor.name == name);
        found.ok_or_else(|| ("34000", format!("cursor \"{name}\" does not exist")))
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for key in &self.passing {
            write!(f, "|xact{key}")?;
        }
        self.left().try_for_each(|name| write!(f, "|{name}"))
    }
}

impl Session {
    /// The objects that outlive the transaction.
    pub fn left(&self) -> impl Iterator<Item = String> {
        let by_sql = self.statements(true);
        let by_sql = by_sql.map(|name| String::from_utf8_lossy(name).into_owned());
        by_sql.chain(self.objects.left())
    }

    /// Drops all objects. The last value of a sequence may stay.
    pub fn discard_objects(&mut self) {
        self.objects.clear();
    }

    /// DISCARD ALL.
    pub(super) fn discard_all_objects(&mut self) {
        self.objects.clear();
        self.objects.number = None;
        self.objects.asked = false;
    }

    /// Runs a statement about such an object.
    pub(super) fn object(&mut self, object: &Object) -> Result<String, Fault> {
        let objects = &mut self.objects;
        Ok(match object {
            Object::Lock { key, passing } => {
                if *passing {
                    objects.passing.push(*key)
                } else {
                    objects.locks.push(*key)
                }
                self.row(None, 0, 0, "t", None);
                "SELECT 1".into()
            }
            Object::Unlock(None) => {
                objects.locks.clear();
                self.row(None, 0, 0, "", None);
                "SELECT 1".into()
            }
            Object::Unlock(Some(key)) => {
                let held = objects.unlock(*key);
                if !held {
                    self.warn("01000", "you don't own a lock of type ExclusiveLock");
                }
                self.row(None, 0, 0, if held { "t" } else { "f" }, None);
                "SELECT 1".into()
            }
            Object::Create { table, passing } => {
                objects.create(table, *passing)?;
                "CREATE TABLE".into()
            }
            Object::Drop(Some(table)) => {
                objects.drop(table)?;
                "DROP TABLE".into()
            }
            Object::Drop(None) => {
                objects.tables.clear();
                "DISCARD TEMP".into()
            }
            Object::Declare { cursor, rows } => {
                objects.declare(cursor, *rows)?;
                "DECLARE CURSOR".into()
            }
            Object::Fetch(name, count) => {
                let cursor = objects.cursor(name)?;
                let from = cursor.fetched;
                cursor.fetched = cursor.rows.min(from + count);
                let fetched = from..cursor.fetched;
                write::row_description(&mut self.out, &[COLUMN]);
                for row in fetched.clone() {
                    self.row(None, row, 0, name, None);
                }
                format!("FETCH {}", fetched.len())
            }
            Object::Close(Some(name)) => {
                objects.cursor(name)?;
                objects.cursors.retain(|cursor| cursor.name != *name);
                "CLOSE CURSOR".into()
            }
            Object::Close(None) => {
                objects.cursors.clear();
                self.portals.clear();
                "CLOSE CURSOR ALL".into()
            }
            Object::Next(token) => {
                (objects.number, objects.has_drawn) = (Some(*token), true);
                self.ran(Author::Token(*token), None);
                self.row(Some(*token), 0, 0, "", None);
                "SELECT 1".into()
            }
            Object::Last(sequence) => {
                let before = std::mem::replace(&mut objects.asked, true);
                let Some(number) = objects.number else {
                    return Err(("55000", undefined(sequence.as_deref())));
                };
                let forgets = !objects.has_drawn && self.keeping.forgets_numbers(before);
                self.forgettable = forgets.then_some(self.rest.is_some());
                self.row(None, 0, 0, &number.to_string(), None);
                "SELECT 1".into()
            }
            Object::ForgetNumbers => {
                objects.number = None;
                "DISCARD SEQUENCES".into()
            }
        })
    }
}

/// The error for a sequence without a value.
fn undefined(sequence: Option<&str>) -> String {
    match sequence {
        Some(name) => format!("currval of sequence \"{name}\" is not yet defined in this session"),
        None => "lastval is not yet defined in this session".into(),
    }
}

/// How a pooler in between keeps servers for clients that have left something there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keeping {
    /// Each client has one server, whatever it leaves there.
    #[default]
    Always,
    /// For all that need it.
    ForAll,
    /// For so many at once.
    ForSome,
    /// For none: what a transaction leaves is gone with it.
    Never,
}

impl Keeping {
    /// A client may be told that there is no last value of a sequence, where it has asked before or not.
    /// (Who has asked keeps its server.)
    fn forgets_numbers(self, asked: bool) -> bool {
        match self {
            Keeping::Always => false,
            Keeping::ForAll => !asked,
            Keeping::ForSome | Keeping::Never => true,
        }
    }
}

/// What a statement that may keep its server would have to be undone of, if it is refused for that.
#[derive(Debug)]
pub(super) struct Refusable {
    objects: Objects,
    /// The statement is in a Query.
    simple: bool,
    /// The name of the statement that SQL's PREPARE makes.
    pub prepares: Option<Vec<u8>>,
}

impl Session {
    /// A statement is next that may keep its server: too many may do so. (Outside of a transaction it
    /// waits until it may, and so may what follows in its transaction; or it is refused, because it
    /// would wait for clients that are silent.)
    pub(super) fn may_keep(&mut self, simple: bool) {
        let refusable = self.keeping == Keeping::ForSome && !self.permitted;
        self.permitted |= self.block == Block::None && !self.works;
        self.keeper = refusable.then(|| Refusable {
            objects: self.objects.clone(),
            simple,
            prepares: None,
        });
    }

    /// The statement that would have kept its server was refused before it ran. False if there was
    /// none.
    pub fn refuse_to_keep(&mut self) -> bool {
        let Some(before) = self.keeper.take() else {
            return false;
        };
        self.objects = before.objects;
        self.permitted = false;
        if let Some(name) = &before.prepares {
            self.statements.remove(name);
        }
        self.refuse_last(before.simple);
        true
    }

    /// The last value of the sequence is unknown: another server was asked than the one with the
    /// value. False if no value was asked for, or if the open transaction itself has the value.
    pub fn forget_number(&mut self) -> bool {
        let Some(simple) = self.forgettable.take() else {
            return false;
        };
        self.objects.number = None;
        self.refuse_last(simple);
        true
    }
}
