"""Lines of the log that users of PgBouncer search for, in its words: one way to each."""

import fcntl
import json
import os
import re
import socket
import ssl
import struct
import subprocess

import pytest

from harness import machine, wire
from harness.wire import query

pytestmark = pytest.mark.timeout(60)


def refused(howdah, **options):
    with pytest.raises(wire.Refused):
        howdah.connect(**options)


def one_query(howdah, **options):
    with howdah.connect(**options) as client:
        client.rows("select 1")


def holds(howdah):
    """A transaction that ends because of some limit."""
    with howdah.connect() as client:
        client.rows("begin")
        client.read_to_end()


def sleeps(howdah):
    with howdah.connect() as client:
        client.send(query("select pg_sleep(30)"))
        client.read_to_end()


def idles(howdah):
    with howdah.connect() as client:
        client.read_to_end()


def waits(howdah):
    """Two clients for one server: the second gives up, or a reserve server is opened."""
    with howdah.connect() as a, howdah.connect() as b:
        a.rows("begin")
        b.send(query("select 1"))
        if "query_wait_timeout" in howdah.sections["pgbouncer"]:
            b.read_to_end()
        else:
            b.read_until()


def other_pool(howdah):
    """Another user's query, where the database may have one server."""
    one_query(howdah)
    one_query(howdah, user="admin")


def sets(howdah):
    with howdah.connect(options="-c DateStyle=German") as client:
        client.rows("select 1")


def leaves(howdah):
    """A client that vanishes without a word."""
    client = howdah.connect()
    client.rows("select 1")
    client.socket.close()


def parts(howdah):
    """A client that says goodbye."""
    with howdah.connect() as client:
        client.send(b"X\0\0\0\4")
        client.read_to_end()


def command(text):
    return lambda howdah: howdah.console(text)


def unknown(howdah):
    """Somebody guesses a name."""
    refused(howdah, user="nobody", password="wrong")


ONE = {"default_pool_size": 1}
# Every way to be refused.
REFUSALS = [
    ({}, unknown),
    *[({"auth_type": method}, happens) for method in ("plain", "md5", "scram-sha-256")
      for happens in (unknown, lambda howdah: refused(howdah, password="wrong"))],
    ({"auth_type": "md5"}, lambda howdah: refused(howdah, user="nobody", database="pgbouncer",
                                                  password="wrong")),
    ({"auth_user": "admin"}, unknown),
    ({"auth_type": "hba", "hba": "host all nobody all reject\nhost all all all trust\n"}, unknown),
    ({"auth_type": "hba", "hba": "host all admin all trust\n"}, unknown),
]
AGE = r" \(age=\d+s?"
LINES = [
    ({}, one_query, r" LOG C-0x[0-9a-f]+: postgres/postgres@127\.0\.0\.1:\d+ login attempt: "
                    r"db=postgres user=postgres tls=no replication=no"),
    ({}, one_query, r" LOG S-0x[0-9a-f]+: postgres/postgres@127\.0\.0\.1:\d+ new connection to "
                    r"server \(from 127\.0\.0\.1:\d+\)"),
    ({}, parts, "closing because: client close request" + AGE),
    ({}, leaves, "closing because: client unexpected eof" + AGE),
    ({"databases": {"only": ""}}, lambda howdah: refused(howdah, database="nosuchdb"),
     "closing because: no such database: nosuchdb" + AGE),
    ({"databases": {"only": ""}}, lambda howdah: refused(howdah, database="nosuchdb"),
     "pooler error: no such database: nosuchdb"),
    ({}, lambda howdah: refused(howdah, user="nobody"),
     'closing because: "trust" authentication failed' + AGE),
    ({"auth_type": "md5"}, lambda howdah: refused(howdah, password="wrong"),
     "closing because: password authentication failed" + AGE),
    ({"auth_type": "scram-sha-256"}, lambda howdah: refused(howdah, password="wrong"),
     "closing because: SASL authentication failed" + AGE),
    ({"auth_type": "scram-sha-256"}, lambda howdah: refused(howdah, password="wrong"),
     r" ERROR C-0x[0-9a-f]+: \S+ password authentication failed\n"),
    # What fail2ban's filters look for, at the end of a line.
    *[(settings, happens, r" ERROR C-0x[0-9a-f]+: \S+@127\.0\.0\.1:\d+ password authentication failed\n")
      for settings, happens in REFUSALS],
    ({"auth_type": "md5"}, lambda howdah: refused(howdah, user="nobody", password="wrong"),
     r" LOG C-0x[0-9a-f]+: \S+ no such user: nobody\n"),
    ({}, lambda howdah: refused(howdah, database="nosuchdb"),
     r' LOG C-0x[0-9a-f]+: \S+ closing because: database "nosuchdb" does not exist' + AGE),
    ({"auth_user": "admin"}, lambda howdah: refused(howdah, user="nobody"),
     "closing because: no such user" + AGE),
    ({}, one_query, "registered new auto-database: postgres\n"),
    ({}, lambda howdah: refused(howdah, database="nosuchdb"),
     'server login failed: FATAL database "nosuchdb" does not exist'),
    ({"idle_transaction_timeout": 1}, holds, "closing because: idle transaction timeout" + AGE),
    ({"transaction_timeout": 1}, holds, "closing because: transaction timeout" + AGE),
    ({"query_timeout": 1}, sleeps, "closing because: query timeout" + AGE),
    ({"client_idle_timeout": 1}, idles, "closing because: client_idle_timeout" + AGE),
    ({**ONE, "query_wait_timeout": 1}, waits, "closing because: query_wait_timeout" + AGE),
    ({**ONE, "reserve_pool_size": 1, "reserve_pool_timeout": "0.1"}, waits,
     "taking connection from reserve_pool"),
    ({"max_db_connections": 1}, other_pool, "closing because: evicted" + AGE),
    ({"server_lifetime": 0}, one_query, "closing because: server lifetime over" + AGE),
    ({"server_idle_timeout": 1}, one_query, "closing because: server idle timeout" + AGE),
    ({"server_idle_timeout": 1, "autodb_idle_timeout": 1}, one_query,
     "cleaning up idle pool postgres/postgres"),
    ({"verbose": 2}, sets, "varcache_apply: .*SET DateStyle='German"),
    ({"stats_period": 1}, one_query, r" LOG stats: \d+ xacts/s, \d+ queries/s"),
    ({}, command("RELOAD"), "RELOAD command issued"),
    ({}, command("PAUSE"), "PAUSE command issued"),
    ({}, lambda howdah: (one_query(howdah), howdah.console("PAUSE")),
     "closing because: pause mode" + AGE),
    ({}, lambda howdah: None, " LOG process up: "),
    ({}, lambda howdah: None, r" LOG listening on 127\.0\.0\.1:\d+"),
    ({}, lambda howdah: None, r" LOG kernel file descriptor limit: \d+ \(hard: \d+\); "
                              r"max_client_conn: 100, max expected fd use: \d+"),
]


