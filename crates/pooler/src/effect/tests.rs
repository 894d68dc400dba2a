use proptest::prelude::*;

use super::*;

fn set(name: &str) -> Mention {
    Mention::Set(name.as_bytes().into())
}

fn back(name: &str) -> Mention {
    Mention::Back(name.as_bytes().into())
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
        "select 1 into temperature",
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
fn bodies_of_do() {
    for (text, expected) in [
        ("do $$begin raise notice 'failed to load row'; end$$", false),
        ("do $$begin select load into a from t; end$$", false),
        ("do $$begin execute 'load ''x'''; end$$", true),
        ("do $$begin execute format('LOAD %L', a); end$$", true),
        (
            "do $$begin execute 'load ' || quote_literal(a); end$$",
            true,
        ),
        ("do $$begin load 'x'; end$$", true),
    ] {
        assert_eq!(kinds(text).any(Kinds::STAYS), expected, "{text}");
    }
    for text in [
        "do $$begin update t set (a, b) = (select 1, 2); end$$",
        "do $$begin insert into t values (1) on conflict do update set (a) = row(2); end$$",
        "do $$begin perform regexp_replace(a, '(\\d)\\s', '\\1 load it'); end$$",
    ] {
        let acts = Kinds::SETS_ANY.and(Kinds::STAYS).and(Kinds::SETS);
        assert!(!kinds(text).any(acts), "{text}");
    }
    // Howdah reads the meaning of escapes.
    let text = "DO E'BEGIN\\nSET work_mem=\\'1GB\\';\\nEND'";
    assert_eq!(settings(text), [set("work_mem")]);
    let text = "do $$begin execute E'set\\tx = 1'; end$$";
    assert_eq!(settings(text), [set("x")]);
    let text = "do E'BEGIN \\x53ET work_mem = 1; END'";
    assert!(kinds(text).any(Kinds::SETS_ANY));
}

#[test]
fn a_do_in_another_language_may_do_anything() {
    let doubts = |text: &str| {
        let filler = " ".repeat(20_000);
        let doubts = |found: Effects| found.kinds.any(Kinds::SETS_ANY);
        let whole = doubts(effects(text.as_bytes()));
        assert!(!whole || doubts(in_pieces((filler + text).as_bytes(), 100)));
        whole
    };
    for text in [
        "do language plperl $$ spi_exec_query(\"SET search_path = x\") $$",
        "do $$ plpy.execute(\"set role x\") $$ LANGUAGE \"plpython3u\"",
        "do 'x' language 'plperl'",
    ] {
        assert!(doubts(text), "{text}");
    }
    for text in [
        "do language plpgsql $$ begin perform \"set role x\"(1); end $$",
        "do $$ begin select a as language from t; end $$ language 'plpgsql'",
        "create function f() returns int language sql as 'select 1'",
    ] {
        assert!(!doubts(text), "{text}");
    }
}

#[test]
fn a_string_goes_on_in_another_line() {
    let role = [set("role")];
    let text = "select E'a'\n'b\\'' , '\\' ; SET ROLE x; --'";
    let pieces = |text: &str| in_pieces(text.as_bytes(), 3).settings;
    assert_eq!(settings(text), role);
    assert_eq!(pieces(text), role);
    let text = "select E'a' -- it's\n -- more\r 'b\\'' , '\\' ; SET ROLE x; --'";
    assert_eq!(settings(text), role);
    assert_eq!(pieces(text), role);
    // On the same line, or after anything else, the quote begins another string.
    for text in [
        "select E'a' 'b', '\\'; SET ROLE x; --'",
        "select E'a' -\n 'b\\'; SET ROLE x; --'",
        "select E'a' /* */ \n 'b\\'; SET ROLE x; --'",
    ] {
        assert_eq!(settings(text), role, "{text}");
        assert_eq!(pieces(text), role, "{text}");
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
        "do $$begin perform set_config('role', 'one', true); end$$",
        "set search_path = E'\\x41'",
        "update pg_settings set setting = 'x'",
    ] {
        assert_eq!(names(text), Names::Anywhere, "{text}");
    }
    let long = format!("set local search_path to one -- {}", "x".repeat(20_000));
    assert_eq!(in_pieces(long.as_bytes(), 8192).names(), Names::Anywhere);
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
fn escapes_in_pieces() {
    let filler = " ".repeat(20_000);
    for text in [
        "do E'begin\\nset work_mem=\\'1GB\\';\\nend'",
        "do E'begin \\x53ET work_mem = 1; end'",
    ] {
        let whole = effects(text.as_bytes());
        let mut pieces = Pieces::default();
        pieces.read(filler.as_bytes());
        pieces.read(text.as_bytes());
        let found = pieces.end();
        assert_eq!(found.settings, whole.settings, "{text}");
        let doubts = |found: &Effects| found.kinds.any(Kinds::SETS_ANY);
        assert_eq!(doubts(&found), doubts(&whole), "{text}");
    }
}

#[test]
fn paths_to_what_is_temporary() {
    for text in [
        "set local search_path = 'pg_temp'",
        "set search_path to public, 'PG_TEMP'",
        "set schema 'pg_temp'",
        "select set_config('search_path', 'pg_temp, public', true)",
    ] {
        assert!(kinds(text).any(Kinds::TEMPORARY), "{text}");
    }
    for text in [
        "select * from pg_class where relname like 'pg_temp%'",
        "select set_config('a.b', f('x'), true), 'pg_temp'",
        "set search_path = 'public'",
    ] {
        assert!(!kinds(text).any(Kinds::TEMPORARY), "{text}");
    }
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
        assert!(kinds(&text).any(Kinds::SETS_ANY), "{text}");
    }
    // SET itself shortens long names.
    let cut = set(&format!("app.{}", &long[..63]));
    assert_eq!(settings(&format!("set app.{long} = 1")), [cut]);
}

#[test]
fn kinds_of_effects() {
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
        (
            "prepare a as select set_config('a.b', 'c', false)",
            Kinds::PREPARES.and(Kinds::STAYS).and(Kinds::SETS),
        ),
        ("/* a /* b */ */ -- c\n deallocate all", Kinds::DEALLOCATES),
        (
            "create temp table t (a int)",
            Kinds::SCHEMA.and(Kinds::TEMPORARY),
        ),
        (
            "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1",
            Kinds::SCHEMA.and(Kinds::TEMPORARY),
        ),
        (
            "create local temp table t ()",
            Kinds::SCHEMA.and(Kinds::TEMPORARY),
        ),
        (
            "create table pg_temp.t ()",
            Kinds::SCHEMA.and(Kinds::TEMPORARY),
        ),
        ("select * into temp t from u", Kinds::TEMPORARY),
        ("select 1into/**/temp t", Kinds::TEMPORARY),
        (
            "with a as (select 1) select * into temporary table t from a",
            Kinds::TEMPORARY,
        ),
        (
            "explain analyze create temp table t as select 1",
            Kinds::TEMPORARY,
        ),
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
        (
            "update pg_settings set setting = 'a' where name = 'b'",
            Kinds::SETS_ANY,
        ),
        (
            "update only pg_catalog.pg_settings set setting = 'a'",
            Kinds::SETS_ANY,
        ),
        (
            "UPDATE \"pg_catalog\" . pg_settings SET setting = 'a'",
            Kinds::SETS_ANY,
        ),
        (
            "insert into t with a as ( update pg_settings set setting = 1 returning 1) select 1",
            Kinds::SETS_ANY,
        ),
        ("select set_config($1, $2, false)", Kinds::SETS_BOUND),
        (
            "select set_config('a' || 'b', 'c', false)",
            Kinds::SETS_ANY.and(Kinds::NAMES),
        ),
        (
            "select set_config(E'a\\x62', 'c', false)",
            Kinds::SETS_ANY.and(Kinds::NAMES),
        ),
        (
            "do $$ begin create temp table t (); end $$",
            Kinds::SCHEMA
                .and(Kinds::TEMPORARY)
                .and(Kinds::BEGINS)
                .and(Kinds::ENDS),
        ),
    ] {
        assert_eq!(kinds(text), expected, "{text}");
    }
    for text in [
        "select U&\"set\\005fconfig\"('a', 'b', false)",
        "select U&\"set!005fconfig\" UESCAPE '!' ('a', 'b', false)",
        "select '\\'; set a = 1; --'",
        "select e'\\'; set a = 1; --'; set b = 2",
        "do $$ begin execute 'listen a'; end $$",
        "select \"x\"\"set_config\"",
    ] {
        let kinds = kinds(text);
        let sure = text.contains("\"x\"");
        assert_eq!(kinds.is_empty(), sure, "{text}");
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
        (
            "do $$begin perform set_config('a', 'b', false); end$$",
            vec![set("a")],
        ),
    ] {
        assert_eq!(settings(text), expected, "{text}");
    }
    for text in [
        "set \"a b\" = 1",
        "set \u{e9} = 1",
        "set",
        "reset 'a'",
        "set U&\"a\" = 1",
    ] {
        assert!(kinds(text).any(Kinds::SETS_ANY), "{text}");
    }
    let many: String = (0..1000).map(|i| format!("set a{i} = 1;")).collect();
    let found = effects(many.as_bytes());
    assert_eq!(found.settings.len(), crate::limits::MENTIONS);
    assert!(found.kinds.any(Kinds::SETS_ANY));
}

