"""Generated scripts: random messages, valid and not, to PostgreSQL and through Howdah.

Whatever is made from a seed is sent in pieces cut at random; replies must be the same. A seed that
fails is printed with the shortest script found that still fails. `--seeds N` plays more of them,
`--first-seed N` begins elsewhere: pytest tests/test_generated.py --seeds 2000 --first-seed 100.
"""

import random
import struct

import pytest

from harness.wire import (
    bind, close, copy_data, copy_done, copy_fail, describe, execute, flush, function_call, parse,
    query, sync,
)
from test_transparent import Interloper, Step, differences, play

MODES = [
    {"pool_mode": "transaction", "default_pool_size": 1},
    {"pool_mode": "transaction", "default_pool_size": 6, "workers": 3},
    {"pool_mode": "session", "default_pool_size": 6},
]
TABLE = "generated"
OTHER = "generated_too"
NAMES = ["", "", "", "s1", "n1", "never"]
PORTALS = ["", "", "", "p1"]
TEXTS = [
    "select 1", "select 'two', null", "values (7), (8), (9)", "select $1::int", "select 1/0",
    "selec", "", "-- nothing", "select where true", "select * from missing",
    "begin", "commit", "rollback", "savepoint a", "rollback to a", "release a",
    f"insert into {TABLE} values (1)", f"select count(*) from {TABLE}", f"delete from {TABLE}",
    "deallocate n1", "deallocate all", "set application_name to 'ours'",
    "show application_name", "reset application_name", "set local timezone to 'Asia/Tokyo'",
    "show timezone", "copy (select 1, 2) to stdout", f"copy {TABLE} to stdout",
    "copy (select 1/(2-i) from generate_series(1, 3) i) to stdout binary",
    f"create table {OTHER} (a int)", f"drop table {OTHER}", f"create table if not exists {OTHER} ()",
    f"select count(*) from {OTHER}", "create or replace function one() returns int "
    "language sql as 'select 1'", "select one()", "drop function if exists one()",
    f"declare c cursor for select a, 'row' from {TABLE}, generate_series(1, 4)", "fetch 2 from c",
    "move 1 in c", "close c", "select $1::int4 + 1, $2::text",
]
SIMPLE = [*TEXTS, "select 1; select 2", "select 1; select 1/0; select 2", "begin; select 1",
          f"insert into {TABLE} values (2); select 1/0", "; ;", "discard all"]


def one(rng):
    """One message or more that stand together."""
    kind = rng.choices(["parse", "bind", "describe", "execute", "close", "query", "sync", "flush",
                        "stray", "call", "copy"], [6, 6, 3, 6, 2, 4, 5, 2, 1, 1, 1])[0]
    name, portal = rng.choice(NAMES), rng.choice(PORTALS)
    if kind == "parse":
        return parse(rng.choice(TEXTS), name)
    if kind == "bind":
        values, formats = rng.choices(
            [((), ()), ((1,), ()), (("x",), ()), ((None,), ()), ((1, "x"), ()),
             ((struct.pack("!i", 5),), (1,)), ((struct.pack("!i", 5), "x"), (1, 0)),
             ((b"\0\1",), (1,)), ((b"\0\0\0\1", b"y"), (1,))], [6, 2, 1, 1, 1, 1, 1, 1, 1])[0]
        return bind(name, values, portal, formats, rng.choice([(), (), (1,), (0,), (1, 0)]))
    if kind == "describe":
        return rng.choice([describe(name), describe(portal, "P")])
    if kind == "execute":
        return execute(portal, rng.choice([0, 0, 1, 2]))
    if kind == "close":
        return rng.choice([close(name), close(portal, "P")])
    if kind == "query":
        return query(rng.choice(SIMPLE))
    if kind == "call":
        return rng.choice([function_call(177, [b"4", b"5"], formats=(0,), result=0),
                           function_call(177, [struct.pack("!i", 2), struct.pack("!i", 3)]),
                           function_call(177, [b"x", None], formats=(0,), result=1),
                           function_call(4_000_000_000, [])])
    if kind == "copy":
        return copy_in(rng)
    if kind == "stray":
        return rng.choice([copy_data(b"1\n"), copy_done(), copy_fail("no")])
    return sync() if kind == "sync" else flush()


