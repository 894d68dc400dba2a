//! The catalogues of all shards as one, and the look-up of names, as PostgreSQL does it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::map::{DistributionId, Map, Place, Shard, ShardSet, TableLine, Unlisted};
use crate::planner::Names;
use crate::refusal::{Refusal, RefusalReason, SAY_SHARD};
use crate::shard_catalogue::{Column, FunctionFacts, Relation, RelationKind, ShardCatalogue};
use crate::value::KeyType;

/// The first OID of what is not built in.
const FIRST_NORMAL_OID: u32 = 16_384;

/// A column over all shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommonColumn {
    /// The column, as the first shard has it.
    pub column: Column,
    /// Every shard with the table has the column, and of the same type.
    pub everywhere: bool,
}

/// A table over all shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// The table, as the first shard has it.
    pub relation: Relation,
    /// The shards that have the table.
    pub shards: ShardSet,
    /// All columns, in the order of the shards.
    pub columns: Vec<CommonColumn>,
    /// Every shard has the same columns in the same order.
    pub same_columns: bool,
    /// What makes answers wrong on some shard.
    pub fault: Option<String>,
    /// Tables that inherit from this one, but for partitions.
    children: Vec<(String, String)>,
}

impl Table {
    /// The name with its schema.
    pub fn name(&self) -> String {
        format!("{}.{}", self.relation.schema, self.relation.name)
    }

    /// A column by its name.
    pub fn column(&self, name: &str) -> Option<&CommonColumn> {
        self.columns
            .iter()
            .find(|column| column.column.name == name)
    }
}

/// Where a table's rows are, by map and catalogue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TablePlace {
    /// PostgreSQL's own tables.
    Catalogue,
    /// By a key.
    Sharded {
        /// The distribution.
        by: DistributionId,
        /// The column with the key.
        column: String,
        /// The type of the key.
        key: KeyType,
    },
    /// On all shards.
    Replicated {
        /// Where rows are written.
        home: Shard,
    },
    /// On one shard.
    One(Shard),
}

/// A search path, ready for look-ups.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// The schemas in order, with pg_catalog.
    pub schemas: Vec<String>,
    role: String,
    /// The shards on which the login's default is not another path.
    shards: ShardSet,
}

impl Path {
    /// True if nothing comes before what is built in.
    pub fn catalog_first(&self) -> bool {
        self.schemas
            .first()
            .is_some_and(|first| first == "pg_catalog")
    }
}

/// The catalogues of all shards.
#[derive(Debug)]
pub struct Catalogue {
    number: u64,
    shards: Vec<Option<Arc<ShardCatalogue>>>,
    /// By schema, then name.
    tables: HashMap<String, HashMap<String, Table>>,
    operators: HashSet<String>,
    other_equals: bool,
}

impl Catalogue {
    /// The catalogue of these shards, in the map's order; `None` is a shard that was never read,
    /// which is taken to be like the others. Each catalogue of a database has its own number.
    pub fn new(number: u64, shards: Vec<Option<Arc<ShardCatalogue>>>) -> Catalogue {
        let mut tables: HashMap<String, HashMap<String, Table>> = HashMap::new();
        let mut unread = ShardSet::default();
        let mut operators = HashSet::new();
        let mut other_equals = false;
        for (catalogue, shard) in shards.iter().zip(0..) {
            let shard = Shard(shard);
            let Some(catalogue) = catalogue else {
                unread = unread.with(shard);
                continue;
            };
            operators.extend(catalogue.operators.iter().cloned());
            other_equals |= catalogue.other_equals;
            for relation in &catalogue.relations {
                let of_schema = tables.entry(relation.schema.clone()).or_default();
                match of_schema.get_mut(&relation.name) {
                    Some(table) => table.add(relation, shard),
                    None => {
                        of_schema.insert(relation.name.clone(), Table::new(relation, shard));
                    }
                }
            }
        }
        let mut children: Vec<((String, String), (String, String))> = Vec::new();
        for table in tables.values_mut().flat_map(HashMap::values_mut) {
            table.shards = table.shards.or(unread);
            let relation = &table.relation;
            if !relation.is_partition {
                let child = (relation.schema.clone(), relation.name.clone());
                let parents = relation.parents.iter().cloned();
                children.extend(parents.map(|parent| (parent, child.clone())));
            }
        }
        for ((schema, name), child) in children {
            let parent = tables
                .get_mut(&schema)
                .and_then(|tables| tables.get_mut(&name));
            parent
                .into_iter()
                .for_each(|parent| parent.children.push(child.clone()));
        }
        Catalogue {
            number,
            shards,
            tables,
            operators,
            other_equals,
        }
    }

    /// True if some `=` that is not built in compares types of keys: PostgreSQL may take that one,
    /// wherever its schema is in the path.
    pub fn has_other_equals(&self) -> bool {
        self.other_equals
    }

