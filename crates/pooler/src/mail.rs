//! Mail between workers.

use std::sync::Arc;

use crate::auth::{ScramKeys, Secret};
use crate::cancel::seek::{Finding, Seek};
use crate::config::{Config, HostPort};
use crate::console::{Report, Survey};
use howdah_shard::ShardCatalogue;

use crate::effect::VolatileNames;
use crate::event::{Address, ClientId, Ends, LooseSocket, Order};
use crate::ids::{Time, WorkerId};
use crate::listen::{FromListener, ToListener};
use crate::login::key::LoginKey;
use crate::login::key::Welcome;
use crate::parcel::{Estate, Parcel, Passenger, PoolLore};
use crate::place::Via;
use crate::pool::bound::BoundName;
use crate::pool::key::PoolKey;
use crate::pool::supply::{Bounds, HeldBy};
use crate::roster::round::Covers;
use crate::roster::view::{HostList, View};
use crate::server::ServerParcel;
use crate::shard::lore::CatalogueQuestion;
use crate::tls::TlsFacts;

/// A message between workers of one process, or from a worker to itself.
#[derive(Debug)]
pub enum Mail {
    /// Something about the hosts of placed databases has changed.
    Hosts(Arc<View>),
    /// Sources of secrets have given other values, or have failed. The configuration is otherwise the
    /// same.
    Secrets(Arc<Config>),
    /// What the standbys of a list of hosts cover now.
    Covers(HostList, Arc<Covers>),
    /// Has one of the worker's servers of this host sent something since this check? A
    /// [`Fact::Heard`](crate::roster::fact::Fact::Heard) answers.
    HeardFrom(Box<HostPort>, Time),
    /// Whoever checks this host does so at once.
    CheckHost(Box<HostPort>),
    /// A newly accepted client that this worker is to serve.
    Client(Box<ClientParcel>),
    /// A client that moves to this worker, between two transactions.
    Move(Box<Traveller>),
    /// An order to move this many clients of a login to another worker.
    Shed {
        /// Their login.
        login: Arc<LoginKey>,
        /// The worker that gets them.
        to: WorkerId,
        /// How many clients.
        clients: u32,
        /// Idle clients move, too. If false, only recently active ones move.
        idle: bool,
    },
    /// The workers that new clients of a login go to.
    Seats(Arc<LoginKey>, Arc<[WorkerId]>),
    /// The worker that new clients go to if their pool has no seats.
    NewPools(WorkerId),
    /// To the worker that a client has left: the client is on its new worker.
    Landed,
    /// A server that this worker asked for.
    Server(Box<ServerParcel>),
    /// PostgreSQL's parameters at the login of the latest server for clients, on another worker. With
    /// them, clients of this worker can finish their logins without waiting for a server. The
    /// number counts the RECONNECTs (or similar orders) that the sender had obeyed.
    Welcome(Arc<LoginKey>, Box<Welcome>, u64),
    /// A pool asks for room for a server at PostgreSQL.
    MakeRoom(Box<RoomWish>),
    /// The answer to a wish for room. True: a server of another pool is closed. False: no server is
    /// idle.
    Room(Arc<PoolKey>, bool),
    /// A message from the Broker.
    Brokered(FromBroker),
    /// A cancel request or a signal for a client that may be on this worker.
    Seek(Box<Seek>),
    /// An answer to the search with this number.
    Sought(u64, Finding),
    /// To the worker of a listening connection.
    ToListener(ToListener),
    /// From the worker of a listening connection.
    FromListener(FromListener),
    /// A cancel request for a peer, to worker 0, which forwards such requests.
    Forward {
        /// The peer's id.
        peer: u16,
        /// The CancelRequest.
        packet: Vec<u8>,
        /// The client connection that awaits the end of the request.
        from: (WorkerId, ClientId),
    },
    /// The peer has carried out this connection's cancel request; false: it was not reached.
    Forwarded(ClientId, bool),
    /// A server for a login's clients has reported whether it is a standby.
    Standby(Arc<LoginKey>, bool),
    /// A client's login was told another secret of the user than the one before.
    SecretChanged(Box<ChangedSecret>),
    /// The schema of a database has changed: [`crate::statement::Interner::untold`].
    SchemaChanged(Arc<str>, u64),
    /// The volatile functions of the entry with this name, and the schema
    /// ([`crate::statement::Interner::schema`]) when PostgreSQL was asked.
    VolatileNames(Arc<str>, u64, Arc<VolatileNames>),
    /// The catalogue of the shard with this name, and the question that it answers.
    ShardCatalogue(Arc<str>, CatalogueQuestion, Arc<ShardCatalogue>),
    /// An order for all workers.
    Order(Order),
    /// A worker's console asks for this worker's data.
    Survey(Survey),
    /// A worker's data, for a console.
    Report(Report),
    /// A connection of the predecessor.
    Adopt(Box<Parcel>),
    /// All connections for this worker have come.
    AllAdopted,
    /// The rest of the predecessor's state.
    Inherit(Arc<Estate>),
}

