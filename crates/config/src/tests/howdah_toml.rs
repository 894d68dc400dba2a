//! `howdah.toml`: what is written there means what it means in an ini file.

use std::collections::BTreeMap;

use super::super::setting::Setting;
use super::super::table::{find, in_scope};
use super::super::value::Kind;
use super::super::*;

/// Files and variables of a test.
#[derive(Default)]
pub struct World {
    pub files: BTreeMap<&'static str, &'static str>,
    pub variables: BTreeMap<&'static str, &'static str>,
}

impl Surroundings for World {
    fn file(&mut self, path: &str) -> Result<String, String> {
        let text = self.files.get(path).map(|text| text.to_string());
        text.ok_or_else(|| "No such file or directory".into())
    }

    fn files(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let (beginning, end) = pattern.split_once('*').unwrap_or((pattern, ""));
        let names = self.files.keys().map(|name| name.to_string());
        Ok(names
            .filter(|name| name.starts_with(beginning) && name.ends_with(end))
            .collect())
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        self.variables.get(name).map(|value| value.to_string())
    }

    fn variables(&mut self, beginning: &str) -> Vec<(String, String)> {
        let all = self.variables.iter();
        let all = all.filter(|(name, _)| name.starts_with(beginning));
        all.map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }
}

/// A world with these files, and a variable.
fn world(files: &[(&'static str, &'static str)]) -> World {
    World {
        files: files.iter().copied().collect(),
        variables: [("APP_PASSWORD", "hush"), ("NOTHING", "")].into(),
    }
}

fn read_in(text: &str, files: &[(&'static str, &'static str)]) -> Reading {
    Config::read_among("etc/h.toml", text, &mut world(files))
}

fn read(text: &str) -> Reading {
    read_in(text, &[])
}

/// A text without mistakes and warnings.
fn good(text: &str) -> Config {
    let reading = read(text);
    assert_eq!(
        (reading.mistakes, reading.warnings),
        (vec![], vec![]),
        "{text}"
    );
    reading.config
}

/// The mistakes, as they are told, with the lines that are shown.
fn mistakes(text: &str, files: &[(&'static str, &'static str)]) -> Vec<String> {
    let reading = read_in(text, files);
    let told = |mistake: &Mistake| format!("{mistake}\n{}", mistake.shown_line());
    reading.mistakes.iter().map(told).collect()
}

/// A value of a setting's kind that is not its default: as text, and in TOML.
pub fn sample(setting: &Setting) -> (String, String) {
    let quoted = |text: &str| (text.to_owned(), format!("{text:?}"));
    match (setting.kind, setting.name) {
        (_, "url") => quoted("postgresql://u:p@h:7/x"),
        (_, "http_listen_addr") => quoted("::1"),
        (_, "ready_fails_when") => (
            "paused, draining".into(),
            "[\"paused\", \"draining\"]".into(),
        ),
        (_, "proxy_protocol") => ("10.0.0.0/8, ::1".into(), "[\"10.0.0.0/8\", \"::1\"]".into()),
        (Kind::Flag, _) if setting.default == Some("1") => ("0".into(), "false".into()),
        (Kind::Flag, _) => ("1".into(), "true".into()),
        (Kind::Number, _) => ("7".into(), "7".into()),
        (Kind::Seconds, _) => ("90".into(), "\"1.5min\"".into()),
        (Kind::Share, _) => ("0.5".into(), "0.5".into()),
        (Kind::HttpUrl, _) => quoted("http://h:1/x"),
        (Kind::Text | Kind::Secret, _) => quoted("hush"),
        (Kind::Ports, _) => ("7".into(), "7".into()),
        (Kind::List, _) => ("a, b".into(), "[\"a\", \"b\"]".into()),
        (Kind::Lines, _) => (
            "local all all trust".into(),
            "[\"local all all trust\"]".into(),
        ),
        (Kind::Methods, _) => ("md5, none".into(), "[\"md5\", \"none\"]".into()),
        (Kind::Parameters, _) => ("-c a=b".into(), "{ a = \"b\" }".into()),
        (Kind::Word(words), _) => {
            let other = words.iter().find(|word| Some(**word) != setting.default);
            quoted(other.unwrap())
        }
    }
}

#[test]
fn each_setting_means_the_same_in_each_scope() {
    let heads = [
        (Scope::Database, "databases", "d"),
        (Scope::User, "users", "u"),
        (Scope::Peer, "peers", "1"),
        (Scope::Host, "hosts", "h"),
    ];
    for setting in in_scope(Scope::Global) {
        let ((text, toml), name) = (sample(setting), setting.name);
        let ini = Config::read(
            "h.ini",
            &format!("[pgbouncer]\n{name} = {text}"),
            &mut |_| Ok(String::new()),
        );
        let toml = read(&format!("[howdah]\n{name} = {toml}"));
        let shown = |reading: &Reading| {
            let mut settings = reading.config.show();
            let shown = settings.find(|shown| shown.key == name).unwrap();
            (shown.value, reading.config.written.contains_key(name))
        };
        assert_eq!(shown(&ini), shown(&toml), "{name}");
        let is_kept = name == "conffile" || setting.is_secret();
        assert!(
            is_kept || shown(&toml).0.as_deref() != setting.default,
            "{name}"
        );
    }
    for (scope, section, entry) in heads {
        for setting in in_scope(scope) {
            let ((text, toml), name) = (sample(setting), setting.name);
            let twin = matches!(
                (scope, name),
                (
                    Scope::Database,
                    "user" | "password" | "options" | "reserve_pool"
                )
            );
            let ini = format!("[pgbouncer]\n[{section}]\n{entry} = {name}='{text}'");
            let ini = Config::read("h.ini", &ini, &mut |_| Ok(String::new())).config;
            let toml = read(&format!("[howdah]\n[{section}.{entry}]\n{name} = {toml}"));
            if twin {
                let said = toml.mistakes[0].to_string();
                assert!(said.contains("write "), "{said}");
                continue;
            }
            let toml = toml.config;
            assert_eq!(ini.databases, toml.databases, "{section} {name}");
            assert_eq!(ini.users, toml.users, "{section} {name}");
            assert_eq!(ini.peers, toml.peers, "{section} {name}");
            assert_eq!(ini.hosts, toml.hosts, "{section} {name}");
            let host = match scope {
                Scope::Database | Scope::Peer => "host = 'x'",
                _ => "",
            };
            let empty = read(&format!("[howdah]\n[{section}.{entry}]\n{host}")).config;
            let same = (&empty.databases, &empty.users, &empty.peers, &empty.hosts)
                == (&toml.databases, &toml.users, &toml.peers, &toml.hosts);
            assert!(!same, "{section} {name} has an effect");
        }
    }
    for setting in in_scope(Scope::Member) {
        let ((text, toml), name) = (sample(setting), setting.name);
        let toml = read(&format!("[howdah]\n[databases.d.users.u]\n{name} = {toml}"));
        let mut expected = User {
            name: "u".into(),
            ..User::default()
        };
        assert!(setting.member.unwrap()(&mut expected, &text), "{name}");
        let seen = toml.config.databases["d"].member("u").unwrap().clone();
        let expected = User {
            listed: seen.listed,
            secret: seen.secret.clone(),
            ..expected
        };
        assert_eq!(seen, expected, "{name}");
    }
}

