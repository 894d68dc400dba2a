//! What a report shows of each cell: figures, their spread, and the best of a row.

use crate::record::{CellRecord, Figures, Record, Spread};

/// A figure that is shown for every cell.
pub struct Shown {
    /// The title of its tables.
    pub title: &'static str,
    /// Whether more or less is better.
    pub better: &'static str,
    /// Takes the figure from those of a run.
    pub figure: fn(&Figures) -> Option<f64>,
    /// The figure uses the pooler's processor time.
    pub is_cpu: bool,
    /// Digits after the point.
    pub digits: usize,
    /// Whether more or less is best.
    pub most_is_best: bool,
}

const TPS: Shown = Shown {
    title: "Transactions per second",
    better: "more is better",
    figure: |figures| Some(figures.tps),
    digits: 0,
    is_cpu: false,
    most_is_best: true,
};

const CPU: Shown = Shown {
    title: "Pooler's CPU, microseconds per transaction",
    better: "less is better",
    figure: |figures| figures.cpu.or(figures.account),
    digits: 1,
    is_cpu: true,
    most_is_best: false,
};

const CORES: Shown = Shown {
    title: "Pooler's cores in use",
    better: "less is better at the same rate",
    figure: |figures| Some(figures.cpu.or(figures.account)? * figures.tps / 1e6),
    digits: 2,
    is_cpu: true,
    most_is_best: false,
};

const MEDIAN: Shown = Shown {
    title: "Waiting time, median, milliseconds",
    better: "less is better",
    figure: |figures| Some(figures.waits?[0]),
    digits: 2,
    is_cpu: false,
    most_is_best: false,
};

const MEAN: Shown = Shown {
    title: "Waiting time, mean, milliseconds",
    figure: |figures| figures.mean,
    ..MEDIAN
};

const TAIL: Shown = Shown {
    title: "Waiting time, 99th percentile, milliseconds",
    better: "less is better",
    figure: |figures| Some(figures.waits?[2]),
    digits: 2,
    is_cpu: false,
    most_is_best: false,
};

const HIGH: Shown = Shown {
    title: "Waiting time, 95th percentile, milliseconds",
    figure: |figures| Some(figures.waits?[1]),
    ..TAIL
};

const FAR_TAIL: Shown = Shown {
    title: "Waiting time, 99.9th percentile, milliseconds",
    figure: |figures| Some(figures.waits?[3]),
    ..TAIL
};

const LONGEST: Shown = Shown {
    title: "Waiting time, longest, milliseconds",
    better: "less is better",
    figure: |figures| Some(figures.waits?[4]),
    digits: 1,
    is_cpu: false,
    most_is_best: false,
};

const FAIRNESS: Shown = Shown {
    title: "Transactions of the client that was served least, percent of the median client's",
    better: "more is better",
    figure: |figures| Some(figures.fairness? * 100.0),
    digits: 0,
    is_cpu: false,
    most_is_best: true,
};

const MOST_SERVED: Shown = Shown {
    title: "Transactions of the client that was served most, percent of the median client's",
    better: "less is better",
    figure: |figures| Some(figures.most_served? * 100.0),
    most_is_best: false,
    ..FAIRNESS
};

const LOGINS: Shown = Shown {
    title: "Logins per second of the storm beside the clients",
    figure: |figures| figures.logins,
    ..TPS
};

const RESIDENT: Shown = Shown {
    title: "Pooler's memory with all clients connected, megabytes",
    better: "less is better",
    figure: |figures| Some(figures.resident? as f64 / 1024.0),
    digits: 1,
    is_cpu: false,
    most_is_best: false,
};

/// [`per_client`] computes this from [`RESIDENT`].
const PER_CLIENT: Shown = Shown {
    title: "Pooler's memory beyond that without clients, bytes per client",
    digits: 0,
    ..RESIDENT
};

const MEGABYTES: Shown = Shown {
    title: "Megabytes per second",
    ..TPS
};

