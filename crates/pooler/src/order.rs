//! An administrator's orders to the whole process.

/// An administrator's order to the whole process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Give out no server, and close idle ones. Of one database, or all.
    Pause(Option<String>),
    /// Undo a pause.
    Resume(Option<String>),
    /// Stop reading from all connections, and hand all queued output to the kernel.
    Suspend,
    /// A successor takes over: let every link end, give out no server.
    HandOver {
        /// TLS sessions of clients can travel, too. A later round of the same takeover allows no
        /// more than the first.
        tls: bool,
    },
    /// Undo `Suspend`.
    Unsuspend,
    /// The takeover has failed: continue as before.
    GiveUp,
    /// Send all connections at rest to the successor.
    Pack,
    /// The successor has received everything: serve the remaining clients until they leave, then
    /// end.
    Drain,
    /// Close each server when it is released. Of one database, or all.
    Reconnect(Option<String>),
    /// Take no new clients for a database.
    Disable(String),
    /// Undo `Disable`.
    Enable(String),
    /// Drop all clients and servers of a database (or of all that have any), and pause it.
    Kill(Option<String>),
    /// Move each client at rest to a random worker, for tests.
    Shuffle,
    /// Take no new clients, and end all others behind their transactions, spread over a time. End when the
    /// last client leaves.
    EndClients {
        /// The time, in nanoseconds.
        over: u64,
    },
    /// Take no new clients; end when the last client leaves.
    ShutdownWaitForClients,
    /// Take no new clients, and drop waiting ones. End when the last server is released.
    ShutdownWaitForServers,
}

/// How the process is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// When the last client has left.
    Clients,
    /// When the last server is free.
    Servers,
}
