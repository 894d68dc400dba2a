//! What servers prove themselves with to PostgreSQL, as clients' logins have shown it. Servers for
//! clients use what their login's clients have shown; a listening connection uses what came with the
//! wish of a client, perhaps from another worker; look-ups use none.

use crate::auth::{ScramKeys, Secret};

/// Keys and a secret from clients' logins, for logins to PostgreSQL.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// Keys from the last client's SCRAM login.
    pub(crate) keys: Option<ScramKeys>,
    /// The secret of the last client's login: from auth_query, or a password that LDAP or PAM has
    /// accepted.
    pub(crate) found: Option<Secret>,
}

impl Secrets {
    /// A client has logged in with these keys or this secret. `keeps`: without a new secret, the
    /// old one stays.
    pub(crate) fn learn(&mut self, keys: Option<ScramKeys>, found: Option<Secret>, keeps: bool) {
        self.keys = keys.or(self.keys.take());
        self.found = found.or(self.found.take().filter(|_| keeps));
    }

    /// Takes over what another worker or process knows, where nothing is known here, or nothing
    /// may be kept.
    pub(crate) fn inherit(&mut self, other: Secrets, keeps: bool) {
        self.keys = self.keys.take().filter(|_| keeps).or(other.keys);
        self.found = self.found.take().filter(|_| keeps).or(other.found);
    }

    /// True if a login was told another secret of the user before.
    pub(crate) fn has_other(&self, found: &Secret) -> bool {
        self.found.as_ref().is_some_and(|old| old != found)
    }

    /// True if the last login was told this secret of the user.
    pub(crate) fn has(&self, found: &Secret) -> bool {
        self.found.as_ref() == Some(found)
    }

    /// Forgets the found secret, because `auth_file` now has the user.
    pub(crate) fn forget_found(&mut self) {
        self.found = None;
    }
}
