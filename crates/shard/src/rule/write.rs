//! INSERT, UPDATE and DELETE: the keys that are stored have to be placed, too.

use pg_query::NodeEnum;
use pg_query::protobuf::{self, OnConflictAction, OverridingKind, SetOperation};

use super::scope::{Columns, Entry, Scope, Source};
use super::{Reader, boxed, cells, inside, is_star, not_read};
use crate::catalogue::{Table, TablePlace};
use crate::command;
use crate::proof::{Leaf, Node, Premise};
use crate::refusal::Refusal;
use crate::value::KeyType;

/// The table that is written.
struct Target<'a> {
    table: &'a Table,
    place: TablePlace,
    entry: Entry,
}

impl Target<'_> {
    /// The key's column and family, if the table is sharded.
    fn key(&self) -> Option<(&str, KeyType)> {
        match &self.place {
            TablePlace::Sharded { column, key, .. } => Some((column, *key)),
            _ => None,
        }
    }
}

impl<'a> Reader<'a> {
    /// The target of a statement. `None` for a name that may be a temporary table's.
    fn target(
        &mut self,
        named: Option<&protobuf::RangeVar>,
    ) -> Result<(Entry, Option<Target<'a>>), Refusal> {
        self.facts.writes = true;
        let named = named.ok_or_else(|| not_read("no table"))?;
        let (entry, found) = self.table_entry(named)?;
        let Some((table, place)) = found else {
            return Ok((entry, None));
        };
        if place == TablePlace::Catalogue {
            return Err(command::of_one_server(table));
        }
        if let TablePlace::Replicated { home } = place {
            self.write_replicated(home, table.name());
        }
        let target = Target {
            table,
            place,
            entry: entry.clone(),
        };
        Ok((entry, Some(target)))
    }

    pub(super) fn update(
        &mut self,
        update: &protobuf::UpdateStmt,
        outer: Option<&Scope<'_>>,
    ) -> Result<Columns, Refusal> {
        let before = self.ctes.len();
        self.with(update.with_clause.as_ref(), outer)?;
        let (entry, target) = self.target(update.relation.as_ref())?;
        if let Some(target) = &target {
            self.read_table(target.table, &target.place, &target.entry);
        }
        let all = entry.columns.clone();
        let (level, range) = self.items_of(vec![entry], &update.from_clause, outer)?;
        let scope = Scope {
            entries: &level.entries,
            outer,
        };
        self.expression(boxed(&update.where_clause), &scope)?;
        self.condition(boxed(&update.where_clause), &scope, &range);
        let set = self.set(&update.target_list, target.as_ref(), &scope)?;
        let mut columns = all;
        columns.append(&level.columns);
        let returning = update.returning_clause.as_ref();
        let columns = self.returning(returning, &level.entries, &set, columns, outer)?;
        self.ctes.truncate(before);
        Ok(columns)
    }

    pub(super) fn delete(
        &mut self,
        delete: &protobuf::DeleteStmt,
        outer: Option<&Scope<'_>>,
    ) -> Result<Columns, Refusal> {
        let before = self.ctes.len();
        self.with(delete.with_clause.as_ref(), outer)?;
        let (entry, target) = self.target(delete.relation.as_ref())?;
        if let Some(target) = &target {
            self.read_table(target.table, &target.place, &target.entry);
        }
        let all = entry.columns.clone();
        let (level, range) = self.items_of(vec![entry], &delete.using_clause, outer)?;
        let scope = Scope {
            entries: &level.entries,
            outer,
        };
        self.expression(boxed(&delete.where_clause), &scope)?;
        self.condition(boxed(&delete.where_clause), &scope, &range);
        let mut columns = all;
        columns.append(&level.columns);
        let returning = delete.returning_clause.as_ref();
        let columns = self.returning(returning, &level.entries, &[], columns, outer)?;
        self.ctes.truncate(before);
        Ok(columns)
    }

