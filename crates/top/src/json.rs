//! What `--once --json` prints: numbers as numbers, with their unit in the key.

use serde_json::{Map, Value, json};

use crate::console::Snapshot;
use crate::table::Table;
use crate::view::{Rate, Summary, rates, reasons, sizes};

/// The kind of a value in a row of the console.
#[derive(Clone, Copy)]
enum As {
    /// Text; null where the console has none.
    Text,
    Number,
    /// Microseconds, shown as seconds.
    Seconds,
}

/// The name of a key, the column that it comes from, and the kind of its value.
type Key = (&'static str, &'static str, As);

const POOLS: &[Key] = &[
    ("database", "database", As::Text),
    ("user", "user", As::Text),
    ("clients_waiting", "cl_waiting", As::Number),
    ("clients_active", "cl_active", As::Number),
    ("servers_active", "sv_active", As::Number),
    ("servers_working", "sv_working", As::Number),
    (
        "servers_idle_in_transaction",
        "sv_in_transaction",
        As::Number,
    ),
    ("servers_kept", "sv_kept", As::Number),
    ("servers_idle", "sv_idle", As::Number),
    ("servers_used", "sv_used", As::Number),
    ("servers_tested", "sv_tested", As::Number),
    ("servers_login", "sv_login", As::Number),
    (
        "oldest_transaction_seconds",
        "oldest_transaction_us",
        As::Seconds,
    ),
    ("pool_mode", "pool_mode", As::Text),
];

const CLIENTS: &[Key] = &[
    ("id", "id", As::Number),
    ("database", "database", As::Text),
    ("user", "user", As::Text),
    ("state", "state", As::Text),
    ("wait_reason", "wait_reason", As::Text),
    ("wait_place", "wait_place", As::Number),
    ("kept_for", "pin_reason", As::Text),
    ("application", "application_name", As::Text),
    ("address", "addr", As::Text),
    ("port", "port", As::Number),
    ("connect_time", "connect_time", As::Text),
];

const SERVERS: &[Key] = &[
    ("id", "id", As::Number),
    ("database", "database", As::Text),
    ("user", "user", As::Text),
    ("state", "state", As::Text),
    ("pid", "remote_pid", As::Number),
    ("kept_for", "pin_reason", As::Text),
    ("application", "application_name", As::Text),
    ("address", "addr", As::Text),
    ("port", "port", As::Number),
    ("prepared_statements", "prepared_statements", As::Number),
    ("request_time", "request_time", As::Text),
    ("connect_time", "connect_time", As::Text),
];

const HOLDERS: &[Key] = &[
    ("database", "database", As::Text),
    ("user", "user", As::Text),
    ("held_seconds", "held_us", As::Seconds),
    ("state", "state", As::Text),
    ("state_seconds", "state_us", As::Seconds),
    ("kept_for", "kept_for", As::Text),
    ("query", "query", As::Text),
    ("application", "application_name", As::Text),
    ("client", "client_addr", As::Text),
    ("client_id", "client_id", As::Number),
    ("server_id", "server_id", As::Number),
    ("pid", "remote_pid", As::Number),
];

const QUERIES: &[Key] = &[
    ("query", "query", As::Text),
    ("database", "database", As::Text),
    ("user", "user", As::Text),
    ("calls", "calls", As::Number),
    ("errors", "errors", As::Number),
    ("rows", "rows", As::Number),
    ("total_seconds", "total_us", As::Seconds),
    ("mean_seconds", "mean_us", As::Seconds),
    ("p99_seconds", "p99_us", As::Seconds),
    ("max_seconds", "max_us", As::Seconds),
    ("wait_seconds", "wait_us", As::Seconds),
    ("fingerprint", "fingerprint", As::Text),
];

/// All that is known, as one line.
pub(crate) fn json(now: &Snapshot, before: Option<&Snapshot>) -> String {
    let all = json!({
        "version": now.version,
        "verdicts": rows(&now.verdicts, &[
            ("database", "database", As::Text),
            ("user", "user", As::Text),
            ("text", "verdict", As::Text),
        ], |_, _| {}),
        "summary": summary(&Summary::of(now, before)),
        "pools": pools(now, before),
        "clients": rows(&now.clients, CLIENTS, |row, object| {
            let waits = now.clients.value(row, "state") == "waiting";
            let waited = now.clients.wait(row, "wait", "wait_us");
            let waited = waits.then(|| seconds(waited));
            object.insert("waited_seconds".into(), json!(waited));
        }),
        "servers": rows(&now.servers, SERVERS, |_, _| {}),
        "holders": rows(&now.holders, HOLDERS, |_, _| {}),
        "queries": rows(&now.queries, QUERIES, |_, _| {}),
    });
    let text = all.to_string();
    // JSON escapes but the first 32 control characters.
    let escaped = text.chars().map(|c| {
        if c.is_control() {
            format!("\\u{:04x}", u32::from(c))
        } else {
            c.to_string()
        }
    });
    format!("{}\n", escaped.collect::<String>())
}

fn summary(summary: &Summary) -> Value {
    json!({
        "transactions_per_second": summary.transactions,
        "queries_per_second": summary.queries,
        "clients": summary.clients as u64,
        "clients_waiting": summary.waiting as u64,
        "servers_active": summary.active as u64,
        "servers_idle": summary.idle as u64,
        "query_mean_seconds": seconds(summary.query_us),
        "wait_mean_seconds": seconds(summary.wait_us),
    })
}

fn pools(now: &Snapshot, before: Option<&Snapshot>) -> Value {
    let (rates, sizes, reasons) = (rates(now, before), sizes(now), reasons(now));
    rows(&now.pools, POOLS, |row, object| {
        let of = |name| now.pools.value(row, name);
        let key = (of("database").to_string(), of("user").to_string());
        let rate: Rate = rates.get(of("database")).copied().unwrap_or_default();
        let size = sizes.get(of("database")).and_then(|size| number(size));
        for (name, value) in [
            (
                "longest_wait_seconds",
                json!(seconds(now.pools.wait(row, "maxwait", "maxwait_us"))),
            ),
            ("wait_reason", json!(reasons.get(&key))),
            ("pool_size", json!(size)),
            ("database_transactions_per_second", json!(rate.transactions)),
            ("database_query_mean_seconds", json!(seconds(rate.query_us))),
            ("database_wait_mean_seconds", json!(seconds(rate.wait_us))),
        ] {
            object.insert(name.into(), value);
        }
    })
}

/// Rows as objects; `more` adds to each.
fn rows(table: &Table, keys: &[Key], more: impl Fn(usize, &mut Map<String, Value>)) -> Value {
    let object = |row: usize| {
        let mut object = Map::new();
        for (name, column, kind) in keys {
            let value = table.value(row, column);
            let value = match kind {
                As::Text if value.is_empty() => Value::Null,
                As::Text => json!(value),
                As::Number => json!(number(value)),
                As::Seconds => json!(number(value).and_then(|us| us.as_f64()).map(seconds)),
            };
            object.insert((*name).into(), value);
        }
        more(row, &mut object);
        Value::Object(object)
    };
    (0..table.rows.len()).map(object).collect()
}

fn number(text: &str) -> Option<serde_json::Number> {
    text.parse().ok()
}

fn seconds(us: f64) -> f64 {
    us.round() / 1e6
}
