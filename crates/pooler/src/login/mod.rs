//! Logins: who clients are. Clients of one login differ in nothing but their sessions.

pub mod key;

pub use key::{LoginKey, Parameter, Welcome};
