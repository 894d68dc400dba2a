//! What is wrong with a pool, and what would help, in one sentence. The table of docs/tuning.md as
//! code: `howdah top`, the page and SHOW VERDICT say the same.

use super::sight::{PoolSight, PoolVerdict, Sight};
use crate::console::holdings::{Holder, HolderState, SLOW_NS, States};
use crate::pool::Reason;
use crate::pool::supply::HeldBy;

/// A worker that is busier than this is called busy.
const BUSY: f64 = 0.95;
/// How many characters of a query are shown.
const TEXT: usize = 60;

/// What is wrong, the pool with the longest wait first. Empty if nothing is. All pools must still be
/// separate.
pub(crate) fn verdicts(sight: &Sight) -> Vec<PoolVerdict> {
    let mut pools: Vec<&PoolSight> = sight.pools.iter().collect();
    pools.sort_by_key(|pool| std::cmp::Reverse(pool.states.max_wait));
    let of_pools = pools.into_iter().filter_map(|pool| {
        Some(PoolVerdict {
            text: of_pool(pool)?,
            pool: Some(pool.key.clone()),
            longest: pool.states.max_wait,
        })
    });
    let busy = sight.workers.iter().filter(|worker| worker.busy > BUSY);
    let of_workers = busy.map(|worker| PoolVerdict {
        text: format!(
            "worker {} has no time left: more workers, or more cores, would help",
            worker.worker
        ),
        pool: None,
        longest: 0,
    });
    of_pools.chain(of_workers).collect()
}

/// The sentence about a pool; `None` if no client waits and servers can be opened.
fn of_pool(pool: &PoolSight) -> Option<String> {
    if pool.states.cl_waiting == 0 {
        let why = pool.failure.as_ref()?;
        return Some(format!("no server can be opened: {why}"));
    }
    let clients = who_waits(&pool.states);
    let Some(reason) = pool.reason.as_ref() else {
        // No client is in a queue: the queries of look-ups run.
        let slow = pool.states.cl_lookups > 0 && pool.states.max_wait >= SLOW_NS;
        return slow.then(|| format!("{clients}: PostgreSQL is slow to answer"));
    };
    let why = match reason {
        Reason::Paused => "the pool is paused: RESUME ends that".into(),
        Reason::Suspended => "the pooler is suspended, or a successor takes over".into(),
        Reason::NoHost(why) => why.clone(),
        Reason::LoginFailed(why) => format!("PostgreSQL lets no server in: {why}"),
        Reason::Secret(why) => format!("the servers have no password that works: {why}"),
        Reason::Unreachable(why) => format!("PostgreSQL is unreachable: {why}"),
        Reason::ServerLogin => {
            "servers are being opened: if this lasts, PostgreSQL is slow to let them in".into()
        }
        Reason::ServerTest => "a server that was idle for long is being tested".into(),
        Reason::Asked => "a server is on its way".into(),
        Reason::PinLimit => format!(
            "{} servers are kept{}, and pin_limit allows no more: more servers would help",
            pool.pinned,
            kept_for(&pool.holders)
        ),
        Reason::HeldBy(by) => full(pool, by),
        Reason::Catalogue => "it reads the catalogues of the shards".into(),
    };
    Some(format!("{clients}: {why}"))
}

/// `3 clients wait`, or `3 logins wait for auth_query`.
fn who_waits(states: &States) -> String {
    match (states.cl_waiting, states.cl_lookups) {
        (1, 1) => "1 login waits for auth_query".into(),
        (all, logins) if all == logins => format!("{all} logins wait for auth_query"),
        (1, _) => "1 client waits".into(),
        (all, 0) => format!("{all} clients wait"),
        (all, logins) => format!("{all} clients wait, {logins} of them for auth_query"),
    }
}

