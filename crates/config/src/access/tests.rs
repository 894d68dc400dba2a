//! Rules and maps, by tables of lines.

use super::*;
use crate::{Address, CONSOLE_NAMES};

/// Reads rules and maps. There are three files of names: `@names` (`one, two`, a comment, `"all"`),
/// `@deep`, which names `@names` from another folder, and `@circle`, which names itself.
fn read(rules: &str, maps: &str) -> (Hba, Findings) {
    let globals = Globals {
        auth_hba_file: "etc/hba.conf".into(),
        auth_ident_file: Some("etc/ident.conf".into()),
        ..Globals::default()
    };
    let mut findings = Findings::default();
    let mut read_file = |path: &str| match path {
        "etc/hba.conf" => Ok(rules.to_owned()),
        "etc/ident.conf" => Ok(maps.to_owned()),
        "etc/names" => Ok("one, two\n\n# none\n\"all\" three # and no more\n".into()),
        "etc/sub/deep" => Ok("four\n@../names".into()),
        "etc/sub/../names" => Ok("five".into()),
        "etc/circle" => Ok("@circle".into()),
        "etc/open" => Ok("a\n\"b".into()),
        "etc/marked" => Ok("\u{feff}one".into()),
        "etc/latin" => Ok("a\u{fffd}b # j\u{fffd}rgen".into()),
        "/else/where" => Ok("six".into()),
        _ => Err(format!("no {path}")),
    };
    let hba = load(&globals, &mut read_file, &mut findings);
    (hba, findings)
}

/// The line that matches a client. `from` is `unix` or an address; `tls` and `repl` may follow
/// after a blank.
fn answer(hba: &Hba, database: &str, user: &str, from: &str) -> Option<u32> {
    let mut words = from.split(' ');
    let remote = match words.next() {
        Some("unix") => Address::Unix("/tmp/.s.PGSQL.6432".into(), 6432),
        address => Address::Tcp(address.unwrap().parse().unwrap(), 4000),
    };
    let rule = hba.find(&Candidate {
        remote: &remote,
        tls: from.contains("tls"),
        physical_replication: from.contains("repl"),
        database,
        user,
    });
    rule.map(|rule| rule.line)
}

/// Checks which line matches `database user from`; 0 means none.
fn check(rules: &str, cases: &[(&str, &str, &str, u32)]) {
    let (hba, findings) = read(rules, "");
    assert!(findings.unreadable.is_empty(), "{:?}", findings.unreadable);
    for &(database, user, from, line) in cases {
        let seen = answer(&hba, database, user, from).unwrap_or(0);
        assert_eq!(seen, line, "{database} {user} {from}");
    }
}

#[test]
fn the_first_line_that_fits_counts() {
    check(
        "# a comment\nlocal all all trust\nhost sales ann 10.1.0.0/16 reject\n\n\
         host sales all 10.0.0.0/8 md5\nhost all all all scram-sha-256",
        &[
            ("sales", "ann", "unix", 2),
            ("sales", "ann", "10.1.2.3", 3),
            ("sales", "ann", "10.2.2.3", 5),
            ("sales", "bob", "10.1.2.3", 5),
            ("stock", "ann", "10.1.2.3", 6),
            ("sales", "ann", "fe80::1", 6),
        ],
    );
}

#[test]
fn kinds_of_connections() {
    check(
        "hostssl a all all trust\nhostnossl b all all trust\nhost c all all trust",
        &[
            ("a", "u", "10.0.0.1", 0),
            ("a", "u", "10.0.0.1 tls", 1),
            ("b", "u", "::1 tls", 0),
            ("b", "u", "::1", 2),
            ("c", "u", "::1", 3),
            ("c", "u", "::1 tls", 3),
            ("c", "u", "unix", 0),
        ],
    );
}

