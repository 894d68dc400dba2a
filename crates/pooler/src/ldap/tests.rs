use super::message::{Outcome, Reply, read};
use super::*;

fn good(text: &str) -> LdapOptions {
    LdapOptions::parse(text).unwrap_or_else(|(why, _)| panic!("{text}: {why}"))
}

fn bad(text: &str) -> String {
    match LdapOptions::parse(text) {
        Err((why, remedy)) => format!("{why}: {remedy}"),
        Ok(options) => panic!("{text}: {options:?}"),
    }
}

fn search(text: &str) -> (String, Scope, String) {
    match good(text).bind {
        LdapBind::Search {
            base,
            scope,
            pattern,
            ..
        } => (base, scope, pattern.filter("ann")),
        simple => panic!("{simple:?}"),
    }
}

#[test]
fn a_simple_bind() {
    let options = good("ldapserver=a ldapprefix=\"uid=\" ldapsuffix=\",dc=x\"");
    assert_eq!(options.servers[0].port, 389);
    assert_eq!(options.bind.simple_name("ann").unwrap(), "uid=ann,dc=x");
    let many = good(" ldapserver=\"a [::1]  b\",ldapport=7 , ldapsuffix=@x ldapscheme=ldaps");
    assert_eq!(many.server_names(), "a ::1 b");
    assert!(many.servers.iter().all(|server| server.port == 7));
    assert!(many.wants_tls() && !many.wants_tls_twice());
    assert_eq!(many.bind.simple_name("a+b,c").unwrap(), "a+b,c@x");
    let url = good("ldapurl=ldaps://h ldapprefix=cn= ldaptls=1");
    assert_eq!((url.servers[0].port, url.wants_tls_twice()), (636, true));
}

#[test]
fn no_name_is_elsewhere_in_the_tree() {
    let options = good("ldapserver=a ldapprefix=\"uid=\" ldapsuffix=\",dc=x\"");
    for (user, name) in [
        ("a,ou=b", "uid=a\\,ou\\=b,dc=x"),
        ("a+cn=b", "uid=a\\+cn\\=b,dc=x"),
        (" # ", "uid=\\ #\\ ,dc=x"),
        ("#a\\\"<>;", "uid=\\#a\\\\\\\"\\<\\>\\;,dc=x"),
        ("a\nb", "uid=a\\0ab,dc=x"),
        ("jürgen", "uid=jürgen,dc=x"),
    ] {
        assert_eq!(options.bind.simple_name(user).unwrap(), name);
    }
}

#[test]
fn searches() {
    let sub = |base: &str, filter: &str| (base.to_owned(), Scope::Sub, filter.to_owned());
    assert_eq!(
        search("ldapserver=a ldapbasedn=\"dc=x, dc=y\""),
        sub("dc=x, dc=y", "(uid=ann)")
    );
    assert_eq!(
        search("ldapserver=a \"ldapbasedn\"=dc=x ,ldapsearchattribute=mail # done"),
        sub("dc=x", "(mail=ann)")
    );
    assert_eq!(
        search("ldapserver=a ldapbasedn=dc=x ldapsearchfilter=\"uid=$username\""),
        sub("dc=x", "uid=ann")
    );
    assert_eq!(
        search("ldapurl=\"ldap://[::1]:12/dc=x,dc=y??sub?(|(uid=$username)(mail=$username))\""),
        sub("dc=x,dc=y", "(|(uid=ann)(mail=ann))")
    );
    assert_eq!(
        search("\"ldapurl=ldap://h/dc%3dx%20y?cn,sn?one\""),
        ("dc=x y".into(), Scope::One, "(cn=ann)".into())
    );
    assert_eq!(search("ldapurl=ldap://h/dc=x").1, Scope::Base);
    assert_eq!(search("ldapurl=ldap://h/?sAMAccountName?sub").0, "");
    let url = good("ldapurl=ldap://[::1]:12/dc=x");
    assert_eq!(
        (url.servers[0].host.as_str(), url.servers[0].port),
        ("::1", 12)
    );
    // A later option replaces what a URL said.
    assert_eq!(
        good("ldapurl=ldap://h/dc=x ldapserver=i").server_names(),
        "i"
    );
    let pattern = Pattern::Attribute("uid".into());
    assert_eq!(pattern.filter("*)(uid=\\"), "(uid=\\2a\\29\\28uid=\\5c)");
}

