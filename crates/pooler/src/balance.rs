//! The balancer decides which workers serve each pool's clients.
//!
//! The balancer is a pure value on the control thread. There it delays no transaction, and can
//! judge a worker that is busy or hangs. Each worker reports its load ten times a second
//! ([`Load`]). The balancer answers with steps ([`BalanceStep`]): which workers get new clients,
//! and which worker hands clients to which.
//!
//! A second worker costs CPU that one worker does not cost: wake-ups, and servers lent from worker
//! to worker. So a pool begins on one worker, and every further step needs a reason:
//!
//! 1. **Hot.** A worker is hot once it has been busy at [`HOT`] or more for [`HOT_FOR`]. How busy
//!    it is, is the greater of two figures: its thread's CPU time, and the time its loop did not
//!    wait less the time the thread waited for a core. (The first figure misses work that the
//!    kernel accounts elsewhere; the second counts work that the kernel does inside the wait as
//!    rest.)
//! 2. **Not if cores are short.** A hot worker that waited for a core for [`DELAYED`] of its time
//!    is left alone: PostgreSQL or neighbours have the cores, and another thread would not help.
//! 3. **Move apart, then widen.** The pools with the most transactions on a hot worker, half of its
//!    work, move to a free worker as a whole, if the pools left behind do a worthwhile share
//!    ([`SHARE`]). Otherwise the first of these pools gets free workers in addition, as many as it
//!    has hot ones. If several pools need workers at the same time, they become equally wide. A pool
//!    has at most one worker for every four of its servers and for every two of its active clients,
//!    and never more than the cores that the process may use.
//! 4. **Each such step is an experiment**, and a worker takes part in one at a time. The step is
//!    undone unless the workers concerned then do [`GAIN`] more transactions a second (of many
//!    workers: half of what the added ones can give). After a failure the pools are left alone for
//!    [`PAUSE`], and twice as long after each further failure. If the pools meanwhile do [`GAIN`]
//!    more than at the failure, the load has changed, and the pause ends. A saturated worker can't
//!    do more whatever the load, so its pools are left alone for [`PAUSE_SATURATED`] at most. The
//!    number of cores in use can double with each step.
//! 5. **Together.** When no worker was hot for [`CALM_FOR`], the least busy worker is emptied onto
//!    others that stay below [`FITS`] with its work: first a worker of a wide pool, then a worker
//!    with several pools. One worker at a time, with a pause of the same length in between.
//! 6. **Even.** Within a pool, each worker has its share of the recently active clients. A worker
//!    with too many hands some to the worker with the fewest. Idle clients are no work and stay
//!    where they are, except on a worker that the pool has left.

mod step;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::{Time, WorkerId};
use crate::load::{FREE, Load};
use crate::login::key::LoginKey;

pub use step::BalanceStep;

/// A worker must be hot for this long before the log says that nothing can be done, in nanoseconds.
const HOT_FOR_THE_LOG: u64 = 3_000_000_000;
/// How often the log repeats this, in nanoseconds.
const HOT_AGAIN_FOR_THE_LOG: u64 = 600_000_000_000;

/// How often the balancer decides, in nanoseconds: each time that every worker has reported.
pub const DECIDES: u64 = 90_000_000;
/// How busy a hot worker is.
pub const HOT: f64 = 0.85;
/// How long a worker must be this busy to count as hot, in nanoseconds.
pub const HOT_FOR: u64 = 300_000_000;
/// The fraction of time spent waiting for a core above which cores are short.
pub const DELAYED: f64 = 0.1;
/// See [`FREE`].
pub const ROOM: f64 = HOT;
/// The least share of a worker's transactions that makes it worthwhile to move the other pools
/// away.
pub const SHARE: f64 = 0.1;
/// By what fraction transactions must increase for an experiment to succeed.
pub const GAIN: f64 = 0.05;
/// How long an experiment settles while clients move, in nanoseconds. After that, transactions
/// count for [`JUDGED`].
pub const SETTLES: u64 = 300_000_000;
/// See [`SETTLES`].
pub const JUDGED: u64 = 700_000_000;
/// How long a pool is left alone after a failure, at first and at most, in nanoseconds.
pub const PAUSE: u64 = 2_000_000_000;
/// See [`PAUSE`].
pub const PAUSE_MOST: u64 = 300_000_000_000;
/// The longest pause on a saturated worker, in nanoseconds. Saturated: busy for [`SATURATED`] of
/// the time that it had a core.
pub const PAUSE_SATURATED: u64 = 15_000_000_000;
/// See [`PAUSE_SATURATED`].
pub const SATURATED: f64 = 0.97;
/// How long all workers must be calm before one is emptied, in nanoseconds.
pub const CALM_FOR: u64 = 5_000_000_000;
/// How busy a worker may become when another one is emptied onto it.
pub const FITS: f64 = 0.6;
/// A worker with clients that has not reported for this long hangs, in nanoseconds.
pub const SILENT: u64 = 1_500_000_000;
/// How long counts of clients are out of date after a step that moves clients, in nanoseconds.
const COUNTS_LAG: u64 = 250_000_000;
/// A pool that no worker has reported for this long is forgotten, in nanoseconds.
const FORGOTTEN: u64 = 60_000_000_000;
/// The weight of the newest figure in averages. With it, an average covers about three tenths of a
/// second.
const NEW: f64 = 0.3;

