//! A login to PostgreSQL fails: which clients get the error, and which go on waiting.

use crate::config::nanos;
use crate::event::Out;
use crate::fault::Fault;
use crate::pool::failure::Failure;
use crate::pool::key::{PoolId, PoolKey};
use crate::pooler::Pooler;
use crate::server::ServerState;

impl Pooler {
    /// True while it is too early to try a login again.
    pub(crate) fn backs_off(&self, pool_id: PoolId) -> bool {
        let failure = self.pools.at(pool_id).failure.as_ref();
        failure.is_some_and(|failure| self.now < failure.until)
    }

    /// True while it is too early to try a login for a server that nobody waits for (`min_pool_size`).
    /// Where PostgreSQL refuses logins, such a login is tried once every `server_login_retry`.
    pub(crate) fn need_not_warm(&self, pool_id: PoolId) -> bool {
        let retry = nanos(self.config.globals.server_login_retry);
        let failure = self.pools.at(pool_id).failure.as_ref();
        let refused = failure.filter(|failure| !failure.is_absent());
        self.backs_off(pool_id) || refused.is_some_and(|f| self.now.0 - f.at.0 < retry)
    }

    /// It is time to try logins again, in pools whose clients wait.
    pub(crate) fn retry_logins(&mut self, out: &mut Out) {
        for id in self.pools.ids() {
            let Some(until) = self.pools.at(id).failure.as_ref().map(|f| f.until) else {
                continue;
            };
            self.trim_waiting(id);
            if !self.pools.at(id).is_waited_for() {
                continue;
            }
            if self.now < until {
                self.janitor.retry_at(until);
            } else {
                self.need_anew(id, out);
            }
        }
    }

    /// Why a client that is logged in need not wait for a server of this pool: logins fail for a
    /// reason that time does not mend. (Of others it was spared until now, and may be yet.)
    pub(super) fn vain(&self, pool_id: PoolId) -> Option<Fault> {
        let failure = self.pools.at(pool_id).failure.as_ref();
        let passes = failure.is_some_and(Failure::passes);
        if passes && !self.janitor.awaits_servers() {
            return None;
        }
        self.hopeless(pool_id)
    }

    /// Why a client need not log in to wait for a server of this pool. Who waits already when
    /// servers begin to fail goes on waiting: the next attempt may serve it.
    pub(crate) fn hopeless(&self, pool_id: PoolId) -> Option<Fault> {
        if self.janitor.awaits_servers() {
            return Some(Fault::ServerShuttingDown);
        }
        let pool = self.pools.at(pool_id);
        let failure = pool.failure.as_ref().filter(|_| !pool.makes_room())?;
        let fails = self.backs_off(pool_id) && !self.has_usable_server(pool_id);
        fails.then(|| Fault::ServerLoginFailing(failure.sqlstate.clone(), failure.text.clone()))
    }

    /// A server is there that clients may get yet.
    pub(crate) fn has_usable_server(&self, pool_id: PoolId) -> bool {
        use ServerState::{Cancel, Closing, ConnectQuery, Connecting, Login, Resolving, Securing};
        self.servers.iter().any(|(_, server)| {
            server.pool == pool_id
                && server.ending().is_none()
                && !matches!(
                    server.state(),
                    Resolving
                        | Connecting
                        | Securing(_)
                        | Login(_)
                        | ConnectQuery
                        | Cancel(_)
                        | Closing
                )
        })
    }

    /// Logins fail here, and no other worker has a server: who is not logged in learns that.
    pub(crate) fn alone(&mut self, key: &PoolKey, out: &mut Out) {
        let Some(pool_id) = self.pools.find(key) else {
            return;
        };
        let pool = self.pools.at(pool_id);
        let failure = pool.failure.as_ref().filter(|_| !pool.makes_room());
        let Some(failure) = failure.filter(|failure| failure.is_full()).cloned() else {
            return;
        };
        if self.backs_off(pool_id) && !self.has_usable_server(pool_id) {
            let fault = Fault::ServerLogin(failure.sqlstate, failure.text);
            self.drop_newcomers(pool_id, &fault, out);
        }
    }
}
