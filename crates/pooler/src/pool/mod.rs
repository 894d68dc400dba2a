//! A pool: the servers of a login for one purpose, and the clients that wait for one.

pub mod bound;
pub mod checkout;
pub mod eviction;
pub mod fail;
pub mod failure;
pub(crate) mod fit;
pub mod growth;
mod health;
pub mod hungry;
pub mod idle;
pub mod key;
pub mod lending;
pub mod line;
mod minimum;
pub(crate) mod placed;
mod placing;
pub mod reason;
pub mod room;
pub mod route;
pub mod starved;
mod stray;
pub mod supply;
pub mod surplus;
pub mod target;
pub mod waiting;

pub use failure::Failure;
pub use hungry::Hungry;
pub use idle::Idle;
pub use key::{PoolId, PoolKey, Purpose};
pub use line::Line;
pub use reason::Reason;
pub use starved::Starved;
pub use supply::Supply;
pub use target::{HostPort, Target, TargetName};

use std::net::IpAddr;
use std::sync::Arc;

use chacha20::rand_core::Rng;

use crate::config::LoadBalance;
use crate::event::{ClientId, Time, WorkerId};
use crate::keyed::{HasKey, Keyed};
use crate::login::key::LoginId;
use crate::login::secrets::Secrets;
use crate::pool::failure::SecretWait;
use crate::pool::supply::HeldBy;

/// One worker's share of a pool.
#[derive(Debug)]
pub struct Pool {
    pub(crate) key: Arc<PoolKey>,
    pub(crate) login: LoginId,
    /// Where its servers connect to.
    pub(crate) target: Arc<Target>,
    pub(crate) supply: Supply,
    pub(crate) idle: Idle,
    /// Clients that wait for a server.
    pub(crate) waiting: Line,
    /// Clients that wait for permission to keep a server, before they wait for a server.
    pub(crate) pin_line: Line,
    /// Clients that wait for the parameters that PostgreSQL reports to the first server.
    newcomers: Vec<ClientId>,
    have: ServerCounts,
    /// How many times clients have got servers that are gone.
    past_checkouts: u64,
    /// Clients wait for the pool's listening connection.
    pub(crate) wants_listener: bool,
    brokered: Brokered,
    /// Other workers with waiting clients.
    pub(crate) hungry: Hungry,
    /// Another pool waits until one of these servers is closed.
    pub(crate) starved: Option<Starved>,
    /// For a listening connection: what it proves itself with.
    pub(crate) secrets: Secrets,
    /// Why Howdah opens no new servers at present.
    pub(crate) failure: Option<Failure>,
    /// PostgreSQL has no room, so a server of another pool is to be closed.
    awaits_room: bool,
    /// Failed attempts in a row. If there are several hosts, the next one is tried at once.
    hosts_failed: u32,
    /// How many servers this worker may keep after a limit was lowered; else `u32::MAX`.
    pub(crate) keep: u32,
    /// What refusals have shown of the servers' password.
    secret_turn: Option<Box<SecretTurn>>,
    paused: bool,
    held: bool,
    /// The pool's listener, or a question about its database, waits for a released server.
    sought: bool,
    /// A server has logged in since the pool's servers were last replaced.
    proved: bool,
    next_life: Time,
    /// Index of the next host and address of the database.
    next_host: usize,
}

impl Pool {
    /// A pool without servers or clients. `proved`: a server has logged in on another worker.
    pub fn new(
        key: Arc<PoolKey>,
        login: LoginId,
        (target, supply): (Arc<Target>, Supply),
        proved: bool,
    ) -> Self {
        Pool {
            sought: key.serves_howdah(),
            key,
            login,
            target,
            supply,
            idle: Idle::default(),
            waiting: Line::default(),
            pin_line: Line::default(),
            newcomers: Vec::new(),
            have: ServerCounts::default(),
            past_checkouts: 0,
            wants_listener: false,
            brokered: Brokered::default(),
            hungry: Hungry::default(),
            starved: None,
            secrets: Secrets::default(),
            failure: None,
            awaits_room: false,
            hosts_failed: 0,
            keep: u32::MAX,
            secret_turn: None,
            paused: false,
            held: false,
            proved,
            next_life: Time(0),
            next_host: 0,
        }
    }

    /// Servers on this worker, in every state.
    pub fn servers(&self) -> u32 {
        self.have.all
    }

    /// Servers that have not logged in yet.
    pub fn connecting(&self) -> u32 {
        self.have.connecting
    }

    /// Servers under test: each serves a waiting client afterwards.
    pub fn testing(&self) -> u32 {
        self.have.testing
    }

    /// PAUSE: no server is given out.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// SUSPEND, a takeover, or no host fits: no server is given out, but servers stay open.
    pub fn held(&self) -> bool {
        self.held
    }

