//! LISTEN by a connection that clients share (`listen = share`).
//!
//! ```text
//!   client ---- its worker ----- mail -----> the listener's worker ---- listening connection
//!               Channels:                    SharedListener:
//!               what the client listens to   which clients hear each channel; rounds
//! ```
//!
//! For each database and user one server connection (the *listener*) listens for all clients, to each
//! channel once. The database's name determines the listener's worker. Other workers reach it by mail,
//! which keeps its order.
//!
//! **Which channels a client listens to** is PostgreSQL's decision. Before a text with LISTEN runs, the
//! listener listens to the text's channels, and the client becomes one of their hearers, so that it misses
//! nothing. Then the text runs unchanged on the client's server. At the end of the transaction Howdah asks
//! that server for its channels; the client listens to these from then on, by the listener. So rollbacks,
//! savepoints and errors need no rules. Before another client gets the server, it stops listening, and
//! notifications that arrive on it meanwhile are dropped.
//!
//! **Rounds.** All LISTEN and UNLISTEN commands for the listener go there in one Query, which may also be
//! empty. One round is under way at a time; further commands wait for the next round. When a round's
//! ReadyForQuery has come, the listener has heard everything that was committed before the round was sent.
//!
//! **Order.** PostgreSQL delivers to a session everything that was committed before the session's
//! transaction ended, and only then says that the session is idle. So Howdah holds back the idle
//! ReadyForQuery of a client that listens, until a round has ended that began after it. Notifications that
//! arrive during a client's transaction wait for its end.

mod change;
mod channels;
mod hearing;
mod heritage;
mod listener;
mod operator;
mod travel;

#[cfg(test)]
mod tests;

pub use channels::{Channels, Heard, Hush};
pub use listener::{RoundOutcome, SharedListener};

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::auth::{ScramKeys, Secret};
use crate::event::{Address, ClientId, WorkerId};
use crate::pool::key::PoolKey;

/// The name of a channel.
pub type Name = Box<[u8]>;

/// A client that hears a channel, wherever it is.
pub type Hearer = (WorkerId, ClientId);

/// What the listener has heard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Of the server that has notified.
    pub pid: u32,
    /// The channel.
    pub channel: Name,
    /// What was said.
    pub payload: Box<[u8]>,
    /// Its number behind the mark of a takeover, or 0.
    pub number: u64,
}

impl Notification {
    /// What it takes while it waits for a client, in bytes, about.
    pub fn size(&self) -> usize {
        size_of::<Notification>() + self.channel.len() + self.payload.len()
    }
}

/// What the worker of a listener is told.
#[derive(Debug)]
pub enum ToListener {
    /// A client is about to listen to channels: [`FromListener::Hears`] answers.
    Hear(Box<Wish>),
    /// A client has to know that all is heard that was committed by now: [`FromListener::Passed`]
    /// answers.
    Pass {
        /// Which listener.
        listener: Arc<PoolKey>,
        /// Who.
        hearer: Hearer,
    },
    /// A client listens to these channels no longer. No answer.
    Leave {
        /// Which listener.
        listener: Arc<PoolKey>,
        /// Who.
        hearer: Hearer,
        /// Which channels.
        channels: Vec<Name>,
        /// It is gone: nor does it wait for anything.
        ends: bool,
    },
    /// The process that we took over from hears this, and clients come from there behind this mark.
    Inherit(Box<Wish>, u128),
}

/// A client is about to listen to channels.
#[derive(Debug)]
pub struct Wish {
    /// Which listener.
    pub listener: Arc<PoolKey>,
    /// Who.
    pub hearer: Hearer,
    /// Which channels.
    pub channels: Vec<Name>,
    /// What the connection has to be.
    pub demand: Requirements,
    /// What the client's pool knows of its user, for the listener's login.
    pub keys: Option<ScramKeys>,
    /// Likewise.
    pub secret: Option<Secret>,
}

/// What a listener's worker tells.
#[derive(Debug)]
pub enum FromListener {
    /// A client hears its channels from now on, or why it can't.
    Hears(ClientId, Result<(), Refused>),
    /// All was told that was committed before it was asked.
    Passed(Vec<ClientId>),
    /// It was notified.
    Notified(Arc<Notification>, Vec<ClientId>),
    /// The listener is gone: nobody knows what was missed.
    Lost(Vec<ClientId>),
    /// Who listens to nothing else can leave for another process, where it has been told so much. No
    /// number: nobody can.
    Reached(Arc<Reach>, Option<u64>, Vec<ClientId>),
    /// A client that has come from another process was told what it has missed, and hears its
    /// channels.
    Follows(ClientId),
}

/// Why a client can't hear by the listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no listener, or it is no use to this client: the client listens on a server of its
    /// own.
    Unfit,
    /// There are too many channels.
    TooMany,
}

/// What a listening connection has to be, to be of use to a client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Requirements {
    /// Where the client's server is.
    pub place: Option<Address>,
    /// The client's encoding.
    pub encoding: Option<Box<[u8]>>,
    /// How far the client was told by another process: it has to be told from there on.
    pub after: Option<NotificationPosition>,
}

/// What two processes hear.
#[derive(PartialEq, Eq, Debug)]
pub struct Reach {
    /// The mark from which on they count.
    pub mark: u128,
    /// The channels.
    pub names: BTreeSet<Name>,
}

/// How far a client was told by another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationPosition {
    /// The mark.
    pub mark: u128,
    /// How many notifications behind the mark.
    pub number: u64,
}
