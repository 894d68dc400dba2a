//! The statements on a server.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{Shape, Statement};
use crate::Seeded;
use crate::limits;

/// How certain it is that a server has a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// PostgreSQL has confirmed its Parse.
    Sure,
    /// Its Parse was sent in this group of the link, and is not confirmed yet.
    Coming(u32),
    /// Its Close was sent in this group of the link, and is not confirmed yet.
    Going(u32),
}

#[derive(Debug)]
struct SetEntry {
    statement: Arc<Statement>,
    held: Held,
    used: u64,
    /// The description on this server, if there was one. It stays valid while the server has the
    /// statement.
    shape: Option<Shape>,
}

/// The unnamed statement of a server.
#[derive(Clone, Debug)]
pub enum Unnamed {
    /// This one, or none.
    Known(Option<Arc<Statement>>),
    /// Unknown: the server is new here, or the statement must not be used by other clients.
    Unknown,
}

/// The statements on a server, by key.
#[derive(Debug)]
pub struct ServerSet {
    entries: HashMap<u128, SetEntry, Seeded>,
    clock: u64,
    /// The total size of their texts, in bytes.
    bytes: usize,
    /// A statement was added since the last call of [`ServerSet::outgrows`].
    grown: bool,
    /// The unnamed statement, as far as PostgreSQL has answered.
    unnamed: Unnamed,
    /// The client has used SQL's PREPARE.
    sql_prepared: bool,
}

impl ServerSet {
    /// An empty set.
    pub fn new(seeded: Seeded) -> Self {
        ServerSet {
            entries: HashMap::with_hasher(seeded),
            clock: 0,
            bytes: 0,
            grown: false,
            unnamed: Unnamed::Unknown,
            sql_prepared: false,
        }
    }

    /// True if a statement was added since the last call of [`Self::outgrows`].
    pub fn has_grown(&self) -> bool {
        self.grown
    }

    /// True if the set has grown beyond `max` since the last call. As in PgBouncer, a smaller
    /// `max_prepared_statements` removes nothing until a statement is added.
    pub fn outgrows(&mut self, max: usize) -> bool {
        let grown = std::mem::take(&mut self.grown);
        grown && (self.entries.len() > max || self.bytes > limits::SERVER_TEXTS)
    }

    /// The key under which the server has a statement, or would get it, and how certain it is that
    /// the server has it. If another statement already has the key, the next free key is used.
    pub fn find(&mut self, statement: &Arc<Statement>) -> (u128, Option<Held>) {
        self.clock += 1;
        let mut key = statement.key();
        loop {
            match self.entries.get_mut(&key) {
                None => return (key, None),
                Some(entry) if entry.statement.same(statement) => {
                    entry.used = self.clock;
                    return (key, Some(entry.held));
                }
                Some(_) => key = key.wrapping_add(1),
            }
        }
    }

    /// If PostgreSQL has confirmed a statement under its own key: the description, if there was
    /// one.
    pub fn confirmed(&self, statement: &Arc<Statement>) -> Option<Option<Shape>> {
        let entry = self.entries.get(&statement.key())?;
        let sure = entry.held == Held::Sure && entry.statement.same(statement);
        sure.then_some(entry.shape)
    }

    /// Stores that a Parse or Close was sent, or confirmed, for a key.
    pub fn mark(&mut self, key: u128, statement: &Arc<Statement>, held: Held) {
        self.clock += 1;
        let entry = SetEntry {
            statement: statement.clone(),
            held,
            used: self.clock,
            shape: None,
        };
        let size = statement.definition.len();
        match self.entries.insert(key, entry) {
            Some(before) => self.bytes -= before.statement.definition.len(),
            None => self.grown = true,
        }
        self.bytes += size;
    }

    /// The keys of all statements.
    pub fn keys(&self) -> Vec<u128> {
        self.entries.keys().copied().collect()
    }

    /// The statement under a key.
    pub fn get(&self, key: u128) -> Option<Arc<Statement>> {
        self.entries.get(&key).map(|entry| entry.statement.clone())
    }

    /// The description of the statement under a key, on this server.
    pub fn shape(&self, key: u128) -> Option<Shape> {
        self.entries.get(&key).and_then(|entry| entry.shape)
    }

