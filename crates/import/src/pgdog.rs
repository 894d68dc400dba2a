//! PgDog: `pgdog.toml` and `users.toml`.

use howdah_config::Place;

use crate::draft::Target;
use crate::finding::Verdict;
use crate::hosts::{ForeignHost, ServerRole};
use crate::keys::SHARDING;
use crate::logins::CONSOLE;
use crate::pgdog_keys::KEYS;
use crate::reading::{Reading, said};
use crate::tree::{Branch, Fruit};
use crate::units;

pub(crate) fn import(file: &Fruit) -> Reading {
    let mut reading = Reading::new("PgDog", KEYS);
    reading.section("", "", file.table(), &Target::Globals);
    let nothing = Fruit::Table(Vec::new());
    let general = file.get("general").unwrap_or(&nothing);
    reading.section("general", "general", general.table(), &Target::Globals);
    reading.without_limits();
    globals(&mut reading, general);
    if let Some(vault) = file.get("vault") {
        reading.section("vault", "vault", vault.table(), &Target::Globals);
    }
    if let Some(tcp) = file.get("tcp") {
        reading.section("tcp", "tcp", tcp.table(), &Target::Globals);
    }
    let mut clusters: Vec<Cluster> = Vec::new();
    for (at, entry) in entries(file, "databases") {
        let name = entry.get_text("name").unwrap_or_default();
        match clusters.iter_mut().find(|cluster| cluster.name == name) {
            Some(cluster) => cluster.entries.push(entry),
            None => clusters.push(Cluster {
                name,
                path: format!("databases.{at}"),
                entries: vec![entry],
                copies: 1,
            }),
        }
    }
    clusters.retain_mut(|cluster| cluster.import(&mut reading, general));
    let method = method(&mut reading, general);
    for (at, entry) in entries(file, "users") {
        user(
            &mut reading,
            &format!("users.{at}"),
            entry,
            &clusters,
            method,
        );
    }
    for branch in file.table().iter().filter(|branch| branch.name == "admin") {
        admin(&mut reading, branch);
    }
    reading
}

/// The tables of a list, with their numbers.
fn entries<'a>(file: &'a Fruit, name: &str) -> Vec<(usize, &'a Fruit)> {
    let all = file.get(name).map(Fruit::list).unwrap_or_default();
    (0..).zip(all).collect()
}

/// The place of the first key of a table.
fn place(entry: &Fruit) -> Option<&Place> {
    entry.table().first().map(|branch| &branch.place)
}

fn globals(reading: &mut Reading, general: &Fruit) {
    let text = |key: &str| general.get_text(key).unwrap_or_default();
    let set = |reading: &mut Reading, setting: &str, value: &str| {
        reading.draft.set(&Target::Globals, setting, value);
    };
    if let Some(workers) = general.get("workers").and_then(Fruit::number) {
        set(reading, "workers", &units::decimal(workers.max(1.0)));
    }
    if general.get("tls_certificate").is_some() {
        let is_required = general.get_flag("tls_client_required") == Some(true);
        let authorities = text("tls_client_ca_certificate");
        let mode = match (authorities.is_empty(), is_required) {
            (false, _) => "verify-ca",
            (true, true) => "require",
            (true, false) => "prefer",
        };
        set(reading, "client_tls_sslmode", mode);
        if !authorities.is_empty() {
            set(reading, "client_tls_ca_file", &authorities);
        }
        if mode == "verify-ca" && !is_required {
            let why = "clients without TLS are refused here, with this setting";
            reading.say(
                None,
                "general.tls_client_ca_certificate",
                Verdict::Mapped,
                why,
            );
        }
    }
    let mode = match text("tls_verify").as_str() {
        "none" | "disabled" => "disable",
        "verify_ca" => "verify-ca",
        "verify_full" => "verify-full",
        _ => "prefer",
    };
    if mode != "prefer" {
        set(reading, "server_tls_sslmode", mode);
    }
    let port = general
        .get("openmetrics_port")
        .or(general.get("healthcheck_port"));
    if let Some(port) = port.and_then(Fruit::text) {
        set(reading, "http_listen_port", &port);
        reading.write_http_address(&text("openmetrics_host"));
    }
    if text("log_format").starts_with("json") {
        set(reading, "log_format", "json");
    }
    match text("log_level").as_str() {
        "debug" => set(reading, "verbose", "1"),
        "trace" => set(reading, "verbose", "2"),
        _ => {}
    }
    if text("prepared_statements") == "extended_anonymous" {
        set(reading, "unnamed_statements", "share");
    }
}

