//! What is shown of snapshots: values in, tables out.

use std::collections::HashMap;

use crate::console::Snapshot;
use crate::table::{Table, duration};

/// A way to look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum View {
    Pools,
    Clients,
    Servers,
    Holders,
    Queries,
    /// Who waits and who has servers in one pool: its database and user.
    Pool(String, String),
}

impl View {
    /// Those with a key of their own.
    pub const MAIN: [View; 5] = [
        View::Pools,
        View::Clients,
        View::Servers,
        View::Holders,
        View::Queries,
    ];

    /// Its name.
    pub fn name(&self) -> String {
        match self {
            View::Pools => "pools".into(),
            View::Clients => "clients".into(),
            View::Servers => "servers".into(),
            View::Holders => "holders".into(),
            View::Queries => "queries".into(),
            View::Pool(database, user) => format!("pool {database}/{user}"),
        }
    }

    /// Its table.
    pub fn table(&self, now: &Snapshot, before: Option<&Snapshot>) -> Table {
        match self {
            View::Pools => pools(now, before),
            View::Clients => clients(now, |_| true),
            View::Servers => servers(now),
            View::Holders => holders(now, |_, _| true),
            View::Queries => queries(now, before),
            View::Pool(database, user) => pool(now, database, user),
        }
    }
}

/// All pools: who waits first.
fn pools(now: &Snapshot, before: Option<&Snapshot>) -> Table {
    let rates = rates(now, before);
    let all = &now.pools;
    let sizes = sizes(now);
    let reasons = reasons(now);
    let rows = (0..all.rows.len()).map(|row| {
        let (database, user) = (all.value(row, "database"), all.value(row, "user"));
        let number = |name| all.number(row, name);
        let wait = all.wait(row, "maxwait", "maxwait_us");
        let rate = rates.get(database).copied().unwrap_or_default();
        let key = (database.to_string(), user.to_string());
        vec![
            database.to_string(),
            user.to_string(),
            all.value(row, "cl_waiting").to_string(),
            duration(wait),
            reasons.get(&key).cloned().unwrap_or_default(),
            all.value(row, "cl_active").to_string(),
            all.value(row, "sv_active").to_string(),
            format!("{}", number("sv_idle") + number("sv_used")),
            format!("{}", number("sv_login") + number("sv_tested")),
            sizes.get(database).cloned().unwrap_or_default(),
            format!("{:.0}", rate.transactions),
            duration(rate.query_us),
            duration(rate.wait_us),
            all.value(row, "pool_mode").to_string(),
        ]
    });
    Table {
        columns: columns(&[
            "database", "user", "waiting", "longest", "why", "clients", "active", "idle", "login",
            "size", "db tx/s", "query", "wait", "mode",
        ]),
        rows: rows.collect(),
    }
}

/// What a database did between two snapshots.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rate {
    /// Per second.
    pub transactions: f64,
    pub queries: f64,
    /// On average. Waits that are not over count as long as they have lasted.
    pub query_us: f64,
    pub wait_us: f64,
    /// How many waits the average is of.
    waits: f64,
}

/// What each database did.
pub(crate) fn rates(now: &Snapshot, before: Option<&Snapshot>) -> HashMap<String, Rate> {
    let Some(before) = before else {
        return HashMap::new();
    };
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(0.001);
    let mut rates = HashMap::new();
    for row in 0..now.stats.rows.len() {
        let database = now.stats.value(row, "database");
        let old = (0..before.stats.rows.len())
            .find(|old| before.stats.value(*old, "database") == database);
        let grown = |name: &str| {
            let old = old.map_or(0.0, |old| before.stats.number(old, name));
            (now.stats.number(row, name) - old).max(0.0)
        };
        let per = |sum: f64, count: f64| if count > 0.0 { sum / count } else { 0.0 };
        let (transactions, queries) = (grown("total_xact_count"), grown("total_query_count"));
        let here =
            (0..now.pools.rows.len()).filter(|pool| now.pools.value(*pool, "database") == database);
        let open = |name| total(here.clone().map(|pool| now.pools.number(pool, name)));
        // Waits of pools that are gone count as none.
        let in_vain = (given_up(now, database) - given_up(before, database)).max(0.0);
        let waits = transactions + in_vain + open("cl_waiting");
        rates.insert(
            database.to_string(),
            Rate {
                transactions: transactions / seconds,
                queries: queries / seconds,
                query_us: per(grown("total_query_time"), queries),
                wait_us: per(grown("total_wait_time") + open("waits_us"), waits),
                waits,
            },
        );
    }
    rates
}

