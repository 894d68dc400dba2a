//! A session's view of the tables. The session is one of PostgreSQL's, or a client's reference, which follows
//! what PostgreSQL did.
//!
//! The shapes that a statement ran on are found by its token. It is less certain when a text was parsed: a
//! pooler need not ask PostgreSQL, and PostgreSQL answers some time between the message and the reply. So a
//! reference keeps several shapes that a table may have had, and the reply decides.

use howdah_pooler::event::Time;
use howdah_wire::backend::Fields;
use howdah_wire::frame::HEADER;
use howdah_wire::tag::backend;

use crate::schema::{Change, Shape, Shapes, Shared, TABLES};
use crate::session::Fault;
use crate::sql::Token;

/// The view of one session.
pub struct View {
    catalog: Shared,
    /// The owner: a process of PostgreSQL, or a client.
    whose: u32,
    follows: Option<Follows>,
    /// The uncommitted changes of its transaction.
    pending: [Option<Shape>; TABLES],
    /// DDL with its own command tag ran in the transaction; this is the last such statement.
    told: Option<Option<Token>>,
    /// A transaction with DDL has ended, and its client does not know yet.
    ended: Option<Token>,
    /// The earliest moment when the statement that was refused last may have been parsed.
    refused: Option<u64>,
}

/// What a reference follows.
struct Follows {
    /// Statements are renamed, and parsed on each server that needs them.
    renamed: bool,
    sent: Sent,
    reply: Reply,
    /// Messages from this number on were sent after the client's own DDL had been answered.
    answered: u64,
}

/// When a client sent a message.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The number of the message.
    pub number: u64,
    /// The moment of the catalog.
    pub moment: u64,
    /// The time.
    pub at: Time,
    /// The position of the database's board.
    pub heard: usize,
}

/// The client's next reply, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reply {
    /// The result columns have changed.
    Refused,
    /// The table does not exist.
    Gone,
    /// The rows have this shape.
    Described(Shape),
    Other,
}

impl Reply {
    fn read(message: &[u8]) -> Reply {
        match message.first() {
            Some(&backend::ERROR) => match Fields::new(&message[HEADER..]).sqlstate() {
                Some(b"0A000") => Reply::Refused,
                Some(b"42P01") => Reply::Gone,
                _ => Reply::Other,
            },
            Some(&backend::ROW_DESCRIPTION) => {
                Shape::described(message).map_or(Reply::Other, Reply::Described)
            }
            _ => Reply::Other,
        }
    }
}

/// What a parsed text needs of a table.
#[derive(Clone, Debug)]
pub struct Plan {
    table: usize,
    /// The statement has rows, like the table's.
    rows: bool,
    unnamed: bool,
    /// The shapes that the table may have had when this client's text was parsed.
    exact: Shapes,
    /// The shapes for another client that had the same text parsed.
    shapes: Shapes,
    /// The earliest moment when any client had the text parsed.
    since: u64,
    /// The moments when the Parse was sent and answered.
    sent: u64,
    parsed: u64,
    /// The transaction of the Parse is still open.
    here: bool,
    described: Option<Shape>,
    /// The same in a transaction that had changed the schema. It counts for statements that were
    /// named after that change, as far as a pooler can tell.
    inside: Option<Shape>,
}

/// The possible results of a message about a statement.
struct Verdict {
    /// The shapes of the table with which the message succeeds.
    goes: Shapes,
    refused: bool,
    gone: bool,
}

/// The result of a message about a statement.
pub enum Outcome {
    /// Success; the table has this shape.
    Goes(Shape),
    /// Failure.
    Fails(Fault),
}

impl Plan {
    /// True if the statement has rows, like its table's.
    pub fn has_rows(&self) -> bool {
        self.rows
    }

    /// The table that the statement needs.
    pub fn table(&self) -> usize {
        self.table
    }

    /// The descriptions that the client may have received.
    fn told(&self) -> impl Iterator<Item = Shape> {
        self.described.into_iter().chain(self.inside)
    }

    /// True if the statement was never described.
    pub fn is_undescribed(&self) -> bool {
        self.described.is_none()
    }

    /// The transaction of the Parse is over.
    pub fn leave(&mut self) {
        self.here = false;
    }
}

