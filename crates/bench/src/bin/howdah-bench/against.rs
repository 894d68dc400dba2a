//! What differs between two records of a design.

use std::fmt::Write as _;

use crate::figure::{Clocks, Told, by_account, number, told};
use crate::record::Record;

/// How a figure differs between two records.
enum Change {
    /// By more than the spread of both.
    Moved,
    /// Different, but with a single round on either side: perhaps by chance.
    Apart,
    /// The figure failed before.
    Mended,
    /// The figure fails now.
    Broke,
}

/// What differs between two records, as Markdown: their circumstances, what only one of them has, and
/// the figures that differ by more than the spread of both.
pub fn against(now: &Record, before: &Record) -> String {
    let mut text = String::new();
    list(
        &mut text,
        "The records differ in more than their figures",
        &circumstances(now, before),
    );
    for (title, one, other) in [
        ("Only in the record from before", before, now),
        ("Only in the record from now", now, before),
    ] {
        list(&mut text, title, &only_in(one, other));
    }
    text.push_str(&figures(now, before));
    text
}

/// A titled list, unless there is nothing to list.
fn list(text: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        let _ = writeln!(text, "{title}:\n\n- {}\n", lines.join("\n- "));
    }
}

/// How builds, machine, lengths, clocks and the like differ.
fn circumstances(now: &Record, before: &Record) -> Vec<String> {
    let mut lines = match before.stamp.is_empty() == now.stamp.is_empty() {
        true if now.stamp.is_empty() => Vec::new(),
        true => before.differs_from(&now.stamp),
        false => vec!["only one of them tells its builds and lengths".to_owned()],
    };
    let mut compare = |name: &str, old: Option<String>, new: Option<String>| {
        if old != new {
            let told = |value: Option<String>| value.unwrap_or_else(|| "not told".to_owned());
            lines.push(format!("{name} was {}, and is {}", told(old), told(new)));
        }
    };
    for name in ["sources", "PostgreSQL", "settings of PostgreSQL"] {
        let fact = |record: &Record| Some(record.fact(name)?.to_owned());
        compare(name, fact(before), fact(now));
    }
    let capacity = |record: &Record| Some(format!("{:.0} TPS", record.capacity?));
    compare("100 % of capacity", capacity(before), capacity(now));
    let clock = |record| Some(Clocks::of(record).name()?.to_owned());
    compare("the clock of CPU", clock(before), clock(now));
    lines
}

/// The contenders and cells that only one of two records has.
fn only_in(one: &Record, other: &Record) -> Vec<String> {
    let contenders = one.contenders.iter();
    let contenders = contenders.filter(|name| !other.contenders.contains(name));
    let mut lines: Vec<_> = contenders.map(|name| format!("contender {name}")).collect();
    let cells = one.cells.iter();
    let cells = cells.filter(|cell| other.cell(&cell.key).is_none());
    lines.extend(cells.map(|cell| format!("cell {}", cell.key)));
    lines
}

/// A count, and what was counted.
fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 figure {what}"),
        _ => format!("{number} figures {what}"),
    }
}

/// The figures that differ, and how many were compared.
fn figures(now: &Record, before: &Record) -> String {
    let mut table = String::new();
    let (mut compared, mut alone, mut clocks) = (0, 0, 0);
    let (mut moved, mut apart, mut mended, mut broke) = (0, 0, 0, 0);
    let cells = now.cells.iter();
    let both = cells.filter_map(|cell| Some((cell, before.cell(&cell.key)?)));
    let names = || now.contenders.iter();
    for (cell, earlier) in both {
        for name in names().filter(|name| before.contenders.contains(name)) {
            for shown in now.shown() {
                let old = told(before, earlier, name, shown);
                let new = told(now, cell, name, shown);
                match (&old, &new) {
                    (Told::Figure(_), Told::Nothing) | (Told::Nothing, Told::Figure(_)) => {
                        alone += 1;
                        continue;
                    }
                    (Told::Figure(_), Told::Figure(_))
                        if shown.is_cpu && by_account(cell, name) != by_account(earlier, name) =>
                    {
                        clocks += 1;
                        continue;
                    }
                    (Told::Figure(_), _) | (_, Told::Figure(_)) => compared += 1,
                    _ => continue,
                }
                let Some((change, line)) = changed(&old, &new, shown.digits) else {
                    continue;
                };
                *match change {
                    Change::Moved => &mut moved,
                    Change::Apart => &mut apart,
                    Change::Mended => &mut mended,
                    Change::Broke => &mut broke,
                } += 1;
                let _ = writeln!(
                    table,
                    "| {}, {} | {name} | {} | {line} |",
                    cell.group, cell.row, shown.title
                );
            }
        }
    }
    let mut text = String::new();
    if !table.is_empty() {
        let _ = writeln!(
            text,
            "| cell | contender | figure | before | now | change |\n|---|---|---|---:|---:|---:|\n\
             {table}"
        );
    }
    text.push_str(&match (compared, moved) {
        (0, _) => "no figure is in both records, so nothing was compared".to_owned(),
        (_, 0) => format!(
            "{}: none moved beyond the spread",
            count(compared, "compared")
        ),
        _ => format!(
            "{}: {moved} moved beyond the spread",
            count(compared, "compared")
        ),
    });
    for (number, what) in [
        (broke, "failed now and not before"),
        (mended, "failed before and not now"),
        (
            apart,
            "apart, but of a single round, which has no spread: this may be chance",
        ),
        (alone, "in only one of the records"),
        (clocks, "by two clocks, and not compared"),
    ] {
        if number > 0 {
            let _ = write!(text, "\n{}", count(number, what));
        }
    }
    text
}

