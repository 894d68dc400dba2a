//! The Broker: one value for all workers. It owns the permits of every limit on servers (of a pool,
//! a database, a user, a host) and on clients, and knows which workers are hungry.
//!
//! The process keeps the Broker behind a lock. A worker calls the Broker directly, in the middle of
//! its own turn ([`crate::event::Action::Broker`]), so no worker waits for another worker's turn.
//! The Broker answers by mail to any workers, posted before the lock is released: each worker gets
//! the answers in the Broker's order.

mod counts;
mod kept;
mod pins;
mod places;
mod shares;

use std::sync::Arc;

use hashbrown::HashMap;

use crate::Seeded;
use crate::config::HostPort;
use crate::console::is_console;
use crate::event::WorkerId;
use crate::ids::Time;
use crate::login::key::LoginKey;
use crate::mail::{ClientBounds, Evict, FromBroker, Mail, Post, ToBroker};
use crate::pool::bound::{BoundName, Each, SharedBound};
use crate::pool::key::PoolKey;
use crate::pool::supply::{Bounds, HeldBy};
use counts::BoundCounts;
use kept::Kept;
use pins::Pins;

/// How long a worker may take to close a server or to answer that it has none, in nanoseconds.
const ANSWERS_NS: u64 = 500_000_000;

/// The permits of all workers under the limits on servers and clients, and the workers that wait
/// for one.
#[derive(Debug)]
pub struct Broker {
    pools: HashMap<Arc<PoolKey>, Pool, Seeded>,
    /// Servers under each limit that pools share.
    servers: BoundCounts,
    /// Clients that count for `max_client_conn`.
    clients: u32,
    /// All clients, under each limit that they have.
    logins: BoundCounts,
    /// Logins of servers that are under way, at each host with `max_host_logins`.
    server_logins: BoundCounts,
    evict_turn: u32,
    /// Places kept for pools that several limits hold back. There are few.
    kept: Vec<Kept>,
    /// When the current mail came.
    now: Time,
    /// How many workers have not yet reported that all of their connections have come with a
    /// takeover.
    arriving: u16,
    /// Mail that came while connections arrived.
    deferred: Vec<ToBroker>,
}

/// The Broker's knowledge of a pool.
#[derive(Debug, Default)]
struct Pool {
    /// Permits given out.
    total: u32,
    /// Permits by worker. A number is below zero if the mail about a server's end overtakes the
    /// mail about its move.
    held: Vec<i32>,
    /// The hunger of each worker.
    hungry: Vec<Option<Hunger>>,
    /// Workers that were asked to close a server of another pool for this pool. None of them has
    /// answered yet, by saying that it has none or by giving a permit back. Another worker is asked
    /// only if they are late ([`ANSWERS_NS`]).
    evicting: Vec<WorkerId>,
    /// When the last of these workers was asked.
    evicting_since: Time,
    /// Where a server was asked for last.
    evicted_from: Option<Evict>,
    /// Workers that had nothing to close. Each closes the next server that it can.
    minded_by: Vec<WorkerId>,
    /// Under each limit, until when no place is kept, because a kept place was of no use.
    forgoes: Each<Time>,
    bounds: Bounds,
    /// The pool has more servers than its limits allow, and workers know how many to keep.
    shrinking: bool,
    /// Clients that keep a server.
    pins: Pins,
}

impl Pool {
    /// True if the servers of the pool count under a limit.
    fn counts_under(&self, name: &BoundName, key: &PoolKey) -> bool {
        name.counts(key, self.bounds.host.as_ref())
    }
}

#[derive(Clone, Copy, Debug)]
struct Hunger {
    /// Since when the worker's oldest client waits.
    since: Time,
    /// The number of clients that wait.
    waiting: u32,
    unwelcomed: bool,
    replication: bool,
    /// The worker can use a permit. If false, it can only borrow a server.
    opens: bool,
    /// The workers that have servers know that this worker is hungry.
    told: bool,
    /// The limit that the worker was told of.
    held_by: Option<HeldBy>,
}

