"""Databases whose hosts have roles: who is primary, where clients go, and what a failover costs."""

import signal
import threading

import pytest

from harness import machine, wire
from harness.postgres import Standby
from test_surroundings import NameServer, use
from test_takeover import take_over

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_driver]


class Trio:
    """A primary and two standbys of it."""

    def __init__(self, own_postgres, scratch, places=(None, None)):
        """places: address and port of each standby."""
        self.first = own_postgres
        self.first.sql("alter system set wal_log_hints = on")
        self.first.sql("create role checker login; grant pg_monitor to checker")
        self.first.sql("create table written (id int)")
        self.others = [Standby(own_postgres, scratch, f"{own_postgres.folder}s{i}", place)
                       for i, place in enumerate(places, 1)]
        self.hosts = [self.first, *self.others]

    def entries(self, **settings):
        """Databases for each wish."""
        ports = ",".join(str(host.port) for host in self.hosts)
        at = f"host={','.join(['127.0.0.1'] * 3)} port={ports} dbname=postgres"
        return {name: f"{at} target_session_attrs={wish}" for name, wish in [
            ("rw", "primary"), ("ro", "standby"), ("any_ro", "prefer-standby")]}

    def stop(self):
        for host in self.others:
            host.stop(signal.SIGQUIT)


@pytest.fixture
def trio(own_postgres, scratch):
    found = Trio(own_postgres, scratch)
    yield found
    found.stop()


def where(client):
    """The port of the host that serves the client."""
    return int(client.value("select inet_server_port()"))


def roles(howdah):
    """SHOW HOSTS: what each port is."""
    return {int(row["port"]): (row["role"], row["state"]) for row in howdah.console("SHOW HOSTS")}


def make(make_howdah, trio, **settings):
    """A Howdah that knows the roles of all hosts that are up."""
    howdah = make_howdah(postgres=trio.first, databases=trio.entries(),
                         host_check_user="checker", **settings)
    machine.wait_until(lambda: all(role != "unknown" or state == "down"
                                   for role, state in roles(howdah).values()), "roles")
    return howdah


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_clients_go_where_the_roles_are(make_howdah, trio, mode):
    howdah = make(make_howdah, trio, pool_mode=mode)
    standbys = {host.port for host in trio.others}
    with howdah.connect(database="rw") as client:
        assert where(client) == trio.first.port
        client.rows("insert into written values (1)")
    seen = set()
    for database in ("ro", "any_ro"):
        for _ in range(20):
            with howdah.connect(database=database) as client:
                seen.add(where(client))
                assert client.parameters["in_hot_standby"] == "on"
    assert seen == standbys
    assert roles(howdah) == {trio.first.port: ("primary", "up"),
                             **{port: ("standby", "up") for port in standbys}}


