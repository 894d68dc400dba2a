//! The limits that pools share. Code that counts or compares walks this list. A third limit needs
//! one entry here, and one match arm where settings are read.

use std::sync::Arc;

use crate::login::key::LoginKey;
use crate::pool::key::PoolKey;

/// A limit that several pools share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedBound {
    /// `max_db_connections`, shared by all pools of a database.
    Database,
    /// `max_user_connections`, shared by all pools of a user.
    User,
}

/// One value for each shared limit, in the order of [`SharedBound::ALL`].
pub type Each<T> = [T; SharedBound::ALL.len()];

impl SharedBound {
    /// All shared limits.
    pub const ALL: [SharedBound; 2] = [SharedBound::Database, SharedBound::User];

    /// The index of this limit in an [`Each`].
    pub fn place(self) -> usize {
        self as usize
    }

    /// The name that a login's servers or clients count under: equal names share the limit.
    pub fn name(self, key: &LoginKey) -> &Arc<str> {
        match self {
            SharedBound::Database => &key.database,
            SharedBound::User => &key.user,
        }
    }

    /// True if both pools share one limit of this kind.
    pub fn is_shared(self, pool: &PoolKey, other: &PoolKey) -> bool {
        self.name(&pool.login) == self.name(&other.login)
    }

    /// True if a server of the other pool takes a place that this pool could use.
    pub fn concerns(self, pool: &PoolKey, other: &PoolKey) -> bool {
        self.is_shared(pool, other) && other != pool
    }
}