impl Broker {
    /// A Broker that has given nothing out.
    pub fn new(seeded: Seeded) -> Self {
        Broker {
            pools: HashMap::with_hasher(seeded),
            servers: BoundCounts::new(seeded),
            clients: 0,
            logins: BoundCounts::new(seeded),
            server_logins: BoundCounts::new(seeded),
            evict_turn: 0,
            kept: Vec::new(),
            now: Time(0),
            arriving: 0,
            deferred: Vec::new(),
        }
    }

    /// Handles one mail. During a takeover the Broker counts arriving connections first and defers
    /// all other mail, so that limits hold.
    pub fn handle(&mut self, now: Time, mail: ToBroker, post: Post<'_>) {
        use ToBroker::{AllArrived, Arrivals, ClientEntered, ServerEntered};
        let counts = matches!(
            mail,
            Arrivals { .. } | ServerEntered { .. } | ClientEntered { .. } | AllArrived
        );
        if self.arriving > 0 && !counts {
            return self.deferred.push(mail);
        }
        // Workers read the clock one by one, so a mail may be a little older than the last.
        self.now = self.now.max(now);
        match mail {
            ToBroker::Need {
                worker,
                pool,
                age,
                waiting,
                unwelcomed,
                replication,
                opens,
                bounds,
            } => {
                let hunger = Hunger {
                    since: Time(now.0.saturating_sub(age)),
                    waiting,
                    unwelcomed,
                    replication,
                    opens,
                    told: false,
                    held_by: None,
                };
                self.bounded(&pool, worker, bounds, post);
                self.hungers(&pool, worker, hunger, post);
            }
            ToBroker::Sated { worker, pool } => {
                self.pool(&pool, worker).hungry[usize::from(worker.0)] = None;
                self.calm(&pool, post);
                self.forget(&pool);
            }
            ToBroker::Freed { worker, pool } => self.freed(&pool, worker, post),
            ToBroker::LoggedIn { pool, host } => self.logged_in(&pool, host, post),
            ToBroker::NothingToEvict { worker, pool } => self.minds(&pool, worker, post),
            ToBroker::Moved { from, to, pool } => self.moved(&pool, from, to, post),
            ToBroker::Bounds {
                worker,
                pool,
                bounds,
            } => {
                self.bounded(&pool, worker, bounds, post);
                self.forget(&pool);
            }
            ToBroker::Warm {
                worker,
                pool,
                wanted,
                bounds,
            } => {
                self.bounded(&pool, worker, bounds, post);
                let total = self.pool(&pool, worker).total;
                if total < wanted && self.refusal(&pool, 0).is_none() {
                    self.permit(&pool, worker, true, post);
                }
                self.forget(&pool);
            }
            ToBroker::Admit {
                worker,
                client,
                login,
                bounds,
            } => {
                let answer = self.admit(&login, bounds);
                let admitted = FromBroker::Admitted {
                    client,
                    login,
                    answer,
                };
                post(worker, Mail::Brokered(admitted));
            }
            ToBroker::Pin {
                worker,
                client,
                ticket,
                pool,
                wish,
                bounds,
            } => {
                let asker = pins::Applicant {
                    worker,
                    ticket,
                    client,
                    since: self.now,
                };
                self.bounded(&pool, worker, bounds, post);
                let room = self.pin_room(&pool);
                let now = self.now;
                let pins = &mut self.pool(&pool, worker).pins;
                pins.ask(asker, wish, room, now, post);
            }
            ToBroker::Unpin {
                worker,
                ticket,
                pool,
            } => {
                let room = self.pin_room(&pool);
                let now = self.now;
                let pins = &mut self.pool(&pool, worker).pins;
                pins.give_back(worker, ticket, now);
                pins.feed(room, now, post);
                self.forget(&pool);
            }
            ToBroker::Pins {
                worker,
                pool,
                works,
            } => {
                let room = self.pin_room(&pool);
                let now = self.now;
                let pins = &mut self.pool(&pool, worker).pins;
                pins.hear(works, now);
                pins.feed(room, now, post);
                self.forget(&pool);
            }
            ToBroker::Left { login } => {
                self.clients -= u32::from(!is_console(&login.database));
                self.logins.take(SharedBound::names_of_login(&login), 1);
            }
            Arrivals { workers } => self.arriving += workers,
            ServerEntered {
                worker,
                pool,
                bounds,
            } => {
                self.bounded(&pool, worker, bounds, post);
                self.count_server(&pool, worker);
            }
            ClientEntered { login } => self.count_client(&login),
            AllArrived => self.all_arrived(now, post),
        }
    }