const CPU_OF_MEGABYTES: Shown = Shown {
    title: "Pooler's CPU, microseconds per megabyte",
    digits: 0,
    ..CPU
};

/// The figures of a report, in this order.
const ALL: [&Shown; 12] = [
    &TPS,
    &CPU,
    &CORES,
    &MEAN,
    &MEDIAN,
    &HIGH,
    &TAIL,
    &FAR_TAIL,
    &LONGEST,
    &FAIRNESS,
    &MOST_SERVED,
    &RESIDENT,
];

impl Record {
    /// The figures of this design's report. The first two are plotted.
    pub fn shown(&self) -> &'static [&'static Shown] {
        match self.design.as_str() {
            "memory" => &[&RESIDENT, &PER_CLIENT],
            "copy" => &[&MEGABYTES, &CPU_OF_MEGABYTES, &CORES, &RESIDENT],
            "pools" => &[&CPU, &RESIDENT, &TPS, &CORES],
            "latency" => &[
                &MEDIAN,
                &TAIL,
                &MEAN,
                &HIGH,
                &FAR_TAIL,
                &LONGEST,
                &TPS,
                &CPU,
                &CORES,
                &FAIRNESS,
                &MOST_SERVED,
                &RESIDENT,
                &LOGINS,
            ],
            _ => &ALL,
        }
    }
}

/// The content of a table cell.
pub enum Told {
    /// There is no such figure.
    Nothing,
    /// A run failed, for this reason.
    Failed(String),
    /// The figure over all rounds.
    Figure(Spread),
}

/// Fills a table cell. For memory per client, `record` has the row without clients, too.
pub fn told(record: &Record, cell: &CellRecord, contender: &str, shown: &Shown) -> Told {
    if shown.is_cpu && by_account(cell, contender).is_none() {
        return Told::Failed("rounds by two clocks, which do not go together".to_owned());
    }
    let spread = cell.spread(contender, shown.figure);
    let spread = if shown.title == PER_CLIENT.title {
        spread.map(|spread| per_client(record, cell, contender, spread?))
    } else {
        spread
    };
    match spread {
        Ok(Some(spread)) => Told::Figure(spread),
        Ok(None) => Told::Nothing,
        Err(cause) => Told::Failed(cause),
    }
}

/// Bytes per client, from megabytes less the same pooler's memory without clients. With few clients
/// the figure would mean nothing.
fn per_client(
    record: &Record,
    cell: &CellRecord,
    contender: &str,
    spread: Spread,
) -> Option<Spread> {
    let clients: f64 = cell.row.parse().ok().filter(|clients| *clients >= 100.0)?;
    let mut bare = record.cells_of(&cell.group).filter(|cell| cell.row == "0");
    let bare = bare
        .next()?
        .spread(contender, RESIDENT.figure)
        .ok()??
        .middle;
    let each = |megabytes: f64| (megabytes - bare) * 1024.0 * 1024.0 / clients;
    Some(Spread {
        middle: each(spread.middle),
        least: each(spread.least),
        most: each(spread.most),
        rounds: spread.rounds,
    })
}

/// True if a contender's processor time in a cell is by the scheduler's account. None if some
/// rounds used the account and some the task clock.
pub fn by_account(cell: &CellRecord, contender: &str) -> Option<bool> {
    let runs = cell.runs.iter().filter(|run| run.contender == contender);
    let figures = runs.filter_map(|run| run.outcome.as_ref().ok());
    let mut accounts = figures.filter_map(|figures| match (figures.cpu, figures.account) {
        (Some(_), _) => Some(false),
        (None, Some(_)) => Some(true),
        (None, None) => None,
    });
    let first = accounts.next().unwrap_or(false);
    accounts.all(|account| account == first).then_some(first)
}

/// The mark of figures by the scheduler's account.
const BY_ACCOUNT: &str = "\u{2020}";

/// A figure with its mark, if any.
pub fn marked(cell: &CellRecord, contender: &str, shown: &Shown, spread: Spread) -> String {
    let marked = shown.is_cpu && by_account(cell, contender) == Some(true);
    let mark = if marked { BY_ACCOUNT } else { "" };
    format!("{}{mark}", number(spread.middle, shown.digits))
}