fn refused() -> Fault {
    ("0A000", "cached plan must not change result type".into())
}

fn gone(table: usize) -> Fault {
    ("42P01", format!("relation \"t{table}\" does not exist"))
}

impl View {
    /// The view of a process of PostgreSQL.
    pub fn new(catalog: Shared, process: u32) -> View {
        View {
            catalog,
            whose: process,
            follows: None,
            pending: [None; TABLES],
            told: None,
            ended: None,
            refused: None,
        }
    }

    /// The view of a client's reference. `renamed`: the client's pooler renames statements.
    pub fn of_reference(catalog: Shared, client: u32, renamed: bool) -> View {
        let mut view = View::new(catalog, client);
        view.follows = Some(Follows {
            renamed,
            sent: Sent {
                number: 0,
                moment: 0,
                at: Time(0),
                heard: 0,
            },
            reply: Reply::Other,
            answered: 0,
        });
        view
    }

    /// The next message was sent at this point, and the client gets this reply.
    pub fn follow(&mut self, sent: Sent, reply: Option<&[u8]>) {
        if let Some(follows) = &mut self.follows {
            follows.sent = sent;
            follows.reply = reply.map_or(Reply::Other, Reply::read);
        }
    }

    /// The client's next reply.
    pub fn hear(&mut self, message: &[u8]) {
        if let Some(follows) = &mut self.follows {
            follows.reply = Reply::read(message);
        }
    }

    /// True if the client's reply says that the columns have changed or the table is gone.
    pub fn hears_error(&self) -> bool {
        let reply = self.follows.as_ref().map(|follows| follows.reply);
        matches!(reply, Some(Reply::Refused | Reply::Gone)) && self.renames()
    }

    /// True for a reference, whose replies depend on other sessions.
    pub fn is_reference(&self) -> bool {
        self.follows.is_some()
    }

    /// The present moment.
    pub fn moment(&self) -> u64 {
        self.catalog.borrow().moment()
    }

    /// Messages from now on are sent after the answer to the client's DDL.
    pub fn ddl_is_answered(&mut self, next: u64) {
        if let Some(follows) = &mut self.follows {
            follows.answered = next;
        }
    }

    /// The client learns that its transaction is over.
    pub fn is_told_of_end(&mut self, now: Time) {
        if let Some(last) = self.ended.take() {
            self.catalog.borrow_mut().is_told_of_end(last, now);
        }
    }

    /// The client learns that columns have changed.
    pub fn is_told_of_refusal(&mut self, now: Time) {
        if let Some(sent) = self.refused.take() {
            self.catalog.borrow_mut().is_told_of_stale(sent, now);
        }
    }

    fn own(&self) -> [Shape; TABLES] {
        let catalog = self.catalog.borrow();
        std::array::from_fn(|at| self.pending[at].unwrap_or_else(|| catalog.shape(at)))
    }

    /// PostgreSQL runs or binds a statement, and records the tables that it sees.
    pub fn record(&self, token: Option<Token>) {
        if let Some(token) = token.filter(|_| self.follows.is_none()) {
            let own = self.own();
            self.catalog.borrow_mut().sees(token, own);
        }
    }

    /// The shapes that a table has, or may have, for a statement.
    fn sees(&self, table: usize, token: Option<Token>) -> Shapes {
        let catalog = self.catalog.borrow();
        if let Some(shape) = self.pending[table] {
            return Shapes::one(shape);
        }
        let Some(follows) = &self.follows else {
            return Shapes::one(catalog.shape(table));
        };
        match token.and_then(|token| catalog.seen(token)) {
            Some(seen) => Shapes::one(seen[table]),
            None => catalog.shapes(table, follows.sent.moment),
        }
    }

    /// A statement of a Query runs on a table.
    ///
    /// # Errors
    /// The table does not exist.
    pub fn runs(&self, table: usize, token: Option<Token>) -> Result<Shape, Fault> {
        let sees = self.sees(table, token);
        let there = sees.only(|shape| shape != Shape::GONE);
        there.iter().next().ok_or_else(|| gone(table))
    }

