//! Tests of the Broker: mails in, answers out.

use std::borrow::Borrow;
use std::collections::VecDeque;

use super::*;
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::seeded;

fn key(database: &str, user: &str) -> Arc<PoolKey> {
    Arc::new(PoolKey::of_clients(LoginKey::new(database, user)))
}

fn need(worker: u16, pool: &Arc<PoolKey>, age: u64, bounds: impl Borrow<Bounds>) -> ToBroker {
    let (pool, bounds) = (pool.clone(), bounds.borrow().clone());
    ToBroker::Need {
        worker: WorkerId(worker),
        pool,
        age,
        waiting: 1,
        unwelcomed: false,
        replication: false,
        opens: true,
        bounds,
    }
}

fn sated(worker: u16, pool: &Arc<PoolKey>) -> ToBroker {
    ToBroker::Sated {
        worker: WorkerId(worker),
        pool: pool.clone(),
    }
}

const MILLI: u64 = 1_000_000;

fn tell(broker: &mut Broker, mail: ToBroker) -> Vec<String> {
    tell_at(broker, 0, mail)
}

/// Handles a mail at this time, in milliseconds.
fn tell_at(broker: &mut Broker, millis: u64, mail: ToBroker) -> Vec<String> {
    let now = Time((1_000_000 + millis) * MILLI);
    let mut said = Vec::new();
    broker.handle(now, mail, &mut |worker, mail| {
        let Mail::Brokered(mail) = mail else { panic!() };
        said.push(match mail {
            // `HeldBack` moves no server, and has a test of its own.
            FromBroker::HeldBack { .. } => return,
            FromBroker::Permit { pool, reserve, .. } => {
                format!("{}: permit {} {reserve}", worker.0, pool.login.database)
            }
            FromBroker::Hungry {
                worker: who, age, ..
            } => {
                format!("{}: {} hungry {age}", worker.0, who.0)
            }
            FromBroker::Give { to, .. } => format!("{}: give to {}", worker.0, to.0),
            FromBroker::Alone { pool } => format!("{}: alone {}", worker.0, pool.login.database),
            FromBroker::Evict { pool, from, .. } => {
                let from = match from {
                    Evict::Under(BoundName::Database(_)) => "Database".into(),
                    Evict::Under(BoundName::User(_)) => "User".into(),
                    Evict::Under(BoundName::Host(host)) => host.to_string(),
                    Evict::Same => "Same".into(),
                };
                format!("{}: evict {from} for {}", worker.0, pool.login.user)
            }
            FromBroker::Content { pool } => format!("{}: content {}", worker.0, pool.login.user),
            FromBroker::Silence { pool } => format!("{}: silence {}", worker.0, pool.login.user),
            FromBroker::Keep { keep, .. } => format!("{}: keep {keep}", worker.0),
            FromBroker::Admitted { answer, .. } => format!("{answer:?}"),
            FromBroker::Pinned { granted, .. } => format!("pinned {granted}"),
        });
    });
    said
}

#[test]
fn who_has_servers_to_spare_gives_one() {
    let mut broker = Broker::new(seeded(1));
    let pool = key("d", "u");
    let bounds = Bounds {
        size: 5,
        ..Bounds::default()
    };
    // A worker without servers asks the workers with servers first.
    for worker in [0, 1, 1, 1, 1, 1] {
        assert_eq!(tell(&mut broker, need(worker, &pool, 0, &bounds)).len(), 1);
    }
    let waits = |worker, clients| {
        let mut mail = need(worker, &pool, MILLI, &bounds);
        if let ToBroker::Need { waiting, .. } = &mut mail {
            *waiting = clients;
        }
        mail
    };
    // Ten clients wait for one server of worker 0, five for four servers of worker 1.
    let said = tell(&mut broker, waits(1, 5));
    assert_eq!(said, ["0: 1 hungry 1000000"], "the one has none to spare");
    let said = tell(&mut broker, waits(0, 10));
    assert_eq!(said, ["1: 0 hungry 1000000", "1: give to 0"]);
}