/// The change, and the last three columns of its line. None without a change.
fn changed(old: &Told, new: &Told, digits: usize) -> Option<(Change, String)> {
    match (old, new) {
        (Told::Figure(old), Told::Failed(cause)) => {
            let cause = cause.replace('|', "/");
            let line = format!("{} | failed | {cause}", number(old.middle, digits));
            Some((Change::Broke, line))
        }
        (Told::Failed(cause), Told::Figure(new)) => {
            let cause = cause.replace('|', "/");
            let line = format!("failed | {} | was: {cause}", number(new.middle, digits));
            Some((Change::Mended, line))
        }
        (Told::Figure(old), Told::Figure(new)) => {
            if new.overlaps(*old) {
                return None;
            }
            let by = (new.middle / old.middle - 1.0) * 100.0;
            let line = format!(
                "{} | {} | {by:+.0} %",
                number(old.middle, digits),
                number(new.middle, digits)
            );
            match old.rounds.min(new.rounds) {
                1 => Some((Change::Apart, format!("{line}, single rounds"))),
                _ => Some((Change::Moved, line)),
            }
        }
        _ => None,
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    #[test]
    fn only_what_is_beyond_the_spread_has_moved() {
        let text = against(&sample(&[1000.0, 1200.0]), &sample(&[1100.0]));
        assert_eq!(text, "6 figures compared: none moved beyond the spread");
        let text = against(&sample(&[1000.0, 1200.0]), &sample(&[2000.0, 2200.0]));
        assert!(text.contains(": 2 moved"), "{text}");
        assert!(text.contains("-48 %"), "{text}");
    }

    #[test]
    fn single_rounds_never_move_beyond_the_spread() {
        let text = against(&sample(&[1000.0]), &sample(&[2000.0, 2200.0]));
        assert!(text.contains(": none moved beyond"), "{text}");
        assert!(
            text.contains("2 figures apart, but of a single round"),
            "{text}"
        );
    }

    #[test]
    fn what_fails_now_is_told() {
        let (fine, mut broken) = (sample(&[1000.0, 1100.0]), sample(&[1000.0, 1100.0]));
        broken.cells[0].runs[0].outcome = Err("it hangs".into());
        let text = against(&broken, &fine);
        assert!(text.contains("| 1,050 | failed | it hangs |"), "{text}");
        assert!(text.contains("3 figures failed now"), "{text}");
        let text = against(&fine, &broken);
        assert!(
            text.contains("| failed | 1,050 | was: it hangs |"),
            "{text}"
        );
    }

    #[test]
    fn every_figure_of_the_report_is_compared() {
        let [mut before, mut now] = [sample(&[1000.0, 1100.0]), sample(&[1000.0, 1100.0])];
        for (record, tail) in [(&mut before, 1.0), (&mut now, 2.0)] {
            for run in &mut record.cells[0].runs {
                if let Ok(figures) = &mut run.outcome {
                    figures.waits = Some([0.5, 0.6, 0.7, tail, 3.0]);
                }
            }
        }
        let text = against(&now, &before);
        assert!(
            text.contains(
                "| howdah | Waiting time, 99.9th percentile, milliseconds | 1.00 | 2.00 |"
            ),
            "{text}"
        );
    }

    #[test]
    fn what_only_one_record_has_is_told() {
        let (before, mut now) = (sample(&[1000.0, 1100.0]), sample(&[1000.0, 1100.0]));
        now.contenders[1] = "howdah2".into();
        now.cells[0].key = "simple/c1/w2".into();
        let text = against(&now, &before);
        for part in [
            "before:\n\n- contender howdah\n- cell simple/c1\n",
            "now:\n\n- contender howdah2\n- cell simple/c1/w2\n",
            "no figure is in both records",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn other_circumstances_are_told() {
        let (mut before, mut now) = (sample(&[1000.0, 1100.0]), sample(&[1000.0, 1100.0]));
        before.stamp.insert("cores".into(), "kept awake".into());
        now.stamp.insert("cores".into(), "left to sleep".into());
        now.facts.push(("sources".into(), "abc".into()));
        for run in &mut now.cells[0].runs {
            if let Ok(figures) = &mut run.outcome {
                figures.account = figures.cpu.take();
            }
        }
        let text = against(&now, &before);
        for part in [
            "- cores was kept awake, and is left to sleep\n",
            "- sources was not told, and is abc\n",
            "- the clock of CPU was the task clock, and is the scheduler's account\n",
            "by two clocks, and not compared",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
