//! The decisions of one worker: events go in, actions come out.

use std::collections::{BTreeMap, VecDeque};
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
use crate::config::{Config, HostPort, LogFormat};
use crate::console::Consoles;
use crate::errors::NotLetIn;
use crate::event::{Action, ClientId, Out, Question, ServerId, Time, WorkerId};
use crate::fault::Fault;
use crate::janitor::Janitor;
use crate::known::Known;
use crate::listen::SharedListener;
use crate::login::Logins;
use crate::login::key::LoginKey;
use crate::moves::Moves;
use crate::names::NameInterner;
use crate::next::Upcoming;
use crate::note::{About, Cause, Level, Note};
use crate::params::{ParamsInterner, Tracked};
use crate::peering::Peering;
use crate::pool::Pools;
use crate::pool::key::Purpose;
use crate::pool::target::Targets;
use crate::queries::Queries;
use crate::roster::check::HostChecks;
use crate::roster::round::Covers;
use crate::roster::view::{HostList, View};
use crate::seats::Spread;
use crate::server::Server;
use crate::shard::kept_map::KeptMap;
use crate::shard::lore::ShardLore;
use crate::shard::tally::ShardTallies;
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
    /// Counts the rounds of [`crate::roster::round`]. All workers share this counter.
    pub begun: Arc<AtomicU64>,
}

impl PoolerSetup {
    /// Setups for all workers of a process, for tests. Nothing in them is secret or random, so all
    /// runs are equal.
    pub fn repeatable(workers: u16, config: &Arc<Config>) -> impl Iterator<Item = PoolerSetup> {
        let (numbers, begun) = (Arc::default(), Arc::default());
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
            begun: Arc::clone(&begun),
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
    /// What is known of the hosts of placed databases.
    pub(crate) hosts: Arc<View>,
    pub(crate) checks: HostChecks,
    /// What the standbys of each list of hosts cover, if reads are routed.
    pub(crate) covers: BTreeMap<HostList, Arc<Covers>>,
    /// How many rounds have begun ([`crate::roster::round`]). All workers share this counter.
    pub(crate) begun: Arc<AtomicU64>,
    /// How many times clients have got servers of pools that are gone, by host.
    pub(crate) past_checkouts: BTreeMap<HostPort, u64>,
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
    /// The maps of sharded databases that a reload would have changed.
    pub(crate) maps: BTreeMap<String, KeptMap>,
    /// The catalogues of sharded databases.
    pub(crate) shard_lore: BTreeMap<Arc<str>, ShardLore>,
    /// What is counted of sharded databases.
    pub(crate) shard_tallies: ShardTallies,
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
            hosts: Arc::default(),
            checks: HostChecks::default(),
            covers: BTreeMap::new(),
            begun: setup.begun,
            past_checkouts: BTreeMap::new(),
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
            maps: BTreeMap::new(),
            shard_lore: BTreeMap::new(),
            shard_tallies: ShardTallies::new(seeded),
            spare: Vec::new(),
            internal_errors: 0,
        };
        pooler.peers_changed();
        pooler.set_checks();
        pooler
    }

    /// The worker for tasks that one worker does for all.
    pub(crate) const FIRST: WorkerId = WorkerId(0);

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
        if pool.key.purpose == Purpose::Checks && !self.noisy(Level::Noise) {
            // The roster says what changes.
            return;
        }
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
