//! One run of pgbench, and its cost.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::machine::Machine;
use crate::postgres::{Postgres, USER};
use crate::process::{Done, Process, Task, descriptors, wait_until};
use crate::target::Running;

/// The protocol of pgbench.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// One Query message.
    Simple,
    /// Parse to Sync, unnamed.
    Extended,
    /// Named statements.
    Prepared,
}

impl Protocol {
    /// All protocols, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Simple, Self::Extended, Self::Prepared];

    /// pgbench's name of the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        }
    }
}

/// How pgbench connects, and its script.
#[derive(Clone, Debug)]
pub struct Way {
    /// The user.
    pub user: &'static str,
    /// pgbench's threads.
    pub threads: usize,
    /// A script. None: the built-in `-S`.
    pub script: Option<PathBuf>,
    /// Each transaction has its own connection.
    pub reconnect: bool,
    /// Uses TLS.
    pub tls: bool,
    /// How long pgbench may exceed its time (plus `PATIENCE_EACH` for each client) before it counts
    /// as hung.
    pub patience: Duration,
}

/// See [`Way::patience`].
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The same for each client, because all clients log in first.
const PATIENCE_EACH: Duration = Duration::from_millis(20);

impl Default for Way {
    /// The parameters of the default table.
    fn default() -> Self {
        Self {
            user: USER,
            threads: 2,
            script: None,
            reconnect: false,
            tls: false,
            patience: PATIENCE,
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Load {
    /// How pgbench connects.
    pub way: Way,
    /// The protocol of pgbench.
    pub protocol: Protocol,
    /// Clients at once.
    pub clients: usize,
    /// The length without logins, in seconds.
    pub seconds: u64,
    /// More flags for pgbench.
    pub flags: Vec<String>,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The number of transactions.
    pub transactions: u64,
    /// Transactions per second, logins not included.
    pub tps: f64,
    /// pgbench's mean latency in milliseconds.
    pub latency: f64,
    /// The pooler's processor time for a transaction in microseconds, and its clock.
    pub cpu: Option<(f64, Clock)>,
    /// The pooler's resident memory at the end of the run, in kilobytes.
    pub resident: Option<u64>,
}

/// The time between two readings of processor time.
const INTERVAL: Duration = Duration::from_millis(100);

impl Load {
    /// Runs pgbench against a target. Processor time is read repeatedly while all clients are at
    /// work. Only the time between the first and the last reading counts, without logins: time used
    /// per second, divided by transactions per second.
    ///
    /// # Errors
    /// pgbench or a transaction fails, or a client is lost.
    pub fn run(
        &self,
        machine: &Machine,
        postgres: &Postgres,
        target: &Running,
    ) -> io::Result<Reading> {
        let mut command = self.command(machine, postgres, target);
        command.args(["-T", &self.seconds.to_string()]);
        command.args(&self.flags);
        let mut pgbench = Task::start(&mut command, machine.folder(), self.bound(self.seconds))?;
        let usage = target
            .process()
            .map(|process| self.watch(&mut pgbench, process));
        let done = pgbench.finish()?;
        let report = String::from_utf8_lossy(&done.out);
        if let Some(cause) = complaint(&done) {
            return Err(io::Error::other(cause));
        }
        let failed = number_after(&report, "number of failed transactions:").unwrap_or(0.0);
        if failed > 0.0 {
            return Err(io::Error::other(format!("{failed} failed transactions")));
        }
        if number_after(&report, "actually processed:") == Some(0.0) {
            return Err(io::Error::other("not one transaction was done in time"));
        }
        let missing = || io::Error::other(format!("pgbench's report is not understood: {report}"));
        // Before version 14, pgbench prints two such lines. The second excludes logins.
        let tps = report
            .rsplit_once("tps =")
            .and_then(|(_, rest)| number_after(rest, ""));
        let tps = tps.ok_or_else(missing)?;
        let latency = number_after(&report, "latency average =").ok_or_else(missing)?;
        let usage = usage.transpose()?;
        Ok(Reading {
            transactions: number_after(&report, "actually processed:").unwrap_or(0.0) as u64,
            tps,
            latency,
            cpu: usage
                .as_ref()
                .map(|usage| (usage.share * 1e6 / tps, usage.clock)),
            resident: usage.map(|usage| usage.resident),
        })
    }

    /// The longest time that a run of this many seconds may take.
    fn bound(&self, seconds: u64) -> Duration {
        Duration::from_secs(seconds) + self.way.patience + PATIENCE_EACH * self.clients as u32
    }

    /// The pgbench command, without its duration.
    fn command(&self, machine: &Machine, postgres: &Postgres, target: &Running) -> Command {
        let mut command = postgres.pgbench(machine, target.port());
        command.args(["-U", self.way.user, "-n", "-M", self.protocol.name()]);
        match &self.way.script {
            // With a script, `:scale` is 1 if it is not given.
            Some(script) => command
                .arg("-f")
                .arg(script)
                .args(["-s", &postgres.scale().to_string()]),
            None => command.arg("-S"),
        };
        let threads = self.way.threads.min(self.clients);
        command.args(["-j", &threads.to_string(), "-c", &self.clients.to_string()]);
        if self.way.reconnect {
            command.arg("-C");
        }
        if self.way.tls {
            command.env("PGSSLMODE", "require");
        }
        command
    }

    /// Runs pgbench beside something else, until the value is dropped.
    ///
    /// # Errors
    /// pgbench can't be started.
    pub fn beside(
        &self,
        machine: &Machine,
        postgres: &Postgres,
        target: &Running,
    ) -> io::Result<Process> {
        let mut command = self.command(machine, postgres, target);
        // Long enough for the other program. The log reports the progress every second.
        let seconds = self.bound(self.seconds).as_secs() + 60;
        command.args(["-P", "1", "-T", &seconds.to_string()]);
        Process::start(&mut command, &machine.folder().join("beside.log"))
    }

    /// Runs a few transactions of each client, with a script that fails at a wrong answer.
    ///
    /// # Errors
    /// An answer is wrong, or none comes.
    pub fn verify(
        &self,
        machine: &Machine,
        postgres: &Postgres,
        target: &Running,
        transactions: usize,
    ) -> io::Result<()> {
        let mut command = self.command(machine, postgres, target);
        command.args(["-t", &transactions.to_string()]);
        let task = Task::start(&mut command, machine.folder(), self.bound(0))?;
        match complaint(&task.finish()?) {
            None => Ok(()),
            Some(cause) => Err(io::Error::other(format!("answers are not right: {cause}"))),
        }
    }

    fn watch(&self, pgbench: &mut Task, pooler: &Process) -> io::Result<Usage> {
        let patience = self.way.patience / 2 + PATIENCE_EACH * self.clients as u32;
        // Standard input, output and errors, and a socket for each client. Reconnecting clients
        // have one only now and then, so the whole run counts.
        let sockets = if self.way.reconnect { 0 } else { self.clients };
        let (process, all) = (pgbench.id(), sockets as u64 + 3);
        let mut ended = || pgbench.is_over();
        let all_are_there = || descriptors(process) >= all;
        wait_until(patience, || all_are_there() || ended());
        let (mut first, mut last) = (None, None);
        let mut resident = 0;
        let mut meter = pooler.meter();
        // A reading counts if all clients are still connected after it.
        while !ended() {
            sleep(INTERVAL);
            let reading = (Instant::now(), meter.nanoseconds()?);
            let memory = pooler.resident_kilobytes();
            if all_are_there() {
                first = first.or(Some(reading));
                last = Some(reading);
                resident = memory;
            } else if first.is_some() {
                break;
            }
        }
        let (Some((start, before)), Some((end, after))) = (first, last) else {
            return Err(io::Error::other("never were all clients there"));
        };
        let elapsed = end - start;
        if elapsed < Duration::from_secs(self.seconds) / 4 {
            return Err(io::Error::other(
                "clients were there too briefly to measure",
            ));
        }
        Ok(Usage {
            share: (after - before) as f64 / elapsed.as_nanos() as f64,
            clock: meter.clock(),
            resident,
        })
    }
}

/// A pooler's cost under load.
struct Usage {
    /// Seconds of processor time per second.
    share: f64,
    clock: Clock,
    resident: u64,
}

/// Why a finished pgbench failed; none if it succeeded. After an error in one client, pgbench goes
/// on with the others and reports a failure at the end.
fn complaint(done: &Done) -> Option<String> {
    if done.code == Some(0) && !done.errors.contains("aborted") {
        return None;
    }
    let cause = done.errors.lines().find(|line| line.contains("error"));
    let last = || done.errors.lines().last();
    Some(cause.or_else(last).unwrap_or("pgbench failed").to_owned())
}

/// Transactions per second of the load of [`Load::beside`]. With `reconnect`, these are its logins.
///
/// # Errors
/// The load ended early, or did not complete a transaction. The error has its output.
pub fn rate_beside(beside: &mut Process) -> io::Result<f64> {
    if let Some(end) = beside.end() {
        return Err(io::Error::other(format!("the load beside it ended: {end}")));
    }
    mean_rate(&beside.words()).ok_or_else(|| {
        io::Error::other(format!(
            "the load beside it did nothing: {}",
            beside.last_words()
        ))
    })
}

/// The mean of lines like `progress: 1.0 s, 712.4 tps, lat ...`. None if no transaction was done.
fn mean_rate(log: &str) -> Option<f64> {
    let lines = log.lines().filter(|line| line.starts_with("progress:"));
    let rates: Vec<_> = lines.filter_map(|line| number_after(line, " s,")).collect();
    let sum: f64 = rates.iter().sum();
    (sum > 0.0).then(|| sum / rates.len() as f64)
}

fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.split_once(label)?;
    let rest = rest.trim_start();
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_was_lost_is_a_complaint() {
        let done = |code, errors: &str| Done {
            code: Some(code),
            out: Vec::new(),
            errors: errors.into(),
        };
        assert_eq!(complaint(&done(0, "")), None);
        let lost = "pgbench: error: client 3 script 0 aborted in command 1\nfatal: sum\n";
        assert!(complaint(&done(0, lost)).unwrap().contains("client 3"));
        assert_eq!(complaint(&done(1, "killed\n")).unwrap(), "killed");
        assert_eq!(complaint(&done(1, "")).unwrap(), "pgbench failed");
    }

    #[test]
    fn a_storm_without_a_login_is_none() {
        let line = |tps| format!("progress: 1.0 s, {tps} tps, lat 1.2 ms stddev 0.1, 0 failed\n");
        let log = [line("100.0"), line("712.4")].concat();
        assert_eq!(mean_rate(&log), Some(406.2));
        assert_eq!(mean_rate(&line("0.0")), None);
        assert_eq!(mean_rate("pgbench (15.20)\nerror: 1 s, 3 tps\n"), None);
    }

    #[test]
    fn numbers_are_found_behind_their_labels() {
        let report = "number of failed transactions: 3 (0.100%)\nlatency average = 1.047 ms\n\
            tps = 38191.4 (without initial connection time)\n";
        assert_eq!(
            number_after(report, "number of failed transactions:"),
            Some(3.0)
        );
        assert_eq!(number_after(report, "latency average ="), Some(1.047));
        assert_eq!(number_after(report, "tps ="), Some(38191.4));
        assert_eq!(number_after(report, "absent"), None);
    }
}
