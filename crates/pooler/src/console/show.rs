//! The results of SHOW, one function for each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::command::has_host_list;
use super::lines::{show_holders, show_verdicts};
use super::roles::show_hosts;
use super::rows::{Row, ShowTable, date_time, number, text};
use super::secrets::show_secrets;
use super::shards::{show_checks, show_tables};
use super::statistics::{of_databases, show_queries, show_totals};
use super::{VERSION, hosts};
use crate::account::KeptFor;
use crate::client::Client;
use crate::config::{CONSOLE, Database, SslMode};
use crate::console::columns::{PEER, Show};
use crate::console::holdings::{ClientRow, Holdings, PoolShare, States};
use crate::console::report::Gathered;
use crate::event::{KnownNames, Time};
use crate::login::Login;
use crate::login::key::LoginKey;
use crate::pool::Pool;
use crate::pooler::Pooler;
use crate::queries::tally::merged;
use crate::server::Server;
use crate::tls::Handshakes;

impl Pooler {
    /// The result of a SHOW, from the state of all workers.
    pub(super) fn table(
        &self,
        show: Show,
        mut holdings: Vec<Holdings>,
        rows: Gathered,
        names: &KnownNames,
    ) -> ShowTable<'static> {
        holdings.sort_by_key(|holding| holding.worker);
        let Gathered {
            rows,
            clients,
            holders,
            queries,
        } = rows;
        let mut rows = match show {
            Show::Clients | Show::ClientsExtended => show_clients(clients),
            Show::Servers | Show::ServersExtended => sorted_sockets(rows),
            Show::Holders => show_holders(holders),
            Show::Queries => show_queries(merged(queries)),
            Show::Fds => rows,
            Show::Sockets => sockets(rows),
            Show::ActiveSockets => {
                let mut rows = sockets(rows);
                let active = |row: &Row| row[4].as_deref().is_some_and(|s| s.ends_with("_active"));
                rows.retain(active);
                rows
            }
            Show::Mem => show_memory(&holdings),
            Show::Config => self.show_config(),
            Show::Databases => self.show_databases(&holdings),
            Show::Lists => self.show_lists(&holdings, names),
            Show::DnsHosts => hosts::hosts(names),
            Show::DnsZones => hosts::zones(names),
            Show::Peers => self.show_peers(),
            Show::PeerPools => show_peer_pools(&holdings),
            Show::Pools | Show::PoolsExtended => show_pools(&holdings),
            Show::Secrets => show_secrets(&self.config, self.now),
            Show::Settings => self.show_settings(),
            Show::State => self.show_state(),
            Show::Stats => of_databases(&holdings, |counts| {
                counts
                    .totals()
                    .into_iter()
                    .chain(counts.averages())
                    .collect()
            }),
            Show::StatsAverages => of_databases(&holdings, |counts| counts.averages().into()),
            Show::StatsTotals => of_databases(&holdings, |counts| counts.totals().into()),
            Show::Tls => self.show_tls(&holdings),
            Show::Totals => show_totals(&holdings),
            Show::Users => self.show_users(&holdings),
            Show::Verdict => show_verdicts(holdings),
            Show::Version => vec![vec![text(VERSION)]],
            Show::Hosts => show_hosts(&self.config, self.now, &holdings),
            Show::Shards => self.show_shards(&holdings),
            Show::ShardChecks => show_checks(&holdings),
            Show::ShardRefusals => self.show_refusals(&holdings),
            Show::ShardTables => show_tables(&holdings),
            Show::Workers => show_workers(&holdings),
        };
        let columns = show.columns();
        for row in &mut rows {
            // Howdah's columns are the last ones.
            row.truncate(columns.len());
        }
        ShowTable {
            columns: columns.to_vec(),
            rows,
        }
    }

    /// One row for clients and one for servers: the mode in force, the end of Howdah's certificate,
    /// the handshakes so far.
    fn show_tls(&self, holdings: &[Holdings]) -> Vec<Row> {
        let (globals, in_force) = (&self.config.globals, &self.config.tls);
        let now = self.started + self.now.0 as f64 / 1e9;
        let sides = [
            ("clients", in_force.clients, &globals.client_tls_cert_file),
            ("servers", in_force.servers, &globals.server_tls_cert_file),
        ];
        let row = |(at, (side, mode, file)): (usize, (&str, SslMode, &String))| {
            let end = in_force.ends[at];
            let mut sum = Handshakes::default();
            for holding in holdings {
                sum.add(&holding.tls.handshakes[at]);
            }
            vec![
                text(side),
                number(mode.word()),
                end.and_then(|_| text(file)),
                end.map(|end| date_time(end as f64, Time(0))),
                end.and_then(|end| number(((end as f64 - now) / 86_400.0).floor())),
                number(sum.full),
                number(sum.resumed),
                number(sum.failed),
            ]
        };
        sides.into_iter().enumerate().map(row).collect()
    }

    fn show_config(&self) -> Vec<Row> {
        let row = |shown: crate::config::ShownSetting| {
            let value = match shown.key {
                "workers" => Some(self.workers.to_string()),
                "io_driver" => Some(self.chosen_driver().to_string()),
                _ => shown.value,
            };
            let changeable = if shown.changeable { "yes" } else { "no" };
            vec![
                text(shown.key),
                value,
                shown.default.map(str::to_string),
                text(changeable),
            ]
        };
        self.config.show().map(row).collect()
    }

    fn show_settings(&self) -> Vec<Row> {
        let row = |setting: crate::config::SettingInForce| {
            let changeable = if setting.changeable { "yes" } else { "no" };
            vec![
                text(setting.name),
                setting.entry,
                setting.value,
                setting.default.map(str::to_string),
                setting.place,
                text(changeable),
            ]
        };
        self.config.settings().into_iter().map(row).collect()
    }

    /// The driver's name, without the reason for its choice.
    fn chosen_driver(&self) -> &str {
        let end = self
            .driver
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &self.driver[..end.unwrap_or(self.driver.len())]
    }

    fn show_state(&self) -> Vec<Row> {
        let yes = |is: bool| text(if is { "yes" } else { "no" });
        let paused = self.janitor.is_paused_all();
        let suspended = self.janitor.holds();
        vec![
            vec![text("active"), yes(!paused && !suspended)],
            vec![text("paused"), yes(paused)],
            vec![text("suspended"), yes(suspended)],
            vec![text("workers"), number(self.workers)],
            vec![text("io_driver"), text(&self.driver)],
        ]
    }

    fn show_databases(&self, holdings: &[Holdings]) -> Vec<Row> {
        let mut databases: BTreeMap<String, Arc<Database>> = self.config.databases.clone();
        for share in shares(holdings).filter(|share| share.database.auto) {
            databases
                .entry(share.key.database.to_string())
                .or_insert(share.database.clone());
        }
        // Databases of `*` without clients that are paused or disabled.
        for name in self.janitor.paused.iter().chain(&self.janitor.disabled) {
            if let Some(database) = self.config.database(name) {
                databases.entry(name.clone()).or_insert(database);
            }
        }
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for (name, database) in &databases {
            rows.insert(name.clone(), self.database_row(name, database, holdings));
        }
        rows.insert(CONSOLE.to_string(), self.console_row(holdings));
        rows.into_values().collect()
    }

    fn database_row(&self, name: &str, database: &Database, holdings: &[Holdings]) -> Row {
        let of = |key: &LoginKey| *key.database == *name;
        let scopes = self.config.scopes(Some(database), None);
        let servers: u32 = shares(holdings)
            .filter(|share| of(&share.key))
            .map(|share| share.connections)
            .sum();
        let balance = has_host_list(database).then(|| database.load_balance_hosts.to_string());
        vec![
            text(name),
            database.host.clone(),
            number(database.port.first()),
            text(database.target()),
            database.forced_user.clone(),
            number(scopes.pool_size()),
            number(scopes.min_pool_size()),
            number(scopes.reserve_pool_size()),
            number(scopes.server_lifetime().as_secs()),
            database.pool_mode.map(|mode| mode.to_string()),
            balance,
            number(scopes.max_db_connections()),
            number(servers),
            number(scopes.max_db_client_connections()),
            number(admitted(holdings, |database, _| database == name)),
            number(u8::from(self.janitor.is_paused_alone(name))),
            number(u8::from(self.janitor.is_disabled(name))),
        ]
    }

    /// The console's own row in SHOW DATABASES.
    fn console_row(&self, holdings: &[Holdings]) -> Row {
        let globals = &self.config.globals;
        vec![
            text(CONSOLE),
            None,
            number(globals.listen_port),
            text(CONSOLE),
            text(CONSOLE),
            number(2),
            number(globals.min_pool_size),
            number(globals.reserve_pool_size),
            number(globals.server_lifetime.as_secs()),
            text("statement"),
            None,
            number(globals.max_db_connections),
            number(0),
            number(globals.max_db_client_connections),
            number(consoles(holdings)),
            number(0),
            number(0),
        ]
    }

    /// The users in the configuration, and connected users that are not in it: found by auth_query,
    /// by LDAP or PAM, or removed from the auth_file.
    fn known_users<'a>(&'a self, holdings: &'a [Holdings]) -> BTreeSet<&'a str> {
        let config = &self.config;
        let forced = config.databases.values().chain(&config.fallback);
        let forced = forced.filter_map(|database| database.forced_user.as_deref());
        let clients = holdings.iter().flat_map(|holding| holding.admitted.keys());
        let mut names: BTreeSet<&str> = config.users.keys().map(String::as_str).collect();
        let members = config.databases.values().chain(&config.fallback);
        names.insert(CONSOLE);
        names.extend(members.flat_map(|database| database.users.keys().map(String::as_str)));
        names.extend(forced);
        names.extend(clients.map(|(_, user)| &**user));
        names.extend(shares(holdings).map(|share| &*share.key.user));
        names.remove("");
        names
    }

    fn show_users(&self, holdings: &[Holdings]) -> Vec<Row> {
        let names = self.known_users(holdings);
        let limit = |value: Option<u32>| Some(value.map_or_else(String::new, |n| format!("{n:9}")));
        let row = |name: &str| {
            let scopes = self.config.scopes(None, Some(name));
            let user = scopes.user;
            let of = |key: &LoginKey| *key.user == *name;
            let servers: u32 = shares(holdings)
                .filter(|share| of(&share.key))
                .map(|s| s.connections)
                .sum();
            vec![
                text(name),
                limit(user.and_then(|user| user.pool_size)),
                limit(user.and_then(|user| user.reserve_pool_size)),
                user.and_then(|user| user.pool_mode)
                    .map(|mode| mode.to_string()),
                number(scopes.max_user_connections()),
                number(servers),
                number(scopes.max_user_client_connections()),
                number(admitted(holdings, |_, user| user == name)),
            ]
        };
        names.into_iter().map(row).collect()
    }

    fn show_peers(&self) -> Vec<Row> {
        let row = |(id, peer): (&u16, &Arc<crate::config::PeerProcess>)| {
            vec![
                number(id),
                peer.host.clone(),
                number(peer.port),
                number(self.config.peer_pool_size(peer)),
            ]
        };
        self.config.peers.iter().map(row).collect()
    }

    fn show_lists(&self, holdings: &[Holdings], names: &KnownNames) -> Vec<Row> {
        let sum = |count: fn(&Holdings) -> u32| holdings.iter().map(count).sum::<u32>();
        let rows = [
            ("databases", self.show_databases(holdings).len() as u32),
            ("users", self.show_users(holdings).len() as u32),
            ("peers", self.config.peers.len() as u32),
            ("pools", show_pools(holdings).len() as u32),
            ("peer_pools", show_peer_pools(holdings).len() as u32),
            ("free_clients", sum(|holding| holding.free_clients)),
            ("used_clients", sum(|holding| holding.clients)),
            ("login_clients", sum(|holding| holding.login_clients)),
            ("free_servers", sum(|holding| holding.free_servers)),
            ("used_servers", sum(|holding| holding.servers)),
            ("dns_names", names.hosts.len() as u32),
            ("dns_zones", names.zones.len() as u32),
            ("dns_queries", names.queries),
            // Each name is looked up at once.
            ("dns_pending", 0),
        ];
        rows.into_iter()
            .map(|(list, items)| vec![text(list), number(items)])
            .collect()
    }
}

