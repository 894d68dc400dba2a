//! The same results in three forms: for a terminal, as Markdown, as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::crowd::{Growth, PERCENTILES, Waits};
use crate::load::{Protocol, Reading};
use crate::measure::{CLIENTS, MEASURES, Outcome, Readings, geometric_mean};
use crate::target::Target;

/// All measurements.
#[derive(Default)]
pub struct Results {
    /// Machine, versions, settings: name and value.
    pub facts: Vec<(&'static str, String)>,
    /// pgbench's cells.
    pub readings: Readings,
    /// Keys of the chosen rows.
    pub wanted: Vec<&'static str>,
    /// The number of clients in rows with many.
    pub crowd: usize,
    /// All clients at work at once, by target.
    pub active: Vec<(Target, Result<Waits, String>)>,
    /// Memory of idle clients, by target.
    pub memory: Vec<(Target, Result<Growth, String>)>,
    /// Processor time of a login in microseconds, by target, one for each round.
    pub logins: Vec<(Target, Result<Vec<f64>, String>)>,
}

/// One row of the table of goals.
struct Row {
    title: String,
    bound: String,
    reached: String,
    beside: String,
    passed: bool,
}

impl Results {
    fn rows(&self) -> Vec<Row> {
        let wanted = |key: &str| self.wanted.contains(&key);
        let mut rows = Vec::new();
        for measure in MEASURES.iter().filter(|measure| wanted(measure.key)) {
            let outcome = measure.outcome(&self.readings);
            let passed = outcome
                .as_ref()
                .is_ok_and(|outcome| measure.bound.holds(outcome.ratio));
            let (reached, beside) = match outcome {
                Ok(outcome) => (format!("{:.3}", outcome.ratio), beside(&outcome)),
                Err(cause) => ("failed".to_owned(), cause),
            };
            let title = measure.title.to_owned();
            rows.push(Row {
                title,
                bound: measure.bound.text(),
                reached,
                beside,
                passed,
            });
        }
        if wanted("active") {
            rows.push(self.active_row());
        }
        if wanted("memory") {
            rows.push(self.memory_row("idle client", Growth::per_client));
            rows.push(self.memory_row("idle client after a burst", Growth::per_client_after_burst));
        }
        if wanted("login") {
            let means = |of: &Vec<f64>| geometric_mean(of);
            let unit = "us";
            rows.push(against_peer(
                "CPU per SCRAM login",
                unit,
                &self.logins,
                means,
            ));
        }
        rows
    }

    fn active_row(&self) -> Row {
        let ours = self
            .active
            .iter()
            .find(|(target, _)| *target == Target::HowdahTwo);
        let (reached, beside, passed) = match ours {
            Some((_, Ok(waits))) => (
                format!("{:.0} TPS", waits.reading.tps),
                percentiles(waits),
                true,
            ),
            Some((_, Err(cause))) => ("failed".to_owned(), cause.clone(), false),
            None => ("failed".to_owned(), "not measured".to_owned(), false),
        };
        let title = format!("{} clients active, 2 workers", self.crowd);
        Row {
            title,
            bound: "no failure".to_owned(),
            reached,
            beside,
            passed,
        }
    }

    fn memory_row(&self, who: &str, figure: impl Fn(&Growth) -> f64) -> Row {
        let title = format!("memory growth per {who} of {}", self.crowd);
        against_peer(&title, "bytes", &self.memory, figure)
    }

    /// The number of passed rows, and of all rows.
    pub fn score(&self) -> (usize, usize) {
        let rows = self.rows();
        (rows.iter().filter(|row| row.passed).count(), rows.len())
    }

