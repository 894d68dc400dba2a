//! PostgreSQL has no room for one more server (`53300`, `max_connections`). On the same host,
//! Howdah closes the server of another pool that has been idle longest, and tries the login again.
//!
//! A wish for room visits each worker once to find that server, and then goes to the worker that
//! has the server. Servers of clients are left alone: if no server is idle, logins go on failing
//! with PostgreSQL's error.

use std::sync::Arc;

use howdah_wire::backend::Fields;

use crate::event::{Action, Close, Out, ServerId, Time, WorkerId};
use crate::mail::{Mail, RoomWish};
use crate::pool::key::PoolKey;
use crate::pooler::Pooler;

/// Whether a login error says that PostgreSQL has no room at all. If only a database or a role has
/// none (`CONNECTION LIMIT`), closing another pool's server would not help. The text of the error
/// depends on the language, so the name of PostgreSQL's function decides.
pub(crate) fn has_no_room(fields: Fields<'_>) -> bool {
    let of_one = |at: &[u8]| matches!(at, b"CheckMyDatabase" | b"InitializeSessionUserId");
    fields.sqlstate() == Some(b"53300") && !fields.get(b'R').is_some_and(of_one)
}

impl Pooler {
    /// PostgreSQL has no room for this server, which waiting clients need.
    pub(crate) fn wish_for_room(&mut self, id: ServerId, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        let Some(place) = server.connection.remote().cloned() else {
            return;
        };
        let pool_id = server.pool;
        let reserved = server.is_reserved();
        self.trim_waiting(pool_id);
        let pool = self.pools.at_mut(pool_id);
        if reserved || pool.awaits_room() || !pool.is_waited_for() {
            return;
        }
        pool.set_awaits_room(true);
        let wish = RoomWish {
            pool: pool.key.clone(),
            from: self.worker,
            place,
            asked: 0,
            idlest: None,
        };
        self.make_room(wish, out);
    }

    /// A wish for room has arrived: this worker is asked for its idlest server, or must close it.
    pub(crate) fn make_room(&mut self, mut wish: RoomWish, out: &mut Out) {
        let idlest = self.idlest_at(&wish);
        if wish.asked == self.workers {
            return match idlest {
                Some((_, id)) => self.make_way(wish, id, out),
                // A client got this server meanwhile.
                None => self.tell_room(wish.from, wish.pool, false, out),
            };
        }
        wish.asked += 1;
        if let Some((since, _)) = idlest
            && wish.idlest.is_none_or(|(best, _)| since < best)
        {
            wish.idlest = Some((since, self.worker));
        }
        let next = match wish.idlest {
            _ if wish.asked < self.workers => WorkerId((self.worker.0 + 1) % self.workers),
            Some((_, worker)) => worker,
            None => return self.tell_room(wish.from, wish.pool, false, out),
        };
        out.push(Action::Post(next, Mail::MakeRoom(Box::new(wish))));
    }

    /// The server of another pool on the same host that has been idle longest.
    fn idlest_at(&self, wish: &RoomWish) -> Option<(Time, ServerId)> {
        let pools = self.pools.iter().map(|(_, pool)| pool);
        let others = pools.filter(|pool| pool.key != wish.pool && !pool.held());
        let idle = others.flat_map(|pool| pool.idle.iter());
        let there = idle.filter_map(|id| {
            let server = self.servers.get(id)?;
            (*server.connection.remote()? == wish.place).then_some((server.times.used, id))
        });
        there.min_by_key(|(since, _)| *since)
    }

    fn make_way(&mut self, wish: RoomWish, id: ServerId, out: &mut Out) {
        let server = gone!(self.servers.get_mut(id));
        server.makes_room(wish.from, wish.pool);
        self.logins.at_mut(server.login).count_eviction();
        self.close_server(id, "evicted: PostgreSQL has no room", Close::Await, out);
    }

    /// Tells the worker that wished for room whether a server was closed.
    pub(crate) fn tell_room(&self, to: WorkerId, pool: Arc<PoolKey>, made: bool, out: &mut Out) {
        out.push(Action::Post(to, Mail::Room(pool, made)));
    }

    /// There is room for a pool's server now (`made`), or no server can be closed for it.
    pub(crate) fn room(&mut self, key: &PoolKey, made: bool, out: &mut Out) {
        let Some(id) = self.pools.find(key) else {
            return;
        };
        let pool = self.pools.at_mut(id);
        pool.set_awaits_room(false);
        if made {
            pool.login_may_succeed();
        }
        // The Broker knows whether other workers can lend a server.
        if made || self.workers > 1 {
            self.need_anew(id, out);
        } else {
            self.alone(key, out);
        }
    }
}
