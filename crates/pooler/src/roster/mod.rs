//! The roster decides which host of a placed database is the primary, and which hosts can be used.
//!
//! It is a pure value on the control thread, beside the balancer: so all workers have one verdict,
//! and none of them decides on a part of the facts. Workers tell it what they find out of hosts
//! ([`HostFact`]). Whenever that changes something, it answers with a new [`View`] for all workers.
//!
//! - What is known of a **host** (`record.rs`) is what it has said last, also while it is away;
//!   whether it is down, silent or drained; and what its checks can't find.
//! - The **verdict** (`verdict.rs`) is a function of these, by list of hosts. Of earlier verdicts
//!   it knows the last primary and the fences (`roll.rs`).
//! - A host is **silent** if a check is overdue, and no worker has heard a byte from it since: the
//!   roster asks all of them, once for each check.
//! - A **login** with another role counts at once. Where checks tell more, the host is checked at
//!   once, and nobody is fenced for the login alone.

pub mod check;
pub mod fact;
pub mod lore;
pub mod question;
mod record;
mod roll;
pub mod round;
mod verdict;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::config::{Config, Host, HostPort, nanos};
use crate::ids::Time;
use crate::mail::Mail;
use crate::note::{Level, Note};
use fact::{Fact, HostFact, Reached};
use lore::RosterLore;
use record::HostRecord;
use roll::Roll;
use round::Covers;
use verdict::LastWord;
use view::{HostList, View};

/// What is known of all hosts of placed databases.
#[derive(Debug)]
pub struct Roster {
    workers: u16,
    /// The hosts of all lists.
    hosts: BTreeMap<HostPort, HostRecord>,
    /// By the list in the configuration.
    lists: BTreeMap<HostList, Roll>,
    /// Workers need to know what standbys cover.
    tells_covers: bool,
}

/// What follows a fact.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The new view, if it differs from the last one in more than positions in the WAL.
    pub view: Option<Arc<View>>,
    /// All workers are to be asked whether a server of this host has sent a byte since then. Each
    /// answers with [`Fact::Heard`].
    pub ask: Option<(HostPort, Time)>,
    /// Lines for the log.
    pub notes: Vec<Note>,
    /// These hosts are to be checked at once.
    pub check: Vec<HostPort>,
    /// What the standbys of a list cover now.
    pub covers: Vec<(HostList, Arc<Covers>)>,
}

impl Outcome {
    /// The mail that follows, for each worker.
    pub fn mails(&self) -> impl Iterator<Item = Mail> + '_ {
        let view = self.view.iter().map(|view| Mail::Hosts(view.clone()));
        let ask = self.ask.iter();
        let ask = ask.map(|(host, since)| Mail::HeardFrom(Box::new(host.clone()), *since));
        let check = self.check.iter();
        let check = check.map(|host| Mail::CheckHost(Box::new(host.clone())));
        let covers = self.covers.iter();
        let covers = covers.map(|(list, covers)| Mail::Covers(list.clone(), covers.clone()));
        view.chain(ask).chain(covers).chain(check)
    }

    fn note(&mut self, level: Level, text: String) {
        self.notes.push(Note::new(level, text));
    }
}

impl Roster {
    /// A roster that knows no hosts, for this number of workers.
    pub fn new(workers: u16) -> Roster {
        Roster {
            workers: workers.max(1),
            hosts: BTreeMap::new(),
            lists: BTreeMap::new(),
            tells_covers: false,
        }
    }

    /// What a successor must know.
    pub fn lore(&self) -> RosterLore {
        let hosts = self.hosts.iter();
        RosterLore {
            hosts: hosts.map(|(host, record)| record.lore(host)).collect(),
            lists: self.lists.values().map(Roll::lore).collect(),
        }
    }

    /// Takes what the predecessor knew. The lists of the configuration come next.
    pub fn inherit(&mut self, lore: RosterLore) {
        for host in lore.hosts {
            let record = HostRecord::inherit(&host);
            self.hosts.insert(host.host, record);
        }
        for list in lore.lists {
            self.lists
                .insert(list.hosts.as_slice().into(), Roll::inherit(&list));
        }
    }

    /// Takes the lists of all placed databases, at start, after each reload, and when the addresses
    /// of a name have changed. What is known of hosts that stay is kept. Each of a name's
    /// `addresses` is a host; a name without any is one host.
    pub fn set_lists(
        &mut self,
        now: Time,
        config: &Config,
        addresses: &dyn Fn(&str) -> Vec<IpAddr>,
    ) -> Outcome {
        let databases = config.databases.values().chain(&config.fallback);
        let placed = databases.filter(|database| database.is_placed());
        let lists: BTreeSet<HostList> = placed.map(|of| of.hosts.as_slice().into()).collect();
        let before = std::mem::take(&mut self.lists);
        self.tells_covers = config.routes_reads();
        let roll = |list: HostList| {
            let members = list.iter().flat_map(|host| members(host, addresses));
            let mut roll = Roll::succeed(members.collect(), &before);
            roll.limit_lag(max_lags(config, &list));
            (list, roll)
        };
        self.lists = lists.into_iter().map(roll).collect();
        let hosts = self.lists.values().flat_map(|roll| roll.members());
        let hosts: BTreeSet<&HostPort> = hosts.collect();
        self.hosts.retain(|host, _| hosts.contains(host));
        for host in hosts {
            self.hosts.entry(host.clone()).or_default();
        }
        let mut outcome = Outcome::default();
        self.judge(now, &mut outcome);
        if !before.keys().eq(self.lists.keys()) {
            outcome.view = Some(self.view());
        }
        outcome
    }

