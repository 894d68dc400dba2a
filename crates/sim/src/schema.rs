//! The tables of a simulated PostgreSQL, which DDL changes, and their history.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use howdah_pooler::event::Time;
use howdah_wire::tag::backend;
use howdah_wire::write;

use crate::chance::Chance;
use crate::sql::Token;

/// The number of tables: `t0` and so on.
pub const TABLES: usize = 2;

/// The state of a table: one of a few lists of columns, or no table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape(u8);

/// A column: name, type, and the type's modifier.
type Column = (&'static str, u32, i32);

const COLUMNS: [&[Column]; 5] = [
    &[("x", 25, -1)],
    &[("x", 25, -1), ("y", 25, -1)],
    &[("x", 1043, 14)],
    // The same columns, except for the modifier.
    &[("x", 1043, 24)],
    &[("z", 25, -1)],
];

impl Shape {
    /// There is no such table.
    pub const GONE: Shape = Shape(COLUMNS.len() as u8);

    /// The number of shapes of existing tables.
    pub const COUNT: usize = COLUMNS.len();

    /// The shape with this number, of an existing table.
    pub fn read(number: usize) -> Option<Shape> {
        (number < Self::COUNT).then_some(Shape(number as u8))
    }

    /// The number of columns.
    pub fn width(self) -> usize {
        COLUMNS.get(usize::from(self.0)).map_or(0, |of| of.len())
    }

    /// Appends the RowDescription of the table's rows.
    pub fn describe(self, out: &mut Vec<u8>) {
        let columns = COLUMNS[usize::from(self.0)];
        write::message(out, backend::ROW_DESCRIPTION, |buf| {
            buf.extend_from_slice(&(columns.len() as u16).to_be_bytes());
            for (name, kind, modifier) in columns {
                buf.extend_from_slice(name.as_bytes());
                buf.extend_from_slice(&[0; 7]);
                buf.extend_from_slice(&kind.to_be_bytes());
                buf.extend_from_slice(&[0xff, 0xff]);
                buf.extend_from_slice(&modifier.to_be_bytes());
                buf.extend_from_slice(&[0, 0]);
            }
        });
    }

    /// The shape with this RowDescription.
    pub fn described(message: &[u8]) -> Option<Shape> {
        (0..Self::COUNT).filter_map(Self::read).find(|shape| {
            let mut out = Vec::new();
            shape.describe(&mut out);
            out == message
        })
    }
}

/// A set of shapes that a table may have, or have had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shapes(u8);

impl Shapes {
    /// The set with this shape only.
    pub fn one(shape: Shape) -> Shapes {
        Shapes(1 << shape.0)
    }

    /// The shapes of both sets.
    #[must_use]
    pub fn and(self, other: Shapes) -> Shapes {
        Shapes(self.0 | other.0)
    }

    /// The shapes that satisfy a condition.
    #[must_use]
    pub fn only(self, satisfies: impl Fn(Shape) -> bool) -> Shapes {
        let found = self.iter().filter(|shape| satisfies(*shape));
        found.fold(Shapes::default(), |all, shape| all.and(Shapes::one(shape)))
    }

    /// True if the set has this shape.
    pub fn has(self, shape: Shape) -> bool {
        self.0 & 1 << shape.0 != 0
    }

    /// True if the set has another shape.
    pub fn has_other_than(self, shape: Shape) -> bool {
        self.0 & !(1 << shape.0) != 0
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All shapes in the set.
    pub fn iter(self) -> impl Iterator<Item = Shape> {
        (0..=Shape::GONE.0).map(Shape).filter(move |s| self.has(*s))
    }
}

/// A change of a table by DDL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// ALTER, to a shape.
    Alter(Shape),
    /// CREATE, with a shape.
    Create(Shape),
    /// DROP.
    Drop,
}

impl Change {
    /// The table's shape after the change.
    pub fn shape(self) -> Shape {
        match self {
            Change::Alter(shape) | Change::Create(shape) => shape,
            Change::Drop => Shape::GONE,
        }
    }
}

/// An event from which poolers may learn that the schema has changed.
#[derive(Clone, Copy, Debug)]
struct Notice {
    /// Changes up to this moment are noticed.
    effect: u64,
    /// From this time on all workers know.
    known: Time,
}

/// A table's shape within a transaction, committed or not.
#[derive(Debug)]
struct Tried {
    shape: Shape,
    /// The moment when the transaction ended.
    until: Option<u64>,
}

/// A table's shapes, each from a moment on.
#[derive(Debug)]
struct Table {
    history: Vec<(u64, Shape)>,
    tried: Vec<Tried>,
    /// The session whose open transaction has changed the table.
    locked_by: Option<u32>,
}

/// Shared by all sessions, and by clients' references, which only read.
pub type Shared = Rc<RefCell<Catalog>>;

/// The tables of one database.
#[derive(Debug)]
pub struct Catalog {
    tables: [Table; TABLES],
    /// The present moment. It advances with each change of the schema.
    moment: u64,
    /// The shapes that a statement saw when it ran or was bound.
    seen: HashMap<Token, [Shape; TABLES]>,
    /// DDL whose table was locked.
    denied: HashSet<Token>,
    /// Moments at which a pooler may have learnt of DDL.
    stirs: Vec<u64>,
    /// By a transaction's last DDL: the moment when the transaction ended.
    ended: HashMap<Token, u64>,
    notices: Vec<Notice>,
    /// How long workers may need to tell each other, in nanoseconds.
    pub slack: u64,
    /// One process has all workers.
    pub alone: bool,
}

impl Default for Catalog {
    fn default() -> Self {
        let table = || Table {
            history: vec![(0, Shape(0))],
            tried: Vec::new(),
            locked_by: None,
        };
        Catalog {
            tables: std::array::from_fn(|_| table()),
            moment: 0,
            seen: HashMap::new(),
            denied: HashSet::new(),
            stirs: Vec::new(),
            ended: HashMap::new(),
            notices: Vec::new(),
            slack: 0,
            alone: true,
        }
    }
}

impl Catalog {
    /// The present moment.
    pub fn moment(&self) -> u64 {
        self.moment
    }

    /// A table's committed shape.
    pub fn shape(&self, table: usize) -> Shape {
        self.tables[table].history.last().expect("it begins").1
    }

    /// All committed shapes of a table since a moment.
    pub fn shapes(&self, table: usize, from: u64) -> Shapes {
        let history = &self.tables[table].history;
        let first = history.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
        let since = history[first..].iter().map(|(_, shape)| *shape);
        since.fold(Shapes::default(), |all, shape| all.and(Shapes::one(shape)))
    }

    /// All shapes of a table in transactions that were open at a moment or later.
    pub fn tried(&self, table: usize, from: u64) -> Shapes {
        let tried = self.tables[table].tried.iter();
        let since = tried.filter(|tried| tried.until.is_none_or(|until| until >= from));
        since.fold(Shapes::default(), |all, tried| {
            all.and(Shapes::one(tried.shape))
        })
    }

    /// A session wants to change a table. False if another session has locked it.
    pub fn lock(&mut self, table: usize, session: u32) -> bool {
        *self.tables[table].locked_by.get_or_insert(session) == session
    }

    /// Within an open transaction, a table gets this shape.
    pub fn try_out(&mut self, table: usize, shape: Shape) {
        self.moment += 1;
        self.tables[table].tried.push(Tried { shape, until: None });
    }

    /// A table's new shape is committed.
    pub fn keep(&mut self, table: usize, shape: Shape) {
        self.moment += 1;
        self.tables[table].history.push((self.moment, shape));
    }

    /// A session's transaction is over.
    pub fn unlock(&mut self, session: u32) {
        for table in &mut self.tables {
            if table.locked_by == Some(session) {
                table.locked_by = None;
                let open = table.tried.iter_mut().filter(|t| t.until.is_none());
                open.for_each(|tried| tried.until = Some(self.moment));
            }
        }
    }

    /// A statement runs or is bound, and sees these tables.
    pub fn sees(&mut self, token: Token, tables: [Shape; TABLES]) {
        self.seen.insert(token, tables);
    }

    /// The tables that a statement saw, if it ran or was bound.
    pub fn seen(&self, token: Token) -> Option<[Shape; TABLES]> {
        self.seen.get(&token).copied()
    }

    /// DDL finds its table locked.
    pub fn deny(&mut self, token: Token) {
        self.denied.insert(token);
    }

    /// True if DDL found its table locked.
    pub fn denied(&self, token: Token) -> bool {
        self.denied.contains(&token)
    }

    /// PostgreSQL sends a message from which DDL may be noticed.
    pub fn stir(&mut self) {
        self.moment += 1;
        self.stirs.push(self.moment);
    }

    /// A transaction is over; this was its last DDL.
    pub fn end(&mut self, last: Option<Token>) {
        self.stir();
        let moment = self.moment;
        self.ended.extend(last.map(|last| (last, moment)));
    }

    /// A client learns that its transaction with DDL is over, so its pooler knows, too.
    pub fn is_told_of_end(&mut self, last: Token, now: Time) {
        if let Some(&effect) = self.ended.get(&last) {
            self.notice(effect, now);
        }
    }

    /// A client learns that a statement is stale that was parsed after this moment. Its pooler
    /// knows now, or has learnt of a later change.
    pub fn is_told_of_stale(&mut self, parsed: u64, now: Time) {
        let at = self.stirs.partition_point(|at| *at <= parsed);
        if let Some(&effect) = self.stirs.get(at) {
            self.notice(effect, now);
        }
    }

    fn notice(&mut self, effect: u64, now: Time) {
        if self.alone {
            let known = Time(now.0 + self.slack);
            self.notices.push(Notice { effect, known });
        }
    }

    /// The latest moment whose changes all poolers know at this time.
    pub fn noticed(&self, at: Time) -> u64 {
        let known = self.notices.iter().filter(|notice| notice.known <= at);
        known.map(|notice| notice.effect).max().unwrap_or(0)
    }

    /// Changes a table past Howdah.
    pub fn change_outside(&mut self, chance: &mut Chance) -> Option<(usize, Shape)> {
        let table = chance.within(0..=TABLES - 1);
        let shape = Shape(chance.within(0..=Shape::COUNT) as u8);
        if self.tables[table].locked_by.is_some() || self.shape(table) == shape {
            return None;
        }
        self.keep(table, shape);
        Some((table, shape))
    }

    /// True if no session has an uncommitted change.
    pub fn is_unlocked(&self) -> bool {
        self.tables.iter().all(|table| table.locked_by.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_table_was() {
        let mut catalog = Catalog::default();
        let [first, second] = [1, 2].map(|number| Shape::read(number).expect("there is one"));
        assert!(catalog.lock(0, 7) && catalog.lock(0, 7) && !catalog.lock(0, 8));
        catalog.unlock(7);
        let before = catalog.moment();
        catalog.keep(0, first);
        let between = catalog.moment();
        catalog.keep(0, second);
        assert_eq!(catalog.shape(0), second);
        assert_eq!(catalog.shapes(0, catalog.moment()), Shapes::one(second));
        let both = Shapes::one(first).and(Shapes::one(second));
        assert_eq!(catalog.shapes(0, between), both);
        assert!(catalog.shapes(0, before).has(Shape(0)));
        assert_eq!(catalog.shapes(1, before), Shapes::one(Shape(0)));
    }

    #[test]
    fn shapes_are_told_apart() {
        for number in 0..Shape::COUNT {
            let shape = Shape::read(number).expect("there is one");
            let mut out = Vec::new();
            shape.describe(&mut out);
            assert_eq!(Shape::described(&out), Some(shape));
        }
    }
}
