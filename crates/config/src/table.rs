//! The one table of settings. Everything else that knows settings is derived from this table: the typed
//! fields, SHOW CONFIG, SET, the reference page, sample files and start-up warnings.

use std::time::Duration;

use howdah_auth::{ChannelBinding, RequireAuth};

use super::value::{
    AuthType, Facility, HttpUrl, IoDriver, Kind, List, Listen, ListenLost, LogFormat, PoolMode,
    PoolSpread, SessionState, Share, SslMode, Value,
};
use crate::ldap::LdapText;

/// A place in which a setting is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// In `[pgbouncer]`.
    Global,
    /// In an entry of `[databases]`.
    Database,
    /// In an entry of `[users]`.
    User,
    /// In an entry of `[peers]`.
    Peer,
}

impl Scope {
    /// The section of the file.
    pub fn section(self) -> &'static str {
        match self {
            Scope::Global => "pgbouncer",
            Scope::Database => "databases",
            Scope::User => "users",
            Scope::Peer => "peers",
        }
    }
}

/// Whether this release supports a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// Supported.
    Built,
    /// Not supported: any value but the default gets a warning. The text says why, or what happens
    /// instead.
    NotYet(&'static str),
    /// Not supported, and ignoring the setting would be unsafe or useless. Any value but the
    /// default and those in `unless` stops the start.
    Stops {
        /// Values that do no harm.
        unless: &'static [&'static str],
        /// Why the other values do harm.
        why: &'static str,
    },
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// The setting's name.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// The default; `None` if "unset" differs from empty.
    pub default: Option<&'static str>,
    /// The places in which the setting is allowed. If it is set in several places, the nearest
    /// wins: user, then database, then global.
    pub scopes: &'static [Scope],
    /// The places in which PgBouncer 1.25.2 accepts the setting. In other places PgBouncer refuses
    /// the file.
    pub known_to_pgbouncer: &'static [Scope],
    /// Whether a reload or SET changes the setting.
    pub reloadable: bool,
    /// Whether the setting is supported.
    pub status: Support,
    /// What the setting does.
    pub prose: &'static str,
    /// The setting's field of [`Globals`]; `None` for settings without a global form.
    pub(super) field: Option<Field>,
}

/// Access to a setting's field of [`Globals`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Assigns a text; false if the text is not of the setting's kind.
    pub(super) assign: fn(&mut Globals, &str) -> bool,
    /// The value as SHOW CONFIG prints it.
    pub(super) show: fn(&Globals) -> Option<String>,
    /// Copies the value from other settings.
    pub(super) copy: fn(&mut Globals, &Globals),
}

macro_rules! default_text {
    (unset) => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}

