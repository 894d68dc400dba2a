"""`howdah top`: the terminal's view over the console."""

import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import termios

import pytest

from harness import certificates, machine, wire
from harness.howdah import ADMIN, Howdah

pytestmark = [pytest.mark.timeout(60), pytest.mark.own]


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
        assert (pool["waiting"], pool["why"], pool["active"]) == ("1", "pool_full", "1")
        assert [row["application"] for row in seen["clients"] if row["state"] == "waiting"] == ["till"]
        assert [(row["application"], row["state"]) for row in seen["holders"]] == [
            ("export", "idle in transaction")]
        code, output = howdah.run_to_end("top", "--once", "--interval=0.2", url(howdah))
        assert code == 0 and "1 clients wait of 2" in output and "pool_full" in output, output
        lines = [line.split() for line in output.splitlines()]
        pools = [line[0] for line in lines if line[-1:] in (["transaction"], ["statement"])]
        assert pools == ["postgres", "pgbouncer"], "who waits first"
        assert [line[0] for line in lines if "export" in line] == ["holds"]
        assert [line[0] for line in lines if "till" in line] == ["waits"]


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
        code, output = howdah.run_to_end("top", "--once", "--json", "--interval=0.2", url(howdah))
    assert code == 0, output
    row = next(row for row in json.loads(output)["queries"] if row["query"] == "select ?")
    assert (row["calls"], row["database"], row["errors"]) == ("2", "postgres", "0")


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
            assert (pool["waiting"], pool["active"], pool["why"]) == ("1", "1", "")
            assert {row["application"] for row in seen["clients"]} >= {"export", "till"}
            assert seen["holders"] == [] and seen["queries"] == []
            code, output = howdah.run_to_end("top", "--once", "--interval=0.2", url(theirs))
            assert code == 0 and "1 clients wait of 2" in output, output


def test_what_is_wrong_is_said(make_howdah):
    howdah = make_howdah()
    for arguments, said in [
        (["--once", f"postgresql://{ADMIN}@127.0.0.1:{machine.free_port()}/"], "refused"),
        (["--once", f"postgresql://nobody@{howdah.host}:{howdah.port}/pgbouncer"], "howdah top: "),
        (["--once", "postgresql://x:y:z"], "howdah top: "),
        (["--json"], "--json needs --once"),
        ([url(howdah)], "standard output is no terminal"),
    ]:
        code, output = howdah.run_to_end("top", *arguments)
        assert code == 1 and said in output, (arguments, output)
    code, output = howdah.run_to_end("top", "--help")
    assert code == 0 and "Keys:" in output


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