    /// A worker's clients wait for servers of a pool.
    fn hungers(&mut self, key: &Arc<PoolKey>, worker: WorkerId, hunger: Hunger, post: Post<'_>) {
        self.give_up_places(post);
        let entry = &mut self.pool(key, worker).hungry[usize::from(worker.0)];
        *entry = Some(Hunger {
            told: entry.is_some_and(|before| before.told),
            held_by: entry.and_then(|before| before.held_by),
            ..hunger
        });
        self.feed(key, worker, post);
    }

    /// PostgreSQL has closed one of a worker's servers, so its permit comes back.
    fn freed(&mut self, key: &Arc<PoolKey>, worker: WorkerId, post: Post<'_>) {
        self.give_back(key, worker);
        self.shrink(key, post);
        for (_, other) in self.sharing(key) {
            other.evicting.retain(|asked| *asked != worker);
        }
        self.feed_oldest(key, post);
        self.forget(key);
    }

    /// A login of a server at a host is over, or did not begin: another one may.
    fn logged_in(&mut self, key: &Arc<PoolKey>, host: Arc<HostPort>, post: Post<'_>) {
        self.server_logins.take([BoundName::Host(host)], 1);
        self.feed_oldest(key, post);
    }

    /// A worker has no server to close at once for a pool. It will close the next released one.
    fn minds(&mut self, key: &Arc<PoolKey>, worker: WorkerId, post: Post<'_>) {
        let entry = self.pool(key, worker);
        entry.evicting.retain(|asked| *asked != worker);
        if !entry.minded_by.contains(&worker) {
            entry.minded_by.push(worker);
        }
        self.calm(key, post);
        self.forget(key);
    }

    /// A server moves from one worker to another, with its permit.
    fn moved(&mut self, key: &Arc<PoolKey>, from: WorkerId, to: WorkerId, post: Post<'_>) {
        self.pool(key, from).held[usize::from(from.0)] -= 1;
        let entry = self.pool(key, to);
        entry.held[usize::from(to.0)] += 1;
        entry.hungry[usize::from(to.0)] = None;
        self.shrink(key, post);
        self.calm(key, post);
    }

    /// All connections of one worker have arrived with a takeover. When every worker has reported
    /// this, the deferred mail is handled.
    fn all_arrived(&mut self, now: Time, post: Post<'_>) {
        self.arriving -= 1;
        if self.arriving == 0 {
            for mail in std::mem::take(&mut self.deferred) {
                self.handle(now, mail, post);
            }
        }
    }

    /// How many clients of a pool may keep a server now.
    fn pin_room(&mut self, key: &Arc<PoolKey>) -> pins::Room {
        let waited_for = |pool: &Pool| pool.hungry.iter().any(Option::is_some);
        let bounds = self
            .pools
            .get(key)
            .map_or_else(Bounds::default, |pool| pool.bounds.clone());
        let own = self.pools.get(key).is_some_and(waited_for);
        let shares = bounds.shared.iter().any(|limit| *limit > 0);
        let waited_for = own || shares && self.sharing(key).any(|(_, pool)| waited_for(pool));
        let most = bounds.pins_at_rest();
        if waited_for {
            pins::Room {
                limit: bounds.pins,
                most,
            }
        } else {
            pins::Room { limit: most, most }
        }
    }

