//! Counts of the errors that clients got, and of the clients that were not let in.

use crate::auth;
use crate::fault::{Fault, Foreign};

/// The classes of SQLSTATEs that are counted apart; all others are `other`.
pub const CLASSES: [&str; 17] = [
    "08", "0A", "22", "23", "25", "26", "28", "40", "42", "53", "54", "55", "57", "58", "P0", "XX",
    "other",
];

/// Who made an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorSource {
    /// PostgreSQL.
    Server,
    /// Howdah.
    Pooler,
}

impl ErrorSource {
    /// The label of metrics.
    pub const WORDS: [&str; 2] = ["server", "pooler"];
}

/// The errors that a pool's clients got, by source and class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorCounts {
    counts: [[u64; CLASSES.len()]; 2],
}

impl ErrorCounts {
    /// Counts an error with this SQLSTATE.
    pub fn count(&mut self, source: ErrorSource, sqlstate: &[u8]) {
        let class = sqlstate.get(..2).unwrap_or_default();
        let place = CLASSES.iter().position(|known| known.as_bytes() == class);
        self.counts[source as usize][place.unwrap_or(CLASSES.len() - 1)] += 1;
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &ErrorCounts) {
        let more = other.counts.iter().flatten();
        for (count, more) in self.counts.iter_mut().flatten().zip(more) {
            *count += more;
        }
    }

    /// Source, class and count of each.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let sources = ErrorSource::WORDS.into_iter().zip(self.counts);
        sources.flat_map(|(source, counts)| {
            let classes = CLASSES.into_iter().zip(counts);
            classes.map(move |(class, count)| (source, class, count))
        })
    }
}

/// Why logins failed: the label of metrics.
pub const LOGIN_FAILURES: [&str; 8] = [
    "password",
    "no_user",
    "not_allowed",
    "rule",
    "certificate",
    "ldap_or_pam",
    "token",
    "protocol",
];

/// Why clients were refused without a look at their password: the label of metrics.
pub const REFUSALS: [&str; 12] = [
    "too_many_clients",
    "no_database",
    "database_disabled",
    "tls",
    "startup",
    "server_unavailable",
    "login_timeout",
    "shutting_down",
    "wait_timeout",
    "administrator",
    "configuration",
    "internal_error",
];

/// How many clients were not let in, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NotLetIn {
    /// By the order of [`LOGIN_FAILURES`].
    pub failures: [u64; LOGIN_FAILURES.len()],
    /// By the order of [`REFUSALS`].
    pub refusals: [u64; REFUSALS.len()],
}

