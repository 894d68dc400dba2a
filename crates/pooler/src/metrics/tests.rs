use std::collections::BTreeMap;
use std::sync::Arc;

use super::sight::quantile;
use super::*;
use crate::config::{Config, PoolMode};
use crate::console::holdings::{Holdings, PoolShare, States};
use crate::event::WorkerId;
use crate::login::LoginKey;
use crate::pool::Reason;
use crate::stats::Stats;
use crate::times::{BOUNDS, Histogram, Times};

fn share(database: &str, transactions: u64) -> PoolShare {
    let ini = "[databases]\n* = host=127.0.0.1\n[pgbouncer]\nlisten_addr = *\n";
    let (config, _) = Config::load("x.ini", ini, &mut |_| Ok(String::new())).unwrap();
    let mut times = Times::default();
    times.transaction.count(1_000_000);
    PoolShare {
        key: LoginKey::new(database, "u"),
        database: config.database("d").unwrap(),
        mode: PoolMode::Transaction,
        states: States::default(),
        clients: 0,
        pinned: 0,
        connections: 0,
        stats: Stats {
            transactions,
            server_assignments: transactions,
            transaction_ns: 1_000_000,
            ..Stats::default()
        },
        older: Stats::default(),
        times,
        waits: Histogram::default(),
        errors: Default::default(),
        reads: Default::default(),
        size: 5,
        paused: false,
        failure: None,
        reason: None,
        waiters: Vec::new(),
        holders: Vec::new(),
    }
}

fn holdings(worker: u16, pools: Vec<PoolShare>) -> Holdings {
    Holdings {
        view: Arc::default(),
        hosts: Default::default(),
        lags: Default::default(),
        reads: BTreeMap::new(),
        worker: WorkerId(worker),
        sharded: Vec::new(),
        pools,
        admitted: BTreeMap::new(),
        clients: 3,
        login_clients: 1,
        consoles: 1,
        free_clients: 0,
        servers: 2,
        free_servers: 0,
        kept: crate::account::KeptFor::ALL.map(|kind| (kind, 0)),
        statements: (0, 0),
        peers: Vec::new(),
        console_stats: Stats::default(),
        console_older: Stats::default(),
        moves: (0, 0),
        signals: Default::default(),
        mails: 9,
        window: 0,
        queries: Default::default(),
        unlogged: 0,
        paused: false,
        suspended: false,
        not_let_in: Default::default(),
        tls: Default::default(),
        secrets: Default::default(),
    }
}

fn waiting(mut share: PoolShare, count: u32, reason: Reason) -> PoolShare {
    share.states.cl_waiting = count;
    share.reason = Some(reason);
    share.states.sv_working = 2;
    share
}

fn sample(memory: &mut Memory, holdings: Vec<Holdings>) -> Sight {
    memory.sample(1.0, holdings, Process::default(), 2)
}

/// The value of a line.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines
        .into_iter()
        .find(|(seen, _)| *seen == name)
        .map(|(_, value)| value)
}

#[test]
fn waits_that_are_not_over_count() {
    let mut memory = Memory::default();
    sample(&mut memory, vec![holdings(0, vec![share("d", 5)])]);
    for (seconds, told) in [(3, 3.0), (200, 200.0)] {
        let waited = seconds * 1_000_000_000;
        let mut stuck = share("d", 5);
        stuck.states.cl_waiting = 1;
        (stuck.states.max_wait, stuck.states.waits) = (waited, waited);
        stuck.waits.count(waited);
        let sight = sample(&mut memory, vec![holdings(0, vec![stuck])]);
        // Nothing has ended, and no percentile is above the longest wait.
        assert_eq!(sight.recent[0].wait_p99, told);
        assert_eq!(sight.history.last().unwrap().wait_p99, told);
        let text = text(&sight, Format::Prometheus);
        let name = r#"howdah_pool_waits_in_progress_seconds{database="d",user="u"}"#;
        assert_eq!(value(&text, name), Some(&*seconds.to_string()));
    }
}

