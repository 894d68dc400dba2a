"""The same bytes, sent to PostgreSQL and through Howdah, must give the same replies.

A script is a list of steps; a step sends bytes and reads replies up to a stated point. Between
two steps, whenever our client is outside a transaction, an interloper uses the same pool, with
statements of the same names and other texts, so that whatever a client leaves on a server and
should not would be seen. Every script ends with a query of its own: a stray reply would show
before its answer.
"""

import random
import ssl
import struct
from typing import NamedTuple

import pytest

from harness import wire
from harness.wire import (
    bind, close, copy_data, copy_done, copy_fail, describe, execute, flush, function_call,
    message, parse, query, sync, terminate,
)

END = "end"


class Step(NamedTuple):
    """Bytes to send and how far to read: a number of ReadyForQuery, a tag, or to the end."""

    data: bytes
    until: object


def ready(*parts, count=1):
    """Sends, and reads up to `count` ReadyForQuery."""
    return Step(b"".join(parts), count)


def upto(tag, *parts):
    """Sends, and reads up to the first message of a tag."""
    return Step(b"".join(parts), tag)


def nothing(*parts):
    """Sends, and reads nothing yet."""
    return Step(b"".join(parts), 0)


def ends(*parts):
    """Sends, and reads until the connection is closed."""
    return Step(b"".join(parts), END)


def run(sql):
    """One extended group of a statement without parameters, without its Sync."""
    return parse(sql) + bind() + describe(kind="P") + execute()


ROWS = "select id, name from numbers where id <= 7 order by id"
# Without columns of the table itself: its number is another each time.
CHANGING = "select * from changing union all select * from changing"
INT4 = 23
TEXT = 25

