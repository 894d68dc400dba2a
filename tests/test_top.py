"""`howdah top`: the terminal's view over the console."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios

import pytest

from harness import machine, wire
from harness.howdah import ADMIN

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
            assert child.wait(10) == 0
        finally:
            child.kill()
            os.close(ours)
