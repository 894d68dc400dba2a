//! Variables of the two usual images of PgBouncer: `edoburu/pgbouncer` and `bitnami/pgbouncer`. Their
//! entrypoints write an ini file from the variables. Here the same variables become the same settings, with the
//! images' defaults, and nothing is written. A variable that an entrypoint does not know means nothing.

use std::collections::HashMap;

use super::environment::{self, OPTION};
use super::quotes::quoted;
use super::surroundings::Surroundings;
use super::written::WrittenLine;
use super::{Mistake, Place, Scope, connstr, userlist};

/// A variable and the global setting that it gives.
type Row = (&'static str, &'static str);

/// A value and the variable that has it.
type Value = (String, Place);

/// What the entrypoint of an image makes of variables.
struct Image {
    name: &'static str,
    /// Each of these variables says that the image is meant, and so does each variable of `settings` that
    /// begins with the prefix.
    signs: &'static [&'static str],
    prefix: Option<&'static str>,
    settings: &'static [Row],
    /// The settings that count where no variable has them.
    defaults: &'static [Row],
    /// `NAME_FILE` names a file with the value of `NAME`.
    has_files: bool,
    databases: fn(&mut Reader<'_>, &mut Vec<WrittenLine>),
}

const IMAGES: [Image; 2] = [
    Image {
        name: "edoburu/pgbouncer",
        signs: &[
            "DATABASE_URL",
            "DATABASE_URLS",
            "DB_HOST",
            "DB_PORT",
            "DB_NAME",
            "DB_USER",
            "DB_PASSWORD",
        ],
        prefix: None,
        settings: &EDOBURU,
        defaults: &[
            ("listen_addr", "0.0.0.0"),
            ("listen_port", "5432"),
            ("unix_socket_dir", ""),
            ("auth_type", "md5"),
            ("ignore_startup_parameters", "extra_float_digits"),
            ("admin_users", "postgres"),
        ],
        has_files: false,
        databases: edoburu,
    },
    Image {
        name: "bitnami/pgbouncer",
        signs: &[
            "POSTGRESQL_HOST",
            "POSTGRESQL_PORT",
            "POSTGRESQL_DATABASE",
            "POSTGRESQL_USERNAME",
            "POSTGRESQL_PASSWORD",
            "PGBOUNCER_DATABASE",
            "PGBOUNCER_DSN_0",
            "PGBOUNCER_USERLIST",
            "PGBOUNCER_AUTH_USER",
            "PGBOUNCER_CONNECT_QUERY",
        ],
        prefix: Some("PGBOUNCER_"),
        settings: &BITNAMI,
        defaults: &[
            ("listen_addr", "0.0.0.0"),
            ("listen_port", "6432"),
            ("unix_socket_dir", "/tmp/"),
            ("unix_socket_mode", "0777"),
            ("auth_type", "scram-sha-256"),
            ("ignore_startup_parameters", "extra_float_digits"),
            ("stats_period", "60"),
            ("client_tls_sslmode", "disable"),
            ("server_tls_sslmode", "disable"),
        ],
        has_files: true,
        databases: bitnami,
    },
];

