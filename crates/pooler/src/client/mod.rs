//! A client: an application's connection to Howdah.
//!
//! ```text
//!          first packet            admitted         proved            has parameters
//!  Startup ------------> Admission ---------> Login ---------> Welcome -----------> Idle
//!     |  \                                                                         /     \
//!     |   CancelRequest: Canceller                no free server        Waiting <-        -> Linked
//!     `-- another worker's: Moving                                         `---------------^
//! ```

pub mod admission;
pub mod balancer;
pub mod close;
pub mod demand;
pub mod login;
pub mod parcel;
pub mod placement;
pub mod startup;
pub mod state;
mod times;
mod token;

pub use state::ClientState;
use times::ClientTimes;
pub use times::{ClientEnds, EndReason};

use std::sync::Arc;

use howdah_shard::Hint;
use howdah_wire::backend::Status;

use crate::account::Allowance;
use crate::config::ShardMap;
use crate::console::ConsoleSession;
use crate::effect::harmless::is_harmless;
use crate::event::{ClientId, Ends, Peer, ServerId, Time, WorkerId};
use crate::inbox::Inbox;
use crate::ledger::{Change, NameOp};
use crate::limits;
use crate::link::End;
use crate::listen::{Channels, Hush};
use crate::login::key::{LoginId, LoginKey};
use crate::params::{Meaning, Params};
use crate::place::Via;
use crate::pool::key::PoolId;
use crate::reads::mark::{Again, ReadMark, ReadWish};
use crate::reads::tally::ReadPlace;
use crate::roster::view::Instance;
use crate::session::settings::Maybe;
use crate::shard::Sharded;
use crate::signal::{SignalSent, SignalStatement, SignalText};
use crate::statement::{ClientStatements, Named, Statement};
use crate::timers::Timers;
use crate::tls::TlsFacts;
use crate::valve::Valve;

/// An application's connection to Howdah, and the client's session.
#[derive(Debug)]
pub struct Client {
    /// The client's state.
    state: ClientState,
    /// The client's number in the console: one sequence for clients and servers.
    pub(crate) number: u64,
    /// The two ends of the connection. Behind a balancer, the remote end is the client's.
    pub(crate) ends: Ends,
    /// How the connection reaches this process.
    via: Via,
    /// The TLS session, if any.
    pub(crate) tls: Option<Arc<TlsFacts>>,
    /// The client's byte stream.
    pub(crate) inbox: Inbox,
    /// The login that the client belongs to. During a look-up of its user: the login that asks.
    pub(crate) login: Option<LoginId>,
    /// The database and user that the client asked for, whether its login is finished or not.
    pub(crate) who: Arc<LoginKey>,
    /// The client's values of the tracked parameters.
    pub(crate) params: Option<Arc<Params>>,
    /// The values from the client's login, if any. RESET restores them.
    pub(crate) asked: Option<Arc<Params>>,
    /// The rest of the session: untracked settings, reasons to keep the server, channels.
    pub(crate) session: Option<Box<crate::session::Session>>,
    /// Hashes of the settings that change the meaning of statements (`DateStyle`, `search_path`).
    pub(crate) meaning: Meaning,
    /// The client's statements.
    pub(crate) statements: ClientStatements,
    /// The client's latest statement that sends a signal.
    signal: Option<Box<SignalStatement>>,
    /// The console number of the server used last; 0 if unknown.
    last_server: u64,
    /// The client's end of its link.
    pub(crate) end: End,
    /// A takeover is under way, and the session waits between two transactions.
    pub(crate) parked: bool,
    /// The client gets notifications from the listener ([`crate::listen`]).
    listens: bool,
    /// The answer of the listener that the client waits for.
    hush: Hush,
    /// Stops and resumes reading from the socket.
    pub(crate) valve: Valve,
    /// The client sent Terminate or broke the protocol, and leaves with this error. Answers under
    /// way still go out.
    leaving: Option<Box<crate::fault::Fault>>,
    /// The Broker counts the client.
    pub(crate) admitted: bool,
    /// The client got its greeting after login.
    pub(crate) welcomed: bool,
    /// The last value of `in_hot_standby` that the client got.
    pub(crate) standby: Option<bool>,
    /// What the client has seen, if its reads are routed.
    pub(crate) read_mark: Option<Box<ReadMark>>,
    /// The client's shard, if its database is sharded.
    pub(crate) sharded: Option<Box<Sharded>>,
    /// The client got a NOTICE about its wait.
    pub(crate) notified: bool,
    /// What the client's start-up packet asked of the protocol.
    pub(crate) protocol: Protocol,
    /// The client's cancel key from the predecessor process.
    pub(crate) old_key: Option<Box<crate::cancel::OldKey>>,
    /// When things last happened.
    pub(crate) times: ClientTimes,
    /// When the client must end, if ever.
    pub(crate) ends_at: Option<Box<ClientEnds>>,
    /// When the client's timer entry is due; 0 for none.
    pub(crate) timer: Time,
}

