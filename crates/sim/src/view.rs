//! How a session sees the tables: one of PostgreSQL's, or a client's reference, which follows what
//! PostgreSQL did.
//!
//! What a statement ran on is found by its token. When a text was parsed is known less well: a
//! pooler need not ask PostgreSQL, and PostgreSQL answers some time between question and reply. So a
//! reference has several shapes that a table may have had, and the reply decides.

use howdah_pooler::event::Time;
use howdah_wire::backend::Fields;
use howdah_wire::frame::HEADER;
use howdah_wire::tag::backend;

use crate::schema::{Change, Shape, Shapes, Shared, TABLES};
use crate::session::Fault;
use crate::sql::Token;

/// See the module.
pub struct View {
    catalog: Shared,
    /// Whose: a process of PostgreSQL's, or a client.
    whose: u32,
    follows: Option<Follows>,
    /// What its transaction has changed.
    pending: [Option<Shape>; TABLES],
    /// DDL whose tag says so ran in its transaction, this the last time.
    told: Option<Option<Token>>,
    /// Such a transaction has ended, which its client has not heard yet.
    ended: Option<Token>,
    /// When the statement was parsed, at the earliest, that was refused last.
    refused: Option<u64>,
}

/// What a reference goes by.
struct Follows {
    /// Statements are renamed, and parsed where they are needed.
    renamed: bool,
    sent: Sent,
    reply: Reply,
    /// Messages of this number and later ones were sent when its own DDL had been answered.
    answered: u64,
}

/// When a client sent a message.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Which of its messages it is.
    pub number: u64,
    /// At which moment of the catalog.
    pub moment: u64,
    /// At which time.
    pub at: Time,
    /// At which position of its database's board.
    pub heard: usize,
}

/// What a client was told next, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reply {
    /// The rows have changed.
    Refused,
    /// There is no such table.
    Gone,
    /// Rows are that.
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
    /// It has rows, like the table's.
    rows: bool,
    unnamed: bool,
    /// What the table may have been when it was parsed for this client.
    exact: Shapes,
    /// And for another one who had the same text parsed.
    shapes: Shapes,
    /// The earliest moment at which anybody had it parsed.
    since: u64,
    /// It was sent, and answered, at these moments.
    sent: u64,
    parsed: u64,
    /// The transaction goes on that it was parsed in.
    here: bool,
    described: Option<Shape>,
    /// The same in a transaction that had changed the schema: it counts for statements that were
    /// named behind that change, as far as a pooler can tell.
    inside: Option<Shape>,
}

/// What may become of a message about a statement.
struct Verdict {
    /// It succeeds, if the table is one of these.
    goes: Shapes,
    refused: bool,
    gone: bool,
}

/// What became of it.
pub enum Outcome {
    /// It succeeds; the table is that.
    Goes(Shape),
    /// It does not.
    Fails(Fault),
}

impl Plan {
    /// It has rows, like its table's.
    pub fn has_rows(&self) -> bool {
        self.rows
    }

    /// The table it needs.
    pub fn table(&self) -> usize {
        self.table
    }

    /// What its client may have been told that it is.
    fn told(&self) -> impl Iterator<Item = Shape> {
        self.described.into_iter().chain(self.inside)
    }

    /// Nobody has said what it is.
    pub fn is_undescribed(&self) -> bool {
        self.described.is_none()
    }

    /// The transaction is over that it was parsed in.
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
    /// Of a process of PostgreSQL's.
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

    /// Of a client's reference; its pooler renames statements, or does not.
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

    /// What comes next was sent then, and its client is told this.
    pub fn follow(&mut self, sent: Sent, reply: Option<&[u8]>) {
        if let Some(follows) = &mut self.follows {
            follows.sent = sent;
            follows.reply = reply.map_or(Reply::Other, Reply::read);
        }
    }

    /// The client is told this next.
    pub fn hear(&mut self, message: &[u8]) {
        if let Some(follows) = &mut self.follows {
            follows.reply = Reply::read(message);
        }
    }

    /// The client is told that rows have changed, or that a table is gone.
    pub fn hears_error(&self) -> bool {
        let reply = self.follows.as_ref().map(|follows| follows.reply);
        matches!(reply, Some(Reply::Refused | Reply::Gone)) && self.renames()
    }

    /// Its replies depend on what others do.
    pub fn is_reference(&self) -> bool {
        self.follows.is_some()
    }

    /// The moment at which something is sent.
    pub fn moment(&self) -> u64 {
        self.catalog.borrow().moment()
    }

    /// What is sent from here on comes behind the answer to its DDL.
    pub fn ddl_is_answered(&mut self, next: u64) {
        if let Some(follows) = &mut self.follows {
            follows.answered = next;
        }
    }