/// What the balancer knows of a worker.
#[derive(Clone, Debug, Default)]
struct Worker {
    heard: Time,
    busy: f64,
    delay: f64,
    hot_since: Option<Time>,
    /// When the log last said why nothing can be done for this hot worker.
    told_hot: Option<Time>,
    clients: u32,
    /// The transactions that the worker has reported.
    total: u64,
    pools: BTreeMap<Arc<LoginKey>, Part>,
}

/// A worker's part of a pool.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    clients: u32,
    active: u32,
    /// Transactions per second.
    rate: f64,
}

impl Worker {
    fn rate(&self) -> f64 {
        self.pools.values().map(|part| part.rate).sum()
    }

    /// A pool's share of the worker's transactions.
    fn share(&self, pool: &LoginKey) -> f64 {
        let own = self.pools.get(pool).map_or(0.0, |part| part.rate);
        own / self.rate().max(1e-9)
    }
}

/// What the balancer knows of a pool.
#[derive(Clone, Debug)]
struct Pool {
    seats: Vec<WorkerId>,
    /// The seats that the workers know.
    told: Arc<[WorkerId]>,
    widest: u16,
    heard: Time,
    /// When an experiment with the pool failed, and the pool's transactions per second at that
    /// time. The pool is left alone for a while.
    failed: Option<(Time, f64)>,
    /// How long the pool is left alone, in nanoseconds.
    pause: u64,
    /// Until then, the counts of the pool's clients are out of date.
    moving: Time,
}

/// A step whose result is not known yet.
#[derive(Clone, Debug)]
struct Experiment {
    /// The pools, with their workers and transactions per second before the step.
    before: Vec<(Arc<LoginKey>, Vec<WorkerId>, f64)>,
    /// The workers concerned, with their transactions per second before the step.
    workers: Vec<WorkerId>,
    rate: f64,
    /// How many of these workers the pools did not have before.
    added: usize,
    /// When counting begins, and the number of transactions at that time.
    counts: Time,
    counted: Option<u64>,
    ends: Time,
    what: &'static str,
}

/// How the free workers are divided among the pools that need more: they become equally wide.
#[derive(Clone, Copy, Debug)]
struct Division {
    /// How many workers each of these pools can have.
    fair: usize,
    /// The number of workers of the narrowest of these pools.
    narrowest: usize,
}

impl Division {
    /// How many more workers a pool of this width gets. What can't be divided goes to those that ask
    /// first.
    fn growth(self, width: usize) -> usize {
        let rest = width == self.fair && self.narrowest >= self.fair;
        self.fair.saturating_sub(width).max(usize::from(rest))
    }
}

/// Decides which workers serve each pool's clients.
#[derive(Clone, Debug)]
pub struct Balancer {
    workers: Vec<Worker>,
    pools: BTreeMap<Arc<LoginKey>, Pool>,
    experiments: Vec<Experiment>,
    calm_since: Time,
    new_pools: WorkerId,
}

impl Balancer {
    /// A balancer for this number of workers.
    pub fn new(workers: u16) -> Balancer {
        Balancer {
            workers: vec![Worker::default(); usize::from(workers.max(1))],
            pools: BTreeMap::new(),
            experiments: Vec::new(),
            calm_since: Time(0),
            new_pools: WorkerId(0),
        }
    }

