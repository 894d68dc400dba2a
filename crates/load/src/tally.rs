//! Counts operations and differences, and prints them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::failure::{Failure, Kind, Outcome};

/// The counts of one behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations run.
    pub operations: u64,
    /// Replies that differed.
    pub wrong: u64,
    /// Unexpected errors and ends of connections.
    pub unexpected: u64,
    /// Replies that did not come in time.
    pub hangs: u64,
}

impl Counts {
    /// True if there were operations and no differences. With `faults`, errors and ends of
    /// connections are allowed, but no wrong or missing replies.
    pub fn clean(&self, faults: bool) -> bool {
        let unexpected = if faults { 0 } else { self.unexpected };
        self.operations > 0 && self.wrong + unexpected + self.hangs == 0
    }

    fn add(&mut self, other: &Counts) {
        self.operations += other.operations;
        self.wrong += other.wrong;
        self.unexpected += other.unexpected;
        self.hangs += other.hangs;
    }
}

/// Counts by behaviour.
#[derive(Clone, Debug, Default)]
pub struct Tally(pub BTreeMap<&'static str, Counts>);

impl Tally {
    /// Counts an operation.
    pub fn count(&mut self, name: &'static str, result: &Outcome) {
        let counts = self.0.entry(name).or_default();
        counts.operations += 1;
        match result {
            Ok(()) => {}
            Err(Failure {
                kind: Kind::Wrong, ..
            }) => counts.wrong += 1,
            Err(Failure {
                kind: Kind::Unexpected,
                ..
            }) => counts.unexpected += 1,
            Err(Failure {
                kind: Kind::Hang, ..
            }) => counts.hangs += 1,
        }
    }

    /// Adds another client's counts.
    pub fn add(&mut self, other: &Tally) {
        for (name, counts) in &other.0 {
            self.0.entry(name).or_default().add(counts);
        }
    }
}

/// Prints the first differences of each behaviour in full, to standard error.
pub struct Report {
    most: usize,
    faults: bool,
    printed: Mutex<BTreeMap<&'static str, usize>>,
}

impl Report {
    /// A report of at most `most` differences for each behaviour. With `faults`, unexpected errors
    /// are left out.
    pub fn new(most: usize, faults: bool) -> Report {
        Report {
            most,
            faults,
            printed: Mutex::new(BTreeMap::new()),
        }
    }

    /// Prints a difference, unless enough were printed.
    pub fn print(&self, name: &'static str, client: usize, failure: &Failure, history: &[String]) {
        if self.faults && failure.kind == Kind::Unexpected {
            return;
        }
        let mut printed = self.printed.lock().expect("no panic while held");
        let count = printed.entry(name).or_default();
        *count += 1;
        if *count > self.most {
            return;
        }
        eprintln!(
            "--- {name}, client {client}: {:?}: {}",
            failure.kind, failure.what
        );
        for line in failure.expected.iter().take(12) {
            eprintln!("   expected {line}");
        }
        for line in &failure.got {
            eprintln!("   got      {line}");
        }
        // The history comes last, because it is long and may be cut off.
        for line in history {
            eprintln!("      {line}");
        }
    }
}

/// A finished table.
pub struct Table {
    /// A description of the run.
    pub title: String,
    /// The rows: name, counts, duration in seconds.
    pub rows: Vec<(String, Counts, f64)>,
    /// Figures of the lists, if there were appends or readings.
    pub lists: Option<serde_json::Value>,
    /// Errors and ends of connections are allowed.
    pub faults: bool,
}

impl Table {
    /// The table as text.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n\n", self.title);
        let width = self
            .rows
            .iter()
            .map(|(name, ..)| name.len())
            .max()
            .unwrap_or(0)
            .max(9);
        out += &format!(
            "{:width$}  {:>10}  {:>9}  {:>8}  {:>10}  {:>6}\n",
            "behaviour", "operations", "per s", "wrong", "unexpected", "hangs"
        );
        for (name, counts, seconds) in &self.rows {
            let rate = if *seconds > 0.0 {
                format!("{:.0}", counts.operations as f64 / seconds)
            } else {
                String::new()
            };
            out += &format!(
                "{name:width$}  {:>10}  {rate:>9}  {:>8}  {:>10}  {:>6}{}\n",
                counts.operations,
                counts.wrong,
                counts.unexpected,
                counts.hangs,
                if counts.clean(self.faults) {
                    ""
                } else {
                    "  <--"
                }
            );
        }
        out
    }

    /// True if every row is clean.
    pub fn clean(&self) -> bool {
        self.rows
            .iter()
            .all(|(_, counts, _)| counts.clean(self.faults))
    }

    /// The line of JSON at the end: the sums, and the table.
    pub fn json(&self) -> serde_json::Value {
        let row = |(name, counts, seconds): &(String, Counts, f64)| {
            serde_json::json!({
                "behaviour": name,
                "operations": counts.operations,
                "seconds": seconds,
                "wrong": counts.wrong,
                "unexpected": counts.unexpected,
                "hangs": counts.hangs,
            })
        };
        let mut sum = Counts::default();
        for (_, counts, _) in &self.rows {
            sum.add(counts);
        }
        let failed = self
            .rows
            .iter()
            .filter(|(_, counts, _)| !counts.clean(self.faults));
        serde_json::json!({
            "machine": "load",
            "ok": self.clean(),
            "failed": failed.map(|(name, ..)| name).collect::<Vec<_>>(),
            "operations": sum.operations,
            "wrong": sum.wrong,
            "unexpected": sum.unexpected,
            "hangs": sum.hangs,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "lists": self.lists,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Table, Tally};
    use crate::failure::{Failure, Kind};

    #[test]
    fn every_kind_has_its_column_and_no_operation_is_not_clean() {
        let mut tally = Tally::default();
        tally.count("a", &Ok(()));
        assert!(tally.0["a"].clean(false));
        tally.count("c", &Err(Failure::new(Kind::Unexpected, "x")));
        assert!(tally.0["c"].clean(true) && !tally.0["c"].clean(false));
        for kind in [Kind::Wrong, Kind::Unexpected, Kind::Hang] {
            tally.count("b", &Err(Failure::new(kind, "x")));
        }
        let counts = tally.0["b"];
        assert_eq!((counts.wrong, counts.unexpected, counts.hangs), (1, 1, 1));
        assert!(!counts.clean(true) && !Counts::default().clean(true));
        let rows = vec![
            ("a".to_owned(), tally.0["a"], 1.0),
            ("b".to_owned(), counts, 1.0),
        ];
        let table = Table {
            title: "t".to_owned(),
            rows,
            lists: None,
            faults: false,
        };
        assert!(!table.clean());
        assert_eq!(table.json()["rows"][1]["hangs"], 1);
        assert_eq!(table.json()["operations"], 4);
        assert_eq!(table.json()["failed"], serde_json::json!(["b"]));
    }
}
