//! Mail between workers.

use std::sync::Arc;

use crate::cancel::OldKey;
use crate::console::{Report, Survey};
use crate::event::{Address, ClientId, Ends, LooseSocket, Order};
use crate::ids::{Time, WorkerId};
use crate::listen::{FromListener, ToListener};
use crate::parcel::{Estate, Parcel, Passenger, PoolLore};
use crate::pool::bound::{Each, SharedBound};
use crate::pool::key::{PoolKey, Welcome};
use crate::pool::terms::{Bounds, HeldBy};
use crate::server::ServerParcel;
use crate::tls::TlsFacts;

/// A message between workers of one process, or from a worker to itself.
#[derive(Debug)]
pub enum Mail {
    /// A newly accepted client that this worker is to serve.
    Client(Box<ClientParcel>),
    /// A client that moves to this worker, between two transactions.
    Move(Box<Traveller>),
    /// Move so many clients of a pool to another worker.
    Shed {
        /// Which pool.
        pool: Arc<PoolKey>,
        /// Where to.
        to: WorkerId,
        /// How many.
        clients: u32,
        /// Those who do nothing go, too; else only who was active lately.
        idle: bool,
    },
    /// The workers that new clients of a pool go to.
    Seats(Arc<PoolKey>, Arc<[WorkerId]>),
    /// The worker that new clients go to if their pool has no seats.
    NewPools(WorkerId),
    /// To the worker that a client's key names: the client has moved to another worker.
    KeyAt {
        /// The key.
        key: OldKey,
        /// Where the client is.
        at: WorkerId,
        /// The worker that it has left, which may now forget its note.
        left: Option<Departure>,
    },
    /// To the worker that a client has left: its note of this number may be forgotten.
    KeyNoted(u64),
    /// To the worker that a client's key names: the client has ended.
    KeyGone(OldKey),
    /// Disconnect the client of this console number (KILL_CLIENT). The client had moved when the
    /// order came; the order follows it for so many further steps.
    KillMoved(u64, u8),
    /// A server that this worker asked for.
    Server(Box<ServerParcel>),
    /// What PostgreSQL reported to another worker at the login of a pool's last server. With it,
    /// clients of this worker can finish their logins without waiting for a server. The number is
    /// that of the last RECONNECT (or the like) that the sender had obeyed.
    Welcome(Arc<PoolKey>, Box<Welcome>, u64),
    /// A pool wants room for a server at PostgreSQL.
    MakeRoom(Box<RoomWish>),
    /// The answer to a wish for room: a server of another pool is gone; or (false) no server is
    /// idle.
    Room(Arc<PoolKey>, bool),
    /// A message from the Broker.
    Brokered(FromBroker),
    /// A client's cancel request, to the worker its key names.
    Cancel {
        /// The key's first half.
        pid: u32,
        /// The key's second half.
        secret: Box<[u8]>,
        /// The client connection that awaits the end of the request.
        from: (WorkerId, ClientId),
        /// A second look: nothing ran when the request came, and all bytes that came before it have
        /// been handled since.
        again: bool,
        /// The request may go to a worker other than the one that the key names: the client has
        /// moved, or this is a second look (`again`).
        forwarded: bool,
    },
    /// A cancel request is done, or there was nothing to cancel (true); or no client has its key
    /// (false).
    Cancelled(ClientId, bool),
    /// To the worker of a listening connection.
    ToListener(ToListener),
    /// From the worker of a listening connection.
    FromListener(FromListener),
    /// A cancel request for a peer, to worker 0, which forwards them.
    Forward {
        /// The peer's id.
        peer: u16,
        /// The CancelRequest.
        packet: Vec<u8>,
        /// The client connection that awaits the end of the request.
        from: (WorkerId, ClientId),
    },
    /// A pool's server has reported that it is a standby, or no longer one.
    Standby(Arc<PoolKey>, bool),
    /// The schema of a database was changed: [`crate::statement::Interner::untold`].
    SchemaChanged(Arc<str>, u64),
    /// An order for all workers, numbered by who gave it.
    Order(Order),
    /// A worker's console asks what this worker has.
    Survey(Survey),
    /// What a worker has.
    Report(Report),
    /// A connection of the process that we took over from.
    Adopt(Box<Parcel>),
    /// All connections for this worker have come.
    AllAdopted,
    /// No more connections come from that process.
    NoMoreArrivals,
    /// The rest of that process's state.
    Inherit(Arc<Estate>),
}

