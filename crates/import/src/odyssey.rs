//! Odyssey: `odyssey.conf`.

use howdah_config::{Place, is_console};

use crate::draft::Target;
use crate::finding::Verdict;
use crate::hosts::{ForeignHost, ServerRole};
use crate::logins::{CONSOLE, LoginRule};
use crate::odyssey_keys::KEYS;
use crate::reading::Reading;
use crate::tree::{Branch, Fruit};
use crate::units;

/// The entry for all databases that have none.
const FALLBACK: &str = "*";

pub(crate) fn import(file: &Fruit) -> Reading {
    let mut reading = Reading::new("Odyssey", KEYS);
    let has_socket = file.get("unix_socket_dir").is_some()
        && of(file, "listen")
            .iter()
            .any(|it| it.fruit.get("host").is_none());
    reading.section("", "", file.table(), &Target::Globals);
    if !has_socket {
        reading.draft.set(&Target::Globals, "unix_socket_dir", "");
    }
    globals(&mut reading, file);
    listens(&mut reading, file);
    let storages = of(file, "storage");
    for storage in &storages {
        let path = format!("storage.{}", word(storage));
        reading.section("storage", &path, storage.fruit.table(), &Target::Globals);
    }
    let mut rules = rules(&mut reading, file);
    fill(&mut reading, &storages, &mut rules);
    for rule in &rules {
        Import {
            socket_dir: file.get_text("unix_socket_dir"),
            storages: &storages,
            rules: &rules,
        }
        .rule(&mut reading, rule);
    }
    reading.keep_server_logins();
    keep_settings(&mut reading);
    reading
}

/// Says where settings of the rule for all users count for users of their own, too.
fn keep_settings(reading: &mut Reading) {
    for database in reading.draft.databases() {
        let of_all = Target::Database(database.clone());
        let names = reading.draft.parameter_names(&of_all);
        for user in reading.draft.members(&database) {
            let own = reading
                .draft
                .parameter_names(&Target::Member(database.clone(), user.clone()));
            let foreign: Vec<_> = names
                .iter()
                .filter(|name| !own.contains(name))
                .cloned()
                .collect();
            if !foreign.is_empty() {
                let text = format!(
                    "{user} gets settings of the rule for all users of {database}, too: {}",
                    foreign.join(", ")
                );
                reading.decides(None, "options", text);
            }
        }
    }
}

fn of<'a>(file: &'a Fruit, name: &str) -> Vec<&'a Branch> {
    file.table()
        .iter()
        .filter(|branch| branch.name == name)
        .collect()
}

/// The first word behind a key.
fn word(branch: &Branch) -> String {
    branch
        .words
        .first()
        .map(|word| word.text.clone())
        .unwrap_or_default()
}

/// The name of a database or user; `None` for `default`.
fn name(branch: &Branch) -> Option<String> {
    let word = branch
        .words
        .first()
        .filter(|word| word.is_quoted || word.text != "default");
    word.map(|word| word.text.clone())
}

fn globals(reading: &mut Reading, file: &Fruit) {
    let mut set = |setting: &str, text: &str| {
        reading.draft.set(&Target::Globals, setting, text);
    };
    if let Some(Fruit::Integer(workers)) = file.get("workers") {
        set("workers", &workers.to_string());
    }
    if file.get_flag("log_debug") == Some(true) {
        set("verbose", "2");
    }
    if file.get_text("log_format").as_deref() == Some("json") {
        set("log_format", "json");
    }
    if file.get("promhttp_server_port").is_some() {
        set("http_listen_addr", "0.0.0.0");
    }
}

