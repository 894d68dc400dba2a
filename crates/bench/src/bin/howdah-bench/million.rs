//! As many idle clients as the machine can have, a few at work among them: what the idle ones take, and
//! whether those at work notice them.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use howdah_bench::session::{message, startup};
use rustix::event::epoll;
use serde_json::{Value, json};

use crate::machine::{Machine, free_port, raise_descriptor_limit};
use crate::postgres::{PASSWORD, Postgres, USER};
use crate::process::Process;
use crate::run::{progress, progress_ends};
use crate::target::{PATIENCE, Running, configured};

const HOWDAH: &str = include_str!("../../../configs/million/howdah.ini");

/// Clients at work among all the others.
const AT_WORK: usize = 1000;
/// Requests a second of all clients at work. Far from what two cores can do: waits are of the crowd,
/// not of a queue.
const RATE: u64 = 5000;
/// Clients that log in at once.
const WAVE: usize = 250;
/// Descriptors that a process needs beside those of its clients.
const SPARE: u64 = 1000;
/// What the kernel and both programs need for a client's connection with both its ends, in
/// kilobytes. Seen: 7.
const KILOBYTES: u64 = 8;
/// How long the crowd rests while its processor time is counted.
const REST: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// All clients.
    pub clients: usize,
    /// Howdah's worker threads.
    pub workers: usize,
    /// The driver.
    pub epoll: bool,
    /// The length of each of the two phases of work.
    pub seconds: u64,
}

/// What was measured.
pub struct Outcome {
    choice: Choice,
    logins_per_second: f64,
    /// Anonymous memory of Howdah for each idle client, in bytes.
    bytes_per_client: f64,
    /// Processor time of Howdah while nobody works, in milliseconds a second.
    rest: f64,
    few: Waits,
    all: Waits,
}

/// How long those at work waited, in milliseconds, and how long scrapes of the metrics took.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    median: f64,
    most_of_all: f64,
    longest: f64,
    scrape: f64,
}

