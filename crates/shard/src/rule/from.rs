//! The items of FROM: tables, subqueries, functions and joins.

use std::ops::Range;

use pg_query::NodeEnum;
use pg_query::protobuf::{self, JoinType};

use super::scope::{Columns, Entry, NamedColumn, Scope, Source};
use super::{PlacedTable, Reader, boxed, inside, kind_of, not_read, owned, strings};
use crate::catalogue::{Table, TablePlace};
use crate::proof::Premise;
use crate::refusal::Refusal;
use crate::value::KeyType;

/// A part of FROM.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// By what its columns are named.
    pub(super) entries: Vec<Entry>,
    /// The columns of `*`.
    pub(super) columns: Columns,
}

impl Part {
    /// A part with one entry.
    fn of(entry: Entry) -> Part {
        Part {
            columns: entry.columns.clone(),
            entries: vec![entry],
        }
    }
}

/// The names of an alias: the item's, and its columns'.
fn alias_of(alias: Option<&protobuf::Alias>) -> (Option<String>, Vec<String>) {
    match alias {
        Some(alias) => (Some(alias.aliasname.clone()), owned(&alias.colnames)),
        None => (None, Vec::new()),
    }
}

impl<'a> Reader<'a> {
    /// The list behind FROM or USING, with entries that stand before. Also the numbers of all items.
    pub(super) fn items_of(
        &mut self,
        before: Vec<Entry>,
        list: &[protobuf::Node],
        outer: Option<&Scope<'_>>,
    ) -> Result<(Part, Range<u32>), Refusal> {
        let start = before.iter().map(|entry| entry.items.start).min();
        let start = start.unwrap_or(self.items);
        let mut level = Part {
            entries: before,
            columns: Columns::default(),
        };
        for item in list {
            let left = std::mem::take(&mut level.entries);
            let part = self.part_of(inside(item), &left, outer)?;
            level.entries = left;
            level.entries.extend(part.entries);
            self.notes(part.columns.list.len())?;
            level.columns.append(&part.columns);
        }
        Ok((level, start..self.items))
    }

    /// An item. `left` are the entries that LATERAL sees.
    fn part_of(
        &mut self,
        item: Option<&NodeEnum>,
        left: &[Entry],
        outer: Option<&Scope<'_>>,
    ) -> Result<Part, Refusal> {
        match item {
            Some(NodeEnum::RangeVar(table)) => self.named(table),
            Some(NodeEnum::JoinExpr(join)) => self.join(join, left, outer),
            Some(NodeEnum::RangeSubselect(subselect)) => {
                let query = boxed(&subselect.subquery).ok_or_else(|| not_read("no query"))?;
                let lateral = Scope {
                    entries: left,
                    outer,
                };
                let seen = if subselect.lateral {
                    Some(&lateral)
                } else {
                    outer
                };
                // Items inside belong to this one: locks reach them.
                let start = self.items;
                let columns = self.query(query, seen)?;
                let item = self.item();
                self.notes(columns.list.len())?;
                let mut entry = self.derived_entry(columns, subselect.alias.as_ref(), item);
                entry.items = start..item + 1;
                Ok(Part::of(entry))
            }
            Some(NodeEnum::RangeFunction(function)) => {
                let lateral = Scope {
                    entries: left,
                    outer,
                };
                self.table_function(function, &lateral)
            }
            Some(NodeEnum::RangeTableSample(sample)) => {
                let nowhere = Scope {
                    entries: &[],
                    outer,
                };
                self.all(&sample.args, &nowhere)?;
                self.expression(boxed(&sample.repeatable), &nowhere)?;
                self.facts.guess = false;
                self.part_of(boxed(&sample.relation), left, outer)
            }
            Some(other) => Err(not_read(&format!("{} in FROM", kind_of(other)))),
            None => Err(not_read("an empty item of FROM")),
        }
    }