/// SHOW SETTINGS has what was written in each scope, with its place, and stars for secrets.
#[test]
fn each_setting_is_shown_in_each_scope() {
    for (scope, head) in [
        (Scope::Global, "howdah"),
        (Scope::Database, "databases.d"),
        (Scope::User, "users.u"),
        (Scope::Member, "databases.d.users.u"),
        (Scope::Peer, "peers.1"),
        (Scope::Host, "hosts.h"),
    ] {
        for setting in in_scope(scope) {
            let ((text, toml), name) = (sample(setting), setting.name);
            let head_line = if scope == Scope::Global {
                String::new()
            } else {
                format!("[{head}]")
            };
            let config = read(&format!("[howdah]\n\n{head_line}\n{name} = {toml}")).config;
            let all = config.settings();
            let place = Some("etc/h.toml:4:1".to_owned());
            let mut here = all.iter().filter(|shown| shown.place == place);
            let Some(shown) = here.next() else {
                assert!(
                    scope == Scope::Database
                        && ["user", "password", "options", "reserve_pool"].contains(&name),
                    "{head} {name}"
                );
                continue;
            };
            if name == "url" {
                // It is shown as what it has.
                let mut shown = std::iter::once(shown).chain(here);
                assert!(shown.all(|part| part.value.as_deref() != Some("p")));
                continue;
            }
            let entry = (scope != Scope::Global).then(|| head.to_owned());
            assert_eq!((&shown.entry, here.next()), (&entry, None), "{head} {name}");
            let value = shown.value.clone().unwrap_or_default();
            assert!(
                !setting.is_secret() || !value.contains(&text),
                "{head} {name}: {value}"
            );
            let is_kept = scope == Scope::Global || setting.is_secret();
            assert!(
                is_kept || value == text,
                "{head} {name}: {value} is not {text}"
            );
        }
    }
}

#[test]
fn the_nearest_value_counts() {
    let config = good(
        "[howdah]\nlisten_addr = \"\"\npool_mode = 'statement'\nmin_pool_size = 1\n\
         [databases.d]\npool_mode = 'transaction'\npool_size = 2\nmin_pool_size = 2\n\
         [databases.d.users.u]\npool_size = 3\nmin_pool_size = 3\nquery_timeout = 0\n\
         [databases.d.users.v]\n\
         [users]\nu.pool_size = 4\nu.query_timeout = \"1min\"\nv = { pool_size = 5 }\n",
    );
    let database = config.database("d").unwrap();
    let of = |user| config.scopes(Some(&database), user);
    let sizes = [Some("u"), Some("v"), None].map(|user| of(user).pool_size());
    assert_eq!(sizes, [3, 5, 2]);
    let least = [Some("u"), Some("v"), None].map(|user| of(user).min_pool_size());
    assert_eq!(least, [3, 2, 2]);
    assert_eq!(
        of(Some("u")).query_timeout(),
        Duration::ZERO,
        "zero is a value"
    );
    assert_eq!(of(Some("u")).pool_mode(), PoolMode::Transaction);
}

#[test]
fn servers_log_in_as_the_nearest_place_says() {
    let config = good(
        "[howdah]\n[databases.d]\nserver_user = 'd_owner'\nserver_password = 'd_word'\n\
         parameters = { a = '1', b = '1' }\n\
         [databases.d.users.u]\nserver_user = 'u_owner'\nserver_password = 'u_word'\n\
         parameters = { B = '2' }\n\
         [databases.d.users.v]\n[databases.e.users.u]\npassword = 'e_word'\n\
         [users.u]\npassword = 'own'\n[users.w]\npassword = 'w_word'\n\
         [databases.f.users.u]\nserver_user = 'w'\n",
    );
    let known = |database: &str, user: &str| {
        let entry = config.database(database).unwrap();
        let pooled = entry.pooled_as(user);
        let secret = match config.server_secret(&entry, pooled) {
            ServerSecret::Written(Some(Secret::Plain(ref text))) => text.clone(),
            ServerSecret::Written(other) => format!("{other:?}"),
            other => format!("{other:?}"),
        };
        let user = entry.server_user(pooled);
        format!("{pooled} {user} {secret} {}", entry.lends_secrets(pooled))
    };
    for (database, user, expected) in [
        ("d", "u", "u u_owner u_word false"),
        ("d", "v", "v d_owner d_word false"),
        ("d", "x", "d_owner d_owner d_word false"),
        ("e", "u", "u u e_word true"),
        ("e", "w", "w w w_word true"),
        ("f", "u", "u w w_word false"),
    ] {
        assert_eq!(known(database, user), expected, "{database} {user}");
    }
    let secret = |database: &str, user: &str| config.listed(database, user).flatten().cloned();
    assert_eq!(secret("e", "u"), Some(Secret::Plain("e_word".into())));
    assert_eq!(secret("d", "u"), Some(Secret::Plain("own".into())));
    assert_eq!(config.listed("d", "v"), None);
    let d = config.database("d").unwrap();
    assert_eq!(d.session("u").options(), "-c a=1 -c B=2");
    assert_eq!(d.session("d_owner").options(), "-c a=1 -c b=1");
    assert_ne!(d.fingerprint("u"), d.fingerprint("v"));
}

