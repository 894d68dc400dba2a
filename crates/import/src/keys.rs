//! What becomes of each key of another pooler: a table for each format. The tables also print
//! `docs/moving-from-others.md`.

/// A key of another pooler's file.
#[derive(Debug)]
pub struct ForeignKey {
    /// The section, with `*` for names: `pools.*.users.*`.
    pub section: &'static str,
    /// The key in it. `*` at its end stands for any end.
    pub name: &'static str,
    /// What becomes of the key.
    pub meaning: Meaning,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug)]
pub enum Meaning {
    /// A setting, or several with the same value; the unit there; and the default there, as it
    /// would be written, if that is another one than here.
    Becomes(&'static [&'static str], Unit, Option<&'static str>),
    /// A global setting here, while each pool has its own there; and the default there.
    Lifted(&'static str, Unit, Option<&'static str>),
    /// The importer reads the key together with others: what becomes of it.
    Read(&'static str),
    /// The key has a table whose keys have rows of their own.
    Section,
    /// No counterpart: the consequence, and the remedy.
    Lost(&'static str, &'static str),
    /// No counterpart, and the key decides who gets in or where writes go.
    Decides(&'static str, &'static str),
    /// A key of sharding.
    Sharding,
    /// Nothing is needed here: why.
    Nothing(&'static str),
}

/// How a value is written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A text or a number, as here.
    Plain,
    /// True or false.
    Flag,
    /// A number of seconds.
    Seconds,
    /// A number of milliseconds.
    Millis,
    /// Milliseconds, which count as whole seconds here.
    MillisAsSeconds,
    /// Milliseconds, or a text with a unit.
    Duration,
    /// A time with a unit, which counts in milliseconds here.
    DurationAsMillis,
    /// A size in bytes, or a text with a unit.
    Size,
    /// A word in any case.
    Word,
}

/// What the keys of sharding say.
pub(crate) const SHARDING: (&str, &str) = (
    "sharding is not imported yet",
    "import what has one shard, and leave sharded databases where they are",
);

impl ForeignKey {
    /// The row of a key.
    pub(crate) fn find(
        keys: &'static [ForeignKey],
        section: &str,
        name: &str,
    ) -> Option<&'static ForeignKey> {
        let is_named = |key: &&ForeignKey| match key.name.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => key.name == name,
        };
        keys.iter()
            .filter(|key| key.section == section)
            .find(is_named)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use howdah_config::{Scope, table};

    use super::*;
    use crate::format::Format;

    /// The scopes into which the settings of a section go.
    fn scopes(format: Format, section: &str) -> &'static [Scope] {
        match (format, section) {
            (Format::PgDog, "users") | (_, "pools.*.users.*") => &[Scope::Member],
            (Format::Odyssey, "user") => &[Scope::Member],
            (Format::PgDog, "databases") => &[Scope::Database],
            (_, "pools.*" | "pools.*.shards.*" | "pools.*.auth_query") => &[Scope::Database],
            _ => &[Scope::Global],
        }
    }

    #[test]
    fn each_row_names_settings_that_there_are() {
        for format in Format::ALL {
            for key in format.keys() {
                let (settings, scopes) = match key.meaning {
                    Meaning::Becomes(settings, ..) => (settings, scopes(format, key.section)),
                    Meaning::Lifted(ref setting, ..) => {
                        (std::slice::from_ref(setting), &[Scope::Global][..])
                    }
                    _ => continue,
                };
                for setting in settings {
                    for scope in scopes {
                        let found = table::find(*scope, setting);
                        assert!(
                            found.is_some(),
                            "{}: {}: {setting}",
                            format.word(),
                            key.name
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn each_key_has_one_row() {
        for format in Format::ALL {
            let mut seen = HashSet::new();
            for key in format.keys() {
                let is_new = seen.insert((key.section, key.name));
                assert!(is_new, "{}: {}.{}", format.word(), key.section, key.name);
            }
        }
    }

    /// A default is stated because Howdah's is another one.
    #[test]
    fn defaults_differ_from_ours() {
        for format in Format::ALL {
            for key in format.keys() {
                let Meaning::Becomes(settings, unit, Some(default)) = key.meaning else {
                    continue;
                };
                let fruit = crate::tree::Fruit::Text(default.into());
                let theirs = crate::units::converted(unit, &fruit);
                let ours = settings.iter().map(|setting| {
                    let global = table::find(Scope::Global, setting);
                    global.and_then(|setting| setting.default).map(String::from)
                });
                let (format, key) = (format.word(), key.name);
                assert!(
                    theirs.is_some() && ours.clone().any(|ours| ours != theirs),
                    "{format}: {key}"
                );
            }
        }
    }
}
