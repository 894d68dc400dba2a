//! A server: Howdah's connection to PostgreSQL.
//!
//! ```text
//!  Resolving -> Connecting -> (Securing) -> Login -> (ConnectQuery) -> Idle <--> Linked
//!                                                                     ^ ^ |         |
//!                                                       Checking <----' | `- Lent   v
//!                                                                       |      Resetting, Draining
//!                                                                       `-----------'
//! ```

mod close;
pub mod connect;
pub mod connection;
pub mod ending;
pub(crate) mod host;
pub mod login;
mod lost;
pub mod own;
mod parcel;
mod rest;
mod secret;
pub mod secure;
pub mod state;
pub mod task;
mod times;
mod travel;
pub mod user_end;
mod vanishing;

pub use crate::parcel::ServerParcel;
pub(crate) use connection::ServerConnection;
pub use ending::Ending;
pub use state::{Reservation, ServerState};
pub(crate) use times::ServerTimes;
pub use user_end::VanishingUser;

use std::sync::Arc;

use howdah_wire::backend::Status;
use howdah_wire::tag::frontend;
use howdah_wire::write;

use crate::Seeded;
use crate::cancel::errand::{Cancels, Errand};
use crate::event::{Address, ClientId, Ends, Out, Peer, ServerId, Time, WorkerId};
use crate::inbox::Inbox;
use crate::known::Lookup;
use crate::link::Link;
use crate::login::key::{LoginId, Welcome};
use crate::params::Params;
use crate::pool::key::{PoolId, PoolKey};
use crate::reads::maturity::Maturity;
use crate::reads::naming::Naming;
use crate::roster::check::Examination;
use crate::roster::view::Instance;
use crate::session::server::{Numbers, ServerSession, Trial};
use crate::session::settings::Maybe;
use crate::shard::lore::CatalogueAnswer;
use crate::statement::{ServerSet, Shape, Statement};
use crate::timers::Timers;
use crate::valve::Valve;

/// A connection to PostgreSQL, and Howdah's knowledge of the session there.
#[derive(Debug)]
pub struct Server {
    /// The server's state.
    state: ServerState,
    /// The server's number in the console: one sequence for clients and servers.
    pub(crate) number: u64,
    /// The login of the server's pool.
    pub(crate) login: LoginId,
    /// The server's pool.
    pub(crate) pool: PoolId,
    /// Where the server is connected.
    pub(crate) connection: ServerConnection,
    /// The server's byte stream.
    pub(crate) inbox: Inbox,
    /// The link. After the client has left, the link still holds the answers that PostgreSQL owes.
    pub(crate) link: Link,
    /// The transaction status of the last ReadyForQuery.
    pub(crate) status: Status,
    /// What clients have set, and what they have left, in the session at PostgreSQL.
    pub(crate) session: ServerSession,
    /// The server's statements.
    pub(crate) statements: ServerSet,
    /// Howdah has sent a ROLLBACK because the client left.
    rolled_back: bool,
    /// The last message was sent only in part, and nothing may follow: PostgreSQL would read a
    /// Terminate as the rest of that message.
    cut_off: bool,
    /// The server has served a client on this worker.
    served: bool,
    /// How many times a client has got the server on this worker.
    pub(crate) checkouts: u64,
    /// Why Howdah must close the server instead of returning it to the pool.
    ending: Option<Ending>,
    /// The last value of `in_hot_standby` that the server reported.
    pub(crate) standby: Option<bool>,
    /// The standby that the server is mature for, to serve reads ([`crate::reads`]).
    pub(crate) instance: Option<Instance>,
    /// The key for cancel requests, and the requests under way.
    pub(crate) cancels: Cancels,
    /// Stops and resumes reading from the socket.
    pub(crate) valve: Valve,
    /// The Broker counts the server.
    pub(crate) permitted: bool,
    /// Howdah closes the server so that PostgreSQL has room for a server of this worker's pool.
    pub(crate) makes_room_for: Option<(WorkerId, Arc<PoolKey>)>,
    /// The server has one client only (replication).
    reserved: Option<Box<Reservation>>,
    /// The server's user, if that vanishes.
    vanishing: Option<Box<VanishingUser>>,
    /// The server's user has vanished, or is about to: a client that keeps the server ends, too.
    pub(crate) user_has_ended: bool,
    /// A client of a sharded database has left the server in the middle of its work.
    left_by_sharded: bool,
    /// When things last happened.
    pub(crate) times: ServerTimes,
    /// When the server's timer entry is due; 0 for none.
    pub(crate) timer: Time,
}

