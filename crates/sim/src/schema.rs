//! The tables of a simulated PostgreSQL, which DDL changes, and what they were like when.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use howdah_pooler::event::Time;
use howdah_wire::tag::backend;
use howdah_wire::write;

use crate::chance::Chance;
use crate::sql::Token;

/// So many tables there are, `t0` and so on.
pub const TABLES: usize = 2;

/// What a table is like: one of a few lists of columns, or it is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape(u8);

/// A column: its name, its type, and the type's modifier.
type Column = (&'static str, u32, i32);

const COLUMNS: [&[Column]; 5] = [
    &[("x", 25, -1)],
    &[("x", 25, -1), ("y", 25, -1)],
    &[("x", 1043, 14)],
    // The same, except for the modifier.
    &[("x", 1043, 24)],
    &[("z", 25, -1)],
];

impl Shape {
    /// It is not there.
    pub const GONE: Shape = Shape(COLUMNS.len() as u8);

    /// So many there are, those of tables that are there.
    pub const COUNT: usize = COLUMNS.len();

    /// One that a table that is there has.
    pub fn read(number: usize) -> Option<Shape> {
        (number < Self::COUNT).then_some(Shape(number as u8))
    }

    /// How many columns it has.
    pub fn width(self) -> usize {
        COLUMNS.get(usize::from(self.0)).map_or(0, |of| of.len())
    }

    /// Appends the RowDescription of its rows.
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

    /// The one whose RowDescription this is.
    pub fn described(message: &[u8]) -> Option<Shape> {
        (0..Self::COUNT).filter_map(Self::read).find(|shape| {
            let mut out = Vec::new();
            shape.describe(&mut out);
            out == message
        })
    }
}

/// Some shapes, one of which a table has, or had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shapes(u8);

impl Shapes {
    /// This one.
    pub fn one(shape: Shape) -> Shapes {
        Shapes(1 << shape.0)
    }

    /// These and those.
    #[must_use]
    pub fn and(self, other: Shapes) -> Shapes {
        Shapes(self.0 | other.0)
    }

    /// Those that satisfy.
    #[must_use]
    pub fn only(self, satisfies: impl Fn(Shape) -> bool) -> Shapes {
        let found = self.iter().filter(|shape| satisfies(*shape));
        found.fold(Shapes::default(), |all, shape| all.and(Shapes::one(shape)))
    }

    /// This is among them.
    pub fn has(self, shape: Shape) -> bool {
        self.0 & 1 << shape.0 != 0
    }

    /// Something else is among them.
    pub fn has_other_than(self, shape: Shape) -> bool {
        self.0 & !(1 << shape.0) != 0
    }

    /// There is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All.
    pub fn iter(self) -> impl Iterator<Item = Shape> {
        (0..=Shape::GONE.0).map(Shape).filter(move |s| self.has(*s))
    }
}

/// What DDL does to a table.
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
    /// What the table is afterwards.
    pub fn shape(self) -> Shape {
        match self {
            Change::Alter(shape) | Change::Create(shape) => shape,
            Change::Drop => Shape::GONE,
        }
    }
}

/// Something that poolers may learn of a changed schema by.
#[derive(Clone, Copy, Debug)]
struct Notice {
    /// Which moment it is no older than.
    effect: u64,
    /// From then on all workers know.
    known: Time,
}

/// What a table was in a transaction, whatever became of that.
#[derive(Debug)]
struct Tried {
    shape: Shape,
    /// When that transaction ended.
    until: Option<u64>,
}

/// A table's shapes, each from a moment on.
#[derive(Debug)]
struct Table {
    history: Vec<(u64, Shape)>,
    tried: Vec<Tried>,
    /// The session whose transaction has changed it.
    locked_by: Option<u32>,
}

/// Shared by all sessions, and by clients' references, which only look.
pub type Shared = Rc<RefCell<Catalog>>;