    /// The number of admitted clients.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// The number of permits given out.
    pub fn permits(&self) -> usize {
        self.pools.values().map(|pool| pool.total as usize).sum()
    }

    /// The number of clients that keep a server or wait for permission.
    pub fn pins(&self) -> usize {
        self.pools.values().map(|pool| pool.pins.len()).sum()
    }

    /// Verifies that the counts by limit agree with the pools.
    pub fn check(&self) {
        for pool in self.pools.values() {
            let held: i64 = pool.held.iter().map(|held| i64::from(*held)).sum();
            assert_eq!(held, i64::from(pool.total), "permits of a pool");
        }
        let mut had = HashMap::with_hasher(*self.pools.hasher());
        for (key, pool) in self.pools.iter().filter(|(_, pool)| pool.total > 0) {
            for name in self.names(key).into_iter().flatten() {
                *had.entry(name).or_default() += pool.total;
            }
        }
        self.servers.check(&had);
        let by_user = self.logins.sum(|name| matches!(name, BoundName::User(_)));
        let by_database = self
            .logins
            .sum(|name| matches!(name, BoundName::Database(_)));
        assert_eq!(by_user, by_database, "clients by bound");
        assert!(self.clients <= by_user, "clients");
        let logins = self.server_logins.sum(|_| true) as usize;
        assert!(logins <= self.permits(), "logins of servers");
    }

    /// How many workers wait for servers, counted for each pool.
    pub fn hungry(&self) -> usize {
        let hungry = |pool: &Pool| pool.hungry.iter().flatten().count();
        self.pools.values().map(hungry).sum()
    }

    fn pool(&mut self, key: &Arc<PoolKey>, worker: WorkerId) -> &mut Pool {
        let pool = self.pools.entry(key.clone()).or_default();
        let needed = usize::from(worker.0) + 1;
        if pool.held.len() < needed {
            pool.held.resize(needed, 0);
            pool.hungry.resize(needed, None);
        }
        pool
    }

    /// Gives a hungry worker a permit, or tells the holders of servers about it. A worker without
    /// servers of the pool first tries to borrow one, and gets a permit when it reports hunger
    /// again. So one server suffices for clients that take turns on several workers.
    fn feed(&mut self, key: &Arc<PoolKey>, worker: WorkerId, post: Post<'_>) {
        let Some(hunger) = self.pool(key, worker).hungry[usize::from(worker.0)] else {
            return;
        };
        if !hunger.opens {
            self.calm(key, post);
            if hunger.replication || !self.tell_holders(key, worker, hunger, false, post) {
                let pool = key.clone();
                post(worker, Mail::Brokered(FromBroker::Alone { pool }));
            }
            return;
        }
        let age = self.age(hunger.since);
        match self.refusal(key, age) {
            None if !hunger.told && !hunger.replication && self.others_hold_all(key, worker) => {
                self.tell_holders(key, worker, hunger, true, post);
            }
            None => self.permit(key, worker, false, post),
            Some(refusal) => {
                self.tell_held_back(key, worker, refusal, post);
                self.silence(key, refusal, post);
                if !hunger.replication {
                    self.tell_holders(key, worker, hunger, false, post);
                    self.even_out(key, worker, post);
                }
                for from in self.places(key, worker, refusal, hunger.replication) {
                    if self.evict(key, from, age, post) {
                        break;
                    }
                }
            }
        }
    }

    /// If another worker has servers to spare, it gives one to the hungry worker.
    fn even_out(&mut self, key: &Arc<PoolKey>, worker: WorkerId, post: Post<'_>) {
        let pool = self.pool(key, worker);
        let hungry = pool.hungry.iter();
        let waiting: Vec<_> = hungry
            .map(|hunger| hunger.map_or(0, |hunger| hunger.waiting))
            .collect();
        if let Some(giver) = shares::giver(worker, &pool.held, &waiting) {
            let pool = key.clone();
            post(giver, Mail::Brokered(FromBroker::Give { pool, to: worker }));
        }
    }

