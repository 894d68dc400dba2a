"""Signals with PgBouncer 1.25's meanings, and the ends of the process."""

import os
import signal

import pytest

from harness import machine, wire
from harness.wire import query

pytestmark = pytest.mark.timeout(60)


def refused_by_tcp(howdah):
    """Whether nobody listens any more."""
    try:
        with wire.Wire(howdah.address):
            return False
    except ConnectionRefusedError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize("workers", [1, 2])
def test_sigquit(make_howdah, workers):
    """SIGQUIT ends the process at once, whatever is under way."""
    howdah = make_howdah(workers=workers)
    with howdah.connect() as client:
        client.send(query("select pg_sleep(30)"))
        howdah.wait_for_pool(cl_active=1)
        howdah.signal(signal.SIGQUIT)
        howdah.wait()
        client.read_to_end()


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_waits_for_clients(make_howdah, workers):
    """SIGTERM: no new clients; those there work on; the process ends with the last of them."""
    howdah = make_howdah(workers=workers)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("begin")
        howdah.signal(signal.SIGTERM)
        machine.wait_until(lambda: refused_by_tcp(howdah), "the listener to close")
        assert two.value("select 'still'") == "still"
        one.rows("commit")
        one.send(wire.terminate())
        assert one.ends()
        assert two.value("select 'still'") == "still"
        assert howdah.running()
        two.send(wire.terminate())
        assert howdah.wait() == 0
    assert "LOG client connections dropped, exiting" in howdah.log()


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_second_signal(make_howdah, which):
    """The second SIGTERM or SIGINT ends it at once."""
    howdah = make_howdah()
    with howdah.connect() as client:
        client.rows("begin")
        howdah.signal(which)
        machine.wait_until(lambda: refused_by_tcp(howdah), "the listener to close")
        howdah.signal(which)
        howdah.wait()
        client.read_to_end()


@pytest.mark.parametrize("workers", [1, 2])
def test_sigint_waits_for_servers(make_howdah, workers):
    """SIGINT: transactions are finished, waiting clients are sent away, then the process ends."""
    howdah = make_howdah(default_pool_size=1, workers=workers)
    with howdah.connect() as busy, howdah.connect() as waiting:
        busy.rows("begin")
        waiting.send(query("select 1"))
        howdah.wait_for_pool(cl_waiting=1)
        howdah.signal(signal.SIGINT)
        errors = [got.fields() for got in waiting.read_to_end() if got.tag == "E"]
        assert [(e["C"], e["M"]) for e in errors] == [("57P01", "server shutting down")]
        assert busy.value("select 'still'") == "still"
        busy.rows("commit")
        assert howdah.wait() == 0
    assert "closing because: server shutting down" in howdah.log()
    assert "LOG server connections dropped, exiting" in howdah.log()


def test_sighup_reloads(make_howdah):
    """SIGHUP reads the files again and disturbs nobody."""
    howdah = make_howdah(default_pool_size=5, workers=2)
    with howdah.connect() as client:
        client.rows("begin")
        howdah.write(default_pool_size=6)
        howdah.signal(signal.SIGHUP)
        machine.wait_until(lambda: howdah.setting("default_pool_size") == "6", "the new setting")
        assert client.value("select 1") == "1"
        client.rows("commit")


def test_sighup_with_a_mistake(make_howdah):
    """A mistake in the file changes nothing."""
    howdah = make_howdah(default_pool_size=5)
    howdah.write(default_pool_size="many")
    mark = howdah.log_mark()
    howdah.signal(signal.SIGHUP)
    howdah.wait_for_log(r"default_pool_size", since=mark)
    assert howdah.setting("default_pool_size") == "5"
    with howdah.connect() as client:
        assert client.value("select 1") == "1"


def test_sighup_reopens_the_log(make_howdah):
    """Log rotation: the file is renamed, SIGHUP, and a new one is written."""
    howdah = make_howdah()
    os.rename(howdah.log_path, howdah.log_path + ".1")
    howdah.signal(signal.SIGHUP)
    machine.wait_until(lambda: os.path.exists(howdah.log_path), "a new log file")
    howdah.connect().close()
    howdah.wait_for_log("login attempt")


def test_sigusr1_and_sigusr2(make_howdah):
    """SIGUSR1 pauses, SIGUSR2 resumes."""
    howdah = make_howdah(workers=2)

    with howdah.connect() as client:
        def waits():
            """Asks until the answer stays out: a signal is obeyed some time after it is sent."""
            client.send(query("select 'late'"))
            answered = machine.wait_until(
                lambda: "yes" if not client.quiet(0.01) else howdah.pool()["cl_waiting"] and "no",
                "an answer or the wait")
            if answered == "yes":
                client.read_until()
            return answered == "no"
        howdah.signal(signal.SIGUSR1)
        machine.wait_until(waits, "the pause")
        machine.wait_until(howdah.paused, "the pause of all workers")
        howdah.signal(signal.SIGUSR2)
        assert [got.row() for got in client.read_until() if got.tag == "D"] == [[b"late"]]


def test_servers_are_left_cleanly(make_howdah, own_postgres):
    """At the end PostgreSQL has no sessions left of ours, and did not see a broken connection."""
    howdah = make_howdah(postgres=own_postgres, workers=2)
    clients = [howdah.connect() for _ in range(5)]
    for client in clients:
        client.rows("begin; select 1; commit")
        client.send(wire.terminate())
    howdah.signal(signal.SIGINT)
    assert howdah.wait() == 0
    machine.wait_until(lambda: own_postgres.sessions() == 0, "all sessions to end")
    assert "unexpected EOF" not in own_postgres.log()


@pytest.mark.parametrize("workers", [1, 2])
def test_sigint_gives_no_server_out(make_howdah, workers):
    """SIGINT: who has a server works on; who wants one is told that there is none any more."""
    howdah = make_howdah(workers=workers)
    with howdah.connect() as busy, howdah.connect() as idle:
        busy.rows("begin")
        howdah.signal(signal.SIGINT)
        machine.wait_until(lambda: refused_by_tcp(howdah), "the listeners to close")
        assert busy.value("select 1") == "1"
        idle.send(query("select 1"))
        refusal = idle.read_to_end()[-1].fields()
        assert (refusal["C"], refusal["M"]) == ("57P01", "server shutting down")
        busy.rows("commit")
    howdah.wait()


def test_a_new_process_takes_over_the_port(make_howdah):
    """so_reuseport: a second process listens on the same port before the first is told to end;
    the first's client works on, new ones come to the second."""
    old = make_howdah(so_reuseport=1)
    new = make_howdah(start=False)
    new.port = old.port
    with old.connect() as client:
        new.write(so_reuseport=1, listen_port=old.port)
        new.start()
        old.signal(signal.SIGTERM)
        old.wait_for_log("got SIGTERM")
        machine.wait_until(lambda: new_serves(old, new), "the new process to get all clients")
        assert client.value("select 1") == "1"
    old.wait()
    new.connect().close()


def new_serves(old, new):
    """Whether a client that connects now comes to the new process."""
    mark = new.log_mark()
    try:
        new.connect().close()
    except (OSError, wire.Ended, wire.Refused):
        return False
    return "login attempt: db=postgres" in new.log()[mark:]