#[test]
fn a_forced_user_that_stays_gives_its_pool_no_other_login() {
    let forced = good("[howdah]\n[databases.d]\nserver_user = 'app'\nserver_password = 'word'");
    let lost = |members: &str| good(&format!("[howdah]\n[databases.d]\n{members}"));
    let refused = lost("[databases.d.users.app]\nserver_user = 'admin'").refused_after(&forced);
    let refused: Vec<_> = refused.iter().map(ToString::to_string).collect();
    assert_eq!(
        refused,
        [
            "database \"d\": user \"app\" has the pool of all until a restart, and a server_user of \
          its own: give the database another server_user, or leave the user's out, or restart"
        ]
    );
    let mut new = lost(
        "[databases.d.users.app]\n[databases.d.users.u]\n\
         [databases.d.users.v]\nserver_user = 'v_owner'",
    );
    assert_eq!(new.refused_after(&forced), []);
    assert_eq!(new.keep_fixed(&forced).len(), 1);
    let d = &new.databases["d"];
    let login = |user| {
        (
            d.server_user(d.pooled_as(user)),
            d.server_password(d.pooled_as(user)).map(|word| &**word),
        )
    };
    assert_eq!(login("carol"), ("app", Some("word")));
    assert_eq!(login("app"), ("app", Some("word")));
    assert_eq!(
        login("u"),
        ("u", None),
        "not silently as the old forced user"
    );
    assert_eq!(login("v"), ("v_owner", None));
    assert_eq!(lost("").refused_after(&lost("[databases.d.users.app]")), []);
}

#[test]
fn hosts_may_have_their_ports() {
    let hosts = |value: &str| {
        let config = good(&format!("[howdah]\n[databases.d]\nhost = {value}"));
        let hosts = config.databases["d"].hosts.iter().map(HostPort::to_string);
        hosts.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        hosts("[\"10.0.0.7\", \"10.0.0.8:5433\"]"),
        "10.0.0.7:5432 10.0.0.8:5433"
    );
    assert_eq!(hosts("\"a,b\""), "a:5432 b:5432");
    assert_eq!(
        hosts("[\"[::1]:7\", \"::2\", \"/tmp\"]"),
        "[::1]:7 [::2]:5432 /tmp/.s.PGSQL.5432"
    );
    assert_eq!(hosts("\"a\"\nport = 7"), "a:7");
    assert_eq!(hosts("[\"a\", \"b\"]\nport = [7, 8]"), "a:7 b:8");
}

#[test]
fn secrets_may_stand_elsewhere() {
    let text = "[howdah]\nhttp_token = { file = 'token' }\n[users.u]\npassword = { env = 'APP_PASSWORD' }\n\
                [databases.d.users.u]\nserver_password_file = '/run/word'\n";
    let files = [("etc/token", "t0ken\r\n"), ("/run/word", "w ord\n")];
    let reading = read_in(text, &files);
    assert_eq!((&reading.mistakes, reading.files), (&vec![], 3));
    let config = reading.config;
    assert_eq!(&*config.globals.http_token, "t0ken");
    assert_eq!(config.users["u"].secret, Some(Secret::Plain("hush".into())));
    let member = config.databases["d"].member("u").unwrap();
    assert_eq!(member.server_password.as_deref(), Some("w ord"));
    let ini = "[pgbouncer]\nhttp_token_file = etc/token\n[databases]\nd = user=u password_file=/run/word\n\
               [users]\nu = password_file=etc/token\n";
    let config = Config::read_among("h.ini", ini, &mut world(&files));
    assert_eq!(config.mistakes, []);
    assert_eq!(
        config.config.databases["d"].server_password.as_deref(),
        Some("w ord")
    );
    assert_eq!(
        config.config.users["u"].secret,
        Some(Secret::Plain("t0ken".into()))
    );
}

#[test]
fn a_fetched_password_of_a_user_ends_for_clients_and_servers() {
    let text = "[howdah]\n[users.u]\npassword = { command = ['/bin/t'] }\n[users.v]\npassword = 'v'\n\
                [databases.d]\n[databases.d.users.u]\npassword = 'own'\n[databases.e]\n";
    let mut config = read_in(text, &[]).config;
    assert!(config.users_await_passwords());
    let lacks = |config: &Config, now| config.lacks_listed("e", "u", now);
    let why = lacks(&config, 1);
    assert_eq!(
        why.as_deref(),
        Some("command /bin/t: it has not answered yet")
    );
    let source = config.secret_sources().into_keys().next().unwrap();
    let secret = Secret::Plain("new".into());
    let known = FetchedSecret {
        value: Some(FetchedValue::password(secret)),
        until: Some(10),
        ..FetchedSecret::default()
    };
    config.take_fetched(&Fetched::of([(source, Arc::new(known))].into()));
    assert_eq!(lacks(&config, 9), None);
    let why = lacks(&config, 10);
    assert_eq!(
        why.as_deref(),
        Some("command /bin/t: the password has ended")
    );
    for (database, user, fetched) in [("e", "u", true), ("d", "u", false), ("e", "v", false)] {
        let entry = config.database(database).unwrap();
        let secret = config.server_secret(&entry, user);
        let is_fetched = matches!(secret, ServerSecret::Fetched { .. });
        assert_eq!(is_fetched, fetched, "{database} {user}");
        assert_eq!(config.lacks_listed(database, user, 10).is_some(), fetched);
    }
}

