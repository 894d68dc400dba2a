//! The steps before the workers start: configuration, user, directory, limit of descriptors.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::sync::Arc;

use howdah_pooler::config::{
    AuthType, Beyond, Config, Globals, Mistake, Reading, SessionState, SslMode, Warning,
};
use howdah_pooler::note::Level;
use howdah_pooler::tls::TlsInForce;
use nix::unistd::{Gid, Uid, User};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use howdah_daemon::reserve;
use howdah_daemon::tls::Contexts;
use howdah_daemon::tls::contexts::TicketSeed;

use crate::cli::Arguments;
use crate::listen;
use crate::log::{self, Log};

/// The reason why the process can't start, or can't go on.
#[derive(PartialEq, Eq, Debug)]
pub struct Fatal(pub String);

/// The source of the configuration: a file, and options of the command line that override it.
#[derive(Clone, Debug)]
pub struct Source {
    arguments: Arguments,
}

impl Source {
    /// The source that the command line names.
    pub fn new(arguments: &Arguments) -> Source {
        Source {
            arguments: arguments.clone(),
        }
    }

    /// Reads the configuration; `path` replaces the command line's file.
    ///
    /// # Errors
    /// All mistakes.
    pub fn load(&self, path: Option<&str>) -> Result<(Config, Vec<Warning>), Vec<String>> {
        let path = path.unwrap_or(&self.arguments.config);
        let text = read_file(path).map_err(|why| vec![not_read(path, &why)])?;
        let (config, warnings) = Config::load(path, &text, &mut read_file)
            .map_err(|mistakes| mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>())?;
        if let Some(missing) = crate::authority::missing(&config) {
            return Err(vec![missing]);
        }
        self.with_arguments(config)
            .map(|config| (config, warnings))
            .map_err(|why| vec![why])
    }

    fn with_arguments(&self, mut config: Config) -> Result<Config, String> {
        let globals = &mut config.globals;
        globals.verbose = globals.verbose.max(self.arguments.verbose);
        if let Some(user) = &self.arguments.user {
            globals.user = Some(user.clone());
        }
        for (name, option, value) in [
            ("workers", "--workers", &self.arguments.workers),
            ("io_driver", "--io-driver", &self.arguments.io_driver),
        ] {
            if let Some(value) = value {
                let assigned = config.globals.assign(name, value);
                assigned.map_err(|why| format!("invalid value \"{value}\" for {option}: {why}"))?;
            }
        }
        Ok(config)
    }
}

/// A file's text. Bytes that are not UTF-8 become replacement characters, and the configuration
/// judges them: in a comment they do no harm.
fn read_file(path: &str) -> Result<String, String> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(why) => Err(log::text(&why)),
    }
}

