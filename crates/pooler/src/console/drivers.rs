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

/// Session settings that can also be set, without any effect. None of them is a setting of Howdah.
const SETTABLE: [&str; 6] = [
    "bytea_output",
    "client_min_messages",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "statement_timeout",
];

/// An answer to a driver's statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DriverAnswer {
    /// One row with one column: its name, the letter of its type, its value.
    Value(&'static str, char, Option<String>),
    /// A command tag. Nothing happens.
    Done(&'static str),
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

/// True for a session setting that a driver may set, without effect.
pub fn is_settable(name: &str) -> bool {
    let known = SETTINGS.iter().map(|(known, _)| *known);
    let mut known = known.chain(SETTABLE);
    known.any(|known| known.eq_ignore_ascii_case(name))
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
        ["reset", _] => Some(DriverAnswer::Done("RESET")),
        ["close", "all"] => Some(DriverAnswer::Done("CLOSE CURSOR ALL")),
        ["unlisten", "*"] => Some(DriverAnswer::Done("UNLISTEN")),
        ["deallocate", "all"] => Some(DriverAnswer::Forgets("DEALLOCATE ALL")),
        ["discard", "all"] => Some(DriverAnswer::Forgets("DISCARD ALL")),
        ["show", "transaction", "isolation", "level"] => {
            value("transaction_isolation", 's', "read committed")
        }
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
    fn none_of_them_is_a_setting_of_ours() {
        let config = crate::config::Config::default();
        for line in config.show() {
            assert!(!is_settable(line.key), "{}", line.key);
        }
    }
}