#[test]
fn passwords_may_have_sources() {
    let text = "[howdah]\n[users.u]\npassword = ['a', 'b']\n[users.v]\npassword = { file = 'word' }\n\
                [databases.d]\nserver_user = 'x'\nserver_password = { command = ['/bin/t', 'a b'] }\n\
                [databases.d.users.u]\nserver_password = { source = 'aws-rds', region = 'eu-west-1' }\n";
    let files = [("etc/word", "w\n")];
    let mut config = read_in(text, &files).config;
    let source = |database: &str, user| {
        let entry = config.database(database).unwrap();
        entry.password_source(user).map(ToString::to_string)
    };
    assert_eq!(source("d", "x").as_deref(), Some("command /bin/t"));
    assert_eq!(source("d", "u").as_deref(), Some("aws-rds"));
    let sources = config.secret_sources();
    let all: Vec<_> = sources.keys().map(ToString::to_string).collect();
    assert_eq!(all, ["file etc/word", "command /bin/t", "aws-rds"]);
    assert_eq!(
        config
            .command_files
            .iter()
            .map(|f| &**f)
            .collect::<Vec<_>>(),
        ["etc/h.toml"]
    );
    assert_eq!(
        config.second_secret("d", "u"),
        Some(&Secret::Plain("b".into()))
    );
    // A new value of a file is the user's password, without a reload.
    let secret = Secret::Plain("new".into());
    let known = FetchedSecret {
        value: Some(FetchedValue::password(secret)),
        ..FetchedSecret::default()
    };
    let file = sources.keys().next().unwrap().clone();
    config.take_fetched(&Fetched::of([(file, Arc::new(known))].into()));
    assert_eq!(config.users["v"].secret, Some(Secret::Plain("new".into())));
    assert!(!config.users_await_passwords());
    let ini = "[pgbouncer]\n[databases]\nd = user=u password_command='/bin/t a  b'\n\
               e = host=db.y sslmode=verify-full user=u password_source='aws-rds sign_host=db.x'\n[users]\nu = password_file=etc/word\n";
    let config = Config::read_among("h.ini", ini, &mut world(&files));
    assert_eq!(config.mistakes, []);
    let command = config.config.databases["d"].password_source("u").cloned();
    let words = ["/bin/t", "a", "b"].map(String::from).to_vec();
    assert_eq!(command, Some(SecretSource::Command(words)));
    let toml = to_toml("h.ini", ini, &mut |_| Ok("w".into())).unwrap();
    for line in [
        "server_password = { command = [\"/bin/t\", \"a\", \"b\"] }",
        "server_password = { source = \"aws-rds\", sign_host = \"db.x\" }",
    ] {
        assert!(toml.contains(line), "{toml}");
    }
}

#[test]
fn files_include_others() {
    let files = [
        (
            "etc/conf.d/a.toml",
            "include = 'more/c.toml'\n[databases.d]\npool_size = 1",
        ),
        (
            "etc/conf.d/b.toml",
            "[databases.d]\nhost = 'h'\n[databases.e]\n[users.u]",
        ),
        ("etc/conf.d/more/c.toml", "[users.u]\npool_size = 2"),
    ];
    let reading = read_in("include = ['conf.d/*.toml']\n[howdah]\n", &files);
    assert_eq!((reading.mistakes, reading.warnings), (vec![], vec![]));
    assert_eq!(reading.files, 4);
    let d = &reading.config.databases["d"];
    assert_eq!((d.pool_size, d.host.as_deref()), (Some(1), Some("h")));
    assert_eq!(reading.config.users["u"].pool_size, Some(2));
}

