//! Which server of a login was last seen with a statement.

use hashbrown::HashMap;

use crate::Seeded;
use crate::ids::ServerId;
use crate::limits;

/// The server of a login that was last seen with a statement, by the statement's key. Only a hint:
/// the server may be gone, or may have lost the statement.
#[derive(Debug)]
pub struct Keepers {
    servers: HashMap<u128, ServerId, Seeded>,
}

impl Keepers {
    /// No hints.
    pub fn new(seeded: Seeded) -> Self {
        Keepers {
            servers: HashMap::with_hasher(seeded),
        }
    }

    /// A server gets this statement. One that was seen with the statement before stays the hint: this
    /// server has not confirmed the statement yet.
    pub fn offer(&mut self, key: u128, server: ServerId) {
        if !self.servers.contains_key(&key) {
            self.note(key, server);
        }
    }

    /// A server has this statement.
    pub fn note(&mut self, key: u128, server: ServerId) {
        if self.servers.len() >= limits::KEEPERS && !self.servers.contains_key(&key) {
            self.servers.clear();
        }
        self.servers.insert(key, server);
    }

    /// The server that may have this statement.
    pub fn of(&self, key: u128) -> Option<ServerId> {
        self.servers.get(&key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded;
    use crate::table::SlotKey;

    #[test]
    fn hints_are_bounded() {
        let mut keepers = Keepers::new(seeded(1));
        let servers = [1, 2].map(|index| ServerId::new(index, 0));
        for key in 0..limits::KEEPERS as u128 {
            keepers.note(key, servers[0]);
        }
        keepers.offer(1, servers[1]);
        keepers.note(0, servers[1]);
        let kept = [0, 1].map(|key| keepers.of(key));
        assert_eq!(kept, [Some(servers[1]), Some(servers[0])]);
        keepers.note(u128::MAX, servers[1]);
        assert_eq!(keepers.of(u128::MAX), Some(servers[1]));
        assert_eq!((keepers.of(0), keepers.servers.len()), (None, 1));
    }
}
