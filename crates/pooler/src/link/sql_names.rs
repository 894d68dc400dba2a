//! SQL's PREPARE, EXECUTE and DEALLOCATE. PostgreSQL has one set of names for SQL and for the
//! extended protocol, and so has Howdah: `PREPARE p AS ...` in a Query is remembered like a Parse.
//!
//! On servers, a client's statement has a name of Howdah's. So for each Query that names statements,
//! Howdah gives them their client's names on the server, and takes the names away behind the Query:
//!
//! ```text
//! Parse "p"; Sync;  Query "EXECUTE p(1)";  Close "p"; Sync
//! ```
//!
//! PostgreSQL itself answers the Query, whatever it does. Its answers to PREPARE and DEALLOCATE say
//! which names the client has from then on. If PostgreSQL refuses the Parse, the client gets that
//! error in place of the one that its Query gets for the missing name.

use std::collections::VecDeque;
use std::sync::Arc;

use howdah_wire::frontend::Parse;
use howdah_wire::tag::frontend;
use howdah_wire::write;

use super::placed::Placed;
use super::upstream::{Flow, Step, Upstream};
use crate::effect::{Effects, Kinds, StatementCommand};
use crate::ledger::{Change, Entry, NameOp, Part, Reply};
use crate::limits;
use crate::session::Tracking;
use crate::statement::Statement;

/// The statements that a Query names.
#[derive(Default)]
pub(super) struct SqlNames {
    /// The statements that the server needs before the Query.
    before: Vec<Placed>,
    /// Names that the Query itself makes on the server.
    made: Vec<Box<[u8]>>,
    /// The changes of the client's names, one for each PREPARE and DEALLOCATE of the text.
    changes: VecDeque<NameOp>,
}

