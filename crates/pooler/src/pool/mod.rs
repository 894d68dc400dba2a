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
pub use key::{Parameter, PoolId, PoolKey, Welcome};
pub use line::Line;
pub use reason::Reason;
pub use starved::Starved;
pub use terms::Terms;

use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::Seeded;
use crate::auth::{ScramKeys, Secret};
use crate::config::{Host, LoadBalance, PoolMode};
use crate::event::{ClientId, Time, WorkerId};
use crate::pool::greeting::{Greeting, Wishes};
use crate::pool::terms::HeldBy;
use crate::shared::Shared;
use crate::statement::SchemaId;
use crate::stats::Stats;
use crate::times::Times;

/// How long after a client's `currval` or `lastval` more such questions are expected, in
/// nanoseconds.
const NUMBERS_ASKED_NS: u64 = 600_000_000_000;

/// One worker's share of a pool.
#[derive(Debug)]
pub struct Pool {
    /// Its name.
    pub(crate) key: Arc<PoolKey>,
    /// Its settings.
    pub(crate) terms: Terms,
    /// The schema of its database.
    pub(crate) schema: SchemaId,
    /// Servers ready for use.
    pub(crate) idle: Idle,
    /// Clients that wait for a server.
    pub(crate) waiting: Line,
    /// Clients that wait for permission to keep a server, before they wait for a server.
    pub(crate) pin_line: Line,
    /// Clients that wait for `welcome`.
    newcomers: Vec<ClientId>,
    /// What clients get in their greeting at login.
    pub(crate) welcome: Option<Welcome>,
    /// What the last client was told by that.
    greeting: Option<Arc<Greeting>>,
    /// Its servers here, in every state.
    servers: u32,
    /// How many of its servers have not logged in yet.
    connecting: u32,
    /// How many of its servers are being tested: each serves a waiting client when it has passed.
    testing: u32,
    /// Its clients here, logged in or about to be.
    clients: u32,
    /// How many of its clients keep a server between transactions.
    pinned: u32,
    /// When a client last asked for values of sequences.
    numbers_asked: Option<Time>,
    /// Clients wait for its listening connection.
    pub(crate) wants_listener: bool,
    /// The Broker was told that clients wait, and has not answered with a permit.
    pub(crate) need: bool,
    /// How long the oldest client had waited then, in nanoseconds.
    told_age: u64,
    /// The limit that holds the pool back, as the Broker has said, while clients wait here.
    pub(crate) held_by: Option<HeldBy>,
    /// Workers whose clients wait.
    pub(crate) hungry: Hungry,
    /// Another pool waits until one of its servers is closed; all of them were busy.
    pub(crate) starved: Option<Starved>,
    /// Why no new servers are opened for now.
    pub(crate) failure: Option<Failure>,
    /// PostgreSQL has no room for its servers, and another pool's is to go.
    makes_room: bool,
    /// How many attempts have failed in a row. The next of several hosts is then tried at once.
    hosts_failed: u32,
    /// How many servers this worker may keep, once the pool has more than its limits allow;
    /// otherwise `u32::MAX`.
    pub(crate) keep: u32,
    /// PAUSE: no server is given out.
    paused: bool,
    /// Since a reload its database forces another user: clients go to that user's pool.
    forsaken: bool,
    /// SUSPEND, or a successor takes over: no server is given out, but those there are stay.
    held: bool,
    /// Keys of the last client's SCRAM login, for logins to PostgreSQL.
    pub(crate) scram_keys: Option<ScramKeys>,
    /// The secret of the last login, for logins to PostgreSQL: from auth_query, or the password
    /// that LDAP or PAM found right.
    pub(crate) found_secret: Option<Secret>,
    /// When the next server may be closed because of its age.
    next_life: Time,
    /// Which of the database's hosts and addresses is next.
    next_host: usize,
    /// What is counted.
    counts: PoolCounts,
    /// When its last client left; while it has clients, now and then corrected.
    pub(crate) quiet: Time,
}

