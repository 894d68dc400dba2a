//! What a contest has measured so far, as a file that a later run goes on with.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A whole contest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The design's name.
    pub design: String,
    /// What the design is.
    pub about: String,
    /// Machine, versions, lengths: name and value.
    pub facts: Vec<(String, String)>,
    /// The contenders' names, in the order of the columns.
    pub contenders: Vec<String>,
    /// Each contender's config, with the words that are filled in.
    pub configs: Vec<(String, String)>,
    /// The cells, in the order of the design.
    pub cells: Vec<CellRecord>,
}

/// All runs of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// Names the cell in every record of this design.
    pub key: String,
    /// Cells of one group are one table and one plot.
    pub group: String,
    /// The row of that table: clients, or the offered rate.
    pub row: String,
    /// One for each round and contender.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Who.
    pub contender: String,
    /// From 0.
    pub round: usize,
    /// What came of it, or why nothing did.
    pub outcome: Result<Figures, String>,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Transactions per second.
    pub tps: f64,
    /// Microseconds of the pooler's processor time for each transaction, by the task clock; none
    /// for PostgreSQL itself, or where the kernel refuses.
    pub cpu: Option<f64>,
    /// The same by the scheduler's account (user and system time).
    pub account: Option<f64>,
    /// Kilobytes resident in the pooler at the end.
    pub resident: Option<u64>,
    /// Milliseconds at the 50th, 95th, 99th, 99.9th percentile, and the longest.
    pub waits: Option<[f64; 5]>,
    /// Transactions of the client that was served least, as a part of the median client's; none of
    /// few clients or few transactions.
    #[serde(default)]
    pub fairness: Option<f64>,
}

/// The middle of a cell's rounds, and how far they are apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub middle: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

impl Spread {
    /// Of some figures; none of none.
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
        })
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

    /// Whether this run was done by an earlier part of the contest.
    pub fn has(&self, contender: &str, round: usize) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|run| run.contender == contender && run.round == round)
    }
}

impl Record {
    /// The groups, in the order of the design.
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if groups.last() != Some(&cell.group.as_str()) {
                groups.push(&cell.group);
            }
        }
        groups
    }

    /// The cells of a group.
    pub fn cells_of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a CellRecord> {
        self.cells.iter().filter(move |cell| cell.group == group)
    }

    /// Reads what [`Record::save`] wrote.
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

    /// Writes it whole: an interrupted write leaves the one before.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        let new = path.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(&new, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(cell.has("howdah", 1) && !cell.has("howdah", 2));
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