#[test]
fn nothing_is_given_out_before_all_that_came_is_counted() {
    let mut broker = Broker::new(seeded(1));
    let pool = key("d", "u");
    let bounds = Bounds {
        size: 2,
        ..Bounds::default()
    };
    let worker = WorkerId(1);
    let entered = ToBroker::ServerEntered {
        bounds: bounds.clone(),
        worker,
        pool: pool.clone(),
    };
    let freed = ToBroker::Freed {
        worker,
        pool: pool.clone(),
    };
    assert!(tell(&mut broker, ToBroker::Arrivals { workers: 2 }).is_empty());
    assert!(tell(&mut broker, ToBroker::AllArrived).is_empty());
    assert!(tell(&mut broker, need(0, &pool, 0, &bounds)).is_empty());
    assert!(tell(&mut broker, need(2, &pool, 0, &bounds)).is_empty());
    assert!(tell(&mut broker, entered).is_empty());
    let said = tell(&mut broker, ToBroker::AllArrived);
    assert_eq!(said, ["1: 0 hungry 0", "1: 2 hungry 0"]);
    assert_eq!(
        tell(&mut broker, need(0, &pool, 0, &bounds)),
        ["0: permit d false"]
    );
    // The pool is full.
    assert_eq!(tell(&mut broker, freed), ["2: permit d false"]);
}

#[test]
fn permits_up_to_the_size_then_reserve_then_hunger() {
    let mut broker = Broker::new(seeded(1));
    let pool = key("d", "u");
    let bounds = Bounds {
        size: 1,
        reserve: 1,
        reserve_after: 5,
        ..Bounds::default()
    };
    assert_eq!(
        tell(&mut broker, need(0, &pool, 0, &bounds)),
        ["0: permit d false"]
    );
    assert_eq!(
        tell(&mut broker, need(1, &pool, 4, &bounds)),
        ["0: 1 hungry 4"]
    );
    assert_eq!(
        tell(&mut broker, need(1, &pool, 5, &bounds)),
        ["1: permit d true"]
    );
    assert_eq!(
        tell(&mut broker, need(1, &pool, 6, &bounds)),
        ["0: 1 hungry 6"]
    );
    let freed = ToBroker::Freed {
        worker: WorkerId(0),
        pool,
    };
    assert_eq!(tell(&mut broker, freed), ["1: permit d true"]);
}

#[test]
fn lower_bounds_take_servers_from_who_has_most() {
    let mut broker = Broker::new(seeded(1));
    let pool = key("d", "u");
    let bounds = |size, reserve| Bounds {
        size,
        reserve,
        ..Bounds::default()
    };
    for (worker, age) in [(0, 0), (0, 0), (0, 0), (1, 0), (1, 1)] {
        tell(&mut broker, need(worker, &pool, age, bounds(4, 0)));
    }
    let new = |bounds| ToBroker::Bounds {
        worker: WorkerId(0),
        pool: pool.clone(),
        bounds,
    };
    // Worker 0 has three servers, worker 1 has one.
    assert!(tell(&mut broker, new(bounds(2, 2))).is_empty());
    let said = tell(&mut broker, new(bounds(1, 1)));
    assert_eq!(said, ["0: keep 1", "1: keep 1"]);
    let freed = || ToBroker::Freed {
        worker: WorkerId(0),
        pool: pool.clone(),
    };
    let said = tell(&mut broker, freed());
    assert_eq!(said[..2], ["0: keep 1", "1: keep 1"]);
    let said = tell(&mut broker, freed());
    let all = u32::MAX;
    assert_eq!(
        said[..2],
        [format!("0: keep {all}"), format!("1: keep {all}")]
    );
    let said = tell(&mut broker, freed());
    assert!(!said.iter().any(|said| said.contains("keep")), "{said:?}");
    assert!(tell(&mut broker, new(bounds(0, 0))).is_empty());
}

#[test]
fn who_has_none_borrows_first() {
    let mut broker = Broker::new(seeded(1));
    let pool = key("d", "u");
    let bounds = Bounds {
        size: 9,
        ..Bounds::default()
    };
    assert_eq!(
        tell(&mut broker, need(0, &pool, 0, &bounds)),
        ["0: permit d false"]
    );
    assert_eq!(
        tell(&mut broker, need(1, &pool, 0, &bounds)),
        ["0: 1 hungry 0"]
    );
    assert_eq!(
        tell(&mut broker, need(1, &pool, 9, &bounds)),
        ["1: permit d false"]
    );
    // The worker has a server, so it gets a permit at once.
    assert_eq!(
        tell(&mut broker, need(1, &pool, 0, &bounds)),
        ["1: permit d false"]
    );
}

