//! The configuration that an import writes.

use std::collections::HashMap;

use howdah_config::{Scope, Setting, table, toml_text};

/// A table of the output.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// `[howdah]`
    Globals,
    /// `[databases.NAME]`
    Database(String),
    /// `[databases.NAME.users.NAME]`
    Member(String, String),
    /// `[users.NAME]`
    User(String),
    /// `[hosts.NAME]`
    Host(String),
}

impl Target {
    /// The scope of the table's settings.
    pub fn scope(&self) -> Scope {
        match self {
            Target::Globals => Scope::Global,
            Target::Database(_) => Scope::Database,
            Target::Member(..) => Scope::Member,
            Target::User(_) => Scope::User,
            Target::Host(_) => Scope::Host,
        }
    }

    fn header(&self) -> String {
        let key = toml_text::key;
        match self {
            Target::Globals => "[howdah]".into(),
            Target::Database(name) => format!("[databases.{}]", key(name)),
            Target::Member(database, user) => {
                format!("[databases.{}.users.{}]", key(database), key(user))
            }
            Target::User(name) => format!("[users.{}]", key(name)),
            Target::Host(name) => format!("[hosts.{}]", key(name)),
        }
    }

    /// The order of tables: members follow their database.
    fn rank(&self) -> (u8, &str) {
        match self {
            Target::Globals => (0, ""),
            Target::Database(name) | Target::Member(name, _) => (1, name),
            Target::User(_) => (2, ""),
            Target::Host(_) => (3, ""),
        }
    }
}

/// A value of the output.
#[derive(Clone, PartialEq, Eq, Debug)]
enum DraftValue {
    /// The text that an ini file would have.
    Text(String),
    /// Settings of PostgreSQL.
    Parameters(Vec<(String, String)>),
    /// Where a secret comes from: the words of `{ source = "..." }`.
    Source(Vec<(&'static str, String)>),
}

/// The tables of the output, in their order.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    tables: Vec<(Target, Vec<(&'static Setting, DraftValue)>)>,
    /// Where the tables stand.
    places: HashMap<Target, usize>,
}

/// The two files of the output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// `howdah.toml`
    pub main: String,
    /// `secrets.toml`; empty if there is no secret.
    pub secrets: String,
}

/// The name of the file with the secrets.
pub const SECRETS: &str = "secrets.toml";

impl Draft {
    /// Begins a table.
    pub fn begin(&mut self, target: &Target) {
        if !self.has(target) {
            self.places.insert(target.clone(), self.tables.len());
            self.tables.push((target.clone(), Vec::new()));
        }
    }

    /// True if a table has begun.
    pub fn has(&self, target: &Target) -> bool {
        self.places.contains_key(target)
    }

    /// Sets a value, as the text that an ini file would have. False if the table has no such setting.
    pub fn set(&mut self, target: &Target, name: &str, text: impl Into<String>) -> bool {
        self.put(target, name, DraftValue::Text(text.into()))
    }

