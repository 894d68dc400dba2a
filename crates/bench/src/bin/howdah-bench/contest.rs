//! Plays a design: all contenders in turn within each cell, round after round.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::check;
use crate::clock::Clock;
use crate::contender::{Certificate, Contender, Kind, Shape};
use crate::crowd::{forget_waits, read_waits, settled};
use crate::design::{Cell, Design, Player, Script};
use crate::estimate::minutes;
use crate::load::{Load, Reading, Way, rate_beside};
use crate::machine::{Machine, raise_descriptor_limit};
use crate::postgres::{OPEN_USER, Postgres};
use crate::process::{Process, established, wait_until};
use crate::record::{Figures, Record, Run};
use crate::run::progress;
use crate::schedule::{Progress, Schedule, Step};
use crate::sessions;
use crate::target::Running;

/// How many clients connect and leave before memory without clients is measured.
const GONE: usize = 40;

/// Runs up to this many seconds log every transaction. Longer runs log as many, drawn at random.
const LOGGED_SECONDS: u64 = 60;

/// The parameters of a contest.
pub struct Contest<'a> {
    /// The design's cells.
    pub cells: Vec<Cell>,
    /// The contenders.
    pub contenders: &'a [Contender],
    /// The machine.
    pub machine: &'a Machine,
    /// The PostgreSQL behind all contenders.
    pub postgres: &'a Postgres,
    /// The certificate of every pooler.
    pub certificate: Certificate,
    /// The number of rounds.
    pub rounds: usize,
    /// The length of a run, in seconds.
    pub seconds: u64,
    /// See [`Way::patience`].
    pub patience: Duration,
    /// The file of the record.
    pub file: PathBuf,
}

/// Running contenders, by kind and shape.
type Started = BTreeMap<(Kind, Shape), Running>;

