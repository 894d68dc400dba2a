//! Portals that must be remembered, because what they do shows only after their Bind.

use std::sync::Arc;

use crate::effect::Names;
use crate::ledger::Asked;
use crate::statement::Statement;

/// A portal whose Execute has an effect on its client, or on the meaning of texts that are parsed
/// behind it.
#[derive(Clone, Debug)]
pub struct Portal {
    /// Its name.
    pub name: Box<[u8]>,
    /// Its number among the remembered portals of the link, from 1.
    pub number: u64,
    /// The group it was bound in.
    pub group: u32,
    /// The client's statement.
    pub statement: Arc<Statement>,
    /// Where PostgreSQL looks names up once it has run.
    pub names: Names,
    /// The server has another portal in its place: one that deallocates `howdah_void`.
    pub void: bool,
}

/// A portal of a statement whose description the client has not seen.
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