@pytest.mark.parametrize("settings, happens, line", LINES,
                         ids=[re.sub(r"\W+", "_", line)[-40:] for _, _, line in LINES])
def test_lines(make_howdah, postgres, settings, happens, line):
    """It is there, soon after what it tells of."""
    settings = dict(settings)
    rules = settings.pop("hba", None)
    if "databases" in settings:
        settings["databases"] = {"only": f"host={postgres.host} port={postgres.port}"}
    howdah = make_howdah(start=rules is None, **settings)
    if rules is not None:
        path = os.path.join(howdah.folder, "hba.conf")
        with open(path, "w") as file:
            file.write(rules)
        howdah.write(auth_hba_file=path)
        howdah.start()
    happens(howdah)
    howdah.wait_for_log(line)


def test_probes_are_not_logged(make_howdah, authority):
    """Load balancers look every few seconds whether the port answers."""
    site = authority.issue()
    howdah = make_howdah(client_tls_sslmode="allow", client_tls_cert_file=site.chain,
                         client_tls_key_file=site.key, tcp_defer_accept=0)
    tls = ssl.create_default_context(cafile=authority.certificate)

    def connected():
        return socket.create_connection(howdah.address, 10)

    def ended(client):
        """The other side has seen the end, and closed."""
        client.shutdown(socket.SHUT_WR)
        while client.recv(1000):
            pass
    for _ in range(3):
        with connected() as client:
            ended(client)
        with connected() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with connected() as client:
            client.sendall(wire.ssl_request())
            assert client.recv(1) == b"S"
            ended(client)
        with connected() as client:
            client.sendall(wire.ssl_request())
            assert client.recv(1) == b"S"
            tls.wrap_socket(client, server_hostname="localhost").close()
    one_query(howdah)
    howdah.wait_for_log("postgres/postgres@.* closing because")
    assert "(nodb)" not in howdah.log()
    # Who has said something is told of.
    with connected() as client:
        client.sendall(b"\0\0")
        ended(client)
    howdah.wait_for_log(r"\(nodb\)/\(nouser\)@.* closing because: client unexpected eof")


