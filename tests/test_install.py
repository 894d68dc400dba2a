"""The first hour: docs/install.md as a user types it, howdah init, and --check --connect."""

import os
import re
import stat
import subprocess

import pytest

from conftest import PROGRAM
from harness import machine, postgres as pg, wire

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

pytestmark = [pytest.mark.timeout(60), pytest.mark.own]


@pytest.fixture(scope="module")
def server(system_programs, scratch):
    """A PostgreSQL that asks for passwords, as most do."""
    cluster = pg.Postgres(system_programs, scratch, "first")
    cluster.sql("create database shop")
    cluster.sql("alter role postgres password 'secret'; create role silent login;"
                " create role app login password 'other'")
    cluster.write_hba("host all all 127.0.0.1/32 scram-sha-256")
    cluster.sql("select pg_reload_conf()")

    def asks():
        try:
            cluster.connect().close()
        except (wire.Refused, wire.Ended, OSError):
            return True
    machine.wait_until(asks, "PostgreSQL to ask for passwords")
    yield cluster
    cluster.stop()


class Newcomer:
    """Somebody with an empty folder, Howdah and psql on the PATH, and a password in mind."""

    def __init__(self, scratch, server):
        self.folder = machine.folder(scratch, "newcomer")
        self.port, self.http_port = machine.free_port(), machine.free_port()
        self.server, self.running = server, None
        program = machine.readable_copy(PROGRAM, scratch)
        path = [os.path.dirname(program), server.programs.bin, os.environ["PATH"]]
        self.environment = {**os.environ, "PATH": ":".join(path), "HOME": self.folder,
                            "PGPASSWORD": "secret"}

    def here(self, text):
        """What must differ from the page: ports, and that there is no terminal."""
        for ours, theirs in [("5432", self.server.port), ("6432", self.port),
                             ("9127", self.http_port)]:
            text = re.sub(rf"\b{ours}\b", str(theirs), text)
        ports = f"howdah init --port={self.port} --http-port={self.http_port} "
        text = text.replace("howdah init ", ports)
        once = f"PGPORT={self.port} howdah top --once --interval=0.1"
        return re.sub(r"howdah top$", once, text)

    def file(self, name):
        return os.path.join(self.folder, name)

    def run(self, line, **environment):
        """Runs a line of the shell; exit code and what it said."""
        child = machine.spawn(["sh", "-c", line], cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**self.environment, **environment})
        said, _ = child.communicate(timeout=40)
        return child.returncode, said

    def start(self, line):
        """What stays in the foreground, in a terminal of its own."""
        with open(self.file("log"), "w") as log:
            self.running = machine.spawn(line.split(), cwd=self.folder, stdin=subprocess.DEVNULL,
                                         stdout=log, stderr=log, env=self.environment)

        def listens():
            with open(self.file("log")) as log:
                assert self.running.poll() is None, log.read()
            try:
                wire.Wire(("127.0.0.1", self.port)).close()
                return True
            except OSError:
                return False
        machine.wait_until(listens, "Howdah to listen")

    def play(self, text):
        """Types a chapter: files are written, lines of the shell run, all of them succeed."""
        outputs = []
        for ini, line in re.findall(r"^```ini\n(.*?)^```|^    (\S[^\n]*)$", text, re.M | re.S):
            if ini:
                with open(self.file("howdah.ini"), "w") as file:
                    file.write(self.here(ini))
                machine.hand_over(self.file("howdah.ini"))
            elif line == "howdah howdah.ini":
                self.start(line)
            else:
                code, said = self.run(self.here(line))
                assert code == 0, f"{line}:\n{said}"
                outputs.append(said)
        return outputs

    def leave(self):
        if self.running:
            machine.end(self.running)


@pytest.fixture
def newcomer(scratch, server):
    person = Newcomer(scratch, server)
    yield person
    person.leave()


def chapter(title):
    """A chapter of the page, up to the next heading of its level or above."""
    with open(os.path.join(ROOT, "docs", "install.md")) as file:
        page = file.read()
    level, rest = re.search(rf"^(#+) {re.escape(title)}\n(.*)", page, re.M | re.S).groups()
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.M)[0]


