//! Plays a scenario, and checks everything.

mod crowd;
mod quiet;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};

use howdah_daemon::sockets::HIGH_WATER;
use howdah_daemon::tls::pack_sessions;
use howdah_daemon::worker::Worker;
use howdah_pooler::census::Waiter;
use howdah_pooler::event::{Address, ClientId, Order, Time};

use crate::chance::Chance;
use crate::client::Client;
use crate::control::{Admin, Canceller};
use crate::driver::SimDriver;
use crate::mishap::Mishaps;
use crate::postgres::Postgres;
use crate::process::{Process, carried};
use crate::scenario::Scenario;
use crate::sharding::{MapInForce, NAME};
use crate::story::{Violation, Who};
use crate::successor::{Fate, Successor};
use crate::watched::Watched;
use crate::world::{Shared, World};

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;
/// How long workers may need to learn of each other's waiting clients, in nanoseconds.
const TOLD: u64 = 50 * MILLI;
/// How often a client may be overtaken by others, each time after workers could have known of it.
/// Clients that got a server hold it for some time.
const UNFAIR: u32 = 8;
/// The same for overtaking by clients of other pools under the same limit, if the overtaken client
/// has waited clearly longer. Servers of two limits must become free for it, each after a
/// transaction, and other clients have waited long, too.
const UNFAIR_TO_POOLS: u32 = 200;
/// Bytes that a connection may have beyond the high-water mark.
const SLACK: usize = 256 << 10;
/// The longest message of a client, in bytes.
const LONGEST: usize = 512 << 10;

/// The result of a run.
pub struct Outcome {
    /// The violation, if there was one.
    pub violation: Option<Violation>,
    /// Lines about the actors of the violation, if the story was recorded.
    pub story: Vec<String>,
    /// The whole story.
    pub whole: Vec<String>,
    /// The number of statements that PostgreSQL ran.
    pub statements: usize,
    /// The number of those that were sent to a standby, though their database wants the primary.
    pub reads: usize,
    /// The number of turns of the world.
    pub turns: u64,
    /// The virtual time, in nanoseconds.
    pub time: u64,
    /// The number of servers lent between workers.
    pub lends: u64,
    /// The number of clients moved between workers.
    pub moves: u64,
}

/// Plays a seed. A panic of the code under test is a violation.
pub fn run(seed: u64, told: bool) -> Outcome {
    let scenario = Scenario::new(seed);
    let world = World::new(seed);
    world.borrow_mut().story.told = told;
    let played = catch_unwind(AssertUnwindSafe(|| {
        let mut play = Play::new(scenario, world.clone());
        play.go();
        play.figures()
    }));
    // The world may have been borrowed during the panic.
    let figures = match played {
        Ok(figures) => figures,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            let violation = Violation {
                checker: "panic",
                text: text.unwrap_or_default(),
                who: Vec::new(),
            };
            if let Ok(mut world) = world.try_borrow_mut() {
                world.story.violation.get_or_insert(violation);
            }
            (0, 0, 0, 0, 0)
        }
    };
    let world = world.borrow();
    Outcome {
        violation: world.story.violation.clone(),
        story: world.story.about(150),
        whole: world.story.all(),
        statements: figures.0,
        reads: figures.4,
        turns: figures.1,
        time: world.now.0,
        lends: figures.2,
        moves: figures.3,
    }
}

struct Play {
    scenario: Scenario,
    world: Shared,
    chance: Chance,
    /// The source of moves.
    shuffles: Chance,
    front: Address,
    postgres: Postgres,
    mishaps: Mishaps,
    /// The last process is in force; earlier ones serve the clients left behind.
    processes: Vec<Process>,
    /// The number of processes before the first of these.
    ended: u16,
    /// After this time, only the limits of these processes hold.
    narrow_at: Option<u64>,
    successors: Vec<Successor>,
    clients: Vec<Client>,
    cancellers: Vec<Canceller>,
    admin: Admin,
    turns: u64,
    /// From now on, nothing new goes wrong.
    calm: bool,
    /// All clients are gone.
    quiet: bool,
    /// By client, worker and time since when it waits: how often it was overtaken, and when last.
    overtaken: Overtaken,
    /// The same for overtaking by clients of other pools under the same limit.
    outwaited: Overtaken,
    idle_turns: u32,
}

