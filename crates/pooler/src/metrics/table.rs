//! The one table of metrics: the source of the text for Prometheus (`text.rs`) and of the reference
//! page.

use std::fmt::Write;

use super::sight::{Levels, PoolSight, Sight, WorkerSight};
use super::words::{ByWord, by_word, handshakes, told, truth};
use crate::console::holdings::ShardFigures;
use crate::console::host_sight::HostSight;
use crate::console::sharded_sight::ShardedSight;
use crate::errors::{ErrorCounts, LOGIN_FAILURES, REFUSALS};
use crate::pool::Reason;
use crate::session::PIN_REASONS;
use crate::times::Histogram;

/// The version in `howdah_info`.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A metric's type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub(super) fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// The source of a metric's values, and the metric's labels.
pub(super) enum MetricSource {
    /// No labels.
    Process(fn(&Sight) -> f64),
    /// The given label.
    ProcessBy(&'static str, fn(&Sight) -> ByWord),
    /// `worker`.
    Worker(fn(&WorkerSight) -> f64),
    /// `host`.
    Host(fn(&HostSight) -> Option<f64>),
    /// `host` and the given label.
    HostBy(&'static str, fn(&HostSight) -> ByWord),
    /// `database`.
    UsableHosts,
    /// `database` and `reason`.
    Sharded(fn(&ShardedSight) -> ByWord),
    /// `database` and `shard`.
    Shard(fn(&ShardFigures) -> Option<f64>),
    /// `database`, `user`.
    Pool(fn(&PoolSight) -> f64),
    /// `database`, `user` and the given label.
    PoolBy(&'static str, fn(&PoolSight) -> ByWord),
    /// `database`, `user`, `source` and `class`.
    Errors(fn(&PoolSight) -> &ErrorCounts),
    /// `database`, `user`: durations, and their sum in nanoseconds.
    Times(fn(&PoolSight) -> (Histogram, u64)),
    /// `database`, `user`: counts of servers.
    Levels(fn(&PoolSight) -> Levels),
}

/// A metric.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) source: MetricSource,
    pub(super) help: &'static str,
}

use MetricKind::{Counter, Gauge};
use MetricSource::{Host, HostBy, Pool, PoolBy, Process, ProcessBy, Worker};

const fn metric(
    name: &'static str,
    kind: MetricKind,
    source: MetricSource,
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        source,
        help,
    }
}

const fn times(
    name: &'static str,
    source: fn(&PoolSight) -> (Histogram, u64),
    help: &'static str,
) -> Metric {
    metric(
        name,
        MetricKind::Histogram,
        MetricSource::Times(source),
        help,
    )
}

pub(super) static METRICS: &[Metric] = &[
    metric(
        "howdah_info",
        Gauge,
        ProcessBy("version", |_| vec![(VERSION, 1.0)]),
        "Always 1; the label has the version.",
    ),
    metric(
        "howdah_clients",
        Gauge,
        ProcessBy("state", |s| {
            let others = s.login_clients + s.consoles;
            vec![
                ("logged_in", s.clients.saturating_sub(others).into()),
                ("login", s.login_clients.into()),
                ("console", s.consoles.into()),
            ]
        }),
        "Clients that are connected: logged in, still logging in, or at the console.",
    ),
    metric(
        "howdah_max_clients",
        Gauge,
        Process(|s| s.process.max_clients.into()),
        "The setting max_client_conn.",
    ),
    metric(
        "howdah_login_failures_total",
        Counter,
        ProcessBy("reason", |s| {
            by_word(&LOGIN_FAILURES, &s.not_let_in.failures)
        }),
        "Clients whose login failed.",
    ),
    metric(
        "howdah_clients_refused_total",
        Counter,
        ProcessBy("reason", |s| by_word(&REFUSALS, &s.not_let_in.refusals)),
        "Clients that were refused for another reason before they were logged in.",
    ),
    metric(
        "howdah_config_last_reload_successful",
        Gauge,
        Process(|s| truth(s.process.reload_succeeded)),
        "1 unless the last reload of the configuration failed.",
    ),
    metric(
        "howdah_config_last_reload_success_timestamp_seconds",
        Gauge,
        Process(|s| s.process.reloaded_at),
        "When the configuration in force was read, in seconds since 1970.",
    ),
    metric(
        "howdah_servers",
        Gauge,
        Process(|s| s.servers.into()),
        "Connections to PostgreSQL, in every state.",
    ),
    metric(
        "howdah_pools",
        Gauge,
        Process(|s| s.pool_count.into()),
        "Pools, including those that are summed.",
    ),
    metric(
        "howdah_paused",
        Gauge,
        Process(|s| truth(s.paused)),
        "1 while PAUSE holds for all pools.",
    ),
    metric(
        "howdah_suspended",
        Gauge,
        Process(|s| truth(s.suspended)),
        "1 while SUSPEND holds, or a successor takes over.",
    ),
    metric(
        "howdah_draining",
        Gauge,
        Process(|s| truth(s.process.draining)),
        "1 once no new clients are taken.",
    ),
    metric(
        "howdah_table_bytes",
        Gauge,
        ProcessBy("table", |s| {
            s.memory
                .iter()
                .map(|(name, bytes)| (*name, *bytes as f64))
                .collect()
        }),
        "Memory of the tables of SHOW MEM.",
    ),
    metric(
        "howdah_client_tls_handshakes_total",
        Counter,
        ProcessBy("result", |s| handshakes(&s.tls.handshakes[0])),
        "TLS handshakes with clients: in full, resumed, or refused by one of the two sides.",
    ),
    metric(
        "howdah_server_tls_handshakes_total",
        Counter,
        ProcessBy("result", |s| handshakes(&s.tls.handshakes[1])),
        "TLS handshakes with servers.",
    ),
    metric(
        "howdah_tls_certificate_expiry_seconds",
        Gauge,
        ProcessBy("setting", |s| {
            ["client_tls_cert_file", "server_tls_cert_file"]
                .into_iter()
                .zip(s.tls.ends)
                .filter_map(|(setting, end)| Some((setting, end? as f64)))
                .collect()
        }),
        "When the certificate of this setting expires, in seconds since 1970.",
    ),
    metric(
        "howdah_secret_fetches_total",
        Counter,
        ProcessBy("result", |s| {
            by_word(&["value", "failure"], &s.secrets.calls)
        }),
        "Answers of sources of secrets: a value, or a failure. Files count when their text has changed.",
    ),
    metric(
        "howdah_secret_expires_in_seconds",
        Gauge,
        ProcessBy("which", |s| {
            let least = s.secrets.expires_in.map(|left| ("first", left));
            least.into_iter().collect()
        }),
        "When the first of the fetched secrets ends, from now on. 0: it has ended.",
    ),
    metric(
        "howdah_secret_life_left_ratio",
        Gauge,
        ProcessBy("which", |s| {
            let least = s.secrets.life_left.map(|left| ("least", left));
            least.into_iter().collect()
        }),
        "The least part of its life that a fetched secret has left. New ones are fetched at a fifth.",
    ),
    metric(
        "howdah_token_keys_age_seconds",
        Gauge,
        ProcessBy("which", |s| {
            let age = s.process.keys_age.map(|age| ("oldest", age));
            age.into_iter().collect()
        }),
        "How old the oldest keys are that clients' tokens are checked with. They are fetched when somebody logs \
         in, and serve for a day at most.",
    ),
    metric(
        "howdah_late_samples_total",
        Counter,
        Process(|s| s.process.late_samples as f64),
        "Seconds in which nothing was sampled, because a worker had not answered yet.",
    ),
    metric(
        "howdah_slow_queries_unlogged_total",
        Counter,
        Process(|s| s.unlogged as f64),
        "Slow queries that have no line in the log: there were more in a second than slow_query_rate.",
    ),
    metric(
        "howdah_spans_sent_total",
        Counter,
        Process(|s| s.process.spans_sent as f64),
        "Spans that the collector has taken.",
    ),
    metric(
        "howdah_spans_lost_total",
        Counter,
        Process(|s| s.process.spans_lost as f64),
        "Spans that were dropped, because the collector was away, slow, or refused them.",
    ),
    metric(
        "process_cpu_seconds_total",
        Counter,
        Process(|s| s.process.cpu_seconds),
        "Processor time of the process, in user and system mode.",
    ),
    metric(
        "process_resident_memory_bytes",
        Gauge,
        Process(|s| s.process.resident_bytes as f64),
        "Resident memory.",
    ),
    metric(
        "process_open_fds",
        Gauge,
        Process(|s| s.process.open_fds as f64),
        "Open descriptors.",
    ),
    metric(
        "process_max_fds",
        Gauge,
        Process(|s| s.process.max_fds as f64),
        "How many descriptors the process may have.",
    ),
    metric(
        "process_start_time_seconds",
        Gauge,
        Process(|s| s.process.started),
        "When the process started, in seconds since 1970.",
    ),
    metric(
        "howdah_worker_clients",
        Gauge,
        Worker(|w| w.clients.into()),
        "Clients of a worker.",
    ),
    metric(
        "howdah_worker_servers",
        Gauge,
        Worker(|w| w.servers.into()),
        "Servers of a worker.",
    ),
    metric(
        "howdah_worker_transactions_total",
        Counter,
        Worker(|w| w.transactions as f64),
        "Transactions that a worker has passed.",
    ),
    metric(
        "howdah_worker_lends_total",
        Counter,
        Worker(|w| w.lends as f64),
        "Servers that a worker has lent to others.",
    ),
    metric(
        "howdah_worker_arrived_clients_total",
        Counter,
        Worker(|w| w.arrived as f64),
        "Clients that have come to a worker from others.",
    ),
    metric(
        "howdah_worker_departed_clients_total",
        Counter,
        Worker(|w| w.departed as f64),
        "Clients that have left a worker for others.",
    ),
    metric(
        "howdah_worker_mails_total",
        Counter,
        Worker(|w| w.mails as f64),
        "Mails that a worker has sent to others.",
    ),
    metric(
        "howdah_worker_busy_ratio",
        Gauge,
        Worker(|w| w.busy),
        "The share of its time that a worker works, from 0 to 1, over the last moments. Above 0.95: no \
         time is left.",
    ),
    metric(
        "howdah_host_role",
        Gauge,
        HostBy("role", |h| vec![(h.role_word(), 1.0)]),
        "The role of a host of databases with target_session_attrs: `primary`, `standby`, `unknown`, or \
         `rival`, one of several that take writes while nobody knows which one is right.",
    ),
    metric(
        "howdah_host_state",
        Gauge,
        HostBy("state", |h| vec![(h.standing.state.word(), 1.0)]),
        "The state of such a host: `up`, `down`, `silent`, `drained` or `fenced`.",
    ),
    metric(
        "howdah_host_servers",
        Gauge,
        HostBy("state", |h| {
            let servers = &h.servers;
            vec![
                ("active", servers.active.into()),
                (
                    "idle",
                    servers.servers.saturating_sub(servers.active).into(),
                ),
                ("login", servers.logins.into()),
            ]
        }),
        "Servers at such a host: with a client, without, and not logged in yet.",
    ),
    metric(
        "howdah_host_checkouts_total",
        Counter,
        Host(|h| Some(h.servers.checkouts as f64)),
        "How many times clients got a server of such a host.",
    ),
    metric(
        "howdah_host_timeline",
        Gauge,
        Host(|h| h.standing.timeline.map(f64::from)),
        "The timeline of such a host.",
    ),
    metric(
        "howdah_host_lsn_bytes",
        Gauge,
        Host(|h| Some(h.servers.check.as_ref()?.lsn? as f64)),
        "The position of such a host in the WAL: what a primary has inserted, and a standby replayed.",
    ),
    metric(
        "howdah_host_lag_bytes",
        Gauge,
        Host(|h| h.lag.map(|lag| lag as f64)),
        "How many bytes of the primary's WAL a standby had not replayed, by the last checks of both.",
    ),
    metric(
        "howdah_host_lag_seconds",
        Gauge,
        Host(|h| h.lag_ns.map(|lag| lag as f64 / 1e9)),
        "The age of the newest position of the primary that a standby has replayed, where reads are \
         routed.",
    ),
    metric(
        "howdah_host_check_seconds",
        Gauge,
        Host(|h| Some(h.servers.check.as_ref()?.took as f64 / 1e9)),
        "How long such a host took to answer its last check.",
    ),
    metric(
        "howdah_database_usable_hosts",
        Gauge,
        MetricSource::UsableHosts,
        "How many hosts with the wished role a database with target_session_attrs can use. With 0, its \
         clients wait.",
    ),
    metric(
        "howdah_pool_clients",
        Gauge,
        PoolBy("state", |p| {
            vec![
                ("active", p.states.cl_active.into()),
                ("waiting", p.states.cl_waiting.into()),
                ("cancelling", p.states.cl_active_cancel.into()),
            ]
        }),
        "Clients of a pool. As in SHOW POOLS, active are those that do not wait.",
    ),
    metric(
        "howdah_pool_waiting_clients",
        Gauge,
        PoolBy("reason", |p| {
            Reason::WORDS
                .iter()
                .filter_map(|word| Some((*word, f64::from(*p.reasons.get(word)?))))
                .collect()
        }),
        "Clients that wait for a server, by what keeps them from one.",
    ),
    metric(
        "howdah_pool_longest_wait_seconds",
        Gauge,
        Pool(|p| p.states.max_wait as f64 / 1e9),
        "For how long the client in front has waited.",
    ),
    metric(
        "howdah_pool_waits_in_progress_seconds",
        Gauge,
        Pool(|p| p.states.waits as f64 / 1e9),
        "The sum of the waits that are not over. howdah_pool_wait_seconds counts a wait when it is \
         over.",
    ),
    metric(
        "howdah_pool_servers",
        Gauge,
        PoolBy("state", |p| {
            vec![
                ("active", p.states.sv_active.into()),
                ("listening", p.states.sv_listening.into()),
                ("idle", p.states.sv_idle.into()),
                ("used", p.states.sv_used.into()),
                ("tested", p.states.sv_tested.into()),
                ("login", p.states.sv_login.into()),
                ("active_cancel", p.states.sv_active_cancel.into()),
                ("being_canceled", p.states.sv_being_canceled.into()),
            ]
        }),
        "Servers of a pool, by the states of SHOW POOLS_EXTENDED.",
    ),
    metric(
        "howdah_pool_working_servers",
        Gauge,
        Pool(|p| p.states.sv_working.into()),
        "Servers that execute something: active, and not idle in a transaction.",
    ),
    metric(
        "howdah_pool_held_servers",
        Gauge,
        PoolBy("state", |p| {
            vec![
                ("idle_in_transaction", p.states.sv_in_transaction.into()),
                ("kept", p.states.sv_kept.into()),
            ]
        }),
        "Servers that clients hold without using them: in an open transaction, or between two \
         transactions.",
    ),
    metric(
        "howdah_pool_oldest_transaction_seconds",
        Gauge,
        Pool(|p| p.states.oldest_transaction as f64 / 1e9),
        "The age of the oldest transaction; 0 if none is open.",
    ),
    metric(
        "howdah_pool_size",
        Gauge,
        Pool(|p| p.size.into()),
        "The pool's pool_size; 0 without limit.",
    ),
    metric(
        "howdah_pool_paused",
        Gauge,
        Pool(|p| truth(p.paused)),
        "1 while the pool is paused.",
    ),
    metric(
        "howdah_pool_login_failing",
        Gauge,
        Pool(|p| truth(p.failure.is_some())),
        "1 from a login to PostgreSQL that failed to the next that succeeds.",
    ),
    metric(
        "howdah_pool_transactions_total",
        Counter,
        Pool(|p| p.stats.transactions as f64),
        "Transactions.",
    ),
    metric(
        "howdah_pool_queries_total",
        Counter,
        Pool(|p| p.stats.queries as f64),
        "Queries, as SHOW STATS counts them.",
    ),
    metric(
        "howdah_pool_server_assignments_total",
        Counter,
        Pool(|p| p.stats.server_assignments as f64),
        "Times a server was bound to a client.",
    ),
    metric(
        "howdah_pool_received_bytes_total",
        Counter,
        Pool(|p| p.stats.received as f64),
        "Bytes from clients.",
    ),
    metric(
        "howdah_pool_sent_bytes_total",
        Counter,
        Pool(|p| p.stats.sent as f64),
        "Bytes from servers.",
    ),
    metric(
        "howdah_pool_client_parses_total",
        Counter,
        Pool(|p| p.stats.client_parses as f64),
        "Statements that clients prepared.",
    ),
    metric(
        "howdah_pool_server_parses_total",
        Counter,
        Pool(|p| p.stats.server_parses as f64),
        "Statements that were prepared on servers.",
    ),
    metric(
        "howdah_pool_answered_groups_total",
        Counter,
        Pool(|p| p.stats.answered_groups as f64),
        "Groups of messages (Parse, Describe, Close, Sync) that Howdah has answered without a server.",
    ),
    metric(
        "howdah_pool_binds_total",
        Counter,
        Pool(|p| p.stats.binds as f64),
        "Binds from clients.",
    ),
    metric(
        "howdah_pool_lends_total",
        Counter,
        Pool(|p| p.stats.lends as f64),
        "Servers lent from one worker to another.",
    ),
    metric(
        "howdah_pool_evictions_total",
        Counter,
        Pool(|p| p.stats.evictions as f64),
        "Servers closed to make room for another pool: under a bound that both share, or where PostgreSQL \
         had no room (`max_connections`).",
    ),
    metric(
        "howdah_internal_errors_total",
        Counter,
        Pool(|p| p.stats.internal_errors as f64),
        "Clients that an internal error of Howdah has disconnected.",
    ),
    metric(
        "howdah_pool_errors_total",
        Counter,
        MetricSource::Errors(|p| &p.errors),
        "Errors that clients got, by who made them (`server`, `pooler`) and by the class of their \
         SQLSTATE: its first two characters, or `other`.",
    ),
    metric(
        "howdah_pool_connect_failures_total",
        Counter,
        Pool(|p| p.times.connect_failures as f64),
        "Connections to PostgreSQL that failed, or whose logins did.",
    ),
    metric(
        "howdah_pool_pinned_clients",
        Gauge,
        Pool(|p| p.pinned.into()),
        "Clients that keep their server between transactions, for what they left in its session.",
    ),
    metric(
        "howdah_pool_pins_total",
        Counter,
        Pool(|p| p.stats.pins as f64),
        "Times a client began to keep its server.",
    ),
    metric(
        "howdah_pool_pin_reasons_total",
        Counter,
        PoolBy("reason", |p| {
            let counts = PIN_REASONS.iter().zip(p.stats.pins_for);
            let words = counts.map(|((_, word, _), count)| (*word, count as f64));
            words.collect()
        }),
        "The same by reason; one client can have several.",
    ),
    metric(
        "howdah_pool_reads_total",
        Counter,
        PoolBy("to", |p| {
            let counts = p.reads.places();
            told(counts.map(|(place, count)| (place.word(), count)))
        }),
        "Reads that may go to standbys: where they went, and why to the primary. Only where reads \
         are routed.",
    ),
    metric(
        "howdah_pool_read_waits_total",
        Counter,
        PoolBy("for", |p| told([("standby", p.reads.waits())].into_iter())),
        "Reads that waited until a standby showed what their client had seen, or for read_wait in \
         vain.",
    ),
    metric(
        "howdah_pool_reads_again_total",
        Counter,
        PoolBy("class", |p| told(p.reads.again())),
        "Reads that a standby refused, and that ran again at the primary, by the class of the \
         standby's SQLSTATE.",
    ),
    metric(
        "howdah_shard_statements_total",
        Counter,
        MetricSource::Shard(|s| Some(s.counts.statements as f64)),
        "Statements of sharded databases, by the shard that they went to.",
    ),
    metric(
        "howdah_shard_refusals_total",
        Counter,
        MetricSource::Sharded(|s| told(s.reasons.iter().map(|(why, of)| (why.word(), of[0])))),
        "Statements of sharded databases that were refused, by reason (SHOW SHARD_REFUSALS).",
    ),
    metric(
        "howdah_shard_rehearsed_refusals_total",
        Counter,
        MetricSource::Sharded(|s| told(s.reasons.iter().map(|(why, of)| (why.word(), of[1])))),
        "Statements of databases with one shard that would be refused with several, by reason.",
    ),
    metric(
        "howdah_shard_catalogue_age_seconds",
        Gauge,
        MetricSource::Shard(|s| Some(s.age_ns? as f64 / 1e9)),
        "How long ago a shard's catalogue was read. While clients are connected, it \
         is read again each minute.",
    ),
    metric(
        "howdah_shard_catalogue_failures_total",
        Counter,
        MetricSource::Shard(|s| Some(s.counts.failures as f64)),
        "Readings of a shard's catalogue that failed.",
    ),
    metric(
        "howdah_pool_slow_queries_total",
        Counter,
        Pool(|p| p.stats.slow_queries as f64),
        "Queries that took longer than slow_query_time.",
    ),
    times(
        "howdah_pool_wait_seconds",
        |p| {
            let waits = p
                .times
                .all_waits(p.stats.server_assignments, p.stats.waits_in_vain);
            (waits, p.stats.wait_ns)
        },
        "How long clients waited for a server, including clients that got one at once, and those \
         that gave up.",
    ),
    times(
        "howdah_pool_query_seconds",
        |p| (p.times.query, p.stats.query_ns),
        "From a request to the end of its answer. Queries whose answers came together count once.",
    ),
    times(
        "howdah_pool_transaction_seconds",
        |p| (p.times.transaction, p.stats.transaction_ns),
        "From a transaction's beginning to its end.",
    ),
    times(
        "howdah_pool_login_seconds",
        |p| (p.times.login, p.times.login_ns),
        "From a client's connection to the end of its login.",
    ),
    times(
        "howdah_pool_connect_seconds",
        |p| (p.times.connect, p.times.connect_ns),
        "From a server's connection to its readiness.",
    ),
    metric(
        "howdah_pool_working_while_waiting",
        MetricKind::Histogram,
        MetricSource::Levels(|p| p.levels),
        "How many servers executed something, looked at once in each second in which clients \
         waited. Far below pool_size: clients hold servers without using them.",
    ),
];

/// The reference of all metrics, as Markdown.
pub fn metrics_page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Generated by `howdah --metrics`; do not edit.\n\n\
         `http_listen_port` opens an endpoint; `/metrics` there has what follows, in Prometheus' \
         text format, or in OpenMetrics' if the request asks for it. Workers are asked once a \
         second, however many scrape, so values are up to a second old.\n\n\
         `database` and `user` name a pool. The first `metrics_max_pools` pools are shown alone; \
         the sum of the others has `(other)` in both labels. A pool does not change between the \
         two, so no counter falls. Workers and pools add up: `sum without (database, user)` is right for \
         every counter and histogram.\n\n\
         Durations are histograms with fixed bounds, each twice the one before, from 131 µs to \
         69 s; a quantile is exact to its bucket.\n\n\
         | metric | type | labels | what |\n|---|---|---|---|\n",
    );
    for metric in METRICS {
        let labels = match &metric.source {
            Process(_) => String::new(),
            ProcessBy(label, _) => format!("`{label}`"),
            Worker(_) => "`worker`".into(),
            Host(_) => "`host`".into(),
            HostBy(label, _) => format!("`host`, `{label}`"),
            MetricSource::UsableHosts => "`database`".into(),
            MetricSource::Sharded(_) => "`database`, `reason`".into(),
            MetricSource::Shard(_) => "`database`, `shard`".into(),
            Pool(_) | MetricSource::Times(_) | MetricSource::Levels(_) => {
                "`database`, `user`".into()
            }
            MetricSource::Errors(_) => "`database`, `user`, `source`, `class`".into(),
            PoolBy(label, _) => format!("`database`, `user`, `{label}`"),
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {labels} | {} |",
            metric.name,
            metric.kind.word(),
            metric.help
        );
    }
    page.push_str("\nWhat keeps a client waiting (`reason`):\n\n| reason | what |\n|---|---|\n");
    for reason in Reason::all() {
        let _ = writeln!(page, "| `{}` | {} |", reason.word(), reason.text());
    }
    page.push_str(
        "\nWhy clients keep servers (`reason` of pins):\n\n| reason | what |\n|---|---|\n",
    );
    for (_, word, text) in PIN_REASONS {
        let _ = writeln!(page, "| `{word}` | {text} |");
    }
    page
}
