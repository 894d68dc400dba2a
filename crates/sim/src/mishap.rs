//! What happens to hosts with roles: failovers, promotions, machines that fall silent.

use std::collections::BTreeMap;

use howdah_pooler::event::Time;

use crate::chance::Chance;
use crate::host::Host;
use crate::postgres::Postgres;
use crate::scenario::Scenario;
use crate::story::Who;
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
            resumed_at: None,
        };
        let promotes = !mishaps.hides;
        for _ in 0..count {
            let host = mishaps.chance.within(0..=hosts.len() - 1);
            let mishap = match mishaps.chance.within(0..=9) {
                0..=2 => Mishap::LosePrimary,
                3..=4 if promotes => Mishap::Promote,
                5 => Mishap::Restart(host),
                6 => Mishap::Rewind(host),
                7 => Mishap::Silence(host),
                8 => Mishap::Slowness(host),
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
            Mishap::PromoteAtLast(at) => promote_at_last(at, &mut postgres.hosts),
            Mishap::Follow(at) => follow(at, &mut postgres.hosts),
            Mishap::Rewind(at) => self.rewind(at, postgres, world),
            Mishap::Restart(at) => self.restart(at, postgres, world),
            Mishap::Silence(at) => {
                postgres.hosts[at].silent_until = until;
                world.alarm(until);
            }
            Mishap::Slowness(at) => postgres.hosts[at].slow_until = until,
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
        let timeline = hosts[at].timeline + 1;
        self.is_split |= hosts.iter().any(|host| host.timeline >= timeline);
        hosts[at].in_recovery = false;
        hosts[at].timeline = timeline;
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
        postgres.hosts[at].in_recovery = true;
        follow(at, &mut postgres.hosts);
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
            host.in_recovery = host.in_recovery || !(stays && at == primary);
        }
        for at in (0..postgres.hosts.len()).filter(|at| !(stays && *at == primary)) {
            postgres.restart(at, true, (MILLI, 0), world);
        }
        world.story.tell(world.now, Who::World, || {
            format!("postgres {primary} stays: {stays}")
        });
        if stays {
            return (0..postgres.hosts.len()).for_each(|at| follow(at, &mut postgres.hosts));
        }
        let next = self.chance.within(0..=postgres.hosts.len() - 1);
        if self.hides || self.chance.once_in(2) {
            // Everybody sees first that no host takes writes: what ends fences without timelines.
            let at = Time(world.now.0 + 5000 * MILLI);
            world.alarm(at);
            self.due.insert((at, 0), Mishap::PromoteAtLast(next));
        } else {
            promote_at_last(next, &mut postgres.hosts);
        }
    }
}

fn promote_at_last(at: usize, hosts: &mut [Host]) {
    let newest = hosts.iter().map(|host| host.timeline).max();
    hosts[at].timeline = newest.unwrap_or(0) + 1;
    hosts[at].in_recovery = false;
    (0..hosts.len()).for_each(|at| follow(at, hosts));
}

/// Who takes writes on the highest timeline; the first host if nobody does.
fn newest_primary(hosts: &[Host]) -> usize {
    let writers = (0..hosts.len()).filter(|at| !hosts[*at].in_recovery);
    writers.max_by_key(|at| hosts[*at].timeline).unwrap_or(0)
}

/// A standby follows the newest primary, but not to a lower timeline.
fn follow(at: usize, hosts: &mut [Host]) {
    let primary = newest_primary(hosts);
    if hosts[at].in_recovery && !hosts[primary].in_recovery {
        hosts[at].timeline = hosts[at].timeline.max(hosts[primary].timeline);
    }
}
