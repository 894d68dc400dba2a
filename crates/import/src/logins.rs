//! Who may log in where, and how: one `auth_type` if all clients log in alike, else rules.

use std::collections::HashSet;

use howdah_config::{Place, is_console};

use crate::draft::{Draft, Target};
use crate::finding::Verdict;
use crate::reading::Reading;

/// Clients that log in alike.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LoginRule {
    /// The kind of connection: `host`, `hostssl`, `hostnossl`, `local`, or `default` for all.
    pub(crate) connection: &'static str,
    /// `None`: all.
    pub(crate) database: Option<String>,
    /// `None`: all.
    pub(crate) user: Option<String>,
    /// The clients' addresses, for connections that have one.
    pub(crate) address: String,
    /// The method in a rule's words.
    pub(crate) method: &'static str,
    /// How special the rule is, if its columns do not tell.
    pub(crate) weight: Option<i32>,
}

impl LoginRule {
    /// A rule for all connections.
    pub(crate) fn new(database: Option<&str>, user: Option<&str>, method: &'static str) -> Self {
        LoginRule {
            connection: "default",
            database: database.map(String::from),
            user: user.map(String::from),
            address: "all".into(),
            method,
            weight: None,
        }
    }

    fn is_plain(&self) -> bool {
        self.connection == "default" && self.address == "all"
    }

    /// How special the rule is.
    pub(crate) fn weight(&self) -> i32 {
        self.weight.unwrap_or_else(|| {
            [
                (self.database.is_some(), 1000),
                (self.user.is_some(), 100),
                (self.address != "all", 10),
                (self.connection != "default", 1),
            ]
            .into_iter()
            .filter_map(|(counts, weight)| counts.then_some(weight))
            .sum()
        })
    }

    /// The place among the rules, of which the first that matches counts: rules of a named database come
    /// first, then special ones before general ones, and what refuses before what admits.
    fn order(&self) -> (bool, i32, bool) {
        (
            self.database.is_none(),
            -self.weight(),
            self.method != "reject",
        )
    }
}

/// Who may log in, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logins {
    rules: Vec<LoginRule>,
    /// The same rules, to find them.
    known: HashSet<LoginRule>,
    /// Rules that the files have themselves, in their order.
    written: Vec<LoginRule>,
    /// True if the files have rules themselves. Whom those do not name can't log in.
    has_written: bool,
    /// Users who can't log in to a database, because what admits them there is not imported.
    closed: Vec<(String, String)>,
    /// Databases that the files name, whether they are imported or not.
    named: Vec<String>,
    /// Databases that are left out in the end.
    left_out: Vec<String>,
    /// Users whose password in `[users]` is for look-ups.
    askers: Vec<String>,
}

/// The console's database in rules.
pub(crate) const CONSOLE: &str = "pgbouncer";

impl Logins {
    /// A user of a database who logs in by this method, from anywhere.
    pub(crate) fn add(&mut self, database: &str, user: &str, method: &'static str) {
        self.push(LoginRule::new(Some(database), Some(user), method));
    }

    pub(crate) fn push(&mut self, rule: LoginRule) {
        if self.known.insert(rule.clone()) {
            self.rules.push(rule);
        }
    }

    /// From now on the rules of the files count alone.
    pub(crate) fn begin_written(&mut self) {
        self.has_written = true;
    }

    /// A rule of the files' own.
    pub(crate) fn push_written(&mut self, rule: LoginRule) {
        self.written.push(rule);
    }

    /// A database is left out, whatever is said of it yet.
    pub(crate) fn leave_out(&mut self, database: &str) {
        self.left_out.push(database.into());
    }

    /// A user can't log in to a database, whatever other rules say.
    pub(crate) fn close(&mut self, database: &str, user: &str) {
        self.closed.push((database.into(), user.into()));
    }

    /// A database that the files name: the entry for all others does not serve its clients.
    pub(crate) fn name(&mut self, database: &str) {
        self.named.push(database.into());
    }

    /// The methods in use.
    fn methods(&self) -> Vec<&'static str> {
        let mut methods: Vec<_> = self.rules.iter().map(|rule| rule.method).collect();
        methods.sort_unstable();
        methods.dedup();
        methods
    }
}

/// True for a name that can't stand in a rule.
fn is_odd(name: &str) -> bool {
    name.contains(|c: char| c == '"' || c.is_control())
}

