//! The cost of TLS: Howdah, PgBouncer and the floor in one run, with the goals.

mod report;
mod rows;
mod storm;
mod subject;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::time::Duration;

use howdah_bench::scram::Credentials;
use howdah_bench::session::{Session, message};
use howdah_bench::tls::Connector;

use crate::load::{Load, Way};
use crate::machine::{Machine, raise_descriptor_limit};
use crate::pace::Pace;
use crate::postgres::{PASSWORD, Postgres, USER};
use crate::process::{Process, established, wait_until};
use crate::run::{progress, progress_ends};
use crate::target::{POOL, Programs, Running};

pub use report::{json, markdown, score};
pub use rows::{KEYS, Row, rows};
pub use subject::{Certificates, Key};

use rows::{Cell, What, Who};

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The number of rounds.
    pub rounds: usize,
    /// Seconds of pgbench for each cell.
    pub seconds: u64,
    /// Logins in each cell of logins.
    pub logins: usize,
    /// The number of idle clients for the memory row.
    pub crowd: usize,
    /// Handshakes of a storm.
    pub handshakes: usize,
}

/// The script of pgbench's `-S`.
const SELECT: &str = "\\set aid random(1, 1000000)\n\
                      SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n";

/// Figures by cell and program, one for each round; or the reason of the failure.
pub type Figures = BTreeMap<(String, Who), Vec<Result<f64, String>>>;

/// The resources of a run.
pub struct Run<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The PostgreSQL behind all poolers. It accepts TLS.
    pub postgres: &'a Postgres,
    /// The programs to compare.
    pub programs: &'a Programs,
    /// The certificates for all programs.
    pub certificates: &'a Certificates,
    /// The parameters.
    pub choice: Choice,
}

/// Running programs.
type Started = BTreeMap<(Who, subject::Shape), Running>;

impl Run<'_> {
    /// Measures all these rows.
    pub fn rows(&self, rows: impl Iterator<Item = Row>) -> Vec<(Row, Figures)> {
        let rows: Vec<_> = rows.collect();
        let runs = rows.iter().map(|row| row.cells.len() * row.columns().len());
        let mut pace = Pace::new(runs.sum::<usize>() * self.choice.rounds);
        let measure = |row: Row| (row.clone(), self.row(&row, &mut pace));
        let measured = rows.into_iter().map(measure).collect();
        progress_ends();
        measured
    }

    /// Measures all cells of a row, with the programs in turn within each cell.
    fn row(&self, row: &Row, pace: &mut Pace) -> Figures {
        raise_descriptor_limit(self.choice.crowd as u64 + self.choice.handshakes as u64 + 800);
        let (mut figures, mut started) = (Figures::new(), Started::new());
        for round in 0..self.choice.rounds {
            for cell in &row.cells {
                let mut columns = row.columns().to_vec();
                let first = round % columns.len();
                columns.rotate_left(first);
                for who in columns {
                    let figure = self.figure(cell, who, &mut started);
                    let figure = figure.map_err(|error| error.to_string());
                    progress(&format!(
                        "{} {} round {}  {:<24} {:<10} {}",
                        pace.step(),
                        row.key,
                        round + 1,
                        cell.name,
                        who.name(),
                        match &figure {
                            Ok(figure) => format!("{figure:.2}"),
                            Err(why) => format!("FAILED: {why}\n"),
                        }
                    ));
                    let of_cell = figures.entry((cell.name.clone(), who)).or_default();
                    of_cell.push(figure);
                }
                if cell.alone {
                    // Programs must start anew after many clients.
                    started.clear();
                }
            }
        }
        figures
    }

    fn figure(&self, cell: &Cell, who: Who, started: &mut Started) -> io::Result<f64> {
        // An echo serves no load. A storm on the echo runs beside Howdah's load.
        let serves = match &cell.what {
            What::Storm(_) if who == Who::Echo => Who::Howdah,
            _ => who,
        };
        for needed in [who, serves] {
            if let Entry::Vacant(entry) = started.entry((needed, cell.shape)) {
                entry.insert(subject::start(needed, cell.shape, self)?);
            }
        }
        let (target, serving) = (
            &started[&(who, cell.shape)],
            &started[&(serves, cell.shape)],
        );
        match &cell.what {
            What::Cpu(..) => {
                let load = self.load(cell, who)?;
                let reading = load.run(self.machine, self.postgres, target)?;
                let cpu = reading.cpu.map(|(cpu, _)| cpu);
                cpu.ok_or_else(|| io::Error::other("no processor time"))
            }
            What::Tps(..) | What::Reconnect(..) => {
                let load = self.load(cell, who)?;
                let reading = load.run(self.machine, self.postgres, target)?;
                Ok(reading.tps)
            }
            What::Login(version, resumes) => {
                let connector = Connector::new(*version, *resumes)?;
                logins(target, &connector, self.choice.logins, *resumes)
            }
            What::Storm(version) => {
                let connector = Connector::new(*version, false)?;
                let load = self.load(cell, who)?;
                storm::rise(self, &load, serving, target, &connector)
            }
            What::Memory(version) => {
                let connector = Connector::new(*version, false)?;
                memory(target, &connector, self.choice.crowd)
            }
        }
    }

    fn load(&self, cell: &Cell, who: Who) -> io::Result<Load> {
        let (protocol, clients) = cell.load();
        // Before its built-in script pgbench asks about its tables, which an echo does not know.
        let script = self.machine.write("select.sql", SELECT)?;
        Ok(Load {
            way: Way {
                script: Some(script),
                reconnect: matches!(cell.what, What::Reconnect(..)),
                tls: who.is_secure(),
                ..Way::default()
            },
            protocol,
            clients,
            seconds: self.choice.seconds,
            flags: Vec::new(),
        })
    }
}

