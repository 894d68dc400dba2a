//! The second stage: from written settings to a configuration.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::access::TLS_TWICE;
use super::database::{Database, Host};
use super::ini::{self, Item};
use super::near::{distance, nearest};
use super::peer::PeerProcess;
use super::table::{self, Globals, Scope, Setting, Support};
use super::user::User;
use super::userlist::{self, MAX_USER};
use super::value::{AuthType, Kind, List, SslMode, Value, read_number};
use super::{
    Authority, Beyond, CAUSES, CONSOLE, Config, Excerpt, Mistake, Place, Reading, Warning, access,
    connstr, doubts, excerpt, is_console,
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
    let mut mistakes = Vec::new();
    let mut files = 1;
    let read_file = &mut |path: &str| {
        let text = read_file(path);
        files += usize::from(text.is_ok());
        text
    };
    let mut items = ini::parse(path, text, read_file, &mut mistakes);
    let main = |item: &Item| matches!(item, Item::Section(name, _) if name == "pgbouncer");
    let misses_main = !items.iter().any(main);
    if let Some(format) = doubts::other_format(text).filter(|_| misses_main) {
        // One mistake says more than one for each line.
        items.clear();
        mistakes = vec![Mistake {
            place: None,
            text: format!("config file {path} is in {format} format"),
            remedy: doubts::OTHER_FORMAT.into(),
            excerpt: None,
        }];
    } else if misses_main {
        // Important for an empty or truncated file: a reload would remove all databases.
        mistakes.push(Mistake {
            place: None,
            text: format!("main section missing from config file {path}"),
            remedy: "write [pgbouncer], if only with its defaults".into(),
            excerpt: None,
        });
    }
    let mut resolver = Resolver {
        path: path.into(),
        config: Config::default(),
        section: Section::None,
        written: HashMap::new(),
        entries: HashMap::new(),
        not_built: BTreeSet::new(),
        mistakes,
        warnings: Vec::new(),
        beyond_pgbouncer: Vec::new(),
    };
    resolver.config.globals.conffile = Some(path.into());
    for item in items {
        resolver.item(item);
    }
    let mut reading = resolver.finish(read_file);
    reading.files = files;
    reading
}

/// SET: assigns one global setting, with the checks of a load.
pub(super) fn set(globals: &mut Globals, key: &str, value: &str) -> Result<(), String> {
    let setting = table::find(Scope::Global, key)
        .ok_or_else(|| format!("unknown setting {key}{}", did_you_mean(Scope::Global, key)))?;
    assign(globals, setting, value)?;
    match stop(setting, value) {
        Some(why) => Err(why.into()),
        None => Ok(()),
    }
}

/// Assigns a global setting.
///
/// # Errors
/// How to write the value instead.
fn assign(globals: &mut Globals, setting: &Setting, value: &str) -> Result<(), String> {
    let in_range = match setting.name {
        "auth_dbname" if value == CONSOLE => {
            return Err(RESERVED_AUTH_DBNAME.into());
        }
        "stats_period" | "scram_iterations" if read_number(value) == Some(0) => false,
        "http_listen_addr" => value.parse::<std::net::IpAddr>().is_ok(),
        "ready_fails_when" => List::read(value)
            .is_some_and(|causes| causes.iter().all(|cause| CAUSES.contains(&cause.as_str()))),
        // The token is used in addresses and cookies.
        "http_token" => value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.~".contains(c)),
        "peer_id" => read_number(value).is_some_and(|id| (0..=16383).contains(&id)),
        // The greatest values that Linux accepts; 0 leaves the choice to the system.
        "tcp_keepidle" | "tcp_keepintvl" => {
            read_number(value).is_some_and(|seconds| (0..=32767).contains(&seconds))
        }
        "tcp_keepcnt" => read_number(value).is_some_and(|count| (0..=127).contains(&count)),
        // A cancel key has no room for more workers.
        "workers" => read_number(value).is_some_and(|count| (0..=1024).contains(&count)),
        _ => true,
    };
    if in_range
        && setting
            .field
            .is_some_and(|field| (field.assign)(globals, value))
    {
        Ok(())
    } else {
        let near = did_you_mean_word(setting.kind, value);
        let range = match read_number(value) {
            Some(..0) if setting.kind == Kind::Number => ", 0 or more",
            _ => range(setting.name),
        };
        Err(format!("must be {}{range}{near}", setting.kind))
    }
}

