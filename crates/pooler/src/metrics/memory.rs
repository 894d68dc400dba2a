//! Values that are kept from one sample to the next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::config::PoolMode;
use crate::console::holdings::Holdings;
use crate::login::key::LoginKey;
use crate::metrics::sight::{Levels, Point, PoolSight, Process, Sight};
use crate::metrics::verdict::verdicts;
use crate::stats::Stats;
use crate::times::{Histogram, Times};

/// How many samples the page shows: five minutes.
const HISTORY: usize = 300;

/// The name of the sum of pools.
const OTHER: &str = "(other)";

/// Values that are kept from one sample to the next.
#[derive(Debug, Default)]
pub struct Memory {
    /// Pools that are shown alone: those that came first.
    shown: BTreeSet<Arc<LoginKey>>,
    /// Pools that are summed, as last seen. A summed pool stays summed, so that no counter falls.
    summed: BTreeMap<Arc<LoginKey>, PoolSight>,
    /// The counters of summed pools that are gone.
    gone: Option<Box<PoolSight>>,
    levels: BTreeMap<Arc<LoginKey>, Levels>,
    last: BTreeMap<Arc<LoginKey>, (Stats, Times)>,
    last_all: (Stats, Times),
    history: VecDeque<Point>,
}

impl Memory {
    /// Takes in one sample of all workers' answers (`at` in seconds since 1970). At most `most`
    /// pools are shown alone.
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
        sight.verdicts = verdicts(&sight);
        self.sum_above(most, &mut sight);
        sight.history = self.history.iter().copied().collect();
        sight
    }

    fn count_levels(&mut self, pools: &mut [PoolSight]) {
        let mut levels = BTreeMap::new();
        for pool in pools {
            let mut of_pool = self.levels.remove(&pool.key).unwrap_or_default();
            if pool.states.cl_waiting > 0 {
                of_pool.count(u64::from(pool.states.sv_working));
            }
            pool.levels = of_pool;
            levels.insert(pool.key.clone(), of_pool);
        }
        self.levels = levels;
    }

    /// Computes the work of each pool, and of all pools, since the last sample.
    fn remember(&mut self, at: f64, sight: &mut Sight) {
        let mut all = (Stats::default(), Times::default());
        let (mut last, mut waits) = (BTreeMap::new(), Histogram::default());
        let (mut active, mut waiting, mut working, mut longest) = (0, 0, 0, 0);
        for pool in &sight.pools {
            all.0.add(&pool.stats);
            all.1.add(&pool.times);
            waits.add(&pool.waits);
            longest = longest.max(pool.states.max_wait);
            let now = (pool.stats, pool.times);
            let before = self.last.get(&pool.key).copied().unwrap_or_default();
            let mut point = Point::between(&before, &now, (&pool.waits, pool.states.max_wait));
            point.at = at;
            point.active = pool.states.cl_active;
            point.waiting = pool.states.cl_waiting;
            point.working = pool.states.sv_working;
            point.servers = pool.ready_servers();
            active += point.active;
            waiting += point.waiting;
            working += point.working;
            sight.recent.push(point);
            last.insert(pool.key.clone(), now);
        }
        let first = self.history.is_empty();
        let mut point = Point::between(&self.last_all, &all, (&waits, longest));
        if first {
            // The first sample has no previous one to compare with.
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

    /// Leaves `most` pools, and one pool with the sum of the others.
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
    PoolSight::empty(LoginKey::both(OTHER), PoolMode::Session, 0)
}

/// The counters of a pool.
fn counters_of(pool: &PoolSight) -> PoolSight {
    PoolSight {
        stats: pool.stats,
        times: pool.times,
        errors: pool.errors,
        reads: pool.reads,
        levels: pool.levels,
        ..other()
    }
}
