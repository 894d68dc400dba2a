//! Metrics: what all workers have, as text for Prometheus and as JSON for the page.
//!
//! Once a second the control thread asks all workers ([`crate::console::Survey::for_metrics`]) and
//! gives the answers to a [`Memory`], which keeps what must be known between two samples. What
//! comes out is a [`Sight`]: a value from which [`text`], [`page`] and [`readiness`] read. Nothing
//! here touches a worker.

mod json;
mod memory;
mod readiness;
mod sight;
mod table;
#[cfg(test)]
mod tests;

pub use json::page;
pub use memory::Memory;
pub use readiness::readiness;
pub use sight::{Levels, Point, PoolSight, Process, Sight, WorkerSight};
pub use table::{Format, metrics_page, text};
