//! The name of a pool, and what PostgreSQL reported at the last login.
//!
//! A pool serves all hosts in the entry of its database: each login goes to one of them
//! (`load_balance_hosts`), and any server of the pool can serve any client. So the host is no part
//! of the key. To send single transactions to different hosts (for example reads to a standby),
//! make the host a field of [`PoolKey`], and let `route.rs` choose it: each checkout asks
//! `route.rs`.

use std::sync::Arc;

use crate::params::Params;

/// The id of a pool on one worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolId(pub u32);

/// The name of a pool, the same on all workers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolKey {
    /// The name that clients use for the database.
    pub database: Arc<str>,
    /// The user that servers log in as.
    pub user: Arc<str>,
    /// The servers of this pool run auth_query, and no client ever gets one of them. A client
    /// could leave something on a server (`CREATE TEMPORARY TABLE pg_shadow`) that makes the query
    /// find users that do not exist.
    pub lookups: bool,
    /// The one server of this pool listens for the clients of a database ([`crate::listen`]).
    pub listens: bool,
}

impl PoolKey {
    /// The pool that serves the clients of a database.
    pub fn new(database: Arc<str>, user: Arc<str>) -> PoolKey {
        PoolKey {
            database,
            user,
            lookups: false,
            listens: false,
        }
    }

    /// The pool that users see instead of this one: they know one pool for each database and user.
    pub fn for_clients(self: &Arc<PoolKey>) -> Arc<PoolKey> {
        match self.lookups || self.listens {
            true => Arc::new(PoolKey::new(self.database.clone(), self.user.clone())),
            false => self.clone(),
        }
    }
}

/// A parameter's name and value.
pub type Parameter = (Box<[u8]>, Box<[u8]>);

/// What PostgreSQL reported at the last login.
#[derive(Clone, Debug)]
pub struct Welcome {
    /// Every ParameterStatus, in order. Clients get untracked parameters unchanged.
    pub parameters: Arc<[Parameter]>,
    /// The tracked parameters.
    pub tracked: Arc<Params>,
}

impl Welcome {
    /// PostgreSQL's major version, or 0 if PostgreSQL does not report it.
    pub fn major(&self) -> u32 {
        let mut parameters = self.parameters.iter();
        let version = parameters.find(|(name, _)| **name == *b"server_version");
        version.map_or(0, |(_, value)| {
            let digits = value.iter().take_while(|byte| byte.is_ascii_digit());
            digits.fold(0u32, |number, &byte| {
                number
                    .saturating_mul(10)
                    .saturating_add(u32::from(byte - b'0'))
            })
        })
    }
}
