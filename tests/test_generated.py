"""Generated scripts: random messages, valid and not, to PostgreSQL and through Howdah.

Whatever is made from a seed (`harness/vocabulary.py`) is sent in pieces cut at random; replies must
be the same. A seed that fails is printed with the shortest script found that still fails.
`--seeds N` plays more of them, `--first-seed N` begins elsewhere:
pytest tests/test_generated.py --seeds 2000 --first-seed 100.
"""

import random
import re
import struct

import pytest

from harness.in_turn import Tally, Turns, turns
from harness.vocabulary import CLEAN, TABLE, Covered, change, generate, login
from harness.wire import Message, close, describe, parse, query, sync
from test_transparent import Interloper, Step, differences, play

MODES = [
    ({"pool_mode": "transaction", "default_pool_size": 2}, Covered()),
    ({"pool_mode": "transaction", "default_pool_size": 12, "workers": 3, "max_db_connections": 2},
     Covered(rotates=True)),
    ({"pool_mode": "session", "default_pool_size": 6}, Covered(session=True)),
    # Servers are given out in turn, and a disturber uses them in between.
    (turns(1), Covered(keeps=True)),
]
TALLY = Tally()
MARK = "the mark"
MARK_TYPES = (16, 17, 20, 21)


def steps(groups):
    """Each group ends with a Sync and a mark to read up to: the description of a statement that does
    nothing, which PostgreSQL gives in a failed transaction, too, and which ends nothing else."""
    mark = parse("", MARK, MARK_TYPES) + describe(MARK) + close(MARK) + sync()
    # From PostgreSQL 17 on, what follows a group that a Query was in the middle of may fail.
    before = sync() + parse("", MARK) + close(MARK) + sync()
    return [Step(b"".join(group) + before + mark, MARK) for group in groups]


def read_marked(client, _until):
    """Replies up to the mark."""
    found = []
    mark = Message("t", struct.pack("!h4i", len(MARK_TYPES), *MARK_TYPES))
    while True:
        last = client.read_until("Z")
        found += last
        if mark in last:
            return [settled(got, client.pid) for got in found]


def settled(got, pid):
    """A message without the numbers PostgreSQL gives new tables and types, which are others each
    time. A notification tells whether it is this client's own."""
    if got.tag == "A":
        whose = b"own " if got.body[:4] == struct.pack("!i", pid) else b"another's "
        return Message(got.tag, got.body[:4] + whose + got.body[4:])
    if got.tag == "T":
        return Message(got.tag, without_numbers(got.body))
    if got.tag == "t":
        types = [min(one, FIRST_NUMBER) for one in struct.unpack(f"!{len(got.body) // 4}I",
                                                                got.body[2:])]
        return Message(got.tag, struct.pack(f"!{len(types)}I", *types))
    if got.tag in "EN":
        return Message(got.tag, re.sub(rb"\b[1-9][0-9]{4,8}\b", b"NUMBER", got.body))
    return got


# What PostgreSQL says of numbers that another server has.
NO_NUMBER = [("55000", "currval_oid"), ("55000", "lastval")]

# The first that is not PostgreSQL's own.
FIRST_NUMBER = 16384


def without_numbers(body):
    """A RowDescription's columns with numbers of tables and types that are not PostgreSQL's own
    made equal."""
    found, at = [body[:2]], 2
    while at < len(body):
        end = body.index(b"\0", at) + 1
        table, column, kind, rest = struct.unpack_from("!IhI8s", body, end)
        found += [body[at:end], struct.pack("!IhI8s", min(table, FIRST_NUMBER), column,
                                            min(kind, FIRST_NUMBER), rest)]
        at = end + 18
    return b"".join(found)


def cutter(seed):
    """A sender that cuts at places which the seed decides."""
    rng = random.Random(seed)

    def send(client, data):
        while data:
            size = rng.choice([1, 3, 17, 200, len(data)])
            client.send(data[:size])
            data = data[size:]
    return send