    /// The number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// True if an operator with this name, outside of PostgreSQL and its extensions, may read tables.
    pub fn may_operator_read(&self, name: &str) -> bool {
        self.operators.contains(name)
    }

    /// All tables, by schema and name.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        let sorted: BTreeMap<_, _> = (self.tables.values().flat_map(HashMap::values))
            .map(|table| ((&table.relation.schema, &table.relation.name), table))
            .collect();
        sorted.into_values()
    }

    pub(crate) fn known(&self) -> impl Iterator<Item = (Shard, Option<&ShardCatalogue>)> {
        let shards = self.shards.iter().zip(0..);
        shards.map(|(catalogue, shard)| (Shard(shard), catalogue.as_deref()))
    }

    /// The path in which a client's names are looked up.
    pub fn path(&self, names: &Names<'_>) -> Path {
        let (role, search_path) = (names.role, names.search_path);
        let default = || {
            self.known()
                .find_map(|(_, known)| known)
                .map(|known| known.path_of(names.login))
        };
        let written = search_path.or_else(default).unwrap_or("\"$user\", public");
        let mut schemas = Vec::new();
        for name in path_items(written) {
            let name = if name == "$user" {
                role.to_owned()
            } else {
                name
            };
            // Temporary tables are the pooler's matter.
            if name != "pg_temp" && !schemas.contains(&name) {
                schemas.push(name);
            }
        }
        if !schemas.iter().any(|name| name == "pg_catalog") {
            schemas.insert(0, "pg_catalog".into());
        }
        let is_default = search_path.is_none();
        let shards = self.known().filter(|(_, known)| {
            !is_default || known.is_none_or(|known| known.path_of(names.login) == written)
        });
        Path {
            schemas,
            role: role.to_owned(),
            shards: shards.fold(ShardSet::default(), |set, (shard, _)| set.with(shard)),
        }
    }

    /// The shards on which a role may use a schema. A shard that was never read is like the others.
    fn usable(&self, schema: &str, role: &str) -> ShardSet {
        let (mut usable, mut unread) = (ShardSet::default(), ShardSet::default());
        for (shard, known) in self.known() {
            match known {
                Some(known) if known.may_use(role, schema) => usable = usable.with(shard),
                Some(_) => {}
                None => unread = unread.with(shard),
            }
        }
        if usable.is_empty() {
            usable
        } else {
            usable.or(unread)
        }
    }

    /// The table with a name, and the shards on which the name means this table.
    pub fn table(
        &self,
        path: &Path,
        schema: Option<&str>,
        name: &str,
    ) -> Option<(&Table, ShardSet)> {
        let one;
        let (schemas, alike) = match schema {
            Some(schema) => {
                one = [schema.to_owned()];
                (&one[..], ShardSet::first(self.shards.len()))
            }
            None => (&path.schemas[..], path.shards),
        };
        schemas.iter().find_map(|schema| {
            let table = self.tables.get(schema)?.get(name)?;
            let shards = table.shards.and(self.usable(schema, &path.role));
            (!shards.is_empty()).then_some((table, shards.and(alike)))
        })
    }

    /// What is true of the functions that a call may mean, by their schema.
    pub(crate) fn functions(
        &self,
        path: &Path,
        schema: Option<&str>,
        name: &str,
    ) -> BTreeMap<&str, FunctionFacts> {
        let is_seen = |of: &str| match schema {
            Some(schema) => of == schema,
            None => path.schemas.iter().any(|schema| schema == of),
        };
        let mut found: BTreeMap<&str, FunctionFacts> = BTreeMap::new();
        let known = self.known().filter_map(|(_, known)| known);
        for (of, facts) in known
            .filter_map(|known| known.functions.get(name))
            .flatten()
        {
            if is_seen(of) {
                let common = found.entry(of).or_insert(*facts);
                *common = common.and(*facts);
            }
        }
        found
    }

    /// The encoding of the shards; `None` if no shard was read, or if they have several.
    pub fn encoding(&self) -> Option<&str> {
        let mut encodings = self
            .known()
            .filter_map(|(_, known)| Some(known?.encoding.as_str()));
        let first = encodings.next()?;
        encodings.all(|other| other == first).then_some(first)
    }

    /// Where a table's rows are.
    pub fn place(&self, map: &Map, table: &Table) -> Result<TablePlace, Refusal> {
        let root = self.root(table);
        let schema = root.relation.schema.as_str();
        if matches!(schema, "pg_catalog" | "information_schema") {
            return Ok(TablePlace::Catalogue);
        }
        let line = self.line(map, root);
        let is_on_one = match line {
            Some(line) => matches!(line.place, Place::One(_)),
            None => map.unlisted() != Unlisted::Refuse,
        };
        if !is_on_one && let Some(fault) = root.fault.as_ref().or(table.fault.as_ref()) {
            return Err(closed(root, fault));
        }
        let Some(line) = line else {
            return self.unlisted(map, root);
        };
        let place = match &line.place {
            Place::One(shard) => TablePlace::One(*shard),
            Place::Replicated { home } => TablePlace::Replicated { home: *home },
            Place::Sharded { by, column } => self.sharded(map, root, *by, column)?,
        };
        for (schema, name) in &root.children {
            let child = self.tables.get(schema).and_then(|tables| tables.get(name));
            let other = child.map(|child| self.place(map, child)).transpose()?;
            if other.is_some_and(|other| other != place) {
                let fault = format!("\"{schema}.{name}\" inherits from it and has another place");
                return Err(closed(root, &fault));
            }
        }
        Ok(place)
    }

    /// The table with a schema and a name.
    pub(crate) fn named(&self, schema: &str, name: &str) -> Option<&Table> {
        self.tables.get(schema)?.get(name)
    }

    /// The line of the map that speaks of a table. A partition is where its parent is.
    pub fn line<'a>(&self, map: &'a Map, table: &Table) -> Option<&'a TableLine> {
        let root = self.root(table);
        map.tables().iter().find(|line| fits(line, root))
    }

    /// Where a table is of which no line speaks.
    fn unlisted(&self, map: &Map, root: &Table) -> Result<TablePlace, Refusal> {
        // Its rows may be those of tables on other shards.
        if matches!(
            root.relation.kind,
            RelationKind::View | RelationKind::Foreign
        ) {
            let message = format!("the place of \"{}\" is not known", root.name());
            return Err(Refusal::unproved(message)
                .because(RefusalReason::Unlisted)
                .detail("A view or foreign table needs a line of its own.")
                .hint("Write a line with the name among the map's tables."));
        }
        match map.unlisted() {
            Unlisted::On(shard) => Ok(TablePlace::One(shard)),
            Unlisted::Refuse => {
                let message = format!("the place of \"{}\" is not known", root.name());
                Err(Refusal::unproved(message)
                    .because(RefusalReason::Unlisted)
                    .detail(format!(
                        "No line of the map's tables fits \"{}\".",
                        root.name()
                    ))
                    .hint("Write a line for the table, or set unlisted_tables."))
            }
        }
    }

    fn sharded(
        &self,
        map: &Map,
        table: &Table,
        by: DistributionId,
        column: &str,
    ) -> Result<TablePlace, Refusal> {
        let fault = |what: &str| Err(closed(table, &format!("its key \"{column}\" {what}")));
        let Some(found) = table.column(column) else {
            return fault("does not exist");
        };
        let Some(distribution) = map.distribution(by) else {
            return fault("has no distribution");
        };
        if !found.everywhere {
            return fault("is missing or of another type on another shard");
        }
        if KeyType::of_oid(found.column.of) != Some(distribution.key()) {
            return fault(&format!(
                "is not of the distribution's type {}",
                distribution.key()
            ));
        }
        if distribution.key() == KeyType::Text && self.encoding().is_none() {
            return fault("is a text, and the shards have several encodings");
        }
        if found.column.generated {
            return fault("is generated from other columns");
        }
        if !found.column.deterministic {
            return fault("has a nondeterministic collation");
        }
        if !found.column.not_null && table.relation.kind == RelationKind::Table {
            return fault("may be NULL: declare it NOT NULL");
        }
        Ok(TablePlace::Sharded {
            by,
            column: column.to_owned(),
            key: distribution.key(),
        })
    }

    /// The table of which a table is a partition, or the table itself.
    pub(crate) fn root<'a>(&'a self, table: &'a Table) -> &'a Table {
        let mut root = table;
        // More levels than anybody has.
        for _ in 0..64 {
            let parent = root
                .relation
                .parents
                .first()
                .filter(|_| root.relation.is_partition);
            let parent = parent.and_then(|(schema, name)| self.tables.get(schema)?.get(name));
            match parent {
                Some(parent) => root = parent,
                None => break,
            }
        }
        root
    }
}

