//! The table of TLS, as Markdown and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Figures;
use super::rows::{Against, Row};

/// Rows with their measurements.
pub type Measured = Vec<(Row, Figures)>;

/// The number of passed rows, and of all rows with a goal.
pub fn score(measured: &Measured) -> (usize, usize) {
    let bound = measured.iter().filter(|(row, _)| row.bound.is_some());
    let passed =
        |(row, figures): &&(Row, Figures)| row.outcome(figures).is_ok_and(|outcome| outcome.passed);
    (bound.clone().filter(passed).count(), bound.count())
}

/// The table as Markdown.
pub fn markdown(facts: &[(&str, String)], measured: &Measured) -> String {
    let mut text = String::new();
    for (name, value) in facts {
        let _ = writeln!(text, "- {name}: {value}");
    }
    text.push_str(
        "\n| measure | to reach | reached | Howdah | PgBouncer | floor | |\n\
         |---|---|---:|---:|---:|---:|---|\n",
    );
    for (row, figures) in measured {
        text.push_str(&line(row, figures));
    }
    text.push_str("\n| cell | Howdah | PgBouncer | floor |\n|---|---:|---:|---:|\n");
    for (row, figures) in measured {
        for cell in &row.cells {
            if let Ok(three) = row.of_cell(cell, figures) {
                let floor = three
                    .floor
                    .map_or("-".to_owned(), |floor| format!("{floor:.1}"));
                let _ = writeln!(
                    text,
                    "| {}: {}, {} | {:.1} | {:.1} | {floor} |",
                    row.key, cell.name, row.unit, three.ours, three.peer
                );
            }
        }
    }
    text.push_str(
        "\nThe floor of a transaction is what a pooler without features takes in clear text, and what \
         TLS adds to an echo of the same bytes, once for each side; of a login or of memory, the echo \
         itself; of a storm, what the load's clients feel where the storm breaks on the echo, a process of its \
         own. Where it is above what is to be reached, 1.1 of the floor is.\n",
    );
    text
}

fn line(row: &Row, figures: &Figures) -> String {
    let outcome = match row.outcome(figures) {
        Ok(outcome) => outcome,
        Err(why) => return format!("| {} | | | | | | failed: {why} |\n", row.title),
    };
    let unit = row.unit;
    let figure = |figure: f64| format!("{figure:.1} {unit}");
    let floor = match (outcome.floor, outcome.compared.1) {
        (Some(floor), Some(part)) if row.against != (Against::Nothing { below_peer: true }) => {
            format!("{} ({part:.2})", figure(floor))
        }
        (Some(floor), _) => figure(floor),
        (None, _) => "-".to_owned(),
    };
    format!(
        "| {} | {} | {:.2} | {} | {} | {floor} | {} |\n",
        row.title,
        outcome.bound.map_or("-".to_owned(), |bound| bound.text()),
        outcome.compared.0,
        figure(outcome.ours),
        figure(outcome.peer),
        match (outcome.bound, outcome.passed) {
            (None, _) => "",
            (_, true) => "pass",
            (_, false) => "**missed**",
        }
    )
}

/// The table as JSON.
pub fn json(facts: &[(&str, String)], measured: &Measured) -> Value {
    let rows = measured.iter().map(|(row, figures)| {
        let cells = figures.iter().map(
            |((cell, who), rounds)| json!({ "cell": cell, "who": who.name(), "rounds": rounds }),
        );
        json!({
            "key": row.key,
            "title": row.title,
            "unit": row.unit,
            "reached": row.outcome(figures).map(|outcome| outcome.compared.0),
            "passed": row.outcome(figures).is_ok_and(|outcome| outcome.passed),
            "cells": cells.collect::<Vec<_>>(),
        })
    });
    json!({ "facts": facts, "rows": rows.collect::<Vec<_>>() })
}
