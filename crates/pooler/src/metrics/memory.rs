//! What must be known between two samples.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::sight::{Levels, PoolSight, Process, Sight};
use crate::config::PoolMode;
use crate::console::gather::Holdings;
use crate::pool::PoolKey;
use crate::stats::Stats;
use crate::times::{BOUNDS, Histogram, Times};

/// How many samples the page can look back: five minutes.
const HISTORY: usize = 300;

/// The name of pools that are summed.
const OTHER: &str = "(other)";

/// What is kept from one sample for the next.
#[derive(Debug, Default)]
pub struct Memory {
    /// Pools that are shown alone: first come, first shown.
    shown: BTreeSet<Arc<PoolKey>>,
    /// Pools that are summed, as last seen. Who was summed stays summed, so that no counter falls.
    summed: BTreeMap<Arc<PoolKey>, PoolSight>,
    /// What is left of summed pools that are gone.
    gone: Option<Box<PoolSight>>,
    levels: BTreeMap<Arc<PoolKey>, Levels>,
    last: BTreeMap<Arc<PoolKey>, (Stats, Times)>,
    last_all: (Stats, Times),
    history: VecDeque<Point>,
}

/// What happened in a second, and how it stood at its end.
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
    /// Half of the queries took less, in seconds. As exact as the buckets: within a factor of two.
    pub query_p50: f64,
    /// 99 of 100 queries took less.
    pub query_p99: f64,
    /// 99 of 100 transactions took less.
    pub transaction_p99: f64,
    /// 99 of 100 transactions waited less for their server.
    pub wait_p99: f64,
}

impl Memory {
    /// Takes in all workers' answers at a moment (seconds since 1970). At most `most` pools are
    /// shown alone.
    pub fn sample(
        &mut self,
        at: f64,
        holdings: Vec<Holdings>,
        process: Process,
        most: usize,
    ) -> Sight {
        let mut sight = Sight::of(holdings, process);
        self.count_levels(&mut sight.pools);
        self.remember(at, &mut sight);
        self.sum_above(most, &mut sight);
        sight.history = self.history.iter().copied().collect();
        sight
    }

    fn count_levels(&mut self, pools: &mut [PoolSight]) {
        let mut levels = BTreeMap::new();
        for pool in pools {
            let mut of_pool = self.levels.remove(&pool.key).unwrap_or_default();
            if pool.states.cl_waiting > 0 {
                of_pool.count(u64::from(pool.working));
            }
            pool.levels = of_pool;
            levels.insert(pool.key.clone(), of_pool);
        }
        self.levels = levels;
    }

    /// What each pool, and all of them, did since the last sample.
    fn remember(&mut self, at: f64, sight: &mut Sight) {
        let mut all = (Stats::default(), Times::default());
        let mut last = BTreeMap::new();
        let (mut active, mut waiting, mut working) = (0, 0, 0);
        for pool in &sight.pools {
            all.0.add(&pool.stats);
            all.1.add(&pool.times);
            let now = (pool.stats, pool.times);
            let before = self.last.get(&pool.key).copied().unwrap_or_default();
            let mut point = Point::between(&before, &now);
            point.at = at;
            point.active = pool.states.cl_active;
            point.waiting = pool.states.cl_waiting;
            point.working = pool.working;
            point.servers = pool.ready_servers();
            active += point.active;
            waiting += point.waiting;
            working += point.working;
            sight.recent.push(point);
            last.insert(pool.key.clone(), now);
        }
        let first = self.history.is_empty();
        let mut point = Point::between(&self.last_all, &all);
        if first {
            // What was before is no second's work.
            point = Point::default();
            sight.recent.iter_mut().for_each(Point::forget_work);
        }
        point.at = at;
        point.active = active;
        point.waiting = waiting;
        point.working = working;
        point.servers = sight.servers;
        self.history.push_back(point);
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
        (self.last, self.last_all) = (last, all);
    }

    /// Leaves `most` pools, and one that has the sum of the others.
    fn sum_above(&mut self, most: usize, sight: &mut Sight) {
        let here: BTreeSet<_> = sight.pools.iter().map(|pool| pool.key.clone()).collect();
        self.shown.retain(|key| here.contains(key));
        let vanished: Vec<_> = self
            .summed
            .keys()
            .filter(|key| !here.contains(*key))
            .cloned()
            .collect();
        for key in vanished {
            if let Some(pool) = self.summed.remove(&key) {
                let gone = self.gone.get_or_insert_with(|| Box::new(other()));
                gone.add_pool(&counters_of(&pool));
            }
        }
        let mut sum = self.gone.as_deref().cloned();
        let (mut shown, mut recent) = (Vec::new(), Vec::new());
        let points = std::mem::take(&mut sight.recent);
        for (pool, point) in std::mem::take(&mut sight.pools).into_iter().zip(points) {
            let known = self.shown.contains(&pool.key);
            let room = self.shown.len() < most && !self.summed.contains_key(&pool.key);
            if known || room {
                self.shown.insert(pool.key.clone());
                shown.push(pool);
                recent.push(point);
            } else {
                sum.get_or_insert_with(other).add_pool(&pool);
                self.summed.insert(pool.key.clone(), pool);
            }
        }
        if let Some(sum) = sum {
            shown.push(sum);
            recent.push(Point::default());
        }
        (sight.pools, sight.recent) = (shown, recent);
    }
}

fn other() -> PoolSight {
    let key = PoolKey::new(OTHER.into(), OTHER.into());
    PoolSight::empty(Arc::new(key), PoolMode::Session, 0)
}

/// What only ever grows of a pool.
fn counters_of(pool: &PoolSight) -> PoolSight {
    PoolSight {
        stats: pool.stats,
        times: pool.times,
        levels: pool.levels,
        ..other()
    }
}

impl Point {
    fn between(before: &(Stats, Times), now: &(Stats, Times)) -> Point {
        let count = |now: u64, before: u64| now.saturating_sub(before);
        let assigned = count(now.0.server_assignments, before.0.server_assignments);
        let waits = difference(&now.1.wait, &before.1.wait);
        let mut wait_counts = waits;
        let waited: u64 = waits.iter().sum();
        // Who found a server at once has waited for nothing.
        wait_counts[0] += assigned.saturating_sub(waited);
        let wait_p99 = if waited * 100 <= assigned {
            0.0
        } else {
            quantile(&wait_counts, 0.99)
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

    fn forget_work(&mut self) {
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

/// The value that a share of all is below, in seconds, as Prometheus' `histogram_quantile` finds
/// it: within its bucket all are taken to be evenly spread. 0 if there are none.
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
