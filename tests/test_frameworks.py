"""What frameworks leave in their sessions.

First with the statements that they send: locks around migrations (Rails, Django, Flyway beside
Hibernate), and the notifications of job queues (GoodJob, Oban). psycopg's connections are libpq's, as
those of Rails' driver are. pgjdbc and Postgrex send what `exec_params` and `prepare` send: Parse,
Bind, Describe, Execute and Sync. Oban's driver Postgrex does not run here, because no package of
Debian or of Python has it.

Then Django, ActiveRecord and its driver ruby-pg themselves (tests/drivers).
"""

import contextlib
import itertools
import random
import threading

import psycopg
import pytest

from harness import machine, wire
from harness.in_turn import LEFT
from harness.programs import FRAMEWORKS, built

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_driver]

WORKERS = pytest.mark.parametrize("workers", [1, 3])


@pytest.fixture
def pool(make_howdah):
    """A pool of three servers, which are given out in turn."""
    def make(**options):
        return make_howdah(default_pool_size=3, server_round_robin=1, **options)
    return make


def rows(connection, sql, parameters=None, name=None):
    """Runs a statement as libpq does: as a Query, with parameters, or prepared under a name."""
    pgconn = connection.pgconn
    if parameters is None:
        result = pgconn.exec_(sql.encode())
    elif name is None:
        result = pgconn.exec_params(sql.encode(), [str(value).encode() for value in parameters])
    else:
        result = pgconn.exec_prepared(name.encode(), [str(value).encode() for value in parameters])
    if result.status not in (psycopg.pq.ExecStatus.COMMAND_OK, psycopg.pq.ExecStatus.TUPLES_OK):
        raise psycopg.errors.lookup(result.error_field(psycopg.pq.DiagnosticField.SQLSTATE).decode())(
            result.error_message.decode())
    return [[result.get_value(row, column) for column in range(result.nfields)]
            for row in range(result.ntuples)]


def heard(connection, count):
    """So many notifications, which come by themselves."""
    return [(note.channel, note.payload)
            for note in connection.notifies(timeout=30, stop_after=count)]


def busy(howdah, stop, problems):
    """Others use the pool meanwhile."""
    try:
        with psycopg.connect(howdah.url(), autocommit=True) as connection:
            while not stop.is_set():
                locks = connection.execute("select count(*) from pg_locks where locktype = 'advisory' "
                                           "and pid = pg_backend_pid()").fetchone()
                assert locks == (0,)
    except BaseException as problem:
        problems.append(problem)
        raise


# Rails: ActiveRecord::Migrator#with_advisory_lock. Its Migrator gives up if another migrates.
# Django: a management command around `migrate` that waits for the lock, by a cursor.
# Flyway: PostgreSQLAdvisoryLockTemplate, by pgjdbc.
LOCK = 2053462845 * 77
MIGRATIONS = {
    "rails": (lambda c: rows(c, f"SELECT pg_try_advisory_lock({LOCK})") == [[b"t"]],
              lambda c: rows(c, f"SELECT pg_advisory_unlock({LOCK})") == [[b"t"]]),
    "django": (lambda c: c.cursor().execute("SELECT pg_advisory_lock(%s)", [LOCK]) is not None,
               lambda c: c.execute("SELECT pg_advisory_unlock(%s)", [LOCK]).fetchone() == (True,)),
    "flyway": (lambda c: rows(c, f"SELECT pg_try_advisory_lock({LOCK})", []) == [[b"t"]],
               lambda c: rows(c, f"SELECT pg_advisory_unlock({LOCK})", []) == [[b"t"]]),
}


@WORKERS
@pytest.mark.parametrize("of", MIGRATIONS)
def test_a_lock_around_migrations(pool, workers, of):
    """Of several that migrate at once one does, and its lock is gone when it says so."""
    take, give_back = MIGRATIONS[of]
    howdah = pool(workers=workers, pin_limit=2)
    table = f"migrated_{random.randrange(10**9)}"
    inside, most, problems, stop = [], [], [], threading.Event()

    def migrate(number):
        try:
            with psycopg.connect(howdah.url(), autocommit=True) as connection:
                machine.wait_until(lambda: take(connection), "the lock", seconds=60)
                inside.append(number)
                most.append(len(inside))
                rows(connection, "BEGIN")
                rows(connection, f"CREATE TABLE IF NOT EXISTS {table} (version int)")
                rows(connection, f"INSERT INTO {table} VALUES ($1)", [number])
                rows(connection, "COMMIT")
                inside.remove(number)
                assert give_back(connection)
        except BaseException as problem:
            problems.append(problem)
            raise

    threads = [threading.Thread(target=migrate, args=(number,)) for number in range(3)]
    threads.append(threading.Thread(target=busy, args=(howdah, stop, problems)))
    for thread in threads:
        thread.start()
    for thread in threads[:3]:
        thread.join()
    stop.set()
    threads[3].join()
    assert not problems and most == [1, 1, 1]
    with psycopg.connect(howdah.url(), autocommit=True) as connection:
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (3,)
        connection.execute(f"DROP TABLE {table}")
    machine.wait_until(lambda: howdah.pool()["sv_pinned"] == 0, "all servers to be free")