/// How many waits of a database's clients no server has ended.
fn given_up(snapshot: &Snapshot, database: &str) -> f64 {
    let pools = &snapshot.pools;
    let rows = (0..pools.rows.len()).filter(|row| pools.value(*row, "database") == database);
    total(rows.map(|row| pools.number(row, "waits_in_vain")))
}

/// The size of each database's pools.
pub(crate) fn sizes(now: &Snapshot) -> HashMap<&str, String> {
    let all = &now.databases;
    let row = |row| {
        (
            all.value(row, "name"),
            all.value(row, "pool_size").to_string(),
        )
    };
    (0..all.rows.len()).map(row).collect()
}

/// Why clients of each pool wait: the first of them.
pub(crate) fn reasons(now: &Snapshot) -> HashMap<(String, String), String> {
    let all = &now.clients;
    let mut reasons = HashMap::new();
    for row in 0..all.rows.len() {
        let reason = all.value(row, "wait_reason");
        if !reason.is_empty() {
            let pool = (all.value(row, "database"), all.value(row, "user"));
            let key = (pool.0.to_string(), pool.1.to_string());
            reasons.entry(key).or_insert_with(|| reason.to_string());
        }
    }
    reasons
}

fn clients(now: &Snapshot, wanted: impl Fn(usize) -> bool) -> Table {
    let all = &now.clients;
    let rows = (0..all.rows.len()).filter(|row| wanted(*row)).map(|row| {
        let wait = all.wait(row, "wait", "wait_us");
        let waits = all.value(row, "state") == "waiting";
        vec![
            all.value(row, "database").to_string(),
            all.value(row, "user").to_string(),
            all.value(row, "state").to_string(),
            if waits { duration(wait) } else { String::new() },
            all.value(row, "wait_reason").to_string(),
            all.value(row, "wait_place").to_string(),
            all.value(row, "application_name").to_string(),
            address(all, row),
            all.value(row, "connect_time").to_string(),
        ]
    });
    Table {
        columns: columns(&[
            "database",
            "user",
            "state",
            "waited",
            "why",
            "place",
            "application",
            "from",
            "connected",
        ]),
        rows: rows.collect(),
    }
}

fn servers(now: &Snapshot) -> Table {
    let all = &now.servers;
    let rows = (0..all.rows.len()).map(|row| {
        vec![
            all.value(row, "database").to_string(),
            all.value(row, "user").to_string(),
            all.value(row, "state").to_string(),
            all.value(row, "remote_pid").to_string(),
            address(all, row),
            all.value(row, "application_name").to_string(),
            all.value(row, "prepared_statements").to_string(),
            all.value(row, "request_time").to_string(),
            all.value(row, "connect_time").to_string(),
        ]
    });
    Table {
        columns: columns(&[
            "database",
            "user",
            "state",
            "pid",
            "at",
            "application",
            "statements",
            "request",
            "connected",
        ]),
        rows: rows.collect(),
    }
}

fn holders(now: &Snapshot, wanted: impl Fn(&str, &str) -> bool) -> Table {
    let all = &now.holders;
    let rows = (0..all.rows.len())
        .filter(|row| wanted(all.value(*row, "database"), all.value(*row, "user")))
        .map(|row| {
            vec![
                all.value(row, "database").to_string(),
                all.value(row, "user").to_string(),
                duration(all.number(row, "held_us")),
                all.value(row, "state").to_string(),
                duration(all.number(row, "state_us")),
                all.value(row, "kept_for").to_string(),
                all.value(row, "application_name").to_string(),
                all.value(row, "remote_pid").to_string(),
                all.value(row, "query").to_string(),
                all.value(row, "client_addr").to_string(),
            ]
        });
    Table {
        columns: columns(&[
            "database",
            "user",
            "held",
            "state",
            "for",
            "kept for",
            "application",
            "pid",
            "query",
            "client",
        ]),
        rows: rows.collect(),
    }
}

