//! `howdah import`: reads the files of other poolers, and gives `howdah.toml` and a report. No I/O.
//!
//! A file becomes a tree (`tree.rs`), whatever its syntax. A table for each pooler says what becomes of
//! each key (`keys.rs`), `reading.rs` applies the table, and a module for each pooler does what takes more
//! than one key. The output is a draft (`draft.rs`), and each key gets a finding (`finding.rs`).
#![forbid(unsafe_code)]

pub mod draft;
pub mod finding;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod hosts;
mod keys;
mod logins;
mod odyssey;
mod odyssey_grammar;
mod odyssey_keys;
mod page;
mod pg_doorman;
mod pg_doorman_keys;
mod pgcat;
mod pgcat_keys;
mod pgdog;
mod pgdog_keys;
mod reading;
pub mod report;
mod toml_tree;
mod tree;
mod units;
mod yaml_tree;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use howdah_config::{Config, Place, Surroundings};

pub use draft::{SECRETS, Written};
pub use finding::{Finding, Verdict};
pub use format::Format;
pub use page::page;
pub use report::Report;

use reading::Reading;
use tree::Fruit;

/// A file of another pooler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignFile {
    /// The name with which it was opened.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// Why files can't be imported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// The place of the mistake.
    pub place: Option<Place>,
    /// What is wrong, and what helps.
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl Unreadable {
    fn new(why: impl Into<String>) -> Unreadable {
        Unreadable {
            place: None,
            why: why.into(),
        }
    }
}

/// How many files may be included.
const MAX_INCLUDED: usize = 1000;

/// How long they may be together.
const MAX_BYTES: usize = 64 << 20;

/// What an import gives.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The output.
    pub written: Written,
    /// What became of each key.
    pub report: Report,
}

/// Imports the files of one pooler. `read_file` reads what they include.
///
/// # Errors
/// Why the files can't be read.
pub fn import(
    files: &[ForeignFile],
    format: Option<Format>,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Imported, Unreadable> {
    let (mut count, mut bytes) = (0, 0);
    let mut bounded = |path: &str| {
        count += 1;
        if count > MAX_INCLUDED {
            return Err(format!("the files include more than {MAX_INCLUDED} others"));
        }
        let text = read_file(path)?;
        bytes += text.len();
        if bytes > MAX_BYTES {
            return Err(format!(
                "the included files have more than {MAX_BYTES} bytes"
            ));
        }
        Ok(text)
    };
    let (format, tree) = format::read(files, format, &mut bounded)?;
    let mut reading = format.import(&tree);
    reading.lift();
    reading.write_logins();
    let names: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
    let head = format!(
        "Imported by howdah import from {}'s {}.",
        reading.pooler,
        reading::printable(&names.join(", "))
    );
    let written = reading.draft.written(&head);
    verify(&mut reading, &written);
    let places = reading.findings.iter().filter_map(|it| it.place.clone());
    let told: HashSet<_> = places.map(|it| (it.file, it.line, it.column)).collect();
    say_unread(&mut reading, &tree, "", &told);
    let mut told = HashSet::new();
    reading
        .findings
        .retain(|finding| told.insert(format!("{finding:?}")));
    Ok(Imported {
        report: Report {
            pooler: reading.pooler,
            files: names.into_iter().map(reading::printable).collect(),
            findings: reading.findings,
        },
        written,
    })
}

/// The places of which something is said.
type ToldPlaces = HashSet<(Arc<str>, u32, u32)>;

/// Says which keys nobody has read.
fn say_unread(reading: &mut Reading, tree: &Fruit, path: &str, told: &ToldPlaces) {
    let is_told = |place: &Place| told.contains(&(place.file.clone(), place.line, place.column));
    for branch in tree.table().iter().filter(|branch| !is_told(&branch.place)) {
        let path = reading::joined(path, &branch.name);
        match &branch.fruit {
            Fruit::Table(_) => say_unread(reading, &branch.fruit, &path, told),
            Fruit::List(all) if all.iter().any(|it| matches!(it, Fruit::Table(_))) => {
                // What is said of a whole element stands at its first key.
                let is_said = |element: &&Fruit| {
                    let mut keys = element.table().iter().map(|it| is_told(&it.place));
                    keys.next() == Some(true) && keys.all(|is_told| !is_told)
                };
                for element in all.iter().filter(|element| !is_said(element)) {
                    say_unread(reading, element, &path, told);
                }
            }
            Fruit::List(all) if all.is_empty() => {}
            Fruit::Nothing => {}
            _ => {
                let text = "this key was not read";
                reading.say(Some(&branch.place), &path, Verdict::Lost, text);
            }
        }
    }
}

/// Reads the output as a configuration. What it refuses is told: the file then needs a hand.
fn verify(reading: &mut Reading, written: &Written) {
    let mut surroundings = Output(written);
    let read = Config::read_among("howdah.toml", &written.main, &mut surroundings);
    for warning in &read.warnings {
        reading.say(None, "howdah.toml", Verdict::Mapped, &*warning.text);
        if let Some(last) = reading.findings.last_mut() {
            last.is_doubtful = true;
        }
    }
    for mistake in read.mistakes {
        let text = format!(
            "howdah.toml needs a correction: {}: {}",
            mistake.text, mistake.remedy
        );
        reading.decides(mistake.place.as_ref(), "", text);
    }
}

/// The output as the surroundings of its first file.
struct Output<'a>(&'a Written);

impl Surroundings for Output<'_> {
    fn file(&mut self, path: &str) -> Result<String, String> {
        match path {
            SECRETS => Ok(self.0.secrets.clone()),
            // Files of rules and certificates are not looked at.
            _ => Ok(String::new()),
        }
    }

    fn files(&mut self, _: &str) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn variable(&mut self, _: &str) -> Option<String> {
        None
    }

    fn variables(&mut self, _: &str) -> Vec<(String, String)> {
        Vec::new()
    }
}