/// The settings that `edoburu/pgbouncer` takes: each is its own name in capitals.
const EDOBURU: [Row; 73] = [
    ("LISTEN_ADDR", "listen_addr"),
    ("LISTEN_PORT", "listen_port"),
    ("UNIX_SOCKET_DIR", "unix_socket_dir"),
    ("AUTH_HBA_FILE", "auth_hba_file"),
    ("AUTH_TYPE", "auth_type"),
    ("AUTH_USER", "auth_user"),
    ("AUTH_QUERY", "auth_query"),
    ("AUTH_DBNAME", "auth_dbname"),
    ("POOL_MODE", "pool_mode"),
    ("MAX_CLIENT_CONN", "max_client_conn"),
    ("POOL_SIZE", "pool_size"),
    ("DEFAULT_POOL_SIZE", "default_pool_size"),
    ("MIN_POOL_SIZE", "min_pool_size"),
    ("RESERVE_POOL_SIZE", "reserve_pool_size"),
    ("RESERVE_POOL_TIMEOUT", "reserve_pool_timeout"),
    ("MAX_DB_CONNECTIONS", "max_db_connections"),
    ("MAX_USER_CONNECTIONS", "max_user_connections"),
    ("SERVER_ROUND_ROBIN", "server_round_robin"),
    ("IGNORE_STARTUP_PARAMETERS", "ignore_startup_parameters"),
    ("DISABLE_PQEXEC", "disable_pqexec"),
    ("APPLICATION_NAME_ADD_HOST", "application_name_add_host"),
    ("TIMEZONE", "timezone"),
    ("MAX_PREPARED_STATEMENTS", "max_prepared_statements"),
    ("LOG_CONNECTIONS", "log_connections"),
    ("LOG_DISCONNECTIONS", "log_disconnections"),
    ("LOG_POOLER_ERRORS", "log_pooler_errors"),
    ("LOG_STATS", "log_stats"),
    ("STATS_PERIOD", "stats_period"),
    ("VERBOSE", "verbose"),
    ("ADMIN_USERS", "admin_users"),
    ("STATS_USERS", "stats_users"),
    ("LOGFILE", "logfile"),
    ("SERVER_RESET_QUERY", "server_reset_query"),
    ("SERVER_RESET_QUERY_ALWAYS", "server_reset_query_always"),
    ("SERVER_CHECK_DELAY", "server_check_delay"),
    ("SERVER_CHECK_QUERY", "server_check_query"),
    ("SERVER_LIFETIME", "server_lifetime"),
    ("SERVER_IDLE_TIMEOUT", "server_idle_timeout"),
    ("SERVER_CONNECT_TIMEOUT", "server_connect_timeout"),
    ("SERVER_LOGIN_RETRY", "server_login_retry"),
    ("CLIENT_LOGIN_TIMEOUT", "client_login_timeout"),
    ("AUTODB_IDLE_TIMEOUT", "autodb_idle_timeout"),
    ("DNS_MAX_TTL", "dns_max_ttl"),
    ("DNS_NXDOMAIN_TTL", "dns_nxdomain_ttl"),
    ("CLIENT_TLS_SSLMODE", "client_tls_sslmode"),
    ("CLIENT_TLS_KEY_FILE", "client_tls_key_file"),
    ("CLIENT_TLS_CERT_FILE", "client_tls_cert_file"),
    ("CLIENT_TLS_CA_FILE", "client_tls_ca_file"),
    ("CLIENT_TLS_PROTOCOLS", "client_tls_protocols"),
    ("CLIENT_TLS_CIPHERS", "client_tls_ciphers"),
    ("CLIENT_TLS_ECDHCURVE", "client_tls_ecdhcurve"),
    ("CLIENT_TLS_DHEPARAMS", "client_tls_dheparams"),
    ("SERVER_TLS_SSLMODE", "server_tls_sslmode"),
    ("SERVER_TLS_CA_FILE", "server_tls_ca_file"),
    ("SERVER_TLS_KEY_FILE", "server_tls_key_file"),
    ("SERVER_TLS_CERT_FILE", "server_tls_cert_file"),
    ("SERVER_TLS_PROTOCOLS", "server_tls_protocols"),
    ("SERVER_TLS_CIPHERS", "server_tls_ciphers"),
    ("QUERY_TIMEOUT", "query_timeout"),
    ("QUERY_WAIT_TIMEOUT", "query_wait_timeout"),
    ("CLIENT_IDLE_TIMEOUT", "client_idle_timeout"),
    ("IDLE_TRANSACTION_TIMEOUT", "idle_transaction_timeout"),
    ("PKT_BUF", "pkt_buf"),
    ("MAX_PACKET_SIZE", "max_packet_size"),
    ("LISTEN_BACKLOG", "listen_backlog"),
    ("SBUF_LOOPCNT", "sbuf_loopcnt"),
    ("SUSPEND_TIMEOUT", "suspend_timeout"),
    ("TCP_DEFER_ACCEPT", "tcp_defer_accept"),
    ("TCP_KEEPALIVE", "tcp_keepalive"),
    ("TCP_KEEPCNT", "tcp_keepcnt"),
    ("TCP_KEEPIDLE", "tcp_keepidle"),
    ("TCP_KEEPINTVL", "tcp_keepintvl"),
    ("TCP_USER_TIMEOUT", "tcp_user_timeout"),
];