/// Which queries take the most, and how often they ran of late.
fn queries(now: &Snapshot, before: Option<&Snapshot>) -> Table {
    let all = &now.queries;
    let key = |table: &Table, row| {
        let names = ["fingerprint", "database", "user"];
        names.map(|name| table.value(row, name).to_string())
    };
    let old = before.map(|before| {
        let rows = 0..before.queries.rows.len();
        let calls = |row| {
            (
                key(&before.queries, row),
                before.queries.number(row, "calls"),
            )
        };
        (before.at, rows.map(calls).collect::<HashMap<_, _>>())
    });
    let rate = |row| {
        let (at, calls) = old.as_ref()?;
        let seconds = now.at.duration_since(*at).as_secs_f64().max(0.001);
        let earlier = calls.get(&key(all, row)).copied().unwrap_or(0.0);
        Some((all.number(row, "calls") - earlier).max(0.0) / seconds)
    };
    let rows = (0..all.rows.len()).map(|row| {
        let time = |name| duration(all.number(row, name));
        let text = |name| all.value(row, name).to_string();
        vec![
            text("query"),
            time("total_us"),
            text("calls"),
            rate(row).map_or_else(String::new, |rate| format!("{rate:.0}")),
            time("mean_us"),
            time("p99_us"),
            time("max_us"),
            time("wait_us"),
            text("rows"),
            text("errors"),
            text("database"),
            text("user"),
            text("fingerprint"),
        ]
    });
    Table {
        columns: columns(&[
            "query",
            "total",
            "calls",
            "a second",
            "mean",
            "p99",
            "max",
            "wait",
            "rows",
            "errors",
            "database",
            "user",
            "fingerprint",
        ]),
        rows: rows.collect(),
    }
}

/// Who has servers of a pool, and who waits for one.
fn pool(now: &Snapshot, database: &str, user: &str) -> Table {
    let mut rows = Vec::new();
    for row in holders(now, |d, u| d == database && u == user).rows {
        let [
            _,
            _,
            held,
            state,
            stayed,
            kept,
            application,
            pid,
            query,
            client,
        ] = &row[..]
        else {
            continue;
        };
        let does = match kept.as_str() {
            "" => format!("{state} {stayed}"),
            kept => format!("{state} {stayed}, keeps {kept}"),
        };
        rows.push(vec![
            "holds".to_string(),
            held.clone(),
            does,
            application.clone(),
            pid.clone(),
            query.clone(),
            client.clone(),
        ]);
    }
    let all = &now.clients;
    for row in 0..all.rows.len() {
        let here = all.value(row, "database") == database && all.value(row, "user") == user;
        let state = all.value(row, "state");
        let holds = state == "active" && now.holders.columns.is_empty();
        if !here || state != "waiting" && !holds {
            continue;
        }
        let wait = all.wait(row, "wait", "wait_us");
        rows.push(vec![
            if holds { "holds" } else { "waits" }.to_string(),
            if holds { String::new() } else { duration(wait) },
            all.value(row, "wait_reason").replace('_', " "),
            all.value(row, "application_name").to_string(),
            String::new(),
            String::new(),
            address(all, row),
        ]);
    }
    Table {
        columns: columns(&["", "for", "what", "application", "pid", "query", "client"]),
        rows,
    }
}

