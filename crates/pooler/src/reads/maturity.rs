//! How far a new server at a standby has come.

use crate::roster::view::Instance;

/// How far a server has come.
#[derive(Debug, Default)]
pub struct Maturity {
    /// Its instance, once it has said so.
    pub(super) instance: Option<Instance>,
    /// How many rounds had begun then.
    pub(super) born: Option<u64>,
    /// PostgreSQL's error.
    pub(super) error: Option<String>,
}
