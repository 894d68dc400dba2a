"""`howdah top`: the terminal's view over the console."""

import fcntl
import json
import os
import pty
import shutil
import socket
import struct
import subprocess
import termios
import threading
import urllib.request

import pytest

from harness import certificates, machine, wire
from harness.howdah import ADMIN, Howdah

pytestmark = [pytest.mark.timeout(60), pytest.mark.own, pytest.mark.one_driver]


def url(howdah):
    return f"postgresql://{ADMIN}:secret@{howdah.host}:{howdah.port}/pgbouncer"


def test_once_as_json_tells_the_cause_of_a_full_pool(make_howdah):
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect(application_name="export") as holder, \
            howdah.connect(application_name="till") as waiter:
        holder.ask(wire.query("BEGIN"))
        waiter.send(wire.query("SELECT 1"))
        howdah.wait_for_pool(cl_waiting=1)
        code, output = howdah.run_to_end("top", "--once", "--json", "--interval=0.2", url(howdah))
        assert code == 0, output
        seen = json.loads(output)
        pool = next(row for row in seen["pools"] if row["database"] == "postgres")
        assert (pool["clients_waiting"], pool["wait_reason"], pool["servers_active"]) == (
            1, "pool_full", 1)
        assert 0 < pool["longest_wait_seconds"] < 60 and pool["pool_size"] == 1
        assert seen["summary"]["wait_mean_seconds"] > 0, "the wait that is not over counts"
        assert [row["application"] for row in seen["clients"] if row["state"] == "waiting"] == ["till"]
        assert [(row["application"], row["state"]) for row in seen["holders"]] == [
            ("export", "idle in transaction")]
        code, output = howdah.run_to_end("top", "--once", "--interval=0.2", url(howdah))
        assert code == 0 and "1 clients wait of 2" in output and "pool_full" in output, output
        lines = [line.split() for line in output.splitlines()]
        pools = [line[0] for line in lines if line[-1:] in (["transaction"], ["statement"])]
        assert pools == ["postgres", "pgbouncer"], "who waits first"
        assert [line[0] for line in lines if "export" in line] == ["postgres/postgres:", "holds"]
        assert [line[0] for line in lines if "till" in line] == ["waits"]


def test_five_problems_are_told_apart(make_howdah, postgres):
    """What an operator meets in a bad hour: top and the page say what it is, and what would help."""
    there = f"host={postgres.host} port={postgres.port} dbname=postgres"
    http = machine.free_port()
    howdah = make_howdah(
        databases={"small": f"{there} pool_size=1", "idle": f"{there} pool_size=2",
                   "slow": f"{there} pool_size=1", "kept": f"{there} pool_size=3",
                   "down": f"host=127.0.0.1 port={machine.free_port()}"},
        http_listen_port=http, http_page=1, top_queries=50, query_wait_timeout=0)
    told = {}

    def tells(database, *words):
        """Waits until top has a verdict on the database with these words."""
        def seen():
            code, output = howdah.run_to_end("top", "--once", "--json", "--interval=0.1", url(howdah))
            assert code == 0, output
            told.update(json.loads(output))
            verdicts = [one["text"] for one in told["verdicts"] if one["database"] == database]
            return verdicts and all(word in verdicts[0] for word in words)
        machine.wait_until(seen, f"top to say {words} of {database}; {told.get('verdicts')}")

    opened, loads, enough = [], [], threading.Event()

    def connect(database, name):
        opened.append(howdah.connect(database=database, application_name=name))
        return opened[-1]

    def asks_on(client):
        while not enough.is_set():
            client.ask(wire.query("SELECT pg_sleep(0.05)"))
    try:
        connect("idle", "billing").ask(wire.query("BEGIN"))
        connect("idle", "billing").ask(wire.query("BEGIN"))
        connect("slow", "report").send(wire.query("SELECT pg_sleep(600)"))
        for _ in range(2):
            connect("kept", "etl").ask(wire.query("CREATE TEMP TABLE t (a int)"))
        connect("kept", "web").ask(wire.query("BEGIN"))
        for database in ("idle", "slow", "kept"):
            connect(database, "waits").send(wire.query("SELECT 1"))
        login = howdah.raw()
        opened.append(login)
        login.send(wire.startup("postgres", "down"))
        tells("idle", "the pool of 2 is full", "2 of 2 are held idle in transaction",
              "by billing for", "a larger pool would not help")
        tells("slow", "all 1 are busy", "report for", "`select pg_sleep(?)`", "a faster query")
        tells("kept", "2 of 3 are kept idle for temporary objects", "by etl")
        tells("down", "refused")
        holders = {(row["database"], row["application"]): row for row in told["holders"]}
        assert holders["kept", "etl"]["kept_for"] == "temporary objects"
        assert holders["idle", "billing"]["query"] == "begin"
        # A pool that is too small for many short queries.
        for _ in range(3):
            loads.append(threading.Thread(target=asks_on, args=[connect("small", "web")]))
            loads[-1].start()
        tells("small", "all 1 are busy: a larger pool would help, if PostgreSQL has CPU to spare")

        def page_says():
            with urllib.request.urlopen(f"http://127.0.0.1:{http}/page.json") as answer:
                page = json.load(answer)
            return {one["database"] for one in page["verdicts"]} == set(howdah.sections["databases"])
        machine.wait_until(page_says, "the page to say the same")
    finally:
        enough.set()
        for load in loads:
            load.join()
        for client in opened:
            client.close()


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_names_cannot_command_the_terminal(make_howdah, form):
    """Control characters in names that anybody can give come out as escapes."""
    howdah = make_howdah(default_pool_size=1)
    name = "x\x1b]0;owned\x07\x9b31mred"
    with howdah.connect(application_name=name) as holder, \
            howdah.connect(application_name=name) as waiter:
        holder.ask(wire.query("BEGIN"))
        waiter.send(wire.query("SELECT 1"))
        howdah.wait_for_pool(cl_waiting=1)
        code, output = howdah.run_to_end("top", "--once", *form, "--interval=0.2", url(howdah))
    assert code == 0 and "owned" in output, output
    assert not [c for c in output if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)], output


