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
pub mod parcel;
pub mod startup;
pub mod state;

pub use state::ClientState;

use std::sync::Arc;

use crate::console::ConsoleSession;
use crate::effect::Effects;
use crate::event::{ClientId, Ends, Peer, ServerId, Time, WorkerId};
use crate::inbox::Inbox;
use crate::ledger::{Change, NameOp};
use crate::limits;
use crate::link::End;
use crate::listen::Hush;
use crate::params::{Meaning, Params};
use crate::pool::key::PoolId;
use crate::session::settings::Maybe;
use crate::statement::{NamedStatements, Statement};
use crate::timers::Timers;
use crate::tls::TlsFacts;
use crate::valve::Valve;

/// An application's connection to Howdah, and the client's session.
#[derive(Debug)]
pub struct Client {
    /// What it is doing.
    state: ClientState,
    /// Its number in the console: one sequence for clients and servers.
    pub(crate) number: u64,
    /// The two ends of its socket.
    pub(crate) ends: Ends,
    /// Its TLS session, if it has one.
    pub(crate) tls: Option<Arc<TlsFacts>>,
    /// Its stream.
    pub(crate) inbox: Inbox,
    /// The pool it takes servers from.
    pub(crate) pool: Option<PoolId>,
    /// The user that it has logged in as, or wants to.
    pub(crate) user: Arc<str>,
    /// The database it asked for.
    pub(crate) database: Arc<str>,
    /// Its values of the tracked parameters.
    pub(crate) params: Option<Arc<Params>>,
    /// The values that it asked for at login, if any: what RESET goes back to.
    pub(crate) asked: Option<Arc<Params>>,
    /// The rest of its session: settings that are not tracked, reasons that keep its server,
    /// channels.
    pub(crate) session: Option<Box<crate::session::Session>>,
    /// The values of those parameters that change what statements mean (`DateStyle`, `search_path`).
    pub(crate) meaning: Meaning,
    /// Its named statements.
    pub(crate) names: NamedStatements,
    /// How many statements it has named so far: the number of the latest name.
    names_given: u64,
    /// Its unnamed statement.
    pub(crate) unnamed: Option<Arc<Statement>>,
    /// One of its statements may keep a server for it.
    names_keep: bool,
    /// It has asked for `currval` or `lastval`: other clients' values are removed from servers that
    /// it gets.
    asks_numbers: bool,
    /// The server that it used last, by its number in the console; 0 if that is not known.
    last_server: u64,
    /// Its end of its link.
    pub(crate) end: End,
    /// During a takeover: its session is between two transactions and waits there.
    pub(crate) parked: bool,
    /// It hears channels by the listener ([`crate::listen`]).
    listens: bool,
    /// Which answer of the listener it waits for.
    hush: Hush,
    /// The valve of its socket.
    pub(crate) valve: Valve,
    /// `TellFlushed` was asked for it, and `Flushed` has not come yet.
    unread: bool,
    /// It said goodbye, or broke the protocol; answers under way still go out.
    pub(crate) leaving: bool,
    /// The error that it gets when it leaves.
    pub(crate) parting: Option<Box<crate::fault::Fault>>,
    /// The Broker counts it.
    pub(crate) admitted: bool,
    /// It has got its greeting: it is logged in.
    pub(crate) welcomed: bool,
    /// The last value of `in_hot_standby` that it was sent.
    pub(crate) standby: Option<bool>,
    /// The NOTICE of its wait was sent.
    pub(crate) notified: bool,
    /// It connected by replication protocol: logical or physical.
    pub(crate) replication: Replication,
    /// Its start-up parameter `options`, if it gets a server of its own.
    pub(crate) server_options: Option<Box<[u8]>>,
    /// Protocol 3.2 or newer: cancel keys are long.
    pub(crate) long_key: bool,
    /// The cancel key it was given by a process that we took over from.
    pub(crate) old_key: Option<Box<crate::cancel::OldKey>>,
    /// When it connected.
    pub(crate) connected: Time,
    /// When it last sent something that began a request.
    request: Time,
    /// When it last became idle, or idle in a transaction, or sent rows of a COPY.
    quiet: Time,
    /// When its entry in the timers is due; 0 for none.
    pub(crate) timer: Time,
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

/// What it does: each verb is a transition of the picture above.
impl Client {
    /// What it is doing.
    pub fn state(&self) -> &ClientState {
        &self.state
    }

