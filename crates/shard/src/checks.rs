//! What to know of a map and its shards: what differs between them, and what holds within a shard only.

use std::collections::BTreeMap;

use crate::catalogue::{Catalogue, Table, TablePlace};
use crate::map::{Map, Shard};
use crate::shard_catalogue::{ForeignKey, RelationKind, SequenceFacts, ShardCatalogue};

/// What to know of a table, a sequence or the whole database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// The table or sequence with its schema, or `database`.
    pub what: String,
    /// What is found.
    pub found: String,
    /// Answers could be wrong: statements with the table are refused.
    pub closes: bool,
}

impl Catalogue {
    /// What closes tables, then what is good to know.
    pub fn checks(&self, map: &Map) -> Vec<Check> {
        let mut checks = Checks {
            map,
            catalogue: self,
            found: Vec::new(),
        };
        checks.database();
        for table in self.tables() {
            checks.table(table);
        }
        checks.found.sort_by_key(|check| !check.closes);
        checks.found
    }
}

struct Checks<'a> {
    map: &'a Map,
    catalogue: &'a Catalogue,
    found: Vec<Check>,
}

impl Checks<'_> {
    fn add(&mut self, what: impl Into<String>, found: impl Into<String>) {
        self.found.push(Check {
            what: what.into(),
            found: found.into(),
            closes: false,
        });
    }

    fn known(&self) -> impl Iterator<Item = (Shard, &ShardCatalogue)> {
        let known = self.catalogue.known();
        known.filter_map(|(shard, known)| Some((shard, known?)))
    }

    /// Encodings and settings, and shards that were never read.
    fn database(&mut self) {
        let unread = self.catalogue.known().filter(|(_, known)| known.is_none());
        for shard in unread.map(|(shard, _)| shard).collect::<Vec<_>>() {
            let name = self.map.name_of(shard);
            self.add(
                "database",
                format!("the catalogue of shard \"{name}\" was never read"),
            );
        }
        let mut values: BTreeMap<&str, Vec<(Shard, &str)>> = BTreeMap::new();
        for (shard, known) in self.known() {
            let encoding = ("encoding", known.encoding.as_str());
            let settings = known.settings.iter();
            let settings = settings.map(|(name, value)| (name.as_str(), value.as_str()));
            for (name, value) in settings.chain([encoding]) {
                values.entry(name).or_default().push((shard, value));
            }
        }
        let differs = |of: &[(Shard, &str)]| of.iter().any(|(_, value)| *value != of[0].1);
        let texts = values.into_iter().filter(|(_, of)| differs(of));
        let texts = texts.map(|(name, of)| {
            let of = of.iter().map(|(shard, value)| {
                format!("\"{value}\" on shard \"{}\"", self.map.name_of(*shard))
            });
            format!("{name} is {}", of.collect::<Vec<_>>().join(", "))
        });
        for text in texts.collect::<Vec<_>>() {
            self.add("database", text);
        }
    }

    fn table(&mut self, table: &Table) {
        if table.relation.kind == RelationKind::Sequence {
            return self.sequence(table);
        }
        match self.catalogue.place(self.map, table) {
            Ok(TablePlace::Catalogue | TablePlace::One(_)) => return,
            Err(refusal) => {
                // What is true of partitions is told of their parent.
                if !table.relation.is_partition {
                    self.found.push(Check {
                        what: table.name(),
                        found: refusal.detail.unwrap_or(refusal.message),
                        closes: true,
                    });
                }
                return;
            }
            Ok(TablePlace::Sharded { column, .. }) => self.keys(table, &column),
            Ok(TablePlace::Replicated { .. }) => {}
        }
        let missing = self.map.all().without(table.shards);
        for shard in missing.iter() {
            let name = self.map.name_of(shard);
            let found =
                format!("shard \"{name}\" does not have it: statements for there are refused");
            self.add(table.name(), found);
        }
        let lacking = table.columns.iter().filter(|column| !column.everywhere);
        for column in lacking {
            let name = &column.column.name;
            let found = format!("column \"{name}\" is not the same on all shards");
            self.add(table.name(), found);
        }
        self.collations(table);
    }

    /// Columns whose collation differs.
    fn collations(&mut self, table: &Table) {
        let relation = &table.relation;
        let is_twin = |other: &&crate::Relation| {
            other.name == relation.name && other.schema == relation.schema
        };
        let twins = self.known().skip(1);
        let twins = twins.filter_map(|(_, known)| known.relations.iter().find(is_twin));
        let mut found = Vec::new();
        for twin in twins {
            for column in &relation.columns {
                let other = twin.columns.iter().find(|other| other.name == column.name);
                if other.is_some_and(|other| other.collation != column.collation) {
                    found.push(format!(
                        "column \"{}\" has another collation on another shard",
                        column.name
                    ));
                }
            }
        }
        found.dedup();
        for text in found {
            self.add(table.name(), text);
        }
    }

    /// Unique and foreign keys of a sharded table, which a shard can only hold for its own rows.
    fn keys(&mut self, table: &Table, key: &str) {
        // PostgreSQL makes those of partitions by itself.
        if table.relation.is_partition {
            return;
        }
        for unique in &table.relation.unique {
            if !unique.columns.iter().any(|column| column == key) {
                let name = &unique.name;
                let found = format!(
                    "unique index \"{name}\" is without the key, and holds within a shard only"
                );
                self.add(table.name(), found);
            }
        }
        for foreign in &table.relation.foreign {
            if !self.holds(foreign, table, key) {
                let (schema, name) = &foreign.table;
                let found = format!(
                    "foreign key \"{}\" is not by the key: the row of \"{schema}.{name}\" may be on another shard",
                    foreign.name
                );
                self.add(table.name(), found);
            }
        }
    }

    /// True if a foreign key of a sharded table refers to rows of the same shard.
    fn holds(&self, foreign: &ForeignKey, table: &Table, key: &str) -> bool {
        let (schema, name) = &foreign.table;
        let Some(other) = self.catalogue.named(schema, name) else {
            return true;
        };
        match (
            self.catalogue.place(self.map, other),
            self.catalogue.place(self.map, table),
        ) {
            (
                Ok(TablePlace::Sharded { by, column, .. }),
                Ok(TablePlace::Sharded { by: own, .. }),
            ) => {
                let mut pairs = foreign.columns.iter();
                by == own && pairs.any(|(here, there)| here == key && *there == column)
            }
            (Ok(TablePlace::Replicated { .. }), _) => true,
            // A closed table has its own line.
            (Err(_), _) => true,
            _ => false,
        }
    }

    /// A sequence that gives a number on several shards.
    fn sequence(&mut self, table: &Table) {
        let name = (&table.relation.schema, &table.relation.name);
        let mut facts: Vec<&SequenceFacts> = Vec::new();
        for (_, known) in self.known() {
            let of = known.relations.iter();
            let mut of = of.filter(|other| (&other.schema, &other.name) == name);
            facts.extend(of.find_map(|other| other.sequence.as_ref()));
        }
        let owner = facts.first().and_then(|facts| facts.owner.as_ref());
        let of = match owner {
            Some((schema, name)) => self.catalogue.named(schema, name).unwrap_or(table),
            None => table,
        };
        let is_on_one = matches!(
            self.catalogue.place(self.map, of),
            Ok(TablePlace::One(_) | TablePlace::Replicated { .. } | TablePlace::Catalogue)
        );
        if !is_on_one && can_repeat(&facts) {
            let found = "several shards give the same numbers: SHARD_SQL shows a remedy";
            self.add(table.name(), found);
        }
    }
}

/// True if two of the sequences can give one number: their ranges have numbers in common, and their
/// steps meet.
fn can_repeat(facts: &[&SequenceFacts]) -> bool {
    let meet = |one: &SequenceFacts, other: &SequenceFacts| {
        let apart = one.max < other.min || other.max < one.min;
        let step = i128::from(one.increment).abs();
        let same_step = step == i128::from(other.increment).abs() && step > 0;
        let distance = i128::from(one.start) - i128::from(other.start);
        !(apart || same_step && distance % step != 0)
    };
    let pairs = facts.iter().enumerate();
    let mut pairs = pairs.flat_map(|(at, one)| facts[..at].iter().map(move |other| (one, other)));
    pairs.any(|(one, other)| meet(one, other))
}