fn address(port: u16) -> Address {
    Address::Tcp(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

impl Play {
    fn new(scenario: Scenario, world: Shared) -> Play {
        let mut chance = Chance::new(scenario.seed ^ 0x0bad_5eed);
        let front = address(6432);
        let mut borrowed = world.borrow_mut();
        borrowed.weather = scenario.weather;
        borrowed.prompt_cancels = scenario.cancels_are_prompt();
        borrowed.header = scenario.header;
        borrowed.excuses.texts = scenario.excuses.clone();
        borrowed.excuses.closes = scenario.closes;
        let slack = match (scenario.workers, scenario.faults) {
            (1, faults) if faults.takeovers == 0 => 0,
            (_, faults) if faults.workers_stall => 50 * MILLI,
            _ => 2 * MILLI,
        };
        for database in &scenario.databases {
            borrowed.catalog(&database.name).borrow_mut().slack = slack;
        }
        let hosts = scenario.hosts(borrowed.now);
        let mut postgres = Postgres::new(hosts, scenario.manners, &mut borrowed);
        postgres.limits = scenario.limits();
        postgres.wishes = scenario.wishes();
        postgres.readers = scenario.readers();
        postgres.single_readers = scenario.single_readers();
        let map = |sharding| MapInForce::new(sharding, scenario.loses_shards());
        postgres.map = scenario.sharding.clone().map(map);
        let mishaps = Mishaps::plan(&scenario, &postgres.hosts, &mut borrowed);
        borrowed.listen(front.clone());
        let (now, brief) = (borrowed.now, format!("{scenario:?}"));
        borrowed.story.tell(now, Who::World, || brief);
        drop(borrowed);

        let processes = vec![Process::new(&scenario, 0, &fronts(&scenario), &world)];
        let clients = crowd::clients(&scenario, &mut chance, &world);
        if let Some(map) = &mut postgres.map {
            let of = clients.iter().filter(|client| client.is_of(NAME));
            map.clients = of.map(Client::id).collect();
        }
        let orders = crowd::orders(&scenario, &mut chance);
        let mut admin = Admin::new(orders, world.borrow().now);
        admin.may_be_left = scenario.faults.takeovers > 0;
        let successors = crowd::successors(&scenario, &mut chance, &world);
        Play {
            processes,
            ended: 0,
            narrow_at: None,
            successors,
            shuffles: Chance::new(scenario.seed ^ 0x5f1e),
            scenario,
            world,
            chance,
            front,
            postgres,
            mishaps,
            clients,
            cancellers: Vec::new(),
            admin,
            turns: 0,
            calm: false,
            quiet: false,
            overtaken: HashMap::new(),
            outwaited: HashMap::new(),
            idle_turns: 0,
        }
    }

    fn figures(&mut self) -> (usize, u64, u64, u64, usize) {
        let lends = self.workers().map(|w| w.decisions().lends).sum();
        let moves = self.workers().map(|w| w.decisions().moves).sum();
        let (statements, reads) = (self.postgres.journal.len(), self.postgres.reads);
        (statements, self.turns, lends, moves, reads)
    }

    /// The workers of all processes.
    fn workers(&mut self) -> impl Iterator<Item = &mut Worker<Watched, SimDriver>> {
        self.processes.iter_mut().flat_map(|p| &mut p.workers)
    }

    /// The process in force.
    fn current(&mut self) -> &mut Process {
        self.processes.last_mut().expect("there is always one")
    }

    fn failed(&self) -> bool {
        self.world.borrow().story.violation.is_some()
    }

    fn now(&self) -> u64 {
        self.world.borrow().now.0
    }

    fn violate(&self, checker: &'static str, text: String) {
        self.world.borrow_mut().story.violate(checker, &[], text);
    }

    fn go(&mut self) {
        let mut faults = self.schedule();
        let begin = self.now();
        let most = begin + 30 * SECOND;
        while !self.failed() && self.now() < most && !self.everybody_is_gone() {
            while faults.front().is_some_and(|(at, _)| *at <= self.now()) {
                let fault = faults.pop_front().map(|(_, fault)| fault);
                self.strike(fault);
            }
            self.cancel_somebody();
            self.change_outside();
            self.shuffle();
            self.turn();
        }
        self.wind_down();
    }

    fn everybody_is_gone(&self) -> bool {
        self.clients.iter().all(Client::is_gone)
            && self.cancellers.iter().all(|canceller| canceller.gone)
            && self.admin.is_gone()
            && self.successors.iter().all(Successor::is_gone)
    }

    fn schedule(&mut self) -> VecDeque<(u64, bool)> {
        let now = self.now();
        let faults = self.scenario.faults;
        let span = (self.scenario.span + 200) * MILLI;
        let mut schedule = Vec::new();
        for index in 0..faults.restarts + faults.cuts {
            let at = now + self.chance.number() % span;
            schedule.push((at, index < faults.restarts));
            self.world.borrow_mut().alarm(Time(at));
        }
        schedule.sort_unstable();
        schedule.into()
    }

    fn strike(&mut self, restart: Option<bool>) {
        let mut world = self.world.borrow_mut();
        match restart {
            Some(true) => {
                let crash = world.chance.once_in(2);
                let down = world.chance.number() % (2 * SECOND);
                let starting = world.chance.number() % SECOND;
                let host = match self.postgres.hosts.len() {
                    1 => 0,
                    hosts => world.chance.within(0..=hosts - 1),
                };
                self.postgres
                    .restart(host, crash, (down, starting), &mut world);
            }
            _ => self.postgres.cut_one(&mut world),
        }
    }

    /// Sometimes changes a table past Howdah.
    fn change_outside(&mut self) {
        let left = &mut self.scenario.faults.outside;
        if *left == 0 || !self.chance.once_in(150) {
            return;
        }
        *left -= 1;
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let all: Vec<_> = world.catalogs.values().cloned().collect();
        let catalog = &all[self.chance.within(0..=all.len() - 1)];
        let changed = catalog.borrow_mut().change_outside(&mut self.chance);
        if let Some((table, shape)) = changed {
            let line = || format!("somebody changes t{table}: {shape:?}");
            world.story.tell(now, Who::World, line);
        }
    }

    /// Sometimes moves all clients to random workers.
    fn shuffle(&mut self) {
        if self.scenario.restless && self.shuffles.once_in(8) {
            self.current().order(&Order::Shuffle);
        }
    }

    /// Sometimes sends a cancel request, for a client's statement or for nothing.
    fn cancel_somebody(&mut self) {
        // The clock jumps over a long statement, so the statement has few turns.
        if self.scenario.faults.cancels == 0 || !self.chance.once_in(8) {
            return;
        }
        let may = |client: &Client| client.talks() && client.is_cancellable();
        let mut talking: Vec<usize> = (0..self.clients.len())
            .filter(|at| may(&self.clients[*at]))
            .collect();
        // Mostly for a client that waits long, and only once.
        if !self.chance.once_in(20) {
            talking.retain(|at| self.clients[*at].awaits_slow());
        }
        if talking.is_empty() {
            return;
        }
        let at = talking[self.chance.within(0..=talking.len() - 1)];
        let Some(mut key) = self.clients[at].key.clone() else {
            return;
        };
        self.scenario.faults.cancels -= 1;
        let mut world = self.world.borrow_mut();
        let id = self.clients[at].id();
        let wrong = self.chance.once_in(6);
        let now = world.now;
        world.story.tell(now, Who::Client(id), || {
            format!("somebody asks to cancel it, with a wrong key: {wrong}")
        });
        if wrong {
            // Changes any bit; most often one of the first 32, which short keys have.
            let bit = now.0 as usize
                % if now.0.is_multiple_of(4) {
                    8 * key.1.len()
                } else {
                    32
                };
            key.1[bit / 8] ^= 1 << (bit % 8);
        } else {
            self.clients[at].is_cancelled(&world);
        }
        self.cancellers
            .extend(Canceller::new(&self.front, &key, &mut world));
    }

    /// Lets each actor take a step, or none. The clock advances, and jumps if nothing moved.
    fn turn(&mut self) {
        self.turns += 1;
        self.resume_hosts();
        let before = self.world.borrow().activity;
        for process in 0..self.processes.len() {
            for at in 0..self.processes[process].workers.len() {
                self.turn_worker(process, at);
            }
        }
        {
            let mut world = self.world.borrow_mut();
            let world = &mut *world;
            self.mishaps.step(&mut self.postgres, world);
            self.postgres.step(world);
            for client in &mut self.clients {
                client.step(&self.front, world);
            }
            self.cancellers.retain(|canceller| !canceller.gone);
            for canceller in &mut self.cancellers {
                canceller.step(world);
            }
            self.admin.step(&self.front, &mut self.postgres, world);
            // One successor at a time.
            let next = self.successors.iter_mut().find(|s| !s.is_gone());
            if let Some(successor) = next {
                successor.step(&console(), world);
            }
            for process in &mut self.processes {
                let (scenario, chance) = (&mut self.scenario, &mut self.chance);
                let (limits, map) = (&mut self.postgres.limits, &mut self.postgres.map);
                process.control.step(world, &mut |_| {
                    *scenario = scenario.edited(chance);
                    if let (Some(map), Some(sharding)) = (map.as_mut(), &scenario.sharding) {
                        map.reload(sharding.in_file);
                    }
                    limits.widen(&scenario.limits());
                    scenario.config()
                });
            }
        }
        if self.scenario.faults.takeovers > 0 {
            self.hand_over();
            self.end_old();
        }
        for process in &self.processes {
            process.tell_notes(&self.world);
        }
        let alone = self.processes.len() == 1;
        for catalog in self.world.borrow().catalogs.values() {
            catalog.borrow_mut().alone = alone;
        }
        self.pass_time(before);
    }

    /// Gives a process's parcels to its successor, or back to the process.
    fn hand_over(&mut self) {
        let world = self.world.clone();
        let freight = self.current().control.freight(&mut world.borrow_mut());
        let Some(mut freight) = freight else { return };
        for lost in pack_sessions(&mut freight) {
            let now = self.world.borrow().now;
            world.borrow_mut().story.tell(now, Who::World, || lost);
        }
        let asks = |successor: &&mut Successor| successor.is_there();
        let there = self.successors.iter_mut().find(asks);
        let confirms = there.as_ref().is_some_and(|s| s.fate == Fate::TakesOver);
        if let Some(successor) = there {
            successor.leave(&mut world.borrow_mut());
        }
        let now = self.world.borrow().now;
        world.borrow_mut().story.tell(now, Who::World, || {
            let count = freight.parcels.len();
            format!("{count} parcels are there; the successor takes over: {confirms}")
        });
        let successor = self.scenario.succeeded(&mut self.chance);
        // PostgreSQL may still log in servers that were closed in the middle of their login.
        self.postgres.owners += 1;
        self.narrow_soon();
        if !confirms {
            return self.current().take_back(freight);
        }
        self.postgres.limits.widen(&successor.limits());
        self.scenario = successor;
        self.current().drain();
        let before = self.ended + self.processes.len() as u16;
        let mut process = Process::new(&self.scenario, before, &fronts(&self.scenario), &world);
        let now = world.borrow().now;
        process.inherit(now, carried(&freight, &self.scenario));
        self.processes.push(process);
    }

    fn narrow_soon(&mut self) {
        let soon = self.now() + SECOND;
        self.narrow_at = Some(soon);
        self.world.borrow_mut().alarm(Time(soon));
    }

    /// Ends an old process when no client is left there.
    fn end_old(&mut self) {
        let last = self.processes.len() - 1;
        if let Some(at) = self.processes[..last].iter().position(Process::may_end) {
            self.processes.remove(at).end();
            let mut world = self.world.borrow_mut();
            world.excuses.late_sessions += self.postgres.deserted(&world);
            drop(world);
            self.ended += 1;
            self.narrow_soon();
        }
        if self.narrow_at.is_some_and(|at| at <= self.now()) {
            self.narrow_at = None;
            self.postgres.owners = self.processes.len();
        }
    }

    fn turn_worker(&mut self, process: usize, at: usize) {
        let now = Time(self.now());
        let Process {
            workers,
            stalled_until,
            ..
        } = &mut self.processes[process];
        if stalled_until[at] > now {
            return;
        }
        let stalls = self.scenario.faults.workers_stall && !self.calm;
        if stalls && self.chance.once_in(200) {
            let until = Time(now.0 + self.chance.number() % (20 * MILLI));
            stalled_until[at] = until;
            return self.world.borrow_mut().alarm(until);
        }
        if workers.len() > 1 && self.chance.once_in(4) {
            return;
        }
        let worker = &mut workers[at];
        let parting = worker.decisions().parting;
        worker.turn(Some(Time(0)));
        let parts = worker.decisions().parting > parting;
        if parts && stalls && self.chance.once_in(3) {
            // The worker gives a server away, and learns late of the RECONNECT.
            self.admin.at_once("RECONNECT");
            let until = Time(now.0 + self.chance.number() % (20 * MILLI));
            stalled_until[at] = until;
            self.world.borrow_mut().alarm(until);
        }
        let out = worker.sockets().driver().buffers_out();
        if out > 0 {
            self.violate("memory", format!("worker {at} keeps {out} receive buffers"));
        }
        if self.turns.is_multiple_of(16) {
            self.check_memory(process, at);
        }
        self.check_fairness(process, at);
        self.check_permits(process);
    }

    /// The Broker has given out a permit for each server. If no mail is under way, it has given out
    /// no other permits.
    fn check_permits(&mut self, process: usize) {
        if self.scenario.faults.takeovers > 0 {
            // After a takeover, servers come to a Broker that counts them one by one.
            return;
        }
        let Process {
            workers, broker, ..
        } = &mut self.processes[process];
        let given = broker.census().permits;
        let is_told = !workers.iter().any(Worker::has_mail);
        let workers = workers.iter_mut();
        let held: usize = workers.map(|w| w.decisions().pooler.permits()).sum();
        if held > given || is_told && held < given {
            let text = format!("servers hold {held} permits, and {given} are given out");
            self.violate("permits", text);
        }
    }

    /// Checks that each connection's waiting and held bytes are bounded.
    fn check_memory(&mut self, process: usize, at: usize) {
        let worker = &mut self.processes[process].workers[at];
        let (count, queued) = (worker.sockets().len(), worker.sockets().output_memory());
        let held = worker.decisions().pooler.census().held;
        // The bytes received while a stop was under way, and one message that Howdah made.
        let bound = (1 << 20) + count * (HIGH_WATER + SLACK);
        if queued > bound {
            self.violate(
                "memory",
                format!("{queued} bytes to be sent to {count} connections"),
            );
        }
        if held > count * (HIGH_WATER + SLACK + LONGEST) {
            self.violate(
                "memory",
                format!("{held} bytes held back of {count} connections"),
            );
        }
    }

    /// Checks that no client is overtaken again and again by clients of other workers or, under two
    /// limits, by clients of other pools.
    fn check_fairness(&mut self, process: usize, at: usize) {
        let (now, mut unfair) = (self.now(), None);
        let workers = &mut self.processes[process].workers;
        let served = std::mem::take(&mut workers[at].decisions().served);
        for served in served {
            for (index, other) in workers.iter_mut().enumerate() {
                let waiters = other.decisions().waiters();
                if self.scenario.contest {
                    for waiter in waiters.iter().filter(|w| share_a_bound(w, &served)) {
                        let (there, here) = (now - waiter.since.0, now - served.since.0);
                        if there <= here + (here / 2).max(TOLD) + TOLD {
                            continue;
                        }
                        let key = (index, waiter.client, waiter.since);
                        if tally(&mut self.outwaited, key, now) > UNFAIR_TO_POOLS {
                            unfair = Some(format!(
                                "{waiter:?} of worker {index} starves, now by {served:?} of \
                                 worker {at}"
                            ));
                        }
                    }
                }
                let same = |w: &&Waiter| w.login == served.login && w.target == served.target;
                for waiter in waiters.iter().filter(same) {
                    let slack = (now - waiter.since.0) / 8 + TOLD;
                    if waiter.since.0 + slack < served.since.0 {
                        let key = (index, waiter.client, waiter.since);
                        let times = tally(&mut self.overtaken, key, now);
                        if times > UNFAIR {
                            unfair = Some(format!(
                                "{waiter:?} of worker {index} is overtaken for the {times}th \
                                 time, now by {served:?} of worker {at}"
                            ));
                        }
                    }
                }
            }
        }
        // If logins fail, a worker asks for no servers for some time. The same holds while it is
        // paused, and a pause begins and ends at another time on each worker.
        let faults = self.scenario.faults;
        let calm = self.scenario.strict_limits && faults.orders + faults.takeovers == 0;
        if let Some(text) = unfair.filter(|_| calm) {
            self.violate("order", text);
        }
    }

    fn pass_time(&mut self, activity: u64) {
        let mut world = self.world.borrow_mut();
        let small = world.chance.number() % 40_000;
        world.now.0 += small;
        let workers = || self.processes.iter().flat_map(|p| &p.workers);
        let moved = world.activity != activity || workers().any(Worker::has_mail);
        // By chance, all actors may have taken no step.
        let patience = if self.quiet { 1 } else { 3 };
        self.idle_turns = if moved { 0 } else { self.idle_turns + 1 };
        if self.idle_turns < patience {
            return;
        }
        self.idle_turns = 0;
        let alarm = world.next_alarm();
        let due = workers().filter_map(Worker::next_deadline);
        if let Some(next) = due.chain(alarm).min() {
            // A host that has taken no step by chance is not silent: no client loses it.
            let is_safe = self.scenario.roles.is_some() && self.scenario.faults.mishaps == 0;
            let most = if is_safe { 20 * MILLI } else { u64::MAX };
            let next = next.min(Time(world.now.0.saturating_add(most)));
            world.now = world.now.max(next);
        }
    }
}

/// The address of the console's unix socket.
fn console() -> Address {
    Address::Unix("/run".into(), 6432)
}

/// The addresses at which a process accepts.
fn fronts(scenario: &Scenario) -> Vec<Address> {
    match scenario.faults.takeovers {
        0 => vec![address(6432)],
        _ => vec![address(6432), console()],
    }
}

/// By worker, client and time since when it waits: how often it was overtaken, and when last.
type Overtaken = HashMap<(usize, ClientId, Time), (u32, u64)>;

/// Counts one more time, unless it may be the same as the last one. Returns the count.
fn tally(overtaken: &mut Overtaken, who: (usize, ClientId, Time), now: u64) -> u32 {
    let (times, last) = overtaken.entry(who).or_insert((1, now));
    if now > *last + TOLD {
        (*times, *last) = (*times + 1, now);
    }
    *times
}

/// True for two clients of different pools with the same database or the same user.
fn share_a_bound(one: &Waiter, other: &Waiter) -> bool {
    let (one, other) = (&one.login, &other.login);
    one != other && (one.database == other.database || one.user == other.user)
}
