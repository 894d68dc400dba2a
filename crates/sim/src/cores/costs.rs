//! The duration of each operation, in nanoseconds. Each figure was measured on two cores on 22
//! November 2026 (`pgbench -S`, simple protocol, loopback TCP), or is marked as assumed.

/// The durations.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A worker wakes for an event and goes to sleep again, without the event itself. Measured: a
    /// lone client's transaction is two such turns and costs 40 us (`busy_poll = 0`), against 13.7
    /// us without sleep. This is half of the difference.
    pub wake: u64,
    /// A turn without sleep: one system call that submits and collects. Assumed.
    pub turn: u64,
    /// An event of a connection: received, decided, sent on, with the kernel's part. Measured: a
    /// transaction is two events, and costs 13.7 us with 120 clients on one worker.
    pub event: u64,
    /// Posting a mail to another worker, and writing its eventfd. Assumed, on the high side: a
    /// system call that wakes a thread.
    pub post: u64,
    /// Handling a mail. Assumed: as an event without the kernel's part, by the count of the
    /// decisions' instructions.
    pub mail: u64,
    /// A timer of a worker. Assumed.
    pub tick: u64,
    /// Bytes go from one socket to another, and a sleeping receiver wakes. Assumed. Together with
    /// `postgres`, a lone client's round trip takes the 65 us that were measured without a pooler
    /// (15,400 transactions per second).
    pub hop: u64,
    /// PostgreSQL's time for a transaction, on average.
    pub postgres: u64,
    /// PostgreSQL's time for a login, which starts a process. Assumed.
    pub login: u64,
}

impl Costs {
    /// The durations as measured.
    pub const MEASURED: Costs = Costs {
        wake: 13_000,
        turn: 2_000,
        event: 6_800,
        post: 5_000,
        mail: 2_000,
        tick: 1_000,
        hop: 10_000,
        postgres: 45_000,
        login: 3_000_000,
    };

    /// All durations multiplied by `times`, except logins.
    pub fn slower(self, times: u64) -> Costs {
        Costs {
            wake: times * self.wake,
            turn: times * self.turn,
            event: times * self.event,
            post: times * self.post,
            mail: times * self.mail,
            tick: times * self.tick,
            hop: times * self.hop,
            postgres: times * self.postgres,
            login: self.login,
        }
    }
}