def test_nothing_to_see_is_told_as_zero(make_howdah):
    howdah = make_howdah()
    code, output = howdah.run_to_end("top", "--once", "--interval=0.2", url(howdah))
    assert code == 0 and "0 tx/s, 0 q/s; 0 clients wait of 0;" in output, output
    assert "-0" not in output.splitlines()[0], output


def test_queries_that_take_the_most(make_howdah):
    howdah = make_howdah(top_queries=100)
    with howdah.connect() as client:
        client.ask(wire.query("SELECT 1"))
        client.ask(wire.query("SELECT 'x'"))
        # As a driver that wants one value: PostgreSQL stops behind the first row.
        client.ask(wire.parse("SELECT generate_series(1, 9)"), wire.bind(), wire.execute(rows=1),
                   wire.sync())
        code, output = howdah.run_to_end("top", "--once", "--json", "--interval=0.2", url(howdah))
    assert code == 0, output
    rows = {row["query"]: row for row in json.loads(output)["queries"]}
    row = rows["select ?"]
    assert rows["select generate_series(?, ...)"]["rows"] == 1
    assert (row["calls"], row["database"], row["errors"]) == (2, "postgres", 0)


@pytest.mark.parametrize("mode, comes_in", [
    ("disable", False), ("prefer", True), ("require", True), ("verify-ca", True),
    ("verify-full", True)])
def test_tls_to_the_console(make_howdah, authority, mode, comes_in):
    site = authority.issue()
    howdah = make_howdah(client_tls_sslmode="require", client_tls_key_file=site.key,
                         client_tls_cert_file=site.chain, read_driver=False)
    target = f"{url(howdah)}?sslmode={mode}&sslrootcert={authority.certificate}"
    target = target.replace("127.0.0.1", "localhost")
    code, output = howdah.run_to_end("top", "--once", "--interval=0.1", target)
    assert (code == 0) == comes_in, output
    if not comes_in:
        assert "SSL required" in output


def test_a_certificate_that_will_not_do(make_howdah, authority, scratch):
    stranger = certificates.Authority(scratch, "top-stranger", subject="/CN=Stranger")
    for signer, names in ((stranger, None), (authority, ["DNS:elsewhere.example"])):
        site = signer.issue(names=names) if names else signer.issue()
        howdah = make_howdah(client_tls_sslmode="require", client_tls_key_file=site.key,
                             client_tls_cert_file=site.chain, read_driver=False)
        words = f"sslmode=verify-full&sslrootcert={authority.certificate}"
        code, output = howdah.run_to_end("top", "--once", f"{url(howdah)}?{words}")
        assert code == 1 and "certificate" in output and "panicked" not in output, output


def test_against_pgbouncer(make_howdah, scratch, postgres):
    """Columns that PgBouncer has not are left out; the rest is there."""
    program = os.environ.get("PGBOUNCER") or shutil.which("pgbouncer")
    if not program:
        pytest.skip("PgBouncer is missing (PGBOUNCER=its path)")
    howdah = make_howdah(start=False)
    with Howdah(program, scratch, f"bouncer{os.getpid()}", postgres=postgres, default_pool_size=1,
                start=False) as theirs:
        theirs.is_pgbouncer = True
        theirs.sections["pgbouncer"].pop("workers", None)
        theirs.sections["pgbouncer"].pop("io_driver", None)
        theirs.write()
        theirs.start()
        with theirs.connect(application_name="export") as holder, \
                theirs.connect(application_name="till") as waiter:
            holder.ask(wire.query("BEGIN"))
            waiter.send(wire.query("SELECT 1"))
            theirs.wait_for_pool(cl_waiting=1)
            code, output = howdah.run_to_end("top", "--once", "--json", "--interval=0.2",
                                             url(theirs))
            assert code == 0, output
            seen = json.loads(output)
            assert seen["version"].startswith("PgBouncer 1.")
            pool = next(row for row in seen["pools"] if row["database"] == "postgres")
            assert (pool["clients_waiting"], pool["servers_active"], pool["wait_reason"]) == (
                1, 1, None)
            assert {row["application"] for row in seen["clients"]} >= {"export", "till"}
            assert seen["holders"] == [] and seen["queries"] == []
            code, output = howdah.run_to_end("top", "--once", "--interval=0.2", url(theirs))
            assert code == 0 and "1 clients wait of 2" in output, output


