//! What the roster knows of one list of hosts.

use std::collections::{BTreeMap, BTreeSet};

use super::lore::ListLore;
use super::record::HostRecord;
use super::round::RoundLog;
use super::verdict::{Contestant, Fence, Judgement, Precedent, judge};
use super::view::{HostList, ListView, Role, State};
use crate::config::HostPort;
use crate::ids::Time;
use crate::note::{Level, Note};

/// The verdict on a list, and what the next verdict must remember.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Roll {
    /// The hosts of the list, in its order. Those of a name are its addresses, if there are several.
    members: HostList,
    precedent: Precedent,
    /// Without positions in the WAL.
    view: ListView,
    /// How far standbys have come.
    pub(super) rounds: RoundLog,
    /// How far its databases let standbys be behind, in nanoseconds.
    max_lags: BTreeSet<u64>,
    /// The standbys that were further behind at the last verdict, with the greatest of these limits.
    lagging: BTreeMap<HostPort, u64>,
}

impl Roll {
    /// The roll of these hosts after a reload, or after the addresses of a name have changed. It
    /// remembers what was known of the same hosts before, or in the list that had most of them.
    pub(super) fn succeed(members: HostList, before: &BTreeMap<HostList, Roll>) -> Roll {
        if let Some(same) = before.values().find(|old| old.members == members) {
            return same.clone();
        }
        let of_old = |old: &Roll| {
            old.members
                .iter()
                .filter(|host| members.contains(host))
                .count()
        };
        let closest = before.values().max_by_key(|old| of_old(old));
        let closest = closest.filter(|old| of_old(old) > 0);
        let mut roll = Roll {
            precedent: Precedent::new(members.len()),
            view: ListView::default(),
            rounds: RoundLog::default(),
            max_lags: BTreeSet::new(),
            lagging: BTreeMap::new(),
            members,
        };
        let Some(closest) = closest else {
            return roll;
        };
        roll.view = closest.view.clone();
        for (at, host) in roll.members.iter().enumerate() {
            let Some(place) = closest.members.iter().position(|of_old| of_old == host) else {
                continue;
            };
            roll.precedent.fences[at] = closest.precedent.fences[place].clone();
            if closest.precedent.incumbent == Some(place) {
                roll.precedent.incumbent = Some(at);
                roll.precedent.system = closest.precedent.system;
            }
        }
        roll
    }

    /// How far the list's databases let standbys be behind, in nanoseconds.
    pub(super) fn limit_lag(&mut self, max_lags: BTreeSet<u64>) {
        self.max_lags = max_lags;
    }

    /// The standbys that are further behind than some database lets them be, with the greatest limit.
    fn find_lagging(&self) -> BTreeMap<HostPort, u64> {
        let mut lagging = BTreeMap::new();
        for host in self.members.iter().filter(|_| !self.max_lags.is_empty()) {
            let (lag, before) = (self.rounds.lag(host), self.lagging.get(host));
            // Whoever was behind must come well below the limit, or it would go to and fro.
            let is_over = |limit: &&u64| {
                let was_over = before.is_some_and(|before| before >= *limit);
                lag > **limit || was_over && lag > **limit / 2
            };
            if let Some(limit) = self.max_lags.iter().rev().find(is_over) {
                lagging.insert(host.clone(), *limit);
            }
        }
        lagging
    }

    /// True if other standbys are too far behind than at the last verdict.
    pub(super) fn lags_anew(&self) -> bool {
        self.find_lagging() != self.lagging
    }

    /// The hosts, in order.
    pub(super) fn members(&self) -> &[HostPort] {
        &self.members
    }

    /// What a successor must know of the list.
    pub(super) fn lore(&self) -> ListLore {
        let Precedent {
            incumbent,
            system,
            fences,
        } = &self.precedent;
        let fenced = (0..).zip(fences).filter_map(|(at, fence)| {
            let fence = fence.as_ref()?;
            Some((at, fence.timeline, fence.why.to_string()))
        });
        ListLore {
            hosts: self.members.to_vec(),
            incumbent: incumbent.and_then(|at| u32::try_from(at).ok()),
            system: *system,
            fences: fenced.collect(),
        }
    }