#[test]
fn characters_that_end_in_a_backslash() {
    // SJIS and similar encodings: the quote after the character ends the constant.
    for lead in [&b"\x95"[..], b"\xb1\x95", b"\xb5\xb5\x81"] {
        let text = [b"select e'", lead, b"\\'; listen a; select '\\''"].concat();
        assert!(effects(&text).kinds.any(Kinds::LISTENS), "{text:?}");
    }
}

fn in_pieces(text: &[u8], size: usize) -> Effects {
    let mut pieces = Pieces::default();
    for piece in text.chunks(size) {
        pieces.read(piece);
    }
    pieces.end()
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
        ("select set_users(1)", true),
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
#[test]
fn no_text_costs_more_than_its_length() {
    let times = |text: &str, n: usize| text.repeat(n);
    let row = "\n    (1, now(\n), U&'x' (2)),";
    for text in [
        times("prepare;", 100_000),
        times("prepare a as select 1; ", 100_000),
        format!("do $${}$$", times("prepare ", 100_000)),
        times("prepare ", 100_000),
        format!("insert into t values {}", times(row, 100_000)),
        format!("select {}", times("x' (", 200_000)),
        times("select set_config(", 100_000),
        format!("select {}", times("set_config('a', ", 100_000)),
        format!(
            "select {}",
            times("pg_create_logical_replication_slot(", 100_000)
        ),
        format!("do $${}$$", times("declare ", 200_000)),
        format!("do $${}$$", times("execute 'declare ", 50_000)),
        times("/*", 200_000),
        times("/* */", 200_000),
        times("$a", 200_000),
        times("$a$ $b$ ", 100_000),
        times("u&\"", 100_000),
        times("e'\\", 100_000),
    ] {
        effects(text.as_bytes());
        in_pieces(text.as_bytes(), 8192);
    }
}

#[test]
fn prepared_statements_that_act() {
    let stays = |text: &str| kinds(text).any(Kinds::STAYS);
    assert!(stays("prepare a as select pg_advisory_lock(1)"));
    assert!(stays(
        "select 1; prepare a (int) as select set_config('a', $1, false); select 2"
    ));
    assert!(!stays("prepare a as select 1; select pg_advisory_lock(1)"));
    assert!(!stays("listen a; prepare a as select 1"));
    assert!(kinds("listen a; prepare a as select 1").any(Kinds::LISTENS));
}

#[test]
fn calls_written_as_attributes_are_calls() {
    for (text, expected) in [
        ("select (5::bigint).pg_advisory_lock", Kinds::LOCKS),
        (
            "select (5::bigint) . /* a */ \"pg_advisory_lock\"",
            Kinds::LOCKS,
        ),
        ("select $1.pg_try_advisory_lock", Kinds::LOCKS),
        ("select $1 .pg_advisory_lock_shared", Kinds::LOCKS),
        (
            "select (array[5::bigint])[1].\nPG_ADVISORY_LOCK from t",
            Kinds::LOCKS,
        ),
        (
            "select g.pg_advisory_lock from generate_series(1::bigint, 2) g",
            Kinds::LOCKS,
        ),
        (
            "insert into t values (($1).pg_advisory_unlock)",
            Kinds::UNLOCKS,
        ),
        ("select ('counted'::regclass).currval", Kinds::SEQUENCES),
        ("select $1.currval", Kinds::SEQUENCES),
        ("select (0.5::float8).setseed", Kinds::STAYS),
        ("select ('u'::text).set_user", Kinds::STAYS),
        ("select (0.3::real).set_limit", Kinds::SETS_ANY),
        (
            "select (5::bigint).U&\"pg_advisory_loc\\006b\"",
            Kinds::LOCKS,
        ),
        ("select ('select 1'::text).ts_stat", Kinds::LOCKS),
    ] {
        assert!(kinds(text).any(expected), "{text}: {:?}", kinds(text));
        let long = format!("/*{}*/ {text}", " ".repeat(20_000));
        for size in [1, 7, 8192] {
            let found = in_pieces(long.as_bytes(), size).kinds;
            assert!(found.any(expected), "{text}: {found:?}");
        }
    }
    for text in [
        "select t.currval, \"t\".\"currval\", t.set_user_id, t.pg_trying from t",
        "select pg_catalog.pg_class.relname, pg_advisory_lock from pg_catalog.pg_class",
        "select 1.5, t.a from public.pg_stat",
    ] {
        assert!(effects(text.as_bytes()).is_nothing(), "{text}");
    }
}

#[test]
fn strings_that_functions_run_are_read() {
    for text in [
        "select query_to_xml('select pg_advisory_lock(1)', true, true, '')",
        "select pg_catalog.query_to_xml_and_xmlschema($a$select pg_advisory_lock(1)$a$, true, true, '')",
        "select * from ts_stat('select pg_advisory_lock(1), a from t')",
        "select ts_rewrite('a'::tsquery, e'select pg_advisory_lock\\x281), t, s from aliases')",
        "select * from crosstab4('select a, b, pg_advisory_lock(1)::text from t')",
        "insert into t select * from \"crosstab\"('select 1, 2, pg_advisory_lock(1)') as a (b int)",
    ] {
        assert!(kinds(text).any(Kinds::LOCKS), "{text}");
    }
    for text in [
        "select * from crosstab('select a, b, c from t order by 1, 2') as t (a text, b text)",
        "select query_to_xml('select a from t', true, true, ''), 'pg_advisory_lock(1)'::text",
    ] {
        let found = kinds(text);
        assert!(!found.any(Kinds::SETS_ANY.and(Kinds::STAYS)), "{text}");
    }
    assert!(!kinds("select 'select pg_advisory_lock(1)'").any(Kinds::LOCKS));
}

#[test]
fn what_ends_a_transaction_is_told_at_once() {
    for (text, expected) in [
        ("BEGIN", Kinds::BEGINS),
        ("commit", Kinds::ENDS),
        ("ROLLBACK; ", Kinds::ENDS),
        (" end ;", Kinds::ENDS),
        ("/* a */ /*b*/ select f(1)", Kinds::NOTHING),
        ("/**//***/ COMMIT", Kinds::ENDS),
    ] {
        let trimmed = glance::trim(text.as_bytes());
        assert_eq!(
            glance::tells(trimmed, Signs::of(trimmed)),
            Some(expected),
            "{text}"
        );
    }
    for text in ["/*/*/ set a = 1 */ */ set b = 1", "/*/*/*/*/ set b = 1"] {
        let trimmed = glance::trim(text.as_bytes());
        assert_eq!(glance::tells(trimmed, Signs::of(trimmed)), None, "{text}");
    }
}

/// Reads a text in pieces of sizes that are usual for sockets.
fn long(text: &str) -> Effects {
    let found = in_pieces(text.as_bytes(), 8192);
    for size in [1, 7, 100, 65536] {
        assert_eq!(in_pieces(text.as_bytes(), size), found, "{size}");
    }
    found
}

#[test]
fn strings_of_long_texts_are_strings() {
    let page =
        "It''s done &nbsp; Set up your account; listen here -- /* \"; reset all; ".repeat(2000);
    let flat = page.replace("/*", "");
    for text in [
        format!("insert into pages values (1, '{page}')"),
        format!("insert into pages values (1, $x${page}$ $y$ $xy ${page}$x$)"),
        format!("select 1 /* {flat} */ -- {page}\n, 2"),
        format!("select 1 as \"{}\"", page.replace('"', "")),
        format!("update t set a = '{page}', b = ';set c = 1'; set local d.e = '{page}'"),
        format!("select set_config('a.b', '{page}', true)"),
    ] {
        let found = long(&text);
        assert!(found.is_nothing(), "{found:?} {}", &text[..60]);
        let set = long(&format!("{text}; set work_mem = 1; {text}"));
        assert_eq!(set.settings, [Mention::Set(b"work_mem"[..].into())]);
        assert_eq!(set.kinds, Kinds::SETS);
    }
    let name = long(&format!("select set_config('a.b', '{page}', false)"));
    assert_eq!(name.settings, [set("a.b")]);
    assert!(!name.kinds.any(Kinds::SETS_ANY));
    // The effects of both readings of a backslash count.
    let both = long(&format!("select '{page}\\'; listen a; --'"));
    assert!(both.kinds.any(Kinds::LISTENS));
    let one = long(&format!("select e'{page}\\'; listen a; --'"));
    assert!(!one.kinds.any(Kinds::LISTENS));
}

#[test]
fn a_long_do_is_read_to_its_end() {
    let filler = "update t set a = 1; perform f('x;y'); ".repeat(1000);
    for (command, kind) in [
        ("execute 'listen a';", Kinds::LISTENS),
        ("perform pg_advisory_lock(1);", Kinds::LOCKS),
        ("create temp table x ();", Kinds::TEMPORARY),
        ("if true then set role x; end if;", Kinds::SETS),
    ] {
        for text in [
            format!("do $$ begin {filler} {command} {filler} end $$"),
            format!(
                "select 1; do/**/language plpgsql $a$ begin {filler} {command} end $a$; select 2"
            ),
            format!(
                "do '{} {}'",
                filler.replace('\'', "''"),
                command.replace('\'', "''")
            ),
        ] {
            assert!(long(&text).kinds.any(kind), "{command}");
        }
    }
    assert!(
        !long(&format!("do $$ begin {filler} end $$"))
            .kinds
            .any(Kinds::SETS_ANY)
    );
}

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
        Kinds::SETS_ANY,
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
    fn pieces_find_the_same(
        before in prop::collection::vec(harmless(), 0..8),
        planted in prop::sample::select(PLANTED.to_vec()),
        behind in prop::collection::vec(harmless(), 0..8),
        size in 1usize..40,
    ) {
        let (command, expected) = planted;
        let text = format!("{};{command};{}", before.concat(), behind.concat());
        let found = in_pieces(text.as_bytes(), size);
        prop_assert!(found.kinds.any(expected), "{text}");
        let whole = effects(text.as_bytes());
        // Howdah reads names of channels from whole texts only.
        let names = found.names;
        let whole = Effects { channels: None, names, ..whole };
        prop_assert_eq!(found, whole, "{}", text);
    }

    #[test]
    fn pieces_find_no_less(text in hostile(), size in 1usize..40) {
        let found = in_pieces(text.as_bytes(), size).kinds;
        let whole = effects(text.as_bytes()).kinds;
        // A setting with an uncertain name counts as any setting.
        let sets = Kinds::SETS.and(Kinds::SETS_ANY).and(Kinds::SETS_BOUND).and(Kinds::NAMES);
        let missing = whole.without(found).without(sets).without(Kinds::DROPS_AT_END);
        prop_assert!(missing.is_empty(), "{text}: {found:?} {whole:?}");
        prop_assert!(!whole.any(sets) || found.any(sets), "{text}: {found:?} {whole:?}");
    }

    #[test]
    fn signs_are_found_wherever_they_stand(text in "[a;(\0mMpP.]{0,60}") {
        let bytes = text.as_bytes();
        let signs = Signs::of(bytes);
        let all = [
            (Signs::CALL, b'('),
            (Signs::SEMICOLON, b';'),
            (Signs::NUL, 0),
            (Signs::DOT, b'.'),
        ];
        for (sign, byte) in all {
            prop_assert_eq!(signs.has(sign), bytes.contains(&byte), "{:?}", text);
        }
        let temp = text.to_lowercase().contains("mp");
        prop_assert_eq!(signs.has(Signs::TEMP), temp, "{:?}", text);
    }

    #[test]
    fn a_glance_finds_no_less_than_reading(text in hostile()) {
        let (reading, _) = read(text.as_bytes(), LexRules::default(), false, 0);
        let trimmed = glance::trim(text.as_bytes());
        if glance::is_harmless(trimmed, Signs::of(trimmed)) {
            // After a command other than SELECT, that word has no such meaning.
            let kinds = reading.kinds.without(match text.trim_start().starts_with("select") {
                true => Kinds::NOTHING,
                false => Kinds::TEMPORARY,
            });
            // `select update pg_settings` and `select update U&"..."` are not valid SQL.
            let update = text.trim_start().starts_with("update");
            let kinds = kinds.without(match update || !text.contains("pg_settings") {
                true => Kinds::NOTHING,
                false => Kinds::SETS_ANY,
            });
            let kinds = kinds.without(match update || !text.to_lowercase().contains("u&\"") {
                true => Kinds::NOTHING,
                false => Kinds::DOUBT,
            });
            prop_assert!(kinds.is_empty(), "{text}: {reading:?}");
        }
    }

    #[test]
    fn any_bytes(text in prop::collection::vec(any::<u8>(), 0..200)) {
        crate::fuzz::effects(&text);
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
