//! The statements of the load, and their expected results.
//!
//! All clients use the same few texts and the same few names. Every reply shows the constant in the
//! text and the types of its Parse, so a wrong statement is noticed.

use crate::expect::Want;
use crate::messages::{Arguments, Column, Row, column, oid};
use crate::random::Random;

/// Time zones, and the beginning of the year 2001 there, in seconds of the Unix epoch.
pub const ZONES: [(&str, i64); 4] = [
    ("UTC", 978_307_200),
    ("Europe/Berlin", 978_303_600),
    ("Asia/Tokyo", 978_274_800),
    ("America/New_York", 978_325_200),
];

/// The kind of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Returns its parameters and its constant.
    Echo,
    /// Returns its only parameter, whose type the Parse gives, and the name of the type.
    Typed(u32),
    /// Returns the sum of its constant and its parameter.
    Sum,
    /// Returns several rows.
    Series,
    /// Has no parameters.
    Plain,
    /// Has a constant that depends on the time zone of its Parse. `k` is an index into [`ZONES`].
    /// The text is the same in all zones.
    Midnight,
    /// Fails with a division by zero in the row that its parameter names (1 to 5).
    Fails,
    /// `begin`.
    Begin,
    /// `commit`.
    Commit,
    /// `rollback`.
    Rollback,
    /// Has a syntax error.
    Broken,
}

/// A statement: its shape, its constant, and whether its Parse gives all types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The shape.
    pub shape: Shape,
    /// The constant in its text.
    pub k: i32,
    /// Parse gives the parameters' types even if it need not.
    pub typed: bool,
}

/// A call of a statement: the content of its Bind and the expected rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The content of the Bind.
    pub arguments: Arguments,
    /// The expected rows, in the requested formats.
    pub rows: Vec<Row>,
    /// The error after the last row, if any.
    pub error: Option<Want>,
}

/// A value, not yet encoded.
#[derive(Clone, Debug)]
pub enum Value {
    /// `text`
    Text(String),
    /// `int4`
    Int4(i32),
    /// `int8`
    Int8(i64),
    /// NULL of any type
    Null,
}

impl Value {
    /// The value in `format` (0 text, 1 binary).
    pub fn encoded(&self, format: u16) -> Option<Vec<u8>> {
        match (self, format) {
            (Value::Null, _) => None,
            (Value::Text(text), _) => Some(text.clone().into_bytes()),
            (Value::Int4(value), 1) => Some(value.to_be_bytes().to_vec()),
            (Value::Int4(value), _) => Some(value.to_string().into_bytes()),
            (Value::Int8(value), 1) => Some(value.to_be_bytes().to_vec()),
            (Value::Int8(value), _) => Some(value.to_string().into_bytes()),
        }
    }
}

impl Statement {
    /// A random one of the few statements that all clients share.
    pub fn any(random: &mut Random) -> Statement {
        let k = random.between(1, 3) as i32;
        let typed = random.one_in(2);
        let shape = match random.below(7) {
            0 | 1 => Shape::Echo,
            2 | 3 => Shape::Typed(*random.pick(&[oid::TEXT, oid::INT4, oid::INT8])),
            4 => Shape::Sum,
            5 => Shape::Series,
            _ => Shape::Plain,
        };
        Statement { shape, k, typed }
    }

    /// A statement of `shape`.
    pub fn of(shape: Shape) -> Statement {
        Statement {
            shape,
            k: 7,
            typed: false,
        }
    }

    /// The text.
    pub fn text(&self) -> String {
        let k = self.k;
        match self.shape {
            Shape::Echo => format!("select $1::text as m, {k}::int4 as k, $2::int4 as n"),
            Shape::Typed(_) => {
                format!("select $1 as v, pg_typeof($1)::text as t, {k}::int4 as k")
            }
            Shape::Sum => format!("select ($1::int8 + {k})::int8 as s"),
            Shape::Series => {
                format!(
                    "select i::int4 as i, $1::text as m, {k}::int4 as k from generate_series(1, $2::int4) i"
                )
            }
            Shape::Plain => format!("select {k}::int4 as k, 'plain'::text as p"),
            Shape::Midnight => {
                "select extract(epoch from timestamptz '2001-01-01 00:00')::int8 as e".to_owned()
            }
            Shape::Fails => {
                "select i::int4 as i, (10 / (i - $1::int4))::int4 as q from generate_series(1, 5) i"
                    .to_owned()
            }
            Shape::Begin => "begin".to_owned(),
            Shape::Commit => "commit".to_owned(),
            Shape::Rollback => "rollback".to_owned(),
            Shape::Broken => format!("selekt {k}"),
        }
    }

    /// The types of the parameters, as in Describe.
    pub fn parameters(&self) -> Vec<u32> {
        match self.shape {
            Shape::Echo => vec![oid::TEXT, oid::INT4],
            Shape::Typed(of) => vec![of],
            Shape::Sum => vec![oid::INT8],
            Shape::Series => vec![oid::TEXT, oid::INT4],
            Shape::Fails => vec![oid::INT4],
            _ => vec![],
        }
    }

