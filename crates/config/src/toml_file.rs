//! The grammar of `howdah.toml`: TOML, whose tables are the sections and entries of an ini file. The
//! names of settings are the same, and so are their values, but for their types.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::near::nearest;
use super::resolve::secret_of;
use super::sharding::MapPart;
use super::source::{SecretSource, SecretText};
use super::surroundings::Surroundings;
use super::toml_value::{article, in_order, text_of, texts};
use super::written::{Path, WrittenLine};
use super::{Excerpt, MAX_INCLUDE, Mistake, Place, Scope, Secret, Setting, table, url};

/// The table of the global settings.
pub(super) const MAIN: &str = "howdah";

/// The section of the settings that begin with `vault_`.
const VAULT: &str = "vault";

/// The key of the main file's other files.
const INCLUDE: &str = "include";

/// How many syntax errors of one file are told.
const MAX_ERRORS: usize = 20;

/// True for a file of this grammar: `.toml` is the end of its name.
pub(super) fn is_toml(path: &str) -> bool {
    let end = path.rsplit_once('.').map_or("", |(_, end)| end);
    end.eq_ignore_ascii_case("toml")
}

/// Reads a configuration, which must have the table `[howdah]`.
pub(super) fn read(
    path: &str,
    text: &str,
    surroundings: &mut dyn Surroundings,
    mistakes: &mut Vec<Mistake>,
) -> Vec<WrittenLine> {
    let mut reader = Reader {
        surroundings,
        mistakes,
        lines: Vec::new(),
        begun: HashSet::new(),
        given: HashMap::new(),
        open: Vec::new(),
        included: HashSet::new(),
    };
    reader.file(path, text);
    let (lines, is_broken) = (reader.lines, !mistakes.is_empty());
    let has_main = lines.iter().any(|line| line.scope() == Some(Scope::Global));
    // Important for an empty or truncated file: a reload would remove all databases.
    if !has_main && !is_broken {
        let text = format!("main section missing from config file {path}");
        let remedy = "write [howdah], if only with its defaults";
        mistakes.push(Mistake::new(None, text, remedy));
    }
    lines
}

struct Reader<'a> {
    surroundings: &'a mut dyn Surroundings,
    mistakes: &'a mut Vec<Mistake>,
    lines: Vec<WrittenLine>,
    /// The sections and entries that have begun.
    begun: HashSet<Path>,
    /// Where each setting stands.
    given: HashMap<(Path, String), Place>,
    /// The present file, behind the files that include it.
    open: Vec<String>,
    /// The files that were included.
    included: HashSet<String>,
}

type Key<'i> = Spanned<DeString<'i>>;
type Value<'i> = Spanned<DeValue<'i>>;

/// A text, and the places in it.
struct Source {
    file: Arc<str>,
    text: Arc<str>,
    /// Where each line begins.
    starts: Vec<usize>,
    /// The lines with syntax errors. What is read of them may be a part of a secret.
    broken: HashSet<usize>,
}

impl Source {
    fn new(path: &str, text: &str) -> Source {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Source {
            file: path.into(),
            text: text.into(),
            starts: std::iter::once(0).chain(ends).collect(),
            broken: HashSet::new(),
        }
    }

    /// The line of a byte, from 0.
    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    fn place(&self, at: usize) -> Place {
        let line = self.line(at);
        let before = self.text.get(self.starts[line]..at).unwrap_or_default();
        Place {
            column: before.chars().count() as u32 + 1,
            ..Place::line(self.file.clone(), line as u32 + 1)
        }
    }

    fn is_broken(&self, key: &Key<'_>) -> bool {
        let line = self.line(key.span().start);
        self.broken.contains(&line)
    }
}

