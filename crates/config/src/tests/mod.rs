//! A complete configuration goes in; its meaning or its mistakes come out.

use std::time::Duration;

use super::*;

mod howdah_toml;
mod image;
mod shards;

const USERS: &str = "\"alice\" \"secret\"\n\"bob\" \"md50123456789abcdef0123456789abcdef\"\n";

fn files(name: &str) -> Result<String, String> {
    match name {
        "users.txt" => Ok(USERS.into()),
        "colon.txt" => Ok("\"alice\" \"x\"\n\"app\":\"app\"".into()),
        "broken.txt" => Ok("\"alice\" \"x\"\nbob".into()),
        "latin1.txt" => {
            Ok("; \u{fffd}\n\"bob\" \"\u{fffd}\"\n\"alice\" \"x\"\n\"carol\" \"y\"".into())
        }
        "hba.conf" => Ok("local all all peer map=m\nhost all all all md5".into()),
        "doubtful.conf" => Ok("host all all all ldap ldapurl=\"ldaps://h/d\" ldaptls=1".into()),
        "broken.conf" => Ok("local all all magic\nlocal all all trust".into()),
        "ident.conf" => Ok("m root alice".into()),
        "more.ini" => Ok("[users]\nalice = pool_size=3\n".into()),
        _ => Err("No such file or directory".into()),
    }
}

fn at(host: Host, port: u16) -> HostPort {
    HostPort { host, port }
}

/// Loads a text. A text without a main section gets one.
fn load(text: &str) -> Result<(Config, Vec<Warning>), Vec<Mistake>> {
    let text = match text.contains("[pgbouncer]") {
        true => text.to_owned(),
        false => format!("{text}\n[pgbouncer]"),
    };
    let loaded = Config::load("h.ini", &text, &mut files);
    if let Ok((config, _)) = &loaded {
        converts(&text, config);
    }
    loaded
}

/// The same file in TOML is the same configuration.
fn converts(text: &str, config: &Config) {
    let toml = to_toml("h.ini", text, &mut files).unwrap();
    let reading = Config::read("h.toml", &toml, &mut files);
    assert_eq!(reading.mistakes, [], "{text}\n{toml}");
    let seen = reading.config;
    let shown = |config: &Config| {
        let shown = config.show().filter(|setting| setting.key != "conffile");
        shown
            .map(|setting| (setting.key, setting.value))
            .collect::<Vec<_>>()
    };
    assert_eq!(shown(config), shown(&seen), "{text}\n{toml}");
    assert_eq!(config.databases, seen.databases, "{text}\n{toml}");
    assert_eq!(config.fallback, seen.fallback, "{text}\n{toml}");
    assert_eq!(
        (&config.users, &config.peers, &config.hosts),
        (&seen.users, &seen.peers, &seen.hosts)
    );
    let written = |config: &Config| {
        config
            .written
            .keys()
            .copied()
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(written(config), written(&seen));
}

#[test]
fn comments_stay_above_their_lines() {
    let text = "; the file\n[databases]\n;shop's\nshop = host=a,b port=1 pool_size=-1 connect_query='it''s' password=x user=u\n\
                ; all others\n* = host=h reserve_pool=07\n# last words of databases\n[users]\n\"a b\" = pool_mode=session query_timeout=0\n\
                [pgbouncer]\n# how\n#\npool_mode = transaction\nunix_socket_mode = 0700\nadmin_users = a, b\nstats_users = a,b\n\
                query_timeout = 1.50\nhttp_page = 3\n;; end\n";
    let toml = to_toml("h.ini", text, &mut files).unwrap();
    let expected = "[howdah]\n# how\n#\npool_mode = \"transaction\"\nunix_socket_mode = 0o700\n\
                    admin_users = [\"a\", \"b\"]\nstats_users = \"a,b\"\nquery_timeout = 1.5\nhttp_page = true\n\n\
                    # the file\n# shop's\n[databases.shop]\nhost = [\"a\", \"b\"]\nport = 1\n\
                    connect_query = \"it's\"\nserver_password = \"x\"\nserver_user = \"u\"\n\n\
                    # all others\n[databases.\"*\"]\nhost = \"h\"\nreserve_pool_size = 7\n\n\
                    # last words of databases\n[users.\"a b\"]\npool_mode = \"session\"\n\n# end\n";
    assert_eq!(toml, expected);
    assert!(to_toml("h.ini", "[pgbouncer]\nx = 1", &mut files).is_err());
}

fn good(text: &str) -> Config {
    let (config, warnings) = load(text).unwrap();
    assert_eq!(warnings, [], "{text}");
    config
}

fn mistakes(text: &str) -> Vec<String> {
    load(text)
        .unwrap_err()
        .iter()
        .map(Mistake::to_string)
        .collect()
}

/// The mistakes of a text as it is.
fn mistakes_of(text: &str) -> Vec<String> {
    let mistakes = Config::load("h.ini", text, &mut files).unwrap_err();
    mistakes.iter().map(Mistake::to_string).collect()
}

fn warnings(text: &str) -> Vec<String> {
    load(text)
        .unwrap()
        .1
        .iter()
        .map(Warning::to_string)
        .collect()
}

#[test]
fn networks_of_balancers_are_networks_and_not_all_addresses() {
    let with = |networks: &str| format!("[pgbouncer]\nproxy_protocol = {networks}\n");
    let said = mistakes_of(&with("10.0.0.0/8, 10.0.0.0/33"));
    let text = "for parameter proxy_protocol in configuration (h.ini:2): must be a list of words separated by commas: networks such as \
                10.0.0.0/8 or 2001:db8::/32, or addresses";
    assert!(said.len() == 1 && said[0].contains(text), "{said:?}");
    let doubt = |networks| {
        let said = warnings(&with(networks)).into_iter();
        said.filter(|text| text.contains("proxy_protocol")).count()
    };
    assert_eq!(doubt("0.0.0.0/0"), 1);
    assert_eq!(doubt("10.0.0.0/8, ::/0"), 1);
    assert_eq!(doubt("10.0.0.0/8, fd00::/8"), 0);
}

#[test]
fn reads_that_no_standby_gets_are_doubted() {
    let doubts = |globals: &str, entry: &str| {
        let text =
            format!("[pgbouncer]\npool_mode=transaction\n{globals}\n[databases]\nd = {entry}\n");
        let (_, warnings) = Config::load("x.ini", &text, &mut |_| Ok(String::new())).unwrap();
        let texts = warnings.iter().map(|warning| warning.to_string());
        texts
            .filter(|text| text.contains("read_routing"))
            .collect::<Vec<_>>()
    };
    let routing = "read_routing=transactions";
    let asked = &format!("{routing}\nhost_check_user=u");
    let hosts = "host=a,b";
    assert!(doubts(asked, hosts).is_empty());
    assert!(
        doubts(asked, "host=a").is_empty(),
        "the global setting is for others"
    );
    let eventual = format!("{routing}\nread_consistency=eventual");
    assert!(doubts(&eventual, hosts).is_empty());
    for (globals, entry, what) in [
        (routing, hosts, "host_check_user"),
        (asked, &*format!("{hosts} pool_mode=session"), "pool_mode"),
        (asked, &*format!("host=a {routing}"), "one host"),
    ] {
        let doubts = doubts(globals, entry);
        assert!(doubts.len() == 1 && doubts[0].contains(what), "{doubts:?}");
    }
}

#[test]
fn reads_need_a_primary_for_the_rest() {
    let text = "[pgbouncer]\nread_routing=transactions\n[databases]\na = host=x,y\nb = host=x\n\
                c = host=x,y target_session_attrs=standby\nd = host=x,y read_routing=off\n";
    let (config, _) = Config::load("x.ini", text, &mut |_| Ok(String::new())).unwrap();
    let wished = |name: &str| config.databases[name].target_session_attrs;
    let all = ["a", "b", "c", "d"].map(wished);
    use SessionAttrs::{Any, Primary, Standby};
    assert_eq!(all, [Primary, Any, Standby, Any]);
}

#[test]
fn a_file_without_the_main_section_is_refused() {
    for text in ["", "; nothing", "[databases]\n* = host=h\n"] {
        let mistakes = Config::load("h.ini", text, &mut files).unwrap_err();
        assert_eq!(mistakes.len(), 1);
        let said = mistakes[0].to_string();
        assert!(
            said.starts_with("main section missing from config file h.ini: "),
            "{said}"
        );
    }
}

#[test]
fn the_names_of_the_console_are_reserved() {
    for name in ["pgbouncer", "howdah"] {
        let said = mistakes(&format!("[databases]\n{name} = host=h"));
        assert!(said[0].ends_with("is reserved for the console"), "{said:?}");
    }
}

#[test]
fn bytes_that_are_no_text_harm_only_what_they_stand_in() {
    assert_eq!(
        warnings("[pgbouncer]\n; caf\u{fffd}\n# \u{fffd}\npool_mode = session"),
        [""; 0]
    );
    for text in [
        "[databases]\nx\u{fffd} = host=h",
        "[databases]\n'x\u{fffd}' = host=h",
        "[pgbouncer]\nsyslog_ident = caf\u{fffd}",
    ] {
        let said = mistakes(text);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("(h.ini:2)"), "{said:?}");
    }
    let (config, warnings) = load("[pgbouncer]\nauth_file = latin1.txt").unwrap();
    let said = warnings[0].to_string();
    assert!(
        said.starts_with("broken auth file (latin1.txt:2): bytes that are not UTF-8"),
        "{said}"
    );
    assert!(warnings.len() == 1 && warnings[0].broken);
    let mut users: Vec<_> = config.users.keys().cloned().collect();
    users.sort();
    assert_eq!(users, ["alice", "carol"]);
}