SCRIPTS = {
    # What a prepared statement does to its session
    "a named DEALLOCATE": [
        ready(parse("select 1", "s1"), parse("deallocate s1", "d"), sync()),
        ready(bind("d"), execute(), sync()),
        ready(bind("s1"), execute(), sync()),
        ready(bind("d"), execute(), sync()),
        ready(parse("select 2", "s1"), bind("s1"), execute(), sync()),
        ready(bind("d"), execute(), bind("s1"), execute(), sync()),
        ready(bind("d"), execute(), sync()),
    ],
    "a DEALLOCATE that is bound wrongly": [
        ready(parse("select 1", "s1"), parse("deallocate s1", "d"), sync()),
        ready(bind("d", [1]), execute(), sync()), ready(bind("d", results=[1, 1]), sync()),
        ready(parse("deallocate s1"), bind(values=[1]), execute(), sync()),
        ready(bind("s1"), execute(), sync()),
    ],
    "a named DEALLOCATE of itself": [
        ready(parse("deallocate d", "d"), bind("d"), execute(), sync()),
        ready(bind("d"), execute(), sync()),
    ],
    "a named DEALLOCATE ALL": [
        ready(parse("select 1", "s1"), parse("deallocate all", "d"), sync()),
        ready(bind("d"), execute(), sync()),
        ready(bind("s1"), execute(), sync()),
        ready(bind("d"), execute(), sync()),
    ],
    "a named DISCARD ALL": [
        ready(parse("select 1", "s1"), parse("discard all", "d"), sync()),
        ready(bind("d"), execute(), sync()),
        ready(bind("s1"), execute(), sync()),
    ],
    "the portal that is executed deallocates": [
        ready(parse("select 1", "s1"), parse("deallocate s1", "d"), parse("select 2", "t"), sync()),
        ready(bind("d", portal="p"), bind("t", portal="q"), execute(portal="q"),
              execute(portal="p"), sync()),
        ready(bind("s1"), execute(), sync()),
        ready(parse("select 1", "s1"), sync()),
        ready(bind("t", portal="p"), bind("d", portal="q"), execute(portal="p"), sync()),
        ready(bind("s1"), execute(), sync()),
    ],
    # Names in errors
    "names in errors": [
        ready(parse("select $1::int", "s1"), bind("s1"), execute(), sync()),
        ready(parse("select 1", "s1"), sync()),
        ready(parse("select $1::int + $2", "s2"), sync()),
        ready(bind("s2"), sync()),
    ],
    "names like ours": [
        ready(parse("select 1", "howdah_void"), bind("howdah_void"), execute(), sync()),
        ready(bind("howdah_x"), sync()),
        ready(describe("howdah_unknown"), sync()),
        ready(bind("howdah_00112233445566778899aabbccddeeff"), sync()),
        ready(query("deallocate howdah_x")),
        ready(query("deallocate howdah_void")),
        ready(bind("howdah_void"), sync()),
        ready(query("execute howdah_00112233445566778899aabbccddeeff")),
    ],
    "names like ours that are there": [
        ready(parse("select 1", "s1"), sync(), parse("select 2", "s1"), sync(), count=2),
        ready(query("deallocate howdah_void")), ready(query("DEALLOCATE Howdah_Unknown; ")),
        ready(parse("select 2", "s1"), sync()),
        ready(query("begin")), ready(query("deallocate howdah_void")),
        ready(query("deallocate howdah_void")), ready(query("rollback")),
        ready(parse("select 3", "u"), bind("u"), parse("select 4", "s1"), sync()),
        ready(parse("select 'unnamed'"), query("deallocate howdah_void"), count=1),
        ready(bind(), execute(), sync()),
    ],
    # Results that change
    "a result that changes": [
        ready(query("drop table if exists changing; create table changing (a int)")),
        ready(parse(CHANGING, "s1"), describe("s1"), bind("s1"), execute(), sync()),
        ready(query("alter table changing add b text")),
        ready(bind("s1"), execute(), sync()),
        ready(parse(CHANGING, "s2"), describe("s2"), bind("s2"), execute(), sync()),
        ready(bind("s1"), execute(), sync()),
        ready(close("s1"), parse(CHANGING, "s1"), describe("s1"), bind("s1"),
              execute(), sync()),
        ready(query("alter table changing drop a")),
        ready(describe("s1"), sync()),
        ready(query("deallocate s1")),
        ready(parse(CHANGING, "s1"), describe("s1"), bind("s1"), execute(), sync()),
        ready(query("drop table changing")),
    ],
    "DDL that is undone to a savepoint": [
        ready(query("drop table if exists undone; create table undone (a int)")),
        ready(parse("table undone union all table undone", "s1"), describe("s1"), bind("s1"), execute(), sync()),
        ready(query("begin; savepoint one")), ready(query("alter table undone add b text")),
        ready(parse("table undone union table undone", "s2"), bind("s2"), execute(), sync()),
        ready(bind("s1"), execute(), sync()), ready(query("rollback to one")),
        ready(bind("s1"), execute(), sync()), ready(bind("s2"), execute(), sync()),
        ready(query("commit")), ready(bind("s1"), execute(), sync()),
        ready(query("drop table undone")),
    ],
    "a temporary table in the place of another": [
        step for _ in range(2) for step in [
            ready(query("drop table if exists hidden; create table hidden as select 1 as theirs")),
            ready(parse("select theirs from hidden", "s1"), bind("s1"), execute(), sync()),
            ready(query("begin")),
            ready(query("create temp table hidden on commit drop as select 2 as theirs")),
            ready(parse("select theirs from hidden", "s2"), bind("s2"), execute(), sync()),
            ready(query("commit")),
            ready(close("s1"), close("s2"), parse("select theirs from hidden", "s1"), bind("s1"),
                  execute(), sync()),
            ready(close("s1"), sync()), ready(query("drop table hidden")),
        ]
    ],
    "a new table before another in the search path": [
        ready(query("drop schema if exists nearer cascade; create schema nearer; "
                    "drop table if exists found; create table found as select 1 as one")),
        ready(query("begin")), ready(query("set local search_path to nearer, public")),
        ready(parse("select * from found", "s1"), bind("s1"), execute(), sync()),
        ready(query("commit")),
        ready(query("create table nearer.found as select 'nearer' as two")),
        ready(query("begin")), ready(query("set local search_path to nearer, public")),
        ready(parse("select * from found", "s2"), bind("s2"), execute(), sync()),
        ready(query("commit")),
        ready(query("drop schema nearer cascade; drop table found")),
    ],
    "tables of one name in two schemas": [
        ready(query("drop schema if exists one cascade; drop schema if exists two cascade; "
                    "create schema one; create schema two; create table one.tenants (a int); "
                    "create table two.tenants (b text)")),
    ] + [
        step for name, path in [("t1", "one"), ("t2", "two"), ("t3", "one"), ("t4", "two")]
        for step in [
            ready(query("begin")), ready(query(f"set local search_path to {path}")),
            ready(parse("table tenants union table tenants", name), describe(name), bind(name),
                  execute(), sync()),
            ready(query("commit")),
        ]
    ] + [ready(query("drop schema one cascade; drop schema two cascade"))],
    "what is parsed behind SET and DDL in one group": [
        ready(query("drop table if exists grouped; create table grouped (a int)")),
        ready(parse("select '2020-01-02 12:00'::timestamptz::text", "s1"),
              parse("table grouped union table grouped", "g1"), describe("g1"), sync()),
        ready(parse("set timezone to 'Asia/Tokyo'", "set"), sync()),
        ready(parse("alter table grouped add b text", "ddl"), sync()),
        ready(bind("set"), execute(), parse("select '2020-01-02 12:00'::timestamptz::text", "s2"),
              bind("s2"), execute(), parse("select 1"), bind(), execute(), sync()),
        ready(bind("ddl"), execute(), parse("table grouped union table grouped", "g2"), describe("g2"),
              bind("g2"), execute(), sync()),
        ready(query("reset timezone")),
        ready(bind("g1"), execute(), sync()), ready(query("drop table grouped")),
    ],
    "constants are of the settings of their Parse": [
        ready(query("begin")), ready(query("set timezone to 'Asia/Tokyo'")),
        ready(query("set datestyle to 'SQL, DMY'")),
        ready(parse("select extract(epoch from '01/02/2020 12:00'::timestamptz), $1::date::text", "c1"),
              parse("set timezone to 'Europe/Berlin'", "z1"), sync()),
        ready(bind("z1"), execute(), sync()), ready(query("set datestyle to 'ISO, MDY'")),
        ready(bind("c1", ["03/04/2021"]), execute(), sync()),
        ready(query("set local timezone to 'America/New_York'")),
        ready(describe("c1"), bind("c1", ["03/04/2021"]), execute(), sync()),
        ready(query("select 1/0")), ready(bind("c1"), execute(), sync()), ready(query("rollback")),
        ready(close("c1"), close("z1"), sync()),
    ],
    # Simple protocol
    "simple": [ready(query("select 1, 'one'::text, null"))],
    "simple several statements": [ready(query("select 1; select 2, 3; select 'x' where false"))],
    "simple empty": [ready(query("")), ready(query(" ; ;")), ready(query("-- only a comment"))],
    "simple error": [ready(query("select nonsense")), ready(query("selec 1")),
                     ready(query("select 1/0"))],
    "simple error in the middle": [ready(query("select 1; select 1/0; select 2"))],
    "simple transaction": [ready(query("begin")), ready(query("select 1")), ready(query("commit"))],
    "simple failed transaction": [
        ready(query("begin")), ready(query("select 1/0")), ready(query("select 1")),
        ready(query("rollback")), ready(query("select 2")),
    ],
    "simple commit of a failed transaction": [
        ready(query("begin; select 1/0")), ready(query("commit")), ready(query("select 1")),
    ],
    "simple savepoints": [
        ready(query("begin; savepoint a")), ready(query("select nonsense")),
        ready(query("rollback to a")), ready(query("select 1")), ready(query("commit")),
    ],
    "simple transaction across one message": [
        ready(query("select 1; begin; select 2")), ready(query("commit; select 3")),
    ],
    "simple pipeline": [ready(query("select 1"), query("select 2"), query("select 3"), count=3)],
    "simple pipeline with errors": [
        ready(query("select 1"), query("select 1/0"), query("begin"), query("oops"),
              query("rollback"), query("select 3"), count=6),
    ],
    "simple pipeline of transactions": [
        ready(query("begin"), query("select 1"), query("commit"), query("begin"),
              query("select 2"), query("rollback"), count=6),
    ],
    "notices": [
        ready(query("do $$ begin raise notice 'hello'; raise warning 'careful'; end $$")),
        ready(query("commit")), ready(query("begin")), ready(query("begin")),
        ready(query("rollback")),
    ],
    "error with all fields": [
        ready(query("do $$ begin raise exception 'no' using detail = 'd', hint = 'h', "
                    "errcode = 'ABCDE', table = 't', column = 'c', schema = 's', "
                    "constraint = 'k', datatype = 'y'; end $$")),
    ],
    "large row": [ready(query("select repeat('x', 300000), repeat('y', 3)"))],
    "many rows": [ready(query("select i, repeat('r', 100) from generate_series(1, 3000) i"))],
    "large statement": [ready(query("select length('" + "z" * 200_000 + "')"))],
    "cursor": [
        ready(query("begin; declare c cursor for " + ROWS)), ready(query("fetch 3 from c")),
        ready(query("fetch all from c")), ready(query("close c; commit")),
    ],

    # Settings
    "application_name": [
        ready(query("set application_name to 'ours'")), ready(query("show application_name")),
        ready(query("select current_setting('application_name')")),
        ready(query("reset application_name")), ready(query("show application_name")),
    ],
    "application_name in a rolled back transaction": [
        ready(query("begin; set application_name to 'gone'")), ready(query("rollback")),
        ready(query("show application_name")),
    ],
    "datestyle": [
        ready(query("set datestyle to 'SQL, DMY'")),
        ready(query("select '2001-02-03'::date")), ready(query("show datestyle")),
        ready(query("set datestyle to 'ISO'")), ready(query("select '2001-02-03'::date")),
    ],
    "timezone": [
        ready(query("set timezone to 'America/New_York'")),
        ready(query("select '2001-02-03 04:05:06+00'::timestamptz")),
        ready(query("show timezone")),
    ],
    "client_encoding": [
        ready(query("set client_encoding to 'LATIN1'")), ready(query("select chr(233)")),
        ready(query("show client_encoding")),
    ],
    "standard_conforming_strings": [
        ready(query("set standard_conforming_strings to off")),
        ready(query("show standard_conforming_strings")), ready(query("select 'a\\\\b'")),
    ],
    "intervalstyle": [
        ready(query("set intervalstyle to 'iso_8601'")),
        ready(query("select interval '1 day 2 hours'")),
    ],
    "settings of one transaction": [
        ready(query("begin; set local timezone to 'Asia/Tokyo'")), ready(query("show timezone")),
        ready(query("commit")), ready(query("show timezone")),
    ],
    "setting with a bad value": [
        ready(query("set datestyle to 'nonsense'")), ready(query("show datestyle")),
    ],
    "settings by the extended protocol": [
        ready(run("set application_name to 'extended'"), sync()),
        ready(run("show application_name"), sync()),
    ],
    "odd values of settings": [
        ready(query("set application_name to 'it''s \\ \"odd\" %s; select 1'")),
        ready(query("show application_name")), ready(query("set application_name to ''")),
        ready(query("show application_name")),
    ],

    # Extended protocol, unnamed statement
    "extended": [ready(parse("select $1::int + 1", types=[INT4]), bind(values=[41]), execute(),
                       sync())],
    "extended with descriptions": [
        ready(parse(ROWS.replace("7", "$1")), describe(), bind(values=[2]), describe(kind="P"),
              execute(), sync()),
    ],
    "extended binary": [
        ready(parse("select $1::int, $2::text, $3::bytea"),
              bind(values=[struct.pack("!i", 7), b"seven", b"\0\1\xff"], formats=[1], results=[1]),
              describe(kind="P"), execute(), sync()),
    ],
    "extended mixed formats and null": [
        ready(parse("select $1::int, $2::text, $3::int"),
              bind(values=[struct.pack("!i", 7), None, "9"], formats=[1, 0, 0],
                   results=[0, 1, 1]), execute(), sync()),
    ],
    "extended empty statement": [
        ready(parse(""), describe(), bind(), describe(kind="P"), execute(), sync()),
        ready(parse("-- nothing"), bind(), execute(), sync()),
    ],
    "extended no rows": [ready(run("select 1 where false"), sync()),
                         ready(run("set local timezone to 'UTC'"), sync())],
    "unnamed parsed, then bound in the next group": [
        ready(parse("select $1::text || ' ours'"), sync()),
        ready(bind(values=["is"]), execute(), sync()),
        ready(bind(values=["again"]), execute(), sync()),
    ],
    "unnamed parsed and described, then bound": [
        ready(parse("select $1::int * 2"), describe(), sync()),
        ready(describe(), sync()),
        ready(bind(values=["21"]), describe(kind="P"), execute(), sync()),
    ],
    "unnamed ended by a simple query": [
        ready(parse("select 'ours'"), sync()), ready(query("select 'simple'")),
        ready(bind(), execute(), sync()),
    ],
    "unnamed replaced by one that fails": [
        ready(parse("select 'first'"), sync()), ready(parse("select nonsense"), sync()),
        ready(bind(), execute(), sync()),
    ],
    "unnamed closed": [
        ready(parse("select 'ours'"), sync()), ready(close(), sync()),
        ready(bind(), execute(), sync()), ready(describe(), sync()),
    ],
    "unnamed that never was": [ready(bind(), execute(), sync()), ready(describe(), sync())],
    "unnamed in a transaction": [
        ready(query("begin")), ready(parse("select 'inside'"), sync()),
        ready(bind(), execute(), sync()), ready(query("commit")),
        ready(bind(), execute(), sync()),
    ],
    "unnamed, then named, then unnamed": [
        ready(parse("select 'u1'"), parse("select 'n1'", "n1"), bind("n1"), execute(), bind(),
              execute(), sync()),
        ready(bind(), execute(), sync()), ready(bind("n1"), execute(), sync()),
    ],
    "unnamed with the types of its parameters": [
        ready(parse("select $1", types=[TEXT]), describe(), sync()),
        ready(parse("select $1", types=[INT4]), describe(), sync()),
        ready(bind(values=["5"]), execute(), sync()),
    ],

    # Extended protocol, named statements
    "named": [
        ready(parse("select $1::int + 100", "s1"), sync()),
        ready(bind("s1", [1]), execute(), sync()), ready(bind("s1", [2]), execute(), sync()),
        ready(close("s1"), sync()), ready(bind("s1", [3]), execute(), sync()),
    ],
    "named, described later": [
        ready(parse(ROWS, "s1"), sync()), ready(describe("s1"), sync()),
        ready(bind("s1"), describe(kind="P"), execute(), sync()),
    ],
    "named twice": [
        ready(parse("select 'first'", "s1"), sync()), ready(parse("select 'second'", "s1"), sync()),
        ready(bind("s1"), execute(), sync()), ready(parse("select 'first'", "s1"), sync()),
        ready(bind("s1"), execute(), sync()),
    ],
    "named twice in one group": [
        ready(parse("select 'first'", "s1"), parse("select 'second'", "s1"), bind("s1"), execute(),
              sync()),
        ready(bind("s1"), execute(), sync()),
    ],
    "named that never was": [
        ready(bind("unknown"), execute(), sync()), ready(describe("unknown"), sync()),
        ready(close("unknown"), sync()), ready(query("select 1")),
    ],
    "named that failed, then parsed well": [
        ready(parse("select * from missing", "s1"), sync()), ready(bind("s1"), execute(), sync()),
        ready(parse("select 'well'", "s1"), sync()), ready(bind("s1"), execute(), sync()),
    ],
    "named that failed, then closed": [
        ready(parse("select * from missing", "s1"), sync()), ready(close("s1"), sync()),
        ready(parse("select * from missing", "s1"), close("s1"), sync()),
        ready(parse("select 'well'", "s1"), bind("s1"), execute(), sync()),
    ],
    "named, closed and parsed again in one group": [
        ready(parse("select 'first'", "s1"), sync()),
        ready(close("s1"), parse("select 'second'", "s1"), bind("s1"), execute(), sync()),
        ready(bind("s1"), execute(), sync()),
    ],
    "named, parsed and closed in one group": [
        ready(parse("select 'first'", "s1"), bind("s1"), execute(), close("s1"),
              parse("select 'second'", "s1"), bind("s1"), execute(), sync()),
        ready(bind("s1"), execute(), sync()),
    ],
    "named, the group fails after it": [
        ready(parse("select 'kept'", "s1"), bind("s1"), execute(), run("select 1/0"), sync()),
        ready(bind("s1"), execute(), sync()),
    ],
    "named, the group fails before it": [
        ready(run("select 1/0"), parse("select 'never'", "s1"), sync()),
        ready(bind("s1"), execute(), sync()),
        ready(parse("select 'now'", "s1"), bind("s1"), execute(), sync()),
    ],
    "closed, the group fails before it": [
        ready(parse("select 'kept'", "s1"), sync()),
        ready(run("select 1/0"), close("s1"), sync()), ready(bind("s1"), execute(), sync()),
    ],
    "closed, the group fails after it": [
        ready(parse("select 'gone'", "s1"), sync()),
        ready(close("s1"), run("select 1/0"), sync()), ready(bind("s1"), execute(), sync()),
    ],
    "named in a rolled back transaction": [
        ready(query("begin")), ready(parse("select 'survives'", "s1"), sync()),
        ready(query("rollback")), ready(bind("s1"), execute(), sync()),
    ],
    "many names of one text": [
        ready(*(parse("select 'same'", f"n{i}") for i in range(20)), sync()),
        ready(*(bind(f"n{i}") + execute() for i in range(20)), sync()),
        ready(*(close(f"n{i}") for i in range(0, 20, 2)), sync()),
        ready(bind("n1"), execute(), sync()), ready(bind("n2"), execute(), sync()),
    ],
    "more statements than a cache holds": [
        ready(*(parse(f"select {i}", f"n{i}") for i in range(300)), sync()),
        ready(*(bind(f"n{i}") + execute() for i in range(300)), sync()),
        ready(*(bind(f"n{i}") + execute() + sync() for i in range(0, 300, 10)), count=30),
    ],
    "a type that must be found out": [
        ready(parse("select $1 + 1.5, $2 || 'x'", "s1"), describe("s1"), sync()),
        ready(bind("s1", ["2", "y"]), execute(), sync()),
    ],
    "result type changes under a statement": [
        ready(query("create table if not exists shape (a int); insert into shape values (1)")),
        ready(parse("select * from shape", "s1"), bind("s1"), execute(), sync()),
        ready(query("alter table shape add b text default 'x'")),
        ready(bind("s1"), execute(), sync()), ready(query("drop table shape")),
    ],

    # Errors in the extended protocol
    "parse errors": [
        ready(parse("selec 1"), sync()), ready(parse("select 1; select 2"), sync()),
        ready(parse("select $1"), bind(values=["untyped"]), execute(), sync()),
    ],
    "bind errors": [
        ready(parse("select $1::int"), bind(), execute(), sync()),
        ready(parse("select $1::int"), bind(values=["abc"]), execute(), sync()),
        ready(parse("select 1"), bind(values=["too", "many"]), execute(), sync()),
        ready(parse("select $1::int"), bind(values=[b"ab"], formats=[1]), execute(), sync()),
        ready(parse("select 1"), bind(results=[7]), execute(), sync()),
    ],
    "execute errors": [
        ready(parse("select 1/$1::int"), bind(values=["0"]), execute(), sync()),
        ready(execute("nowhere"), sync()), ready(describe("nowhere", "P"), sync()),
        ready(close("nowhere", "P"), sync()),
    ],
    "all after an error is skipped": [
        ready(run("select 1"), run("select 1/0"), run("select 2"), parse("select 3", "s1"),
              describe("s1"), close("s1"), flush(), sync()),
        ready(bind("s1"), sync()),
    ],
    "an error undoes its group": [
        ready(run("insert into copied values (1, 'undone')"), run("select 1/0"), sync()),
        ready(query("select count(*) from copied")),
    ],
    "errors in a transaction": [
        ready(query("begin")), ready(run("select 1/0"), sync()), ready(run("select 1"), sync()),
        ready(parse("select 2", "s1"), sync()), ready(bind("s1"), execute(), sync()),
        ready(run("rollback"), sync()), ready(bind("s1"), execute(), sync()),
    ],
    "a known statement in a failed transaction": [
        ready(parse("select 'known'", "s1"), sync()), ready(query("begin")),
        ready(query("select 1/0")), ready(bind("s1"), execute(), sync()),
        ready(describe("s1"), sync()), ready(parse("select 'known'", "s2"), sync()),
        ready(close("s1"), sync()), ready(query("rollback")),
        ready(bind("s1"), execute(), sync()), ready(bind("s2"), execute(), sync()),
    ],

    # Shapes of groups
    "sync alone": [ready(sync()), ready(sync(), sync(), sync(), count=3)],
    "flush alone": [nothing(flush()), ready(query("select 1")), nothing(flush(), flush())],
    "flush for each reply": [
        upto("1", parse("select $1::int", "s1"), flush()), upto("T", describe("s1"), flush()),
        upto("2", bind("s1", [5]), flush()), upto("C", execute(), flush()), ready(sync()),
    ],
    "flush after an error": [
        upto("E", parse("selec"), flush()), nothing(parse("select 1"), bind(), execute(), flush()),
        ready(sync()),
    ],
    "parse, describe, flush, then bind": [
        upto("T", parse("select $1::text"), describe(), flush()),
        ready(bind(values=["x"]), execute(), sync()),
    ],
    "pipeline of groups": [
        ready(*(run(f"select {i}") + sync() for i in range(30)), count=30),
    ],
    "pipeline with a failing group": [
        ready(run("select 1"), sync(), run("select 1/0"), run("select 2"), sync(), run("select 3"),
              sync(), count=3),
    ],
    "pipeline with an unknown statement": [
        ready(parse("select 'known'", "s1"), sync(), bind("unknown"), execute(), sync(),
              bind("s1"), execute(), sync(), count=3),
        ready(bind("s1"), execute(), sync()),
    ],
    "pipeline that parses, fails and parses": [
        ready(parse("select * from missing", "s1"), sync(), bind("s1"), execute(), sync(),
              parse("select 'second'", "s1"), sync(), bind("s1"), execute(), sync(), count=4),
    ],
    "pipeline that parses twice": [
        ready(parse("select 'one'", "s1"), sync(), parse("select 'two'", "s1"), sync(),
              bind("s1"), execute(), sync(), count=3),
    ],
    "pipeline that closes and parses": [
        ready(parse("select 'one'", "s1"), sync(), close("s1"), sync(),
              parse("select 'two'", "s1"), sync(), bind("s1"), execute(), sync(), count=4),
    ],
    "pipeline with a transaction": [
        ready(run("begin"), sync(), run("select 1"), sync(), run("select 1/0"), sync(),
              run("select 2"), sync(), run("rollback"), sync(), run("select 3"), sync(), count=6),
    ],
    "pipeline, simple and extended": [
        ready(query("select 1"), run("select 2"), sync(), query("select 3; select 1/0"),
              run("select 4"), sync(), count=4),
    ],
    "query in the middle of a group": [
        ready(parse("select 'group'"), bind(), query("select 'simple'"), execute(), sync(),
              count=2),
    ],
    "query after a failure in a group": [
        ready(parse("selec"), query("select 'skipped'"), sync()),
    ],
    "begin and commit in one group": [
        ready(run("begin"), run("select 1"), run("commit"), sync()),
        ready(run("begin"), run("select 1"), sync()), ready(run("commit"), sync()),
    ],
    "statements share names with others": [
        ready(parse("select 'mine'", "shared"), sync()), ready(bind("shared"), execute(), sync()),
        ready(bind("shared"), execute(), sync(), bind("shared"), execute(), sync(), count=2),
    ],

    # Portals
    "row limits": [
        ready(parse(ROWS), bind(), execute(rows=3), execute(rows=3), execute(rows=3), execute(),
              sync()),
    ],
    "row limits with flush": [
        upto("s", parse(ROWS), bind(), execute(rows=2), flush()), upto("s", execute(rows=2), flush()),
        ready(execute(), sync()),
    ],
    "portals over groups in a transaction": [
        ready(query("begin")),
        ready(parse(ROWS, "s1"), bind("s1", portal="p1"), execute("p1", 2), sync()),
        ready(bind("s1", portal="p2"), execute("p2", 3), execute("p1", 2), sync()),
        ready(close("p1", "P"), execute("p1"), sync()), ready(query("rollback")),
    ],
    "portals die with their group": [
        ready(parse(ROWS), bind(portal="p1"), execute("p1", 2), sync()),
        ready(execute("p1"), sync()),
    ],
    "two portals of one name": [
        ready(parse("select 1", "s1"), bind("s1", portal="p"), bind("s1", portal="p"), sync()),
    ],
    "statement closed under its portal": [
        ready(parse("select 'held'", "s1"), bind("s1", portal="p"), close("s1"), execute("p"),
              sync()),
    ],

    # SQL that changes the session's statements
    "deallocate by name": [
        ready(parse("select 'ours'", "s1"), sync()), ready(query("deallocate s1")),
        ready(bind("s1"), execute(), sync()), ready(query("deallocate s1")),
        ready(parse("select 'new'", "s1"), bind("s1"), execute(), sync()),
    ],
    "deallocate by name, extended": [
        ready(parse("select 'ours'", "s1"), sync()), ready(run("deallocate s1"), sync()),
        ready(bind("s1"), execute(), sync()),
    ],
    "deallocate all": [
        ready(parse("select 'one'", "s1"), parse("select 'two'", "s2"), sync()),
        ready(query("deallocate all")), ready(bind("s1"), execute(), sync()),
        ready(parse("select 'again'", "s1"), bind("s1"), execute(), sync()),
    ],
    "deallocate all in a pipeline": [
        ready(parse("select 'one'", "s1"), sync()),
        ready(run("deallocate all"), parse("select 'two'", "s1"), bind("s1"), execute(), sync()),
        ready(bind("s1"), execute(), sync()),
    ],
    "discard all": [
        ready(parse("select 'one'", "s1"), sync()), ready(query("set application_name to 'x'")),
        ready(query("discard all")), ready(bind("s1"), execute(), sync()),
        ready(query("show application_name")),
    ],
    "sql prepare in a transaction": [
        ready(query("begin; prepare mine as select 'prepared'")), ready(query("execute mine")),
        ready(query("deallocate mine; commit")),
    ],

    # COPY
    "copy out": [
        ready(query("copy (select i, 'row' from generate_series(1, 50) i) to stdout")),
        ready(run("copy (select 1, 2) to stdout"), sync()),
        ready(query("copy missing to stdout")),
        ready(query("copy (select 1/(3-i) from generate_series(1, 5) i) to stdout")),
    ],
    "copy in": [
        upto("G", query("copy copied from stdin")),
        ready(copy_data(b"1\tone\n2\ttwo\n"), copy_data(b"3\tthree\n"), copy_done()),
        ready(query("select * from copied order by id; delete from copied")),
    ],
    "copy in, all at once": [
        ready(query("copy copied from stdin"), copy_data(b"1\tone\n"), copy_done()),
        ready(query("delete from copied")),
    ],
    "copy in, extended": [
        upto("G", parse("copy copied from stdin"), bind(), execute(), flush()),
        ready(copy_data(b"7\tseven\n"), copy_done(), sync()),
        ready(query("delete from copied")),
    ],
    "copy in, extended, Sync sent at once": [
        upto("G", parse("copy copied from stdin"), bind(), execute(), sync()),
        ready(copy_data(b"7\tseven\n"), copy_done(), sync()),
        ready(query("delete from copied")),
    ],
    "copy in given up": [
        upto("G", query("copy copied from stdin")),
        ready(copy_data(b"1\tone\n"), copy_fail("changed my mind")),
        ready(query("select count(*) from copied")),
    ],
    "copy in with a bad row": [
        upto("G", query("copy copied from stdin")),
        ready(copy_data(b"not a number\tx\n"), copy_data(b"2\ttwo\n" * 1000), copy_done()),
        ready(query("select count(*) from copied")),
    ],
    "copy in with a bad row, extended": [
        upto("G", parse("copy copied from stdin"), bind(), execute(), flush()),
        ready(copy_data(b"bad\n"), copy_data(b"2\ttwo\n"), copy_done(), sync()),
        ready(run("select 'after'"), sync()),
    ],
    "copy in with a bad row, more sent after the error was read": [
        upto("G", query("copy copied from stdin")), ready(copy_data(b"bad\n"), copy_done()),
        nothing(copy_data(b"3\tlate\n"), copy_data(b"4\tlate\n"), copy_done()),
        ready(query("select count(*) from copied")),
    ],
    "copy in a transaction that fails": [
        ready(query("begin")), upto("G", query("copy copied from stdin")),
        ready(copy_data(b"1\ta\n1\ta\n"), copy_done()),
        nothing(copy_data(b"2\tb\n"), copy_done()), ready(query("select 1")),
        ready(query("rollback")),
    ],
    "a query in the middle of a copy": [
        upto("G", query("begin; create temp table copied (a int); copy copied from stdin")),
        ends(query("select 1")),
    ],
    "a query right behind a copy": [
        ends(query("create temp table copied (a int); copy copied from stdin"),
             query("select 1")),
    ],
    "a query right behind a copy, extended": [
        ends(run("create temp table copied (a int)"), run("copy copied from stdin"), sync(),
             query("select 1"), sync()),
    ],
    "copy messages where there is no copy": [
        nothing(copy_data(b"1\n")), nothing(copy_done()), nothing(copy_fail("no")),
        ready(query("select 1")), nothing(copy_data(b"x" * 100)), ready(run("select 2"), sync()),
    ],
    "query in the middle of copy": [
        upto("G", query("copy copied from stdin")),
        ends(copy_data(b"1\tone\n"), query("select 1")),
    ],
    "flush and sync in the middle of copy": [
        upto("G", query("copy copied from stdin")),
        ready(copy_data(b"1\tone\n"), flush(), sync(), copy_data(b"2\ttwo\n"), copy_done()),
        ready(query("delete from copied")),
    ],
    "two copies in one query": [
        upto("G", query("copy copied from stdin; copy copied from stdin; select 'done'")),
        upto("G", copy_data(b"1\ta\n"), copy_done()),
        ready(copy_data(b"2\tb\n"), copy_done()), ready(query("delete from copied")),
    ],

    # The rest of the protocol
    "function call": [
        ready(function_call(177, [struct.pack("!i", 2), struct.pack("!i", 3)])),
        ready(function_call(177, [b"4", b"5"], formats=(0,), result=0)),
        ready(function_call(177, [None, b"5"], formats=(0,), result=0)),
        ready(function_call(4_000_000_000, [])),
    ],
    "function call in a failed transaction": [
        ready(query("begin")), ready(query("select 1/0")),
        ready(function_call(177, [b"4", b"5"], formats=(0,), result=0)), ready(query("rollback")),
    ],
    "terminate": [ends(terminate())],
    "terminate behind a query": [ends(query("select 1"), terminate())],
    "terminate in a transaction": [ready(query("begin; select 1")), ends(terminate())],
    "terminate in the middle of a group": [ends(parse("select 1"), bind(), terminate())],
    "terminate behind a pipeline": [
        ends(run("select 1"), sync(), query("select 2"), terminate()),
    ],
    "unknown message": [ends(message("!", b"what?"))],
    "unknown message behind a query": [ends(query("select 1"), message("y"))],
    "bad messages": [
        ready(message("B", b"\0\0\0\1"), sync()), ready(message("Q", b"select 1\0 tail")),
        ready(message("P", b"s1\0select 1\0\0\5"), sync()), ready(message("C", b"Xs1\0"), sync()),
        ready(message("D", b"Ys1\0"), sync()), ready(message("E", b"\0"), sync()),
    ],

    # Messages with wrong lengths and odd contents, big ones, long names
    "length zero": [ends(b"Q\0\0\0\0")],
    "length too short": [ends(b"Q\0\0\0\3")],
    "messages without their bodies": [
        ready(message("P"), sync()), ready(message("B"), sync()), ready(message("E"), sync()),
        ready(message("D"), sync()), ready(message("C"), sync()), ready(query("select 1")),
    ],
    "length of 2 GB": [ends(b"Q\x7f\xff\xff\xff")],
    "length of a long Sync": [ends(b"S\0\0\x50\0")],
    "length too short, behind others": [
        ready(query("begin")), ends(query("select 1"), b"Q\0\0\0\3"),
    ],
    "bodies where there should be none": [
        ready(message("S", b"x")), ready(message("H", b"x"), sync()), ready(query("select 1")),
        ready(parse("select 1"), message("S", b"x")),
        ready(parse("select 2", "kept"), message("H", b"x"), query("select 3"), sync()),
        ready(run("select 4"), message("H", b"x"), query("select 5"), message("S", b"x")),
        ready(bind("kept"), execute(), sync()),
        ready(query("select 6"), message("H", b"x"), sync(), count=2),
        ready(parse("selec"), message("S", b"x")),
        ready(query("begin")), ready(message("H", b"x"), message("S", b"x")),
        ready(query("select 1")), ready(query("rollback")),
        ready(query("begin")), ready(message("S", b"x"), query("rollback"), count=2),
    ],
    "an insert undone by a body of its Sync": [
        ready(run("insert into copied values (1, 'undone')"), message("S", b"x")),
        ready(query("select count(*) from copied")),
    ],
    "bodies in a COPY": [
        ready(query("begin")),
        Step(query("copy copied from stdin") + message("H", b"x") + message("S", b"x")
             + copy_data(b"1\tone\n") + copy_done(), 1),
        ready(run("copy copied from stdin"), message("H", b"x"), message("S", b"x"),
              copy_data(b"2\ttwo\n"), copy_done(), sync()),
        ready(query("select * from copied order by id")), ready(query("rollback")),
    ],
    "zero columns": [ready(query("select")), ready(run("select where false"), sync())],
    "names of 200 bytes": [
        ready(parse("select 'long'", "n" * 200), bind("n" * 200, portal="p" * 200),
              execute("p" * 200), sync()),
        ready(describe("n" * 200), close("n" * 200), bind("n" * 200), sync()),
    ],
    "parameters about as long as a buffer": [
        ready(*(parse("select length($1)", types=[TEXT]) + bind(values=["v" * size]) + execute()
                for size in (8150, 8191, 8192, 8193, 32767, 32768, 32769, 65536)), sync()),
    ],
    "rows about as long as a buffer": [
        ready(query(f"select repeat('r', {size})")) for size in
        (8170, 8185, 8192, 16384, 32750, 32768, 65536)
    ],
    "describe of portals of each kind": [
        ready(parse(sql), bind(results=[1]), describe(kind="P"), execute(rows=1), sync())
        for sql in ("select 1", "values (1), (2)", "show timezone", "explain select 1", "begin",
                    "savepoint a", "insert into copied values (9) returning id", "rollback", "")
    ],
    "all messages in a failed transaction": [
        ready(query("begin")), ready(query("oops")), ready(parse("select 1"), sync()),
        ready(bind(), sync()), ready(describe(), sync()), ready(describe(kind="P"), sync()),
        ready(execute(), sync()), ready(close(), sync()), ready(flush(), sync()),
        ready(query("")), ready(parse(""), bind(), execute(), sync()), ready(query("commit")),
    ],
    "cursors by SQL and by portal": [
        ready(query("begin; declare c cursor for " + ROWS)),
        ready(describe("c", "P"), execute("c", 2), sync()), ready(query("fetch 1 from c")),
        ready(query("move 2 in c; fetch all from c")), ready(close("c", "P"), sync()),
        ready(query("fetch 1 from c")), ready(query("rollback")),
    ],
    "portal kept over a savepoint": [
        ready(query("begin; savepoint a")), ready(parse(ROWS), bind(portal="p"), execute("p", 2),
                                                 sync()),
        ready(query("rollback to a")), ready(execute("p", 2), sync()), ready(query("rollback")),
    ],
    "temporary table of one transaction": [
        ready(query("begin; create temp table own (a int) on commit drop; "
                    "insert into own values (3)")),
        ready(run("select a + 0 from own"), sync()), ready(query("commit")),
        ready(query("select * from own")),
    ],
    "lock of a transaction": [
        ready(query("begin; select pg_advisory_xact_lock(4711)")),
        ready(query("select count(*) from pg_locks where locktype = 'advisory'")),
        ready(query("commit")),
    ],
    "two-phase commit is off": [
        ready(query("begin; prepare transaction 'two'")), ready(query("commit prepared 'two'")),
    ],
    "setting undone by a savepoint": [
        ready(query("begin; savepoint a; set timezone to 'Asia/Tokyo'")),
        ready(query("rollback to a; show timezone")), ready(query("commit")),
        ready(query("show timezone")),
    ],
    "setting undone by an error in one message": [
        ready(query("set timezone to 'Asia/Tokyo'; select 1/0")), ready(query("show timezone")),
        ready(run("set datestyle to 'German'"), run("select 1/0"), sync()),
        ready(query("show datestyle")),
    ],
    "chained transactions": [
        ready(query("begin; select 1")), ready(query("commit and chain")),
        ready(query("select 1/0")), ready(query("rollback and chain")),
        ready(query("select 2")), ready(query("commit")),
    ],
    "no transaction block here": [
        ready(query("vacuum copied; select 1")), ready(run("vacuum copied"), sync()),
        ready(run("select 1"), run("vacuum copied"), sync()), ready(query("savepoint a")),
    ],
    "errors at each place of three groups": [
        ready(*(run("select 1" if at != bad else "select 1/0") + sync() for at in range(3)),
              count=3) for bad in range(3)
    ],
    "flush at each place": [
        ready(flush(), parse("select 1", "s1"), flush(), describe("s1"), flush(), bind("s1"),
              flush(), describe(kind="P"), flush(), execute(), flush(), close("s1"), flush(),
              sync(), flush(), query("select 2"), count=2),
    ],
    "NUL in strings": [
        ready(message("Q", b"select 1\0\0")), ready(message("P", b"\0select 1\0x\0\0\0"), sync()),
        ready(parse("select $1::text"), bind(values=[b"a\0b"]), execute(), sync()),
        ready(parse("select $1::text"), bind(values=[b"\xff\xfe"]), execute(), sync()),
    ],

    # Function calls, failing copies, suspended portals, notices, formats: in company
    "function calls in a pipeline": [
        ready(function_call(177, [b"4", b"5"], formats=(0,), result=0), query("select 1"),
              function_call(177, [b"x", b"5"], formats=(0,), result=0), query("select 2"), count=4),
    ],
    "function call in a transaction, and of a null": [
        ready(query("begin")), ready(function_call(177, [b"4", b"5"], formats=(0,), result=0)),
        ready(function_call(177, [b"4"], formats=(0,), result=0)), ready(query("select 1")),
        ready(query("rollback")),
    ],
    "function call behind a group without its Sync": [
        ready(parse("select 1", "s1"), sync(),
              function_call(177, [struct.pack("!i", 2), struct.pack("!i", 3)]),
              bind("s1"), execute(), sync(), count=3),
    ],
    "copy in that fails before it begins": [
        ready(query("copy missing from stdin")), nothing(copy_data(b"1\tone\n"), copy_done()),
        ready(run("copy missing from stdin"), sync()),
        nothing(copy_data(b"1\tone\n"), copy_fail("no")), ready(query("select 1")),
    ],
    "copy in that fails before it begins, its rows behind it": [
        ready(query("copy missing from stdin"), copy_data(b"1\tone\n" * 100), copy_done(),
              query("select 'behind'"), count=2),
        ready(run("copy copied (nothing) from stdin"), copy_data(b"1\n"), copy_done(), sync(),
              query("select 'behind'"), count=2),
    ],
    "copy in that fails at its first row, in a transaction with savepoints": [
        ready(query("begin; savepoint a")), upto("G", query("copy copied from stdin")),
        ready(copy_data(b"x\n"), copy_data(b"1\tlate\n" * 500), copy_done()),
        ready(query("rollback to a; select 1")),
        upto("G", query("copy copied from stdin")), ready(copy_data(b"1\tone\n"), copy_done()),
        ready(query("rollback")),
    ],
    "copy in, extended, given up": [
        upto("G", parse("copy copied from stdin"), bind(), execute(), flush()),
        ready(copy_data(b"1\tone\n"), copy_fail("no more"), sync()),
        ready(query("select count(*) from copied")),
    ],
    "copy in, binary": [
        upto("G", query("copy copied from stdin binary")),
        ready(copy_data(b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\2\0\0\0\4\0\0\0\7\0\0\0\3one"
                        b"\xff\xff"), copy_done()),
        ready(query("copy copied to stdout binary")), ready(query("delete from copied")),
        upto("G", query("copy copied from stdin binary")),
        ready(copy_data(b"PGCOPY\n\xff\r\n?"), copy_done()),
    ],
    "copy in and out by named statements": [
        ready(parse("copy copied from stdin", "s1"), parse("copy copied to stdout", "s2"), sync()),
        upto("G", bind("s1"), execute(), flush()),
        ready(copy_data(b"5\tfive\n"), copy_done(), sync()),
        ready(bind("s2"), execute(), sync()), ready(run("delete from copied"), sync()),
        ready(bind("s2"), execute(), sync()),
    ],
    "close of what never was": [
        ready(close("never"), close("never", "P"), close(), close(kind="P"), sync()),
        ready(query("begin")), ready(close("never"), sync()), ready(query("oops")),
        ready(close("never"), close("never", "P"), sync()), ready(query("rollback")),
    ],
    "close in the middle of a pipeline": [
        ready(parse("select 'one'", "s1"), sync(), close("s1"), bind("s1"), sync(),
              close("never"), run("select 2"), sync(), count=3),
    ],
    "portal suspended, then Sync": [
        ready(parse(ROWS), bind(), execute(rows=2), sync()),
        ready(execute(rows=2), sync()), ready(query("select 'after'")),
        ready(query("begin")), ready(parse(ROWS, "s1"), bind("s1"), execute(rows=2), sync()),
        ready(execute(rows=2), sync()), ready(execute(), sync()), ready(query("commit")),
        ready(execute(), sync()),
    ],
    "portal suspended, then another statement": [
        ready(parse(ROWS), bind(portal="p"), execute("p", 1), run("select 'between'"),
              execute("p", 1), execute("p"), execute("p"), sync()),
    ],
    "portal suspended at its last row": [
        ready(parse(ROWS), bind(), execute(rows=7), execute(rows=1), execute(), sync()),
    ],
    "describe of a portal after an error": [
        ready(parse("select 1/0 as a"), bind(), describe(kind="P"), execute(), describe(kind="P"),
              sync()),
        ready(describe(kind="P"), sync()), ready(query("begin")),
        ready(parse("select 1"), bind(portal="p"), sync()), ready(query("oops")),
        ready(describe("p", "P"), sync()), ready(query("rollback")),
    ],
    "notices among rows, and before an error": [
        ready(query("do $$ begin for i in 1..20 loop raise notice 'number %', i; end loop; "
                    "raise exception 'enough'; end $$")),
        ready(run("do $$ begin raise notice 'extended'; end $$"), run("select 1"),
              run("do $$ begin raise warning 'again'; end $$"), sync()),
        ready(query("drop table if exists no_such; select 1; drop view if exists no_such")),
    ],
    "notices of each level": [
        ready(query("set client_min_messages to debug1; "
                    "do $$ begin raise debug 'd'; raise log 'l'; raise info 'i'; "
                    "raise notice 'n'; raise warning 'w'; end $$; reset client_min_messages")),
    ],
    "error in the middle of many statements": [
        ready(query("begin; select 1; select 1/0; commit; select 2")), ready(query("select 3")),
        ready(query("rollback; select 4; oops")),
        ready(query("select 5; begin; select 6; select nonsense; select 7")),
        ready(query("rollback")),
    ],
    "error in the middle undoes what was before": [
        ready(query("insert into copied values (77, 'x'); select 1/0")),
        ready(query("select count(*) from copied where id = 77")),
        ready(query("insert into copied values (78, 'x'); commit; select 1/0")),
        ready(query("delete from copied where id = 78")),
    ],
    "empty queries in company": [
        ready(query(""), query(";"), query("select 1"), query(";;; select 2;;"), count=4),
        ready(query("begin")), ready(query("")), ready(run(""), run("select 1"), run(""), sync()),
        ready(query("oops")), ready(query("")), ready(run(""), sync()), ready(query("rollback")),
        ready(parse("", "s1"), describe("s1"), bind("s1"), describe(kind="P"), execute(), sync()),
    ],
    "binary of many types": [
        ready(parse("select $1::int2, $2::int8, $3::float8, $4::bool, $5::uuid, $6::date, "
                    "$7::int4[], $8::numeric"),
              describe(),
              bind(values=[struct.pack("!h", -2), struct.pack("!q", 2**40), struct.pack("!d", .5),
                           b"\1", bytes(range(16)), struct.pack("!i", 400),
                           struct.pack("!iiiiiii", 1, 0, 23, 1, 1, 4, 9),
                           struct.pack("!hhHhh", 1, 0, 0, 0, 12)],
                   formats=[1], results=[1]), execute(), sync()),
    ],
    "binary that is not what it says": [
        ready(parse("select $1::int8"), bind(values=[b"short"], formats=[1]), execute(), sync()),
        ready(parse("select $1::bool", "s1"), sync()),
        ready(bind("s1", [b"\1"], formats=[1], results=[1]), execute(), sync()),
        ready(bind("s1", [b"t"], results=[0]), execute(), sync()),
        ready(bind("s1", [b"t"], formats=[2]), execute(), sync()),
        ready(bind("s1", [b"t"], formats=[0, 1]), execute(), sync()),
    ],
    "one statement, other formats each time": [
        ready(parse(ROWS.replace("7", "$1"), "s1"), sync()),
        ready(bind("s1", [2], results=[1]), describe(kind="P"), execute(), sync()),
        ready(bind("s1", [2], results=[0, 1]), describe(kind="P"), execute(), sync(),
              bind("s1", [struct.pack("!i", 1)], formats=[1]), execute(), sync(), count=2),
    ],
}

