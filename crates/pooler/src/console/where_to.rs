//! ROUTE says where a statement would go, SHARD_SQL how PostgreSQL can guard the map. Both need a
//! catalogue that some worker has, and run nothing.

use std::sync::Arc;

use howdah_shard::{Catalogue, Given, Names, NoKey, Planner, oid};

use super::rows::{Row, ShowTable, text};
use super::shards::catalogues;
use crate::config::ShardMap;
use crate::console::columns::{ROUTE, SHARD_SQL};
use crate::console::holdings::Holdings;
use crate::console::sentence::RouteQuestion;
use crate::event::ClientId;
use crate::pooler::Pooler;
use crate::shard::Sharded;
use crate::shard::bound_text::{BoundText, Decision, PlanReader};
use crate::shard::error::ShardError;
use crate::shard::noted::Noted;

/// How much memory the plan of one statement may take, about, in bytes.
const PLANS: usize = 1 << 20;

/// Why a command has no answer.
#[derive(Debug)]
pub(super) enum NoRoute {
    /// There is no sharded database with this name.
    NotSharded(String),
    /// Its catalogues have not been read.
    NotRead(String),
}

impl NoRoute {
    /// SQLSTATE, text and hint.
    pub(super) fn words(&self) -> (&'static str, String, Option<&'static str>) {
        match self {
            NoRoute::NotSharded(name) => {
                ("08P01", format!("no such sharded database: {name}"), None)
            }
            NoRoute::NotRead(name) => (
                "55000",
                format!("the catalogues of database \"{name}\" have not been read yet"),
                Some(
                    "They are read for the first statement of a client: connect to the database, and send \
                     SELECT 1.",
                ),
            ),
        }
    }
}

impl Pooler {
    /// The answer to SHARD_SQL.
    pub(super) fn shard_sql(
        &self,
        database: &str,
        holdings: &[Holdings],
    ) -> Result<ShowTable<'static>, NoRoute> {
        let (catalogue, map) = self.known_catalogue(database, holdings)?;
        let guards = catalogue.guard_sql(map).into_iter();
        let rows = guards.map(|guard| {
            let shard = text(map.name_of(guard.shard));
            vec![shard, Some(guard.what), Some(guard.sql)]
        });
        Ok(ShowTable {
            columns: SHARD_SQL.to_vec(),
            rows: rows.collect(),
        })
    }

    /// The answer to ROUTE.
    pub(super) fn routed(
        &self,
        id: ClientId,
        question: &RouteQuestion,
        holdings: &[Holdings],
    ) -> Result<ShowTable<'static>, NoRoute> {
        let (catalogue, map) = self.known_catalogue(&question.database, holdings)?;
        let row = self.where_to(id, question, catalogue.clone(), map);
        Ok(ShowTable {
            columns: ROUTE.to_vec(),
            rows: vec![row],
        })
    }

    /// The newest catalogue of a sharded database, and its map.
    fn known_catalogue<'a>(
        &self,
        database: &str,
        holdings: &'a [Holdings],
    ) -> Result<(&'a Arc<Catalogue>, &'a Arc<ShardMap>), NoRoute> {
        if self.map_of(database).is_none() {
            return Err(NoRoute::NotSharded(database.into()));
        }
        let known = catalogues(holdings).remove(database);
        known.ok_or_else(|| NoRoute::NotRead(database.into()))
    }

    /// The row of ROUTE. Names are looked up for the user of the first shard's entry, or for the
    /// console's.
    fn where_to(
        &self,
        id: ClientId,
        question: &RouteQuestion,
        catalogue: Arc<Catalogue>,
        map: &Arc<ShardMap>,
    ) -> Row {
        let entry = self.config.databases.get(&question.database);
        let functions = entry.and_then(|entry| entry.shard_functions.as_deref());
        let functions = functions.unwrap_or_default().iter().cloned().collect();
        let first = self.config.databases.get(&map.shards()[0]);
        let parameters = first.and_then(|first| first.parameters.as_ref());
        let user = &*self.clients.at(id).who.user;
        let mut planner = Planner::new(map.clone(), catalogue, functions, PLANS);
        let login = first.map_or(user, |first| first.server_user(user));
        let spread = (map.shards().len() == 1).then(|| map.spread());
        let mut reader = PlanReader {
            planner: Some(&mut planner),
            trouble: None,
            names: Names {
                role: login,
                login,
                search_path: parameters.and_then(|of| of.get("search_path")),
                has_temporary: false,
                escapes: false,
                utf8: true,
            },
            spread: spread.as_ref(),
            noted: Noted::default(),
            same_encoding: true,
            is_private: false,
            is_another: false,
        };
        let parameters = question.values.iter().map(|value| Given {
            oid: oid::NONE,
            binary: false,
            bytes: value.as_deref().map(str::as_bytes),
        });
        let statement = BoundText {
            text: Some(question.sql.as_bytes()),
            parameters: parameters.collect(),
            again: false,
        };
        let decision = Sharded::new(map.clone(), None).decide(&statement, &mut reader, true);
        route_row(map, decision, reader.noted.refusal())
    }
}

fn route_row(map: &ShardMap, decision: Decision, would: Option<&ShardError>) -> Row {
    let refused = |shard: Option<&str>, error: &ShardError| {
        vec![
            shard.and_then(text),
            text(error.reason.word()),
            text(error.sqlstate),
            text(&error.message),
            error.detail.clone(),
            error.hint.clone(),
        ]
    };
    let goes = |shard: Option<&str>, reason: &str, message: &str| {
        vec![
            shard.and_then(text),
            text(reason),
            None,
            text(message),
            None,
            None,
        ]
    };
    let decision = match decision {
        Decision::Guess { kind, .. } => Decision::NoKey(kind),
        decision => decision,
    };
    match (decision, would) {
        (Decision::Refused(error), _) => refused(None, &error),
        (Decision::At(shard), Some(error)) => refused(Some(map.name_of(shard)), error),
        (_, Some(error)) => refused(None, error),
        (Decision::At(shard), None) => {
            let message = "all rows of the statement are there, or a hint says so";
            goes(Some(map.name_of(shard)), "key", message)
        }
        (Decision::NoKey(NoKey::Catalogue), _) => {
            let message = "only PostgreSQL's own tables: the first shard; inside a transaction, where that is";
            goes(
                Some(map.name_of(howdah_shard::Shard(0))),
                "catalogue",
                message,
            )
        }
        (Decision::NoKey(NoKey::First), _) => {
            let message = "advisory locks and notifications: the first shard";
            goes(Some(map.name_of(howdah_shard::Shard(0))), "first", message)
        }
        (Decision::NoKey(NoKey::Replicated { home, write }), _) => {
            let message = match write {
                true => "replicated tables, written or locked: their home",
                false => "replicated tables: their home; inside a transaction, where that is",
            };
            goes(Some(map.name_of(home)), "replicated", message)
        }
        (Decision::NoKey(NoKey::Here), _) => goes(None, "here", "where the client's server is"),
        (Decision::NoKey(NoKey::Temporary), _) => goes(
            None,
            "temporary",
            "the shard that the client used last, whose server the client keeps",
        ),
        (Decision::NoKey(_) | Decision::Guess { .. }, _) => goes(
            None,
            "any",
            "where the transaction is, or the shard that the client used last",
        ),
        (Decision::NeedsCatalogue { .. }, _) => {
            goes(None, "unknown", "the catalogues have not been read yet")
        }
    }
}
