//! Metrics: the data of all workers, as text for Prometheus and as JSON for the page.
//!
//! Once a second the control thread asks all workers ([`crate::console::Survey::for_metrics`]) and
//! passes the answers to a [`Memory`], which keeps values from one sample to the next. The result
//! is a [`Sight`], which [`text`], [`page`] and [`readiness`] read. None of them touches a worker.

mod json;
mod memory;
mod readiness;
mod sight;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod verdict;
mod words;

pub use json::page;
pub use memory::Memory;
pub use readiness::readiness;
pub use sight::{Levels, Point, PoolSight, PoolVerdict, Process, Sight, WorkerSight};
pub use table::metrics_page;
pub use text::{Format, text};
pub(crate) use verdict::verdicts;
