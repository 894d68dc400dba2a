//! The kernel's figures about this thread: its CPU time, and how long it was ready to run but had no core.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::time::{ClockId, clock_gettime};

/// Times in nanoseconds since the thread began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadTimes {
    /// CPU time.
    pub cpu: u64,
    /// The time when the thread was ready to run but had no core; 0 if the kernel does not report
    /// it.
    pub delayed: u64,
}

/// Reads the figures of the thread that made it. Keeps one descriptor open.
pub struct Vitals {
    schedstat: Option<File>,
}

impl Vitals {
    /// For the calling thread.
    pub fn of_this_thread() -> Vitals {
        Vitals {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
        }
    }

    /// The present figures. To be called on the thread that made this value.
    pub fn take(&self) -> ThreadTimes {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        ThreadTimes {
            cpu: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            delayed: self.delayed().unwrap_or(0),
        }
    }

    /// The second of the file's three numbers.
    fn delayed(&self) -> Option<u64> {
        let mut text = [0; 96];
        let len = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..len]).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_that_works_is_seen_to() {
        let vitals = Vitals::of_this_thread();
        let before = vitals.take();
        let mut sum = 0u64;
        while vitals.take().cpu < before.cpu + 2_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
    }

    #[test]
    fn a_thread_that_waits_for_a_core_is_seen_to() {
        // Two threads compete for one core.
        let all = rustix::thread::sched_getaffinity(None).unwrap();
        let core = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| all.is_set(*core));
        let mut one = rustix::thread::CpuSet::new();
        one.set(core.unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rustix::thread::sched_setaffinity(None, &one).unwrap();
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            scope.spawn(|| {
                rustix::thread::sched_setaffinity(None, &one).unwrap();
                let vitals = Vitals::of_this_thread();
                let (before, begun) = (vitals.take(), Instant::now());
                let counts = vitals.delayed().is_some();
                while counts && vitals.take().delayed < before.delayed + 1_000_000 {
                    if begun.elapsed() > Duration::from_secs(30) {
                        break;
                    }
                }
                done.store(true, Ordering::Relaxed);
                assert!(!counts || vitals.take().delayed >= before.delayed + 1_000_000);
            });
        });
    }
}
