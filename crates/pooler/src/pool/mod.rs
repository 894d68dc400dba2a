//! A pool: the servers of one database and user, and the clients that wait for one.

pub mod bound;
pub mod checkout;
mod count;
pub mod eviction;
pub mod fail;
pub mod failure;
pub mod greeting;
pub mod growth;
pub mod hungry;
pub mod idle;
pub mod key;
pub mod lending;
pub mod line;
pub mod reason;
pub mod room;
pub mod route;
pub mod starved;
pub mod surplus;
pub mod terms;
pub mod waiting;

pub use failure::Failure;
pub use hungry::Hungry;
pub use idle::Idle;
pub use key::{PoolId, PoolKey, Purpose};
pub use line::Line;
pub use reason::Reason;
pub use starved::Starved;
pub use terms::Terms;

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};

use crate::Seeded;
use crate::account::Allowance;
use crate::auth::{ScramKeys, Secret};
use crate::config::{Host, LoadBalance, PoolMode};
use crate::errors::ErrorCounts;
use crate::event::{ClientId, Time, WorkerId};
use crate::login::key::{LoginKey, Welcome};
use crate::pool::greeting::{Greeting, Wishes};
use crate::pool::terms::HeldBy;
use crate::shared::Shared;
use crate::statement::SchemaId;
use crate::stats::Stats;
use crate::times::Times;

/// How long after a `currval` or `lastval` more of them are expected, in nanoseconds.
const NUMBERS_ASKED_NS: u64 = 600_000_000_000;

/// One worker's share of a pool.
#[derive(Debug)]
pub struct Pool {
    pub(crate) key: Arc<PoolKey>,
    pub(crate) terms: Terms,
    pub(crate) schema: SchemaId,
    /// Its share of the bytes that this worker may keep for clients.
    pub(crate) share: Arc<Allowance>,
    pub(crate) idle: Idle,
    /// Clients that wait for a server.
    pub(crate) waiting: Line,
    /// Clients that wait for permission to keep a server, before they wait for a server.
    pub(crate) pin_line: Line,
    /// Clients that wait for `welcome`.
    newcomers: Vec<ClientId>,
    /// The parameters that PostgreSQL reported at login, for the greetings of clients.
    pub(crate) welcome: Option<Welcome>,
    /// The last greeting made from `welcome`.
    greeting: Option<Arc<Greeting>>,
    servers: u32,
    /// Servers that have not logged in yet.
    connecting: u32,
    /// Servers under test: each serves a waiting client afterwards.
    testing: u32,
    clients: u32,
    /// Clients that keep a server between transactions.
    pinned: u32,
    /// When a client last called `currval` or `lastval`.
    numbers_asked: Option<Time>,
    /// Clients wait for the pool's listening connection.
    pub(crate) wants_listener: bool,
    /// The Broker was told that clients wait, and has sent no permit yet.
    pub(crate) need: bool,
    /// How long the oldest client had waited when the Broker was told, in nanoseconds.
    told_age: u64,
    /// The Broker was told that this worker can use a permit.
    told_opens: bool,
    /// The limit that holds the pool back, as the Broker says.
    pub(crate) held_by: Option<HeldBy>,
    /// Other workers with waiting clients.
    pub(crate) hungry: Hungry,
    /// Another pool waits until one of these servers is closed.
    pub(crate) starved: Option<Starved>,
    /// Why Howdah opens no new servers at present.
    pub(crate) failure: Option<Failure>,
    /// PostgreSQL has no room, so a server of another pool is to be closed.
    awaits_room: bool,
    /// Failed attempts in a row. If there are several hosts, the next one is tried at once.
    hosts_failed: u32,
    /// How many servers this worker may keep after a limit was lowered; else `u32::MAX`.
    pub(crate) keep: u32,
    paused: bool,
    /// The database now forces another user: clients go to that user's pool.
    forsaken: bool,
    held: bool,
    /// Keys from the last client's SCRAM login, for logins to PostgreSQL.
    pub(crate) scram_keys: Option<ScramKeys>,
    /// The secret of the last client's login, for logins to PostgreSQL: from auth_query, or a
    /// password that LDAP or PAM has accepted.
    pub(crate) found_secret: Option<Secret>,
    next_life: Time,
    /// Index of the next host and address of the database.
    next_host: usize,
    counts: PoolCounts,
    /// When the last client left. While the pool has clients, this time is updated now and then.
    pub(crate) quiet: Time,
}

