//! Logins to PostgreSQL that fail: who is told, who goes on waiting, and when the next is tried.

use crate::config::nanos;
use crate::event::{Out, Time};
use crate::fault::Fault;
use crate::pool::{PoolId, PoolKey};
use crate::pooler::Pooler;
use crate::server;

/// When a login is tried again at first, in nanoseconds, if PostgreSQL can't be reached or is
/// starting up. It doubles up to `server_login_retry`.
const FIRST_NS: u64 = 50_000_000;

/// What PostgreSQL said to a login is believed for this long at most, in nanoseconds.
const BELIEVED_NS: u64 = 1_000_000_000;

/// Logins fail for now.
#[derive(Clone, Debug)]
pub struct Failure {
    /// When the last one failed.
    pub at: Time,
    /// When the next is tried.
    pub until: Time,
    /// PostgreSQL's SQLSTATE, or ours.
    pub sqlstate: String,
    /// PostgreSQL's text, or ours.
    pub text: String,
}

impl Failure {
    /// A login that took until `at` has failed, perhaps not the first: `last`. When the next is
    /// tried depends on `retry`, which is `server_login_retry`, and on how long this one `took`: a
    /// host that swallows packets is not tried all the time. (Both in nanoseconds.)
    pub fn new(
        (at, took): (Time, u64),
        (sqlstate, text): (&str, &str),
        last: Option<&Failure>,
        retry: u64,
    ) -> Self {
        let mut failure = Failure {
            at,
            until: at,
            sqlstate: sqlstate.to_string(),
            text: text.to_string(),
        };
        let pause = if failure.is_absent() {
            let goes_on = |last: &&Failure| last.is_absent() && at.0 < last.until.0 + retry;
            let last = last.filter(goes_on).map_or(0, Failure::pause);
            (2 * last).max(took).min(retry).max(FIRST_NS)
        } else {
            retry.min(BELIEVED_NS)
        };
        failure.until = Time(at.0.saturating_add(pause));
        failure
    }

    fn pause(&self) -> u64 {
        self.until.0 - self.at.0
    }

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
    /// True while it is too early to try a login again.
    pub(crate) fn backs_off(&self, pool_id: PoolId) -> bool {
        let failure = self.pools.at(pool_id).failure.as_ref();
        failure.is_some_and(|failure| self.now < failure.until)
    }

    /// Likewise for servers that nobody waits for (`min_pool_size`): where PostgreSQL refuses
    /// logins, they are tried every `server_login_retry` only.
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
        use server::State::{
            Cancel, Closing, ConnectQuery, Connecting, Login, Resolving, Securing,
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