const RESERVED_AUTH_DBNAME: &str =
    "cannot use the reserved \"pgbouncer\" database as an auth_dbname";

fn range(name: &str) -> &'static str {
    match name {
        "stats_period" | "scram_iterations" => ", at least 1",
        "peer_id" => " from 0 to 16383",
        "workers" => " from 0 to 1024",
        "tcp_keepidle" | "tcp_keepintvl" => " from 0 to 32767",
        "tcp_keepcnt" => " from 0 to 127",
        "http_listen_addr" => ": an IPv4 or IPv6 address",
        "http_token" => " of letters, digits and -_.~",
        "ready_fails_when" => ": draining, paused, unreachable",
        "listen_port" | "http_listen_port" => " from 0 to 65535",
        _ => "",
    }
}

/// The reason why this value must stop the start, if there is one.
fn stop(setting: &Setting, value: &str) -> Option<&'static str> {
    let Support::Stops { unless, why } = setting.status else {
        return None;
    };
    let harmless = unless.iter().any(|word| word.eq_ignore_ascii_case(value))
        || setting
            .default
            .is_some_and(|default| default.eq_ignore_ascii_case(value));
    (!harmless).then_some(why)
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Section {
    None,
    Unknown,
    Pooler,
    Databases,
    Users,
    Peers,
}

impl Section {
    /// What one line of this section describes.
    fn entry(self) -> Option<&'static str> {
        match self {
            Section::Databases => Some("database"),
            Section::Users => Some("user"),
            Section::Peers => Some("peer"),
            Section::None | Section::Unknown | Section::Pooler => None,
        }
    }
}

/// What is odd about a user of the auth_file, and what helps.
type Doubt = (&'static str, &'static str);

struct Resolver {
    path: String,
    config: Config,
    section: Section,
    /// The global settings that were written, each with its last value and place.
    written: HashMap<&'static str, (String, Place)>,
    /// The place of each entry.
    entries: HashMap<(Section, String), Place>,
    /// Settings of entries that are not built; each gets one warning.
    not_built: BTreeSet<&'static str>,
    mistakes: Vec<Mistake>,
    warnings: Vec<Warning>,
    beyond_pgbouncer: Vec<Beyond>,
}

impl Resolver {
    fn item(&mut self, item: Item) {
        match item {
            Item::Section(name, place) => self.section(&name, &place),
            Item::Assign { key, value, place } => {
                let done = if (key.clone() + &value).contains(NO_TEXT) {
                    Err("there are bytes in it that are not UTF-8: write the file in UTF-8".into())
                } else {
                    self.assign(&key, &value, &place)
                };
                if let Err(remedy) = done {
                    // Connection strings may contain passwords under any key, so no connection
                    // string is shown.
                    let shown = matches!(self.section, Section::Pooler | Section::None)
                        && !value.contains("passw")
                        && !matches!(key.as_str(), "http_token" | "auth_ldap_options");
                    let (text, excerpt) = match self.section.entry() {
                        // The value is well formed, so the key is what is wrong.
                        Some(entry) if connstr::parse(&value).is_ok() => {
                            (format!("{entry} \"{key}\""), Excerpt::of_key(&key))
                        }
                        Some(entry) => (format!("{entry} \"{key}\""), Excerpt::of_hidden(&key)),
                        None if table::find(Scope::Global, &key).is_none() => {
                            // It may be a secret whose key is misspelt.
                            (invalid("...", &key), Excerpt::of_key(&key))
                        }
                        None if shown => {
                            let value = excerpt::without_login(&value);
                            (invalid(&value, &key), Excerpt::of_value(&key, &value))
                        }
                        None => (invalid("...", &key), Excerpt::of_hidden(&key)),
                    };
                    let mistake = Mistake::at(&place, text, remedy);
                    self.mistakes.push(mistake.showing(excerpt));
                }
            }
        }
    }

