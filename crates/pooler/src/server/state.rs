//! The states of a server.

use std::sync::Arc;

use crate::auth::ServerLogin;
use crate::cancel::errand::Errand;
use crate::ids::{ClientId, WorkerId};
use crate::known::Lookup;
use crate::login::key::Parameter;
use crate::statement::Statement;

/// The state of a server.
#[derive(Debug)]
pub enum ServerState {
    /// The addresses of the host are being looked up.
    Resolving,
    /// The socket is being opened.
    Connecting,
    /// Howdah asks PostgreSQL for TLS, or a handshake is under way.
    Securing(Securing),
    /// Howdah logs in.
    Login(Box<ServerAttempt>),
    /// `connect_query` runs.
    ConnectQuery,
    /// In the pool, ready for use.
    Idle,
    /// The check query runs.
    Checking,
    /// Linked with a client. Howdah gives the server the client's parameters.
    Aligning(ClientId),
    /// Linked with a client.
    Linked(ClientId),
    /// The client has left. Howdah reads and drops the answers still owed.
    Draining,
    /// The reset query runs.
    Resetting,
    /// The server looks up a client's user.
    Lookup(Box<Lookup>),
    /// A listening connection ([`crate::listen`]).
    Listening {
        /// The first query runs. No client waits for its result.
        first: bool,
    },
    /// A cancel request for the server is under way. No client has the server.
    BeingCancelled,
    /// Moving to another worker.
    Lent(WorkerId),
    /// Moving to the successor process.
    Packed,
    /// Carries a CancelRequest.
    Cancel(Box<Errand>),
    /// Howdah has requested `Close` for the server.
    Closing,
}

/// How far a server has accepted its client's settings. PostgreSQL may refuse settings without a
/// fault of the client. Then Howdah tries again, at most twice:
///
/// ```text
///   First --refused, others' settings are there--> Refused --> Cleans --> Clean
///     |                                                                     |
///     `---- permission denied (42501), and the client has set a role -------+
///                                                                           v
///                                                               Denied --> Last
/// ```
///
/// An example of each. Another client ran `SET statement_timeout = 1`, and the commands that reset
/// its settings hit this timeout. `DISCARD ALL` without a timeout does not. Or this client ran `SET
/// ROLE admin` and then `SET log_statement = 'all'`. Howdah sets the role last, but only `admin`
/// may set `log_statement`. The second time, Howdah sets the role first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trial {
    /// PostgreSQL has refused nothing.
    #[default]
    First,
    /// PostgreSQL has refused, perhaps because of other clients' settings. `DISCARD ALL` is due.
    Refused,
    /// `DISCARD ALL` runs.
    Cleans,
    /// The server is clean, and gets the client's settings.
    Clean,
    /// A privilege was missing. Howdah will set the settings again, the role first.
    Denied,
    /// The server gets the client's settings, the role first. No further try follows.
    Last,
}

/// Whose sequence values (`currval`, `lastval`) a server has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// The console number of the client that used the server last; 0 for nobody since the server
    /// last forgot its values.
    pub last: u64,
    /// Values of other clients may be among them, or outdated ones of one that used another server
    /// since.
    pub mixed: bool,
    /// The same client also had the transaction before the current one.
    pub again: bool,
}

impl Numbers {
    /// Values of clients of which nothing is known.
    pub const OF_SOMEBODY: Numbers = Numbers {
        last: u64::MAX,
        mixed: true,
        again: false,
    };
}

impl Trial {
    /// True if the next step is due once PostgreSQL has answered.
    pub fn goes_on(self) -> bool {
        matches!(self, Trial::Refused | Trial::Cleans | Trial::Denied)
    }
}

/// The unnamed statement of a server.
#[derive(Clone, Debug)]
pub enum Unnamed {
    /// This one, or none.
    Known(Option<Arc<Statement>>),
    /// Unknown: the server is new here, or the statement must not be used by other clients.
    Unknown,
}

/// A login under way.
pub struct ServerAttempt {
    pub(super) exchange: ServerLogin,
    /// Kept while the control thread derives a key.
    pub(super) derives: Option<Arc<()>>,
    /// AuthenticationOk has come.
    pub(super) proven: bool,
    /// All ParameterStatus messages so far.
    pub(super) parameters: Vec<Parameter>,
    /// The size of `parameters`, in bytes.
    pub(super) size: usize,
}

impl std::fmt::Debug for ServerAttempt {
    /// Secrets must not appear in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerAttempt")
    }
}

/// The steps between the open socket and the login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Securing {
    /// Howdah asks the control thread which operating-system user runs the server (`requirepeer`).
    Peer,
    /// SSLRequest was sent. Its one-byte answer is awaited.
    Asked,
    /// The handshake is under way.
    Handshake,
}