/// A limit of servers is reached: who has the servers, and whether more of them would help.
fn full(pool: &PoolSight, by: &HeldBy) -> String {
    let (limit, more) = match by {
        HeldBy::Pool => (
            format!("the pool of {} is full", pool.size),
            "a larger pool",
        ),
        &HeldBy::DATABASE => (
            "max_db_connections is reached".into(),
            "a higher max_db_connections",
        ),
        &HeldBy::USER => (
            "max_user_connections is reached".into(),
            "a higher max_user_connections",
        ),
        HeldBy::Shared(_) => {
            let settings: Vec<_> = by.bounds().iter().map(|of| of.setting()).collect();
            let limit = format!("{} is reached", settings.join(" or "));
            (limit, "a higher limit")
        }
        HeldBy::Logins => (
            "max_host_logins is reached".into(),
            "a higher max_host_logins",
        ),
    };
    let states = &pool.states;
    let (working, open, kept) = (states.sv_working, states.sv_in_transaction, states.sv_kept);
    let all = working + open + kept;
    if all == 0 {
        return format!("{limit}, and other pools have the servers: {more} would help");
    }
    let longest = |is: fn(HolderState) -> bool| {
        let those = pool.holders.iter().filter(|holder| is(holder.state));
        those.max_by_key(|holder| holder.stayed)
    };
    if 2 * (open + kept) >= all {
        let idle = |state| {
            matches!(
                state,
                HolderState::InTransaction | HolderState::InFailedTransaction
            )
        };
        if open >= kept {
            let by = longest(idle).map_or_else(String::new, |holder| {
                let (name, time) = (name(holder), duration(holder.stayed));
                format!(", the longest by {name} for {time}")
            });
            return format!(
                "{limit}, and {open} of {all} are held idle in transaction{by}: {more} would not \
                 help, shorter transactions would"
            );
        }
        let by = longest(|state| state == HolderState::Idle);
        let by = by.map_or_else(String::new, |holder| {
            format!(", the longest by {}", name(holder))
        });
        let why = kept_for(&pool.holders);
        return format!(
            "{limit}, and {kept} of {all} are kept idle{why}{by}: {more} would help only until \
             those are kept, too"
        );
    }
    let work = if working == all {
        format!("all {all} are busy")
    } else {
        format!("{working} of {all} are busy")
    };
    if states.sv_slow == 0 || 2 * states.sv_slow < working {
        return format!("{limit}, and {work}: {more} would help, if PostgreSQL has CPU to spare");
    }
    // The list of holders has only those that have had their servers for the longest time.
    let slow = longest(|state| state == HolderState::Active);
    match slow.filter(|holder| holder.stayed >= SLOW_NS) {
        Some(holder) => {
            let text = holder.query.as_ref().map(|query| shortened(&query.text));
            let text = text.unwrap_or_else(|| "one query".into());
            let (name, time) = (name(holder), duration(holder.stayed));
            format!(
                "{limit}, and {work}, {name} for {time} on {text}: a faster query would help more \
                 than {more}"
            )
        }
        None => format!(
            "{limit}, and {work}, {} of them for more than {}: faster queries would help more than \
             {more}",
            states.sv_slow,
            duration(SLOW_NS)
        ),
    }
}

/// ` for temporary objects`: why the servers are kept, if it is known.
fn kept_for(holders: &[Holder]) -> String {
    let kept = holders.iter().find(|holder| !holder.kept_for.is_empty());
    kept.map_or_else(String::new, |holder| format!(" for {}", holder.kept_for))
}

fn name(holder: &Holder) -> &str {
    match holder.who.application.as_str() {
        "" => &holder.who.address,
        name => name,
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((end, _)) => format!("`{}...`", &text[..end]),
        None => format!("`{text}`"),
    }
}

