//! What the workers know of the hosts of placed databases: who is primary, and who can be used.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::FixedState;

use crate::config::{Database, HostPort, SessionAttrs};
use crate::ids::Time;

/// The hosts of an entry, in its order. Entries with equal lists share one verdict.
pub type HostList = Arc<[HostPort]>;

/// What a host is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The one host that takes writes.
    Primary,
    /// A host in recovery.
    Standby,
    /// A host that takes writes while it is not decided whether it is the primary: several take
    /// writes and none of them was the primary, or other hosts have yet to say something, or its
    /// timeline is being asked for. Whoever asks for a role does not use it.
    Rival,
}

/// Whether a host can be used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// Yes.
    Up,
    /// Its last connection was refused, unreachable or timed out, or it is starting up. It is used
    /// last.
    Down,
    /// It does not answer, on no connection. It gets no new work.
    Silent,
    /// An operator has taken it out (`DRAIN_HOST`).
    Drained,
    /// It takes writes, and another host is the primary, or it belongs to another PostgreSQL. Its
    /// servers are closed.
    Fenced,
}

impl State {
    /// The state in one word.
    pub fn word(self) -> &'static str {
        match self {
            State::Up => "up",
            State::Down => "down",
            State::Silent => "silent",
            State::Drained => "drained",
            State::Fenced => "fenced",
        }
    }
}

/// What is known of one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostStanding {
    /// Its role; `None` if unknown, or if it takes writes and is not the primary (then it is
    /// fenced or drained).
    pub role: Option<Role>,
    /// Whether it can be used.
    pub state: State,
    /// It is a standby of an older timeline than the primary's. It is used last.
    pub behind: bool,
    /// The greatest `max_standby_lag` of a database with this list that its lag is above, in
    /// nanoseconds; 0 if it is above none.
    pub lag_over: u64,
    /// `default_transaction_read_only` is on.
    pub read_only: bool,
    /// No check can find its role: there is no user for it, or PostgreSQL refuses the question. Then
    /// it is tried as if it had the wished role, and a login reports the true one.
    pub hidden: bool,
    /// Why it is in this state, or what is missing to know its role; may be empty.
    pub why: Arc<str>,
    /// Since when it has had this state and role.
    pub since: Time,
    /// Its last known timeline.
    pub timeline: Option<u32>,
    /// Its last known position in the WAL: inserted by a primary, replayed by a standby. Moves with
    /// each check, which alone makes no new view: workers have an old one.
    pub lsn: Option<u64>,
}

/// One run of a PostgreSQL, from its start to its end: a hash of the system identifier and the start
/// time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Instance(pub u64);

impl Instance {
    /// The instance that has said this of itself.
    pub fn of(system: u64, started: &str) -> Instance {
        Instance(FixedState::default().hash_one((system, started)))
    }
}

/// How willingly a host is used: the lowest rank first. Hosts of one rank share the work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// It is up and has the wished role.
    Wished,
    /// It is the primary, and only a standby was preferred.
    Substitute,
    /// It is a standby of an older timeline, or one that lags.
    Behind,
    /// Its role is not known, and only a login can report it.
    Unknown,
    /// It is down.
    Down,
}

impl HostStanding {
    /// How willingly the host is used for a wish; `None` if it must not be used.
    pub fn rank(&self, wish: SessionAttrs) -> Option<Rank> {
        if self.state > State::Down {
            return None;
        }
        let is_writable = self.role == Some(Role::Primary) && !self.read_only;
        let fits = match (wish, self.role) {
            (SessionAttrs::Any, _) => Rank::Wished,
            (_, None) if self.hidden => Rank::Unknown,
            (_, None) => return None,
            (_, Some(Role::Rival)) => return None,
            (SessionAttrs::ReadWrite, _) if is_writable => Rank::Wished,
            (SessionAttrs::ReadOnly, _) if !is_writable => Rank::Wished,
            (SessionAttrs::ReadWrite | SessionAttrs::ReadOnly, _) => return None,
            (SessionAttrs::Primary, Some(Role::Primary)) => Rank::Wished,
            (SessionAttrs::Primary, Some(Role::Standby)) => return None,
            (SessionAttrs::Standby | SessionAttrs::PreferStandby, Some(Role::Standby)) => {
                Rank::Wished
            }
            (SessionAttrs::Standby, Some(Role::Primary)) => return None,
            (SessionAttrs::PreferStandby, Some(Role::Primary)) => Rank::Substitute,
        };
        Some(match self.state {
            State::Down => Rank::Down,
            _ if self.behind => fits.max(Rank::Behind),
            _ => fits,
        })
    }
}

