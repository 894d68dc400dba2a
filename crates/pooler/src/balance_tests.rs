use super::*;
use crate::load::{PoolLoad, ThreadLoad};

const MILLI: u64 = 1_000_000;
/// How often workers report, in nanoseconds.
const STEP: u64 = 100 * MILLI;

fn key(name: &str) -> Arc<LoginKey> {
    LoginKey::new(name, "u")
}

/// A machine in steps of a tenth of a second. Its workers do all work that clients want, up to a
/// limit. It shows the decisions of the balancer, and measures no speed.
struct Machine {
    balancer: Balancer,
    now: Time,
    usable: u16,
    always: bool,
    /// Transactions a second that one worker can do.
    power: f64,
    /// The share of time that each worker waits for a core.
    delay: f64,
    /// The most transactions a second of all workers: the limit of PostgreSQL or the cores.
    most: f64,
    pools: Vec<Demand>,
    said: Vec<String>,
    /// Transactions a second in the last step.
    done: f64,
    /// This worker does not report.
    stuck: Option<usize>,
    /// The most clients that a worker hands over in a step.
    hands: u32,
    /// Clients to move: pool, from, to, how many, and whether idle clients move, too.
    sheds: Vec<(Arc<LoginKey>, usize, usize, u32, bool)>,
    /// The workers for new clients of each pool, and of pools without seats.
    seats: BTreeMap<Arc<LoginKey>, Arc<[WorkerId]>>,
    new_pools: WorkerId,
    /// Clients that have moved.
    moves: u32,
}

/// A pool of the machine, and its load.
struct Demand {
    key: Arc<LoginKey>,
    widest: u16,
    /// Active clients by worker, and idle clients by worker.
    clients: Vec<u32>,
    idle: Vec<u32>,
    /// Transactions a second that a client wants.
    wants: f64,
}

impl Machine {
    fn new(workers: u16) -> Machine {
        Machine {
            balancer: Balancer::new(workers),
            now: Time(1_000_000_000),
            usable: workers,
            always: false,
            power: 100_000.0,
            delay: 0.0,
            most: f64::MAX,
            pools: Vec::new(),
            said: Vec::new(),
            done: 0.0,
            stuck: None,
            hands: u32::MAX,
            sheds: Vec::new(),
            seats: BTreeMap::new(),
            new_pools: WorkerId(0),
            moves: 0,
        }
    }

    /// A pool with this many servers, and with all clients on worker 0.
    fn pool(mut self, name: &str, servers: u32, clients: u32, wants: f64) -> Machine {
        let workers = self.balancer.workers.len();
        let mut all = vec![0; workers];
        all[0] = clients;
        self.pools.push(Demand {
            key: key(name),
            widest: crate::spread::widest(servers, self.usable),
            clients: all,
            idle: vec![0; workers],
            wants,
        });
        self
    }

    fn step(&mut self) {
        self.now = Time(self.now.0 + STEP);
        let workers = self.balancer.workers.len();
        let wanted = |worker: usize| {
            let pools = self.pools.iter();
            pools
                .map(|p| f64::from(p.clients[worker]) * p.wants)
                .sum::<f64>()
        };
        let could: Vec<f64> = (0..workers).map(|w| wanted(w).min(self.power)).collect();
        let all: f64 = could.iter().sum();
        let scale = (self.most / all.max(1.0)).min(1.0);
        self.done = all * scale;
        let mut loads = Vec::new();
        for (worker, could) in could.iter().enumerate() {
            let part = could * scale / wanted(worker).max(1e-9);
            let pools: Vec<_> = { self.pools.iter() }
                .filter(|pool| pool.clients[worker] + pool.idle[worker] > 0)
                .map(|pool| PoolLoad {
                    login: pool.key.clone(),
                    clients: pool.clients[worker] + pool.idle[worker],
                    active: pool.clients[worker],
                    transactions: (f64::from(pool.clients[worker]) * pool.wants * part / 10.0)
                        as u64,
                    widest: pool.widest,
                })
                .collect();
            let cpu = (could / self.power * STEP as f64) as u64;
            let signals = ThreadLoad {
                window: STEP,
                working: cpu,
                cpu,
                delayed: (self.delay * STEP as f64) as u64,
            };
            let clients = pools.iter().map(|pool| pool.clients).sum();
            loads.push(Load {
                signals,
                clients,
                servers: 0,
                pools,
            });
        }
        for (worker, load) in loads.iter().enumerate() {
            if self.stuck == Some(worker) {
                continue;
            }
            if load.clients > 0 || self.balancer.workers[worker].clients > 0 {
                self.balancer.hear(self.now, WorkerId(worker as u16), load);
            }
        }
        for step in self.balancer.decide(self.now, self.usable, self.always) {
            match step {
                BalanceStep::Say(text) => self.said.push(text),
                BalanceStep::Shed {
                    from,
                    to,
                    login: pool,
                    clients,
                    idle,
                } => {
                    let (from, to) = (usize::from(from.0), usize::from(to.0));
                    let there = self.pools.iter().find(|p| p.key == pool).unwrap();
                    let quiet = if idle { there.idle[from] } else { 0 };
                    assert!(clients <= there.clients[from] + quiet && from != to);
                    self.sheds.retain(|(of, at, ..)| (of, *at) != (&pool, from));
                    self.sheds.push((pool, from, to, clients, idle));
                }
                BalanceStep::Seat(pool, seats) => {
                    let beyond = |seat: &&WorkerId| seat.0 >= self.usable;
                    assert_eq!(seats.iter().find(beyond), None, "there is no core for it");
                    self.seats.insert(pool, seats);
                }
                BalanceStep::NewPools(at) => {
                    assert!(at.0 < self.usable, "there is no core for it");
                    self.new_pools = at;
                }
            }
        }
        self.hand_away();
    }

