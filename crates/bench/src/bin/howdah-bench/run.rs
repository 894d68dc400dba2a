//! The whole run: all cells in turn, round after round, then the rows with many clients.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crate::clock::Clock;
use crate::crowd;
use crate::design::Script;
use crate::load::{Load, Protocol, Reading, Way};
use crate::machine::{Machine, raise_descriptor_limit};
use crate::measure::{CLIENTS, CROWD_KEYS, Cell, MEASURES, beside};
use crate::pace::Pace;
use crate::postgres::Postgres;
use crate::process::{Process, wait_until};
use crate::report::{Logins, Results};
use crate::target::{POOL, Programs, Running, Target};

/// Logins in each round of the login row.
const LOGINS: usize = 2000;
/// The most rounds of the login row.
const LOGIN_ROUNDS: usize = 3;
/// How many transactions of each client are checked before a measurement, and after.
const CHECKED: usize = 10;

/// The parameters of a run.
pub struct Plan {
    cells: BTreeSet<Cell>,
    wanted: Vec<&'static str>,
    rounds: usize,
    seconds: u64,
    crowd: usize,
}

impl Plan {
    /// A plan for the rows in `only`, or for all rows and the cells for comparison.
    ///
    /// # Errors
    /// There is no such row, or a number is too small.
    pub fn new(only: &[String], rounds: usize, seconds: u64, crowd: usize) -> io::Result<Self> {
        let keys = || MEASURES.iter().map(|measure| measure.key).chain(CROWD_KEYS);
        if let Some(key) = only
            .iter()
            .find(|key| !keys().any(|known| known == key.as_str()))
        {
            let known = keys().collect::<Vec<_>>().join(", ");
            return Err(io::Error::other(format!(
                "there is no row {key:?}, only {known}"
            )));
        }
        if rounds == 0 || seconds == 0 || crowd == 0 {
            return Err(io::Error::other("rounds, seconds and the crowd begin at 1"));
        }
        let is_wanted = |key: &&str| only.is_empty() || only.iter().any(|only| only == key);
        let wanted: Vec<_> = keys().filter(is_wanted).collect();
        let measures = MEASURES
            .iter()
            .filter(|measure| wanted.contains(&measure.key));
        let mut cells: BTreeSet<_> = measures.flat_map(|measure| measure.cells()).collect();
        if only.is_empty() {
            cells.extend(beside());
        }
        let direct = cells
            .iter()
            .map(|(protocol, clients, _)| (*protocol, *clients, Target::Direct));
        cells.extend(direct.collect::<Vec<_>>());
        Ok(Self {
            cells,
            wanted,
            rounds,
            seconds,
            crowd,
        })
    }

    /// Empty results for the chosen rows.
    pub fn empty(&self) -> Results {
        Results {
            wanted: self.wanted.clone(),
            crowd: self.crowd,
            ..Results::default()
        }
    }

    /// The number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// The length of a cell, in seconds.
    pub fn seconds(&self) -> u64 {
        self.seconds
    }

    /// All cells of a round. Cells with the same protocol and number of clients are side by side,
    /// and the first target among them changes from round to round.
    fn round(&self, round: usize) -> Vec<Cell> {
        let mut order = Vec::new();
        for protocol in Protocol::ALL {
            for clients in CLIENTS {
                let cells = self.cells.range((protocol, clients, Target::Direct)..);
                let mut turn: Vec<_> = cells
                    .take_while(|cell| (cell.0, cell.1) == (protocol, clients))
                    .copied()
                    .collect();
                if !turn.is_empty() {
                    let first = round % turn.len();
                    turn.rotate_left(first);
                }
                order.extend(turn);
            }
        }
        order
    }
}

/// The resources of a run.
pub struct Run<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The PostgreSQL behind all targets.
    pub postgres: &'a Postgres,
    /// The programs to compare.
    pub programs: &'a Programs,
    /// The plan.
    pub plan: &'a Plan,
}

