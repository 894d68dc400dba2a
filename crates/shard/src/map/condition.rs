//! What of a map is written for people and PostgreSQL: lines of tables, and conditions in SQL.

use std::fmt::Write;

use super::{Distribution, DistributionId, Map, Place, Rule, Shard, TableLine};
use crate::value::{KeyType, KeyValue};

/// A name in SQL.
pub(crate) fn quoted_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A value in SQL.
fn literal(value: &KeyValue) -> String {
    match value {
        KeyValue::Int(value) => value.to_string(),
        KeyValue::Text(text) => {
            let text = String::from_utf8_lossy(text).replace('\'', "''");
            // A backslash would escape where standard_conforming_strings is off.
            match text.contains('\\') {
                true => format!("E'{}'", text.replace('\\', "\\\\")),
                false => format!("'{text}'"),
            }
        }
        KeyValue::Uuid(_) => format!("'{value}'"),
    }
}

impl Map {
    /// A line of tables, as a user may write it: `public.* = tenant(account_id)`.
    pub fn written(&self, line: &TableLine) -> String {
        let place = match &line.place {
            Place::Sharded { by, column } => {
                let name = self.distribution(*by).map_or("", Distribution::name);
                format!("{name}({column})")
            }
            Place::Replicated { home } => format!("replicated({})", self.name_of(*home)),
            Place::One(shard) => self.name_of(*shard).to_owned(),
        };
        let table = line.pattern.table.as_deref().unwrap_or("*");
        format!("{}.{table} = {place}", line.pattern.schema)
    }

    /// A condition in SQL that is true for the values of a shard; `None` if all values are there.
    /// `false` if the shard has none.
    pub(crate) fn condition(
        &self,
        by: DistributionId,
        column: &str,
        shard: Shard,
    ) -> Option<String> {
        let distribution = self.distribution(by)?;
        let column = quoted_name(column);
        let terms = match &distribution.rule {
            Rule::Hash(owners) if owners.iter().all(|owner| *owner == shard) => return None,
            Rule::Hash(owners) => {
                let slot = slot_in_sql(distribution.key, &column, owners.len());
                let ranges = distribution.slots_of(shard).into_iter();
                let ranges = ranges.map(|(first, last)| between(&slot, first.into(), last.into()));
                ranges.collect()
            }
            Rule::List { values, others } => {
                let others_are_here = *others == Some(shard);
                let listed = values
                    .iter()
                    .filter(|(_, of)| (**of == shard) != others_are_here);
                let mut listed: Vec<String> = listed.map(|(value, _)| literal(value)).collect();
                listed.sort_unstable();
                match (listed.is_empty(), others_are_here) {
                    (true, true) => return None,
                    (true, false) => Vec::new(),
                    (false, true) => vec![format!("{column} NOT IN ({})", listed.join(", "))],
                    (false, false) => vec![format!("{column} IN ({})", listed.join(", "))],
                }
            }
            Rule::Range { ranges, others } => {
                let others_are_here = *others == Some(shard);
                let of = ranges
                    .iter()
                    .filter(|(.., of)| (*of == shard) != others_are_here);
                let of = of.map(|(first, last, _)| between(&column, *first, *last));
                let of: Vec<String> = of.collect();
                match (of.is_empty(), others_are_here) {
                    (true, true) => return None,
                    (false, true) => vec![format!("NOT ({})", of.join(" OR "))],
                    (_, false) => of,
                }
            }
        };
        Some(match terms.is_empty() {
            true => "false".to_owned(),
            false => terms.join(" OR "),
        })
    }
}

fn between(what: &str, first: i64, last: i64) -> String {
    let mut text = String::new();
    let _ = match last {
        last if last == first => write!(text, "{what} = {first}"),
        i64::MAX => write!(text, "{what} >= {first}"),
        last => write!(text, "{what} BETWEEN {first} AND {last}"),
    };
    text
}

/// The slot of a column's value, as `satisfies_hash_partition` finds it. One expression for any number
/// of slots, while that function would have to be called for each slot of the shard.
fn slot_in_sql(key: KeyType, column: &str, slots: usize) -> String {
    let (function, cast) = match key {
        KeyType::Integer => ("hashint8extended", "bigint"),
        KeyType::Text => ("hashtextextended", "text"),
        KeyType::Uuid => ("uuid_hash_extended", "uuid"),
    };
    let (seed, added) = crate::hash::IN_SQL;
    // A bigint would overflow.
    format!(
        "mod(mod({function}({column}::{cast}, {seed})::numeric + {added} + 18446744073709551616, \
         18446744073709551616), {slots})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_say_which_values_are_on_a_shard() {
        let mut builder = Map::builder(["s0", "s1"]).expect("shards");
        for (name, text) in [
            ("list", "list text eu,'it''s'=s0 us=s1 *=s1"),
            ("strict", "list bigint 1,2=s0"),
            ("range", "range bigint 0-9,20-=s0 10-19=s1"),
            ("rest", "range bigint 5-5=s0 *=s1"),
            ("all", "hash uuid slots=4 0-3=s1"),
        ] {
            builder.distribution(name, text).expect("a distribution");
        }
        let map = builder.finish();
        for (at, expected) in [
            (
                0,
                ["\"k\" IN ('eu', 'it''s')", "\"k\" NOT IN ('eu', 'it''s')"],
            ),
            (1, ["\"k\" IN (1, 2)", "false"]),
            (
                2,
                [
                    "\"k\" BETWEEN 0 AND 9 OR \"k\" >= 20",
                    "\"k\" BETWEEN 10 AND 19",
                ],
            ),
            (3, ["\"k\" = 5", "NOT (\"k\" = 5)"]),
            (4, ["false", ""]),
        ] {
            for (shard, expected) in expected.into_iter().enumerate() {
                let found = map.condition(DistributionId(at), "k", Shard(shard as u8));
                assert_eq!(found.unwrap_or_default(), expected);
            }
        }
    }
}
