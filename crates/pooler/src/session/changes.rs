//! How an open transaction has changed the meaning of texts that PostgreSQL parses inside
//! (`link/meaning.rs` says why this matters).

use std::collections::BTreeMap;

use howdah_wire::backend::Status;

use crate::effect::Names;
use crate::effect::first::{Alters, First};
use crate::limits;
use crate::params::Meaning;
use crate::statement::Statement;

/// How an open transaction has changed the meaning of texts, and the statements parsed in it.
#[derive(Debug, Default)]
pub struct Changes {
    /// Statements parsed now belong to this transaction only.
    private: bool,
    /// PostgreSQL searches other schemas for names than outside of the transaction. Statements
    /// parsed now are shared by all clients with the same search.
    names: Names,
    /// The transaction has changed the schema.
    schema: bool,
    /// The last command that ended the transaction, or a part of it, was a ROLLBACK.
    undone: bool,
    /// PostgreSQL has reported changed settings in the transaction.
    settings: bool,
    /// An Execute may have changed settings. PostgreSQL reports the change only at the end of the
    /// group.
    unsettled: bool,
    /// Temporary objects of the client. The flag is true for an object that PostgreSQL drops at the
    /// end of the transaction.
    temporary: BTreeMap<Box<[u8]>, bool>,
    /// Statements that were parsed in the transaction.
    parsed: Vec<Parsed>,
    /// The unnamed statement was parsed in the transaction.
    unnamed: bool,
    /// The transaction is over: Howdah must close the statements parsed in it.
    over: bool,
    /// A part of the transaction was undone: Howdah must close older statements that this server
    /// parsed in the transaction.
    partly_over: bool,
    /// More statements were parsed than Howdah keeps for a client that keeps its server.
    crowded: bool,
}

/// A statement that has another meaning outside of the transaction.
#[derive(Clone, Copy, Debug)]
struct Parsed {
    key: u128,
    /// The client named the statement before the transaction; this server parsed it inside.
    late: bool,
    /// The statement lasts as long as its client keeps the server. On this server, the text may
    /// name a temporary table of the client; elsewhere, a permanent table.
    lasts: bool,
}

/// Questions.
impl Changes {
    /// True if statements must be closed before another client gets the server.
    pub(crate) fn has_left_statements(&self) -> bool {
        !self.parsed.is_empty() || self.unnamed
    }

    /// True if statements must be closed before the client's next message.
    pub(crate) fn has_statements_to_close(&self) -> bool {
        self.over || self.partly_over || self.crowded
    }

    /// True if statements parsed now belong to this transaction only.
    pub(crate) fn are_private(&self) -> bool {
        self.private
    }

    /// True if PostgreSQL looks names up elsewhere than outside of the transaction.
    pub(crate) fn looks_elsewhere(&self) -> bool {
        self.names != Names::Same
    }

    /// True if PostgreSQL has reported all changed settings.
    pub(crate) fn are_settled(&self) -> bool {
        !self.unsettled
    }

    /// True if the end of the transaction, or of a part, changes the meaning of texts.
    pub(crate) fn end_matters(&self) -> bool {
        self.private || self.settings || self.unsettled || self.names != Names::Same
    }

    /// The effect of the end of the transaction, or of a part, on later texts.
    pub(crate) fn alters_at_end(&self) -> Alters {
        if self.settings || self.unsettled {
            Alters::Settings
        } else if self.end_matters() {
            Alters::Ends
        } else {
            Alters::Nothing
        }
    }

    /// The meaning of texts in the transaction, if their meaning outside is `outside`.
    pub(crate) fn meaning(&self, outside: Meaning) -> Meaning {
        match self.names {
            Names::By(hash) => outside.looking(hash),
            Names::Same | Names::Anywhere => outside,
        }
    }
}

/// What clients send.
impl Changes {
    /// From now on, texts may have another meaning inside this transaction than outside.
    pub(crate) fn doubt_meaning(&mut self) {
        self.private = true;
    }

    /// A statement is about to be parsed with this key. `temporary`: its client may have temporary
    /// tables.
    pub(crate) fn add_parsed(&mut self, key: u128, statement: &Statement, temporary: bool) {
        if self.private || statement.private || temporary {
            self.parsed.push(Parsed {
                key,
                late: !statement.private,
                lasts: temporary && !self.private,
            });
        }
    }

    /// The unnamed statement is about to be parsed.
    pub(crate) fn set_unnamed(&mut self, statement: &Statement, temporary: bool) {
        self.unnamed = self.private || statement.private && !temporary;
    }

    /// The unnamed statement is about to be parsed, and belongs to the transaction only.
    pub(crate) fn mark_unnamed(&mut self) {
        self.unnamed = true;
    }

    /// A text makes a temporary object; or it changes or drops an object, which may be temporary.
    /// Returns the effect on later texts.
    pub(crate) fn make_or_drop(&mut self, first: &First) -> Alters {
        let Some(object) = &first.object else {
            return first.alters;
        };
        let made = &mut self.temporary;
        if first.alters == Alters::Temporary {
            made.entry(object.name.clone()).or_insert(object.transient);
            return first.alters;
        }
        if !made.contains_key(&object.name) {
            return first.alters;
        }
        if object.dropped {
            made.remove(&object.name);
        }
        Alters::Temporary
    }
}