    /// Moves clients, at most as many as a worker hands over in a step.
    fn hand_away(&mut self) {
        let mut left = vec![self.hands; self.balancer.workers.len()];
        for (key, from, to, clients, idle) in &mut self.sheds {
            if self.stuck == Some(*from) {
                continue;
            }
            let pool = self.pools.iter_mut().find(|p| p.key == *key).unwrap();
            // Active clients move first.
            let go = (*clients).min(left[*from]);
            let active = go.min(pool.clients[*from]);
            let others = if *idle { go - active } else { 0 };
            let others = others.min(pool.idle[*from]);
            pool.clients[*from] -= active;
            pool.clients[*to] += active;
            pool.idle[*from] -= others;
            pool.idle[*to] += others;
            left[*from] -= active + others;
            self.moves += active + others;
            *clients -= active + others;
        }
        let stuck = self.stuck;
        self.sheds
            .retain(|(_, from, _, clients, _)| *clients > 0 && stuck != Some(*from));
    }

    fn run(&mut self, seconds: u64) -> &mut Machine {
        for _ in 0..seconds * 10 {
            self.step();
        }
        self
    }

    /// Clients of a pool by worker.
    fn clients(&self, pool: usize) -> &[u32] {
        &self.pools[pool].clients
    }
}

#[test]
fn what_one_worker_can_carry_stays_there() {
    let mut machine = Machine::new(4).pool("d", 20, 40, 2_000.0);
    assert_eq!(machine.run(30).clients(0), [40, 0, 0, 0]);
    assert_eq!(machine.said, Vec::<String>::new());
}

#[test]
fn a_pool_alone_is_widened_within_a_second() {
    let mut machine = Machine::new(2).pool("d", 20, 40, 5_000.0);
    for _ in 0..9 {
        machine.step();
    }
    assert_eq!(machine.clients(0), [20, 20]);
    machine.run(10);
    assert_eq!(machine.clients(0), [20, 20]);
    assert!(
        machine.said[0].contains("d/u is widened to worker 1"),
        "{:?}",
        machine.said
    );
    assert!(machine.said[1].contains("d/u stays"), "{:?}", machine.said);
}

#[test]
fn pools_that_need_more_workers_get_equally_many() {
    // Alone, each pool would take twice as many workers as it has: the first would take eight.
    let names = ["a", "b", "c", "d"];
    for (workers, widths) in [(20, [5, 5, 5, 5]), (18, [4, 4, 5, 5]), (23, [5, 6, 6, 6])] {
        let pool = |machine: Machine, name| machine.pool(name, 40, 160, 9_000.0);
        let mut machine = names.into_iter().fold(Machine::new(workers), pool);
        machine.run(20);
        let width = |name| machine.balancer.pools[&key(name)].seats.len();
        let mut found = names.map(width);
        found.sort_unstable();
        assert_eq!(found, widths, "{:?}", machine.said);
    }
}

