"""COPY and large data: everything streams, whoever is slow or leaves."""

import struct

import psycopg
import pytest

from harness import machine, wire
from harness.wire import copy_data, copy_done, query

pytestmark = pytest.mark.timeout(120)

MIB = 1024 * 1024
GROWTH_KIB = 8 * 1024  # how much a stream of any length may add to the peak of resident memory


@pytest.fixture
def howdah(shared_howdah):
    """One server, so that whatever a COPY leaves behind hits the next client."""
    return shared_howdah(default_pool_size=1)


def test_both_ways_by_psycopg(howdah):
    """What a driver copies in comes out again."""
    rows = [(i, f"row {i} " + "x" * 200) for i in range(20_000)]
    with psycopg.connect(howdah.url()) as connection:
        with connection.cursor() as cursor:
            with cursor.copy("copy copied from stdin") as copy:
                for row in rows:
                    copy.write_row(row)
            with cursor.copy("copy (select * from copied order by id) to stdout") as copy:
                copy.set_types(["int4", "text"])
                assert list(copy.rows()) == rows
        connection.rollback()


def test_failure_by_psycopg(howdah):
    """A duplicate key in the first rows, megabytes still to come."""
    with psycopg.connect(howdah.url()) as connection:
        with pytest.raises(psycopg.errors.UniqueViolation):
            with connection.cursor().copy("copy copied from stdin") as copy:
                for _ in range(50_000):
                    copy.write_row((1, "x" * 100))
        connection.rollback()
        assert connection.execute("select count(*) from copied").fetchone() == (0,)


def test_client_gives_up_by_psycopg(howdah):
    """The application raises in the middle of its COPY."""
    with psycopg.connect(howdah.url()) as connection:
        with pytest.raises(ZeroDivisionError):
            with connection.cursor().copy("copy copied from stdin") as copy:
                copy.write_row((1, "x"))
                raise ZeroDivisionError
        connection.rollback()
        assert connection.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("split", range(1, 6))
def test_query_behind_a_sync_into_a_failed_copy(howdah, split):
    """It is answered, or the connection ends: the client does not wait for it in vain."""
    parts = [wire.parse("copy copied from stdin"), wire.bind(), wire.execute(), copy_data(b"bad\n"),
             wire.sync(), query("select 'answered'")]
    with howdah.connect() as client, howdah.connect() as other:
        client.send(*parts[:split])
        if 3 <= split:
            client.read_until("G")
        client.send(*parts[split:])
        got = client.read()
        while not (got.tag == "D" or got.tag == "E" and got.fields()["S"] == "FATAL"):
            got = client.read()
        assert other.value("select 'mine'") == "mine"


@pytest.mark.parametrize("sent", [0, 1, 5, 7, 70_000, 1_000_000])
def test_client_vanishes_in_copy_in(howdah, postgres, sent):
    """A client that dies after any number of bytes: nothing of it is kept, the next is served."""
    data = copy_data(b"".join(b"%d\tx\n" % i for i in range(200_000)))
    with howdah.connect() as client:
        client.send(query("copy copied from stdin"))
        client.read_until("G")
        client.send(data[:sent])
        client.abort()
    with howdah.connect() as next_one:
        assert next_one.value("select count(*) from copied") == "0"
    howdah.wait_for_pool(cl_active=0, sv_active=0)


@pytest.mark.parametrize("received", [0, 1000, 3 * MIB])
def test_client_vanishes_in_copy_out(howdah, received):
    """The same in the other direction."""
    with howdah.connect() as client:
        client.send(query("copy (select i, repeat('x', 1000) from generate_series(1, 100000) i) "
                          "to stdout"))
        client.read_bytes(received)
        client.abort()
    with howdah.connect() as next_one:
        assert next_one.value("select 'served'") == "served"
    howdah.wait_for_pool(cl_active=0, sv_active=0)


