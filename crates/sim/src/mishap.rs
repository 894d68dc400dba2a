//! What happens to hosts with roles: failovers, promotions, machines that fall silent.

use std::collections::BTreeMap;

use howdah_pooler::event::Time;

use crate::chance::Chance;
use crate::host::Host;
use crate::postgres::Postgres;
use crate::scenario::Scenario;
use crate::story::Who;
use crate::wal::Wal;
use crate::world::World;

const MILLI: u64 = 1_000_000;

/// Something that happens to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// The primary is lost. A standby is promoted in its place, or the primary comes back first.
    LosePrimary,
    /// A standby is promoted, whatever the others are.
    Promote,
    /// The host is promoted, and everybody follows it.
    PromoteAtLast(usize),
    /// A standby learns of the newest timeline, and follows it.
    Follow(usize),
    /// The host is restarted as a standby of the newest timeline, if another host is on that.
    Rewind(usize),
    /// The host is restarted as what it is.
    Restart(usize),
    /// The host takes bytes and does nothing for a while.
    Silence(usize),
    /// Checks get their answers late for a while.
    Slowness(usize),
    /// One process of the host crashes, so that all others end.
    Crash(usize),
}

/// The mishaps of a run.
pub struct Mishaps {
    due: BTreeMap<(Time, usize), Mishap>,
    chance: Chance,
    /// Two hosts have been on one timeline, each by its own promotion. Only a further promotion
    /// decides who is the primary.
    is_split: bool,
    /// Checks never find timelines: a fence ends only when its host has been seen as a standby.
    hides: bool,
    /// All hosts know of all timelines, so no number is used twice.
    knows_timelines: bool,
    /// Nothing happens to hosts: they need not begin anew at the end.
    is_calm: bool,
    /// When an administrator takes all hosts in again.
    resumed_at: Option<Time>,
}

impl Mishaps {
    /// The mishaps of a scenario. If hosts hide their timelines, nobody is promoted beside a primary.
    pub fn plan(scenario: &Scenario, hosts: &[Host], world: &mut World) -> Mishaps {
        let (count, span) = (scenario.faults.mishaps, (scenario.span + 200) * MILLI);
        let mut mishaps = Mishaps {
            due: BTreeMap::new(),
            chance: Chance::new(scenario.seed ^ 0x0fa1_10e2),
            is_split: false,
            hides: hosts.iter().any(|host| host.hides),
            knows_timelines: scenario.routes_reads(),
            is_calm: count == 0,
            resumed_at: None,
        };
        let promotes = !mishaps.hides;
        for _ in 0..count {
            let host = mishaps.chance.within(0..=hosts.len() - 1);
            // Reads depend on how standbys come back.
            let most = if scenario.routes_reads() { 14 } else { 9 };
            let mishap = match mishaps.chance.within(0..=most) {
                0..=2 => Mishap::LosePrimary,
                3..=4 if promotes => Mishap::Promote,
                5 => Mishap::Restart(host),
                6 => Mishap::Rewind(host),
                7 => Mishap::Silence(host),
                8 => Mishap::Slowness(host),
                9.. => Mishap::Crash(host),
                _ => continue,
            };
            mishaps.comes(span, mishap, world);
        }
        mishaps
    }

    /// A mishap comes within this time, in nanoseconds.
    fn comes(&mut self, within: u64, mishap: Mishap, world: &mut World) {
        let at = Time(world.now.0 + self.chance.number() % within);
        world.alarm(at);
        self.due.insert((at, self.due.len()), mishap);
    }

    /// Lets happen what is due.
    pub fn step(&mut self, postgres: &mut Postgres, world: &mut World) {
        while let Some(first) = self.due.first_entry()
            && first.key().0 <= world.now
        {
            let mishap = first.remove();
            world
                .story
                .tell(world.now, Who::World, || format!("hosts: {mishap:?}"));
            self.happens(mishap, postgres, world);
        }
    }

