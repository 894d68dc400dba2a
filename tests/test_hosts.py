"""Several hosts for one database, and hosts that are not there."""

import re
import threading

import pytest

from harness import machine, wire

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("balance", ["disable", "round-robin"])
def test_a_dead_host_costs_no_wait(make_howdah, postgres, balance):
    """The next host is tried at once: server_login_retry is for when all have failed."""
    hosts = f"{machine.NO_HOST},{postgres.host}"
    howdah = make_howdah(server_login_retry="60", databases={
        "several": f"host={hosts} port={postgres.port} dbname=postgres "
                   f"load_balance_hosts={balance}"})
    with howdah.connect(database="several") as client:
        assert client.value("select 1") == "1"


def test_one_host_until_it_fails(make_howdah, postgres):
    """load_balance_hosts=disable uses one host for all servers."""
    hosts = f"{postgres.host},{machine.NO_HOST}"
    howdah = make_howdah(databases={
        "several": f"host={hosts} port={postgres.port} dbname=postgres "
                   f"load_balance_hosts=disable"})
    clients = [howdah.connect(database="several") for _ in range(4)]
    for client in clients:
        client.rows("begin")
    for client in clients:
        client.close()
    assert "DNS lookup failed" not in howdah.log()


def test_who_waits_outlives_a_restart(make_howdah, own_postgres):
    """A client that waits while PostgreSQL is away is served when it is back."""
    howdah = make_howdah(postgres=own_postgres)
    own_postgres.stop()
    told = []

    def work():
        with howdah.connect(seconds=30) as client:
            told.append(client.value("select 1"))

    waiting = threading.Thread(target=work)
    waiting.start()
    howdah.wait_for_log("connect failed")
    own_postgres.start()
    waiting.join(30)
    assert told == ["1"]


@pytest.mark.parametrize("workers", [1, 2])
def test_least_size_without_clients(make_howdah, postgres, workers):
    """A pool of a forced user has min_pool_size servers though nobody came."""
    at = f"host={postgres.host} port={postgres.port} dbname=postgres"
    howdah = make_howdah(workers=workers, databases={
        "warm": f"{at} user=plain_user min_pool_size=3", "cold": f"{at} min_pool_size=3"})
    howdah.wait_for_pool("warm", "plain_user", sv_idle=3)
    assert howdah.pool("cold", "postgres") is None


def test_who_could_not_be_reached(make_howdah):
    """The log names the host (or socket) and the reason."""
    howdah = make_howdah(client_login_timeout=20, databases={
        "named": f"host={machine.NO_HOST} port=5431", "socket": "host=/no/such/folder port=5431"})
    for database, line in [
            ("named", rf"named/postgres@{re.escape(machine.NO_HOST)}:5431 server DNS lookup failed: "
                      r"\w+"),
            ("socket", r"socket/postgres@unix\(/no/such/folder/\.s\.PGSQL\.5431\) connect failed: "
                       r"\w+")]:
        with howdah.raw() as client:
            client.send(wire.startup(user="postgres", database=database))
            howdah.wait_for_log("WARNING S-0x[0-9a-f]+: " + line)
