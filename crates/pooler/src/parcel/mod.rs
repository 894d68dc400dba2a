//! The data that a successor process takes over: connections at rest with all their state, and the
//! state of the process. [`code`] writes and reads the data as bytes, in a versioned format.

pub mod code;
#[cfg(test)]
mod code_tests;

use std::sync::Arc;

use howdah_wire::backend::Status;

use crate::auth::{ScramKeys, Secret};
use crate::cancel::OldKey;
use crate::config::Address;
use crate::ids::{Time, WorkerId};
use crate::params::{Meaning, Params};
use crate::place::Ends;
use crate::pool::key::{PoolKey, Welcome};
use crate::socket::LooseSocket;
use crate::statement::{Named, Shape, Statement};
use crate::tls::TlsFacts;

/// The version of the format, and of the behaviour that both processes must share.
pub const VERSION: u32 = 8;

/// Everything that a successor takes over.
#[derive(Debug)]
pub struct Freight {
    /// The state of the process.
    pub estate: Estate,
    /// The listening sockets.
    pub listeners: Vec<(Address, LooseSocket)>,
    /// Everything else, by worker; pools come before their servers and clients.
    pub parcels: Vec<(WorkerId, Parcel)>,
}

/// The state of a process, apart from its connections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Estate {
    /// [`crate::cancel::Keys::lasting`].
    pub lasting: [u8; 32],
    /// [`crate::statement::Interner::changed_schemas`].
    pub schemas: Vec<(String, u64)>,
    /// The last number that the console has given to a connection.
    pub last_number: u64,
    /// The disabled databases (DISABLE).
    pub disabled: Vec<String>,
    /// The names of tracked parameters, by position.
    pub tracked: Vec<String>,
}

/// One piece of freight.
#[derive(Debug)]
pub enum Parcel {
    /// The state of a pool.
    Pool(Box<PoolLore>),
    /// A server at rest.
    Server {
        /// The server, in the form that also travels between workers.
        parcel: Box<ServerParcel>,
        /// [`crate::config::Database::fingerprint`] of the server's database.
        database: [u8; 32],
    },
    /// A client at rest.
    Client(Box<Passenger>),
}

/// The state of a pool.
#[derive(Clone, Debug)]
pub struct PoolLore {
    /// The name of the pool.
    pub key: Arc<PoolKey>,
    /// [`crate::config::Database::fingerprint`].
    pub database: [u8; 32],
    /// The parameters that PostgreSQL reported at the last login.
    pub welcome: Option<Welcome>,
    /// SCRAM keys for logins to PostgreSQL.
    pub scram_keys: Option<ScramKeys>,
    /// The secret for logins to PostgreSQL.
    pub found_secret: Option<Secret>,
    /// For the pool of a listening connection: the channels that the successor must listen to.
    pub bequest: Option<Arc<Bequest>>,
}

/// The channels that the successor's listening connection must listen to (`listen/heritage.rs`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bequest {
    /// The mark that the successor sends once it listens.
    pub mark: u128,
    /// The channels.
    pub names: Vec<Box<[u8]>>,
    /// The encoding of the channels' names.
    pub encoding: Option<Box<[u8]>>,
}

/// The state of a client whose channels a listening connection hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hearing {
    /// The listening connection.
    pub listener: Arc<PoolKey>,
    /// The channels.
    pub names: Vec<Box<[u8]>>,
    /// The encoding of the names for this client.
    pub encoding: Option<Box<[u8]>>,
    /// The client got all notifications up to this mark,
    pub mark: u128,
    /// and this many notifications after the mark.
    pub number: u64,
}

/// The state of a client when it was packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The client had not sent a complete first packet.
    Startup,
    /// The client had proved its identity, but had not got its greeting.
    Newcomer,
    /// The client was logged in, without a server.
    Ready,
    /// The client was between two transactions, with a server of its own.
    Bound,
    /// The client was on the console.
    Console {
        /// The client may give every command, not only SHOW.
        admin: bool,
    },
}

