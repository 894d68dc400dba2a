//! SHOW SHARDS, SHARD_TABLES, SHARD_CHECKS and SHARD_REFUSALS.

use std::collections::BTreeMap;
use std::sync::Arc;

use howdah_shard::{Catalogue, RefusalReason, RelationKind, TablePlace};

use super::rows::{Row, date_time, number, text};
use crate::config::ShardMap;
use crate::console::holdings::{Holdings, ShardFigures, ShardedShare};
use crate::console::sharded_sight::ShardedSight;
use crate::pooler::Pooler;
use crate::queries::text::QueryText;
use crate::shard::tally::RefusedText;

/// The newest catalogue of each database that some worker has, with its map.
pub(super) fn catalogues(
    holdings: &[Holdings],
) -> BTreeMap<Arc<str>, (&Arc<Catalogue>, &Arc<ShardMap>)> {
    let shares = holdings.iter().flat_map(|holding| &holding.sharded);
    let read = |share: &ShardedShare| share.shards.iter().filter_map(|of| of.counts.read).max();
    let mut newest: BTreeMap<Arc<str>, &ShardedShare> = BTreeMap::new();
    for share in shares.filter(|share| share.catalogue.is_some()) {
        let best = newest.entry(share.database.clone()).or_insert(share);
        if read(share) > read(best) {
            *best = share;
        }
    }
    let known = newest.into_iter();
    known
        .filter_map(|(name, share)| Some((name, (share.catalogue.as_ref()?, &share.map))))
        .collect()
}

impl Pooler {
    /// This worker's counts of sharded databases.
    pub(super) fn sharded_shares(&self) -> Vec<ShardedShare> {
        let entries = self.config.databases.iter();
        let sharded = entries.filter(|(_, entry)| entry.sharding.is_some());
        let mut shares: Vec<ShardedShare> = Vec::new();
        for (name, map) in sharded.filter_map(|(name, _)| Some((name, self.map_of(name)?))) {
            let tally = self.shard_tallies.get(name);
            let figures = map.all().iter().map(|shard| {
                let counts = tally.map(|tally| tally.counts(shard)).unwrap_or_default();
                let age = counts.read.map(|read| self.now.0.saturating_sub(read.0));
                ShardFigures {
                    clients: 0,
                    age_ns: age,
                    counts,
                }
            });
            shares.push(ShardedShare {
                database: name.as_str().into(),
                shards: figures.collect(),
                reasons: tally
                    .map(|tally| tally.reasons().clone())
                    .unwrap_or_default(),
                refused: Vec::new(),
                catalogue: None,
                map,
            });
        }
        if shares.is_empty() {
            return shares;
        }
        for (_, client) in self.clients.iter() {
            let login = client
                .login
                .map(|login| &self.logins.at(login).key.database);
            let sharded = client.sharded.as_deref().zip(login);
            let at = sharded.and_then(|(sharded, login)| sharded.shard_of_login(login));
            let mut of = shares.iter_mut();
            let share = of.find(|share| share.database == client.who.database);
            if let Some((share, at)) = share.zip(at)
                && let Some(figures) = share.shards.get_mut(usize::from(at.0))
            {
                figures.clients += 1;
            }
        }
        shares
    }

    /// The worker's pools and counts, with the catalogues of shards and the refused texts.
    pub(super) fn holdings_and_shards(&mut self) -> Holdings {
        let mut holdings = self.holdings();
        for share in &mut holdings.sharded {
            let tally = self.shard_tallies.get(&share.database);
            let refused = tally.iter().flat_map(|tally| tally.refused());
            share.refused = refused.cloned().collect();
            if let Some(lore) = self.shard_lore.get(&share.database)
                && let Some((catalogue, map)) = lore.catalogue()
            {
                (share.catalogue, share.map) = (Some(catalogue.clone()), map.clone());
            }
        }
        holdings
    }

