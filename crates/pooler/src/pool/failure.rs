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
    /// The next value of the source of the servers' password may end the failure.
    pub secret: Option<SecretWait>,
}

/// What a pool knows of the source of its servers' password. The number is that of the value that was
/// refused, or has ended; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretWait {
    /// A call of the source is under way: clients wait for its end.
    Awaits(u64),
    /// The source has failed.
    Lacks(u64),
    /// The other of two passwords is tried next: clients wait for that.
    Other,
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
            secret: None,
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

    /// The failure ends with the next value of a source, or at `until`. `sqlstate` is PostgreSQL's
    /// refusal, if that began the wait.
    pub(crate) fn awaits_secret(&mut self, wait: SecretWait, until: Time, sqlstate: Option<&str>) {
        self.secret = Some(wait);
        if let SecretWait::Awaits(_) = wait {
            self.until = until;
        }
        if let Some(sqlstate) = sqlstate {
            sqlstate.clone_into(&mut self.sqlstate);
        }
    }

    /// The source that was waited for has failed.
    pub(crate) fn secret_fails(&mut self, text: &str, now: Time) {
        let generation = match self.secret {
            Some(SecretWait::Awaits(then) | SecretWait::Lacks(then)) => then,
            Some(SecretWait::Other) | None => 0,
        };
        self.secret = Some(SecretWait::Lacks(generation));
        text.clone_into(&mut self.text);
        self.until = now;
    }

    /// True if a call of the source of the servers' password is under way, or another password is tried
    /// next.
    pub fn is_awaiting_secret(&self) -> bool {
        matches!(self.secret, Some(SecretWait::Awaits(_) | SecretWait::Other))
    }

    /// True if the failure may pass without any change: PostgreSQL can be reached again, has
    /// started up, or has room.
    pub fn passes(&self) -> bool {
        self.is_absent() || self.is_full()
    }

    /// PostgreSQL can't be reached, is starting up (57P03), or has ended the session during its login, as it
    /// does when it is restarted (57P01, 57P02).
    pub fn is_absent(&self) -> bool {
        let restarts = matches!(&*self.sqlstate, "57P01" | "57P02" | "57P03");
        self.is_unreachable() || restarts || self.secret.is_some()
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