/// What a client's start-up packet asks of the protocol.
#[derive(Debug, Default)]
pub struct Protocol {
    /// The replication protocol.
    pub(crate) replication: Replication,
    /// The start-up parameter `options` of a client with a server of its own.
    pub(crate) server_options: Option<Box<[u8]>>,
    /// Version 3.2 or newer: cancel keys are long.
    pub(crate) long_keys: bool,
}

/// The replication protocol that a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replication {
    /// No replication.
    #[default]
    None,
    /// `replication=database`.
    Logical,
    /// `replication=true`.
    Physical,
}

/// The verbs are the transitions of the picture above.
impl Client {
    /// The client's state.
    pub fn state(&self) -> &ClientState {
        &self.state
    }

    /// The login under way, if any.
    pub(crate) fn login_mut(&mut self) -> Option<&mut state::LoginAttempt> {
        match &mut self.state {
            ClientState::Login(login) => Some(login),
            _ => None,
        }
    }

    pub(crate) fn console_mut(&mut self) -> Option<&mut ConsoleSession> {
        match &mut self.state {
            ClientState::Console(session) => Some(session),
            _ => None,
        }
    }

    /// The client's latest statement that sends a signal.
    pub(crate) fn signal(&mut self) -> Option<&mut SignalStatement> {
        self.signal.as_deref_mut()
    }

    pub(crate) fn has_signal(&self) -> bool {
        self.signal.is_some()
    }

    /// True if a signal of the client is under way, or has been sent and its statement has not run.
    pub(crate) fn is_signalling(&self) -> bool {
        let signal = self.signal.as_ref();
        signal.is_some_and(|signal| signal.sent != SignalSent::No)
    }

    pub(crate) fn keeps_signal(&mut self, signal: SignalStatement) {
        self.signal = Some(Box::new(signal));
    }

    /// One of the client's statements, but the one with this name, may send a signal.
    pub(crate) fn finds_signal(&mut self, except: Option<&[u8]>) {
        let text = |(name, statement): (&[u8], &Statement)| {
            let text = SignalText::read(statement.text())?;
            Some((Box::from(name), text))
        };
        let unnamed = self.statements.unnamed().map(|of| (&b""[..], &**of));
        let named = self.statements.iter();
        let named = named.map(|(name, of): (&[u8], &Named)| (name, &*of.statement));
        let all = unnamed.into_iter().chain(named);
        let found = all.filter(|(name, _)| Some(*name) != except).find_map(text);
        if let Some((name, text)) = found {
            let (name, sent) = (Some(name), SignalSent::No);
            self.keeps_signal(SignalStatement { name, text, sent });
        }
    }

    /// The statement with this name sends no signal any more; `None` is that of a Query.
    pub(crate) fn forgets_signal(&mut self, name: Option<&[u8]>) {
        let taken = self.signal.take_if(|signal| signal.name.as_deref() == name);
        if taken.is_some() {
            // A Query drops the unnamed statement.
            self.finds_signal(name.or(Some(b"")));
        }
    }

    /// True if the client used the server with this console number last.
    pub(crate) fn used_last(&self, server: u64) -> bool {
        self.last_server == server
    }

    /// From now on, the client uses the server with this console number.
    pub(crate) fn set_last_server(&mut self, server: u64) {
        self.last_server = server;
    }

    /// True if the client is waiting, or began a request or got an answer since `since`.
    pub(crate) fn is_active(&self, since: Time) -> bool {
        self.waits() || self.times.is_active(since)
    }

    /// How the connection reaches this process.
    pub(crate) fn via(&self) -> Via {
        self.via
    }

    /// The connection reaches this process in this way.
    pub(crate) fn comes_via(&mut self, via: Via) {
        self.via = via;
    }