/// The settings that `bitnami/pgbouncer` takes.
const BITNAMI: [Row; 44] = [
    ("PGBOUNCER_PORT", "listen_port"),
    ("PGBOUNCER_LISTEN_ADDRESS", "listen_addr"),
    ("PGBOUNCER_SOCKET_DIR", "unix_socket_dir"),
    ("PGBOUNCER_SOCKET_MODE", "unix_socket_mode"),
    ("PGBOUNCER_SOCKET_GROUP", "unix_socket_group"),
    ("PGBOUNCER_LOG_FILE", "logfile"),
    ("PGBOUNCER_AUTH_TYPE", "auth_type"),
    ("PGBOUNCER_AUTH_HBA_FILE", "auth_hba_file"),
    ("PGBOUNCER_AUTH_IDENT_FILE", "auth_ident_file"),
    ("PGBOUNCER_AUTH_QUERY", "auth_query"),
    ("PGBOUNCER_STATS_USERS", "stats_users"),
    ("PGBOUNCER_CLIENT_TLS_SSLMODE", "client_tls_sslmode"),
    ("PGBOUNCER_SERVER_TLS_SSLMODE", "server_tls_sslmode"),
    ("PGBOUNCER_SERVER_TLS_CA_FILE", "server_tls_ca_file"),
    ("PGBOUNCER_SERVER_TLS_CERT_FILE", "server_tls_cert_file"),
    ("PGBOUNCER_SERVER_TLS_KEY_FILE", "server_tls_key_file"),
    ("PGBOUNCER_QUERY_WAIT_TIMEOUT", "query_wait_timeout"),
    ("PGBOUNCER_POOL_MODE", "pool_mode"),
    ("PGBOUNCER_MAX_CLIENT_CONN", "max_client_conn"),
    ("PGBOUNCER_MAX_DB_CONNECTIONS", "max_db_connections"),
    (
        "PGBOUNCER_IDLE_TRANSACTION_TIMEOUT",
        "idle_transaction_timeout",
    ),
    ("PGBOUNCER_SERVER_IDLE_TIMEOUT", "server_idle_timeout"),
    ("PGBOUNCER_SERVER_RESET_QUERY", "server_reset_query"),
    ("PGBOUNCER_DEFAULT_POOL_SIZE", "default_pool_size"),
    ("PGBOUNCER_MIN_POOL_SIZE", "min_pool_size"),
    ("PGBOUNCER_RESERVE_POOL_SIZE", "reserve_pool_size"),
    ("PGBOUNCER_RESERVE_POOL_TIMEOUT", "reserve_pool_timeout"),
    (
        "PGBOUNCER_IGNORE_STARTUP_PARAMETERS",
        "ignore_startup_parameters",
    ),
    ("PGBOUNCER_LOG_CONNECTIONS", "log_connections"),
    ("PGBOUNCER_LOG_DISCONNECTIONS", "log_disconnections"),
    ("PGBOUNCER_LOG_POOLER_ERRORS", "log_pooler_errors"),
    ("PGBOUNCER_LOG_STATS", "log_stats"),
    ("PGBOUNCER_STATS_PERIOD", "stats_period"),
    ("PGBOUNCER_SERVER_ROUND_ROBIN", "server_round_robin"),
    ("PGBOUNCER_SERVER_FAST_CLOSE", "server_fast_close"),
    ("PGBOUNCER_SERVER_LIFETIME", "server_lifetime"),
    ("PGBOUNCER_SERVER_CONNECT_TIMEOUT", "server_connect_timeout"),
    ("PGBOUNCER_SERVER_LOGIN_RETRY", "server_login_retry"),
    ("PGBOUNCER_CLIENT_LOGIN_TIMEOUT", "client_login_timeout"),
    ("PGBOUNCER_AUTODB_IDLE_TIMEOUT", "autodb_idle_timeout"),
    ("PGBOUNCER_QUERY_TIMEOUT", "query_timeout"),
    ("PGBOUNCER_CLIENT_IDLE_TIMEOUT", "client_idle_timeout"),
    (
        "PGBOUNCER_MAX_PREPARED_STATEMENTS",
        "max_prepared_statements",
    ),
    (
        "PGBOUNCER_APPLICATION_NAME_ADD_HOST",
        "application_name_add_host",
    ),
];

