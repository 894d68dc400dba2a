"""proxy_protocol: clients behind a balancer. Headers byte by byte, hostile ones, and HAProxy itself."""

import re
import ssl
import struct

import psycopg
import pytest

from harness import haproxy, wire
from harness.certificates import listener
from harness.haproxy import HaProxy

pytestmark = [pytest.mark.timeout(60), pytest.mark.one_driver, pytest.mark.own]

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
# Where balancers are in these tests, and somebody else.
BALANCER, OTHER = "127.0.0.2", "127.0.0.3"
CLIENT = ("192.0.2.7", 5000)
LINE = b"PROXY TCP4 192.0.2.7 127.0.0.1 5000 6432\r\n"


def binary(family, body, command=0x21):
    """A header of version 2."""
    return SIGNATURE + struct.pack("!BBH", command, family, len(body)) + body


FOUR = bytes([192, 0, 2, 7, 127, 0, 0, 1]) + struct.pack("!HH", 5000, 6432)
SIX = bytes([0x20, 1, 0xd, 0xb8, *[0] * 11, 7, *[0] * 15, 1]) + struct.pack("!HH", 5000, 6432)
MAPPED = bytes([*[0] * 10, 0xff, 0xff, 192, 0, 2, 7, *[0] * 15, 1]) + struct.pack("!HH", 5000, 6432)
TLV = b"\x04\x00\x03abc"


@pytest.fixture(scope="module")
def site(authority):
    """The certificate of a listener for localhost."""
    return authority.issue()


@pytest.fixture(scope="module")
def context(authority):
    """Of clients that use TLS, asked for or not."""
    context = ssl.create_default_context(cafile=authority.certificate)
    context.set_alpn_protocols(["postgresql"])
    return context


@pytest.fixture
def howdah(shared_howdah):
    """Which has balancers in a network of one address."""
    return shared_howdah(proxy_protocol=f"{BALANCER}/32, 10.0.0.0/8")


def behind(howdah, header=LINE, source=BALANCER, **options):
    """A connection of the balancer, with the header sent."""
    client = wire.Wire(howdah.address, source=source, **options)
    client.send(header)
    return client


def addresses(howdah):
    """Address and port of each client of the database."""
    rows = howdah.console("SHOW CLIENTS")
    return {(row["addr"], int(row["port"])) for row in rows if row["database"] == "postgres"}


# Headers ----------------------------------------------------------------------------------------

HEADERS = {
    "line": (LINE, CLIENT),
    "line of IPv6": (b"PROXY TCP6 2001:db8::7 ::1 5000 6432\r\n", ("2001:db8::7", 5000)),
    "line of UNKNOWN": (b"PROXY UNKNOWN anything\r\n", None),
    "binary": (binary(0x11, FOUR), CLIENT),
    "binary with TLVs": (binary(0x11, FOUR + TLV), CLIENT),
    "binary of IPv6": (binary(0x21, SIX), ("2001:db8::7", 5000)),
    "binary of IPv4 as IPv6": (binary(0x21, MAPPED), CLIENT),
    "binary LOCAL": (binary(0x11, FOUR, command=0x20), None),
    "binary of a unix socket": (binary(0x31, bytes(216)), None),
    "longest": (binary(0x11, FOUR + bytes(4096 - 16 - 12)), CLIENT),
}


@pytest.mark.parametrize("name", HEADERS)
def test_the_address_in_the_header_counts(howdah, name):
    """Whether it comes byte by byte, or in one go with all that follows."""
    header, address = HEADERS[name]
    stream = header + wire.startup("postgres", "postgres") + wire.query("select 42")
    pieces = [bytes([byte]) for byte in stream]
    for parts in (pieces, [stream]) if len(stream) < 1000 else ([stream],):
        with wire.Wire(howdah.address, source=BALANCER) as client:
            for part in parts:
                client.send(part)
            client.read_until("Z")
            assert client.read_until("Z")[1].row() == [b"42"]
            mine = address or client.socket.getsockname()
            assert mine in addresses(howdah)


