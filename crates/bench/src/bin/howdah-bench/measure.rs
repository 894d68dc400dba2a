//! The rows of the table: what is to be reached, and whether it is.

use std::collections::BTreeMap;

use crate::load::{Protocol, Reading};
use crate::target::Target;

use Protocol::{Extended, Prepared, Simple};

/// One combination of protocol, number of clients and target.
pub type Cell = (Protocol, usize, Target);

/// All readings, by cell, one per round; or why there is none.
pub type Readings = BTreeMap<Cell, Vec<Result<Reading, String>>>;

/// Numbers of clients, all shown.
pub const CLIENTS: [usize; 5] = [1, 8, 40, 120, 500];

/// Which figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Processor time of the pooler per transaction.
    Cpu,
    /// Transactions per second.
    Tps,
}

impl Figure {
    /// A run's.
    fn of(
        self,
        run: &Result<Reading, String>,
        protocol: Protocol,
        clients: usize,
        target: Target,
    ) -> Result<f64, String> {
        let place = format!("{} {clients} {}", protocol.name(), target.name());
        let reading = run.as_ref().map_err(|cause| format!("{place}: {cause}"))?;
        match (self, reading.cpu) {
            (Self::Tps, _) => Ok(reading.tps),
            (Self::Cpu, Some((time, _))) => Ok(time),
            (Self::Cpu, None) => Err(format!("{place}: no processor time")),
        }
    }
}

/// What a ratio must be.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
}

impl Bound {
    /// Whether a ratio meets it.
    pub fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
        }
    }

    /// This, or 1.1 of a floor that does not meet it.
    pub fn above(self, floor: Option<f64>) -> Self {
        match (self, floor) {
            (Self::AtMost(most), Some(floor)) if floor > most => Self::AtMost(1.1 * floor),
            _ => self,
        }
    }

    /// As people read it.
    pub fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("<= {most:.2}"),
            Self::AtLeast(least) => format!(">= {least:.2}"),
        }
    }
}

/// One row made of pgbench's cells: the geometric mean of subject over peer.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// What `--only` calls it.
    pub key: &'static str,
    /// What people call it.
    pub title: &'static str,
    figure: Figure,
    subject: Target,
    peer: Target,
    protocols: &'static [Protocol],
    clients: &'static [usize],
    /// What is to be reached.
    pub bound: Bound,
}

const MANY: &[usize] = &[40, 120, 500];
const EVERY: &[Protocol] = &Protocol::ALL;
/// What the floor can do: named statements need more than it has.
const UNNAMED: &[Protocol] = &[Simple, Extended];

/// The rows that pgbench's cells give.
pub const MEASURES: [Measure; 8] = [
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
        title: "TPS, 2 workers, 1 client, of PgBouncer's",
        figure: Figure::Tps,
        subject: Target::HowdahTwo,
        peer: Target::PgBouncer,
        protocols: EVERY,
        clients: &[1],
        bound: Bound::AtLeast(1.05),
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

/// Keys of the rows that are measured apart.
pub const CROWD_KEYS: [&str; 3] = ["active", "memory", "login"];

/// A row's outcome.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The geometric mean over all cells and rounds.
    pub ratio: f64,
    /// The smallest and the largest ratio of a cell.
    pub range: (f64, f64),
    /// What the floor reaches in the same cells, where it can.
    pub floor: Option<f64>,
}

impl Measure {
    /// Every cell that this row needs.
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

    /// The row's outcome.
    ///
    /// # Errors
    /// A run of one of its cells failed or is missing: then the row has failed, for this reason.
    pub fn outcome(&self, readings: &Readings) -> Result<Outcome, String> {
        let ratios = self.ratios(readings, self.subject, self.figure)?;
        let floor = if self.subject == Target::HowdahTwo {
            Target::FloorTwo
        } else {
            Target::Floor
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

    /// By cell, the geometric mean over the rounds of `subject` over the peer.
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
                let figures = runs
                    .iter()
                    .map(|run| figure.of(run, protocol, clients, target));
                figures.collect::<Result<Vec<_>, _>>()
            };
            let (ours, theirs) = (of(subject)?, of(self.peer)?);
            if ours.is_empty() || ours.len() != theirs.len() {
                return Err(format!("{} {clients}: not measured", protocol.name()));
            }
            let rounds: Vec<_> = ours
                .iter()
                .zip(theirs)
                .map(|(ours, peer)| ours / peer)
                .collect();
            ratios.push(geometric_mean(&rounds));
        }
        Ok(ratios)
    }
}

/// Cells that no row needs but that everyone wants to see beside: PostgreSQL itself, the floor.
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
    use crate::clock::Clock;

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
    }
}
