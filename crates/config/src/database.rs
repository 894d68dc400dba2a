//! An entry of `[databases]`.

use std::fmt;
use std::sync::Arc;

use super::{Database, SessionAttrs};

impl fmt::Debug for Database {
    /// Prints where the database is: the password must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("name", &self.name)
            .field("target", &self.target())
            .field("hosts", &self.hosts)
            .field("forced_user", &self.forced_user)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// The database's name on the server.
    pub fn target(&self) -> &str {
        self.dbname.as_deref().unwrap_or(&self.name)
    }

    /// True if the roles of its hosts say which of them it uses.
    pub fn is_placed(&self) -> bool {
        self.target_session_attrs != SessionAttrs::Any
    }

    /// True if servers opened for one entry can serve the other entry, too. Compares what PgBouncer
    /// compares at a reload. The password is not compared.
    pub fn same_servers(&self, other: &Database) -> bool {
        self.target() == other.target()
            && self.hosts == other.hosts
            && self.replacing() == other.replacing()
    }

    /// An entry that no longer forces a user goes on forcing its old user, as in PgBouncer: its
    /// clients have no passwords of their own for the server. True if this happened.
    pub(super) fn keep_forced_user(new: &mut Arc<Database>, old: &Database) -> bool {
        let lost = new.forced_user.is_none() && old.forced_user.is_some();
        if lost {
            let new = Arc::make_mut(new);
            new.forced_user.clone_from(&old.forced_user);
            new.password.clone_from(&old.password);
        }
        lost
    }

    /// A hash of what [`Database::same_servers`] compares. Another process computes the same hash,
    /// even if it knows more settings: one with its default does not count.
    pub fn fingerprint(&self) -> [u8; 32] {
        use sha2::{Digest, Sha256};
        let hosts: Vec<_> = self.hosts.iter().map(|to| &to.host).collect();
        let mut text = format!("{:?} {hosts:?}", self.target());
        for (name, value) in self.replacing() {
            text.push_str(&format!(" {name}={value:?}"));
        }
        Sha256::digest(text).into()
    }
}
