//! A map of one shard as if there were several: what would be refused then is told before there are.

use super::{Distribution, Map, Rule, Shard};

/// How many parts a spread map has. More parts miss less; a shard of the map is one part of many.
const PARTS: usize = 8;

impl Map {
    /// The map as if its values lay on several shards, by slots, listed values or ranges. Tables on one
    /// shard, and the homes of replicated tables, are in the first part.
    #[must_use]
    pub fn spread(&self) -> Map {
        Map {
            shards: (1..=PARTS).map(|part| format!("part {part}")).collect(),
            distributions: self
                .distributions
                .iter()
                .map(Distribution::spread)
                .collect(),
            is_spread: true,
            ..self.clone()
        }
    }

    /// True for a map that [`Map::spread`] has made.
    pub(crate) fn is_spread(&self) -> bool {
        self.is_spread
    }
}

fn part(at: usize) -> Shard {
    Shard((at % PARTS) as u8)
}

impl Distribution {
    fn spread(&self) -> Distribution {
        let others = |others: Option<Shard>| others.map(|_| part(PARTS - 1));
        let rule = match &self.rule {
            Rule::Hash(owners) => Rule::Hash((0..owners.len()).map(part).collect()),
            Rule::List { values, others: of } => {
                let mut sorted: Vec<_> = values.keys().cloned().collect();
                sorted.sort_by_cached_key(ToString::to_string);
                let values = sorted.into_iter().enumerate();
                Rule::List {
                    values: values.map(|(at, value)| (value, part(at))).collect(),
                    others: others(*of),
                }
            }
            Rule::Range { ranges, others: of } => {
                let parts = ranges.iter().enumerate();
                let parts = parts.map(|(at, (first, last, _))| (*first, *last, part(at)));
                Rule::Range {
                    ranges: parts.collect(),
                    others: others(*of),
                }
            }
        };
        Distribution {
            rule,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::DistributionId;
    use crate::value::KeyValue;

    #[test]
    fn values_of_one_shard_are_in_several_parts() {
        for text in [
            "hash bigint slots=64 0-63=s0",
            "list bigint 1,2,3=s0 *=s0",
            "range bigint 0-1=s0 2-2=s0 3-=s0",
        ] {
            let mut builder = Map::builder(["s0"]).expect("a shard");
            builder.distribution("d", text).expect("a distribution");
            let map = builder.finish();
            let spread = map.spread();
            let part = |value| {
                let value = KeyValue::Int(value);
                assert_eq!(map.shard_of(DistributionId(0), &value), Ok(Shard(0)));
                spread.shard_of(DistributionId(0), &value).expect("a part")
            };
            let parts = std::collections::HashSet::from([1, 2, 3].map(part));
            assert_eq!(parts.len(), 3, "{text}");
            assert_eq!(part(2), part(2));
        }
    }
}
