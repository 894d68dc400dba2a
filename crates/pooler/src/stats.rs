//! Counters for each pool and worker, summed on demand.

use crate::session::PIN_REASONS;

/// Counts since the start. Times are in nanoseconds here, in microseconds in the console.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// How often a server was linked to a client.
    pub server_assignments: u64,
    /// Transactions.
    pub transactions: u64,
    /// Queries.
    pub queries: u64,
    /// Bytes from clients.
    pub received: u64,
    /// Bytes from servers.
    pub sent: u64,
    /// Time in transactions.
    pub transaction_ns: u64,
    /// Time in queries.
    pub query_ns: u64,
    /// Time clients waited for a server.
    pub wait_ns: u64,
    /// Waits that no server ended: the client left, or was disconnected. `wait_ns` includes them.
    pub waits_in_vain: u64,
    /// Parses from clients.
    pub client_parses: u64,
    /// Parses to servers.
    pub server_parses: u64,
    /// Groups of messages that Howdah has answered without a server.
    pub answered_groups: u64,
    /// Binds from clients.
    pub binds: u64,
    /// Servers lent to other workers.
    pub lends: u64,
    /// How often a client began to keep its server between transactions.
    pub pins: u64,
    /// How often session state was found on a server that no text had announced.
    pub unseen: u64,
    /// `pins` by reason, in the order of [`PIN_REASONS`]. One pin may have several reasons.
    pub pins_for: [u64; PIN_REASONS.len()],
    /// Queries that took longer than `slow_query_time`.
    pub slow_queries: u64,
    /// Servers closed to make room for another pool: under a limit that both pools share, or at
    /// PostgreSQL's `max_connections`.
    pub evictions: u64,
    /// Links that ended because of a bug in Howdah.
    pub internal_errors: u64,
    /// In the counts of a period only: clients that wait at its end. `wait_ns` then includes their
    /// waits so far.
    pub still_waiting: u64,
}

impl Stats {
    /// The counts in the order of the console's columns.
    pub fn columns(&self) -> [u64; 11] {
        [
            self.server_assignments,
            self.transactions,
            self.queries,
            self.received,
            self.sent,
            self.transaction_ns / 1000,
            self.query_ns / 1000,
            self.wait_ns / 1000,
            self.client_parses,
            self.server_parses,
            self.binds,
        ]
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Stats) {
        self.server_assignments += other.server_assignments;
        self.transactions += other.transactions;
        self.queries += other.queries;
        self.received += other.received;
        self.sent += other.sent;
        self.transaction_ns += other.transaction_ns;
        self.query_ns += other.query_ns;
        self.wait_ns += other.wait_ns;
        self.waits_in_vain += other.waits_in_vain;
        self.client_parses += other.client_parses;
        self.server_parses += other.server_parses;
        self.answered_groups += other.answered_groups;
        self.binds += other.binds;
        self.lends += other.lends;
        self.pins += other.pins;
        self.unseen += other.unseen;
        for (count, more) in self.pins_for.iter_mut().zip(other.pins_for) {
            *count += more;
        }
        self.slow_queries += other.slow_queries;
        self.evictions += other.evictions;
        self.internal_errors += other.internal_errors;
        self.still_waiting += other.still_waiting;
    }

    /// PgBouncer's log line about the counts in this many seconds.
    pub fn log_line(&self, seconds: u64) -> String {
        let per = |total: u64, count: u64| total.checked_div(count).unwrap_or(0) / 1000;
        let waits = self.transactions + self.waits_in_vain + self.still_waiting;
        format!(
            "stats: {} xacts/s, {} queries/s, {} client parses/s, {} server parses/s, \
             {} binds/s, in {} B/s, out {} B/s, xact {} us, query {} us, wait {} us",
            self.transactions / seconds,
            self.queries / seconds,
            self.client_parses / seconds,
            self.server_parses / seconds,
            self.binds / seconds,
            self.received / seconds,
            self.sent / seconds,
            per(self.transaction_ns, self.transactions),
            per(self.query_ns, self.queries),
            per(self.wait_ns, waits),
        )
    }

    /// The counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Stats) -> Stats {
        Stats {
            server_assignments: self.server_assignments - earlier.server_assignments,
            transactions: self.transactions - earlier.transactions,
            queries: self.queries - earlier.queries,
            received: self.received - earlier.received,
            sent: self.sent - earlier.sent,
            transaction_ns: self.transaction_ns - earlier.transaction_ns,
            query_ns: self.query_ns - earlier.query_ns,
            wait_ns: self.wait_ns - earlier.wait_ns,
            waits_in_vain: self.waits_in_vain - earlier.waits_in_vain,
            client_parses: self.client_parses - earlier.client_parses,
            server_parses: self.server_parses - earlier.server_parses,
            answered_groups: self.answered_groups - earlier.answered_groups,
            binds: self.binds - earlier.binds,
            lends: self.lends - earlier.lends,
            pins: self.pins - earlier.pins,
            unseen: self.unseen - earlier.unseen,
            pins_for: std::array::from_fn(|at| self.pins_for[at] - earlier.pins_for[at]),
            slow_queries: self.slow_queries - earlier.slow_queries,
            evictions: self.evictions - earlier.evictions,
            internal_errors: self.internal_errors - earlier.internal_errors,
            still_waiting: self.still_waiting - earlier.still_waiting,
        }
    }
}

/// A row of SHOW PEER_POOLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerCounts {
    /// The peer's id.
    pub peer: u16,
    /// Requests that the peer has now.
    pub sent: u32,
    /// Requests with a connection that is being opened.
    pub connecting: u32,
    /// Requests that wait for their turn.
    pub waiting: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_wait_is_of_all_waits() {
        let stats = Stats {
            transactions: 1,
            waits_in_vain: 2,
            still_waiting: 1,
            wait_ns: 8_000_000,
            ..Stats::default()
        };
        assert!(stats.log_line(1).ends_with("wait 2000 us"));
        let twice = Stats {
            waits_in_vain: 4,
            ..stats
        };
        assert_eq!(twice.since(&stats).waits_in_vain, 2);
    }
}
