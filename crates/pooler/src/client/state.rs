//! The states of a client.

use std::sync::Arc;

use crate::auth::{ClientLogin, Secret};
use crate::config::{Authority, IdentMap};
use crate::console::session::ConsoleSession;
use crate::ids::{ServerId, WorkerId};
use crate::limits;

/// What a client is doing.
#[derive(Debug)]
pub enum ClientState {
    /// Its first packet is awaited.
    Startup,
    /// A TLS handshake is under way; its first packet is awaited behind that.
    Handshake,
    /// It is on its way to another worker, with what it has sent.
    Moving(WorkerId),
    /// The driver lets go of it: it goes on at another worker, between two transactions.
    Leaving {
        /// Which worker.
        to: WorkerId,
        /// It stood in its pool's line.
        waits: bool,
    },
    /// PostgreSQL is asked who its user is.
    Lookup,
    /// It proves who it is.
    Login(Box<LoginAttempt>),
    /// It has proved who it is; the pool does not know PostgreSQL's parameters yet.
    Welcome,
    /// Logged in, not linked.
    Idle,
    /// It has sent something and waits for a server.
    Waiting,
    /// Bound to a server whose parameters are being set to the client's.
    Aligning(ServerId),
    /// Bound to a server.
    Linked(ServerId),
    /// It talks to the console.
    Console(Box<ConsoleSession>),
    /// It asked to cancel another client's query.
    Canceller,
    /// On its way to our successor, as it was.
    Packed(crate::parcel::Standing),
    /// A process that takes over; its socket goes to the control thread.
    Successor,
    /// Its `Close` was asked for.
    Closing,
}

/// A login under way.
pub struct LoginAttempt {
    pub(super) proof: Proof,
    /// What auth_query told of the user, for logins to PostgreSQL.
    pub(super) found: Option<Secret>,
}

/// How a client proves who it is.
pub enum Proof {
    /// By what it knows.
    Exchange {
        /// So far.
        exchange: Box<ClientLogin>,
        /// The control thread derives a key, as long as this is held; what the client sends meanwhile
        /// is held.
        deriving: Option<Arc<()>>,
    },
    /// By the system's user it runs as, whom the control thread names. What the client sends
    /// meanwhile is held.
    Peer(Option<Arc<IdentMap>>),
    /// By a password that somebody else knows.
    Authority {
        /// Who.
        authority: Arc<Authority>,
        /// What the client has sent: it is asked about. What the client sends meanwhile is held.
        password: Option<Arc<Secret>>,
    },
}

impl LoginAttempt {
    /// How long the client's next message may be, in bytes, its header included.
    pub(super) fn longest(&self) -> usize {
        match &self.proof {
            Proof::Exchange { exchange, .. } if !exchange.takes_password() => limits::PROOF,
            _ => limits::PASSWORD_PACKET,
        }
    }

    /// It is the client's turn.
    pub(super) fn listens(&self) -> bool {
        match &self.proof {
            Proof::Exchange { deriving, .. } => deriving.is_none(),
            Proof::Peer(_) => false,
            Proof::Authority { password, .. } => password.is_none(),
        }
    }
}

impl std::fmt::Debug for LoginAttempt {
    /// Secrets don't belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}
