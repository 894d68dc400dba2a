//! A client: an application's connection to us.
//!
//! ```text
//!            first packet      placed, admitted     proved        has parameters
//!  Startup ---------------> Login ------------------------> Welcome -----------> Idle
//!     |  \                                                                     /     \
//!     |   CancelRequest: Canceller            no free server        Waiting <-        -> Linked
//!     `-- another worker's: Moving                                     `---------------^
//! ```

pub mod close;
pub mod demand;
pub mod login;
pub mod startup;

use std::sync::Arc;

use crate::event::{Action, ClientId, Ends, Out, Peer, ServerId, Time, WorkerId};
use crate::inbox::Inbox;
use crate::limits;
use crate::params::{Meaning, Params};
use crate::pool::PoolId;
use crate::statement::{Names, Statement};
use crate::tls::TlsFacts;

/// What a client is doing.
#[derive(Debug)]
pub enum State {
    /// Its first packet is awaited.
    Startup,
    /// A TLS handshake is under way; its first packet is awaited behind that.
    Handshake,
    /// It is on its way to another worker, with what it has sent.
    Moving(WorkerId),
    /// The driver lets go of it: it goes on at another worker, between two transactions.
    Leaving {
        /// Which worker.
        to: WorkerId,
        /// It stood in its pool's line.
        waits: bool,
    },
    /// PostgreSQL is asked who its user is.
    Lookup,
    /// It proves who it is.
    Login(Box<login::Login>),
    /// It has proved who it is; the pool does not know PostgreSQL's parameters yet.
    Welcome,
    /// Logged in, not linked.
    Idle,
    /// It has sent something and waits for a server.
    Waiting,
    /// Bound to a server whose parameters are being set to the client's.
    Preparing(ServerId),
    /// Bound to a server.
    Linked(ServerId),
    /// It talks to the console.
    Console(Box<crate::console::Session>),
    /// It asked to cancel another client's query.
    Canceller,
    /// On its way to our successor, as it was.
    Packed(crate::parcel::Standing),
    /// A process that takes over; its socket goes to the control thread.
    Successor,
    /// Its `Close` was asked for.
    Closing,
}

/// See the module.
#[derive(Debug)]
pub struct Client {
    /// What it is doing.
    pub state: State,
    /// Its number in the console: one sequence for clients and servers.
    pub number: u64,
    /// The two ends of its socket.
    pub ends: Ends,
    /// Its TLS session, if it has one.
    pub tls: Option<Arc<TlsFacts>>,
    /// Its stream.
    pub inbox: Inbox,
    /// The pool it takes servers from.
    pub pool: Option<PoolId>,
    /// Who it logged in as (or wants to).
    pub user: Arc<str>,
    /// The database it asked for.
    pub database: Arc<str>,
    /// Its values of the tracked parameters.
    pub params: Option<Arc<Params>>,
    /// Those it asked for at login, if any: what RESET goes back to.
    pub asked: Option<Arc<Params>>,
    /// What its session has besides.
    pub session: Option<Box<crate::session::Session>>,
    /// Those that change what statements mean.
    pub meaning: Meaning,
    /// Its named statements.
    pub names: Names,
    /// How many names it has given so far: the number of the latest.
    pub names_given: u64,
    /// Its unnamed statement.
    pub unnamed: Option<Arc<Statement>>,
    /// Some statement of its own may keep a server for it.
    pub names_keep: bool,
    /// It has asked for `currval` or `lastval`: others' values are forgotten on servers it gets.
    pub asks_numbers: bool,
    /// A message failed; all up to the next Sync are skipped.
    pub group_failed: bool,
    /// What it sends next waits for answers that are under way.
    pub stalled: bool,
    /// A successor takes over: its session is between two transactions and stays there.
    pub parked: bool,
    /// Receiving from it is off.
    paused: bool,
    /// Its server's replies fill its send queue.
    pub congested: bool,
    /// It said goodbye, or broke the protocol; answers under way still go out.
    pub leaving: bool,
    /// What it is told then.
    pub parting: Option<Box<crate::fault::Fault>>,
    /// The Broker counts it.
    pub admitted: bool,
    /// It was told that it is logged in.
    pub welcomed: bool,
    /// What it was last told of `in_hot_standby`.
    pub standby: Option<bool>,
    /// The NOTICE of its wait was sent.
    pub notified: bool,
    /// It connected by replication protocol: logical or physical.
    pub replication: Replication,
    /// Its start-up parameter `options`, if it gets a server of its own.
    pub server_options: Option<Box<[u8]>>,
    /// Protocol 3.2 or newer: cancel keys are long.
    pub long_key: bool,
    /// The cancel key it was given by a process that we took over from.
    pub old_key: Option<Box<crate::cancel::OldKey>>,
    /// When it connected.
    pub connected: Time,
    /// When it last sent something that began a request.
    pub request: Time,
    /// When it last became idle, or idle in a transaction.
    pub quiet: Time,
    /// When its entry in the timers is due; 0 for none.
    pub timer: Time,
}

