//! A client's Query: what Howdah makes of the text, and what it sends along.

use std::sync::Arc;

use howdah_wire::frame::{HEADER, Header};
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use super::effects::Tail;
use super::upstream::{Flow, Step, Upstream, Verdict, whole};
use crate::effect::first::{self, First, Forgets};
use crate::inbox::Chunk;
use crate::ledger::{Change, Entry, NameOp, Reply, UnnamedOp};
use crate::limits;
use crate::server::state::Unnamed;
use crate::statement::{self, Statement};

/// What a Query becomes.
struct QueryPlan<'a> {
    /// The client's statement that an EXECUTE in the text runs.
    executed: Option<Arc<Statement>>,
    /// The beginning of the text, if queries are watched.
    watched: Option<&'a [u8]>,
    /// The SQL that Howdah adds if the text resets settings.
    tail: Option<Box<Tail>>,
    verdict: Verdict,
}

impl Upstream<'_> {
    pub(super) fn query(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Step {
        if self.signal_by_query(chunk, header)? {
            return Ok(());
        }
        let first = first_command(chunk, header)?;
        if let Some(First {
            forgets: Forgets::Name(name),
            ..
        }) = &first
            && self.renames
            && self.deallocates_ours(name)?
        {
            self.deallocate(chunk, header, name.clone());
            return Ok(());
        }
        let plan = self.plan_query(chunk, header, first.as_ref())?;
        self.send_query(chunk, header, first.as_ref(), plan);
        Ok(())
    }

    /// Decides what a Query becomes, and notes its effects on the session. Once this has succeeded,
    /// the Query is sent.
    fn plan_query<'a>(
        &mut self,
        chunk: &Chunk<'a>,
        header: Header,
        first: Option<&First>,
    ) -> Result<QueryPlan<'a>, Flow> {
        let executed = match first.and_then(|first| first.executes.as_deref()) {
            Some(name) => self.executed_by_sql(name)?,
            None => None,
        };
        let watched = self.front_to_watch(chunk, header)?;
        let tail = self.query_resets(chunk, header, first)?;
        if tail.is_some() {
            self.await_settings()?;
        }
        self.sets_back = tail.is_some();
        let verdict = match executed.as_ref().and_then(|s| s.effects.as_deref()) {
            Some(effects) => self.note_executed(effects, chunk, header)?,
            None => self.note_query(chunk, header)?,
        };
        Ok(QueryPlan {
            executed,
            watched,
            tail,
            verdict,
        })
    }

    fn send_query(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        first: Option<&First>,
        plan: QueryPlan<'_>,
    ) {
        if !first.is_some_and(First::draws_no_numbers) {
            self.linked().link.mark_worked();
        }
        if self.linked().check.is_some() {
            let text = &chunk.rest()[HEADER..chunk.rest().len().min(header.total())];
            self.linked().notes_for_check(text);
        }
        let mut entry = self.query_entry();
        if let Some(sql) = plan.watched {
            entry.watch_for(self.watch_query(sql));
        }
        // After a Query that only begins a transaction, messages that name statements need not
        // wait.
        entry.barrier = !first.is_some_and(|first| first.only_begins);
        self.query_alters(first, &mut entry);
        entry.changes_name(self.forget_unnamed());
        entry.changes_unnamed(self.drop_unnamed());
        let name = first.and_then(|first| first.executes.as_deref());
        let named = name.zip(plan.executed);
        match plan.tail {
            _ if plan.verdict == Verdict::Refused => self.refuse_to_keep(chunk, header, entry),
            Some(tail) => self.query_that_resets(chunk, header, entry, &tail),
            None => {
                if let Some((name, statement)) = &named {
                    self.name_for_sql(name, statement);
                }
                self.enter(entry);
                self.relay(chunk, header);
                if let Some((name, _)) = &named {
                    self.unname_for_sql(name);
                }
            }
        }
        if let Some(mark) = self.mark.take() {
            self.set_mark(&mark);
        }
    }

    /// PostgreSQL drops the unnamed statement at a Query. Makes this change, if the client has one.
    fn forget_unnamed(&mut self) -> Option<Box<NameOp>> {
        let pending = self.linked().link.ledger.pending(b"").is_some();
        let had = self.renames && (self.client.unnamed.is_some() || pending);
        had.then(|| self.name_op(Box::default(), Change::Forget))
    }

    /// Closes the unnamed statement, which PostgreSQL drops at a Query.
    pub(super) fn close_unnamed(&mut self) {
        if let Some(forgets) = self.forget_unnamed() {
            let to = self.to();
            let mut close = Entry::swallow(Reply::Close);
            close.effects_mut().name = Some(forgets);
            self.out
                .send_with(to, |buf| write::of_statement(buf, tag::CLOSE, b""));
            self.push(close);
        }
    }

    /// True if the name in a `DEALLOCATE name` belongs to the client's statements or looks like a
    /// name made by Howdah.
    fn deallocates_ours(&mut self, name: &[u8]) -> Result<bool, Flow> {
        self.wait_for(name)?;
        Ok(self.lookup(name).is_some() || statement::is_ours(name))
    }

    /// Answers a `DEALLOCATE name` by sending `DEALLOCATE howdah_void` instead. So PostgreSQL
    /// itself answers, whatever the state of the transaction.
    #[cold]
    fn deallocate(&mut self, chunk: &mut Chunk<'_>, header: Header, name: Box<[u8]>) {
        let change = self.void_or_nothing(&name);
        // An entry carries one change of a name. So this change gets its own entry.
        self.close_unnamed();
        let mut entry = self.query_entry();
        entry.barrier = true;
        entry.effects_mut().name = Some(self.name_op(name, change));
        entry.changes_unnamed(self.unnamed_op(None));
        self.push(entry);
        let to = self.to();
        self.out
            .send_with(to, |buf| write::query(buf, b"DEALLOCATE howdah_void"));
        self.skip(chunk, header);
    }

    /// The change by which a Query drops the server's unnamed statement, if there may be one.
    fn drop_unnamed(&mut self) -> Option<UnnamedOp> {
        let server = self.linked();
        let known = matches!(server.unnamed(), Unnamed::Known(None));
        match known && !server.link.ledger.changes_unnamed() {
            true => None,
            false => self.unnamed_op(None),
        }
    }
}

/// The first command of a Query. `None` if the Query is too long to hold.
fn first_command(chunk: &Chunk<'_>, header: Header) -> Result<Option<First>, Flow> {
    let body = &chunk.rest()[HEADER..];
    if header.total() > limits::FRONT || !first::may_matter(body) {
        return Ok(None);
    }
    let body = whole(chunk, header).ok_or(Flow::Partial)?;
    let text = body.strip_suffix(b"\0").unwrap_or(body);
    Ok(Some(first::first(text)))
}
