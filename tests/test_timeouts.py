"""Everything that has a time limit. No test measures time: each waits for what must happen."""

import re
import socket

import pytest

from harness import machine, scripted, wire
from harness.wire import query

pytestmark = pytest.mark.timeout(60)


def fatal(messages):
    """Code and text of the FATAL that ended a connection."""
    fields = [got.fields() for got in messages if got.tag == "E"][-1]
    assert fields["S"] == "FATAL", fields
    return fields["C"], fields["M"]


def test_client_idle_timeout(make_howdah):
    """A client that says nothing is closed; one in a transaction is not idle in this sense."""
    howdah = make_howdah(client_idle_timeout=2)
    with howdah.connect() as idle:
        assert idle.value("select 1") == "1"
        assert fatal(idle.read_to_end()) == ("57P05", "client_idle_timeout")
    howdah.wait_for_log("closing because: client_idle_timeout")


def test_idle_transaction_timeout(make_howdah):
    """A client that forgets its transaction is closed, and its server is free again."""
    howdah = make_howdah(idle_transaction_timeout=1, default_pool_size=1)
    with howdah.connect() as idle, howdah.connect() as next_one:
        idle.rows("begin")
        next_one.send(query("select 'served'"))
        assert fatal(idle.read_to_end()) == ("25P03", "idle transaction timeout")
        assert [got.row() for got in next_one.read_until() if got.tag == "D"] == [[b"served"]]
    howdah.wait_for_log("closing because: idle transaction timeout")


def test_transaction_timeout(make_howdah):
    """A transaction that is too long ends even while its client is busy."""
    howdah = make_howdah(transaction_timeout=1, default_pool_size=1)
    with howdah.connect() as slow, howdah.connect() as next_one:
        slow.send(query("begin"), query("select pg_sleep(30)"))
        next_one.send(query("select 'served'"))
        assert fatal(slow.read_to_end()) == ("25P04", "transaction timeout")
        assert [got.row() for got in next_one.read_until() if got.tag == "D"] == [[b"served"]]


def test_query_timeout(make_howdah, postgres):
    """A query that is too long ends; PostgreSQL does not go on with it."""
    howdah = make_howdah(query_timeout=1, default_pool_size=1)
    with howdah.connect() as slow:
        slow.send(query("select 'query_timeout', pg_sleep(30)"))
        assert fatal(slow.read_to_end()) == ("57014", "query timeout")
    machine.wait_until(lambda: postgres.value(
        "select count(*) from pg_stat_activity where state = 'active' and "
        "query = 'select ''query_timeout'', pg_sleep(30)'") == "0", "the query to end")
    with howdah.connect() as client:
        assert client.value("select 1") == "1"


def test_query_wait_timeout(make_howdah):
    """A client that waits too long for a server is told and closed."""
    howdah = make_howdah(query_wait_timeout=1, default_pool_size=1)
    with howdah.connect() as holder, howdah.connect() as waiter:
        holder.rows("begin")
        waiter.send(query("select 1"))
        assert fatal(waiter.read_to_end()) == ("53300", "query_wait_timeout")
        holder.rows("commit")
        assert holder.value("select 1") == "1"
    howdah.wait_for_log("closing because: query_wait_timeout")


def test_query_wait_timeout_of_the_first(make_howdah):
    """Who comes when PostgreSQL can't be reached waits no longer for its login."""
    # Bound without listening: nobody else gets the port, and who connects is refused.
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        howdah = make_howdah(databases={"postgres": f"host=127.0.0.1 port={port}"},
                             query_wait_timeout=1, workers=2)
        with pytest.raises(wire.Refused) as refused:
            howdah.connect(seconds=10)
    assert (refused.value.code, refused.value.text) == ("57P03", "query_wait_timeout")
    howdah.wait_for_log("closing because: query_wait_timeout")