fn not_read(path: &str, why: &str) -> String {
    format!("could not load file \"{path}\": {why}")
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
    let Ok((mut newer, _)) = source.load(None) else {
        return (config, contexts);
    };
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
            for ending in contexts.expiring(crate::reload::now()) {
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
fn find_user(name: Option<&str>) -> Result<Option<User>, Fatal> {
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
    match UnixStream::connect_addr(&address) {
        Ok(_) => Err(Fatal("unix socket is in use, cannot continue".into())),
        Err(_) => Ok(()),
    }
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
    let http = match config.globals.http_listen_port {
        0 => 0,
        _ => crate::http::CONNECTIONS as u64 + 1,
    };
    let own = OWN_DESCRIPTORS + DESCRIPTORS_PER_WORKER * u64::from(workers) + http;
    let servers = expected_servers(config);
    let expected = u64::from(config.globals.max_client_conn)
        .saturating_add(servers)
        .saturating_add(own);
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

/// The number of servers that the settings allow, over all databases and users. A pool without a
/// size may have one server for each client.
fn expected_servers(config: &Config) -> u64 {
    let users = config.users.len().max(1) as u64;
    let databases = config.databases.values().chain(&config.fallback);
    databases
        .map(|database| {
            let pools = if database.forced_user.is_some() {
                1
            } else {
                users
            };
            let size = match config.pool_size(database, None) {
                0 => config.globals.max_client_conn,
                size => size.saturating_add(config.reserve_pool_size(database, None)),
            };
            let all = pools.saturating_mul(size.into());
            match config.max_db_connections(database) {
                0 => all,
                limit => all.min(limit.into()),
            }
        })
        .fold(0, u64::saturating_add)
}

/// `howdah --check`: prints all mistakes of the configuration to standard error.
pub fn check(arguments: &Arguments) -> bool {
    let path = &arguments.config;
    let text = match read_file(path) {
        Ok(text) => text,
        Err(why) => {
            eprintln!("ERROR {}", not_read(path, &why));
            return false;
        }
    };
    let Reading {
        config,
        mut mistakes,
        warnings,
        beyond_pgbouncer,
    } = Config::read(path, &text, &mut read_file);
    mistakes.extend(judge_machine(&config));
    Mistake::sort(&mut mistakes, path);
    let mut errors: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
    let broken = warnings.iter().filter(|warning| warning.broken);
    errors.extend(broken.map(Warning::to_string));
    errors.extend(crate::authority::missing(&config));
    let mut advice = advice(&config);
    advice.extend(checked_as_root(&config.globals, arguments));
    let needless = needless(&config);
    errors.extend(Source::new(arguments).with_arguments(config).err());
    for error in &errors {
        eprintln!("ERROR {error}");
    }
    for warning in warnings.iter().filter(|warning| !warning.broken) {
        eprintln!("WARNING {warning}");
    }
    for text in advice {
        eprintln!("WARNING {text}");
    }
    if errors.is_empty() {
        println!("{path}: configuration OK");
    }
    if let Some(text) = needless {
        println!("HINT {text}");
    }
    print!("{}", way_back(&beyond_pgbouncer));
    errors.is_empty()
}

/// A warning: root has run the check, but the pooler will run as another user.
fn checked_as_root(globals: &Globals, arguments: &Arguments) -> Option<String> {
    let user = arguments.user.as_ref().or(globals.user.as_ref());
    let stays_root = user.is_none_or(String::is_empty);
    (Uid::effective().is_root() && stays_root).then(|| {
        "this check ran as root, who may read every file, and Howdah does not run as root: check as \
         the user that it will have (runuser -u postgres -- howdah --check ...), or set user"
            .into()
    })
}

/// Settings that a user of PgBouncer can remove.
fn needless(config: &Config) -> Option<String> {
    let ignored = config.globals.ignore_startup_parameters.iter();
    let ignored: Vec<_> = ignored.map(String::as_str).collect();
    let place = config.written.get("ignore_startup_parameters")?;
    let kept = config.globals.session_state != SessionState::Share;
    (kept && !ignored.is_empty()).then(|| {
        format!(
            "ignore_startup_parameters ({place}) drops what clients ask for at connect: {}. Without that \
             line each client gets what it asks for",
            ignored.join(", ")
        )
    })
}

/// Settings that must be removed before PgBouncer accepts the file again.
fn way_back(beyond_pgbouncer: &[Beyond]) -> String {
    if beyond_pgbouncer.is_empty() {
        return String::new();
    }
    let mut text =
        "PgBouncer 1.25.2 refuses the file as long as these settings are in it:\n".to_string();
    let shown = |beyond: &Beyond| match beyond.section.split_once(' ') {
        Some((section, entry)) => format!("{} of {entry} in {section}", beyond.setting),
        None => beyond.setting.to_string(),
    };
    let names: Vec<_> = beyond_pgbouncer.iter().map(shown).collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    for (name, beyond) in names.iter().zip(beyond_pgbouncer) {
        let _ = writeln!(text, "  {name:width$}  {}", beyond.place);
    }
    text
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
    if asks_file && !looks_up && globals.auth_file.as_deref().unwrap_or("").is_empty() {
        advice.push(format!(
            "auth_type = {} without auth_file or auth_user lets nobody in: name the file of \
             users and passwords (auth_file), or who looks them up in PostgreSQL (auth_user)",
            shown("auth_type")
        ));
    }
    advice.extend(Contexts::doubts(config));
    advice
}

/// Mistakes in settings that depend on this machine and would stop the start.
fn judge_machine(config: &Config) -> Vec<Mistake> {
    let globals = &config.globals;
    let mut mistakes = Vec::new();
    let mut wrong = |setting: &str, text: String, remedy: &str| {
        mistakes.push(Mistake {
            place: config.written.get(setting).cloned(),
            text,
            remedy: remedy.into(),
        });
    };
    if globals.listen_addr.is_empty() && globals.unix_socket_dir.is_empty() {
        let text = "nowhere to listen on".into();
        wrong(
            "listen_addr",
            text,
            "set listen_addr, unix_socket_dir or both",
        );
    }
    if let Err(Fatal(text)) = listen::tcp_addresses(globals) {
        let remedy = "write addresses of this machine, or * for all, separated by commas";
        wrong("listen_addr", text, remedy);
    }
    if let Err(Fatal(text)) = unix_address(globals) {
        wrong("unix_socket_dir", text, "name a folder with a shorter path");
    }
    if let Err(text) = listen::unix_group(globals) {
        let remedy = "name a group of this machine, or its number";
        wrong("unix_socket_group", text, remedy);
    }
    for (setting, path) in [("logfile", &globals.logfile), ("pidfile", &globals.pidfile)] {
        if let Err(why) = may_write(path) {
            let remedy = "name a file in a folder that is there and that Howdah may write to";
            wrong(
                setting,
                format!("could not open {setting} {path}: {why}"),
                remedy,
            );
        }
    }
    let folder = &globals.unix_socket_dir;
    if !folder.is_empty()
        && let Some(path) = is_file_path(folder)
        && let Err(why) = may_create_in(path)
    {
        let text = format!("could not open unix_socket_dir {folder}: {why}");
        let remedy = "name a folder that is there and that Howdah may write to, or none";
        wrong("unix_socket_dir", text, remedy);
    }
    if let Err(bad) = Contexts::build(config, TicketSeed::default()) {
        let remedy = "put it right, or switch TLS off on that side (sslmode = disable)";
        let clients_side = bad.setting.starts_with("client_tls");
        wrong(bad.setting, bad.text, remedy);
        // Mistakes on the servers' side are found without the clients' side.
        if clients_side
            && let Err(bad) =
                Contexts::build(&without_tls_to_clients(config), TicketSeed::default())
        {
            wrong(bad.setting, bad.text, remedy);
        }
    }
    if let Err(Fatal(text)) = find_user(globals.user.as_deref()) {
        wrong("user", text, "name a user of this machine");
    }
    mistakes
}

fn without_tls_to_clients(config: &Config) -> Config {
    let mut config = config.clone();
    config.globals.client_tls_sslmode = SslMode::Disable;
    let databases = config.databases.values_mut().chain(&mut config.fallback);
    for database in databases {
        Arc::make_mut(database).client_tls_sslmode = None;
    }
    config
}

/// Whether a file can be opened for writing or created. Changes nothing.
fn may_write(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Ok(());
    }
    let path = Path::new(path);
    match fs::OpenOptions::new().append(true).open(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => may_create_in(folder),
            _ => may_create_in(Path::new(".")),
        },
        opened => opened.map(drop).map_err(|why| log::text(&why)),
    }
}

/// Whether files can be created in a directory.
fn may_create_in(folder: &Path) -> Result<(), String> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let what = fs::metadata(folder).map_err(|why| log::text(&why))?;
    if !what.is_dir() {
        return Err("Not a directory".into());
    }
    let allowed = accessat(
        CWD,
        folder,
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::EACCESS,
    );
    allowed.map_err(|why| log::text(&why.into()))
}

/// The path, unless it names an abstract socket.
pub fn is_file_path(path: &str) -> Option<&Path> {
    (!path.starts_with('@')).then(|| Path::new(path))
}
