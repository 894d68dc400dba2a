//! The verdict as a table.
//!
//! Before, a word for each host of the list:
//!
//! - `P1`, `S1`: it takes writes, or is in recovery, on timeline 1. `?` is an unknown timeline:
//!   only logins have told the role. `P!`: a login has just told another role than the last check.
//!   `-`: it has told nothing.
//! - `P1b`: of the system `b` instead of `a`; `P?` is of an unknown one, `P?a` is not.
//! - `=1`: another address of the first host.
//! - `*` in front: the incumbent. Behind: `.down`, `.silent`, `.drained`, `.hidden` (its check
//!   can't tell), and `#` if it is fenced, since it was on this timeline (`#1` on timeline 1, `#?`
//!   on an unknown one).
//!
//! After: `P`rimary, `S`tandby, `R`ival or `-`; `<` if behind, `#` if fenced; `*` in front of the
//! next incumbent, with its system if that is not `a`.

use super::*;
use crate::config::Host;

/// A list and the verdict on it.
const TABLE: [(&str, &str, &str); 97] = [
    // One PostgreSQL, all is well.
    ("the primary is found", "P1 S1 S1", "*P S S"),
    ("wherever it is", "S1 S1 P1", "S S *P"),
    ("the primary stays", "*P1 S1 S1", "*P S S"),
    ("a host alone", "P1", "*P"),
    ("a standby alone", "S1", "S"),
    ("nothing is known", "- - -", "- - -"),
    ("the first one waits for the others", "- P1 -", "- R -"),
    (
        "but not for those that are away",
        "-.down P1 -.silent",
        "- *P -",
    ),
    ("or can't tell", "-.hidden P1 -.drained", "- *P -"),
    ("and an incumbent for nobody", "- *P1 -", "- *P -"),
    ("nor does its successor", "*- P1 -", "- *P -"),
    ("only standbys are known", "- S1 S1", "- S S"),
    ("on any timeline", "S7 P7 S7", "S *P S"),
    // The primary is away.
    (
        "a primary that is down stays it",
        "*P1.down S1 S1",
        "*P S S",
    ),
    ("one that is silent, too", "*P1.silent S1 S1", "*P S S"),
    ("all are down", "*P1.down S1.down S1.down", "*P S S"),
    ("it was down when it was found", "P1.down S1", "*P S"),
    ("nobody knows it any more", "*-.down S1 S1", "*- S S"),
    // Failover.
    ("a standby is promoted", "*P1.down P2 S1", "# *P S<"),
    ("while the primary is silent", "*P1.silent P2 S2", "# *P S"),
    ("while the primary still works", "*P1 P2 S1", "# *P S<"),
    ("the other standby has followed", "*P1.down P2 S2", "# *P S"),
    (
        "the new primary goes down at once",
        "*P1.down P2.down S1",
        "# *P S<",
    ),
    ("several promotions at once", "*P1.down P2 P3", "# # *P"),
    ("promoted twice", "*P1.down S1 P3", "# S< *P"),
    ("a promotion nobody saw before", "P1 P2", "# *P"),
    ("in the other order", "P2 P1", "*P #"),
    (
        "a switchover: the old one is a standby",
        "*S2 P2 S2",
        "S *P S",
    ),
    (
        "the old one is a standby that has yet to follow",
        "*S1 P2 S2",
        "S< *P S",
    ),
    (
        "only a standby knows the new timeline",
        "*P1 S2 S1",
        "*# S S",
    ),
    ("it knew it, and is away now", "*P1 S2.down S1", "*# S S"),
    // The old primary is back.
    (
        "not fenced yet, on its lower timeline",
        "P1 *P2 S2",
        "# *P S",
    ),
    ("fenced, it stays so", "P1# *P2 S2", "# *P S"),
    ("rewound, it is a standby again", "S2# *P2 S2", "S *P S"),
    (
        "a standby that has yet to follow is not fenced",
        "S1#1 *P2 S2",
        "S< *P S",
    ),
    (
        "fenced, and the new one is down",
        "P1# *P2.down S2",
        "# *P S",
    ),
    (
        "fenced, and the new one is a standby",
        "P1# *S2 S2",
        "# *S S",
    ),
    ("fenced, and the new one is unknown", "P1# *- S1", "# *- S"),
    (
        "fenced, and back by a promotion nobody saw",
        "P3#1 *P2 S2",
        "*P # S<",
    ),
    (
        "fenced, and on the timeline of the new one",
        "P2#1 *P2 S2",
        "# *P S",
    ),
    (
        "fenced while nothing was known, known as older",
        "P1#? *P2",
        "# *P",
    ),
    (
        "fenced while nothing was known, known as newer",
        "P2#? *P1",
        "*P #",
    ),
    (
        "fenced on a known timeline, unknown now",
        "P?#1 *P2",
        "# *P",
    ),
    ("a fence that nothing else supports", "P1# S1", "# S"),
    // A wrong promotion. db2 was promoted by mistake.
    (
        "db2 is stopped: nothing changes",
        "P1# *P2.down S1",
        "# *P S<",
    ),
    ("db2 is a standby again", "P1# *S1 S1", "# *S S"),
    ("RESUME db1: db2 is forgotten", "P1 -.down S1", "*P - S"),
    ("RESUME db1 while db2 works", "P1 *P2 S1", "# *P S<"),
    ("db2 was drained before", "*P1 P2.drained S1", "*P - S"),
    (
        "and has a standby of its own",
        "*P1 P2.drained S2",
        "*# - S",
    ),
    // Equal timelines.
    ("the incumbent is up", "P1 *P1 S1", "# *P S"),
    ("the incumbent is first", "*P1 P1", "*P #"),
    (
        "the incumbent is down, one other",
        "*P1.down P1 S1",
        "# *P S",
    ),
    (
        "the incumbent is silent, one other",
        "*P1.silent P1",
        "# *P",
    ),
    (
        "the incumbent is down, two others",
        "*P1.down P1 P1",
        "*R R R",
    ),
    (
        "the incumbent is down, the other is fenced",
        "*P1.down P1#",
        "*P #",
    ),
    (
        "all are down, the incumbent stays",
        "P1.down *P1.down",
        "# *P",
    ),
    ("no incumbent", "P1 P1 S1", "R R S"),
    ("no incumbent, three", "P1 P1 P1", "R R R"),
    ("no incumbent, one is up", "P1.down P1", "# *P"),
    ("no incumbent, one is fenced", "P1 P1#", "*P #"),
    ("no incumbent, none is up", "P1.down P1.down", "R R"),
    ("and an older one", "P1 P2 P2", "# R R"),
    // Unknown timelines: logins tell the roles.
    ("a primary", "S? P? S?", "S *P S"),
    ("the first of two", "P? P? S?", "*P R S"),
    ("the first that is up", "P?.down P?", "R *P"),
    ("the incumbent", "P? *P?", "R *P"),
    ("the incumbent is down", "*P?.down P?", "# *P"),
    (
        "the incumbent is down, two others: the first",
        "*P?.down P? P?",
        "# *P R",
    ),
    ("the old one is back", "P?# *P?", "# *P"),
    ("the old one is back as a standby", "S?# *P?", "S *P"),
    (
        "one knows its own, the incumbent does not",
        "*P? P2",
        "*P R",
    ),
    ("one knows its own, the first does not", "P? P2", "*P R"),
    ("an unknown standby is not behind", "*P2 S?", "*P S"),
    ("nobody is behind of an unknown primary", "*P? S1", "*P S"),
    // A login tells of a promotion before the next check does.
    (
        "the old one may be up: the check decides",
        "*P1 P!a S1",
        "*P R S",
    ),
    ("the old one is away", "*P1.down P!a S1", "*P R S"),
    ("then the check has told", "*P1 P2 S1", "# *P S<"),
    ("of two without an incumbent", "P1 P!a", "R R"),
    // Another PostgreSQL.
    ("a standby of another system", "*P1 S1b", "*P S#"),
    (
        "another system with a higher timeline",
        "*P1 P9b S1",
        "*P # S",
    ),
    ("the incumbent after pg_upgrade", "*P1b S5 S5", "*Pb S# S#"),
    ("pg_upgrade undone", "*P5 S5# S5#", "*P S S"),
    ("copied anew from it", "*P1b S1b# S5#", "*Pb S S#"),
    (
        "the incumbent is away: its system decides",
        "*-.down P1b S1",
        "*- # S",
    ),
    (
        "the incumbent has become a standby of another",
        "*S1b P1 S1b",
        "*Sb # S",
    ),
    (
        "a drained incumbent decides by what it showed",
        "*P1b.drained S5 S1b",
        "*- S S#",
    ),
    (
        "no incumbent: the primary's system decides",
        "S1 P1b S1b",
        "S# *Pb S",
    ),
    ("no incumbent, two systems", "P1 P1b S1", "R R S"),
    (
        "and two timelines, which say nothing",
        "P1 P7b P7b",
        "R R R",
    ),
    (
        "no incumbent, and a fenced one decides, too",
        "P1 P1b# S1",
        "R # S",
    ),
    ("an unknown system is no other one", "*P1 S? P?", "*P S R"),
    // One host with two addresses.
    ("two addresses of the primary", "P1 =1 S1", "*P P S"),
    ("two addresses of a standby", "*P1 S1 =2", "*P S S"),
    ("the incumbent by its other address", "=2 *P1 P1", "P *P #"),
    ("one address is down", "*P1.down =1 P1", "*P P #"),
    ("a fence is around both", "P1# =1 *P2", "# # *P"),
];