    /// Takes a fact. One about a host that a reload has removed is ignored.
    pub fn hear(&mut self, now: Time, fact: HostFact) -> Outcome {
        let mut outcome = Outcome::default();
        if self.take_in(now, fact, &mut outcome) {
            self.judge(now, &mut outcome);
        }
        outcome
    }

    /// What is known of all lists, with the last positions in the WAL.
    pub fn view(&self) -> Arc<View> {
        let lists = self.lists.iter();
        let lists = lists.map(|(list, roll)| (list.clone(), roll.view(&self.hosts)));
        Arc::new(View {
            lists: lists.collect(),
        })
    }

    /// Panics if something contradicts: for the simulation.
    pub fn check(&self) {
        let hosts = self.lists.values().flat_map(|roll| roll.members());
        let hosts: BTreeSet<_> = hosts.collect();
        assert!(
            hosts.into_iter().eq(self.hosts.keys()),
            "hosts of all lists"
        );
        for roll in self.lists.values() {
            roll.check(&self.hosts);
        }
    }

    /// Writes a fact down. True if the lists must be judged again.
    fn take_in(&mut self, now: Time, fact: HostFact, outcome: &mut Outcome) -> bool {
        let HostFact { host, fact } = fact;
        let record = gone!(self.hosts.get_mut(&host));
        match fact {
            Fact::Report(report) => {
                let has_risen = rise(&host, record, outcome);
                let has_told_all = record.is_answered(now, &report);
                if report.lsn.is_none() || report.timeline.is_none() {
                    self.forget_cover(&host, outcome);
                }
                let word = LastWord {
                    report,
                    in_doubt: false,
                };
                self.learn(&host, word) || has_risen || has_told_all
            }
            Fact::Role { in_recovery, since } => {
                let word = gone!(record.contradicted(in_recovery, since));
                outcome.check.extend(word.in_doubt.then(|| host.clone()));
                self.learn(&host, word)
            }
            Fact::Up => rise(&host, record, outcome),
            Fact::Down(why) => {
                let falls = record.falls(&why);
                if falls {
                    outcome.note(Level::Warning, format!("host {host} is down: {why}"));
                }
                falls
            }
            Fact::Hidden(what) => {
                self.forget_cover(&host, outcome);
                self.hide(now, &host, &what, outcome)
            }
            Fact::Overdue(since) => {
                outcome.ask = record.is_overdue(since).then_some((host, since));
                false
            }
            Fact::Heard {
                since,
                worker,
                heard,
            } => {
                let is_silent = record.answers(since, worker, heard, self.workers);
                if is_silent {
                    let text = format!("host {host} is silent: it answers on no connection");
                    outcome.note(Level::Warning, text);
                }
                is_silent
            }
            Fact::Reached(reached) => self.reach(now, &host, &reached, outcome),
            Fact::RoundAwaited { above, until } => {
                let of_host = |roll: &&mut Roll| roll.primaries().contains(&&host);
                for roll in self.lists.values_mut().filter(of_host) {
                    if roll.rounds.await_round(above, until) {
                        outcome.check.push(host.clone());
                        continue;
                    }
                    // The round has begun: only standbys are to be asked.
                    let standbys: Vec<HostPort> = roll.standbys().cloned().collect();
                    let awaited = standbys.into_iter();
                    let awaited = awaited.filter(|of| roll.rounds.is_awaited_of(now, of));
                    outcome.check.extend(awaited);
                }
                false
            }
            Fact::Drain => {
                let drains = record.drains(true);
                if drains {
                    outcome.note(Level::Log, format!("host {host} is drained"));
                }
                drains
            }
            Fact::Resume => {
                self.resume(&host);
                outcome.note(Level::Log, format!("host {host} is resumed"));
                outcome.check.push(host);
                true
            }
        }
    }

    /// Writes down how far a host has come, in all lists where it is the primary or a standby. True if
    /// it now is too far behind, or not any more.
    fn reach(
        &mut self,
        now: Time,
        host: &HostPort,
        reached: &Reached,
        outcome: &mut Outcome,
    ) -> bool {
        let mut is_new = false;
        for (list, roll) in self
            .lists
            .iter_mut()
            .filter(|(_, roll)| roll.members().contains(host))
        {
            let is_primary = roll.primaries().contains(&host);
            let (asks, changed): (Vec<HostPort>, bool) = if is_primary {
                roll.rounds.primary_reaches(now, reached);
                (roll.standbys().cloned().collect(), false)
            } else {
                let changed = roll.rounds.standby_reaches(host, reached);
                (vec![host.clone()], changed)
            };
            is_new |= roll.lags_anew();
            if changed && self.tells_covers {
                outcome.covers.push((list.clone(), roll.rounds.covers()));
            }
            let awaited = asks
                .into_iter()
                .filter(|of| roll.rounds.is_awaited_of(now, of));
            outcome.check.extend(awaited);
        }
        outcome.check.sort_unstable();
        outcome.check.dedup();
        is_new
    }

