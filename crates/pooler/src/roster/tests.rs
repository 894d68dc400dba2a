use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};

use super::fact::HostReport;
use super::view::{HostStanding, ListView, Role, State};
use super::*;
use crate::config::{Host, SessionAttrs};
use crate::event::WorkerId;

const SECOND: u64 = 1_000_000_000;

fn host(name: &str) -> HostPort {
    HostPort {
        host: Host::Name(name.into()),
        port: 5432,
    }
}

/// A configuration with a placed database for each of these lists.
fn config(lists: &[&str]) -> Config {
    let entries = lists
        .iter()
        .enumerate()
        .map(|(at, list)| format!("d{at} = host={list} target_session_attrs=primary\n"));
    let text = format!(
        "[pgbouncer]\n[databases]\nplain = host=other\n{}",
        entries.collect::<String>()
    );
    let (config, _) = Config::load("x.ini", &text, &mut |_| Ok(String::new())).unwrap();
    config
}

/// The last numbers of the addresses 10.0.0.x of the name `pg`; none: it is one host.
type Addresses<'a> = &'a [u8];

fn found<'a>(pg: Addresses<'a>) -> impl Fn(&str) -> Vec<IpAddr> + 'a {
    move |name| match name {
        "pg" => pg.iter().map(|last| [10, 0, 0, *last].into()).collect(),
        _ => Vec::new(),
    }
}

/// A host by its name, or one of the addresses of `pg`, as `10.0.0.x`.
fn member(name: &str) -> HostPort {
    match name.parse() {
        Ok(ip) => HostPort {
            host: Host::Address {
                name: "pg".into(),
                ip,
            },
            port: 5432,
        },
        Err(_) => host(name),
    }
}

/// A roster, and the time, which goes on by a second with each fact.
struct World {
    roster: Roster,
    now: Time,
}

impl World {
    fn new(lists: &[&str]) -> World {
        let (mut roster, now) = (Roster::new(3), Time(SECOND));
        let outcome = roster.set_lists(now, &config(lists), &found(&[]));
        assert!(
            outcome.view.is_some() && outcome.notes.is_empty(),
            "{outcome:?}"
        );
        World { roster, now }
    }

    fn hear(&mut self, name: &str, fact: Fact) -> Outcome {
        self.now.0 += SECOND;
        let of = member(name);
        let outcome = self.roster.hear(self.now, HostFact { host: of, fact });
        self.roster.check();
        outcome
    }

    /// The same, and the lines of the log.
    fn told(&mut self, name: &str, fact: Fact) -> Vec<String> {
        lines(&self.hear(name, fact))
    }

    fn reload(&mut self, lists: &[&str]) -> Outcome {
        self.resolve(lists, &[])
    }

    fn resolve(&mut self, lists: &[&str], pg: Addresses<'_>) -> Outcome {
        self.now.0 += SECOND;
        let outcome = self.roster.set_lists(self.now, &config(lists), &found(pg));
        self.roster.check();
        outcome
    }

    /// What is known of a host, in the first list that has it.
    fn standing(&self, name: &str) -> HostStanding {
        let view = self.roster.view();
        let standing = view
            .lists
            .values()
            .find_map(|list| list.standing(&member(name)));
        standing.unwrap().clone()
    }

    fn state(&self, name: &str) -> (Option<Role>, State) {
        let standing = self.standing(name);
        (standing.role, standing.state)
    }
}

fn lines(outcome: &Outcome) -> Vec<String> {
    let notes = outcome.notes.iter();
    notes
        .map(|note| format!("{} {}", note.level, note.text))
        .collect()
}

/// A complete report of the one system, started at this time.
fn report(in_recovery: bool, timeline: u32, started: &str) -> HostReport {
    HostReport {
        flushed: None,
        in_recovery,
        started: Some(started.into()),
        system: Some(7),
        timeline: Some(timeline),
        lsn: Some(1),
        read_only: false,
    }
}

fn primary(timeline: u32, started: &str) -> Fact {
    Fact::Report(report(false, timeline, started))
}

