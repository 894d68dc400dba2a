//! The rows: their measurements, programs and goals.

use howdah_bench::tls::SslVersion;

use crate::load::Protocol;
use crate::measure::{Bound, geometric_mean};

use super::Figures;
use super::subject::{Key, Shape};

/// A program that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// Howdah.
    Howdah,
    /// PgBouncer.
    PgBouncer,
    /// Fixed answers over TLS, by Howdah's driver.
    Echo,
    /// Fixed answers in clear text.
    ClearEcho,
    /// A pooler without features, in clear text.
    Bare,
}

impl Who {
    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Who::Howdah => "howdah",
            Who::PgBouncer => "pgbouncer",
            Who::Echo => "TLS echo",
            Who::ClearEcho => "clear echo",
            Who::Bare => "bare pooler",
        }
    }

    /// True if its clients use TLS.
    pub fn is_secure(self) -> bool {
        matches!(self, Who::Howdah | Who::PgBouncer | Who::Echo)
    }
}

/// The kind of a figure.
#[derive(Clone, Debug)]
pub enum What {
    /// Processor time of a transaction, in microseconds.
    Cpu(Protocol, usize),
    /// Transactions per second.
    Tps(Protocol, usize),
    /// Transactions per second, with a login for each.
    Reconnect(usize),
    /// Processor time of a login in microseconds, with or without resuming a session.
    Login(SslVersion, bool),
    /// The rise of the transactions' 99th percentile, in milliseconds.
    Storm(SslVersion),
    /// Resident memory for each idle client, in kilobytes.
    Memory(SslVersion),
}

/// One combination, measured for all columns.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The cell's name, unique in its row.
    pub name: String,
    /// The kind of its figure.
    pub what: What,
    /// The parameters of the programs' start.
    pub shape: Shape,
    /// The programs must start anew after this cell.
    pub alone: bool,
}

impl Cell {
    /// The load of pgbench in this cell.
    pub fn load(&self) -> (Protocol, usize) {
        match self.what {
            What::Cpu(protocol, clients) | What::Tps(protocol, clients) => (protocol, clients),
            What::Reconnect(clients) => (Protocol::Simple, clients),
            _ => (Protocol::Simple, 40),
        }
    }
}

/// The least possible cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Unknown.
    None,
    /// The cost of the echo.
    Echo,
    /// The cost of the bare pooler, and the cost that TLS adds to the echo, once for each side.
    Bare(u8),
    /// The cost for the machine: Howdah serves the load, and the storm hits the echo, a separate
    /// process.
    Elsewhere,
}

/// The figure that is compared with the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The ratio to the peer's figure.
    Peer,
    /// The ratio to the figure of the cell before. Cells form pairs.
    CellBefore,
    /// The figure itself.
    Nothing {
        /// The figure must also be below the peer's.
        below_peer: bool,
    },
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name for `--only`.
    pub key: &'static str,
    /// The title in the table.
    pub title: &'static str,
    /// The unit of the figures.
    pub unit: &'static str,
    /// The cells.
    pub cells: Vec<Cell>,
    /// The least possible cost.
    pub floor: Floor,
    /// The comparison.
    pub against: Against,
    /// The goal. None if the row only informs.
    pub bound: Option<Bound>,
}

/// The result of a row.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Howdah's figure, the geometric mean of its cells.
    pub ours: f64,
    /// PgBouncer's.
    pub peer: f64,
    /// The floor's.
    pub floor: Option<f64>,
    /// The figures to compare with the bound: Howdah's, and the floor's.
    pub compared: (f64, Option<f64>),
    /// The goal: 1.1 of the floor if the floor is above the bound.
    pub bound: Option<Bound>,
    /// True if the goal is reached.
    pub passed: bool,
}

