//! Rows that pgbench alone can't measure: thousands of clients, and logins.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use howdah_bench::scram::Credentials;
use howdah_bench::session::{Session, message};

use crate::clock::Clock;
use crate::load::{Load, Protocol, Reading, Way};
use crate::machine::Machine;
use crate::postgres::{PASSWORD, Postgres, USER};
use crate::process::{Process, established, wait_until};
use crate::target::{POOL, Running};

/// How many clients ask at once while the idle clients connect.
const WAVE: usize = 200;
/// Bytes of the row that each client fetches in the burst.
const LARGE_ROW: usize = 256 * 1024;

/// Durations of transactions, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// The figures of the whole run.
    pub reading: Reading,
    /// The 50th, 95th, 99th and 99.9th percentile, and the longest.
    pub percentiles: [f64; 5],
}

/// The names of [`Waits::percentiles`].
pub const PERCENTILES: [&str; 5] = ["p50", "p95", "p99", "p99.9", "max"];

/// Runs all `clients` at once.
///
/// # Errors
/// As [`Load::run`].
pub fn active(
    machine: &Machine,
    postgres: &Postgres,
    target: &Running,
    clients: usize,
    seconds: u64,
) -> io::Result<Waits> {
    let prefix = format!("transactions-{}", target.port());
    let flags = vec!["-l".to_owned(), format!("--log-prefix={prefix}")];
    let load = Load {
        way: Way::default(),
        protocol: Protocol::Simple,
        clients,
        seconds,
        flags,
    };
    forget_waits(machine.folder(), &prefix)?;
    let reading = load.run(machine, postgres, target)?;
    let percentiles = read_waits(machine.folder(), &prefix, clients)?;
    let percentiles =
        percentiles.ok_or_else(|| io::Error::other("pgbench logged no transaction"))?;
    Ok(Waits {
        reading,
        percentiles: percentiles.percentiles,
    })
}

/// The figures from pgbench's logs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logged {
    /// Milliseconds at the [`PERCENTILES`].
    pub percentiles: [f64; 5],
    /// Transactions of the client that was served least, as a share of the median client's. Only
    /// valid if all transactions were logged.
    pub fairness: Option<f64>,
    /// The same of the client that was served most. None if the median client was never served.
    pub most_served: Option<f64>,
    /// The number of logged transactions.
    pub count: u64,
}

/// The least number of logged transactions per client that makes a comparison useful.
const ENOUGH: usize = 50;

/// pgbench's logs: named by prefix, process, and perhaps thread.
fn logs(folder: &Path, prefix: &str) -> io::Result<Vec<PathBuf>> {
    let prefix = format!("{prefix}.");
    let entries = fs::read_dir(folder)?.flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    Ok(ours.map(|entry| entry.path()).collect())
}

/// Removes the logs of a failed run.
///
/// # Errors
/// A log can't be removed.
pub fn forget_waits(folder: &Path, prefix: &str) -> io::Result<()> {
    logs(folder, prefix)?
        .into_iter()
        .try_for_each(fs::remove_file)
}

/// Reads durations and clients of transactions from pgbench's logs with this prefix, and removes
/// the logs. A client without a transaction counts as served zero times. None if nothing was logged.
///
/// # Errors
/// A log can't be read, or names more clients than these.
pub fn read_waits(folder: &Path, prefix: &str, clients: usize) -> io::Result<Option<Logged>> {
    let mut waits = Vec::new();
    let mut served = vec![0_usize; clients];
    for path in logs(folder, prefix)? {
        let log = fs::read_to_string(&path)?;
        if !(log.is_empty() || log.ends_with('\n')) {
            return Err(io::Error::other(
                "pgbench's log of transactions is cut off: is the disk full?",
            ));
        }
        for line in log.lines() {
            // client, transaction, microseconds, ...
            let mut words = line.split(' ');
            let client = words.next().and_then(|word| word.parse::<usize>().ok());
            let time = words.nth(1).and_then(|word| word.parse::<f64>().ok());
            if let (Some(client), Some(time)) = (client, time) {
                waits.push(time / 1000.0);
                *served.get_mut(client).ok_or_else(|| {
                    io::Error::other(format!("pgbench logged client {client} of {clients}"))
                })? += 1;
            }
        }
        fs::remove_file(&path)?;
    }
    waits.sort_by(f64::total_cmp);
    let Some(last) = waits.len().checked_sub(1) else {
        return Ok(None);
    };
    let at = |part: f64| waits[(last as f64 * part) as usize];
    served.sort_unstable();
    let middle = served[clients / 2] as f64;
    let comparable = clients > 2 && waits.len() >= ENOUGH * clients;
    // In thousandths, which a record gives back as they were.
    let part = |served: usize| (served as f64 / middle.max(1.0) * 1000.0).round() / 1000.0;
    Ok(Some(Logged {
        percentiles: [at(0.5), at(0.95), at(0.99), at(0.999), at(1.0)],
        count: waits.len() as u64,
        fairness: comparable.then(|| part(served[0])),
        most_served: (comparable && middle > 0.0).then(|| part(served[clients - 1])),
    }))
}

