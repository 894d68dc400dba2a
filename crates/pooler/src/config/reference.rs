//! The reference page of settings, from the table. `howdah --settings` prints it, and
//! `docs/settings.md` is that.

use std::fmt::Write;

use super::table::{ENTRY, GLOBAL, Scope, Setting, Status};

/// The page, in Markdown.
pub fn settings_page() -> String {
    let mut page = String::from(
        "# Settings\n\n\
         This page is printed by `howdah --settings`.\n\n\
         Settings are PgBouncer's unless it says otherwise. Where one may stand in several places, \
         the nearer one counts: user before database before `[pgbouncer]`. Times are in seconds, \
         and may have a fraction. A setting marked *fixed* is read at start only; all others follow \
         RELOAD, SIGHUP and the console's SET.\n",
    );
    chapter(&mut page, "`[pgbouncer]`", GLOBAL, Scope::Global);
    for (title, scope) in [
        ("Entries of `[databases]`", Scope::Database),
        ("Entries of `[users]`", Scope::User),
        ("Entries of `[peers]`", Scope::Peer),
    ] {
        let both: Vec<&Setting> = GLOBAL
            .iter()
            .filter(|s| s.scopes.contains(&scope))
            .collect();
        let _ = write!(page, "\n## {title}\n");
        if !both.is_empty() {
            let names: Vec<_> = both.iter().map(|s| format!("`{}`", s.name)).collect();
            let _ = write!(page, "\nFrom the list above: {}.\n", names.join(", "));
        }
        page.push('\n');
        ENTRY
            .iter()
            .filter(|s| s.scopes.contains(&scope))
            .for_each(|setting| item(&mut page, setting));
    }
    page
}

fn chapter(page: &mut String, title: &str, settings: &[Setting], scope: Scope) {
    let _ = write!(page, "\n## {title}\n\n");
    settings
        .iter()
        .filter(|setting| setting.scopes.contains(&scope))
        .for_each(|setting| item(page, setting));
}

fn item(page: &mut String, setting: &Setting) {
    let _ = write!(page, "- **`{}`**: {}", setting.name, setting.kind);
    match setting.default {
        None => {}
        Some("") => page.push_str("; default: nothing"),
        Some(default) => {
            let _ = write!(page, "; default: `{default}`");
        }
    }
    if !setting.reloadable {
        page.push_str("; *fixed*");
    }
    let _ = write!(page, ".\n  {}", setting.prose);
    match setting.status {
        Status::Built => {}
        Status::NotYet(why) => {
            let _ = write!(page, " **Not built**: {why}.");
        }
        Status::Stops { unless, why } => {
            let harmless: Vec<_> = unless
                .iter()
                .filter(|value| !value.is_empty())
                .map(|value| format!("`{value}`"))
                .collect();
            let but = match harmless.is_empty() {
                true => "Setting it".to_owned(),
                false => format!("Any value but {}", harmless.join(", ")),
            };
            let _ = write!(page, " **Not built**: {but} stops the start, as {why}.");
        }
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_in_the_documentation() {
        let kept = include_str!("../../../../docs/settings.md");
        assert!(
            kept == settings_page(),
            "out of date: run `cargo run -p howdah-daemon -- --settings > docs/settings.md`"
        );
    }

    #[test]
    fn every_setting_is_on_it() {
        let page = settings_page();
        for setting in GLOBAL.iter().chain(ENTRY) {
            assert!(
                page.contains(&format!("`{}`", setting.name)),
                "{}",
                setting.name
            );
        }
    }
}
