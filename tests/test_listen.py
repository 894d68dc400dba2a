"""LISTEN in transaction mode without a server of one's own (listen = share)."""

import asyncio
import random
import re
import struct
import threading

import asyncpg
import psycopg
import pytest

from harness import machine, wire
from harness.wire import bind, describe, execute, parse, query, sync, terminate

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_driver]

WORKERS = pytest.mark.parametrize("workers", [1, 3])


@pytest.fixture
def pool(make_howdah):
    """Starts a pooler: pool(size, workers=1, ...)."""
    def make(size=1, **options):
        return make_howdah(default_pool_size=size, listen="share", **options)
    return make


def heard(replies):
    """The notifications among messages, each as (pid, channel, payload)."""
    found = []
    for reply in replies:
        if reply.tag == "A":
            (pid,) = struct.unpack_from("!i", reply.body)
            channel, payload = reply.body[4:-1].split(b"\0")
            found.append((pid, channel.decode(), payload.decode()))
    return found


def said(replies):
    return [payload for _, _, payload in heard(replies)]


def tags(replies):
    return "".join(reply.tag for reply in replies)


def next_heard(client):
    """Waits for the next notification, which comes without being asked for."""
    (notification,) = heard([client.read()])
    return notification


def pinned(howdah):
    return sum(int(row["sv_pinned"]) for row in howdah.console("SHOW POOLS_EXTENDED"))


def listening(howdah):
    return [row for row in howdah.console("SHOW SERVERS") if row["state"] == "listening"]


@WORKERS
@pytest.mark.parametrize("size", [1, 3])
def test_a_notification_comes_to_who_listens(pool, workers, size):
    howdah = pool(size, workers=workers)
    clients = [howdah.connect() for _ in range(5)]
    for client in clients[:4]:
        assert tags(client.ask(query("listen news"))) == "CZ"
    assert clients[0].ask(query("listen other"))[0].text() == "LISTEN"
    assert pinned(howdah) == 0
    assert len(listening(howdah)) == 1
    assert heard(clients[4].ask(query("notify news, 'one'"))) == []
    for client in clients[:4]:
        assert next_heard(client)[1:] == ("news", "one")
    clients[4].rows("notify other, 'two'")
    assert next_heard(clients[0])[1:] == ("other", "two")
    for client in clients[1:]:
        assert heard(client.ask(query("select 1"))) == []
    # The servers are everybody's, and none of them listens.
    for client in clients[4:]:
        assert client.rows("select pg_listening_channels()") == []


@WORKERS
def test_what_was_committed_before_is_told_before_ready(pool, workers):
    """PostgreSQL tells a session what was committed before, when that session asks anything."""
    howdah = pool(2, workers=workers)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen c")
        for number in range(300):
            two.rows(f"notify c, '{number}'")
            replies = one.ask(query("select 1"))
            if not said(replies):
                pytest.fail(f"{number} is missing: {tags(replies)}")
            assert said(replies) == [str(number)]
            assert replies[-1].tag == "Z"


@WORKERS
def test_ones_own_comes_before_ready_with_ones_own_pid(pool, workers):
    howdah = pool(1, workers=workers)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen c")
        for number in range(50):
            # Another's, from the same server, just before.
            two.rows(f"notify c, 'b{number}'")
            replies = one.ask(query(f"notify c, 'a{number}'"))
            assert tags(replies) == "CAAZ" or tags(replies) == "ACAZ"
            assert said(replies) == [f"b{number}", f"a{number}"]
            foreign, own = (pid for pid, _, _ in heard(replies))
            assert own == one.pid
            assert foreign not in (one.pid, two.pid)


WAYS = {
    "simple": lambda client, sql: client.ask(query(sql)),
    "extended": lambda client, sql: client.ask(
        parse(sql), bind(), describe(kind="P"), execute(), sync()),
    "named": lambda client, sql: [
        *client.ask(parse(sql, "s" + str(abs(hash(sql)))), describe("s" + str(abs(hash(sql)))), sync()),
        *client.ask(bind("s" + str(abs(hash(sql)))), execute(), sync())],
}


