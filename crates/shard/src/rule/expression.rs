//! Expressions: whatever is not known here is refused. Finds subqueries, calls and parameters.

use pg_query::NodeEnum;
use pg_query::protobuf::{self, AExprKind, SubLinkType, a_const};

use super::scope::{Scope, Source};
use super::{Reader, boxed, cells, inside, not_read, strings};
use crate::function::{self, Call};
use crate::proof::{Leaf, Premise, Term};
use crate::refusal::{Refusal, RefusalReason};
use crate::value::KeyType;

/// Built-in types whose arrays `unnest` turns into one column each.
const ELEMENTS: [&str; 24] = [
    "bool",
    "bpchar",
    "bytea",
    "cidr",
    "date",
    "float4",
    "float8",
    "inet",
    "int2",
    "int4",
    "int8",
    "interval",
    "json",
    "jsonb",
    "name",
    "numeric",
    "oid",
    "text",
    "time",
    "timestamp",
    "timestamptz",
    "timetz",
    "uuid",
    "varchar",
];

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
            NodeEnum::ColumnRef(column) => self.column_name(column, scope),
            NodeEnum::AConst(_)
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
            NodeEnum::TypeCast(cast) => {
                self.cast_to(cast.type_name.as_ref());
                self.expression(boxed(&cast.arg), scope)
            }
            NodeEnum::CollateClause(of) => self.expression(boxed(&of.arg), scope),
            NodeEnum::NullTest(of) => self.expression(boxed(&of.arg), scope),
            NodeEnum::BooleanTest(of) => self.expression(boxed(&of.arg), scope),
            NodeEnum::NamedArgExpr(of) => self.expression(boxed(&of.arg), scope),
            NodeEnum::ResTarget(of) => self.expression(boxed(&of.val), scope),
            NodeEnum::MultiAssignRef(of) => self.expression(boxed(&of.source), scope),
            NodeEnum::SortBy(of) => {
                self.operator(&of.use_op);
                self.expression(boxed(&of.node), scope)
            }
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
                if of.arg.is_some() {
                    self.operator_named("=");
                }
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
                for name in strings(&of.indirection) {
                    self.attribute(name);
                }
                self.all(&of.indirection, scope)
            }
            NodeEnum::AIndices(of) => {
                self.expression(boxed(&of.lidx), scope)?;
                self.expression(boxed(&of.uidx), scope)
            }
            NodeEnum::IndexElem(of) => self.expression(boxed(&of.expr), scope),
            other => self.json(other, scope),
        }
    }

    pub(super) fn window(
        &mut self,
        window: &protobuf::WindowDef,
        scope: &Scope<'_>,
    ) -> Result<(), Refusal> {
        self.all(&window.partition_clause, scope)?;
        self.all(&window.order_clause, scope)?;
        self.expression(boxed(&window.start_offset), scope)?;
        self.expression(boxed(&window.end_offset), scope)
    }

    /// An operator that is written in a statement.
    fn operator(&mut self, name: &[protobuf::Node]) {
        let name = strings(name).last().copied().unwrap_or_default();
        self.operator_named(name);
    }

    /// A cast, whose function may read tables.
    pub(super) fn cast_to(&mut self, to: Option<&protobuf::TypeName>) {
        if let Some(name) = to.and_then(|to| strings(&to.names).last().copied()) {
            self.operator_named(&format!("::{name}"));
        }
    }

    fn operator_named(&mut self, name: &str) {
        if self.around.catalogue.may_operator_read(name) {
            self.facts.refuse(
                Refusal::unproved(format!("operator {name} may read other rows"))
                    .because(RefusalReason::Function)
                    .detail("Its function is not built in, not of an extension and not IMMUTABLE.")
                    .hint(crate::refusal::SAY_SHARD),
            );
        }
    }

    fn operation(&mut self, operation: &protobuf::AExpr, scope: &Scope<'_>) -> Result<(), Refusal> {
        self.operator(&operation.name);
        let (left, right) = (boxed(&operation.lexpr), boxed(&operation.rexpr));
        let compares = [
            AExprKind::AexprOp,
            AExprKind::AexprIn,
            AExprKind::AexprOpAny,
            AExprKind::AexprNotDistinct,
        ];
        if compares.contains(&operation.kind()) {
            for (column, value) in [(left, right), (right, left)] {
                self.note_keys(column, value, scope);
            }
        }
        self.expression(left, scope)?;
        self.expression(right, scope)
    }

    /// Parameters that are compared with a column, or in rows with several.
    fn note_keys(
        &mut self,
        column: Option<&NodeEnum>,
        value: Option<&NodeEnum>,
        scope: &Scope<'_>,
    ) {
        match (column, value) {
            (Some(NodeEnum::ColumnRef(column)), _) => {
                if let Source::Known { family, .. } = scope.resolve(&strings(&column.fields)) {
                    self.note_key(value, family);
                }
            }
            (Some(NodeEnum::RowExpr(columns)), Some(NodeEnum::RowExpr(values))) => {
                if let (Some(columns), Some(values)) = (cells(columns), cells(values)) {
                    for (column, value) in columns.iter().zip(values) {
                        self.note_keys(inside(column), inside(value), scope);
                    }
                }
            }
            (Some(NodeEnum::RowExpr(_)), Some(NodeEnum::List(rows))) => {
                for row in &rows.items {
                    self.note_keys(column, inside(row), scope);
                }
            }
            _ => {}
        }
    }

    /// A parameter that has the type of a column of this family.
    pub(super) fn note_key(&mut self, value: Option<&NodeEnum>, family: KeyType) {
        match value {
            Some(NodeEnum::ParamRef(parameter)) => {
                self.uses.entry(parameter.number as u32).or_default().1 += 1;
            }
            Some(NodeEnum::TypeCast(cast)) => {
                // A cast is what gives a parameter its type.
                let to = cast.type_name.as_ref();
                let of = to.and_then(|to| self.family_of(to).or_else(|| self.array_family_of(to)));
                if of == Some(family) {
                    self.note_key(boxed(&cast.arg), family);
                }
            }
            Some(NodeEnum::List(list)) => {
                list.items
                    .iter()
                    .for_each(|item| self.note_key(inside(item), family));
            }
            Some(NodeEnum::AArrayExpr(array)) => {
                array
                    .elements
                    .iter()
                    .for_each(|item| self.note_key(inside(item), family));
            }
            _ => {}
        }
    }

    fn sublink(&mut self, link: &protobuf::SubLink, scope: &Scope<'_>) -> Result<(), Refusal> {
        self.operator(&link.oper_name);
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
        match self.judge(schema, name) {
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

    /// What a call means. What is read behind a refused call still counts against a hint.
    fn judge(&mut self, schema: Option<&str>, name: &str) -> Call {
        function::judge(&self.around, schema, name).unwrap_or_else(|refusal| {
            self.facts.refuse(refusal);
            Call::NotRepeatable
        })
    }

    /// `a.f` and `(a).f` call a function if there is no such column.
    fn attribute(&mut self, name: &str) {
        if function::is_user_defined(&self.around, name) && self.judge(None, name) != Call::Pure {
            self.facts.guess = false;
        }
    }

    fn column_name(
        &mut self,
        column: &protobuf::ColumnRef,
        scope: &Scope<'_>,
    ) -> Result<(), Refusal> {
        self.looks_up(scope)?;
        let names = strings(&column.fields);
        if let [.., _, last] = names[..]
            && names.len() == column.fields.len()
            && !scope.has(&names)
        {
            self.attribute(last);
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
            // A temporary type comes before all.
            [name] if self.around.path.catalog_first() && !self.around.has_temporary => Some(name),
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
            Some(NodeEnum::FuncCall(call)) => match self.unnested(call) {
                Some(arrays) if arrays.len() == 1 => self.elements(arrays[0], scope),
                _ => Source::Unknown,
            },
            Some(NodeEnum::SubLink(link)) if link.sub_link_type() == SubLinkType::ExprSublink => {
                let columns = self.subqueries.get(&(std::ptr::from_ref(&**link) as usize));
                let only = columns.and_then(|columns| columns.at(0));
                let source = only.map_or(Source::Unknown, |column| column.source);
                self.derived(source, u32::MAX)
            }
            _ => Source::Unknown,
        }
    }

    /// The arrays of `unnest`, if each is cast to an array of a built-in type that is one column.
    pub(super) fn unnested<'b>(
        &self,
        call: &'b protobuf::FuncCall,
    ) -> Option<Vec<&'b protobuf::TypeCast>> {
        let is_unnest = match strings(&call.funcname)[..] {
            ["unnest"] => self.around.path.catalog_first() && !self.has_own_unnest(),
            ["pg_catalog", "unnest"] => true,
            _ => false,
        };
        let is_plain = call.agg_order.is_empty() && call.over.is_none() && !call.func_variadic;
        if !is_unnest || !is_plain {
            return None;
        }
        let arrays = call.args.iter().map(|array| match inside(array) {
            Some(NodeEnum::TypeCast(cast)) => {
                let to = cast.type_name.as_ref()?;
                let of = self.built_in(to).filter(|_| !to.array_bounds.is_empty())?;
                ELEMENTS.contains(&of).then_some(&**cast)
            }
            _ => None,
        });
        arrays.collect()
    }

    fn has_own_unnest(&self) -> bool {
        function::is_user_defined(&self.around, "unnest")
    }

    /// The elements of an array.
    pub(super) fn elements(&mut self, array: &protobuf::TypeCast, scope: &Scope<'_>) -> Source {
        let to = array.type_name.as_ref();
        let Some(family) = to.and_then(|to| self.array_family_of(to)) else {
            return Source::Unknown;
        };
        let value = boxed(&array.arg);
        self.note_key(value, family);
        match self.array_premises(value, family, scope) {
            Some(premises) => {
                let node = self.facts.proof.node();
                self.facts.proof.rule(node, premises);
                let item = u32::MAX;
                Source::Known { node, family, item }
            }
            None => Source::Unknown,
        }
    }

    /// The elements of an array that is a parameter or constant, or ARRAY[..].
    pub(super) fn array_premises(
        &mut self,
        array: Option<&NodeEnum>,
        family: KeyType,
        scope: &Scope<'_>,
    ) -> Option<Vec<Premise>> {
        let term = match array {
            Some(NodeEnum::AArrayExpr(array)) => {
                let values = array.elements.iter().map(inside);
                let premises = values.map(|value| self.premise(value, family, scope, false));
                return premises.collect();
            }
            // Django writes ('{1,2}'::int2[])::bigint[].
            Some(NodeEnum::TypeCast(cast))
                if family == KeyType::Integer
                    && matches!(boxed(&cast.arg), Some(NodeEnum::AConst(_)))
                    && cast
                        .type_name
                        .as_ref()
                        .and_then(|to| self.array_family_of(to))
                        == Some(family) =>
            {
                return self.array_premises(boxed(&cast.arg), family, scope);
            }
            Some(NodeEnum::ParamRef(parameter)) => Term::ParameterArray(parameter.number as u32),
            Some(constant @ NodeEnum::AConst(_)) => match self.source(Some(constant), scope) {
                Source::Bare(Term::Constant { number, .. }) => Term::ConstantArray(number),
                _ => return None,
            },
            _ => return None,
        };
        let stored = false;
        Some(vec![self.facts.proof.leaf(Leaf {
            term,
            family,
            stored,
        })])
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
