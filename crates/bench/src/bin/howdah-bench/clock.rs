//! Processor time by performance events: the kernel reads their clock at each task switch.
//!
//! The scheduler's own account (`utime`, `stime`, `schedstat`) is not exact. On Linux 6.18 without
//! preemption it showed 7.0 us for a transaction of a pooler that used 12.0 us by this clock, and
//! the rest as PostgreSQL's; for PgBouncer 16.1 and 16.3 us. The likely cause: if the woken task
//! runs next on this core, the kernel skips the clock update at the switch (`wakeup_preempt`,
//! `rq_clock_skip_update`). A kernel without preemption switches at the end of the system call, and
//! accounts the time of the call until then to the next task: to PostgreSQL, if a pooler submits
//! many sends in one call. So the bench uses the account only if the kernel refuses performance
//! events, and every report says so.

use perf_event::events::Software;
use perf_event::{Builder, Counter};

/// The clock of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The task clock of performance events.
    Task,
    /// The scheduler's account: user and system time.
    Account,
}

impl Clock {
    /// The clocks among these, each once.
    pub fn distinct(all: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut found = Vec::new();
        for clock in all {
            if !found.contains(&clock) {
                found.push(clock);
            }
        }
        found
    }

    /// The clock's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Task => "the task clock of performance events",
            Self::Account => {
                "user and system time by the scheduler's account: the kernel refused the task \
                 clock of performance events"
            }
        }
    }
}

/// ESRCH: the thread does not exist.
const ENDED: i32 = 3;

/// Counts the processor time of some threads, from its creation on.
pub struct TaskClock(Vec<Counter>);

impl TaskClock {
    /// A clock for these threads, and threads that they start. None if the kernel refuses: it
    /// requires root, CAP_PERFMON, or `kernel.perf_event_paranoid` of 1 or less.
    pub fn of(threads: impl IntoIterator<Item = u32>) -> Option<TaskClock> {
        let counters = threads.into_iter().filter_map(|thread| {
            let mut builder = Builder::new(Software::TASK_CLOCK);
            builder.observe_pid(thread as i32).any_cpu().inherit(true);
            builder.exclude_kernel(false).exclude_hv(false);
            let counter = builder.build();
            let counter = counter.and_then(|mut counter| counter.enable().map(|()| counter));
            match counter {
                // A thread that has ended since the listing uses no more time.
                Err(error) if error.raw_os_error() == Some(ENDED) => None,
                counter => Some(counter.ok()),
            }
        });
        let counters = counters.collect::<Option<Vec<_>>>()?;
        (!counters.is_empty()).then_some(TaskClock(counters))
    }

    /// Nanoseconds so far.
    pub fn nanoseconds(&mut self) -> Option<u64> {
        self.0.iter_mut().map(|counter| counter.read().ok()).sum()
    }
}
