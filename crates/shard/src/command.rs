//! The commands of a text, by their class.

use pg_query::NodeEnum;
use pg_query::protobuf::{self, ObjectType, TransactionStmtKind};

use crate::catalogue::{Table, TablePlace};
use crate::facts::{Facts, Surroundings};
use crate::grammar;
use crate::plan::{Class, Command, REPLICATED};
use crate::refusal::{Refusal, RefusalReason, SAY_SHARD};
use crate::rule;

/// The commands of a text with this shape.
pub(crate) fn read(around: Surroundings<'_>) -> Result<Vec<Command>, Refusal> {
    let tree = grammar::parse(around.shape)?;
    let statements = tree
        .stmts
        .iter()
        .filter_map(|raw| raw.stmt.as_ref()?.node.as_ref());
    let mut is_changed = false;
    let mut commands = Vec::new();
    for statement in statements {
        let read = match is_changed && looks_up(statement) {
            true => Err(looked_up_anew()),
            false => command(around, statement),
        };
        // What another command proves still counts against a hint.
        let command = read.unwrap_or_else(|refusal| Command::refused(around.map, refusal));
        is_changed |= changes_look_ups(statement, &command);
        commands.push(command);
    }
    Ok(commands)
}

fn looked_up_anew() -> Refusal {
    Refusal::unproved("a command before this one in the text may change what names mean")
        .detail(
            "SET, the end of a transaction and CREATE TEMP TABLE change where names are looked up.",
        )
        .hint("Send the command in a text of its own.")
}

/// True if the command looks names of tables, functions or types up.
fn looks_up(statement: &NodeEnum) -> bool {
    !matches!(
        statement,
        NodeEnum::TransactionStmt(_)
            | NodeEnum::VariableSetStmt(_)
            | NodeEnum::VariableShowStmt(_)
            | NodeEnum::DiscardStmt(_)
            | NodeEnum::DeallocateStmt(_)
            | NodeEnum::ListenStmt(_)
            | NodeEnum::UnlistenStmt(_)
            | NodeEnum::NotifyStmt(_)
            | NodeEnum::FetchStmt(_)
            | NodeEnum::ClosePortalStmt(_)
            | NodeEnum::ConstraintsSetStmt(_)
    )
}

/// Settings that do not matter to what a statement means. Neither do those of users, which have a
/// dot, nor timeouts.
const HARMLESS_SETTINGS: [&str; 19] = [
    "application_name",
    "bytea_output",
    "client_min_messages",
    "cursor_tuple_fraction",
    "datestyle",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "extra_float_digits",
    "intervalstyle",
    "jit",
    "lc_messages",
    "lc_monetary",
    "plan_cache_mode",
    "synchronous_commit",
    "timezone",
    "transaction",
    "session characteristics",
    "transaction_isolation",
    "work_mem",
];

/// True if a command may change what names of later commands mean.
fn changes_look_ups(statement: &NodeEnum, command: &Command) -> bool {
    match statement {
        NodeEnum::VariableSetStmt(set) => {
            let name = set.name.to_ascii_lowercase();
            let is_harmless = name.contains('.')
                || name.ends_with("_timeout")
                || HARMLESS_SETTINGS.contains(&&*name);
            !is_harmless
        }
        NodeEnum::DiscardStmt(_) => true,
        NodeEnum::TransactionStmt(of) => !matches!(
            of.kind(),
            TransactionStmtKind::TransStmtBegin
                | TransactionStmtKind::TransStmtStart
                | TransactionStmtKind::TransStmtSavepoint
                | TransactionStmtKind::TransStmtRelease
        ),
        _ if !looks_up(statement) => false,
        _ => {
            command.class == Class::Temporary
                || !command.facts.settings.is_empty()
                // Nobody knows what a refused command does.
                || command.facts.refused.is_some()
        }
    }
}