/// The settings of clients' TLS that `bitnami/pgbouncer` writes if there is TLS, with their defaults.
const BITNAMI_CLIENT_TLS: [(&str, &str, &str); 4] = [
    ("PGBOUNCER_CLIENT_TLS_CA_FILE", "client_tls_ca_file", ""),
    ("PGBOUNCER_CLIENT_TLS_CERT_FILE", "client_tls_cert_file", ""),
    ("PGBOUNCER_CLIENT_TLS_KEY_FILE", "client_tls_key_file", ""),
    ("PGBOUNCER_CLIENT_TLS_CIPHERS", "client_tls_ciphers", "fast"),
];

/// The settings of servers' TLS that `bitnami/pgbouncer` writes if there is TLS, with their defaults.
const BITNAMI_SERVER_TLS: [(&str, &str, &str); 2] = [
    ("PGBOUNCER_SERVER_TLS_CIPHERS", "server_tls_ciphers", "fast"),
    (
        "PGBOUNCER_SERVER_TLS_PROTOCOLS",
        "server_tls_protocols",
        "secure",
    ),
];

/// The auth_file of `edoburu/pgbouncer`, if it is mounted.
const EDOBURU_USERS: &str = "/etc/pgbouncer/userlist.txt";
/// The auth_file of `bitnami/pgbouncer`, if it is mounted.
const BITNAMI_USERS: &str = "/bitnami/pgbouncer/conf/userlist.txt";

/// The first variable that belongs to one of the images.
pub(super) fn first_variable(surroundings: &mut dyn Surroundings) -> Option<String> {
    IMAGES.iter().find_map(|image| image.sign(surroundings))
}

/// Reads the variables of an image. `None` if there are none.
pub(super) fn lines(
    surroundings: &mut dyn Surroundings,
    mistakes: &mut Vec<Mistake>,
) -> Option<Vec<WrittenLine>> {
    let mut meant = IMAGES.iter().filter_map(|image| {
        let sign = image.sign(surroundings)?;
        Some((image, sign))
    });
    let (image, sign) = meant.next()?;
    if let Some((other, of_other)) = meant.next() {
        let text = format!(
            "{sign} is a variable of the image {}, {of_other} of {}",
            image.name, other.name
        );
        let remedy = "take those of one image away";
        mistakes.push(Mistake::new(
            Some(&Place::variable(&of_other)),
            text,
            remedy,
        ));
        return Some(Vec::new());
    }
    let mut reader = Reader {
        image,
        surroundings,
        mistakes,
        files: HashMap::new(),
    };
    let mut lines = vec![WrittenLine::head(
        [Scope::Global.section().to_owned()].into(),
        Place::variable(OPTION),
    )];
    for (setting, value) in image.defaults {
        lines.push(global(setting, (*value).into(), Place::variable(OPTION)));
    }
    for (variable, setting) in image.settings {
        if let Some((value, place)) = reader.value(variable) {
            lines.push(global(setting, value, place));
        }
    }
    (image.databases)(&mut reader, &mut lines);
    Some(lines)
}

