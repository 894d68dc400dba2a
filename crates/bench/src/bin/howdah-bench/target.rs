//! Targets of pgbench: PostgreSQL itself, the floor, Howdah, PgBouncer.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use howdah_bench::scram::Credentials;
use howdah_bench::session::Session;

use crate::machine::{Machine, free_port};
use crate::postgres::{PASSWORD, Postgres, USER};
use crate::process::{Process, wait_until};

/// The time limit until a client gets through a target to PostgreSQL.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Server connections of every pooler.
pub const POOL: usize = 40;

/// The configs of the default table.
const HOWDAH: &str = include_str!("../../../configs/table/howdah.ini");
const PGBOUNCER: &str = include_str!("../../../configs/table/pgbouncer.ini");

/// One way to PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// PostgreSQL itself.
    Direct,
    /// The floor with one thread.
    Floor,
    /// The floor with two threads.
    FloorTwo,
    /// Howdah with one worker, on io_uring.
    Howdah,
    /// Howdah with two workers, on io_uring.
    HowdahTwo,
    /// Howdah with two workers, on io_uring, that poll before they sleep.
    HowdahPolling,
    /// Howdah with one worker, on epoll.
    HowdahEpoll,
    /// PgBouncer.
    PgBouncer,
}

impl Target {
    /// All targets, in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::Direct,
        Self::Floor,
        Self::FloorTwo,
        Self::Howdah,
        Self::HowdahTwo,
        Self::HowdahPolling,
        Self::HowdahEpoll,
        Self::PgBouncer,
    ];

    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Floor => "floor",
            Self::FloorTwo => "floor, 2 threads",
            Self::Howdah => "howdah, 1 worker",
            Self::HowdahTwo => "howdah, 2 workers",
            Self::HowdahPolling => "howdah, 2, polling",
            Self::HowdahEpoll => "howdah, 1, epoll",
            Self::PgBouncer => "pgbouncer",
        }
    }
}

/// The programs under test, in a place where the unprivileged user can run them.
pub struct Programs {
    /// Howdah.
    pub howdah: PathBuf,
    /// The floor.
    pub floor: PathBuf,
    /// The TLS floor.
    pub echo: PathBuf,
    /// PgBouncer.
    pub pgbouncer: PathBuf,
}

/// A started target.
pub struct Running {
    port: u16,
    process: Option<Process>,
}

impl Running {
    /// Starts a target, and waits until a client gets through to PostgreSQL.
    ///
    /// # Errors
    /// The target does not start. The error has its last output.
    pub fn start(
        target: Target,
        machine: &Machine,
        postgres: &Postgres,
        programs: &Programs,
    ) -> io::Result<Self> {
        if target == Target::Direct {
            return Ok(Self::direct(postgres));
        }
        let port = free_port()?;
        let mut command = match target {
            Target::Direct | Target::Floor => floor(machine, postgres, programs, port, 1),
            Target::FloorTwo => floor(machine, postgres, programs, port, 2),
            Target::Howdah | Target::HowdahTwo | Target::HowdahPolling | Target::HowdahEpoll => {
                let (workers, driver, polling) = match target {
                    Target::HowdahTwo => ("2", "io_uring", ""),
                    Target::HowdahPolling => ("2", "io_uring", "busy_poll = 100"),
                    Target::HowdahEpoll => ("1", "epoll", ""),
                    _ => ("1", "io_uring", ""),
                };
                let own = [
                    ("{workers}", workers),
                    ("{io_driver}", driver),
                    ("{busy_poll}", polling),
                ];
                configured(machine, postgres, &programs.howdah, port, HOWDAH, &own)?
            }
            Target::PgBouncer => {
                configured(machine, postgres, &programs.pgbouncer, port, PGBOUNCER, &[])?
            }
        };
        let mut running = Self::of(&mut command, port, machine)?;
        running.await_login(USER, PATIENCE)?;
        Ok(running)
    }

    /// PostgreSQL itself.
    pub fn direct(postgres: &Postgres) -> Self {
        Self {
            port: postgres.port(),
            process: None,
        }
    }

    /// Starts a pooler that will listen on `port`.
    ///
    /// # Errors
    /// The pooler can't be started.
    pub fn of(command: &mut Command, port: u16, machine: &Machine) -> io::Result<Self> {
        let log = machine.folder().join(format!("{port}.log"));
        let process = Process::start(command, &log)?;
        Ok(Self {
            port,
            process: Some(process),
        })
    }

    /// Waits until a client of this user gets through to PostgreSQL.
    ///
    /// # Errors
    /// No client gets through. The error has the last output.
    pub fn await_login(&mut self, user: &str, patience: Duration) -> io::Result<()> {
        let mut credentials = Credentials::new(PASSWORD);
        let mut last = None;
        let address = self.address();
        let logged_in = wait_until(patience, || {
            match Session::connect(address, user, USER, &mut credentials) {
                Ok(session) => session.terminate().is_ok(),
                Err(error) => {
                    last = Some(error);
                    self.has_ended()
                }
            }
        });
        if logged_in && !self.has_ended() {
            return Ok(());
        }
        let words = self
            .process
            .as_ref()
            .map(Process::last_words)
            .unwrap_or_default();
        let last = last.map(|error| error.to_string()).unwrap_or_default();
        Err(io::Error::other(format!(
            "no login: {last}; it wrote: {words}"
        )))
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The pooler's process; none for PostgreSQL itself.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// The pooler's exit status and last output; none while it runs.
    pub fn end(&mut self) -> Option<String> {
        self.process.as_mut()?.end()
    }

    /// True if the pooler has ended.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_some_and(Process::has_ended)
    }
}

fn floor(
    machine: &Machine,
    postgres: &Postgres,
    programs: &Programs,
    port: u16,
    threads: usize,
) -> Command {
    let mut command = machine.command(&programs.floor);
    command.arg("--listen").arg(format!("127.0.0.1:{port}"));
    command
        .arg("--server")
        .arg(format!("127.0.0.1:{}", postgres.port()));
    command.args(["--user", USER, "--database", USER]);
    command.args([
        "--servers",
        &POOL.to_string(),
        "--threads",
        &threads.to_string(),
    ]);
    command.env("PGPASSWORD", PASSWORD);
    command
}

/// Howdah or PgBouncer with this config, after its `{words}` are filled in.
///
/// # Errors
/// The file can't be written.
pub fn configured(
    machine: &Machine,
    postgres: &Postgres,
    program: &Path,
    port: u16,
    config: &str,
    own: &[(&str, &str)],
) -> io::Result<Command> {
    let users = format!("\"{USER}\" \"{}\"\n", postgres.secret());
    let users = machine.write("userlist.txt", &users)?;
    let mut ini = config
        .replace("{port}", &port.to_string())
        .replace("{server_port}", &postgres.port().to_string())
        .replace("{users}", &users.display().to_string())
        .replace("{pool}", &POOL.to_string());
    for (word, value) in own {
        ini = ini.replace(word, value);
    }
    let ini = machine.write(&format!("{port}.ini"), &ini)?;
    let mut command = machine.command(program);
    command.arg(ini);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_config_names_what_is_filled_in() {
        for text in [HOWDAH, PGBOUNCER] {
            for word in ["{port}", "{server_port}", "{users}", "{pool}"] {
                assert!(text.contains(word), "{word} in {text}");
            }
        }
        for word in ["{workers}", "{io_driver}", "{busy_poll}"] {
            assert!(HOWDAH.contains(word), "{word}");
        }
    }
}
