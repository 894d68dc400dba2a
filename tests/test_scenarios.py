"""Wrong behaviour that users of poolers have suffered from, one scenario a test, numbered.

Unless a test says otherwise, all clients share one server in transaction mode, and each asks for
marks of its own: whoever gets another's mark, or a reply too many, fails the test.
"""

import re
import signal
import struct
import sys
import threading

import pytest
from conftest import unique_name

from harness import certificates, machine, postgres as pg, scripted, wire
from harness.proxy import Proxy
from harness.wire import (
    bind, close, copy_data, copy_done, describe, execute, flush, parse, query, sync,
)
from test_takeover import begin_takeover

pytestmark = pytest.mark.timeout(90)

MIB = 1024 * 1024
LAST = 33


def test_every_scenario_is_here():
    """None of the numbers was forgotten."""
    tests = {int(found[1]) for name in dir(sys.modules[__name__])
             if (found := re.match(r"test_(\d\d)_", name))}
    assert tests == set(range(1, LAST + 1))


# What the scenarios share --------------------------------------------------------------------------

def rows(messages):
    """The rows among messages, as texts."""
    return [[value.decode() for value in got.row()] for got in messages if got.tag == "D"]


def tags(messages):
    """The types of messages, as one text."""
    return "".join(got.tag for got in messages)


def codes(messages):
    """The SQLSTATEs of the errors among messages."""
    return [got.fields()["C"] for got in messages if got.tag == "E"]


def run(sql, values=()):
    """A group through the unnamed statement, with its Sync."""
    return parse(sql) + bind(values=values) + execute() + sync()


def served(client, mark):
    """The next reply of a client is its own, with nothing before and nothing after."""
    got = client.ask(query(f"select '{mark}'"))
    assert (tags(got), rows(got), got[-1].body) == ("TDCZ", [[mark]], b"I")
    assert client.quiet(0.01)


@pytest.fixture
def one(shared_howdah):
    """A Howdah with one server."""
    return shared_howdah(default_pool_size=1)


# Data that crosses between clients ------------------------------------------------------------------

def test_01_late_reply_of_a_client_that_left(shared_howdah):
    """Pools back up, a client leaves while its statement runs, and the one who waits next is
    given the rows that were meant for the first."""
    howdah = shared_howdah(default_pool_size=2)
    problems = []

    def leaver(index, stop):
        turn = 0
        while not stop.is_set():
            turn += 1
            with howdah.connect() as client:
                client.send(run(f"select 'left {index} {turn}', pg_sleep(0.002)"))
                client.abort() if turn % 2 else client.close()

    def stayer(index):
        try:
            with howdah.connect() as client:
                for turn in range(200):
                    mark = f"stayed {index} {turn}"
                    got = client.ask(run(f"select '{mark}'"))
                    if (tags(got), rows(got)) != ("12DCZ", [[mark]]):
                        problems.append((mark, got))
        except Exception as problem:  # noqa: BLE001 - shown by the main thread
            problems.append(repr(problem))

    stop = threading.Event()
    leavers = [threading.Thread(target=leaver, args=(i, stop)) for i in range(3)]
    stayers = [threading.Thread(target=stayer, args=(i,)) for i in range(4)]
    for thread in leavers + stayers:
        thread.start()
    for thread in stayers:
        thread.join()
    stop.set()
    for thread in leavers:
        thread.join()
    assert problems == []
    howdah.wait_for_pool(cl_active=0, cl_waiting=0, sv_active=0, sv_being_canceled=0)


def test_02_unread_tail_of_a_rewritten_request(make_howdah, postgres):
    """The pooler sends two messages for one of the client's, both fail, and the second error is
    left for whoever comes next."""
    howdah = make_howdah(default_pool_size=1)
    postgres.sql("drop table if exists gone; create table gone (x int)")
    with howdah.connect() as a, howdah.connect() as b:
        a.ask(parse("select x from gone", "s"), sync())
        howdah.console("RECONNECT")
        # No server has the statement any more, so a Parse goes before this Bind; both fail.
        postgres.sql("drop table gone")
        got = a.ask(bind("s") + execute() + sync())
        assert (tags(got), codes(got)) == ("EZ", ["42P01"])
        served(b, "b")
        served(a, "a")
        # The same in SQL: the second statement is not even begun.
        got = a.ask(query("prepare p as select nonsense; execute p"))
        assert (tags(got), codes(got)) == ("EZ", ["42703"])
        served(b, "b")


def test_03_failing_set_between_statements(one):
    """A SET with a bad value is put off, replayed before the next statement, and from then on
    every reply is one late."""
    with one.connect() as a, one.connect() as b:
        assert rows(a.ask(run("select 'extended'"))) == [["extended"]]
        got = a.ask(query("set lock_timeout to nonsense"))
        assert (tags(got), codes(got)) == ("EZ", ["22023"])
        served(a, "a")
        served(b, "b")
    # A value at login that PostgreSQL refuses: it must not come back in front of b's replies.
    with one.raw() as a, one.connect() as b:
        try:
            a.login("postgres", "postgres", client_encoding="nonsense")
            a.send(query("select 'a'"))
            assert codes(a.read_to_end()) != []
        except wire.Refused as refused:
            assert refused.code == "22023"
        served(b, "b")


