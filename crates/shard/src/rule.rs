//! The rule: which tables a statement touches, and what proves where their rows are.
//!
//! A table is placed if its key is compared with placed values, in a condition that each of its rows
//! must fulfil to matter:
//!
//! - the WHERE of the SELECT, UPDATE or DELETE that names the table,
//! - the ON of an inner join above the table,
//! - the ON of a left or right join that has the table on the side that may become NULL.
//!
//! The ON of a full join never counts. What is not known here is refused.

mod condition;
mod expression;
mod from;
mod json;
mod scope;
mod write;

use std::collections::HashMap;
use std::ops::Range;

use pg_query::NodeEnum;
use pg_query::protobuf::{self, SetOperation};

use crate::catalogue::{Table, TablePlace};
use crate::command;
use crate::facts::{Facts, Surroundings};
use crate::map::Shard;
use crate::plan::REPLICATED;
use crate::proof::{Goal, Leaf, Node, Premise, Term};
use crate::refusal::{Refusal, SAY_SHARD};
use crate::value::KeyType;

use scope::{Columns, Entry, NamedColumn, Scope, Source};

/// Reads a SELECT, INSERT, UPDATE or DELETE.
pub(crate) fn read(around: Surroundings<'_>, statement: &NodeEnum) -> Facts {
    let mut reader = Reader {
        around,
        facts: Facts::new(around.map),
        items: 0,
        columns: MOST_COLUMNS,
        look_ups: MOST_LOOK_UPS,
        ctes: Vec::new(),
        subqueries: HashMap::new(),
        replicated: Vec::new(),
        uses: HashMap::new(),
    };
    let read = reader.query(statement, None);
    let mut facts = reader.facts;
    if let Err(refusal) = read {
        facts.refuse(refusal);
    }
    let uses = reader.uses.into_iter();
    let doubtful = uses.filter(|(_, (all, as_key))| all != as_key);
    facts.proof.doubtful = doubtful.map(|(number, _)| number).collect();
    facts.proof.prune(&facts.goals);
    facts
}

/// The most columns of a result, as in PostgreSQL.
const MOST_TARGETS: usize = 1664;

/// The most columns of all items and results of a statement.
const MOST_COLUMNS: usize = 50_000;

/// The most columns among which all the names of a statement are looked up.
const MOST_LOOK_UPS: usize = 5_000_000;

/// A query of WITH.
#[derive(Debug)]
struct Cte {
    name: String,
    /// `None` if the query is not read yet.
    columns: Option<Columns>,
}

#[derive(Debug)]
struct Reader<'a> {
    around: Surroundings<'a>,
    facts: Facts,
    /// Items of FROM so far.
    items: u32,
    /// How many columns may still be noted, and how many may still be looked at.
    columns: usize,
    look_ups: usize,
    /// The queries of WITH that the place sees.
    ctes: Vec<Cte>,
    /// The columns of each subquery in an expression, by the address of its tree.
    subqueries: HashMap<usize, Columns>,
    /// Each replicated table that is read, by its item: its home.
    replicated: Vec<(u32, Shard, String)>,
    /// How often each parameter is used, and how often as a key's value.
    uses: HashMap<u32, (u32, u32)>,
}

/// A table and where its rows are.
type PlacedTable<'a> = (&'a Table, TablePlace);

/// What is refused because it is not read.
fn not_read(what: &str) -> Refusal {
    Refusal::unproved(format!("{what} is not supported in a sharded database")).hint(SAY_SHARD)
}

/// The kind of a part of a tree, for messages.
fn kind_of(node: &NodeEnum) -> String {
    let shown = format!("{node:?}");
    let end = shown.find(['(', ' ']).unwrap_or(shown.len());
    shown[..end].to_owned()
}

fn inside(node: &protobuf::Node) -> Option<&NodeEnum> {
    node.node.as_ref()
}

fn boxed(node: &Option<Box<protobuf::Node>>) -> Option<&NodeEnum> {
    node.as_ref()?.node.as_ref()
}

/// True for `a.*` and `(a).*`, which PostgreSQL expands in targets and rows.
fn is_star(node: Option<&NodeEnum>) -> bool {
    let last = match node {
        Some(NodeEnum::ColumnRef(column)) => column.fields.last(),
        Some(NodeEnum::AIndirection(of)) => of.indirection.last(),
        _ => None,
    };
    matches!(last.and_then(inside), Some(NodeEnum::AStar(_)))
}