/// A client on its way.
#[derive(Debug)]
pub struct ClientParcel {
    /// Its socket.
    pub socket: LooseSocket,
    /// Its ends.
    pub ends: Ends,
    /// Its TLS session, if it has one.
    pub tls: Option<Arc<TlsFacts>>,
    /// Its number in the console.
    pub number: u64,
    /// When it connected.
    pub connected: Time,
    /// All bytes that it has sent, the start-up packet first.
    pub bytes: Vec<u8>,
}

/// Limits on clients, from the configuration; 0 for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientBounds {
    /// `max_client_conn`.
    pub total: u32,
    /// `max_db_client_connections`, `max_user_client_connections`.
    pub shared: Each<u32>,
}

/// Messages to the Broker.
#[derive(Debug)]
pub enum ToBroker {
    /// Clients of a worker wait for a server. Repeated while they wait.
    Need {
        /// Whose.
        worker: WorkerId,
        /// For which pool.
        pool: Arc<PoolKey>,
        /// How long the oldest has waited, in nanoseconds.
        age: u64,
        /// How many wait.
        waiting: u32,
        /// The worker does not know yet which parameters PostgreSQL reports at a login.
        unwelcomed: bool,
        /// A replication client waits: it can't use the pool's idle servers.
        replication: bool,
        /// The worker wants to open a server. If false, it only wants to be lent one, because
        /// logins fail.
        opens: bool,
        /// The pool's bounds.
        bounds: Bounds,
    },
    /// No client of the worker waits any more.
    Sated {
        /// Whose.
        worker: WorkerId,
        /// For which pool.
        pool: Arc<PoolKey>,
    },
    /// A permit is given back: PostgreSQL has closed the connection.
    Freed {
        /// By whom.
        worker: WorkerId,
        /// For which pool.
        pool: Arc<PoolKey>,
    },
    /// A permit has moved with its server.
    Moved {
        /// Who had it.
        from: WorkerId,
        /// Who has it now.
        to: WorkerId,
        /// For which pool.
        pool: Arc<PoolKey>,
    },
    /// `min_pool_size` demands one more server, if the limits allow.
    Warm {
        /// Who would have it.
        worker: WorkerId,
        /// For which pool.
        pool: Arc<PoolKey>,
        /// How many servers the pool is to have.
        wanted: u32,
        /// The pool's bounds.
        bounds: Bounds,
    },
    /// A reload changed a pool's bounds.
    Bounds {
        /// Who says so.
        worker: WorkerId,
        /// Of which pool.
        pool: Arc<PoolKey>,
        /// What they are now.
        bounds: Bounds,
    },
    /// A client asks to be admitted.
    Admit {
        /// Where it is.
        worker: WorkerId,
        /// Who.
        client: ClientId,
        /// Which database and user.
        login: Arc<PoolKey>,
        /// The limits on clients.
        bounds: ClientBounds,
    },
    /// There was no idle server to close for a pool that a limit holds back.
    NothingToEvict {
        /// The worker that says so. It closes the next server that becomes idle.
        worker: WorkerId,
        /// The pool that wants to grow.
        pool: Arc<PoolKey>,
    },
    /// Connections are about to come from the process that we took over from, or to return from a
    /// failed takeover.
    Arrivals {
        /// How many workers get connections. Each reports when it has all of its own.
        workers: u16,
    },
    /// A worker has all of its connections.
    AllArrived,
    /// A server came from the process that we took over from: the Broker counts it.
    ServerEntered {
        /// Who has it.
        worker: WorkerId,
        /// In which pool.
        pool: Arc<PoolKey>,
    },
    /// A client came from the process that we took over from.
    ClientEntered {
        /// Which database and user.
        login: Arc<PoolKey>,
    },
    /// A client asks for permission to keep a server between transactions.
    Pin {
        /// Where it is.
        worker: WorkerId,
        /// Who.
        client: ClientId,
        /// The number of the request, unique on its worker.
        ticket: u64,
        /// In which pool.
        pool: Arc<PoolKey>,
        /// What the client does if too many clients keep one.
        wish: PinWish,
        /// The pool's bounds.
        bounds: Bounds,
    },
    /// The client keeps no server any more, or no longer waits for permission.
    Unpin {
        /// Where it is.
        worker: WorkerId,
        /// The number of the request.
        ticket: u64,
        /// In which pool.
        pool: Arc<PoolKey>,
    },
    /// An admitted client has left.
    Left {
        /// Which database and user.
        login: Arc<PoolKey>,
    },
}

/// What a client does if too many clients keep servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinWish {
    /// It waits for permission.
    Waits,
    /// It is answered at once.
    Knows,
}

