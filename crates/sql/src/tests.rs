use proptest::prelude::*;

use super::*;
use crate::token::Tokens;

fn set(name: &str) -> Mention {
    Mention::Set(name.as_bytes().into())
}

fn back(name: &str) -> Mention {
    Mention::Back(name.as_bytes().into())
}

/// Reads a text. Each text here also is an example for the gist.
fn effects(text: &[u8]) -> Effects {
    crate::fuzz::gist(text);
    crate::effects(text)
}

fn kinds(text: &str) -> Kinds {
    effects(text.as_bytes()).kinds
}

fn settings(text: &str) -> Vec<Mention> {
    effects(text.as_bytes()).settings
}

#[test]
fn texts_without_effect() {
    for text in [
        "",
        ";",
        "select 1",
        "SELECT abalance FROM pgbench_accounts WHERE aid = 1;",
        "select count(*), max (x) from t where a in (1, 2)",
        "insert into \"Users\" (\"id\", \"temp\") values (1, 'set work_mem')",
        "update t set a = 1, b = f(c) where d = (select 2)",
        "delete from t",
        "with a as (select 1) select * from a",
        "select temperature, template from t",
        "select ';' || 'set a = 1'",
        "select $$;set a = 1$$, $a$;listen x;$a$ -- ;set b = 2",
        "select '\\'' || ';listen x' /* ;load 'x' /* ;listen y */ */",
        "set local work_mem = 1",
        "SET TRANSACTION READ ONLY",
        "SET CONSTRAINTS ALL DEFERRED",
        "set transaction_isolation = 'serializable'",
        "select set_config('request.jwt.claims', $1, true)",
        "select set_config('a.b', f('x', true), 'true')",
        "select pg_advisory_xact_lock(1), pg_try_advisory_xact_lock_shared(2)",
        "select * from pg_settings",
        "fetch all from c",
        "show all",
        "values (1), (2)",
        "declare c cursor for select 1",
        "insert into temp values (1)",
        "update temp set a = 1",
        "copy t from stdin",
        "explain analyze select 1",
    ] {
        let found = effects(text.as_bytes());
        // If an escape is in doubt, the effects of both readings count.
        assert!(
            found.is_nothing() || text.contains('\\'),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn where_names_are_looked_for() {
    let names = |text: &str| effects(text.as_bytes()).names();
    for text in [
        "select 1",
        "set local work_mem = 1",
        "set app.tenant = 'x'",
        "select set_config('app.tenant', 'x', true)",
        "select set_config('app.tenant', $1, $2)",
        "reset work_mem",
    ] {
        assert_eq!(names(text), Names::Same, "{text}");
    }
    let one = names("set local search_path to one");
    assert!(matches!(one, Names::By(_)));
    assert_eq!(names("begin; SET LOCAL search_path = one ; select 1"), one);
    assert_eq!(names("set schema one"), one);
    assert_ne!(names("set local search_path to two"), one);
    assert_ne!(names("set local role one"), one);
    assert_eq!(
        names("set session authorization one"),
        names("set local session authorization one")
    );
    let called = names("select set_config('search_path', 'one', true)");
    assert_eq!(
        names("select pg_catalog.set_config('search_path'::text, 'one', false)"),
        called
    );
    assert_ne!(
        names("select set_config('search_path', 'two', true)"),
        called
    );
    for text in [
        "set search_path to default",
        "reset role",
        "reset session authorization",
        "reset all",
        "select set_config('search_path', 'a' || 'b', true)",
        "select set_config('sea' || 'rch_path', 'b', true)",
        "do $$begin set local search_path = one; end$$",
        "set search_path = E'\\x41'",
        "update pg_settings set setting = 'x'",
    ] {
        assert_eq!(names(text), Names::Anywhere, "{text}");
    }
    // The Bind has the value.
    let bound = effects(b"select set_config('search_path', $1, true)");
    assert!(bound.kinds.any(Kinds::SETS_BOUND));
    let bind = |value: &[u8]| {
        let length = (value.len() as u32).to_be_bytes();
        let body = [&[0, 0, 0, 1][..], &length, value].concat();
        bound.bound(Some(&body))
    };
    assert_eq!(bind(b"one").names(), called);
    assert_ne!(bind(b"two").names(), called);
    assert_eq!(bound.bound(None).names(), Names::Anywhere);
    assert_eq!(bind(b"one").kinds, Kinds::NAMES);
}

#[test]
fn held_cursors_of_any_name() {
    for text in [
        "declare \"for\" cursor with hold for select 1",
        "declare a cursor with hold for select 1",
    ] {
        assert!(kinds(text).any(Kinds::HOLDS), "{text}");
    }
    let text = "declare a cursor for select 1 as with_hold";
    assert!(!kinds(text).any(Kinds::HOLDS));
}

#[test]
fn names_that_no_reset_can_name() {
    let long = "x".repeat(64);
    for text in [
        format!("select set_config('app.{long}', 'a', false)"),
        format!("select set_config('{long}.a', 'a', false)"),
    ] {
        assert!(kinds(&text).any(Kinds::DOUBT), "{text}");
    }
    // SET itself shortens long names.
    let cut = set(&format!("app.{}", &long[..63]));
    assert_eq!(settings(&format!("set app.{long} = 1")), [cut]);
}

#[test]
fn kinds_of_effects() {
    const CREATES: Kinds = Kinds::SCHEMA.and(Kinds::CREATES);
    const TEMPORARY: Kinds = CREATES.and(Kinds::TEMPORARY);
    for (text, expected) in [
        ("begin", Kinds::BEGINS),
        (
            "START TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            Kinds::BEGINS,
        ),
        ("commit;", Kinds::ENDS),
        ("rollback to a", Kinds::ENDS),
        ("prepare transaction 'a'", Kinds::ENDS),
        ("prepare a as select 1", Kinds::PREPARES),
        ("prepare a as update t set a = 1", Kinds::PREPARES),
        // What the statement does, EXECUTE does.
        (
            "prepare a as select set_config('a', 'b', false), ';'",
            Kinds::PREPARES,
        ),
        ("execute a(1)", Kinds::NOTHING),
        ("/* a /* b */ */ -- c\n deallocate all", Kinds::DEALLOCATES),
        ("create table t (a int)", CREATES),
        ("create temp table t (a int)", TEMPORARY),
        ("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1", TEMPORARY),
        ("create local temp table t ()", TEMPORARY),
        ("create table \"pg_temp\".t ()", TEMPORARY),
        (
            "create temp table t () on commit drop",
            TEMPORARY.and(Kinds::DROPS_AT_END),
        ),
        ("select * into t from u", CREATES),
        ("select * into temp t from u", TEMPORARY),
        ("select 1into/**/temp t", TEMPORARY),
        ("select 1 a into table pg_temp.t", CREATES),
        ("select 1 as insert into temp t", TEMPORARY),
        ("select (1) insert into t", CREATES),
        (
            "with a as (insert into t values (1) returning 1) insert into u select f('set_config')",
            Kinds::NOTHING,
        ),
        (
            "with a as (select 1) merge into t using a on true when not matched then insert values (1)",
            Kinds::NOTHING,
        ),
        (
            "begin; set local seed = 0.5",
            Kinds::BEGINS.and(Kinds::STAYS),
        ),
        (
            "select set_config('seed', '0.5', true)",
            Kinds::STAYS.and(Kinds::NAMES),
        ),
        (
            "with a as (select 1) select * into temporary table t from a",
            TEMPORARY,
        ),
        ("explain analyze create temp table t as select 1", TEMPORARY),
        (
            "explain (analyze, costs off) select pg_advisory_lock(1)",
            Kinds::LOCKS,
        ),
        ("explain (select pg_advisory_lock(1))", Kinds::LOCKS),
        ("drop table t", Kinds::SCHEMA.and(Kinds::DROPS)),
        ("discard temp", Kinds::DROPS),
        ("discard all", Kinds::DISCARDS_ALL.and(Kinds::SETS)),
        ("select pg_advisory_lock(1)", Kinds::LOCKS),
        (
            "select pg_catalog.pg_try_advisory_lock_shared (1, 2)",
            Kinds::LOCKS,
        ),
        ("select \"pg_advisory_lock\"(1)", Kinds::LOCKS),
        ("select pg_advisory_lock\n-- x\n(1)", Kinds::LOCKS),
        ("select pg_advisory_unlock_all()", Kinds::UNLOCKS),
        ("listen a", Kinds::LISTENS),
        ("select 1; listen a", Kinds::LISTENS),
        ("unlisten *", Kinds::UNLISTENS),
        ("notify a", Kinds::NOTIFIES),
        ("declare c cursor with hold for select 1", Kinds::HOLDS),
        (
            "declare c no scroll cursor with /**/ hold for select 1",
            Kinds::HOLDS,
        ),
        ("close c", Kinds::CLOSES),
        ("load 'auto_explain'", Kinds::STAYS),
        ("select setseed(0.5)", Kinds::STAYS),
        ("set seed = 0.5", Kinds::STAYS),
        ("select dblink_connect('a', 'b')", Kinds::STAYS),
        (
            "insert into t values (nextval('s')); select lastval()",
            Kinds::SEQUENCES,
        ),
        ("select currval('s')", Kinds::SEQUENCES),
        ("select set_config($1, $2, false)", Kinds::SETS_BOUND),
        ("select set_config(E'a.\\x62', 'c', false)", Kinds::SETS),
        ("select set_config('a.'\n'b', 'c', false)", Kinds::SETS),
        ("select \"x\"\"set_config\"", Kinds::NOTHING),
        ("do $$ begin perform f(1); end $$", Kinds::NOTHING),
        (
            "do language plpgsql $a$ begin raise notice 'x'; end $a$",
            Kinds::NOTHING,
        ),
        ("call p(1, 'a')", Kinds::NOTHING),
        (
            "select * from crosstab('select a, b from t order by 1') as t (a text)",
            Kinds::NOTHING,
        ),
    ] {
        assert_eq!(kinds(text), expected, "{text}");
    }
}

/// Texts that change a session unseen, or may do so.
#[test]
fn texts_in_doubt() {
    let many: String = (0..1000).map(|i| format!("set a{i} = 1;")).collect();
    let long = format!("select f(1), 'set_config' {}", ", 1".repeat(400_000));
    for text in [
        "do $$begin execute 'comment on table t is ''-- x''; set app.tenant = ''evil'''; end$$",
        "do 'begin perform set_'\n'config(''app.tenant'',''evil'',false); end'",
        "do 'begin perform 1; end' language 'plperl'",
        "do E'begin \\x53ET work_mem = 1; end'",
        "DO $$ begin create temp table t (); end $$",
        "do $$ begin update t set a = 1; end $$",
        "do u&'begin perform set\\005fconfig(1); end'",
        "do language plperl $$ spi_exec_query(\"...\") $$",
        "call run('set role x')",
        "call run('se'\n't role x')",
        "select query_to_xml('select pg_advisory_lo'\n'ck(1)', true, true, '')",
        "call run(E'\\x73et role x')",
        "update only U&\"pg_settings\" set setting = '1'",
        "update pg_settings set setting = 'a' where name = 'b'",
        "update only (pg_catalog.pg_settings) set setting = 'a'",
        "UPDATE \"pg_catalog\" . pg_settings SET setting = 'a'",
        "with a as ( update pg_settings set setting = 1 returning 1) select 1",
        "select set_config(name, 'view', false) from pg_settings where name = 'x'",
        "select set_config('a' || 'b', 'c', false)",
        "select set_config(U&'a', 'c', false)",
        "select set_config('a\\b', 'c', false)",
        "select U&\"set\\005fconfig\"('a', 'b', false)",
        "select U&\"set!005fconfig\" UESCAPE '!' ('a', 'b', false)",
        "set U&\"a\" = 1",
        "set \"a b\" = 1",
        "set \u{e9} = 1",
        "set",
        "reset 'a'",
        "select '\\'; set a = 1; --'",
        "execute howdah_0123456789abcdef0123456789abcdef",
        "select 1; deallocate howdah_0123456789abcdef0123456789abcdef",
        "prepare howdah_void as select 1",
        "explain analyze execute howdah_void",
        "prepare 1",
        "select (5::bigint).pg_advisory_lock",
        "select (5::bigint) . /* a */ \"pg_advisory_lock\"",
        "select $1.pg_try_advisory_lock",
        "select $1 .pg_advisory_lock_shared",
        "select g.pg_advisory_lock from generate_series(1::bigint, 2) g",
        "select ('counted'::regclass).currval",
        "select $1.currval",
        "select (0.5::float8).setseed",
        "select ('u'::text).set_user",
        "select (0.3::real).set_limit",
        "select ('select 1'::text).ts_stat",
        "select query_to_xml('select pg_advisory_lock(1)', true, true, '')",
        "select query_to_xml($1, true, true, '')",
        "select * from ts_stat('select a ' || 'from t')",
        "select * from crosstab('select 1', 'select pg_advisory_lock(1)')",
        "insert into t select * from \"crosstab\"(a) as a (b int) from t",
        &many,
        &long,
    ] {
        let found = effects(text.as_bytes());
        assert!(found.kinds.any(Kinds::DOUBT), "{text:.100}: {found:?}");
        assert_eq!(found.names(), Names::Anywhere, "{text:.100}");
    }
    for text in [
        // SHIFT_JIS_2004: the first two bytes are ~, then a backslash.
        &b"select 'a' \x81\xb0set_config('a', 'b', false)"[..],
        b"select e'\x81\x5f', set_config('a', 'b', false), '",
        b"set a = e'\x95\\'; listen a; --'",
    ] {
        assert!(effects(text).kinds.any(Kinds::DOUBT), "{text:?}");
    }
    for text in [
        "select t.currval, \"t\".\"currval\", t.set_user_id, t.pg_trying from t",
        "select pg_catalog.pg_class.relname, pg_advisory_lock from pg_catalog.pg_class",
        "select 1.5, t.a from public.pg_stat",
        "insert into t values (1) on conflict do update set a = 'set_config'",
    ] {
        assert!(effects(text.as_bytes()).is_nothing(), "{text}");
    }
    // What DISCARD ALL does not remove.
    let stays = |text: &str| kinds(text).any(Kinds::STAYS);
    assert!(stays("do $$begin execute 'load ''x'''; end$$"));
    assert!(stays("do $$begin perform setseed(1); end$$"));
    assert!(!stays("do $$begin set role x; end$$"));
}

#[test]
fn statements_that_a_text_names() {
    let names = |text: &str| -> Vec<(char, String)> {
        let kind = |command: &StatementCommand| match command {
            StatementCommand::Prepare { .. } => 'p',
            StatementCommand::Execute(_) => 'e',
            StatementCommand::Deallocate(_) => 'd',
        };
        let told = effects(text.as_bytes()).statements;
        let told = told.iter().map(|command| {
            let name = String::from_utf8_lossy(command.name()).into();
            (kind(command), name)
        });
        told.collect()
    };
    for (text, expected) in [
        ("EXECUTE A(1)", vec![('e', "a")]),
        ("deallocate prepare \"A\"", vec![('d', "A")]),
        ("deallocate prepare", vec![('d', "prepare")]),
        ("deallocate all", vec![]),
        (
            "SAVEPOINT x;DEALLOCATE \"_PLAN0x1\";RELEASE x",
            vec![('d', "_PLAN0x1")],
        ),
        (
            "prepare a as select ';execute x'; execute a; deallocate a",
            vec![('p', "a"), ('e', "a"), ('d', "a")],
        ),
        ("create table t as execute a(1)", vec![('e', "a")]),
        ("explain (analyze) execute a", vec![('e', "a")]),
        (
            "explain analyze create table t as execute a",
            vec![('e', "a")],
        ),
        ("select execute from t", vec![]),
    ] {
        let expected = expected
            .into_iter()
            .map(|(kind, name)| (kind, name.to_string()));
        assert_eq!(names(text), expected.collect::<Vec<_>>(), "{text}");
    }
}

/// Texts that a naive reader reads in unbounded time, or with an unbounded stack.
#[test]
fn no_text_costs_more_than_its_length() {
    let times = |text: &str, n: usize| text.repeat(n);
    let row = "\n    (1, now(\n), U&'x' (2)),";
    for text in [
        times("set role ", 100_000),
        times("prepare;", 100_000),
        times("prepare a as select 1; ", 100_000),
        format!("do $${}$$", times("prepare ", 100_000)),
        times("prepare ", 100_000),
        format!("insert into t values {}", times(row, 100_000)),
        format!("select {}", times("x' (", 200_000)),
        times("select set_config(", 100_000),
        format!("select {}", times("set_config('a', ", 100_000)),
        format!("select {}", times("\"set_config\"(", 100_000)),
        format!("select {}", times("crosstab('a', ", 100_000)),
        format!(
            "select {}",
            times("pg_create_logical_replication_slot(", 100_000)
        ),
        times("explain ", 200_000),
        times("update only ", 100_000),
        format!("set_config {}", times("update a.", 100_000)),
        times("/*", 200_000),
        times("/* */", 200_000),
        times("$a", 200_000),
        times("$a$ $b$ ", 100_000),
        times("u&\"", 100_000),
        times("e'\\", 100_000),
        format!("set a = '{}'", times("\\", 500_000)),
    ] {
        effects(text.as_bytes());
    }
}

#[test]
fn settings_by_name() {
    for (text, expected) in [
        ("SET Work_Mem TO '4MB'", vec![set("work_mem")]),
        ("set session work_mem = 4", vec![set("work_mem")]),
        ("set \"App\" . tenant = x", vec![set("app.tenant")]),
        ("set time zone 'utc'", vec![set("timezone")]),
        ("set time zone local", vec![back("timezone")]),
        ("set names 'latin1'", vec![set("client_encoding")]),
        ("set names", vec![set("client_encoding")]),
        ("set schema 'a'", vec![set("search_path")]),
        ("set role a", vec![set("role")]),
        ("set session role a", vec![set("role")]),
        (
            "set session authorization a",
            vec![set("session_authorization")],
        ),
        (
            "set session authorization default",
            vec![back("session_authorization")],
        ),
        (
            "reset session authorization",
            vec![back("session_authorization")],
        ),
        ("reset role", vec![back("role")]),
        ("set a to default", vec![back("a")]),
        ("RESET TIME ZONE", vec![back("timezone")]),
        ("reset all", vec![Mention::AllBack]),
        ("CLOSE ALL; UNLISTEN *; RESET ALL;", vec![Mention::AllBack]),
        (
            "set a = 1; set local b = 2; reset c",
            vec![set("a"), back("c")],
        ),
        (
            "set session characteristics as transaction read only",
            vec![
                set("default_transaction_isolation"),
                set("default_transaction_read_only"),
                set("default_transaction_deferrable"),
            ],
        ),
        (
            "SELECT pg_catalog.set_config('search_path', '', false);",
            vec![set("search_path")],
        ),
        (
            "select set_config('App.x'::text, $1, false)",
            vec![set("app.x")],
        ),
    ] {
        assert_eq!(settings(text), expected, "{text}");
    }
    let many: String = (0..1000).map(|i| format!("set a{i} = 1;")).collect();
    let found = effects(many.as_bytes());
    assert_eq!(found.settings.len(), crate::limits::MENTIONS);
}

#[test]
fn settings_of_transactions_are_known_by_name() {
    assert_eq!(settings("set transaction_read_only = on"), []);
    assert_eq!(
        settings("set transaction_timeout = '10s'"),
        [set("transaction_timeout")]
    );
    assert_eq!(settings("set session transaction_isolation to default"), []);
}

#[test]
fn keywords_may_be_the_first_part_of_a_name() {
    for name in [
        "local.tenant",
        "transaction.user_id",
        "constraints.x",
        "session.user_id",
        "names.x",
        "schema.x",
        "xml.x",
        "time.x",
        "authorization.x",
        "characteristics.x",
        "role.x",
    ] {
        assert_eq!(settings(&format!("set {name} = 7")), [set(name)], "{name}");
        let text = format!("set session {name} to '7'");
        assert_eq!(settings(&text), [set(name)], "{text}");
        assert_eq!(settings(&format!("set local {name} = 7")), [], "{name}");
        assert_eq!(settings(&format!("reset {name}")), [back(name)], "{name}");
    }
    assert_eq!(
        settings("set session session authorization u"),
        [set("session_authorization")]
    );
    assert_eq!(settings("set session.x.y = 1"), [set("session.x.y")]);
}

#[test]
fn functions_of_extensions() {
    let threshold = [set("pg_trgm.similarity_threshold")];
    assert_eq!(settings("select set_limit(0.5)"), threshold);
    for (text, stays) in [
        ("select set_user('u')", true),
        ("select set_user_u('u')", true),
        ("select set_users(1)", false),
        ("select set_session_auth('u')", true),
        (
            "select pg_create_logical_replication_slot('a', 'b', true)",
            true,
        ),
        (
            "select pg_create_logical_replication_slot('a', 'b', $1)",
            true,
        ),
        (
            "select pg_create_physical_replication_slot('a', temporary => true)",
            true,
        ),
        (
            "select pg_create_logical_replication_slot('a', 'b', false, true)",
            false,
        ),
        (
            "select pg_create_logical_replication_slot('a', f(1, 2, 3))",
            false,
        ),
        ("select pg_create_physical_replication_slot('a')", false),
    ] {
        assert_eq!(kinds(text).any(Kinds::STAYS), stays, "{text}");
    }
}

/// Texts that a naive reader reads in unbounded time, or with an unbounded stack.
/// Commands, each with a kind that must be found.
const PLANTED: [(&str, Kinds); 13] = [
    ("set a.b = 1", Kinds::SETS),
    ("RESET ALL", Kinds::SETS),
    ("listen x", Kinds::LISTENS),
    ("Select set_config('a', 'b', false)", Kinds::SETS),
    ("select pg_advisory_lock(1)", Kinds::LOCKS),
    ("create temp table t ()", Kinds::TEMPORARY),
    ("select 1 as p into temp t", Kinds::TEMPORARY),
    ("prepare p as select 1", Kinds::PREPARES),
    ("select 1, lastval()", Kinds::SEQUENCES),
    ("load 'x'", Kinds::STAYS),
    ("declare c cursor with hold for select 1", Kinds::HOLDS),
    ("discard all", Kinds::DISCARDS_ALL),
    (
        "with a as (update pg_settings set setting = 1 returning 1) select 1",
        Kinds::DOUBT,
    ),
];

/// Text that may stand before or between commands without hiding them.
fn harmless() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        " ",
        "\n",
        "\t",
        ";",
        "-- ' \" $$ /*\n",
        "/* ' -- /* \" */ $a$ */",
        "select 1;",
        "select ';'';', \"a\"\"'\", $$'$$, $a$ $$ ' $a$;",
        "select e'\\'';",
        "select e'\\\\';",
        "select U&'\\0041' uescape '!';",
        "begin;",
        "select 1/*/**/*/;",
        "update t set a = '--';",
        "insert into t values ('/*');",
        "select 1 - - 1;",
        "select b'1', x'f', n'a';",
        "select $1, a$b$c;",
        "select '\u{e9}', \"\u{8868}\";",
    ])
    .prop_map(str::to_string)
}

