//! Counters and durations of a pool.

use super::Pool;
use crate::effect::Kinds;
use crate::session::PIN_REASONS;
use crate::stats::Stats;
use crate::times::Times;

/// What was counted.
impl Pool {
    /// What was counted since the start.
    pub fn stats(&self) -> &Stats {
        &self.counts.stats
    }

    /// How long things took.
    pub fn times(&self) -> &Times {
        &self.counts.times
    }

    /// What was counted up to the end of the period before the last.
    pub fn older_stats(&self) -> Stats {
        self.counts.older
    }

    /// A period of the statistics ends: what was counted in it.
    pub(crate) fn period_ends(&mut self) -> Stats {
        let counts = &mut self.counts;
        counts.older = std::mem::replace(&mut counts.last, counts.stats);
        counts.stats.since(&counts.older)
    }

    /// How many transactions the balancer was not told of yet; now it is.
    pub(crate) fn tells_transactions(&mut self) -> u64 {
        let counts = &mut self.counts;
        let all = counts.stats.transactions;
        all - std::mem::replace(&mut counts.told_transactions, all)
    }
}

/// Something is counted. Durations are in nanoseconds, sizes in bytes.
impl Pool {
    /// A client has sent so much.
    #[inline]
    pub(crate) fn count_received(&mut self, bytes: usize) {
        self.counts.stats.received += bytes as u64;
    }

    /// A server has sent so much.
    #[inline]
    pub(crate) fn count_sent(&mut self, bytes: usize) {
        self.counts.stats.sent += bytes as u64;
    }

    /// Clients have sent so many Parses and Binds, and servers were sent so many Parses.
    #[inline]
    pub(crate) fn count_parses(&mut self, from_clients: u32, to_servers: u32, binds: u32) {
        let stats = &mut self.counts.stats;
        stats.client_parses += u64::from(from_clients);
        stats.server_parses += u64::from(to_servers);
        stats.binds += u64::from(binds);
    }

    /// A client is bound to a server.
    #[inline]
    pub(crate) fn count_assignment(&mut self) {
        self.counts.stats.server_assignments += 1;
    }

    /// A client has waited for a server.
    pub(crate) fn count_wait(&mut self, ns: u64) {
        self.counts.stats.wait_ns += ns;
        self.counts.times.wait.count(ns);
    }

    /// So many queries have ended, after so long.
    #[inline]
    pub(crate) fn count_queries(&mut self, queries: u32, ns: u64) {
        self.counts.stats.queries += u64::from(queries);
        self.counts.stats.query_ns += ns;
        self.counts.times.query.count(ns);
    }

    /// So many transactions have ended, after so long.
    #[inline]
    pub(crate) fn count_transactions(&mut self, transactions: u32, ns: u64) {
        self.counts.stats.transactions += u64::from(transactions);
        self.counts.stats.transaction_ns += ns;
        self.counts.times.transaction.count(ns);
    }

    /// A query has ended that was slow.
    pub(crate) fn count_slow_query(&mut self) {
        self.counts.stats.slow_queries += 1;
    }

    /// A client keeps its server from now on, for these reasons.
    pub(crate) fn count_pin(&mut self, why: Kinds) {
        self.pinned += 1;
        let stats = &mut self.counts.stats;
        stats.pins += 1;
        for (count, (kind, ..)) in stats.pins_for.iter_mut().zip(PIN_REASONS) {
            *count += u64::from(why.any(kind));
        }
    }

    /// A client keeps its server no more.
    pub(crate) fn count_unpin(&mut self) {
        self.pinned -= 1;
    }

    /// Something was found on a server that no text had told.
    pub(crate) fn count_unseen(&mut self) {
        self.counts.stats.unseen += 1;
    }

    /// A server is lent to another worker.
    pub(crate) fn count_lend(&mut self) {
        self.counts.stats.lends += 1;
    }

    /// A server goes to make room for another pool's.
    pub(crate) fn count_eviction(&mut self) {
        self.counts.stats.evictions += 1;
    }

    /// A link has ended by a mistake of our own.
    pub(crate) fn count_mistake(&mut self) {
        self.counts.stats.mistakes += 1;
    }

    /// A client was let in, so long after it had connected.
    pub(crate) fn count_login(&mut self, ns: u64) {
        self.counts.times.count_login(ns);
    }

    /// A server is ready, so long after its connection began.
    pub(crate) fn count_connect(&mut self, ns: u64) {
        self.counts.times.count_connect(ns);
    }

    /// A connection to PostgreSQL has failed, or its login.
    pub(crate) fn count_connect_failure(&mut self) {
        self.counts.times.connect_failures += 1;
    }
}