@WORKERS
def test_good_job(pool, workers):
    """GoodJob's notifier listens; its executions take advisory locks by prepared statements."""
    howdah = pool(workers=workers)
    table = f"good_jobs_{random.randrange(10**9)}"
    key = "('x' || substr(md5($1::text), 1, 16))::bit(64)::bigint"
    take = (f"SELECT id FROM {table} WHERE id IN (WITH rows AS MATERIALIZED (SELECT id FROM {table} "
            f"WHERE finished_at IS NULL ORDER BY id LIMIT $1) SELECT rows.id FROM rows WHERE "
            f"pg_try_advisory_lock(('x' || substr(md5('{table}' || '-' || rows.id::text), 1, 16))"
            "::bit(64)::bigint) LIMIT 1)")
    with psycopg.connect(howdah.url(), autocommit=True) as notifier, \
            psycopg.connect(howdah.url(), autocommit=True) as worker, \
            psycopg.connect(howdah.url(), autocommit=True) as web:
        rows(web, f"CREATE TABLE {table} (id int, finished_at timestamptz)")
        rows(notifier, "LISTEN good_job")
        worker.pgconn.prepare(b"a1", take.encode())
        worker.pgconn.prepare(b"a2", f"SELECT pg_advisory_unlock({key}) AS unlocked".encode())
        for number in range(20):
            rows(web, "BEGIN")
            rows(web, f"INSERT INTO {table} VALUES ($1, NULL)", [number])
            rows(web, "NOTIFY good_job, '{\"queue_name\":\"default\"}'")
            rows(web, "COMMIT")
            assert heard(notifier, 1) == [("good_job", '{"queue_name":"default"}')]
            assert rows(worker, "", [1], name="a1") == [[str(number).encode()]]
            rows(worker, f"UPDATE {table} SET finished_at = now() WHERE id = $1", [number])
            assert rows(worker, "", [f"{table}-{number}"], name="a2") == [[b"t"]]
        rows(notifier, "UNLISTEN *")
        rows(web, "NOTIFY good_job, 'late'")
        rows(notifier, "SELECT 1")
        assert heard_now(notifier) == []
        rows(web, f"DROP TABLE {table}")
    machine.wait_until(lambda: howdah.pool()["sv_pinned"] == 0, "all servers to be free")


def heard_now(connection):
    """What has come by now."""
    return [(note.channel, note.payload) for note in connection.notifies(timeout=0)]


@WORKERS
def test_oban(pool, workers):
    """Oban's notifier: LISTEN of several channels in one Query, in quotes, and notifications by a
    prepared SELECT of pg_notify."""
    howdah = pool(workers=workers)
    channels = ["public.oban_insert", "public.oban_gossip", "public.oban_leader"]
    notify = b"SELECT pg_notify($1, payload) FROM json_array_elements_text($2::json) AS payload"
    with psycopg.connect(howdah.url(), autocommit=True) as notifier, \
            psycopg.connect(howdah.url(), autocommit=True) as node:
        rows(notifier, "".join(f'LISTEN "{channel}";' for channel in channels))
        node.pgconn.prepare(b"ecto_1", notify)
        for number in range(20):
            channel = channels[number % 3]
            payloads = [f"{number}a", f"{number}b"]
            rows(node, "", [channel, str(payloads).replace("'", '"')], name="ecto_1")
            assert heard(notifier, 2) == [(channel, payload) for payload in payloads]
        rows(notifier, f'UNLISTEN "{channels[0]}"')
        rows(node, "", [channels[0], '["x"]'], name="ecto_1")
        rows(node, "", [channels[1], '["y"]'], name="ecto_1")
        assert heard(notifier, 1) == [(channels[1], "y")]
        assert howdah.pool()["sv_pinned"] == 0


# Themselves -------------------------------------------------------------------------------------

DATABASES = itertools.count(1)


@pytest.fixture
def database(postgres):
    """An empty database of the test's own."""
    with new_database(postgres) as name:
        yield name


@contextlib.contextmanager
def new_database(postgres):
    """An empty database."""
    name = f"frameworks_{next(DATABASES)}"
    postgres.sql(f"create database {name}")
    yield name
    postgres.sql(f"drop database {name} with (force)")


_directly = {}


def directly(program, postgres):
    """What a program prints without a pooler; it is run once."""
    key = program.name, postgres.port
    if key not in _directly:
        with new_database(postgres) as name:
            _directly[key] = program.run_to_end(postgres.host, postgres.port, "postgres", "secret", name)
    return _directly[key]


@contextlib.contextmanager
def disturbed(howdah, database):
    """Somebody leaves in the pool what a session can hold, before and meanwhile."""
    stop, problems = threading.Event(), []

    def leave(left, leaves):
        with howdah.connect(database=database) as disturber:
            disturber.rows(left)
            if leaves:
                disturber.send(wire.terminate())

    def go_on():
        try:
            for number, left in enumerate(itertools.cycle(LEFT)):
                if stop.is_set():
                    return
                leave(left, number % 2)
        except BaseException as problem:
            problems.append(problem)
            raise

    for left in LEFT:
        leave(left, False)
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not problems


@pytest.mark.parametrize("name", [*FRAMEWORKS, "ruby-pg"])
def test_for_real(make_howdah, postgres, database, name):
    """Each program of tests/drivers prints through a pool what it prints directly, line by line.

    Its eight connections and more share five servers, and somebody disturbs these.
    """
    program = built(name)
    wanted = directly(program, postgres)
    assert wanted[-1] == "end 1" and len(wanted) > 100, wanted
    howdah = make_howdah(workers=2, default_pool_size=5, pin_limit=3, server_round_robin=1)
    with disturbed(howdah, database):
        seen = program.run_to_end(howdah.host, howdah.port, "postgres", "secret", database)
    assert seen == wanted
    machine.wait_until(lambda: howdah.pool(database)["sv_pinned"] == 0, "all servers to be free")