#[test]
fn workers_add_up() {
    let sight = sample(
        &mut Memory::default(),
        vec![
            holdings(1, vec![share("d", 5)]),
            holdings(0, vec![share("d", 7)]),
        ],
    );
    let text = text(&sight, Format::Prometheus);
    let labels = r#"{database="d",user="u"}"#;
    for (name, expected) in [
        (format!("howdah_pool_transactions_total{labels}"), "12"),
        (
            r#"howdah_worker_transactions_total{worker="1"}"#.into(),
            "5",
        ),
        (r#"howdah_clients{state="logged_in"}"#.into(), "2"),
        (
            format!("howdah_pool_transaction_seconds_count{labels}"),
            "2",
        ),
        (
            format!("howdah_pool_transaction_seconds_sum{labels}"),
            "0.002",
        ),
        // Clients that got a server at once count, too, with a wait of zero.
        (format!("howdah_pool_wait_seconds_count{labels}"), "12"),
        (
            r#"howdah_pool_transaction_seconds_bucket{database="d",user="u",le="0.000524288"}"#
                .into(),
            "0",
        ),
        (
            r#"howdah_pool_transaction_seconds_bucket{database="d",user="u",le="0.001048576"}"#
                .into(),
            "2",
        ),
        (
            r#"howdah_pool_transaction_seconds_bucket{database="d",user="u",le="+Inf"}"#.into(),
            "2",
        ),
    ] {
        assert_eq!(value(&text, &name), Some(expected), "{name}\n{text}");
    }
}

#[test]
fn each_family_is_told_of_once_and_hostile_names_stay_inside_their_label() {
    let name = "a\"} 1\nevil{x=\"\\";
    let sight = sample(
        &mut Memory::default(),
        vec![holdings(0, vec![share(name, 1)])],
    );
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let text = text(&sight, format);
        assert!(!text.lines().any(|line| line.starts_with("evil")), "{text}");
        assert!(
            text.contains(r#"database="a\"} 1\nevil{x=\"\\",user="u""#),
            "{text}"
        );
        let mut families: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .collect();
        let all = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), all);
        assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
        assert_eq!(
            text.contains("_total counter"),
            format == Format::Prometheus
        );
    }
}

#[test]
fn pools_above_the_cap_are_summed_and_no_counter_falls() {
    let mut memory = Memory::default();
    let all = |d: u64| {
        vec![holdings(
            0,
            vec![share("a", 1), share("b", 2), share("c", 4), share("d", d)],
        )]
    };
    let other = |sight: &Sight| {
        let text = text(sight, Format::Prometheus);
        let name = r#"howdah_pool_transactions_total{database="(other)",user="(other)"}"#;
        value(&text, name).map(str::to_string)
    };
    let sight = sample(&mut memory, all(8));
    assert_eq!((sight.pools.len(), sight.pool_count), (3, 4));
    assert_eq!(other(&sight).as_deref(), Some("12"));
    // A shown pool goes. A new pool gets its place, not a summed one.
    let sight = sample(
        &mut memory,
        vec![holdings(
            0,
            vec![share("b", 2), share("c", 4), share("d", 8)],
        )],
    );
    assert_eq!(other(&sight).as_deref(), Some("12"));
    // A summed pool goes. Its counters remain in the sum.
    let sight = sample(
        &mut memory,
        vec![holdings(0, vec![share("b", 2), share("c", 5)])],
    );
    assert_eq!(other(&sight).as_deref(), Some("13"));
    let sight = sample(
        &mut memory,
        vec![holdings(0, vec![share("b", 2), share("e", 9)])],
    );
    assert_eq!(other(&sight).as_deref(), Some("13"));
    assert!(sight.pools.iter().any(|pool| &*pool.key.database == "e"));
}

