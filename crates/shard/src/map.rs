//! Which shard has which rows: the map that a user writes, checked and ready to be asked.

pub(crate) mod condition;
mod spread;

use std::collections::HashMap;
use std::fmt;

use crate::hash;
use crate::line::Line;
use crate::value::{KeyType, KeyValue};

/// A shard, by its place among the names in `shards=`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shard(pub u8);

/// The most shards of a database.
pub const MOST_SHARDS: usize = 128;

/// The most slots of a distribution.
const MOST_SLOTS: u32 = 65_536;

/// A distribution, by its place in the map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DistributionId(pub u16);

/// A set of shards.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash, Debug)]
pub struct ShardSet(u128);

impl ShardSet {
    /// The first shards, this many.
    pub fn first(count: usize) -> ShardSet {
        (0..count.min(MOST_SHARDS)).fold(ShardSet::default(), |set, shard| {
            set.with(Shard(shard as u8))
        })
    }

    /// All shards that any database can have.
    pub(crate) fn all() -> ShardSet {
        ShardSet(u128::MAX)
    }

    /// The shards that are not in the other set.
    #[must_use]
    pub(crate) fn without(self, other: ShardSet) -> ShardSet {
        ShardSet(self.0 & !other.0)
    }

    /// The shard of the set, if there is one only.
    pub(crate) fn only(self) -> Option<Shard> {
        (self.0.count_ones() == 1).then(|| Shard(self.0.trailing_zeros() as u8))
    }

    /// This set and a shard.
    #[must_use]
    pub fn with(self, shard: Shard) -> ShardSet {
        ShardSet(self.0 | 1 << (shard.0 & 127))
    }

    /// The shards of both sets.
    #[must_use]
    pub fn and(self, other: ShardSet) -> ShardSet {
        ShardSet(self.0 & other.0)
    }

    /// The shards of either set.
    #[must_use]
    pub fn or(self, other: ShardSet) -> ShardSet {
        ShardSet(self.0 | other.0)
    }

    /// True if the set has this shard.
    pub fn has(self, shard: Shard) -> bool {
        self.0 >> (shard.0 & 127) & 1 == 1
    }

    /// True if the set has no shard.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The shards in order.
    pub fn iter(self) -> impl Iterator<Item = Shard> {
        (0..MOST_SHARDS as u8)
            .map(Shard)
            .filter(move |shard| self.has(*shard))
    }
}

/// How a distribution finds the shard of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Rule {
    /// The shard of each slot.
    Hash(Vec<Shard>),
    List {
        values: HashMap<KeyValue, Shard>,
        others: Option<Shard>,
    },
    Range {
        /// First and last value, in order.
        ranges: Vec<(i64, i64, Shard)>,
        others: Option<Shard>,
    },
}

/// How the values of a key are spread over the shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distribution {
    name: String,
    key: KeyType,
    rule: Rule,
}

impl Distribution {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the keys.
    pub fn key(&self) -> KeyType {
        self.key
    }

    /// How many slots a hash has.
    pub fn slots(&self) -> Option<u32> {
        match &self.rule {
            Rule::Hash(owners) => Some(owners.len() as u32),
            _ => None,
        }
    }

    /// The slots of a shard as ranges, first and last, in order.
    pub fn slots_of(&self, shard: Shard) -> Vec<(u32, u32)> {
        let Rule::Hash(owners) = &self.rule else {
            return Vec::new();
        };
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let slots = owners.iter().zip(0..).filter(|(owner, _)| **owner == shard);
        for (_, slot) in slots {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        ranges
    }

    fn shard_of(&self, value: &KeyValue) -> Option<Shard> {
        match (&self.rule, value) {
            (Rule::Hash(owners), value) => {
                let slot = hash::slot(value, owners.len() as u32);
                owners.get(slot as usize).copied()
            }
            (Rule::List { values, others }, value) => values.get(value).copied().or(*others),
            (Rule::Range { ranges, others }, KeyValue::Int(value)) => {
                let at = ranges.partition_point(|(_, last, _)| last < value);
                let found = ranges.get(at).filter(|(first, ..)| first <= value);
                found.map(|(.., shard)| *shard).or(*others)
            }
            (Rule::Range { .. }, _) => None,
        }
    }
}

/// A value without a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoShard {
    /// The name of the distribution.
    pub distribution: String,
    /// The value.
    pub value: KeyValue,
}

