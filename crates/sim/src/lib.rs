//! A seeded world around Howdah's production code.
#![forbid(unsafe_code)]

pub mod forwarder;
