//! The content of the page, as JSON.

use serde_json::{Value, json};

use super::sight::{Point, PoolSight, PoolVerdict, Sight, quantile};
use crate::queries::tally::CountedQuery;

/// The whole content of the page.
pub fn page(sight: &Sight) -> String {
    let pools = sight.pools.iter().zip(&sight.recent);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "host": sight.process.host,
        "started": sight.process.started,
        "cpu_seconds": sight.process.cpu_seconds,
        "resident_bytes": sight.process.resident_bytes,
        "clients": sight.clients,
        "max_clients": sight.process.max_clients,
        "login_clients": sight.login_clients,
        "consoles": sight.consoles,
        "servers": sight.servers,
        "pool_count": sight.pool_count,
        "paused": sight.paused,
        "suspended": sight.suspended,
        "draining": sight.process.draining,
        "workers": sight.workers.iter().map(|worker| json!({
            "worker": worker.worker,
            "clients": worker.clients,
            "servers": worker.servers,
            "transactions": worker.transactions,
            "lends": worker.lends,
            "busy": worker.busy,
        })).collect::<Value>(),
        "verdicts": sight.verdicts.iter().map(of_verdict).collect::<Value>(),
        "queries": sight.queries.lines.iter().map(of_query).collect::<Value>(),
        "evicted_queries": sight.queries.evicted,
        "history": sight.history.iter().map(point).collect::<Value>(),
        "pools": pools.map(|(pool, recent)| of_pool(pool, recent)).collect::<Value>(),
    })
    .to_string()
}

fn of_verdict(verdict: &PoolVerdict) -> Value {
    let pool = verdict.pool.as_ref();
    json!({
        "database": pool.map(|pool| &*pool.database),
        "user": pool.map(|pool| &*pool.user),
        "text": verdict.text,
    })
}

fn of_query(line: &CountedQuery) -> Value {
    let counts = &line.counts;
    json!({
        "database": &*line.login.database,
        "user": &*line.login.user,
        "calls": counts.calls,
        "errors": counts.errors,
        "rows": counts.rows,
        "total": counts.run_ns as f64 / 1e9,
        "mean": counts.run_ns as f64 / 1e9 / counts.calls.max(1) as f64,
        "p99": counts.p99_ns() as f64 / 1e9,
        "longest": counts.longest_ns as f64 / 1e9,
        "wait": counts.wait_ns as f64 / 1e9,
        "fingerprint": line.text.shown(),
        "query": &*line.text.text,
    })
}

fn point(point: &Point) -> Value {
    json!({
        "at": point.at,
        "transactions": point.transactions,
        "queries": point.queries,
        "active": point.active,
        "waiting": point.waiting,
        "working": point.working,
        "servers": point.servers,
        "query_p50": point.query_p50,
        "query_p99": point.query_p99,
        "transaction_p99": point.transaction_p99,
        "wait_p99": point.wait_p99,
    })
}

fn of_pool(pool: &PoolSight, recent: &Point) -> Value {
    let waiters = pool.waiters.iter().map(|waiter| {
        json!({
            "client": waiter.who.number,
            "address": waiter.who.address,
            "application": waiter.who.application,
            "waited": waiter.waited as f64 / 1e9,
            "reason": waiter.reason,
        })
    });
    let holders = pool.holders.iter().map(|holder| {
        json!({
            "client": holder.who.number,
            "address": holder.who.address,
            "application": holder.who.application,
            "state": holder.state.word(),
            "kept_for": holder.kept_for,
            "query": holder.query.as_ref().map(|query| &*query.text),
            "held": holder.held as f64 / 1e9,
            "stayed": holder.stayed as f64 / 1e9,
            "pid": holder.pid,
        })
    });
    json!({
        "database": &*pool.key.database,
        "user": &*pool.key.user,
        "mode": pool.mode.to_string(),
        "size": pool.size,
        "paused": pool.paused,
        "failure": pool.failure,
        "clients": pool.states.cl_active,
        "waiting": pool.states.cl_waiting,
        "longest_wait": pool.states.max_wait as f64 / 1e9,
        "reason": pool.reason.as_ref().map(|reason| json!({
            "word": reason.word(),
            "text": reason.text(),
        })),
        "active": pool.states.sv_active,
        "working": pool.states.sv_working,
        "in_transaction": pool.states.sv_in_transaction,
        "kept": pool.states.sv_kept,
        "oldest_transaction": pool.states.oldest_transaction as f64 / 1e9,
        "idle": pool.states.sv_idle + pool.states.sv_used,
        "login": pool.states.sv_login + pool.states.sv_tested,
        "transactions": pool.stats.transactions,
        "query_p99_ever": quantile(pool.times.query.counts(), 0.99),
        "recent": point(recent),
        "waiters": waiters.collect::<Value>(),
        "holders": holders.collect::<Value>(),
    })
}
