//! The settings of a pool.

use std::sync::Arc;

use crate::config::{Config, Database, PoolMode, SessionState, User, nanos};
use crate::pool::bound::{Each, SharedBound};
use crate::pool::key::PoolKey;
use crate::pool::key::Purpose;
use crate::queries::watched::Wanted;
use crate::session::Tracking;

/// The settings of a pool, which a reload can change. Times are in nanoseconds, timeouts 0 for
/// none.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The database that the pool's servers connect to.
    pub database: Arc<Database>,
    /// [`Database::fingerprint`] of `database`.
    pub fingerprint: [u8; 32],
    /// The user that servers log in as, if configured.
    pub user: Option<Arc<User>>,
    /// When a server is released: after a session, a transaction or a statement.
    pub mode: PoolMode,
    /// How Howdah treats state that clients leave in sessions.
    pub tracking: Tracking,
    /// The listener handles LISTEN for the pool's clients (`listen = share`).
    pub shares_listen: bool,
    /// How many servers the pool may have.
    pub bounds: Bounds,
    /// How many servers the pool keeps at least (`min_pool_size`).
    pub min_size: u32,
    /// `query_timeout`.
    pub query_timeout: u64,
    /// `query_wait_timeout`.
    pub query_wait_timeout: u64,
    /// `idle_transaction_timeout`.
    pub idle_transaction_timeout: u64,
    /// `transaction_timeout`.
    pub transaction_timeout: u64,
    /// `client_idle_timeout`.
    pub client_idle_timeout: u64,
    /// `pin_idle_timeout`.
    pub pin_idle_timeout: u64,
    /// `server_lifetime`. With 0, a server serves only once.
    pub server_lifetime: u64,
    /// `server_idle_timeout`.
    pub server_idle_timeout: u64,
    /// Which queries Howdah notes, and for which purpose.
    pub wanted: Wanted,
    /// Linked clients have a timeout, so Howdah watches them.
    pub watched: bool,
    /// The shortest timeout of linked clients.
    pub shortest: u64,
}

impl Terms {
    /// The settings of a pool, taken from the configuration.
    pub fn of(config: &Config, key: &PoolKey, database: Arc<Database>) -> Terms {
        let user: Option<Arc<User>> = config.user(&key.login.user).cloned();
        let scopes = config.scopes(Some(&database), Some(&key.login.user));
        let (mode, state) = (scopes.pool_mode(), scopes.session_state());
        let query_timeout = nanos(scopes.query_timeout());
        let idle_transaction_timeout = nanos(scopes.idle_transaction_timeout());
        let transaction_timeout = nanos(scopes.transaction_timeout());
        let client_idle_timeout = nanos(scopes.client_idle_timeout());
        let pin_idle_timeout = nanos(scopes.pin_idle_timeout());
        let limits = [
            query_timeout,
            idle_transaction_timeout,
            transaction_timeout,
            client_idle_timeout,
            pin_idle_timeout,
        ];
        let shortest = limits.into_iter().filter(|limit| *limit > 0).min();
        Terms {
            shortest: shortest.unwrap_or(u64::MAX),
            mode,
            tracking: tracking(mode, state),
            shares_listen: scopes.shares_listen()
                && mode == PoolMode::Transaction
                && state == SessionState::Keep,
            bounds: Bounds {
                size: match key.listens() {
                    true => 1,
                    false => scopes.pool_size(),
                },
                reserve: match key.listens() {
                    true => 0,
                    false => scopes.reserve_pool_size(),
                },
                reserve_after: nanos(scopes.globals.reserve_pool_timeout),
                shared: SharedBound::ALL.map(|bound| match bound {
                    SharedBound::Database => scopes.max_db_connections(),
                    SharedBound::User => scopes.max_user_connections(),
                }),
                pins: scopes.pins(),
            },
            min_size: match key.purpose != Purpose::Clients {
                true => 0,
                false => scopes.min_pool_size(),
            },
            query_timeout,
            query_wait_timeout: nanos(scopes.query_wait_timeout()),
            idle_transaction_timeout,
            transaction_timeout,
            client_idle_timeout,
            pin_idle_timeout,
            server_lifetime: nanos(scopes.server_lifetime()),
            server_idle_timeout: nanos(scopes.globals.server_idle_timeout),
            wanted: match key.purpose != Purpose::Clients {
                true => Wanted::default(),
                false => Wanted::of(scopes),
            },
            watched: query_timeout
                | idle_transaction_timeout
                | transaction_timeout
                | client_idle_timeout
                > 0,
            fingerprint: database.fingerprint(),
            database,
            user,
        }
    }
}

fn tracking(mode: PoolMode, state: SessionState) -> Tracking {
    match (mode, state) {
        (PoolMode::Session, _) | (_, SessionState::Share) => Tracking::Nothing,
        (_, SessionState::Discard) => Tracking::Cleans,
        (PoolMode::Transaction, SessionState::Keep) => Tracking::Keeps,
        (PoolMode::Statement, SessionState::Keep) => Tracking::KeepsSettings,
    }
}

/// The limits of a pool, from the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// `pool_size`; 0 for no limit.
    pub size: u32,
    /// `reserve_pool_size`.
    pub reserve: u32,
    /// `reserve_pool_timeout`, in nanoseconds.
    pub reserve_after: u64,
    /// `max_db_connections` and `max_user_connections`, which pools share; 0 for no limit.
    pub shared: Each<u32>,
    /// `pin_limit`; 0 for no limit.
    pub pins: u32,
}

impl Bounds {
    /// How many clients may keep a server while no client waits for one: all servers but one can be
    /// kept then, or as many as `pin_limit` says if that is more. 0 for no limit.
    pub fn pins_at_rest(&self) -> u32 {
        let [database, user] = self.shared;
        let bounds = [self.size, database, user].into_iter();
        let servers = bounds.filter(|bound| *bound > 0).min();
        servers.map_or(0, |servers| (servers - 1).max(self.pins))
    }
}

/// The limit that holds a pool back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldBy {
    /// `pool_size`, plus the part of the reserve that may be used by now.
    Pool,
    /// Shared limits; `true` for each limit that is reached.
    Shared(Each<bool>),
}

impl HeldBy {
    /// `max_db_connections` is reached.
    pub const DATABASE: HeldBy = HeldBy::Shared([true, false]);
    /// `max_user_connections` is reached.
    pub const USER: HeldBy = HeldBy::Shared([false, true]);
    /// Both limits are reached.
    pub const DATABASE_AND_USER: HeldBy = HeldBy::Shared([true, true]);

    /// The shared limits that are reached.
    pub fn bounds(self) -> Vec<SharedBound> {
        let all = SharedBound::ALL.into_iter();
        match self {
            HeldBy::Pool => Vec::new(),
            HeldBy::Shared(reached) => all.filter(|bound| reached[bound.place()]).collect(),
        }
    }
}
