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

fn search(text: &str) -> (String, SearchScope, String) {
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

fn hosts(options: &LdapOptions) -> Vec<&str> {
    options.servers.iter().map(|s| s.host.as_str()).collect()
}

#[test]
fn a_simple_bind() {
    let options = good("ldapserver=a ldapprefix=\"uid=\" ldapsuffix=\",dc=x\"");
    assert_eq!(options.servers[0].port, 389);
    assert_eq!(options.bind.simple_name("ann").unwrap(), "uid=ann,dc=x");
    let many = good(" ldapserver=\"a [::1]  b\",ldapport=7 , ldapsuffix=@x ldapscheme=ldaps");
    assert_eq!(hosts(&many), ["a", "::1", "b"]);
    assert!(many.servers.iter().all(|server| server.port == 7));
    assert_eq!(many.scheme, LdapScheme::Ldaps);
    assert!(!many.wants_tls_twice());
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
    let sub = |base: &str, filter: &str| (base.to_owned(), SearchScope::Sub, filter.to_owned());
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
        ("dc=x y".into(), SearchScope::One, "(cn=ann)".into())
    );
    assert_eq!(search("ldapurl=ldap://h/dc=x").1, SearchScope::Base);
    assert_eq!(search("ldapurl=ldap://h/?sAMAccountName?sub").0, "");
    let url = good("ldapurl=ldap://[::1]:12/dc=x");
    assert_eq!(
        (url.servers[0].host.as_str(), url.servers[0].port),
        ("::1", 12)
    );
    // A later option replaces the value from a URL.
    let replaced = good("ldapurl=ldap://h/dc=x ldapserver=i");
    assert_eq!(hosts(&replaced), ["i"]);
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
    for text in [
        "ldapserver=a ldapbindpasswd=hush ldapbasedn=x",
        "ldapserver=a, \"ldapbindpasswd\"=\"hush\"\"hush\" ldapbasedn=x",
        "ldapserver=a \"ldapbindpasswd=hush\" ldapbasedn=x",
    ] {
        let text = LdapText::new(text);
        assert_eq!(
            text.masked(),
            "ldapserver=\"a\" ldapbindpasswd=*** ldapbasedn=\"x\""
        );
        assert!(!format!("{text:?}").contains("hush"));
    }
    for text in [
        "ldapbindpasswd=\"hush ldapserver=a",
        "ldapbindpasswd=a hush",
        "ldapbindpasswd=a,hush=",
        "ldapbindpasswd=a,hush=b ldapserver=a",
        "ldapbindpasswd=a hush=b,c=",
        "ldapbindpasswd = hush",
    ] {
        assert!(!bad(text).contains("hush"), "{text}: {}", bad(text));
    }
    assert_eq!(LdapText::new("ldapbindpasswd=\"hush").masked(), "***");
    assert_eq!(
        LdapText::new("ldapserver=a  # b").masked(),
        "ldapserver=a  # b"
    );
}

#[test]
fn filters_are_written_as_the_standard_has_them() {
    for (text, canonical) in [
        ("(a=b)", "(a=b)"),
        (" a=b ", "(a=b)"),
        ("(a=)", "(a=)"),
        ("(a=*)", "(a=*)"),
        ("(a=b*)", "(a=b*)"),
        ("(a=*b)", "(a=*b)"),
        ("(a=b*c**d)", "(a=b*c*d)"),
        ("( a >=b)", "(a>=b)"),
        ("(a<= b )", "(a<= b )"),
        ("(a~=b)", "(a~=b)"),
        ("(! (a=*) )", "(!(a=*))"),
        ("( & (a=*) (b=*) )", "(&(a=*)(b=*))"),
        ("(|(a=*)(!(b=*)))", "(|(a=*)(!(b=*)))"),
        ("(&)", "(&)"),
        ("(a=\\2a\\29 jürgen)", "(a=\\2a\\29 jürgen)"),
        ("(a=\0)", "(a=\\00)"),
        ("(cn;lang-de;x=b)", "(cn;lang-de;x=b)"),
        ("(2.5.4.3=b)", "(2.5.4.3=b)"),
        ("(a:DN:2.4:=b)", "(a:dn:2.4:=b)"),
        ("(:r:=b)", "(:r:=b)"),
    ] {
        assert_eq!(filter::canonical(text), Ok(canonical.to_owned()), "{text}");
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
        "(a=\\2ü)",
        "(a=\\+1)",
        "(a=**)",
        "(a>=*)",
        "a=b)",
        "(=b)",
        "(a b=c)",
        "(a_b=c)",
        "(1a=c)",
        "(01.2=c)",
        "(a;=c)",
        "(:=b)",
        "(a:b:c:=b)",
        "(&a=b)",
        "x=(b)",
        &deep,
    ] {
        assert!(filter::canonical(text).is_err(), "{text}");
    }
}