/// Each text with what is said about it, to its last word.
#[test]
fn mistakes_have_their_place_and_their_remedy() {
    let files: &[(&'static str, &'static str)] = &[
        ("etc/again.toml", "[howdah]\npool_mode = 'session'"),
        ("etc/self.toml", "include = 'self.toml'"),
        ("etc/empty", "\n"),
        ("etc/broken.toml", "[users.u]\npassword = 'hush"),
    ];
    for (text, said) in [
        (
            "",
            "main section missing from config file etc/h.toml: write [howdah], if only with its defaults\n",
        ),
        (
            "[howdah]\nlisten_port = \"6432\"",
            "listen_port (etc/h.toml:2:1): must be an integer from 0 to 65535, without quotes\n  2 | listen_port = ...\n    |               ^\n",
        ),
        (
            "[howdah]\n  pool_mode = 'transactoin'",
            "invalid value \"transactoin\" for parameter pool_mode in configuration (etc/h.toml:2:3): must be one of session, transaction, statement; did you mean transaction?\n  2 | pool_mode = transactoin\n    |             ^\n",
        ),
        (
            "[howdah]\nquery_timeout = '10 sec'",
            "query_timeout (etc/h.toml:2:1): must be a number of seconds, 0 or more, or a text with a unit: \"10s\", with ms, s, min, h or d\n  2 | query_timeout = ...\n    |                 ^\n",
        ),
        (
            "[howdah]\nquery_timeout = -1",
            "invalid value \"-1\" for parameter query_timeout in configuration (etc/h.toml:2:1): must be a number of seconds, 0 or more\n  2 | query_timeout = -1\n    |                 ^\n",
        ),
        (
            "[howdah]\nhttp_page = 'yes'",
            "http_page (etc/h.toml:2:1): must be true or false, without quotes\n  2 | http_page = ...\n    |             ^\n",
        ),
        (
            "[howdah]\nadmin_users = ['a', 'b,c']",
            "admin_users (etc/h.toml:2:1): each element must be one word: no commas and no blanks in it\n  2 | admin_users = ...\n    |               ^\n",
        ),
        (
            "[howdah]\nadmin_users = ['a', 1]",
            "admin_users (etc/h.toml:2:1): must be an array of texts, and one element is an integer\n  2 | admin_users = ...\n    |               ^\n",
        ),
        (
            "[howdah]\npool_mod = 'hush'",
            "invalid value \"...\" for parameter pool_mod in configuration (etc/h.toml:2:1): there is no such setting; did you mean pool_mode?\n  2 | pool_mod = ...\n    | ^\n",
        ),
        (
            "[howdah]\n[databases.d]\npool_siez = 1",
            "database \"d\", pool_siez (etc/h.toml:3:1): there is no such setting; did you mean pool_size?\n  3 | pool_siez = ...\n    | ^\n",
        ),
        (
            "[howdah]\n[databases.d.users.u]\nserver_usr = 'x'",
            "database \"d\", user \"u\", server_usr (etc/h.toml:3:1): there is no such setting; did you mean server_user?\n  3 | server_usr = ...\n    | ^\n",
        ),
        (
            "[howdah]\n[databases.d]\npool_size = -1",
            "database \"d\", pool_size = -1 (etc/h.toml:3:1): must be an integer\n  3 | pool_size = -1\n    |             ^\n",
        ),
        (
            "[howdah]\n[databases.d]\nuser = 'x'",
            "database \"d\", user (etc/h.toml:3:1): write server_user\n  3 | user = ...\n    | ^\n",
        ),
        (
            "[howdah]\n[databases.d]\nparameters = { user = 'x' }",
            "database \"d\", parameters = -c user=x (etc/h.toml:3:1): must be settings of PostgreSQL: `-c NAME=VALUE ...`, but not user, database, replication, options and names that begin with _pq_.\n  3 | parameters = -c user=x\n    |              ^\n",
        ),
        (
            "[howdah]\n[databases.d]\nparameters = 'a=b'",
            "database \"d\", parameters (etc/h.toml:3:1): must be a table: { NAME = \"VALUE\" }, not a text\n  3 | parameters = ...\n    |              ^\n",
        ),
        (
            "[howdah]\n[databases.d]\nhost = ['a:1', 'b']\nport = 2",
            "database \"d\", port is already set at etc/h.toml:3:1 (etc/h.toml:4:1): leave one of the two out\n  4 | port = ...\n    | ^\n",
        ),
        (
            "[howdah]\n[databases.d]\nserver_user = 'f'\n[databases.d.users.f]\nserver_user = 'g'",
            "database \"d\": user \"f\" has the pool of all, and a server_user of its own (etc/h.toml:2:12): leave that server_user out, or give the database another one\n  2 | d = ...\n    | ^\n",
        ),
        (
            "[howdah]\n[users]\nu = 'x'",
            "users.u is a text (etc/h.toml:3:1): write it as a table: [users.NAME]\n  3 | u = ...\n    | ^\n",
        ),
        (
            "[howdah]\n[[databases]]\nname = 'x'",
            "databases is an array (etc/h.toml:2:3): write it as a table: [databases.NAME]\n  2 | databases = ...\n    | ^\n",
        ),
        (
            "[howdah]\n[database.d]",
            "invalid section \"database\" in configuration (etc/h.toml:2:2): there are [howdah], [databases.NAME], [users.NAME], [hosts.NAME], [peers.ID] and [vault]; did you mean databases?\n  2 | database = ...\n    | ^\n",
        ),
        (
            "[pgbouncer]\npool_mode = 'session'\n[howdah]",
            "invalid section \"pgbouncer\" in configuration (etc/h.toml:1:2): write [howdah] for it\n  1 | pgbouncer = ...\n    | ^\n",
        ),
        (
            "pool_mode = 'session'\n[howdah]",
            "pool_mode stands before any section (etc/h.toml:1:1): begin with [howdah]\n  1 | pool_mode = ...\n    | ^\n",
        ),
        (
            "include = 'again.toml'\n[howdah]\npool_mode = 'session'",
            "pool_mode is already set at etc/again.toml:2:1 (etc/h.toml:3:1): leave one of the two out\n  3 | pool_mode = ...\n    | ^\n",
        ),
        (
            "include = 'self.toml'\n[howdah]",
            "include of \"etc/self.toml\" goes in a circle, or too deep (etc/self.toml:1:1): a file can't include itself, and at most 10 files nest\n",
        ),
        (
            "include = 'gone.toml'\n[howdah]",
            "could not load file \"etc/gone.toml\": No such file or directory (etc/h.toml:1:1): check the path, which counts from the folder of the file that names it, and that the file may be read\n",
        ),
        (
            "include = 1\n[howdah]",
            "include has an integer (etc/h.toml:1:1): write an array of paths: include = [\"conf.d/*.toml\"]\n",
        ),
        (
            "include = 'broken.toml'\n[howdah]",
            "syntax error in configuration (etc/broken.toml:2:17): invalid literal string, expected `'`\n",
        ),
        (
            "[howdah]\nhttp_token = { file = 'empty' }",
            "http_token (etc/h.toml:2:1): could not read \"etc/empty\": it is empty\n  2 | http_token = ...\n    |              ^\n",
        ),
        (
            "[howdah]\nhttp_token = { env = 'GONE' }",
            "http_token (etc/h.toml:2:1): there is no variable GONE\n  2 | http_token = ...\n    |              ^\n",
        ),
        (
            "[howdah]\nhttp_token = { env = 'NOTHING' }",
            "http_token (etc/h.toml:2:1): the variable NOTHING is empty\n  2 | http_token = ...\n    |              ^\n",
        ),
        (
            "[howdah]\nhttp_token = { url = 'x' }",
            "http_token (etc/h.toml:2:1): write a text, { file = \"PATH\" } or { env = \"NAME\" }\n  2 | http_token = ...\n    |              ^\n",
        ),
        (
            "[howdah]\nhttp_token_file = 'gone'",
            "http_token_file: could not read \"etc/gone\": No such file or directory (etc/h.toml:2:1): name a file that has the secret, and that Howdah may read\n",
        ),
        (
            "[howdah]\nhttp_token_file = 1",
            "http_token_file (etc/h.toml:2:1): must be the name of a file, not an integer\n  2 | http_token_file = ...\n    | ^\n",
        ),
        (
            "[howdah]\nhttp_token = 'hu sh'",
            "invalid value \"...\" for parameter http_token in configuration (etc/h.toml:2:1): must be any text of letters, digits and -_.~\n  2 | http_token = ...\n    |              ^\n",
        ),
        (
            "[howdah]\nlogfile = 'a\u{fffd}'",
            "invalid value \"a\u{fffd}\" for parameter logfile in configuration (etc/h.toml:2:1): there are bytes in it that are not UTF-8: write the file in UTF-8\n  2 | logfile = a\u{fffd}\n    |           ^\n",
        ),
        (
            "[howdah]\nlogfile = \"a\\u0000\"",
            "invalid value \"a\0\" for parameter logfile in configuration (etc/h.toml:2:1): there is a zero byte in it\n  2 | logfile = a \n    |           ^\n",
        ),
        (
            "[howdah]\n[databases.pgbouncer]",
            "database \"pgbouncer\" (etc/h.toml:2:12): database name \"pgbouncer\" is reserved for the console\n  2 | pgbouncer = ...\n    | ^\n",
        ),
    ] {
        let seen = mistakes(text, files);
        assert_eq!(seen, [said], "{text}");
    }
}

