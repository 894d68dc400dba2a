//! A worker's knowledge of peers (`peer.rs`): the form of their cancel keys, and requests on their
//! way (`cancel/forward.rs`).

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use subtle::ConstantTimeEq;

use crate::Seeded;
use crate::cancel::keys::Keys;
use crate::client::Client;
use crate::ids::{ClientId, Time, WorkerId};
use crate::signal::HIGHEST_PID;
use crate::stats::PeerCounts;

/// The bits of a key that count how often its request may still be forwarded.
const TTL_MASK: u8 = 3;

/// A cancel key in the form that peers share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerKey(pub(crate) [u8; 8]);

impl PeerKey {
    /// A key for a client of ours. `random` becomes the other bits. `None` for random bits that make
    /// a process id as low as PostgreSQL's.
    pub(crate) fn new(peer: u16, random: u64) -> Option<PeerKey> {
        let mut key = random.to_be_bytes();
        let [low, high] = peer.to_le_bytes();
        key[0] &= 0x7f;
        key[1] = low;
        key[2] = high;
        key[7] |= TTL_MASK;
        Some(PeerKey(key)).filter(|key| key.pid() > HIGHEST_PID)
    }

    /// The key in a cancel request; `None` if the secret is too short.
    pub(crate) fn read(pid: u32, secret: &[u8]) -> Option<PeerKey> {
        let mut key = [0; 8];
        key[..4].copy_from_slice(&pid.to_be_bytes());
        key[4..].copy_from_slice(secret.first_chunk::<4>()?);
        Some(PeerKey(key))
    }

    /// The peer that owns the client.
    pub(crate) fn peer(self) -> u16 {
        u16::from_le_bytes([self.0[1], self.0[2]])
    }

    /// The worker that gave the key out, if the peer is this process and has this number of workers.
    pub(crate) fn worker(self, workers: u16) -> WorkerId {
        WorkerId(u16::from_be_bytes([self.0[0], self.0[3]]) % workers)
    }

    /// How often the request may still be forwarded.
    pub(crate) fn ttl(self) -> u8 {
        self.0[7] & TTL_MASK
    }

    /// The key as the client got it, with the highest count of forwards.
    pub(crate) fn fresh(mut self) -> PeerKey {
        self.0[7] |= TTL_MASK;
        self
    }

    /// The key with one forward fewer. The count must not be 0.
    pub(crate) fn forwarded(mut self) -> PeerKey {
        self.0[7] -= 1;
        self
    }

    pub(crate) fn pid(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }
}

/// A cancel request for a peer.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) packet: Vec<u8>,
    /// The worker and connection that wait for the result.
    pub(crate) from: (WorkerId, ClientId),
    /// After this time no connection waits for the result.
    pub(crate) until: Time,
}

/// The requests for one peer.
#[derive(Debug, Default)]
pub(crate) struct PeerPool {
    pub(crate) waiting: VecDeque<Forward>,
    /// By ticket: the worker and connection that wait, and whether the peer has received the
    /// request.
    pub(crate) active: BTreeMap<u64, ((WorkerId, ClientId), bool)>,
}

/// A worker's knowledge of peers and their keys.
#[derive(Debug)]
pub struct Peering {
    pub(crate) keys: HashMap<PeerKey, ClientId, Seeded>,
    pub(crate) keys_of: HashMap<ClientId, PeerKey, Seeded>,
    pub(crate) pools: BTreeMap<u16, PeerPool>,
}

impl Peering {
    /// No peers and no keys.
    pub fn new(seeded: Seeded) -> Peering {
        Peering {
            keys: HashMap::with_hasher(seeded),
            keys_of: HashMap::with_hasher(seeded),
            pools: BTreeMap::new(),
        }
    }

    /// Forgets the key of a client that is closed.
    pub fn forget(&mut self, id: ClientId) {
        if let Some(key) = self.keys_of.remove(&id) {
            self.keys.remove(&key);
        }
    }

    /// The rows of SHOW PEER_POOLS: peers with requests so far.
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

/// True if the request's secret is the secret of this key. In a key of peers' form with this
/// process's `peer_id`, the count of forwards is not compared, as forwarding lowers it. In other
/// keys every bit counts.
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

/// The process id that the client received at login.
pub(crate) fn login_pid(keys: &Keys, peering: &Peering, id: ClientId, client: &Client) -> u32 {
    let told = client.old_key.as_ref().map(|key| key.pid);
    told.or_else(|| peering.keys_of.get(&id).map(|key| key.pid()))
        .unwrap_or_else(|| keys.of(id, client.protocol.long_keys).0)
}
