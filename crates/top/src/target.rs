//! What a person names to connect to: a connection string in libpq's words. What is missing comes
//! from the environment, the password file, and a prompt.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use postgres::config::Host;
use postgres::error::SqlState;
use postgres::{Client, Config};
use postgres_openssl::MakeTlsConnector;

use crate::passwords::{self, Wanted};
use crate::tls::Tls;

/// How long a connection and its login may take, unless `connect_timeout` says so.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long a connection may be silent before its other end is asked for a sign of life.
const KEEPALIVES_IDLE: Duration = Duration::from_secs(60);

/// Folders of unix sockets, in the order in which they are looked at.
const SOCKET_FOLDERS: [&str; 3] = ["/run/howdah", "/var/run/postgresql", "/tmp"];

/// The database of consoles, and the user that needs no password there.
const CONSOLE: &str = "pgbouncer";

/// Connects to the PostgreSQL that a connection string names. Neither the environment nor files in the
/// home folder add anything, and nobody is asked for a password.
///
/// # Errors
/// What is wrong, in one line for people.
pub fn connect(connection_string: &str) -> Result<Client, String> {
    let mut target = Target::read(connection_string, Kind::Database, &|_| None)?;
    target.ask_no_more();
    target.connect()
}

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A database: port 5432, named as the user.
    Database,
    /// A pooler's console: port 6432, `pgbouncer`, over a unix socket if there is one.
    Console,
}

/// Where to connect, and how.
pub(crate) struct Target {
    config: Config,
    kind: Kind,
    tls: Tls,
    /// The unix socket that was found, and whose process may log in without a password.
    found: Option<Socket>,
    /// A person may be asked for a password.
    may_ask: bool,
    /// An attempt that has no answer yet.
    pending: Option<Receiver<Attempt>>,
}

/// What became of an attempt to connect.
type Attempt = Result<Client, postgres::Error>;

/// A unix socket and its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Socket {
    path: String,
    owner: u32,
}

