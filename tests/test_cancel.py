"""Cancel requests reach the query they are meant for, and never another."""

import random
import threading

import psycopg
import pytest

from harness import machine, scripted, wire
from harness.wire import bind, execute, parse, query, sync

pytestmark = pytest.mark.timeout(60)

CANCELLED = ("57014", "canceling statement due to user request")
WORKERS = [1, 2, 4]


def outcome(messages):
    """The code and text of the error in a reply; nothing if there is none."""
    for got in messages:
        if got.tag == "E":
            return got.fields()["C"], got.fields()["M"]
    return None


def sleep(mark):
    """A long query which can be found in pg_stat_activity."""
    return query(f"select '{mark}', pg_sleep(30)")


def runs(postgres, mark):
    """Whether such a query runs now."""
    return postgres.value("select count(*) from pg_stat_activity where state = 'active' and "
                          f"query like 'select ''{mark}'', pg_sleep%'") != "0"


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_running_query(make_howdah, postgres, mode, workers):
    """A running query is cancelled; its session and its server go on."""
    howdah = make_howdah(pool_mode=mode, workers=workers, default_pool_size=8)
    clients = [howdah.connect() for _ in range(4)]
    for index, client in enumerate(clients):
        client.send(sleep(f"run{index}"))
    machine.wait_until(lambda: all(runs(postgres, f"run{i}") for i in range(4)), "the queries")
    clients[2].cancel()
    assert outcome(clients[2].read_until()) == CANCELLED
    assert [runs(postgres, f"run{i}") for i in (0, 1, 3)] == [True] * 3
    assert clients[2].value("select 'on'") == "on"
    for index in (0, 1, 3):
        clients[index].cancel()
        assert outcome(clients[index].read_until()) == CANCELLED
        clients[index].close()
    clients[2].close()


@pytest.mark.parametrize("workers", WORKERS)
def test_queued_query(make_howdah, postgres, workers):
    """A query that waits for a server is cancelled in the queue; others keep their turn."""
    howdah = make_howdah(workers=workers, default_pool_size=1)
    with howdah.connect() as holder, howdah.connect() as first, howdah.connect() as second:
        holder.rows("begin")
        first.send(query("select 'first'"))
        howdah.wait_for_pool(cl_waiting=1)
        second.send(query("select 'second'"))
        howdah.wait_for_pool(cl_waiting=2)
        first.cancel()
        assert outcome(first.read_until()) == CANCELLED
        holder.rows("commit")
        assert outcome(second.read_until()) is None
        assert first.value("select 'again'") == "again"


def test_process_ids_do_not_come_back(make_howdah):
    """Pools compare them: a new connection is not to pass for the one before."""
    howdah = make_howdah()
    seen = []
    for _ in range(50):
        with howdah.connect() as client:
            seen.append(client.pid)
    assert len(set(seen)) == len(seen) and all(0 < pid < 2**31 for pid in seen)


def test_queued_group(make_howdah):
    """The same for a group of the extended protocol: one error, then ReadyForQuery at its Sync."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect() as holder, howdah.connect() as waiter:
        holder.rows("begin")
        waiter.send(wire.parse("select 1", "s1"), wire.bind("s1"), wire.execute(), sync())
        howdah.wait_for_pool(cl_waiting=1)
        waiter.cancel()
        messages = waiter.read_until()
        assert [got.tag for got in messages] == ["E", "Z"]
        assert outcome(messages) == CANCELLED
        holder.rows("commit")
        assert waiter.value("select 'on'") == "on"
        # The statement was never made.
        assert outcome(waiter.ask(wire.bind("s1"), sync()))[0] == "26000"


def test_idle_client(make_howdah):
    """A cancel that comes when nothing runs does nothing, neither now nor later."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect() as client, howdah.connect() as other:
        assert client.value("select 1") == "1"
        for _ in range(20):
            client.cancel()
            assert other.value("select pg_sleep(0.001), 2") is not None
            assert client.value("select 3") == "3"
        assert client.quiet()


