//! PgDoorman: `pg_doorman.toml` or `pg_doorman.yaml`.

use crate::draft::Target;
use crate::finding::Verdict;
use crate::hosts::{ForeignHost, ServerRole};
use crate::logins::{CONSOLE, LoginRule};
use crate::pg_doorman_keys::KEYS;
use crate::reading::{Reading, joined};
use crate::tree::{Branch, Fruit};

pub(crate) fn import(file: &Fruit) -> Reading {
    let mut reading = Reading::new("PgDoorman", KEYS);
    reading.section("", "", file.table(), &Target::Globals);
    let nothing = Fruit::Table(Vec::new());
    let general = file.get("general").unwrap_or(&nothing);
    reading.section("general", "general", general.table(), &Target::Globals);
    globals(&mut reading, general);
    if let Some(web) = file.get("web").or(file.get("prometheus")) {
        reading.section("web", "web", web.table(), &Target::Globals);
        if web.get_flag("enabled") == Some(true) {
            let port = web.get_text("port").unwrap_or_else(|| "9127".into());
            reading
                .draft
                .set(&Target::Globals, "http_listen_port", port);
            reading.write_http_address(&web.get_text("host").unwrap_or_default());
        }
    }
    rules(&mut reading, general);
    let pools = file.get("pools").map(Fruit::table).unwrap_or_default();
    let pools: Vec<_> = pools.iter().collect();
    let method = method(&pools);
    let addresses = general.get("hba").map(Fruit::list).unwrap_or_default();
    let mut addresses: Vec<_> = addresses.iter().filter_map(Fruit::text).collect();
    if addresses.is_empty() {
        addresses.push("all".into());
    }
    let has_socket = general
        .get_text("unix_socket_dir")
        .is_some_and(|dir| !dir.is_empty());
    // The list does not count for the unix socket.
    let by_socket = has_socket && addresses != ["all"];
    let clients = Clients {
        method,
        addresses,
        by_socket,
    };
    for branch in pools {
        pool(&mut reading, branch, general, &clients);
    }
    admin(&mut reading, general, &clients);
    reading.keep_server_logins();
    reading
}

fn globals(reading: &mut Reading, general: &Fruit) {
    let mut set = |setting: &str, text: &str| {
        reading.draft.set(&Target::Globals, setting, text);
    };
    if let Some(backlog) = general.get_text("backlog").filter(|backlog| backlog != "0") {
        set("listen_backlog", &backlog);
    }
    if general.get("tls_certificate").is_some() {
        let mode = general
            .get_text("tls_mode")
            .unwrap_or_else(|| "allow".into());
        set("client_tls_sslmode", &mode.to_ascii_lowercase());
    }
    if let Some(name) = general.get_text("syslog_prog_name") {
        set("syslog", "1");
        set("syslog_ident", &name);
    }
}

/// Rules of the file's own.
fn rules(reading: &mut Reading, general: &Fruit) {
    let Some(rules) = general.get("pg_hba") else {
        return;
    };
    reading.logins.begin_written();
    if rules.get("path").is_some() {
        let text = "the rules of a file are not imported, and nobody can log in: write its lines as content";
        return reading.decides(None, "general.pg_hba.path", text);
    }
    let content = rules
        .get_text("content")
        .or(rules.text())
        .unwrap_or_default();
    for line in content.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if words.is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        match rule(&words) {
            Some(rule) => reading.logins.push_written(rule),
            None => {
                let text = "a rule that is not understood is left out, and so are all behind it";
                return reading.decides(None, "general.pg_hba", text);
            }
        }
    }
}

/// A rule of the file's own. A name there is `all`, or one exact name.
fn rule(words: &[&str]) -> Option<LoginRule> {
    let (kind, database, user, rest) = match words {
        [kind, database, user, rest @ ..] => (*kind, *database, *user, rest),
        _ => return None,
    };
    if [database, user]
        .iter()
        .any(|name| name.contains(['"', '#']))
    {
        return None;
    }
    let named = |name: &str| Some(name.to_owned()).filter(|name| name != "all");
    let connection = ["local", "host", "hostssl", "hostnossl"]
        .into_iter()
        .find(|it| *it == kind)?;
    let (address, method, rest) = match (connection, rest) {
        ("local", [method, rest @ ..]) => ("all", *method, rest),
        ("local", _) => return None,
        (_, [address, method, rest @ ..]) => (*address, *method, rest),
        _ => return None,
    };
    if rest.first().is_some_and(|word| !word.starts_with('#')) {
        return None;
    }
    let (ip, bits) = address.split_once('/').unwrap_or((address, "0"));
    let is_network = ip.parse::<std::net::IpAddr>().is_ok() && bits.parse::<u8>().is_ok();
    if !(address == "all" || (is_network && address.contains('/'))) {
        return None;
    }
    let method = ["trust", "md5", "scram-sha-256", "reject"]
        .into_iter()
        .find(|it| *it == method)?;
    let database = named(database).map(|name| match name.as_str() {
        "pgdoorman" => CONSOLE.into(),
        _ => name,
    });
    Some(LoginRule {
        connection,
        database,
        user: named(user),
        address: address.into(),
        method,
        weight: None,
    })
}

