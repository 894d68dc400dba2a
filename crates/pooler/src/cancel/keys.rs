//! Cancel keys. A key names the worker and the slot of its client. Only this process can compute
//! the key's secret. So there is no table of keys, except for clients that got their keys from
//! another worker or from a predecessor of this process.

use std::collections::BTreeMap;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};

use crate::event::{ClientId, WorkerId};

/// How the 31 bits of a key's process id name worker and slot. No process id is so low that a process
/// of PostgreSQL could have it. The remaining bits count how often the slot was used before. Without them, a process id could come back at once, and pools that
/// compare process ids would mistake the new connection for the old one. The count begins at a
/// number that nobody can guess, so it is a part of the secret, too. The most frequent layouts have
/// the most bits for it.
#[derive(Clone, Copy)]
struct Layout {
    worker_bits: u32,
    /// The number of the first worker. In the first layout, 0 would make low process ids.
    first: u32,
    /// Slots are numbered from 1, because some drivers take a process id of 0 for none.
    slot_bits: u32,
}

/// The first two bits of the process id are the index of its layout. The setting `workers` allows
/// at most 1024 workers.
const LAYOUTS: [Layout; 4] = [
    Layout {
        worker_bits: 6,
        first: 1,
        slot_bits: 12,
    },
    Layout {
        worker_bits: 6,
        first: 0,
        slot_bits: 18,
    },
    Layout {
        worker_bits: 6,
        first: 0,
        slot_bits: 23,
    },
    Layout {
        worker_bits: 10,
        first: 0,
        slot_bits: 16,
    },
];
/// A bit that no process id has.
const NOT_A_PID: u32 = 1 << 31;
/// The number of bits that a layout divides.
const LAYOUT_BITS: u32 = 29;

impl Layout {
    /// The layout of a process id.
    fn of(pid: u32) -> Layout {
        LAYOUTS[(pid >> LAYOUT_BITS) as usize & 3]
    }

    fn fits(self, worker: WorkerId, slot: u32) -> bool {
        self.number(worker) >> self.worker_bits == 0 && slot >> self.slot_bits == 0
    }

    fn number(self, worker: WorkerId) -> u32 {
        u32::from(worker.0) + self.first
    }

    fn use_bits(self) -> u32 {
        LAYOUT_BITS - self.worker_bits - self.slot_bits
    }
}

/// Computes and finds keys.
#[derive(Debug)]
pub struct Keys {
    worker: WorkerId,
    secret: [u8; 32],
    /// The secret that must stay the same while connections live, from one process to its
    /// successor.
    lasting: [u8; 32],
    /// Keys that clients got from earlier processes, by their first halves.
    old: BTreeMap<u32, Vec<Inherited>>,
}

/// The second half of a key from another process, and its client.
type Inherited = (Box<[u8]>, ClientId);

/// A cancel key from another worker or another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldKey {
    /// The first half.
    pub pid: u32,
    /// The second half.
    pub secret: Box<[u8]>,
}

impl Keys {
    /// The keys of one worker. The secret is the same for all workers.
    pub fn new(worker: WorkerId, secret: [u8; 32]) -> Self {
        Keys {
            worker,
            secret,
            lasting: secret,
            old: BTreeMap::new(),
        }
    }

    /// The secret that a successor needs, so that statements keep their names and small pools their
    /// workers.
    pub fn lasting(&self) -> [u8; 32] {
        self.lasting
    }

    /// This process continues another process's connections.
    pub fn inherit(&mut self, lasting: [u8; 32]) {
        self.lasting = lasting;
    }

    /// A client has a key from another process.
    pub fn remember(&mut self, key: OldKey, id: ClientId) {
        self.old.entry(key.pid).or_default().push((key.secret, id));
    }

    /// A client with a key from another process or worker is gone.
    pub fn forget(&mut self, key: &OldKey, id: ClientId) {
        if let Some(keys) = self.old.get_mut(&key.pid) {
            keys.retain(|(_, of)| *of != id);
            if keys.is_empty() {
                self.old.remove(&key.pid);
            }
        }
    }

    /// The client that got this key from another process.
    pub(crate) fn inherited(&self, pid: u32, is_it: impl Fn(&[u8]) -> bool) -> Option<ClientId> {
        let mut keys = self.old.get(&pid)?.iter();
        keys.find(|(secret, _)| is_it(secret)).map(|(_, id)| *id)
    }

    /// The client that got a key with this first half from another process, if it is the only one.
    pub(crate) fn inherited_alone(&self, pid: u32) -> Option<ClientId> {
        match self.old.get(&pid)?.as_slice() {
            [(_, id)] => Some(*id),
            _ => None,
        }
    }