fn standby(timeline: u32, started: &str) -> Fact {
    Fact::Report(report(true, timeline, started))
}

const PRIMARY: (Option<Role>, State) = (Some(Role::Primary), State::Up);
const STANDBY: (Option<Role>, State) = (Some(Role::Standby), State::Up);
const FENCED: (Option<Role>, State) = (None, State::Fenced);

/// Three hosts with a primary.
fn cluster() -> World {
    let mut world = World::new(&["db1,db2,db3"]);
    world.hear("db1", primary(1, "a"));
    world.hear("db2", standby(1, "b"));
    world.hear("db3", standby(1, "c"));
    world
}

fn best(world: &World, wish: SessionAttrs) -> Vec<String> {
    let view = world.roster.view();
    let list = view.lists.values().next().unwrap();
    list.best(wish, u64::MAX)
        .into_iter()
        .map(HostPort::to_string)
        .collect()
}

#[test]
fn a_failover_from_its_facts() {
    let mut world = cluster();
    assert_eq!(world.state("db1"), PRIMARY);
    assert_eq!(best(&world, SessionAttrs::Primary), ["db1:5432"]);
    assert_eq!(
        best(&world, SessionAttrs::Standby),
        ["db2:5432", "db3:5432"]
    );
    let told = world.told("db1", Fact::Down("connection refused".into()));
    assert_eq!(told, ["WARNING host db1:5432 is down: connection refused"]);
    assert_eq!(world.state("db1"), (Some(Role::Primary), State::Down));
    assert!(
        world
            .told("db1", Fact::Down("connection refused".into()))
            .is_empty()
    );
    let told = world.told("db2", primary(2, "b"));
    let fenced = "host db1:5432 is fenced: takes writes on timeline 1, db2:5432 is on 2";
    let expected = [
        &format!("WARNING {fenced}"),
        "LOG host db2:5432 is the primary",
    ];
    assert_eq!(told, expected);
    assert_eq!(best(&world, SessionAttrs::Primary), ["db2:5432"]);
    assert_eq!(
        &*world.standing("db3").why,
        "is on timeline 1, the primary is on 2"
    );
    // The old one is back, and then a standby.
    assert_eq!(
        world.told("db1", primary(1, "d")),
        ["LOG host db1:5432 is up again"]
    );
    assert_eq!(world.state("db1"), FENCED);
    let told = world.told("db1", standby(2, "e"));
    assert_eq!(told, ["LOG host db1:5432 is no longer fenced"]);
    assert_eq!(world.state("db1"), STANDBY);
}

#[test]
fn a_wrong_promotion_undone() {
    let mut world = cluster();
    let told = world.told("db2", primary(2, "b"));
    let fenced = "host db1:5432 is fenced: takes writes on timeline 1, db2:5432 is on 2";
    assert_eq!(told[0], format!("ERROR {fenced}"));
    world.hear("db2", Fact::Down("connection refused".into()));
    assert_eq!(world.state("db1"), FENCED);
    let outcome = world.hear("db1", Fact::Resume);
    assert_eq!(outcome.check, [host("db1")]);
    let expected = [
        "LOG host db1:5432 is resumed",
        "LOG host db1:5432 is the primary",
    ];
    assert_eq!(lines(&outcome), expected);
    assert_eq!(world.state("db1"), PRIMARY);
    world.hear("db2", standby(1, "d"));
    assert_eq!((world.state("db1"), world.state("db2")), (PRIMARY, STANDBY));
}

#[test]
fn what_a_resumed_host_has_shown_before_it_was_away_fences_nobody() {
    let mut world = cluster();
    world.hear("db2", primary(2, "b"));
    world.hear("db2", Fact::Drain);
    world.hear("db1", Fact::Resume);
    assert_eq!(world.state("db1"), PRIMARY);
    // It was drained, and is rebuilt as a standby.
    world.hear("db2", Fact::Resume);
    assert_eq!((world.state("db1"), world.state("db2").0), (PRIMARY, None));
    world.hear("db2", standby(1, "d"));
    assert_eq!((world.state("db1"), world.state("db2")), (PRIMARY, STANDBY));
    // It is down meanwhile.
    world.hear("db2", primary(2, "d"));
    world.hear("db2", Fact::Down("connection refused".into()));
    world.hear("db1", Fact::Resume);
    world.hear("db2", Fact::Resume);
    assert_eq!((world.state("db1"), world.state("db2").0), (PRIMARY, None));
}

