//! Settings: text goes in, one immutable value comes out. A reload replaces the whole value.
//!
//! There are two stages. The first reads what was written (`ini.rs`, `connstr.rs`) and yields lines with paths
//! (`written.rs`). The second finds their meaning (`resolve.rs`) by the one table of settings (`table.rs`), and
//! reads the users of auth_file (`userlist.rs`). The files of `auth_type = hba` have a grammar of their own (`access`).
#![forbid(unsafe_code)]

pub mod access;
mod address;
mod authority;
mod connstr;
mod convert;
mod database;
mod doubts;
mod environment;
mod excerpt;
mod fetched;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod host;
mod image;
mod in_force;
mod ini;
mod judged;
mod known_users;
pub mod ldap;
pub mod near;
mod network;
mod parameters;
pub mod quotes;
mod reference;
mod resolve;
mod scopes;
#[macro_use]
mod setting;
mod sharding;
mod source;
mod surroundings;
pub mod table;
#[cfg(test)]
mod tests;
mod tls;
pub mod token;
mod toml_file;
pub mod toml_text;
mod toml_value;
mod url;
pub mod userlist;
mod value;
mod vault;
mod written;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use howdah_shard::{Map as ShardMap, Shard};

pub use howdah_auth::{ChannelBinding, RequireAuth, Secret};

pub use access::{Hba, HbaMethod, IdentMap};
pub use address::Address;
pub use authority::Authority;
pub use convert::to_toml;
pub use excerpt::Excerpt;
pub use fetched::{
    Fetched, FetchedSecret, FetchedValue, SecretsTold, ServerSecret, SourceUse, aws_token,
};
pub use host::{Host, HostPort, Ports};
pub use in_force::{SettingInForce, ValueInForce};
pub use network::Networks;
pub use parameters::Parameters;
pub use reference::{settings_manual, settings_page};
pub use scopes::Scopes;
pub use setting::{Scope, Setting};
pub use source::{AwsSigning, SecretSource, SecretText};
pub use surroundings::Surroundings;
pub use table::{Database, Globals, HostEntry, PeerProcess, User};
pub use tls::{TlsFiles, TlsInForce};
pub use token::{KeysAt, OWN_NAMES, TokenOffer, TokenRules, is_fetchable};
pub use value::{
    AuthType, Facility, HttpUrl, IoDriver, Kind, Lines, List, Listen, ListenLost, LoadBalance,
    LogFormat, PoolMode, PoolSpread, ReadConsistency, ReadRouting, ReadTarget, SessionAttrs,
    SessionState, Share, SslMode, SslNegotiation, UnnamedStatements,
};
pub use vault::{VaultAccess, VaultLogin};

/// A setting's time in nanoseconds; 0 for none.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A name of the console's database; no entry may have this name.
pub const CONSOLE: &str = "pgbouncer";

/// The names of the console's database.
pub const CONSOLE_NAMES: [&str; 2] = [CONSOLE, "howdah"];

/// True for the console's database.
pub fn is_console(database: &str) -> bool {
    CONSOLE_NAMES.contains(&database)
}

/// The causes that can make the process unready for new clients: the words of `ready_fails_when`.
pub const CAUSES: [&str; 3] = ["draining", "paused", "unreachable"];

/// How deep files may include others.
const MAX_INCLUDE: usize = 10;

/// The place of a setting in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file, under the name with which it was opened; or what else the setting comes from, such
    /// as the name of a variable.
    pub file: Arc<str>,
    /// The line, from 1; 0 for what has no lines.
    pub line: u32,
    /// The column in characters, from 1; 0 where nothing but the line is known.
    pub column: u32,
}

impl Place {
    /// A line of a file.
    fn line(file: Arc<str>, line: u32) -> Place {
        Place {
            file,
            line,
            column: 0,
        }
    }

    /// A variable of the environment.
    fn variable(name: &str) -> Place {
        Place::line(name.into(), 0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => f.write_str(&self.file),
            (line, 0) => write!(f, "{}:{line}", self.file),
            (line, column) => write!(f, "{}:{line}:{column}", self.file),
        }
    }
}

