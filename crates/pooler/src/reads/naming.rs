//! The volatile functions of a database, while PostgreSQL tells them.

use crate::effect::VolatileNames;

/// The answer so far.
#[derive(Debug, Default)]
pub struct Naming {
    /// The schema, as it was known when PostgreSQL was asked.
    pub(super) schema: u64,
    /// The names.
    pub(super) names: VolatileNames,
    /// Why there is no answer.
    pub(super) error: Option<String>,
}