/// Peers that cancel requests were forwarded to. As in PgBouncer, a request whose connection is
/// still being opened counts as waiting.
fn show_peer_pools(holdings: &[Holdings]) -> Vec<Row> {
    let pools = holdings.iter().flat_map(|holding| &holding.peers);
    pools
        .map(|pool| {
            vec![
                number(pool.peer),
                number(pool.sent),
                number(pool.waiting + pool.connecting),
                number(pool.sent),
                number(pool.connecting),
            ]
        })
        .collect()
}

fn shares(holdings: &[Holdings]) -> impl Iterator<Item = &PoolShare> {
    holdings.iter().flat_map(|holding| &holding.pools)
}

fn consoles(holdings: &[Holdings]) -> u32 {
    holdings.iter().map(|holding| holding.consoles).sum()
}

/// The number of admitted clients whose database and user satisfy a condition.
fn admitted(holdings: &[Holdings], which: impl Fn(&str, &str) -> bool) -> u32 {
    let logins = holdings.iter().flat_map(|holding| &holding.admitted);
    logins
        .filter(|((database, user), _)| which(database, user))
        .map(|(_, count)| count)
        .sum()
}

/// Rows of SHOW CLIENTS_EXTENDED, with each waiting client's place over all workers.
fn show_clients(mut clients: Vec<ClientRow>) -> Vec<Row> {
    clients.sort_by(|a, b| {
        let line = |client: &ClientRow| client.wait.as_ref().map(|w| (w.login.clone(), w.since));
        line(a).cmp(&line(b))
    });
    let (mut pool, mut place) = (None, 0);
    let mut rows = Vec::with_capacity(clients.len());
    for ClientRow { mut row, wait, pin } in clients {
        match wait {
            Some(wait) => {
                let same = pool.as_ref() == Some(&wait.login);
                place = if same { place + 1 } else { 1 };
                pool = Some(wait.login);
                row.extend([text(wait.reason), number(place)]);
            }
            None => row.extend([None, None]),
        }
        row.extend(pin);
        rows.push(row);
    }
    sorted_sockets(rows)
}

