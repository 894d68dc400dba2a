//! A setting that stands in several places: the nearest one counts.

use crate::{Database, Globals, Listen, User};

/// The places of settings that count for a user in a database. Of several settings with one name
/// the nearest counts: that of the user in the database, then the user's, the database's, and the
/// global one.
#[derive(Clone, Copy, Debug)]
pub struct Scopes<'a> {
    /// The user in the database.
    pub member: Option<&'a User>,
    /// The user.
    pub user: Option<&'a User>,
    /// The database.
    pub database: Option<&'a Database>,
    /// The global settings.
    pub globals: &'a Globals,
}

/// What is more than the nearest value.
impl Scopes<'_> {
    /// True if one connection listens for all clients of a database. False for a database with
    /// several hosts, because notifications do not leave their host.
    pub fn shares_listen(self) -> bool {
        let hosts = self.database.map_or(0, |database| database.hosts.len());
        self.listen() == Listen::Share && hosts == 1
    }

    /// The user whose connection listens for all clients of a database; `None` if each user has its
    /// own.
    pub fn listener(self) -> Option<String> {
        Some(self.listen_user()).filter(|user| !user.is_empty())
    }

    /// How many clients may keep a server of a pool between transactions; 0 sets no limit.
    pub fn pins(self) -> u32 {
        let limit = self.pin_limit();
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
    pub fn peer_user(self) -> Option<String> {
        Some(self.requirepeer()).filter(|name| !name.is_empty())
    }
}