impl Contest<'_> {
    /// Plays the runs that `record` lacks. Failures are results, too.
    ///
    /// # Errors
    /// The record can't be written, or PostgreSQL has ended.
    pub fn play(&self, record: &mut Record) -> io::Result<()> {
        // A pooler has a descriptor for each client, and one for a server of each database.
        let needs = |cell: &Cell| cell.clients + cell.shape.databases;
        let most = self.cells.iter().map(needs).max();
        let wanted = most.unwrap_or(0) as u64 + 200;
        let limit = raise_descriptor_limit(wanted);
        if limit < wanted {
            progress(&format!(
                "the limit of {limit} descriptors is too low for some cells\n"
            ));
        }
        let names: Vec<_> = self.contenders.iter().map(|one| one.kind.name()).collect();
        let schedule = Schedule {
            cells: &self.cells,
            names: &names,
            rounds: self.rounds,
            file: &self.file,
        };
        // One shape at a time, because idle poolers keep servers, with memory and sessions.
        let (mut visit, mut started) = (None, Started::new());
        let run = |step: Step<'_>, record: &mut Record| {
            if visit.replace(step.visit) != Some(step.visit) {
                started.clear();
            }
            let contender = &self.contenders[step.contender];
            let outcome = self.one(step.cell, contender, &mut started, record);
            match outcome.is_err().then(|| self.postgres.end()).flatten() {
                None => Ok(outcome),
                Some(words) => Err(io::Error::other(format!(
                    "PostgreSQL ended: {words}. The record has all runs before; the same command goes on"
                ))),
            }
        };
        schedule.play(
            record,
            run,
            |step, outcome, how_far| self.tell(step, outcome, how_far),
            |warning| progress(&format!("{warning}\n")),
        )
    }

    fn one(
        &self,
        cell: &Cell,
        contender: &Contender,
        started: &mut Started,
        record: &mut Record,
    ) -> Result<Figures, String> {
        if let Some(reason) = cell.not_played(contender.kind) {
            return Err(reason.to_owned());
        }
        let mut outcome = self.measure(cell, contender, started, record);
        let name = (contender.kind, cell.shape);
        if let (Err(error), Some(running)) = (&outcome, started.get_mut(&name)) {
            // A crashing pooler needs a moment to end.
            wait_until(Duration::from_millis(200), || running.has_ended());
            if let Some(end) = running.end() {
                outcome = Err(io::Error::other(format!(
                    "the pooler ended: {end}; clients saw: {error}"
                )));
            }
            // The next run must not use a pooler that has failed.
            started.remove(&name);
        }
        if cell.shape.databases > 1 {
            // PostgreSQL has room for the servers of only one such pooler.
            started.remove(&name);
            let port = self.postgres.port();
            wait_until(Duration::from_secs(10), || established(port) == 0);
        }
        outcome.map_err(|error| error.to_string())
    }

    fn measure(
        &self,
        cell: &Cell,
        contender: &Contender,
        started: &mut Started,
        record: &mut Record,
    ) -> io::Result<Figures> {
        let name = (contender.kind, cell.shape);
        let running = match started.entry(name) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(contender.start(
                cell.shape,
                self.machine,
                self.postgres,
                &self.certificate,
            )?),
        };
        if cell.player == Player::Sessions {
            return sessions::play(cell, running, self.seconds);
        }
        if cell.clients == 0 {
            return self.without_clients(cell, running);
        }
        let rate = match cell.rate {
            Some(part) => Some((self.capacity(record)? * part).round()),
            None => None,
        };
        let (load, sampled) = self.load(cell, running.port(), rate)?;
        self.verify(cell, &load, running, cell.checks().before)?;
        let prefix = prefix(running.port());
        forget_waits(self.machine.folder(), &prefix)?;
        let mut storm = cell.storm.then(|| self.storm(&load, running)).transpose()?;
        let reading = load.run(self.machine, self.postgres, running)?;
        let logins = storm.as_mut().map(rate_beside).transpose()?;
        drop(storm);
        let waits = read_waits(self.machine.folder(), &prefix, cell.clients)?;
        let logged = waits.as_ref().map_or(0, |waits| waits.count);
        if sampled == 1.0 && logged < reading.transactions {
            return Err(io::Error::other(format!(
                "pgbench logged {logged} of {} transactions: is the disk full?",
                reading.transactions
            )));
        }
        self.verify(cell, &load, running, cell.checks().after)?;
        let every = waits.as_ref().filter(|_| sampled == 1.0);
        Ok(Figures {
            waits: waits.as_ref().map(|waits| waits.percentiles),
            sampled: waits.as_ref().map(|_| sampled),
            fairness: every.and_then(|waits| waits.fairness),
            most_served: every.and_then(|waits| waits.most_served),
            logins,
            rate,
            ..figures(&reading, cell.storm)
        })
    }

    /// Memory after a few clients have come and gone. Their servers remain.
    fn without_clients(&self, cell: &Cell, running: &Running) -> io::Result<Figures> {
        let some = Cell {
            clients: GONE,
            ..cell.clone()
        };
        let load = self.way(&some)?;
        self.verify_small(&some, &load, running, some.checks().before)?;
        if running.process().is_some() {
            wait_until(self.patience, || established(running.port()) == 0);
        }
        Ok(Figures {
            resident: running.process().map(settled),
            ..Figures::default()
        })
    }

    /// Checks answers: pgbench's, and those of the cell's script.
    fn verify(&self, cell: &Cell, load: &Load, running: &Running, times: usize) -> io::Result<()> {
        self.verify_small(cell, load, running, times)?;
        check::shape(cell.script, running.address(), cell.clients)
    }

    /// Checks small answers with pgbench.
    fn verify_small(
        &self,
        cell: &Cell,
        load: &Load,
        running: &Running,
        times: usize,
    ) -> io::Result<()> {
        let checking = Load {
            way: Way {
                script: Some(self.machine.write("checking.sql", cell.script.checking())?),
                ..load.way.clone()
            },
            clients: cell.checks().clients,
            flags: Vec::new(),
            ..load.clone()
        };
        checking.verify(self.machine, self.postgres, running, times)
    }

    /// Clients that log in and out over TLS until the value is dropped.
    fn storm(&self, load: &Load, running: &Running) -> io::Result<Process> {
        let storm = Load {
            way: Way {
                reconnect: true,
                tls: true,
                threads: 1,
                ..load.way.clone()
            },
            clients: 20,
            flags: Vec::new(),
            ..load.clone()
        };
        storm.beside(self.machine, self.postgres, running)
    }

    /// The load of a cell, and the share of its transactions that is logged.
    fn load(&self, cell: &Cell, port: u16, rate: Option<f64>) -> io::Result<(Load, f64)> {
        let mut load = self.way(cell)?;
        load.flags = vec!["-l".to_owned(), format!("--log-prefix={}", prefix(port))];
        let mut sampled = 1.0;
        if let Some(rate) = rate {
            load.flags.push(format!("--rate={rate}"));
        } else if self.seconds > LOGGED_SECONDS {
            sampled = LOGGED_SECONDS as f64 / self.seconds as f64;
            load.flags.push(format!("--sampling-rate={sampled}"));
        }
        Ok((load, sampled))
    }

    fn way(&self, cell: &Cell) -> io::Result<Load> {
        let script = match cell.script.text() {
            Some(text) => Some(self.machine.write("constant.sql", text)?),
            None => None,
        };
        Ok(Load {
            way: Way {
                user: OPEN_USER,
                threads: cell.threads,
                script,
                reconnect: cell.reconnect,
                tls: cell.tls,
                patience: self.patience,
            },
            protocol: cell.protocol,
            clients: cell.clients,
            seconds: self.seconds,
            flags: Vec::new(),
        })
    }

    /// The rate that counts as 100 % in all runs of a record: that of the first run without a rate,
    /// of PgBouncer, else Howdah, else the first pooler.
    fn capacity(&self, record: &mut Record) -> io::Result<f64> {
        if let Some(capacity) = record.capacity {
            return Ok(capacity);
        }
        let free = self.cells.iter().find(|cell| cell.rate.is_none());
        let free = free.and_then(|cell| record.cell(&cell.key()));
        let poolers = self.contenders.iter().map(|contender| contender.kind);
        record.capacity = capacity(
            free.map_or(&[], |cell| &cell.runs),
            poolers.filter(|kind| *kind != Kind::PostgreSql),
        );
        record
            .capacity
            .ok_or_else(|| io::Error::other("no capacity is known: the run without a rate failed"))
    }

    fn tell(&self, step: Step<'_>, outcome: &Result<Figures, String>, how_far: Progress) {
        let Step { cell, round, .. } = step;
        let Progress { done, total, left } = how_far;
        let figures = match outcome {
            Ok(figures) => {
                let cpu = figures.cpu.or(figures.account);
                let cpu = cpu.map_or(String::new(), |cpu| format!(", {cpu:.1} us CPU"));
                match (cell.script, figures.resident) {
                    (Script::Idle | Script::Burst, Some(kilobytes)) => format!("{kilobytes} KB"),
                    _ => format!("{:.0} TPS{cpu}", figures.tps),
                }
            }
            Err(cause) => cause.clone(),
        };
        let line = format!(
            "{done}/{total}, {} left  round {}  {}, {}  {}: {figures}",
            minutes(left),
            round + 1,
            cell.group,
            cell.row(),
            self.contenders[step.contender].kind,
        );
        // A terminal shows one changing line. A file keeps every line, with failures.
        progress(&match (io::stderr().is_terminal(), outcome) {
            (true, Ok(_)) => line,
            _ => format!("{line}\n"),
        });
    }
}