/// A variable of the environment.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Target {
    /// Reads a connection string. Nothing is connected yet.
    ///
    /// # Errors
    /// What is wrong with the string or the environment.
    pub fn read(
        text: &str,
        kind: Kind,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Target, String> {
        let (rest, tls) = Tls::read(text, variable)?;
        let mut config: Config = rest
            .parse()
            .map_err(|why| format!("{}: {}", hidden(text), told(&why)))?;
        if config.get_ports().is_empty() {
            let usual = match kind {
                Kind::Database => 5432,
                // A URL with a host and no port means 5432, as everywhere.
                Kind::Console => 6432,
            };
            let port = variable("PGPORT").map_or(Ok(usual), |port| {
                port.parse()
                    .map_err(|_| format!("PGPORT={port} is no port"))
            })?;
            config.port(port);
        }
        let port = config.get_ports()[0];
        let mut found = None;
        if config.get_hosts().is_empty() {
            match variable("PGHOST") {
                Some(host) => config.host(&host),
                None => {
                    let socket = socket_at(port, &SOCKET_FOLDERS);
                    let folder = socket.as_ref().map(|(folder, _)| *folder);
                    found = socket.map(|(_, socket)| socket);
                    config.host(folder.unwrap_or("127.0.0.1"))
                }
            };
        }
        if config.get_user().is_none() {
            let own = rustix::process::geteuid().as_raw();
            let peer = found.as_ref().is_some_and(|socket| socket.owner == own);
            let user = match variable("PGUSER") {
                Some(user) => Some(user),
                // The process that owns the console needs no password there.
                None if kind == Kind::Console && peer => Some(CONSOLE.into()),
                None => variable("USER").or_else(|| variable("LOGNAME")),
            };
            config.user(&user.ok_or("name a user: postgresql://admin@host:port/")?);
        }
        if config.get_dbname().is_none_or(str::is_empty) {
            let user = config.get_user().unwrap_or_default().to_string();
            let database = match kind {
                Kind::Database => variable("PGDATABASE").unwrap_or(user),
                Kind::Console => CONSOLE.into(),
            };
            config.dbname(&database);
        }
        if config.get_password().is_none()
            && let Some(password) = variable("PGPASSWORD")
        {
            config.password(password);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_LIMIT);
        }
        // An attempt ends if the other end is gone.
        if config.get_keepalives_idle() > KEEPALIVES_IDLE {
            config.keepalives_idle(KEEPALIVES_IDLE);
        }
        config.ssl_mode(tls.mode);
        let mut target = Target {
            config,
            kind,
            tls,
            found,
            may_ask: true,
            pending: None,
        };
        if target.config.get_password().is_none()
            && let Some(path) = passwords::file(variable)
            && let Some(password) = passwords::find(&path, &target.wanted())
        {
            target.config.password(password);
        }
        Ok(target)
    }

    /// The name in `pg_stat_activity` and SHOW CLIENTS.
    pub fn application_name(&mut self, name: &str) {
        self.config.application_name(name);
    }

    /// From now on nobody is asked for a password: the terminal has something else on it.
    pub fn ask_no_more(&mut self) {
        self.may_ask = false;
    }

    /// Connects. If a password is needed and not known, asks for it, and keeps the answer for the
    /// next call.
    ///
    /// # Errors
    /// What is wrong, in one line for people.
    pub fn connect(&mut self) -> Result<Client, String> {
        let connector = self.tls.connector()?;
        let error = match self.try_once(connector.clone())? {
            Ok(client) => return Ok(client),
            Err(why) => why,
        };
        if lacks_password(&error) {
            let user = self.config.get_user().unwrap_or_default();
            let prompt = format!("Password for {user} at {}: ", self.name());
            let answer = self.may_ask.then(|| passwords::ask(&prompt)).flatten();
            let Some(password) = answer else {
                return Err(self.explained("a password is needed".into()));
            };
            self.config.password(password);
            return self.try_once(connector)?.map_err(|why| self.failed(&why));
        }
        Err(self.failed(&error))
    }

    /// Tries to connect, on a thread of its own: the driver's own limit ends with the connection,
    /// and what answers there may never say a word of the login. An attempt without an answer goes on,
    /// and the next call waits for it: so a pooler that hangs is left with one connection.
    fn try_once(&mut self, connector: MakeTlsConnector) -> Result<Attempt, String> {
        let attempt = self.pending.take().unwrap_or_else(|| {
            let (config, (tell, told)) = (self.config.clone(), std::sync::mpsc::channel());
            std::thread::spawn(move || {
                // Nobody listens if the program ends.
                let _ = tell.send(config.connect(connector));
            });
            told
        });
        let limit = self.config.get_connect_timeout().copied();
        let limit = limit.unwrap_or(CONNECT_LIMIT);
        match attempt.recv_timeout(limit) {
            Ok(answer) => Ok(answer),
            Err(why) => {
                if why == RecvTimeoutError::Timeout {
                    self.pending = Some(attempt);
                }
                Err(format!(
                    "{}: no answer to the login within {} s, so it may be no PostgreSQL and no pooler",
                    self.name(),
                    limit.as_secs()
                ))
            }
        }
    }

    /// Host and port, for people.
    pub fn name(&self) -> String {
        let port = self.port();
        match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) if name.contains(':') => format!("[{name}]:{port}"),
            Some(Host::Tcp(name)) => format!("{name}:{port}"),
            Some(Host::Unix(path)) => format!("{}/.s.PGSQL.{port}", path.display()),
            None => format!(":{port}"),
        }
    }

    /// The database.
    pub fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_default()
    }

    /// The host, or the folder of the unix socket, and the port.
    pub fn place(&self) -> (String, u16) {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => String::new(),
        };
        (host, self.port())
    }

    /// The user.
    pub fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    /// The password, if one is known by now.
    pub fn password(&self) -> Option<String> {
        let password = self.config.get_password()?.to_vec();
        String::from_utf8(password).ok()
    }

    /// The pooler's settings for the same TLS to servers.
    pub fn tls_lines(&self) -> Vec<String> {
        self.tls.lines()
    }

    fn port(&self) -> u16 {
        self.config.get_ports().first().copied().unwrap_or_default()
    }

    /// What a line of the password file must match. As in libpq, a socket in a usual folder is
    /// `localhost`.
    fn wanted(&self) -> Wanted<'_> {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.as_str(),
            Some(Host::Unix(path)) => match path.to_str() {
                Some(path) if !SOCKET_FOLDERS.contains(&path) => path,
                _ => "localhost",
            },
            None => "",
        };
        Wanted {
            host,
            port: self.port(),
            database: self.database(),
            user: self.config.get_user().unwrap_or_default(),
        }
    }

    fn failed(&self, why: &postgres::Error) -> String {
        let said = told(why);
        let text = why.to_string();
        if text.contains("parsing response") || text.contains("unexpected message") {
            let name = self.name();
            return format!("{name} answers, but not as PostgreSQL or a pooler does: {said}");
        }
        let no_database = why.code() == Some(&SqlState::UNDEFINED_DATABASE);
        if no_database && self.kind == Kind::Console && said.contains("does not exist") {
            let name = self.name();
            return format!("{name} is PostgreSQL, not a pooler ({said}): name the pooler's port");
        }
        if why.as_db_error().is_some() {
            return self.explained(said);
        }
        format!("{}: {said}", self.name())
    }

    /// A reason, with what would help.
    fn explained(&self, why: String) -> String {
        let own = rustix::process::geteuid().as_raw();
        match &self.found {
            Some(socket) if socket.owner != own => format!(
                "{why}; the system user with uid {} needs no password at {}, others name a user: \
                 postgresql://admin@host:port/",
                socket.owner, socket.path
            ),
            Some(socket) => format!("{}: {why}", socket.path),
            None => format!("{}: {why}", self.name()),
        }
    }
}