def test_user_timeouts(make_howdah):
    """A user's own limit goes before the global one."""
    howdah = make_howdah(query_timeout=60, users={"plain_user": "query_timeout=1"},
                         secrets={"plain_user": "secret"})
    with howdah.connect(user="plain_user") as slow, howdah.connect() as other:
        other.send(query("select pg_sleep(1.5)"))
        slow.send(query("select pg_sleep(30)"))
        assert fatal(slow.read_to_end())[1] == "query timeout"
        assert other.read_until()[-1].tag == "Z"


def test_query_wait_notify(make_howdah):
    """A client that waits is told once by a notice, and is then served."""
    howdah = make_howdah(query_wait_notify=1, default_pool_size=1)
    with howdah.connect() as holder, howdah.connect() as waiter:
        holder.rows("begin")
        waiter.send(query("select 'served'"))
        notice = waiter.read()
        assert notice.tag == "N"
        assert notice.fields()["M"] == ("No server connection available in postgres backend, "
                                        "client being queued")
        assert re.fullmatch(
            r"Reason: all servers of the pool are in use \(pool_size\)\. "
            r"Place in the queue: 1 of 1\. Waiting for \d+ s\.", notice.fields()["D"])
        holder.rows("commit")
        assert [got.tag for got in waiter.read_until()] == ["T", "D", "C", "Z"]


def test_server_idle_timeout(make_howdah, postgres):
    """Idle servers are closed."""
    howdah = make_howdah()
    with howdah.connect(user="admin", password="secret") as client:
        client.value("select 1")
        assert postgres.sessions("admin") >= 1
        howdah.console("SET server_idle_timeout = 1")
        howdah.wait_for_log("closing because: server idle timeout")
        howdah.wait_for_pool(user="admin", sv_idle=0, sv_used=0)
        assert client.value("select 2") == "2"


def test_server_lifetime(make_howdah):
    """Old servers are closed when nobody uses them, not before."""
    howdah = make_howdah(server_lifetime=1, default_pool_size=1)
    with howdah.connect() as client:
        client.rows("begin")
        pid = client.value("select pg_backend_pid()")
        assert client.value("select pg_sleep(1.5), pg_backend_pid()") is not None
        assert client.value("select pg_backend_pid()") == pid
        client.rows("commit")
        howdah.wait_for_log("closing because: server lifetime over")
        assert client.value("select pg_backend_pid()") != pid


def test_server_connect_timeout(make_howdah):
    """A server that accepts and then says nothing."""
    with scripted.ScriptedServer(lambda peer: peer.read()) as silent:
        howdah = make_howdah(server_connect_timeout=1, client_login_timeout=4, databases={
            "silent": f"host={silent.host} port={silent.port}"})
        with pytest.raises(wire.Refused):
            howdah.connect(database="silent")
        howdah.wait_for_log("closing because: connect timeout")


def test_server_login_retry(make_howdah, own_postgres):
    """A server that was down is tried again, without a restart of ours: who is logged in waits, and
    is served then. Who comes in the meantime learns that there is nothing to wait for."""
    howdah = make_howdah(postgres=own_postgres, server_login_retry="5", client_login_timeout=30)
    waiting = howdah.connect(seconds=30)
    own_postgres.stop()
    waiting.send(query("select 1"))
    # The pauses double: after the sixth failure it is 1.6 seconds long.
    failed = f"@{own_postgres.host}:{own_postgres.port} connect failed: .*refused"
    howdah.wait_for_log(f"(?s)(?:{failed}.*){{6}}")
    with pytest.raises(wire.Refused) as refused:
        howdah.connect()
    assert "server login has been failing" in refused.value.text
    assert refused.value.code == "08006"
    own_postgres.start()
    assert [got.row() for got in waiting.read_until() if got.tag == "D"] == [[b"1"]]
    waiting.close()


