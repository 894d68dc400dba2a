//! A place that is kept for a pool (`places.rs`).

use std::sync::Arc;

use crate::ids::Time;
use crate::pool::bound::SharedBound;
use crate::pool::key::PoolKey;

/// A place under one bound.
#[derive(Debug)]
pub(super) struct Kept {
    /// For which pool.
    pub(super) pool: Arc<PoolKey>,
    /// Under which of its bounds.
    pub(super) bound: SharedBound,
    /// Since when.
    pub(super) since: Time,
    /// When it is given up.
    pub(super) until: Time,
}
