"""Settings that do one small thing each, and that no other file looks at."""

import grp
import os
import re

import pytest

from harness import machine, wire
from harness.wire import query

pytestmark = pytest.mark.timeout(60)


def test_server_fast_close(make_howdah):
    """A session whose server is out of date loses it when its transaction is over."""
    howdah = make_howdah(pool_mode="session", server_fast_close=1)
    with howdah.connect() as inside, howdah.connect() as idle:
        inside.ask(query("begin"))
        idle.value("select 1")
        howdah.console("RECONNECT")
        found = idle.read_to_end()
        assert [got.fields()["M"] for got in found] == ["database configuration changed"]
        assert inside.value("select 2") == "2"
        inside.send(query("commit"))
        found = inside.read_to_end()
        assert [got.tag for got in found] == ["C", "Z", "E"]
        assert found[-1].fields()["M"] == "database configuration changed"
    howdah.wait_for_lines("closing because: database configuration changed", 2)


def test_without_server_fast_close(make_howdah):
    """Without it, the session keeps its server."""
    howdah = make_howdah(pool_mode="session")
    with howdah.connect() as client:
        before = client.value("select pg_backend_pid()")
        howdah.console("RECONNECT")
        assert client.value("select pg_backend_pid()") == before


@pytest.mark.parametrize("in_turn", [0, 1])
@pytest.mark.parametrize("workers, size", [(1, 3), (2, 8)])
def test_server_round_robin(make_howdah, in_turn, workers, size):
    """Idle servers are used in turn, or the one that was used last; all of them, with two workers
    as well: a pool begins on one, and goes to a second only with its load."""
    howdah = make_howdah(server_round_robin=in_turn, default_pool_size=size, workers=workers)
    clients = [howdah.connect() for _ in range(size)]
    for client in clients:
        client.ask(query("begin"))
    for client in clients:
        client.ask(query("commit"))
    used = [clients[0].value("select pg_backend_pid()") for _ in range(2 * size)]
    assert len(set(used)) == (size if in_turn else 1)
    if in_turn:
        assert used[:size] == used[size:]


def test_login_notify_message(make_howdah):
    """A notice behind the login."""
    howdah = make_howdah(login_notify_message="mind the gap")
    with howdah.raw() as client:
        notices = [got for got in client.login("postgres", "postgres") if got.tag == "N"]
        assert [got.fields()["M"] for got in notices] == ["mind the gap"]
        assert client.value("select 1") == "1"


@pytest.mark.parametrize("setting, line", [
    ("log_connections", "login attempt"),
    ("log_disconnections", "closing because: client close request"),
    ("log_pooler_errors", "pooler error: no such database"),
])
def test_quiet_log(make_howdah, setting, line):
    """Kinds of lines that may be left out."""
    for value in (1, 0):
        howdah = make_howdah(**{setting: value}, databases={"postgres": "host=127.0.0.1 port=1"},
                             server_login_retry=15)
        with howdah.raw() as client:
            with pytest.raises(wire.Refused):
                client.login("postgres", "nowhere")
        with howdah.connect("admin", "pgbouncer") as client:
            client.send(wire.terminate())
            assert client.ends()
        howdah.stop()
        assert (line in howdah.log()) == bool(value), howdah.log()


def test_group_and_mode_of_the_socket(make_howdah):
    """The socket's file belongs to the group, and has the mode."""
    user = machine.unprivileged_user()
    group = grp.getgrgid(user.pw_gid).gr_name
    for name in (group, user.pw_gid):
        howdah = make_howdah(unix_socket_group=name, unix_socket_mode="0750")
        found = os.stat(howdah.socket_path)
        assert (found.st_gid, found.st_mode & 0o7777) == (user.pw_gid, 0o750)


@pytest.mark.parametrize("database", ["*", "postgres"])
def test_pool_idle_timeout(make_howdah, postgres, database):
    """A pool that nobody uses is forgotten, that of a database made from `*` as well."""
    howdah = make_howdah(pool_idle_timeout=1, server_idle_timeout=1,
                         databases={database: f"host={postgres.host} port={postgres.port}"})
    with howdah.connect() as client:
        assert client.value("select 1") == "1"
        assert howdah.pool()
    howdah.wait_for_log("cleaning up idle pool postgres/postgres")
    assert howdah.pool() is None
    with howdah.connect() as client:
        assert client.value("select 2") == "2"


def test_absurd_numbers_of_workers(make_howdah):
    """More than there can be are refused by --check; more than the system allows, with a remedy."""
    howdah = make_howdah(workers=9999, start=False)
    code, said = howdah.check()
    assert code == 1, said
    assert 'invalid value "9999" for parameter workers' in said, said
    assert "must be an integer from 0 to 1024" in said, said
    howdah = make_howdah(workers=200, files=64, start=False)
    assert howdah.check()[0] == 0
    code, said = howdah.run_to_end(howdah.ini_path)
    assert code == 1, said
    assert re.search(r"FATAL cannot start worker \d+ of 200: .* cannot be set up: "
                     r"Too many open files; set workers lower .*ulimit -n", said), said
