//! A link: a client bound to a server, for a transaction, a statement or a session.
//!
//! ```text
//!            upstream: classify, rename, inject          relay
//!   client ------------------------------------------------------> server
//!          <------------------------------------------------------
//!            relay, swallow, make            downstream: ledger
//! ```
//!
//! `Linked` until the release rule holds (see [`release`]).

pub mod assign;
pub mod changed;
pub mod downstream;
pub mod effects;
pub mod extended;
pub mod meaning;
pub mod prepare;
pub mod pressure;
pub mod release;
pub mod traffic;
pub mod upstream;