/// What the machine lacks for so many clients, a line each with its remedy.
pub fn lacks(clients: usize) -> Vec<String> {
    let clients = clients as u64;
    let number = |path: &str| {
        let text = fs::read_to_string(path).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    let mut lacks = Vec::new();
    let mut needs = |what: &str, path: &str, wanted: u64| {
        if let Some(has) = number(path).filter(|has| *has < wanted) {
            let name = path.trim_start_matches("/proc/sys/").replace('/', ".");
            lacks.push(format!(
                "{what}: {name} is {has}; sysctl -w {name}={wanted}"
            ));
        }
    };
    needs(
        "descriptors of a process",
        "/proc/sys/fs/nr_open",
        clients + SPARE,
    );
    needs(
        "descriptors of the machine",
        "/proc/sys/fs/file-max",
        2 * (clients + SPARE),
    );
    let tracked = "/proc/sys/net/netfilter/nf_conntrack_max";
    needs("connections that are tracked", tracked, clients + SPARE);
    let limit = raise_descriptor_limit(clients + SPARE);
    if limit < clients + SPARE {
        lacks.push(format!(
            "descriptors of a process: the limit is {limit}; ulimit -n {} as root",
            clients + SPARE
        ));
    }
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = { memory.lines() }.find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    if let Some(free) = free.filter(|free| *free < clients * KILOBYTES) {
        lacks.push(format!(
            "memory: {} MB are free, {} MB are needed; fewer --clients",
            free >> 10,
            (clients * KILOBYTES) >> 10
        ));
    }
    lacks
}

/// Plays the crowd.
///
/// # Errors
/// The machine lacks something, a program can't be started, or a client is refused.
pub fn measure(
    machine: &Machine,
    postgres: &Postgres,
    howdah: &Path,
    choice: Choice,
) -> io::Result<Outcome> {
    let lacks = lacks(choice.clients);
    if !lacks.is_empty() {
        let lacks = lacks.join("\n  ");
        return Err(io::Error::other(format!(
            "this machine can't have {} clients:\n  {lacks}",
            choice.clients
        )));
    }
    let (port, http_port) = (free_port()?, free_port()?);
    let own = [
        ("{workers}", choice.workers.to_string()),
        (
            "{io_driver}",
            if choice.epoll { "epoll" } else { "io_uring" }.into(),
        ),
        ("{http_port}", http_port.to_string()),
        ("{password}", PASSWORD.into()),
    ];
    let own: Vec<_> = own.iter().map(|(name, value)| (*name, &**value)).collect();
    let mut command = configured(machine, postgres, howdah, port, HOWDAH, &own)?;
    let mut howdah = Running::of(&mut command, port, machine)?;
    howdah.await_login(USER, PATIENCE)?;
    let process = howdah.process().expect("Howdah was started");

    let mut crowd = Crowd::new(port);
    crowd.grow(AT_WORK.min(choice.clients))?;
    progress("1,000 clients at work, no others");
    crowd.work(Duration::from_secs(2), http_port)?;
    let few = crowd.work(Duration::from_secs(choice.seconds), http_port)?;

    let (before, begun) = (anonymous_kilobytes(process), Instant::now());
    let added = choice.clients.saturating_sub(crowd.clients.len());
    crowd.grow(choice.clients)?;
    let logins_per_second = added as f64 / begun.elapsed().as_secs_f64();
    let grown = anonymous_kilobytes(process).saturating_sub(before);

    progress("the crowd rests");
    let mut meter = process.meter();
    let from = meter.nanoseconds()?;
    thread::sleep(REST);
    let rest = (meter.nanoseconds()? - from) as f64 / 1e6 / REST.as_secs_f64();

    progress("1,000 clients at work, all the others idle");
    let all = crowd.work(Duration::from_secs(choice.seconds), http_port)?;
    progress_ends();
    Ok(Outcome {
        choice,
        logins_per_second,
        bytes_per_client: grown as f64 * 1024.0 / added.max(1) as f64,
        rest,
        few,
        all,
    })
}

/// Memory that belongs to the process alone.
fn anonymous_kilobytes(process: &Process) -> u64 {
    process.memory_kilobytes("RssAnon:")
}

struct Crowd {
    port: u16,
    clients: Vec<TcpStream>,
}

impl Crowd {
    fn new(port: u16) -> Crowd {
        let clients = Vec::new();
        Crowd { port, clients }
    }

    /// Logs clients in until there are so many.
    fn grow(&mut self, to: usize) -> io::Result<()> {
        let hello = startup(USER, USER);
        while self.clients.len() < to {
            let from = self.clients.len();
            for number in from..to.min(from + WAVE) {
                // Each address of the loopback has ports of its own.
                let address = [127, 0, 1 + (number >> 14 >> 8) as u8, (number >> 14) as u8];
                let mut client = TcpStream::connect(SocketAddr::from((address, self.port)))?;
                client.set_nodelay(true)?;
                client.write_all(&hello)?;
                self.clients.push(client);
            }
            for client in &mut self.clients[from..] {
                client.set_read_timeout(Some(Duration::from_secs(60)))?;
                read_until_ready(client)?;
            }
            if self.clients.len().is_multiple_of(40 * WAVE) {
                progress(&format!("{} clients", self.clients.len()));
            }
        }
        Ok(())
    }

    /// The first clients ask in turn, at a fixed rate, and the metrics are read once a second.
    fn work(&mut self, length: Duration, http_port: u16) -> io::Result<Waits> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let scraping = scope.spawn(|| scrape_until(&over, http_port));
            let waits = ask(&mut self.clients[..], length);
            over.store(true, Ordering::Relaxed);
            let scrape = scraping.join().expect("it does not panic")?;
            Ok(Waits { scrape, ..waits? })
        })
    }
}

/// Sends a request of the next client whenever one is due, and reads answers.
fn ask(clients: &mut [TcpStream], length: Duration) -> io::Result<Waits> {
    // Those at work are spread over all slots.
    let step = clients.len().div_ceil(AT_WORK).max(1);
    let mut workers: Vec<_> = clients.iter_mut().step_by(step).collect();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, client) in workers.iter().enumerate() {
        client.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&epoll, client, data, epoll::EventFlags::IN)?;
    }
    let request = message(b'Q', b"SELECT 1\0");
    let mut asked: Vec<VecDeque<Instant>> = vec![VecDeque::new(); workers.len()];
    let (begun, mut sent, mut open) = (Instant::now(), 0_u64, 0_usize);
    let mut waits = Vec::new();
    let mut events = Vec::with_capacity(256);
    loop {
        let now = begun.elapsed();
        let due = (now.min(length).as_nanos() as u64) * RATE / 1_000_000_000;
        while sent < due {
            let who = sent as usize % workers.len();
            workers[who].write_all(&request)?;
            asked[who].push_back(begun + Duration::from_nanos(sent * 1_000_000_000 / RATE));
            (sent, open) = (sent + 1, open + 1);
        }
        if now > length && open == 0 {
            break;
        }
        if now > length + Duration::from_secs(60) {
            return Err(io::Error::other(format!(
                "{open} requests are not answered"
            )));
        }
        events.clear();
        let turn = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 200_000,
        };
        epoll::wait(
            &epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&turn),
        )?;
        for event in &events {
            let who = event.data.u64() as usize;
            let answers = read_answers(workers[who])?;
            for _ in 0..answers {
                let at = asked[who]
                    .pop_front()
                    .ok_or_else(|| io::Error::other("unasked"))?;
                waits.push(at.elapsed().as_secs_f64() * 1000.0);
                open -= 1;
            }
        }
    }
    for client in workers {
        client.set_nonblocking(false)?;
    }
    waits.sort_by(f64::total_cmp);
    let at = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize];
    Ok(Waits {
        median: at(0.5),
        most_of_all: at(0.99),
        longest: at(1.0),
        scrape: 0.0,
    })
}