/// A mistake that stops the start or the reload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// The place of the mistake; `None` if something is missing.
    pub place: Option<Place>,
    /// What is wrong.
    pub text: String,
    /// How to correct it.
    pub remedy: String,
    /// The line, if it may be shown.
    pub excerpt: Option<Excerpt>,
}

impl Mistake {
    fn new(place: Option<&Place>, text: impl Into<String>, remedy: impl Into<String>) -> Mistake {
        Mistake {
            place: place.cloned(),
            text: text.into(),
            remedy: remedy.into(),
            excerpt: None,
        }
    }

    fn showing(self, excerpt: impl Into<Option<Excerpt>>) -> Mistake {
        Mistake {
            excerpt: excerpt.into(),
            ..self
        }
    }

    /// The line with a caret below the mistake, in two lines; empty if the line may not be shown.
    pub fn shown_line(&self) -> String {
        match (&self.place, &self.excerpt) {
            (Some(place), Some(excerpt)) if place.line > 0 => excerpt.show(place.line),
            _ => String::new(),
        }
    }

    /// Sorts mistakes by file and line. The file `main` comes first; mistakes without a place come
    /// last.
    pub fn sort(mistakes: &mut [Mistake], main: &str) {
        let mut files: Vec<Arc<str>> = vec![main.into()];
        for place in mistakes.iter().filter_map(|mistake| mistake.place.as_ref()) {
            if !files.contains(&place.file) {
                files.push(place.file.clone());
            }
        }
        mistakes.sort_by_key(|mistake| match &mistake.place {
            Some(place) => (
                files.iter().position(|file| *file == place.file),
                place.line,
                place.column,
            ),
            None => (Some(files.len()), 0, 0),
        });
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{} ({place}): {}", self.text, self.remedy),
            None => write!(f, "{}: {}", self.text, self.remedy),
        }
    }
}

/// A warning: it stops nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// The whole text.
    pub text: String,
    /// The warning is about a malformed or missing file: `--check` counts it as a mistake.
    pub broken: bool,
    /// The line with a caret below its place, in two lines; empty if there is nothing to show.
    pub shown_line: String,
}

impl Warning {
    fn new(text: String, broken: bool) -> Warning {
        Warning {
            text,
            broken,
            shown_line: String::new(),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The result of reading a configuration, with all of its mistakes.
#[derive(Debug)]
pub struct Reading {
    /// The configuration. It may be used only if there are no mistakes.
    pub config: Config,
    /// The mistakes, in the order of their lines.
    pub mistakes: Vec<Mistake>,
    /// The warnings.
    pub warnings: Vec<Warning>,
    /// Settings that PgBouncer 1.25.2 does not know, in the order of their lines.
    pub beyond_pgbouncer: Vec<Beyond>,
    /// How many files were read, the first one included.
    pub files: usize,
}

/// A setting that makes PgBouncer 1.25.2 refuse the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beyond {
    /// The setting's name.
    pub setting: &'static str,
    /// The section, and the entry if the section has entries.
    pub section: String,
    /// The setting's place.
    pub place: Place,
}

impl fmt::Display for Beyond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.section, self.setting, self.place)
    }
}

/// One row of SHOW CONFIG.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownSetting {
    /// The setting's name.
    pub key: &'static str,
    /// The value; `None` is NULL.
    pub value: Option<String>,
    /// The default; `None` is NULL.
    pub default: Option<&'static str>,
    /// Whether a reload or SET changes the setting.
    pub changeable: bool,
}

