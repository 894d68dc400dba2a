//! Counters and durations of a login.

use super::Login;
use crate::effect::Kinds;
use crate::errors::{ErrorCounts, ErrorSource};
use crate::session::PIN_REASONS;
use crate::stats::Stats;
use crate::times::Times;

impl Login {
    /// The counters since the start.
    pub fn stats(&self) -> &Stats {
        &self.counts.stats
    }

    /// The durations of logins, waits, queries and transactions.
    pub fn times(&self) -> &Times {
        &self.counts.times
    }

    /// The errors that clients got.
    pub fn errors(&self) -> &ErrorCounts {
        &self.counts.errors
    }

    /// The counters at the end of the period before last.
    pub fn older_stats(&self) -> Stats {
        self.counts.older
    }

    /// Ends a period of the statistics. Returns the counts of this period.
    pub(crate) fn period_ends(&mut self) -> Stats {
        let counts = &mut self.counts;
        counts.older = std::mem::replace(&mut counts.last, counts.stats);
        counts.stats.since(&counts.older)
    }

    /// How many transactions have ended since the last call. The balancer is told this number.
    pub(crate) fn tells_transactions(&mut self) -> u64 {
        let counts = &mut self.counts;
        let all = counts.stats.transactions;
        all - std::mem::replace(&mut counts.told_transactions, all)
    }
}

/// Counting. Durations are in nanoseconds, sizes in bytes.
impl Login {
    /// A client has sent `bytes`.
    #[inline]
    pub(crate) fn count_received(&mut self, bytes: usize) {
        self.counts.stats.received += bytes as u64;
    }

    /// A server has sent `bytes`.
    #[inline]
    pub(crate) fn count_sent(&mut self, bytes: usize) {
        self.counts.stats.sent += bytes as u64;
    }

    /// Counts Parse and Bind messages.
    #[inline]
    pub(crate) fn count_parses(&mut self, from_clients: u32, to_servers: u32, binds: u32) {
        let stats = &mut self.counts.stats;
        stats.client_parses += u64::from(from_clients);
        stats.server_parses += u64::from(to_servers);
        stats.binds += u64::from(binds);
    }

    /// A client is linked to a server.
    #[inline]
    pub(crate) fn count_assignment(&mut self) {
        self.counts.stats.server_assignments += 1;
    }

    pub(crate) fn count_wait(&mut self, ns: u64) {
        self.counts.stats.wait_ns += ns;
        self.counts.times.wait.count(ns);
    }

    /// A client has given up its wait for a server, after `ns`.
    pub(crate) fn count_wait_in_vain(&mut self, ns: u64) {
        self.count_wait(ns);
        self.counts.stats.waits_in_vain += 1;
    }

    /// A client gets an error of Howdah's own.
    pub(crate) fn count_error(&mut self, sqlstate: &[u8]) {
        self.counts.errors.count(ErrorSource::Pooler, sqlstate);
    }

    /// Clients got these errors from a server.
    pub(crate) fn count_errors(&mut self, errors: &ErrorCounts) {
        self.counts.errors.add(errors);
    }

    #[inline]
    pub(crate) fn count_queries(&mut self, queries: u32, ns: u64) {
        self.counts.stats.queries += u64::from(queries);
        self.counts.stats.query_ns += ns;
        self.counts.times.query.count(ns);
    }

    #[inline]
    pub(crate) fn count_transactions(&mut self, transactions: u32, ns: u64) {
        self.counts.stats.transactions += u64::from(transactions);
        self.counts.stats.transaction_ns += ns;
        self.counts.times.transaction.count(ns);
    }

    /// Howdah has answered groups of messages without a server.
    pub(crate) fn count_answered(&mut self, groups: u32, parses: u32) {
        self.count_parses(parses, 0, 0);
        // They took no time, so durations do not count them.
        self.counts.stats.queries += u64::from(groups);
        self.counts.stats.transactions += u64::from(groups);
        self.counts.stats.answered_groups += u64::from(groups);
    }

    pub(crate) fn count_slow_query(&mut self) {
        self.counts.stats.slow_queries += 1;
    }

    /// A client begins to keep its server, for the reasons `why`.
    pub(crate) fn count_pin(&mut self, why: Kinds) {
        self.pinned += 1;
        let stats = &mut self.counts.stats;
        stats.pins += 1;
        for (count, (kind, ..)) in stats.pins_for.iter_mut().zip(PIN_REASONS) {
            *count += u64::from(why.any(kind));
        }
    }

    pub(crate) fn count_unpin(&mut self) {
        self.pinned -= 1;
    }

    /// The spot check has found state on a server that no query text had shown.
    pub(crate) fn count_unseen(&mut self) {
        self.counts.stats.unseen += 1;
    }

    pub(crate) fn count_lend(&mut self) {
        self.counts.stats.lends += 1;
    }

    /// A server is closed to make room for another pool.
    pub(crate) fn count_eviction(&mut self) {
        self.counts.stats.evictions += 1;
    }

    /// A link has ended because of a bug in Howdah.
    pub(crate) fn count_internal_error(&mut self) {
        self.counts.stats.internal_errors += 1;
    }

    /// A client was let in, `ns` after it had connected.
    pub(crate) fn count_login(&mut self, ns: u64) {
        self.counts.times.count_login(ns);
    }

    /// A server is ready, `ns` after its connection began.
    pub(crate) fn count_connect(&mut self, ns: u64) {
        self.counts.times.count_connect(ns);
    }

    pub(crate) fn count_connect_failure(&mut self) {
        self.counts.times.connect_failures += 1;
    }
}
