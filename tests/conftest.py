"""What all process tests share: PostgreSQL clusters, the two io drivers, and howdahs on demand."""

import json
import os
import re
import subprocess
import sys
import time

import psycopg
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from harness import certificates, machine, postgres as pg, wire  # noqa: E402
from harness.howdah import Howdah  # noqa: E402

DEFAULT_PROGRAM = os.path.join(os.path.dirname(HERE), "target", "debug", "howdah")
PROGRAM = os.environ.get("HOWDAH", DEFAULT_PROGRAM)
STARTED = time.monotonic()


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="leave out tests marked slow")
    parser.addoption("--long", action="store_true",
                     help="the long forms of the tests of faults (tests/test_faults.py)")
    parser.addoption("--driver", choices=["epoll", "io_uring", "both"],
                     help="the io driver to test with (default: each in turn, and one where a test "
                     "is marked one_driver)")
    parser.addoption("--seeds", type=int, default=25,
                     help="how many generated scripts to play in each pool mode (default: 25)")
    parser.addoption("--listening", action="store_true",
                     help="LISTEN is shared, and each connection of raw clients and psycopg listens")
    parser.addoption("--first-seed", type=int, default=1, help="the first of their seeds")
    parser.addoption("--machine", help="a machine of ./prove, whose figures are the last line")
    parser.addoption("--texts", type=int, default=300,
                     help="how many texts that hide something to try (default: 300)")


def pytest_configure(config):
    if config.getoption("--listening"):
        connect = psycopg.connect

        def listening(*arguments, **options):
            connection = connect(*arguments, **options)
            if (connection.info.host, connection.info.port) in wire.LISTENING:
                connection.pgconn.exec_(wire.LISTEN.encode())
            return connection
        psycopg.connect = listening
    config.addinivalue_line("markers", "slow: takes more than a few seconds; --quick leaves it out")
    config.addinivalue_line("markers", "not_listening(reason): left out by --listening")
    config.addinivalue_line("markers", "long: left out but for --long")
    config.addinivalue_line("markers", "one_driver: looks at nothing that a driver does")
    config.addinivalue_line("markers", "both_drivers: does, in a file that is marked one_driver")
    config.addinivalue_line("markers", "own: needs a setting or answer that PgBouncer has not")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    """Behind all that pytest says, the figures of a machine of ./prove."""
    yield
    config = session.config
    if config.getoption("--machine") and not hasattr(config, "workerinput"):
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        counts = {kind: len(reporter.stats.get(kind, ()))
                  for kind in ("passed", "failed", "error", "skipped", "xfailed")}
        print("\n" + json.dumps({"machine": config.getoption("--machine"), "ok": exitstatus == 0, **counts,
                                "seconds": round(time.monotonic() - STARTED)}), flush=True)


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    for item in items if config.getoption("--listening") else []:
        marker = item.get_closest_marker("not_listening")
        if marker:
            item.add_marker(pytest.mark.skip(reason=marker.args[0]))
    if not config.getoption("--quick"):
        return
    left_out = [item for item in items if item.get_closest_marker("slow")]
    for item in left_out:
        item.add_marker(pytest.mark.skip(reason="slow, and this is a quick run"))


def pytest_generate_tests(metafunc):
    if "driver" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--driver")
        drivers = [wanted] if wanted in ("epoll", "io_uring") else ["epoll", "io_uring"]
        marked = metafunc.definition.get_closest_marker
        if not wanted and marked("one_driver") and not marked("both_drivers"):
            drivers = ["io_uring" if machine.io_uring_works() else "epoll"]
        if "pgbouncer" in os.path.basename(PROGRAM):
            drivers = ["epoll"]
        metafunc.parametrize("driver", drivers, scope="session", indirect=True)


@pytest.fixture(scope="session")
def driver(request):
    """The io driver a test runs on; every test that starts a Howdah runs once on each."""
    if request.param == "io_uring" and not machine.io_uring_works():
        pytest.skip("this machine does not let processes use io_uring")
    return request.param


