//! The keys of `pgdog.toml` and `users.toml`, as PgDog's documentation has them in August 2026.

use crate::keys::Meaning::{Becomes, Decides, Lifted, Lost, Nothing, Read, Section, Sharding};
use crate::keys::Unit::{Flag, Millis, MillisAsSeconds, Plain};
use crate::keys::{ForeignKey, Meaning};

const fn key(section: &'static str, name: &'static str, meaning: Meaning) -> ForeignKey {
    ForeignKey {
        section,
        name,
        meaning,
    }
}

const GENERAL: &str = "general";
const DATABASE: &str = "databases";
const USER: &str = "users";
const VAULT: &str = "vault";

const CHECKED: Meaning =
    Nothing("idle servers are tested before they are used (server_check_delay)");
const NOT_BANNED: Meaning =
    Nothing("no host is banned: one that fails is tried again soon, after others");
const ASKED: Meaning = Nothing("hosts are asked every host_check_interval");
const PARSED: Meaning = Nothing("texts are read at little cost, whatever their number");
const PEERS: Meaning = Lost(
    "processes do not find each other by multicast",
    "[peers] names them",
);

pub(crate) const KEYS: &[ForeignKey] = &[
    key("", "general", Section),
    key("", "databases", Section),
    key("", "users", Section),
    key("", "admin", Section),
    key("", "tcp", Section),
    key("", "memory", Nothing("buffers have sizes of their own")),
    key("", "rewrite", Sharding),
    key(
        "",
        "multi_tenant",
        Decides(
            "queries without the tenant's column are not refused",
            "row security in PostgreSQL (CREATE POLICY)",
        ),
    ),
    key("", "plugins", Decides("there are no plugins", "")),
    key("", "sharded_tables", Sharding),
    key("", "sharded_mappings", Sharding),
    key("", "sharded_schemas", Sharding),
    key("", "omnisharded_tables", Sharding),
    key(
        "",
        "mirroring",
        Decides(
            "nothing is mirrored: the destination gets no copies of the traffic",
            "",
        ),
    ),
    key("", "query_parsers", PARSED),
    key(
        "",
        "replica_lag",
        Lost("the limit is global", "max_standby_lag, in seconds"),
    ),
    key("", "replication", Sharding),
    key(
        "",
        "otel",
        Lost(
            "metrics are not pushed",
            "http_listen_port has them; trace_endpoint sends traces",
        ),
    ),
    key("", "vault", Section),
    key(VAULT, "url", Becomes(&["vault_address"], Plain, None)),
    key(
        VAULT,
        "namespace",
        Becomes(&["vault_namespace"], Plain, None),
    ),
    key(
        VAULT,
        "auth_method",
        Nothing("the role says how Howdah logs in"),
    ),
    key(
        VAULT,
        "auth_mount",
        Becomes(&["vault_login_path"], Plain, None),
    ),
    key(
        VAULT,
        "kubernetes_role",
        Becomes(&["vault_kubernetes_role"], Plain, None),
    ),
    key(
        VAULT,
        "kubernetes_jwt_path",
        Becomes(&["vault_kubernetes_token_file"], Plain, None),
    ),
    key(
        VAULT,
        "approle_role_id",
        Becomes(&["vault_role_id"], Plain, None),
    ),
    key(
        VAULT,
        "approle_secret_id_file",
        Becomes(&["vault_secret_id_file"], Plain, None),
    ),
    key(
        VAULT,
        "client_token_ttl",
        Nothing("Vault's role says how long tokens live"),
    ),
    key("", "control", Lost("there is no control plane", "")),
    key(
        "",
        "query_stats",
        Lost(
            "there are no plans of queries",
            "top_queries, slow_query_time",
        ),
    ),
    key(
        "",
        "qos",
        Lost(
            "queries have no quality of service",
            "max_user_connections, pool_size",
        ),
    ),
    key(
        "",
        "autodiscovery",
        Decides("hosts are not discovered", "name them all in host"),
    ),
    key(
        GENERAL,
        "host",
        Becomes(&["listen_addr"], Plain, Some("0.0.0.0")),
    ),
    key(GENERAL, "port", Becomes(&["listen_port"], Plain, None)),
    key(
        GENERAL,
        "workers",
        Read("workers; 0 is one thread there, and one a core here"),
    ),
    key(
        GENERAL,
        "default_pool_size",
        Becomes(&["default_pool_size"], Plain, Some("10")),
    ),
    key(
        GENERAL,
        "max_pool_size",
        Becomes(&["default_pool_size"], Plain, None),
    ),
    key(
        GENERAL,
        "min_pool_size",
        Becomes(&["min_pool_size"], Plain, Some("1")),
    ),
    key(
        GENERAL,
        "pooler_mode",
        Becomes(&["pool_mode"], Plain, Some("transaction")),
    ),
    key(
        GENERAL,
        "healthcheck_interval",
        Becomes(&["server_check_delay"], Millis, None),
    ),
    key(GENERAL, "idle_healthcheck_interval", CHECKED),
    key(GENERAL, "idle_healthcheck_delay", CHECKED),
    key(GENERAL, "healthcheck_timeout", CHECKED),
    key(
        GENERAL,
        "healthcheck_port",
        Read("http_listen_port has /live and /ready"),
    ),
    key(GENERAL, "require_healthcheck_on_discovery", ASKED),
    key(GENERAL, "ban_timeout", NOT_BANNED),
    key(
        GENERAL,
        "ban_replica_lag",
        Becomes(&["max_standby_lag"], Millis, None),
    ),
    key(
        GENERAL,
        "ban_replica_lag_bytes",
        Lost("lag counts in seconds", "max_standby_lag"),
    ),
    key(
        GENERAL,
        "rollback_timeout",
        Nothing("a server that does not roll back is closed"),
    ),
    key(
        GENERAL,
        "load_balancing_strategy",
        Read("load_balance_hosts: random (the default), round-robin"),
    ),
    key(
        GENERAL,
        "read_write_strategy",
        Read("conservative, as here; aggressive: declare transactions READ ONLY"),
    ),
    key(
        GENERAL,
        "read_write_split",
        Read("read_target: any, standby or prefer-standby; prefer_primary: read_routing = off"),
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
        "tls_client_required",
        Read("client_tls_sslmode: require, else prefer"),
    ),
    key(
        GENERAL,
        "tls_client_ca_certificate",
        Read("client_tls_ca_file, with client_tls_sslmode = verify-ca"),
    ),
    key(
        GENERAL,
        "tls_verify",
        Read("server_tls_sslmode: disable, prefer, verify-ca, verify-full"),
    ),
    key(
        GENERAL,
        "tls_server_ca_certificate",
        Becomes(&["server_tls_ca_file"], Plain, None),
    ),
    key(
        GENERAL,
        "tls_server_certificate",
        Becomes(&["server_tls_cert_file"], Plain, None),
    ),
    key(
        GENERAL,
        "tls_server_private_key",
        Becomes(&["server_tls_key_file"], Plain, None),
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
        "shutdown_termination_timeout",
        Nothing("see shutdown_timeout"),
    ),
    key(GENERAL, "broadcast_address", PEERS),
    key(GENERAL, "broadcast_port", Nothing("see broadcast_address")),
    key(
        GENERAL,
        "query_log",
        Lost(
            "queries are not logged",
            "slow_query_time = 0.001 logs most",
        ),
    ),
    key(
        GENERAL,
        "query_log_stdout",
        Lost(
            "queries are not logged",
            "slow_query_time = 0.001 logs most",
        ),
    ),
    key(GENERAL, "log_min_duration_parse", PARSED),
    key(
        GENERAL,
        "log_query_sample_length",
        Nothing("slow queries are cut at 1 KB"),
    ),
    key(
        GENERAL,
        "query_size_limit",
        Lost(
            "queries have no limit of their own",
            "max_packet_size limits messages",
        ),
    ),
    key(
        GENERAL,
        "query_size_limit_action",
        Nothing("see query_size_limit"),
    ),
    key(GENERAL, "openmetrics_host", Read("http_listen_addr")),
    key(GENERAL, "openmetrics_port", Read("http_listen_port")),
    key(
        GENERAL,
        "openmetrics_namespace",
        Lost("names of metrics begin with howdah_", "docs/metrics.md"),
    ),
    key(
        GENERAL,
        "prepared_statements",
        Read("always on; extended_anonymous: unnamed_statements = share"),
    ),
    key(GENERAL, "query_parser_enabled", PARSED),
    key(
        GENERAL,
        "query_parser",
        Read("off: no reads go to replicas (read_routing = off)"),
    ),
    key(GENERAL, "regex_parser_limit", PARSED),
    key(GENERAL, "query_parser_engine", PARSED),
    key(
        GENERAL,
        "prepared_statements_limit",
        Becomes(&["max_prepared_statements"], Plain, None),
    ),
    key(
        GENERAL,
        "prepared_statements_ttl",
        Nothing("server_lifetime ends them"),
    ),
    key(
        GENERAL,
        "prepared_statements_ttl_jitter",
        Nothing("see prepared_statements_ttl"),
    ),
    key(GENERAL, "query_cache_limit", PARSED),
    key(
        GENERAL,
        "passthrough_auth",
        Decides(
            "users that the files do not name can't log in",
            "auth_user and auth_query ask PostgreSQL for their secrets; then remove users_only",
        ),
    ),
    key(
        GENERAL,
        "connect_timeout",
        Becomes(&["server_connect_timeout"], Millis, Some("5000")),
    ),
    key(
        GENERAL,
        "connect_attempts",
        Nothing("a failed connect is tried again while a client waits"),
    ),
    key(
        GENERAL,
        "connect_attempt_delay",
        Nothing("the first pause is 50 ms (server_login_retry)"),
    ),
    key(
        GENERAL,
        "query_timeout",
        Becomes(&["query_timeout"], Millis, None),
    ),
    key(
        GENERAL,
        "checkout_timeout",
        Becomes(&["query_wait_timeout"], Millis, Some("5000")),
    ),
    key(
        GENERAL,
        "client_login_timeout",
        Becomes(&["client_login_timeout"], Millis, None),
    ),
    key(
        GENERAL,
        "dry_run",
        Nothing("nothing is routed by way of trial"),
    ),
    key(
        GENERAL,
        "idle_timeout",
        Becomes(&["server_idle_timeout"], Millis, Some("60000")),
    ),
    key(
        GENERAL,
        "client_idle_timeout",
        Becomes(&["client_idle_timeout"], Millis, None),
    ),
    key(
        GENERAL,
        "client_idle_in_transaction_timeout",
        Becomes(&["idle_transaction_timeout"], Millis, None),
    ),
    key(
        GENERAL,
        "server_lifetime",
        Becomes(&["server_lifetime"], Millis, Some("86400000")),
    ),
    key(
        GENERAL,
        "server_lifetime_jitter",
        Nothing("servers are replaced when they are free"),
    ),
    key(GENERAL, "mirror_queue", Nothing("see mirroring")),
    key(GENERAL, "mirror_exposure", Nothing("see mirroring")),
    key(GENERAL, "auth_type", Read("auth_type")),
    key(
        GENERAL,
        "cross_shard_disabled",
        Nothing("has no effect with one shard"),
    ),
    key(GENERAL, "dns_ttl", Becomes(&["dns_max_ttl"], Millis, None)),
    key(
        GENERAL,
        "pub_sub_channel_size",
        Nothing("LISTEN works in transaction mode (listen = share)"),
    ),
    key(GENERAL, "log_format", Read("log_format: text or json")),
    key(
        GENERAL,
        "log_level",
        Read("debug: verbose = 1, trace: verbose = 2"),
    ),
    key(
        GENERAL,
        "log_connections",
        Becomes(&["log_connections"], Flag, None),
    ),
    key(
        GENERAL,
        "log_disconnections",
        Becomes(&["log_disconnections"], Flag, None),
    ),
    key(
        GENERAL,
        "log_dedup_window",
        Nothing("floods in the log are bounded"),
    ),
    key(
        GENERAL,
        "log_dedup_threshold",
        Nothing("floods in the log are bounded"),
    ),
    key(
        GENERAL,
        "two_phase_commit*",
        Nothing("has no effect with one shard"),
    ),
    key(
        GENERAL,
        "resharding_*",
        Nothing("has no effect with one shard"),
    ),
    key(
        GENERAL,
        "cutover_*",
        Nothing("has no effect with one shard"),
    ),
    key(
        GENERAL,
        "sharding_lookup_*",
        Nothing("has no effect with one shard"),
    ),
    key(
        GENERAL,
        "canonicalize_type_information",
        Nothing("has no effect with one shard"),
    ),
    key(
        GENERAL,
        "expanded_explain",
        Lost("EXPLAIN does not tell the route", "read_routing_notice"),
    ),
    key(
        GENERAL,
        "stats_period",
        Becomes(&["stats_period"], Millis, None),
    ),
    key(
        GENERAL,
        "connection_recovery",
        Nothing("servers that are left in a request are cleaned or closed"),
    ),
    key(
        GENERAL,
        "client_connection_recovery",
        Nothing("a client whose server is lost gets an error, as with PgBouncer"),
    ),
    key(GENERAL, "lsn_check_interval", ASKED),
    key(GENERAL, "lsn_check_timeout", ASKED),
    key(GENERAL, "lsn_check_delay", ASKED),
    key(
        GENERAL,
        "unique_id_min",
        Nothing("has no effect with one shard"),
    ),
    key(
        GENERAL,
        "unique_id_function",
        Nothing("has no effect with one shard"),
    ),
    key(
        GENERAL,
        "system_catalogs",
        Nothing("has no effect with one shard"),
    ),
    key(
        GENERAL,
        "omnisharded_sticky",
        Nothing("has no effect with one shard"),
    ),
    key(
        GENERAL,
        "reload_schema_on_ddl",
        Nothing("has no effect with one shard"),
    ),
    key(
        GENERAL,
        "load_schema",
        Nothing("has no effect with one shard"),
    ),
    key(
        "admin",
        "name",
        Read("the console's database is pgbouncer, or howdah"),
    ),
    key("admin", "user", Read("admin_users")),
    key(
        "admin",
        "password",
        Read("password of the user in secrets.toml"),
    ),
    key("tcp", "keepalive", Becomes(&["tcp_keepalive"], Flag, None)),
    key(
        "tcp",
        "time",
        Becomes(&["tcp_keepidle"], MillisAsSeconds, None),
    ),
    key(
        "tcp",
        "interval",
        Becomes(&["tcp_keepintvl"], MillisAsSeconds, None),
    ),
    key("tcp", "retries", Becomes(&["tcp_keepcnt"], Plain, None)),
    key(
        "tcp",
        "user_timeout",
        Becomes(&["tcp_user_timeout"], Plain, None),
    ),
    key(
        "tcp",
        "congestion_control",
        Lost(
            "the system's is used",
            "sysctl net.ipv4.tcp_congestion_control",
        ),
    ),
    key(
        DATABASE,
        "name",
        Read("a table [databases.NAME]; entries with one name are its hosts"),
    ),
    key(DATABASE, "host", Read("host, as HOST:PORT")),
    key(DATABASE, "port", Read("host, as HOST:PORT")),
    key(
        DATABASE,
        "role",
        Read(
            "primary with replica, or auto: target_session_attrs = primary, read_routing = statements",
        ),
    ),
    key(DATABASE, "database_name", Becomes(&["dbname"], Plain, None)),
    key(DATABASE, "user", Becomes(&["server_user"], Plain, None)),
    key(
        DATABASE,
        "password",
        Read("server_password in secrets.toml"),
    ),
    key(DATABASE, "shard", Nothing("has no effect with one shard")),
    key(
        DATABASE,
        "pool_size",
        Read("pool_size; times the number of hosts without roles"),
    ),
    key(
        DATABASE,
        "max_pool_size",
        Read("pool_size; times the number of hosts without roles"),
    ),
    key(
        DATABASE,
        "min_pool_size",
        Becomes(&["min_pool_size"], Plain, None),
    ),
    key(
        DATABASE,
        "pooler_mode",
        Becomes(&["pool_mode"], Plain, None),
    ),
    key(
        DATABASE,
        "statement_timeout",
        Read("parameters = { statement_timeout = ... }"),
    ),
    key(
        DATABASE,
        "lock_timeout",
        Read("parameters = { lock_timeout = ... }"),
    ),
    key(
        DATABASE,
        "idle_timeout",
        Lifted("server_idle_timeout", Millis, None),
    ),
    key(
        DATABASE,
        "read_only",
        Read("parameters = { default_transaction_read_only = \"on\" }"),
    ),
    key(
        DATABASE,
        "server_lifetime",
        Becomes(&["server_lifetime"], Millis, None),
    ),
    key(
        DATABASE,
        "server_lifetime_jitter",
        Nothing("servers are replaced when they are free"),
    ),
    key(
        DATABASE,
        "resharding_only",
        Nothing("the entry is hidden from clients there, and left out"),
    ),
    key(DATABASE, "lb_weight", Read("weight in [hosts]")),
    key(
        DATABASE,
        "pool_size_primary",
        Lost("all hosts have the same size", "pool_size"),
    ),
    key(
        DATABASE,
        "pool_size_replica",
        Lost("all hosts have the same size", "pool_size"),
    ),
    key(
        DATABASE,
        "min_pool_size_primary",
        Lost("all hosts have the same size", "min_pool_size"),
    ),
    key(
        DATABASE,
        "min_pool_size_replica",
        Lost("all hosts have the same size", "min_pool_size"),
    ),
    key(
        DATABASE,
        "idle_timeout_primary",
        Lost("the timeout is global", "server_idle_timeout"),
    ),
    key(
        DATABASE,
        "idle_timeout_replica",
        Lost("the timeout is global", "server_idle_timeout"),
    ),
    key(
        USER,
        "name",
        Read("a table [databases.NAME.users.NAME]; users_only keeps others out"),
    ),
    key(USER, "database", Read("the database of that table")),
    key(USER, "databases", Read("a table for each database")),
    key(USER, "all_databases", Read("a table for each database")),
    key(USER, "password", Read("password in secrets.toml")),
    key(
        USER,
        "passwords",
        Read("the first one, if there is no password"),
    ),
    key(
        USER,
        "password_hash",
        Read("password in secrets.toml: a SCRAM secret"),
    ),
    key(
        USER,
        "identity",
        Decides(
            "this certificate is no login",
            "a rule with the method cert in auth_hba",
        ),
    ),
    key(
        USER,
        "tls_client_certificate_required",
        Decides(
            "no certificate is asked for",
            "clientcert=verify-full in auth_hba",
        ),
    ),
    key(
        USER,
        "pool_size",
        Read("pool_size; times the number of hosts without roles"),
    ),
    key(
        USER,
        "max_pool_size",
        Read("pool_size; times the number of hosts without roles"),
    ),
    key(
        USER,
        "min_pool_size",
        Becomes(&["min_pool_size"], Plain, None),
    ),
    key(USER, "pooler_mode", Becomes(&["pool_mode"], Plain, None)),
    key(
        USER,
        "server_user",
        Read("server_user, unless the database has user"),
    ),
    key(
        USER,
        "server_password",
        Read("server_password, unless the database has one"),
    ),
    key(
        USER,
        "server_auth",
        Read(
            "server_password; rds_iam, azure_workload_identity and vault_*: its source aws-rds, azure or vault",
        ),
    ),
    key(
        USER,
        "server_iam_region",
        Read("region of the source aws-rds"),
    ),
    key(USER, "server_vault_path", Read("path of the source vault")),
    key(
        USER,
        "vault_refresh_percent",
        Nothing("leases are renewed at four fifths"),
    ),
    key(
        USER,
        "vault_path",
        Decides(
            "a vault does not check this user's password",
            "password, or auth_query",
        ),
    ),
    key(
        USER,
        "statement_timeout",
        Read("parameters = { statement_timeout = ... }"),
    ),
    key(
        USER,
        "lock_timeout",
        Read("parameters = { lock_timeout = ... }"),
    ),
    key(
        USER,
        "replication_mode",
        Nothing("clients that ask for replication get it"),
    ),
    key(
        USER,
        "replication_sharding",
        Nothing("has no effect with one shard"),
    ),
    key(
        USER,
        "idle_timeout",
        Lost(
            "a user has no idle timeout of its own",
            "server_idle_timeout counts for all",
        ),
    ),
    key(
        USER,
        "read_only",
        Read("parameters = { default_transaction_read_only = \"on\" }"),
    ),
    key(
        USER,
        "schema_admin",
        Nothing("has no effect with one shard"),
    ),
    key(
        USER,
        "cross_shard_disabled",
        Nothing("has no effect with one shard"),
    ),
    key(
        USER,
        "two_phase_commit",
        Nothing("has no effect with one shard"),
    ),
    key(
        USER,
        "two_phase_commit_auto",
        Nothing("has no effect with one shard"),
    ),
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
        "server_lifetime_jitter",
        Nothing("servers are replaced when they are free"),
    ),
];