#[test]
fn pools_above_the_cap_have_verdicts() {
    let wait = |database: &str, longest| {
        let mut share = waiting(share(database, 0), 1, Reason::Paused);
        share.states.max_wait = longest;
        share
    };
    let shares = vec![wait("a", 1), wait("b", 2), wait("c", 3), wait("d", 4)];
    let sight = sample(&mut Memory::default(), vec![holdings(0, shares)]);
    assert_eq!(sight.pools.len(), 3, "two pools and the sum");
    let told = sight.verdicts.iter().filter_map(|verdict| {
        let key = verdict.pool.as_ref()?;
        Some((&*key.database, verdict.longest))
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told, [("d", 4), ("c", 3), ("b", 2), ("a", 1)]);
    let seen: serde_json::Value = serde_json::from_str(&page(&sight)).unwrap();
    assert_eq!(seen["verdicts"][0]["database"], "d");
}

#[test]
fn reasons_of_several_workers_are_counted_and_the_most_telling_is_told() {
    let mut memory = Memory::default();
    let full = Reason::HeldBy(crate::pool::supply::HeldBy::Pool);
    let workers = || {
        vec![
            holdings(0, vec![waiting(share("d", 0), 3, Reason::Asked)]),
            holdings(1, vec![waiting(share("d", 0), 4, full.clone())]),
        ]
    };
    sample(&mut memory, workers());
    let sight = sample(&mut memory, workers());
    assert_eq!(sight.pools[0].reason, Some(full.clone()));
    let text = text(&sight, Format::Prometheus);
    for (name, expected) in [
        (
            r#"howdah_pool_waiting_clients{database="d",user="u",reason="pool_full"}"#,
            "4",
        ),
        (
            r#"howdah_pool_waiting_clients{database="d",user="u",reason="asked"}"#,
            "3",
        ),
        // Two seconds with four servers each.
        (
            r#"howdah_pool_working_while_waiting_sum{database="d",user="u"}"#,
            "8",
        ),
        (
            r#"howdah_pool_working_while_waiting_bucket{database="d",user="u",le="2.0"}"#,
            "0",
        ),
        (
            r#"howdah_pool_working_while_waiting_bucket{database="d",user="u",le="4.0"}"#,
            "2",
        ),
    ] {
        assert_eq!(value(&text, name), Some(expected), "{name}\n{text}");
    }
}

#[test]
fn readiness_goes_by_policy() {
    let ready = |change: fn(&mut Sight)| {
        let mut sight = sample(
            &mut Memory::default(),
            vec![holdings(0, vec![share("d", 0)])],
        );
        change(&mut sight);
        (
            readiness(&sight, |_| true),
            readiness(&sight, |cause| cause == "paused"),
        )
    };
    assert_eq!(ready(|_| {}), (vec![], vec![]));
    assert_eq!(
        ready(|s| s.process.draining = true),
        (vec!["draining"], vec![])
    );
    assert_eq!(ready(|s| s.paused = true), (vec!["paused"], vec!["paused"]));
    assert_eq!(ready(|s| s.suspended = true).0, ["paused"]);
    let fails = |s: &mut Sight| s.pools[0].failure = Some("no".into());
    assert_eq!(ready(fails).0, ["unreachable"]);
    // One ready server is enough.
    let one = |s: &mut Sight| {
        s.pools[0].failure = Some("no".into());
        s.pools[0].states.sv_idle = 1;
    };
    assert!(ready(one).0.is_empty());
}

#[test]
fn the_page_has_the_last_seconds_work() {
    let mut memory = Memory::default();
    sample(&mut memory, vec![holdings(0, vec![share("d", 100)])]);
    let mut busy = share("d", 110);
    for _ in 0..9 {
        busy.times.query.count(500_000);
    }
    busy.times.query.count(3_000_000_000);
    let sight = sample(&mut memory, vec![holdings(0, vec![busy])]);
    let seen: serde_json::Value = serde_json::from_str(&page(&sight)).unwrap();
    assert_eq!(seen["history"].as_array().unwrap().len(), 2);
    assert_eq!(
        seen["history"][0]["transactions"], 0,
        "what was before is no second's work"
    );
    assert_eq!(seen["history"][1]["transactions"], 10);
    assert_eq!(seen["pools"][0]["recent"]["transactions"], 10);
    let p50 = seen["pools"][0]["recent"]["query_p50"].as_f64().unwrap();
    assert!((0.000_26..0.000_53).contains(&p50), "{p50}");
    let p99 = seen["pools"][0]["recent"]["query_p99"].as_f64().unwrap();
    assert!((2.1..4.3).contains(&p99), "{p99}");
}

#[test]
fn quantiles_are_within_their_bucket() {
    let mut counts = [0; BOUNDS + 1];
    assert_eq!(quantile(&counts, 0.5), 0.0);
    counts[BOUNDS] = 1;
    assert_eq!(
        quantile(&counts, 0.5),
        Histogram::bound(BOUNDS - 1) as f64 / 1e9
    );
}

#[test]
fn the_reference_is_up_to_date() {
    let committed = include_str!("../../../../docs/metrics.md");
    assert!(
        committed == metrics_page(),
        "howdah --metrics > docs/metrics.md"
    );
}