#[test]
fn two_primaries_are_told_once() {
    let mut world = World::new(&["db1,db2,db3"]);
    assert!(world.told("db1", primary(1, "a")).is_empty());
    assert_eq!(world.state("db1"), (Some(Role::Rival), State::Up));
    let told = world.told("db2", primary(1, "b"));
    let expected = "ERROR two primaries: db1:5432 and db2:5432 take writes: writers wait";
    assert_eq!(told, [expected]);
    assert!(world.told("db3", standby(1, "c")).is_empty());
    assert!(best(&world, SessionAttrs::Primary).is_empty());
    assert_eq!(best(&world, SessionAttrs::PreferStandby), ["db3:5432"]);
    let told = world.told("db2", Fact::Drain);
    assert_eq!(
        told,
        [
            "LOG host db2:5432 is drained",
            "LOG host db1:5432 is the primary"
        ]
    );
}

#[test]
fn no_primary_is_told() {
    let mut world = cluster();
    let told = world.told("db1", standby(1, "d"));
    let expected = "WARNING no primary: db1:5432 is a standby, db2:5432 is a standby, \
                    db3:5432 is a standby";
    assert_eq!(told, [expected]);
    assert!(world.told("db1", standby(1, "e")).is_empty());
    let told = world.told("db1", primary(2, "e"));
    assert_eq!(told, ["LOG host db1:5432 is the primary"]);
    let told = world.told("db1", Fact::Drain);
    let expected = "WARNING no primary: db1:5432 was drained, db2:5432 is a standby, db3:5432 is a \
                    standby";
    assert_eq!(told, ["LOG host db1:5432 is drained", expected]);
    assert!(world.told("db1", Fact::Drain).is_empty());
}

#[test]
fn silence_is_asked_for_and_all_workers_must_agree() {
    let mut world = cluster();
    let since = Time(5);
    let heard = |worker: u16, heard: bool| Fact::Heard {
        since,
        worker: WorkerId(worker),
        heard,
    };
    let outcome = world.hear("db1", Fact::Overdue(since));
    assert_eq!(
        (outcome.ask, outcome.view),
        (Some((host("db1"), since)), None)
    );
    // One has heard something: the question ends, and is not asked again.
    world.hear("db1", heard(0, false));
    world.hear("db1", heard(1, true));
    world.hear("db1", heard(2, false));
    assert_eq!(world.state("db1"), PRIMARY);
    assert_eq!(world.hear("db1", Fact::Overdue(since)), Outcome::default());
    // Nobody has: two answers are not enough, nor is one twice, nor one of a stranger.
    let since = Time(6);
    let heard = |worker: u16| Fact::Heard {
        since,
        worker: WorkerId(worker),
        heard: false,
    };
    assert!(world.hear("db1", Fact::Overdue(since)).ask.is_some());
    for worker in [0, 2, 2, 3] {
        assert_eq!(world.hear("db1", heard(worker)), Outcome::default());
    }
    let told = world.told("db1", heard(1));
    assert_eq!(
        told,
        ["WARNING host db1:5432 is silent: it answers on no connection"]
    );
    assert_eq!(world.state("db1"), (Some(Role::Primary), State::Silent));
    assert!(best(&world, SessionAttrs::Primary).is_empty());
    // Failed connections change nothing, neither does another check. A login does.
    assert_eq!(
        world.hear("db1", Fact::Down("timeout".into())),
        Outcome::default()
    );
    assert_eq!(
        world.hear("db1", Fact::Overdue(Time(7))),
        Outcome::default()
    );
    assert_eq!(
        world.told("db1", Fact::Up),
        ["LOG host db1:5432 is up again"]
    );
    assert_eq!(world.state("db1"), PRIMARY);
    // A late answer to the check ends the question, too.
    let since = Time(8);
    assert!(world.hear("db1", Fact::Overdue(since)).ask.is_some());
    world.hear("db1", primary(1, "a"));
    for worker in 0..3 {
        let (worker, heard) = (WorkerId(worker), false);
        let fact = Fact::Heard {
            since,
            worker,
            heard,
        };
        assert_eq!(world.hear("db1", fact), Outcome::default());
    }
}