impl Image {
    /// The first variable that says that this image is meant.
    fn sign(&self, surroundings: &mut dyn Surroundings) -> Option<String> {
        let of_prefix = self.settings.iter().map(|(variable, _)| *variable);
        let of_prefix =
            of_prefix.filter(|name| self.prefix.is_some_and(|prefix| name.starts_with(prefix)));
        let mut names = self.signs.iter().copied().chain(of_prefix);
        names.find_map(|name| {
            if given(surroundings, name).is_some() {
                return Some(name.to_owned());
            }
            let file = format!("{name}_FILE");
            (self.has_files && given(surroundings, &file).is_some()).then_some(file)
        })
    }
}

/// Reads an image's variables.
struct Reader<'a> {
    image: &'static Image,
    surroundings: &'a mut dyn Surroundings,
    mistakes: &'a mut Vec<Mistake>,
    /// What was read of files, by the variables that name the files.
    files: HashMap<String, Option<String>>,
}

impl Reader<'_> {
    /// The value of a variable, or of the file that the variable with `_FILE` names, which goes first.
    fn value(&mut self, name: &str) -> Option<Value> {
        let file = format!("{name}_FILE");
        if self.image.has_files
            && let Some(path) = given(self.surroundings, &file)
        {
            let value = self.text_of(&file, &path)?;
            return Some((value, Place::variable(&file)));
        }
        let value = given(self.surroundings, name)?;
        Some((value, Place::variable(name)))
    }

    /// The text of a file that a variable names, as a shell reads it: without line ends behind it, and an empty
    /// one counts as none.
    fn text_of(&mut self, variable: &str, path: &str) -> Option<String> {
        if let Some(read) = self.files.get(variable) {
            return read.clone();
        }
        let read = match self.surroundings.secret(path) {
            Ok(text) => Some(text.trim_end_matches('\n').to_owned()),
            Err(why) => {
                let place = Place::variable(variable);
                self.mistakes.push(environment::unread(&place, path, &why));
                None
            }
        };
        let read = read.filter(|text| !text.is_empty());
        self.files.insert(variable.to_owned(), read.clone());
        read
    }

    /// The value of a variable, or a default.
    fn or(&mut self, name: &str, other: &str) -> Value {
        self.value(name).unwrap_or_else(|| default(other))
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.value(name).map(|(value, _)| value)
    }

    fn mistake(&mut self, variable: &str, text: impl Into<String>, remedy: &str) {
        let place = Place::variable(variable);
        self.mistakes
            .push(Mistake::new(Some(&place), text.into(), remedy));
    }

    fn is_there(&mut self, path: &str) -> bool {
        let found = self.surroundings.files(path);
        found.is_ok_and(|found| !found.is_empty())
    }
}

/// A value that no variable has.
fn default(text: &str) -> Value {
    (text.into(), Place::variable(OPTION))
}

/// The value of a variable. An empty one counts as none, and so does the link to a port that Kubernetes
/// makes for each Service: `PGBOUNCER_PORT=tcp://10.0.0.1:6432`.
fn given(surroundings: &mut dyn Surroundings, name: &str) -> Option<String> {
    let value = surroundings.variable(name)?;
    let is_link = name.ends_with("_PORT")
        && ["tcp://", "udp://"]
            .iter()
            .any(|begin| value.starts_with(begin));
    (!value.is_empty() && !is_link).then_some(value)
}

/// A database as `edoburu/pgbouncer` takes it from variables.
struct Target {
    database: String,
    host: Value,
    port: Value,
    user: Value,
    password: Option<Value>,
}