/// A pooler's memory in several stages, in kilobytes.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// The number of clients.
    pub clients: usize,
    /// With one client, after its transactions.
    pub before: u64,
    /// With all clients idle, after one prepared transaction each.
    pub idle: u64,
    /// With all clients idle, after each has fetched a large row.
    pub after_burst: u64,
}

impl Growth {
    /// Bytes per idle client.
    pub fn per_client(&self) -> f64 {
        self.bytes(self.idle)
    }

    /// Bytes per idle client after the burst.
    pub fn per_client_after_burst(&self) -> f64 {
        self.bytes(self.after_burst)
    }

    fn bytes(&self, kilobytes: u64) -> f64 {
        (kilobytes as f64 - self.before as f64) * 1024.0 / self.clients as f64
    }
}

/// Connects `clients`. Each runs a prepared transaction, and later fetches a large row.
///
/// # Errors
/// A client is refused or gets an error.
pub fn idle_memory(target: &Running, pooler: &Process, clients: usize) -> io::Result<Growth> {
    let mut credentials = Credentials::new(PASSWORD);
    let open =
        |credentials: &mut Credentials| Session::connect(target.address(), USER, USER, credentials);
    let large = format!("SELECT repeat('x', {LARGE_ROW})\0");
    let large = message(b'Q', large.as_bytes());
    // These clients fill the pool, so that the memory of servers is not counted.
    let mut first: Vec<_> = (0..POOL)
        .map(|_| open(&mut credentials))
        .collect::<io::Result<_>>()?;
    ask(&mut first, &prepared_transaction())?;
    first.drain(1..).try_for_each(Session::terminate)?;
    wait_until(Duration::from_secs(10), || established(target.port()) == 1);
    let before = settled(pooler);
    let mut crowd = Vec::with_capacity(clients);
    while crowd.len() < clients {
        let wave = WAVE.min(clients - crowd.len());
        let mut wave: Vec<_> = (0..wave)
            .map(|_| open(&mut credentials))
            .collect::<io::Result<_>>()?;
        ask(&mut wave, &prepared_transaction())?;
        crowd.extend(wave);
    }
    let idle = settled(pooler);
    for wave in crowd.chunks_mut(WAVE) {
        ask(wave, &large)?;
    }
    let after_burst = settled(pooler);
    crowd
        .into_iter()
        .chain(first)
        .try_for_each(Session::terminate)?;
    Ok(Growth {
        clients,
        before,
        idle,
        after_burst,
    })
}

/// Sends to all sessions, then reads from all. Each must get one row.
///
/// # Errors
/// A connection fails, or a client gets an error or another number of rows.
pub fn ask(sessions: &mut [Session], request: &[u8]) -> io::Result<()> {
    sessions
        .iter_mut()
        .try_for_each(|session| session.send(request))?;
    for session in sessions {
        let rows = session.read_until_ready()?;
        if rows != 1 {
            return Err(io::Error::other(format!("{rows} rows instead of one")));
        }
    }
    Ok(())
}

