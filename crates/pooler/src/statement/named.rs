//! A client's statements, and its names for them.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{Statement, StatementDescription};
use crate::Seeded;
use crate::account::{Allowance, Charge, KeptFor};
use crate::effect::Effects;

/// What a name takes besides its letters, in bytes: its entry, and its part of the table.
const ENTRY: usize = 2 * size_of::<(Box<[u8]>, Named)>();

/// A client's name for a statement.
#[derive(Clone, Debug)]
pub struct Named {
    /// The statement.
    pub statement: Arc<Statement>,
    /// The number of this name among all names that the client has given, from 1. A name that is
    /// given again gets a new number.
    pub number: u64,
    /// The description of the statement or a portal of it that the client got, if any.
    pub told: Option<Arc<StatementDescription>>,
    /// That description came from Howdah's memory. Each server's own is compared with it.
    pub recited: bool,
}

impl Named {
    /// The name with this number. Nothing has been described yet.
    pub fn new(statement: Arc<Statement>, number: u64) -> Self {
        Named {
            statement,
            number,
            told: None,
            recited: false,
        }
    }

    /// The client gets the statement's description from Howdah's memory.
    pub fn recite(&mut self, told: Arc<StatementDescription>) {
        self.told = Some(told);
        self.recited = true;
    }

    /// The size of its definition, in bytes.
    fn size(&self) -> usize {
        self.statement.definition.len()
    }
}

/// A client's statements, by the client's names. Most clients have none with a name.
#[derive(Debug)]
pub struct ClientStatements {
    all: Option<Box<Names>>,
    unnamed: Option<Arc<Statement>>,
    /// The number of the latest name: names are counted from 1.
    given: u64,
    /// One of the statements may make the client keep its server.
    keeps: bool,
    seeded: Seeded,
    /// The share that pays for the names.
    share: Option<Arc<Allowance>>,
}

#[derive(Debug)]
struct Names {
    named: HashMap<Box<[u8]>, Named, Seeded>,
    /// The total size of their texts, in bytes. (Clients may share them.)
    texts: usize,
    /// The bytes of the names, in the account.
    charge: Charge,
}

impl ClientStatements {
    /// No statements.
    pub fn new(seeded: Seeded) -> Self {
        ClientStatements {
            all: None,
            unnamed: None,
            given: 0,
            keeps: false,
            seeded,
            share: None,
        }
    }

    /// From now on, a pool pays for the names, and for texts that nobody pays for.
    pub fn charge_to(&mut self, share: &Arc<Allowance>) {
        self.share = Some(share.clone());
        if let Some(statement) = &self.unnamed {
            statement.charge_to(share);
        }
        if let Some(all) = &mut self.all {
            all.charge.begins(share, KeptFor::Names);
            for named in all.named.values() {
                named.statement.charge_to(share);
            }
        }
    }

    /// The unnamed statement.
    pub fn unnamed(&self) -> Option<&Arc<Statement>> {
        self.unnamed.as_ref()
    }

    /// Sets the unnamed statement.
    pub fn set_unnamed(&mut self, statement: Option<Arc<Statement>>) {
        self.unnamed = statement;
    }

    /// How many names the client has given.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// The number for the client's next name.
    pub fn next_number(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    /// True if one of the statements may make the client keep its server.
    pub fn may_keep_server(&self) -> bool {
        self.keeps
    }

    /// The client parses a statement with these effects.
    pub fn note_effects(&mut self, effects: &Effects) {
        self.keeps |= effects.matters_at_bind();
    }

    /// The statement with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Named> {
        self.all.as_ref()?.named.get(name)
    }

    /// The statement with this name, to note what the client was told about it.
    pub fn told_mut(&mut self, name: &[u8]) -> Option<&mut Named> {
        self.all.as_mut()?.named.get_mut(name)
    }

    /// Gives a name to a statement.
    pub fn insert(&mut self, name: Box<[u8]>, named: Named) {
        let all = self.all.get_or_insert_with(|| {
            let mut charge = Charge::default();
            if let Some(share) = &self.share {
                charge.begins(share, KeptFor::Names);
            }
            Box::new(Names {
                named: HashMap::with_hasher(self.seeded),
                texts: 0,
                charge,
            })
        });
        all.texts += named.size();
        let length = name.len();
        match all.named.insert(name, named) {
            Some(before) => all.texts -= before.size(),
            None => all.charge.adds(ENTRY + length),
        }
    }

    /// Forgets a name.
    pub fn remove(&mut self, name: &[u8]) {
        if let Some(all) = &mut self.all
            && let Some(before) = all.named.remove(name)
        {
            all.texts -= before.size();
            all.charge.takes(ENTRY + name.len());
        }
    }

    /// Forgets all names.
    pub fn clear(&mut self) {
        self.all = None;
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.all.as_ref().map_or(0, |all| all.named.len())
    }

    /// True if there are no names.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The total size of the texts, in bytes.
    pub fn texts(&self) -> usize {
        self.all.as_ref().map_or(0, |all| all.texts)
    }

    /// All names and statements.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Named)> {
        let all = self.all.iter().flat_map(|all| all.named.iter());
        all.map(|(name, named)| (&**name, named))
    }

    /// Takes over the statements of a client that comes from elsewhere, and that has given so many
    /// names.
    pub fn restore(
        &mut self,
        given: u64,
        unnamed: Option<Arc<Statement>>,
        names: impl Iterator<Item = (Box<[u8]>, Named)>,
    ) {
        self.given = given;
        let keeps = |statement: &Arc<Statement>| {
            let effects = statement.effects.as_ref();
            effects.is_some_and(|effects| effects.matters_at_bind())
        };
        self.keeps = unnamed.as_ref().is_some_and(keeps);
        self.unnamed = unnamed;
        for (name, named) in names {
            self.keeps |= keeps(&named.statement);
            self.insert(name, named);
        }
    }

    /// All names and their statements, to move with the client.
    pub fn into_names(self) -> Vec<(Box<[u8]>, Named)> {
        let all = self.all.into_iter();
        all.flat_map(|all| all.named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::seeded;
    use crate::statement::Constants;

    #[test]
    fn names_are_charged_as_long_as_they_are_there() {
        let account = Account::default();
        let (one, two) = (account.share(), account.share());
        let named = |text: &[u8]| {
            let statement = Statement::new(0, Constants::Fixed, text, 0);
            Named::new(Arc::new(statement), 1)
        };
        let mut names = ClientStatements::new(seeded(1));
        names.charge_to(&one);
        names.insert(b"a"[..].into(), named(b"12345"));
        names.insert(b"bc"[..].into(), named(b"123"));
        names.insert(b"a"[..].into(), named(b"1"));
        let kept = || account.kept(KeptFor::Names);
        assert_eq!((names.len(), names.texts(), kept()), (2, 4, 2 * ENTRY + 3));
        names.remove(b"bc");
        names.remove(b"bc");
        assert_eq!((names.len(), names.texts(), kept()), (1, 1, ENTRY + 1));
        names.charge_to(&two);
        assert_eq!(
            (kept(), account.kept(KeptFor::Texts) > 0),
            (ENTRY + 1, true)
        );
        names.clear();
        assert_eq!((names.is_empty(), kept()), (true, 0));
        assert_eq!(account.kept(KeptFor::Texts), 0);
    }
}