/// The databases and the user of `edoburu/pgbouncer`. Servers log in as their clients; the user is
/// `auth_user` of the entries, and the one user that is known without `auth_query`.
fn edoburu(reader: &mut Reader<'_>, lines: &mut Vec<WrittenLine>) {
    // A URL without a port has that of the one before, as in the image.
    let mut port = reader.or("DB_PORT", "5432");
    let targets: Vec<_> = match (reader.value("DATABASE_URLS"), reader.value("DATABASE_URL")) {
        (Some((urls, place)), _) => {
            let urls = urls.split(',').filter(|url| !url.is_empty());
            urls.filter_map(|url| edoburu_url(reader, url, &place, &mut port))
                .collect()
        }
        (None, Some((url, place))) => edoburu_url(reader, &url, &place, &mut port)
            .into_iter()
            .collect(),
        (None, None) => edoburu_parts(reader).into_iter().collect(),
    };
    let file = reader.value("AUTH_FILE");
    let is_named = file.is_some();
    let (path, place) = file.unwrap_or_else(|| default(EDOBURU_USERS));
    let mut known = Vec::new();
    if is_named || reader.is_there(&path) {
        if let Ok(text) = reader.surroundings.secret(&path) {
            known = userlist::parse(&text).users;
        }
        lines.push(global("auth_file", path, place));
    }
    let encoding = reader.value("CLIENT_ENCODING");
    for target in targets {
        let place = target.host.1.clone();
        let is_known = known.iter().any(|(name, _)| *name == target.user.0);
        if let Some(password) = target.password.filter(|_| !is_known) {
            known.push((target.user.0.clone(), String::new()));
            user(lines, &target.user.0, password);
        }
        let mut pairs = vec![
            ("host", target.host),
            ("port", target.port),
            ("auth_user", target.user),
        ];
        pairs.extend(encoding.clone().map(|value| ("client_encoding", value)));
        database(lines, &target.database, pairs, &place);
    }
}

/// What `DB_HOST` and its like say.
fn edoburu_parts(reader: &mut Reader<'_>) -> Option<Target> {
    let Some(host) = reader.value("DB_HOST") else {
        reader.mistake("DB_HOST", "there is no host", "set DB_HOST or DATABASE_URL");
        return None;
    };
    Some(Target {
        host,
        database: unquoted(&reader.or("DB_NAME", "*").0),
        port: reader.or("DB_PORT", "5432"),
        user: reader.or("DB_USER", "postgres"),
        password: reader.value("DB_PASSWORD"),
    })
}

/// Takes a URL apart as the image's entrypoint does: nothing is decoded, and user and password end at the
/// last `@`.
fn edoburu_url(
    reader: &mut Reader<'_>,
    text: &str,
    place: &Place,
    port: &mut Value,
) -> Option<Target> {
    let target = edoburu_target(text.trim(), place, port);
    if let Err(remedy) = &target {
        let what = "a URL can't be used";
        let mistake = Mistake::new(Some(place), what, *remedy);
        reader.mistakes.push(mistake);
    }
    target.ok()
}

fn edoburu_target(
    text: &str,
    place: &Place,
    last_port: &mut Value,
) -> Result<Target, &'static str> {
    let (_, rest) = text
        .split_once("://")
        .ok_or("write postgres://USER:PASSWORD@HOST:PORT/DATABASE")?;
    let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    if host.is_empty() {
        return Err("it has no host: write postgres://USER:PASSWORD@HOST:PORT/DATABASE");
    }
    let value = |text: String| (text, place.clone());
    if !port.is_empty() {
        // What stands there may be a part of a password.
        port.parse::<u16>().map_err(
            |_| "its port is no number: write postgres://USER:PASSWORD@HOST:PORT/DATABASE",
        )?;
        *last_port = value(port.into());
    }
    if database.contains(['?', '/']) {
        return Err(
            "the image takes no parameters in it: HOWDAH_DATABASE_URL does, in libpq's grammar",
        );
    }
    let or = |text: &str, default: &str| match text {
        "" => default.to_owned(),
        text => text.to_owned(),
    };
    Ok(Target {
        database: unquoted(&or(database, "*")),
        host: value(host.into()),
        port: last_port.clone(),
        user: value(or(user, "postgres")),
        password: (!password.is_empty()).then(|| value(password.into())),
    })
}

