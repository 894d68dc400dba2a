//! A setting that stands in several places: the nearest one counts.

use std::time::Duration;

use howdah_auth::{ChannelBinding, RequireAuth};

use crate::{Database, Globals, Listen, PoolMode, SessionState, User};

/// The places of settings that count for a user in a database. Of several settings with one name
/// the nearest counts: the user's, then the database's, then the global one.
#[derive(Clone, Copy, Debug)]
pub struct Scopes<'a> {
    /// The user.
    pub user: Option<&'a User>,
    /// The database.
    pub database: Option<&'a Database>,
    /// The global settings.
    pub globals: &'a Globals,
}

/// Readers of settings: `name: type; where it may stand` in the order of the places.
macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident: $type:ty; $($place:ident)*, else $global:ident;)*) => {
        impl Scopes<'_> {$(
            $(#[$doc])*
            pub fn $name(self) -> $type {
                $(if let Some(own) = self.$place.and_then(|place| place.$name.clone()) {
                    return own;
                })*
                self.globals.$global.clone()
            }
        )*}
    };
}

readers! {
    /// The size of a pool; 0 sets no limit.
    pool_size: u32; user database, else default_pool_size;
    /// When a pool's servers are given back.
    pool_mode: PoolMode; user database, else pool_mode;
    /// What happens to the session state of clients.
    session_state: SessionState; user database, else session_state;
    /// What LISTEN does.
    listen: Listen; user database, else listen;
    /// Additional servers for clients of a pool that wait too long.
    reserve_pool_size: u32; user database, else reserve_pool_size;
    /// How long a client may wait for a server; zero: for ever.
    query_wait_timeout: Duration; user database, else query_wait_timeout;
    /// A query that lasts this long is logged; zero: none.
    slow_query_time: Duration; user database, else slow_query_time;
    /// Servers kept open in a pool that is in use.
    min_pool_size: u32; database, else min_pool_size;
    /// The greatest age of a database's servers; zero: a server is used once.
    server_lifetime: Duration; database, else server_lifetime;
    /// The greatest number of a database's servers; 0 sets no limit.
    max_db_connections: u32; database, else max_db_connections;
    /// The greatest number of a database's clients; 0 sets no limit.
    max_db_client_connections: u32; database, else max_db_client_connections;
    /// The greatest number of a user's servers; 0 sets no limit.
    max_user_connections: u32; user, else max_user_connections;
    /// The greatest number of a user's clients; 0 sets no limit.
    max_user_client_connections: u32; user, else max_user_client_connections;
    /// How long a query may run; zero: for ever.
    query_timeout: Duration; user, else query_timeout;
    /// How long a client may be idle in a transaction; zero: for ever.
    idle_transaction_timeout: Duration; user, else idle_transaction_timeout;
    /// How long a transaction may last; zero: for ever.
    transaction_timeout: Duration; user, else transaction_timeout;
    /// How long a client may be silent; zero: for ever.
    client_idle_timeout: Duration; user, else client_idle_timeout;
    /// How long a client that keeps a server may be silent; zero: for ever.
    pin_idle_timeout: Duration; user, else pin_idle_timeout;
    /// The methods with which a database's servers may ask Howdah for a proof.
    require_auth: RequireAuth; database, else server_require_auth;
    /// Whether logins to servers of a database bind the channel.
    channel_binding: ChannelBinding; database, else server_channel_binding;
    /// The query that finds a user's secret.
    auth_query: String; database, else auth_query;
}

impl<'a> Scopes<'a> {
    /// The role that runs auth_query.
    pub fn auth_user(self) -> Option<String> {
        let own = self
            .database
            .and_then(|database| database.auth_user.clone());
        own.or_else(|| self.globals.auth_user.clone())
    }

    /// The entry of `[databases]` in which auth_query runs; `None`: the client's own.
    pub fn auth_dbname(self) -> Option<String> {
        let own = self
            .database
            .and_then(|database| database.auth_dbname.clone());
        own.or_else(|| self.globals.auth_dbname.clone())
    }

    /// True if one connection listens for all clients of a database. False for a database with
    /// several hosts, because notifications do not leave their host.
    pub fn shares_listen(self) -> bool {
        let hosts = self.database.map_or(0, |database| database.hosts.len());
        self.listen() == Listen::Share && hosts == 1
    }

    /// The user whose connection listens for all clients of a database; `None` if each user has its
    /// own.
    pub fn listen_user(self) -> Option<&'a str> {
        let own = self
            .database
            .and_then(|database| database.listen_user.as_deref());
        let user = own.unwrap_or(&self.globals.listen_user);
        Some(user).filter(|user| !user.is_empty())
    }

    /// How many clients may keep a server of a pool between transactions; 0 sets no limit.
    pub fn pin_limit(self) -> u32 {
        let of_user = self.user.and_then(|user| user.pin_limit);
        let own = of_user.or_else(|| self.database?.pin_limit);
        let limit = own.unwrap_or(self.globals.pin_limit);
        if limit > 0 {
            return limit;
        }
        let bounds = [
            self.pool_size(),
            self.max_db_connections(),
            self.max_user_connections(),
        ];
        let servers = bounds.into_iter().filter(|bound| *bound > 0).min();
        servers.map_or(0, |servers| (servers / 2).max(1))
    }

    /// The system user that a database's servers on a unix socket must run as; `None`: any user.
    pub fn require_peer(self) -> Option<&'a str> {
        let own = self
            .database
            .and_then(|database| database.requirepeer.as_deref());
        let name = own.unwrap_or(&self.globals.server_requirepeer);
        (!name.is_empty()).then_some(name)
    }
}
