//! PgCat: `pgcat.toml`.

use howdah_config::Place;

use crate::draft::Target;
use crate::finding::Verdict;
use crate::hosts::{ForeignHost, ServerRole};
use crate::keys::SHARDING;
use crate::logins::CONSOLE;
use crate::pgcat_keys::KEYS;
use crate::reading::{Reading, joined, said};
use crate::tree::{Branch, Fruit};

pub(crate) fn import(file: &Fruit) -> Reading {
    let mut reading = Reading::new("PgCat", KEYS);
    reading.section("", "", file.table(), &Target::Globals);
    let nothing = Fruit::Table(Vec::new());
    let general = file.get("general").unwrap_or(&nothing);
    reading.section("general", "general", general.table(), &Target::Globals);
    reading.without_limits();
    if general
        .get("autoreload")
        .is_some_and(|it| it.flag() == Some(true) || it.number().is_some_and(|period| period > 0.0))
    {
        reading.draft.set(&Target::Globals, "reload_on_change", "1");
    }
    tls(&mut reading, general);
    exporter(&mut reading, general);
    admin(&mut reading, general);
    let proof = asks_servers(&mut reading, general, general, &Target::Globals);
    let plugins = file.get("plugins");
    for pool in file.get("pools").map(Fruit::table).unwrap_or_default() {
        Pool::import(&mut reading, pool, general, plugins, proof);
    }
    if let Some(plugins) = plugins {
        let path = "plugins";
        reading.section(path, path, plugins.table(), &Target::Globals);
    }
    reading
}

fn tls(reading: &mut Reading, general: &Fruit) {
    if general.get("tls_certificate").is_some() {
        reading
            .draft
            .set(&Target::Globals, "client_tls_sslmode", "prefer");
    }
    let has_tls = general.get_flag("server_tls") == Some(true);
    let verifies = general.get_flag("verify_server_certificate") == Some(true);
    let mode = match (has_tls, verifies) {
        (true, true) => "verify-full",
        (true, false) => "prefer",
        (false, _) => "disable",
    };
    reading
        .draft
        .set(&Target::Globals, "server_tls_sslmode", mode);
    if general.get("server_tls").is_none() {
        let text = "server_tls_sslmode = \"disable\"";
        reading.say(None, "general.server_tls", Verdict::Default, text);
    }
}

fn exporter(reading: &mut Reading, general: &Fruit) {
    if general.get_flag("enable_prometheus_exporter") != Some(true) {
        return;
    }
    let port = general.get_text("prometheus_exporter_port");
    let port = port.unwrap_or_else(|| "9930".into());
    reading
        .draft
        .set(&Target::Globals, "http_listen_port", port);
    let host = general.get_text("host").unwrap_or_else(|| "0.0.0.0".into());
    reading.write_http_address(&host);
}

fn admin(reading: &mut Reading, general: &Fruit) {
    let Some(name) = general.get_text("admin_username") else {
        return;
    };
    if !reading.operator(None, "general.admin_username", "admin_users", &name) {
        return;
    }
    let password = general.get_text("admin_password").unwrap_or_default();
    reading.global_password(None, "general.admin_password", &name, password);
    let trusts = general.get_text("admin_auth_type").as_deref() == Some("trust");
    let method = if trusts { "trust" } else { "scram-sha-256" };
    reading.logins.add(CONSOLE, &name, method);
}

/// Reads the query that finds passwords. True if there is one.
fn asks_servers(reading: &mut Reading, general: &Fruit, table: &Fruit, target: &Target) -> bool {
    let keys = ["auth_query", "auth_query_user", "auth_query_password"];
    if keys.iter().all(|key| table.get(key).is_none()) {
        return false;
    }
    let text = |key: &str| table.get(key).or(general.get(key)).and_then(Fruit::text);
    let (Some(query), Some(user)) = (text("auth_query"), text("auth_query_user")) else {
        return false;
    };
    // PgCat puts the name in as text, so the query has quotes around it.
    let query = query.replace("'$1'", "$1");
    reading.draft.set(target, "auth_query", query);
    let password = text("auth_query_password").unwrap_or_default();
    if *target != Target::Globals {
        reading.draft.set(target, "auth_user", &user);
    }
    reading.asker(None, "auth_query_password", &user, password);
    true
}

/// A pool of PgCat: a database and its users.
struct Pool<'a> {
    name: &'a str,
    path: String,
    place: &'a Place,
    table: &'a Fruit,
    target: Target,
    /// True if PostgreSQL is asked for passwords.
    asks: bool,
}