impl Run<'_> {
    /// Runs everything. Failures are results, too.
    pub fn everything(&self, results: &mut Results) {
        let wanted = |key: &str| self.plan.wanted.contains(&key);
        // Each client has two descriptors: one of pgbench or this process, and one of the pooler.
        let needed = self.plan.crowd as u64 + 200;
        let limit = raise_descriptor_limit(needed);
        if limit < needed {
            progress(&format!(
                "the limit of {limit} descriptors is too low for a crowd\n"
            ));
        }
        self.cells(results);
        if wanted("login") {
            results.logins = self.logins();
        }
        let pair = [Target::HowdahTwo, Target::PgBouncer];
        let room = || {
            if limit < needed {
                Err(format!(
                    "{limit} descriptors do not suffice for the clients"
                ))
            } else {
                Ok(())
            }
        };
        if wanted("active") {
            let active = |target| {
                room()?;
                self.alone(target, |running| self.active(running))
            };
            results.active = pair
                .map(|target| (target, announced("active", target, active)))
                .into();
        }
        if wanted("memory") {
            let memory = |target| {
                room()?;
                self.alone(target, |running| self.memory(running))
            };
            results.memory = pair
                .map(|target| (target, announced("memory", target, memory)))
                .into();
        }
        progress_ends();
    }

    /// Starts a target for one measurement.
    fn alone<T>(
        &self,
        target: Target,
        measure: impl Fn(&Running) -> io::Result<T>,
    ) -> Result<T, String> {
        let mut running = self.start(target)?;
        measure(&running).map_err(|error| reason(&error, &mut running))
    }

    fn active(&self, running: &Running) -> io::Result<crowd::Waits> {
        let (crowd, seconds) = (self.plan.crowd, 2 * self.plan.seconds);
        self.checked(&self.load(Protocol::Simple, crowd), running, || {
            crowd::active(self.machine, self.postgres, running, crowd, seconds)
        })
    }

    /// Checks answers only at the end: more clients would be memory before the measurement.
    fn memory(&self, running: &Running) -> io::Result<crowd::Growth> {
        let growth = crowd::idle_memory(running, pooler(running)?, self.plan.crowd)?;
        self.verify(&self.load(Protocol::Prepared, POOL), running)?;
        Ok(growth)
    }

    fn start(&self, target: Target) -> Result<Running, String> {
        let running = Running::start(target, self.machine, self.postgres, self.programs);
        running.map_err(|error| error.to_string())
    }

    fn cells(&self, results: &mut Results) {
        let mut running: BTreeMap<Target, Running> = BTreeMap::new();
        let mut pace = Pace::new(self.plan.cells.len() * self.plan.rounds);
        for round in 0..self.plan.rounds {
            for cell in self.plan.round(round) {
                let outcome = self.cell(cell, &mut running);
                progress(&describe(round + 1, cell, &outcome, &pace.step()));
                results.readings.entry(cell).or_default().push(outcome);
            }
        }
    }

    /// One run of one cell. Starts the pooler first if it is not running. A pooler that has failed
    /// is not used again.
    fn cell(
        &self,
        (protocol, clients, target): Cell,
        all: &mut BTreeMap<Target, Running>,
    ) -> Result<Reading, String> {
        let running = match all.entry(target) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(self.start(target)?),
        };
        let load = self.load(protocol, clients);
        let outcome = self.checked(&load, running, || {
            load.run(self.machine, self.postgres, running)
        });
        let outcome = outcome.map_err(|error| reason(&error, running));
        if outcome.is_err() {
            all.remove(&target);
        }
        outcome
    }

    fn load(&self, protocol: Protocol, clients: usize) -> Load {
        Load {
            way: Way::default(),
            protocol,
            clients,
            seconds: self.plan.seconds,
            flags: Vec::new(),
        }
    }

    /// Measures between two checks of answers.
    fn checked<T>(
        &self,
        load: &Load,
        running: &Running,
        measure: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.verify(load, running)?;
        let measured = measure()?;
        self.verify(load, running)?;
        Ok(measured)
    }

    /// Compares the answers to a few transactions of each client.
    fn verify(&self, load: &Load, running: &Running) -> io::Result<()> {
        let script = self
            .machine
            .write("checking.sql", Script::Select.checking())?;
        let checking = Load {
            way: Way {
                script: Some(script),
                ..load.way.clone()
            },
            ..load.clone()
        };
        checking.verify(self.machine, self.postgres, running, CHECKED)
    }

    fn logins(&self) -> Vec<(Target, Logins)> {
        let targets = [Target::Howdah, Target::PgBouncer];
        let mut running = targets.map(|target| (target, self.start(target)));
        let mut results: Vec<_> = targets.map(|target| (target, Ok(Vec::new()))).into();
        for _ in 0..self.plan.rounds.min(LOGIN_ROUNDS) {
            for ((target, running), (_, result)) in running.iter_mut().zip(&mut results) {
                let cpu = announced("login", *target, |_| {
                    let running = running.as_mut().map_err(|cause| cause.clone())?;
                    let cpu = self.login(running);
                    cpu.map_err(|error| reason(&error, running))
                });
                let earlier = std::mem::replace(result, Ok(Vec::new()));
                *result = earlier.and_then(|mut all: Vec<_>| {
                    all.push(cpu?);
                    Ok(all)
                });
            }
        }
        results
    }

    fn login(&self, running: &Running) -> io::Result<(f64, Clock)> {
        self.checked(&self.load(Protocol::Simple, POOL), running, || {
            crowd::login_cpu(running, pooler(running)?, LOGINS)
        })
    }
}

