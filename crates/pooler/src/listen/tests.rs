//! The channels of a client, and the rounds of a listener.

use std::sync::Arc;

use super::heritage::PARTNER;
use super::{
    Channels, Heard, Hearer, Name, Notification, NotificationPosition, Reach, Refused,
    Requirements, RoundOutcome, SharedListener,
};
use crate::effect;
use crate::event::{ClientId, ServerId, Time, WorkerId};
use crate::limits;
use crate::pool::PoolKey;

fn client(index: u32) -> Hearer {
    let id = ClientId {
        index,
        generation: 0,
    };
    (WorkerId(index as u16 % 2), id)
}

fn names(text: &str) -> Vec<Name> {
    text.split_whitespace()
        .map(|name| name.as_bytes().into())
        .collect()
}

fn connected() -> SharedListener {
    let mut listener = SharedListener::new(crate::seeded(1), Time(0));
    let server = ServerId {
        index: 0,
        generation: 0,
    };
    assert!(listener.connected(server, |_| true).is_empty());
    listener
}

fn wish(listener: &mut SharedListener, hearer: Hearer, text: &str) {
    assert!(listener.hear(hearer, names(text), Requirements::default()));
}

fn begin(listener: &mut SharedListener) -> Option<String> {
    let sql = listener.begin(Time(0))?;
    Some(String::from_utf8_lossy(&sql).into_owned())
}

