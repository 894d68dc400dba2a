"""The console read by what reads it in the field: drivers with their defaults, which speak the
extended protocol; Prometheus' exporter; the columns that monitoring agents look for."""

import os
import re
import shutil
import subprocess
import urllib.request

import psycopg
import pytest
from psycopg.rows import dict_row

from harness import machine
from harness.howdah import console_rows
from harness.programs import BUILT, PROGRAMS, built

# Building their programs has its own limit.
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.one_driver]

TABLES = ("clients servers sockets active_sockets mem dns_hosts dns_zones config databases lists "
          "peers peer_pools pools state stats stats_totals stats_averages totals users version "
          "workers").split()
READERS = [name for name, program in PROGRAMS.items() if program.console]


@pytest.fixture
def howdah(shared_howdah):
    """One with two workers, and a statement behind it in every counter."""
    howdah = shared_howdah(workers=2, default_pool_size=3)
    with howdah.connect() as client:
        client.rows("select 1")
    return howdah


@pytest.mark.parametrize("name", READERS)
def test_drivers(howdah, name):
    """Each reads every table twice, begins transactions, passes parameters and meets an error."""
    program = built(name)
    lines = program.run_to_end(howdah.host, howdah.port, "admin", "secret", "pgbouncer",
                               command=[*program.console, *TABLES])
    told = [line.split() for line in lines]
    assert [name for name, _ in told] == TABLES * 2 + ["end"]
    rows = {name: int(count) for name, count in told}
    assert rows["version"] == 1 and rows["workers"] == 2 and rows["config"] > 80, rows
    assert rows["pools"] >= 2 and rows["clients"] >= 1 and rows["lists"] == 14, rows


EXPORTER = "github.com/prometheus-community/pgbouncer_exporter"
EXPORTER_VERSION = "v0.12.1"


@pytest.fixture(scope="module")
def exporter():
    """The program, fetched by Go when it is not there; PGBOUNCER_EXPORTER names another one."""
    if named := os.environ.get("PGBOUNCER_EXPORTER"):
        return named
    folder = os.path.join(BUILT, f"pgbouncer_exporter-{EXPORTER_VERSION}")
    path = os.path.join(folder, "pgbouncer_exporter")
    if not os.path.exists(path):
        if not shutil.which("go"):
            pytest.skip("go is missing, which fetches and builds the exporter")
        done = subprocess.run(["go", "install", f"{EXPORTER}@{EXPORTER_VERSION}"],
                              env={**os.environ, "GOBIN": folder}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            pytest.skip(f"the Go module proxy does not give the exporter: {done.stdout[-300:]}")
    return path


def metrics(text):
    """{name: {(sorted labels): value}} of an exposition."""
    found = {}
    for line in text.splitlines():
        if match := re.fullmatch(r'(\w+)(?:\{(.*)\})? (\S+)', line):
            labels = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', match[2] or "")))
            found.setdefault(match[1], {})[labels] = float(match[3])
    return found


def test_prometheus_exporter(howdah, exporter):
    """All its collectors succeed, and what it exports is what SHOW tells."""
    port = machine.free_port()
    url = f"postgres://admin:secret@{howdah.host}:{howdah.port}/pgbouncer?sslmode=disable"
    child = subprocess.Popen(
        [exporter, f"--web.listen-address=127.0.0.1:{port}",
         f"--pgBouncer.connectionString={url}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    scraped = []

    def scrape():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                scraped.append(page.read().decode())
            return True
        except OSError:
            assert child.poll() is None, child.stderr.read()
            return False

    try:
        with howdah.connect() as client:
            client.rows("begin")
            client.rows("select 1")
            machine.wait_until(scrape, "the exporter to answer")
            client.rows("commit")
    finally:
        child.terminate()
        log = child.communicate()[1]
    assert not re.search(r"level=(ERROR|WARN)", log, re.IGNORECASE), log
    got = metrics(scraped[0])
    assert got["pgbouncer_up"] == {(): 1}
    assert list(got["pgbouncer_version_info"].values()) == [1]
    pool = (("database", "postgres"), ("user", "postgres"))
    assert got["pgbouncer_pools_client_active_connections"][pool] == 1
    assert got["pgbouncer_pools_server_active_connections"][pool] == 1
    assert got["pgbouncer_pools_client_waiting_connections"][pool] == 0
    database = (("database", "postgres"),)
    assert got["pgbouncer_stats_totals_queries_pooled_total"][database] >= 3
    assert got["pgbouncer_stats_totals_sent_bytes_total"][database] > 0
    assert got["pgbouncer_config_max_client_connections"] == {(): 100}
    sizes = {dict(labels)["name"]: value
             for labels, value in got["pgbouncer_databases_pool_size"].items()}
    with howdah.connect(user="admin", database="pgbouncer", password="secret") as console:
        shown = {row["name"]: int(row["pool_size"]) for row in console_rows(console,
                                                                            "SHOW DATABASES")}
        lists = {row["list"]: int(row["items"]) for row in console_rows(console, "SHOW LISTS")}
    assert sizes == shown
    assert got["pgbouncer_databases"] == {(): lists["databases"]}
    assert got["pgbouncer_users"] == {(): lists["users"]}


# What monitoring agents read, by name. Telegraf and Datadog skip what is missing without a word.
AGENTS = {
    "telegraf": {
        "STATS": "database total_query_count total_query_time total_received total_sent "
                 "total_wait_time total_xact_count total_xact_time avg_query_count avg_query_time "
                 "avg_recv avg_sent avg_wait_time avg_xact_count avg_xact_time",
        "POOLS": "database user cl_active cl_waiting maxwait maxwait_us pool_mode sv_active sv_idle "
                 "sv_login sv_tested sv_used",
        "LISTS": "list items",
        "DATABASES": "name host port database force_user pool_size reserve_pool_size pool_mode "
                     "max_connections current_connections paused disabled",
    },
    "datadog": {
        "STATS": "database total_query_count total_xact_count total_received total_sent "
                 "total_query_time total_xact_time total_wait_time avg_query_count avg_xact_count "
                 "avg_recv avg_sent avg_query_time avg_xact_time avg_wait_time",
        "POOLS": "database user cl_active cl_waiting sv_active sv_idle sv_used sv_tested sv_login "
                 "maxwait maxwait_us",
        "DATABASES": "name pool_size max_connections current_connections",
        "VERSION": "version",
    },
}


@pytest.mark.parametrize("agent", AGENTS)
def test_agents(howdah, agent):
    """All columns are there, and what counts is a number to the driver."""
    with psycopg.connect(host=howdah.host, port=howdah.port, user="admin", password="secret",
                         dbname="pgbouncer", autocommit=True, row_factory=dict_row) as console:
        for table, columns in AGENTS[agent].items():
            row = console.execute(f"SHOW {table}", prepare=True).fetchone()
            assert set(columns.split()) <= set(row), table
            for column in columns.split():
                if re.match(r"(total|avg|cl|sv)_|maxwait|items", column):
                    assert int(row[column]) == row[column], (table, column)
    with psycopg.connect(host=howdah.host, port=howdah.port, user="admin", password="secret",
                         dbname="pgbouncer", autocommit=True) as console:
        settings = {row[0] for row in console.execute("SHOW CONFIG")}
    assert {"max_client_conn", "max_user_connections", "default_pool_size", "reserve_pool_size",
            "server_idle_timeout", "listen_port"} <= settings
