//! The hosts of placed databases on the console: SHOW HOSTS, DRAIN_HOST, RESUME_HOST.

use std::collections::BTreeMap;

use super::rows::{Row, number, text};
use crate::config::{Config, HostPort};
use crate::console::holdings::{Holdings, HostServers};
use crate::event::Out;
use crate::host_check::tell;
use crate::ids::Time;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::roster::fact::Fact;
use crate::roster::view::{HostStanding, Role, State, View};
use crate::server::ServerState;

/// One row for each host and list of hosts.
pub(super) fn show_hosts(
    view: &View,
    config: &Config,
    now: Time,
    holdings: &[Holdings],
) -> Vec<Row> {
    let mut all: BTreeMap<&HostPort, HostServers> = BTreeMap::new();
    for (host, own) in holdings.iter().flat_map(|holding| &holding.hosts) {
        let sum = all.entry(host).or_default();
        sum.servers += own.servers;
        sum.active += own.active;
        sum.logins += own.logins;
    }
    let mut hosts: BTreeMap<&HostPort, &HostStanding> = BTreeMap::new();
    for (host, standing) in view.lists.values().flat_map(|list| &list.hosts) {
        // In several lists the worst state is shown.
        let shown = hosts.entry(host).or_insert(standing);
        if standing.state > shown.state {
            *shown = standing;
        }
    }
    let row = |(host, standing): (&HostPort, &HostStanding)| {
        let servers = all.get(host).copied().unwrap_or_default();
        vec![
            text(&host.host.to_string()),
            number(host.port),
            text(role_word(standing.role)),
            text(state_word(standing.state)),
            text(&standing.why),
            number(now.0.saturating_sub(standing.since.0) / 1_000_000_000),
            number(config.weight(host)),
            standing.timeline.and_then(number),
            number(servers.servers),
            number(servers.active),
            number(servers.logins),
        ]
    };
    hosts.into_iter().map(row).collect()
}

fn role_word(role: Option<Role>) -> &'static str {
    match role {
        Some(Role::Primary) => "primary",
        Some(Role::Standby) => "standby",
        Some(Role::Rival) => "rival",
        None => "unknown",
    }
}

fn state_word(state: State) -> &'static str {
    match state {
        State::Up => "up",
        State::Down => "down",
        State::Silent => "silent",
        State::Drained => "drained",
        State::Fenced => "fenced",
    }
}

impl Pooler {
    /// This worker's servers at each host of placed databases.
    pub(super) fn host_servers(&self) -> BTreeMap<HostPort, HostServers> {
        let mut hosts: BTreeMap<HostPort, HostServers> = BTreeMap::new();
        for (_, server) in self.servers.iter().filter(|(_, server)| server.permitted) {
            let TargetName::Host(host) = &self.pools.at(server.pool).key.target else {
                continue;
            };
            let counts = hosts.entry((**host).clone()).or_default();
            match server.state() {
                ServerState::Resolving
                | ServerState::Connecting
                | ServerState::Securing(_)
                | ServerState::Login(_)
                | ServerState::ConnectQuery => counts.logins += 1,
                _ => {
                    counts.servers += 1;
                    counts.active += u32::from(server.is_linked());
                }
            }
        }
        hosts
    }

    /// DRAIN_HOST and RESUME_HOST. False if no placed database has such a host.
    pub(super) fn order_host(&self, written: &str, fact: &Fact, out: &mut Out) -> bool {
        let known = self.hosts.lists.keys().flat_map(|list| list.iter());
        let mut meant: Vec<&HostPort> = known.filter(|host| host.is_named(written)).collect();
        meant.sort_unstable();
        meant.dedup();
        for host in &meant {
            tell((*host).clone(), fact.clone(), out);
        }
        !meant.is_empty()
    }
}
