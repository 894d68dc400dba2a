//! The notifications of a database, in the order of commits.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::sql::Token;

/// Shared by the sessions and clients of one database.
pub type Shared = Rc<RefCell<Board>>;

/// A committed notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The process id of the session that ran NOTIFY.
    pub pid: u32,
    /// Its channel.
    pub channel: String,
    /// The statement that notified. The payload is this token's text.
    pub token: Token,
    /// The statement's text shows that it notifies.
    pub shown: bool,
}

/// All notifications of a database. Positions count notifications.
#[derive(Default)]
pub struct Board {
    /// All notifications.
    pub notes: Vec<Note>,
    /// The board's positions right before and right after the end of a statement's transaction.
    ended: BTreeMap<Token, (usize, usize)>,
}

impl Board {
    /// The position of the next notification.
    pub fn position(&self) -> usize {
        self.notes.len()
    }

    /// The transaction of a statement has ended between these positions.
    pub fn transaction_ends(&mut self, token: Token, before: usize, behind: usize) {
        self.ended.insert(token, (before, behind));
    }

    /// The positions between which the transaction of a statement has ended, if the statement ran.
    pub fn end_of(&self, token: Token) -> Option<(usize, usize)> {
        self.ended.get(&token).copied()
    }

    /// The position of a statement's notification, if it was committed.
    pub fn find(&self, token: Token) -> Option<usize> {
        self.notes.iter().position(|note| note.token == token)
    }
}