def test_a_missing_database(make_howdah, own_postgres):
    """Everybody is told the same of it, and it is there soon after it was created."""
    howdah = make_howdah(postgres=own_postgres, server_login_retry=60)
    for _ in range(5):
        with pytest.raises(wire.Refused) as refused:
            howdah.connect(database="later")
        assert refused.value.code == "3D000"
        assert refused.value.text == 'database "later" does not exist'
    own_postgres.sql("create database later")

    def is_there():
        try:
            with howdah.connect(database="later") as client:
                return client.value("select 1") == "1"
        except wire.Refused as still:
            assert still.code == "3D000"
            return False

    machine.wait_until(is_there, "the new database", 10)


@pytest.mark.not_listening("its server is a script, which can't listen")
def test_server_check_query(make_howdah):
    """A server that idled is tested before it is used again, and replaced if it fails."""
    seen = []

    def script(peer):
        peer.startup()
        peer.send(scripted.welcome())
        mine = len(seen)
        seen.append([])
        while True:
            got = peer.read()
            if got.tag == "X":
                return
            seen[mine].append(got.text())
            if got.text() == "select 'check'" and mine == 0:
                return
            peer.send(scripted.answer(f"server {mine}"))

    with scripted.ScriptedServer(script) as server:
        howdah = make_howdah(server_check_query="select 'check'", server_check_delay=0,
                             default_pool_size=1,
                             databases={"checked": f"host={server.host} port={server.port}"})
        with howdah.connect(database="checked") as client:
            client.value("select 1")
            assert client.value("select 2") == "server 1"
        howdah.wait_for_log("closing because: (test query failed|server conn crashed)")
    assert seen[0][-1] == "select 'check'"
    assert "select 2" not in seen[0]


@pytest.mark.not_listening("its server is a script, which can't listen")
def test_empty_server_check_query(make_howdah):
    """The literal `<empty>` sends an empty query."""
    seen = []

    def script(peer):
        peer.startup()
        peer.send(scripted.welcome())
        while True:
            got = peer.read()
            seen.append(got.text())
            if got.text() == "":
                peer.send(wire.message("I"), scripted.ready())
            else:
                peer.send(scripted.answer("x"))

    with scripted.ScriptedServer(script) as server:
        howdah = make_howdah(server_check_delay=0, default_pool_size=1,
                             databases={"checked": f"host={server.host} port={server.port}"})
        with howdah.connect(database="checked") as client:
            client.value("select 1")
            client.value("select 2")
    assert seen.index("select 1") < seen.index("", seen.index("select 1")) < seen.index("select 2")


@pytest.mark.not_listening("who listens is disconnected with 57P01, to look for what was missed")
def test_servers_that_postgres_restarts(make_howdah, own_postgres):
    """After a restart of PostgreSQL clients that are idle work on, with new servers."""
    howdah = make_howdah(postgres=own_postgres, default_pool_size=2)
    with howdah.connect() as client:
        client.ask(wire.parse("select 'prepared'", "s1"), wire.sync())
        assert client.value("select 1") == "1"
        own_postgres.stop()
        howdah.wait_for_pool(sv_idle=0, sv_used=0)
        own_postgres.start()
        rows = [got.row() for got in client.ask(wire.bind("s1"), wire.execute(), wire.sync())
                if got.tag == "D"]
        assert rows == [[b"prepared"]]


@pytest.mark.not_listening("its LISTEN would wait for the server that the test holds")
def test_a_waiting_client_that_hangs_up_is_noticed(make_howdah):
    """It has sent more than is held for it, so nothing is received from it; what it holds is little."""
    howdah = make_howdah(default_pool_size=1, query_wait_timeout=60)
    with howdah.connect() as holder:
        holder.rows("begin")
        waiting = howdah.connect()
        waiting.socket.setblocking(False)
        text = query("select 1 -- " + "x" * 4000) * 500
        sent = 0
        try:
            while sent < len(text):
                sent += waiting.socket.send(text[sent:])
        except BlockingIOError:
            pass
        howdah.wait_for_pool(cl_waiting=1)
        waiting.close()
        howdah.wait_for_pool(cl_waiting=0)
        assert holder.rows("commit") == []