class Changer:
    """Another client, who changes the schema while ours is idle."""

    def __init__(self, connection, seed):
        self.client = connection
        self.rng = random.Random(seed)

    def __call__(self):
        self.client.ask(query(change(self.rng)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()


class Company(Changer):
    """Others of the same pool: that one, the interloper, and one who now and then takes the server
    that our client has had, and keeps it until its next transaction has another."""

    def __init__(self, howdah, seed, rotates):
        super().__init__(howdah.connect(), seed)
        self.interloper = Interloper(howdah)
        self.holder = howdah.connect() if rotates else None
        self.places = random.Random(seed)

    def __call__(self):
        if self.holder:
            self.holder.ask(query("rollback"))
        super().__call__()
        self.interloper()
        if self.holder and self.places.random() < 0.7:
            self.holder.ask(query("begin"))

    def __exit__(self, *_):
        if self.holder:
            self.holder.close()
        self.interloper.client.close()
        super().__exit__()


def not_covered(direct, through):
    """What is known to differ, and why; what follows it may be skipped in one and not in the other.

    PostgreSQL may have something to say in a failed transaction of a statement that the server
    lacks, and can't parse there. Constants that were read under other settings are refused by such a
    server. Of a Bind that has the wrong number of parameters or of formats,
    and of a statement that DDL has changed, the latter is said. Of a statement that can't be parsed
    any more, and of which only portals were described, parameters are not known. What PostgreSQL
    17 and newer make fail behind a Query in an open group does not, as another server has it. And a
    sequence's number of an earlier transaction may be PostgreSQL's error."""
    pairs = [pair for pair in zip(direct, through) if pair[0] != pair[1]]
    if not pairs:
        return False
    theirs, ours = (got.fields() if got.tag == "E" else {} for got in pairs[0])
    return (ours.get("C"), ours.get("R")) == ("25P02", "exec_parse_message") \
        or ours.get("C") == "0A000" and theirs.get("R") in ("PortalSetResultFormat",
                                                            "exec_bind_message") \
        or ours.get("M", "").startswith("prepared statement has constants") \
        or pairs[0][0].tag == "t" and bool(ours) \
        or not theirs and (ours.get("C"), ours.get("R")) in NO_NUMBER \
        or theirs.get("R") == "StartTransactionCommand"


def difference(groups, seed, postgres, howdah, covered):
    """What differs, as text."""
    found = [directly(groups, seed, postgres, covered), through(groups, seed, postgres, howdah, covered)]
    for theirs, ours in zip(*found):
        if not covered.session and not_covered(theirs, ours):
            break
        text = differences(theirs, ours)
        if text:
            return text
    return "" if len(found[0]) == len(found[1]) else "it ended early"


def directly(groups, seed, postgres, covered):
    """What PostgreSQL answers."""
    postgres.sql(CLEAN)
    client = postgres.connect(**login(seed, covered))
    if covered.keeps:
        return play(client, steps(groups), None, cutter(seed), read_marked)
    with Changer(postgres.connect(), seed) as changer:
        return play(client, steps(groups), changer, cutter(seed), read_marked)


def through(groups, seed, postgres, howdah, covered):
    """What comes through the pooler, beside others."""
    with howdah.connect() as others:
        # Through the pool, which is to notice.
        others.rows(CLEAN)
        if covered.keeps:
            # From here on nobody gets a server with others' numbers.
            others.ask(query("select lastval()"))
    if covered.keeps:
        with Turns(howdah, postgres, 1, TALLY) as between:
            client = howdah.connect(**login(seed, covered))
            return play(client, steps(groups), between.ended, cutter(seed), read_marked)
    with Changer(howdah.connect(), seed) if covered.session \
            else Company(howdah, seed, covered.rotates) as company:
        client = howdah.connect(**login(seed, covered))
        return play(client, steps(groups), company, cutter(seed), read_marked)


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
    options, covered = MODES[mode]
    howdah = shared_howdah(**options)
    postgres.sql(f"create table if not exists {TABLE} (a int)")
    first = request.config.getoption("--first-seed")
    for seed in range(first, first + request.config.getoption("--seeds")):
        groups = generate(seed, covered)
        if difference(groups, seed, postgres, howdah, covered):
            groups = shrink(groups, lambda less: difference(less, seed, postgres, howdah, covered))
            raise AssertionError(f"seed {seed}: {groups}\n"
                                 f"{difference(groups, seed, postgres, howdah, covered)}")


def test_most_transactions_are_free(capsys):
    """Keeping servers for all would pass for keeping what sessions have: many transactions must be
    given one, though most of these scripts keep one in the end, and send several at once."""
    if TALLY.ran < 500:
        pytest.skip("too few scripts were played to say")
    with capsys.disabled():
        print(f"\n{TALLY}")
    assert TALLY.free > 0.2 * TALLY.ran, str(TALLY)