impl Server {
    /// If PostgreSQL has confirmed a statement here, and any other server would confirm it, too: its
    /// description, as far as known.
    pub(crate) fn confirms(&self, statement: &Arc<Statement>) -> Option<Option<Shape>> {
        let changes = &self.session.changes;
        let goes = self.ending.is_some() || matches!(self.state, ServerState::Closing);
        // What was parsed in a transaction may have another meaning elsewhere, and a standby may be
        // behind.
        if goes || self.instance.is_some() || changes.are_private() || changes.has_left_statements()
        {
            return None;
        }
        self.statements.confirmed(statement)
    }

    /// When the server must be replaced because its user vanishes.
    pub(crate) fn retires(&self) -> Option<Time> {
        self.vanishing.as_ref().map(|user| user.retires())
    }

    /// The server's user, if that vanishes; otherwise `None`.
    pub(crate) fn lives_as(&mut self, user: Option<Box<VanishingUser>>) {
        self.vanishing = user;
    }

    /// A source has answered: the user may live longer, or be gone.
    pub(crate) fn renews_user(&mut self, fetched: &crate::config::Fetched, now: Time) {
        if let Some(user) = &mut self.vanishing {
            user.renew(fetched, now);
        }
    }

    /// True if the connection uses TLS.
    pub fn is_tls(&self) -> bool {
        self.connection.tls.is_some()
    }

    /// A new server without any known state.
    pub(crate) fn blank(
        (login, pool): (LoginId, PoolId),
        connection: ServerConnection,
        seeded: Seeded,
        now: Time,
    ) -> Self {
        Server {
            state: ServerState::Resolving,
            number: 0,
            login,
            pool,
            connection,
            inbox: Inbox::default(),
            link: Link::default(),
            status: Status::Idle,
            session: ServerSession::new(Arc::new(Params::none()), None, Numbers::default()),
            statements: ServerSet::new(seeded),
            rolled_back: false,
            cut_off: false,
            served: false,
            checkouts: 0,
            ending: None,
            cancels: Cancels::default(),
            standby: None,
            instance: None,
            vanishing: None,
            user_has_ended: false,
            left_by_sharded: false,
            valve: Valve::default(),
            permitted: false,
            makes_room_for: None,
            reserved: None,
            times: ServerTimes::new(now, now),
            timer: Time(0),
        }
    }

    /// The server's state.
    pub fn state(&self) -> &ServerState {
        &self.state
    }

    fn login_mut(&mut self) -> Option<&mut state::ServerAttempt> {
        match &mut self.state {
            ServerState::Login(login) => Some(login),
            _ => None,
        }
    }

    pub(crate) fn lookup_mut(&mut self) -> Option<&mut Lookup> {
        match &mut self.state {
            ServerState::Lookup(lookup) => Some(lookup),
            _ => None,
        }
    }

    /// The errand, if the connection carries a cancel request.
    pub(crate) fn errand_mut(&mut self) -> Option<&mut Errand> {
        match &mut self.state {
            ServerState::Cancel(errand) => Some(errand),
            _ => None,
        }
    }

    /// The client whose parameters Howdah is setting on the server.
    pub(crate) fn aligns(&self) -> Option<ClientId> {
        match self.state {
            ServerState::Aligning(client) => Some(client),
            _ => None,
        }
    }

    /// Opens the socket.
    fn connects_to(&mut self, to: &Address) {
        self.state = ServerState::Connecting;
        self.connection.begin(to);
    }

    pub(crate) fn cut_off(&self) -> bool {
        self.cut_off
    }

    pub(crate) fn served(&self) -> bool {
        self.served
    }

    /// The client begins a request, and a transaction if none is open.
    pub(crate) fn begin_request(&mut self, now: Time) {
        self.times.begin_request(now, self.status == Status::Idle);
    }

    /// A client gets the server.
    pub(crate) fn begin_to_serve(&mut self, now: Time) {
        self.times.begin_request(now, true);
        self.served = true;
        self.checkouts += 1;
        self.session.set_trial(Trial::First);
    }

    pub(crate) fn set_connected(&mut self, ends: Ends, now: Time) {
        self.connection.set_ends(ends);
        self.times.set_connected(now);
    }