impl Reader<'_> {
    fn file(&mut self, path: &str, text: &str) {
        self.open.push(path.into());
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut source = Source::new(path, text);
        let (mut told, mut seen) = (0, 0);
        for error in errors {
            let span = error.span().unwrap_or(text.len()..text.len());
            let (line, last) = (source.line(span.start), source.line(span.end));
            let is_new = source.broken.insert(line);
            // Errors come in the order of their lines, and may overlap.
            source.broken.extend(line.max(seen)..=last);
            seen = seen.max(last);
            if is_new && told < MAX_ERRORS {
                told += 1;
                let what = "syntax error in configuration";
                let place = source.place(span.start);
                self.mistakes
                    .push(Mistake::new(Some(&place), what, error.message()));
            }
        }
        for (key, value) in in_order(table.get_ref()) {
            if !source.is_broken(key) {
                self.root(&source, key, value);
            }
        }
        self.open.pop();
    }

    fn root(&mut self, source: &Source, key: &Key<'_>, value: &Value<'_>) {
        let name = key.get_ref().as_ref();
        let place = source.place(key.span().start);
        if name == INCLUDE {
            return self.include(&place, value.get_ref());
        }
        let of_entries = [Scope::Database, Scope::User, Scope::Host, Scope::Peer];
        let scope = of_entries.into_iter().find(|scope| scope.section() == name);
        match (scope, value.get_ref()) {
            (_, DeValue::Table(table)) if name == MAIN => {
                let path: Path = [Scope::Global.section().to_owned()].into();
                self.begin(&path, &place);
                self.settings(source, &path, Scope::Global, table);
            }
            (_, DeValue::Table(table)) if name == VAULT => {
                let path: Path = [Scope::Global.section().to_owned()].into();
                self.begin(&path, &place);
                for (key, value) in in_order(table) {
                    let name = format!("{VAULT}_{}", key.get_ref());
                    let named = Spanned::new(key.span(), name.into());
                    if !source.is_broken(key) {
                        self.setting(source, &path, Scope::Global, &named, value.get_ref());
                    }
                }
            }
            (Some(scope), DeValue::Table(table)) => {
                for (name, entry) in in_order(table) {
                    self.entry(source, scope, name, entry);
                }
            }
            (scope, value) => {
                let is_section = scope.is_some() || name == MAIN || name == VAULT;
                self.no_section(&place, name, value, is_section);
            }
        }
    }

    /// Says what is wrong with a key that is no section.
    fn no_section(&mut self, place: &Place, name: &str, value: &DeValue<'_>, is_section: bool) {
        let sections = [
            "howdah",
            "databases",
            "users",
            "hosts",
            "peers",
            "vault",
            "include",
        ];
        let near = nearest(name, sections);
        let near = near.map_or_else(String::new, |name| format!("; did you mean {name}?"));
        let (text, remedy) = match value {
            DeValue::Table(_) if name == Scope::Global.section() => (
                "invalid section \"pgbouncer\" in configuration".into(),
                "write [howdah] for it".to_owned(),
            ),
            _ if is_section => (
                format!("{name} is {}", article(value)),
                format!("write it as a table: {}", heading(name)),
            ),
            DeValue::Table(_) | DeValue::Array(_) => (
                format!("invalid section \"{name}\" in configuration"),
                format!(
                    "there are [howdah], [databases.NAME], [users.NAME], [hosts.NAME], [peers.ID] \
                     and [vault]{near}"
                ),
            ),
            _ => (
                format!("{name} stands before any section"),
                format!("begin with [howdah]{near}"),
            ),
        };
        let mistake = Mistake::new(Some(place), text, remedy);
        self.mistakes.push(mistake.showing(Excerpt::of_key(name)));
    }

    fn entry(&mut self, source: &Source, scope: Scope, key: &Key<'_>, value: &Value<'_>) {
        if source.is_broken(key) {
            return;
        }
        let (name, place) = (key.get_ref().as_ref(), source.place(key.span().start));
        let section = scope.section();
        let DeValue::Table(table) = value.get_ref() else {
            let text = format!("{section}.{name} is {}", article(value.get_ref()));
            let remedy = format!("write it as a table: {}", heading(section));
            let mistake = Mistake::new(Some(&place), text, remedy);
            return self.mistakes.push(mistake.showing(Excerpt::of_key(name)));
        };
        let path: Path = [section.to_owned(), name.to_owned()].into();
        self.begin(&path, &place);
        self.settings(source, &path, scope, table);
    }

    fn begin(&mut self, path: &Path, place: &Place) {
        if self.begun.insert(path.clone()) {
            let head = WrittenLine::head(path.clone(), place.clone());
            self.lines.push(WrittenLine {
                is_native: true,
                ..head
            });
        }
    }

    fn settings(&mut self, source: &Source, path: &Path, scope: Scope, table: &DeTable<'_>) {
        for (key, value) in in_order(table) {
            let name = key.get_ref().as_ref();
            if source.is_broken(key) {
                continue;
            }
            match value.get_ref() {
                DeValue::Table(users) if scope == Scope::Database && name == "users" => {
                    for (name, entry) in in_order(users) {
                        self.member(source, path, name, entry);
                    }
                }
                DeValue::Table(lines)
                    if scope == Scope::Database && MapPart::named(name).is_some() =>
                {
                    self.map(source, path, name, lines);
                }
                value => self.setting(source, path, scope, key, value),
            }
        }
    }

    /// A part of a sharded database's map.
    fn map(&mut self, source: &Source, database: &Path, part: &str, lines: &DeTable<'_>) {
        let path: Path = database.iter().cloned().chain([part.to_owned()]).collect();
        for (key, value) in in_order(lines) {
            if source.is_broken(key) {
                continue;
            }
            let line = WrittenLine {
                key: Some(key.get_ref().as_ref().into()),
                is_native: true,
                ..WrittenLine::head(path.clone(), source.place(key.span().start))
            };
            match value.get_ref() {
                DeValue::String(text) => self.lines.push(WrittenLine {
                    text: text.as_ref().into(),
                    ..line
                }),
                other => {
                    let remedy = format!("must be a text, not {}", article(other));
                    let text = format!("{}: {}", path.join("."), key.get_ref());
                    self.wrong(&line, None, text, remedy);
                }
            }
        }
    }

    /// A user of one database.
    fn member(&mut self, source: &Source, database: &Path, key: &Key<'_>, value: &Value<'_>) {
        if source.is_broken(key) {
            return;
        }
        let (name, place) = (key.get_ref().as_ref(), source.place(key.span().start));
        let DeValue::Table(table) = value.get_ref() else {
            let text = format!(
                "{}.users.{name} is {}",
                database.join("."),
                article(value.get_ref())
            );
            let remedy = "write it as a table: [databases.NAME.users.NAME]";
            let mistake = Mistake::new(Some(&place), text, remedy);
            return self.mistakes.push(mistake.showing(Excerpt::of_key(name)));
        };
        let end = ["users".to_owned(), name.to_owned()];
        let path: Path = database.iter().cloned().chain(end).collect();
        self.begin(&path, &place);
        self.settings(source, &path, Scope::Member, table);
    }

    fn setting(
        &mut self,
        source: &Source,
        path: &Path,
        scope: Scope,
        key: &Key<'_>,
        value: &DeValue<'_>,
    ) {
        let name = key.get_ref().as_ref();
        let place = source.place(key.span().start);
        let line = WrittenLine {
            key: Some(name.into()),
            is_native: true,
            ..WrittenLine::head(path.clone(), place.clone())
        };
        let in_file = table::find_in_file(scope, name);
        let field = in_file.map_or(name, |setting| setting.name);
        if let Some(first) = self
            .given
            .insert((path.clone(), field.into()), place.clone())
        {
            let text = format!("{} is already set at {first}", line.title());
            return self.wrong(&line, None, text, "leave one of the two out".into());
        }
        if let Some(instead) = other_name(scope, name) {
            let text = line.title();
            return self.wrong(&line, None, text, format!("write {instead}"));
        }
        if let (Some(_), DeValue::String(file)) = (in_file, value) {
            let text = beside(&place.file, file);
            return self.lines.push(WrittenLine { text, ..line });
        }
        if in_file.is_some() {
            let remedy = format!("must be the name of a file, not {}", article(value));
            return self.wrong(&line, None, line.title(), remedy);
        }
        let Some(setting) = table::find(scope, name) else {
            return self.lines.push(line);
        };
        if let (true, DeValue::Table(of)) = (setting.is_secret(), value) {
            return match self.secret(&place, setting, of) {
                Ok(text) => self.text(scope, setting, of_source(line, &text), text),
                Err(remedy) => self.wrong(&line, Some(setting), line.title(), remedy),
            };
        }
        if let ("password", DeValue::Array(_)) = (setting.name, value) {
            return match two_passwords(value) {
                Ok(text) => self.text(scope, setting, of_source(line, &text), text),
                Err(remedy) => self.wrong(&line, Some(setting), line.title(), remedy),
            };
        }
        match (text_of(setting, value), name) {
            (Ok(text), "host") if scope == Scope::Database => self.hosts(line, &text),
            (Ok(text), _) => self.text(scope, setting, line, text),
            (Err(_), "host") => match texts(value) {
                Ok(hosts) if hosts.iter().any(|host| host.contains(',')) => {
                    let remedy = "each element must be one host: no commas in it".into();
                    self.wrong(&line, Some(setting), line.title(), remedy);
                }
                Ok(hosts) if scope == Scope::Database => self.hosts(line, &hosts.join(",")),
                Ok(hosts) => self.lines.push(WrittenLine {
                    text: hosts.join(","),
                    ..line
                }),
                Err(other) => {
                    let remedy = format!("must be a text or an array of texts, not {other}");
                    self.wrong(&line, Some(setting), line.title(), remedy);
                }
            },
            (Err(remedy), _) => self.wrong(&line, Some(setting), line.title(), remedy),
        }
    }

    /// A setting's text. What a URL has must not stand in the entry, too.
    fn text(&mut self, scope: Scope, setting: &Setting, line: WrittenLine, text: String) {
        let is_url = scope == Scope::Database && setting.name == "url";
        let pairs = if is_url {
            url::parse(&text)
        } else {
            Ok(Vec::new())
        };
        for (key, _) in pairs.unwrap_or_default() {
            let key = match key.as_str() {
                "user" => "server_user",
                "password" => "server_password",
                "options" => "parameters",
                key => key,
            };
            let given = (line.path.clone(), key.to_owned());
            if let Some(first) = self.given.insert(given, line.place.clone()) {
                let text = format!("{}: {key} is already set at {first}", line.title());
                return self.wrong(
                    &line,
                    Some(setting),
                    text,
                    "leave one of the two out".into(),
                );
            }
        }
        self.lines.push(WrittenLine { text, ..line });
    }

    /// A secret that stands in a file or a variable, or comes from another source.
    fn secret(
        &mut self,
        place: &Place,
        setting: &Setting,
        of: &DeTable<'_>,
    ) -> Result<String, String> {
        if of.contains_key("command") || of.contains_key("source") {
            let source = source(setting, of)?;
            return Ok(SecretText::line_of(&source, ""));
        }
        let mut words = of.iter().map(|(key, value)| {
            let name = value.get_ref().as_str();
            (key.get_ref().as_ref(), name)
        });
        match (words.next(), words.next()) {
            (Some(("file", Some(name))), None) => {
                let path = beside(&place.file, name);
                let text = self.surroundings.secret(&path);
                let text = text
                    .and_then(|text| secret_of(&text))
                    .map_err(|why| format!("could not read \"{path}\": {why}"))?;
                Ok(match setting.takes_sources() {
                    true => SecretText::line_of(&SecretSource::File(path), &text),
                    false => text,
                })
            }
            (Some(("env", Some(name))), None) => match self.surroundings.variable(name) {
                Some(text) if !text.is_empty() => Ok(text),
                Some(_) => Err(format!("the variable {name} is empty")),
                None => Err(format!("there is no variable {name}")),
            },
            _ if setting.takes_sources() => Err(
                "write a text, { file = \"PATH\" }, { env = \"NAME\" }, { command = [\"/PROGRAM\"] } or \
                 { source = \"NAME\" }"
                    .into(),
            ),
            _ => Err("write a text, { file = \"PATH\" } or { env = \"NAME\" }".into()),
        }
    }

    /// The hosts of a database, some perhaps with their ports.
    fn hosts(&mut self, line: WrittenLine, text: &str) {
        let mut ports = Vec::new();
        let hosts = text.split(',').map(|host| {
            let (host, port) = split_port(host.trim());
            ports.push(port);
            host
        });
        let text = hosts.collect::<Vec<_>>().join(",");
        if ports.iter().any(Option::is_some) {
            let key = (line.path.clone(), "port".to_owned());
            if self.given.insert(key, line.place.clone()).is_some() {
                let text = format!(
                    "{}: a host has its port, and port is set, too",
                    line.title()
                );
                return self.wrong(&line, None, text, "leave one of the two out".into());
            }
            let ports: Vec<_> = ports
                .into_iter()
                .map(|port| port.unwrap_or("5432"))
                .collect();
            self.lines.push(WrittenLine {
                key: Some("port".into()),
                text: ports.join(","),
                ..line.clone()
            });
        }
        self.lines.push(WrittenLine { text, ..line });
    }

    fn wrong(
        &mut self,
        line: &WrittenLine,
        setting: Option<&Setting>,
        text: String,
        remedy: String,
    ) {
        let mistake = Mistake::new(Some(&line.place), text, remedy);
        let key = line.key.as_deref().unwrap_or_default();
        let excerpt = match setting {
            Some(_) => Excerpt::of_hidden(key),
            None => Excerpt::of_key(key),
        };
        self.mistakes.push(mistake.showing(excerpt));
    }

    /// Reads other files, whose names count from the folder of this one.
    fn include(&mut self, place: &Place, value: &DeValue<'_>) {
        let patterns = match texts(value) {
            Ok(patterns) => patterns,
            Err(other) => {
                let text = format!("include has {other}");
                let remedy = "write an array of paths: include = [\"conf.d/*.toml\"]";
                return self.mistakes.push(Mistake::new(Some(place), text, remedy));
            }
        };
        for pattern in patterns {
            let pattern = beside(&place.file, pattern);
            let paths = if pattern.contains(['*', '?']) {
                self.surroundings.files(&pattern)
            } else {
                Ok(vec![pattern.clone()])
            };
            match paths {
                Ok(paths) => paths.iter().for_each(|path| self.included(place, path)),
                Err(why) => self.not_read(place, &pattern, &why),
            }
        }
    }

    fn included(&mut self, place: &Place, path: &str) {
        if self.open.len() > MAX_INCLUDE || self.open.iter().any(|open| open == path) {
            let text = format!("include of \"{path}\" goes in a circle, or too deep");
            let remedy =
                format!("a file can't include itself, and at most {MAX_INCLUDE} files nest");
            return self.mistakes.push(Mistake::new(Some(place), text, remedy));
        }
        if !self.included.insert(path.into()) {
            return;
        }
        match self.surroundings.file(path) {
            Ok(text) => self.file(path, &text),
            Err(why) => self.not_read(place, path, &why),
        }
    }

    fn not_read(&mut self, place: &Place, path: &str, why: &str) {
        let text = format!("could not load file \"{path}\": {why}");
        let remedy = "check the path, which counts from the folder of the file that names it, and that \
                      the file may be read";
        self.mistakes.push(Mistake::new(Some(place), text, remedy));
    }
}

