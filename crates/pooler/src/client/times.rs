//! When things last happened on a client, and when the client must end.

use crate::fault::Fault;
use crate::ids::Time;

/// When a client must end, for each reason that there is. It goes on to the end of the transaction under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientEnds {
    /// Its token ends.
    pub token: Option<Time>,
    /// The user of the server that it keeps ends.
    pub user: Option<Time>,
    /// It is as old as `client_lifetime` allows.
    pub lifetime: Option<Time>,
    /// The process is about to end.
    pub drain: Option<Time>,
}

impl ClientEnds {
    /// The first end.
    pub(crate) fn first(&self) -> Option<Time> {
        let all = [self.token, self.user, self.lifetime, self.drain];
        all.into_iter().flatten().min()
    }

    /// Why the client must end now, if it must. The end of a token is the strictest reason. Of the others the
    /// earlier counts.
    pub(crate) fn due(&self, now: Time) -> Option<EndReason> {
        if self.token.is_some_and(|at| at <= now) {
            return Some(EndReason::Token);
        }
        let others = [
            (self.user, EndReason::User),
            (self.lifetime, EndReason::Lifetime),
            (self.drain, EndReason::Drain),
        ];
        let due = others
            .iter()
            .filter_map(|(at, why)| Some((at.filter(|at| *at <= now)?, *why)));
        due.min_by_key(|(at, _)| *at).map(|(_, why)| why)
    }
}

/// Why a client must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// The token ends with which the client has logged in.
    Token,
    /// Vault will drop the user of the server that the client keeps.
    User,
    /// The client is as old as `client_lifetime` allows.
    Lifetime,
    /// The process is about to end.
    Drain,
}

impl EndReason {
    /// What the client is told.
    pub(crate) fn fault(self) -> Fault {
        match self {
            EndReason::Token => Fault::TokenEnded,
            EndReason::User => Fault::UserEnds,
            EndReason::Lifetime => Fault::LifetimeOver,
            EndReason::Drain => Fault::Drained,
        }
    }

    /// True if a request that waits for a server is still carried out.
    pub(crate) fn is_patient(self) -> bool {
        self != EndReason::Token
    }
}

/// When things last happened on a client.
#[derive(Debug)]
pub struct ClientTimes {
    /// The client connected.
    pub(crate) connected: Time,
    /// The client began a request.
    pub(crate) request: Time,
    /// The client became idle or idle in a transaction, or sent rows of a COPY.
    pub(crate) quiet: Time,
}

impl ClientTimes {
    /// The times of a client that is new here, and connected at `connected`.
    pub(super) fn new(connected: Time, now: Time) -> Self {
        ClientTimes {
            connected,
            request: now,
            quiet: now,
        }
    }

    /// When the client last began a request or became quiet.
    pub(crate) fn last_active(&self) -> Time {
        self.request.max(self.quiet)
    }

    /// True if the client began a request or became quiet at `since` or later.
    pub(super) fn is_active(&self, since: Time) -> bool {
        self.last_active() >= since
    }

    pub(crate) fn begin_request(&mut self, at: Time) {
        self.request = at;
    }

    /// The client has no request under way since `at`, or has sent rows of a COPY then.
    pub(crate) fn set_quiet(&mut self, at: Time) {
        self.quiet = at;
    }
}