def test_04_server_given_away_before_the_last_bytes_left(make_howdah, postgres):
    """A client reads slowly; the server is done, goes to the next client, and the bytes the first
    one has not read yet are lost or mixed with the other's."""
    howdah = make_howdah(default_pool_size=1, query_timeout=0)
    size = 24 * MIB
    with howdah.raw(receive_buffer=4096) as a, howdah.connect() as b:
        a.login("postgres", "postgres")
        a.send(query(f"select repeat('a', {size})"))
        howdah.wait_for_pool(sv_active=1)
        b.send(query("select 'b'"))
        assert a.read().tag == "T"
        assert a.read().row() == [b"a" * size]
        assert tags(a.read_until()) == "CZ"
        assert rows(b.read_until()) == [["b"]]
        served(a, "a")
    # One that never reads on: a time limit frees the server.
    howdah.write(query_timeout=1)
    howdah.reload()
    with howdah.raw(receive_buffer=4096) as a, howdah.connect() as b:
        a.login("postgres", "postgres")
        since = howdah.log_mark()
        a.send(query(f"select repeat('a', {size})"))
        # It holds for who waits, too, so nobody does.
        howdah.wait_for_log("query timeout", since)
        served(b, "b")


PATHS = ("set search_path to {}", "select set_config('search_path', '{}', false)",
         "select take_path('{}')", "begin; set search_path to {}; commit")


def tenants(cluster):
    """Two schemas with a table of the same name, and a function that sets the path."""
    cluster.sql("""
        create schema if not exists tenant_a; create schema if not exists tenant_b;
        drop table if exists tenant_a.t, tenant_b.t;
        create table tenant_a.t as select 'a' as x; create table tenant_b.t as select 'b' as x;
        create or replace function public.take_path(p text) returns void language plpgsql as
            $$begin perform set_config('search_path', p, false); end$$;
        grant usage on schema tenant_a, tenant_b to public;
        grant select on tenant_a.t, tenant_b.t to public""")


def test_05_search_path_of_another_tenant(make_howdah, newest_postgres):
    """One tenant's search_path stays on the server, and the next one reads its tables."""
    if newest_postgres.version < 18:
        pytest.skip("PostgreSQL reports search_path from version 18 on")
    tenants(newest_postgres)
    howdah = make_howdah(postgres=newest_postgres, default_pool_size=1,
                         track_extra_parameters="search_path")
    for way in PATHS:
        with howdah.connect() as a, howdah.connect() as b, howdah.connect() as plain:
            a.rows(way.format("tenant_a"))
            b.rows(way.format("tenant_b"))
            for _ in range(2):
                assert a.value("select x from t") == "a"
                assert b.value("select x from t") == "b"
                assert rows(a.ask(run("select x from t"))) == [["a"]]
                assert rows(b.ask(run("select x from t"))) == [["b"]]
                # Who set nothing has nothing.
                assert plain.error(query("select x from t"))["C"] == "42P01"


UNSEEN = pytest.mark.xfail(strict=True, reason="what a function sets, no text tells; see "
                           "docs/session-state.md")


@pytest.mark.parametrize("way", [
    *(pytest.param(way, marks=UNSEEN if "take_path" in way else ()) for way in PATHS),
    "set role plain_user", "set session statement_timeout to 12345"])
def test_05_state_that_postgres_does_not_report(make_howdah, postgres, way):
    """The same for state of which PostgreSQL says nothing: a client's own, or refused, never
    another's."""
    tenants(postgres)
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect() as a, howdah.connect() as b:
        state = "select current_setting('search_path'), current_user, " \
                "current_setting('statement_timeout')"
        default = b.rows(state)
        try:
            a.rows(way.format("tenant_a"))
        except wire.Refused:
            pass
        else:
            assert a.rows(state) != default
        assert b.rows(state) == default


