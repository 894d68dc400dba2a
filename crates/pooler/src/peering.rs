//! What a worker knows of peers: the form of their cancel keys, and requests under way to them (`peer.rs`).

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use subtle::ConstantTimeEq;

use crate::Seeded;
use crate::cancel::keys::Keys;
use crate::client::Client;
use crate::ids::{ClientId, Time, WorkerId};
use crate::stats::PeerCounts;

/// How often a request may be forwarded.
const TTL_MASK: u8 = 3;

/// A key in the form that peers share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerKey(pub(crate) [u8; 8]);

impl PeerKey {
    /// Of a client of ours; `random` is its secret.
    pub(crate) fn new(peer: u16, worker: WorkerId, random: u64) -> PeerKey {
        let mut key = random.to_be_bytes();
        let [low, high] = peer.to_le_bytes();
        key[0] = (worker.0 & 0x7f) as u8;
        key[1] = low;
        key[2] = high;
        key[3] = key[3] & 0x1f | ((worker.0 >> 7) as u8) << 5;
        key[7] |= TTL_MASK;
        PeerKey(key)
    }

    /// What a request carries; `None` if its secret is too short to be one.
    pub(crate) fn read(pid: u32, secret: &[u8]) -> Option<PeerKey> {
        let mut key = [0; 8];
        key[..4].copy_from_slice(&pid.to_be_bytes());
        key[4..].copy_from_slice(secret.first_chunk::<4>()?);
        Some(PeerKey(key))
    }

    /// The peer whose client it is.
    pub(crate) fn peer(self) -> u16 {
        u16::from_le_bytes([self.0[1], self.0[2]])
    }

    /// The worker of that client, if the peer is us.
    pub(crate) fn worker(self) -> WorkerId {
        WorkerId(u16::from(self.0[0] & 0x7f) | u16::from(self.0[3] >> 5) << 7)
    }

    /// How often it may still be forwarded.
    pub(crate) fn ttl(self) -> u8 {
        self.0[7] & TTL_MASK
    }

    /// As it was given out.
    pub(crate) fn fresh(mut self) -> PeerKey {
        self.0[7] |= TTL_MASK;
        self
    }

    /// Forwarded once more; its time to live is not over.
    pub(crate) fn forwarded(mut self) -> PeerKey {
        self.0[7] -= 1;
        self
    }

    pub(crate) fn pid(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }
}

/// A cancel request on its way through our workers.
#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) pid: u32,
    pub(crate) secret: Box<[u8]>,
    /// It was looked up as a key from a time without `peer_id`, too.
    pub(crate) plain: bool,
}

/// A cancel request for a peer.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) packet: Vec<u8>,
    /// Who wants to know.
    pub(crate) from: (WorkerId, ClientId),
    /// After that nobody waits for it any more.
    pub(crate) until: Time,
}

/// The requests for one peer.
#[derive(Debug, Default)]
pub(crate) struct PeerPool {
    pub(crate) waiting: VecDeque<Forward>,
    /// By ticket: who wants to know, and whether the peer has it.
    pub(crate) active: BTreeMap<u64, ((WorkerId, ClientId), bool)>,
}

/// What a worker knows of peers and their keys.
#[derive(Debug)]
pub struct Peering {
    /// `peer_id` was set at some time: there may be keys of both forms.
    pub(crate) ever: bool,
    pub(crate) keys: HashMap<PeerKey, ClientId, Seeded>,
    pub(crate) keys_of: HashMap<ClientId, PeerKey, Seeded>,
    pub(crate) searches: HashMap<ClientId, Search, Seeded>,
    pub(crate) pools: BTreeMap<u16, PeerPool>,
}

impl Peering {
    /// Knows nobody.
    pub fn new(seeded: Seeded) -> Peering {
        Peering {
            ever: false,
            keys: HashMap::with_hasher(seeded),
            keys_of: HashMap::with_hasher(seeded),
            searches: HashMap::with_hasher(seeded),
            pools: BTreeMap::new(),
        }
    }

    /// A client is gone: so is its key.
    pub fn forget(&mut self, id: ClientId) {
        if let Some(key) = self.keys_of.remove(&id) {
            self.keys.remove(&key);
        }
    }

    /// SHOW PEER_POOLS: pools that were used.
    pub fn counts(&self) -> Vec<PeerCounts> {
        let row = |(&peer, pool): (&u16, &PeerPool)| {
            let sent = pool.active.values().filter(|(_, sent)| *sent).count();
            PeerCounts {
                peer,
                sent: sent as u32,
                connecting: (pool.active.len() - sent) as u32,
                waiting: pool.waiting.len() as u32,
            }
        };
        self.pools.iter().map(row).collect()
    }
}

/// A request's secret is the one of this key. Requests that peers have forwarded say less often that
/// they may be forwarded. Only keys in the form of peers have room for that, with this peer's number:
/// of all others each bit counts.
pub(crate) fn is_secret(peer: u32, pid: u32, own: &[u8], secret: &[u8]) -> bool {
    let counts = |key: PeerKey| peer == u32::from(key.peer()) && key.ttl() == TTL_MASK;
    let mut fresh = secret.to_vec();
    if peer != 0
        && PeerKey::read(pid, own).is_some_and(counts)
        && let Some(last) = fresh.get_mut(3)
    {
        *last |= TTL_MASK;
    }
    own.ct_eq(&fresh).into()
}

/// The process id that a client was told at login.
pub(crate) fn login_pid(keys: &Keys, peering: &Peering, id: ClientId, client: &Client) -> u32 {
    let told = client.old_key.as_ref().map(|key| key.pid);
    told.or_else(|| peering.keys_of.get(&id).map(|key| key.pid()))
        .unwrap_or_else(|| keys.of(id, client.long_key).0)
}