/// The expressions of a row; `None` if their places are not certain.
fn cells(row: &protobuf::RowExpr) -> Option<&[protobuf::Node]> {
    let has_star = row.args.iter().any(|cell| is_star(inside(cell)));
    (!has_star).then_some(&row.args)
}

/// The strings in a list of names.
fn strings(list: &[protobuf::Node]) -> Vec<&str> {
    let string = |node| match inside(node) {
        Some(NodeEnum::String(string)) => Some(string.sval.as_str()),
        _ => None,
    };
    list.iter().filter_map(string).collect()
}

fn owned(list: &[protobuf::Node]) -> Vec<String> {
    strings(list).into_iter().map(str::to_owned).collect()
}

impl<'a> Reader<'a> {
    /// A query with rows, and the columns of its result.
    fn query(&mut self, query: &NodeEnum, outer: Option<&Scope<'_>>) -> Result<Columns, Refusal> {
        match query {
            NodeEnum::SelectStmt(select) => self.select(select, outer),
            NodeEnum::InsertStmt(insert) => self.insert(insert, outer),
            NodeEnum::UpdateStmt(update) => self.update(update, outer),
            NodeEnum::DeleteStmt(delete) => self.delete(delete, outer),
            NodeEnum::MergeStmt(_) => Err(not_read("MERGE")),
            other => Err(not_read(&kind_of(other))),
        }
    }

    fn select(
        &mut self,
        select: &protobuf::SelectStmt,
        outer: Option<&Scope<'_>>,
    ) -> Result<Columns, Refusal> {
        let before = self.ctes.len();
        self.with(select.with_clause.as_ref(), outer)?;
        let columns = match select.op() {
            SetOperation::SetopNone | SetOperation::Undefined
                if !select.values_lists.is_empty() =>
            {
                self.values(select, outer)?
            }
            SetOperation::SetopNone | SetOperation::Undefined => self.plain(select, outer)?,
            _ => self.combined(select, outer)?,
        };
        self.ctes.truncate(before);
        Ok(columns)
    }

    /// The queries of WITH.
    fn with(
        &mut self,
        with: Option<&protobuf::WithClause>,
        outer: Option<&Scope<'_>>,
    ) -> Result<(), Refusal> {
        let Some(with) = with else {
            return Ok(());
        };
        let before = self.ctes.len();
        let ctes = with.ctes.iter().filter_map(|node| match inside(node) {
            Some(NodeEnum::CommonTableExpr(cte)) => Some(cte),
            _ => None,
        });
        let ctes: Vec<_> = ctes.collect();
        if with.recursive {
            // Each query sees all of them.
            let unread = ctes.iter().map(|cte| Cte {
                name: cte.ctename.clone(),
                columns: None,
            });
            self.ctes.extend(unread);
        }
        for (at, cte) in ctes.into_iter().enumerate() {
            if cte.search_clause.is_some() || cte.cycle_clause.is_some() {
                return Err(not_read("SEARCH or CYCLE"));
            }
            let query = boxed(&cte.ctequery).ok_or_else(|| not_read("an empty WITH"))?;
            let names = owned(&cte.aliascolnames);
            if with.recursive {
                let columns = self.recursive(before + at, query, &names, outer)?;
                self.ctes[before + at].columns = Some(columns);
            } else {
                let mut columns = self.query(query, outer)?;
                columns.rename(&names);
                let name = cte.ctename.clone();
                let columns = Some(columns);
                self.ctes.push(Cte { name, columns });
            }
        }
        Ok(())
    }

