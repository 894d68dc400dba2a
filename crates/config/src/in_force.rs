//! Which values are in force, and where each stands: `howdah config show`, SHOW SETTINGS.

use std::collections::HashMap;

use super::setting::Setting;
use super::table::{self, SETTINGS};
use super::written::Path;
use super::{Config, Place, Reading, Scope, toml_text};

/// The settings of an entry that were written: by the field, the text and the place.
pub(super) type Given = HashMap<&'static str, (String, Place)>;

/// A value in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueInForce {
    /// The setting's name.
    pub name: &'static str,
    /// The value; stars stand for a secret. `None`: there is none.
    pub value: Option<String>,
    /// Where the value stands; `None` for a default.
    pub place: Option<Place>,
}

/// A setting that is in force: a global one, or one that was written in an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingInForce {
    /// The setting's name.
    pub name: &'static str,
    /// The entry, as `howdah.toml` names it: `databases.shop`. `None` for a global setting.
    pub entry: Option<String>,
    /// The value; stars stand for a secret.
    pub value: Option<String>,
    /// The default.
    pub default: Option<&'static str>,
    /// Where the value stands; `None` for a default.
    pub place: Option<String>,
    /// Whether a reload changes the setting.
    pub changeable: bool,
}

impl Config {
    /// All global settings, then what was written in entries.
    pub fn settings(&self) -> Vec<SettingInForce> {
        let globals = self.show().map(|shown| SettingInForce {
            name: shown.key,
            entry: None,
            value: shown.value.map(|text| masked(shown.key, text)),
            default: shown.default,
            place: self.written.get(shown.key).map(ToString::to_string),
            changeable: shown.changeable,
        });
        let mut entries: Vec<_> = self.given.iter().collect();
        entries.sort_by_key(|(path, _)| *path);
        let of_entries = entries.into_iter().flat_map(|(path, given)| {
            let names: Vec<_> = path.iter().map(|name| toml_text::key(name)).collect();
            let entry = names.join(".");
            let mut settings: Vec<_> = given
                .iter()
                .filter_map(|(field, (text, place))| {
                    let scope = super::written::scope(path)?;
                    let setting = table::in_scope(scope).find(|setting| setting.field == *field)?;
                    Some(SettingInForce {
                        name: setting.name,
                        entry: Some(entry.clone()),
                        value: Some(text.clone()),
                        default: setting.default,
                        place: Some(place.to_string()),
                        changeable: true,
                    })
                })
                .collect();
            settings.sort_by_key(|setting| setting.name);
            settings
        });
        globals.chain(of_entries).collect()
    }

    /// Notes what a global setting comes from, where that is no file.
    pub fn wrote(&mut self, name: &str, from: &str) {
        if let Some(setting) = table::find(Scope::Global, name) {
            self.written.insert(setting.name, Place::variable(from));
        }
    }
}

/// The value of a global setting; stars for a secret.
fn masked(name: &str, text: String) -> String {
    let setting = table::find(Scope::Global, name);
    setting.map_or_else(|| text.clone(), |setting| setting.shown(&text))
}

impl Reading {
    /// The values in force: of all global settings, or of what counts for a database, a user, or a user
    /// in a database.
    pub fn in_force(&self, database: Option<&str>, user: Option<&str>) -> Vec<ValueInForce> {
        if database.is_none() && user.is_none() {
            let names = table::in_scope(Scope::Global);
            return names.map(|setting| self.global(setting)).collect();
        }
        let path = |parts: &[&str]| -> Path { parts.iter().map(|part| part.to_string()).collect() };
        let section = Scope::Database.section();
        let entry = database.and_then(|name| self.config.entry(name));
        // The `*` entry stands for databases without one.
        let entry = entry.map(|entry| entry.name.as_str());
        let mut places = Vec::new();
        if let (Some(entry), Some(user)) = (entry, user) {
            places.push((Scope::Member, path(&[section, entry, "users", user])));
        }
        places.extend(user.map(|user| (Scope::User, path(&[Scope::User.section(), user]))));
        places.extend(entry.map(|entry| (Scope::Database, path(&[section, entry]))));
        let mut seen: Vec<&str> = Vec::new();
        let mut values = Vec::new();
        for setting in SETTINGS {
            let is_here = |(scope, _): &(Scope, Path)| setting.is_allowed_in(*scope);
            if !places.iter().any(is_here) || seen.contains(&setting.name) {
                continue;
            }
            seen.push(setting.name);
            let nearest = places.iter().find_map(|(scope, path)| {
                // Another row may have this name in this scope.
                let setting = table::find(*scope, setting.name)?;
                let (text, place) = self.config.given.get(path)?.get(setting.field)?;
                Some((setting, text, place))
            });
            values.push(match nearest {
                Some((setting, text, place)) => ValueInForce {
                    name: setting.name,
                    value: Some(text.clone()),
                    place: Some(place.clone()),
                },
                None => match table::find(Scope::Global, setting.name) {
                    // `user` of a database is no user of the system.
                    Some(global) if global.field == setting.field => self.global(global),
                    _ => ValueInForce {
                        name: setting.name,
                        value: setting.default.map(String::from),
                        place: None,
                    },
                },
            });
        }
        values
    }

    fn global(&self, setting: &'static Setting) -> ValueInForce {
        let shown = setting
            .global
            .and_then(|field| (field.show)(&self.config.globals));
        ValueInForce {
            name: setting.name,
            value: shown.map(|text| setting.shown(&text)),
            place: self.config.written.get(setting.name).cloned(),
        }
    }
}
