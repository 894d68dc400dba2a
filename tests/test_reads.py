"""Reads on standbys: what goes there, and that no client reads back in time."""

import threading

import pytest

from harness import machine, wire
from harness.load import Load
from test_roles import Trio, by_name, make, trio, where  # noqa: F401 (fixtures)
from test_surroundings import NameServer, use

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_driver]


@pytest.fixture
def routed(make_howdah, trio):  # noqa: F811
    """A Howdah whose READ ONLY transactions go to standbys, with more settings."""
    def start(**settings):
        # Without it, standbys get a commit up to wal_writer_delay later.
        trio.first.sql("alter system set synchronous_commit = on")
        trio.first.sql("select pg_reload_conf()")
        settings = {"read_routing": "transactions", "pool_mode": "transaction", **settings}
        return make(make_howdah, trio, **settings)
    return start


def read(client, query="select inet_server_port()", begin="begin read only"):
    """The value of a query in a transaction that only reads."""
    client.rows(begin)
    value = client.value(query)
    client.rows("commit")
    return value


def reads_at_standbys(client, trio):  # noqa: F811
    """Waits until reads of the client go to standbys."""
    standbys = {str(host.port) for host in trio.others}
    machine.wait_until(lambda: read(client) in standbys, "a read at a standby")


def test_what_is_declared_read_only_goes_to_standbys(routed, trio):  # noqa: F811
    howdah = routed(read_wait=5)
    standbys = {host.port for host in trio.others}
    primary = trio.first.port
    with howdah.connect(database="rw") as client:
        assert client.parameters["in_hot_standby"] == "off"
        reads_at_standbys(client, trio)
        assert {int(read(client)) for _ in range(20)} <= standbys
        # Everything else goes to the primary.
        assert where(client) == primary
        assert int(read(client, begin="begin")) == primary
        assert int(read(client, begin="begin read only isolation level repeatable read")) in standbys
        assert int(read(client, begin="begin read only isolation level serializable")) == primary
        assert int(read(client, begin="/* howdah.route=primary */ begin read only")) == primary
        client.rows("insert into written values (1)")
        client.rows("set howdah.route = 'primary'")
        assert int(read(client)) == primary
        client.rows("set howdah.route = 'standby'")
        assert where(client) in standbys
        refused = client.error(wire.query("insert into written values (2)"))
        assert refused["C"] == "25006"
        client.rows("reset howdah.route")
        client.rows("set default_transaction_read_only = on")
        assert where(client) in standbys
        assert int(read(client, begin="begin read write")) == primary
        # Nothing but the primary's value was ever reported.
        told = [got.body for got in client.ask(wire.query("begin read only; commit"))
                if got.tag == "S"]
        assert not told


def test_a_client_reads_what_it_has_written(routed, trio):  # noqa: F811
    """One standby does not replay: reads of what it lacks go elsewhere, and come back."""
    howdah = routed(read_wait=5)
    lagging, other = trio.others
    with howdah.connect(database="rw") as client:
        reads_at_standbys(client, trio)
        lagging.sql("select pg_wal_replay_pause()")
        machine.wait_until(lambda: "paused" in str(lagging.sql("select pg_get_wal_replay_pause_state()")),
                           "a pause")
        for count in range(1, 31):
            client.rows(f"insert into written values ({count})")
            client.rows("begin read only")
            port, seen = int(client.value("select inet_server_port()")), client.value(
                "select count(*) from written")
            client.rows("commit")
            assert (port, int(seen)) == (other.port, count)
        lagging.sql("select pg_wal_replay_resume()")

        def is_back():
            # After a write any standby is chosen that shows it.
            client.rows("insert into written values (0)")
            return int(read(client)) == lagging.port
        machine.wait_until(is_back, "the standby back in use")


def test_no_standby_shows_it_in_time(routed, trio):  # noqa: F811
    """After read_wait a read goes to the primary; without consistency it sees what is there."""
    howdah = routed()
    with howdah.connect(database="rw") as client:
        # Standbys that have never covered anything have no lag, and get no reads.
        reads_at_standbys(client, trio)
        for host in trio.others:
            host.sql("select pg_wal_replay_pause()")
        client.rows("insert into written values (1)")
        assert int(read(client)) == trio.first.port
        assert read(client, "select count(*) from written") == "1"
    howdah.console("SET read_consistency = eventual")
    with howdah.connect(database="rw") as client:
        reads_at_standbys(client, trio)
        assert read(client, "select count(*) from written") == "0"


def test_reads_outlive_standbys(routed, trio):  # noqa: F811
    """Standbys end and come back, and the primary is used meanwhile. No client notices."""
    howdah = routed()
    with howdah.connect(database="rw", seconds=40) as client:
        reads_at_standbys(client, trio)
        for host in trio.others:
            host.stop()
        assert int(read(client)) == trio.first.port
        trio.others[0].start()
        reads_at_standbys(client, trio)


