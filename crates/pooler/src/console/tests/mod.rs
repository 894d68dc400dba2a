//! Text in, text out, at a virtual clock.

mod world;

use crate::config::Config;
use crate::console::rows::date_time;
use crate::console::sentence::{RouteQuestion, Sentence, Unread, read, split, without_comments};
use crate::event::{Time, UnixPeer};
use world::World;

#[test]
fn grammar() {
    let command = |name: &str, argument: Option<&str>| {
        Ok(Sentence::Command(name.into(), argument.map(str::to_string)))
    };
    let set = |key: &str, value: &str| Ok(Sentence::Set(key.into(), value.into()));
    for (text, sentence) in [
        ("show pools", command("show", Some("pools"))),
        (" \tSHOW\n Pools ; ", command("SHOW", Some("Pools"))),
        ("reload;", command("reload", None)),
        ("pause \"a-b \"\"c\"", command("pause", Some("a-b \"c"))),
        ("\"show\" \"pools\"", command("show", Some("pools"))),
        ("set a = 'it''s; so'", set("a", "it's; so")),
        ("SET a=b;", set("a", "b")),
        ("set a to b", set("a", "b")),
        ("set a tob", set("a", "b")),
        ("set a = ''", set("a", "")),
        ("set \"\" = b", Err(Unread::Arguments)),
        ("set a", command("set", Some("a"))),
        ("set a =", Err(Unread::Syntax)),
        ("set a = b c", Err(Unread::Syntax)),
        ("show a b", Err(Unread::Syntax)),
        ("show;;", Err(Unread::Syntax)),
        ("show\"a\"", Err(Unread::Syntax)),
        ("pause a-b", Err(Unread::Syntax)),
        ("pause \"a", Err(Unread::Syntax)),
        ("", Err(Unread::Syntax)),
        (";", Err(Unread::Syntax)),
        ("abcdefghijklmnop", Err(Unread::Arguments)),
    ] {
        assert_eq!(read(text), sentence, "{text:?}");
    }
    let route = |database: &str, sql: &str, values: &[Option<&str>]| {
        let values = values.iter().map(|value| value.map(str::to_owned));
        Ok(Sentence::Route(Box::new(RouteQuestion {
            database: database.into(),
            sql: sql.into(),
            values: values.collect(),
        })))
    };
    for (text, sentence) in [
        ("route prod 'select 1'", route("prod", "select 1", &[])),
        (
            "ROUTE \"a b\" 'it''s; $1'  17 'x y' null 'null';",
            route(
                "a b",
                "it's; $1",
                &[Some("17"), Some("x y"), None, Some("null")],
            ),
        ),
        ("route prod", Err(Unread::Syntax)),
        ("route prod select 1", Err(Unread::Syntax)),
        ("route prod 'select", Err(Unread::Syntax)),
        ("route prod 'select'1", Err(Unread::Syntax)),
        ("route prod 'select' 'x", Err(Unread::Syntax)),
    ] {
        assert_eq!(read(text), sentence, "{text:?}");
    }
    assert!(read(&format!("pause {}", "a".repeat(63))).is_ok());
    assert_eq!(
        read(&format!("pause {}", "a".repeat(64))),
        Err(Unread::Arguments)
    );
    assert!(read(&format!("set a = '{}'", "a".repeat(255))).is_ok());
    assert_eq!(
        read(&format!("set a = '{}'", "a".repeat(256))),
        Err(Unread::Arguments)
    );
}

#[test]
fn statements_of_a_query() {
    for (text, statements) in [
        ("show a;", vec!["show a;"]),
        ("show a; ; ", vec!["show a"]),
        ("a; b ;c", vec!["a", "b", "c"]),
        ("set a = ';'; \"b;\"", vec!["set a = ';'", "\"b;\""]),
        ("", vec![""]),
        (" ; ", vec![" ; "]),
    ] {
        assert_eq!(split(text), statements, "{text:?}");
    }
}

#[test]
fn comments_are_blanks() {
    for (text, kept) in [
        ("-- ping", " "),
        ("/* a; /* b */ c */show -- d\npools", " show  \npools"),
        (
            "set a = '--b'; pause \"/*c*/\"",
            "set a = '--b'; pause \"/*c*/\"",
        ),
        ("show /* open", "show  "),
        ("/*", " "),
        ("- - / *", "- - / *"),
    ] {
        assert_eq!(without_comments(text), kept, "{text:?}");
    }
}

