//! An entry of `[databases]`.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use howdah_auth::{ChannelBinding, RequireAuth};

use super::value::{Listen, LoadBalance, PoolMode, SessionState, SslMode, SslNegotiation, Value};

/// A host of PostgreSQL.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Host {
    /// A name to be resolved.
    Name(String),
    /// An address.
    Ip(IpAddr),
    /// The directory of a unix socket; abstract if it begins with `@`.
    Unix(String),
}

impl Host {
    /// The hosts in a `host` setting, separated by commas.
    pub(super) fn list(text: &str) -> Vec<Host> {
        text.split(',')
            .map(str::trim)
            .filter(|host| !host.is_empty())
            .map(Host::from_text)
            .collect()
    }

    fn from_text(text: &str) -> Host {
        if text.starts_with(['/', '@']) {
            Host::Unix(text.into())
        } else {
            text.parse()
                .map_or_else(|_| Host::Name(text.into()), Host::Ip)
        }
    }
}

/// A database that clients may ask for. In a setting that also exists globally, `None` means "as
/// there".
#[derive(Clone, PartialEq, Eq)]
pub struct Database {
    /// The name that clients use.
    pub name: String,
    /// The name on the server, if it differs. See [`Database::target`].
    pub dbname: Option<String>,
    /// `host` as written.
    pub host: Option<String>,
    /// The hosts in `host`; without `host`, the directory of unix_socket_dir. May be empty.
    pub hosts: Vec<Host>,
    /// The servers' port.
    pub port: u16,
    /// All servers log in as this user.
    pub forced_user: Option<String>,
    /// The forced user's password.
    pub password: Option<String>,
    /// The entry was made from the `*` entry.
    pub auto: bool,
    /// Servers per pool.
    pub pool_size: Option<u32>,
    /// Servers kept open in a pool in use.
    pub min_pool_size: Option<u32>,
    /// Additional servers for clients that wait too long.
    pub reserve_pool_size: Option<u32>,
    /// How long a client may wait for a server.
    pub query_wait_timeout: Option<Duration>,
    /// A query that lasts this long is logged; zero: none.
    pub slow_query_time: Option<Duration>,
    /// The greatest number of servers of this database.
    pub max_db_connections: Option<u32>,
    /// The greatest number of clients of this database.
    pub max_db_client_connections: Option<u32>,
    /// The greatest age of servers.
    pub server_lifetime: Option<Duration>,
    /// How several hosts are used.
    pub load_balance_hosts: LoadBalance,
    /// How TLS to the servers is used.
    pub sslmode: Option<SslMode>,
    /// How TLS to the clients is used.
    pub client_tls_sslmode: Option<SslMode>,
    /// How TLS to the servers begins.
    pub sslnegotiation: SslNegotiation,
    /// When servers are given back to their pool.
    pub pool_mode: Option<PoolMode>,
    /// What happens to the session state of clients.
    pub session_state: Option<SessionState>,
    /// Which connection listens for the clients.
    pub listen: Option<Listen>,
    /// The user of that connection.
    pub listen_user: Option<String>,
    /// How many clients of a pool may keep a server.
    pub pin_limit: Option<u32>,
    /// A query that runs once on each new server.
    pub connect_query: Option<String>,
    /// Sent when a server is opened.
    pub client_encoding: Option<String>,
    /// Sent when a server is opened.
    pub datestyle: Option<String>,
    /// Sent when a server is opened.
    pub timezone: Option<String>,
    /// Sent when a server is opened.
    pub application_name: Option<String>,
    /// The user that runs auth_query.
    pub auth_user: Option<String>,
    /// The database in which auth_query runs.
    pub auth_dbname: Option<String>,
    /// The query that finds a user's secret.
    pub auth_query: Option<String>,
    /// The methods with which servers may ask Howdah for a proof.
    pub require_auth: Option<RequireAuth>,
    /// Whether logins to servers bind the channel.
    pub channel_binding: Option<ChannelBinding>,
    /// The system user that servers on a unix socket must run as.
    pub requirepeer: Option<String>,
}

impl fmt::Debug for Database {
    /// Prints the name only: the password must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("name", &self.name)
            .field("target", &self.target())
            .field("hosts", &self.hosts)
            .field("port", &self.port)
            .field("forced_user", &self.forced_user)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// The database's name on the server.
    pub fn target(&self) -> &str {
        self.dbname.as_deref().unwrap_or(&self.name)
    }

    /// True if servers opened for one entry can serve the other entry, too. Compares what PgBouncer
    /// compares at a reload. The password is not compared.
    pub fn same_servers(&self, other: &Database) -> bool {
        self.target() == other.target()
            && self.host == other.host
            && self.hosts == other.hosts
            && self.port == other.port
            && self.forced_user == other.forced_user
            && self.connect_query == other.connect_query
            && self.auth_dbname == other.auth_dbname
            && self.auth_query == other.auth_query
            && self.load_balance_hosts == other.load_balance_hosts
            && self.sslmode == other.sslmode
            && self.sslnegotiation == other.sslnegotiation
    }