/// Drained hosts, and what follows one upon another: lists with their verdicts. Incumbents and
/// fences of the first verdict hold in the next one.
const STORIES: [(&str, &[(&str, &str)]); 12] = [
    (
        "failover, and the old primary comes back",
        &[
            ("P1 S1 S1", "*P S S"),
            ("P1.down S1 S1", "*P S S"),
            ("P1.down P2 S1", "# *P S<"),
            ("P1.down P2 S2", "# *P S"),
            ("P1 P2 S2", "# *P S"),
            ("P1.down P2 S2", "# *P S"),
            ("S2 P2 S2", "S *P S"),
            ("P3 S2 S3", "*P S< S"),
        ],
    ),
    (
        "the primary is drained, and another promoted",
        &[
            ("*P1 S1", "*P S"),
            ("P1.drained S1", "*- S"),
            ("P1.drained P2", "- *P"),
            ("P1 P2", "# *P"),
            ("S2 P2", "S *P"),
        ],
    ),
    (
        "the primary is drained, and comes back",
        &[
            ("*P1 S1", "*P S"),
            ("P1.drained S1", "*- S"),
            ("P1 S1", "*P S"),
        ],
    ),
    (
        "a standby is drained, tried out, and copied anew",
        &[
            ("*P1 S1", "*P S"),
            ("P1 S1.drained", "*P S"),
            ("P1 P2.drained", "*P -"),
            ("P1 -.drained", "*P -"),
            ("P1 S1", "*P S"),
        ],
    ),
    (
        "everything is drained",
        &[
            ("*P1 S1", "*P S"),
            ("P1.drained S1.drained", "*- S"),
            ("P1 S1", "*P S"),
        ],
    ),
    (
        "pg_upgrade of both",
        &[
            ("P5 S5", "*P S"),
            ("P5.down S5.down", "*P S"),
            ("P1b S5.down", "*Pb S#"),
            ("P1b S1b", "*Pb S"),
            ("P1b.down P2b", "# *Pb"),
        ],
    ),
    (
        "a network that is split for a time",
        &[
            ("P1 S1 S1", "*P S S"),
            ("P1 P2.silent S1", "# *P S<"),
            ("P1 P2 S1", "# *P S<"),
            ("P1 P2.down S1", "# *P S<"),
        ],
    ),
    (
        "logins only",
        &[
            ("- P? -", "- *P -"),
            ("S? P? -", "S *P -"),
            ("S? P?.down -", "S *P -"),
            ("P? P?.down -", "*P # -"),
            ("P? P? S?", "*P # S"),
            ("P?.down P? S?", "*P # S"),
            ("P? S? S?", "*P S S"),
        ],
    ),
    (
        "the old primary's timeline was never known",
        &[
            ("P?.hidden S1 S1", "*P S S"),
            ("P?.hidden P2 S1", "*P R S"),
            ("P?.down P2 S2", "# *P S"),
            ("S2 P2 S2", "S *P S"),
        ],
    ),
    (
        "a new primary whose timeline is not known yet turns out to be none",
        &[
            ("P2 S2", "*P S"),
            ("P2 P?", "*P R"),
            ("P2.down P?", "R *P"),
            ("P2 P?", "R *P"),
            ("P2 P1", "*P #"),
        ],
    ),
    (
        "two primaries of unknown timelines: who was fenced stays so",
        &[
            ("P? S?", "*P S"),
            ("P?.down P?", "# *P"),
            ("P1 P?", "# *P"),
            ("P1 P?.down", "# *P"),
            ("P1 P2", "# *P"),
        ],
    ),
    (
        "two primaries, until one is stopped and rewound",
        &[
            ("P2 P2 S1", "R R S"),
            ("P2 P2.drained S2", "*P - S"),
            ("P2 S2 S2", "*P S S"),
        ],
    ),
];

