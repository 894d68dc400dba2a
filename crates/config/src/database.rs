//! An entry of `[databases]`.

use std::fmt;
use std::sync::Arc;

use super::{Database, Parameters, SecretText, SessionAttrs, User};

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

    /// The name under which texts of prepared statements are shared: all shards of a database have the
    /// same tables.
    pub fn schema(&self) -> &str {
        self.shard_of.as_deref().unwrap_or_else(|| self.target())
    }

    /// What its entry says of one user.
    pub fn member(&self, user: &str) -> Option<&User> {
        self.users.get(user).map(|user| &**user)
    }

    /// True if a user may not log in: only users with an entry here may (`users_only`).
    pub fn keeps_out(&self, user: &str) -> bool {
        self.users_only && self.member(user).is_none()
    }

    /// True if the roles of its hosts say which of them it uses.
    pub fn is_placed(&self) -> bool {
        self.target_session_attrs != SessionAttrs::Any
    }

    /// The user whose pool serves a client: a user with an entry here has a pool of their own. Others
    /// share the pool of the forced user, if there is one.
    pub fn pooled_as<'a>(&'a self, user: &'a str) -> &'a str {
        match &self.forced_user {
            Some(forced) if !self.users.contains_key(user) => forced,
            _ => user,
        }
    }

    /// Whom the servers of a pool log in as, by the user whose pool it is.
    pub fn server_user<'a>(&'a self, pooled: &'a str) -> &'a str {
        let member = self.member(pooled);
        let of_member = member.and_then(|user| user.forced_user.as_deref());
        let of_database = self.forced_user.as_deref().filter(|_| member.is_some());
        of_member.or(of_database).unwrap_or(pooled)
    }

    /// The password with which the servers of a pool log in, or its source, if one stands here.
    pub fn server_password(&self, pooled: &str) -> Option<&SecretText> {
        let Some(user) = self.member(pooled) else {
            let is_forced = self.forced_user.as_deref() == Some(pooled);
            return self.server_password.as_ref().filter(|_| is_forced);
        };
        let of_database = || {
            let is_forced = user.forced_user.is_none() && self.forced_user.is_some();
            self.server_password.as_ref().filter(|_| is_forced)
        };
        user.server_password.as_ref().or_else(of_database)
    }

    /// True if the servers of a pool log in with what its clients have shown.
    pub fn lends_secrets(&self, pooled: &str) -> bool {
        self.server_user(pooled) == pooled
            && self.server_password(pooled).is_none()
            && self.forced_user.as_deref() != Some(pooled)
    }

    /// What the sessions of a pool's servers start with.
    pub fn session(&self, pooled: &str) -> Parameters {
        let of_database = self.parameters.clone().unwrap_or_default();
        let member = self
            .member(pooled)
            .and_then(|user| user.parameters.as_ref());
        member.map_or_else(|| of_database.clone(), |own| of_database.under(own))
    }

    /// True if the servers of a user's pool can serve the same pool with the other entry, too. Compares
    /// what PgBouncer compares at a reload. Passwords are not compared.
    pub fn same_servers(&self, other: &Database, pooled: &str) -> bool {
        self.target() == other.target()
            && self.hosts == other.hosts
            && self.replacing() == other.replacing()
            && self.server_user(pooled) == other.server_user(pooled)
            && self.session(pooled) == other.session(pooled)
    }

    /// True if each user has the same pool with the other entry.
    pub fn same_pools(&self, other: &Database) -> bool {
        self.forced_user == other.forced_user && self.users.keys().eq(other.users.keys())
    }

    /// The user whom the entry would go on forcing, although servers of that user's own pool log in as
    /// another: the pool of all would get that login.
    pub(super) fn clashes_with_kept<'a>(&self, old: &'a Database) -> Option<&'a str> {
        let kept = old.forced_user.as_deref()?;
        let lost = self.forced_user.is_none();
        (lost && self.server_user(kept) != kept).then_some(kept)
    }

    /// An entry that no longer forces a user goes on forcing its old user, as in PgBouncer: its
    /// clients have no passwords of their own for the server. Users with an entry here keep what it
    /// says: without a login of its own, each logs in as itself. True if this happened.
    pub(super) fn keep_forced_user(new: &mut Arc<Database>, old: &Database) -> bool {
        let lost = new.forced_user.is_none() && old.forced_user.is_some();
        if lost {
            let new = Arc::make_mut(new);
            new.forced_user.clone_from(&old.forced_user);
            new.server_password.clone_from(&old.server_password);
            let kept = new.forced_user.as_deref();
            let others = new.users.iter_mut();
            for (name, user) in others.filter(|(name, _)| Some(name.as_str()) != kept) {
                if user.forced_user.is_none() {
                    Arc::make_mut(user).forced_user = Some(name.clone());
                }
            }
        }
        lost
    }

    /// A hash of what [`Database::same_servers`] compares. Another process computes the same hash,
    /// even if it knows more settings: one with its default does not count.
    pub fn fingerprint(&self, pooled: &str) -> [u8; 32] {
        use sha2::{Digest, Sha256};
        let hosts: Vec<_> = self.hosts.iter().map(|to| &to.host).collect();
        let mut text = format!("{:?} {hosts:?}", self.target());
        for (name, value) in self.replacing() {
            text.push_str(&format!(" {name}={value:?}"));
        }
        if self.server_user(pooled) != pooled {
            text.push_str(&format!(" as {:?}", self.server_user(pooled)));
        }
        if self
            .member(pooled)
            .is_some_and(|user| user.parameters.is_some())
        {
            text.push_str(&format!(" with {:?}", self.session(pooled).options()));
        }
        Sha256::digest(text).into()
    }
}
