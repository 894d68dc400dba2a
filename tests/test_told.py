"""What Howdah tells those who made a mistake, and those who look for one."""

import socket

import pytest

from harness import machine, wire
from harness.wire import query

pytestmark = [pytest.mark.timeout(60), pytest.mark.one_driver]


def test_nobody_at_the_host(make_howdah, postgres):
    """The first client of a wrong port gets the error that the next ones get; the log named the
    host at start. Somebody who is logged in waits."""
    port = machine.free_port()
    howdah = make_howdah(read_driver=False,
                         databases={"wrong": f"host=127.0.0.1 port={port}", "*": f"host=127.0.0.1 port={postgres.port}"})
    howdah.wait_for_log(rf'WARNING database "wrong" can\'t be reached: 127.0.0.1:{port}: Connection '
                        "refused: nothing listens there")
    for _ in range(2):
        with pytest.raises(wire.Refused) as refused:
            howdah.connect(database="wrong")
        fields = refused.value.fields
        assert fields["C"] == "08006" and "Connection refused" in fields["M"], fields
        assert "host and port" in fields["H"], fields
    assert howdah.connect().value("select 1") == "1"


def test_errors_say_what_to_change(make_howdah):
    """PostgreSQL's text, and a hint with the value in force; PgBouncer's text in the log."""
    howdah = make_howdah(auth_type="scram-sha-256", secrets={"postgres": "secret"}, query_wait_timeout=1,
                         default_pool_size=1)
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(password="wrong")
    assert refused.value.text == 'password authentication failed for user "postgres"'
    howdah.wait_for_log("closing because: SASL authentication failed")
    with howdah.connect(password="secret") as holder, howdah.connect(password="secret") as waiter:
        holder.rows("begin")
        waiter.send(query("select 1"))
        fields = [got.fields() for got in waiter.read_to_end() if got.tag == "E"][-1]
    assert fields["C"] == "53300" and "pool_size (now 1)" in fields["H"], fields


def test_long_waits_are_logged(make_howdah):
    """Who waits, for how long and why: one line a pool and minute."""
    howdah = make_howdah(query_wait_notify=1, default_pool_size=1, application_name_add_host=0)
    with howdah.connect(application_name="billing") as holder, howdah.connect() as waiter:
        holder.rows("begin")
        waiter.send(query("select 1"))
        howdah.wait_for_log(r"WARNING postgres/postgres: 1 client waits: the pool of 1 is full, and "
                            r"1 of 1 are held idle in transaction, the longest by billing for \d+ s")
        holder.rows("commit")
        waiter.read_until()


@pytest.mark.parametrize("first, said", [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "the client speaks HTTP"),
    (b"\x16\x03\x01\x02\x00\x01", "the client begins with TLS, which is not enabled"),
])
def test_other_protocols(shared_howdah, first, said):
    """The log says what came. A browser gets an answer that it can show."""
    howdah = shared_howdah(http_listen_port=machine.free_port())
    with socket.create_connection(howdah.address) as client:
        client.sendall(first)
        client.settimeout(20)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    howdah.wait_for_log(said)
    if said.endswith("HTTP"):
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert b"Metrics, probes and the page are on port" in answer, answer
    else:
        assert answer == b""
