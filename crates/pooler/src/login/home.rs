//! What is known of the shard that a client is at, from its login.

use crate::config::Database;
use crate::login::key::{LoginKey, Parameter, Welcome};

/// What is known of the shard that a client is at.
#[derive(Clone, Copy, Debug)]
pub struct Home<'a> {
    /// Its entry.
    pub database: &'a Database,
    /// The key of the client's login.
    pub key: &'a LoginKey,
    /// What it reported at the last login.
    pub reported: &'a [Parameter],
}

impl<'a> Home<'a> {
    /// The shard of a login.
    pub fn new(database: &'a Database, key: &'a LoginKey, welcome: Option<&'a Welcome>) -> Self {
        Home {
            database,
            key,
            reported: welcome.map_or(&[], |welcome| &welcome.parameters),
        }
    }
}
