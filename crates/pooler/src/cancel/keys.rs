//! Cancel keys. A key names the worker and the slot of its client. The key's secret is a number that only we
//! can make, so there is no table of keys, except for keys that predecessors of this process have given.

use std::collections::BTreeMap;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::event::{ClientId, WorkerId};

/// How a key's process id, which has 31 bits, names worker and slot. What they leave counts how often
/// the slot was used before: an id that comes back at once would be taken for the old connection by
/// pools that compare them. That count begins where nobody can guess it, so it is a part of the
/// secret, too. The most frequent cases have most bits for it.
#[derive(Clone, Copy)]
struct Layout {
    worker_bits: u32,
    /// Slots are named from 1: some drivers take a process id of 0 for none.
    slot_bits: u32,
}

/// The first two bits say which holds. There are 1024 workers at most, by the setting `workers`.
const LAYOUTS: [Layout; 4] = [
    Layout {
        worker_bits: 6,
        slot_bits: 12,
    },
    Layout {
        worker_bits: 6,
        slot_bits: 18,
    },
    Layout {
        worker_bits: 10,
        slot_bits: 14,
    },
    Layout {
        worker_bits: 10,
        slot_bits: 19,
    },
];
/// No process id has this bit.
const NOT_A_PID: u32 = 1 << 31;
/// How many bits a layout divides.
const LAYOUT_BITS: u32 = 29;

impl Layout {
    /// Which one a process id has.
    fn of(pid: u32) -> Layout {
        LAYOUTS[(pid >> LAYOUT_BITS) as usize & 3]
    }

    fn fits(self, worker: WorkerId, slot: u32) -> bool {
        u32::from(worker.0) >> self.worker_bits == 0 && slot >> self.slot_bits == 0
    }

    fn use_bits(self) -> u32 {
        LAYOUT_BITS - self.worker_bits - self.slot_bits
    }
}

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

    fn pid(&self, id: ClientId) -> u32 {
        let slot = id.index + 1;
        let fits = LAYOUTS
            .iter()
            .position(|layout| layout.fits(self.worker, slot));
        // With more slots than any layout has bits for, two clients may have one key: those whose slots
        // differ by 524,288. A cancel request goes to the lower one of them.
        let which = fits.unwrap_or(LAYOUTS.len() - 1);
        let layout = LAYOUTS[which];
        let begins = self
            .stream(NOT_A_PID | u32::from(self.worker.0), slot)
            .next_u32();
        let uses = begins.wrapping_add(id.generation);
        let cut = |number: u32, bits: u32| number & ((1 << bits) - 1);
        (which as u32) << LAYOUT_BITS
            | cut(u32::from(self.worker.0), layout.worker_bits)
                << (LAYOUT_BITS - layout.worker_bits)
            | cut(uses, layout.use_bits()) << layout.slot_bits
            | cut(slot, layout.slot_bits)
    }

    /// A client's key: process id, and secret (4 bytes, or 32 from protocol 3.2).
    pub fn of(&self, id: ClientId, long: bool) -> (u32, [u8; 32], usize) {
        let pid = self.pid(id);
        let mut secret = [0; 32];
        self.stream(pid, id.generation).fill_bytes(&mut secret);
        (pid, secret, if long { 32 } else { 4 })
    }

    /// Bytes that nobody can tell from random ones who does not know our secret: always the same for
    /// the same two numbers.
    fn stream(&self, of: u32, number: u32) -> ChaCha20Rng {
        let mut stream = ChaCha20Rng::from_seed(self.secret);
        stream.set_stream(u64::from(of) << 32 | u64::from(number));
        stream
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
        let bits = Layout::of(pid).worker_bits;
        WorkerId((pid >> (LAYOUT_BITS - bits) & ((1 << bits) - 1)) as u16)
    }

    /// The slot that a key names; one that never exists if it names none.
    pub fn slot(pid: u32) -> u32 {
        (pid & ((1 << Layout::of(pid).slot_bits) - 1)).wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pid(worker: u16, index: u32, generation: u32) -> u32 {
        let keys = Keys::new(WorkerId(worker), [7; 32]);
        keys.of(ClientId { index, generation }, false).0
    }

    #[test]
    fn a_process_id_names_worker_and_slot() {
        for worker in [0, 1, 63, 64, 1023] {
            for index in [0, 1, 4094, 4095, 16_383, 262_143, 500_000] {
                for generation in [0, 1, 5000] {
                    let pid = pid(worker, index, generation);
                    assert!(pid > 0 && pid < 1 << 31);
                    assert_eq!((Keys::worker(pid).0, Keys::slot(pid)), (worker, index));
                }
            }
        }
    }

    #[test]
    fn no_two_clients_have_one_secret() {
        let mut seen = BTreeSet::new();
        for (worker, secret) in [(0, [7; 32]), (1, [7; 32]), (0, [8; 32])] {
            let keys = Keys::new(WorkerId(worker), secret);
            let ids = (0..40).flat_map(|index| (0..4).map(move |generation| (index, generation)));
            for (index, generation) in ids {
                let (_, secret, length) = keys.of(ClientId { index, generation }, true);
                assert_eq!(length, 32);
                assert!(
                    seen.insert(secret[..4].to_vec()),
                    "the short secret is another client's"
                );
                assert!(
                    seen.insert(secret[4..].to_vec()),
                    "so is the rest of the long one"
                );
            }
        }
    }

    #[test]
    fn a_process_id_does_not_come_back_soon() {
        let seen: BTreeSet<u32> = (0..2048).map(|generation| pid(3, 10, generation)).collect();
        assert_eq!(seen.len(), 2048);
        let seen: BTreeSet<u32> = (0..32).map(|generation| pid(3, 9000, generation)).collect();
        assert_eq!(seen.len(), 32);
    }
}
