//! The texts that Howdah knows on a link, if queries are watched (`link/watch.rs`).

use crate::limits;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::queries::text::QueryText;
use crate::statement::Statement;

/// The texts that Howdah knows on a link.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The text of the query that ended last.
    pub(super) last: Option<Arc<QueryText>>,
    /// The portal bound last.
    pub(super) bound: Option<WatchedPortal>,
    /// The text of the unnamed statement, if statements are not shared.
    pub(super) unnamed: Option<Text>,
    /// The texts of named statements, if statements are not shared.
    pub(super) named: HashMap<Box<[u8]>, Text, foldhash::quality::FixedState>,
}

/// A text: without its constants, and as sent.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) query: Arc<QueryText>,
    pub(super) sql: Sql,
}

/// A text as it was sent.
#[derive(Clone, Debug)]
pub(super) enum Sql {
    Of(Arc<Statement>),
    /// The beginning of the text, kept only if traces or values are wanted.
    Front(Arc<[u8]>),
    Unknown,
}

impl Sql {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Sql::Of(statement) => statement.front(limits::QUERY_TEXT_READ),
            Sql::Front(front) => front,
            Sql::Unknown => b"",
        }
    }
}

/// A portal.
#[derive(Debug)]
pub(super) struct WatchedPortal {
    pub(super) portal: Box<[u8]>,
    pub(super) text: Text,
    pub(super) values: Option<Box<str>>,
}

impl Watch {
    /// A query has ended.
    pub(super) fn query_ended(&mut self, text: &Arc<QueryText>) {
        self.last = Some(text.clone());
    }

    /// The client has left.
    pub(super) fn clear(&mut self) {
        self.last = None;
        self.bound = None;
        self.unnamed = None;
        self.named.clear();
    }
}
