//! Logins to PostgreSQL that fail: who is told, who goes on waiting, and when the next is tried.

use crate::config::nanos;
use crate::event::{Out, Time};
use crate::fault::Fault;
use crate::pool::{PoolId, PoolKey};
use crate::pooler::Pooler;
use crate::server;

/// Logins fail for now.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Since when.
    pub at: Time,
    /// PostgreSQL's SQLSTATE, or ours.
    pub sqlstate: String,
    /// PostgreSQL's text, or ours.
    pub text: String,
}

impl Failure {
    /// It is over when PostgreSQL can be reached again, has started up or has room, with nothing
    /// changed in between.
    pub fn passes(&self) -> bool {
        self.is_absent() || self.is_full()
    }

    /// PostgreSQL can't be reached (08006) or is starting up (57P03).
    pub fn is_absent(&self) -> bool {
        matches!(&*self.sqlstate, "08006" | "57P03")
    }

    /// PostgreSQL has no room for one more (53300 and its kin); those there are may serve all.
    pub fn is_full(&self) -> bool {
        self.sqlstate.starts_with("53")
    }
}

impl Pooler {
    /// True while `server_login_retry` has not passed since a login failed.
    pub(crate) fn backs_off(&self, pool_id: PoolId) -> bool {
        let retry = nanos(self.config.globals.server_login_retry);
        let failure = self.pools.at(pool_id).failure.as_ref();
        failure.is_some_and(|f| self.now.0.saturating_sub(f.at.0) < retry)
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
        let failure = self.pools.at(pool_id).failure.as_ref()?;
        let fails = self.backs_off(pool_id) && !self.has_usable_server(pool_id);
        fails.then(|| Fault::ServerLoginFailing(failure.text.clone()))
    }

    /// A server is there that clients may get yet.
    pub(crate) fn has_usable_server(&self, pool_id: PoolId) -> bool {
        use server::State::{Cancel, Closing, ConnectQuery, Connecting, Login, Resolving};
        self.servers.iter().any(|(_, server)| {
            server.pool == pool_id
                && server.close_why.is_none()
                && !matches!(
                    server.state,
                    Resolving | Connecting | Login(_) | ConnectQuery | Cancel(_) | Closing
                )
        })
    }

    /// Logins fail here, and no other worker has a server: who is not logged in learns that.
    pub(crate) fn alone(&mut self, key: &PoolKey, out: &mut Out) {
        let Some(pool_id) = self.pools.find(key) else {
            return;
        };
        let failure = self.pools.at(pool_id).failure.as_ref();
        let Some(failure) = failure.filter(|failure| failure.is_full()).cloned() else {
            return;
        };
        if self.backs_off(pool_id) && !self.has_usable_server(pool_id) {
            let fault = Fault::ServerLogin(failure.sqlstate, failure.text);
            self.drop_newcomers(pool_id, &fault, out);
        }
    }
}