SESSION_SCRIPTS = {
    "notifications": [
        ready(query("listen news")), ready(query("notify news, 'first'")),
        ready(query("begin; notify news, 'second'; notify news, 'third'")),
        ready(query("commit")), ready(run("notify news"), sync()), ready(query("unlisten *")),
    ],
    "settings of a session": [
        ready(query("set statement_timeout to 12345")), ready(query("show statement_timeout")),
        ready(run("select set_config('work_mem', '5MB', false)"), sync()),
        ready(query("show work_mem")),
    ],
    "temporary tables": [
        ready(query("create temp table mine (a int); insert into mine values (1)")),
        ready(query("select a + 0 from mine")), ready(query("discard temp")),
        ready(query("select * from mine")),
    ],
    "sql prepare": [
        ready(query("prepare p as select $1::int")), ready(query("execute p(3)")),
        ready(bind("p", [4]), execute(), sync()), ready(query("deallocate p")),
    ],
}


# Known not to be the same, and why.
DIFFERENT = {}
NAMES = [pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=DIFFERENT[name]))
         if name in DIFFERENT else name for name in SCRIPTS]


def comparable(got):
    """A message in the form that must be equal: key, process id and source lines left out."""
    if got.tag == "K":
        return ("K", len(got.body))
    if got.tag == "A":
        return ("A", got.body[4:])
    return (got.tag, got.body)


