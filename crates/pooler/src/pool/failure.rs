//! Why logins to PostgreSQL fail at present, and when Howdah tries the next one.

use crate::event::Time;

/// The first pause before another login, in nanoseconds, if PostgreSQL can't be reached or is
/// starting up. Pauses double up to `server_login_retry`.
const FIRST_NS: u64 = 50_000_000;

/// The longest pause after PostgreSQL has refused a login, in nanoseconds.
const BELIEVED_NS: u64 = 1_000_000_000;

/// A failed login to PostgreSQL.
#[derive(Clone, Debug)]
pub struct Failure {
    /// When the last login failed.
    pub at: Time,
    /// When Howdah tries the next login.
    pub until: Time,
    /// SQLSTATE from PostgreSQL or Howdah.
    pub sqlstate: String,
    /// Error text from PostgreSQL or Howdah.
    pub text: String,
    /// Nobody listens at the host's port or socket, or no host is set.
    pub nobody: bool,
}

impl Failure {
    /// A login has failed at `at`, perhaps after a failure `last`. The pause before the next login
    /// depends on `retry` (`server_login_retry`) and on how long this login `took`, so that a host
    /// that swallows packets is not tried constantly. Both are in nanoseconds.
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
            nobody: false,
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

    /// True if the failure may pass without any change: PostgreSQL can be reached again, has
    /// started up, or has room.
    pub fn passes(&self) -> bool {
        self.is_absent() || self.is_full()
    }

    /// PostgreSQL can't be reached, or is starting up (57P03).
    pub fn is_absent(&self) -> bool {
        self.is_unreachable() || self.sqlstate == "57P03"
    }

    /// No connection to PostgreSQL came about, or one was lost during the login (08006).
    pub fn is_unreachable(&self) -> bool {
        self.sqlstate == "08006"
    }

    /// PostgreSQL has no room for one more server (class 53). The existing ones may be enough.
    pub fn is_full(&self) -> bool {
        self.sqlstate.starts_with("53")
    }
}