@pytest.mark.parametrize("way", WAYS)
def test_both_protocols(pool, way):
    howdah = pool(1)
    with howdah.connect() as one, howdah.connect() as two:
        ask = WAYS[way]
        ask(one, "listen a")
        ask(one, "listen \"B\"")
        assert pinned(howdah) == 0
        two.rows("notify a, '1'; notify \"B\", '2'; notify b, '3'")
        assert [next_heard(one)[1:], next_heard(one)[1:]] == [("a", "1"), ("B", "2")]
        ask(one, "unlisten a")
        two.rows("notify a, '4'; notify \"B\", '5'")
        assert next_heard(one)[1:] == ("B", "5")
        ask(one, "unlisten *")
        two.rows("notify a, '6'; notify \"B\", '7'")
        assert said(ask(one, "select 1")) == []
        assert one.quiet()


def test_transactions(pool):
    """LISTEN and UNLISTEN count from commit, and are undone by ROLLBACK and ROLLBACK TO."""
    howdah = pool(2)
    with howdah.connect() as one, howdah.connect() as two:
        def tell(*channels):
            """Both listen and notify; what `one` was told."""
            for channel in channels:
                two.rows(f"notify {channel}, '{channel}'")
            return said(one.ask(query("select 1")))

        def run(*commands):
            for command in commands:
                one.rows(command)

        run("begin", "listen a")
        two.rows("notify a, 'early'")
        run("rollback")
        assert tell("a", "b") == []
        run("begin", "listen a")
        two.rows("notify a, 'early'")
        assert said(one.ask(query("select 1"))) == []
        assert said(one.ask(query("commit"))) == []
        assert tell("a", "b") == ["a"]
        run("begin", "savepoint s", "listen b", "rollback to s", "commit")
        assert tell("a", "b") == ["a"]
        run("begin", "listen b")
        assert said(one.ask(query("commit"))) == []
        assert tell("a", "b") == ["a", "b"]
        run("begin", "unlisten a", "rollback")
        assert tell("a", "b") == ["a", "b"]
        run("begin", "savepoint s", "unlisten *", "rollback to s", "commit")
        assert tell("a", "b") == ["a", "b"]
        run("begin", "unlisten a", "commit")
        assert tell("a", "b") == ["b"]
        run("begin", "unlisten *", "listen c", "commit")
        assert tell("a", "b", "c") == ["c"]
        run("begin", "listen d", "unlisten c", "savepoint s", "unlisten d", "rollback to s",
            "commit")
        assert tell("a", "b", "c", "d") == ["d"]
        # What is notified in a transaction waits for its end.
        run("begin")
        two.rows("notify d, '1'")
        assert said(one.ask(query("select 1"))) == []
        assert said(one.ask(query("select 1/0"))) == []
        assert said(one.ask(query("rollback"))) == ["1"]
        # Since its first UNLISTEN in a block it keeps its server.
        assert pinned(howdah) == 1
        run("unlisten *")
        machine.wait_until(lambda: pinned(howdah) == 0, "the server to be free")


def test_several_in_a_query(pool):
    howdah = pool(1)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen a; listen b; select 1; unlisten a")
        two.rows("notify a, '1'; notify b, '2'")
        assert next_heard(one)[1:] == ("b", "2")
        with pytest.raises(wire.Refused):
            one.rows("listen c; unlisten b; select 1/0")
        two.rows("notify a, '1'; notify b, '2'; notify c, '3'")
        assert next_heard(one)[1:] == ("b", "2")
        one.rows("select pg_advisory_unlock_all(); close all; unlisten *; reset all")
        two.rows("notify a; notify b; notify c")
        assert said(one.ask(query("select 1"))) == []
        one.rows("listen a")
        one.rows("discard all")
        two.rows("notify a")
        assert said(one.ask(query("select 1"))) == []
        assert pinned(howdah) == 0


def test_a_pipeline(pool):
    """Each answer of a pipeline is told in its order, with what was notified before it."""
    howdah = pool(1)
    with howdah.connect() as one:
        one.send(query("listen a"), query("notify a, '1'"), query("select 'x'"),
                 parse("notify a, '2'"), bind(), execute(), sync(), query("notify a, '3'"))
        replies = [reply for _ in range(5) for reply in one.read_until("Z")]
        assert tags(replies) == "CZ" "CAZ" "TDCZ" "12CAZ" "CAZ"
        assert said(replies) == ["1", "2", "3"]
        assert {pid for pid, _, _ in heard(replies)} == {one.pid}


def test_what_is_not_shared_pins(pool):
    howdah = pool(2)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen u&\"a\"")
        machine.wait_until(lambda: pinned(howdah) == 1, "it to be pinned")
        two.rows("notify a, '1'")
        assert next_heard(one)[1:] == ("a", "1")
        # What is listened to besides is not told twice.
        one.rows("listen b")
        two.rows("notify b, '2'")
        two.rows("notify a, '3'")
        assert [next_heard(one)[2], next_heard(one)[2]] == ["2", "3"]
        assert one.quiet()