@pytest.mark.parametrize("workers", [1, 3])
def test_a_failover_loses_no_client(make_howdah, trio, workers):
    """The primary is killed and a standby promoted: clients between two transactions notice a
    wait; the old primary, once it is back, is fenced."""
    howdah = make(make_howdah, trio, workers=workers, pool_spread="always")
    clients = [howdah.connect(database="rw", seconds=40) for _ in range(5)]
    for client in clients:
        client.rows("insert into written values (1)")
    trio.first.stop(signal.SIGQUIT)
    new = trio.others[0]
    told = []

    def write(client):
        client.rows("insert into written values (2)")
        told.append(where(client))

    threads = [threading.Thread(target=write, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    howdah.wait_for_log(f"127.0.0.1:{trio.first.port}.* is down")
    new.promote()
    for thread in threads:
        thread.join(40)
    assert told == [new.port] * 5
    trio.first.start()
    machine.wait_until(lambda: roles(howdah)[trio.first.port][1] == "fenced", "a fence")
    with howdah.connect(database="rw") as client:
        assert where(client) == new.port
    trio.first.stop()


def test_who_finds_no_primary_is_told_why(make_howdah, trio):
    trio.first.stop()
    howdah = make(make_howdah, trio, query_wait_notify=1)
    told = []

    def work():
        with howdah.connect(database="rw", seconds=40) as client:
            told.append(where(client))

    waiting = threading.Thread(target=work)
    waiting.start()
    machine.wait_until(lambda: (howdah.pool("rw", "postgres") or {}).get("cl_waiting") == 1,
                       "a client that waits")
    trio.first.start()
    waiting.join(40)
    assert told == [trio.first.port]


def test_a_host_is_drained(make_howdah, trio):
    """No new work goes to a drained host, and its idle servers are closed."""
    howdah = make(make_howdah, trio)
    first, second = (host.port for host in trio.others)
    with howdah.connect(database="ro") as client:
        seen = {where(client) for _ in range(20)}
        assert seen == {first, second}
        howdah.console(f"DRAIN_HOST 127.0.0.1:{first}")
        machine.wait_until(lambda: roles(howdah)[first][1] == "drained", "a drained host")
        assert {where(client) for _ in range(20)} == {second}

        # One that goes is listed until PostgreSQL is rid of it.
        def servers():
            return {int(row["port"]): row["servers"] for row in howdah.console("SHOW HOSTS")}
        machine.wait_until(lambda: servers()[first] == "0", "its servers to be closed")
        howdah.console(f"RESUME_HOST 127.0.0.1:{first}")
        machine.wait_until(lambda: roles(howdah)[first] == ("standby", "up"), "a host in use")
        machine.wait_until(lambda: where(client) == first, "work for the resumed host")
    with pytest.raises(wire.Refused, match="no database with target_session_attrs has this host"):
        howdah.console("DRAIN_HOST nowhere")


def test_roles_are_learned_from_logins_alone(make_howdah, trio):
    """Without a user for checks, what PostgreSQL reports at logins tells the roles."""
    howdah = make_howdah(postgres=trio.first, databases=trio.entries())
    with howdah.connect(database="rw", seconds=40) as client:
        assert where(client) == trio.first.port
        with howdah.connect(database="ro", seconds=40) as reader:
            assert where(reader) in {host.port for host in trio.others}
        trio.first.stop(signal.SIGQUIT)
        trio.others[1].promote()
        assert where(client) == trio.others[1].port


def test_a_reload_gives_hosts_roles(make_howdah, trio):
    entries = trio.entries()
    plain = {"rw": entries["rw"].replace(" target_session_attrs=primary", "")}
    howdah = make_howdah(postgres=trio.first, databases=plain, host_check_user="checker")
    with howdah.connect(database="rw") as client:
        assert {where(client) for _ in range(6)} <= {host.port for host in trio.hosts}
        howdah.sections["databases"] = {"rw": entries["rw"]}
        howdah.write()
        howdah.reload()
        assert {where(client) for _ in range(6)} == {trio.first.port}
        howdah.sections["databases"] = plain
        howdah.write()
        howdah.reload()
        assert where(client) in {host.port for host in trio.hosts}


def test_a_takeover_keeps_the_clients_of_hosts(make_howdah, trio):
    """Clients go on where they were, without an error, and the successor knows the hosts: the primary
    at once, and which one is drained."""
    howdah = make(make_howdah, trio)
    drained, other = (host.port for host in trio.others)
    howdah.console(f"DRAIN_HOST 127.0.0.1:{drained}")
    with howdah.connect(database="rw") as writer, howdah.connect(database="ro") as reader:
        assert where(writer) == trio.first.port
        where(reader)
        take_over(howdah)
        assert roles(howdah) == {trio.first.port: ("primary", "up"), other: ("standby", "up"),
                                 drained: ("standby", "drained")}
        for _ in range(5):
            assert where(writer) == trio.first.port
            assert where(reader) == other


@pytest.fixture
def by_name(own_postgres, scratch, authority):
    """A primary and two standbys with one name and one port: 127.0.0.1 to 127.0.0.3. Their
    certificate has the name alone."""
    found = Trio(own_postgres, scratch, [(f"127.0.0.{i}", own_postgres.port) for i in (2, 3)])
    everybody = [f"host {who} all 127.0.0.1/32 trust" for who in ("all", "replication")]
    for host in found.hosts:
        host.use_tls(authority.issue(names=("DNS:pg",)), hba=everybody)
    yield found
    found.stop()


def address(client):
    """The address of the host that serves the client."""
    return client.value("select host(inet_server_addr())")


def addresses(howdah):
    """SHOW HOSTS: what the host at each address is."""
    return {row["host"]: (row["role"], row["state"]) for row in howdah.console("SHOW HOSTS")}


def test_each_address_of_a_name_is_a_host(make_howdah, by_name, authority):
    """A failover behind one name, whose addresses come and go; TLS checks the name."""
    at = f"host=pg port={by_name.first.port} dbname=postgres"
    one, two, three = "pg(127.0.0.1)", "pg(127.0.0.2)", "pg(127.0.0.3)"
    with NameServer(**{"pg.test.example": "127.0.0.3 127.0.0.1 127.0.0.2"}) as server:
        howdah = make_howdah(
            start=False, postgres=by_name.first, host_check_user="checker", dns_max_ttl=1,
            server_tls_sslmode="verify-full", server_tls_ca_file=authority.certificate,
            databases={"rw": f"{at} target_session_attrs=primary",
                       "ro": f"{at} target_session_attrs=standby"})
        use(howdah, server)
        with howdah.connect(database="rw", seconds=40) as writer, \
                howdah.connect(database="ro", seconds=40) as reader:
            assert address(writer) == "127.0.0.1"
            assert address(reader) in ("127.0.0.2", "127.0.0.3")
            machine.wait_until(lambda: addresses(howdah) == {
                one: ("primary", "up"), two: ("standby", "up"), three: ("standby", "up")},
                "three hosts")
            assert {address(reader) for _ in range(40)} == {"127.0.0.2", "127.0.0.3"}
            howdah.console("DRAIN_HOST 127.0.0.3")
            machine.wait_until(lambda: addresses(howdah)[three][1] == "drained", "a drained host")
            assert {address(reader) for _ in range(10)} == {"127.0.0.2"}
            howdah.console(f"RESUME_HOST {three}")
            machine.wait_until(lambda: addresses(howdah)[three][1] == "up", "a host in use")
            for order, state in (("DRAIN_HOST", "drained"), ("RESUME_HOST", "up")):
                howdah.console(f"{order} pg")
                machine.wait_until(lambda: {now for _, now in addresses(howdah).values()} == {state},
                                   f"all hosts {state}")
            take_over(howdah)
            assert set(addresses(howdah)) == {one, two, three}

            # The primary and its address go, and the next primary is found.
            server.names["pg.test.example"] = "127.0.0.2 127.0.0.3"
            by_name.first.stop(signal.SIGQUIT)
            by_name.others[0].promote()
            assert address(writer) == "127.0.0.2"
            writer.rows("insert into written values (1)")
            machine.wait_until(lambda: addresses(howdah) == {
                two: ("primary", "up"), three: ("standby", "up")}, "two hosts")
            assert {address(reader) for _ in range(10)} == {"127.0.0.3"}
            # The old one comes back with its old data.
            by_name.first.start()
            server.names["pg.test.example"] = "127.0.0.1 127.0.0.2 127.0.0.3"
            machine.wait_until(lambda: addresses(howdah).get(one, "")[1:] == ("fenced",), "a fence")
            assert address(writer) == "127.0.0.2"
    said = howdah.log()
    assert "DNS: pg stands for the hosts 127.0.0.1, 127.0.0.2, 127.0.0.3" in said
    assert "DNS: pg stands for the hosts 127.0.0.2, 127.0.0.3" in said
    assert "host pg:" not in said, "the name was never one host"
    by_name.first.stop()


def test_a_name_that_is_not_known_yet(make_howdah, own_postgres):
    """Without an answer, the name is one host that is down, and says why."""
    at = f"host=pg port={own_postgres.port} dbname=postgres target_session_attrs=primary"
    with NameServer() as server:
        howdah = make_howdah(start=False, postgres=own_postgres, dns_nxdomain_ttl=0,
                             host_check_user="postgres", databases={"rw": at})
        use(howdah, server)
        howdah.wait_for_log(f"host pg:{own_postgres.port} is down: server DNS lookup failed")
        assert addresses(howdah) == {"pg": ("unknown", "down")}
        server.names["pg.test.example"] = "127.0.0.1"
        with howdah.connect(database="rw", seconds=40) as client:
            assert address(client) == "127.0.0.1"
        assert addresses(howdah) == {"pg": ("primary", "up")}
        # A second address: nobody is there.
        server.names["pg.test.example"] = "127.0.0.1 127.0.0.9"
        howdah.console("RELOAD")
        machine.wait_until(lambda: addresses(howdah) == {
            "pg(127.0.0.1)": ("primary", "up"), "pg(127.0.0.9)": ("unknown", "down")}, "two hosts")
        with howdah.connect(database="rw", seconds=40) as client:
            assert address(client) == "127.0.0.1"