fn command(around: Surroundings<'_>, statement: &NodeEnum) -> Result<Command, Refusal> {
    let plain = |class: Class| {
        let mut facts = Facts::new(around.map);
        // Only reads run on one shard and then on another. (Howdah repeats lone commands about the
        // session by their texts.)
        facts.guess = false;
        // Here, a table's name is taken for a temporary table's.
        facts.has_unknown_name = class == Class::Here && looks_up(statement);
        Ok(Command { class, facts })
    };
    match statement {
        NodeEnum::SelectStmt(select) => match &select.into_clause {
            Some(into) if is_temporary(into.rel.as_ref()) => {
                let mut select = select.clone();
                select.into_clause = None;
                temporary(around, &NodeEnum::SelectStmt(select))
            }
            Some(_) => Err(needs_shard("SELECT INTO")),
            None => rows(around, statement),
        },
        NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_) => rows(around, statement),
        NodeEnum::ExplainStmt(explain) => match node(&explain.query) {
            Some(
                query @ (NodeEnum::SelectStmt(_)
                | NodeEnum::InsertStmt(_)
                | NodeEnum::UpdateStmt(_)
                | NodeEnum::DeleteStmt(_)
                | NodeEnum::MergeStmt(_)
                | NodeEnum::DeclareCursorStmt(_)),
            ) => command(around, query),
            _ => Err(needs_shard("EXPLAIN of such a command")),
        },
        NodeEnum::DeclareCursorStmt(declare) => match node(&declare.query) {
            Some(query) => once(rows(around, query)),
            None => Err(needs_shard("DECLARE")),
        },
        NodeEnum::CopyStmt(copy) => self::copy(around, copy),
        NodeEnum::CreateTableAsStmt(create) => {
            let into = create.into.as_ref().and_then(|into| into.rel.as_ref());
            match node(&create.query) {
                Some(query @ NodeEnum::SelectStmt(_)) if is_temporary(into) => {
                    temporary(around, query)
                }
                _ => Err(needs_shard("CREATE TABLE AS")),
            }
        }
        NodeEnum::CreateStmt(create) if is_temporary(create.relation.as_ref()) => {
            plain(Class::Temporary)
        }
        NodeEnum::DropStmt(drop) if is_temporary_drop(around, drop) => plain(Class::Here),
        NodeEnum::TruncateStmt(truncate)
            if truncate.relations.iter().all(|table| match &table.node {
                Some(NodeEnum::RangeVar(table)) => may_be_temporary(around, Some(table)),
                _ => false,
            }) =>
        {
            plain(Class::Here)
        }
        NodeEnum::IndexStmt(index) if may_be_temporary(around, index.relation.as_ref()) => {
            plain(Class::Here)
        }
        NodeEnum::AlterTableStmt(alter) if may_be_temporary(around, alter.relation.as_ref()) => {
            plain(Class::Here)
        }
        NodeEnum::TransactionStmt(of) => match of.kind() {
            TransactionStmtKind::TransStmtBegin | TransactionStmtKind::TransStmtStart => {
                plain(Class::Begin)
            }
            TransactionStmtKind::TransStmtCommit | TransactionStmtKind::TransStmtRollback => {
                plain(Class::End)
            }
            TransactionStmtKind::TransStmtSavepoint
            | TransactionStmtKind::TransStmtRelease
            | TransactionStmtKind::TransStmtRollbackTo => plain(Class::Savepoint),
            _ => Err(needs_shard("A prepared transaction")),
        },
        NodeEnum::VariableSetStmt(set) if set.name.eq_ignore_ascii_case("transaction snapshot") => {
            Err(needs_shard("SET TRANSACTION SNAPSHOT"))
        }
        NodeEnum::VariableSetStmt(set) if is_hint(&set.name) => Err(hint_among_others()),
        NodeEnum::VariableShowStmt(show) if is_hint(&show.name) => Err(hint_among_others()),
        NodeEnum::VariableSetStmt(_)
        | NodeEnum::VariableShowStmt(_)
        | NodeEnum::DiscardStmt(_)
        | NodeEnum::UnlistenStmt(_)
        | NodeEnum::DeallocateStmt(_) => plain(Class::Setting),
        NodeEnum::ListenStmt(_) | NodeEnum::NotifyStmt(_) => plain(Class::First),
        NodeEnum::FetchStmt(_) | NodeEnum::ClosePortalStmt(_) | NodeEnum::ConstraintsSetStmt(_) => {
            plain(Class::Here)
        }
        NodeEnum::PrepareStmt(_) | NodeEnum::ExecuteStmt(_) => Err(Refusal::unproved(
            "SQL's PREPARE and EXECUTE are not supported in a sharded database",
        )
        .hint("Use the driver's prepared statements (the extended protocol).")
        .firm()),
        NodeEnum::LockStmt(_) => Err(needs_shard("LOCK")),
        NodeEnum::CallStmt(_) => Err(needs_shard("CALL")),
        NodeEnum::DoStmt(_) => Err(needs_shard("DO")),
        _ => Err(needs_shard("Such a command")),
    }
}

fn node(node: &Option<Box<protobuf::Node>>) -> Option<&NodeEnum> {
    node.as_ref()?.node.as_ref()
}

/// True for the settings by which clients say their shard. A text that is nothing but such a command
/// gets no plan.
fn is_hint(setting: &str) -> bool {
    ["howdah.shard", "howdah.key"]
        .iter()
        .any(|hint| hint.eq_ignore_ascii_case(setting))
}

fn hint_among_others() -> Refusal {
    Refusal::unproved("SET of howdah.shard or howdah.key must be the only command of its text")
        .hint("Send the other commands behind it.")
        .firm()
}

fn needs_shard(what: &str) -> Refusal {
    Refusal::unproved("the command belongs to no shard by itself")
        .because(RefusalReason::Command)
        .detail(format!("{what} needs to be told the shard."))
        .hint(SAY_SHARD)
}