#[test]
fn moments() {
    let at = |started: f64, seconds: u64| date_time(started, Time(seconds * 1_000_000_000));
    assert_eq!(at(0.0, 0), "1970-01-01 00:00:00 UTC");
    assert_eq!(at(951_782_399.5, 1), "2000-02-29 00:00:00 UTC");
    assert_eq!(at(1_767_225_599.0, 0), "2025-12-31 23:59:59 UTC");
    assert_eq!(at(4_107_542_399.0, 1), "2100-03-01 00:00:00 UTC");
}

#[test]
fn who_gets_in() {
    let mut world = World::new(1, "auth_type = trust\n");
    let (_, told) = world.log_in(0, "root", "howdah");
    assert_eq!(
        told,
        "R 4\nS server_version=1.25.2/bouncer\nS client_encoding=UTF8\nS server_encoding=UTF8\n\
         S DateStyle=ISO\nS TimeZone=GMT\nS standard_conforming_strings=on\nS is_superuser=on\n\
         K 8\nZ Idle"
    );
    assert_eq!(
        world.log_in(0, "u", "pgbouncer").1,
        "FATAL 42501 permission denied for database \"pgbouncer\""
    );
    let stat = world.console(0, "stat");
    assert!(world.query(stat, "show version").contains("\nC SHOW\n"));
    for command in [
        "pause",
        "kill_client 1",
        "set verbose = 1",
        "show fds",
        "shutdown",
        "reload",
        "suspend",
    ] {
        let told = world.query(stat, command);
        assert_eq!(told, "ERROR 08P01 admin access needed\nZ Idle", "{command}");
    }
}

#[test]
fn with_auth_type_any_strangers_may_look() {
    let mut world = World::new(1, "auth_type = any\n");
    let stranger = world.console(0, "x");
    assert!(world.query(stranger, "show pools").contains("C SHOW"));
    assert!(
        world
            .query(stranger, "pause")
            .contains("admin access needed")
    );
    let root = world.console(0, "root");
    assert_eq!(world.query(root, "pause"), "C PAUSE\nZ Idle");
}

#[test]
fn our_own_user_needs_no_password() {
    let mut world = World::new(1, "auth_type = md5\n");
    let from = |uid| Some(UnixPeer { pid: 9, uid });
    let (socket, told) = world.log_in_from(0, "pgbouncer", "pgbouncer", from(70));
    assert!(told.ends_with("Z Idle"), "{told}");
    assert_eq!(world.query(socket, "pause"), "C PAUSE\nZ Idle");
    for (user, database, peer) in [
        ("pgbouncer", "pgbouncer", from(71)),
        ("pgbouncer", "pgbouncer", None),
        ("root", "pgbouncer", from(70)),
        ("pgbouncer", "d", from(70)),
    ] {
        let (_, told) = world.log_in_from(0, user, database, peer);
        assert!(!told.contains("Z Idle"), "{user} {database} {peer:?}");
    }
}

/// A world with a client idle after a transaction, one in a transaction, and a console.
fn busy() -> (World, world::Socket, world::Socket) {
    let mut world = World::new(2, "auth_type = trust\n");
    let (idle, told) = world.log_in(0, "u", "d");
    assert!(told.ends_with("Z Idle"), "{told}");
    assert_eq!(world.query(idle, "select"), "C OK\nZ Idle");
    let (client, _) = world.log_in(1, "u", "d");
    assert_eq!(world.query(client, "begin"), "C OK\nZ Transaction");
    let console = world.console(1, "root");
    world.pass(2);
    (world, client, console)
}

#[test]
fn show_tells_columns_and_rows() {
    let (mut world, _, console) = busy();
    for (what, told) in include_str!("shows.txt")
        .split("\n\n")
        .map(|s| s.split_once('\n').unwrap())
    {
        let got = world.query(console, &format!("show {what}"));
        assert_eq!(
            got,
            format!("{}\nC SHOW\nZ Idle", told.trim_end()),
            "SHOW {what}"
        );
    }
}

#[test]
fn show_config_has_every_setting() {
    let (mut world, _, console) = busy();
    let told = world.query(console, "show config");
    assert!(told.starts_with("T key value default changeable\nD admin_users|root||yes\n"));
    assert!(told.contains("\nD io_driver|epoll|auto|no\n"), "{told}");
    assert!(told.contains("\nD workers|2|0|no\n"), "{told}");
    assert_eq!(
        told.matches("\nD ").count(),
        Config::default().show().count()
    );
}