impl Standing {
    /// True if the client is in a pool, or about to be.
    pub fn is_of_a_pool(self) -> bool {
        matches!(self, Standing::Newcomer | Standing::Ready | Standing::Bound)
    }
}

/// A client at rest.
#[derive(Debug)]
pub struct Passenger {
    /// The client's socket.
    pub socket: LooseSocket,
    /// The state of the client.
    pub standing: Standing,
    /// The addresses of the connection.
    pub ends: Ends,
    /// Facts of the TLS session, if there is one. The session itself travels with the socket.
    pub tls: Option<Arc<TlsFacts>>,
    /// The client's number in the console.
    pub number: u64,
    /// When the client connected.
    pub connected: Time,
    /// When the client last began a request.
    pub request: Time,
    /// When the client last became idle.
    pub quiet: Time,
    /// The database that the client asked for.
    pub database: String,
    /// The user that the client logged in as.
    pub user: String,
    /// The Broker counts the client.
    pub admitted: bool,
    /// The client uses protocol 3.2 or newer.
    pub long_key: bool,
    /// The client's cancel key.
    pub key: OldKey,
    /// The client's values of the tracked parameters.
    pub params: Option<Arc<Params>>,
    /// The tracked parameters that the client asked for at login.
    pub asked: Option<Arc<Params>>,
    /// The session's other settings, and those that the client asked for at login.
    pub session: [crate::session::settings::Maybe; 2],
    /// The client's channels on a listening connection.
    pub hearing: Option<Box<Hearing>>,
    /// The settings that change the meaning of the client's statements.
    pub meaning: Meaning,
    /// The client's named statements.
    pub names: Vec<(Box<[u8]>, Named)>,
    /// How many statement names the client has given so far.
    pub names_given: u64,
    /// The client's unnamed statement.
    pub unnamed: Option<Arc<Statement>>,
    /// A message has failed, and all messages up to the next Sync are skipped.
    pub group_failed: bool,
    /// The client calls `currval` or `lastval`.
    pub asks_numbers: bool,
    /// The value of `in_hot_standby` that the client got last.
    pub standby: Option<bool>,
    /// Bytes from the client that Howdah has not handled yet.
    pub held: Vec<u8>,
    /// Number of bytes still to come of the current message, all to be dropped.
    pub left: u32,
    /// The tag of the current message.
    pub tag: u8,
    /// The session's server, and the fingerprint of its database.
    pub server: Option<(Box<ServerParcel>, [u8; 32])>,
}

/// A server that moves to another worker or process, with its permit.
#[derive(Debug)]
pub struct ServerParcel {
    /// The server's socket.
    pub socket: LooseSocket,
    /// The addresses of the connection.
    pub ends: Ends,
    /// The name of the server's host, if the configuration gives a name.
    pub host: Option<Box<str>>,
    /// Facts of the TLS session, if there is one.
    pub tls: Option<Arc<TlsFacts>>,
    /// The server's number in the console.
    pub number: u64,
    /// The server's pool.
    pub pool: Arc<PoolKey>,
    /// The key that cancels queries: process id and secret.
    pub key: Option<(u32, Box<[u8]>)>,
    /// The values of the tracked parameters.
    pub params: Arc<Params>,
    /// The session's other settings.
    pub session: crate::session::settings::Maybe,
    /// The server's statements, with their descriptions.
    pub statements: Vec<(u128, Arc<Statement>, Option<Shape>)>,
    /// The transaction status, always idle.
    pub status: Status,
    /// When the server was connected.
    pub connected: Time,
    /// Since when the server has been idle.
    pub since: Time,
    /// The server has served a client.
    pub served: bool,
    /// Howdah knows the state that clients have left in the session.
    pub followed: bool,
    /// The last value of `in_hot_standby` that the server reported.
    pub standby: Option<bool>,
    /// The parameters that PostgreSQL reported at the last login of the pool.
    pub welcome: Option<Welcome>,
    /// The number of the last RECONNECT or similar order that the server has obeyed.
    pub epoch: u64,
}