impl Row {
    /// The programs measured in each cell.
    pub fn columns(&self) -> &'static [Who] {
        use Who::*;
        match self.floor {
            Floor::None => &[Howdah, PgBouncer],
            Floor::Echo | Floor::Elsewhere => &[Howdah, PgBouncer, Echo],
            Floor::Bare(_) => &[Howdah, PgBouncer, Echo, ClearEcho, Bare],
        }
    }

    /// The result of the row.
    ///
    /// # Errors
    /// A measurement failed.
    pub fn outcome(&self, figures: &Figures) -> Result<Outcome, String> {
        let mut all = Vec::new();
        for cell in &self.cells {
            all.push(self.of_cell(cell, figures)?);
        }
        let mean =
            |of: &dyn Fn(&Three) -> f64| geometric_mean(&all.iter().map(of).collect::<Vec<_>>());
        let has_floor = all.iter().all(|three| three.floor.is_some());
        let floor_of = |three: &Three| three.floor.unwrap_or(1.0);
        let (ours, peer) = (mean(&|three| three.ours), mean(&|three| three.peer));
        let floor = has_floor.then(|| mean(&floor_of));
        let compared = match self.against {
            Against::Peer => (ours / peer, floor.map(|floor| floor / peer)),
            Against::Nothing { .. } => (ours, floor),
            Against::CellBefore => {
                let parts = |of: &dyn Fn(&Three) -> f64| {
                    let parts = all.chunks(2).map(|pair| of(&pair[1]) / of(&pair[0]));
                    geometric_mean(&parts.collect::<Vec<_>>())
                };
                let floor = has_floor.then(|| parts(&floor_of));
                (parts(&|three| three.ours), floor)
            }
        };
        let bound = self.bound.map(|bound| bound.above(compared.1));
        let below = !matches!(self.against, Against::Nothing { below_peer: true }) || ours < peer;
        let passed = below && bound.is_none_or(|bound| bound.holds(compared.0));
        Ok(Outcome {
            ours,
            peer,
            floor,
            compared,
            bound,
            passed,
        })
    }

    /// The means over all rounds of a cell.
    pub fn of_cell(&self, cell: &Cell, figures: &Figures) -> Result<Three, String> {
        let mean = |who: Who| -> Result<f64, String> {
            let rounds = figures.get(&(cell.name.clone(), who));
            let rounds = rounds.map_or(&[][..], Vec::as_slice);
            let place = || format!("{}, {}", cell.name, who.name());
            let rounds: Result<Vec<f64>, String> = rounds.iter().cloned().collect();
            let rounds = rounds.map_err(|why| format!("{}: {why}", place()))?;
            match (rounds.is_empty(), &cell.what) {
                (true, _) => Err(format!("{}: not measured", place())),
                // A rise may be zero or negative, so it has no geometric mean.
                (_, What::Storm(_)) => Ok(median(rounds).max(0.01)),
                _ => Ok(geometric_mean(&rounds)),
            }
        };
        let floor = match self.floor {
            Floor::None => None,
            Floor::Echo | Floor::Elsewhere => Some(mean(Who::Echo)?),
            Floor::Bare(sides) => {
                let added = mean(Who::Echo)? - mean(Who::ClearEcho)?;
                Some(mean(Who::Bare)? + f64::from(sides) * added)
            }
        };
        Ok(Three {
            ours: mean(Who::Howdah)?,
            peer: mean(Who::PgBouncer)?,
            floor,
        })
    }
}

/// The figures of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Three {
    /// Howdah's.
    pub ours: f64,
    /// PgBouncer's.
    pub peer: f64,
    /// The floor's.
    pub floor: Option<f64>,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The values of `--only`.
pub const KEYS: [&str; 10] = [
    "cpu",
    "cpu-both",
    "tps",
    "login-ecdsa",
    "login-rsa",
    "login-rsa4096",
    "resumed",
    "reconnect",
    "storm",
    "memory",
];

