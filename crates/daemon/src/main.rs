//! The howdah process.
//!
//! The main thread reads the configuration, changes its user, opens the listening sockets, starts the
//! workers, and then becomes the control thread.

mod authority;
mod boot;
mod build;
mod check;
mod cli;
#[cfg(feature = "traces")]
mod collector;
mod config_command;
mod container;
mod control;
mod derive;
mod dns;
mod drain;
mod forward;
mod handover;
mod http;
#[cfg(feature = "cloud")]
mod https;
mod import_command;
mod leave;
mod listen;
mod log;
mod long_waits;
mod look;
mod machine;
mod nameserver;
#[cfg(feature = "traces")]
mod otlp;
mod placed_names;
mod print;
#[cfg(feature = "top")]
mod reach;
mod ready;
mod reload;
mod signals;
mod sources;
mod syslog;
mod systemd;
mod takeover;
mod tracer;
mod watch;
mod workers;
mod writer;

use std::convert::Infallible;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use boot::{Fatal, Source};
use cli::{Arguments, Command};
use control::Desk;
use dns::Resolver;
use howdah_daemon::broker::SharedBroker;
use howdah_daemon::driver::socket::Listener;
use howdah_daemon::tls::contexts::TicketSeed;
use howdah_pooler::config::Globals;
use howdah_pooler::note::Level;
use howdah_pooler::parcel::Freight;
use log::Log;
use print::print;
use sources::Sources;
use takeover::Predecessor;
use tracer::Tracer;

