//! Durations for each pool and worker: histograms with few fixed buckets, which can be summed over
//! workers, pools and processes.

/// The bounds are powers of two. The first bucket ends at 2^17 ns (131 us).
const FIRST_BIT: u32 = 17;

/// The number of buckets with an upper bound. The last of them ends at 2^36 ns (69 s).
pub const BOUNDS: usize = 20;

/// Counts by duration. The last bucket counts durations above every bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    counts: [u64; BOUNDS + 1],
}

impl Histogram {
    /// Counts a duration in nanoseconds.
    ///
    /// Every transaction calls this function: no loop, no division, one addition in memory.
    #[inline]
    pub fn count(&mut self, ns: u64) {
        let bits = u64::BITS - (ns >> FIRST_BIT).leading_zeros();
        self.counts[(bits as usize).min(BOUNDS)] += 1;
    }

    /// The upper bound of a bucket, in nanoseconds. The bucket counts durations below it.
    pub fn bound(bucket: usize) -> u64 {
        1 << (FIRST_BIT as usize + bucket)
    }

    /// The counts by bucket.
    pub fn counts(&self) -> &[u64; BOUNDS + 1] {
        &self.counts
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Counts durations of about zero, which were not measured.
    pub fn add_instant(&mut self, count: u64) {
        self.counts[0] += count;
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }
}

/// How clients and servers of a pool spent their time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Waits for a server. Clients that got one at once count only in
    /// [`crate::stats::Stats::server_assignments`].
    pub wait: Histogram,
    /// From a request to the ReadyForQuery that ends it.
    pub query: Histogram,
    /// From a transaction's first message to its end.
    pub transaction: Histogram,
    /// From a client's connection to the end of its login.
    pub login: Histogram,
    /// From a server's connection to its readiness.
    pub connect: Histogram,
    /// The total duration of logins, in nanoseconds.
    pub login_ns: u64,
    /// The total time until servers were ready, in nanoseconds.
    pub connect_ns: u64,
    /// Failed connections and logins to PostgreSQL.
    pub connect_failures: u64,
}

impl Times {
    /// All waits for a server, including those of clients that got one at once: `assignments` is how
    /// often a client got a server, and `in_vain` how many of the measured waits no server ended.
    pub fn all_waits(&self, assignments: u64, in_vain: u64) -> Histogram {
        let mut waits = self.wait;
        let measured = waits.total().saturating_sub(in_vain);
        waits.add_instant(assignments.saturating_sub(measured));
        waits
    }

    /// Counts the login of a client.
    pub fn count_login(&mut self, ns: u64) {
        self.login.count(ns);
        self.login_ns += ns;
    }

    /// Counts the connection of a server.
    pub fn count_connect(&mut self, ns: u64) {
        self.connect.count(ns);
        self.connect_ns += ns;
    }

    /// Adds other times.
    pub fn add(&mut self, other: &Times) {
        self.wait.add(&other.wait);
        self.query.add(&other.query);
        self.transaction.add(&other.transaction);
        self.login.add(&other.login);
        self.connect.add(&other.connect);
        self.login_ns += other.login_ns;
        self.connect_ns += other.connect_ns;
        self.connect_failures += other.connect_failures;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_below_the_next_bound() {
        for (ns, bucket) in [
            (0, 0),
            (Histogram::bound(0) - 1, 0),
            (Histogram::bound(0), 1),
            (Histogram::bound(1) - 1, 1),
            (Histogram::bound(BOUNDS - 1) - 1, BOUNDS - 1),
            (Histogram::bound(BOUNDS - 1), BOUNDS),
            (u64::MAX, BOUNDS),
        ] {
            let mut histogram = Histogram::default();
            histogram.count(ns);
            let seen = histogram.counts().iter().position(|count| *count == 1);
            assert_eq!(seen, Some(bucket), "{ns}");
        }
    }

    #[test]
    fn histograms_add_up() {
        let (mut one, mut other) = (Times::default(), Times::default());
        one.count_login(1_000_000);
        other.count_login(3_000_000);
        other.query.count(5);
        other.query.add_instant(2);
        one.add(&other);
        assert_eq!((one.login.total(), one.login_ns), (2, 4_000_000));
        assert_eq!(one.query.total(), 3);
    }
}
