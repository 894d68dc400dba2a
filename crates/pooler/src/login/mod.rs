//! A login: a database and the user that servers log in as. Its clients differ in nothing but their
//! sessions. Its servers are in pools ([`crate::pool`]), one for each purpose.

mod count;
pub mod greeting;
pub mod home;
pub mod key;
pub mod secrets;
pub mod terms;

pub use key::{LoginId, LoginKey, Parameter, Welcome};
pub use terms::Terms;

use std::sync::Arc;

use crate::Seeded;
use crate::account::Allowance;
use crate::config::{Config, PoolMode};
use crate::effect::VolatileNames;
use crate::errors::ErrorCounts;
use crate::event::Time;
use crate::keyed::{HasKey, Keyed};
use crate::login::greeting::{Greeting, Wishes};
use crate::login::home::Home;
use crate::login::secrets::Secrets;
use crate::pool::key::PoolId;
use crate::reads::lore::LoginReads;
use crate::shared::Shared;
use crate::statement::{Keepers, SchemaId};
use crate::stats::Stats;
use crate::times::Times;

/// How long after a `currval` or `lastval` more of them are expected, in nanoseconds.
const NUMBERS_ASKED_NS: u64 = 600_000_000_000;

/// A pool that may serve a login's reads.
#[derive(Clone, Copy, Debug)]
pub struct ReadPool {
    /// The pool.
    pub pool: PoolId,
    /// The weight of its host.
    pub weight: u32,
    /// Its host is the primary.
    pub is_primary: bool,
}

/// One worker's clients of a database and user.
#[derive(Debug)]
pub struct Login {
    pub(crate) key: Arc<LoginKey>,
    pub(crate) terms: Terms,
    pub(crate) schema: SchemaId,
    /// Its share of the bytes that this worker may keep for clients.
    pub(crate) share: Arc<Allowance>,
    /// The parameters that PostgreSQL reported to a server for clients, for the greetings of
    /// clients.
    pub(crate) welcome: Option<Welcome>,
    /// The last greeting made from `welcome`.
    greeting: Option<Arc<Greeting>>,
    /// What its servers prove themselves with to PostgreSQL.
    pub(crate) secrets: Secrets,
    clients: u32,
    /// Clients that keep a server between transactions.
    pinned: u32,
    /// When a client last called `currval` or `lastval`.
    numbers_asked: Option<Time>,
    /// Some of its clients belong in other users' logins since a reload, and go there.
    forsaken: bool,
    /// The pool that serves its clients; `None` while that is unknown or another login's, and if
    /// reads are routed.
    home: Option<PoolId>,
    /// The pools that share the work of its clients, with their weights, if there are several: of a
    /// placed database, one for each host that fits.
    shares: Vec<(PoolId, u32)>,
    /// The pools that may serve reads, if reads are routed.
    read_pools: Vec<ReadPool>,
    /// Which of its servers have a statement.
    pub(crate) keepers: Keepers,
    /// What it knows about reads.
    pub(crate) reads: LoginReads,
    /// Its pools on this worker, one for each purpose and target.
    pools: Vec<PoolId>,
    counts: LoginCounts,
    /// When the last client left.
    pub(crate) quiet: Time,
}

/// All logins of one worker.
pub type Logins = Keyed<Login>;

impl HasKey for Login {
    type Key = LoginKey;
    type Id = LoginId;
    fn key(&self) -> &Arc<LoginKey> {
        &self.key
    }
}

impl Login {
    /// A login without clients or pools.
    pub fn new(
        key: Arc<LoginKey>,
        terms: Terms,
        (schema, share): (SchemaId, Arc<Allowance>),
        seeded: Seeded,
        now: Time,
    ) -> Self {
        Login {
            key,
            terms,
            schema,
            share,
            welcome: None,
            greeting: None,
            secrets: Secrets::default(),
            clients: 0,
            pinned: 0,
            numbers_asked: None,
            forsaken: false,
            home: None,
            shares: Vec::new(),
            read_pools: Vec::new(),
            keepers: Keepers::new(seeded),
            reads: LoginReads::default(),
            pools: Vec::new(),
            counts: LoginCounts::default(),
            quiet: now,
        }
    }

    /// Clients on this worker, logged in or about to be, and clients whose users its servers look
    /// up.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// Clients that keep a server between transactions.
    pub fn pinned(&self) -> u32 {
        self.pinned
    }

    /// The pool that serves its clients; `None` while that is unknown or another login's, and if
    /// reads are routed.
    #[inline]
    pub fn home(&self) -> Option<PoolId> {
        self.home
    }

    /// The pools that share the work of its clients, with their weights, if there are several.
    pub fn shares(&self) -> &[(PoolId, u32)] {
        &self.shares
    }

    /// The pools that may serve reads, if reads are routed.
    pub fn read_pools(&self) -> &[ReadPool] {
        &self.read_pools
    }

    /// Its pools on this worker, one for each purpose and target.
    pub fn pools(&self) -> &[PoolId] {
        &self.pools
    }

