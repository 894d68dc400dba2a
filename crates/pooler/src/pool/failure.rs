//! Why logins to PostgreSQL fail for now, and when the next is tried.

use crate::event::Time;

/// When a login is tried again at first, in nanoseconds, if PostgreSQL can't be reached or is
/// starting up. It doubles up to `server_login_retry`.
const FIRST_NS: u64 = 50_000_000;

/// How long PostgreSQL's refusal of a login is used at most, in nanoseconds.
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

    /// PostgreSQL has no room for one more server (53300 and the like); the present servers may
    /// serve all clients.
    pub fn is_full(&self) -> bool {
        self.sqlstate.starts_with("53")
    }
}