/// How clients log in.
fn method(reading: &mut Reading, general: &Fruit) -> &'static str {
    match general.get_text("auth_type").unwrap_or_default().as_str() {
        "md5" => "md5",
        "plain" => "password",
        "trust" => "trust",
        "scram" | "" => "scram-sha-256",
        other => {
            let text =
                format!("{other} is no auth_type that is known here: scram-sha-256 was taken");
            reading.decides(None, "general.auth_type", text);
            "scram-sha-256"
        }
    }
}

fn admin(reading: &mut Reading, branch: &Branch) {
    let admin = &branch.fruit;
    reading.section("admin", "admin", admin.table(), &Target::Globals);
    let user = admin.get_text("user").unwrap_or_else(|| "admin".into());
    let Some(password) = admin.get_text("password") else {
        let text = "without a password nobody could log in there: there is no console";
        return reading.say(Some(&branch.place), "admin", Verdict::Unused, text);
    };
    let place = Some(&branch.place);
    if !reading.operator(place, "admin.user", "admin_users", &user) {
        return;
    }
    reading.global_password(place, "admin.password", &user, password);
    reading.logins.add(CONSOLE, &user, "scram-sha-256");
}

/// The entries of `[[databases]]` with one name.
struct Cluster<'a> {
    name: String,
    path: String,
    entries: Vec<&'a Fruit>,
    /// How many hosts share a pool here that have one each there.
    copies: usize,
}

