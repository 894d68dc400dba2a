//! Queries one by one: which are slow, which take the most, and their traces.
//!
//! ```text
//! Query, Execute --> Watched (with its entry of the ledger) --> ended --> Tally, SlowQuery, Traced
//! ```
//!
//! Where a pool's settings want none of these, nothing here is reached: that costs a branch. Else each
//! query costs the reading of its text (a statement's once for all its Executes), and a place in a
//! queue.

pub mod slow;
pub mod tally;
pub mod text;
pub mod trace;

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use crate::Seeded;
use crate::config::{Config, Database, Globals, User, nanos};
use crate::event::{Action, ClientId, Out, ServerId, Time};
use crate::note::{Level, Note};
use crate::place;
use crate::pool::Pool;
use crate::pooler::Pooler;
use slow::{Quota, SlowQuery};
use tally::{Ended, Tally};
use text::{QueryText, Texts};
use trace::{Place, Traced};

/// What settings want to know of a pool's queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Anything at all.
    pub any: bool,
    /// Those that took at least so many nanoseconds, with their waits; 0: none.
    pub slow_ns: u64,
    /// Their values, too.
    pub values: bool,
    /// Which take the most.
    pub tally: bool,
    /// Spans.
    pub traces: bool,
    /// Of 2^64 that name no parent so many have spans.
    pub trace_share: u64,
}

impl Wanted {
    /// What the settings say of a database and user.
    pub fn of(config: &Config, database: &Database, user: Option<&User>) -> Wanted {
        let globals = &config.globals;
        let slow_ns = nanos(config.slow_query_time(database, user));
        let tally = globals.top_queries > 0;
        let traces = !globals.trace_endpoint.is_empty();
        Wanted {
            any: slow_ns > 0 || tally || traces,
            slow_ns,
            values: slow_ns > 0 && globals.slow_query_values,
            tally,
            traces,
            trace_share: globals.trace_ratio.of_all(),
        }
    }
}

/// A query on its way: the entry of the ledger that it goes with says when it has ended.
#[derive(Clone, Debug)]
pub struct Watched {
    /// What it is.
    pub text: Arc<QueryText>,
    /// The group of messages it was sent in.
    pub group: u32,
    /// When it was sent.
    pub sent: Time,
    /// For how long its client had waited for the server, in nanoseconds.
    pub waited: u64,
    /// Rows so far.
    pub rows: u64,
    /// The error it got.
    pub sqlstate: Option<[u8; 5]>,
    /// Its text and values as they were sent, if they are wanted.
    pub values: Option<Box<str>>,
    /// Its spans.
    pub place: Option<Box<Place>>,
}

/// What is watched with, while a client's bytes are worked through.
#[derive(Debug)]
pub struct Watching<'a> {
    /// The time.
    pub now: Time,
    /// What is wanted.
    pub wanted: Wanted,
    /// Where texts are shared.
    pub texts: &'a mut Texts,
    /// Where numbers of spans come from.
    pub random: &'a mut ChaCha20Rng,
}

impl Watching<'_> {
    /// A query of a text that begins as this one.
    pub fn begin(&mut self, text: Arc<QueryText>, sql: &[u8], group: u32, waited: u64) -> Watched {
        let place = match self.wanted.traces {
            true => self.place(sql).map(Box::new),
            false => None,
        };
        Watched {
            text,
            group,
            sent: self.now,
            waited,
            rows: 0,
            sqlstate: None,
            values: None,
            place,
        }
    }

    /// Its place in a trace, if it is to have one.
    fn place(&mut self, sql: &[u8]) -> Option<Place> {
        if let Some((trace, parent, sampled)) = trace::traceparent(sql) {
            return sampled.then(|| Place {
                trace,
                parent: Some(parent),
                span: self.random.next_u64().max(1),
            });
        }
        if self.random.next_u64() >= self.wanted.trace_share {
            return None;
        }
        let mut half = || u128::from(self.random.next_u64());
        Some(Place {
            trace: (half() << 64 | half()).max(1),
            parent: None,
            span: self.random.next_u64().max(1),
        })
    }
}

/// What a worker has found out about queries.
#[derive(Debug)]
pub struct Queries {
    /// Their texts.
    pub texts: Texts,
    /// Which take the most.
    pub tally: Tally,
    /// The bound of the log of slow ones.
    pub quota: Quota,
    /// The bound of spans.
    pub spans: Quota,
}

