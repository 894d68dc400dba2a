//! Peers: processes of one group that share a port or stand behind one balancer, so a cancel
//! request may reach a process other than its client's.
//!
//! While `peer_id` is set, keys have PgBouncer's form, and cancel requests go to and come from
//! PgBouncers as well. The eight bytes of a key, process id and secret together:
//!
//! | bytes | PgBouncer | here |
//! |---|---|---|
//! | 0 | random, the top bit clear | the same |
//! | 1, 2 | the peer's id, low byte first | the same |
//! | 3 to 7 | random | the same |
//! | the low two bits of 7 | how often a request may still be forwarded; 3 in the key | the same |
//!
//! So 45 bits vary. Bytes 0 and 3, as one number modulo the number of workers, name the worker that
//! gave the key out, so that no two workers give out one process id. A secret of protocol 3.2 has 28
//! more bytes, which only this process can make. Eight bytes are too few to name a slot and also keep
//! a secret, so these keys are kept in a table. A request that no client here has goes to the peer
//! (`cancel/forward.rs`).

use chacha20::rand_core::Rng;
use subtle::ConstantTimeEq;

use crate::cancel::Keys;
use crate::event::ClientId;
use crate::peering::{PeerKey, is_secret};
use crate::pooler::Pooler;

impl Pooler {
    /// Applies new settings, or the first ones.
    pub(crate) fn peers_changed(&mut self) {
        let config = &self.config;
        self.peering.pools.retain(|peer, pool| {
            config.peers.contains_key(peer) || !pool.active.is_empty() || !pool.waiting.is_empty()
        });
    }

    /// The key for a client at login: process id, and secret (4 bytes, or 32 if long).
    pub(crate) fn new_key(&mut self, id: ClientId, long: bool) -> (u32, [u8; 32], usize) {
        let peer = self.config.globals.peer_id as u16;
        if peer == 0 {
            return self.own_key(id, long);
        }
        let key = loop {
            let own = |key: &PeerKey| {
                key.worker(self.workers) == self.worker && !self.peering.keys.contains_key(key)
            };
            if let Some(key) = PeerKey::new(peer, self.random.next_u64()).filter(own) {
                break key;
            }
        };
        self.peering.keys.insert(key, id);
        self.peering.keys_of.insert(id, key);
        self.own_key(id, long)
    }

    /// The key that this process gave the client.
    pub(crate) fn own_key(&self, id: ClientId, long: bool) -> (u32, [u8; 32], usize) {
        let (pid, mut secret, length) = self.keys.of(id, long);
        match self.peering.keys_of.get(&id) {
            Some(key) => {
                secret[..4].copy_from_slice(&key.0[4..]);
                (key.pid(), secret, length)
            }
            None => (pid, secret, length),
        }
    }

    /// The client of this worker that has this key.
    pub(crate) fn key_holder(&self, pid: u32, secret: &[u8]) -> Option<ClientId> {
        let plain = self.clients.key_at(Keys::slot(pid)).filter(|id| {
            let client = gone!(self.clients.get(*id));
            let (ours, mine, length) = self.keys.of(*id, client.protocol.long_keys);
            let has_this_form = client.old_key.is_none() && !self.peering.keys_of.contains_key(id);
            has_this_form && ours == pid && bool::from(secret.ct_eq(&mine[..length]))
        });
        let peered = || {
            let key = PeerKey::read(pid, secret)?.fresh();
            let id = *self.peering.keys.get(&key)?;
            let (_, mine, length) = self.keys.of(id, self.clients.get(id)?.protocol.long_keys);
            let rest = secret.len() == length && bool::from(secret[4..].ct_eq(&mine[4..length]));
            rest.then_some(id)
        };
        let is_it = |own: &[u8]| self.is_secret(pid, own, secret);
        let inherited = || self.keys.inherited(pid, is_it);
        let welcomed = |id: &ClientId| self.clients.get(*id).is_some_and(|c| c.welcomed);
        plain.or_else(peered).or_else(inherited).filter(welcomed)
    }

    fn is_secret(&self, pid: u32, own: &[u8], secret: &[u8]) -> bool {
        is_secret(self.config.globals.peer_id, pid, own, secret)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::signal::HIGHEST_PID;

    #[test]
    fn a_key_has_pgbouncers_form() {
        // A key of PgBouncer 1.25.2 with peer_id = 258: process id and secret.
        let seen = PeerKey::read(0x4e02_01b0, &[0xe1, 0xbe, 0xe9, 0x23]).unwrap();
        assert_eq!((seen.peer(), seen.ttl()), (258, 3));
        // A key for peer 7, and the key that PgBouncer forwarded.
        let request = PeerKey([0xde, 7, 0, 0x11, 0x22, 0x33, 0x44, 0xff]);
        let forwarded = request.forwarded();
        assert_eq!(forwarded.0, [0xde, 7, 0, 0x11, 0x22, 0x33, 0x44, 0xfe]);
        assert_eq!(forwarded.fresh(), request);
    }

    #[test]
    fn of_a_secret_each_bit_counts() {
        let peered = PeerKey::new(5, 0x0123_4567_89ab_cdef).unwrap();
        let (pid, own) = (peered.pid(), &peered.0[4..]);
        let wrong = |bit: usize| {
            let mut secret = own.to_vec();
            secret[bit / 8] ^= 1 << (bit % 8);
            secret
        };
        for bit in 0..32 {
            // The two lowest bits of the fourth byte count forwards.
            let counts = !(24..26).contains(&bit);
            assert_eq!(is_secret(5, pid, own, &wrong(bit)), !counts, "bit {bit}");
            for other in [0, 6] {
                assert!(
                    !is_secret(other, pid, own, &wrong(bit)),
                    "bit {bit} of {other}"
                );
                assert!(is_secret(other, pid, own, own));
            }
        }
        assert!(!is_secret(5, pid, own, &own[..3]) && !is_secret(5, pid, own, &[]));
    }

    #[test]
    fn a_key_names_its_peer_whatever_is_random() {
        for random in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            let key = PeerKey::new(16383, random).unwrap();
            assert_eq!(key.peer(), 16383);
            assert!(key.ttl() == 3 && key.pid() > HIGHEST_PID && key.pid() >> 31 == 0);
        }
        assert_eq!(
            PeerKey::new(1, 4),
            None,
            "PostgreSQL may have such a process"
        );
        assert_eq!(PeerKey::read(1, &[1, 2, 3]), None);
    }

    #[test]
    fn of_a_key_45_bits_vary() {
        let keys = || (0..63).filter_map(|bit| PeerKey::new(1, 1 << 62 | 1 << bit));
        let bits = |key: PeerKey| u64::from_be_bytes(key.0);
        let ones = keys().map(bits).fold(0, |all, key| all | key);
        let zeros = keys().map(bits).fold(u64::MAX, |all, key| all & key);
        // The bit set in all of these keys varies, too.
        assert_eq!((ones & !zeros).count_ones() + 1, 45);
        let workers: BTreeSet<u16> = keys().map(|key| key.worker(3).0).collect();
        assert_eq!(workers, BTreeSet::from([0, 1, 2]));
    }
}
