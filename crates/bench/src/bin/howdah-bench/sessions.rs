//! Cells with our own sessions as clients, for work that pgbench can't play: COPY, and clients of
//! many databases.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use howdah_bench::scram::Credentials;
use howdah_bench::session::Session;
use howdah_bench::session::copy::copy_data;
use howdah_bench::session::message;

use crate::clock::Clock;
use crate::design::{Cell, Script};
use crate::postgres::OPEN_USER;
use crate::process::{Meter, Process, wait_until};
use crate::record::Figures;
use crate::target::Running;

/// How many clients of a thread ask before the first answer is read.
const AT_ONCE: usize = 10;
/// The time limit for the first answer of all clients.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time of work before the measurement begins.
const WARM: Duration = Duration::from_millis(500);
/// The lines of a COPY, and the bytes of a line with its newline: a megabyte.
const LINES: usize = 1000;
const LINE: usize = 1000;
/// Lines in a CopyData message. psql's messages are about as long.
const LINES_EACH: usize = 8;

const COPY_IN: &str = "COPY copied FROM STDIN WHERE false";
const COPY_OUT: &str = "COPY (SELECT repeat('x', 999) FROM generate_series(1, 1000)) TO STDOUT";

/// Plays a cell: all clients log in and ask once, then the measurement lasts this many seconds.
///
/// # Errors
/// A client is refused, gets an error or a wrong answer, or the pooler is lost.
pub fn play(cell: &Cell, running: &Running, seconds: u64) -> io::Result<Figures> {
    let address = running.address();
    if cell.script == Script::CopyIn {
        verify_copy_in(address)?;
    }
    let progress = Progress::default();
    scope(|scope| {
        let crews = parts(cell.clients, cell.threads).map(|clients| {
            let progress = &progress;
            scope.spawn(move || {
                let crew = Crew {
                    cell,
                    address,
                    names: cell.shape.names(),
                    progress,
                };
                let outcome = crew.work(clients);
                progress.ends.store(true, Relaxed);
                outcome
            })
        });
        let crews: Vec<ScopedJoinHandle<'_, io::Result<()>>> = crews.collect();
        let figures = progress.watch(crews.len(), running, seconds);
        progress.ends.store(true, Relaxed);
        for crew in crews {
            let outcome = crew.join();
            outcome.unwrap_or_else(|_| Err(io::Error::other("a thread of the load panicked")))?;
        }
        figures
    })
}

/// Distributes clients over threads.
fn parts(clients: usize, threads: usize) -> impl Iterator<Item = Range<usize>> {
    let threads = threads.clamp(1, clients.max(1));
    (0..threads).map(move |at| at * clients / threads..(at + 1) * clients / threads)
}

/// Verifies that COPY data arrives through a pooler as sent, and that a rollback removes it.
fn verify_copy_in(address: SocketAddr) -> io::Result<()> {
    let mut credentials = Credentials::new("");
    let mut session =
        Session::connect(address, OPEN_USER, crate::postgres::USER, &mut credentials)?;
    let run = |session: &mut Session, query: &str| {
        session.send(&message(b'Q', format!("{query}\0").as_bytes()))?;
        session.read_until_ready()
    };
    run(
        &mut session,
        "CREATE UNLOGGED TABLE IF NOT EXISTS copied (line text)",
    )?;
    run(&mut session, "BEGIN")?;
    let data = copy_data(LINES, LINE, LINES_EACH);
    let said = session.copy_in("COPY copied FROM STDIN", &data)?;
    right(said == "COPY 1000")?;
    let there = session.value("SELECT count(*) || ' ' || sum(length(line)) FROM copied")?;
    right(there == "1000 999000")?;
    run(&mut session, "ROLLBACK")?;
    session.terminate()
}

fn right(is: bool) -> io::Result<()> {
    if is {
        Ok(())
    } else {
        Err(io::Error::other("answers are not right"))
    }
}

/// The progress of all threads.
#[derive(Default)]
struct Progress {
    /// Threads with clients that have all had an answer.
    ready: AtomicUsize,
    /// Transactions of the clients.
    done: AtomicU64,
    /// The run is over.
    ends: AtomicBool,
}