#[test]
fn a_view_is_sent_when_something_changes() {
    let mut world = cluster();
    let since = world.standing("db1").since;
    assert_eq!(world.hear("db1", Fact::Up), Outcome::default());
    assert!(since < world.now);
    let mut moved = report(false, 1, "a");
    moved.lsn = Some(99);
    assert_eq!(
        world.hear("db1", Fact::Report(moved.clone())),
        Outcome::default()
    );
    assert_eq!(
        (world.standing("db1").lsn, world.standing("db1").since),
        (Some(99), since)
    );
    assert_eq!(world.hear("db1", Fact::Up), Outcome::default());
    assert_eq!(
        world.hear(
            "db1",
            Fact::Role {
                in_recovery: false,
                since: Time(u64::MAX)
            }
        ),
        Outcome::default()
    );
    moved.read_only = true;
    let outcome = world.hear("db1", Fact::Report(moved));
    assert_eq!(outcome.view, Some(world.roster.view()));
    let down = world.hear("db1", Fact::Down("refused".into()));
    assert!(down.view.is_some());
    assert_eq!(world.standing("db1").since, world.now);
    assert_eq!(world.hear("db4", Fact::Up), Outcome::default());
}

#[test]
fn what_is_hidden_is_told_once_a_minute() {
    let mut world = cluster();
    let hidden = || Fact::Hidden("permission denied".into());
    let outcome = world.hear("db1", hidden());
    let told = "WARNING host db1:5432: its check can't find everything: permission denied";
    assert_eq!(
        (lines(&outcome), outcome.view.is_some()),
        (vec![told.to_string()], true)
    );
    assert_eq!(world.state("db1"), PRIMARY);
    assert_eq!(&*world.standing("db1").why, "permission denied");
    for _ in 0..59 {
        assert_eq!(world.hear("db1", hidden()), Outcome::default());
    }
    let outcome = world.hear("db1", hidden());
    assert_eq!(
        (lines(&outcome), outcome.view),
        (vec![told.to_string()], None)
    );
    // A report that lacks nothing ends it.
    let mut partial = report(false, 1, "a");
    partial.timeline = None;
    world.hear("db1", Fact::Report(partial));
    assert_eq!(&*world.standing("db1").why, "permission denied");
    assert!(world.hear("db1", primary(1, "a")).view.is_some());
    assert_eq!(&*world.standing("db1").why, "");
    // Texts from outside are cut.
    world.hear("db1", Fact::Hidden("ö".repeat(1_000_000)));
    assert_eq!(
        world.standing("db1").why.chars().count(),
        crate::limits::HOST_WHY
    );
}

#[test]
fn logins_tell_roles() {
    // No checks: logins decide.
    let mut world = World::new(&["db1,db2"]);
    world.hear(
        "db1",
        Fact::Role {
            in_recovery: false,
            since: Time(u64::MAX),
        },
    );
    world.hear(
        "db2",
        Fact::Role {
            in_recovery: true,
            since: Time(u64::MAX),
        },
    );
    assert_eq!((world.state("db1"), world.state("db2")), (PRIMARY, STANDBY));
    world.hear("db1", Fact::Down("refused".into()));
    let outcome = world.hear(
        "db2",
        Fact::Role {
            in_recovery: false,
            since: Time(u64::MAX),
        },
    );
    assert!(outcome.check.is_empty());
    assert_eq!(world.state("db2"), PRIMARY);
    // With checks, a login with another role asks for one, and fences nobody.
    let mut world = cluster();
    let outcome = world.hear(
        "db2",
        Fact::Role {
            in_recovery: false,
            since: Time(u64::MAX),
        },
    );
    assert_eq!(outcome.check, [host("db2")]);
    assert_eq!(world.state("db1"), PRIMARY);
    assert_eq!(world.state("db2"), (Some(Role::Rival), State::Up));
    assert_eq!(world.standing("db2").timeline, None);
    world.hear("db2", primary(2, "b"));
    assert_eq!((world.state("db1"), world.state("db2")), (FENCED, PRIMARY));
}

