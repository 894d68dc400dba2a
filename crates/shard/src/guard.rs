//! SQL that makes PostgreSQL guard the map: constraints against rows of other shards, and sequences
//! that never give a number twice.

use crate::catalogue::{Catalogue, TablePlace};
use crate::map::condition::quoted_name;
use crate::map::{Map, Shard};
use crate::shard_catalogue::RelationKind;

/// A statement for one shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardSql {
    /// The shard.
    pub shard: Shard,
    /// The table or sequence with its schema.
    pub what: String,
    /// The statement.
    pub sql: String,
}

impl Catalogue {
    /// Constraints for the sharded tables, then changes of the sequences of their columns; none of
    /// what only partitions or parents with rows of their own have. Nothing for a map of one shard.
    pub fn guard_sql(&self, map: &Map) -> Vec<GuardSql> {
        let mut found = Vec::new();
        if map.shards().len() < 2 {
            return found;
        }
        for shard in map.all().iter() {
            for table in self.tables() {
                let relation = &table.relation;
                let place = self.place(map, table);
                let (name, what) = (
                    format!(
                        "{}.{}",
                        quoted_name(&relation.schema),
                        quoted_name(&relation.name)
                    ),
                    table.name(),
                );
                let sql = match place {
                    _ if !table.shards.has(shard) || relation.is_partition => continue,
                    Ok(TablePlace::Sharded { by, column, .. })
                        if relation.kind == RelationKind::Table =>
                    {
                        map.condition(by, &column, shard).map(|condition| {
                            format!(
                                "ALTER TABLE {name} ADD CONSTRAINT howdah_shard CHECK ({condition}) NOT VALID"
                            )
                        })
                    }
                    _ if relation.kind == RelationKind::Sequence => self
                        .counts_rows_of_shards(map, relation)
                        .then(|| interleaved(&name, shard, map.shards().len())),
                    _ => None,
                };
                found.extend(sql.map(|sql| GuardSql { shard, what, sql }));
            }
        }
        found.sort_by_key(|guard| guard.sql.starts_with("ALTER SEQUENCE"));
        found
    }

    /// True if a sequence counts upwards for a sharded table, or for nobody that is known.
    fn counts_rows_of_shards(&self, map: &Map, sequence: &crate::Relation) -> bool {
        let Some(facts) = &sequence.sequence else {
            return false;
        };
        let owner = facts.owner.as_ref();
        let owner = owner.and_then(|(schema, name)| self.named(schema, name));
        let place = owner.map(|owner| self.place(map, owner));
        let is_sharded = match place {
            Some(place) => matches!(place, Ok(TablePlace::Sharded { .. })),
            None => {
                let own = self.named(&sequence.schema, &sequence.name);
                !own.is_some_and(|own| {
                    matches!(
                        self.place(map, own),
                        Ok(TablePlace::One(_) | TablePlace::Catalogue)
                    )
                })
            }
        };
        is_sharded && facts.increment > 0
    }
}

/// Numbers of a sequence that no other shard gives: of `count` numbers in a row, each shard has one.
fn interleaved(name: &str, shard: Shard, count: usize) -> String {
    let first = usize::from(shard.0) + 1;
    let text = name.replace('\'', "''");
    format!(
        "ALTER SEQUENCE {name} INCREMENT BY {count} START WITH {first}; \
         SELECT setval('{text}', (last_value / {count} + 1) * {count} + {first}, false) FROM {name}"
    )
}