fn address(table: &Table, row: usize) -> String {
    format!("{}:{}", table.value(row, "addr"), table.value(row, "port"))
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// The sum; of nothing, 0 (`Iterator::sum` starts from -0.0, which is shown as "-0").
fn total(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// Everything in a few numbers.
pub(crate) struct Summary {
    /// Per second.
    pub transactions: f64,
    pub queries: f64,
    pub waiting: f64,
    pub clients: f64,
    pub active: f64,
    pub idle: f64,
    /// On average.
    pub query_us: f64,
    pub wait_us: f64,
}

impl Summary {
    /// The summary of all databases but the console: who looks is no load.
    pub fn of(now: &Snapshot, before: Option<&Snapshot>) -> Summary {
        let rows = 0..now.pools.rows.len();
        let pools = rows.filter(|row| now.pools.value(*row, "database") != "pgbouncer");
        let pools: Vec<usize> = pools.collect();
        let sum = |name| total(pools.iter().map(|row| now.pools.number(*row, name)));
        let rates = rates(now, before);
        let all: Vec<_> = rates
            .iter()
            .filter(|(name, _)| *name != "pgbouncer")
            .collect();
        let weighted = |of: fn(&Rate) -> f64, by: fn(&Rate) -> f64| {
            let weight = total(all.iter().map(|(_, rate)| by(rate)));
            let sum = total(all.iter().map(|(_, rate)| of(rate) * by(rate)));
            if weight > 0.0 { sum / weight } else { 0.0 }
        };
        Summary {
            transactions: total(all.iter().map(|(_, rate)| rate.transactions)),
            queries: total(all.iter().map(|(_, rate)| rate.queries)),
            waiting: sum("cl_waiting"),
            clients: sum("cl_active") + sum("cl_waiting"),
            active: sum("sv_active"),
            idle: sum("sv_idle") + sum("sv_used"),
            query_us: weighted(|rate| rate.query_us, |rate| rate.queries),
            wait_us: weighted(|rate| rate.wait_us, |rate| rate.waits),
        }
    }

    /// The same in words.
    pub fn text(&self) -> String {
        format!(
            "{:.0} tx/s, {:.0} q/s; {} clients wait of {}; {} servers active, {} idle; query {}, \
             wait {}",
            self.transactions,
            self.queries,
            self.waiting,
            self.clients,
            self.active,
            self.idle,
            duration(self.query_us),
            duration(self.wait_us),
        )
    }
}

/// What is wrong with a pool, or with the pooler, and what would help: the worst first.
pub(crate) fn verdicts(now: &Snapshot) -> Vec<String> {
    let all = &now.verdicts;
    let text = |row| {
        let of = |name| all.value(row, name);
        match of("database") {
            "" => of("verdict").to_string(),
            database => format!("{database}/{}: {}", of("user"), of("verdict")),
        }
    };
    (0..all.rows.len()).map(text).collect()
}

/// How many holders and waiters [`plain`] tells of each pool.
const PLAIN_ROWS: usize = 20;

/// Pools as text, who waits first; of those with waiting clients also who holds servers and who
/// waits.
pub(crate) fn plain(now: &Snapshot, before: Option<&Snapshot>) -> String {
    let mut pools = View::Pools.table(now, before);
    if let Some(waiting) = pools.column("waiting") {
        pools.sort(waiting, true);
    }
    let version = printable(&now.version);
    let summary = Summary::of(now, before).text();
    let mut text = format!("{version}\n{summary}\n");
    for verdict in verdicts(now) {
        text.push_str(&format!("{}\n", printable(&verdict)));
    }
    text.push('\n');
    lines(&pools, &mut text);
    for row in (0..pools.rows.len()).filter(|row| pools.number(*row, "waiting") > 0.0) {
        let (database, user) = (pools.value(row, "database"), pools.value(row, "user"));
        let mut table = View::Pool(database.into(), user.into()).table(now, before);
        let left_out = table.rows.len().saturating_sub(PLAIN_ROWS);
        table.rows.truncate(PLAIN_ROWS);
        text.push_str(&format!("\n{}/{}\n", printable(database), printable(user)));
        lines(&table, &mut text);
        if left_out > 0 {
            text.push_str(&format!("and {left_out} more\n"));
        }
    }
    text
}

/// A text with control characters as escapes: anybody can give a database or an application a name
/// that a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
    }
    shown
}

/// A table as lines of text.
fn lines(table: &Table, text: &mut String) {
    let of_row = |row: &Vec<String>| row.iter().map(|value| printable(value)).collect();
    let rows: Vec<Vec<String>> = table.rows.iter().map(of_row).collect();
    let width = |at: usize| {
        let values = rows.iter().map(|row| row[at].chars().count());
        let title = table.columns[at].chars().count();
        values.chain([title]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    for row in std::iter::once(&table.columns).chain(&rows) {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(value, width)| format!("{value:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
}
