//! A pool: the servers of one database and user, and the clients that wait for one.

pub mod checkout;
pub mod eviction;
pub mod failure;
pub mod growth;
pub mod lending;
pub mod reason;
pub mod room;
pub mod route;
pub mod surplus;
pub mod terms;
pub mod waiting;

pub use eviction::Starved;
pub use failure::Failure;
pub use reason::Reason;
pub use terms::Terms;

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::Seeded;
use crate::auth::{ScramKeys, Secret};
use crate::config::PoolMode;
use crate::event::{ClientId, ServerId, Time, WorkerId};
use crate::mail::HeldBy;
use crate::params::Params;
use crate::statement::SchemaId;
use crate::stats::Stats;
use crate::times::Times;

/// Which pool of a worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolId(pub u32);

/// What names a pool on all workers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolKey {
    /// The database as clients call it.
    pub database: Arc<str>,
    /// The user that servers log in as.
    pub user: Arc<str>,
    /// Its servers run auth_query, and no client is ever given one: what a client leaves on a
    /// server (`CREATE TEMPORARY TABLE pg_shadow`) could tell the query of users there are none of.
    pub lookups: bool,
}

impl PoolKey {
    /// The pool that clients of a database get servers from.
    pub fn new(database: Arc<str>, user: Arc<str>) -> PoolKey {
        PoolKey {
            database,
            user,
            lookups: false,
        }
    }

    /// The pool that is told of to users, who know but one of a database and user.
    pub fn for_clients(self: &Arc<PoolKey>) -> Arc<PoolKey> {
        match self.lookups {
            true => Arc::new(PoolKey::new(self.database.clone(), self.user.clone())),
            false => self.clone(),
        }
    }
}

/// A parameter's name and value.
pub type Parameter = (Box<[u8]>, Box<[u8]>);

/// What PostgreSQL told at the last login.
#[derive(Clone, Debug)]
pub struct Welcome {
    /// Every ParameterStatus, in order: what is not tracked goes to clients as it is.
    pub parameters: Arc<[Parameter]>,
    /// The tracked ones.
    pub tracked: Arc<Params>,
}

impl Welcome {
    /// PostgreSQL's major version; 0 if it does not say.
    pub fn major(&self) -> u32 {
        let mut parameters = self.parameters.iter();
        let version = parameters.find(|(name, _)| **name == *b"server_version");
        version.map_or(0, |(_, value)| {
            let digits = value.iter().take_while(|byte| byte.is_ascii_digit());
            digits.fold(0u32, |number, &byte| {
                number
                    .saturating_mul(10)
                    .saturating_add(u32::from(byte - b'0'))
            })
        })
    }
}

/// See the module.
#[derive(Debug)]
pub struct Pool {
    /// Its name.
    pub key: Arc<PoolKey>,
    /// Its settings.
    pub terms: Terms,
    /// The schema of its database.
    pub schema: SchemaId,
    /// Servers ready for use, the one used last at the back.
    pub idle: VecDeque<ServerId>,
    /// Clients that wait for a server, oldest first. One that has left is passed over.
    pub waiting: VecDeque<(ClientId, Time)>,
    /// Clients that wait for leave to keep a server, before they wait for one. One that has left is
    /// passed over.
    pub pin_line: VecDeque<(ClientId, Time)>,
    /// Clients that wait for `welcome`.
    pub newcomers: Vec<ClientId>,
    /// What clients are told at login.
    pub welcome: Option<Welcome>,
    /// Its servers here, in every state.
    pub servers: u32,
    /// Of those, not yet logged in.
    pub connecting: u32,
    /// Of those, being tested: each serves a waiter when it has passed.
    pub testing: u32,
    /// Its clients here, logged in or about to be.
    pub clients: u32,
    /// Of those, who keep a server between transactions.
    pub pinned: u32,
    /// The Broker was told that clients wait, and has not answered with a permit.
    pub need: bool,
    /// The bound that the Broker said holds it back, as long as clients wait here.
    pub held_by: Option<HeldBy>,
    /// Workers whose clients wait.
    pub hungry: Vec<Hungry>,
    /// Another pool waits for one of its servers to go, and all were busy.
    pub starved: Option<Starved>,
    /// Why there are no new servers for now.
    pub failure: Option<Failure>,
    /// PostgreSQL has no room for its servers, and another pool's is to go.
    pub makes_room: bool,
    /// How many attempts in a row failed: the next of several hosts is tried at once.
    pub hosts_failed: u32,
    /// How many servers this worker may keep, once its pool has more than its bounds allow; else
    /// without limit.
    pub keep: u32,
    /// PAUSE: no server is given out.
    pub paused: bool,
    /// Its database forces another user since: clients go to that user's pool.
    pub forsaken: bool,
    /// SUSPEND, or a successor takes over: no server is given out, but those there are stay.
    pub held: bool,
    /// Keys of the last client's SCRAM login, for logins to PostgreSQL.
    pub scram_keys: Option<ScramKeys>,
    /// What the last login told of its user, for logins to PostgreSQL: by auth_query, or because
    /// LDAP or PAM found the password right.
    pub found_secret: Option<Secret>,
    /// Which of the database's hosts and addresses is next.
    pub next_host: usize,
    /// What is counted.
    pub stats: Stats,
    /// `stats` as of the last period.
    pub last_stats: Stats,
    /// Transactions that the balancer was told of.
    pub told_transactions: u64,
    /// `last_stats` as of one period earlier: the console's averages begin here.
    pub older_stats: Stats,
    /// How long things took.
    pub times: Times,
    /// When its last client left; while it has clients, now and then corrected.
    pub quiet: Time,
}

