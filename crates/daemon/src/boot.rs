//! The steps before the workers start: configuration, user, directory, limit of descriptors.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use howdah_pooler::config::{
    AuthType, Config, Database, Globals, Mistake, Reading, Surroundings, Warning,
};
use howdah_pooler::note::Level;
use howdah_pooler::tls::TlsInForce;
use nix::unistd::{Gid, Uid, User};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use howdah_daemon::reserve;
use howdah_daemon::tls::Contexts;
use howdah_daemon::tls::contexts::TicketSeed;

use crate::cli::{self, Arguments};
use crate::log::{self, Log};
use crate::machine::Machine;
use crate::reload;
use crate::sources::command;
use crate::watch::SeenFiles;

/// The reason why the process can't start, or can't go on.
#[derive(PartialEq, Eq, Debug)]
pub struct Fatal(pub String);

/// The source of the configuration: a file, and options of the command line that override it.
#[derive(Clone, Debug)]
pub struct Source {
    arguments: Arguments,
    /// The files that were read last.
    seen: Arc<Mutex<SeenFiles>>,
}

impl Source {
    /// The source that the command line names.
    pub fn new(arguments: &Arguments) -> Source {
        Source {
            arguments: arguments.clone(),
            seen: Arc::default(),
        }
    }

    /// The files that were read last, with their states.
    pub fn seen(&self) -> SeenFiles {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Notes the states of the files that are about to be read again.
    pub fn will_read(&self, seen: SeenFiles) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// A file without which the configuration that was read can't take effect.
    pub fn needs(&self, path: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.file(path);
    }

    /// Reads the configuration; `path` replaces the command line's file.
    ///
    /// # Errors
    /// All mistakes.
    pub fn load(&self, path: Option<&str>) -> Result<(Config, Vec<Warning>), Vec<String>> {
        let mut machine = Machine::default();
        let reading = self.read(path, &mut machine);
        self.will_read(std::mem::take(&mut machine.seen));
        let reading = reading.map_err(|why| vec![why])?;
        if !reading.mistakes.is_empty() {
            return Err(reading.mistakes.iter().map(Mistake::to_string).collect());
        }
        let (config, warnings) = (reading.config, reading.warnings);
        if let Some(missing) = left_out(&config) {
            return Err(vec![missing]);
        }
        let config = self.with_arguments(config).map_err(|why| vec![why])?;
        match self.open_to_others(&config, path, &machine) {
            Some(open) => Err(vec![open]),
            None => Ok((config, warnings)),
        }
    }

    /// Reads the configuration together with its mistakes; `path` replaces the command line's file.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn read(&self, path: Option<&str>, machine: &mut Machine) -> Result<Reading, String> {
        let Some(path) = self.main_file(path) else {
            return Ok(Config::read_environment(machine));
        };
        let text = machine.file(path).map_err(|why| not_read(path, &why))?;
        Ok(Config::read_among(path, &text, machine))
    }

    /// The configuration's file; `None`: the environment is the configuration.
    fn main_file<'a>(&'a self, path: Option<&'a str>) -> Option<&'a str> {
        match path {
            None if self.arguments.environment => None,
            path => Some(path.unwrap_or(&self.arguments.config)),
        }
    }

    /// The error for a file with commands that others may change: they could have Howdah run anything.
    /// `path` is the file that was read in place of the command line's; `machine` has read all files.
    pub fn open_to_others(
        &self,
        config: &Config,
        path: Option<&str>,
        machine: &Machine,
    ) -> Option<String> {
        let main = self.main_file(path);
        let of_main = main.map(|main| machine.states.get(main).map_or(&[][..], Vec::as_slice));
        let named = (
            self.arguments.user.as_deref(),
            config.globals.user.as_deref(),
        );
        let own = own_users(Uid::effective(), of_main, named);
        config.command_files.iter().find_map(|path| {
            // The environment is as good as the command line.
            let states = match (machine.states.get(&**path), main) {
                (None, None) => return None,
                (states, _) => states.map_or(&[][..], Vec::as_slice),
            };
            let why = match states.iter().find_map(|state| changes(state, &own)) {
                None if states.is_empty() => "nobody knows who may change it".into(),
                None => return None,
                Some(why) => why,
            };
            Some(format!(
                "{path} has commands for passwords, and {why}: it must be a file that belongs to root or \
                 Howdah's user, and nobody else may write it"
            ))
        })
    }

