//! The well-known benchmarks of poolers, as lists of cells.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::contender::{Kind, Shape};
use crate::load::Protocol;

/// A published design, or one of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Design {
    /// PgDoorman's: three protocols, 1 to 10,000 clients, plain, reconnecting, TLS, and both
    Matrix,
    /// PgDoorman's older one: 80 clients for ten minutes, reconnecting over TLS, cores used
    Classic,
    /// PgDog's: a pool of 10, 1 to 100 clients, one thread and several
    Threads,
    /// A community's: scale 50 (--quick: 10), extended protocol, 16 to 512 clients
    Scaling,
    /// Cost of a login: reconnecting for each transaction, plain and over TLS
    Login,
    /// Waiting times at a fixed rate, 50 to 100 % of what PgBouncer (or the first pooler) can do
    Latency,
    /// Memory of a pooler with 0 to 10,000 nearly idle clients, plain and over TLS, and after large results
    Memory,
    /// Other shapes of work: writes, pipelines, large rows, many rows, servers over unix sockets
    Shapes,
    /// COPY in both directions, a megabyte at a time
    Copy,
    /// A thousand databases beside one: transactions and logins
    Pools,
    /// Single cells that others have published: TLS on both sides with rows of 4 KB, many clients over ten
    /// servers, TPC-B, statements without a name
    Published,
}

/// The most clients directly at PostgreSQL; see its `max_connections`.
const MOST_DIRECT: usize = 1000;

/// The program that plays the clients of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Player {
    /// pgbench.
    Pgbench,
    /// Our own sessions, for work that pgbench can't play.
    Sessions,
}

/// The content of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Script {
    /// `select :aid`, without a table: only the pooler's cost.
    Constant,
    /// pgbench's `-S`: one row of pgbench_accounts by its key.
    Select,
    /// `select :aid`, then a sleep longer than the cell.
    Idle,
    /// One row of 256 KB, then a sleep longer than the cell.
    Burst,
    /// Ten statements, sent before the first answer is read.
    Pipeline,
    /// One row of 100 KB.
    LargeRow,
    /// One row of 4 KB.
    Row,
    /// A thousand small rows.
    ManyRows,
    /// A block of two updates, an insert and a select.
    Writes,
    /// pgbench's own script, TPC-B: as [`Script::Writes`], and one more update of one of ten rows.
    TpcB,
    /// `COPY ... FROM STDIN` of a megabyte. PostgreSQL reads and drops the lines.
    CopyIn,
    /// `COPY ... TO STDOUT` of a megabyte in a thousand lines.
    CopyOut,
}