impl Pool {
    /// A pool without servers or clients.
    pub fn new(
        key: Arc<PoolKey>,
        terms: Terms,
        (schema, share): (SchemaId, Arc<Allowance>),
        now: Time,
    ) -> Self {
        Pool {
            key,
            terms,
            schema,
            share,
            idle: Idle::default(),
            waiting: Line::default(),
            pin_line: Line::default(),
            newcomers: Vec::new(),
            welcome: None,
            greeting: None,
            servers: 0,
            connecting: 0,
            testing: 0,
            clients: 0,
            pinned: 0,
            numbers_asked: None,
            wants_listener: false,
            need: false,
            told_age: 0,
            told_opens: false,
            held_by: None,
            hungry: Hungry::default(),
            starved: None,
            failure: None,
            awaits_room: false,
            hosts_failed: 0,
            keep: u32::MAX,
            paused: false,
            forsaken: false,
            held: false,
            scram_keys: None,
            found_secret: None,
            next_life: Time(0),
            next_host: 0,
            counts: PoolCounts::default(),
            quiet: now,
        }
    }

    /// Clients on this worker, logged in or about to be.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// Servers on this worker, in every state.
    pub fn servers(&self) -> u32 {
        self.servers
    }

    /// Servers that have not logged in yet.
    pub fn connecting(&self) -> u32 {
        self.connecting
    }

    /// Servers under test: each serves a waiting client afterwards.
    pub fn testing(&self) -> u32 {
        self.testing
    }

    /// Clients that keep a server between transactions.
    pub fn pinned(&self) -> u32 {
        self.pinned
    }

    /// True if clients of this pool keep their server for the whole session.
    pub fn is_session(&self) -> bool {
        self.terms.mode == PoolMode::Session
    }

    /// PAUSE: no server is given out.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// SUSPEND or a takeover: no server is given out, but servers stay open.
    pub fn held(&self) -> bool {
        self.held
    }

    /// The database now forces another user: clients go to that user's pool.
    pub fn forsaken(&self) -> bool {
        self.forsaken
    }

    /// PostgreSQL has no room, so a server of another pool is to be closed.
    pub fn awaits_room(&self) -> bool {
        self.awaits_room
    }

    /// Failed attempts in a row. If there are several hosts, the next one is tried at once.
    pub fn hosts_failed(&self) -> u32 {
        self.hosts_failed
    }

    pub(crate) fn client_enters(&mut self) {
        self.clients += 1;
    }

    pub(crate) fn client_leaves(&mut self, now: Time) {
        self.clients -= 1;
        self.quiet = now;
    }

    pub(crate) fn server_opens(&mut self) {
        self.server_enters();
        self.connecting += 1;
    }

    /// A server has logged in, or its login has failed.
    pub(crate) fn server_is_through(&mut self) {
        self.connecting -= 1;
    }

    pub(crate) fn server_enters(&mut self) {
        self.servers += 1;
    }

    pub(crate) fn server_leaves(&mut self) {
        self.servers -= 1;
    }

    pub(crate) fn test_begins(&mut self) {
        self.testing += 1;
    }

    pub(crate) fn test_ends(&mut self) {
        self.testing -= 1;
    }

    /// When the next server may be closed because of its age.
    pub fn next_life(&self) -> Time {
        self.next_life
    }

    /// A server is closed because of its age. At least `gap` nanoseconds pass before the next one.
    pub(crate) fn ends_a_life(&mut self, now: Time, gap: u64) {
        self.next_life = Time(now.0.saturating_add(gap));
    }

