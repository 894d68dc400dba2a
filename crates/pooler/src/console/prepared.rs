//! Statements and portals that an administrator's driver has made by the extended protocol.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use howdah_wire::frontend::format_of;
use howdah_wire::tag::{backend, frontend as tag};
use howdah_wire::write;

use crate::console::columns::ShowColumn;
use crate::console::rows::{Row, ShowTable};

/// The statements and portals of one administrator.
#[derive(Debug, Default)]
pub struct Extended {
    pub(super) statements: HashMap<Box<[u8]>, Arc<Prepared>>,
    pub(super) portals: HashMap<Box<[u8]>, ConsolePortal>,
    /// A message has failed: all messages up to the next Sync are skipped.
    failed: bool,
    /// The portal that is being executed, and the most rows that it may return.
    pub(super) running: Option<(Box<[u8]>, usize)>,
}

/// A prepared statement.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) text: String,
    /// The types of the parameters.
    pub(super) types: Vec<u32>,
    pub(super) columns: Vec<ShowColumn>,
}

/// A statement with its values.
#[derive(Debug)]
pub(super) struct ConsolePortal {
    pub(super) text: String,
    pub(super) columns: Vec<ShowColumn>,
    pub(super) wanted: Vec<u16>,
    /// The rest of the rows, after the statement has run.
    pub(super) left: Option<VecDeque<Row>>,
}

/// SQLSTATE and text of an error.
pub(super) type ConsoleError = (&'static str, String);

impl Extended {
    /// True for a message that is skipped because an earlier one failed.
    pub(super) fn skips(&mut self, message: u8) -> bool {
        self.running = None;
        if matches!(message, tag::SYNC | tag::TERMINATE) {
            self.failed = false;
        }
        self.failed
    }

    /// An error was sent.
    pub(super) fn fail(&mut self, in_query: bool) {
        self.running = None;
        self.failed = !in_query;
    }

    /// A Query ends the unnamed statement and portal.
    pub(super) fn end_unnamed(&mut self) {
        self.statements.remove(&b""[..]);
        self.portals.remove(&b""[..]);
    }

    /// A transaction block is over: its portals are closed.
    pub(super) fn end_block(&mut self) {
        self.portals.clear();
    }

    /// Forgets all prepared statements.
    pub(super) fn forget(&mut self) {
        self.statements.clear();
    }

    /// Writes rows as requested: the whole result, or a part through the current portal.
    pub(super) fn write(&mut self, table: ShowTable<'_>, buf: &mut Vec<u8>) {
        let portals = &mut self.portals;
        let portal = self.running.take();
        let portal = portal.and_then(|(name, most)| Some((portals.get_mut(&name)?, most)));
        match portal {
            None => table.write(buf),
            Some((portal, most)) => {
                portal.left = Some(table.parts().1.into());
                portal.write(most, buf);
            }
        }
    }
}

impl ConsolePortal {
    /// Writes this many of the remaining rows; 0 for all.
    pub(super) fn write(&mut self, most: usize, buf: &mut Vec<u8>) {
        let left = self.left.get_or_insert_default();
        let most = if most == 0 { usize::MAX } else { most };
        for row in left.drain(..most.min(left.len())) {
            let columns = self.columns.iter().zip(row).enumerate();
            let values: Vec<_> = columns
                .map(|(position, ((_, kind), value))| {
                    let value = value?;
                    if format_of(&self.wanted, position) == 0 {
                        Some(value.into_bytes())
                    } else {
                        Some(binary(*kind, value))
                    }
                })
                .collect();
            write::data_row(buf, values.iter().map(Option::as_deref));
        }
        if left.is_empty() {
            write::command_complete(buf, "SHOW");
        } else {
            write::empty(buf, backend::PORTAL_SUSPENDED);
        }
    }
}

impl Extended {
    pub(super) fn prepared(&self, name: &[u8]) -> Result<Arc<Prepared>, ConsoleError> {
        let found = self.statements.get(name).cloned();
        found.ok_or_else(|| no_statement(name))
    }

    pub(super) fn portal(&mut self, name: &[u8]) -> Result<&mut ConsolePortal, ConsoleError> {
        self.portals.get_mut(name).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            ("34000", format!("portal \"{name}\" does not exist"))
        })
    }
}

pub(super) fn no_statement(name: &[u8]) -> ConsoleError {
    let name = String::from_utf8_lossy(name);
    let why = if name.is_empty() {
        "unnamed prepared statement does not exist".into()
    } else {
        format!("prepared statement \"{name}\" does not exist")
    };
    ("26000", why)
}

/// The parameter types in a Parse, which follow its text.
pub(super) fn types(definition: &[u8]) -> Vec<u32> {
    let end = definition.iter().position(|b| *b == 0).unwrap_or(0);
    let types = definition.get(end + 3..).unwrap_or_default();
    let (types, _) = types.as_chunks::<4>();
    types.iter().map(|oid| u32::from_be_bytes(*oid)).collect()
}

/// A value in binary format.
pub(super) fn binary(kind: char, text: String) -> Vec<u8> {
    match kind {
        'i' => text.parse::<i32>().unwrap_or(0).to_be_bytes().to_vec(),
        'q' => text.parse::<i64>().unwrap_or(0).to_be_bytes().to_vec(),
        'b' => vec![u8::from(text == "t")],
        'n' => numeric(text.parse().unwrap_or(0)),
        _ => text.into_bytes(),
    }
}

/// A whole number as `numeric` in binary format, in digits of base 10,000.
fn numeric(mut number: u64) -> Vec<u8> {
    let mut digits = Vec::new();
    while number > 0 {
        digits.push((number % 10_000) as u16);
        number /= 10_000;
    }
    let weight = digits.len().saturating_sub(1) as u16;
    while digits.first() == Some(&0) {
        digits.remove(0);
    }
    let mut bytes = Vec::new();
    // Positive, without decimals.
    for word in [digits.len() as u16, weight, 0, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    for digit in digits.iter().rev() {
        bytes.extend_from_slice(&digit.to_be_bytes());
    }
    bytes
}

/// A parameter's value as text: text itself, or a whole number in binary format.
pub(super) fn word(oid: u32, format: u16, value: &[u8]) -> Option<String> {
    let number = match (oid, format, value) {
        (21, 1, [a, b]) => i64::from(i16::from_be_bytes([*a, *b])),
        (23, 1, [a, b, c, d]) => i64::from(i32::from_be_bytes([*a, *b, *c, *d])),
        (20, 1, value) => i64::from_be_bytes(value.try_into().ok()?),
        (21 | 23, 1, _) => return None,
        _ => return String::from_utf8(value.to_vec()).ok(),
    };
    Some(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_binary_format() {
        assert_eq!(binary('i', "258".into()), [0, 0, 1, 2]);
        assert_eq!(binary('q', "-1".into()), [0xff; 8]);
        assert_eq!(binary('b', "f".into()), [0]);
        assert_eq!(binary('s', "x".into()), b"x");
        assert_eq!(binary('n', "0".into()), [0; 8]);
        assert_eq!(binary('n', "7".into()), [0, 1, 0, 0, 0, 0, 0, 0, 0, 7]);
        // 1 2345 0000: the last digit is omitted.
        assert_eq!(
            binary('n', "123450000".into()),
            [0, 2, 0, 2, 0, 0, 0, 0, 0, 1, 0x09, 0x29]
        );
    }
}