    /// Its login, while it proves who it is.
    pub(crate) fn login_mut(&mut self) -> Option<&mut state::LoginAttempt> {
        match &mut self.state {
            ClientState::Login(login) => Some(login),
            _ => None,
        }
    }

    /// Its session with the console, if it has one.
    pub(crate) fn console_mut(&mut self) -> Option<&mut ConsoleSession> {
        match &mut self.state {
            ClientState::Console(session) => Some(session),
            _ => None,
        }
    }

    /// One of its statements may keep a server for it.
    pub(crate) fn names_keep(&self) -> bool {
        self.names_keep
    }

    /// It has asked for `currval` or `lastval`.
    pub(crate) fn asks_numbers(&self) -> bool {
        self.asks_numbers
    }

    /// It used the server of this number last.
    pub(crate) fn used_last(&self, server: u64) -> bool {
        self.last_server == server
    }

    /// It uses the server of this number from now on.
    pub(crate) fn uses(&mut self, server: u64) {
        self.last_server = server;
    }

    /// When it last sent something that began a request.
    pub(crate) fn request(&self) -> Time {
        self.request
    }

    /// When it last became idle, or idle in a transaction, or sent rows of a COPY.
    pub(crate) fn quiet(&self) -> Time {
        self.quiet
    }

    /// True if it has asked for something, or got an answer, since then; or waits for one.
    pub(crate) fn is_active(&self, since: Time) -> bool {
        self.waits() || self.request.max(self.quiet) >= since
    }

    /// It has begun a request at `at`.
    pub(crate) fn asks(&mut self, at: Time) {
        self.request = at;
    }

    /// It sends rows of a COPY.
    pub(crate) fn sends_rows(&mut self, at: Time) {
        self.quiet = at;
    }

    /// It waits for nothing since `at`.
    pub(crate) fn falls_quiet(&mut self, at: Time) {
        self.quiet = at;
    }

    /// Its start-up packet asks for this.
    fn wishes(&mut self, replication: Replication, options: Option<Box<[u8]>>, long_key: bool) {
        self.replication = replication;
        self.server_options = options;
        self.long_key = long_key;
    }

    /// Who it is, and which database it wants.
    fn set_names(&mut self, user: Arc<str>, database: Arc<str>) {
        self.user = user;
        self.database = database;
    }

    /// Its bytes come through TLS, if there are facts of a TLS session.
    pub(crate) fn set_secured(&mut self, facts: Option<Arc<TlsFacts>>) {
        self.tls = facts;
    }

    /// The Broker counts it.
    fn let_in(&mut self) {
        self.admitted = true;
    }

    /// It takes servers from this pool.
    pub(crate) fn joins(&mut self, pool: PoolId) {
        self.pool = Some(pool);
    }

    /// It is told that it is logged in.
    pub(crate) fn mark_welcome(&mut self) {
        self.welcomed = true;
    }

    /// The NOTICE of its wait was sent, or it waits no more.
    pub(crate) fn set_notified(&mut self, notified: bool) {
        self.notified = notified;
    }

    /// Its values of the tracked parameters have become these.
    pub(crate) fn set_params(&mut self, params: Arc<Params>) {
        self.params = Some(params);
    }

    /// Its statements mean this under them.
    pub(crate) fn means(&mut self, meaning: Meaning) {
        self.meaning = meaning;
    }

    /// Its RESET goes back to these.
    fn goes_back_to(&mut self, asked: Option<Arc<Params>>) {
        self.asked = asked;
    }

    /// It was sent this value of `in_hot_standby`, if there is one.
    pub(crate) fn set_told_standby(&mut self, standby: Option<bool>) {
        self.standby = standby;
    }

