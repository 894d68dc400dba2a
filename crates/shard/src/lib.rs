//! One database on several PostgreSQLs: which shard has the rows of a statement.
//!
//! A user writes a [`Map`]: where the rows of each table are. A statement goes to a shard if the rows
//! that the statement can touch are provably there and only there, or if a [`Hint`] says so. Else
//! the statement is refused, with the reason.

#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "grammar"), allow(dead_code))]

mod catalogue;
mod checks;
#[cfg(feature = "grammar")]
mod command;
mod facts;
#[cfg(feature = "grammar")]
mod function;
#[cfg(all(feature = "grammar", any(test, feature = "fuzzing")))]
pub mod fuzz;
#[cfg(feature = "grammar")]
mod grammar;
mod guard;
mod hash;
mod hint;
mod lexer;
mod line;
mod map;
mod plan;
mod planner;
mod proof;
mod recent;
mod refusal;
#[cfg(feature = "grammar")]
mod rule;
mod scan;
mod shard_catalogue;
mod value;

pub use catalogue::{Catalogue, CommonColumn, Path, Table, TablePlace};
pub use checks::Check;
pub use guard::GuardSql;
pub use hash::slot;
pub use hint::{CommentHint, Hint};
pub use map::{
    Distribution, DistributionId, MOST_SHARDS, Map, MapBuilder, MapError, NoShard, Pattern, Place,
    Shard, ShardSet, TableLine, Unlisted,
};
pub use plan::{NoKey, Plan, Verdict};
pub use planner::{Names, NamesNumber, Planned, Planner};
pub use proof::Values;
pub use refusal::{Refusal, RefusalReason};
pub use scan::{Constants, MOST_TOKENS, Shape, scan};
pub use shard_catalogue::{
    CatalogueReader, Column, ForeignKey, FunctionFacts, OddRow, Part, Relation, RelationKind,
    SequenceFacts, ShardCatalogue, UniqueKey,
};
pub use value::{Given, KeyType, KeyValue, Unreadable, oid};
