//! The same results in three forms: for a terminal, as Markdown, as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::crowd::{Growth, PERCENTILES, Waits};
use crate::load::{Protocol, Reading};
use crate::measure::{
    CLIENTS, Figure, MEASURES, Measure, Outcome, Readings, TWO_CLOCKS, geometric_mean,
};
use crate::record::Spread;
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
    /// Processor time of a login in microseconds and its clock, by target, one for each round.
    pub logins: Vec<(Target, Logins)>,
}

/// The figures of all rounds of logins, or the reason of the failure.
pub type Logins = Result<Vec<(f64, Clock)>, String>;

/// The result of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    Miss,
    NotMeasured,
}

impl Verdict {
    fn of(passed: bool) -> Self {
        if passed { Self::Pass } else { Self::Miss }
    }
}

/// One row of the table of goals.
struct Row {
    title: String,
    bound: String,
    reached: String,
    beside: String,
    verdict: Verdict,
}

impl Row {
    fn failed(title: String, bound: String, cause: String) -> Self {
        Self {
            title,
            bound,
            reached: "failed".to_owned(),
            beside: cause,
            verdict: Verdict::Miss,
        }
    }

    /// The row without a result.
    fn not_measured(self) -> Self {
        Self {
            reached: "not measured".to_owned(),
            beside: String::new(),
            verdict: Verdict::NotMeasured,
            ..self
        }
    }
}

impl Results {
    /// All rows, also those that were not measured.
    fn rows(&self) -> Vec<Row> {
        let measures = MEASURES
            .iter()
            .map(|measure| (measure.key, self.measure_row(measure)));
        let idle = self.memory_row("idle client", Growth::per_client);
        let burst = self.memory_row("idle client after a burst", Growth::per_client_after_burst);
        let others = [
            ("active", self.active_row()),
            ("memory", idle),
            ("memory", burst),
            ("login", self.login_row()),
        ];
        let rows = measures.chain(others);
        rows.map(|(key, row)| {
            if self.wanted.contains(&key) {
                row
            } else {
                row.not_measured()
            }
        })
        .collect()
    }

    fn measure_row(&self, measure: &Measure) -> Row {
        let (title, bound) = (measure.title.to_owned(), measure.bound.text());
        match measure.outcome(&self.readings) {
            Ok(outcome) => Row {
                title,
                bound,
                reached: format!("{:.3}", outcome.ratio),
                beside: beside(&outcome),
                verdict: Verdict::of(measure.bound.holds(outcome.ratio)),
            },
            Err(cause) => Row::failed(title, bound, cause),
        }
    }

    fn active_row(&self) -> Row {
        let title = format!("{} clients active, 2 workers", self.crowd);
        let bound = "no failure".to_owned();
        let mut active = self.active.iter();
        match active.find(|(target, _)| *target == Target::HowdahTwo) {
            Some((_, Ok(waits))) => Row {
                title,
                bound,
                reached: format!("{:.0} TPS", waits.reading.tps),
                beside: format!("{}, one run", percentiles(waits)),
                verdict: Verdict::Pass,
            },
            Some((_, Err(cause))) => Row::failed(title, bound, cause.clone()),
            None => Row::failed(title, bound, "not measured".to_owned()),
        }
    }

    fn login_row(&self) -> Row {
        let mean = |rounds: &Vec<(f64, Clock)>| {
            let figures: Vec<_> = rounds.iter().map(|(cpu, _)| *cpu).collect();
            geometric_mean(&figures)
        };
        let rounds = self
            .logins
            .iter()
            .filter_map(|(_, rounds)| rounds.as_ref().ok());
        let clocks = Clock::distinct(rounds.flatten().map(|(_, clock)| *clock));
        let unit = clocks
            .first()
            .map_or(String::new(), |clock| format!("us by {}", clock.name()));
        let row = against_peer("CPU per SCRAM login", &unit, &self.logins, mean);
        match clocks.len() {
            0 | 1 => row,
            _ => Row::failed(row.title, row.bound, TWO_CLOCKS.to_owned()),
        }
    }

    fn memory_row(&self, who: &str, figure: impl Fn(&Growth) -> f64) -> Row {
        let title = format!("memory growth per {who} of {}", self.crowd);
        against_peer(
            &title,
            "bytes of resident memory, one run",
            &self.memory,
            figure,
        )
    }

