//! What a file says: each setting with its path and place. The reader of a syntax yields these lines
//! (`ini.rs`, `toml_file.rs`), and `resolve.rs` finds their meaning. A line that is a connection string has several
//! settings, which know each other.

use std::sync::Arc;

use super::connstr::Pair;
use super::{Excerpt, Place, Scope, Setting, excerpt, table};

/// The section, and the entry in it. Empty before any section.
pub(super) type Path = Arc<[String]>;

/// The scope of the settings below a path; `None` if there is none.
pub(super) fn scope(path: &Path) -> Option<Scope> {
    match &**path {
        [section] if section == Scope::Global.section() => Some(Scope::Global),
        [section, _] => Scope::of_entries(section),
        [section, _, users, _] if section == Scope::Database.section() && users == "users" => {
            Some(Scope::Member)
        }
        _ => None,
    }
}

/// The replacement for bytes that are not UTF-8. In comments such bytes do no harm.
pub(super) const NO_TEXT: char = char::REPLACEMENT_CHARACTER;

/// The remedy for bytes that are no text.
pub(super) const NOT_UTF8: &str =
    "there are bytes in it that are not UTF-8: write the file in UTF-8";

/// A setting, or the beginning of a section or an entry.
#[derive(Clone, Debug)]
pub(super) struct WrittenLine {
    pub path: Path,
    /// The setting's name. `None`: here the section or the entry itself begins.
    pub key: Option<String>,
    /// The setting's value.
    pub text: String,
    pub place: Place,
    /// The line has several settings: all of them, and which one this is.
    pub among: Option<(Arc<[Pair]>, usize)>,
    /// The entry that begins here can't be read: why, and what may be shown of it.
    pub unreadable: Option<(String, Excerpt)>,
    /// An entry that can't be read is left out, with a warning.
    pub is_left_out: bool,
    /// The value is a part of a URL, and may be a part of a password.
    pub is_hidden: bool,
    /// The line is of Howdah's own syntax: PgBouncer's habits do not count.
    pub is_native: bool,
    /// The text is a secret with its source, as [`super::SecretText`] writes it.
    pub is_sourced: bool,
}

impl WrittenLine {
    /// The line at which a section or an entry begins.
    pub(super) fn head(path: Path, place: Place) -> WrittenLine {
        WrittenLine {
            path,
            key: None,
            text: String::new(),
            place,
            among: None,
            unreadable: None,
            is_left_out: false,
            is_hidden: false,
            is_native: false,
            is_sourced: false,
        }
    }

    /// The scope of the settings below a path; `None` if there is none.
    pub(super) fn scope(&self) -> Option<Scope> {
        scope(&self.path)
    }

    /// What the line is about, for messages: the setting, or the entry, or the setting of an entry.
    pub(super) fn title(&self) -> String {
        let key = self.key.as_deref().unwrap_or_default();
        let scope = self.path.first().and_then(|first| Scope::of_entries(first));
        if let (Some(Scope::Member), [_, database, _, user]) = (self.scope(), &*self.path) {
            let comma = if key.is_empty() { "" } else { ", " };
            return format!("database \"{database}\", user \"{user}\"{comma}{key}");
        }
        match (scope, self.path.get(1..).unwrap_or_default()) {
            (None, _) | (_, []) => key.into(),
            (Some(scope), names) => {
                let comma = if key.is_empty() { "" } else { ", " };
                format!("{} \"{}\"{comma}{key}", scope.noun(), names.join("."))
            }
        }
    }

    /// The text of a mistake in a setting, and the line as far as it may be shown. `setting` is
    /// `None` if there is no such setting: then the value may be a secret whose key is misspelt.
    pub(super) fn mistaken(&self, setting: Option<&Setting>) -> (String, Option<Excerpt>) {
        let key = self.key.as_deref().unwrap_or_default();
        let is_open = !self.has_password() && !self.is_hidden;
        let is_shown = is_open && setting.is_some_and(|setting| !setting.is_secret());
        let value = if is_shown {
            excerpt::without_secrets(&self.text)
        } else {
            excerpt::HIDDEN.into()
        };
        let text = match &*self.path {
            [_, _, ..] if is_shown => format!("{} = {value}", self.title()),
            [_, _, ..] => self.title(),
            _ => format!("invalid value \"{value}\" for parameter {key} in configuration"),
        };
        let known = |key: &str| {
            let setting = self.scope().and_then(|scope| table::find(scope, key));
            setting.is_some_and(|setting| !setting.is_secret())
        };
        let excerpt = match &self.among {
            Some((pairs, at)) => Excerpt::of_pair(&self.path[1], pairs, *at, known),
            None if setting.is_none() => Some(Excerpt::of_key(key)),
            None => Some(Excerpt::of_value(key, &value)),
        };
        (text, excerpt)
    }

    /// True if there is a zero byte where none may be: no secret has one.
    pub(super) fn has_zero_byte(&self, setting: Option<&Setting>) -> bool {
        let minds = self.is_native || setting.is_some_and(Setting::is_secret);
        minds && !self.is_sourced && self.text.contains('\0')
    }

    /// True if there is a password in the line. Then any value of an entry may be a part of it, for
    /// example after a blank.
    pub(super) fn has_password(&self) -> bool {
        match &self.among {
            Some((pairs, _)) => {
                let mut keys = pairs.iter().map(|pair| pair.key.to_ascii_lowercase());
                keys.any(|key| key.contains("pass"))
            }
            None => self.text.to_ascii_lowercase().contains("passw"),
        }
    }

    /// True if the value was read without the double quotes around it.
    pub(super) fn is_oddly_quoted(&self) -> bool {
        let among = self.among.as_ref();
        among.is_some_and(|(pairs, at)| pairs[*at].in_double_quotes)
    }
}