    pub(crate) fn takes_host(&mut self) -> Option<Host> {
        let hosts = &self.terms.database.hosts;
        let host = hosts.get(self.next_host % hosts.len().max(1)).cloned();
        if self.terms.database.load_balance_hosts == LoadBalance::RoundRobin {
            self.next_host = self.next_host.wrapping_add(1);
        }
        host
    }

    /// Takes one of a host's `addresses` for the next server.
    pub(crate) fn takes_address(&self, addresses: &[IpAddr]) -> IpAddr {
        addresses[self.next_host % addresses.len()]
    }

    pub(crate) fn host_fails(&mut self) {
        // The current host can't be reached, but the next one may be.
        if self.terms.database.load_balance_hosts == LoadBalance::Disable {
            self.next_host = self.next_host.wrapping_add(1);
        }
        self.hosts_failed += 1;
    }

    pub(crate) fn logins_fail(&mut self, why: Failure) {
        self.failure = Some(why);
    }

    /// The failed connect found nobody at the host.
    pub(crate) fn finds_nobody(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.nobody = true;
        }
    }

    /// Logins may succeed again.
    pub(crate) fn login_may_succeed(&mut self) {
        self.failure = None;
    }

    pub(crate) fn login_succeeds(&mut self) {
        self.failure = None;
        self.hosts_failed = 0;
    }

    /// A client has logged in with these keys or this secret. `keeps`: without a new secret, the
    /// old one stays.
    pub(crate) fn learn_login(
        &mut self,
        keys: Option<ScramKeys>,
        found: Option<Secret>,
        keeps: bool,
    ) {
        self.scram_keys = keys.or(self.scram_keys.take());
        self.found_secret = found.or(self.found_secret.take().filter(|_| keeps));
    }

    /// True if a login was told another secret of the pool's user before.
    pub(crate) fn knows_other_secret(&self, found: &Secret) -> bool {
        self.found_secret.as_ref().is_some_and(|old| old != found)
    }

    /// True if the last login was told this secret of the pool's user.
    pub(crate) fn knows_secret(&self, found: &Secret) -> bool {
        self.found_secret.as_ref() == Some(found)
    }

    /// Takes over the keys and the secret of the same pool in another process or worker, where
    /// this pool has none or may not keep its own.
    pub(crate) fn inherits(&mut self, keys: Option<ScramKeys>, found: Option<Secret>, keeps: bool) {
        self.scram_keys = self.scram_keys.take().filter(|_| keeps).or(keys);
        self.found_secret = self.found_secret.take().filter(|_| keeps).or(found);
    }

    /// Stores the parameters that PostgreSQL reported to a server.
    pub(crate) fn learns_welcome(&mut self, welcome: Welcome) {
        self.welcome = Some(welcome);
        self.greeting = None;
    }

    /// The greeting for a client with these wishes; `None` if `welcome` is not known.
    pub(crate) fn greets(
        &mut self,
        wishes: &Wishes<'_>,
        shared: &mut Shared,
        hasher: Seeded,
    ) -> Option<Arc<Greeting>> {
        let welcome = self.welcome.as_ref()?;
        if let Some(last) = self.greeting.as_ref().filter(|last| last.suits(wishes)) {
            return Some(last.clone());
        }
        let greeting = Arc::new(Greeting::new(wishes, welcome, shared, hasher));
        if greeting.is_for_others() {
            self.greeting = Some(greeting.clone());
        }
        Some(greeting)
    }

    pub(crate) fn may_keep(&mut self, keep: u32) {
        self.keep = keep;
    }

    pub(crate) fn listener_wanted(&mut self, wanted: bool) {
        self.wants_listener = wanted;
    }

    /// The pool's servers are replaced, and new ones may report other parameters.
    pub(crate) fn forgets_welcome(&mut self) {
        self.welcome = None;
        self.greeting = None;
    }

    /// Clients that wait for `welcome`.
    pub fn newcomers(&self) -> &[ClientId] {
        &self.newcomers
    }

    pub(crate) fn awaits_welcome(&mut self, id: ClientId) {
        self.newcomers.push(id);
    }

    pub(crate) fn take_newcomers(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.newcomers)
    }

    pub(crate) fn trim_newcomers(&mut self, waits: impl Fn(ClientId) -> bool) {
        self.newcomers.retain(|id| waits(*id));
    }

    /// Forgets the found secret, because `auth_file` now has the user.
    pub(crate) fn forgets_secret(&mut self) {
        self.found_secret = None;
    }

    /// Sets whether the pool awaits that a server of another pool is closed.
    pub(crate) fn set_awaits_room(&mut self, awaits: bool) {
        self.awaits_room = awaits;
    }

    /// The Broker is told that clients wait, the oldest for `age` nanoseconds, and whether this
    /// worker can use a permit.
    pub(crate) fn tells_need(&mut self, age: u64, opens: bool) {
        self.need = true;
        self.told_age = age;
        self.told_opens = opens;
    }

    /// True if the Broker knows that clients wait and, if so, that this worker can use a permit.
    pub(crate) fn is_need_told(&self, opens: bool) -> bool {
        self.need && (self.told_opens || !opens)
    }

    /// True if the Broker must be told again: the oldest client has waited clearly longer than the
    /// Broker knows, the pool has no server, or newcomers wait and no server is logging in.
    pub(crate) fn grows_hungry(&self, now: Time) -> bool {
        let clearly = self.told_age + (self.told_age / 8).max(1_000_000);
        let longer = self.longest_wait(now).is_some_and(|age| age > clearly);
        let new = !self.newcomers.is_empty() && self.connecting == 0;
        longer || self.servers == 0 || new
    }

    /// The need is met. True if the Broker had been told of the need.
    pub(crate) fn take_need(&mut self) -> bool {
        self.held_by = None;
        std::mem::take(&mut self.need)
    }

    pub(crate) fn set_held_by(&mut self, bound: HeldBy) {
        self.held_by = Some(bound);
    }

    pub(crate) fn yields_to(&mut self, starved: Starved) {
        self.starved = Some(starved);
    }

    /// Forgets the starved pool if it matches `that`.
    pub(crate) fn yields_no_more_to(&mut self, that: impl Fn(&Starved) -> bool) {
        self.starved.take_if(|starved| that(starved));
    }

    /// True if someone may want a released server: the listener, a client here, another worker or
    /// another pool.
    #[inline(always)] // Asked once for each transaction.
    pub(crate) fn is_sought(&self) -> bool {
        let wanted = self.starved.is_some() || !self.hungry.is_empty() || !self.waiting.is_empty();
        self.key.listens() || wanted && !self.held
    }

    /// Takes out the hungry worker that gets a released server, if it comes before the oldest
    /// client here.
    pub(crate) fn take_hungrier(&mut self, now: Time) -> Option<WorkerId> {
        match self.hungry.is_empty() {
            true => None,
            false => self.hungry.take_hungrier(self.longest_wait(now), now),
        }
    }

    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    pub(crate) fn set_held(&mut self, held: bool) {
        self.held = held;
    }

    pub(crate) fn set_forsaken(&mut self, forsaken: bool) {
        self.forsaken = forsaken;
    }

    /// A reload brings new settings. Logins may succeed with them.
    pub(crate) fn set_terms(&mut self, terms: Terms, schema: SchemaId) {
        self.terms = terms;
        self.schema = schema;
        // This time was computed from the old settings.
        self.next_life = Time(0);
        self.login_may_succeed();
    }

    /// True if no server has logged in yet: perhaps the database does not exist.
    pub fn is_untried(&self) -> bool {
        self.welcome.is_none()
    }

    /// True if the pool gives out servers.
    pub fn gives(&self) -> bool {
        !self.paused && !self.held
    }

    pub(crate) fn notes_question_for_numbers(&mut self, now: Time) {
        self.numbers_asked = Some(now);
    }

    /// True if clients call `currval` or `lastval`: then no client may see another's sequence
    /// values.
    pub(crate) fn asks_numbers(&self, now: Time) -> bool {
        let asked = self.numbers_asked;
        asked.is_some_and(|asked| now.0.saturating_sub(asked.0) < NUMBERS_ASKED_NS)
    }

    /// True if clients wait for a server, for their login, or for the listening connection.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || !self.newcomers.is_empty() || self.wants_listener
    }

    /// How long the oldest client has waited, in nanoseconds.
    pub fn longest_wait(&self, now: Time) -> Option<u64> {
        self.waiting.longest_wait(now)
    }

    /// True if Howdah renames statements, so that a server can hold the statements of many clients.
    pub fn renames(&self, max_prepared_statements: u32) -> bool {
        max_prepared_statements > 0 && !self.is_session()
    }
}

