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
pub mod state;
pub mod task;

pub use crate::parcel::ServerParcel;
pub use ending::Ending;
pub use state::{Numbers, ServerState, Trial, Unnamed};

use std::sync::Arc;

use howdah_wire::backend::Status;
use howdah_wire::tag::frontend;
use howdah_wire::write;

use crate::Seeded;
use crate::cancel::Errand;
use crate::event::{Address, ClientId, Ends, Out, Peer, ServerId, Time, WorkerId};
use crate::inbox::Inbox;
use crate::known::Lookup;
use crate::link::Link;
use crate::params::Params;
use crate::pool::key::{PoolId, PoolKey, Welcome};
use crate::session::inquiry::Inquiry;
use crate::session::settings::Maybe;
use crate::session::{Session, Shelf, Suspect};
use crate::statement::{ServerSet, Statement};
use crate::timers::Timers;
use crate::tls::TlsFacts;
use crate::valve::Valve;

/// A connection to PostgreSQL, and what Howdah knows of the session there.
#[derive(Debug)]
pub struct Server {
    /// What it is doing.
    state: ServerState,
    /// Its number in the console: one sequence for clients and servers.
    pub(crate) number: u64,
    /// The pool it belongs to.
    pub(crate) pool: PoolId,
    /// The host and port that it is connected to, as the log shows them.
    pub(crate) to: Box<str>,
    /// The two ends of its socket, once connected.
    pub(crate) ends: Option<Ends>,
    /// The name of the host it was connected to, if the configuration has a name.
    pub(crate) host: Option<Box<str>>,
    /// Its TLS session, if it has one.
    pub(crate) tls: Option<Arc<TlsFacts>>,
    /// Its stream.
    pub(crate) inbox: Inbox,
    /// Its link. After the client has left, the link still holds the answers that PostgreSQL owes.
    pub(crate) link: Link,
    /// The transaction status of the last ReadyForQuery.
    pub(crate) status: Status,
    /// Its values of the tracked parameters.
    pub(crate) params: Arc<Params>,
    /// Settings of clients that are set in the session and are not among `params`.
    pub(crate) session: Maybe,
    /// A client may have left more than settings: the server is cleaned before another client gets it.
    soiled: bool,
    /// A check has found state that no text showed, or a setting of `connect_query` was reset: the
    /// server is cleaned before another client gets it.
    unseen: bool,
    /// A client's LISTEN ran on this server, and the client gets its notifications by the listener.
    /// The server runs `UNLISTEN *` before another client gets it.
    listens: bool,
    /// The server listens to all channels of its client, which asked `pg_listening_channels()`.
    shows_channels: bool,
    /// Its clients may have sent notifications that the listener has not heard yet.
    unheard: bool,
    /// How far the server is with accepting its client's settings.
    trial: Trial,
    /// Which client's values of sequences it has (`currval`, `lastval`).
    numbers: Numbers,
    /// The texts that its client runs, if the session is checked before the release (one release in
    /// `session_state_check` is).
    pub(crate) check: Option<Box<crate::session::inquiry::CheckedTexts>>,
    /// The question under way about its client's session.
    pub(crate) inquiry: Option<Box<Inquiry>>,
    /// The statements it has.
    pub(crate) set: ServerSet,
    /// Its unnamed statement, as far as PostgreSQL has answered.
    unnamed: Unnamed,
    /// SQL-level PREPARE was used by its client.
    sql_prepared: bool,
    /// Howdah has sent a ROLLBACK because the client left.
    rolled_back: bool,
    /// The last message was sent only in part, and nothing may follow: PostgreSQL would take a
    /// Terminate for the rest of that message.
    cut_off: bool,
    /// It has served a client on this worker.
    served: bool,
    /// Why it must be closed instead of returned to the pool.
    ending: Option<Ending>,
    /// The last value of `in_hot_standby` that it has reported.
    pub(crate) standby: Option<bool>,
    /// Cancel requests under way for it.
    cancels: u32,
    /// PostgreSQL's process id and secret for cancel requests.
    pub(crate) key: Option<(u32, Box<[u8]>)>,
    /// The valve of its socket.
    pub(crate) valve: Valve,
    /// The Broker counts it.
    pub(crate) permitted: bool,
    /// It is being closed, so that PostgreSQL has room for a server of this worker's pool.
    pub(crate) makes_room_for: Option<(WorkerId, Arc<PoolKey>)>,
    /// The one client that the server was opened for (replication).
    pub(crate) reserved: Option<ClientId>,
    /// What it has reported at its login, until that client is told.
    welcome: Option<Box<Welcome>>,
    /// It serves a replication client only.
    pub(crate) replication: bool,
    /// When it was connected.
    pub(crate) connected: Time,
    /// Since when it is in its present use: idle, linked, under test.
    since: Time,
    /// When its client's current transaction began.
    linked: Time,
    /// When the request under way began.
    request: Time,
    /// When its entry in the timers is due; 0 for none.
    pub(crate) timer: Time,
}

