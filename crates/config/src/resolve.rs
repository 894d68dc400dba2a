//! The second stage: from written settings to a configuration.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::access::TLS_TWICE;
use super::environment;
use super::excerpt::without_secrets;
use super::host::{Host, HostPort};
use super::in_force::Given;
use super::ini;
use super::near::{distance, nearest};
use super::setting::{Assign, Range};
use super::sharding::WrittenMaps;
use super::source::{SecretSource, SecretText};
use super::surroundings::Surroundings;
use super::table::{self, Globals};
use super::toml_file;
use super::url;
use super::userlist::MAX_USER;
use super::value::{AuthType, Kind, ReadRouting, SessionAttrs, read_number, read_seconds};
use super::written::{NO_TEXT, NOT_UTF8, Path, WrittenLine};
use super::{
    Authority, Beyond, Config, Database, Excerpt, HostEntry, Mistake, PeerProcess, Place, Reading,
    Scope, Setting, User, Warning, access, doubts, is_console,
};

/// The greatest length of a database name in bytes, with its terminating zero.
const MAX_DATABASE: usize = 64;

/// Reads a file, in the syntax that its name says, and the environment; or the environment alone.
pub(super) fn read(file: Option<(&str, &str)>, surroundings: &mut dyn Surroundings) -> Reading {
    let mut mistakes = Vec::new();
    let mut counted = Counted {
        files: usize::from(file.is_some()),
        surroundings,
    };
    let mut lines = match file {
        Some((path, text)) if toml_file::is_toml(path) => {
            toml_file::read(path, text, &mut counted, &mut mistakes)
        }
        Some((path, text)) => {
            let read_file = &mut |path: &str| counted.file(path);
            ini::read(path, text, read_file, &mut mistakes)
        }
        None => environment::databases(&mut counted, &mut mistakes),
    };
    let of_environment = environment::settings(&mut counted, file.is_some(), &mut mistakes);
    lines.extend(of_environment);
    let lines = read_secrets(lines, &mut counted, &mut mistakes);
    let path = file.map_or(environment::OPTION, |(path, _)| path);
    let mut reading = resolve(path, &lines, mistakes, &mut |path| counted.file(path));
    reading.files = counted.files;
    if file.is_none() {
        // The next reload has no file to read either.
        reading.config.globals.conffile = None;
    }
    reading
}

/// Reads the secrets whose keys name a file.
fn read_secrets(
    lines: Vec<WrittenLine>,
    surroundings: &mut dyn Surroundings,
    mistakes: &mut Vec<Mistake>,
) -> Vec<WrittenLine> {
    let mut read = Vec::with_capacity(lines.len());
    for line in lines {
        let fetched = |key: &String| table::find_fetched(line.scope()?, key);
        if let Some((setting, is_command)) = line.key.as_ref().and_then(fetched) {
            match SecretSource::of_words(is_command, &line.text) {
                Ok(source) => read.push(with_source(setting, &source, "", line)),
                Err(remedy) => mistakes.push(Mistake::new(Some(&line.place), line.title(), remedy)),
            }
            continue;
        }
        let in_file = |key: &String| table::find_in_file(line.scope()?, key);
        let Some(setting) = line.key.as_ref().and_then(in_file) else {
            read.push(line);
            continue;
        };
        match surroundings
            .secret(&line.text)
            .and_then(|text| secret_of(&text))
        {
            Ok(text) if setting.takes_sources() => {
                let source = SecretSource::File(line.text.clone());
                read.push(with_source(setting, &source, &text, line));
            }
            Ok(text) => read.push(WrittenLine {
                key: Some(setting.name.into()),
                text,
                among: None,
                ..line
            }),
            Err(why) => {
                let text = format!("{}: could not read \"{}\": {why}", line.title(), line.text);
                let remedy = "name a file that has the secret, and that Howdah may read";
                mistakes.push(Mistake::new(Some(&line.place), text, remedy));
            }
        }
    }
    read
}