/// The clocks of a record's processor times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    task: bool,
    account: bool,
}

impl Clocks {
    /// The clocks in use.
    pub fn of(record: &Record) -> Self {
        let runs = || record.cells.iter().flat_map(|cell| &cell.runs);
        let mut figures = runs().filter_map(|run| run.outcome.as_ref().ok());
        let mut others = figures.clone();
        Self {
            task: figures.any(|figures| figures.cpu.is_some()),
            account: others.any(|figures| figures.account.is_some()),
        }
    }

    /// Their name. None without processor times.
    pub fn name(self) -> Option<&'static str> {
        match (self.task, self.account) {
            (true, true) => Some("the task clock or, marked \u{2020}, the scheduler's account"),
            (true, false) => Some("the task clock"),
            (false, true) => Some("the scheduler's account"),
            (false, false) => None,
        }
    }
}

/// A remark in the title of a table or plot: the clock of processor times.
pub fn remark(record: &Record, shown: &Shown) -> String {
    let clocks = Clocks::of(record);
    let Some(name) = clocks.name().filter(|_| shown.is_cpu) else {
        return String::new();
    };
    if clocks.account {
        format!("; by {name}, which is not exact: the kernel refused the task clock")
    } else {
        format!("; by {name}")
    }
}

/// The contender with the best figure of a row, and all whose rounds overlap with its rounds; never
/// PostgreSQL itself.
pub fn best<'a>(record: &'a Record, cell: &CellRecord, shown: &Shown) -> Vec<&'a str> {
    let poolers = record
        .contenders
        .iter()
        .filter(|name| *name != "postgresql");
    let figures = poolers.filter_map(|name| match told(record, cell, name, shown) {
        Told::Figure(spread) => Some((name.as_str(), spread)),
        _ => None,
    });
    let figures: Vec<_> = figures.collect();
    let order = |a: &&(&str, Spread), b: &&(&str, Spread)| a.1.middle.total_cmp(&b.1.middle);
    let best = if shown.most_is_best {
        figures.iter().max_by(order)
    } else {
        figures.iter().min_by(order)
    };
    let Some((_, best)) = best else {
        return Vec::new();
    };
    let as_good = figures.iter().filter(|(_, spread)| spread.overlaps(*best));
    as_good.map(|(name, _)| *name).collect()
}

/// Transactions per second of all poolers but PgBouncer, as fractions of PgBouncer's.
pub struct Ratios<'a> {
    /// The poolers.
    pub names: Vec<&'a str>,
    /// A row for each cell: its title, and a fraction for each pooler.
    pub rows: Vec<(String, Vec<String>)>,
}

/// The ratios of a record. None if its design has no such table, or PgBouncer or all others did not
/// take part.
pub fn ratios(record: &Record) -> Option<Ratios<'_>> {
    let is_other = |name: &&String| !["postgresql", "pgbouncer"].contains(&name.as_str());
    let others: Vec<_> = record.contenders.iter().filter(is_other).collect();
    let took_part = record.contenders.iter().any(|name| name == "pgbouncer");
    if record.design != "matrix" || !took_part || others.is_empty() {
        return None;
    }
    let median = |cell: &CellRecord, name: &str| match told(record, cell, name, &TPS) {
        Told::Figure(spread) => Some(spread.middle),
        _ => None,
    };
    let rows = record.cells.iter().filter_map(|cell| {
        let base = median(cell, "pgbouncer")?;
        let ratio = |name: &&String| match median(cell, name) {
            Some(tps) => format!("{:.2}", tps / base),
            None => "-".to_owned(),
        };
        let title = format!("{}, {}", cell.group, cell.row);
        Some((title, others.iter().map(ratio).collect()))
    });
    Some(Ratios {
        rows: rows.collect(),
        names: others.iter().map(|name| name.as_str()).collect(),
    })
}

