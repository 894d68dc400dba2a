//! The rows of the table: their goals and results.

use std::collections::BTreeMap;

use crate::clock::Clock;
use crate::load::{Protocol, Reading};
use crate::target::Target;

use Protocol::{Extended, Prepared, Simple};

/// One combination of protocol, number of clients and target.
pub type Cell = (Protocol, usize, Target);

/// All readings by cell, one for each round; or the reason of the failure.
pub type Readings = BTreeMap<Cell, Vec<Result<Reading, String>>>;

/// All numbers of clients in the table.
pub const CLIENTS: [usize; 5] = [1, 8, 40, 120, 500];

/// The figure of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Processor time of the pooler per transaction.
    Cpu,
    /// Transactions per second.
    Tps,
}

impl Figure {
    /// The figure of a run, and its clock.
    pub fn of(self, reading: &Reading) -> Option<(f64, Option<Clock>)> {
        match self {
            Self::Tps => Some((reading.tps, None)),
            Self::Cpu => reading.cpu.map(|(time, clock)| (time, Some(clock))),
        }
    }
}

/// The goal of a ratio.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Bound {
    /// True if a ratio meets the goal.
    pub fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
        }
    }

    /// The goal, or 1.1 of a floor that misses the goal.
    pub fn above(self, floor: Option<f64>) -> Self {
        match (self, floor) {
            (Self::AtMost(most), Some(floor)) if floor > most => Self::AtMost(1.1 * floor),
            _ => self,
        }
    }

    /// The goal as text.
    pub fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("<= {most:.2}"),
            Self::AtLeast(least) => format!(">= {least:.2}"),
        }
    }
}

/// One row from pgbench's cells: the geometric mean of subject divided by peer.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// The name for `--only`.
    pub key: &'static str,
    /// The title in the table.
    pub title: &'static str,
    figure: Figure,
    subject: Target,
    peer: Target,
    protocols: &'static [Protocol],
    clients: &'static [usize],
    /// The goal.
    pub bound: Bound,
}

const MANY: &[usize] = &[40, 120, 500];
const EVERY: &[Protocol] = &Protocol::ALL;
/// The protocols of the floor, which has no named statements.
const UNNAMED: &[Protocol] = &[Simple, Extended];

