//! A query under way, and what settings want to know of it.

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use crate::config::{Config, Database, User, nanos};
use crate::ids::Time;
use crate::queries::text::{QueryText, Texts};
use crate::queries::trace::{SpanIds, traceparent};

/// What settings want to know of a pool's queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Anything at all.
    pub any: bool,
    /// Slow queries: those that took at least so many nanoseconds, waits included; 0: none.
    pub slow_ns: u64,
    /// The values of slow queries, too.
    pub values: bool,
    /// Counts by text.
    pub tally: bool,
    /// Spans.
    pub traces: bool,
    /// How many of 2^64 queries without a parent span get spans.
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

/// A query under way. It has ended when its entry of the ledger is answered.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Its text, without constants.
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
    pub place: Option<Box<SpanIds>>,
}

/// What watching queries needs, while a client's bytes are handled.
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
    fn place(&mut self, sql: &[u8]) -> Option<SpanIds> {
        if let Some((trace, parent, sampled)) = traceparent(sql) {
            return sampled.then(|| SpanIds {
                trace,
                parent: Some(parent),
                span: self.random.next_u64().max(1),
            });
        }
        if self.random.next_u64() >= self.wanted.trace_share {
            return None;
        }
        let mut half = || u128::from(self.random.next_u64());
        Some(SpanIds {
            trace: (half() << 64 | half()).max(1),
            parent: None,
            span: self.random.next_u64().max(1),
        })
    }
}
