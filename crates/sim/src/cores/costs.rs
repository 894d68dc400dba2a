//! What things take, in nanoseconds. Each figure comes from docs/benchmarks/2026-11-22.md (two
//! cores, `pgbench -S`, simple protocol, loopback TCP), or is said to be assumed.

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A worker wakes, handles the first event and goes to sleep again, beyond the event itself.
    /// Measured: a lone client's transaction is two such turns and costs 40 us (`busy_poll = 0`),
    /// against 13.7 us where nobody sleeps: half of the difference.
    pub wake: u64,
    /// A turn without sleep: one system call that submits and collects. Assumed.
    pub turn: u64,
    /// An event of a connection: received, decided, sent on, with the kernel's part. Measured: a
    /// transaction is two events and costs 13.7 us with 120 clients on one worker.
    pub event: u64,
    /// A mail to another worker is posted, and its eventfd written. Assumed, on the high side: such
    /// a system call that wakes somebody.
    pub post: u64,
    /// A mail is handled. Assumed: as an event without the kernel's part, by the decisions'
    /// instructions.
    pub mail: u64,
    /// A timer of the worker's. Assumed.
    pub tick: u64,
    /// Bytes go from one socket to another, and who sleeps there wakes. Assumed; with it and
    /// `postgres` a lone client's round trip is the 65 us that were measured without a pooler
    /// (15,400 transactions a second).
    pub hop: u64,
    /// PostgreSQL's own time for a transaction, on average.
    pub postgres: u64,
    /// PostgreSQL's time for a login: a process is started. Assumed.
    pub login: u64,
}

impl Costs {
    /// As measured.
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

    /// Everything takes so many times as long; logins do not.
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