    /// A worker reports its load.
    pub fn hear(&mut self, now: Time, from: WorkerId, load: &Load) {
        let worker = &mut self.workers[usize::from(from.0)];
        let fresh = now.0.saturating_sub(worker.heard.0) > SILENT;
        let weight = if fresh { 1.0 } else { NEW };
        let blend = |old: f64, new: f64| old + weight * (new - old);
        worker.heard = now;
        worker.clients = load.clients;
        worker.busy = blend(worker.busy, load.signals.busy());
        worker.delay = blend(worker.delay, load.signals.delay());
        worker.hot_since = if worker.busy >= HOT {
            worker.hot_since.or(Some(now))
        } else {
            None
        };
        let seconds = load.signals.window.max(1) as f64 / 1e9;
        let old = std::mem::take(&mut worker.pools);
        for share in &load.pools {
            let rate = share.transactions as f64 / seconds;
            let before = old.get(&share.login).map_or(0.0, |part| part.rate);
            let part = Part {
                clients: share.clients,
                active: share.active,
                rate: blend(before, rate),
            };
            worker.pools.insert(share.login.clone(), part);
            worker.total += share.transactions;
            let pool = self.pools.entry(share.login.clone());
            let pool = pool.or_insert_with(|| Pool {
                seats: Vec::new(),
                told: Arc::new([]),
                widest: 1,
                heard: now,
                failed: None,
                pause: 0,
                moving: Time(0),
            });
            pool.widest = share.widest;
            if share.clients > 0 {
                pool.heard = now;
            }
        }
    }

    /// Returns the steps that are due now. Only the first `usable` workers may have clients, one
    /// for each usable core; other workers (with clients from before a takeover) hand theirs away.
    /// With `always`, each pool gets as many workers as it may have, without experiments.
    pub fn decide(&mut self, now: Time, usable: u16, always: bool) -> Vec<BalanceStep> {
        let mut steps = Vec::new();
        self.forget_old(now, &mut steps);
        if self.calm_since == Time(0) {
            self.calm_since = now;
        }
        self.seat_new(usable, always);
        if always {
            self.experiments.clear();
        } else {
            let hot = self.hot(now, usable);
            if !hot.is_empty() || !self.experiments.is_empty() {
                self.calm_since = now;
            }
            // While a worker's experiment is being judged, no other step is taken for it.
            let idle: Vec<_> = { hot.iter() }
                .filter(|worker| !self.on_trial(**worker))
                .collect();
            self.judge(now, &mut steps);
            let division = self.divide(now, &hot, usable);
            for worker in idle {
                if !self.on_trial(*worker) {
                    self.relieve(now, *worker, &hot, division, usable, &mut steps);
                }
            }
            self.tell_who_stays_hot(now, usable, &mut steps);
            if now.0.saturating_sub(self.calm_since.0) >= CALM_FOR {
                self.draw_together(now, usable, &mut steps);
            }
            self.welcome_new_pools(now, usable, &mut steps);
        }
        self.tell_seats(now, &mut steps);
        self.even_out(now, &mut steps);
        steps
    }

    /// The number of workers that have clients.
    pub fn active(&self) -> usize {
        self.workers.iter().filter(|w| w.clients > 0).count()
    }

    /// Forgets loads and pools that are out of date.
    fn forget_old(&mut self, now: Time, steps: &mut Vec<BalanceStep>) {
        // A worker reports once more before it sleeps: it has no clients. The same holds for a pool
        // without clients.
        for worker in &mut self.workers {
            if now.0.saturating_sub(worker.heard.0) > SILENT && worker.clients == 0 {
                *worker = Worker {
                    total: worker.total,
                    ..Worker::default()
                };
            }
        }
        let old: Vec<_> = { self.pools.iter() }
            .filter(|(_, pool)| now.0.saturating_sub(pool.heard.0) > FORGOTTEN)
            .map(|(key, _)| key.clone())
            .collect();
        for key in old {
            // A pool with transactions and without clients at this moment stays: its workers still
            // report it.
            let told = |worker: &Worker| worker.pools.contains_key(&key);
            if !self.workers.iter().any(told) {
                self.pools.remove(&key);
                steps.push(BalanceStep::Seat(key, Arc::new([])));
            }
        }
    }

    /// The transactions of some workers since the start.
    fn total(&self, workers: &[WorkerId]) -> u64 {
        let totals = workers.iter();
        totals.map(|w| self.workers[usize::from(w.0)].total).sum()
    }

    fn part(&self, worker: WorkerId, pool: &LoginKey) -> Part {
        let worker = &self.workers[usize::from(worker.0)];
        worker.pools.get(pool).copied().unwrap_or_default()
    }

    fn busy(&self, worker: WorkerId) -> f64 {
        self.workers[usize::from(worker.0)].busy
    }

    /// A new pool begins on the worker that has most of its clients.
    fn seat_new(&mut self, usable: u16, always: bool) {
        for key in self.pools.keys().cloned().collect::<Vec<_>>() {
            let pool = &self.pools[&key];
            let all = || (0..usable).map(WorkerId);
            if always {
                let seats: Vec<_> = all().take(usize::from(pool.widest.max(1))).collect();
                self.set_seats(&key, seats);
            } else if pool.seats.is_empty() || pool.seats.iter().any(|seat| seat.0 >= usable) {
                let most =
                    all().max_by_key(|w| (self.part(*w, &key).clients, std::cmp::Reverse(*w)));
                self.set_seats(&key, vec![most.unwrap_or(WorkerId(0))]);
            } else if pool.seats.len() > usize::from(pool.widest.max(1)) {
                // A reload has made the pool smaller.
                let seats = pool.seats[..usize::from(pool.widest.max(1))].to_vec();
                self.set_seats(&key, seats);
            }
        }
    }

