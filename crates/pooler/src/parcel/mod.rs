//! What travels to a successor: connections at rest with all their state, and the state of the process.
//! [`code`] writes and reads it as bytes, in a versioned format.

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

/// The version of the format, and of what both processes do.
pub const VERSION: u32 = 8;

/// Everything that travels to a successor.
#[derive(Debug)]
pub struct Freight {
    /// The state of the process.
    pub estate: Estate,
    /// Its listening sockets.
    pub listeners: Vec<(Address, LooseSocket)>,
    /// Everything else, by worker; pools come before their servers and clients.
    pub parcels: Vec<(WorkerId, Parcel)>,
}

/// The state of a process besides its connections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Estate {
    /// [`crate::cancel::Keys::lasting`].
    pub lasting: [u8; 32],
    /// [`crate::statement::Interner::changed_schemas`].
    pub schemas: Vec<(String, u64)>,
    /// The last number that the console has for a connection.
    pub last_number: u64,
    /// The disabled databases (DISABLE).
    pub disabled: Vec<String>,
    /// Which parameters are tracked, by position.
    pub tracked: Vec<String>,
}

/// A piece of freight.
#[derive(Debug)]
pub enum Parcel {
    /// What is known of a pool.
    Pool(Box<PoolLore>),
    /// A server at rest.
    Server {
        /// As it travels between workers.
        parcel: Box<ServerParcel>,
        /// [`crate::config::Database::fingerprint`] of where it is connected to.
        database: [u8; 32],
    },
    /// A client at rest.
    Client(Box<Passenger>),
}

/// What is known of a pool.
#[derive(Clone, Debug)]
pub struct PoolLore {
    /// Which.
    pub key: Arc<PoolKey>,
    /// [`crate::config::Database::fingerprint`].
    pub database: [u8; 32],
    /// What PostgreSQL told at the last login.
    pub welcome: Option<Welcome>,
    /// For logins to PostgreSQL.
    pub scram_keys: Option<ScramKeys>,
    /// Likewise.
    pub found_secret: Option<Secret>,
    /// For the pool of a listening connection: what the successor has to listen to.
    pub bequest: Option<Arc<Bequest>>,
}

/// What the successor's listening connection has to listen to (`listen/heritage.rs`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bequest {
    /// The mark that the successor sends once it listens.
    pub mark: u128,
    /// The channels.
    pub names: Vec<Box<[u8]>>,
    /// In which encoding they are heard.
    pub encoding: Option<Box<[u8]>>,
}

/// The state of a client that listens by a listening connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hearing {
    /// Which connection.
    pub listener: Arc<PoolKey>,
    /// The channels.
    pub names: Vec<Box<[u8]>>,
    /// In which encoding it hears.
    pub encoding: Option<Box<[u8]>>,
    /// It was told everything up to this mark,
    pub mark: u128,
    /// and so many notifications behind that.
    pub number: u64,
}

/// The state of a client when it was packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It had sent no complete first packet.
    Startup,
    /// It had proved who it is, and had not got its greeting.
    Newcomer,
    /// It was logged in, without a server.
    Ready,
    /// It was between two transactions of its session, with a server of its own.
    Bound,
    /// It talked to the console.
    Console {
        /// It may give every command, not only SHOW.
        admin: bool,
    },
}

impl Standing {
    /// True if it is in a pool, or about to be.
    pub fn is_of_a_pool(self) -> bool {
        matches!(self, Standing::Newcomer | Standing::Ready | Standing::Bound)
    }
}

/// A client at rest.
#[derive(Debug)]
pub struct Passenger {
    /// Its socket.
    pub socket: LooseSocket,
    /// How it stood.
    pub standing: Standing,
    /// Its ends.
    pub ends: Ends,
    /// The facts of its TLS session, if it has one. The session itself travels with the socket.
    pub tls: Option<Arc<TlsFacts>>,
    /// Its number in the console.
    pub number: u64,
    /// When it connected.
    pub connected: Time,
    /// When it last began a request.
    pub request: Time,
    /// When it last became idle.
    pub quiet: Time,
    /// The database it asked for.
    pub database: String,
    /// Who it logged in as.
    pub user: String,
    /// The Broker counts it.
    pub admitted: bool,
    /// Protocol 3.2 or newer.
    pub long_key: bool,
    /// Its cancel key.
    pub key: OldKey,
    /// Its values of the tracked parameters.
    pub params: Option<Arc<Params>>,
    /// Those it asked for at login.
    pub asked: Option<Arc<Params>>,
    /// Its session's other settings, and those of them that it asked for at login.
    pub session: [crate::session::settings::Maybe; 2],
    /// What it hears by a listening connection.
    pub hearing: Option<Box<Hearing>>,
    /// Those of its settings that change the meaning of statements.
    pub meaning: Meaning,
    /// Its named statements.
    pub names: Vec<(Box<[u8]>, Named)>,
    /// How many names it has given so far.
    pub names_given: u64,
    /// Its unnamed statement.
    pub unnamed: Option<Arc<Statement>>,
    /// A message failed; all up to the next Sync are skipped.
    pub group_failed: bool,
    /// It has asked for values of sequences.
    pub asks_numbers: bool,
    /// What it was last told of `in_hot_standby`.
    pub standby: Option<bool>,
    /// Bytes that it has sent and Howdah has not handled.
    pub held: Vec<u8>,
    /// Bytes of its current message still to come, all of them to be dropped.
    pub left: u32,
    /// That message's tag.
    pub tag: u8,
    /// The server of its session, and the fingerprint of that server's database.
    pub server: Option<(Box<ServerParcel>, [u8; 32])>,
}

/// A server on its way, with the permit for it.
#[derive(Debug)]
pub struct ServerParcel {
    /// Its socket.
    pub socket: LooseSocket,
    /// Its ends.
    pub ends: Ends,
    /// The name of its host, if the configuration has a name.
    pub host: Option<Box<str>>,
    /// Its TLS session, if it has one.
    pub tls: Option<Arc<TlsFacts>>,
    /// Its number in the console.
    pub number: u64,
    /// Its pool.
    pub pool: Arc<PoolKey>,
    /// How to cancel its queries.
    pub key: Option<(u32, Box<[u8]>)>,
    /// Its parameters.
    pub params: Arc<Params>,
    /// Other settings of sessions.
    pub session: crate::session::settings::Maybe,
    /// Its statements, and what they were described as.
    pub statements: Vec<(u128, Arc<Statement>, Option<Shape>)>,
    /// Always idle.
    pub status: Status,
    /// When it was connected.
    pub connected: Time,
    /// Since when it has been idle.
    pub since: Time,
    /// It has served a client.
    pub served: bool,
    /// Howdah knows what its clients have left in the session.
    pub followed: bool,
    /// What it last said of `in_hot_standby`.
    pub standby: Option<bool>,
    /// What PostgreSQL told at the login of its pool's last server.
    pub welcome: Option<Welcome>,
    /// The number of the last order of RECONNECT and the like it obeyed.
    pub epoch: u64,
}
