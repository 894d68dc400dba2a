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
use crate::event::{ClientId, Out};
use crate::pooler::Pooler;
use crate::shard::Sharded;
use crate::shard::bound_text::{BoundText, Decision, PlanReader};
use crate::shard::error::ShardError;
use crate::shard::noted::Noted;

/// How much memory the plan of one statement may take, about, in bytes.
const PLANS: usize = 1 << 20;

impl Pooler {
    /// Answers SHARD_SQL.
    pub(super) fn tell_shard_sql(
        &mut self,
        id: ClientId,
        database: &str,
        holdings: Vec<Holdings>,
        out: &mut Out,
    ) {
        let Some((catalogue, map)) = self.known_catalogue(id, database, &holdings, out) else {
            return;
        };
        let guards = catalogue.guard_sql(&map).into_iter();
        let rows = guards.map(|guard| {
            let shard = text(map.name_of(guard.shard));
            vec![shard, Some(guard.what), Some(guard.sql)]
        });
        let columns = SHARD_SQL.to_vec();
        let rows = rows.collect();
        self.tell(id, ShowTable { columns, rows }, out);
    }

    /// Answers ROUTE.
    pub(super) fn tell_route(
        &mut self,
        id: ClientId,
        question: &RouteQuestion,
        holdings: Vec<Holdings>,
        out: &mut Out,
    ) {
        let name = &question.database;
        let Some((catalogue, map)) = self.known_catalogue(id, name, &holdings, out) else {
            return;
        };
        let row = self.where_to(id, question, catalogue, &map);
        let (columns, rows) = (ROUTE.to_vec(), vec![row]);
        self.tell(id, ShowTable { columns, rows }, out);
    }

    /// The newest catalogue of a sharded database, and its map. Otherwise the command is refused.
    fn known_catalogue(
        &mut self,
        id: ClientId,
        database: &str,
        holdings: &[Holdings],
        out: &mut Out,
    ) -> Option<(Arc<Catalogue>, Arc<ShardMap>)> {
        if self.map_of(database).is_none() {
            self.refuse(id, &format!("no such sharded database: {database}"), out);
            return None;
        }
        let known = catalogues(holdings);
        if let Some((catalogue, map)) = known.get(database) {
            return Some(((*catalogue).clone(), (*map).clone()));
        }
        let what = format!("the catalogues of database \"{database}\" have not been read yet");
        let hint = "They are read for the first statement of a client: connect to the database, and \
                    send SELECT 1.";
        self.refuse_with(id, "55000", &what, [None, Some(hint)], out);
        None
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
