//! The names of users and databases that a worker uses, each kept once.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::{Equivalent, HashSet};

use crate::login::key::LoginKey;
use crate::{Seeded, limits};

/// Names of users and databases, alone and as logins. Equal names are one `Arc`.
#[derive(Debug)]
pub struct NameInterner {
    names: HashSet<Arc<str>, Seeded>,
    logins: HashSet<Arc<LoginKey>, Seeded>,
    /// When there are this many names or logins, the unused are removed.
    tidy_at: usize,
    nobody: Arc<LoginKey>,
}

impl NameInterner {
    /// No names yet.
    pub fn new(seeded: Seeded) -> NameInterner {
        NameInterner {
            names: HashSet::with_hasher(seeded),
            logins: HashSet::with_hasher(seeded),
            tidy_at: limits::NAMES,
            nobody: LoginKey::both(""),
        }
    }

    /// The login of a client that has not sent one yet.
    pub fn nobody(&self) -> Arc<LoginKey> {
        self.nobody.clone()
    }

    /// The shared copy of a login.
    pub fn login(&mut self, database: &str, user: &str) -> Arc<LoginKey> {
        if let Some(shared) = self.logins.get(&Names { database, user }) {
            return shared.clone();
        }
        self.tidy();
        let shared = Arc::new(LoginKey {
            database: self.intern(database),
            user: self.intern(user),
        });
        self.logins.insert(shared.clone());
        shared
    }

    fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(shared) = self.names.get(name) {
            return shared.clone();
        }
        let shared: Arc<str> = name.into();
        self.names.insert(shared.clone());
        shared
    }

    fn tidy(&mut self) {
        if self.names.len().max(self.logins.len()) < self.tidy_at {
            return;
        }
        self.logins.retain(|login| Arc::strong_count(login) > 1);
        self.names.retain(|name| Arc::strong_count(name) > 1);
        let left = self.names.len().max(self.logins.len());
        self.tidy_at = (2 * left).max(limits::NAMES);
    }
}

/// A login to look for.
struct Names<'a> {
    database: &'a str,
    user: &'a str,
}

impl Hash for Names<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As `LoginKey` does.
        self.database.hash(state);
        self.user.hash(state);
    }
}

impl Equivalent<Arc<LoginKey>> for Names<'_> {
    fn equivalent(&self, login: &Arc<LoginKey>) -> bool {
        *self.database == *login.database && *self.user == *login.user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logins_are_one_value() {
        let mut names = NameInterner::new(crate::seeded(1));
        let one = names.login("d", "u");
        assert!(Arc::ptr_eq(&one, &names.login("d", "u")));
        let other = names.login("d", "v");
        assert!(Arc::ptr_eq(&one.database, &other.database));
        assert_ne!(one, other);
    }

    #[test]
    fn unused_logins_are_forgotten() {
        let mut names = NameInterner::new(crate::seeded(1));
        let kept = names.login("d", "u");
        for number in 0..3 * limits::NAMES {
            names.login("d", &number.to_string());
        }
        assert!(names.logins.len() <= limits::NAMES);
        assert!(Arc::ptr_eq(&kept, &names.login("d", "u")));
    }
}
