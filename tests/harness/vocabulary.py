"""What generated scripts are made of: SQL texts by theme, and messages that stand together.

A script of `generate` is a list of groups, a group a list of messages (bytes, any of which can be
left out and what remains is still a script). What a session has beyond a transaction is in scripts
of clients that keep it (`STATE`). What ARCHITECTURE.md and docs/session-state.md say is not covered
is left out where `Covered` says so.
"""

import random
import struct
from typing import NamedTuple

from .wire import (
    bind, close, copy_data, copy_done, copy_fail, describe, execute, flush, function_call, parse,
    query, sync,
)

TABLE = "generated"
OTHER = "generated_too"
CHANGING = "changing"

# What scripts leave behind, and what they begin with.
CLEAN = (f"drop table if exists {OTHER}, {CHANGING}, never_made cascade; drop function if exists one(), loud(int), "
         "german(); drop type if exists mood, pair; drop sequence if exists counter; "
         f"truncate {TABLE}; create table {CHANGING} (a int, b text); "
         f"insert into {CHANGING} values (1, 'one'), (2, 'two')")


class Covered(NamedTuple):
    """What the pooler that is played through promises: what is left out depends on it."""

    # A client keeps its server.
    session: bool = False
    # A client keeps what its session has, whatever server it gets.
    keeps: bool = False
    # A client gets another server for its next transaction, now and then. Not covered then: a
    # statement of which nothing was described, and whose rows change; DDL that is undone.
    rotates: bool = False


class Theme(NamedTuple):
    """Texts that have to do with each other."""

    # By any protocol, one statement each.
    texts: list
    # By Query only.
    simple: list = []
    # Both, where a client keeps its server.
    session: list = []


def do(level, text="hello", more=""):
    """A block that raises a message."""
    return f"do $$ begin raise {level} '{text}'{more}; end $$"


MANY_PARAMETERS = "select " + ", ".join(f"${i + 1}::int" for i in range(300))