impl Script {
    /// The script for pgbench's `-f`. None for a built-in script.
    pub fn text(self) -> Option<&'static str> {
        match self {
            Self::Constant => Some("\\set aid random(1, 100000)\nselect :aid;\n"),
            Self::Select | Self::CopyIn | Self::CopyOut => None,
            // pgbench ends a client only between transactions: a cell waits for sleeping clients.
            Self::Idle => Some("\\set aid random(1, 100000)\nselect :aid;\n\\sleep 10 s\n"),
            Self::Burst => Some("select repeat('x', 262144);\n\\sleep 10 s\n"),
            Self::Pipeline => Some(concat!(
                "\\set aid random(1, 100000)\n\\startpipeline\n",
                "select :aid;\nselect :aid;\nselect :aid;\nselect :aid;\nselect :aid;\n",
                "select :aid;\nselect :aid;\nselect :aid;\nselect :aid;\nselect :aid;\n",
                "\\endpipeline\n"
            )),
            Self::LargeRow => Some("select repeat('x', 100000);\n"),
            Self::Row => Some("select repeat('x', 4096);\n"),
            Self::ManyRows => Some("select n, 'row' from generate_series(1, 1000) n;\n"),
            Self::Writes => Some(concat!(
                "\\set aid random(1, 100000 * :scale)\n\\set tid random(1, 10 * :scale)\n",
                "\\set delta random(-5000, 5000)\nbegin;\n",
                "update pgbench_accounts set abalance = abalance + :delta where aid = :aid;\n",
                "select abalance from pgbench_accounts where aid = :aid;\n",
                "update pgbench_tellers set tbalance = tbalance + :delta where tid = :tid;\n",
                "insert into pgbench_history (tid, bid, aid, delta, mtime) ",
                "values (:tid, 1, :aid, :delta, current_timestamp);\nend;\n"
            )),
            Self::TpcB => Some(concat!(
                "\\set aid random(1, 100000 * :scale)\n\\set bid random(1, 1 * :scale)\n",
                "\\set tid random(1, 10 * :scale)\n\\set delta random(-5000, 5000)\nbegin;\n",
                "update pgbench_accounts set abalance = abalance + :delta where aid = :aid;\n",
                "select abalance from pgbench_accounts where aid = :aid;\n",
                "update pgbench_tellers set tbalance = tbalance + :delta where tid = :tid;\n",
                "update pgbench_branches set bbalance = bbalance + :delta where bid = :bid;\n",
                "insert into pgbench_history (tid, bid, aid, delta, mtime) ",
                "values (:tid, :bid, :aid, :delta, current_timestamp);\nend;\n"
            )),
        }
    }

    /// A script with small answers that fails at a wrong answer. [`crate::check`] compares large
    /// answers.
    pub fn checking(self) -> &'static str {
        match self {
            Self::Constant
            | Self::Idle
            | Self::Burst
            | Self::Pipeline
            | Self::LargeRow
            | Self::Row
            | Self::ManyRows => {
                "\\set aid random(1, 100000)\nselect :aid as told \\gset\n\
                 \\if :told <> :aid\nselect wrong_answer;\n\\endif\n"
            }
            Self::Select | Self::Writes | Self::TpcB | Self::CopyIn | Self::CopyOut => {
                "\\set aid random(1, 100000 * :scale)\n\
                 select aid as told from pgbench_accounts where aid = :aid \\gset\n\
                 \\if :told <> :aid\nselect wrong_answer;\n\\endif\n"
            }
        }
    }
}

/// One combination that every contender plays.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The plot of the cell: `simple, TLS`.
    pub group: String,
    /// The protocol of pgbench.
    pub protocol: Protocol,
    /// Clients at once.
    pub clients: usize,
    /// pgbench's threads.
    pub threads: usize,
    /// Each transaction has its own connection.
    pub reconnect: bool,
    /// Clients use TLS.
    pub tls: bool,
    /// The content of a transaction.
    pub script: Script,
    /// The parameters of a contender's start.
    pub shape: Shape,
    /// The offered rate of transactions, as a share of capacity. None: as fast as possible.
    pub rate: Option<f64>,
    /// Twenty other clients meanwhile log in and out without a pause.
    pub storm: bool,
    /// The program that plays the clients.
    pub player: Player,
}

impl Cell {
    /// The cell's name in records. It stays the same while the design does.
    pub fn key(&self) -> String {
        let rate = self
            .rate
            .map_or(String::new(), |rate| format!("/rate{rate}"));
        let databases = match self.shape.databases {
            1 => String::new(),
            more => format!("/d{more}"),
        };
        format!(
            "{}/c{}/p{}/w{}{rate}{databases}",
            self.group, self.clients, self.shape.pool, self.shape.workers
        )
    }

    /// How many answers are checked around a run. A login for each takes PostgreSQL itself
    /// milliseconds, so reconnecting clients are checked less.
    pub fn checks(&self) -> Checks {
        match self.player {
            // These check every answer.
            Player::Sessions => Checks {
                clients: 0,
                before: 0,
                after: 0,
            },
            Player::Pgbench if self.reconnect => Checks {
                clients: self.clients.min(10),
                before: 5,
                after: 2,
            },
            Player::Pgbench => Checks {
                clients: self.clients.min(100),
                before: 20,
                after: 5,
            },
        }
    }

