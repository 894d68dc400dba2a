//! One worker's state: its pools, clients and servers, in the form that the console and metrics use.

use std::collections::BTreeMap;
use std::sync::Arc;

use howdah_shard::{Catalogue, RefusalReason};

use crate::account::KeptFor;
use crate::config::{Database, HostPort, PoolMode, SecretsTold, ShardMap};
use crate::console::rows::Row;
use crate::errors::{ErrorCounts, NotLetIn};
use crate::ids::{Time, WorkerId};
use crate::load::ThreadLoad;
use crate::login::key::LoginKey;
use crate::pool::Pool;
use crate::pool::reason::Reason;
use crate::queries::tally::TopQueries;
use crate::queries::text::QueryText;
use crate::reads::hindrance::ReadSight;
use crate::reads::tally::ReadCounts;
use crate::roster::check::LastCheck;
use crate::roster::view::View;
use crate::shard::tally::{RefusedText, ShardCounts};
use crate::stats::{PeerCounts, Stats};
use crate::times::{Histogram, Times};
use crate::tls::TlsTold;

/// A statement that has run for so long is called slow, in nanoseconds.
pub const SLOW_NS: u64 = 1_000_000_000;

/// Clients and servers of a pool, by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct States {
    /// Logged in, and not waiting.
    pub cl_active: u32,
    /// Waiting for a server.
    pub cl_waiting: u32,
    /// Of those: clients whose login waits for auth_query.
    pub cl_lookups: u32,
    /// Cancel requests under way to PostgreSQL.
    pub cl_active_cancel: u32,
    /// Bound to clients.
    pub sv_active: u32,
    /// Carriers of cancel requests.
    pub sv_active_cancel: u32,
    /// Free, but a cancel request for them is under way.
    pub sv_being_canceled: u32,
    /// Ready for use.
    pub sv_idle: u32,
    /// Idle for so long that they are tested before use.
    pub sv_used: u32,
    /// Being tested, reset or brought to rest.
    pub sv_tested: u32,
    /// Not yet logged in.
    pub sv_login: u32,
    /// Listening for all clients of a user.
    pub sv_listening: u32,
    /// Kept by clients between transactions.
    pub sv_pinned: u32,
    /// How often a client began to keep a server.
    pub pins: u64,
    /// How often an object was found on a server that no text had shown.
    pub unseen: u64,
    /// The longest wait of a client, in nanoseconds.
    pub max_wait: u64,
    /// Of the active servers: those that execute a statement.
    pub sv_working: u32,
    /// Of those: servers whose statement is slow.
    pub sv_slow: u32,
    /// Of the active servers: those with clients that are idle in a transaction.
    pub sv_in_transaction: u32,
    /// Of the active servers: those that clients have between transactions.
    pub sv_kept: u32,
    /// How long the oldest transaction has lasted, in nanoseconds.
    pub oldest_transaction: u64,
    /// Waits since the start that no server ended.
    pub waits_in_vain: u64,
    /// The sum of the waits that are not over, in nanoseconds.
    pub waits: u64,
}

/// A worker's servers at one host, and its last check.
#[derive(Clone, Debug, Default)]
pub struct HostServers {
    /// All that are connected.
    pub servers: u32,
    /// Those that have a client.
    pub active: u32,
    /// Those that are not logged in yet.
    pub logins: u32,
    /// How many times clients have got one of its servers.
    pub checkouts: u64,
    /// The last answer to a check, on the worker that makes the checks.
    pub check: Option<LastCheck>,
}

impl HostServers {
    /// Adds those of another worker.
    pub(crate) fn add(&mut self, other: &HostServers) {
        self.servers += other.servers;
        self.active += other.active;
        self.logins += other.logins;
        self.checkouts += other.checkouts;
        self.check = self.check.take().or_else(|| other.check.clone());
    }
}