#[test]
fn nothing_written_means_the_defaults() {
    let config = good("");
    assert_eq!(config.globals.listen_port, 6432);
    assert_eq!(config.globals.server_lifetime, Duration::from_secs(3600));
    assert_eq!(config.globals.pool_mode, PoolMode::Session);
    assert_eq!(config.globals.auth_type, AuthType::Md5);
    assert_eq!(config.globals.unix_socket_mode, 0o777);
    assert_eq!(config.globals.conffile.as_deref(), Some("h.ini"));
    assert_eq!(config.server_check_query(), Some(""));
    assert!(config.databases.is_empty() && config.users.is_empty() && config.fallback.is_none());
}

#[test]
fn the_last_assignment_wins_but_a_second_header_starts_over() {
    let (config, said) = load("[pgbouncer]\nlisten_port=1\n listen_port = 0x10\n").unwrap();
    let twice = "listen_port is set twice (h.ini:2 and h.ini:3): the last counts";
    assert_eq!(said[0].to_string(), twice);
    assert_eq!(config.globals.listen_port, 16);
    let text = "[pgbouncer]\nlisten_port=1\nuser=x\n[databases]\na=\n[pgbouncer]\nverbose=2";
    let (config, warnings) = load(text).unwrap();
    assert_eq!(
        (config.globals.listen_port, config.globals.verbose),
        (6432, 2)
    );
    assert_eq!((config.globals.user, config.databases.len()), (None, 1));
    assert!(warnings[0].text.contains("h.ini:6"), "{warnings:?}");
}

#[test]
fn databases() {
    let config = good(
        "[pgbouncer]\nunix_socket_dir=/run/pg\n[databases]\n\
         plain =\n\
         full = dbname=x host=db1,10.0.0.1,::1,/tmp,@abs port=5433 user=u password='p w' \
         pool_size=3 min_pool_size=1 reserve_pool=2 query_wait_timeout=1.5 \
         max_db_connections=4 max_db_client_connections=5 server_lifetime=60 \
         load_balance_hosts=disable pool_mode=STATEMENT connect_query='select ''1''' \
         client_encoding=latin1 datestyle=iso timezone=utc application_name=app\n\
         inherit = pool_size=-1 server_lifetime=0\n\
         'odd name' = host=a\n\
         * = host=star dbname=d\n",
    );
    let plain = config.database("plain").unwrap();
    assert_eq!((plain.target(), plain.port.first()), ("plain", 5432));
    assert_eq!(plain.hosts, [at(Host::Unix("/run/pg".into()), 5432)]);
    assert_eq!((&plain.host, plain.auto), (&None, false));
    let full = config.database("full").unwrap();
    assert_eq!(full.target(), "x");
    assert_eq!(
        full.hosts,
        [
            Host::Name("db1".into()),
            Host::Ip([10, 0, 0, 1].into()),
            Host::Ip("::1".parse().unwrap()),
            Host::Unix("/tmp".into()),
            Host::Unix("@abs".into()),
        ]
        .map(|host| at(host, 5433))
    );
    assert_eq!(full.host.as_deref(), Some("db1,10.0.0.1,::1,/tmp,@abs"));
    assert_eq!(
        (full.port.first(), full.load_balance_hosts),
        (5433, LoadBalance::Disable)
    );
    assert_eq!(
        (full.forced_user.as_deref(), full.server_password.as_deref()),
        (Some("u"), Some("p w"))
    );
    assert_eq!(
        (full.pool_size, full.min_pool_size, full.reserve_pool_size),
        (Some(3), Some(1), Some(2))
    );
    assert_eq!(
        (full.max_db_connections, full.max_db_client_connections),
        (Some(4), Some(5))
    );
    assert_eq!(full.query_wait_timeout, Some(Duration::from_millis(1500)));
    let lifetime = config.scopes(Some(&full), None).server_lifetime();
    assert_eq!(lifetime, Duration::from_secs(60));
    assert_eq!(full.pool_mode, Some(PoolMode::Statement));
    assert_eq!(full.connect_query.as_deref(), Some("select '1'"));
    assert_eq!(full.application_name.as_deref(), Some("app"));
    let inherit = config.database("inherit").unwrap();
    assert_eq!((inherit.pool_size, inherit.server_lifetime), (None, None));
    assert!(config.database("odd name").is_some());
    let auto = config.database("anything").unwrap();
    assert_eq!(
        (auto.name.as_str(), auto.target(), auto.auto),
        ("anything", "d", true)
    );
    for name in CONSOLE_NAMES {
        assert_eq!(config.database(name), None);
    }
    assert_eq!(good("[databases]\na=").database("b"), None);
}

