//! The catalogue of one shard, as PostgreSQL says it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

/// A part of the catalogue, read by one query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Encoding, version, default search path.
    Database,
    /// Default search paths of roles and databases.
    Paths,
    /// Schemas, and whether everybody may use them.
    Schemas,
    /// Who may use the other schemas.
    Usage,
    /// Tables and what else has rows.
    Tables,
    /// Columns, in order.
    Columns,
    /// Types that are not built in.
    Types,
    /// Functions, by name.
    Functions,
    /// Operators that are not built in and may read tables, or compare keys; casts by `::type`.
    Operators,
    /// Unique indexes and foreign keys.
    Keys,
    /// Sequences.
    Sequences,
    /// Settings on which answers depend, and the collation of the database.
    Settings,
}

impl Part {
    /// All parts, in the order in which they are read.
    pub const ALL: [Part; 12] = [
        Part::Database,
        Part::Paths,
        Part::Schemas,
        Part::Usage,
        Part::Tables,
        Part::Columns,
        Part::Types,
        Part::Functions,
        Part::Operators,
        Part::Keys,
        Part::Sequences,
        Part::Settings,
    ];

    /// The query of the part. All columns are texts, and any role may run the query. It needs
    /// PostgreSQL 12.
    pub fn query(self) -> &'static str {
        match self {
            Part::Database => {
                "SELECT pg_catalog.pg_encoding_to_char(d.encoding), \
                 CASE WHEN s.source IN ('default', 'configuration file', 'command line') \
                 THEN s.reset_val ELSE s.boot_val END \
                 FROM pg_catalog.pg_database d, pg_catalog.pg_settings s \
                 WHERE d.datname = pg_catalog.current_database() AND s.name = 'search_path'"
            }
            Part::Paths => {
                "SELECT coalesce(r.rolname::text, ''), (s.setdatabase <> 0)::text, \
                 pg_catalog.substr(c.line, 13) \
                 FROM pg_catalog.pg_db_role_setting s \
                 CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) AS c (line) \
                 LEFT JOIN pg_catalog.pg_roles r ON r.oid = s.setrole \
                 WHERE c.line LIKE 'search\\_path=%' AND (s.setdatabase = 0 OR s.setdatabase = \
                 (SELECT d.oid FROM pg_catalog.pg_database d \
                 WHERE d.datname = pg_catalog.current_database()))"
            }
            Part::Schemas => {
                "SELECT n.nspname::text, \
                 pg_catalog.has_schema_privilege('public', n.oid, 'USAGE')::text \
                 FROM pg_catalog.pg_namespace n WHERE n.nspname !~ '^pg_(toast|temp)'"
            }
            Part::Usage => {
                "SELECT n.nspname::text, r.rolname::text \
                 FROM pg_catalog.pg_namespace n, pg_catalog.pg_roles r \
                 WHERE n.nspname !~ '^pg_(toast|temp)' \
                 AND NOT pg_catalog.has_schema_privilege('public', n.oid, 'USAGE') \
                 AND pg_catalog.has_schema_privilege(r.oid, n.oid, 'USAGE')"
            }
            Part::Tables => {
                "SELECT c.oid::bigint::text, n.nspname::text, c.relname::text, c.relkind::text, \
                 c.relispartition::text, (SELECT pg_catalog.string_agg(i.inhparent::bigint::text, ',') \
                 FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid) \
                 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND n.nspname !~ '^pg_(toast|temp)'"
            }
            Part::Columns => {
                "SELECT a.attrelid::bigint::text, a.attname::text, a.atttypid::bigint::text, \
                 (a.atttypmod >= 0)::text, a.attnotnull::text, \
                 coalesce(l.collisdeterministic, true)::text, (a.attgenerated <> '')::text, \
                 coalesce(nullif(l.collname::text, 'default'), '') \
                 FROM pg_catalog.pg_attribute a \
                 JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
                 JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                 LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation \
                 WHERE a.attnum > 0 AND NOT a.attisdropped \
                 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND n.nspname !~ '^pg_(toast|temp)' \
                 ORDER BY a.attrelid, a.attnum"
            }
            Part::Types => {
                "SELECT n.nspname::text, t.typname::text, t.oid::bigint::text \
                 FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
                 WHERE t.oid >= 16384 AND t.typcategory <> 'A' AND n.nspname !~ '^pg_(toast|temp)' \
                 AND NOT EXISTS (SELECT FROM pg_catalog.pg_class c \
                 WHERE c.oid = t.typrelid AND c.relkind <> 'c')"
            }
            Part::Functions => {
                // An aggregate is as its parts are.
                "SELECT n.nspname::text, p.proname::text, \
                 pg_catalog.bool_and(p.provolatile = 'i' AND NOT EXISTS \
                 (SELECT FROM pg_catalog.pg_aggregate a JOIN pg_catalog.pg_proc s \
                 ON s.oid IN (a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, \
                 a.aggdeserialfn, a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn) \
                 WHERE a.aggfnoid = p.oid AND s.oid >= 16384 AND s.provolatile <> 'i'))::text, \
                 pg_catalog.bool_and(p.provolatile <> 'v')::text, \
                 pg_catalog.bool_and(p.oid < 16384)::text, \
                 pg_catalog.bool_and(EXISTS (SELECT FROM pg_catalog.pg_depend e \
                 WHERE e.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass \
                 AND e.objid = p.oid AND e.deptype = 'e'))::text \
                 FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
                 WHERE n.nspname !~ '^pg_(toast|temp)' GROUP BY n.nspname, p.proname"
            }
            Part::Operators => {
                // Also each `=` that may be taken instead of the built-in one.
                "SELECT DISTINCT o.oprname::text, 'equals' FROM pg_catalog.pg_operator o \
                 JOIN pg_catalog.pg_type l ON l.oid = o.oprleft \
                 JOIN pg_catalog.pg_type r ON r.oid = o.oprright \
                 WHERE o.oid >= 16384 AND o.oprname = '=' \
                 AND (l.typtype = 'p' OR l.oid IN (20, 21, 23, 25, 705, 1042, 1043, 2950)) \
                 AND (r.typtype = 'p' OR r.oid IN (20, 21, 23, 25, 705, 1042, 1043, 2950)) \
                 UNION ALL SELECT DISTINCT '::' || t.typname::text, 'reads' FROM pg_catalog.pg_cast c \
                 JOIN pg_catalog.pg_proc p ON p.oid = c.castfunc \
                 JOIN pg_catalog.pg_type t ON t.oid = c.casttarget \
                 WHERE p.oid >= 16384 AND p.provolatile <> 'i' \
                 AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend e \
                 WHERE e.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass \
                 AND e.objid = p.oid AND e.deptype = 'e') \
                 UNION ALL SELECT DISTINCT o.oprname::text, 'reads' FROM pg_catalog.pg_operator o \
                 JOIN pg_catalog.pg_proc p ON p.oid = o.oprcode \
                 WHERE p.oid >= 16384 AND p.provolatile <> 'i' \
                 AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend e \
                 WHERE e.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass \
                 AND e.objid = p.oid AND e.deptype = 'e')"
            }
            // Names are separated by line feeds. The key of a foreign key comes twice: here and there.
            Part::Keys => {
                "SELECT i.indrelid::bigint::text, 'unique', x.relname::text, \
                 coalesce((SELECT pg_catalog.string_agg(a.attname::text, E'\\n' ORDER BY k.place) \
                 FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place) \
                 JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number \
                 WHERE k.place <= i.indnkeyatts), ''), NULL, NULL \
                 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid \
                 JOIN pg_catalog.pg_namespace n ON n.oid = x.relnamespace \
                 WHERE i.indisunique AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' \
                 UNION ALL SELECT c.conrelid::bigint::text, 'foreign', c.conname::text, \
                 (SELECT pg_catalog.string_agg(a.attname::text, E'\\n' ORDER BY k.place) \
                 FROM pg_catalog.unnest(c.conkey) WITH ORDINALITY AS k (number, place) \
                 JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number), \
                 c.confrelid::bigint::text, \
                 (SELECT pg_catalog.string_agg(a.attname::text, E'\\n' ORDER BY k.place) \
                 FROM pg_catalog.unnest(c.confkey) WITH ORDINALITY AS k (number, place) \
                 JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number) \
                 FROM pg_catalog.pg_constraint c WHERE c.contype = 'f' AND c.conparentid = 0"
            }
            Part::Sequences => {
                "SELECT s.seqrelid::bigint::text, s.seqincrement::text, s.seqstart::text, \
                 s.seqmin::text, s.seqmax::text, d.refobjid::bigint::text \
                 FROM pg_catalog.pg_sequence s LEFT JOIN pg_catalog.pg_depend d \
                 ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = s.seqrelid \
                 AND d.objsubid = 0 AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i') \
                 AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass"
            }
            // What later versions know of a database's collation is read by name.
            Part::Settings => {
                "SELECT s.name::text, CASE WHEN s.source = 'client' THEN s.boot_val ELSE s.reset_val END \
                 FROM pg_catalog.pg_settings s WHERE pg_catalog.lower(s.name) IN ('server_version', \
                 'timezone', 'datestyle', 'intervalstyle', 'bytea_output', 'extra_float_digits', \
                 'lc_monetary', 'lc_numeric', 'lc_time', 'default_text_search_config', \
                 'default_transaction_isolation', 'transform_null_equals', 'array_nulls', \
                 'standard_conforming_strings', 'xmlbinary', 'xmloption', 'timezone_abbreviations') \
                 UNION ALL SELECT 'collation of the database', pg_catalog.concat_ws(' ', \
                 d.datcollate::text, d.datctype::text, \
                 pg_catalog.to_jsonb(d) OPERATOR(pg_catalog.->>) 'datlocale', \
                 pg_catalog.to_jsonb(d) OPERATOR(pg_catalog.->>) 'datcollversion') \
                 FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()"
            }
        }
    }
}