#[test]
fn a_pool_beside_sessions_that_cannot_leave_is_widened() {
    // A fifth of the worker's transactions is of sessions whose pool has its seat elsewhere.
    let mut machine = Machine::new(2)
        .pool("d", 40, 160, 9_000.0)
        .pool("sessions", 40, 40, 9_000.0);
    machine.hands = 0;
    machine.run(1);
    let seats = [("sessions", 1), ("d", 0)];
    for (name, seat) in seats {
        let balancer = &mut machine.balancer;
        balancer.set_seats(&key(name), vec![WorkerId(seat)]);
        balancer.experiments.clear();
    }
    machine.said.clear();
    machine.run(1);
    let widened = "pool d/u is widened to worker 1";
    assert!(machine.said[0].starts_with(widened), "{:?}", machine.said);
}

#[test]
fn a_pool_that_can_not_be_wider_leaves_the_workers_to_others() {
    let mut machine = Machine::new(10)
        .pool("few", 7, 40, 9_000.0)
        .pool("many", 40, 160, 9_000.0);
    machine.run(20);
    let width = |name| machine.balancer.pools[&key(name)].seats.len();
    assert_eq!((width("few"), width("many")), (1, 9), "{:?}", machine.said);
}

#[test]
fn clients_that_do_nothing_are_not_counted() {
    let mut machine = Machine::new(4).pool("d", 20, 40, 9_000.0);
    machine.pools[0].idle[0] = 400;
    machine.run(10);
    assert_eq!(machine.clients(0), [10, 10, 10, 10]);
    assert_eq!(
        machine.pools[0].idle,
        [400, 0, 0, 0],
        "nobody has moved for nothing"
    );
}

#[test]
fn busy_clients_that_came_together_on_one_worker_part() {
    let mut machine = Machine::new(2).pool("d", 20, 40, 4_000.0);
    machine.run(5);
    // Both workers have as many clients, but only one of them has work.
    machine.pools[0].clients = vec![40, 0];
    machine.pools[0].idle = vec![460, 500];
    machine.run(5);
    assert_eq!(machine.clients(0), [20, 20]);
}

#[test]
fn who_does_nothing_leaves_a_worker_that_its_pool_has_left() {
    let mut machine = Machine::new(4).pool("d", 20, 40, 100.0);
    machine.pools[0].idle = vec![0, 0, 30, 0];
    machine.run(5);
    assert_eq!(machine.pools[0].idle[2] + machine.clients(0)[2], 0);
}

#[test]
fn what_holds_a_pool_on_its_worker() {
    let hot = |servers, clients| Machine::new(4).pool("d", servers, clients, 200_000.0);
    let few_servers = hot(7, 40);
    let few_clients = hot(20, 3);
    let mut no_cores = hot(20, 40);
    no_cores.delay = 0.2;
    let mut one_core = hot(20, 40);
    one_core.usable = 1;
    for (why, mut machine) in [
        ("for every four of its servers", few_servers),
        ("for every two of its active clients", few_clients),
        ("PostgreSQL or other programs have the cores", no_cores),
        ("one worker, or one core", one_core),
    ] {
        let clients = machine.clients(0)[0];
        machine.run(10);
        assert_eq!(machine.clients(0), [clients, 0, 0, 0], "{why}");
        // The log says this once, not at each decision.
        assert_eq!(machine.said.len(), 1, "{:?}", machine.said);
        assert!(machine.said[0].contains("pool d/u stays there"));
        assert!(machine.said[0].contains(why), "{:?}", machine.said);
        machine.run(600);
        assert_eq!(machine.said.len(), 2, "{:?}", machine.said);
    }
}

#[test]
fn newcomers_come_to_where_their_pool_is() {
    let mut machine = Machine::new(4).pool("d", 20, 40, 9_000.0);
    machine.step();
    let seats = |machine: &Machine| machine.seats[&key("d")].iter().map(|seat| seat.0).collect();
    let first: Vec<u16> = seats(&machine);
    assert_eq!((first, machine.new_pools), (vec![0], WorkerId(0)));
    machine.run(10);
    let mut later: Vec<u16> = seats(&machine);
    later.sort_unstable();
    assert_eq!(later, [0, 1, 2, 3]);
}

#[test]
fn pools_without_a_place_do_not_come_to_a_busy_worker() {
    let mut machine = Machine::new(4).pool("d", 7, 40, 2_000.0);
    machine.run(10);
    assert_eq!(machine.clients(0), [40, 0, 0, 0]);
    assert_ne!(machine.new_pools, WorkerId(0));
}