THEMES = {
    "plain": Theme([
        "select 1", "select 'two', null", "values (7), (8), (9)", "select $1::int", "select 1/0",
        "selec", "", "-- nothing", "select where true", "select * from missing",
        "select $1::int4 + 1, $2::text", f"insert into {TABLE} values (1)",
        f"select count(*) from {TABLE}", f"delete from {TABLE}",
        f"insert into {TABLE} values ($1) returning a + 1", f"update {TABLE} set a = a + 1",
        f"with gone as (delete from {TABLE} returning a) select count(*) from gone",
        f"merge into {TABLE} t using (values (1)) v(x) on t.a = v.x when matched then delete "
        "when not matched then insert values (v.x)",
        "explain (costs off) select 1", f"table {TABLE}", "select 1; select 2",
    ], ["select 1; select 2", "select 1; select 1/0; select 2", "; ;", "discard all",
        f"insert into {TABLE} values (2); select 1/0", "select 1;", ";;select 1;;"]),
    "transactions": Theme([
        "begin", "commit", "rollback", "savepoint a", "rollback to a", "release a", "abort", "end",
        "begin isolation level serializable", "start transaction read only", "commit and chain",
        "rollback and chain", "set transaction read only", "set transaction read write",
        "set transaction isolation level repeatable read", "show transaction_isolation",
        "show transaction_read_only", "prepare transaction 'x'", "commit prepared 'x'",
        f"lock table {TABLE} in share mode", f"insert into {TABLE} values (3)", "select 1/0",
        "set constraints all deferred", "savepoint \"A b\"", "rollback to \"A b\"",
        f"select count(*) from {TABLE}", f"truncate {TABLE}", f"vacuum {TABLE}",
    ], [
        "begin; select 1; commit; begin", "begin; insert into generated values (4); commit and chain",
        "begin; select 1", "commit; select 1; begin", "savepoint a; select 1/0",
        "select 1/0; commit", "begin; select 1/0; rollback", "commit; select 1/0",
        "rollback; begin; savepoint a", "select 1; commit; select 2", "begin; begin; commit; commit",
        f"insert into {TABLE} values (5); commit; select 1/0",
        f"insert into {TABLE} values (5); rollback; select 1",
        f"select 1; vacuum {TABLE}", "set local datestyle to iso; select 1",
    ], [
        "set session characteristics as transaction read only",
        "set session characteristics as transaction read write, isolation level serializable",
        "set default_transaction_read_only to on", "reset default_transaction_read_only",
    ]),
    "settings": Theme([
        "set application_name to 'ours'", "show application_name", "reset application_name",
        "set local timezone to 'Asia/Tokyo'", "show timezone", "set timezone to 'America/New_York'",
        "set time zone 'Europe/Berlin'", "set time zone local", "reset timezone",
        "set datestyle to 'SQL, DMY'", "set datestyle to german", "show datestyle",
        "set local datestyle to 'ISO, YMD'", "set datestyle to default", "reset datestyle",
        "set datestyle to 'nonsense'", "set client_encoding to latin1", "set names 'utf8'",
        "show client_encoding", "select chr(233)", "reset all", "begin", "commit", "rollback",
        "select set_config('application_name', 'by function', false)", "select 1/0",
        "select set_config('datestyle', 'SQL, MDY', true)", "savepoint a", "rollback to a",
        "select set_config('TimeZone', 'Asia/Kolkata', false), 1/0",
        "select current_setting('application_name'), current_setting('datestyle')",
        "set intervalstyle to 'iso_8601'", "select interval '1 day 2 hours'",
        "set standard_conforming_strings to off", "reset standard_conforming_strings",
        "select '01/02/2003'::date", "select '2001-02-03 04:05'::timestamptz, $1::date", "select 'a\\\\b'",
        "select '2001-02-03 04:05:06+00'::timestamptz", "set local work_mem to '5MB'",
        "set local role plain_user", "select current_user, session_user", "reset role",
        "set local session authorization plain_user", "show is_superuser",
        "set local nonsense.mine to 'x'", "set nonsense_without_dot to 'x'",
        "set local statement_timeout to '1h'", "show all_of_it", "set application_name to $1",
        "create or replace function german() returns text language sql set datestyle to german "
        "as 'select current_setting(''datestyle'')'", "select german()",
        "do $$ begin set datestyle to 'Postgres, DMY'; end $$",
        "do $$ begin perform set_config('application_name', 'in a block', false); "
        "raise exception 'no'; exception when others then null; end $$",
    ], [
        "select pg_advisory_unlock_all(); close all; unlisten *; reset all",
        "set session authorization default; reset all; close all; discard temp",
        "rollback; reset datestyle; show datestyle", "select 1; reset timezone; reset work_mem",
        "set datestyle to german; select 1/0", "set datestyle to german; select '2001-02-03'::date",
        "begin; set application_name to 'inside'", "begin; set local application_name to 'here'",
        "begin; set work_mem to '5MB'; show work_mem; rollback", "set names 'latin1'; select chr(233)",
        "set application_name to 'kept'; begin; set application_name to 'gone'; rollback",
    ], [
        "set work_mem to '5MB'", "show work_mem", "reset work_mem",
        "set nonsense.mine to 'x'", "set statement_timeout to 0",
        "set search_path to pg_catalog, public", "show search_path", "reset search_path",
        "set role none", "set session authorization default", "set role plain_user",
        "set client_min_messages to error",
        "reset client_min_messages", "discard plans", "discard temp", "discard sequences",
    ]),
    "notices": Theme([
        do("notice"), do("warning"), do("info"), do("log"), do("debug"), do("exception"),
        do("exception", "odd", " using errcode = 'ABCDE', detail = 'd', hint = 'h'"),
        do("notice", "x", " using detail = 'more', hint = 'much more'"),
        "do $$ begin raise notice 'before'; perform 1/0; exception when others then "
        "raise warning 'caught %', sqlerrm; end $$",
        "do $$ begin for i in 1..20 loop raise notice 'number %', i; end loop; end $$",
        "set local client_min_messages to error", "set local client_min_messages to log",
        "set local client_min_messages to debug1", "reset client_min_messages", "begin", "commit",
        "rollback", "drop table if exists never_was", "select 1", "commit and chain",
        "create or replace function loud(i int) returns int language plpgsql as "
        "'begin raise notice ''row %'', i; return 10 / (3 - i); end'",
        "select loud(i) from generate_series(1, 2) i", "select loud(i) from generate_series(1, 9) i",
        "select loud($1)", "drop function loud(int)", "create table if not exists generated ()",
        "do $$ begin commit; end $$", "do $$ begin insert into generated values (8); commit; "
        "raise notice 'kept'; insert into generated values (9); rollback; end $$",
        f"select count(*) from {TABLE}",
    ], [do("notice") + "; " + do("exception"), "begin; begin; commit; commit",
        "select 1; " + do("warning") + "; select 2"]),
    "cursors": Theme([
        "begin", "commit", "rollback", "savepoint a", "rollback to a",
        f"declare c cursor for select a, 'row' from {CHANGING}, generate_series(1, 4)",
        "declare c scroll cursor for select generate_series(1, 9)", "fetch 2 from c", "move 1 in c",
        "fetch backward 1 from c", "fetch all from c", "fetch absolute 3 from c", "close c",
        "close all", "declare \"p1\" cursor for values (1), (2), (3)", "fetch 1 from p1", "close p1",
        "fetch 0 from c", "declare c binary cursor for select 258", "select 1/0",
        "declare c cursor for select 1/(2-i) from generate_series(1, 3) i", "move all in c",
        "declare c cursor for select $1::int",
    ], ["begin; declare c cursor for values (1), (2), (3); fetch 1 from c",
        "declare c cursor for select 1; fetch c", "fetch 1 from c; fetch 1 from c", "fetch c; commit"],
        ["declare h cursor with hold for values (1), (2), (3)", "fetch 1 from h", "close h"]),
    "copies": Theme([
        "copy (select 1, 2) to stdout", f"copy {TABLE} to stdout", "copy missing to stdout",
        "copy (select 1/(2-i) from generate_series(1, 3) i) to stdout binary",
        f"select count(*) from {TABLE}", "begin", "commit", "rollback", f"delete from {TABLE}",
        "copy (select i from generate_series(1, 300) i) to stdout (format csv, header)",
    ], [f"copy {TABLE} to stdout; select 1", "copy (select 1) to stdout; copy (select 2) to stdout",
        "select 1; copy (select 1/0) to stdout; select 2"]),
    "objects": Theme([
        f"create table {OTHER} (a int)", f"drop table {OTHER}",
        f"create table if not exists {OTHER} ()", f"select count(*) from {OTHER}",
        "create or replace function one() returns int language sql as 'select 1'", "select one()",
        "drop function if exists one()", "create type mood as enum ('sad', 'happy')",
        "select 'happy'::mood", "select $1::mood", "drop type mood", "create sequence counter",
        "select nextval('counter')", "drop sequence counter", "begin", "commit", "rollback",
        "savepoint a", "rollback to a", "create type pair as (x int, y text)",
        "select row(1, 'b')::pair", "drop type pair", f"comment on table {TABLE} is 'a table'",
        f"create unique index on {TABLE} (a)", f"analyze {TABLE}", f"insert into {OTHER} values ('x')",
    ], [f"create table {OTHER} (a int); select count(*) from {OTHER}",
        "begin; create type mood as enum ('so'); select 'so'::mood"]),
    "names": Theme([
        "deallocate n1", "deallocate all", "deallocate prepare s1", "DEALLOCATE \"N1\"", "discard all",
        "deallocate \"caf\u00e9\"", f"deallocate {'n' * 63}", f"deallocate \"{'m' * 62}\"",
        "deallocate \"with \"\"quotes\"\"\"", "select 'one'", "select 'two'",
        "select $1::int", "deallocate never", "begin", "commit", "rollback", "select 1/0",
        " deallocate  /* this */ n1 ;", "select 1",
    ], ["select 1; deallocate all", "deallocate howdah_void", "deallocate howdah_unknown"]),
    "notifications": Theme([
        "notify news, 'first'", "notify news", "select pg_notify('news', 'by function')", "begin",
        "commit", "rollback", "select 1", "savepoint a", "rollback to a", "select 1/0",
    ], ["commit; unlisten news", "rollback; unlisten *", "notify news, 'one'; notify news, 'two'; notify news, 'one'", "begin; notify news, 'gone'"],
        ["listen news", "listen other", "notify other, 'that'"]),
    "binary": Theme([
        "select $1::int", "select $1::int4 + 1, $2::text", "select $1::bytea, $2::bool",
        "select $1::int8, $2::float8, $3::numeric", "select $1::int[], 1::int2",
        MANY_PARAMETERS, "select $2::int", "select $1",
        "select $1::json", "select '{}'::jsonb", f"insert into {TABLE} values ($1)", "select 1",
    ]),
    # Longer than what is looked into, and than a buffer.
    "long": Theme([
        f"select length('{'x' * 17_000}')", "select repeat('r', 70000), $1", "select length($1)",
        "select i, repeat('s', 50) from generate_series(1, 1500) i", f"selec{'t' * 20_000}",
        f"insert into {TABLE} select i from generate_series(1, 200) i", f"table {TABLE}",
        f"do $$ begin raise notice '{'n' * 20_000}'; end $$", f"/*{'c' * 16_500}*/ select 1",
        f"set application_name to '{'a' * 17_000}'", "reset application_name", "begin", "commit",
    ]),
    # "ddl" has nothing of its own but what `Script.ddl` says.
    "ddl": Theme(["select 1", "begin", "commit", "rollback", "savepoint a", "rollback to a",
                  "select 1/0"]),
    "sql prepare": Theme(["select 1", "begin", "commit", "rollback", "select 1/0"]),
    "temporary": Theme(["select 1", "begin", "commit", "rollback", "select 1/0"]),
}

