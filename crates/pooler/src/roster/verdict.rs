//! Who is the primary of a list of hosts, and who is fenced: a pure function ([`judge`]).
//!
//! 1. Addresses with one system identifier and start time are one host.
//! 2. The incumbent decides the system identifier; without one, those who take writes do.
//! 3. A fence ends when its host has been a standby since. A timeline that has grown, or one above
//!    the primary's, proves this, too.
//! 4. Who has another system identifier is fenced, and who takes writes on an older timeline than
//!    another host has shown.
//! 5. Of the rest who take writes, all on one timeline or on unknown ones, one is the primary. The
//!    first primary is chosen when all hosts have said something.
//! 6. Fenced is who takes writes on the primary's timeline, and the primary before, if it has not
//!    said that it is a standby. With an unknown timeline, nobody knows which of two is the newer
//!    one: the other stays a rival, and is the primary once the incumbent is down.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fact::HostReport;
use super::view::Role;
use crate::config::HostPort;

/// What a host has said last, by an answered check or a login.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LastWord {
    pub(super) report: HostReport,
    /// A login has reported another role than the last check, and the next check will show the
    /// timeline. Until then the host is no reason to fence anyone, itself included.
    pub(super) in_doubt: bool,
}

impl LastWord {
    /// Equal on all addresses of one host: the system identifier and the start time.
    pub(super) fn identity(&self) -> Option<(u64, &str)> {
        Some((self.report.system?, self.report.started.as_deref()?))
    }

    pub(super) fn differs_in_lsn_only(&self, from: &LastWord) -> bool {
        let mut same = self.clone();
        same.report.lsn = from.report.lsn;
        same.report.flushed = from.report.flushed;
        same == *from
    }
}

/// A host before the verdict.
pub(super) struct Contestant<'a> {
    pub(super) host: &'a HostPort,
    pub(super) word: Option<&'a LastWord>,
    /// It is neither down nor silent.
    pub(super) is_up: bool,
    /// It takes no part.
    pub(super) is_drained: bool,
    /// It has said nothing yet, and may soon.
    pub(super) is_awaited: bool,
}

/// Why a host stays out of use, even if nothing speaks against it any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fence {
    /// The host's timeline when it was fenced.
    pub(super) timeline: Option<u32>,
    pub(super) why: Arc<str>,
}

/// What earlier verdicts on a list leave to the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Precedent {
    /// The last primary: its place in the list.
    pub(super) incumbent: Option<usize>,
    /// The system identifier that the incumbent has shown.
    pub(super) system: Option<u64>,
    /// By place in the list.
    pub(super) fences: Vec<Option<Fence>>,
}

impl Precedent {
    /// Of a new list with this many hosts.
    pub(super) fn new(hosts: usize) -> Precedent {
        Precedent {
            incumbent: None,
            system: None,
            fences: vec![None; hosts],
        }
    }
}

/// The verdict on one host. Its fence, if any, is in the [`Precedent`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ruling {
    pub(super) role: Option<Role>,
    /// It is a standby of an older timeline than the primary's.
    pub(super) behind: bool,
    /// What is to be said of a host that is up; may be empty.
    pub(super) why: Arc<str>,
}

/// The verdict on a list.
pub(super) struct Judgement {
    pub(super) precedent: Precedent,
    /// By place in the list.
    pub(super) rulings: Vec<Ruling>,
}

/// Judges the hosts of a list. The same hosts with the new precedent get the same verdict again.
pub(super) fn judge(hosts: &[Contestant<'_>], before: &Precedent) -> Judgement {
    let mut case = Case::open(hosts, before);
    case.end_fences();
    case.fence_other_systems();
    case.fence_older_timelines();
    let primary = case.choose();
    if let Some(primary) = primary {
        case.install(primary);
        case.fence_others_than(primary, before.incumbent);
    }
    let rulings = (0..hosts.len()).map(|at| case.rule(at, primary)).collect();
    Judgement {
        precedent: Precedent {
            incumbent: case.incumbent,
            system: case.incumbent.and(case.system),
            fences: case.fences,
        },
        rulings,
    }
}

/// A verdict in the making. Hosts are named by their places in the list.
struct Case<'a> {
    hosts: &'a [Contestant<'a>],
    incumbent: Option<usize>,
    /// The system identifier of the list, if it is known and decided.
    system: Option<u64>,
    /// There is no incumbent, and those who take writes differ in their system identifiers.
    is_split: bool,
    fences: Vec<Option<Fence>>,
}