def differences(direct, through):
    """What differs, as text; nothing if the two lists of messages are equal."""
    if [comparable(got) for got in direct] == [comparable(got) for got in through]:
        return ""
    lines = []
    for index in range(max(len(direct), len(through))):
        ours = through[index] if index < len(through) else None
        theirs = direct[index] if index < len(direct) else None
        if ours and theirs and comparable(ours) == comparable(theirs):
            continue
        if ours and theirs and same_error(theirs, ours):
            continue
        lines.append(f"  message {index}: PostgreSQL {show(theirs)}\n"
                     f"             through Howdah {show(ours)}")
    return "\n".join(lines[:8])


def same_error(theirs, ours):
    """Errors we make ourselves have all fields of PostgreSQL's but the lines of its source."""
    if theirs.tag != ours.tag or ours.tag not in "EN":
        return False
    fields = ours.fields()
    expected = theirs.fields()
    if "L" in fields:
        return fields == expected
    expected = {k: v for k, v in expected.items() if k in fields or k not in "FLR"}
    return fields == expected


def show(got):
    """A message for people."""
    if got is None:
        return "nothing"
    if got.tag in "EN":
        return f"{got.tag} {got.fields()}"
    body = got.body if len(got.body) < 100 else got.body[:100] + b"..."
    return f"{got.tag} {body!r}"


