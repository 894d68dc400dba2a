//! One run of pgbench and what it cost.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::machine::Machine;
use crate::postgres::{Postgres, USER};
use crate::process::{Process, descriptors, wait_until};
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
}

impl Default for Way {
    /// As the default table has it.
    fn default() -> Self {
        Self {
            user: USER,
            threads: 2,
            script: None,
            reconnect: false,
            tls: false,
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
        command
            .args(&self.flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut pgbench = command.spawn()?;
        let usage = target
            .process()
            .map(|process| self.watch(&mut pgbench, process));
        let output = pgbench.wait_with_output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let report = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || errors.contains("aborted") {
            let cause = errors.lines().find(|line| line.contains("error"));
            return Err(io::Error::other(
                cause.unwrap_or("pgbench failed").to_owned(),
            ));
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
            tps,
            latency,
            cpu: usage
                .as_ref()
                .map(|usage| (usage.share * 1e6 / tps, usage.clock)),
            resident: usage.map(|usage| usage.resident),
        })
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
        command.args(["-T", &(self.seconds + 60).to_string()]);
        Process::start(&mut command, &machine.folder().join("beside.log"))
    }

    /// Runs a few transactions whose script fails at a wrong answer.
    ///
    /// # Errors
    /// An answer is wrong, or none comes.
    pub fn verify(
        &self,
        machine: &Machine,
        postgres: &Postgres,
        target: &Running,
    ) -> io::Result<()> {
        let load = Load {
            clients: self.clients.min(100),
            ..self.clone()
        };
        let mut command = load.command(machine, postgres, target);
        command.args(["-t", "20"]);
        let output = command.output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.success() && !errors.contains("aborted") {
            return Ok(());
        }
        let cause = errors.lines().find(|line| line.contains("error"));
        let cause = cause.unwrap_or("pgbench failed");
        Err(io::Error::other(format!("answers are not right: {cause}")))
    }

    fn watch(&self, pgbench: &mut Child, pooler: &Process) -> io::Result<Usage> {
        let patience = Duration::from_secs(30) + Duration::from_millis(20) * self.clients as u32;
        // Standard input, output and errors, and a socket per client. Who reconnects has one now and
        // then: all of the run counts.
        let sockets = if self.way.reconnect { 0 } else { self.clients };
        let (process, all) = (pgbench.id(), sockets as u64 + 3);
        let mut ended = || !matches!(pgbench.try_wait(), Ok(None));
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