    /// SET: the names of the columns that are set.
    fn set(
        &mut self,
        list: &[protobuf::Node],
        target: Option<&Target<'_>>,
        scope: &Scope<'_>,
    ) -> Result<Vec<String>, Refusal> {
        let mut names = Vec::new();
        for item in list {
            let Some(NodeEnum::ResTarget(item)) = inside(item) else {
                return Err(not_read("such a SET"));
            };
            self.all(&item.indirection, scope)?;
            let value = assigned(item);
            // Each column of a row has its own copy of the row.
            self.expression(value.or(boxed(&item.val)), scope)?;
            names.push(item.name.clone());
            let Some(target) = target else {
                continue;
            };
            self.note_stored(target.table, &item.name, value);
            if let Some((key, family)) = target.key()
                && item.name == key
            {
                let premise = self.premise(value, family, scope, true);
                let premise = premise.filter(|_| item.indirection.is_empty());
                let premise = premise.ok_or_else(|| {
                    self.key_not_placed(target.table, key, "is set to what is no placed value")
                })?;
                self.store(target, key, vec![premise]);
            }
        }
        Ok(names)
    }

    /// A parameter that is stored in a column has the column's type.
    fn note_stored(&mut self, table: &Table, column: &str, value: Option<&NodeEnum>) {
        let column = table.column(column);
        if let Some(family) = column.and_then(|column| KeyType::of_oid(column.column.of)) {
            self.note_key(value, family);
        }
    }

    /// A key with these values is stored: they have to be placed.
    fn store(&mut self, target: &Target<'_>, column: &str, premises: Vec<Premise>) -> Node {
        let node = self.facts.proof.node();
        self.facts.proof.rule(node, premises);
        let column_facts = target.table.column(column);
        self.facts.proof.cuts_blanks |=
            column_facts.is_some_and(|column| column.column.has_modifier);
        let what = format!(
            "The key \"{column}\" that is stored in \"{}\"",
            target.table.name()
        );
        self.goal(&target.place, node, what);
        node
    }

    pub(super) fn insert(
        &mut self,
        insert: &protobuf::InsertStmt,
        outer: Option<&Scope<'_>>,
    ) -> Result<Columns, Refusal> {
        let before = self.ctes.len();
        self.with(insert.with_clause.as_ref(), outer)?;
        let (mut entry, target) = self.target(insert.relation.as_ref())?;
        let select = match boxed(&insert.select_stmt) {
            Some(NodeEnum::SelectStmt(select)) => Some(&**select),
            None => None,
            _ => return Err(not_read("such an INSERT")),
        };
        let key = target.as_ref().and_then(|target| target.key());
        if let (Some(target), Some((column, _))) = (&target, key)
            && insert.r#override() == OverridingKind::OverridingUserValue
        {
            let what = "may be generated instead of what the statement gives";
            return Err(self.key_not_placed(target.table, column, what));
        }
        let names = self.stored_names(insert, target.as_ref())?;
        let rows =
            select.filter(|select| !select.values_lists.is_empty() && select.with_clause.is_none());
        let premises = match (rows, select) {
            (Some(rows), _) => self.stored_rows(rows, target.as_ref(), names.as_deref(), outer)?,
            (None, Some(select)) => {
                self.stored_query(select, target.as_ref(), names.as_deref(), outer)?
            }
            (None, None) => None,
        };
        let mut stored = Source::Unknown;
        if let (Some(target), Some((column, family))) = (&target, key) {
            let premises = premises.ok_or_else(|| {
                self.key_not_placed(target.table, column, "is not given as a placed value")
            })?;
            let node = self.store(target, column, premises);
            let item = u32::MAX;
            stored = Source::Known { node, family, item };
        } else if let Some(Target {
            table,
            place: TablePlace::One(shard),
            ..
        }) = &target
        {
            let what = format!("Table \"{}\"", table.name());
            self.facts.fixed.push((*shard, what));
        }
        // Of the new row, only the key is known.
        let is_key =
            |name: &Option<String>| key.is_some_and(|(key, _)| name.as_deref() == Some(key));
        for column in &mut entry.columns.list {
            column.source = if is_key(&column.name) {
                stored
            } else {
                Source::Unknown
            };
        }
        let updates = self.conflict(insert, target.as_ref(), &entry, outer)?;
        if updates {
            // The row may be an older one.
            let columns = entry.columns.list.iter_mut();
            columns.for_each(|column| column.source = Source::Unknown);
        }
        let columns = entry.columns.clone();
        let returning = insert.returning_clause.as_ref();
        let columns = self.returning(returning, &[entry], &[], columns, outer)?;
        self.ctes.truncate(before);
        Ok(columns)
    }