impl Server {
    /// What we say to each other goes through TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// A server of which nothing is known yet.
    pub(crate) fn blank(pool: PoolId, seeded: Seeded, now: Time) -> Self {
        Server {
            state: ServerState::Resolving,
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
            listens: false,
            shows_channels: false,
            unheard: true,
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
            valve: Valve::default(),
            permitted: false,
            makes_room_for: None,
            reserved: None,
            welcome: None,
            replication: false,
            connected: now,
            since: now,
            linked: now,
            request: now,
            timer: Time(0),
        }
    }

    /// A client has left, or may have left, something in the session.
    pub(crate) fn soil(&mut self, left: bool) {
        self.soiled |= left;
    }

    /// A client may have left more than settings.
    pub(crate) fn soiled(&self) -> bool {
        self.soiled
    }

    /// True if only DISCARD ALL removes what a client has left.
    pub(crate) fn must_be_cleaned(&self) -> bool {
        self.soiled || self.unseen
    }

    /// True if no client has left anything that the next client could notice.
    pub(crate) fn is_clean(&self) -> bool {
        !self.must_be_cleaned() && !self.listens && self.session.is_none()
    }

    /// What it is doing.
    pub fn state(&self) -> &ServerState {
        &self.state
    }

    /// Our login, while we prove who we are.
    fn login_mut(&mut self) -> Option<&mut state::Login> {
        match &mut self.state {
            ServerState::Login(login) => Some(login),
            _ => None,
        }
    }

    /// The lookup that is under way on it.
    pub(crate) fn lookup_mut(&mut self) -> Option<&mut Lookup> {
        match &mut self.state {
            ServerState::Lookup(lookup) => Some(lookup),
            _ => None,
        }
    }

    /// What it carries, if it is the carrier of a cancel request.
    pub(crate) fn errand_mut(&mut self) -> Option<&mut Errand> {
        match &mut self.state {
            ServerState::Cancel(errand) => Some(errand),
            _ => None,
        }
    }

    /// The client whose parameters are being set on it.
    pub(crate) fn aligns(&self) -> Option<ClientId> {
        match self.state {
            ServerState::Aligning(client) => Some(client),
            _ => None,
        }
    }

    /// Its socket is being opened.
    fn connects_to(&mut self, to: &Address) {
        self.state = ServerState::Connecting;
        self.to = crate::place::whole(to).into();
    }

    /// How far it is with its client's settings.
    pub(crate) fn trial(&self) -> Trial {
        self.trial
    }

    /// A message to it ends in the middle: nothing may follow.
    pub(crate) fn cut_off(&self) -> bool {
        self.cut_off
    }

    /// Cancel requests under way for it.
    pub(crate) fn cancels(&self) -> u32 {
        self.cancels
    }

    /// It has served a client on this worker.
    pub(crate) fn served(&self) -> bool {
        self.served
    }

    /// SQL-level PREPARE was used by its client.
    pub(crate) fn sql_prepared(&self) -> bool {
        self.sql_prepared
    }

    /// Whose values of sequences it has.
    pub(crate) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Since when it is in its present use: idle, linked, under test.
    pub(crate) fn since(&self) -> Time {
        self.since
    }

    /// When the request under way began.
    pub(crate) fn request(&self) -> Time {
        self.request
    }

    /// When its client's current transaction began.
    pub(crate) fn linked(&self) -> Time {
        self.linked
    }

