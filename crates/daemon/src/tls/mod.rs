//! TLS, between the driver's bytes and the plain bytes of the decisions.
//!
//! [`contexts`] makes what sessions begin with from the settings and their files; [`session`] is one
//! connection's TLS, as a value without a socket; [`facts`] tells the decisions who is at the other end.
//! The library (OpenSSL, or AWS-LC with the feature `aws-lc`) is called here only, by the safe wrappers
//! of the crate `openssl` and, where that has none, in [`library`]: whoever wants another one writes this
//! folder anew.

pub mod contexts;
mod facts;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod library;
#[cfg(any(test, feature = "fuzzing"))]
mod samples;
pub mod session;
#[cfg(test)]
mod tests;

pub use contexts::Contexts;
pub use session::Session;