#[test]
fn bounds_over_pools_evict() {
    let mut broker = Broker::new(seeded(1));
    let (a, b) = (key("d", "a"), key("d", "b"));
    let bounds = Bounds {
        size: 9,
        shared: [1, 0, 0],
        ..Bounds::default()
    };
    assert_eq!(
        tell(&mut broker, need(0, &a, 0, &bounds)),
        ["0: permit d false"]
    );
    assert_eq!(
        tell(&mut broker, need(0, &b, 0, &bounds)),
        ["0: evict Database for b"]
    );
    // The server is not closed yet, and one is enough.
    assert!(tell(&mut broker, need(0, &b, 1, &bounds)).is_empty());
    assert!(tell(&mut broker, need(1, &b, 1, &bounds)).is_empty());
    let nothing = |worker| ToBroker::NothingToEvict {
        worker: WorkerId(worker),
        pool: b.clone(),
    };
    assert!(tell(&mut broker, nothing(0)).is_empty());
    assert_eq!(
        tell(&mut broker, need(0, &b, 2, &bounds)),
        ["0: evict Database for b"]
    );
    let freed = ToBroker::Freed {
        worker: WorkerId(0),
        pool: a,
    };
    assert_eq!(tell(&mut broker, freed), ["0: permit d false"]);
    // Once no client waits, no worker closes a server for the pool.
    let sated = ToBroker::Sated {
        worker: WorkerId(1),
        pool: b.clone(),
    };
    assert_eq!(tell(&mut broker, sated), ["0: content b"]);
    // A late answer makes no difference.
    assert_eq!(tell(&mut broker, nothing(1)), ["1: content b"]);
}

#[test]
fn if_the_asked_worker_hangs_another_one_closes_a_server() {
    let mut broker = Broker::new(seeded(1));
    let (idle, wanted) = (key("d", "p"), key("d", "q"));
    let bounds = Bounds {
        size: 9,
        shared: [2, 0, 0],
        ..Bounds::default()
    };
    tell(&mut broker, need(1, &idle, 0, &bounds));
    tell(&mut broker, need(2, &idle, 0, &bounds));
    tell(&mut broker, need(2, &idle, 9, &bounds));
    tell(&mut broker, sated(2, &idle));
    assert_eq!(broker.permits(), 2);
    let first = tell_at(&mut broker, 10, need(0, &wanted, 0, &bounds));
    // The asked worker may be about to answer.
    assert!(tell_at(&mut broker, 500, need(0, &wanted, 0, &bounds)).is_empty());
    let second = tell_at(&mut broker, 510, need(0, &wanted, 0, &bounds));
    let mut both = [first, second].concat();
    both.sort();
    let all = ["1: evict Database for q", "2: evict Database for q"];
    assert_eq!(both, all);
    // No worker is asked twice: it would close two servers once it lives.
    assert!(tell_at(&mut broker, 1_100, need(0, &wanted, 0, &bounds)).is_empty());
    let freed = |worker| ToBroker::Freed {
        worker: WorkerId(worker),
        pool: idle.clone(),
    };
    let said = tell_at(&mut broker, 1_110, freed(2));
    assert_eq!(said, ["0: permit d false"]);
    assert!(tell_at(&mut broker, 1_700, need(0, &wanted, 0, &bounds)).is_empty());
    let said = tell_at(&mut broker, 1_710, freed(1));
    assert_eq!(said, ["0: permit d false"]);
}

/// A pool under two bounds of one server each. Another pool of its database has one server, on
/// worker 1. Another pool of its user has the other, on worker 2. Clients of all three wait.
struct Both {
    broker: Broker,
    of_database: Arc<PoolKey>,
    of_user: Arc<PoolKey>,
    both: Arc<PoolKey>,
}

impl Both {
    const BOUNDS: Bounds = Bounds {
        size: 9,
        reserve: 0,
        reserve_after: 0,
        shared: [1, 1, 0],
        host: None,
        host_logins: 0,
        pins: 0,
    };

    fn new() -> Both {
        let mut new = Both {
            broker: Broker::new(seeded(1)),
            of_database: key("d", "b"),
            of_user: key("e", "a"),
            both: key("d", "a"),
        };
        for (worker, pool) in [(1, new.of_database.clone()), (2, new.of_user.clone())] {
            assert_eq!(new.need(0, worker, &pool, 0).len(), 1);
        }
        new
    }

