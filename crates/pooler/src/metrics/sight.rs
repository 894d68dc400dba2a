//! The sums over all workers.

use crate::limits;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::Client;
use crate::config::{PoolMode, SecretsTold};
use crate::console::holdings::{Holder, Holdings, PoolShare, States, WaiterRow};
use crate::console::host_sight::HostSight;
use crate::console::sharded_sight::ShardedSight;
use crate::errors::{ErrorCounts, NotLetIn};
use crate::login::Login;
use crate::login::key::LoginKey;
use crate::pool::{Pool, Reason};
use crate::queries::tally::{TopQueries, merged};
use crate::reads::tally::ReadCounts;
use crate::server::Server;
use crate::stats::Stats;
use crate::times::{BOUNDS, Histogram, Times};
use crate::tls::TlsTold;

/// Figures of the process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// The name of the machine.
    pub host: String,
    /// The start time, in seconds since 1970.
    pub started: f64,
    /// Processor time so far, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// Open descriptors.
    pub open_fds: u64,
    /// The limit of open descriptors.
    pub max_fds: u64,
    /// `max_client_conn`.
    pub max_clients: u32,
    /// The process takes no new clients.
    pub draining: bool,
    /// Spans that the collector has accepted.
    pub spans_sent: u64,
    /// Spans that were dropped because the collector was away or slow.
    pub spans_lost: u64,
    /// Seconds without a sample, because a worker had not answered the previous one.
    pub late_samples: u64,
    /// Whether the last reload of the configuration succeeded, or the start if there was none.
    pub reload_succeeded: bool,
    /// The time of the last reload or the start that succeeded, in seconds since 1970.
    pub reloaded_at: f64,
    /// The age of the oldest keys that tokens are checked with, in seconds.
    pub keys_age: Option<f64>,
}

/// Counts of working servers, one count for each second in which clients waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Levels {
    counts: [u64; Levels::BOUNDS.len() + 1],
    pub(super) sum: u64,
}

impl Levels {
    /// The buckets' upper bounds, in servers.
    pub const BOUNDS: [u64; 11] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

    /// Counts a second.
    pub fn count(&mut self, level: u64) {
        let bucket = Self::BOUNDS.iter().position(|bound| level <= *bound);
        self.counts[bucket.unwrap_or(Self::BOUNDS.len())] += 1;
        self.sum += level;
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Levels) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    /// The counts by bucket. The last bucket has no bound.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The sum of all levels.
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

/// A pool, over all workers.
#[derive(Clone, Debug)]
pub struct PoolSight {
    /// The pool; `(other)` twice for a sum of pools.
    pub key: Arc<LoginKey>,
    /// The pool mode.
    pub mode: PoolMode,
    /// How many servers the pool may have; 0 for no limit.
    pub size: u32,
    /// Its clients and servers.
    pub states: States,
    /// The waits of clients that still wait.
    pub waits: Histogram,
    /// The errors that clients got.
    pub errors: ErrorCounts,
    /// Where reads have gone.
    pub reads: ReadCounts,
    /// Clients that keep a server between transactions.
    pub pinned: u32,
    /// Counts since the start.
    pub stats: Stats,
    /// Durations since the start.
    pub times: Times,
    /// PAUSE holds.
    pub paused: bool,
    /// Why the last login to PostgreSQL failed, if it failed.
    pub failure: Option<String>,
    /// The number of waiting clients by reason.
    pub reasons: BTreeMap<&'static str, u32>,
    /// The most important of the reasons.
    pub reason: Option<Reason>,
    /// The clients that have waited longest.
    pub waiters: Vec<WaiterRow>,
    /// The clients that have held servers longest. Only while clients wait.
    pub holders: Vec<Holder>,
    /// How many servers were working while clients waited.
    pub levels: Levels,
}

impl PoolSight {
    /// A pool without data.
    pub(super) fn empty(key: Arc<LoginKey>, mode: PoolMode, size: u32) -> PoolSight {
        PoolSight {
            key,
            mode,
            size,
            states: States::default(),
            waits: Histogram::default(),
            errors: ErrorCounts::default(),
            reads: ReadCounts::default(),
            pinned: 0,
            stats: Stats::default(),
            times: Times::default(),
            paused: false,
            failure: None,
            reasons: BTreeMap::new(),
            reason: None,
            waiters: Vec::new(),
            holders: Vec::new(),
            levels: Levels::default(),
        }
    }