    /// Why a contender does not play this cell, if so.
    pub fn not_played(&self, kind: Kind) -> Option<&'static str> {
        match kind {
            Kind::PostgreSql if self.clients > MOST_DIRECT => {
                Some("not played: more clients than PostgreSQL takes")
            }
            Kind::PostgreSql if self.shape.databases > 1 => {
                Some("not played: to PostgreSQL they are one database")
            }
            _ => None,
        }
    }

    /// The text at the row of the table.
    pub fn row(&self) -> String {
        match (self.rate, self.shape.databases) {
            (Some(rate), _) => format!("{:.0} % of capacity", rate * 100.0),
            (None, 1) => self.clients.to_string(),
            (None, more) => format!("{}, of {more} databases", self.clients),
        }
    }
}

/// See [`Cell::checks`].
#[derive(Clone, Copy, Debug)]
pub struct Checks {
    /// How many clients at once.
    pub clients: usize,
    /// Transactions of each client before the run.
    pub before: usize,
    /// Transactions of each client after the run.
    pub after: usize,
}

/// Further choices.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Fewer and shorter cells.
    pub quick: bool,
    /// Worker threads of poolers that have several. None: the design's own.
    pub workers: Option<usize>,
    /// The least clients.
    pub least_clients: usize,
    /// The most clients.
    pub most_clients: usize,
}

impl Design {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Matrix => "matrix",
            Self::Classic => "classic",
            Self::Threads => "threads",
            Self::Scaling => "scaling",
            Self::Login => "login",
            Self::Latency => "latency",
            Self::Memory => "memory",
            Self::Shapes => "shapes",
            Self::Copy => "copy",
            Self::Pools => "pools",
            Self::Published => "published",
        }
    }

    /// The origin of the design, and its parameters.
    pub fn about(self) -> &'static str {
        match self {
            Self::Matrix => {
                "PgDoorman's matrix: `select :aid` without a table, three protocols, a pool of 40, \
                 logins by trust, plain, reconnecting for each transaction, over TLS, and both; \
                 half of the cores for workers"
            }
            Self::Classic => {
                "PgDoorman's older table: 80 clients; prepared and simple plain, simple \
                 reconnecting over TLS; cores used beside transactions per second"
            }
            Self::Threads => {
                "PgDog's: pgbench -S, a pool of 10, 1, 10 and 100 clients, three protocols, one \
                 worker thread and several"
            }
            Self::Scaling => {
                "a community's: pgbench -S at scale 50 (--quick: 10), extended protocol, 16 to 512 \
                 clients in powers of two, two pgbench threads"
            }
            Self::Login => {
                "one login for each transaction, plain and over TLS: what a login costs the pooler"
            }
            Self::Latency => {
                "waiting times at a fixed offered rate (pgbench --rate counts from when a \
                 transaction should have begun), 40 clients, simple protocol; the same beside a storm \
                 of twenty clients that log in and out over TLS"
            }
            Self::Memory => {
                "resident memory of the pooler with 1, 1,000 and 10,000 clients that do one small \
                 transaction and then nothing, plain and over TLS, and that fetch 256 KB each; with 0 \
                 after 40 clients have been there, whose servers stay"
            }
            Self::Shapes => {
                "40 clients and other work: a block that writes, ten statements in a pipeline, a row \
                 of 100 KB, a thousand rows, and servers over unix sockets"
            }
            Self::Copy => {
                "COPY by sessions of our own, a megabyte at a time: FROM STDIN in messages of 8,000 \
                 bytes (psql's are as long) whose lines PostgreSQL reads and drops, TO STDOUT in a \
                 thousand lines"
            }
            Self::Pools => {
                "1,000 clients, 40 of which ask at a time, by turns: of one database, and of 1,000 \
                 databases with a server each (names of one database of PostgreSQL); and a login for \
                 each transaction, 4 at a time"
            }
            Self::Published => {
                "single cells that others have published: one row of 4 KB over TLS to clients and to \
                 servers, a pool of 50; pgbench -S and TPC-B over ten servers; statements with \
                 parameters and without a name, which Howdah's servers keep \
                 (unnamed_statements = share) as PgDoorman's do"
            }
        }
    }

    /// The length of a cell in seconds, for whole and quick runs.
    pub fn seconds(self, quick: bool) -> u64 {
        match (self, quick) {
            (Self::Memory, _) => 8,
            (Self::Classic, false) => 600,
            (Self::Scaling | Self::Threads | Self::Latency, false) => 20,
            (_, false) => 30,
            (Self::Latency, true) => 4,
            (_, true) => 2,
        }
    }

    /// The default number of rounds. In a quick run of memory, one is enough: the figures do not
    /// change from round to round, and its rounds are long.
    pub fn rounds(self, quick: bool) -> usize {
        match (self, quick) {
            (Self::Memory, true) => 1,
            _ => 3,
        }
    }

    /// The scale of pgbench's tables.
    pub fn scale(self, quick: bool) -> u32 {
        match (self, quick) {
            (Self::Scaling, false) => 50,
            _ => 10,
        }
    }

    /// The cells, in the order of the runs.
    pub fn cells(self, choice: Choice) -> Vec<Cell> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let half = choice.workers.unwrap_or((cores / 2).max(1));
        let all = choice.workers.unwrap_or(cores);
        let mut cells = match self {
            Self::Matrix => matrix(choice, half),
            Self::Classic => classic(half),
            Self::Threads => threads(choice, all),
            Self::Scaling => scaling(choice, all),
            Self::Login => login(half),
            Self::Latency => latency(choice, all),
            Self::Memory => memory(choice, half),
            Self::Shapes => shapes(half),
            Self::Copy => copy(half),
            Self::Pools => pools(half),
            Self::Published => published(choice, half),
        };
        cells.retain(|cell| (choice.least_clients..=choice.most_clients).contains(&cell.clients));
        cells
    }
}