impl NotLetIn {
    /// A client that was not logged in is disconnected for this reason.
    pub fn count(&mut self, fault: &Fault) {
        let (words, counts): (&[&str], &mut [u64]) = if fault.refuses_login() {
            (&LOGIN_FAILURES, &mut self.failures)
        } else {
            (&REFUSALS, &mut self.refusals)
        };
        let place = word(fault).and_then(|word| words.iter().position(|known| *known == word));
        if let Some(place) = place {
            counts[place] += 1;
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &NotLetIn) {
        let more = other.failures.iter().chain(&other.refusals);
        let counts = self.failures.iter_mut().chain(&mut self.refusals);
        for (count, more) in counts.zip(more) {
            *count += more;
        }
    }
}

/// The reason in a word; `None` if the client left by itself, or if only clients that are logged in
/// meet this fault.
fn word(fault: &Fault) -> Option<&'static str> {
    use Fault::*;
    Some(match fault {
        LoginFailed(text) => match *text {
            auth::TRUST_FAILED | auth::PEER_FAILED | auth::REJECTED | auth::NO_RULE => "rule",
            auth::CERT_FAILED | auth::CERT_REQUIRED => "certificate",
            auth::LDAP_FAILED | auth::PAM_FAILED => "ldap_or_pam",
            auth::oauthbearer::OAUTH_FAILED
            | auth::oauthbearer::JWT_FAILED
            | auth::oauthbearer::TOKEN_IN_CLEAR => "token",
            auth::SCRAM_MALFORMED
            | auth::oauthbearer::OAUTH_MALFORMED
            | auth::oauthbearer::OAUTH_AUTHZID
            | auth::MECHANISM_UNKNOWN
            | auth::BINDING_DOWNGRADE
            | auth::BINDING_UNKNOWN
            | auth::BINDING_WRONG
            | auth::BINDING_ATTRIBUTE => "protocol",
            _ => "password",
        },
        NoSuchUser => "no_user",
        PasswordAway => "password",
        NotAllowed => "not_allowed",
        TooManyClients(_) => "too_many_clients",
        NoDatabase(_) => "no_database",
        DatabaseDisabled(_) | AuthDatabaseDisabled(_) => "database_disabled",
        TlsRequired | TlsHandshake(_) | OtherProtocol(Foreign::Tls) => "tls",
        ServerLogin(..) | ServerLoginFailing(..) | ServerGone | ServerBytes(_) | Server(_) => {
            "server_unavailable"
        }
        LoginTimeout | LoginTimeoutSilent | LoginTimeoutServerDown => "login_timeout",
        QueryWait | QueryWaitServerDown | QueryTimeout | QueryTimeoutWaiting => "wait_timeout",
        ShuttingDown | ServerShuttingDown => "shutting_down",
        Forced | DatabaseRemoved | DatabaseChanged | Suspended => "administrator",
        Config(_) | Shard(_) => "configuration",
        Internal => "internal_error",
        ClientBytes(_)
        | ClientLength(_)
        | OtherProtocol(Foreign::Http)
        | ProxyHeader(_)
        | Protocol(..)
        | BytesBeforeAnswer(_)
        | TooEarly
        | NoUser
        | NameTooLong(_)
        | NameNotUtf8(_)
        | Parameter(_)
        | OptionsForm
        | OptionsSetting(_)
        | ReplicationValue(_)
        | SessionAttrs(_)
        | ServerParameter(..) => "startup",
        ClientGone(_) | ClientClosed | Told(_) | TokenWanted => return None,
        CopyUnclear | TransactionBlock | PinsInStatementMode | TooManyPins | ListenerLost
        | TooManyChannels | TooManyOwnChannels | TooMuchHeard | OtherEncoding | ChannelsUnclear
        | QueriesRefused | ClientIdle | PinIdle | IdleTransaction | TransactionTimeout
        | TokenEnded | UserEnds | LifetimeOver | Drained => {
            return None;
        }
        // These end cancel requests.
        Cancelled | CancelUnknown | CancelNoPeer | CancelTtl | CancelWait => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_class() {
        let mut counts = ErrorCounts::default();
        counts.count(ErrorSource::Server, b"42P01");
        counts.count(ErrorSource::Server, b"42601");
        counts.count(ErrorSource::Pooler, b"99999");
        counts.count(ErrorSource::Pooler, b"");
        let mut twice = counts;
        twice.add(&counts);
        let seen: Vec<_> = twice.rows().filter(|(.., count)| *count > 0).collect();
        assert_eq!(seen, [("server", "42", 4), ("pooler", "other", 4)]);
    }

    #[test]
    fn clients_are_not_let_in_for_a_known_reason() {
        let mut counts = NotLetIn::default();
        for fault in [
            Fault::LoginFailed(auth::PASSWORD_FAILED),
            Fault::LoginFailed(auth::CERT_FAILED),
            Fault::NoSuchUser,
            Fault::TooManyClients("no more"),
            Fault::NoUser,
            Fault::LoginTimeoutSilent,
            Fault::OtherProtocol(Foreign::Tls),
            Fault::OtherProtocol(Foreign::Http),
            Fault::QueryWait,
            Fault::Forced,
            Fault::Config("no rule".into()),
            Fault::Internal,
            Fault::ClientClosed,
            Fault::LoginFailed(auth::oauthbearer::JWT_FAILED),
            Fault::TokenWanted,
        ] {
            counts.count(&fault);
        }
        let mut sum = NotLetIn::default();
        sum.add(&counts);
        assert_eq!(sum.failures, [1, 1, 0, 0, 1, 0, 1, 0]);
        assert_eq!(sum.refusals, [1, 0, 0, 1, 2, 0, 1, 0, 1, 1, 1, 1]);
        for word in [
            word(&Fault::DatabaseRemoved),
            word(&Fault::QueryTimeoutWaiting),
        ] {
            assert!(word.is_some_and(|word| REFUSALS.contains(&word)));
        }
    }
}
