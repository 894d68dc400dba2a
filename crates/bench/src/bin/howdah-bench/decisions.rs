//! The decision ring's instructions for each transaction, counted by callgrind. This figure serves
//! to compare two versions of the code, because other processes on the machine don't change it.

use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::pace::Pace;
use crate::run::{progress, progress_ends};

/// The bounds of the rows, written by `./bench decisions --keep`.
const BOUNDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/decisions.json");
/// The tolerance in thousandths, for other compilers and allocators.
const SPREAD: u64 = 10;

/// Transactions of a row's short and long run. Only the difference counts, without start and login.
const SHORT: u64 = 100;
const LONG: u64 = 1_100;

/// Counts every row of `howdah-decisions`, which is in the same folder as this program.
///
/// # Errors
/// There is no valgrind, or a run fails.
pub fn count() -> io::Result<Vec<(String, u64)>> {
    let program = std::env::current_exe()?.with_file_name("howdah-decisions");
    let rows = Command::new(&program)
        .arg("--rows")
        .output()
        .map_err(|error| io::Error::other(format!("{}: {error}", program.display())))?;
    let rows = String::from_utf8_lossy(&rows.stdout).into_owned();
    let mut counts: Vec<(String, u64)> = Vec::new();
    let mut pace = Pace::new(rows.lines().count());
    for row in rows.lines() {
        let short = instructions(&program, row, SHORT)?;
        let long = instructions(&program, row, LONG)?;
        counts.push((row.to_owned(), (long - short) / (LONG - SHORT)));
        progress(&format!("{} {row}", pace.step()));
    }
    progress_ends();
    Ok(counts)
}

/// The instructions of one whole run.
fn instructions(program: &Path, row: &str, times: u64) -> io::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([row, &times.to_string()])
        .output()
        .map_err(|error| io::Error::other(format!("valgrind can't be started: {error}")))?;
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let cause = words.lines().last().unwrap_or("no word");
        return Err(io::Error::other(format!("{row}: {cause}")));
    }
    collected(&words).ok_or_else(|| io::Error::other(format!("{row}: callgrind told no count")))
}

/// The number in callgrind's output: `==7== Collected : 12345`.
fn collected(words: &str) -> Option<u64> {
    let line = words.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The counts as text or as JSON.
pub fn shown(counts: &[(String, u64)], as_json: bool) -> String {
    if as_json {
        return as_value(counts).to_string();
    }
    let mut text =
        String::from("instructions of the decision ring per transaction (less is better)\n");
    for (row, count) in counts {
        text.push_str(&format!("{row:<20} {count:>8}\n"));
    }
    text
}

fn as_value(counts: &[(String, u64)]) -> Value {
    let rows = counts
        .iter()
        .map(|(row, count)| (row.clone(), json!(count)));
    json!({ "instructions": rows.collect::<Map<_, _>>() })
}

/// Writes the bounds.
///
/// # Errors
/// The file can't be written.
pub fn keep(counts: &[(String, u64)]) -> io::Result<()> {
    std::fs::write(BOUNDS, format!("{:#}\n", as_value(counts)))
}

/// Compares the counts with the bounds.
///
/// # Errors
/// A row is above its bound or has none, or the file can't be read.
pub fn hold(counts: &[(String, u64)]) -> io::Result<()> {
    let text = std::fs::read_to_string(BOUNDS)
        .map_err(|error| io::Error::other(format!("{BOUNDS}: {error}")))?;
    let bounds: Value = serde_json::from_str(&text)?;
    let above = above(counts, &bounds["instructions"]);
    match above.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(above.join("; "))),
    }
}

/// The rows above their bounds.
fn above(counts: &[(String, u64)], bounds: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (row, count) in counts {
        match bounds[row.as_str()].as_u64() {
            None => found.push(format!("{row} has no bound: ./bench decisions --keep")),
            Some(bound) if count * 1000 > bound * (1000 + SPREAD) => {
                found.push(format!(
                    "{row} needs {count} instructions, and needed {bound}"
                ));
            }
            Some(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrinds_count_is_found() {
        let words = "==9== Events    : Ir\n==9== Collected : 4054123\n==9==\n";
        assert_eq!(collected(words), Some(4_054_123));
        assert_eq!(collected("no such line"), None);
    }

    #[test]
    fn counts_are_shown_to_people_and_machines() {
        let counts = [("simple".to_owned(), 4_054)];
        assert!(shown(&counts, false).contains("simple                   4054"));
        assert_eq!(shown(&counts, true), r#"{"instructions":{"simple":4054}}"#);
    }
    #[test]
    fn a_row_above_its_bound_by_more_than_a_hundredth_is_told() {
        let bounds = json!({"simple": 1_000, "prepared": 2_000});
        let counts = |simple, prepared| {
            let rows = [("simple", simple), ("prepared", prepared)];
            rows.map(|(row, count)| (row.to_owned(), count))
        };
        assert!(above(&counts(1_010, 1), &bounds).is_empty());
        let told = above(&counts(1_011, 2_021), &bounds);
        assert_eq!(told.len(), 2);
        assert_eq!(told[0], "simple needs 1011 instructions, and needed 1000");
    }

    #[test]
    fn every_row_has_a_bound() {
        let text = std::fs::read_to_string(BOUNDS).unwrap();
        let bounds: Value = serde_json::from_str(&text).unwrap();
        let rows = bounds["instructions"].as_object().unwrap();
        assert_eq!(rows.len(), 10, "a new row: ./bench decisions --keep");
        let none = [("of another name".to_owned(), 1)];
        assert_eq!(above(&none, &bounds["instructions"]).len(), 1);
    }
}
