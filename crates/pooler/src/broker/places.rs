//! Places under limits that are kept for a pool that needs several at once.
//!
//! A pool may be held back by several limits: `max_db_connections` and `max_user_connections` are both
//! reached, and all servers are busy. Under each limit another pool must then give up a server. The
//! place of the first is kept for the pool until the other is closed, too. Otherwise pools that
//! wait under only one limit would take each place at once, and the pool would wait for ever.
//!
//! No place is kept for ever. A place that stays unused too long is given up, and none is kept
//! again for three times as long. A place is kept for half as long as its pool has waited. So if
//! servers are ever released under the missing limit, one is released while the place is kept.
//!
//! Two pools that each have half of the places they need do not block each other either: places go
//! to the pool that has waited longest. If that pool's oldest client has left, and the pool waits
//! on with a place for a younger client, one of the two pools gives its place up in the end.

use std::sync::Arc;

use crate::broker::Broker;
use crate::broker::kept::Kept;
use crate::event::{Time, WorkerId};
use crate::mail::Post;
use crate::pool::bound::{Each, SharedBound};
use crate::pool::key::PoolKey;
use crate::pool::starved::STARVED_NS;

/// How long a place is kept at least, in nanoseconds.
const KEPT_NS: u64 = 500_000_000;

impl Broker {
    /// How much of a shared limit is taken: by servers, and by places kept for other pools.
    pub(super) fn taken(&self, key: &PoolKey, bound: SharedBound) -> u32 {
        let Some(name) = self.name(key, bound) else {
            return 0;
        };
        let is_other = |kept: &&Kept| kept.bound == bound && *kept.pool != *key;
        let others = self.kept.iter().filter(is_other);
        let kept = others.filter(|kept| self.is_shared(bound, key, &kept.pool));
        self.servers.under(&name) + kept.count() as u32
    }

    /// Keeps places for the first pool of `hungry` (sorted, the longest wait first): under limits
    /// that have room, until the limits in `lacks` have room, too. True if a place is kept.
    pub(super) fn keep_places(
        &mut self,
        hungry: &[(Time, Arc<PoolKey>, WorkerId)],
        lacks: Each<bool>,
        post: Post<'_>,
    ) -> bool {
        let Some((since, key, _)) = hungry.first() else {
            return false;
        };
        let before = self.kept.len();
        for bound in SharedBound::ALL {
            let has = !lacks[bound.place()];
            if has && self.may_keep(key, bound) && !self.is_contested(hungry, bound) {
                self.keep_place(key, bound, *since, post);
            }
        }
        self.kept.len() > before
    }

    /// True if the place under a limit may be kept for a pool, and another pool would otherwise
    /// take it.
    fn may_keep(&self, key: &Arc<PoolKey>, bound: SharedBound) -> bool {
        let Some(pool) = self.pools.get(key) else {
            return false;
        };
        let limit = pool.bounds.shared[bound.place()];
        let last = limit > 0 && self.taken(key, bound) + 1 >= limit;
        let is_its = |kept: &Kept| kept.bound == bound && kept.pool == *key;
        let has_one = self.kept.iter().any(is_its);
        last && !has_one && self.now >= pool.forgoes[bound.place()]
    }

    /// True if the first pool of `hungry` has not waited clearly longer than another pool that
    /// could use a place under the limit now, or than a pool that begins to wait now.
    fn is_contested(&self, hungry: &[(Time, Arc<PoolKey>, WorkerId)], bound: SharedBound) -> bool {
        let Some(((since, key, _), others)) = hungry.split_first() else {
            return false;
        };
        self.age(*since) <= STARVED_NS
            || others
                .iter()
                .take_while(|(other, _, _)| other.0 <= since.0 + STARVED_NS)
                .any(|(other, rival, _)| {
                    *rival != *key
                        && self.is_shared(bound, key, rival)
                        && self.refusal(rival, self.age(*other)).is_none()
                })
    }

    /// Keeps a place for a pool whose oldest client has waited since `since`. Workers need not
    /// close another server under this limit for the pool.
    fn keep_place(&mut self, key: &Arc<PoolKey>, bound: SharedBound, since: Time, post: Post<'_>) {
        let long = (self.age(since) / 2).max(KEPT_NS);
        self.kept.push(Kept {
            pool: key.clone(),
            bound,
            since: self.now,
            until: Time(self.now.0 + long),
        });
        self.content(key, post);
    }

    /// Gives expired places to other pools.
    pub(super) fn give_up_places(&mut self, post: Post<'_>) {
        let now = self.now;
        while let Some(at) = self.kept.iter().position(|kept| kept.until <= now) {
            let kept = self.kept.swap_remove(at);
            if let Some(pool) = self.pools.get_mut(&kept.pool) {
                let long = kept.until.0 - kept.since.0;
                pool.forgoes[kept.bound.place()] = Time(now.0 + 3 * long);
            }
            self.feed_oldest(&kept.pool, post);
        }
    }
}