#[test]
fn lists_of_names() {
    check(
        "local a,\"b c\" , d u,v trust\nlocal \"all\" u trust\nlocal sameuser all trust\n\
         local all sameuser trust\nlocal all replication trust\nlocal @names w trust\n\
         local @sub/deep x trust\nlocal @/else/where,@names y trust",
        &[
            ("a", "v", "unix", 1),
            ("b c", "u", "unix", 1),
            ("d", "u", "unix", 1),
            ("all", "u", "unix", 2),
            ("e", "u", "unix", 0),
            ("all", "v", "unix", 0),
            ("v", "v", "unix", 3),
            ("e", "sameuser", "unix", 4),
            ("e", "replication", "unix", 5),
            ("one", "w", "unix", 6),
            ("three", "w", "unix", 6),
            ("all", "w", "unix", 6),
            ("four", "w", "unix", 0),
            ("four", "x", "unix", 7),
            ("five", "x", "unix", 7),
            ("one", "x", "unix", 0),
            ("six", "y", "unix", 8),
            ("two", "y", "unix", 8),
        ],
    );
}

#[test]
fn addresses() {
    check(
        "host a all 10.0.0.0/8 trust\nhost a all 11.0.0.0 255.0.0.0 trust\n\
         host a all 12.0.0.1/32 trust\nhost b all 0.0.0.0/0 trust\nhost c all ::/0 trust\n\
         host d all 2001:db8::/33 trust\nhost d all ::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
         trust\nhost e all 128.0.0.0/1 trust\nhost f all 10.1.2.3/8 trust\nhost f all 11.1.2.3 \
         255.255.0.0 trust\nhost f all 2001:db8::1/32 trust",
        &[
            ("a", "u", "10.255.0.1", 1),
            ("a", "u", "11.0.0.9", 2),
            ("a", "u", "12.0.0.1", 3),
            ("a", "u", "12.0.0.2", 0),
            ("a", "u", "::1", 0),
            ("b", "u", "1.2.3.4", 4),
            ("b", "u", "::1", 0),
            ("c", "u", "1.2.3.4", 0),
            ("c", "u", "fe80::", 5),
            ("d", "u", "2001:db8:7fff::1", 6),
            ("d", "u", "2001:db8:8000::1", 0),
            ("d", "u", "::1", 7),
            ("e", "u", "200.0.0.1", 8),
            ("e", "u", "100.0.0.1", 0),
            // Bits that the mask leaves open are ignored.
            ("f", "u", "10.9.9.9", 9),
            ("f", "u", "11.1.9.9", 10),
            ("f", "u", "11.2.2.3", 0),
            ("f", "u", "2001:db8:9::9", 11),
        ],
    );
}

#[test]
fn physical_replication_has_a_word_of_its_own() {
    check(
        "local all all trust\nlocal replication rep trust\nlocal \"replication\" odd trust",
        &[
            ("replication", "rep", "unix repl", 2),
            ("x", "rep", "unix repl", 2),
            ("x", "odd", "unix repl", 0),
            ("x", "other", "unix repl", 0),
            ("replication", "odd", "unix", 1),
        ],
    );
}

#[test]
fn methods() {
    for (word, method) in METHODS_SEEN {
        let (hba, findings) = read(&format!("\tlocal\tall\tall\t{word}\r\n"), "");
        assert!(findings.unreadable.is_empty());
        let remote = Address::Unix("/s".into(), 1);
        let rule = hba.find(&Candidate {
            remote: &remote,
            tls: false,
            physical_replication: false,
            database: "d",
            user: "u",
        });
        assert_eq!(rule.map(|rule| rule.method), Some(*method), "{word}");
    }
}