def test_06_startup_parameter_that_leaks(make_howdah):
    """A setting in the startup packet that PostgreSQL does not report stays on the server for
    clients that never asked for it."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect() as b:
        with howdah.connect(options="-c enable_seqscan=off") as a:
            assert a.value("show enable_seqscan") == "off"
            assert b.value("show enable_seqscan") == "on"
            assert a.value("show enable_seqscan") == "off"
    howdah = make_howdah(default_pool_size=1, ignore_startup_parameters="options, enable_seqscan")
    for startup in ({"options": "-c enable_seqscan=off"}, {"enable_seqscan": "off"}):
        with howdah.connect(**startup) as a:
            served(a, "a")
        with howdah.connect() as b:
            assert b.value("show enable_seqscan") == "on"


def test_07_parameters_meet_another_clients_unnamed_statement(one):
    """Two clients parse unnamed statements in turn; the first one's Bind runs the second's."""
    with one.connect() as a, one.connect() as b:
        a.ask(parse("select 'a' || $1::text"), sync())
        b.ask(parse("select 'b' || $1::text"), sync())
        for _ in range(2):
            assert rows(a.ask(bind(values=["1"]), execute(), sync())) == [["a1"]]
            assert rows(b.ask(bind(values=["2"]), execute(), sync())) == [["b2"]]


def test_08_texts_that_share_a_hash(one):
    """Statements are told apart by a short hash, and two texts with the same one are mixed up.

    128 bits of a cryptographic hash cannot be made to collide from outside; texts are many here,
    long, and equal in all but a byte at their end, which poor hashes do not see.
    """
    with one.connect() as a, one.connect() as b:
        long = "x" * 3000
        for client, shift in ((a, 0), (b, 5000)):
            client.ask(*(parse(f"select '{long}', {i + shift}", f"s{i}") for i in range(300)), sync())
        for client, shift in ((a, 0), (b, 5000)):
            got = client.ask(*(bind(f"s{i}") + execute() for i in range(300)), sync())
            assert [row[1] for row in rows(got)] == [str(i + shift) for i in range(300)]


def test_09_same_text_with_another_meaning(make_howdah, newest_postgres):
    """Two clients prepare one text, but mean other tables or types by it; they share a plan."""
    tenants(newest_postgres)
    howdah = make_howdah(postgres=newest_postgres, default_pool_size=1,
                         track_extra_parameters="search_path")
    with howdah.connect() as a, howdah.connect() as b:
        for client, kind in ((a, 23), (b, 25)):
            client.ask(parse("select pg_typeof($1)::text", "s", types=[kind]), sync())
        for _ in range(2):
            assert rows(a.ask(bind("s", ["1"]), execute(), sync())) == [["integer"]]
            assert rows(b.ask(bind("s", ["1"]), execute(), sync())) == [["text"]]
    if newest_postgres.version < 18:
        return
    with howdah.connect(search_path="tenant_a") as a, howdah.connect(search_path="tenant_b") as b:
        for client in (a, b):
            client.ask(parse("select x from t", "s"), sync())
        for _ in range(2):
            assert rows(a.ask(bind("s"), execute(), sync())) == [["a"]]
            assert rows(b.ask(bind("s"), execute(), sync())) == [["b"]]


# Statement caches and pipelines ---------------------------------------------------------------------

@pytest.mark.parametrize("command", ["deallocate all", "discard all"])
def test_10_reset_and_prepare_in_one_pipeline(one, command):
    """A reset and a Parse behind it in one pipeline: the pooler forgets the new statement, too,
    or remembers the old one."""
    with one.connect() as a:
        a.ask(parse("select 'old'", "s"), parse("select 'other'", "t"), sync())
        a.send(query(command), parse("select 'new'", "s"), sync())
        assert [tags(a.read_until()), tags(a.read_until())] == ["CZ", "1Z"]
        assert rows(a.ask(bind("s"), execute(), sync())) == [["new"]]
        assert codes(a.ask(bind("t"), execute(), sync())) == ["26000"]
        # And by the extended protocol, in one group. (DISCARD ALL must be alone, so another.)
        got = a.ask(parse("deallocate all"), bind(), execute(), parse("select 'third'", "s"), sync())
        assert codes(got) == []
        assert rows(a.ask(bind("s"), execute(), sync())) == [["third"]]
        # A Parse before the reset is gone after it.
        a.send(parse("select 'before'", "u"), sync(), query(command))
        assert [tags(a.read_until()), tags(a.read_until())] == ["1Z", "CZ"]
        assert codes(a.ask(bind("u"), sync())) == ["26000"]


def test_11_someone_else_deallocates(one):
    """DEALLOCATE ALL of one client takes the statements of all others away."""
    with one.connect() as a, one.connect() as b:
        b.ask(parse("select 'b'", "s"), bind("s"), execute(), sync())
        for command in ("deallocate all", "discard all", "discard plans"):
            a.rows(command)
            assert rows(b.ask(bind("s"), execute(), sync())) == [["b"]]


def test_12_failed_parse_poisons_the_cache(one, postgres):
    """A Parse that failed is taken for one that worked; a Close of it fails as well."""
    postgres.sql("drop table if exists later")
    with one.connect() as a, one.connect() as b:
        assert codes(a.ask(parse("select x from later", "s"), sync())) == ["42P01"]
        assert tags(a.ask(close("s"), sync())) == "3Z"
        postgres.sql("create table later as select 'there' as x; grant select on later to public")
        for client in (a, b):
            got = client.ask(parse("select x from later", "s"), bind("s"), execute(), sync())
            assert (tags(got), rows(got)) == ("12DCZ", [["there"]])
    postgres.sql("drop table later")


def test_13_gone_between_parse_and_sync(one):
    """A client is gone before its Sync; the cache has its statement, the server has not."""
    for ending in ("close", "abort"):
        for parts in ([parse("select 'half'", "s")], [parse("select 'half'", "s"), flush()],
                      [parse("select 'half'", "s")[:9]]):
            with one.connect() as a:
                a.send(*parts)
                getattr(a, ending)()
            with one.connect() as b:
                got = b.ask(parse("select 'half'", "s"), bind("s"), execute(), sync())
                assert (tags(got), rows(got)) == ("12DCZ", [["half"]])
                assert rows(b.ask(bind("s"), execute(), sync())) == [["half"]]


def test_14_eviction_inside_a_batch(shared_howdah):
    """A cache of one: making room in the middle of a batch takes away what the batch still needs,
    or its replies show the work."""
    howdah = shared_howdah(default_pool_size=1, max_prepared_statements=1)
    with howdah.connect() as a, howdah.connect() as b:
        b.ask(parse("select 'b'", "b"), sync())
        batch = (parse("select 'x'", "x"), bind("x", portal="1"), parse("select 'y'", "y"),
                 bind("y", portal="2"), execute("1"), execute("2"), close("x"), close("y"))
        for _ in range(3):
            got = a.ask(*batch, sync())
            assert (tags(got), rows(got)) == ("1212DCDC33Z", [["x"], ["y"]])
            assert rows(b.ask(bind("b"), execute(), sync())) == [["b"]]
            a.send(*batch, flush())
            got = [a.read() for _ in range(10)]
            assert (tags(got), rows(got)) == ("1212DCDC33", [["x"], ["y"]])
            assert tags(a.ask(sync())) == "Z"
            assert rows(b.ask(bind("b"), execute(), sync())) == [["b"]]


def test_15_order_of_replies_where_a_parse_is_skipped(one, postgres):
    """The server has the statement already, so the pooler answers the Parse itself: at the wrong
    place, or also after an error."""
    big = f"select repeat('big', {MIB})"
    q = "select 'known' || $1::text"
    groups = [
        (parse(q, "s"), describe("s"), sync()),
        (parse(q), bind(values=["x"]), describe(kind="P"), execute(), sync()),
        (parse(q, "t"), bind("t", ["1"]), execute(), parse("select nonsense"), bind(), execute(),
         parse(q, "u"), bind("u", ["2"]), execute(), sync()),
        (parse("select 1 / $1::int", "z"), bind("z", ["0"]), execute(), parse(q, "u"), sync()),
        (parse(big, "big"), bind("big"), execute(), parse(q, "v"), bind("v", ["3"]), execute(),
         sync()),
        (close("s"), close("t"), close("z"), close("big"), close("u"), close("v"), sync()),
    ]
    with one.connect() as warm:
        for text in (q, big, "select 1 / $1::int"):
            warm.ask(parse(text, f"w{len(text)}"), sync())
    with postgres.connect() as direct, one.connect() as a:
        for turn in range(3):
            for index, group in enumerate(groups):
                expected, got = direct.ask(*group), a.ask(*group)
                assert tags(got) == tags(expected), (turn, index)
                for theirs, ours in zip(expected, got, strict=True):
                    if theirs.tag != "E":
                        assert ours == theirs, (turn, index)
                assert codes(got) == codes(expected)


def test_16_no_server_in_the_middle_of_a_group(make_howdah):
    """No server is free; the client gets an error for each message it sends, and what it sent
    before is put in front of its next query."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect() as holder, howdah.connect() as a:
        holder.rows("begin")
        a.send(parse("select 1"))
        howdah.wait_for_pool(cl_waiting=1)
        for part in (bind(), execute(), sync()):
            a.send(part)
        howdah.console("SET query_wait_timeout = 1")
        # As with PgBouncer, it is told why and closed: there is no next query to spoil.
        got = a.read_to_end()
        assert [m.fields()["M"] for m in got if m.tag == "E"] == ["query_wait_timeout"]
        holder.rows("rollback")
        served(holder, "holder")