#[test]
fn a_pool_that_is_left_alone_by_those_on_their_way_is_widened() {
    let mut machine = Machine::new(4)
        .pool("d", 20, 40, 5_000.0)
        .pool("e", 20, 40, 5_000.0);
    // The clients of the first pool need four seconds to leave.
    machine.hands = 1;
    machine.run(2);
    let seats = |name| machine.balancer.pools[&key(name)].seats.clone();
    assert_eq!(seats("d"), [WorkerId(1)], "{:?}", machine.said);
    assert_eq!(seats("e"), [WorkerId(0), WorkerId(2)], "{:?}", machine.said);
}

#[test]
fn a_small_pool_beside_sessions_that_cannot_leave_goes_as_a_whole() {
    let mut machine = Machine::new(2)
        .pool("d", 20, 40, 5_000.0)
        .pool("e", 20, 4, 2_000.0);
    machine.step();
    // The first pool has another worker from now on, and its clients can't follow.
    machine.hands = 0;
    let there: Arc<[WorkerId]> = Arc::new([WorkerId(1)]);
    machine.balancer.pools.get_mut(&key("d")).unwrap().seats = there.to_vec();
    machine.run(2);
    let moved = "pool e/u is moved to worker 1";
    assert!(machine.said[0].contains(moved), "{:?}", machine.said);
}

#[test]
fn what_does_not_help_is_undone_and_tried_ever_less_often() {
    let mut machine = Machine::new(4).pool("d", 20, 40, 5_000.0);
    machine.most = 100_000.0;
    machine.run(120);
    let tries = machine
        .said
        .iter()
        .filter(|s| s.contains("is widened"))
        .count();
    let undone = machine
        .said
        .iter()
        .filter(|s| s.contains("goes back"))
        .count();
    // After 2, 4 and 8 seconds, then every 15 seconds, because the worker is saturated.
    assert!((9..=11).contains(&tries), "{tries}: {:?}", machine.said);
    assert!(tries - undone <= 1);
    assert_eq!(machine.clients(0), [40, 0, 0, 0]);
}

/// How often a pool was widened, and how often this was undone.
fn tries(machine: &Machine) -> (usize, usize) {
    let said = |text| machine.said.iter().filter(|s| s.contains(text)).count();
    (said("is widened"), said("goes back"))
}

#[test]
fn a_worker_with_something_left_to_give_is_left_alone_for_longer() {
    // The worker does nine tenths of its maximum: little can be gained.
    let mut machine = Machine::new(4).pool("d", 20, 40, 2_250.0);
    machine.run(120);
    // After 2, 4, 8, 16, 32 and 64 seconds.
    let (tries, undone) = tries(&machine);
    assert!((5..=7).contains(&tries), "{tries}: {:?}", machine.said);
    assert!(tries - undone <= 1);
}

#[test]
fn what_failed_under_less_load_is_tried_again() {
    for wants in [2_200.0, 2_350.0] {
        let mut machine = Machine::new(4).pool("d", 20, 40, wants);
        machine.run(600);
        machine.pools[0].wants = 8_000.0;
        machine.run(3);
        let clients = machine.clients(0);
        assert!(clients[0] <= 20, "{clients:?}: {:?}", machine.said);
    }
}

#[test]
fn a_load_that_climbs_is_followed_when_it_is_too_much_for_a_worker() {
    let mut machine = Machine::new(4).pool("d", 20, 40, 2_000.0);
    // The load grows by a thousandth each second, from 80 to 120 % of a worker.
    for second in 0..405 {
        machine.pools[0].wants = 2_000.0 * 1.001f64.powi(second);
        machine.run(1);
    }
    machine.run(15);
    let (done, wanted) = (machine.done, 40.0 * machine.pools[0].wants);
    assert!(
        done > 0.99 * wanted,
        "{done} of {wanted}: {:?}",
        machine.said
    );
}

#[test]
fn pools_part_before_one_is_widened() {
    let mut machine = Machine::new(4)
        .pool("d", 20, 40, 2_000.0)
        .pool("e", 20, 40, 1_500.0);
    machine.run(4);
    assert!(
        machine.said[0].contains("d/u is moved to worker 1"),
        "{:?}",
        machine.said
    );
    assert_eq!(machine.clients(0), [0, 40, 0, 0]);
    assert_eq!(machine.clients(1), [40, 0, 0, 0]);
}

#[test]
fn many_small_pools_part_by_halves() {
    let mut machine = Machine::new(2);
    for number in 0..100 {
        machine = machine.pool(&format!("d{number}"), 4, 2, 1_000.0);
    }
    machine.run(3);
    let away = machine
        .pools
        .iter()
        .filter(|pool| pool.clients[1] > 0)
        .count();
    assert!((40..=60).contains(&away), "{away}");
}