impl Reading {
    /// Writes how clients log in.
    pub(crate) fn write_logins(&mut self) {
        for database in std::mem::take(&mut self.logins.left_out) {
            self.draft.remove_database(&database);
        }
        self.remove_odd_names();
        self.remove_closed();
        self.remove_borrowed_passwords();
        self.keep_global_users_out();
        self.keep_databases_apart();
        let logins = std::mem::take(&mut self.logins);
        let is_plain = !logins.has_written && logins.rules.iter().all(LoginRule::is_plain);
        match (is_plain, &*logins.methods()) {
            (true, []) => {
                self.draft
                    .set(&Target::Globals, "auth_type", "scram-sha-256");
            }
            (true, [method]) if !["cert", "reject"].contains(method) => {
                let auth_type = if *method == "password" {
                    "plain"
                } else {
                    method
                };
                self.draft.set(&Target::Globals, "auth_type", auth_type);
            }
            // A clear password then serves an MD5 exchange, and a SCRAM secret SCRAM.
            (true, ["md5", "scram-sha-256"]) => {
                self.draft.set(&Target::Globals, "auth_type", "md5");
            }
            _ => {
                let mut rules = logins.rules;
                rules.sort_by_key(LoginRule::order);
                if logins.has_written {
                    rules.retain(|rule| rule.method == "reject");
                    rules.extend(logins.written);
                }
                let all = rules.iter().flat_map(|rule| lines(&self.draft, rule));
                let mut all: Vec<_> = all.collect();
                if all.is_empty() {
                    all.push("host all all all reject".into());
                }
                self.draft.set(&Target::Globals, "auth_type", "hba");
                self.draft.set(&Target::Globals, "auth_hba", all.join("\n"));
            }
        }
    }

    /// A name that can't stand in a rule would be admitted by a rule for all.
    fn remove_odd_names(&mut self) {
        let rules = std::mem::take(&mut self.logins.rules);
        for rule in rules {
            let database = rule.database.as_deref().unwrap_or("*");
            let user = rule.user.as_deref().unwrap_or_default();
            if is_odd(database) {
                let text = "a database whose name has a quote is left out";
                self.decides(None, "", text);
                self.draft.remove_database(database);
            } else if is_odd(user) {
                let text = "a user whose name has a quote is left out, and so are databases that are \
                            open to all users";
                self.decides(None, "", text);
                for database in self.draft.databases() {
                    if self.is_open(&database) {
                        self.draft.remove_database(&database);
                    }
                    self.draft
                        .remove(&Target::Member(database.clone(), user.into()));
                }
            } else {
                self.logins.rules.push(rule);
            }
        }
    }

    /// Takes away the users whose proof is not imported.
    fn remove_closed(&mut self) {
        let closed = std::mem::take(&mut self.logins.closed);
        let all: HashSet<_> = closed.iter().cloned().collect();
        self.logins.rules.retain(|rule| {
            let database = rule.database.as_deref().unwrap_or("*").to_owned();
            let user = rule.user.clone().unwrap_or_default();
            rule.method == "reject" || !all.contains(&(database, user))
        });
        for (database, user) in closed {
            self.draft
                .remove(&Target::Member(database.clone(), user.clone()));
            let needs_rule = self.is_open(&database) || self.logins.has_written || database == "*";
            if needs_rule && !is_odd(&user) {
                self.refuse(&database, &user);
            }
        }
    }

    /// A user without a password of the database's own would log in with that of `[users]`.
    fn remove_borrowed_passwords(&mut self) {
        for database in self.draft.databases() {
            for user in self.draft.members(&database) {
                let member = Target::Member(database.clone(), user.clone());
                let known = Target::User(user.clone());
                let has = |target: &Target| self.draft.text(target, "password").is_some();
                if has(&member) || !has(&known) {
                    continue;
                }
                let text = format!(
                    "{user} has no password for {database}, and that of [users] is for the console or for \
                     look-ups: this user is left out there"
                );
                self.decides(None, "", text);
                self.logins.close(&database, &user);
            }
        }
        self.remove_closed();
    }

    /// A password in `[users]` counts for all databases here. Those that are open to all users must not
    /// take one that is for the console, or for the look-ups of other databases.
    fn keep_global_users_out(&mut self) {
        let mut operators: Vec<String> = Vec::new();
        for setting in ["admin_users", "stats_users"] {
            let names = self
                .draft
                .text(&Target::Globals, setting)
                .unwrap_or_default();
            operators.extend(names.split(',').map(|name| name.trim().to_owned()));
        }
        operators.retain(|name| !name.is_empty());
        let mut seen = HashSet::new();
        operators.retain(|name| seen.insert(name.clone()));
        let askers = std::mem::take(&mut self.logins.askers);
        let askers: Vec<_> = askers
            .into_iter()
            .filter(|name| seen.insert(name.clone()))
            .collect();
        for database in self.draft.databases() {
            if !self.is_open(&database) {
                continue;
            }
            for user in operators.iter().chain(&askers) {
                let target = Target::Database(database.clone());
                let asks = |target: &Target| self.draft.text(target, "auth_user") == Some(user);
                let is_own = askers.contains(user) && (asks(&target) || asks(&Target::Globals));
                let member = Target::Member(database.clone(), user.clone());
                if is_own || self.draft.has(&member) {
                    continue;
                }
                self.refuse(&database, user);
                let text = if askers.contains(user) {
                    format!(
                        "{user} asks for secrets elsewhere: this user can't use the database {database}"
                    )
                } else {
                    format!(
                        "{user} uses the console alone: PostgreSQL's user of this name can't use the database {database}"
                    )
                };
                self.say(None, "the console", Verdict::Lost, text);
            }
        }
    }