impl Cluster<'_> {
    fn target(&self) -> Target {
        Target::Database(self.name.clone())
    }

    /// Writes the database; false if it is left out.
    fn import(&mut self, reading: &mut Reading, general: &Fruit) -> bool {
        let is_hidden = |entry: &&Fruit| entry.get_flag("resharding_only") == Some(true);
        if self.entries.iter().any(is_hidden) {
            let text = "an entry for resharding serves no clients, and is left out";
            reading.say(place(self.entries[0]), &self.path, Verdict::Unused, text);
        }
        self.entries.retain(|entry| !is_hidden(entry));
        let Some(first) = self.entries.first() else {
            return false;
        };
        let first_place = place(first).cloned();
        let shards = self
            .entries
            .iter()
            .map(|entry| entry.get_text("shard").unwrap_or_else(|| "0".into()));
        let mut shards: Vec<_> = shards.collect();
        shards.sort_unstable();
        shards.dedup();
        let wrong = match shards.len() {
            _ if self.name.is_empty() => "an entry without a name is left out".to_owned(),
            _ if reading.is_taken(first_place.as_ref(), &self.path, &self.name) => {
                return false;
            }
            1 => String::new(),
            shards => format!(
                "{}: {shards} shards: {}",
                self.name,
                said(SHARDING.0, SHARDING.1)
            ),
        };
        if !wrong.is_empty() {
            reading.decides(first_place.as_ref(), &self.path, wrong);
            return false;
        }
        if !self.is_uniform(reading) {
            return false;
        }
        let target = self.target();
        reading.draft.begin(&target);
        for entry in &self.entries {
            reading.section("databases", &self.path, entry.table(), &target);
            parameters(reading, &target, entry);
            if let Some(weight) = entry.get_text("lb_weight") {
                let host = host_of(entry).map(|host| host.text()).unwrap_or_default();
                reading.draft.set(&Target::Host(host), "weight", weight);
            }
        }
        if reading.draft.text(&target, "dbname") == Some(&self.name) {
            reading.draft.unset(&target, "dbname");
        }
        if !self.hosts(reading, general, first_place.as_ref()) {
            reading.draft.remove_database(&self.name);
            return false;
        }
        let is_forced = reading.draft.text(&target, "server_user").is_some();
        let passwords = self
            .entries
            .iter()
            .find_map(|entry| entry.get_text("password"));
        if let (true, Some(password)) = (is_forced, passwords) {
            reading.draft.set(&target, "server_password", password);
        }
        let sizes = self.entries.iter().filter_map(|entry| size(entry));
        let size = sizes.fold(None, |most: Option<f64>, size| {
            Some(most.unwrap_or(0.0).max(size))
        });
        let default = general
            .get("default_pool_size")
            .or(general.get("max_pool_size"));
        let default = default.and_then(Fruit::number).unwrap_or(10.0);
        if size.is_some() || self.copies > 1 {
            let size = size.unwrap_or(default) * self.copies as f64;
            reading
                .draft
                .set(&target, "pool_size", units::decimal(size));
        }
        reading.draft.set(&target, "users_only", "1");
        true
    }

    /// False if the hosts of the cluster differ in what decides, which they can't here.
    fn is_uniform(&self, reading: &mut Reading) -> bool {
        let deciding = ["database_name", "user", "password", "read_only"];
        let others = [
            "statement_timeout",
            "lock_timeout",
            "pooler_mode",
            "min_pool_size",
            "server_lifetime",
        ];
        let differs = |key: &&&str| {
            let mut values = self.entries.iter().map(|entry| entry.get(key));
            let first = values.next().flatten();
            values.any(|value| match (first, value) {
                (Some(first), Some(value)) => !first.equals(value),
                (first, value) => first.is_some() != value.is_some(),
            })
        };
        let place = place(self.entries[0]);
        for key in others.iter().filter(differs) {
            let text =
                "the hosts of a database have one value here: that of the last entry was taken";
            reading.say(place, &format!("{}.{key}", self.path), Verdict::Lost, text);
        }
        let deciding: Vec<_> = deciding.iter().filter(differs).copied().collect();
        if !deciding.is_empty() {
            let text = format!(
                "the hosts of {} differ in {}, which they can't here: the database is left out",
                self.name,
                deciding.join(", ")
            );
            reading.decides(place, &self.path, text);
        }
        deciding.is_empty()
    }

    /// Writes the hosts; false if one can't be read.
    fn hosts(&mut self, reading: &mut Reading, general: &Fruit, place: Option<&Place>) -> bool {
        let hosts = self.entries.iter().filter_map(|entry| host_of(entry));
        let hosts: Vec<_> = hosts.collect();
        let target = self.target();
        if hosts.len() < self.entries.len() {
            let text = format!(
                "{}: a host, its port or its role can't be read: the database is left out",
                self.name
            );
            reading.decides(place, &self.path, text);
            return false;
        }
        reading.write_hosts(&target, &hosts);
        if hosts.len() == 1 {
            return true;
        }
        let text = |key: &str| general.get_text(key).unwrap_or_default();
        let balance = match text("load_balancing_strategy").as_str() {
            "round_robin" | "weighted_round_robin" => "round-robin",
            "least_active_connections" => {
                let text =
                    "the host with the fewest connections has no counterpart: random was taken";
                reading.say(
                    place,
                    "general.load_balancing_strategy",
                    Verdict::Lost,
                    text,
                );
                "random"
            }
            _ => "random",
        };
        reading.draft.set(&target, "load_balance_hosts", balance);
        let has = |role: ServerRole| hosts.iter().any(|host| host.role == role);
        let has_both = has(ServerRole::Primary) && has(ServerRole::Replica);
        if !has(ServerRole::Auto) && !has_both {
            self.copies = hosts.len();
            return true;
        }
        let split = text("read_write_split");
        let reads = text("query_parser") != "off" && split != "prefer_primary";
        let read_target = match split.as_str() {
            "exclude_primary" => "standby",
            "include_primary_if_replica_banned" => "prefer-standby",
            _ => "any",
        };
        reading
            .draft
            .set(&target, "target_session_attrs", "primary");
        if reads {
            reading.draft.set(&target, "read_routing", "statements");
            reading.draft.set(&target, "read_target", read_target);
        }
        let text = "roles are found out, not read from the file: the hosts must be a primary and its physical \
                    standbys, and host_check_user a user who may look (docs/hosts.md)";
        reading.say(place, &format!("{}.role", self.path), Verdict::Mapped, text);
        true
    }
}