#[test]
fn without_a_unix_directory_a_database_may_have_no_host() {
    let config = good("[databases]\na=\n[pgbouncer]\nunix_socket_dir=\n");
    assert_eq!(config.database("a").unwrap().hosts, []);
}

#[test]
fn users_come_from_both_places() {
    let config = good(
        "[users]\nalice = pool_size=7 query_timeout=2\ncarol = pool_mode=transaction\ndan =\n\
         [pgbouncer]\nauth_file = users.txt\n",
    );
    let alice = config.user("alice").unwrap();
    assert_eq!(
        (&alice.secret, alice.pool_size),
        (&Some(Secret::Plain("secret".into())), Some(7))
    );
    assert!(matches!(
        config.user("bob").unwrap().secret,
        Some(Secret::Md5(_))
    ));
    let carol = config.user("carol").unwrap();
    assert_eq!(
        (&carol.secret, carol.pool_mode),
        (&None, Some(PoolMode::Transaction))
    );
    assert!(config.user("dan").is_some() && config.user("eve").is_none());
    let any = good("[pgbouncer]\nauth_type=any\nauth_file=gone.txt\n");
    assert!(
        any.users.is_empty(),
        "auth_type=any needs no file and reads none"
    );
}

#[test]
fn a_missing_or_broken_auth_file_is_only_warned_of() {
    let said = warnings("[pgbouncer]\nauth_file=gone.txt");
    assert_eq!(
        said,
        ["could not open auth_file gone.txt: No such file or directory"]
    );
    let (config, said) = load("[pgbouncer]\nauth_file=broken.txt").unwrap();
    assert!(
        said[0]
            .text
            .starts_with("broken auth file (broken.txt:2): "),
        "{said:?}"
    );
    assert!(config.user("alice").is_some() && config.user("bob").is_none());
}

#[test]
fn the_nearer_setting_wins() {
    let config = good(
        "[pgbouncer]\ndefault_pool_size=1\nreserve_pool_size=1\nquery_wait_timeout=1\n\
         min_pool_size=1\nmax_user_connections=1\nquery_timeout=1\nclient_idle_timeout=9\n\
         [databases]\nbare=\nset=pool_size=2 reserve_pool_size=2 query_wait_timeout=2 \
         pool_mode=transaction min_pool_size=2\n\
         [users]\nu=pool_size=3 reserve_pool_size=3 query_wait_timeout=0 pool_mode=statement \
         max_user_connections=3 query_timeout=3 client_idle_timeout=0\nv=\n",
    );
    let (bare, set) = (
        config.database("bare").unwrap(),
        config.database("set").unwrap(),
    );
    let of = |database, user| {
        let scopes = config.scopes(Some(database), user);
        (
            scopes.pool_size(),
            scopes.reserve_pool_size(),
            scopes.query_wait_timeout().as_secs(),
            scopes.pool_mode(),
        )
    };
    assert_eq!(of(&bare, None), (1, 1, 1, PoolMode::Session));
    assert_eq!(of(&bare, Some("v")), (1, 1, 1, PoolMode::Session));
    assert_eq!(of(&set, Some("v")), (2, 2, 2, PoolMode::Transaction));
    assert_eq!(of(&set, Some("u")), (3, 3, 0, PoolMode::Statement));
    let kept = |database| config.scopes(Some(database), None).min_pool_size();
    assert_eq!((kept(&bare), kept(&set)), (1, 2));
    let (nobody, u, v) = (
        config.scopes(None, None),
        config.scopes(None, Some("u")),
        config.scopes(None, Some("v")),
    );
    let servers = (nobody.max_user_connections(), u.max_user_connections());
    assert_eq!(servers, (1, 3));
    assert_eq!(v.query_timeout(), Duration::from_secs(1));
    assert_eq!(u.query_timeout(), Duration::from_secs(3));
    // Zero in a user's entry means "as globally", except for query_wait_timeout.
    assert_eq!(u.client_idle_timeout(), Duration::from_secs(9));
}

#[test]
fn every_mistake_is_found_and_placed() {
    let seen = mistakes(
        "early = 1\n\
         [pgbouncer]\nlisten_port = 70000\npool_mode = transactoin\nlisten_prot = 1\n\
         server_lifetime = -1\nlog_stats = yes\nauth_dbname = pgbouncer\nstats_period = 0\n\
         [databases]\npgbouncer = host=a\na = host\nb = hots=a\nc = port=0\nd = pool_size=x foo=bar\n\
         e = password=oops port=0\n\
         [users]\nf = pool_mode=x\ng = host=a\n\
         [peers]\n0 = host=a\n1 = port=1\n\
         [what]\nignored = 1\n\
         [peers]\n2 = host=a port=x\n3 = host=, port=1\n4 = host=a user=x\n\
         [pgbouncer\n%include gone.ini\n",
    );
    let expected = [
        "invalid value \"...\" for parameter early in configuration (h.ini:1): it stands before any \
         section: begin with [pgbouncer]",
        "invalid value \"70000\" for parameter listen_port in configuration (h.ini:3): must be \
         an integer from 0 to 65535",
        "invalid value \"transactoin\" for parameter pool_mode in configuration (h.ini:4): must \
         be one of session, transaction, statement; did you mean transaction?",
        "invalid value \"...\" for parameter listen_prot in configuration (h.ini:5): there is no \
         such setting; did you mean listen_port?",
        "invalid value \"-1\" for parameter server_lifetime in configuration (h.ini:6): must be a \
         number of seconds, 0 or more",
        "invalid value \"yes\" for parameter log_stats in configuration (h.ini:7): must be 0 or 1",
        "invalid value \"pgbouncer\" for parameter auth_dbname in configuration (h.ini:8): cannot \
         use the reserved \"pgbouncer\" database as an auth_dbname",
        "invalid value \"0\" for parameter stats_period in configuration (h.ini:9): must be a number \
         of seconds, 0 or more, at least 1",
        "database \"pgbouncer\" (h.ini:11): database name \"pgbouncer\" is reserved for the console",
        "database \"a\" (h.ini:12): missing = after a word: write `key=value` pairs separated by spaces, and \
         values with blanks in quotes",
        "database \"b\", hots (h.ini:13): there is no such setting; did you mean host?",
        "database \"c\", port = 0 (h.ini:14): must be a port from 1 to 65535, or one for each host, separated by commas",
        "database \"d\", pool_size = x (h.ini:15): must be an integer",
        "database \"d\", foo (h.ini:15): there is no such setting",
        "database \"e\", port (h.ini:16): must be a port from 1 to 65535, or one for each host, separated by commas",
        "user \"f\", pool_mode = x (h.ini:18): must be one of session, transaction, statement",
        "user \"g\", host (h.ini:19): there is no such setting",
        "peer \"0\" (h.ini:21): a peer's id is a number from 1 to 65535",
        "peer \"1\" (h.ini:22): a peer needs host=",
        "invalid section \"what\" in configuration (h.ini:23): there are [pgbouncer], \
         [databases], [users], [peers] and [hosts]",
        "peer \"2\", port = x (h.ini:26): must be an integer from 1 to 65535",
        "peer \"3\", host = , (h.ini:27): write names or addresses, separated by commas",
        "peer \"4\", user (h.ini:28): there is no such setting",
    ];
    let (meaning, grammar) = seen.split_at(seen.len() - 2);
    assert!(
        grammar[0].starts_with("syntax error in configuration (h.ini:29): "),
        "{grammar:?}"
    );
    assert!(
        grammar[1].starts_with("could not load file \"gone.ini\": "),
        "{grammar:?}"
    );
    assert_eq!(meaning, expected);
}

