//! The howdah process.
//!
//! The main thread reads the configuration, becomes who it should be, opens the listening sockets,
//! starts the workers and then is the control thread.

mod boot;
mod cli;
mod control;
mod derive;
mod dns;
mod forward;
mod leave;
mod listen;
mod log;
mod nameserver;
mod signals;
mod syslog;
mod systemd;
mod workers;

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;

use boot::{Fatal, Source};
use cli::{Arguments, Command};
use dns::Resolver;
use howdah_pooler::note::Level;
use log::Log;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => print!("{}", cli::USAGE),
        Ok(Command::Version) => println!("{}", cli::VERSION),
        Ok(Command::Settings) => print!("{}", howdah_pooler::config::settings_page()),
        Ok(Command::Manual) => print!("{}", howdah_pooler::config::settings_manual()),
        Ok(Command::Check(arguments)) if boot::check(&arguments) => {}
        Ok(Command::Check(_)) => return ExitCode::FAILURE,
        Ok(Command::Run(arguments)) => {
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

/// Runs the pooler; returns only if it cannot start.
fn run(arguments: &Arguments, log: &Log) -> Result<Infallible, Fatal> {
    if arguments.reboot {
        return Err(Fatal(
            "taking over a running process (-R) is not built yet: stop the old one first".into(),
        ));
    }
    let source = Source::new(arguments);
    let (config, warnings) = boot::load(&source, log)?;
    let globals = &config.globals;

    boot::become_user(globals.user.as_deref())?;
    boot::refuse_second(globals)?;
    leave::check_pidfile(&globals.pidfile, log)?;
    if arguments.daemon {
        boot::daemonize(globals)?;
    }
    log.open(&globals.logfile).map_err(Fatal)?;
    log.set_syslog(globals);
    leave::remember_log(log);
    for warning in warnings {
        log.say(Level::Warning, warning.text);
    }
    leave::leave_on_panic(log);
    boot::raise_limits(&config, log);

    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let count = workers::count(globals, cores);
    let (driver, driver_story) = workers::choose_driver(globals)?;
    log.say(
        Level::Log,
        format!("{count} workers on {cores} cores, {driver_story}"),
    );

    let listeners = listen::open(globals, log)?;
    leave::write_pidfile(&globals.pidfile)?;
    let config = Arc::new(config);
    let resolver = Resolver::open(&config.globals.resolv_conf)?;
    let desk = control::Desk::open(cores)?;
    let boxes = workers::start(
        count,
        &workers::Common {
            config: config.clone(),
            listeners,
            ear: desk.ear(),
            log: log.clone(),
            driver,
            driver_story,
        },
    )?;
    log.say(Level::Log, format!("process up: {}", cli::VERSION));
    systemd::ready();
    desk.serve(log.clone(), source, config, resolver, boxes)
}