@pytest.fixture(scope="session")
def scratch():
    """A folder for everything this run writes."""
    path = machine.scratch()
    yield path
    # Here, because the processes that share a run's tests end without their exit functions. A slow disk
    # takes longer for all those files than the last test may take.
    subprocess.Popen(["rm", "-rf", "--", path], start_new_session=True, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def authority(scratch):
    """Signs the certificates of these tests."""
    return certificates.Authority(scratch, "authority")


@pytest.fixture(scope="session")
def programs(scratch):
    """PostgreSQL's programs by major version."""
    found = {version: pg.Programs(version, path, scratch)
             for version, path in sorted(pg.installations().items())}
    assert found, "no PostgreSQL found; ./test installs one"
    return found


@pytest.fixture(scope="session")
def system_programs(programs):
    """The programs of the machine's own PostgreSQL: the oldest version found."""
    return programs[min(programs)]


@pytest.fixture(scope="session")
def postgres(system_programs, scratch):
    """The shared cluster. Tests make roles and tables of their own and stop nothing in it."""
    cluster = pg.Postgres(system_programs, scratch, f"shared{system_programs.version}")
    prepare(cluster)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def newest_postgres(programs, scratch):
    """A shared cluster of the newest version found."""
    cluster = pg.Postgres(programs[max(programs)], scratch, f"newest{max(programs)}")
    prepare(cluster)
    yield cluster
    cluster.stop()


@pytest.fixture
def own_postgres(system_programs, scratch, request):
    """A cluster for one test, which may stop it."""
    cluster = pg.Postgres(system_programs, scratch, unique_name(request, "pg"))
    yield cluster
    cluster.stop()


def prepare(cluster):
    """Roles, passwords and tables the tests use."""
    cluster.sql("create database other")
    cluster.sql("""
        create role admin login superuser;
        create role plain_user login password 'secret';
        create role limited login connection limit 4;
        set password_encryption = 'md5';
        create role md5_user login password 'secret';
        set password_encryption = 'scram-sha-256';
        create role scram_user login password 'secret';
        create table numbers (id int primary key, name text);
        insert into numbers select i, 'row ' || i from generate_series(1, 100) i;
        grant all on numbers to public;
        grant all on schema public to public;
        create table copied (id int primary key, name text) with (autovacuum_enabled = off);
        grant all on copied to public;
    """)


_count = 0


def unique_name(request, kind):
    """A short folder name of its own (a unix socket's path must be short)."""
    global _count
    _count += 1
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return f"{kind}{worker}{_count}"


def new_howdah(request, scratch, opened, **options):
    """A Howdah, not yet started, which lives as long as the fixture that keeps `opened`."""
    listening = request.config.getoption("--listening")
    if listening:
        options.setdefault("listen", "share")
    howdah = Howdah(PROGRAM, scratch, unique_name(request, "h"), start=False, **options)
    if listening:
        wire.LISTENING.update([howdah.address, howdah.socket_path])
    opened.append(howdah)
    return howdah


def read_back(howdah):
    """Sees on the console that the wanted driver is the one in use."""
    if not howdah.is_pgbouncer and howdah.driver != "auto":
        assert howdah.setting("io_driver") == howdah.driver


@pytest.fixture
def make_howdah(request, driver, scratch, postgres):
    """Starts Howdahs for one test: make_howdah(pool_mode="session", ...)."""
    opened = []

    def make(start=True, read_driver=True, **options):
        options.setdefault("postgres", postgres)
        options.setdefault("driver", driver)
        howdah = new_howdah(request, scratch, opened, **options)
        if start:
            howdah.start()
            if read_driver:
                read_back(howdah)
        return howdah

    yield make
    finish(opened)


@pytest.fixture(scope="module")
def shared_howdah(request, driver, scratch, postgres):
    """Starts Howdahs which all tests of a file share, one for each set of options."""
    opened, by_options = [], {}

    def make(**options):
        key = repr(sorted((name, repr(value)) for name, value in options.items()))
        if key not in by_options or not by_options[key].running():
            options.setdefault("postgres", postgres)
            options.setdefault("driver", driver)
            howdah = new_howdah(request, scratch, opened, **options)
            howdah.start()
            read_back(howdah)
            by_options[key] = howdah
        return by_options[key]

    yield make
    finish(opened)


def finish(opened):
    """Stops Howdahs and looks for signs of a fault in their logs."""
    faults = []
    for howdah in opened:
        crashed = howdah.child is not None and howdah.child.poll() not in (None, 0)
        code = howdah.child.returncode if howdah.child else None
        howdah.stop()
        panics = re.findall(r".*panicked.*|.*FATAL.*Assert.*", howdah_output(howdah))
        if crashed or panics:
            faults.append(f"exit code {code}: {panics}\n{howdah_output(howdah)[-3000:]}")
    assert not faults, "\n".join(faults)


def howdah_output(howdah):
    """Log and standard error of a Howdah that may never have started."""
    try:
        return howdah.said()
    except FileNotFoundError:
        return howdah.log()