#[test]
fn peers() {
    let config = good(
        "[pgbouncer]\npeer_id = 2\n[peers]\n\
         1 = host=/run/one\n2 = host=me\n0x10 = host=10.0.0.1,b port=7 pool_size=3\n",
    );
    let ids: Vec<_> = config.peers.keys().copied().collect();
    assert_eq!(ids, [1, 2, 16]);
    let (one, other) = (&config.peers[&1], &config.peers[&16]);
    assert_eq!(one.hosts, [Host::Unix("/run/one".into())]);
    assert_eq!((one.port, config.peer_pool_size(one)), (6432, 20));
    let hosts = [Host::Ip([10, 0, 0, 1].into()), Host::Name("b".into())];
    assert_eq!(
        (other.host.as_deref(), &other.hosts[..]),
        (Some("10.0.0.1,b"), &hosts[..])
    );
    assert_eq!((other.port, config.peer_pool_size(other)), (7, 3));
    let wrong = mistakes("[pgbouncer]\npeer_id = 16384");
    assert!(
        wrong[0].contains("(h.ini:2): must be an integer from 0 to 16383"),
        "{wrong:?}"
    );
}

#[test]
fn hosts_have_one_port_or_one_each() {
    let config = good("[databases]\na = host=b,/tmp,::1 port=1,02,3\nc = host=b,d port=7\n");
    let hosts = |name: &str| {
        let hosts = config.databases[name].hosts.iter();
        hosts.map(HostPort::to_string).collect::<Vec<_>>()
    };
    assert_eq!(hosts("a"), ["b:1", "/tmp/.s.PGSQL.2", "[::1]:3"]);
    assert_eq!(hosts("c"), ["b:7", "d:7"]);
    let wrong = mistakes(
        "[databases]\na = host=b,c,d port=1,2\ne = host=h port=1,2 target_session_attrs=primary\nf = host=h port=1,2",
    );
    assert_eq!(
        wrong,
        [
            "database \"a\": 2 ports for 3 hosts (h.ini:2): write one port for all hosts, or one for each",
            "database \"e\": 2 ports for 1 hosts (h.ini:3): write one port for all hosts, or one for each",
        ]
    );
}

#[test]
fn placed_databases_and_hosts() {
    let config = good(
        "[databases]\na = host=b,c port=1,2 target_session_attrs=Prefer-Standby\nd = host=b\n\
         [hosts]\nb = weight=3\nb:5432 = weight=1000\n",
    );
    let (a, d) = (&config.databases["a"], &config.databases["d"]);
    assert_eq!(a.target_session_attrs, SessionAttrs::PreferStandby);
    assert!(a.is_placed() && !d.is_placed());
    let hosts = a.hosts.iter().chain(&d.hosts);
    let weights: Vec<_> = hosts.map(|to| config.weight(to)).collect();
    assert_eq!(weights, [3, 1, 1000]);
    let placed = |hosts: &str| {
        let text = format!("[databases]\na = {hosts} target_session_attrs=primary");
        mistakes(&format!("[pgbouncer]\nunix_socket_dir=\n{text}"))
    };
    for (hosts, what) in [
        ("host=b,c,b", "the host b:5432 stands twice in its list"),
        ("host=b,,c", "there is an empty host in its list"),
        ("port=1", "it has no host"),
    ] {
        let remedy = "with target_session_attrs, write each host once";
        let said = format!("database \"a\": {what} (h.ini:4): {remedy}");
        assert_eq!(placed(hosts), [said], "{hosts}");
    }
    for line in ["b = weight=0", "b = weight=1001", "b = wait=1"] {
        assert!(load(&format!("[hosts]\n{line}")).is_err(), "{line}");
    }
    let (_, warnings) = load("[hosts]\nx = weight=2").unwrap();
    assert!(
        warnings[0].text.starts_with("[hosts] has \"x\""),
        "{warnings:?}"
    );
}

#[test]
fn an_address_of_a_name_is_named_by_both() {
    let address = |ip: &str| HostPort {
        host: Host::Address {
            name: "pg".into(),
            ip: ip.parse().unwrap(),
        },
        port: 5432,
    };
    let (four, six) = (address("10.0.0.1"), address("fd00::1"));
    assert_eq!(four.to_string(), "pg(10.0.0.1):5432");
    assert_eq!(six.to_string(), "pg(fd00::1):5432");
    for name in ["pg", "pg:5432"] {
        assert!(four.is_named(name) && six.is_named(name), "{name}");
    }
    for name in [
        "10.0.0.1",
        "10.0.0.1:5432",
        "pg(10.0.0.1)",
        "pg(10.0.0.1):5432",
    ] {
        assert!(four.is_named(name) && !six.is_named(name), "{name}");
    }
    for name in ["fd00::1", "[fd00:0::1]:5432", "pg(fd00::1):5432"] {
        assert!(six.is_named(name) && !four.is_named(name), "{name}");
    }
    for name in [
        "pg:5433",
        "10.0.0.1:5433",
        "10.0.0.2",
        "pg(10.0.0.2)",
        "pg2",
        "pg()",
    ] {
        assert!(!four.is_named(name), "{name}");
    }
    let hosts = "[hosts]\npg = weight=2 max_host_logins=3\n\"10.0.0.1\" = weight=5\n";
    let placed = "[databases]\na = host=pg target_session_attrs=primary\n";
    let (config, warnings) = load(&format!("{placed}{hosts}")).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let other = address("10.0.0.2");
    assert_eq!((config.weight(&four), config.weight(&other)), (5, 2));
    assert_eq!(config.max_host_logins(&other), 3);
}

#[test]
fn numbers_of_entries_are_decimal() {
    let text = "[peers]\n08=host=a\n010=host=b\n1=host=c\n01=host=d\n[databases]\n\
                a=port=05432 pool_size=010\n[pgbouncer]\npeer_id=010\n";
    let (config, said) = load(text).unwrap();
    let twice = "\"01\" is defined twice (h.ini:4 and h.ini:5): the last counts";
    assert!(said.len() == 1 && said[0].text == twice, "{said:?}");
    assert!(config.peers.keys().eq(&[1, 8, 10]));
    assert_eq!(config.peers[&1].host.as_deref(), Some("d"));
    let a = &config.databases["a"];
    assert_eq!(
        (a.port.first(), a.pool_size, config.globals.peer_id),
        (5432, Some(10), 8)
    );
}

