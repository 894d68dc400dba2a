//! A pool that two bounds hold back at once needs a server of others to go for each. The place that
//! the first one leaves is kept for it until the second has gone, too.
//!
//! It can't wait for ever: what was kept for long in vain is given up, and not kept again for three
//! times as long. Each place is kept for half as long as its pool has waited, so if servers are
//! given back at all under the bound that lacks, one is while a place is kept.
//!
//! Nor do pools with half of what they need wait for each other: places go to who has waited
//! longest; and where the oldest of a pool's clients has left, and it goes on waiting with a place
//! of its own for a younger one's, one of the two is given up at last.

use std::sync::Arc;

use crate::broker::{Broker, Kept, side};
use crate::event::{Time, WorkerId};
use crate::mail::{Evict, Post};
use crate::pool::key::PoolKey;
use crate::pool::starved::STARVED_NS;

/// For how long a place is kept at least, in nanoseconds.
const KEPT_NS: u64 = 500_000_000;

impl Broker {
    /// What is taken of a bound that a pool shares: servers, and places kept for other pools.
    pub(super) fn taken(&self, key: &PoolKey, of: Evict) -> u32 {
        let servers = match of {
            Evict::User => self.user_servers.get(&*key.user),
            _ => self.database_servers.get(&*key.database),
        };
        let for_others = |kept: &&Kept| kept.of == of && of.concerns(key, &kept.pool);
        let kept = self.kept.iter().filter(for_others).count() as u32;
        servers.copied().unwrap_or(0) + kept
    }

    /// Whether the place under a bound may be kept for a pool, and would be gone if it were not.
    pub(super) fn may_keep(&self, key: &Arc<PoolKey>, of: Evict) -> bool {
        let Some(pool) = self.pools.get(key) else {
            return false;
        };
        let limit = match of {
            Evict::User => pool.bounds.user,
            _ => pool.bounds.database,
        };
        let last = limit > 0 && self.taken(key, of) + 1 >= limit;
        let has_one = self.kept.iter().any(|kept| kept.pool == *key);
        last && !has_one && self.now >= pool.forgoes[side(of)]
    }

    /// The first of those who wait, oldest first, has not waited clearly longer than another who
    /// could use a place under the bound now, or than one who comes now.
    pub(super) fn is_contested(
        &self,
        hungry: &[(Time, Arc<PoolKey>, WorkerId)],
        of: Evict,
    ) -> bool {
        let Some(((since, key, _), others)) = hungry.split_first() else {
            return false;
        };
        self.age(*since) <= STARVED_NS
            || others
                .iter()
                .take_while(|(other, _, _)| other.0 <= since.0 + STARVED_NS)
                .any(|(other, rival, _)| {
                    of.concerns(key, rival) && self.refusal(rival, self.age(*other)).is_none()
                })
    }

    /// Keeps a place for a pool whose oldest client has waited since then. Nobody need close
    /// another server under that bound for it.
    pub(super) fn keep_place(
        &mut self,
        key: &Arc<PoolKey>,
        of: Evict,
        since: Time,
        post: Post<'_>,
    ) {
        let long = (self.age(since) / 2).max(KEPT_NS);
        self.kept.push(Kept {
            pool: key.clone(),
            of,
            since: self.now,
            until: Time(self.now.0 + long),
        });
        self.content(key, post);
    }

    /// Places that were kept for too long go to others.
    pub(super) fn give_up_places(&mut self, post: Post<'_>) {
        let now = self.now;
        while let Some(at) = self.kept.iter().position(|kept| kept.until <= now) {
            let kept = self.kept.swap_remove(at);
            if let Some(pool) = self.pools.get_mut(&kept.pool) {
                let long = kept.until.0 - kept.since.0;
                pool.forgoes[side(kept.of)] = Time(now.0 + 3 * long);
            }
            self.feed_oldest(&kept.pool, post);
        }
    }
}
