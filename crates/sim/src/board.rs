//! What was notified in a database, in the order of commits.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::sql::Token;

/// Shared by the sessions and clients of a database.
pub type Shared = Rc<RefCell<Board>>;

/// One notification that was committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// Of the session that has notified.
    pub pid: u32,
    /// Its channel.
    pub channel: String,
    /// Whose it is. The payload is this token's text.
    pub token: Token,
    /// Its text shows that it notifies.
    pub shown: bool,
}

/// See the module. Positions count notifications.
#[derive(Default)]
pub struct Board {
    /// All that was ever notified.
    pub notes: Vec<Note>,
    /// Where the board stood right before and right behind the end of a statement's transaction.
    ended: BTreeMap<Token, (usize, usize)>,
}

impl Board {
    /// Where the next notification will be.
    pub fn position(&self) -> usize {
        self.notes.len()
    }

    /// The transaction of a statement has ended, between these positions.
    pub fn transaction_ends(&mut self, token: Token, before: usize, behind: usize) {
        self.ended.insert(token, (before, behind));
    }

    /// Between which positions the transaction of a statement has ended, if it ran.
    pub fn end_of(&self, token: Token) -> Option<(usize, usize)> {
        self.ended.get(&token).copied()
    }

    /// Where a statement's notification is, if it was committed.
    pub fn find(&self, token: Token) -> Option<usize> {
        self.notes.iter().position(|note| note.token == token)
    }
}
