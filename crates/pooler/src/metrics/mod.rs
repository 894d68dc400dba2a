//! Metrics: what all workers have, as text for Prometheus and as JSON for the page.
//!
//! Once a second the control thread asks all workers ([`crate::console::Survey::for_metrics`]) and passes
//! the answers to a [`Memory`], which keeps values from one sample to the next. The result is a [`Sight`]:
//! a value that [`text`], [`page`] and [`readiness`] read. Nothing here touches a worker.

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