    /// The configuration with the command line's options in place of its settings.
    ///
    /// # Errors
    /// An option's value is not valid.
    pub fn with_arguments(&self, mut config: Config) -> Result<Config, String> {
        let globals = &mut config.globals;
        if self.arguments.verbose > globals.verbose {
            globals.verbose = self.arguments.verbose;
            config.wrote("verbose", "--verbose");
        }
        if let Some(user) = &self.arguments.user {
            config.globals.user = Some(user.clone());
            config.wrote("user", "--user");
        }
        for (name, option, value) in [
            ("workers", "--workers", &self.arguments.workers),
            ("io_driver", "--io-driver", &self.arguments.io_driver),
        ] {
            if let Some(value) = value {
                let assigned = config.globals.assign(name, value);
                assigned.map_err(|why| format!("invalid value \"{value}\" for {option}: {why}"))?;
                config.wrote(name, option);
            }
        }
        Ok(config)
    }
}

/// A file's text. Bytes that are not UTF-8 become replacement characters, and the configuration
/// judges them: in a comment they do no harm.
///
/// # Errors
/// Why it can't be read.
pub fn read_file(path: &str) -> Result<String, String> {
    read_with_state(path).map(|(text, _)| text)
}

/// A file's text, as [`read_file`] reads it, and the state of the very file that it was read from.
///
/// # Errors
/// Why it can't be read.
pub fn read_with_state(path: &str) -> Result<(String, Metadata), String> {
    let read = || {
        let mut file = File::open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((bytes, file.metadata()?))
    };
    match read() {
        Ok((bytes, state)) => Ok((String::from_utf8_lossy(&bytes).into_owned(), state)),
        Err(why) => {
            let why: std::io::Error = why;
            Err(log::text(&why) + &looked_in(path))
        }
    }
}

/// The folder in which a relative path was looked for; empty for other paths.
pub fn looked_in(path: &str) -> String {
    match std::env::current_dir() {
        Ok(folder) if !Path::new(path).is_absolute() => {
            format!(" (looked for in {})", folder.display())
        }
        _ => String::new(),
    }
}

/// The message for a configuration file that can't be read.
pub fn not_read(path: &str, why: &str) -> String {
    let near = cli::subcommand_like(path);
    let near = near.map_or_else(String::new, |name| format!("; did you mean howdah {name}?"));
    format!("could not load file \"{path}\": {why}{near}")
}

/// Reads the configuration at start, and logs warnings and mistakes.
///
/// # Errors
/// The configuration has mistakes.
pub fn load(source: &Source, log: &Log) -> Result<(Config, Vec<Warning>), Fatal> {
    let (config, warnings) = source.load(None).map_err(|mistakes| {
        for mistake in mistakes {
            log.say(Level::Error, mistake);
        }
        Fatal("cannot load config file".into())
    })?;
    log.set_verbose(config.globals.verbose);
    log.set_format(config.globals.log_format);
    log.set_unauthenticated(config.globals.log_unauthenticated_rate);
    Ok((config, warnings))
}

/// In a takeover, reads the configuration again when the predecessor takes no more orders. The
/// predecessor may have reloaded after this process read the configuration. If the new text has
/// mistakes, the predecessor has refused it, too.
pub fn load_again(
    source: &Source,
    config: Config,
    contexts: Contexts,
    tickets: TicketSeed,
    log: &Log,
) -> (Config, Contexts) {
    let loaded = source.load(None);
    let loaded = loaded.and_then(|loaded| reload::refuse_broken(loaded, &config));
    let (mut newer, warnings) = match loaded {
        Ok(loaded) => loaded,
        Err(mistakes) => {
            for mistake in mistakes {
                log.say(Level::Error, mistake);
            }
            let text =
                "the configuration has changed and can't be used: what was read before holds";
            log.say(Level::Warning, text);
            return (config, contexts);
        }
    };
    for warning in warnings {
        log.say(Level::Warning, warning.text);
    }
    let contexts = match set_up_tls(&mut newer, tickets, log) {
        Ok(contexts) => contexts,
        Err(Fatal(why)) => {
            log.say(Level::Error, why);
            return (config, contexts);
        }
    };
    for text in newer.keep_fixed(&config) {
        log.say(Level::Warning, text);
    }
    log.set_verbose(newer.globals.verbose);
    log.set_format(newer.globals.log_format);
    log.set_unauthenticated(newer.globals.log_unauthenticated_rate);
    log.set_syslog(&newer.globals);
    (newer, contexts)
}

