//! The decisions of one worker: events go in, actions come out.

use std::collections::VecDeque;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use hashbrown::HashMap;

use crate::cancel::Keys;
use crate::cancel::guesses::Guesses;
use crate::cancel::seek::Searches;
use crate::client::Client;
use crate::client::ClientState;
use crate::config::{Config, LogFormat};
use crate::console::Consoles;
use crate::errors::NotLetIn;
use crate::event::{
    Action, Answer, ClientId, Event, Order, Out, Peer, Question, ServerId, Time, WorkerId,
};
use crate::fault::Fault;
use crate::janitor::Janitor;
use crate::known::Known;
use crate::listen::SharedListener;
use crate::login::Logins;
use crate::login::key::LoginKey;
use crate::mail::{FromBroker, Mail, ToBroker};
use crate::moves::Moves;
use crate::names::NameInterner;
use crate::next::{Next, Upcoming};
use crate::note::{About, Cause, Level, Note};
use crate::params::{ParamsInterner, Tracked};
use crate::peering::Peering;
use crate::pool::Pools;
use crate::pool::key::Purpose;
use crate::pool::target::Targets;
use crate::queries::Queries;
use crate::seats::Spread;
use crate::server::Server;
use crate::shared::Shared;
use crate::statement::Interner;
use crate::table::Table;
use crate::timers::Timers;
use crate::tls::Handshakes;
use crate::{Seeded, seeded};

/// What a `Pooler` needs at its start.
#[derive(Debug)]
pub struct PoolerSetup {
    /// The worker.
    pub worker: WorkerId,
    /// How many workers exist.
    pub workers: u16,
    /// How many workers, counted from the first, may have clients: one for each core that the
    /// process may use.
    pub usable: u16,
    /// The settings.
    pub config: Arc<Config>,
    /// Entropy: different for each worker, and secret.
    pub seed: [u8; 32],
    /// Entropy that all workers share, for values that they must agree on.
    pub shared_seed: [u8; 32],
    /// The wall clock at `Time(0)`, in seconds since 1970.
    pub started: f64,
    /// The chosen driver, and the reason, for the console.
    pub driver: String,
    /// The user id of the process. This user may enter the console by unix socket.
    pub uid: u32,
    /// Numbers connections for the console. All workers share this counter.
    pub numbers: Arc<AtomicU64>,
}

impl PoolerSetup {
    /// Setups for all workers of a process, for tests. Nothing in them is secret or random, so all
    /// runs are equal.
    pub fn repeatable(workers: u16, config: &Arc<Config>) -> impl Iterator<Item = PoolerSetup> {
        let numbers = Arc::default();
        let config = config.clone();
        (0..workers).map(move |worker| PoolerSetup {
            worker: WorkerId(worker),
            workers,
            usable: workers,
            config: config.clone(),
            seed: [worker as u8; 32],
            shared_seed: [7; 32],
            started: 0.0,
            driver: "none".into(),
            uid: 70,
            numbers: Arc::clone(&numbers),
        })
    }
}

/// The decisions of one worker.
///
/// ```text
///               Event                      Action
///   driver  ------------>  Pooler  ------------------>  driver
///            handle(now, event, out)    out.actions
/// ```
///
/// The contract: call [`Pooler::handle`] for each event, carry out all actions of `out` in order,
/// clear `out`, then handle the next event. When [`Pooler::next_deadline`] passes, handle
/// [`Event::Tick`]. Getters may be called at any time. [`Pooler::check`] verifies every invariant.
#[derive(Debug)]
pub struct Pooler {
    pub(crate) now: Time,
    pub(crate) worker: WorkerId,
    pub(crate) workers: u16,
    pub(crate) config: Arc<Config>,
    pub(crate) started: f64,
    pub(crate) driver: String,
    pub(crate) uid: u32,
    pub(crate) shared: Shared,
    pub(crate) queries: Queries,
    pub(crate) clients: Table<ClientId, Client>,
    pub(crate) servers: Table<ServerId, Server>,
    pub(crate) logins: Logins,
    pub(crate) pools: Pools,
    pub(crate) timers: Timers,
    pub(crate) keys: Keys,
    pub(crate) peering: Peering,
    pub(crate) guesses: Guesses,
    /// Searches for clients by cancel requests and signals.
    pub(crate) searches: Searches,
    pub(crate) known: Known,
    /// SQL LISTEN connections of this worker, by login.
    pub(crate) listeners: HashMap<Arc<LoginKey>, SharedListener, Seeded>,
    pub(crate) consoles: Consoles,
    pub(crate) janitor: Janitor,
    pub(crate) spread: Spread,
    pub(crate) moves: Moves,
    /// TLS handshakes: with clients, and with servers.
    pub(crate) handshakes: [Handshakes; 2],
    /// Clients that were not let in.
    pub(crate) not_let_in: NotLetIn,
    pub(crate) random: ChaCha20Rng,
    pub(crate) seeded: Seeded,
    /// The askers of open questions, by ticket.
    pub(crate) asks: HashMap<u64, Asker, Seeded>,
    /// How many questions the control thread has got.
    next_ticket: u64,
    /// The number of the latest request for permission to keep a server.
    pub(crate) tickets: u64,
    /// Numbers of clients and servers in the console: one sequence for all workers.
    pub(crate) numbers: Arc<AtomicU64>,
    /// Steps that follow from the current event.
    pub(crate) next: Upcoming,
    /// Clients whose long messages wait for room in the account, in this order.
    pub(crate) room_line: VecDeque<ClientId>,
    /// Free blocks for held bytes; the last one freed is used first.
    pub(crate) spare: Vec<Vec<u8>>,
    /// How many bugs (panics) the worker has survived.
    pub(crate) internal_errors: u64,
}

