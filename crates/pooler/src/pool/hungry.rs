//! Hungry workers: their clients wait for a server of a pool that other workers have servers of.

use crate::event::{Time, WorkerId};

/// How long a hungry worker's report counts, in nanoseconds. The worker repeats it at least three
/// times as often.
const HUNGER_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Worker {
    id: WorkerId,
    /// How long its oldest client had waited at the time of the report, in nanoseconds.
    age: u64,
    told: Time,
    /// The Broker says that this worker has too few servers: it gets the next one released here.
    named: bool,
}

/// The workers that have reported hunger.
#[derive(Debug, Default)]
pub struct Hungry {
    workers: Vec<Worker>,
}

impl Hungry {
    /// True if no worker is hungry.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// A worker reports that its oldest client has waited for `age` nanoseconds.
    pub fn says(&mut self, id: WorkerId, age: u64, now: Time) {
        self.workers.push(Worker {
            id,
            age,
            told: now,
            named: false,
        });
    }

    /// Forgets a worker's report.
    pub fn forget(&mut self, id: WorkerId) {
        self.workers.retain(|worker| worker.id != id);
    }

    /// The hungry workers.
    pub fn workers(&self) -> impl Iterator<Item = WorkerId> {
        self.workers.iter().map(|worker| worker.id)
    }

    /// The Broker names a worker: if it is still hungry, it gets the next released server.
    pub fn name(&mut self, id: WorkerId) {
        let mut workers = self.workers.iter_mut();
        if let Some(worker) = workers.find(|worker| worker.id == id) {
            worker.named = true;
        }
    }

    /// How long the oldest client of these workers has waited, in nanoseconds.
    pub fn longest_wait(&self) -> Option<u64> {
        self.workers.iter().map(|worker| worker.age).max()
    }

    /// Takes out the worker that gets a released server, although the oldest client here has
    /// waited for `here` nanoseconds: a worker that the Broker has named, or one whose oldest
    /// client has waited longer by more than 2 ms and by more than an eighth of `here`.
    pub fn take_hungrier(&mut self, here: Option<u64>, now: Time) -> Option<WorkerId> {
        // Workers repeat their reports while they are hungry, but do not report the end.
        self.workers
            .retain(|worker| now.0.saturating_sub(worker.told.0) < HUNGER_NS);
        let named = self.workers.iter().position(|worker| worker.named);
        let index = match named {
            Some(named) => named,
            None => {
                let workers = self.workers.iter().enumerate();
                let (index, longest) = workers.max_by_key(|(_, worker)| worker.age)?;
                let slack = |here: u64| (here / 8).max(2_000_000);
                let clearly = |here: u64| longest.age > here.saturating_add(slack(here));
                if !here.is_none_or(clearly) {
                    return None;
                }
                index
            }
        };
        Some(self.workers.swap_remove(index).id)
    }
}
