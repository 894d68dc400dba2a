//! Rows of text with named columns.

use std::cmp::Ordering;

/// What a SHOW tells, or a view shows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Where a column is.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// A value; empty if there is no such column.
    pub fn value(&self, row: usize, name: &str) -> &str {
        let value = self.rows.get(row).zip(self.column(name));
        value
            .and_then(|(row, at)| row.get(at))
            .map_or("", String::as_str)
    }

    /// A value as a number; 0 if it is none.
    pub fn number(&self, row: usize, name: &str) -> f64 {
        self.value(row, name).parse().unwrap_or(0.0)
    }

    /// Sorts by a column: numbers as numbers.
    pub fn sort(&mut self, at: usize, downward: bool) {
        self.rows.sort_by(|a, b| {
            let order = match (a.get(at), b.get(at)) {
                (Some(a), Some(b)) => compare(a, b),
                _ => Ordering::Equal,
            };
            if downward { order.reverse() } else { order }
        });
    }

    /// Leaves rows that have a text somewhere, in any case.
    pub fn filter(&mut self, text: &str) {
        let text = text.to_lowercase();
        self.rows
            .retain(|row| row.iter().any(|value| value.to_lowercase().contains(&text)));
    }
}

fn compare(a: &str, b: &str) -> Ordering {
    match (measure(a), measure(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.cmp(b),
    }
}

/// A number, or a duration as views print it, in seconds.
fn measure(text: &str) -> Option<f64> {
    if text.is_empty() {
        return Some(-1.0);
    }
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match unit {
        "" | "s" => 1.0,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * factor)
}

/// A duration in microseconds for people; [`Table::sort`] reads it back.
pub(crate) fn duration(us: f64) -> String {
    match us {
        us if us <= 0.0 => "0".into(),
        us if us < 1e3 => format!("{us:.0} µs"),
        us if us < 1e4 => format!("{:.1} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us if us < 1e7 => format!("{:.1} s", us / 1e6),
        us if us < 120e6 => format!("{:.0} s", us / 1e6),
        us if us < 7200e6 => format!("{:.0} min", us / 60e6),
        us if us < 172_800e6 => format!("{:.0} h", us / 3600e6),
        us => format!("{:.0} d", us / 86400e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_sort_by_size() {
        let mut table = Table {
            columns: vec!["t".into()],
            rows: ["2 s", "900 ms", "10", "", "3 min", "0"]
                .iter()
                .map(|value| vec![value.to_string()])
                .collect(),
        };
        table.sort(0, true);
        let seen: Vec<_> = table.rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(seen, ["3 min", "10", "2 s", "900 ms", "0", ""]);
    }

    #[test]
    fn durations_are_short() {
        for (us, text) in [
            (0.0, "0"),
            (12.0, "12 µs"),
            (1234.0, "1.2 ms"),
            (250_000.0, "250 ms"),
            (5e6, "5.0 s"),
            (300e6, "5 min"),
            (1e13, "116 d"),
        ] {
            assert_eq!(duration(us), text);
        }
    }

    #[test]
    fn what_is_missing_is_empty() {
        let table = Table::default();
        assert_eq!((table.value(3, "x"), table.number(0, "y")), ("", 0.0));
    }
}