    fn need(&mut self, now: u64, worker: u16, pool: &Arc<PoolKey>, age: u64) -> Vec<String> {
        let mail = need(worker, pool, age * MILLI, Self::BOUNDS);
        tell_at(&mut self.broker, now, mail)
    }

    /// The pool under both bounds reports how long it has waited.
    fn wait(&mut self, now: u64) -> Vec<String> {
        let both = self.both.clone();
        self.need(now, 0, &both, now)
    }

    /// A worker has no idle server to close.
    fn nothing(&mut self, now: u64, worker: u16) {
        let nothing = ToBroker::NothingToEvict {
            worker: WorkerId(worker),
            pool: self.both.clone(),
        };
        assert!(tell_at(&mut self.broker, now, nothing).is_empty());
    }

    fn freed(&mut self, now: u64, worker: u16, pool: &Arc<PoolKey>) -> Vec<String> {
        let freed = ToBroker::Freed {
            worker: WorkerId(worker),
            pool: pool.clone(),
        };
        tell_at(&mut self.broker, now, freed)
    }

    /// A server under the database's bound is closed while another client has only begun to wait.
    /// The place is kept, and only the user's bound still lacks room.
    fn keeps_the_first(&mut self, now: u64) {
        assert!(self.wait(now - 1)[0].contains("evict"));
        self.nothing(now - 1, 1);
        let of_database = self.of_database.clone();
        self.need(now - 1, 1, &of_database, 0);
        let said = self.freed(now, 1, &of_database);
        assert_eq!(said, ["1: content a", "2: evict User for a"]);
        self.nothing(now, 2);
    }
}

#[test]
fn two_bounds_are_made_room_under_one_after_the_other() {
    let mut world = Both::new();
    let (of_database, of_user) = (world.of_database.clone(), world.of_user.clone());
    assert_eq!(world.wait(1), ["1: evict Database for a"]);
    world.nothing(2, 1);
    assert_eq!(world.wait(60), ["2: evict User for a"]);
    world.nothing(61, 2);
    // The client of the other pool has not waited as long, so it does not get the place.
    world.need(61, 1, &of_database, 1);
    assert_eq!(
        world.freed(62, 1, &of_database),
        ["1: content a", "2: content a", "2: evict User for a"]
    );
    world.nothing(63, 2);
    // Nor does a client that comes now.
    world.need(63, 1, &of_database, 3);
    // With the second place, the pool uses both.
    world.need(63, 2, &of_user, 1);
    let said = world.freed(64, 2, &of_user);
    assert_eq!(said, ["0: permit d false", "2: content a"]);
    assert_eq!(world.broker.permits(), 1);
    let both = world.both.clone();
    // The place in the database goes to one pool, the place of the user to the other.
    let said = world.freed(70, 0, &both);
    assert_eq!(said, ["1: permit d false", "2: permit e false"]);
}

#[test]
fn who_has_not_waited_clearly_longer_has_no_place_kept() {
    let mut world = Both::new();
    let of_database = world.of_database.clone();
    world.wait(1);
    world.nothing(1, 1);
    world.need(51, 1, &of_database, 1);
    assert_eq!(world.freed(60, 1, &of_database), ["1: permit d false"]);
}

#[test]
fn a_kept_place_goes_to_others_once_nobody_waits() {
    let mut world = Both::new();
    world.keeps_the_first(100);
    let sated = ToBroker::Sated {
        worker: WorkerId(0),
        pool: world.both.clone(),
    };
    let said = tell_at(&mut world.broker, 101, sated);
    assert_eq!(said, ["2: content a", "1: permit d false"]);
}

#[test]
fn a_kept_place_goes_to_others_once_logins_fail() {
    let mut world = Both::new();
    world.keeps_the_first(100);
    let mut mail = need(0, &world.both, 101 * MILLI, Both::BOUNDS);
    if let ToBroker::Need { opens, .. } = &mut mail {
        *opens = false;
    }
    let said = tell_at(&mut world.broker, 101, mail);
    assert_eq!(said, ["2: content a", "1: permit d false", "0: alone d"]);
}