/// What a relation is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RelationKind {
    /// A table, perhaps partitioned.
    Table,
    /// A view, perhaps materialized.
    View,
    /// A foreign table.
    Foreign,
    /// A sequence.
    Sequence,
}

/// A column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// The name.
    pub name: String,
    /// The OID of the type.
    pub of: u32,
    /// The type has a length or precision.
    pub has_modifier: bool,
    /// Declared NOT NULL.
    pub not_null: bool,
    /// Equal texts have equal bytes.
    pub deterministic: bool,
    /// Computed from other columns.
    pub generated: bool,
    /// The collation, if there is one and it is not the database's.
    pub collation: String,
}

/// A unique index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UniqueKey {
    /// The name of the index.
    pub name: String,
    /// The columns; expressions are left out.
    pub columns: Vec<String>,
}

/// A foreign key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignKey {
    /// The name of the constraint.
    pub name: String,
    /// The schema and name of the table that is referred to.
    pub table: (String, String),
    /// The columns here and there, in pairs.
    pub columns: Vec<(String, String)>,
}

/// The numbers of a sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SequenceFacts {
    /// The distance of two numbers.
    pub increment: i64,
    /// The first number.
    pub start: i64,
    /// The lowest number.
    pub min: i64,
    /// The highest number.
    pub max: i64,
    /// The schema and name of the table that has the sequence as a column's default.
    pub owner: Option<(String, String)>,
}

