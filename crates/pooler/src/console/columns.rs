//! The columns of each SHOW. Programs rely on their names, order, types and number.
//!
//! A SHOW of PgBouncer has exactly the columns of PgBouncer 1.25.2, and never gets another one.
//! Howdah's own columns are in `SHOW ..._EXTENDED`.

use crate::console::report::Want;

/// A column's name, and a letter for its type: `s` text, `i` int4, `q` int8, `n` numeric, `b` bool,
/// `y` bytea.
pub type ShowColumn = (&'static str, char);

/// The columns of a SHOW.
pub type Columns = &'static [ShowColumn];

impl Show {
    /// The columns of this SHOW.
    pub fn columns(self) -> Columns {
        match self {
            Show::Clients | Show::Servers => &PEER,
            Show::ClientsExtended => CLIENTS_EXTENDED,
            Show::ServersExtended => SERVERS_EXTENDED,
            Show::Holders => HOLDERS,
            Show::Queries => QUERIES,
            Show::Sockets | Show::ActiveSockets => SOCKETS,
            Show::Fds => FDS,
            Show::DnsHosts => &[("hostname", 's'), ("ttl", 'q'), ("addrs", 's')],
            Show::DnsZones => &[("zonename", 's'), ("serial", 'q'), ("count", 'i')],
            Show::Mem => MEM,
            Show::Config => &[
                ("key", 's'),
                ("value", 's'),
                ("default", 's'),
                ("changeable", 's'),
            ],
            Show::Databases => DATABASES,
            Show::Lists => &[("list", 's'), ("items", 'i')],
            Show::Peers => &[
                ("peer_id", 'i'),
                ("host", 's'),
                ("port", 'i'),
                ("pool_size", 'i'),
            ],
            Show::PeerPools => PEER_POOLS,
            Show::Pools => &POOLS,
            Show::PoolsExtended => POOLS_EXTENDED,
            Show::Secrets => &[
                ("source", 's'),
                ("used_by", 's'),
                ("age", 'q'),
                ("expires", 'q'),
                ("generation", 'q'),
                ("logins", 'q'),
                ("last_error", 's'),
            ],
            Show::Settings => &[
                ("name", 's'),
                ("entry", 's'),
                ("value", 's'),
                ("default", 's'),
                ("place", 's'),
                ("changeable", 's'),
            ],
            Show::State => &[("key", 's'), ("value", 's')],
            Show::Stats => STATS,
            Show::StatsAverages => STATS_AVERAGES,
            Show::StatsTotals => STATS_TOTALS,
            Show::Tls => TLS,
            Show::Totals => &[("name", 's'), ("value", 'n')],
            Show::Users => USERS,
            Show::Verdict => &[("database", 's'), ("user", 's'), ("verdict", 's')],
            Show::Version => &[("version", 's')],
            Show::Hosts => HOSTS,
            Show::Shards => SHARDS,
            Show::ShardChecks => &[
                ("database", 's'),
                ("subject", 's'),
                ("closed", 's'),
                ("found", 's'),
            ],
            Show::ShardRefusals => SHARD_REFUSALS,
            Show::ShardTables => SHARD_TABLES,
            Show::Workers => WORKERS,
        }
    }
}

/// The names of [`Stats::columns`] in SHOW TOTALS.
pub const TOTALS: [&str; 11] = [
    "server_assignment_count",
    "xact_count",
    "query_count",
    "client_bytes",
    "server_bytes",
    "xact_time",
    "query_time",
    "wait_time",
    "ps_client_parse_count",
    "ps_server_parse_count",
    "ps_bind_count",
];

const TLS: Columns = &[
    ("side", 's'),
    ("sslmode", 's'),
    ("certificate", 's'),
    ("expires", 's'),
    ("days_left", 'i'),
    ("handshakes", 'n'),
    ("resumed", 'n'),
    ("failed", 'n'),
];

const WORKERS: Columns = &[
    ("worker", 'i'),
    ("clients", 'i'),
    ("servers", 'i'),
    ("xact_count", 'n'),
    ("lends", 'n'),
    ("pools", 'i'),
    ("moves_in", 'n'),
    ("moves_out", 'n'),
    ("busy_percent", 'i'),
    ("cpu_percent", 'i'),
    ("run_delay_percent", 'i'),
    ("evictions", 'n'),
    ("mails", 'n'),
];

const HOSTS: Columns = &[
    ("host", 's'),
    ("port", 'i'),
    ("addr", 's'),
    ("role", 's'),
    ("state", 's'),
    ("why", 's'),
    ("since", 'i'),
    ("weight", 'i'),
    ("timeline", 'i'),
    ("lsn", 's'),
    ("lag_bytes", 'i'),
    ("lag_ms", 'i'),
    ("reads", 's'),
    ("servers", 'i'),
    ("active", 'i'),
    ("logins", 'i'),
    ("max_servers", 'i'),
    ("max_logins", 'i'),
    ("checkouts", 'i'),
    ("check_us", 'i'),
];

const SHARDS: Columns = &[
    ("database", 's'),
    ("shard", 's'),
    ("host", 's'),
    ("reachable", 's'),
    ("clients", 'i'),
    ("servers", 'i'),
    ("statements", 'n'),
    ("catalogue_age", 'i'),
    ("catalogue_failures", 'n'),
    ("error", 's'),
];

const SHARD_REFUSALS: Columns = &[
    ("database", 's'),
    ("refused", 's'),
    ("count", 'n'),
    ("last", 's'),
    ("reason", 's'),
    ("sqlstate", 's'),
    ("message", 's'),
    ("detail", 's'),
    ("hint", 's'),
    ("fingerprint", 's'),
    ("query", 's'),
];

const SHARD_TABLES: Columns = &[
    ("database", 's'),
    ("table", 's'),
    ("line", 's'),
    ("place", 's'),
    ("key", 's'),
    ("type", 's'),
    ("state", 's'),
    ("why", 's'),
];

/// The columns of SHARD_SQL.
pub const SHARD_SQL: Columns = &[("shard", 's'), ("subject", 's'), ("sql", 's')];

/// The columns of ROUTE.
pub const ROUTE: Columns = &[
    ("shard", 's'),
    ("reason", 's'),
    ("sqlstate", 's'),
    ("message", 's'),
    ("detail", 's'),
    ("hint", 's'),
];

const FDS: Columns = &[
    ("fd", 'i'),
    ("task", 's'),
    ("user", 's'),
    ("database", 's'),
    ("addr", 's'),
    ("port", 'i'),
    ("cancel", 'q'),
    ("link", 'i'),
    ("client_encoding", 's'),
    ("std_strings", 's'),
    ("datestyle", 's'),
    ("timezone", 's'),
    ("password", 's'),
    ("scram_client_key", 'y'),
    ("scram_server_key", 'y'),
];

/// The columns of SHOW CLIENTS and SERVERS, and the first ones of SHOW SOCKETS.
pub(super) const PEER: [ShowColumn; 21] = [
    ("type", 's'),
    ("user", 's'),
    ("database", 's'),
    ("replication", 's'),
    ("state", 's'),
    ("addr", 's'),
    ("port", 'i'),
    ("local_addr", 's'),
    ("local_port", 'i'),
    ("connect_time", 's'),
    ("request_time", 's'),
    ("wait", 'i'),
    ("wait_us", 'i'),
    ("close_needed", 'i'),
    ("ptr", 's'),
    ("link", 's'),
    ("remote_pid", 'i'),
    ("tls", 's'),
    ("application_name", 's'),
    ("prepared_statements", 'i'),
    ("id", 'i'),
];

/// The first columns, followed by more.
const fn joined<const N: usize>(first: &[ShowColumn], more: &[ShowColumn]) -> [ShowColumn; N] {
    let mut all = [("", 's'); N];
    let mut at = 0;
    while at < N {
        all[at] = if at < first.len() {
            first[at]
        } else {
            more[at - first.len()]
        };
        at += 1;
    }
    all
}

/// The columns of SHOW CLIENTS, then: why a client waits, its place in the pool's queue, and why and
/// since when it keeps a server between transactions.
const CLIENTS_EXTENDED: Columns = &joined::<25>(
    &PEER,
    &[
        ("wait_reason", 's'),
        ("wait_place", 'i'),
        ("pin_reason", 's'),
        ("pinned_since", 's'),
    ],
);

const QUERIES: Columns = &[
    ("database", 's'),
    ("user", 's'),
    ("calls", 'n'),
    ("errors", 'n'),
    ("rows", 'n'),
    ("total_us", 'n'),
    ("mean_us", 'n'),
    ("p99_us", 'n'),
    ("max_us", 'n'),
    ("wait_us", 'n'),
    ("fingerprint", 's'),
    ("query", 's'),
];

const HOLDERS: Columns = &[
    ("database", 's'),
    ("user", 's'),
    ("state", 's'),
    ("held_us", 'q'),
    ("state_us", 'q'),
    ("client_id", 'q'),
    ("client_addr", 's'),
    ("application_name", 's'),
    ("server_id", 'q'),
    ("remote_pid", 'i'),
    ("kept_for", 's'),
    ("query", 's'),
];

/// The columns of SHOW SERVERS, then: why and since when the client keeps this server between
/// transactions.
const SERVERS_EXTENDED: Columns =
    &joined::<23>(&PEER, &[("pin_reason", 's'), ("pinned_since", 's')]);

const SOCKETS: Columns = &joined::<28>(
    &PEER,
    &[
        ("recv_pos", 'i'),
        ("pkt_pos", 'i'),
        ("pkt_remain", 'i'),
        ("send_pos", 'i'),
        ("send_remain", 'i'),
        ("pkt_avail", 'i'),
        ("send_avail", 'i'),
    ],
);

const MEM: Columns = &[
    ("name", 's'),
    ("size", 'i'),
    ("used", 'i'),
    ("free", 'i'),
    ("memtotal", 'i'),
];

const DATABASES: Columns = &[
    ("name", 's'),
    ("host", 's'),
    ("port", 'i'),
    ("database", 's'),
    ("force_user", 's'),
    ("pool_size", 'i'),
    ("min_pool_size", 'i'),
    ("reserve_pool_size", 'i'),
    ("server_lifetime", 'i'),
    ("pool_mode", 's'),
    ("load_balance_hosts", 's'),
    ("max_connections", 'i'),
    ("current_connections", 'i'),
    ("max_client_connections", 'i'),
    ("current_client_connections", 'i'),
    ("paused", 'i'),
    ("disabled", 'i'),
];

const PEER_POOLS: Columns = &[
    ("peer_id", 'i'),
    ("cl_active_cancel_req", 'i'),
    ("cl_waiting_cancel_req", 'i'),
    ("sv_active_cancel", 'i'),
    ("sv_login", 'i'),
];

const POOLS: [ShowColumn; 17] = [
    ("database", 's'),
    ("user", 's'),
    ("cl_active", 'i'),
    ("cl_waiting", 'i'),
    ("cl_active_cancel_req", 'i'),
    ("cl_waiting_cancel_req", 'i'),
    ("sv_active", 'i'),
    ("sv_active_cancel", 'i'),
    ("sv_being_canceled", 'i'),
    ("sv_idle", 'i'),
    ("sv_used", 'i'),
    ("sv_tested", 'i'),
    ("sv_login", 'i'),
    ("maxwait", 'i'),
    ("maxwait_us", 'i'),
    ("pool_mode", 's'),
    ("load_balance_hosts", 's'),
];

/// The columns of SHOW POOLS, then: servers that listen for all clients, servers that clients keep
/// between transactions, how often a client began to keep one, how often a server had state that
/// no text had shown, active servers that execute something or whose clients are idle in a
/// transaction, the sum of the waits that are not over, the age of the oldest transaction, active
/// servers whose clients have them between transactions, and how many waits no server ended.
const POOLS_EXTENDED: Columns = &joined::<27>(
    &POOLS,
    &[
        ("sv_listening", 'i'),
        ("sv_pinned", 'i'),
        ("pins", 'n'),
        ("unseen_state", 'n'),
        ("sv_working", 'i'),
        ("sv_in_transaction", 'i'),
        ("waits_us", 'q'),
        ("oldest_transaction_us", 'q'),
        ("sv_kept", 'i'),
        ("waits_in_vain", 'q'),
    ],
);

const USERS: Columns = &[
    ("name", 's'),
    ("pool_size", 's'),
    ("reserve_pool_size", 's'),
    ("pool_mode", 's'),
    ("max_user_connections", 'i'),
    ("current_connections", 'i'),
    ("max_user_client_connections", 'i'),
    ("current_client_connections", 'i'),
];

const STATS: Columns = &[
    ("database", 's'),
    ("total_server_assignment_count", 'n'),
    ("total_xact_count", 'n'),
    ("total_query_count", 'n'),
    ("total_received", 'n'),
    ("total_sent", 'n'),
    ("total_xact_time", 'n'),
    ("total_query_time", 'n'),
    ("total_wait_time", 'n'),
    ("total_client_parse_count", 'n'),
    ("total_server_parse_count", 'n'),
    ("total_bind_count", 'n'),
    ("avg_server_assignment_count", 'n'),
    ("avg_xact_count", 'n'),
    ("avg_query_count", 'n'),
    ("avg_recv", 'n'),
    ("avg_sent", 'n'),
    ("avg_xact_time", 'n'),
    ("avg_query_time", 'n'),
    ("avg_wait_time", 'n'),
    ("avg_client_parse_count", 'n'),
    ("avg_server_parse_count", 'n'),
    ("avg_bind_count", 'n'),
];

const STATS_TOTALS: Columns = &[
    ("database", 's'),
    ("server_assignment_count", 'n'),
    ("xact_count", 'n'),
    ("query_count", 'n'),
    ("bytes_received", 'n'),
    ("bytes_sent", 'n'),
    ("xact_time", 'n'),
    ("query_time", 'n'),
    ("wait_time", 'n'),
    ("client_parse_count", 'n'),
    ("server_parse_count", 'n'),
    ("bind_count", 'n'),
];

const STATS_AVERAGES: Columns = &[
    ("database", 's'),
    ("server_assignment_count", 'n'),
    ("xact_count", 'n'),
    ("query_count", 'n'),
    ("bytes_received", 'n'),
    ("bytes_sent", 'n'),
    ("xact_time", 'n'),
    ("query_time", 'n'),
    ("wait_time", 'n'),
    ("avg_client_parse_count", 'n'),
    ("avg_server_parse_count", 'n'),
    ("avg_bind_count", 'n'),
];

/// The kinds of SHOW.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Show {
    /// Clients and servers that are active.
    ActiveSockets,
    /// Clients.
    Clients,
    /// Clients, with Howdah's columns.
    ClientsExtended,
    /// Settings.
    Config,
    /// Databases.
    Databases,
    /// Host names that were looked up.
    DnsHosts,
    /// The zones of these names.
    DnsZones,
    /// Sockets, in the form that PgBouncer's successor reads.
    Fds,
    /// The clients that have servers, and for how long.
    Holders,
    /// Counts of each kind of object.
    Lists,
    /// The memory of tables.
    Mem,
    /// Other poolers (`[peers]`).
    Peers,
    /// Connections to other poolers, by pooler.
    PeerPools,
    /// Pools.
    Pools,
    /// Pools, with Howdah's columns.
    PoolsExtended,
    /// The queries that take the most.
    Queries,
    /// Where secrets come from.
    Secrets,
    /// Servers.
    Servers,
    /// Servers, with Howdah's columns.
    ServersExtended,
    /// Settings of all sections, and where they stand.
    Settings,
    /// The shards of sharded databases.
    Shards,
    /// What differs between shards, and what holds within one only.
    ShardChecks,
    /// The texts that were refused, or would be with several shards.
    ShardRefusals,
    /// The tables of sharded databases, and where their rows are.
    ShardTables,
    /// Clients and servers.
    Sockets,
    /// Whether the process is paused.
    State,
    /// Counts and averages of databases.
    Stats,
    /// Averages of databases.
    StatsAverages,
    /// Counts of databases.
    StatsTotals,
    /// TLS of clients and of servers.
    Tls,
    /// Counts and averages of everything.
    Totals,
    /// Users.
    Users,
    /// What is wrong, and what would help.
    Verdict,
    /// The version.
    Version,
    /// The hosts of placed databases: what they are, and whether they can be used.
    Hosts,
    /// The clients, servers and load of each worker.
    Workers,
}