def test_transaction_is_kept(make_howdah, postgres):
    """After a cancel in a transaction that is failed, not gone."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect() as client:
        client.rows("begin")
        client.send(sleep("kept"))
        machine.wait_until(lambda: runs(postgres, "kept"), "the query")
        client.cancel()
        messages = client.read_until()
        assert outcome(messages) == CANCELLED
        assert messages[-1] == wire.Message("Z", b"E")
        assert client.error(query("select 1"))["C"] == "25P02"
        client.rows("rollback")


@pytest.mark.parametrize("workers", WORKERS)
def test_never_hits_another(make_howdah, workers):
    """Clients that are cancelled at any moment, and clients that never are, share two servers:
    of the second kind none is ever cancelled, and no reply is mixed up."""
    howdah = make_howdah(workers=workers, default_pool_size=2)
    problems, cancelled = [], [0]
    stop = threading.Event()

    def innocent(index):
        with howdah.connect() as client:
            for turn in range(150):
                mark = f"innocent {index} {turn}"
                rows = client.rows(f"select '{mark}' from pg_sleep(0.001)")
                if rows != [[mark]]:
                    problems.append((mark, rows))

    def victim(index):
        dice = random.Random(index)
        with howdah.connect() as client:
            turn = 0
            while not stop.is_set():
                turn += 1
                mark = f"victim {index} {turn}"
                client.send(query(f"select '{mark}' from pg_sleep({dice.random() * 0.004})"))
                canceller = threading.Thread(target=client.cancel)
                canceller.start()
                messages = client.read_until()
                canceller.join()
                if outcome(messages):
                    cancelled[0] += 1
                    if outcome(messages) != CANCELLED:
                        problems.append((mark, messages))
                else:
                    rows = [got.row() for got in messages if got.tag == "D"]
                    if rows != [[mark.encode()]]:
                        problems.append((mark, rows))

    def guarded(work, index):
        try:
            work(index)
        except BaseException as problem:  # noqa: BLE001 - shown by the main thread
            problems.append(repr(problem))

    victims = [threading.Thread(target=guarded, args=(victim, i)) for i in range(3)]
    others = [threading.Thread(target=guarded, args=(innocent, i)) for i in range(4)]
    for thread in victims + others:
        thread.start()
    for thread in others:
        thread.join()
    stop.set()
    for thread in victims:
        thread.join()
    assert problems == []
    assert cancelled[0] > 0
    howdah.wait_for_pool(cl_active=0, sv_active=0, sv_being_canceled=0)


@pytest.mark.not_listening("its server is a script, which can't listen")
def test_late_cancel_does_not_hit_the_next_query(make_howdah):
    """The cancel's way to the server is slow: until it is through, nobody else gets the server."""
    cancels, release = [], threading.Event()

    def script(peer):
        try:
            peer.startup()
        except wire.Ended:
            # A cancel request: taken, but the connection ends only when the test says so.
            cancels.append(1)
            release.wait(10)
            return
        peer.send(scripted.welcome())
        while True:
            peer.send(scripted.answer(peer.read_query()))

    with scripted.ScriptedServer(script) as server:
        howdah = make_howdah(default_pool_size=1, databases={
            "slow": f"host={server.host} port={server.port}"})
        with howdah.connect(database="slow") as client, howdah.connect(database="slow") as other:
            client.value("warm up")
            client.send(query("first"), )
            # The cancel may come before or after the reply; both are tried by the test above.
            with wire.Wire(howdah.address) as canceller:
                client.send(query("begin"))
                client.read_until(), client.read_until()
                canceller.send(wire.cancel_request(client.pid, client.key))
                if not canceller.ends():
                    raise AssertionError("a reply to a cancel request")
            assert other.value("other") == "other"
    release.set()


def test_by_psycopg(make_howdah, postgres):
    """A driver's cancel."""
    howdah = make_howdah(workers=2)
    with psycopg.connect(howdah.url(), autocommit=True) as connection:
        def cancel():
            machine.wait_until(lambda: runs(postgres, "driver"), "the query")
            connection.cancel_safe()
        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("select 'driver', pg_sleep(30)")
        thread.join()
        assert connection.execute("select 1").fetchone() == (1,)


def test_many_wrong_keys_delay_only_who_sends_them(make_howdah, postgres):
    """Whoever tries keys waits, even if it never waits for the answers. A request from another
    address is carried out at once."""
    howdah = make_howdah(workers=1, listen_addr="127.0.0.1,::1", cancel_wait_timeout=600)
    with howdah.connect() as target:
        target.send(sleep("guessed"))
        machine.wait_until(lambda: runs(postgres, "guessed"), "the query")
        pid, key = target.pid, target.key
        guess = wire.cancel_request(pid, bytes(byte ^ 0xff for byte in key))
        for _ in range(110):
            with howdah.raw() as guesser:
                guesser.send(guess)
        guessers = [howdah.raw() for _ in range(30)]
        for guesser in guessers:
            guesser.send(guess)
        # Of these the last has its turn in more than a second.
        with wire.Wire(("::1", howdah.port)) as other:
            other.send(wire.cancel_request(pid, key))
            assert outcome(target.read_until()) == CANCELLED
            other.read_to_end()
        assert guessers[-1].quiet(0.01)
        for guesser in guessers:
            guesser.read_to_end()
            guesser.close()
        assert target.value("select 'on'") == "on"


# By the process id told at login -------------------------------------------------------------------