    /// PostgreSQL has no room, so a server of another pool is to be closed.
    pub fn awaits_room(&self) -> bool {
        self.awaits_room
    }

    /// Failed attempts in a row. If there are several hosts, the next one is tried at once.
    pub fn hosts_failed(&self) -> u32 {
        self.hosts_failed
    }

    pub(crate) fn server_opens(&mut self) {
        self.server_enters();
        self.have.connecting += 1;
    }

    /// A server has logged in, or its login has failed.
    pub(crate) fn server_is_through(&mut self) {
        self.have.connecting -= 1;
    }

    pub(crate) fn server_enters(&mut self) {
        self.have.all += 1;
    }

    /// A server leaves the pool, which clients have got so many times.
    pub(crate) fn server_leaves(&mut self, checkouts: u64) {
        self.have.all -= 1;
        self.past_checkouts += checkouts;
    }

    /// How many times clients have got servers that the pool does not have any more.
    pub fn past_checkouts(&self) -> u64 {
        self.past_checkouts
    }

    pub(crate) fn test_begins(&mut self) {
        self.have.testing += 1;
    }

    pub(crate) fn test_ends(&mut self) {
        self.have.testing -= 1;
    }

    /// When the next server may be closed because of its age.
    pub fn next_life(&self) -> Time {
        self.next_life
    }

    /// A server is closed because of its age. At least `gap` nanoseconds pass before the next one.
    pub(crate) fn ends_a_life(&mut self, now: Time, gap: u64) {
        self.next_life = Time(now.0.saturating_add(gap));
    }

    /// Takes one of the target's hosts for the next server.
    pub(crate) fn takes_host(&mut self, random: &mut impl Rng) -> Option<HostPort> {
        let hosts = &self.target.hosts;
        if self.target.turn == LoadBalance::Random && self.hosts_failed == 0 {
            self.next_host = random.next_u32() as usize;
        }
        let host = hosts.get(self.next_host % hosts.len().max(1)).cloned();
        if self.target.turn == LoadBalance::RoundRobin {
            self.next_host = self.next_host.wrapping_add(1);
        }
        host
    }

    /// Takes one of a host's `addresses` for the next server.
    pub(crate) fn takes_address(&self, addresses: &[IpAddr]) -> IpAddr {
        // Each address of a host has its turn, whatever the number of hosts.
        let hosts = self.target.hosts.len().max(1);
        addresses[self.next_host / hosts % addresses.len()]
    }

