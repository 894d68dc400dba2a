//! `./prove cores`: do the rules of placing, balancing and lending use all cores?
//!
//! Workers take time for their work, on any number of virtual cores. PostgreSQL and the clients have other
//! cores. [`costs::Costs`] says how long each operation takes, with the source of each figure. The worker
//! loop, the connection layer, the `Pooler`s, the Broker, the mail and the balancer are the production code,
//! with production timers.
//!
//! **This proves the rules, not speed.** Nobody has measured here how many transactions a machine with 64
//! cores does. Caches, memory, the kernel's locks and PostgreSQL's locks are not simulated. They make each
//! figure smaller, and the rules have no influence on them.
//!
//! Each layout is compared with two figures, which are measured in the same world. The first is a bound, the
//! lesser of two sums. One sum is what all cores do if each has more servers than it can use. The other sum
//! is what all servers do if each has a worker for itself. If both sums are close to each other, even perfect
//! rules stay below the bound: at times a worker is busy while one of its servers waits, and at times the
//! worker waits while all of its servers are busy. So there is a second figure, the fixed division: as many
//! workers as the rules allow, each with its own part of the servers and clients from the start and for good,
//! and nothing to decide.

pub mod costs;
pub mod driver;
pub mod machine;
pub mod net;

use std::time::Instant;

use costs::Costs;
use machine::{Layout, Machine};
use net::Tally;

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;
/// The length of the measurement at the end, in seconds.
const MEASURED: u64 = 2;
/// The fraction of the bound that must be reached.
pub const REACHED: f64 = 0.9;
/// The number of mails per transaction that is too high.
pub const MAILS: f64 = 0.02;
/// The greatest additional time of a transaction because of a move, in nanoseconds.
pub const LATER: u64 = 20 * MILLI;

const HELP: &str = "\
usage: ./prove cores [--cores N,...] [--layout N,...] [--seconds N] [--slow N] [--flush N]
                     [--said] [--step]
  --cores N,...   these numbers of cores (1,2,4,8,16,64)
  --layout N,...  these of the layouts, from 0 (all)
  --seconds N     how long the rules have, in virtual time (20)
  --slow N        a machine that is so many times as slow, which is played sooner (1)
  --flush N       a worker hands its output to the kernel after so many events of a turn, whatever its
                  load
  --said          what the balancer said, too
  --step          only the step in load
";

/// Number of pools; servers, clients and idle clients of each; name.
const LAYOUTS: [(usize, u32, usize, usize, &str); 9] = [
    (1, 20, 80, 0, "a pool of 20"),
    (1, 40, 160, 0, "a pool of 40"),
    (1, 100, 400, 0, "a pool of 100"),
    (10, 20, 80, 0, "10 pools of 20"),
    (1000, 4, 8, 0, "1,000 pools of 4"),
    (1, 20, 80, 400, "20, 400 idle"),
    (10, 40, 160, 0, "10 pools of 40"),
    (1000, 20, 80, 0, "1,000 pools of 20"),
    (1000, 40, 160, 0, "1,000 pools of 40"),
];

struct Options {
    cores: Vec<u16>,
    layouts: Vec<usize>,
    seconds: u64,
    slow: u64,
    flush_every: Option<u32>,
    said: bool,
    step: bool,
}

/// What one core and one server do, in transactions per second.
#[derive(Clone, Copy, Debug)]
pub struct Sums {
    /// One core with more servers than it can use.
    pub core: f64,
    /// One server with a worker for itself and clients that wait for it.
    pub server: f64,
}

/// The result of a layout.
#[derive(Clone, Debug)]
pub struct Row {
    /// Transactions per second, as on a machine that is not slowed down.
    pub rate: f64,
    /// The lesser of the two sums.
    pub bound: f64,
    /// What the fixed division does.
    pub fixed: f64,
    /// Mails between workers for each transaction.
    pub mails: f64,
    /// Servers lent, for each transaction.
    pub lends: f64,
    /// Clients moved, for each transaction.
    pub moves: f64,
    /// The virtual seconds until nine tenths of the bound were first reached.
    pub reached: Option<u64>,
    /// The number of workers that have clients of the first pool.
    pub wide: usize,
    /// The number of servers of each worker.
    pub servers: Vec<u32>,
    /// The balancer's log lines.
    pub said: Vec<(u64, String)>,
}

