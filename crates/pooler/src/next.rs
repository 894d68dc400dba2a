//! The steps that an event leads to, taken one after the other.
//!
//! ```text
//!   a server is given back -> the next client has it -> that client's messages go
//!           ^                                                      |
//!           `-------------- all of them are answered --------------'
//! ```
//!
//! A method that ends one thing does not call the method that begins the next. It notes the step,
//! and the router (`Pooler::go_on`) takes the step once the method has returned. So calls never
//! form a circle, and no method finds that its own calls have changed a client or a server.

use std::collections::VecDeque;

use crate::event::{ClientId, ServerId, Time};
use crate::login::key::LoginId;
use crate::pool::key::PoolId;
use crate::reads::guard::Sqlstate;

/// A step to take before the current event is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// A waiting client now has a server: its messages are sent.
    Resume(ClientId),
    /// Handle a server's held bytes, which came after the answers needed before the link.
    Hear(ServerId),
    /// A server's client has left: the server must become idle.
    BringToRest(ServerId),
    /// A client that listens is idle: it is told what waits for it.
    Tell(ClientId),
    /// The server of a client's look-up is lost: disconnect the client with an error.
    TellLost(ClientId),
    /// A waiting client's look-up needs no server: another client has asked for the same user.
    LookUp(ClientId),
    /// A server without a socket is gone.
    Forget(ServerId),
    /// A server can serve reads now, or need not: its pool can use it.
    Matured(ServerId),
    /// The clients that wait in a pool for reads go elsewhere.
    RouteWaiting(PoolId),
    /// A client of a sharded database, which has waited since then, is placed.
    Place(ClientId, Time),
    /// A client's read waits for a standby that has come further.
    AwaitRound(ClientId),
    /// A standby has refused a client's read with this SQLSTATE: the read runs again at the primary.
    ReadAgain(ClientId, ServerId, Sqlstate),
    /// A server is there to tell the catalogue of its shard.
    ReadCatalogue(ServerId),
    /// A pool's clients are waiting, or its shard's catalogue: it serves them, or needs a server.
    Need(PoolId),
    /// A client that must end has ended its transaction.
    Over(ClientId),
    /// A login needs the names of its database's volatile functions, from this server if it is idle.
    AskVolatile(LoginId, Option<ServerId>),
}

/// Noted steps, the next one in front.
#[derive(Debug, Default)]
pub(crate) struct Upcoming {
    noted: VecDeque<Next>,
}

impl Upcoming {
    /// Notes a step.
    pub(crate) fn note(&mut self, step: Next) {
        self.noted.push_back(step);
    }

    /// True if there is no step.
    pub(crate) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    /// Takes the next step.
    pub(crate) fn take(&mut self) -> Option<Next> {
        self.noted.pop_front()
    }
}
