//! A user: a line of the auth_file, an entry of `[users]`, or both.

use std::time::Duration;

use howdah_auth::Secret;

use super::database::read_limit;
use super::value::{Listen, PoolMode, SessionState, Value};

/// A known user. In a setting, `None` means "as in the database's entry or the global settings".
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct User {
    /// The name.
    pub name: String,
    /// The user has a line in the auth_file: auth_query is not run for this user.
    pub listed: bool,
    /// The secret in the auth_file. Without a secret no password is right.
    pub secret: Option<Secret>,
    /// When servers are given back to their pool.
    pub pool_mode: Option<PoolMode>,
    /// What happens to the session state of the user's clients.
    pub session_state: Option<SessionState>,
    /// Which connection listens for the user's clients.
    pub listen: Option<Listen>,
    /// Servers per pool.
    pub pool_size: Option<u32>,
    /// Additional servers for clients that wait too long.
    pub reserve_pool_size: Option<u32>,
    /// The greatest number of servers of this user.
    pub max_user_connections: Option<u32>,
    /// The greatest number of clients of this user.
    pub max_user_client_connections: Option<u32>,
    /// How long a query may run.
    pub query_timeout: Option<Duration>,
    /// How long a client may wait for a server; zero: for ever.
    pub query_wait_timeout: Option<Duration>,
    /// A query that lasts this long is logged; zero: none.
    pub slow_query_time: Option<Duration>,
    /// How long a client may be idle in a transaction.
    pub idle_transaction_timeout: Option<Duration>,
    /// How long a transaction may last.
    pub transaction_timeout: Option<Duration>,
    /// How long a client may be silent.
    pub client_idle_timeout: Option<Duration>,
    /// How long a client that keeps a server may be silent.
    pub pin_idle_timeout: Option<Duration>,
    /// How many clients of a pool may keep a server.
    pub pin_limit: Option<u32>,
}

impl User {
    /// Assigns one pair; `None` if the value is not of the key's kind. The key must be in the table
    /// for users.
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

/// Reads a time limit of a user. In PgBouncer, 0 here means "as globally".
fn read_time(value: &str) -> Option<Option<Duration>> {
    Duration::read(value).map(|time| Some(time).filter(|t| !t.is_zero()))
}