#[test]
fn averages_are_of_the_last_period_or_two() {
    let (mut world, client, console) = busy();
    world.pass(58);
    world.query(client, "commit");
    world.pass(60);
    for _ in 0..600 {
        world.query(client, "select");
    }
    for (seconds, averages) in [
        (0, "10|10|10"),
        (30, "6|6|6"),
        (30, "10|10|10"),
        (60, "0|0|0"),
    ] {
        world.pass(seconds);
        let told = world.query(console, "show stats_averages");
        let row = told.lines().find(|line| line.starts_with("D d|")).unwrap();
        assert!(row.starts_with(&format!("D d|{averages}|")), "{row}");
    }
}

#[test]
fn errors() {
    let (mut world, _, console) = busy();
    let all = |world: &mut World| {
        let tables = [
            "show databases",
            "show config",
            "show state",
            "show servers",
        ];
        tables.map(|table| world.query(console, table)).concat()
    };
    let before = all(&mut world);
    for (command, error) in [
        ("foo", "invalid command 'foo', use SHOW HELP;"),
        ("pause d e", "invalid command 'pause d e', use SHOW HELP;"),
        ("pause 'd'", "invalid command 'pause 'd'', use SHOW HELP;"),
        (
            "show pools clients",
            "invalid command 'show pools clients', use SHOW HELP;",
        ),
        (
            "set verbose",
            "invalid command 'set verbose', use SHOW HELP;",
        ),
        (
            "set verbose =",
            "invalid command 'set verbose =', use SHOW HELP;",
        ),
        (
            "set verbose = 1 2",
            "invalid command 'set verbose = 1 2', use SHOW HELP;",
        ),
        ("set = 1", "invalid command 'set = 1', use SHOW HELP;"),
        ("shutdown wait_for_servers x", {
            "invalid command 'shutdown wait_for_servers x', use SHOW HELP;"
        }),
        ("suspend d", "invalid command 'suspend d', use SHOW HELP;"),
        ("wait_close x", "no such database: x"),
        ("disable x", "no such database: x"),
        ("enable pgbouncer", "cannot enable admin db: pgbouncer"),
        (
            "kill_client -1",
            "invalid command 'kill_client -1', use SHOW HELP;",
        ),
        (
            "kill_client 18446744073709551616",
            "invalid client pointer supplied",
        ),
        ("Show Foo;", "invalid command 'Show Foo;', use SHOW HELP;"),
        ("show", "invalid command 'show', use SHOW HELP;"),
        ("set a", "invalid command 'set a', use SHOW HELP;"),
        ("reload x", "invalid command 'reload x', use SHOW HELP;"),
        ("shutdown x", "invalid command 'shutdown x', use SHOW HELP;"),
        ("set \"\" = 1", "bad arguments"),
        ("pause x", "no such database: x"),
        ("pause pgbouncer", "cannot pause admin db: pgbouncer"),
        ("kill pgbouncer", "cannot kill admin db: pgbouncer"),
        ("kill x", "no such database: x"),
        ("reconnect x", "no such database: x"),
        ("reconnect howdah", "cannot reconnect admin db: howdah"),
        ("wait_close pgbouncer", "cannot wait in admin db: pgbouncer"),
        ("disable", "a database is required"),
        ("enable", "a database is required"),
        ("enable x", "no such database: x"),
        ("disable pgbouncer", "cannot disable admin db: pgbouncer"),
        ("resume", "pooler is not paused/suspended"),
        ("resume d", "database d is not paused"),
        ("resume pgbouncer", "database pgbouncer is not paused"),
        ("resume x", "no such database: x"),
        ("kill_client", "invalid client pointer supplied"),
        ("kill_client x", "invalid client pointer supplied"),
        ("kill_client 999", "client not found"),
        (
            "takeover 1",
            "only user pgbouncer by unix socket, with our user id, may take over",
        ),
    ] {
        let told = world.query(console, command);
        assert_eq!(told, format!("ERROR 08P01 {error}\nZ Idle"), "{command}");
        let said = format!("P - {command}\nB - -\nE\nS");
        let told = world.send(console, &messages(&said));
        let told = told.trim_start_matches("1 0\n2 0\n");
        assert_eq!(told, format!("ERROR 08P01 {error}\nZ Idle"), "{command}");
    }
    let after = all(&mut world);
    assert_eq!(before, after, "nothing was changed");
}