/// The source of a secret: a command, or one with a name.
///
/// # Errors
/// What to write instead.
fn source(setting: &Setting, of: &DeTable<'_>) -> Result<SecretSource, String> {
    if !setting.takes_sources() {
        return Err("write a text, { file = \"PATH\" } or { env = \"NAME\" }".into());
    }
    if let Some(command) = of.get("command") {
        let words = texts(command.get_ref()).map_err(|other| {
            format!("the command must be an array of texts, and one element is {other}")
        })?;
        return match (words.as_slice(), of.len()) {
            ([line], 1) if command.get_ref().as_str().is_some() => {
                SecretSource::of_words(true, line)
            }
            (words, 1) => SecretSource::command(words),
            _ => Err("a command has no options beside it".into()),
        };
    }
    let mut options = Vec::new();
    for (key, value) in in_order(of) {
        let text = value.get_ref().as_str();
        let key = key.get_ref().as_ref();
        options.push((key, text.ok_or_else(|| format!("{key} must be a text"))?));
    }
    let is_name = |(key, _): &(&str, &str)| *key == "source";
    let name = options
        .iter()
        .copied()
        .find(is_name)
        .map_or("", |(_, name)| name);
    options.retain(|option| !is_name(option));
    SecretSource::named(name, &options)
}