impl<'a> Pool<'a> {
    fn import(
        reading: &mut Reading,
        branch: &'a Branch,
        general: &Fruit,
        plugins: Option<&Fruit>,
        asks: bool,
    ) {
        let name = branch.name.as_str();
        let path = joined("pools", name);
        let pool = Pool {
            name,
            place: &branch.place,
            table: &branch.fruit,
            target: Target::Database(name.into()),
            asks,
            path,
        };
        let shards = pool
            .table
            .get("shards")
            .map(Fruit::entries)
            .unwrap_or_default();
        if reading.is_taken(Some(pool.place), &pool.path, name) {
            return;
        }
        let (number, shard) = match &*shards {
            [(number, shard)] => (number, shard),
            [] => {
                let text = "it has no shard with servers, and is left out";
                return reading.decides(Some(pool.place), &pool.path, text);
            }
            _ => {
                let text = format!("{} shards: {}", shards.len(), said(SHARDING.0, SHARDING.1));
                return reading.decides(Some(pool.place), &pool.path, text);
            }
        };
        pool.write(reading, general, plugins, number, shard);
    }

    fn write(
        mut self,
        reading: &mut Reading,
        general: &Fruit,
        plugins: Option<&Fruit>,
        number: &str,
        shard: &Fruit,
    ) {
        let path = self.path.clone();
        reading.draft.begin(&self.target);
        let shard_path = format!("{path}.shards.{number}");
        reading.section("pools.*.shards.*", &shard_path, shard.table(), &self.target);
        if reading.draft.text(&self.target, "dbname") == Some(self.name) {
            reading.draft.unset(&self.target, "dbname");
        }
        let hosts = servers(shard);
        let count = shard
            .get("servers")
            .map_or(0, |servers| servers.list().len());
        if hosts.len() < count {
            let text = "a server can't be read: the pool is left out";
            reading.decides(Some(self.place), &path, text);
            return reading.draft.remove_database(self.name);
        }
        let Some(copies) = self.hosts(reading, &hosts) else {
            return reading.draft.remove_database(self.name);
        };
        reading.section("pools.*", &path, self.table.table(), &self.target);
        self.asks |= asks_servers(reading, general, self.table, &self.target);
        let cache = self.table.get("prepared_statements_cache_size");
        if let Some(size) = cache.and_then(Fruit::number).filter(|size| *size > 0.0) {
            // The number counts for all of a database's pools.
            reading.raise("max_prepared_statements", size);
        }
        self.plugins(reading, plugins);
        reading.draft.set(&self.target, "users_only", "1");
        let users = self
            .table
            .get("users")
            .map(Fruit::entries)
            .unwrap_or_default();
        for (number, user) in users {
            let path = format!("{path}.users.{number}");
            self.user(reading, &path, user, general, copies);
        }
    }

    /// Writes the hosts. Gives how many of them share a pool here that have one each there; `None` if
    /// there is none for the clients.
    fn hosts(&self, reading: &mut Reading, hosts: &[ForeignHost]) -> Option<usize> {
        if hosts.is_empty() {
            let text = "it has no server that can be read, and is left out";
            reading.decides(Some(self.place), &self.path, text);
            return None;
        }
        let flag = |key: &str| self.table.get_flag(key) == Some(true);
        let splits = flag("query_parser_enabled") && flag("query_parser_read_write_splitting");
        let role = self
            .table
            .get_text("default_role")
            .unwrap_or_else(|| "any".into());
        let key = joined(&self.path, "default_role");
        let has_primary = hosts.iter().any(|host| host.role == ServerRole::Primary);
        if splits && hosts.len() > 1 && has_primary {
            reading.write_hosts(&self.target, hosts);
            let target = if flag("primary_reads_enabled") {
                "any"
            } else {
                "prefer-standby"
            };
            for (setting, text) in [
                ("target_session_attrs", "primary"),
                ("load_balance_hosts", "random"),
                ("read_routing", "statements"),
                ("read_target", target),
            ] {
                // Reads are routed between transactions.
                let is_session = self.table.get_text("pool_mode").as_deref() == Some("session");
                if !(is_session && setting.starts_with("read_")) {
                    reading.draft.set(&self.target, setting, text);
                }
            }
            let text = "roles are found out, not read from the file: the servers must be a primary and its \
                        physical standbys, and host_check_user a user who may look (docs/hosts.md)";
            reading.say(Some(self.place), &self.path, Verdict::Mapped, text);
            return Some(1);
        }
        let wanted = match role.as_str() {
            "primary" => Some(ServerRole::Primary),
            "replica" => Some(ServerRole::Replica),
            _ => None,
        };
        let used: Vec<_> = hosts
            .iter()
            .filter(|host| wanted.is_none_or(|role| host.role == role))
            .cloned()
            .collect();
        if used.is_empty() {
            let text = format!("no server has the role {role}: the pool is left out");
            reading.decides(Some(self.place), &key, text);
            return None;
        }
        if used.len() < hosts.len() {
            let text = format!(
                "the servers of other roles than {role} are left out: PgCat used them only after SET \
                 SERVER ROLE, which is unknown here"
            );
            reading.say(Some(self.place), &key, Verdict::Lost, text);
        } else if hosts.len() > 1
            && hosts.iter().any(|host| host.role == ServerRole::Replica)
            && has_primary
        {
            let text = "clients get the primary or a replica by chance, as before: writes fail on a replica. \
                        target_session_attrs = \"primary\" sends them to the primary";
            reading.say(Some(self.place), &key, Verdict::Mapped, text);
        }
        reading.write_hosts(&self.target, &used);
        if used.len() > 1 {
            reading
                .draft
                .set(&self.target, "load_balance_hosts", "random");
        }
        Some(used.len())
    }