    fn add_share(&mut self, share: PoolShare) {
        self.states.add(&share.states);
        self.waits.add(&share.waits);
        self.errors.add(&share.errors);
        self.reads.add(&share.reads);
        self.pinned += share.pinned;
        self.stats.add(&share.stats);
        self.times.add(&share.times);
        self.paused |= share.paused;
        self.failure = self.failure.take().or(share.failure);
        if let Some(reason) = share.reason {
            *self.reasons.entry(reason.word()).or_default() += share.states.cl_waiting;
            if self
                .reason
                .as_ref()
                .is_none_or(|other| reason.rank() < other.rank())
            {
                self.reason = Some(reason);
            }
        }
        self.waiters.extend(share.waiters);
        self.holders.extend(share.holders);
    }

    /// Adds another pool to a sum of pools.
    pub(super) fn add_pool(&mut self, other: &PoolSight) {
        self.size = self.size.saturating_add(other.size);
        self.states.add(&other.states);
        self.waits.add(&other.waits);
        self.errors.add(&other.errors);
        self.reads.add(&other.reads);
        self.pinned += other.pinned;
        self.stats.add(&other.stats);
        self.times.add(&other.times);
        self.levels.add(&other.levels);
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
    }

    /// Servers that are logged in.
    pub fn ready_servers(&self) -> u32 {
        let states = &self.states;
        let free = states.sv_idle + states.sv_used;
        states.sv_active + states.sv_listening + free + states.sv_tested
    }
}

/// Figures of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerSight {
    /// Its number.
    pub worker: u16,
    /// Its clients.
    pub clients: u32,
    /// Its servers.
    pub servers: u32,
    /// Transactions relayed.
    pub transactions: u64,
    /// Servers lent to other workers.
    pub lends: u64,
    /// Clients that have come from other workers.
    pub arrived: u64,
    /// Clients that have left for other workers.
    pub departed: u64,
    /// Mails to other workers.
    pub mails: u64,
    /// The share of its time that it works, from 0 to 1.
    pub busy: f64,
}

/// A sentence about a pool, or about the process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolVerdict {
    /// The pool, if it is about one.
    pub pool: Option<Arc<LoginKey>>,
    /// The longest wait of a client of the pool, in nanoseconds.
    pub longest: u64,
    /// The sentence.
    pub text: String,
}

