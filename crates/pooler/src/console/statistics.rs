//! Counts and averages for each database and in total: SHOW STATS and related commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::columns::TOTALS;
use super::rows::{Row, number, text};
use crate::config::CONSOLE;
use crate::console::holdings::{Holdings, PoolShare};
use crate::queries::tally::{QueryCounts, TopQueries};
use crate::stats::Stats;

/// The counts of a database, or of everything.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DatabaseCounts {
    /// Since the start.
    stats: Stats,
    /// Counts in the averages' window.
    recent: Stats,
    /// The length of the window, in nanoseconds.
    window: u64,
    /// The clients that still wait, and the sum of their waits so far, in nanoseconds.
    waiting: (u64, u64),
}

impl DatabaseCounts {
    fn add(&mut self, stats: &Stats, older: &Stats, window: u64) {
        self.stats.add(stats);
        self.recent.add(&stats.since(older));
        self.window = self.window.max(window);
    }

    /// Adds a worker's share of a pool.
    fn add_share(&mut self, share: &PoolShare, window: u64) {
        self.add(&share.stats, &share.older, window);
        self.waiting.0 += u64::from(share.states.cl_waiting);
        self.waiting.1 += share.states.waits;
    }

    pub(super) fn totals(&self) -> [u64; 11] {
        self.stats.columns()
    }

    /// Averages per second, and times per transaction, query and assignment.
    pub(super) fn averages(&self) -> [u64; 11] {
        let recent = &self.recent;
        if self.window == 0 {
            return [0; 11];
        }
        let window = u128::from(self.window);
        let mut columns = recent
            .columns()
            .map(|count| (u128::from(count) * 1_000_000_000 / window) as u64);
        let per = |ns: u64, count: u64| (ns / 1000).checked_div(count).unwrap_or(0);
        columns[5] = per(recent.transaction_ns, recent.transactions);
        columns[6] = per(recent.query_ns, recent.queries);
        // Waits that are not over count as long as they have lasted.
        let (waiting, waits) = self.waiting;
        let count = recent.server_assignments + recent.waits_in_vain + waiting;
        columns[7] = per(recent.wait_ns + waits, count);
        columns
    }
}

/// A row for each database, including the console's.
pub(super) fn of_databases(
    holdings: &[Holdings],
    values: impl Fn(&DatabaseCounts) -> Vec<u64>,
) -> Vec<Row> {
    let mut databases: BTreeMap<Arc<str>, DatabaseCounts> = BTreeMap::new();
    for holding in holdings {
        for share in &holding.pools {
            let counts = databases.entry(share.key.database.clone()).or_default();
            counts.add_share(share, holding.window);
        }
        let counts = databases.entry(CONSOLE.into()).or_default();
        counts.add(
            &holding.console_stats,
            &holding.console_older,
            holding.window,
        );
    }
    let row = |(name, counts): (&Arc<str>, &DatabaseCounts)| {
        std::iter::once(text(name))
            .chain(values(counts).into_iter().map(number))
            .collect()
    };
    databases.iter().map(row).collect()
}

/// The rows of SHOW QUERIES: the queries that took the most time first, and last a row for the
/// removed ones.
pub(super) fn show_queries(told: TopQueries) -> Vec<Row> {
    let row = |names: [&str; 4], counts: &QueryCounts| {
        let [database, user, fingerprint, query] = names;
        let mean = counts.run_ns.checked_div(counts.calls).unwrap_or(0);
        vec![
            text(database),
            text(user),
            number(counts.calls),
            number(counts.errors),
            number(counts.rows),
            number(counts.run_ns / 1000),
            number(mean / 1000),
            number(counts.p99_ns() / 1000),
            number(counts.longest_ns / 1000),
            number(counts.wait_ns / 1000),
            text(fingerprint),
            text(query),
        ]
    };
    let lines = told.lines.iter().map(|line| {
        let (pool, query) = (&line.login, &line.text);
        let names = [&*pool.database, &*pool.user, &query.shown(), &*query.text];
        row(names, &line.counts)
    });
    let mut rows: Vec<Row> = lines.collect();
    if told.evicted > 0 {
        let what = format!("({} texts that were pushed out)", told.evicted);
        rows.push(row(["(other)", "(other)", "", &what], &told.gone));
    }
    rows
}

pub(super) fn show_totals(holdings: &[Holdings]) -> Vec<Row> {
    let mut all = DatabaseCounts::default();
    for holding in holdings {
        for share in &holding.pools {
            all.add_share(share, holding.window);
        }
        all.add(
            &holding.console_stats,
            &holding.console_older,
            holding.window,
        );
    }
    let rows = |kind: &'static str, values: [u64; 11]| {
        let named = TOTALS.into_iter().zip(values);
        named.map(move |(name, value)| vec![text(&format!("{kind}_{name}")), number(value)])
    };
    rows("total", all.totals())
        .chain(rows("avg", all.averages()))
        .collect()
}
