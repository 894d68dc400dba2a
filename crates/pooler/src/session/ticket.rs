//! The Broker's permission for a client to keep a server ([`crate::session`]).

use std::sync::Arc;

use crate::pool::key::PoolKey;

/// A client's request to the Broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The request's number, unique on the worker.
    pub(super) number: u64,
    /// The client's pool.
    pub(super) pool: Arc<PoolKey>,
    /// The Broker's answer.
    pub(super) state: Permission,
}

/// The state of a request for permission to keep a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Permission {
    /// The Broker has not answered.
    Asked,
    /// The client may keep a server.
    Held,
    /// The client must not keep a server. Its statement is yet to be refused.
    Refused,
}

impl Ticket {
    /// The Broker has given permission.
    pub(super) fn is_held(&self) -> bool {
        self.state == Permission::Held
    }

    /// The Broker has not answered.
    pub(super) fn is_asked(&self) -> bool {
        self.state == Permission::Asked
    }
}