    /// The client has this address, behind its balancer.
    fn takes_address(&mut self, address: crate::event::Address) {
        self.ends.remote = address;
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    fn set_who(&mut self, who: Arc<LoginKey>) {
        self.who = who;
    }

    pub(crate) fn set_secured(&mut self, facts: Option<Arc<TlsFacts>>) {
        self.tls = facts;
    }

    fn let_in(&mut self) {
        self.admitted = true;
    }

    /// The client joins a login with this share of the account, which pays for what the client has.
    pub(crate) fn joins(&mut self, login: LoginId, share: &Arc<Allowance>) {
        self.login = Some(login);
        self.statements.charge_to(share);
    }

    /// The client has seen something while so many rounds had begun: an answer of this standby, or of
    /// another host.
    pub(crate) fn sees(&mut self, begun: u64, at: Option<Instance>) {
        let mark = self
            .read_mark
            .get_or_insert_with(|| Box::new(ReadMark::new(begun)));
        mark.sees(begun, at);
    }

    /// A request begins that may go there; `None` if it is no read. One that waits goes on as it was.
    /// Answers what the client has seen, up to `begun` rounds at most.
    pub(crate) fn begins_read(&mut self, begun: u64, wish: Option<ReadWish>) -> ReadMark {
        let waits = matches!(self.state, ClientState::Waiting(_));
        let mark = self
            .read_mark
            .get_or_insert_with(|| Box::new(ReadMark::new(begun)));
        if !waits {
            mark.begins(wish);
        }
        **mark
    }

    /// The request waits for a standby, if it may.
    pub(crate) fn read_waits(&mut self, now: Time, wait: u64) -> bool {
        let mark = self.read_mark.as_mut();
        mark.is_some_and(|mark| mark.waits(now, wait))
    }

    /// The read goes there; `None` if the request is no read.
    pub(crate) fn read_goes(&mut self, place: Option<ReadPlace>) {
        if let Some(mark) = &mut self.read_mark {
            mark.goes(place);
        }
    }

    /// A server gets the client's request: where that is, if the request is a read.
    pub(crate) fn takes_read_place(&mut self) -> Option<ReadPlace> {
        self.read_mark.as_mut()?.place.take()
    }

    /// The client's read was refused by a standby, and runs again.
    pub(crate) fn reads_again(&mut self, again: Again) {
        if let Some(mark) = &mut self.read_mark {
            mark.begins(None);
            mark.again = Some(again);
        }
    }

    /// The client's request has failed, or will not be answered.
    pub(crate) fn read_fails(&mut self) {
        if let Some(mark) = &mut self.read_mark {
            mark.again = None;
        }
    }

    /// A part of the client's read is sent: it has its guard, or gets none.
    pub(crate) fn read_is_sent(&mut self) {
        if let Some(wish) = self.read_mark.as_mut().and_then(|mark| mark.wish.as_mut()) {
            wish.is_guarded = false;
            wish.is_begin = false;
        }
    }

    /// The request under way is one read, to be guarded at its standby.
    #[inline]
    pub(crate) fn is_to_be_guarded(&self) -> bool {
        self.read_mark
            .as_ref()
            .is_some_and(|mark| mark.is_at_standby && mark.wish.is_some_and(|wish| wish.is_guarded))
    }

    /// The request under way is at a standby, and may be sent once more: `true` for a BEGIN, which is
    /// if the standby is lost; `false` for a single read, which is if the standby refuses it.
    #[inline]
    pub(crate) fn may_be_sent_again(&self) -> Option<bool> {
        let mark = self.read_mark.as_ref().filter(|mark| mark.is_at_standby)?;
        let wish = mark.wish?;
        let is_begin = wish.is_begin && mark.repeated.is_none();
        (wish.is_guarded || is_begin).then_some(!wish.is_guarded)
    }

    /// The client's BEGIN is sent once more. The client `had` seen this before.
    pub(crate) fn begins_again(&mut self, since: Time, had: Option<(u64, Option<Instance>)>) {
        if let Some((mark, had)) = self.read_mark.as_mut().zip(had) {
            mark.repeats(since, had);
        }
    }

    /// The request under way is at a standby: nothing may follow it there.
    #[inline]
    pub(crate) fn reads_at_standby(&self) -> bool {
        self.read_mark
            .as_ref()
            .is_some_and(|mark| mark.is_at_standby)
    }

    /// The request has found a standby: by a free choice, or where it was.
    pub(crate) fn read_finds(&mut self, now: Time, is_free: bool) {
        if let Some(mark) = &mut self.read_mark {
            mark.finds(now, is_free);
        }
    }

    /// The request waits for no standby any more.
    pub(crate) fn read_gives_up(&mut self, now: Time) {
        if let Some(mark) = &mut self.read_mark {
            mark.gives_up(now);
        }
    }

    /// The client was told of a commit, while so many rounds had begun. True if that concerns a read
    /// under way.
    pub(crate) fn hears_of_commit(&mut self, begun: u64) -> bool {
        let Some(mark) = &mut self.read_mark else {
            return false;
        };
        mark.hears(begun);
        mark.wish.is_some()
    }

    /// What the client has seen is not followed any more.
    pub(crate) fn forgets_reads(&mut self) {
        self.read_mark = None;
    }

    pub(crate) fn mark_welcome(&mut self) {
        self.welcomed = true;
    }

    /// Notes whether the client got a NOTICE about its wait.
    pub(crate) fn set_notified(&mut self, notified: bool) {
        self.notified = notified;
    }

    pub(crate) fn set_params(&mut self, params: Arc<Params>) {
        self.params = Some(params);
    }

    /// Sets the meaning of the client's statements under its parameters.
    pub(crate) fn set_meaning(&mut self, meaning: Meaning) {
        self.meaning = meaning;
    }

    /// Sets the values that RESET restores.
    fn goes_back_to(&mut self, asked: Option<Arc<Params>>) {
        self.asked = asked;
    }

    pub(crate) fn set_told_standby(&mut self, standby: Option<bool>) {
        self.standby = standby;
    }

    /// Sets the session's untracked settings, and those of the login.
    fn set_settings(&mut self, settings: Maybe, login: Maybe) {
        if settings.is_some() || login.is_some() {
            self.session = Some(Box::new(crate::session::Session {
                settings,
                login,
                ..crate::session::Session::default()
            }));
        }
    }

    pub(crate) fn forgets_blank_session(&mut self) {
        self.session.take_if(|session| session.is_blank());
    }

    fn ends_session(&mut self) -> Option<Box<crate::session::Session>> {
        self.session.take()
    }

    /// PostgreSQL has confirmed a change of a statement name.
    pub(crate) fn confirm_name(&mut self, op: NameOp) {
        let statements = &mut self.statements;
        match op.change {
            Change::Define(named) if op.name.is_empty() => {
                statements.set_unnamed(Some(named.statement));
            }
            Change::Define(named) => statements.insert(op.name, named),
            Change::Forget if op.name.is_empty() => statements.set_unnamed(None),
            Change::Forget => statements.remove(&op.name),
            Change::Nothing | Change::Refused(_) => {}
        }
    }

    /// Keeps the client's cancel key from another process.
    pub(crate) fn keeps_key(&mut self, key: crate::cancel::OldKey) {
        self.old_key = Some(Box::new(key));
    }

    /// A successor takes over. The session stays as it is now.
    pub(crate) fn parks(&mut self) {
        self.parked = true;
    }

    /// The session goes on in this process. False if it was not parked.
    pub(crate) fn unparks(&mut self) -> bool {
        std::mem::take(&mut self.parked)
    }

    /// Removes the client from its login. Returns that login.
    pub(crate) fn leaves_login(&mut self) -> Option<LoginId> {
        self.login.take()
    }

    /// The Broker stops counting the client. False if the Broker did not count it.
    fn let_out(&mut self) -> bool {
        std::mem::take(&mut self.admitted)
    }

    /// Drops the cancel key from another process.
    fn forgets_key(&mut self) -> Option<Box<crate::cancel::OldKey>> {
        self.old_key.take()
    }

    /// The session, if the client has one.
    #[inline]
    pub(crate) fn session_if_any(&mut self) -> Option<&mut crate::session::Session> {
        self.session.as_deref_mut()
    }

    /// The channels that the listener hears for the client, if any.
    pub(crate) fn channels(&self) -> Option<&Channels> {
        self.session.as_deref()?.channels.as_deref()
    }

    /// The same, to be changed.
    pub(crate) fn channels_mut(&mut self) -> Option<&mut Channels> {
        self.session.as_deref_mut()?.channels.as_deref_mut()
    }

    /// The session, created if the client has none.
    pub(crate) fn session_mut(&mut self) -> &mut crate::session::Session {
        self.session.get_or_insert_default()
    }

    /// The client leaves once all its requests are answered, with this error.
    pub(crate) fn leave_with(&mut self, why: crate::fault::Fault) {
        self.leaving = Some(Box::new(why));
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// The error with which the client ends as soon as it asks for something; `None` for others.
    pub(crate) fn ends_when_it_asks(&self) -> Option<crate::fault::Fault> {
        self.leaving
            .as_deref()
            .filter(|why| why.is_planned())
            .cloned()
    }

    /// The error for the client's end.
    fn told_at_end(&self) -> crate::fault::Fault {
        let why = self.leaving.as_deref().cloned();
        why.unwrap_or(crate::fault::Fault::ClientClosed)
    }

    /// Arms the timer: it is due at `at` or earlier.
    #[inline]
    pub(crate) fn arm_timer(&mut self, timers: &mut Timers, id: ClientId, at: Time) {
        timers.arm(Peer::Client(id), at, &mut self.timer);
    }

    pub(crate) fn timer_fired(&mut self) {
        self.timer = Time(0);
    }

    /// When the client must end, to be changed.
    pub(crate) fn ends_mut(&mut self) -> &mut ClientEnds {
        self.ends_at.get_or_insert_default()
    }

    /// The same, if there is such an end.
    pub(crate) fn ends_if_any(&mut self) -> Option<&mut ClientEnds> {
        self.ends_at.as_deref_mut()
    }

    /// The user of the server that the client keeps ends: so does the client, with its transaction.
    pub(crate) fn ends_with_user(&mut self, now: Time) {
        self.ends_mut().user.get_or_insert(now);
        self.ends_with_transaction();
    }

    /// The client must end, and is in a transaction. It ends with that.
    pub(crate) fn ends_with_transaction(&mut self) {
        self.session_mut().is_over = true;
    }

    /// Why the client ends at the end of this transaction, if it does.
    #[inline]
    pub(crate) fn end_of_transaction(&self, now: Time) -> Option<EndReason> {
        if !self.session.as_ref()?.is_over {
            return None;
        }
        self.ends_at.as_ref()?.due(now)
    }

    /// An end of the client has gone: if no other end is due, it goes on behind its transaction.
    pub(crate) fn end_has_gone(&mut self, now: Time) {
        let due = self.ends_at.as_ref().and_then(|ends| ends.due(now));
        if let (None, Some(session)) = (due, self.session.as_deref_mut()) {
            session.is_over = false;
        }
    }

    /// When the client must be looked at because it must end. If it already ends with its transaction, it may
    /// still wait for a server when its token ends.
    pub(crate) fn next_end(&self, now: Time) -> Option<Time> {
        let ends = self.ends_at.as_ref()?;
        match (self.end_of_transaction(now), &self.state) {
            (None, _) | (_, ClientState::Idle) => ends.first(),
            (Some(_), ClientState::Waiting(_)) => ends.token,
            _ => None,
        }
    }

    /// True if a client has said nothing yet, but perhaps that it wants TLS. Load balancers and
    /// supervisors open such connections to see whether the port answers.
    pub(crate) fn is_probe(&self) -> bool {
        matches!(self.state, ClientState::Startup | ClientState::Handshake)
            && self.inbox.held().is_empty()
    }

    fn shakes_hands(&mut self) {
        self.state = ClientState::Handshake;
    }

    /// The client's first packet is awaited (again).
    fn starts_again(&mut self) {
        self.state = ClientState::Startup;
    }

    /// The client's first packet is a CancelRequest.
    pub(crate) fn wants_to_cancel(&mut self, now: Time) {
        self.state = ClientState::Canceller;
        self.times.begin_request(now);
    }

    /// Another worker serves this client.
    fn moves_to(&mut self, worker: WorkerId) {
        self.state = ClientState::Moving(worker);
    }

    /// A server of this pool asks PostgreSQL about the client's user.
    pub(crate) fn begin_lookup(&mut self, (login, pool): (LoginId, PoolId), now: Time) {
        self.state = ClientState::Lookup(pool);
        self.login = Some(login);
        self.times.begin_request(now);
    }

    fn proves(&mut self, login: state::LoginAttempt) {
        self.state = ClientState::Login(Box::new(login));
    }

    /// The client asks the Broker for admission.
    fn awaits_admission(&mut self) {
        self.state = ClientState::Admission;
    }

    /// The client has proved its identity. The first server of this pool will bring its greeting.
    pub(crate) fn awaits_welcome(&mut self, pool: PoolId) {
        self.state = ClientState::Welcome(pool);
    }

    /// The client has no server, and no request since `now`.
    #[inline]
    pub(crate) fn becomes_idle(&mut self, now: Time) {
        self.turn(ClientState::Idle);
        self.times.set_quiet(now);
        self.end.goes_on();
    }

    /// The client waits for a server of this pool, or for permission to keep one.
    pub(crate) fn stands_in_line(&mut self, pool: PoolId) {
        self.state = ClientState::Waiting(pool);
    }

    /// Links the client: its messages go to this server.
    pub(crate) fn bind_to(&mut self, server: ServerId) {
        self.turn(ClientState::Linked(server));
    }

    /// Changes the state. States of a transaction own nothing, so they need no drop call.
    #[inline]
    fn turn(&mut self, state: ClientState) {
        let before = std::mem::replace(&mut self.state, state);
        if matches!(
            before,
            ClientState::Idle | ClientState::Waiting(_) | ClientState::Linked(_)
        ) {
            std::mem::forget(before);
        }
    }

    /// Links the client, but Howdah holds its messages until the server has its settings.
    pub(crate) fn bind_held_to(&mut self, server: ServerId) {
        self.state = ClientState::Aligning(server);
    }

    /// The client moves to another worker. `waits`: it was waiting for a server.
    pub(crate) fn leaves_for(&mut self, to: WorkerId, waits: bool) {
        self.state = ClientState::Leaving { to, waits };
    }

    /// The client moves to the successor process.
    pub(crate) fn packs(&mut self, standing: crate::parcel::Standing) {
        self.state = ClientState::Packed(standing);
    }

    /// The client is an administrator or may read statistics.
    pub(crate) fn opens_console(&mut self, session: ConsoleSession) {
        self.state = ClientState::Console(Box::new(session));
        self.welcomed = true;
    }

    /// The connection is from the successor process.
    pub(crate) fn takes_over(&mut self) {
        self.state = ClientState::Successor;
    }

    /// The client ends. Its bytes and names are dropped.
    fn closes(&mut self) {
        self.state = ClientState::Closing;
        self.inbox = Inbox::default();
        self.statements.clear();
        self.statements.set_unnamed(None);
    }
}

impl Client {
    /// True if the client uses TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// True if the TLS session can't move to another process. `travels`: TLS sessions can move in
    /// general.
    pub fn is_held_by_tls(&self, travels: bool) -> bool {
        let held = |tls: &Arc<TlsFacts>| !(travels && tls.travels);
        self.tls.as_ref().is_some_and(held)
    }

    /// True if the client waits in its pool's queue.
    pub fn waits(&self) -> bool {
        matches!(self.state, ClientState::Waiting(_) | ClientState::Lookup(_))
    }

    /// True if the client waits for a server, for a look-up or for its greeting.
    pub fn is_waiting(&self) -> bool {
        self.waits() || matches!(self.state, ClientState::Welcome(_))
    }

    /// The pool that the client waits in.
    pub fn waits_in(&self) -> Option<PoolId> {
        match self.state {
            ClientState::Waiting(pool) | ClientState::Lookup(pool) | ClientState::Welcome(pool) => {
                Some(pool)
            }
            _ => None,
        }
    }

    /// True if the client asked for replication.
    pub fn is_replicating(&self) -> bool {
        self.protocol.replication.any()
    }

    /// True if the client waits for a server of its own.
    pub fn waits_for_its_own(&self) -> bool {
        matches!(self.state, ClientState::Waiting(_)) && self.is_replicating()
    }

    /// The client's server, if there is a link.
    pub fn linked_server(&self) -> Option<ServerId> {
        match self.state {
            ClientState::Linked(server) | ClientState::Aligning(server) => Some(server),
            _ => None,
        }
    }

    /// True if the client's settings may be sent to a server along with its first messages, because
    /// the client gets only the answers to these messages.
    pub(crate) fn needs_no_answer(&self) -> bool {
        !self.is_replicating() && !self.is_pinned() && !self.listens()
    }

    /// True if the session keeps its server between transactions.
    pub fn is_pinned(&self) -> bool {
        let session = self.session.as_deref();
        session.is_some_and(|session| !session.pinned.is_empty())
    }

    /// The session's settings that decide what PostgreSQL makes of a text, as far as PostgreSQL
    /// does not report them: `search_path`, the role, which replaces `"$user"`, and all others that
    /// are not known to be harmless.
    pub fn path(&self) -> Option<Vec<u8>> {
        let session = self.session.as_deref()?;
        let settings = session.settings.as_deref()?;
        let mut path = Vec::new();
        for (name, value) in settings.iter().filter(|(name, _)| !is_harmless(name)) {
            path.extend_from_slice(name);
            path.push(0);
            path.extend_from_slice(value);
            path.push(0);
        }
        (!path.is_empty()).then_some(path)
    }

    /// True if the login set parameters that are not tracked.
    pub fn asked_for_more(&self) -> bool {
        let session = self.session.as_deref();
        session.is_some_and(|session| session.login.is_some())
    }

    /// True if the client may have temporary tables that hide permanent ones.
    pub fn has_temporary(&self) -> bool {
        use crate::effect::Kinds;
        self.session.as_deref().is_some_and(|session| {
            let kinds = session.pinned.and(session.pending.kinds);
            kinds.any(Kinds::TEMPORARY)
        })
    }

    /// True if messages from the server between two transactions are for the client, too.
    pub fn hears(&self) -> bool {
        use crate::effect::Kinds;
        let session = self.session.as_deref();
        session.is_some_and(|session| {
            !session.pinned.is_empty() || session.pending.kinds.any(Kinds::LISTENS)
        })
    }

    /// True if the client gets notifications from the listener.
    pub fn listens(&self) -> bool {
        self.listens
    }

    /// True if the client has got all notifications committed before its current message.
    pub(crate) fn has_heard_all(&mut self) -> bool {
        self.channels_mut().is_some_and(Channels::take_sure)
    }

    /// The answer of the listener that the client waits for.
    pub fn hush(&self) -> Hush {
        self.hush
    }

    /// True if the client waits for the listener.
    pub fn is_hushed(&self) -> bool {
        self.hush != Hush::No
    }

    /// The client waits for this answer of the listener.
    pub(crate) fn hushes(&mut self, hush: Hush, now: Time) {
        self.hush = hush;
        self.times.set_quiet(now);
    }

    /// The client's shard, if its database is sharded.
    #[inline]
    pub(crate) fn sharded_mut(&mut self) -> Option<&mut Sharded> {
        self.sharded.as_deref_mut()
    }

    /// The client's database is sharded, and the client says this of its shard.
    pub(crate) fn enters_map(&mut self, map: Arc<ShardMap>, hint: Option<Hint>) {
        self.sharded = Some(Box::new(Sharded::new(map, hint)));
    }

    /// The state of the client's transaction, while it has no server.
    #[inline]
    pub(crate) fn status_ahead(&self) -> Status {
        let sharded = self.sharded.as_ref();
        sharded.map_or(Status::Idle, |sharded| sharded.transaction.status())
    }

    /// True if the client's server must begin a transaction before the client's next message.
    #[inline]
    pub(crate) fn begins_late(&self) -> bool {
        self.sharded
            .as_ref()
            .is_some_and(|sharded| sharded.transaction.is_unsent())
    }

    /// The client is idle. If it listens, Howdah holds back its ReadyForQuery until it has got all
    /// earlier notifications. False if the client does not listen.
    pub(crate) fn keeps_ready_back(&mut self) -> bool {
        if self.listens && !self.is_leaving() {
            self.hush = Hush::Ready;
        }
        self.hush == Hush::Ready
    }

    /// The client stops waiting for the listener. Returns the answer it waited for.
    pub(crate) fn ends_hush(&mut self) -> Hush {
        self.listens = self.channels().is_some_and(|own| !own.is_empty());
        std::mem::take(&mut self.hush)
    }

    /// Howdah stops reading from the client when it holds more bytes than this.
    pub fn held_max(&self) -> usize {
        match self.state {
            ClientState::Waiting(_) => limits::WAITING,
            _ => limits::HELD,
        }
    }

    /// True if Howdah can't handle the client's bytes now.
    pub fn holds_back(&self) -> bool {
        let works = matches!(self.state, ClientState::Linked(_) | ClientState::Idle);
        self.end.is_stalled() || self.parked || self.is_leaving() || self.is_hushed() || !works
    }
}

impl Replication {
    /// True if the client asked for replication.
    pub fn any(self) -> bool {
        self != Replication::None
    }
}

// Tens of thousands of idle clients may exist, so this must stay small.
const _: () = assert!(size_of::<Client>() <= 384);
