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
    /// It has connected; its first packet is awaited.
    Startup,
    /// A TLS handshake is under way; the first packet comes after it.
    Handshake,
    /// It is moving to another worker before its login, with the bytes that it has sent.
    Moving(WorkerId),
    /// It is moving to another worker between two transactions: the driver is detaching it.
    Leaving {
        /// Which worker.
        to: WorkerId,
        /// It was waiting for a server.
        waits: bool,
    },
    /// Its user is being looked up (`auth_query`).
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
    /// It is on its way to the successor process.
    Packed(crate::parcel::Standing),
    /// A process that takes over; its socket goes to the control thread.
    Successor,
    /// `Close` was requested for it.
    Closing,
}

/// A login under way.
pub struct LoginAttempt {
    pub(super) proof: Proof,
    /// The user's secret from `auth_query`, for logins to PostgreSQL.
    pub(super) found: Option<Secret>,
}

/// How a client proves who it is.
pub enum Proof {
    /// By an exchange of messages: it knows a secret.
    Exchange {
        /// The exchange so far.
        exchange: Box<ClientLogin>,
        /// Held while the control thread derives a key. Bytes that the client sends meanwhile are
        /// held.
        deriving: Option<Arc<()>>,
    },
    /// By the system user that it runs as. The control thread looks the name up; bytes that the
    /// client sends meanwhile are held.
    Peer(Option<Arc<IdentMap>>),
    /// By a password that a directory or PAM checks.
    Authority {
        /// The directory or PAM service.
        authority: Arc<Authority>,
        /// The client's password, while it is being checked. Bytes that the client sends meanwhile
        /// are held.
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