/// The host of an entry, if it can be read.
fn host_of(entry: &Fruit) -> Option<ForeignHost> {
    let port = entry.get("port").map_or(Some("5432".into()), Fruit::text)?;
    Some(ForeignHost {
        host: entry.get_text("host")?,
        port: port.parse().ok()?,
        role: match entry.get_text("role").unwrap_or_default().as_str() {
            "replica" => ServerRole::Replica,
            "auto" => ServerRole::Auto,
            "" | "primary" => ServerRole::Primary,
            _ => return None,
        },
    })
}

/// A size that may have either name.
fn size(entry: &Fruit) -> Option<f64> {
    let size = entry.get("pool_size").or(entry.get("max_pool_size"))?;
    size.number()
}

/// What servers' sessions start with.
fn parameters(reading: &mut Reading, target: &Target, entry: &Fruit) {
    for name in ["statement_timeout", "lock_timeout"] {
        if let Some(millis) = entry.get(name).and_then(Fruit::number) {
            reading
                .draft
                .parameter(target, name, units::decimal(millis));
        }
    }
    if entry.get_flag("read_only") == Some(true) {
        reading
            .draft
            .parameter(target, "default_transaction_read_only", "on");
    }
}

fn user(
    reading: &mut Reading,
    path: &str,
    entry: &Fruit,
    clusters: &[Cluster],
    method: &'static str,
) {
    let place = place(entry).cloned();
    let Some(name) = entry.get_text("name") else {
        return reading.decides(place.as_ref(), path, "a user without a name is left out");
    };
    let named: Vec<String> = if entry.get_flag("all_databases") == Some(true) {
        clusters
            .iter()
            .map(|cluster| cluster.name.clone())
            .collect()
    } else if let Some(database) = entry.get_text("database") {
        vec![database]
    } else {
        let all = entry.get("databases").map(Fruit::list).unwrap_or_default();
        all.iter().filter_map(Fruit::text).collect()
    };
    if named.is_empty() {
        let text = format!("{name}: a user without a database is left out");
        reading.decides(place.as_ref(), path, text);
    }
    let mut is_told = false;
    for database in named {
        let Some(cluster) = clusters.iter().find(|cluster| cluster.name == database) else {
            let text =
                format!("{name}: the database {database} is not imported, or not in the file");
            reading.say(place.as_ref(), path, Verdict::Unused, text);
            continue;
        };
        let member = Target::Member(database.clone(), name.clone());
        if reading.draft.has(&member) {
            let text = format!("{name} has two entries for {database}: the first was taken");
            reading.decides(place.as_ref(), path, text);
            continue;
        }
        reading.draft.begin(&member);
        let told = reading.findings.len();
        reading.section("users", path, entry.table(), &member);
        let was_told = is_told;
        if was_told {
            reading.findings.truncate(told);
        }
        is_told = true;
        let proofs = ["vault_path", "identity", "tls_client_certificate_required"];
        let is_other = |key: &&str| {
            entry
                .get(key)
                .is_some_and(|value| value.flag() != Some(false))
        };
        if entry.get_flag("read_only") == Some(true) && cluster.entries.len() > 1 {
            let text =
                format!("{name} gets standbys alone there: this user is left out of {database}");
            reading.decides(place.as_ref(), &format!("{path}.read_only"), text);
            reading.logins.close(&database, &name);
            continue;
        }
        if proofs.iter().any(is_other) {
            reading.logins.close(&database, &name);
            continue;
        }
        login(reading, path, entry, &member, method, was_told);
        parameters(reading, &member, entry);
        if let Some(size) = size(entry) {
            let size = units::decimal(size * cluster.copies as f64);
            reading.draft.set(&member, "pool_size", size);
        }
        server_login(reading, entry, &member, cluster);
        reading.logins.add(&database, &name, method);
    }
}