def test_what_is_wrong_is_said(make_howdah, postgres):
    howdah = make_howdah()
    web = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=answer_as_http, args=[web], daemon=True).start()
    for arguments, said in [
        (["--once", f"postgresql://{ADMIN}@127.0.0.1:{machine.free_port()}/"], "refused"),
        (["--once", f"postgresql://nobody@{howdah.host}:{howdah.port}/pgbouncer"], "howdah top: "),
        (["--once", "postgresql://x:y:z"], "howdah top: "),
        (["--json"], "--json needs --once"),
        ([url(howdah)], "standard output is no terminal"),
        (["--once", url(howdah).replace("/pgbouncer", "/postgres")], "name the database pgbouncer"),
        (["--once", f"postgresql://postgres@{postgres.host}:{postgres.port}/pgbouncer"],
         "is PostgreSQL, not a pooler"),
        (["--once", f"postgresql://x@127.0.0.1:{web.getsockname()[1]}/?connect_timeout=1"],
         "no answer to the login within 1 s, so it may be no PostgreSQL and no pooler"),
    ]:
        code, output = howdah.run_to_end("top", *arguments)
        assert code == 1 and said in output, (arguments, output)
    code, output = howdah.run_to_end("top", "--help")
    assert code == 0 and "Keys:" in output


def answer_as_http(listener):
    """Answers one connection with what a web server says to bytes that are no request. (To a
    client of PostgreSQL, those look like the beginning of a long message.)"""
    connection, _ = listener.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        while connection.recv(1000):
            pass


def test_a_password_comes_from_the_file_or_the_terminal(make_howdah):
    """Without a word on the command line: the unix socket, the password file, the prompt."""
    howdah = make_howdah(auth_type="scram-sha-256", read_driver=False)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    clean |= {"PGPORT": str(howdah.port), "HOME": howdah.folder}

    def top(*arguments, **environment):
        child = howdah.spawn("top", "--once", "--interval=0.1", *arguments,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, env=clean | environment)
        output, _ = child.communicate(timeout=40)
        return child.returncode, output
    usual = f"/tmp/.s.PGSQL.{howdah.port}"
    os.symlink(howdah.socket_path, usual)
    try:
        code, output = top()
    finally:
        os.unlink(usual)
    assert code == 0 and "tx/s" in output, f"the pooler's own user needs no password: {output}"
    by_tcp = f"postgresql://{ADMIN}@127.0.0.1:{howdah.port}/pgbouncer"
    code, output = top(by_tcp)
    assert code == 1 and "a password is needed" in output, output
    passwords = os.path.join(howdah.folder, ".pgpass")
    with open(passwords, "w") as file:
        file.write(f"# a comment\n127.0.0.1:{howdah.port}:*:{ADMIN}:secret\n")
    machine.hand_over(passwords)
    code, output = top(by_tcp)
    assert code == 1 and "others may read it" in output, output
    os.chmod(passwords, 0o600)
    assert top(by_tcp)[0] == 0
    elsewhere = os.path.join(howdah.folder, "passwords")
    os.rename(passwords, elsewhere)
    assert top(by_tcp, PGPASSFILE=elsewhere)[0] == 0
    ours, theirs = pty.openpty()
    child = subprocess.Popen(["setsid", "--ctty", howdah.program, "top", "--once",
                              "--interval=0.1", by_tcp],
                             stdin=theirs, stdout=theirs, stderr=theirs, env=clean)
    os.close(theirs)
    seen = b""
    while b"Password for admin" not in seen:
        seen += os.read(ours, 65536)
    os.write(ours, b"secret\n")
    try:
        while b"tx/s" not in seen:
            seen += os.read(ours, 65536)
        assert child.wait(30) == 0 and b"secret" not in seen, seen
    finally:
        child.kill()
        os.close(ours)


@pytest.mark.parametrize("columns", [20, 100])
def test_a_terminal_of_any_width(make_howdah, columns):
    howdah = make_howdah()
    with howdah.connect() as client:
        client.ask(wire.query("SELECT 1"))
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 12, columns, 0, 0))
        child = subprocess.Popen([howdah.program, "top", url(howdah)], stdin=theirs, stdout=theirs,
                                 stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm"})
        os.close(theirs)
        seen = b""

        def shows(word):
            nonlocal seen
            while word not in seen:
                seen += os.read(ours, 65536)
            seen = b""
        try:
            shows(b"postgres")
            if columns > 50:
                os.write(ours, b"2")
                shows(b"application")
            os.write(ours, b"?")
            shows(b"Watches")
            os.write(ours, b"xq")
            assert child.wait(30) == 0
        finally:
            child.kill()
            os.close(ours)