    /// A query of WITH RECURSIVE, which may name itself in the right arm of a UNION.
    fn recursive(
        &mut self,
        at: usize,
        query: &NodeEnum,
        names: &[String],
        outer: Option<&Scope<'_>>,
    ) -> Result<Columns, Refusal> {
        let arms = match query {
            NodeEnum::SelectStmt(select) if select.op() == SetOperation::SetopUnion => select
                .larg
                .as_ref()
                .zip(select.rarg.as_ref())
                .map(|arms| (select, arms)),
            _ => None,
        };
        let Some((select, (start, step))) = arms else {
            let mut columns = self.query(query, outer)?;
            columns.rename(names);
            return Ok(columns);
        };
        let before = self.ctes.len();
        self.with(select.with_clause.as_ref(), outer)?;
        let mut columns = self.select(start, outer)?;
        columns.rename(names);
        self.notes(2 * columns.list.len())?;
        // Inside, each column is taken to be like that of the start.
        let mut inside = columns.clone();
        for column in &mut inside.list {
            column.source = self.derived(column.source, u32::MAX);
        }
        self.ctes[at].columns = Some(inside.clone());
        let added = self.select(step, outer)?;
        let mut result = inside.clone();
        // Columns go together by their places.
        let is_certain = !inside.open && !inside.unordered && inside.list.len() == added.list.len();
        for (at, column) in result.list.iter_mut().enumerate() {
            let step = added.at(at).filter(|_| is_certain);
            let step = step.map_or(Source::Unknown, |column| column.source);
            let step = self.derived(step, u32::MAX);
            column.source = match (column.source, step) {
                (
                    Source::Known { node, family, .. },
                    Source::Known {
                        node: added,
                        family: other,
                        ..
                    },
                ) if family == other => {
                    self.facts.proof.recursion(node, added);
                    column.source
                }
                (Source::Known { node, .. }, _) => {
                    // Nothing proves the steps: a node without rules.
                    let never = self.facts.proof.node();
                    self.facts.proof.recursion(node, never);
                    Source::Unknown
                }
                _ => Source::Unknown,
            };
        }
        self.tail(select, outer)?;
        self.ctes.truncate(before);
        Ok(result)
    }

    /// UNION, INTERSECT, EXCEPT.
    fn combined(
        &mut self,
        select: &protobuf::SelectStmt,
        outer: Option<&Scope<'_>>,
    ) -> Result<Columns, Refusal> {
        let (Some(left), Some(right)) = (&select.larg, &select.rarg) else {
            return Err(not_read("half a UNION"));
        };
        let left = self.select(left, outer)?;
        let right = self.select(right, outer)?;
        self.notes(left.list.len())?;
        let mut result = left.clone();
        for (at, column) in result.list.iter_mut().enumerate() {
            let mine = left.at(at).map_or(Source::Unknown, |column| column.source);
            let mine = self.derived(mine, u32::MAX);
            let other = right.at(at).map_or(Source::Unknown, |column| column.source);
            let other = self.derived(other, u32::MAX);
            column.source = self.common(mine, other);
        }
        self.tail(select, outer)?;
        Ok(result)
    }

    /// A column with the values of both.
    fn common(&mut self, one: Source, other: Source) -> Source {
        match (one, other) {
            (
                Source::Known {
                    node: one, family, ..
                },
                Source::Known {
                    node: two,
                    family: other,
                    ..
                },
            ) if family == other => {
                let node = self.facts.proof.node();
                self.facts
                    .proof
                    .rule(node, vec![Premise::Node(one), Premise::Node(two)]);
                let item = u32::MAX;
                Source::Known { node, family, item }
            }
            _ => Source::Unknown,
        }
    }

    /// A column of an item of FROM whose values come from a subquery. Conditions on the column are
    /// none on that subquery.
    fn derived(&mut self, source: Source, item: u32) -> Source {
        let (premise, family) = match source {
            Source::Known { node, family, .. } => (Premise::Node(node), family),
            // A string is a text, unless its use says otherwise.
            Source::Bare(term @ Term::Constant { .. }) => {
                let family = KeyType::Text;
                let stored = false;
                let leaf = Leaf {
                    term,
                    family,
                    stored,
                };
                (self.facts.proof.leaf(leaf), family)
            }
            Source::Bare(_) | Source::Unknown => return Source::Unknown,
        };
        let node = self.facts.proof.node();
        self.facts.proof.rule(node, vec![premise]);
        Source::Known { node, family, item }
    }

    /// VALUES as a query.
    fn values(
        &mut self,
        select: &protobuf::SelectStmt,
        outer: Option<&Scope<'_>>,
    ) -> Result<Columns, Refusal> {
        let nowhere = Scope {
            entries: &[],
            outer,
        };
        let mut columns: Vec<Source> = Vec::new();
        for (at, row) in select.values_lists.iter().enumerate() {
            let Some(NodeEnum::List(row)) = inside(row) else {
                return Err(not_read("such a row of VALUES"));
            };
            if row.items.iter().any(|item| is_star(inside(item))) {
                return Err(not_read("a star in a row of VALUES"));
            }
            for (place, item) in row.items.iter().enumerate() {
                self.expression(inside(item), &nowhere)?;
                let source = self.source(inside(item), &nowhere);
                let source = self.derived(source, u32::MAX);
                if at == 0 {
                    columns.push(source);
                } else if let Some(column) = columns.get_mut(place) {
                    *column = self.common(*column, source);
                }
            }
        }
        self.tail(select, outer)?;
        let name = |at: usize| Some(format!("column{}", at + 1));
        let columns = columns.into_iter().enumerate();
        let list = columns.map(|(at, source)| NamedColumn::new(name(at), source));
        Ok(Columns {
            list: list.collect(),
            ..Columns::default()
        })
    }