    /// Its session has settings of its own, and these are of its login.
    fn set_settings(&mut self, settings: Maybe, login: Maybe) {
        if settings.is_some() || login.is_some() {
            self.session = Some(Box::new(crate::session::Session {
                settings,
                login,
                ..crate::session::Session::default()
            }));
        }
    }

    /// Drops its session if that is empty.
    pub(crate) fn forgets_blank_session(&mut self) {
        self.session.take_if(|session| session.is_blank());
    }

    /// What its session had is gone.
    fn ends_session(&mut self) -> Option<Box<crate::session::Session>> {
        self.session.take()
    }

    /// It has asked for `currval` or `lastval`.
    pub(crate) fn asks_for_numbers(&mut self) {
        self.asks_numbers = true;
    }

    /// PostgreSQL has confirmed a change of one of its names.
    pub(crate) fn agreed(&mut self, op: NameOp) {
        match op.change {
            Change::Define(named) if op.name.is_empty() => self.unnamed = Some(named.statement),
            Change::Define(named) => {
                self.names.insert(op.name, named);
            }
            Change::Forget if op.name.is_empty() => self.unnamed = None,
            Change::Forget => {
                self.names.remove(&op.name);
            }
            Change::Nothing | Change::Refused(_) => {}
        }
    }

    /// PostgreSQL has dropped its unnamed statement.
    pub(crate) fn drops_unnamed(&mut self) {
        self.unnamed = None;
    }

    /// PostgreSQL has dropped all statements that have names.
    pub(crate) fn drops_names(&mut self) {
        self.names.clear();
        self.names.shrink_to_fit();
    }

    /// The number of the name that it gives next.
    pub(crate) fn numbers_name(&mut self) -> u64 {
        self.names_given += 1;
        self.names_given
    }

    /// It parses a statement that has these effects.
    pub(crate) fn names_statement_with(&mut self, effects: &Effects) {
        self.names_keep |= effects.matters_at_bind();
    }

    /// Another process has given it this cancel key.
    pub(crate) fn keeps_key(&mut self, key: crate::cancel::OldKey) {
        self.old_key = Some(Box::new(key));
    }

    /// A successor takes over: its session stays as it is now.
    pub(crate) fn parks(&mut self) {
        self.parked = true;
    }

    /// Its session goes on here. False if it was not parked.
    pub(crate) fn unparks(&mut self) -> bool {
        std::mem::take(&mut self.parked)
    }

    /// It takes servers from no pool any more. Returns the one that it took servers from.
    pub(crate) fn leaves_pool(&mut self) -> Option<PoolId> {
        self.pool.take()
    }

    /// The Broker counts it no more. False if it did not.
    fn let_out(&mut self) -> bool {
        std::mem::take(&mut self.admitted)
    }

    /// The cancel key that it was given by another process is of no use any more.
    fn forgets_key(&mut self) -> Option<Box<crate::cancel::OldKey>> {
        self.old_key.take()
    }

    /// What its session has besides, if it has anything.
    #[inline]
    pub(crate) fn session_if_any(&mut self) -> Option<&mut crate::session::Session> {
        self.session.as_deref_mut()
    }

    /// What its session has besides; it gets one where it has none.
    pub(crate) fn session_mut(&mut self) -> &mut crate::session::Session {
        self.session.get_or_insert_default()
    }

    /// It leaves once everything is answered, and then gets this error.
    fn parts(&mut self, why: crate::fault::Fault) {
        self.leaving = true;
        self.parting = Some(Box::new(why));
    }

    /// What it is told at its end.
    fn told_at_end(&mut self) -> crate::fault::Fault {
        let why = self.parting.take();
        why.map_or(crate::fault::Fault::ClientClosed, |why| *why)
    }

    /// `TellFlushed` was asked for it, and `Flushed` has not come yet.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread
    }

    /// Whether its send queue is empty is asked.
    pub(crate) fn asked_about(&mut self) {
        self.unread = true;
    }

    /// Its send queue is empty.
    pub(crate) fn was_flushed(&mut self) {
        self.unread = false;
    }