const METHODS_SEEN: &[(&str, HbaMethod)] = &[
    ("trust", HbaMethod::Trust),
    ("reject", HbaMethod::Reject),
    ("md5", HbaMethod::Md5),
    ("password", HbaMethod::Password),
    ("scram-sha-256", HbaMethod::ScramSha256),
    ("peer", HbaMethod::Peer),
    ("cert", HbaMethod::Cert),
    (
        "ldap ldapserver=x ldapprefix=\"a b\" # here",
        HbaMethod::Ldap,
    ),
    (
        "ldap \"ldapserver\"=x ,ldapbasedn=\"dc=a,dc=b\"",
        HbaMethod::Ldap,
    ),
    ("pam", HbaMethod::Pam),
    ("pam pamservice=x # here", HbaMethod::Pam),
];

/// Malformed lines, each with a part of its error.
const BROKEN: &[(&str, &str)] = &[
    ("locale all all trust", "unknown type locale"),
    ("\"local\" all all trust", "unknown type"),
    ("LOCAL all all trust", "unknown type LOCAL"),
    ("hostgssenc all all all trust", "unknown type hostgssenc"),
    ("include other.conf", "unknown type include"),
    ("local", "a database is missing"),
    ("local a, , b u trust", "a database is missing"),
    ("local all", "a user is missing"),
    ("local all \"open trust", "a quote is not closed"),
    ("local all j\u{fffd}rgen reject", "not UTF-8"),
    ("local @latin all reject", "not UTF-8, in etc/latin:1"),
    ("local all all", "no method"),
    ("local all all \"trust\"", "no method"),
    ("local all all plain", "write password"),
    ("local all all ldap", "requires argument"),
    (
        "local all all ldap ldapserver=a ldapbasedn=x ldapprefix=y",
        "cannot mix",
    ),
    (
        "local all all ldap ldapserver=a ldapbasedn=x red=1",
        "invalid LDAP option",
    ),
    ("local all all pam map=m", "unsupported parameter map=m"),
    (
        "local all all pam pamservice=../x",
        "no name of a PAM service",
    ),
    ("local all all pam pamservice=", "no name of a PAM service"),
    ("local all all pam pamservice=a b", "unsupported parameters"),
    ("local all all ident", "unsupported method ident"),
    (
        "local all all 10.0.0.0/8 trust",
        "unsupported method 10.0.0.0/8",
    ),
    ("local samerole all trust", "samerole is not supported"),
    ("local a,samegroup all trust", "samegroup is not supported"),
    ("local all +staff trust", "+staff: members of a role"),
    (
        "local all @missing trust",
        "could not open etc/missing: no etc/missing",
    ),
    ("local all @ trust", "@ names no file"),
    ("local @circle all trust", "one file too many"),
    (
        "local @open all trust",
        "a quote is not closed, in etc/open:2",
    ),
    ("host all all trust", "failed to parse address trust"),
    ("host all all", "did not find address"),
    ("host all all \"10.0.0.0/8\" trust", "did not find address"),
    (
        "host all all samenet trust",
        "samehost and samenet are not supported",
    ),
    ("host all all db.example.org trust", "host names"),
    ("host all all 10.0.0.1 trust", "invalid mask trust"),
    ("host all all 10.0.0.1", "did not find mask"),
    ("host all all 10.0.0.0/33 trust", "invalid mask 33"),
    ("host all all 10.0.0.0/ trust", "invalid mask"),
    ("host all all 10.0.0.0/+8 trust", "invalid mask +8"),
    ("host all all ::/129 trust", "invalid mask 129"),
    ("host all all 10.0.0.0 ffff:: trust", "of one kind"),
    (
        "host all all 10.0.0/8 trust",
        "failed to parse address 10.0.0/8",
    ),
    ("local all all trust x", "unsupported parameter x"),
    (
        "local all all peer map=other",
        "there is no ident map other",
    ),
    ("local all all peer map=m x", "unsupported parameter x"),
    ("host all all all md5 map=m", "map= has no name to map here"),
    (
        "hostssl all all all trust clientcert=verify-ca map=m",
        "map= has no name to map here",
    ),
    (
        "host all all all md5 clientname=DN",
        "clientname= needs a certificate",
    ),
    (
        "hostssl all all all md5 clientcert=1",
        "invalid clientcert=1",
    ),
    (
        "hostssl all all all md5 clientcert=no-verify",
        "invalid clientcert",
    ),
    (
        "hostssl all all all cert clientname=cn",
        "invalid clientname=cn",
    ),
    (
        "host all all all md5 clientcert=verify-ca",
        "clientcert needs TLS",
    ),
    (
        "hostnossl all all all md5 clientcert=verify-full",
        "clientcert needs TLS",
    ),
    (
        "local all all peer clientcert=verify-full",
        "clientcert needs TLS",
    ),
    (
        "hostssl all all all cert clientcert=verify-ca",
        "clientcert=verify-ca is less than cert asks for",
    ),
    ("local all all peer map=\"m\"", "there is no ident map "),
    ("local all all trust,", "unsupported parameters"),
    ("local /^a all reject", "regular expressions"),
    ("local all b,/^a reject", "regular expressions"),
    (
        "host all all 10.0.0.0/8 \\\n reject",
        "continued lines are not supported",
    ),
    (
        "local @marked all reject",
        "a byte-order mark, in etc/marked:1",
    ),
];