impl<'a> Case<'a> {
    fn open(hosts: &'a [Contestant<'a>], before: &Precedent) -> Case<'a> {
        let mut case = Case {
            hosts,
            incumbent: before.incumbent,
            system: before.system,
            is_split: false,
            fences: before.fences.clone(),
        };
        let system = |at: usize| case.report(at).and_then(|report| report.system);
        if let Some(incumbent) = case.incumbent {
            case.system = system(incumbent).or(before.system);
        } else {
            let decide: BTreeSet<u64> = case.promoted().filter_map(system).collect();
            case.is_split = decide.len() > 1;
            case.system = decide.first().copied().filter(|_| !case.is_split);
        }
        case
    }

    /// What a host has said last, if it takes part.
    fn word(&self, at: usize) -> Option<&'a LastWord> {
        let host = &self.hosts[at];
        host.word.filter(|_| !host.is_drained)
    }

    fn report(&self, at: usize) -> Option<&'a HostReport> {
        self.word(at).map(|word| &word.report)
    }

    fn timeline(&self, at: usize) -> Option<u32> {
        self.report(at).and_then(|report| report.timeline)
    }

    /// The hosts that take writes, fenced or not.
    fn promoted(&self) -> impl Iterator<Item = usize> {
        let is_promoted = |at: &usize| self.report(*at).is_some_and(|report| !report.in_recovery);
        (0..self.hosts.len()).filter(is_promoted)
    }

    /// The hosts that take writes and are not fenced.
    fn writers(&self) -> impl Iterator<Item = usize> {
        self.promoted().filter(|at| self.fences[*at].is_none())
    }

    /// True if two places have one host.
    fn are_one(&self, a: usize, b: usize) -> bool {
        let identity = |at| self.word(at).and_then(LastWord::identity);
        a == b || identity(a).is_some_and(|of| identity(b) == Some(of))
    }

    /// True if a host is known to belong to another PostgreSQL.
    fn is_foreign(&self, at: usize) -> bool {
        let system = self.report(at).and_then(|report| report.system);
        system.is_some_and(|system| self.system.is_some_and(|of_list| of_list != system))
    }

    fn fence(&mut self, at: usize, why: String) {
        let timeline = self.timeline(at);
        self.fences[at].get_or_insert_with(|| Fence {
            timeline,
            why: why.into(),
        });
    }

    /// Ends the fences of hosts that have been standbys since, and puts the others around all
    /// addresses of their hosts.
    fn end_fences(&mut self) {
        for at in 0..self.hosts.len() {
            let report = self.report(at).filter(|_| !self.is_foreign(at));
            let primarys = self.incumbent.and_then(|of| self.timeline(of));
            self.fences[at].take_if(|fence| {
                let before = fence.timeline.or(primarys);
                let is_newer = |now: &HostReport| before.is_some() && now.timeline > before;
                report.is_some_and(|now| now.in_recovery || is_newer(now))
            });
        }
        for at in self.writers().collect::<Vec<_>>() {
            let mut others = (0..self.hosts.len()).filter(|other| self.are_one(at, *other));
            self.fences[at] = others.find_map(|other| self.fences[other].clone());
        }
    }

    fn fence_other_systems(&mut self) {
        let from = self.incumbent.or_else(|| self.promoted().next());
        for at in 0..self.hosts.len() {
            if let Some(from) = from.filter(|_| self.is_foreign(at)) {
                let from = self.hosts[from].host;
                self.fence(at, format!("has another system identifier than {from}"));
            }
        }
    }

    /// Timelines can be compared within one system only.
    fn fence_older_timelines(&mut self) {
        let natives = (0..self.hosts.len()).filter(|at| !self.is_split && !self.is_foreign(*at));
        let shown = natives.filter_map(|at| Some((self.timeline(at)?, at)));
        let Some((highest, on)) = shown.max_by_key(|(timeline, _)| *timeline) else {
            return;
        };
        let on = self.hosts[on].host;
        for at in self.writers().collect::<Vec<_>>() {
            if let Some(timeline) = self.timeline(at).filter(|timeline| *timeline < highest) {
                let why = format!("takes writes on timeline {timeline}, {on} is on {highest}");
                self.fence(at, why);
            }
        }
    }

    /// The primary. All hosts that are left are on one timeline, or on unknown ones.
    fn choose(&self) -> Option<usize> {
        let mut hosts: Vec<usize> = Vec::new();
        let is_incumbent = |at: &usize| self.incumbent.is_some_and(|of| self.are_one(*at, of));
        let in_doubt = |at: &usize| self.word(*at).is_some_and(|word| word.in_doubt);
        // Its next check, which is under way, may show that it is none.
        let is_left_out = |at: &usize| in_doubt(at) && !is_incumbent(at);
        for at in self.writers().filter(|at| !is_left_out(at)) {
            if !hosts.iter().any(|other| self.are_one(at, *other)) {
                hosts.push(at);
            }
        }
        let is_up = |at: &usize| {
            self.writers()
                .any(|b| self.hosts[b].is_up && self.are_one(*at, b))
        };
        if hosts.iter().any(is_up) {
            hosts.retain(is_up);
        }
        if let Some(incumbent) = hosts.iter().copied().find(is_incumbent) {
            return Some(incumbent);
        }
        // As libpq: the first one, if nothing better is known or will soon be.
        let is_unknown = |at: &usize| {
            let word = self.word(*at);
            word.is_some_and(|word| word.report.timeline.is_none() && !word.in_doubt)
        };
        let first_will_do = hosts.iter().any(is_unknown);
        // At start, the first one to answer may be the wrong one.
        let is_awaited = |host: &Contestant<'_>| host.is_awaited && !host.is_drained;
        let is_early = self.hosts.iter().any(is_awaited) || self.writers().any(|at| in_doubt(&at));
        let is_early = self.incumbent.is_none() && is_early;
        let is_sole = hosts.len() == 1 && !is_early;
        let is_decided = !self.is_split && (first_will_do || is_sole);
        hosts.first().copied().filter(|_| is_decided)
    }

    /// The primary is the next incumbent, by the address that it had before. It may be the first
    /// whose system is known.
    fn install(&mut self, primary: usize) {
        let address = self.incumbent.filter(|at| self.are_one(*at, primary));
        self.incumbent = address.or(Some(primary));
        let system = self.report(primary).and_then(|report| report.system);
        self.system = system.or(self.system);
        self.fence_other_systems();
    }

    /// Fences those on the primary's timeline, and the primary before, unless only its timeline is
    /// known: it may be the newer one.
    fn fence_others_than(&mut self, primary: usize, before: Option<usize>) {
        let timeline = self.timeline(primary);
        for at in self.writers().collect::<Vec<_>>() {
            let is_equal = timeline.is_some() && self.timeline(at) == timeline;
            let may_be_older = timeline.is_some() || self.timeline(at).is_none();
            let is_replaced = may_be_older && before.is_some_and(|of| self.are_one(at, of));
            let in_doubt = self.word(at).is_some_and(|word| word.in_doubt);
            if (is_equal || is_replaced) && !self.are_one(at, primary) && !in_doubt {
                let primary = self.hosts[primary].host;
                self.fence(at, format!("takes writes, and {primary} is the primary"));
            }
        }
    }

    fn rule(&self, at: usize, primary: Option<usize>) -> Ruling {
        let Some(word) = self.hosts[at].word else {
            return Ruling {
                why: "has not told its role yet".into(),
                ..Ruling::default()
            };
        };
        if word.report.in_recovery {
            return self.rule_standby(at, primary);
        }
        let is_out = self.fences[at].is_some() || self.hosts[at].is_drained;
        let role = match primary {
            _ if is_out => None,
            Some(primary) if self.are_one(at, primary) => Some(Role::Primary),
            _ => Some(Role::Rival),
        };
        let why = if role != Some(Role::Rival) {
            ""
        } else if word.in_doubt {
            "takes writes, on a timeline that is not known yet"
        } else {
            "takes writes, and other hosts do or may do so, too"
        };
        Ruling {
            role,
            behind: false,
            why: why.into(),
        }
    }

    fn rule_standby(&self, at: usize, primary: Option<usize>) -> Ruling {
        let timelines = self
            .timeline(at)
            .zip(primary.and_then(|of| self.timeline(of)));
        let is_fit = self.fences[at].is_none();
        let behind = timelines.filter(|(own, primarys)| is_fit && own < primarys);
        let why = behind
            .map(|(own, primarys)| format!("is on timeline {own}, the primary is on {primarys}"));
        Ruling {
            role: Some(Role::Standby),
            behind: behind.is_some(),
            why: why.unwrap_or_default().into(),
        }
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