/// One word of the notation.
struct Word {
    word: Option<LastWord>,
    is_incumbent: bool,
    is_up: bool,
    is_drained: bool,
    is_awaited: bool,
    fence: Option<Fence>,
}

fn timeline(text: &str) -> Option<u32> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Reads a host, by its place in the list. `last_words` is what hosts before it have said.
fn read(at: usize, text: &str, last_words: &[Option<LastWord>]) -> Word {
    let is_incumbent = text.starts_with('*');
    let (said, fence) = match text.trim_start_matches('*').split_once('#') {
        Some((said, fence)) => (said, Some(fence)),
        None => (text.trim_start_matches('*'), None),
    };
    let (said, state) = said.split_once('.').unwrap_or((said, ""));
    let word = match said.as_bytes() {
        [b'-'] => None,
        [b'=', digit] => last_words[usize::from(digit - b'1')].clone(),
        [role, known, system @ ..] => {
            let is_known = known.is_ascii_digit() || !system.is_empty();
            let system = system.first().unwrap_or(&b'a');
            let report = HostReport {
                in_recovery: *role == b'S',
                started: is_known.then(|| format!("start of {at}")),
                system: is_known.then_some(u64::from(*system)),
                timeline: timeline(&said[1..]),
                ..HostReport::default()
            };
            let in_doubt = *known == b'!';
            Some(LastWord { report, in_doubt })
        }
        _ => panic!("{text}"),
    };
    let now = word.as_ref().and_then(|word| word.report.timeline);
    let fence = fence.map(|since| Fence {
        timeline: if since.is_empty() {
            now
        } else {
            timeline(since)
        },
        why: "earlier".into(),
    });
    let states = ["", "down", "silent", "drained", "hidden"];
    assert!(states.contains(&state), "{text}");
    Word {
        is_awaited: word.is_none() && state.is_empty(),
        word,
        is_incumbent,
        is_up: !["down", "silent"].contains(&state),
        is_drained: state == "drained",
        fence,
    }
}

