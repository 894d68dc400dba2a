//! A server: our connection to PostgreSQL.
//!
//! ```text
//!  Resolving -> Connecting -> (Securing) -> Login -> (ConnectQuery) -> Idle <--> Linked
//!                                                                      ^  |         |
//!                                                     Used -> Checking-'  `- Lent   v
//!                                                                      ^         Resetting, Draining
//!                                                                      `------------'
//! ```

pub mod connect;
pub mod ending;
pub mod login;
pub mod parcel;
pub mod secure;
pub mod task;

pub use ending::Ending;
pub use parcel::ServerParcel;

use std::sync::Arc;

use crate::Seeded;
use crate::event::{Action, ClientId, Ends, Out, Peer, ServerId, Time, WorkerId};
use crate::inbox::Inbox;
use crate::link::Link;
use crate::params::Params;
use crate::pool::{PoolId, PoolKey};
use crate::statement::{ServerSet, Statement};
use crate::tls::TlsFacts;
use howdah_wire::backend::Status;

/// What a server is doing.
#[derive(Debug)]
pub enum State {
    /// Its host's addresses are being looked up.
    Resolving,
    /// The socket is being opened.
    Connecting,
    /// PostgreSQL is asked for TLS, or a handshake is under way.
    Securing(secure::Securing),
    /// We prove who we are.
    Login(Box<login::Login>),
    /// `connect_query` runs.
    ConnectQuery,
    /// In the pool, ready.
    Idle,
    /// In the pool, idle for so long that it is tested before use.
    Used,
    /// The check query runs.
    Checking,
    /// Bound to a client; its parameters are being set.
    Preparing(ClientId),
    /// Bound to a client.
    Linked(ClientId),
    /// Its client has left; what it owes is read and dropped.
    Draining,
    /// The reset query runs.
    Resetting,
    /// It looks a client's user up.
    Lookup(Box<crate::lookup::Lookup>),
    /// A cancel for it is under way; no client has it.
    BeingCancelled,
    /// On its way to another worker.
    Lent(WorkerId),
    /// On its way to our successor.
    Packed,
    /// Carries a CancelRequest.
    Cancel(Box<crate::cancel::Errand>),
    /// Its `Close` was asked for.
    Closing,
}

/// How far a server is that gets its client's settings, if PostgreSQL has refused to set them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trial {
    /// It has not.
    #[default]
    First,
    /// Perhaps because of what other clients have left: that is to be cleaned away.
    Refused,
    /// That is being done.
    Cleans,
    /// On a clean server it has not refused.
    Clean,
    /// Only another role may set them: they are to be set behind the role.
    Denied,
    /// That was done.
    Last,
}

/// Whose values of sequences a server has, as `currval` and `lastval` tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Numbers {
    /// Nobody's.
    #[default]
    Nobody,
    /// Those of the client with this number in the console.
    Of(u64),
    /// Those of several clients.
    Several,
}

impl Trial {
    /// Its next step is due once PostgreSQL has answered.
    pub fn goes_on(self) -> bool {
        matches!(self, Trial::Refused | Trial::Cleans | Trial::Denied)
    }
}

/// Which unnamed statement a server has.
#[derive(Clone, Debug)]
pub enum Unnamed {
    /// This one, or none.
    Known(Option<Arc<Statement>>),
    /// Not known: it is new here, or was made in a way that is nobody else's.
    Unknown,
}

/// See the module.
#[derive(Debug)]
pub struct Server {
    /// What it is doing.
    pub state: State,
    /// Its number in the console: one sequence for clients and servers.
    pub number: u64,
    /// The pool it belongs to.
    pub pool: PoolId,
    /// Where it is connected to, as the log shows that.
    pub to: Box<str>,
    /// The two ends of its socket, once connected.
    pub ends: Option<Ends>,
    /// The name of the host it was connected to, if the configuration has a name.
    pub host: Option<Box<str>>,
    /// Its TLS session, if it has one.
    pub tls: Option<Arc<TlsFacts>>,
    /// Its stream.
    pub inbox: Inbox,
    /// Its link, or what is left of one.
    pub link: Link,
    /// The last transaction status it told.
    pub status: Status,
    /// Its values of the tracked parameters.
    pub params: Arc<Params>,
    /// Other settings that clients' sessions have there.
    pub session: crate::session::settings::Maybe,
    /// A client may have left more than that: it is cleaned before another gets it.
    pub soiled: bool,
    /// Something was found there that no text had told: likewise.
    pub unseen: bool,
    /// How far it is with its client's settings.
    pub trial: Trial,
    /// Whose values of sequences it has (`currval`, `lastval`).
    pub numbers: Numbers,
    /// What its client runs there, if it is checked when it is released.
    pub check: Option<Box<crate::session::check::Check>>,
    /// What it is asked about its client's session.
    pub inquiry: Option<Box<crate::session::inquiry::Inquiry>>,
    /// The statements it has.
    pub set: ServerSet,
    /// Its unnamed statement, as far as PostgreSQL has answered.
    unnamed: Unnamed,
    /// SQL-level PREPARE was used by its client.
    pub sql_prepared: bool,
    /// A ROLLBACK was sent after its client left.
    pub rolled_back: bool,
    /// A message to it ends in the middle: nothing may follow, a Terminate would be taken for the
    /// rest of it.
    pub cut_off: bool,
    /// Some client was bound to it, here.
    pub served: bool,
    /// Why it must be closed instead of going back to the pool.
    ending: Option<Ending>,
    /// What it last said of `in_hot_standby`.
    pub standby: Option<bool>,
    /// Cancel requests under way for it.
    pub cancels: u32,
    /// Process id and secret, for cancels.
    pub key: Option<(u32, Box<[u8]>)>,
    /// Receiving from it is off.
    paused: bool,
    /// Its send queue is full: its client is not read from.
    pub congested: bool,
    /// The Broker counts it.
    pub permitted: bool,
    /// It is being closed, so that PostgreSQL has room for a server of this worker's pool.
    pub makes_room_for: Option<(WorkerId, Arc<PoolKey>)>,
    /// It was opened for this client alone (replication).
    pub reserved: Option<ClientId>,
    /// It serves a replication client only.
    pub replication: bool,
    /// When it was connected.
    pub connected: Time,
    /// When it last changed hands.
    pub since: Time,
    /// When its client's current transaction began.
    pub linked: Time,
    /// When the request under way began.
    pub request: Time,
    /// When its entry in the timers is due; 0 for none.
    pub timer: Time,
}

