//! What a transaction takes in the decision ring: instructions and atomic operations on memory, which
//! callgrind counts, and the bytes that the actions hand to sockets. The figures serve to compare two
//! versions of the code, because other processes on the machine don't change them.

use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::pace::Pace;
use crate::run::{progress, progress_ends};

/// The bounds of the rows, written by `./bench decisions --keep`.
const BOUNDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/decisions.json");
/// The tolerance in thousandths, for other compilers and allocators.
const SPREAD: u64 = 10;

/// Transactions of a row's short and long run. Only the difference counts, without start and login.
const SHORT: u64 = 100;
const LONG: u64 = 1_100;

/// What is counted. An atomic operation is an instruction that reads and writes memory at once, while
/// no other core can: `lock` prefix, or `xchg`. The bytes are those of the actions `Relay` and `Send`.
const COLUMNS: [&str; 4] = ["instructions", "atomics", "bytes_relayed", "bytes_written"];

/// A row's name and figures per transaction, in the order of [`COLUMNS`].
pub type Count = (String, [u64; 4]);

/// Counts every row of `howdah-decisions`, which is in the same folder as this program.
///
/// # Errors
/// There is no valgrind, or a run fails.
pub fn count() -> io::Result<Vec<Count>> {
    let program = std::env::current_exe()?.with_file_name("howdah-decisions");
    let rows = Command::new(&program)
        .arg("--rows")
        .output()
        .map_err(|error| io::Error::other(format!("{}: {error}", program.display())))?;
    let rows = String::from_utf8_lossy(&rows.stdout).into_owned();
    let mut counts = Vec::new();
    let mut pace = Pace::new(rows.lines().count());
    for row in rows.lines() {
        let short = whole_run(&program, row, SHORT)?;
        let long = whole_run(&program, row, LONG)?;
        let each = |at: usize| (long[at] - short[at]) / (LONG - SHORT);
        counts.push((row.to_owned(), std::array::from_fn(each)));
        progress(&format!("{} {row}", pace.step()));
    }
    progress_ends();
    Ok(counts)
}

/// The figures of one whole run.
fn whole_run(program: &Path, row: &str, times: u64) -> io::Result<[u64; 4]> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--collect-bus=yes")
        .arg(program)
        .args([row, &times.to_string()])
        .output()
        .map_err(|error| io::Error::other(format!("valgrind can't be started: {error}")))?;
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let cause = words.lines().last().unwrap_or("no word");
        return Err(io::Error::other(format!("{row}: {cause}")));
    }
    let [instructions, atomics] = collected(&words)
        .ok_or_else(|| io::Error::other(format!("{row}: callgrind told no count")))?;
    let [relayed, written] = handed(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| io::Error::other(format!("{row}: {} told no bytes", program.display())))?;
    Ok([instructions, atomics, relayed, written])
}

/// The numbers in callgrind's output, of the events `Ir` and `Ge`: `==7== Collected : 12345 67`.
pub fn collected(words: &str) -> Option<[u64; 2]> {
    let line = words.lines().find(|line| line.contains("Collected :"))?;
    let mut numbers = line.split_once(": ")?.1.split(' ');
    Some([numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?])
}

/// The numbers in the program's output: `relayed 720 written 0`.
fn handed(words: &str) -> Option<[u64; 2]> {
    let (relayed, written) = words
        .trim()
        .strip_prefix("relayed ")?
        .split_once(" written ")?;
    Some([relayed.parse().ok()?, written.parse().ok()?])
}

/// The counts as text.
pub fn shown(counts: &[Count]) -> String {
    let mut text = String::from(
        "The decision ring, per transaction (less is better): instructions, atomic operations on \
         memory,\nand bytes for sockets, relayed as they came or written by Howdah\n",
    );
    text.push_str(&line("", &COLUMNS));
    for (row, figures) in counts {
        text.push_str(&line(row, figures));
    }
    text
}

/// The instructions as JSON. `ok`: the rows hold their bounds, if that is asked.
pub fn json(counts: &[Count], ok: bool, seconds: u64) -> Value {
    json!({
        "machine": "decisions", "ok": ok, COLUMNS[0]: column(counts, 0), "seconds": seconds,
    })
}

/// A line of the text.
fn line(name: &str, cells: &[impl std::fmt::Display; 4]) -> String {
    let [instructions, atomics, relayed, written] = cells;
    format!("{name:<20} {instructions:>12} {atomics:>8} {relayed:>14} {written:>14}\n")
}

/// One column as JSON, by rows.
fn column(counts: &[Count], at: usize) -> Value {
    let rows = counts
        .iter()
        .map(|(row, figures)| (row.clone(), json!(figures[at])));
    Value::Object(rows.collect())
}

/// What the file of the bounds says.
fn bounds(counts: &[Count]) -> Value {
    json!({ COLUMNS[0]: column(counts, 0) })
}

/// Writes the bounds.
///
/// # Errors
/// The file can't be written.
pub fn keep(counts: &[Count]) -> io::Result<()> {
    std::fs::write(BOUNDS, format!("{:#}\n", bounds(counts)))
}

/// Compares the counts with the bounds.
///
/// # Errors
/// A row is above its bound or has none, or the file can't be read.
pub fn hold(counts: &[Count]) -> io::Result<()> {
    let text = std::fs::read_to_string(BOUNDS)
        .map_err(|error| io::Error::other(format!("{BOUNDS}: {error}")))?;
    let bounds: Value = serde_json::from_str(&text)?;
    let above = above(counts, &bounds["instructions"]);
    if above.is_empty() {
        Ok(())
    } else {
        Err(io::Error::other(above.join("; ")))
    }
}

/// The rows above their bounds.
fn above(counts: &[Count], bounds: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (row, [count, ..]) in counts {
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
    fn callgrinds_counts_are_found() {
        let words = "==9== Events    : Ir Ge\n==9== Collected : 4054123 6844\n==9==\n";
        assert_eq!(collected(words), Some([4_054_123, 6_844]));
        assert_eq!(collected("==9== Collected : 4054123\n"), None);
        assert_eq!(collected("no such line"), None);
    }

    #[test]
    fn the_programs_bytes_are_found() {
        assert_eq!(handed("relayed 720 written 15\n"), Some([720, 15]));
        assert_eq!(handed("relayed 720\n"), None);
        assert_eq!(handed(""), None);
    }

    #[test]
    fn counts_are_shown_to_people_and_machines() {
        let counts = [("simple".to_owned(), [4_054, 6, 98, 0])];
        let text = shown(&counts);
        assert!(text.contains(
            "simple                       4054        6             98              0\n"
        ));
        let told = json(&counts, true, 2);
        assert_eq!(told["ok"], true);
        assert_eq!(told["instructions"]["simple"], 4_054);
        let kept = bounds(&counts).to_string();
        assert_eq!(kept, r#"{"instructions":{"simple":4054}}"#);
    }

    #[test]
    fn a_row_above_its_bound_by_more_than_a_hundredth_is_told() {
        let bounds = json!({"simple": 1_000, "prepared": 2_000});
        let counts = |simple, prepared| {
            let rows = [("simple", simple), ("prepared", prepared)];
            rows.map(|(row, count)| (row.to_owned(), [count, 0, 0, 0]))
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
        let none = [("of another name".to_owned(), [1, 0, 0, 0])];
        assert_eq!(above(&none, &bounds["instructions"]).len(), 1);
    }
}
