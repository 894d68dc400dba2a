"""`./run`, but for the build: Howdah in front of a PostgreSQL of its own, or of the user's."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from conftest import HERE, PROGRAM
from harness import machine

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow, pytest.mark.own]

ODD_DATABASE = "it's a \"b\""
ODD_PASSWORD = "p@ss w'o\"rd/:?#%"


def start(*arguments):
    """Starts it as ./run does."""
    environment = {**os.environ, "PYTHONPATH": HERE, "PYTHONUNBUFFERED": "1"}
    return machine.spawn([sys.executable, "-m", "harness.demo", "--howdah", PROGRAM, *arguments],
                         as_user=False, env=environment, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def once(*arguments):
    """Lets it run to its end; gives exit code and output."""
    child = start("--once", *arguments)
    output, _ = child.communicate()
    return child.returncode, output


def looks_right(said):
    """Both measurements without a failed transaction, and how to connect."""
    for name in ("PostgreSQL", "through Howdah"):
        row = re.search(rf"^{name} +([\d,]+) +[\d.]+ +(\d+) +(\d+)$", said, re.M)
        assert row and row.group(1) != "0" and row.group(2) == "0", said
    assert re.search(r"Howdah used [\d.]+ µs of CPU per transaction", said), said
    assert "psql 'postgres://" in said and "SHOW POOLS" in said, said
    crowd = r"^500 clients on \d+ connections to PostgreSQL: [\d,]+ transactions, .* 0 errors\.$"
    assert re.search(crowd, said, re.M), said


def test_until_interrupted(system_programs):
    """What it prints connects; Ctrl-C ends it and all its children, and nothing is left behind."""
    child = start()
    said = ""
    for line in child.stdout:
        said += line
        if "Ctrl-C ends everything" in line:
            break
    looks_right(said)
    for line in re.findall(r"psql '(postgres://[^']+)'", said):
        sql = "SHOW VERSION" if line.endswith("pgbouncer") else "select 'Howdah 1'"
        assert "Howdah" in machine.run([system_programs.path("psql"), line, "-Atc", sql])
    with urllib.request.urlopen(re.search(r"Page: +(http://\S+)", said).group(1)) as page:
        assert b"<title>" in page.read()
    port = int(re.search(r"@127.0.0.1:(\d+)/", said).group(1))
    child.send_signal(signal.SIGINT)
    rest, _ = child.communicate()
    assert child.returncode == 0, rest
    assert not os.path.exists(re.search(r"Config: +(/tmp/[^/]+)/", said).group(1))
    with pytest.raises(RuntimeError):
        machine.run([system_programs.path("psql"), f"postgres://x@127.0.0.1:{port}/x", "-c", ""])


def test_to_an_odd_database(own_postgres, system_programs):
    """Names and passwords that must be quoted everywhere."""
    name, word = ODD_DATABASE.replace('"', '""'), ODD_PASSWORD.replace("'", "''")
    own_postgres.sql(f"create role admin login password '{word}'")
    own_postgres.sql(f'create database "{name}"')
    own_postgres.write_hba("local all all trust", "host all postgres all trust",
                           "host all all 127.0.0.1/32 scram-sha-256")
    own_postgres.reload()
    quote = "".join(f"%{byte:02X}" for byte in ODD_PASSWORD.encode())
    database = "".join(f"%{byte:02X}" for byte in ODD_DATABASE.encode())
    url = f"postgres://admin:{quote}@127.0.0.1:{own_postgres.port}/{database}?sslmode=disable"
    before = own_postgres.sql("select count(*) from pg_class")
    code, said = once("--to", url)
    assert code == 0, said
    looks_right(said)
    printed = re.search(r"Connect: +psql 'postgres://admin:([^@]*)@[^/]*/(.*)'", said)
    assert printed.group(1) == "p%40ss%20w%27o%22rd%2F%3A%3F%23%25", said
    assert own_postgres.sql("select count(*) from pg_class") == before
    # By the unix socket, which stands behind the question mark.
    url = f"postgres:///postgres?host={own_postgres.socket_folder}&port={own_postgres.port}" \
        "&user=postgres"
    code, said = once("--to", url)
    assert code == 0, said
    looks_right(said)


def test_to_where_tls_is_demanded(own_postgres, authority):
    """As libpq, by the words of the URL."""
    own_postgres.sql("create role ann login")
    own_postgres.use_tls(authority.issue(), hba=["host all postgres 127.0.0.1/32 trust",
                                                 "hostssl all ann 127.0.0.1/32 trust"])
    url = f"postgres://ann@127.0.0.1:{own_postgres.port}/postgres?sslmode="
    code, said = once("--to", f"{url}verify-full&sslrootcert={authority.certificate}")
    assert code == 0, said
    looks_right(said)
    code, said = once("--to", f"{url}disable")
    assert code == 1 and "no encryption" in said, said


@pytest.mark.parametrize("url, said", [
    ("mysql://x@y/z", "postgres://"),
    ("postgres://u@127.0.0.1:x/z", "port"),
    ("postgres://u@127.0.0.1/z?sslmode=always", "verify-full"),
    ("postgres://u@127.0.0.1/z?sslrootcert=/nonexistent/ca.pem", "/nonexistent/ca.pem"),
    ("postgres://u@127.0.0.1:1/z", "refused"),
])
def test_to_where_nobody_is(url, said):
    """One clear sentence, and a failure."""
    code, output = once("--to", url)
    assert code == 1 and said in output, output


@pytest.mark.parametrize("script", ["test", "run", "bench", "prove sim"])
def test_what_the_build_needs(script, tmp_path):
    """Each script that builds says what the build lacks, instead of the linker."""
    for name, body in (("cc", "exit 1"), ("id", "echo 1000")):
        stub = tmp_path / name
        stub.write_text(f"#!/bin/sh\n{body}\n")
        stub.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    name, *arguments = script.split()
    child = machine.spawn([os.path.join(os.path.dirname(HERE), name), *arguments],
                          as_user=False, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, _ = child.communicate()
    assert child.returncode != 0 and re.search("install.* libpam0g-dev", said), said