    fn section(&mut self, name: &str, place: &Place) {
        self.section = match name {
            "pgbouncer" => {
                // PgBouncer resets all settings to their defaults at every such header.
                let conffile = self.config.globals.conffile.take();
                self.config.globals = Globals {
                    conffile,
                    ..Globals::default()
                };
                if !self.written.is_empty() {
                    self.written.clear();
                    self.warn(format!(
                        "a second [pgbouncer] section ({place}) puts everything set in the first \
                         back to its default"
                    ));
                }
                Section::Pooler
            }
            "databases" => Section::Databases,
            "users" => Section::Users,
            "peers" => Section::Peers,
            _ => {
                let text = format!("invalid section \"{name}\" in configuration");
                let remedy = "there are [pgbouncer], [databases], [users] and [peers]";
                self.mistakes.push(Mistake::at(place, text, remedy));
                Section::Unknown
            }
        };
    }

    fn assign(&mut self, key: &str, value: &str, place: &Place) -> Result<(), String> {
        if matches!(
            self.section,
            Section::Databases | Section::Users | Section::Peers
        ) {
            let entry = (self.section, key.to_owned());
            if let Some(first) = self.entries.insert(entry, place.clone()) {
                self.warn(format!(
                    "\"{key}\" is defined twice ({first} and {place}): the last counts"
                ));
            }
        }
        match self.section {
            Section::None => Err("it stands before any section: begin with [pgbouncer]".into()),
            Section::Unknown => Ok(()), // Its header was the mistake.
            Section::Pooler => self.global(key, value, place),
            Section::Databases => self.database(key, value, place),
            Section::Users => self.user(key, value, place),
            Section::Peers => self.peer(key, value, place),
        }
    }

    fn global(&mut self, key: &str, value: &str, place: &Place) -> Result<(), String> {
        let setting = table::find(Scope::Global, key).ok_or_else(|| {
            format!(
                "there is no such setting{}",
                did_you_mean(Scope::Global, key)
            )
        })?;
        let doubt = doubts::of_value(setting, value);
        assign(&mut self.config.globals, setting, value).map_err(|remedy| match doubt {
            Some(doubt) => format!("{remedy}; {doubt}"),
            None => remedy,
        })?;
        if let Some(doubt) = doubt {
            let excerpt = Excerpt::of_value(key, value);
            self.warn_at(place, excerpt, format!("{key} ({place}): {doubt}"));
        }
        self.note_beyond(Scope::Global, setting, String::new(), place);
        let written = (value.into(), place.clone());
        if let Some((_, first)) = self.written.insert(setting.name, written) {
            self.warn(format!(
                "{key} is set twice ({first} and {place}): the last counts"
            ));
        }
        Ok(())
    }

    fn database(&mut self, name: &str, connstr: &str, place: &Place) -> Result<(), String> {
        if is_console(name) {
            return Err(format!(
                "database name \"{name}\" is reserved for the console"
            ));
        }
        if name.len() >= MAX_DATABASE {
            return Err(format!(
                "a database name has at most {} bytes",
                MAX_DATABASE - 1
            ));
        }
        let not_read = doubts::instead_of_url(connstr).or_else(|| connstr::parse(connstr).err());
        if name == "*"
            && let Some(why) = not_read
        {
            // PgBouncer reads this entry when a client needs it, and then refuses the client.
            self.warn(format!(
                "database \"*\" ({place}) can't be read and is left out: {why}"
            ));
            return Ok(());
        }
        if let Some(remedy) = doubts::instead_of_url(connstr) {
            return Err(remedy);
        }
        let mut database = Database::new(name);
        self.entry(Scope::Database, name, connstr, place, |key, value| {
            if key == "user" && value.len() >= MAX_USER {
                return Err(format!("a user name has at most {} bytes", MAX_USER - 1));
            }
            database.assign(key, value).ok_or_else(String::new)
        })?;
        let database = Arc::new(database);
        if name == "*" {
            self.config.fallback = Some(database);
        } else {
            self.config.databases.insert(name.into(), database);
        }
        Ok(())
    }

