//! The Broker's permission for a client to keep a server ([`crate::session`]).

use std::sync::Arc;

use crate::pool::key::PoolKey;

/// What a client has asked the Broker for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// Which: one of the worker's.
    pub(super) number: u64,
    /// In which pool.
    pub(super) pool: Arc<PoolKey>,
    /// What came of it.
    pub(super) state: Leave,
}

/// What came of a question for leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leave {
    /// The Broker has not answered.
    Asked,
    /// It may keep a server.
    Held,
    /// It must not; its statement is yet to be refused.
    Refused,
}

impl Ticket {
    /// The Broker has given leave.
    pub(super) fn is_held(&self) -> bool {
        self.state == Leave::Held
    }

    /// The Broker has not answered.
    pub(super) fn is_asked(&self) -> bool {
        self.state == Leave::Asked
    }
}
