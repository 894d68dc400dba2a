//! A map that is in force although the configuration has another one.

use std::sync::Arc;

use crate::config::ShardMap;

/// The map in force of a database whose configuration has another one.
#[derive(Debug)]
pub(crate) struct KeptMap {
    pub(super) map: Arc<ShardMap>,
    /// The other map comes into force at RESUME.
    pub(super) until_resume: bool,
}
