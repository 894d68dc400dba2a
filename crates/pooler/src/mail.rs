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
    /// A client that this worker shall serve.
    Client(Box<ClientParcel>),
    /// A client that goes on here, between two transactions.
    Move(Box<Traveller>),
    /// So many clients of a pool shall go to another worker.
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
    /// Where newcomers of a pool go.
    Seats(Arc<PoolKey>, Arc<[WorkerId]>),
    /// Where newcomers of pools go of which nothing was said.
    NewPools(WorkerId),
    /// To the worker that a client's key names: the client has come to another.
    KeyAt {
        /// The key.
        key: OldKey,
        /// Where the client is.
        at: WorkerId,
        /// Where it comes from: that one may forget it now.
        left: Option<Departure>,
    },
    /// To the worker that such a client has left: its note of this number has done its duty.
    KeyNoted(u64),
    /// To the worker that a client's key names: the client is no more.
    KeyGone(OldKey),
    /// The client of this number in the console is to be disconnected: it was elsewhere when that
    /// was asked. It is followed for so many steps more.
    KillMoved(u64, u8),
    /// A server that this worker asked for.
    Server(Box<ServerParcel>),
    /// What PostgreSQL told another worker at the login of a pool's last server: clients need not
    /// wait for a server of their own to be let in. With the number of the last order of RECONNECT
    /// and the like its sender obeyed.
    Welcome(Arc<PoolKey>, Box<Welcome>, u64),
    /// A pool wants room for a server at PostgreSQL.
    MakeRoom(Box<RoomWish>),
    /// To who sent that: a server of another pool is gone; or (false) none is idle.
    Room(Arc<PoolKey>, bool),
    /// From the Broker.
    Brokered(FromBroker),
    /// A client's cancel request, to the worker its key names.
    Cancel {
        /// The key's first half.
        pid: u32,
        /// The key's second half.
        secret: Box<[u8]>,
        /// Who wants to know when it is done.
        from: (WorkerId, ClientId),
        /// Nothing ran when it came, and all that came before it has been handled since.
        again: bool,
        /// It may not be at the worker that the key names: the client has moved, or it is `again`.
        forwarded: bool,
    },
    /// A cancel request is done, or there was nothing to do (true); or its key is nobody's (false).
    Cancelled(ClientId, bool),
    /// To the worker of a listening connection.
    ToListener(ToListener),
    /// From there.
    FromListener(FromListener),
    /// A cancel request for a peer, to worker 0, which forwards them.
    Forward {
        /// The peer's id.
        peer: u16,
        /// The CancelRequest.
        packet: Vec<u8>,
        /// Who wants to know when it is done.
        from: (WorkerId, ClientId),
    },
    /// A pool's server has told that it is a standby, or no longer.
    Standby(Arc<PoolKey>, bool),
    /// The schema of a database was changed: [`crate::statement::Interner::untold`].
    SchemaChanged(Arc<str>, u64),
    /// An order for all workers, numbered by who gave it.
    Order(Order),
    /// The console of a worker asks what this one has.
    Survey(Survey),
    /// What a worker has.
    Report(Report),
    /// A connection of the process that we took over from.
    Adopt(Box<Parcel>),
    /// That was the last one for this worker.
    AllAdopted,
    /// Nobody comes from there any more.
    NoMoreArrivals,
    /// What that process knew besides.
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
    /// All it has sent: the start-up packet first.
    pub bytes: Vec<u8>,
}

/// Bounds on clients, as the configuration has them; 0 for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientBounds {
    /// `max_client_conn`.
    pub total: u32,
    /// `max_db_client_connections`, `max_user_client_connections`.
    pub shared: Each<u32>,
}

