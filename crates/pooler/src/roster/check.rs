//! The state of checks: the connections on which hosts are asked for their roles.

use std::collections::BTreeMap;

use super::fact::HostReport;
use crate::config::HostPort;
use crate::ids::{ServerId, Time};
use crate::pool::target::TargetName;

/// How soon a host is asked again if that is urgent, in nanoseconds.
pub(crate) const URGENT_NS: u64 = 5_000_000;

/// The checks that a worker makes.
#[derive(Debug, Default)]
pub struct HostChecks {
    /// The roster is told how far hosts have come: reads are routed somewhere.
    pub(crate) tells_reached: bool,
    pub(crate) hosts: BTreeMap<HostPort, HostCheck>,
}

/// The check of one host.
#[derive(Debug, Default)]
pub struct HostCheck {
    /// Its connection, which may be on its way.
    pub(crate) server: Option<ServerId>,
    /// When the next connection is opened, if there is none; `None` without a user for it.
    pub(crate) next: Option<Time>,
    /// The host has refused the whole question, and gets the plain one on this connection.
    pub(crate) is_plain: bool,
    /// The last answer.
    pub(crate) last: Option<LastCheck>,
}

/// The last answer to a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastCheck {
    /// The host's address, as its connection has it.
    pub address: String,
    /// The position in the WAL: inserted by a primary, replayed by a standby.
    pub lsn: Option<u64>,
    /// What is missing to know how far the host is.
    pub lack: Option<&'static str>,
    /// How long the host took to answer, in nanoseconds.
    pub took: u64,
}

impl HostCheck {
    /// A check that must begin at this time.
    pub(crate) fn due(at: Time) -> HostCheck {
        HostCheck {
            next: Some(at),
            ..HostCheck::default()
        }
    }
}

/// What a check's connection is doing.
#[derive(Debug, Default)]
pub struct Examination {
    /// When the question was sent that the host has not answered yet.
    pub(crate) asked: Option<Time>,
    /// The row that has come.
    pub(crate) answer: Option<HostReport>,
    /// PostgreSQL's error, or what is wrong with the row.
    pub(crate) error: Option<String>,
    /// The error says that a right or a function is missing.
    pub(crate) is_refused: bool,
    /// The newest round that had begun when the question was sent; of a primary, the round that the
    /// question is.
    pub(crate) round: u64,
    /// The host must be asked again soon.
    pub(crate) is_urgent: bool,
}

impl HostChecks {
    /// When the next connection must be opened.
    pub(crate) fn next(&self) -> Option<Time> {
        let waiting = self.hosts.values().filter(|check| check.server.is_none());
        waiting.filter_map(|check| check.next).min()
    }

    /// The hosts whose next connection is due.
    pub(crate) fn due(&self, now: Time) -> Vec<HostPort> {
        let waiting = self.hosts.iter().filter(|(_, check)| {
            check.server.is_none() && check.next.is_some_and(|next| next <= now)
        });
        waiting.map(|(host, _)| host.clone()).collect()
    }

    pub(crate) fn get_mut(&mut self, target: &TargetName) -> Option<&mut HostCheck> {
        match target {
            TargetName::Host(host) => self.hosts.get_mut(host),
            TargetName::Entry | TargetName::NoHost => None,
        }
    }
}
