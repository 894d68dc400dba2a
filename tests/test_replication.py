"""Replication through a transaction pool: a server of one's own, for as long as it lasts."""

import pytest

from harness import machine
from harness.wire import copy_done, query

pytestmark = pytest.mark.timeout(90)

CLUSTERS = ["postgres", "newest_postgres"]
PUBLICATION = "passed_on"


@pytest.fixture(params=CLUSTERS)
def cluster(request):
    """The oldest and the newest PostgreSQL."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def howdah(make_howdah, cluster):
    """Two servers, one of which replication takes away from others."""
    return make_howdah(postgres=cluster, workers=2, default_pool_size=2)


def stream(client, cluster):
    """Begins to replicate by a slot of the connection's own; changes are under way then."""
    cluster.sql(f"drop publication if exists {PUBLICATION};"
                f"create publication {PUBLICATION} for table copied")
    slot = f"slot_of_{client.pid}"
    got = client.ask(query(f"CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput"))
    assert [m.tag for m in got] == ["T", "D", "C", "Z"], got
    client.send(query(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 "
                      f"(proto_version '1', publication_names '{PUBLICATION}')"))
    assert client.read().tag == "W"
    return slot


def changes(client):
    """The kinds of changes of the next transaction, in pgoutput's letters."""
    found = ""
    while not found.endswith("C"):
        got = client.read()
        assert got.tag == "d", got
        # Keep-alives say nothing; of a WAL message, the change stands behind three positions.
        if got.body[:1] == b"w":
            found += got.body[25:26].decode()
    return found


def test_logical(howdah, cluster):
    """Changes come as they are made, others are served beside it, and the end is clean."""
    with howdah.connect(replication="database") as client, howdah.connect() as other:
        stream(client, cluster)
        for turn in range(3):
            assert other.value(f"select {turn}") == str(turn)
            cluster.sql(f"begin; insert into copied values ({700 + turn}, 'x');"
                        f"delete from copied where id = {700 + turn}; commit")
            # Only the first is preceded by what the relation looks like.
            assert changes(client) == ("BRID" if turn == 0 else "BID") + "C"
        rows = howdah.console("SHOW CLIENTS")
        assert [row["replication"] for row in rows if row["replication"] != "none"] == ["logical"]
        client.send(copy_done())
        tags = [got.tag for got in client.read_until("Z")]
        assert [tag for tag in tags if tag != "d"][0] == "c" and tags[-1] == "Z"
        assert client.value("select 'still here'") == "still here"
    howdah.wait_for_pool(sv_active=0)


def test_reconnect_ends_it(howdah, cluster):
    """Streams last for ever: who orders other servers does not wait for them."""
    with howdah.connect(replication="database") as client, \
            howdah.connect(replication="database") as idle:
        stream(client, cluster)
        howdah.console("RECONNECT")
        howdah.console("WAIT_CLOSE")
        for one in (client, idle):
            last = one.read_to_end()[-1]
            assert last.tag == "E" and last.fields()["M"] == "database configuration changed"
    with howdah.connect(replication="database") as client:
        assert stream(client, cluster)


def test_vanishes_in_the_stream(howdah, cluster):
    """Its server and its slot end with it; nobody else gets that server."""
    with howdah.connect(replication="database") as client:
        slot = stream(client, cluster)
        server = next(row for row in howdah.console("SHOW SERVERS")
                      if row["replication"] == "logical")["remote_pid"]
    left = f"select count(*) from pg_replication_slots where slot_name = '{slot}'"
    machine.wait_until(lambda: cluster.value(left) == "0", "the slot to go")
    with howdah.connect() as one, howdah.connect() as two:
        used = set()
        for client in (one, two):
            client.ask(query("begin"))
            used.add(client.value("select pg_backend_pid()"))
        assert len(used) == 2 and server not in used


def test_physical(howdah):
    """A base backup, which names no database."""
    with howdah.connect(database=None, replication="true") as client:
        assert client.ask(query("IDENTIFY_SYSTEM"))[-1].tag == "Z"
        client.send(query("BASE_BACKUP (CHECKPOINT 'fast', WAIT false)"))
        bytes_read, tags = 0, set()
        while (got := client.read()).tag != "Z":
            tags.add(got.tag)
            bytes_read += len(got.body)
        assert tags >= {"H", "d", "c", "C"} and "E" not in tags
        assert bytes_read > 10_000_000
    with howdah.connect() as other:
        assert other.value("select 1") == "1"
