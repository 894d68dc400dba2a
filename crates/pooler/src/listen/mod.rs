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

/// A notification that the listener has heard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The process id of the server that has notified.
    pub pid: u32,
    /// The channel.
    pub channel: Name,
    /// The payload.
    pub payload: Box<[u8]>,
    /// Its number behind the mark of a takeover, or 0.
    pub number: u64,
}

impl Notification {
    /// Its approximate size in memory, in bytes, while it waits for a client.
    pub fn size(&self) -> usize {
        size_of::<Notification>() + self.channel.len() + self.payload.len()
    }
}

/// Messages to a listener's worker.
#[derive(Debug)]
pub enum ToListener {
    /// A client is about to listen to channels: [`FromListener::Hears`] answers.
    Hear(Box<Wish>),
    /// A client waits until the listener has heard everything committed by now:
    /// [`FromListener::Passed`] answers.
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
        /// The client is gone, and waits for nothing.
        ends: bool,
    },
    /// The process that we took over from hears these channels, and its clients arrive here after
    /// this mark.
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
    /// What the listening connection has to be like.
    pub demand: Requirements,
    /// What the client's pool knows of its user, for the listener's login.
    pub keys: Option<ScramKeys>,
    /// The same: the password.
    pub secret: Option<Secret>,
}

/// Messages from a listener's worker.
#[derive(Debug)]
pub enum FromListener {
    /// The client hears its channels from now on; or the reason why it can't.
    Hears(ClientId, Result<(), Refused>),
    /// These clients have been sent everything that was committed before they asked.
    Passed(Vec<ClientId>),
    /// A notification for these clients.
    Notified(Arc<Notification>, Vec<ClientId>),
    /// The listener is gone: its clients may have missed notifications.
    Lost(Vec<ClientId>),
    /// Clients that listen to nothing else can move to the successor; the number says how far they
    /// were told. Without a number no client can.
    Reached(Arc<Reach>, Option<u64>, Vec<ClientId>),
    /// A client that came from another process was sent what it has missed, and hears its channels
    /// from now on.
    Follows(ClientId),
}

/// Why the listener can't serve a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no listener, or the listener does not fit this client. The client listens on a
    /// server that it keeps.
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

/// The channels that two processes both hear.
#[derive(PartialEq, Eq, Debug)]
pub struct Reach {
    /// The mark behind which they number notifications.
    pub mark: u128,
    /// The channels.
    pub names: BTreeSet<Name>,
}

/// How far another process has sent notifications to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationPosition {
    /// The mark.
    pub mark: u128,
    /// The number of notifications behind the mark.
    pub number: u64,
}
