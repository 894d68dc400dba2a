//! The reference of settings, from the table: as Markdown (`howdah --settings`, which is
//! `docs/settings.md`) and as a manual page (`howdah --man`).

use std::fmt::Write;

use super::table::{ENTRY, GLOBAL, Scope, Setting, Status};

const INTRODUCTION: &str = "Settings are PgBouncer's, but for those marked *not in PgBouncer*: version 1.25.2 \
    refuses a file that has them, and `howdah --check` lists those that a file has. Where one may stand \
    in several places, the nearer one counts: user before database before `[pgbouncer]`. Times \
    are in seconds, and may have a fraction. A setting marked *fixed* is read at start only; all \
    others follow RELOAD, SIGHUP and the console's SET.";

/// How the file is written, a paragraph each.
const FORMAT: &[&str] = &[
    "The file has the sections `[pgbouncer]`, `[databases]`, `[users]` and `[peers]`, and in them \
     a line `key = value` for each setting or entry. The value is the rest of the line, without \
     the blanks around it. Of several lines with the same key the last one counts; another \
     `[pgbouncer]` begins with the defaults again. A line that begins with `;` or `#` is a comment.",
    "A key with other characters than letters, digits and `_ . - *` stands in quotes, single or \
     double ones. `%include FILE` on a line of its own reads another file at that place; a \
     relative path counts from the folder in which the process was started. Numbers that begin \
     with `0` are octal, with `0x` hexadecimal.",
    "An entry is a list `key=value key=value`; a value with blanks stands in single quotes, in \
     which `''` is one quote. The key of an entry of `[databases]` is the name that clients ask \
     for, and `*` is for all names that have no entry; of `[users]`, the name of a user; of \
     `[peers]`, a `peer_id`.",
    "`howdah --check FILE` says what is wrong with a file, and where. A file with a mistake stops \
     the start; a reload with one changes nothing.",
];

/// The page in Markdown.
pub fn settings_page() -> String {
    let mut page =
        format!("# Settings\n\nThis page is printed by `howdah --settings`.\n\n{INTRODUCTION}\n");
    page.push_str("\n## The file\n");
    for paragraph in FORMAT {
        let _ = write!(page, "\n{paragraph}\n");
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

/// The same as a manual page of section 5.
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
    /// Settings of another chapter that may stand here, too.
    also: Option<String>,
    settings: Vec<&'static Setting>,
}

fn chapters() -> Vec<Chapter> {
    let of = |settings: &'static [Setting], scope| {
        settings
            .iter()
            .filter(move |setting| setting.scopes.contains(&scope))
    };
    let mut chapters = vec![Chapter {
        title: "Section `[pgbouncer]`".into(),
        also: None,
        settings: of(GLOBAL, Scope::Global).collect(),
    }];
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

/// What can be written, and what holds if nothing is.
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

/// Where PgBouncer 1.25.2 does not take it.
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

/// What it does, or why not.
fn prose(setting: &Setting) -> String {
    let prose = setting.prose;
    match setting.status {
        Status::Built => prose.to_owned(),
        Status::NotYet(why) => format!("{prose} **Not built**: {why}."),
        Status::Stops { unless, why } => {
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

/// Markdown's marks become roff's; roff's own are made harmless.
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
        for line in page.lines().skip(4).filter(|line| !line.starts_with("- ")) {
            let line = marks(line.trim_start_matches("## ").trim());
            assert!(line == "The file" || plain.contains(&line), "{line}");
        }
        for line in manual.lines() {
            let macros = [".TH ", ".SH ", ".TP", ".B ", ".br", ".BR ", ".PP"];
            let is_macro = macros.iter().any(|name| line.starts_with(name));
            assert!(is_macro || !line.starts_with(['.', '\'']), "{line}");
        }
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