/// The rows from pgbench's cells.
pub const MEASURES: [Measure; 11] = [
    Measure {
        key: "cpu",
        title: "CPU, 1 worker, 40-500 clients, simple and extended, of PgBouncer's",
        figure: Figure::Cpu,
        subject: Target::Howdah,
        peer: Target::PgBouncer,
        protocols: UNNAMED,
        clients: MANY,
        bound: Bound::AtMost(0.85),
    },
    Measure {
        key: "cpu-8",
        title: "CPU, 1 worker, 8 clients, simple and extended, of PgBouncer's",
        figure: Figure::Cpu,
        subject: Target::Howdah,
        peer: Target::PgBouncer,
        protocols: UNNAMED,
        clients: &[8],
        bound: Bound::AtMost(1.00),
    },
    Measure {
        key: "cpu-prepared",
        title: "CPU, 1 worker, 40-500 clients, prepared, of PgBouncer's",
        figure: Figure::Cpu,
        subject: Target::Howdah,
        peer: Target::PgBouncer,
        protocols: &[Prepared],
        clients: MANY,
        bound: Bound::AtMost(0.70),
    },
    Measure {
        key: "cpu-two",
        title: "CPU, 2 workers, 40-500 clients, of PgBouncer's",
        figure: Figure::Cpu,
        subject: Target::HowdahTwo,
        peer: Target::PgBouncer,
        protocols: EVERY,
        clients: MANY,
        bound: Bound::AtMost(0.85),
    },
    Measure {
        key: "tps-two",
        title: "TPS, 2 workers, 40-500 clients, of PgBouncer's",
        figure: Figure::Tps,
        subject: Target::HowdahTwo,
        peer: Target::PgBouncer,
        protocols: EVERY,
        clients: MANY,
        bound: Bound::AtLeast(1.05),
    },
    Measure {
        key: "tps-one-client",
        title: "TPS, 2 workers, 1 client, busy_poll = 100, of PgBouncer's",
        figure: Figure::Tps,
        subject: Target::HowdahPolling,
        peer: Target::PgBouncer,
        protocols: EVERY,
        clients: &[1],
        bound: Bound::AtLeast(1.05),
    },
    Measure {
        key: "cpu-1",
        title: "CPU, 1 worker, 1 client, simple and extended, of PgBouncer's",
        figure: Figure::Cpu,
        subject: Target::Howdah,
        peer: Target::PgBouncer,
        protocols: UNNAMED,
        clients: &[1],
        bound: Bound::AtMost(1.05),
    },
    Measure {
        key: "tps-few",
        title: "TPS, 1 worker, 1 and 8 clients, of PgBouncer's",
        figure: Figure::Tps,
        subject: Target::Howdah,
        peer: Target::PgBouncer,
        protocols: EVERY,
        clients: &[1, 8],
        bound: Bound::AtLeast(1.00),
    },
    Measure {
        key: "tps-few-epoll",
        title: "TPS, epoll, 1 worker, 1 and 8 clients, of PgBouncer's",
        figure: Figure::Tps,
        subject: Target::HowdahEpoll,
        peer: Target::PgBouncer,
        protocols: EVERY,
        clients: &[1, 8],
        bound: Bound::AtLeast(1.00),
    },
    Measure {
        key: "cpu-epoll",
        title: "CPU, epoll, 1 worker, 40-500 clients, of PgBouncer's",
        figure: Figure::Cpu,
        subject: Target::HowdahEpoll,
        peer: Target::PgBouncer,
        protocols: EVERY,
        clients: MANY,
        bound: Bound::AtMost(0.90),
    },
    Measure {
        key: "cpu-floor",
        title: "CPU, 1 worker, 40-500 clients, simple and extended, of the floor's",
        figure: Figure::Cpu,
        subject: Target::Howdah,
        peer: Target::Floor,
        protocols: UNNAMED,
        clients: MANY,
        bound: Bound::AtMost(1.25),
    },
];

/// Keys of rows that are measured in other ways.
pub const CROWD_KEYS: [&str; 3] = ["active", "memory", "login"];

/// Why figures are not compared.
pub const TWO_CLOCKS: &str = "measured by two clocks, which do not go together";

/// The result of a row.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The geometric mean over all cells and rounds.
    pub ratio: f64,
    /// The smallest and the largest ratio of a cell.
    pub range: (f64, f64),
    /// The floor's mean in the same cells, if the floor can run them.
    pub floor: Option<f64>,
}

impl Measure {
    /// Every cell of this row.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        let targets = [self.subject, self.peer];
        self.places().flat_map(move |(protocol, clients)| {
            targets
                .into_iter()
                .map(move |target| (protocol, clients, target))
        })
    }

    fn places(&self) -> impl Iterator<Item = (Protocol, usize)> + '_ {
        let clients = |protocol| self.clients.iter().map(move |clients| (protocol, *clients));
        self.protocols.iter().copied().flat_map(clients)
    }

    /// The result of the row.
    ///
    /// # Errors
    /// A run of one of its cells failed or is missing, and with it the row.
    pub fn outcome(&self, readings: &Readings) -> Result<Outcome, String> {
        let ratios = self.ratios(readings, self.subject, self.figure)?;
        let floor = match self.subject {
            Target::HowdahTwo | Target::HowdahPolling => Target::FloorTwo,
            _ => Target::Floor,
        };
        let floor = self.ratios(readings, floor, self.figure).ok();
        let floor = floor.map(|ratios| geometric_mean(&ratios));
        let smallest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = ratios.iter().copied().fold(0.0, f64::max);
        Ok(Outcome {
            ratio: geometric_mean(&ratios),
            range: (smallest, largest),
            floor,
        })
    }

    /// By cell, the geometric mean over all rounds of `subject` divided by the peer.
    fn ratios(
        &self,
        readings: &Readings,
        subject: Target,
        figure: Figure,
    ) -> Result<Vec<f64>, String> {
        let mut ratios = Vec::new();
        for (protocol, clients) in self.places() {
            let of = |target| {
                let runs = readings
                    .get(&(protocol, clients, target))
                    .map_or(&[][..], Vec::as_slice);
                let place = format!("{} {clients} {}", protocol.name(), target.name());
                let figures = runs.iter().map(|run| {
                    let reading = run.as_ref().map_err(|cause| format!("{place}: {cause}"))?;
                    let found = figure.of(reading);
                    found.ok_or_else(|| format!("{place}: no processor time"))
                });
                figures.collect::<Result<Vec<_>, _>>()
            };
            let (ours, theirs) = (of(subject)?, of(self.peer)?);
            let place = format!("{} {clients}", protocol.name());
            if ours.is_empty() || ours.len() != theirs.len() {
                return Err(format!("{place}: not measured"));
            }
            let clocks = ours.iter().chain(&theirs).filter_map(|(_, clock)| *clock);
            if Clock::distinct(clocks).len() > 1 {
                return Err(format!("{place}: {TWO_CLOCKS}"));
            }
            let rounds: Vec<_> = ours
                .iter()
                .zip(theirs)
                .map(|((ours, _), (peer, _))| ours / peer)
                .collect();
            ratios.push(geometric_mean(&rounds));
        }
        Ok(ratios)
    }
}