    /// The types in the Parse.
    pub fn given(&self) -> Vec<u32> {
        let must = matches!(self.shape, Shape::Typed(_));
        if must || self.typed {
            self.parameters()
        } else {
            vec![]
        }
    }

    /// The result columns; `None` if the statement returns no rows.
    pub fn columns(&self) -> Option<Vec<Column>> {
        let columns: &[(&str, u32)] = match self.shape {
            Shape::Echo => &[("m", oid::TEXT), ("k", oid::INT4), ("n", oid::INT4)],
            Shape::Typed(of) => &[("v", of), ("t", oid::TEXT), ("k", oid::INT4)],
            Shape::Sum => &[("s", oid::INT8)],
            Shape::Series => &[("i", oid::INT4), ("m", oid::TEXT), ("k", oid::INT4)],
            Shape::Plain => &[("k", oid::INT4), ("p", oid::TEXT)],
            Shape::Midnight => &[("e", oid::INT8)],
            Shape::Fails => &[("i", oid::INT4), ("q", oid::INT4)],
            _ => return None,
        };
        Some(columns.iter().map(|(name, of)| column(name, *of)).collect())
    }

    /// The command tag, without a row count.
    pub fn tag(&self) -> &'static str {
        match self.shape {
            Shape::Begin => "BEGIN",
            Shape::Commit => "COMMIT",
            Shape::Rollback => "ROLLBACK",
            _ => "SELECT",
        }
    }

    /// True if the statement may run in a failed transaction.
    pub fn ends_transaction(&self) -> bool {
        matches!(self.shape, Shape::Commit | Shape::Rollback)
    }

    /// A call with the text `marker` and random formats.
    pub fn call(&self, random: &mut Random, marker: &str, serial: i32) -> Call {
        let text = |text: &str| Value::Text(text.to_owned());
        let k = Value::Int4(self.k);
        let (parameters, rows): (Vec<Value>, Vec<Vec<Value>>) = match self.shape {
            Shape::Echo => {
                let n = if random.one_in(8) {
                    Value::Null
                } else {
                    Value::Int4(serial)
                };
                (
                    vec![text(marker), n.clone()],
                    vec![vec![text(marker), k, n]],
                )
            }
            Shape::Typed(of) => {
                let (value, name) = match of {
                    oid::TEXT => (text(marker), "text"),
                    oid::INT4 => (Value::Int4(serial), "integer"),
                    _ => (Value::Int8(i64::from(serial) << 20), "bigint"),
                };
                (vec![value.clone()], vec![vec![value, text(name), k]])
            }
            Shape::Sum => {
                let sum = Value::Int8(i64::from(serial) + i64::from(self.k));
                (vec![Value::Int8(i64::from(serial))], vec![vec![sum]])
            }
            Shape::Series => {
                let count = random.below(7) as i32;
                let row = |i| vec![Value::Int4(i), text(marker), k.clone()];
                (
                    vec![text(marker), Value::Int4(count)],
                    (1..=count).map(row).collect(),
                )
            }
            Shape::Plain => (vec![], vec![vec![k, text("plain")]]),
            Shape::Midnight => {
                let (_, epoch) = ZONES[self.k as usize];
                (vec![], vec![vec![Value::Int8(epoch)]])
            }
            Shape::Fails => {
                let at = random.between(1, 5) as i32;
                let row = |i| vec![Value::Int4(i), Value::Int4(10 / (i - at))];
                (vec![Value::Int4(at)], (1..at).map(row).collect())
            }
            _ => (vec![], vec![]),
        };
        let columns = self.columns().map_or(0, |columns| columns.len());
        let formats = formats(random, parameters.len());
        let results = formats_of(random, columns);
        let encode = |values: &[Value], formats: &[u16]| -> Row {
            let each = values.iter().enumerate();
            each.map(|(i, value)| value.encoded(crate::messages::format_of(formats, i)))
                .collect()
        };
        let values = encode(&parameters, &formats);
        let rows = rows.iter().map(|row| encode(row, &results)).collect();
        let error =
            (self.shape == Shape::Fails).then(|| crate::expect::error("22012", "division by zero"));
        Call {
            arguments: Arguments {
                formats,
                values,
                results,
            },
            rows,
            error,
        }
    }
}

/// Formats for `count` values: none, one for all, or one each.
fn formats(random: &mut Random, count: usize) -> Vec<u16> {
    match random.below(3) {
        0 => vec![],
        1 => vec![random.below(2) as u16],
        _ => (0..count).map(|_| random.below(2) as u16).collect(),
    }
}

/// As [`formats`], for result columns.
fn formats_of(random: &mut Random, count: usize) -> Vec<u16> {
    if count == 0 {
        vec![]
    } else {
        formats(random, count)
    }
}
