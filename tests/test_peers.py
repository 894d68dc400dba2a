"""Cancel requests that reach another process of a group find their way; so they do between Howdah
and PgBouncer."""

import os
import shutil
import socket
import struct

import pytest
from conftest import unique_name

from harness import machine, wire
from harness.howdah import Howdah
from harness.wire import query

pytestmark = pytest.mark.timeout(60)

CANCELLED = ("57014", "canceling statement due to user request")


def outcome(messages):
    """The code and text of the error in a reply; nothing if there is none."""
    return next(((got.fields()["C"], got.fields()["M"]) for got in messages if got.tag == "E"), None)


def runs(postgres, mark):
    """Whether a query with this mark runs now."""
    return postgres.value("select count(*) from pg_stat_activity where state = 'active' and "
                          f"query like 'select ''{mark}'', pg_sleep%'") != "0"


def login(minor):
    """The start-up packet of a protocol version 3.x."""
    return wire.startup("postgres", "postgres", protocol=3 << 16 | minor)


def start(client, postgres, mark):
    """Starts a long query."""
    client.send(query(f"select '{mark}', pg_sleep(30)"))
    machine.wait_until(lambda: runs(postgres, mark), "the query")


def cancel_at(address, client, pid=None, key=None):
    """Sends a client's cancel request somewhere, and waits until that is done."""
    with wire.Wire(address) as canceller:
        canceller.send(wire.cancel_request(pid or client.pid, key or client.key))
        assert canceller.ends()


@pytest.fixture
def group(make_howdah):
    """Starts some Howdahs that are each other's peers."""
    def make(count=2, by="unix", **options):
        members = {number: make_howdah(start=False, peer_id=number, **options)
                   for number in range(1, count + 1)}
        for member in members.values():
            member.sections["peers"] = {
                number: (f"host={other.folder} port={other.port}" if by == "unix" else
                         f"host={by} port={other.port}")
                for number, other in members.items()}
            member.write()
            member.start()
        return members
    return make


@pytest.mark.parametrize("minor", [0, 2])
@pytest.mark.parametrize("by", ["unix", "127.0.0.1", "localhost"])
def test_forwarded(group, postgres, by, minor):
    """A request that reaches a peer instead; with short and with long keys."""
    members = group(by=by, workers=2)
    for owner, other in ((1, 2), (2, 1)):
        with members[owner].connect(packet=login(minor)) as client:
            assert len(client.key) == (32 if minor else 4)
            start(client, postgres, f"forwarded {by}{owner}{minor}")
            cancel_at(members[other].address, client)
            assert outcome(client.read_until()) == CANCELLED
            # And its own process still takes its key, too.
            start(client, postgres, f"own {by}{owner}{minor}")
            cancel_at(members[owner].address, client)
            assert outcome(client.read_until()) == CANCELLED
            assert client.value("select 'on'") == "on"


def test_wrong_keys(group, postgres):
    """A bit of the secret is wrong: nobody is cancelled, whoever is asked."""
    members = group(workers=2)
    for minor in (0, 2):
        with members[1].connect(packet=login(minor)) as client:
            start(client, postgres, f"guarded {minor}")
            for at in range(len(client.key)):
                wrong = bytearray(client.key)
                wrong[at] ^= 0x10
                for member in members.values():
                    cancel_at(member.address, client, key=bytes(wrong))
            cancel_at(members[1].address, client, key=client.key + b"1234")
            assert runs(postgres, f"guarded {minor}")
            client.cancel()
            assert outcome(client.read_until()) == CANCELLED


def test_one_port(make_howdah, postgres):
    """Processes that share a port: wherever the kernel takes a request, it arrives."""
    members = [make_howdah(start=False, peer_id=number, so_reuseport=1) for number in (1, 2, 3)]
    for member in members:
        member.port = members[0].port
        member.sections["peers"] = {number + 1: f"host={other.folder} port={members[0].port}"
                                    for number, other in enumerate(members) if other != member}
        member.write(listen_port=member.port)
        member.start()
    with members[0].connect() as client:
        for turn in range(12):
            start(client, postgres, f"shared {turn}")
            client.cancel()
            assert outcome(client.read_until()) == CANCELLED