/// Judges a list, after an earlier verdict or with the precedent that the list itself tells.
fn judged(list: &str, before: Option<&Precedent>) -> (String, Precedent) {
    let (mut words, mut last_words) = (Vec::new(), Vec::new());
    let texts: Vec<&str> = list.split(' ').collect();
    // An address may stand before the one that it equals.
    for _ in 0..2 {
        (words, last_words) = texts.iter().enumerate().fold(
            (Vec::new(), last_words),
            |(mut words, mut known): (Vec<Word>, Vec<Option<LastWord>>), (at, text)| {
                known.resize(texts.len(), None);
                let word = read(at, text, &known);
                known[at] = word.word.clone();
                words.push(word);
                (words, known)
            },
        );
    }
    let names: Vec<HostPort> = (1..=words.len())
        .map(|at| HostPort {
            host: Host::Name(format!("db{at}")),
            port: 5432,
        })
        .collect();
    let systems = last_words.iter().flatten();
    let is_any_known = systems.clone().any(|word| word.report.system.is_some());
    let incumbent = words.iter().position(|word| word.is_incumbent);
    let told = Precedent {
        incumbent,
        system: incumbent.filter(|_| is_any_known).map(|_| u64::from(b'a')),
        fences: words.iter().map(|word| word.fence.clone()).collect(),
    };
    let hosts: Vec<Contestant<'_>> = { words.iter().zip(&names) }
        .map(|(word, host)| Contestant {
            host,
            word: word.word.as_ref(),
            is_up: word.is_up,
            is_drained: word.is_drained,
            is_awaited: word.is_awaited,
        })
        .collect();
    let judgement = judge(&hosts, before.unwrap_or(&told));
    let again = judge(&hosts, &judgement.precedent);
    assert_eq!(again.precedent, judgement.precedent, "{list}, twice");
    assert_eq!(again.rulings, judgement.rulings, "{list}, twice");
    (shown(&judgement), judgement.precedent)
}