fn prefix(port: u16) -> String {
    format!("waits-{port}")
}

/// The figures from a run of pgbench. Beside a storm there is no processor time: the pooler's work
/// for the logins of the storm is part of the reading.
fn figures(reading: &Reading, storm: bool) -> Figures {
    let cpu = reading.cpu.filter(|_| !storm);
    let by = |wanted| cpu.filter(|(_, clock)| *clock == wanted);
    Figures {
        tps: reading.tps,
        cpu: by(Clock::Task).map(|(cpu, _)| cpu),
        account: by(Clock::Account).map(|(cpu, _)| cpu),
        mean: Some(reading.latency),
        resident: reading.resident,
        ..Figures::default()
    }
}

/// See [`Contest::capacity`].
fn capacity(runs: &[Run], poolers: impl Iterator<Item = Kind>) -> Option<f64> {
    let mut order = vec![Kind::PgBouncer, Kind::Howdah];
    order.extend(poolers);
    let rounds = runs.iter().map(|run| run.round).max()? + 1;
    let each = (0..rounds).flat_map(|round| order.iter().map(move |kind| (round, kind.name())));
    let mut told = each.filter_map(|(round, name)| {
        let run = runs
            .iter()
            .find(|run| run.round == round && run.contender == name)?;
        Some(run.outcome.as_ref().ok()?.tps)
    });
    told.next()
}