/// Builds the TLS contexts, and notes in the configuration which TLS settings are in force.
///
/// # Errors
/// A file or a value in the settings can't be used.
pub fn set_up_tls(config: &mut Config, tickets: TicketSeed, log: &Log) -> Result<Contexts, Fatal> {
    match Contexts::build(config, tickets) {
        Ok(contexts) => {
            config.tls = TlsInForce {
                ends: contexts.certificate_expiries(),
                travels_by: howdah_daemon::tls::travels_by(),
                ..TlsInForce::asked(config, 0)
            };
            for ending in contexts.expiring(reload::now()) {
                log.say(Level::Warning, ending);
            }
            Ok(contexts)
        }
        Err(wrong) => Err(Fatal(format!("TLS setup failed: {wrong}"))),
    }
}

/// Becomes the user in the settings, if there is one. Makes sure that this user is not root.
///
/// # Errors
/// The user does not exist or is not allowed, or the process would run as root.
pub fn become_user(name: Option<&str>) -> Result<(), Fatal> {
    if let Some(user) = find_user(name)?
        && user.uid != Uid::effective()
    {
        let name = &user.name;
        assume(&user).map_err(|why| Fatal(format!("could not switch to user '{name}': {why}")))?;
    }
    if Uid::current().is_root() || Uid::effective().is_root() {
        let remedy = "start as another user, or name one with -u or the setting `user`";
        return Err(Fatal(format!("Howdah should not run as root: {remedy}")));
    }
    Ok(())
}

/// The user to become, if the settings name one.
///
/// # Errors
/// There is no such user.
pub fn find_user(name: Option<&str>) -> Result<Option<User>, Fatal> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    match User::from_name(name).ok().flatten() {
        Some(user) => Ok(Some(user)),
        None => Err(Fatal(format!("could not find user '{name}' to switch to"))),
    }
}

/// The groups are set first: a user other than root may not change them.
fn assume(user: &User) -> nix::Result<()> {
    let groups = std::ffi::CString::new(user.name.as_str()).map_err(|_| nix::Error::EINVAL)?;
    nix::unistd::initgroups(&groups, user.gid)?;
    nix::unistd::setgid(user.gid)?;
    nix::unistd::setuid(user.uid)?;
    // The process must not be able to become root again.
    let undone = nix::unistd::setuid(Uid::from_raw(0)).is_ok() && !user.uid.is_root();
    if undone || Gid::effective() != user.gid {
        Err(nix::Error::EPERM)
    } else {
        Ok(())
    }
}

/// The path of Howdah's unix socket; abstract if it begins with `@`.
pub fn unix_socket(globals: &Globals) -> Option<String> {
    let directory = &globals.unix_socket_dir;
    (!directory.is_empty()).then(|| format!("{directory}/.s.PGSQL.{}", globals.listen_port))
}

/// Makes sure that no other process answers on Howdah's unix socket.
///
/// # Errors
/// Another process answers.
pub fn refuse_second(globals: &Globals) -> Result<(), Fatal> {
    let Some(address) = unix_address(globals)? else {
        return Ok(());
    };
    match reach(&address) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(Fatal("unix socket is in use, cannot continue".into())),
        Err(why) => Err(Fatal(format!(
            "cannot tell whether the unix socket is in use: {why}; if no process uses the socket, remove its file"
        ))),
    }
}