impl Progress {
    fn watch(&self, crews: usize, running: &Running, seconds: u64) -> io::Result<Figures> {
        let ends = || self.ends.load(Relaxed);
        let ready = || self.ready.load(Relaxed) == crews;
        wait_until(PATIENCE, || ready() || ends());
        if !ready() {
            return Err(io::Error::other("never had all clients an answer"));
        }
        sleep(WARM);
        let mut meter = running.process().map(Process::meter);
        let mut used = || meter.as_mut().map(Meter::nanoseconds).transpose();
        let (began, before, first) = (Instant::now(), used()?, self.done.load(Relaxed));
        wait_until(Duration::from_secs(seconds), ends);
        let (elapsed, after) = (began.elapsed(), used()?);
        let done = self.done.load(Relaxed) - first;
        if done == 0 {
            return Err(io::Error::other("not one transaction was done in time"));
        }
        let each = after.zip(before);
        let each = each.map(|(after, before)| (after - before) as f64 / 1000.0 / done as f64);
        let by = |clock| each.filter(|_| meter.as_ref().map(Meter::clock) == Some(clock));
        Ok(Figures {
            tps: done as f64 / elapsed.as_secs_f64(),
            cpu: by(Clock::Task),
            account: by(Clock::Account),
            resident: running.process().map(Process::resident_kilobytes),
            ..Figures::default()
        })
    }
}

/// The clients of one thread.
struct Crew<'a> {
    cell: &'a Cell,
    address: SocketAddr,
    names: Vec<String>,
    progress: &'a Progress,
}

impl Crew<'_> {
    /// Works until the run is over.
    fn work(&self, clients: Range<usize>) -> io::Result<()> {
        if self.cell.reconnect {
            self.log_in_and_out(clients)
        } else {
            self.stay(clients)
        }
    }

    fn open(&self, client: usize, credentials: &mut Credentials) -> io::Result<Session> {
        let name = &self.names[client % self.names.len()];
        let mut session = Session::connect(self.address, OPEN_USER, name, credentials)?;
        let told = session.value(&format!("select {client}"))?;
        right(told == client.to_string())?;
        Ok(session)
    }

    /// Each transaction has its own connection. The clients' databases take turns.
    fn log_in_and_out(&self, clients: Range<usize>) -> io::Result<()> {
        let mut credentials = Credentials::new("");
        let mut log_in = |client| self.open(client, &mut credentials)?.terminate();
        // Every pool has its server before the measurement begins.
        clients.clone().try_for_each(&mut log_in)?;
        self.progress.ready.fetch_add(1, Relaxed);
        for client in clients.cycle() {
            if self.progress.ends.load(Relaxed) {
                break;
            }
            log_in(client)?;
            self.progress.done.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// All clients stay connected, and ask in turn.
    fn stay(&self, clients: Range<usize>) -> io::Result<()> {
        let mut credentials = Credentials::new("");
        let sessions = clients.map(|client| self.open(client, &mut credentials));
        let mut sessions = sessions.collect::<io::Result<Vec<_>>>()?;
        self.progress.ready.fetch_add(1, Relaxed);
        let data = copy_data(LINES, LINE, LINES_EACH);
        let at_once = match self.cell.script {
            Script::CopyIn | Script::CopyOut => 1,
            _ => AT_ONCE,
        };
        while !self.progress.ends.load(Relaxed) {
            for wave in sessions.chunks_mut(at_once) {
                match (self.cell.script, &mut *wave) {
                    (Script::CopyIn, [session]) => {
                        right(session.copy_in(COPY_IN, &data)? == "COPY 0")?;
                    }
                    (Script::CopyOut, [session]) => {
                        let (bytes, said) = session.copy_out(COPY_OUT)?;
                        right((bytes, &*said) == (LINES * LINE, "COPY 1000"))?;
                    }
                    _ => ask_each(wave)?,
                }
                self.progress.done.fetch_add(wave.len() as u64, Relaxed);
                if self.progress.ends.load(Relaxed) {
                    break;
                }
            }
        }
        sessions.into_iter().try_for_each(Session::terminate)
    }
}

/// All clients ask, each for a number that is unique among them, before the first answer is read.
fn ask_each(wave: &mut [Session]) -> io::Result<()> {
    for (number, session) in wave.iter_mut().enumerate() {
        session.send(&message(b'Q', format!("select {number}\0").as_bytes()))?;
    }
    for (number, session) in wave.iter_mut().enumerate() {
        let rows = session.read_rows()?;
        right(matches!(&rows[..], [row] if *row == [number.to_string()]))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_is_in_one_part() {
        let dealt: Vec<_> = parts(10, 4).flatten().collect();
        assert_eq!(dealt, (0..10).collect::<Vec<_>>());
        assert_eq!(parts(10, 4).count(), 4);
        assert_eq!((parts(1, 4).next(), parts(1, 4).count()), (Some(0..1), 1));
    }
}
