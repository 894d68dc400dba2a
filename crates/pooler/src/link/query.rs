//! A client's Query: what Howdah makes of the text, and what it sends along.

use howdah_wire::frame::Header;
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use super::asked::QueryReader;
use super::effects::Tail;
use super::sql_names::SqlNames;
use super::upstream::{Flow, LoginValues, Step, Upstream, Verdict};
use crate::effect::first::{First, Forgets};
use crate::effect::{Depth, Gist, Names};
use crate::inbox::Chunk;
use crate::ledger::{Change, Entry, NameOp, Reply, UnnamedOp};
use crate::opening::QueryRead;
use crate::session::Tracking;
use crate::statement::{self, Unnamed};

/// What a Query becomes.
struct QueryPlan<'a> {
    /// Where PostgreSQL looks names up afterwards.
    looks: Names,
    /// The statements that the text names.
    names: Option<Box<SqlNames>>,
    /// The beginning of the text, if queries are watched.
    watched: Option<&'a [u8]>,
    /// The SQL that Howdah adds if the text resets settings.
    tail: Option<Box<Tail>>,
    verdict: Verdict,
}

impl Upstream<'_> {
    pub(super) fn query(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        read: &mut QueryRead,
    ) -> Step {
        if !read.filled {
            self.read_query(chunk, header, read)?;
        }
        self.handle_query(chunk, header, &read.gist)
    }

    #[inline(always)] // Called in one place.
    fn handle_query(&mut self, chunk: &mut Chunk<'_>, header: Header, gist: &Gist) -> Step {
        if let Some(signal) = &gist.signal
            && self.run_signal(chunk, header, signal)?
        {
            return Ok(());
        }
        if let Some(first) = &gist.first
            && self.renames
            && self.names_ours(chunk, header, first)?
        {
            return Ok(());
        }
        let plan = self.plan_query(chunk, header, gist)?;
        self.send_query(chunk, header, gist.first.as_ref(), plan);
        self.client.inbox.gives_room_back();
        Ok(())
    }

    fn read_query(&mut self, chunk: &Chunk<'_>, header: Header, read: &mut QueryRead) -> Step {
        let tracking = self.tracking();
        let mut reader = QueryReader {
            client: self.client,
            has_server: true,
            tracking,
            renames: self.renames,
            // The client has its server.
            routes: false,
            volatile: None,
            share: self.share,
        };
        reader.read(chunk, header, read)
    }

    /// Decides what a Query becomes, and notes its effects on the session. Once this has succeeded,
    /// the Query is sent.
    fn plan_query<'a>(
        &mut self,
        chunk: &Chunk<'a>,
        header: Header,
        gist: &Gist,
    ) -> Result<QueryPlan<'a>, Flow> {
        let (mut completed, mut names) = (None, None);
        if let Some(effects) = &gist.effects
            && !effects.statements.is_empty()
        {
            let effects = completed.insert(effects.clone());
            names = self.sql_names(effects)?.map(Box::new);
        }
        let effects = completed.as_ref().or(gist.effects.as_ref());
        let watched = self.front_to_watch(chunk, header)?;
        let tail = self.query_resets(&gist.among);
        if tail.is_some() {
            self.await_settings()?;
        }
        let values = match tail {
            Some(_) => LoginValues::Restored,
            None => LoginValues::Gone,
        };
        let verdict = match effects {
            _ if self.tracking() == Tracking::Nothing => Verdict::Runs,
            Some(effects) => self.note_first(effects, values)?,
            None if gist.depth.any(Depth::EFFECTS) => Verdict::Runs,
            None => self.note_long(chunk, header)?,
        };
        Ok(QueryPlan {
            looks: match effects {
                Some(effects) if self.tracking() != Tracking::Nothing => effects.names(),
                _ => Names::Same,
            },
            names,
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
        let mut entry = self.query_entry();
        if let Some(sql) = plan.watched {
            entry.watch_for(self.watch_query(sql));
        }
        // After a Query that only begins a transaction, messages that name statements need not
        // wait.
        entry.barrier = !first.is_some_and(|first| first.only_begins);
        self.query_alters(first, plan.looks, &mut entry);
        entry.changes_name(self.forget_unnamed());
        entry.changes_unnamed(self.drop_unnamed());
        match (plan.verdict, plan.names) {
            (Verdict::Refused, _) => self.refuse_to_keep(chunk, header, entry),
            (Verdict::Runs, None) => self.pass_query(chunk, header, entry, plan.tail),
            (Verdict::Runs, Some(mut names)) => {
                self.place_names(&names);
                entry.effects_mut().sql_names = Some(Box::new(names.take_changes()));
                self.pass_query(chunk, header, entry, plan.tail);
                self.remove_names(&names);
            }
        }
    }

    #[inline(always)] // Called in two places, one of them rare.
    fn pass_query(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        entry: Entry,
        tail: Option<Box<Tail>>,
    ) {
        match tail {
            Some(tail) => self.query_that_resets(chunk, header, entry, &tail),
            None => {
                self.enter(entry);
                self.relay(chunk, header);
            }
        }
    }

    /// PostgreSQL drops the unnamed statement at a Query. Makes this change, if the client has one.
    fn forget_unnamed(&mut self) -> Option<Box<NameOp>> {
        let pending = self.server.link.ledger.pending(b"").is_some();
        let had = self.renames && (self.client.statements.unnamed().is_some() || pending);
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

    /// Answers an EXECUTE or DEALLOCATE of a name of Howdah's, which no client has: PostgreSQL gets
    /// another name, which it does not know. The same for the DEALLOCATE of a client's name inside
    /// an open group. False for any other command.
    fn names_ours(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        first: &First,
    ) -> Result<bool, Flow> {
        let (name, command) = match (&first.forgets, &first.executes) {
            (Forgets::Name(name), _) => (name, &b"DEALLOCATE "[..]),
            (_, Some(name)) => (name, &b"EXECUTE "[..]),
            _ => return Ok(false),
        };
        // Inside a group, no other name can be placed on the server for a while.
        let inside = first.executes.is_none() && self.server.link.is_group_at_work();
        let ours = statement::is_ours(name);
        if !inside && !ours {
            return Ok(false);
        }
        self.wait_for(name)?;
        // A client may choose such a name.
        let own = self.lookup(name).is_some();
        if own && !inside || !own && !ours {
            return Ok(false);
        }
        let change = self.void_or_nothing(name);
        // An entry carries one change of a name. So this change gets its own entry.
        self.close_unnamed();
        let mut entry = self.query_entry();
        entry.barrier = true;
        entry.effects_mut().name = Some(self.name_op(name.clone(), change));
        entry.changes_unnamed(self.unnamed_op(None));
        self.push(entry);
        let to = self.to();
        self.out.send_with(to, |buf| {
            write::query(buf, &[command, statement::VOID].concat());
        });
        self.skip(chunk, header);
        Ok(true)
    }

    /// The change by which a Query drops the server's unnamed statement, if there may be one.
    fn drop_unnamed(&mut self) -> Option<UnnamedOp> {
        let server = &mut *self.server;
        let known = matches!(server.statements.unnamed(), Unnamed::Known(None));
        if known && !server.link.ledger.changes_unnamed() {
            None
        } else {
            self.unnamed_op(None)
        }
    }
}
