//! The hosts of placed databases over all workers, for SHOW HOSTS and for metrics.

use std::collections::BTreeMap;

use crate::config::HostPort;
use crate::console::holdings::{Holdings, HostServers};
use crate::reads::hindrance::ReadSight;
use crate::roster::view::{HostStanding, Role, View};

/// A host: what is known of it, and its servers on all workers.
#[derive(Clone, Debug)]
pub struct HostSight {
    /// The host.
    pub host: HostPort,
    /// Its role and state. In several lists: where its state is worst.
    pub standing: HostStanding,
    /// Its servers and its last check.
    pub servers: HostServers,
    /// Of a standby: how many bytes of the WAL it has not replayed yet, by the last checks of both.
    pub lag: Option<u64>,
    /// Of a standby: how much older than the newest position that the primary has told is the newest
    /// one that the standby has replayed, in nanoseconds. Only where reads are routed.
    pub lag_ns: Option<u64>,
    /// Whether reads go there, or why not, in a short phrase; `None` where none are routed.
    pub reads: Option<String>,
}

impl HostSight {
    /// All hosts that all workers know, sorted.
    pub(crate) fn all(holdings: &[Holdings]) -> Vec<HostSight> {
        let mut servers: BTreeMap<&HostPort, HostServers> = BTreeMap::new();
        for (host, own) in holdings.iter().flat_map(|holding| &holding.hosts) {
            servers.entry(host).or_default().add(own);
        }
        let view = holdings.first().map(|holding| &*holding.view);
        let lags = holdings.first().map(|holding| &holding.lags);
        let standings = view.map(worst).unwrap_or_default();
        let mut reads: BTreeMap<&HostPort, &ReadSight> = BTreeMap::new();
        for (host, own) in holdings.iter().flat_map(|holding| &holding.reads) {
            let sight = reads.entry(host).or_insert(own);
            *sight = sight.with(own);
        }
        let lack = |host: &HostPort| servers.get(host)?.check.as_ref()?.lack;
        let lack = |host: &HostPort| {
            let primary =
                || lack(view?.primary_of(host)?).map(|what| format!("the primary {what}"));
            lack(host).map(str::to_owned).or_else(primary)
        };
        let lsn = |host: &HostPort| servers.get(host)?.check.as_ref()?.lsn;
        let lag = |host: &HostPort| Some(lsn(view?.primary_of(host)?)?.saturating_sub(lsn(host)?));
        let sight = |(host, standing): (&HostPort, &HostStanding)| HostSight {
            host: host.clone(),
            standing: standing.clone(),
            servers: servers.get(host).cloned().unwrap_or_default(),
            lag: lag(host).filter(|_| standing.role == Some(Role::Standby)),
            lag_ns: lags
                .and_then(|lags| lags.get(host).copied())
                .filter(|_| standing.role == Some(Role::Standby)),
            reads: reads.get(host).map(|of| match &of.hindrance {
                Some(hindrance) => hindrance.phrase(lack(host).as_deref()),
                None => "yes".into(),
            }),
        };
        standings.into_iter().map(sight).collect()
    }

    /// Its role in one word.
    pub(crate) fn role_word(&self) -> &'static str {
        match self.standing.role {
            Some(Role::Primary) => "primary",
            Some(Role::Standby) => "standby",
            Some(Role::Rival) => "rival",
            None => "unknown",
        }
    }
}

/// The worst that is known of each host.
fn worst(view: &View) -> BTreeMap<&HostPort, &HostStanding> {
    let mut worst: BTreeMap<&HostPort, &HostStanding> = BTreeMap::new();
    for (host, standing) in view.lists.values().flat_map(|list| &list.hosts) {
        let shown = worst.entry(host).or_insert(standing);
        if standing.state > shown.state {
            *shown = standing;
        }
    }
    worst
}
