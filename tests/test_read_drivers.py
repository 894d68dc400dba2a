"""Drivers with their defaults, transparent scripts, psql and pgbench: with single reads at standbys
all of them see what they see directly at the primary."""

import asyncio
import re

import asyncpg
import psycopg
import pytest

import test_drivers
import test_frameworks
from conftest import prepare, unique_name
from harness import machine, postgres as pg, wire
from harness.programs import FRAMEWORKS, PROGRAMS, built
from test_drivers import DATABASE, PASSWORD, SERVERS, USER
from test_metrics import metrics
from test_psql_pgbench import pgbench, psql
from test_reads import reads_at_standbys
from test_roles import Trio
from test_transparent import CUTS, SCRIPTS, Interloper, compare, play, sender

HTTP_PORT = machine.free_port()

# Building their programs has its own limit.
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.one_driver]


@pytest.fixture(scope="module")
def hosts(programs, scratch, request):
    """A primary of the newest version found, and two standbys."""
    # Without synchronous_commit, standbys get a commit up to wal_writer_delay later.
    first = pg.Postgres(programs[max(programs)], scratch, unique_name(request, "pg"),
                        synchronous_commit="on", autovacuum="off")
    prepare(first)
    first.sql(f"create role {USER} login superuser password '{PASSWORD}'")
    first.sql(f"create database {DATABASE} owner {USER}")
    found = Trio(first, scratch)
    yield found
    found.stop()
    first.stop()


@pytest.fixture(scope="module")
def routed(shared_howdah, hosts):
    """A Howdah whose single reads go to standbys; reads wait for these."""
    def start(**settings):
        ports = ",".join(str(host.port) for host in hosts.hosts)
        at = f"host={','.join(['127.0.0.1'] * 3)} port={ports} target_session_attrs=primary"
        howdah = shared_howdah(postgres=hosts.first, databases={"*": at}, host_check_user="checker",
                               read_routing="statements", read_consistency="session", read_wait=1,
                               **settings)
        with howdah.connect(password="secret") as client:
            # A standby gets reads once it has shown what somebody has seen.
            reads_at_standbys(client, hosts)
        return howdah
    return start


def checkouts(howdah, hosts):
    """How often clients got a server of a standby."""
    standbys = {str(host.port) for host in hosts.others}
    return sum(int(row["checkouts"]) for row in howdah.console("SHOW HOSTS")
               if row["port"] in standbys)


WHERE = "select inet_server_port(), count(*) from written"


def test_psycopg_read_only(routed, hosts):
    """`read_only = True`: a standby, which shows what the connection has written."""
    howdah = routed()
    standbys = {host.port for host in hosts.others}
    hosts.first.sql("truncate written")
    with psycopg.connect(howdah.url()) as conn:
        for turn in range(1, 51):
            conn.read_only = False
            conn.execute("insert into written values (%s)", (turn,))
            conn.commit()
            conn.read_only = True
            port, count = conn.execute(WHERE).fetchone()
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                conn.execute("insert into written values (0)")
            conn.rollback()
            assert port in standbys and count == turn, (turn, port, count)


def test_asyncpg_read_only(routed, hosts):
    """`transaction(readonly=True)`: a standby, which shows what the connection has written."""
    howdah = routed()
    standbys = {host.port for host in hosts.others}
    hosts.first.sql("truncate written")

    async def work():
        conn = await asyncpg.connect(howdah.url())
        for turn in range(1, 51):
            async with conn.transaction():
                await conn.execute("insert into written values ($1)", turn)
            async with conn.transaction(readonly=True):
                port, count = await conn.fetchrow(WHERE)
            assert port in standbys and count == turn, (turn, port, count)
        await conn.close()
    asyncio.run(work())


# Scripts ----------------------------------------------------------------------------------------


# Howdah parses the statement there anew, as it does on another server of one host: PostgreSQL refuses
# the Parse with the same error from another line of its source.
OTHER_LINES = ["a known statement in a failed transaction"]


def without_lines(steps):
    """The messages of each step; errors as their fields without the lines of PostgreSQL's source."""
    def plain(got):
        if got.tag != "E":
            return got
        fields = {key: value for key, value in got.fields().items() if key not in "FLR"}
        return wire.Message("E", repr(fields).encode())
    return [[plain(got) for got in step] for step in steps]


# A client that was never told columns gets the new ones, and no 0A000, from a server that lacks its
# statement, as in a pool of two servers of one host. Which standby serves a read is chance.
LATE = pytest.mark.xfail(strict=False, reason="parsed late, and never described")
SCRIPT_CASES = [pytest.param(name, marks=LATE if name == "result type changes under a statement" else ())
                for name in SCRIPTS]
CASES = [pytest.param(workers, cut, marks=() if (workers, cut) == (1, "whole") else pytest.mark.long)
         for workers in (1, 3) for cut in CUTS]


@pytest.mark.parametrize("workers, cut", CASES)
@pytest.mark.parametrize("name", SCRIPT_CASES)
def test_same_replies(routed, hosts, name, workers, cut):
    """The transparent scripts, with another client in the same pools."""
    both(routed(workers=workers, default_pool_size=workers), hosts, name, cut)


