//! The channels of a client, and the rounds of a listener.

use std::sync::Arc;

use super::{
    Channels, Heard, Hearer, ListensAlone, Name, Notification, Refused, Requirements, RoundOutcome,
    SharedListener,
};
use crate::effect;
use crate::event::{ClientId, ServerId, Time, WorkerId};
use crate::limits;
use crate::login::LoginKey;

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
    let key = LoginKey::new("d", "u");
    let mut own = Channels::new(key);
    hear(&mut own, text);
    own.settle(Some(&names(text)), false, false);
    own
}

fn hear(own: &mut Channels, text: &str) {
    own.wished = names(text);
    own.granted();
}

fn unlisten(own: &mut Channels, text: &str) {
    let effects = effect::effects(text.as_bytes());
    own.unlisten(&effects.channels.expect("channels"));
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
    let settled = own.settle(Some(&names("c")), false, true);
    assert_eq!(settled, (names("b"), false));
    assert_eq!(listened(&own), "a c");
    // The server listens to a channel that the client does not hear.
    let settled = own.settle(Some(&names("x")), false, false);
    assert_eq!(settled, (vec![], true));
    // A server that could not answer is taken to listen itself.
    hear(&mut own, "d");
    assert_eq!(own.settle(None, false, false), (names("d"), false));
    assert_eq!(own.settle(None, true, false), (names("a c"), false));
    assert!(own.is_empty());
}

#[test]
fn unlisten_counts_if_it_was_committed() {
    let mut own = own("a b");
    unlisten(&mut own, "unlisten a");
    assert_eq!(own.settle(None, false, false).0, names("a"));
    unlisten(&mut own, "unlisten *");
    own.failed = true;
    assert_eq!(own.settle(None, false, true).0, names(""));
    unlisten(&mut own, "rollback; unlisten *");
    assert_eq!(own.settle(None, false, true).0, names("b"));
}

#[test]
fn who_listens_alone_listens_to_what_the_server_has() {
    for (there, doubtful, gone, alone) in [
        ("a b", false, "c", ListensAlone::Yes),
        ("b howdah_alone", true, "a c", ListensAlone::Yes),
        ("", false, "a b c", ListensAlone::No),
        ("howdah_alone", true, "a b c", ListensAlone::No),
        // All was rolled back. Later the client may have listened again.
        ("", true, "", ListensAlone::No),
        ("a", true, "", ListensAlone::No),
    ] {
        let mut own = own("a b c");
        own.alone = ListensAlone::Begun;
        let settled = own.settle(Some(&names(there)), false, doubtful);
        let keeps = alone == ListensAlone::Yes;
        assert_eq!(
            (settled, own.alone),
            ((names(gone), keeps), alone),
            "{there}"
        );
    }
    let mut own = own("a b c");
    own.alone = ListensAlone::Yes;
    // Later no doubt is left, and nothing may have been asked.
    assert_eq!(own.settle(None, false, true), (vec![], false));
    let settled = own.settle(Some(&names("b x")), false, true);
    assert_eq!(settled, (names("a c"), true));
    assert_eq!(
        (listened(&own), own.alone),
        ("b".to_string(), ListensAlone::Yes)
    );
    assert_eq!(own.settle(Some(&[]), true, false), (names("b"), false));
    assert_eq!(own.alone, ListensAlone::No);
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
        });
        let own = false;
        Heard { notification, own }
    };
    assert!(own.keep(say("a", 1)) && own.keep(say("b", 2)));
    own.forget_tentative();
    assert!(own.keep(say("b", 3)));
    own.settle(Some(&names("b")), false, false);
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