    /// An entry whose columns come from a query.
    fn derived_entry(
        &mut self,
        mut columns: Columns,
        alias: Option<&protobuf::Alias>,
        item: u32,
    ) -> Entry {
        let (name, renamed) = alias_of(alias);
        for column in &mut columns.list {
            column.source = self.derived(column.source, item);
            column.hidden = false;
        }
        columns.rename(&renamed);
        Entry {
            name,
            schema: None,
            columns,
            items: item..item + 1,
            only_by_name: false,
        }
    }

    /// A table, or a query of WITH.
    fn named(&mut self, table: &protobuf::RangeVar) -> Result<Part, Refusal> {
        let cte = self.ctes.iter().rev().find(|cte| cte.name == table.relname);
        if let Some(cte) = cte.filter(|_| table.schemaname.is_empty()) {
            let Some(columns) = &cte.columns else {
                return Err(not_read(
                    "a query of WITH RECURSIVE that names itself or a later one here",
                ));
            };
            let columns = columns.clone();
            self.notes(2 * columns.list.len())?;
            let item = self.item();
            let mut entry = self.derived_entry(columns, table.alias.as_ref(), item);
            entry.name.get_or_insert_with(|| table.relname.clone());
            return Ok(Part::of(entry));
        }
        let (entry, found) = self.table_entry(table)?;
        if let Some((found, place)) = found {
            self.read_table(found, &place, &entry);
        }
        Ok(Part::of(entry))
    }

    /// The entry of a table. No table for a name that may be a temporary one's.
    pub(super) fn table_entry(
        &mut self,
        named: &protobuf::RangeVar,
    ) -> Result<(Entry, Option<PlacedTable<'a>>), Refusal> {
        let found = self.table(named)?;
        let item = self.item();
        let (alias, renamed) = alias_of(named.alias.as_ref());
        let mut columns = Columns::default();
        match &found {
            None => columns.open = true,
            Some((table, _)) => {
                self.notes(2 * table.columns.len())?;
                columns.unordered = !table.same_columns;
                for column in &table.columns {
                    let family = KeyType::of_oid(column.column.of);
                    let family =
                        family.filter(|_| column.everywhere && column.column.deterministic);
                    let source = family.map_or(Source::Unknown, |family| Source::Known {
                        node: self.facts.proof.node(),
                        family,
                        item,
                    });
                    let name = Some(column.column.name.clone());
                    columns.list.push(NamedColumn::new(name, source));
                }
            }
        }
        let is_hidden = alias.is_some();
        columns.rename(&renamed);
        let entry = Entry {
            name: Some(alias.unwrap_or_else(|| named.relname.clone())),
            schema: (!is_hidden).then(|| match &found {
                Some((table, _)) => table.relation.schema.clone(),
                None => named.schemaname.clone(),
            }),
            columns,
            items: item..item + 1,
            only_by_name: false,
        };
        Ok((entry, found))
    }

    /// The source of a table's key.
    pub(super) fn key_of(table: &Table, place: &TablePlace, entry: &Entry) -> Source {
        let TablePlace::Sharded { column, .. } = place else {
            return Source::Unknown;
        };
        // An alias may have renamed the key.
        let at = table
            .columns
            .iter()
            .position(|found| found.column.name == *column);
        let named = at.and_then(|at| entry.columns.list.get(at));
        named.map_or(Source::Unknown, |column| column.source)
    }

    /// Notes what the rows of a table ask for.
    pub(super) fn read_table(&mut self, table: &Table, place: &TablePlace, entry: &Entry) {
        let what = || format!("Table \"{}\"", table.name());
        match place {
            TablePlace::Catalogue => self.facts.reads_catalogue = true,
            TablePlace::One(shard) => self.facts.fixed.push((*shard, what())),
            TablePlace::Replicated { home } => {
                self.facts.replicated.get_or_insert(*home);
                self.replicated
                    .push((entry.items.start, *home, table.name()));
            }
            TablePlace::Sharded { .. } => {
                let node = match Self::key_of(table, place, entry) {
                    Source::Known { node, .. } => node,
                    // Nothing proves a key whose place is not known.
                    _ => self.facts.proof.node(),
                };
                self.goal(place, node, what());
            }
        }
    }