    /// A request of its client begins, and a transaction with it if none is open.
    pub(crate) fn begins_request(&mut self, now: Time) {
        self.request = now;
        if self.status == Status::Idle {
            self.linked = now;
        }
    }

    /// A client gets it.
    pub(crate) fn begins_to_serve(&mut self, now: Time) {
        self.linked = now;
        self.request = now;
        self.since = now;
        self.served = true;
        self.trial = Trial::First;
    }

    /// Nobody has used it since then.
    pub(crate) fn set_rested_since(&mut self, then: Time) {
        self.since = then;
    }

    /// The address of its host is looked for.
    fn looks_for(&mut self, host: &str, port: u16) {
        self.to = format!("{host}:{port}").into();
        self.host = Some(host.into());
    }

    /// Its socket is open.
    pub(crate) fn set_connected(&mut self, ends: Ends, now: Time) {
        self.set_ends(ends);
        self.connected = now;
    }

    /// Its socket has these ends.
    pub(crate) fn set_ends(&mut self, ends: Ends) {
        self.ends = Some(ends);
    }

    /// A cancel request for it is on its way.
    pub(crate) fn cancel_begins(&mut self) {
        self.cancels += 1;
    }

    /// A cancel request has reached PostgreSQL, or never will.
    pub(crate) fn cancel_ends(&mut self) {
        self.cancels -= 1;
    }

    /// What we say to each other goes through TLS.
    fn set_secured(&mut self, facts: Box<TlsFacts>) {
        self.tls = Some(Arc::from(facts));
    }

    /// It has told how to cancel its queries.
    fn can_be_cancelled(&mut self, pid: u32, secret: &[u8]) {
        self.key = Some((pid, secret.into()));
    }

    /// Its values of the tracked parameters have become these.
    pub(crate) fn set_params(&mut self, params: Arc<Params>) {
        self.params = params;
    }

    /// It tells of `in_hot_standby`, if it does.
    pub(crate) fn tells_standby(&mut self, standby: Option<bool>) {
        self.standby = standby;
    }

    /// What it has reported at its login is for the one client that it was opened for.
    pub(crate) fn keeps_welcome(&mut self, welcome: Welcome) {
        self.welcome = Some(Box::new(welcome));
    }

    /// Takes that out.
    ///
    /// # Panics
    /// It was opened for nobody, or has not logged in.
    pub(crate) fn takes_welcome(&mut self) -> Box<Welcome> {
        self.welcome.take().expect("a login behind it")
    }

    /// ReadyForQuery.
    pub(crate) fn mark_ready(&mut self, status: Status) {
        self.status = status;
    }

    /// Runs a Query of Howdah's own. No client sees the answer.
    pub(crate) fn runs_for_us(&mut self, id: ServerId, query: &[u8], out: &mut Out) {
        self.set_unnamed(None);
        self.link.await_query();
        out.send_with(Peer::Server(id), |buf| write::query(buf, query));
    }

    /// Gives it a client's settings by a statement in a transaction of its own. The client's
    /// messages do not wait for the answer: no Sync stands behind the statement. So if PostgreSQL
    /// refuses the statement, it skips what the client sends behind it; and it answers all at once.
    pub(crate) fn sets_along(
        &mut self,
        id: ServerId,
        statement: &[u8],
        settings: Maybe,
        out: &mut Out,
    ) {
        self.session = settings;
        // The COMMIT.
        self.doubt_unnamed();
        self.link.await_settings();
        out.send_with(Peer::Server(id), |buf| {
            // A serializable transaction may have to wait, or be impossible (on a standby).
            let begin: &[u8] = b"BEGIN ISOLATION LEVEL READ COMMITTED";
            for text in [begin, statement, b"COMMIT"] {
                write::message(buf, frontend::PARSE, |buf| {
                    buf.push(0);
                    buf.extend_from_slice(text);
                    buf.extend_from_slice(&[0; 3]);
                });
                write::bind_head(buf, b"", b"", 6);
                buf.extend_from_slice(&[0; 6]);
                write::message(buf, frontend::EXECUTE, |buf| buf.extend_from_slice(&[0; 5]));
            }
        });
    }

    /// It has a session's settings.
    pub(crate) fn set_settings(&mut self, settings: Maybe) {
        self.session = settings;
    }