/// `name: Type = default, scopes, scopes of PgBouncer, reload|fixed, status, prose;`
macro_rules! globals {
    ($($name:ident: $type:ty = $default:tt, $scopes:ident, $known:ident, $reload:ident,
       $status:expr, $prose:literal;)*) => {
        /// The settings of `[pgbouncer]`. A time of zero means "off".
        #[derive(Clone, Debug)]
        pub struct Globals {
            $(#[doc = $prose] pub $name: $type,)*
        }

        /// All global settings, in the order of SHOW CONFIG.
        pub static GLOBAL: &[Setting] = &[$(Setting {
            name: stringify!($name),
            kind: <$type as Value>::KIND,
            default: default_text!($default),
            scopes: $scopes,
            known_to_pgbouncer: $known,
            reloadable: $reload,
            status: $status,
            prose: $prose,
            field: Some(Field {
                assign: |globals, text| match <$type as Value>::read(text) {
                    Some(value) => {
                        globals.$name = value;
                        true
                    }
                    None => false,
                },
                show: |globals| Value::show(&globals.$name),
                copy: |to, from| to.$name.clone_from(&from.$name),
            }),
        },)*];

        impl Default for Globals {
            fn default() -> Globals {
                Globals { $($name: default_value::<$type>(stringify!($name), default_text!($default)),)* }
            }
        }
    };
}

/// This never panics: a test reads every default.
fn default_value<V: Value>(name: &str, text: Option<&str>) -> V {
    text.map_or_else(V::unset, V::read)
        .unwrap_or_else(|| panic!("the default of {name} cannot be read"))
}

use Scope::{Database, Global, Peer, User};
use Support::Built;

#[allow(non_upper_case_globals)] // They read as words in the table.
const reload: bool = true;
#[allow(non_upper_case_globals)]
const fixed: bool = false;

const NOWHERE: &[Scope] = &[];
const G: &[Scope] = &[Global];
const GD: &[Scope] = &[Global, Database];
const GU: &[Scope] = &[Global, User];
const GDU: &[Scope] = &[Global, Database, User];

globals! {
    admin_users: List = "", G, G, reload, Built,
        "Users who may give every command on the console.";
    application_name_add_host: bool = "0", G, G, reload, Built,
        "Appends the client's host and port to the application_name it starts with.";
    auth_dbname: Option<String> = unset, GD, GD, reload, Built,
        "The entry of [databases] in which auth_query runs; unset means the client's own.";
    auth_file: Option<String> = unset, G, G, reload, Built,
        "The file of users and their secrets.";
    auth_hba_file: String = "", G, G, reload, Built,
        "The file of host-based rules for auth_type = hba; read at start and by RELOAD.";
    auth_ident_file: Option<String> = unset, G, G, reload, Built,
        "The file that maps system users to database users, for auth_type = hba.";
    auth_ldap_options: Option<LdapText> = unset, G, G, reload, Built,
        "Where the directory is and how to bind, for auth_type = ldap: ldapserver, ldapport, \
         ldapscheme, ldaptls, ldapurl; ldapprefix and ldapsuffix, or ldapbasedn, ldapbinddn, \
         ldapbindpasswd, ldapsearchattribute, ldapsearchfilter.";
    auth_query: String = "SELECT rolname, CASE WHEN rolvaliduntil < pg_catalog.now() THEN NULL ELSE rolpassword END FROM pg_catalog.pg_authid WHERE rolname=$1 AND rolcanlogin",
        GD, GD, reload, Built,
        "The query that finds the secret of a user who is not in auth_file.";
    auth_query_cache: Duration = "0", G, NOWHERE, reload, Built,
        "How long Howdah believes an answer of auth_query, on each worker. 0 asks at each login. After a \
         failed login, the next login of that user asks again.";
    auth_type: AuthType = "md5", G, G, reload, Built,
        "How clients prove who they are.";
    auth_user: Option<String> = unset, GD, GD, reload, Built,
        "The role that runs auth_query.";
    autodb_idle_timeout: Duration = "3600", G, G, reload, Built,
        "Forgets a database made from the `*` entry when it was unused for this long.";
    busy_poll: u32 = "0", G, NOWHERE, fixed, Built,
        "For how many microseconds Howdah polls io_uring before it sleeps, while only one client is \
         active. 100 makes that client's waits shorter, for up to twice the CPU. 0: never.";
    cancel_wait_timeout: Duration = "10", G, G, reload, Built,
        "How long a cancel request may wait for a connection to carry it.";
    client_idle_timeout: Duration = "0", GU, GU, reload, Built,
        "Closes clients that sent nothing for this long.";
    client_login_timeout: Duration = "60", G, G, reload, Built,
        "How long a client may take to log in.";
    client_tls13_ciphers: Option<String> = unset, G, G, reload, Built,
        "TLS 1.3 cipher suites offered to clients.";
    client_tls_ca_file: String = "", G, G, reload, Built,
        "Authorities trusted for client certificates.";
    client_tls_cert_file: String = "", G, G, reload, Built,
        "Howdah's certificate for clients.";
    client_tls_ciphers: String = "default", G, G, reload, Built,
        "Ciphers for clients that speak TLS 1.2.";
    client_tls_dheparams: String = "auto", G, G, reload, Built,
        "Diffie-Hellman parameters for clients.";
    client_tls_ecdhcurve: String = "auto", G, G, reload, Built,
        "The elliptic curve for clients.";
    client_tls_key_file: String = "", G, G, reload, Built,
        "The private key of client_tls_cert_file.";
    client_tls_protocols: String = "secure", G, G, reload, Built,
        "TLS versions offered to clients.";
    client_tls_sslmode: SslMode = "disable", G, G, reload, Built,
        "Whether clients may or must use TLS.";
    conffile: Option<String> = unset, G, G, reload, Built,
        "The configuration file; once set anew, the next reload reads that one.";
    default_pool_size: u32 = "20", G, G, reload, Built,
        "Servers per database and user; 0 sets no limit. Databases and users set pool_size.";
    disable_pqexec: bool = "0", G, G, fixed, Built,
        "Refuses the simple query protocol, in which several statements fit into one query.";
    dns_max_ttl: Duration = "15", G, G, reload, Built,
        "How long the address of a host name is cached.";
    dns_nxdomain_ttl: Duration = "15", G, G, reload, Built,
        "How long a failed look-up of a host name is cached.";
    dns_zone_check_period: Duration = "0", G, G, reload, Built,
        "How often to look whether the DNS zones of known host names changed, by their serials; \
         names of one that did are looked up anew. 0: never.";
    http_listen_addr: String = "127.0.0.1", G, NOWHERE, reload, Built,
        "The address of the HTTP endpoint.";
    http_listen_port: u16 = "0", G, NOWHERE, reload, Built,
        "The port of the HTTP endpoint: /metrics for Prometheus, /live and /ready for probes. 0: no \
         endpoint.";
    http_page: bool = "0", G, NOWHERE, reload, Built,
        "Serves a page at / of the HTTP endpoint that shows pools, waits and latencies. Where \
         http_listen_addr is not loopback it needs http_token.";
    http_token: String = "", G, NOWHERE, reload, Built,
        "The token that requests to /metrics and the page must send: as `Authorization: Bearer ...`, or \
         once as `/?token=...`. /live and /ready need none.";
    idle_transaction_timeout: Duration = "0", GU, GU, reload, Built,
        "Closes clients that are idle in a transaction for this long.";
    ignore_startup_parameters: List = "", G, G, reload, Built,
        "Startup parameters that are accepted and dropped; `options` may be among them.";
    io_driver: IoDriver = "auto", G, NOWHERE, fixed, Built,
        "How to talk to the kernel: io_uring, epoll, or the best that works here.";
    job_name: String = "pgbouncer", G, G, fixed, Built,
        "Accepted, without effect: the name of a Windows service.";
    listen: Listen = "share", GDU, NOWHERE, reload, Built,
        "What LISTEN does in transaction mode with `session_state = keep`. `share`: one connection \
         listens for all clients of the database and user, and those keep no server. `pin`: the client \
         keeps its server. See docs/session-state.md.";
    listen_addr: List = "", G, G, fixed, Built,
        "Addresses to listen on for TCP; `*` means all, nothing means unix sockets only.";
    listen_backlog: u32 = "128", G, G, fixed, Built,
        "How many connections may wait in the kernel to be accepted.";
    listen_lost: ListenLost = "disconnect", G, NOWHERE, reload, Built,
        "What becomes of clients that listen by a shared connection (`listen = share`) when that \
         ends. `disconnect`: they are disconnected with 57P01 between two transactions, as they may miss \
         something. `notice`: they get a warning (01000) once another one listens, and go on; where there \
         can be none, and at `-R`, they are disconnected.";
    listen_port: u16 = "6432", G, G, fixed, Built,
        "The port to listen on, and the suffix of the unix socket's name.";
    listen_user: String = "", GD, NOWHERE, reload, Built,
        "The user that listens for all clients of a database (`listen = share`), so that there is one \
         connection for it. Empty: one for each user, as that user.";
    log_connections: bool = "1", G, G, reload, Built,
        "Logs each login.";
    log_disconnections: bool = "1", G, G, reload, Built,
        "Logs why each connection is closed.";
    log_format: LogFormat = "text", G, NOWHERE, reload, Built,
        "How lines of the log are written: text, as PgBouncer does, or json, an object a line. \
         Syslog gets text in any case.";
    log_pooler_errors: bool = "1", G, G, reload, Built,
        "Logs the errors that Howdah itself sends to clients.";
    log_stats: bool = "1", G, G, reload, Built,
        "Logs a line of statistics every stats_period.";
    log_unauthenticated_rate: u32 = "500", G, NOWHERE, reload, Built,
        "How many lines a second the log has about clients that have not logged in, and as many \
         again about refused logins. Of further ones the log tells only the number. 0: no limit.";
    logfile: String = "", G, G, reload, Built,
        "The file to log to; opened anew at reload. A new file has the mode 0640.";
    login_notify_message: String = "", G, NOWHERE, reload, Built,
        "A notice sent to each client after it logged in.";
    max_client_conn: u32 = "100", G, G, reload, Built,
        "How many clients may be connected.";
    max_db_client_connections: u32 = "0", GD, GD, reload, Built,
        "How many clients of one database may be connected; 0 sets no limit.";
    max_db_connections: u32 = "0", GD, GD, reload, Built,
        "How many servers one database may have, whatever the user; 0 sets no limit.";
    max_packet_size: u32 = "2147483647", G, G, reload, Built,
        "The longest message taken from either side, in bytes.";
    max_prepared_statements: u32 = "200", G, G, reload, Built,
        "How many prepared statements are kept on a server. 0 switches their support off: in \
         transaction mode clients then can't use them.";
    max_user_client_connections: u32 = "0", GU, GU, reload, Built,
        "How many clients of one user may be connected; 0 sets no limit.";
    max_user_connections: u32 = "0", GU, GU, reload, Built,
        "How many servers one user may have, whatever the database; 0 sets no limit.";
    metrics_max_pools: u32 = "100", G, NOWHERE, reload, Built,
        "How many pools have metrics of their own; the others are summed.";
    min_pool_size: u32 = "0", GD, GD, reload, Built,
        "Servers kept open in a pool that is in use.";
    peer_id: u32 = "0", G, G, reload, Built,
        "Howdah's number among the peers of `[peers]`, from 1 to 16383. Cancel keys carry the number, so \
         that another peer can forward a cancel request. 0: no peering.";
    pidfile: String = "", G, G, fixed, Built,
        "The file to write the process id to; empty means none.";
    pin_idle_timeout: Duration = "0", GU, NOWHERE, reload, Built,
        "Disconnects clients that keep a server between transactions (session_state) and send \
         nothing for this long.";
    pin_limit: u32 = "0", GDU, NOWHERE, reload, Built,
        "How many clients of a pool may keep a server between transactions (because of temporary \
         tables, session locks and the like, see session_state). If so many do, a statement for \
         which one more client would keep its server waits if it comes outside a transaction, and \
         is refused (53000) inside one. While no client waits for a server, all servers but one may \
         be kept. 0: half of the servers that the pool may have, at least one.";
    pin_notice: bool = "0", G, NOWHERE, reload, Built,
        "Tells clients by a NOTICE that they keep a server between transactions, and why.";
    pkt_buf: u32 = "4096", G, G, fixed, Built,
        "Accepted, without effect: the size of PgBouncer's buffers.";
    pool_mode: PoolMode = "session", GDU, GDU, reload, Built,
        "When a server goes back to its pool.";
    pool_idle_timeout: Duration = "0", G, NOWHERE, reload, Built,
        "Forgets a pool that had neither clients nor servers for this long.";
    pool_spread: PoolSpread = "load", G, NOWHERE, reload, Built,
        "On how many workers a pool's clients are: `load` takes as few as can carry them, `always` \
         one for every four servers of the pool.";
    query_timeout: Duration = "0", GU, GU, reload, Built,
        "Ends queries that run longer.";
    query_wait_notify: Duration = "5", G, G, reload, Built,
        "Tells a client by a notice once it waited this long for a server.";
    query_wait_timeout: Duration = "120", GDU, G, reload, Built,
        "How long a client may wait for a server.";
    ready_fails_when: List = "draining, paused, unreachable", G, NOWHERE, reload, Built,
        "When /ready of the HTTP endpoint says 503: while no new clients are taken, while all pools \
         are paused, while no server can be had.";
    reserve_pool_size: u32 = "0", GDU, GDU, reload, Built,
        "Servers that a pool may have in addition, when clients wait too long.";
    reserve_pool_timeout: Duration = "5", G, G, reload, Built,
        "How long a client must have waited before the reserve is used.";
    resolv_conf: String = "", G, G, fixed, Built,
        "A resolver file (`nameserver`, `search`, `domain`, `options`) to use instead of the \
         system's; names of /etc/hosts come first. Nothing: the system resolves names as it is set \
         up to.";
    sbuf_loopcnt: u32 = "5", G, G, reload, Built,
        "Accepted, without effect: PgBouncer's measure of fairness among sockets.";
    scram_iterations: u32 = "4096", G, G, reload, Built,
        "Iterations of the SCRAM secrets made from plain passwords.";
    server_channel_binding: ChannelBinding = "prefer", G, NOWHERE, reload, Built,
        "Whether SCRAM logins to servers over TLS bind the channel, where the database does not \
         say (channel_binding): disable, prefer or require.";
    server_check_delay: Duration = "30", G, G, reload, Built,
        "A server that idled for longer is tested before it is used; 0 always tests.";
    server_check_query: String = "<empty>", G, G, reload, Built,
        "The test; `<empty>` is the empty query, nothing is no test.";
    server_connect_timeout: Duration = "15", G, G, reload, Built,
        "How long connecting and logging in to a server may take.";
    server_fast_close: bool = "0", G, G, reload, Built,
        "In session mode, closes a server that is to be replaced (RECONNECT, a changed host) at \
         the end of its transaction, and its client with it.";
    server_idle_timeout: Duration = "600", G, G, reload, Built,
        "Closes servers that nobody used for this long.";
    server_lifetime: Duration = "3600", GD, GD, reload, Built,
        "Closes servers older than this when they are free; 0 uses each once.";
    server_login_retry: Duration = "15", G, G, reload, Built,
        "The longest pause after a failed login to a server before the next. Where PostgreSQL can't be \
         reached or is starting up, the first pause is 50 ms and doubles. What PostgreSQL answers to a \
         failed login is cached for at most 1 second.";
    server_require_auth: RequireAuth = "", G, NOWHERE, reload, Built,
        "The ways in which Howdah may prove itself to a server, where the database does not say \
         (require_auth): libpq's words, separated by commas, such as scram-sha-256 or !password,!md5; \
         nothing allows every way.";
    server_requirepeer: String = "", G, NOWHERE, reload, Built,
        "The user of the operating system that PostgreSQL must run as where it is reached by a \
         unix socket. A database's requirepeer goes before this. Nothing: any user.";
    server_reset_query: String = "DISCARD ALL", G, G, reload, Built,
        "Run on a server of a session pool when its client has left.";
    server_reset_query_always: bool = "0", G, G, reload, Built,
        "Runs server_reset_query in the other pool modes too.";
    server_round_robin: bool = "0", G, G, reload, Built,
        "Uses servers in turn instead of the one used last.";
    server_scram_iterations_max: u32 = "1000000", G, NOWHERE, reload, Built,
        "The most iterations of SCRAM that a server may ask of a login: half a second's work. Its login \
         fails above that.";
    server_tls13_ciphers: Option<String> = unset, G, G, reload, Built,
        "TLS 1.3 cipher suites offered to servers.";
    server_tls_ca_file: String = "", G, G, reload, Built,
        "Authorities trusted for server certificates.";
    server_tls_cert_file: String = "", G, G, reload, Built,
        "Howdah's certificate for servers.";
    server_tls_ciphers: String = "default", G, G, reload, Built,
        "Ciphers for servers that speak TLS 1.2.";
    server_tls_key_file: String = "", G, G, reload, Built,
        "The private key of server_tls_cert_file.";
    server_tls_protocols: String = "secure", G, G, reload, Built,
        "TLS versions offered to servers.";
    server_tls_sslmode: SslMode = "prefer", G, G, reload, Built,
        "Whether connections to servers may or must use TLS.";
    session_state: SessionState = "keep", GDU, NOWHERE, reload, Built,
        "What becomes of what a client leaves in its session, in transaction and statement mode. \
         `keep`: it is that client's on every server, and nobody else's; what can't be moved \
         (temporary tables, advisory locks, LISTEN) keeps its server for it. `discard`: it is lost \
         with the transaction. `share`: it stays on the server for whoever comes next, as with \
         PgBouncer.";
    slow_query_rate: u32 = "10", G, NOWHERE, reload, Built,
        "How many lines about slow queries each worker may log in a second; others are counted. A \
         pool gets at most half of the lines that other pools leave.";
    slow_query_time: Duration = "0", GDU, NOWHERE, reload, Built,
        "Logs queries that took at least this long, the wait for a server included; 0 logs none. \
         Constants are left out of their texts.";
    slow_query_values: bool = "0", G, NOWHERE, reload, Built,
        "Logs slow queries with their texts as they were sent and the values of their parameters, \
         1 KB of each at most.";
    so_reuseport: bool = "0", G, G, fixed, Built,
        "Lets several processes listen on the same port: a new one may start before the old ends.";
    stats_period: Duration = "60", G, G, reload, Built,
        "Over how long averages are taken, and how often they are logged.";
    stats_users: List = "", G, G, reload, Built,
        "Users who may use SHOW on the console.";
    suspend_timeout: Duration = "10", G, G, reload, Built,
        "How long SUSPEND and `-R` wait for clients and servers that do not read what they \
         are sent.";
    syslog: bool = "0", G, G, reload, Built,
        "Logs to syslog, too: to the datagram socket /dev/log.";
    syslog_facility: Facility = "daemon", G, G, reload, Built,
        "The syslog facility.";
    syslog_ident: String = "pgbouncer", G, G, reload, Built,
        "The name of Howdah's lines in syslog.";
    takeover_timeout: Duration = "0", G, NOWHERE, reload, Built,
        "After `-R`, clients that could not move (an open transaction, say) stay on the old \
         process. This long after the takeover it disconnects them; 0 waits until they leave.";
    tcp_defer_accept: u32 = "1", G, G, reload, Built,
        "Seconds the kernel waits for a client's first byte before it hands the connection over; \
         1 means 45, 0 hands it over at once.";
    tcp_keepalive: bool = "1", G, G, reload, Built,
        "Has the kernel probe idle connections.";
    tcp_keepcnt: u32 = "0", G, G, reload, Built,
        "Unanswered probes before a connection is given up; 0 leaves it to the system.";
    tcp_keepidle: u32 = "0", G, G, reload, Built,
        "Seconds before the first probe; 0 leaves it to the system.";
    tcp_keepintvl: u32 = "0", G, G, reload, Built,
        "Seconds between probes; 0 leaves it to the system.";
    tcp_socket_buffer: u32 = "0", G, G, reload, Built,
        "The size of the kernel's buffer for each direction, in bytes; 0 leaves it to the system.";
    tcp_user_timeout: u32 = "0", G, G, reload, Built,
        "Milliseconds sent data may stay unacknowledged; 0 leaves it to the system.";
    top_queries: u32 = "0", G, NOWHERE, reload, Built,
        "Of how many texts of queries each worker keeps counts, for SHOW QUERIES; 0 counts none.";
    trace_endpoint: HttpUrl = "", G, NOWHERE, reload, Built,
        "Where traces go: the URL of a collector that takes OTLP by HTTP, such as \
         http://127.0.0.1:4318/v1/traces; nothing: no traces.";
    trace_ratio: Share = "0.01", G, NOWHERE, reload, Built,
        "The share of queries that are traced, from 0 to 1. If a query has a comment with a \
         traceparent, the sampled flag in it decides instead.";
    track_extra_parameters: List = "IntervalStyle", G, G, fixed, Built,
        "Server parameters to keep per client beyond the usual ones.";
    transaction_timeout: Duration = "0", GU, GU, reload, Built,
        "Ends transactions that take longer.";
    unix_socket_dir: String = "/tmp", G, G, fixed, Built,
        "The folder of Howdah's unix socket, and where servers without a host are looked for; a leading \
         `@` means abstract, nothing means none.";
    unix_socket_group: String = "", G, G, fixed, Built,
        "The group that owns the unix socket.";
    unix_socket_mode: u32 = "0777", G, G, fixed, Built,
        "The access mode of the unix socket.";
    user: Option<String> = unset, G, G, fixed, Built,
        "The system user to become after start as root.";
    verbose: u32 = unset, G, G, reload, Built,
        "How much to log: 0 is normal, 1 has more about connections, 2 has everything.";
    workers: u32 = "0", G, NOWHERE, fixed, Built,
        "Worker threads, at most 1024; 0 takes as many as there are cores to use.";
}

const fn entry(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    scopes: &'static [Scope],
    known_to_pgbouncer: &'static [Scope],
    status: Support,
    prose: &'static str,
) -> Setting {
    Setting {
        name,
        kind,
        default,
        scopes,
        known_to_pgbouncer,
        reloadable: true,
        status,
        prose,
        field: None,
    }
}

/// Settings that are allowed only in entries of `[databases]`, `[users]` or `[peers]`.
pub static ENTRY: &[Setting] = &[
    entry(
        "application_name",
        Kind::Text,
        None,
        &[Database],
        &[Database],
        Built,
        "The application_name servers are opened with.",
    ),
    entry(
        "channel_binding",
        <ChannelBinding as Value>::KIND,
        None,
        &[Database],
        NOWHERE,
        Built,
        "Whether SCRAM logins to its servers over TLS bind the channel; missing means \
         server_channel_binding.",
    ),
    entry(
        "client_encoding",
        Kind::Text,
        None,
        &[Database],
        &[Database],
        Built,
        "The client_encoding servers are opened with.",
    ),
    entry(
        "client_tls_sslmode",
        <SslMode as Value>::KIND,
        None,
        &[Database],
        NOWHERE,
        Built,
        "What is demanded of TLS of this database's clients; missing means client_tls_sslmode. TLS \
         must be switched on there.",
    ),
    entry(
        "connect_query",
        Kind::Text,
        None,
        &[Database],
        &[Database],
        Built,
        "Run once on each new server; its failure is only logged.",
    ),
    entry(
        "datestyle",
        Kind::Text,
        None,
        &[Database],
        &[Database],
        Built,
        "The datestyle servers are opened with.",
    ),
    entry(
        "dbname",
        Kind::Text,
        None,
        &[Database],
        &[Database],
        Built,
        "The database's name on the server; missing means the entry's own name.",
    ),
    entry(
        "host",
        Kind::Text,
        None,
        &[Database],
        &[Database],
        Built,
        "Host names or addresses, separated by commas; a leading `/` or `@` means a unix socket; \
         missing means unix_socket_dir.",
    ),
    entry(
        "host",
        Kind::Text,
        None,
        &[Peer],
        &[Peer],
        Built,
        "Where the peer is, written as in `[databases]`; it has no default.",
    ),
    entry(
        "load_balance_hosts",
        <super::value::LoadBalance as Value>::KIND,
        Some("round-robin"),
        &[Database],
        &[Database],
        Built,
        "Whether several hosts are used in turn, or the first until it fails.",
    ),
    entry(
        "password",
        Kind::Text,
        None,
        &[Database],
        &[Database],
        Built,
        "The password of the forced user; missing means its secret from auth_file. Without `user` \
         it has no effect.",
    ),
    entry(
        "pool_size",
        Kind::Number,
        None,
        &[Database],
        &[Database],
        Built,
        "Servers in each pool of the database; missing means default_pool_size, 0 sets no limit.",
    ),
    entry(
        "pool_size",
        Kind::Number,
        None,
        &[User],
        &[User],
        Built,
        "Servers in each pool of the user; counts before what its database says, 0 sets no limit.",
    ),
    entry(
        "pool_size",
        Kind::Number,
        None,
        &[Peer],
        &[Peer],
        Built,
        "Cancel requests that are forwarded to the peer at once; missing means default_pool_size, \
         0 sets no limit.",
    ),
    entry(
        "port",
        Kind::Number,
        Some("5432"),
        &[Database],
        &[Database],
        Built,
        "PostgreSQL's port.",
    ),
    entry(
        "port",
        Kind::Number,
        Some("6432"),
        &[Peer],
        &[Peer],
        Built,
        "The port that the peer listens on.",
    ),
    entry(
        "require_auth",
        <RequireAuth as Value>::KIND,
        None,
        &[Database],
        NOWHERE,
        Built,
        "The ways in which Howdah may prove itself to its servers; missing means server_require_auth.",
    ),
    entry(
        "requirepeer",
        Kind::Text,
        None,
        &[Database],
        NOWHERE,
        Built,
        "The system's user that must run its servers, if they are reached by a unix socket; \
         missing means server_requirepeer.",
    ),
    entry(
        "reserve_pool",
        Kind::Number,
        None,
        &[Database],
        &[Database],
        Built,
        "An older name of reserve_pool_size.",
    ),
    entry(
        "sslmode",
        <SslMode as Value>::KIND,
        None,
        &[Database],
        NOWHERE,
        Built,
        "What is demanded of TLS on the way to this database's servers; missing means \
         server_tls_sslmode.",
    ),
    entry(
        "sslnegotiation",
        <super::value::SslNegotiation as Value>::KIND,
        Some("postgres"),
        &[Database],
        NOWHERE,
        Built,
        "Whether TLS to this database's servers begins with an SSLRequest (postgres) or at once \
         (direct; PostgreSQL 17 and newer).",
    ),
    entry(
        "timezone",
        Kind::Text,
        None,
        &[Database],
        &[Database],
        Built,
        "The timezone servers are opened with.",
    ),
    entry(
        "user",
        Kind::Text,
        None,
        &[Database],
        &[Database],
        Built,
        "Opens all servers as this user, whoever the client is.",
    ),
];

impl Setting {
    /// Whether PgBouncer 1.25.2 accepts the setting in this scope.
    pub fn is_known_to_pgbouncer(&self, scope: Scope) -> bool {
        self.known_to_pgbouncer.contains(&scope)
    }
}

/// The setting with this name that is allowed in a scope.
pub fn find(scope: Scope, name: &str) -> Option<&'static Setting> {
    in_scope(scope).find(|setting| setting.name == name)
}