    fn user(&mut self, name: &str, settings: &str, place: &Place) -> Result<(), String> {
        if name.len() >= MAX_USER {
            return Err(format!("a user name has at most {} bytes", MAX_USER - 1));
        }
        let mut user = User {
            name: name.into(),
            ..User::default()
        };
        self.entry(Scope::User, name, settings, place, |key, value| {
            user.assign(key, value).ok_or_else(String::new)
        })?;
        self.config.users.insert(name.into(), Arc::new(user));
        Ok(())
    }

    fn peer(&mut self, id: &str, settings: &str, place: &Place) -> Result<(), String> {
        let number = read_number(id).and_then(|id| u16::try_from(id).ok());
        let Some(number) = number.filter(|&number| number > 0) else {
            return Err("a peer's id is a number from 1 to 65535".into());
        };
        let mistakes = self.mistakes.len();
        let mut peer = PeerProcess::default();
        self.entry(Scope::Peer, id, settings, place, |key, value| {
            peer.assign(key, value).ok_or_else(String::new)
        })?;
        if peer.hosts.is_empty() && self.mistakes.len() == mistakes {
            return Err("a peer needs host=".into());
        }
        self.config.peers.insert(number, Arc::new(peer));
        Ok(())
    }

    /// Walks through the pairs of an entry, and notes a mistake for each wrong pair. If `assign`
    /// returns an empty error, the text comes from the table: what the key takes.
    ///
    /// # Errors
    /// The text is not a list of pairs.
    fn entry(
        &mut self,
        scope: Scope,
        name: &str,
        text: &str,
        place: &Place,
        mut assign: impl FnMut(&str, &str) -> Result<(), String>,
    ) -> Result<(), String> {
        let pairs = connstr::parse(text)?;
        // In an entry with a password, any value may be a part of the password, for example after a
        // blank.
        let has_password = pairs.iter().any(|pair| pair.key.contains("pass"));
        let known = |key: &str| table::find(scope, key).is_some();
        let excerpt = |at| Excerpt::of_pair(name, &pairs, at, known);
        for (at, pair) in pairs.iter().enumerate() {
            let (key, value) = (pair.key.clone(), pair.value.clone());
            if pair.in_double_quotes {
                let quotes = "its value is read without the double quotes: write single ones";
                self.warn_of_pair(name, &key, quotes, place);
            }
            let Some(setting) = table::find(scope, &key) else {
                let near = did_you_mean(scope, &key);
                let remedy = format!("there is no such setting{near}");
                self.mistaken_pair(name, &key, remedy, place, excerpt(at));
                continue;
            };
            if setting.status != Support::Built {
                self.not_built.insert(setting.name);
            }
            self.note_beyond(scope, setting, format!(" {name}"), place);
            if let Err(why) = assign(&key, &value) {
                // PgBouncer reads the digits, too, and takes no notice of the rest.
                let number = matches!(setting.kind, Kind::Number | Kind::Seconds);
                if let Some(digits) = leading_digits(&value).filter(|_| number)
                    && assign(&key, digits).is_ok()
                {
                    let shown = match has_password {
                        true => "only the digits of its value are read".to_string(),
                        false => format!("{value} is read as {digits}"),
                    };
                    self.warn_of_pair(name, &key, &shown, place);
                    continue;
                }
                let pair = if has_password {
                    key
                } else {
                    format!("{key} = {value}")
                };
                let remedy = match why.as_str() {
                    "" => must_be(setting, &value),
                    _ => why,
                };
                self.mistaken_pair(name, &pair, remedy, place, excerpt(at));
            } else if let Some(doubt) = doubts::of_pair(&key, &value) {
                self.warn_of_pair(name, &key, doubt, place);
            }
        }
        Ok(())
    }