/// The names in a value of `search_path`.
fn path_items(written: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = written.trim();
    while !rest.is_empty() {
        let mut name = String::new();
        if let Some(mut quoted) = rest.strip_prefix('"') {
            loop {
                let (part, behind) = quoted.split_once('"').unwrap_or((quoted, ""));
                name.push_str(part);
                match behind.strip_prefix('"') {
                    Some(more) => (quoted, _) = (more, name.push('"')),
                    None => break rest = behind,
                }
            }
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            name = rest[..end].trim().to_ascii_lowercase();
            rest = &rest[end..];
        }
        rest = rest
            .trim_start()
            .strip_prefix(',')
            .unwrap_or_default()
            .trim_start();
        if !name.is_empty() {
            names.push(name);
        }
    }
    names
}

impl Table {
    fn new(relation: &Relation, shard: Shard) -> Table {
        let columns = relation.columns.iter().map(|column| CommonColumn {
            column: column.clone(),
            everywhere: true,
        });
        Table {
            shards: ShardSet::default().with(shard),
            columns: columns.collect(),
            same_columns: true,
            fault: None,
            children: Vec::new(),
            relation: relation.clone(),
        }
    }

    /// True if the columns that both have are in one order.
    fn has_order_of(&self, other: &[Column]) -> bool {
        let mine = self.columns.iter().map(|column| &column.column);
        let (mut at_most, mine) = (0, mine.collect::<Vec<_>>());
        other.iter().all(|column| {
            let at = mine.iter().position(|mine| mine.name == column.name);
            let is_behind = at.is_none_or(|at| at >= at_most);
            at_most = at.map_or(at_most, |at| at + 1);
            is_behind
        })
    }

