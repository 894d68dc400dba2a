//! Portals that must be remembered, because what they do shows only after their Bind.

use std::sync::Arc;

use crate::effect::Names;
use crate::ledger::Asked;
use crate::statement::Statement;

/// A portal of a statement that does something to its client, or to what is parsed behind it.
#[derive(Clone, Debug)]
pub struct Portal {
    /// Its name.
    pub name: Box<[u8]>,
    /// Which of the portals kept in mind on this server it is, from 1.
    pub number: u64,
    /// The group it was bound in.
    pub group: u32,
    /// The client's statement.
    pub statement: Arc<Statement>,
    /// Where names are looked for once it has run.
    pub names: Names,
    /// What is bound is not that: it deallocates a statement that is there for nothing else.
    pub void: bool,
}

/// A portal of a statement that its client has not had described.
#[derive(Debug)]
pub struct Bound {
    /// Its name.
    pub portal: Box<[u8]>,
    /// The group it was bound in.
    pub group: u32,
    /// The statement's key.
    pub key: u128,
    /// The statement.
    pub statement: Arc<Statement>,
    /// The client's name for that.
    pub asked: Asked,
}