#[test]
fn each_channel_is_listened_to_once() {
    let (one, two) = (client(1), client(2));
    let mut listener = connected();
    assert_eq!(begin(&mut listener), None);
    wish(&mut listener, one, "a b\"");
    let sql = r#"LISTEN "a";LISTEN "b""";"#;
    assert_eq!(begin(&mut listener).as_deref(), Some(sql));
    // No client hears the channels before the round has ended. Wishes that come meanwhile are for
    // the next round.
    wish(&mut listener, two, "a c");
    listener.pass(one);
    assert_eq!(begin(&mut listener), None);
    assert!(listener.hearers(b"a").is_empty());
    assert_eq!(listener.end(), [RoundOutcome::Hears(one, Ok(()))]);
    assert_eq!(listener.hearers(b"a"), [one]);
    assert_eq!(begin(&mut listener).as_deref(), Some(r#"LISTEN "c";"#));
    let told = [RoundOutcome::Hears(two, Ok(())), RoundOutcome::Passed(one)];
    assert_eq!(listener.end(), told);
    assert_eq!(listener.hearers(b"a"), [one, two]);
    assert!(!listener.is_unused());
    // A channel stays as long as a client hears it.
    listener.leave(one, &names("a"), false);
    assert_eq!(begin(&mut listener), None);
    assert_eq!(listener.hearers(b"a"), [two]);
    listener.leave(two, &names("a c"), true);
    let sql = r#"UNLISTEN "a";UNLISTEN "c";"#;
    assert_eq!(begin(&mut listener).as_deref(), Some(sql));
    // A client asks for the channel while its UNLISTEN is under way.
    wish(&mut listener, two, "a");
    assert!(listener.end().is_empty());
    assert_eq!(begin(&mut listener).as_deref(), Some(r#"LISTEN "a";"#));
    assert_eq!(listener.end(), [RoundOutcome::Hears(two, Ok(()))]);
    listener.leave(two, &names("a"), true);
    listener.leave(one, &names("b\""), true);
    assert!(listener.is_unused());
    assert!(begin(&mut listener).is_some());
    assert!(listener.end().is_empty());
    assert_eq!(begin(&mut listener), None);
}

#[test]
fn a_round_that_fails_changes_nothing() {
    let (one, two) = (client(1), client(2));
    let mut listener = connected();
    wish(&mut listener, one, "a");
    assert!(begin(&mut listener).is_some() && listener.end().len() == 1);
    wish(&mut listener, two, "a b");
    listener.pass(one);
    assert!(begin(&mut listener).is_some());
    listener.fail();
    let told = [
        RoundOutcome::Hears(two, Err(Refused::Unfit)),
        RoundOutcome::Passed(one),
    ];
    assert_eq!(listener.end(), told);
    assert_eq!(listener.hearers(b"a"), [one]);
    assert_eq!(begin(&mut listener), None);
    wish(&mut listener, two, "b");
    assert_eq!(begin(&mut listener).as_deref(), Some(r#"LISTEN "b";"#));
}

#[test]
fn who_leaves_waits_for_nothing() {
    let (one, two) = (client(1), client(2));
    let mut listener = connected();
    wish(&mut listener, one, "a");
    wish(&mut listener, two, "b");
    assert!(begin(&mut listener).is_some());
    wish(&mut listener, two, "c");
    listener.leave(one, &names("a"), true);
    assert_eq!(listener.end(), [RoundOutcome::Hears(two, Ok(()))]);
    listener.leave(two, &names("b c"), true);
    // A channel whose LISTEN was never sent needs no UNLISTEN.
    let sql = r#"UNLISTEN "a";UNLISTEN "b";"#;
    assert_eq!(begin(&mut listener).as_deref(), Some(sql));
    assert!(listener.end().is_empty() && listener.is_unused());
}

#[test]
fn who_is_lost_has_heard_or_wished() {
    let (one, two, three) = (client(1), client(2), client(3));
    let mut listener = connected();
    wish(&mut listener, one, "a");
    assert!(begin(&mut listener).is_some() && listener.end().len() == 1);
    wish(&mut listener, two, "a");
    listener.pass(one);
    assert!(begin(&mut listener).is_some());
    wish(&mut listener, three, "b");
    let (hearers, wishes) = listener.lose();
    assert_eq!(hearers.into_iter().collect::<Vec<_>>(), [one]);
    assert_eq!(wishes.into_iter().collect::<Vec<_>>(), [two, three]);
    assert!(listener.is_unused());
}

#[test]
fn channels_are_bounded() {
    let mut listener = connected();
    let many: Vec<Name> = (0..limits::CHANNELS)
        .map(|n| n.to_string().into_bytes().into())
        .collect();
    assert!(listener.hear(client(1), many, Requirements::default()));
    assert!(!listener.hear(client(2), names("x"), Requirements::default()));
    assert!(listener.hear(client(2), names("7"), Requirements::default()));
}

#[test]
fn many_channels_take_several_rounds() {
    let (one, two) = (client(1), client(2));
    let mut listener = connected();
    let all = 2 * limits::CHANNELS_A_ROUND + 1;
    let many: Vec<Name> = (0..all).map(|n| n.to_string().as_bytes().into()).collect();
    assert!(listener.hear(one, many.clone(), Requirements::default()));
    wish(&mut listener, two, "a");
    listener.pass(two);
    let count = |sql: &str| sql.matches("LISTEN").count();
    let sql = begin(&mut listener).unwrap_or_default();
    assert_eq!(count(&sql), limits::CHANNELS_A_ROUND);
    assert_eq!(listener.end(), [RoundOutcome::Passed(two)]);
    // Who wants few does not wait for those who want many.
    let sql = begin(&mut listener).unwrap_or_default();
    assert!(sql.starts_with("LISTEN \"a\";"));
    assert_eq!(count(&sql), limits::CHANNELS_A_ROUND);
    assert_eq!(listener.end(), [RoundOutcome::Hears(two, Ok(()))]);
    assert_eq!(count(&begin(&mut listener).unwrap_or_default()), 2);
    assert_eq!(listener.end(), [RoundOutcome::Hears(one, Ok(()))]);
    assert_eq!(begin(&mut listener), None);
    listener.leave(one, &many, true);
    for count in [1000, 1000, 1] {
        let sql = begin(&mut listener).unwrap_or_default();
        assert_eq!(sql.matches("UNLISTEN").count(), count);
        assert!(listener.end().is_empty());
    }
    assert_eq!(begin(&mut listener), None);
    // A round that fails takes nothing of what was there before.
    assert!(listener.hear(one, many, Requirements::default()));
    assert!(begin(&mut listener).is_some() && listener.end().is_empty());
    assert!(begin(&mut listener).is_some());
    listener.fail();
    let unfit = RoundOutcome::Hears(one, Err(Refused::Unfit));
    assert_eq!(listener.end(), [unfit]);
    assert_eq!(listener.hearers(b"a"), [two]);
}

#[test]
fn a_connection_must_suit() {
    let mut listener = SharedListener::new(crate::seeded(1), Time(0));
    for (index, encoding) in ["UTF8", "LATIN1", "UTF8"].into_iter().enumerate() {
        let demand = Requirements {
            encoding: Some(encoding.as_bytes().into()),
            ..Requirements::default()
        };
        assert!(listener.hear(client(index as u32), names("a"), demand));
    }
    let server = ServerId {
        index: 0,
        generation: 0,
    };
    let unfit = listener.connected(server, |d| d.encoding.as_deref() == Some(b"UTF8"));
    assert_eq!(unfit, [client(1)]);
}

fn own(text: &str) -> Channels {
    let key = PoolKey::new("d".into(), "u".into());
    let mut own = Channels::new(Arc::new(key));
    hear(&mut own, text);
    own.settle(Some(&names(text)), false);
    own
}

fn hear(own: &mut Channels, text: &str) {
    own.wished = names(text);
    own.granted();
}

fn unlisten(own: &mut Channels, text: &str, in_block: bool) -> Option<String> {
    let effects = effect::effects(text.as_bytes());
    own.unlisten(&effects.channels.expect("channels"), in_block)
}

fn listened(own: &Channels) -> String {
    let names = own.listened().map(|name| String::from_utf8_lossy(name));
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn what_the_server_has_counts() {
    let mut own = own("a");
    assert_eq!(listened(&own), "a");
    hear(&mut own, "b c");
    assert!(own.are_tentative());
    assert_eq!(own.settle(Some(&names("c")), false), (names("b"), false));
    assert_eq!(listened(&own), "a c");
    // The server listens to a channel that the client does not hear.
    assert_eq!(own.settle(Some(&names("x")), false), (vec![], true));
    // A server that could not answer is taken to listen itself.
    hear(&mut own, "d");
    assert_eq!(own.settle(None, false), (names("d"), false));
    assert_eq!(own.settle(None, true), (names("a c"), false));
    assert!(own.is_empty());
}

#[test]
fn unlisten_counts_if_it_was_committed() {
    let mut own = own("a b c d");
    assert_eq!(unlisten(&mut own, "unlisten a", false), None);
    assert_eq!(own.settle(None, false).0, names("a"));
    unlisten(&mut own, "unlisten *", false);
    own.failed = true;
    assert_eq!(own.settle(None, false).0, names(""));
    let mark = unlisten(&mut own, "unlisten b", true).expect("mark");
    let rolled_back = unlisten(&mut own, "unlisten c", true).expect("mark");
    assert_ne!(mark, rolled_back);
    assert_eq!(own.settle(Some(&names(&mark)), false), (names("b"), false));
    // The mark of an earlier UNLISTEN does not count.
    assert!(unlisten(&mut own, "unlisten *", true).is_some());
    assert_eq!(own.settle(Some(&names(&mark)), false), (vec![], false));
    let mark = unlisten(&mut own, "unlisten *", true).expect("mark");
    let there = format!("{mark} d");
    assert_eq!(own.settle(Some(&names(&there)), false), (names("c"), false));
    assert_eq!(listened(&own), "d");
}

#[test]
fn what_waits_is_told_of_channels_that_are_listened_to() {
    let mut own = own("a");
    hear(&mut own, "b");
    let say = |channel: &str, size: usize| {
        let notification = Arc::new(Notification {
            pid: 1,
            channel: channel.as_bytes().into(),
            payload: vec![b'x'; size].into(),
            number: 0,
        });
        let own = false;
        Heard { notification, own }
    };
    assert!(own.keep(say("a", 1)) && own.keep(say("b", 2)));
    own.forget_tentative();
    assert!(own.keep(say("b", 3)));
    own.settle(Some(&names("b")), false);
    let told: Vec<usize> = own
        .take()
        .iter()
        .map(|h| h.notification.payload.len())
        .collect();
    assert_eq!(told, [1, 3]);
    assert!(own.is_silent());
    let many = limits::HEARD / 8000;
    assert!((0..many).any(|_| !own.keep(say("a", 8000))));
}

#[test]
fn a_change_misses_nothing_and_tells_nothing_twice() {
    use super::change::{MARK, Replacement, ReplacementStep};
    let server = |index| ServerId {
        index,
        generation: 0,
    };
    let said = |pid, channel: &[u8], payload: &str| Notification {
        pid,
        channel: channel.into(),
        payload: payload.as_bytes().into(),
        number: 0,
    };
    let (old, new) = (server(1), server(2));
    let mut change = Replacement::new(Time(0), true);
    change.heir = Some((new, 70));
    change.readies(Time(1));
    change.begins(Time(2));
    assert_eq!(change.answered(), ReplacementStep::Waits);
    // Before the mark, only the old connection's notifications count.
    let one = said(5, b"c", "one");
    let told = change.hears(old, one.clone());
    assert_eq!(told, (Some(one.clone()), ReplacementStep::Waits));
    assert_eq!(change.hears(new, one), (None, ReplacementStep::Waits));
    assert_eq!(change.answered(), ReplacementStep::Mark);
    // The mark of another replacement does not count.
    let other = said(71, MARK, "");
    assert_eq!(change.hears(new, other), (None, ReplacementStep::Waits));
    let mark = said(70, MARK, "");
    assert_eq!(
        change.hears(new, mark.clone()),
        (None, ReplacementStep::Waits)
    );
    assert_eq!(change.answered(), ReplacementStep::Waits);
    // The new connection is ahead: its notification waits until the old connection has the mark.
    let three = said(5, b"c", "three");
    assert_eq!(
        change.hears(new, three.clone()),
        (None, ReplacementStep::Waits)
    );
    let two = said(5, b"c", "two");
    let told = change.hears(old, two.clone());
    assert_eq!(told, (Some(two), ReplacementStep::Waits));
    assert_eq!(
        change.hears(old, mark),
        (None, ReplacementStep::Over(vec![three]))
    );
}

/// A listening connection of the old process and one of the new process.
struct Two {
    old: SharedListener,
    new: SharedListener,
    mark: String,
}

fn said(channel: &[u8], payload: &str) -> Notification {
    Notification {
        pid: 5,
        channel: channel.into(),
        payload: payload.as_bytes().into(),
        number: 0,
    }
}

fn round(listener: &mut SharedListener) -> (String, Vec<RoundOutcome>) {
    let sql = begin(listener).unwrap_or_default();
    (sql, listener.end())
}

impl Two {
    /// The old connection listens to these channels for a client. The new connection listens to the
    /// same channels, and has sent its mark.
    fn new(channels: &str) -> Two {
        let (mut old, mut new) = (connected(), connected());
        wish(&mut old, client(1), channels);
        round(&mut old);
        assert!(old.heritages.prepare(Time(0), 77, true));
        assert!(!old.heritages.prepare(Time(0), 78, true), "it is");
        wish_of(&mut old, PARTNER, "howdah_takeover", None);
        let (sql, _) = round(&mut old);
        assert_eq!(sql, r#"LISTEN "howdah_takeover";"#);
        let reach = old.heritages.untold().unwrap();
        assert_eq!(reach.names, names(channels).into_iter().collect());
        assert_eq!(old.heritages.untold(), None);
        assert_eq!(reached(&old), None, "nobody can leave yet");
        wish_of(&mut new, PARTNER, channels, None);
        wish_of(&mut new, PARTNER, "howdah_takeover", None);
        new.heritages.inherit(Time(0), reach.mark, &names(channels));
        let (sql, _) = round(&mut new);
        assert!(sql.contains("LISTEN") && !sql.contains("NOTIFY"), "{sql}");
        let (sql, _) = round(&mut new);
        let mark = format!("{:032x}", reach.mark);
        assert_eq!(sql, format!(r#"NOTIFY "howdah_takeover",'{mark}';"#));
        assert_eq!(begin(&mut new), None, "once");
        Two { old, new, mark }
    }
}

fn wish_of(
    listener: &mut SharedListener,
    hearer: Hearer,
    text: &str,
    after: Option<NotificationPosition>,
) {
    let demand = Requirements {
        after,
        ..Requirements::default()
    };
    assert!(listener.hear(hearer, names(text), demand));
}

/// The mark by which clients can leave, and the number of the last notification.
fn reached(listener: &SharedListener) -> Option<(u128, u64)> {
    let (reach, number) = listener.heritages.reached()?;
    Some((reach.mark, number?))
}

fn hears(listener: &mut SharedListener, heard: &Notification) -> u64 {
    listener.heritages.hears(heard.clone()).0.number
}

/// The notifications sent to a client that arrives with this number.
fn follows(
    listener: &mut SharedListener,
    hearer: Hearer,
    text: &str,
    number: u64,
) -> Option<Vec<String>> {
    let after = NotificationPosition { mark: 77, number };
    wish_of(listener, hearer, text, Some(after));
    match &round(listener).1[..] {
        [RoundOutcome::Follows(who, missed)] if *who == hearer => {
            let missed = missed.iter();
            let payload =
                |heard: &Arc<Notification>| String::from_utf8_lossy(&heard.payload).into();
            Some(missed.map(payload).collect())
        }
        [RoundOutcome::Lost(who)] if *who == hearer => None,
        told => panic!("{told:?}"),
    }
}

#[test]
fn who_follows_is_told_what_came_behind_its_number() {
    let mut two = Two::new("a b");
    let mark = said(b"howdah_takeover", &two.mark.clone());
    assert_eq!(hears(&mut two.old, &said(b"a", "before")), 0);
    // Other sessions may notify the channel, but do not know the mark.
    hears(&mut two.old, &said(b"howdah_takeover", "other"));
    assert_eq!(reached(&two.old), None);
    assert!(two.old.heritages.hears(mark.clone()).1);
    assert_eq!(reached(&two.old), Some((77, 0)));
    // The new connection gets the mark later, after another notification.
    hears(&mut two.new, &said(b"c", "elsewhere"));
    assert!(
        !two.new.heritages.hears(mark.clone()).1,
        "nobody leaves from there"
    );
    let all = [("a", "1"), ("c", "-"), ("b", "2"), ("a", "3"), ("a", "4")];
    for (channel, payload) in all {
        let heard = said(channel.as_bytes(), payload);
        let number = payload.parse().unwrap_or(0);
        assert_eq!(hears(&mut two.old, &heard), number);
        hears(&mut two.new, &heard);
        // The mark counts once only.
        hears(&mut two.new, &mark);
    }
    let told = |two: &mut Two, text, number| follows(&mut two.new, client(2), text, number);
    assert_eq!(told(&mut two, "a b", 0).unwrap(), ["1", "2", "3", "4"]);
    assert_eq!(told(&mut two, "a", 1).unwrap(), ["3", "4"]);
    assert!(told(&mut two, "b", 4).unwrap().is_empty());
    assert_eq!(two.new.hearers(b"b"), [PARTNER, client(2)]);
    // The new process does not hear channel `c` for the old one: the missed notifications are
    // unknown.
    assert_eq!(told(&mut two, "a c", 2), None);
    // The old process delivers to a client that comes back.
    assert_eq!(
        follows(&mut two.old, client(3), "a", 2).unwrap(),
        ["3", "4"]
    );
}

#[test]
fn who_was_told_more_elsewhere_waits_for_that() {
    let mut two = Two::new("a");
    hears(&mut two.new, &said(b"howdah_takeover", &two.mark.clone()));
    hears(&mut two.new, &said(b"a", "1"));
    let after = Some(NotificationPosition {
        mark: 77,
        number: 2,
    });
    wish_of(&mut two.new, client(2), "a", after.clone());
    assert_eq!(round(&mut two.new).1, []);
    hears(&mut two.new, &said(b"a", "2"));
    hears(&mut two.new, &said(b"a", "3"));
    let (_, told) = round(&mut two.new);
    let [RoundOutcome::Follows(_, missed)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(missed.len(), 1);
    assert_eq!(*missed[0].payload, *b"3");
    // The wait ends after some rounds.
    let after = Some(NotificationPosition {
        mark: 77,
        number: 9,
    });
    wish_of(&mut two.new, client(3), "a", after);
    let told = (0..200).flat_map(|_| round(&mut two.new).1);
    assert_eq!(told.collect::<Vec<_>>(), [RoundOutcome::Lost(client(3))]);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut two = Two::new("a");
    hears(&mut two.new, &said(b"howdah_takeover", &two.mark.clone()));
    let long = "x".repeat(8000);
    let many = limits::HEARD / 8000 + 5;
    for _ in 0..many {
        hears(&mut two.new, &said(b"a", &long));
    }
    assert_eq!(follows(&mut two.new, client(2), "a", 4), None);
    let late = many as u64 - 3;
    assert_eq!(
        follows(&mut two.new, client(2), "a", late).unwrap().len(),
        3
    );
}

#[test]
fn what_two_processes_hear_stays_until_the_end() {
    let mut two = Two::new("a b");
    for listener in [&mut two.old, &mut two.new] {
        listener.leave(client(1), &names("a b"), true);
        assert_eq!(begin(listener), None);
    }
    two.new.heritages.ends(Time(0));
    let over = 30_000_000_000;
    assert!(!two.new.heritages.are_over(Time(over - 1)));
    assert!(two.new.heritages.are_over(Time(over)));
    let all = two.new.all();
    two.new.leave(PARTNER, &all, false);
    let sql = r#"UNLISTEN "a";UNLISTEN "b";UNLISTEN "howdah_takeover";"#;
    assert_eq!(round(&mut two.new).0, sql);
    assert!(two.new.is_unused());
}

#[test]
fn another_mark_is_tried_as_long_as_anybody_hears() {
    let mut two = Two::new("a");
    let later = Time(10_000_000_000);
    let old = &mut two.old.heritages;
    assert!(!old.prepare(Time(later.0 - 1), 78, true), "soon");
    hears(&mut two.old, &said(b"howdah_takeover", &two.mark));
    let old = &mut two.old.heritages;
    assert!(!old.prepare(later, 78, false), "nobody is left");
    assert!(old.prepare(later, 78, true));
    wish(&mut two.old, client(2), "b");
    round(&mut two.old);
    // The first mark counts until the second mark is sent to the new process.
    assert_eq!(hears(&mut two.old, &said(b"a", "")), 1);
    assert_eq!(reached(&two.old), Some((77, 1)));
    assert_eq!(two.old.heritages.untold().unwrap().mark, 78);
    // No client leaves until the second mark comes: the new process may have forgotten everything.
    assert!(two.old.heritages.reached().is_some());
    assert_eq!(reached(&two.old), None);
    hears(
        &mut two.old,
        &said(b"howdah_takeover", &format!("{:032x}", 78)),
    );
    let (reach, number) = two.old.heritages.reached().unwrap();
    assert_eq!((reach.names.len(), number), (2, Some(0)));
    assert_eq!(hears(&mut two.old, &said(b"b", "")), 1);
}

#[test]
fn the_last_mark_that_has_come_is_never_forgotten() {
    let mut two = Two::new("a");
    let mark = said(b"howdah_takeover", &two.mark);
    for listener in [&mut two.old, &mut two.new] {
        hears(listener, &mark);
        hears(listener, &said(b"a", "1"));
    }
    for other in 100u8..110 {
        // None of these marks comes.
        let later = Time(u64::from(other) * 10_000_000_000);
        two.new.heritages.inherit(later, other.into(), &names("a"));
        assert!(two.old.heritages.prepare(later, other.into(), true));
        assert!(two.old.heritages.prepared(later, &names("a")));
        assert_eq!(two.old.heritages.untold().unwrap().mark, other.into());
        // Marks of arriving clients do not displace marks of leaving clients.
        two.old
            .heritages
            .inherit(later, u128::from(other) + 1000, &names("a"));
    }
    assert_eq!(hears(&mut two.old, &said(b"a", "2")), 2);
    hears(&mut two.new, &said(b"a", "2"));
    assert_eq!(follows(&mut two.new, client(2), "a", 1).unwrap(), ["2"]);
    assert!(two.old.heritages.knows(109) && two.old.heritages.knows(1109));
    assert!(!two.old.heritages.knows(107) && !two.old.heritages.knows(1106));
    // A later mark that comes takes the place of the first one.
    hears(
        &mut two.old,
        &said(b"howdah_takeover", &format!("{:032x}", 109)),
    );
    assert_eq!(reached(&two.old), Some((109, 0)));
    let later = Time(u64::MAX);
    assert!(two.old.heritages.prepare(later, 200, true));
    assert!(two.old.heritages.prepared(later, &names("a")));
    assert!(!two.old.heritages.knows(77) && two.old.heritages.knows(109));
}

#[test]
fn a_client_travels_when_nothing_is_open() {
    let reach = |text: &str| {
        let names = names(text).into_iter().collect();
        Some((Arc::new(Reach { mark: 7, names }), 4))
    };
    let mut own = own("a b");
    assert_eq!(own.place(), None);
    own.reach = reach("a");
    assert_eq!(own.place(), None, "the other one does not hear it");
    own.reach = reach("a b");
    assert_eq!(
        own.place(),
        Some(NotificationPosition { mark: 7, number: 4 })
    );
    let heard = Notification {
        number: 5,
        ..said(b"a", "")
    };
    let (notification, ours) = (Arc::new(heard), false);
    assert!(own.keep(Heard {
        notification,
        own: ours
    }));
    assert_eq!(own.place(), None, "it waits");
    own.take();
    assert_eq!(
        own.place(),
        Some(NotificationPosition { mark: 7, number: 5 })
    );
    // A notification without a number: the other process may have counted it, and would deliver it
    // twice.
    let uncounted = |channel: &[u8]| Heard {
        notification: Arc::new(said(channel, "")),
        own: false,
    };
    assert!(own.keep(uncounted(b"c")));
    own.take();
    assert_eq!(
        own.place(),
        Some(NotificationPosition { mark: 7, number: 5 })
    );
    assert!(own.keep(uncounted(b"b")));
    own.take();
    assert_eq!(own.place(), None, "it was told more than it has counted");
    own.reach = reach("a b");
    hear(&mut own, "c");
    assert_eq!(own.place(), None);
}
