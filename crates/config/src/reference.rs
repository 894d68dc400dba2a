//! The reference of settings, made from the table: as Markdown (`howdah --settings`, the text of
//! `docs/settings.md`) and as a manual page (`howdah --man`).

use std::fmt::Write;

use super::table::{SETTINGS, in_scope};
use super::{Scope, Setting};

const INTRODUCTION: &str = "Settings are PgBouncer's, except those marked *not in PgBouncer*. PgBouncer 1.25.2 \
    refuses a file with such a setting; `howdah --check` lists them. If a setting stands in several \
    places, the value of the user in the database counts first, then the user's, the database's, and that \
    of `[pgbouncer]`. Times are in seconds, and may have a fraction. A setting marked *fixed* is read at \
    start only; all others follow RELOAD, SIGHUP and the console's SET.";

/// The format of the file, paragraph by paragraph.
const FORMAT: &[&str] = &[
    "The file has the sections `[pgbouncer]`, `[databases]`, `[users]`, `[hosts]` and `[peers]`. Each setting \
     or entry is a line `key = value`. The value is the rest of the line, without the blanks around \
     it. Of several lines with the same key the last one counts; another `[pgbouncer]` begins with \
     the defaults again. A line that begins with `;` or `#` is a comment.",
    "Put a key in single or double quotes if it has characters other than letters, digits and \
     `_ . - * :`. `%include FILE` on a line of its own reads another file at that place; a relative \
     path counts from the folder in which the process was started. In `[pgbouncer]`, numbers \
     that begin with `0` are octal, with `0x` hexadecimal.",
    "An entry is a list `key=value key=value`; a value with blanks stands in single quotes, in \
     which `''` is one quote. The key of an entry of `[databases]` is the name that clients ask \
     for, and `*` is for all names that have no entry; of `[users]`, the name of a user; of \
     `[hosts]`, a host or `host:port`; of `[peers]`, a `peer_id`.",
    "A file whose name ends with `.toml` is TOML: `[howdah]` stands for `[pgbouncer]`, `[databases.NAME]`, \
     `[users.NAME]`, `[hosts.NAME]` and `[peers.ID]` for entries, and `[databases.NAME.users.NAME]` is a user \
     in one database. Settings have the same names. What is 0 or 1 is `false` or `true` there; a number \
     stands without quotes; a time is a number of seconds or a text with a unit (`ms`, `s`, `min`, `h`, `d`); \
     a list is an array. `howdah config convert FILE` writes such a file. See docs/howdah-toml.md.",
    "A secret need not stand in the file: with `_file` behind its name (`password_file`), a setting names the file \
     that has it. In TOML, `{ file = \"PATH\" }` and `{ env = \"NAME\" }` say where it is.",
    "A global setting may also be a variable of the environment: `HOWDAH_POOL_MODE` is `pool_mode`, and \
     `HOWDAH_HTTP_TOKEN_FILE` names a file with the value. Variables go before the file, and the command line \
     before variables. See docs/environment.md.",
    "`howdah --check FILE` says what is wrong with a file, and where; with `--connect` it also looks \
     at the servers. A file with a mistake stops the start; a reload with one changes nothing.",
];

/// An example of each section.
const EXAMPLE: &str = "[databases]
orders = host=10.0.0.5 port=5432 pool_size=40
* = host=10.0.0.6

[users]
reports = pool_mode=session max_user_connections=5

[hosts]
10.0.0.6 = weight=2

[peers]
2 = host=10.0.0.8 port=6432

[pgbouncer]
listen_addr = *
auth_file = /etc/howdah/userlist.txt
pool_mode = transaction
";

/// The same in TOML.
const EXAMPLE_TOML: &str = "[howdah]
listen_addr = \"*\"
auth_file = \"/etc/howdah/userlist.txt\"
pool_mode = \"transaction\"
query_wait_timeout = \"30s\"

