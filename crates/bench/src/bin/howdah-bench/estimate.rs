//! How long a design takes, and what `--quick` leaves out of it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::contender::Kind;
use crate::design::Cell;

/// Logins per second of PostgreSQL itself, which starts a process for each.
const DIRECT: f64 = 200.0;
/// Logins per second of a pooler.
const POOLED: f64 = 1000.0;
/// What a run needs besides: the pooler and pgbench start and end.
const BESIDES: Duration = Duration::from_millis(700);

/// The cells of a design, who plays them, and how often and long.
pub struct Estimate<'a> {
    /// The cells.
    pub cells: &'a [Cell],
    /// The contenders.
    pub kinds: &'a [Kind],
    /// The number of rounds.
    pub rounds: usize,
    /// The length of a run, in seconds.
    pub seconds: u64,
}

impl Estimate<'_> {
    /// The duration, with logins and with the checks of answers.
    pub fn duration(&self) -> Duration {
        let runs = self.cells.iter().flat_map(|cell| {
            let kinds = self.kinds.iter();
            let playing = kinds.filter(|kind| cell.not_played(**kind).is_none());
            playing.map(|kind| self.run(cell, *kind))
        });
        runs.sum::<Duration>() * self.rounds as u32
    }

    fn run(&self, cell: &Cell, kind: Kind) -> Duration {
        let rate = if kind == Kind::PostgreSql {
            DIRECT
        } else {
            POOLED
        };
        let logins = Duration::from_secs_f64(logins(cell) as f64 / rate);
        Duration::from_secs(self.seconds) + logins + BESIDES
    }
}

/// The logins of a run that are not measured: those before it, and those of its checks.
fn logins(cell: &Cell) -> usize {
    let checks = cell.checks();
    if cell.reconnect {
        checks.clients * (checks.before + checks.after)
    } else {
        cell.clients + checks.clients * 2
    }
}

/// A duration as text.
pub fn minutes(time: Duration) -> String {
    format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
}

/// The cells of the whole design that its quick form lacks: a line for each set of rows, with the
/// tables that lack them.
pub fn left_out(quick: &[Cell], whole: &[Cell]) -> Vec<String> {
    let played: BTreeSet<_> = quick.iter().map(Cell::key).collect();
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for cell in whole.iter().filter(|cell| !played.contains(&cell.key())) {
        match groups.iter_mut().find(|(group, _)| *group == cell.group) {
            Some((_, rows)) => rows.push(cell.row()),
            None => groups.push((&cell.group, vec![cell.row()])),
        }
    }
    let mut lines: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
    for (group, rows) in groups {
        match lines.iter_mut().find(|(_, known)| *known == rows) {
            Some((groups, _)) => groups.push(group),
            None => lines.push((vec![group], rows)),
        }
    }
    let line = |(groups, rows): (Vec<&str>, Vec<String>)| {
        let are_clients = rows.iter().all(|row| row.parse::<usize>().is_ok());
        let unit = if are_clients { " clients" } else { "" };
        format!("{}{unit} ({})", rows.join(", "), groups.join("; "))
    };
    lines.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::design::{Choice, Design};

    fn cells(design: Design, quick: bool) -> Vec<Cell> {
        design.cells(Choice {
            quick,
            workers: Some(1),
            least_clients: 1,
            most_clients: 10_000,
        })
    }

    fn quick(design: Design, kinds: &[Kind]) -> Duration {
        let estimate = Estimate {
            cells: &cells(design, true),
            kinds,
            rounds: design.rounds(true),
            seconds: design.seconds(true),
        };
        estimate.duration()
    }

    #[test]
    fn the_quick_matrix_against_pgbouncer_takes_a_quarter_of_an_hour() {
        let kinds = [Kind::PostgreSql, Kind::Howdah, Kind::PgBouncer];
        let duration = quick(Design::Matrix, &kinds);
        assert!(
            duration < Duration::from_secs(14 * 60),
            "{}",
            minutes(duration)
        );
    }

    #[test]
    fn quick_designs_against_five_poolers_take_minutes() {
        for design in Design::value_variants() {
            let duration = quick(*design, &Kind::ALL[..6]);
            let most = if *design == Design::Matrix { 30 } else { 9 };
            let told = minutes(duration);
            assert!(
                duration < Duration::from_secs(most * 60),
                "{}: {told}",
                design.name()
            );
        }
    }

    #[test]
    fn logins_and_checks_take_time() {
        let all = cells(Design::Matrix, true);
        let find = |reconnect, clients| {
            let mut cells = all.iter();
            cells.find(|cell| cell.reconnect == reconnect && cell.clients == clients)
        };
        let few = find(false, 1).unwrap();
        let many = find(false, 500).unwrap();
        let run = |cell: &Cell, kind| {
            let estimate = Estimate {
                cells: std::slice::from_ref(cell),
                kinds: &[kind],
                rounds: 1,
                seconds: 2,
            };
            estimate.duration()
        };
        let more = run(many, Kind::PostgreSql) - run(few, Kind::PostgreSql);
        assert!(more > Duration::from_secs(2), "{more:?}");
        assert!(run(many, Kind::PostgreSql) > run(many, Kind::Howdah));
        let reconnecting = find(true, 40).unwrap();
        let checks = reconnecting.checks();
        assert!(checks.clients * (checks.before + checks.after) <= 100);
        let crowd = Cell {
            clients: 10_000,
            ..few.clone()
        };
        assert_eq!(run(&crowd, Kind::PostgreSql), Duration::ZERO, "not played");
    }

    #[test]
    fn what_quick_leaves_out_is_told() {
        let told = |design| left_out(&cells(design, true), &cells(design, false));
        assert_eq!(
            told(Design::Matrix),
            [
                "120, 10000 clients (simple; extended; prepared; simple, TLS; extended, TLS; prepared, TLS)",
                "1, 120, 500, 10000 clients (simple, reconnecting; extended, reconnecting; \
                 prepared, reconnecting; simple, TLS and reconnecting)"
            ]
        );
        assert_eq!(
            told(Design::Latency),
            ["70 % of capacity, 100 % of capacity (simple, 40 clients)"]
        );
        assert!(told(Design::Login).is_empty());
    }
}
