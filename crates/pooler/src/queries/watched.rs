//! A running query, and what the settings ask to record about it.

use std::sync::Arc;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::Rng;

use crate::config::{Scopes, nanos};
use crate::ids::Time;
use crate::queries::text::{QueryText, Texts};
use crate::queries::trace::{SpanIds, traceparent};

/// What the settings ask to record about a pool's queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// True if anything is recorded.
    pub any: bool,
    /// Record queries at least this slow, in nanoseconds, wait included; 0 for none.
    pub slow_ns: u64,
    /// Record the values of slow queries, too.
    pub values: bool,
    /// Count queries by text.
    pub tally: bool,
    /// Record spans.
    pub traces: bool,
    /// How many of 2^64 queries without a parent span get spans.
    pub trace_share: u64,
}

impl Wanted {
    /// The settings for a database and user.
    pub fn of(scopes: Scopes<'_>) -> Wanted {
        let globals = scopes.globals;
        let slow_ns = nanos(scopes.slow_query_time());
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

/// A running query. It ends when its entry of the ledger is answered.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The text, without constants.
    pub text: Arc<QueryText>,
    /// When the query was sent.
    pub sent: Time,
    /// How long the client had waited for the server, in nanoseconds.
    pub waited: u64,
    /// Number of rows so far.
    pub rows: u64,
    /// The most rows that an Execute asks for; 0 for all. After so many, PostgreSQL stops.
    pub row_limit: u32,
    /// The SQLSTATE, if the query got an error.
    pub sqlstate: Option<[u8; 5]>,
    /// The text and values as sent, if they are recorded.
    pub values: Option<Box<str>>,
    /// The ids of its spans, if it is traced.
    pub place: Option<Box<SpanIds>>,
}

/// What watching queries needs, while a client's bytes are handled.
#[derive(Debug)]
pub struct Watching<'a> {
    /// The current time.
    pub now: Time,
    /// What is recorded.
    pub wanted: Wanted,
    /// The shared texts.
    pub texts: &'a mut Texts,
    /// The source of span ids.
    pub random: &'a mut ChaCha20Rng,
}

impl Watching<'_> {
    /// Begins to watch a query. Its text may name a parent span.
    pub fn begin(&mut self, text: Arc<QueryText>, sql: &[u8], waited: u64) -> Watched {
        let place = if self.wanted.traces {
            self.place(sql).map(Box::new)
        } else {
            None
        };
        Watched {
            text,
            sent: self.now,
            waited,
            rows: 0,
            row_limit: 0,
            sqlstate: None,
            values: None,
            place,
        }
    }

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
