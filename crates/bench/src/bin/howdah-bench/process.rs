//! Child processes: their end, processor time and memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::{Clock, TaskClock};

/// A program in the background, with its output in a file. Dropping the value ends the program.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the program.
    ///
    /// # Errors
    /// The program can't be started.
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

    /// True if the program has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The exit status and last output; none while the program runs.
    pub fn end(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(match self.last_words() {
            words if words.is_empty() => format!("{status}, without a word"),
            words => format!("{status}; it wrote: {words}"),
        })
    }

    /// All output so far.
    pub fn words(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of output.
    pub fn last_words(&self) -> String {
        // Some programs write very long lines.
        let short = |line: &str| line.chars().take(200).collect::<String>();
        let text = self.words();
        let lines: Vec<_> = text.lines().map(short).collect();
        lines[lines.len().saturating_sub(3)..].join(" / ")
    }

    /// Counts the processor time of the process and all its children from now on.
    pub fn meter(&self) -> Meter {
        let all = tree(self.child.id()).into_iter().flat_map(threads);
        let all = all.filter_map(|thread| thread.file_name()?.to_str()?.parse().ok());
        Meter {
            root: self.child.id(),
            events: TaskClock::of(all),
        }
    }

    /// The resident memory of the process and all its children, in kilobytes.
    pub fn resident_kilobytes(&self) -> u64 {
        self.memory_kilobytes("VmRSS:")
    }

    /// A figure of memory in `/proc/PID/status`, of the process and all its children, in kilobytes.
    pub fn memory_kilobytes(&self, name: &str) -> u64 {
        let all = tree(self.child.id()).into_iter();
        all.map(|process| memory_of_one(process, name)).sum()
    }
}

/// Counts the processor time of a process and all its children.
pub struct Meter {
    root: u32,
    /// None if the kernel refuses: then the scheduler's account counts.
    events: Option<TaskClock>,
}

impl Meter {
    /// The clock in use.
    pub fn clock(&self) -> Clock {
        match self.events {
            Some(_) => Clock::Task,
            None => Clock::Account,
        }
    }

    /// Nanoseconds since an arbitrary time.
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
        // SIGTERM comes first: on SIGINT PgDoorman starts a successor that outlives the bench.
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

/// A program with an end. Its output is kept, and it is killed if it takes too long.
pub struct Task {
    child: Child,
    deadline: Instant,
    patience: Duration,
    out: PathBuf,
    errors: PathBuf,
}

/// The result of a [`Task`].
pub struct Done {
    /// The exit code; none after a signal.
    pub code: Option<i32>,
    /// The standard output.
    pub out: Vec<u8>,
    /// The standard error output.
    pub errors: String,
}

impl Task {
    /// Starts the program with a time limit. Its output goes to files in `folder`: a pipe without a
    /// reader would block the program.
    ///
    /// # Errors
    /// The program can't be started, or the files can't be made.
    pub fn start(command: &mut Command, folder: &Path, patience: Duration) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (out, errors) = (
            folder.join(format!("task-{number}.out")),
            folder.join(format!("task-{number}.errors")),
        );
        let child = command
            .stdin(Stdio::null())
            .stdout(fs::File::create(&out)?)
            .stderr(fs::File::create(&errors)?)
            .spawn()
            .map_err(|error| io::Error::other(format!("{command:?}: {error}")))?;
        Ok(Self {
            child,
            deadline: Instant::now() + patience,
            patience,
            out,
            errors,
        })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// True if the program has ended or its time is over.
    pub fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None)) || Instant::now() >= self.deadline
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// The program took too long, and was killed.
    pub fn finish(mut self) -> io::Result<Done> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        wait_until(left, || self.is_over());
        let Some(status) = self.child.try_wait()? else {
            return Err(io::Error::other(format!(
                "it hangs: answers were still awaited after {:.0} s",
                self.patience.as_secs_f64()
            )));
        };
        let errors = fs::read(&self.errors)?;
        Ok(Done {
            code: status.code(),
            out: fs::read(&self.out)?,
            errors: String::from_utf8_lossy(&errors).into_owned(),
        })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = fs::remove_file(&self.out);
        let _ = fs::remove_file(&self.errors);
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

/// The user and system time of all threads: in nanoseconds from the scheduler's account if the
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
    // The name in parentheses may contain anything, so counting starts after it. utime and stime
    // are the 12th and 13th field there.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|field| field.parse::<u64>().ok())
        .sum::<u64>()
        * 10_000_000
}

fn memory_of_one(process: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

/// The number of open descriptors of a process.
pub fn descriptors(process: u32) -> u64 {
    let folder = format!("/proc/{process}/fd");
    // Since Linux 6.2 the folder's size is the number. Counting would take time for each.
    let told = fs::metadata(&folder).map_or(0, |folder| folder.len());
    let count = || fs::read_dir(&folder).map_or(0, Iterator::count) as u64;
    if told > 0 { told } else { count() }
}

/// The number of established connections of the listener on `port`. The kernel walks through all
/// connections, so do not call this often during a measurement.
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

/// Waits for a condition. True if it became true in time.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn run(script: &str, patience: Duration) -> io::Result<Done> {
        Task::start(&mut shell(script), &std::env::temp_dir(), patience)?.finish()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_task_that_hangs_is_killed_and_told() {
        let error = run("exec sleep 1000", Duration::from_millis(50))
            .err()
            .unwrap();
        assert!(error.to_string().contains("it hangs"), "{error}");
    }

    #[test]
    fn a_task_may_write_more_than_a_pipe_holds() {
        let done = run("yes error | head -c 300000 >&2; echo out; exit 3", LONG).unwrap();
        assert_eq!((done.code, &*done.out), (Some(3), &b"out\n"[..]));
        assert_eq!(done.errors.len(), 300_000);
    }

    #[test]
    fn a_process_that_ended_says_how() {
        let log = std::env::temp_dir().join(format!("ended-{}.log", std::process::id()));
        let mut process = Process::start(&mut shell("echo no room; exit 7"), &log).unwrap();
        assert!(wait_until(LONG, || process.has_ended()));
        let end = process.end().unwrap();
        assert!(end.contains("7") && end.contains("no room"), "{end}");
        fs::remove_file(&log).unwrap();
    }

    #[test]
    fn time_of_children_that_come_and_go_counts() {
        let log = std::env::temp_dir().join(format!("meter-{}.log", std::process::id()));
        // Waits for the meter, then runs busy children one after the other.
        let go = log.with_extension("go");
        let burn = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let script = format!(
            "until [ -e {go} ]; do sleep 0.01; done; for n in 1 2 3; do sh -c '{burn}'; done; echo done; exec sleep 100",
            go = go.display()
        );
        let process = Process::start(&mut shell(&script), &log).unwrap();
        let mut meter = process.meter();
        let before = meter.nanoseconds().unwrap();
        fs::write(&go, "").unwrap();
        assert!(wait_until(LONG, || process.words().contains("done")));
        let used = meter.nanoseconds().unwrap() - before;
        // Without the task clock, the account loses children that have ended.
        let counts = meter.clock() == Clock::Task;
        assert!(!counts || used > 3_000_000, "{used} ns");
        drop(process);
        let _ = (fs::remove_file(&log), fs::remove_file(&go));
    }
}