/// How a client proves who it is.
fn login(
    reading: &mut Reading,
    path: &str,
    entry: &Fruit,
    member: &Target,
    method: &str,
    is_told: bool,
) {
    let several = entry.get("passwords").map(Fruit::list).unwrap_or_default();
    let several: Vec<_> = several.iter().filter_map(Fruit::text).collect();
    let one = entry
        .get_text("password")
        .or(entry.get_text("password_hash"));
    let count = several.len() + usize::from(one.is_some());
    match one.or(several.first().cloned()) {
        Some(password) => {
            reading.draft.set(member, "password", password);
        }
        None if method == "trust" => {
            reading.draft.set(member, "password", "");
        }
        None if is_told => {}
        None => {
            let text = "this user has no password: no login (see passthrough_auth)";
            reading.say(place(entry), path, Verdict::Unused, text);
        }
    }
    if count > 1 && !is_told {
        let text = "a user has one password here: clients with another one can't log in";
        reading.decides(place(entry), &format!("{path}.passwords"), text);
    }
}

/// The source of the password with which servers of a user log in, if it does not stand in the file.
fn source(entry: &Fruit) -> Option<(&'static str, Vec<(&'static str, String)>)> {
    let option = |name, key| {
        let value = entry.get_text(key);
        value.map(|value| (name, value)).into_iter().collect()
    };
    Some(match entry.get_text("server_auth")?.as_str() {
        "rds_iam" => ("aws-rds", option("region", "server_iam_region")),
        "azure_workload_identity" => ("azure", Vec::new()),
        "vault_dynamic" | "vault_static" => ("vault", option("path", "server_vault_path")),
        _ => return None,
    })
}

/// Whom servers log in as. What the database says goes before what the user says.
fn server_login(reading: &mut Reading, entry: &Fruit, member: &Target, cluster: &Cluster) {
    if let Some((source, options)) = source(entry) {
        if let Some(user) = entry.get_text("server_user") {
            reading.draft.set(member, "server_user", user);
        }
        return reading
            .draft
            .source(member, "server_password", source, options);
    }
    let of_database = cluster.target();
    if reading.draft.text(&of_database, "server_user").is_some() {
        // Without a password of its own, the database takes that of the user.
        let has_password = reading
            .draft
            .text(&of_database, "server_password")
            .is_some();
        let password = entry
            .get_text("server_password")
            .or(entry.get_text("password"));
        if let (false, Some(password)) = (has_password, password) {
            let user = reading
                .draft
                .text(&of_database, "server_user")
                .unwrap_or_default()
                .to_owned();
            reading.draft.set(member, "server_user", user);
            reading.draft.set(member, "server_password", password);
        }
        return;
    }
    let of_cluster = cluster
        .entries
        .iter()
        .find_map(|entry| entry.get_text("password"));
    let user = entry.get_text("server_user");
    let own = of_cluster.or(entry.get_text("server_password"));
    if let Some(user) = &user {
        reading.draft.set(member, "server_user", user);
    }
    let fallback = user.and_then(|_| entry.get_text("password"));
    if let Some(password) = own.or(fallback) {
        reading.draft.set(member, "server_password", password);
    }
}