    /// Tells a hungry worker which limit it waits for, if the limit has changed.
    fn tell_held_back(&mut self, key: &Arc<PoolKey>, worker: WorkerId, by: HeldBy, post: Post<'_>) {
        let hunger = &mut self.pool(key, worker).hungry[usize::from(worker.0)];
        if let Some(hunger) = hunger
            && hunger.held_by.replace(by) != Some(by)
        {
            let pool = key.clone();
            post(worker, Mail::Brokered(FromBroker::HeldBack { pool, by }));
        }
    }

    /// Where servers can be closed to make room for a pool that is held back, in the order to try.
    fn places(
        &mut self,
        key: &Arc<PoolKey>,
        worker: WorkerId,
        refusal: HeldBy,
        replication: bool,
    ) -> Vec<Evict> {
        let now = self.now;
        let pool = self.pool(key, worker);
        let mut bounds = refusal.bounds();
        if bounds.len() > 1 {
            // Closing a server is useless where the place would not be kept.
            bounds.retain(|bound| now >= pool.forgoes[bound.place()]);
        }
        let last = pool.evicted_from.clone();
        let names = bounds.into_iter().filter_map(|bound| self.name(key, bound));
        let mut places: Vec<Evict> = names.map(Evict::Under).collect();
        // A server of the same pool counts under all limits: closing one makes room everywhere.
        if replication {
            places.insert(0, Evict::Same);
        }
        // The places take turns.
        if let Some(at) = places.iter().position(|place| Some(place) == last.as_ref()) {
            places.rotate_left(at + 1);
        }
        places
    }

    /// True if the pool has servers, and the worker has none of them.
    fn others_hold_all(&self, key: &PoolKey, worker: WorkerId) -> bool {
        self.pools.get(key).is_some_and(|pool| {
            pool.total > 0
                && pool
                    .held
                    .get(usize::from(worker.0))
                    .is_none_or(|held| *held <= 0)
        })
    }

    /// A permit came back. Of this pool and those that share its limits, the pool that has waited
    /// longest gets the permit; or other pools get its place under each limit. If another limit
    /// still holds such a pool back, the place is kept for the pool.
    fn feed_oldest(&mut self, key: &Arc<PoolKey>, post: Post<'_>) {
        let mut hungry: Vec<(Time, Arc<PoolKey>, WorkerId)> = Vec::new();
        for (other, pool) in self.sharing(key) {
            for (worker, hunger) in pool.hungry.iter().enumerate() {
                if let Some(hunger) = hunger
                    && hunger.opens
                {
                    hungry.push((hunger.since, other.clone(), WorkerId(worker as u16)));
                }
            }
        }
        hungry.sort();
        let mut left = Vec::from(SharedBound::ALL);
        for (at, (since, other, worker)) in hungry.iter().enumerate() {
            match self.refusal(other, self.age(*since)) {
                None if left.iter().any(|bound| self.is_shared(*bound, key, other)) => {
                    self.permit(other, *worker, false, post);
                    left.retain(|bound| !self.is_shared(*bound, key, other));
                }
                Some(HeldBy::Shared(lacks)) if self.keep_places(&hungry[at..], lacks, post) => {
                    self.feed(other, *worker, post);
                }
                _ => {}
            }
        }
    }

    /// The time since `since`, in nanoseconds.
    fn age(&self, since: Time) -> u64 {
        self.now.0.saturating_sub(since.0)
    }

    /// The limit of one kind that a pool has.
    fn name(&self, key: &PoolKey, bound: SharedBound) -> Option<BoundName> {
        let pool = self.pools.get(key);
        bound.name(key, pool.and_then(|pool| pool.bounds.host.as_ref()))
    }

    /// The limits of a pool.
    fn names(&self, key: &PoolKey) -> Each<Option<BoundName>> {
        SharedBound::ALL.map(|bound| self.name(key, bound))
    }