/// A relation of one shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relation {
    /// The schema.
    pub schema: String,
    /// The name.
    pub name: String,
    /// What it is.
    pub kind: RelationKind,
    /// A partition of its only parent.
    pub is_partition: bool,
    /// Of which tables it inherits: their schemas and names.
    pub parents: Vec<(String, String)>,
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// The unique indexes.
    pub unique: Vec<UniqueKey>,
    /// The foreign keys.
    pub foreign: Vec<ForeignKey>,
    /// The numbers of a sequence.
    pub sequence: Option<SequenceFacts>,
}

/// What is known about all functions of a schema with one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionFacts {
    /// All are IMMUTABLE.
    pub immutable: bool,
    /// None is VOLATILE.
    pub stable: bool,
    /// All are built in.
    pub built_in: bool,
    /// All belong to extensions.
    pub of_extension: bool,
}

impl FunctionFacts {
    /// What is true of both.
    #[must_use]
    pub fn and(self, other: FunctionFacts) -> FunctionFacts {
        FunctionFacts {
            immutable: self.immutable && other.immutable,
            stable: self.stable && other.stable,
            built_in: self.built_in && other.built_in,
            of_extension: self.of_extension && other.of_extension,
        }
    }
}

/// The catalogue of one shard.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ShardCatalogue {
    /// The encoding of the database.
    pub encoding: String,
    /// The search path of those who have no other.
    pub path: String,
    /// The default search path of each role; the empty name is for all roles. First for all
    /// databases, then for this one.
    pub(crate) paths: [HashMap<String, String>; 2],
    /// Schemas, and whether everybody may use them.
    pub(crate) schemas: HashMap<String, bool>,
    /// Schemas and roles that may use them.
    pub(crate) usage: HashMap<String, HashSet<String>>,
    /// All relations.
    pub relations: Vec<Relation>,
    /// The OID of each type that is not built in, by schema and name.
    pub types: HashMap<(String, String), u32>,
    /// By name, then schema.
    pub(crate) functions: HashMap<String, Vec<(String, FunctionFacts)>>,
    /// Names of operators that may read tables.
    pub(crate) operators: HashSet<String>,
    /// There is another `=` of keys' types than the built-in one.
    pub(crate) other_equals: bool,
    /// The settings on which answers depend.
    pub(crate) settings: BTreeMap<String, String>,
}

