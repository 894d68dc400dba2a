//! The keys of `pg_doorman.toml` and `pg_doorman.yaml`, as of PgDoorman 3.10.

use crate::keys::Meaning::{Becomes, Decides, Lifted, Lost, Nothing, Read, Section};
use crate::keys::Unit::{Duration, DurationAsMillis, Flag, Plain, Size, Word};
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
const QUERY: &str = "pools.*.auth_query";
const WEB: &str = "web";

const MEMORY: Meaning = Nothing("memory and threads need no settings of this kind");
const SCALING: Meaning = Nothing("servers are opened as clients wait for them");
const REMOVED: Meaning = Nothing("has no effect in PgDoorman either");
const FAILOVER: Meaning = Decides(
    "there is no fallback by Patroni's API",
    "name all members in host, with target_session_attrs = \"primary\": a promotion is followed at once",
);
const OF_FAILOVER: Meaning = Nothing("see patroni_api_urls");
const SIGN_ON: Meaning = Lost("the page has no single sign-on", "http_token");
const OF_CACHE: Meaning = Nothing("auth_query_cache");

pub(crate) const KEYS: &[ForeignKey] = &[
    key("", "general", Section),
    key("", "pools", Section),
    key("", "web", Section),
    key("", "prometheus", Section),
    key("", "include", Nothing("its files were read")),
    key(
        "",
        "talos",
        Decides(
            "logins by Talos's tokens are not imported",
            "passwords, or auth_query",
        ),
    ),
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
    key(GENERAL, "backlog", Read("listen_backlog, if it is not 0")),
    key(
        GENERAL,
        "max_connections",
        Becomes(&["max_client_conn"], Plain, Some("8192")),
    ),
    key(
        GENERAL,
        "max_concurrent_creates",
        Nothing("max_host_logins"),
    ),
    key(
        GENERAL,
        "tls_mode",
        Read("client_tls_sslmode, with a certificate (allow)"),
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
        "tls_ca_cert",
        Becomes(&["client_tls_ca_file"], Plain, None),
    ),
    key(
        GENERAL,
        "tls_rate_limit_per_second",
        Nothing("handshakes at once are bounded"),
    ),
    key(
        GENERAL,
        "daemon_pid_file",
        Becomes(&["pidfile"], Plain, None),
    ),
    key(
        GENERAL,
        "syslog_prog_name",
        Read("syslog = true, syslog_ident"),
    ),
    key(
        GENERAL,
        "log_client_connections",
        Becomes(&["log_connections"], Flag, None),
    ),
    key(
        GENERAL,
        "log_client_disconnections",
        Becomes(&["log_disconnections"], Flag, None),
    ),
    key(
        GENERAL,
        "worker_threads",
        Becomes(&["workers"], Plain, Some("4")),
    ),
    key(
        GENERAL,
        "worker_cpu_affinity_pinning",
        Lost(
            "threads are not bound to cores",
            "CPUAffinity= of the service",
        ),
    ),
    key(GENERAL, "tokio_global_queue_interval", MEMORY),
    key(GENERAL, "tokio_event_interval", MEMORY),
    key(GENERAL, "worker_stack_size", MEMORY),
    key(GENERAL, "max_blocking_threads", MEMORY),
    key(
        GENERAL,
        "connect_timeout",
        Becomes(&["server_connect_timeout"], Duration, Some("3s")),
    ),
    key(
        GENERAL,
        "query_wait_timeout",
        Becomes(&["query_wait_timeout"], Duration, Some("5s")),
    ),
    key(
        GENERAL,
        "idle_timeout",
        Becomes(&["server_idle_timeout"], Duration, None),
    ),
    key(
        GENERAL,
        "server_lifetime",
        Becomes(&["server_lifetime"], Duration, Some("20m")),
    ),
    key(
        GENERAL,
        "retain_connections_time",
        Nothing("idle servers are closed when they are due"),
    ),
    key(
        GENERAL,
        "retain_connections_max",
        Nothing("idle servers are closed when they are due"),
    ),
    key(
        GENERAL,
        "server_idle_check_timeout",
        Becomes(&["server_check_delay"], Duration, Some("60s")),
    ),
    key(
        GENERAL,
        "server_round_robin",
        Becomes(&["server_round_robin"], Flag, None),
    ),
    key(
        GENERAL,
        "sync_server_parameters",
        Nothing("settings follow the client (session_state)"),
    ),
    key(
        GENERAL,
        "tcp_so_linger",
        Nothing("sockets are closed in order"),
    ),
    key(GENERAL, "tcp_no_delay", Nothing("always on")),
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
        Becomes(&["tcp_user_timeout"], DurationAsMillis, Some("60s")),
    ),
    key(
        GENERAL,
        "tcp_socket_buffer_size",
        Becomes(&["tcp_socket_buffer"], Size, None),
    ),
    key(GENERAL, "unix_socket_buffer_size", MEMORY),
    key(
        GENERAL,
        "unix_socket_dir",
        Becomes(&["unix_socket_dir"], Plain, Some("")),
    ),
    key(
        GENERAL,
        "unix_socket_mode",
        Becomes(&["unix_socket_mode"], Plain, Some("0600")),
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
        "prepared_statements",
        Nothing("always on (max_prepared_statements)"),
    ),
    key(
        GENERAL,
        "prepared_statements_cache_size",
        Nothing("texts are kept as long as they are used"),
    ),
    key(
        GENERAL,
        "server_prepared_statements_cache_size",
        Becomes(&["max_prepared_statements"], Plain, None),
    ),
    key(GENERAL, "client_anonymous_prepared_cache_size", MEMORY),
    key(GENERAL, "client_prepared_statements_cache_size", MEMORY),
    key(GENERAL, "query_interner_gc_interval_seconds", MEMORY),
    key(GENERAL, "query_interner_anon_idle_ttl_seconds", MEMORY),
    key(
        GENERAL,
        "message_size_to_be_stream",
        Nothing("messages of any size are passed on in parts"),
    ),
    key(
        GENERAL,
        "max_memory_usage",
        Nothing("what clients make a worker keep is bounded (SHOW MEM)"),
    ),
    key(GENERAL, "scaling_warm_pool_ratio", SCALING),
    key(GENERAL, "scaling_fast_retries", SCALING),
    key(GENERAL, "scaling_max_parallel_creates", SCALING),
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
        "proxy_copy_data_timeout",
        Nothing("tcp_user_timeout"),
    ),
    key(
        GENERAL,
        "server_tls_mode",
        Becomes(&["server_tls_sslmode"], Word, Some("allow")),
    ),
    key(
        GENERAL,
        "server_tls_ca_cert",
        Becomes(&["server_tls_ca_file"], Plain, None),
    ),
    key(
        GENERAL,
        "server_tls_certificate",
        Becomes(&["server_tls_cert_file"], Plain, None),
    ),
    key(
        GENERAL,
        "server_tls_private_key",
        Becomes(&["server_tls_key_file"], Plain, None),
    ),
    key(GENERAL, "hba", Read("auth_hba: rules for these addresses")),
    key(GENERAL, "pg_hba", Read("auth_hba, or auth_hba_file")),
    key(
        GENERAL,
        "pooler_check_query",
        Nothing("the empty query is answered without a server"),
    ),
    key(
        GENERAL,
        "startup_parameters",
        Read("parameters of each database"),
    ),
    key(GENERAL, "patroni_api_urls", FAILOVER),
    key(GENERAL, "fallback_cooldown", OF_FAILOVER),
    key(GENERAL, "patroni_api_timeout", OF_FAILOVER),
    key(GENERAL, "fallback_connect_timeout", OF_FAILOVER),
    key(GENERAL, "fallback_lifetime", OF_FAILOVER),
    key(GENERAL, "virtual_pool_count", REMOVED),
    key(GENERAL, "server_tls", REMOVED),
    key(GENERAL, "verify_server_certificate", REMOVED),
    key(GENERAL, "pooler_check_query_request_bytes", REMOVED),
    key(WEB, "enabled", Read("true: http_listen_port")),
    key(WEB, "host", Read("http_listen_addr")),
    key(WEB, "port", Read("http_listen_port")),
    key(
        WEB,
        "ui",
        Lost(
            "the page is not served",
            "http_page = true, with http_token",
        ),
    ),
    key(WEB, "ui_anonymous", Nothing("see ui")),
    key(WEB, "log_tap_max_entries", Nothing("the page has no log")),
    key(WEB, "sso_enabled", SIGN_ON),
    key(WEB, "sso_proxy_url", Nothing("see sso_enabled")),
    key(WEB, "sso_public_key_file", Nothing("see sso_enabled")),
    key(WEB, "sso_audience", Nothing("see sso_enabled")),
    key(WEB, "sso_allowed_users", Nothing("see sso_enabled")),
    key(WEB, "sso_groups_claim", Nothing("see sso_enabled")),
    key(WEB, "sso_admin_groups", Nothing("see sso_enabled")),
    key(WEB, "sso_require_https", Nothing("see sso_enabled")),
    key(WEB, "trusted_proxies", Nothing("see sso_enabled")),
    key(POOL, "users", Section),
    key(POOL, "auth_query", Section),
    key(
        POOL,
        "pool_mode",
        Becomes(&["pool_mode"], Word, Some("transaction")),
    ),
    key(
        POOL,
        "connect_timeout",
        Lost("the timeout is global", "server_connect_timeout"),
    ),
    key(
        POOL,
        "idle_timeout",
        Lifted("server_idle_timeout", Duration, None),
    ),
    key(
        POOL,
        "server_lifetime",
        Becomes(&["server_lifetime"], Duration, None),
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
        "application_name",
        Becomes(&["application_name"], Plain, None),
    ),
    key(POOL, "server_host", Read("host (127.0.0.1), as HOST:PORT")),
    key(POOL, "server_port", Read("host, as HOST:PORT")),
    key(POOL, "server_database", Becomes(&["dbname"], Plain, None)),
    key(
        POOL,
        "prepared_statements_cache_size",
        Nothing("texts are kept as long as they are used"),
    ),
    key(
        POOL,
        "server_prepared_statements_cache_size",
        Lifted("max_prepared_statements", Plain, None),
    ),
    key(POOL, "scaling_warm_pool_ratio", SCALING),
    key(POOL, "scaling_fast_retries", SCALING),
    key(
        POOL,
        "max_db_connections",
        Becomes(&["max_db_connections"], Plain, None),
    ),
    key(
        POOL,
        "min_connection_lifetime",
        Nothing("the idlest server of another pool is closed first"),
    ),
    key(
        POOL,
        "reserve_pool_size",
        Becomes(&["reserve_pool_size"], Plain, None),
    ),
    key(
        POOL,
        "reserve_pool_timeout",
        Lifted("reserve_pool_timeout", Duration, None),
    ),
    key(
        POOL,
        "min_guaranteed_pool_size",
        Nothing("no pool starves beside a busy one"),
    ),
    key(POOL, "patroni_api_urls", FAILOVER),
    key(POOL, "patroni_api_timeout", OF_FAILOVER),
    key(POOL, "fallback_cooldown", OF_FAILOVER),
    key(POOL, "fallback_connect_timeout", OF_FAILOVER),
    key(POOL, "fallback_lifetime", OF_FAILOVER),
    key(POOL, "server_tls_mode", Becomes(&["sslmode"], Word, None)),
    key(
        POOL,
        "server_tls_ca_cert",
        Becomes(&["sslrootcert"], Plain, None),
    ),
    key(
        POOL,
        "server_tls_certificate",
        Becomes(&["sslcert"], Plain, None),
    ),
    key(
        POOL,
        "server_tls_private_key",
        Becomes(&["sslkey"], Plain, None),
    ),
    key(POOL, "startup_parameters", Read("parameters")),
    key(
        USER,
        "username",
        Read("a table [databases.NAME.users.NAME]; users_only keeps others out"),
    ),
    key(
        USER,
        "password",
        Read("password in secrets.toml; a key for tokens has no counterpart"),
    ),
    key(
        USER,
        "pool_size",
        Becomes(&["pool_size"], Plain, Some("40")),
    ),
    key(
        USER,
        "min_pool_size",
        Becomes(&["min_pool_size"], Plain, None),
    ),
    key(USER, "pool_mode", Becomes(&["pool_mode"], Word, None)),
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
        "auth_pam_service",
        Decides(
            "logins by PAM are not imported",
            "a rule in auth_hba: pam pamservice=NAME",
        ),
    ),
    key(QUERY, "query", Becomes(&["auth_query"], Plain, None)),
    key(QUERY, "user", Becomes(&["auth_user"], Plain, None)),
    key(
        QUERY,
        "password",
        Read("password of auth_user in secrets.toml"),
    ),
    key(QUERY, "database", Becomes(&["auth_dbname"], Plain, None)),
    key(
        QUERY,
        "workers",
        Nothing("look-ups have connections of their own"),
    ),
    key(QUERY, "server_user", Becomes(&["server_user"], Plain, None)),
    key(
        QUERY,
        "server_password",
        Becomes(&["server_password"], Plain, None),
    ),
    key(
        QUERY,
        "pool_size",
        Becomes(&["pool_size"], Plain, Some("40")),
    ),
    key(
        QUERY,
        "min_pool_size",
        Becomes(&["min_pool_size"], Plain, None),
    ),
    key(
        QUERY,
        "cache_ttl",
        Lifted("auth_query_cache", Duration, Some("1h")),
    ),
    key(QUERY, "cache_failure_ttl", OF_CACHE),
    key(QUERY, "min_interval", OF_CACHE),
];