#[test]
fn pools_that_are_on_their_way_are_no_part_of_what_is_divided() {
    let mut machine = Machine::new(8);
    for number in 0..800 {
        machine = machine.pool(&format!("d{number}"), 20, 10, 10_000.0);
    }
    // Half of the clients need four seconds to leave.
    machine.hands = 100;
    machine.run(2);
    let seats: Vec<_> = { machine.balancer.pools.values() }
        .map(|pool| pool.seats[0].0)
        .collect();
    let on = |worker| seats.iter().filter(|seat| **seat == worker).count();
    // One half moves, then one half of the rest.
    assert!(
        (190..=210).contains(&on(0)),
        "{}: {:?}",
        on(0),
        machine.said
    );
}

#[test]
fn what_has_become_less_is_drawn_together() {
    let mut machine = Machine::new(4).pool("d", 20, 40, 9_000.0);
    machine.run(20);
    assert!(
        machine.clients(0).iter().all(|clients| *clients > 7),
        "{:?}",
        machine.clients(0)
    );
    machine.pools[0].wants = 1_000.0;
    machine.run(4);
    assert!(
        machine.clients(0).iter().all(|clients| *clients > 7),
        "not at once"
    );
    machine.run(20);
    assert_eq!(machine.clients(0).iter().max(), Some(&40));
    assert!(
        machine
            .said
            .iter()
            .any(|said| said.contains("drawn together"))
    );
}

#[test]
fn small_pools_are_gathered() {
    let mut machine = Machine::new(4)
        .pool("d", 20, 40, 100.0)
        .pool("e", 20, 40, 200.0);
    machine.pools[0].clients = vec![0, 0, 40, 0];
    machine.run(20);
    assert_eq!(machine.clients(0), machine.clients(1));
}

#[test]
fn a_worker_with_consoles_only_is_not_begun_with() {
    let mut machine = Machine::new(2).pool("d", 20, 40, 200.0);
    for _ in 0..100 {
        let consoles = Load {
            signals: ThreadLoad::default(),
            clients: 1,
            servers: 0,
            pools: Vec::new(),
        };
        machine.balancer.hear(machine.now, WorkerId(1), &consoles);
        machine.stuck = Some(1);
        machine.step();
    }
    assert_eq!(machine.clients(0), [40, 0]);
    assert_eq!(machine.said, Vec::<String>::new());
}

#[test]
fn load_that_flaps_each_second_moves_nobody_to_and_fro() {
    let mut machine = Machine::new(2).pool("d", 20, 40, 0.0);
    for second in 0..120 {
        machine.pools[0].wants = if second % 2 == 0 { 6_000.0 } else { 100.0 };
        machine.run(1);
    }
    // Two log lines for each attempt, and at most one attempt in 15 s: half of the clients leave
    // and come back.
    assert!(machine.said.len() <= 22, "{:?}", machine.said);
    assert!(machine.moves <= 11 * 40, "{}", machine.moves);
}

#[test]
fn who_is_beyond_the_cores_hands_clients_away() {
    let mut machine = Machine::new(4).pool("d", 20, 40, 100.0);
    machine.usable = 2;
    machine.pools[0].clients = vec![0, 10, 10, 20];
    machine.run(5);
    assert_eq!(machine.clients(0)[2..], [0, 0]);
}

#[test]
fn always_is_as_wide_as_the_pool_allows_at_once() {
    let mut machine = Machine::new(4)
        .pool("d", 20, 40, 100.0)
        .pool("e", 8, 10, 100.0);
    machine.always = true;
    machine.run(2);
    assert_eq!(machine.clients(0), [10, 10, 10, 10]);
    assert_eq!(machine.clients(1), [5, 5, 0, 0]);
}

#[test]
fn a_worker_that_stands_still_gets_nobody() {
    let mut machine = Machine::new(2)
        .pool("d", 20, 40, 3_000.0)
        .pool("e", 20, 1, 1.0);
    machine.pools[1].clients = vec![0, 1];
    machine.pools[0].wants = 100.0;
    machine.step();
    machine.stuck = Some(1);
    machine.run(2);
    machine.pools[0].wants = 5_000.0;
    machine.run(10);
    assert_eq!(machine.clients(0), [40, 0]);
    machine.stuck = None;
    machine.run(10);
    assert_ne!(machine.clients(0), [40, 0]);
}