def read(client, until):
    """The messages of a step."""
    if until == END:
        return client.read_to_end()
    if isinstance(until, str):
        return client.read_until(until + "Z")
    found = []
    for _ in range(until):
        found += client.read_until("Z")
    return found


def play(connection, steps, between=None, send=None, read=read):
    """Plays a script and a last query; gives the messages of each step."""
    send = send or (lambda client, data: client.send(data))
    found = []
    with connection as client:
        idle = True
        for step in steps:
            if between and idle:
                between()
            send(client, step.data)
            try:
                found.append(read(client, step.until))
            except (TimeoutError, wire.Ended, wire.Refused, ConnectionResetError) as problem:
                found.append([wire.Message("!", repr(problem).encode())])
                return found
            if found[-1] or step.until != 0:
                idle = bool(found[-1]) and found[-1][-1] == wire.Message("Z", b"I")
        if steps[-1].until != END:
            if between and idle:
                between()
            client.send(query("select 'the end'"))
            found.append(client.read_until("Z"))
            client.send(terminate())
    return found


def compare(direct, through):
    """Fails with the first step that differs."""
    for step, (theirs, ours) in enumerate(zip(direct, through)):
        found = differences(theirs, ours)
        assert not found, f"step {step + 1} differs:\n{found}"
    assert len(direct) == len(through), "it ended early"


