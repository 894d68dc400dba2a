//! The states of a client.

use std::sync::Arc;

use crate::auth::oauthbearer;
use crate::auth::oauthbearer::OauthLogin;
use crate::auth::{ClientLogin, Secret};
use crate::config::{Authority, IdentMap};
use crate::console::session::ConsoleSession;
use crate::ids::{ServerId, WorkerId};
use crate::limits;
use crate::pool::key::PoolId;
use howdah_wire::frame::HEADER;

/// The state of a client.
#[derive(Debug)]
pub enum ClientState {
    /// The client has connected. Its first packet is awaited.
    Startup,
    /// A TLS handshake is under way; the first packet comes after it.
    Handshake,
    /// Before its login, the client moves to another worker with the bytes that it has sent.
    Moving(WorkerId),
    /// Between two transactions, the client moves to another worker. The driver is detaching it.
    Leaving {
        /// The new worker.
        to: WorkerId,
        /// The client was waiting for a server.
        waits: bool,
    },
    /// The client asks the Broker for admission. The client has proved nothing yet, and is in no
    /// pool.
    Admission,
    /// Howdah looks up the client's user (`auth_query`), on a server of this pool.
    Lookup(PoolId),
    /// The client proves its identity.
    Login(Box<LoginAttempt>),
    /// The client has proved its identity. Its login does not know PostgreSQL's parameters yet: the
    /// first server of this pool will bring them.
    Welcome(PoolId),
    /// Logged in, not linked.
    Idle,
    /// The client has sent a message and waits for a server of this pool.
    Waiting(PoolId),
    /// Linked with a server. Howdah gives the server the client's parameters.
    Aligning(ServerId),
    /// Linked with a server.
    Linked(ServerId),
    /// The client uses the console.
    Console(Box<ConsoleSession>),
    /// The client has asked to cancel another client's query.
    Canceller,
    /// The client moves to the successor process.
    Packed(crate::parcel::Standing),
    /// A process that takes over. Its socket goes to the control thread.
    Successor,
    /// Howdah has requested `Close` for the client.
    Closing,
}

/// A login under way.
pub struct LoginAttempt {
    pub(super) proof: Proof,
    /// The user's secret from `auth_query`, for logins to PostgreSQL.
    pub(super) found: Option<Secret>,
}

/// How a client proves its identity.
pub enum Proof {
    /// By an exchange of messages that proves knowledge of a secret.
    Exchange {
        /// The exchange so far.
        exchange: Box<ClientLogin>,
        /// Kept while the control thread derives a key. Howdah holds the client's bytes meanwhile.
        deriving: Option<Arc<()>>,
    },
    /// By the operating-system user of the client's process. The control thread looks up the user's
    /// name. Howdah holds the client's bytes meanwhile.
    Peer(Option<Arc<IdentMap>>),
    /// By a password that a directory or PAM checks.
    Authority {
        /// The directory or PAM service.
        authority: Arc<Authority>,
        /// The client's password, while it is checked. Howdah holds the client's bytes meanwhile.
        password: Option<Arc<Secret>>,
    },
    /// By a token that the client shows by OAUTHBEARER.
    Oauth {
        /// The exchange so far.
        exchange: Box<OauthLogin>,
        /// Whose rules the token is checked by.
        authority: Arc<Authority>,
        /// The token, while it is checked. Howdah holds the client's bytes meanwhile.
        token: Option<Arc<Secret>>,
    },
}

impl LoginAttempt {
    /// The largest size of the client's next message, in bytes, with the header.
    pub(super) fn longest(&self) -> usize {
        match &self.proof {
            Proof::Exchange { exchange, .. } if !exchange.takes_password() => limits::PROOF,
            Proof::Oauth { .. } => HEADER + oauthbearer::LONGEST,
            _ => limits::PASSWORD_PACKET,
        }
    }

    /// True if Howdah waits for a message of the client.
    pub(super) fn listens(&self) -> bool {
        match &self.proof {
            Proof::Exchange { deriving, .. } => deriving.is_none(),
            Proof::Peer(_) => false,
            Proof::Authority { password, .. } => password.is_none(),
            Proof::Oauth { token, .. } => token.is_none(),
        }
    }
}

impl std::fmt::Debug for LoginAttempt {
    /// Secrets must not appear in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}