# What a session has beyond its transactions, by theme. Not covered, and not in here: LISTEN and
# UNLISTEN in a block, pg_listening_channels() inside a block, names
# in pg_prepared_statements that a driver has given, whether a setting was never set or is empty, and
# whether a server has had a temporary schema before.
BLOCKS = ["begin", "commit", "commit", "rollback", "savepoint a", "rollback to a", "select 1/0"]
STATE = {
    "own settings": Theme(BLOCKS + [
        "set work_mem to '5MB'", "set session work_mem to 6144", "set local work_mem to '9MB'",
        "show work_mem", "show work_mem", "reset work_mem", "set work_mem to default",
        "set work_mem to nonsense", "set app.tenant to 'it''s'", "set app.tenant = \"quoted\"",
        "select coalesce(current_setting('app.tenant', true), '')", "reset app.tenant",
        "select coalesce(current_setting('app.tenant', true), ''), current_setting('work_mem'), "
        "current_setting('statement_timeout'), current_setting('search_path')",
        "set search_path to nowhere, public", "set search_path to pg_catalog, public",
        "show search_path", "reset search_path", "set statement_timeout to '50s'",
        "set lock_timeout to '1h'", "show statement_timeout", "reset statement_timeout",
        "set extra_float_digits to 0", "select 0.1::float8 + 0.2", "set bytea_output to escape",
        "select '\\x41ff'::bytea", "set seq_page_cost to 1.5", "show seq_page_cost",
        "select set_config('work_mem', '7MB', false)", "select set_config('work_mem', '8MB', true)",
        "select set_config('app.tenant', 'by function', false)",
        "select set_config('app.' || 'tenant', 'joined', false)", "select set_config($1, $2, false)",
        "update pg_settings set setting = '6MB' where name = 'work_mem'",
        "do $$ begin set work_mem to '8MB'; end $$",
        "do $$ begin perform set_config('app.tenant', 'in a block', false); end $$",
        "do $$ begin set work_mem to '8MB'; raise exception 'no'; exception when others then null; "
        "end $$", "reset all", "discard all",
    ], [
        "set work_mem to '5MB'; select 1/0", "begin; set work_mem to '5MB'; commit",
        "begin; set work_mem to '5MB'; rollback; show work_mem", "set work_mem to 5120; reset all",
        "begin; set work_mem to '5MB'; savepoint b; set work_mem to '6MB'; rollback to b; commit",
        "set app.tenant to 'a;b'; select 1", "/* it's */ set -- x\n work_mem = '7MB'",
        "set work_mem to '5MB'; set statement_timeout to 0; set app.tenant to ''",
    ]),
    "roles": Theme(BLOCKS + [
        "set role plain_user", "set role none", "reset role", "set role nobody_of_that_name",
        "set session authorization plain_user", "set session authorization default",
        "reset session authorization", "select current_user, session_user", "show is_superuser",
        "select current_user, session_user", f"select count(*) from {TABLE}", "show role",
        "set log_statement to 'none'", "select name || '' from numbers where id = 7",
        "set session characteristics as transaction read only",
        "set session characteristics as transaction read write, isolation level serializable",
        "set default_transaction_read_only to on", "reset default_transaction_read_only",
        "set default_transaction_isolation to 'repeatable read'", "show transaction_isolation",
        "reset default_transaction_isolation", "show transaction_read_only",
        "create table never_made (a int)", "drop table if exists never_made", "reset all",
    ], ["set role plain_user; select current_user", "set role plain_user; select 1/0",
        "begin; set role plain_user; commit; select current_user",
        "set session authorization default; reset all"]),
    "temporary objects": Theme(BLOCKS + [
        "create temp table kept (a int)", "create temp table if not exists kept (a int)",
        "create temporary table kept as select 4 as a", "select 5 as a into temp kept",
        "insert into kept values (1), (2)", "select a + 0 from kept order by 1", "drop table kept",
        "drop table if exists kept", "select to_regclass('kept') is null",
        "create temp table numbers as select 7 as id, 'mine' as name",
        "select name || '' from numbers where id = 7", "create temp view seen as select 1 as one",
        "select one + 0 from seen", "drop view seen", "create temp sequence counted",
        "select nextval('counted')", "create temp table gone (a int) on commit drop",
        "select count(*) from pg_class where relnamespace = pg_my_temp_schema()",
        "discard temp", "discard all", "discard plans",
    ], ["create or replace function pg_temp.four() returns int language sql as 'select 4'; "
        "select pg_temp.four()",
        "create temp table kept (a int); insert into kept values (3); select a + 0 from kept",
        "begin; create temp table kept (a int); rollback", "create temp table kept (a int); select 1/0",
        "begin; create temp table kept (a int); commit; select count(*) from kept"]),
    "advisory locks": Theme(BLOCKS + [
        "select pg_advisory_lock(41)", "select pg_advisory_lock(41)", "select pg_try_advisory_lock(42)",
        "select pg_advisory_lock_shared(41, 1)", "select pg_advisory_xact_lock(43)",
        "select pg_advisory_unlock(41)", "select pg_advisory_unlock(41)", "select pg_advisory_unlock(42)",
        "select pg_advisory_unlock_shared(41, 1)", "select pg_advisory_unlock_all()",
        "select pg_advisory_lock($1)", "select pg_advisory_unlock($1)", "discard all",
        "select objid, mode from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() "
        "order by 1, 2",
        "select count(*) from pg_locks where locktype = 'advisory' and objid < 44",
        "do $$ begin perform pg_advisory_lock(42); end $$",
    ], ["select pg_advisory_lock(41); select 1/0", "begin; select pg_advisory_lock(41); rollback",
        "select pg_advisory_lock(41); select pg_advisory_unlock(41)"]),
    "held cursors": Theme(BLOCKS + [
        "declare h cursor with hold for select generate_series(1, 9)",
        "declare h scroll cursor with hold for values (1), (2), (3)", "declare h cursor for select 1",
        "declare i cursor with hold for select name || '' from numbers where id < 5 order by id",
        "fetch 2 from h", "fetch 2 from h", "fetch backward 1 from h", "move 1 in h", "close h",
        "fetch all from i", "close i", "close all", "discard all",
        "select name, is_holdable from pg_cursors where name in ('h', 'i') order by name",
    ], ["declare h cursor with hold for values (1), (2); fetch 1 from h",
        "begin; declare h cursor with hold for values (1), (2); fetch 1 from h; commit",
        "declare h cursor with hold for values (1); select 1/0", "fetch 1 from h; close h"]),
    "SQL's statements": Theme(BLOCKS + [
        "prepare q1 as select 1", "prepare q1 (int) as select $1 + 1", "execute q1", "execute q1(4)",
        "prepare q2 as select name || '' from numbers where id = 7", "execute q2", "deallocate q1",
        "deallocate q2", "deallocate prepare q1", "deallocate all", "discard all", "discard plans",
        f"prepare q2 (int) as insert into {TABLE} values ($1) returning a + 1", "execute q2(1)",
        "prepare q1 as selec", "explain (costs off) execute q1",
    ], ["prepare q1 as select 1; execute q1", "prepare q1 as select 1; select 1/0",
        "begin; prepare q1 as select 2; rollback; execute q1", "deallocate q1; prepare q1 as select 3"]),
    # The number of an earlier transaction may be PostgreSQL's error: docs/session-state.md.
    "numbers": Theme(BLOCKS + [
        "create sequence if not exists counter", "select nextval('counter')",
        "select nextval('counter'), currval('counter'), lastval()", "select setval('counter', 50)",
        "select nextval('counter'), lastval()", "select lastval()", "select currval('counter')",
        "discard sequences", "discard all", "alter sequence counter restart",
    ], ["begin; select nextval('counter'); select lastval(); commit",
        "begin; select nextval('counter'); select currval('counter'); rollback",
        "select nextval('counter'); select lastval()", "select nextval('counter'); select 1/0"]),
    "channels": Theme([
        "listen news", "listen news", "listen other",
        "notify news", "notify news, 'first'", "notify other, 'that'", "notify quiet, 'nobody'",
        "select pg_notify('news', 'by function')", "select pg_notify($1, 'bound')", "begin", "commit",
        "do $$ begin perform pg_notify('other', 'in a block'); end $$", "commit", "rollback",
        "savepoint a", "rollback to a", "select 1", "select 1/0",
    ], ["notify news, 'one'; notify news, 'two'; notify news, 'one'", "begin; notify news, 'gone'",
        "listen news; notify news, 'both'", "begin; listen other; commit", "listen news; select 1/0",
        "begin; notify other, 'late'; commit; select 1", "discard all", "commit; unlisten news",
        "rollback; unlisten other", "rollback; unlisten *", "commit; unlisten *; listen news"]),
}