    /// Equal settings are one value for all who have them.
    pub(crate) fn shares_settings(&mut self, shelf: &mut Shelf) {
        self.session = crate::session::intern(shelf, self.session.take());
    }

    /// A client may have left more than settings; or it has not.
    pub(crate) fn set_soiled(&mut self, soiled: bool) {
        self.soiled = soiled;
    }

    /// It must be cleaned before another client gets it, whatever its client's session has.
    pub(crate) fn mark_soiled_unseen(&mut self) {
        self.unseen = true;
    }

    /// Everything that clients have left is being removed.
    pub(crate) fn mark_cleaned(&mut self) {
        self.soiled = false;
        self.unseen = false;
        self.numbers = Numbers::Nobody;
    }

    /// It goes to a client, which was on it in its last transaction, too (`again`), or not: then the
    /// client's own values may be older ones. True if the values of sequences must be forgotten that are
    /// there, which is so if such are `asked_for` here and they may be others' or older ones.
    pub(crate) fn takes_numbers(&mut self, client: u64, again: bool, asked_for: bool) -> bool {
        let (foreign, alone) = match self.numbers {
            Numbers::Nobody => (false, true),
            Numbers::Of(last) => {
                let own = again && last == client;
                (!own, own)
            }
            Numbers::Several { last, .. } => (asked_for || !again || last != client, false),
        };
        let forgets = foreign && asked_for;
        self.numbers = match alone || forgets {
            true => Numbers::Of(client),
            false => Numbers::Several {
                last: client,
                again: !foreign,
            },
        };
        forgets
    }

    /// Its client keeps it: no other client uses it before that client's next transaction.
    pub(crate) fn stays_with_client(&mut self) {
        if let Numbers::Several { again, .. } = &mut self.numbers {
            *again = true;
        }
    }

    /// This client was the last to use it.
    pub(crate) fn was_used_last_by(&self, client: u64) -> bool {
        match self.numbers {
            Numbers::Nobody => false,
            Numbers::Of(last) | Numbers::Several { last, .. } => last == client,
        }
    }

    /// It has the values of sequences of this client alone.
    pub(crate) fn set_numbers_of(&mut self, client: u64) {
        self.numbers = Numbers::Of(client);
    }

    /// The next step with its client's settings.
    pub(crate) fn tries(&mut self, next: Trial) {
        self.trial = next;
    }

    /// From now on the client's texts are remembered, for a check.
    pub(crate) fn schedule_check(&mut self) {
        self.check = Some(Box::default());
    }

    /// It is asked about its client's session.
    pub(crate) fn begin_inquiry(&mut self, inquiry: Inquiry) {
        self.inquiry = Some(Box::new(inquiry));
    }

    /// It answers the inquiry by this row.
    pub(crate) fn tells_row(&mut self, row: Vec<u8>) {
        if let Some(inquiry) = &mut self.inquiry {
            inquiry.row = Some(row);
        }
    }

    /// It answers the inquiry by an error.
    pub(crate) fn refuses_inquiry(&mut self, cancelled: bool) {
        if let Some(inquiry) = &mut self.inquiry {
            inquiry.failed = true;
            inquiry.cancelled = cancelled;
        }
    }

    /// What it is asked when it could not answer the last time, if it is asked again.
    pub(crate) fn asks_once_more(&mut self) -> Option<Vec<u8>> {
        self.inquiry.as_mut()?.once_more()
    }

    /// The question about the client's session is answered: the server and the client's session
    /// take over the values.
    pub(crate) fn tells_settings(
        &mut self,
        own: &mut Session,
        answers: &[(Suspect, Option<Box<[u8]>>)],
    ) {
        own.learn(&mut self.session, answers);
    }

    /// What it was asked about its client's session is answered.
    pub(crate) fn take_inquiry(&mut self) -> Option<Box<Inquiry>> {
        self.inquiry.take()
    }

    /// Its client runs this text, which the check at the end wants to know.
    pub(crate) fn notes_for_check(&mut self, text: &[u8]) {
        if let Some(check) = &mut self.check {
            check.note(text);
        }
    }

    /// What its client has run is checked now.
    pub(crate) fn take_check(&mut self) -> Option<Box<crate::session::inquiry::CheckedTexts>> {
        self.check.take()
    }