/// The lines of a syntax in which entries need not begin, and may stand anywhere.
#[test]
fn lines_have_their_meaning_without_heads() {
    let line = |path: &[&str], text: &str| {
        let (key, text) = text.split_once('=').unwrap();
        let path = path.iter().map(|part| part.to_string()).collect();
        let file = "h".into();
        written::WrittenLine {
            key: Some(key.into()),
            text: text.into(),
            ..written::WrittenLine::head(path, Place::line(file, 1))
        }
    };
    let lines = [
        line(&["databases", "a"], "port=1"),
        line(&["peers", "1"], "host=x"),
        line(&["databases", "b"], "host=h"),
        line(&["databases", "a"], "host=h"),
    ];
    let reading = resolve::resolve("h", &lines, vec![], &mut files);
    let a = &reading.config.databases["a"];
    assert_eq!(
        (a.port.first(), a.host.as_deref(), reading.mistakes),
        (1, Some("h"), vec![])
    );
    let lines = [
        line(&["databases"], "pool_mode=session"),
        line(&["databases", "a", "groups", "b"], "pool_mode=session"),
        line(&["databases", "a", "groups", "b"], "pool_size=1"),
        line(&["databases", "pgbouncer"], "host=h"),
        line(&["databases", "a"], "port=5432;"),
        line(&["peers", "1"], "port=1"),
    ];
    let reading = resolve::resolve("h", &lines, vec![], &mut files);
    let said: Vec<_> = reading.mistakes.iter().map(Mistake::to_string).collect();
    assert_eq!(
        said,
        [
            "invalid value \"session\" for parameter pool_mode in configuration (h:1): it stands outside \
             of an entry: begin with the entry's name",
            "invalid section \"databases.a.groups.b\" in configuration (h:1): there are [pgbouncer], \
             [databases], [users], [peers] and [hosts]",
            "database \"pgbouncer\" (h:1): database name \"pgbouncer\" is reserved for the console",
            "database \"a\", port = 5432; (h:1): must be a port from 1 to 65535, or one for each host, separated by commas",
            "peer \"1\" (h:1): a peer needs host=",
        ]
    );
}

#[test]
fn names_have_lengths() {
    let long = |n| "n".repeat(n);
    assert!(load(&format!("[databases]\n{}=", long(63))).is_ok());
    assert!(mistakes(&format!("[databases]\n{}=", long(64)))[0].contains("at most 63 bytes"));
    assert!(load(&format!("[users]\n{}=", long(127))).is_ok());
    assert!(mistakes(&format!("[users]\n{}=", long(128)))[0].contains("at most 127 bytes"));
    assert!(mistakes(&format!("[databases]\na=user={}", long(128)))[0].contains("at most 127"));
}

#[test]
fn settings_that_do_not_go_together_are_told_of() {
    let seen = mistakes("[pgbouncer]\nauth_type = cert");
    let wanted = ["requires client_tls_sslmode = verify-full", "h.ini:2"];
    let told = wanted.iter().all(|word| seen[0].contains(word));
    assert!(seen.len() == 1 && told, "{seen:?}");
    for line in [
        "client_tls_sslmode = disable",
        "client_tls_sslmode = require",
        "server_tls_sslmode = verify-full",
        "auth_type = scram-sha-256",
        "auth_type = Trust",
        "client_tls_ciphers = default",
        "so_reuseport = 0",
        "auth_hba_file =",
        "auth_user =",
        "peer_id = 0",
    ] {
        assert_eq!(warnings(&format!("[pgbouncer]\n{line}")), [""; 0], "{line}");
    }
    let seen = warnings("[peers]\n1=host=a\n2=host=b\n");
    assert!(
        seen.len() == 1 && seen[0].starts_with("[peers] in h.ini"),
        "{seen:?}"
    );
}

#[test]
fn who_knows_the_passwords() {
    let authority = |text: &str| good(&format!("[pgbouncer]\n{text}")).authority;
    assert_eq!(
        authority("auth_type = pam").as_deref(),
        Some(&Authority::Pam("pgbouncer".into()))
    );
    let ldap = "auth_type = ldap\nauth_ldap_options = ldapserver=a ldapprefix=x";
    let Some(Authority::Ldap(options)) = authority(ldap).as_deref().cloned() else {
        panic!("no directory");
    };
    assert_eq!(options.servers[0].host, "a");
    assert_eq!(authority("auth_ldap_options = nonsense"), None);
    for (text, said) in [
        ("auth_type = ldap", "h.ini:2"),
        (
            "auth_type = ldap\nauth_ldap_options = ldapserver=a",
            "h.ini:3",
        ),
        (
            "auth_ldap_options = colour=red\nauth_type = ldap",
            "h.ini:2",
        ),
    ] {
        let seen = mistakes(&format!("[pgbouncer]\n{text}"));
        assert!(seen.len() == 1 && seen[0].contains(said), "{seen:?}");
        assert!(seen[0].contains("auth_ldap_options"), "{seen:?}");
    }
    let twice = "auth_type = ldap\nauth_ldap_options = ldapurl=ldaps://a/dc=x ldaptls=1";
    assert!(warnings(&format!("[pgbouncer]\n{twice}"))[0].contains("exclude each other"));
    let config = good("[pgbouncer]\nauth_type = trust");
    assert!(config.with("auth_type", "pam").unwrap().authority.is_some());
    assert!(
        config
            .with("auth_type", "ldap")
            .unwrap_err()
            .contains("ldapprefix")
    );
}

#[test]
fn rules_are_read_where_they_are_asked_for() {
    let files = "auth_hba_file = hba.conf\nauth_ident_file = ident.conf";
    let config = good(&format!("[pgbouncer]\nauth_type = hba\n{files}"));
    assert!(config.hba.is_some());
    assert_eq!(good(&format!("[pgbouncer]\n{files}")).hba, None);
    assert_eq!(good("[pgbouncer]\nauth_hba_file = missing").hba, None);
    for (lines, said) in [
        ("", "auth_type = hba without auth_hba_file"),
        ("auth_hba_file = x", "could not open hba config file x"),
        (
            "auth_hba_file = hba.conf",
            "could not parse hba config line 1",
        ),
        (
            "auth_hba_file = broken.conf",
            "could not parse hba config line 1",
        ),
    ] {
        let mistakes = mistakes(&format!("[pgbouncer]\nauth_type = hba\n{lines}"));
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].starts_with(said), "{mistakes:?}");
    }
    let doubtful = "[pgbouncer]\nauth_type = hba\nauth_hba_file = doubtful.conf";
    let (_, warnings) = load(doubtful).unwrap();
    assert!(warnings[0].broken && warnings[0].text.contains("exclude each other"));
    let with_more = mistakes("[pgbouncer]\nauth_type = hba\nauth_hba_file = broken.conf\nx = 1");
    assert_eq!(with_more.len(), 2, "{with_more:?}");
    assert!(with_more[1].contains("(broken.conf:1)"));
}