    fn happens(&mut self, mishap: Mishap, postgres: &mut Postgres, world: &mut World) {
        let until = Time(world.now.0 + self.chance.number() % (3000 * MILLI));
        match mishap {
            Mishap::LosePrimary => {
                let primary = newest_primary(&postgres.hosts);
                self.restart(primary, postgres, world);
                // A host that comes back as a standby is rewound before anybody sees it.
                if self.chance.once_in(2) {
                    self.comes(1000 * MILLI, Mishap::Rewind(primary), world);
                }
                let standby = self.standby(postgres, world);
                if let Some(standby) = standby.filter(|_| !self.chance.once_in(4)) {
                    self.promote(standby, postgres, world);
                }
            }
            Mishap::Promote => {
                if let Some(standby) = self.standby(postgres, world) {
                    self.promote(standby, postgres, world);
                }
            }
            Mishap::PromoteAtLast(at) => promote_at_last(at, &mut postgres.hosts, world),
            Mishap::Follow(at) => {
                if diverges(at, &postgres.hosts, world) {
                    self.restart(at, postgres, world);
                }
                follow(at, &mut postgres.hosts, world);
            }
            Mishap::Rewind(at) => self.rewind(at, postgres, world),
            Mishap::Restart(at) => self.restart(at, postgres, world),
            Mishap::Silence(at) => {
                postgres.hosts[at].silent_until = until;
                world.alarm(until);
            }
            Mishap::Slowness(at) => postgres.hosts[at].slow_until = until,
            Mishap::Crash(at) => {
                let starting = [0, self.chance.number() % (100 * MILLI)];
                let starting = starting[self.chance.within(0..=1)];
                postgres.crash_one(at, starting, world);
            }
        }
    }

    fn restart(&mut self, at: usize, postgres: &mut Postgres, world: &mut World) {
        let down = self.chance.number() % (1500 * MILLI);
        let starting = [0, self.chance.number() % (300 * MILLI)][self.chance.within(0..=1)];
        let crash = self.chance.once_in(2);
        postgres.restart(at, crash, (down, starting), world);
    }

    /// A standby that is up, if there is one.
    fn standby(&mut self, postgres: &Postgres, world: &World) -> Option<usize> {
        let up = |at: &usize| {
            let host = &postgres.hosts[*at];
            host.in_recovery && host.down_until <= world.now
        };
        let standbys: Vec<usize> = (0..postgres.hosts.len()).filter(up).collect();
        let last = standbys.len().checked_sub(1)?;
        Some(standbys[self.chance.within(0..=last)])
    }

    /// Its sessions go on. The other standbys follow sooner or later.
    fn promote(&mut self, at: usize, postgres: &mut Postgres, world: &mut World) {
        let hosts = &mut postgres.hosts;
        let newest = hosts.iter().map(|host| host.timeline).max();
        let known = newest.filter(|_| self.knows_timelines);
        let timeline = known.unwrap_or(hosts[at].timeline) + 1;
        self.is_split |= hosts.iter().any(|host| host.timeline >= timeline);
        take_writes(at, timeline, hosts, world);
        world.story.tell(world.now, Who::World, || {
            format!("postgres {at} is promoted to timeline {timeline}")
        });
        for other in (0..hosts.len()).filter(|other| *other != at) {
            self.comes(800 * MILLI, Mishap::Follow(other), world);
        }
    }

    fn rewind(&mut self, at: usize, postgres: &mut Postgres, world: &mut World) {
        let timeline = postgres.hosts[at].timeline;
        let primary = newest_primary(&postgres.hosts);
        let host = &postgres.hosts[primary];
        if primary == at || host.in_recovery || host.timeline < timeline {
            return;
        }
        let goes = postgres.hosts[at].down_until <= world.now;
        if goes {
            self.restart(at, postgres, world);
        }
        postgres.hosts[at].joins_standbys(&world.wal.borrow());
        follow(at, &mut postgres.hosts, world);
    }

    /// True once, when all hosts are to be taken in again.
    pub fn resume(&mut self, now: Time) -> bool {
        self.resumed_at.take_if(|at| *at <= now).is_some()
    }