    /// This pool and all pools that may share a limit with it.
    fn sharing(&mut self, key: &PoolKey) -> impl Iterator<Item = (&Arc<PoolKey>, &mut Pool)> {
        let names = self.names(key);
        self.pools.iter_mut().filter(move |(other, pool)| {
            let mut names = names.iter().flatten();
            names.any(|name| pool.counts_under(name, other))
        })
    }

    /// True if both pools have one limit of this kind.
    fn is_shared(&self, bound: SharedBound, key: &PoolKey, other: &PoolKey) -> bool {
        let name = self.name(key, bound);
        name.is_some() && name == self.name(other, bound)
    }

    fn refusal(&self, key: &PoolKey, age: u64) -> Option<HeldBy> {
        let pool = self.pools.get(key)?;
        let bounds = &pool.bounds;
        let reserve = if age >= bounds.reserve_after {
            bounds.reserve
        } else {
            0
        };
        let reached = |limit: u32, count: u32| limit > 0 && count >= limit;
        if bounds.size > 0 && pool.total >= bounds.size.saturating_add(reserve) {
            return Some(HeldBy::Pool);
        }
        if key.listens() && !self.may_listen(key, bounds) {
            return Some(HeldBy::Pool);
        }
        let lacks = SharedBound::ALL
            .map(|bound| reached(bounds.shared[bound.place()], self.taken(key, bound)));
        if lacks.contains(&true) {
            return Some(HeldBy::Shared(lacks));
        }
        let host = bounds.host.clone().filter(|_| bounds.host_logins > 0)?;
        let logins = self.server_logins.under(&BoundName::Host(host));
        reached(bounds.host_logins, logins).then_some(HeldBy::Logins)
    }

    /// Listening connections take at most half of a limit. The rest is for other servers.
    fn may_listen(&self, key: &PoolKey, bounds: &Bounds) -> bool {
        let own = self.pools.get(key).map_or(0, |pool| pool.total);
        SharedBound::ALL.into_iter().all(|bound| {
            let limit = bounds.shared[bound.place()];
            limit == 0 || 2 * (self.listening(key, bound) + own + 1) <= limit
        })
    }

    /// The number of listening connections under a limit of a pool.
    fn listening(&self, key: &PoolKey, bound: SharedBound) -> u32 {
        self.listeners(key, bound).map(|(_, pool)| pool.total).sum()
    }

    /// The other pools under a limit of a pool that listen.
    fn listeners(
        &self,
        key: &PoolKey,
        bound: SharedBound,
    ) -> impl Iterator<Item = (&Arc<PoolKey>, &Pool)> {
        let name = self.name(key, bound);
        let listeners = self.pools.iter().filter(|(other, _)| other.listens());
        listeners.filter(move |(other, pool)| {
            ***other != *key && name.iter().any(|name| pool.counts_under(name, other))
        })
    }

    /// If a limit was lowered and listening connections take all of it, one of them is closed.
    fn silence(&self, key: &PoolKey, refusal: HeldBy, post: Post<'_>) {
        let bounds = self
            .pools
            .get(key)
            .map_or_else(Bounds::default, |pool| pool.bounds.clone());
        for bound in refusal.bounds() {
            if self.listening(key, bound) < bounds.shared[bound.place()] {
                continue;
            }
            let mut listeners = self.listeners(key, bound);
            let Some((pool, held)) = listeners.find(|(_, pool)| pool.total > 0) else {
                continue;
            };
            if let Some(worker) = held.held.iter().position(|held| *held > 0) {
                let pool = pool.clone();
                post(
                    WorkerId(worker as u16),
                    Mail::Brokered(FromBroker::Silence { pool }),
                );
            }
        }
    }

    fn permit(&mut self, key: &Arc<PoolKey>, worker: WorkerId, warm: bool, post: Post<'_>) {
        self.kept.retain(|kept| kept.pool != *key);
        self.count_server(key, worker);
        let pool = self.pool(key, worker);
        if !warm {
            pool.hungry[usize::from(worker.0)] = None;
        }
        let reserve = pool.bounds.size > 0 && pool.total > pool.bounds.size;
        let login = pool.bounds.host.clone();
        let login = login.filter(|_| pool.bounds.host_logins > 0);
        self.server_logins
            .add(login.clone().map(BoundName::Host), 1);
        let permit = FromBroker::Permit {
            pool: key.clone(),
            reserve,
            warm,
            login,
        };
        post(worker, Mail::Brokered(permit));
        self.calm(key, post);
    }

