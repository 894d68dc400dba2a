//! Who a client is, and what PostgreSQL reports at a login.

use std::sync::Arc;

use crate::keyed::id;
use crate::params::Params;

/// The id of a login on one worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LoginId(pub u32);

id!(LoginId);

/// A database and a user. For a client: what the client has asked for. For a login: what clients call
/// the database, and the user that servers log in as.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LoginKey {
    /// The name that clients use for the database.
    pub database: Arc<str>,
    /// The user.
    pub user: Arc<str>,
}

impl LoginKey {
    /// The key with these names.
    pub fn new(database: &str, user: &str) -> Arc<LoginKey> {
        Arc::new(LoginKey {
            database: database.into(),
            user: user.into(),
        })
    }

    /// A key with one name for both: rows that stand for no login have such a key.
    pub fn both(name: &str) -> Arc<LoginKey> {
        LoginKey::new(name, name)
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