    /// Warns of a pair of an entry that is read in the way that was probably meant.
    fn warn_of_pair(&mut self, entry: &str, key: &str, read: &str, place: &Place) {
        let what = self.section.entry().unwrap_or_default();
        self.warn(format!("{what} \"{entry}\", {key} ({place}): {read}"));
    }

    fn mistaken_pair(
        &mut self,
        entry: &str,
        pair: &str,
        remedy: String,
        place: &Place,
        excerpt: Option<Excerpt>,
    ) {
        let what = self.section.entry().unwrap_or_default();
        let text = format!("{what} \"{entry}\", {pair}");
        let mistake = Mistake::at(place, text, remedy);
        self.mistakes.push(mistake.showing(excerpt));
    }

    /// Notes a setting that PgBouncer does not know here.
    fn note_beyond(&mut self, scope: Scope, setting: &Setting, entry: String, place: &Place) {
        if !setting.is_known_to_pgbouncer(scope) {
            self.beyond_pgbouncer.push(Beyond {
                setting: setting.name,
                section: format!("[{}]{entry}", scope.section()),
                place: place.clone(),
            });
        }
    }

    fn finish(mut self, read_file: &mut dyn FnMut(&str) -> Result<String, String>) -> Reading {
        self.judge_what_is_not_built();
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

    fn judge_what_is_not_built(&mut self) {
        for setting in table::GLOBAL {
            let Some((value, place)) = self.written.get(setting.name) else {
                continue;
            };
            let Some(field) = setting.field else { continue };
            if let Some(why) = stop(setting, value) {
                let text = invalid(value, setting.name);
                let excerpt = Excerpt::of_value(setting.name, value);
                let mistake = Mistake::at(place, text, why);
                self.mistakes.push(mistake.showing(excerpt));
                continue;
            }
            let as_default =
                (field.show)(&self.config.globals) == (field.show)(&Globals::default());
            // A setting that can stop the start has harmless values. These do nothing, or they are
            // built.
            let Support::NotYet(why) = setting.status else {
                continue;
            };
            if as_default || value.is_empty() {
                continue;
            }
            let text = format!("{} = {value} ({place}) has no effect: {why}", setting.name);
            self.warn(text);
        }
        for name in std::mem::take(&mut self.not_built) {
            let why = match table::find(Scope::Database, name).map(|setting| setting.status) {
                Some(Support::NotYet(why) | Support::Stops { why, .. }) => why,
                _ => "it is not built yet",
            };
            self.warn(format!("{name} in {} has no effect: {why}", self.path));
        }
    }

    /// Warns of `[peers]` without a `peer_id`, which has no effect.
    fn judge_peers(&mut self) {
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
            if database
                .client_tls_sslmode
                .is_some_and(SslMode::is_required)
            {
                self.mistakes.push(Mistake {
                    place: None,
                    text: format!(
                        "client_tls_sslmode of database {} wants TLS, which is switched off",
                        database.name
                    ),
                    remedy:
                        "set client_tls_sslmode = allow in [pgbouncer], with key and certificate"
                            .into(),
                    excerpt: None,
                });
            }
        }
        if globals.auth_type != AuthType::Cert || globals.client_tls_sslmode.is_verified() {
            return;
        }
        let written = self.written.get("auth_type");
        self.mistakes.push(Mistake {
            place: written.map(|(_, place)| place.clone()),
            text: "auth_type = cert requires client_tls_sslmode = verify-full".into(),
            remedy: "set that, and client_tls_ca_file".into(),
            excerpt: Some(Excerpt::of_value("auth_type", "cert")),
        });
    }

    /// A password belongs to the forced user. Warns of a password without a forced user: it is
    /// never used.
    fn judge_passwords(&mut self) {
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let idle = databases.filter(|d| d.password.is_some() && d.forced_user.is_none());
        let idle: Vec<_> = idle.map(|database| database.name.clone()).collect();
        for name in idle {
            let entry = self.entries.get(&(Section::Databases, name.clone()));
            let place = entry.map_or_else(String::new, |place| format!(" ({place})"));
            self.warn(format!(
                "password of database \"{name}\"{place} has no effect without user: write user=, or \
                 the users' secrets into auth_file"
            ));
        }
    }