impl Pool {
    /// A pool without servers or clients.
    pub fn new(key: Arc<PoolKey>, terms: Terms, schema: SchemaId, now: Time) -> Self {
        Pool {
            key,
            terms,
            schema,
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
            held_by: None,
            hungry: Hungry::default(),
            starved: None,
            failure: None,
            makes_room: false,
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

    /// Its clients here, logged in or about to be.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// Its servers here, in every state.
    pub fn servers(&self) -> u32 {
        self.servers
    }

    /// Of those, not yet logged in.
    pub fn connecting(&self) -> u32 {
        self.connecting
    }

    /// Of those, being tested: each serves a waiter when it has passed.
    pub fn testing(&self) -> u32 {
        self.testing
    }

    /// Of its clients, who keep a server between transactions.
    pub fn pinned(&self) -> u32 {
        self.pinned
    }

    /// PAUSE: no server is given out.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// SUSPEND, or a successor takes over: no server is given out, but those there are stay.
    pub fn held(&self) -> bool {
        self.held
    }

    /// Its database forces another user since: clients go to that user's pool.
    pub fn forsaken(&self) -> bool {
        self.forsaken
    }

    /// PostgreSQL has no room for its servers, and another pool's is to go.
    pub fn makes_room(&self) -> bool {
        self.makes_room
    }

    /// How many attempts have failed in a row. The next of several hosts is then tried at once.
    pub fn hosts_failed(&self) -> u32 {
        self.hosts_failed
    }

    /// A client comes in.
    pub(crate) fn client_enters(&mut self) {
        self.clients += 1;
    }

    /// A client leaves the pool.
    pub(crate) fn client_leaves(&mut self, now: Time) {
        self.clients -= 1;
        self.quiet = now;
    }

    /// A server is opened.
    pub(crate) fn server_opens(&mut self) {
        self.server_enters();
        self.connecting += 1;
    }

    /// A server has logged in, or has failed to.
    pub(crate) fn server_is_through(&mut self) {
        self.connecting -= 1;
    }

    /// A server comes in.
    pub(crate) fn server_enters(&mut self) {
        self.servers += 1;
    }

    /// A server is gone.
    pub(crate) fn server_leaves(&mut self) {
        self.servers -= 1;
    }

    /// One of its servers is being tested.
    pub(crate) fn test_begins(&mut self) {
        self.testing += 1;
    }

    /// A server has passed its test, or has failed.
    pub(crate) fn test_ends(&mut self) {
        self.testing -= 1;
    }

    /// When the next server may be closed because of its age.
    pub fn next_life(&self) -> Time {
        self.next_life
    }

    /// A server is closed because of its age. The next one follows after at least `gap`
    /// nanoseconds.
    pub(crate) fn ends_a_life(&mut self, now: Time, gap: u64) {
        self.next_life = Time(now.0.saturating_add(gap));
    }

    /// The host that its next server connects to.
    pub(crate) fn takes_host(&mut self) -> Option<Host> {
        let hosts = &self.terms.database.hosts;
        let host = hosts.get(self.next_host % hosts.len().max(1)).cloned();
        if self.terms.database.load_balance_hosts == LoadBalance::RoundRobin {
            self.next_host = self.next_host.wrapping_add(1);
        }
        host
    }

    /// Which of a host's addresses its next server connects to.
    pub(crate) fn takes_address(&self, addresses: &[IpAddr]) -> IpAddr {
        addresses[self.next_host % addresses.len()]
    }

    /// A login has failed.
    pub(crate) fn host_fails(&mut self) {
        // The host in use can't be reached; the next one may be.
        if self.terms.database.load_balance_hosts == LoadBalance::Disable {
            self.next_host = self.next_host.wrapping_add(1);
        }
        self.hosts_failed += 1;
    }

    /// Logins fail for now.
    pub(crate) fn logins_fail(&mut self, why: Failure) {
        self.failure = Some(why);
    }

    /// The reason why logins failed may be gone.
    pub(crate) fn login_may_succeed(&mut self) {
        self.failure = None;
    }

    /// A server has logged in.
    pub(crate) fn login_succeeds(&mut self) {
        self.failure = None;
        self.hosts_failed = 0;
    }

    /// A client has logged in, by these keys or this secret. `keeps`: if there is no new secret,
    /// the old one stays.
    pub(crate) fn learn_login(
        &mut self,
        keys: Option<ScramKeys>,
        found: Option<Secret>,
        keeps: bool,
    ) {
        self.scram_keys = keys.or(self.scram_keys.take());
        self.found_secret = found.or(self.found_secret.take().filter(|_| keeps));
    }

    /// Takes over the keys and the secret that the pool of this name had in another process or worker:
    /// where this pool knows none, or may not keep its own.
    pub(crate) fn inherits(&mut self, keys: Option<ScramKeys>, found: Option<Secret>, keeps: bool) {
        self.scram_keys = self.scram_keys.take().filter(|_| keeps).or(keys);
        self.found_secret = self.found_secret.take().filter(|_| keeps).or(found);
    }

    /// PostgreSQL has greeted one of its servers.
    pub(crate) fn learns_welcome(&mut self, welcome: Welcome) {
        self.welcome = Some(welcome);
        self.greeting = None;
    }

    /// What a client is told that has these wishes, if PostgreSQL has greeted one of its servers.
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

    /// How many servers this worker may keep, as the Broker says.
    pub(crate) fn may_keep(&mut self, keep: u32) {
        self.keep = keep;
    }

    /// Clients wait for its listening connection, or none do any more.
    pub(crate) fn listener_wanted(&mut self, wanted: bool) {
        self.wants_listener = wanted;
    }

    /// Its servers are replaced; new ones may report other parameters.
    pub(crate) fn forgets_welcome(&mut self) {
        self.welcome = None;
        self.greeting = None;
    }

    /// Clients that wait for `welcome`.
    pub fn newcomers(&self) -> &[ClientId] {
        &self.newcomers
    }

    /// A client waits for `welcome`.
    pub(crate) fn awaits_welcome(&mut self, id: ClientId) {
        self.newcomers.push(id);
    }

    /// Takes out all clients that wait for `welcome`.
    pub(crate) fn take_newcomers(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.newcomers)
    }

    /// Removes clients that no longer wait for `welcome`.
    pub(crate) fn trim_newcomers(&mut self, waits: impl Fn(ClientId) -> bool) {
        self.newcomers.retain(|id| waits(*id));
    }

    /// Forgets the found secret, because `auth_file` has the user now.
    pub(crate) fn forgets_secret(&mut self) {
        self.found_secret = None;
    }

    /// It wants another pool's server closed, so that PostgreSQL has room for one of its own; or no
    /// longer wants that.
    pub(crate) fn wants_room(&mut self, wants: bool) {
        self.makes_room = wants;
    }

    /// The Broker was told that clients wait, the oldest for so many nanoseconds.
    pub(crate) fn tells_need(&mut self, age: u64) {
        self.need = true;
        self.told_age = age;
    }

    /// True if the Broker must be told again: the oldest client has waited clearly longer than the
    /// Broker knows, or the pool has no server at all.
    pub(crate) fn grows_hungry(&self, now: Time) -> bool {
        let clearly = self.told_age + (self.told_age / 8).max(1_000_000);
        let longer = self.longest_wait(now).is_some_and(|age| age > clearly);
        longer || self.servers == 0 || !self.newcomers.is_empty()
    }

    /// The need is met. True if the Broker was told of it.
    pub(crate) fn take_need(&mut self) -> bool {
        self.held_by = None;
        std::mem::take(&mut self.need)
    }

    /// The Broker says which bound holds it back.
    pub(crate) fn set_held_by(&mut self, bound: HeldBy) {
        self.held_by = Some(bound);
    }

    /// Another pool waits until one of its servers is closed.
    pub(crate) fn yields_to(&mut self, starved: Starved) {
        self.starved = Some(starved);
    }

    /// The pool that matches `that` no longer waits for one of its servers.
    pub(crate) fn yields_no_more_to(&mut self, that: impl Fn(&Starved) -> bool) {
        self.starved.take_if(|starved| that(starved));
    }

    /// True if a released server may be wanted: by the listener, a client here, another worker or
    /// another pool.
    #[inline(always)] // Asked once for each transaction.
    pub(crate) fn is_sought(&self) -> bool {
        let wanted = self.starved.is_some() || !self.hungry.is_empty() || !self.waiting.is_empty();
        self.key.listens || wanted && !self.held
    }

    /// The hungry worker that a released server goes to, instead of the oldest client here.
    pub(crate) fn take_hungrier(&mut self, now: Time) -> Option<WorkerId> {
        match self.hungry.is_empty() {
            true => None,
            false => self.hungry.take_hungrier(self.longest_wait(now), now),
        }
    }

    /// PAUSE, or the end of it.
    pub(crate) fn pauses(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// SUSPEND or a takeover, or the end of it.
    pub(crate) fn holds(&mut self, held: bool) {
        self.held = held;
    }

    /// Its clients go to another user's pool, or stay.
    pub(crate) fn set_forsaken(&mut self, forsaken: bool) {
        self.forsaken = forsaken;
    }

    /// A reload: logins may succeed under other settings.
    pub(crate) fn set_terms(&mut self, terms: Terms, schema: SchemaId) {
        self.terms = terms;
        self.schema = schema;
        // The time was computed from the old settings.
        self.next_life = Time(0);
        self.login_may_succeed();
    }

    /// None of its servers has logged in yet: perhaps there is no such database.
    pub fn is_untried(&self) -> bool {
        self.welcome.is_none()
    }

    /// True if servers are given out.
    pub fn gives(&self) -> bool {
        !self.paused && !self.held
    }

    /// A client has asked for values of sequences.
    pub(crate) fn notes_question_for_numbers(&mut self, now: Time) {
        self.numbers_asked = Some(now);
    }

    /// Clients here ask for values of sequences: no client gets a server with others' values.
    pub(crate) fn asks_numbers(&self, now: Time) -> bool {
        let asked = self.numbers_asked;
        asked.is_some_and(|asked| now.0.saturating_sub(asked.0) < NUMBERS_ASKED_NS)
    }

    /// Clients wait for a server, or for the first.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || !self.newcomers.is_empty() || self.wants_listener
    }

    /// How long the oldest waiter has waited, in nanoseconds.
    pub fn longest_wait(&self, now: Time) -> Option<u64> {
        self.waiting.longest_wait(now)
    }

    /// True if statements are renamed, so that a server can have the statements of many clients.
    pub fn renames(&self, max_prepared_statements: u32) -> bool {
        max_prepared_statements > 0 && self.terms.mode != PoolMode::Session
    }
}

/// All pools of a worker.
#[derive(Debug)]
pub struct Pools {
    slots: Vec<Option<Box<Pool>>>,
    /// Slots without a pool.
    free: Vec<PoolId>,
    by_key: HashMap<Arc<PoolKey>, PoolId, Seeded>,
}

impl Pools {
    /// None.
    pub fn new(seeded: Seeded) -> Self {
        Pools {
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::with_hasher(seeded),
        }
    }