fn shown(judgement: &Judgement) -> String {
    let precedent = &judgement.precedent;
    let shown = judgement.rulings.iter().enumerate().map(|(at, ruling)| {
        let is_incumbent = precedent.incumbent == Some(at);
        let is_fenced = precedent.fences[at].is_some();
        let other_system = precedent.system.filter(|system| *system != u64::from(b'a'));
        let system = other_system.filter(|_| is_incumbent);
        let role = match ruling.role {
            Some(Role::Primary) => "P",
            Some(Role::Standby) => "S",
            Some(Role::Rival) => "R",
            None if is_fenced => "",
            None => "-",
        };
        format!(
            "{}{role}{}{}{}",
            if is_incumbent { "*" } else { "" },
            system.map_or(String::new(), |system| char::from(system as u8).into()),
            if ruling.behind { "<" } else { "" },
            if is_fenced { "#" } else { "" },
        )
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_table() {
    let wrong = TABLE.iter().filter_map(|(what, list, after)| {
        let (verdict, _) = judged(list, None);
        (verdict != *after).then(|| format!("{what}: {list} -> {verdict}, not {after}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_stories() {
    for (what, steps) in STORIES {
        let mut precedent = None;
        for (list, after) in steps {
            let (verdict, next) = judged(list, precedent.as_ref());
            assert_eq!(verdict, *after, "{what}: {list}");
            precedent = Some(next);
        }
    }
}

#[test]
fn a_fence_says_why() {
    for (list, fenced, why) in [
        ("P1 *P2", 0, "takes writes on timeline 1, db2:5432 is on 2"),
        ("*P1 P1", 1, "takes writes, and db1:5432 is the primary"),
        ("*P1 S1b", 1, "has another system identifier than db1:5432"),
    ] {
        let (_, precedent) = judged(list, None);
        let fence = precedent.fences[fenced].as_ref();
        assert_eq!(fence.map(|fence| &*fence.why), Some(why), "{list}");
    }
}