/// A plain cell, as a base for others.
fn plain(protocol: Protocol, clients: usize, script: Script, shape: Shape) -> Cell {
    Cell {
        group: protocol.name().to_owned(),
        protocol,
        clients,
        threads: if clients == 1 { 1 } else { 4 },
        reconnect: false,
        tls: false,
        script,
        shape,
        rate: None,
        storm: false,
        player: Player::Pgbench,
    }
}

fn matrix(choice: Choice, workers: usize) -> Vec<Cell> {
    let shape = Shape::new(40, workers);
    let kinds = [
        ("", false, false),
        (", TLS", false, true),
        (", reconnecting", true, false),
        (", TLS and reconnecting", true, true),
    ];
    let mut cells = Vec::new();
    for (suffix, reconnect, tls) in kinds {
        let numbers: &[usize] = match (choice.quick, reconnect) {
            (true, false) => &[1, 40, 500],
            (true, true) => &[40],
            (false, _) => &[1, 40, 120, 500, 10_000],
        };
        for protocol in Protocol::ALL {
            // The published matrix combines both only with the simple protocol.
            if reconnect && tls && protocol != Protocol::Simple {
                continue;
            }
            for &clients in numbers {
                cells.push(Cell {
                    group: format!("{}{suffix}", protocol.name()),
                    reconnect,
                    tls,
                    ..plain(protocol, clients, Script::Constant, shape)
                });
            }
        }
    }
    cells
}

fn classic(workers: usize) -> Vec<Cell> {
    let shape = Shape::new(40, workers);
    vec![
        plain(Protocol::Prepared, 80, Script::Select, shape),
        plain(Protocol::Simple, 80, Script::Select, shape),
        Cell {
            group: "simple, TLS and reconnecting".to_owned(),
            reconnect: true,
            tls: true,
            ..plain(Protocol::Simple, 80, Script::Select, shape)
        },
    ]
}