    /// The link is over: nothing is asked about the client's session any more.
    #[inline(always)]
    pub(crate) fn end_inquiry(&mut self) {
        self.inquiry = None;
        self.check = None;
    }

    /// SQL's PREPARE was used on it, or what that made is gone.
    pub(crate) fn set_sql_prepared(&mut self, prepared: bool) {
        self.sql_prepared = prepared;
    }

    /// PostgreSQL has dropped all statements that have names.
    pub(crate) fn forgets_statements(&mut self) {
        self.set.clear_sure();
        self.sql_prepared = false;
    }

    /// It served its client in a predecessor of this process: statements of SQL's PREPARE are not
    /// known.
    pub(crate) fn serves_from_before(&mut self) {
        self.served = true;
        self.sql_prepared = true;
    }

    /// The transaction that its client has left is rolled back. False if that was tried before.
    fn rolls_back(&mut self) -> bool {
        !std::mem::replace(&mut self.rolled_back, true)
    }

    /// It is in no transaction any more.
    fn mark_out_of_transaction(&mut self) {
        self.rolled_back = false;
    }

    /// The last message sent to it is incomplete.
    pub(crate) fn mark_cut_off(&mut self) {
        self.cut_off = true;
    }

    /// The server is closed so that PostgreSQL has room for a server of that worker's pool.
    pub(crate) fn makes_room(&mut self, worker: WorkerId, pool: Arc<PoolKey>) {
        self.makes_room_for = Some((worker, pool));
    }

    /// It comes up in the timers no later than `at`.
    #[inline]
    pub(crate) fn comes_up(&mut self, timers: &mut Timers, id: ServerId, at: Time) {
        timers.arm(Peer::Server(id), at, &mut self.timer);
    }

    /// Its entry in the timers has come up.
    pub(crate) fn timer_is_up(&mut self) {
        self.timer = Time(0);
    }

    /// It enters a step before the login: TLS, or `requirepeer`.
    fn secures(&mut self, step: state::Securing) {
        self.state = ServerState::Securing(step);
    }

    /// We prove who we are; it has told nothing yet.
    fn logs_in(&mut self, login: state::Login, unknown: Params) {
        self.state = ServerState::Login(Box::new(login));
        self.params = Arc::new(unknown);
    }

    /// It begins a task without a client.
    fn begins(&mut self, task: ServerState, now: Time) {
        self.state = task;
        self.since = now;
        self.request = now;
    }

    /// Its client has left. Answers that it owes are read and dropped.
    #[inline]
    pub(crate) fn comes_free(&mut self, now: Time) {
        self.turn(ServerState::Draining);
        self.since = now;
    }

    /// It is idle in its pool, ready for use.
    pub(crate) fn lies_idle(&mut self) {
        self.turn(ServerState::Idle);
    }

    /// Its state becomes another. The states of a transaction own nothing, so that nothing need be
    /// called to drop them.
    #[inline]
    fn turn(&mut self, state: ServerState) {
        let before = std::mem::replace(&mut self.state, state);
        if matches!(
            before,
            ServerState::Idle | ServerState::Linked(_) | ServerState::Draining
        ) {
            std::mem::forget(before);
        }
    }

    /// No client gets it until the cancel requests for it are over.
    pub(crate) fn awaits_cancels(&mut self) {
        self.state = ServerState::BeingCancelled;
    }

    /// Its end of a link: it answers that client.
    pub(crate) fn bind_to(&mut self, client: ClientId) {
        self.turn(ServerState::Linked(client));
    }

    /// The same, but first the server gets that client's settings.
    pub(crate) fn bind_held_to(&mut self, client: ClientId) {
        self.state = ServerState::Aligning(client);
    }

    /// It begins to look up a client's user.
    pub(crate) fn looks_up(&mut self, lookup: Lookup, now: Time) {
        self.begins(ServerState::Lookup(Box::new(lookup)), now);
        self.served = true;
        self.doubt_unnamed();
    }

    /// PostgreSQL has answered a lookup, outside of any transaction. `None` if none was under way.
    pub(crate) fn ends_lookup(&mut self, now: Time) -> Option<Box<Lookup>> {
        if !matches!(self.state, ServerState::Lookup(_)) {
            return None;
        }
        let state = std::mem::replace(&mut self.state, ServerState::Draining);
        self.since = now;
        self.status = Status::Idle;
        match state {
            ServerState::Lookup(lookup) => Some(lookup),
            _ => None,
        }
    }

