//! The fuzz body of the rule files: takes any bytes, and panics if a promise is broken. The target in `fuzz/`
//! is one line; the unit test below runs the same function.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::tokens::{RuleToken, split};
use super::{Candidate, Findings, hba, ident};
use crate::Address;

/// The line between the ident map and the rules.
const PART: &str = "\n---\n";

/// Any text is read. Each line with a word is a rule or a mistake, never both, and has its own line
/// number. Every client gets a verdict. Words that are written in quotes are read unchanged.
pub fn access_files(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (maps, rules) = text.split_once(PART).unwrap_or(("", &text));
    let mut findings = Findings::default();
    let maps = ident::parse("ident", maps, &mut findings);
    let wrong_in_maps = findings.unreadable.len();
    // A file of names is some part of the input, perhaps the whole input.
    let mut read_file = |path: &str| match path.len() % 3 {
        0 => Err("no such file".to_owned()),
        _ => Ok(text.chars().skip(path.len()).collect()),
    };
    let hba = hba::parse("hba", rules, true, &maps, &mut read_file, &mut findings);
    let worded = |line: &&str| !split(line).is_ok_and(|tokens| tokens.is_empty());
    let lines = rules.lines().filter(worded).count();
    let wrong = findings.unreadable.len() - wrong_in_maps;
    assert_eq!(hba.len() + wrong, lines, "each line is a rule or a mistake");
    for mistake in findings.unreadable.iter().chain(&findings.doubtful) {
        let place = mistake.place.as_ref().expect("a mistake is in a line");
        assert!(place.line >= 1 && !mistake.text.is_empty() && !mistake.remedy.is_empty());
    }
    for remote in [
        Address::Unix("/s".into(), 1),
        Address::Tcp(IpAddr::V4(Ipv4Addr::LOCALHOST), 1),
        Address::Tcp(IpAddr::V6(Ipv6Addr::LOCALHOST), 1),
    ] {
        for physical_replication in [false, true] {
            let rule = hba.find(&Candidate {
                remote: &remote,
                tls: false,
                physical_replication,
                database: "db",
                user: "user",
            });
            let line = rule.map_or(1, |rule| rule.line as usize);
            assert!((1..=rules.lines().count().max(1)).contains(&line));
            if let Some(map) = rule.and_then(|rule| rule.map.as_ref()) {
                let _ = map.allows("system", "user");
            }
        }
    }
    for line in text.lines() {
        let Ok(tokens) = split(line) else { continue };
        assert_eq!(split(&written(&tokens)), Ok(tokens));
    }
}

/// Writes these tokens as a line.
fn written(tokens: &[RuleToken]) -> String {
    let words = tokens.iter().map(|token| match token {
        RuleToken::Word(word) => word.clone(),
        RuleToken::Quoted(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        RuleToken::Comma => ",".into(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Seeds that lead deep: lines as people write them.
    const SEEDS: &[&str] = &[
        "m root db\nm \"x y\" all\nm /^(.*)@x$ \\1\n---\nlocal all all peer map=m\n",
        "host a,\"b c\",@f all 10.0.0.0/8 md5 # c\nhostssl all all ::1/128 cert map=m",
        "hostnossl sameuser +r 10.0.0.1 255.255.255.255 scram-sha-256\nlocal replication u reject",
        "host samerole,all all samehost trust\nhost all all 0.0.0.0/33 password x=y\n\"local\" a b",
        "host @f2,@f3 u all ldap ldapurl=\"ldap://x\"\nlocal",
    ];

    #[test]
    fn seeds_and_their_prefixes() {
        for seed in SEEDS {
            for end in 0..=seed.len() {
                access_files(&seed.as_bytes()[..end]);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes(input: Vec<u8>) {
            access_files(&input);
        }

        #[test]
        fn seeds_with_changes(
            seed in 0..SEEDS.len(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut input = SEEDS[seed].as_bytes().to_vec();
            for (at, byte) in changes {
                let at = at.index(input.len());
                input[at] = byte;
            }
            access_files(&input);
        }
    }
}