fn listens(reading: &mut Reading, file: &Fruit) {
    let mut addresses: Vec<String> = Vec::new();
    let mut first: Option<(String, String)> = None;
    for (at, listen) in of(file, "listen").into_iter().enumerate() {
        let path = format!("listen.{at}");
        let port = listen
            .fruit
            .get_text("port")
            .unwrap_or_else(|| "6432".into());
        let tls = listen
            .fruit
            .get_text("tls")
            .unwrap_or_else(|| "disable".into())
            .replace('_', "-");
        let is_tcp = listen.fruit.get("host").is_some();
        match &first {
            Some((other, mode)) if *other != port || (is_tcp && *mode != tls) => {
                let text = "there is one port and one mode of TLS here: the first block was taken";
                reading.decides(Some(&listen.place), &path, text);
                continue;
            }
            _ => {}
        }
        reading.section("listen", &path, listen.fruit.table(), &Target::Globals);
        if let Some(host) = listen.fruit.get_text("host") {
            addresses.push(host);
            first.get_or_insert((port.clone(), tls.clone()));
            if tls != "disable" {
                reading
                    .draft
                    .set(&Target::Globals, "client_tls_sslmode", tls);
            }
        }
        reading.draft.set(&Target::Globals, "listen_port", port);
    }
    reading
        .draft
        .set(&Target::Globals, "listen_addr", addresses.join(", "));
}

/// A rule of `database default` counts for a database with rules of its own, too, but for the clients that
/// those rules match: they are more special, whatever they say of users.
fn fill(reading: &mut Reading, storages: &[&Branch], rules: &mut Vec<Rule<'_>>) {
    let locals = storages
        .iter()
        .filter(|it| it.fruit.get_text("type").as_deref() == Some("local"));
    let locals: Vec<_> = locals.map(|storage| word(storage)).collect();
    let is_local = |rule: &Rule<'_>| {
        rule.text("storage")
            .is_some_and(|name| locals.contains(&name))
    };
    let mut databases: Vec<_> = rules
        .iter()
        .filter(|rule| !is_local(rule))
        .filter_map(|rule| rule.database.clone())
        .collect();
    databases.sort_unstable();
    databases.dedup();
    let general: Vec<_> = rules
        .iter()
        .filter(|rule| rule.database.is_none() && !rule.is_internal() && !is_local(rule))
        .cloned()
        .collect();
    for database in databases {
        let own = rules
            .iter()
            .filter(|rule| rule.database.as_ref() == Some(&database) && !rule.is_internal());
        let (of_all, of_users): (Vec<_>, Vec<_>) = own.partition(|rule| rule.user.is_none());
        if of_all.iter().any(|rule| !rule.is_restricted()) {
            continue;
        }
        // Some clients are served by a rule for all users, others by the general rules.
        let is_divided = of_all.iter().any(|rule| !rule.blocks());
        let has_all = |user: &Option<String>| {
            let mut of_user = of_users.iter().filter(|rule| rule.user == *user);
            of_user.any(|rule| !rule.is_restricted())
        };
        let missing: Vec<_> = general
            .iter()
            .filter(|rule| rule.user.is_none() || !has_all(&rule.user))
            .collect();
        if is_divided && !missing.is_empty() {
            let text = format!(
                "{database}: its rule for all users is for some clients, and rules of database default for \
                 the others: those of database default are left out there"
            );
            reading.decides(Some(of_all[0].place), &of_all[0].path, text);
            continue;
        }
        let copies: Vec<_> = missing
            .into_iter()
            .map(|rule| Rule {
                database: Some(database.clone()),
                is_copy: true,
                ..rule.clone()
            })
            .collect();
        rules.extend(copies);
    }
}

/// A rule: how clients of a database and user are served.
#[derive(Clone)]
struct Rule<'a> {
    /// `None`: all.
    database: Option<String>,
    /// `None`: all.
    user: Option<String>,
    connection: &'static str,
    address: String,
    path: String,
    place: &'a Place,
    table: &'a Fruit,
    /// True for a rule of `database default` in another database.
    is_copy: bool,
}