class Listener:
    """A peer that tells what it is sent."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.settimeout(30)
        self.port = self.socket.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def take(self):
        """The next connection, and the request on it."""
        peer, _ = self.socket.accept()
        peer.settimeout(30)
        return peer, peer.recv(1000)


def key(peer, ttl=3):
    """A key of a client of a peer: process id and secret."""
    packed = bytes([0x5e]) + struct.pack("<H", peer) + b"\x11\x22\x33\x44" + bytes([0xfc | ttl])
    return struct.unpack("!I", packed[:4])[0], packed[4:]


def send(howdah, pid, secret):
    """Sends a cancel request and leaves the connection open."""
    canceller = howdah.raw()
    canceller.send(wire.cancel_request(pid, secret))
    return canceller


def test_bytes(make_howdah):
    """What a peer is sent: the key with its time to live counted down, and nothing when that is
    over, or the peer is not known."""
    with Listener() as listener:
        howdah = make_howdah(start=False, peer_id=1)
        howdah.sections["peers"] = {258: f"host=127.0.0.1 port={listener.port}"}
        howdah.write()
        howdah.start()
        for ttl in (3, 2, 1):
            canceller = send(howdah, *key(258, ttl))
            peer, seen = listener.take()
            assert seen == wire.cancel_request(*key(258, ttl - 1))
            assert canceller.quiet()  # It is told when the peer is through with it.
            peer.close()
            assert canceller.ends()
        for pid, secret, why in ((*key(258, 0), "its TTL was exhausted"),
                                 (*key(7), "could not find peer to forward request to"),
                                 (*key(1), "failed cancel request")):
            assert send(howdah, pid, secret).ends()
            howdah.wait_for_log(why)
        long = key(258)[1] + bytes(range(28))
        canceller = send(howdah, key(258)[0], long)
        peer, seen = listener.take()
        assert seen == wire.cancel_request(key(258)[0], key(258, 2)[1] + long[4:])
        peer.close()
        assert canceller.ends()


def test_console_and_limits(make_howdah):
    """SHOW PEERS and SHOW PEER_POOLS; a peer's pool_size; requests that wait too long; a peer that
    leaves the configuration."""
    with Listener() as listener:
        howdah = make_howdah(start=False, peer_id=2, cancel_wait_timeout=2, workers=2,
                             default_pool_size=9)
        howdah.sections["peers"] = {2: "host=/us", 30: f"host=127.0.0.1 port={listener.port} "
                                    "pool_size=2", 4: "host=a,b"}
        howdah.write()
        howdah.start()
        assert howdah.console("SHOW PEER_POOLS") == []
        assert [list(row.items()) for row in howdah.console("SHOW PEERS")] == [
            [("peer_id", "2"), ("host", "/us"), ("port", "6432"), ("pool_size", "9")],
            [("peer_id", "4"), ("host", "a,b"), ("port", "6432"), ("pool_size", "9")],
            [("peer_id", "30"), ("host", "127.0.0.1"), ("port", str(listener.port)),
             ("pool_size", "2")]]
        cancellers = [send(howdah, *key(30)) for _ in range(3)]
        peers = [listener.take()[0] for _ in range(2)]
        busy = [("peer_id", "30"), ("cl_active_cancel_req", "2"), ("cl_waiting_cancel_req", "1"),
                ("sv_active_cancel", "2"), ("sv_login", "0")]
        machine.wait_until(
            lambda: [list(row.items()) for row in howdah.console("SHOW PEER_POOLS")] == [busy],
            "two requests under way, and one waiting")
        lists = {row["list"]: row["items"] for row in howdah.console("SHOW LISTS")}
        assert (lists["peers"], lists["peer_pools"]) == ("3", "1")
        for canceller in cancellers:
            assert canceller.ends()
        howdah.wait_for_log("closing because: cancel_wait_timeout")
        for peer in peers:
            peer.close()

        def idle():
            row, = howdah.console("SHOW PEER_POOLS")
            return {value for name, value in row.items() if name != "peer_id"} == {"0"}
        machine.wait_until(idle, "the peer to be free")
        del howdah.sections["peers"][30]
        howdah.write()
        howdah.reload()
        assert [row["peer_id"] for row in howdah.console("SHOW PEERS")] == ["2", "4"]
        machine.wait_until(lambda: howdah.console("SHOW PEER_POOLS") == [], "the pool to go")


def test_unreachable_peer(make_howdah):
    """Nobody listens where a peer should be: that is logged, and the client let go."""
    howdah = make_howdah(start=False, peer_id=1)
    howdah.sections["peers"] = {2: "host=/nowhere"}
    howdah.write()
    howdah.start()
    assert send(howdah, *key(2)).ends()
    howdah.wait_for_log("WARNING peer-2: could not forward a cancel request: /nowhere: No such file")


def test_peer_id_by_reload(make_howdah, postgres):
    """Keys from before a change of peer_id stay good, and so do those from after it."""
    howdah = make_howdah(workers=2)
    clients = [howdah.connect() for _ in range(2)]
    for peer_id in (5, 6, 0):
        howdah.write(peer_id=peer_id)
        howdah.reload()
        assert howdah.setting("peer_id") == str(peer_id)
        clients += [howdah.connect() for _ in range(2)]
    for number, client in enumerate(clients):
        mark = f"reloaded {number}"
        start(client, postgres, mark)
        client.cancel()
        assert outcome(client.read_until()) == CANCELLED
        client.close()


def test_check(make_howdah):
    """`--check` places mistakes, and says when peers do nothing."""
    howdah = make_howdah(start=False)
    howdah.sections["peers"] = {1: "host=/a", 0: "host=/b", 3: "port=5"}
    howdah.write(peer_id=16384)
    code, output = howdah.check()
    lines = open(howdah.ini_path).read().splitlines()
    place = {text: f"({howdah.ini_path}:{lines.index(text) + 1})"
             for text in ("0 = host=/b", "3 = port=5", "peer_id = 16384")}
    assert code == 1
    for text, why in (("0 = host=/b", "a peer's id is a number from 1 to 65535"),
                      ("3 = port=5", "a peer needs host="),
                      ("peer_id = 16384", "must be an integer from 0 to 16383")):
        assert f"{place[text]}: {why}" in output
    howdah.sections["peers"] = {1: "host=/a"}
    howdah.write(peer_id=0)
    code, output = howdah.check()
    assert code == 0 and "has no effect: peer_id is 0" in output


@pytest.fixture
def pgbouncer(request, scratch, postgres):
    """A PgBouncer with peers, if the machine has one: $PGBOUNCER, or on the path."""
    program = os.environ.get("PGBOUNCER") or shutil.which("pgbouncer")
    if not program:
        pytest.skip("this machine has no PgBouncer")
    bouncer = Howdah(program, scratch, unique_name(request, "b"), postgres=postgres, start=False,
                     peer_id=1)
    bouncer.is_pgbouncer = True
    for own in ("workers", "io_driver"):
        bouncer.sections["pgbouncer"].pop(own, None)
    yield bouncer
    bouncer.stop()


def test_mixed_group(make_howdah, pgbouncer, postgres):
    """A PgBouncer and a Howdah forward each other's requests."""
    howdah = make_howdah(start=False, peer_id=2, workers=2)
    pgbouncer.sections["peers"] = {2: f"host={howdah.folder} port={howdah.port}"}
    pgbouncer.write()
    howdah.sections["peers"] = {1: f"host=127.0.0.1 port={pgbouncer.port}"}
    howdah.write()
    try:
        pgbouncer.start()
    except RuntimeError as why:
        if "unknown parameter: pgbouncer/peer_id" in str(why):
            pytest.skip("this PgBouncer is older than 1.19: it knows no peers")
        raise
    howdah.start()
    for owner, other in ((pgbouncer, howdah), (howdah, pgbouncer)):
        for turn in range(3):
            with owner.connect() as client:
                mark = f"mixed {owner.is_pgbouncer} {turn}"
                start(client, postgres, mark)
                cancel_at(other.address, client)
                assert outcome(client.read_until()) == CANCELLED
