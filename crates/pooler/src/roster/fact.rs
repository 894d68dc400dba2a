//! What workers find out about hosts, for the [roster](crate::roster).

use crate::config::HostPort;
use crate::event::WorkerId;
use crate::ids::Time;
use crate::roster::view::Instance;

/// What PostgreSQL has said in a check. What it hides from the check's user is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostReport {
    /// It is in recovery: a standby.
    pub in_recovery: bool,
    /// When it was started, in PostgreSQL's words. With `system` it tells two hosts from two
    /// addresses of one.
    pub started: Option<String>,
    /// The system identifier: equal on copies of one PostgreSQL.
    pub system: Option<u64>,
    /// The timeline that it writes; in recovery, the greatest one that it knows of.
    pub timeline: Option<u32>,
    /// Its position in the WAL: inserted, or replayed in recovery.
    pub lsn: Option<u64>,
    /// How far a primary has flushed its WAL: standbys get no more.
    pub flushed: Option<u64>,
    /// `default_transaction_read_only` is on.
    pub read_only: bool,
}

/// How far a host has come in the WAL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reached {
    /// The newest round that had begun when the host was asked; of a primary, the round itself.
    pub round: u64,
    /// What a primary has inserted, or a standby replayed.
    pub lsn: u64,
    /// What a primary has flushed; of a standby as `lsn`.
    pub flushed: u64,
    /// Its timeline.
    pub timeline: u32,
    /// Which run of PostgreSQL it is.
    pub instance: Instance,
}

/// Something that a worker has found out about a host, or an operator orders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    /// A check was answered.
    Report(HostReport),
    /// The login of a server for clients has reported the role.
    Role {
        /// It is in recovery.
        in_recovery: bool,
        /// When it may have begun to say so: what a check has found since then counts more.
        since: Time,
    },
    /// A connection was refused, unreachable or timed out, or the host is starting up: why.
    Down(String),
    /// A login has succeeded.
    Up,
    /// The check's user can't find the role, or a part of what is asked: why. It holds until a
    /// report lacks nothing.
    Hidden(String),
    /// A check that was sent at this time is overdue. Later checks have later times.
    Overdue(Time),
    /// A worker's answer to the question whether one of its servers of the host has sent a byte
    /// since an overdue check.
    Heard {
        /// Which check: when it was sent.
        since: Time,
        /// Who answers.
        worker: WorkerId,
        /// A byte came.
        heard: bool,
    },
    /// How far the host has come. Follows a report that has all of this, if reads are routed.
    Reached(Reached),
    /// Clients wait until a standby of this primary covers a later round than `above`.
    RoundAwaited {
        /// See [`round`](crate::roster::round).
        above: u64,
        /// Until when they wait.
        until: Time,
    },
    /// `DRAIN_HOST`
    Drain,
    /// `RESUME_HOST`
    Resume,
}

/// A fact and its host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostFact {
    /// The host.
    pub host: HostPort,
    /// What was found out.
    pub fact: Fact,
}
