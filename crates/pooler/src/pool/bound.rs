//! The limits that pools share. Code that counts or compares walks this list. Another limit needs
//! one entry here, and one match arm where settings are read.

use std::sync::Arc;

use crate::config::HostPort;
use crate::login::key::LoginKey;
use crate::pool::key::PoolKey;

/// A limit that several pools share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedBound {
    /// `max_db_connections`, shared by all pools of a database.
    Database,
    /// `max_user_connections`, shared by all pools of a user.
    User,
    /// `max_host_connections`, shared by all pools at a host.
    Host,
}

/// One value for each shared limit, in the order of [`SharedBound::ALL`].
pub type Each<T> = [T; SharedBound::ALL.len()];

impl SharedBound {
    /// All shared limits.
    pub const ALL: [SharedBound; 3] = [SharedBound::Database, SharedBound::User, SharedBound::Host];

    /// Those that clients have, too.
    pub const OF_CLIENTS: [SharedBound; 2] = [SharedBound::Database, SharedBound::User];

    /// The index of this limit in an [`Each`].
    pub fn place(self) -> usize {
        self as usize
    }

    /// The setting that limits servers.
    pub fn setting(self) -> &'static str {
        match self {
            SharedBound::Database => "max_db_connections",
            SharedBound::User => "max_user_connections",
            SharedBound::Host => "max_host_connections",
        }
    }

    /// What has the limit.
    pub fn noun(self) -> &'static str {
        match self {
            SharedBound::Database => "database",
            SharedBound::User => "user",
            SharedBound::Host => "host",
        }
    }

    /// Who shares this limit with a pool. `None` for a pool whose host has no limit.
    pub fn name(self, key: &PoolKey, host: Option<&Arc<HostPort>>) -> Option<BoundName> {
        match self {
            SharedBound::Host => host.cloned().map(BoundName::Host),
            _ => Some(self.name_of_login(&key.login)),
        }
    }

    /// Who shares this limit with a login's clients. They have none by host.
    fn name_of_login(self, key: &LoginKey) -> BoundName {
        match self {
            SharedBound::User => BoundName::User(key.user.clone()),
            _ => BoundName::Database(key.database.clone()),
        }
    }

    /// The limits that a login's clients count under.
    pub fn names_of_login(key: &LoginKey) -> impl Iterator<Item = BoundName> + '_ {
        let of_clients = SharedBound::OF_CLIENTS.into_iter();
        of_clients.map(|bound| bound.name_of_login(key))
    }
}

/// One limit: all that count under it have this name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BoundName {
    /// A database.
    Database(Arc<str>),
    /// A user.
    User(Arc<str>),
    /// A host.
    Host(Arc<HostPort>),
}

impl BoundName {
    /// True if the servers of a pool count under the limit. `host`: where its host has a limit.
    pub fn counts(&self, key: &PoolKey, host: Option<&Arc<HostPort>>) -> bool {
        match self {
            BoundName::Database(name) => key.login.database == *name,
            BoundName::User(name) => key.login.user == *name,
            BoundName::Host(name) => host == Some(name),
        }
    }
}
