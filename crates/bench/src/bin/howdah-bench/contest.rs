//! A design played by all contenders, in turn inside each cell, round by round.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::contender::{Certificate, Contender, Kind, Shape};
use crate::crowd::read_waits;
use crate::design::{Cell, Design, Player};
use crate::load::{Load, Way};
use crate::machine::{Machine, raise_descriptor_limit};
use crate::postgres::{OPEN_USER, Postgres};
use crate::process::{Process, established, wait_until};
use crate::record::{CellRecord, Figures, Record, Run};
use crate::run::progress;
use crate::sessions;
use crate::target::Running;

/// PostgreSQL itself takes no more clients than this; see its `max_connections`.
const MOST_DIRECT: usize = 1000;

/// What is played, where, and for how long.
pub struct Contest<'a> {
    /// The design's cells.
    pub cells: Vec<Cell>,
    /// Who takes part.
    pub contenders: &'a [Contender],
    /// Where.
    pub machine: &'a Machine,
    /// What all lead to.
    pub postgres: &'a Postgres,
    /// Every pooler's.
    pub certificate: Certificate,
    /// How often.
    pub rounds: usize,
    /// Seconds for each run.
    pub seconds: u64,
    /// Where the record is kept.
    pub file: PathBuf,
}

/// Started contenders, by who and how.
type Started = BTreeMap<(Kind, Shape), Running>;

