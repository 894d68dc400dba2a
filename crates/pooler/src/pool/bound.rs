//! The limits that several pools share, as a list: `max_db_connections` is shared by all pools of a
//! database, `max_user_connections` by all pools of a user. Code that counts or compares walks the list, so
//! a third limit would be one more entry here, and one more arm where settings are read.

use std::sync::Arc;

use crate::pool::key::PoolKey;

/// A bound that several pools share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedBound {
    /// Of all pools of a database.
    Database,
    /// Of all pools of a user.
    User,
}

/// A value for each bound, in the order of [`SharedBound::ALL`].
pub type Each<T> = [T; SharedBound::ALL.len()];

impl SharedBound {
    /// All of them.
    pub const ALL: [SharedBound; 2] = [SharedBound::Database, SharedBound::User];

    /// Its place in an [`Each`].
    pub fn place(self) -> usize {
        self as usize
    }

    /// What a pool's connections count under: all pools with the same name share the bound.
    pub fn name(self, key: &PoolKey) -> &Arc<str> {
        match self {
            SharedBound::Database => &key.database,
            SharedBound::User => &key.user,
        }
    }

    /// Both pools are under one bound of this kind.
    pub fn is_shared(self, pool: &PoolKey, other: &PoolKey) -> bool {
        self.name(pool) == self.name(other)
    }

    /// A server of the other pool takes a place that this one could use.
    pub fn concerns(self, pool: &PoolKey, other: &PoolKey) -> bool {
        self.is_shared(pool, other) && other != pool
    }
}