@pytest.mark.parametrize("way", ["With `howdah init`", "By hand"])
def test_the_page_as_written(newcomer, way):
    """From an empty folder to a query, the console, `top` and /ready."""
    run_it = chapter("Run it").split("\n### ")[0]
    outputs = newcomer.play(chapter(way) + chapter("Check it") + run_it
                            + chapter("See that it works"))
    checked, connected = [said for said in outputs if "configuration OK" in said]
    assert "WARNING" not in checked and "ERROR" not in checked, checked
    assert f"at 127.0.0.1:{newcomer.server.port}: connected" in connected, connected
    assert "select 1" not in outputs[-4] and "1 row" in outputs[-4]
    assert "pgbouncer" in outputs[-3] and "pgbouncer" in outputs[-2]
    assert outputs[-1].strip(), "/ready answers"
    # Users other than the one that init came as log in, too, with what PostgreSQL stores.
    code, said = newcomer.run(newcomer.here("psql -p 6432 -h 127.0.0.1 -U app -Atc 'select 6*7' shop"),
                              PGPASSWORD="other")
    assert (code, said.strip()) == (0, "42")
    if "init" in way:
        assert stat.S_IMODE(os.stat(newcomer.file("userlist.txt")).st_mode) == 0o600
        # What it printed works, too.
        query = re.search(r"^query:  (.*)$", outputs[0], re.M)[1]
        assert newcomer.run(f"{query} -Atc 'select 1'") == (0, "1\n")
        assert "without a login here: silent" in outputs[0]


def test_init_writes_both_files_or_none(newcomer):
    """Never over a file; and what is wrong is said."""
    url = newcomer.here("howdah init postgres://postgres@127.0.0.1:5432")
    with open(newcomer.file("userlist.txt"), "w") as file:
        file.write("mine")
    code, said = newcomer.run(url)
    assert code == 1 and "userlist.txt is there already" in said, said
    assert sorted(os.listdir(newcomer.folder)) == ["userlist.txt"]
    os.unlink(newcomer.file("userlist.txt"))
    code, said = newcomer.run(url, PGPASSWORD="wrong")
    assert code == 1 and "password authentication failed" in said, said
    assert os.listdir(newcomer.folder) == []


def test_init_without_a_superuser(newcomer):
    """Secrets can't be read: the one who asks gets in, and the rest is advice."""
    url = newcomer.here("howdah init postgres://app@127.0.0.1:5432/shop --dir=new")
    code, said = newcomer.run(url, PGPASSWORD="other")
    assert code == 0 and "app may not read pg_authid" in said, said
    newcomer.start("howdah new/howdah.ini")
    query = re.search(r"^query:  (.*)$", said, re.M)[1]
    assert newcomer.run(f"{query} -Atc 'select 1'", PGPASSWORD="other") == (0, "1\n")
    code, said = newcomer.run("howdah --check --connect new/howdah.ini")
    assert code == 0 and "logged in as app" in said, said
    assert re.search(r"OK 127.0.0.1:\d+: pools may open \d+ of the 117 connections", said), said


def test_what_is_out_of_reach(newcomer):
    """--check --connect: a line for each host with what failed and what helps; exit code 2."""
    server = newcomer.server
    with open(newcomer.file("a.ini"), "w") as file:
        file.write("[databases]\n"
                   f"refused = host=127.0.0.1 port={newcomer.port}\n"
                   f"nameless = host={machine.NO_HOST}\n"
                   f"plain = host=127.0.0.1 port={server.port} sslmode=require\n"
                   f"wrong = host=127.0.0.1 port={server.port} user=app password=hush dbname=shop\n"
                   f"absent = host=127.0.0.1 port={server.port} user=app password=other\n"
                   f"good = host=127.0.0.1 port={server.port} user=app password=other dbname=shop pool_size=200\n"
                   "[pgbouncer]\nlisten_addr = 127.0.0.1\nauth_type = any\n")
    # The environment is psql's, not the pooler's.
    code, said = newcomer.run("howdah --check --connect a.ini", PGSSLCERT="/nonexistent")
    assert code == 2 and "hush" not in said, said
    for pattern in [r"FAIL refused at .*Connection refused: nothing listens there",
                    r"FAIL nameless at .*check host=",
                    r"FAIL plain at .*offers no TLS.*set ssl = on",
                    r"FAIL wrong at .*password authentication failed.*not the one",
                    r"FAIL absent at .*does not exist.*write dbname=",
                    r"OK good at .*logged in as app",
                    r"WARNING 127.0.0.1:\d+: pools may open 260 servers.*leaves 117"]:
        assert re.search(pattern, said), f"{pattern}:\n{said}"


def test_names_for_other_name_servers_are_skipped(newcomer):
    """Only Howdah asks those of resolv_conf."""
    with open(newcomer.file("resolv.conf"), "w") as file:
        file.write("nameserver 127.0.0.1\n")
    with open(newcomer.file("a.ini"), "w") as file:
        file.write(f"[databases]\na = host={machine.NO_HOST}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
                   "auth_type = any\nresolv_conf = resolv.conf\n")
    code, said = newcomer.run("howdah --check --connect a.ini")
    assert code == 0 and f"SKIP a at {machine.NO_HOST}:5432: " in said, said
