//! The Broker of the process, behind a lock that all workers share.

use std::sync::{Arc, Mutex, MutexGuard};

use howdah_pooler::broker::Broker;
use howdah_pooler::census::Census;
use howdah_pooler::event::{Time, WorkerId};
use howdah_pooler::mail::{Mail, ToBroker};
use howdah_pooler::seeded;

/// One [`Broker`] for all threads of the process.
///
/// The lock is held for one message at a time: some look-ups, and the posting of the answers. No
/// transaction that has its server needs the lock.
#[derive(Clone)]
pub struct SharedBroker(Arc<Mutex<Broker>>);

impl SharedBroker {
    /// A Broker without permits given out. The seed is for its hash tables.
    pub fn new(seed: u64) -> SharedBroker {
        SharedBroker(Arc::new(Mutex::new(Broker::new(seeded(seed)))))
    }

    /// Sends the Broker a message. The answers are posted before the lock is released, so each
    /// worker gets them in the Broker's order.
    pub fn tell(&self, now: Time, mail: ToBroker, post: &mut dyn FnMut(WorkerId, Mail)) {
        self.lock().handle(now, mail, post);
    }

    /// As many workers are about to receive connections of another process. The Broker gives out no
    /// permit before all connections have arrived.
    pub fn expect_arrivals(&self, workers: u16) {
        let mail = ToBroker::Arrivals { workers };
        self.tell(Time::default(), mail, &mut |_, _| ());
    }

    /// The Broker's counts.
    pub fn census(&self) -> Census {
        self.lock().census()
    }

    /// Verifies the Broker's invariants.
    pub fn check(&self) {
        self.lock().check();
    }

    fn lock(&self) -> MutexGuard<'_, Broker> {
        self.0.lock().expect("no mistake of the Broker is survived")
    }
}
