//! Started programs: their end, their processor time, their memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::{Clock, TaskClock};

/// A program in the background whose output goes to a file; it ends with this value.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> io::Result<Self> {
        let output = fs::File::create(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .map_err(|error| io::Error::other(format!("{command:?}: {error}")))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// Whether it is gone.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The last lines it wrote.
    pub fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // Some write a page a line.
        let short = |line: &str| line.chars().take(200).collect::<String>();
        let lines: Vec<_> = text.lines().map(short).collect();
        lines[lines.len().saturating_sub(3)..].join(" / ")
    }

    /// Counts the processor time of it and all its children from now on.
    pub fn meter(&self) -> Meter {
        let all = tree(self.child.id()).into_iter().flat_map(threads);
        let all = all.filter_map(|thread| thread.file_name()?.to_str()?.parse().ok());
        Meter {
            root: self.child.id(),
            events: TaskClock::of(all),
        }
    }

    /// Kilobytes that it and all its children keep in memory.
    pub fn resident_kilobytes(&self) -> u64 {
        tree(self.child.id()).into_iter().map(resident_of_one).sum()
    }
}

/// Counts the processor time of a program and all its children.
pub struct Meter {
    root: u32,
    /// None where the kernel refuses: then the scheduler's account counts.
    events: Option<TaskClock>,
}

impl Meter {
    /// Which clock it reads.
    pub fn clock(&self) -> Clock {
        match self.events {
            Some(_) => Clock::Task,
            None => Clock::Account,
        }
    }

    /// Nanoseconds so far, since some moment.
    ///
    /// # Errors
    /// A counter can't be read.
    pub fn nanoseconds(&mut self) -> io::Result<u64> {
        match &mut self.events {
            Some(events) => events
                .nanoseconds()
                .ok_or_else(|| io::Error::other("the task clock can't be read")),
            None => Ok(tree(self.root).into_iter().map(cpu_of_one).sum()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(pid) = Pid::from_raw(self.child.id() as i32) else {
            return;
        };
        // SIGTERM comes first, because on SIGINT PgDoorman starts a successor that outlives the bench.
        let signals = [
            (Signal::TERM, 2),
            (Signal::INT, 5),
            (Signal::QUIT, 5),
            (Signal::KILL, 5),
        ];
        for (signal, patience) in signals {
            if self.has_ended() || kill_process(pid, signal).is_err() {
                return;
            }
            wait_until(Duration::from_secs(patience), || self.has_ended());
        }
    }
}

fn tree(root: u32) -> Vec<u32> {
    let mut processes = vec![root];
    let mut next = 0;
    while let Some(process) = processes.get(next).copied() {
        for thread in threads(process) {
            let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
            processes.extend(
                children
                    .split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
        next += 1;
    }
    processes
}

fn threads(process: u32) -> impl Iterator<Item = PathBuf> {
    let folder = fs::read_dir(format!("/proc/{process}/task"));
    folder
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// User and system time of all threads, from the scheduler's own account in nanoseconds where the
/// kernel has it, else in ticks of a hundredth of a second.
fn cpu_of_one(process: u32) -> u64 {
    let exact = threads(process).map(|thread| {
        let account = fs::read_to_string(thread.join("schedstat")).ok()?;
        account.split(' ').next()?.parse::<u64>().ok()
    });
    exact
        .sum::<Option<u64>>()
        .filter(|sum| *sum > 0)
        .unwrap_or_else(|| ticks_of_one(process))
}

fn ticks_of_one(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything; what follows it is regular. utime and stime are
    // the 12th and 13th after it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|field| field.parse::<u64>().ok())
        .sum::<u64>()
        * 10_000_000
}

fn resident_of_one(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

/// How many descriptors a process has open.
pub fn descriptors(process: u32) -> u64 {
    let folder = format!("/proc/{process}/fd");
    // Since Linux 6.2 the size of the folder tells; a count would cost as much as there are.
    let told = fs::metadata(&folder).map_or(0, |folder| folder.len());
    let count = || fs::read_dir(&folder).map_or(0, Iterator::count) as u64;
    if told > 0 { told } else { count() }
}

/// How many established connections the listener on `port` of this machine has. The kernel goes through all
/// connections there are, so this is not for asking often while something is measured.
pub fn established(port: u16) -> usize {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let local = format!(":{port:04X}");
    let is_ours = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        let ours = fields
            .next()
            .is_some_and(|address| address.ends_with(&local));
        ours && fields.nth(1) == Some("01")
    };
    table.lines().filter(is_ours).count()
}

/// Waits for a condition; whether it came about in time.
pub fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(Duration::from_millis(10));
    }
}