    /// Warns if an unauthenticated client could choose the database of auth_query. auth_query runs before a client
    /// has proved anything, and with a `*` entry any name is a database.
    fn judge_lookups(&mut self) {
        let globals = &self.config.globals;
        let set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let open = self.config.fallback.as_ref().is_some_and(|fallback| {
            let asks = set(&fallback.auth_user) || set(&globals.auth_user);
            asks && !set(&fallback.auth_dbname) && !set(&globals.auth_dbname)
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
            let page = match globals.http_page {
                true => ", and the page (http_page) is not served: set http_token",
                false => "",
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
            let written = self.written.get("http_listen_port");
            self.mistakes.push(Mistake {
                place: written.map(|(_, place)| place.clone()),
                text: format!("http_listen_port = {port} is listen_port, too"),
                remedy: "write another port".into(),
                excerpt: Some(Excerpt::of_value("http_listen_port", &port.to_string())),
            });
        }
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let circles = databases.filter(|database| {
            let mut hosts = database.hosts.iter();
            hosts.any(|host| doubts::leads_here(host, database.port, globals))
        });
        let circles: Vec<_> = circles.map(|database| database.name.clone()).collect();
        let port = globals.listen_port;
        for name in circles {
            let entry = self.entries.get(&(Section::Databases, name.clone()));
            let place = entry.map_or_else(String::new, |place| format!(" ({place})"));
            self.warn(format!(
                "database \"{name}\"{place} leads to Howdah itself: port {port} of that host is \
                 listen_port; write PostgreSQL's port"
            ));
        }
    }

    /// Sets the host of databases without one: the directory of Howdah's own unix socket.
    fn place_hosts(&mut self) {
        let directory = &self.config.globals.unix_socket_dir;
        if directory.is_empty() {
            return;
        }
        for database in self
            .config
            .databases
            .values_mut()
            .chain(self.config.fallback.as_mut())
        {
            if database.hosts.is_empty() {
                Arc::make_mut(database)
                    .hosts
                    .push(Host::Unix(directory.clone()));
            }
        }
    }

    fn read_users(&mut self, read_file: &mut dyn FnMut(&str) -> Result<String, String>) {
        let Some(path) = self
            .config
            .globals
            .auth_file
            .clone()
            .filter(|path| !path.is_empty())
        else {
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
                let written = self.written.get("auth_ldap_options");
                let written = written.or_else(|| self.written.get("auth_type"));
                self.mistakes.push(Mistake {
                    place: written.map(|(_, place)| place.clone()),
                    text: format!("auth_ldap_options: {why}"),
                    remedy,
                    excerpt: None,
                });
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
            let warning = |mistake: Mistake| Warning {
                text: mistake.to_string(),
                broken,
                shown_line: String::new(),
            };
            self.warnings.extend(mistakes.into_iter().map(warning));
        }
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(Warning {
            text,
            broken: false,
            shown_line: String::new(),
        });
    }

    fn warn_at(&mut self, place: &Place, excerpt: Excerpt, text: String) {
        self.warnings.push(Warning {
            text,
            broken: false,
            shown_line: excerpt.show(place.line),
        });
    }

    fn warn_broken(&mut self, text: String) {
        self.warnings.push(Warning {
            text,
            broken: true,
            shown_line: String::new(),
        });
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

/// The values that a pair of an entry takes.
fn must_be(setting: &Setting, value: &str) -> String {
    let range = match setting.name {
        "port" => " from 1 to 65535",
        "host" => return "write names or addresses, separated by commas".into(),
        _ => "",
    };
    let near = did_you_mean_word(setting.kind, value);
    format!("must be {}{range}{near}", setting.kind)
}

/// PgBouncer's text.
fn invalid(value: &str, key: &str) -> String {
    format!("invalid value \"{value}\" for parameter {key} in configuration")
}