    fn pid(&self, id: ClientId) -> u32 {
        let slot = id.index + 1;
        let fits = LAYOUTS
            .iter()
            .position(|layout| layout.fits(self.worker, slot));
        // If there are more slots than any layout has bits for (8 million on one of the first 63
        // workers, 65,535 on others), several clients have one process id. Only the client in the
        // lowest slot can be cancelled then.
        let which = fits.unwrap_or(LAYOUTS.len() - 1);
        let layout = LAYOUTS[which];
        let begins = self
            .stream(NOT_A_PID | u32::from(self.worker.0), slot)
            .next_u32();
        let uses = begins.wrapping_add(id.generation);
        let cut = |number: u32, bits: u32| number & ((1 << bits) - 1);
        (which as u32) << LAYOUT_BITS
            | cut(layout.number(self.worker), layout.worker_bits)
                << (LAYOUT_BITS - layout.worker_bits)
            | cut(uses, layout.use_bits()) << layout.slot_bits
            | cut(slot, layout.slot_bits)
    }

    /// A client's key: process id, and secret (4 bytes; 32 from protocol 3.2).
    pub fn of(&self, id: ClientId, long: bool) -> (u32, [u8; 32], usize) {
        let pid = self.pid(id);
        let mut secret = [0; 32];
        let mut stream = self.stream(pid, id.generation);
        // The process id may lack the high bits of the slot.
        stream.set_word_pos(u128::from(id.index >> Layout::of(pid).slot_bits) * 16);
        stream.fill_bytes(&mut secret);
        (pid, secret, if long { 32 } else { 4 })
    }

    /// A stream of bytes that look random without the secret. For the same two numbers it is always
    /// the same.
    fn stream(&self, of: u32, number: u32) -> ChaCha20Rng {
        let mut stream = ChaCha20Rng::from_seed(self.secret);
        stream.set_stream(u64::from(of) << 32 | u64::from(number));
        stream
    }

    /// The key for the salts of unknown users. It stays the same for the life of the process.
    pub fn salts(&self) -> &[u8; 32] {
        &self.lasting
    }

    /// The hasher for the meaning of settings. It is the same on all workers.
    pub fn meaning(&self) -> crate::Seeded {
        let (front, _) = self.lasting.split_first_chunk::<8>().expect("32 bytes");
        crate::seeded(u64::from_be_bytes(*front))
    }

    /// The worker in a key.
    pub fn worker(pid: u32) -> WorkerId {
        let Layout {
            worker_bits, first, ..
        } = Layout::of(pid);
        let number = pid >> (LAYOUT_BITS - worker_bits) & ((1 << worker_bits) - 1);
        WorkerId(number.wrapping_sub(first) as u16)
    }

    /// The slot in a key; a slot that never exists if the key names none.
    pub fn slot(pid: u32) -> u32 {
        (pid & ((1 << Layout::of(pid).slot_bits) - 1)).wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::signal::HIGHEST_PID;

    fn pid(worker: u16, index: u32, generation: u32) -> u32 {
        let keys = Keys::new(WorkerId(worker), [7; 32]);
        keys.of(ClientId { index, generation }, false).0
    }

    #[test]
    fn a_process_id_names_worker_and_slot() {
        for worker in [0, 1, 62, 63, 64, 1023] {
            for index in [
                0, 1, 4094, 4095, 16_383, 65_534, 262_143, 500_000, 8_000_000,
            ] {
                if worker > 63 && index > 65_534 {
                    continue;
                }
                for generation in [0, 1, 5000] {
                    let pid = pid(worker, index, generation);
                    assert!(pid > HIGHEST_PID && pid < 1 << 31);
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
    fn clients_beyond_all_layouts_have_secrets_of_their_own() {
        let keys = Keys::new(WorkerId(100), [7; 32]);
        let key = |index| {
            let generation = 3;
            keys.of(ClientId { index, generation }, true)
        };
        let (low, high) = (key(70), key(70 + (1 << 16)));
        assert_eq!(Keys::slot(low.0), Keys::slot(high.0));
        assert_ne!(low.1, high.1);
    }

    #[test]
    fn a_process_id_does_not_come_back_soon() {
        let seen: BTreeSet<u32> = (0..2048).map(|generation| pid(3, 10, generation)).collect();
        assert_eq!(seen.len(), 2048);
        let seen: BTreeSet<u32> = (0..32).map(|generation| pid(3, 9000, generation)).collect();
        assert_eq!(seen.len(), 32);
    }
}