def copy_in(rng):
    """A COPY from the client and all its rows, good ones and bad ones, sent together: who waits for
    no answer can't say anything else in it, which would end the connection."""
    sql = rng.choice([f"copy {TABLE} from stdin", f"copy {TABLE} from stdin", "copy missing from stdin",
                      f"copy {TABLE} (nothing) from stdin"])
    rows = [copy_data(rng.choice([b"1\n", b"2\n3\n", b"4", b"\n", b"x\n", b""]))
            for _ in range(rng.randint(0, 4))]
    end = rng.choice([copy_done(), copy_done(), copy_fail("no")])
    if rng.random() < 0.5:
        return query(sql) + b"".join(rows) + end
    return parse(sql) + bind() + execute() + b"".join(rows) + end + sync()


def generate(seed):
    """A script of a seed: lists of messages, each list read to its end before the next is sent."""
    rng = random.Random(seed)
    return [[one(rng) for _ in range(rng.randint(1, 10))] for _ in range(rng.randint(1, 4))]


def steps(groups):
    """Each group ends with a Sync and a query whose answer is the mark to read up to."""
    return [Step(b"".join(group) + sync() + query("select 'mark'"), "mark") for group in groups]


def read_marked(client, _until):
    """Replies up to the mark, or to the error a mark gets in a failed transaction."""
    found = []
    while True:
        found += client.read_until("Z")
        texts = [got for got in found[-5:] if got.tag in "DE"]
        if found[-1].body == b"E" and texts and texts[-1].tag == "E" and len(found) > 2 \
                and found[-3].tag == "Z":
            return found
        if texts and texts[-1].tag == "D" and texts[-1].body.endswith(b"\0\0\0\x04mark"):
            return found


def cutter(seed):
    """A sender that cuts at places which the seed decides."""
    rng = random.Random(seed)

    def send(client, data):
        while data:
            size = rng.choice([1, 3, 17, 200, len(data)])
            client.send(data[:size])
            data = data[size:]
    return send


def difference(groups, seed, postgres, howdah):
    """What differs, as text."""
    found = []
    for pooled in (False, True):
        postgres.sql(f"truncate {TABLE}; drop table if exists {OTHER}; "
                     "drop function if exists one()")
        connection = howdah.connect() if pooled else postgres.connect()
        between = None
        if pooled and howdah.sections["pgbouncer"]["pool_mode"] == "transaction":
            between = Interloper(howdah)
        try:
            found.append(play(connection, steps(groups), between, cutter(seed), read_marked))
        finally:
            if between:
                between.client.close()
    for theirs, ours in zip(*found):
        text = differences(theirs, ours)
        if text:
            return text
    return "" if len(found[0]) == len(found[1]) else "it ended early"


def shrink(groups, differs):
    """The same script with all messages left out that are not needed for it to differ."""
    smaller = True
    while smaller:
        smaller = False
        for at, group in enumerate(groups):
            for index in range(len(group)):
                less = [*groups[:at], group[:index] + group[index + 1:], *groups[at + 1:]]
                less = [kept for kept in less if kept]
                if less and differs(less):
                    groups, smaller = less, True
                    break
            if smaller:
                break
    return groups


@pytest.mark.parametrize("mode", range(len(MODES)))
def test_generated_scripts(shared_howdah, postgres, request, mode):
    """Same messages, same replies, whatever they are."""
    howdah = shared_howdah(**MODES[mode])
    postgres.sql(f"create table if not exists {TABLE} (a int)")
    first = request.config.getoption("--first-seed")
    for seed in range(first, first + request.config.getoption("--seeds")):
        groups = generate(seed)
        if difference(groups, seed, postgres, howdah):
            groups = shrink(groups, lambda less: difference(less, seed, postgres, howdah))
            raise AssertionError(f"seed {seed}: {groups}\n"
                                 f"{difference(groups, seed, postgres, howdah)}")