    /// A host does not tell any more how far it has come.
    fn forget_cover(&mut self, host: &HostPort, outcome: &mut Outcome) {
        for (list, roll) in &mut self.lists {
            if roll.rounds.forget(host) && self.tells_covers {
                outcome.covers.push((list.clone(), roll.rounds.covers()));
            }
        }
    }

    /// Writes down what a host has said, for all of its addresses. True if more than a position in
    /// the WAL is new.
    fn learn(&mut self, host: &HostPort, word: LastWord) -> bool {
        let record = gone!(self.hosts.get_mut(host));
        let before = record.word.replace(word.clone());
        if before
            .as_ref()
            .is_some_and(|before| before.differs_in_lsn_only(&word))
        {
            return false;
        }
        for (_, other) in self.hosts.iter_mut().filter(|(other, _)| *other != host) {
            other.learn_of_alias(before.as_ref(), &word);
        }
        true
    }

    /// A check can't find something.
    fn hide(&mut self, now: Time, host: &HostPort, what: &str, outcome: &mut Outcome) -> bool {
        let record = gone!(self.hosts.get_mut(host));
        if record.tells_hidden(now) {
            let text = format!("host {host}: its check can't find everything: {what}");
            outcome.note(Level::Warning, text);
        }
        let is_new = record.hides(what);
        let Some(word) = record.word.clone().filter(|word| word.in_doubt) else {
            return is_new;
        };
        let word = LastWord {
            in_doubt: false,
            ..word
        };
        self.learn(host, word) || is_new
    }

    /// Takes a host in again, unfenced on all of its addresses. What it has shown is forgotten if it
    /// was drained or away, and what hosts have shown that are away, in all lists with this host.
    fn resume(&mut self, host: &HostPort) {
        let record = gone!(self.hosts.get_mut(host));
        let word = record.word.clone().unwrap_or_default();
        let was_away = !record.is_up();
        let was_drained = record.drains(false);
        record.rises();
        record.forgets_what_is_hidden();
        if was_drained || was_away {
            // It may have become a standby since. The check that follows will show it.
            record.word = None;
        }
        let is_alias = |other: &HostRecord| {
            let identity = word.identity();
            identity.is_some() && other.word.as_ref().and_then(LastWord::identity) == identity
        };
        let aliases = self.hosts.iter().filter(|(_, other)| is_alias(other));
        let mut resumed: BTreeSet<HostPort> = aliases.map(|(other, _)| other.clone()).collect();
        resumed.insert(host.clone());
        let away = self.hosts.iter().filter(|(_, record)| !record.is_up());
        let away: BTreeSet<HostPort> = away.map(|(other, _)| other.clone()).collect();
        for roll in self.lists.values_mut() {
            if roll.members().iter().any(|of| resumed.contains(of)) {
                roll.forget(&resumed, &away);
                for other in roll.members().iter().filter(|other| away.contains(other)) {
                    self.hosts.entry(other.clone()).or_default().word = None;
                }
            }
        }
    }

    fn judge(&mut self, now: Time, outcome: &mut Outcome) {
        let (mut is_new, mut notes) = (false, Vec::new());
        for roll in self.lists.values_mut() {
            is_new |= roll.judge(now, &self.hosts, &mut notes);
        }
        // Lists with the same hosts have the same to say.
        for note in notes {
            if !outcome.notes.contains(&note) {
                outcome.notes.push(note);
            }
        }
        if is_new {
            outcome.view = Some(self.view());
        }
    }
}

/// How far the databases of a list that want standbys let these be behind, in nanoseconds.
fn max_lags(config: &Config, list: &HostList) -> BTreeSet<u64> {
    let databases = config.databases.values().chain(&config.fallback);
    let of_list = databases.filter(|database| *database.hosts == **list);
    let limits = of_list.filter_map(|database| config.max_lag_of_standbys(database));
    limits.map(nanos).collect()
}

/// The hosts that a host of the configuration stands for: each of a name's addresses, or itself.
fn members(to: &HostPort, addresses: &dyn Fn(&str) -> Vec<IpAddr>) -> Vec<HostPort> {
    let found = match &to.host {
        Host::Name(name) => addresses(name),
        _ => Vec::new(),
    };
    if found.is_empty() {
        return vec![to.clone()];
    }
    let member = |ip| HostPort {
        host: Host::Address {
            name: to.host.to_string(),
            ip,
        },
        port: to.port,
    };
    found.into_iter().map(member).collect()
}

/// A host has answered. True if it was down or silent.
fn rise(host: &HostPort, record: &mut HostRecord, outcome: &mut Outcome) -> bool {
    let rises = record.rises();
    if rises {
        outcome.note(Level::Log, format!("host {host} is up again"));
    }
    rises
}

#[cfg(test)]
mod tests;