#[test]
fn a_line_that_cannot_be_read_is_named_with_a_remedy() {
    for (line, said) in BROKEN {
        let text = format!("# before\n{line}\nlocal all all reject");
        let (_, findings) = read(&text, "m a b");
        let [mistake, behind @ ..] = &findings.unreadable[..] else {
            panic!("{line}: nothing is wrong")
        };
        assert_eq!(behind.len(), line.lines().count() - 1, "{line}");
        let shown = mistake.to_string();
        let begins = "could not parse hba config line 2: ";
        assert!(shown.starts_with(begins) && shown.contains(said), "{shown}");
        assert!(shown.contains("(etc/hba.conf:2)"), "{shown}");
        assert!(!mistake.remedy.is_empty());
    }
}

#[test]
fn a_byte_order_mark_is_named() {
    let (_, findings) = read("\u{feff}local all all reject\nlocal all all trust", "");
    assert!(findings.unreadable[0].text.contains("byte-order mark"));
    let (_, findings) = read("local all all peer map=m", "\u{feff}m a b");
    assert!(findings.unreadable[0].text.contains("byte-order mark"));
}

#[test]
fn a_rule_for_one_name_of_the_console_holds_for_both() {
    for name in CONSOLE_NAMES {
        check(
            &format!("host {name} all all reject\nhost all all all trust"),
            &[
                ("pgbouncer", "u", "10.0.0.1", 1),
                ("howdah", "u", "10.0.0.1", 1),
                ("d", "u", "10.0.0.1", 2),
            ],
        );
    }
    check(
        "host sameuser all all reject\nhost howdah all all md5\nhost pgbouncer all all trust",
        &[
            ("howdah", "pgbouncer", "10.0.0.1", 1),
            ("pgbouncer", "pgbouncer", "10.0.0.1", 1),
            ("pgbouncer", "u", "10.0.0.1", 2),
        ],
    );
}

#[test]
fn what_needs_tls_is_said_once_without_it() {
    let rules = "hostssl a a all md5\nhostssl b a all md5\nlocal all all pam\n\
                 host all all all cert\nhostssl all all all cert";
    let (hba, findings) = read(rules, "");
    assert_eq!((hba.len(), findings.idle.len()), (5, 2));
    assert!(findings.unreadable.is_empty() && findings.doubtful.is_empty());
}