impl Upstream<'_> {
    /// Finds the statements that a Query names, and completes the effects of its text: an EXECUTE
    /// has the effects of its statement.
    pub(super) fn sql_names(&mut self, found: &mut Effects) -> Result<Option<SqlNames>, Flow> {
        if found.statements.is_empty() {
            return Ok(None);
        }
        if self.renames {
            // Answers that are owed decide which names there are, and whether the transaction has
            // failed.
            self.await_settings()?;
            self.await_end_of_failure()?;
            for command in &found.statements {
                self.wait_for(command.name())?;
            }
            self.settle_meaning()?;
        }
        // A COPY would take the messages behind the Query for its own. And behind messages of an
        // open group, PostgreSQL may skip the Query, but not what Howdah sends behind it.
        let server = &mut *self.server;
        let alone = server.not_failed() && !server.link.is_group_at_work();
        if !self.renames || !alone || found.kinds.any(Kinds::COPIES) {
            // The server has only statements whose PREPARE is not followed.
            if found.executes_by_name() {
                found.doubt();
            }
            return Ok(None);
        }
        let commands = std::mem::take(&mut found.statements);
        let mut names = SqlNames::default();
        let mut followed = true;
        for command in commands {
            followed &= self.sql_name(command, &mut names, found)?;
        }
        if followed {
            found.kinds = found.kinds.without(Kinds::PREPARES);
        }
        Ok(Some(names))
    }

    /// Waits if the transaction has failed, and a group under way may end it: the name's statement must be
    /// there for what runs behind the end.
    fn await_end_of_failure(&mut self) -> Step {
        if !self.server.not_failed() && self.server.link.owes_ready() {
            return Err(self.stall());
        }
        Ok(())
    }

    /// Handles one command. False if it is a PREPARE that Howdah does not follow: its statement
    /// keeps the server for the client.
    fn sql_name(
        &mut self,
        command: StatementCommand,
        names: &mut SqlNames,
        found: &mut Effects,
    ) -> Result<bool, Flow> {
        match command {
            StatementCommand::Execute(name) => {
                if let Some(statement) = names.defines(&name) {
                    add(found, &statement);
                } else if let Some(statement) = self.statement_for_sql(&name)
                    && names.have_room_for(&statement)
                {
                    add(found, &statement);
                    names.need(name, Some(statement));
                } else {
                    found.doubt();
                }
                Ok(true)
            }
            StatementCommand::Deallocate(name) => {
                let own = !name.is_empty() && self.lookup(&name).is_some();
                if own {
                    names.need(name.clone(), None);
                }
                let change = if own || names.defines(&name).is_some() {
                    Change::Forget
                } else {
                    Change::Nothing
                };
                names.changes.push_back(*self.name_op(name, change));
                Ok(true)
            }
            StatementCommand::Prepare { name, definition } => {
                if !name.is_empty() && self.lookup(&name).is_some() {
                    // PostgreSQL refuses the PREPARE, unless a DEALLOCATE stands before it.
                    names.need(name.clone(), None);
                }
                let moves = self.tracking() != Tracking::Nothing && !self.keeps_sql_prepared();
                let mut definition = definition.filter(|_| moves);
                if let Some(text) = &definition {
                    let parse = Parse {
                        name: &name,
                        definition: text,
                    };
                    if self.lacks_room(&parse)?.is_some() {
                        definition = None;
                    }
                }
                let Some(definition) = definition else {
                    names
                        .changes
                        .push_back(*self.name_op(name, Change::Nothing));
                    return Ok(false);
                };
                let statement = self.parsed_now(&definition);
                statement.charge_to(self.share);
                if let Some(effects) = statement.effects.as_deref() {
                    self.client.statements.note_effects(effects);
                }
                names.changes.push_back(*self.definition(&name, &statement));
                names.made.push(name);
                Ok(true)
            }
        }
    }

    /// True if the client has statements on its server under their own names.
    fn keeps_sql_prepared(&self) -> bool {
        let session = self.client.session.as_ref();
        session.is_some_and(|session| {
            let kinds = session.pinned.and(session.pending.kinds);
            kinds.any(Kinds::PREPARES)
        })
    }

    /// The client's statement with this name, if the server can parse it now.
    fn statement_for_sql(&mut self, name: &[u8]) -> Option<Arc<Statement>> {
        let statement = self.lookup(name)?;
        self.may_be_parsed_late(&statement).then_some(statement)
    }

    /// Gives the statements that a Query names their client's names on the server.
    #[cold]
    pub(super) fn place_names(&mut self, names: &SqlNames) {
        self.server.link.refuses_no_name();
        for placed in &names.before {
            // An error of this Parse is kept for the Query.
            let mut parse = Entry::swallow(Reply::Parse);
            parse.effects_mut().part = Part::Rest;
            self.place_name(&placed.name, placed.definition(), parse);
            self.sync();
        }
    }

    fn place_name(&mut self, name: &[u8], definition: &[u8], parse: Entry) {
        let to = self.to();
        self.out
            .send_with(to, |buf| write::parse(buf, name, definition));
        self.push(parse);
    }

    /// Removes the client's names from the server, after the Query.
    #[cold]
    pub(super) fn remove_names(&mut self, names: &SqlNames) {
        let before = names.before.iter().map(|placed| &placed.name);
        for name in before.chain(&names.made) {
            self.remove_name(name);
        }
        if !names.before.is_empty() || !names.made.is_empty() {
            self.sync();
        }
    }

    fn sync(&mut self) {
        let to = self.to();
        self.out
            .send_with(to, |buf| write::empty(buf, frontend::SYNC));
        self.push(Entry::swallow(Reply::Sync));
    }

    fn remove_name(&mut self, name: &[u8]) {
        let to = self.to();
        self.out
            .send_with(to, |buf| write::of_statement(buf, frontend::CLOSE, name));
        self.push(Entry::swallow(Reply::Close));
    }

    /// A Parse or Bind of `EXECUTE p`: the server gets the statement for the rest of the group.
    /// Completes the effects, as [`Self::sql_names`] does. An error of the Parse that Howdah sends
    /// goes to the client: PostgreSQL then skips the client's messages up to the Sync.
    pub(super) fn names_in_group(&mut self, found: &mut Effects) -> Step {
        for command in std::mem::take(&mut found.statements) {
            if command.name().is_empty() || matches!(command, StatementCommand::Deallocate(_)) {
                // A portal of DEALLOCATE runs another statement.
                continue;
            }
            if self.renames {
                self.await_end_of_failure()?;
                self.wait_for(command.name())?;
                self.settle_meaning()?;
            }
            let own = if self.renames && self.server.not_failed() {
                self.statement_for_sql(command.name())
            } else {
                None
            };
            match command {
                StatementCommand::Execute(name) => {
                    match &own {
                        Some(statement) => add(found, statement),
                        None => found.doubt(),
                    }
                    self.place_in_group(Placed {
                        name,
                        statement: own,
                    });
                }
                // PostgreSQL refuses a PREPARE of a name that exists.
                StatementCommand::Prepare { name, .. } if own.is_some() => {
                    self.place_in_group(Placed {
                        name,
                        statement: own,
                    });
                }
                StatementCommand::Prepare { .. } | StatementCommand::Deallocate(_) => {}
            }
        }
        Ok(())
    }

    /// Gives a name its present statement, or none, for the rest of the group.
    fn place_in_group(&mut self, placed: Placed) {
        let there = self.server.link.placed(&placed.name);
        match (there, &placed.statement) {
            // Whatever the server has by this name, the client itself has made.
            (None, None) => return,
            (Some(there), statement) if there.same(statement.as_ref()) => return,
            (Some(_), _) => self.remove_name(&placed.name),
            (None, Some(_)) => {}
        }
        if let Some(statement) = &placed.statement {
            let parse = Entry::swallow(Reply::Parse);
            self.place_name(&placed.name, &statement.definition, parse);
        }
        self.server.link.places(placed);
    }

    /// A Sync has ended the group: removes the names that it had on the server. (PostgreSQL would
    /// skip a Close before the Sync if the group has failed.)
    #[cold]
    pub(super) fn remove_placed(&mut self) {
        for placed in self.server.link.take_placed() {
            self.remove_name(&placed.name);
        }
        self.sync();
    }
}