    /// If no worker waits that could use a permit, other workers need not close servers for the
    /// pool, and no place is kept for the pool.
    fn calm(&mut self, key: &Arc<PoolKey>, post: Post<'_>) {
        let Some(pool) = self.pools.get_mut(key) else {
            return;
        };
        if pool.hungry.iter().flatten().any(|hunger| hunger.opens) {
            return;
        }
        pool.forgoes = Default::default();
        self.content(key, post);
        let before = self.kept.len();
        self.kept.retain(|kept| kept.pool != *key);
        if self.kept.len() < before {
            self.feed_oldest(key, post);
        }
    }

    /// Tells workers not to close servers for this pool any more.
    fn content(&mut self, key: &Arc<PoolKey>, post: Post<'_>) {
        let pool = self.pools.get_mut(key);
        for worker in pool.into_iter().flat_map(|pool| pool.minded_by.drain(..)) {
            let pool = key.clone();
            post(worker, Mail::Brokered(FromBroker::Content { pool }));
        }
    }

    /// A worker reports a pool's limits.
    fn bounded(&mut self, key: &Arc<PoolKey>, worker: WorkerId, bounds: Bounds, post: Post<'_>) {
        let pool = self.pool(key, worker);
        if pool.bounds != bounds {
            let permits = pool.total;
            let before = std::mem::replace(&mut pool.bounds, bounds.clone()).host;
            self.servers.take(before.map(BoundName::Host), permits);
            self.servers.add(bounds.host.map(BoundName::Host), permits);
            let (room, now) = (self.pin_room(key), self.now);
            self.pool(key, worker).pins.feed(room, now, post);
            self.shrink(key, post);
        }
    }

    /// If a pool has more servers than its own limit allows, each worker is told how many it may
    /// keep. The worker with the most servers loses the most. Limits that pools share close no
    /// servers, as in PgBouncer.
    fn shrink(&mut self, key: &Arc<PoolKey>, post: Post<'_>) {
        let Some(pool) = self.pools.get_mut(key) else {
            return;
        };
        let most = match pool.bounds.size {
            0 => u32::MAX,
            size => size.saturating_add(pool.bounds.reserve),
        };
        let too_many = pool.total > most;
        if !too_many && !pool.shrinking {
            return;
        }
        pool.shrinking = too_many;
        let mut keeps: Vec<i32> = pool.held.clone();
        for _ in most..pool.total {
            if let Some(most) = keeps.iter_mut().max() {
                *most -= 1;
            }
        }
        for (worker, keep) in keeps.into_iter().enumerate() {
            let keep = if too_many {
                u32::try_from(keep).unwrap_or(0)
            } else {
                u32::MAX
            };
            let pool = key.clone();
            let keep = Mail::Brokered(FromBroker::Keep { pool, keep });
            post(WorkerId(worker as u16), keep);
        }
    }

    /// A worker has one more server.
    fn count_server(&mut self, key: &Arc<PoolKey>, worker: WorkerId) {
        let pool = self.pool(key, worker);
        pool.total += 1;
        pool.held[usize::from(worker.0)] += 1;
        let names = self.names(key).into_iter().flatten();
        self.servers.add(names, 1);
    }

    fn give_back(&mut self, key: &Arc<PoolKey>, worker: WorkerId) {
        let pool = self.pool(key, worker);
        pool.total -= 1;
        pool.held[usize::from(worker.0)] -= 1;
        let names = self.names(key).into_iter().flatten();
        self.servers.take(names, 1);
    }