#[test]
fn a_place_is_kept_for_half_as_long_as_was_waited() {
    let mut world = Both::new();
    let (of_database, of_user) = (world.of_database.clone(), world.of_user.clone());
    world.keeps_the_first(2000);
    // Any report of hunger ends an expired place.
    assert_eq!(world.need(2999, 1, &of_database, 1000).len(), 0);
    let said = world.need(3000, 1, &of_database, 1001);
    assert_eq!(said, ["1: permit d false"]);
    // No place is kept again for three seconds, and no worker closes a server for one.
    assert_eq!(world.wait(3001), ["2: evict User for a"]);
    world.nothing(3001, 2);
    world.need(3002, 1, &of_database, 0);
    assert_eq!(world.freed(3100, 1, &of_database), ["1: permit d false"]);
    // The place under the other limit is kept: one server is enough.
    assert_eq!(world.wait(3101), ["2: evict User for a"]);
    world.nothing(3101, 2);
    let said = world.freed(3102, 2, &of_user);
    assert_eq!(said, ["2: content a", "1: evict Database for a"]);
    assert_eq!(world.freed(3103, 1, &of_database)[0], "0: permit d false");
}

#[test]
fn a_place_given_up_is_kept_again_later_and_longer() {
    let mut world = Both::new();
    let of_database = world.of_database.clone();
    world.keeps_the_first(2000);
    world.need(3000, 1, &of_database, 1000);
    world.wait(5999);
    world.nothing(5999, 2);
    assert_eq!(world.wait(6000), ["1: evict Database for a"]);
    world.nothing(6000, 1);
    world.need(6000, 1, &of_database, 0);
    assert!(
        world
            .freed(6001, 1, &of_database)
            .contains(&"2: evict User for a".into())
    );
    world.nothing(6001, 2);
    assert!(world.need(9000, 1, &of_database, 3000).is_empty());
    assert_eq!(
        world.need(9002, 1, &of_database, 3002),
        ["1: permit d false"]
    );
}

#[test]
fn a_replication_client_has_a_server_of_its_own_pool_closed_first() {
    let mut world = Both::new();
    let (of_database, of_user) = (world.of_database.clone(), world.of_user.clone());
    world.freed(1, 1, &of_database);
    world.freed(1, 2, &of_user);
    let both = world.both.clone();
    assert_eq!(world.need(2, 1, &both, 0), ["1: permit d false"]);
    let mut mail = need(0, &both, 0, Both::BOUNDS);
    if let ToBroker::Need { replication, .. } = &mut mail {
        *replication = true;
    }
    let said = tell_at(&mut world.broker, 3, mail);
    assert_eq!(said, ["1: evict Same for a"]);
    assert_eq!(world.freed(4, 1, &both), ["0: permit d false"]);
}

/// Pools of three databases and three users always want more than they have. In any order of
/// returned permits, all limits hold, no client waits for ever, and no place is left over.
#[test]
fn nobody_waits_for_ever_under_two_bounds() {
    for seed in 1..=40 {
        crowd(seed);
    }
}