    /// Functions as a table.
    fn table_function(
        &mut self,
        function: &protobuf::RangeFunction,
        lateral: &Scope<'_>,
    ) -> Result<Part, Refusal> {
        let mut name = None;
        for item in &function.functions {
            let Some(NodeEnum::List(item)) = inside(item) else {
                return Err(not_read("such a function in FROM"));
            };
            let call = item.items.first().and_then(inside);
            if let Some(NodeEnum::FuncCall(call)) = call {
                name = strings(&call.funcname)
                    .last()
                    .map(|name| (*name).to_owned());
            }
            self.expression(call, lateral)?;
        }
        let item = self.item();
        let (alias, renamed) = alias_of(function.alias.as_ref());
        let name = alias.or(name);
        let columns = match self.unnested_columns(function, name.as_deref(), lateral) {
            Some(mut columns) => {
                for column in &mut columns.list {
                    column.source = self.derived(column.source, item);
                }
                columns.rename(&renamed);
                columns
            }
            None => Columns {
                open: true,
                ..Columns::default()
            },
        };
        Ok(Part::of(Entry {
            name,
            schema: None,
            columns,
            items: item..item + 1,
            only_by_name: false,
        }))
    }

    /// The columns of `unnest`, if nothing else stands in the item.
    fn unnested_columns(
        &mut self,
        function: &protobuf::RangeFunction,
        name: Option<&str>,
        lateral: &Scope<'_>,
    ) -> Option<Columns> {
        let [item] = &function.functions[..] else {
            return None;
        };
        let Some(NodeEnum::List(item)) = inside(item) else {
            return None;
        };
        let Some(NodeEnum::FuncCall(call)) = item.items.first().and_then(inside) else {
            return None;
        };
        let arrays = self.unnested(call)?;
        if function.ordinality || !function.coldeflist.is_empty() {
            return None;
        }
        // One column is named like the item, several like the function.
        let name = if arrays.len() == 1 { name? } else { "unnest" };
        let list = arrays.into_iter().map(|array| {
            let source = self.elements(array, lateral);
            NamedColumn::new(Some(name.to_owned()), source)
        });
        Some(Columns {
            list: list.collect(),
            ..Columns::default()
        })
    }