fn duration(ns: u64) -> String {
    match ns / 1_000_000_000 {
        0 => format!("{} ms", ns / 1_000_000),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PoolMode;
    use crate::console::holdings::Who;
    use crate::login::key::LoginKey;

    fn holder(state: HolderState, stayed_s: u64, kept_for: &str) -> Holder {
        Holder {
            login: LoginKey::new("shop", "web"),
            who: Who {
                number: 1,
                address: "10.0.0.2:4001".into(),
                application: "billing".into(),
            },
            server: 2,
            pid: 3,
            state,
            held: stayed_s * 1_000_000_000,
            stayed: stayed_s * 1_000_000_000,
            kept_for: kept_for.into(),
            query: None,
        }
    }

    fn pool(reason: Reason, holders: Vec<Holder>) -> PoolSight {
        let key = LoginKey::new("shop", "web");
        let mut pool = PoolSight::empty(key, PoolMode::Transaction, 5);
        pool.states.cl_waiting = 3;
        for holder in &holders {
            let slow = holder.state == HolderState::Active && holder.stayed >= SLOW_NS;
            pool.states.sv_slow += u32::from(slow);
            *match holder.state {
                HolderState::Active => &mut pool.states.sv_working,
                HolderState::Idle => &mut pool.states.sv_kept,
                _ => &mut pool.states.sv_in_transaction,
            } += 1;
        }
        (pool.reason, pool.holders) = (Some(reason), holders);
        pool
    }

    fn says(pool: &PoolSight) -> String {
        of_pool(pool).unwrap_or_default()
    }

    #[test]
    fn a_full_pool_tells_what_would_help() {
        let full = || Reason::HeldBy(HeldBy::Pool);
        let working = (0..5).map(|_| holder(HolderState::Active, 0, ""));
        assert_eq!(
            says(&pool(full(), working.collect())),
            "3 clients wait: the pool of 5 is full, and all 5 are busy: a larger pool would help, if \
             PostgreSQL has CPU to spare"
        );
        let open = (0..5).map(|at| holder(HolderState::InTransaction, 16 + at, ""));
        assert_eq!(
            says(&pool(full(), open.collect())),
            "3 clients wait: the pool of 5 is full, and 5 of 5 are held idle in transaction, the \
             longest by billing for 20 s: a larger pool would not help, shorter transactions would"
        );
        let kept = (0..5).map(|_| holder(HolderState::Idle, 9, "temporary objects"));
        assert_eq!(
            says(&pool(full(), kept.collect())),
            "3 clients wait: the pool of 5 is full, and 5 of 5 are kept idle for temporary \
             objects, the longest by billing: a larger pool would help only until those are kept, \
             too"
        );
        let slow = (0..5).map(|_| holder(HolderState::Active, 30, ""));
        assert_eq!(
            says(&pool(full(), slow.collect())),
            "3 clients wait: the pool of 5 is full, and all 5 are busy, billing for 30 s on one \
             query: a faster query would help more than a larger pool"
        );
        // Those in the list are quick, most others are slow.
        let mut many = pool(full(), vec![holder(HolderState::Active, 0, "")]);
        (many.states.sv_working, many.states.sv_slow) = (60, 40);
        assert_eq!(
            says(&many),
            "3 clients wait: the pool of 5 is full, and all 60 are busy, 40 of them for more than \
             1 s: faster queries would help more than a larger pool"
        );
        let none = pool(Reason::HeldBy(HeldBy::DATABASE), Vec::new());
        assert!(says(&none).contains("other pools have the servers"));
    }

    #[test]
    fn other_waits_have_their_sentence() {
        for reason in Reason::all() {
            let text = says(&pool(reason, Vec::new()));
            assert!(text.starts_with("3 clients wait: "), "{text}");
        }
        let mut quiet = pool(Reason::Paused, Vec::new());
        quiet.states.cl_waiting = 0;
        assert_eq!(of_pool(&quiet), None);
        quiet.failure = Some("connect failed: refused".into());
        assert_eq!(
            says(&quiet),
            "no server can be opened: connect failed: refused"
        );
    }

    #[test]
    fn logins_that_wait_for_auth_query_are_told_apart() {
        let mut pool = pool(Reason::Paused, Vec::new());
        for (logins, said) in [
            (0, "3 clients wait: "),
            (2, "3 clients wait, 2 of them for auth_query: "),
            (3, "3 logins wait for auth_query: "),
        ] {
            pool.states.cl_lookups = logins;
            assert!(says(&pool).starts_with(said), "{}", says(&pool));
        }
        pool.reason = None;
        assert_eq!(of_pool(&pool), None, "not for long");
        pool.states.max_wait = SLOW_NS;
        assert_eq!(
            says(&pool),
            "3 logins wait for auth_query: PostgreSQL is slow to answer"
        );
    }

    #[test]
    fn a_busy_worker_is_named_last() {
        let mut sight = Sight {
            pools: vec![pool(Reason::Paused, Vec::new())],
            ..Sight::default()
        };
        sight.workers.push(super::super::WorkerSight {
            worker: 7,
            busy: 0.99,
            ..Default::default()
        });
        let said = verdicts(&sight);
        assert_eq!((said.len(), &said[1].pool), (2, &None));
        assert!(said[1].text.starts_with("worker 7 "));
    }
}