/// The usual limit of a log line, in bytes.
const LINE: usize = 192;

/// The asker of a question to the control thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A client's login.
    Client(ClientId),
    /// A server's login, or its address.
    Server(ServerId),
    /// A console's SHOW of host names, with the number of its wait.
    Names(ClientId, u64),
    /// A console's RELOAD.
    Console(ClientId),
    /// A cancel request for the peer of this id.
    Forward(u16),
}

impl Pooler {
    /// A worker at its start.
    pub fn new(setup: PoolerSetup) -> Self {
        let mut random = ChaCha20Rng::from_seed(setup.seed);
        let seeded = seeded(random.next_u64());
        let extra = setup
            .config
            .globals
            .track_extra_parameters
            .iter()
            .map(String::as_str);
        let shared = Shared {
            tracked: Tracked::new(extra),
            names: NameInterner::new(seeded),
            targets: Targets::new(seeded),
            params: ParamsInterner::new(seeded),
            settings: crate::session::Shelf::new(seeded),
            statements: Interner::new(seeded, setup.worker),
            account: Default::default(),
        };
        let queries = Queries::new(seeded, &setup.config.globals);
        let mut pooler = Pooler {
            now: Time(0),
            worker: setup.worker,
            workers: setup.workers,
            config: setup.config,
            started: setup.started,
            driver: setup.driver,
            uid: setup.uid,
            shared,
            queries,
            clients: Table::default(),
            servers: Table::default(),
            logins: Logins::new(seeded),
            pools: Pools::new(seeded),
            timers: Timers::default(),
            keys: Keys::new(setup.worker, setup.shared_seed),
            peering: Peering::new(seeded),
            guesses: Guesses::new(seeded),
            searches: Searches::default(),
            known: Known::new(seeded),
            listeners: HashMap::with_hasher(seeded),
            consoles: Consoles::default(),
            janitor: Janitor::default(),
            spread: Spread::new(setup.usable.clamp(1, setup.workers), seeded),
            moves: Moves::default(),
            handshakes: Default::default(),
            not_let_in: NotLetIn::default(),
            random,
            seeded,
            asks: HashMap::with_hasher(seeded),
            next_ticket: 0,
            tickets: 0,
            numbers: setup.numbers,
            next: Upcoming::default(),
            room_line: VecDeque::new(),
            spare: Vec::new(),
            internal_errors: 0,
        };
        pooler.peers_changed();
        pooler
    }

    /// The worker for tasks that one worker does for all.
    pub(crate) const FIRST: WorkerId = WorkerId(0);