/// Whether and how a client asked for the replication protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replication {
    /// It did not.
    #[default]
    None,
    /// `replication=database`.
    Logical,
    /// `replication=true`.
    Physical,
}

impl Client {
    /// What it says comes through TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Its TLS session can't go to another process: `travels` says whether any can.
    pub fn is_held_by_tls(&self, travels: bool) -> bool {
        let held = |tls: &Arc<TlsFacts>| !(travels && tls.travels);
        self.tls.as_ref().is_some_and(held)
    }

    /// Receiving from it is off.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Nothing is received from it until further notice.
    pub(crate) fn pause(&mut self, id: ClientId, out: &mut Out) {
        if !std::mem::replace(&mut self.paused, true) {
            out.push(Action::Receive {
                peer: Peer::Client(id),
                on: false,
            });
        }
    }

    /// It is received from again.
    pub(crate) fn unpause(&mut self, id: ClientId, out: &mut Out) {
        if std::mem::take(&mut self.paused) {
            out.push(Action::Receive {
                peer: Peer::Client(id),
                on: true,
            });
        }
    }

    /// It stands in its pool's line.
    pub fn waits(&self) -> bool {
        matches!(self.state, State::Waiting | State::Lookup)
    }

    /// It waits for a server that it will share with nobody.
    pub fn waits_for_its_own(&self) -> bool {
        matches!(self.state, State::Waiting) && self.replication.any()
    }

    /// The server it is bound to.
    pub fn link(&self) -> Option<ServerId> {
        match self.state {
            State::Linked(server) | State::Preparing(server) => Some(server),
            _ => None,
        }
    }

    /// Its session keeps its server between transactions.
    pub fn is_pinned(&self) -> bool {
        let session = self.session.as_deref();
        session.is_some_and(|session| !session.pinned.is_empty())
    }

    /// There may be temporary tables of its own, in the place of others.
    pub fn has_temporary(&self) -> bool {
        use crate::effect::Kinds;
        self.session.as_deref().is_some_and(|session| {
            let kinds = session.pinned.and(session.pending.kinds);
            kinds.any(Kinds::TEMPORARY)
        })
    }

    /// What comes from its server between two transactions is for it, too.
    pub fn hears(&self) -> bool {
        use crate::effect::Kinds;
        let session = self.session.as_deref();
        session.is_some_and(|session| {
            !session.pinned.is_empty() || session.pending.kinds.any(Kinds::LISTENS)
        })
    }

    /// How much of what it has sent is held before it is not read from any more, in bytes.
    pub fn held_max(&self) -> usize {
        match self.state {
            State::Waiting => limits::WAITING,
            _ => limits::HELD,
        }
    }

    /// What it has sent can't be worked through for now.
    pub fn holds_back(&self) -> bool {
        let works = matches!(self.state, State::Linked(_) | State::Idle);
        self.stalled || self.parked || self.leaving || !works
    }
}

impl Replication {
    /// The client asked for it.
    pub fn any(self) -> bool {
        self != Replication::None
    }
}

// An idle client is mostly this: it must stay small, there may be tens of thousands.
const _: () = assert!(size_of::<Client>() <= 384);
