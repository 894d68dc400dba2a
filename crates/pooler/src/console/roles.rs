//! The hosts of placed databases on the console: SHOW HOSTS, DRAIN_HOST, RESUME_HOST.

use std::collections::BTreeMap;

use super::host_sight::HostSight;
use super::rows::{Row, number, text};
use crate::config::{Config, Database, HostPort};
use crate::console::holdings::{Holdings, HostServers};
use crate::event::Out;
use crate::host_check::tell;
use crate::ids::Time;
use crate::login::LoginId;
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::reads::ReadTerms;
use crate::reads::hindrance::{Hindrance, ReadSight};
use crate::roster::fact::Fact;
use crate::server::ServerState;

/// One row for each host.
pub(super) fn show_hosts(config: &Config, now: Time, holdings: &[Holdings]) -> Vec<Row> {
    let row = |sight: HostSight| {
        let (role, state) = (sight.role_word(), sight.standing.state.word());
        let HostSight {
            host,
            standing,
            servers,
            lag,
            lag_ns,
            reads,
        } = sight;
        let check = servers.check.as_ref();
        vec![
            text(&host.host.to_string()),
            number(host.port),
            check.map(|check| check.address.clone()),
            text(role),
            text(state),
            text(&standing.why),
            number(now.0.saturating_sub(standing.since.0) / 1_000_000_000),
            number(config.weight(&host)),
            standing.timeline.and_then(number),
            check.and_then(|check| check.lsn).map(lsn_text),
            lag.and_then(number),
            lag_ns.and_then(|lag| number(lag / 1_000_000)),
            reads,
            number(servers.servers),
            number(servers.active),
            number(servers.logins),
            number(config.max_host_connections(&host)),
            number(config.max_host_logins(&host)),
            number(servers.checkouts),
            check.and_then(|check| number(check.took / 1000)),
        ]
    };
    HostSight::all(holdings).into_iter().map(row).collect()
}

/// A position in the WAL as PostgreSQL writes it.
fn lsn_text(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff)
}

impl Pooler {
    /// How far behind the primary standbys are, in nanoseconds. In several lists: by the best one.
    pub(super) fn lags(&self) -> BTreeMap<HostPort, u64> {
        let mut lags = BTreeMap::new();
        for (host, cover) in self.covers.values().flat_map(|covers| covers.iter()) {
            let lag = lags.entry(host.clone()).or_insert(cover.lag);
            *lag = cover.lag.min(*lag);
        }
        // Those that cover nothing yet have told nothing.
        lags.retain(|_, lag| *lag < u64::MAX);
        lags
    }

    /// Whether reads go to each host, or why not, by all that this worker knows.
    pub(super) fn read_sights(&self) -> BTreeMap<HostPort, ReadSight> {
        let mut sights = BTreeMap::new();
        let databases = self.config.databases.values().chain(&self.config.fallback);
        for database in databases {
            let terms = ReadTerms::of(self.config.scopes(Some(database), None), database);
            self.note_reads(None, (database, terms), &mut sights);
        }
        for id in self.logins.ids() {
            let terms = &self.logins.at(id).terms;
            self.note_reads(Some(id), (&terms.database, terms.reads), &mut sights);
        }
        sights
    }

    /// Notes whether the reads of a login go to each of its hosts. Without a login: those of a
    /// database whose clients have not come yet.
    fn note_reads(
        &self,
        login: Option<LoginId>,
        (database, terms): (&Database, Option<ReadTerms>),
        sights: &mut BTreeMap<HostPort, ReadSight>,
    ) {
        let Some(terms) = terms else { return };
        let covers = self.covers.get(&*database.hosts);
        for (host, standing) in self.hosts.hosts(database) {
            let fails = login.and_then(|login| {
                let pool = self.pool_there(login, Purpose::Clients, &TargetName::host(host))?;
                let failure = self.pools.at(pool).failure.as_ref()?;
                Some(Hindrance::Servers(failure.text.as_str().into()))
            });
            let cover = covers.and_then(|covers| covers.get(host));
            let sight = ReadSight {
                is_expected: login.is_none(),
                hindrance: Hindrance::of_reads(standing, cover, &terms).or(fails),
            };
            let least = sights.entry(host.clone()).or_insert_with(|| sight.clone());
            *least = sight.min(least.clone());
        }
    }

    /// This worker's servers at each host of placed databases.
    pub(super) fn host_servers(&self) -> BTreeMap<HostPort, HostServers> {
        let mut hosts: BTreeMap<HostPort, HostServers> = BTreeMap::new();
        for (_, server) in self.servers.iter().filter(|(_, server)| server.permitted) {
            let TargetName::Host(host) = &self.pools.at(server.pool).key.target else {
                continue;
            };
            let counts = hosts.entry((**host).clone()).or_default();
            counts.checkouts += server.checkouts;
            match server.state() {
                ServerState::Resolving
                | ServerState::Connecting
                | ServerState::Securing(_)
                | ServerState::Login(_)
                | ServerState::ConnectQuery
                | ServerState::Maturing(_) => counts.logins += 1,
                _ => {
                    counts.servers += 1;
                    counts.active += u32::from(server.is_linked());
                }
            }
        }
        for (_, pool) in self.pools.iter() {
            if let TargetName::Host(host) = &pool.key.target {
                let counts = hosts.entry((**host).clone()).or_default();
                counts.checkouts += pool.past_checkouts();
            }
        }
        for (host, past) in &self.past_checkouts {
            hosts.entry(host.clone()).or_default().checkouts += past;
        }
        for (host, check) in &self.checks.hosts {
            let counts = hosts.entry(host.clone()).or_default();
            counts.check = check.last.clone();
        }
        hosts
    }

    /// DRAIN_HOST and RESUME_HOST. False if no placed database has such a host.
    pub(super) fn order_host(&self, written: &str, fact: &Fact, out: &mut Out) -> bool {
        let known = self.hosts.lists.values().flat_map(|list| &list.hosts);
        let known = known.map(|(host, _)| host);
        let mut meant: Vec<&HostPort> = known.filter(|host| host.is_named(written)).collect();
        meant.sort_unstable();
        meant.dedup();
        for host in &meant {
            tell((*host).clone(), fact.clone(), out);
        }
        !meant.is_empty()
    }
}
