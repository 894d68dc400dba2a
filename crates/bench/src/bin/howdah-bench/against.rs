//! What differs between two records of a design.

use std::fmt::Write as _;

use crate::figure::{Told, number, told};
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

/// The figures that differ between two records by more than the spread of both, as Markdown.
pub fn against(now: &Record, before: &Record) -> String {
    let mut tables = String::new();
    let (mut moved, mut apart, mut mended, mut broke) = (0, 0, 0, 0);
    for cell in &now.cells {
        let Some(earlier) = before.cell(&cell.key) else {
            continue;
        };
        for name in &now.contenders {
            for shown in now.shown().iter().take(2) {
                let old = told(before, earlier, name, shown);
                let new = told(now, cell, name, shown);
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
                    tables,
                    "| {}, {} | {name} | {} | {line} |",
                    cell.group, cell.row, shown.title
                );
            }
        }
    }
    if tables.is_empty() {
        return "nothing moved beyond the spread".to_owned();
    }
    let mut text = format!(
        "| cell | contender | figure | before | now | change |\n|---|---|---|---:|---:|---:|\n\
         {tables}\n{moved} figures moved beyond the spread"
    );
    for (count, what) in [
        (broke, "fail now and did not before"),
        (mended, "do not fail now and did before"),
        (
            apart,
            "are apart, but of a single round, which has no spread: this may be chance",
        ),
    ] {
        if count > 0 {
            let _ = write!(text, "\n{count} {what}");
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
            // Figures differ if their ranges over the rounds do not overlap.
            if new.least <= old.most && old.least <= new.most {
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
        assert_eq!(text, "nothing moved beyond the spread");
        let text = against(&sample(&[1000.0, 1200.0]), &sample(&[2000.0, 2200.0]));
        assert!(text.contains("1 figures moved"), "{text}");
        assert!(text.contains("-48 %"), "{text}");
    }

    #[test]
    fn single_rounds_never_move_beyond_the_spread() {
        let text = against(&sample(&[1000.0]), &sample(&[2000.0, 2200.0]));
        assert!(text.contains("0 figures moved beyond"), "{text}");
        assert!(
            text.contains("1 are apart, but of a single round"),
            "{text}"
        );
    }

    #[test]
    fn what_fails_now_is_told() {
        let (fine, mut broken) = (sample(&[1000.0, 1100.0]), sample(&[1000.0, 1100.0]));
        broken.cells[0].runs[0].outcome = Err("it hangs".into());
        let text = against(&broken, &fine);
        assert!(text.contains("| 1,050 | failed | it hangs |"), "{text}");
        assert!(text.contains("2 fail now"), "{text}");
        let text = against(&fine, &broken);
        assert!(
            text.contains("| failed | 1,050 | was: it hangs |"),
            "{text}"
        );
    }
}
