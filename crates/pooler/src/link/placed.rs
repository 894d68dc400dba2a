//! A statement that a server has under its client's name, for a Query or a group of messages that
//! names the statement in SQL.

use std::sync::Arc;

use crate::statement::Statement;

/// A statement without text, for a name that PostgreSQL only drops or refuses.
const EMPTY: &[u8] = b"\0\0\0";

/// A statement that the server has under its client's name.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// The name.
    pub(super) name: Box<[u8]>,
    /// `None`: PostgreSQL only drops or refuses the name.
    pub(super) statement: Option<Arc<Statement>>,
}

impl Placed {
    /// Text and types, as in a Parse message.
    pub(super) fn definition(&self) -> &[u8] {
        let statement = self.statement.as_ref();
        statement.map_or(EMPTY, |statement| &statement.definition)
    }

    /// True if the name has this statement.
    pub(super) fn same(&self, other: Option<&Arc<Statement>>) -> bool {
        match (&self.statement, other) {
            (Some(one), Some(other)) => one.same(other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}