#[test]
fn waiters_are_seen() {
    let (mut world, client, console) = busy();
    assert_eq!(world.query(client, "commit"), "C OK\nZ Idle");
    assert_eq!(world.query(console, "pause d"), "C PAUSE\nZ Idle");
    assert_eq!(world.query(client, "select"), "");
    world.pass_ms(1500);
    let told = world.query(console, "show pools_extended");
    assert!(
        told.contains(
            "\nD d|u|1|1|0|0|0|0|0|0|0|0|0|1|500000|transaction|NULL|0|0|0|0|0|0|1500000|0|0|0\n"
        ),
        "{told}"
    );
    assert_eq!(
        world.query(console, "show verdict"),
        "T database user verdict\nD d|u|1 client waits: the pool is paused: RESUME ends that\nC SHOW\nZ Idle"
    );
    let told = world.query(console, "show clients_extended");
    let row = told
        .lines()
        .find(|line| line.contains("|waiting|"))
        .unwrap();
    assert!(
        row.ends_with(" UTC|1|500000|0|0x3||0||app|0|3|paused|1|NULL|NULL"),
        "{row}"
    );
}

#[test]
fn logins_that_wait_for_auth_query_are_seen() {
    let mut world = World::new(1, "auth_type = trust\nauth_user = u\n");
    let console = world.console(0, "root");
    assert_eq!(world.query(console, "pause d"), "C PAUSE\nZ Idle");
    for _ in 0..2 {
        world.log_in(0, "stranger", "d");
    }
    world.pass_ms(1500);
    assert_eq!(
        world.query(console, "show verdict"),
        "T database user verdict\nD d|u|2 logins wait for auth_query: the pool is paused: RESUME \
         ends that\nC SHOW\nZ Idle"
    );
}

#[test]
fn who_waits_and_who_holds_is_told() {
    let (mut world, holder, console) = busy();
    // Two more than the pool has servers, on both workers.
    let mut clients = vec![holder];
    for worker in [0, 1, 0, 1, 0, 1] {
        let (client, _) = world.log_in(worker, "u", "d");
        world.pass_ms(10);
        world.query(client, "begin");
        clients.push(client);
    }
    let waits = |world: &mut World| -> Vec<(String, String)> {
        let told = world.query(console, "show clients_extended");
        let rows = told.lines().filter(|line| line.contains("|waiting|"));
        let columns = rows.map(|row| row.split('|').map(str::to_string).collect::<Vec<_>>());
        columns
            .map(|row| (row[20].clone(), row[21..23].join(" ")))
            .collect()
    };
    let seen = waits(&mut world);
    let reasons: Vec<_> = seen.iter().map(|(_, reason)| reason.as_str()).collect();
    assert_eq!(reasons, ["pool_full 1", "pool_full 2"]);
    let told = world.query(console, "show holders");
    let rows: Vec<_> = told.lines().filter(|line| line.starts_with("D ")).collect();
    assert_eq!(rows.len(), 5, "{told}");
    assert!(
        rows.iter()
            .all(|row| row.contains("D d|u|idle in transaction|")),
        "{told}"
    );
    let held: Vec<u64> = rows
        .iter()
        .map(|row| row.split('|').nth(3).unwrap().parse().unwrap())
        .collect();
    assert!(held.is_sorted_by(|a, b| a >= b), "longest first: {held:?}");
    // One goes on: the second is the first now.
    assert_eq!(world.query(holder, "commit"), "C OK\nZ Idle");
    let after = waits(&mut world);
    assert_eq!(after.len(), 1);
    assert_eq!(after[0], (seen[1].0.clone(), "pool_full 1".to_string()));
}

#[test]
fn drivers_are_kept_happy() {
    let (mut world, _, console) = busy();
    for (name, value) in [
        ("client_encoding", "UTF-8"),
        ("default_transaction_isolation", "read committed"),
        ("standard_conforming_strings", "on"),
        ("datestyle", "ISO"),
        ("timezone", "GMT"),
    ] {
        let told = world.query(console, &format!("SHOW {name}"));
        assert_eq!(told, format!("T {name}\nD {value}\nC SHOW\nZ Idle"));
        let told = world.query(console, &format!("SET {name} TO 'x'"));
        assert_eq!(told, "NOTICE 00000 SET ignored\nC SET\nZ Idle");
    }
    assert_eq!(
        world.query(console, "show help"),
        "NOTICE 00000 Console usage\nC SHOW\nZ Idle"
    );
}