#[test]
fn mistakes_come_in_the_order_of_lines_file_by_file() {
    let files = &mut |name: &str| match name {
        "more.ini" => Ok("x = 1\n[users]\nu = y\n".to_owned()),
        _ => Err("No such file or directory".into()),
    };
    let text = "[pgbouncer]\nlisten_prot = 1\n%include more.ini\n[peers\n0 = host=a\n[what]";
    let reading = Config::read("h.ini", text, files);
    let mut places = reading
        .mistakes
        .iter()
        .map(|mistake| mistake.place.as_ref());
    for expected in [
        "h.ini:2",
        "h.ini:4",
        "h.ini:5",
        "h.ini:6",
        "more.ini:1",
        "more.ini:3",
    ] {
        assert_eq!(places.next().unwrap().unwrap().to_string(), expected);
    }
    assert_eq!(places.next(), None);
}

#[test]
fn what_stands_twice_is_warned_of() {
    let text = "[databases]\na=host=h\n* =\n[users]\na=\n*=\n[databases]\na=\n[peers]\n3=host=a\n";
    let said = warnings(&format!("{text}[pgbouncer]\npeer_id=1\n[users]\na=\n"));
    let expected = [
        "\"a\" is defined twice (h.ini:2 and h.ini:8): the last counts",
        "\"a\" is defined twice (h.ini:5 and h.ini:14): the last counts",
    ];
    assert_eq!(said, expected);
    assert_eq!(
        warnings(
            "[databases]\na=host=h reserve_pool=3 pool_size=4 reserve_pool_size=5 pool_size=40"
        ),
        [
            "database \"a\", reserve_pool_size (h.ini:2): set twice, the last value counts",
            "database \"a\", pool_size (h.ini:2): set twice, the last value counts",
        ]
    );
    let (config, said) = load("[databases]\n*=host=h\n*=host").unwrap();
    assert_eq!((config.fallback, said.len()), (None, 1));
}

#[test]
fn what_is_hardly_meant_is_warned_of() {
    let secret = "SCRAM-SHA-256$4096:W7rlyLVkwGiV5i0YGKTiKA==$fg/d3A";
    let md5 = "md50123456789abcdef0123456789abcdef";
    let users = format!("\"a\" \"{secret}\"\n\"b\" \"{md5}\"\n\"c\" \"{md5}\"\n\"a\" \"x\"\n");
    let mut files = |_: &str| Ok(users.clone());
    let text = "[databases]\n\
                a = host=127.0.0.1 port=6432\n\
                b = host=postgres://h dbname=\"b\"\n\
                c = host=localhost port=6433\n\
                [pgbouncer]\n\
                auth_type = scram-sha-256\n\
                auth_file = u\n\
                listen_addr = *\n\
                logfile = /tmp/log ; the log\n\
                admin_users = 'ann', bob\n";
    let reading = Config::read("h.ini", text, &mut files);
    assert_eq!((reading.mistakes, reading.files), (vec![], 2));
    let said: Vec<_> = reading.warnings.iter().map(|said| &*said.text).collect();
    for (seen, expected) in said.iter().zip([
        "database \"b\", host (h.ini:3): write the host alone",
        "database \"b\", dbname (h.ini:3): the quotes are a part",
        "logfile (h.ini:9): what follows the blank is a part of the value",
        "admin_users (h.ini:10): the quotes are a part",
        "database \"a\" (h.ini:2) leads to Howdah itself: port 6432",
        "auth file (u:1): user \"a\" begins like a secret of PostgreSQL",
        "auth file (u:2): user \"b\", and 1 more like it is an md5 secret",
        "auth file (u:4): user \"a\" stands there twice: the last",
    ]) {
        assert!(seen.starts_with(expected), "{seen}");
    }
    assert_eq!(said.len(), 8);
    assert_eq!(
        reading.warnings[2].shown_line,
        "  9 | logfile = /tmp/log ; the log\n    |           ^\n"
    );
    let text = "[pgbouncer]\nserver_check_query = 'select set_password(\"hush\")'";
    let shown = Config::read("h.ini", text, &mut files).warnings;
    assert!(shown[0].text.contains("quotes") && !format!("{shown:?}").contains("hush"));
}

#[test]
fn a_mistake_is_shown_in_its_line_without_secrets() {
    let text = "[databases]\n\
                a = postgres://u:hush@h/a\n\
                b = host=h port=x\n\
                c = host=h pasword=hush\n\
                d = host=h port=x password=hush\n\
                e = host=h password=hush more\n\
                f = dbname=postgres://app:hush@h/shop pool_size=x\n\
                g = host=postgres://u:hush@h port=x\n\
                h = host=h postgres://u:hush@h/a?sslmode=require\n\
                i = connect_query='set x.password = ''hush''' pool_size=x\n\
                [pgbouncer]\n\
                http_token = hush hush\n\
                pool_mode = transaction # hush\n\
                pool_mode transaction\n\
                \"ann\" \"hush\"\n\
                pasword = hush\n\
                http_tokn = hush\n\
                trace_endpoint = https://u:hush@h/\n\
                hush\n";
    let reading = Config::read("h.ini", text, &mut files);
    let shown = reading.mistakes.iter().map(Mistake::shown_line);
    let shown: Vec<String> = shown
        .map(|two| two.lines().next().unwrap_or("").into())
        .collect();
    assert_eq!(
        shown,
        [
            "  2 | a = ...",
            "  3 | b = host=h port=x",
            "  4 | c = host=h pasword=...",
            "",
            "  6 | e = ...",
            "  7 | f = dbname=postgres://...@h/shop pool_size=x",
            "  8 | g = host=postgres://...@h port=x",
            "  9 | h = ...",
            "  10 | i = connect_query=... pool_size=x",
            "  12 | http_token = ...",
            "  13 | pool_mode = transaction # hush",
            "",
            "",
            "  16 | pasword = ...",
            "  17 | http_tokn = ...",
            "  18 | trace_endpoint = https://...@h/",
            "",
        ]
    );
    let said: Vec<_> = reading.mistakes.iter().map(Mistake::to_string).collect();
    let said = |at: usize| said[at].as_str();
    assert!(said(0).ends_with("write host=h dbname=a, and the user's secret into auth_file"));
    assert!(
        said(10).contains("a comment needs a line of its own"),
        "{}",
        said(10)
    );
    let (all, hush) = (format!("{:?}", reading.mistakes), "hush");
    assert_eq!(all.matches(hush).count(), 2, "only the comment: {all}");
}

#[test]
fn another_format_is_one_mistake() {
    let said = mistakes_of("general:\n  host: x\npools:\n");
    assert_eq!(said.len(), 1);
    assert!(
        said[0].starts_with("config file h.ini is in YAML format: "),
        "{said:?}"
    );
    let said = mistakes_of("[general]\nhost = \"0.0.0.0\"\n[pools.a]\n");
    assert!(said.len() == 1 && said[0].contains("TOML"), "{said:?}");
}

#[test]
fn one_port_has_one_purpose() {
    let at = |rest: &str| format!("[pgbouncer]\nhttp_listen_port=6432\n{rest}");
    let said = mistakes(&at("listen_addr=127.0.0.1"));
    assert_eq!(
        said,
        ["http_listen_port = 6432 is listen_port, too (h.ini:2): write another port"]
    );
    assert_eq!(mistakes(&at("listen_addr=*")).len(), 1);
    good(&at("listen_addr=127.0.0.2"));
    good(&at(""));
}

