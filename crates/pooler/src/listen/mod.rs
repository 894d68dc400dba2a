//! LISTEN by a connection that clients share (`listen = share`).
//!
//! ```text
//!   client ---- its worker ----- mail -----> the listener's worker ---- listening connection
//!               Channels:                    SharedListener:
//!               what the client listens to   which clients hear each channel; rounds
//! ```
//!
//! For each database and user, one server connection (the *listener*) listens for all clients, to each
//! channel once. A hash of the database and user names chooses the listener's worker. Other workers send mail
//! to the listener's worker. Mail keeps its order.
//!
//! **Which channels a client listens to** is PostgreSQL's decision. Before Howdah sends a text with LISTEN,
//! the listener listens to the text's channels, and the client becomes one of their hearers. So the client
//! misses no notification. Then the text runs unchanged on the client's server. At the end of the transaction
//! Howdah asks that server for its channels. From then on the client listens to exactly these channels,
//! through the listener. So rollbacks, savepoints and errors need no rules. Before another client gets the
//! server, the server stops listening. Notifications that arrive on the server meanwhile are dropped.
//!
//! A client may send several LISTENs at once. PostgreSQL would run them within a moment. Here each may take
//! some round trips, so the listener listens to all of their channels before the first one runs. From then
//! on notifications wait for the client until its LISTEN is committed.
//!
//! **Rounds.** A round is one Query to the listener. The Query has all LISTEN and UNLISTEN commands that are
//! due, and may be empty. One round is under way at a time; further commands wait for the next round. When
//! the round's ReadyForQuery arrives, the listener has received every notification that was committed before
//! the round was sent.
//!
//! **Order.** PostgreSQL first delivers to a session every notification committed before the session's
//! transaction ended, and then says that the session is idle. Howdah keeps this order: it holds back the idle
//! ReadyForQuery of a listening client until a later round has ended. Notifications that arrive during a
//! client's transaction wait for the transaction's end.
//!
//! **Listening alone.** If only PostgreSQL can say what becomes of a text (UNLISTEN in a transaction
//! block, `pg_listening_channels()`), the client's server listens to all of the client's channels from
//! then on, and the client keeps the server. The listener goes on to deliver; copies from the server are
//! dropped.
//!
//! **The end.** If the listener is lost or closed, or a successor has taken over, its clients are
//! disconnected between two transactions.

mod ahead;
mod channels;
mod connection;
mod hearing;
mod listener;
mod operator;
mod request;

#[cfg(test)]
mod tests;

pub use channels::{Channels, Heard, Hush, ListensAlone};
pub use listener::{RoundOutcome, SharedListener};

use std::sync::Arc;

use crate::event::{Address, ClientId, WorkerId};
use crate::login::key::LoginKey;
use crate::login::secrets::Secrets;

/// The name of a channel.
pub type Name = Box<[u8]>;

/// A client that hears a channel: its worker and its id.
pub type Hearer = (WorkerId, ClientId);

/// A notification that the listener has received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The process id of the session that ran NOTIFY.
    pub pid: u32,
    /// The channel.
    pub channel: Name,
    /// The payload.
    pub payload: Box<[u8]>,
}

impl Notification {
    /// The approximate size in memory, in bytes, while the notification waits for a client.
    pub fn size(&self) -> usize {
        size_of::<Notification>() + self.channel.len() + self.payload.len()
    }
}

/// Messages to a listener's worker.
#[derive(Debug)]
pub enum ToListener {
    /// A client is about to listen to channels: [`FromListener::Hears`] answers.
    Hear(Box<Wish>),
    /// A client waits until the listener has received every notification committed by now:
    /// [`FromListener::Passed`] answers.
    Pass {
        /// The listener.
        listener: Arc<LoginKey>,
        /// The client.
        hearer: Hearer,
    },
    /// The client no longer hears these channels. No answer.
    Leave {
        /// The listener.
        listener: Arc<LoginKey>,
        /// The client.
        hearer: Hearer,
        /// The channels.
        channels: Vec<Name>,
        /// The client is closed: the listener also drops the client's requests.
        ends: bool,
    },
}

/// A client is about to listen to channels.
#[derive(Debug)]
pub struct Wish {
    /// The listener.
    pub listener: Arc<LoginKey>,
    /// The client.
    pub hearer: Hearer,
    /// The channels.
    pub channels: Vec<Name>,
    /// What the listening connection must be like.
    pub demand: Requirements,
    /// What the client's login knows for the listener's login to PostgreSQL.
    pub secrets: Secrets,
}

/// Messages from a listener's worker.
#[derive(Debug)]
pub enum FromListener {
    /// The client hears its channels from now on; or the reason why not.
    Hears(ClientId, Result<(), Refused>),
    /// These clients have received every notification committed before their request.
    Passed(Vec<ClientId>),
    /// A notification for these clients.
    Notified(Arc<Notification>, Vec<ClientId>),
    /// The listener is lost: its clients may have missed notifications.
    Lost(Vec<ClientId>),
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

/// What a listening connection must be like to serve a client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Requirements {
    /// The address of the client's server: the listener must be connected to the same address.
    pub place: Option<Address>,
    /// The client's encoding.
    pub encoding: Option<Box<[u8]>>,
}