    /// It comes up in the timers no later than `at`.
    #[inline]
    pub(crate) fn comes_up(&mut self, timers: &mut Timers, id: ClientId, at: Time) {
        timers.arm(Peer::Client(id), at, &mut self.timer);
    }

    /// Its entry in the timers has come up.
    pub(crate) fn timer_is_up(&mut self) {
        self.timer = Time(0);
    }

    /// A handshake begins.
    fn shakes_hands(&mut self) {
        self.state = ClientState::Handshake;
    }

    /// Its first packet is awaited, as at its beginning.
    fn starts_again(&mut self) {
        self.state = ClientState::Startup;
    }

    /// Its first packet is a CancelRequest.
    fn wants_to_cancel(&mut self, now: Time) {
        self.state = ClientState::Canceller;
        self.request = now;
    }

    /// Its first packet is another worker's.
    fn moves_to(&mut self, worker: WorkerId) {
        self.state = ClientState::Moving(worker);
    }

    /// PostgreSQL is asked for its user, by a server of this pool.
    pub(crate) fn begin_lookup(&mut self, pool: PoolId, now: Time) {
        self.state = ClientState::Lookup;
        self.pool = Some(pool);
        self.request = now;
    }

    /// It has to prove who it is.
    fn proves(&mut self, login: state::LoginAttempt) {
        self.state = ClientState::Login(Box::new(login));
    }

    /// It has proved who it is, and waits for its greeting.
    pub(crate) fn awaits_welcome(&mut self) {
        self.state = ClientState::Welcome;
    }

    /// It is in a pool and has no server; since `now` it has asked for nothing.
    #[inline]
    pub(crate) fn rests(&mut self, now: Time) {
        self.turn(ClientState::Idle);
        self.quiet = now;
        self.end.goes_on();
    }

    /// It waits for a server, or for permission to keep one.
    pub(crate) fn stands_in_line(&mut self) {
        self.state = ClientState::Waiting;
    }

    /// Its end of a link: whatever it sends goes to the server.
    pub(crate) fn bind_to(&mut self, server: ServerId) {
        self.turn(ClientState::Linked(server));
    }

    /// Its state becomes another. The states of a transaction own nothing, so that nothing need be
    /// called to drop them.
    #[inline]
    fn turn(&mut self, state: ClientState) {
        let before = std::mem::replace(&mut self.state, state);
        if matches!(
            before,
            ClientState::Idle | ClientState::Waiting | ClientState::Linked(_)
        ) {
            std::mem::forget(before);
        }
    }

    /// The same, but its messages are held until the server has its settings.
    pub(crate) fn bind_held_to(&mut self, server: ServerId) {
        self.state = ClientState::Aligning(server);
    }

    /// It goes on at another worker. `waits`: it stood in line.
    pub(crate) fn leaves_for(&mut self, to: WorkerId, waits: bool) {
        self.state = ClientState::Leaving { to, waits };
    }

    /// It goes to our successor.
    pub(crate) fn packs(&mut self, standing: crate::parcel::Standing) {
        self.state = ClientState::Packed(standing);
    }

    /// It is an administrator, or may look on.
    pub(crate) fn opens_console(&mut self, session: ConsoleSession) {
        self.state = ClientState::Console(Box::new(session));
        self.welcomed = true;
    }

    /// It is our successor.
    pub(crate) fn takes_over(&mut self) {
        self.state = ClientState::Successor;
    }

    /// It ends: nothing of what it has sent or named is of use.
    fn closes(&mut self) {
        self.state = ClientState::Closing;
        self.inbox = Inbox::default();
        self.names.clear();
        self.unnamed = None;
    }
}