/// How many whole answers to `SELECT 1` came. An answer is so short that it comes in one piece.
fn read_answers(client: &mut TcpStream) -> io::Result<usize> {
    let mut bytes = [0; 4096];
    let read = client.read(&mut bytes)?;
    let ready = b"Z\0\0\0\x05I";
    let answers = bytes[..read].windows(6).filter(|six| six == ready).count();
    if answers == 0 || !bytes[..read].ends_with(ready) {
        let words = String::from_utf8_lossy(&bytes[..read]);
        return Err(io::Error::other(format!("a client got {words:?}")));
    }
    Ok(answers)
}

/// Reads a login's answers.
fn read_until_ready(client: &mut TcpStream) -> io::Result<()> {
    let mut came = Vec::new();
    let mut bytes = [0; 2048];
    while !came.ends_with(b"Z\0\0\0\x05I") {
        let read = client.read(&mut bytes)?;
        if read == 0 {
            let words = String::from_utf8_lossy(&came);
            return Err(io::Error::other(format!("a client is refused: {words:?}")));
        }
        came.extend_from_slice(&bytes[..read]);
    }
    Ok(())
}

/// Reads the metrics once a second. Returns the longest time that this took, in milliseconds.
fn scrape_until(over: &AtomicBool, port: u16) -> io::Result<f64> {
    let (mut longest, mut next) = (0.0_f64, Instant::now());
    while !over.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            next += Duration::from_secs(1);
            let begun = Instant::now();
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.write_all(
                b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
            )?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            if !text.contains("howdah_") {
                return Err(io::Error::other(format!("no metrics: {text:.200}")));
            }
            longest = longest.max(begun.elapsed().as_secs_f64() * 1000.0);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(longest)
}

/// The figures for people.
pub fn shown(outcome: &Outcome) -> String {
    let Outcome {
        choice, few, all, ..
    } = outcome;
    let line = |name: &str, waits: &Waits| {
        format!(
            "{name:<34} {:>9.2} {:>9.2} {:>9.2} {:>11.2}\n",
            waits.median, waits.most_of_all, waits.longest, waits.scrape
        )
    };
    let mut text = format!(
        "{} clients, {} workers, {}: {:.0} logins a second, {:.0} bytes of memory for each idle client, \
         {:.2} ms of processor time a second at rest\n\n",
        choice.clients,
        choice.workers,
        if choice.epoll { "epoll" } else { "io_uring" },
        outcome.logins_per_second,
        outcome.bytes_per_client,
        outcome.rest
    );
    text.push_str(&format!(
        "{:<34} {:>9} {:>9} {:>9} {:>11}\n",
        "1,000 at work, 5,000 requests/s", "50 %, ms", "99 %", "longest", "a scrape"
    ));
    text.push_str(&line("no others", few));
    text.push_str(&line("all the others idle", all));
    text
}

/// The figures for machines.
pub fn json(outcome: &Outcome) -> Value {
    let waits = |waits: &Waits| {
        json!({
            "p50_ms": waits.median, "p99_ms": waits.most_of_all, "max_ms": waits.longest,
            "scrape_ms": waits.scrape,
        })
    };
    json!({
        "clients": outcome.choice.clients,
        "workers": outcome.choice.workers,
        "driver": if outcome.choice.epoll { "epoll" } else { "io_uring" },
        "logins_per_second": outcome.logins_per_second,
        "bytes_per_idle_client": outcome.bytes_per_client,
        "rest_ms_per_second": outcome.rest,
        "few": waits(&outcome.few),
        "all": waits(&outcome.all),
    })
}