class Interloper:
    """Another client of the same pool, whose leftovers our client must never meet."""

    def __init__(self, howdah):
        self.client = howdah.connect()
        self.turn = 0
        names = ["s1", "s2", "n1", "shared"]
        self.client.ask(*(parse(f"select 'interloper {name}'", name) for name in names), sync())

    def __call__(self):
        self.turn += 1
        mark = f"interloper {self.turn}"
        got = self.client.ask(
            parse(f"select '{mark}'"), bind(), execute(), bind("s1"), execute(), sync(),
            query(f"set application_name to '{mark}'"))
        got += self.client.read_until("Z")
        rows = [row.row() for row in got if row.tag == "D"]
        assert rows == [[mark.encode()], [b"interloper s1"]], got
        assert not [row for row in got if row.tag == "E"], got
        # Leaves an unnamed statement behind.
        self.client.ask(parse(f"select '{mark} was here'"), sync())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()


MODES = {
    "transaction-1": {"pool_mode": "transaction", "default_pool_size": 1},
    "transaction-2": {"pool_mode": "transaction", "default_pool_size": 2},
    "session": {"pool_mode": "session", "default_pool_size": 5},
}

# In what circumstances a script is played: pool mode, workers, and where packets end; on each
# driver. Three workers share one pool, and two servers if it is of transactions: those are lent.
SETTINGS = {
    ("transaction", 1): MODES["transaction-1"],
    ("transaction", 3): {"pool_mode": "transaction", "default_pool_size": 12, "workers": 3,
                         "max_db_connections": 2},
    ("session", 1): MODES["session"],
    ("session", 3): {"pool_mode": "session", "default_pool_size": 12, "workers": 3},
}
CUTS = ["whole", "bytewise", "at random"]