    pub(crate) fn tells_standby(&mut self, standby: Option<bool>) {
        self.standby = standby;
    }

    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved.is_some()
    }

    /// The only client of a reserved server.
    pub(crate) fn reserved_for(&self) -> Option<ClientId> {
        self.reserved.as_ref().map(|reserved| reserved.client)
    }

    /// Keeps the reports from the login for the client of a reserved server.
    pub(crate) fn keep_welcome(&mut self, welcome: Welcome) {
        if let Some(reserved) = &mut self.reserved {
            reserved.welcome = Some(welcome);
        }
    }

    /// Takes the reports from the login.
    ///
    /// # Panics
    /// The server is not reserved, or has not logged in.
    pub(crate) fn take_welcome(&mut self) -> Welcome {
        let reserved = self.reserved.as_mut();
        let welcome = reserved.and_then(|reserved| reserved.welcome.take());
        welcome.expect("a reserved server that has logged in")
    }

    pub(crate) fn mark_ready(&mut self, status: Status) {
        self.status = status;
        self.times.mark_answered();
    }

    /// Runs a Query of Howdah. No client sees the answer.
    pub(crate) fn runs_for_us(&mut self, id: ServerId, query: &[u8], out: &mut Out) {
        self.statements.set_unnamed(None);
        self.link.await_query();
        out.send_with(Peer::Server(id), |buf| write::query(buf, query));
    }

    /// Sends a client's settings in a transaction of their own. The client's messages do not wait
    /// for the answer, because no Sync follows the settings. So if PostgreSQL refuses the settings,
    /// it skips the client's messages as well, and it sends all answers together.
    pub(crate) fn sets_along(
        &mut self,
        id: ServerId,
        statement: &[u8],
        settings: Maybe,
        out: &mut Out,
    ) {
        self.session.set_settings(settings);
        // The COMMIT replaces the unnamed statement.
        self.statements.doubt_unnamed();
        self.link.await_settings();
        out.send_with(Peer::Server(id), |buf| {
            // A serializable transaction may have to wait, or be impossible on a standby.
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

    /// The server served its client in a predecessor process. SQL's PREPARE may have been used
    /// there.
    pub(crate) fn serves_from_before(&mut self) {
        self.served = true;
        self.statements.set_sql_prepared(true);
    }

    /// Howdah rolls back the transaction that the client has left. False if this was tried before.
    fn rolls_back(&mut self) -> bool {
        !std::mem::replace(&mut self.rolled_back, true)
    }

    fn mark_out_of_transaction(&mut self) {
        self.rolled_back = false;
    }

    /// The last message to the server is incomplete.
    pub(crate) fn mark_cut_off(&mut self) {
        self.cut_off = true;
    }

    /// Howdah closes the server so that PostgreSQL has room for a server of that worker's pool.
    pub(crate) fn makes_room(&mut self, worker: WorkerId, pool: Arc<PoolKey>) {
        self.makes_room_for = Some((worker, pool));
    }

    /// Arms the timer: it is due at `at` or earlier.
    #[inline]
    pub(crate) fn arm_timer(&mut self, timers: &mut Timers, id: ServerId, at: Time) {
        timers.arm(Peer::Server(id), at, &mut self.timer);
    }

    pub(crate) fn timer_fired(&mut self) {
        self.timer = Time(0);
    }

    /// Begins a step before the login: TLS, or `requirepeer`.
    fn secures(&mut self, step: state::Securing) {
        self.state = ServerState::Securing(step);
    }

    /// Howdah begins its login. The server has reported no parameters yet.
    fn logs_in(&mut self, login: state::ServerAttempt, unknown: Params) {
        self.state = ServerState::Login(Box::new(login));
        self.session.set_params(Arc::new(unknown));
    }

    /// Begins a task without a client.
    fn begins(&mut self, task: ServerState, now: Time) {
        self.state = task;
        self.times.begin_task(now);
    }

    /// The client has left. Howdah reads and drops the answers still owed.
    #[inline]
    pub(crate) fn comes_free(&mut self, now: Time) {
        self.turn(ServerState::Draining);
        self.times.rest(now);
    }

    pub(crate) fn becomes_idle(&mut self) {
        self.turn(ServerState::Idle);
    }

    /// Changes the state. States of a transaction own nothing, so they need no drop call.
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

    /// No client gets the server until its cancel requests are over.
    pub(crate) fn awaits_cancels(&mut self) {
        self.state = ServerState::BeingCancelled;
    }

    /// Links the server: its answers go to this client.
    pub(crate) fn bind_to(&mut self, client: ClientId) {
        self.turn(ServerState::Linked(client));
    }

    /// Links the server, but first gives it the client's settings.
    pub(crate) fn bind_held_to(&mut self, client: ClientId) {
        self.state = ServerState::Aligning(client);
    }

    /// The server begins to look up a client's user.
    pub(crate) fn looks_up(&mut self, lookup: Lookup, now: Time) {
        self.begins(ServerState::Lookup(Box::new(lookup)), now);
        self.served = true;
        self.statements.doubt_unnamed();
    }

    /// PostgreSQL has answered a lookup, outside of any transaction. `None` if no lookup was under
    /// way.
    pub(crate) fn ends_lookup(&mut self, now: Time) -> Option<Box<Lookup>> {
        if !matches!(self.state, ServerState::Lookup(_)) {
            return None;
        }
        let state = std::mem::replace(&mut self.state, ServerState::Draining);
        self.times.set_used(now);
        self.status = Status::Idle;
        match state {
            ServerState::Lookup(lookup) => Some(lookup),
            _ => None,
        }
    }

    /// The examination of the host, if this is a check's connection.
    /// The server waits until it can serve reads.
    pub(crate) fn is_maturing(&self) -> bool {
        matches!(self.state, ServerState::Maturing(_))
    }

    /// The server can serve reads at this standby.
    pub(crate) fn matures(&mut self, instance: Instance) {
        self.instance = Some(instance);
    }

    pub(crate) fn maturity_mut(&mut self) -> Option<&mut Maturity> {
        match &mut self.state {
            ServerState::Maturing(maturity) => Some(maturity),
            _ => None,
        }
    }

    pub(crate) fn naming_mut(&mut self) -> Option<&mut Naming> {
        match &mut self.state {
            ServerState::Naming(naming) => Some(naming),
            _ => None,
        }
    }

    pub(crate) fn catalogue_mut(&mut self) -> Option<&mut CatalogueAnswer> {
        match &mut self.state {
            ServerState::Cataloguing(answer) => Some(answer),
            _ => None,
        }
    }

    pub(crate) fn examination_mut(&mut self) -> Option<&mut Examination> {
        match &mut self.state {
            ServerState::Examining(examination) => Some(examination),
            _ => None,
        }
    }

    /// A connection to the same place that carries a CancelRequest for this server.
    pub(crate) fn carrier(&self, errand: Errand, to: &Address, seeded: Seeded, now: Time) -> Self {
        let place = (self.login, self.pool);
        Server {
            state: ServerState::Cancel(Box::new(errand)),
            ..Server::blank(place, self.connection.again(to), seeded, now)
        }
    }

    pub(crate) fn numbered(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    pub(crate) fn lend_to(&mut self, worker: WorkerId) {
        self.state = ServerState::Lent(worker);
    }

    /// The server moves to the successor process.
    pub(crate) fn packs(&mut self) {
        self.state = ServerState::Packed;
    }

    pub(crate) fn closes(&mut self) {
        self.state = ServerState::Closing;
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Howdah must close the server, for this reason. It replaces an earlier reason.
    pub(crate) fn close_at_release(&mut self, why: Ending) {
        self.ending = Some(why);
    }

    /// Howdah must close the server, for this reason unless there is one already.
    pub(crate) fn ensure_close_at_release(&mut self, why: Ending) {
        // Another reason hides no user's end.
        self.user_has_ended |= why == Ending::UserEnds;
        self.ending.get_or_insert(why);
    }

    /// The server becomes a listening connection.
    pub(crate) fn becomes_listener(&mut self, now: Time) {
        self.state = ServerState::Listening { first: true };
        self.served = true;
        self.times.set_used(now);
    }

    /// A query of the listening connection is over. True if it was the first one.
    pub(crate) fn first_query_ends(&mut self) -> bool {
        let first = matches!(self.state, ServerState::Listening { first: true });
        if first {
            self.state = ServerState::Listening { first: false };
        }
        first
    }

    /// True if the server is executing something, that is, owes an answer.
    pub(crate) fn is_at_work(&self) -> bool {
        matches!(self.state, ServerState::Linked(_) | ServerState::Lookup(_)) && self.link.is_owed()
    }

    /// True if a client has the server.
    pub fn is_linked(&self) -> bool {
        self.linked_client().is_some()
    }

    /// The server's client, if there is a link.
    pub fn linked_client(&self) -> Option<ClientId> {
        match self.state {
            ServerState::Linked(client) | ServerState::Aligning(client) => Some(client),
            _ => None,
        }
    }

    /// The server's client leaves in the middle of its work.
    pub(crate) fn loses_client(&mut self, is_sharded: bool) {
        self.left_by_sharded = is_sharded;
    }

    /// True if a client of a sharded database has left, and a statement of the client may still run.
    pub(crate) fn runs_for_nobody(&self) -> bool {
        use ServerState::{BeingCancelled, Closing, Draining};
        self.left_by_sharded && matches!(self.state, Draining | BeingCancelled | Closing)
    }

    /// True unless the last ReadyForQuery reported a failed transaction.
    pub fn not_failed(&self) -> bool {
        self.status != Status::Failed
    }
}
