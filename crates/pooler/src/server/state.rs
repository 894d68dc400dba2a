//! The states of a server.

use std::sync::Arc;

use crate::auth::ServerLogin;
use crate::cancel::errand::Errand;
use crate::config::SecretSource;
use crate::ids::{ClientId, WorkerId};
use crate::known::Lookup;
use crate::login::key::{Parameter, Welcome};
use crate::reads::maturity::Maturity;
use crate::reads::naming::Naming;
use crate::roster::check::Examination;
use crate::shard::lore::CatalogueAnswer;

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
    /// The server asks its host for its role ([`crate::host_check`]).
    Examining(Box<Examination>),
    /// The server waits until it can serve reads ([`crate::reads`]).
    Maturing(Box<Maturity>),
    /// The server tells which functions of its database are volatile.
    Naming(Box<Naming>),
    /// The server tells the catalogue of its shard ([`crate::shard`]).
    Cataloguing(Box<CatalogueAnswer>),
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

/// A server is reserved for one client, which wants replication.
#[derive(Debug)]
pub struct Reservation {
    pub(super) client: ClientId,
    /// The reports from the login, until the client gets them.
    pub(super) welcome: Option<Welcome>,
}

impl Reservation {
    pub(super) fn of(client: ClientId) -> Box<Self> {
        let welcome = None;
        Box::new(Reservation { client, welcome })
    }
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
    /// The source of the password, and which of its values it is.
    pub(super) fetched: Option<(SecretSource, u64)>,
    /// The password is the second of two.
    pub(super) second: bool,
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
