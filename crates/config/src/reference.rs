//! The reference of settings, made from the table: as Markdown (`howdah --settings`, the text of
//! `docs/settings.md`) and as a manual page (`howdah --man`).

use std::fmt::Write;

use super::table::{ENTRY, GLOBAL, Scope, Setting, Support, find};

const INTRODUCTION: &str = "Settings are PgBouncer's, except those marked *not in PgBouncer*. PgBouncer 1.25.2 \
    refuses a file with such a setting; `howdah --check` lists them. If a setting stands in several \
    places, the user's value counts before the database's, and the database's before that of \
    `[pgbouncer]`. Times are in seconds, and may have a fraction. A setting marked *fixed* is read at \
    start only; all others follow RELOAD, SIGHUP and the console's SET.";

/// The format of the file, paragraph by paragraph.
const FORMAT: &[&str] = &[
    "The file has the sections `[pgbouncer]`, `[databases]`, `[users]` and `[peers]`. Each setting \
     or entry is a line `key = value`. The value is the rest of the line, without the blanks around \
     it. Of several lines with the same key the last one counts; another `[pgbouncer]` begins with \
     the defaults again. A line that begins with `;` or `#` is a comment.",
    "Put a key in single or double quotes if it has characters other than letters, digits and \
     `_ . - *`. `%include FILE` on a line of its own reads another file at that place; a relative \
     path counts from the folder in which the process was started. Numbers that begin with `0` are \
     octal, with `0x` hexadecimal.",
    "An entry is a list `key=value key=value`; a value with blanks stands in single quotes, in \
     which `''` is one quote. The key of an entry of `[databases]` is the name that clients ask \
     for, and `*` is for all names that have no entry; of `[users]`, the name of a user; of \
     `[peers]`, a `peer_id`.",
    "`howdah --check FILE` says what is wrong with a file, and where. A file with a mistake stops \
     the start; a reload with one changes nothing.",
];

/// An example of each section.
const EXAMPLE: &str = "[databases]
orders = host=10.0.0.5 port=5432 pool_size=40
* = host=10.0.0.6

[users]
reports = pool_mode=session max_user_connections=5

[peers]
2 = host=10.0.0.8 port=6432

[pgbouncer]
listen_addr = *
auth_file = /etc/howdah/userlist.txt
pool_mode = transaction
";

/// The settings of `[pgbouncer]` by topic. In each topic the most used come first.
const TOPICS: &[(&str, &[&str])] = &[
    (
        "Listening",
        &[
            "listen_addr",
            "listen_port",
            "listen_backlog",
            "so_reuseport",
            "unix_socket_dir",
            "unix_socket_mode",
            "unix_socket_group",
            "tcp_defer_accept",
            "client_login_timeout",
            "ignore_startup_parameters",
            "login_notify_message",
        ],
    ),
    (
        "Who may log in",
        &[
            "auth_type",
            "auth_file",
            "auth_query",
            "auth_user",
            "auth_dbname",
            "auth_query_cache",
            "auth_hba_file",
            "auth_ident_file",
            "auth_ldap_options",
            "scram_iterations",
            "admin_users",
            "stats_users",
        ],
    ),
    (
        "Pools and limits",
        &[
            "pool_mode",
            "default_pool_size",
            "min_pool_size",
            "reserve_pool_size",
            "reserve_pool_timeout",
            "max_client_conn",
            "max_db_connections",
            "max_user_connections",
            "max_db_client_connections",
            "max_user_client_connections",
            "pool_idle_timeout",
            "autodb_idle_timeout",
        ],
    ),
    (
        "Timeouts of clients",
        &[
            "query_wait_timeout",
            "query_wait_notify",
            "query_timeout",
            "transaction_timeout",
            "idle_transaction_timeout",
            "client_idle_timeout",
            "cancel_wait_timeout",
            "suspend_timeout",
            "takeover_timeout",
        ],
    ),
    (
        "Servers",
        &[
            "server_lifetime",
            "server_idle_timeout",
            "server_connect_timeout",
            "server_login_retry",
            "server_check_query",
            "server_check_delay",
            "server_reset_query",
            "server_reset_query_always",
            "server_round_robin",
            "server_fast_close",
            "server_require_auth",
            "server_requirepeer",
            "server_channel_binding",
            "server_scram_iterations_max",
        ],
    ),
    (
        "Session state and prepared statements",
        &[
            "session_state",
            "pin_limit",
            "pin_idle_timeout",
            "pin_notice",
            "listen",
            "listen_user",
            "listen_lost",
            "max_prepared_statements",
            "track_extra_parameters",
            "application_name_add_host",
            "disable_pqexec",
        ],
    ),
    (
        "TLS to clients",
        &[
            "client_tls_sslmode",
            "client_tls_key_file",
            "client_tls_cert_file",
            "client_tls_ca_file",
            "client_tls_protocols",
            "client_tls_ciphers",
            "client_tls13_ciphers",
            "client_tls_ecdhcurve",
            "client_tls_dheparams",
        ],
    ),
    (
        "TLS to servers",
        &[
            "server_tls_sslmode",
            "server_tls_ca_file",
            "server_tls_key_file",
            "server_tls_cert_file",
            "server_tls_protocols",
            "server_tls_ciphers",
            "server_tls13_ciphers",
        ],
    ),
    (
        "The log",
        &[
            "logfile",
            "log_format",
            "log_connections",
            "log_disconnections",
            "log_pooler_errors",
            "log_unauthenticated_rate",
            "log_stats",
            "stats_period",
            "verbose",
            "syslog",
            "syslog_facility",
            "syslog_ident",
        ],
    ),
    (
        "Looking inside",
        &[
            "http_listen_port",
            "http_listen_addr",
            "http_page",
            "http_token",
            "ready_fails_when",
            "metrics_max_pools",
            "slow_query_time",
            "slow_query_values",
            "slow_query_rate",
            "top_queries",
            "trace_endpoint",
            "trace_ratio",
        ],
    ),
    (
        "Names and the network",
        &[
            "dns_max_ttl",
            "dns_nxdomain_ttl",
            "dns_zone_check_period",
            "resolv_conf",
            "tcp_keepalive",
            "tcp_keepidle",
            "tcp_keepintvl",
            "tcp_keepcnt",
            "tcp_user_timeout",
            "tcp_socket_buffer",
            "max_packet_size",
        ],
    ),
    (
        "The process",
        &[
            "workers",
            "pool_spread",
            "io_driver",
            "busy_poll",
            "user",
            "pidfile",
            "conffile",
            "peer_id",
        ],
    ),
    ("Without effect", &["job_name", "pkt_buf", "sbuf_loopcnt"]),
];