    /// Stores the description of the statement under a key.
    pub fn describe(&mut self, key: u128, shape: Shape) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.shape = Some(shape);
        }
    }

    /// PostgreSQL has confirmed the statement under a key. Does nothing if the set no longer has
    /// the key.
    pub fn confirm(&mut self, key: u128) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.held = Held::Sure;
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: u128) {
        if let Some(entry) = self.entries.remove(&key) {
            self.bytes -= entry.statement.definition.len();
        }
    }

    /// The unnamed statement.
    pub fn unnamed(&self) -> &Unnamed {
        &self.unnamed
    }

    /// PostgreSQL has confirmed a new unnamed statement, or has dropped the old one (as at a
    /// Query).
    pub fn set_unnamed(&mut self, statement: Option<Arc<Statement>>) {
        self.unnamed = Unnamed::Known(statement);
    }

    /// From now on, the unnamed statement is unknown.
    pub fn doubt_unnamed(&mut self) {
        self.unnamed = Unnamed::Unknown;
    }

    /// The server's unnamed statement is not to be used for this one, whose text was parsed anew
    /// since.
    pub fn forget_unnamed(&mut self, statement: &Arc<Statement>) {
        if matches!(&self.unnamed, Unnamed::Known(Some(own)) if own.same(statement)) {
            self.unnamed = Unnamed::Unknown;
        }
    }

    /// True if SQL's PREPARE was used, and its statements may be there.
    pub fn has_sql_prepared(&self) -> bool {
        self.sql_prepared
    }

    /// SQL's PREPARE was used, or its statements are gone.
    pub fn set_sql_prepared(&mut self, prepared: bool) {
        self.sql_prepared = prepared;
    }

    /// PostgreSQL has dropped all named statements. Those that were sent after that stay.
    pub fn clear_sure(&mut self) {
        self.sql_prepared = false;
        self.entries
            .retain(|_, entry| matches!(entry.held, Held::Coming(_)));
        let left = self.entries.values();
        self.bytes = left.map(|entry| entry.statement.definition.len()).sum();
    }

    /// Number of statements.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no statements.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The confirmed statements to close, so that at most `max` remain and their texts are not too
    /// large. The statement unused for longest comes first.
    pub fn surplus(&self, max: usize) -> Vec<u128> {
        let many = self.entries.len().saturating_sub(max);
        if self.bytes <= limits::SERVER_TEXTS {
            return self.oldest(many);
        }
        let mut too_much = self.bytes - limits::SERVER_TEXTS;
        let mut keys = self.oldest(self.entries.len());
        let enough = keys.iter().position(|key| {
            let size = self.entries[key].statement.definition.len();
            let enough = too_much == 0;
            too_much = too_much.saturating_sub(size);
            enough
        });
        keys.truncate(enough.unwrap_or(keys.len()).max(many));
        keys
    }

    /// The confirmed statements unused for longest, at most `count`, oldest first. (One client may
    /// have added many at once.)
    fn oldest(&self, count: usize) -> Vec<u128> {
        let sure = self.entries.iter();
        let sure = sure.filter(|(_, entry)| entry.held == Held::Sure);
        let mut sure: Vec<_> = sure.map(|(key, entry)| (entry.used, *key)).collect();
        if count < sure.len() {
            sure.select_nth_unstable(count);
            sure.truncate(count);
        }
        sure.sort_unstable();
        sure.into_iter().map(|(_, key)| key).collect()
    }

    /// Takes out all statements with their descriptions, to move to another worker.
    pub fn into_statements(self) -> Vec<(u128, Arc<Statement>, Option<Shape>)> {
        self.entries
            .into_iter()
            .map(|(key, entry)| (key, entry.statement, entry.shape))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded;
    use crate::statement::Constants;

    #[test]
    fn two_statements_with_one_key() {
        let make = |text: &[u8], key: u128| {
            let statement = Statement::new(0, Constants::Fixed, text, 0);
            let name = crate::statement::server_name(key);
            statement.key.set((key, name)).unwrap();
            Arc::new(statement)
        };
        let (a, b) = (make(b"a", 7), make(b"b", 7));
        let mut set = ServerSet::new(seeded(1));
        assert_eq!(set.find(&a), (7, None));
        set.mark(7, &a, Held::Sure);
        assert_eq!(set.find(&b), (8, None));
        set.mark(8, &b, Held::Coming(1));
        assert_eq!(set.find(&a), (7, Some(Held::Sure)));
        assert_eq!(set.find(&b), (8, Some(Held::Coming(1))));
        set.clear_sure();
        assert_eq!(set.len(), 1);
    }

    #[test]
    fn those_unused_for_longest_come_first() {
        let mut set = ServerSet::new(seeded(1));
        let statements =
            [b"a", b"b", b"c", b"d", b"e"].map(|text| Statement::new(0, Constants::Fixed, text, 0));
        let statements = statements.map(Arc::new);
        for statement in &statements {
            set.mark(statement.key(), statement, Held::Sure);
        }
        let keys = statements.each_ref().map(|statement| statement.key());
        set.mark(keys[1], &statements[1], Held::Going(1));
        set.find(&statements[0]);
        assert_eq!(set.oldest(0), []);
        assert_eq!(set.oldest(2), [keys[2], keys[3]]);
        let all = [keys[2], keys[3], keys[4], keys[0]];
        assert_eq!(set.oldest(4), all);
        assert_eq!(set.oldest(9), all);
    }
}