/// Connects to the process behind a unix socket; `None` if nobody listens there. Does not wait: a process
/// whose queue of connections is full is there.
///
/// # Errors
/// It is not known whether a process is there, or that process takes no connection now.
pub fn reach(address: &SocketAddr) -> Result<Option<UnixStream>, String> {
    let shown = || match address.as_pathname() {
        Some(path) => path.display().to_string(),
        None => "the abstract socket".to_owned(),
    };
    let failed = |why: std::io::Error| format!("{}: {}", shown(), log::text(&why));
    let name = match address.as_pathname() {
        Some(path) => SocketAddrUnix::new(path),
        None => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddrUnix::new_abstract_name(address.as_abstract_name().unwrap_or_default())
        }
    };
    let name = name.map_err(|why| failed(why.into()))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let stream = UnixStream::from(socket.map_err(|why| failed(why.into()))?);
    match rustix::net::connect(&stream, &name) {
        Ok(()) => {}
        Err(Errno::CONNREFUSED | Errno::NOENT) => return Ok(None),
        Err(Errno::AGAIN) => {
            return Err(format!(
                "{}: it is in use, and its process takes no connections",
                shown()
            ));
        }
        Err(why) => return Err(failed(why.into())),
    }
    stream.set_nonblocking(false).map_err(failed)?;
    Ok(Some(stream))
}

/// The address of Howdah's unix socket, if the settings name one.
///
/// # Errors
/// The path is not valid for a socket.
pub fn unix_address(globals: &Globals) -> Result<Option<SocketAddr>, Fatal> {
    let Some(path) = unix_socket(globals) else {
        return Ok(None);
    };
    let address = match path.strip_prefix('@') {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(name)
        }
        None => SocketAddr::from_pathname(&path),
    };
    address.map(Some).map_err(|why| {
        Fatal(format!(
            "bad unix socket path '{path}': {}",
            log::text(&why)
        ))
    })
}

/// Goes into the background. Standard input, output and error become /dev/null.
///
/// # Errors
/// There is no pid file or no log, or the system refuses.
pub fn daemonize(globals: &Globals) -> Result<(), Fatal> {
    if globals.pidfile.is_empty() {
        return Err(Fatal("daemon needs pidfile configured".into()));
    }
    if globals.logfile.is_empty() && !globals.syslog {
        return Err(Fatal("daemon needs logging configured".into()));
    }
    let (stay_in_folder, keep_descriptors) = (true, false);
    nix::unistd::daemon(stay_in_folder, keep_descriptors)
        .map_err(|why| Fatal(format!("fork failed: {}", why.desc())))
}

/// Descriptors of the process itself, and of each worker (such as its ring).
const OWN_DESCRIPTORS: u64 = 16;
const DESCRIPTORS_PER_WORKER: u64 = 4;
/// At the start there is room for at most this many descriptors. The room takes half a megabyte of
/// kernel memory.
const DESCRIPTORS_AT_ONCE: u64 = 1 << 16;

/// How many descriptors the settings may take.
pub struct Descriptors {
    /// Those of the process itself.
    pub own: u64,
    /// Those of servers.
    pub servers: u64,
    /// All, those of clients included.
    pub all: u64,
}

/// How many descriptors the settings may take.
pub fn descriptors(config: &Config, workers: u16) -> Descriptors {
    let http = match config.globals.http_listen_port {
        0 => 0,
        _ => crate::http::CONNECTIONS as u64 + 1,
    };
    let own = OWN_DESCRIPTORS + DESCRIPTORS_PER_WORKER * u64::from(workers) + http;
    let databases = config.databases.values().chain(&config.fallback);
    let servers = databases.map(|database| expected_servers(config, database));
    let servers = servers.fold(0, u64::saturating_add);
    let all = u64::from(config.globals.max_client_conn)
        .saturating_add(servers)
        .saturating_add(own);
    Descriptors { own, servers, all }
}