/// What PostgreSQL answers.
impl Changes {
    /// A command has changed where PostgreSQL searches for names; if `names` does not say where,
    /// nobody knows.
    fn look_elsewhere(&mut self, names: Names) {
        self.names = match names {
            Names::Same => Names::Anywhere,
            names => self.names.then(names),
        };
        self.private |= !matches!(self.names, Names::By(_));
    }

    /// It is uncertain whether PostgreSQL searches for names where it did before.
    fn doubt_names(&mut self) {
        self.private |= self.names != Names::Same;
    }

    /// A command with this effect on later texts has ended. `names` says where PostgreSQL searches
    /// for names after it. True if other sessions now see another schema.
    #[inline(always)]
    pub(crate) fn end_command(
        &mut self,
        alters: Alters,
        names: impl FnOnce() -> Names,
        tag: &[u8],
    ) -> bool {
        let schema = match alters {
            Alters::Path => {
                self.look_elsewhere(names());
                return false;
            }
            Alters::Temporary => {
                self.private = true;
                return false;
            }
            Alters::Settings => {
                self.unsettled = true;
                false
            }
            // CREATE TABLE AS reports the number of rows, with the tag SELECT.
            Alters::Creates if tag.starts_with(b"SELECT") => true,
            _ => changes_schema(tag),
        };
        match tag {
            _ if schema => {
                self.private = true;
                self.schema = true;
                self.undone = false;
            }
            // This may be a ROLLBACK TO SAVEPOINT.
            b"ROLLBACK" => {
                self.partly_over |= self.private;
                self.doubt_names();
                self.undone = true;
                self.temporary.clear();
            }
            b"COMMIT" | b"PREPARE TRANSACTION" => {
                // Another transaction may begin at once: COMMIT AND CHAIN.
                self.doubt_names();
                self.undone = false;
                // `private` stays set for all commands until the server is idle.
                return std::mem::take(&mut self.schema);
            }
            _ => {}
        }
        false
    }

    /// PostgreSQL has reported changed settings.
    pub(crate) fn mark_settings(&mut self) {
        self.settings = true;
    }

    /// At ReadyForQuery, PostgreSQL has reported all settings. When a transaction ends, other
    /// sessions see its changes. True if the schema is among them.
    pub(crate) fn end_request(&mut self, status: Status) -> bool {
        self.unsettled = false;
        if status != Status::Idle {
            return false;
        }
        self.over |= self.unnamed || self.parsed.iter().any(|p| !p.lasts);
        self.crowded = self.parsed.len() > limits::LASTING_STATEMENTS;
        self.private = false;
        self.names = Names::Same;
        self.settings = false;
        if !self.temporary.is_empty() {
            self.temporary.retain(|_, goes| !*goes);
        }
        let undone = std::mem::take(&mut self.undone);
        std::mem::take(&mut self.schema) && !undone
    }
}

/// What Howdah cleans up.
impl Changes {
    /// The unnamed statement is now unknown. False if it was not parsed in the transaction.
    pub(crate) fn take_unnamed(&mut self) -> bool {
        std::mem::take(&mut self.unnamed)
    }

    /// Takes the keys of the statements to close before the client's next message.
    pub(crate) fn take_over(&mut self) -> Vec<u128> {
        let over = std::mem::take(&mut self.over);
        self.partly_over = false;
        let goes = |p: &mut Parsed| !p.lasts && (over || p.late);
        let mut parsed: Vec<Parsed> = self.parsed.extract_if(.., goes).collect();
        if std::mem::take(&mut self.crowded) {
            // Closes the oldest half. A statement used again is parsed again.
            let many = self.parsed.len();
            let many = many.saturating_sub(limits::LASTING_STATEMENTS / 2);
            parsed.extend(self.parsed.drain(..many));
        }
        parsed.into_iter().map(|parsed| parsed.key).collect()
    }

    /// Takes the keys of all statements to close before another client gets the server.
    pub(crate) fn take_all(&mut self) -> Vec<u128> {
        let parsed = std::mem::take(self).parsed;
        parsed.into_iter().map(|parsed| parsed.key).collect()
    }

    /// The client leaves. The next client must not see its temporary tables.
    pub(crate) fn forget_temporary(&mut self) {
        if !self.temporary.is_empty() {
            self.temporary.clear();
        }
    }
}

/// True for the CommandComplete tag of a command that may change the meaning of texts parsed
/// before. A new index does not.
fn changes_schema(tag: &[u8]) -> bool {
    match tag.split_first_chunk::<5>() {
        Some((b"ALTER", _)) => true,
        Some((b"DROP ", _)) => true,
        Some((b"CREAT", rest)) => rest != b"E INDEX",
        Some((b"IMPOR", _)) => true,
        _ => false,
    }
}
