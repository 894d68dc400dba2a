//! Portals that Howdah remembers, because their effect shows only after their Bind.

use std::sync::Arc;

use crate::effect::Names;
use crate::ledger::Asked;
use crate::statement::Statement;

/// A portal whose Execute affects its client or the meaning of texts parsed later.
#[derive(Clone, Debug)]
pub struct Portal {
    /// The portal's name.
    pub name: Box<[u8]>,
    /// The portal's number among the remembered portals of the link, from 1.
    pub number: u64,
    /// The group in which the portal was bound.
    pub group: u32,
    /// The client's statement.
    pub statement: Arc<Statement>,
    /// Where PostgreSQL searches for names after the Execute.
    pub names: Names,
    /// On the server, another portal takes this portal's place, and deallocates `howdah_void`.
    pub void: bool,
}

/// A portal of a statement. The client has not seen the statement's description.
#[derive(Debug)]
pub struct Bound {
    /// The portal's name.
    pub portal: Box<[u8]>,
    /// The group in which the portal was bound.
    pub group: u32,
    /// The statement's key.
    pub key: u128,
    /// The statement.
    pub statement: Arc<Statement>,
    /// The client's name for the statement.
    pub asked: Asked,
}