fn process(target: &Running) -> io::Result<&Process> {
    let process = target.process();
    process.ok_or_else(|| io::Error::other("there is no pooler"))
}

/// Processor time for a connection, a handshake, SCRAM and Terminate, in microseconds.
fn logins(target: &Running, connector: &Connector, count: usize, resumes: bool) -> io::Result<f64> {
    let mut credentials = Credentials::new(PASSWORD);
    let mut log_in = || {
        let session =
            Session::connect_securely(target.address(), USER, USER, &mut credentials, connector)?;
        let resumed = session.tls().is_some_and(|(_, resumed)| resumed);
        session.terminate()?;
        Ok::<_, io::Error>(resumed)
    };
    let all_gone = || wait_until(Duration::from_secs(10), || established(target.port()) == 0);
    for _ in 0..50 {
        log_in()?;
    }
    all_gone();
    let mut meter = process(target)?.meter();
    let before = meter.nanoseconds()?;
    let mut resumed = 0;
    for _ in 0..count {
        resumed += usize::from(log_in()?);
    }
    all_gone();
    let spent = meter.nanoseconds()? - before;
    if resumed != if resumes { count } else { 0 } {
        let text = format!("{resumed} of {count} logins resumed a session");
        return Err(io::Error::other(text));
    }
    Ok(spent as f64 / 1000.0 / count as f64)
}

/// Resident memory in kilobytes for each idle client after one answer.
fn memory(target: &Running, connector: &Connector, clients: usize) -> io::Result<f64> {
    let mut credentials = Credentials::new(PASSWORD);
    let mut open = || {
        let mut session =
            Session::connect_securely(target.address(), USER, USER, &mut credentials, connector)?;
        session.send(&message(b'Q', b"select 1\0"))?;
        session.read_until_ready()?;
        Ok::<_, io::Error>(session)
    };
    // These clients fill the pool, so that the memory of servers is not counted.
    let first = (0..POOL + 10)
        .map(|_| open())
        .collect::<io::Result<Vec<_>>>()?;
    first.into_iter().try_for_each(Session::terminate)?;
    wait_until(Duration::from_secs(10), || established(target.port()) == 0);
    let pooler = process(target)?;
    let before = pooler.resident_kilobytes();
    let crowd = (0..clients)
        .map(|_| open())
        .collect::<io::Result<Vec<_>>>()?;
    let after = pooler.resident_kilobytes();
    crowd.into_iter().try_for_each(Session::terminate)?;
    Ok((after as f64 - before as f64) / clients as f64)
}
