//! The keys of `pgcat.toml`, as of PgCat 1.3.0.

use crate::keys::Meaning::{Becomes, Decides, Lifted, Lost, Nothing, Read, Section};
use crate::keys::Unit::{Flag, Millis, Plain, Seconds};
use crate::keys::{ForeignKey, Meaning};

const fn key(section: &'static str, name: &'static str, meaning: Meaning) -> ForeignKey {
    ForeignKey {
        section,
        name,
        meaning,
    }
}

const GENERAL: &str = "general";
const POOL: &str = "pools.*";
const USER: &str = "pools.*.users.*";
const SHARD: &str = "pools.*.shards.*";
const PLUGINS: &str = "plugins";

const NOT_BANNED: Meaning =
    Nothing("no host is banned: one that fails is tried again soon, after others");
const ON_PARSER: Meaning = Nothing("needs no limit here");

pub(crate) const KEYS: &[ForeignKey] = &[
    key("", "general", Section),
    key("", "pools", Section),
    key("", "plugins", Section),
    key(
        GENERAL,
        "host",
        Becomes(&["listen_addr"], Plain, Some("0.0.0.0")),
    ),
    key(
        GENERAL,
        "port",
        Becomes(&["listen_port"], Plain, Some("5432")),
    ),
    key(
        GENERAL,
        "enable_prometheus_exporter",
        Read("true: http_listen_port has /metrics"),
    ),
    key(
        GENERAL,
        "prometheus_exporter_port",
        Read("http_listen_port, if the exporter is on (9930)"),
    ),
    key(
        GENERAL,
        "connect_timeout",
        Becomes(
            &["server_connect_timeout", "query_wait_timeout"],
            Millis,
            Some("1000"),
        ),
    ),
    key(
        GENERAL,
        "idle_timeout",
        Becomes(&["server_idle_timeout"], Millis, None),
    ),
    key(
        GENERAL,
        "server_lifetime",
        Becomes(&["server_lifetime"], Millis, None),
    ),
    key(
        GENERAL,
        "server_round_robin",
        Becomes(&["server_round_robin"], Flag, Some("true")),
    ),
    key(
        GENERAL,
        "tcp_keepalives_idle",
        Becomes(&["tcp_keepidle"], Plain, Some("5")),
    ),
    key(
        GENERAL,
        "tcp_keepalives_count",
        Becomes(&["tcp_keepcnt"], Plain, Some("5")),
    ),
    key(
        GENERAL,
        "tcp_keepalives_interval",
        Becomes(&["tcp_keepintvl"], Plain, Some("5")),
    ),
    key(
        GENERAL,
        "tcp_user_timeout",
        Becomes(&["tcp_user_timeout"], Plain, Some("10000")),
    ),
    key(
        GENERAL,
        "log_client_connections",
        Becomes(&["log_connections"], Flag, Some("false")),
    ),
    key(
        GENERAL,
        "log_client_disconnections",
        Becomes(&["log_disconnections"], Flag, Some("false")),
    ),
    key(
        GENERAL,
        "dns_cache_enabled",
        Nothing("names are always cached, for dns_max_ttl"),
    ),
    key(
        GENERAL,
        "dns_max_ttl",
        Becomes(&["dns_max_ttl"], Seconds, None),
    ),
    key(
        GENERAL,
        "shutdown_timeout",
        Lost(
            "SIGTERM waits until all clients have left",
            "set TimeoutStopSec= of the service",
        ),
    ),
    key(
        GENERAL,
        "healthcheck_timeout",
        Nothing("a server that does not answer its test is replaced"),
    ),
    key(
        GENERAL,
        "healthcheck_delay",
        Becomes(&["server_check_delay"], Millis, None),
    ),
    key(GENERAL, "ban_time", NOT_BANNED),
    key(
        GENERAL,
        "idle_client_in_transaction_timeout",
        Becomes(&["idle_transaction_timeout"], Millis, None),
    ),
    key(
        GENERAL,
        "worker_threads",
        Becomes(&["workers"], Plain, Some("4")),
    ),
    key(
        GENERAL,
        "autoreload",
        Read("reload_on_change, which looks every two seconds"),
    ),
    key(
        GENERAL,
        "tls_certificate",
        Becomes(&["client_tls_cert_file"], Plain, None),
    ),
    key(
        GENERAL,
        "tls_private_key",
        Becomes(&["client_tls_key_file"], Plain, None),
    ),
    key(
        GENERAL,
        "server_tls",
        Read("server_tls_sslmode: prefer, or disable (the default)"),
    ),
    key(
        GENERAL,
        "verify_server_certificate",
        Read("with server_tls: server_tls_sslmode = verify-full, by the system's authorities"),
    ),
    key(
        GENERAL,
        "admin_username",
        Read("admin_users; the console's database is pgbouncer"),
    ),
    key(
        GENERAL,
        "admin_password",
        Read("password of the user in secrets.toml"),
    ),
    key(
        GENERAL,
        "admin_auth_type",
        Read("trust: a rule in auth_hba"),
    ),
    key(
        GENERAL,
        "validate_config",
        Nothing("howdah --check --connect FILE looks at the servers"),
    ),
    key(
        GENERAL,
        "verify_config",
        Nothing("howdah --check --connect FILE looks at the servers"),
    ),
    key(
        GENERAL,
        "auth_query",
        Read("auth_query, with $1 instead of '$1'"),
    ),
    key(
        GENERAL,
        "auth_query_user",
        Becomes(&["auth_user"], Plain, None),
    ),
    key(
        GENERAL,
        "auth_query_password",
        Read("password of auth_user in secrets.toml"),
    ),
    key(POOL, "shards", Section),
    key(POOL, "users", Section),
    key(POOL, "plugins", Section),
    key(
        POOL,
        "pool_mode",
        Becomes(&["pool_mode"], Plain, Some("transaction")),
    ),
    key(
        POOL,
        "load_balancing_mode",
        Read("load_balance_hosts = random; for loc, too: the least busy host has no counterpart"),
    ),
    key(
        POOL,
        "checkout_failure_limit",
        Lost(
            "clients that get no server are not disconnected",
            "they get an error each time",
        ),
    ),
    key(
        POOL,
        "default_role",
        Read("decides which of the servers are in host"),
    ),
    key(
        POOL,
        "query_parser_enabled",
        Read("counts with query_parser_read_write_splitting"),
    ),
    key(POOL, "query_parser_max_length", ON_PARSER),
    key(
        POOL,
        "query_parser_read_write_splitting",
        Read("with several servers: target_session_attrs = primary, read_routing = statements"),
    ),
    key(
        POOL,
        "primary_reads_enabled",
        Read("read_target = any, else prefer-standby"),
    ),
    key(
        POOL,
        "connect_timeout",
        Becomes(&["query_wait_timeout"], Millis, None),
    ),
    key(
        POOL,
        "idle_timeout",
        Lifted("server_idle_timeout", Millis, None),
    ),
    key(
        POOL,
        "server_lifetime",
        Becomes(&["server_lifetime"], Millis, None),
    ),
    key(
        POOL,
        "sharding_function",
        Nothing("has no effect with one shard"),
    ),
    key(
        POOL,
        "automatic_sharding_key",
        Nothing("has no effect with one shard"),
    ),
    key(
        POOL,
        "sharding_key_regex",
        Nothing("has no effect with one shard"),
    ),
    key(
        POOL,
        "shard_id_regex",
        Nothing("has no effect with one shard"),
    ),
    key(
        POOL,
        "regex_search_limit",
        Nothing("has no effect with one shard"),
    ),
    key(
        POOL,
        "default_shard",
        Nothing("has no effect with one shard"),
    ),
    key(
        POOL,
        "no_shard_specified_behavior",
        Nothing("has no effect with one shard"),
    ),
    key(
        POOL,
        "auth_query",
        Read("auth_query, with $1 instead of '$1'"),
    ),
    key(
        POOL,
        "auth_query_user",
        Becomes(&["auth_user"], Plain, None),
    ),
    key(
        POOL,
        "auth_query_password",
        Read("password of auth_user in secrets.toml"),
    ),
    key(
        POOL,
        "cleanup_server_connections",
        Nothing("what a client sets follows it, and no other client sees it (session_state)"),
    ),
    key(
        POOL,
        "log_client_parameter_status_changes",
        Nothing("changes are not logged"),
    ),
    key(
        POOL,
        "prepared_statements_cache_size",
        Read("max_prepared_statements; 0: ours, as statements then work, too"),
    ),
    key(
        POOL,
        "db_activity_based_routing",
        Nothing("reads never go back in time (read_consistency = session)"),
    ),
    key(
        POOL,
        "db_activity_init_delay",
        Nothing("see db_activity_based_routing"),
    ),
    key(
        POOL,
        "db_activity_ttl",
        Nothing("see db_activity_based_routing"),
    ),
    key(
        POOL,
        "table_mutation_cache_ms_ttl",
        Nothing("see db_activity_based_routing"),
    ),
    key(
        USER,
        "username",
        Read("a table [databases.NAME.users.NAME]; users_only keeps others out"),
    ),
    key(USER, "password", Read("password in secrets.toml")),
    key(USER, "auth_type", Read("trust: a rule in auth_hba")),
    key(
        USER,
        "server_username",
        Becomes(&["server_user"], Plain, None),
    ),
    key(
        USER,
        "server_password",
        Becomes(&["server_password"], Plain, None),
    ),
    key(
        USER,
        "pool_size",
        Read("pool_size; times the number of hosts where they have no roles"),
    ),
    key(
        USER,
        "min_pool_size",
        Read("min_pool_size; times the number of hosts, too"),
    ),
    key(USER, "pool_mode", Becomes(&["pool_mode"], Plain, None)),
    key(
        USER,
        "server_lifetime",
        Lost(
            "a user has no lifetime of its own",
            "server_lifetime of the database",
        ),
    ),
    key(
        USER,
        "statement_timeout",
        Becomes(&["query_timeout"], Millis, None),
    ),
    key(
        USER,
        "connect_timeout",
        Becomes(&["query_wait_timeout"], Millis, None),
    ),
    key(
        USER,
        "idle_timeout",
        Lost(
            "a user has no idle timeout of its own",
            "server_idle_timeout counts for all",
        ),
    ),
    key(SHARD, "database", Becomes(&["dbname"], Plain, None)),
    key(SHARD, "servers", Read("host, as HOST:PORT")),
    key(
        SHARD,
        "mirrors",
        Decides(
            "nothing is mirrored: these servers get no copies of the traffic",
            "",
        ),
    ),
    key(
        PLUGINS,
        "prewarmer",
        Read("connect_query: the queries, on each new server"),
    ),
    key(
        PLUGINS,
        "query_logger",
        Lost(
            "queries are not logged",
            "slow_query_time = 0.001 logs most",
        ),
    ),
    key(
        PLUGINS,
        "table_access",
        Decides(
            "clients can reach these tables, unless PostgreSQL forbids it",
            "REVOKE the rights of the users in PostgreSQL",
        ),
    ),
    key(
        PLUGINS,
        "intercept",
        Lost("PostgreSQL answers these queries itself", ""),
    ),
];