impl fmt::Display for NoShard {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoShard {
            distribution,
            value,
        } = self;
        write!(
            to,
            "distribution \"{distribution}\" has no shard for {value}"
        )
    }
}

/// Where the rows of a table are.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// By the value of a column.
    Sharded {
        /// The distribution.
        by: DistributionId,
        /// The column with the key.
        column: String,
    },
    /// Every shard has all rows; writes go to the home.
    Replicated {
        /// Where rows are written.
        home: Shard,
    },
    /// On one shard.
    One(Shard),
}

/// Where tables are of which no line speaks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Unlisted {
    /// Statements with such a table are refused.
    #[default]
    Refuse,
    /// On one shard.
    On(Shard),
}

/// What a line of tables speaks of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// The schema.
    pub schema: String,
    /// The table; `None` for all tables of the schema.
    pub table: Option<String>,
}

/// The place of the tables that fit a pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableLine {
    /// The pattern.
    pub pattern: Pattern,
    /// The place.
    pub place: Place,
}

/// The map of a sharded database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    shards: Vec<String>,
    distributions: Vec<Distribution>,
    tables: Vec<TableLine>,
    unlisted: Unlisted,
    /// The parts of [`Map::spread`], which are no shards.
    is_spread: bool,
}

impl Map {
    /// Starts a map over these shards, in order.
    pub fn builder<Name: Into<String>>(
        shards: impl IntoIterator<Item = Name>,
    ) -> Result<MapBuilder, MapError> {
        let shards: Vec<String> = shards.into_iter().map(Into::into).collect();
        if shards.is_empty() || shards.len() > MOST_SHARDS {
            let message = format!("{} shards", shards.len());
            return Err(MapError::new(
                None,
                message,
                format!("name 1 to {MOST_SHARDS} shards"),
            ));
        }
        for (at, name) in shards.iter().enumerate() {
            if shards[..at].contains(name) {
                let message = format!("shard \"{name}\" stands twice");
                return Err(MapError::new(None, message, "name each shard once"));
            }
        }
        Ok(MapBuilder {
            map: Map {
                shards,
                distributions: Vec::new(),
                tables: Vec::new(),
                unlisted: Unlisted::Refuse,
                is_spread: false,
            },
        })
    }

    /// The names of the shards, in order.
    pub fn shards(&self) -> &[String] {
        &self.shards
    }

    /// The name of a shard.
    pub fn name_of(&self, shard: Shard) -> &str {
        self.shards
            .get(usize::from(shard.0))
            .map_or("?", String::as_str)
    }

    /// The shard with a name.
    pub fn shard_named(&self, name: &str) -> Option<Shard> {
        let at = self.shards.iter().position(|shard| shard == name)?;
        Some(Shard(at as u8))
    }

    /// The set of all shards.
    pub fn all(&self) -> ShardSet {
        ShardSet::first(self.shards.len())
    }

    /// The distributions, in order.
    pub fn distributions(&self) -> &[Distribution] {
        &self.distributions
    }

    /// A distribution.
    pub fn distribution(&self, by: DistributionId) -> Option<&Distribution> {
        self.distributions.get(usize::from(by.0))
    }

    /// The distribution with a name.
    pub fn distribution_named(&self, name: &str) -> Option<DistributionId> {
        let mut names = self.distributions.iter().map(Distribution::name);
        names
            .position(|other| other == name)
            .map(|at| DistributionId(at as u16))
    }

    /// The lines of tables, in order.
    pub fn tables(&self) -> &[TableLine] {
        &self.tables
    }

    /// Where tables are of which no line speaks.
    pub fn unlisted(&self) -> Unlisted {
        self.unlisted
    }