/// What a client's login has told of its user, for logins to PostgreSQL on other workers.
#[derive(Clone, Debug)]
pub struct ChangedSecret {
    /// The login.
    pub login: Arc<LoginKey>,
    /// The secret.
    pub secret: Secret,
    /// The keys of the login, if it used SCRAM.
    pub keys: Option<ScramKeys>,
}

/// A new client on its way to its worker.
#[derive(Debug)]
pub struct ClientParcel {
    /// The client's socket.
    pub socket: LooseSocket,
    /// Both ends of the connection.
    pub ends: Ends,
    /// How the connection reaches the process.
    pub via: Via,
    /// The TLS session, if there is one.
    pub tls: Option<Arc<TlsFacts>>,
    /// The client's number in the console.
    pub number: u64,
    /// When the client connected.
    pub connected: Time,
    /// All bytes that the client has sent, the start-up packet first.
    pub bytes: Vec<u8>,
}

/// Limits on clients, from the configuration; 0 for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientBounds {
    /// `max_client_conn`.
    pub total: u32,
    /// `max_db_client_connections`.
    pub database: u32,
    /// `max_user_client_connections`.
    pub user: u32,
}

/// Messages to the Broker.
#[derive(Debug)]
pub enum ToBroker {
    /// Clients of a worker wait for a server. Repeated while they wait.
    Need {
        /// The worker.
        worker: WorkerId,
        /// The pool.
        pool: Arc<PoolKey>,
        /// How long the oldest client has waited, in nanoseconds.
        age: u64,
        /// How many clients wait.
        waiting: u32,
        /// The worker does not know yet which parameters PostgreSQL reports at a login.
        unwelcomed: bool,
        /// A replication client waits: it can't use the pool's idle servers.
        replication: bool,
        /// The worker wants to open a server. If false, it only wants to borrow one, because logins
        /// fail.
        opens: bool,
        /// The pool's bounds.
        bounds: Bounds,
    },
    /// No client of the worker waits for this pool any more.
    Sated {
        /// The worker.
        worker: WorkerId,
        /// The pool.
        pool: Arc<PoolKey>,
    },
    /// A permit comes back: PostgreSQL has closed the connection.
    Freed {
        /// The worker.
        worker: WorkerId,
        /// The pool.
        pool: Arc<PoolKey>,
    },
    /// The login of a server that `max_host_logins` counts is over, or did not begin.
    LoggedIn {
        /// The server's pool.
        pool: Arc<PoolKey>,
        /// The host, as the permit named it.
        host: Arc<HostPort>,
    },
    /// A permit has moved with its server.
    Moved {
        /// The worker that had it.
        from: WorkerId,
        /// The worker that has it now.
        to: WorkerId,
        /// The pool.
        pool: Arc<PoolKey>,
    },
    /// `min_pool_size` demands one more server, if the limits allow.
    Warm {
        /// The worker that would open the server.
        worker: WorkerId,
        /// The pool.
        pool: Arc<PoolKey>,
        /// How many servers the pool is to have.
        wanted: u32,
        /// The pool's bounds.
        bounds: Bounds,
    },
    /// A reload changed a pool's bounds.
    Bounds {
        /// The worker that reports.
        worker: WorkerId,
        /// The pool.
        pool: Arc<PoolKey>,
        /// The new bounds.
        bounds: Bounds,
    },
    /// A client asks to be admitted.
    Admit {
        /// The client's worker.
        worker: WorkerId,
        /// The client.
        client: ClientId,
        /// The database and user.
        login: Arc<LoginKey>,
        /// The limits on clients.
        bounds: ClientBounds,
    },
    /// The worker has no idle server to close for a pool that a limit holds back.
    NothingToEvict {
        /// The worker. It closes the next server that becomes idle.
        worker: WorkerId,
        /// The pool that wants to grow.
        pool: Arc<PoolKey>,
    },
    /// Connections are about to arrive from the predecessor, or to return from a failed takeover.
    Arrivals {
        /// How many workers get connections. Each of them reports when all have arrived.
        workers: u16,
    },
    /// All connections of a worker have arrived.
    AllArrived,
    /// A server came from the predecessor: the Broker counts it.
    ServerEntered {
        /// The worker that has it.
        worker: WorkerId,
        /// Its pool.
        pool: Arc<PoolKey>,
        /// The pool's bounds.
        bounds: Bounds,
    },
    /// A client came from the predecessor.
    ClientEntered {
        /// The database and user.
        login: Arc<LoginKey>,
    },
    /// A client asks for permission to keep a server between transactions.
    Pin {
        /// The client's worker.
        worker: WorkerId,
        /// The client.
        client: ClientId,
        /// The number of the request, unique on its worker.
        ticket: u64,
        /// The pool.
        pool: Arc<PoolKey>,
        /// What to do if too many clients keep a server.
        wish: PinWish,
        /// The pool's bounds.
        bounds: Bounds,
    },
    /// The client has ceased to keep a server or to wait for permission.
    Unpin {
        /// The client's worker.
        worker: WorkerId,
        /// The number of the request.
        ticket: u64,
        /// The pool.
        pool: Arc<PoolKey>,
    },
    /// What a worker's clients that keep servers of a pool do, told in every maintenance while one
    /// of them works or a client waits for permission.
    Pins {
        /// The worker.
        worker: WorkerId,
        /// The pool.
        pool: Arc<PoolKey>,
        /// A client that keeps a server works: a statement runs, or began lately.
        works: bool,
    },
    /// An admitted client has left.
    Left {
        /// The database and user.
        login: Arc<LoginKey>,
    },
}

