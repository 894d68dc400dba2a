//! Processor time as performance events have it: by a clock that is read at each switch of tasks.
//!
//! The scheduler's own account, which `utime`, `stime` and `schedstat` show, is not exact. Seen on
//! Linux 6.18, built without preemption: 7.0 us a transaction for a pooler that has 12.0 by this
//! clock, and what is missing stood with PostgreSQL; 16.1 and 16.3 for PgBouncer. By all signs: when a
//! task is woken that is to have this core next, the kernel saves itself the update of its clock at
//! the switch (`wakeup_preempt`, `rq_clock_skip_update`). A kernel that does not preempt itself
//! switches at the end of the system call, and what the call does until then is put down to the
//! task that comes next: to PostgreSQL, where a pooler hands over many sends in one call. So the
//! account counts only where the kernel refuses performance events, and every report says so.

use perf_event::events::Software;
use perf_event::{Builder, Counter};

/// By which clock a figure was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The task clock of performance events.
    Task,
    /// The scheduler's account: user and system time.
    Account,
}

impl Clock {
    /// As a report names it.
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

/// ESRCH: there is no such thread.
const ENDED: i32 = 3;

/// Counts the processor time of some threads from its making on.
pub struct TaskClock(Vec<Counter>);

impl TaskClock {
    /// For all these threads, and those that they start; none where the kernel refuses: it wants
    /// root, CAP_PERFMON, or `kernel.perf_event_paranoid` of 1 or less.
    pub fn of(threads: impl IntoIterator<Item = u32>) -> Option<TaskClock> {
        let counters = threads.into_iter().filter_map(|thread| {
            let mut builder = Builder::new(Software::TASK_CLOCK);
            builder.observe_pid(thread as i32).any_cpu().inherit(true);
            builder.exclude_kernel(false).exclude_hv(false);
            let counter = builder.build();
            let counter = counter.and_then(|mut counter| counter.enable().map(|()| counter));
            match counter {
                // A thread that ended since it was listed uses nothing from now on.
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