/// The page in Markdown.
pub fn settings_page() -> String {
    let mut page =
        format!("# Settings\n\nThis page is printed by `howdah --settings`.\n\n{INTRODUCTION}\n");
    page.push_str("\n## The file\n");
    for paragraph in FORMAT {
        let _ = write!(page, "\n{paragraph}\n");
    }
    let _ = write!(page, "\n```ini\n{EXAMPLE}```\n\n## Contents\n\n");
    for chapter in chapters() {
        let anchor = anchor(&chapter.title);
        let _ = writeln!(page, "- [{}](#{anchor})", chapter.title);
    }
    for chapter in chapters() {
        let _ = write!(page, "\n## {}\n\n", chapter.title);
        if let Some(also) = &chapter.also {
            let _ = write!(page, "{also}\n\n");
        }
        for setting in chapter.settings {
            let (name, values, prose) = (setting.name, values(setting), prose(setting));
            let _ = writeln!(page, "- **`{name}`**: {values}.\n  {prose}");
        }
    }
    page
}

/// The page as a manual page of section 5.
pub fn settings_manual() -> String {
    let mut page = format!(
        ".TH HOWDAH.INI 5 \"\" \"Howdah {}\"\n.SH NAME\nhowdah.ini \\- settings of Howdah, a \
         connection pooler for PostgreSQL\n.SH DESCRIPTION\n{}\n",
        env!("CARGO_PKG_VERSION"),
        roff(INTRODUCTION),
    );
    page.push_str(".SH \"FILE FORMAT\"\n");
    for paragraph in FORMAT {
        let _ = writeln!(page, "{}\n.PP", roff(paragraph));
    }
    let example: String = EXAMPLE
        .lines()
        .map(|line| format!("{}\n", roff(line)))
        .collect();
    let _ = write!(page, ".EX\n{example}.EE\n");
    for chapter in chapters() {
        let _ = writeln!(page, ".SH \"{}\"", roff(&chapter.title));
        if let Some(also) = &chapter.also {
            let _ = writeln!(page, "{}", roff(also));
        }
        for setting in chapter.settings {
            let (name, values, prose) = (setting.name, values(setting), prose(setting));
            let _ = writeln!(
                page,
                ".TP\n.B {name}\n{}.\n.br\n{}",
                roff(&values),
                roff(&prose)
            );
        }
    }
    page.push_str(".SH SEE ALSO\n.BR howdah (8)\n");
    page
}

struct Chapter {
    title: String,
    /// Settings of another chapter that are also allowed here.
    also: Option<String>,
    settings: Vec<&'static Setting>,
}

fn chapters() -> Vec<Chapter> {
    let of = |settings: &'static [Setting], scope| {
        settings
            .iter()
            .filter(move |setting| setting.scopes.contains(&scope))
    };
    let mut chapters: Vec<_> = TOPICS
        .iter()
        .map(|(title, names)| Chapter {
            title: (*title).into(),
            also: None,
            settings: names
                .iter()
                .filter_map(|name| find(Scope::Global, name))
                .collect(),
        })
        .collect();
    for scope in [Scope::Database, Scope::User, Scope::Peer] {
        let names: Vec<_> = of(GLOBAL, scope)
            .map(|setting| format!("`{}`", setting.name))
            .collect();
        chapters.push(Chapter {
            title: format!("Entries of `[{}]`", scope.section()),
            also: (!names.is_empty()).then(|| format!("From above: {}.", names.join(", "))),
            settings: of(ENTRY, scope).collect(),
        });
    }
    chapters
}