    /// The results for a terminal, or for a file without `colour`.
    pub fn terminal(&self, colour: bool) -> String {
        let paint = |code: &str, text: &str| {
            if colour {
                format!("\x1b[{code}m{text}\x1b[0m")
            } else {
                text.to_owned()
            }
        };
        let mut text = String::new();
        for (name, value) in &self.facts {
            let _ = writeln!(text, "{} {value}", paint("2", &format!("{name:>12}")));
        }
        if !self.readings.is_empty() {
            let _ = writeln!(text, "\n{}", paint("1", &self.caption()));
            let table = self.cell_table();
            let widths = widths(&table);
            for (number, line) in table.iter().enumerate() {
                let line = aligned(line, &widths);
                let _ = writeln!(
                    text,
                    "{}",
                    if number == 0 { paint("2", &line) } else { line }
                );
            }
        }
        for line in self.crowd_lines() {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(text, "\n{}", paint("1", "What is to be reached"));
        let rows = self.rows();
        let width = rows.iter().map(|row| row.title.len()).max().unwrap_or(0);
        for row in rows {
            let verdict = if row.passed {
                paint("32;1", "pass")
            } else {
                paint("31;1", "MISS")
            };
            let _ = writeln!(
                text,
                "{verdict}  {:<width$}  {:>10}  {:>10}  {}",
                row.title,
                row.bound,
                row.reached,
                paint("2", &row.beside)
            );
        }
        text
    }

    /// The results as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.facts {
            let _ = writeln!(text, "- {name}: {value}");
        }
        text.push_str("\n| measure | to reach | reached | | |\n|---|---|---|---|---|\n");
        for row in self.rows() {
            let verdict = if row.passed { "pass" } else { "**miss**" };
            let Row {
                title,
                bound,
                reached,
                beside,
                ..
            } = row;
            let _ = writeln!(
                text,
                "| {title} | {bound} | {reached} | {verdict} | {beside} |"
            );
        }
        let _ = write!(text, "\n{}:\n\n", self.caption());
        for (number, line) in self.cell_table().iter().enumerate() {
            let _ = writeln!(text, "| {} |", line.join(" | "));
            if number == 0 {
                let _ = writeln!(text, "|{}", "---|".repeat(line.len()));
            }
        }
        text.push('\n');
        for line in self.crowd_lines() {
            let _ = writeln!(text, "- {}", line.trim());
        }
        text
    }

    /// The caption of the table: its figures, and their clock.
    fn caption(&self) -> String {
        let mut runs = self.readings.values().flatten().flatten();
        let clock = runs.find_map(|run| Some(run.cpu?.1.name()));
        let clock = clock.unwrap_or("no clock: no pooler was measured");
        format!("TPS / pooler's CPU us per transaction, by {clock}")
    }

    fn cell_table(&self) -> Vec<Vec<String>> {
        let mut head = vec!["protocol".to_owned(), "clients".to_owned()];
        head.extend(Target::ALL.iter().map(|target| target.name().to_owned()));
        let mut table = vec![head];
        for protocol in Protocol::ALL {
            for clients in CLIENTS {
                let mut line = vec![protocol.name().to_owned(), clients.to_string()];
                line.extend(Target::ALL.iter().map(|target| {
                    self.readings
                        .get(&(protocol, clients, *target))
                        .map_or("-".into(), |runs| cell_text(runs))
                }));
                if line[2..].iter().any(|cell| cell != "-") {
                    table.push(line);
                }
            }
        }
        table
    }

    fn crowd_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (target, waits) in &self.active {
            let figures = waits.as_ref().map_or_else(
                |cause| format!("failed: {cause}"),
                |waits| format!("{:.0} TPS, {}", waits.reading.tps, percentiles(waits)),
            );
            lines.push(format!(
                "{:<18} all clients active: {figures}",
                target.name()
            ));
        }
        for (target, growth) in &self.memory {
            let figures = growth.as_ref().map_or_else(
                |cause| format!("failed: {cause}"),
                |growth| {
                    let Growth { clients, before, idle, after_burst } = growth;
                    format!("{before} kB, {idle} kB with {clients} idle clients, {after_burst} kB after a burst")
                },
            );
            lines.push(format!("{:<18} resident: {figures}", target.name()));
        }
        lines
    }

    /// The results as JSON: facts, every reading of every round, every row.
    pub fn json(&self) -> Value {
        let cells = self
            .readings
            .iter()
            .map(|((protocol, clients, target), runs)| {
                let runs = runs.iter().map(reading_json).collect::<Vec<_>>();
                json!({ "protocol": protocol.name(), "clients": clients,
                    "target": target.name(), "rounds": runs })
            });
        let rows = self.rows().into_iter().map(|row| {
            json!({ "title": row.title, "bound": row.bound, "reached": row.reached,
                    "beside": row.beside, "passed": row.passed })
        });
        let active = self.active.iter().map(|(target, waits)| match waits {
            Ok(waits) => {
                let times = PERCENTILES.iter().zip(waits.percentiles);
                let times: serde_json::Map<_, _> = times
                    .map(|(name, time)| ((*name).to_owned(), json!(time)))
                    .collect();
                json!({ "target": target.name(), "reading": reading_json(&Ok(waits.reading)),
                        "milliseconds": times })
            }
            Err(cause) => json!({ "target": target.name(), "failed": cause }),
        });
        let memory = self.memory.iter().map(|(target, growth)| match growth {
            Ok(growth) => json!({ "target": target.name(), "clients": growth.clients,
                "before_kb": growth.before, "idle_kb": growth.idle,
                "after_burst_kb": growth.after_burst }),
            Err(cause) => json!({ "target": target.name(), "failed": cause }),
        });
        let logins = self.logins.iter().map(|(target, rounds)| match rounds {
            Ok(rounds) => json!({ "target": target.name(), "cpu_us": rounds }),
            Err(cause) => json!({ "target": target.name(), "failed": cause }),
        });
        let facts: serde_json::Map<_, _> = self
            .facts
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        json!({
            "facts": facts,
            "cells": cells.collect::<Vec<_>>(),
            "rows": rows.collect::<Vec<_>>(),
            "active": active.collect::<Vec<_>>(),
            "memory": memory.collect::<Vec<_>>(),
            "logins": logins.collect::<Vec<_>>(),
        })
    }
}