fn crowd(seed: u64) {
    let mut dice = seed << 32;
    let mut chance = move |sides: u64| {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    let bounds = Bounds {
        size: 3,
        shared: [(); 3].map(|()| 1 + chance(3) as u32),
        ..Bounds::default()
    };
    // With a third bound on some of the worlds: each host has the pools of one user or more.
    let hosts = [[1, 1, 1], [0, 1, 1], [0, 1, 2]][chance(3) as usize];
    let has_hosts = seed % 4 < 2;
    let host_of = |at: usize| {
        let name = crate::config::Host::Name(format!("h{}", hosts[(at + at / 3) % 3]));
        Arc::new(HostPort {
            host: name,
            port: 1,
        })
    };
    let bounds_of = |at: usize| Bounds {
        host: has_hosts.then(|| host_of(at)),
        ..bounds.clone()
    };
    let long = [5, 100, 2_000][chance(3) as usize];
    let names = (0..9).map(|at| (["d", "e", "f"][at / 3], ["a", "b", "c"][at % 3]));
    let pools: Vec<_> = names.map(|(database, user)| key(database, user)).collect();
    let mut broker = Broker::new(seeded(seed));
    // By pool: since when it waits, until when servers are busy, and for which pools some close.
    let mut since = [Some(0); 9];
    let mut busy: [Vec<u64>; 9] = Default::default();
    let mut starved: Vec<(usize, Evict)> = Vec::new();
    for now in 0..50_000u64 {
        let mut mail: VecDeque<ToBroker> = VecDeque::new();
        for at in 0..9 {
            let waited = since[at].map(|since| now - since);
            if let Some(age) = waited {
                assert!(
                    age < 8 * long + 500,
                    "{:?} waits for ever: {seed}",
                    pools[at]
                );
                if now % 10 == at as u64 {
                    mail.push_back(need(0, &pools[at], age * MILLI, bounds_of(at)));
                }
            } else if chance(20) == 0 {
                since[at] = Some(now);
            }
            // The oldest client leaves, and another one goes on waiting.
            if seed % 2 == 1 && chance(1000) == 0 {
                since[at] = since[at].map(|since| since + chance(now - since + 1));
            }
            let done = busy[at].iter().position(|until| *until <= now);
            if let Some(done) = done {
                let clearly = |(who, from): &(usize, Evict)| {
                    let here = waited.unwrap_or(0);
                    let longer = |since| now - since > here + (here / 2).max(50);
                    from.concerns(&pools[*who], &pools[at], bounds_of(at).host.as_ref())
                        && since[*who].is_some_and(longer)
                };
                if let Some(index) = starved.iter().position(clearly) {
                    starved.swap_remove(index);
                    busy[at].swap_remove(done);
                    mail.push_back(ToBroker::Freed {
                        worker: WorkerId(0),
                        pool: pools[at].clone(),
                    });
                } else {
                    busy[at][done] = now + 1 + chance(long);
                    since[at] = None;
                    let worker = WorkerId(0);
                    let pool = pools[at].clone();
                    mail.push_back(ToBroker::Sated { worker, pool });
                }
            }
        }
        while let Some(next) = mail.pop_front() {
            let at = |key: &Arc<PoolKey>| pools.iter().position(|pool| pool == key).unwrap();
            broker.handle(
                Time((1_000_000 + now) * MILLI),
                next,
                &mut |_, said| match said {
                    Mail::Brokered(FromBroker::Permit { pool, .. }) => {
                        busy[at(&pool)].push(now + 1 + chance(long));
                        since[at(&pool)] = None;
                        // The worker may have reported its need again meanwhile.
                        let worker = WorkerId(0);
                        mail.push_back(ToBroker::Sated { worker, pool });
                    }
                    Mail::Brokered(FromBroker::Evict { pool, from, .. }) => {
                        let wish = (at(&pool), from);
                        starved.retain(|known| *known != wish);
                        starved.push(wish);
                        let worker = WorkerId(0);
                        mail.push_back(ToBroker::NothingToEvict { worker, pool });
                    }
                    Mail::Brokered(FromBroker::Content { pool }) => {
                        starved.retain(|(who, _)| *who != at(&pool));
                    }
                    _ => {}
                },
            );
        }
        let [of_database, of_user, of_host] = bounds.shared;
        for host in (0..9).filter(|_| has_hosts).map(host_of) {
            let there = (0..9).filter(|at| host_of(*at) == host);
            let used: usize = there.map(|at| busy[at].len()).sum();
            assert!(used <= of_host as usize);
        }
        for at in 0..3 {
            let used: usize = busy[3 * at..3 * at + 3].iter().map(Vec::len).sum();
            assert!(used <= of_database as usize);
            let used: usize = busy.iter().skip(at).step_by(3).map(Vec::len).sum();
            assert!(used <= of_user as usize);
        }
    }
    assert!(broker.kept.iter().all(|kept| {
        let at = pools.iter().position(|pool| *pool == kept.pool).unwrap();
        since[at].is_some()
    }));
}

#[test]
fn clients_up_to_each_bound() {
    let mut broker = Broker::new(seeded(1));
    let bounds = ClientBounds {
        total: 3,
        database: 2,
        user: 1,
    };
    let mut admit = |database: &str, user: &str| {
        let client = crate::event::ClientId {
            index: 0,
            generation: 0,
        };
        let login = LoginKey::new(database, user);
        let worker = WorkerId(0);
        tell(
            &mut broker,
            ToBroker::Admit {
                worker,
                client,
                login,
                bounds,
            },
        )
        .remove(0)
    };
    assert_eq!(admit("d", "a"), "Ok(())");
    assert!(admit("d", "a").contains("max_user_client"));
    assert_eq!(admit("d", "b"), "Ok(())");
    assert!(admit("d", "c").contains("max_db_client"));
    assert_eq!(admit("e", "c"), "Ok(())");
    assert!(admit("e", "d").contains("max_client_conn"));
}

#[test]
fn a_hungry_worker_learns_once_which_bound_it_waits_for() {
    let mut broker = Broker::new(seeded(1));
    let pool = key("d", "u");
    let mut tell = |worker: u16, bounds: &Bounds| {
        let mut said = Vec::new();
        broker.handle(
            Time(MILLI),
            need(worker, &pool, 0, bounds),
            &mut |to, mail| {
                if let Mail::Brokered(FromBroker::HeldBack { by, .. }) = mail {
                    said.push((to.0, by));
                }
            },
        );
        said
    };
    let bounds = Bounds {
        size: 1,
        ..Bounds::default()
    };
    assert!(tell(0, &bounds).is_empty(), "a permit");
    assert_eq!(tell(1, &bounds), [(1, HeldBy::Pool)]);
    assert!(tell(1, &bounds).is_empty());
    // After a reload the database's limit holds the pool back.
    let bounds = Bounds {
        size: 2,
        shared: [1, 0, 0],
        ..Bounds::default()
    };
    assert_eq!(tell(1, &bounds), [(1, HeldBy::DATABASE)]);
    let shared = [1, 1, 0];
    let bounds = Bounds { shared, ..bounds };
    assert_eq!(tell(1, &bounds), [(1, HeldBy::DATABASE_AND_USER)]);
}

#[test]
fn connections_that_listen_take_half_of_a_bound_at_most() {
    let mut broker = Broker::new(seeded(1));
    let listens = |user: &str| {
        Arc::new(PoolKey {
            login: LoginKey::new("d", user),
            target: TargetName::Entry,
            purpose: Purpose::Listening,
        })
    };
    let bounds = |database| Bounds {
        size: 1,
        shared: [database, 0, 0],
        ..Bounds::default()
    };
    let (one, two) = (listens("u"), listens("v"));
    // Under a limit of one, a listener would leave no room for other servers.
    assert!(tell(&mut broker, need(0, &one, 0, bounds(1))).is_empty());
    assert_eq!(
        tell(&mut broker, need(0, &one, 0, bounds(3))),
        ["0: permit d false"]
    );
    assert!(tell(&mut broker, need(1, &two, 0, bounds(3))).is_empty());
    assert_eq!(
        tell(&mut broker, need(1, &two, 0, bounds(4))),
        ["1: permit d false"]
    );
    // A listening connection that replaces another one counts, too.
    assert!(
        tell(
            &mut broker,
            need(
                1,
                &two,
                0,
                Bounds {
                    size: 2,
                    ..bounds(5)
                }
            )
        )
        .is_empty()
    );
    broker.handle(Time(0), sated(1, &two), &mut |_, _| {});
    // Listening connections take all of a lowered limit: one of them is closed.
    let works = key("d", "u");
    let said = tell(&mut broker, need(0, &works, 0, bounds(2)));
    assert!(said.iter().any(|line| line.contains("silence")), "{said:?}");
    let said = tell(&mut broker, need(0, &works, 0, bounds(3)));
    assert!(
        !said.iter().any(|line| line.contains("silence")),
        "{said:?}"
    );
}

#[test]
fn all_servers_but_one_may_be_kept_unless_clients_wait_for_servers() {
    let mut broker = Broker::new(seeded(1));
    let pool = key("d", "u");
    let bounds = Bounds {
        size: 4,
        pins: 2,
        ..Bounds::default()
    };
    let pin = |broker: &mut Broker, ticket, wish| {
        let pin = ToBroker::Pin {
            worker: WorkerId(0),
            client: crate::event::ClientId {
                index: 1,
                generation: 1,
            },
            ticket,
            pool: pool.clone(),
            wish,
            bounds: bounds.clone(),
        };
        tell(broker, pin)
    };
    for _ in 0..4 {
        tell(&mut broker, need(0, &pool, 0, &bounds));
    }
    for ticket in 1..=2 {
        let said = pin(&mut broker, ticket, crate::mail::PinWish::Waits);
        assert_eq!(said, ["pinned true"]);
    }
    // A client waits for a server.
    tell(&mut broker, need(0, &pool, 0, &bounds));
    let said = pin(&mut broker, 3, crate::mail::PinWish::Knows);
    assert_eq!(said, ["pinned false"]);
    assert!(pin(&mut broker, 4, crate::mail::PinWish::Waits).is_empty());
    tell(&mut broker, sated(0, &pool));
    let works = || ToBroker::Pins {
        worker: WorkerId(0),
        pool: pool.clone(),
        works: false,
    };
    assert_eq!(tell(&mut broker, works()), ["pinned true"]);
    let said = pin(&mut broker, 5, crate::mail::PinWish::Knows);
    assert_eq!(said, ["pinned false"], "one server stays free");
    let said = pin(&mut broker, 6, crate::mail::PinWish::Waits);
    assert!(said.is_empty());
    assert!(tell_at(&mut broker, 1000, works()).is_empty());
    assert_eq!(tell_at(&mut broker, 11_000, works()), ["pinned false"]);
}

#[test]
fn the_greatest_number_of_kept_servers_follows_the_tightest_limit() {
    let most = |size, shared, pins| {
        let bounds = Bounds {
            size,
            shared,
            pins,
            ..Bounds::default()
        };
        bounds.pins_at_rest()
    };
    assert_eq!(most(20, [0, 0, 0], 10), 19);
    assert_eq!(most(20, [5, 0, 0], 2), 4);
    assert_eq!(most(20, [9, 6, 0], 3), 5);
    assert_eq!((most(1, [0, 0, 0], 1), most(3, [0, 0, 0], 3)), (1, 3));
    assert_eq!(most(20, [9, 6, 4], 3), 3);
    assert_eq!(most(0, [0, 0, 0], 3), 0);
}

fn at_host(name: &str, most: u32, host_logins: u32) -> Bounds {
    let host = crate::config::Host::Name(name.into());
    Bounds {
        shared: [0, 0, most],
        host: Some(Arc::new(HostPort { host, port: 1 })),
        host_logins,
        ..Bounds::default()
    }
}

#[test]
fn all_pools_at_a_host_share_its_limit() {
    let mut broker = Broker::new(seeded(1));
    let [one, two] = [key("d", "a"), key("e", "b")];
    let need = |pool, bounds| need(0, pool, 0, bounds);
    assert_eq!(
        tell(&mut broker, need(&one, at_host("h", 1, 0))),
        ["0: permit d false"]
    );
    assert_eq!(
        tell(&mut broker, need(&two, at_host("h", 1, 0))),
        ["0: evict h:1 for b"]
    );
    broker.check();
    // A reload gives the first database another host: its server does not count here any more.
    let bounds = ToBroker::Bounds {
        worker: WorkerId(0),
        pool: one.clone(),
        bounds: at_host("g", 1, 0),
    };
    assert!(tell(&mut broker, bounds).is_empty());
    assert_eq!(
        tell(&mut broker, need(&two, at_host("h", 1, 0))),
        ["0: permit e false"]
    );
    broker.check();
}

#[test]
fn logins_at_a_host_take_turns() {
    let mut broker = Broker::new(seeded(1));
    let pools: Vec<_> = (0..5).map(|at| key(&format!("d{at}"), "u")).collect();
    let bounds = at_host("h", 0, 2);
    for (at, pool) in pools.iter().enumerate() {
        let said = tell(&mut broker, need(0, pool, 5 - at as u64, &bounds));
        assert_eq!(said.len(), usize::from(at < 2), "two at a time: {said:?}");
    }
    let host = || bounds.host.clone().unwrap();
    let logged_in = |at: usize| ToBroker::LoggedIn {
        pool: pools[at].clone(),
        host: host(),
    };
    assert_eq!(
        tell(&mut broker, logged_in(0)),
        ["0: permit d2 false"],
        "who waits longest"
    );
    // The login fails: both its place and its permit come back.
    assert_eq!(tell(&mut broker, logged_in(1)), ["0: permit d3 false"]);
    let freed = ToBroker::Freed {
        worker: WorkerId(0),
        pool: pools[1].clone(),
    };
    assert!(tell(&mut broker, freed).is_empty());
    assert_eq!(tell(&mut broker, logged_in(2)), ["0: permit d4 false"]);
    broker.check();
}