def test_client_vanishes_in_a_huge_row(howdah):
    """A row of 64 MB, and a client that goes half-way."""
    with howdah.connect() as client:
        client.send(query(f"select repeat('x', {64 * MIB})"))
        client.read_bytes(30 * MIB)
        client.abort()
    with howdah.connect() as next_one:
        assert next_one.value("select 'served'") == "served"
    howdah.wait_for_pool(cl_active=0, sv_active=0)


def consume(client, tag="Z"):
    """Reads to ReadyForQuery keeping nothing; gives the number of bytes of rows."""
    total = 0
    while True:
        kind, length = struct.unpack("!ci", client.read_bytes(5))
        left = length - 4
        if kind == tag.encode():
            client.read_bytes(left)
            return total
        if kind == b"D":
            total += left
        buffer = bytearray(MIB)
        taken = min(left, len(client._received))
        del client._received[:taken]
        left -= taken
        while left:
            got = client.socket.recv_into(buffer, min(left, MIB))
            assert got, "closed in the middle of a row"
            left -= got


@pytest.mark.slow
@pytest.mark.parametrize("size", [500 * MIB])
def test_huge_row_streams(make_howdah, size):
    """A row of 500 MB passes; memory does not grow with it."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect(seconds=90) as client:
        client.value("select 1")
        before = machine.peak_resident_kib(howdah.child.pid)
        client.send(query(f"select repeat('x', {size})"))
        assert consume(client) == size + 6
        assert machine.peak_resident_kib(howdah.child.pid) - before < GROWTH_KIB
        assert client.value("select 'on'") == "on"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "named"])
def test_huge_parameter_streams(make_howdah, name):
    """A parameter of 500 MB passes; memory does not grow with it."""
    size = 500 * MIB
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect(seconds=90) as client:
        client.value("select 1")
        before = machine.peak_resident_kib(howdah.child.pid)
        head = (wire.cstr("") + wire.cstr(name) + struct.pack("!hhi", 0, 1, size))
        tail = struct.pack("!h", 0)
        client.send(wire.parse("select length($1::text)", name),
                    b"B", struct.pack("!i", 4 + len(head) + size + len(tail)), head)
        block = b"y" * MIB
        for _ in range(size // MIB):
            client.socket.sendall(block)
        client.send(tail, wire.execute(), wire.sync())
        rows = [got.row() for got in client.read_until() if got.tag == "D"]
        assert rows == [[str(size).encode()]]
        assert machine.peak_resident_kib(howdah.child.pid) - before < GROWTH_KIB


@pytest.mark.slow
def test_copy_streams(make_howdah):
    """200 MB of COPY each way."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect(seconds=90) as client:
        client.value("select 1")
        before = machine.peak_resident_kib(howdah.child.pid)
        client.rows("begin; create temp table bulk (a text)")
        client.send(query("copy bulk from stdin"))
        client.read_until("G")
        block = copy_data((b"z" * 1023 + b"\n") * 1024)
        for _ in range(200):
            client.send(block)
        client.send(copy_done())
        assert client.read_until()[-2].text() == "COPY 204800"
        client.send(query("copy bulk to stdout"))
        consume(client)
        client.rows("rollback")
        assert machine.peak_resident_kib(howdah.child.pid) - before < GROWTH_KIB


def test_slow_readers_cost_no_memory(make_howdah, postgres):
    """Ten clients ask for 50 MB each and do not read; others are served, memory stays."""
    howdah = make_howdah(default_pool_size=15)
    with howdah.connect() as client:
        client.value("select 1")
        before = machine.resident_kib(howdah.child.pid)
        slow = [howdah.connect() for _ in range(10)]
        for reader in slow:
            reader.send(query("select repeat('x', 1000) from generate_series(1, 50000)"))
        waiting = ("select count(*) from pg_stat_activity where wait_event = 'ClientWrite' and "
                   "query like 'select repeat%'")
        machine.wait_until(lambda: postgres.value(waiting) == "10", "all to be stuck")
        assert client.value("select 'quick'") == "quick"
        assert machine.resident_kib(howdah.child.pid) - before < 4 * GROWTH_KIB
        for reader in slow:
            assert consume(reader) > 50_000_000
            reader.close()
