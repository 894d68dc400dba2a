//! The sample that the control thread takes of all workers once a second; less often if there are so
//! many clients that looking at all of them each second would cost.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use howdah_daemon::mailbox::{Letter, PostBox};
use howdah_pooler::config::Globals;
use howdah_pooler::console::Survey;
use howdah_pooler::console::holdings::Holdings;
use howdah_pooler::mail::Mail;
use howdah_pooler::metrics::{Memory, Process, Sight};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// A worker looks at each of its clients for a sample. With so many clients there is a sample every
/// second second, with twice as many every third, and so on up to a limit: about a hundredth of a worker's time.
const CLIENTS_EACH_SECOND: u64 = 25_000;

/// The most seconds in a row without a sample: a sample that is too old says that a worker hangs.
const RESTS_MAX: u64 = 4;

/// Asks the workers, and puts their answers together.
pub struct Sampler {
    memory: Memory,
    serial: u64,
    holdings: Vec<Holdings>,
    /// The number of workers that have not answered yet.
    awaited: usize,
    late: u64,
    /// How many more of the next seconds have no sample.
    rests: u64,
    /// The name of the machine.
    host: String,
    started: f64,
    /// Whether the last reload succeeded, and when one did last.
    reload_succeeded: bool,
    reloaded_at: f64,
}

impl Sampler {
    /// A sampler at the start of the process.
    pub fn new() -> Sampler {
        Sampler {
            memory: Memory::default(),
            serial: 0,
            holdings: Vec::new(),
            awaited: 0,
            late: 0,
            rests: 0,
            host: host_name(),
            started: now(),
            reload_succeeded: true,
            reloaded_at: now(),
        }
    }

    /// The configuration was read again, or could not be.
    pub fn reloaded(&mut self, succeeded: bool) {
        self.reload_succeeded = succeeded;
        if succeeded {
            self.reloaded_at = now();
        }
    }

    /// Asks all workers, unless a worker still owes its last answer.
    pub fn ask(&mut self, workers: &[PostBox]) {
        if self.awaited > 0 {
            self.late += 1;
            return;
        }
        if self.rests > 0 {
            self.rests -= 1;
            return;
        }
        self.serial += 1;
        self.awaited = workers.len();
        for worker in workers {
            let survey = Survey::for_metrics(self.serial);
            worker.post(Letter::Mail(Mail::Survey(survey)));
        }
    }

    /// A worker has answered. The last answer completes the sample. Further figures of the sample:
    /// whether new clients are refused, how many spans were sent and lost, and how old the oldest keys for
    /// tokens are.
    pub fn answered(
        &mut self,
        serial: u64,
        holdings: Holdings,
        (draining, spans, keys_age): (bool, (u64, u64), Option<Duration>),
        globals: &Globals,
    ) -> Option<Sight> {
        if serial != self.serial || self.awaited == 0 {
            return None;
        }
        self.holdings.push(holdings);
        self.awaited -= 1;
        if self.awaited > 0 {
            return None;
        }
        let process = Process {
            keys_age: keys_age.map(|age| age.as_secs_f64()),
            ..self.process(draining, spans, globals)
        };
        let holdings = std::mem::take(&mut self.holdings);
        let clients: u64 = holdings.iter().map(|of| u64::from(of.clients)).sum();
        self.rests = rests(clients);
        let most = globals.metrics_max_pools as usize;
        Some(self.memory.sample(now(), holdings, process, most))
    }

    fn process(&self, draining: bool, spans: (u64, u64), globals: &Globals) -> Process {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Process {
            host: self.host.clone(),
            started: self.started,
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            resident_bytes: resident_bytes().unwrap_or(0),
            open_fds: open_fds().unwrap_or(0),
            max_fds: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            max_clients: globals.max_client_conn,
            draining,
            spans_sent: spans.0,
            spans_lost: spans.1,
            late_samples: self.late,
            reload_succeeded: self.reload_succeeded,
            reloaded_at: self.reloaded_at,
            keys_age: None,
        }
    }
}

/// How many seconds have no sample after a sample of so many clients.
fn rests(clients: u64) -> u64 {
    (clients / CLIENTS_EACH_SECOND).min(RESTS_MAX)
}

/// By a system call: the unit hides most of `/proc`.
fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Newer kernels give the number as the directory's size; for older ones the entries are counted.
fn open_fds() -> Option<u64> {
    match fs::metadata("/proc/self/fd").ok()?.size() {
        0 => Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64),
        size => Some(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::STALE;

    #[test]
    fn a_sample_is_never_too_old_for_the_sake_of_many_clients() {
        assert_eq!((rests(24_999), rests(25_000), rests(75_000)), (0, 1, 3));
        assert!(Duration::from_secs(2 * (1 + rests(u64::MAX))) <= STALE);
    }
}