def test_shared_and_kept(pool):
    howdah = pool(2)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen a")
        one.rows("create temp table t (a int)")
        machine.wait_until(lambda: pinned(howdah) == 1, "it to be pinned")
        for number in range(5):
            two.rows(f"notify a, '{number}'")
            assert next_heard(one)[2] == str(number)
            assert one.rows("select * from t") == []
        one.rows("listen b")
        two.rows("notify b, 'b'")
        two.rows("notify a, 'a'")
        assert [next_heard(one)[2], next_heard(one)[2]] == ["b", "a"]
        one.rows("drop table t")
        one.rows("select 1")
        assert one.quiet()


@WORKERS
def test_the_listener_is_lost(pool, workers, own_postgres):
    howdah = pool(2, workers=workers, postgres=own_postgres)
    clients = [howdah.connect() for _ in range(4)]
    for client in clients[:3]:
        client.rows("listen c")
    (server,) = listening(howdah)
    clients[3].rows(f"select pg_terminate_backend({server['remote_pid']})")
    for client in clients[:3]:
        (error,) = [reply for reply in client.read_to_end() if reply.tag == "E"]
        assert error.fields()["C"] == "57P01"
    with howdah.connect() as again:
        again.rows("listen c")
        clients[3].rows("notify c, 'x'")
        assert next_heard(again)[2] == "x"


