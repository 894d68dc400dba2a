//! Whether PostgreSQL can be reached as the settings say: `howdah --check --connect`.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use howdah_pooler::config::{
    Config, Database, Host, HostPort, Secret, SecretSource, SecretText, SslMode,
};
use openssl::ssl::{SslConnector, SslFiletype, SslMethod, SslVerifyMode};
use openssl::x509::store::X509StoreBuilder;

use crate::boot::expected_servers;
use crate::check::grouped;
use crate::log;
use crate::look::{Failed, PATIENCE, connect_tcp, is_ours_to_resolve, try_socket};
use crate::print::print;

/// Asks whether there is TLS. PostgreSQL answers with `S` or `N`.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// The settings of PostgreSQL that say how many servers it takes.
const ROOM: &str = "select current_setting('max_connections')::int \
     - current_setting('superuser_reserved_connections')::int \
     - coalesce(current_setting('reserved_connections', true), '0')::int";

/// A host, what leads to it, and how many servers the settings allow there.
struct Place<'a> {
    to: &'a HostPort,
    servers: u64,
    /// What PostgreSQL leaves for users, if there was a login.
    room: Option<u64>,
}

/// Looks at all hosts of all databases, one line each. False if a host can't be used.
pub fn try_all(config: &Config) -> bool {
    let mut good = true;
    let mut places: Vec<Place<'_>> = Vec::new();
    for database in config.databases.values().chain(&config.fallback) {
        if database.hosts.is_empty() && database.shards.is_none() {
            line(&format!("FAIL {}: no host: write host=", database.name));
            good = false;
        }
        for to in &database.hosts {
            let name = &database.name;
            if is_ours_to_resolve(config, &to.host) {
                line(&format!(
                    "SKIP {name} at {to}: this check asks the system for names, and Howdah asks the name \
                     servers of resolv_conf"
                ));
                continue;
            }
            let seen = try_host(config, database, to);
            let room = match &seen {
                Ok((text, room)) => {
                    line(&format!("OK {name} at {to}: {text}"));
                    *room
                }
                Err((why, remedy)) => {
                    good = false;
                    line(&format!("FAIL {name} at {to}: {why}: {remedy}"));
                    None
                }
            };
            let servers = expected_servers(config, database);
            match places.iter_mut().find(|place| place.to == to) {
                Some(place) => {
                    place.servers = place.servers.saturating_add(servers);
                    place.room = place.room.or(room);
                }
                None => places.push(Place { to, servers, room }),
            }
        }
    }
    places.iter().for_each(compare);
    good
}

fn line(text: &str) {
    print(&format!("{text}\n"));
}

/// Compares what pools may open with what PostgreSQL takes.
fn compare(place: &Place<'_>) {
    let Some(room) = place.room else { return };
    let (name, servers) = (place.to, grouped(place.servers));
    let room_text = grouped(room);
    if place.servers > room {
        line(&format!(
            "WARNING {name}: pools may open {servers} servers, and max_connections leaves {room_text} \
             for users: lower default_pool_size, set max_db_connections, or raise max_connections"
        ));
    } else {
        line(&format!(
            "OK {name}: pools may open {servers} of the {room_text} connections for users"
        ));
    }
}

/// Tries one host of a database as far as possible: what worked, and how many connections
/// PostgreSQL has for users.
fn try_host(
    config: &Config,
    database: &Database,
    to: &HostPort,
) -> Result<(String, Option<u64>), Failed> {
    let tls = match &to.host {
        Host::Unix(_) => {
            try_socket(&to.to_string())?;
            "the socket answers".to_string()
        }
        Host::Name(name) => try_tcp(config, database, (name, to.port))?,
        Host::Ip(address) | Host::Address { ip: address, .. } => {
            try_tcp(config, database, (&address.to_string(), to.port))?
        }
    };
    if database.name == "*" {
        return Ok((tls, None));
    }
    let Some((user, password)) = credentials(config, database) else {
        return Ok((
            format!("{tls}; no login tried: no user's password is known in clear text"),
            None,
        ));
    };
    let room = log_in(config, database, to, user, password)?;
    Ok((format!("{tls}; logged in as {user}"), room))
}

/// Resolves, connects, and shakes hands as the settings say: what became of TLS.
fn try_tcp(
    config: &Config,
    database: &Database,
    (name, port): (&str, u16),
) -> Result<String, Failed> {
    let stream = connect_tcp(name, port)?;
    try_tls(config, database, name, stream)
}