/// The first folder with a socket of this port. Where everybody may put a socket, only our own and
/// root's count: a stranger's would get to see passwords.
fn socket_at<'a>(port: u16, folders: &[&'a str]) -> Option<(&'a str, Socket)> {
    let own = rustix::process::geteuid().as_raw();
    folders.iter().find_map(|folder| {
        let path = format!("{folder}/.s.PGSQL.{port}");
        let open_to_all = Path::new(folder).metadata().ok()?.mode() & 0o002 != 0;
        let facts = Path::new(&path).metadata().ok()?;
        let owner = facts.uid();
        let is_socket = facts.file_type().is_socket();
        let trusted = !open_to_all || is_trusted(owner, own);
        (is_socket && trusted).then_some((*folder, Socket { path, owner }))
    })
}

/// Whether a socket in a folder of everybody is ours or root's.
fn is_trusted(owner: u32, own: u32) -> bool {
    owner == own || owner == 0
}

/// A connection string without its password.
fn hidden(text: &str) -> &str {
    if text.contains('@') || text.contains("password") {
        "the connection string"
    } else {
        text
    }
}

/// The server asked for a password, and there is none.
fn lacks_password(why: &postgres::Error) -> bool {
    let source = std::error::Error::source(why);
    source.is_some_and(|source| source.to_string() == "password missing")
}

/// The server's words, if it has said some.
pub(crate) fn told(why: &postgres::Error) -> String {
    if let Some(said) = why.as_db_error() {
        let more = [said.detail(), said.hint()].into_iter().flatten();
        let parts = std::iter::once(said.message()).chain(more);
        return parts.collect::<Vec<_>>().join("; ");
    }
    let mut text = why.to_string();
    if let Some(source) = std::error::Error::source(why) {
        let source = source.to_string();
        if !text.contains(&source) {
            text = format!("{text}: {source}");
        }
    }
    without_places(&text)
}

