//! Signals that clients send each other by SQL ([`SignalText`]): Howdah itself cancels or disconnects
//! the client. PostgreSQL does not know such process ids. They lie above [`HIGHEST_PID`], so no process
//! of PostgreSQL has one.

use std::sync::Arc;

pub use howdah_sql::signal::{HIGHEST_PID, SignalText};

/// A client's statement of this kind.
#[derive(Debug)]
pub(crate) struct SignalStatement {
    /// The client's name of the statement; `None` for a Query.
    pub(crate) name: Option<Box<[u8]>>,
    /// The text.
    pub(crate) text: SignalText,
    /// What became of the signal.
    pub(crate) sent: SignalSent,
}

/// What became of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SignalSent {
    /// The statement has not run, or is done.
    No,
    /// The workers are asked for the client with this process id.
    Asked(u32),
    /// A client with this process id got the signal; `false`: no client that may get it.
    Done(u32, bool),
}

/// A signal on its way to the worker of its client.
#[derive(Clone, Debug)]
pub struct Signal {
    /// The process id that the client was told.
    pub(crate) pid: u32,
    /// The client is disconnected. If false, its statement is cancelled.
    pub(crate) ends: bool,
    /// Who may get the signal.
    pub(crate) of: SameRole,
    /// An administrator sends the signal: clients of all users at the same server may get it.
    pub(crate) by_admin: bool,
}

/// The clients that are one role for PostgreSQL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SameRole {
    pub(crate) user: Arc<str>,
    pub(crate) host: Option<String>,
    pub(crate) port: u16,
}