#[test]
fn what_cannot_be_meant_is_told() {
    for (text, said) in [
        ("", "requires argument"),
        ("ldapserver=a", "requires argument"),
        ("ldapprefix=x", "no LDAP server"),
        ("ldapserver=a ldapprefix=x ldapbasedn=y", "cannot mix"),
        ("ldapserver=a ldapsuffix=x ldapbinddn=y", "cannot mix"),
        (
            "ldapserver=a ldapprefix=x ldapsearchfilter=(a=b)",
            "cannot mix",
        ),
        (
            "ldapserver=a ldapbasedn=x ldapsearchattribute=a ldapsearchfilter=(a=b)",
            "ldapsearchattribute together with",
        ),
        (
            "ldapserver=a ldapbasedn=x ldapsearchfilter=((a=b)",
            "invalid LDAP search filter",
        ),
        (
            "ldapserver=a ldapbasedn=x ldapsearchattribute=\"a b\"",
            "invalid LDAP search filter",
        ),
        (
            "ldapserver=a ldapbasedn=dc=x,dc=y",
            "invalid LDAP option: \"dc\"",
        ),
        (
            "ldapserver=a ldapbasedn=x colour=red",
            "invalid LDAP option: \"colour\"",
        ),
        ("ldapserver=a ldapbasedn=x ldaptls=yes", "write 0 or 1"),
        ("ldapserver=a ldapbasedn=x ldapscheme=http", "ldap or ldaps"),
        ("ldapserver=a ldapbasedn=x ldapport=0", "port number"),
        ("ldapserver=a ldapbasedn=x ldapport=65536", "port number"),
        ("ldapserver=a:389 ldapbasedn=x", "is no host"),
        ("ldapserver=a ldapbasedn = x", "no value"),
        ("ldapserver=a ldapbasedn= x", "no value"),
        ("ldapserver=a ldapbasedn=\"x", "a quote is not closed"),
        ("ldapserver=a junk", "no value"),
        ("ldapurl=http://a/dc=x", "unsupported LDAP URL scheme"),
        ("ldapurl=a/dc=x", "could not parse LDAP URL"),
        ("ldapurl=ldap://a/dc=x?uid?near", "no scope near"),
        ("ldapurl=ldap://a/dc%3", "percent"),
        ("ldapurl=ldap:///dc=x", "no LDAP server"),
    ] {
        assert!(bad(text).contains(said), "{text}: {}", bad(text));
    }
}