# What some of them are bound to.
BOUND = {
    "select set_config($1, $2, false)": [["work_mem", "3MB"], ["app.tenant", "bound"], ["nonsense", "1"]],
    "select pg_advisory_lock($1)": [[41], [42]], "select pg_advisory_unlock($1)": [[41], [42]],
    "select pg_notify($1, 'bound')": [["news"], ["other"]],
}

NAMES = ["", "", "", "s1", "n1", "never"]
# No two that agree in 63 bytes: to PostgreSQL they are one.
ODD_NAMES = ["", "s1", "n1", "N1", "caf\u00e9", "n" * 63, "m" * 62, "howdah_void", "howdah_unknown",
             "howdah_" + "0" * 32, "howdah_mine", "with \"quotes\"", "it's", "a b", "l" * 300]
PORTALS = ["", "", "", "p1"]
MORE_PORTALS = ["", "p1", "p1", "p2", "c"]

# Texts whose rows DDL changes; none has a column of the table itself, whose number is another each
# time.
READS = [f"select * from {CHANGING}", f"select a from {CHANGING} order by 1",
         f"select count(*), max(t::text) from {CHANGING} t", f"table {CHANGING}",
         f"select b || $1 from {CHANGING}", f"insert into {CHANGING} values ($1) returning *",
         f"select * from {CHANGING} where a = $1", f"update {CHANGING} set a = a + 1 returning *"]