#[test]
fn a_syntax_error_shows_nothing_of_its_line() {
    for text in [
        "[users.u]\npassword = hush\n[howdah]\n",
        "[howdah]\n[users.u]\npassword = 'hush\n",
        "[howdah]\n[users.u]\npassword = \"hush\\q\"\n",
        "[howdah]\n[users]\nu = { password = 'a' hush }\n",
        "[howdah]\n[databases.d]\nserver_password = ab\"hush\"\nhost = 'x'\n",
        "[howdah]\n[users.u]\npassword 'hush' = 1\n",
        "[howdah]\nauth_ldap_options = ldapbindpasswd=hush\n",
    ] {
        let seen = mistakes(text, &[]);
        assert!(
            !seen.is_empty() && seen[0].starts_with("syntax error"),
            "{seen:?}"
        );
        assert!(!seen.concat().contains("hush"), "{seen:?}");
    }
    let seen = mistakes("[howdah]\nx = \npool_mode = 'x'\ny = 1 2\n", &[]);
    assert_eq!(seen.len(), 3, "all at once: {seen:?}");
}

/// Whatever is lost or added in a file, no message has a secret.
#[test]
fn damaged_files_show_no_secret() {
    let text = "[howdah]\nhttp_token = 'hush'\nauth_ldap_options = \"ldapbindpasswd=hush\"\n[databases.d]\n\
                server_password = \"hush\"\nurl = 'postgresql://u:hush@h/d'\nconnect_query = '''hush\nhush'''\n\
                [databases.d.users]\nu = { password = 'hush', server_password = \"hush\" }\n[users.u]\npassword = 'hush'\n";
    for (at, _) in text.char_indices() {
        let (before, after) = text.split_at(at);
        let without = [before, &after[1..]].concat();
        let signs = ["'", "\"", "=", "[", "{", "\n", "#", "\\", "."];
        let added = signs.map(|sign| [before, sign, after].concat());
        for text in added.iter().chain([&without, &before.to_owned()]) {
            for said in mistakes(text, &[]) {
                assert!(!said.contains("hush"), "{text}\n---\n{said}");
            }
        }
    }
}

#[test]
fn hostile_files_end_soon() {
    let nested = format!("[howdah]\nx = {}", "[".repeat(1 << 20));
    let seen = mistakes(&nested, &[]);
    assert!(!seen.is_empty() && seen.len() <= 21, "{}", seen.len());
    let dotted = format!("[howdah]\n{}x = 1", "a.".repeat(1 << 18));
    assert!(!mistakes(&dotted, &[]).is_empty());
    let many = "= 1\n".repeat(100_000);
    assert_eq!(mistakes(&many, &[]).len(), 20);
}

#[test]
fn rules_stand_in_the_file() {
    let rules = |text: &str| {
        let reading = read(&format!("[howdah]\nauth_type = 'hba'\n{text}"));
        let told: Vec<_> = reading.mistakes.iter().map(Mistake::to_string).collect();
        (
            format!("{:?}", reading.config.hba)
                .matches("Rule {")
                .count(),
            told,
        )
    };
    let two = "auth_hba = ['local all all peer', 'host all a,b 10.0.0.0/8 scram-sha-256']";
    assert_eq!(rules(two), (2, vec![]));
    let (count, told) = rules("auth_hba = ['local all all magic', 'host all all all md5']");
    assert!(
        count == 1
            && told.len() == 1
            && told[0].contains("line 1")
            && told[0].contains("(auth_hba:1)"),
        "{told:?}"
    );
    let (_, told) = rules(&format!("auth_hba_file = 'x'\n{two}"));
    assert!(told[0].contains("leave one of the two out"), "{told:?}");
    let (_, told) = rules("auth_hba = [1]");
    assert!(
        told[0].contains("must be an array of texts, and one element is an integer"),
        "{told:?}"
    );
}

#[test]
fn what_is_in_force_is_shown_with_its_place() {
    let reading = read(
        "[howdah]\npool_mode = 'session'\nhttp_token = 'hush'\n[databases.d]\npool_size = 1\nserver_user = 'x'\n\
         server_password = 'hush'\nconnect_query = \"select 'hush'\"\n[databases.d.users.u]\npool_size = 2\n\
         [users.u]\npool_mode = 'transaction'\npassword = 'hush'\n",
    );
    let shown = |database: Option<&str>, user: Option<&str>, name: &str| {
        let values = reading.in_force(database, user);
        assert!(values.iter().all(|of| {
            of.value
                .as_ref()
                .is_none_or(|value| !value.contains("hush"))
        }));
        let mut values = values.into_iter().filter(|of| of.name == name);
        let of = values.next().unwrap();
        let place = of.place.map_or("-".into(), |place| place.to_string());
        format!("{} {place}", of.value.unwrap_or_default())
    };
    for (database, user, name, expected) in [
        (None, None, "pool_mode", "session etc/h.toml:2:1"),
        (None, None, "http_token", "**** etc/h.toml:3:1"),
        (None, None, "query_timeout", "0 -"),
        (Some("d"), None, "pool_size", "1 etc/h.toml:5:1"),
        (Some("d"), Some("u"), "pool_size", "2 etc/h.toml:10:1"),
        (
            Some("d"),
            Some("u"),
            "pool_mode",
            "transaction etc/h.toml:12:1",
        ),
        (Some("d"), None, "pool_mode", "session etc/h.toml:2:1"),
        (Some("d"), None, "connect_query", "**** etc/h.toml:8:1"),
        (None, Some("u"), "password", "**** etc/h.toml:13:1"),
    ] {
        assert_eq!(shown(database, user, name), expected, "{name}");
    }
}