/// Cells for comparison only: PostgreSQL itself and the floor.
pub fn beside() -> Vec<Cell> {
    let mut cells = Vec::new();
    for protocol in Protocol::ALL {
        for clients in CLIENTS {
            cells.push((protocol, clients, Target::Direct));
            if UNNAMED.contains(&protocol) {
                cells.push((protocol, clients, Target::Floor));
                if clients >= 40 {
                    cells.push((protocol, clients, Target::FloorTwo));
                }
            }
        }
    }
    cells
}

/// The geometric mean of positive numbers.
pub fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(tps: f64, cpu: f64) -> Result<Reading, String> {
        Ok(Reading {
            transactions: 0,
            tps,
            latency: 1.0,
            cpu: Some((cpu, Clock::Task)),
            resident: None,
        })
    }

    #[test]
    fn a_row_is_the_geometric_mean_of_its_cells() {
        let measure = &MEASURES[1];
        let mut readings = Readings::new();
        for (protocol, cpu) in [(Simple, 2.0), (Extended, 8.0)] {
            readings.insert((protocol, 8, Target::Howdah), vec![reading(1.0, cpu); 2]);
            readings.insert(
                (protocol, 8, Target::PgBouncer),
                vec![reading(1.0, 10.0); 2],
            );
        }
        let outcome = measure.outcome(&readings).unwrap();
        assert!((outcome.ratio - 0.4).abs() < 1e-9);
        assert!((outcome.range.0 - 0.2).abs() < 1e-9 && (outcome.range.1 - 0.8).abs() < 1e-9);
        assert_eq!(outcome.floor, None);
    }

    #[test]
    fn one_failed_run_or_missing_cell_fails_the_row() {
        let measure = &MEASURES[1];
        let mut readings = Readings::new();
        for (protocol, clients, target) in measure.cells() {
            readings.insert((protocol, clients, target), vec![reading(1.0, 1.0)]);
        }
        assert!(measure.outcome(&readings).is_ok());
        let cell = (Extended, 8, Target::Howdah);
        readings.insert(cell, vec![Err("1 failed transactions".into())]);
        let cause = measure.outcome(&readings).unwrap_err();
        assert_eq!(cause, "extended 8 howdah, 1 worker: 1 failed transactions");
        readings.remove(&cell);
        assert_eq!(
            measure.outcome(&readings).unwrap_err(),
            "extended 8: not measured"
        );
        let by_account = Reading {
            cpu: Some((1.0, Clock::Account)),
            ..reading(1.0, 1.0).unwrap()
        };
        readings.insert(cell, vec![Ok(by_account)]);
        let cause = measure.outcome(&readings).unwrap_err();
        assert_eq!(cause, format!("extended 8: {TWO_CLOCKS}"));
    }
}