/// The link to a chapter, in the form that Markdown renderers make from its title.
fn anchor(title: &str) -> String {
    let kept = title
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The values that a setting takes, and its default.
fn values(setting: &Setting) -> String {
    let mut text = setting.kind.to_string();
    match setting.default {
        None => {}
        Some("") => text.push_str("; default: nothing"),
        Some(default) => {
            let _ = write!(text, "; default: `{default}`");
        }
    }
    if !setting.reloadable {
        text.push_str("; *fixed*");
    }
    text.push_str(&beyond_pgbouncer(setting));
    text
}

/// The note for a setting that PgBouncer 1.25.2 does not accept here.
fn beyond_pgbouncer(setting: &Setting) -> String {
    let sections = |known: bool| {
        let scopes = setting.scopes.iter();
        let scopes = scopes.filter(|&&scope| setting.is_known_to_pgbouncer(scope) == known);
        scopes
            .map(|scope| format!("`[{}]`", scope.section()))
            .collect::<Vec<_>>()
    };
    let (known, unknown) = (sections(true), sections(false));
    match (known.is_empty(), unknown.is_empty()) {
        (_, true) => String::new(),
        (true, false) => "; *not in PgBouncer*".into(),
        (false, false) => format!("; *not in PgBouncer* in {}", unknown.join(" and ")),
    }
}

/// What the setting does, or why it is not built.
fn prose(setting: &Setting) -> String {
    let prose = setting.prose;
    match setting.status {
        Support::Built => prose.to_owned(),
        Support::NotYet(why) => format!("{prose} **Not built**: {why}."),
        Support::Stops { unless, why } => {
            let harmless: Vec<_> = unless
                .iter()
                .filter(|value| !value.is_empty())
                .map(|value| format!("`{value}`"))
                .collect();
            let but = if harmless.is_empty() {
                "setting it".to_owned()
            } else {
                format!("any value but {}", harmless.join(", "))
            };
            format!("{prose} **Not built**: {but} stops the start, as {why}.")
        }
    }
}

/// Turns Markdown's marks into roff's, and escapes roff's own marks.
fn roff(text: &str) -> String {
    let mut page = String::new();
    let (mut code, mut strong, mut stressed) = (false, false, false);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let mut taken = next.len_utf8();
        let mut toggle = |on: &mut bool, font: &str| {
            *on = !*on;
            page.push_str(if *on { font } else { "\\fR" });
        };
        match next {
            '`' => toggle(&mut code, "\\fB"),
            '*' if code => page.push('*'),
            '*' if rest.starts_with("**") => {
                taken = 2;
                toggle(&mut strong, "\\fB");
            }
            '*' => toggle(&mut stressed, "\\fI"),
            '\\' => page.push_str("\\e"),
            '-' => page.push_str("\\-"),
            '\'' if page.is_empty() => page.push_str("\\&'"),
            '.' if page.is_empty() => page.push_str("\\&."),
            other => page.push(other),
        }
        rest = &rest[taken..];
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_in_the_documentation() {
        let kept = include_str!("../../../docs/settings.md");
        assert!(
            kept == settings_page(),
            "out of date: run `cargo run -p howdah-daemon -- --settings > docs/settings.md`"
        );
    }

    #[test]
    fn the_manual_says_the_same() {
        let (page, manual) = (settings_page(), settings_manual());
        let marks = |text: &str| text.replace(['`', '*'], "");
        let plain = ["\\fB", "\\fI", "\\fR", "\\&"].iter();
        let plain = plain.fold(
            manual.replace("\\-", "-").replace("\\e", "\\"),
            |text, font| text.replace(font, ""),
        );
        let plain = marks(&plain);
        let fences = |line: &&str| !line.starts_with("- ") && !line.starts_with("```");
        for line in page.lines().skip(4).filter(fences) {
            let line = marks(line.trim_start_matches("## ").trim());
            let only_here = ["The file", "Contents"].contains(&line.as_str());
            assert!(only_here || plain.contains(&line), "{line}");
        }
        for line in manual.lines() {
            let macros = [
                ".TH ", ".SH ", ".TP", ".B ", ".br", ".BR ", ".PP", ".EX", ".EE",
            ];
            let is_macro = macros.iter().any(|name| line.starts_with(name));
            assert!(is_macro || !line.starts_with(['.', '\'']), "{line}");
        }
    }

    #[test]
    fn every_setting_has_one_topic() {
        let mut named: Vec<_> = TOPICS.iter().flat_map(|(_, names)| *names).collect();
        named.sort_unstable();
        let mut known: Vec<_> = GLOBAL.iter().map(|setting| &setting.name).collect();
        known.sort_unstable();
        assert_eq!(named, known);
    }

    #[test]
    fn every_setting_is_on_it() {
        let page = settings_page();
        let manual = settings_manual();
        for setting in GLOBAL.iter().chain(ENTRY) {
            let entry = format!("\n.B {}\n", setting.name);
            assert!(manual.contains(&entry), "{}", setting.name);
        }
        for setting in GLOBAL.iter().chain(ENTRY) {
            assert!(
                page.contains(&format!("`{}`", setting.name)),
                "{}",
                setting.name
            );
        }
    }
}