/// Parse, Bind, Describe, Execute and Sync of a named statement.
fn prepared_transaction() -> Vec<u8> {
    let text = b"P0\0SELECT abalance FROM pgbench_accounts WHERE aid = $1\0\0\0";
    let parameter = b"\0P0\0\0\0\0\x01\0\0\0\x017\0\0";
    let bind = message(b'B', parameter);
    let execute = message(b'E', b"\0\0\0\0\0");
    [
        message(b'P', text),
        bind,
        message(b'D', b"P\0"),
        execute,
        message(b'S', b""),
    ]
    .concat()
}

/// The resident memory in kilobytes once it has stopped changing; waits ten seconds at most.
pub fn settled(pooler: &Process) -> u64 {
    let mut last = pooler.resident_kilobytes();
    let mut since = Instant::now();
    wait_until(Duration::from_secs(10), || {
        sleep(Duration::from_millis(90));
        let now = pooler.resident_kilobytes();
        if now != std::mem::replace(&mut last, now) {
            since = Instant::now();
        }
        since.elapsed() > Duration::from_secs(1)
    });
    last
}

/// The pooler's processor time for connection, SCRAM login and Terminate, in microseconds, and the
/// clock of that figure.
///
/// # Errors
/// A login is refused.
pub fn login_cpu(target: &Running, pooler: &Process, logins: usize) -> io::Result<(f64, Clock)> {
    let mut credentials = Credentials::new(PASSWORD);
    let mut log_in = || {
        let session = Session::connect(target.address(), USER, USER, &mut credentials)?;
        session.terminate()
    };
    let all_gone = || wait_until(Duration::from_secs(10), || established(target.port()) == 0);
    (0..50).try_for_each(|_| log_in())?;
    all_gone();
    let mut meter = pooler.meter();
    let before = meter.nanoseconds()?;
    (0..logins).try_for_each(|_| log_in())?;
    all_gone();
    let spent = meter.nanoseconds()? - before;
    Ok((spent as f64 / 1000.0 / logins as f64, meter.clock()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_one_prefix_are_read_and_go() {
        let folder = std::env::temp_dir().join(format!("waits-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("waits-543.7", "0 0 1000 0 1 2\n1 0 3000 0 1 2\n");
        write("waits-543.7.1", "2 0 2000 0 1 2\n");
        write("waits-5432.8", "0 0 999000 0 1 2\n");
        let told = read_waits(&folder, "waits-543", 3).unwrap().unwrap();
        assert_eq!((told.count, told.percentiles[4]), (3, 3.0));
        assert_eq!(told.percentiles[0], 2.0);
        assert_eq!(told.fairness, None, "too few");
        assert_eq!(read_waits(&folder, "waits-543", 3).unwrap(), None);
        write("waits-543.9", "0 0 1000 0 1 2\n1 0 30");
        let error = read_waits(&folder, "waits-543", 3).unwrap_err().to_string();
        assert!(error.contains("cut off"), "{error}");
        forget_waits(&folder, "waits-543").unwrap();
        assert_eq!(read_waits(&folder, "waits-543", 3).unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn fairness_is_the_least_served_clients() {
        let folder = std::env::temp_dir().join(format!("fair-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let served = [(0, 120), (1, 100), (2, 60)];
        let lines = served.map(|(client, times)| format!("{client} 0 1000 0 1 2\n").repeat(times));
        fs::write(folder.join("w.1"), lines.concat()).unwrap();
        let told = read_waits(&folder, "w", 3).unwrap().unwrap();
        assert_eq!((told.fairness, told.most_served), (Some(0.6), Some(1.2)));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn clients_that_were_never_served_count() {
        let folder = std::env::temp_dir().join(format!("starved-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let log = || fs::write(folder.join("w.1"), "3 0 1000 0 1 2\n".repeat(400)).unwrap();
        log();
        let error = read_waits(&folder, "w", 3).unwrap_err().to_string();
        assert!(error.contains("client 3 of 3"), "{error}");
        log();
        let told = read_waits(&folder, "w", 5).unwrap().unwrap();
        assert_eq!((told.fairness, told.most_served), (Some(0.0), None));
        fs::remove_dir_all(&folder).unwrap();
    }
}
