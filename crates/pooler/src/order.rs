//! An administrator's orders to the whole process.

/// An administrator's order to the whole process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Give no server out; close idle ones. Of one database, or all.
    Pause(Option<String>),
    /// Undo a pause.
    Resume(Option<String>),
    /// Stop reading from all connections, and hand all queued output to the kernel.
    Suspend,
    /// A successor takes over: bring every link to its end, give out no server.
    HandOver {
        /// Clients' TLS sessions can travel, too. A later round of the same takeover allows no more
        /// than the first.
        tls: bool,
    },
    /// Undo `Suspend`.
    Unsuspend,
    /// The takeover has failed: go on as before.
    GiveUp,
    /// Send the successor everything that is at rest.
    Pack,
    /// The successor has everything that was sent: serve the clients that stayed until they leave,
    /// then end.
    Drain,
    /// Close servers, each when it is given back. Of one database, or all.
    Reconnect(Option<String>),
    /// Take no new clients for a database.
    Disable(String),
    /// Take them again.
    Enable(String),
    /// Drop all clients and servers of a database, or of all that have any, and leave it paused.
    Kill(Option<String>),
    /// Take no new clients; end when the last client leaves.
    ShutdownWaitForClients,
    /// Take no new clients, drop waiting ones; end when the last server is released.
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