def ways(text, pid):
    """The messages of a call of this function with the id, in each way that drivers use."""
    sql, name = f"select {text}($1)", f"{text} {pid}"
    small = pid.to_bytes(4, "big")
    return {
        "query": [query(f"SELECT {text}({pid}) AS done;")],
        "constant": [parse(f"select pg_catalog.{text}({pid})"), bind(), execute(), sync()],
        "unnamed": [parse(sql), bind(values=[str(pid)]), wire.describe(kind="P"), execute(), sync()],
        "named": [parse(sql, name), wire.describe(name), sync(),
                  bind(name, [small], formats=[1], results=[1]), execute(), sync()],
    }


def flag(replies):
    """The boolean of the one row."""
    (row,) = [reply.row() for reply in replies if reply.tag == "D"]
    return row[0] in (b"t", b"\x01")


WAYS = ["query", "constant", "unnamed", "named"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_by_the_id_told_at_login(make_howdah, postgres, mode, workers, way):
    howdah = make_howdah(pool_mode=mode, workers=workers, default_pool_size=8)
    with howdah.connect() as other, howdah.connect() as target, howdah.connect() as gone:
        target.send(sleep("told"))
        machine.wait_until(lambda: runs(postgres, "told"), "the query")
        replies = read_all(other, ways("pg_cancel_backend", target.pid)[way])
        assert flag(replies)
        assert outcome(target.read_until()) == CANCELLED
        assert target.value("select 'on'") == "on"
        replies = read_all(other, ways("pg_terminate_backend", gone.pid)[way])
        assert flag(replies)
        (last,) = [reply for reply in gone.read_to_end() if reply.tag == "E"]
        assert last.fields()["C"] == "57P01"
        # PostgreSQL itself answers for ids that nobody has.
        nobody = 0x7fff_fff0
        replies = read_all(other, ways("pg_cancel_backend", nobody)[way])
        assert not flag(replies) and "N" in [reply.tag for reply in replies]
        assert other.value("select 'on'") == "on"
        if way == "named":
            again = bind(f"pg_cancel_backend {nobody}", [str(target.pid)])
            assert flag(other.ask(again, execute(), sync()))


def read_all(client, messages):
    """Sends messages, and reads the answers to each Sync or Query."""
    client.send(*messages)
    ends = sum(message[:1] in b"QS" for message in messages)
    return [reply for _ in range(ends) for reply in client.read_until()]


def test_no_told_id_is_one_of_a_process(make_howdah):
    for options in ({}, {"workers": 3}, {"peer_id": 1}, {"peer_id": 300, "workers": 2}):
        howdah = make_howdah(**options)
        for _ in range(40):
            with howdah.connect() as client:
                assert 1 << 22 < client.pid < 1 << 31
        with howdah.connect() as client, howdah.connect() as other:
            assert other.value(f"select pg_terminate_backend({client.pid})") == "t"
            client.read_to_end()
        howdah.stop()


def test_a_signal_waits_for_no_server(make_howdah, postgres):
    """The signal may free the server that the answer needs."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect() as busy, howdah.connect() as other:
        busy.send(sleep("signalled"))
        machine.wait_until(lambda: runs(postgres, "signalled"), "the query")
        assert other.value(f"select pg_cancel_backend({busy.pid})") == "t"
        assert outcome(busy.read_until()) == CANCELLED
        busy.rows("begin")
        assert other.value(f"select pg_terminate_backend({busy.pid})") == "t"
        busy.read_to_end()


def test_who_may_send_a_signal(make_howdah, postgres):
    """The same role, or a user in admin_users, of the same server."""
    for role in ("sends", "gets"):
        postgres.sql(f"drop role if exists {role}")
        postgres.sql(f"create role {role} login password '{role}'")
    howdah = make_howdah(workers=2, admin_users="admin,postgres",
                         secrets={"sends": "sends", "gets": "gets"}, databases={
                             "postgres": f"host={postgres.host} port={postgres.port}",
                             "other": f"host=localhost port={postgres.port} dbname=postgres"})
    with howdah.connect("sends") as sender, howdah.connect("gets") as getter, \
            howdah.connect("gets") as same:
        text = f"select pg_terminate_backend({getter.pid})"
        assert sender.value(text) == "f"
        assert getter.value("select 'on'") == "on"
        # Not in a failed transaction.
        same.rows("begin")
        same.error(query("select 1/0"))
        assert same.error(query(text))["C"] == "25P02"
        same.rows("rollback")
        assert getter.value("select 'on'") == "on"
        assert same.value(text) == "t"
        getter.read_to_end()
        text = f"select pg_terminate_backend({same.pid})"
        with howdah.connect(database="other") as elsewhere:
            assert elsewhere.value(text) == "f"
        assert same.value("select 'on'") == "on"
        with howdah.connect() as admin:
            assert admin.value(text) == "t"
        same.read_to_end()
