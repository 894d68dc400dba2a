//! Chooses the workers that accept connections.
//!
//! Any worker can accept a client, but the client then goes to a worker of its pool. If these are two
//! workers, both must wake up for the login. So only workers that get new clients accept. When one
//! of them is busy, all workers accept: they share the work of logins, above all TLS handshakes.

use crate::event::{Time, WorkerId};

/// For how long all workers accept after one of those that get new clients was busy, in nanoseconds.
const BUSY_FOR: u64 = 5_000_000_000;

/// Which workers accept connections. At first, all do.
#[derive(Clone, Debug)]
pub struct Acceptors {
    accept: Vec<bool>,
    /// When a worker that gets new clients was busy last.
    busy_at: Option<Time>,
}

impl Acceptors {
    /// All of this number of workers accept.
    pub fn new(workers: usize) -> Acceptors {
        Acceptors {
            accept: vec![true; workers],
            busy_at: None,
        }
    }

    /// True if this worker accepts.
    pub fn accepts(&self, worker: WorkerId) -> bool {
        self.accept[usize::from(worker.0)]
    }

    /// Chooses anew, and returns what changes. `may` says for each worker whether it may accept,
    /// `wanted` whether it gets new clients; `busy` says whether one of the wanted is busy.
    pub fn choose(
        &mut self,
        now: Time,
        may: impl Fn(WorkerId) -> bool,
        wanted: impl Fn(WorkerId) -> bool,
        busy: bool,
    ) -> Vec<(WorkerId, bool)> {
        if busy {
            self.busy_at = Some(now);
        }
        let all = self.busy_at.is_some_and(|at| now.0 < at.0 + BUSY_FOR);
        let mut changes = Vec::new();
        for (number, accepts) in self.accept.iter_mut().enumerate() {
            let worker = WorkerId(number as u16);
            let should = may(worker) && (all || wanted(worker));
            if std::mem::replace(accepts, should) != should {
                changes.push((worker, should));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Who accepts after a choice at this second: worker 1 gets new clients, worker 3 has no core.
    fn at(acceptors: &mut Acceptors, second: u64, busy: bool) -> Vec<u16> {
        let may = |worker: WorkerId| worker.0 < 3;
        acceptors.choose(Time(second * SECOND), may, |worker| worker.0 == 1, busy);
        (0..4).filter(|n| acceptors.accepts(WorkerId(*n))).collect()
    }

    #[test]
    fn who_gets_new_clients_accepts_and_all_do_while_one_is_busy() {
        let mut acceptors = Acceptors::new(4);
        assert!((0..4).all(|n| acceptors.accepts(WorkerId(n))));
        assert_eq!(at(&mut acceptors, 1, false), [1]);
        assert_eq!(at(&mut acceptors, 2, true), [0, 1, 2]);
        assert_eq!(at(&mut acceptors, 6, false), [0, 1, 2]);
        assert_eq!(at(&mut acceptors, 7, false), [1]);
    }

    #[test]
    fn only_changes_are_told() {
        let mut acceptors = Acceptors::new(2);
        let all = |_| true;
        assert_eq!(acceptors.choose(Time(1), all, all, false), []);
        let first = |worker: WorkerId| worker.0 == 0;
        let gone = [(WorkerId(1), false)];
        assert_eq!(acceptors.choose(Time(2), all, first, false), gone);
        assert_eq!(acceptors.choose(Time(3), all, first, false), []);
    }
}
