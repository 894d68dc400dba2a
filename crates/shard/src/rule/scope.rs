//! What names of columns mean at a place in a statement.

use std::ops::Range;

use crate::proof::{Node, Term};
use crate::value::KeyType;

/// What is known about the values of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// A column of the proof.
    Known {
        node: Node,
        family: KeyType,
        /// The item of FROM that has the column.
        item: u32,
    },
    /// A parameter or string whose type comes from where the column is used.
    Bare(Term),
    Unknown,
}

/// A column of an item of FROM, or of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NamedColumn {
    /// `None` for a name that is not known.
    pub(super) name: Option<String>,
    pub(super) source: Source,
    /// A merged column (USING) stands for the column, so the bare name does not mean this one.
    pub(super) hidden: bool,
}

impl NamedColumn {
    pub(super) fn new(name: Option<String>, source: Source) -> NamedColumn {
        NamedColumn {
            name,
            source,
            hidden: false,
        }
    }
}

/// The columns of a query's result, or of an item of FROM.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Columns {
    pub(super) list: Vec<NamedColumn>,
    /// There may be more columns.
    pub(super) open: bool,
    /// The order may be another on another shard.
    pub(super) unordered: bool,
}

impl Columns {
    /// The column at a place, if places are certain.
    pub(super) fn at(&self, place: usize) -> Option<&NamedColumn> {
        self.list
            .get(place)
            .filter(|_| !self.open && !self.unordered)
    }

    pub(super) fn append(&mut self, other: &Columns) {
        self.list.extend(other.list.iter().cloned());
        self.open |= other.open;
        self.unordered |= other.unordered;
    }

    /// Gives other names to the first columns. Columns that are not known may stand before those
    /// that are.
    pub(super) fn rename(&mut self, names: &[String]) {
        let is_certain = !self.unordered && !self.open;
        for (at, name) in names.iter().enumerate() {
            match self.list.get_mut(at) {
                Some(column) => column.name = Some(name.clone()),
                None => self
                    .list
                    .push(NamedColumn::new(Some(name.clone()), Source::Unknown)),
            }
        }
        if !names.is_empty() && !is_certain {
            self.list
                .iter_mut()
                .for_each(|column| column.source = Source::Unknown);
            // Any other column may have kept its name.
            self.open = true;
        }
    }
}

/// An item of FROM, by which columns may be named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// The alias, or the table's name.
    pub(super) name: Option<String>,
    /// The schema of a table without alias.
    pub(super) schema: Option<String>,
    pub(super) columns: Columns,
    /// The items below.
    pub(super) items: Range<u32>,
    /// Its columns are not found without its name.
    pub(super) only_by_name: bool,
}

/// What a place sees, from the inside out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub(super) entries: &'a [Entry],
    pub(super) outer: Option<&'a Scope<'a>>,
}

/// Columns that each table has.
const SYSTEM_COLUMNS: [&str; 6] = ["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"];

impl Scope<'_> {
    /// What a column's name means.
    pub(super) fn resolve(&self, names: &[&str]) -> Source {
        match names {
            [column] => self.bare(column),
            [table, column] => self.of_table(None, table, column),
            [schema, table, column] => self.of_table(Some(schema), table, column),
            _ => Source::Unknown,
        }
    }

    fn bare(&self, name: &str) -> Source {
        let entries = || self.entries.iter().filter(|entry| !entry.only_by_name);
        let columns = entries().flat_map(|entry| &entry.columns.list);
        let mut named =
            columns.filter(|column| !column.hidden && column.name.as_deref() == Some(name));
        match (named.next(), named.next()) {
            (Some(only), None) => return only.source,
            (Some(_), Some(_)) => return Source::Unknown,
            (None, _) => {}
        }
        let is_open = entries().any(|entry| {
            entry.columns.open
                || entry
                    .columns
                    .list
                    .iter()
                    .any(|column| column.name.is_none())
        });
        let is_row = self
            .entries
            .iter()
            .any(|entry| entry.name.as_deref() == Some(name));
        let is_system = !self.entries.is_empty() && SYSTEM_COLUMNS.contains(&name);
        if is_open || is_row || is_system {
            return Source::Unknown;
        }
        self.outer.map_or(Source::Unknown, |outer| outer.bare(name))
    }

    fn of_table(&self, schema: Option<&str>, table: &str, column: &str) -> Source {
        let mut named = self.named(schema, table);
        let Some(entry) = named.next() else {
            return self.outer.map_or(Source::Unknown, |outer| {
                outer.of_table(schema, table, column)
            });
        };
        if named.next().is_some() {
            return Source::Unknown;
        }
        let mut columns = entry.columns.list.iter();
        let mut named = columns
            .by_ref()
            .filter(|found| found.name.as_deref() == Some(column));
        match (named.next(), named.next()) {
            (Some(only), None) => only.source,
            _ => Source::Unknown,
        }
    }

    /// True if a table's column has the name, of which all columns are known.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        let (schema, table, column) = match names {
            [table, column] => (None, *table, *column),
            [schema, table, column] => (Some(*schema), *table, *column),
            _ => return false,
        };
        let mut named = self.named(schema, table);
        match (named.next(), named.next()) {
            (Some(only), None) => {
                let mut columns = only.columns.list.iter();
                columns.any(|found| found.name.as_deref() == Some(column))
            }
            (Some(_), Some(_)) => false,
            (None, _) => self.outer.is_some_and(|outer| outer.has(names)),
        }
    }

    /// The columns of an entry, for `table.*`. `None` if the name means none, or several.
    pub(super) fn columns_of(&self, schema: Option<&str>, table: &str) -> Option<&Columns> {
        let mut named = self.named(schema, table);
        match (named.next(), named.next()) {
            (Some(only), None) => Some(&only.columns),
            (Some(_), Some(_)) => None,
            (None, _) => self.outer?.columns_of(schema, table),
        }
    }

    /// The entries of a name.
    fn named(&self, schema: Option<&str>, table: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| {
            let same = schema.is_none() || entry.schema.as_deref() == schema;
            same && entry.name.as_deref() == Some(table)
        })
    }

    /// How many columns a place sees.
    pub(super) fn width(&self) -> usize {
        let own = self
            .entries
            .iter()
            .map(|entry| 1 + entry.columns.list.len());
        own.sum::<usize>() + self.outer.map_or(0, Scope::width)
    }
}
