//! The states of a server.

use std::sync::Arc;

use crate::auth::ServerLogin;
use crate::cancel::errand::Errand;
use crate::ids::{ClientId, WorkerId};
use crate::known::Lookup;
use crate::pool::key::Parameter;
use crate::statement::Statement;

/// What a server is doing.
#[derive(Debug)]
pub enum ServerState {
    /// Its host's addresses are being looked up.
    Resolving,
    /// The socket is being opened.
    Connecting,
    /// PostgreSQL is asked for TLS, or a handshake is under way.
    Securing(Securing),
    /// Howdah logs in.
    Login(Box<Login>),
    /// `connect_query` runs.
    ConnectQuery,
    /// In the pool, ready.
    Idle,
    /// In the pool, and idle for so long that it must be tested before use.
    Used,
    /// The check query runs.
    Checking,
    /// Bound to a client; its parameters are being set.
    Aligning(ClientId),
    /// Bound to a client.
    Linked(ClientId),
    /// Its client has left. Answers that it owes are read and dropped.
    Draining,
    /// The reset query runs.
    Resetting,
    /// It looks a client's user up.
    Lookup(Box<Lookup>),
    /// It listens for clients ([`crate::listen`]).
    Listening {
        /// Its first query runs, which nobody waits for.
        first: bool,
    },
    /// A cancel for it is under way; no client has it.
    BeingCancelled,
    /// On its way to another worker.
    Lent(WorkerId),
    /// On its way to our successor.
    Packed,
    /// Carries a CancelRequest.
    Cancel(Box<Errand>),
    /// Its `Close` was asked for.
    Closing,
}

/// How far a server is with its client's settings. PostgreSQL may refuse to set them, which need not
/// be the client's fault. Then Howdah tries again, at most twice:
///
/// ```text
///   First --refused, others' settings are there--> Refused --> Cleans --> Clean
///     |                                                                     |
///     `---- permission denied (42501), and the client has set a role -------+
///                                                                           v
///                                                               Denied --> Last
/// ```
///
/// An example of each. Another client ran `SET statement_timeout = 1`, and what takes its settings back
/// runs into that: `DISCARD ALL` without a timeout does not. This client ran `SET ROLE admin` and then
/// `SET log_statement = 'all'`. Howdah sets the role behind the other settings, but `log_statement` only
/// `admin` may set: the second time the role is set first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trial {
    /// PostgreSQL has refused nothing.
    #[default]
    First,
    /// PostgreSQL has refused, perhaps because of other clients' settings: `DISCARD ALL` is due.
    Refused,
    /// `DISCARD ALL` runs.
    Cleans,
    /// The server was cleaned, and gets the client's settings.
    Clean,
    /// PostgreSQL has refused for lack of a privilege: the settings are due again, the role first.
    Denied,
    /// The server gets the client's settings, the role first. There is no further try.
    Last,
}

/// Which client's values of sequences (`currval`, `lastval`) a server has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Numbers {
    /// No client has asked for values since they were last forgotten.
    #[default]
    Nobody,
    /// Values of the client with this console number.
    Of(u64),
    /// Values of several clients, or older ones of one client that has been elsewhere since.
    Several {
        /// The console number of the last one.
        last: u64,
        /// The transaction before the one under way was the client's, too.
        again: bool,
    },
}

impl Trial {
    /// The next try, or a step towards it, is due once PostgreSQL has answered.
    pub fn goes_on(self) -> bool {
        matches!(self, Trial::Refused | Trial::Cleans | Trial::Denied)
    }
}

/// Which unnamed statement a server has.
#[derive(Clone, Debug)]
pub enum Unnamed {
    /// This one, or none.
    Known(Option<Arc<Statement>>),
    /// Not known: the server is new here, or the statement was parsed in a way that no other client
    /// may use.
    Unknown,
}

/// A login under way.
pub struct Login {
    pub(super) exchange: ServerLogin,
    /// Held while the control thread derives a key.
    pub(super) derives: Option<Arc<()>>,
    /// AuthenticationOk has come.
    pub(super) proven: bool,
    /// Every ParameterStatus so far.
    pub(super) parameters: Vec<Parameter>,
    /// Their size, in bytes.
    pub(super) size: usize,
}

impl std::fmt::Debug for Login {
    /// Secrets don't belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

/// The steps between the open socket and the login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Securing {
    /// The control thread is asked for the system user that runs the server (`requirepeer`).
    Peer,
    /// SSLRequest is sent, one byte is awaited.
    Asked,
    /// The handshake is under way.
    Handshake,
}