/// All rows.
pub fn rows() -> Vec<Row> {
    let one = Shape {
        key: Key::Ecdsa,
        both: false,
        workers: 1,
    };
    let transactions = |what: fn(Protocol, usize) -> What, shape: Shape| -> Vec<Cell> {
        let places = [Protocol::Simple, Protocol::Extended]
            .map(|protocol| [40, 120, 500].map(|clients| (protocol, clients)));
        let places = places.concat().into_iter();
        places
            .map(|(protocol, clients)| Cell {
                name: format!("{} {clients}", protocol.name()),
                what: what(protocol, clients),
                shape,
                alone: false,
            })
            .collect()
    };
    let versions = [("1.3", SslVersion::TLS1_3), ("1.2", SslVersion::TLS1_2)];
    let logins = |key: Key| -> Vec<Cell> {
        versions
            .map(|(name, version)| Cell {
                name: format!("TLS {name}"),
                what: What::Login(version, false),
                shape: Shape { key, ..one },
                alone: false,
            })
            .into()
    };
    let rsa = Shape {
        key: Key::Rsa,
        ..one
    };
    let two = Shape { workers: 2, ..one };
    let resumed = versions.map(|(name, version)| {
        [("full", false), ("resumed", true)].map(|(how, resumes)| Cell {
            name: format!("TLS {name}, {how}"),
            what: What::Login(version, resumes),
            shape: rsa,
            alone: false,
        })
    });
    let alone = |what: What, shape: Shape| {
        vec![Cell {
            name: "TLS 1.3".to_owned(),
            what,
            shape,
            alone: true,
        }]
    };
    let row = |key, title, unit, cells, floor, bound| Row {
        key,
        title,
        unit,
        cells,
        floor,
        against: Against::Peer,
        bound,
    };
    let most = |bound| Some(Bound::AtMost(bound));
    let least = |bound| Some(Bound::AtLeast(bound));
    let (echo, us) = (Floor::Echo, "us");
    vec![
        row(
            KEYS[0],
            "CPU per transaction, TLS clients, 1 worker, 40-500 clients, simple and extended",
            us,
            transactions(What::Cpu, one),
            Floor::Bare(1),
            most(0.80),
        ),
        row(
            KEYS[1],
            "the same with TLS on both sides",
            us,
            transactions(What::Cpu, Shape { both: true, ..one }),
            Floor::Bare(2),
            most(0.85),
        ),
        row(
            KEYS[2],
            "TPS, TLS clients, 2 workers, 40-500 clients, simple and extended",
            "TPS",
            transactions(What::Tps, two),
            Floor::None,
            least(1.2),
        ),
        row(
            KEYS[3],
            "CPU per TLS and SCRAM login, ECDSA P-256, full handshake",
            us,
            logins(Key::Ecdsa),
            echo,
            most(0.9),
        ),
        row(
            KEYS[4],
            "the same, RSA-2048",
            us,
            logins(Key::Rsa),
            echo,
            most(0.9),
        ),
        row(
            KEYS[5],
            "the same, RSA-4096",
            us,
            logins(Key::Rsa4096),
            echo,
            None,
        ),
        Row {
            against: Against::CellBefore,
            ..row(
                KEYS[6],
                "CPU per login that resumes, RSA-2048, of the full one",
                us,
                resumed.concat(),
                echo,
                most(0.5),
            )
        },
        row(
            KEYS[7],
            "TPS, pgbench -C over TLS, 40 clients, 2 workers",
            "TPS",
            vec![Cell {
                name: "simple 40".to_owned(),
                what: What::Reconnect(40),
                shape: two,
                alone: false,
            }],
            Floor::None,
            least(1.0),
        ),
        Row {
            against: Against::Nothing { below_peer: false },
            ..row(
                KEYS[8],
                "rise of p99 in a storm of RSA-2048 handshakes, 1 worker, half loaded",
                "ms",
                alone(What::Storm(SslVersion::TLS1_3), rsa),
                Floor::Elsewhere,
                most(5.0),
            )
        },
        Row {
            against: Against::Nothing { below_peer: true },
            ..row(
                KEYS[9],
                "resident memory per idle TLS client",
                "KB",
                alone(What::Memory(SslVersion::TLS1_3), one),
                echo,
                most(8.0),
            )
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str) -> Row {
        rows().into_iter().find(|row| row.key == key).unwrap()
    }

    fn measured(row: &Row, figure: impl Fn(&Cell, Who) -> f64) -> Figures {
        let mut figures = Figures::new();
        for cell in &row.cells {
            for who in row.columns() {
                let figure = vec![Ok(figure(cell, *who)); 2];
                figures.insert((cell.name.clone(), *who), figure);
            }
        }
        figures
    }

    #[test]
    fn rows_are_known_by_their_keys() {
        assert_eq!(rows().iter().map(|row| row.key).collect::<Vec<_>>(), KEYS);
    }

    #[test]
    fn a_floor_above_the_target_is_the_target() {
        let row = row("cpu");
        let figures = measured(&row, |_, who| match who {
            Who::Howdah => 19.0,
            Who::PgBouncer => 20.0,
            Who::Echo => 12.0,
            Who::ClearEcho => 4.0,
            Who::Bare => 10.0,
        });
        let outcome = row.outcome(&figures).unwrap();
        assert!((outcome.floor.unwrap() - 18.0).abs() < 1e-9);
        assert!((outcome.compared.0 - 0.95).abs() < 1e-9);
        // The floor is 0.9 of the peer's figure, so the goal is 0.99 instead of 0.8.
        assert!(outcome.passed, "{outcome:?}");
        assert_eq!(outcome.bound.unwrap().text(), "<= 0.99");
    }

    #[test]
    fn what_is_resumed_is_a_part_of_what_is_not() {
        let row = row("resumed");
        let figures = measured(&row, |cell, who| match (cell.what.clone(), who) {
            (What::Login(_, true), Who::Howdah) => 60.0,
            (What::Login(_, true), _) => 20.0,
            _ => 100.0,
        });
        let outcome = row.outcome(&figures).unwrap();
        assert!((outcome.compared.0 - 0.6).abs() < 1e-9);
        assert!(!outcome.passed);
    }

    #[test]
    fn memory_must_be_below_the_peers() {
        let row = row("memory");
        let figures = measured(&row, |_, who| if who == Who::Howdah { 5.0 } else { 4.0 });
        assert!(!row.outcome(&figures).unwrap().passed);
        let figures = measured(&row, |_, who| if who == Who::PgBouncer { 6.0 } else { 5.0 });
        assert!(row.outcome(&figures).unwrap().passed);
    }

    #[test]
    fn a_failed_measurement_fails_its_row() {
        let row = row("tps");
        let mut figures = measured(&row, |_, _| 1.0);
        figures.insert(
            ("simple 40".into(), Who::Howdah),
            vec![Err("it died".into())],
        );
        assert_eq!(
            row.outcome(&figures).unwrap_err(),
            "simple 40, howdah: it died"
        );
    }
}