    /// The columns into which values go, in order. `None` if the order is not the same everywhere.
    fn stored_names(
        &self,
        insert: &protobuf::InsertStmt,
        target: Option<&Target<'_>>,
    ) -> Result<Option<Vec<String>>, Refusal> {
        if !insert.cols.is_empty() {
            let names = insert.cols.iter().map(|column| match inside(column) {
                Some(NodeEnum::ResTarget(column)) if column.indirection.is_empty() => {
                    Ok(column.name.clone())
                }
                _ => Err(not_read("INSERT into a part of a column")),
            });
            return names.collect::<Result<_, _>>().map(Some);
        }
        let table = target
            .map(|target| &target.table)
            .filter(|table| table.same_columns);
        Ok(table.map(|table| {
            let columns = table.columns.iter();
            columns.map(|column| column.column.name.clone()).collect()
        }))
    }

    /// The keys in the rows of VALUES. `None` if one is not known.
    fn stored_rows(
        &mut self,
        rows: &protobuf::SelectStmt,
        target: Option<&Target<'_>>,
        names: Option<&[String]>,
        outer: Option<&Scope<'_>>,
    ) -> Result<Option<Vec<Premise>>, Refusal> {
        let nowhere = Scope {
            entries: &[],
            outer,
        };
        let key = target.and_then(|target| target.key());
        let mut premises = Some(Vec::new());
        for row in &rows.values_lists {
            let Some(NodeEnum::List(row)) = inside(row) else {
                return Err(not_read("such a row of VALUES"));
            };
            if row.items.iter().any(|item| is_star(inside(item))) {
                return Err(not_read("a star in a row of VALUES"));
            }
            let mut found = None;
            for (at, item) in row.items.iter().enumerate() {
                let item = inside(item);
                self.expression(item, &nowhere)?;
                let name = names.and_then(|names| names.get(at));
                let (Some(name), Some(target)) = (name, target) else {
                    continue;
                };
                self.note_stored(target.table, name, item);
                if let Some((column, family)) = key
                    && name == column
                {
                    found = self.premise(item, family, &nowhere, true);
                }
            }
            match (&mut premises, found) {
                (Some(premises), Some(found)) => premises.push(found),
                _ => premises = None,
            }
        }
        self.tail(rows, outer)?;
        Ok(premises)
    }

    /// The key in the rows of a query.
    fn stored_query(
        &mut self,
        select: &protobuf::SelectStmt,
        target: Option<&Target<'_>>,
        names: Option<&[String]>,
        outer: Option<&Scope<'_>>,
    ) -> Result<Option<Vec<Premise>>, Refusal> {
        let columns = self.select(select, outer)?;
        let (Some(target), Some(names)) = (target, names) else {
            return Ok(None);
        };
        let is_plain = matches!(
            select.op(),
            SetOperation::SetopNone | SetOperation::Undefined
        );
        let key = target.key();
        for (at, name) in names.iter().enumerate() {
            // Without UNION, a parameter has the type of the column into which it goes.
            let value = select.target_list.get(at).and_then(inside);
            if let Some(NodeEnum::ResTarget(value)) = value
                && is_star(boxed(&value.val))
            {
                // The places behind are not those of the targets.
                break;
            }
            if let Some(NodeEnum::ResTarget(value)) = value.filter(|_| is_plain) {
                self.note_stored(target.table, name, boxed(&value.val));
            }
        }
        let Some((column, family)) = key else {
            return Ok(None);
        };
        let at = names.iter().position(|name| name == column);
        let source = at.and_then(|at| columns.at(at)).map(|column| column.source);
        let premise = match source {
            Some(Source::Known {
                node,
                family: other,
                ..
            }) if other == family => Premise::Node(node),
            Some(Source::Bare(term)) if is_plain => self.facts.proof.leaf(Leaf {
                term,
                family,
                stored: true,
            }),
            _ => return Ok(None),
        };
        Ok(Some(vec![premise]))
    }

