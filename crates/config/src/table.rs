//! The one table of settings. The fields, their readers, SHOW CONFIG, SET and the reference page are
//! made from this table.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use howdah_auth::{ChannelBinding, RequireAuth, Secret};

use super::host::{Host, HostPort, Ports};
use super::ldap::LdapText;
use super::network::Networks;
use super::parameters::Parameters;
use super::setting::Range::{self, Numbers, Only, Such};
use super::setting::{Field, default_value, fill, limit, own, time, value};
use super::source::SecretText;
use super::userlist::MAX_USER;
use super::value::{
    AuthType, Facility, HttpUrl, IoDriver, Lines, List, Listen, ListenLost, LoadBalance, LogFormat,
    PoolMode, PoolSpread, ReadConsistency, ReadRouting, ReadTarget, SessionAttrs, SessionState,
    Share, SslMode, SslNegotiation, UnnamedStatements, Value, read_number, read_seconds,
};
use super::{CAUSES, Scope, Scopes, Setting, ShardMap, is_console, url};

#[allow(non_upper_case_globals)] // They read as words in the table.
const reload: bool = true;
#[allow(non_upper_case_globals)]
const fixed: bool = false;

const NOWHERE: &[Scope] = &[];
const G: &[Scope] = &[Scope::Global];
const GD: &[Scope] = &[Scope::Global, Scope::Database];
const GU: &[Scope] = &[Scope::Global, Scope::User];
const GDU: &[Scope] = &[Scope::Global, Scope::Database, Scope::User];
const D: &[Scope] = &[Scope::Database];
const DU: &[Scope] = &[Scope::Database, Scope::User];
const P: &[Scope] = &[Scope::Peer];

/// How many times more new servers than another a host can get.
const WEIGHTS: Range = Numbers(1, 1000);

const NOT_ZERO: Range = Such(|text| read_number(text) != Some(0), ", at least 1");
const NOT_ZERO_TIME: Range = Only(
    |text| read_seconds(text) != Some(Duration::ZERO),
    "write a number of seconds above 0",
);
const ADDRESS: Range = Such(
    |text| text.parse::<IpAddr>().is_ok(),
    ": an IPv4 or IPv6 address",
);
/// The token is used in addresses and cookies.
const TOKEN: Range = Such(
    |text| {
        let mut letters = text.chars();
        letters.all(|c| c.is_ascii_alphanumeric() || "-_.~".contains(c))
    },
    " of letters, digits and -_.~",
);
const SOME_CAUSES: Range = Such(
    |text| List::read(text).is_some_and(|list| list.iter().all(|word| CAUSES.contains(&&**word))),
    ": draining, paused, unreachable",
);
const NETWORKS: Range = Such(
    |text| Networks::read(text).is_some(),
    ": networks such as 10.0.0.0/8 or 2001:db8::/32, or addresses",
);
const HOSTS: Range = Only(
    |text| !Host::list(text).is_empty(),
    "write names or addresses, separated by commas",
);
const USER_NAME: Range = Only(
    |text| text.len() < MAX_USER,
    "a user name has at most 127 bytes",
);
const PARAMETERS: Range = Such(
    |text| Parameters::read(text).is_some(),
    ", but not user, database, replication, options and names that begin with _pq_.",
);
const URL: Range = Only(
    |text| url::parse(text).is_ok(),
    "write postgresql://USER:PASSWORD@HOST:PORT/DBNAME, with %40 for @ in a password",
);
const NOT_CONSOLE: Range = Only(
    |text| !is_console(text),
    "cannot use the reserved \"pgbouncer\" database as an auth_dbname",
);

