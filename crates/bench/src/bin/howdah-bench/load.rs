//! One run of pgbench and what it cost.

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

/// How pgbench talks.
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
    /// In the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Simple, Self::Extended, Self::Prepared];

    /// pgbench's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        }
    }
}

/// How pgbench gets there, and what it does there.
#[derive(Clone, Debug)]
pub struct Way {
    /// Who logs in.
    pub user: &'static str,
    /// pgbench's threads.
    pub threads: usize,
    /// A script of its own; none: the built-in `-S`.
    pub script: Option<PathBuf>,
    /// Connects anew for each transaction.
    pub reconnect: bool,
    /// Uses TLS.
    pub tls: bool,
    /// How much longer than its time it may take, with this for each client besides, until it counts
    /// as hung.
    pub patience: Duration,
}

/// See [`Way::patience`].
pub const PATIENCE: Duration = Duration::from_secs(60);
/// For each client, which is to log in first.
const PATIENCE_EACH: Duration = Duration::from_millis(20);

impl Default for Way {
    /// As the default table has it.
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

/// What is run.
#[derive(Clone, Debug)]
pub struct Load {
    /// How pgbench gets there.
    pub way: Way,
    /// How pgbench talks.
    pub protocol: Protocol,
    /// Clients at once.
    pub clients: usize,
    /// How long, logins not included.
    pub seconds: u64,
    /// More flags for pgbench.
    pub flags: Vec<String>,
}

/// What one run gave.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Transactions in all.
    pub transactions: u64,
    /// Transactions per second, logins not included.
    pub tps: f64,
    /// pgbench's mean latency in milliseconds.
    pub latency: f64,
    /// Microseconds of processor time of the pooler per transaction, and by which clock.
    pub cpu: Option<(f64, Clock)>,
    /// Kilobytes resident in the pooler at the end of the run.
    pub resident: Option<u64>,
}

/// Between two readings of processor time.
const INTERVAL: Duration = Duration::from_millis(100);

impl Load {
    /// Runs it against a target. Processor time is read again and again while all clients are
    /// logged in and at work. The first and the last reading count, so that neither logins nor
    /// farewells do: time used per second, divided by transactions per second.
    ///
    /// # Errors
    /// pgbench fails, a transaction fails, or a client is lost on the way.
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
        // Before version 14, the second of two such lines is the one without logins.
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

    /// How long a run of so many seconds may take.
    fn bound(&self, seconds: u64) -> Duration {
        Duration::from_secs(seconds) + self.way.patience + PATIENCE_EACH * self.clients as u32
    }

    /// A pgbench that does this; for how long is to be added.
    fn command(&self, machine: &Machine, postgres: &Postgres, target: &Running) -> Command {
        let mut command = postgres.pgbench(machine, target.port());
        command.args(["-U", self.way.user, "-n", "-M", self.protocol.name()]);
        match &self.way.script {
            Some(script) => command.arg("-f").arg(script),
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

    /// Runs it beside something else, until the value is dropped.
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
        // For longer than what it stands beside may take. The log tells every second how much was done.
        let seconds = self.bound(self.seconds).as_secs() + 60;
        command.args(["-P", "1", "-T", &seconds.to_string()]);
        Process::start(&mut command, &machine.folder().join("beside.log"))
    }

    /// Runs a few transactions of each client, whose script fails at a wrong answer.
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
        let load = Load {
            clients: self.clients.min(100),
            ..self.clone()
        };
        let mut command = load.command(machine, postgres, target);
        command.args(["-t", &transactions.to_string()]);
        let task = Task::start(&mut command, machine.folder(), load.bound(0))?;
        match complaint(&task.finish()?) {
            None => Ok(()),
            Some(cause) => Err(io::Error::other(format!("answers are not right: {cause}"))),
        }
    }

    fn watch(&self, pgbench: &mut Task, pooler: &Process) -> io::Result<Usage> {
        let patience = self.way.patience / 2 + PATIENCE_EACH * self.clients as u32;
        // Standard input, output and errors, and a socket per client. Who reconnects has one now and
        // then: all of the run counts.
        let sockets = if self.way.reconnect { 0 } else { self.clients };
        let (process, all) = (pgbench.id(), sockets as u64 + 3);
        let mut ended = || pgbench.is_over();
        let all_are_there = || descriptors(process) >= all;
        wait_until(patience, || all_are_there() || ended());
        let (mut first, mut last) = (None, None);
        let mut resident = 0;
        let mut meter = pooler.meter();
        // A reading counts if all clients are still there after it was taken.
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

/// What a pooler used while under load.
struct Usage {
    /// Seconds of processor time per second.
    share: f64,
    clock: Clock,
    resident: u64,
}

/// Why a pgbench that ended did not do its work; none if it did. It goes on without a client that gets an
/// error, and only then ends with a failure.
fn complaint(done: &Done) -> Option<String> {
    if done.code == Some(0) && !done.errors.contains("aborted") {
        return None;
    }
    let cause = done.errors.lines().find(|line| line.contains("error"));
    let last = || done.errors.lines().last();
    Some(cause.or_else(last).unwrap_or("pgbench failed").to_owned())
}

/// Whether what [`Load::beside`] started worked all the time, and did something.
///
/// # Errors
/// It ended early, or did not do one transaction; then its words are in the error.
pub fn worked_beside(beside: &mut Process) -> io::Result<()> {
    if let Some(end) = beside.end() {
        return Err(io::Error::other(format!("the load beside it ended: {end}")));
    }
    match did_something(&beside.words()) {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "the load beside it did nothing: {}",
            beside.last_words()
        ))),
    }
}

/// By lines like `progress: 1.0 s, 712.4 tps, lat ...`.
fn did_something(log: &str) -> bool {
    let lines = log.lines().filter(|line| line.starts_with("progress:"));
    let mut rates = lines.filter_map(|line| number_after(line, " s,"));
    rates.any(|rate| rate > 0.0)
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
        assert!(did_something(&[line("0.0"), line("712.4")].concat()));
        assert!(!did_something(&line("0.0")));
        assert!(!did_something("pgbench (15.20)\nerror: 1 s, 3 tps\n"));
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