    fn join(
        &mut self,
        join: &protobuf::JoinExpr,
        before: &[Entry],
        outer: Option<&Scope<'_>>,
    ) -> Result<Part, Refusal> {
        let start = self.items;
        let mut left = self.part_of(boxed(&join.larg), before, outer)?;
        let middle = self.items;
        let right = boxed(&join.rarg);
        // A table sees nothing, nor a subquery without LATERAL.
        let seen: Vec<Entry> = match right {
            Some(NodeEnum::RangeVar(_)) => Vec::new(),
            Some(NodeEnum::RangeSubselect(of)) if !of.lateral => Vec::new(),
            _ => before.iter().chain(&left.entries).cloned().collect(),
        };
        let count = seen.iter().map(|entry| entry.columns.list.len());
        self.notes(count.sum())?;
        let mut right = self.part_of(right, &seen, outer)?;
        let end = self.items;
        // The items for whose rows the condition must be true to matter.
        let range = match join.jointype() {
            JoinType::JoinInner => start..end,
            JoinType::JoinLeft => middle..end,
            JoinType::JoinRight => start..middle,
            _ => end..end,
        };
        let names = if join.is_natural {
            natural_names(&left.columns, &right.columns)?
        } else {
            owned(&join.using_clause)
        };
        self.notes(left.columns.list.len() + right.columns.list.len())?;
        let merged = self.merge(&names, &mut left, &mut right, join.jointype(), &range)?;
        let mut columns = merged.clone();
        for side in [&left.columns, &right.columns] {
            let mut rest = side.clone();
            let is_merged = |column: &NamedColumn| {
                column
                    .name
                    .as_ref()
                    .is_some_and(|name| names.contains(name))
            };
            rest.list.retain(|column| !is_merged(column));
            columns.append(&rest);
        }
        let mut entries = left.entries;
        entries.extend(right.entries);
        if !names.is_empty() {
            let alias = join
                .join_using_alias
                .as_ref()
                .map(|alias| alias.aliasname.clone());
            entries.push(Entry {
                name: alias,
                schema: None,
                columns: merged,
                items: end..end,
                only_by_name: false,
            });
        }
        let scope = Scope {
            entries: &entries,
            outer,
        };
        self.expression(boxed(&join.quals), &scope)?;
        self.condition(boxed(&join.quals), &scope, &range);
        if join.alias.is_some() {
            let (name, renamed) = alias_of(join.alias.as_ref());
            columns
                .list
                .iter_mut()
                .for_each(|column| column.hidden = false);
            columns.rename(&renamed);
            let only = Entry {
                name,
                schema: None,
                columns: columns.clone(),
                items: start..end,
                only_by_name: false,
            };
            entries = vec![only];
        }
        Ok(Part { entries, columns })
    }

    /// The merged columns of USING or NATURAL, whose two sides are equal.
    fn merge(
        &mut self,
        names: &[String],
        left: &mut Part,
        right: &mut Part,
        of: JoinType,
        range: &Range<u32>,
    ) -> Result<Columns, Refusal> {
        let mut merged = Columns::default();
        for name in names {
            let find = |part: &Part| {
                let scope = Scope {
                    entries: &part.entries,
                    outer: None,
                };
                scope.resolve(&[name])
            };
            let (one, other) = (find(left), find(right));
            self.equal(one, other, range);
            let source = match of {
                JoinType::JoinInner | JoinType::JoinLeft => one,
                JoinType::JoinRight => other,
                // COALESCE: a value of either.
                _ => self.common(one, other),
            };
            for entry in left.entries.iter_mut().chain(&mut right.entries) {
                let columns = entry.columns.list.iter_mut();
                let named = columns.filter(|column| column.name.as_ref() == Some(name));
                named.for_each(|column| column.hidden = true);
            }
            merged
                .list
                .push(NamedColumn::new(Some(name.clone()), source));
        }
        Ok(merged)
    }

    /// Two columns are equal in each row that matters to the items of a range.
    pub(super) fn equal(&mut self, one: Source, other: Source, range: &Range<u32>) {
        let (
            Source::Known {
                node: one,
                family,
                item,
            },
            Source::Known {
                node: two,
                family: other_family,
                item: other_item,
            },
        ) = (one, other)
        else {
            return;
        };
        if family != other_family || !self.around.is_equals_built_in() {
            return;
        }
        if range.contains(&item) {
            self.facts.proof.rule(one, vec![Premise::Node(two)]);
        }
        if range.contains(&other_item) {
            self.facts.proof.rule(two, vec![Premise::Node(one)]);
        }
    }
}

/// The names that both sides of a NATURAL join have.
fn natural_names(left: &Columns, right: &Columns) -> Result<Vec<String>, Refusal> {
    let is_known = |side: &Columns| {
        !side.open && !side.unordered && side.list.iter().all(|column| column.name.is_some())
    };
    if !is_known(left) || !is_known(right) {
        return Err(not_read("NATURAL JOIN of columns that are not known"));
    }
    let names = left.list.iter().filter_map(|column| column.name.clone());
    let both = |name: &String| {
        right
            .list
            .iter()
            .any(|column| column.name.as_ref() == Some(name))
    };
    Ok(names.filter(both).collect())
}