/// The record to continue, or an empty one.
///
/// # Errors
/// The file exists, but is not a record of this design.
pub fn resume(design: Design, file: &Path, fresh: bool) -> io::Result<Record> {
    if fresh || !file.exists() {
        return Ok(Record::default());
    }
    Record::load_of(file, design.name())
        .map_err(|error| io::Error::other(format!("{error}; say another --out, or --fresh")))
}

/// Verifies that runs with this stamp may be added to a record.
///
/// # Errors
/// The record has runs of other builds, lengths, configs or machines.
pub fn same_builds(
    record: &Record,
    stamp: &BTreeMap<String, String>,
    file: &Path,
) -> io::Result<()> {
    let differs = record.differs_from(stamp);
    if differs.is_empty() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{} holds runs that do not go together with those of now: {}. Say another --out to keep it, or \
         --fresh to begin anew in its place",
        file.display(),
        differs.join("; ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, round: usize, tps: Option<f64>) -> Run {
        let figures = |tps| Figures {
            tps,
            ..Figures::default()
        };
        Run {
            contender: name.into(),
            round,
            outcome: tps.map(figures).ok_or_else(|| "it died".into()),
        }
    }

    #[test]
    fn capacity_is_the_first_runs_and_anybodys() {
        let others = || [Kind::Odyssey, Kind::PgCat].into_iter();
        let mut runs = vec![
            run("postgresql", 0, Some(9.0)),
            run("pgcat", 0, Some(1.0)),
            run("odyssey", 0, None),
        ];
        assert_eq!(capacity(&runs, others()), Some(1.0));
        runs.push(run("howdah", 0, Some(5.0)));
        assert_eq!(capacity(&runs, others()), Some(5.0));
        runs.push(run("pgbouncer", 1, Some(3.0)));
        assert_eq!(capacity(&runs, others()), Some(5.0), "of the first round");
        assert_eq!(capacity(&[], others()), None);
    }

    #[test]
    fn beside_a_storm_there_is_no_processor_time() {
        let reading = Reading {
            transactions: 1,
            tps: 5.0,
            latency: 1.0,
            cpu: Some((3.0, Clock::Task)),
            resident: Some(7),
        };
        assert_eq!(figures(&reading, false).cpu, Some(3.0));
        let beside = figures(&reading, true);
        assert_eq!((beside.cpu, beside.resident), (None, Some(7)));
    }

    #[test]
    fn another_build_is_told_with_the_remedy() {
        let stamp = |value: &str| BTreeMap::from([("howdah".to_owned(), value.to_owned())]);
        let mut record = Record::default();
        let file = Path::new("record.json");
        same_builds(&record, &stamp("a"), file).unwrap();
        record.stamp = stamp("a");
        same_builds(&record, &stamp("a"), file).unwrap();
        let error = same_builds(&record, &stamp("b"), file)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("howdah was a, and is b") && error.contains("--fresh"),
            "{error}"
        );
    }
}