/// What happens if too many clients keep servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinWish {
    /// The client waits for permission.
    Waits,
    /// The client gets an answer at once.
    Knows,
}

/// Where room for a server can be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Evict {
    /// In other pools under this limit.
    Under(BoundName),
    /// In the pool itself: the waiting client can't use the pool's idle servers.
    Same,
}

impl Evict {
    /// True if closing a server of the other pool makes room for one of this pool. `host`: where
    /// the other pool's host has a limit.
    pub fn concerns(&self, pool: &PoolKey, other: &PoolKey, host: Option<&Arc<HostPort>>) -> bool {
        match self {
            Evict::Under(name) => other != pool && name.counts(other, host),
            Evict::Same => other == pool,
        }
    }
}

/// Messages from the Broker.
#[derive(Debug)]
pub enum FromBroker {
    /// Open a server.
    Permit {
        /// The pool.
        pool: Arc<PoolKey>,
        /// The permit comes from the reserve.
        reserve: bool,
        /// The permit is for `min_pool_size`, whether or not a client waits.
        warm: bool,
        /// The host whose `max_host_logins` counts this login, until [`ToBroker::LoggedIn`].
        login: Option<Arc<HostPort>>,
    },
    /// Another worker's clients wait.
    Hungry {
        /// The hungry worker.
        worker: WorkerId,
        /// The pool.
        pool: Arc<PoolKey>,
        /// How long the worker's oldest client has waited, in nanoseconds.
        age: u64,
        /// The worker does not know yet which parameters PostgreSQL reports at a login.
        unwelcomed: bool,
        /// The worker will get a permit, so only an idle server is worth lending.
        idle_only: bool,
    },
    /// This worker has more servers for each waiting client than another worker. The next released
    /// server goes to that worker.
    Give {
        /// The pool.
        pool: Arc<PoolKey>,
        /// Its new worker.
        to: WorkerId,
    },
    /// Logins fail for the worker that sent `Need`, and no other worker has a server to lend.
    Alone {
        /// The pool.
        pool: Arc<PoolKey>,
    },
    /// A pool needs a server, and a limit holds it back: close the server that has been idle
    /// longest.
    Evict {
        /// The pool that wants to grow.
        pool: Arc<PoolKey>,
        /// Which servers may be closed.
        from: Evict,
        /// How long the pool's oldest client has waited, in nanoseconds.
        age: u64,
    },
    /// The pool of an `Evict` has stopped waiting: no server need be closed for it.
    Content {
        /// The pool that wanted to grow.
        pool: Arc<PoolKey>,
    },
    /// Which limit holds back the pool of a `Need`, for SHOW CLIENTS and similar commands. Sent
    /// when the limit changes.
    HeldBack {
        /// The pool that wants to grow.
        pool: Arc<PoolKey>,
        /// The limit.
        by: HeldBy,
    },
    /// How many servers of a pool the worker may keep, after the pool's limits were lowered.
    /// Servers above this number are closed when they are idle.
    Keep {
        /// The pool.
        pool: Arc<PoolKey>,
        /// How many; `u32::MAX` once the limits hold.
        keep: u32,
    },
    /// There is no more room for the pool's listening connection.
    Silence {
        /// The pool.
        pool: Arc<PoolKey>,
    },
    /// The answer to a `Pin`.
    Pinned {
        /// The client.
        client: ClientId,
        /// The number of the request.
        ticket: u64,
        /// True if granted.
        granted: bool,
    },
    /// The answer to an `Admit`.
    Admitted {
        /// The client.
        client: ClientId,
        /// The database and user that the client counts for.
        login: Arc<LoginKey>,
        /// The limit that is reached, if any.
        answer: Result<(), &'static str>,
    },
}