proptest! {
    #[test]
    fn what_is_planted_is_found(
        before in prop::collection::vec(harmless(), 0..8),
        planted in prop::sample::select(PLANTED.to_vec()),
        after in prop::collection::vec(harmless(), 0..3),
        blanks in prop::sample::select(vec![" ", "\n", "/* a /* b */ */", "--x\r", "\t "]),
    ) {
        let (command, expected) = planted;
        let command = command.replace(' ', blanks);
        // A command after another one needs a semicolon before it.
        let text = format!("{};{command}\n;{}", before.concat(), after.concat());
        prop_assert!(effects(text.as_bytes()).kinds.any(expected), "{text}");
        let text = format!("{command}{}", ";".repeat(after.len()));
        prop_assert!(effects(text.as_bytes()).kinds.any(expected), "{text}");
    }

    #[test]
    fn the_first_look_finds_no_less_than_reading(text in hostile()) {
        let trimmed = words::trim(text.as_bytes());
        // INTO makes a table in a SELECT only.
        let into = !text.trim_start().starts_with("select") && text.contains("into");
        if !into && words::look(trimmed) == FirstLook::Only(Kinds::NOTHING) {
            let found = reader::read(trimmed);
            // A backslash before a quote leaves the reader in doubt. The look needs no quotes.
            let mut tokens = Tokens::new(trimmed);
            while tokens.next().is_some() {}
            let doubts = tokens.is_unsure() && found.kinds.any(Kinds::DOUBT);
            prop_assert!(doubts || found.is_nothing(), "{text}: {found:?}");
        }
    }
}

/// Texts of fragments that hardly belong together.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "select ",
        "insert ",
        "update ",
        "delete ",
        "values ",
        "(",
        ")",
        " ",
        "\n",
        ",",
        "'",
        "\"",
        "$$",
        "$a$",
        "--",
        "/*",
        "*/",
        "set_config",
        "SET_CONFIG(",
        "pg_advisory_lock(",
        "into temp ",
        "temporary",
        "u&\"",
        "e'",
        "\\",
        "lastval",
        "currval(",
        "only ",
        "1",
        "a",
        "pg_catalog.",
        "with x as (",
        "setseed",
        "dblink_connect(",
        "UESCAPE '!' (",
        "p",
        "TEMP",
        "\x0b",
        "\x0c",
        "::text",
        "true",
        "update",
    ]);
    prop::collection::vec(pieces, 0..14).prop_map(|pieces| pieces.concat())
}