    /// Adds the table of another shard.
    fn add(&mut self, other: &Relation, shard: Shard) {
        self.shards = self.shards.with(shard);
        let mine = &self.relation;
        if mine.kind != other.kind || mine.is_partition != other.is_partition {
            self.fault
                .get_or_insert_with(|| "it is something else on another shard".into());
        } else if mine.parents != other.parents {
            self.fault
                .get_or_insert_with(|| "it inherits from other tables on another shard".into());
        }
        let key = |column: &Column| (column.name.clone(), column.of);
        let same = mine
            .columns
            .iter()
            .map(key)
            .eq(other.columns.iter().map(key));
        self.same_columns &= same;
        if !same && !self.has_order_of(&other.columns) {
            // Clients remember what a prepared statement returns, and in which order.
            self.fault
                .get_or_insert_with(|| "its columns are in another order on another shard".into());
        }
        for column in &mut self.columns {
            let name = &column.column.name;
            let twin = other.columns.iter().find(|twin| twin.name == *name);
            let Some(twin) = twin else {
                column.everywhere = false;
                continue;
            };
            column.everywhere &= twin.of == column.column.of;
            column.column.not_null &= twin.not_null;
            column.column.deterministic &= twin.deterministic;
            column.column.generated |= twin.generated;
            column.column.has_modifier |= twin.has_modifier;
            let is_text = |of: u32| KeyType::of_oid(of) == Some(KeyType::Text);
            let is_same =
                twin.of == column.column.of || is_text(twin.of) && is_text(column.column.of);
            if !is_same {
                let is_built_in = twin.of.min(column.column.of) < FIRST_NORMAL_OID;
                let what = if is_built_in {
                    "is another"
                } else {
                    "has another OID"
                };
                let fault = format!("the type of column \"{name}\" {what} on another shard");
                self.fault.get_or_insert(fault);
            }
        }
        // A column that only some shards have is where it is among the others.
        let mut next = 0;
        for column in &other.columns {
            let mut mine = self.columns.iter();
            match mine.position(|mine| mine.column.name == column.name) {
                Some(at) => next = at + 1,
                None => {
                    let column = CommonColumn {
                        column: column.clone(),
                        everywhere: false,
                    };
                    self.columns.insert(next, column);
                    next += 1;
                }
            }
        }
    }
}

/// True if a line speaks of a table. A star speaks of tables only, and if they are sharded, of those
/// with the key's column; but a schema on one shard is there with its sequences. A view may read
/// tables that are elsewhere.
fn fits(line: &TableLine, table: &Table) -> bool {
    let relation = &table.relation;
    if line.pattern.schema != relation.schema {
        return false;
    }
    let is_table = relation.kind == RelationKind::Table;
    match (&line.pattern.table, &line.place) {
        (Some(name), _) => *name == relation.name,
        (None, Place::One(_)) => is_table || relation.kind == RelationKind::Sequence,
        (None, Place::Replicated { .. }) => is_table,
        (None, Place::Sharded { column, .. }) => is_table && table.column(column).is_some(),
    }
}

fn closed(table: &Table, fault: &str) -> Refusal {
    let message = format!("table \"{}\" is closed", table.name());
    Refusal::unproved(message)
        .because(RefusalReason::Closed)
        .detail(format!("{fault}."))
        .hint(format!(
            "SHOW SHARD_CHECKS in Howdah's console says more. {SAY_SHARD}"
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (written, expected) in [
            ("\"$user\", public", "$user public"),
            ("A,\"B c\" , \"d\"\"e\"", "a B c d\"e"),
            ("", ""),
            ("\"\", x", "x"),
            ("a,,b", "a b"),
            ("\"open", "open"),
        ] {
            assert_eq!(path_items(written).join(" "), expected, "{written}");
        }
    }
}
