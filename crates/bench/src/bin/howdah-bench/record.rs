//! The measurements of a contest, as a file that a later run continues.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A whole contest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The design's name.
    pub design: String,
    /// The design's description.
    pub about: String,
    /// Machine, versions, lengths: name and value.
    pub facts: Vec<(String, String)>,
    /// Facts that must be the same in all runs of a record: name and value.
    #[serde(default)]
    pub stamp: BTreeMap<String, String>,
    /// The transactions per second that count as 100 % of a rate, in all runs.
    #[serde(default)]
    pub capacity: Option<f64>,
    /// The contenders' names, in the order of the columns.
    pub contenders: Vec<String>,
    /// Each contender's config, as a template.
    pub configs: Vec<(String, String)>,
    /// The cells, in the order of the design.
    pub cells: Vec<CellRecord>,
}

/// All runs of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// The cell's name in every record of this design.
    pub key: String,
    /// The table and plot of the cell.
    pub group: String,
    /// The row of the table: clients, or the offered rate.
    pub row: String,
    /// One run for each round and contender.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The contender.
    pub contender: String,
    /// From 0.
    pub round: usize,
    /// The figures, or the reason of the failure.
    pub outcome: Result<Figures, String>,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Transactions per second.
    pub tps: f64,
    /// The pooler's processor time for a transaction in microseconds, by the task clock. None for
    /// PostgreSQL itself, or if the kernel refuses.
    pub cpu: Option<f64>,
    /// The same by the scheduler's account (user and system time).
    pub account: Option<f64>,
    /// The pooler's resident memory at the end, in kilobytes.
    pub resident: Option<u64>,
    /// The 50th, 95th, 99th and 99.9th percentile, and the longest, in milliseconds.
    pub waits: Option<[f64; 5]>,
    /// pgbench's mean latency in milliseconds: time of all clients divided by transactions; at a fixed
    /// rate, from when a transaction should have begun. A login for each transaction is part of it.
    #[serde(default)]
    pub mean: Option<f64>,
    /// Transactions of the client that was served least, as a share of the median client's. None
    /// with few clients or transactions, or if not all transactions were logged.
    #[serde(default)]
    pub fairness: Option<f64>,
    /// The same of the client that was served most.
    #[serde(default)]
    pub most_served: Option<f64>,
    /// Logins per second of the storm beside the clients.
    #[serde(default)]
    pub logins: Option<f64>,
    /// The offered rate, in transactions per second. None: as fast as possible.
    #[serde(default)]
    pub rate: Option<f64>,
    /// The share of all transactions that `waits` includes.
    #[serde(default)]
    pub sampled: Option<f64>,
}

/// The median and the range of a cell's rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub middle: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// The number of figures. A single figure has no spread.
    pub rounds: usize,
}

impl Spread {
    /// The spread of some figures. None without figures.
    pub fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let (least, most) = (*figures.first()?, *figures.last()?);
        let half = figures.len() / 2;
        let middle = match figures.len() % 2 {
            1 => figures[half],
            _ => (figures[half - 1] + figures[half]) / 2.0,
        };
        Some(Self {
            middle,
            least,
            most,
            rounds: figures.len(),
        })
    }
}

impl Spread {
    /// True if the ranges over the rounds have a value in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.least <= other.most && other.least <= self.most
    }
}

impl CellRecord {
    /// A figure of a contender over all rounds. `Err` if a round failed, with the reason; `Ok(None)`
    /// if there is no such figure.
    ///
    /// # Errors
    /// A run of the contender failed.
    pub fn spread(
        &self,
        contender: &str,
        figure: impl Fn(&Figures) -> Option<f64>,
    ) -> Result<Option<Spread>, String> {
        let runs = self.runs.iter().filter(|run| run.contender == contender);
        let figures = runs.map(|run| run.outcome.as_ref().map_err(Clone::clone));
        let figures = figures.collect::<Result<Vec<_>, _>>()?;
        let figures: Option<Vec<_>> = figures.into_iter().map(figure).collect();
        Ok(figures.and_then(Spread::of))
    }

    /// The title of the row, with the offered rate in transactions per second if there is one.
    pub fn title(&self) -> String {
        let mut figures = self.runs.iter().filter_map(|run| run.outcome.as_ref().ok());
        match figures.find_map(|figures| figures.rate) {
            Some(rate) => format!("{}: {rate:.0} TPS", self.row),
            None => self.row.clone(),
        }
    }

    /// True if this run is already done. A failed run counts as not done.
    pub fn has(&self, contender: &str, round: usize) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|run| run.is(contender, round) && run.outcome.is_ok())
    }

    /// Stores a run, in place of an earlier one of the same contender and round.
    pub fn note(&mut self, run: Run) {
        self.runs
            .retain(|earlier| !earlier.is(&run.contender, run.round));
        self.runs.push(run);
    }
}

impl Run {
    fn is(&self, contender: &str, round: usize) -> bool {
        self.contender == contender && self.round == round
    }
}

