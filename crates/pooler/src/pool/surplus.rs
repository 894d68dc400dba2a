//! Closing surplus servers after a pool's limits were lowered: idle servers at once, others when
//! they are released.

use crate::event::{Close, Out, ServerId};
use crate::pool::key::{PoolId, PoolKey};
use crate::pooler::Pooler;
use crate::server::ServerState;

/// The reason shown for a closed server, worded as in PgBouncer.
pub(crate) const WHY: &str = "too many servers in the pool";

impl Pooler {
    /// The Broker says how many servers of a pool this worker may keep.
    pub(crate) fn keep(&mut self, key: &PoolKey, keep: u32, out: &mut Out) {
        let Some(id) = self.pools.find(key) else {
            return;
        };
        self.pools.at_mut(id).may_keep(keep);
        while self.has_surplus(id)
            && let Some(oldest) = self.oldest_idle(id)
        {
            self.close_server(oldest, WHY, Close::Await, out);
        }
    }

    /// Whether this worker has more servers of a pool than it may keep. Closing servers do not
    /// count.
    pub(super) fn has_surplus(&self, id: PoolId) -> bool {
        let pool = self.pools.at(id);
        if pool.servers() <= pool.keep {
            return false;
        }
        let stays =
            |state: &ServerState| !matches!(state, ServerState::Closing | ServerState::Cancel(_));
        let servers = self.servers.iter();
        let staying = servers.filter(|(_, server)| server.pool == id && stays(server.state()));
        staying.count() > pool.keep as usize
    }

    fn oldest_idle(&self, id: PoolId) -> Option<ServerId> {
        let idle = self.pools.at(id).idle.iter();
        idle.min_by_key(|id| self.servers.get(*id).map(|server| server.times.used))
    }
}
