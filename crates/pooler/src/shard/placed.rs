//! A decision that is handed on: made before its client has a server, and used by the gate of the same
//! message once the client has one.

use std::sync::Arc;

use howdah_shard::NamesNumber;

use crate::shard::bound_text::{Decision, PlanReader};
use crate::statement::Statement;

/// Where a message belongs, and what that was decided by.
///
/// This lives no longer than the chunk of the message, in which no other message begins at the same
/// byte.
#[derive(Debug)]
pub struct HandedOn<'a> {
    message: PlacedMessage<'a>,
    decision: Decision,
    basis: Basis,
}

/// A Query or Bind that is placed.
#[derive(Clone, Debug)]
pub struct PlacedMessage<'a> {
    /// Where in its chunk the message begins.
    pub at: usize,
    /// What is bound; `None` for a Query.
    pub binds: Option<Definition<'a, Arc<Statement>>>,
}

/// A statement that a group binds: its text, and the types that its Parse declares.
#[derive(Clone, Copy, Debug)]
pub enum Definition<'a, S> {
    /// The group parses the statement.
    OfGroup(&'a [u8]),
    /// The client has parsed it before.
    OfClient(S),
}

/// What a decision about a statement goes by, besides the statement and what its client says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Basis {
    names: NamesNumber,
    same_encoding: bool,
}

impl PlanReader<'_> {
    /// What decisions go by now; `None` if that has no number.
    pub fn basis(&mut self) -> Option<Basis> {
        if self.is_private || self.is_another {
            return None;
        }
        let planner = self.planner.as_deref_mut()?;
        Some(Basis {
            names: planner.number(&self.names)?,
            same_encoding: self.same_encoding,
        })
    }
}

impl<'c, 'a: 'c> Definition<'a, &'c Arc<Statement>> {
    /// The text, and the types.
    pub fn bytes(self) -> &'c [u8] {
        match self {
            Definition::OfGroup(bytes) => bytes,
            Definition::OfClient(statement) => &statement.definition,
        }
    }

    /// The same, without its client.
    pub fn kept(self) -> Definition<'a, Arc<Statement>> {
        match self {
            Definition::OfGroup(bytes) => Definition::OfGroup(bytes),
            Definition::OfClient(statement) => Definition::OfClient(statement.clone()),
        }
    }
}

impl Definition<'_, Arc<Statement>> {
    fn is(&self, statement: &Arc<Statement>) -> bool {
        match self {
            Definition::OfGroup(definition) => **definition == *statement.definition,
            Definition::OfClient(of) => Arc::ptr_eq(of, statement),
        }
    }
}

impl<'a> HandedOn<'a> {
    /// A decision to hand on; `None` if it goes by what has no number, or is about a refusal. In a box: it is
    /// long, and clients of other databases never have one.
    pub fn new(
        message: PlacedMessage<'a>,
        decision: &Decision,
        basis: Option<Basis>,
    ) -> Option<Box<HandedOn<'a>>> {
        let goes = !matches!(
            decision,
            Decision::Refused(_) | Decision::NeedsCatalogue { .. }
        );
        let basis = basis.filter(|_| goes)?;
        let decision = decision.clone();
        Some(Box::new(HandedOn {
            message,
            decision,
            basis,
        }))
    }

    /// True for the message that begins here: a Query, or a Bind of this statement.
    pub fn is_of(&self, at: usize, statement: Option<&Arc<Statement>>) -> bool {
        self.message.at == at
            && match (&self.message.binds, statement) {
                (None, None) => true,
                (Some(definition), Some(statement)) => definition.is(statement),
                _ => false,
            }
    }

    /// The decision, if it would be made by the same now.
    pub fn unchanged(self, reader: &mut PlanReader<'_>) -> Option<Decision> {
        (reader.basis() == Some(self.basis)).then_some(self.decision)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use howdah_shard::{Catalogue, Map, Names, Planner};

    use super::*;
    use crate::config::Shard;
    use crate::statement::Constants;

    #[test]
    fn a_decision_is_for_its_own_message_only() {
        let statement = |text: &[u8]| Arc::new(Statement::new(1, Constants::Fixed, text, 0));
        let (one, same, other) = (
            statement(b"select 1\0\0\0"),
            statement(b"select 1\0\0\0"),
            statement(b"select 2\0\0\0"),
        );
        let catalogue = Arc::new(Catalogue::new(1, vec![None, None]));
        let map = Map::builder(["a", "b"]).expect("a map");
        let mut planner = Planner::new(
            Arc::new(map.finish()),
            catalogue.clone(),
            HashSet::default(),
            1 << 20,
        );
        let names = Names {
            role: "u",
            login: "u",
            search_path: None,
            has_temporary: false,
            escapes: false,
            utf8: true,
        };
        let before = planner.number(&names);
        assert_eq!(before, planner.number(&names));
        for changed in [
            Names { role: "v", ..names },
            Names {
                search_path: Some("a"),
                ..names
            },
            Names {
                escapes: true,
                ..names
            },
        ] {
            assert_ne!(before, planner.number(&changed));
        }
        planner.set_catalogue(catalogue);
        assert_ne!(before, planner.number(&names));
        let basis = before.map(|names| Basis {
            names,
            same_encoding: true,
        });
        let decision = Decision::At(Shard(1));
        let placed = |binds| HandedOn::new(PlacedMessage { at: 7, binds }, &decision, basis);
        let is_of = |binds, at, statement: Option<&Arc<Statement>>| {
            placed(binds).is_some_and(|placed| placed.is_of(at, statement))
        };
        assert!(is_of(None, 7, None) && !is_of(None, 8, None) && !is_of(None, 7, Some(&one)));
        let parsed = Some(Definition::OfGroup(&b"select 1\0\0\0"[..]));
        assert!(is_of(parsed.clone(), 7, Some(&one)) && !is_of(parsed.clone(), 7, Some(&other)));
        assert!(!is_of(parsed, 7, None));
        let of_client = Some(Definition::OfClient(one.clone()));
        assert!(is_of(of_client.clone(), 7, Some(&one)) && !is_of(of_client, 7, Some(&same)));
    }
}
