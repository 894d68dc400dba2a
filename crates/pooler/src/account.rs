//! The account of a worker: the bytes that clients make the worker keep.
//!
//! Texts of statements, names of statements, and long messages that must be held whole are charged
//! to the client's pool where they are kept, and their charge ends where they are dropped. A pool
//! may take half of what the other pools leave, so that no pool's fill refuses another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::limits;

/// What bytes are kept for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeptFor {
    /// Texts that clients can share.
    Texts,
    /// Texts of one transaction.
    PrivateTexts,
    /// Names of statements.
    Names,
    /// Messages that must be held whole. These bytes are given back soon.
    Messages,
}

impl KeptFor {
    /// All kinds.
    pub const ALL: [KeptFor; 4] = [
        KeptFor::Texts,
        KeptFor::PrivateTexts,
        KeptFor::Names,
        KeptFor::Messages,
    ];

    /// Its row in SHOW MEM.
    pub fn row(self) -> &'static str {
        match self {
            KeptFor::Texts => "kept_texts",
            KeptFor::PrivateTexts => "kept_private_texts",
            KeptFor::Names => "kept_names",
            KeptFor::Messages => "kept_messages",
        }
    }
}

/// The bytes that a worker, or a pool there, keeps of each kind. (A statement may end on another
/// worker's thread.)
#[derive(Debug, Default)]
struct Sums {
    bytes: [AtomicUsize; KeptFor::ALL.len()],
}

impl Sums {
    fn all(&self) -> usize {
        self.bytes.iter().map(|bytes| bytes.load(Relaxed)).sum()
    }

    /// The bytes that are kept for long.
    fn lasting(&self) -> usize {
        let messages = self.bytes[KeptFor::Messages as usize].load(Relaxed);
        self.all().saturating_sub(messages)
    }
}

/// The account of a worker.
#[derive(Debug, Default)]
pub struct Account {
    sums: Arc<Sums>,
}

impl Account {
    /// The share of a new pool.
    pub fn share(&self) -> Arc<Allowance> {
        Arc::new(Allowance {
            own: Sums::default(),
            worker: self.sums.clone(),
        })
    }

    /// The bytes kept of one kind.
    pub fn kept(&self, kind: KeptFor) -> usize {
        self.sums.bytes[kind as usize].load(Relaxed)
    }
}

/// A pool's share of the account.
#[derive(Debug)]
pub struct Allowance {
    own: Sums,
    worker: Arc<Sums>,
}

impl Allowance {
    /// Whether the pool may keep `size` more bytes now.
    pub fn has_room(&self, size: usize) -> bool {
        fits(size, self.own.all(), self.worker.all())
    }

    /// Whether the pool could keep `size` more bytes if no message were held.
    pub fn will_have_room(&self, size: usize) -> bool {
        fits(size, self.own.lasting(), self.worker.lasting())
    }

    /// The charge for `size` bytes, until it is dropped.
    pub fn charge(self: &Arc<Self>, kind: KeptFor, size: usize) -> Charge {
        let mut charge = Charge::default();
        charge.begins(self, kind);
        charge.adds(size);
        charge
    }
}

/// Whether a pool that has `own` of all the worker's bytes may have `size` more: half of what other
/// pools leave, and a little in any case.
fn fits(size: usize, own: usize, all: usize) -> bool {
    let others = all.saturating_sub(own);
    let share = limits::ACCOUNT.saturating_sub(others) / 2;
    own + size <= share.max(limits::POOL_BYTES)
}

/// Bytes in the account. They leave the account when the charge is dropped.
#[derive(Debug, Default)]
pub struct Charge {
    to: Option<(Arc<Allowance>, KeptFor)>,
    bytes: usize,
}

impl Charge {
    /// From now on, the bytes are those of this pool.
    pub fn begins(&mut self, share: &Arc<Allowance>, kind: KeptFor) {
        let bytes = self.bytes;
        self.clear();
        self.to = Some((share.clone(), kind));
        self.adds(bytes);
    }

    /// A charge of the same pool and kind for `size` more bytes; `None` if the pool has no room, or
    /// if there is no pool yet.
    pub fn more(&self, size: usize) -> Option<Charge> {
        let (share, kind) = self.to.as_ref()?;
        let has_room = share.will_have_room(size);
        has_room.then(|| share.charge(*kind, size))
    }

    /// Adds bytes.
    pub fn adds(&mut self, bytes: usize) {
        self.bytes += bytes;
        if let Some((share, kind)) = &self.to {
            for sums in [&share.own, &*share.worker] {
                sums.bytes[*kind as usize].fetch_add(bytes, Relaxed);
            }
        }
    }

    /// Takes bytes away.
    pub fn takes(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if let Some((share, kind)) = &self.to {
            for sums in [&share.own, &*share.worker] {
                sums.bytes[*kind as usize].fetch_sub(bytes, Relaxed);
            }
        }
    }

    /// Takes all bytes away.
    pub fn clear(&mut self) {
        self.takes(self.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_may_take_half_of_what_others_leave() {
        let account = Account::default();
        let (one, two) = (account.share(), account.share());
        let half = limits::ACCOUNT / 2;
        assert!(!one.has_room(half + 1));
        let all = one.charge(KeptFor::Texts, half);
        assert!(!one.has_room(1));
        assert!(two.has_room(half / 2) && !two.has_room(half / 2 + 1));
        let held = two.charge(KeptFor::Messages, half / 2);
        assert!(!two.has_room(1) && two.will_have_room(half / 2));
        // A little is everybody's.
        let many = [(); 16].map(|()| {
            let share = account.share();
            let mut size = half;
            while !share.has_room(size) {
                size /= 2;
            }
            share.charge(KeptFor::Names, size)
        });
        assert!(account.share().has_room(limits::POOL_BYTES));
        drop(many);
        assert_eq!(account.kept(KeptFor::Names), 0);
        drop((all, held));
        assert!(two.has_room(half) && account.sums.all() == 0);
    }

    #[test]
    fn a_charge_begins_before_it_has_a_pool() {
        let account = Account::default();
        let share = account.share();
        let mut charge = Charge::default();
        charge.adds(10);
        charge.takes(3);
        charge.begins(&share, KeptFor::Names);
        assert_eq!((account.kept(KeptFor::Names), share.own.all()), (7, 7));
        charge.clear();
        charge.adds(2);
        assert_eq!(account.kept(KeptFor::Names), 2);
        drop(charge);
        assert_eq!(share.own.all(), 0);
    }
}