settings! {
    /// The settings of `[pgbouncer]`. A time of zero means "off".
    #[derive(Clone, Debug)]
    pub struct Globals {}

    /// A database that clients may ask for. In a setting that also exists globally, `None` means
    /// "as there".
    #[derive(Clone, PartialEq, Eq)]
    pub struct Database {
        /// The name that clients use.
        pub name: String,
        /// The hosts in `host` with their ports; without `host`, the directory of unix_socket_dir. May
        /// be empty.
        pub hosts: Vec<HostPort>,
        /// The entry was made from the `*` entry.
        pub auto: bool,
        /// What counts for single users in this database, by their names.
        pub users: BTreeMap<String, Arc<User>>,
        /// The map of a database whose rows lie in several others.
        pub sharding: Option<Arc<ShardMap>>,
        /// The sharded database that this one is a shard of.
        pub shard_of: Option<Arc<str>>,
    }

    /// A user: a line of the auth_file, an entry of `[users]`, or both. Or a user's entry in one
    /// database. In a setting, `None` means "as in the next scope".
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct User {
        /// The name.
        pub name: String,
        /// The user has a line in the auth_file, or a password here: auth_query is not run for this
        /// user.
        pub listed: bool,
        /// The secret in the auth_file, or the password here. Without a secret no password is right.
        pub secret: Option<Secret>,
        /// Another password that is right, too: the other one of two.
        pub second: Option<Secret>,
    }

    /// An entry of `[peers]`: another process of the same group. It may own the client that a
    /// cancel request names.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct PeerProcess {
        /// The hosts, tried in turn.
        pub hosts: Vec<Host>,
    }

    /// An entry of `[hosts]`: what counts for a host of PostgreSQL, whatever databases it has.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct HostEntry {}

    topic "Listening" {
        listen_addr: List = ""; global(fixed); known G;
            "Addresses to listen on for TCP; `*` means all, nothing means unix sockets only.";
        listen_port: u16 = "6432" in Numbers(0, 65535); global(fixed); known G;
            "The port to listen on, and the suffix of the unix socket's name.";
        listen_backlog: u32 = "128"; global(fixed); known G;
            "How many connections may wait in the kernel to be accepted.";
        so_reuseport: bool = "0"; global(fixed); known G;
            "Lets several processes listen on the same port: a new one may start before the old ends.";
        unix_socket_dir: String = "/tmp"; global(fixed); known G;
            "The folder of Howdah's unix socket, and where servers without a host are looked for; a leading \
             `@` means abstract, nothing means none.";
        unix_socket_mode: u32 = "0777"; global(fixed); known G;
            "The access mode of the unix socket.";
        unix_socket_group: String = ""; global(fixed); known G;
            "The group that owns the unix socket.";
        tcp_defer_accept: u32 = "1"; global(reload); known G;
            "Seconds the kernel waits for a client's first byte before it hands the connection over; \
             1 means 45, 0 hands it over at once.";
        proxy_protocol: Networks = "" in NETWORKS; global(reload); known NOWHERE;
            "Networks of load balancers: a TCP connection from there must begin with a header of the PROXY \
             protocol, version 1 or 2, and the address in it counts as the client's. From elsewhere a header \
             is refused. See docs/balancers.md.";
        client_login_timeout: Duration = "60"; global(reload); known G;
            "How long a client may take to log in.";
        ignore_startup_parameters: List = ""; global(reload); known G;
            "Startup parameters that are accepted and dropped; `options` may be among them.";
        login_notify_message: String = ""; global(reload); known NOWHERE;
            "A notice sent to each client after it logged in.";
    }

    topic "Who may log in" {
        auth_type: AuthType = "md5"; global(reload); known G;
            "How clients prove who they are.";
        auth_file: Option<String> = unset; global(reload); known G;
            "The file of users and their secrets.";
        auth_query: String = "SELECT rolname, CASE WHEN rolvaliduntil < pg_catalog.now() THEN NULL ELSE rolpassword END FROM pg_catalog.pg_authid WHERE rolname=$1 AND rolcanlogin";
            global(reload) database(value replaces); known GD;
            "The query that finds the secret of a user who is not in auth_file.";
        auth_user: Option<String> = unset; global(reload) database(value); known GD;
            "The role that runs auth_query.";
        auth_dbname: Option<String> = unset in NOT_CONSOLE;
            global(reload) database(value replaces); known GD;
            "The entry of [databases] in which auth_query runs; unset means the client's own.";
        auth_query_cache: Duration = "0"; global(reload); known NOWHERE;
            "How long Howdah believes an answer of auth_query, on each worker. 0 asks at each login. After a \
             failed login, the next login of that user asks again.";
        auth_hba: Lines = ""; global(reload); known NOWHERE;
            "Rules for auth_type = hba, instead of a file of them. In howdah.toml: an array with a rule in each \
             text, [\"host all all 10.0.0.0/8 scram-sha-256\"].";
        auth_hba_file: String = ""; global(reload); known G;
            "The file of host-based rules for auth_type = hba; read at start and by RELOAD.";
        auth_ident_file: Option<String> = unset; global(reload); known G;
            "The file that maps system users to database users, for auth_type = hba.";
        auth_oauth_options: String = ""; global(reload); known NOWHERE;
            "Which tokens are good, for auth_type = oauth and jwt: issuer, audience, scope, keys, claim, roles, \
             map, algorithms, leeway. See docs/tokens.md.";
        auth_ldap_options: Option<LdapText> = unset; global(reload); known G;
            "Where the directory is and how to bind, for auth_type = ldap: ldapserver, ldapport, \
             ldapscheme, ldaptls, ldapurl; ldapprefix and ldapsuffix, or ldapbasedn, ldapbinddn, \
             ldapbindpasswd, ldapsearchattribute, ldapsearchfilter.";
        scram_iterations: u32 = "4096" in NOT_ZERO; global(reload); known G;
            "Iterations of the SCRAM secrets made from plain passwords.";
        admin_users: List = ""; global(reload); known G;
            "Users who may give every command on the console.";
        stats_users: List = ""; global(reload); known G;
            "Users who may use SHOW on the console.";
    }

    topic "Pools and limits" {
        pool_mode: PoolMode = "session";
            global(reload) user(value) database(value); known GDU;
            "When a server goes back to its pool.";
        default_pool_size: u32 = "20"; global(reload); known G;
            "Servers per database and user; 0 sets no limit. Databases and users set pool_size.";
        pool_size: u32 = unset; user(limit) database(limit) else default_pool_size; known DU;
            "In entries of databases and users: servers in each of their pools. The user's value counts \
             before the database's; missing means default_pool_size, 0 sets no limit.";
        min_pool_size: u32 = "0"; global(reload) database(limit) member(limit); known GD;
            "Servers kept open in a pool that is in use.";
        reserve_pool_size: u32 = "0";
            global(reload) user(limit) database(limit); known GDU;
            "Servers that a pool may have in addition, when clients wait too long.";
        reserve_pool_timeout: Duration = "5"; global(reload); known G;
            "How long a client must have waited before the reserve is used.";
        max_client_conn: u32 = "100"; global(reload); known G;
            "How many clients may be connected.";
        max_db_connections: u32 = "0";
            global(reload) database(limit); known GD;
            "How many servers one database may have, whatever the user; 0 sets no limit.";
        max_user_connections: u32 = "0";
            global(reload) user(limit); known GU;
            "How many servers one user may have, whatever the database; 0 sets no limit.";
        max_host_connections: u32 = "0"; global(reload) host(limit); known NOWHERE;
            "How many servers one host may have, whatever the database and the user; 0 sets no limit. In \
             entries of hosts: for that host. Servers count if their entry has one host, or \
             target_session_attrs.";
        max_host_logins: u32 = "0"; global(reload) host(limit); known NOWHERE;
            "How many servers may connect and log in to one host at a time; 0 sets no limit. In entries of \
             hosts: for that host. Servers count as for max_host_connections.";
        max_db_client_connections: u32 = "0";
            global(reload) database(limit); known GD;
            "How many clients of one database may be connected; 0 sets no limit.";
        max_user_client_connections: u32 = "0";
            global(reload) user(limit); known GU;
            "How many clients of one user may be connected; 0 sets no limit.";
        pool_idle_timeout: Duration = "0"; global(reload); known NOWHERE;
            "Forgets a pool that had neither clients nor servers for this long.";
        autodb_idle_timeout: Duration = "3600"; global(reload); known G;
            "Forgets a database made from the `*` entry when it was unused for this long.";
    }

    topic "Timeouts of clients" {
        query_wait_timeout: Duration = "120";
            global(reload) user(value) database(value); known G;
            "How long a client may wait for a server.";
        query_wait_notify: Duration = "5"; global(reload); known G;
            "Tells a client by a notice once it waited this long for a server.";
        query_timeout: Duration = "0"; global(reload) user(time); known GU;
            "Ends queries that run longer.";
        transaction_timeout: Duration = "0";
            global(reload) user(time); known GU;
            "Ends transactions that take longer.";
        idle_transaction_timeout: Duration = "0";
            global(reload) user(time); known GU;
            "Closes clients that are idle in a transaction for this long.";
        client_idle_timeout: Duration = "0";
            global(reload) user(time); known GU;
            "Closes clients that sent nothing for this long.";
        client_lifetime: Duration = "0"; global(reload); known NOWHERE;
            "Ends clients older than this, less a random fifth, each behind a transaction with SQLSTATE 57P01; 0 \
             lets them stay. So a new process behind a balancer gets its share of long-lived clients. A reload \
             with a longer time counts for clients that log in later.";
        cancel_wait_timeout: Duration = "10"; global(reload); known G;
            "How long a cancel request may wait for a connection to carry it.";
        suspend_timeout: Duration = "10"; global(reload); known G;
            "How long SUSPEND and `-R` wait for clients and servers that do not read what they \
             are sent.";
        drain_delay: Duration = "0"; global(reload); known NOWHERE;
            "After SIGINT or SHUTDOWN WAIT_FOR_SERVERS, /ready fails at once, and new clients are taken for this \
             long, until balancers have noticed. See docs/balancers.md.";
        drain_time: Duration = "0"; global(reload); known NOWHERE;
            "Behind drain_delay, all clients are ended with SQLSTATE 57P01, each behind a transaction, spread \
             evenly over this time. Then the process ends as without this setting. 0 ends no client early.";
        takeover_timeout: Duration = "0"; global(reload); known NOWHERE;
            "After `-R`, clients that could not move (an open transaction, say) stay on the old \
             process. This long after the takeover it disconnects them; 0 waits until they leave.";
    }

    topic "Servers" {
        server_lifetime: Duration = "3600";
            global(reload) database(time); known GD;
            "Closes servers older than this when they are free; 0 uses each once.";
        server_idle_timeout: Duration = "600"; global(reload); known G;
            "Closes servers that nobody used for this long.";
        server_connect_timeout: Duration = "15"; global(reload); known G;
            "How long connecting and logging in to a server may take.";
        server_login_retry: Duration = "15"; global(reload); known G;
            "The longest pause after a failed login to a server before the next. Where PostgreSQL can't be \
             reached or is starting up, the first pause is 50 ms and doubles. What PostgreSQL answers to a \
             failed login is cached for at most 1 second.";
        server_check_query: String = "<empty>"; global(reload); known G;
            "The test; `<empty>` is the empty query, nothing is no test.";
        server_check_delay: Duration = "30"; global(reload); known G;
            "A server that idled for longer is tested before it is used; 0 always tests.";
        server_reset_query: String = "DISCARD ALL"; global(reload); known G;
            "Run on a server of a session pool when its client has left.";
        server_reset_query_always: bool = "0"; global(reload); known G;
            "Runs server_reset_query in the other pool modes too.";
        server_round_robin: bool = "0"; global(reload); known G;
            "Uses servers in turn instead of the one used last.";
        server_fast_close: bool = "0"; global(reload); known G;
            "In session mode, closes a server that is to be replaced (RECONNECT, a changed host) at \
             the end of its transaction, and its client with it.";
        server_require_auth: RequireAuth = ""; global(reload); known NOWHERE;
            "The ways in which Howdah may prove itself to a server, where the database does not say \
             (require_auth): libpq's words, separated by commas, such as scram-sha-256 or !password,!md5; \
             nothing allows every way.";
        server_requirepeer: String = ""; global(reload); known NOWHERE;
            "The user of the operating system that PostgreSQL must run as where it is reached by a \
             unix socket. A database's requirepeer goes before this. Nothing: any user.";
        server_channel_binding: ChannelBinding = "prefer"; global(reload); known NOWHERE;
            "Whether SCRAM logins to servers over TLS bind the channel, where the database does not \
             say (channel_binding): disable, prefer or require.";
        server_scram_iterations_max: u32 = "1000000"; global(reload); known NOWHERE;
            "The most iterations of SCRAM that a server may ask of a login: half a second's work. Its login \
             fails above that.";
    }

    topic "Hosts and their roles" {
        host_check_interval: Duration = "0.25" in NOT_ZERO_TIME; global(reload); known NOWHERE;
            "How often each host of a database with target_session_attrs is asked for its role.";
        host_check_timeout: Duration = "2" in NOT_ZERO_TIME; global(reload); known NOWHERE;
            "How long the connect, the login and each answer of such a check may take.";
        host_check_user: Option<String> = unset in USER_NAME; global(reload); known NOWHERE;
            "The user that asks. Unset means auth_user, or the forced user of the database. With pg_monitor, \
             standbys tell more. Without a user, roles come from what PostgreSQL 14 and newer reports at login.";
        host_check_dbname: String = "postgres"; global(reload); known NOWHERE;
            "The database on the host in which the user asks.";
    }

    topic "Reads on standbys" {
        read_routing: ReadRouting = "off";
            global(reload) user(value) database(value); known NOWHERE;
            "Which requests go to standbys, in transaction and statement mode, where hosts have roles: none \
             (off); transactions that are declared READ ONLY (transactions); or these and single statements \
             that only read (statements). A database with several hosts gets target_session_attrs=primary \
             if it names no role. See docs/reads.md.";
        read_target: ReadTarget = "prefer-standby";
            global(reload) user(value) database(value); known NOWHERE;
            "Where reads go: to standbys, and to the primary while none fits (prefer-standby); only to \
             standbys (standby); or to all hosts alike (any).";
        read_consistency: ReadConsistency = "session";
            global(reload) user(value) database(value); known NOWHERE;
            "`session`: a read shows all that its client has written or seen before; a standby that does not \
             show that yet gets no read of this client. `eventual`: a read shows what the standby has.";
        read_wait: Duration = "0.02";
            global(reload) user(value) database(value); known NOWHERE;
            "How long a read waits for a standby that shows all that its client has seen, before it goes to \
             the primary.";
        max_standby_lag: Duration = "10"; global(reload) database(value); known NOWHERE;
            "How far a standby may be behind the primary, in seconds, to get reads. In databases whose own target \
             is standbys, one that is further behind is used last. 0 sets no limit.";
        read_routing_notice: bool = "0"; global(reload); known NOWHERE;
            "Tells clients by a NOTICE where each of their reads goes, and why one goes to the primary.";
    }

    topic "Session state and prepared statements" {
        session_state: SessionState = "keep";
            global(reload) user(value) database(value); known NOWHERE;
            "What becomes of what a client leaves in its session, in transaction and statement mode. \
             `keep`: it is that client's on every server, and nobody else's; what can't be moved \
             (temporary tables, advisory locks, LISTEN) keeps its server for it. `discard`: it is lost \
             with the transaction. `share`: it stays on the server for whoever comes next, as with \
             PgBouncer.";
        pin_limit: u32 = "0"; global(reload) user(limit) database(limit); known NOWHERE;
            "How many clients of a pool may keep a server between transactions (because of temporary \
             tables, session locks and the like, see session_state). If so many do, a statement for \
             which one more client would keep its server waits if it comes outside a transaction, and \
             is refused (53000) inside one. While no client waits for a server, all servers but one may \
             be kept. 0: half of the servers that the pool may have, at least one.";
        pin_idle_timeout: Duration = "0";
            global(reload) user(time); known NOWHERE;
            "Disconnects clients that keep a server between transactions (session_state) and send \
             nothing for this long.";
        pin_notice: bool = "0"; global(reload); known NOWHERE;
            "Tells clients by a NOTICE that they keep a server between transactions, and why.";
        listen: Listen = "share";
            global(reload) user(value) database(value); known NOWHERE;
            "What LISTEN does in transaction mode with `session_state = keep`. `share`: one connection \
             listens for all clients of the database and user, and those keep no server. `pin`: the client \
             keeps its server. See docs/session-state.md.";
        listen_user: String = ""; global(reload) database(value); known NOWHERE;
            "The user that listens for all clients of a database (`listen = share`), so that there is one \
             connection for it. Empty: one for each user, as that user.";
        listen_lost: ListenLost = "disconnect"; global(reload); known NOWHERE;
            "What becomes of clients that listen by a shared connection (`listen = share`) when that \
             ends. `disconnect`: they are disconnected with 57P01 between two transactions, as they may miss \
             something. `notice`: they get a warning (01000) once another one listens, and go on; where there \
             can be none, and at `-R`, they are disconnected.";
        max_prepared_statements: u32 = "200"; global(reload); known G;
            "How many prepared statements are kept on a server. 0 switches their support off: in \
             transaction mode clients then can't use them.";
        unnamed_statements: UnnamedStatements = "pass";
            global(reload) user(value) database(value); known NOWHERE;
            "What becomes of unnamed statements with parameters (Parse, Bind and Execute without a name, as \
             most drivers send them). `pass`: PostgreSQL parses and plans them each time. `share`: a server \
             keeps those whose texts come again, as statements with names, for all clients. See \
             docs/prepared-statements.md.";
        track_extra_parameters: List = "IntervalStyle"; global(fixed); known G;
            "Server parameters to keep per client beyond the usual ones.";
        application_name_add_host: bool = "0"; global(reload); known G;
            "Appends the client's host and port to the application_name it starts with.";
        disable_pqexec: bool = "0"; global(fixed); known G;
            "Refuses the simple query protocol, in which several statements fit into one query.";
    }

    topic "TLS to clients" {
        client_tls_sslmode: SslMode = "disable"; global(reload); known G;
            "Whether clients may or must use TLS.";
        client_tls_key_file: String = ""; global(reload); known G;
            "The private key of client_tls_cert_file.";
        client_tls_cert_file: String = ""; global(reload); known G;
            "Howdah's certificate for clients.";
        client_tls_ca_file: String = ""; global(reload); known G;
            "Authorities trusted for client certificates.";
        client_tls_protocols: String = "secure"; global(reload); known G;
            "TLS versions offered to clients.";
        client_tls_ciphers: String = "default"; global(reload); known G;
            "Ciphers for clients that speak TLS 1.2.";
        client_tls13_ciphers: Option<String> = unset; global(reload); known G;
            "TLS 1.3 cipher suites offered to clients.";
        client_tls_ecdhcurve: String = "auto"; global(reload); known G;
            "The elliptic curve for clients.";
        client_tls_dheparams: String = "auto"; global(reload); known G;
            "Diffie-Hellman parameters for clients.";
    }

    topic "TLS to servers" {
        server_tls_sslmode: SslMode = "prefer"; global(reload); known G;
            "Whether connections to servers may or must use TLS.";
        server_tls_ca_file: String = ""; global(reload); known G;
            "Authorities trusted for server certificates.";
        server_tls_key_file: String = ""; global(reload); known G;
            "The private key of server_tls_cert_file.";
        server_tls_cert_file: String = ""; global(reload); known G;
            "Howdah's certificate for servers.";
        server_tls_protocols: String = "secure"; global(reload); known G;
            "TLS versions offered to servers.";
        server_tls_ciphers: String = "default"; global(reload); known G;
            "Ciphers for servers that speak TLS 1.2.";
        server_tls13_ciphers: Option<String> = unset; global(reload); known G;
            "TLS 1.3 cipher suites offered to servers.";
    }

    topic "The log" {
        logfile: String = ""; global(reload); known G;
            "The file to log to; opened anew at reload. A new file has the mode 0640.";
        log_format: LogFormat = "text"; global(reload); known NOWHERE;
            "How lines of the log are written: text, as PgBouncer does, or json, an object a line. \
             Syslog gets text in any case.";
        log_connections: bool = "1"; global(reload); known G;
            "Logs each login.";
        log_disconnections: bool = "1"; global(reload); known G;
            "Logs why each connection is closed.";
        log_pooler_errors: bool = "1"; global(reload); known G;
            "Logs the errors that Howdah itself sends to clients.";
        log_unauthenticated_rate: u32 = "500"; global(reload); known NOWHERE;
            "How many lines a second the log has about clients that have not logged in, and as many \
             again about refused logins. Of further ones the log tells only the number. 0: no limit.";
        log_stats: bool = "1"; global(reload); known G;
            "Logs a line of statistics every stats_period.";
        stats_period: Duration = "60" in NOT_ZERO; global(reload); known G;
            "Over how long averages are taken, and how often they are logged.";
        verbose: u32 = unset; global(reload); known G;
            "How much to log: 0 is normal, 1 has more about connections, 2 has everything.";
        syslog: bool = "0"; global(reload); known G;
            "Logs to syslog, too: to the datagram socket /dev/log.";
        syslog_facility: Facility = "daemon"; global(reload); known G;
            "The syslog facility.";
        syslog_ident: String = "pgbouncer"; global(reload); known G;
            "The name of Howdah's lines in syslog.";
    }

    topic "Vault" {
        vault_address: String = ""; global(reload); known NOWHERE;
            "Where Vault or OpenBao is, for passwords with the source vault: https://vault.example.com:8200. In \
             howdah.toml these settings may stand in a section of their own: `[vault]` with address, namespace, \
             and so on. See docs/secrets.md.";
        vault_namespace: String = ""; global(reload); known NOWHERE;
            "The namespace in Vault.";
        vault_token_file: String = ""; global(reload); known NOWHERE;
            "A file with a token, such as an agent of Vault keeps. It is read again for each new token.";
        vault_role_id: String = ""; global(reload); known NOWHERE;
            "Logs in by AppRole: the role's id.";
        vault_secret_id_file: String = ""; global(reload); known NOWHERE;
            "A file with the secret id for vault_role_id. It is read at each login.";
        vault_kubernetes_role: String = ""; global(reload); known NOWHERE;
            "Logs in by Kubernetes: the role's name.";
        vault_kubernetes_token_file: String = "/var/run/secrets/kubernetes.io/serviceaccount/token";
            global(reload); known NOWHERE;
            "A file with the token of the pod's service account. It is read at each login.";
        vault_login_path: String = ""; global(reload); known NOWHERE;
            "Where the login is mounted in Vault. Missing: approle or kubernetes.";
    }

    topic "Looking inside" {
        http_listen_port: u16 = "0" in Numbers(0, 65535); global(reload); known NOWHERE;
            "The port of the HTTP endpoint: /metrics for Prometheus, /live and /ready for probes. 0: no \
             endpoint.";
        http_listen_addr: String = "127.0.0.1" in ADDRESS; global(reload); known NOWHERE;
            "The address of the HTTP endpoint.";
        http_page: bool = "0"; global(reload); known NOWHERE;
            "Serves a page at / of the HTTP endpoint that shows pools, waits and latencies. Where \
             http_listen_addr is not loopback it needs http_token.";
        https_ca_file: String = ""; global(reload); known NOWHERE;
            "Authorities trusted for https: where keys of tokens and credentials of clouds are fetched. Missing: \
             those of the system.";
        http_token: SecretText = "" in TOKEN; global(reload); known NOWHERE;
            "The token that requests to /metrics and the page must send: as `Authorization: Bearer ...`, or \
             once as `/?token=...`. /live and /ready need none.";
        ready_fails_when: List = "draining, paused, unreachable" in SOME_CAUSES;
            global(reload); known NOWHERE;
            "When /ready of the HTTP endpoint says 503: while no new clients are taken, while all pools \
             are paused, while no server can be had.";
        metrics_max_pools: u32 = "100"; global(reload); known NOWHERE;
            "How many pools have metrics of their own; the others are summed.";
        slow_query_time: Duration = "0";
            global(reload) user(value) database(value); known NOWHERE;
            "Logs queries that took at least this long, the wait for a server included; 0 logs none. \
             Constants are left out of their texts.";
        slow_query_values: bool = "0"; global(reload); known NOWHERE;
            "Logs slow queries with their texts as they were sent and the values of their parameters, \
             1 KB of each at most.";
        slow_query_rate: u32 = "10"; global(reload); known NOWHERE;
            "How many lines about slow queries each worker may log in a second; others are counted. A \
             pool gets at most half of the lines that other pools leave.";
        top_queries: u32 = "0"; global(reload); known NOWHERE;
            "Of how many texts of queries each worker keeps counts, for SHOW QUERIES; 0 counts none.";
        trace_endpoint: HttpUrl = ""; global(reload); known NOWHERE;
            "Where traces go: the URL of a collector that takes OTLP by HTTP, such as \
             http://127.0.0.1:4318/v1/traces; nothing: no traces.";
        trace_ratio: Share = "0.01"; global(reload); known NOWHERE;
            "The share of queries that are traced, from 0 to 1. If a query has a comment with a \
             traceparent, the sampled flag in it decides instead.";
    }

    topic "Names and the network" {
        dns_max_ttl: Duration = "15"; global(reload); known G;
            "How long the address of a host name is cached.";
        dns_nxdomain_ttl: Duration = "15"; global(reload); known G;
            "How long a failed look-up of a host name is cached.";
        dns_zone_check_period: Duration = "0"; global(reload); known G;
            "How often to look whether the DNS zones of known host names changed, by their serials; \
             names of one that did are looked up anew. 0: never.";
        resolv_conf: String = ""; global(fixed); known G;
            "A resolver file (`nameserver`, `search`, `domain`, `options`) to use instead of the \
             system's; names of /etc/hosts come first. Nothing: the system resolves names as it is set \
             up to.";
        tcp_keepalive: bool = "1"; global(reload); known G;
            "Has the kernel probe idle connections.";
        // The greatest values that Linux accepts.
        tcp_keepidle: u32 = "0" in Numbers(0, 32767); global(reload); known G;
            "Seconds before the first probe; 0 leaves it to the system.";
        tcp_keepintvl: u32 = "0" in Numbers(0, 32767); global(reload); known G;
            "Seconds between probes; 0 leaves it to the system.";
        tcp_keepcnt: u32 = "0" in Numbers(0, 127); global(reload); known G;
            "Unanswered probes before a connection is given up; 0 leaves it to the system.";
        tcp_user_timeout: u32 = "0"; global(reload); known G;
            "Milliseconds sent data may stay unacknowledged; 0 leaves it to the system.";
        tcp_socket_buffer: u32 = "0"; global(reload); known G;
            "The size of the kernel's buffer for each direction, in bytes; 0 leaves it to the system.";
        max_packet_size: u32 = "2147483647"; global(reload); known G;
            "The longest message taken from either side, in bytes.";
    }

    topic "The process" {
        // A cancel key has no room for more workers.
        workers: u32 = "0" in Numbers(0, 1024); global(fixed); known NOWHERE;
            "Worker threads, at most 1024; 0 takes as many as there are cores to use.";
        pool_spread: PoolSpread = "load"; global(reload); known NOWHERE;
            "On how many workers a pool's clients are: `load` takes as few as can carry them, `always` \
             one for every four servers of the pool.";
        io_driver: IoDriver = "auto"; global(fixed); known NOWHERE;
            "How to talk to the kernel: io_uring, epoll, or the best that works here.";
        busy_poll: u32 = "0"; global(fixed); known NOWHERE;
            "For how many microseconds Howdah polls io_uring before it sleeps, while only one client is \
             active. 100 makes that client's waits shorter, for up to twice the CPU. 0: never.";
        user: Option<String> = unset; global(fixed); known G;
            "The system user to become after start as root.";
        pidfile: String = ""; global(fixed); known G;
            "The file to write the process id to; empty means none.";
        conffile: Option<String> = unset; global(reload); known G;
            "The configuration file; once set anew, the next reload reads that one.";
        reload_on_change: bool = "0"; global(reload); known NOWHERE;
            "Looks every two seconds at the files of the configuration, and reads it again when one has \
             changed. The files of certificates are always looked at.";
        peer_id: u32 = "0" in Numbers(0, 16383); global(reload); known G;
            "Howdah's number among the peers of `[peers]`, from 1 to 16383. Cancel keys carry the number, so \
             that another peer can forward a cancel request. 0: no peering.";
    }

    topic "Without effect" {
        job_name: String = "pgbouncer"; global(fixed); known G;
            "Accepted, without effect: the name of a Windows service.";
        pkt_buf: u32 = "4096"; global(fixed); known G;
            "Accepted, without effect: the size of PgBouncer's buffers.";
        sbuf_loopcnt: u32 = "5"; global(reload); known G;
            "Accepted, without effect: PgBouncer's measure of fairness among sockets.";
    }

    topic "Entries of `[databases]`" {
        application_name: String = unset; database(value); known D;
            "The application_name servers are opened with.";
        channel_binding: ChannelBinding = unset;
            database(value) else server_channel_binding; known NOWHERE;
            "Whether SCRAM logins to its servers over TLS bind the channel; missing means \
             server_channel_binding.";
        client_encoding: String = unset; database(value); known D;
            "The client_encoding servers are opened with.";
        client_tls_sslmode: SslMode = unset; database(value); known NOWHERE;
            "What is demanded of TLS of this database's clients; missing means client_tls_sslmode. TLS \
             must be switched on there.";
        connect_query: String = unset; database(value replaces) secret(always); known D;
            "Run once on each new server; its failure is only logged.";
        datestyle: String = unset; database(value); known D;
            "The datestyle servers are opened with.";
        dbname: String = unset; database(value); known D;
            "The database's name on the server; missing means the entry's own name.";
        host: String = unset in HOSTS; database(value replaces); known D;
            "Host names or addresses, separated by commas; a leading `/` or `@` means a unix socket; \
             missing means unix_socket_dir.";
        load_balance_hosts: LoadBalance = "round-robin"; database(own replaces); known D;
            "How several hosts are used: in turn (round-robin), by chance (random), or the first until it \
             fails (disable).";
        parameters: Parameters = unset in PARAMETERS;
            database(value replaces) member(value); known NOWHERE;
            "Settings of PostgreSQL that its servers' sessions start with. What a client sets itself goes \
             before. In entries of a user, they go before those of the database. In howdah.toml: a table, \
             { statement_timeout = \"30s\" }.";
        parameters as "options": Parameters = unset in PARAMETERS; alias(value); known NOWHERE;
            "Another name of parameters, for ini files.";
        server_password as "password": SecretText = unset; database(value); known D;
            "The password of the forced user; missing means its secret from auth_file. Without `user` \
             it has no effect. In howdah.toml: server_password. Or password_file, password_command, \
             password_source: see docs/secrets.md.";
        port: Ports = "5432"; database(own replaces); known D;
            "PostgreSQL's port. If the hosts have different ports: one for each, separated by commas.";
        require_auth: RequireAuth = unset; database(value) else server_require_auth; known NOWHERE;
            "The ways in which Howdah may prove itself to its servers; missing means server_require_auth.";
        requirepeer: String = unset; database(value) else server_requirepeer; known NOWHERE;
            "The system's user that must run its servers, if they are reached by a unix socket; \
             missing means server_requirepeer.";
        reserve_pool_size as "reserve_pool": u32 = unset; alias(limit); known D;
            "An older name of reserve_pool_size.";
        server_password: SecretText = unset; member(value) alias(value); known NOWHERE;
            "The password with which servers log in. Missing: the secret of server_user in auth_file or \
             `[users]`; without server_user, the user's own.";
        forced_user as "server_user": String = unset in USER_NAME;
            member(value) alias(value); known NOWHERE;
            "Whom servers log in as. For a database it is another name of `user`: one pool for all its users, \
             but those with an entry of their own there have a pool of their own. Limits, SHOW and metrics name \
             the client's user.";
        shard_functions: List = unset; database(value); known NOWHERE;
            "Functions that touch the rows of one shard only, whatever their volatility is: `name` or \
             `schema.name`. Statements of a sharded database may call them.";
        shards: List = unset; database(value); known NOWHERE;
            "The entries of `[databases]` that have its rows, each of them some: a sharded database, which has \
             no host itself. See docs/sharding.md.";
        sslcert: String = unset; database(value replaces); known NOWHERE;
            "Howdah's certificate for this database's servers; missing means server_tls_cert_file.";
        sslkey: String = unset; database(value replaces); known NOWHERE;
            "The private key of sslcert; missing means server_tls_key_file.";
        sslmode: SslMode = unset; database(value replaces); known NOWHERE;
            "What is demanded of TLS on the way to this database's servers; missing means \
             server_tls_sslmode.";
        sslnegotiation: SslNegotiation = "postgres"; database(own replaces); known NOWHERE;
            "Whether TLS to this database's servers begins with an SSLRequest (postgres) or at once \
             (direct; PostgreSQL 17 and newer).";
        sslrootcert: String = unset; database(value replaces); known NOWHERE;
            "Authorities trusted for certificates of this database's servers, or `system` for those of the \
             system; missing means server_tls_ca_file.";
        target_session_attrs: SessionAttrs = "any"; database(own replaces); known NOWHERE;
            "Which of its hosts the database uses. `any`: all, whatever they are. Else they are copies of one \
             PostgreSQL: `primary` and `read-write` use the primary, `standby` and `read-only` the standbys, \
             `prefer-standby` the standbys, or the primary while there is none. See docs/hosts.md.";
        timezone: String = unset; database(value); known D;
            "The timezone servers are opened with.";
        unlisted_tables: String = "refuse"; database(own); known NOWHERE;
            "Where the tables are that no line of a sharded database's `[tables:NAME]` fits: on this shard, or \
             nobody knows (refuse).";
        forced_user as "user": String = unset in USER_NAME; database(value replaces); known D;
            "Opens all servers as this user, whoever the client is. In howdah.toml: server_user.";
        url: SecretText = unset in URL; database(value); known NOWHERE;
            "Hosts, ports, login, dbname and TLS in one: postgresql://USER:PASSWORD@HOST:PORT/DBNAME?sslmode=... \
             Special characters are written as %40. What the URL has must not stand in the entry, too.";
        users_only: bool = "0"; database(own); known NOWHERE;
            "Only users with an entry in `[databases.NAME.users]` may use the database.";
    }

    topic "Entries of `[users]`" {
        password: SecretText = unset; user(value); known NOWHERE;
            "The user's password, or a secret as in auth_file, before which it goes. In \
             `[databases.NAME.users]`: for this database. Or password_file, password_command; in howdah.toml \
             also an array of two passwords: clients use either. See docs/secrets.md.";
    }

    topic "Entries of `[hosts]`" {
        weight: u32 = "1" in WEIGHTS; host(own); known NOWHERE;
            "How large the host's share of the work is, beside other hosts that fit.";
    }

    topic "Entries of `[peers]`" {
        host: String = unset in HOSTS; peer(value); known P;
            "Where the peer is, written as in `[databases]`; it has no default.";
        pool_size: u32 = unset; peer(limit); known P;
            "Cancel requests that are forwarded to the peer at once; missing means default_pool_size, \
             0 sets no limit.";
        port: u16 = "6432" in Numbers(1, 65535); peer(own); known P;
            "The port that the peer listens on.";
    }
}