/// The sums over all workers.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// Figures of the process.
    pub process: Process,
    /// Pools. The sum of the pools above the cap is the last.
    pub pools: Vec<PoolSight>,
    /// What is wrong, the worst first. Every pool counts, also those above the cap.
    pub verdicts: Vec<PoolVerdict>,
    /// How many pools there are.
    pub pool_count: u32,
    /// Workers, by number.
    pub workers: Vec<WorkerSight>,
    /// All clients.
    pub clients: u32,
    /// Clients that are not logged in yet.
    pub login_clients: u32,
    /// Clients that are consoles.
    pub consoles: u32,
    /// All servers.
    pub servers: u32,
    /// Sizes of tables in bytes, including free slots.
    pub memory: [(&'static str, u64); 3],
    /// The queries with the most time.
    pub queries: TopQueries,
    /// Slow queries without a line in the log, because there were too many in a second.
    pub unlogged: u64,
    /// Clients that were not let in.
    pub not_let_in: NotLetIn,
    /// PAUSE of all pools.
    pub paused: bool,
    /// SUSPEND, or a successor takes over.
    pub suspended: bool,
    /// TLS.
    pub tls: TlsTold,
    /// The state of sources of secrets.
    pub secrets: SecretsTold,
    /// The last minutes, oldest first.
    pub history: Vec<Point>,
    /// The hosts of placed databases.
    pub hosts: Vec<HostSight>,
    /// How many hosts each placed database can use now.
    pub usable_hosts: BTreeMap<Arc<str>, u32>,
    /// Sharded databases.
    pub sharded: Vec<ShardedSight>,
    /// What pools did in the last second, by the order of `pools`.
    pub recent: Vec<Point>,
}

impl Sight {
    /// The sums of all workers' answers. All pools are still separate, and sorted.
    pub(crate) fn of(mut holdings: Vec<Holdings>, process: Process) -> Sight {
        holdings.sort_by_key(|holding| holding.worker);
        let mut sight = Sight {
            process,
            hosts: HostSight::all(&holdings),
            sharded: ShardedSight::all(&holdings),
            ..Sight::default()
        };
        let mut pools: BTreeMap<Arc<LoginKey>, PoolSight> = BTreeMap::new();
        let mut tables = [0; 3];
        let mut queries = Vec::new();
        for holding in holdings {
            let sum = |count: fn(&PoolShare) -> u64| holding.pools.iter().map(count).sum();
            sight.workers.push(WorkerSight {
                worker: holding.worker.0,
                clients: holding.clients,
                servers: holding.servers,
                transactions: sum(|share| share.stats.transactions),
                lends: sum(|share| share.stats.lends),
                arrived: holding.moves.0,
                departed: holding.moves.1,
                mails: holding.mails,
                busy: holding.signals.busy(),
            });
            tables[0] += holding.pools.len() as u64;
            tables[1] += u64::from(holding.servers + holding.free_servers);
            tables[2] += u64::from(holding.clients + holding.free_clients);
            sight.clients += holding.clients;
            sight.login_clients += holding.login_clients;
            sight.consoles += holding.consoles;
            sight.servers += holding.servers;
            sight.unlogged += holding.unlogged;
            queries.push(holding.queries);
            sight.not_let_in.add(&holding.not_let_in);
            sight.paused |= holding.paused;
            sight.suspended |= holding.suspended;
            sight.tls.ends = holding.tls.ends;
            sight.secrets = holding.secrets;
            for (sum, part) in sight.tls.handshakes.iter_mut().zip(holding.tls.handshakes) {
                sum.add(&part);
            }
            for share in holding.pools {
                if share.database.is_placed() {
                    let usable = holding.view.usable(&share.database);
                    let database = share.key.database.clone();
                    sight.usable_hosts.insert(database, usable);
                }
                let (key, mode, size) = (share.key.clone(), share.mode, share.size);
                let pool = pools
                    .entry(key.clone())
                    .or_insert_with(|| PoolSight::empty(key, mode, size));
                pool.add_share(share);
            }
        }
        let sizes = [
            size_of::<Login>() + size_of::<Pool>(),
            size_of::<Server>(),
            size_of::<Client>(),
        ];
        for (at, name) in ["pools", "servers", "clients"].into_iter().enumerate() {
            sight.memory[at] = (name, tables[at] * sizes[at] as u64);
        }
        sight.queries = merged(queries);
        sight.queries.lines.truncate(limits::QUERIES_TOLD);
        sight.pool_count = pools.len() as u32;
        sight.pools = pools.into_values().collect();
        for pool in &mut sight.pools {
            let longest_first = |waiter: &WaiterRow| std::cmp::Reverse(waiter.waited);
            pool.waiters.sort_by_key(longest_first);
            pool.holders
                .sort_by_key(|holder| std::cmp::Reverse(holder.held));
        }
        sight
    }
}

/// The work of one second, and the state at its end.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Point {
    /// Seconds since 1970.
    pub at: f64,
    /// Transactions that ended.
    pub transactions: u64,
    /// Queries that ended.
    pub queries: u64,
    /// Clients that are neither waiting nor consoles.
    pub active: u32,
    /// Clients that wait.
    pub waiting: u32,
    /// Servers that execute something.
    pub working: u32,
    /// Servers.
    pub servers: u32,
    /// The median duration of queries, in seconds. As exact as the buckets: within a factor of two.
    pub query_p50: f64,
    /// The 99th percentile of queries.
    pub query_p99: f64,
    /// The 99th percentile of transactions.
    pub transaction_p99: f64,
    /// The 99th percentile of transactions' waits for a server. Waits that are not over count as
    /// long as they have lasted.
    pub wait_p99: f64,
}