fn rules<'a>(reading: &mut Reading, file: &'a Fruit) -> Vec<Rule<'a>> {
    let mut rules = Vec::new();
    for database in of(file, "database") {
        let of_database = name(database);
        let shown = of_database.as_deref().unwrap_or("default");
        if of_database.as_deref() == Some("*") {
            let place = Some(&database.place);
            reading.is_taken(place, &format!("database.{shown}"), shown);
            continue;
        }
        if let Some(name) = of_database.as_deref().filter(|name| !is_console(name)) {
            reading.logins.name(name);
        }
        for branch in database.fruit.table() {
            let path = format!("database.{shown}.{}.{}", branch.name, word(branch));
            match branch.name.as_str() {
                "user" => {}
                "group" => {
                    let text = "groups of users are not imported: name the users, or auth_query; users \
                                without a rule of their own can't log in there";
                    reading.decides(Some(&branch.place), &path, text);
                    let rule = LoginRule::new(of_database.as_deref(), None, "reject");
                    reading.logins.push(LoginRule {
                        weight: Some(rule.weight() + 50),
                        ..rule
                    });
                    continue;
                }
                _ => {
                    let text = "Odyssey has no key of this name that is known here";
                    reading.say(Some(&branch.place), &path, Verdict::Unused, text);
                    continue;
                }
            }
            let mut rule = Rule {
                database: of_database.clone(),
                user: name(branch),
                connection: "default",
                address: "all".into(),
                path,
                place: &branch.place,
                table: &branch.fruit,
                is_copy: false,
            };
            match rule.select(branch) {
                Ok(()) => rules.push(rule),
                Err(why) => {
                    reading.decides(Some(&branch.place), &rule.path, why);
                    rule.refuse(reading);
                }
            }
        }
    }
    rules
}

impl Rule<'_> {
    /// Reads for which clients the rule is.
    fn select(&mut self, branch: &Branch) -> Result<(), String> {
        for word in branch.words.iter().skip(1) {
            match (word.is_quoted, word.text.as_str()) {
                (false, "default") => self.connection = "default",
                (false, "local") => self.connection = "local",
                (false, "host") => self.connection = "host",
                (false, "hostssl") => self.connection = "hostssl",
                (false, "hostnossl") => self.connection = "hostnossl",
                (_, address) => {
                    let (ip, mask) = address.split_once('/').unwrap_or((address, ""));
                    if ip.parse::<std::net::IpAddr>().is_err() || mask.is_empty() {
                        return Err(
                            "a rule for names of hosts is left out: write its addresses".into()
                        );
                    }
                    let is_mask = mask.contains(['.', ':']);
                    self.address = if is_mask {
                        format!("{ip} {mask}")
                    } else {
                        address.into()
                    };
                }
            }
        }
        Ok(())
    }

    fn text(&self, key: &str) -> Option<String> {
        self.table.get_text(key)
    }

    fn entry(&self) -> String {
        self.database.clone().unwrap_or_else(|| FALLBACK.into())
    }

    /// True for a rule that clients can't use.
    fn is_internal(&self) -> bool {
        self.text("pool_routing").as_deref() == Some("internal")
    }

    fn blocks(&self) -> bool {
        self.text("authentication").as_deref() == Some("block")
    }

    /// True for a user whose proof is another one than a password or a query.
    fn has_other_proof(&self) -> bool {
        let text = ["auth_pam_service", "auth_module", "ldap_endpoint_name"];
        let common_name = self.table.get("auth_common_name");
        text.iter().any(|key| self.table.get(key).is_some())
            || self.table.get_flag("enable_mdb_iamproxy_auth") == Some(true)
            || common_name.is_some_and(|name| name.text().as_deref() != Some("default"))
    }

    fn is_restricted(&self) -> bool {
        self.connection != "default" || self.address != "all"
    }

    fn login(&self, database: Option<&str>, method: &'static str) -> LoginRule {
        let mut rule = LoginRule {
            connection: self.connection,
            address: self.address.clone(),
            ..LoginRule::new(database, self.user.as_deref(), method)
        };
        if self.is_copy {
            // A rule of database default is less special than each rule of a database.
            rule.weight = Some(rule.weight() - 1000);
        }
        rule
    }

    /// The rule is left out, and so its clients are refused: a more general rule must not admit them.
    fn refuse(&self, reading: &mut Reading) {
        let rule = self.login(self.database.as_deref(), "reject");
        reading.logins.push(rule);
    }
}

struct Import<'a> {
    /// Where the sockets of servers without a host are.
    socket_dir: Option<String>,
    storages: &'a [&'a Branch],
    rules: &'a [Rule<'a>],
}