/// Raises the limit of descriptors as far as the system allows, logs the limit, and reserves
/// descriptors for servers that clients must not use.
pub fn raise_limits(config: &Config, workers: u16, log: &Log) {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let raised = limit.current == limit.maximum || setrlimit(Resource::Nofile, all).is_ok();
    let current = if raised { limit.maximum } else { limit.current };
    let number = |limit: Option<u64>| limit.map_or_else(|| "unlimited".into(), |n| n.to_string());
    let Descriptors {
        own,
        servers,
        all: expected,
    } = descriptors(config, workers);
    let short = current.filter(|current| *current < expected);
    // If there are enough descriptors for all, none is reserved.
    let places = short.map_or(0, |limit| reserve::places(limit, own, servers));
    reserve::keep(places);
    make_room(current.map_or(expected, |limit| limit.min(expected)));
    log.say(
        Level::Log,
        format!(
            "kernel file descriptor limit: {} (hard: {}); max_client_conn: {}, max expected fd \
             use: {expected}",
            number(current),
            number(limit.maximum),
            config.globals.max_client_conn
        ),
    );
    if let Some(current) = short {
        let clients = current.saturating_sub(own + places);
        log.say(
            Level::Warning,
            format!(
                "the file descriptor limit is below that: {places} are kept for servers, and who \
                 comes when there are about {clients} clients waits until one leaves, the console \
                 included; raise the limit (ulimit -n, LimitNOFILE=) or lower max_client_conn or \
                 the pool sizes"
            ),
        );
    }
}

/// Makes the kernel's table of descriptors as large as it will have to be. The table grows by
/// doubling. In a process with threads, the thread that makes it grow waits some ten milliseconds.
/// If that thread is a worker, all of its clients wait, too.
fn make_room(descriptors: u64) {
    let highest = descriptors.min(DESCRIPTORS_AT_ONCE).saturating_sub(1);
    if let Ok(highest) = i32::try_from(highest) {
        // The descriptor's target does not matter. If this fails, the table grows later.
        let _ = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), highest);
    }
}

/// The number of servers that the settings allow in a database, over all users. A pool without a
/// size may have one server for each client.
pub fn expected_servers(config: &Config, database: &Database) -> u64 {
    let others = config.users.keys();
    let others = others.filter(|user| database.member(user).is_none());
    let pools = match database.forced_user {
        _ if database.users_only => 0,
        Some(_) => 1,
        None => others.count().max(usize::from(database.users.is_empty())) as u64,
    };
    let size = |user: Option<&str>| {
        let scopes = config.scopes(Some(database), user);
        u64::from(match scopes.pool_size() {
            0 => config.globals.max_client_conn,
            size => size.saturating_add(scopes.reserve_pool_size()),
        })
    };
    let of_members = database.users.keys().map(|user| size(Some(user)));
    let all = of_members.fold(pools.saturating_mul(size(None)), u64::saturating_add);
    let scopes = config.scopes(Some(database), None);
    match scopes.max_db_connections() {
        0 => all,
        limit => all.min(limit.into()),
    }
}

/// The error for a configuration that this build can't serve.
pub fn left_out(config: &Config) -> Option<String> {
    crate::authority::missing(config)
        .or_else(|| crate::tracer::missing(config))
        .or_else(|| crate::sources::missing(config))
}

/// The users besides root whose files may have commands: the one that this process is (`effective`). A
/// process that root starts will become another one: the one that the command line names, or the
/// configuration, if its file is root's alone. `main` has the states of that file; `None`: there is none.
/// `named` are the names on the command line and in the configuration.
fn own_users(
    effective: Uid,
    main: Option<&[Metadata]>,
    (by_arguments, by_config): (Option<&str>, Option<&str>),
) -> Vec<u32> {
    if !effective.is_root() {
        return vec![effective.as_raw()];
    }
    let is_roots = main.is_none_or(|main| {
        !main.is_empty() && main.iter().all(|state| changes(state, &[]).is_none())
    });
    let name = by_arguments.or(by_config.filter(|_| is_roots));
    let user = name.and_then(|name| User::from_name(name).ok().flatten());
    user.map(|user| user.uid.as_raw()).into_iter().collect()
}