impl Row {
    /// True if the layout reaches its targets.
    pub fn passes(&self) -> bool {
        self.rate >= REACHED * self.bound && self.mails < MAILS
    }
}

/// What one core does with these servers and clients, in transactions per second.
fn alone(servers: u32, clients: usize) -> f64 {
    let layout = Layout {
        cores: 1,
        pools: 1,
        servers,
        clients,
        ..Layout::default()
    };
    // Opening thousands of servers takes time.
    let seconds = 1 + u64::from(servers) / 10_000;
    play(&layout, 1, seconds, None).rate
}

/// Measures one core and one server.
pub fn sums() -> Sums {
    Sums {
        core: alone(100, 200),
        server: alone(1, 8),
    }
}

/// What the fixed division does. If servers can't be divided evenly, some workers have one more.
fn fixed(layout: &Layout) -> f64 {
    let servers = layout.pools as u32 * layout.servers;
    let widest = layout.pools as u32 * (layout.servers / 4).max(1);
    let workers = widest.min(u32::from(layout.cores));
    let clients = layout.pools * layout.clients / workers as usize;
    let (each, more) = (servers / workers, servers % workers);
    let less = f64::from(workers - more) * alone(each, clients);
    match more {
        0 => less,
        more => less + f64::from(more) * alone(each + 1, clients),
    }
}

/// Plays a layout for `seconds`, on a machine that is `slow` times as slow, and then measures. The
/// rules' own timers are not slowed down, so periodic mail has `slow` times its weight.
pub fn play(layout: &Layout, slow: u64, seconds: u64, sums: Option<Sums>) -> Row {
    play_beside(0, layout, slow, seconds, sums)
}

/// The same with `idle` further clients of each pool that send nothing.
pub fn play_beside(
    idle: usize,
    layout: &Layout,
    slow: u64,
    seconds: u64,
    sums: Option<Sums>,
) -> Row {
    let servers = layout.pools as f64 * f64::from(layout.servers);
    let bound = sums.map_or(0.0, |sums| {
        (f64::from(layout.cores) * sums.core).min(servers * sums.server)
    });
    let fixed = sums.map_or(f64::INFINITY, |_| fixed(layout));
    let mut machine = Machine::beside(idle, *layout, Costs::MEASURED);
    let begins = Machine::begins(idle, layout);
    machine.net.borrow_mut().begins = begins;
    machine.run(begins - SECOND / 2);
    machine.net.borrow_mut().costs = Costs::MEASURED.slower(slow);
    machine.run(begins);
    let mut reached = None;
    for second in 1..=seconds {
        machine.net.borrow_mut().tally = Tally::default();
        machine.run(begins + second * SECOND);
        let rate = machine.net.borrow().tally.transactions as f64 * slow as f64;
        if rate >= REACHED * bound {
            reached = reached.or(Some(second));
        }
    }
    let before = machine.mails();
    machine.net.borrow_mut().tally = Tally::default();
    machine.run(begins + (seconds + MEASURED) * SECOND);
    let after = machine.mails();
    let net = machine.net.borrow();
    let done = net.tally.transactions.max(1) as f64;
    let each = |after: u64, before: u64| (after - before) as f64 / done;
    let by_worker = net.clients_by_worker(0);
    Row {
        rate: net.tally.transactions as f64 * slow as f64 / MEASURED as f64,
        bound,
        fixed,
        mails: each(after.all, before.all),
        lends: each(after.lends, before.lends),
        moves: each(after.moves, before.moves),
        reached,
        wide: by_worker.iter().filter(|clients| **clients > 0).count(),
        servers: net.servers_by_worker(),
        said: machine
            .said
            .iter()
            .map(|(at, text)| (at.saturating_sub(begins), text.clone()))
            .collect(),
    }
}