#[test]
fn a_word_that_is_nearly_right_is_told() {
    for (line, hint) in [
        ("auth_type = scram", "; did you mean scram-sha-256?"),
        ("auth_type = SCRAM-SHA256", "; did you mean scram-sha-256?"),
        ("pool_mode = sesion", "; did you mean session?"),
        ("pool_mode = transactional", "; did you mean transaction?"),
        ("io_driver = uring", "epoll"),
        ("auth_type = on", "scram-sha-256"),
        ("max_client_conn = -3", "must be an integer, 0 or more"),
    ] {
        let said = mistakes(&format!("[pgbouncer]\n{line}"));
        assert!(said.len() == 1 && said[0].ends_with(hint), "{said:?}");
    }
}

#[test]
fn set_reads_no_rules() {
    let without = good("[pgbouncer]\nauth_hba_file = hba.conf");
    assert!(without.with("auth_type", "hba").is_err());
    assert!(without.with("auth_hba_file", "other").is_ok());
    let lines = "auth_type = hba\nauth_hba_file = hba.conf\nauth_ident_file = ident.conf";
    let config = good(&format!("[pgbouncer]\n{lines}"));
    let off = config.with("auth_type", "md5").unwrap();
    assert!(off.with("auth_type", "hba").unwrap().hba.is_some());
    for key in ["auth_hba_file", "auth_ident_file"] {
        let why = config.with(key, "other").unwrap_err();
        assert!(why.contains("RELOAD"), "{why}");
    }
}

#[test]
fn show_config_has_pgbouncers_columns() {
    let config = good("[pgbouncer]\nserver_lifetime=1.5\nadmin_users= a, b\nlog_stats=7\n");
    let shown: Vec<_> = config.show().collect();
    let row = |key| shown.iter().find(|row| row.key == key).unwrap();
    let value = |key| row(key).value.as_deref();
    assert_eq!(
        (shown[0].key, shown.last().unwrap().key),
        ("admin_users", "workers")
    );
    assert_eq!(
        (value("server_lifetime"), row("server_lifetime").default),
        (Some("1.5"), Some("3600"))
    );
    assert_eq!(
        (value("admin_users"), value("log_stats")),
        (Some("a, b"), Some("1"))
    );
    assert_eq!((value("auth_user"), row("auth_user").default), (None, None));
    assert_eq!(
        (value("unix_socket_mode"), row("unix_socket_mode").default),
        (Some("511"), Some("0777"))
    );
    assert!(row("verbose").changeable && !row("listen_port").changeable);
}

#[test]
fn set_changes_what_may_change() {
    let config = good("[pgbouncer]\nlisten_port=1234");
    assert_eq!(config.with("verbose", "3").unwrap().globals.verbose, 3);
    assert_eq!(
        config.with("listen_port", "1").unwrap().globals.listen_port,
        1234
    );
    for (key, value, said) in [
        (
            "verbsoe",
            "1",
            "unknown setting verbsoe; did you mean verbose?",
        ),
        ("host", "a", "unknown setting host"),
        ("verbose", "x", "must be an integer"),
        ("client_tls_sslmode", "on", "must be one of disable"),
    ] {
        let seen = config.with(key, value).unwrap_err();
        assert!(seen.starts_with(said), "{seen}");
    }
}

#[test]
fn a_reload_keeps_what_is_fixed() {
    let old = good("[pgbouncer]\nlisten_port=1\nverbose=1");
    let mut new = good("[pgbouncer]\nlisten_port=2\nverbose=2");
    let told = new.keep_fixed(&old);
    assert_eq!(
        told,
        ["listen_port = 2 takes a restart to have an effect: it stays 1"]
    );
    assert_eq!((new.globals.listen_port, new.globals.verbose), (1, 2));
}

#[test]
fn a_reload_keeps_a_forced_user_that_is_lost() {
    let old = good("[databases]\na=user=x password=y\nb=user=x\n*=user=z");
    let mut new = good("[databases]\na=host=h\nb=user=w\nc=\n*=");
    let told = new.keep_fixed(&old);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("database a: losing forced user") && told[1].contains(" *: "));
    let forced = |name: &str| new.database(name).unwrap().forced_user.clone();
    assert_eq!(forced("a").as_deref(), Some("x"));
    assert_eq!(new.databases["a"].server_password.as_deref(), Some("y"));
    assert_eq!((forced("b").as_deref(), forced("c")), (Some("w"), None));
    assert_eq!(forced("other").as_deref(), Some("z"));
    let of_entries = new.settings().into_iter().filter_map(|setting| {
        let is_login = ["user", "server_user"].contains(&setting.name);
        let (entry, value) = (setting.entry?, setting.value?);
        is_login.then(|| format!("{entry}={value}"))
    });
    let shown: Vec<_> = of_entries.collect();
    assert_eq!(
        shown,
        ["databases.\"*\"=z", "databases.a=x", "databases.b=w"]
    );
}

#[test]
fn a_reload_without_the_auth_file_keeps_the_secrets() {
    let old = good("[pgbouncer]\nauth_file=users.txt\n[users]\nbob=pool_size=1");
    let (mut new, _) = load("[pgbouncer]\nauth_file=gone.txt\n[users]\nbob=pool_size=2").unwrap();
    new.keep_fixed(&old);
    let (alice, bob) = (new.user("alice").unwrap(), new.user("bob").unwrap());
    assert!(matches!(alice.secret, Some(Secret::Plain(_))));
    assert!(matches!(
        (&bob.secret, bob.pool_size),
        (Some(Secret::Md5(_)), Some(2))
    ));
    let mut without = good("[users]\nbob=");
    without.keep_fixed(&old);
    assert!(
        without.user("alice").is_none(),
        "it was taken out of the settings"
    );
}

#[test]
fn passwords_are_not_printed() {
    for entry in [
        "a=pasword=oops",
        "a=password=very oops",
        "a=password=oops port=x",
        "a=password='oops",
        "a=password=very port=oops",
        "a=port=oops passwd=very",
    ] {
        let said = mistakes(&format!("[databases]\n{entry}"));
        assert!(
            !said.is_empty() && !said.concat().contains("oops"),
            "{said:?}"
        );
    }
    let config = good("[pgbouncer]\nauth_file=users.txt\n[databases]\na=user=u password=oops");
    let printed = format!("{config:?}");
    assert!(
        !printed.contains("oops") && !printed.contains("secret\""),
        "{printed}"
    );
}

#[test]
fn the_user_file_is_read_by_a_reload_only() {
    let config = good("[pgbouncer]\nauth_type=md5\nauth_file=users.txt");
    let why = config.with("auth_file", "other.txt").unwrap_err();
    assert_eq!(why, "write it into the configuration file and RELOAD");
    assert!(config.with("auth_file", "users.txt").is_ok());
    let open = config.with("auth_type", "any").unwrap();
    assert!(open.with("auth_type", "md5").is_ok(), "it was read");
    let unread = good("[pgbouncer]\nauth_type=any\nauth_file=users.txt");
    assert!(unread.with("auth_type", "md5").is_err());
    assert!(unread.with("auth_type", "pam").is_ok());
    let no_file = good("[pgbouncer]\nauth_type=any");
    assert!(no_file.with("auth_type", "trust").is_ok());
}

