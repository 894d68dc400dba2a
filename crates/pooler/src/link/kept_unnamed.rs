//! Unnamed statements that servers keep (`unnamed_statements = share`). If the text of an unnamed
//! statement with parameters comes again, its server gets the statement under a name of Howdah's,
//! and the next Parse of that text needs no PostgreSQL:
//!
//! ```text
//! client                   server, the first time       again                    from then on
//! Parse("", "... $1")      Parse("", "... $1")          Parse(#1, "... $1")
//! Bind("")                 Bind("")                     Bind(#1)                 Bind(#1)
//! ```

use std::sync::Arc;

use super::prepare::{Referent, ServerName};
use super::upstream::Upstream;
use crate::ledger::{Entry, Reply};
use crate::limits;
use crate::statement::{Held, Statement};

impl Upstream<'_> {
    /// True if the server keeps the unnamed statement that the client parses, or is to keep it from
    /// now on.
    #[inline(never)] // Users of `pass` should not pay for this.
    pub(super) fn shares(&mut self, statement: &Arc<Statement>) -> bool {
        // A standby may be behind: what it parses may soon be out of date.
        let is_behind = self.server.instance.is_some();
        if statement.private || is_behind || statement.definition.len() > limits::KEPT_UNNAMED {
            return false;
        }
        // The other half of the places is for statements that clients name.
        let max = self.globals.max_prepared_statements as usize;
        let has_room = 2 * self.server.statements.len() < max;
        let ledger = &self.server.link.ledger;
        match self.server.statements.find(statement).1 {
            Some(Held::Sure) => ledger.sure_of_transaction(self.server.not_failed()),
            Some(_) => false,
            None => {
                has_room
                    && statement.first.planned
                    && statement.only_moves_transaction()
                    && statement.has_parameters()
                    && self.interner.comes_again(statement)
            }
        }
    }

    /// Handles the Parse of an unnamed statement that the server keeps.
    pub(super) fn define_shared(&mut self, statement: &Arc<Statement>) {
        let (key, held) = self.server.statements.find(statement);
        let mut entry = Entry::forward(Reply::Parse);
        entry.changes_name(self.define_unnamed(statement));
        self.server.statements.forget_unnamed(statement);
        if held.is_some() {
            entry.reply = Reply::MadeParse;
            self.push(entry);
            self.make();
        } else {
            entry.drops_unnamed();
            let definition = statement.definition.clone();
            self.add(key, statement, &definition, entry);
        }
    }

    /// The client's unnamed statement, if the server keeps it under a name of Howdah's.
    #[inline(never)] // Users of `pass` should not pay for this.
    pub(super) fn kept_unnamed(&mut self, ours: &Arc<Statement>) -> Option<Referent> {
        let group = self.server.link.ledger.group();
        let (key, held) = self.server.statements.find(ours);
        let is_there = match held? {
            Held::Sure => true,
            Held::Coming(when) => when == group,
            Held::Going(_) => false,
        };
        is_there.then(|| Referent {
            name: Some(ServerName::Kept),
            statement: Some(ours.clone()),
            key,
            ..Referent::default()
        })
    }
}