CHANGES = [f"alter table {CHANGING} add c int", f"alter table {CHANGING} drop b",
           f"alter table {CHANGING} drop column if exists c", f"alter table {CHANGING} add b text",
           f"alter table {CHANGING} alter a type bigint", f"alter table {CHANGING} alter a type int",
           f"alter table {CHANGING} rename b to c", f"alter table {CHANGING} add c varchar(9)",
           f"drop table {CHANGING}; create table {CHANGING} (a int, b text)",
           f"drop table {CHANGING}; create table {CHANGING} (b text, z date)",
           f"alter table {CHANGING} alter b type varchar(20)", f"drop table {CHANGING}",
           f"create table if not exists {CHANGING} (a int, b text)"]


# What a client asks for at login, now and then.
LOGINS = [{}, {}, {"application_name": "mine"}, {"datestyle": "German, DMY"},
          {"timezone": "Europe/Berlin", "client_encoding": "LATIN1"},
          {"application_name": "caf\u00e9", "datestyle": "SQL, MDY", "intervalstyle": "iso_8601"}]


def login(seed, covered):
    """What the client of a seed asks for at login. In session mode RESET by the extended protocol
    goes back to the server's own default, which is not covered."""
    return {} if covered.session else random.Random(seed).choice(LOGINS)