@WORKERS
def test_thousands(pool, workers):
    """Nothing is lost, doubled or out of order, whatever the listeners do meanwhile."""
    howdah = pool(3, workers=workers)
    count, senders = 1500, 2
    results, problems = {}, []

    def listen(index):
        client = howdah.connect(seconds=60)
        try:
            client.rows("listen c")
            ready.wait()
            got = []
            while len(got) < count * senders:
                if index == 0:
                    got += heard([client.read()])
                elif index == 1:
                    got += heard(client.ask(query("select 1")))
                else:
                    got += heard(client.ask(query("begin"), query("select 1")))
                    got += heard(client.read_until("Z"))
                    got += heard(client.ask(query("commit")))
            results[index] = [payload for _, _, payload in got]
        except BaseException as problem:
            problems.append(problem)
            raise

    def send(index):
        ready.wait()
        client = howdah.connect(seconds=60)
        for number in range(count):
            client.rows(f"notify c, '{index}.{number}'")

    ready = threading.Barrier(3 + senders)
    threads = [threading.Thread(target=listen, args=(index,)) for index in range(3)]
    threads += [threading.Thread(target=send, args=(index,)) for index in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert results[0] == results[1] == results[2]
    for index in range(senders):
        own = [text for text in results[0] if text.startswith(f"{index}.")]
        assert own == [f"{index}.{number}" for number in range(count)]


@WORKERS
def test_the_listener_is_lost_and_clients_are_told(pool, workers, own_postgres):
    """listen_lost = notice: they go on, and look for what they may have missed."""
    howdah = pool(3, workers=workers, postgres=own_postgres, listen_lost="notice")
    with howdah.connect() as idle, howdah.connect() as busy, howdah.connect() as polls, \
            howdah.connect() as other:
        clients = [idle, busy, polls]
        for client in clients:
            client.rows("listen c")
        busy.rows("begin")
        busy.rows("listen d")
        for _ in range(2):
            (server,) = listening(howdah)
            polls.send(query("select 1"))
            other.rows(f"select pg_terminate_backend({server['remote_pid']})")
            warned = idle.read()
            assert (warned.tag, warned.fields()["S"], warned.fields()["C"]) == ("N", "WARNING", "01000")
            replies = polls.read_until("Z")
            if "N" not in tags(replies):
                assert polls.read().tag == "N"
            assert tags(busy.ask(query("select 1"))) == "TDCZ"
            other.rows("notify c, 'x'")
            assert next_heard(idle)[1:] == ("c", "x")
            assert next_heard(polls)[1:] == ("c", "x")
        replies = busy.ask(query("commit"))
        assert tags(replies) in ("CNAAZ", "NAACZ", "NCAAZ") and said(replies) == ["x", "x"]
        idle.rows("unlisten c")
        other.rows("notify c, 'y'; notify d, 'z'")
        assert [next_heard(busy)[1:], next_heard(busy)[1:]] == [("c", "y"), ("d", "z")]
        assert said(idle.ask(query("select 1"))) == []
        assert pinned(howdah) == 0


@WORKERS
def test_the_listener_is_lost_for_good(pool, workers, own_postgres):
    """Where there can be no other listener, nobody waits for one."""
    howdah = pool(1, workers=workers, postgres=own_postgres, listen_lost="notice")
    with howdah.connect() as one:
        one.rows("listen c")
        own_postgres.stop()
        (error,) = [reply for reply in one.read_to_end() if reply.tag == "E"]
        assert error.fields()["C"] == "57P01"


def test_a_client_leaves(pool):
    howdah = pool(2, server_idle_timeout=1)
    with howdah.connect() as two:
        for how in [lambda c: c.close(), lambda c: c.abort(), lambda c: c.send(terminate())]:
            one = howdah.connect()
            one.rows("listen c")
            one.send(query("begin"), query("listen d"))
            two.rows("notify c")
            how(one)
        two.rows("notify c")
        assert two.rows("select 1") == [["1"]]
        machine.wait_until(lambda: not listening(howdah), "the listener to go")


def test_pause_reconnect_and_resume(pool):
    howdah = pool(2)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen c")
        howdah.console("PAUSE")
        howdah.console("RESUME")
        two.rows("notify c, 'x'")
        assert next_heard(one)[2] == "x"
    howdah.console("PAUSE")
    with howdah.connect() as one:
        one.send(query("listen c"))
        assert one.quiet()
        howdah.console("RESUME")
        assert tags(one.read_until("Z")) == "CZ"


@pytest.mark.both_drivers
def test_suspend(pool):
    """Nothing is told meanwhile, and nothing is missed."""
    howdah = pool(2)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen c")
        with wire.connect((howdah.postgres.host, howdah.postgres.port)) as direct, howdah.connect(
                user="admin", database="pgbouncer", password="secret") as console:
            console.rows("SUSPEND")
            direct.rows("notify c, 'x'")
            assert one.quiet()
            console.rows("RESUME")
        assert next_heard(one)[2] == "x"
        two.rows("notify c, 'y'")
        assert next_heard(one)[2] == "y"


@WORKERS
def test_kill(pool, workers):
    """Who listens is disconnected like all others, and may listen again."""
    howdah = pool(2, workers=workers)
    with howdah.connect() as one:
        one.rows("listen c")
        howdah.console("KILL postgres")
        (error,) = [reply for reply in one.read_to_end() if reply.tag == "E"]
        assert error.fields()["C"] == "57P01"
    machine.wait_until(lambda: not listening(howdah), "the listener to go")
    howdah.console("RESUME postgres")
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen c")
        two.rows("notify c, 'x'")
        assert next_heard(one)[2] == "x"


@WORKERS
def test_reconnect_ends_who_listens(pool, workers):
    """Between two transactions. The lifetime of servers leaves a connection that clients use."""
    howdah = pool(2, workers=workers, server_lifetime=1)
    with howdah.connect() as idle, howdah.connect() as inside, howdah.connect() as two:
        idle.rows("listen c")
        inside.rows("listen c")
        inside.rows("begin")
        first = two.value("select pg_backend_pid()")
        machine.wait_until(lambda: two.value("select pg_backend_pid()") != first,
                           "an old server to go")
        two.rows("notify c, 'x'")
        assert next_heard(idle)[2] == "x"
        howdah.console("RECONNECT")
        (error,) = [reply for reply in idle.read_to_end() if reply.tag == "E"]
        assert error.fields()["C"] == "57P01"
        inside.rows("notify c, 'own'")
        assert tags(inside.ask(query("commit"))).startswith("C")
        (error,) = [reply for reply in inside.read_to_end() if reply.tag == "E"]
        assert error.fields()["C"] == "57P01"
        with howdah.connect() as again:
            again.rows("listen c")
            two.rows("notify c, 'y'")
            assert next_heard(again)[2] == "y"


def test_one_user_listens(pool):
    howdah = pool(1, listen_user="postgres")
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen c")
        two.rows("listen c")
        assert len(listening(howdah)) == 1
        two.rows("notify c, 'x'")
        assert next_heard(one)[2] == "x"


def test_no_room_for_a_listener(pool, own_postgres):
    """Where the limits leave no room for one, LISTEN keeps its server as it does without."""
    howdah = pool(1, max_db_connections=1, postgres=own_postgres)
    with howdah.connect() as one:
        one.rows("listen c")
        machine.wait_until(lambda: pinned(howdah) == 1, "it to be pinned")
        one.rows("notify c, 'x'")


def test_pin_is_still_there(make_howdah):
    howdah = make_howdah(default_pool_size=2, listen="pin")
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen c")
        machine.wait_until(lambda: pinned(howdah) == 1, "it to be pinned")
        assert not listening(howdah)
        two.rows("notify c, 'x'")
        assert next_heard(one)[2] == "x"


@WORKERS
def test_psycopg(pool, workers):
    howdah = pool(1, workers=workers)
    with psycopg.connect(howdah.url(), autocommit=True) as one, \
            psycopg.connect(howdah.url(), autocommit=True) as two:
        one.execute("listen c")
        for number in range(20):
            two.execute("select pg_notify('c', %s)", [str(number)])
        got = []
        for notification in one.notifies(timeout=30, stop_after=20):
            got.append(notification.payload)
        assert got == [str(number) for number in range(20)]
        one.execute("notify c, 'own'")
        (own,) = one.notifies(timeout=30, stop_after=1)
        assert own.pid == one.info.backend_pid
        assert pinned(howdah) == 0


@WORKERS
def test_asyncpg(pool, workers):
    howdah = pool(1, workers=workers)

    async def run():
        one = await asyncpg.connect(howdah.url())
        two = await asyncpg.connect(howdah.url())
        got = asyncio.Queue()
        listener = lambda connection, pid, channel, payload: got.put_nowait(payload)
        await one.add_listener("c", listener)
        for number in range(20):
            await two.execute("select pg_notify('c', $1)", str(number))
        assert [await asyncio.wait_for(got.get(), 30) for _ in range(20)] == [
            str(number) for number in range(20)]
        assert pinned(howdah) == 0
        await one.remove_listener("c", listener)
        await two.execute("notify c, 'x'")
        await one.execute("select 1")
        assert got.empty()
        await one.reset()
        await one.close()
        await two.close()

    asyncio.run(run())


def test_unlisten_in_a_block_by_the_extended_protocol(pool):
    howdah = pool(2)
    with howdah.connect() as one, howdah.connect() as two:
        def tell(*channels):
            for channel in channels:
                two.rows(f"notify {channel}, '{channel}'")
            return said(one.ask(query("select 1")))

        ask = WAYS["extended"]
        for command in ["listen a", "listen b", "listen c"]:
            ask(one, command)
        for command in ["begin", "unlisten a", "savepoint s", "unlisten b", "rollback to s",
                        "commit"]:
            assert "E" not in tags(ask(one, command))
        assert tell("a", "b", "c") == ["b", "c"]
        for command in ["begin", "unlisten *", "rollback"]:
            assert "E" not in tags(ask(one, command))
        assert tell("b", "c") == ["b", "c"]
        for command in ["begin", "unlisten *", "listen c", "commit"]:
            assert "E" not in tags(ask(one, command))
        assert tell("b", "c") == ["c"]
        assert pinned(howdah) == 1
        for command in ["begin", "unlisten *", "commit"]:
            assert "E" not in tags(ask(one, command))
        assert tell("b", "c") == []
        machine.wait_until(lambda: pinned(howdah) == 0, "the server to be free")


def test_unlisten_and_the_end_of_a_block_in_one_query(pool):
    """What drivers send when a connection goes back to their own pool, in whatever state."""
    howdah = pool(2)
    with howdah.connect() as one, howdah.connect() as two:
        def hears():
            two.rows("notify a, 'a'")
            return said(one.ask(query("select 1"))) == ["a"]

        for before in (["begin"], ["begin", "select 1/0"], ["begin", "listen b"]):
            one.rows("listen a")
            for command in before:
                one.ask(query(command))
            assert tags(one.ask(query("rollback; unlisten *; reset all"))) == "CCCZ"
            assert not hears()
        assert pinned(howdah) == 0
        one.rows("listen a")
        one.rows("begin; unlisten a; commit")
        assert not hears()
        one.rows("listen a")
        assert "E" in tags(one.ask(query("begin; unlisten a; select 1/0; commit")))
        one.rows("rollback")
        assert hears()
        one.rows("begin; unlisten a; rollback")
        assert hears()
        one.rows("begin; unlisten a; commit; begin")
        one.rows("rollback")
        assert not hears()


def test_a_query_in_an_open_group(pool):
    """A client that listens is told that it is idle where no Sync has ended a group yet."""
    howdah = pool(1)
    with howdah.connect() as one:
        one.rows("listen c")
        replies = one.ask(parse("select 1"), bind(), query("select 2"))
        assert tags(replies) == "12TDCZ"
        assert tags(one.ask(sync())) == "Z"
        assert one.rows("select 3") == [["3"]]


@pytest.mark.both_drivers
def test_a_copy_that_fails_in_the_middle_of_a_message(pool):
    howdah = pool(1)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen c")
        two.rows("create table if not exists copied_once (a int primary key)")
        data = wire.copy_data(b"1\n1\n" + b"".join(b"%d\n" % number for number in range(9, 200_000)))
        one.send(query("copy copied_once from stdin"))
        one.read_until("G")
        half = len(data) // 2
        one.send(data[:half])
        one.send(data[half:-1])
        # The error comes while a message of the client is not whole.
        one.send(data[-1:], wire.copy_done())
        assert "E" in tags(one.read_until("Z"))
        two.rows("notify c, 'x'")
        assert one.rows("select 1") == [["1"]] or next_heard(one)[2] == "x"
        two.rows("drop table copied_once")


def test_channels_are_told(pool):
    howdah = pool(2)
    with howdah.connect() as one, howdah.connect() as two:
        def channels(client, way):
            replies = WAYS[way](client, "select pg_listening_channels()")
            return sorted(reply.row()[0].decode() for reply in replies if reply.tag == "D")

        one.rows("listen a")
        one.rows("listen \"B\"")
        for way in WAYS:
            assert channels(one, way) == ["B", "a"]
            assert channels(two, way) == []
        assert channels(one, "extended") == ["B", "a"]
        two.rows("notify a, 'x'")
        assert next_heard(one)[2] == "x"
        one.rows("unlisten a")
        one.rows("begin")
        one.rows("listen c")
        assert channels(one, "simple") == ["B"]
        one.rows("commit")
        assert channels(one, "simple") == ["B", "c"]
        assert pinned(howdah) == 1
        one.rows("unlisten *")
        assert channels(one, "simple") == []
        machine.wait_until(lambda: pinned(howdah) == 0, "the server to be free")
        one.rows("listen a")
        one.rows("begin")
        one.send(query("select pg_listening_channels()"))
        with pytest.raises(wire.Refused) as refused:
            one.read_until("Z")
        assert refused.value.code == "0A000"
        assert channels(two, "simple") == []


def test_copy_by_a_listening_client(pool):
    howdah = pool(1)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen c")
        two.rows("drop table if exists listened")
        two.rows("create table listened (a int)")
        for _ in range(3):
            two.rows("notify c, 'x'")
            replies = one.ask(query("copy listened from stdin"), wire.copy_data(b"1\n2\n"),
                              wire.copy_done())
            assert "COPY 2" in [reply.text() for reply in replies if reply.tag == "C"], replies
            if not said(replies):
                assert next_heard(one)[2] == "x"
            replies = one.ask(parse("copy listened from stdin"), bind(), execute(), sync(),
                              wire.copy_data(b"1\n2\n"), wire.copy_done(), sync())
            assert "COPY 2" in [reply.text() for reply in replies if reply.tag == "C"], replies
            replies = one.ask(query("copy listened to stdout"))
            assert replies[-1].tag == "Z"
        assert one.value("select count(*) from listened") == "12"
        two.rows("drop table listened")


@WORKERS
def test_many_listen_behind_one_server(pool, workers):
    howdah = pool(1, workers=workers, max_client_conn=300)
    clients = [howdah.connect() for _ in range(100)]
    for index, client in enumerate(clients):
        client.rows(f"listen c{index % 7}")
        client.rows("listen all_of_them")
    assert len(listening(howdah)) == 1
    with howdah.connect() as two:
        for number in range(7):
            two.rows(f"notify c{number}, '{number}'")
        two.rows("notify all_of_them, 'all'")
    for index, client in enumerate(clients):
        assert [next_heard(client)[2], next_heard(client)[2]] == [str(index % 7), "all"]


def test_another_encoding(pool):
    """One connection listens, in one encoding; who speaks another keeps its server."""
    howdah = pool(3)
    with howdah.connect() as one, howdah.connect(client_encoding="LATIN1") as latin, \
            howdah.connect() as two:
        one.rows("listen c")
        latin.rows("listen c")
        machine.wait_until(lambda: pinned(howdah) == 1, "it to be pinned")
        two.rows("notify c, 'h\u00f6r'")
        assert next_heard(one)[2] == "h\u00f6r"
        raw = latin.read()
        assert raw.tag == "A" and "h\u00f6r".encode("latin-1") in raw.body
        one.rows("set client_encoding = 'LATIN1'")
        two.rows("notify c, 'plain'")
        assert next_heard(one)[2] == "plain"
        two.rows("notify c, 'h\u00f6r'")
        (error,) = [reply for reply in one.read_to_end() if reply.tag == "E"]
        assert error.fields()["C"] == "22021"


@pytest.mark.both_drivers
def test_too_much_waits(pool):
    howdah = pool(2)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen c")
        one.rows("begin")
        two.rows("select pg_notify('c', repeat('x', 7000) || n) from generate_series(1, 3000) n")
        (error,) = [reply for reply in one.read_to_end() if reply.tag == "E"]
        assert error.fields()["C"] == "54000"
        # Who is idle gets any number.
        with howdah.connect() as one:
            one.rows("listen c")
            two.rows("select pg_notify('c', repeat('x', 7000) || n) from generate_series(1, 2000) n")
            for number in range(1, 2001):
                assert next_heard(one)[2] == "x" * 7000 + str(number)


def test_too_many_channels_are_one_clients_error(pool):
    howdah = pool(2)
    with howdah.connect() as one, howdah.connect() as two:
        for front in range(10):
            one.rows("".join(f"listen c{front}{number:03};" for number in range(1000)))
        one.send(query("listen more"))
        (error,) = [reply for reply in one.read_to_end() if reply.tag == "E"]
        assert error.fields()["C"] == "54000"
        two.rows("listen more")
        assert [told[1:] for told in heard(two.ask(query("notify more")))] == [("more", "")]


def test_more_channels_in_a_query_than_are_shared(pool):
    """Twice as many as a client may share: they keep its server, beside what it listens to already, and
    nobody else notices. (PostgreSQL takes ever longer for each: 40 s for 100,000.)"""
    howdah = pool(2)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen before")
        one.rows("".join(f"listen c{number};" for number in range(20_000)))
        machine.wait_until(lambda: pinned(howdah) == 1, "it to be pinned")
        two.rows("listen c19999")
        two.rows("notify before; notify c19999, 'last'; notify other")
        assert sorted(told[1] for told in heard(one.ask(query("select 1")))) == ["before", "c19999"]
        assert len(listening(howdah)) == 1
        one.rows("unlisten *")
        machine.wait_until(lambda: pinned(howdah) == 0, "it to be free")
        assert said(two.ask(query("notify c19999, 'again'"))) == ["again"]
        assert heard(one.ask(query("select 1"))) == []


def test_state_follows_who_listens(pool):
    """A client that listens has everything else that a session has."""
    howdah = pool(1)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("listen c")
        one.rows("set work_mem = '7MB'; listen d; set app.x = 'y'")
        two.rows("set work_mem = '9MB'")
        assert one.value("show work_mem") == "7MB"
        assert one.value("select current_setting('app.x')") == "y"
        with pytest.raises(wire.Refused):
            one.rows("select 1/0")
        with pytest.raises(wire.Refused):
            one.rows("begin; select 1/0")
        one.rows("rollback")
        two.rows("notify d, 'x'")
        assert next_heard(one)[2] == "x"
        assert one.value("show work_mem") == "7MB"
        assert two.value("show work_mem") == "9MB"
        assert pinned(howdah) == 0


# As directly ------------------------------------------------------------------------------------

CHANNELS = ["a", "b", "c"]
CHANNELS_ASKED = "select channel from pg_listening_channels() t(channel) where channel <> 'howdah_alone'"


def next_command(chance, block, number, kept):
    """A command, and how it is sent. What is notified bears a number. In a block, what is undone in
    part has no UNLISTEN. `kept`: who listens may keep a server."""
    channel, other = chance.choice(CHANNELS), chance.choice(CHANNELS)
    unlistens = [f"unlisten {channel}", "unlisten *",
                 f"listen {channel}; notify {channel}, '{number}'; unlisten {other}"]
    commands = [
        f"listen {channel}", f"listen {channel}; listen {other}",
        f"notify {channel}, '{number}'", f"select pg_notify('{channel}', '{number}')",
        f"do $$ begin perform pg_notify('{channel}', '{number}'); end $$",
        "select 1", "select 1", "set work_mem = '7MB'",
    ]
    if block == "whole":
        commands += unlistens + ["commit", "rollback"] * 2
    elif block:
        commands += ["commit", "commit", "rollback", "savepoint s", "rollback to s", "release s"] * 2
        commands += ["rollback; unlisten *", f"commit; unlisten {channel}", "select 1/0"]
    else:
        commands += unlistens
        commands += ["begin", "begin", "begin", "discard all", "select 1/0",
                     "create temp table if not exists t (a int)", "drop table if exists t",
                     f"unlisten *; listen {channel}", f"listen {channel}; select 1/0",
                     f"unlisten {channel}; select 1/0", f"begin; listen {channel}; commit"]
        commands += [f"begin; unlisten {channel}; commit", CHANNELS_ASKED] if kept else []
    command = chance.choice(commands)
    several = ";" in command.replace("; end $$", "")
    way = "simple" if several else chance.choice(["simple", "extended"])
    return command, way


def play(script, connect):
    """What each client is told at each step: rows, errors, and notifications, own ones marked."""
    clients = {}
    told = []
    for who, command, way in script:
        if who not in clients:
            clients[who] = connect()
        client = clients[who]
        replies = client.ask(query(command)) if way == "simple" else client.ask(
            parse(command), bind(), describe(kind="P"), execute(), sync())
        rows = sorted(str(reply.row()) for reply in replies if reply.tag == "D")
        errors = [reply.fields()["C"] for reply in replies if reply.tag == "E"]
        notified = [(pid == client.pid, channel, payload)
                    for pid, channel, payload in heard(replies)]
        told.append((who, command, way, rows, errors, notified, replies[-1].body))
    for client in clients.values():
        client.close()
    return told


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size, workers", [(1, 1), (4, 1), (4, 3)])
def test_scripts_end_as_directly(pool, own_database, seed, size, workers):
    chance = random.Random(f"{seed} {size}")
    directly = lambda: wire.connect(own_database.address, database=own_database.name)
    with directly() as probe:
        version = int(probe.value("show server_version_num"))
    if version < 130000:
        pytest.skip("tells what was committed before only sometimes")
    script, blocks, blocks_at = [], {}, []
    # With one server a transaction keeps all others waiting.
    names = ["x", "y", "z"]
    for number in range(80):
        busy = [who for who in names if blocks.get(who)]
        who = busy[0] if size == 1 and busy else chance.choice(names)
        command, way = next_command(chance, blocks.get(who), number, size > 1)
        if size == 1 and command.startswith("create temp"):
            continue
        if command == "begin":
            # What comes when it has begun waits for its end.
            script.append((who, "select 1", way))
            blocks_at.append(False)
        script.append((who, command, way))
        blocks_at.append(blocks.get(who))
        if command == "begin":
            blocks[who] = chance.choice(["whole", "in parts"]) if size > 1 else "in parts"
        elif command.split(";")[0] in ("commit", "rollback"):
            blocks[who] = False
    for who in sorted(names, key=lambda who: not blocks.get(who)):
        script += [(who, "rollback", "simple"), (who, "select 1", "simple")]
        blocks_at += [False, False]
    howdah = pool(size, workers=workers, pin_limit=4)
    expected = play(script, directly)
    got = play(script, lambda: howdah.connect(database=own_database.name))
    new = {who: set() for who in names}
    alone = set()
    for step, (one, other) in enumerate(zip(expected, got)):
        who, command = one[:2]
        problem = f"step {step}: {other}\nwhere directly: {one}\n" + "\n".join(
            map(str, script[:step + 1]))
        if blocks_at[step]:
            new[who] |= set(re.findall(r"\blisten (\w)", command))
        # PostgreSQL tells of a channel what was said before LISTEN was committed, too, to a session
        # that has listened to another before.
        early = [heard for heard in one[5] if heard not in other[5]]
        assert all(not own and channel in new[who] for own, channel, _ in early), problem
        if command == CHANNELS_ASKED or blocks_at[step] == "whole" or "begin; unlisten" in command:
            alone.add(who)
        # Who listens alone has no order among its channels.
        by_channel = (lambda heard: heard[1]) if who in alone else (lambda heard: "")
        ours, theirs = sorted(other[5], key=by_channel), sorted(one[5], key=by_channel)
        assert [heard for heard in theirs if heard not in early] == ours, problem
        assert one[:5] + one[6:] == other[:5] + other[6:], problem
        if command.split(";")[0] in ("commit", "rollback"):
            new[who] = set()


class Named:
    """A database of the shared PostgreSQL that nobody else uses."""

    def __init__(self, address, name):
        self.address, self.name = address, name


@pytest.fixture
def own_database(postgres):
    name = f"listen_{random.randrange(10**9)}"
    address = (postgres.host, postgres.port)
    with wire.connect(address, database="postgres") as admin:
        admin.rows(f"create database {name}")
    yield Named(address, name)