    /// A text that needs a table is parsed.
    ///
    /// # Errors
    /// The table does not exist.
    pub fn parse(&self, table: usize, rows: bool, unnamed: bool) -> Result<Plan, Fault> {
        let exact = self.sees(table, None);
        let moment = self.moment();
        let mut plan = Plan {
            table,
            rows,
            unnamed,
            exact: exact.only(|shape| shape != Shape::GONE),
            shapes: exact,
            since: moment,
            sent: moment,
            parsed: moment,
            here: true,
            described: None,
            inside: None,
        };
        if let Some(follows) = &self.follows {
            if exact.has(Shape::GONE) && follows.reply == Reply::Gone {
                return Err(gone(table));
            }
            plan.sent = follows.sent.moment;
            plan.since = plan.sent;
            let behind = self.pending[table].is_some() && follows.sent.number >= follows.answered;
            if follows.renamed && !(behind && self.told.is_some()) {
                // Another client may have had the text parsed since DDL was last noticed.
                let catalog = self.catalog.borrow();
                plan.since = catalog.noticed(follows.sent.at).min(plan.sent);
                let kept = catalog.shapes(table, plan.since);
                let tried = catalog.tried(table, plan.since);
                plan.shapes = exact.and(kept).and(tried);
            }
        }
        plan.shapes = plan.shapes.only(|shape| shape != Shape::GONE);
        let nothing = if unnamed {
            plan.exact.is_empty()
        } else {
            plan.shapes.is_empty()
        };
        if nothing { Err(gone(table)) } else { Ok(plan) }
    }

    /// A statement is bound or described.
    pub fn revalidate(&mut self, plan: &mut Plan, token: Option<Token>) -> Outcome {
        let sees = self.sees(plan.table, token);
        let Verdict {
            goes,
            refused: may_be_refused,
            gone: may_be_gone,
        } = self.judge(plan, sees);
        let reply = self.follows.as_ref().map_or(Reply::Other, |f| f.reply);
        let outcome = match reply {
            Reply::Refused if may_be_refused => None,
            Reply::Gone if may_be_gone => None,
            Reply::Described(shape) if goes.has(shape) => Some(shape),
            _ => goes.iter().next(),
        };
        match outcome {
            Some(shape) => {
                // The statement may have been parsed only now.
                plan.shapes = plan.shapes.and(Shapes::one(shape));
                Outcome::Goes(shape)
            }
            None if may_be_gone && (reply == Reply::Gone || !may_be_refused) => {
                self.stir();
                Outcome::Fails(gone(plan.table))
            }
            None => Outcome::Fails(self.refuse(plan)),
        }
    }

    /// PostgreSQL refuses a statement because its columns have changed.
    pub fn refuse(&mut self, plan: &Plan) -> Fault {
        self.stir();
        // After the transaction's own DDL, a refusal says nothing about the tables of others.
        self.refused = self.told.is_none().then_some(plan.sent);
        refused()
    }

    fn judge(&self, plan: &Plan, sees: Shapes) -> Verdict {
        let there = sees.only(|shape| shape != Shape::GONE);
        let gone = sees.has(Shape::GONE);
        if !plan.rows {
            let (goes, refused) = (there, false);
            return Verdict {
                goes,
                refused,
                gone,
            };
        }
        let goes = there.only(|shape| self.may_go(plan, shape));
        // A pooler may know that a statement's columns have changed. PostgreSQL would first report
        // that the table is gone. The reference accepts both errors.
        let refused =
            there.iter().any(|shape| self.may_be_refused(plan, shape)) || gone && self.renames();
        Verdict {
            goes,
            refused,
            gone,
        }
    }

    fn shapes(&self, plan: &Plan) -> Shapes {
        let exact = !self.renames() || plan.here && plan.unnamed;
        if exact { plan.exact } else { plan.shapes }
    }

    /// True if statements are parsed on each server that needs them.
    pub fn renames(&self) -> bool {
        self.follows.as_ref().is_some_and(|f| f.renamed)
    }

    /// True if the pooler knows for sure that the schema has changed since.
    fn knows(&self, plan: &Plan) -> bool {
        let at = self.follows.as_ref().map_or(Time(0), |f| f.sent.at);
        self.catalog.borrow().noticed(at) > plan.parsed
    }

    fn may_go(&self, plan: &Plan, shape: Shape) -> bool {
        let was = self.shapes(plan).has(shape);
        if !self.renames() {
            return was;
        }
        match plan.described.filter(|_| self.knows(plan)) {
            // A known gap: a server that lacks the statement parses it late, and the pooler can't
            // know better.
            None => was || !plan.here,
            Some(described) => described == shape,
        }
    }