/// All settings that are allowed in a scope.
pub fn in_scope(scope: Scope) -> impl Iterator<Item = &'static Setting> {
    GLOBAL
        .iter()
        .chain(ENTRY)
        .filter(move |setting| setting.scopes.contains(&scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_read_and_shown_back() {
        let globals = Globals::default();
        for setting in GLOBAL {
            let shown = (setting.field.unwrap().show)(&globals);
            let expected = match setting.name {
                "unix_socket_mode" => Some("511"), // PgBouncer, too, shows it in decimal.
                "verbose" => Some("0"),
                _ => setting.default,
            };
            assert_eq!(shown.as_deref(), expected, "{}", setting.name);
        }
    }

    #[test]
    fn names_are_unique_in_each_scope() {
        for scope in [Global, Database, User, Peer] {
            let mut names: Vec<_> = in_scope(scope).map(|s| s.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{scope:?}");
        }
    }

    #[test]
    fn the_order_is_that_of_show_config() {
        let mut names: Vec<_> = GLOBAL.iter().map(|s| s.name).collect();
        let mode = names.iter().position(|&n| n == "pool_mode").unwrap();
        assert_eq!(
            names[mode + 1],
            "pool_idle_timeout",
            "PgBouncer's one exception"
        );
        names.swap(mode, mode + 1);
        assert!(names.is_sorted(), "{names:?}");
        assert_eq!(names.len(), 100 + 31, "PgBouncer's on Linux and ours");
    }

    #[test]
    fn pgbouncer_knows_as_many_settings_as_its_release_has() {
        let known = |scope| in_scope(scope).filter(move |s| s.is_known_to_pgbouncer(scope));
        let counts = [Global, Database, User, Peer].map(|scope| known(scope).count());
        // From main.c and loader.c of PgBouncer 1.25.2, without Windows' `service_name`.
        assert_eq!(counts, [98, 22, 9, 3]);
        for setting in GLOBAL.iter().chain(ENTRY) {
            let mut places = setting.known_to_pgbouncer.iter();
            assert!(
                places.all(|scope| setting.scopes.contains(scope)),
                "{}",
                setting.name
            );
        }
    }

    #[test]
    fn a_field_is_assigned_shown_and_copied() {
        let mut globals = Globals::default();
        let port = find(Global, "listen_port").unwrap().field.unwrap();
        assert!((port.assign)(&mut globals, "6543") && globals.listen_port == 6543);
        assert!(!(port.assign)(&mut globals, "x") && globals.listen_port == 6543);
        assert_eq!((port.show)(&globals).as_deref(), Some("6543"));
        let mut fresh = Globals::default();
        (port.copy)(&mut fresh, &globals);
        assert_eq!(fresh.listen_port, 6543);
    }
}