    /// A rule for all databases counts neither for the console nor for databases with rules of their own.
    fn keep_databases_apart(&mut self) {
        let mut rules = self.logins.rules.iter().chain(&self.logins.written);
        if rules.any(|rule| rule.database.is_none()) {
            let mut names = std::mem::take(&mut self.logins.named);
            names.retain(|name| !is_odd(name));
            if !self.logins.has_written {
                names.push(CONSOLE.into());
            }
            for name in names {
                let weight = Some(-1);
                self.logins.push(LoginRule {
                    weight,
                    ..LoginRule::new(Some(&name), None, "reject")
                });
            }
        }
    }

    /// Refuses a user in a database.
    fn refuse(&mut self, database: &str, user: &str) {
        let database = Some(database).filter(|name| *name != "*");
        let weight = Some(5000);
        self.logins.push(LoginRule {
            weight,
            ..LoginRule::new(database, Some(user), "reject")
        });
    }

    /// True for a database for which users without a table may log in.
    fn is_open(&self, database: &str) -> bool {
        let target = Target::Database(database.into());
        self.draft.text(&target, "users_only").is_none()
    }

    /// Sets the password of a user of the console, or of one who asks for secrets. A user has one.
    pub(crate) fn global_password(
        &mut self,
        place: Option<&Place>,
        key: &str,
        user: &str,
        password: String,
    ) {
        let known = Target::User(user.into());
        match self.draft.text(&known, "password") {
            Some(other) if *other != password => {
                let text = format!(
                    "{user} has several passwords, and the first was taken: use different names for \
                     the console and for the auth_user of each cluster"
                );
                self.decides(place, key, text);
            }
            Some(_) => {}
            None => {
                self.draft.set(&known, "password", password);
            }
        }
    }

    /// Sets the password of a user who asks for secrets.
    pub(crate) fn asker(&mut self, place: Option<&Place>, key: &str, user: &str, password: String) {
        self.global_password(place, key, user, password);
        self.logins.askers.push(user.into());
    }

    /// A name of an operator. The settings for them are lists, so some names can't stand there.
    pub(crate) fn operator(
        &mut self,
        place: Option<&Place>,
        key: &str,
        setting: &str,
        user: &str,
    ) -> bool {
        if user.contains(|c: char| c == ',' || c == '"' || c.is_whitespace() || c.is_control()) {
            let text = format!(
                "a name with a blank, a comma or a quote can't stand in {setting}: no console for it"
            );
            self.decides(place, key, text);
            return false;
        }
        let others = self.draft.text(&Target::Globals, setting);
        let all = others.map_or_else(|| user.to_owned(), |others| format!("{others}, {user}"));
        self.draft.set(&Target::Globals, setting, all);
        true
    }

    /// True for a name of a database that has another meaning here: this one is left out.
    pub(crate) fn is_taken(&mut self, place: Option<&Place>, key: &str, name: &str) -> bool {
        let why = match name {
            "*" => "stands for all databases without an entry here",
            name if is_console(name) => "is the console's name",
            _ => return false,
        };
        self.decides(
            place,
            key,
            format!("{name} {why}: the database is left out"),
        );
        true
    }

    /// The rule for all users has a login for servers that users of their own do not have.
    pub(crate) fn keep_server_logins(&mut self) {
        for database in self.draft.databases() {
            let target = Target::Database(database.clone());
            if self.draft.text(&target, "server_user").is_none() {
                continue;
            }
            for user in self.draft.members(&database) {
                let member = Target::Member(database.clone(), user.clone());
                if self.draft.text(&member, "server_user").is_none() {
                    self.draft.set(&member, "server_user", user);
                }
            }
        }
    }
}

/// The lines of a rule. Where there is a unix socket, one from anywhere counts for that, too.
fn lines(draft: &Draft, rule: &LoginRule) -> Vec<String> {
    let quoted = |name: &Option<String>| match name {
        Some(name) => format!("\"{name}\""),
        None => "all".into(),
    };
    let (database, user) = (quoted(&rule.database), quoted(&rule.user));
    let (connection, method) = (rule.connection, rule.method);
    let local = format!("local {database} {user} {method}");
    if connection == "local" {
        return vec![local];
    }
    let is_default = connection == "default";
    let connection = if is_default { "host" } else { connection };
    let mut lines = vec![format!(
        "{connection} {database} {user} {} {method}",
        rule.address
    )];
    let has_socket = draft
        .text(&Target::Globals, "unix_socket_dir")
        .is_some_and(|dir| !dir.is_empty());
    if has_socket && is_default && rule.address == "all" {
        lines.push(local);
    }
    lines
}
