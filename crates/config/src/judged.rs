//! What is refused and doubted about the hosts of databases as a whole.

use std::net::{IpAddr, SocketAddr};

use super::host::{Host, HostPort};
use super::resolve::ConfigReader;
use super::value::{PoolMode, ReadConsistency, ReadRouting};

impl ConfigReader {
    /// Refuses lists of hosts in which a placed entry could not find its way, and warns of entries
    /// of `[hosts]` that no database has.
    pub(super) fn judge_placed(&mut self) {
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let placed = databases.filter(|database| database.is_placed());
        let wrong = placed.filter_map(|database| {
            let written = database.host.as_deref().unwrap_or_default();
            let mut hosts = database.hosts.iter().enumerate();
            let twice = hosts.find(|(at, to)| database.hosts[..*at].contains(to));
            let what = match twice {
                Some((_, to)) => format!("the host {to} stands twice in its list"),
                None if database.hosts.is_empty() && written.is_empty() => "it has no host".into(),
                None if written.split(',').any(|host| host.trim().is_empty())
                    && database.host.is_some() =>
                {
                    "there is an empty host in its list".into()
                }
                None => return None,
            };
            Some((database.name.clone(), what))
        });
        for (name, what) in wrong.collect::<Vec<_>>() {
            let remedy = "with target_session_attrs, write each host once";
            self.refuse_entry(&name, what, remedy);
        }
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let known: Vec<&HostPort> = databases.flat_map(|database| &database.hosts).collect();
        let has_names = known.iter().any(|to| matches!(to.host, Host::Name(_)));
        let is_known = |name: &str| {
            // An address may be one of a name's.
            let is_address =
                || name.parse::<IpAddr>().is_ok() || name.parse::<SocketAddr>().is_ok();
            known.iter().any(|host| host.is_named(name)) || has_names && is_address()
        };
        let unknown = self.config.hosts.keys().filter(|name| !is_known(name));
        for name in unknown.cloned().collect::<Vec<_>>() {
            self.warn(format!(
                "[hosts] has \"{name}\", and no database has this host: write the host as it stands there, \
                 or host:port"
            ));
        }
    }

    /// Warns of databases whose reads can't go to standbys, though their entry, or the only user's,
    /// says so.
    pub(super) fn judge_reads(&mut self) {
        let globals = &self.config.globals;
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let mut doubts = Vec::new();
        for database in databases {
            let scopes = self.config.scopes(Some(database), None);
            let is_own = database.read_routing.is_some();
            let is_name = |to: &HostPort| matches!(to.host, Host::Name(_));
            // A name may have several.
            let has_addresses = database.is_placed() && database.hosts.iter().all(is_name);
            if scopes.read_routing() == ReadRouting::Off {
                continue;
            }
            let knows_user = [globals.host_check_user.clone(), scopes.auth_user()];
            let knows_user = knows_user
                .into_iter()
                .flatten()
                .any(|user| !user.is_empty())
                || database.forced_user.is_some();
            let what = match () {
                () if database.hosts.len() < 2 && !is_own => continue,
                () if database.hosts.len() < 2 && !has_addresses => "it has one host",
                () if scopes.pool_mode() == PoolMode::Session => "its pool_mode is session",
                () if !knows_user && scopes.read_consistency() == ReadConsistency::Session => {
                    "nobody can ask its hosts how far they are (host_check_user)"
                }
                () => continue,
            };
            doubts.push((database.name.clone(), what));
        }
        for (name, what) in doubts {
            let place = self.place_of(&name);
            self.warn(format!(
                "database \"{name}\"{place} has read_routing, but no read goes to a standby: {what}"
            ));
        }
    }
}