    /// Sets a secret that comes from a source with this name, and its options.
    pub fn source(
        &mut self,
        target: &Target,
        name: &str,
        source: &str,
        options: Vec<(&'static str, String)>,
    ) {
        let words = [("source", source.to_owned())].into_iter().chain(options);
        self.put(target, name, DraftValue::Source(words.collect()));
    }

    /// Takes a value away.
    pub fn unset(&mut self, target: &Target, name: &str) {
        if let Some((_, lines)) = self.places.get(target).map(|at| &mut self.tables[*at]) {
            lines.retain(|(setting, _)| setting.name != name);
        }
    }

    /// Adds a setting of PostgreSQL with which servers' sessions start.
    pub fn parameter(&mut self, target: &Target, name: &str, value: impl Into<String>) {
        let mut all = match self.value(target, "parameters") {
            Some(DraftValue::Parameters(all)) => all.clone(),
            _ => Vec::new(),
        };
        all.retain(|(other, _)| other != name);
        all.push((name.into(), value.into()));
        self.put(target, "parameters", DraftValue::Parameters(all));
    }

    /// The names of the settings of PostgreSQL with which servers' sessions start.
    pub fn parameter_names(&self, target: &Target) -> Vec<String> {
        match self.value(target, "parameters") {
            Some(DraftValue::Parameters(all)) => all.iter().map(|(name, _)| name.clone()).collect(),
            _ => Vec::new(),
        }
    }

    /// The text of a setting, if it is set.
    pub fn text(&self, target: &Target, name: &str) -> Option<&str> {
        match self.value(target, name)? {
            DraftValue::Text(text) => Some(text),
            DraftValue::Parameters(_) | DraftValue::Source(_) => None,
        }
    }

    /// The users with a table in a database.
    pub fn members(&self, database: &str) -> Vec<String> {
        let members = self.tables.iter().filter_map(|(target, _)| match target {
            Target::Member(of, user) if of == database => Some(user.clone()),
            _ => None,
        });
        members.collect()
    }

    /// The databases.
    pub fn databases(&self) -> Vec<String> {
        let databases = self.tables.iter().filter_map(|(target, _)| match target {
            Target::Database(name) => Some(name.clone()),
            _ => None,
        });
        databases.collect()
    }

    /// Takes a table away.
    pub fn remove(&mut self, target: &Target) {
        if self.has(target) {
            self.retain(|other| other != target);
        }
    }

    fn retain(&mut self, keeps: impl Fn(&Target) -> bool) {
        self.tables.retain(|(target, _)| keeps(target));
        let targets = self.tables.iter().map(|(target, _)| target.clone());
        self.places = targets.zip(0..).collect();
    }

    /// Takes a database and its users away.
    pub fn remove_database(&mut self, name: &str) {
        self.retain(
            |target| !matches!(target, Target::Database(of) | Target::Member(of, _) if of == name),
        );
    }

    /// How a value stands in the output; stars for a secret.
    pub fn shown(&self, target: &Target, name: &str) -> Option<String> {
        let setting = table::find(target.scope(), name)?;
        let value = self.value(target, name)?;
        Some(if setting.is_secret() {
            format!("{name} in {SECRETS}")
        } else {
            format!("{name} = {}", written(setting, value))
        })
    }

    fn value(&self, target: &Target, name: &str) -> Option<&DraftValue> {
        let (_, lines) = &self.tables[*self.places.get(target)?];
        let line = lines.iter().find(|(setting, _)| setting.name == name);
        line.map(|(_, value)| value)
    }

    fn put(&mut self, target: &Target, name: &str, value: DraftValue) -> bool {
        let Some(setting) = table::find(target.scope(), name) else {
            return false;
        };
        self.begin(target);
        let found = self.places.get(target);
        if let Some((_, lines)) = found.map(|at| &mut self.tables[*at]) {
            match lines.iter_mut().find(|(other, _)| other.name == name) {
                Some((_, old)) => *old = value,
                None => lines.push((setting, value)),
            }
        }
        true
    }

    /// The two files. `head` stands above the first as a comment.
    pub fn written(&self, head: &str) -> Written {
        let mut tables: Vec<_> = self.tables.iter().collect();
        let mut first: HashMap<(u8, &str), usize> = HashMap::new();
        for (at, (target, _)) in self.tables.iter().enumerate() {
            first.entry(target.rank()).or_insert(at);
        }
        // Members stand below their database, databases in the order of the file.
        tables.sort_by_key(|(target, _)| {
            let (rank, name) = target.rank();
            let is_member = matches!(target, Target::Member(..));
            (rank, first.get(&(1, name)).copied(), is_member)
        });
        let (mut main, mut secrets) = (String::new(), String::new());
        for (target, lines) in tables {
            let (hidden, open): (Vec<_>, Vec<_>) =
                lines.iter().partition(|(setting, _)| setting.is_secret());
            let is_secret_alone = open.is_empty() && !hidden.is_empty();
            // A user in a database is seen in the first file in any case.
            if !(is_secret_alone && matches!(target, Target::User(_))) {
                push_table(&mut main, target, &open);
            }
            if !hidden.is_empty() {
                push_table(&mut secrets, target, &hidden);
            }
        }
        let include = match secrets.as_str() {
            "" => String::new(),
            _ => format!("include = [\"{SECRETS}\"]\n\n"),
        };
        Written {
            main: format!("# {head}\n{include}{main}"),
            secrets,
        }
    }
}

fn push_table(out: &mut String, target: &Target, lines: &[&(&'static Setting, DraftValue)]) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(&target.header());
    out.push('\n');
    for (setting, value) in lines {
        out.push_str(&format!("{} = {}\n", setting.name, written(setting, value)));
    }
}

/// A value as TOML.
fn written(setting: &Setting, value: &DraftValue) -> String {
    match value {
        DraftValue::Text(text) if setting.name == "host" && text.contains(',') => {
            let hosts: Vec<_> = text.split(',').map(String::from).collect();
            toml_text::array(hosts.iter())
        }
        DraftValue::Text(text) => toml_text::value(setting, text),
        DraftValue::Parameters(all) => {
            inline(all.iter().map(|(name, value)| (name.as_str(), value)))
        }
        DraftValue::Source(words) => inline(words.iter().map(|(name, value)| (*name, value))),
    }
}

/// A table in one line.
fn inline<'a>(all: impl Iterator<Item = (&'a str, &'a String)>) -> String {
    let all =
        all.map(|(name, value)| format!("{} = {}", toml_text::key(name), toml_text::text(value)));
    format!("{{ {} }}", all.collect::<Vec<_>>().join(", "))
}