/// What it is.
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

    /// It stands in its pool's line.
    pub fn waits(&self) -> bool {
        matches!(self.state, ClientState::Waiting | ClientState::Lookup)
    }

    /// It waits for a server that it will share with nobody.
    pub fn waits_for_its_own(&self) -> bool {
        matches!(self.state, ClientState::Waiting) && self.replication.any()
    }

    /// The server it is bound to.
    pub fn link(&self) -> Option<ServerId> {
        match self.state {
            ClientState::Linked(server) | ClientState::Aligning(server) => Some(server),
            _ => None,
        }
    }

    /// True if its settings may be sent to a server together with its first messages: what the
    /// client gets, and when, depends only on the answers to those messages.
    pub(crate) fn needs_no_answer(&self) -> bool {
        !self.replication.any() && !self.is_pinned() && !self.listens()
    }

    /// Its session keeps its server between transactions.
    pub fn is_pinned(&self) -> bool {
        let session = self.session.as_deref();
        session.is_some_and(|session| !session.pinned.is_empty())
    }

    /// The settings of its session that decide what an unqualified name means, if it has any:
    /// `search_path` (where PostgreSQL does not report that), and the role, which `"$user"` stands for.
    pub fn path(&self) -> Option<Vec<u8>> {
        let session = self.session.as_deref()?;
        let settings = session.settings.as_deref()?;
        let mut path = Vec::new();
        for name in [&b"search_path"[..], b"role", b"session_authorization"] {
            if let Some(value) = settings.get(name) {
                path.extend_from_slice(name);
                path.push(0);
                path.extend_from_slice(value);
                path.push(0);
            }
        }
        (!path.is_empty()).then_some(path)
    }

    /// It asked at login for settings that are not among the tracked parameters.
    pub fn asked_for_more(&self) -> bool {
        let session = self.session.as_deref();
        session.is_some_and(|session| session.login.is_some())
    }

    /// True if it may have temporary tables that hide permanent ones.
    pub fn has_temporary(&self) -> bool {
        use crate::effect::Kinds;
        self.session.as_deref().is_some_and(|session| {
            let kinds = session.pinned.and(session.pending.kinds);
            kinds.any(Kinds::TEMPORARY)
        })
    }

    /// True if messages from its server between two transactions are for it, too.
    pub fn hears(&self) -> bool {
        use crate::effect::Kinds;
        let session = self.session.as_deref();
        session.is_some_and(|session| {
            !session.pinned.is_empty() || session.pending.kinds.any(Kinds::LISTENS)
        })
    }

    /// It hears channels by the listener.
    pub fn listens(&self) -> bool {
        self.listens
    }

    /// True if it has got everything that was committed before its current message.
    pub(crate) fn has_heard_all(&mut self) -> bool {
        let session = self.session.as_mut();
        let own = session.and_then(|session| session.channels.as_mut());
        own.is_some_and(|own| std::mem::take(&mut own.sure))
    }

    /// Which answer of the listener it waits for.
    pub fn hush(&self) -> Hush {
        self.hush
    }

    /// The listener has to answer before the client goes on.
    pub fn is_hushed(&self) -> bool {
        self.hush != Hush::No
    }

    /// The listener has to answer before it goes on.
    pub(crate) fn hushes(&mut self, hush: Hush, now: Time) {
        self.hush = hush;
        self.quiet = now;
    }

    /// The client is idle. If it listens, its ReadyForQuery waits until it has been told all that was
    /// notified before. False if it does not listen.
    pub(crate) fn keeps_ready_back(&mut self) -> bool {
        if self.listens && !self.leaving {
            self.hush = Hush::Ready;
        }
        self.hush == Hush::Ready
    }

    /// The client goes on: it waits for the listener no more. Returns what it waited for.
    pub(crate) fn ends_hush(&mut self) -> Hush {
        let session = self.session.as_ref();
        let own = session.and_then(|session| session.channels.as_ref());
        self.listens = own.is_some_and(|own| !own.is_empty());
        std::mem::take(&mut self.hush)
    }

    /// How many of its bytes are held before reading from it stops.
    pub fn held_max(&self) -> usize {
        match self.state {
            ClientState::Waiting => limits::WAITING,
            _ => limits::HELD,
        }
    }

    /// True if its bytes can't be handled for now.
    pub fn holds_back(&self) -> bool {
        let works = matches!(self.state, ClientState::Linked(_) | ClientState::Idle);
        self.end.is_stalled() || self.parked || self.leaving || self.is_hushed() || !works
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