def change(rng):
    """What another client does between two transactions: a change of the schema, as a rule none."""
    return rng.choice(CHANGES) if rng.random() < 0.1 else "select 1"


class Script:
    """A script in the making."""

    def __init__(self, seed, covered):
        self.rng = random.Random(seed)
        self.covered = covered
        self.themes = self.rng.sample(list(THEMES), self.rng.randint(1, 3))
        chosen = [THEMES[name] for name in self.themes]
        own = self.rng.sample(list(STATE), self.rng.randint(1, 2)) if covered.keeps else []
        self.state = [text for name in own for text in STATE[name].texts]
        self.state_simple = self.state + [text for name in own for text in STATE[name].simple]
        self.texts = [text for theme in chosen for text in theme.texts]
        self.texts += [text for text in THEMES["plain"].texts[:4]]
        self.simple = self.texts + [text for theme in chosen for text in theme.simple]
        if covered.session or covered.keeps:
            self.simple += [text for theme in chosen for text in theme.session]
            self.texts += [text for theme in chosen for text in theme.session]
        if login(seed, covered):
            # Not covered: PostgreSQL commits it at once, and what fails behind it in the same group
            # undoes our going back to the values of the login.
            self.texts = [text for text in self.texts if text != "discard all"]
        self.names = ODD_NAMES if "names" in self.themes else NAMES
        self.portals = MORE_PORTALS if self.rng.random() < 0.4 or "cursors" in self.themes else PORTALS
        self.used = 0
        self.groups = [[]]

    def write(self):
        """All groups."""
        for _ in range(self.rng.randint(3, 6) if self.covered.keeps else self.rng.randint(1, 4)):
            for _ in range(self.rng.randint(1, 10)):
                self.one()
            self.end()
        return [group for group in self.groups if group]

    def say(self, *messages):
        """Adds messages, each of which can be left out."""
        self.groups[-1] += messages

    def end(self):
        """What comes next is sent when all so far is answered."""
        self.groups.append([])

    def one(self):
        """One message or more that stand together."""
        rng = self.rng
        if self.state and rng.random() < 0.9:
            return self.state_text()
        for theme, write in [("ddl", self.ddl), ("sql prepare", self.sql_prepare),
                             ("temporary", self.temporary), ("copies", self.copy_in)]:
            if theme in self.themes and rng.random() < 0.25:
                return write()
        kinds = {self.parse: 6, self.bind: 6, self.describe: 3, self.execute: 6, self.close: 2,
                 self.query: 4, self.sync: 5, self.flush: 2, self.stray: 1, self.call: 1,
                 self.copy_in: 1, self.as_drivers_do: 4, self.fetch_rows: 1}
        return rng.choices(list(kinds), list(kinds.values()))[0]()

    def parse(self):
        text = self.rng.choice(self.texts)
        types = self.rng.choice([(), (), (), (), (23,), (25, 25), (0,), (4_000_000_000,), (705,)])
        # With fewer types than parameters PostgreSQL 15 and 18 crash at these in a transaction that
        # has failed.
        self.say(parse(text, self.rng.choice(self.names), () if text == MANY_PARAMETERS else types))

    def bind(self):
        self.say(self.bound(self.rng.choice(self.names), self.rng.choice(self.portals)))

    def bound(self, name, portal):
        """A Bind of anything."""
        rng = self.rng
        four = struct.pack("!i", 5)
        choices = [((), ()), ((1,), ()), (("x",), ()), ((None,), ()), ((1, "x"), ()),
                   ((four,), (1,)), ((four, "x"), (1, 0)), ((b"\0\1",), (1,)), ((four, b"y"), (1,))]
        weights = [6, 2, 1, 1, 1, 1, 1, 1, 1]
        if "binary" in self.themes:
            choices += [((1, "t"), (0, 0, 0)), ((four, b"\1"), (1, 1)), ((1,), (2,)), ((1,), (-1,)),
                        ((1, 2, 3), ()), ((b"\0" * 8, b"\0" * 8, b"\0" * 8), (1,)), ((b"\xff",), ()),
                        (tuple(range(300)), ()), ((four,) * 300, (1,)), (("{1,2}",), ()), (("a\0b",), ())]
            weights += [1] * 11
        if "long" in self.themes:
            choices += [(("y" * 20_000,), ()), ((b"z" * 70_000,), (1,))]
            weights += [3, 1]
        values, formats = rng.choices(choices, weights)[0]
        return bind(name, values, portal, formats, rng.choice([(), (), (), (1,), (0,), (1, 0), (2,)]))

    def describe(self):
        self.say(self.rng.choice([describe(self.rng.choice(self.names)),
                                  describe(self.rng.choice(self.portals), "P")]))

    def execute(self):
        self.say(execute(self.rng.choice(self.portals), self.rng.choice([0, 0, 1, 2, -1])))

    def close(self):
        self.say(self.rng.choice([close(self.rng.choice(self.names)),
                                  close(self.rng.choice(self.portals), "P")]))

    def query(self):
        self.say(query(self.rng.choice(self.simple)))

    def sync(self):
        self.say(sync())

    def flush(self):
        self.say(flush())

    def stray(self):
        self.say(self.rng.choice([copy_data(b"1\n"), copy_done(), copy_fail("no")]))

    def call(self):
        self.say(self.rng.choice([
            function_call(177, [b"4", b"5"], formats=(0,), result=0),
            function_call(177, [struct.pack("!i", 2), struct.pack("!i", 3)]),
            function_call(177, [b"x", None], formats=(0,), result=1),
            function_call(4_000_000_000, [])]))

    def as_drivers_do(self):
        """A statement's whole life in a group, with or without a name, described in one way or
        another."""
        rng = self.rng
        name, portal = rng.choice(self.names), rng.choice(self.portals)
        messages = [parse(rng.choice(self.texts), name), describe(name), self.bound(name, portal),
                    describe(portal, "P"), execute(portal, rng.choice([0, 0, 0, 2])),
                    close(portal, "P"), close(name)]
        for message, share in zip(messages, [0.8, 0.4, 1, 0.5, 1, 0.1, 0.1]):
            if rng.random() < share:
                self.say(message)
        if rng.random() < 0.7:
            self.say(sync())

    def fetch_rows(self):
        """Rows of two portals in turn, a few at a time, asked for by Flush."""
        rng = self.rng
        if rng.random() < 0.7:
            self.say(query("begin"))
        self.say(parse("select i, $1::text from generate_series(1, 5) i", "rows"),
                 bind("rows", ["x"], "p1"), bind("rows", ["y"], "p2", results=[1]))
        for _ in range(rng.randint(1, 6)):
            self.say(execute(rng.choice(["p1", "p2"]), rng.choice([1, 2, 3, 0])))
            if rng.random() < 0.5:
                self.say(rng.choice([flush(), flush(), sync(), close("p1", "P"), describe("p2", "P")]))
        self.say(close("rows"), sync())

    def copy_in(self):
        """A COPY from the client and all its rows, good ones and bad ones, sent together: who waits
        for no answer can't say anything else in it, which would end the connection."""
        rng = self.rng
        sql = rng.choice([f"copy {TABLE} from stdin", f"copy {TABLE} from stdin",
                          "copy missing from stdin", f"copy {TABLE} (nothing) from stdin",
                          f"copy {TABLE} from stdin (format csv, header)"])
        rows = [copy_data(rng.choice([b"1\n", b"2\n3\n", b"4", b"\n", b"x\n", b""]))
                for _ in range(rng.randint(0, 4))]
        if rng.random() < 0.2:
            # PostgreSQL ignores them; rows that fail would leave open whether it has.
            rows = [rng.choice([copy_data(b"6\n"), flush(), flush(), copy_data(b"7\n8\n")])
                    for _ in range(4)]
        end = rng.choice([copy_done(), copy_done(), copy_fail("no")])
        if rng.random() < 0.5:
            # All or nothing: a COPY that has no end swallows the script's.
            return self.say(query(sql) + b"".join(rows) + end)
        name, portal = rng.choice(["", "", "s1"]), rng.choice(["", "p2"])
        return self.say(parse(sql, name) + bind(name, portal=portal) + execute(portal)
                        + b"".join(rows) + end + sync() + close(name) + sync())

    def state_text(self):
        """A text about what a session has, as a client that works sends it; as a rule the next one
        comes when it is answered, and others have used the pool."""
        rng = self.rng
        before = rng.choice([b"", sync()])
        if rng.random() < 0.5:
            self.say(before + query(rng.choice(self.state_simple)))
        else:
            text = rng.choice(self.state)
            values = rng.choice(BOUND.get(text, [[]]))
            self.say(before + parse(text) + bind(values=values) + rng.choice([b"", describe(kind="P")])
                     + execute() + sync())
        if rng.random() < 0.6:
            self.end()

    def sql_prepare(self):
        """SQL's own statements, under names that are used for nothing else, in one transaction."""
        rng = self.rng
        self.used += 1
        name = f"sql{self.used}"
        ways = [query, query, lambda text: parse(text) + bind() + execute() + sync()]
        inside = [f"prepare {name} as select $1::int + 1, 'x'", f"execute {name}(1)",
                  f"execute {name}", f"deallocate {name}", "select 1/0", "savepoint b",
                  "rollback to b", f"execute {name}('x')", "deallocate all",
                  f"prepare {name} (int) as values ($1)"]
        if rng.random() < 0.3:
            return self.say(sync() + query(f"begin; {inside[0]}; {inside[1]}; "
                                  + rng.choice(["commit", "rollback", inside[3] + "; commit"])))
        self.say(sync() + query(f"begin; {inside[0]}"))
        for _ in range(rng.randint(1, 4)):
            # By its name in the protocol, too.
            self.say(rng.choice([rng.choice(ways)(rng.choice(inside)),
                                 rng.choice(ways)(rng.choice(inside)),
                                 bind(name, [2]) + execute() + sync(), describe(name) + sync(),
                                 close(name) + sync()]))
        return self.say(query("rollback"))

    def temporary(self):
        """A temporary table, and all that is done with it, in one transaction."""
        self.used += 1
        name = f"temporary{self.used}"
        rng = self.rng
        end = rng.choice([f"drop table {name}; commit", "rollback", "commit"])
        self.say(sync() + query(rng.choice(["begin", "begin; select 1", "begin isolation level serializable"])
                                + f"; create temp table {name} (a int) on commit drop"),
                 query(f"insert into {name} values (1), (2)"),
                 parse(f"select sum(a), $1 from {name}", "s2") + bind("s2", [3]) + execute()
                 + close("s2") + rng.choice([sync(), flush()]),
                 query(f"select count(*) from {name}; select 1/{rng.choice('01')}"),
                 query(end), query(f"select * from {name}"))

    def ddl(self):
        """Statements whose rows change. A change is answered before anything else is parsed."""
        rng = self.rng
        if rng.random() < 0.45:
            change = rng.choice(CHANGES)
            way = rng.randint(0, 3)
            if self.covered.rotates:
                # Not undone: see `Covered`.
                self.say(sync() + query("rollback") + query(change))
            elif way == 0 and ";" not in change:
                self.say(parse(change) + bind() + execute() + sync())
            elif way == 1:
                self.say(query("begin"), query(change), query("commit"))
            elif way == 2:
                self.say(*(query(text) for text in rng.choice([
                    ["begin", change, "rollback"], ["savepoint a", change, "rollback to a"],
                    ["begin", "savepoint b", change, "rollback to b", "commit"]])))
            else:
                self.say(query(change))
            return self.end()
        name = rng.choice(["s1", "s2", "s3"])
        text = rng.choice(READS[:3] if rng.random() < 0.7 else READS)
        kind = rng.randint(0, 3)
        if kind == 0:
            # Described from the start, by statement or by portal.
            by_portal = "$" not in text and rng.random() < 0.4
            self.say(parse(text, name) + (bind(name) + describe("", "P") if by_portal
                                          else describe(name)), sync())
        elif kind == 1 and not self.covered.rotates:
            self.say(parse(text, name), sync())
        else:
            bound = rng.choice([self.bound(name, ""), bind(name, [1] * text.count("$"))])
            self.say(*rng.choice([
                [bound, execute(), sync()], [bound, execute(), sync()],
                [bound, describe("", "P"), execute(), sync()],
                [describe(name), sync()], [close(name), sync()],
                [parse(text), bind(), describe("", "P"), execute(), sync()],
                [query(text)], [query(f"deallocate {name}")]]))
        return None


def generate(seed, covered):
    """A script of a seed: lists of messages, each list read to its end before the next is sent."""
    return Script(seed, covered).write()