    pub(crate) fn host_fails(&mut self) {
        // The current host can't be reached, but the next one may be.
        if self.target.turn != LoadBalance::RoundRobin {
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

    /// PostgreSQL has refused the servers' password at `now`. `has_other`: there is a second one, whose
    /// turn it is then. False if another try was made after `since`.
    pub(crate) fn turns_secret(&mut self, now: Time, since: Time, has_other: bool) -> bool {
        let turn = self.secret_turn.get_or_insert_default();
        if turn.retried.is_some_and(|at| at > since) {
            return false;
        }
        turn.retried = Some(now);
        turn.other ^= has_other;
        true
    }

    /// The failure ends with the next value of a source ([`Failure::awaits_secret`]).
    pub(crate) fn awaits_secret(&mut self, wait: SecretWait, until: Time, sqlstate: Option<&str>) {
        if let Some(failure) = &mut self.failure {
            failure.awaits_secret(wait, until, sqlstate);
        }
    }

    /// The source that was waited for has failed.
    pub(crate) fn secret_fails(&mut self, text: &str, now: Time) {
        if let Some(failure) = &mut self.failure {
            failure.secret_fails(text, now);
        }
    }

    /// True if servers log in with the second of two passwords.
    pub(crate) fn takes_second_secret(&self) -> bool {
        self.secret_turn.as_ref().is_some_and(|turn| turn.other)
    }

    /// A server has logged in, here or on another worker.
    pub(crate) fn mark_proved(&mut self) {
        self.proved = true;
    }

    pub(crate) fn may_keep(&mut self, keep: u32) {
        self.keep = keep;
    }

    pub(crate) fn listener_wanted(&mut self, wanted: bool) {
        self.wants_listener = wanted;
    }

    /// The pool's servers are replaced.
    pub(crate) fn mark_unproved(&mut self) {
        self.proved = false;
    }

    /// Clients that wait for the parameters that PostgreSQL reports to the first server.
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

    /// Sets whether the pool awaits that a server of another pool is closed.
    pub(crate) fn set_awaits_room(&mut self, awaits: bool) {
        self.awaits_room = awaits;
    }

    /// The Broker is told that clients wait, the oldest for `age` nanoseconds, and whether this
    /// worker can use a permit.
    pub(crate) fn tells_need(&mut self, age: u64, opens: bool) {
        self.brokered.need = true;
        self.brokered.age = age;
        self.brokered.opens = opens;
    }

    /// True if the Broker knows that clients wait and, if so, that this worker can use a permit.
    pub(crate) fn is_need_told(&self, opens: bool) -> bool {
        self.brokered.need && (self.brokered.opens || !opens)
    }

    /// True if the Broker must be told again: the oldest client has waited clearly longer than the
    /// Broker knows, the pool has no server, or newcomers wait and no server is logging in.
    pub(crate) fn grows_hungry(&self, now: Time) -> bool {
        let clearly = self.brokered.age + (self.brokered.age / 8).max(1_000_000);
        let longer = self.longest_wait(now).is_some_and(|age| age > clearly);
        let new = !self.newcomers.is_empty() && self.have.connecting == 0;
        longer || self.have.all == 0 || new
    }

    /// The Broker was told that clients wait, and has sent no permit yet.
    pub fn is_in_need(&self) -> bool {
        self.brokered.need
    }

    /// The limit that holds the pool back, as the Broker says.
    pub fn held_by(&self) -> Option<HeldBy> {
        self.brokered.held_by
    }

    /// The need is met. True if the Broker had been told of the need.
    pub(crate) fn take_need(&mut self) -> bool {
        self.brokered.held_by = None;
        std::mem::take(&mut self.brokered.need)
    }

    pub(crate) fn set_held_by(&mut self, bound: HeldBy) {
        self.brokered.held_by = Some(bound);
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
        self.sought || wanted && !self.held
    }

    /// The next released server is to tell which functions are volatile, or not any more.
    pub(crate) fn seeks_names(&mut self, seeks: bool) {
        self.sought = seeks || self.key.serves_howdah();
    }

    /// True if the next released server is to tell which functions are volatile.
    pub(crate) fn is_sought_for_names(&self) -> bool {
        self.sought && !self.key.serves_howdah()
    }

    /// Takes out the hungry worker that gets a released server, if it comes before the oldest
    /// client here.
    pub(crate) fn take_hungrier(&mut self, now: Time) -> Option<WorkerId> {
        if self.hungry.is_empty() {
            None
        } else {
            self.hungry.take_hungrier(self.longest_wait(now), now)
        }
    }

    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// A pool without a host gives out nothing, either, nor does one without servers.
    pub(crate) fn set_held(&mut self, held: bool) {
        let has_none = self.key.purpose == Purpose::Placing;
        self.held = held || has_none || self.key.target == TargetName::NoHost;
    }

    /// A reload brings new settings. Logins may succeed with them.
    pub(crate) fn set_supply(&mut self, target: Arc<Target>, supply: Supply) {
        self.target = target;
        self.supply = supply;
        // This time was computed from the old settings.
        self.next_life = Time(0);
        self.login_may_succeed();
    }

    /// True if no server has logged in yet: perhaps the database does not exist.
    pub fn is_untried(&self) -> bool {
        !self.proved
    }

    /// True if the pool gives out servers.
    pub fn gives(&self) -> bool {
        !self.paused && !self.held
    }

    /// True if clients wait for a server, for their login, or for the listening connection.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || !self.newcomers.is_empty() || self.wants_listener
    }

    /// How long the oldest client has waited, in nanoseconds.
    pub fn longest_wait(&self, now: Time) -> Option<u64> {
        self.waiting.longest_wait(now)
    }
}

/// How many servers a pool has on one worker.
#[derive(Clone, Copy, Debug, Default)]
struct ServerCounts {
    /// In every state.
    all: u32,
    /// Not logged in yet.
    connecting: u32,
    /// Under test: each serves a waiting client afterwards.
    testing: u32,
}

/// A pool's logins after a refusal.
#[derive(Debug, Default)]
struct SecretTurn {
    /// Servers log in with the second of two passwords.
    other: bool,
    /// When a refused login was last tried again.
    retried: Option<Time>,
}

/// What a pool and the Broker have told each other.
#[derive(Clone, Copy, Debug, Default)]
struct Brokered {
    /// The Broker was told that clients wait, and has sent no permit yet.
    need: bool,
    /// How long the oldest client had waited then, in nanoseconds.
    age: u64,
    /// The Broker was told that this worker can use a permit.
    opens: bool,
    /// The limit that holds the pool back, as the Broker says.
    held_by: Option<HeldBy>,
}

/// All pools of one worker.
pub type Pools = Keyed<Pool>;

impl HasKey for Pool {
    type Key = PoolKey;
    type Id = PoolId;
    fn key(&self) -> &Arc<PoolKey> {
        &self.key
    }
}
