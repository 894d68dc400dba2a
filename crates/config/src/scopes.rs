//! A setting that stands in several places: the nearest one counts.

use crate::{Database, Globals, Listen, User};

/// The places of settings that count for a user in a database. Of several settings with one name
/// the nearest counts: the user's, then the database's, then the global one.
#[derive(Clone, Copy, Debug)]
pub struct Scopes<'a> {
    /// The user.
    pub user: Option<&'a User>,
    /// The database.
    pub database: Option<&'a Database>,
    /// The global settings.
    pub globals: &'a Globals,
}

/// What is more than the nearest value.
impl<'a> Scopes<'a> {
    /// True if one connection listens for all clients of a database. False for a database with
    /// several hosts, because notifications do not leave their host.
    pub fn shares_listen(self) -> bool {
        let hosts = self.database.map_or(0, |database| database.hosts.len());
        self.listen() == Listen::Share && hosts == 1
    }

    /// The user whose connection listens for all clients of a database; `None` if each user has its
    /// own.
    pub fn listen_user(self) -> Option<&'a str> {
        let own = self
            .database
            .and_then(|database| database.listen_user.as_deref());
        let user = own.unwrap_or(&self.globals.listen_user);
        Some(user).filter(|user| !user.is_empty())
    }

    /// How many clients may keep a server of a pool between transactions; 0 sets no limit.
    pub fn pin_limit(self) -> u32 {
        let of_user = self.user.and_then(|user| user.pin_limit);
        let own = of_user.or_else(|| self.database?.pin_limit);
        let limit = own.unwrap_or(self.globals.pin_limit);
        if limit > 0 {
            return limit;
        }
        let bounds = [
            self.pool_size(),
            self.max_db_connections(),
            self.max_user_connections(),
        ];
        let servers = bounds.into_iter().filter(|bound| *bound > 0).min();
        servers.map_or(0, |servers| (servers / 2).max(1))
    }

    /// The system user that a database's servers on a unix socket must run as; `None`: any user.
    pub fn require_peer(self) -> Option<&'a str> {
        let own = self
            .database
            .and_then(|database| database.requirepeer.as_deref());
        let name = own.unwrap_or(&self.globals.server_requirepeer);
        (!name.is_empty()).then_some(name)
    }
}