impl Queries {
    /// Nothing.
    pub fn new(seeded: Seeded, globals: &Globals) -> Queries {
        let mut queries = Queries {
            texts: Texts::new(seeded),
            tally: Tally::new(seeded),
            quota: Quota::default(),
            spans: Quota::default(),
        };
        queries.set(globals);
        queries
    }

    /// New settings.
    pub fn set(&mut self, globals: &Globals) {
        self.tally.set_most(globals.top_queries as usize);
    }
}

/// What is told of a query besides counts.
#[derive(Debug)]
pub enum Seen {
    /// It was slow.
    Slow(SlowQuery),
    /// Its spans.
    Traced(Traced),
}

impl Pooler {
    /// A query that the log or a trace wants has ended, or nobody will see its end.
    pub(crate) fn tell_of_query(
        &mut self,
        id: ClientId,
        query: &Watched,
        ended: &Ended,
        broken_off: Option<&'static str>,
        out: &mut Out,
    ) {
        let client = gone!(self.clients.get(id));
        let number = client.number;
        let Some(pool) = client.pool.map(|pool| self.pools.at(pool)) else {
            return;
        };
        let slow_ns = pool.terms.wanted.slow_ns;
        let address = place::remote(&client.ends);
        let application = self.application(client.params.as_deref());
        let sqlstate = query
            .sqlstate
            .map(|code| String::from_utf8_lossy(&code).into_owned());
        let (database, user) = (client.database.clone(), client.user.clone());
        if let Some(place) = &query.place
            && self.spans_left()
        {
            let began = query.sent.0.saturating_sub(query.waited);
            let traced = Traced {
                place: **place,
                began: (self.started * 1e9) as u64 + began,
                wait_ns: ended.wait_ns,
                run_ns: ended.run_ns,
                rows: ended.rows,
                sqlstate: sqlstate.clone(),
                broken_off,
                database: database.clone(),
                user: user.clone(),
                address: address.clone(),
                application: application.clone(),
                text: query.text.clone(),
            };
            out.push(Action::Tell(Box::new(Seen::Traced(traced))));
        }
        if !is_slow(slow_ns, ended) {
            return;
        }
        let rate = self.config.globals.slow_query_rate;
        let Some(missed) = self.queries.quota.take(self.now, rate) else {
            return;
        };
        if missed > 0 {
            let text = format!("{missed} slow queries were not logged: slow_query_rate is {rate}");
            out.note(Note::new(Level::Warning, text));
        }
        let slow = SlowQuery {
            connection: format!("C-{number:#x}"),
            address,
            database,
            user,
            application,
            wait_ns: ended.wait_ns,
            run_ns: ended.run_ns,
            rows: ended.rows,
            sqlstate,
            broken_off,
            text: query.text.clone(),
            values: query.values.as_deref().map(String::from),
        };
        out.push(Action::Tell(Box::new(Seen::Slow(slow))));
    }

    fn spans_left(&mut self) -> bool {
        self.queries.spans.take(self.now, trace::RATE).is_some()
    }

    /// A client leaves its server, or its server it: what runs there is told of as far as it came.
    pub(crate) fn break_off_query(
        &mut self,
        client: ClientId,
        server: ServerId,
        why: &'static str,
        out: &mut Out,
    ) {
        let now = self.now;
        let entry = gone!(self.servers.get_mut(server));
        let Some((query, run_ns)) = entry.link.take_watched(now) else {
            return;
        };
        let pool = self.pools.at_mut(entry.pool);
        let ended = Ended::new(&query, run_ns, true);
        if self.queries.counts(pool, &query, &ended) {
            self.tell_of_query(client, &query, &ended, Some(why), out);
        }
    }
}

impl Queries {
    /// Counts a query of a pool that has ended. True if somebody wants to know more of it.
    pub(crate) fn counts(&mut self, pool: &mut Pool, query: &Watched, ended: &Ended) -> bool {
        if pool.terms.wanted.tally {
            self.tally.count(&pool.key, &query.text, ended);
        }
        let slow = is_slow(pool.terms.wanted.slow_ns, ended);
        if slow {
            pool.count_slow_query();
        }
        slow || query.place.is_some()
    }
}

/// It took so long, with its wait, that the log wants it.
fn is_slow(slow_ns: u64, ended: &Ended) -> bool {
    slow_ns > 0 && ended.run_ns.saturating_add(ended.wait_ns) >= slow_ns
}