    /// A connection to the same place that carries a CancelRequest for this one.
    pub(crate) fn carrier(&self, errand: Errand, to: &Address, seeded: Seeded, now: Time) -> Self {
        Server {
            state: ServerState::Cancel(Box::new(errand)),
            to: crate::place::whole(to).into(),
            host: self.host.clone(),
            ..Server::blank(self.pool, seeded, now)
        }
    }

    /// Its number in the console.
    pub(crate) fn numbered(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    /// It goes to another worker.
    pub(crate) fn lend_to(&mut self, worker: WorkerId) {
        self.state = ServerState::Lent(worker);
    }

    /// It goes to our successor.
    pub(crate) fn packs(&mut self) {
        self.state = ServerState::Packed;
    }

    /// It ends.
    pub(crate) fn closes(&mut self) {
        self.state = ServerState::Closing;
    }

    /// Why it must be closed instead of going back to the pool, if it must.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// It must be closed, for this reason, which replaces an earlier one.
    pub(crate) fn must_close(&mut self, why: Ending) {
        self.ending = Some(why);
    }

    /// It must be closed, for this reason unless there is one already.
    pub(crate) fn must_close_too(&mut self, why: Ending) {
        self.ending.get_or_insert(why);
    }

    /// Its unnamed statement, as far as PostgreSQL has answered.
    pub(crate) fn unnamed(&self) -> &Unnamed {
        &self.unnamed
    }

    /// PostgreSQL has confirmed another unnamed statement, or has dropped it (a Query does).
    pub(crate) fn set_unnamed(&mut self, statement: Option<Arc<Statement>>) {
        self.unnamed = Unnamed::Known(statement);
    }

    /// From now on it is not known which unnamed statement it has.
    pub(crate) fn doubt_unnamed(&mut self) {
        self.unnamed = Unnamed::Unknown;
    }

    /// True if a client's LISTEN ran on this server and the client gets its notifications by the
    /// listener.
    pub(crate) fn listens(&self) -> bool {
        self.listens
    }

    /// A client's LISTEN is about to run on this server; the client gets its notifications by the
    /// listener.
    pub(crate) fn will_unlisten(&mut self) {
        self.listens = true;
    }

    /// True if it listens to all channels of its client, so that `pg_listening_channels()` is
    /// right.
    pub(crate) fn shows_channels(&self) -> bool {
        self.shows_channels
    }

    /// The server is told to listen to all channels of its client.
    pub(crate) fn will_show_channels(&mut self) {
        self.shows_channels = true;
        self.listens = true;
    }

    /// The server is told to listen to nothing. False if it listens to nothing already.
    pub(crate) fn unlistens(&mut self) -> bool {
        self.shows_channels = false;
        std::mem::take(&mut self.listens)
    }

    /// Its clients may have sent notifications that the listener has not heard yet.
    pub(crate) fn is_unheard(&self) -> bool {
        self.unheard
    }

    /// The listener has heard all that the server's clients have notified.
    pub(crate) fn mark_heard(&mut self) {
        self.unheard = false;
    }

    /// A client gets it. `listens`: the client gets notifications by the listener.
    pub(crate) fn serves(&mut self, listens: bool) {
        self.unheard |= !listens;
    }

    /// It listens for clients from now on.
    pub(crate) fn becomes_listener(&mut self, now: Time) {
        self.state = ServerState::Listening { first: true };
        self.served = true;
        self.since = now;
    }

    /// A query of the listener's connection is over. True if that was its first.
    pub(crate) fn first_query_ends(&mut self) -> bool {
        let first = matches!(self.state, ServerState::Listening { first: true });
        if first {
            self.state = ServerState::Listening { first: false };
        }
        first
    }

    /// The client it is bound to.
    pub fn client(&self) -> Option<ClientId> {
        match self.state {
            ServerState::Linked(client) | ServerState::Aligning(client) => Some(client),
            _ => None,
        }
    }

    /// The last ReadyForQuery did not tell of a failed transaction.
    pub fn not_failed(&self) -> bool {
        self.status != Status::Failed
    }
}