def test_reads_and_writes_of_many_clients(routed, trio):  # noqa: F811
    """Each client counts up its own row, and reads the count: never less than it has written."""
    howdah = routed(workers=2, pool_spread="always", read_wait=1)
    trio.first.sql("create table counts (id int primary key, n int); "
                   "insert into counts select g, 0 from generate_series(0, 9) g")
    with howdah.connect(database="rw") as client:
        reads_at_standbys(client, trio)
    wrong, at = [], []

    def work(row):
        with howdah.connect(database="rw", seconds=60) as client:
            for count in range(1, 41):
                client.rows(f"update counts set n = {count} where id = {row}")
                for _ in range(3):
                    client.rows("begin read only")
                    at.append(int(client.value("select inet_server_port()")))
                    seen = int(client.value(f"select n from counts where id = {row}"))
                    client.rows("commit")
                    if seen != count:
                        wrong.append((row, count, seen))

    threads = [threading.Thread(target=work, args=(row,)) for row in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and len(at) == 10 * 40 * 3
    standbys = {host.port for host in trio.others}
    share = sum(port in standbys for port in at) / len(at)
    assert share > 0, "no read was at a standby"


def test_reads_go_to_addresses_of_a_name(make_howdah, by_name):  # noqa: F811
    """The standbys are addresses of the primary's name."""
    by_name.first.sql("alter system set synchronous_commit = on")
    by_name.first.sql("select pg_reload_conf()")
    at = f"host=pg port={by_name.first.port} dbname=postgres target_session_attrs=primary"
    with NameServer(**{"pg.test.example": "127.0.0.1 127.0.0.2 127.0.0.3"}) as server:
        howdah = make_howdah(start=False, postgres=by_name.first, host_check_user="checker",
                             read_routing="transactions", databases={"rw": at})
        use(howdah, server)
        address = "select host(inet_server_addr())"
        with howdah.connect(database="rw", seconds=40) as client:
            machine.wait_until(lambda: read(client, address) in ("127.0.0.2", "127.0.0.3"),
                               "a read at a standby", 10)
            assert client.value(address) == "127.0.0.1"
    assert "no read goes to a standby" not in howdah.log()


def append_and_read(howdah):
    """Clients that append to lists and read them; each judges what it sees."""
    return Load(howdah.address, howdah.address, database="rw", clients=20, seconds=5, pause=20,
                only="list_append,list_read,list_look", faults=True)


def test_no_connection_reads_back_in_time(routed, trio):  # noqa: F811
    """A standby lags, and the other one crashes."""
    howdah = routed(read_routing="statements", workers=2, pool_spread="always", read_wait=0.2)
    lagging, other = trio.others
    with howdah.connect(database="rw") as client:
        reads_at_standbys(client, trio)
    load = append_and_read(howdah)
    lagging.sql("select pg_wal_replay_pause()")
    other.crash()
    lagging.sql("select pg_wal_replay_resume()")
    assert load.result()["operations"] > 100


def test_clients_that_read_back_in_time_are_noticed(routed, trio):  # noqa: F811
    """What the judge of the test above says without consistency."""
    howdah = routed(read_consistency="eventual")
    with howdah.connect(database="rw") as client:
        reads_at_standbys(client, trio)
    load = append_and_read(howdah)
    trio.others[0].sql("select pg_wal_replay_pause()")
    with pytest.raises(AssertionError, match=r"list_read, client \d+: Wrong"):
        load.result()


def test_a_standby_that_lags_serves_nobody_while_others_do(routed, trio):  # noqa: F811
    """`max_standby_lag` counts for databases whose own target is a standby, too."""
    howdah = routed(read_routing="off", max_standby_lag=1)
    lagging, other = trio.others
    lagging.sql("select pg_wal_replay_pause()")
    trio.first.sql("insert into written values (1)")

    def is_behind(host):
        trio.first.sql("insert into written values (2)")
        row = next(row for row in howdah.console("SHOW HOSTS") if int(row["port"]) == host.port)
        return "max_standby_lag" in row["why"]
    machine.wait_until(lambda: is_behind(lagging), "a standby that is behind", 20)
    with howdah.connect(database="ro") as client:
        assert {where(client) for _ in range(10)} == {other.port}
        other.sql("select pg_wal_replay_pause()")
        machine.wait_until(lambda: is_behind(other), "another one", 20)
        assert where(client) in {lagging.port, other.port}, "better than none"
        for host in trio.others:
            host.sql("select pg_wal_replay_resume()")
        machine.wait_until(lambda: not is_behind(other), "nobody behind", 20)
