//! The keys of `odyssey.conf`, as of Odyssey 1.5.

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

const RULE: &str = "user";
const STORAGE: &str = "storage";
const LISTEN: &str = "listen";

const MEMORY: Meaning = Nothing("memory and threads need no settings of this kind");
const ON_DIRECTORY: Meaning = Decides(
    "logins by a directory are not imported",
    "auth_type = ldap (or rules in auth_hba), and auth_ldap_options",
);
const CLEANED: Meaning =
    Nothing("what a client sets follows it, and no other client sees it (session_state)");
const REMOVED: Meaning = Nothing("has no effect in Odyssey either");

pub(crate) const KEYS: &[ForeignKey] = &[
    key("", "listen", Section),
    key("", "storage", Section),
    key("", "database", Section),
    key("", "ldap_endpoint", ON_DIRECTORY),
    key(
        "",
        "shared_pool",
        Lost("users share no pool of servers", "max_db_connections"),
    ),
    key(
        "",
        "conn_drop_options",
        Nothing("clients move to the next process (howdah -R)"),
    ),
    key(
        "",
        "online_restart_drop_options",
        Nothing("clients move to the next process (howdah -R)"),
    ),
    key(
        "",
        "soft_oom",
        Lost(
            "no clients are dropped when memory is short",
            "MemoryHigh= of the service",
        ),
    ),
    key(
        "",
        "query_parsing",
        Nothing("texts are read at little cost"),
    ),
    key("", "daemonize", Nothing("howdah -d")),
    key(
        "",
        "sequential_routing",
        Decides(
            "the most specific rule counts",
            "put special rules first in auth_hba",
        ),
    ),
    key(
        "",
        "priority",
        Lost("the process has its usual priority", "Nice= of the service"),
    ),
    key("", "pid_file", Becomes(&["pidfile"], Plain, None)),
    key("", "locks_dir", Nothing("howdah -R needs no locks")),
    key(
        "",
        "unix_socket_dir",
        Becomes(&["unix_socket_dir"], Plain, None),
    ),
    key(
        "",
        "unix_socket_mode",
        Becomes(&["unix_socket_mode"], Plain, None),
    ),
    key(
        "",
        "external_auth_socket_path",
        Nothing("see authentication external"),
    ),
    key("", "enable_online_restart", Nothing("howdah -R FILE")),
    key(
        "",
        "bindwith_reuseport",
        Nothing("howdah -R hands the sockets on"),
    ),
    key("", "graceful_die_on_errors", REMOVED),
    key(
        "",
        "graceful_shutdown_timeout_ms",
        Lost(
            "SIGTERM waits until all clients have left",
            "set TimeoutStopSec= of the service",
        ),
    ),
    key(
        "",
        "max_sigterms_to_die",
        Nothing("the second SIGTERM ends the process"),
    ),
    key("", "log_debug", Read("yes: verbose = 2")),
    key("", "log_config", Nothing("howdah config show FILE")),
    key(
        "",
        "log_query",
        Lost(
            "queries are not logged",
            "slow_query_time = 0.001 logs most",
        ),
    ),
    key(
        "",
        "log_session",
        Becomes(&["log_connections", "log_disconnections"], Flag, None),
    ),
    key("", "log_stats", Becomes(&["log_stats"], Flag, None)),
    key(
        "",
        "log_to_stdout",
        Nothing("the log goes to standard error"),
    ),
    key("", "log_async", Nothing("a slow log holds up nobody")),
    key("", "log_queue_depth", Nothing("a slow log holds up nobody")),
    key("", "log_file", Becomes(&["logfile"], Plain, None)),
    key(
        "",
        "log_format",
        Read("json: log_format = json; else PgBouncer's lines"),
    ),
    key("", "log_syslog", Becomes(&["syslog"], Flag, None)),
    key(
        "",
        "log_syslog_ident",
        Becomes(&["syslog_ident"], Plain, None),
    ),
    key(
        "",
        "log_syslog_facility",
        Becomes(&["syslog_facility"], Plain, None),
    ),
    key(
        "",
        "stats_interval",
        Becomes(&["stats_period"], Seconds, None),
    ),
    key(
        "",
        "log_general_stats_prom",
        Nothing("http_listen_port has all metrics"),
    ),
    key(
        "",
        "log_route_stats_prom",
        Nothing("http_listen_port has all metrics"),
    ),
    key(
        "",
        "promhttp_server_port",
        Becomes(&["http_listen_port"], Plain, None),
    ),
    key("", "workers", Read("workers; auto: a thread for each core")),
    key("", "resolvers", MEMORY),
    key("", "dns_cache_ttl", Becomes(&["dns_max_ttl"], Millis, None)),
    key(
        "",
        "cpu_affinity",
        Lost(
            "threads are not bound to cores",
            "CPUAffinity= of the service",
        ),
    ),
    key("", "readahead", MEMORY),
    key("", "nodelay", Nothing("always on")),
    key(
        "",
        "disable_nolinger",
        Nothing("sockets are closed in order"),
    ),
    key(
        "",
        "keepalive",
        Becomes(&["tcp_keepidle"], Plain, Some("15")),
    ),
    key(
        "",
        "keepalive_keep_interval",
        Becomes(&["tcp_keepintvl"], Plain, Some("5")),
    ),
    key(
        "",
        "keepalive_probes",
        Becomes(&["tcp_keepcnt"], Plain, Some("3")),
    ),
    key(
        "",
        "keepalive_usr_timeout",
        Becomes(&["tcp_user_timeout"], Plain, None),
    ),
    key("", "coroutine_stack_size", MEMORY),
    key("", "system_coroutine_stack_size", MEMORY),
    key("", "cache_coroutine", MEMORY),
    key("", "cache_msg_gc_size", MEMORY),
    key(
        "",
        "client_max",
        Becomes(&["max_client_conn"], Plain, Some("0")),
    ),
    key(
        "",
        "client_max_routing",
        Nothing("max_host_logins limits logins to servers"),
    ),
    key(
        "",
        "server_login_retry",
        Nothing("the first pause is 50 ms and doubles (server_login_retry)"),
    ),
    key(
        "",
        "hba_file",
        Decides(
            "its rules are not imported",
            "auth_type = hba, and its lines in auth_hba or auth_hba_file",
        ),
    ),
    key("", "group_checker_interval", Nothing("see group")),
    key(
        "",
        "backend_connect_timeout_ms",
        Becomes(&["server_connect_timeout"], Millis, Some("30000")),
    ),
    key("", "cancel_timeout_ms", Nothing("cancel_wait_timeout")),
    key(
        "",
        "cancel_queue_timeout_ms",
        Nothing("cancel_wait_timeout"),
    ),
    key(
        "",
        "cancel_max_inflight",
        Nothing("cancel requests have places of their own"),
    ),
    key(
        "",
        "virtual_processing",
        Nothing("PostgreSQL answers SHOW; see howdah.route"),
    ),
    key(
        "",
        "virtual_transaction",
        Nothing("a BEGIN gets its server at once"),
    ),
    key(
        "",
        "availability_zone",
        Lost("hosts have no zones", "weight in [hosts]"),
    ),
    key("", "enable_host_watcher", Nothing("SHOW HOSTS")),
    key(
        "",
        "smart_search_path_enquoting",
        Nothing("search_path is set as the client wrote it"),
    ),
    key("", "pipeline", REMOVED),
    key("", "cache", REMOVED),
    key("", "cache_chunk", REMOVED),
    key("", "packet_read_size", REMOVED),
    key("", "packet_write_queue", REMOVED),
    key(
        LISTEN,
        "host",
        Read("listen_addr, of all blocks; without a host: the unix socket"),
    ),
    key(LISTEN, "port", Read("listen_port, of the first block")),
    key(LISTEN, "backlog", Becomes(&["listen_backlog"], Plain, None)),
    key(
        LISTEN,
        "tls",
        Read("client_tls_sslmode, of the first block that has one"),
    ),
    key(
        LISTEN,
        "tls_ca_file",
        Becomes(&["client_tls_ca_file"], Plain, None),
    ),
    key(
        LISTEN,
        "tls_key_file",
        Becomes(&["client_tls_key_file"], Plain, None),
    ),
    key(
        LISTEN,
        "tls_cert_file",
        Becomes(&["client_tls_cert_file"], Plain, None),
    ),
    key(
        LISTEN,
        "tls_protocols",
        Nothing("client_tls_protocols: TLS 1.2 and newer"),
    ),
    key(LISTEN, "catchup_timeout", Nothing("max_standby_lag")),
    key(
        LISTEN,
        "target_session_attrs",
        Decides(
            "listeners have no role",
            "a database for each role, with target_session_attrs",
        ),
    ),
    key(
        LISTEN,
        "balancing_method",
        Nothing("connections are spread over threads"),
    ),
    key(
        LISTEN,
        "client_login_timeout",
        Becomes(&["client_login_timeout"], Millis, Some("15000")),
    ),
    key(
        LISTEN,
        "storage",
        Decides("listeners have no storage", "the rule's storage counts"),
    ),
    key(LISTEN, "compression", REMOVED),
    key(
        STORAGE,
        "type",
        Read("remote: the hosts of databases; local: the console"),
    ),
    key(STORAGE, "host", Read("host of each database, as HOST:PORT")),
    key(STORAGE, "port", Read("host of each database, as HOST:PORT")),
    key(
        STORAGE,
        "tls",
        Read("sslmode of each database; without: disable"),
    ),
    key(STORAGE, "tls_ca_file", Read("sslrootcert")),
    key(STORAGE, "tls_key_file", Read("sslkey")),
    key(STORAGE, "tls_cert_file", Read("sslcert")),
    key(
        STORAGE,
        "tls_protocols",
        Nothing("server_tls_protocols: TLS 1.2 and newer"),
    ),
    key(STORAGE, "server_max_routing", Nothing("max_host_logins")),
    key(
        STORAGE,
        "endpoints_status_poll_interval",
        Nothing("host_check_interval"),
    ),
    key(STORAGE, "balancing", Nothing("load_balance_hosts")),
    key(
        STORAGE,
        "watchdog",
        Nothing("standbys that lag are used last (max_standby_lag)"),
    ),
    key(
        RULE,
        "authentication",
        Read("auth_type; rules in auth_hba if users differ"),
    ),
    key(RULE, "password", Read("password in secrets.toml")),
    key(
        RULE,
        "auth_common_name",
        Read("default; users with other names are refused (map= in auth_hba)"),
    ),
    key(RULE, "auth_query", Read("auth_query of the database")),
    key(RULE, "auth_query_db", Read("auth_dbname of the database")),
    key(RULE, "auth_query_user", Read("auth_user of the database")),
    key(
        RULE,
        "auth_pam_service",
        Decides(
            "logins by PAM are not imported",
            "a rule in auth_hba: pam pamservice=NAME",
        ),
    ),
    key(
        RULE,
        "auth_module",
        Decides("there are no modules", "another authentication"),
    ),
    key(
        RULE,
        "enable_mdb_iamproxy_auth",
        Decides(
            "logins by tokens are not imported",
            "another authentication",
        ),
    ),
    key(
        RULE,
        "mdb_iamproxy_socket_path",
        Nothing("see enable_mdb_iamproxy_auth"),
    ),
    key(
        RULE,
        "password_passthrough",
        Nothing("servers log in with what the client has shown"),
    ),
    key(
        RULE,
        "role",
        Read("of the console: admin_users, stats_users"),
    ),
    key(
        RULE,
        "client_max",
        Read("max_user_client_connections; of default: max_db_client_connections"),
    ),
    key(
        RULE,
        "client_fwd_error",
        Nothing("clients see PostgreSQL's own error"),
    ),
    key(
        RULE,
        "client_show_id",
        Nothing("messages have no id in them"),
    ),
    key(
        RULE,
        "reserve_session_server_connection",
        Nothing("a server is taken with the first query"),
    ),
    key(RULE, "quantiles", Nothing("metrics have histograms")),
    key(
        RULE,
        "application_name_add_host",
        Read("application_name_add_host, for all"),
    ),
    key(
        RULE,
        "server_drop_on_cached_plan_error",
        Nothing("statements are prepared anew after such an error"),
    ),
    key(
        RULE,
        "server_lifetime",
        Lifted("server_lifetime", Seconds, None),
    ),
    key(RULE, "ldap_endpoint_name", ON_DIRECTORY),
    key(RULE, "ldap_storage_credentials_attr", ON_DIRECTORY),
    key(RULE, "ldap_storage_credentials", ON_DIRECTORY),
    key(
        RULE,
        "maintain_params",
        Nothing("settings follow the client (session_state)"),
    ),
    key(RULE, "pool", Becomes(&["pool_mode"], Plain, None)),
    key(
        RULE,
        "pool_routing",
        Nothing("connections for look-ups are never given to clients"),
    ),
    key(
        RULE,
        "pool_size",
        Read("pool_size (0: no limit); times the number of hosts without roles"),
    ),
    key(
        RULE,
        "min_pool_size",
        Becomes(&["min_pool_size"], Plain, None),
    ),
    key(
        RULE,
        "pool_timeout",
        Becomes(&["query_wait_timeout"], Millis, Some("0")),
    ),
    key(
        RULE,
        "pool_ttl",
        Lifted("server_idle_timeout", Seconds, Some("0")),
    ),
    key(RULE, "pool_discard", CLEANED),
    key(RULE, "pool_smart_discard", CLEANED),
    key(
        RULE,
        "pool_discard_query",
        Lost(
            "servers are not cleaned by a query of yours",
            "server_reset_query, in session mode",
        ),
    ),
    key(
        RULE,
        "pool_cancel",
        Nothing("a query whose client has left is cancelled"),
    ),
    key(
        RULE,
        "pool_rollback",
        Nothing("a transaction whose client has left is rolled back"),
    ),
    key(
        RULE,
        "pool_reset_timeout_ms",
        Nothing("a server that is not clean in time is closed"),
    ),
    key(
        RULE,
        "pool_reserve_prepared_statement",
        Nothing("always on (max_prepared_statements)"),
    ),
    key(
        RULE,
        "pool_pin_on_listen",
        Nothing("LISTEN keeps no server (listen = share)"),
    ),
    key(RULE, "pool_attach_check", Nothing("server_check_delay")),
    key(
        RULE,
        "pool_acquire_fail_fast",
        Nothing("a host that fails is passed over"),
    ),
    key(
        RULE,
        "pool_notice_after_waiting_ms",
        Nothing("query_wait_notify"),
    ),
    key(
        RULE,
        "pool_client_idle_timeout",
        Becomes(&["client_idle_timeout"], Seconds, None),
    ),
    key(
        RULE,
        "pool_idle_in_transaction_timeout",
        Becomes(&["idle_transaction_timeout"], Seconds, None),
    ),
    key(
        RULE,
        "shared_pool",
        Lost("users share no pool of servers", "max_db_connections"),
    ),
    key(RULE, "storage", Read("host of the database")),
    key(RULE, "storage_db", Read("dbname of the database")),
    key(RULE, "storage_user", Read("server_user")),
    key(
        RULE,
        "storage_password",
        Read("server_password in secrets.toml"),
    ),
    key(RULE, "log_debug", Nothing("verbose counts for all")),
    key(
        RULE,
        "log_query",
        Lost(
            "queries are not logged",
            "slow_query_time = 0.001 logs most",
        ),
    ),
    key(
        RULE,
        "target_session_attrs",
        Read("target_session_attrs of the database"),
    ),
    key(RULE, "catchup_timeout", Nothing("max_standby_lag")),
    key(RULE, "catchup_checks", REMOVED),
    key(RULE, "options", Read("parameters")),
    key(RULE, "backend_startup_options", Read("parameters")),
    key(
        RULE,
        "group_query",
        Decides(
            "groups of users are not imported",
            "name the users, or auth_query",
        ),
    ),
    key(RULE, "group_query_db", Nothing("see group_query")),
    key(RULE, "group_query_user", Nothing("see group_query")),
    key(RULE, "keepalive", Nothing("tcp_keepidle counts for all")),
    key(
        RULE,
        "keepalive_keep_interval",
        Nothing("tcp_keepintvl counts for all"),
    ),
    key(
        RULE,
        "keepalive_probes",
        Nothing("tcp_keepcnt counts for all"),
    ),
    key(
        RULE,
        "keepalive_usr_timeout",
        Nothing("tcp_user_timeout counts for all"),
    ),
    key(RULE, "ldap_pool_size", REMOVED),
    key(RULE, "ldap_pool_timeout", REMOVED),
    key(RULE, "ldap_pool_ttl", REMOVED),
];