#[test]
fn no_pool_is_drawn_together_onto_a_worker_that_stands_still() {
    let mut machine = Machine::new(2)
        .pool("d", 20, 10, 5_000.0)
        .pool("e", 20, 10, 5_000.0);
    machine.pools[1].clients = vec![0, 10];
    machine.run(2);
    machine.stuck = Some(1);
    machine.pools[0].wants = 500.0;
    for _ in 0..20 {
        machine.run(1);
        assert_eq!(machine.seats[&key("d")][..], [WorkerId(0)]);
    }
    machine.stuck = None;
    machine.pools[1].wants = 500.0;
    machine.run(20);
    assert_eq!(machine.seats[&key("d")], machine.seats[&key("e")]);
}

#[test]
fn new_pools_do_not_begin_on_a_worker_that_stands_still() {
    let mut machine = Machine::new(2)
        .pool("d", 20, 10, 100.0)
        .pool("e", 20, 10, 100.0);
    machine.pools[1].clients = vec![0, 10];
    machine.run(2);
    machine.stuck = Some(0);
    machine.run(2);
    assert_eq!(machine.new_pools, WorkerId(1));
    machine.stuck = None;
    machine.run(2);
    assert_eq!(machine.new_pools, WorkerId(0));
}

#[test]
fn newcomers_of_a_wide_pool_do_not_go_to_a_worker_that_stands_still() {
    let mut machine = Machine::new(2).pool("d", 20, 40, 5_000.0);
    machine.run(5);
    machine.pools[0].wants = 2_000.0;
    machine.run(2);
    assert_eq!(machine.seats[&key("d")].len(), 2);
    machine.stuck = Some(1);
    // One worker could carry this, but nobody knows what the other one does.
    machine.pools[0].wants = 250.0;
    machine.run(10);
    assert_eq!(machine.seats[&key("d")][..], [WorkerId(0)]);
    assert_eq!(machine.balancer.pools[&key("d")].seats.len(), 2);
    machine.stuck = None;
    machine.pools[0].wants = 3_500.0;
    machine.run(1);
    assert_eq!(machine.seats[&key("d")].len(), 2);
    // If all stand still, the pool keeps its workers.
    let mut machine = Machine::new(2).pool("d", 20, 40, 1_000.0);
    machine.run(2);
    machine.stuck = Some(0);
    machine.run(5);
    assert_eq!(machine.seats[&key("d")][..], [WorkerId(0)]);
}

#[test]
fn cores_are_used_whatever_their_number() {
    for cores in [8, 16, 64] {
        for (pools, servers) in [(1, 20), (1, 40), (1, 100), (10, 20), (1_000, 20)] {
            let mut machine = Machine::new(cores);
            // A server does at most 30,000 transactions a second, a worker 100,000.
            let servers_can = f64::from(servers * pools) * 30_000.0;
            machine.most = servers_can;
            for number in 0..pools {
                let clients = (4_000 / pools).max(4);
                let wants = 1.5 * f64::from(cores) * machine.power / 4_000.0;
                machine = machine.pool(&format!("d{number}"), servers, clients, wants);
            }
            machine.run(120);
            let widest = f64::from(crate::spread::widest(servers, cores)) * f64::from(pools);
            let can = f64::from(cores).min(widest) * machine.power;
            let can = can.min(servers_can);
            let part = machine.done / can;
            assert!(
                part >= 0.9,
                "{cores} cores, {pools} pools of {servers}: {part}"
            );
        }
    }
}

#[test]
fn a_pool_of_short_connections_is_told_of_now_and_then() {
    let mut balancer = Balancer::new(2);
    let brief = Load {
        signals: ThreadLoad::default(),
        clients: 0,
        servers: 0,
        pools: vec![PoolLoad {
            login: key("cron"),
            clients: 0,
            active: 0,
            transactions: 1,
            widest: 2,
        }],
    };
    // All connections have ended before each report, so no report has clients.
    for minute in 0..5 {
        let now = Time(1_000_000_000 + minute * 61_000_000_000);
        balancer.hear(now, WorkerId(0), &brief);
        balancer.decide(now, 2, false);
    }
    balancer.hear(
        Time(400_000_000_000),
        WorkerId(0),
        &Load {
            pools: Vec::new(),
            ..brief
        },
    );
    let forgotten = balancer.decide(Time(500_000_000_000), 2, false);
    let unseated =
        |step: &BalanceStep| matches!(step, BalanceStep::Seat(_, seats) if seats.is_empty());
    assert!(forgotten.iter().any(unseated), "{forgotten:?}");
}
