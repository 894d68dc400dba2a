//! The second stage: from written settings to a configuration.

use std::collections::HashMap;
use std::sync::Arc;

use super::access::TLS_TWICE;
use super::database::Host;
use super::excerpt::without_secrets;
use super::ini::{self, NOT_UTF8};
use super::near::{distance, nearest};
use super::setting::{Assign, Range};
use super::table::{self, Globals};
use super::userlist::{self, MAX_USER};
use super::value::{AuthType, Kind, SslMode, read_number};
use super::written::{Path, WrittenLine};
use super::{
    Authority, Beyond, CONSOLE, Config, Database, Excerpt, Mistake, Place, Reading, Scope, Setting,
    User, Warning, access, doubts, is_console,
};
use howdah_auth::Secret;

/// The replacement for bytes that are not UTF-8. In comments such bytes do no harm.
pub(super) const NO_TEXT: char = char::REPLACEMENT_CHARACTER;

/// The greatest length of a database name in bytes, with its terminating zero.
const MAX_DATABASE: usize = 64;

pub(super) fn read(
    path: &str,
    text: &str,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Reading {
    let mut files = 1;
    let read_file = &mut |path: &str| {
        let text = read_file(path);
        files += usize::from(text.is_ok());
        text
    };
    let mut mistakes = Vec::new();
    let mut lines = ini::lines(path, text, read_file, &mut mistakes);
    let is_main = |line: &WrittenLine| *line.path == [Scope::Global.section()];
    let misses_main = !lines.iter().any(is_main);
    if let Some(format) = doubts::other_format(text).filter(|_| misses_main) {
        // One mistake says more than one for each line.
        lines.clear();
        let text = format!("config file {path} is in {format} format");
        mistakes = vec![Mistake::new(None, text, doubts::OTHER_FORMAT)];
    } else if misses_main {
        // Important for an empty or truncated file: a reload would remove all databases.
        let text = format!("main section missing from config file {path}");
        let remedy = "write [pgbouncer], if only with its defaults";
        mistakes.push(Mistake::new(None, text, remedy));
    }
    let mut resolver = Resolver {
        path: path.into(),
        config: Config::default(),
        written: HashMap::new(),
        entries: HashMap::new(),
        refused: None,
        mistakes,
        warnings: Vec::new(),
        beyond_pgbouncer: Vec::new(),
    };
    resolver.config.globals.conffile = Some(path.into());
    for line in &lines {
        match &line.key {
            Some(key) => resolver.setting(line, key),
            None => resolver.begin(line),
        }
    }
    let mut reading = resolver.finish(read_file);
    reading.files = files;
    reading
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
    if setting.name == "auth_dbname" && value == CONSOLE {
        return Err(RESERVED_AUTH_DBNAME.into());
    }
    let field = setting.global.filter(|_| setting.can_be(value));
    if field.is_some_and(|field| (field.assign)(globals, value)) {
        Ok(())
    } else {
        Err(must_be(setting, value))
    }
}

const RESERVED_AUTH_DBNAME: &str =
    "cannot use the reserved \"pgbouncer\" database as an auth_dbname";

/// What is odd about a user of the auth_file, and what helps.
type Doubt = (&'static str, &'static str);

struct Resolver {
    path: String,
    config: Config,
    /// The global settings that were written, each with its last value and place.
    written: HashMap<&'static str, (String, Place)>,
    /// The place of each entry.
    entries: HashMap<Path, Place>,
    /// An entry that can't be made. Its settings are skipped.
    refused: Option<Path>,
    mistakes: Vec<Mistake>,
    warnings: Vec<Warning>,
    beyond_pgbouncer: Vec<Beyond>,
}

impl Resolver {
    /// A section or an entry begins. Each begins with the defaults, as in PgBouncer.
    fn begin(&mut self, line: &WrittenLine) {
        match (&*line.path, line.scope()) {
            ([_], Some(_)) => self.begin_globals(&line.place),
            ([_, name], Some(scope)) => self.begin_entry(scope, name, line),
            ([section], None) if Scope::of_entries(section).is_some() => {}
            (path, _) => {
                let section = path.join(".");
                let text = format!("invalid section \"{section}\" in configuration");
                let remedy = "there are [pgbouncer], [databases], [users] and [peers]";
                self.mistakes
                    .push(Mistake::new(Some(&line.place), text, remedy));
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
        self.refused = None;
        let place = line.place.clone();
        if let Some(first) = self.entries.insert(line.path.clone(), place) {
            let second = &line.place;
            self.warn(format!(
                "\"{name}\" is defined twice ({first} and {second}): the last counts"
            ));
        }
        let at = &line.place;
        let wrong = match (may_be_made(scope, name), &line.unreadable) {
            (Err(why), _) => (why, Excerpt::of_key(name)),
            // PgBouncer reads this entry when a client needs it, and then refuses the client.
            (_, Some((why, _))) if scope == Scope::Database && name == "*" && why != NOT_UTF8 => {
                let title = line.title();
                return self.warn(format!(
                    "{title} ({at}) can't be read and is left out: {why}"
                ));
            }
            (_, Some(wrong)) => wrong.clone(),
            _ => return self.make_entry(scope, name),
        };
        let mistake = Mistake::new(Some(at), line.title(), wrong.0);
        self.mistakes.push(mistake.showing(wrong.1));
        self.refused = Some(line.path.clone());
    }

    /// Makes an entry that has only its name.
    fn make_entry(&mut self, scope: Scope, name: &str) {
        let config = &mut self.config;
        match scope {
            Scope::Global => {}
            Scope::Database => {
                let entry = Arc::new(Database {
                    name: name.into(),
                    ..Database::default()
                });
                if name == "*" {
                    config.fallback = Some(entry);
                } else {
                    config.databases.insert(name.into(), entry);
                }
            }
            Scope::User => {
                let entry = Arc::new(User {
                    name: name.into(),
                    ..User::default()
                });
                config.users.insert(name.into(), entry);
            }
            Scope::Peer => {
                let id = peer_id(name);
                config.peers.extend(id.map(|id| (id, Arc::default())));
            }
        }
    }

    fn setting(&mut self, line: &WrittenLine, key: &str) {
        let is_outside = line.path.is_empty();
        let Some(scope) = line.scope().or(is_outside.then_some(Scope::Global)) else {
            return; // The section is unknown: its header was the mistake.
        };
        if self.refused.as_ref() == Some(&line.path) {
            return;
        }
        let setting = table::find(scope, key);
        let done = if (key.to_owned() + &line.text).contains(NO_TEXT) {
            Err(NOT_UTF8.into())
        } else if is_outside {
            Err("it stands before any section: begin with [pgbouncer]".into())
        } else if let Some(setting) = setting {
            match scope {
                Scope::Global => self.global_setting(line, setting),
                _ => self.entry_setting(line, scope, setting),
            }
        } else {
            let near = did_you_mean(scope, key);
            Err(format!("there is no such setting{near}"))
        };
        if let Err(remedy) = done {
            let (text, excerpt) = line.mistaken(setting);
            let mistake = Mistake::new(Some(&line.place), text, remedy);
            self.mistakes.push(mistake.showing(excerpt));
        }
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
        if let Some((_, first)) = self.written.insert(name, written) {
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
        let value = &line.text;
        let warning = |read: &str| format!("{} ({}): {read}", line.title(), line.place);
        if line.is_oddly_quoted() {
            let quotes = "its value is read without the double quotes: write single ones";
            self.warn(warning(quotes));
        }
        if self.assign(line, scope, setting, value) {
            if let Some(doubt) = doubts::of_pair(setting.name, value) {
                self.warn(warning(doubt));
            }
            return Ok(());
        }
        // PgBouncer reads the digits, too, and takes no notice of the rest.
        let is_number = matches!(setting.kind, Kind::Number | Kind::Seconds);
        let digits = leading_digits(value).filter(|_| is_number);
        match digits.filter(|digits| self.assign(line, scope, setting, digits)) {
            Some(_) if line.has_password() => {
                self.warn(warning("only the digits of its value are read"));
            }
            Some(digits) => {
                let value = without_secrets(value);
                self.warn(warning(&format!("{value} is read as {digits}")));
            }
            None => return Err(must_be(setting, value)),
        }
        Ok(())
    }

    /// Assigns a setting of an entry; false if it does not take the value.
    fn assign(&mut self, line: &WrittenLine, scope: Scope, setting: &Setting, value: &str) -> bool {
        let config = &mut self.config;
        let name = line.path.last().map_or("", |name| name);
        if !setting.can_be(value) {
            return false;
        }
        match scope {
            Scope::Global => false,
            Scope::Database => {
                let entry = match name {
                    "*" => config.fallback.as_mut(),
                    _ => config.databases.get_mut(name),
                };
                assign_in(setting.database, entry, value)
            }
            Scope::User => assign_in(setting.user, config.users.get_mut(name), value),
            Scope::Peer => {
                let entry = peer_id(name).and_then(|id| config.peers.get_mut(&id));
                assign_in(setting.peer, entry, value)
            }
        }
    }

    /// Notes a setting that PgBouncer does not know here.
    fn note_beyond(&mut self, scope: Scope, setting: &Setting, line: &WrittenLine) {
        if !setting.is_known_to_pgbouncer(scope) {
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
        self.judge_lookups();
        self.judge_metrics();
        self.place_hosts();
        self.judge_ports();
        if !matches!(self.config.globals.auth_type, AuthType::Any | AuthType::Pam) {
            self.read_users(read_file);
        }
        self.find_authority();
        let mut findings = self.read_rules(read_file);
        self.mistakes.append(&mut findings.unreadable);
        self.warn_of_rules(findings);
        let written = self.written.into_iter();
        self.config.written = written.map(|(name, (_, place))| (name, place)).collect();
        Mistake::sort(&mut self.mistakes, &self.path);
        Reading {
            config: self.config,
            mistakes: self.mistakes,
            warnings: self.warnings,
            beyond_pgbouncer: self.beyond_pgbouncer,
            files: 0,
        }
    }

    /// Refuses peers without a host, and warns of `[peers]` without a `peer_id`, which has no
    /// effect.
    fn judge_peers(&mut self) {
        for (path, place) in &self.entries {
            let id = match &**path {
                [section, name] if section == Scope::Peer.section() => peer_id(name),
                _ => None,
            };
            let peer = id.and_then(|id| Some((id, self.config.peers.get(&id)?)));
            let Some((id, _)) = peer.filter(|(_, peer)| peer.host.is_none()) else {
                continue;
            };
            // Another mistake of the entry may be the reason.
            let mut told = self.mistakes.iter().filter_map(|told| told.place.as_ref());
            if !told.any(|told| told == place) {
                self.config.peers.remove(&id);
                let text = format!("peer \"{}\"", path[1]);
                let mistake = Mistake::new(Some(place), text, "a peer needs host=");
                let mistake = mistake.showing(Excerpt::of_key(&path[1]));
                self.mistakes.push(mistake);
            }
        }
        let id = self.config.globals.peer_id;
        let others = self.config.peers.keys().any(|&peer| u32::from(peer) != id);
        if id == 0 && others {
            self.warn(format!(
                "[peers] in {} has no effect: peer_id is 0, set it to our own number",
                self.path
            ));
        }
    }

    /// Refuses databases that require TLS while TLS is off, and `auth_type = cert` while clients
    /// need not show a certificate: no client could log in.
    fn judge_certificates(&mut self) {
        let globals = &self.config.globals;
        let databases = self.config.databases.values().chain(&self.config.fallback);
        for database in databases.filter(|_| globals.client_tls_sslmode == SslMode::Disable) {
            let mode = database.client_tls_sslmode;
            if mode.is_some_and(SslMode::is_required) {
                let name = &database.name;
                let text = format!(
                    "client_tls_sslmode of database {name} wants TLS, which is switched off"
                );
                let remedy =
                    "set client_tls_sslmode = allow in [pgbouncer], with key and certificate";
                self.mistakes.push(Mistake::new(None, text, remedy));
            }
        }
        if globals.auth_type != AuthType::Cert || globals.client_tls_sslmode.is_verified() {
            return;
        }
        let text = "auth_type = cert requires client_tls_sslmode = verify-full";
        let remedy = "set that, and client_tls_ca_file";
        let mistake = Mistake::new(self.place("auth_type"), text, remedy);
        let excerpt = Excerpt::of_value("auth_type", "cert");
        self.mistakes.push(mistake.showing(excerpt));
    }

    /// A password belongs to the forced user. Warns of a password without a forced user: it is
    /// never used.
    fn judge_passwords(&mut self) {
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let idle = databases.filter(|d| d.password.is_some() && d.forced_user.is_none());
        let idle: Vec<_> = idle.map(|database| database.name.clone()).collect();
        for name in idle {
            let place = self.place_of(&name);
            self.warn(format!(
                "password of database \"{name}\"{place} has no effect without user: write user=, or \
                 the users' secrets into auth_file"
            ));
        }
    }

    /// Warns if an unauthenticated client could choose the database of auth_query. auth_query runs before a client
    /// has proved anything, and with a `*` entry any name is a database.
    fn judge_lookups(&mut self) {
        let set = |text: Option<String>| text.is_some_and(|text| !text.is_empty());
        let open = self.config.fallback.as_ref().is_some_and(|fallback| {
            let scopes = self.config.scopes(Some(fallback), None);
            set(scopes.auth_user()) && !set(scopes.auth_dbname())
        });
        if open {
            self.warn(
                "auth_user with a database * and without auth_dbname: whoever connects can, without \
                 a password, have a server opened in a database of any name; set auth_dbname to the \
                 one that auth_query is for"
                    .into(),
            );
        }
    }

    /// Warns if anybody can read the metrics over the network, because there is no token.
    fn judge_metrics(&mut self) {
        let globals = &self.config.globals;
        let address = globals.http_listen_addr.parse::<std::net::IpAddr>();
        let local = address.is_ok_and(|address| address.is_loopback());
        if globals.http_listen_port != 0 && !local && globals.http_token.is_empty() {
            let address = globals.http_listen_addr.clone();
            let page = if globals.http_page {
                ", and the page (http_page) is not served: set http_token"
            } else {
                ""
            };
            let text = format!(
                "http_listen_addr = {address} without http_token: whoever reaches it reads the names \
                 of databases and users in /metrics{page}"
            );
            match self.written.get("http_listen_addr").cloned() {
                Some((value, place)) => {
                    self.warn_at(&place, Excerpt::of_value("http_listen_addr", &value), text);
                }
                None => self.warn(text),
            }
        }
    }

    /// Refuses one port for two purposes, and warns of databases that lead to Howdah itself.
    fn judge_ports(&mut self) {
        let globals = &self.config.globals;
        if doubts::shares_port(globals) {
            let port = globals.http_listen_port;
            let text = format!("http_listen_port = {port} is listen_port, too");
            let place = self.place("http_listen_port");
            let mistake = Mistake::new(place, text, "write another port");
            let excerpt = Excerpt::of_value("http_listen_port", &port.to_string());
            self.mistakes.push(mistake.showing(excerpt));
        }
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let circles = databases.filter(|database| {
            let mut hosts = database.hosts.iter();
            hosts.any(|host| doubts::leads_here(host, database.port, globals))
        });
        let circles: Vec<_> = circles.map(|database| database.name.clone()).collect();
        let port = globals.listen_port;
        for name in circles {
            let place = self.place_of(&name);
            self.warn(format!(
                "database \"{name}\"{place} leads to Howdah itself: port {port} of that host is \
                 listen_port; write PostgreSQL's port"
            ));
        }
    }

    /// The place of a global setting; `None` if it was not written.
    fn place(&self, setting: &str) -> Option<&Place> {
        self.written.get(setting).map(|(_, place)| place)
    }

    /// The place of a database's entry, for messages.
    fn place_of(&self, database: &str) -> String {
        let path = [Scope::Database.section().to_owned(), database.to_owned()];
        let place = self.entries.get(&path[..]);
        place.map_or_else(String::new, |place| format!(" ({place})"))
    }

    /// Finds the hosts of entries. A database without `host` has the directory of Howdah's own unix
    /// socket.
    fn place_hosts(&mut self) {
        let directory = self.config.globals.unix_socket_dir.clone();
        let own = Some(Host::Unix(directory.clone())).filter(|_| !directory.is_empty());
        let databases = self.config.databases.values_mut();
        for database in databases.chain(self.config.fallback.as_mut()) {
            let database = Arc::make_mut(database);
            database.hosts = match &database.host {
                Some(hosts) => Host::list(hosts),
                None => own.iter().cloned().collect(),
            };
        }
        for peer in self.config.peers.values_mut().map(Arc::make_mut) {
            peer.hosts = Host::list(peer.host.as_deref().unwrap_or_default());
        }
    }

    fn read_users(&mut self, read_file: &mut dyn FnMut(&str) -> Result<String, String>) {
        let path = self.config.globals.auth_file.clone();
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return;
        };
        let text = match read_file(&path) {
            Ok(text) => text,
            Err(why) => {
                self.config.auth_file_missing = true;
                return self.warn_broken(format!("could not open auth_file {path}: {why}"));
            }
        };
        let userlist::Users {
            users,
            lines,
            broken,
            skipped,
        } = userlist::parse(&text);
        for line in skipped {
            self.warn(format!(
                "auth file ({path}:{line}): what stands between the user and the password is skipped: \
                 write a blank there"
            ));
        }
        self.config.auth_file_broken = broken.is_some() || text.contains(NO_TEXT);
        if let Some((line, why)) = broken {
            self.warn_broken(format!(
                "broken auth file ({path}:{line}): {why}; nothing from that line on was read"
            ));
        }
        for (number, line) in (1..).zip(text.lines()) {
            if line.contains(NO_TEXT) && !line.starts_with(';') {
                self.warn_broken(format!(
                    "broken auth file ({path}:{number}): bytes that are not UTF-8; a user with \
                     them is left out: write the file in UTF-8"
                ));
            }
        }
        let readable =
            |name: &str, secret: &str| !name.contains(NO_TEXT) && !secret.contains(NO_TEXT);
        let auth = self.config.globals.auth_type;
        let mut doubtful = Vec::new();
        for ((name, secret), line) in users.into_iter().zip(lines) {
            if !readable(&name, &secret) {
                continue;
            }
            let user = self.config.users.entry(name.clone()).or_insert_with(|| {
                Arc::new(User {
                    name,
                    ..User::default()
                })
            });
            let user = Arc::make_mut(user);
            if user.listed {
                let twice = ("stands there twice", "the last line counts");
                doubtful.push((twice, line, user.name.clone()));
            }
            user.listed = true;
            user.secret = (!secret.is_empty()).then(|| Secret::classify(secret));
            let secret = user.secret.as_ref();
            if let Some(doubt) = secret.and_then(|secret| doubts::of_secret(secret, auth)) {
                doubtful.push((doubt, line, user.name.clone()));
            }
        }
        self.warn_of_users(&path, doubtful);
    }

    /// One warning for each kind of doubt, with the first user.
    fn warn_of_users(&mut self, path: &str, mut doubtful: Vec<(Doubt, u32, String)>) {
        while let Some((doubt, line, name)) = doubtful.first().cloned() {
            let all = doubtful.len();
            doubtful.retain(|(other, ..)| *other != doubt);
            let (what, remedy) = doubt;
            let more = match all - doubtful.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more like it"),
            };
            self.warn(format!(
                "auth file ({path}:{line}): user \"{name}\"{more} {what}: {remedy}"
            ));
        }
    }

    /// Sets the authority that checks passwords, if `auth_type` names one.
    fn find_authority(&mut self) {
        match Authority::of(&self.config.globals) {
            Ok(authority) => {
                if let Some(Authority::Ldap(options)) = &authority
                    && options.wants_tls_twice()
                {
                    self.warn_broken(format!("auth_ldap_options: {TLS_TWICE}"));
                }
                self.config.authority = authority.map(Arc::new);
            }
            Err((why, remedy)) => {
                let place = self.place("auth_ldap_options");
                let place = place.or_else(|| self.place("auth_type"));
                let text = format!("auth_ldap_options: {why}");
                self.mistakes.push(Mistake::new(place, text, remedy));
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

    fn warn(&mut self, text: String) {
        self.warnings.push(Warning::new(text, false));
    }

    fn warn_at(&mut self, place: &Place, excerpt: Excerpt, text: String) {
        self.warnings.push(Warning {
            shown_line: excerpt.show(place.line),
            ..Warning::new(text, false)
        });
    }

    fn warn_broken(&mut self, text: String) {
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
    let range = match setting.range {
        Some(Range::Only(_, advice)) => return advice.into(),
        Some(Range::Such(_, range)) => range.into(),
        Some(Range::Numbers(least, most)) => format!(" from {least} to {most}"),
        None if setting.global.is_some() && setting.kind == Kind::Number => {
            let negative = read_number(value).filter(|number| *number < 0);
            negative.map_or("", |_| ", 0 or more").into()
        }
        None => String::new(),
    };
    let near = did_you_mean_word(setting.kind, value);
    format!("must be {}{range}{near}", setting.kind)
}

/// Assigns a setting of an entry; false if the text is not of the setting's kind.
fn assign_in<T: Clone>(assign: Option<Assign<T>>, entry: Option<&mut Arc<T>>, text: &str) -> bool {
    match (assign, entry) {
        (Some(assign), Some(entry)) => assign(Arc::make_mut(entry), text),
        _ => false,
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
        Scope::User => MAX_USER - 1,
        Scope::Global | Scope::Peer => usize::MAX,
    };
    if name.len() > most {
        let noun = scope.noun();
        return Err(format!("a {noun} name has at most {most} bytes"));
    }
    Ok(())
}

fn peer_id(name: &str) -> Option<u16> {
    let id = u16::try_from(read_number(name)?).ok()?;
    (id > 0).then_some(id)
}