    /// Handles one event, and appends actions to `out`.
    pub fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Out) {
        self.now = now;
        match event {
            Event::Received(Peer::Client(id), bytes) => {
                self.client_sent(id, bytes, out);
                if self.janitor.suspension.is_some() {
                    self.go_on(out);
                    self.suspend_client(id, out);
                }
            }
            Event::Received(Peer::Server(id), bytes) => {
                self.server_sent(id, bytes, out);
                if self.janitor.suspension.is_some() {
                    self.go_on(out);
                    self.suspend_server(id, out);
                }
            }
            Event::Accepted(ends) => self.accepted(ends, out),
            Event::Connected(id, result) => self.connected(id, result, out),
            Event::TlsDone(Peer::Client(id), result) => self.client_tls_done(id, result, out),
            Event::TlsDone(Peer::Server(id), result) => self.server_tls_done(id, result, out),
            Event::Lost(Peer::Client(id), why) => self.client_lost(id, why, out),
            Event::Lost(Peer::Server(id), why) => self.server_lost(id, why, out),
            Event::Congested(peer) => self.congested(peer, out),
            Event::Drained(peer) => self.drained(peer, out),
            Event::Flushed(peer) => self.flushed(peer, out),
            Event::Closed {
                peer: Peer::Client(id),
                ..
            } => self.client_closed(id, out),
            Event::Closed {
                peer: Peer::Server(id),
                gone: true,
            } => self.server_gone(id, out),
            Event::Closed {
                peer: Peer::Server(id),
                gone: false,
            } => self.server_given_up(id, out),
            Event::Detached(Peer::Client(id), socket) => self.client_detached(id, socket, out),
            Event::Detached(Peer::Server(id), socket) => self.server_detached(id, socket, out),
            Event::Mail(mail) => self.mail(mail, out),
            Event::Answer(answer) => self.answer(answer, out),
            Event::Settings(config) => self.new_settings(config, out),
            Event::Order(order) => self.order(&order, out),
            Event::Tick => self.tick(out),
        }
        self.go_on(out);
        if !self.room_line.is_empty() {
            self.give_room();
            self.go_on(out);
        }
        if self.consoles.are_owed() {
            self.settle_orders(out);
        }
    }

    /// The router: takes all noted steps, and the steps that follow from these.
    #[inline]
    pub(crate) fn go_on(&mut self, out: &mut Out) {
        if !self.next.is_empty() {
            self.take_steps(out);
        }
    }

    /// Rare: most events cause no further step.
    #[inline(never)]
    fn take_steps(&mut self, out: &mut Out) {
        while let Some(step) = self.next.take() {
            match step {
                Next::Resume(id) => self.go_on_with(id, out),
                Next::Hear(id) => self.server_sent(id, b"", out),
                Next::BringToRest(id) if self.servers.get(id).is_some() => self.task_moves(id, out),
                Next::BringToRest(_) => {}
                Next::Tell(id) => self.tell_if_idle(id, out),
                Next::TellLost(id) => self.disconnect(id, Fault::ServerGone, out),
                Next::LookUp(id) => self.look_up_again(id, out),
                Next::Forget(id) => self.server_gone(id, out),
            }
        }
    }

    /// Sends a client's held messages, unless the client has left.
    fn go_on_with(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        if client.is_leaving()
            || !matches!(client.state(), ClientState::Linked(_) | ClientState::Idle)
        {
            return;
        }
        self.resume(id, out);
    }

    fn mail(&mut self, mail: Mail, out: &mut Out) {
        match mail {
            Mail::Client(parcel) => self.client_arrived(*parcel, out),
            Mail::Move(traveller) => self.moved_in(*traveller, out),
            Mail::Shed {
                login,
                to,
                clients,
                idle,
            } => self.shed(login, to, (clients, idle), out),
            Mail::Seats(login, seats) => self.spread.seat(login, seats),
            Mail::NewPools(at) => self.spread.seat_new_pools(at),
            Mail::Landed => self.moves.under_way -= 1,
            Mail::Server(parcel) => self.server_arrived(*parcel, out),
            Mail::Welcome(login, welcome, epoch) => {
                if let Some(id) = self.logins.find(&login)
                    && epoch >= self.janitor.epoch()
                {
                    self.learn_welcome(id, *welcome, out);
                }
            }
            Mail::MakeRoom(wish) => self.make_room(*wish, out),
            Mail::Room(pool, made) => self.room(&pool, made, out),
            Mail::Brokered(mail) => self.brokered(mail, out),
            Mail::Seek(seek) => self.seek(*seek, out),
            Mail::Sought(number, finding) => self.sought(number, finding, out),
            Mail::ToListener(mail) => self.listener_hears(mail, out),
            Mail::FromListener(mail) => self.listener_says(mail, out),
            Mail::Forward { peer, packet, from } => self.forward(peer, packet, from, out),
            Mail::Forwarded(client, done) => self.forward_done(client, done, out),
            Mail::Standby(login, standby) => self.learn_standby(&login, standby),
            Mail::SchemaChanged(database, changes) => {
                let statements = &mut self.shared.statements;
                statements.schema_changed_elsewhere(&database, changes);
            }
            Mail::SecretChanged(changed) => self.secret_changed_elsewhere(*changed, out),
            Mail::Order(Order::GiveUp) => self.successor_left(out),
            Mail::Order(order) => self.order(&order, out),
            Mail::Survey(survey) => self.survey(survey, out),
            Mail::Report(report) => self.report(report, out),
            Mail::Adopt(parcel) => self.adopt(*parcel, out),
            Mail::AllAdopted => {
                out.push(Action::Broker(ToBroker::AllArrived));
            }
            Mail::Inherit(estate) => self.inherit(&estate),
        }
    }

    fn brokered(&mut self, mail: FromBroker, out: &mut Out) {
        match mail {
            FromBroker::Permit {
                pool,
                reserve,
                warm,
            } => self.permitted(&pool, reserve, warm, out),
            FromBroker::Hungry {
                worker,
                pool,
                age,
                unwelcomed,
                idle_only,
            } => self.hungry(worker, &pool, age, unwelcomed, idle_only, out),
            FromBroker::Give { pool, to } => self.give(&pool, to, out),
            FromBroker::Alone { pool } => self.alone(&pool, out),
            FromBroker::Evict { pool, from, age } => self.evict(&pool, from, age, out),
            FromBroker::Content { pool } => self.content(&pool),
            FromBroker::HeldBack { pool, by } => self.held_back(&pool, by),
            FromBroker::Silence { pool } => self.silence_listener(&pool.login, out),
            FromBroker::Keep { pool, keep } => self.keep(&pool, keep, out),
            FromBroker::Admitted {
                client,
                login,
                answer,
            } => {
                self.admitted(client, login, answer, out);
            }
            FromBroker::Pinned {
                client,
                ticket,
                granted,
            } => self.permission_answered(client, ticket, granted, out),
        }
    }

    fn answer(&mut self, answer: Answer, out: &mut Out) {
        let ticket = match &answer {
            Answer::Resolved(ticket, _)
            | Answer::Derived(ticket, _)
            | Answer::Dropped(ticket)
            | Answer::UserNamed(ticket, _)
            | Answer::PasswordChecked(ticket, _)
            | Answer::Reloaded(ticket, _)
            | Answer::Set(ticket, _)
            | Answer::Forwarded(ticket, _) => *ticket,
            Answer::Names(ticket, _) => *ticket,
            Answer::Moved { host, gone } => return self.host_moved(host, gone, out),
            Answer::Forwarding(ticket) => return self.forwarding(*ticket),
        };
        // The asker may be gone.
        let Some(asker) = self.asks.remove(&ticket) else {
            return;
        };
        match (asker, answer) {
            (Asker::Server(id), Answer::Resolved(_, result)) => self.resolved(id, result, out),
            (Asker::Client(id), Answer::Derived(_, key)) => self.client_derived(id, key, out),
            (Asker::Client(id), Answer::UserNamed(_, name)) => self.peer_named(id, name, out),
            (Asker::Server(id), Answer::UserNamed(_, name)) => {
                self.server_peer_named(id, name, out);
            }
            (Asker::Client(id), Answer::PasswordChecked(_, verdict)) => {
                self.password_checked(id, verdict, out);
            }
            (Asker::Server(id), Answer::Derived(_, key)) => self.server_derived(id, key, out),
            (Asker::Console(id), Answer::Reloaded(_, result)) => {
                self.reloaded(id, result.map(|()| None), out);
            }
            (Asker::Console(id), Answer::Set(_, result)) => self.reloaded(id, result, out),
            (Asker::Names(id, serial), Answer::Names(_, names)) => {
                self.report_names(id, serial, names, out);
            }
            (Asker::Forward(peer), Answer::Forwarded(ticket, result)) => {
                self.forwarded(peer, ticket, result, out);
            }
            _ => {}
        }
    }

    /// Asks the control thread a question.
    pub(crate) fn ask(
        &mut self,
        asker: Asker,
        question: impl FnOnce(u64) -> Question,
        out: &mut Out,
    ) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.asks.insert(ticket, asker);
        out.push(Action::Ask(question(ticket)));
    }

    /// When the next `Tick` is due, if ever.
    pub fn next_deadline(&self) -> Option<Time> {
        let janitor = if self.sleeps() {
            self.janitor.end_of_period().max(Some(self.janitor.next()))
        } else {
            Some(self.janitor.next())
        };
        let due = [
            self.timers.next(),
            self.moves.next(),
            self.spread.next_load(),
            janitor,
        ];
        due.into_iter().flatten().min()
    }

    /// The next number for the console: one sequence from 1 for the clients and servers of all
    /// workers.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Logs a text about a client.
    pub(crate) fn note_client(
        &self,
        level: Level,
        id: ClientId,
        said: impl Display,
        out: &mut Out,
    ) {
        self.note_fault(level, id, said, None, out);
    }

    /// Logs a text about a client, and the error that it reports.
    pub(crate) fn note_fault(
        &self,
        level: Level,
        id: ClientId,
        said: impl Display,
        fault: Option<&Fault>,
        out: &mut Out,
    ) {
        if level > Level::Log && !self.noisy(level) {
            return;
        }
        let client = gone!(self.clients.get(id));
        let proves = matches!(
            client.state(),
            ClientState::Login(_) | ClientState::Lookup(_)
        );
        let cause = match client.welcomed {
            true => Cause::Known,
            false if proves && level <= Level::Warning => Cause::Refused,
            false => Cause::Unauthenticated,
        };
        out.note(Note {
            level,
            text: client_line(client, said),
            cause,
            about: self.about(client, fault),
        });
    }

    /// The fields of a record about a client, if the log has fields.
    fn about(&self, client: &Client, fault: Option<&Fault>) -> Option<Box<About>> {
        if self.config.globals.log_format != LogFormat::Json {
            return None;
        }
        let fault = fault.map(|fault| (fault.sqlstate().to_owned(), fault.to_string()));
        Some(Box::new(About {
            user: client.who.user.to_string(),
            database: client.who.database.to_string(),
            address: crate::place::remote(&client.ends),
            fault,
        }))
    }

    /// Logs that a client's login is refused.
    pub(crate) fn note_refusal(&self, id: ClientId, said: impl Display, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        out.note(Note {
            level: Level::Error,
            text: client_line(client, said),
            cause: Cause::Refused,
            about: self.about(client, None),
        });
    }

    /// Logs a text about a server.
    pub(crate) fn note_server(&self, level: Level, id: ServerId, text: &str, out: &mut Out) {
        if level > Level::Log && !self.noisy(level) {
            return;
        }
        let server = gone!(self.servers.get(id));
        let pool = self.pools.at(server.pool);
        let key = &self.logins.at(server.login).key;
        let place = server.connection.shown();
        let text = format!(
            "S-{:#x}: {}/{}@{place} {text}",
            server.number, key.database, key.user
        );
        // The server was opened for an unproved client, in a database that may not exist.
        let cause = if pool.key.purpose == Purpose::Lookups && pool.is_untried() {
            Cause::Unauthenticated
        } else {
            Cause::Known
        };
        let about = (self.config.globals.log_format == LogFormat::Json).then(|| {
            Box::new(About {
                user: key.user.to_string(),
                database: key.database.to_string(),
                address: place,
                fault: None,
            })
        });
        out.note(Note {
            level,
            text,
            cause,
            about,
        });
    }

    /// True if the log takes records of this level.
    pub(crate) fn noisy(&self, level: Level) -> bool {
        match level {
            Level::Debug => self.config.globals.verbose >= 1,
            Level::Noise => self.config.globals.verbose >= 2,
            _ => true,
        }
    }

    /// A connection has ended. A worker without connections sleeps, and keeps no free blocks.
    pub(crate) fn keep_no_blocks(&mut self) {
        if self.clients.is_empty() && self.servers.is_empty() {
            self.spare = Vec::new();
        }
    }

    /// Takes back a block for reuse, unless the block is large or there are enough.
    pub(crate) fn unblock(&mut self, mut block: Vec<u8>) {
        if block.capacity() <= 16 << 10 && self.spare.len() < 256 {
            block.clear();
            self.spare.push(block);
        }
    }
}

/// A name, or `none` if the name is empty.
fn or<'a>(name: &'a str, none: &'a str) -> &'a str {
    if name.is_empty() { none } else { name }
}

/// A log line about a client.
fn client_line(client: &Client, said: impl Display) -> String {
    let mut text = String::with_capacity(LINE);
    let _ = write!(
        text,
        "C-{:#x}: {}/{}@{} {said}",
        client.number,
        or(&client.who.database, "(nodb)"),
        or(&client.who.user, "(nouser)"),
        crate::place::remote(&client.ends),
    );
    text
}
