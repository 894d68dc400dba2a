//! What the settings say of a pool, and how pools come to be.

use std::sync::Arc;

use crate::config::{Database, PoolMode, SessionState, User, nanos};
use crate::mail::Bounds;
use crate::pool::{Pool, PoolId, PoolKey};
use crate::pooler::Pooler;
use crate::queries::Wanted;
use crate::session::Tracking;

/// What a reload can change of a pool.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Where its servers connect to.
    pub database: Arc<Database>,
    /// [`Database::fingerprint`] of that.
    pub fingerprint: [u8; 32],
    /// The user its servers log in as, if the configuration knows it.
    pub user: Option<Arc<User>>,
    /// When a server goes back.
    pub mode: PoolMode,
    /// What is done about what its clients leave in their sessions.
    pub tracking: Tracking,
    /// Its clients' LISTEN is for the listener.
    pub shares_listen: bool,
    /// How many servers it may have.
    pub bounds: Bounds,
    /// How many it shall have.
    pub min_size: u32,
    /// `query_timeout`, in nanoseconds; 0 for none.
    pub query_timeout: u64,
    /// `query_wait_timeout`, likewise.
    pub query_wait_timeout: u64,
    /// `idle_transaction_timeout`, likewise.
    pub idle_transaction_timeout: u64,
    /// `transaction_timeout`, likewise.
    pub transaction_timeout: u64,
    /// `client_idle_timeout`, likewise.
    pub client_idle_timeout: u64,
    /// `pin_idle_timeout`, likewise.
    pub pin_idle_timeout: u64,
    /// `server_lifetime`, likewise, where 0 is no time at all.
    pub server_lifetime: u64,
    /// `server_idle_timeout`, likewise; 0 for none.
    pub server_idle_timeout: u64,
    /// What is wanted to be known of its queries.
    pub wanted: Wanted,
    /// Any of those that a linked client must be watched for is set.
    pub watched: bool,
    /// The shortest of those, in nanoseconds.
    pub shortest: u64,
}

impl Pooler {
    /// The pool of this name; made if it is not there.
    pub(crate) fn pool_for(&mut self, key: PoolKey, database: &Arc<Database>) -> PoolId {
        if let Some(id) = self.pools.find(&key) {
            return id;
        }
        let terms = self.terms(&key, database.clone());
        let schema = self.shared.statements.schema_of(database.target());
        let mut pool = Pool::new(Arc::new(key), terms, schema, self.now);
        pool.pauses(self.janitor.is_paused(&pool.key.database));
        pool.holds(self.janitor.holds());
        self.pools.insert(pool)
    }

    /// What the settings say of a pool.
    pub(crate) fn terms(&self, key: &PoolKey, database: Arc<Database>) -> Terms {
        let config = &self.config;
        let user: Option<Arc<User>> = config.user(&key.user).cloned();
        let of = user.as_deref();
        let globals = &config.globals;
        let query_timeout = nanos(config.query_timeout(of));
        let idle_transaction_timeout = nanos(config.idle_transaction_timeout(of));
        let transaction_timeout = nanos(config.transaction_timeout(of));
        let client_idle_timeout = nanos(config.client_idle_timeout(of));
        let pin_idle_timeout = nanos(config.pin_idle_timeout(of));
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
            mode: config.pool_mode(&database, of),
            tracking: tracking(
                config.pool_mode(&database, of),
                config.session_state(&database, of),
            ),
            shares_listen: config.shares_listen(&database, of)
                && config.pool_mode(&database, of) == PoolMode::Transaction
                && config.session_state(&database, of) == SessionState::Keep,
            bounds: Bounds {
                size: match key.listens {
                    // One that takes the place of another is there beside it for a moment.
                    true => 2,
                    false => config.pool_size(&database, of),
                },
                reserve: match key.listens {
                    true => 0,
                    false => config.reserve_pool_size(&database, of),
                },
                reserve_after: nanos(globals.reserve_pool_timeout),
                database: config.max_db_connections(&database),
                user: config.max_user_connections(of),
                pins: config.pin_limit(&database, of),
            },
            min_size: match key.lookups || key.listens {
                true => 0,
                false => config.min_pool_size(&database),
            },
            query_timeout,
            query_wait_timeout: nanos(config.query_wait_timeout(&database, of)),
            idle_transaction_timeout,
            transaction_timeout,
            client_idle_timeout,
            pin_idle_timeout,
            server_lifetime: nanos(config.server_lifetime(&database)),
            server_idle_timeout: nanos(globals.server_idle_timeout),
            wanted: match key.lookups || key.listens {
                true => Wanted::default(),
                false => Wanted::of(config, &database, of),
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

    /// True if sessions are what this pool gives out.
    pub(crate) fn is_session(&self, pool_id: PoolId) -> bool {
        self.pools.at(pool_id).terms.mode == PoolMode::Session
    }
}

/// What the settings say of sessions.
fn tracking(mode: PoolMode, state: SessionState) -> Tracking {
    match (mode, state) {
        (PoolMode::Session, _) | (_, SessionState::Share) => Tracking::Nothing,
        (_, SessionState::Discard) => Tracking::Cleans,
        (PoolMode::Transaction, SessionState::Keep) => Tracking::Keeps,
        (PoolMode::Statement, SessionState::Keep) => Tracking::KeepsSettings,
    }
}