fn threads(choice: Choice, all: usize) -> Vec<Cell> {
    let numbers: &[usize] = if choice.quick { &[10] } else { &[1, 10, 100] };
    let mut cells = Vec::new();
    let mut widths = vec![1, all];
    widths.dedup();
    for workers in widths {
        let shape = Shape::new(10, workers);
        for protocol in Protocol::ALL {
            for &clients in numbers {
                cells.push(Cell {
                    group: match workers {
                        1 => format!("{}, one worker thread", protocol.name()),
                        _ => format!("{}, {workers} worker threads", protocol.name()),
                    },
                    ..plain(protocol, clients, Script::Select, shape)
                });
            }
        }
    }
    cells
}

fn scaling(choice: Choice, workers: usize) -> Vec<Cell> {
    let shape = Shape::new(40, workers);
    let step = if choice.quick { 2 } else { 1 };
    let numbers = (4..=9).step_by(step).map(|power| 1 << power);
    let cell = |clients| Cell {
        threads: 2,
        ..plain(Protocol::Extended, clients, Script::Select, shape)
    };
    numbers.map(cell).collect()
}

fn login(workers: usize) -> Vec<Cell> {
    let shape = Shape::new(40, workers);
    let kinds = [("plain", false), ("TLS", true)];
    let cells = kinds.into_iter().flat_map(|(name, tls)| {
        [1, 40].map(|clients| Cell {
            group: name.to_owned(),
            reconnect: true,
            tls,
            ..plain(Protocol::Simple, clients, Script::Constant, shape)
        })
    });
    cells.collect()
}

fn latency(choice: Choice, workers: usize) -> Vec<Cell> {
    let shape = Shape::new(40, workers);
    // The first cell has no rate: it measures the capacity.
    let rates: &[Option<f64>] = if choice.quick {
        &[None, Some(0.5), Some(0.9)]
    } else {
        &[None, Some(0.5), Some(0.7), Some(0.9), Some(1.0)]
    };
    let cell = |rate| Cell {
        group: "simple, 40 clients".to_owned(),
        rate,
        ..plain(Protocol::Simple, 40, Script::Constant, shape)
    };
    let storm = Cell {
        group: "simple, 40 clients beside a storm of logins".to_owned(),
        storm: true,
        ..cell(Some(0.5))
    };
    rates.iter().copied().map(cell).chain([storm]).collect()
}

fn memory(choice: Choice, workers: usize) -> Vec<Cell> {
    let shape = Shape::new(40, workers);
    let numbers: &[usize] = if choice.quick {
        &[0, 1000]
    } else {
        &[0, 1, 1000, 10_000]
    };
    let kinds = [
        ("idle", Script::Idle, false),
        ("idle, TLS", Script::Idle, true),
        ("after 256 KB each", Script::Burst, false),
    ];
    let cells = kinds.into_iter().flat_map(|(name, script, tls)| {
        numbers.iter().map(move |&clients| Cell {
            group: name.to_owned(),
            tls,
            ..plain(Protocol::Simple, clients, script, shape)
        })
    });
    cells.collect()
}

fn shapes(workers: usize) -> Vec<Cell> {
    let shape = Shape::new(40, workers);
    let unix = Shape {
        unix: true,
        ..shape
    };
    let kinds = [
        ("writes", Protocol::Simple, Script::Writes, shape),
        (
            "pipeline of ten",
            Protocol::Extended,
            Script::Pipeline,
            shape,
        ),
        ("row of 100 KB", Protocol::Simple, Script::LargeRow, shape),
        ("a thousand rows", Protocol::Simple, Script::ManyRows, shape),
        (
            "servers over unix sockets",
            Protocol::Simple,
            Script::Constant,
            unix,
        ),
    ];
    let cell = |(name, protocol, script, shape): (&str, _, _, _)| Cell {
        group: name.to_owned(),
        ..plain(protocol, 40, script, shape)
    };
    kinds.map(cell).into()
}