def test_the_address_counts_for_rules_limits_and_names(make_howdah, authority, site, context):
    """For HBA's addresses, application_name, the log and the messages; TLS is the real one's."""
    rules = ["local all all trust", "hostssl all all 192.0.2.0/24 trust",
             "host pgbouncer admin 127.0.0.1/32 trust"]
    howdah = make_howdah(start=False, proxy_protocol=BALANCER, auth_type="hba",
                         application_name_add_host=1, **listener(site, authority, mode="prefer"))
    howdah._write_file(f"{howdah.folder}/hba.conf", "\n".join([*rules, ""]))
    howdah.write(auth_hba_file=f"{howdah.folder}/hba.conf")
    howdah.start()
    for direct in (False, True):
        with behind(howdah) as client:
            client.start_tls(context, direct=direct).login("postgres", "postgres")
            assert client.value("show application_name") == "app - 192.0.2.7:5000"
    with behind(howdah) as client:
        with pytest.raises(wire.Refused, match='no pg_hba.conf entry for host "192.0.2.7".*no encryption'):
            client.login("postgres", "postgres")
    with behind(howdah, LINE.replace(b"192.0.2.7", b"198.51.100.9")) as client:
        client.start_tls(context)
        with pytest.raises(wire.Refused, match='no pg_hba.conf entry for host "198.51.100.9"'):
            client.login("postgres", "postgres")
    howdah.wait_for_log(r"postgres/postgres@198\.51\.100\.9:5000 ")


def test_a_loopback_address_counts_only_from_this_machine(howdah):
    """All balancers of these tests are on this machine; scripts of events have the other case."""
    with behind(howdah, b"PROXY TCP4 127.8.8.8 127.0.0.1 5000 6432\r\n") as client:
        client.login("postgres", "postgres")
        assert ("127.8.8.8", 5000) in addresses(howdah)


def test_a_query_is_cancelled_through_a_balancer(howdah):
    with behind(howdah) as client, behind(howdah) as other:
        client.login("postgres", "postgres")
        client.send(wire.query("select pg_sleep(60)"))
        howdah.wait_for_pool(sv_active=1)
        other.send(wire.cancel_request(client.pid, client.key))
        assert other.ends()
        with pytest.raises(wire.Refused, match="canceling statement"):
            client.rows("")


def test_the_address_travels_to_a_successor(make_howdah):
    """With who is logged in, and with who has only sent its header."""
    howdah = make_howdah(proxy_protocol=BALANCER)
    with behind(howdah) as client, behind(howdah, LINE.replace(b"5000", b"5001")) as late:
        client.login("postgres", "postgres")
        howdah.wait_for_pool(cl_active=1)
        howdah.take_over()
        assert client.value("select 1") == "1"
        late.login("postgres", "postgres")
        assert {("192.0.2.7", 5000), ("192.0.2.7", 5001)} <= addresses(howdah)


# Bad input ---------------------------------------------------------------------------------------