    fn set_seats(&mut self, key: &Arc<LoginKey>, seats: Vec<WorkerId>) {
        if let Some(pool) = self.pools.get_mut(key)
            && pool.seats != seats
        {
            pool.seats = seats;
            pool.moving = Time(0);
        }
    }

    /// Tells the workers which seats get each pool's new clients: those that do not hang, if there
    /// are any.
    fn tell_seats(&mut self, now: Time, steps: &mut Vec<BalanceStep>) {
        let all = (0..self.workers.len() as u16).map(WorkerId);
        let hang: Vec<_> = all
            .filter(|worker| self.stands_still(now, *worker))
            .collect();
        for (key, pool) in &mut self.pools {
            let mut seats = pool.seats.clone();
            if !seats.iter().all(|seat| hang.contains(seat)) {
                seats.retain(|seat| !hang.contains(seat));
            }
            if *pool.told != *seats {
                pool.told = seats.into();
                steps.push(BalanceStep::Seat(key.clone(), pool.told.clone()));
            }
        }
    }

    /// The hot workers, busiest first, without those that lack a core.
    fn hot(&self, now: Time, usable: u16) -> Vec<WorkerId> {
        let hot = |number: &WorkerId| {
            let worker = &self.workers[usize::from(number.0)];
            let long = { worker.hot_since }.is_some_and(|since| now.0 >= since.0 + HOT_FOR);
            long && worker.delay < DELAYED && now.0.saturating_sub(worker.heard.0) < SILENT
        };
        let mut all: Vec<_> = (0..usable).map(WorkerId).filter(hot).collect();
        all.sort_by(|a, b| self.busy(*b).total_cmp(&self.busy(*a)));
        all
    }

    /// Logs which pools need more than their worker can do, and what keeps them there.
    fn tell_who_stays_hot(&mut self, now: Time, usable: u16, steps: &mut Vec<BalanceStep>) {
        for number in (0..usable).map(WorkerId) {
            let worker = &self.workers[usize::from(number.0)];
            let long = { worker.hot_since }.is_some_and(|hot| now.0 >= hot.0 + HOT_FOR_THE_LOG);
            let told = |told: Time| now.0 < told.0 + HOT_AGAIN_FOR_THE_LOG;
            if !long || worker.told_hot.is_some_and(told) || self.on_trial(number) {
                continue;
            }
            let Some((pool, why)) = self.stays_hot(now, number, usable) else {
                continue;
            };
            steps.push(BalanceStep::Say(format!(
                "worker {} is busy for {:.0} % of its time, and pool {}/{} stays there: {why}",
                number.0,
                100.0 * worker.busy,
                pool.database,
                pool.user,
            )));
            self.workers[usize::from(number.0)].told_hot = Some(now);
        }
    }

    /// The pool with the most transactions on a hot worker, and the reason why it gets no other
    /// worker. `None` if an experiment failed lately, which the log has already.
    fn stays_hot(
        &self,
        now: Time,
        hot: WorkerId,
        usable: u16,
    ) -> Option<(Arc<LoginKey>, &'static str)> {
        let worker = &self.workers[usize::from(hot.0)];
        let rate = |key: &Arc<LoginKey>| worker.share(key);
        let most = { worker.pools.keys() }.max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
        let pool = self.pools.get(most)?;
        let active: u32 = { self.workers.iter() }
            .filter_map(|worker| worker.pools.get(most))
            .map(|part| part.active)
            .sum();
        let why = if usable == 1 {
            "there is one worker, or one core"
        } else if worker.delay >= DELAYED {
            "PostgreSQL or other programs have the cores"
        } else if self.free(now, usable, ROOM).is_empty() {
            "all other workers are busy, too"
        } else if pool.seats.len() >= usize::from(pool.widest.max(1)) {
            "a pool has a worker for every four of its servers"
        } else if pool.seats.len() >= active as usize / 2 {
            "a pool has a worker for every two of its active clients"
        } else {
            return None;
        };
        Some((most.clone(), why))
    }

    /// True if a worker has clients and has not reported for too long.
    fn stands_still(&self, now: Time, worker: WorkerId) -> bool {
        let worker = &self.workers[usize::from(worker.0)];
        worker.clients > 0 && now.0.saturating_sub(worker.heard.0) >= SILENT
    }