/// Sorts rows by database, user and number.
fn sorted_sockets(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_cached_key(|row| {
        let number: u64 = row[20].as_ref().and_then(|n| n.parse().ok()).unwrap_or(0);
        (row[2].clone(), row[1].clone(), number)
    });
    rows
}

/// Rows of SHOW CLIENTS and SHOW SERVERS, with the columns that SHOW SOCKETS adds: the side, and
/// positions in buffers. An idle connection owns no buffer, and a busy connection's buffer is
/// shared. So positions are always 0.
fn sockets(rows: Vec<Row>) -> Vec<Row> {
    let mut rows = sorted_sockets(rows);
    for row in &mut rows {
        let side = if row[0].as_deref() == Some("C") {
            "cl"
        } else {
            "sv"
        };
        row[4] = row[4].take().map(|state| format!("{side}_{state}"));
        row.truncate(PEER.len());
        row.extend((0..7).map(|_| number(0)));
    }
    rows
}

/// PgBouncer's rows, for the tables that Howdah has; sizes in bytes.
fn show_memory(holdings: &[Holdings]) -> Vec<Row> {
    let sum = |count: fn(&Holdings) -> u32| -> u64 {
        holdings
            .iter()
            .map(|holding| u64::from(count(holding)))
            .sum()
    };
    let row = |name: &str, size: usize, used: u64, free: u64| {
        let total = (used + free) * size as u64;
        vec![
            text(name),
            number(size),
            number(used),
            number(free),
            number(total),
        ]
    };
    let pools = holdings
        .iter()
        .map(|holding| holding.pools.len() as u64)
        .sum();
    let (mut statements, mut bytes) = (0, 0);
    for (many, size) in holdings.iter().map(|holding| holding.statements) {
        (statements, bytes) = (statements + many, bytes + size);
    }
    let kept = |kind: KeptFor| {
        let bytes = holdings.iter().flat_map(|holding| holding.kept);
        let bytes = bytes.filter(|(known, _)| *known == kind);
        row(kind.row(), 1, bytes.map(|(_, bytes)| bytes as u64).sum(), 0)
    };
    let mut rows = vec![
        row(
            "pool_cache",
            size_of::<Login>() + size_of::<Pool>(),
            pools,
            0,
        ),
        row(
            "server_cache",
            size_of::<Server>(),
            sum(|holding| holding.servers),
            sum(|holding| holding.free_servers),
        ),
        row(
            "client_cache",
            size_of::<Client>(),
            sum(|holding| holding.clients),
            sum(|holding| holding.free_clients),
        ),
        vec![
            text("statement_cache"),
            // The average size.
            number(bytes / statements.max(1)),
            number(statements),
            number(0),
            number(bytes),
        ],
    ];
    rows.extend(KeptFor::ALL.map(kept));
    rows
}