fn copy(workers: usize) -> Vec<Cell> {
    let shape = Shape::new(40, workers);
    let kinds = [
        ("FROM STDIN", Script::CopyIn),
        ("TO STDOUT", Script::CopyOut),
    ];
    let cells = kinds.into_iter().flat_map(|(name, script)| {
        [1, 8].map(|clients| Cell {
            group: name.to_owned(),
            threads: clients,
            player: Player::Sessions,
            ..plain(Protocol::Simple, clients, script, shape)
        })
    });
    cells.collect()
}

fn pools(workers: usize) -> Vec<Cell> {
    let one = Shape::new(40, workers);
    // Here no pool has more than one client, so this limit has no effect.
    let many = Shape {
        databases: 1000,
        ..one
    };
    let kinds = [("transactions", false), ("logins", true)];
    let cells = kinds.into_iter().flat_map(|(name, reconnect)| {
        [one, many].map(|shape| Cell {
            group: name.to_owned(),
            reconnect,
            player: Player::Sessions,
            ..plain(Protocol::Simple, 1000, Script::Constant, shape)
        })
    });
    cells.collect()
}

fn published(choice: Choice, workers: usize) -> Vec<Cell> {
    let numbers = |all: &'static [usize], quick: &'static [usize]| match choice.quick {
        true => quick,
        false => all,
    };
    let tls = Shape {
        server_tls: true,
        ..Shape::new(50, workers)
    };
    let ten = Shape::new(10, workers);
    let shared = Shape {
        shares_unnamed: true,
        ..Shape::new(40, workers)
    };
    let mut cells = Vec::new();
    for &clients in numbers(&[1, 50, 200, 1000], &[50]) {
        cells.push(Cell {
            group: "4 KB, TLS on both sides".to_owned(),
            tls: true,
            ..plain(Protocol::Simple, clients, Script::Row, tls)
        });
    }
    let over_ten = [
        ("ten servers", Script::Select, numbers(&[100, 200], &[100])),
        (
            "ten servers, TPC-B",
            Script::TpcB,
            numbers(&[50, 100], &[50]),
        ),
    ];
    for (name, script, numbers) in over_ten {
        for protocol in [Protocol::Simple, Protocol::Prepared] {
            cells.extend(numbers.iter().map(|&clients| Cell {
                group: format!("{name}, {}", protocol.name()),
                ..plain(protocol, clients, script, ten)
            }));
        }
    }
    for &clients in numbers(&[16, 64, 256], &[64]) {
        cells.push(Cell {
            group: "extended, without names, shared".to_owned(),
            ..plain(Protocol::Extended, clients, Script::Select, shared)
        });
    }
    cells
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_matrix_is_the_published_one() {
        let choice = Choice {
            quick: false,
            workers: None,
            least_clients: 1,
            most_clients: 10_000,
        };
        assert_eq!(Design::Matrix.cells(choice).len(), 50);
    }

    #[test]
    fn the_communitys_design_has_its_scale() {
        assert_eq!(Design::Scaling.scale(false), 50);
        assert_eq!(Design::Scaling.scale(true), 10);
    }

    #[test]
    fn the_bounds_of_clients_hold_in_every_design() {
        for design in Design::value_variants() {
            let choice = Choice {
                quick: false,
                workers: None,
                least_clients: 2,
                most_clients: 10,
            };
            let cells = design.cells(choice);
            assert!(
                cells.iter().all(|cell| (2..=10).contains(&cell.clients)),
                "{}",
                design.name()
            );
        }
    }

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        for design in Design::value_variants() {
            for quick in [false, true] {
                let choice = Choice {
                    quick,
                    workers: Some(2),
                    least_clients: 1,
                    most_clients: 10_000,
                };
                let cells = design.cells(choice);
                let keys: BTreeSet<_> = cells.iter().map(Cell::key).collect();
                assert_eq!(keys.len(), cells.len(), "{}", design.name());
            }
        }
    }
}
