//! What is read in a statement about where its rows are.

use std::collections::HashSet;

use crate::catalogue::{Catalogue, Path};
use crate::map::{Map, Shard, ShardSet};
use crate::proof::{Goal, Proof};
use crate::refusal::Refusal;
use crate::scan::Shape;

/// What a statement is read with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) map: &'a Map,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) path: &'a Path,
    pub(crate) shape: &'a Shape,
    /// Functions that touch one shard only, as the user says: `name` or `schema.name`.
    pub(crate) functions: &'a HashSet<String>,
    /// The client has temporary tables, and keeps its server.
    pub(crate) has_temporary: bool,
}

impl Surroundings<'_> {
    /// True if `=` of two keys is the built-in one.
    pub(crate) fn is_equals_built_in(&self) -> bool {
        self.path.catalog_first() && !self.catalogue.has_other_equals()
    }
}

/// What is known about a statement.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) proof: Proof,
    pub(crate) goals: Vec<Goal>,
    /// Shards that the statement must go to, and for which table.
    pub(crate) fixed: Vec<(Shard, String)>,
    /// Shards on which each name means the same, and the name that means it there only.
    pub(crate) may: ShardSet,
    pub(crate) scarce: Option<String>,
    /// The home of a replicated table that is read.
    pub(crate) replicated: Option<Shard>,
    pub(crate) writes: bool,
    /// A replicated table is written, or its rows are locked.
    pub(crate) writes_replicated: bool,
    pub(crate) reads_catalogue: bool,
    /// Advisory locks and notifications, which are on the first shard.
    pub(crate) first: bool,
    /// Names that may be temporary tables of the client.
    pub(crate) temporary: bool,
    /// The statement may run on one shard, and be repeated on another.
    pub(crate) guess: bool,
    /// Constants that name a setting, which must not be Howdah's.
    pub(crate) settings: Vec<u32>,
    /// A name that no catalogue has is taken for a temporary table's.
    pub(crate) has_unknown_name: bool,
    /// Why the statement is refused. What is known of its tables and keys still counts against a
    /// hint.
    pub(crate) refused: Option<Refusal>,
}

impl Facts {
    /// A statement without tables.
    pub(crate) fn new(map: &Map) -> Facts {
        Facts {
            proof: Proof::default(),
            goals: Vec::new(),
            fixed: Vec::new(),
            may: map.all(),
            scarce: None,
            replicated: None,
            writes: false,
            writes_replicated: false,
            reads_catalogue: false,
            first: false,
            temporary: false,
            guess: true,
            settings: Vec::new(),
            has_unknown_name: false,
            refused: None,
        }
    }

    /// The statement is refused. What no hint helps against is said first.
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        let is_worse = |before: &Refusal| refusal.firm && !before.firm;
        if self.refused.as_ref().is_none_or(is_worse) {
            self.refused = Some(refusal);
        }
    }
}