#[test]
fn a_password_is_the_forced_users() {
    assert_eq!(
        warnings("[databases]\na=host=h password=oops\n*=password=oops\nb=user=u password=oops"),
        [
            "password of database \"a\" (h.ini:2) has no effect without user: write user=, or the \
             users' secrets into auth_file",
            "password of database \"*\" (h.ini:3) has no effect without user: write user=, or the \
             users' secrets into auth_file",
        ]
    );
}

#[test]
fn lookups_that_the_unauthenticated_place_are_warned_of() {
    let open = [
        "[pgbouncer]\nauth_user=a\n[databases]\n*=host=h",
        "[databases]\n*=host=h auth_user=a",
    ];
    for text in open {
        let said = warnings(text);
        let about = said.iter().filter(|text| text.contains("auth_dbname"));
        assert_eq!(about.count(), 1, "{text}: {said:?}");
    }
    good("[pgbouncer]\nauth_user=a\n[databases]\nb=host=h");
    good("[pgbouncer]\nauth_user=a\nauth_dbname=b\n[databases]\n*=host=h");
    good("[databases]\n*=host=h auth_user=a auth_dbname=b");
    good("[databases]\n*=host=h");
}

#[test]
fn metrics_for_everybody_are_warned_of() {
    let at = |rest: &str| format!("[pgbouncer]\nhttp_listen_port=9127\n{rest}");
    assert_eq!(
        warnings(&at("http_listen_addr=0.0.0.0")),
        [
            "http_listen_addr = 0.0.0.0 without http_token: whoever reaches it reads the names of \
          databases and users in /metrics"
        ]
    );
    let page = warnings(&at("http_listen_addr=0.0.0.0\nhttp_page=1"));
    assert!(
        page[0].ends_with("is not served: set http_token"),
        "{page:?}"
    );
    good(&at("http_listen_addr=0.0.0.0\nhttp_token=x"));
    good(&at("http_listen_addr=::1"));
    good("[pgbouncer]\nhttp_listen_addr=0.0.0.0");
}

#[test]
fn which_changes_need_new_servers() {
    let database = |text: &str| {
        good(&format!("[databases]\na={text}"))
            .database("a")
            .unwrap()
    };
    let base = database("host=h user=u password=p pool_size=1");
    let same = database("host=h user=u password=q pool_size=2 dbname=a require_auth=md5 port=5432");
    assert!(base.same_servers(&same, "u"));
    assert_eq!(base.fingerprint("u"), same.fingerprint("u"));
    for other in [
        "host=i user=u",
        "host=h",
        "host=h user=u port=1",
        "host=h user=u dbname=b",
        "host=h user=u connect_query=x",
        "host=h user=u load_balance_hosts=disable",
        "host=h user=u sslmode=require",
        "host=h user=u sslnegotiation=direct",
        "host=h user=u auth_query=x",
        "host=h user=u auth_dbname=x",
    ] {
        let other = database(other);
        assert!(!base.same_servers(&other, "u"), "{other:?}");
        assert_ne!(base.fingerprint("u"), other.fingerprint("u"), "{other:?}");
    }
}

#[test]
fn included_files_go_on_in_their_section() {
    let config = good("[pgbouncer]\nverbose=1\n%include more.ini\nbob = pool_size=4\n");
    assert_eq!(config.user("alice").unwrap().pool_size, Some(3));
    assert_eq!(config.user("bob").unwrap().pool_size, Some(4));
}

#[test]
fn what_pgbouncer_refuses_is_listed_with_its_line() {
    let text = "[databases]\na = host=a sslmode=require query_wait_timeout=5 pool_size=4\n\
                [users]\nu = pin_limit=3 pool_size=2\n\
                [pgbouncer]\nquery_wait_timeout = 5\nsession_state = share\n%include more.ini\n";
    let mut files = |_: &str| Ok("pool_idle_timeout = 9\nmax_client_conn = 7\n".to_owned());
    let reading = Config::read("h.ini", text, &mut files);
    assert_eq!(reading.mistakes, []);
    let seen: Vec<_> = reading
        .beyond_pgbouncer
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        seen,
        [
            "[databases] a sslmode (h.ini:2)",
            "[databases] a query_wait_timeout (h.ini:2)",
            "[users] u pin_limit (h.ini:4)",
            "[pgbouncer] session_state (h.ini:7)",
            "[pgbouncer] pool_idle_timeout (more.ini:1)",
        ]
    );
}

#[test]
fn what_pgbouncer_runs_with_runs() {
    for (line, said) in [
        (
            "a = host=h port=7200;",
            "database \"a\", port (h.ini:2): 7200; is read as 7200",
        ),
        (
            "a = host=h, port=7200, dbname=b",
            "database \"a\", port (h.ini:2): 7200, is read as 7200",
        ),
        (
            "a = host=h port=7200,",
            "database \"a\", port (h.ini:2): 7200, is read as 7200",
        ),
        (
            "a = host=h port=7200; user=u password=s",
            "database \"a\", port (h.ini:2): only the digits of its value are read",
        ),
        (
            "a = host=h port=7200 connect_query=\"select 1\"",
            "database \"a\", connect_query (h.ini:2): its value is read without the double quotes: \
             write single ones",
        ),
    ] {
        let (config, warnings) = load(&format!("[databases]\n{line}")).unwrap();
        assert!(
            warnings.iter().any(|w| w.to_string() == said),
            "{line}: {warnings:?}"
        );
        let a = &config.databases["a"];
        assert_eq!(a.hosts, [at(Host::Name("h".into()), 7200)], "{line}");
        let query = line.contains("query").then_some("select 1");
        assert_eq!(a.connect_query.as_deref(), query, "{line}");
    }
    let (config, warnings) = load("[databases]\n* = host=h password='abc\na = host=h").unwrap();
    assert!(config.fallback.is_none() && config.databases.contains_key("a"));
    let said = "database \"*\" (h.ini:2) can't be read and is left out: ";
    assert!(warnings[0].to_string().starts_with(said), "{warnings:?}");
    assert!(!warnings[0].to_string().contains("abc"));
    let (config, warnings) = load("[pgbouncer]\nauth_file = colon.txt").unwrap();
    assert!(config.users["app"].listed && config.users["app"].secret.is_some());
    let said = "auth file (colon.txt:2): what stands between the user and the password is skipped";
    assert!(warnings[0].to_string().starts_with(said), "{warnings:?}");
    for line in [
        "a = port=x7200",
        "a = port=0;",
        "a = pool_size=;",
        "a = port=99999,",
        "a = host=b,c port=7200,0",
        "a = host=b,c port=7200,x1",
        "a = auth_dbname=howdah",
    ] {
        assert!(load(&format!("[databases]\n{line}")).is_err(), "{line}");
    }
}
