//! Single queries: which are slow, which take the most time, and their traces.
//!
//! ```text
//! Query, Execute --> Watched (with its entry of the ledger) --> ended --> Tally, SlowQuery, Traced
//! ```
//!
//! If a pool's settings ask for none of these, a query costs one more branch. Otherwise Howdah
//! reads the query's text (a prepared statement's text only once), and puts the query in a queue.

pub mod slow;
pub mod tally;
pub mod tell;
pub mod text;
pub mod trace;
pub mod watched;

pub use watched::{Wanted, Watched, Watching};

use crate::Seeded;
use crate::config::Globals;
use crate::login::Login;
use slow::{Quota, SlowQuery};
use tally::{Ended, Tally};
use text::Texts;
use trace::Traced;

/// The queries of a worker.
#[derive(Debug)]
pub struct Queries {
    /// The shared texts.
    pub texts: Texts,
    /// The texts that take the most time.
    pub tally: Tally,
    /// The limit of the slow query log.
    pub quota: Quota,
    /// The limit of spans.
    pub spans: Quota,
}

impl Queries {
    /// No queries yet.
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

    /// Applies new settings.
    pub fn set(&mut self, globals: &Globals) {
        self.tally.set_most(globals.top_queries as usize);
    }
}

/// A report on one query.
#[derive(Debug)]
pub enum Seen {
    /// A slow query.
    Slow(SlowQuery),
    /// The spans of a query.
    Traced(Traced),
}

impl Queries {
    /// Counts a query that has ended. Returns true if the query must also be reported.
    pub(crate) fn counts(&mut self, login: &mut Login, query: &Watched, ended: &Ended) -> bool {
        if login.terms.wanted.tally {
            self.tally.count(&login.key, &query.text, ended);
        }
        let slow = is_slow(login.terms.wanted.slow_ns, ended);
        if slow {
            login.count_slow_query();
        }
        slow || query.place.is_some()
    }
}

/// True if the query and its wait took so long that it belongs in the slow query log.
fn is_slow(slow_ns: u64, ended: &Ended) -> bool {
    slow_ns > 0 && ended.run_ns.saturating_add(ended.wait_ns) >= slow_ns
}