    /// ORDER BY and LIMIT behind UNION or VALUES.
    fn tail(
        &mut self,
        select: &protobuf::SelectStmt,
        outer: Option<&Scope<'_>>,
    ) -> Result<(), Refusal> {
        let nowhere = Scope {
            entries: &[],
            outer,
        };
        if select.into_clause.is_some() || !select.locking_clause.is_empty() {
            return Err(not_read("INTO or FOR UPDATE here"));
        }
        self.all(&select.sort_clause, &nowhere)?;
        self.expression(boxed(&select.limit_offset), &nowhere)?;
        self.expression(boxed(&select.limit_count), &nowhere)
    }

    /// SELECT without UNION.
    fn plain(
        &mut self,
        select: &protobuf::SelectStmt,
        outer: Option<&Scope<'_>>,
    ) -> Result<Columns, Refusal> {
        if select.into_clause.is_some() {
            return Err(not_read("SELECT INTO"));
        }
        let (level, range) = self.items_of(Vec::new(), &select.from_clause, outer)?;
        let scope = Scope {
            entries: &level.entries,
            outer,
        };
        self.expression(boxed(&select.where_clause), &scope)?;
        self.condition(boxed(&select.where_clause), &scope, &range);
        let columns = self.targets(&select.target_list, &scope, &level.columns)?;
        for list in [
            &select.distinct_clause,
            &select.group_clause,
            &select.window_clause,
            &select.sort_clause,
        ] {
            self.all(list, &scope)?;
        }
        for one in [
            &select.having_clause,
            &select.limit_offset,
            &select.limit_count,
        ] {
            self.expression(boxed(one), &scope)?;
        }
        self.locks(&select.locking_clause, &level.entries, &range);
        Ok(columns)
    }

    /// The columns of a list of targets. `all` are those of `*`.
    fn targets(
        &mut self,
        list: &[protobuf::Node],
        scope: &Scope<'_>,
        all: &Columns,
    ) -> Result<Columns, Refusal> {
        let mut columns = Columns::default();
        for target in list {
            let Some(NodeEnum::ResTarget(target)) = inside(target) else {
                return Err(not_read("such a target"));
            };
            let value = boxed(&target.val);
            if let Some(NodeEnum::ColumnRef(column)) = value
                && let Some(NodeEnum::AStar(_)) = column.fields.last().and_then(inside)
            {
                let found = match strings(&column.fields)[..] {
                    [] => Some(all),
                    [table] => scope.columns_of(None, table),
                    [schema, table] => scope.columns_of(Some(schema), table),
                    _ => None,
                };
                match found {
                    Some(found) => {
                        self.targets_fit(columns.list.len() + found.list.len())?;
                        self.notes(found.list.len())?;
                        columns.append(found);
                    }
                    None => columns.open = true,
                }
                continue;
            }
            self.expression(value, scope)?;
            if is_star(value) {
                columns.open = true;
                continue;
            }
            self.targets_fit(columns.list.len() + 1)?;
            let written = Some(&target.name).filter(|name| !name.is_empty()).cloned();
            let name = written.or_else(|| match value {
                Some(NodeEnum::ColumnRef(column)) => strings(&column.fields)
                    .last()
                    .map(|name| (*name).to_owned()),
                _ => None,
            });
            let source = self.source(value, scope);
            columns.list.push(NamedColumn::new(name, source));
        }
        columns
            .list
            .iter_mut()
            .for_each(|column| column.hidden = false);
        Ok(columns)
    }

    fn targets_fit(&self, count: usize) -> Result<(), Refusal> {
        if count <= MOST_TARGETS {
            return Ok(());
        }
        let message = format!("target lists can have at most {MOST_TARGETS} entries");
        Err(Refusal::new("54011", message))
    }

    /// Notes columns of items and results.
    fn notes(&mut self, columns: usize) -> Result<(), Refusal> {
        let left = self.columns.checked_sub(columns);
        self.columns = left.ok_or_else(|| {
            Refusal::too_complex("the statement has too many columns").detail(format!(
                "All its tables and subqueries have more than {MOST_COLUMNS} columns."
            ))
        })?;
        Ok(())
    }