    /// The shard that has the rows with a value.
    pub fn shard_of(&self, by: DistributionId, value: &KeyValue) -> Result<Shard, NoShard> {
        let distribution = self.distribution(by);
        let shard = distribution.and_then(|distribution| distribution.shard_of(value));
        shard.ok_or_else(|| NoShard {
            distribution: distribution.map_or_else(String::new, |found| found.name.clone()),
            value: value.clone(),
        })
    }
}

/// What is wrong with a map, and the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapError {
    /// Where in the text, in bytes from its beginning.
    pub position: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl MapError {
    pub(crate) fn new(
        position: impl Into<Option<usize>>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> MapError {
        MapError {
            position: position.into(),
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MapError {
            position,
            message,
            remedy,
        } = self;
        match position {
            Some(at) => write!(to, "{message} (at character {}): {remedy}", at + 1),
            None => write!(to, "{message}: {remedy}"),
        }
    }
}

/// Builds a map from the lines that a user wrote.
#[derive(Debug)]
pub struct MapBuilder {
    map: Map,
}

impl MapBuilder {
    /// Adds a distribution: `hash bigint slots=64 0-31=prod_0 32-63=prod_1`,
    /// `list text eu,uk=prod_0 us=prod_1 *=prod_1`, or `range bigint 0-999=prod_0 1000-=prod_1`.
    pub fn distribution(&mut self, name: &str, text: &str) -> Result<(), MapError> {
        if name.is_empty() || name == "replicated" || name.contains([':', '(', ')']) {
            let message = format!("a distribution can't be named \"{name}\"");
            return Err(MapError::new(None, message, "choose another name"));
        }
        if self.map.distribution_named(name).is_some() {
            let message = format!("distribution \"{name}\" stands twice");
            return Err(MapError::new(None, message, "write each distribution once"));
        }
        if self.map.distributions.len() >= usize::from(u16::MAX) {
            return Err(MapError::new(
                None,
                "too many distributions",
                "write at most 65535",
            ));
        }
        let mut line = Line::new(text);
        let kind_at = line.position();
        let kind = line.word();
        let type_at = line.position();
        let key = KeyType::of_name(line.word()).ok_or_else(|| {
            MapError::new(
                type_at,
                "the type of the key is missing or unknown",
                "write bigint, integer, smallint, text, varchar or uuid behind the kind",
            )
        })?;
        let rule = match kind {
            "hash" => self.hash_rule(&mut line)?,
            "list" => self.list_rule(&mut line, key)?,
            "range" if key == KeyType::Integer => self.range_rule(&mut line)?,
            "range" => {
                let remedy = "use list or hash for keys that are no integers";
                return Err(MapError::new(type_at, "ranges have integers only", remedy));
            }
            _ => {
                let message = format!("\"{kind}\" is no kind of distribution");
                return Err(MapError::new(
                    kind_at,
                    message,
                    "begin with hash, list or range",
                ));
            }
        };
        self.map.distributions.push(Distribution {
            name: name.into(),
            key,
            rule,
        });
        Ok(())
    }

    /// Adds a line of tables: `public.*` or `public.accounts`, and `tenant(account_id)`,
    /// `replicated(prod_0)` or `prod_0`.
    pub fn table(&mut self, pattern: &str, place: &str) -> Result<(), MapError> {
        let pattern = read_pattern(pattern)?;
        if self.map.tables.iter().any(|line| line.pattern == pattern) {
            let remedy = "write one line for a pattern: the first that fits a table counts";
            return Err(MapError::new(None, "this pattern stands twice", remedy));
        }
        let place = self.read_place(place)?;
        self.map.tables.push(TableLine { pattern, place });
        Ok(())
    }

    /// Sets where tables are of which no line speaks: `refuse`, or a shard.
    pub fn unlisted_tables(&mut self, text: &str) -> Result<(), MapError> {
        self.map.unlisted = match text.trim() {
            "refuse" => Unlisted::Refuse,
            name => Unlisted::On(self.shard(name, 0)?),
        };
        Ok(())
    }

    /// The map.
    pub fn finish(self) -> Map {
        self.map
    }

    fn shard(&self, name: &str, position: usize) -> Result<Shard, MapError> {
        self.map.shard_named(name).ok_or_else(|| {
            let known = self.map.shards.join(", ");
            let message = format!("\"{name}\" is no shard of this database");
            MapError::new(
                position,
                message,
                format!("name one of its shards: {known}"),
            )
        })
    }

    /// `slots=64 0-31=prod_0 32-63=prod_1`
    fn hash_rule(&self, line: &mut Line<'_>) -> Result<Rule, MapError> {
        let at = line.position();
        let count = line
            .word()
            .strip_prefix("slots=")
            .and_then(|count| count.parse().ok());
        let count: u32 = count.filter(|count| (1..=MOST_SLOTS).contains(count)).ok_or_else(|| {
            MapError::new(
                at,
                "the number of slots is missing",
                format!("write slots=64 behind the type (1 to {MOST_SLOTS}): the number never changes"),
            )
        })?;
        let mut owners: Vec<Option<Shard>> = vec![None; count as usize];
        while let Some(rule) = line.rule()? {
            let shard = self.shard(&rule.shard, rule.shard_at)?;
            for item in &rule.values {
                if item.is_star() {
                    let remedy = "give each slot to a shard: the star is for list and range";
                    return Err(MapError::new(item.at, "a hash has no other values", remedy));
                }
                let (first, last) = item.range()?;
                let last = last.unwrap_or(i64::from(count) - 1);
                if first < 0 || last >= i64::from(count) || first > last {
                    let message = format!("slots {first}-{last} are not in 0-{}", count - 1);
                    return Err(MapError::new(item.at, message, "write slots from 0 on"));
                }
                for slot in first..=last {
                    if owners[slot as usize].replace(shard).is_some() {
                        let message = format!("slot {slot} is given twice");
                        return Err(MapError::new(
                            item.at,
                            message,
                            "give each slot to one shard",
                        ));
                    }
                }
            }
        }
        let owned: Option<Vec<Shard>> = owners.iter().copied().collect();
        owned.map(Rule::Hash).ok_or_else(|| {
            let slot = owners.iter().position(Option::is_none).unwrap_or_default();
            let message = format!("slot {slot} has no shard");
            MapError::new(
                line.position(),
                message,
                format!("give the slots 0-{} to shards", count - 1),
            )
        })
    }

    /// `eu,uk=prod_0 us=prod_1 *=prod_1`
    fn list_rule(&self, line: &mut Line<'_>, key: KeyType) -> Result<Rule, MapError> {
        let (mut values, mut others) = (HashMap::new(), None);
        while let Some(rule) = line.rule()? {
            let shard = self.shard(&rule.shard, rule.shard_at)?;
            for item in &rule.values {
                if item.is_star() {
                    set_others(&mut others, shard, item.at)?;
                    continue;
                }
                let value = KeyValue::of_literal(key, item.text.as_bytes()).map_err(|error| {
                    MapError::new(item.at, error.0, "write values of the distribution's type")
                })?;
                if values.insert(value, shard).is_some() {
                    let message = format!("value {} is given twice", item.text);
                    return Err(MapError::new(
                        item.at,
                        message,
                        "give each value to one shard",
                    ));
                }
            }
        }
        if values.is_empty() && others.is_none() {
            let remedy = "write values and their shard: eu,uk=prod_0";
            return Err(MapError::new(
                line.position(),
                "the list has no values",
                remedy,
            ));
        }
        Ok(Rule::List { values, others })
    }

    /// `0-999=prod_0 1000-=prod_1 *=prod_0`
    fn range_rule(&self, line: &mut Line<'_>) -> Result<Rule, MapError> {
        let (mut found, mut others) = (Vec::new(), None);
        while let Some(rule) = line.rule()? {
            let shard = self.shard(&rule.shard, rule.shard_at)?;
            for item in &rule.values {
                if item.is_star() {
                    set_others(&mut others, shard, item.at)?;
                    continue;
                }
                let (first, last) = item.range()?;
                let last = last.unwrap_or(i64::MAX);
                if first > last {
                    let message = format!("range {} ends before its beginning", item.text);
                    return Err(MapError::new(
                        item.at,
                        message,
                        "write the lower value first",
                    ));
                }
                found.push((first, last, shard, item.at));
            }
        }
        if found.is_empty() && others.is_none() {
            let remedy = "write ranges and their shard: 0-999=prod_0 1000-=prod_1";
            return Err(MapError::new(line.position(), "there is no range", remedy));
        }
        found.sort_unstable();
        for pair in found.windows(2) {
            if pair[1].0 <= pair[0].1 {
                let message = format!("two ranges have the value {}", pair[1].0);
                let remedy = "give each value to one range: first and last are both in a range";
                return Err(MapError::new(pair[0].3.max(pair[1].3), message, remedy));
            }
        }
        let ranges = found
            .into_iter()
            .map(|(first, last, shard, _)| (first, last, shard));
        Ok(Rule::Range {
            ranges: ranges.collect(),
            others,
        })
    }

    fn read_place(&self, text: &str) -> Result<Place, MapError> {
        let start = text.len() - text.trim_start().len();
        let text = text.trim();
        let Some((name, rest)) = text.split_once('(') else {
            return Ok(Place::One(self.shard(text, start)?));
        };
        let inside_at = start + name.len() + 1;
        let inside = rest.strip_suffix(')').ok_or_else(|| {
            MapError::new(
                start + text.len(),
                "the parenthesis does not end",
                "end the place with )",
            )
        })?;
        if name.trim() == "replicated" {
            let home = self.shard(inside.trim(), inside_at)?;
            return Ok(Place::Replicated { home });
        }
        let by = self.map.distribution_named(name.trim()).ok_or_else(|| {
            let message = format!("there is no distribution \"{}\"", name.trim());
            MapError::new(
                start,
                message,
                "name a distribution of this database, or replicated",
            )
        })?;
        let (column, rest) = read_name(inside.trim_start(), inside_at)?;
        if !rest.trim().is_empty() {
            let remedy = "name the one column that has the key";
            return Err(MapError::new(inside_at, "a key has one column", remedy));
        }
        Ok(Place::Sharded { by, column })
    }
}

fn set_others(others: &mut Option<Shard>, shard: Shard, at: usize) -> Result<(), MapError> {
    match others.replace(shard) {
        None => Ok(()),
        Some(_) => Err(MapError::new(
            at,
            "the star stands twice",
            "give the other values to one shard",
        )),
    }
}

/// `schema.table` or `schema.*`
fn read_pattern(text: &str) -> Result<Pattern, MapError> {
    let bad =
        |at: usize| MapError::new(at, "no pattern of tables", "write schema.table or schema.*");
    let trimmed = text.trim();
    let (schema, rest) = read_name(trimmed, 0)?;
    let rest = rest
        .strip_prefix('.')
        .ok_or_else(|| bad(trimmed.len() - rest.len()))?;
    if rest == "*" {
        return Ok(Pattern {
            schema,
            table: None,
        });
    }
    let at = trimmed.len() - rest.len();
    let (table, rest) = read_name(rest, at)?;
    if !rest.is_empty() {
        return Err(bad(trimmed.len() - rest.len()));
    }
    Ok(Pattern {
        schema,
        table: Some(table),
    })
}

/// A name as PostgreSQL reads names: in lower case, unless in double quotes; and the text behind.
fn read_name(text: &str, at: usize) -> Result<(String, &str), MapError> {
    if let Some(mut rest) = text.strip_prefix('"') {
        let mut name = String::new();
        loop {
            let (part, behind) = rest.split_once('"').ok_or_else(|| {
                MapError::new(
                    at,
                    "the quoted name does not end",
                    "end the name with a double quote",
                )
            })?;
            name.push_str(part);
            let Some(more) = behind.strip_prefix('"') else {
                return Ok((name, behind));
            };
            name.push('"');
            rest = more;
        }
    }
    let is_part = |character: char| character.is_alphanumeric() || "_$".contains(character);
    let end = text
        .find(|character| !is_part(character))
        .unwrap_or(text.len());
    if end == 0 {
        let remedy = "write a name; quote a name with other characters by double quotes";
        return Err(MapError::new(at, "a name is missing", remedy));
    }
    Ok((text[..end].to_ascii_lowercase(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> MapBuilder {
        Map::builder(["prod_0", "prod_1"]).expect("two shards")
    }

    fn shards(text: &str, values: &[&str]) -> String {
        let mut builder = builder();
        builder
            .distribution("d", text)
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let map = builder.finish();
        let key = map.distributions()[0].key();
        let mut found = Vec::new();
        for value in values {
            let value = KeyValue::of_literal(key, value.as_bytes()).expect("a value");
            let shard = map.shard_of(DistributionId(0), &value);
            found.push(shard.map_or("none".into(), |shard| shard.0.to_string()));
        }
        found.join(" ")
    }

    #[test]
    fn distributions() {
        for (text, values, expected) in [
            (
                "hash bigint slots=64 0-31=prod_0 32-63=prod_1",
                &["0", "1", "-1"][..],
                "1 1 1",
            ),
            (
                "hash bigint slots=64 0-36,38-63=prod_0 37=prod_1",
                &["0", "-1"],
                "0 1",
            ),
            (
                "hash bigint slots=7 0-3=prod_0 4-=prod_1",
                &["0", "-1"],
                "1 0",
            ),
            (
                "list text eu,uk=prod_0 us=prod_1",
                &["eu", "uk", "us", "fr"],
                "0 0 1 none",
            ),
            ("list text eu=prod_0 *=prod_1", &["eu", "fr"], "0 1"),
            (
                "list text 'a b','it''s'=prod_0 '*'=prod_1",
                &["a b", "it's", "*", "x"],
                "0 0 1 none",
            ),
            (
                "list bigint 1,-2=prod_0 3=prod_1",
                &["1", "-2", "3"],
                "0 0 1",
            ),
            (
                "range bigint 0-999=prod_0 1000-=prod_1",
                &["-1", "0", "999", "1000", "9223372036854775807"],
                "none 0 0 1 1",
            ),
            (
                "range int -10--5=prod_1 7=prod_1 *=prod_0",
                &["-11", "-10", "-5", "-4", "7"],
                "0 1 1 0 1",
            ),
        ] {
            assert_eq!(shards(text, values), expected, "{text}");
        }
    }

    #[test]
    fn faults_of_distributions() {
        for (text, expected) in [
            (
                "",
                "the type of the key is missing or unknown (at character 1)",
            ),
            (
                "hash",
                "the type of the key is missing or unknown (at character 5)",
            ),
            (
                "hash float slots=2 0=prod_0 1=prod_1",
                "the type of the key is missing or unknown (at character 6)",
            ),
            (
                "modulo bigint 0=prod_0",
                "\"modulo\" is no kind of distribution (at character 1)",
            ),
            (
                "hash bigint 0-31=prod_0",
                "the number of slots is missing (at character 13)",
            ),
            (
                "hash bigint slots=0",
                "the number of slots is missing (at character 13)",
            ),
            (
                "hash bigint slots=2 0=prod_0 0=prod_1",
                "slot 0 is given twice (at character 30)",
            ),
            (
                "hash bigint slots=2 0=prod_0",
                "slot 1 has no shard (at character 29)",
            ),
            (
                "hash bigint slots=2 0-1=prod_9",
                "\"prod_9\" is no shard of this database (at character 25)",
            ),
            (
                "hash bigint slots=2 0-2=prod_0",
                "slots 0-2 are not in 0-1 (at character 21)",
            ),
            (
                "hash bigint slots=2 0=prod_0 *=prod_1",
                "a hash has no other values (at character 30)",
            ),
            (
                "hash bigint slots=2 0-1",
                "a value has no shard (at character 21)",
            ),
            (
                "hash bigint slots=2 a=prod_0",
                "\"a\" is no range of integers (at character 21)",
            ),
            ("list text", "the list has no values (at character 10)"),
            (
                "list text eu=prod_0 eu=prod_1",
                "value eu is given twice (at character 21)",
            ),
            (
                "list text *=prod_0 *=prod_1",
                "the star stands twice (at character 20)",
            ),
            (
                "list text 'eu=prod_0",
                "a quoted value does not end (at character 11)",
            ),
            (
                "list text eu,=prod_0",
                "a value is missing (at character 14)",
            ),
            (
                "list bigint eu=prod_0",
                "'eu' is not a bigint in decimal digits (at character 13)",
            ),
            (
                "range text a-b=prod_0",
                "ranges have integers only (at character 7)",
            ),
            (
                "range bigint 0-10=prod_0 10-20=prod_1",
                "two ranges have the value 10 (at character 26)",
            ),
            (
                "range bigint 10-5=prod_0",
                "range 10-5 ends before its beginning (at character 14)",
            ),
            ("range bigint", "there is no range (at character 13)"),
        ] {
            let error = builder()
                .distribution("d", text)
                .expect_err(text)
                .to_string();
            assert!(error.starts_with(expected), "{text}\n{error}");
        }
        let mut twice = builder();
        twice
            .distribution("d", "list text *=prod_0")
            .expect("a distribution");
        assert!(twice.distribution("d", "list text *=prod_0").is_err());
        assert!(
            twice
                .distribution("replicated", "list text *=prod_0")
                .is_err()
        );
        assert!(Map::builder(["a", "a"]).is_err());
        assert!(Map::builder(Vec::<String>::new()).is_err());
    }

    #[test]
    fn tables() {
        let mut builder = builder();
        builder
            .distribution("tenant", "list text *=prod_0")
            .expect("a distribution");
        for (pattern, place) in [
            ("public.*", "tenant(account_id)"),
            (r#""My Schema"."T""x""#, r#"tenant("Key")"#),
            ("Public.Countries", " replicated( prod_0 ) "),
            ("customer_a.*", "prod_1"),
        ] {
            builder
                .table(pattern, place)
                .unwrap_or_else(|error| panic!("{pattern}: {error}"));
        }
        for (pattern, place, expected) in [
            ("public", "prod_0", "no pattern of tables (at character 7)"),
            ("public.", "prod_0", "a name is missing (at character 8)"),
            (
                "public.a.b",
                "prod_0",
                "no pattern of tables (at character 9)",
            ),
            ("*.a", "prod_0", "a name is missing (at character 1)"),
            (
                "\"a.b",
                "prod_0",
                "the quoted name does not end (at character 1)",
            ),
            ("public.*", "prod_0", "this pattern stands twice"),
            (
                "a.b",
                "prod_9",
                "\"prod_9\" is no shard of this database (at character 1)",
            ),
            (
                "a.b",
                "tenants(a)",
                "there is no distribution \"tenants\" (at character 1)",
            ),
            (
                "a.b",
                "tenant(a",
                "the parenthesis does not end (at character 9)",
            ),
            ("a.b", "tenant()", "a name is missing (at character 8)"),
            (
                "a.b",
                "tenant(a, b)",
                "a key has one column (at character 8)",
            ),
            (
                "a.b",
                "replicated(b)",
                "\"b\" is no shard of this database (at character 12)",
            ),
        ] {
            let error = builder
                .table(pattern, place)
                .expect_err(pattern)
                .to_string();
            assert!(error.starts_with(expected), "{pattern} {place}\n{error}");
        }
        builder.unlisted_tables("prod_1").expect("a shard");
        assert!(builder.unlisted_tables("nowhere").is_err());
        let map = builder.finish();
        assert_eq!(map.unlisted(), Unlisted::On(Shard(1)));
        assert_eq!(map.tables().len(), 4);
        assert_eq!(map.tables()[1].pattern.table.as_deref(), Some("T\"x"));
        assert_eq!(
            map.tables()[1].place,
            Place::Sharded {
                by: DistributionId(0),
                column: "Key".into()
            }
        );
        assert_eq!(map.tables()[2].place, Place::Replicated { home: Shard(0) });
    }

    #[test]
    fn slots_of_a_shard() {
        let mut builder = builder();
        let text = "hash uuid slots=8 0,2-4=prod_0 1,5-=prod_1";
        builder.distribution("d", text).expect("a distribution");
        let map = builder.finish();
        assert_eq!(map.distributions()[0].slots_of(Shard(0)), [(0, 0), (2, 4)]);
        assert_eq!(map.distributions()[0].slots_of(Shard(1)), [(1, 1), (5, 7)]);
    }
}
