//! The Broker of the process, behind a lock that all workers share.

use std::sync::{Arc, Mutex, MutexGuard};

use howdah_pooler::broker::Broker;
use howdah_pooler::census::Census;
use howdah_pooler::event::{Time, WorkerId};
use howdah_pooler::mail::{Mail, ToBroker};
use howdah_pooler::seeded;

/// One [`Broker`], which any thread of the process may tell something.
///
/// The lock is held for as long as one thing takes: some look-ups, and the posting of the answers. No
/// step of a transaction that has its server needs it.
#[derive(Clone)]
pub struct SharedBroker(Arc<Mutex<Broker>>);

impl SharedBroker {
    /// Nothing is given out. The seed is that of its tables.
    pub fn new(seed: u64) -> SharedBroker {
        SharedBroker(Arc::new(Mutex::new(Broker::new(seeded(seed)))))
    }

    /// Tells or asks it something. Its answers are posted before another thread is let in: each worker
    /// gets them in the Broker's order, if they go through its one mailbox.
    pub fn tell(&self, now: Time, mail: ToBroker, post: &mut dyn FnMut(WorkerId, Mail)) {
        self.lock().handle(now, mail, post);
    }

    /// So many workers are about to get connections of another process: nothing is given out before
    /// all have come.
    pub fn expect_arrivals(&self, workers: u16) {
        let mail = ToBroker::Arrivals { workers };
        self.tell(Time::default(), mail, &mut |_, _| ());
    }

    /// What it has counted.
    pub fn census(&self) -> Census {
        self.lock().census()
    }

    /// Verifies every invariant of its own.
    pub fn check(&self) {
        self.lock().check();
    }

    fn lock(&self) -> MutexGuard<'_, Broker> {
        self.0.lock().expect("no mistake of the Broker is survived")
    }
}