/// What is known of the hosts of one list, in its order. A name with several addresses stands for
/// as many hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListView {
    /// The hosts.
    pub hosts: Vec<(HostPort, HostStanding)>,
}

impl ListView {
    /// What is known of a host.
    pub fn standing(&self, of: &HostPort) -> Option<&HostStanding> {
        let mut hosts = self.hosts.iter();
        hosts
            .find(|(host, _)| host == of)
            .map(|(_, standing)| standing)
    }

    /// The hosts that a wish can use and that are used most willingly: all of one rank.
    /// A standby that is further behind than `max_lag` nanoseconds is used last.
    pub fn best(&self, wish: SessionAttrs, max_lag: u64) -> Vec<&HostPort> {
        let ranked = self.hosts.iter();
        let ranked = ranked.filter_map(|(host, standing)| {
            let rank = standing.rank(wish)?;
            let lags = standing.lag_over >= max_lag;
            Some((if lags { rank.max(Rank::Behind) } else { rank }, host))
        });
        let ranked: Vec<_> = ranked.collect();
        let best = ranked.iter().map(|(rank, _)| *rank).min();
        let of_best = ranked.into_iter().filter(|(rank, _)| Some(*rank) == best);
        of_best.map(|(_, host)| host).collect()
    }
}

/// What is known of all lists. The control thread sends a new value whenever something changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// By the list in the configuration.
    pub lists: BTreeMap<HostList, ListView>,
}

impl View {
    /// The hosts of a placed database, which may be more than its entry names.
    pub fn hosts(&self, database: &Database) -> &[(HostPort, HostStanding)] {
        let list = self.lists.get(&*database.hosts);
        list.map_or(&[], |list| &list.hosts)
    }

    /// True if a list has the host.
    pub fn has(&self, host: &HostPort) -> bool {
        let mut lists = self.lists.values();
        lists.any(|list| list.standing(host).is_some())
    }

    /// The primary of a host: the first one of the lists with this host.
    pub fn primary_of(&self, host: &HostPort) -> Option<&HostPort> {
        let lists = self.lists.values();
        let with_host = lists.filter(|list| list.standing(host).is_some());
        let mut hosts = with_host.flat_map(|list| &list.hosts);
        let primary = hosts.find(|(_, of)| of.role == Some(Role::Primary));
        primary.map(|(host, _)| host)
    }

    /// How many hosts of a database can be used now.
    pub fn usable(&self, database: &Database) -> u32 {
        let wish = database.target_session_attrs;
        let usable = |of: &HostStanding| of.rank(wish).is_some_and(|rank| rank < Rank::Down);
        let hosts = self.hosts(database).iter();
        hosts.filter(|(_, standing)| usable(standing)).count() as u32
    }

    /// True if a host is fenced here that was not before.
    pub fn fences_more_than(&self, before: &View) -> bool {
        let fenced = |list: &ListView, host: &HostPort| {
            list.standing(host)
                .is_some_and(|of| of.state == State::Fenced)
        };
        self.lists.iter().any(|(key, list)| {
            let old = before.lists.get(key);
            let new = |host: &HostPort| !old.is_some_and(|old| fenced(old, host));
            list.hosts
                .iter()
                .any(|(host, _)| fenced(list, host) && new(host))
        })
    }
}