    fn may_be_refused(&self, plan: &Plan, shape: Shape) -> bool {
        if self.shapes(plan).has_other_than(shape) {
            return true;
        }
        if !self.renames() || plan.here && plan.unnamed {
            return false;
        }
        let misfit = plan.told().any(|known| known != shape);
        misfit || self.undone(plan, shape) || self.rolled_back(plan, shape)
    }

    /// A change was undone by another change. A server that parsed an old statement in between
    /// refuses the statement now.
    fn undone(&self, plan: &Plan, shape: Shape) -> bool {
        let catalog = self.catalog.borrow();
        let since = catalog.shapes(plan.table, plan.since);
        since.has_other_than(shape)
    }

    /// A known gap: a function's change, invisible to the pooler, was rolled back. A server that
    /// parsed an old statement in that transaction refuses the statement now.
    fn rolled_back(&self, plan: &Plan, shape: Shape) -> bool {
        let catalog = self.catalog.borrow();
        catalog.tried(plan.table, plan.since).has_other_than(shape)
    }

    /// The client learns a statement's columns.
    pub fn describe(&self, plan: &mut Plan, shape: Shape) {
        // After a transaction that has changed the schema, the statement may have other columns.
        if self.told.is_some() {
            plan.inside = Some(shape);
        } else {
            plan.described = Some(shape);
        }
    }

    /// DDL. `by_tag`: the command tag shows it.
    ///
    /// # Errors
    /// The table is locked, does not exist, or exists already.
    pub fn change(
        &mut self,
        table: usize,
        change: Change,
        token: Option<Token>,
        by_tag: bool,
    ) -> Result<(), Fault> {
        let locked = || {
            let text = format!("could not obtain lock on relation \"t{table}\"");
            ("55P03", text)
        };
        let denied = match (&self.follows, token) {
            (None, _) => !self.catalog.borrow_mut().lock(table, self.whose),
            (Some(_), Some(token)) => self.catalog.borrow().denied(token),
            (Some(_), None) => false,
        };
        if denied {
            if let Some(token) = token {
                self.catalog.borrow_mut().deny(token);
            }
            return Err(locked());
        }
        self.record(token);
        let sees = self.sees(table, token);
        let creates = matches!(change, Change::Create(_));
        if creates && !sees.has(Shape::GONE) {
            return Err(("42P07", format!("relation \"t{table}\" already exists")));
        }
        if !creates && !sees.has_other_than(Shape::GONE) {
            return Err(gone(table));
        }
        self.pending[table] = Some(change.shape());
        if self.follows.is_none() {
            let mut catalog = self.catalog.borrow_mut();
            catalog.try_out(table, change.shape());
        }
        // Until the answer comes, which must show the DDL.
        self.ddl_is_answered(u64::MAX);
        if by_tag {
            self.tell(token);
        }
        Ok(())
    }

    /// DDL that its command tag shows has run.
    pub fn tell(&mut self, token: Option<Token>) {
        self.told = Some(token);
        self.stir();
    }

    /// PostgreSQL sends a message from which a pooler may learn of DDL.
    pub fn stir(&self) {
        if self.follows.is_none() {
            self.catalog.borrow_mut().stir();
        }
    }

    /// The transaction's changes are committed.
    pub fn keep(&mut self) {
        for (table, pending) in self.pending.iter_mut().enumerate() {
            if let Some(shape) = pending.take().filter(|_| self.follows.is_none()) {
                self.catalog.borrow_mut().keep(table, shape);
            }
        }
        self.let_go();
    }

    /// The transaction's changes are rolled back: no other session can notice them.
    pub fn undo(&mut self) {
        self.told = None;
        self.let_go();
    }

    fn let_go(&mut self) {
        self.pending = [None; TABLES];
        if self.follows.is_none() {
            self.catalog.borrow_mut().unlock(self.whose);
        }
    }

    /// The transaction is over.
    pub fn end(&mut self) {
        if let Some(last) = self.told.take() {
            self.ended = last;
            if self.follows.is_none() {
                self.catalog.borrow_mut().end(last);
            }
        }
    }
}