impl Contest<'_> {
    /// Plays what `record` does not have yet. Failures are results, too.
    ///
    /// # Errors
    /// The record can't be written.
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
        self.lay_out(record);
        let total = self.cells.len() * self.rounds * self.contenders.len();
        let (began, mut done, mut skipped) = (Instant::now(), 0, 0);
        for round in 0..self.rounds {
            for (number, cell) in self.cells.iter().enumerate() {
                // One shape at a time: idle poolers keep servers, and so memory and sessions.
                let mut started = Started::new();
                let mut order: Vec<_> = self.contenders.iter().collect();
                let first = (round + number) % order.len();
                order.rotate_left(first);
                for contender in order {
                    done += 1;
                    if record.cells[number].has(contender.kind.name(), round) {
                        skipped += 1;
                        continue;
                    }
                    let outcome = self.one(cell, contender, &mut started, record);
                    let left = remaining(began, done - skipped, total - done);
                    self.tell(cell, contender, round, &outcome, (done, total, left));
                    record.cells[number].runs.push(Run {
                        contender: contender.kind.name().to_owned(),
                        round,
                        outcome,
                    });
                    record.save(&self.file)?;
                }
            }
        }
        Ok(())
    }

    /// Gives every cell of the design its place in the record.
    fn lay_out(&self, record: &mut Record) {
        let mut earlier = std::mem::take(&mut record.cells);
        for cell in &self.cells {
            let key = cell.key();
            let known = earlier.iter().position(|known| known.key == key);
            record.cells.push(match known {
                Some(index) => earlier.swap_remove(index),
                None => CellRecord {
                    key,
                    group: cell.group.clone(),
                    row: cell.row(),
                    runs: Vec::new(),
                },
            });
        }
    }

    fn one(
        &self,
        cell: &Cell,
        contender: &Contender,
        started: &mut Started,
        record: &Record,
    ) -> Result<Figures, String> {
        if contender.kind == Kind::PostgreSql && cell.clients > MOST_DIRECT {
            return Err("not played: more clients than PostgreSQL takes".to_owned());
        }
        if contender.kind == Kind::PostgreSql && cell.shape.databases > 1 {
            return Err("not played: to PostgreSQL they are one database".to_owned());
        }
        let outcome = self.measure(cell, contender, started, record);
        if cell.shape.databases > 1 {
            // PostgreSQL has room for the servers of one such pooler at a time.
            started.remove(&(contender.kind, cell.shape));
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
        record: &Record,
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
        let load = self.load(cell, running.port(), record)?;
        let checking = Load {
            way: Way {
                script: Some(self.machine.write("checking.sql", cell.script.checking())?),
                ..load.way.clone()
            },
            flags: Vec::new(),
            ..load.clone()
        };
        checking.verify(self.machine, self.postgres, running)?;
        let storm = cell.storm.then(|| self.storm(&load, running)).transpose()?;
        let reading = load.run(self.machine, self.postgres, running)?;
        drop(storm);
        let waits = read_waits(self.machine.folder(), &prefix(running.port()))?;
        let by = |wanted| reading.cpu.filter(|(_, clock)| *clock == wanted);
        Ok(Figures {
            tps: reading.tps,
            cpu: by(Clock::Task).map(|(cpu, _)| cpu),
            account: by(Clock::Account).map(|(cpu, _)| cpu),
            resident: reading.resident,
            waits: waits.as_ref().map(|waits| waits.percentiles),
            fairness: waits.and_then(|waits| waits.fairness),
        })
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

    fn load(&self, cell: &Cell, port: u16, record: &Record) -> io::Result<Load> {
        let script = match cell.script.text() {
            Some(text) => Some(self.machine.write("constant.sql", text)?),
            None => None,
        };
        let mut flags = vec![
            "-l".to_owned(),
            format!("--log-prefix={}", prefix(port)),
            "--sampling-rate=0.1".to_owned(),
        ];
        if let Some(part) = cell.rate {
            let capacity = capacity(record)?;
            flags.pop();
            flags.push(format!("--rate={:.0}", capacity * part));
        }
        Ok(Load {
            way: Way {
                user: OPEN_USER,
                threads: cell.threads,
                script,
                reconnect: cell.reconnect,
                tls: cell.tls,
            },
            protocol: cell.protocol,
            clients: cell.clients,
            seconds: self.seconds,
            flags,
        })
    }

    fn tell(
        &self,
        cell: &Cell,
        contender: &Contender,
        round: usize,
        outcome: &Result<Figures, String>,
        (done, total, left): (usize, usize, Duration),
    ) {
        let figures = match outcome {
            Ok(figures) => {
                let cpu = figures.cpu.or(figures.account);
                let cpu = cpu.map_or(String::new(), |cpu| format!(", {cpu:.1} us CPU"));
                format!("{:.0} TPS{cpu}", figures.tps)
            }
            Err(cause) => cause.clone(),
        };
        let line = format!(
            "{done}/{total}, {} left  round {}  {}, {}  {}: {figures}",
            minutes(left),
            round + 1,
            cell.group,
            cell.row(),
            contender.kind,
        );
        // A terminal shows one line that changes; a file keeps what failed, and every line.
        progress(&match (io::stderr().is_terminal(), outcome) {
            (true, Ok(_)) => line,
            _ => format!("{line}\n"),
        });
    }
}

fn prefix(port: u16) -> String {
    format!("waits-{port}")
}

/// What 100 % is: the median of PgBouncer's run without a rate, or else of the first pooler's.
fn capacity(record: &Record) -> io::Result<f64> {
    let free = record.cells.first();
    let poolers = [Kind::PgBouncer, Kind::Howdah];
    let mut told = poolers.iter().filter_map(|kind| {
        let spread = free?.spread(kind.name(), |figures| Some(figures.tps));
        Some(spread.ok()??.middle)
    });
    told.next()
        .ok_or_else(|| io::Error::other("no capacity is known: the run without a rate failed"))
}

fn remaining(began: Instant, done: usize, left: usize) -> Duration {
    began.elapsed() / done.max(1) as u32 * left as u32
}

fn minutes(time: Duration) -> String {
    format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
}

/// The record to go on with, or an empty one.
///
/// # Errors
/// There is a file, but no record of this design in it.
pub fn resume(design: Design, file: &Path) -> io::Result<Record> {
    if !file.exists() {
        return Ok(Record::default());
    }
    let record = Record::load(file)?;
    if record.design != design.name() {
        return Err(io::Error::other(format!(
            "{} is a record of {:?}, not of {:?}",
            file.display(),
            record.design,
            design.name()
        )));
    }
    Ok(record)
}

/// How long it will take, without logins and pauses.
pub fn estimate(cells: usize, rounds: usize, contenders: usize, seconds: u64) -> String {
    minutes(Duration::from_secs(
        (cells * rounds * contenders) as u64 * (seconds + 1),
    ))
}
