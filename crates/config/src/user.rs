//! A user: a line of the auth_file, an entry of `[users]`, or both.

use std::time::Duration;

use howdah_auth::Secret;

use super::database::read_limit;
use super::value::{Listen, PoolMode, SessionState, Value};

/// A user we know. `None` in a setting means "as the database or the global settings say".
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct User {
    /// The name.
    pub name: String,
    /// It stands in auth_file: auth_query is not asked about it.
    pub listed: bool,
    /// The secret of the auth_file. Without one no password is right.
    pub secret: Option<Secret>,
    /// When servers go back to their pool.
    pub pool_mode: Option<PoolMode>,
    /// What becomes of what its clients leave in their sessions.
    pub session_state: Option<SessionState>,
    /// Who listens for its clients.
    pub listen: Option<Listen>,
    /// Servers per pool.
    pub pool_size: Option<u32>,
    /// Servers on top when clients wait too long.
    pub reserve_pool_size: Option<u32>,
    /// Servers of this user.
    pub max_user_connections: Option<u32>,
    /// Clients of this user.
    pub max_user_client_connections: Option<u32>,
    /// How long a query may run.
    pub query_timeout: Option<Duration>,
    /// How long a client may wait for a server; zero: for ever.
    pub query_wait_timeout: Option<Duration>,
    /// From when on a query is logged; zero: never.
    pub slow_query_time: Option<Duration>,
    /// How long a client may idle in a transaction.
    pub idle_transaction_timeout: Option<Duration>,
    /// How long a transaction may last.
    pub transaction_timeout: Option<Duration>,
    /// How long a client may be silent.
    pub client_idle_timeout: Option<Duration>,
    /// How long one may be that keeps a server.
    pub pin_idle_timeout: Option<Duration>,
    /// How many clients may keep a server of a pool.
    pub pin_limit: Option<u32>,
}

impl User {
    /// Assigns one pair; `None` if the value is not of the key's kind. The key is one the table
    /// has for users.
    pub(super) fn assign(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "listen" => self.listen = Some(Listen::read(value)?),
            "session_state" => self.session_state = Some(SessionState::read(value)?),
            "pool_mode" => self.pool_mode = Some(PoolMode::read(value)?),
            "pool_size" => self.pool_size = read_limit(value)?,
            "reserve_pool_size" => self.reserve_pool_size = read_limit(value)?,
            "max_user_connections" => self.max_user_connections = read_limit(value)?,
            "max_user_client_connections" => self.max_user_client_connections = read_limit(value)?,
            "query_wait_timeout" => self.query_wait_timeout = Some(Duration::read(value)?),
            "slow_query_time" => self.slow_query_time = Some(Duration::read(value)?),
            "query_timeout" => self.query_timeout = read_time(value)?,
            "idle_transaction_timeout" => self.idle_transaction_timeout = read_time(value)?,
            "transaction_timeout" => self.transaction_timeout = read_time(value)?,
            "pin_idle_timeout" => self.pin_idle_timeout = read_time(value)?,
            "pin_limit" => self.pin_limit = read_limit(value)?,
            "client_idle_timeout" => self.client_idle_timeout = read_time(value)?,
            _ => return None,
        }
        Some(())
    }
}

/// A time limit of a user; PgBouncer takes 0 here for "as globally".
fn read_time(value: &str) -> Option<Option<Duration>> {
    Duration::read(value).map(|time| Some(time).filter(|t| !t.is_zero()))
}