    /// The client is told that its transaction is over.
    pub fn is_told_of_end(&mut self, now: Time) {
        if let Some(last) = self.ended.take() {
            self.catalog.borrow_mut().is_told_of_end(last, now);
        }
    }

    /// The client is told that rows have changed.
    pub fn is_told_of_refusal(&mut self, now: Time) {
        if let Some(sent) = self.refused.take() {
            self.catalog.borrow_mut().is_told_of_stale(sent, now);
        }
    }

    fn own(&self) -> [Shape; TABLES] {
        let catalog = self.catalog.borrow();
        std::array::from_fn(|at| self.pending[at].unwrap_or_else(|| catalog.shape(at)))
    }

    /// PostgreSQL runs or binds a statement, and remembers what it saw.
    pub fn record(&self, token: Option<Token>) {
        if let Some(token) = token.filter(|_| self.follows.is_none()) {
            let own = self.own();
            self.catalog.borrow_mut().sees(token, own);
        }
    }

    /// What a table is, or may be, for a statement.
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
    /// It is not there.
    pub fn runs(&self, table: usize, token: Option<Token>) -> Result<Shape, Fault> {
        let sees = self.sees(table, token);
        let there = sees.only(|shape| shape != Shape::GONE);
        there.iter().next().ok_or_else(|| gone(table))
    }

    /// A text is parsed that needs a table.
    ///
    /// # Errors
    /// It is not there.
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
                // Somebody else may have had it parsed, since DDL was last noticed.
                let catalog = self.catalog.borrow();
                plan.since = catalog.noticed(follows.sent.at).min(plan.sent);
                let kept = catalog.shapes(table, plan.since);
                let tried = catalog.tried(table, plan.since);
                plan.shapes = exact.and(kept).and(tried);
            }
        }
        plan.shapes = plan.shapes.only(|shape| shape != Shape::GONE);
        let nothing = match unnamed {
            true => plan.exact.is_empty(),
            false => plan.shapes.is_empty(),
        };
        if nothing { Err(gone(table)) } else { Ok(plan) }
    }

    /// A statement is bound, or described.
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
                // It may have been parsed only now.
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

    /// PostgreSQL says that a statement's rows have changed.
    pub fn refuse(&mut self, plan: &Plan) -> Fault {
        self.stir();
        // Behind the transaction's own DDL a refusal says nothing about others' tables.
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
        // A pooler knows of a statement that its rows have changed, where PostgreSQL would say first
        // that the table is gone. Which of the two errors comes is not covered.
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

    /// Statements are parsed wherever they are needed.
    pub fn renames(&self) -> bool {
        self.follows.as_ref().is_some_and(|f| f.renamed)
    }

    /// The pooler knows for sure that the schema has changed since.
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
            // Not covered: a server that lacks it parses it late, and nobody knows better.
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

    /// A change was undone by another one. A server that parsed an old statement in between refuses
    /// it now.
    fn undone(&self, plan: &Plan, shape: Shape) -> bool {
        let catalog = self.catalog.borrow();
        let since = catalog.shapes(plan.table, plan.since);
        since.has_other_than(shape)
    }

    /// Not covered: a change that the pooler did not see, in a function, was rolled back, and the
    /// server that parsed an old statement in that transaction refuses it now.
    fn rolled_back(&self, plan: &Plan, shape: Shape) -> bool {
        let catalog = self.catalog.borrow();
        catalog.tried(plan.table, plan.since).has_other_than(shape)
    }

    /// The client is told what a statement is.
    pub fn describe(&self, plan: &mut Plan, shape: Shape) {
        // What it is in a transaction that has changed the schema, it may be no more after that.
        if self.told.is_some() {
            plan.inside = Some(shape);
        } else {
            plan.described = Some(shape);
        }
    }

    /// DDL. `by_tag`: its tag says so.
    ///
    /// # Errors
    /// The table is locked, or not there, or there already.
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
        // Until the answer has come, which must tell of it.
        self.ddl_is_answered(u64::MAX);
        if by_tag {
            self.tell(token);
        }
        Ok(())
    }

    /// DDL whose tag says so has run.
    pub fn tell(&mut self, token: Option<Token>) {
        self.told = Some(token);
        self.stir();
    }

    /// By what PostgreSQL says, a pooler may learn of DDL.
    pub fn stir(&self) {
        if self.follows.is_none() {
            self.catalog.borrow_mut().stir();
        }
    }

    /// What the transaction has changed is kept.
    pub fn keep(&mut self) {
        for (table, pending) in self.pending.iter_mut().enumerate() {
            if let Some(shape) = pending.take().filter(|_| self.follows.is_none()) {
                self.catalog.borrow_mut().keep(table, shape);
            }
        }
        self.let_go();
    }

    /// What the transaction has changed is undone: nobody else need know of it.
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
