//! What twice the input takes: instructions, which callgrind counts. No message may cost more than its
//! length, or who sends it stops a worker for all others.

use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::decisions::collected;
use crate::pace::Pace;
use crate::run::{progress, progress_ends};

/// Twice the input may take so many hundredths of the instructions. (Sorting and trees take a little
/// more than twice.)
const MOST: u64 = 250;

/// An input, and what it takes at its size and at twice that size.
pub struct Growth {
    name: String,
    size: u64,
    once: u64,
    twice: u64,
}

impl Growth {
    /// What twice the input takes, in hundredths of what it takes once.
    fn hundredths(&self) -> u64 {
        self.twice * 100 / self.once.max(1)
    }
}

/// Counts every input of `howdah-decisions`, which is in the same folder as this program.
///
/// # Errors
/// There is no valgrind, or a run fails.
pub fn count() -> io::Result<Vec<Growth>> {
    let program = std::env::current_exe()?.with_file_name("howdah-decisions");
    let inputs = Command::new(&program)
        .arg("--growing")
        .output()
        .map_err(|error| io::Error::other(format!("{}: {error}", program.display())))?;
    let inputs = String::from_utf8_lossy(&inputs.stdout).into_owned();
    let mut counts = Vec::new();
    let mut pace = Pace::new(inputs.lines().count());
    for (name, size) in inputs.lines().filter_map(|line| line.split_once(' ')) {
        let size = size.parse().map_err(io::Error::other)?;
        let [nothing, once, twice] = [0, size, 2 * size].map(|size| run(&program, name, size));
        let nothing = nothing?;
        counts.push(Growth {
            name: name.to_owned(),
            size,
            once: once?.saturating_sub(nothing),
            twice: twice?.saturating_sub(nothing),
        });
        progress(&format!("{} {name}", pace.step()));
    }
    progress_ends();
    Ok(counts)
}

/// The instructions of one whole run.
fn run(program: &Path, name: &str, size: u64) -> io::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--collect-bus=yes")
        .arg(program)
        .args(["grow", name, &size.to_string()])
        .output()
        .map_err(|error| io::Error::other(format!("valgrind can't be started: {error}")))?;
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let cause = words.lines().last().unwrap_or("no word");
        return Err(io::Error::other(format!("{name}: {cause}")));
    }
    let counts = collected(&words);
    let counts = counts.ok_or_else(|| io::Error::other(format!("{name}: callgrind told no count")));
    counts.map(|[instructions, _]| instructions)
}

/// The counts as text.
pub fn shown(counts: &[Growth]) -> String {
    let mut text = String::from(
        "Instructions of the decision ring for an input, and what twice the input takes\n",
    );
    for growth in counts {
        let Growth {
            name, size, once, ..
        } = growth;
        let (whole, part) = (growth.hundredths() / 100, growth.hundredths() % 100);
        text.push_str(&format!(
            "{name:<24} {size:>8} {once:>12} {whole:>4}.{part:02}\n"
        ));
    }
    text
}

/// The input that grows fastest, as JSON. `ok`: all keep to the bound.
pub fn json(counts: &[Growth], ok: bool, seconds: u64) -> Value {
    let most = counts.iter().max_by_key(|growth| growth.hundredths());
    json!({
        "machine": "growth", "ok": ok, "inputs": counts.len(),
        "most": most.map(|growth| growth.name.as_str()),
        "times": most.map(|growth| growth.hundredths() as f64 / 100.0), "seconds": seconds,
    })
}

/// Compares the counts with the bound.
///
/// # Errors
/// Twice an input takes more than 2.5 times the instructions.
pub fn hold(counts: &[Growth]) -> io::Result<()> {
    let above = counts.iter().filter(|growth| growth.hundredths() > MOST);
    let above: Vec<_> = above.map(|growth| growth.name.as_str()).collect();
    if above.is_empty() {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "twice the input takes more than 2.5 times the instructions: {}",
            above.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_faster_than_its_input_is_told() {
        let growth = |once, twice| Growth {
            name: "texts".into(),
            size: 100,
            once,
            twice,
        };
        assert!(hold(&[growth(1_000, 2_500), growth(0, 0)]).is_ok());
        let told = hold(&[growth(1_000, 2_600)]).unwrap_err().to_string();
        assert!(told.ends_with(": texts"), "{told}");
        assert!(shown(&[growth(1_000, 2_050)]).contains("1000    2.05"));
        let told = json(&[growth(1_000, 2_000), growth(1_000, 2_050)], true, 2);
        assert_eq!((&told["inputs"], &told["times"]), (&json!(2), &json!(2.05)));
    }
}