/// A secret and its source, in place of the line that names the source.
fn with_source(
    setting: &Setting,
    source: &SecretSource,
    text: &str,
    line: WrittenLine,
) -> WrittenLine {
    WrittenLine {
        key: Some(setting.name.into()),
        text: SecretText::line_of(source, text),
        among: None,
        is_sourced: true,
        ..line
    }
}

/// Counts the files that are read.
struct Counted<'a> {
    files: usize,
    surroundings: &'a mut dyn Surroundings,
}

impl Surroundings for Counted<'_> {
    fn file(&mut self, path: &str) -> Result<String, String> {
        let text = self.surroundings.file(path);
        self.files += usize::from(text.is_ok());
        text
    }

    fn secret(&mut self, path: &str) -> Result<String, String> {
        let text = self.surroundings.secret(path);
        self.files += usize::from(text.is_ok());
        text
    }

    fn files(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        self.surroundings.files(pattern)
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        self.surroundings.variable(name)
    }

    fn variables(&mut self, beginning: &str) -> Vec<(String, String)> {
        self.surroundings.variables(beginning)
    }
}

/// Finds the meaning of lines, whose reader has found these mistakes.
pub(super) fn resolve(
    path: &str,
    lines: &[WrittenLine],
    mistakes: Vec<Mistake>,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Reading {
    let mut resolver = ConfigReader {
        path: path.into(),
        main: if toml_file::is_toml(path) {
            toml_file::MAIN
        } else {
            Scope::Global.section()
        },
        config: Config::default(),
        written: HashMap::new(),
        entries: HashMap::new(),
        maps: WrittenMaps::new(),
        refused: HashSet::new(),
        mistakes,
        warnings: Vec::new(),
        beyond_pgbouncer: Vec::new(),
    };
    resolver.config.globals.conffile = Some(path.into());
    for line in lines {
        match &line.key {
            Some(key) => resolver.setting(line, key),
            None => resolver.begin(line),
        }
    }
    resolver.finish(read_file)
}

/// SET: assigns one global setting, with the checks of a load.
pub(super) fn set(globals: &mut Globals, key: &str, value: &str) -> Result<(), String> {
    let setting = table::find(Scope::Global, key)
        .ok_or_else(|| format!("unknown setting {key}{}", did_you_mean(Scope::Global, key)))?;
    assign(globals, setting, value)
}

/// Assigns a global setting.
///
/// # Errors
/// How to write the value instead.
fn assign(globals: &mut Globals, setting: &Setting, value: &str) -> Result<(), String> {
    let field = setting.global.filter(|_| setting.can_be(value));
    if field.is_some_and(|field| (field.assign)(globals, value)) {
        Ok(())
    } else {
        Err(must_be(setting, value))
    }
}

pub(super) struct ConfigReader {
    pub(super) path: String,
    /// The name of the section of global settings.
    pub(super) main: &'static str,
    pub(super) config: Config,
    /// The global settings that were written, each with its last value and place.
    pub(super) written: HashMap<&'static str, (String, Place)>,
    /// What was read of each entry.
    pub(super) entries: HashMap<Path, WrittenEntry>,
    /// The maps of sharded databases.
    pub(super) maps: WrittenMaps,
    /// The sections and entries that can't be made. Their settings are skipped.
    refused: HashSet<Path>,
    pub(super) mistakes: Vec<Mistake>,
    warnings: Vec<Warning>,
    beyond_pgbouncer: Vec<Beyond>,
}

/// What was read of an entry.
pub(super) struct WrittenEntry {
    pub(super) place: Place,
    /// The settings that were written, by their fields.
    pub(super) given: Given,
    /// One of the settings is a mistake.
    pub(super) is_faulty: bool,
}

/// An entry of the configuration.
enum Entry<'a> {
    Database(&'a mut Arc<Database>),
    User(&'a mut Arc<User>),
    Peer(&'a mut Arc<PeerProcess>),
    Host(&'a mut Arc<HostEntry>),
    Member(&'a mut Arc<User>),
}

impl Entry<'_> {
    /// Assigns a setting; false if the entry has no such setting or the value is not of its kind.
    fn assign(self, setting: &Setting, value: &str) -> bool {
        match self {
            Entry::Database(entry) => assign_in(setting.database, entry, value),
            Entry::User(entry) => assign_in(setting.user, entry, value),
            Entry::Peer(entry) => assign_in(setting.peer, entry, value),
            Entry::Host(entry) => assign_in(setting.host, entry, value),
            Entry::Member(entry) => assign_in(setting.member, entry, value),
        }
    }
}

impl ConfigReader {
    /// A section or an entry begins. Each begins with the defaults, as in PgBouncer.
    fn begin(&mut self, line: &WrittenLine) {
        match (&*line.path, line.scope()) {
            ([_], Some(_)) => self.begin_globals(&line.place),
            ([.., name], Some(scope)) => self.begin_entry(scope, name, line),
            ([section], None) if Scope::of_entries(section).is_some() => {}
            _ if line.map_part().is_some() => {}
            (path, _) => {
                let section = path.join(".");
                let text = format!("invalid section \"{section}\" in configuration");
                let main = self.main;
                let remedy =
                    format!("there are [{main}], [databases], [users], [peers] and [hosts]");
                self.mistakes
                    .push(Mistake::new(Some(&line.place), text, remedy));
                self.refused.insert(line.path.clone());
            }
        }
    }

    fn begin_globals(&mut self, place: &Place) {
        let conffile = self.config.globals.conffile.take();
        self.config.globals = Globals {
            conffile,
            ..Globals::default()
        };
        if !self.written.is_empty() {
            self.written.clear();
            self.warn(format!(
                "a second [pgbouncer] section ({place}) puts everything set in the first back to \
                 its default"
            ));
        }
    }

    fn begin_entry(&mut self, scope: Scope, name: &str, line: &WrittenLine) {
        let (id, at) = (entry_path(line), &line.place);
        self.refused.remove(&id);
        let wrong = match (may_be_made(scope, name), &line.unreadable) {
            (Err(why), _) => Some((why, Excerpt::of_key(name))),
            (_, wrong) => wrong.clone(),
        };
        if line.is_left_out {
            self.config.fallback = None;
            self.entries.remove(&id);
            let (title, why) = (line.title(), wrong.map_or(String::new(), |(why, _)| why));
            return self.warn(format!(
                "{title} ({at}) can't be read and is left out: {why}"
            ));
        }
        let begun = WrittenEntry {
            place: at.clone(),
            given: Given::new(),
            is_faulty: false,
        };
        if let Some(first) = self.entries.insert(id.clone(), begun) {
            let first = first.place;
            self.warn(format!(
                "\"{name}\" is defined twice ({first} and {at}): the last counts"
            ));
        }
        if let Some((why, excerpt)) = wrong {
            let mistake = Mistake::new(Some(at), line.title(), why);
            self.mistakes.push(mistake.showing(excerpt));
            self.refused.insert(id);
            return;
        }
        match self.entry(&id) {
            Some(Entry::Database(entry)) => *entry = database(name),
            Some(Entry::User(entry)) => *entry = user(name),
            Some(Entry::Peer(entry)) => *entry = Arc::default(),
            Some(Entry::Host(entry)) => *entry = Arc::default(),
            // A member's file has no second beginning.
            Some(Entry::Member(_)) | None => {}
        }
    }

    /// The entry at a path. Makes an entry that is not there.
    fn entry(&mut self, path: &Path) -> Option<Entry<'_>> {
        let (section, name) = match &**path {
            [section, name] => (section, name),
            [section, database, _, name] => {
                let database = [section.clone(), database.clone()].into();
                let Some(Entry::Database(database)) = self.entry(&database) else {
                    return None;
                };
                let users = &mut Arc::make_mut(database).users;
                let entry = users.entry(name.clone());
                return Some(Entry::Member(entry.or_insert_with(|| user(name))));
            }
            _ => return None,
        };
        let config = &mut self.config;
        Some(match Scope::of_entries(section)? {
            Scope::Database if name == "*" => {
                Entry::Database(config.fallback.get_or_insert_with(|| database(name)))
            }
            Scope::Database => {
                let entry = config.databases.entry(name.clone());
                Entry::Database(entry.or_insert_with(|| database(name)))
            }
            Scope::User => {
                let entry = config.users.entry(name.clone());
                Entry::User(entry.or_insert_with(|| user(name)))
            }
            Scope::Host => Entry::Host(config.hosts.entry(name.clone()).or_default()),
            _ => Entry::Peer(config.peers.entry(peer_id(name)?).or_default()),
        })
    }

    /// Whether the path or a part of it can't be made.
    fn is_refused(&self, path: &Path) -> bool {
        (1..=path.len()).any(|parts| self.refused.contains(&path[..parts]))
    }

    fn setting(&mut self, line: &WrittenLine, key: &str) {
        if line.map_part().is_some() {
            return self.map_line(line);
        }
        let id = entry_path(line);
        if id.len() > 1 && !self.entries.contains_key(&id) && !self.is_refused(&id) {
            self.begin(&WrittenLine::head(line.path.clone(), line.place.clone()));
        }
        if self.is_refused(&id) {
            return;
        }
        let scope = line.scope();
        let setting = table::find(scope.unwrap_or(Scope::Global), key);
        let done = if (key.to_owned() + &line.text).contains(NO_TEXT) {
            Err(NOT_UTF8.into())
        } else if line.has_zero_byte(setting) {
            Err("there is a zero byte in it".into())
        } else {
            match (scope, setting) {
                (None, _) if line.path.is_empty() => Err(format!(
                    "it stands before any section: begin with [{}]",
                    self.main
                )),
                (None, _) => {
                    Err("it stands outside of an entry: begin with the entry's name".into())
                }
                (Some(Scope::Global), Some(setting)) => self.global_setting(line, setting),
                (Some(scope), Some(setting)) => self.entry_setting(line, scope, setting),
                (Some(scope), None) => {
                    let near = did_you_mean(scope, key);
                    Err(format!("there is no such setting{near}"))
                }
            }
        };
        let done = done.and_then(|()| match (scope, setting) {
            (Some(Scope::Database), Some(setting)) if setting.name == "url" => self.url(line),
            _ => Ok(()),
        });
        if let Err(remedy) = done {
            let (text, excerpt) = line.mistaken(setting);
            let mistake = Mistake::new(Some(&line.place), text, remedy);
            self.mistakes.push(mistake.showing(excerpt));
            if let Some(begun) = self.entries.get_mut(&id) {
                begun.is_faulty = true;
            }
        }
    }

    /// The settings that a database's URL has.
    fn url(&mut self, line: &WrittenLine) -> Result<(), String> {
        for (key, text) in url::parse(&line.text)? {
            let key = match key.as_str() {
                "user" => "server_user",
                "password" => "server_password",
                key => key,
            };
            let field = table::find(Scope::Database, key).map(|setting| setting.field);
            let begun = self.entries.get(&entry_path(line));
            let earlier = begun
                .zip(field)
                .and_then(|(begun, field)| begun.given.get(field));
            if earlier.is_some() && !line.is_native {
                return Err(format!(
                    "must not have {key}, which is set beside it: leave one of them out"
                ));
            }
            let part = WrittenLine {
                key: Some(key.into()),
                text,
                among: None,
                is_native: true,
                is_hidden: true,
                ..line.clone()
            };
            self.setting(&part, key);
        }
        Ok(())
    }

    fn global_setting(&mut self, line: &WrittenLine, setting: &Setting) -> Result<(), String> {
        let (name, value, place) = (setting.name, &line.text, &line.place);
        let doubt = doubts::of_value(setting, value);
        assign(&mut self.config.globals, setting, value).map_err(|remedy| match doubt {
            Some(doubt) => format!("{remedy}; {doubt}"),
            None => remedy,
        })?;
        if let Some(doubt) = doubt {
            let excerpt = Excerpt::of_value(name, value);
            self.warn_at(place, excerpt, format!("{name} ({place}): {doubt}"));
        }
        self.note_beyond(Scope::Global, setting, line);
        let written = (value.clone(), place.clone());
        let earlier = self.written.insert(name, written);
        // A variable goes before a file.
        if let Some((_, first)) = earlier.filter(|_| place.line > 0) {
            self.warn(format!(
                "{name} is set twice ({first} and {place}): the last counts"
            ));
        }
        Ok(())
    }

    fn entry_setting(
        &mut self,
        line: &WrittenLine,
        scope: Scope,
        setting: &Setting,
    ) -> Result<(), String> {
        self.note_beyond(scope, setting, line);
        let id = entry_path(line);
        let value = match setting.kind {
            _ if line.is_native => &line.text,
            Kind::Number => setting.in_entry_of_ini(decimal(&line.text)),
            _ => setting.in_entry_of_ini(&line.text),
        };
        let warning = |read: &str| format!("{} ({}): {read}", line.title(), line.place);
        if line.is_oddly_quoted() {
            let quotes = "its value is read without the double quotes: write single ones";
            self.warn(warning(quotes));
        }
        let given = (setting.shown(&line.text), line.place.clone());
        let begun = self.entries.get_mut(&id);
        let earlier = begun.and_then(|begun| begun.given.insert(setting.field, given));
        if earlier.is_some() {
            self.warn(warning("set twice, the last value counts"));
        }
        if self.assign(&id, setting, value) {
            if let Some(SecretSource::Command(_)) = SecretText::source_in(value) {
                let file = line.place.file.clone();
                self.config.command_files.insert(file);
            }
            if let Some(doubt) = doubts::of_pair(setting, value) {
                self.warn(warning(doubt));
            }
            return Ok(());
        }
        // PgBouncer reads the digits, too, and takes no notice of the rest.
        let is_number = |rest: &str| match setting.kind {
            Kind::Number | Kind::Seconds => true,
            Kind::Ports => !rest.contains(|c: char| c.is_ascii_digit()),
            _ => false,
        };
        let digits = leading_digits(value).filter(|_| line.among.is_some() && !line.is_native);
        let digits = digits.filter(|digits| is_number(&value[digits.len()..]));
        let taken = |digits: &&str| self.assign(&id, setting, setting.in_entry_of_ini(digits));
        match digits.filter(taken) {
            Some(_) if line.has_password() => {
                self.warn(warning("only the digits of its value are read"));
            }
            Some(digits) => {
                let value = without_secrets(value);
                self.warn(warning(&format!("{value} is read as {digits}")));
            }
            None => return Err(must_be(setting, &line.text)),
        }
        Ok(())
    }

    /// Assigns a setting of an entry; false if it does not take the value.
    fn assign(&mut self, id: &Path, setting: &Setting, value: &str) -> bool {
        setting.can_be(value)
            && self
                .entry(id)
                .is_some_and(|entry| entry.assign(setting, value))
    }

    /// Notes a setting that PgBouncer does not know here.
    fn note_beyond(&mut self, scope: Scope, setting: &Setting, line: &WrittenLine) {
        if !setting.is_known_to_pgbouncer(scope) && !line.is_native {
            let name = line.path.get(1);
            let entry = name.map_or(String::new(), |name| format!(" {name}"));
            self.beyond_pgbouncer.push(Beyond {
                setting: setting.name,
                section: format!("[{}]{entry}", scope.section()),
                place: line.place.clone(),
            });
        }
    }

    fn finish(mut self, read_file: &mut dyn FnMut(&str) -> Result<String, String>) -> Reading {
        self.judge_peers();
        self.judge_certificates();
        self.judge_passwords();
        self.judge_authorities();
        self.judge_members();
        self.judge_lookups();
        self.judge_metrics();
        self.judge_shards();
        self.place_hosts();
        self.judge_tokens();
        self.judge_vault();
        self.judge_placed();
        self.judge_reads();
        self.judge_ports();
        self.judge_balancers();
        if !matches!(self.config.globals.auth_type, AuthType::Any | AuthType::Pam) {
            self.read_users(read_file);
        }
        self.take_passwords();
        self.find_authority(read_file);
        let mut findings = self.read_rules(read_file);
        self.mistakes.append(&mut findings.unreadable);
        self.warn_of_rules(findings);
        let written = self.written.into_iter();
        self.config.written = written.map(|(name, (_, place))| (name, place)).collect();
        let entries = self.entries.into_iter();
        self.config.given = Arc::new(entries.map(|(path, begun)| (path, begun.given)).collect());
        let mut databases = self.config.databases.values();
        self.config.has_shards = databases.any(|database| database.sharding.is_some());
        Mistake::sort(&mut self.mistakes, &self.path);
        Reading {
            config: self.config,
            mistakes: self.mistakes,
            warnings: self.warnings,
            beyond_pgbouncer: self.beyond_pgbouncer,
            files: 0,
        }
    }

    /// The place of a global setting; `None` if it was not written.
    pub(super) fn place(&self, setting: &str) -> Option<&Place> {
        self.written.get(setting).map(|(_, place)| place)
    }

    /// The place of a database's entry, for messages.
    pub(super) fn place_of(&self, database: &str) -> String {
        let path = [Scope::Database.section().to_owned(), database.to_owned()];
        let place = self.entries.get(&path[..]);
        place.map_or_else(String::new, |begun| format!(" ({})", begun.place))
    }

    /// Refuses what a database's entry says as a whole.
    pub(super) fn refuse_entry(&mut self, database: &str, what: String, remedy: &str) {
        let path = [Scope::Database.section().to_owned(), database.to_owned()];
        let place = self.entries.get(&path[..]).map(|begun| begun.place.clone());
        let text = format!("database \"{database}\": {what}");
        let mistake = Mistake::new(place.as_ref(), text, remedy);
        self.mistakes
            .push(mistake.showing(Excerpt::of_key(database)));
    }

    /// Finds the hosts of entries. A database without `host` has the directory of Howdah's own unix
    /// socket.
    fn place_hosts(&mut self) {
        let directory = self.config.globals.unix_socket_dir.clone();
        let own = Some(Host::Unix(directory.clone())).filter(|_| !directory.is_empty());
        let (mut uneven, mut one_port) = (Vec::new(), Vec::new());
        let databases = self.config.databases.values_mut();
        for database in databases.chain(self.config.fallback.as_mut()) {
            let database = Arc::make_mut(database);
            let hosts = match &database.host {
                _ if database.shards.is_some() => continue,
                Some(hosts) => Host::list(hosts),
                None => own.iter().cloned().collect(),
            };
            let written = hosts.len();
            match database.port.of(hosts) {
                Ok(hosts) => database.hosts = hosts,
                // As in PgBouncer, which reads the digits alone.
                Err(_) if written == 1 && !database.is_placed() => {
                    let first = database.port.first();
                    let host = Host::list(database.host.as_deref().unwrap_or_default());
                    database.hosts = host
                        .into_iter()
                        .map(|host| HostPort { host, port: first })
                        .collect();
                    one_port.push((database.name.clone(), first));
                }
                Err(ports) => uneven.push((database.name.clone(), written, ports)),
            }
            // Who has reads on standbys wants everything else at the primary.
            let routing = database
                .read_routing
                .unwrap_or(self.config.globals.read_routing);
            let path = [Scope::Database.section().to_owned(), database.name.clone()];
            let begun = self.entries.get(&path[..]);
            let is_given = begun.is_some_and(|of| of.given.contains_key("target_session_attrs"));
            if routing != ReadRouting::Off && database.hosts.len() > 1 && !is_given {
                database.target_session_attrs = SessionAttrs::Primary;
            }
        }
        for (name, port) in one_port {
            let place = self.place_of(&name);
            self.warn(format!(
                "database \"{name}\"{place}: port is read as {port}, because there is one host"
            ));
        }
        for (name, hosts, ports) in uneven {
            let remedy = "write one port for all hosts, or one for each";
            self.refuse_entry(&name, format!("{ports} ports for {hosts} hosts"), remedy);
        }
        for peer in self.config.peers.values_mut().map(Arc::make_mut) {
            peer.hosts = Host::list(peer.host.as_deref().unwrap_or_default());
        }
    }

    /// Sets the authority that checks passwords, if `auth_type` names one.
    fn find_authority(&mut self, read_file: &mut dyn FnMut(&str) -> Result<String, String>) {
        let globals = &self.config.globals;
        let by_tokens = matches!(globals.auth_type, AuthType::Oauth | AuthType::Jwt);
        let mut findings = access::Findings::default();
        let maps = match by_tokens {
            true => access::maps(globals, read_file, &mut findings),
            false => Default::default(),
        };
        self.mistakes.append(&mut findings.unreadable);
        self.warn_of_rules(findings);
        match Authority::of(&self.config.globals, &maps) {
            Ok(authority) => {
                if let Some(Authority::Ldap(options)) = &authority
                    && options.wants_tls_twice()
                {
                    self.warn_broken(format!("auth_ldap_options: {TLS_TWICE}"));
                }
                self.config.authority = authority.map(Arc::new);
            }
            Err((why, remedy)) => {
                let option = why.split(':').next().unwrap_or_default();
                let place = self.place(option).or_else(|| self.place("auth_type"));
                self.mistakes.push(Mistake::new(place, why, remedy));
            }
        }
    }

    /// Reads the rules of `auth_type = hba`, and warns of odd ones.
    fn read_rules(
        &mut self,
        read_file: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> access::Findings {
        let mut findings = access::Findings::default();
        if self.config.globals.auth_type == AuthType::Hba {
            let hba = access::load(&self.config.globals, read_file, &mut findings);
            self.config.hba = Some(Arc::new(hba));
        }
        findings
    }

    fn warn_of_rules(&mut self, findings: access::Findings) {
        for (mistakes, broken) in [(findings.doubtful, true), (findings.idle, false)] {
            let mistakes = mistakes.iter();
            let warnings = mistakes.map(|mistake| Warning::new(mistake.to_string(), broken));
            self.warnings.extend(warnings);
        }
    }

    pub(super) fn warn(&mut self, text: String) {
        self.warnings.push(Warning::new(text, false));
    }

    pub(super) fn warn_at(&mut self, place: &Place, excerpt: Excerpt, text: String) {
        self.warnings.push(Warning {
            shown_line: excerpt.show(place.line),
            ..Warning::new(text, false)
        });
    }

    pub(super) fn warn_broken(&mut self, text: String) {
        self.warnings.push(Warning::new(text, true));
    }
}

/// The digits at the start of a text with something else behind them.
fn leading_digits(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    Some(&text[..end]).filter(|digits| !digits.is_empty())
}

/// `; did you mean X?` if a known name is similar.
fn did_you_mean(scope: Scope, name: &str) -> String {
    let near = nearest(name, table::in_scope(scope).map(|setting| setting.name));
    near.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

/// `; did you mean X?` if the setting takes one of a few words, and one of them is similar.
fn did_you_mean_word(kind: Kind, value: &str) -> String {
    let Kind::Word(words) = kind else {
        return String::new();
    };
    let value = value.to_ascii_lowercase();
    let near = words.iter().filter(|word| {
        let begins = value.len() > 2 && word.starts_with(&value) || value.starts_with(**word);
        begins || distance(word, &value) <= 1.max(value.len() / 3)
    });
    let near = near.min_by_key(|word| distance(word, &value));
    near.map_or_else(String::new, |word| format!("; did you mean {word}?"))
}

/// What to write instead of a value that a setting does not take.
fn must_be(setting: &Setting, value: &str) -> String {
    if let Some(Range::Only(_, advice)) = setting.range {
        return advice.into();
    }
    let is_negative = read_number(value).is_some_and(|number| number < 0);
    let counts = setting.kind == Kind::Number && setting.global.is_some();
    let least = if is_negative && counts && setting.range.is_none() {
        ", 0 or more"
    } else {
        ""
    };
    let near = did_you_mean_word(setting.kind, value);
    format!("must be {}{least}{near}", setting.values())
}

/// Assigns a setting of an entry; false if the text is not of the setting's kind.
fn assign_in<T: Clone>(assign: Option<Assign<T>>, entry: &mut Arc<T>, text: &str) -> bool {
    assign.is_some_and(|assign| assign(Arc::make_mut(entry), text))
}

/// What an entry is kept under: its path, for a peer with the number in its usual form.
fn entry_path(line: &WrittenLine) -> Path {
    let id = match (line.scope(), &*line.path) {
        (Some(Scope::Peer), [_, name]) => peer_id(name),
        _ => None,
    };
    match id {
        Some(id) => [line.path[0].clone(), id.to_string()].into(),
        None => line.path.clone(),
    }
}

/// A database that has only its name.
fn database(name: &str) -> Arc<Database> {
    Arc::new(Database {
        name: name.into(),
        ..Database::default()
    })
}

/// A user who has only a name.
pub(super) fn user(name: &str) -> Arc<User> {
    Arc::new(User {
        name: name.into(),
        ..User::default()
    })
}

/// A number without the zeros in front: numbers of entries are decimal, as in PgBouncer.
fn decimal(text: &str) -> &str {
    let number = text.trim_start_matches('0');
    let is_number = number.starts_with(|c: char| c.is_ascii_digit());
    if is_number { number } else { text }
}

/// The text of a value in an entry of an ini file, as PgBouncer reads it: of a number the digits alone, and
/// nothing for "as in the next scope".
pub(super) fn in_entry<'a>(setting: &Setting, text: &'a str) -> &'a str {
    let value = match setting.kind {
        Kind::Number => setting.in_entry_of_ini(decimal(text)),
        _ => setting.in_entry_of_ini(text),
    };
    let is_read = match setting.kind {
        Kind::Number => value.trim().parse::<i64>().is_ok(),
        Kind::Seconds => read_seconds(value).is_some(),
        Kind::Ports => value
            .split(',')
            .all(|port| port.trim().parse::<u16>().is_ok()),
        _ => true,
    };
    let digits = leading_digits(value).filter(|_| !is_read);
    digits.map_or(value, |digits| setting.in_entry_of_ini(digits))
}

/// The secret in a file: its text without a last end of line.
///
/// # Errors
/// Why there is none.
pub(super) fn secret_of(text: &str) -> Result<String, String> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    match line.strip_suffix('\r').unwrap_or(line) {
        "" => Err("it is empty".into()),
        secret if secret.contains('\0') => Err("there is a zero byte in it".into()),
        secret => Ok(secret.into()),
    }
}

/// Whether there may be an entry with this name.
///
/// # Errors
/// Why not.
fn may_be_made(scope: Scope, name: &str) -> Result<(), String> {
    let most = match scope {
        Scope::Database if is_console(name) => {
            return Err(format!(
                "database name \"{name}\" is reserved for the console"
            ));
        }
        Scope::Peer if peer_id(name).is_none() => {
            return Err("a peer's id is a number from 1 to 65535".into());
        }
        Scope::Database => MAX_DATABASE - 1,
        Scope::User | Scope::Member => MAX_USER - 1,
        _ => usize::MAX,
    };
    if name.len() > most {
        let noun = scope.noun();
        return Err(format!("a {noun} name has at most {most} bytes"));
    }
    Ok(())
}

/// The id that is a peer's name.
fn peer_id(name: &str) -> Option<u16> {
    let id = u16::try_from(read_number(decimal(name))?).ok()?;
    (id > 0).then_some(id)
}
