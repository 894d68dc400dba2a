//! Runs the self-checking load through each pooler, and counts replies that differ from
//! PostgreSQL's.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contender::{Certificate, Contender, Shape};
use crate::machine::Machine;
use crate::pace::{Pace, minutes};
use crate::postgres::{OPEN_USER, Postgres, USER};
use crate::process::Task;
use crate::run::{progress, progress_ends};

/// The pool size.
const POOL: usize = 20;

/// The time limit of a run, in addition to its length.
const PATIENCE: Duration = Duration::from_secs(300);

/// The parameters of the load.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Clients at once.
    pub clients: usize,
    /// The length of a run, in seconds.
    pub seconds: u64,
    /// Worker threads of poolers that have several.
    pub workers: usize,
}

/// The result of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Answers {
    /// The contender's name.
    pub contender: String,
    /// Its answer to `--version`.
    pub version: String,
    /// The counts, or the reason of the failure.
    pub outcome: Result<Vec<Row>, String>,
}

/// One behaviour of the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The behaviour's name.
    pub behaviour: String,
    /// Operations run.
    pub operations: u64,
    /// Replies that differ from PostgreSQL's.
    pub wrong: u64,
    /// Errors or ends of connections that PostgreSQL would not have caused.
    pub unexpected: u64,
    /// Replies that never came.
    pub hangs: u64,
}

#[derive(Deserialize)]
struct Said {
    rows: Vec<Row>,
}

/// Runs the load through each contender.
///
/// # Errors
/// The load's program is missing.
pub fn ask(
    contenders: &[Contender],
    machine: &Machine,
    postgres: &Postgres,
    certificate: &Certificate,
    choice: Choice,
) -> io::Result<Vec<Answers>> {
    let load = std::env::current_exe()?.with_file_name("howdah-load");
    if !load.is_file() {
        return Err(io::Error::other(format!(
            "there is no {}: cargo build --release -p howdah-load",
            load.display()
        )));
    }
    let load = machine.install(&load)?;
    let about = Duration::from_secs(choice.seconds) * contenders.len() as u32;
    let mut how_far = format!("[0/{}, {} left]", contenders.len(), minutes(about));
    let mut pace = Pace::new(contenders.len());
    let mut all = Vec::new();
    for contender in contenders {
        progress(&format!(
            "{how_far} {}: {} s",
            contender.kind, choice.seconds
        ));
        let shape = Shape::new(POOL, choice.workers);
        let running = contender.start(shape, machine, postgres, certificate);
        let outcome =
            running.and_then(|running| play(&load, machine, postgres, running.port(), choice));
        all.push(Answers {
            contender: contender.kind.name().to_owned(),
            version: contender.version.clone(),
            outcome: outcome.map_err(|error| error.to_string()),
        });
        how_far = pace.step();
    }
    progress_ends();
    Ok(all)
}

fn play(
    load: &Path,
    machine: &Machine,
    postgres: &Postgres,
    port: u16,
    choice: Choice,
) -> io::Result<Vec<Row>> {
    let url = |port| format!("postgres://{OPEN_USER}@127.0.0.1:{port}/{USER}");
    let mut command = machine.command(load);
    command
        .args(["--prepare", "--show", "0"])
        .args(["--url", &url(port), "--prepare-url", &url(postgres.port())])
        .args(["--clients", &choice.clients.to_string()])
        .args(["--seconds", &choice.seconds.to_string()]);
    // The load itself gives up on replies that never come. The rest is for preparation and checks.
    let patience = Duration::from_secs(choice.seconds) + PATIENCE;
    let done = Task::start(&mut command, machine.folder(), patience)?.finish()?;
    // 1 means that there were differences.
    if !matches!(done.code, Some(0 | 1)) {
        let last = done.errors.lines().last().unwrap_or("no word");
        return Err(io::Error::other(format!("the load could not run: {last}")));
    }
    read(&done.out).map_err(|why| io::Error::other(format!("the load's answer: {why}")))
}

/// Reads the rows of the last line. The checks at the end are not behaviours of clients.
fn read(out: &[u8]) -> serde_json::Result<Vec<Row>> {
    let last = out.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
    let said: Said = serde_json::from_slice(last.unwrap_or_default())?;
    let rows = said.rows.into_iter();
    Ok(rows.filter(|row| row.operations > 0).collect())
}

/// The results as Markdown.
pub fn markdown(all: &[Answers], choice: Choice) -> String {
    let mut text = format!(
        "Replies that are not PostgreSQL's: the self-checking load, {} clients, a pool of {POOL} in \
         transaction mode, {} s each.\n\n",
        choice.clients, choice.seconds
    );
    for answers in all.iter().filter(|answers| !answers.version.is_empty()) {
        let _ = writeln!(text, "- {}: {}", answers.contender, answers.version);
    }
    text.push_str(
        "\n| | operations | wrong | unexpected | hangs | where |\n|---|---:|---:|---:|---:|---|\n",
    );
    for answers in all {
        let _ = match &answers.outcome {
            Err(why) => writeln!(text, "| {} | - | - | - | - | {why} |", answers.contender),
            Ok(rows) => {
                let sum = |count: fn(&Row) -> u64| rows.iter().map(count).sum::<u64>();
                let differ = rows
                    .iter()
                    .filter(|row| row.wrong + row.unexpected + row.hangs > 0)
                    .map(|row| row.behaviour.as_str());
                writeln!(
                    text,
                    "| {} | {} | {} | {} | {} | {} |",
                    answers.contender,
                    sum(|row| row.operations),
                    sum(|row| row.wrong),
                    sum(|row| row.unexpected),
                    sum(|row| row.hangs),
                    differ.collect::<Vec<_>>().join(", ")
                )
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_summed_and_what_differs_is_named() {
        let row = |name, operations, wrong, unexpected| {
            serde_json::json!({"behaviour": name, "operations": operations, "wrong": wrong,
                               "unexpected": unexpected, "hangs": 0})
        };
        let rows = [row("simple", 10, 0, 0), row("cancel", 5, 1, 2)];
        let out = format!("a table\n{}\n", serde_json::json!({"rows": rows}));
        let answers = |outcome| Answers {
            contender: "howdah".into(),
            version: "howdah 1.2.3".into(),
            outcome,
        };
        let choice = Choice {
            clients: 4,
            seconds: 1,
            workers: 1,
        };
        let all = [
            answers(Ok(read(out.as_bytes()).unwrap())),
            answers(Err("it died".into())),
        ];
        let text = markdown(&all, choice);
        assert!(text.contains("\n- howdah: howdah 1.2.3\n"), "{text}");
        assert!(
            text.contains("| howdah | 15 | 1 | 2 | 0 | cancel |"),
            "{text}"
        );
        assert!(
            text.contains("| howdah | - | - | - | - | it died |"),
            "{text}"
        );
    }
}