/// The result of a step in load.
#[derive(Clone, Debug)]
pub struct Stepped {
    /// Milliseconds until a second worker did at least a third of the transactions.
    pub wide: Option<u64>,
    /// The longest transactions in each tenth of a second, in nanoseconds: of clients that moved
    /// meanwhile, and of the others.
    pub longest: Vec<(u64, u64)>,
    /// The number of clients that moved during a transaction.
    pub moved: u64,
    /// The durations of transactions while the pool became wider, in nanoseconds: of clients that
    /// stayed, and of clients that moved. The figures are the median, the 99th percentile, the
    /// 99.9th percentile and the longest.
    pub times: [[u64; 4]; 2],
}

/// The median, the 99th percentile, the 99.9th percentile and the longest.
fn quantiles(mut times: Vec<u64>) -> [u64; 4] {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let at = |part: usize, of: usize| times.get(last * part / of).copied().unwrap_or(0);
    [at(1, 2), at(99, 100), at(999, 1000), at(1, 1)]
}

impl Stepped {
    /// True if the step is followed within a second, and moves delay no transaction for long.
    pub fn passes(&self) -> bool {
        self.wide.is_some_and(|millis| millis <= 1000) && self.later() <= LATER
    }

    /// The greatest additional time of a transaction because of a move, compared with the longest
    /// transaction without a move at about the same time.
    pub fn later(&self) -> u64 {
        let later = self
            .longest
            .iter()
            .map(|(moved, other)| moved.saturating_sub(*other));
        later.max().unwrap_or(0)
    }
}

/// A pool of 40 servers has a load of a fifth of a core. At once, its load becomes four cores.
pub fn step(cores: u16) -> Stepped {
    let layout = Layout {
        cores,
        pools: 1,
        servers: 40,
        clients: 160,
        ..Layout::default()
    };
    let mut machine = Machine::new(layout, Costs::MEASURED);
    let begins = Machine::begins(0, &layout);
    machine.net.borrow_mut().begins = begins;
    machine.net.borrow_mut().think = 11 * MILLI;
    let steps = begins + 2 * SECOND;
    machine.run(steps);
    machine.net.borrow_mut().think = 0;
    let (mut wide, mut longest, mut moved) = (None, Vec::new(), 0);
    let mut times = [Vec::new(), Vec::new()];
    for tenth in 1..=40 {
        machine.net.borrow_mut().tally = Tally {
            each: Some(Default::default()),
            ..Tally::default()
        };
        machine.run(steps + tenth * 100 * MILLI);
        let mut net = machine.net.borrow_mut();
        let [still, others] = net.tally.each.take().unwrap_or_default();
        // While no client moves, the clients that stay have nothing to be compared with.
        if !others.is_empty() {
            times[0].extend(still);
            times[1].extend(others);
        }
        longest.push((net.tally.longest_moved, net.tally.longest_still));
        moved += net.tally.moved;
        let all: u32 = net.clients_by_worker(0).iter().sum();
        let most = net.clients_by_worker(0).into_iter().max().unwrap_or(0);
        if 3 * most <= 2 * all {
            wide = wide.or(Some(tenth * 100));
        }
    }
    Stepped {
        wide,
        longest,
        moved,
        times: times.map(quantiles),
    }
}

/// The effect of a hanging worker on the other workers.
#[derive(Clone, Copy, Debug)]
pub struct Stalled {
    /// Transactions per second of the other workers, before and meanwhile.
    pub rates: (f64, f64),
    /// The longest transaction of the other workers' clients, before and meanwhile, in nanoseconds.
    pub longest: (u64, u64),
}

/// A worker hangs for a fifth of a second. All workers serve a pool of 40 servers.
pub fn stall(cores: u16, worker: usize) -> Stalled {
    let layout = Layout {
        cores,
        pools: 1,
        servers: 40,
        clients: 160,
        ..Layout::default()
    };
    let mut machine = Machine::new(layout, Costs::MEASURED);
    let begins = Machine::begins(0, &layout);
    machine.net.borrow_mut().begins = begins;
    machine.run(begins - SECOND / 2);
    machine.net.borrow_mut().costs = Costs::MEASURED.slower(4);
    let stalls = begins + 8 * SECOND;
    machine.run(stalls);
    let before = others(&mut machine, worker, stalls + SECOND / 5);
    machine.stall(worker, stalls + 2 * SECOND / 5);
    let during = others(&mut machine, worker, stalls + 2 * SECOND / 5);
    Stalled {
        rates: (before.0, during.0),
        longest: (before.1, during.1),
    }
}