fn rows(around: Surroundings<'_>, statement: &NodeEnum) -> Result<Command, Refusal> {
    let mut facts = rule::read(around, statement);
    facts.guess &= !facts.writes && facts.refused.is_none();
    let class = Class::Rows;
    Ok(Command { class, facts })
}

/// True for the tables of large objects, which are on the shard that has made them.
pub(crate) fn is_of_large_objects(table: &Table) -> bool {
    table.relation.name.starts_with("pg_largeobject")
}

/// A table of PostgreSQL's own that is not the same, or not written, on all shards.
pub(crate) fn of_one_server(table: &Table) -> Refusal {
    needs_shard(&format!("\"{}\" is each shard's own, and", table.name()))
}

/// A command that is not repeated.
fn once(command: Result<Command, Refusal>) -> Result<Command, Refusal> {
    let mut command = command?;
    command.facts.guess = false;
    Ok(command)
}

/// CREATE TEMP TABLE AS
fn temporary(around: Surroundings<'_>, query: &NodeEnum) -> Result<Command, Refusal> {
    let mut command = once(rows(around, query))?;
    command.class = Class::Temporary;
    Ok(command)
}

fn is_temporary(table: Option<&protobuf::RangeVar>) -> bool {
    table.is_some_and(|table| table.relpersistence == "t" || table.schemaname == "pg_temp")
}

/// True for a name that only a temporary table of the client can have.
fn may_be_temporary(around: Surroundings<'_>, table: Option<&protobuf::RangeVar>) -> bool {
    let is_known = |table: &protobuf::RangeVar| {
        let schema = Some(table.schemaname.as_str()).filter(|schema| !schema.is_empty());
        let found = around.catalogue.table(around.path, schema, &table.relname);
        schema.is_some_and(|schema| schema != "pg_temp") || found.is_some()
    };
    around.has_temporary && table.is_some_and(|table| !is_known(table))
}

fn is_temporary_drop(around: Surroundings<'_>, drop: &protobuf::DropStmt) -> bool {
    let is_temporary = |object: &protobuf::Node| match &object.node {
        Some(NodeEnum::List(names)) => match &names.items[..] {
            [name] => match &name.node {
                Some(NodeEnum::String(name)) => {
                    let table = protobuf::RangeVar {
                        relname: name.sval.clone(),
                        ..protobuf::RangeVar::default()
                    };
                    may_be_temporary(around, Some(&table))
                }
                _ => false,
            },
            _ => false,
        },
        _ => false,
    };
    drop.remove_type() == ObjectType::ObjectTable && drop.objects.iter().all(is_temporary)
}

/// COPY of a query goes by the query, COPY of a table by the table's place.
fn copy(around: Surroundings<'_>, copy: &protobuf::CopyStmt) -> Result<Command, Refusal> {
    if let Some(query) = node(&copy.query) {
        return once(rows(around, query));
    }
    let table = copy.relation.as_ref().ok_or_else(|| needs_shard("COPY"))?;
    let mut facts = Facts::new(around.map);
    (facts.guess, facts.writes) = (false, copy.is_from);
    let class = Class::Rows;
    if copy.where_clause.is_some() {
        return Err(needs_shard("COPY with WHERE"));
    }
    if may_be_temporary(around, Some(table)) {
        let class = Class::Here;
        facts.has_unknown_name = true;
        return Ok(Command { class, facts });
    }
    let schema = Some(table.schemaname.as_str()).filter(|schema| !schema.is_empty());
    let found = around.catalogue.table(around.path, schema, &table.relname);
    let (found, shards) = found.ok_or_else(|| {
        let message = format!("table \"{}\" is not known", table.relname);
        Refusal::unproved(message).hint(SAY_SHARD).unknown_name()
    })?;
    facts.may = shards;
    facts.scarce = Some(found.name());
    match around.catalogue.place(around.map, found)? {
        TablePlace::Catalogue if copy.is_from || is_of_large_objects(found) => {
            return Err(of_one_server(found));
        }
        TablePlace::Catalogue => facts.reads_catalogue = true,
        TablePlace::One(shard) => {
            facts
                .fixed
                .push((shard, format!("Table \"{}\"", found.name())));
        }
        TablePlace::Replicated { home } if copy.is_from => {
            facts.writes_replicated = true;
            facts
                .fixed
                .push((home, format!("{REPLICATED} \"{}\"", found.name())));
        }
        TablePlace::Replicated { home } => facts.replicated = Some(home),
        TablePlace::Sharded { .. } => {
            return Err(needs_shard("COPY of a sharded table").detail(format!(
                "Table \"{}\" has rows on several shards.",
                found.name()
            )));
        }
    }
    Ok(Command { class, facts })
}