def both(howdah, hosts, name, cut="whole"):
    """Plays a script directly and through, and compares. Gives how many of its reads were at standbys."""
    direct = play(hosts.first.connect(), SCRIPTS[name])
    before = checkouts(howdah, hosts)
    with Interloper(howdah) as interloper:
        through = play(wire.connect(howdah.socket_path, "postgres", "postgres"), SCRIPTS[name],
                       interloper, sender(cut, name))
    if name in OTHER_LINES:
        direct, through = without_lines(direct), without_lines(through)
    compare(direct, through)
    howdah.wait_for_pool(cl_active=0, cl_waiting=0, sv_active=0)
    # Each turn of the other client has one single read.
    return checkouts(howdah, hosts) - before - interloper.turn


@pytest.mark.parametrize("name, count", [
    ("simple", 2), ("extended", 2), ("extended binary", 2), ("large row", 2), ("named", 4),
    ("named twice", 4), ("unnamed parsed, then bound in the next group", 4), ("execute errors", 2)])
def test_scripts_read_at_standbys(routed, hosts, name, count):
    """So many steps of these scripts are read at standbys, with the query at the end."""
    howdah = routed(workers=1, default_pool_size=1)
    machine.wait_until(lambda: both(howdah, hosts, name) >= count, "reads at standbys")


# psql and pgbench -------------------------------------------------------------------------------


def test_psql(routed, hosts, scratch):
    """A session of psql prints the same."""
    howdah = routed(default_pool_size=2)
    programs = hosts.first.programs
    through = psql(programs, howdah.port, "postgres", scratch)
    assert through == psql(programs, hosts.first.port, "postgres", scratch)


@pytest.fixture(scope="module")
def bench(hosts):
    """pgbench's tables, small."""
    hosts.first.sql("create database bench")
    machine.run([hosts.first.programs.path("pgbench"), "-h", hosts.first.host, "-p",
                 str(hosts.first.port), "-U", "postgres", "-i", "-q", "-s", "2", "bench"],
                as_user=False)


def reads(howdah, database):
    """The values of howdah_pool_reads_total of a database, by where they went."""
    found = {}
    for name, value in metrics(howdah).items():
        place = re.fullmatch(r'howdah_pool_reads_total{database="%s",.*to="(.*)"}' % database, name)
        if place:
            found[place.group(1)] = value
    return found


@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
def test_pgbench(routed, hosts, bench, protocol):
    """pgbench's reads are at standbys, whatever the protocol."""
    howdah = routed(workers=2, default_pool_size=4, http_listen_port=HTTP_PORT)
    howdah.http = HTTP_PORT
    machine.wait_until(lambda: metrics(howdah), "metrics")
    before = reads(howdah, "bench")
    done = pgbench(hosts.first.programs, howdah, "-S", "-M", protocol, "-c", "8", "-j", "2", "-T", "3")

    def at_standbys():
        """Reads before a worker knows the database's volatile functions are at the primary, uncounted."""
        return reads(howdah, "bench").get("standby", 0) - before.get("standby", 0)
    machine.wait_until(lambda: at_standbys() > done / 2, "most reads in the metrics")


def test_pgbench_writes(routed, hosts, bench):
    """Its own transactions leave equal sums."""
    howdah = routed(workers=2, default_pool_size=4)
    # A thread for each client: see test_psql_pgbench.py.
    assert pgbench(hosts.first.programs, howdah, "-c", "8", "-j", "8", "-T", "3") > 0
    sums = hosts.first.sql("""select sum(abalance) from pgbench_accounts union all
        select sum(bbalance) from pgbench_branches union all
        select sum(tbalance) from pgbench_tellers""", "bench")
    assert len({row[0] for row in sums}) == 1
    howdah.wait_for_pool("bench", sv_active=0)


# Drivers ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def applied(hosts):
    """The primary waits for standbys where `synchronous_commit` is remote_apply.

    For the programs' connections read what others of them have written, and a standby may lack that
    otherwise.
    """
    hosts.first.sql("alter system set synchronous_standby_names = '2 (*)'")
    hosts.first.sql("select pg_reload_conf()")
    synchronous = "select count(*) from pg_stat_replication where sync_state = 'sync'"
    machine.wait_until(lambda: hosts.first.value(synchronous) == "2", "two synchronous standbys")
    return lambda database: hosts.first.sql(
        f"alter database {database} set synchronous_commit = remote_apply")


# A client that listens keeps its server where a database has several hosts.
POOLS = {name: {"default_pool_size": SERVERS} for name in PROGRAMS} | {
    "ruby-pg": {"default_pool_size": 20}}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_driver(routed, hosts, applied, name):
    """Each program sees what it sees directly."""
    program = built(name)
    wanted = test_drivers.directly(program, hosts.first)
    applied(DATABASE)
    howdah = routed(workers=2, auth_type="scram-sha-256", secrets={USER: PASSWORD}, **POOLS[name])
    before = checkouts(howdah, hosts)
    assert test_drivers.outcome(program, howdah.host, howdah.port) == wanted
    assert checkouts(howdah, hosts) > before, "no read was at a standby"
    howdah.wait_for_pool(DATABASE, USER, cl_active=0, cl_waiting=0, sv_active=0)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework(routed, hosts, applied, name):
    """Each program prints what it prints directly, line by line."""
    program = built(name)
    wanted = test_frameworks.directly(program, hosts.first)
    howdah = routed(workers=2, default_pool_size=20)
    before = checkouts(howdah, hosts)
    with test_frameworks.new_database(hosts.first) as database:
        applied(database)
        seen = program.run_to_end(howdah.host, howdah.port, "postgres", "secret", database)
        howdah.wait_for_pool(database, cl_active=0, cl_waiting=0, sv_active=0)
    assert seen == wanted
    assert checkouts(howdah, hosts) > before, "no read was at a standby"