/// The transactions of all workers but one in the next fifth of a second: the number per second,
/// and the longest.
fn others(machine: &mut Machine, but: usize, until: u64) -> (f64, u64) {
    machine.net.borrow_mut().tally = Tally::default();
    machine.run(until);
    let net = machine.net.borrow();
    let (mut count, mut longest) = (0, 0);
    for (at, (transactions, most)) in net.tally.by_worker.iter().enumerate() {
        if at != but {
            count += transactions;
            longest = longest.max(*most);
        }
    }
    (count as f64 * 4.0 * 5.0, longest)
}

/// The command. Its last line is JSON. False if a target is missed.
///
/// # Errors
/// An option is unknown, or help is asked for.
pub fn command(args: impl Iterator<Item = String>) -> Result<bool, String> {
    let options = read(args).map_err(|text| format!("{text}{HELP}"))?;
    let begun = Instant::now();
    let rows = if options.step {
        Vec::new()
    } else {
        table(&options)
    };
    let several = || options.cores.iter().copied().filter(|cores| *cores > 1);
    let steps: Vec<Stepped> = several().map(tell_step).collect();
    for cores in several().filter(|cores| *cores <= 16) {
        for worker in [0, usize::from(cores) - 1] {
            tell_stall(cores, worker);
        }
    }
    let missed = rows.iter().filter(|row| !row.passes()).count()
        + steps.iter().filter(|stepped| !stepped.passes()).count();
    let least = |part: fn(&Row) -> f64| {
        let least = rows.iter().map(part).min_by(f64::total_cmp);
        least.map_or("null".into(), |least| format!("{least:.2}"))
    };
    // A step that is not followed has no time: then none is the longest.
    let wide: Option<Vec<u64>> = steps.iter().map(|stepped| stepped.wide).collect();
    let wide = wide.and_then(|times| times.into_iter().max());
    println!(
        "{{\"machine\":\"cores\",\"ok\":{},\"cells\":{},\"least_of_bound\":{},\
         \"least_of_fixed\":{},\"steps\":{},\"wide_after_ms\":{},\"missed\":{missed},\
         \"seconds\":{}}}",
        missed == 0,
        rows.len(),
        least(|row| row.rate / row.bound),
        least(|row| row.rate / row.fixed),
        steps.len(),
        wide.map_or("null".into(), |millis| millis.to_string()),
        begun.elapsed().as_secs(),
    );
    Ok(missed == 0)
}

/// Plays a step in load, and prints what comes of it.
fn tell_step(cores: u16) -> Stepped {
    let stepped = step(cores);
    println!(
        "a step in load, {cores} virtual cores (the rules, not speed): wide after {}; {} clients \
         moved during a transaction, the latest by {:.2} ms{}\n  {}",
        stepped
            .wide
            .map_or("never".into(), |millis| format!("{millis} ms")),
        stepped.moved,
        stepped.later() as f64 / MILLI as f64,
        verdict(stepped.passes()),
        distribution(&stepped.times),
    );
    stepped
}

/// The durations of transactions of clients that stayed, and of clients that moved.
fn distribution(times: &[[u64; 4]; 2]) -> String {
    let row = |times: &[u64; 4]| {
        let [median, most, nearly_all, all] = times.map(|nanos| nanos as f64 / MILLI as f64);
        format!("p50 {median:.2}, p99 {most:.2}, p99.9 {nearly_all:.2}, max {all:.2} ms")
    };
    let [still, moved] = times;
    format!("stayed: {}; moved: {}", row(still), row(moved))
}

