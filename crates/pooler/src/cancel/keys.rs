//! Cancel keys. A key names the worker and the slot of its client; its secret is a hash that only we
//! can make, so no table of keys is kept, but for those that processes before this one gave.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::event::{ClientId, WorkerId};

/// How many bits of the key's process id name the slot; the rest names the worker: one of 1024, which
/// is what the setting `workers` is bounded by.
const SLOT_BITS: u32 = 22;

/// Makes keys.
#[derive(Debug)]
pub struct Keys {
    worker: WorkerId,
    secret: [u8; 32],
    /// What must not change while connections live, from one process to its successor.
    lasting: [u8; 32],
    /// Keys that clients were given by processes before this one, by their first halves.
    old: BTreeMap<u32, Vec<Inherited>>,
}

/// The second half of a key that another process gave, and whose it is.
type Inherited = (Box<[u8]>, ClientId);

/// A cancel key that was given by another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldKey {
    /// Its first half.
    pub pid: u32,
    /// Its second half.
    pub secret: Box<[u8]>,
}

impl Keys {
    /// For one worker; the secret is the same for all.
    pub fn new(worker: WorkerId, secret: [u8; 32]) -> Self {
        Keys {
            worker,
            secret,
            lasting: secret,
            old: BTreeMap::new(),
        }
    }

    /// What a successor must know, so that statements and small pools are where they were.
    pub fn lasting(&self) -> [u8; 32] {
        self.lasting
    }

    /// This process goes on with another's connections.
    pub fn inherit(&mut self, lasting: [u8; 32]) {
        self.lasting = lasting;
    }

    /// A client has a key of another process.
    pub fn remember(&mut self, key: OldKey, id: ClientId) {
        self.old.entry(key.pid).or_default().push((key.secret, id));
    }

    /// A client that may have had a key of another process is gone.
    pub fn forget(&mut self, key: Option<Box<OldKey>>, id: ClientId) {
        let Some(key) = key else { return };
        if let Some(keys) = self.old.get_mut(&key.pid) {
            keys.retain(|(_, of)| *of != id);
            if keys.is_empty() {
                self.old.remove(&key.pid);
            }
        }
    }

    /// The client that was given this key by another process.
    pub(crate) fn inherited(&self, pid: u32, secret: &[u8]) -> Option<ClientId> {
        let mut keys = self.old.get(&pid)?.iter();
        let found = keys.find(|(of, _)| bool::from(secret.ct_eq(of)));
        found.map(|(_, id)| *id)
    }

    /// A client's key: process id, and secret (4 bytes, or 32 from protocol 3.2).
    pub fn of(&self, id: ClientId, long: bool) -> (u32, [u8; 32], usize) {
        // Some drivers take a process id of 0 for none.
        let pid = u32::from(self.worker.0) << SLOT_BITS | (id.index + 1);
        let mut hash = Sha256::new();
        hash.update(self.secret);
        hash.update(b"cancel");
        hash.update(pid.to_be_bytes());
        hash.update(id.generation.to_be_bytes());
        (pid, hash.finalize().into(), if long { 32 } else { 4 })
    }

    /// The key that the salts of unknown users come from: the same for the process and its life.
    pub fn salts(&self) -> &[u8; 32] {
        &self.lasting
    }

    /// The hasher of settings' meanings, the same on all workers.
    pub fn meaning(&self) -> crate::Seeded {
        let (front, _) = self.lasting.split_first_chunk::<8>().expect("32 bytes");
        crate::seeded(u64::from_be_bytes(*front))
    }

    /// The worker that a key names.
    pub fn worker(pid: u32) -> WorkerId {
        WorkerId((pid >> SLOT_BITS) as u16)
    }

    /// The slot that a key names; one that never exists if it names none.
    pub fn slot(pid: u32) -> u32 {
        (pid & ((1 << SLOT_BITS) - 1)).wrapping_sub(1)
    }

    /// The worker where a small pool lives: all workers find the same.
    pub fn home(&self, database: &str, user: &str, workers: u16) -> WorkerId {
        let mut hash = Sha256::new();
        hash.update(self.lasting);
        hash.update(b"home");
        hash.update(database.as_bytes());
        hash.update([0]);
        hash.update(user.as_bytes());
        let digest = hash.finalize();
        WorkerId(u16::from_be_bytes([digest[0], digest[1]]) % workers)
    }
}
