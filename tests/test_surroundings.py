"""Settings towards the system around: sockets, syslog, name servers. Each test shows the effect."""

import ctypes
import os
import signal
import socket
import struct
import subprocess
import threading

import pytest
from conftest import unique_name

from harness import machine, wire
from harness.wire import query, sync

pytestmark = pytest.mark.timeout(60)


def sockets_of(pid):
    """Our own descriptors of the TCP sockets of a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            if not os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):
                continue
        except FileNotFoundError:
            continue
        copy = libc.syscall(438, process, int(number), 0)  # pidfd_getfd
        if copy < 0:
            pytest.skip("this system does not let us look at another process's sockets")
        opened = socket.socket(fileno=copy)
        if opened.family == socket.AF_INET:
            found.append(opened)
        else:
            opened.close()
    os.close(process)
    return found


def listeners(howdah):
    """The TCP sockets it listens on."""
    return [one for one in sockets_of(howdah.child.pid)
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)]


def connections(howdah):
    """Its open TCP connections: clients' and servers'."""
    return [one for one in sockets_of(howdah.child.pid)
            if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)]


def tcp(one, option):
    """A number the kernel has for a TCP socket."""
    return one.getsockopt(socket.IPPROTO_TCP, option)


def test_defer_accept(make_howdah):
    """A client that says nothing is not handed over; at 0 it is, and RELOAD and SET change that."""
    howdah = make_howdah()
    deferred = [tcp(one, socket.TCP_DEFER_ACCEPT) for one in listeners(howdah)]
    assert deferred and all(45 <= seconds <= 100 for seconds in deferred)  # Retries, rounded up.

    def logins():
        rows = howdah.console("SHOW LISTS")
        return next(int(row["items"]) for row in rows if row["list"] == "login_clients")

    with howdah.raw():
        assert logins() == 0
    howdah.write(tcp_defer_accept=0)
    howdah.reload()
    assert {tcp(one, socket.TCP_DEFER_ACCEPT) for one in listeners(howdah)} == {0}
    with howdah.raw():
        machine.wait_until(lambda: logins() == 1, "the silent client to show")
    howdah.console("SET tcp_defer_accept = 7")
    assert howdah.setting("tcp_defer_accept") == "7"
    assert all(tcp(one, socket.TCP_DEFER_ACCEPT) >= 7 for one in listeners(howdah))


def test_keepalive(make_howdah):
    """On clients and servers; and after a change on those that come then."""
    howdah = make_howdah(tcp_keepcnt=4, tcp_keepidle=33, tcp_keepintvl=5, tcp_user_timeout=12345,
                         tcp_socket_buffer=20000)
    with howdah.connect() as client:
        client.value("select 1")
        seen = connections(howdah)
        assert len(seen) >= 2
        for one in seen:
            assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert tcp(one, socket.TCP_KEEPCNT) == 4
            assert tcp(one, socket.TCP_KEEPIDLE) == 33
            assert tcp(one, socket.TCP_KEEPINTVL) == 5
            assert tcp(one, socket.TCP_USER_TIMEOUT) == 12345
            assert tcp(one, socket.TCP_NODELAY) == 1
            assert one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 40000  # Doubled: tcp(7)
            assert one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 40000
    howdah.write(tcp_keepalive=0)
    howdah.reload()
    with howdah.connect() as client:
        port = client.socket.getsockname()[1]
        one, = (one for one in connections(howdah) if one.getpeername()[1] == port)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


def test_listen_backlog(make_howdah):
    """How many connections the kernel keeps for us: the second of two numbers it has."""
    howdah = make_howdah(listen_backlog=17)
    for one in listeners(howdah):
        info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        assert struct.unpack_from("I", info, 28) == (17,)


def test_disable_pqexec(make_howdah):
    """Simple queries are refused, linked or not; the extended protocol and the console work."""
    howdah = make_howdah(disable_pqexec=1)
    extended = [wire.parse("select 'works'"), wire.bind(), wire.execute(), sync()]
    with howdah.connect() as client:
        rows = [got.row() for got in client.ask(*extended) if got.tag == "D"]
        assert rows == [[b"works"]]
        client.send(wire.parse("begin"), wire.bind(), wire.execute(), sync(), query("select 1"))
        errors = [got.fields() for got in client.read_to_end() if got.tag == "E"]
        assert [(error["S"], error["M"]) for error in errors] == [("FATAL", "PQexec disallowed")]
    with howdah.connect() as client:
        client.send(query("select 1"))
        assert client.read().fields()["M"] == "PQexec disallowed"
    howdah.wait_for_log("closing because: PQexec disallowed")
    assert howdah.setting("disable_pqexec") == "1"


def test_reload_tells_of_what_is_fixed(make_howdah):
    """A setting that takes a restart is not changed, and that is said."""
    howdah = make_howdah(workers=1)
    port = howdah.port
    howdah.write(listen_addr="127.0.0.1, 127.0.0.2", listen_port=1, disable_pqexec=1)
    howdah.reload()
    for setting, new, old in (("listen_addr", "127.0.0.1, 127.0.0.2", "127.0.0.1"),
                              ("listen_port", "1", str(port)), ("disable_pqexec", "1", "0")):
        howdah.wait_for_log(f"WARNING {setting} = {new} takes a restart to have an effect: "
                            f"it stays {old}\n")
        assert howdah.setting(setting) == old
    assert "workers =" not in howdah.log()


def test_syslog(make_howdah, scratch, request):
    """Lines go to /dev/log, in the C library's form; RELOAD and SET change name and facility, a
    daemon that was away is found again."""
    folder = machine.folder(scratch, unique_name(request, "dev"))
    path = os.path.join(folder, "log")
    open(os.path.join(folder, "null"), "w").close()
    # A /dev of its own, in which there is no other log.
    seen = subprocess.run(["unshare", "--mount", "sh", "-c", f"mount --bind {folder} /dev"],
                          check=False, capture_output=True)
    if seen.returncode != 0:
        pytest.skip("only root can give a process a /dev/log of its own")

    def listen():
        if os.path.exists(path):
            os.remove(path)
        daemon = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        daemon.bind(path)
        os.chmod(path, 0o777)
        daemon.settimeout(30)
        return daemon

    def heard(daemon, text):
        while True:
            line = daemon.recv(10000).decode()
            if text in line:
                return line

    daemon = listen()
    howdah = make_howdah(start=False, syslog=1, syslog_ident="tester", syslog_facility="local3")
    spawn = howdah.spawn

    def spawn_in_namespace(*arguments, **popen):
        program = machine.readable_copy(howdah.program, os.path.dirname(howdah.folder))
        user = machine.unprivileged_user()
        script = (f"mount --bind {folder} /dev && exec setpriv --reuid={user.pw_uid} "
                  f"--regid={user.pw_gid} --clear-groups --pdeathsig QUIT -- \"$@\"")
        return machine.spawn(["unshare", "--mount", "sh", "-c", script, "sh", program, *arguments],
                             as_user=False, cwd=howdah.folder, **popen)
    howdah.spawn = spawn_in_namespace
    howdah.start()
    howdah.spawn = spawn
    line = heard(daemon, "process up")
    pid = howdah.child.pid
    # 19 * 8 + 6, the time in local form, ident and process.
    head, text = line.split(f" tester[{pid}]: ")
    assert head.startswith("<158>") and len(head) == len("<158>Nov  1 09:05:00")
    assert text.startswith("process up: Howdah")
    with howdah.connect():
        assert "login attempt" in heard(daemon, "login attempt")
    howdah.write(syslog_ident="other", syslog_facility="auth")
    howdah.reload()
    with howdah.connect():
        assert heard(daemon, f" other[{pid}]: ").startswith("<38>")
    daemon.close()
    with howdah.connect() as client:
        assert client.value("select 'nobody listens'") == "nobody listens"
    daemon = listen()
    with howdah.connect():
        assert f" other[{pid}]: " in heard(daemon, "login attempt")
    howdah.console("SET syslog = 0")
    assert howdah.setting("syslog") == "0"
    howdah.signal(signal.SIGUSR2)
    howdah.wait_for_log("got SIGUSR2")
    daemon.settimeout(0.2)
    rest = []
    try:
        while True:
            rest.append(daemon.recv(10000).decode())
    except TimeoutError:
        pass
    assert not any("got SIGUSR2" in line for line in rest)
    daemon.close()


class NameServer:
    """A name server with a few names in one zone, and the questions it was asked. names: for each its
    addresses, with spaces between them."""

    def __init__(self, **names):
        self.names = names
        self.serial = 1
        self.asked = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bell:
            bell.sendto(b"", ("127.0.0.1", self.port))
        self.thread.join()
        self.socket.close()

    def serve(self):
        while True:
            question, client = self.socket.recvfrom(1000)
            if not question:
                return
            self.socket.sendto(self.answer(question), client)

    def answer(self, question):
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        name, kind = ".".join(labels), struct.unpack_from("!H", question, at + 1)[0]
        self.asked.append((name, kind))
        data = []
        if kind == 1 and name in self.names:
            data = [socket.inet_aton(address) for address in self.names[name].split()]
        elif kind == 6 and name == "test.example":
            data = [b"\x02ns\xc0\x0c\x04root\xc0\x0c"
                    + struct.pack("!5I", self.serial, 1, 1, 1, 1)]
        known = data or name in self.names
        head = question[:2] + struct.pack("!HHHHH", 0x8180 if known else 0x8183, 1, len(data), 0, 0)
        records = [b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 60, len(one)) + one for one in data]
        return head + question[12:at + 5] + b"".join(records)


def use(howdah, server, **settings):
    """Starts a Howdah that asks this name server."""
    path = os.path.join(howdah.folder, "resolv.conf")
    with open(path, "w") as file:
        file.write(f"nameserver 127.0.0.1:{server.port}\nsearch test.example\n"
                   "options timeout:1 attempts:1\n")
    machine.hand_over(path)
    howdah.write(resolv_conf=path, **settings)
    howdah.start()


def test_resolv_conf(make_howdah, postgres):
    """Names are looked up where the file says, once in dns_max_ttl; failures in dns_nxdomain_ttl."""
    names = {"db.test.example": "127.0.0.1"}
    with NameServer(**names) as server:
        howdah = make_howdah(start=False, server_lifetime=0, dns_max_ttl=600, dns_nxdomain_ttl=0,
                             client_login_timeout=2,
                             databases={"good": f"host=db port={postgres.port} dbname=postgres",
                                        "own": f"host=localhost port={postgres.port} "
                                        "dbname=postgres", "bad": "host=nobody"})
        use(howdah, server)
        for _ in range(3):
            with howdah.connect(database="good") as client:
                assert client.value("select 1") == "1"
        assert server.asked.count(("db.test.example", 1)) == 1
        with howdah.connect(database="own") as client:
            assert client.value("select 1") == "1"
        with pytest.raises(wire.Refused):
            howdah.connect(database="bad")
        # It was tried again (server_login_retry), and asked for again, by both names.
        assert server.asked.count(("nobody.test.example", 1)) > 1
        assert server.asked.count(("nobody", 1)) > 1
        howdah.wait_for_log("server DNS lookup failed")


def test_resolv_conf_is_missing(make_howdah):
    """A resolver file that cannot be read stops the start."""
    howdah = make_howdah(start=False, resolv_conf="/nowhere/resolv.conf")
    code, said = howdah.run_to_end(howdah.ini_path)
    assert code == 1
    assert "FATAL cannot read resolv_conf /nowhere/resolv.conf: No such file" in said


def test_zone_check(make_howdah, postgres):
    """A name is believed for ten minutes, but not when its zone has another serial."""
    with NameServer(**{"db.test.example": "127.0.0.1"}) as server:
        howdah = make_howdah(
            start=False, server_lifetime=0, dns_max_ttl=600, dns_zone_check_period="0.05",
            databases={"good": f"host=db.test.example port={postgres.port} dbname=postgres"})
        use(howdah, server)

        def looks_up():
            with howdah.connect(database="good") as client:
                client.value("select 1")
            return server.asked.count(("db.test.example", 1))
        assert looks_up() == 1
        machine.wait_until(lambda: ("test.example", 6) in server.asked, "a look at the zone")
        assert looks_up() == 1
        server.serial = 2
        howdah.wait_for_log("zone 'test.example' serial changed: old=1 new=2")
        # At once, whether anybody asks or not.
        machine.wait_until(
            lambda: server.asked.count(("db.test.example", 1)) == 2, "a second look")
        assert looks_up() == 2


def test_a_name_that_moves(make_howdah, postgres):
    """Servers at an address that a name no longer has are closed: idle ones at once, others when
    they are given back. The console shows what is known of names."""
    with NameServer(**{"db.test.example": "127.0.0.1"}) as server:
        howdah = make_howdah(
            start=False, dns_max_ttl=600, dns_zone_check_period="0.05", databases={
                "moving": f"host=db.test.example port={postgres.port} dbname=postgres",
                "staying": f"host=127.0.0.1 port={postgres.port} dbname=postgres"})
        use(howdah, server)

        def servers():
            return sorted((row["database"], row["state"])
                          for row in howdah.console("show servers"))
        with howdah.connect(database="moving") as one, howdah.connect(database="moving") as other:
            with howdah.connect(database="staying") as client:
                client.rows("begin")
                one.rows("begin")
                other.rows("begin")
                client.rows("commit")
                other.rows("commit")
                before = one.value("select pg_backend_pid()")
                assert servers() == [
                    ("moving", "active"), ("moving", "idle"), ("staying", "idle")]
                machine.wait_until(
                    lambda: ("test.example", 6) in server.asked, "a look at the zone")
                host, = howdah.console("show dns_hosts")
                assert (host["hostname"], host["addrs"]) == ("db.test.example", "127.0.0.1:0")
                assert 0 < int(host["ttl"]) <= 600
                assert howdah.console("show dns_zones") == [
                    {"zonename": "test.example", "serial": "1", "count": "1"}]
                lists = {row["list"]: row["items"] for row in howdah.console("show lists")}
                assert (lists["dns_names"], lists["dns_zones"]) == ("1", "1")
                server.names["db.test.example"] = "127.0.0.2"
                server.serial = 2
                machine.wait_until(
                    lambda: servers() == [("moving", "active"), ("staying", "idle")],
                    "the idle server's end")
                assert one.value("select pg_backend_pid()") == before
                one.rows("commit")
                machine.wait_until(
                    lambda: servers() == [("staying", "idle")], "the other's end")
        howdah.wait_for_log("closing because: database configuration changed")
