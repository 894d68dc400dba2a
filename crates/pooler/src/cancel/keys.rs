//! Cancel keys. A key names the worker and the slot of its client; its secret is a hash that only we
//! can make, so no table of keys is kept, but for those that processes before this one gave.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

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
    /// Where clients are whose keys name this worker and who are not here, by the first halves of
    /// their keys.
    away: BTreeMap<u32, Vec<(OldKey, WorkerId)>>,
}

/// The second half of a key that another process gave, and whose it is.
type Inherited = (Box<[u8]>, ClientId);

/// A cancel key that was given by another worker, or by another process.
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
            away: BTreeMap::new(),
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

    /// A client that had a key of another process, or worker, is gone.
    pub fn forget(&mut self, key: &OldKey, id: ClientId) {
        if let Some(keys) = self.old.get_mut(&key.pid) {
            keys.retain(|(_, of)| *of != id);
            if keys.is_empty() {
                self.old.remove(&key.pid);
            }
        }
    }

    /// The client of a key that names this worker is at another; or here, or gone, if at none.
    pub(crate) fn away(&mut self, key: OldKey, at: Option<WorkerId>) {
        let keys = self.away.entry(key.pid).or_default();
        keys.retain(|(other, _)| *other != key);
        let pid = key.pid;
        keys.extend(at.map(|at| (key, at)));
        if keys.is_empty() {
            self.away.remove(&pid);
        }
    }

    /// Where the client of such a key is.
    pub(crate) fn away_at(&self, pid: u32, is_it: impl Fn(&OldKey) -> bool) -> Option<WorkerId> {
        let mut keys = self.away.get(&pid)?.iter();
        keys.find(|(key, _)| is_it(key)).map(|(_, at)| *at)
    }

    /// How many clients of such keys are away.
    pub(crate) fn absent(&self) -> usize {
        self.away.values().map(Vec::len).sum()
    }

    /// The client that was given this key elsewhere.
    pub(crate) fn inherited(&self, pid: u32, is_it: impl Fn(&[u8]) -> bool) -> Option<ClientId> {
        let mut keys = self.old.get(&pid)?.iter();
        keys.find(|(secret, _)| is_it(secret)).map(|(_, id)| *id)
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
}