/// Rows of SHOW POOLS_EXTENDED.
fn show_pools(holdings: &[Holdings]) -> Vec<Row> {
    let mut pools: BTreeMap<Arc<LoginKey>, (States, &PoolShare)> = BTreeMap::new();
    for share in shares(holdings) {
        let empty = (States::default(), share);
        pools
            .entry(share.key.clone())
            .or_insert(empty)
            .0
            .add(&share.states);
    }
    let mut rows: BTreeMap<Arc<LoginKey>, Row> = BTreeMap::new();
    for (key, (states, share)) in &pools {
        let database = &share.database;
        let balance = has_host_list(database).then(|| database.load_balance_hosts.to_string());
        rows.insert(
            key.clone(),
            pool_row(key, states, &share.mode.to_string(), balance),
        );
    }
    let console = LoginKey::both(CONSOLE);
    let states = States {
        cl_active: consoles(holdings),
        ..States::default()
    };
    let row = pool_row(&console, &states, "statement", None);
    rows.insert(console, row);
    rows.into_values().collect()
}

fn pool_row(key: &LoginKey, states: &States, mode: &str, balance: Option<String>) -> Row {
    let counts = [
        states.cl_active,
        states.cl_waiting,
        states.cl_active_cancel,
        // No request waits for a connection.
        0,
        states.sv_active,
        states.sv_active_cancel,
        states.sv_being_canceled,
        states.sv_idle,
        states.sv_used,
        states.sv_tested,
        states.sv_login,
    ];
    let mut row = vec![text(&key.database), text(&key.user)];
    row.extend(counts.map(number));
    row.push(number(states.max_wait / 1_000_000_000));
    row.push(number(states.max_wait / 1000 % 1_000_000));
    row.push(text(mode));
    row.push(balance);
    row.push(number(states.sv_listening));
    row.push(number(states.sv_pinned));
    row.push(number(states.pins));
    row.push(number(states.unseen));
    row.push(number(states.sv_working));
    row.push(number(states.sv_in_transaction));
    row.push(number(states.waits / 1000));
    row.push(number(states.oldest_transaction / 1000));
    row.push(number(states.sv_kept));
    row.push(number(states.waits_in_vain));
    row
}