def circumstances():
    """Each script with each value of each dimension, by turns; which do not come with `--long`
    only are in no way special. The values of a script's three turns: one of each cut, and not all
    of them in the same pool mode or with as many workers."""
    for number, name in enumerate(SCRIPTS):
        for turn, cut in enumerate(CUTS):
            usual = (["transaction", "session"][(number + turn) % 2],
                     [1, 3][(number // 2 + (turn + 1) // 2) % 2])
            for mode, workers in SETTINGS:
                marks = [pytest.mark.xfail(strict=True, reason=DIFFERENT[name])] \
                    if name in DIFFERENT else []
                if (mode, workers) != usual:
                    marks.append(pytest.mark.long)
                yield pytest.param(name, mode, workers, cut, marks=marks,
                                   id=f"{name}-{mode}-{workers}-{cut}")


pytestmark = pytest.mark.timeout(90)


# So many bytes of a step are sent one by one, or in pieces; the rest together.
PIECEMEAL = 300


def sender(cut, name):
    """A sender that ends packets there."""
    rng = random.Random(name)

    def send(client, data):
        at = 0
        while at < min(len(data), PIECEMEAL):
            size = 1 if cut == "bytewise" else rng.choice([1, 2, 5, 6, 30, 100])
            client.send(data[at:at + size])
            client.taken()
            at += size
        if at < len(data):
            client.send(data[at:])
    return None if cut == "whole" else send


@pytest.mark.parametrize("name, mode, workers, cut", list(circumstances()))
def test_same_replies(shared_howdah, postgres, name, mode, workers, cut):
    """Every script, in all circumstances by turns."""
    howdah = shared_howdah(**SETTINGS[mode, workers])

    def by_socket():
        return wire.connect(howdah.socket_path, "postgres", "postgres")
    direct = play(postgres.connect(), SCRIPTS[name])
    if mode == "session":
        through = play(by_socket(), SCRIPTS[name], send=sender(cut, name))
    else:
        with Interloper(howdah) as interloper:
            through = play(by_socket(), SCRIPTS[name], interloper, sender(cut, name))
    compare(direct, through)
    howdah.wait_for_pool(cl_active=0, cl_waiting=0, sv_active=0)


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in DIFFERENT])
def test_same_replies_where_unnamed_statements_are_kept(shared_howdah, postgres, name):
    """`unnamed_statements = share`: PostgreSQL parses a script's unnamed statements the first time, keeps
    them the second time, and has them the third time."""
    howdah = shared_howdah(**MODES["transaction-1"], unnamed_statements="share")
    for _ in range(3):
        compare(play(postgres.connect(), SCRIPTS[name]), play(howdah.connect(), SCRIPTS[name]))


def test_every_circumstance_is_met():
    """Without `--long`, too, each script meets every cut, pool mode and number of workers."""
    met = {}
    for case in circumstances():
        if all(mark.name != "long" for mark in case.marks):
            met.setdefault(case.values[0], []).append(case.values[1:])
    assert set(met) == set(SCRIPTS) and len(SCRIPTS) >= 150
    for name, cases in met.items():
        for values, all_of_them in zip(zip(*cases), (["transaction", "session"], [1, 3], CUTS)):
            assert set(values) == set(all_of_them), (name, cases)
    assert {case[:2] for cases in met.values() for case in cases} == set(SETTINGS)


@pytest.mark.parametrize("name", SESSION_SCRIPTS)
def test_same_replies_in_a_session(shared_howdah, postgres, name):
    """What only session mode can do."""
    howdah = shared_howdah(**MODES["session"])
    compare(play(postgres.connect(), SESSION_SCRIPTS[name]),
            play(howdah.connect(), SESSION_SCRIPTS[name]))


@pytest.mark.parametrize("name", NAMES)
def test_same_replies_newest(shared_howdah, newest_postgres, name):
    """The newest PostgreSQL at hand, its replies passed on as faithfully."""
    howdah = shared_howdah(postgres=newest_postgres, **MODES["transaction-1"])
    direct = play(newest_postgres.connect(), SCRIPTS[name])
    with Interloper(howdah) as interloper:
        compare(direct, play(howdah.connect(), SCRIPTS[name], between=interloper))


def send_split(at):
    """A sender that cuts what it sends in two, each part read on its own."""
    def send(client, data):
        client.send(data[:at])
        client.taken()
        client.send(data[at:])
    return send


def send_bytewise(client, data):
    """A sender of one byte at a time."""
    for at in range(len(data)):
        client.send(data[at:at + 1])
        client.taken()


def send_in_records(client, data):
    """Sends small pieces: each is a record of TLS."""
    for at in range(0, len(data), 97):
        client.send(data[at:at + 97])


@pytest.mark.parametrize("name", NAMES[::6])
def test_same_replies_over_tls(shared_howdah, postgres, authority, name):
    """A slice of the scripts, over TLS: whole, and in many records."""
    howdah = shared_howdah(**MODES["transaction-1"], **tls_settings(authority))
    context = ssl.create_default_context(cafile=authority.certificate)
    direct = play(postgres.connect(), SCRIPTS[name])
    with Interloper(howdah) as interloper:
        for send in (None, send_in_records):
            through = howdah.connect(tls=context)
            compare(direct, play(through, SCRIPTS[name], interloper, send))


_sites = {}


def tls_settings(authority):
    """Of a Howdah that has TLS for who asks for it; one certificate for all."""
    if not _sites:
        _sites["one"] = authority.issue()
    return {"client_tls_sslmode": "prefer", "client_tls_key_file": _sites["one"].key,
            "client_tls_cert_file": _sites["one"].chain}


SPLIT = ["simple several statements", "extended with descriptions", "named twice in one group",
         "pipeline with an unknown statement", "copy in, all at once", "query in the middle of a group",
         "unnamed, then named, then unnamed", "function call"]


@pytest.mark.parametrize("name", SPLIT)
def test_split_at_every_byte(shared_howdah, postgres, name):
    """Where packets end must not matter."""
    howdah = shared_howdah(**MODES["transaction-1"])
    steps = SCRIPTS[name]

    def by_socket():
        return wire.connect(howdah.socket_path, "postgres", "postgres")
    direct = play(postgres.connect(), steps)
    for at in range(1, max(len(step.data) for step in steps)):
        compare(direct, play(by_socket(), steps, send=send_split(at)))
    compare(direct, play(by_socket(), steps, send=send_bytewise))


STARTUPS = {
    "plain": {},
    "application_name": {"application_name": "a name"},
    "application_name, long": {"application_name": "long" * 2000},
    "application_name, accents": {"application_name": "caf\u00e9 \u4e2d"},
    "application_name, LATIN1": {"application_name": b"caf\xe9", "client_encoding": "LATIN1"},
    "application_name, SJIS": {"application_name": b"\x95\x5c", "client_encoding": "SJIS"},
    "application_name, control bytes": {"application_name": "a\x01b\nc\x7f"},
    "client_encoding": {"client_encoding": "LATIN1"},
    "datestyle": {"datestyle": "German, DMY"},
    "datestyle, shortened": {"datestyle": "iso"},
    "datestyle, other words": {"datestyle": "european, SQL"},
    "datestyle, German": {"datestyle": "german"},
    "encoding in quotes": {"client_encoding": "'utf-8'"},
    "a boolean": {"standard_conforming_strings": "F"},
    "intervalstyle, loud": {"intervalstyle": "ISO_8601"},
    "utc": {"timezone": "utc"},
    "timezone": {"timezone": "Europe/Berlin"},
    "standard_conforming_strings": {"standard_conforming_strings": "off"},
    "intervalstyle": {"intervalstyle": "postgres_verbose"},
}


RESETS = {
    "one": [ready(query("set datestyle to 'SQL, MDY'")), ready(query("reset datestyle"))],
    "one that was not changed": [ready(query("reset datestyle"))],
    "one of several": [ready(query("set datestyle to iso; set timezone to utc")),
                       ready(query("reset TimeZone -- only this"))],
    "to default": [ready(query("set application_name to x")),
                   ready(query("SET application_name = default;"))],
    "time zone": [ready(query("set time zone 'utc'")), ready(query("set time zone default"))],
    "names": [ready(query("set names 'utf8'")), ready(query("set names"))],
    "all": [ready(query("set datestyle to iso; set timezone to utc; set work_mem to '5MB'")),
            ready(query("reset all")), ready(query("show work_mem"))],
    "discard": [ready(query("set datestyle to iso; set timezone to utc")),
                ready(query("discard all"))],
    "to the server's own": [ready(query("set datestyle to 'ISO, MDY'")), ready(query("reset all"))],
    "rolled back": [ready(query("set datestyle to iso")), ready(query("begin")),
                    ready(query("reset datestyle")), ready(query("show datestyle")),
                    ready(query("rollback"))],
    "kept": [ready(query("set datestyle to iso")), ready(query("begin")),
             ready(query("reset all")), ready(query("show datestyle")), ready(query("commit"))],
    "local": [ready(query("set datestyle to iso")), ready(query("begin")),
              ready(query("set local datestyle to default")), ready(query("show datestyle")),
              ready(query("commit"))],
    "in a failed transaction": [ready(query("set datestyle to iso")),
                                ready(query("begin; select 1/0")),
                                ready(query("reset datestyle")), ready(query("discard all")),
                                ready(query("rollback"))],
    "one of several commands": [
        ready(query("set datestyle to iso; set timezone to utc")),
        ready(query("select pg_advisory_unlock_all();\nclose all;\nunlisten *;\nreset all;")),
        ready(query("set datestyle to iso")),
        ready(query("set session authorization default;reset all;close all;unlisten *;"
                    "select pg_advisory_unlock_all();discard sequences;discard temp")),
        ready(query("set datestyle to iso")), ready(query("reset datestyle; show datestyle; ;")),
        ready(query("set datestyle to iso")), ready(query("select 1 from nowhere; reset datestyle")),
        ready(query("reset datestyle; discard all")),
        ready(query("set datestyle to iso; set timezone to utc")),
        ready(query("select 1; reset timezone; reset work_mem; reset datestyle; select 2")),
        ready(query("begin; set datestyle to iso")),
        ready(query("rollback; set application_name to x; reset application_name; show timezone"))],
    "discard in a transaction": [ready(query("set datestyle to iso")), ready(query("begin")),
                                 ready(query("discard all")), ready(query("rollback"))],
    "pipelined": [ready(query("set datestyle to iso"), query("reset datestyle"),
                        query("show datestyle"), query("discard all"), query("show timezone"),
                        count=5)],
}
EXTENDED_RESETS = {
    "extended": [ready(query("set datestyle to iso")), ready(run("reset datestyle"), sync())],
    "extended all": [ready(query("set datestyle to iso; set timezone to utc")),
                     ready(run("reset all"), run("show datestyle"), sync())],
    "extended discard": [ready(query("set datestyle to iso")),
                         ready(run("discard all"), sync())],
    "extended, named": [ready(query("set datestyle to iso"), parse("reset datestyle", "s1"),
                              sync(), count=2),
                        ready(bind("s1"), execute(), sync())],
    "extended, rolled back": [ready(query("set datestyle to iso")),
                              ready(run("reset datestyle"), run("select 1/0"), sync())],
    "extended, failed": [ready(query("set datestyle to iso")),
                         ready(run("select 1/0"), run("reset datestyle"), sync())],
}


@pytest.mark.parametrize("mode, name", [
    *(("session", name) for name in RESETS),
    *(("transaction-1", name) for name in [*RESETS, *EXTENDED_RESETS]),
    *(("transaction-2", name) for name in [*RESETS, *EXTENDED_RESETS]),
])
def test_same_resets(shared_howdah, postgres, mode, name):
    """RESET and the like go back to what the startup packet said."""
    howdah = shared_howdah(**MODES[mode])
    asked = {"application_name": "mine", "datestyle": "German, DMY", "timezone": "Europe/Berlin",
             "client_encoding": "LATIN1"}
    steps = RESETS.get(name) or EXTENDED_RESETS[name]
    steps = [*steps, *(ready(query(f"show {name}")) for name in asked)]
    direct = play(postgres.connect(**asked), steps)
    if mode == "session":
        through = play(howdah.connect(**asked), steps)
    else:
        with Interloper(howdah) as interloper:
            through = play(howdah.connect(**asked), steps, between=interloper)
    compare(direct, through)


@pytest.mark.parametrize("mode", ["transaction-1", "session"])
@pytest.mark.parametrize("name", STARTUPS)
def test_same_greeting(shared_howdah, postgres, mode, name):
    """Parameters of the startup packet are in force and are reported."""
    howdah = shared_howdah(**MODES[mode])
    found = []
    for connect in (postgres.connect, howdah.connect):
        with connect(**STARTUPS[name]) as client:
            shown = [client.value(f"show {key}") for key in STARTUPS[name]]
            found.append((client.parameters, shown))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [name for name in STARTUPS if "application_name" in name])