    /// An entry that no longer forces a user goes on forcing its old user, as in PgBouncer: its
    /// clients have no passwords of their own for the server. True if this happened.
    pub(super) fn keep_forced_user(new: &mut Arc<Database>, old: &Database) -> bool {
        let lost = new.forced_user.is_none() && old.forced_user.is_some();
        if lost {
            let new = Arc::make_mut(new);
            new.forced_user.clone_from(&old.forced_user);
            new.password.clone_from(&old.password);
        }
        lost
    }

    /// A hash of the fields that [`Database::same_servers`] compares. Another process computes the
    /// same hash.
    pub fn fingerprint(&self) -> [u8; 32] {
        use sha2::{Digest, Sha256};
        let front = (self.target(), &self.host, &self.hosts, self.port);
        let back = (&self.forced_user, &self.connect_query, &self.auth_dbname);
        let rest = (&self.auth_query, self.load_balance_hosts);
        let tls = (self.sslmode, self.sslnegotiation);
        Sha256::digest(format!("{front:?}{back:?}{rest:?}{tls:?}")).into()
    }

    pub(super) fn new(name: &str) -> Database {
        Database {
            name: name.into(),
            dbname: None,
            host: None,
            hosts: Vec::new(),
            port: 5432,
            forced_user: None,
            password: None,
            auto: false,
            pool_size: None,
            min_pool_size: None,
            reserve_pool_size: None,
            query_wait_timeout: None,
            slow_query_time: None,
            max_db_connections: None,
            max_db_client_connections: None,
            server_lifetime: None,
            load_balance_hosts: LoadBalance::RoundRobin,
            sslmode: None,
            client_tls_sslmode: None,
            sslnegotiation: SslNegotiation::Postgres,
            pool_mode: None,
            session_state: None,
            listen: None,
            listen_user: None,
            pin_limit: None,
            connect_query: None,
            client_encoding: None,
            datestyle: None,
            timezone: None,
            application_name: None,
            auth_user: None,
            auth_dbname: None,
            auth_query: None,
            require_auth: None,
            channel_binding: None,
            requirepeer: None,
        }
    }

    /// Assigns one pair of the connection string; `None` if the value is not of the key's kind. The
    /// key must be in the table for databases.
    pub(super) fn assign(&mut self, key: &str, value: &str) -> Option<()> {
        let text = || Some(value.to_owned());
        match key {
            "dbname" => self.dbname = text(),
            "host" => {
                self.hosts = Host::list(value);
                self.host = text();
                (!self.hosts.is_empty()).then_some(())?;
            }
            "port" => self.port = u16::read(value).filter(|&port| port > 0)?,
            "user" => self.forced_user = text(),
            "password" => self.password = text(),
            "pool_size" => self.pool_size = read_limit(value)?,
            "min_pool_size" => self.min_pool_size = read_limit(value)?,
            "reserve_pool_size" | "reserve_pool" => self.reserve_pool_size = read_limit(value)?,
            "max_db_connections" => self.max_db_connections = read_limit(value)?,
            "max_db_client_connections" => self.max_db_client_connections = read_limit(value)?,
            "query_wait_timeout" => self.query_wait_timeout = Some(Duration::read(value)?),
            "slow_query_time" => self.slow_query_time = Some(Duration::read(value)?),
            // In PgBouncer, 0 here means "as globally".
            "server_lifetime" => {
                self.server_lifetime = Some(Duration::read(value)?).filter(|t| !t.is_zero());
            }
            "load_balance_hosts" => self.load_balance_hosts = LoadBalance::read(value)?,
            "sslmode" => self.sslmode = Some(SslMode::read(value)?),
            "client_tls_sslmode" => self.client_tls_sslmode = Some(SslMode::read(value)?),
            "sslnegotiation" => self.sslnegotiation = SslNegotiation::read(value)?,
            "pin_limit" => self.pin_limit = read_limit(value)?,
            "listen" => self.listen = Some(Listen::read(value)?),
            "listen_user" => self.listen_user = text(),
            "session_state" => self.session_state = Some(SessionState::read(value)?),
            "pool_mode" => self.pool_mode = Some(PoolMode::read(value)?),
            "connect_query" => self.connect_query = text(),
            "client_encoding" => self.client_encoding = text(),
            "datestyle" => self.datestyle = text(),
            "timezone" => self.timezone = text(),
            "application_name" => self.application_name = text(),
            "auth_user" => self.auth_user = text(),
            "auth_dbname" => self.auth_dbname = text(),
            "auth_query" => self.auth_query = text(),
            "require_auth" => self.require_auth = Some(RequireAuth::read(value)?),
            "channel_binding" => self.channel_binding = Some(ChannelBinding::read(value)?),
            "requirepeer" => self.requirepeer = text(),
            _ => return None,
        }
        Some(())
    }
}

/// Reads a limit of an entry: a decimal number; a negative one means "as globally".
pub(super) fn read_limit(value: &str) -> Option<Option<u32>> {
    let number: i64 = value.trim().parse().ok()?;
    if number < 0 {
        Some(None)
    } else {
        u32::try_from(number).ok().map(Some)
    }
}