def test_16_cancelled_in_the_middle_of_a_group(one):
    """The same where the wait ends with a cancel: one error, one ReadyForQuery at the Sync, and
    the next query stands alone."""
    with one.connect() as holder, one.connect() as a:
        holder.rows("begin")
        a.send(parse("select 1"))
        a.send(bind())
        one.wait_for_pool(cl_waiting=1)
        a.cancel()
        a.send(execute())
        a.send(sync())
        got = a.read_until()
        assert (tags(got), codes(got)) == ("EZ", ["57014"])
        holder.rows("commit")
        served(a, "a")


def test_17_flush_without_sync(one):
    """A client leaves after a Flush: its open group is the next one's transaction. And an extended
    query between BEGIN and COMMIT waits for ever for its answer."""
    for ending in ("close", "abort"):
        with one.connect() as a:
            a.send(parse("select 'a'", "s"), describe("s"), flush())
            assert tags([a.read() for _ in range(3)]) == "1tT"
            getattr(a, ending)()
        with one.connect() as b:
            got = b.ask(query("select now() = statement_timestamp()"))
            assert (rows(got), got[-1].body) == ([["t"]], b"I")
    with one.connect() as a:
        a.rows("begin")
        a.send(parse("select 'flushed'"), bind(), execute(), flush())
        assert tags([a.read() for _ in range(4)]) == "12DC"
        assert a.ask(sync())[-1].body == b"T"
        assert a.ask(query("commit"))[-1].body == b"I"


# Cancel ---------------------------------------------------------------------------------------------

def test_18_cancel_hits_the_next_query(make_howdah, postgres):
    """A cancel is slow on its way to PostgreSQL, the query it was meant for ends, and the next
    client's query on that server is cancelled."""
    with Proxy(postgres.host, postgres.port) as proxy:
        howdah = make_howdah(default_pool_size=1, databases={
            "postgres": f"host={proxy.host} port={proxy.port}"})
        with howdah.connect() as a, howdah.connect() as b:
            served(a, "warm")
            proxy.hold_cancels = True
            with postgres.lock(18) as lock:
                a.send(query(f"select 'a' from {lock}"))
                howdah.wait_for_pool(sv_active=1)
                canceller = threading.Thread(target=a.cancel)
                canceller.start()
                machine.wait_until(lambda: proxy.held, "the cancel to be on its way")
            assert rows(a.read_until()) == [["a"]]
            b.send(query("select 'b' from pg_sleep(0.5)"))
            # Either b waits until the cancel has arrived, or it is served by another server.
            assert b.quiet(0.1)
            proxy.release_cancels()
            assert rows(b.read_until()) == [["b"]]
            canceller.join()
            served(a, "a")


def test_19_late_cancel_sends_a_message_too_many(one):
    """A cancel for a client that is idle: an error comes that belongs to nothing."""
    with one.connect() as a, one.connect() as b:
        for turn in range(10):
            served(a, f"a{turn}")
            a.cancel()
            assert a.quiet(0.01)
            served(b, f"b{turn}")
    # With a wrong key, nobody is cancelled either.
    with one.connect() as a:
        a.send(query("select 'on' from pg_sleep(0.2)"))
        key, a.key = a.key, bytes(4)
        a.cancel()
        a.key = key
        assert rows(a.read_until()) == [["on"]]


def test_20_cancel_of_a_client_that_waits(one):
    """A cancel for a client without a server is dropped, and the client waits on."""
    with one.connect() as holder, one.connect() as a, one.connect() as b:
        holder.rows("begin")
        a.send(query("select 'a'"))
        one.wait_for_pool(cl_waiting=1)
        b.send(query("select 'b'"))
        one.wait_for_pool(cl_waiting=2)
        a.cancel()
        got = a.read_until()
        assert (tags(got), codes(got)) == ("EZ", ["57014"])
        holder.rows("commit")
        assert rows(b.read_until()) == [["b"]]
        served(a, "a")