/// Two passwords, either of which is right.
///
/// # Errors
/// What to write instead.
fn two_passwords(value: &DeValue<'_>) -> Result<String, String> {
    let remedy = "write one text, or an array of two passwords, neither of them empty";
    match texts(value).as_deref() {
        Ok([first, second]) if !first.is_empty() && !second.is_empty() => {
            let is_plain = |text: &str| matches!(Secret::classify(text), Secret::Plain(_));
            match is_plain(first)
                && is_plain(second)
                && !(*first).contains('\0')
                && !second.contains('\0')
            {
                true => Ok(SecretText::line_of_two(first, second)),
                false => Err("both must be passwords in plain text".into()),
            }
        }
        _ => Err(remedy.into()),
    }
}

/// The line, noted as one of a secret that does not stand in the file.
fn of_source(line: WrittenLine, text: &str) -> WrittenLine {
    WrittenLine {
        is_sourced: text.starts_with('\0'),
        ..line
    }
}

/// How a section's tables are headed.
fn heading(section: &str) -> String {
    match section {
        MAIN | VAULT => format!("[{section}]"),
        "peers" => "[peers.ID]".into(),
        section => format!("[{section}.NAME]"),
    }
}

/// What to write in TOML instead of a name that only ini files have.
fn other_name(scope: Scope, name: &str) -> Option<&'static str> {
    match (scope, name) {
        (Scope::Database, "user") => Some("server_user"),
        (Scope::Database, "password") => Some("server_password"),
        (Scope::Database, "options") => Some("parameters = { NAME = \"VALUE\" }"),
        (Scope::Database, "reserve_pool") => Some("reserve_pool_size"),
        _ => None,
    }
}

/// A path that counts from the folder of a file.
fn beside(file: &str, path: &str) -> String {
    match file.rsplit_once('/') {
        Some((folder, _)) if !path.starts_with('/') => format!("{folder}/{path}"),
        _ => path.into(),
    }
}

/// A host, and the port behind it. An IPv6 address with a port stands in brackets.
pub(super) fn split_port(text: &str) -> (&str, Option<&str>) {
    if text.starts_with(['/', '@']) {
        return (text, None);
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host, Some(port)),
        Some((host, port)) if host.ends_with(']') => (host.trim_matches(['[', ']']), Some(port)),
        _ => (text.trim_matches(['[', ']']), None),
    }
}