#[test]
fn two_addresses_of_one_host() {
    let mut world = World::new(&["::1,127.0.0.1,db2"]);
    world.hear("db2", standby(1, "x"));
    let address = |ip: &str| HostPort {
        host: Host::Ip(ip.parse().unwrap()),
        port: 5432,
    };
    let mut hear = |ip: &str, fact: Fact| {
        let of = address(ip);
        let outcome = world.roster.hear(world.now, HostFact { host: of, fact });
        world.roster.check();
        let view = world.roster.view();
        let list = view.lists.values().next().unwrap();
        let roles = list.hosts[..2].iter().map(|(_, standing)| standing.role);
        (roles.collect::<Vec<_>>(), lines(&outcome).len())
    };
    let primaries = vec![Some(Role::Primary); 2];
    hear("::1", primary(1, "a"));
    assert_eq!(hear("127.0.0.1", primary(1, "a")), (primaries.clone(), 1));
    // A restart is seen on one address first.
    assert_eq!(
        hear("127.0.0.1", primary(1, "b")).0,
        [None, Some(Role::Primary)]
    );
    assert_eq!(hear("::1", primary(1, "b")).0, primaries);
    // What one address shows holds on both.
    assert_eq!(hear("::1", standby(1, "c")).0, [Some(Role::Standby), None]);
    hear("127.0.0.1", standby(1, "c"));
    assert_eq!(hear("127.0.0.1", primary(2, "c")).0, primaries);
}

#[test]
fn a_reload_keeps_what_is_known() {
    let mut world = cluster();
    world.hear("db2", primary(2, "b"));
    world.hear("db3", Fact::Down("refused".into()));
    let before = world.standing("db1");
    assert!(world.reload(&["db1,db2,db3"]).view.is_none());
    // Two lists have one verdict if they are equal, and else one each, with what is known.
    assert!(world.reload(&["db1,db2,db3", "db1,db2,db3"]).view.is_none());
    let outcome = world.reload(&["db4,db1,db2", "db1,db2,db3"]);
    assert!(
        outcome
            .view
            .as_ref()
            .is_some_and(|view| view.lists.len() == 2)
    );
    assert_eq!(lines(&outcome), [""; 0]);
    world.reload(&["db4,db1,db2"]);
    assert_eq!(world.standing("db1"), before);
    assert_eq!(world.state("db1"), FENCED);
    assert_eq!(world.state("db2"), PRIMARY);
    assert_eq!(world.state("db4"), (None, State::Up));
    // The fence does not stand on the incumbent, who leaves.
    let outcome = world.reload(&["db4,db1"]);
    assert_eq!(world.state("db1"), FENCED);
    assert_eq!(
        lines(&outcome),
        ["WARNING no primary: db4:5432 has not told its role yet, \
         db1:5432 takes writes on timeline 1, db2:5432 is on 2"]
    );
    // Two lists say once what they have in common.
    world.reload(&["db4,db1", "db1,db4"]);
    world.hear("db1", standby(2, "d"));
    world.hear("db4", standby(2, "f"));
    assert_eq!(
        world.told("db1", primary(3, "d")),
        ["LOG host db1:5432 is the primary"]
    );
    // Without placed databases nothing is kept.
    let outcome = world.reload(&[]);
    assert!(outcome.view.is_some_and(|view| view.lists.is_empty()));
    assert!(world.roster.hosts.is_empty());
    world.reload(&["db1,db2"]);
    assert_eq!(world.state("db1"), (None, State::Up));
}

