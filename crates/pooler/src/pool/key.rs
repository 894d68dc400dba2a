//! What names a pool, and what PostgreSQL told at the last login.
//!
//! A pool serves all hosts that the entry of its database lists: each login goes to one of them
//! (`load_balance_hosts`), and any server of the pool will do for any client. So the host is no part
//! of the key. Where one transaction must go to one host of an entry and the next to another (reads to
//! a standby), the host becomes a field of [`PoolKey`], and `route.rs`, which is asked at each
//! checkout, chooses it.

use std::sync::Arc;

use crate::params::Params;

/// The id of a pool, on one worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolId(pub u32);

/// What names a pool on all workers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolKey {
    /// The database as clients call it.
    pub database: Arc<str>,
    /// The user that servers log in as.
    pub user: Arc<str>,
    /// Its servers run auth_query, and no client ever gets one of them: what a client leaves on a
    /// server (`CREATE TEMPORARY TABLE pg_shadow`) could make the query find users that do not
    /// exist.
    pub lookups: bool,
    /// Its one server listens for the clients of a database ([`crate::listen`]).
    pub listens: bool,
}

impl PoolKey {
    /// The pool that clients of a database get servers from.
    pub fn new(database: Arc<str>, user: Arc<str>) -> PoolKey {
        PoolKey {
            database,
            user,
            lookups: false,
            listens: false,
        }
    }

    /// The pool under which this one is shown to users: they know one pool for each database and
    /// user.
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
    /// Every ParameterStatus, in order. Parameters that are not tracked go to clients unchanged.
    pub parameters: Arc<[Parameter]>,
    /// The tracked ones.
    pub tracked: Arc<Params>,
}

impl Welcome {
    /// PostgreSQL's major version; 0 if it does not say.
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
