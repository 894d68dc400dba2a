//! The tree of a TOML file.

use std::cell::Cell;
use std::sync::Arc;

use howdah_config::Place;
use toml::de::{DeTable, DeValue};

use crate::Unreadable;
use crate::tree::{Branch, Fruit};

/// Reads a file.
///
/// # Errors
/// The first syntax error. Its line is not shown, because it may have a password.
pub(crate) fn read(path: &str, text: &str) -> Result<Fruit, Unreadable> {
    let starts = Starts::new(path.into(), text);
    match DeTable::parse(text) {
        Ok(table) => Ok(Fruit::Table(branches(table.get_ref(), &starts))),
        Err(error) => Err(Unreadable {
            place: Some(starts.place(error.span().map_or(0, |span| span.start))),
            why: format!("syntax error in TOML: {}", error.message()),
        }),
    }
}

/// Where the lines of a file begin.
struct Starts<'a> {
    file: Arc<str>,
    text: &'a str,
    all: Vec<usize>,
    /// The last place that was looked up, and its column: keys of a long line follow each other.
    last: Cell<(usize, u32)>,
}

impl<'a> Starts<'a> {
    fn new(file: Arc<str>, text: &'a str) -> Starts<'a> {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let all = std::iter::once(0).chain(ends).collect();
        let last = Cell::new((0, 1));
        Starts {
            file,
            text,
            all,
            last,
        }
    }

    fn place(&self, at: usize) -> Place {
        let line = self.all.partition_point(|start| *start <= at) - 1;
        let (from, column) = match self.last.get() {
            (last, column) if (self.all[line]..=at).contains(&last) => (last, column),
            _ => (self.all[line], 1),
        };
        let before = self.text.get(from..at).unwrap_or_default();
        let column = column + before.chars().count() as u32;
        self.last.set((at, column));
        Place {
            file: self.file.clone(),
            line: line as u32 + 1,
            column,
        }
    }
}

fn branches(table: &DeTable<'_>, starts: &Starts<'_>) -> Vec<Branch> {
    let mut all: Vec<_> = table.iter().collect();
    all.sort_by_key(|(key, _)| key.span().start);
    let branches = all.into_iter().map(|(key, value)| Branch {
        name: key.get_ref().to_string(),
        words: Vec::new(),
        place: starts.place(key.span().start),
        fruit: fruit(value.get_ref(), starts),
    });
    branches.collect()
}

fn fruit(value: &DeValue<'_>, starts: &Starts<'_>) -> Fruit {
    match value {
        DeValue::String(text) => Fruit::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Fruit::Integer(number),
            Err(_) => Fruit::Text(number.as_str().into()),
        },
        DeValue::Float(number) => Fruit::Fraction(number.as_str().into()),
        DeValue::Boolean(flag) => Fruit::Flag(*flag),
        DeValue::Datetime(date) => Fruit::Text(date.to_string()),
        DeValue::Array(all) => Fruit::List(
            all.iter()
                .map(|element| fruit(element.get_ref(), starts))
                .collect(),
        ),
        DeValue::Table(table) => Fruit::Table(branches(table, starts)),
    }
}
