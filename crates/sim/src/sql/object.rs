//! Statements about objects that may outlive a transaction: advisory locks, temporary tables, cursors, values
//! of sequences. An object's name has the number of its client, such as `cart3_1`, so that no client mistakes
//! another client's object for its own.

use super::Token;

/// A statement about an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    /// Takes an advisory lock, for the session or for the transaction.
    Lock {
        /// The key: ten times the client's number, plus a number.
        key: u32,
        /// The lock ends with the transaction.
        passing: bool,
    },
    /// Releases one of the session's advisory locks, or all of them.
    Unlock(Option<u32>),
    /// Makes a temporary table.
    Create {
        /// The table's name.
        table: String,
        /// ON COMMIT DROP.
        passing: bool,
    },
    /// Drops a temporary table, or all of them (DISCARD TEMP).
    Drop(Option<String>),
    /// DECLARE ... WITH HOLD.
    Declare {
        /// The cursor's name.
        cursor: String,
        /// The number of rows.
        rows: u32,
    },
    /// FETCH of this many rows of a cursor.
    Fetch(String, u32),
    /// CLOSE of one cursor, or all.
    Close(Option<String>),
    /// `nextval`: its value is the statement's token.
    Next(Token),
    /// `currval` of a sequence, or `lastval`: the last value.
    Last(Option<String>),
    /// DISCARD SEQUENCES.
    ForgetNumbers,
}

impl Object {
    /// True if a pooler keeps the server because of the statement.
    pub fn keeps(&self) -> bool {
        match self {
            Object::Lock { passing, .. } | Object::Create { passing, .. } => !passing,
            Object::Declare { .. } => true,
            _ => false,
        }
    }

    /// True if the statement returns a row.
    pub fn has_rows(&self) -> bool {
        matches!(
            self,
            Object::Lock { .. } | Object::Unlock(_) | Object::Next(_) | Object::Last(_)
        )
    }

    /// Reads a statement: its first word, and the rest.
    pub fn read(first: &str, rest: &str) -> Option<Object> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        Some(match (first, &words[..]) {
            ("select", _) => return called(rest),
            ("create", ["temp", "table", table, end @ ..]) => Object::Create {
                table: (*table).into(),
                passing: end.ends_with(&["on", "commit", "drop"]),
            },
            ("drop", ["table", table]) => Object::Drop(Some((*table).into())),
            ("discard", ["temp"]) => Object::Drop(None),
            ("discard", ["sequences"]) => Object::ForgetNumbers,
            ("declare", [cursor, "cursor", "with", "hold", "for", "select", rows]) => {
                Object::Declare {
                    cursor: (*cursor).into(),
                    rows: rows.parse().ok()?,
                }
            }
            ("fetch", [count, "from", cursor]) => {
                Object::Fetch((*cursor).into(), count.parse().ok()?)
            }
            ("close", ["all"]) => Object::Close(None),
            ("close", [cursor]) => Object::Close(Some((*cursor).into())),
            _ => return None,
        })
    }
}

/// Reads a function call with one argument or none.
fn called(rest: &str) -> Option<Object> {
    let (call, remark) = rest.split_once(" /* ").unwrap_or((rest, ""));
    let (name, argument) = call.strip_suffix(')')?.split_once('(')?;
    Some(match name {
        "pg_advisory_lock" | "pg_try_advisory_lock" => Object::Lock {
            key: argument.parse().ok()?,
            passing: false,
        },
        "pg_advisory_xact_lock" => Object::Lock {
            key: argument.parse().ok()?,
            passing: true,
        },
        "pg_advisory_unlock" => Object::Unlock(Some(argument.parse().ok()?)),
        "pg_advisory_unlock_all" => Object::Unlock(None),
        "nextval" => Object::Next(Token::read(remark.strip_suffix(" */")?)?),
        "currval" => Object::Last(Some(argument.trim_matches('\'').into())),
        "lastval" => Object::Last(None),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_read() {
        let read = |text: &str| {
            let (first, rest) = text.split_once(' ').expect("two words");
            Object::read(first, rest)
        };
        let (key, table) = (31, String::from("cart3_1"));
        let lock = |passing| Some(Object::Lock { key, passing });
        let create = |passing| {
            let table = table.clone();
            Some(Object::Create { table, passing })
        };
        assert_eq!(read("select pg_advisory_lock(31)"), lock(false));
        assert_eq!(read("select pg_advisory_xact_lock(31)"), lock(true));
        assert_eq!(read("create temp table cart3_1 (x int)"), create(false));
        let text = "create temp table cart3_1 (x int) on commit drop";
        assert_eq!(read(text), create(true));
        assert_eq!(read("drop table cart3_1"), Some(Object::Drop(Some(table))));
        assert_eq!(read("close all"), Some(Object::Close(None)));
        assert_eq!(
            read("declare hand3_0 cursor with hold for select 4"),
            Some(Object::Declare {
                cursor: "hand3_0".into(),
                rows: 4,
            })
        );
        let token = Token {
            client: 3,
            number: 14,
        };
        let text = "select nextval('num3') /* c3.14 */";
        assert_eq!(read(text), Some(Object::Next(token)));
        assert_eq!(read("select lastval()"), Some(Object::Last(None)));
        assert_eq!(read("drop table t0 1 'c3.14'"), None);
    }
}