    /// True if a worker is part of an experiment.
    fn on_trial(&self, worker: WorkerId) -> bool {
        let mut experiments = self.experiments.iter();
        experiments.any(|experiment| experiment.workers.contains(&worker))
    }

    /// Workers that are less busy than `most`, least busy first.
    fn free(&self, now: Time, usable: u16, most: f64) -> Vec<WorkerId> {
        let numbers = (0..usable).map(WorkerId);
        let free =
            |number: &WorkerId| self.busy(*number) <= most && !self.stands_still(now, *number);
        let mut all: Vec<_> = numbers.filter(free).collect();
        all.sort_by(|a, b| self.busy(*a).total_cmp(&self.busy(*b)));
        all
    }

    /// Moves the pools with the most transactions on a hot worker to a free worker; or gives one
    /// pool more workers.
    fn relieve(
        &mut self,
        now: Time,
        hot: WorkerId,
        all_hot: &[WorkerId],
        division: Division,
        usable: u16,
        steps: &mut Vec<BalanceStep>,
    ) {
        let mut all_free = self.free(now, usable, ROOM);
        all_free.retain(|worker| !self.on_trial(*worker));
        let Some(free) = all_free.first().copied() else {
            return;
        };
        let worker = &self.workers[usize::from(hot.0)];
        let mut pools: Vec<_> = { worker.pools.keys() }
            .filter(|key| self.pools[*key].seats.contains(&hot))
            .map(|key| (key.clone(), worker.share(key)))
            .collect();
        pools.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let saturated = self.is_saturated(hot);
        let can = |key: &Arc<LoginKey>| {
            self.may_try(now, key, saturated) && !self.pools[key].seats.contains(&free)
        };
        // Moves as much as makes both workers equally busy. If the other worker does nothing, this
        // is half. Pools that have left lately do not count, although some of their clients may
        // still be on their way.
        let stays: f64 = pools.iter().map(|(_, share)| share).sum();
        let half = stays * (1.0 - self.busy(free) / worker.busy) / 2.0;
        let (mut goes, mut part) = (Vec::new(), 0.0);
        for (key, share) in pools.iter().filter(|(key, _)| can(key)) {
            if part + share / 2.0 < half.max(share / 2.0) + 1e-9 && *share > 0.0 {
                goes.push(key.clone());
                part += share;
            }
        }
        // True if the pools that would stay are not worth a worker. A small pool beside sessions
        // that can't move is not alone, and moves as a whole.
        let wide = stays >= SHARE && stays - part < SHARE * stays;
        if wide {
            goes.truncate(1);
            goes.retain(|key| self.may_be_wider(key) > 0 && self.busy(free) <= FREE);
        }
        let Some(first) = goes.first() else { return };
        let seats = &self.pools[first].seats;
        let hot_seats = seats.iter().filter(|seat| all_hot.contains(seat)).count();
        all_free.retain(|worker| *worker == free || self.busy(*worker) <= FREE);
        all_free.retain(|worker| !seats.contains(worker));
        let more = if wide {
            { hot_seats.min(self.may_be_wider(first)) }.min(division.growth(seats.len()))
        } else {
            1
        };
        all_free.truncate(more);
        if all_free.is_empty() {
            return;
        }
        let before = goes.iter();
        let before = before.map(|key| {
            let seats = self.pools[key].seats.clone();
            (key.clone(), seats, self.rate(key))
        });
        let before: Vec<_> = before.collect();
        let mut workers = vec![hot];
        workers.extend(&all_free);
        workers.extend(before.iter().flat_map(|(_, seats, _)| seats));
        workers.sort_unstable();
        workers.dedup();
        if workers.iter().any(|worker| self.on_trial(*worker)) {
            return;
        }
        let (what, why) = if wide {
            ("widened", "it has that worker for itself")
        } else {
            ("moved", "others are left there")
        };
        let more = match goes.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} others)"),
        };
        let besides = match all_free.len() - 1 {
            0 => String::new(),
            besides => format!(" and {besides} others"),
        };
        steps.push(BalanceStep::Say(format!(
            "pool {}/{}{more} is {what} to worker {}{besides}: worker {} is busy for {:.0} % of its time, \
             waits for a core for {:.0} %, and {why}",
            first.database,
            first.user,
            free.0,
            hot.0,
            100.0 * worker.busy,
            100.0 * worker.delay,
        )));
        let rates = workers.iter();
        let rate = rates.map(|w| self.workers[usize::from(w.0)].rate()).sum();
        self.experiments.push(Experiment {
            before,
            workers,
            rate,
            added: all_free.len(),
            counts: Time(now.0 + SETTLES),
            counted: None,
            ends: Time(now.0 + SETTLES + JUDGED),
            what,
        });
        for key in goes {
            let mut seats = self.pools[&key].seats.clone();
            seats.retain(|seat| wide || *seat != hot);
            seats.extend(&all_free);
            self.set_seats(&key, seats);
        }
    }

    /// True if no experiment with the pool has failed, or the last failure was long ago or under
    /// less load.
    fn may_try(&self, now: Time, key: &LoginKey, saturated: bool) -> bool {
        let pool = &self.pools[key];
        let most = if saturated {
            PAUSE_SATURATED
        } else {
            PAUSE_MOST
        };
        pool.failed.is_none_or(|(since, rate)| {
            let over = now.0 >= since.0 + pool.pause.min(most);
            over || self.rate(key) >= (1.0 + GAIN) * rate
        })
    }

    /// How the free workers are divided among the pools that have a hot worker for themselves and
    /// may be wider.
    fn divide(&self, now: Time, hot: &[WorkerId], usable: u16) -> Division {
        let mut free = self.free(now, usable, FREE);
        free.retain(|worker| !self.on_trial(*worker));
        let claims: BTreeMap<_, _> = { hot.iter() }
            .filter_map(|worker| {
                let key = self.alone_on(*worker)?;
                let seats = &self.pools[key].seats;
                let most = seats.len() + self.may_be_wider(key);
                let may = self.may_try(now, key, self.is_saturated(*worker));
                let can = may && most > seats.len() && !seats.contains(free.first()?);
                can.then_some((key, (seats, most)))
            })
            .collect();
        free.retain(|worker| !claims.values().any(|(seats, _)| seats.contains(worker)));
        let widths = || { claims.values() }.map(|(seats, most)| (seats.len(), *most));
        let costs = |level: usize| -> usize {
            let more = |(width, most): (usize, usize)| level.min(most).saturating_sub(width);
            widths().map(more).sum()
        };
        let levels = 0..=usize::from(usable);
        Division {
            fair: match claims.len() {
                // Nobody else needs a worker.
                0 | 1 => usize::MAX,
                _ => {
                    levels
                        .take_while(|level| costs(*level) <= free.len())
                        .last()
                }
                .unwrap_or(0),
            },
            narrowest: widths().map(|(width, _)| width).min().unwrap_or(0),
        }
    }

    /// The pool that makes nearly all transactions on a worker, of the pools that have a seat there.
    fn alone_on(&self, number: WorkerId) -> Option<&Arc<LoginKey>> {
        let worker = &self.workers[usize::from(number.0)];
        let seated =
            || { worker.pools.keys() }.filter(|key| self.pools[*key].seats.contains(&number));
        let all: f64 = seated().map(|key| worker.share(key)).sum();
        seated().find(|key| all >= SHARE && worker.share(key) > (1.0 - SHARE) * all)
    }

    /// True if a worker has no time left.
    fn is_saturated(&self, worker: WorkerId) -> bool {
        let worker = &self.workers[usize::from(worker.0)];
        worker.busy + worker.delay >= SATURATED
    }

    /// Transactions per second of a pool.
    fn rate(&self, key: &LoginKey) -> f64 {
        let parts = self.workers.iter().filter_map(|w| w.pools.get(key));
        parts.map(|part| part.rate).sum()
    }

    /// How many more workers a pool may have, by the numbers of its servers and active clients.
    fn may_be_wider(&self, key: &Arc<LoginKey>) -> usize {
        let pool = &self.pools[key];
        let all = (0..self.workers.len() as u16).map(WorkerId);
        let active: u32 = all.map(|worker| self.part(worker, key).active).sum();
        let widest = u32::from(pool.widest).min(active / 2) as usize;
        widest.saturating_sub(pool.seats.len())
    }

    /// Judges experiments: has the step helped?
    fn judge(&mut self, now: Time, steps: &mut Vec<BalanceStep>) {
        for experiment in std::mem::take(&mut self.experiments) {
            self.judge_one(now, experiment, steps);
        }
    }

    fn judge_one(&mut self, now: Time, mut experiment: Experiment, steps: &mut Vec<BalanceStep>) {
        if now >= experiment.counts && experiment.counted.is_none() {
            experiment.counted = Some(self.total(&experiment.workers));
            experiment.counts = now;
            experiment.ends = Time(now.0 + JUDGED);
        }
        if now < experiment.ends {
            self.experiments.push(experiment);
            return;
        }
        let total = self.total(&experiment.workers);
        let done = total - experiment.counted.unwrap_or(total);
        let rate = done as f64 * 1e9 / (now.0 - experiment.counts.0).max(1) as f64;
        let before = experiment.workers.len() - experiment.added;
        let most = experiment.added as f64 / before.max(1) as f64;
        let helped = rate >= (1.0 + GAIN.min(most / 2.0)) * experiment.rate;
        let outcome = if helped { "stays" } else { "goes back" };
        if let Some((key, ..)) = experiment.before.first() {
            steps.push(BalanceStep::Say(format!(
                "pool {}/{} {outcome} after it was {}: {rate:.0} transactions a second, {:.0} before",
                key.database, key.user, experiment.what, experiment.rate
            )));
        }
        for (key, before, rate) in experiment.before {
            let rate = rate.max(self.rate(&key));
            let Some(pool) = self.pools.get_mut(&key) else {
                continue;
            };
            if helped {
                (pool.failed, pool.pause) = (None, 0);
            } else {
                pool.failed = Some((now, rate));
                pool.pause = (2 * pool.pause).clamp(PAUSE, PAUSE_MOST);
                self.set_seats(&key, before);
            }
        }
    }

    /// Empties the least busy worker of a wide pool, or of all pools, if other workers can do its
    /// work.
    fn draw_together(&mut self, now: Time, usable: u16, steps: &mut Vec<BalanceStep>) {
        let drawn = self.narrow(now).or_else(|| self.gather(now, usable));
        let Some((pools, from, to)) = drawn else {
            return;
        };
        self.calm_since = now;
        for key in pools {
            let mut seats = self.pools[&key].seats.clone();
            seats.retain(|seat| *seat != from);
            if seats.is_empty() {
                seats.push(to);
            }
            let text = format!(
                "pool {}/{} is drawn together, away from worker {}: the others can carry it ({:.0} % \
                 busy there)",
                key.database,
                key.user,
                from.0,
                100.0 * self.busy(from)
            );
            steps.push(BalanceStep::Say(text));
            self.set_seats(&key, seats);
        }
    }

    /// A wide pool that fits onto one worker less: the pool, the worker to empty, and one that
    /// stays.
    fn narrow(&self, now: Time) -> Option<(Vec<Arc<LoginKey>>, WorkerId, WorkerId)> {
        let stands = |seat: &WorkerId| self.stands_still(now, *seat);
        let mut known = { self.pools.iter() }.filter(|(_, pool)| !pool.seats.iter().any(stands));
        known.find_map(|(key, pool)| {
            let work = |seat: WorkerId| {
                let worker = &self.workers[usize::from(seat.0)];
                worker.busy * worker.share(key)
            };
            let seats = pool.seats.iter().copied();
            let least = seats.min_by(|a, b| work(*a).total_cmp(&work(*b)))?;
            let more = work(least) / (pool.seats.len() - 1).max(1) as f64;
            let mut others = pool.seats.iter().filter(|seat| **seat != least);
            let first = *others.clone().next()?;
            let fits = others.all(|seat| self.busy(*seat) + more <= FITS);
            fits.then(|| (vec![key.clone()], least, first))
        })
    }

    /// A worker whose pools all fit onto another worker: the pools, the worker, and the other one.
    fn gather(&self, now: Time, usable: u16) -> Option<(Vec<Arc<LoginKey>>, WorkerId, WorkerId)> {
        let on = |worker: WorkerId| {
            let pools = self.pools.iter();
            let seated = pools.filter(move |(_, pool)| pool.seats.contains(&worker));
            seated.map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        // Emptying a worker that has only consoles would gain nothing.
        let has = |worker: &WorkerId| !self.workers[usize::from(worker.0)].pools.is_empty();
        let works = |worker: &WorkerId| has(worker) && !self.stands_still(now, *worker);
        let all = || (0..usable).map(WorkerId).filter(works);
        let alone = |key: &Arc<LoginKey>| self.pools[key].seats.len() == 1;
        let least = all()
            .filter(|worker| !on(*worker).is_empty() && on(*worker).iter().all(alone))
            .min_by(|a, b| (self.busy(*a).total_cmp(&self.busy(*b))).then(b.cmp(a)))?;
        let fits = |to: &WorkerId| *to != least && self.busy(*to) + self.busy(least) <= FITS;
        let to = all()
            .filter(fits)
            .max_by(|a, b| (self.busy(*a).total_cmp(&self.busy(*b))).then(b.cmp(a)))?;
        Some((on(least), least, to))
    }

    /// New pools begin on worker 0, or on a worker with more room if worker 0 is busy or hangs.
    fn welcome_new_pools(&mut self, now: Time, usable: u16, steps: &mut Vec<BalanceStep>) {
        let best = match self.busy(WorkerId(0)) {
            busy if busy <= FITS && !self.stands_still(now, WorkerId(0)) => WorkerId(0),
            _ => {
                let free = self.free(now, usable, FITS);
                free.first().copied().unwrap_or(self.new_pools)
            }
        };
        if best != self.new_pools {
            self.new_pools = best;
            steps.push(BalanceStep::NewPools(best));
        }
    }

    /// Gives each of a pool's workers its share of the active clients, and moves clients from other
    /// workers to them.
    fn even_out(&mut self, now: Time, steps: &mut Vec<BalanceStep>) {
        let mut places: BTreeMap<&Arc<LoginKey>, Vec<(WorkerId, Part)>> = BTreeMap::new();
        for (number, worker) in self.workers.iter().enumerate() {
            for (key, part) in &worker.pools {
                let place = (WorkerId(number as u16), *part);
                places.entry(key).or_default().push(place);
            }
        }
        for (key, places) in places {
            let pool = &self.pools[key];
            // No client moves to or from a worker that hangs: its counts are out of date.
            let stands = |seat: &WorkerId| self.stands_still(now, *seat);
            if now < pool.moving || pool.seats.is_empty() || pool.seats.iter().any(stands) {
                continue;
            }
            let (seated, elsewhere): (Vec<_>, Vec<_>) =
                { places.into_iter() }.partition(|(at, _)| pool.seats.contains(at));
            gather_in(key, &pool.seats, &seated, &elsewhere, steps);
            even_among(key, &pool.seats, &seated, steps);
        }
        let told: Vec<_> = { steps.iter() }
            .filter_map(|step| match step {
                BalanceStep::Shed { login: pool, .. } => Some(pool.clone()),
                _ => None,
            })
            .collect();
        for key in told {
            if let Some(pool) = self.pools.get_mut(&key) {
                pool.moving = Time(now.0 + COUNTS_LAG);
            }
        }
    }
}

