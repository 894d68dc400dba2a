//! Expressions: whatever is not known here is refused. Finds subqueries, calls and parameters.

use pg_query::NodeEnum;
use pg_query::protobuf::{self, AExprKind, SubLinkType, a_const};

use super::scope::{Scope, Source};
use super::{Reader, boxed, inside, kind_of, not_read, strings};
use crate::function::{self, Call};
use crate::proof::{Leaf, Premise, Term};
use crate::refusal::Refusal;
use crate::value::KeyType;

impl Reader<'_> {
    /// Reads each expression of a list.
    pub(super) fn all(
        &mut self,
        list: &[protobuf::Node],
        scope: &Scope<'_>,
    ) -> Result<(), Refusal> {
        list.iter()
            .try_for_each(|node| self.expression(inside(node), scope))
    }

    /// Reads an expression.
    pub(super) fn expression(
        &mut self,
        node: Option<&NodeEnum>,
        scope: &Scope<'_>,
    ) -> Result<(), Refusal> {
        let Some(node) = node else {
            return Ok(());
        };
        match node {
            NodeEnum::AConst(_)
            | NodeEnum::ColumnRef(_)
            | NodeEnum::AStar(_)
            | NodeEnum::SetToDefault(_)
            | NodeEnum::String(_) => Ok(()),
            NodeEnum::ParamRef(parameter) => {
                self.uses.entry(parameter.number as u32).or_default().0 += 1;
                Ok(())
            }
            NodeEnum::SqlvalueFunction(_) => {
                self.facts.guess = false;
                Ok(())
            }
            NodeEnum::AExpr(operation) => self.operation(operation, scope),
            NodeEnum::FuncCall(call) => self.call(call, scope),
            NodeEnum::SubLink(link) => self.sublink(link, scope),
            NodeEnum::BoolExpr(of) => self.all(&of.args, scope),
            NodeEnum::TypeCast(cast) => self.expression(boxed(&cast.arg), scope),
            NodeEnum::CollateClause(of) => self.expression(boxed(&of.arg), scope),
            NodeEnum::NullTest(of) => self.expression(boxed(&of.arg), scope),
            NodeEnum::BooleanTest(of) => self.expression(boxed(&of.arg), scope),
            NodeEnum::NamedArgExpr(of) => self.expression(boxed(&of.arg), scope),
            NodeEnum::ResTarget(of) => self.expression(boxed(&of.val), scope),
            NodeEnum::MultiAssignRef(of) => self.expression(boxed(&of.source), scope),
            NodeEnum::SortBy(of) => self.expression(boxed(&of.node), scope),
            NodeEnum::CoalesceExpr(of) => self.all(&of.args, scope),
            NodeEnum::MinMaxExpr(of) => self.all(&of.args, scope),
            NodeEnum::AArrayExpr(of) => self.all(&of.elements, scope),
            NodeEnum::RowExpr(of) => self.all(&of.args, scope),
            NodeEnum::GroupingFunc(of) => self.all(&of.args, scope),
            NodeEnum::GroupingSet(of) => self.all(&of.content, scope),
            NodeEnum::List(list) => self.all(&list.items, scope),
            NodeEnum::JsonIsPredicate(of) => self.expression(boxed(&of.expr), scope),
            NodeEnum::WindowDef(window) => self.window(window, scope),
            NodeEnum::CaseExpr(of) => {
                self.expression(boxed(&of.arg), scope)?;
                self.all(&of.args, scope)?;
                self.expression(boxed(&of.defresult), scope)
            }
            NodeEnum::CaseWhen(of) => {
                self.expression(boxed(&of.expr), scope)?;
                self.expression(boxed(&of.result), scope)
            }
            NodeEnum::AIndirection(of) => {
                self.expression(boxed(&of.arg), scope)?;
                self.all(&of.indirection, scope)
            }
            NodeEnum::AIndices(of) => {
                self.expression(boxed(&of.lidx), scope)?;
                self.expression(boxed(&of.uidx), scope)
            }
            NodeEnum::IndexElem(of) => self.expression(boxed(&of.expr), scope),
            other => Err(not_read(&kind_of(other))),
        }
    }

    fn window(&mut self, window: &protobuf::WindowDef, scope: &Scope<'_>) -> Result<(), Refusal> {
        self.all(&window.partition_clause, scope)?;
        self.all(&window.order_clause, scope)?;
        self.expression(boxed(&window.start_offset), scope)?;
        self.expression(boxed(&window.end_offset), scope)
    }

    fn operation(&mut self, operation: &protobuf::AExpr, scope: &Scope<'_>) -> Result<(), Refusal> {
        let name = strings(&operation.name).last().copied().unwrap_or_default();
        if self.around.catalogue.may_operator_read(name) {
            return Err(
                Refusal::unproved(format!("operator {name} may read other rows"))
                    .detail("Its function is not built in, not of an extension and not IMMUTABLE.")
                    .hint(crate::refusal::SAY_SHARD),
            );
        }
        let (left, right) = (boxed(&operation.lexpr), boxed(&operation.rexpr));
        let compares = [
            AExprKind::AexprOp,
            AExprKind::AexprIn,
            AExprKind::AexprOpAny,
        ];
        if compares.contains(&operation.kind()) {
            for (column, value) in [(left, right), (right, left)] {
                if let Some(NodeEnum::ColumnRef(column)) = column
                    && let Source::Known { .. } = scope.resolve(&strings(&column.fields))
                {
                    self.note_key(value);
                }
            }
        }
        self.expression(left, scope)?;
        self.expression(right, scope)
    }

    /// A parameter that has the type of a column.
    pub(super) fn note_key(&mut self, value: Option<&NodeEnum>) {
        match value {
            Some(NodeEnum::ParamRef(parameter)) => {
                self.uses.entry(parameter.number as u32).or_default().1 += 1;
            }
            Some(NodeEnum::TypeCast(cast)) => self.note_key(boxed(&cast.arg)),
            Some(NodeEnum::List(list)) => {
                list.items
                    .iter()
                    .for_each(|item| self.note_key(inside(item)));
            }
            Some(NodeEnum::AArrayExpr(array)) => {
                array
                    .elements
                    .iter()
                    .for_each(|item| self.note_key(inside(item)));
            }
            _ => {}
        }
    }

    fn sublink(&mut self, link: &protobuf::SubLink, scope: &Scope<'_>) -> Result<(), Refusal> {
        self.expression(boxed(&link.testexpr), scope)?;
        let query = boxed(&link.subselect).ok_or_else(|| not_read("no subquery"))?;
        let columns = self.query(query, Some(scope))?;
        self.subqueries
            .insert(std::ptr::from_ref(link) as usize, columns);
        Ok(())
    }

    fn call(&mut self, call: &protobuf::FuncCall, scope: &Scope<'_>) -> Result<(), Refusal> {
        self.all(&call.args, scope)?;
        self.all(&call.agg_order, scope)?;
        self.expression(boxed(&call.agg_filter), scope)?;
        if let Some(window) = &call.over {
            self.window(window, scope)?;
        }
        let (schema, name) = match strings(&call.funcname)[..] {
            [name] => (None, name),
            [schema, name] => (Some(schema), name),
            _ => return Err(not_read("a function's name with its database")),
        };
        match function::judge(&self.around, schema, name)? {
            Call::Pure => {}
            Call::NotRepeatable => self.facts.guess = false,
            Call::First => {
                self.facts.guess = false;
                self.facts.first = true;
            }
            Call::Setting => {
                self.facts.guess = false;
                let setting = call.args.first().and_then(inside);
                let number = match setting {
                    Some(NodeEnum::AConst(constant)) => self.constant_number(constant),
                    _ => None,
                };
                let number = number.ok_or_else(|| {
                    not_read("set_config without the setting's name as a constant").firm()
                })?;
                self.facts.settings.push(number);
            }
        }
        Ok(())
    }

    fn constant_number(&self, constant: &protobuf::AConst) -> Option<u32> {
        let at = usize::try_from(constant.location).ok()?;
        self.around.shape.constant_at(at)
    }

    /// The value of an expression, as a premise of a rule about a column of this family. `None` if
    /// nothing is known about the value.
    pub(super) fn premise(
        &mut self,
        node: Option<&NodeEnum>,
        family: KeyType,
        scope: &Scope<'_>,
        stored: bool,
    ) -> Option<Premise> {
        let term = match node? {
            NodeEnum::AConst(constant) => self.constant(constant)?,
            NodeEnum::ParamRef(parameter) => Term::Parameter(parameter.number as u32),
            NodeEnum::TypeCast(cast) => {
                let to = cast.type_name.as_ref()?;
                if self.family_of(to) != Some(family) {
                    return None;
                }
                return self.premise(boxed(&cast.arg), family, scope, stored);
            }
            other => match self.source(Some(other), scope) {
                Source::Known {
                    node,
                    family: other,
                    ..
                } if other == family => return Some(Premise::Node(node)),
                _ => return None,
            },
        };
        Some(self.facts.proof.leaf(Leaf {
            term,
            family,
            stored,
        }))
    }

    fn constant(&self, constant: &protobuf::AConst) -> Option<Term> {
        let negative = match &constant.val {
            _ if constant.isnull => return Some(Term::Null),
            Some(a_const::Val::Ival(value)) => value.ival < 0,
            Some(a_const::Val::Fval(value)) => value.fval.starts_with('-'),
            Some(a_const::Val::Sval(_)) => false,
            _ => return None,
        };
        let number = self.constant_number(constant)?;
        Some(Term::Constant { number, negative })
    }

    /// The family of a type without a length, if the name means the built-in type.
    fn family_of(&self, name: &protobuf::TypeName) -> Option<KeyType> {
        let is_plain = name.typmods.is_empty() && name.array_bounds.is_empty() && !name.setof;
        if !is_plain || name.pct_type {
            return None;
        }
        self.built_in(name).and_then(|name| match name {
            "int2" | "int4" | "int8" => Some(KeyType::Integer),
            "text" | "varchar" => Some(KeyType::Text),
            "uuid" => Some(KeyType::Uuid),
            _ => None,
        })
    }

    /// The family of the elements of an array type.
    pub(super) fn array_family_of(&self, name: &protobuf::TypeName) -> Option<KeyType> {
        if name.array_bounds.len() != 1 || !name.typmods.is_empty() {
            return None;
        }
        let mut element = name.clone();
        element.array_bounds.clear();
        self.family_of(&element)
    }

    fn built_in<'b>(&self, name: &'b protobuf::TypeName) -> Option<&'b str> {
        match strings(&name.names)[..] {
            ["pg_catalog", name] => Some(name),
            [name] if self.around.path.catalog_first() => Some(name),
            _ => None,
        }
    }

    /// What is known about the values of an expression.
    pub(super) fn source(&mut self, node: Option<&NodeEnum>, scope: &Scope<'_>) -> Source {
        match node {
            Some(NodeEnum::ColumnRef(column)) => {
                let is_name = |field| matches!(inside(field), Some(NodeEnum::String(_)));
                if !column.fields.iter().all(is_name) {
                    return Source::Unknown;
                }
                scope.resolve(&strings(&column.fields))
            }
            Some(NodeEnum::ParamRef(parameter)) => {
                Source::Bare(Term::Parameter(parameter.number as u32))
            }
            Some(NodeEnum::AConst(constant)) => match (&constant.val, self.constant(constant)) {
                (Some(a_const::Val::Sval(_)), Some(term)) => Source::Bare(term),
                (Some(a_const::Val::Ival(_) | a_const::Val::Fval(_)), Some(term)) => {
                    self.held_by(term, KeyType::Integer)
                }
                _ => Source::Unknown,
            },
            Some(NodeEnum::TypeCast(cast)) => {
                let to = cast.type_name.as_ref();
                let Some(family) = to.and_then(|to| self.family_of(to)) else {
                    return Source::Unknown;
                };
                match self.premise(node, family, scope, false) {
                    Some(premise) => self.held(premise, family),
                    None => Source::Unknown,
                }
            }
            Some(NodeEnum::SubLink(link)) if link.sub_link_type() == SubLinkType::ExprSublink => {
                let columns = self.subqueries.get(&(std::ptr::from_ref(&**link) as usize));
                let only = columns.and_then(|columns| columns.at(0));
                let source = only.map_or(Source::Unknown, |column| column.source);
                self.derived(source, u32::MAX)
            }
            _ => Source::Unknown,
        }
    }

    fn held_by(&mut self, term: Term, family: KeyType) -> Source {
        let stored = false;
        let premise = self.facts.proof.leaf(Leaf {
            term,
            family,
            stored,
        });
        self.held(premise, family)
    }

    /// A column that has the values of a premise.
    fn held(&mut self, premise: Premise, family: KeyType) -> Source {
        let node = self.facts.proof.node();
        self.facts.proof.rule(node, vec![premise]);
        Source::Known {
            node,
            family,
            item: u32::MAX,
        }
    }
}