/// The reasons of a TLS library, without its numbers, and without the files of its source.
fn without_places(text: &str) -> String {
    let is_place = |part: &str| {
        let numbered = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let file = part.contains('/') && (part.ends_with(".c") || part.ends_with(".cc"));
        let library = part == "error" || part == "SSL routines" || part.starts_with("OPENSSL_");
        part.is_empty() || numbered || file || library
    };
    if !text.contains("error:") {
        return text.to_owned();
    }
    let parts = text.split(':').map(str::trim);
    let reasons = parts.filter(|part| !is_place(part));
    let reasons = reasons.map(|part| {
        if part.contains('_') {
            part.to_ascii_lowercase().replace('_', " ")
        } else {
            part.to_owned()
        }
    });
    reasons.collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, kind: Kind, variables: &[(&str, &str)]) -> Result<Target, String> {
        let variable = |name: &str| {
            let known = variables.iter().find(|(known, _)| *known == name);
            known.map(|(_, value)| value.to_string())
        };
        Target::read(text, kind, &variable)
    }

    #[test]
    fn what_is_missing_comes_from_the_environment() {
        let target = read("host=db1 user=admin", Kind::Console, &[("PGPORT", "7000")]).unwrap();
        assert_eq!(
            (target.name(), target.database()),
            ("db1:7000".into(), "pgbouncer")
        );
        let there = [("USER", "me"), ("PGHOST", "h"), ("PGPASSWORD", "p")];
        let target = read("", Kind::Console, &there).unwrap();
        assert_eq!(target.name(), "h:6432");
        assert_eq!(target.config.get_user(), Some("me"));
        assert_eq!(target.config.get_password(), Some(&b"p"[..]));
        let target = read("postgres://app@h", Kind::Database, &[]).unwrap();
        assert_eq!((target.name(), target.database()), ("h:5432".into(), "app"));
        assert!(
            read("host=h", Kind::Console, &[])
                .err()
                .unwrap()
                .contains("name a user")
        );
        assert!(read("host=x port=y", Kind::Console, &[]).is_err());
        let secret = read("postgres://u:hush@h:port/", Kind::Console, &[])
            .err()
            .unwrap();
        assert!(!secret.contains("hush"), "{secret}");
    }

    #[test]
    fn a_socket_of_a_stranger_is_left_alone() {
        assert!(is_trusted(7, 7) && is_trusted(0, 7));
        assert!(!is_trusted(8, 7) && !is_trusted(7, 0));
    }

    #[test]
    fn a_pooler_that_hangs_has_one_attempt() {
        let hung = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = hung.local_addr().unwrap().port();
        let text = format!("host=127.0.0.1 port={port} user=u password=p");
        let mut target = read(&text, Kind::Console, &[]).unwrap();
        target.config.connect_timeout(Duration::from_millis(50));
        for _ in 0..2 {
            let why = target.connect().err().unwrap();
            assert!(why.contains("no answer to the login"), "{why}");
        }
        drop(hung.accept().unwrap());
        target.config.connect_timeout(CONNECT_LIMIT);
        let why = target.connect().err().unwrap();
        assert!(!why.contains("no answer to the login"), "{why}");
        hung.set_nonblocking(true).unwrap();
        assert!(hung.accept().is_err(), "a second connection");
    }

    #[test]
    fn a_library_tells_reasons_not_places() {
        let text = "error performing TLS handshake: error:1000007D:SSL routines:OPENSSL_internal:\
                    CERTIFICATE_VERIFY_FAILED:/somewhere/ssl/handshake.cc:290:: IP address mismatch";
        assert_eq!(
            without_places(text),
            "error performing TLS handshake: certificate verify failed: IP address mismatch"
        );
        assert_eq!(without_places("it is away: no way"), "it is away: no way");
    }
}