/// A row of the catalogue that is not as expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OddRow(pub Part);

impl fmt::Display for OddRow {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "a row of the catalogue's part {:?} can't be read",
            self.0
        )
    }
}

/// Reads the rows of one shard's catalogue.
#[derive(Debug, Default)]
pub struct CatalogueReader {
    found: ShardCatalogue,
    /// Where each relation is, and the OIDs of its parents.
    by_oid: HashMap<u32, (usize, Vec<u32>)>,
    /// The foreign keys, by the OIDs of their table and of the other one.
    foreign: Vec<(u32, u32, ForeignKey)>,
    /// The OID of each sequence, and that of its owner.
    owners: Vec<(u32, u32)>,
}

impl CatalogueReader {
    /// Takes a row of a part.
    pub fn row(&mut self, part: Part, fields: &[Option<&[u8]>]) -> Result<(), OddRow> {
        self.take(part, fields).ok_or(OddRow(part))
    }

    fn take(&mut self, part: Part, fields: &[Option<&[u8]>]) -> Option<()> {
        let given = |at: usize| std::str::from_utf8(fields.get(at).copied()??).ok();
        let text = |at: usize| given(at).map(str::to_owned);
        let yes = |at: usize| Some(given(at)? == "true");
        let number = |at: usize| given(at)?.parse::<u32>().ok();
        match part {
            Part::Database => (self.found.encoding, self.found.path) = (text(0)?, text(1)?),
            Part::Paths => {
                let paths = &mut self.found.paths[usize::from(yes(1)?)];
                paths.insert(text(0)?, text(2)?);
            }
            Part::Schemas => {
                self.found.schemas.insert(text(0)?, yes(1)?);
            }
            Part::Usage => {
                self.found
                    .usage
                    .entry(text(0)?)
                    .or_default()
                    .insert(text(1)?);
            }
            Part::Tables => {
                let kind = match given(3)? {
                    "r" | "p" => RelationKind::Table,
                    "v" | "m" => RelationKind::View,
                    "f" => RelationKind::Foreign,
                    "S" => RelationKind::Sequence,
                    _ => return None,
                };
                let parents = given(5).unwrap_or_default().split(',');
                let parents = parents.filter_map(|parent| parent.parse().ok()).collect();
                self.by_oid
                    .insert(number(0)?, (self.found.relations.len(), parents));
                self.found.relations.push(Relation {
                    schema: text(1)?,
                    name: text(2)?,
                    kind,
                    is_partition: yes(4)?,
                    parents: Vec::new(),
                    columns: Vec::new(),
                    unique: Vec::new(),
                    foreign: Vec::new(),
                    sequence: None,
                });
            }
            Part::Columns => {
                let column = Column {
                    name: text(1)?,
                    of: number(2)?,
                    has_modifier: yes(3)?,
                    not_null: yes(4)?,
                    deterministic: yes(5)?,
                    generated: yes(6)?,
                    collation: text(7).unwrap_or_default(),
                };
                // A relation may be younger than the rows of relations.
                if let Some((at, _)) = self.by_oid.get(&number(0)?) {
                    self.found.relations[*at].columns.push(column);
                }
            }
            Part::Types => {
                self.found.types.insert((text(0)?, text(1)?), number(2)?);
            }
            Part::Functions => {
                let facts = FunctionFacts {
                    immutable: yes(2)?,
                    stable: yes(3)?,
                    built_in: yes(4)?,
                    of_extension: yes(5)?,
                };
                let of_name = self.found.functions.entry(text(1)?).or_default();
                of_name.push((text(0)?, facts));
            }
            Part::Keys => self.take_key(fields)?,
            Part::Sequences => {
                let number = |at: usize| given(at)?.parse::<i64>().ok();
                let facts = SequenceFacts {
                    increment: number(1)?,
                    start: number(2)?,
                    min: number(3)?,
                    max: number(4)?,
                    owner: None,
                };
                let oid = u32::try_from(number(0)?).ok()?;
                if let Some((at, _)) = self.by_oid.get(&oid) {
                    self.found.relations[*at].sequence = Some(facts);
                }
                if let Some(owner) = number(5) {
                    self.owners.push((oid, u32::try_from(owner).ok()?));
                }
            }
            Part::Settings => {
                self.found
                    .settings
                    .insert(text(0)?, text(1).unwrap_or_default());
            }
            Part::Operators => match given(1)? {
                "equals" => self.found.other_equals = true,
                _ => {
                    self.found.operators.insert(text(0)?);
                }
            },
        }
        Some(())
    }

