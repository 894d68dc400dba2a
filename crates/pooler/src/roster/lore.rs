//! What a successor process is told of the hosts, so that it need not ask before it has a primary.

use super::fact::HostReport;
use crate::config::HostPort;

/// What a roster knows, without what changes with each check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RosterLore {
    /// By host.
    pub hosts: Vec<HostLore>,
    /// By list of hosts.
    pub lists: Vec<ListLore>,
}

/// What is known of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostLore {
    /// The host.
    pub host: HostPort,
    /// `DRAIN_HOST` holds.
    pub is_drained: bool,
    /// Why it can't be used, if it is down or silent.
    pub down: Option<String>,
    /// What it has said last, unless that is in doubt.
    pub report: Option<HostReport>,
}

/// What earlier verdicts on a list leave to the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListLore {
    /// The hosts, in order.
    pub hosts: Vec<HostPort>,
    /// The place of the last primary.
    pub incumbent: Option<u32>,
    /// The system identifier that it has shown.
    pub system: Option<u64>,
    /// Fenced hosts: place, timeline when it was fenced, and why.
    pub fences: Vec<(u32, Option<u32>, String)>,
}