    /// ON CONFLICT. True if rows are updated.
    fn conflict(
        &mut self,
        insert: &protobuf::InsertStmt,
        target: Option<&Target<'_>>,
        new: &Entry,
        outer: Option<&Scope<'_>>,
    ) -> Result<bool, Refusal> {
        let Some(conflict) = &insert.on_conflict_clause else {
            return Ok(false);
        };
        let mut old = new.clone();
        let columns = old.columns.list.iter_mut();
        columns.for_each(|column| column.source = Source::Unknown);
        let mut excluded = new.clone();
        (excluded.name, excluded.schema) = (Some("excluded".into()), None);
        excluded.only_by_name = true;
        let entries = [old, excluded];
        let scope = Scope {
            entries: &entries,
            outer,
        };
        if let Some(infer) = &conflict.infer {
            self.all(&infer.index_elems, &scope)?;
            self.expression(boxed(&infer.where_clause), &scope)?;
        }
        self.set(&conflict.target_list, target, &scope)?;
        self.expression(boxed(&conflict.where_clause), &scope)?;
        Ok(conflict.action() == OnConflictAction::OnconflictUpdate)
    }

    /// RETURNING. `set` are columns that have new values.
    fn returning(
        &mut self,
        returning: Option<&protobuf::ReturningClause>,
        entries: &[Entry],
        set: &[String],
        all: Columns,
        outer: Option<&Scope<'_>>,
    ) -> Result<Columns, Refusal> {
        let Some(returning) = returning else {
            return Ok(Columns::default());
        };
        let mut entries = entries.to_vec();
        let mut all = all;
        let forget = |columns: &mut Columns| {
            let columns = columns.list.iter_mut();
            let changed =
                columns.filter(|column| column.name.as_ref().is_none_or(|name| set.contains(name)));
            changed.for_each(|column| column.source = Source::Unknown);
        };
        forget(&mut all);
        entries
            .iter_mut()
            .for_each(|entry| forget(&mut entry.columns));
        // Names of the old and the new row, from PostgreSQL 18 on.
        let options = returning
            .options
            .iter()
            .filter_map(|option| match inside(option) {
                Some(NodeEnum::ReturningOption(option)) => Some(option.value.clone()),
                _ => None,
            });
        let names = options.chain(["old".to_owned(), "new".to_owned()]);
        for name in names.collect::<Vec<_>>() {
            if !entries
                .iter()
                .any(|entry| entry.name.as_ref() == Some(&name))
            {
                entries.push(Entry {
                    name: Some(name),
                    schema: None,
                    columns: Columns {
                        open: true,
                        ..Columns::default()
                    },
                    items: 0..0,
                    only_by_name: true,
                });
            }
        }
        let scope = Scope {
            entries: &entries,
            outer,
        };
        self.targets(&returning.exprs, &scope, &all)
    }
}

/// The value that SET gives to a column.
fn assigned(item: &protobuf::ResTarget) -> Option<&NodeEnum> {
    let value = boxed(&item.val);
    let Some(NodeEnum::MultiAssignRef(part)) = value else {
        return value;
    };
    match boxed(&part.source) {
        Some(NodeEnum::RowExpr(row)) => {
            let at = usize::try_from(part.colno).ok()?.checked_sub(1)?;
            cells(row)?.get(at).and_then(inside)
        }
        _ => None,
    }
}
