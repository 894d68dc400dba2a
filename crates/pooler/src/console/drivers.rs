//! Answers to statements that drivers and their tools send on their own: empty transactions, session
//! settings, a few functions. The answers are those of an idle PostgreSQL. PgBouncer answers only five of
//! these settings.

/// Session settings that can be shown, with their values.
const SETTINGS: [(&str, &str); 17] = [
    ("client_encoding", "UTF-8"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("datestyle", "ISO"),
    ("timezone", "GMT"),
    ("application_name", ""),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    ("integer_datetimes", "on"),
    ("intervalstyle", "postgres"),
    ("is_superuser", "on"),
    ("max_identifier_length", "63"),
    ("search_path", ""),
    ("server_encoding", "UTF8"),
    ("server_version", "1.25.2/bouncer"),
    ("transaction_isolation", "read committed"),
    ("transaction_read_only", "off"),
];

/// Session settings that can also be set, without any effect: those that drivers and tools set at
/// their start. None of them is a setting of Howdah.
const SETTABLE: [&str; 25] = [
    "bytea_output",
    "check_function_bodies",
    "client_min_messages",
    "default_transaction_deferrable",
    "enable_hashjoin",
    "enable_mergejoin",
    "enable_nestloop",
    "enable_seqscan",
    "geqo",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "jit",
    "lc_messages",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "lock_timeout",
    "maintenance_work_mem",
    "quote_all_identifiers",
    "row_security",
    "statement_timeout",
    "synchronize_seqscans",
    "synchronous_commit",
    "transform_null_equals",
    "work_mem",
];

/// An answer to a driver's statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DriverAnswer {
    /// One row with one column: its name, the letter of its type, its value.
    Value(&'static str, char, Option<String>),
    /// A command tag. Nothing happens.
    Done(&'static str),
    /// The tag SET, with a notice that nothing happens.
    SetsInVain,
    /// A command tag. A transaction block begins.
    Begins(&'static str),
    /// A command tag. The transaction block ends.
    Ends(&'static str),
    /// A command tag. All prepared statements are forgotten.
    Forgets(&'static str),
}

/// The value of a session setting. Its name is in lower case.
pub fn setting(name: &str) -> Option<(&'static str, &'static str)> {
    SETTINGS.into_iter().find(|(known, _)| *known == name)
}

/// True for a session setting that a driver may set, without effect. Howdah has no setting with a
/// dot in its name.
fn is_settable(name: &str) -> bool {
    let known = SETTINGS.iter().map(|(known, _)| *known);
    let mut known = known.chain(SETTABLE);
    name.contains('.') || known.any(|known| known.eq_ignore_ascii_case(name))
}

/// The setting that a SET in lower case names: `time zone`, or the word after SET, SESSION or LOCAL.
fn setting_of(text: &str) -> Option<&str> {
    let text = text.trim_start().strip_prefix("set")?;
    let mut rest = text
        .strip_prefix(|c: char| c.is_ascii_whitespace())?
        .trim_start();
    for scope in ["session", "local"] {
        let after = rest.strip_prefix(scope);
        let after = after.and_then(|after| after.strip_prefix(|c: char| c.is_ascii_whitespace()));
        rest = after.map_or(rest, str::trim_start);
    }
    let end = rest.find(|c: char| c.is_ascii_whitespace() || c == '=');
    let (name, value) = rest.split_at(end?);
    match name {
        "time" if value.trim_start().starts_with("zone") => Some("timezone"),
        name => Some(name.trim_matches('"')),
    }
}

/// SQLSTATE and text of the error for a statement that the console does not know. Programs that take
/// the console for a database ask for its catalogue: they get PostgreSQL's errors for what does not
/// exist, with which they go on.
pub fn refusal(text: &str) -> (&'static str, String) {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let is = |word: &str, among: &[&str]| among.iter().any(|one| word.eq_ignore_ascii_case(one));
    let first = words.first().copied().unwrap_or_default();
    if is(first, &["select", "with", "table", "values", "explain"]) {
        let sources = words
            .windows(2)
            .filter(|pair| is(pair[0], &["from", "table"]));
        let names = sources.map(|pair| {
            let inside = pair[1].trim_start_matches('(');
            inside
                .split(['(', ')', ',', ';'])
                .next()
                .unwrap_or_default()
        });
        let mut relations = names.filter(|name| !name.is_empty() && !is(name, &["select"]));
        if let Some(relation) = relations.next() {
            return ("42P01", format!("relation \"{relation}\" does not exist"));
        }
        if let Some((call, _)) = text.split_once('(') {
            let function = call.split_ascii_whitespace().last().unwrap_or_default();
            return ("42883", format!("function {function} does not exist"));
        }
    }
    let text = format!("invalid command '{text}', use SHOW HELP;");
    ("08P01", text)
}

/// The answer to a driver's statement; `None` for other statements.
pub fn answer(text: &str, user: &str, database: &str) -> Option<DriverAnswer> {
    let text = text.trim_end_matches(|c: char| c.is_ascii_whitespace() || c == ';');
    let text = text.to_ascii_lowercase();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let value =
        |name, kind, value: &str| Some(DriverAnswer::Value(name, kind, Some(value.to_string())));
    match words[..] {
        ["begin", ..] => Some(DriverAnswer::Begins("BEGIN")),
        ["start", "transaction", ..] => Some(DriverAnswer::Begins("START TRANSACTION")),
        ["commit" | "end"] | ["commit" | "end", "work" | "transaction"] => {
            Some(DriverAnswer::Ends("COMMIT"))
        }
        ["rollback" | "abort"] | ["rollback" | "abort", "work" | "transaction"] => {
            Some(DriverAnswer::Ends("ROLLBACK"))
        }
        ["rollback", "to", ..] => Some(DriverAnswer::Done("ROLLBACK")),
        ["savepoint", _] => Some(DriverAnswer::Done("SAVEPOINT")),
        ["release", ..] => Some(DriverAnswer::Done("RELEASE")),
        ["set", "names" | "transaction", ..] | ["set", "session", "characteristics", ..] => {
            Some(DriverAnswer::Done("SET"))
        }
        ["set", ..] if setting_of(&text).is_some_and(is_settable) => Some(DriverAnswer::SetsInVain),
        ["reset", _] | ["reset", "time", "zone"] => Some(DriverAnswer::Done("RESET")),
        ["close", "all"] => Some(DriverAnswer::Done("CLOSE CURSOR ALL")),
        ["unlisten", "*"] => Some(DriverAnswer::Done("UNLISTEN")),
        ["deallocate", "all"] => Some(DriverAnswer::Forgets("DEALLOCATE ALL")),
        ["discard", "all"] => Some(DriverAnswer::Forgets("DISCARD ALL")),
        ["show", "transaction", "isolation", "level"] => {
            value("transaction_isolation", 's', "read committed")
        }
        ["show", "time", "zone"] => value("TimeZone", 's', "GMT"),
        ["select", "1"] => value("?column?", 'i', "1"),
        ["select", function] => match function.strip_prefix("pg_catalog.").unwrap_or(function) {
            "version()" => value("version", 's', super::VERSION),
            "current_database()" => value("current_database", 's', database),
            "current_user" | "user" => value("current_user", 's', user),
            "session_user" => value("session_user", 's', user),
            "current_schema" | "current_schema()" => {
                Some(DriverAnswer::Value("current_schema", 's', None))
            }
            "pg_is_in_recovery()" => value("pg_is_in_recovery", 'b', "f"),
            "pg_advisory_unlock_all()" => value("pg_advisory_unlock_all", 's', ""),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drivers_say_is_known_in_any_case() {
        let tag = |text| match answer(text, "u", "d") {
            Some(
                DriverAnswer::Done(tag)
                | DriverAnswer::Begins(tag)
                | DriverAnswer::Ends(tag)
                | DriverAnswer::Forgets(tag),
            ) => tag.to_string(),
            Some(DriverAnswer::SetsInVain) => "SET in vain".to_string(),
            Some(DriverAnswer::Value(name, kind, value)) => format!("{name}:{kind} {value:?}"),
            None => "none".to_string(),
        };
        for (text, told) in [
            ("BEGIN", "BEGIN"),
            (
                " begin  transaction isolation level serializable; ",
                "BEGIN",
            ),
            ("START TRANSACTION READ ONLY", "START TRANSACTION"),
            ("END", "COMMIT"),
            ("rollback work;", "ROLLBACK"),
            ("ROLLBACK TO SAVEPOINT a", "ROLLBACK"),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
                "SET",
            ),
            ("SET NAMES 'utf8'", "SET"),
            ("SET TIME ZONE 'UTC'", "SET in vain"),
            ("set local time zone default", "SET in vain"),
            ("SET SESSION Statement_Timeout = '3s'", "SET in vain"),
            ("set geqo=off;", "SET in vain"),
            ("set search_path to a, \"b\"", "SET in vain"),
            ("set \"DateStyle\" = 'ISO, MDY'", "SET in vain"),
            ("set app.tenant = 'x'", "SET in vain"),
            ("set verbose = 1", "none"),
            ("set verbose = 'a.b'", "none"),
            ("set session verbose = 1", "none"),
            ("set transaction_timeout = 1", "none"),
            ("set timezone", "none"),
            ("settle a.b = 1", "none"),
            ("SHOW TIME ZONE", "TimeZone:s Some(\"GMT\")"),
            ("RESET ALL", "RESET"),
            ("DISCARD ALL", "DISCARD ALL"),
            ("SELECT 1", "?column?:i Some(\"1\")"),
            (
                "select pg_catalog.pg_is_in_recovery()",
                "pg_is_in_recovery:b Some(\"f\")",
            ),
            ("select CURRENT_USER", "current_user:s Some(\"u\")"),
            ("select current_schema()", "current_schema:s None"),
            ("commit prepared 'x'", "none"),
            ("select 2", "none"),
            ("select pools", "none"),
            ("reload", "none"),
            ("", "none"),
        ] {
            assert_eq!(tag(text), told, "{text:?}");
        }
        assert_eq!(setting("search_path"), Some(("search_path", "")));
        assert!(is_settable("Statement_Timeout") && is_settable("TimeZone"));
        assert!(!is_settable("verbose") && !is_settable("transaction_timeout"));
    }

    #[test]
    fn what_does_not_exist_is_said_in_postgresqls_words() {
        for (text, sqlstate, said) in [
            (
                "SELECT n.nspname\nFROM pg_catalog.pg_namespace n",
                "42P01",
                "relation \"pg_catalog.pg_namespace\" does not exist",
            ),
            (
                "with a as (select * from (pg_type)) select 1",
                "42P01",
                "relation \"pg_type\" does not exist",
            ),
            (
                "select * from (select * FROM unnest(current_schemas(true))) a",
                "42P01",
                "relation \"unnest\" does not exist",
            ),
            ("table pg_am;", "42P01", "relation \"pg_am\" does not exist"),
            (
                "select pg_backend_pid()",
                "42883",
                "function pg_backend_pid does not exist",
            ),
            (
                "select elephants",
                "08P01",
                "invalid command 'select elephants', use SHOW HELP;",
            ),
            (
                "show pools from x",
                "08P01",
                "invalid command 'show pools from x', use SHOW HELP;",
            ),
            ("", "08P01", "invalid command '', use SHOW HELP;"),
        ] {
            assert_eq!(refusal(text), (sqlstate, said.to_string()), "{text:?}");
        }
    }

    #[test]
    fn none_of_them_is_a_setting_of_ours() {
        let config = crate::config::Config::default();
        for line in config.show() {
            assert!(!is_settable(line.key), "{}", line.key);
        }
    }
}