STARTUP = wire.startup("postgres", "postgres")
MISSING = "no PROXY protocol header from an address in proxy_protocol"
INVALID = "invalid PROXY protocol header: "
HOSTILE = {
    "none": (STARTUP, MISSING),
    "none before a request": (wire.ssl_request(), MISSING),
    "TLS at once": (b"\x16\x03\x01\x02\x00", MISSING),
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", MISSING),
    "nearly": (b"PROXY\tTCP4", MISSING),
    "line of 108 bytes": (b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n", INVALID + "the header is too long"),
    "line without an end": (b"PROXY TCP4 " + b"1" * 4096, INVALID + "the header is too long"),
    "binary of 65,535 bytes": (SIGNATURE + b"\x21\x11\xff\xff", INVALID + "the header is too long"),
    "line with the other family": (b"PROXY TCP4 ::1 ::1 1 2\r\n", INVALID + "the addresses do not"),
    "line without carriage return": (LINE.replace(b"\r", b""), INVALID + "the addresses do not"),
    "line of UDP": (b"PROXY UDP4 10.0.0.1 10.0.0.2 1 2\r\n", INVALID + "the command, the family"),
    "binary with the other family": (binary(0x21, FOUR), INVALID + "the addresses do not"),
    "binary of UDP": (binary(0x12, FOUR), INVALID + "the command, the family"),
    "binary of version 1": (binary(0x11, FOUR, command=0x11), INVALID + "the binary form has a version"),
    "two lines": (LINE + LINE, "a second PROXY protocol header"),
    "two forms": (LINE + binary(0x11, FOUR), "a second PROXY protocol header"),
}


def refused_once(howdah, client, since, text):
    """The client gets one error with this text, and the log one line."""
    got = client.read_to_end()
    assert [message.tag for message in got] == ["E"]
    fields = got[0].fields()
    assert fields["C"] == "08P01" and fields["M"].startswith(text), fields
    howdah.wait_for_log(re.escape(text), since=since)
    howdah.console("SHOW STATE")
    lines = howdah.log()[since:].splitlines()
    lines = [line for line in lines if "(nodb)" in line]
    assert len(lines) == 1 and " WARNING " in lines[0], lines


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused(howdah, name):
    sent, text = HOSTILE[name]
    mark = howdah.log_mark()
    with behind(howdah, sent) as client:
        refused_once(howdah, client, mark, text)


@pytest.mark.parametrize("header", [LINE, binary(0x11, FOUR)], ids=["line", "binary"])
def test_from_elsewhere_a_header_is_not_understood(howdah, header):
    mark = howdah.log_mark()
    with behind(howdah, header + STARTUP, source=OTHER) as client:
        refused_once(howdah, client, mark, "PROXY protocol header from an address that is not in proxy_protocol")
    with wire.Wire(howdah.address, source=OTHER) as client:
        client.login("postgres", "postgres")


def test_a_header_in_tls_is_refused(make_howdah, authority, site, context):
    howdah = make_howdah(proxy_protocol=BALANCER, **listener(site, authority))
    with behind(howdah) as client:
        client.start_tls(context).send(LINE)
        assert client.read().fields()["M"] == "a second PROXY protocol header"


def test_a_unix_socket_needs_no_header(make_howdah):
    howdah = make_howdah(proxy_protocol="127.0.0.0/8", read_driver=False)
    with wire.connect(howdah.socket_path, database="postgres") as client:
        assert client.value("select 1") == "1"


def test_probes_leave_no_trace(make_howdah):
    """Connections that close or are reset without a byte, or behind a header."""
    howdah = make_howdah(proxy_protocol=BALANCER)
    mark = howdah.log_mark()
    for header in (b"", LINE, binary(0, b"", command=0x20)):
        behind(howdah, header).close()
        behind(howdah, header).abort()
    with behind(howdah) as client:
        client.login("postgres", "postgres")
    howdah.wait_for_log("client unexpected eof", since=mark)
    lines = [line for line in howdah.log()[mark:].splitlines() if "(nodb)" in line]
    assert lines == []


def test_who_sends_half_a_header_is_too_late(make_howdah):
    howdah = make_howdah(proxy_protocol=BALANCER, client_login_timeout="0.2")
    with behind(howdah, LINE[:9]) as client:
        assert client.read().fields()["M"] == "client_login_timeout"
        assert client.ends()


# HAProxy -----------------------------------------------------------------------------------------

@haproxy.needed
@pytest.mark.parametrize("send", ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id"],
                         ids=["line", "binary", "tlvs"])
def test_behind_haproxy(make_howdah, scratch, authority, site, context, send):
    """Clients in clear text, with TLS asked for, with TLS at once; health checks all the time."""
    howdah = make_howdah(proxy_protocol="127.0.0.1", read_driver=False, log_connections=0,
                         **listener(site, authority, mode="prefer"))
    mark = howdah.log_mark()
    server = f"server one {howdah.host}:{howdah.port} {send} check inter 20ms check-send-proxy"
    with HaProxy(scratch, f"haproxy-{howdah.port}", server) as balancer:
        for how in ("clear", "asked for", "direct"):
            with wire.Wire(balancer.address, source=OTHER) as client:
                if how != "clear":
                    client.start_tls(context, direct=how == "direct")
                client.login("postgres", "postgres")
                assert client.value("select 1") == "1"
                assert client.socket.getsockname() in addresses(howdah)
        url = f"postgresql://postgres@{balancer.host}:{balancer.port}/postgres"
        with psycopg.connect(url) as connection:
            assert connection.execute("select 2").fetchone() == (2,)
    assert "PROXY" not in howdah.log()[mark:] and "(nodb)" not in howdah.log()[mark:]