    /// The end of all mishaps: one primary, which all others follow. It has been the only one all
    /// the time, or its promotion is new.
    pub fn settle(&mut self, postgres: &mut Postgres, world: &mut World) {
        self.due.clear();
        // Late enough that no login knows less.
        let resumed = Time(world.now.0 + 6000 * MILLI);
        world.alarm(resumed);
        self.resumed_at = Some(resumed);
        if self.is_calm {
            return;
        }
        let primary = newest_primary(&postgres.hosts);
        let newest = postgres.hosts.iter().map(|host| host.timeline).max();
        let host = &postgres.hosts[primary];
        let is_sole = !self.is_split && Some(host.timeline) == newest && !host.in_recovery;
        let stays = is_sole && !self.hides && self.chance.once_in(2);
        for (at, host) in postgres.hosts.iter_mut().enumerate() {
            host.silent_until = host.silent_until.min(world.now);
            host.slow_until = Time(0);
            host.read_only = false;
            host.starting_until = host.starting_until.min(world.now);
            host.down_until = host.down_until.min(world.now);
            if !(stays && at == primary) {
                host.joins_standbys(&world.wal.borrow());
            }
        }
        for at in (0..postgres.hosts.len()).filter(|at| !(stays && *at == primary)) {
            postgres.restart(at, true, (MILLI, 0), world);
        }
        world.story.tell(world.now, Who::World, || {
            format!("postgres {primary} stays: {stays}")
        });
        if stays {
            let all = 0..postgres.hosts.len();
            return all.for_each(|at| follow(at, &mut postgres.hosts, world));
        }
        let next = self.chance.within(0..=postgres.hosts.len() - 1);
        join(next, &mut postgres.hosts, &world.wal.borrow());
        if self.hides || self.chance.once_in(2) {
            // Everybody sees first that no host takes writes: what ends fences without timelines.
            let at = Time(world.now.0 + 5000 * MILLI);
            world.alarm(at);
            self.due.insert((at, 0), Mishap::PromoteAtLast(next));
        } else {
            promote_at_last(next, &mut postgres.hosts, world);
        }
    }
}

fn promote_at_last(at: usize, hosts: &mut [Host], world: &World) {
    let newest = hosts.iter().map(|host| host.timeline).max();
    take_writes(at, newest.unwrap_or(0) + 1, hosts, world);
    (0..hosts.len()).for_each(|at| follow(at, hosts, world));
}

/// A standby is promoted: only what it has replayed is left.
fn take_writes(at: usize, timeline: u32, hosts: &mut [Host], world: &World) {
    let host = &mut hosts[at];
    let from = host.position(&world.wal.borrow());
    host.branch = world.wal.borrow_mut().fork(from);
    host.in_recovery = false;
    host.timeline = timeline;
}

/// All hosts are standbys, and have been restarted: none has more than the one that is promoted next.
fn join(next: usize, hosts: &mut [Host], wal: &Wal) {
    let (branch, most) = (hosts[next].branch, hosts[next].replayed);
    for host in hosts {
        let shared = wal.shared(host.branch, branch);
        host.replayed = host.replayed.min(shared).min(most);
        host.branch = branch;
    }
}

/// Who takes writes on the highest timeline; the first host if nobody does.
fn newest_primary(hosts: &[Host]) -> usize {
    let writers = (0..hosts.len()).filter(|at| !hosts[*at].in_recovery);
    writers.max_by_key(|at| hosts[*at].timeline).unwrap_or(0)
}

/// The primary that a standby follows: the newest one, unless its timeline is lower.
fn leader(at: usize, hosts: &[Host]) -> Option<&Host> {
    let primary = &hosts[newest_primary(hosts)];
    let leads = hosts[at].in_recovery && !primary.in_recovery;
    (leads && hosts[at].timeline <= primary.timeline).then_some(primary)
}

/// A standby has replayed what its primary does not have: it can follow only after a rewind.
fn diverges(at: usize, hosts: &[Host], world: &World) -> bool {
    let wal = world.wal.borrow();
    let shared = |of: &Host| wal.shared(hosts[at].branch, of.branch);
    leader(at, hosts).is_some_and(|primary| hosts[at].replayed > shared(primary))
}

/// A standby follows its primary. If it has replayed what that does not have, it is rewound.
fn follow(at: usize, hosts: &mut [Host], world: &World) {
    let Some((timeline, branch)) = leader(at, hosts).map(|of| (of.timeline, of.branch)) else {
        return;
    };
    let host = &mut hosts[at];
    let shared = world.wal.borrow().shared(host.branch, branch);
    host.replayed = host.replayed.min(shared);
    host.timeline = timeline;
    host.branch = branch;
}