/// All pools of one worker.
#[derive(Debug)]
pub struct Pools {
    slots: Vec<Option<Box<Pool>>>,
    free: Vec<PoolId>,
    by_key: HashMap<Arc<PoolKey>, PoolId, Seeded>,
}

impl Pools {
    /// An empty table.
    pub fn new(seeded: Seeded) -> Self {
        Pools {
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::with_hasher(seeded),
        }
    }

    /// The pool with this name.
    pub fn find(&self, key: &PoolKey) -> Option<PoolId> {
        self.by_key.get(key).copied()
    }

    /// The pool that serves the clients of a login.
    pub fn for_clients(&self, login: &LoginKey) -> Option<PoolId> {
        self.by_key.get(&ForClients(login)).copied()
    }

    /// Adds a pool.
    pub fn insert(&mut self, pool: Pool) -> PoolId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            PoolId(self.slots.len() as u32 - 1)
        });
        self.by_key.insert(pool.key.clone(), id);
        self.slots[id.0 as usize] = Some(Box::new(pool));
        id
    }

    /// Removes a pool, which must have neither servers nor clients.
    pub fn remove(&mut self, id: PoolId) -> Option<Box<Pool>> {
        let pool = self.slots.get_mut(id.0 as usize)?.take()?;
        self.by_key.remove(&pool.key);
        self.free.push(id);
        Some(pool)
    }

    /// A pool that is known to exist, because it has a server or a client.
    #[inline]
    pub fn at(&self, id: PoolId) -> &Pool {
        self.slots[id.0 as usize]
            .as_ref()
            .expect("a pool with a server or a client exists")
    }

    /// Like [`Self::at`], but mutable.
    #[inline]
    pub fn at_mut(&mut self, id: PoolId) -> &mut Pool {
        self.slots[id.0 as usize]
            .as_mut()
            .expect("a pool with a server or a client exists")
    }

    /// All pools.
    pub fn iter(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, pool)| Some((PoolId(index as u32), pool.as_deref()?)))
    }

    /// Number of pools.
    pub fn count(&self) -> usize {
        self.by_key.len()
    }

    /// The ids of all pools.
    pub fn ids(&self) -> Vec<PoolId> {
        self.iter().map(|(id, _)| id).collect()
    }
}

/// The pool of a login to look for.
struct ForClients<'a>(&'a LoginKey);

impl Hash for ForClients<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As `PoolKey` does.
        (self.0, Purpose::Clients).hash(state);
    }
}

impl Equivalent<Arc<PoolKey>> for ForClients<'_> {
    fn equivalent(&self, key: &Arc<PoolKey>) -> bool {
        key.purpose == Purpose::Clients && *key.login == *self.0
    }
}

#[derive(Debug, Default)]
pub(super) struct PoolCounts {
    /// Since the start.
    stats: Stats,
    /// `stats` at the end of the last period.
    last: Stats,
    /// `last` one period earlier: the console's averages begin here.
    older: Stats,
    /// Transactions that the balancer has been told of.
    told_transactions: u64,
    times: Times,
    errors: ErrorCounts,
}
