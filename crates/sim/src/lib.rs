//! A seeded world around Howdah's production code.
//!
//! [`world::World`] is the network and the clock; [`driver::SimDriver`] connects a worker to it.
//! Everything runs in one thread, and the same seed gives the same run.
#![forbid(unsafe_code)]

pub mod chance;
pub mod driver;
pub mod forwarder;
pub mod world;
