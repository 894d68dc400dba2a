//! Values that all connections of a worker share.

use crate::account::Account;
use crate::names::NameInterner;
use crate::params::{ParamsInterner, Tracked};
use crate::pool::target::Targets;
use crate::statement::Interner;

/// Values that all connections of a worker share.
#[derive(Debug)]
pub struct Shared {
    /// The tracked parameters.
    pub tracked: Tracked,
    /// Names of users and databases, each kept once.
    pub names: NameInterner,
    /// Where servers connect to, each place kept once.
    pub targets: Targets,
    /// Sets of parameter values, each kept once.
    pub params: ParamsInterner,
    /// Settings of sessions, each kept once.
    pub settings: crate::session::Shelf,
    /// Statements, each kept once.
    pub statements: Interner,
    /// The bytes that clients make this worker keep.
    pub account: Account,
}
