//! What one worker has: its pools, clients and servers, in the form that the console and metrics use.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{Database, PoolMode};
use crate::console::rows::Row;
use crate::ids::{Time, WorkerId};
use crate::load::ThreadLoad;
use crate::pool::key::PoolKey;
use crate::pool::reason::Reason;
use crate::queries::tally::TopQueries;
use crate::stats::{PeerCounts, Stats};
use crate::times::Times;
use crate::tls::TlsTold;

/// Clients and servers of a pool, by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct States {
    /// Logged in, and not waiting.
    pub cl_active: u32,
    /// Waiting for a server.
    pub cl_waiting: u32,
    /// Cancel requests under way to PostgreSQL.
    pub cl_active_cancel: u32,
    /// Bound to clients.
    pub sv_active: u32,
    /// Carriers of cancel requests.
    pub sv_active_cancel: u32,
    /// Free, but a cancel for them is under way.
    pub sv_being_canceled: u32,
    /// Ready for use.
    pub sv_idle: u32,
    /// Idle for so long that they are tested before use.
    pub sv_used: u32,
    /// Being tested, reset or brought to rest.
    pub sv_tested: u32,
    /// Not yet logged in.
    pub sv_login: u32,
    /// Kept by clients between transactions.
    pub sv_pinned: u32,
    /// How often a client began to keep one.
    pub pins: u64,
    /// How often something was found on one that no text had told.
    pub unseen: u64,
    /// How long the oldest waiter has waited, in nanoseconds.
    pub max_wait: u64,
}

/// A worker's share of a pool.
#[derive(Clone, Debug)]
pub struct PoolShare {
    /// Which.
    pub key: Arc<PoolKey>,
    /// Its database.
    pub database: Arc<Database>,
    /// When servers go back.
    pub mode: PoolMode,
    /// Its clients and servers.
    pub states: States,
    /// Servers that count against limits.
    pub connections: u32,
    /// Clients, in every state.
    pub clients: u32,
    /// Of those, who keep a server between transactions.
    pub pinned: u32,
    /// Counts since the start.
    pub stats: Stats,
    /// Counts as of when the averages begin.
    pub older: Stats,
    /// How long things took, since the start.
    pub times: Times,
    /// Servers that execute something.
    pub working: u32,
    /// `pool_size`; 0 without limit.
    pub size: u32,
    /// No server is given out: PAUSE.
    pub paused: bool,
    /// The last login to PostgreSQL failed, and none has succeeded since; why.
    pub failure: Option<String>,
    /// Why clients wait, if some do.
    pub reason: Option<Reason>,
    /// Who waits, longest first: `limits::WAITERS_TOLD` at most, and only for metrics.
    pub waiters: Vec<WaiterRow>,
    /// Who has servers, longest first: likewise, and only while somebody waits.
    pub holders: Vec<Holder>,
}

/// A row of SHOW CLIENTS.
#[derive(Debug)]
pub(super) struct ClientRow {
    pub(super) row: Row,
    /// It waits.
    pub(super) wait: Option<ServerWait>,
    /// Why and since when it keeps a server.
    pub(super) pin: [Option<String>; 2],
}

/// A client's wait for a server.
#[derive(Debug)]
pub(super) struct ServerWait {
    pub(super) pool: Arc<PoolKey>,
    pub(super) since: Time,
    pub(super) reason: &'static str,
}

/// What a worker has.
#[derive(Clone, Debug)]
pub struct Holdings {
    /// Which worker.
    pub worker: WorkerId,
    /// Its pools.
    pub pools: Vec<PoolShare>,
    /// Admitted clients by database and user.
    pub admitted: BTreeMap<(Arc<str>, Arc<str>), u32>,
    /// All clients, those that log in and consoles included.
    pub clients: u32,
    /// Clients that have not proved who they are.
    pub login_clients: u32,
    /// Consoles.
    pub consoles: u32,
    /// Free slots for clients.
    pub free_clients: u32,
    /// All servers.
    pub servers: u32,
    /// Free slots for servers.
    pub free_servers: u32,
    /// Statements that are known, and bytes of their texts.
    pub statements: (usize, usize),
    /// Clients that have come from other workers, and left for them.
    pub moves: (u64, u64),
    /// What its thread did of late.
    pub signals: ThreadLoad,
    /// Mails to other workers.
    pub mails: u64,
    /// Cancel requests for peers, by peer.
    pub peers: Vec<PeerCounts>,
    /// What its consoles count.
    pub console_stats: Stats,
    /// The same as of when the averages begin.
    pub console_older: Stats,
    /// Nanoseconds since the averages begin.
    pub window: u64,
    /// Which queries take the most: the first few, and only for metrics.
    pub queries: TopQueries,
    /// Slow queries that have no line in the log, because there were too many in a second.
    pub unlogged: u64,
    /// PAUSE of all pools.
    pub paused: bool,
    /// SUSPEND, or a successor takes over.
    pub suspended: bool,
    /// TLS.
    pub tls: TlsTold,
}

/// A client, as lines tell of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Who {
    /// Its number in the console.
    pub number: u64,
    /// Host and port, or `unix` and the process id.
    pub address: String,
    /// What it calls itself.
    pub application: String,
}

/// A client that waits for a server.
#[derive(Clone, Debug)]
pub struct WaiterRow {
    /// Of which pool.
    pub pool: Arc<PoolKey>,
    /// Who.
    pub who: Who,
    /// For how long, in nanoseconds.
    pub waited: u64,
    /// Why: [`crate::pool::Reason::word`].
    pub reason: &'static str,
}

/// A client that has a server.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Of which pool.
    pub pool: Arc<PoolKey>,
    /// Who.
    pub who: Who,
    /// The server's number in the console.
    pub server: u64,
    /// PostgreSQL's process.
    pub pid: u32,
    /// `active`, `idle in transaction`, `idle in failed transaction`, or `idle` where a session
    /// keeps its server.
    pub state: &'static str,
    /// For how long its transaction has lasted, in nanoseconds.
    pub held: u64,
    /// For how long it has been in that state, in nanoseconds.
    pub stayed: u64,
}
