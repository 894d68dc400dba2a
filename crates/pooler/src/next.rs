//! The steps that an event leads to, taken one after the other.
//!
//! ```text
//!   a server is given back -> the next client has it -> that client's messages go
//!           ^                                                      |
//!           `-------------- all of them are answered --------------'
//! ```
//!
//! A method that ends one thing does not call the method that begins the next. It notes the step, and the
//! router (`Pooler::go_on`) takes the step once the method has returned. So calls never run in a circle,
//! and no method finds a client or a server changed by its own calls.

use std::collections::VecDeque;

use crate::event::{ClientId, ServerId};

/// What is to be done before the event at hand is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// A client that has waited has a server now: what it has sent goes.
    Resume(ClientId),
    /// Bytes of a server are held that came behind what it was asked for before its link.
    Hear(ServerId),
    /// A server's client has left: the server is brought to rest.
    BringToRest(ServerId),
    /// The server that looked a client up is lost: the client is told, and leaves.
    TellLost(ClientId),
    /// A client that has waited for a lookup is looked up without one: somebody else has asked.
    LookUp(ClientId),
    /// A server that never had a socket is gone.
    Forget(ServerId),
}

/// Steps that are noted, the next one in front.
#[derive(Debug, Default)]
pub(crate) struct Upcoming {
    noted: VecDeque<Next>,
}

impl Upcoming {
    /// This follows.
    pub(crate) fn note(&mut self, step: Next) {
        self.noted.push_back(step);
    }

    /// Nothing follows.
    pub(crate) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    /// The next one.
    pub(crate) fn take(&mut self) -> Option<Next> {
        self.noted.pop_front()
    }
}