/// See the module.
#[derive(Debug)]
pub struct Catalog {
    tables: [Table; TABLES],
    /// The moment: it goes on with whatever happens to the schema.
    moment: u64,
    /// What a statement saw when it ran or was bound.
    seen: HashMap<Token, [Shape; TABLES]>,
    /// DDL that found its table locked.
    denied: HashSet<Token>,
    /// Moments at which a pooler may have learnt of DDL.
    stirs: Vec<u64>,
    /// When the transaction ended whose last DDL that was.
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
    /// The moment.
    pub fn moment(&self) -> u64 {
        self.moment
    }

    /// What a table is like for all who have not changed it.
    pub fn shape(&self, table: usize) -> Shape {
        self.tables[table].history.last().expect("it begins").1
    }

    /// All that a table was from a moment on.
    pub fn shapes(&self, table: usize, from: u64) -> Shapes {
        let history = &self.tables[table].history;
        let first = history.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
        let since = history[first..].iter().map(|(_, shape)| *shape);
        since.fold(Shapes::default(), |all, shape| all.and(Shapes::one(shape)))
    }

    /// All that a table was in transactions that were open at a moment, or since.
    pub fn tried(&self, table: usize, from: u64) -> Shapes {
        let tried = self.tables[table].tried.iter();
        let since = tried.filter(|tried| tried.until.is_none_or(|until| until >= from));
        since.fold(Shapes::default(), |all, tried| {
            all.and(Shapes::one(tried.shape))
        })
    }

    /// A session wants to change a table. False if another one has.
    pub fn lock(&mut self, table: usize, session: u32) -> bool {
        *self.tables[table].locked_by.get_or_insert(session) == session
    }

    /// In its transaction, a table is that.
    pub fn try_out(&mut self, table: usize, shape: Shape) {
        self.moment += 1;
        self.tables[table].tried.push(Tried { shape, until: None });
    }

    /// A table is that for good.
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

    /// A statement runs, or is bound, where the tables are that.
    pub fn sees(&mut self, token: Token, tables: [Shape; TABLES]) {
        self.seen.insert(token, tables);
    }

    /// What a statement saw, if it came to that.
    pub fn seen(&self, token: Token) -> Option<[Shape; TABLES]> {
        self.seen.get(&token).copied()
    }

    /// DDL finds its table locked.
    pub fn deny(&mut self, token: Token) {
        self.denied.insert(token);
    }

    /// DDL found its table locked.
    pub fn denied(&self, token: Token) -> bool {
        self.denied.contains(&token)
    }

    /// PostgreSQL says something by which DDL may be noticed.
    pub fn stir(&mut self) {
        self.moment += 1;
        self.stirs.push(self.moment);
    }

    /// The transaction is over whose last DDL that was.
    pub fn end(&mut self, last: Option<Token>) {
        self.stir();
        let moment = self.moment;
        self.ended.extend(last.map(|last| (last, moment)));
    }

    /// A client is told that its transaction with DDL is over: so its pooler knows.
    pub fn is_told_of_end(&mut self, last: Token, now: Time) {
        if let Some(&effect) = self.ended.get(&last) {
            self.notice(effect, now);
        }
    }

    /// A client is told that a statement is stale, which was parsed after that moment: its pooler
    /// knows now, or was told of something else since.
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

    /// The last moment with a change that all poolers know of at that time.
    pub fn noticed(&self, at: Time) -> u64 {
        let known = self.notices.iter().filter(|notice| notice.known <= at);
        known.map(|notice| notice.effect).max().unwrap_or(0)
    }

    /// Somebody changes a table, not through a pooler.
    pub fn change_outside(&mut self, chance: &mut Chance) -> Option<(usize, Shape)> {
        let table = chance.within(0..=TABLES - 1);
        let shape = Shape(chance.within(0..=Shape::COUNT) as u8);
        if self.tables[table].locked_by.is_some() || self.shape(table) == shape {
            return None;
        }
        self.keep(table, shape);
        Some((table, shape))
    }

    /// No session has changed anything that is not kept.
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
