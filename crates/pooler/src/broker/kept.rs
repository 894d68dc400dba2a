//! A place that is kept for a pool (`places.rs`).

use std::sync::Arc;

use crate::ids::Time;
use crate::pool::bound::SharedBound;
use crate::pool::key::PoolKey;

/// A place under one bound.
#[derive(Debug)]
pub(super) struct Kept {
    /// The pool that gets the place.
    pub(super) pool: Arc<PoolKey>,
    /// The bound.
    pub(super) bound: SharedBound,
    /// Since when the place is kept.
    pub(super) since: Time,
    /// Until when the place is kept.
    pub(super) until: Time,
}