impl Server {
    /// What we say to each other goes through TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// A server of which nothing is known yet.
    pub(crate) fn blank(pool: PoolId, seeded: Seeded, now: Time) -> Self {
        Server {
            state: State::Resolving,
            number: 0,
            pool,
            to: "(unconnected)".into(),
            ends: None,
            host: None,
            tls: None,
            inbox: Inbox::default(),
            link: Link::default(),
            status: Status::Idle,
            params: Arc::new(Params::none()),
            session: None,
            soiled: false,
            unseen: false,
            numbers: Numbers::default(),
            check: None,
            inquiry: None,
            set: ServerSet::new(seeded),
            unnamed: Unnamed::Unknown,
            sql_prepared: false,
            trial: Trial::First,
            rolled_back: false,
            cut_off: false,
            served: false,
            ending: None,
            cancels: 0,
            key: None,
            standby: None,
            paused: false,
            congested: false,
            permitted: false,
            makes_room_for: None,
            reserved: None,
            replication: false,
            connected: now,
            since: now,
            linked: now,
            request: now,
            timer: Time(0),
        }
    }

    /// A client has left something there, or may have.
    pub(crate) fn soil(&mut self, left: bool) {
        self.soiled |= left;
    }

    /// What clients' settings it has, as far as anybody knows.
    pub(crate) fn has_settings(&mut self, settings: crate::session::settings::Maybe) {
        self.session = settings;
    }

    /// What a client has left there goes by DISCARD ALL only.
    pub(crate) fn must_be_cleaned(&self) -> bool {
        self.soiled || self.unseen
    }

    /// Receiving from it is off.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Nothing is received from it until further notice.
    pub(crate) fn pause(&mut self, id: ServerId, out: &mut Out) {
        if !std::mem::replace(&mut self.paused, true) {
            out.push(Action::Receive {
                peer: Peer::Server(id),
                on: false,
            });
        }
    }

    /// It is received from again.
    pub(crate) fn unpause(&mut self, id: ServerId, out: &mut Out) {
        if std::mem::take(&mut self.paused) {
            out.push(Action::Receive {
                peer: Peer::Server(id),
                on: true,
            });
        }
    }

    /// Why it must be closed instead of going back to the pool, if it must.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// It must be closed, for this reason, whatever was one before.
    pub(crate) fn must_close(&mut self, why: Ending) {
        self.ending = Some(why);
    }

    /// It must be closed; a reason that there was before counts.
    pub(crate) fn must_close_too(&mut self, why: Ending) {
        self.ending.get_or_insert(why);
    }

    /// Its unnamed statement, as far as PostgreSQL has answered.
    pub(crate) fn unnamed(&self) -> &Unnamed {
        &self.unnamed
    }

    /// PostgreSQL has agreed to another unnamed statement, or has none: a Query drops it.
    pub(crate) fn has_unnamed(&mut self, statement: Option<Arc<Statement>>) {
        self.unnamed = Unnamed::Known(statement);
    }

    /// What its unnamed statement is, is known no more.
    pub(crate) fn doubt_unnamed(&mut self) {
        self.unnamed = Unnamed::Unknown;
    }

    /// The client it is bound to.
    pub fn client(&self) -> Option<ClientId> {
        match self.state {
            State::Linked(client) | State::Preparing(client) => Some(client),
            _ => None,
        }
    }

    /// The last ReadyForQuery did not tell of a failed transaction.
    pub fn not_failed(&self) -> bool {
        self.status != Status::Failed
    }
}
