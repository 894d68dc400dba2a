//! Ids of clients, servers and workers, and points in time.

/// A point in time, in nanoseconds since an origin that the daemon (or the simulator) chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

/// Names a client: a slot of the worker's table, and how often the slot was used before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId {
    /// Dense: usable as an index into a table.
    pub index: u32,
    /// Differs between two clients that used the same slot.
    pub generation: u32,
}

/// Names a connection from Howdah to PostgreSQL (or a peer): a server, or a carrier of a cancel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId {
    /// Dense: usable as an index into a table.
    pub index: u32,
    /// Differs between two servers that used the same slot.
    pub generation: u32,
}

/// Names a worker's connection of either kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Peer {
    /// An application's connection to Howdah.
    Client(ClientId),
    /// Howdah's connection to PostgreSQL.
    Server(ServerId),
}

/// Names a worker; workers are numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId(pub u16);