#[test]
fn what_rules_want_of_certificates() {
    use ClientCert::{VerifyCa, VerifyFull};
    use ClientName::{Any, CommonName, DistinguishedName};
    for (options, wanted) in [
        ("md5", (None, Any)),
        ("md5 clientcert=verify-ca", (Some(VerifyCa), CommonName)),
        (
            "trust clientcert=verify-full",
            (Some(VerifyFull), CommonName),
        ),
        (
            "md5 clientname=DN clientcert=verify-full",
            (Some(VerifyFull), DistinguishedName),
        ),
        ("cert", (Some(VerifyFull), Any)),
        ("cert map=m", (Some(VerifyFull), Any)),
        ("cert clientname=CN map=m", (Some(VerifyFull), CommonName)),
        ("cert clientcert=verify-full", (Some(VerifyFull), Any)),
    ] {
        let (hba, findings) = read(&format!("hostssl all all all {options}"), "m a b");
        assert!(findings.unreadable.is_empty(), "{:?}", findings.unreadable);
        let rule = hba.find(&Candidate {
            remote: &Address::Tcp([10, 0, 0, 1].into(), 1),
            tls: true,
            physical_replication: false,
            database: "d",
            user: "u",
        });
        let rule = rule.expect(options);
        assert_eq!((rule.client_cert, rule.client_name), wanted, "{options}");
        assert_eq!(rule.map.is_some(), options.contains("map="), "{options}");
    }
}

#[test]
fn maps() {
    let maps = "# map system user\nm root admin\nm \"the one\" all\nother root all\nm root ann\n\
                m bob \"all\"";
    let (hba, findings) = read("local all all peer map=m", maps);
    assert!(findings.unreadable.is_empty());
    let remote = Address::Unix("/s".into(), 1);
    let candidate = Candidate {
        remote: &remote,
        tls: false,
        physical_replication: false,
        database: "d",
        user: "u",
    };
    let map = hba
        .find(&candidate)
        .and_then(|rule| rule.map.clone())
        .unwrap();
    for (system, user, allowed) in [
        ("root", "admin", true),
        ("root", "ann", true),
        ("root", "bob", false),
        ("root", "root", false),
        ("the one", "whoever", true),
        ("bob", "all", true),
        ("bob", "bob", false),
        ("Root", "admin", false),
    ] {
        assert_eq!(map.allows(system, user), allowed, "{system} {user}");
    }
}

#[test]
fn broken_maps_are_left_out() {
    for (line, said) in [
        ("\"m\" a b", "map's name"),
        ("m j\u{fffd}rgen a", "not UTF-8"),
        ("m", "no system user"),
        ("m a", "no database user"),
        ("m a,b", "no database user"),
        ("m a b c", "something follows"),
        ("m a all b", "something follows"),
        ("m a \"b", "a quote is not closed"),
    ] {
        let (hba, findings) = read("local all all peer map=m", &format!("\n{line}\nm ok ok"));
        let said_of = findings.unreadable[0].to_string();
        let begins = "could not parse ident config line 2: ";
        assert!(
            said_of.starts_with(begins) && said_of.contains(said),
            "{said_of}"
        );
        assert!(said_of.contains("(etc/ident.conf:2)"));
        assert_eq!((hba.len(), findings.unreadable.len()), (1, 1));
    }
    for line in ["m /^(.*)@x$ \\1", "m a /^b", "m a +staff"] {
        let (_, findings) = read("local all all peer map=m", line);
        assert!(findings.unreadable.is_empty());
        assert!(
            findings.doubtful[0].text.contains("not supported"),
            "{line}"
        );
    }
}

#[test]
fn missing_files() {
    let mut findings = Findings::default();
    let none = &mut |path: &str| Err(format!("no {path}"));
    let hba = load(&Globals::default(), none, &mut findings);
    assert_eq!(hba.len(), 0);
    assert!(findings.unreadable[0].text.contains("auth_hba_file"));
    let globals = Globals {
        auth_hba_file: "h".into(),
        auth_ident_file: Some("i".into()),
        ..Globals::default()
    };
    let mut findings = Findings::default();
    load(&globals, none, &mut findings);
    let texts: Vec<_> = findings.unreadable.iter().map(|m| &*m.text).collect();
    assert_eq!(
        texts,
        [
            "could not open ident config file i: no i",
            "could not open hba config file h: no h"
        ]
    );
}
