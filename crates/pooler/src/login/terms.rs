//! The settings of a login.

use std::sync::Arc;

use crate::auth::Secret;
use crate::config::{Config, Database, PoolMode, SessionState, UnnamedStatements, User, nanos};
use crate::login::key::LoginKey;
use crate::queries::watched::Wanted;
use crate::reads::ReadTerms;
use crate::session::Tracking;

/// The settings of a login, which a reload can change. Times are in nanoseconds, timeouts 0 for
/// none.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The database that servers connect to.
    pub database: Arc<Database>,
    /// [`Database::fingerprint`] of `database` and the login's user.
    pub fingerprint: [u8; 32],
    /// The user whose pools these are, if configured.
    pub user: Option<Arc<User>>,
    /// The configured secret of the user that servers for clients log in as; not a password that
    /// stands in the database's entry.
    pub listed: Option<Secret>,
    /// When a server is released: after a session, a transaction or a statement.
    pub mode: PoolMode,
    /// How Howdah treats state that clients leave in sessions.
    pub tracking: Tracking,
    /// The listener handles LISTEN for the clients (`listen = share`).
    pub shares_listen: bool,
    /// Servers keep unnamed statements whose texts come again (`unnamed_statements = share`).
    pub shares_unnamed: bool,
    /// `pin_limit`; 0 for no limit.
    pub pins: u32,
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
    /// `max_standby_lag`, if the database's own target is standbys; `u64::MAX` for no limit.
    pub max_lag: u64,
    /// How reads go to standbys; `None` if they do not.
    pub reads: Option<ReadTerms>,
    /// Which queries Howdah notes, and for which purpose.
    pub wanted: Wanted,
    /// Linked clients have a timeout, so Howdah watches them.
    pub watched: bool,
    /// The shortest timeout of linked clients.
    pub shortest: u64,
}

impl Terms {
    /// The settings of a login, taken from the configuration.
    pub fn of(config: &Config, key: &LoginKey, database: Arc<Database>) -> Terms {
        let user: Option<Arc<User>> = config.user(&key.user).cloned();
        let scopes = config.scopes(Some(&database), Some(&key.user));
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
            shares_unnamed: scopes.unnamed_statements() == UnnamedStatements::Share,
            pins: scopes.pins(),
            query_timeout,
            query_wait_timeout: nanos(scopes.query_wait_timeout()),
            idle_transaction_timeout,
            transaction_timeout,
            client_idle_timeout,
            pin_idle_timeout,
            max_lag: config
                .max_lag_of_standbys(&database)
                .map_or(u64::MAX, nanos),
            reads: ReadTerms::of(scopes, &database).filter(|_| mode != PoolMode::Session),
            wanted: Wanted::of(scopes),
            watched: query_timeout
                | idle_transaction_timeout
                | transaction_timeout
                | client_idle_timeout
                > 0,
            fingerprint: database.fingerprint(&key.user),
            listed: config
                .listed(&database.name, database.server_user(&key.user))
                .flatten()
                .cloned(),
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