#[test]
fn the_search_password_is_not_shown() {
    let options = good("ldapserver=a ldapbasedn=x ldapbinddn=y ldapbindpasswd=hush");
    assert!(!format!("{options:?}").contains("hush"));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn filters_are_the_standards() {
    for (text, bytes) in [
        ("(a=b)", "a3060401610401 62"),
        ("a=b", "a3060401610401 62"),
        ("(a=)", "a30504016104 00"),
        ("(a=*)", "870161"),
        ("(a=b*)", "a408 040161 3003800162"),
        ("(a=*b)", "a408 040161 3003820162"),
        ("(a=b*c*d)", "a40e 040161 3009 800162 810163 820164"),
        ("(a>=b)", "a506 040161 040162"),
        ("(a<=b)", "a606 040161 040162"),
        ("(a~=b)", "a806 040161 040162"),
        ("(!(a=*))", "a203 870161"),
        ("( & (a=*) (b=*) )", "a006 870161 870162"),
        ("(|(a=*)(!(b=*)))", "a108 870161 a203 870162"),
        ("(&)", "a000"),
        ("(a=\\2a\\29)", "a307 040161 04022a29"),
        ("(a:dn:2.4:=b)", "a90e 8103322e34 820161 830162 8401ff"),
        ("(:r:=b)", "a906 810172 830162"),
    ] {
        let bytes = bytes.replace(' ', "");
        assert_eq!(filter::encode(text).map(|b| hex(&b)), Ok(bytes), "{text}");
    }
    let deep = format!("{}a=b{}", "(!".repeat(40) + "(", ")".repeat(41));
    for text in [
        "",
        "a",
        "(a=b",
        "(a=b))",
        "(a=b)c",
        "()",
        "(!)",
        "(!(a=b)(c=d))",
        "(a=\\2)",
        "(a=**)",
        "a=b)",
        "(=b)",
        "(a b=c)",
        "(:=b)",
        "(&a=b)",
        "x=(b)",
        &deep,
    ] {
        assert!(filter::encode(text).is_err(), "{text}");
    }
}

#[test]
fn requests_are_the_standards() {
    assert_eq!(
        hex(&message::bind(1, "cn=a", "pw")),
        "3012020101600d0201030404636e3d6180027077"
    );
    assert_eq!(
        hex(&message::start_tls(1)),
        "301d02010177188016312e332e362e312e342e312e313436362e3230303337"
    );
    assert_eq!(hex(&message::unbind(2)), "30050201024200");
    let search = message::search(2, "dc=x", Scope::Sub, "(a=b)").unwrap();
    assert_eq!(
        hex(&search),
        "30290201026324040464633d780a01020a01000201020201000101 00a30604016104016230050403312e31"
            .replace(' ', "")
    );
    let long = message::bind(1, &"x".repeat(300), "");
    assert_eq!(hex(&long[..4]), "3082013c");
}

#[test]
fn answers_are_read() {
    let bytes = |text: &str| -> Vec<u8> {
        let text = text.replace(' ', "");
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    };
    let outcome = |code, text: &str| Outcome {
        code,
        text: text.into(),
    };
    for (text, number, reply) in [
        (
            "300c 020101 6107 0a0100 0400 0400",
            1,
            Reply::Bound(outcome(0, "")),
        ),
        // With the long form of lengths, as some servers write it.
        (
            "308400000010 020102 618400000007 0a0131 0400 0400",
            2,
            Reply::Bound(outcome(49, "")),
        ),
        (
            "300e 020101 6109 0a0131 0400 0402 6869",
            1,
            Reply::Bound(outcome(49, "hi")),
        ),
        (
            "300d 020102 6408 0404 64633d78 3000",
            2,
            Reply::Entry("dc=x".into()),
        ),
        (
            "300c 020102 6507 0a0104 0400 0400",
            2,
            Reply::Searched(outcome(4, "")),
        ),
        ("3008 020102 7303 040161", 2, Reply::Reference),
        (
            "300c 020100 7807 0a0134 0400 0400",
            0,
            Reply::Extended(outcome(52, "")),
        ),
    ] {
        let whole = bytes(text);
        assert_eq!(
            read(&whole),
            Ok(Some((number, reply, whole.len()))),
            "{text}"
        );
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Ok(None), "{text} up to {end}");
        }
    }
    for text in [
        "48",
        "3080",
        "30850000000000",
        "308410000000",
        "3003 020101",
        "3005 020101 6100",
    ] {
        assert_eq!(read(&bytes(text)), Err(message::Malformed), "{text}");
    }
    assert_eq!(outcome(49, "").to_string(), "Invalid credentials");
    assert_eq!(outcome(49, "no").to_string(), "Invalid credentials (no)");
    assert_eq!(outcome(777, "").to_string(), "result code 777");
}
