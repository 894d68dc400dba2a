//! The data that a successor process takes over: connections at rest and the state of the process.
//! [`code`] writes and reads them as bytes, in a versioned format.

pub mod code;
#[cfg(test)]
mod code_tests;

use std::sync::Arc;

use howdah_wire::backend::Status;

use crate::cancel::OldKey;
use crate::client::ClientEnds;
use crate::config::Address;
use crate::ids::{Time, WorkerId};
use crate::login::key::Welcome;
use crate::login::secrets::Secrets;
use crate::params::{Meaning, Params};
use crate::place::{Ends, Via};
use crate::pool::key::PoolKey;
use crate::reads::mark::ReadMark;
use crate::roster::lore::RosterLore;
use crate::roster::view::Instance;
use crate::server::user_end::VanishingUser;
use crate::socket::LooseSocket;
use crate::statement::{Named, Shape, Statement};
use crate::tls::TlsFacts;

/// The version of the format, and of the behaviour that both processes share.
pub const VERSION: u32 = 15;

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

/// The state of a process, without its connections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Estate {
    /// [`crate::cancel::Keys::lasting`].
    pub lasting: [u8; 32],
    /// [`crate::statement::Interner::changed_schemas`].
    pub schemas: Vec<(String, u64)>,
    /// The console's last number for a connection.
    pub last_number: u64,
    /// The disabled databases (DISABLE).
    pub disabled: Vec<String>,
    /// Names of tracked parameters, by position.
    pub tracked: Vec<String>,
    /// What is known of the hosts of placed databases.
    pub roster: RosterLore,
}

/// One piece of freight.
#[derive(Debug)]
pub enum Parcel {
    /// The state of a pool.
    Pool(Box<PoolLore>),
    /// A server at rest.
    Server {
        /// In the form that also travels between workers.
        parcel: Box<ServerParcel>,
        /// [`crate::config::Database::fingerprint`] of its database.
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
    /// What its servers prove themselves with to PostgreSQL.
    pub secrets: Secrets,
    /// The idle servers that can't travel because of their TLS sessions. The successor opens as
    /// many at once.
    pub left_behind: u32,
}

/// The state of a client when packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It had not sent a complete first packet.
    Startup,
    /// It had proved its identity, but had no greeting yet.
    Newcomer,
    /// Logged in, without a server.
    Ready,
    /// Between two transactions, with a server of its own.
    Bound,
    /// On the console.
    Console {
        /// All commands are permitted, not only SHOW.
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
    /// Its socket.
    pub socket: LooseSocket,
    /// Its state.
    pub standing: Standing,
    /// The ends of the connection.
    pub ends: Ends,
    /// How the connection reaches the process.
    pub via: Via,
    /// Facts of its TLS session, if any. The session itself travels with the socket.
    pub tls: Option<Arc<TlsFacts>>,
    /// Its number in the console.
    pub number: u64,
    /// When it connected.
    pub connected: Time,
    /// When it last began a request.
    pub request: Time,
    /// When it last became idle.
    pub quiet: Time,
    /// When it must end, if ever.
    pub ends_at: Option<ClientEnds>,
    /// The database that it asked for.
    pub database: String,
    /// The user that it logged in as.
    pub user: String,
    /// The Broker counts it.
    pub admitted: bool,
    /// Protocol 3.2 or newer.
    pub long_key: bool,
    /// Its cancel key.
    pub key: OldKey,
    /// Its values of the tracked parameters.
    pub params: Option<Arc<Params>>,
    /// The tracked parameters that it asked for at login.
    pub asked: Option<Arc<Params>>,
    /// Its other settings, and those that it asked for at login.
    pub session: [crate::session::settings::Maybe; 2],
    /// The settings that change the meaning of its statements.
    pub meaning: Meaning,
    /// Its named statements.
    pub names: Vec<(Box<[u8]>, Named)>,
    /// How many names it has given so far.
    pub names_given: u64,
    /// Its unnamed statement.
    pub unnamed: Option<Arc<Statement>>,
    /// A message failed; all up to the next Sync are skipped.
    pub group_failed: bool,
    /// The last value of `in_hot_standby` that it got.
    pub standby: Option<bool>,
    /// What it has seen, as far as its reads must know. A successor does not get this: there the
    /// client is a new one.
    pub read_mark: Option<Box<ReadMark>>,
    /// Its bytes that Howdah has not handled yet.
    pub held: Vec<u8>,
    /// Bytes still to come of its current message, all to be dropped.
    pub left: u32,
    /// The tag of that message.
    pub tag: u8,
    /// Its server, and the fingerprint of the server's database.
    pub server: Option<(Box<ServerParcel>, [u8; 32])>,
}

/// A server that moves to another worker or process, with its permit.
#[derive(Debug)]
pub struct ServerParcel {
    /// Its socket.
    pub socket: LooseSocket,
    /// The ends of the connection.
    pub ends: Ends,
    /// The name of its host, if the configuration has one.
    pub host: Option<Box<str>>,
    /// Facts of its TLS session, if any.
    pub tls: Option<Arc<TlsFacts>>,
    /// Its number in the console.
    pub number: u64,
    /// Its pool.
    pub pool: Arc<PoolKey>,
    /// Its cancel key: process id and secret.
    pub key: Option<(u32, Box<[u8]>)>,
    /// Its values of the tracked parameters.
    pub params: Arc<Params>,
    /// Its other settings.
    pub session: crate::session::settings::Maybe,
    /// Its statements, with their descriptions.
    pub statements: Vec<(u128, Arc<Statement>, Option<Shape>)>,
    /// Always idle.
    pub status: Status,
    /// When it was connected.
    pub connected: Time,
    /// Since when it has been idle.
    pub since: Time,
    /// It has served a client.
    pub served: bool,
    /// Howdah knows the state that clients have left in the session.
    pub followed: bool,
    /// The last value of `in_hot_standby` that it reported.
    pub standby: Option<bool>,
    /// The standby that it is mature for ([`crate::reads`]). In a successor, too: what is known of
    /// standbys there is younger than the server.
    pub instance: Option<Instance>,
    /// Its user, if that vanishes. A successor gets the time alone: nobody renews the user any more.
    pub vanishing: Option<Box<VanishingUser>>,
    /// The parameters that PostgreSQL reported at the last login of the pool.
    pub welcome: Option<Welcome>,
    /// The number of the last RECONNECT or similar order that it obeyed.
    pub epoch: u64,
}
