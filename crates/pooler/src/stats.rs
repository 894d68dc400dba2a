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
    /// Parses from clients.
    pub client_parses: u64,
    /// Parses to servers.
    pub server_parses: u64,
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
        self.client_parses += other.client_parses;
        self.server_parses += other.server_parses;
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
    }

    /// PgBouncer's log line about the counts in this many seconds.
    pub fn log_line(&self, seconds: u64) -> String {
        let per = |total: u64, count: u64| total.checked_div(count).unwrap_or(0) / 1000;
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
            per(self.wait_ns, self.transactions),
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
            client_parses: self.client_parses - earlier.client_parses,
            server_parses: self.server_parses - earlier.server_parses,
            binds: self.binds - earlier.binds,
            lends: self.lends - earlier.lends,
            pins: self.pins - earlier.pins,
            unseen: self.unseen - earlier.unseen,
            pins_for: std::array::from_fn(|at| self.pins_for[at] - earlier.pins_for[at]),
            slow_queries: self.slow_queries - earlier.slow_queries,
            evictions: self.evictions - earlier.evictions,
            internal_errors: self.internal_errors - earlier.internal_errors,
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