/// Where room for a server can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evict {
    /// In other pools under the same limit.
    Under(SharedBound),
    /// In the pool itself: the client that waits can't use the pool's idle servers.
    Same,
}

impl Evict {
    /// True if closing a server of the other pool makes room for one of this pool.
    pub fn concerns(self, pool: &PoolKey, other: &PoolKey) -> bool {
        match self {
            Evict::Under(bound) => bound.concerns(pool, other),
            Evict::Same => other == pool,
        }
    }
}

/// Messages from the Broker.
#[derive(Debug)]
pub enum FromBroker {
    /// Open a server.
    Permit {
        /// In which pool.
        pool: Arc<PoolKey>,
        /// It comes from the reserve.
        reserve: bool,
        /// It is for `min_pool_size`, whether or not a client waits.
        warm: bool,
    },
    /// Another worker's clients wait.
    Hungry {
        /// Whose.
        worker: WorkerId,
        /// For which pool.
        pool: Arc<PoolKey>,
        /// How long its oldest has waited, in nanoseconds.
        age: u64,
        /// That worker does not know yet which parameters PostgreSQL reports at a login.
        unwelcomed: bool,
        /// That worker will get a permit, so only a server that is idle now is worth lending.
        idle_only: bool,
    },
    /// This worker has more servers for each waiting client than another one. The next released
    /// server goes to that worker.
    Give {
        /// Of which pool.
        pool: Arc<PoolKey>,
        /// To whom.
        to: WorkerId,
    },
    /// Logins fail for the worker that said `Need`, and no other worker has a server to lend.
    Alone {
        /// In which pool.
        pool: Arc<PoolKey>,
    },
    /// A pool needs a server, and a limit holds it back: close the server that has been idle
    /// longest.
    Evict {
        /// The pool that wants to grow.
        pool: Arc<PoolKey>,
        /// Which servers may go.
        from: Evict,
        /// How long its oldest client has waited, in nanoseconds.
        age: u64,
    },
    /// The pool of an `Evict` no longer waits: no server need be closed for it.
    Content {
        /// The pool that wanted to grow.
        pool: Arc<PoolKey>,
    },
    /// Which limit holds back the pool of a `Need`, for SHOW CLIENTS and the like. Sent when it
    /// changes.
    HeldBack {
        /// The pool that wants to grow.
        pool: Arc<PoolKey>,
        /// By what.
        by: HeldBy,
    },
    /// How many servers of a pool the worker may keep, because the pool's limits were lowered.
    /// Servers above that number are closed when they are idle.
    Keep {
        /// Of which pool.
        pool: Arc<PoolKey>,
        /// How many; `u32::MAX` once there are no more than the limits allow.
        keep: u32,
    },
    /// There is no more room for the pool's listening connection.
    Silence {
        /// Of which pool.
        pool: Arc<PoolKey>,
    },
    /// The answer to a `Pin`: the client may keep a server, or must not.
    Pinned {
        /// Who.
        client: ClientId,
        /// The number of the request.
        ticket: u64,
        /// It may.
        granted: bool,
    },
    /// The answer to an `Admit`: the client is admitted, or the name of the limit that is reached.
    Admitted {
        /// Who.
        client: ClientId,
        /// The database and user it is counted under.
        login: Arc<PoolKey>,
        /// The limit that is reached, if any.
        answer: Result<(), &'static str>,
    },
}

/// A wish for room, on its way through the workers.
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
    /// Since when the longest idle server seen so far is idle, and which worker has it.
    pub(crate) idlest: Option<(Time, WorkerId)>,
}

/// The mails that deal out parcels to so many workers, in order. Each worker gets the parcels of
/// the old worker with its number, because cancel keys name workers. Before the first of them the
/// Broker is told of [`crate::mail::ToBroker::Arrivals`].
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
    /// Facts about its pool that the other worker may not know.
    pub lore: PoolLore,
    /// The NOTICE that it waits was sent.
    pub notified: bool,
    /// Since when it wants a server, if it does.
    pub waits: Option<Time>,
    /// The worker that it comes from, and the number of that worker's note.
    pub left: Departure,
    /// How many KILLs of its database that worker had obeyed.
    pub kills: u64,
}

/// A worker that a client has left, and its note of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure {
    /// Which worker.
    pub worker: WorkerId,
    /// The number of its note.
    pub note: u64,
}

/// Where answers go.
pub type Post<'a> = &'a mut dyn FnMut(WorkerId, Mail);
