//! Who may log in where, and how: one `auth_type` if all clients log in alike, else rules.

use crate::draft::{Draft, Target};
use crate::finding::Verdict;
use crate::reading::Reading;

/// Clients that log in alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LoginRule {
    /// The kind of connection: `host`, `hostssl`, `hostnossl`, `local`.
    pub(crate) connection: &'static str,
    /// `None`: all.
    pub(crate) database: Option<String>,
    /// `None`: all.
    pub(crate) user: Option<String>,
    /// The clients' addresses, for connections that have one.
    pub(crate) address: String,
    /// The method in a rule's words.
    pub(crate) method: &'static str,
}

/// Who may log in, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logins {
    rules: Vec<LoginRule>,
    /// Rules that the files have themselves.
    written: Vec<String>,
    /// A file of rules.
    file: Option<String>,
}

/// The console's database in rules.
pub(crate) const CONSOLE: &str = "pgbouncer";

impl Logins {
    /// A user of a database who logs in by this method, from anywhere.
    pub(crate) fn add(&mut self, database: &str, user: &str, method: &'static str) {
        self.push(LoginRule {
            connection: "host",
            database: Some(database.into()),
            user: Some(user.into()),
            address: "all".into(),
            method,
        });
    }

    pub(crate) fn push(&mut self, rule: LoginRule) {
        if !self.rules.contains(&rule) {
            self.rules.push(rule);
        }
    }

    /// A rule as it stands in a file of rules. Those are all rules then.
    pub(crate) fn push_written(&mut self, line: &str) {
        self.written.push(line.into());
    }

    /// The rules stand in a file.
    pub(crate) fn use_file(&mut self, path: &str) {
        self.file = Some(path.into());
    }

    /// The methods in use.
    fn methods(&self) -> Vec<&'static str> {
        let mut methods: Vec<_> = self.rules.iter().map(|rule| rule.method).collect();
        methods.sort_unstable();
        methods.dedup();
        methods
    }
}

impl Reading {
    /// Writes how clients log in.
    pub(crate) fn write_logins(&mut self) {
        self.keep_operators_out();
        let logins = std::mem::take(&mut self.logins);
        if let Some(file) = &logins.file {
            self.draft.set(&Target::Globals, "auth_type", "hba");
            self.draft.set(&Target::Globals, "auth_hba_file", file);
            return;
        }
        let is_odd = |name: &Option<String>| {
            let name = name.as_deref().unwrap_or_default();
            name.contains(|c: char| c == '"' || c.is_control())
        };
        let (odd, rules): (Vec<_>, Vec<_>) = logins
            .rules
            .into_iter()
            .partition(|rule| is_odd(&rule.database) || is_odd(&rule.user));
        for rule in odd {
            let user = rule.user.unwrap_or_default();
            let text = format!("{user}: a name with a quote can't stand in a rule: no login");
            self.decides(None, "", text);
        }
        let logins = Logins { rules, ..logins };
        let is_plain = |rule: &LoginRule| rule.connection == "host" && rule.address == "all";
        let is_plain = logins.rules.iter().all(is_plain) && logins.written.is_empty();
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
                // The first rule that matches counts.
                rules.sort_by_key(|rule| {
                    let unset = (rule.database.is_none(), rule.user.is_none());
                    (unset, rule.address == "all", rule.connection == "host")
                });
                let own = rules.iter().flat_map(|rule| lines(&self.draft, rule));
                let all: Vec<_> = match &*logins.written {
                    [] => own.collect(),
                    written => written.to_vec(),
                };
                self.draft.set(&Target::Globals, "auth_type", "hba");
                self.draft.set(&Target::Globals, "auth_hba", all.join("\n"));
            }
        }
    }
}

impl Reading {
    /// The password of a user of the console counts for all databases here. Those that are open to all
    /// users must not take it.
    fn keep_operators_out(&mut self) {
        let of_console = |rule: &&LoginRule| rule.database.as_deref() == Some(CONSOLE);
        let operators = self.logins.rules.iter().filter(of_console);
        let mut operators: Vec<_> = operators.filter_map(|rule| rule.user.clone()).collect();
        operators.dedup();
        for database in self.draft.databases() {
            let target = Target::Database(database.clone());
            let is_open = self.draft.text(&target, "users_only").is_none();
            for user in operators.iter().filter(|_| is_open) {
                if self
                    .draft
                    .has(&Target::Member(database.clone(), user.clone()))
                {
                    continue;
                }
                self.logins.push(LoginRule {
                    connection: "host",
                    database: Some(database.clone()).filter(|name| name != "*"),
                    user: Some(user.clone()),
                    address: "all".into(),
                    method: "reject",
                });
                let text = format!(
                    "{user} uses the console alone: PostgreSQL's user of this name can't use the database {database}"
                );
                self.say(None, "the console", Verdict::Lost, text);
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
    let mut lines = vec![format!(
        "{connection} {database} {user} {} {method}",
        rule.address
    )];
    let has_socket = draft
        .text(&Target::Globals, "unix_socket_dir")
        .is_some_and(|dir| !dir.is_empty());
    if has_socket && connection == "host" && rule.address == "all" {
        lines.push(local);
    }
    lines
}