def test_same_names_newest(shared_howdah, newest_postgres, name):
    """Newer versions of PostgreSQL spell odd names in another way."""
    howdah = shared_howdah(postgres=newest_postgres, **MODES["transaction-1"])
    found = []
    for connect in (newest_postgres.connect, howdah.connect):
        with connect(**STARTUPS[name]) as client:
            shown = [client.value(f"show {key}") for key in STARTUPS[name]]
            found.append((client.parameters, shown))
    assert found[0] == found[1]


@pytest.mark.parametrize("options", [
    "-c application_name=a\\ b\\\\c -cclient_encoding=latin1",
    "--application-name=x --client-encoding=latin1",
    "-c Application-Name=x",
])
def test_same_options(shared_howdah, postgres, options):
    """Settings in the start-up parameter `options`."""
    howdah = shared_howdah(**MODES["transaction-1"])
    found = []
    for connect in (postgres.connect, howdah.connect):
        with connect(options=options) as client:
            found.append((client.parameters, client.value("show application_name")))
    assert found[0] == found[1]


@pytest.mark.parametrize("request_packet", [wire.ssl_request(), wire.gssenc_request()])
def test_encryption_is_refused(shared_howdah, request_packet):
    """A PostgreSQL without TLS says N, and login goes on; so do we."""
    howdah = shared_howdah(**MODES["transaction-1"])
    with howdah.raw() as client:
        client.send(request_packet)
        assert client.read_bytes(1) == b"N"
        client.login("postgres", "postgres")
        assert client.value("select 1") == "1"


@pytest.mark.parametrize("protocol, extra", [
    (wire.PROTOCOL_3_0, {"_pq_.unheard_of": "x"}),
    (wire.PROTOCOL_3_2, {}),
    (wire.PROTOCOL_3_2, {"_pq_.unheard_of": "x", "_pq_.another": "y"}),
    ((3 << 16) + 9999, {}),
])
def test_same_negotiation(shared_howdah, newest_postgres, protocol, extra):
    """Protocol versions and options: the newest PostgreSQL's answer, its long keys included."""
    howdah = shared_howdah(postgres=newest_postgres, **MODES["transaction-1"])
    found = []
    for address in ((newest_postgres.host, newest_postgres.port), howdah.address):
        with wire.Wire(address) as client:
            messages = client.login("postgres", "postgres", protocol=protocol, **extra)
            found.append([got for got in messages if got.tag == "v"])
            assert len(client.key) == (4 if protocol == wire.PROTOCOL_3_0 else 32)
            assert client.value("select 1") == "1"
    assert found[0] == found[1]


def test_does_not_wait_for_the_greeting(shared_howdah, postgres):
    """Messages sent with the startup packet, before any answer."""
    howdah = shared_howdah(**MODES["transaction-1"])
    found = []
    for address in ((postgres.host, postgres.port), howdah.address):
        with wire.Wire(address) as client:
            client.send(wire.startup("postgres", "postgres"), query("select 1"),
                        parse("select 'two'", "s1"), bind("s1"), execute(), sync(), terminate())
            messages = client.read_to_end()
            greeting = [got.tag for got in messages].index("Z")
            found.append(messages[greeting:])
    assert not differences(*found)


def test_the_comparison_has_teeth(postgres):
    """The comparison itself: two different answers, a missing and a stray one are found."""
    one = play(postgres.connect(), [ready(query("select 1"))])
    two = play(postgres.connect(), [ready(query("select 2"))])
    with pytest.raises(AssertionError, match="step 1 differs"):
        compare(one, two)
    with pytest.raises(AssertionError, match="step 1 differs"):
        compare(one, [one[0] + [wire.Message("Z", b"I")], one[1]])
    with pytest.raises(AssertionError, match="ended early"):
        compare(one, one[:1])
