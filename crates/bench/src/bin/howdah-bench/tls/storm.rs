//! A storm: many handshakes at once, beside clients at work.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use howdah_bench::tls::{Connector, request};
use openssl::ssl::{ErrorCode, SslStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::load::Load;
use crate::target::Running;

use super::Run;

/// How long the load is measured before the storm, and how long the storm may last.
const CALM: Duration = Duration::from_secs(3);
/// The time after which the load's clients have all logged in.
const SETTLED: Duration = Duration::from_secs(1);
/// The time limit of a storm.
const PATIENCE: Duration = Duration::from_secs(30);

/// The rise of the 99th percentile of the load's transactions, in milliseconds, during many
/// handshakes with `target`. The load offers half of the pooler's capacity.
pub fn rise(
    run: &Run,
    load: &Load,
    serving: &Running,
    target: &Running,
    connector: &Connector,
) -> io::Result<f64> {
    let capacity = load.run(run.machine, run.postgres, serving)?.tps;
    let prefix = format!("storm-{}", target.port());
    let flags = vec![
        "-l".to_owned(),
        format!("--log-prefix={prefix}"),
        format!("--rate={:.0}", capacity / 2.0),
    ];
    let load = Load {
        seconds: 2 * CALM.as_secs() + 2,
        flags,
        ..load.clone()
    };
    let count = run.choice.handshakes;
    let (storm, reading) = std::thread::scope(|scope| {
        let storm = scope.spawn(|| {
            // The clients of the storm must not delay other processes.
            let _ = rustix::process::nice(19);
            sleep(CALM);
            let connects = SystemTime::now();
            let streams = line_up(target, connector, count)?;
            let began = SystemTime::now();
            let streams = shake_hands(streams)?;
            Ok::<_, io::Error>((connects, began, SystemTime::now(), streams))
        });
        let reading = load.run(run.machine, run.postgres, serving);
        (storm.join(), reading)
    });
    reading?;
    let storm = storm.map_err(|_| io::Error::other("the storm has failed"))?;
    let (connects, began, ended, streams) = storm?;
    drop(streams);
    let waits = read_waits(run, &prefix)?;
    let micros = |at: SystemTime| {
        at.duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_micros() as u64)
    };
    let [connects, began, ended] = [connects, began, ended].map(micros);
    let first = waits.iter().map(|(at, _)| *at).min().unwrap_or(0) + SETTLED.as_micros() as u64;
    let within = |from: u64, to: u64| {
        let mut waits: Vec<_> = waits
            .iter()
            .filter(|(at, _)| (from..to).contains(at))
            .map(|(_, wait)| *wait)
            .collect();
        waits.sort_by(f64::total_cmp);
        let at = waits.len() * 99 / 100;
        waits.get(at).copied()
    };
    let few = || io::Error::other("too few transactions to tell");
    let calm = within(first, connects).ok_or_else(few)?;
    let lining_up = within(connects, began).ok_or_else(few)?;
    let stormy = within(began, ended).ok_or_else(few)?;
    crate::run::progress(&format!(
        "    p99 {calm:.2} ms, while {count} connect for {} ms {lining_up:.2}, in the storm {stormy:.2} ms; \
         {count} handshakes took {} ms; {:.0} TPS offered",
        (began - connects) / 1000,
        (ended - began) / 1000,
        capacity / 2.0,
    ));
    Ok(stormy - calm)
}

/// Opens connections that have asked for TLS and got the server's consent.
fn line_up(
    target: &Running,
    connector: &Connector,
    count: usize,
) -> io::Result<Vec<SslStream<TcpStream>>> {
    let one = |_| {
        let mut stream = TcpStream::connect(target.address())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        request(&mut stream)?;
        stream.set_nonblocking(true)?;
        Ok(SslStream::new(connector.session()?, stream)?)
    };
    (0..count).map(one).collect()
}

/// Does all handshakes at once.
fn shake_hands(mut waiting: Vec<SslStream<TcpStream>>) -> io::Result<Vec<SslStream<TcpStream>>> {
    let began = SystemTime::now();
    let mut done = Vec::new();
    let mut ready = vec![true; waiting.len()];
    while !waiting.is_empty() {
        let mut still = Vec::new();
        for (mut stream, ready) in waiting.into_iter().zip(ready) {
            if !ready {
                still.push(stream);
                continue;
            }
            match stream.connect() {
                Ok(()) => done.push(stream),
                Err(error) if error.code() == ErrorCode::WANT_READ => still.push(stream),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        waiting = still;
        if began.elapsed().is_ok_and(|passed| passed > PATIENCE) {
            return Err(io::Error::other(format!(
                "{} handshakes were not done in time",
                waiting.len()
            )));
        }
        ready = wait(&waiting)?;
    }
    Ok(done)
}

/// Waits until a stream has something to read. Returns which ones have.
fn wait(streams: &[SslStream<TcpStream>]) -> io::Result<Vec<bool>> {
    let mut polled: Vec<_> = streams
        .iter()
        .map(|stream| PollFd::from_borrowed_fd(stream.get_ref().as_fd(), PollFlags::IN))
        .collect();
    let limit = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    if !polled.is_empty() {
        poll(&mut polled, Some(&limit))?;
    }
    Ok(polled.iter().map(|one| !one.revents().is_empty()).collect())
}

/// Reads the ends of transactions (microseconds since 1970), and their durations since their
/// scheduled start (milliseconds). Removes pgbench's logs.
fn read_waits(run: &Run, prefix: &str) -> io::Result<Vec<(u64, f64)>> {
    let mut waits = Vec::new();
    for entry in std::fs::read_dir(run.machine.folder())?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            let log = std::fs::read_to_string(entry.path())?;
            waits.extend(log.lines().filter_map(read_wait));
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(waits)
}

/// A line: client, transaction, microseconds, script, second, microsecond, lag.
fn read_wait(line: &str) -> Option<(u64, f64)> {
    let mut words = line.split(' ').skip(2);
    let took: f64 = words.next()?.parse().ok()?;
    let second: u64 = words.nth(1)?.parse().ok()?;
    let microsecond: u64 = words.next()?.parse().ok()?;
    Some((second * 1_000_000 + microsecond, took / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_pgbenchs_log_is_read() {
        let read = read_wait("3 17 2500 0 1700000000 25 40");
        assert_eq!(read, Some((1_700_000_000_000_025, 2.5)));
        assert_eq!(read_wait("3 17 skipped"), None);
    }
}