impl SqlNames {
    /// The statement that an earlier PREPARE of the text gives the name.
    fn defines(&self, name: &[u8]) -> Option<Arc<Statement>> {
        let last = self.changes.iter().rev().find(|op| &*op.name == name)?;
        match &last.change {
            Change::Define(named) => Some(named.statement.clone()),
            _ => None,
        }
    }

    /// Whether a Query may bring one more statement along: it is sent with each Query.
    fn have_room_for(&self, statement: &Statement) -> bool {
        let sizes = self.before.iter().map(|placed| placed.definition().len());
        sizes.sum::<usize>() + statement.definition.len() <= limits::QUERY_READ
    }

    /// The server needs the name before the Query, unless the Query makes the name first.
    fn need(&mut self, name: Box<[u8]>, statement: Option<Arc<Statement>>) {
        let known = self.before.iter_mut().find(|placed| placed.name == name);
        match known {
            // An EXECUTE needs the text.
            Some(known) => known.statement = known.statement.take().or(statement),
            None if self.changes.iter().any(|op| op.name == name) => {}
            None => self.before.push(Placed { name, statement }),
        }
    }

    /// Takes out the changes of names, for the entry of the Query.
    pub(super) fn take_changes(&mut self) -> VecDeque<NameOp> {
        std::mem::take(&mut self.changes)
    }
}

/// Adds the effects of a statement that a text executes.
fn add(found: &mut Effects, statement: &Statement) {
    if let Some(executed) = statement.effects.as_deref() {
        found.executes(executed);
    }
}
