//! Why clients wait for a server of a pool.

use crate::client;
use crate::event::ClientId;
use crate::fault::Fault;
use crate::mail::HeldBy;
use crate::pool::{PoolId, PoolKey};
use crate::pooler::Pooler;
use crate::server::State;

/// What keeps the oldest waiter of a pool from a server, the most telling cause first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// PAUSE.
    Paused,
    /// SUSPEND, or a successor takes over.
    Suspended,
    /// The last login to PostgreSQL failed; why.
    LoginFailed(String),
    /// A bound is reached.
    HeldBy(HeldBy),
    /// A server is being connected, or logs in.
    ServerLogin,
    /// A server that was idle for long is tested.
    ServerTest,
    /// A server was asked for.
    Asked,
    /// What was sent would keep its server, and too many clients do.
    PinLimit,
}

impl Reason {
    /// All words, for a page that lists them.
    pub const WORDS: [&str; 11] = [
        "paused",
        "suspended",
        "login_failed",
        "pool_full",
        "database_full",
        "user_full",
        "database_and_user_full",
        "server_login",
        "server_test",
        "asked",
        "pin_limit",
    ];

    /// One of each, for a page that explains them.
    pub fn all() -> [Reason; 11] {
        use HeldBy::{Database, DatabaseAndUser, Pool, User};
        [
            Reason::Paused,
            Reason::Suspended,
            Reason::LoginFailed("(PostgreSQL's words)".into()),
            Reason::HeldBy(Pool),
            Reason::HeldBy(Database),
            Reason::HeldBy(User),
            Reason::HeldBy(DatabaseAndUser),
            Reason::ServerLogin,
            Reason::ServerTest,
            Reason::Asked,
            Reason::PinLimit,
        ]
    }

    /// The word that labels metrics and rows.
    pub fn word(&self) -> &'static str {
        match self {
            Reason::Paused => "paused",
            Reason::Suspended => "suspended",
            Reason::LoginFailed(_) => "login_failed",
            Reason::HeldBy(HeldBy::Pool) => "pool_full",
            Reason::HeldBy(HeldBy::Database) => "database_full",
            Reason::HeldBy(HeldBy::User) => "user_full",
            Reason::HeldBy(HeldBy::DatabaseAndUser) => "database_and_user_full",
            Reason::ServerLogin => "server_login",
            Reason::ServerTest => "server_test",
            Reason::Asked => "asked",
            Reason::PinLimit => "pin_limit",
        }
    }

    /// The same for people: what is going on, and which setting bounds it.
    pub fn text(&self) -> String {
        match self {
            Reason::Paused => "the pool is paused (PAUSE)".into(),
            Reason::Suspended => "the pooler is suspended".into(),
            Reason::LoginFailed(why) => format!("the last login to PostgreSQL failed: {why}"),
            Reason::HeldBy(HeldBy::Pool) => "all servers of the pool are in use (pool_size)".into(),
            Reason::HeldBy(HeldBy::Database) => {
                "the database has all its servers (max_db_connections)".into()
            }
            Reason::HeldBy(HeldBy::User) => {
                "the user has all its servers (max_user_connections)".into()
            }
            Reason::HeldBy(HeldBy::DatabaseAndUser) => {
                "the database and the user have all their servers \
                 (max_db_connections, max_user_connections)"
                    .into()
            }
            Reason::ServerLogin => "a server is logging in".into(),
            Reason::ServerTest => "a server that was idle for long is being tested".into(),
            Reason::Asked => "a server was asked for".into(),
            Reason::PinLimit => {
                "too many clients of the pool keep a server between transactions (pin_limit)".into()
            }
        }
    }

    /// The order in which causes of several workers are told: the lowest is the most telling.
    pub fn rank(&self) -> usize {
        let word = self.word();
        let place = Self::WORDS.iter().position(|other| *other == word);
        place.unwrap_or(Self::WORDS.len())
    }
}

impl Pooler {
    /// The Broker says which bound holds a pool back.
    pub(crate) fn held_back(&mut self, key: &PoolKey, by: HeldBy) {
        if let Some(id) = self.pools.find(key) {
            self.pools.at_mut(id).set_held_by(by);
        }
    }

    /// Why clients of a pool wait, should any.
    pub(crate) fn reason(&self, pool_id: PoolId) -> Reason {
        let pool = self.pools.at(pool_id);
        if pool.paused() {
            return Reason::Paused;
        }
        if pool.held() {
            return Reason::Suspended;
        }
        if let Some(failure) = &pool.failure {
            return Reason::LoginFailed(failure.text.clone());
        }
        if !pool.is_waited_for() && !pool.pin_line.is_empty() {
            return Reason::PinLimit;
        }
        if pool.testing() > 0 {
            return Reason::ServerTest;
        }
        if pool.connecting() > 0 {
            return Reason::ServerLogin;
        }
        match pool.held_by {
            Some(by) => Reason::HeldBy(by),
            None => Reason::Asked,
        }
    }

    /// What a client that waits is told: why, its place in the line of this worker, and how long it
    /// has waited. The line is in order of arrival, so nobody is counted one by one.
    pub(crate) fn wait_detail(&self, id: ClientId) -> Option<String> {
        let client = self.clients.get(id)?;
        let pool_id = client.pool?;
        let (waiting, reason) = match client.awaits_leave() {
            true => (&self.pools.at(pool_id).pin_line, Reason::PinLimit),
            false => (&self.pools.at(pool_id).waiting, self.reason(pool_id)),
        };
        let before = waiting.before(client.request());
        let lookup = match client.state() {
            client::State::Lookup => "It waits for auth_query. ",
            _ => "",
        };
        Some(format!(
            "{lookup}Reason: {}. Place in the queue: {} of {}. Waiting for {} s.",
            reason.text(),
            before + 1,
            waiting.len().max(before + 1),
            self.now.0.saturating_sub(client.request().0) / 1_000_000_000,
        ))
    }

    /// What kept a client waiting whose time for that is up.
    pub(crate) fn why_in_vain(&self, id: ClientId, fault: &Fault) -> Option<String> {
        match fault {
            Fault::QueryWait
            | Fault::QueryTimeoutWaiting
            | Fault::LoginTimeout
            | Fault::LoginTimeoutServerDown => self.wait_detail(id),
            _ => None,
        }
    }

    /// A server executes something: it owes an answer.
    pub(crate) fn is_at_work(server: &crate::server::Server) -> bool {
        matches!(server.state(), State::Linked(_) | State::Lookup(_)) && server.link.is_owed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_word_and_rank() {
        for (rank, reason) in Reason::all().into_iter().enumerate() {
            assert_eq!((reason.word(), reason.rank()), (Reason::WORDS[rank], rank));
        }
    }
}
