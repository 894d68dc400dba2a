//! Which functions a statement may call: those that touch one shard only.

use crate::facts::Surroundings;
use crate::refusal::{Refusal, RefusalReason, SAY_SHARD};
use crate::shard_catalogue::FunctionFacts;

/// What a call of a function means for its statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// The result depends on the arguments only, or does not matter.
    Pure,
    /// A repetition may give another result.
    NotRepeatable,
    /// The function belongs to the first shard.
    First,
    /// `set_config`
    Setting,
}

/// Built-in functions that are volatile, but touch no table.
const HARMLESS: [&str; 24] = [
    "pg_advisory_unlock_all",
    "clock_timestamp",
    "currval",
    "gen_random_uuid",
    "lastval",
    "nextval",
    "pg_blocking_pids",
    "pg_current_xact_id",
    "pg_current_xact_id_if_assigned",
    "pg_is_in_recovery",
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
    "pg_stat_clear_snapshot",
    "random",
    "random_normal",
    "setseed",
    "timeofday",
    "txid_current",
    "txid_current_if_assigned",
    "uuid_generate_v4",
    "uuidv4",
    "uuidv7",
    "pg_safe_snapshot_blocking_pids",
];

/// Functions that take queries or tables as texts or OIDs, though they are stable, or of an
/// extension.
const READS_BY_TEXT: [&str; 19] = [
    "table_to_xml",
    "table_to_xmlschema",
    "table_to_xml_and_xmlschema",
    "schema_to_xml",
    "schema_to_xmlschema",
    "schema_to_xml_and_xmlschema",
    "database_to_xml",
    "database_to_xmlschema",
    "database_to_xml_and_xmlschema",
    "cursor_to_xml",
    "cursor_to_xmlschema",
    "ts_stat",
    "ts_rewrite",
    "connectby",
    "cypher",
    "st_estimatedextent",
    "st_findextent",
    "xpath_nodeset",
    "xpath_table",
];

/// The beginnings of such functions' names.
const READS_BY_TEXT_BEGINS: [&str; 5] = ["dblink", "crosstab", "query_to_xml", "lo_", "pgr_"];

/// The beginnings of names of extensions' functions that are volatile, but make a value only.
const MAKES_VALUE_BEGINS: [&str; 6] = [
    "uuid_generate_",
    "gen_",
    "pgp_",
    "encrypt",
    "ulid",
    "set_limit",
];

/// What a call means; a refusal if the function may touch other shards' rows.
pub(crate) fn judge(
    around: &Surroundings<'_>,
    schema: Option<&str>,
    name: &str,
) -> Result<Call, Refusal> {
    let facts = around.catalogue.functions(around.path, schema, name);
    if facts.is_empty() {
        return Err(
            Refusal::unproved(format!("function \"{name}\" is not known"))
                .detail("No shard's catalogue has the name in the client's search path.")
                .hint(SAY_SHARD)
                .unknown_name(),
        );
    }
    let built_in = facts.values().all(|facts| facts.built_in);
    if built_in && name == "set_config" {
        return Ok(Call::Setting);
    }
    if built_in && is_of_first_shard(name) {
        return Ok(Call::First);
    }
    for (schema, facts) in &facts {
        let listed = around.functions.contains(name)
            || around.functions.contains(&format!("{schema}.{name}"));
        if !listed && !is_allowed(name, *facts) {
            let message = format!("function \"{name}\" may touch rows of other shards");
            return Err(Refusal::unproved(message)
                .because(RefusalReason::Function)
                .detail(format!("Function \"{schema}.{name}\" is {}.", kind(*facts)))
                .hint(
                    "Declare the function IMMUTABLE if it reads no table, list it in \
                     shard_functions if it touches one shard only, or say the shard.",
                ));
        }
    }
    let pure = facts.values().all(|facts| facts.immutable);
    // A number that was taken for nothing is only a gap.
    let repeatable = pure || (built_in && name == "nextval");
    Ok(if repeatable {
        Call::Pure
    } else {
        Call::NotRepeatable
    })
}

/// True if a function with a name is not built in.
pub(crate) fn is_user_defined(around: &Surroundings<'_>, name: &str) -> bool {
    let facts = around.catalogue.functions(around.path, None, name);
    facts.values().any(|facts| !facts.built_in)
}

/// True for what must be on one and the same shard for all clients. (Who gives all locks back does so
/// where the client is: there it has its locks.)
fn is_of_first_shard(name: &str) -> bool {
    if name == "pg_advisory_unlock_all" {
        return false;
    }
    name.starts_with("pg_advisory_") || name.starts_with("pg_try_advisory_") || name == "pg_notify"
}

fn is_allowed(name: &str, facts: FunctionFacts) -> bool {
    let by_text = READS_BY_TEXT.contains(&name)
        || READS_BY_TEXT_BEGINS
            .iter()
            .any(|begin| name.starts_with(begin));
    if by_text {
        return false;
    }
    facts.immutable
        || (facts.of_extension && (facts.stable || makes_value(name)))
        || (facts.built_in && (facts.stable || HARMLESS.contains(&name)))
}

fn makes_value(name: &str) -> bool {
    let mut begins = MAKES_VALUE_BEGINS.iter();
    begins.any(|begin| name.starts_with(begin))
}

fn kind(facts: FunctionFacts) -> &'static str {
    match (facts.built_in, facts.of_extension) {
        (true, _) => "PostgreSQL's, but depends on one server",
        (_, true) => "an extension's, and VOLATILE or takes queries or tables as texts",
        _ => "not built in, not of an extension, and not IMMUTABLE",
    }
}