/// A hanging worker has no target: its effect is only printed.
fn tell_stall(cores: u16, worker: usize) {
    let stalled = stall(cores, worker);
    let (before, meanwhile) = stalled.rates;
    let millis = |nanos: u64| nanos as f64 / MILLI as f64;
    println!(
        "worker {worker} of {cores} stands still for 200 ms: the others do {:.2} of what they did; \
         their longest transaction takes {:.1} ms ({:.1} before)",
        meanwhile / before,
        millis(stalled.longest.1),
        millis(stalled.longest.0)
    )
}

/// Plays the layouts on all numbers of cores, and prints a row for each.
fn table(options: &Options) -> Vec<Row> {
    let sums = sums();
    println!(
        "Virtual cores: this proves the rules, not speed. In this world a core does {:.0} \
         transactions a second,\na server {:.0}. Bound, fixed and reached are transactions a \
         second, by the costs of this world.\nBound: the lesser of the cores' and the servers' \
         sum. Fixed: what workers do that have their part of the servers for good.\nPart: \
         reached, as a fraction of the bound; then of fixed. Mails, lends and moves are for each \
         transaction.\n",
        sums.core, sums.server
    );
    println!(
        "{:18} {:>5} {:>10} {:>10} {:>10} {:>6} {:>6} {:>7} {:>7} {:>7} {:>5} {:>5}",
        "layout",
        "cores",
        "bound",
        "fixed",
        "reached",
        "part",
        "of it",
        "mails",
        "lends",
        "moves",
        "wide",
        "after",
    );
    let mut rows = Vec::new();
    for (pools, servers, clients, idle, name) in options.layouts.iter().map(|at| LAYOUTS[*at]) {
        for cores in options.cores.iter().copied() {
            let layout = Layout {
                cores,
                pools,
                servers,
                clients,
                flush_every: options.flush_every,
            };
            let row = play_beside(idle, &layout, options.slow, options.seconds, Some(sums));
            println!(
                "{name:18} {cores:>5} {:>10.0} {:>10.0} {:>10.0} {:>6.2} {:>6.2} {:>7.4} {:>7.4} \
                 {:>7.4} {:>5} {:>5}{}",
                row.bound,
                row.fixed,
                row.rate,
                row.rate / row.bound,
                row.rate / row.fixed,
                row.mails,
                row.lends,
                row.moves,
                row.wide,
                row.reached
                    .map_or("-".into(), |seconds| format!("{seconds} s")),
                verdict(row.passes())
            );
            if options.said {
                println!("    servers by worker: {:?}", row.servers);
                for (at, text) in &row.said {
                    println!("    {:7.2} s  {text}", *at as f64 / SECOND as f64);
                }
            }
            rows.push(row);
        }
    }
    rows
}

fn verdict(passes: bool) -> &'static str {
    if passes { "" } else { "  MISS" }
}

fn read(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        cores: vec![1, 2, 4, 8, 16, 64],
        layouts: (0..LAYOUTS.len()).collect(),
        seconds: 20,
        slow: 1,
        flush_every: None,
        said: false,
        step: false,
    };
    while let Some(arg) = args.next() {
        let mut numbers = || -> Result<Vec<u64>, String> {
            let text = args.next().unwrap_or_default();
            let all = text.split(',').map(|part| part.parse().ok());
            let all: Option<Vec<u64>> = all.collect();
            all.ok_or_else(|| format!("{arg} wants numbers\n"))
        };
        match arg.as_str() {
            "--cores" => {
                options.cores = numbers()?
                    .into_iter()
                    .map(|n| n.clamp(1, 1024) as u16)
                    .collect()
            }
            "--layout" => {
                let wanted = numbers()?.into_iter().map(|n| n as usize);
                options.layouts = wanted.filter(|at| *at < LAYOUTS.len()).collect();
            }
            "--slow" => options.slow = numbers()?[0].max(1),
            "--flush" => {
                let events = numbers()?[0].clamp(1, u64::from(u32::MAX));
                options.flush_every = Some(events as u32);
            }
            "--seconds" => options.seconds = numbers()?[0].max(1),
            "--said" => options.said = true,
            "--step" => options.step = true,
            "--help" | "-h" => return Err(String::new()),
            _ => return Err(format!("unknown: {arg}\n")),
        }
    }
    Ok(options)
}
