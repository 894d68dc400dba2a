//! Instructions of the decision ring for each transaction, counted by callgrind: the figure to
//! compare two states of the code by, because no other process on the machine changes it.

use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::json;

/// Transactions of the short and the long run of a row; what is between them is what counts, so
/// that start and login do not.
const SHORT: u64 = 100;
const LONG: u64 = 1_100;

/// Counts every row of `howdah-decisions`, which lies beside this program.
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
    for row in rows.lines() {
        let short = instructions(&program, row, SHORT)?;
        let long = instructions(&program, row, LONG)?;
        counts.push((row.to_owned(), (long - short) / (LONG - SHORT)));
    }
    Ok(counts)
}

/// Instructions of one whole run.
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

/// The number in callgrind's last words: `==7== Collected : 12345`.
fn collected(words: &str) -> Option<u64> {
    let line = words.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// For people, or for machines.
pub fn shown(counts: &[(String, u64)], as_json: bool) -> String {
    if as_json {
        let counts = counts
            .iter()
            .map(|(row, count)| (row.clone(), json!(count)));
        return json!({ "instructions": counts.collect::<serde_json::Map<_, _>>() }).to_string();
    }
    let mut text =
        String::from("instructions of the decision ring per transaction (less is better)\n");
    for (row, count) in counts {
        text.push_str(&format!("{row:<20} {count:>8}\n"));
    }
    text
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
}