    /// Rows of SHOW SHARDS.
    pub(super) fn show_shards(&self, holdings: &[Holdings]) -> Vec<Row> {
        let mut rows = Vec::new();
        for sight in ShardedSight::all(holdings) {
            for (name, figures) in &sight.shards {
                let counts = &figures.counts;
                let pools = holdings.iter().flat_map(|holding| &holding.pools);
                let pools = pools.filter(|share| *share.key.database == **name);
                let pools: Vec<_> = pools.collect();
                let servers: u32 = pools.iter().map(|share| share.connections).sum();
                let failure = pools.iter().find_map(|share| share.failure.as_ref());
                let reachable = match failure {
                    Some(_) => text("no"),
                    None if servers > 0 || counts.read.is_some() => text("yes"),
                    None => None,
                };
                rows.push(vec![
                    text(&sight.database),
                    text(name),
                    self.config.databases.get(name).and_then(|entry| {
                        let host = entry.host.as_deref()?;
                        Some(format!("{host}:{}", entry.port.first()))
                    }),
                    reachable,
                    number(figures.clients),
                    number(servers),
                    number(counts.statements),
                    figures.age_ns.and_then(|age| number(age / 1_000_000_000)),
                    number(counts.failures),
                    failure.or(counts.error.as_ref()).cloned(),
                ]);
            }
        }
        rows
    }

    /// Rows of SHOW SHARD_REFUSALS, the most frequent first.
    pub(super) fn show_refusals(&self, holdings: &[Holdings]) -> Vec<Row> {
        type Text<'a> = (&'a str, &'a QueryText, RefusalReason);
        let mut all: BTreeMap<Text<'_>, RefusedText> = BTreeMap::new();
        for share in holdings.iter().flat_map(|holding| &holding.sharded) {
            for refused in &share.refused {
                let key = (&*share.database, &*refused.text, refused.error.reason);
                match all.get_mut(&key) {
                    None => {
                        all.insert(key, refused.clone());
                    }
                    Some(sum) => sum.add(refused),
                }
            }
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|(_, refused)| std::cmp::Reverse(refused.count));
        let row = |((database, query, reason), refused): (Text<'_>, RefusedText)| {
            let error = refused.error;
            vec![
                text(database),
                text(if refused.is_rehearsal { "no" } else { "yes" }),
                number(refused.count),
                Some(date_time(self.started, refused.last)),
                text(reason.word()),
                text(error.sqlstate),
                Some(error.message),
                error.detail,
                error.hint,
                Some(query.shown()),
                text(&query.text),
            ]
        };
        all.into_iter().map(row).collect()
    }
}

/// Rows of SHOW SHARD_TABLES: no sequences, no partitions, which follow their parents, and nothing of
/// PostgreSQL's own.
pub(super) fn show_tables(holdings: &[Holdings]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (database, (catalogue, map)) in catalogues(holdings) {
        for table in catalogue.tables() {
            let relation = &table.relation;
            if relation.kind == RelationKind::Sequence || relation.is_partition {
                continue;
            }
            let place = catalogue.place(map, table);
            let (place, key, of, why) = match &place {
                Ok(TablePlace::Catalogue) => continue,
                Ok(TablePlace::Sharded { by, column, key }) => {
                    let name = map.distribution(*by).map(|of| of.name().to_owned());
                    (name, text(column), number(key), None)
                }
                Ok(TablePlace::Replicated { home }) => {
                    let place = format!("replicated({})", map.name_of(*home));
                    (Some(place), None, None, None)
                }
                Ok(TablePlace::One(shard)) => (text(map.name_of(*shard)), None, None, None),
                Err(refusal) => {
                    let why = refusal.detail.as_ref().unwrap_or(&refusal.message);
                    (None, None, None, Some(why.clone()))
                }
            };
            let line = catalogue.line(map, table);
            let state = match (&why, line) {
                (None, _) => "open",
                (Some(_), Some(_)) => "closed",
                (Some(_), None) => "unlisted",
            };
            rows.push(vec![
                text(&database),
                Some(table.name()),
                line.map(|line| map.written(line)),
                place,
                key,
                of,
                text(state),
                why,
            ]);
        }
    }
    rows
}

/// Rows of SHOW SHARD_CHECKS: what closes tables first.
pub(super) fn show_checks(holdings: &[Holdings]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (database, (catalogue, map)) in catalogues(holdings) {
        rows.extend(catalogue.checks(map).into_iter().map(|check| {
            let closes = if check.closes { "yes" } else { "no" };
            vec![
                text(&database),
                Some(check.what),
                text(closes),
                Some(check.found),
            ]
        }));
    }
    rows
}