fn try_tls(
    config: &Config,
    database: &Database,
    name: &str,
    mut stream: TcpStream,
) -> Result<String, Failed> {
    let mode = tls_mode(config, database);
    let broken = |why: std::io::Error| {
        let remedy = "is it PostgreSQL that listens on this port?";
        let why = match why.kind() {
            ErrorKind::WouldBlock => format!("no answer in {} s", PATIENCE.as_secs()),
            _ => format!("no answer: {}", log::text(&why)),
        };
        (why, remedy)
    };
    let limits = [
        stream.set_read_timeout(Some(PATIENCE)),
        stream.set_write_timeout(Some(PATIENCE)),
    ];
    limits
        .into_iter()
        .collect::<Result<(), _>>()
        .map_err(broken)?;
    if !database.sslnegotiation.is_direct() {
        let mut answer = [0];
        stream.write_all(&SSL_REQUEST).map_err(broken)?;
        stream.read_exact(&mut answer).map_err(broken)?;
        match &answer {
            b"S" if matches!(mode, SslMode::Disable | SslMode::Allow) => {
                return Ok("connected, without TLS".into());
            }
            b"S" => {}
            b"N" if mode.is_required() => {
                let remedy = "set ssl = on in PostgreSQL, or sslmode = prefer";
                return Err((
                    format!("PostgreSQL offers no TLS, and sslmode is {mode}"),
                    remedy,
                ));
            }
            b"N" => return Ok("connected, without TLS: PostgreSQL offers none".into()),
            _ => {
                let remedy = "write PostgreSQL's port";
                return Err(("what answers is not PostgreSQL".into(), remedy));
            }
        }
    }
    let failed = |why: String| {
        let remedy = "check server_tls_ca_file, the names in PostgreSQL's certificate, and sslmode";
        (format!("TLS: {why}"), remedy)
    };
    let connector = connector(config, database, mode).map_err(|why| failed(why.to_string()))?;
    let session = connector
        .configure()
        .map_err(|why| failed(why.to_string()))?;
    let session = session.verify_hostname(mode == SslMode::VerifyFull);
    match session.connect(name, stream) {
        Ok(session) => Ok(format!("connected, {}", session.ssl().version_str())),
        Err(openssl::ssl::HandshakeError::Failure(session)) => {
            let verdict = session.ssl().verify_result();
            let why = if verdict == openssl::x509::X509VerifyResult::OK {
                session.error().to_string()
            } else {
                verdict.error_string().to_string()
            };
            Err(failed(why))
        }
        Err(why) => Err(failed(why.to_string())),
    }
}

fn connector(
    config: &Config,
    database: &Database,
    mode: SslMode,
) -> Result<SslConnector, openssl::error::ErrorStack> {
    let files = database.tls_files();
    let [authorities, certificate, key] = files.paths(&config.globals);
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    if !mode.is_verified() {
        builder.set_verify(SslVerifyMode::NONE);
    } else if !authorities.is_empty() {
        // Only these: not the system's, which the builder has read.
        builder.set_cert_store(X509StoreBuilder::new()?.build());
        builder.set_ca_file(authorities)?;
    }
    if !certificate.is_empty() && !key.is_empty() {
        builder.set_certificate_chain_file(certificate)?;
        builder.set_private_key_file(key, SslFiletype::PEM)?;
    }
    Ok(builder.build())
}

fn tls_mode(config: &Config, database: &Database) -> SslMode {
    database
        .sslmode
        .unwrap_or(config.globals.server_tls_sslmode)
}

/// A user whose password is known in clear text, and that password.
fn credentials<'a>(config: &'a Config, database: &'a Database) -> Option<(&'a str, &'a str)> {
    let listed = |name: &str| {
        let (name, user) = config.users.get_key_value(name)?;
        match &user.secret {
            Some(Secret::Plain(password)) => Some((name.as_str(), password.as_str())),
            _ => None,
        }
    };
    // Nothing is run for a check: commands and clouds are not asked.
    fn known(password: &SecretText) -> Option<&str> {
        let is_known = matches!(password.source(), None | Some(SecretSource::File(_)));
        is_known.then_some(password)
    }
    let of_member = database.users.keys().find_map(|name| {
        let user = database.server_user(name);
        Some((user, known(database.server_password(name)?)?))
    });
    if of_member.is_some() {
        return of_member;
    }
    if let Some(user) = &database.forced_user {
        let own = database
            .server_password
            .as_ref()
            .and_then(known)
            .map(|password| (user.as_str(), password));
        return own.or_else(|| listed(user));
    }
    let lookup = config.scopes(Some(database), None).auth_user();
    let mut names: Vec<&String> = config.users.keys().collect();
    names.sort_unstable();
    let mut names = lookup.iter().chain(names);
    names.find_map(|name| listed(name))
}

/// Logs in, and asks how many connections there are for users.
fn log_in(
    config: &Config,
    database: &Database,
    to: &HostPort,
    user: &str,
    password: &str,
) -> Result<Option<u64>, Failed> {
    let files = database.tls_files();
    let [authorities, certificate, key] = files.paths(&config.globals);
    let host = match &to.host {
        Host::Name(name) => name.clone(),
        Host::Ip(address) | Host::Address { ip: address, .. } => address.to_string(),
        Host::Unix(folder) => folder.clone(),
    };
    let mode = tls_mode(config, database);
    // Only a mode that verifies asks authorities: libpq's `require` would, if it had any.
    let authorities = if mode.is_verified() { authorities } else { "" };
    let mode = mode.to_string();
    let port = to.port.to_string();
    let target = database.target();
    let mut text = String::new();
    for (key, value) in [
        ("host", host.as_str()),
        ("port", &port),
        ("dbname", target),
        ("user", user),
        ("password", password),
        ("sslmode", &mode),
        ("sslrootcert", authorities),
        ("sslcert", certificate),
        ("sslkey", key),
    ] {
        if !value.is_empty() {
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            text.push_str(&format!("{key}='{value}' "));
        }
    }
    let mut client = howdah_top::connect(text.trim_end()).map_err(|why| {
        let remedy = if why.contains("password authentication failed") {
            "the secret in auth_file or password= is not the one that PostgreSQL has"
        } else if why.contains("pg_hba.conf") {
            "add a line for this host, user and database to pg_hba.conf"
        } else if why.contains("does not exist") {
            "write dbname= or user=, or create what is missing"
        } else if why.contains("too many") || why.contains("connection slots") {
            "PostgreSQL has no connection left: lower the pools or raise max_connections"
        } else {
            "see PostgreSQL's log"
        };
        (format!("login as {user}: {why}"), remedy)
    })?;
    let room = client.query_one(ROOM, &[]).ok();
    let room = room.and_then(|row| row.try_get::<_, i32>(0).ok());
    Ok(room.and_then(|room| u64::try_from(room).ok()))
}