#[test]
fn each_address_of_a_name_is_a_host() {
    let mut world = World::new(&["pg"]);
    world.hear("pg", primary(1, "a"));
    assert_eq!(world.state("pg"), PRIMARY);
    // One becomes three: none of them is known yet.
    let view = world.resolve(&["pg"], &[1, 2, 3]).view.unwrap();
    let (list, known) = view.lists.first_key_value().unwrap();
    assert_eq!(list[..], [host("pg")]);
    let hosts = known.hosts.iter().map(|(host, _)| host.to_string());
    let expected = [
        "pg(10.0.0.1):5432",
        "pg(10.0.0.2):5432",
        "pg(10.0.0.3):5432",
    ];
    assert_eq!(hosts.collect::<Vec<_>>(), expected);
    assert_eq!(
        known.best(SessionAttrs::Primary, u64::MAX),
        Vec::<&HostPort>::new()
    );
    world.hear("10.0.0.1", standby(1, "b"));
    world.hear("10.0.0.2", primary(1, "a"));
    assert_eq!(best(&world, SessionAttrs::Primary), Vec::<String>::new());
    world.hear("10.0.0.3", standby(1, "c"));
    assert_eq!(best(&world, SessionAttrs::Primary), [expected[1]]);
    assert_eq!(
        best(&world, SessionAttrs::Standby),
        [expected[0], expected[2]]
    );
    assert!(
        world.resolve(&["pg"], &[1, 2, 3]).view.is_none(),
        "the same"
    );
    // A fact about the name, on its way when the addresses were found.
    assert_eq!(world.hear("pg", standby(1, "b")), Outcome::default());
}

#[test]
fn addresses_come_and_go() {
    let mut world = World::new(&["pg,db4"]);
    world.hear("db4", standby(1, "d"));
    world.resolve(&["pg,db4"], &[1, 2]);
    world.hear("10.0.0.1", primary(1, "a"));
    world.hear("10.0.0.2", standby(1, "b"));
    world.hear("10.0.0.2", Fact::Drain);
    // The primary is known while a new host has not answered.
    let outcome = world.resolve(&["pg,db4"], &[1, 2, 3]);
    assert!(outcome.view.is_some() && outcome.notes.is_empty());
    assert_eq!(world.state("10.0.0.1"), PRIMARY);
    assert_eq!(
        world.state("10.0.0.2"),
        (Some(Role::Standby), State::Drained)
    );
    assert_eq!(world.state("10.0.0.3"), (None, State::Up));
    assert_eq!(world.state("db4"), STANDBY);
    // The primary's address goes, and a standby is promoted.
    let told = lines(&world.resolve(&["pg,db4"], &[2, 3]));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("WARNING no primary: pg(10.0.0.2):5432 "),
        "{told:?}"
    );
    let told = world.told("10.0.0.3", primary(2, "c"));
    assert_eq!(told, ["LOG host pg(10.0.0.3):5432 is the primary"]);
    // The old one comes back, and is nobody's primary.
    world.resolve(&["pg,db4"], &[1, 2, 3]);
    world.hear("10.0.0.1", primary(1, "a"));
    assert_eq!(world.state("10.0.0.1"), FENCED);
    assert_eq!(world.state("10.0.0.3"), PRIMARY);
    world.resolve(&["pg,db4"], &[]);
    assert_eq!(world.state("pg"), (None, State::Up));
    assert_eq!(world.state("db4"), STANDBY);
}

#[test]
fn a_successor_knows_the_addresses() {
    let mut world = World::new(&["pg"]);
    world.resolve(&["pg"], &[1, 2]);
    world.hear("10.0.0.1", standby(2, "a"));
    world.hear("10.0.0.2", primary(2, "b"));
    let mut next = Roster::new(3);
    next.inherit(world.roster.lore());
    next.set_lists(world.now, &config(&["pg"]), &found(&[1, 2]));
    next.check();
    let next = World {
        roster: next,
        now: world.now,
    };
    assert_eq!(next.state("10.0.0.1"), STANDBY);
    assert_eq!(next.state("10.0.0.2"), PRIMARY);
}