    /// Looks a name up among the columns that a place sees.
    fn looks_up(&mut self, scope: &Scope<'_>) -> Result<(), Refusal> {
        let left = self.look_ups.checked_sub(scope.width());
        self.look_ups = left.ok_or_else(|| {
            Refusal::too_complex("the statement has too many names for its many columns")
        })?;
        Ok(())
    }

    /// FOR UPDATE and its kin.
    fn locks(&mut self, clauses: &[protobuf::Node], entries: &[Entry], all: &Range<u32>) {
        for clause in clauses {
            let Some(NodeEnum::LockingClause(clause)) = inside(clause) else {
                continue;
            };
            self.facts.guess = false;
            let named = clause
                .locked_rels
                .iter()
                .filter_map(|node| match inside(node) {
                    Some(NodeEnum::RangeVar(table)) => Some(table.relname.as_str()),
                    _ => None,
                });
            let named: Vec<&str> = named.collect();
            let is_named = |entry: &&Entry| {
                entry
                    .name
                    .as_deref()
                    .is_some_and(|name| named.contains(&name))
            };
            let mut ranges: Vec<Range<u32>> = { entries.iter().filter(is_named) }
                .map(|entry| entry.items.clone())
                .collect();
            if named.is_empty() {
                ranges.push(all.clone());
            }
            let is_locked = |item: &u32| ranges.iter().any(|range| range.contains(item));
            let locked = self.replicated.iter().filter(|(item, ..)| is_locked(item));
            for (_, home, name) in locked.cloned().collect::<Vec<_>>() {
                self.write_replicated(home, name);
            }
        }
    }

    /// A replicated table is written at its home.
    fn write_replicated(&mut self, home: Shard, name: String) {
        self.facts.writes_replicated = true;
        self.facts
            .fixed
            .push((home, format!("{REPLICATED} \"{name}\"")));
    }

    /// A table that a statement names, by map and catalogue.
    fn table(&mut self, named: &protobuf::RangeVar) -> Result<Option<PlacedTable<'a>>, Refusal> {
        let schema = Some(named.schemaname.as_str()).filter(|schema| !schema.is_empty());
        let Surroundings {
            map,
            catalogue,
            path,
            has_temporary,
            ..
        } = self.around;
        if !named.catalogname.is_empty() {
            return Err(not_read("a table's name with its database"));
        }
        let may_be_temporary = has_temporary && schema.is_none_or(|schema| schema == "pg_temp");
        let Some((table, shards)) = catalogue.table(path, schema, &named.relname) else {
            if may_be_temporary {
                self.facts.temporary = true;
                self.facts.has_unknown_name = true;
                return Ok(None);
            }
            let name = schema.map_or_else(String::new, |schema| format!("{schema}."));
            return Err(Refusal::unproved(format!(
                "table \"{name}{}\" is not known",
                named.relname
            ))
            .detail("No shard's catalogue has the name in the client's search path.")
            .hint(SAY_SHARD)
            .unknown_name());
        };
        let place = catalogue.place(map, table)?;
        if place == TablePlace::Catalogue && command::is_of_large_objects(table) {
            return Err(command::of_one_server(table));
        }
        if place != TablePlace::Catalogue {
            let narrowed = self.facts.may.and(shards);
            if narrowed != self.facts.may {
                self.facts.scarce = Some(table.name());
            }
            self.facts.may = narrowed;
        }
        Ok(Some((table, place)))
    }

    /// The key of a table has to hold.
    fn goal(&mut self, place: &TablePlace, node: Node, what: String) {
        if let TablePlace::Sharded { by, .. } = place {
            let by = *by;
            self.facts.goals.push(Goal { by, node, what });
        }
    }

    /// A new item of FROM.
    fn item(&mut self) -> u32 {
        self.items += 1;
        self.items - 1
    }
}

impl Reader<'_> {
    /// A key is stored whose value is not placed.
    fn key_not_placed(&self, table: &Table, column: &str, what: &str) -> Refusal {
        let name = table.name();
        Refusal::unproved("the statement is not proved to touch one shard only")
            .detail(format!("The key \"{column}\" of table \"{name}\" {what}."))
            .hint("Give the key as a constant or parameter in the statement, or say the shard.")
    }
}
