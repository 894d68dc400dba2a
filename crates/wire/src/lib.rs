//! PostgreSQL messages (protocol 3.0 to 3.2) over borrowed bytes: framing, reading, writing.
//!
//! ```text
//!   tag   length (itself included)   body
//!  +----+---------------------------+--------------------- - -
//!  | Q  | 00 00 00 0d               | s e l e c t   1 \0
//!  +----+---------------------------+--------------------- - -
//!   1 B   4 B, big endian             length - 4 bytes
//! ```
//!
//! A start-up packet has no tag. Nothing here does I/O, and reading allocates nothing.
//! Source: PostgreSQL documentation, "Frontend/Backend Protocol", Message Formats.
#![forbid(unsafe_code)]

pub mod backend;
pub mod error;
pub mod frame;
pub mod frontend;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod proxy;
pub mod startup;
pub mod tag;
pub mod write;

pub use error::WireError;