impl Record {
    /// The groups, in the order of the design.
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !groups.contains(&cell.group.as_str()) {
                groups.push(&cell.group);
            }
        }
        groups
    }

    /// The cells of a group.
    pub fn cells_of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a CellRecord> {
        self.cells.iter().filter(move |cell| cell.group == group)
    }

    /// The value of this fact.
    pub fn fact(&self, name: &str) -> Option<&str> {
        let mut facts = self.facts.iter();
        let (_, value) = facts.find(|(known, _)| known == name)?;
        Some(value)
    }

    /// The cell with this key.
    pub fn cell(&self, key: &str) -> Option<&CellRecord> {
        self.cells.iter().find(|cell| cell.key == key)
    }

    /// The cell with this key, after [`Record::lay_out`].
    pub fn cell_mut(&mut self, key: &str) -> Option<&mut CellRecord> {
        self.cells.iter_mut().find(|cell| cell.key == key)
    }

    /// Gives each of these cells a place, in their order. Existing cells keep their places, also
    /// those that are not played now.
    pub fn lay_out(&mut self, cells: impl IntoIterator<Item = CellRecord>) {
        let mut next = 0;
        for cell in cells {
            let known = self.cells.iter().position(|known| known.key == cell.key);
            let at = known.unwrap_or(next);
            if known.is_none() {
                self.cells.insert(at, cell);
            }
            next = at + 1;
        }
    }

    /// The reasons why runs with `stamp` can't be added: names with another value here. A pooler
    /// that appears on only one side is no reason.
    pub fn differs_from(&self, stamp: &BTreeMap<String, String>) -> Vec<String> {
        let played = self.cells.iter().any(|cell| !cell.runs.is_empty());
        if played && self.stamp.is_empty() {
            return vec!["it does not say of which builds it is".to_owned()];
        }
        let told = self
            .stamp
            .iter()
            .filter_map(|(name, here)| Some((name, here, stamp.get(name)?)));
        told.filter(|(_, here, now)| here != now)
            .map(|(name, here, now)| format!("{name} was {here}, and is {now}"))
            .collect()
    }

    /// Reads a file of [`Record::save`].
    ///
    /// # Errors
    /// The file can't be read, or is not such a record.
    pub fn load(path: &Path) -> io::Result<Self> {
        let text = fs::read(path)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        serde_json::from_slice(&text).map_err(|error| {
            io::Error::other(format!("{} is no record of a run: {error}", path.display()))
        })
    }

    /// Reads a file of [`Record::save`] of this design.
    ///
    /// # Errors
    /// As [`Record::load`], or it is a record of another design.
    pub fn load_of(path: &Path, design: &str) -> io::Result<Self> {
        let record = Self::load(path)?;
        if record.design == design {
            return Ok(record);
        }
        Err(io::Error::other(format!(
            "{} is a record of {:?}, not of {design:?}",
            path.display(),
            record.design
        )))
    }

    /// Writes the whole record. An interrupted write leaves the earlier file.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        let new = path.with_extension("new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
        written.map_err(|error| {
            // The incomplete file takes room on a full disk.
            let _ = fs::remove_file(&new);
            io::Error::other(format!("{} can't be written: {error}", path.display()))
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A record of one cell, with rounds of Howdah and one of PgBouncer and Odyssey each.
    pub fn sample(tps: &[f64]) -> Record {
        let run = |name: &str, round, tps| Run {
            contender: name.into(),
            round,
            outcome: Ok(Figures {
                tps,
                cpu: Some(20.0),
                ..Figures::default()
            }),
        };
        let mut runs: Vec<_> = tps
            .iter()
            .enumerate()
            .map(|(round, tps)| run("howdah", round, *tps))
            .collect();
        runs.push(run("pgbouncer", 0, 900.0));
        runs.push(Run {
            contender: "odyssey".into(),
            round: 0,
            outcome: Err("it <died>".into()),
        });
        Record {
            design: "matrix".into(),
            contenders: ["postgresql", "howdah", "pgbouncer", "odyssey"]
                .map(String::from)
                .into(),
            cells: vec![CellRecord {
                key: "simple/c1".into(),
                group: "simple".into(),
                row: "1".into(),
                runs,
            }],
            ..Record::default()
        }
    }

    fn cell(outcomes: Vec<Result<Figures, String>>) -> CellRecord {
        let run = |(round, outcome)| Run {
            contender: "howdah".into(),
            round,
            outcome,
        };
        CellRecord {
            key: "k".into(),
            group: "simple".into(),
            row: "1".into(),
            runs: outcomes.into_iter().enumerate().map(run).collect(),
        }
    }

    #[test]
    fn the_middle_and_the_ends_of_some_figures() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.least, spread.middle, spread.most), (1.0, 2.0, 3.0));
        assert_eq!(Spread::of(vec![1.0, 4.0]).unwrap().middle, 2.5);
        assert_eq!(Spread::of(Vec::new()), None);
        let [low, high] = [[3.0, 4.0], [4.1, 5.0]].map(|both| Spread::of(both.into()).unwrap());
        assert!(spread.overlaps(low) && low.overlaps(spread));
        assert!(!low.overlaps(high) && !high.overlaps(low));
    }

    #[test]
    fn one_failed_round_fails_the_cell() {
        let fine = Figures {
            tps: 10.0,
            ..Figures::default()
        };
        let cell = cell(vec![Ok(fine), Err("it died".into())]);
        let tps = cell.spread("howdah", |figures| Some(figures.tps));
        assert_eq!(tps, Err("it died".into()));
    }

    #[test]
    fn a_failed_run_is_done_again_and_replaced() {
        let mut cell = cell(vec![Ok(Figures::default()), Err("it died".into())]);
        assert!(cell.has("howdah", 0) && !cell.has("howdah", 1) && !cell.has("howdah", 2));
        cell.note(Run {
            contender: "howdah".into(),
            round: 1,
            outcome: Ok(Figures::default()),
        });
        assert!(cell.has("howdah", 1));
        assert_eq!(cell.runs.len(), 2);
        let tps = cell.spread("howdah", |figures| Some(figures.tps));
        assert_eq!(tps.unwrap().unwrap().rounds, 2);
    }

    #[test]
    fn fewer_cells_leave_the_others_where_they_are() {
        let named = |key: &str| CellRecord {
            key: key.into(),
            ..cell(Vec::new())
        };
        let keys = |record: &Record| -> Vec<String> {
            record.cells.iter().map(|cell| cell.key.clone()).collect()
        };
        let mut record = Record::default();
        record.lay_out(["1", "40", "500"].map(named));
        record.cells[1] = CellRecord {
            key: "40".into(),
            ..cell(vec![Ok(Figures::default())])
        };
        record.lay_out(["1", "500"].map(named));
        assert_eq!(keys(&record), ["1", "40", "500"]);
        record.lay_out(["1", "40", "120", "500", "10000"].map(named));
        assert_eq!(keys(&record), ["1", "40", "120", "500", "10000"]);
        assert_eq!(record.cells[1].runs.len(), 1, "its run stays");
    }

    #[test]
    fn runs_of_other_builds_do_not_go_together() {
        let stamp = |values: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            values.iter().map(owned).collect()
        };
        let mut record = Record {
            cells: vec![cell(vec![Ok(Figures::default())])],
            ..Record::default()
        };
        let now = stamp(&[("seconds", "2"), ("howdah", "aa"), ("pgcat", "cc")]);
        assert_eq!(record.differs_from(&now).len(), 1, "an old record");
        record.stamp = stamp(&[("seconds", "2"), ("howdah", "aa"), ("odyssey", "bb")]);
        assert_eq!(record.differs_from(&now), [""; 0]);
        record.stamp = stamp(&[("seconds", "30"), ("howdah", "ab")]);
        assert_eq!(
            record.differs_from(&now),
            ["howdah was ab, and is aa", "seconds was 30, and is 2"]
        );
        assert_eq!(Record::default().differs_from(&now), [""; 0]);
    }

    #[test]
    fn a_rate_is_told_in_transactions_per_second() {
        let figures = Figures {
            rate: Some(1234.0),
            ..Figures::default()
        };
        let mut cell = cell(vec![Err("it died".into()), Ok(figures)]);
        cell.row = "50 % of capacity".into();
        assert_eq!(cell.title(), "50 % of capacity: 1234 TPS");
    }

    #[test]
    fn old_records_are_read() {
        let text = r#"{"design": "latency", "about": "", "facts": [], "contenders": [], "configs": [],
            "cells": [{"key": "k", "group": "g", "row": "r", "runs": [{"contender": "howdah",
            "round": 0, "outcome": {"Ok": {"tps": 1.0, "cpu": null, "account": null,
            "resident": null, "waits": null}}}]}]}"#;
        let record: Record = serde_json::from_str(text).unwrap();
        assert_eq!(record.cells[0].title(), "r");
    }

    #[test]
    fn a_record_that_has_no_room_says_so() {
        let error = Record::default().save(Path::new("/dev/full/record.json"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("record.json can't be written"), "{error}");
    }

    #[test]
    fn a_record_survives_its_file() {
        let record = Record {
            design: "matrix".into(),
            cells: vec![cell(vec![Ok(Figures::default()), Err("no".into())])],
            ..Record::default()
        };
        let path = std::env::temp_dir().join(format!("record-{}.json", std::process::id()));
        record.save(&path).unwrap();
        assert_eq!(Record::load(&path).unwrap(), record);
        fs::write(&path, "{").unwrap();
        let error = Record::load(&path).unwrap_err().to_string();
        assert!(error.contains("no record of a run"), "{error}");
        fs::remove_file(&path).unwrap();
    }
}