def test_names_stay_in_their_line(make_howdah):
    """What somebody puts into a name neither ends a line of the log nor reaches a terminal; nor
    what stands in a file."""
    howdah = make_howdah(databases={"only": ""})
    mark = howdah.log_mark()
    fake = "x\n2026-01-01 00:00:00.000 UTC [1] FATAL the end\x1b[2J\x07\r\x9b1m\t"
    for options in ({"user": fake}, {"database": fake}, {"application_name": fake}, {fake: "1"}):
        refused(howdah, **{"database": "nosuchdb", **options})
    howdah.wait_for_log(r"x\\n2026-01-01 .* FATAL the end\\x1b\[2J\\x07\\r\\x9b1m\\t@", since=mark)
    howdah.write(pool_mode="a\x1b[2J")
    with pytest.raises(wire.Refused):
        howdah.reload()
    howdah.wait_for_log(r'invalid value "a\\x1b\[2J" for parameter pool_mode', since=mark)
    with open(howdah.log_path, "rb") as file:
        text = file.read().decode()
    assert all(char == "\n" or char.isprintable() for char in text)
    assert all(re.match(r"\d{4}-\d\d-\d\d \S+ \S+ \[%d\] " % howdah.child.pid, line)
               for line in text.splitlines()), text


@pytest.mark.own
def test_the_log_is_not_for_everybody(make_howdah):
    """Its lines have names, addresses and texts of queries."""
    howdah = make_howdah()
    assert os.stat(howdah.log_path).st_mode & 0o777 == 0o640


@pytest.mark.own
def test_the_log_as_json(make_howdah):
    """Each line is an object, whatever a client calls itself."""
    howdah = make_howdah(log_format="json")
    with pytest.raises(wire.Refused):
        howdah.connect(user='no"body\n{', database="postgres")
    howdah.wait_for_log("closing because")
    lines = [json.loads(line) for line in howdah.log().splitlines()]
    assert all({"time", "pid", "level", "text"} <= line.keys() for line in lines)
    line = next(line for line in lines if "authentication failed (age" in line["text"])
    assert line["connection"].startswith("C-0x") and line["address"].startswith("127."), line
    assert (line["user"], line["database"], line["sqlstate"], line["reason"]) == \
        ('no"body\n{', "postgres", "28000", '"trust" authentication failed'), line
    howdah.console("SET log_format = text")
    mark = howdah.log_mark()
    howdah.connect().close()
    howdah.wait_for_log(r"(?m)^\d{4}-\d\d-\d\d .* LOG C-0x", since=mark)


def test_strangers_fill_no_log(make_howdah):
    """Lines about clients that are not logged in are counted beyond a rate, others are written. So
    are refused logins, which the rest do not crowd out."""
    howdah = make_howdah(log_unauthenticated_rate=5, auth_type="plain", secrets={"postgres": "secret"})
    for number in range(60):
        with howdah.raw() as client:
            client.send(b"half of a length"[:3])
        if number in (30, 50):
            refused(howdah, password="wrong")
    told = (r"WARNING (\d+) lines about clients that were not logged in were left out, "
            r"\d+ of them about refused logins")
    refusals = "ERROR .* password authentication failed"
    # A thread of its own writes the log.
    machine.wait_until(lambda: len(re.findall(refusals, howdah.log())) == 2, "both refusals")

    def most_left_out():
        # It is told with the first line of another second: of each second for itself.
        one_query(howdah, password="secret")
        return sum(map(int, re.findall(told, howdah.log()))) > 10
    machine.wait_until(most_left_out, "the number of lines")
    howdah.wait_for_log(r"postgres/postgres@.* closing because: client")


def test_standard_error_that_nobody_reads(make_howdah):
    """Who reads the log slowly holds up nobody, nor the file, and gets every line in the end, in order."""
    howdah = make_howdah(start=False, workers=2)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    howdah.child = howdah.spawn(howdah.ini_path, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=writing)
    os.close(writing)
    with open(reading) as lines:
        for turn in range(100):
            def served():
                try:
                    with howdah.connect(application_name=f"app{turn}") as client:
                        return client.value("select 1") == "1"
                except ConnectionRefusedError:
                    return False
            machine.wait_until(served, "a connection")
        machine.wait_until(lambda: howdah.log().count("login attempt") == 100, "the file to have all")
        attempts = (line for line in lines if "login attempt" in line)
        logged = [next(attempts) for _ in range(100)]
    howdah.stop()
    assert [line for line in howdah.log().splitlines(True) if "login attempt" in line] == logged
