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
//! which names the client has from then on.

use std::collections::VecDeque;
use std::sync::Arc;

use howdah_wire::frontend::Parse;
use howdah_wire::tag::frontend;
use howdah_wire::write;

use super::upstream::{Flow, Step, Upstream};
use crate::effect::{Effects, Kinds, StatementCommand};
use crate::ledger::{Change, Entry, NameOp, Part, Reply};
use crate::session::Tracking;
use crate::statement::Statement;

/// A statement without text, for a name that PostgreSQL only drops or refuses.
const EMPTY: &[u8] = b"\0\0\0";

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

/// A statement that the server has under its client's name.
struct Placed {
    name: Box<[u8]>,
    /// Text and types, as in a Parse message.
    definition: Box<[u8]>,
}

impl Upstream<'_> {
    /// Finds the statements that a Query names, and completes the effects of its text: an EXECUTE
    /// has the effects of its statement.
    pub(super) fn sql_names(
        &mut self,
        text: &[u8],
        found: &mut Effects,
    ) -> Result<Option<SqlNames>, Flow> {
        if found.statements.is_empty() {
            return Ok(None);
        }
        let commands = std::mem::take(&mut found.statements);
        if !self.may_place_names(text) {
            // The server has only statements whose PREPARE is not followed.
            if commands.iter().any(executes) {
                found.doubt();
            }
            return Ok(None);
        }
        self.await_settings()?;
        for command in &commands {
            self.wait_for(command.name())?;
        }
        self.settle_meaning()?;
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

    /// True if Howdah may send messages about names before and behind a Query.
    fn may_place_names(&mut self, text: &[u8]) -> bool {
        // A COPY would take the messages behind the Query for its own.
        let copies = text
            .windows(4)
            .any(|word| word.eq_ignore_ascii_case(b"copy"));
        self.renames && !copies && self.linked().not_failed()
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
                } else if let Some(statement) = self.statement_for_sql(&name) {
                    add(found, &statement);
                    names.needs(name, &statement.definition);
                } else {
                    found.doubt();
                }
                Ok(true)
            }
            StatementCommand::Deallocate(name) => {
                let own = self.lookup(&name).is_some();
                if own {
                    names.needs(name.clone(), EMPTY);
                }
                let change = match own || names.defines(&name).is_some() {
                    true => Change::Forget,
                    false => Change::Nothing,
                };
                names.changes.push_back(*self.name_op(name, change));
                Ok(true)
            }
            StatementCommand::Prepare { name, definition } => {
                if self.lookup(&name).is_some() {
                    // PostgreSQL refuses the PREPARE, unless a DEALLOCATE stands before it.
                    names.needs(name.clone(), EMPTY);
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
                    self.client.names_statement_with(effects);
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
        // Without a Sync behind the client's own messages, the Query belongs to their group.
        let alone = !self.linked().link.group_open();
        for placed in &names.before {
            self.place_name(&placed.name, &placed.definition);
            if alone {
                self.sync();
            }
        }
    }

    /// If PostgreSQL refuses this Parse, it refuses the client's message for the same reason.
    fn place_name(&mut self, name: &[u8], definition: &[u8]) {
        let to = self.to();
        self.out
            .send_with(to, |buf| write::parse(buf, name, definition));
        let mut parse = Entry::swallow(Reply::Parse);
        parse.effects_mut().part = Part::Rest;
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

    /// A Bind runs `EXECUTE p`: the server gets the statement for the rest of the group. Completes
    /// the effects, as [`Self::sql_names`] does.
    pub(super) fn names_in_group(&mut self, found: &mut Effects) -> Step {
        for command in std::mem::take(&mut found.statements) {
            if self.renames {
                self.wait_for(command.name())?;
                self.settle_meaning()?;
            }
            let own = self.renames && self.lookup(command.name()).is_some();
            match command {
                StatementCommand::Execute(name) => {
                    let statement = self.statement_for_sql(&name).filter(|_| own);
                    let Some(statement) = statement else {
                        found.doubt();
                        continue;
                    };
                    add(found, &statement);
                    self.place_in_group(name, &statement.definition);
                }
                // PostgreSQL refuses a PREPARE of a name that exists.
                StatementCommand::Prepare { name, .. } if own => self.place_in_group(name, EMPTY),
                // A portal of DEALLOCATE runs another statement.
                StatementCommand::Prepare { .. } | StatementCommand::Deallocate(_) => {}
            }
        }
        Ok(())
    }

    fn place_in_group(&mut self, name: Box<[u8]>, definition: &[u8]) {
        if self.linked().link.places(&name) {
            self.place_name(&name, definition);
        }
    }

    /// A Sync has ended the group: removes the names that it had on the server. (PostgreSQL would
    /// skip a Close before the Sync if the group has failed.)
    #[cold]
    pub(super) fn remove_placed(&mut self) {
        for name in self.linked().link.take_placed() {
            self.remove_name(&name);
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

    /// The server needs the name before the Query, unless the Query makes the name first.
    fn needs(&mut self, name: Box<[u8]>, definition: &[u8]) {
        let known = self.before.iter_mut().find(|placed| placed.name == name);
        match known {
            // An EXECUTE needs the text.
            Some(known) if definition != EMPTY => known.definition = definition.into(),
            Some(_) => {}
            None if self.changes.iter().any(|op| op.name == name) => {}
            None => self.before.push(Placed {
                name,
                definition: definition.into(),
            }),
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

fn executes(command: &StatementCommand) -> bool {
    matches!(command, StatementCommand::Execute(_))
}