impl Import<'_> {
    fn storage(&self, rule: &Rule<'_>) -> Option<&Fruit> {
        let name = rule.text("storage")?;
        let found = self.storages.iter().find(|storage| word(storage) == name);
        found.map(|storage| &storage.fruit)
    }

    fn rule(&self, reading: &mut Reading, rule: &Rule<'_>) {
        let method = match rule.is_internal() {
            true => None,
            false => self.method(reading, rule),
        };
        let Some(storage) = self.storage(rule) else {
            let text = "its storage is not in the file: the rule is left out";
            rule.refuse(reading);
            return reading.decides(Some(rule.place), &rule.path, text);
        };
        if storage.get_text("type").as_deref() == Some("local") {
            return self.console(reading, rule, method);
        }
        if method == Some("reject") {
            rule.refuse(reading);
            return reading.say(
                Some(rule.place),
                &rule.path,
                Verdict::Mapped,
                "a rule: reject",
            );
        }
        if self.hosts(storage).is_empty() {
            let text =
                "its storage has no host, and there is no unix_socket_dir: the rule is left out";
            rule.refuse(reading);
            return reading.decides(Some(rule.place), &rule.path, text);
        }
        if rule.is_internal() {
            return self.internal(reading, rule, storage);
        }
        let method = method.filter(|_| !rule.has_other_proof());
        let Some(method) = method else {
            let text = "a password is not what lets these clients in: they are refused here";
            reading.decides(Some(rule.place), &rule.path, text);
            return rule.refuse(reading);
        };
        let database = rule.entry();
        if is_console(&database) {
            let text = format!("{database} is the console's name: the rule is left out");
            return reading.decides(Some(rule.place), &rule.path, text);
        }
        let target = Target::Database(database.clone());
        if !reading.draft.has(&target) {
            self.database(reading, rule, storage, &target);
        } else if self.place_of(rule) != self.first_of(&database) {
            let text = format!(
                "{database}: the users of a database are served by one storage here: this rule is left out there"
            );
            rule.refuse(reading);
            return reading.decides(Some(rule.place), &rule.path, text);
        }
        if let Some(user) = &rule.user {
            let member = Target::Member(database.clone(), user.clone());
            if reading.draft.has(&member) && !self.is_as_first(rule) {
                let text = "a user has one table in a database, and another rule says otherwise: this rule is \
                            left out, and its clients are refused";
                rule.refuse(reading);
                return reading.decides(Some(rule.place), &rule.path, text);
            }
        } else if self.is_second_for_all(rule) {
            let text = "a database has one table, and another rule for all users says otherwise: this rule \
                        is left out, and its clients are refused";
            rule.refuse(reading);
            return reading.decides(Some(rule.place), &rule.path, text);
        }
        reading
            .logins
            .push(rule.login(rule.database.as_deref(), method));
        let copies = self.hosts(storage).len();
        match &rule.user {
            Some(user) => {
                let member = Target::Member(database, user.clone());
                self.user(reading, rule, &member, method, copies);
            }
            None => self.all_users(reading, rule, &target, method, copies),
        }
    }

    /// True if a rule says the same as the first one of this user that admits clients.
    fn is_as_first(&self, rule: &Rule<'_>) -> bool {
        let mut rules = self.rules.iter().filter(|other| {
            let is_of_user = other.user == rule.user && other.entry() == rule.entry();
            is_of_user && !other.blocks() && !other.is_internal() && !other.has_other_proof()
        });
        let first = rules.find(|other| self.place_of(other) == self.first_of(&rule.entry()));
        first.is_none_or(|first| first.table.equals(rule.table))
    }

    fn is_second_for_all(&self, rule: &Rule<'_>) -> bool {
        !self.is_as_first(rule)
    }

    /// A rule for look-ups, which no client can use.
    fn internal(&self, reading: &mut Reading, rule: &Rule<'_>, storage: &Fruit) {
        let target = Target::Database(rule.entry());
        if !reading.draft.has(&target) && !is_console(&rule.entry()) {
            self.database(reading, rule, storage, &target);
        }
        let text = "for look-ups: no client can log in by it, as before";
        reading.say(Some(rule.place), &rule.path, Verdict::Mapped, text);
    }

    /// What says where a rule's servers are.
    fn place_of(&self, rule: &Rule<'_>) -> (Option<String>, Option<String>) {
        (rule.text("storage"), rule.text("storage_db"))
    }

    fn first_of(&self, database: &str) -> (Option<String>, Option<String>) {
        let is_remote = |rule: &&Rule<'_>| {
            let storage = self.storage(rule);
            storage.is_some_and(|it| it.get_text("type").as_deref() != Some("local"))
        };
        let mut rules = self.rules.iter().filter(|rule| rule.entry() == database);
        let first = rules.find(|rule| is_remote(rule) && !rule.blocks() && !rule.is_internal());
        first.map_or((None, None), |rule| self.place_of(rule))
    }

    /// How clients of a rule log in; `None` if they can't here.
    fn method(&self, reading: &mut Reading, rule: &Rule<'_>) -> Option<&'static str> {
        let authentication = rule.text("authentication").unwrap_or_default();
        let method = match authentication.as_str() {
            "none" => "trust",
            "block" => "reject",
            "clear_text" => "password",
            "md5" => "md5",
            "scram-sha-256" => "scram-sha-256",
            "cert" => "cert",
            other => {
                let text = format!("logins by \"{other}\" are not imported: the rule is left out");
                reading.decides(Some(rule.place), &rule.path, text);
                return None;
            }
        };
        Some(method)
    }

    /// A rule of the console.
    fn console(&self, reading: &mut Reading, rule: &Rule<'_>, method: Option<&'static str>) {
        let (Some(user), Some(method)) = (&rule.user, method) else {
            let text = "the console is open to all users there: here name those who may use it in \
                        admin_users, each with a password in [users]";
            return reading.decides(Some(rule.place), &rule.path, text);
        };
        let setting = match rule.text("role").as_deref() {
            Some("admin") => "admin_users",
            Some("notallow") => {
                let text = "this user can't use the console, as before";
                return reading.say(Some(rule.place), &rule.path, Verdict::Mapped, text);
            }
            _ => "stats_users",
        };
        let place = Some(rule.place);
        if rule.has_other_proof() || rule.text("auth_query").is_some() {
            let text = "a password is not what lets these clients in: they are refused here";
            return reading.decides(place, &rule.path, text);
        }
        if !reading.operator(place, &rule.path, setting, user) {
            return;
        }
        let password = rule.text("password").unwrap_or_default();
        reading.global_password(place, &rule.path, user, password);
        reading.logins.push(rule.login(Some(CONSOLE), method));
        let known = ["authentication", "password", "role", "pool", "storage"];
        for branch in rule.table.table() {
            if !known.contains(&branch.name.as_str()) {
                let text = "this key is not imported for users of the console";
                let key = format!("{}.{}", rule.path, branch.name);
                reading.say(Some(&branch.place), &key, Verdict::Lost, text);
            }
        }
        let text = format!("{setting}; the console's database is pgbouncer");
        reading.say(Some(rule.place), &rule.path, Verdict::Mapped, text);
    }

    fn hosts(&self, storage: &Fruit) -> Vec<ForeignHost> {
        let port = storage
            .get_text("port")
            .and_then(|port| port.parse().ok())
            .unwrap_or(5432);
        let hosts = storage.get_text("host").unwrap_or_default();
        let hosts = hosts
            .split(',')
            .map(str::trim)
            .filter(|host| !host.is_empty());
        let hosts: Vec<_> = hosts.map(|host| host_of(host, port)).collect();
        let Some(dir) = self.socket_dir.clone().filter(|_| hosts.is_empty()) else {
            return hosts;
        };
        let role = ServerRole::Auto;
        vec![ForeignHost {
            host: dir,
            port,
            role,
        }]
    }

    fn database(&self, reading: &mut Reading, rule: &Rule<'_>, storage: &Fruit, target: &Target) {
        reading.draft.begin(target);
        let hosts = self.hosts(storage);
        reading.write_hosts(target, &hosts);
        if let Some(name) = rule.text("storage_db").filter(|name| *name != rule.entry()) {
            reading.draft.set(target, "dbname", name);
        }
        let mode = storage
            .get_text("tls")
            .unwrap_or_else(|| "disable".into())
            .replace('_', "-");
        reading.draft.set(target, "sslmode", mode);
        for (key, setting) in [
            ("tls_ca_file", "sslrootcert"),
            ("tls_cert_file", "sslcert"),
            ("tls_key_file", "sslkey"),
        ] {
            if let Some(path) = storage.get_text(key) {
                reading.draft.set(target, setting, path);
            }
        }
        let of_database = || {
            self.rules
                .iter()
                .filter(|rule| rule.entry() == target_name(target))
        };
        let attrs = of_database().filter_map(|rule| rule.text("target_session_attrs"));
        let mut attrs: Vec<_> = attrs.filter(|attrs| attrs != "any").collect();
        attrs.dedup();
        if let (Some(first), true) = (attrs.first(), hosts.len() > 1) {
            reading.draft.set(target, "target_session_attrs", first);
            let text = "roles are found out: the hosts must be a primary and its physical standbys, and \
                        host_check_user a user who may look (docs/hosts.md)";
            let key = format!("{}.target_session_attrs", rule.path);
            reading.say(Some(rule.place), &key, Verdict::Mapped, text);
            if attrs.len() > 1 {
                let text =
                    "users of one database have several target_session_attrs: the first was taken";
                reading.decides(Some(rule.place), &rule.path, text);
            }
        }
        if of_database().all(|rule| rule.user.is_some() || rule.is_internal()) {
            reading.draft.set(target, "users_only", "1");
        }
    }

    /// What a rule says of a user, or of all users of a database.
    fn settings(&self, reading: &mut Reading, rule: &Rule<'_>, target: &Target, copies: usize) {
        let told = reading.findings.len();
        reading.section("user", &rule.path, rule.table.table(), target);
        if rule.is_copy {
            reading.findings.truncate(told);
        }
        let database = Target::Database(rule.entry());
        let is_placed = reading
            .draft
            .text(&database, "target_session_attrs")
            .is_some();
        let copies = if is_placed { 1 } else { copies.max(1) };
        let size = rule
            .table
            .get("pool_size")
            .and_then(Fruit::number)
            .unwrap_or(0.0);
        reading
            .draft
            .set(target, "pool_size", units::decimal(size * copies as f64));
        for options in ["options", "backend_startup_options"] {
            if let Some(table) = rule.table.get(options) {
                reading.parameters(target, &format!("{}.{options}", rule.path), table);
            }
        }
        if rule.table.get_flag("application_name_add_host") == Some(true) {
            reading.raise("application_name_add_host", 1.0);
        }
        for (key, setting) in [
            ("auth_query", "auth_query"),
            ("auth_query_db", "auth_dbname"),
            ("auth_query_user", "auth_user"),
        ] {
            let Some(text) = rule.text(key) else {
                continue;
            };
            if reading
                .draft
                .text(&database, setting)
                .is_some_and(|other| other != text)
            {
                let text =
                    format!("a database has one {setting} here: this user is left out there");
                reading.decides(Some(rule.place), &format!("{}.{key}", rule.path), text);
                if let Some(user) = &rule.user {
                    reading.logins.close(&rule.entry(), user);
                } else {
                    rule.refuse(reading);
                }
                continue;
            }
            reading.draft.set(&database, setting, text);
        }
        if let Some(user) = rule.text("auth_query_user") {
            self.asker(reading, rule, &user);
        }
        if let Some(user) = rule.text("storage_user") {
            reading.draft.set(target, "server_user", user);
        }
        if let Some(password) = rule.text("storage_password") {
            reading.draft.set(target, "server_password", password);
        }
    }

    /// The password of the user that asks for secrets.
    fn asker(&self, reading: &mut Reading, rule: &Rule<'_>, user: &str) {
        let own = self
            .rules
            .iter()
            .filter(|rule| rule.user.as_deref() == Some(user));
        let as_storage = self.rules.iter();
        let as_storage =
            as_storage.filter(|rule| rule.text("storage_user").as_deref() == Some(user));
        let own = own.filter_map(|rule| rule.text("storage_password").or(rule.text("password")));
        let password = as_storage
            .filter_map(|rule| rule.text("storage_password"))
            .chain(own)
            .next();
        match password {
            Some(password) => reading.asker(Some(rule.place), &rule.path, user, password),
            None => {
                let text = format!(
                    "{user} has no password in the file: add it in [users] if PostgreSQL asks"
                );
                reading.say(Some(rule.place), &rule.path, Verdict::Lost, text);
            }
        }
    }

    fn user(
        &self,
        reading: &mut Reading,
        rule: &Rule<'_>,
        member: &Target,
        method: &str,
        copies: usize,
    ) {
        let password = rule.text("password");
        if reading.draft.has(member) {
            let text = "a rule in auth_hba; its settings are those of the user's first rule";
            return reading.say(Some(rule.place), &rule.path, Verdict::Mapped, text);
        }
        reading.draft.begin(member);
        self.settings(reading, rule, member, copies);
        let asks = rule.text("auth_query").is_some();
        match password {
            // The query counts alone.
            Some(_) if asks => {}
            Some(password) => {
                reading.draft.set(member, "password", password);
            }
            None if ["trust", "cert"].contains(&method) => {
                reading.draft.set(member, "password", "");
            }
            None if asks => {}
            None => {
                let text = "this user has neither a password nor a query, and is left out";
                reading.decides(Some(rule.place), &rule.path, text);
                let database = rule.entry();
                let user = rule.user.clone().unwrap_or_default();
                reading.logins.close(&database, &user);
            }
        }
        if rule.text("storage_user").is_some() && rule.text("storage_password").is_none() {
            let password = rule.text("password").unwrap_or_default();
            reading.draft.set(member, "server_password", password);
        }
        if let Some(most) = rule.text("client_max") {
            reading
                .draft
                .set(member, "max_user_client_connections", most);
        }
    }

    /// The rule for users without a rule of their own.
    fn all_users(
        &self,
        reading: &mut Reading,
        rule: &Rule<'_>,
        database: &Target,
        method: &str,
        copies: usize,
    ) {
        self.settings(reading, rule, database, copies);
        if let Some(most) = rule.text("client_max") {
            reading
                .draft
                .set(database, "max_db_client_connections", most);
        }
        if method == "trust" {
            let text = "users without a password must be known here: name them in [users], each with \
                        password = \"\", or in auth_file";
            reading.decides(
                Some(rule.place),
                &format!("{}.authentication", rule.path),
                text,
            );
        } else if rule.text("password").is_some() {
            let text =
                "one password for all users is not imported: name them in [users], or auth_query";
            reading.decides(Some(rule.place), &format!("{}.password", rule.path), text);
        } else if rule.text("auth_query").is_none() && method != "cert" {
            let text = "nothing says how these users prove who they are: name them in [users], or auth_query";
            reading.decides(Some(rule.place), &rule.path, text);
        }
        if rule.is_restricted() && !rule.is_copy {
            let text = "a rule in auth_hba for these connections";
            reading.say(Some(rule.place), &rule.path, Verdict::Mapped, text);
        }
    }
}

fn target_name(target: &Target) -> &str {
    match target {
        Target::Database(name) => name,
        _ => "",
    }
}

/// One host: `(tcp://|unix://)?ADDRESS(:PORT)?(:ZONE)?`, with brackets around IPv6.
fn host_of(text: &str, port: u16) -> ForeignHost {
    let text = text
        .trim_start_matches("tcp://")
        .trim_start_matches("unix://");
    let (host, rest) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((host, rest)) => (host, rest.trim_start_matches(':')),
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let own = rest.split(':').next().and_then(|port| port.parse().ok());
    ForeignHost {
        host: host.into(),
        port: own.unwrap_or(port),
        role: ServerRole::Auto,
    }
}
