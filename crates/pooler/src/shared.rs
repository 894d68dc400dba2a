//! Values that all connections of a worker share.

use crate::params::{ParamsInterner, Tracked};
use crate::statement::Interner;

/// What all connections of a worker share.
#[derive(Debug)]
pub struct Shared {
    /// Which parameters are tracked.
    pub tracked: Tracked,
    /// Equal sets of their values.
    pub params: ParamsInterner,
    /// Equal settings of sessions.
    pub settings: crate::session::Shelf,
    /// Equal statements.
    pub statements: Interner,
}
