//! The Broker, asked and told one thing after the other.

use super::*;
use crate::seeded;

fn key(database: &str, user: &str) -> Arc<PoolKey> {
    Arc::new(PoolKey {
        database: database.into(),
        user: user.into(),
    })
}

fn need(worker: u16, pool: &Arc<PoolKey>, age: u64, bounds: Bounds) -> ToBroker {
    let pool = pool.clone();
    ToBroker::Need {
        worker: WorkerId(worker),
        pool,
        age,
        unwelcomed: false,
        replication: false,
        opens: true,
        bounds,
    }
}

fn tell(broker: &mut Broker, mail: ToBroker) -> Vec<String> {
    let mut said = Vec::new();
    broker.handle(mail, &mut |worker, mail| {
        let Mail::Brokered(mail) = mail else { panic!() };
        said.push(match mail {
            FromBroker::Permit { pool, reserve, .. } => {
                format!("{}: permit {} {reserve}", worker.0, pool.database)
            }
            FromBroker::Hungry {
                worker: who, age, ..
            } => {
                format!("{}: {} hungry {age}", worker.0, who.0)
            }
            FromBroker::Alone { pool } => format!("{}: alone {}", worker.0, pool.database),
            FromBroker::Evict {
                pool,
                idle_only: false,
                ..
            } => format!("{}: evict for {}", worker.0, pool.user),
            FromBroker::Evict { from, .. } => format!("{}: evict idle {from:?}", worker.0),
            FromBroker::Content { pool } => format!("{}: content {}", worker.0, pool.user),
            FromBroker::Keep { keep, .. } => format!("{}: keep {keep}", worker.0),
            FromBroker::Admitted { answer, .. } => format!("{answer:?}"),
        });
    });
    said
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
        worker,
        pool: pool.clone(),
    };
    let freed = ToBroker::Freed {
        worker,
        pool: pool.clone(),
    };
    assert!(tell(&mut broker, ToBroker::Arrivals { workers: 2 }).is_empty());
    assert!(tell(&mut broker, ToBroker::AllArrived).is_empty());
    assert!(tell(&mut broker, need(0, &pool, 0, bounds)).is_empty());
    assert!(tell(&mut broker, need(2, &pool, 0, bounds)).is_empty());
    assert!(tell(&mut broker, entered).is_empty());
    let said = tell(&mut broker, ToBroker::AllArrived);
    assert_eq!(said, ["1: 0 hungry 0", "1: 2 hungry 0"]);
    assert_eq!(
        tell(&mut broker, need(0, &pool, 0, bounds)),
        ["0: permit d false"]
    );
    // The pool is full now.
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
        tell(&mut broker, need(0, &pool, 0, bounds)),
        ["0: permit d false"]
    );
    assert_eq!(
        tell(&mut broker, need(1, &pool, 4, bounds)),
        ["0: 1 hungry 4"]
    );
    assert_eq!(
        tell(&mut broker, need(1, &pool, 5, bounds)),
        ["1: permit d true"]
    );
    assert_eq!(
        tell(&mut broker, need(1, &pool, 6, bounds)),
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
    // Three on worker 0 and one on worker 1.
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
        tell(&mut broker, need(0, &pool, 0, bounds)),
        ["0: permit d false"]
    );
    assert_eq!(
        tell(&mut broker, need(1, &pool, 0, bounds)),
        ["0: 1 hungry 0"]
    );
    assert_eq!(
        tell(&mut broker, need(1, &pool, 9, bounds)),
        ["1: permit d false"]
    );
    // It has one: the next is its own at once.
    assert_eq!(
        tell(&mut broker, need(1, &pool, 0, bounds)),
        ["1: permit d false"]
    );
}

#[test]
fn bounds_over_pools_evict() {
    let mut broker = Broker::new(seeded(1));
    let (a, b) = (key("d", "a"), key("d", "b"));
    let bounds = Bounds {
        size: 9,
        database: 1,
        ..Bounds::default()
    };
    assert_eq!(
        tell(&mut broker, need(0, &a, 0, bounds)),
        ["0: permit d false"]
    );
    assert_eq!(
        tell(&mut broker, need(0, &b, 0, bounds)),
        ["0: evict for b"]
    );
    // That server is not gone yet: one is enough.
    assert!(tell(&mut broker, need(0, &b, 1, bounds)).is_empty());
    assert!(tell(&mut broker, need(1, &b, 1, bounds)).is_empty());
    let nothing = |worker| ToBroker::NothingToEvict {
        worker: WorkerId(worker),
        pool: b.clone(),
    };
    assert!(tell(&mut broker, nothing(0)).is_empty());
    assert_eq!(
        tell(&mut broker, need(0, &b, 2, bounds)),
        ["0: evict for b"]
    );
    let freed = ToBroker::Freed {
        worker: WorkerId(0),
        pool: a,
    };
    assert_eq!(tell(&mut broker, freed), ["0: permit d false"]);
    // Nobody closes a server for it once nobody waits.
    let sated = ToBroker::Sated {
        worker: WorkerId(1),
        pool: b.clone(),
    };
    assert_eq!(tell(&mut broker, sated), ["0: content b"]);
    // Nor who says so late.
    assert_eq!(tell(&mut broker, nothing(1)), ["1: content b"]);
}

#[test]
fn two_bounds_evict_idle_servers_only() {
    let mut broker = Broker::new(seeded(1));
    let bounds = Bounds {
        size: 9,
        database: 1,
        user: 1,
        ..Bounds::default()
    };
    let (of_database, of_user, both) = (key("d", "b"), key("e", "a"), key("d", "a"));
    for (worker, pool) in [(1, &of_database), (2, &of_user)] {
        assert_eq!(tell(&mut broker, need(worker, pool, 0, bounds)).len(), 1);
    }
    let mut evicted = Vec::new();
    for round in 0..3 {
        evicted.extend(tell(&mut broker, need(0, &both, round, bounds)));
        let nothing = ToBroker::NothingToEvict {
            worker: WorkerId(1),
            pool: both.clone(),
        };
        assert!(tell(&mut broker, nothing).is_empty());
    }
    assert_eq!(
        evicted,
        [
            "1: evict idle Database",
            "2: evict idle User",
            "1: evict idle Database"
        ]
    );
    // Once only one is in the way, it goes when it can.
    let freed = ToBroker::Freed {
        worker: WorkerId(2),
        pool: of_user,
    };
    assert!(tell(&mut broker, freed).is_empty());
    let last = tell(&mut broker, need(0, &both, 4, bounds));
    assert_eq!(last, ["1: evict for a"]);
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
        let login = key(database, user);
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