/// The parts of a pool on some workers.
type Places = [(WorkerId, Part)];

/// By seat: how much less than its share the seat has, in the unit of `count`.
fn wants(
    seats: &[WorkerId],
    seated: &Places,
    fair: u32,
    count: impl Fn(&Part) -> u32,
) -> Vec<(WorkerId, u32)> {
    let room = |seat: &WorkerId| {
        let there = seated.iter().find(|(at, _)| at == seat);
        let has = there.map_or(0, |(_, part)| count(part));
        (*seat, fair.saturating_sub(has))
    };
    seats.iter().map(room).collect()
}

/// Moves all clients of a pool from other workers to the pool's seats.
fn gather_in(
    key: &Arc<LoginKey>,
    seats: &[WorkerId],
    seated: &Places,
    elsewhere: &Places,
    steps: &mut Vec<BalanceStep>,
) {
    let all = seated.iter().chain(elsewhere);
    let total: u32 = all.map(|(_, part)| part.clients).sum();
    let fair = total.div_ceil(seats.len() as u32);
    let wants = wants(seats, seated, fair, |part| part.clients);
    let too_many = elsewhere.iter().map(|(at, part)| (*at, part.clients));
    hand_over(key, too_many, wants, true, steps);
}

/// Gives each of a pool's workers its share of the active clients.
fn even_among(
    key: &Arc<LoginKey>,
    seats: &[WorkerId],
    seated: &Places,
    steps: &mut Vec<BalanceStep>,
) {
    let total: u32 = seated.iter().map(|(_, part)| part.active).sum();
    let fair = total.div_ceil(seats.len() as u32);
    let wants = wants(seats, seated, fair, |part| part.active);
    // A small difference does no harm.
    let slack = fair / 8 + 1;
    let uneven = wants.iter().any(|(_, room)| *room > slack) || { seated.iter() }
        .any(|(_, part)| part.active > fair + slack);
    if uneven {
        let over = |part: &Part| part.active.saturating_sub(fair);
        let too_many = seated.iter().map(|(at, part)| (*at, over(part)));
        hand_over(key, too_many, wants, false, steps);
    }
}

/// Moves surplus clients to the worker that lacks the most.
fn hand_over(
    key: &Arc<LoginKey>,
    too_many: impl Iterator<Item = (WorkerId, u32)>,
    mut wants: Vec<(WorkerId, u32)>,
    idle: bool,
    steps: &mut Vec<BalanceStep>,
) {
    for (from, many) in too_many {
        // One worker gets clients at a time. The next one follows when these clients have moved.
        if let Some((to, room)) = wants.iter_mut().max_by_key(|(_, room)| *room)
            && many.min(*room) > 0
        {
            let clients = many.min(*room);
            *room -= clients;
            steps.push(BalanceStep::Shed {
                from,
                to: *to,
                login: key.clone(),
                clients,
                idle,
            });
        }
    }
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