[databases.orders]
host = [\"10.0.0.5\", \"10.0.0.6:5433\"]
pool_size = 40

[databases.orders.users.app]
server_user = \"orders_app\"
server_password = { file = \"/run/secrets/orders\" }

[users.reports]
pool_mode = \"session\"
max_user_connections = 5
";

/// The files of the Debian package, for the manual page.
const MANUAL_FILES: &str = ".SH FILES
.TP
.I /etc/howdah/howdah.ini
The configuration of the packaged service.
.TP
.I /etc/howdah/userlist.txt
The auth_file that it names.
";

/// The page in Markdown.
pub fn settings_page() -> String {
    let mut page =
        format!("# Settings\n\nThis page is printed by `howdah --settings`.\n\n{INTRODUCTION}\n");
    page.push_str("\n## The file\n");
    for paragraph in FORMAT {
        let _ = write!(page, "\n{paragraph}\n");
    }
    let _ = write!(
        page,
        "\n```ini\n{EXAMPLE}```\n\nIn TOML:\n\n```toml\n{EXAMPLE_TOML}```\n"
    );
    page.push_str("\n## Contents\n\n");
    for chapter in chapters() {
        let anchor = anchor(&chapter.title);
        let _ = writeln!(page, "- [{}](#{anchor})", chapter.title);
    }
    for chapter in chapters() {
        let _ = write!(page, "\n## {}\n", chapter.title);
        if let Some(also) = &chapter.also {
            let _ = write!(page, "\n{also}\n");
        }
        if !chapter.settings.is_empty() {
            page.push('\n');
        }
        for setting in chapter.settings {
            let (name, values, prose) = (setting.name, values(setting), setting.prose);
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
    for chapter in chapters() {
        let _ = writeln!(page, ".SH \"{}\"", roff(&chapter.title));
        if let Some(also) = &chapter.also {
            let _ = writeln!(page, "{}", roff(also));
        }
        for setting in chapter.settings {
            let (name, values, prose) = (setting.name, values(setting), setting.prose);
            let _ = writeln!(
                page,
                ".TP\n.B {name}\n{}.\n.br\n{}",
                roff(&values),
                roff(prose)
            );
        }
    }
    // Here an asterisk is one.
    let plain = |example: &str| example.replace('\\', "\\e").replace('-', "\\-");
    page.push_str(MANUAL_FILES);
    let (ini, toml) = (plain(EXAMPLE), plain(EXAMPLE_TOML));
    let _ = write!(
        page,
        ".SH EXAMPLES\n.EX\n{ini}.EE\n.PP\nIn TOML:\n.PP\n.EX\n{toml}.EE\n"
    );
    page.push_str(".SH SEE ALSO\n.BR howdah (8),\n.BR howdah\\-top (1)\n");
    page
}

struct Chapter {
    title: String,
    /// Settings of another chapter that are also allowed here.
    also: Option<String>,
    settings: Vec<&'static Setting>,
}

fn chapters() -> Vec<Chapter> {
    let of = |title: &str| {
        let all = SETTINGS.iter();
        all.filter(|setting| setting.topic == title).collect()
    };
    let mut topics: Vec<_> = in_scope(Scope::Global)
        .map(|setting| setting.topic)
        .collect();
    topics.dedup();
    let of_topics = topics.into_iter().map(|title| Chapter {
        title: title.into(),
        also: None,
        settings: of(title),
    });
    let scopes = [
        Scope::Database,
        Scope::User,
        Scope::Member,
        Scope::Host,
        Scope::Peer,
    ];
    let of_entries = scopes.map(|scope| {
        let title = format!("Entries of `[{}]`", scope.section());
        let others = in_scope(scope).filter(|setting| setting.topic != title);
        let mut others: Vec<_> = others.map(|setting| setting.name).collect();
        others.sort_unstable();
        let named: Vec<_> = others.iter().map(|name| format!("`{name}`")).collect();
        Chapter {
            also: (!named.is_empty()).then(|| format!("From above: {}.", named.join(", "))),
            settings: of(&title),
            title,
        }
    });
    of_topics.chain(of_entries).collect()
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
    let mut text = setting.values();
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
        let scopes = Scope::ALL.into_iter();
        let scopes = scopes.filter(|&scope| {
            setting.is_allowed_in(scope) && setting.is_known_to_pgbouncer(scope) == known
        });
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
                ".TH ", ".SH ", ".TP", ".B ", ".I ", ".br", ".BR ", ".PP", ".EX", ".EE",
            ];
            let is_macro = macros.iter().any(|name| line.starts_with(name));
            assert!(is_macro || !line.starts_with(['.', '\'']), "{line}");
        }
        assert!(
            manual.contains("\n.EX\n[databases]\n") && manual.contains("\n* = host=10.0.0.6\n")
        );
    }

    #[test]
    fn every_setting_is_on_it() {
        let page = settings_page();
        let manual = settings_manual();
        for setting in SETTINGS {
            let entry = format!("\n.B {}\n", setting.name);
            assert!(manual.contains(&entry), "{}", setting.name);
        }
        for setting in SETTINGS {
            assert!(
                page.contains(&format!("`{}`", setting.name)),
                "{}",
                setting.name
            );
        }
    }
}
