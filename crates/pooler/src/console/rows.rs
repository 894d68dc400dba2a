//! The result of a SHOW: its columns and rows, and how they are written.

use howdah_wire::write::{self, Column};

use crate::event::Time;

/// Values of one row; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// An answer to SHOW.
#[derive(Debug)]
pub struct ShowTable<'a> {
    pub(super) columns: Vec<(&'a str, char)>,
    pub(super) rows: Vec<Row>,
}

impl<'a> ShowTable<'a> {
    /// One column with one value.
    pub fn of_one(name: &'a str, kind: char, value: Option<String>) -> Self {
        ShowTable {
            columns: vec![(name, kind)],
            rows: vec![vec![value]],
        }
    }

    /// The columns and the rows.
    pub fn parts(self) -> (Vec<(&'a str, char)>, Vec<Row>) {
        (self.columns, self.rows)
    }

    /// Appends the table as messages, up to CommandComplete.
    pub fn write(&self, buf: &mut Vec<u8>) {
        let columns: Vec<_> = self.columns.iter().copied().map(wire_column).collect();
        write::row_description(buf, &columns);
        for row in &self.rows {
            debug_assert_eq!(row.len(), columns.len());
            write::data_row(
                buf,
                row.iter().map(|value| value.as_ref().map(String::as_bytes)),
            );
        }
        write::command_complete(buf, "SHOW");
    }
}

/// A column in the form of a RowDescription.
pub fn wire_column((name, kind): (&str, char)) -> Column<'_> {
    let (type_oid, type_size) = match kind {
        'i' => (23, 4),
        'q' => (20, 8),
        'n' => (1700, -1),
        'b' => (16, 1),
        'y' => (17, -1),
        _ => (25, -1),
    };
    Column {
        name,
        type_oid,
        type_size,
    }
}

pub(super) fn text(value: &str) -> Option<String> {
    Some(value.to_string())
}

pub(super) fn number(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

/// A time as `YYYY-MM-DD HH:MM:SS UTC`. `started` is the wall clock at `Time(0)`.
pub fn date_time(started: f64, at: Time) -> String {
    let seconds = (started + at.0 as f64 / 1e9).max(0.0) as u64;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut left) = (1970, days);
    let length = |year: u64| {
        let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
        (365 + u64::from(leap), leap)
    };
    while left >= length(year).0 {
        left -= length(year).0;
        year += 1;
    }
    let february = if length(year).1 { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{year:04}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC",
        left + 1
    )
}