/// The databases and users of `bitnami/pgbouncer`.
fn bitnami(reader: &mut Reader<'_>, lines: &mut Vec<WrittenLine>) {
    let name = unquoted(&reader.or("PGBOUNCER_DATABASE", "postgres").0);
    let account = reader.or("POSTGRESQL_USERNAME", "postgres");
    let password = reader.value("POSTGRESQL_PASSWORD");
    let has_trust = reader.text("PGBOUNCER_AUTH_TYPE").as_deref() == Some("trust");
    if password.is_none() && !has_trust && !reader.files.contains_key("POSTGRESQL_PASSWORD_FILE") {
        let remedy = "set POSTGRESQL_PASSWORD or POSTGRESQL_PASSWORD_FILE";
        reader.mistake("POSTGRESQL_PASSWORD", "there is no password", remedy);
    }
    if reader.text("PGBOUNCER_EXTRA_FLAGS").is_some() {
        let remedy = "write the options as the arguments of the container";
        let text = "Howdah takes no options from a variable";
        reader.mistake("PGBOUNCER_EXTRA_FLAGS", text, remedy);
    }
    lines.push(global("admin_users", account.0.clone(), account.1.clone()));
    bitnami_tls(reader, lines);

    let host = reader.or("POSTGRESQL_HOST", "postgresql");
    let place = host.1.clone();
    let mut pairs = vec![
        ("host", host),
        ("port", reader.or("POSTGRESQL_PORT", "5432")),
    ];
    if is_yes(reader.text("PGBOUNCER_SET_DATABASE_USER")) {
        pairs.push(("user", account.clone()));
    }
    if is_yes(reader.text("PGBOUNCER_SET_DATABASE_PASSWORD")) {
        pairs.extend(password.clone().map(|password| ("password", password)));
    }
    if name != "*" {
        pairs.push(("dbname", reader.or("POSTGRESQL_DATABASE", &name)));
    }
    pairs.extend(
        reader
            .value("PGBOUNCER_AUTH_USER")
            .map(|value| ("auth_user", value)),
    );
    if let Some((text, place)) = reader.value("PGBOUNCER_CONNECT_QUERY") {
        // The image writes the text between quotes as it stands, so its own quotes are doubled.
        match quoted(&format!("'{text}'"), '\'') {
            Some((text, "")) => pairs.push(("connect_query", (text, place))),
            _ => {
                let text = "a single quote stands alone";
                let remedy = "write two of them, as between the quotes of pgbouncer.ini";
                reader
                    .mistakes
                    .push(Mistake::new(Some(&place), text, remedy));
            }
        }
    }
    database(lines, &name, pairs, &place);
    for number in 0.. {
        let variable = format!("PGBOUNCER_DSN_{number}");
        let Some((dsn, place)) = reader.value(&variable) else {
            break;
        };
        bitnami_dsn(reader, lines, &dsn, &place);
    }

    if reader.is_there(BITNAMI_USERS) {
        let (path, place) = default(BITNAMI_USERS);
        return lines.push(global("auth_file", path, place));
    }
    let (account, place) = account;
    user(lines, &account, password.unwrap_or((String::new(), place)));
    if let Some((text, place)) = reader.value("PGBOUNCER_USERLIST") {
        let listed = userlist::parse(&text);
        if let Some((line, why)) = listed.broken {
            let text = format!("line {line} can't be read");
            reader.mistakes.push(Mistake::new(Some(&place), text, why));
        }
        for (name, secret) in listed.users {
            user(lines, &name, (secret, place.clone()));
        }
    }
}