    /// What the predecessor knew of a list.
    pub(super) fn inherit(lore: &ListLore) -> Roll {
        let mut precedent = Precedent::new(lore.hosts.len());
        let incumbent = lore.incumbent.map(|at| at as usize);
        precedent.incumbent = incumbent.filter(|at| *at < lore.hosts.len());
        precedent.system = precedent.incumbent.and(lore.system);
        for (at, timeline, why) in &lore.fences {
            if let Some(fence) = precedent.fences.get_mut(*at as usize) {
                let (timeline, why) = (*timeline, why.as_str().into());
                *fence = Some(Fence { timeline, why });
            }
        }
        Roll {
            members: lore.hosts.as_slice().into(),
            precedent,
            view: ListView::default(),
            rounds: RoundLog::default(),
            max_lags: BTreeSet::new(),
            lagging: BTreeMap::new(),
        }
    }

    /// Judges the list again, and says in the log what is new. True if the view has changed.
    pub(super) fn judge(
        &mut self,
        now: Time,
        records: &BTreeMap<HostPort, HostRecord>,
        notes: &mut Vec<Note>,
    ) -> bool {
        let contestants = self
            .members
            .iter()
            .map(|host| records[host].contestant(host));
        let contestants: Vec<Contestant<'_>> = contestants.collect();
        let Judgement { precedent, rulings } = judge(&contestants, &self.precedent);
        let lagging = self.find_lagging();
        let judged = self.members.iter().zip(rulings).zip(&precedent.fences);
        let hosts = judged.map(|((host, ruling), fence)| {
            let mut standing = records[host].standing(now, ruling, fence.as_ref());
            let is_standby = standing.role == Some(Role::Standby);
            if let Some(limit) = lagging.get(host).filter(|_| is_standby) {
                standing.lag_over = *limit;
                if standing.state == State::Up && !standing.behind {
                    standing.why = "is behind by more than max_standby_lag".into();
                }
            }
            if let Some(old) = self.view.standing(host)
                && (old.state, old.role) == (standing.state, standing.role)
            {
                standing.since = old.since;
            }
            (host.clone(), standing)
        });
        let view = ListView {
            hosts: hosts.collect(),
        };
        self.tell_fences(&contestants, &precedent, notes);
        self.tell_primary(&view, notes);
        self.precedent = precedent;
        self.lagging = lagging;
        let changed = view != self.view;
        self.view = view;
        changed
    }