/// The complete configuration.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `[pgbouncer]`
    pub globals: Globals,
    /// `[databases]`, by name, without the `*` entry.
    pub databases: BTreeMap<String, Arc<Database>>,
    /// The `*` entry of `[databases]`.
    pub fallback: Option<Arc<Database>>,
    /// `[users]` and auth_file, by name.
    pub users: HashMap<String, Arc<User>>,
    /// `[peers]`, by id. This process may be among them.
    pub peers: BTreeMap<u16, Arc<PeerProcess>>,
    /// `[hosts]`, by what is written: a host, or a host with its port.
    pub hosts: BTreeMap<String, Arc<HostEntry>>,
    /// The setting names an auth_file that could not be opened.
    pub auth_file_missing: bool,
    /// The auth_file has lines that could not be read.
    pub auth_file_broken: bool,
    /// The rules of `auth_type = hba`, if `auth_type` is `hba`.
    pub hba: Option<Arc<Hba>>,
    /// The place of each setting of `[pgbouncer]` that was written.
    pub written: HashMap<&'static str, Place>,
    /// What was written in each entry.
    pub(crate) given: Arc<HashMap<written::Path, in_force::Given>>,
    /// The TLS settings that are in force.
    pub tls: TlsInForce,
    /// The authority of `auth_type = ldap` or `pam`.
    pub authority: Option<Arc<Authority>>,
    /// What the sources of secrets have given.
    pub fetched: Fetched,
    /// Whether any database is sharded. Without one, nobody looks for maps.
    pub has_shards: bool,
    /// Whether any secret has a source. Without one, logins look for none.
    pub has_sources: bool,
    /// Whether any user has two passwords.
    pub(crate) has_second_passwords: bool,
    /// Whether any user who may log in has a SCRAM secret.
    pub has_scram_secrets: bool,
    /// The files that have commands for passwords.
    pub command_files: BTreeSet<Arc<str>>,
}

/// The remedy for SET of a setting that names a file.
const IN_FILE: &str = "write it into the configuration file and RELOAD";

impl Globals {
    /// Assigns a setting by its name, as a line of `[pgbouncer]` does.
    ///
    /// # Errors
    /// Why the value is not valid.
    pub fn assign(&mut self, key: &str, value: &str) -> Result<(), String> {
        resolve::set(self, key, value)
    }
}