/// A row whose figure must be at most PgBouncer's.
fn against_peer<T>(
    title: &str,
    unit: &str,
    results: &[(Target, Result<T, String>)],
    figure: impl Fn(&T) -> f64,
) -> Row {
    let of = |wanted: fn(Target) -> bool| {
        let (target, result) = results
            .iter()
            .find(|(target, _)| wanted(*target))
            .ok_or_else(|| "not measured".to_owned())?;
        let result = result
            .as_ref()
            .map_err(|cause| format!("{}: {cause}", target.name()))?;
        Ok::<f64, String>(figure(result))
    };
    let ours = of(|target| target != Target::PgBouncer);
    let (bound, title) = ("<= 1.00".to_owned(), format!("{title}, of PgBouncer's"));
    match ours.and_then(|ours| Ok((ours, of(|target| target == Target::PgBouncer)?))) {
        Ok((ours, theirs)) => Row {
            title,
            bound,
            reached: format!("{:.3}", ours / theirs),
            beside: format!("{ours:.0} {unit} against {theirs:.0}"),
            passed: ours <= theirs,
        },
        Err(cause) => Row {
            title,
            bound,
            reached: "failed".into(),
            beside: cause,
            passed: false,
        },
    }
}

fn beside(outcome: &Outcome) -> String {
    let (smallest, largest) = outcome.range;
    let floor = outcome
        .floor
        .map(|floor| format!(", floor {floor:.3}"))
        .unwrap_or_default();
    format!("cells {smallest:.2} - {largest:.2}{floor}")
}

fn percentiles(waits: &Waits) -> String {
    let times = PERCENTILES.iter().zip(waits.percentiles);
    let times: Vec<_> = times
        .map(|(name, time)| format!("{name} {time:.0}"))
        .collect();
    format!("{} ms", times.join(", "))
}

/// The geometric means of a cell's rounds.
fn cell_text(runs: &[Result<Reading, String>]) -> String {
    let Ok(runs) = runs.iter().cloned().collect::<Result<Vec<_>, _>>() else {
        return "failed".into();
    };
    let mean = |figures: Vec<f64>| geometric_mean(&figures);
    let tps = mean(runs.iter().map(|run| run.tps).collect());
    let times = runs.iter().map(|run| Some(run.cpu?.0));
    match times.collect::<Option<Vec<_>>>() {
        Some(times) => format!("{tps:.0} / {:.1}", mean(times)),
        None => format!("{tps:.0}"),
    }
}

fn reading_json(run: &Result<Reading, String>) -> Value {
    match run {
        Ok(Reading {
            tps,
            latency,
            cpu,
            resident,
            ..
        }) => json!({
            "tps": tps, "latency_ms": latency, "cpu_us": cpu.map(|(cpu, _)| cpu),
            "clock": cpu.map(|(_, clock)| clock.name()), "resident_kb": resident }),
        Err(cause) => json!({ "failed": cause }),
    }
}

fn widths(table: &[Vec<String>]) -> Vec<usize> {
    let columns = table.first().map_or(0, Vec::len);
    let width = |column: usize| {
        table
            .iter()
            .map(|line| line[column].len())
            .max()
            .unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

fn aligned(line: &[String], widths: &[usize]) -> String {
    let cells = line
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(column, (cell, width))| {
            if column == 0 {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
    cells.collect::<Vec<_>>().join("  ")
}