/// How all clients log in: by MD5 if a secret is made for that, which leaves SCRAM to the others.
fn method(pools: &[&Branch]) -> &'static str {
    let needs_md5 = |pool: &&&Branch| {
        let users = pool
            .fruit
            .get("users")
            .map(Fruit::entries)
            .unwrap_or_default();
        let mut secrets = users
            .iter()
            .filter_map(|(_, user)| user.get_text("password"));
        pool.fruit.get("auth_query").is_some() || secrets.any(|secret| is_md5(&secret))
    };
    if pools.iter().any(|pool| needs_md5(&pool)) {
        "md5"
    } else {
        "scram-sha-256"
    }
}

fn is_md5(secret: &str) -> bool {
    secret.len() == 35 && secret.starts_with("md5")
}

/// How clients log in, and from where.
struct Clients {
    method: &'static str,
    addresses: Vec<String>,
    by_socket: bool,
}

impl Clients {
    fn allow(&self, reading: &mut Reading, database: &str, user: Option<&str>) {
        for address in &self.addresses {
            reading.logins.push(LoginRule {
                connection: if address == "all" { "default" } else { "host" },
                address: address.clone(),
                ..LoginRule::new(Some(database), user, self.method)
            });
        }
        if self.by_socket {
            reading.logins.push(LoginRule {
                connection: "local",
                ..LoginRule::new(Some(database), user, self.method)
            });
        }
    }
}

fn admin(reading: &mut Reading, general: &Fruit, clients: &Clients) {
    let name = general
        .get_text("admin_username")
        .unwrap_or_else(|| "admin".into());
    let Some(password) = general.get_text("admin_password") else {
        let text = "its default is \"admin\": there is no console until admin_users and a password are set";
        return reading.say(None, "general.admin_password", Verdict::Lost, text);
    };
    if !reading.operator(None, "general.admin_username", "admin_users", &name) {
        return;
    }
    reading.global_password(None, "general.admin_password", &name, password);
    clients.allow(reading, CONSOLE, Some(&name));
}

fn pool(reading: &mut Reading, branch: &Branch, general: &Fruit, clients: &Clients) {
    let (name, table) = (branch.name.as_str(), &branch.fruit);
    let path = joined("pools", name);
    if reading.is_taken(Some(&branch.place), &path, name) {
        return;
    }
    let target = Target::Database(name.into());
    let host = table
        .get_text("server_host")
        .unwrap_or_else(|| "127.0.0.1".into());
    let port = table
        .get_text("server_port")
        .and_then(|port| port.parse().ok());
    let host = ForeignHost {
        host,
        port: port.unwrap_or(5432),
        role: ServerRole::Auto,
    };
    reading.write_hosts(&target, &[host]);
    reading.section("pools.*", &path, table.table(), &target);
    if reading.draft.text(&target, "dbname") == Some(name) {
        reading.draft.unset(&target, "dbname");
    }
    for of in [Some(general), Some(table)].into_iter().flatten() {
        if let Some(parameters) = of.get("startup_parameters") {
            reading.parameters(&target, &joined(&path, "startup_parameters"), parameters);
        }
    }
    match table.get("auth_query") {
        Some(query) => {
            let path = joined(&path, "auth_query");
            reading.section("pools.*.auth_query", &path, query.table(), &target);
            if let Some(user) = query.get_text("user") {
                let password = query.get_text("password").unwrap_or_default();
                reading.asker(
                    Some(&branch.place),
                    &joined(&path, "password"),
                    &user,
                    password,
                );
            }
            clients.allow(reading, name, None);
        }
        None => {
            reading.draft.set(&target, "users_only", "1");
        }
    }
    let users = table.get("users").map(Fruit::entries).unwrap_or_default();
    for (number, entry) in users {
        let path = format!("{path}.users.{number}");
        user(reading, &path, name, entry, branch, clients);
    }
}

fn user(
    reading: &mut Reading,
    path: &str,
    database: &str,
    entry: &Fruit,
    pool: &Branch,
    clients: &Clients,
) {
    let place = Some(&pool.place);
    let Some(name) = entry.get_text("username") else {
        return reading.decides(place, path, "a user without username is left out");
    };
    let member = Target::Member(database.into(), name.clone());
    if reading.draft.has(&member) {
        let text = format!("{name} stands there twice in this pool: the first was taken");
        return reading.decides(place, path, text);
    }
    reading.draft.begin(&member);
    reading.section("pools.*.users.*", path, entry.table(), &member);
    match entry.get_text("password") {
        Some(key) if key.starts_with("jwt-pkey-fpath:") => {
            let text = format!(
                "{name} logs in by a token there: give it a password, or write a rule jwt with issuer, \
                 audience and a set of keys (docs/tokens.md)"
            );
            reading.decides(place, path, text);
            return reading.logins.close(database, &name);
        }
        Some(password) => {
            reading.draft.set(&member, "password", password);
        }
        None => {}
    }
    if entry.get("auth_pam_service").is_some() {
        return reading.logins.close(database, &name);
    }
    clients.allow(reading, database, Some(&name));
}