    fn tell_fences(&self, hosts: &[Contestant<'_>], new: &Precedent, notes: &mut Vec<Note>) {
        let fences = self.precedent.fences.iter().zip(&new.fences);
        for (of, (before, after)) in hosts.iter().zip(fences) {
            let host = of.host;
            let note = match (before, after) {
                (None, Some(fence)) => {
                    // One that is up may confirm writes to others, which will be lost.
                    let level = if of.is_up {
                        Level::Error
                    } else {
                        Level::Warning
                    };
                    Note::new(level, format!("host {host} is fenced: {}", fence.why))
                }
                (Some(_), None) => {
                    Note::new(Level::Log, format!("host {host} is no longer fenced"))
                }
                _ => continue,
            };
            notes.push(note);
        }
    }

    fn tell_primary(&self, new: &ListView, notes: &mut Vec<Note>) {
        let (before, after) = (
            having(&self.view, Role::Primary),
            having(new, Role::Primary),
        );
        let rivals = having(new, Role::Rival);
        let note = match (&after[..], &rivals[..]) {
            ([primary, ..], _) if before.contains(primary) => return,
            ([primary, ..], _) => Note::new(Level::Log, format!("host {primary} is the primary")),
            ([], [first, others @ ..]) if !others.is_empty() => {
                if rivals == having(&self.view, Role::Rival) && before.is_empty() {
                    return;
                }
                let others = others.iter().map(|host| format!(" and {host}"));
                let others: String = others.collect();
                let text = format!("two primaries: {first}{others} take writes: writers wait");
                Note::new(Level::Error, text)
            }
            ([], _) if before.is_empty() => return,
            ([], _) => {
                let hosts = new.hosts.iter().map(|(host, standing)| {
                    let what = match (standing.state, standing.role) {
                        (State::Up, Some(Role::Standby)) => "is a standby",
                        _ => &*standing.why,
                    };
                    format!("{host} {what}")
                });
                let hosts = hosts.collect::<Vec<_>>().join(", ");
                Note::new(Level::Warning, format!("no primary: {hosts}"))
            }
        };
        notes.push(note);
    }

    /// Ends the fences of resumed hosts, and forgets an incumbent that is away.
    pub(super) fn forget(&mut self, resumed: &BTreeSet<HostPort>, away: &BTreeSet<HostPort>) {
        for (host, fence) in self.members.iter().zip(&mut self.precedent.fences) {
            fence.take_if(|_| resumed.contains(host));
        }
        let incumbent = self.precedent.incumbent;
        if incumbent.is_some_and(|at| away.contains(&self.members[at])) {
            self.precedent.incumbent = None;
            self.precedent.system = None;
        }
    }

    /// The verdict, with the hosts' positions in the WAL.
    pub(super) fn view(&self, records: &BTreeMap<HostPort, HostRecord>) -> ListView {
        let mut view = self.view.clone();
        for (host, standing) in &mut view.hosts {
            standing.lsn = records[host].lsn();
        }
        view
    }

    /// The primaries, of which there is one, perhaps by several addresses.
    pub(super) fn primaries(&self) -> Vec<&HostPort> {
        having(&self.view, Role::Primary)
    }

    /// The standbys that can be asked.
    pub(super) fn standbys(&self) -> impl Iterator<Item = &HostPort> {
        let hosts = self.view.hosts.iter();
        let standbys =
            hosts.filter(|(_, of)| of.role == Some(Role::Standby) && of.state == State::Up);
        standbys.map(|(host, _)| host)
    }

    /// Panics if the verdict contradicts itself or is out of date.
    pub(super) fn check(&self, records: &BTreeMap<HostPort, HostRecord>) {
        let hosts: Vec<_> = self.view.hosts.iter().map(|(host, _)| host).collect();
        assert_eq!(
            hosts,
            self.members.iter().collect::<Vec<_>>(),
            "hosts of a list"
        );
        let (mut again, mut notes) = (self.clone(), Vec::new());
        again.judge(Time(u64::MAX), records, &mut notes);
        assert_eq!((&again, &notes[..]), (self, &[][..]), "a list judged twice");
        let primaries = having(&self.view, Role::Primary);
        for pair in primaries.windows(2) {
            let identity = |host: &HostPort| {
                let word = records[host].word.as_ref();
                let identity = word.and_then(|word| word.identity());
                identity.map(|(system, started)| (system, started.to_owned()))
            };
            let first = identity(pair[0]);
            assert!(
                first.is_some() && first == identity(pair[1]),
                "two primaries: {pair:?}"
            );
        }
        for (host, standing) in &self.view.hosts {
            let is_out = standing.state >= State::Drained;
            let is_primary = standing.role == Some(Role::Primary);
            assert!(!(is_out && is_primary), "{host} is out, and the primary");
        }
    }
}

/// The hosts of a list with a role.
fn having(view: &ListView, role: Role) -> Vec<&HostPort> {
    let hosts = view.hosts.iter();
    let having = hosts.filter(|(_, standing)| standing.role == Some(role));
    having.map(|(host, _)| host).collect()
}
