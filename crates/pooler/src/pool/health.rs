//! Whether a pool can serve its clients at present: logins to PostgreSQL may fail.

use crate::config::nanos;
use crate::fault::Fault;
use crate::pool::failure::Failure;
use crate::pool::key::PoolId;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::server::ServerState;

impl Pooler {
    /// True while it is too early for another login.
    pub(crate) fn backs_off(&self, pool_id: PoolId) -> bool {
        let failure = self.pools.at(pool_id).failure.as_ref();
        failure.is_some_and(|failure| self.now < failure.until)
    }

    /// True while it is too early for a login that no client waits for (`min_pool_size`). If
    /// PostgreSQL refuses logins, Howdah tries such a login once every `server_login_retry`.
    pub(crate) fn need_not_warm(&self, pool_id: PoolId) -> bool {
        let retry = nanos(self.config.globals.server_login_retry);
        let failure = self.pools.at(pool_id).failure.as_ref();
        let refused = failure.filter(|failure| !failure.is_absent());
        self.backs_off(pool_id) || refused.is_some_and(|f| self.now.0 - f.at.0 < retry)
    }

    /// The error for a logged-in client that would wait in vain: logins fail for a reason that
    /// does not pass by itself. If the reason may pass, the client waits.
    pub(super) fn fault_if_in_vain(&self, pool_id: PoolId) -> Option<Fault> {
        let failure = self.pools.at(pool_id).failure.as_ref();
        let passes = failure.is_some_and(Failure::passes);
        if passes && !self.janitor.awaits_servers() {
            return None;
        }
        self.hopeless(pool_id)
    }

    /// The error for a client that is about to log in and would wait in vain. Clients that already
    /// wait when logins begin to fail go on waiting, because the next attempt may serve them.
    pub(crate) fn hopeless(&self, pool_id: PoolId) -> Option<Fault> {
        if self.janitor.awaits_servers() {
            return Some(Fault::ServerShuttingDown);
        }
        let pool = self.pools.at(pool_id);
        let failure = pool.failure.as_ref().filter(|_| !pool.awaits_room())?;
        let waits = pool.key.target != TargetName::Entry && failure.is_absent();
        if waits || failure.is_awaiting_secret() {
            // Clients wait for the next primary, or for the host; or for a password.
            return None;
        }
        let fails = self.backs_off(pool_id) && !self.has_usable_server(pool_id);
        fails.then(|| Fault::ServerLoginFailing(failure.sqlstate.clone(), failure.text.clone()))
    }

    /// The error for clients that wait for the first server of a pool whose host has nobody.
    pub(crate) fn nobody_there(&self, pool_id: PoolId) -> Option<Fault> {
        let pool = self.pools.at(pool_id);
        let failure = pool.failure.as_ref()?;
        if pool.key.target != TargetName::Entry {
            return None;
        }
        let vain = failure.nobody && !self.has_usable_server(pool_id);
        vain.then(|| Fault::ServerLoginFailing(failure.sqlstate.clone(), failure.text.clone()))
    }

    /// True if the pool has a server that clients can still get.
    pub(crate) fn has_usable_server(&self, pool_id: PoolId) -> bool {
        use ServerState::{
            Cancel, Closing, ConnectQuery, Connecting, Login, Maturing, Resolving, Securing,
        };
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
                        | Maturing(_)
                        | Cancel(_)
                        | Closing
                )
        })
    }
}