/// A login on a worker, with all its pools. The console's word for it is pool.
#[derive(Clone, Debug)]
pub struct PoolShare {
    /// The login's key.
    pub key: Arc<LoginKey>,
    /// Its database.
    pub database: Arc<Database>,
    /// When servers are given back.
    pub mode: PoolMode,
    /// Its clients and servers.
    pub states: States,
    /// Servers that count against limits.
    pub connections: u32,
    /// Clients, in every state.
    pub clients: u32,
    /// How many of these clients keep a server between transactions.
    pub pinned: u32,
    /// Counts since the start.
    pub stats: Stats,
    /// Counts at the start of the averages' window.
    pub older: Stats,
    /// Durations since the start.
    pub times: Times,
    /// The waits of clients that still wait.
    pub waits: Histogram,
    /// The errors that clients got.
    pub errors: ErrorCounts,
    /// Where reads have gone.
    pub reads: ReadCounts,
    /// `pool_size`; 0 means no limit.
    pub size: u32,
    /// PAUSE: no server is given out.
    pub paused: bool,
    /// The reason why the last login to PostgreSQL failed, if none has succeeded since.
    pub failure: Option<String>,
    /// The reason why clients wait, if some do.
    pub reason: Option<Reason>,
    /// The waiting clients, longest first: at most `limits::WAITERS_TOLD`, and only for metrics.
    pub waiters: Vec<WaiterRow>,
    /// The clients that have servers, longest first: with the same limit, and only while a client
    /// waits.
    pub holders: Vec<Holder>,
}

impl PoolShare {
    /// Adds one of the login's pools, whose oldest client has waited so long, and why clients wait.
    pub(super) fn add_pool(&mut self, pool: &Pool, wait: u64, reason: Option<Reason>) {
        self.states.max_wait = self.states.max_wait.max(wait);
        self.paused |= pool.paused();
        let failure = pool.failure.as_ref().map(|failure| failure.text.clone());
        self.failure = self.failure.take().or(failure);
        let reasons = self.reason.take().into_iter().chain(reason);
        self.reason = reasons.min_by_key(Reason::rank);
    }
}

/// A row of SHOW CLIENTS_EXTENDED.
#[derive(Debug)]
pub(super) struct ClientRow {
    pub(super) row: Row,
    /// The client's wait, if it waits.
    pub(super) wait: Option<ServerWait>,
    /// Why and since when the client keeps a server.
    pub(super) pin: [Option<String>; 2],
}

/// A client's wait for a server.
#[derive(Debug)]
pub(super) struct ServerWait {
    pub(super) login: Arc<LoginKey>,
    pub(super) since: Time,
    pub(super) reason: &'static str,
}

/// A shard on a worker.
#[derive(Clone, Default, Debug)]
pub struct ShardFigures {
    /// The clients of the sharded database that are there.
    pub clients: u32,
    /// How old the catalogue is, in nanoseconds; `None` if it was never read.
    pub age_ns: Option<u64>,
    /// What is counted.
    pub counts: ShardCounts,
}

impl ShardFigures {
    /// Adds those of another worker.
    pub(crate) fn add(&mut self, other: &ShardFigures) {
        self.clients += other.clients;
        self.age_ns = self.age_ns.into_iter().chain(other.age_ns).min();
        self.counts.add(&other.counts);
    }
}

/// A sharded database on a worker.
#[derive(Clone, Debug)]
pub struct ShardedShare {
    /// The database.
    pub database: Arc<str>,
    /// Its map.
    pub map: Arc<ShardMap>,
    /// Its shards, in order.
    pub shards: Vec<ShardFigures>,
    /// By reason: refusals, and statements that would be refused with several shards.
    pub reasons: BTreeMap<RefusalReason, [u64; 2]>,
    /// The texts that were refused; only if they are asked for.
    pub refused: Vec<RefusedText>,
    /// The last catalogue; only if it is asked for.
    pub catalogue: Option<Arc<Catalogue>>,
}