    /// Forgets a pool of which no worker has or wants a server: pools must not pile up.
    fn forget(&mut self, key: &PoolKey) {
        let unused = |pool: &Pool| {
            pool.total == 0
                && pool.held.iter().all(|held| *held == 0)
                && pool.hungry.iter().all(Option::is_none)
                && pool.pins.is_empty()
        };
        if self.pools.get(key).is_some_and(unused) {
            self.pools.remove(key);
        }
    }

    /// Tells the pool's holders of servers that a worker is hungry. False if there are none.
    fn tell_holders(
        &mut self,
        key: &Arc<PoolKey>,
        worker: WorkerId,
        hunger: Hunger,
        idle_only: bool,
        post: Post<'_>,
    ) -> bool {
        let age = self.age(hunger.since);
        let pool = self.pool(key, worker);
        if let Some(hunger) = &mut pool.hungry[usize::from(worker.0)] {
            hunger.told = true;
        }
        let mut told = false;
        for (holder, held) in pool.held.iter().enumerate() {
            let holder = WorkerId(holder as u16);
            if *held > 0 && holder != worker {
                told = true;
                post(
                    holder,
                    Mail::Brokered(FromBroker::Hungry {
                        worker,
                        pool: key.clone(),
                        age,
                        unwelcomed: hunger.unwelcomed,
                        idle_only,
                    }),
                );
            }
        }
        told
    }

    /// Asks one of the workers with servers under this bound to close one. False if there is none
    /// that has not been asked yet.
    fn evict(&mut self, key: &Arc<PoolKey>, from: Evict, age: u64, post: Post<'_>) -> bool {
        let mut asked = Vec::new();
        if let Some(pool) = self.pools.get(key).filter(|pool| !pool.evicting.is_empty()) {
            if self.age(pool.evicting_since) < ANSWERS_NS {
                return true;
            }
            asked.clone_from(&pool.evicting);
        }
        let mut holders = Vec::new();
        for (other, pool) in &self.pools {
            if from.concerns(key, other, pool.bounds.host.as_ref()) {
                let held = pool.held.iter().enumerate().filter(|(_, held)| **held > 0);
                holders.extend(held.map(|(worker, _)| worker));
            }
        }
        holders.sort_unstable();
        holders.dedup();
        holders.retain(|holder| !asked.contains(&WorkerId(*holder as u16)));
        if holders.is_empty() {
            return false;
        }
        // The pseudo-random order reaches every worker, whichever pools ask.
        self.evict_turn = self.evict_turn.wrapping_add(0x9e37_79b9);
        let turn = (self.evict_turn >> 16) as usize;
        let holder = WorkerId(holders[turn % holders.len()] as u16);
        if let Some(pool) = self.pools.get_mut(key) {
            pool.evicting.push(holder);
            pool.evicting_since = self.now;
            pool.evicted_from = Some(from.clone());
        }
        post(
            holder,
            Mail::Brokered(FromBroker::Evict {
                pool: key.clone(),
                from,
                age,
            }),
        );
        true
    }

    fn admit(&mut self, login: &LoginKey, bounds: ClientBounds) -> Result<(), &'static str> {
        let reached = |limit: u32, count: u32| limit > 0 && count >= limit;
        if reached(bounds.total, self.clients) {
            return Err("no more connections allowed (max_client_conn)");
        }
        let clients = |name| self.logins.under(&name);
        if reached(
            bounds.database,
            clients(BoundName::Database(login.database.clone())),
        ) {
            return Err("client connections exceeded (max_db_client_connections)");
        }
        if reached(bounds.user, clients(BoundName::User(login.user.clone()))) {
            return Err("client connections exceeded (max_user_client_connections)");
        }
        self.count_client(login);
        Ok(())
    }

    /// Counts an admitted client.
    fn count_client(&mut self, login: &LoginKey) {
        // max_client_conn does not count consoles.
        self.clients += u32::from(!is_console(&login.database));
        self.logins.add(SharedBound::names_of_login(login), 1);
    }
}

#[cfg(test)]
#[path = "broker_tests.rs"]
mod tests;