/// The setting with this name that is allowed in a scope.
pub fn find(scope: Scope, name: &str) -> Option<&'static Setting> {
    in_scope(scope).find(|setting| setting.name == name)
}

/// The secret setting whose value is in a file that a key names: `password` for `password_file`.
pub fn find_in_file(scope: Scope, key: &str) -> Option<&'static Setting> {
    let setting = find(scope, key.strip_suffix("_file")?)?;
    Some(setting).filter(|setting| setting.is_secret() && find(scope, key).is_none())
}

/// The secret setting that a key names together with where the secret comes from: `password` for
/// `password_command` (true) and for `password_source`.
pub fn find_fetched(scope: Scope, key: &str) -> Option<(&'static Setting, bool)> {
    let command = key.strip_suffix("_command").map(|name| (name, true));
    let (name, is_command) = command.or_else(|| Some((key.strip_suffix("_source")?, false)))?;
    let setting = find(scope, name).filter(|setting| setting.takes_sources())?;
    Some((setting, is_command))
}

/// All settings that are allowed in a scope.
pub fn in_scope(scope: Scope) -> impl Iterator<Item = &'static Setting> {
    let all = SETTINGS.iter();
    all.filter(move |setting| setting.is_allowed_in(scope))
}

/// The settings of `[pgbouncer]` in the order of SHOW CONFIG: by name, but for PgBouncer's one
/// exception.
pub(super) fn in_shown_order() -> Vec<&'static Setting> {
    let mut all: Vec<_> = in_scope(Scope::Global).collect();
    all.sort_by_key(|setting| match setting.name {
        "pool_mode" => "pool_a",
        name => name,
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_read_and_shown_back() {
        let globals = Globals::default();
        for setting in in_scope(Scope::Global) {
            let shown = (setting.global.unwrap().show)(&globals);
            let expected = match setting.name {
                "unix_socket_mode" => Some("511"), // PgBouncer, too, shows it in decimal.
                "verbose" => Some("0"),
                _ => setting.default,
            };
            assert_eq!(shown.as_deref(), expected, "{}", setting.name);
        }
        for setting in SETTINGS {
            let default = setting.default;
            assert!(
                default.is_none_or(|text| setting.can_be(text)),
                "{}",
                setting.name
            );
        }
    }

    #[test]
    fn names_are_unique_in_each_scope() {
        for scope in Scope::ALL {
            let mut names: Vec<_> = in_scope(scope).map(|s| s.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{scope:?}");
        }
    }

    #[test]
    fn the_order_is_that_of_show_config() {
        let mut names: Vec<_> = in_shown_order().iter().map(|s| s.name).collect();
        let mode = names.iter().position(|&n| n == "pool_mode").unwrap();
        assert_eq!(
            names[mode + 1],
            "pool_idle_timeout",
            "PgBouncer's one exception"
        );
        names.swap(mode, mode + 1);
        assert!(names.is_sorted(), "{names:?}");
        assert_eq!(names.len(), 100 + 60, "PgBouncer's on Linux and ours");
    }

    #[test]
    fn pgbouncer_knows_as_many_settings_as_its_release_has() {
        let known = |scope| in_scope(scope).filter(move |s| s.is_known_to_pgbouncer(scope));
        let counts = Scope::ALL.map(|scope| known(scope).count());
        // From main.c and loader.c of PgBouncer 1.25.2, without Windows' `service_name`.
        assert_eq!(counts, [98, 22, 9, 3, 0, 0]);
        for setting in SETTINGS {
            let mut places = setting.known_to_pgbouncer.iter();
            assert!(
                places.all(|&scope| setting.is_allowed_in(scope)),
                "{}",
                setting.name
            );
        }
    }

    #[test]
    fn a_field_is_assigned_shown_and_copied() {
        let mut globals = Globals::default();
        let port = find(Scope::Global, "listen_port").unwrap().global.unwrap();
        assert!((port.assign)(&mut globals, "6543") && globals.listen_port == 6543);
        assert!(!(port.assign)(&mut globals, "x") && globals.listen_port == 6543);
        assert_eq!((port.show)(&globals).as_deref(), Some("6543"));
        let mut fresh = Globals::default();
        (port.copy)(&mut fresh, &globals);
        assert_eq!(fresh.listen_port, 6543);
    }
}