/// What the Broker is told.
#[derive(Debug)]
pub enum ToBroker {
    /// Clients of a worker wait. Said anew while they do.
    Need {
        /// Whose.
        worker: WorkerId,
        /// For which pool.
        pool: Arc<PoolKey>,
        /// How long the oldest has waited, in nanoseconds.
        age: u64,
        /// How many wait.
        waiting: u32,
        /// The worker does not know yet what PostgreSQL tells at a login.
        unwelcomed: bool,
        /// A client waits that takes none of the pool's idle servers.
        replication: bool,
        /// The worker would open a server. Else it would only have one lent: logins fail.
        opens: bool,
        /// The pool's bounds.
        bounds: Bounds,
    },
    /// Nobody waits any more.
    Sated {
        /// Whose.
        worker: WorkerId,
        /// For which pool.
        pool: Arc<PoolKey>,
    },
    /// A permit is given back: PostgreSQL has let go.
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
    /// `min_pool_size` wants a server more, if the bounds allow.
    Warm {
        /// Who would have it.
        worker: WorkerId,
        /// For which pool.
        pool: Arc<PoolKey>,
        /// How many the pool shall have.
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
    /// A client wants in.
    Admit {
        /// Where it is.
        worker: WorkerId,
        /// Who.
        client: ClientId,
        /// Which database and user.
        login: Arc<PoolKey>,
        /// Who may get in.
        bounds: ClientBounds,
    },
    /// There was no idle server to close for a pool that a bound holds back.
    NothingToEvict {
        /// Who says so, and closes the next that it can.
        worker: WorkerId,
        /// The pool that wants to grow.
        pool: Arc<PoolKey>,
    },
    /// Connections are about to come from the process that we took over from, or to come back.
    Arrivals {
        /// How many workers get some, and each says when it has all.
        workers: u16,
    },
    /// A worker has all that came for it.
    AllArrived,
    /// A server came from the process that we took over from: it counts.
    ServerEntered {
        /// Who has it.
        worker: WorkerId,
        /// In which pool.
        pool: Arc<PoolKey>,
    },
    /// Likewise a client.
    ClientEntered {
        /// Which database and user.
        login: Arc<PoolKey>,
    },
    /// A client would keep a server between transactions.
    Pin {
        /// Where it is.
        worker: WorkerId,
        /// Who.
        client: ClientId,
        /// Names what is asked: one of the worker's.
        ticket: u64,
        /// In which pool.
        pool: Arc<PoolKey>,
        /// What if too many do.
        wish: PinWish,
        /// The pool's bounds.
        bounds: Bounds,
    },
    /// It keeps none any more, or does not wait for that any more.
    Unpin {
        /// Where it is.
        worker: WorkerId,
        /// What it asked.
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

/// What a client wants that would keep a server while too many do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinWish {
    /// It stands in line.
    Waits,
    /// It wants to be told at once.
    Knows,
}

/// Where room for a server can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evict {
    /// In other pools under a bound.
    Under(SharedBound),
    /// In the pool itself: who waits can't use its idle servers.
    Same,
}

impl Evict {
    /// A server of the other pool makes room for one of this.
    pub fn concerns(self, pool: &PoolKey, other: &PoolKey) -> bool {
        match self {
            Evict::Under(bound) => bound.concerns(pool, other),
            Evict::Same => other == pool,
        }
    }
}

/// What the Broker tells.
#[derive(Debug)]
pub enum FromBroker {
    /// Open a server.
    Permit {
        /// In which pool.
        pool: Arc<PoolKey>,
        /// It comes from the reserve.
        reserve: bool,
        /// It is for `min_pool_size`: nobody need wait.
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
        /// It does not know yet what PostgreSQL tells at a login.
        unwelcomed: bool,
        /// It will get a permit: only a server that is idle now is worth lending.
        idle_only: bool,
    },
    /// The worker has more servers for each client that waits than another one: the next that comes
    /// back goes there.
    Give {
        /// Of which pool.
        pool: Arc<PoolKey>,
        /// To whom.
        to: WorkerId,
    },
    /// Logins fail for the worker that said `Need`, and no other has a server that it could lend.
    Alone {
        /// In which pool.
        pool: Arc<PoolKey>,
    },
    /// A pool needs a server and a bound holds it back: close the idle server that was not used
    /// for longest.
    Evict {
        /// The pool that wants to grow.
        pool: Arc<PoolKey>,
        /// Which servers may go.
        from: Evict,
        /// How long its oldest client has waited, in nanoseconds.
        age: u64,
    },
    /// The pool of an `Evict` waits no more: nothing need be closed for it.
    Content {
        /// The pool that wanted to grow.
        pool: Arc<PoolKey>,
    },
    /// Which bound holds back the pool of a `Need`: for those who ask why clients wait. Said when it
    /// is another than before.
    HeldBack {
        /// The pool that wants to grow.
        pool: Arc<PoolKey>,
        /// By what.
        by: HeldBy,
    },
    /// How many servers of a pool the worker may keep, because its bounds were lowered; those above
    /// it go when they are idle.
    Keep {
        /// Of which pool.
        pool: Arc<PoolKey>,
        /// How many; `u32::MAX` once there are no more than the bounds allow.
        keep: u32,
    },
    /// There is no room for a connection that listens any more.
    Silence {
        /// Of which pool.
        pool: Arc<PoolKey>,
    },
    /// A client may keep a server, or must not.
    Pinned {
        /// Who.
        client: ClientId,
        /// What it asked.
        ticket: u64,
        /// It may.
        granted: bool,
    },
    /// The client is in, or the name of the bound that keeps it out.
    Admitted {
        /// Who.
        client: ClientId,
        /// The database and user it is counted under.
        login: Arc<PoolKey>,
        /// The bound, if one is reached.
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
    /// Where PostgreSQL has no room.
    pub(crate) place: Address,
    /// How many workers have been asked.
    pub(crate) asked: u16,
    /// Since when the idlest server seen so far is idle, and which worker has it.
    pub(crate) idlest: Option<(Time, WorkerId)>,
}

/// The mails that deal out parcels to so many workers, in their order: each gets what the worker of
/// its number had, as cancel keys name workers. Before the first of them the Broker is told of
/// [`crate::mail::ToBroker::Arrivals`].
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
    /// All of it.
    pub passenger: Passenger,
    /// What the worker it goes to may not know of its pool.
    pub lore: PoolLore,
    /// It was told that it waits.
    pub notified: bool,
    /// Since when it wants a server, if it does.
    pub waits: Option<Time>,
    /// The worker it comes from, and the number of that one's note.
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