    /// The pool of this name.
    pub fn find(&self, key: &PoolKey) -> Option<PoolId> {
        self.by_key.get(key).copied()
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

    /// Takes out a pool that has neither servers nor clients.
    pub fn remove(&mut self, id: PoolId) -> Option<Box<Pool>> {
        let pool = self.slots.get_mut(id.0 as usize)?.take()?;
        self.by_key.remove(&pool.key);
        self.free.push(id);
        Some(pool)
    }

    /// A pool that is known to exist: it has a server or a client.
    #[inline]
    pub fn at(&self, id: PoolId) -> &Pool {
        self.slots[id.0 as usize]
            .as_ref()
            .expect("a pool with a server or a client exists")
    }

    /// The same, mutable.
    #[inline]
    pub fn at_mut(&mut self, id: PoolId) -> &mut Pool {
        self.slots[id.0 as usize]
            .as_mut()
            .expect("a pool with a server or a client exists")
    }

    /// All.
    pub fn iter(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, pool)| Some((PoolId(index as u32), pool.as_deref()?)))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_key.len()
    }

    /// All names.
    pub fn ids(&self) -> Vec<PoolId> {
        self.iter().map(|(id, _)| id).collect()
    }
}

/// Counts of a pool on this worker.
#[derive(Debug, Default)]
pub(super) struct PoolCounts {
    /// Since the start.
    stats: Stats,
    /// `stats` as of the last period.
    last: Stats,
    /// `last` as of one period earlier: the console's averages begin here.
    older: Stats,
    /// Transactions that the balancer was told of.
    told_transactions: u64,
    /// How long things took.
    times: Times,
}