#[test]
fn other_names_of_settings_are_known_in_ini_files() {
    let text = "[pgbouncer]\n[databases]\nd = server_user=u server_password=p options='-c a=b' users_only=1\n";
    let d = Config::read("h.ini", text, &mut |_| Ok(String::new())).config;
    let d = &d.databases["d"];
    assert_eq!(d.forced_user.as_deref(), Some("u"));
    assert_eq!(d.server_password("u").map(|word| &**word), Some("p"));
    assert_eq!(d.session("u").options(), "-c a=b");
    assert!(find(Scope::Database, "password_file").is_none() && d.users_only);
}

/// The meaning of variables, beside a file or alone.
fn variables(text: Option<&str>, variables: &[(&'static str, &'static str)]) -> Reading {
    let mut world = World {
        files: [("/run/port", "7777\n"), ("/run/word", "hush")].into(),
        variables: variables.iter().copied().collect(),
    };
    match text {
        Some(text) => Config::read_among("h.ini", text, &mut world),
        None => Config::read_environment(&mut world),
    }
}

#[test]
fn each_global_setting_is_a_variable() {
    for setting in in_scope(Scope::Global) {
        let ((text, _), name) = (sample(setting), setting.name);
        let variable: &str = format!("HOWDAH_{}", name.to_ascii_uppercase()).leak();
        let value: &str = text.clone().leak();
        let file = format!("[pgbouncer]\n{name} = {text}");
        let file = Config::read("h.ini", &file, &mut |_| Ok(String::new()));
        let seen = variables(Some("[pgbouncer]"), &[(variable, value)]);
        let shown = |reading: &Reading| {
            let mut settings = reading.config.show();
            settings.find(|shown| shown.key == name).unwrap().value
        };
        assert_eq!(shown(&file), shown(&seen), "{name}");
        assert_eq!(seen.config.written[name].to_string(), variable);
    }
}

#[test]
fn variables_go_before_files() {
    let text = "[pgbouncer]\nlisten_port = 1\npool_mode = session\nhttp_page = 0";
    let reading = variables(
        Some(text),
        &[
            ("HOWDAH_LISTEN_PORT_FILE", "/run/port"),
            ("HOWDAH_POOL_MODE", "transaction"),
            ("HOWDAH_HTTP_PAGE", "true"),
            ("HOWDAH_QUERY_TIMEOUT", "2min"),
            ("HOWDAH_AUTH_FILE", "/run/word"),
            ("HOWDAH_SERVICE_HOST", "10.0.0.1"),
            ("OTHER", "x"),
        ],
    );
    assert_eq!(reading.mistakes, []);
    let globals = reading.config.globals;
    assert_eq!(
        (globals.listen_port, globals.pool_mode),
        (7777, PoolMode::Transaction)
    );
    assert_eq!(globals.query_timeout, Duration::from_secs(120));
    assert!(globals.http_page && globals.auth_file.as_deref() == Some("/run/word"));
}