def test_20_cancel_whose_owner_cannot_be_reached(make_howdah, postgres):
    """PostgreSQL can't be reached for the cancel: the canceller is closed within a limit, and
    the query's server goes to nobody before that is settled."""
    with Proxy(postgres.host, postgres.port) as proxy:
        howdah = make_howdah(default_pool_size=1, cancel_wait_timeout=1, server_connect_timeout=1,
                             databases={"postgres": f"host={proxy.host} port={proxy.port}"})
        with howdah.connect() as a:
            with postgres.lock(20) as lock:
                a.send(query(f"select 'a' from {lock}"))
                howdah.wait_for_pool(sv_active=1)
                proxy.refuse()
                a.cancel()
            assert rows(a.read_until()) == [["a"]]
            proxy.listen()
            served(a, "again")


# COPY and large data --------------------------------------------------------------------------------

def test_20_cancels_passed_on_between_processes(make_howdah, postgres):
    """Each of two processes is sent the cancel requests of the other's clients: just those whose
    keys they carry are cancelled, and a process that is gone costs nothing but its own."""
    members = [make_howdah(start=False, peer_id=number, default_pool_size=4) for number in (1, 2)]
    for member, other, number in zip(members, members[::-1], (2, 1), strict=True):
        member.sections["peers"] = {number: f"host={other.folder} port={other.port}"}
        member.write()
        member.start()
    clients = [(member.connect(), other, f"{number}{turn}") for turn in range(2)
               for number, (member, other) in enumerate(zip(members, members[::-1], strict=True))]
    for client, _, mark in clients:
        client.send(query(f"select 'passed {mark}', pg_sleep(30)"))
    machine.wait_until(
        lambda: postgres.value("select count(*) from pg_stat_activity where state = 'active' and "
                               "query like 'select ''passed%'") == "4", "four queries")

    def cancel_elsewhere(client, other):
        with wire.Wire(other.address) as canceller:
            canceller.send(wire.cancel_request(client.pid, client.key))
            assert canceller.ends()
    for client, other, _ in clients[2:]:
        cancel_elsewhere(client, other)
        assert codes(client.read_until()) == ["57014"]
    assert all(client.quiet() for client, _, _ in clients[:2])
    members[1].stop()
    cancel_elsewhere(clients[1][0], members[0])
    members[0].wait_for_log("peer-2: could not forward a cancel request")
    assert clients[0][0].quiet()
    clients[0][0].cancel()
    assert codes(clients[0][0].read_until()) == ["57014"]
    served(clients[0][0], "goes on")


def test_21_copy_fails_while_the_client_still_sends(one):
    """PostgreSQL refuses a COPY after its first rows; the rest of the client's data meets the
    server, or the next client's, outside of any COPY."""
    data = copy_data(b"".join(b"1\tsame\n" for _ in range(20_000)))
    with one.connect() as a, one.connect() as b:
        for _ in range(2):
            a.rows("begin")
            a.send(query("copy copied from stdin"))
            a.read_until("G")
            sender = threading.Thread(target=a.send, args=(data * 20, copy_done()))
            sender.start()
            got = a.read_until()
            assert (codes(got), got[-1].body) == (["23505"], b"E")
            sender.join()
            assert a.ask(query("rollback"))[-1].body == b"I"
            served(b, "b")
            served(a, "a")
        # Without a transaction the server is free at once, while the client still sends.
        a.send(query("copy copied from stdin"))
        a.read_until("G")
        a.send(data)
        assert codes(a.read_until()) == ["23505"]
        served(b, "b")
        a.send(data, copy_done())
        served(a, "a")
    one.wait_for_pool(cl_active=0, sv_active=0)


def test_22_client_dies_in_a_huge_row(one):
    """Half of a row of 64 MB is read, then the client is gone: its server counts as used for
    ever."""
    for ending in ("close", "abort"):
        with one.connect() as a:
            a.send(query(f"select repeat('x', {64 * MIB})"))
            a.read_bytes(8 * MIB)
            getattr(a, ending)()
        with one.connect() as b:
            served(b, "b")
        row = one.wait_for_pool(cl_active=0, cl_waiting=0, sv_active=0, sv_being_canceled=0)
        assert row["maxwait"] == 0


# Counts of the pool ---------------------------------------------------------------------------------

