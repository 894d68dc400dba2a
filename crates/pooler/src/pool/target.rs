//! A target: where the servers of a pool connect to.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::Seeded;
pub use crate::config::HostPort;
use crate::config::{Database, Host, LoadBalance};

/// Which of its database's servers a pool has.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TargetName {
    /// Those of all hosts in the database's entry: any of them can serve any client.
    Entry,
    /// Those of one host of a placed database.
    Host(Arc<HostPort>),
    /// None: here the clients of a placed database wait while no host fits.
    NoHost,
}

impl TargetName {
    /// The name of a host's target.
    pub fn host(host: &HostPort) -> TargetName {
        TargetName::Host(Arc::new(host.clone()))
    }

    /// True for the target of this host.
    pub fn is_host(&self, host: &HostPort) -> bool {
        matches!(self, TargetName::Host(own) if **own == *host)
    }
}

/// Where the servers of a pool connect to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The name, which a reload does not change.
    pub name: TargetName,
    /// The hosts. May be empty.
    pub hosts: Box<[HostPort]>,
    /// How the hosts take turns.
    pub turn: LoadBalance,
}

impl Target {
    /// The target with this name in a database's entry.
    pub fn of(database: &Database, name: TargetName) -> Target {
        let hosts = match &name {
            TargetName::Entry => database.hosts.clone(),
            TargetName::Host(host) => vec![HostPort::clone(host)],
            TargetName::NoHost => Vec::new(),
        };
        Target {
            name,
            hosts: hosts.into(),
            turn: database.load_balance_hosts,
        }
    }

    /// The host with this name, if it is one of the target's.
    pub fn named(&self, name: &str) -> Option<&HostPort> {
        let mut hosts = self.hosts.iter();
        hosts.find(|to| matches!(&to.host, Host::Name(host) if host == name))
    }
}

/// The targets of a worker. Equal targets are one `Arc`.
#[derive(Debug)]
pub struct Targets {
    known: HashSet<Arc<Target>, Seeded>,
    /// When there are this many targets, the unused are removed.
    tidy_at: usize,
}

/// How many targets are kept before the unused are first removed.
const TARGETS: usize = 64;

impl Targets {
    /// No targets yet.
    pub fn new(seeded: Seeded) -> Targets {
        Targets {
            known: HashSet::with_hasher(seeded),
            tidy_at: TARGETS,
        }
    }

    /// The shared copy of a target.
    pub fn intern(&mut self, target: Target) -> Arc<Target> {
        if let Some(shared) = self.known.get(&target) {
            return shared.clone();
        }
        if self.known.len() >= self.tidy_at {
            self.known.retain(|target| Arc::strong_count(target) > 1);
            self.tidy_at = (2 * self.known.len()).max(TARGETS);
        }
        let shared = Arc::new(target);
        self.known.insert(shared.clone());
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_targets_are_one_value() {
        let mut targets = Targets::new(crate::seeded(1));
        let mut target = |port: u16| {
            let host = Host::Name("h".into());
            targets.intern(Target {
                name: TargetName::Entry,
                hosts: Box::new([HostPort { host, port }]),
                turn: LoadBalance::Disable,
            })
        };
        let one = target(1);
        assert!(Arc::ptr_eq(&one, &target(1)) && !Arc::ptr_eq(&one, &target(2)));
        for port in 3..200 {
            target(port);
        }
        assert!(Arc::ptr_eq(&one, &target(1)));
        assert_eq!(one.named("h").map(|to| to.port), Some(1));
        assert_eq!(one.named("other"), None);
    }
}