impl Config {
    /// Reads a configuration. `read_file` reads included files and the auth_file, by the path in
    /// the configuration. A missing or malformed auth_file is only a warning, as in PgBouncer.
    ///
    /// # Errors
    /// All mistakes.
    pub fn load(
        path: &str,
        text: &str,
        read_file: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<(Config, Vec<Warning>), Vec<Mistake>> {
        let reading = Config::read(path, text, read_file);
        if reading.mistakes.is_empty() {
            Ok((reading.config, reading.warnings))
        } else {
            Err(reading.mistakes)
        }
    }

    /// Reads a configuration as [`Config::load`] does, and returns it together with its mistakes.
    pub fn read(
        path: &str,
        text: &str,
        read_file: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Reading {
        Config::read_among(path, text, &mut surroundings::Files(read_file))
    }

    /// Reads a configuration as [`Config::read`] does. It may name other files by patterns, and
    /// variables.
    pub fn read_among(path: &str, text: &str, surroundings: &mut dyn Surroundings) -> Reading {
        resolve::read(Some((path, text)), surroundings)
    }

    /// Reads a configuration from variables alone.
    pub fn read_environment(surroundings: &mut dyn Surroundings) -> Reading {
        resolve::read(None, surroundings)
    }

    /// The first variable that belongs to one of PgBouncer's images, such as `DB_HOST`. Beside a file, such
    /// variables mean nothing.
    pub fn image_variable(surroundings: &mut dyn Surroundings) -> Option<String> {
        image::first_variable(surroundings)
    }

    /// True if the auth_file could not be read to its end, and users that are known now are
    /// missing. PgBouncer would lock these users out at a reload.
    pub fn loses_users(&self, in_force: &Config) -> bool {
        let listed = |user: Option<&Arc<User>>| user.is_some_and(|user| user.listed);
        let mut known = in_force.users.iter();
        self.auth_file_broken
            && known.any(|(name, user)| user.listed && !listed(self.users.get(name)))
    }

    /// What forbids to put this configuration in force after another: an entry would go on forcing a
    /// user ([`Config::keep_fixed`]) whose own servers log in as another.
    pub fn refused_after(&self, in_force: &Config) -> Vec<Mistake> {
        let named = self.databases.iter().filter_map(|(name, database)| {
            let old = in_force.databases.get(name)?;
            Some((name.as_str(), database.clashes_with_kept(old)?))
        });
        let fallbacks = self.fallback.iter().zip(&in_force.fallback);
        let fallback = fallbacks.filter_map(|(new, old)| Some(("*", new.clashes_with_kept(old)?)));
        let mistake = |(name, user): (&str, &str)| {
            let text = format!(
                "database \"{name}\": user \"{user}\" has the pool of all until a restart, and a \
                 server_user of its own"
            );
            let remedy =
                "give the database another server_user, or leave the user's out, or restart";
            Mistake::new(None, text, remedy)
        };
        named.chain(fallback).map(mistake).collect()
    }

    /// Copies from the configuration in force what a reload must not change: fixed settings, the
    /// forced users that entries have lost, and the users' secrets if the auth_file can't be
    /// opened. Returns a message for each setting that would have changed.
    pub fn keep_fixed(&mut self, in_force: &Config) -> Vec<String> {
        let mut told = Vec::new();
        for setting in table::in_shown_order()
            .into_iter()
            .filter(|setting| !setting.reloadable)
        {
            let Some(field) = setting.global else {
                continue;
            };
            let shown = |globals| (field.show)(globals).unwrap_or_default();
            let (new, old) = (shown(&self.globals), shown(&in_force.globals));
            if new != old {
                told.push(format!(
                    "{} = {new} takes a restart to have an effect: it stays {old}",
                    setting.name
                ));
            }
            (field.copy)(&mut self.globals, &in_force.globals);
            match in_force.written.get(setting.name) {
                Some(place) => self.written.insert(setting.name, place.clone()),
                None => self.written.remove(setting.name),
            };
        }
        let kept = self.databases.iter_mut().filter_map(|(name, database)| {
            let old = in_force.databases.get(name)?;
            Database::keep_forced_user(database, old).then(|| name.clone())
        });
        let mut kept: Vec<_> = kept.collect();
        if let (Some(new), Some(old)) = (&mut self.fallback, &in_force.fallback)
            && Database::keep_forced_user(new, old)
        {
            kept.push("*".into());
        }
        for name in &kept {
            self.keep_given(in_force, name);
        }
        told.extend(kept.into_iter().map(|name| {
            format!("database {name}: losing forced user not supported, keeping old setting")
        }));
        if !self.auth_file_missing {
            return told;
        }
        self.has_scram_secrets |= in_force.has_scram_secrets;
        let of_file = |user: &User| user.listed && user.password.is_none();
        for (name, known) in in_force.users.iter().filter(|(_, user)| of_file(user)) {
            let fresh = || {
                Arc::new(User {
                    name: name.clone(),
                    ..User::default()
                })
            };
            let user = self.users.entry(name.clone()).or_insert_with(fresh);
            if user.password.is_none() {
                let user = Arc::make_mut(user);
                user.listed = true;
                user.secret.clone_from(&known.secret);
            }
        }
        told
    }

    /// Shows the login of a database that stays in force where the configuration in force has it.
    fn keep_given(&mut self, in_force: &Config, database: &str) {
        let path: written::Path = [Scope::Database.section().into(), database.into()].into();
        let given = Arc::make_mut(&mut self.given);
        let new = given.entry(path.clone()).or_default();
        for field in ["forced_user", "server_password"] {
            match in_force.given.get(&path).and_then(|old| old.get(field)) {
                Some(old) => new.insert(field, old.clone()),
                None => new.remove(field),
            };
        }
    }

    /// SET on the console: a copy of this configuration with one global setting changed. A fixed
    /// setting keeps its value, without an error, as in PgBouncer.
    ///
    /// # Errors
    /// Why the value is not valid.
    pub fn with(&self, key: &str, value: &str) -> Result<Config, String> {
        let mut config = self.clone();
        config.globals.assign(key, value)?;
        config.wrote(key, "SET");
        config.keep_fixed(self);
        let (now, then) = (&self.globals, &config.globals);
        let tokens = |globals: &Globals| {
            let by_tokens = matches!(globals.auth_type, AuthType::Oauth | AuthType::Jwt);
            let files = (
                globals.auth_ident_file.clone(),
                globals.auth_oauth_options.clone(),
            );
            by_tokens.then_some((globals.auth_type, files))
        };
        if tokens(then).is_some() && tokens(now) != tokens(then) {
            // Ident maps are read only together with the configuration.
            return Err(IN_FILE.into());
        }
        if tokens(then).is_none() {
            let authority = Authority::of(then, &Default::default());
            config.authority = authority
                .map_err(|(why, remedy)| format!("{why}: {remedy}"))?
                .map(Arc::new);
        }
        let (now, then) = (&self.globals, &config.globals);
        let reads_users = |auth: AuthType| !matches!(auth, AuthType::Any | AuthType::Pam);
        let unread = !reads_users(now.auth_type) && reads_users(then.auth_type);
        let unread = unread && !self.users.values().any(|user| user.listed);
        let unread = unread && then.auth_file.as_ref().is_some_and(|file| !file.is_empty());
        if now.auth_file != then.auth_file || unread {
            return Err(IN_FILE.into());
        }
        let files = |globals: &Globals| {
            (
                globals.auth_hba.clone(),
                globals.auth_hba_file.clone(),
                globals.auth_ident_file.clone(),
            )
        };
        if then.auth_type == AuthType::Hba && (self.hba.is_none() || files(now) != files(then)) {
            // Files are read only together with the configuration.
            return Err(IN_FILE.into());
        }
        Ok(config)
    }

    /// All authorities that may check clients' passwords.
    pub fn authorities(&self) -> impl Iterator<Item = &Authority> {
        let of_rules = self.hba.iter().flat_map(|hba| hba.authorities());
        self.authority.as_deref().into_iter().chain(of_rules)
    }

    /// The database with this name. For the `*` entry, each call returns a new value marked `auto`,
    /// which the caller must keep. The console's database is not included.
    pub fn database(&self, name: &str) -> Option<Arc<Database>> {
        let entry = self.entry(name)?;
        if self.databases.contains_key(name) {
            return Some(entry.clone());
        }
        Some(Arc::new(Database {
            name: name.into(),
            auto: true,
            ..Database::clone(entry)
        }))
    }

    /// The entry with the settings of a database: its own entry, or the `*` entry. Unlike
    /// [`Config::database`], this copies nothing; the entry's name may be `*`.
    pub fn entry(&self, name: &str) -> Option<&Arc<Database>> {
        let fallback = || self.fallback.as_ref().filter(|_| !is_console(name));
        self.databases.get(name).or_else(fallback)
    }

    /// The secret of a user who is known without auth_query: from the user's entry in the database, from
    /// `[users]` or the auth_file. The inner `None`: no password is right.
    pub fn listed(&self, database: &str, user: &str) -> Option<Option<&Secret>> {
        let member = self.entry(database).and_then(|entry| entry.member(user));
        let members = member
            .into_iter()
            .chain(self.users.get(user).map(|user| &**user));
        let listed = members.into_iter().find(|user| user.listed)?;
        Some(listed.secret.as_ref())
    }

    /// The user with this name, if the auth_file or `[users]` has one.
    pub fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// The settings of a user in a database. Without one of them, its settings do not count.
    pub fn scopes<'a>(&'a self, database: Option<&'a Database>, user: Option<&str>) -> Scopes<'a> {
        let member = database.zip(user);
        Scopes {
            member: member.and_then(|(database, user)| database.member(user)),
            user: user
                .and_then(|name| self.users.get(name))
                .map(|user| &**user),
            database,
            globals: &self.globals,
        }
    }

    /// How large a host's share of the work is, beside others that fit.
    pub fn weight(&self, to: &HostPort) -> u32 {
        self.host_entry(to).map_or(1, |entry| entry.weight)
    }

    /// True if reads of some clients may go to standbys.
    pub fn routes_reads(&self) -> bool {
        let databases = self.databases.values().chain(&self.fallback);
        let own = databases.filter_map(|database| database.read_routing);
        let of_members = self.databases.values().chain(&self.fallback);
        let of_members = of_members.flat_map(|database| database.users.values());
        let of_users = self.users.values().chain(of_members);
        let of_users = of_users.filter_map(|user| user.read_routing);
        let mut all = own.chain(of_users).chain([self.globals.read_routing]);
        all.any(|routing| routing != ReadRouting::Off)
    }

    /// How far a standby may be behind to serve a database whose own target is standbys; `None` for
    /// no limit, and for all other databases.
    pub fn max_lag_of_standbys(&self, database: &Database) -> Option<Duration> {
        use SessionAttrs::{PreferStandby, ReadOnly, Standby};
        let wants = matches!(
            database.target_session_attrs,
            Standby | PreferStandby | ReadOnly
        );
        let limit = self.scopes(Some(database), None).max_standby_lag();
        (wants && !limit.is_zero()).then_some(limit)
    }

    /// True if somebody needs to know how far standbys have come.
    pub fn follows_standbys(&self) -> bool {
        let mut databases = self.databases.values().chain(&self.fallback);
        self.routes_reads() || databases.any(|of| self.max_lag_of_standbys(of).is_some())
    }

    /// How many servers a host may have, of all databases; 0 for no limit.
    pub fn max_host_connections(&self, to: &HostPort) -> u32 {
        let own = self
            .host_entry(to)
            .and_then(|entry| entry.max_host_connections);
        own.unwrap_or(self.globals.max_host_connections)
    }

    /// How many servers may log in to a host at a time; 0 for no limit.
    pub fn max_host_logins(&self, to: &HostPort) -> u32 {
        let own = self.host_entry(to).and_then(|entry| entry.max_host_logins);
        own.unwrap_or(self.globals.max_host_logins)
    }

    /// The entry of `[hosts]` for a host: the one with the port counts before the one without.
    fn host_entry(&self, to: &HostPort) -> Option<&HostEntry> {
        let named = |is_named: fn(&HostPort, &str) -> bool| {
            let mut entries = self.hosts.iter();
            entries.find(|(name, _)| is_named(to, name))
        };
        let entry = named(HostPort::is_named_with_port).or_else(|| named(HostPort::is_named));
        entry.map(|(_, entry)| &**entry)
    }

    /// How many cancel requests are forwarded to a peer at once; 0 sets no limit.
    pub fn peer_pool_size(&self, peer: &PeerProcess) -> u32 {
        peer.pool_size.unwrap_or(self.globals.default_pool_size)
    }

    /// The query that tests a server after a long idle time. The query may be empty; `None`: no
    /// test.
    pub fn server_check_query(&self) -> Option<&str> {
        match self.globals.server_check_query.as_str() {
            "" => None,
            "<empty>" => Some(""),
            query => Some(query),
        }
    }

    /// Two answers about TLS handshakes with clients. First: whether clients are asked for a
    /// certificate, because a TLS mode or a login method may need one. Second: whether a client
    /// without a certificate is refused, because every mode requires one.
    pub fn wants_certificates(&self) -> (bool, bool) {
        let by_rule = || {
            self.hba
                .as_ref()
                .is_some_and(|hba| hba.asks_for_certificates())
        };
        let databases = self.databases.values().chain(&self.fallback);
        let (mut some, mut all) = (false, true);
        for mode in databases
            .filter_map(|database| database.client_tls_sslmode)
            .chain([self.globals.client_tls_sslmode])
        {
            some |= mode.is_verified();
            all &= mode.is_verified();
        }
        let by_login = || self.globals.auth_type == AuthType::Cert || by_rule();
        (some || by_login(), all)
    }

    /// The TLS mode for clients of a database that come over a network.
    pub fn demanded_of_clients(&self, database: &str) -> SslMode {
        let entry = self.entry(database);
        let own = entry.and_then(|entry| entry.client_tls_sslmode);
        own.unwrap_or(self.tls.clients)
    }

    /// The line of a setting, with its value in force.
    pub fn excerpt(&self, name: &str) -> Option<Excerpt> {
        let setting = self.show().find(|setting| setting.key == name)?;
        Some(Excerpt::of_value(setting.key, &setting.value?))
    }

    /// The rows of SHOW CONFIG.
    pub fn show(&self) -> impl Iterator<Item = ShownSetting> {
        let settings = table::in_shown_order().into_iter();
        settings.map(|setting| ShownSetting {
            key: setting.name,
            value: setting.global.and_then(|field| (field.show)(&self.globals)),
            default: setting.default,
            changeable: setting.reloadable,
        })
    }
}
