//! Portals that Howdah remembers, because their effect shows only after their Bind.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::effect::Names;
use crate::ledger::Asked;
use crate::statement::Statement;

/// The part of a portal's name that counts for PostgreSQL (NAMEDATALEN), in bytes.
const LONGEST: usize = 63;

/// The part of a name that counts.
fn cut(name: &[u8]) -> &[u8] {
    &name[..name.len().min(LONGEST)]
}

/// A portal whose Execute affects its client or the meaning of texts parsed later.
#[derive(Clone, Debug)]
pub struct Portal {
    /// The portal's name.
    pub name: Arc<[u8]>,
    /// The portal's number among the remembered portals of the link, from 1.
    pub number: u64,
    /// The group in which the portal was bound.
    pub group: u32,
    /// The client's statement.
    pub statement: Arc<Statement>,
    /// Where PostgreSQL searches for names after the Execute.
    pub names: Names,
    /// On the server, another portal takes this portal's place, and deallocates `howdah_void`.
    pub void: bool,
}

/// A portal of a statement. The client has not seen the statement's description.
#[derive(Debug)]
pub struct Bound {
    /// The portal's name.
    pub portal: Box<[u8]>,
    /// The group in which the portal was bound.
    pub group: u32,
    /// The statement's key.
    pub key: u128,
    /// The statement.
    pub statement: Arc<Statement>,
    /// The client's name for the statement.
    pub asked: Asked,
}

/// The remembered portals of a link: bound, not yet over, and their Execute affects the client, as
/// that of `DEALLOCATE a` does.
#[derive(Debug, Default)]
pub struct Portals {
    /// By number, so the oldest are first.
    portals: BTreeMap<u64, Portal>,
    /// Their numbers, by name.
    numbers: BTreeMap<Arc<[u8]>, u64>,
    /// The number of portals remembered since the link began.
    bound: u64,
}

impl Portals {
    /// True if none is remembered.
    pub fn is_empty(&self) -> bool {
        self.portals.is_empty()
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.portals.len()
    }

    /// The portal with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Portal> {
        self.portals.get(self.numbers.get(cut(name))?)
    }

    /// All portals.
    pub fn iter(&self) -> impl Iterator<Item = &Portal> {
        self.portals.values()
    }

    /// The number of the next portal.
    pub fn next_number(&self) -> u64 {
        self.bound + 1
    }

    /// Remembers a portal with the number [`Self::next_number`].
    pub fn add(&mut self, portal: Portal) {
        let name = match portal.name.len() {
            ..=LONGEST => portal.name.clone(),
            _ => cut(&portal.name).into(),
        };
        let portal = Portal { name, ..portal };
        self.bound = portal.number;
        self.numbers.insert(portal.name.clone(), portal.number);
        self.portals.insert(portal.number, portal);
    }

    /// Forgets the portal with this name, if there is one.
    pub fn forget(&mut self, name: &[u8]) {
        if let Some(number) = self.numbers.remove(cut(name)) {
            self.portals.remove(&number);
        }
    }

    /// Forgets the portal with this number, unless its name has been bound again.
    pub fn close(&mut self, number: u64) {
        if let Some(portal) = self.portals.remove(&number) {
            self.numbers.remove(&portal.name);
        }
    }

    /// Forgets the oldest portals, as long as `over` is true for them.
    pub fn forget_while(&mut self, over: impl Fn(&Portal) -> bool) {
        while let Some(first) = self.portals.first_entry().filter(|first| over(first.get())) {
            self.numbers.remove(&first.remove().name);
        }
    }

    /// Forgets all portals.
    pub fn clear(&mut self) {
        self.portals.clear();
        self.numbers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::Constants;

    #[test]
    fn portals_are_found_by_name_and_by_number() {
        let statement = Arc::new(Statement::new(0, Constants::Fixed, b"set a = 1\0\0\0", 0));
        let mut portals = Portals::default();
        let bind = |portals: &mut Portals, name: &[u8], group| {
            portals.forget(name);
            portals.add(Portal {
                name: name.into(),
                number: portals.next_number(),
                group,
                statement: statement.clone(),
                names: Names::Same,
                void: false,
            });
        };
        for (name, group) in [(&b"a"[..], 1), (b"b", 1), (b"a", 2), (b"c", 3)] {
            bind(&mut portals, name, group);
        }
        let number = |portals: &Portals, name: &[u8]| portals.get(name).map(|p| p.number);
        assert_eq!(number(&portals, b"a"), Some(3));
        portals.close(1);
        assert_eq!(number(&portals, b"a"), Some(3), "it was bound again");
        portals.forget_while(|portal| portal.group < 2);
        assert_eq!(number(&portals, b"b"), None);
        portals.close(3);
        assert_eq!(number(&portals, b"a"), None);
        assert_eq!(portals.iter().count(), 1);
        // PostgreSQL cuts names.
        let long = [b'x'; 4000];
        bind(&mut portals, &long, 4);
        assert_eq!(number(&portals, &long[..63]), Some(5));
        assert!(portals.len() == 2 && number(&portals, &long[..62]).is_none());
        portals.clear();
        assert!(portals.is_empty() && portals.get(b"c").is_none());
    }
}