/// A pool's wish for room, on its way through the workers.
#[derive(Clone, Debug)]
pub struct RoomWish {
    /// The pool whose login was refused.
    pub(crate) pool: Arc<PoolKey>,
    /// Its worker.
    pub(crate) from: WorkerId,
    /// The PostgreSQL server that has no room.
    pub(crate) place: Address,
    /// How many workers have been asked.
    pub(crate) asked: u16,
    /// The server found so far that has been idle longest: since when, and on which worker.
    pub(crate) idlest: Option<(Time, WorkerId)>,
}

/// The mails that distribute parcels to this many workers, in order. Each worker gets the parcels
/// of the old worker with its number, so that clients stay spread. The Broker must get
/// [`crate::mail::ToBroker::Arrivals`] before the first of them.
pub fn deal(
    parcels: Vec<(WorkerId, Parcel)>,
    workers: u16,
) -> impl Iterator<Item = (WorkerId, Mail)> {
    let parcels = parcels.into_iter().map(move |(worker, parcel)| {
        let to = WorkerId(worker.0 % workers);
        (to, Mail::Adopt(Box::new(parcel)))
    });
    parcels.chain((0..workers).map(|worker| (WorkerId(worker), Mail::AllAdopted)))
}

/// A client on its way to another worker.
#[derive(Debug)]
pub struct Traveller {
    /// The client, with all of its state.
    pub passenger: Passenger,
    /// Facts about the client's pool that the other worker may not know.
    pub lore: PoolLore,
    /// The client has received the NOTICE that it waits.
    pub notified: bool,
    /// Since when the client has waited for a server, if it waits.
    pub waits: Option<Time>,
    /// The worker that the client has left.
    pub left: WorkerId,
    /// How many KILLs of the client's database that worker had obeyed.
    pub kills: u64,
}

/// Sends mail to a worker.
pub type Post<'a> = &'a mut dyn FnMut(WorkerId, Mail);