impl Show {
    /// The SHOW with this name, in lower case.
    pub fn named(name: &str) -> Option<Show> {
        Some(match name {
            "active_sockets" => Show::ActiveSockets,
            "clients" => Show::Clients,
            "clients_extended" => Show::ClientsExtended,
            "config" => Show::Config,
            "databases" => Show::Databases,
            "dns_hosts" => Show::DnsHosts,
            "dns_zones" => Show::DnsZones,
            "fds" => Show::Fds,
            "holders" => Show::Holders,
            "hosts" => Show::Hosts,
            "lists" => Show::Lists,
            "mem" => Show::Mem,
            "peers" => Show::Peers,
            "peer_pools" => Show::PeerPools,
            "pools" => Show::Pools,
            "pools_extended" => Show::PoolsExtended,
            "queries" => Show::Queries,
            "secrets" => Show::Secrets,
            "servers" => Show::Servers,
            "servers_extended" => Show::ServersExtended,
            "settings" => Show::Settings,
            "shards" => Show::Shards,
            "shard_checks" => Show::ShardChecks,
            "shard_refusals" => Show::ShardRefusals,
            "shard_tables" => Show::ShardTables,
            "sockets" => Show::Sockets,
            "state" => Show::State,
            "stats" => Show::Stats,
            "stats_averages" => Show::StatsAverages,
            "stats_totals" => Show::StatsTotals,
            "tls" => Show::Tls,
            "totals" => Show::Totals,
            "users" => Show::Users,
            "verdict" => Show::Verdict,
            "version" => Show::Version,
            "workers" => Show::Workers,
            _ => return None,
        })
    }

    /// The question that the workers must answer.
    pub fn want(self) -> Option<Want> {
        match self {
            Show::Clients | Show::ClientsExtended => Some(Want::Clients),
            Show::Servers | Show::ServersExtended => Some(Want::Servers),
            Show::Sockets | Show::ActiveSockets => Some(Want::Sockets),
            Show::Fds => Some(Want::Fds),
            Show::Holders => Some(Want::Holders),
            Show::Queries => Some(Want::Queries),
            Show::Verdict => Some(Want::Metrics),
            Show::ShardChecks | Show::ShardRefusals | Show::ShardTables => Some(Want::Shards),
            Show::Config
            | Show::DnsHosts
            | Show::DnsZones
            | Show::Peers
            | Show::Secrets
            | Show::Settings
            | Show::State
            | Show::Version => None,
            _ => Some(Want::Holdings),
        }
    }
}