/// Who may change a file with commands besides root and some users; `None`: nobody.
fn changes(file: &Metadata, users: &[u32]) -> Option<String> {
    match command::writers(file, users) {
        _ if !file.is_file() => Some("it is no regular file".into()),
        Some(who) => Some(format!("{who} may change it")),
        None => None,
    }
}

/// Settings that are probably not meant this way. Printed by `--check` and at start.
pub fn advice(config: &Config) -> Vec<String> {
    let globals = &config.globals;
    let databases = || config.databases.values().chain(&config.fallback);
    let shown = |key| {
        let mut settings = config.show();
        let setting = settings.find(|setting| setting.key == key);
        setting
            .and_then(|setting| setting.value)
            .unwrap_or_default()
    };
    let mut advice = Vec::new();
    let asks_file = matches!(
        globals.auth_type,
        AuthType::Trust | AuthType::Plain | AuthType::Md5 | AuthType::ScramSha256
    );
    let looks_up =
        globals.auth_user.is_some() || databases().any(|database| database.auth_user.is_some());
    let members = databases().flat_map(|database| database.users.values());
    let knows_some = config.users.values().chain(members).any(|user| user.listed);
    if asks_file
        && !looks_up
        && !knows_some
        && globals.auth_file.as_deref().unwrap_or("").is_empty()
    {
        advice.push(format!(
            "auth_type = {} without auth_file or auth_user lets nobody in: name the file of \
             users and passwords (auth_file), or who looks them up in PostgreSQL (auth_user)",
            shown("auth_type")
        ));
    }
    advice.extend(Contexts::doubts(config));
    advice
}

/// The path, unless it names an abstract socket.
pub fn is_file_path(path: &str) -> Option<&Path> {
    (!path.starts_with('@')).then(|| Path::new(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

    use super::*;

    #[test]
    fn only_a_socket_that_nobody_listens_on_is_free() {
        let path = std::env::temp_dir().join(format!("howdah-reach-{}", std::process::id()));
        let address = SocketAddr::from_pathname(&path).unwrap();
        assert!(reach(&address).unwrap().is_none(), "no file");
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert!(reach(&address).unwrap().is_none(), "nobody listens");
        rustix::net::listen(&socket, 0).unwrap();
        let first = reach(&address).unwrap();
        assert!(first.is_some());
        let full = reach(&address).unwrap_err();
        assert!(full.contains("it is in use"), "{full}");
        drop(socket);
        assert!(reach(&address).unwrap().is_none(), "its process is dead");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let inside = SocketAddr::from_pathname(path.join("not/there")).unwrap();
        assert!(reach(&inside).unwrap().is_none());
        std::fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn a_file_cannot_make_its_owner_trusted() {
        let roots = [File::open("/etc/passwd").unwrap().metadata().unwrap()];
        let path = std::env::temp_dir().join(format!("howdah-boot-{}", std::process::id()));
        let mut open = File::options();
        let file = open.create(true).write(true).mode(0o600).open(&path);
        let file = file.unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o666))
            .unwrap();
        let others = [file.metadata().unwrap()];
        let nobody = User::from_name("nobody").unwrap().unwrap().uid.as_raw();
        let (root, own) = (Uid::from_raw(0), Uid::from_raw(4711));
        let said = Some("nobody");
        for (effective, main, named, users) in [
            (own, Some(&roots[..]), (said, said), vec![4711]),
            (own, Some(&others[..]), (None, said), vec![4711]),
            (root, Some(&others[..]), (None, said), vec![]),
            (root, Some(&[]), (None, said), vec![]),
            (root, Some(&others[..]), (said, Some("root")), vec![nobody]),
            (root, Some(&roots[..]), (None, said), vec![nobody]),
            (root, None, (None, said), vec![nobody]),
            (root, Some(&roots[..]), (None, None), vec![]),
        ] {
            assert_eq!(own_users(effective, main, named), users);
        }
        let state = File::open("/dev/null").unwrap().metadata().unwrap();
        assert!(changes(&state, &[]).is_some(), "no regular file");
        assert!(changes(&others[0], &[]).is_some() && changes(&roots[0], &[]).is_none());
    }
}