/// How long a successor waits for sources of secrets before it takes over.
const FIRST_SECRETS: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => print(cli::USAGE),
        Ok(Command::Version(false)) => print(&format!("{}\n", cli::VERSION)),
        Ok(Command::Version(true)) => print(&format!("{}\n{}", cli::VERSION, build::story())),
        Ok(Command::Settings) => print(&howdah_pooler::config::settings_page()),
        Ok(Command::Top(arguments)) if top(&arguments) => {}
        Ok(Command::Init(arguments)) if init(&arguments) => {}
        Ok(Command::Top(_) | Command::Init(_)) => return ExitCode::FAILURE,
        Ok(Command::Import(arguments)) => return import_command::run(&arguments),
        Ok(Command::Metrics) => print(&howdah_pooler::metrics::metrics_page()),
        Ok(Command::Manual) => print(&howdah_pooler::config::settings_manual()),
        Ok(Command::Check(arguments)) => return check::check(&container::placed(arguments)),
        Ok(Command::Config(command)) => return config_command::run(command),
        Ok(Command::Ready(arguments)) => return ready::run(&container::placed(arguments)),
        Ok(Command::Run(arguments)) => {
            let arguments = container::placed(arguments);
            let log = Log::new(arguments.quiet, arguments.verbose);
            let Err(Fatal(why)) = run(&arguments, &log);
            log.say(Level::Fatal, why);
            leave::leave(1);
        }
        Err(why) => {
            eprintln!("howdah: {why}\nTry \"howdah --help\" for more information.");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// `howdah top`: watches a pooler in the terminal. Returns true if all went well.
#[cfg(feature = "top")]
fn top(arguments: &[OsString]) -> bool {
    howdah_top::run(arguments.iter().cloned())
}

/// `howdah init`: writes a first configuration. Returns true if all went well.
#[cfg(feature = "top")]
fn init(arguments: &[OsString]) -> bool {
    howdah_top::init(arguments.iter().cloned())
}

#[cfg(not(feature = "top"))]
fn top(_: &[OsString]) -> bool {
    eprintln!("howdah: top is not part of this build: build with the Cargo feature top");
    false
}

#[cfg(not(feature = "top"))]
fn init(_: &[OsString]) -> bool {
    eprintln!("howdah: init is not part of this build: build with the Cargo feature top");
    false
}

/// Runs the pooler. Returns only if the pooler can't start.
fn run(arguments: &Arguments, log: &Log) -> Result<Infallible, Fatal> {
    let source = Source::new(arguments);
    let (mut config, warnings) = boot::load(&source, log)?;
    let globals = &config.globals;

    boot::become_user(container::user_of(arguments, globals, log))?;
    // With -q, output goes to the log file or nowhere.
    log.open(&globals.logfile).map_err(Fatal)?;
    let (given, predecessor) = stake_claim(arguments, globals, log)?;
    if arguments.daemon {
        boot::daemonize(globals)?;
    }
    // Threads start after this: a fork would lose them.
    log.detach().map_err(|why| {
        Fatal(format!(
            "cannot start the log's thread: {}",
            log::text(&why)
        ))
    })?;
    log.set_syslog(globals);
    leave::remember_log(log);
    container::tell(arguments, log);
    for warning in warnings {
        log.say(Level::Warning, warning.text);
    }
    for text in boot::advice(&config) {
        log.say(Level::Warning, text);
    }
    leave::leave_on_panic(log);
    // After another process has handed its connections over, nothing may fail any more.
    let shared_seed = workers::entropy()?;
    let tickets = TicketSeed::at(shared_seed, reload::now());
    let contexts = boot::set_up_tls(&mut config, tickets, log)?;
    contexts.warm_up();
    let config = config;
    let globals = &config.globals;
    let resolver = Resolver::open(&globals.resolv_conf)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let count = workers::count(globals, cores);
    boot::raise_limits(&config, count, log);
    let (driver, driver_story) = workers::choose_driver(globals)?;
    log.say(
        Level::Log,
        format!(
            "{count} {} on {cores} {}, {driver_story}",
            if count == 1 { "worker" } else { "workers" },
            if cores == 1 { "core" } else { "cores" },
        ),
    );

    let mut desk = Desk::open(cores)?;
    if predecessor.is_none() {
        desk.end_in_order()?;
    }
    let crew = workers::hire(count, driver)?;
    let seed = workers::entropy()?;
    let mut config = config;
    let mut sources = Sources::new(desk.ear(), log.clone());
    sources.set(&mut config);
    if predecessor.is_some() || config.users_await_passwords() {
        // This process must not be the one that can't log in, or that can't check its clients.
        sources.ask_first(FIRST_SECRETS);
        sources.fill(&mut config);
    }
    let globals = &config.globals;
    let (listeners, mut freight) = match predecessor {
        None if given.is_empty() => (listen::open(globals, Vec::new(), log)?, None),
        None => {
            let text = "sockets passed from service manager, \
                        ignoring listen_addr and unix_socket_dir";
            log.say(Level::Warning, text);
            (given, None)
        }
        Some(predecessor) => take_over(predecessor, globals, &mut desk, log)?,
    };
    listen::keep(&listeners, log);
    listen::defer_accept(globals);
    match leave::write_pidfile(&globals.pidfile) {
        // All connections are here, so it is too late to go back.
        Err(Fatal(why)) if freight.is_some() => log.say(Level::Warning, why),
        written => written?,
    }
    // Clients of the predecessor resume their TLS sessions in this process.
    let tickets = freight.as_ref().map_or(tickets, |(freight, _)| {
        TicketSeed::at(freight.estate.lasting, reload::now())
    });
    let (mut config, contexts) = match freight {
        Some(_) => boot::load_again(&source, config, contexts, tickets, log),
        None => (config, contexts),
    };
    if freight.is_some() {
        sources.set_again(&mut config);
    }
    let (config, contexts) = (Arc::new(config), Arc::new(contexts));
    let (mut freight, old_process) = freight.take().unzip();
    let hosts = freight.as_mut().map(|freight: &mut Freight| {
        // Of the estate, the control thread takes this, and the workers the rest.
        std::mem::take(&mut freight.estate.roster)
    });
    let took_over = freight.is_some();
    let tracer = Tracer::new(log);
    let broker = SharedBroker::new(u64::from_ne_bytes(*seed.first_chunk().expect("32 bytes")));
    let boxes = crew.work(
        &workers::Common {
            config: config.clone(),
            contexts: contexts.clone(),
            broker: broker.clone(),
            listeners: listeners.clone(),
            ear: desk.ear(),
            log: log.clone(),
            driver_story,
            cores,
            tracer: tracer.clone(),
            shared_seed,
        },
        freight,
    );
    if let Some(old_process) = old_process {
        let (boxes, broker, log) = (boxes.clone(), broker.clone(), log.clone());
        let tracked = config
            .globals
            .track_extra_parameters
            .iter()
            .cloned()
            .collect();
        let adopt = move |freight| workers::adopt(freight, &boxes, &broker);
        old_process.follow(tracked, log, adopt);
    }
    log.say(Level::Log, format!("process up: {}", cli::VERSION));
    if took_over {
        systemd::took_over();
    } else {
        systemd::ready();
    }
    desk.serve(control::Parts {
        log: log.clone(),
        source,
        config,
        contexts,
        tickets,
        resolver,
        sources,
        workers: boxes,
        broker,
        listeners,
        tracer,
        hosts: hosts.unwrap_or_default(),
    })
}

/// The sockets of the service manager, and the process to take over from, if there are any.
/// Otherwise makes sure that no other process uses Howdah's addresses.
fn stake_claim(
    arguments: &Arguments,
    globals: &Globals,
    log: &Log,
) -> Result<(Vec<Listener>, Option<Predecessor>), Fatal> {
    let given = listen::from_service_manager(globals)?;
    let predecessor = match arguments.reboot {
        true if !given.is_empty() => {
            let why = "-R does not go with sockets from the service manager: it keeps them open";
            return Err(Fatal(why.into()));
        }
        true => Predecessor::find(globals, log)?,
        false => None,
    };
    if predecessor.is_none() {
        if given.is_empty() {
            boot::refuse_second(globals)?;
        }
        leave::check_pidfile(&globals.pidfile, log)?;
    }
    Ok((given, predecessor))
}

/// What a successor starts with: the listeners, and everything that the predecessor has handed
/// over.
type Inheritance = (Vec<Listener>, Option<(Freight, Predecessor)>);

/// Takes everything from the old process, which then ends or serves the clients left behind.
fn take_over(
    mut predecessor: Predecessor,
    globals: &Globals,
    desk: &mut Desk,
    log: &Log,
) -> Result<Inheritance, Fatal> {
    let mut freight = predecessor.hand_over(globals)?;
    let inherited = freight.listeners.drain(..);
    let inherited = inherited.map(|(address, socket)| Listener::new(address, socket.into_inner()));
    let listeners = listen::open(globals, inherited.collect(), log)?;
    if !listeners.iter().all(Listener::listens) {
        let why = "the old process ends: start without -R when it has ended";
        return Err(Fatal(format!("cannot take over the old process: {why}")));
    }
    // Until here, a signal to end means this process, which waits, and not the service.
    desk.end_in_order()?;
    predecessor.confirm()?;
    takeover::settle(&freight);
    let (clients, servers) = takeover::count(&freight);
    let text = format!("took over {clients} clients and {servers} servers from the old process");
    log.say(Level::Log, text);
    Ok((listeners, Some((freight, predecessor))))
}