#[test]
fn variables_alone_are_a_configuration() {
    let urls = "postgresql://app:p%40ss@a:1,b/shop?target_session_attrs=any,postgres://u:x@c";
    let reading = variables(
        None,
        &[
            ("HOWDAH_DATABASE_URLS", urls),
            ("HOWDAH_POOL_MODE", "transaction"),
        ],
    );
    assert_eq!(
        (reading.mistakes, reading.warnings, reading.files),
        (vec![], vec![], 0)
    );
    let config = reading.config;
    let hosts = |name: &str| {
        config.databases[name]
            .hosts
            .iter()
            .map(HostPort::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(hosts("shop"), ["a:1", "b:5432"]);
    assert_eq!(hosts("u"), ["c:5432"]);
    assert_eq!(
        config.listed("shop", "app").flatten(),
        Some(&Secret::Plain("p@ss".into()))
    );
    assert!(config.databases["u"].users_only && config.databases["u"].member("app").is_none());
    let shop = config.database("shop").unwrap();
    let secret = config.server_secret(&shop, "app");
    assert!(
        matches!(secret, ServerSecret::Written(Some(Secret::Plain(ref text))) if text == "p@ss"),
        "{secret:?}"
    );
    let globals = &config.globals;
    assert_eq!(
        (globals.auth_type, globals.pool_mode),
        (AuthType::ScramSha256, PoolMode::Transaction)
    );
    assert!(
        globals.listen_addr.has("*")
            && globals.unix_socket_dir.is_empty()
            && globals.conffile.is_none()
    );
}

#[test]
fn wrong_variables_are_told_of() {
    let url = ("HOWDAH_DATABASE_URL", "postgresql://u:hush@h/d");
    for (text, set, said) in [
        (
            Some("[pgbouncer]"),
            &[("HOWDAH_POOL_MOD", "hush")][..],
            "unknown variable HOWDAH_POOL_MOD (HOWDAH_POOL_MOD): there is no such setting; did you mean HOWDAH_POOL_MODE?",
        ),
        (
            Some("[pgbouncer]"),
            &[("HOWDAH_pool_mode", "session")],
            "unknown variable HOWDAH_pool_mode (HOWDAH_pool_mode): there is no such setting",
        ),
        (
            Some("[pgbouncer]"),
            &[("HOWDAH_POOL_MODE", "x")],
            "invalid value \"x\" for parameter pool_mode in configuration (HOWDAH_POOL_MODE): must be one of session, transaction, statement",
        ),
        (
            Some("[pgbouncer]"),
            &[("HOWDAH_HTTP_TOKEN", "hu sh")],
            "invalid value \"...\" for parameter http_token in configuration (HOWDAH_HTTP_TOKEN): must be any text of letters, digits and -_.~",
        ),
        (
            Some("[pgbouncer]"),
            &[
                ("HOWDAH_LISTEN_PORT", "1"),
                ("HOWDAH_LISTEN_PORT_FILE", "/run/port"),
            ],
            "listen_port is set by HOWDAH_LISTEN_PORT, too (HOWDAH_LISTEN_PORT_FILE): take one of the two away",
        ),
        (
            Some("[pgbouncer]"),
            &[("HOWDAH_HTTP_TOKEN_FILE", "/gone")],
            "could not read \"/gone\": No such file or directory (HOWDAH_HTTP_TOKEN_FILE): name a file that has the value, and that Howdah may read",
        ),
        (
            Some("[pgbouncer]"),
            &[url],
            "a database beside a file (HOWDAH_DATABASE_URL): start with --environment instead of a file, or write the database into the file",
        ),
        (
            None,
            &[],
            "there is no database in the environment: set HOWDAH_DATABASE_URL=postgresql://USER:PASSWORD@HOST/DATABASE",
        ),
        (
            None,
            &[("HOWDAH_DATABASE_URL", "postgresql://u:hush%@h/d")],
            "a URL can't be used (HOWDAH_DATABASE_URL): behind % there must be two hexadecimal digits, and not 00: write %25 for a percent sign",
        ),
        (
            None,
            &[("HOWDAH_DATABASE_URL", "postgresql://h/d")],
            "a URL can't be used (HOWDAH_DATABASE_URL): it has no user: write postgresql://USER:PASSWORD@HOST/DATABASE",
        ),
        (
            None,
            &[(
                "HOWDAH_DATABASE_URL",
                "postgresql://u:hush@h/d?connect_timeout=1",
            )],
            "database \"d\", connect_timeout (HOWDAH_DATABASE_URL): there is no such setting",
        ),
        (
            Some("[pgbouncer]"),
            &[("HOWDAH_HTTP_TOKEN_FILE", "kJ3/hush")],
            "could not read what it names: No such file or directory (HOWDAH_HTTP_TOKEN_FILE): name a file that has the value, and that Howdah may read",
        ),
        (
            None,
            &[("HOWDAH_DATABASE_URL_FILE", "postgresql://u:hush@h/d")],
            "could not read what it names: No such file or directory (HOWDAH_DATABASE_URL_FILE): name a file that has the value, and that Howdah may read",
        ),
        (
            None,
            &[url, ("HOWDAH_DATABASE_URL_FILE", "/secret")],
            "HOWDAH_DATABASE_URL is set, too (HOWDAH_DATABASE_URL_FILE): take one of the two away",
        ),
        (
            None,
            &[(
                "HOWDAH_DATABASE_URLS",
                "postgresql://u:hush@h/d,postgresql://u@i/e",
            )],
            "a URL can't be used (HOWDAH_DATABASE_URLS): its user has a password in one URL, and none in another",
        ),
        (
            None,
            &[url, ("HOWDAH_DATABASE_URLS", "postgresql://v:hush@h/d")],
            "two URLs have the database \"d\" (HOWDAH_DATABASE_URL) (HOWDAH_DATABASE_URLS): leave one of them out",
        ),
    ] {
        let seen = variables(text, set).mistakes;
        let seen: Vec<_> = seen
            .iter()
            .map(|m| format!("{m}{}", m.shown_line()))
            .collect();
        assert_eq!(seen, [said], "{set:?}");
    }
}

#[test]
fn a_zero_of_an_entry_with_a_tail_is_a_zero() {
    let lifetime = find(Scope::Database, "server_lifetime").unwrap();
    let read = |text| super::super::resolve::in_entry(lifetime, text);
    assert_eq!((read("0"), read("0s"), read("7s")), ("", "", "7"));
}

#[test]
fn passwords_of_directories_in_rules_are_not_shown() {
    let config = good(
        "[howdah]\nauth_type = 'hba'\nauth_hba = ['host all all 10.0.0.0/8 md5 # office', \
         'host all all 0.0.0.0/0 ldap ldapserver=d ldapbasedn=b ldapbinddn=x ldapbindpasswd=hush']\n",
    );
    let shown = table::find(Scope::Global, "auth_hba").and_then(|setting| setting.global);
    let shown = shown
        .and_then(|field| (field.show)(&config.globals))
        .unwrap();
    assert!(
        shown.ends_with("ldapbinddn=x ldapbindpasswd=***"),
        "{shown}"
    );
    assert!(!format!("{:?}", config.globals.auth_hba).contains("hush"));
}

#[test]
fn a_url_is_several_settings() {
    let config = good(
        "[howdah]\n[databases.d]\nurl = 'postgresql://u:p@a:1,b/x?sslmode=require&options=-c%20a%3Db'",
    );
    let d = &config.databases["d"];
    assert_eq!(
        (
            d.forced_user.as_deref(),
            d.server_password("u").map(|word| &**word),
            d.target()
        ),
        (Some("u"), Some("p"), "x")
    );
    assert_eq!(
        (d.hosts.len(), d.sslmode, d.session("u").options()),
        (2, Some(SslMode::Require), "-c a=b".into())
    );
    for (text, said) in [
        (
            "url = 'postgresql://h/d'\nhost = 'x'",
            "host is already set at etc/h.toml:3:1 (etc/h.toml:4:1)",
        ),
        (
            "host = 'x'\nurl = 'postgresql://h/d'",
            "url: host is already set at etc/h.toml:3:1 (etc/h.toml:4:1)",
        ),
        (
            "url = 'mysql://u:hush@h'",
            "database \"d\", url (etc/h.toml:3:1): write postgresql://USER:PASSWORD@HOST",
        ),
        (
            "url = 'postgresql://u:hush@h/d?x=hush'",
            "database \"d\", x (etc/h.toml:3:1): there is no such setting",
        ),
    ] {
        let seen = mistakes(&format!("[howdah]\n[databases.d]\n{text}"), &[]);
        assert!(
            seen.len() == 1 && seen[0].contains(said) && !seen[0].contains("hush"),
            "{seen:?}"
        );
    }
}