    /// True if clients keep their server for the whole session.
    pub fn is_session(&self) -> bool {
        self.terms.mode == PoolMode::Session
    }

    /// Some of its clients belong in other users' logins since a reload, and go there.
    pub fn is_forsaken(&self) -> bool {
        self.forsaken
    }

    /// True if Howdah renames statements, so that a server can hold the statements of many clients.
    pub fn renames(&self, max_prepared_statements: u32) -> bool {
        max_prepared_statements > 0 && !self.is_session()
    }

    /// True if clients call `currval` or `lastval`: then no client may see another's sequence
    /// values.
    pub(crate) fn asks_numbers(&self, now: Time) -> bool {
        let asked = self.numbers_asked;
        asked.is_some_and(|asked| now.0.saturating_sub(asked.0) < NUMBERS_ASKED_NS)
    }

    pub(crate) fn client_enters(&mut self) {
        self.clients += 1;
    }

    pub(crate) fn client_leaves(&mut self, now: Time) {
        self.clients -= 1;
        self.quiet = now;
    }

    /// The login has a new pool. `is_home`: the one that serves its clients.
    pub(crate) fn gets_pool(&mut self, id: PoolId, is_home: bool) {
        self.pools.push(id);
        if is_home && !self.forsaken {
            self.home = Some(id);
        }
    }

    pub(crate) fn loses_pool(&mut self, id: PoolId) {
        self.pools.retain(|pool| *pool != id);
        self.home.take_if(|home| *home == id);
        let is_served_by = self.shares.iter().any(|(pool, _)| *pool == id)
            || self.read_pools.iter().any(|of| of.pool == id);
        self.read_pools.retain(|of| of.pool != id);
        if is_served_by {
            // They are found anew.
            self.shares.clear();
        }
    }

    /// What the messages of its clients need: its settings, its share of the account, which of its
    /// servers have a statement, and what plans need.
    pub(crate) fn for_messages(&mut self) -> (&Terms, &Arc<Allowance>, &mut Keepers, Home<'_>) {
        let home = Home::new(&self.terms.database, &self.key, self.welcome.as_ref());
        (&self.terms, &self.share, &mut self.keepers, home)
    }

    /// What plans of its clients' statements need, if its database is a shard.
    pub(crate) fn as_home(&self) -> Home<'_> {
        Home::new(&self.terms.database, &self.key, self.welcome.as_ref())
    }

    /// The volatile functions of the database, if single reads go to standbys.
    #[inline]
    pub fn volatile(&self) -> Option<&VolatileNames> {
        self.reads.volatile()
    }

    /// The configured secrets may have other values. Servers that have logged in stay.
    pub(crate) fn relist(&mut self, config: &Config) {
        let database = &self.terms.database;
        let listed = config.listed(&database.name, database.server_user(&self.key.user));
        let listed = listed.flatten();
        if listed != self.terms.listed.as_ref() {
            self.terms.listed = listed.cloned();
        }
    }

    /// A reload brings new settings.
    pub(crate) fn set_terms(&mut self, terms: Terms, schema: SchemaId) {
        if !terms.reads.is_some_and(|reads| reads.has_statements) {
            self.reads.forget();
        }
        self.terms = terms;
        self.schema = schema;
    }

    /// Since a reload, some of its clients belong in other users' logins. Each request is routed.
    pub(crate) fn mark_forsaken(&mut self) {
        self.forsaken = true;
        self.home = None;
        self.shares.clear();
        self.read_pools.clear();
    }

    /// Clients stay. `home` is the pool that serves them, if it exists.
    pub(crate) fn mark_kept(&mut self, home: Option<PoolId>) {
        self.forsaken = false;
        self.home = home;
        self.shares.clear();
        self.read_pools.clear();
    }

    /// The pools that serve the clients of a placed database: one, or several that share the work.
    pub(crate) fn finds_home(&mut self, home: Option<PoolId>, shares: Vec<(PoolId, u32)>) {
        self.home = home;
        self.shares = shares;
    }

    /// The pools that may serve reads.
    pub(crate) fn finds_read_pools(&mut self, pools: Vec<ReadPool>) {
        self.read_pools = pools;
    }

    pub(crate) fn notes_question_for_numbers(&mut self, now: Time) {
        self.numbers_asked = Some(now);
    }

    /// Stores the parameters that PostgreSQL reported to a server.
    pub(crate) fn learns_welcome(&mut self, welcome: Welcome) {
        self.welcome = Some(welcome);
        self.greeting = None;
    }

    /// Its last server for clients is gone, with what was known of PostgreSQL.
    pub(crate) fn forgets_servers(&mut self) {
        self.forgets_welcome();
        self.secrets = Secrets::default();
    }

    /// The servers are replaced, and new ones may report other parameters.
    pub(crate) fn forgets_welcome(&mut self) {
        self.welcome = None;
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
}

#[derive(Debug, Default)]
struct LoginCounts {
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