@pytest.mark.parametrize("workers", [1, 2])
def test_23_slots_leak_or_limits_are_exceeded(make_howdah, postgres, workers):
    """Clients come, fail, cancel and vanish at random: slots are lost, or there are more servers
    than allowed. (PostgreSQL counts here: the role has the pool's limit.)"""
    size, before = 4, len(postgres.log())
    howdah = make_howdah(default_pool_size=size, workers=workers, secrets={"limited": ""})
    problems, ends = [], threading.Event()

    def client(index):
        turn = 0
        while not ends.is_set():
            turn += 1
            try:
                with howdah.connect(user="limited") as a:
                    served(a, f"{index}.{turn}")
                    a.send((query("begin; select 1/0"), run("select pg_sleep(0.01)"),
                            query("select pg_sleep(0.01)"), query("begin"))[turn % 4])
                    if turn % 3 == 0:
                        a.cancel()
                    elif turn % 3 == 1:
                        a.read_until()
                    a.abort() if turn % 2 else a.close()
            except AssertionError as problem:
                problems.append(problem)

    threads = [threading.Thread(target=client, args=(index,)) for index in range(10)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert postgres.sessions("limited") <= size
    ends.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert "too many connections" not in postgres.log()[before:]
    howdah.wait_for_pool(user="limited", cl_active=0, cl_waiting=0, sv_active=0,
                         sv_being_canceled=0)
    holders = [howdah.connect(user="limited") for _ in range(size)]
    for holder in holders:
        holder.rows("begin")
    row = howdah.pool(user="limited")
    assert (row["sv_active"], postgres.sessions("limited")) == (size, size)
    for holder in holders:
        holder.close()


def test_24_failed_and_half_open_transactions_hold_the_pool(make_howdah):
    """A transaction that failed, or half a message of a client that is no more, keeps its server
    for days."""
    howdah = make_howdah(default_pool_size=1, idle_transaction_timeout=1, query_timeout=2)
    with howdah.connect() as a, howdah.connect() as b:
        a.error(query("begin; select 1/0"))
        b.send(query("select 'b'"))
        got = a.read_to_end()
        assert codes(got) == ["25P03"]
        assert rows(b.read_until()) == [["b"]]
    # Half a message. (A long one: a short one is not sent on before it is whole.)
    with howdah.connect() as a, howdah.connect() as b:
        a.send(query(f"select '{'x' * MIB}'")[:MIB // 2])
        a.read_to_end()
        b.send(query("select 'b'"))
        assert rows(b.read_until()) == [["b"]]
    # Savepoints: the outer transaction is kept.
    with howdah.connect() as a:
        a.rows("begin; select 'outer'; savepoint s")
        a.error(query("select 1/0"))
        assert a.ask(query("rollback to s"))[-1].body == b"T"
        a.rows("commit")


# Logins ---------------------------------------------------------------------------------------------

def scram_server(peer, mechanisms, first):
    """Begins a SCRAM login as a server; gives the client's first message's nonce."""
    peer.startup()
    peer.send(scripted.authentication(10, b"".join(m + b"\0" for m in mechanisms) + b"\0"))
    hello = peer.read().body
    peer.send(scripted.authentication(11, first(hello[hello.index(b"r=") + 2:])))


@pytest.mark.parametrize("name, first", [
    ("huge count", lambda nonce: b"r=" + nonce + b"x,s=c2FsdA==,i=99999999999999999999"),
    ("no salt", lambda nonce: b"r=" + nonce + b"x,i=4096"),
    ("strange nonce", lambda nonce: b"r=other,s=c2FsdA==,i=4096"),
    ("huge nonce", lambda nonce: b"r=" + nonce + b"x" * 300_000 + b",s=c2FsdA==,i=1"),
    ("nothing", lambda nonce: b""),
])
def test_25_hostile_server(make_howdah, name, first):
    """A server's odd SCRAM message crashes the pooler, or hangs it."""
    def script(peer):
        scram_server(peer, [b"SCRAM-SHA-256"], first)
        peer.read()

    with scripted.ScriptedServer(script) as server:
        howdah = make_howdah(client_login_timeout=3, server_connect_timeout=2, databases={
            "hostile": f"host={server.host} port={server.port} user=postgres password=secret"})
        with pytest.raises((wire.Refused, wire.Ended)):
            howdah.connect(database="hostile")
        assert howdah.console("SHOW VERSION")
        howdah.wait_for_log("closing because")


def test_25_search_path_does_not_bend_auth_query(make_howdah, own_postgres):
    """A table of the same name in a schema of the client's choice is not where secrets are read,
    though the client named that schema at connect, and shares the lookup's server."""
    own_postgres.sql("create role asker superuser login")
    own_postgres.sql("create role somebody login password 'right'")
    own_postgres.sql("create schema evil; create table evil.pg_authid as select rolname, "
                     "'wrong'::text as rolpassword, rolvaliduntil, rolcanlogin from pg_authid")
    at = f"host={own_postgres.host} port={own_postgres.port} dbname=postgres user=asker pool_size=1"
    howdah = make_howdah(postgres=own_postgres, auth_type="scram-sha-256", auth_user="asker",
                         databases={"shared": at}, secrets={"asker": "whatever"},
                         track_extra_parameters="IntervalStyle, search_path")
    for options in ({}, {"search_path": "evil"}, {"options": "-c search_path=evil"}):
        with howdah.connect(user="somebody", password="right", database="shared",
                            **options) as client:
            client.value("select 1")
        with pytest.raises(wire.Refused) as refused:
            howdah.connect(user="somebody", password="wrong", database="shared", **options)
        assert refused.value.code == "28P01"


def test_25_odd_but_right_logins(make_howdah, own_postgres):
    """A mechanism list with PLUS in front, and a salt of 32 bytes: both must work."""
    secret = wire.scram_secret("secret", salt=bytes(range(32)))
    own_postgres.sql(f"create role salty login password '{secret}'")
    own_postgres.write_hba("local all all trust", "host all postgres 127.0.0.1/32 trust",
                           "host all all 127.0.0.1/32 scram-sha-256")
    own_postgres.reload()
    howdah = make_howdah(postgres=own_postgres, secrets={"salty": "secret"})
    with howdah.connect(user="salty") as a:
        assert a.value("select current_user") == "salty"

    chosen = []

    def script(peer):
        peer.startup()
        peer.send(scripted.authentication(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"))
        chosen.append(peer.read().body.split(b"\0")[0])
        peer.send(scripted.error("FATAL", "28P01", "enough"))

    with scripted.ScriptedServer(script) as server:
        howdah = make_howdah(client_login_timeout=3, databases={
            "plus": f"host={server.host} port={server.port} user=postgres password=secret"})
        with pytest.raises(wire.Refused):
            howdah.connect(database="plus")
    assert chosen[0] == b"SCRAM-SHA-256"


def test_25_error_without_sqlstate(make_howdah):
    """A server's error has no SQLSTATE: the pooler looks for one, and dies."""
    def script(peer):
        peer.startup()
        peer.send(scripted.error(None, None, "no code"))

    with scripted.ScriptedServer(script) as server:
        howdah = make_howdah(client_login_timeout=3, databases={
            "odd": f"host={server.host} port={server.port}"})
        with pytest.raises(wire.Refused):
            howdah.connect(database="odd")
        assert howdah.console("SHOW VERSION")


@pytest.mark.parametrize("body", [
    struct.pack("!i", 0x7FFFFFFF), struct.pack("!i", -2), struct.pack("!i", 5) + b"n,,n",
    struct.pack("!i", 30_000) + b"n,,n=,r=" + b"x" * 29_992], ids=["huge", "negative", "short",
                                                                    "long nonce"])
def test_25_hostile_client(shared_howdah, body):
    """A client's SCRAM message with a length of its own invention."""
    howdah = shared_howdah(auth_type="scram-sha-256")
    with howdah.raw() as a:
        a.send(wire.startup("postgres", "postgres"))
        assert a.read().tag == "R"
        a.send(wire.message("p", wire.cstr("SCRAM-SHA-256") + body))
        got = a.read_to_end() if body[4:8] != b"n,,n" or len(body) < 100 else [a.read()]
        assert len(codes(got)) <= 1
    with howdah.connect(password="secret") as b:
        served(b, "b")


def test_25_bytes_behind_a_tls_request(make_howdah, scratch):
    """Bytes in the clear behind an SSLRequest, put there by who sits between, are taken for part
    of what is encrypted."""
    own = certificates.Authority(scratch, "smuggled").issue()
    howdah = make_howdah(client_tls_sslmode="allow", client_tls_key_file=own.key,
                         client_tls_cert_file=own.chain)
    with howdah.raw() as a:
        a.send(wire.ssl_request(), wire.startup("postgres", "postgres"))
        got = a.read_to_end()
        assert (tags(got), codes(got)) == ("E", ["08P01"])
    with howdah.connect() as b:
        served(b, "b")


def test_25_bytes_behind_a_servers_tls_answer(make_howdah):
    """Bytes in the clear behind a server's answer to an SSLRequest are taken for PostgreSQL's."""
    def smuggle(peer):
        peer.send(b"S", scripted.welcome())
        while True:
            peer.read()

    with scripted.ScriptedServer(smuggle) as postgres:
        howdah = make_howdah(server_tls_sslmode="require", client_login_timeout=2, databases={
            "postgres": f"host={postgres.host} port={postgres.port}"})
        with howdah.raw() as a:
            a.send(wire.startup("postgres", "postgres"))
            assert "R" not in tags(a.read_to_end())
        howdah.wait_for_log("received unencrypted data after SSL response")


# Further ones ---------------------------------------------------------------------------------------

def standby_of(primary, programs, scratch, name):
    """A running hot standby of a cluster."""
    folder = machine.folder(scratch, name)
    template = programs.template
    try:
        machine.run([programs.path("pg_basebackup"), "-h", primary.host, "-p", str(primary.port),
                     "-U", pg.SUPERUSER, "-D", folder + "/copy", "-R", "-c", "fast"])
        programs.template = lambda: folder + "/copy"
        return pg.Postgres(programs, scratch, name + "s")
    finally:
        programs.template = template


def test_26_cached_role_of_a_server(make_howdah, own_postgres, system_programs, scratch, request):
    """After a switchover new clients are still told in_hot_standby = on, and refuse to write."""
    standby = standby_of(own_postgres, system_programs, scratch, unique_name(request, "s"))
    try:
        howdah = make_howdah(postgres=standby, default_pool_size=1)
        with howdah.connect() as a:
            assert a.parameters["in_hot_standby"] == "on"
            assert a.value("select pg_is_in_recovery()") == "t"
            standby.sql("select pg_promote()")
            assert a.value("select pg_is_in_recovery()") == "f"
            howdah.console("RECONNECT")
            a.value("select 1")
            told_of_the_role(howdah)
    finally:
        standby.stop()


def told_of_the_role(howdah):
    """A new client is told that it may write, and can."""
    with howdah.connect() as b:
        assert b.parameters["in_hot_standby"] == "off"
        assert b.parameters["default_transaction_read_only"] == "off"
        b.rows("drop table if exists written; create table written (x int)")


def test_26_cached_role_of_a_server_that_stays(make_howdah, own_postgres, system_programs, scratch,
                                               request):
    """The same where no server is replaced: PostgreSQL tells of its promotion in a
    ParameterStatus with the next query, and only there."""
    standby = standby_of(own_postgres, system_programs, scratch, unique_name(request, "s"))
    try:
        howdah = make_howdah(postgres=standby, default_pool_size=1)
        with howdah.connect() as a, howdah.connect() as other:
            standby.sql("select pg_promote()")
            news = [wire.Message("S", b"in_hot_standby\0off\0")]

            def told(client):
                return [got for got in client.ask(wire.query("select 1")) if got.tag == "S"]
            assert told(a) == news
            told_of_the_role(howdah)
            # The server has said it once; whoever gets it next is told by us, once.
            assert told(other) == news
            assert told(other) == told(a) == []
    finally:
        standby.stop()


def test_27_changed_default_of_a_role(make_howdah, own_postgres):
    """ALTER ROLE ... SET: new clients see the old value until the pooler restarts."""
    own_postgres.sql("create role traveller login")
    howdah = make_howdah(postgres=own_postgres, default_pool_size=1, workers=2,
                         secrets={"traveller": ""})
    with howdah.connect(user="traveller") as a:
        assert (a.parameters["TimeZone"], a.value("show timezone")) == ("UTC", "UTC")
    own_postgres.sql("alter role traveller set timezone to 'Asia/Tokyo'")
    howdah.console("RECONNECT")

    def seen():
        with howdah.connect(user="traveller") as b:
            return (b.value("show timezone"), b.parameters["TimeZone"]) == ("Asia/Tokyo",) * 2
    machine.wait_until(seen, "the new default")


def test_28_session_lock_of_a_session_pool(make_howdah, postgres):
    """An advisory lock taken in a session pool is left on a server that clients in transaction
    mode use afterwards."""
    target = f"host={postgres.host} port={postgres.port} dbname=postgres"
    howdah = make_howdah(default_pool_size=1, databases={
        "s": f"{target} pool_mode=session", "t": target})
    with howdah.connect(database="s") as a:
        assert a.value("select pg_try_advisory_lock(2828)") == "t"
        a.send(wire.terminate())
        assert a.ends()
    with howdah.connect(database="t") as b:
        machine.wait_until(lambda: b.value("select pg_try_advisory_xact_lock(2828)") == "t",
                           "the lock to be free")
    # The same where one pool changes its mode.
    howdah.sections["databases"]["s"] = target
    with howdah.connect(database="s") as a:
        assert a.value("select pg_try_advisory_lock(2829)") == "t"
        howdah.write()
        howdah.reload()
        a.send(wire.terminate())
        assert a.ends()
    with howdah.connect(database="s") as b:
        machine.wait_until(lambda: b.value("select count(*) from pg_locks where "
                                           "locktype = 'advisory' and objid = 2829") == "0",
                           "the lock to be free")


def test_29_takeover(make_howdah, postgres):
    """A new process takes over from a running one while one client is in a transaction, one has a
    statement and settings, and one will cancel with a key of the old process."""
    howdah = make_howdah(workers=2, default_pool_size=2)
    with howdah.connect() as inside, howdah.connect() as keeps, howdah.connect() as cancels:
        keeps.ask(parse("select $1::int, current_setting('datestyle')", "kept"), sync())
        keeps.rows("set datestyle to 'German'")
        inside.rows("begin")
        pid = inside.value("select pg_backend_pid()")
        old = begin_takeover(howdah)
        keeps.send(bind("kept", [b"7"]) + execute() + sync())
        assert inside.value("select pg_backend_pid()") == pid
        inside.rows("commit")
        assert rows(keeps.read_until()) == [["7", "German, DMY"]]
        assert old.wait(30) == 0, howdah.said()
        cancels.send(query("select pg_sleep(60)"))
        postgres.wait_for_sleepers()
        cancels.cancel()
        assert [m.fields()["C"] for m in cancels.read_until() if m.tag == "E"] == ["57014"]
        assert inside.value("select 'as before'") == "as before"


def test_30_resume_while_draining(make_howdah):
    """PAUSE, then a shutdown that waits for clients, then RESUME: the clients hang for ever."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect() as a:
        served(a, "a")
        with wire.connect(howdah.address, user="admin", database="pgbouncer",
                          password="secret") as console:
            console.rows("pause")
            a.send(query("select 'late'"))
            assert a.quiet(0.1)
            howdah.signal(signal.SIGTERM)
            howdah.wait_for_log("got SIGTERM|shutting down|SIGTERM")
            try:
                console.rows("resume")
            except wire.Refused as refused:
                # As in PgBouncer a shutdown ends the pause; then RESUME has nothing to do.
                assert "paused" in refused.text or "shutting" in refused.text
        assert rows(a.read_until()) == [["late"]]
        a.send(wire.terminate())
        assert a.ends()
    assert howdah.wait() == 0


def test_31_timeout_after_a_flush(make_howdah):
    """A limit ends a group that was flushed, not synced; the client is closed without a word."""
    howdah = make_howdah(default_pool_size=1, query_timeout=1)
    with howdah.connect() as a, howdah.connect() as b:
        a.send(parse("select pg_sleep(30)"), bind(), execute(), flush())
        got = a.read_to_end()
        # PostgreSQL itself holds the first two replies back until it reads the Flush.
        assert (tags(got), codes(got)) == ("E", ["57014"])
        served(b, "b")


def test_32_the_only_host_is_not_banned(make_howdah, own_postgres):
    """The only host fails for a while: the pooler bans it, and hides why behind a text of its
    own."""
    howdah = make_howdah(postgres=own_postgres, default_pool_size=1, client_login_timeout=2,
                         server_login_retry="0.1", secrets={"nobody_known": ""})
    # An error of PostgreSQL's own comes through as it was.
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(user="nobody_known")
    assert 'role "nobody_known" does not exist' in refused.value.text
    with howdah.connect() as a:
        served(a, "a")
        own_postgres.stop()
        with pytest.raises((wire.Refused, wire.Ended)):
            howdah.connect(database="template1")
        own_postgres.start()
        machine.wait_until(lambda: comes_back(howdah), "the host to be used again")
        served(a, "again")


def comes_back(howdah):
    """Whether a new client is served."""
    try:
        with howdah.connect(database="template1") as client:
            return client.value("select 1") == "1"
    except (wire.Refused, wire.Ended):
        return False


@pytest.mark.parametrize("workers", [1, 2])
def test_33_statements_beyond_their_limit(make_howdah, postgres, workers):
    """Many clients prepare at once, and a server holds more statements than allowed."""
    limit = 30
    howdah = make_howdah(default_pool_size=4, workers=workers, max_prepared_statements=limit)
    problems = []

    def work(index):
        try:
            with howdah.connect() as client:
                for turn in range(60):
                    mark = f"{index}.{turn}"
                    got = client.ask(parse(f"select '{mark}', count(*) from pg_prepared_statements "
                                           "where name like 'howdah%'", mark),
                                     bind(mark), execute(), sync())
                    (found, held), = rows(got)
                    # What is open between two groups is bounded, and this one comes on top.
                    if found != mark or int(held) > limit + 1:
                        problems.append((mark, found, held))
        except Exception as problem:  # noqa: BLE001 - shown by the main thread
            problems.append(repr(problem))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    # Room is made when a server is lent: at rest it holds those of its last group on top.
    held = [int(server["prepared_statements"]) for server in howdah.console("SHOW SERVERS")]
    assert max(held) <= limit + 1