impl States {
    /// Adds another worker's counts.
    pub(crate) fn add(&mut self, other: &States) {
        self.cl_active += other.cl_active;
        self.cl_waiting += other.cl_waiting;
        self.cl_lookups += other.cl_lookups;
        self.cl_active_cancel += other.cl_active_cancel;
        self.sv_active += other.sv_active;
        self.sv_active_cancel += other.sv_active_cancel;
        self.sv_being_canceled += other.sv_being_canceled;
        self.sv_idle += other.sv_idle;
        self.sv_used += other.sv_used;
        self.sv_tested += other.sv_tested;
        self.sv_login += other.sv_login;
        self.sv_working += other.sv_working;
        self.sv_slow += other.sv_slow;
        self.sv_in_transaction += other.sv_in_transaction;
        self.sv_kept += other.sv_kept;
        self.oldest_transaction = self.oldest_transaction.max(other.oldest_transaction);
        self.waits += other.waits;
        self.waits_in_vain += other.waits_in_vain;
        self.sv_listening += other.sv_listening;
        self.sv_pinned += other.sv_pinned;
        self.pins += other.pins;
        self.unseen += other.unseen;
        self.max_wait = self.max_wait.max(other.max_wait);
    }
}

/// A fraction as a percentage.
fn percent(part: f64) -> Option<String> {
    number((100.0 * part).round())
}

fn show_workers(holdings: &[Holdings]) -> Vec<Row> {
    let row = |holding: &Holdings| {
        let sum = |count: fn(&PoolShare) -> u64| holding.pools.iter().map(count).sum::<u64>();
        vec![
            number(holding.worker.0),
            number(holding.clients),
            number(holding.servers),
            number(sum(|share| share.stats.transactions)),
            number(sum(|share| share.stats.lends)),
            number(sum(|share| (share.clients > 0).into())),
            number(holding.moves.0),
            number(holding.moves.1),
            percent(holding.signals.busy()),
            percent(holding.signals.cpu as f64 / holding.signals.window.max(1) as f64),
            percent(holding.signals.delay()),
            number(sum(|share| share.stats.evictions)),
            number(holding.mails),
        ]
    };
    holdings.iter().map(row).collect()
}
