//! Conditions: what is ANDed in a WHERE or ON proves something about columns.

use std::ops::Range;

use pg_query::NodeEnum;
use pg_query::protobuf::{self, AExprKind, BoolExprType, SubLinkType};

use super::scope::{Scope, Source};
use super::{Reader, boxed, cells, inside, strings};
use crate::proof::{Node, Premise};
use crate::value::KeyType;

impl Reader<'_> {
    /// A condition that must be true for each row of the items in a range to matter. The condition's
    /// subqueries are read already.
    pub(super) fn condition(
        &mut self,
        node: Option<&NodeEnum>,
        scope: &Scope<'_>,
        range: &Range<u32>,
    ) {
        // A schema before pg_catalog may have another `=`, or any other with exactly the types.
        if !self.around.is_equals_built_in() {
            return;
        }
        match node {
            Some(NodeEnum::BoolExpr(of)) if of.boolop() == BoolExprType::AndExpr => {
                for part in &of.args {
                    self.condition(inside(part), scope, range);
                }
            }
            Some(NodeEnum::BoolExpr(of)) if of.boolop() == BoolExprType::OrExpr => {
                self.any_arm(&of.args, scope, range);
            }
            Some(NodeEnum::AExpr(operation)) if is_equals(&operation.name) => {
                let (left, right) = (boxed(&operation.lexpr), boxed(&operation.rexpr));
                match operation.kind() {
                    AExprKind::AexprOp => self.equals(left, right, scope, range),
                    AExprKind::AexprIn => self.in_list(left, right, scope, range),
                    AExprKind::AexprOpAny => self.any_of(left, right, scope, range),
                    AExprKind::AexprNotDistinct => {
                        for (column, value) in [(left, right), (right, left)] {
                            self.same_as(column, value, scope, range);
                        }
                    }
                    _ => {}
                }
            }
            Some(NodeEnum::SubLink(link))
                if link.sub_link_type() == SubLinkType::AnySublink
                    && (link.oper_name.is_empty() || is_equals(&link.oper_name)) =>
            {
                self.in_subquery(link, scope, range);
            }
            _ => {}
        }
    }

    /// `x OR y`: a column of which each arm says something has one of the arms' values.
    fn any_arm(&mut self, arms: &[protobuf::Node], scope: &Scope<'_>, range: &Range<u32>) {
        let columns = self.facts.proof.nodes();
        let mut common: Option<Vec<(Node, Vec<Premise>)>> = None;
        for arm in arms {
            let before = self.facts.proof.count();
            self.condition(inside(arm), scope, range);
            let mut found = self.facts.proof.take_rules(before, columns);
            let both = match common {
                None => found,
                Some(mut common) => {
                    common.retain_mut(|(node, premises)| {
                        let same = found.iter_mut().find(|(other, _)| other == node);
                        same.is_some_and(|(_, more)| {
                            premises.extend(more.iter().copied());
                            true
                        })
                    });
                    common
                }
            };
            if both.is_empty() {
                return;
            }
            common = Some(both);
        }
        for (node, premises) in common.into_iter().flatten() {
            self.facts.proof.rule(node, premises);
        }
    }

    /// `a = b`, and each column of `(a, b) = (c, d)`.
    fn equals(
        &mut self,
        left: Option<&NodeEnum>,
        right: Option<&NodeEnum>,
        scope: &Scope<'_>,
        range: &Range<u32>,
    ) {
        if let (Some(NodeEnum::RowExpr(left)), Some(NodeEnum::RowExpr(right))) = (left, right) {
            if let (Some(left), Some(right)) = (cells(left), cells(right))
                && left.len() == right.len()
            {
                for (left, right) in left.iter().zip(right) {
                    self.equals(inside(left), inside(right), scope, range);
                }
            }
            return;
        }
        // `= NULL` means IS NULL with transform_null_equals.
        let is_null = |side: Option<&NodeEnum>| matches!(side, Some(NodeEnum::AConst(constant)) if constant.isnull);
        if is_null(left) || is_null(right) {
            return;
        }
        for (column, value) in [(left, right), (right, left)] {
            self.one_of(column, &[value], scope, range);
        }
    }

    /// The column in a range with its family, if an expression is one.
    fn column(
        &mut self,
        node: Option<&NodeEnum>,
        scope: &Scope<'_>,
        range: &Range<u32>,
    ) -> Option<(u32, KeyType)> {
        let Some(NodeEnum::ColumnRef(_)) = node else {
            return None;
        };
        match self.source(node, scope) {
            Source::Known { node, family, item } if range.contains(&item) => Some((node, family)),
            _ => None,
        }
    }

    /// The column has one of these values.
    fn one_of(
        &mut self,
        column: Option<&NodeEnum>,
        values: &[Option<&NodeEnum>],
        scope: &Scope<'_>,
        range: &Range<u32>,
    ) {
        let Some((node, family)) = self.column(column, scope, range) else {
            return;
        };
        let premises = values
            .iter()
            .map(|value| self.premise(*value, family, scope, false));
        if let Some(premises) = premises.collect::<Option<Vec<Premise>>>() {
            self.facts.proof.rule(node, premises);
        }
    }

    /// `a IS NOT DISTINCT FROM 5`. Of a NULL nothing is known.
    fn same_as(
        &mut self,
        column: Option<&NodeEnum>,
        value: Option<&NodeEnum>,
        scope: &Scope<'_>,
        range: &Range<u32>,
    ) {
        if let Some((node, family)) = self.column(column, scope, range)
            && let Some(leaf @ Premise::Leaf(_)) = self.premise(value, family, scope, true)
        {
            self.facts.proof.rule(node, vec![leaf]);
        }
    }

    /// `a IN (b, c)`, and each column of `(a, b) IN ((c, d), (e, f))`.
    fn in_list(
        &mut self,
        left: Option<&NodeEnum>,
        right: Option<&NodeEnum>,
        scope: &Scope<'_>,
        range: &Range<u32>,
    ) {
        let Some(NodeEnum::List(list)) = right else {
            return;
        };
        let Some(NodeEnum::RowExpr(row)) = left else {
            let values: Vec<_> = list.items.iter().map(inside).collect();
            return self.one_of(left, &values, scope, range);
        };
        let Some(row) = cells(row) else {
            return;
        };
        for (at, column) in row.iter().enumerate() {
            let values = list.items.iter().map(|item| match inside(item) {
                Some(NodeEnum::RowExpr(item)) => {
                    let item = cells(item).filter(|item| item.len() == row.len());
                    item?.get(at).and_then(inside)
                }
                _ => None,
            });
            let values: Vec<_> = values.collect();
            self.one_of(inside(column), &values, scope, range);
        }
    }

    /// `a = ANY (array)`
    fn any_of(
        &mut self,
        left: Option<&NodeEnum>,
        right: Option<&NodeEnum>,
        scope: &Scope<'_>,
        range: &Range<u32>,
    ) {
        let Some((node, family)) = self.column(left, scope, range) else {
            return;
        };
        let mut array = right;
        if let Some(NodeEnum::TypeCast(cast)) = array {
            let of = cast
                .type_name
                .as_ref()
                .and_then(|to| self.array_family_of(to));
            if of != Some(family) {
                return;
            }
            array = boxed(&cast.arg);
        }
        // An empty array equals nothing.
        if let Some(premises) = self.array_premises(array, family, scope) {
            self.facts.proof.rule(node, premises);
        }
    }

    /// `a IN (SELECT ..)`
    fn in_subquery(&mut self, link: &protobuf::SubLink, scope: &Scope<'_>, range: &Range<u32>) {
        let address = std::ptr::from_ref(link) as usize;
        let Some(columns) = self.subqueries.get(&address).cloned() else {
            return;
        };
        let test = boxed(&link.testexpr);
        let tested: Vec<_> = match test {
            Some(NodeEnum::RowExpr(row)) => match cells(row) {
                Some(row) => row.iter().map(inside).collect(),
                None => return,
            },
            other => vec![other],
        };
        for (at, column) in tested.into_iter().enumerate() {
            let Some((node, family)) = self.column(column, scope, range) else {
                continue;
            };
            let source = columns
                .at(at)
                .map_or(Source::Unknown, |column| column.source);
            let source = self.derived(source, u32::MAX);
            if let Source::Known {
                node: value,
                family: other,
                ..
            } = source
                && other == family
            {
                self.facts.proof.rule(node, vec![Premise::Node(value)]);
            }
        }
    }
}

fn is_equals(name: &[protobuf::Node]) -> bool {
    matches!(strings(name)[..], ["="] | ["pg_catalog", "="])
}
