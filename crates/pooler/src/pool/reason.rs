//! Why clients wait for a server of a pool.

use crate::pool::bound::SharedBound;
use crate::pool::supply::HeldBy;

/// Why the oldest waiting client of a pool has no server. The most important reason comes first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The pool is paused (PAUSE).
    Paused,
    /// SUSPEND or a takeover is under way.
    Suspended,
    /// No host of the database fits, and why.
    NoHost(String),
    /// PostgreSQL's host can't be reached, with the error of the last attempt.
    Unreachable(String),
    /// The last login to PostgreSQL failed with this error.
    LoginFailed(String),
    /// The catalogues of a sharded database's shards are being read.
    Catalogue,
    /// The servers' password is awaited from its source, or the source fails, with what is known.
    Secret(String),
    /// A limit is reached.
    HeldBy(HeldBy),
    /// A server is connecting or logging in.
    ServerLogin,
    /// A server that was idle for long is tested.
    ServerTest,
    /// A server was requested and is on its way.
    Asked,
    /// The client's message would keep its server, but too many clients keep one already.
    PinLimit,
}

impl Reason {
    /// The words of all reasons, for a page that lists them.
    pub const WORDS: [&str; 17] = [
        "paused",
        "suspended",
        "no_host",
        "unreachable",
        "login_failed",
        "catalogue",
        "secret",
        "pool_full",
        "database_full",
        "user_full",
        "database_and_user_full",
        "host_full",
        "host_logins",
        "server_login",
        "server_test",
        "asked",
        "pin_limit",
    ];

    /// An example of each reason, for a page that explains them.
    pub fn all() -> [Reason; 17] {
        [
            Reason::Paused,
            Reason::Suspended,
            Reason::NoHost("(each host, and what it is)".into()),
            Reason::Unreachable("(the error)".into()),
            Reason::LoginFailed("(PostgreSQL's words)".into()),
            Reason::Catalogue,
            Reason::Secret("(the source, and its error)".into()),
            Reason::HeldBy(HeldBy::Pool),
            Reason::HeldBy(HeldBy::DATABASE),
            Reason::HeldBy(HeldBy::USER),
            Reason::HeldBy(HeldBy::DATABASE_AND_USER),
            Reason::HeldBy(HeldBy::HOST),
            Reason::HeldBy(HeldBy::Logins),
            Reason::ServerLogin,
            Reason::ServerTest,
            Reason::Asked,
            Reason::PinLimit,
        ]
    }

    /// The label of metrics and rows.
    pub fn word(&self) -> &'static str {
        match self {
            Reason::Paused => "paused",
            Reason::Suspended => "suspended",
            Reason::NoHost(_) => "no_host",
            Reason::Unreachable(_) => "unreachable",
            Reason::LoginFailed(_) => "login_failed",
            Reason::Catalogue => "catalogue",
            Reason::Secret(_) => "secret",
            Reason::HeldBy(HeldBy::Pool) => "pool_full",
            Reason::HeldBy(HeldBy::DATABASE) => "database_full",
            Reason::HeldBy(HeldBy::USER) => "user_full",
            Reason::HeldBy(HeldBy::DATABASE_AND_USER) => "database_and_user_full",
            Reason::HeldBy(HeldBy::Shared(_)) => "host_full",
            Reason::HeldBy(HeldBy::Logins) => "host_logins",
            Reason::ServerLogin => "server_login",
            Reason::ServerTest => "server_test",
            Reason::Asked => "asked",
            Reason::PinLimit => "pin_limit",
        }
    }

    /// The reason as a sentence, with the setting that limits.
    pub fn text(&self) -> String {
        match self {
            Reason::Paused => "the pool is paused (PAUSE)".into(),
            Reason::Suspended => "the pooler is suspended".into(),
            Reason::NoHost(why) => why.clone(),
            Reason::Unreachable(why) => format!("PostgreSQL can't be reached: {why}"),
            Reason::LoginFailed(why) => format!("the last login to PostgreSQL failed: {why}"),
            Reason::Catalogue => "the catalogues of the shards are being read".into(),
            Reason::Secret(why) => format!("the servers' password is awaited: {why}"),
            Reason::HeldBy(HeldBy::Pool) => "all servers of the pool are in use (pool_size)".into(),
            Reason::HeldBy(HeldBy::Logins) => {
                "the host has as many logins under way as it may have (max_host_logins)".into()
            }
            Reason::HeldBy(by) => all_servers(&by.bounds()),
            Reason::ServerLogin => "a server is logging in".into(),
            Reason::ServerTest => "a server that was idle for long is being tested".into(),
            Reason::Asked => "a server was asked for and is on its way".into(),
            Reason::PinLimit => {
                "too many clients of the pool keep a server between transactions (pin_limit)".into()
            }
        }
    }

    /// The rank among the reasons of several workers; the lowest is the most important.
    pub fn rank(&self) -> usize {
        let word = self.word();
        let place = Self::WORDS.iter().position(|other| *other == word);
        place.unwrap_or(Self::WORDS.len())
    }
}

/// Shared limits that are reached, as a sentence.
fn all_servers(bounds: &[SharedBound]) -> String {
    let nouns: Vec<String> = bounds
        .iter()
        .map(|of| format!("the {}", of.noun()))
        .collect();
    let settings: Vec<&str> = bounds.iter().map(|of| of.setting()).collect();
    let all = match bounds.len() {
        ..=1 => "has all its servers",
        _ => "have all their servers",
    };
    format!("{} {all} ({})", nouns.join(" and "), settings.join(", "))
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
