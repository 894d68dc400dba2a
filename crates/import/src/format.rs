//! The poolers whose files are imported, and which of them a file belongs to.

use crate::keys::ForeignKey;
use crate::reading::{Reading, printable};
use crate::tree::{Fruit, Twice};
use crate::{
    ForeignFile, Unreadable, odyssey, odyssey_grammar, odyssey_keys, pg_doorman, pg_doorman_keys,
    pgcat, pgcat_keys, pgdog, pgdog_keys, toml_tree, yaml_tree,
};

/// A pooler whose files are imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `pgcat.toml`
    PgCat,
    /// `pgdog.toml` and `users.toml`
    PgDog,
    /// `odyssey.conf`
    Odyssey,
    /// `pg_doorman.toml` or `pg_doorman.yaml`
    PgDoorman,
}

/// How deep files may include others.
const MAX_DEPTH: usize = 16;

impl Format {
    /// All poolers.
    pub const ALL: [Format; 4] = [
        Format::PgCat,
        Format::PgDog,
        Format::Odyssey,
        Format::PgDoorman,
    ];

    /// The word for `--from`.
    pub fn word(self) -> &'static str {
        match self {
            Format::PgCat => "pgcat",
            Format::PgDog => "pgdog",
            Format::Odyssey => "odyssey",
            Format::PgDoorman => "pg_doorman",
        }
    }

    /// The pooler's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::PgCat => "PgCat",
            Format::PgDog => "PgDog",
            Format::Odyssey => "Odyssey",
            Format::PgDoorman => "PgDoorman",
        }
    }

    /// What becomes of the pooler's keys.
    pub(crate) fn keys(self) -> &'static [ForeignKey] {
        match self {
            Format::PgCat => pgcat_keys::KEYS,
            Format::PgDog => pgdog_keys::KEYS,
            Format::Odyssey => odyssey_keys::KEYS,
            Format::PgDoorman => pg_doorman_keys::KEYS,
        }
    }

    pub(crate) fn import(self, files: &Fruit) -> Reading {
        match self {
            Format::PgCat => pgcat::import(files),
            Format::PgDog => pgdog::import(files),
            Format::Odyssey => odyssey::import(files),
            Format::PgDoorman => pg_doorman::import(files),
        }
    }
}

/// Reads files, and tells by their content whose they are. Gives one tree of all.
pub(crate) fn read(
    files: &[ForeignFile],
    format: Option<Format>,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<(Format, Fruit), Unreadable> {
    let mut all = Fruit::Table(Vec::new());
    let mut found = format;
    for (at, file) in files.iter().enumerate() {
        if files[..at].iter().any(|other| other.path == file.path) {
            return Err(Unreadable::new(format!(
                "{} is named twice",
                printable(&file.path)
            )));
        }
        if file.path.ends_with(".ini") {
            let path = &file.path;
            let text = format!(
                "{path} is an ini file: howdah reads it, and howdah config convert prints it as TOML"
            );
            return Err(Unreadable::new(text));
        }
        let is_odyssey = match format {
            Some(format) => format == Format::Odyssey,
            None => !is_structured(&file.path) && is_of_odyssey(&file.text),
        };
        let (of_file, tree) = if is_odyssey {
            let tree = odyssey_grammar::read(&file.path, &file.text, read_file)?;
            (Some(Format::Odyssey), tree)
        } else {
            let tree = structured(&file.path, &file.text, read_file, 0)?;
            (told(&tree), tree)
        };
        let of_file = format.or(of_file);
        match (found, of_file) {
            (Some(first), Some(other)) if first != other => {
                let (first, other) = (first.name(), other.name());
                return Err(Unreadable::new(format!(
                    "{} is {other}'s, another file is {first}'s: import the files of one pooler",
                    file.path
                )));
            }
            (None, Some(_)) => found = of_file,
            _ => {}
        }
        all = if is_odyssey {
            // Blocks with one name are several.
            Fruit::Table([all.table(), tree.table()].concat())
        } else {
            all.merged(tree).map_err(twice)?
        };
    }
    let Some(format) = found else {
        let names = Format::ALL.map(Format::word).join(", ");
        return Err(Unreadable::new(format!(
            "the files do not tell whose they are: say so by --from ({names}); PgBouncer's are read by \
             howdah config convert"
        )));
    };
    Ok((format, all))
}

/// True for a name of TOML or YAML.
fn is_structured(path: &str) -> bool {
    [".toml", ".yaml", ".yml"]
        .iter()
        .any(|end| path.ends_with(end))
}

/// True for a text that begins a block of Odyssey.
fn is_of_odyssey(text: &str) -> bool {
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let second = words.next().unwrap_or_default();
        match first {
            "listen" => second.starts_with('{'),
            "storage" | "database" => second.starts_with('"') || second == "default",
            _ => false,
        }
    })
}

/// Reads TOML or YAML, with the files that PgDoorman's include.
fn structured(
    path: &str,
    text: &str,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
    depth: usize,
) -> Result<Fruit, Unreadable> {
    let is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
    let tree = if is_yaml {
        yaml_tree::read(path, text)?
    } else {
        toml_tree::read(path, text)?
    };
    let included = tree.get("include").and_then(|include| include.get("files"));
    let included = included.map(Fruit::list).unwrap_or_default().to_vec();
    let mut all = tree;
    for file in included {
        let Some(file) = file.text().filter(|_| depth < MAX_DEPTH) else {
            return Err(Unreadable::new(format!(
                "{path}: include nests too deep, or has no file"
            )));
        };
        let text = read_file(&file)
            .map_err(|why| Unreadable::new(format!("could not load file \"{file}\": {why}")))?;
        all = all
            .merged(structured(&file, &text, read_file, depth + 1)?)
            .map_err(twice)?;
    }
    Ok(all)
}

fn twice(key: Twice) -> Unreadable {
    let name = printable(&key.name);
    Unreadable {
        why: format!("{name} stands in {}, too: leave one out", key.first),
        place: Some(key.second),
    }
}

/// Whose a tree is.
fn told(tree: &Fruit) -> Option<Format> {
    let is_list = |name: &str| matches!(tree.get(name), Some(Fruit::List(_)));
    let has = |key: &str| {
        tree.get("general")
            .is_some_and(|general| general.get(key).is_some())
    };
    let pools = tree.get("pools").map(Fruit::table).unwrap_or_default();
    let of_pools = |key: &str| pools.iter().any(|pool| pool.fruit.get(key).is_some());
    let dog_only = [
        "pooler_mode",
        "default_pool_size",
        "openmetrics_port",
        "passthrough_auth",
    ];
    let of_doorman = ["web", "prometheus"]
        .iter()
        .any(|name| tree.get(name).is_some())
        || ["server_host", "server_database"]
            .iter()
            .any(|key| of_pools(key))
        || has("max_connections");
    if is_list("databases") || is_list("users") || dog_only.iter().any(|key| has(key)) {
        Some(Format::PgDog)
    } else if of_pools("shards") {
        Some(Format::PgCat)
    } else if of_doorman {
        Some(Format::PgDoorman)
    } else if tree.get("pools").is_some() && has("admin_username") {
        Some(Format::PgCat)
    } else {
        None
    }
}
