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
    /// waited for `here` nanoseconds: a worker that the Broker has named, unless the client here has
    /// waited more than twice as long; or a worker whose oldest client has waited longer by more than
    /// 2 ms and by more than an eighth of `here`.
    pub fn take_hungrier(&mut self, here: Option<u64>, now: Time) -> Option<WorkerId> {
        // Workers repeat their reports while they are hungry, but do not report the end.
        self.workers
            .retain(|worker| now.0.saturating_sub(worker.told.0) < HUNGER_NS);
        // Without this, each server could be given away before the oldest client gets one.
        let fair = |worker: &Worker| here.is_none_or(|here| here / 2 <= worker.age + 2_000_000);
        let mut workers = self.workers.iter();
        let named = workers.position(|worker| worker.named && fair(worker));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_worker_does_not_starve_clients_here() {
        let (now, ms) = (Time(0), 1_000_000);
        let takes = |age: u64, named: bool, here: Option<u64>| {
            let mut hungry = Hungry::default();
            hungry.says(WorkerId(1), age, now);
            if named {
                hungry.name(WorkerId(1));
            }
            hungry.take_hungrier(here, now).is_some()
        };
        // Nobody waits here.
        assert!(takes(0, false, None) && takes(0, true, None));
        // Without a name, the wait there must be clearly longer.
        assert!(takes(120 * ms, false, Some(100 * ms)));
        assert!(!takes(110 * ms, false, Some(100 * ms)));
        // With a name, up to twice the wait here is put up with.
        assert!(takes(50 * ms, true, Some(100 * ms)));
        assert!(!takes(40 * ms, true, Some(100 * ms)));
        assert!(takes(0, true, Some(4 * ms)));
    }
}