impl Point {
    /// `waits` are those that are not over, and the longest of them in nanoseconds.
    pub(super) fn between(
        before: &(Stats, Times),
        now: &(Stats, Times),
        (waits, longest): (&Histogram, u64),
    ) -> Point {
        let count = |now: u64, before: u64| now.saturating_sub(before);
        let all = |of: &(Stats, Times)| of.1.all_waits(of.0.server_assignments, of.0.waits_in_vain);
        let mut wait_counts = difference(&all(now), &all(before));
        let over: u64 = difference(&now.1.wait, &before.1.wait).iter().sum();
        let mut waited = over;
        for (count, more) in wait_counts.iter_mut().zip(waits.counts()) {
            *count += more;
            waited += more;
        }
        let longest = longest as f64 / 1e9;
        let measured = quantile(&wait_counts, 0.99);
        let wait_p99 = match waited * 100 <= wait_counts.iter().sum() {
            // Clients that got a server at once did not wait.
            true => 0.0,
            // No wait was longer than the longest one.
            false if over == 0 => measured.min(longest),
            false => measured,
        };
        // The last bucket has no bound.
        let above_all = measured >= Histogram::bound(BOUNDS - 1) as f64 / 1e9;
        let wait_p99 = if above_all {
            wait_p99.max(longest)
        } else {
            wait_p99
        };
        let queries = difference(&now.1.query, &before.1.query);
        Point {
            transactions: count(now.0.transactions, before.0.transactions),
            queries: count(now.0.queries, before.0.queries),
            query_p50: quantile(&queries, 0.5),
            query_p99: quantile(&queries, 0.99),
            transaction_p99: quantile(&difference(&now.1.transaction, &before.1.transaction), 0.99),
            wait_p99,
            ..Point::default()
        }
    }

    pub(super) fn forget_work(&mut self) {
        *self = Point {
            at: self.at,
            active: self.active,
            waiting: self.waiting,
            working: self.working,
            servers: self.servers,
            ..Point::default()
        };
    }
}

fn difference(now: &Histogram, before: &Histogram) -> [u64; BOUNDS + 1] {
    let mut counts = *now.counts();
    for (count, before) in counts.iter_mut().zip(before.counts()) {
        *count = count.saturating_sub(*before);
    }
    counts
}

/// The quantile `share`, in seconds, as in Prometheus' `histogram_quantile`: values are assumed to
/// be spread evenly within a bucket. 0 without values.
pub(super) fn quantile(counts: &[u64; BOUNDS + 1], share: f64) -> f64 {
    let total: u64 = counts.iter().sum();
    let rank = share * total as f64;
    let mut below = 0.0;
    for (bucket, count) in counts.iter().enumerate() {
        let count = *count as f64;
        if count > 0.0 && below + count >= rank {
            let start = match bucket {
                0 => 0.0,
                bucket => Histogram::bound(bucket - 1) as f64,
            };
            if bucket == BOUNDS {
                return start / 1e9;
            }
            let end = Histogram::bound(bucket) as f64;
            return (start + (end - start) * (rank - below) / count) / 1e9;
        }
        below += count;
    }
    0.0
}