#[test]
fn several_statements_and_pipelined_queries_are_answered_in_order() {
    let (mut world, _, console) = busy();
    let version = "T version\nD PgBouncer 1.25.2.0 (Howdah 0.1.0)\nC SHOW";
    let told = world.query(console, "show version; show peers; foo; show state");
    let peers = "T peer_id:int4 host port:int4 pool_size:int4\nC SHOW";
    let error = "ERROR 08P01 invalid command 'foo', use SHOW HELP;";
    assert_eq!(told, format!("{version}\n{peers}\n{error}\nZ Idle"));
    let mut bytes = Vec::new();
    for text in ["show workers", "show version"] {
        howdah_wire::write::query(&mut bytes, text.as_bytes());
    }
    // A message may come in pieces.
    let (front, back) = bytes.split_at(7);
    assert_eq!(world.send(console, front), "");
    let told = world.send(console, back);
    assert!(told.starts_with("T worker:int4 "), "{told}");
    assert!(
        told.ends_with(&format!("Z Idle\n{version}\nZ Idle")),
        "{told}"
    );
}

/// Messages of the extended protocol: `P name text`, `B portal statement [wanted format [values]]`,
/// `DS name`, `DP name`, `E portal rows`, `CS name`, `CP name`, `S`, `H`. An empty name is `-`.
fn messages(said: &str) -> Vec<u8> {
    use howdah_wire::write;
    let mut bytes = Vec::new();
    for line in said.lines() {
        let (kind, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let mut words = rest.split(' ');
        let mut name = || match words.next() {
            None | Some("-") => "",
            Some(name) => name,
        };
        match kind {
            "P" => {
                let (name, text) = rest.split_once(' ').unwrap();
                let name = if name == "-" { "" } else { name };
                let definition = format!("{text}\0\0\0");
                write::parse(&mut bytes, name.as_bytes(), definition.as_bytes());
            }
            "B" => {
                let (portal, statement) = (name(), name());
                let wanted: u16 = name().parse().unwrap_or(0);
                let values: Vec<&str> = words.collect();
                write::message(&mut bytes, b'B', |buf| {
                    buf.extend_from_slice(format!("{portal}\0{statement}\0\0\0").as_bytes());
                    buf.extend_from_slice(&(values.len() as u16).to_be_bytes());
                    for value in values {
                        buf.extend_from_slice(&(value.len() as u32).to_be_bytes());
                        buf.extend_from_slice(value.as_bytes());
                    }
                    buf.extend_from_slice(&[0, 1]);
                    buf.extend_from_slice(&wanted.to_be_bytes());
                });
            }
            "DS" | "DP" | "CS" | "CP" => write::message(&mut bytes, kind.as_bytes()[0], |buf| {
                buf.push(kind.as_bytes()[1]);
                buf.extend_from_slice(name().as_bytes());
                buf.push(0);
            }),
            "E" => {
                let (portal, rows) = (name(), name().parse::<u32>().unwrap_or(0));
                write::message(&mut bytes, b'E', |buf| {
                    buf.extend_from_slice(portal.as_bytes());
                    buf.push(0);
                    buf.extend_from_slice(&rows.to_be_bytes());
                });
            }
            "Q" => write::query(&mut bytes, rest.as_bytes()),
            _ => write::empty(&mut bytes, kind.as_bytes()[0]),
        }
    }
    bytes
}

#[test]
fn the_extended_protocol() {
    let (mut world, _, console) = busy();
    let version = "D PgBouncer 1.25.2.0 (Howdah 0.1.0)";
    let unknown = "ERROR 08P01 invalid command 'foo', use SHOW HELP;";
    for (said, told) in [
        // As drivers do it: described as a statement, or as a portal.
        (
            "P s show version\nDS s\nH\nS",
            "1 0\nt 2\nT version\nZ Idle".to_string(),
        ),
        ("B - s\nE\nS", format!("2 0\n{version}\nC SHOW\nZ Idle")),
        (
            "P - show peers\nB - -\nDP -\nE\nS",
            "1 0\n2 0\nT peer_id:int4 host port:int4 pool_size:int4\nC SHOW\nZ Idle".into(),
        ),
        // What the workers must be asked for comes at its turn.
        (
            "P - show state\nB - -\nE\nP - select 1\nB - -\nDP\nE\nS",
            "1 0\n2 0\nD active|yes\nD paused|no\nD suspended|no\nD workers|2\nD io_driver|epoll (io_uring is not allowed here)\nC SHOW\n1 0\n2 0\n\
             T ?column?:int4\nD 1\nC SHOW\nZ Idle"
                .into(),
        ),
        // A part of the rows at a time.
        (
            "P - show state\nB p -\nE p 2\nE p 9\nS",
            "1 0\n2 0\nD active|yes\nD paused|no\ns 0\nD suspended|no\nD workers|2\nD io_driver|epoll (io_uring is not allowed here)\nC SHOW\nZ Idle".into(),
        ),
        // A block's portals outlive a Sync.
        ("Q begin", "C BEGIN\nZ Transaction".into()),
        (
            "P - show state\nB p -\nE p 2\nS",
            "1 0\n2 0\nD active|yes\nD paused|no\ns 0\nZ Transaction".into(),
        ),
        ("E p\nS", "D suspended|no\nD workers|2\nD io_driver|epoll (io_uring is not allowed here)\nC SHOW\nZ Transaction".into()),
        ("Q commit", "C COMMIT\nZ Idle".into()),
        (
            "E p\nS",
            "ERROR 34000 portal \"p\" does not exist\nZ Idle".into(),
        ),
        // Orders, with parameters.
        (
            "P k pause $1\nDS k\nB - k 0 d\nE\nS",
            "1 0\nt 6\nn 0".into(),
        ),
        // Errors skip up to the Sync.
        (
            "P - foo\nB - -\nE\nQ show version\nS\nP - begin\nS",
            format!("{unknown}\nZ Idle\n1 0\nZ Idle"),
        ),
        (
            "P s show pools\nS",
            "ERROR 42P05 prepared statement \"s\" already exists\nZ Idle".into(),
        ),
        (
            "B - nobody\nS",
            "ERROR 26000 prepared statement \"nobody\" does not exist\nZ Idle".into(),
        ),
        ("CS s\nS\nDS s\nS", {
            "3 0\nZ Idle\nERROR 26000 prepared statement \"s\" does not exist\nZ Idle".into()
        }),
        (
            "P - show version; show pools\nS",
            "ERROR 42601 cannot insert multiple commands into a prepared statement\nZ Idle".into(),
        ),
        (
            "P - pause $1\nB - -\nS",
            "1 0\nERROR 08P01 bind message supplies 0 parameters, but prepared statement \"\" \
             requires 1\nZ Idle"
                .into(),
        ),
        (
            "P - show $1\nS",
            "ERROR 08P01 invalid command 'show $1', use SHOW HELP;\nZ Idle".into(),
        ),
        (
            "P - pause $1\nB - - 0 x\nE\nS",
            "1 0\n2 0\nERROR 08P01 no such database: x\nZ Idle".into(),
        ),
        // Nothing at all.
        (
            "P -  ;\nB - -\nDP\nE\nS",
            "1 0\n2 0\nn 0\nI 0\nZ Idle".into(),
        ),
        ("Q ", "I 0\nZ Idle".into()),
        // A Query forgets the unnamed statement.
        (
            "B - -\nS",
            "ERROR 26000 unnamed prepared statement does not exist\nZ Idle".into(),
        ),
    ] {
        let mut got = world.send(console, &messages(said));
        if said.starts_with("P k") {
            // A PAUSE is answered once nobody has a server.
            assert_eq!(got, format!("{told}\n2 0"), "{said}");
            let other = world.console(0, "root");
            assert!(world.query(other, "resume d").contains("C RESUME"));
            got = world.told(console);
            assert_eq!(got, "C PAUSE\nZ Idle", "{said}");
            continue;
        }
        assert_eq!(got, told, "{said}");
    }
    assert!(!world.closed.contains(&console));
}

#[test]
fn results_in_binary_format() {
    let (mut world, _, console) = busy();
    let told = world.send(console, &messages("P - select 1\nB - - 1\nE\nS"));
    assert_eq!(told, "1 0\n2 0\nD \0\0\0\u{1}\nC SHOW\nZ Idle");
}

#[test]
fn prepared_statements_are_bounded() {
    let (mut world, _, console) = busy();
    for i in 0..256 {
        world.send(console, &messages(&format!("P s{i} show version\nS")));
    }
    let told = world.send(console, &messages("P more show version\nS"));
    assert_eq!(told, "ERROR 53400 too many prepared statements\nZ Idle");
    assert_eq!(
        world.query(console, "deallocate s7"),
        "C DEALLOCATE\nZ Idle"
    );
    assert_eq!(
        world.query(console, "deallocate s7"),
        "ERROR 26000 prepared statement \"s7\" does not exist\nZ Idle"
    );
    let told = world.send(console, &messages("P more show version\nS"));
    assert_eq!(told, "1 0\nZ Idle");
    assert_eq!(world.query(console, "discard all"), "C DISCARD ALL\nZ Idle");
    let told = world.send(console, &messages("DS more\nS"));
    assert!(told.starts_with("ERROR 26000"), "{told}");
}

#[test]
fn pause_waits_for_all_workers() {
    let (mut world, client, console) = busy();
    assert_eq!(world.query(console, "pause"), "");
    // What is sent meanwhile waits.
    assert_eq!(world.query(console, "show version"), "");
    let other = world.console(0, "root");
    let told = world.query(other, "pause");
    assert_eq!(told, "ERROR 08P01 already suspended/paused\nZ Idle");
    assert!(world.query(other, "show state").contains("D paused|yes"));
    assert_eq!(world.query(client, "commit"), "C OK\nZ Idle");
    let told = world.told(console);
    assert!(told.starts_with("C PAUSE\nZ Idle\nT version\n"), "{told}");
    assert_eq!(world.query(client, "select"), "");
    assert_eq!(world.query(console, "resume"), "C RESUME\nZ Idle");
    assert_eq!(world.told(client), "C OK\nZ Idle");
}

#[test]
fn suspend_holds_until_resume_or_until_its_console_is_gone() {
    let (mut world, client, console) = busy();
    assert_eq!(world.query(console, "suspend"), "C SUSPEND\nZ Idle");
    let told = world.query(console, "show state");
    assert!(told.contains("D active|no") && told.contains("D suspended|yes"));
    for command in ["suspend", "pause", "pause d", "kill"] {
        let told = world.query(console, command);
        assert_eq!(told, "ERROR 08P01 already suspended/paused\nZ Idle");
    }
    // What was under way when reading stopped is carried out.
    assert_eq!(world.query(client, "commit"), "C OK\nZ Idle");
    // Nobody gets a server now.
    assert_eq!(world.query(client, "select"), "");
    assert_eq!(world.query(console, "resume"), "C RESUME\nZ Idle");
    assert_eq!(world.told(client), "C OK\nZ Idle");
    assert!(world.query(console, "show state").contains("D active|yes"));
    assert_eq!(world.query(console, "suspend"), "C SUSPEND\nZ Idle");
    let mut terminate = Vec::new();
    howdah_wire::write::empty(&mut terminate, b'X');
    world.send(console, &terminate);
    let other = world.console(0, "root");
    assert!(world.query(other, "show state").contains("D suspended|no"));
}

#[test]
fn a_cancel_request_takes_a_pause_back() {
    for (pause, after) in [("pause", "active|yes"), ("pause d", "active|yes")] {
        let (mut world, client, console) = busy();
        assert_eq!(world.query(console, pause), "");
        world.cancel(console);
        let told = world.told(console);
        assert_eq!(
            told,
            "ERROR 57014 canceling statement due to user request\nZ Idle"
        );
        assert!(world.query(console, "show state").contains(after));
        assert!(
            !world.query(console, "show databases").contains("|1|0\n"),
            "nothing is paused"
        );
        assert_eq!(world.query(client, "commit"), "C OK\nZ Idle");
        // The late reports on the PAUSE are nobody's.
        assert_eq!(world.told(console), "");
        assert_eq!(world.query(client, "select"), "C OK\nZ Idle");
    }
}

#[test]
fn a_pause_outlives_its_console() {
    let (mut world, client, console) = busy();
    assert_eq!(world.query(console, "pause d"), "");
    world.lose(console);
    assert_eq!(world.query(client, "commit"), "C OK\nZ Idle");
    assert_eq!(world.query(client, "select"), "");
    let other = world.console(0, "root");
    assert_eq!(world.query(other, "resume d"), "C RESUME\nZ Idle");
    assert_eq!(world.told(client), "C OK\nZ Idle");
}

#[test]
fn kill_and_kill_client() {
    let (mut world, client, console) = busy();
    assert_eq!(world.query(console, "kill d"), "C KILL\nZ Idle");
    assert_eq!(world.told(client), "FATAL 57P01 database removed");
    assert!(world.query(console, "show databases").contains("\nD d|"));
    let told = world.query(console, "show servers");
    assert!(!told.contains("\nD "), "{told}");
    assert_eq!(world.query(console, "resume d"), "C RESUME\nZ Idle");
    let (victim, _) = world.log_in(0, "u", "d");
    let told = world.query(console, "show clients");
    let row = told.lines().find(|line| line.contains("|d|")).unwrap();
    let number = row.split('|').nth(20).unwrap();
    assert_eq!(
        world.query(console, &format!("kill_client {number}")),
        "C KILL_CLIENT\nZ Idle"
    );
    assert_eq!(world.told(victim), "FATAL 57P01 admin forced disconnect");
}

#[test]
fn reconnect_and_wait_close() {
    let (mut world, client, console) = busy();
    assert_eq!(world.query(console, "reconnect d"), "C RECONNECT\nZ Idle");
    assert!(
        world.query(console, "show servers").contains("|0|0|1|"),
        "close_needed"
    );
    assert_eq!(world.query(console, "wait_close"), "");
    assert_eq!(world.query(client, "commit"), "C OK\nZ Idle");
    assert_eq!(world.told(console), "C WAIT_CLOSE\nZ Idle");
}

#[test]
fn disable_and_enable() {
    let (mut world, _, console) = busy();
    assert_eq!(world.query(console, "disable d"), "C DISABLE\nZ Idle");
    for worker in 0..2 {
        let (_, told) = world.log_in(worker, "u", "d");
        assert_eq!(told, "FATAL 57P03 database \"d\" is disabled");
    }
    assert_eq!(world.query(console, "enable d"), "C ENABLE\nZ Idle");
    assert!(world.log_in(0, "u", "d").1.ends_with("Z Idle"));
}

#[test]
fn reload_and_set_ask_the_control_thread() {
    let (mut world, _, console) = busy();
    assert_eq!(world.query(console, "reload"), "");
    world.answer(Ok(()));
    assert_eq!(world.told(console), "C RELOAD\nZ Idle");
    assert_eq!(world.query(console, "reload"), "");
    world.answer(Err("it is wrong".into()));
    let error = "ERROR F0000 RELOAD failed, see logs for additional details\nZ Idle";
    assert_eq!(world.told(console), error);
    assert_eq!(world.query(console, "set Verbose = '1'"), "");
    assert!(
        world
            .asked
            .last()
            .unwrap()
            .contains("key: \"verbose\", value: \"1\"")
    );
    world.answer(Ok(()));
    assert_eq!(world.told(console), "C SET verbose=1\nZ Idle");
    assert_eq!(world.query(console, "set verbose = x"), "");
    world.answer(Err("no".into()));
    let error = "ERROR 08P01 SET failed: verbose: no\nZ Idle";
    assert_eq!(world.told(console), error);
    world.query(console, "set listen_port = 7");
    world.answer(Ok(()));
    let told = world.told(console);
    let why = "this has no effect: it takes a restart, write it into the configuration file";
    assert!(told.contains(why), "{told}");
}

#[test]
fn shutdown() {
    let (mut world, _, console) = busy();
    assert_eq!(world.query(console, "shutdown"), "");
    assert_eq!(world.asked, ["Exit(0)"]);

    for (how, ends) in [("wait_for_clients", false), ("WAIT_FOR_SERVERS", true)] {
        let (mut world, client, console) = busy();
        let told = world.query(console, &format!("shutdown {how}"));
        assert_eq!(told, "C SHUTDOWN\nZ Idle");
        assert_eq!(world.asked[0], "StopListening { keep_unix: true }");
        let told = world.query(console, "resume");
        assert_eq!(told, "ERROR 08P01 pooler is shutting down\nZ Idle");
        world.query(client, "commit");
        world.pass(1);
        let idle = world
            .asked
            .iter()
            .filter(|asked| asked.starts_with("Idle"))
            .count();
        assert_eq!(idle == 2, ends, "{:?}", world.asked);
    }
}
