//! The name of a pool.
//!
//! A name is the same before and after a reload. So it has no hosts, only the name of a target.

use std::sync::Arc;

use crate::keyed::id;
use crate::login::key::LoginKey;
use crate::pool::target::TargetName;

/// The id of a pool on one worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolId(pub u32);

id!(PoolId);

/// What the servers of a pool are for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Purpose {
    /// They serve clients.
    Clients,
    /// They run auth_query, and no client ever gets one of them. A client could leave something on
    /// a server (`CREATE TEMPORARY TABLE pg_shadow`) that makes the query find users that do not
    /// exist.
    Lookups,
    /// One server listens for the clients of a login ([`crate::listen`]).
    Listening,
    /// One server asks a host for its role ([`crate::host_check`]).
    Checks,
    /// One server at a time tells the catalogue of a shard ([`crate::shard`]).
    Catalogue,
    /// No servers: clients of a sharded database wait here until their shard can be found.
    Placing,
}

/// The name of a pool, the same on all workers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolKey {
    /// The database, and the user that servers log in as.
    pub login: Arc<LoginKey>,
    /// Which of the database's servers they are.
    pub target: TargetName,
    /// What its servers are for.
    pub purpose: Purpose,
}

impl PoolKey {
    /// The pool that serves clients.
    pub fn of_clients(login: Arc<LoginKey>) -> PoolKey {
        PoolKey {
            login,
            target: TargetName::Entry,
            purpose: Purpose::Clients,
        }
    }

    /// True if the next server that comes free is for Howdah itself.
    pub fn serves_howdah(&self) -> bool {
        matches!(self.purpose, Purpose::Listening | Purpose::Catalogue)
    }

    /// True if the servers listen.
    pub fn listens(&self) -> bool {
        self.purpose == Purpose::Listening
    }
}