    /// Takes a row of a unique index or foreign key.
    fn take_key(&mut self, fields: &[Option<&[u8]>]) -> Option<()> {
        let given = |at: usize| std::str::from_utf8(fields.get(at).copied()??).ok();
        let names = |at: usize| {
            let names = given(at).unwrap_or_default().split('\n');
            names.filter(|name| !name.is_empty()).map(str::to_owned)
        };
        let (table, name): (u32, _) = (given(0)?.parse().ok()?, given(2)?.to_owned());
        let Some((at, _)) = self.by_oid.get(&table) else {
            return Some(());
        };
        match given(1)? {
            "unique" => self.found.relations[*at].unique.push(UniqueKey {
                name,
                columns: names(3).collect(),
            }),
            _ => {
                let key = ForeignKey {
                    name,
                    // Perhaps not known yet.
                    table: Default::default(),
                    columns: names(3).zip(names(5)).collect(),
                };
                self.foreign.push((table, given(4)?.parse().ok()?, key));
            }
        }
        Some(())
    }

    /// Which table an OID is.
    fn name_of(&self, oid: u32) -> Option<(String, String)> {
        let (at, _) = self.by_oid.get(&oid)?;
        let relation = &self.found.relations[*at];
        Some((relation.schema.clone(), relation.name.clone()))
    }

    /// The catalogue.
    pub fn finish(mut self) -> ShardCatalogue {
        for (table, other, key) in std::mem::take(&mut self.foreign) {
            let named = self.name_of(other).zip(self.by_oid.get(&table));
            if let Some((table, (at, _))) = named {
                let keys = &mut self.found.relations[*at].foreign;
                keys.push(ForeignKey { table, ..key });
            }
        }
        for (sequence, owner) in std::mem::take(&mut self.owners) {
            let named = self.name_of(owner).zip(self.by_oid.get(&sequence));
            if let Some((owner, (at, _))) = named
                && let Some(facts) = &mut self.found.relations[*at].sequence
            {
                facts.owner = Some(owner);
            }
        }
        for (at, parents) in self.by_oid.values() {
            let names = parents.iter().filter_map(|parent| {
                let (parent, _) = self.by_oid.get(parent)?;
                let parent = &self.found.relations[*parent];
                Some((parent.schema.clone(), parent.name.clone()))
            });
            let mut names: Vec<_> = names.collect();
            names.sort_unstable();
            let relation = &mut self.found.relations[*at];
            relation.parents = names;
            relation
                .unique
                .sort_unstable_by(|one, other| one.name.cmp(&other.name));
            relation
                .foreign
                .sort_unstable_by(|one, other| one.name.cmp(&other.name));
        }
        self.found
    }
}

impl ShardCatalogue {
    /// The search path with which a role's sessions begin.
    pub fn path_of(&self, role: &str) -> &str {
        let [everywhere, here] = &self.paths;
        let found = here.get(role).or_else(|| everywhere.get(role));
        let found = found
            .or_else(|| here.get(""))
            .or_else(|| everywhere.get(""));
        found.unwrap_or(&self.path)
    }

    /// True if a role may use a schema.
    pub(crate) fn may_use(&self, role: &str, schema: &str) -> bool {
        match self.schemas.get(schema) {
            Some(true) => true,
            Some(false) => self
                .usage
                .get(schema)
                .is_some_and(|roles| roles.contains(role)),
            None => false,
        }
    }
}
