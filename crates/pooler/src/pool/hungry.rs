//! Hungry workers: their clients wait for a server of a pool, and other workers have servers of that pool.

use crate::event::{Time, WorkerId};

/// How long a hungry worker's report counts, in nanoseconds. While its clients wait, a worker
/// reports at least three times as often.
const HUNGER_NS: u64 = 1_000_000_000;

/// A worker whose clients wait.
#[derive(Clone, Copy, Debug)]
struct Worker {
    /// Which.
    id: WorkerId,
    /// For how long its oldest client has waited, in nanoseconds, when it said so.
    age: u64,
    /// When it said so.
    told: Time,
    /// The Broker has said that this worker has too few servers: the next one released here goes
    /// there.
    named: bool,
}

/// The workers that have reported hunger.
#[derive(Debug, Default)]
pub struct Hungry {
    workers: Vec<Worker>,
}

impl Hungry {
    /// None is.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// A worker says that its oldest client has waited for so long, in nanoseconds.
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

    /// Which they are.
    pub fn workers(&self) -> impl Iterator<Item = WorkerId> {
        self.workers.iter().map(|worker| worker.id)
    }

    /// The next released server goes to that worker, if the worker is still hungry.
    pub fn name(&mut self, id: WorkerId) {
        let mut workers = self.workers.iter_mut();
        if let Some(worker) = workers.find(|worker| worker.id == id) {
            worker.named = true;
        }
    }

    /// For how long the oldest of their clients has waited, in nanoseconds.
    pub fn longest_wait(&self) -> Option<u64> {
        self.workers.iter().map(|worker| worker.age).max()
    }

    /// Takes out the worker that a released server goes to, instead of the oldest client here,
    /// which has waited for `here` nanoseconds. That is a worker that the Broker has named, or one
    /// whose oldest client has waited longer by more than 2 ms and by more than an eighth of
    /// `here`.
    pub fn take_hungrier(&mut self, here: Option<u64>, now: Time) -> Option<WorkerId> {
        // Hunger is reported again while it lasts; its end is not reported.
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