    /// How many rows pass, of how many that were measured.
    pub fn score(&self) -> String {
        let rows = self.rows();
        let count = |wanted| rows.iter().filter(|row| row.verdict == wanted).count();
        let (passed, missed) = (count(Verdict::Pass), count(Verdict::Miss));
        let measured = passed + missed;
        score(passed, measured, count(Verdict::NotMeasured))
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
            let _ = writeln!(text, "\n{}", self.about_rounds());
        }
        for table in self.tables() {
            let _ = writeln!(text, "\n{}", paint("1", &table.caption));
            let widths = widths(&table.lines);
            for (number, line) in table.lines.iter().enumerate() {
                let line = aligned(line, &widths);
                let _ = writeln!(
                    text,
                    "{}",
                    if number == 0 { paint("2", &line) } else { line }
                );
            }
        }
        for line in self.failures() {
            let _ = writeln!(text, "{} {line}", paint("31;1", "failed:"));
        }
        text.push('\n');
        for line in self.crowd_lines() {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(text, "\n{}", paint("1", "What is to be reached"));
        let rows = self.rows();
        let width = rows.iter().map(|row| row.title.len()).max().unwrap_or(0);
        for row in rows {
            let verdict = match row.verdict {
                Verdict::Pass => paint("32;1", "pass"),
                Verdict::Miss => paint("31;1", "MISS"),
                Verdict::NotMeasured => "   -".to_owned(),
            };
            let _ = writeln!(
                text,
                "{verdict}  {:<width$}  {:>10}  {:>12}  {}",
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
            let verdict = match row.verdict {
                Verdict::Pass => "pass",
                Verdict::Miss => "**miss**",
                Verdict::NotMeasured => "",
            };
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
        let _ = writeln!(text, "\n{}.", self.score());
        if !self.readings.is_empty() {
            let _ = writeln!(text, "\n{}.", self.about_rounds());
        }
        for table in self.tables() {
            let _ = write!(text, "\n{}:\n\n", table.caption);
            for (number, line) in table.lines.iter().enumerate() {
                let _ = writeln!(text, "| {} |", line.join(" | "));
                if number == 0 {
                    let _ = writeln!(text, "|{}", "---|".repeat(line.len()));
                }
            }
        }
        text.push('\n');
        for line in self.failures() {
            let _ = writeln!(text, "- failed: {line}");
        }
        for line in self.crowd_lines() {
            let _ = writeln!(text, "- {}", line.trim());
        }
        text
    }

    /// What the figures of a cell are.
    fn about_rounds(&self) -> String {
        match self.readings.values().map(Vec::len).max() {
            None | Some(0 | 1) => "One round, so there is no spread".to_owned(),
            Some(rounds) => format!(
                "Medians of {rounds} rounds; \u{b1} is half the way from the least round to the most, in \
                 percent of the median"
            ),
        }
    }

    /// The clocks of all cells.
    fn clocks(&self) -> Vec<Clock> {
        let runs = self.readings.values().flatten().flatten();
        Clock::distinct(runs.filter_map(|run| Some(run.cpu?.1)))
    }

    /// A table for each figure. Columns without figures are left out.
    fn tables(&self) -> Vec<Table> {
        let clocks = match self.clocks().as_slice() {
            [] => None,
            [clock] => Some(clock.name().to_owned()),
            _ => {
                let (task, account) = (Clock::Task.name(), Clock::Account.name());
                Some(format!("{task}; {BY_ACCOUNT} by {account}"))
            }
        };
        let tps = self.table("Transactions per second".to_owned(), Figure::Tps);
        let cpu = clocks.map(|clocks| {
            let caption = format!("Pooler's CPU, us per transaction, by {clocks}");
            self.table(caption, Figure::Cpu)
        });
        let tables = [Some(tps), cpu].into_iter().flatten();
        tables.filter(|table| table.lines.len() > 1).collect()
    }

    fn table(&self, caption: String, figure: Figure) -> Table {
        let is_shown = |target: &Target| {
            let mut cells = self.readings.iter();
            cells.any(|((_, _, of), runs)| of == target && !cell_text(runs, figure, "").is_empty())
        };
        let targets: Vec<_> = Target::ALL.into_iter().filter(is_shown).collect();
        let mark = if self.clocks().len() > 1 {
            BY_ACCOUNT
        } else {
            ""
        };
        let mut head = vec!["protocol".to_owned(), "clients".to_owned()];
        head.extend(targets.iter().map(|target| target.name().to_owned()));
        let mut lines = vec![head];
        for protocol in Protocol::ALL {
            for clients in CLIENTS {
                let cells = targets.iter().map(|target| {
                    let runs = self.readings.get(&(protocol, clients, *target));
                    let text = runs.map(|runs| cell_text(runs, figure, mark));
                    text.filter(|text| !text.is_empty())
                        .unwrap_or("-".to_owned())
                });
                let cells: Vec<_> = cells.collect();
                if cells.iter().any(|cell| cell != "-") {
                    let start = [protocol.name().to_owned(), clients.to_string()];
                    lines.push(start.into_iter().chain(cells).collect());
                }
            }
        }
        Table { caption, lines }
    }

    /// The reasons of all failed runs of cells, each once.
    fn failures(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for ((protocol, clients, target), runs) in &self.readings {
            for cause in runs.iter().filter_map(|run| run.as_ref().err()) {
                let (protocol, target) = (protocol.name(), target.name());
                let line = format!("{protocol}, {clients} clients, {target}: {cause}");
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        lines
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
        for (target, rounds) in &self.logins {
            let figures = rounds.as_ref().map_or_else(
                |cause| format!("failed: {cause}"),
                |rounds| {
                    let spread = Spread::of(rounds.iter().map(|(cpu, _)| *cpu).collect());
                    spread.map_or("-".to_owned(), |spread| format!("{} us", shown(spread, 1)))
                },
            );
            lines.push(format!("{:<18} CPU of a login: {figures}", target.name()));
        }
        lines
    }

    /// The results as JSON: facts, every reading of every round with the spread, every row.
    pub fn json(&self) -> Value {
        let cells = self
            .readings
            .iter()
            .map(|((protocol, clients, target), runs)| {
                let rounds = runs.iter().map(reading_json).collect::<Vec<_>>();
                json!({ "protocol": protocol.name(), "clients": clients,
                    "target": target.name(), "rounds": rounds,
                    "tps": spread_json(runs, Figure::Tps),
                    "cpu_us": spread_json(runs, Figure::Cpu) })
            });
        let rows = self.rows().into_iter().map(|row| {
            json!({ "title": row.title, "bound": row.bound, "reached": row.reached,
                    "beside": row.beside, "measured": row.verdict != Verdict::NotMeasured,
                    "passed": row.verdict == Verdict::Pass })
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
            Ok(rounds) => {
                let rounds = rounds.iter();
                let (cpu, clocks): (Vec<_>, Vec<_>) =
                    rounds.map(|(cpu, clock)| (*cpu, clock.name())).unzip();
                json!({ "target": target.name(), "cpu_us": cpu, "clocks": clocks })
            }
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

/// How many rows pass, of how many that were measured, beside `others` that were not.
pub fn score(passed: usize, measured: usize, others: usize) -> String {
    match others {
        0 => format!("{passed} of {measured} rows pass"),
        _ => format!("{passed} of {measured} measured rows pass, {others} not measured"),
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
            beside: format!("{ours:.0} against {theirs:.0} {unit}"),
            verdict: Verdict::of(ours <= theirs),
        },
        Err(cause) => Row::failed(title, bound, cause),
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

/// The mark of figures by the scheduler's account, if others are by the task clock.
const BY_ACCOUNT: &str = "\u{2020}";

/// All cells of one figure. The first line is the head.
struct Table {
    caption: String,
    lines: Vec<Vec<String>>,
}

/// A figure over a cell's rounds. None without such a figure, or if a round failed.
fn spread(runs: &[Result<Reading, String>], figure: Figure) -> Option<Spread> {
    let figures = runs.iter().map(|run| figure.of(run.as_ref().ok()?));
    let figures: Option<Vec<_>> = figures.map(|found| Some(found?.0)).collect();
    Spread::of(figures?)
}

/// A cell: the figure with its spread, and `mark` if a round is by the scheduler's account. Empty
/// without such a figure.
fn cell_text(runs: &[Result<Reading, String>], figure: Figure, mark: &str) -> String {
    if runs.iter().any(Result::is_err) {
        return "failed".to_owned();
    }
    let Some(spread) = spread(runs, figure) else {
        return String::new();
    };
    let digits = if figure == Figure::Cpu { 1 } else { 0 };
    let clocks = runs.iter().flatten().filter_map(|run| figure.of(run)?.1);
    let by_account = clocks.into_iter().any(|clock| clock == Clock::Account);
    format!(
        "{}{}",
        shown(spread, digits),
        if by_account { mark } else { "" }
    )
}

/// The median, and half the way from the least figure to the most, in percent of it.
fn shown(spread: Spread, digits: usize) -> String {
    match spread.rounds {
        1 => format!("{:.digits$}", spread.middle),
        _ => format!("{:.digits$} \u{b1}{:.0}%", spread.middle, half_way(spread)),
    }
}

fn half_way(spread: Spread) -> f64 {
    (spread.most - spread.least) / 2.0 / spread.middle * 100.0
}

fn spread_json(runs: &[Result<Reading, String>], figure: Figure) -> Value {
    spread(runs, figure).map_or(
        Value::Null,
        |spread| json!({ "median": spread.middle, "least": spread.least, "most": spread.most }),
    )
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
            .map(|line| line[column].chars().count())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(tps: f64, cpu: Option<(f64, Clock)>) -> Result<Reading, String> {
        Ok(Reading {
            transactions: 0,
            tps,
            latency: 1.0,
            cpu,
            resident: None,
        })
    }

    /// The row `cpu-8` with two rounds of each cell.
    fn results() -> Results {
        let measure = MEASURES
            .iter()
            .find(|measure| measure.key == "cpu-8")
            .unwrap();
        let runs = |cpu| vec![reading(90.0, cpu), reading(110.0, cpu)];
        let cells = measure
            .cells()
            .map(|cell| (cell, runs(Some((8.0, Clock::Task)))));
        let mut readings: Readings = cells.collect();
        readings.insert((Protocol::Simple, 8, Target::Direct), runs(None));
        Results {
            readings,
            wanted: vec!["cpu-8"],
            ..Results::default()
        }
    }

    #[test]
    fn rows_that_were_not_measured_are_there_and_counted() {
        let results = results();
        let all = MEASURES.len() + 4;
        let text = results.terminal(false);
        assert_eq!(text.matches("not measured").count(), all - 1, "{text}");
        assert_eq!(
            results.markdown().matches("| not measured |").count(),
            all - 1
        );
        let score = format!("1 of 1 measured rows pass, {} not measured", all - 1);
        assert_eq!(results.score(), score);
        let rows = results.json()["rows"].as_array().unwrap().clone();
        let measured = rows.iter().filter(|row| row["measured"] == true);
        assert_eq!((rows.len(), measured.count()), (all, 1));
    }

    #[test]
    fn cells_have_a_spread_that_the_report_explains() {
        let results = results();
        for text in [results.terminal(false), results.markdown()] {
            assert!(text.contains("100 \u{b1}10%"), "{text}");
            assert!(text.contains("8.0 \u{b1}0%"), "{text}");
            assert_eq!(
                text.matches("Medians of 2 rounds; \u{b1} is half").count(),
                1,
                "{text}"
            );
        }
        let json = results.json();
        let tps = &json["cells"][0]["tps"];
        assert_eq!((&tps["least"], &tps["most"]), (&json!(90.0), &json!(110.0)));
    }

    #[test]
    fn a_failed_cell_tells_its_reason() {
        let mut results = results();
        let cell = (Protocol::Simple, 8, Target::Direct);
        results
            .readings
            .insert(cell, vec![Err("answers are not right".into())]);
        for text in [results.terminal(false), results.markdown()] {
            let line = "failed: simple, 8 clients, direct: answers are not right";
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn figures_by_the_other_clock_are_marked() {
        let mut results = results();
        assert!(
            results
                .markdown()
                .contains("by the task clock of performance events:")
        );
        let cell = (Protocol::Simple, 8, Target::PgBouncer);
        let by_account = reading(100.0, Some((7.0, Clock::Account)));
        results
            .readings
            .insert(cell, vec![by_account.clone(), by_account]);
        let text = results.markdown();
        assert!(text.contains("\u{2020} by user and system time"), "{text}");
        assert!(text.contains("7.0 \u{b1}0%\u{2020}"), "{text}");
        assert!(text.contains(TWO_CLOCKS), "{text}");
    }

    #[test]
    fn the_login_row_names_its_clock() {
        let login = |cpu| Ok(vec![(cpu, Clock::Account); 2]);
        let mut results = Results {
            wanted: vec!["login"],
            logins: vec![
                (Target::Howdah, login(40.0)),
                (Target::PgBouncer, login(50.0)),
            ],
            ..Results::default()
        };
        let text = results.terminal(false);
        assert!(
            text.contains("40 against 50 us by user and system time"),
            "{text}"
        );
        results.logins[0].1 = Ok(vec![(40.0, Clock::Task)]);
        assert!(results.terminal(false).contains(TWO_CLOCKS));
    }
}