/// One worker's state.
#[derive(Clone, Debug)]
pub struct Holdings {
    /// Its servers at each host of placed databases.
    pub hosts: BTreeMap<HostPort, HostServers>,
    /// What it knows of these hosts.
    pub view: Arc<View>,
    /// How far behind the primary standbys are, in nanoseconds, as far as they have told.
    pub lags: BTreeMap<HostPort, u64>,
    /// Whether reads go to each host, where some are routed.
    pub reads: BTreeMap<HostPort, ReadSight>,
    /// The worker.
    pub worker: WorkerId,
    /// Its counts of sharded databases.
    pub sharded: Vec<ShardedShare>,
    /// Its pools.
    pub pools: Vec<PoolShare>,
    /// Admitted clients by database and user.
    pub admitted: BTreeMap<(Arc<str>, Arc<str>), u32>,
    /// All clients, including those that log in and consoles.
    pub clients: u32,
    /// Clients that have not proved their identity.
    pub login_clients: u32,
    /// Consoles.
    pub consoles: u32,
    /// Free slots for clients.
    pub free_clients: u32,
    /// All servers.
    pub servers: u32,
    /// Free slots for servers.
    pub free_servers: u32,
    /// The number of known statements, and the bytes of their texts.
    pub statements: (usize, usize),
    /// The bytes kept for clients, by kind.
    pub kept: [(KeptFor, usize); 4],
    /// Clients that came from other workers, and clients that went to other workers.
    pub moves: (u64, u64),
    /// The recent load of the worker's thread.
    pub signals: ThreadLoad,
    /// Mails to other workers.
    pub mails: u64,
    /// Cancel requests for peers, by peer.
    pub peers: Vec<PeerCounts>,
    /// The counts of its consoles.
    pub console_stats: Stats,
    /// The same counts at the start of the averages' window.
    pub console_older: Stats,
    /// Nanoseconds since the start of the averages' window.
    pub window: u64,
    /// The queries that take the most: the first few, and only for metrics.
    pub queries: TopQueries,
    /// Slow queries that were not logged, because there were too many in a second.
    pub unlogged: u64,
    /// PAUSE of all pools.
    pub paused: bool,
    /// SUSPEND, or a successor takes over.
    pub suspended: bool,
    /// Clients that were not let in.
    pub not_let_in: NotLetIn,
    /// The state of TLS.
    pub tls: TlsTold,
    /// The state of sources of secrets.
    pub secrets: SecretsTold,
}

/// A client, in the form for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Who {
    /// The client's number in the console.
    pub number: u64,
    /// Host and port, or `unix` and the process id.
    pub address: String,
    /// The client's `application_name`.
    pub application: String,
}

/// A client that waits for a server.
#[derive(Clone, Debug)]
pub struct WaiterRow {
    /// The login.
    pub login: Arc<LoginKey>,
    /// The client.
    pub who: Who,
    /// How long it has waited, in nanoseconds.
    pub waited: u64,
    /// The reason: [`crate::pool::Reason::word`].
    pub reason: &'static str,
}

/// What a client that has a server does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HolderState {
    /// The server executes a statement.
    Active,
    /// A transaction is open.
    InTransaction,
    /// A transaction is open, and has failed.
    InFailedTransaction,
    /// No transaction is open: the client's session keeps the server.
    Idle,
}

impl HolderState {
    /// PostgreSQL's word in `pg_stat_activity`.
    pub fn word(self) -> &'static str {
        match self {
            HolderState::Active => "active",
            HolderState::InTransaction => "idle in transaction",
            HolderState::InFailedTransaction => "idle in failed transaction",
            HolderState::Idle => "idle",
        }
    }
}

/// A client that has a server.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The login.
    pub login: Arc<LoginKey>,
    /// The client.
    pub who: Who,
    /// The server's number in the console.
    pub server: u64,
    /// The process id of PostgreSQL.
    pub pid: u32,
    /// What the client does.
    pub state: HolderState,
    /// How long its transaction has lasted, in nanoseconds.
    pub held: u64,
    /// How long it has been in this state, in nanoseconds.
    pub stayed: u64,
    /// Why the client keeps its server between transactions; empty if it keeps none.
    pub kept_for: String,
    /// The text of the running query, or else of the last one, if queries are watched.
    pub query: Option<Arc<QueryText>>,
}