fn any_fact(random: &mut ChaCha20Rng) -> Fact {
    let mut below = |most: u32| random.next_u32() % most;
    let rarely_none = |chance: u32| chance > 0;
    match below(16) {
        0..=5 => Fact::Report(HostReport {
            flushed: None,
            in_recovery: below(2) == 0,
            started: Some(below(4).to_string()).filter(|_| rarely_none(below(8))),
            system: Some(u64::from(below(8) / 7)).filter(|_| rarely_none(below(8))),
            timeline: Some(below(3)).filter(|_| rarely_none(below(6))),
            lsn: Some(u64::from(below(9))),
            read_only: below(9) == 0,
        }),
        6 | 7 => Fact::Role {
            in_recovery: below(2) == 0,
            since: Time(u64::from(below(50))),
        },
        8 => Fact::Down("refused".into()),
        9 | 10 => Fact::Up,
        11 => Fact::Hidden(format!("denied {}", below(2))),
        12 => Fact::Overdue(Time(u64::from(below(50)))),
        13 => Fact::Drain,
        14 => Fact::Resume,
        _ => Fact::Heard {
            since: Time(u64::from(below(50))),
            worker: WorkerId(below(3) as u16),
            heard: below(4) == 0,
        },
    }
}

/// What must hold whatever was heard, beyond [`Roster::check`].
fn is_sound(roster: &Roster, list: &ListView) {
    let primary = { list.hosts.iter() }.find(|(_, of)| of.role == Some(Role::Primary));
    let Some((name, primary)) = primary else {
        return;
    };
    let report = |of: &HostPort| roster.hosts[of].word.as_ref().map(|word| &word.report);
    let own = report(name).unwrap();
    assert!(!own.in_recovery, "{name} is in recovery, and the primary");
    for (other, standing) in &list.hosts {
        let Some(told) = report(other).filter(|_| standing.state != State::Drained) else {
            continue;
        };
        if own.system.is_some() && told.system == own.system && primary.timeline.is_some() {
            assert!(
                standing.timeline <= primary.timeline,
                "{other} is newer than {name}"
            );
        }
        let is_rival = standing.role == Some(Role::Rival);
        let in_doubt = roster.hosts[other]
            .word
            .as_ref()
            .is_some_and(|word| word.in_doubt);
        let is_known = primary.timeline.is_some() && told.timeline.is_some();
        let may_be_newer = in_doubt || !is_known;
        assert!(
            !is_rival || may_be_newer,
            "{other} takes writes beside {name}"
        );
    }
}

#[test]
fn whatever_is_heard_there_is_one_primary() {
    let lists: [&[&str]; 4] = [
        &["db1,db2,db3,db4"],
        &["db1,db2,db3,db4", "db3,db1"],
        &["db2,db3"],
        &["db4,db3,db2", "db1", "db3,db1"],
    ];
    for seed in 0..2000 {
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        let mut world = World::new(lists[0]);
        let mut view = world.roster.view();
        for _ in 0..150 {
            let name = format!("db{}", 1 + random.next_u32() % 4);
            let outcome = if random.next_u32() % 40 == 0 {
                world.reload(lists[(random.next_u32() % 4) as usize])
            } else {
                world.hear(&name, any_fact(&mut random))
            };
            let now = world.roster.view();
            assert!(outcome.notes.len() < 12, "{:?}", outcome.notes);
            match outcome.view {
                Some(new) => assert_eq!(new, now),
                None => assert_eq!(without_lsn(&now), without_lsn(&view), "seed {seed}"),
            }
            now.lists
                .values()
                .for_each(|list| is_sound(&world.roster, list));
            view = now;
        }
    }
}

fn without_lsn(view: &View) -> View {
    let mut view = view.clone();
    let lists = view.lists.values_mut().flat_map(|list| &mut list.hosts);
    lists.for_each(|(_, standing)| standing.lsn = None);
    view
}