fn pooler(running: &Running) -> io::Result<&Process> {
    let process = running.process();
    process.ok_or_else(|| io::Error::other("there is no pooler"))
}

/// The reason of a failure: the pooler's end, if it has ended, and what clients saw.
fn reason(error: &io::Error, running: &mut Running) -> String {
    // A crashing pooler needs a moment to end.
    wait_until(Duration::from_millis(200), || running.has_ended());
    match running.end() {
        Some(end) => format!("the pooler ended: {end}; clients saw: {error}"),
        None => error.to_string(),
    }
}

fn announced<T>(
    what: &str,
    target: Target,
    measure: impl FnOnce(Target) -> Result<T, String>,
) -> Result<T, String> {
    progress(&format!("{what}: {}", target.name()));
    let outcome = measure(target);
    if let Err(cause) = &outcome {
        progress(&format!("{what}: {} failed: {cause}\n", target.name()));
    }
    outcome
}

fn describe(
    round: usize,
    (protocol, clients, target): Cell,
    outcome: &Result<Reading, String>,
    how_far: &str,
) -> String {
    let figures = match outcome {
        Ok(Reading {
            tps,
            cpu: Some((cpu, _)),
            ..
        }) => format!("{tps:.0} TPS, {cpu:.1} us"),
        Ok(Reading { tps, .. }) => format!("{tps:.0} TPS"),
        Err(cause) => format!("FAILED: {cause}"),
    };
    format!(
        "{how_far} round {round}  {:<8} {clients:>3}  {:<17}  {figures}{}",
        protocol.name(),
        target.name(),
        if outcome.is_err() { "\n" } else { "" }
    )
}

/// On a terminal, a line that the next one replaces; else a normal line.
pub fn progress(line: &str) {
    let mut errors = io::stderr();
    let _ = if errors.is_terminal() {
        write!(errors, "\r\x1b[2K{line}")
    } else {
        writeln!(errors, "{}", line.trim_end())
    };
    let _ = errors.flush();
}

/// Takes the last changing line away from a terminal.
pub fn progress_ends() {
    if io::stderr().is_terminal() {
        progress("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgresql_itself_is_in_every_plan_with_cells() {
        for only in [vec![], vec!["cpu-8".to_owned()]] {
            let plan = Plan::new(&only, 1, 1, 1).unwrap();
            for (protocol, clients, _) in &plan.cells {
                let direct = (*protocol, *clients, Target::Direct);
                assert!(plan.cells.contains(&direct), "{direct:?}");
            }
        }
    }

    #[test]
    fn a_row_that_does_not_exist_is_told_with_those_that_do() {
        let error = Plan::new(&["cpu-9".to_owned()], 1, 1, 1).err().unwrap();
        let error = error.to_string();
        assert!(error.contains("\"cpu-9\", only cpu, cpu-8"), "{error}");
    }
}