/// True if a group has such a figure.
pub fn is_in(record: &Record, group: &str, shown: &Shown) -> bool {
    let is =
        |cell: &CellRecord, name: &str| matches!(told(record, cell, name, shown), Told::Figure(_));
    let mut cells = record.cells_of(group);
    cells.any(|cell| record.contenders.iter().any(|name| is(cell, name)))
}

/// A figure as text.
pub fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if digits > 0 {
        return text;
    }
    let mut grouped = String::new();
    for (index, digit) in text.chars().enumerate() {
        if index > 0 && (text.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The spread over the rounds, in percent of the median.
pub fn wobble(spread: Spread) -> f64 {
    if spread.middle == 0.0 {
        return 0.0;
    }
    (spread.most - spread.least) / spread.middle * 100.0
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::markdown;
    use crate::record::Run;
    use crate::record::tests::sample;

    #[test]
    fn a_median_is_never_of_two_clocks() {
        let mut record = sample(&[1000.0, 1100.0]);
        assert!(!markdown(&record).contains(BY_ACCOUNT));
        let account = |figures: &mut Figures| {
            figures.account = figures.cpu.take();
        };
        let runs = &mut record.cells[0].runs;
        account(runs[0].outcome.as_mut().unwrap());
        let cell = &record.cells[0];
        assert!(matches!(
            told(&record, cell, "howdah", &CPU),
            Told::Failed(_)
        ));
        assert!(matches!(
            told(&record, cell, "howdah", &TPS),
            Told::Figure(_)
        ));
        account(record.cells[0].runs[1].outcome.as_mut().unwrap());
        let text = markdown(&record);
        assert!(text.contains("20.0\u{2020}"), "{text}");
        assert!(
            text.contains("less is better; by the task clock or, marked \u{2020}, the scheduler's account, which"),
            "{text}"
        );
        assert!(!text.contains("more is better; by"), "{text}");
    }

    #[test]
    fn memory_per_client_is_beyond_that_without_clients() {
        let cell = |row: &str, resident| CellRecord {
            key: row.into(),
            group: "idle".into(),
            row: row.into(),
            runs: vec![Run {
                contender: "howdah".into(),
                round: 0,
                outcome: Ok(Figures {
                    resident: Some(resident),
                    ..Figures::default()
                }),
            }],
        };
        let record = Record {
            design: "memory".into(),
            contenders: vec!["howdah".into()],
            cells: vec![cell("0", 1000), cell("1", 1010), cell("1000", 3000)],
            ..Record::default()
        };
        let told = |cell| told(&record, cell, "howdah", &PER_CLIENT);
        assert!(
            matches!(told(&record.cells[2]), Told::Figure(each) if each.middle.round() == 2048.0)
        );
        assert!(matches!(told(&record.cells[1]), Told::Nothing));
    }

    #[test]
    fn numbers_are_read_by_people() {
        assert_eq!(number(1_234_567.4, 0), "1,234,567");
        assert_eq!(number(12.34, 1), "12.3");
    }

    #[test]
    fn all_as_good_as_the_best_are_best() {
        let best_of = |tps: &[f64]| {
            let record = sample(tps);
            let names = best(&record, &record.cells[0], &TPS);
            names.into_iter().map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(best_of(&[1000.0, 1200.0]), ["howdah"]);
        assert_eq!(best_of(&[890.0, 1200.0]), ["howdah", "pgbouncer"]);
        assert_eq!(best_of(&[700.0, 899.0]), ["pgbouncer"]);
        assert_eq!(best_of(&[901.0]), ["howdah"]);
    }

    #[test]
    fn poolers_are_measured_by_pgbouncer() {
        let mut record = sample(&[1800.0]);
        let Ratios { names, rows } = ratios(&record).unwrap();
        assert_eq!(names, ["howdah", "odyssey"]);
        let cells = ["2.00", "-"].map(String::from).to_vec();
        assert_eq!(rows, [("simple, 1".to_owned(), cells)]);
        record.contenders.retain(|name| name != "pgbouncer");
        assert!(ratios(&record).is_none());
    }
}
