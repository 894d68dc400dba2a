//! The constructors and functions of SQL/JSON and SQL/XML, which have nodes of their own.

use pg_query::NodeEnum;
use pg_query::protobuf;

use super::scope::Scope;
use super::{Reader, boxed, kind_of, not_read};
use crate::refusal::Refusal;

impl Reader<'_> {
    /// Reads what is inside.
    pub(super) fn json(&mut self, node: &NodeEnum, scope: &Scope<'_>) -> Result<(), Refusal> {
        // The result may depend on settings.
        self.facts.guess = false;
        match node {
            NodeEnum::JsonObjectConstructor(of) => {
                self.json_output(of.output.as_ref());
                self.all(&of.exprs, scope)
            }
            NodeEnum::JsonArrayConstructor(of) => {
                self.json_output(of.output.as_ref());
                self.all(&of.exprs, scope)
            }
            NodeEnum::JsonArrayQueryConstructor(of) => {
                self.json_output(of.output.as_ref());
                let query = boxed(&of.query).ok_or_else(|| not_read("no subquery"))?;
                self.query(query, Some(scope)).map(|_| ())
            }
            NodeEnum::JsonObjectAgg(of) => {
                self.json_aggregate(of.constructor.as_deref(), scope)?;
                match of.arg.as_deref() {
                    Some(pair) => self.json_pair(pair, scope),
                    None => Ok(()),
                }
            }
            NodeEnum::JsonArrayAgg(of) => {
                self.json_aggregate(of.constructor.as_deref(), scope)?;
                self.json_value(of.arg.as_deref(), scope)
            }
            NodeEnum::JsonKeyValue(pair) => self.json_pair(pair, scope),
            NodeEnum::JsonValueExpr(value) => self.json_value(Some(value), scope),
            NodeEnum::JsonArgument(of) => self.json_value(of.val.as_deref(), scope),
            NodeEnum::JsonParseExpr(of) => {
                self.json_output(of.output.as_ref());
                self.json_value(of.expr.as_deref(), scope)
            }
            NodeEnum::JsonScalarExpr(of) => {
                self.json_output(of.output.as_ref());
                self.expression(boxed(&of.expr), scope)
            }
            NodeEnum::JsonSerializeExpr(of) => {
                self.json_output(of.output.as_ref());
                self.json_value(of.expr.as_deref(), scope)
            }
            NodeEnum::JsonFuncExpr(of) => {
                self.json_output(of.output.as_ref());
                self.json_value(of.context_item.as_deref(), scope)?;
                self.expression(boxed(&of.pathspec), scope)?;
                self.all(&of.passing, scope)?;
                for behavior in [&of.on_empty, &of.on_error].into_iter().flatten() {
                    self.expression(boxed(&behavior.expr), scope)?;
                }
                Ok(())
            }
            NodeEnum::XmlExpr(of) => {
                self.all(&of.named_args, scope)?;
                self.all(&of.args, scope)
            }
            NodeEnum::XmlSerialize(of) => {
                self.cast_to(of.type_name.as_ref());
                self.expression(boxed(&of.expr), scope)
            }
            other => Err(not_read(&kind_of(other))),
        }
    }

    fn json_output(&mut self, output: Option<&protobuf::JsonOutput>) {
        self.cast_to(output.and_then(|output| output.type_name.as_ref()));
    }

    fn json_pair(
        &mut self,
        pair: &protobuf::JsonKeyValue,
        scope: &Scope<'_>,
    ) -> Result<(), Refusal> {
        self.expression(boxed(&pair.key), scope)?;
        self.json_value(pair.value.as_deref(), scope)
    }

    fn json_value(
        &mut self,
        value: Option<&protobuf::JsonValueExpr>,
        scope: &Scope<'_>,
    ) -> Result<(), Refusal> {
        let Some(value) = value else {
            return Ok(());
        };
        self.expression(boxed(&value.raw_expr), scope)?;
        self.expression(boxed(&value.formatted_expr), scope)
    }

    fn json_aggregate(
        &mut self,
        of: Option<&protobuf::JsonAggConstructor>,
        scope: &Scope<'_>,
    ) -> Result<(), Refusal> {
        let Some(of) = of else {
            return Ok(());
        };
        self.json_output(of.output.as_ref());
        self.expression(boxed(&of.agg_filter), scope)?;
        self.all(&of.agg_order, scope)?;
        match &of.over {
            Some(window) => self.window(window, scope),
            None => Ok(()),
        }
    }
}