/// The settings of TLS that the image writes only where TLS is on.
fn bitnami_tls(reader: &mut Reader<'_>, lines: &mut Vec<WrittenLine>) {
    let is_on = |mode: Option<String>| mode.is_some_and(|mode| mode != "disable");
    let clients = is_on(reader.text("PGBOUNCER_CLIENT_TLS_SSLMODE"));
    let servers = is_on(reader.text("PGBOUNCER_SERVER_TLS_SSLMODE"))
        || reader.text("PGBOUNCER_SERVER_TLS_CERT_FILE").is_some()
        || reader.text("PGBOUNCER_SERVER_TLS_KEY_FILE").is_some();
    let rows = BITNAMI_CLIENT_TLS.iter().filter(|_| clients);
    let rows = rows.chain(BITNAMI_SERVER_TLS.iter().filter(|_| servers));
    for (variable, setting, default) in rows {
        let (value, place) = reader.or(variable, default);
        if !value.is_empty() {
            lines.push(global(setting, value, place));
        }
    }
}

/// The entry of a variable with a line of `[databases]`, such as `shop=host=10.0.0.5 dbname=shop`.
fn bitnami_dsn(reader: &mut Reader<'_>, lines: &mut Vec<WrittenLine>, dsn: &str, place: &Place) {
    let parsed = match dsn.split_once('=') {
        Some((name, text)) if !name.trim().is_empty() => {
            connstr::parse(text.trim()).map(|pairs| (unquoted(name.trim()), pairs))
        }
        _ => Err("write NAME=host=HOST dbname=DATABASE".into()),
    };
    match parsed {
        Ok((name, pairs)) => {
            let value = |text: &String| (text.clone(), place.clone());
            let pairs = pairs.iter().map(|pair| (&*pair.key, value(&pair.value)));
            database(lines, &name, pairs.collect(), place);
        }
        Err(why) => {
            let text = "an entry of [databases] can't be read";
            reader.mistakes.push(Mistake::new(Some(place), text, why));
        }
    }
}

/// The name of a database. Like in pgbouncer.ini, it may stand between double quotes.
fn unquoted(name: &str) -> String {
    match quoted(name, '"') {
        Some((inside, "")) => inside,
        _ => name.to_owned(),
    }
}

/// What the image takes for yes.
fn is_yes(value: Option<String>) -> bool {
    value.is_some_and(|value| ["1", "yes", "true"].contains(&&*value.to_ascii_lowercase()))
}

fn global(setting: &str, value: String, place: Place) -> WrittenLine {
    WrittenLine {
        key: Some(setting.into()),
        text: value,
        ..WrittenLine::head([Scope::Global.section().to_owned()].into(), place)
    }
}

/// An entry of `[databases]`. Its values may be a part of a URL, so none is shown.
fn database(lines: &mut Vec<WrittenLine>, name: &str, pairs: Vec<(&str, Value)>, place: &Place) {
    let path = [Scope::Database.section().to_owned(), name.to_owned()];
    let head = WrittenLine {
        is_hidden: true,
        ..WrittenLine::head(path.into(), place.clone())
    };
    lines.push(head.clone());
    lines.extend(pairs.into_iter().map(|(key, (text, place))| WrittenLine {
        key: Some(key.into()),
        text,
        place,
        ..head.clone()
    }));
}

/// A user with a password, as a line of the auth_file would be.
fn user(lines: &mut Vec<WrittenLine>, name: &str, (password, place): Value) {
    let path = [Scope::User.section().to_owned(), name.to_owned()];
    let head = WrittenLine {
        is_native: true,
        is_hidden: true,
        ..WrittenLine::head(path.into(), place)
    };
    lines.push(head.clone());
    lines.push(WrittenLine {
        key: Some("password".into()),
        text: password,
        ..head
    });
}