    fn plugins(&self, reading: &mut Reading, global: Option<&Fruit>) {
        let own = self.table.get("plugins");
        if let Some(own) = own {
            let path = joined(&self.path, "plugins");
            reading.section("plugins", &path, own.table(), &self.target);
        }
        let prewarmer = own.or(global).and_then(|plugins| plugins.get("prewarmer"));
        let Some(prewarmer) = prewarmer.filter(|it| it.get_flag("enabled") == Some(true)) else {
            return;
        };
        let queries = prewarmer
            .get("queries")
            .map(Fruit::list)
            .unwrap_or_default();
        let queries: Vec<_> = queries.iter().filter_map(Fruit::text).collect();
        if !queries.is_empty() {
            reading
                .draft
                .set(&self.target, "connect_query", queries.join("; "));
        }
    }

    fn user(
        &self,
        reading: &mut Reading,
        path: &str,
        user: &Fruit,
        general: &Fruit,
        copies: usize,
    ) {
        let Some(name) = user.get_text("username") else {
            let text = "a user without username is left out";
            return reading.decides(Some(self.place), path, text);
        };
        let member = Target::Member(self.name.into(), name.clone());
        if reading.draft.has(&member) {
            let text = format!("{name} stands there twice in this pool: the first was taken");
            return reading.decides(Some(self.place), path, text);
        }
        reading.draft.begin(&member);
        reading.section("pools.*.users.*", path, user.table(), &member);
        let key = |key: &str| self.table.get(key).or(general.get(key)).is_some();
        let asks = self.asks && key("auth_query_password");
        let trusts = user.get_text("auth_type").as_deref() == Some("trust");
        let method = match (trusts, asks) {
            (true, _) => "trust",
            // auth_query gives MD5 hashes.
            (false, true) => "md5",
            (false, false) => "scram-sha-256",
        };
        let password = user.get_text("password");
        match &password {
            Some(password) => {
                reading.draft.set(&member, "password", password);
            }
            None if trusts => {
                reading.draft.set(&member, "password", "");
            }
            None if !asks => {
                let text = format!("{name} has no password, and there is no auth_query: no login");
                reading.say(Some(self.place), path, Verdict::Unused, text);
            }
            None => {}
        }
        if user.get("server_username").is_some() && user.get("server_password").is_none() {
            reading
                .draft
                .set(&member, "server_password", password.unwrap_or_default());
        }
        let copies = copies as f64;
        for (key, default) in [("pool_size", Some(15.0)), ("min_pool_size", None)] {
            let written = user.get(key);
            if written.is_some_and(|size| size.number().is_none()) {
                let text = "its value is no number; left out";
                reading.say(Some(self.place), &joined(path, key), Verdict::Lost, text);
            }
            if let Some(size) = written.and_then(Fruit::number).or(default) {
                reading
                    .draft
                    .set(&member, key, crate::units::decimal(size * copies));
            }
        }
        reading.logins.add(self.name, &name, method);
    }
}

/// The servers of a shard: lists of host, port and role.
fn servers(shard: &Fruit) -> Vec<ForeignHost> {
    let servers = shard.get("servers").map(Fruit::list).unwrap_or_default();
    let servers = servers.iter().filter_map(|server| {
        let [host, port, rest @ ..] = server.list() else {
            return None;
        };
        let role = rest.first().and_then(Fruit::text).unwrap_or_default();
        Some(ForeignHost {
            host: host.text()?,
            port: port.text()?.parse().ok()?,
            role: match role.to_ascii_lowercase().as_str() {
                "replica" => ServerRole::Replica,
                "auto" => ServerRole::Auto,
                "" | "primary" => ServerRole::Primary,
                _ => return None,
            },
        })
    });
    servers.collect()
}