impl Pool {
    /// A pool without servers or clients.
    pub fn new(key: Arc<PoolKey>, terms: Terms, schema: SchemaId, now: Time) -> Self {
        Pool {
            key,
            terms,
            schema,
            idle: VecDeque::new(),
            waiting: VecDeque::new(),
            pin_line: VecDeque::new(),
            newcomers: Vec::new(),
            welcome: None,
            servers: 0,
            connecting: 0,
            testing: 0,
            clients: 0,
            pinned: 0,
            need: false,
            held_by: None,
            hungry: Vec::new(),
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
            next_host: 0,
            stats: Stats::default(),
            last_stats: Stats::default(),
            told_transactions: 0,
            older_stats: Stats::default(),
            times: Times::default(),
            quiet: now,
        }
    }

    /// Servers are given out.
    pub fn gives(&self) -> bool {
        !self.paused && !self.held
    }

    /// Clients wait for a server, or for the first.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || !self.newcomers.is_empty()
    }

    /// How long the oldest waiter has waited, in nanoseconds.
    pub fn longest_wait(&self, now: Time) -> Option<u64> {
        self.waiting
            .front()
            .map(|(_, since)| now.0.saturating_sub(since.0))
    }

    /// The hungry worker that a server given back shall go to, instead of to the oldest waiter
    /// here: one whose oldest waiter has waited longer by more than the slack (2 ms, or an eighth
    /// of the wait here). Reads only what was told.
    pub fn hungrier(&mut self, now: Time) -> Option<usize> {
        // Hunger is said anew while it lasts, and its end is not told.
        self.hungry
            .retain(|hungry| now.0.saturating_sub(hungry.told.0) < HUNGER_NS);
        let longest = self.hungry.iter().enumerate();
        let (index, Hungry { age, .. }) = longest.max_by_key(|(_, hungry)| hungry.age)?;
        let Some(here) = self.longest_wait(now) else {
            return Some(index);
        };
        let slack = (here / 8).max(2_000_000);
        (*age > here.saturating_add(slack)).then_some(index)
    }

    /// Clients' statements are renamed, so that a server can have many clients' at once.
    pub fn renames(&self, max_prepared_statements: u32) -> bool {
        max_prepared_statements > 0 && self.terms.mode != PoolMode::Session
    }
}

/// How long what a hungry worker said counts, in nanoseconds: it says so at least three times as
/// often while its clients wait.
const HUNGER_NS: u64 = 1_000_000_000;

/// A worker whose clients wait for a server of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Hungry {
    /// Which.
    pub worker: WorkerId,
    /// For how long its oldest client has waited, in nanoseconds, when it said so.
    pub age: u64,
    /// When that was.
    pub told: Time,
}

/// All pools of a worker. Pools are few, so a free slot is simply looked for.
#[derive(Debug)]
pub struct Pools {
    slots: Vec<Option<Box<Pool>>>,
    by_key: HashMap<Arc<PoolKey>, PoolId, Seeded>,
}

impl Pools {
    /// None.
    pub fn new(seeded: Seeded) -> Self {
        Pools {
            slots: Vec::new(),
            by_key: HashMap::with_hasher(seeded),
        }
    }

    /// The pool of this name.
    pub fn find(&self, key: &PoolKey) -> Option<PoolId> {
        self.by_key.get(key).copied()
    }

    /// Adds a pool.
    pub fn insert(&mut self, pool: Pool) -> PoolId {
        let index = self
            .slots
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
        let id = PoolId(index as u32);
        self.by_key.insert(pool.key.clone(), id);
        self.slots[index] = Some(Box::new(pool));
        id
    }

    /// Takes out a pool that has neither servers nor clients.
    pub fn remove(&mut self, id: PoolId) -> Option<Box<Pool>> {
        let pool = self.slots.get_mut(id.0 as usize)?.take()?;
        self.by_key.remove(&pool.key);
        Some(pool)
    }

    /// A pool that is known to exist: it has a server or a client.
    pub fn at(&self, id: PoolId) -> &Pool {
        self.slots[id.0 as usize]
            .as_ref()
            .expect("a pool with a server or a client exists")
    }

    /// Likewise, to change.
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

    /// All names.
    pub fn ids(&self) -> Vec<PoolId> {
        self.iter().map(|(id, _)| id).collect()
    }
}
