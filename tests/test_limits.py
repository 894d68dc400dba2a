"""Limits hold at every instant. PostgreSQL itself enforces them here: roles and databases have the
pool's limit as their own, so one connection too many is refused and shows in PostgreSQL's log."""

import random
import threading

import pytest

from conftest import unique_name
from harness import machine, wire
from harness import postgres as pg

pytestmark = pytest.mark.timeout(90)

REFUSED = ("too many connections for role", "too many connections for database",
           "too many clients")


@pytest.fixture
def refusals(postgres):
    """Gives the lines with which PostgreSQL refused a connection since the test began."""
    # Those of the test before have lost their client, and may not have noticed yet.
    machine.wait_until(lambda: postgres.sessions() == 0, "PostgreSQL's old sessions to end")
    start = len(postgres.log())

    def found():
        return [line for line in postgres.log()[start:].splitlines()
                if any(text in line for text in REFUSED)]
    return found


def in_threads(count, work):
    """Runs work(i) in so many threads; raises what the first of them raised."""
    problems = []

    def run(index):
        try:
            work(index)
        except BaseException as problem:  # noqa: BLE001 - handed to the main thread
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def busy_clients(howdah, count, rounds, user="limited", database="postgres", rude=0.0):
    """Clients that log in, work and leave, some of them at a bad moment."""
    def work(index):
        dice = random.Random(index)
        for turn in range(rounds):
            with howdah.connect(user=user, database=database) as client:
                mark = f"{index}.{turn}"
                assert client.value(f"select '{mark}'") == mark
                client.rows("begin")
                assert client.value(f"select '{mark}', pg_sleep(0.002)") == mark
                if dice.random() < rude:
                    # Leaves in the middle of a transaction, of a query, or of a message.
                    client.send(dice.choice([b"", wire.query("select pg_sleep(0.05)"),
                                             wire.query("select 1")[:7],
                                             wire.parse("select 1") + wire.bind()]))
                    client.abort() if dice.random() < 0.5 else client.close()
                    continue
                client.rows("commit")
                client.send(wire.terminate())
    in_threads(count, work)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_pool_size(make_howdah, postgres, refusals, workers, mode):
    """30 clients over 4 servers, of which PostgreSQL would not take a fifth."""
    howdah = make_howdah(pool_mode=mode, default_pool_size=4, workers=workers,
                         secrets={"limited": ""})
    busy_clients(howdah, 30, 5)
    assert refusals() == []
    assert 1 <= postgres.sessions("limited") <= 4


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_pool_size_with_rude_clients(make_howdah, postgres, refusals, workers):
    """Clients that vanish at bad moments cost servers, never the limit; and no slot is lost."""
    howdah = make_howdah(default_pool_size=4, workers=workers, secrets={"limited": ""})
    busy_clients(howdah, 20, 10, rude=0.4)
    assert refusals() == []
    howdah.wait_for_pool(user="limited", cl_active=0, cl_waiting=0, sv_active=0,
                         sv_being_canceled=0)
    # All four slots can still be had at once.
    clients = [howdah.connect(user="limited") for _ in range(4)]
    for client in clients:
        client.rows("begin")
    for client in clients:
        assert client.value("select 1") == "1"
        client.close()
    assert refusals() == []


def test_pool_size_while_servers_age(make_howdah, postgres, refusals):
    """Servers are replaced all the time: the old one must be gone before its successor comes."""
    howdah = make_howdah(default_pool_size=4, workers=2, server_lifetime=0, server_idle_timeout=1,
                         secrets={"limited": ""})
    busy_clients(howdah, 12, 8)
    assert refusals() == []
    howdah.wait_for_log("closing because: server lifetime over")


def test_reconnects_keep_the_limit(make_howdah, postgres, refusals):
    """Servers that PostgreSQL ends are replaced within the limit."""
    howdah = make_howdah(default_pool_size=4, workers=2, secrets={"limited": ""})
    stop = threading.Event()

    def terminate_now_and_then():
        while not stop.is_set():
            postgres.sql("select pg_terminate_backend(pid) from pg_stat_activity "
                         "where usename = 'limited' order by random() limit 1")
            stop.wait(0.02)

    killer = threading.Thread(target=terminate_now_and_then)
    killer.start()

    def work(index):
        for turn in range(30):
            try:
                with howdah.connect(user="limited") as client:
                    assert client.value(f"select '{index}.{turn}'") == f"{index}.{turn}"
            except (wire.Refused, wire.Ended, ConnectionError):
                pass
    try:
        in_threads(10, work)
    finally:
        stop.set()
        killer.join()
    assert refusals() == []


def test_database_limit(make_howdah, postgres, refusals):
    """max_db_connections over the pools of several users; idle servers of others make room."""
    postgres.sql("drop database if exists three")
    postgres.sql("create database three connection limit 3")
    # Superusers may exceed a database's limit: only others count.
    howdah = make_howdah(
        max_db_connections=3, default_pool_size=3, workers=2,
        secrets={"limited": "", "plain_user": "secret", "md5_user": "secret"})
    users = ["limited", "plain_user", "md5_user"]
    in_threads(9, lambda index: busy_clients(howdah, 1, 10, users[index % 3], "three"))
    assert refusals() == []
    assert sum(postgres.sessions(user, "three") for user in users) <= 3


@pytest.mark.parametrize("workers", [1, 2])
def test_eviction(make_howdah, refusals, workers):
    """Where a limit is full, an idle server of another pool is closed to make room."""
    howdah = make_howdah(max_db_connections=1, workers=workers,
                         secrets={"limited": "", "plain_user": "secret"})
    with howdah.connect(user="limited") as one, howdah.connect(user="plain_user") as two:
        for turn in range(5):
            assert one.value("select current_user") == "limited"
            assert two.value("select current_user") == "plain_user"
    howdah.wait_for_log("closing because: evicted")
    assert refusals() == []


def test_user_limit(make_howdah, postgres, refusals):
    """max_user_connections over the pools of several databases."""
    howdah = make_howdah(users={"limited": "max_user_connections=4"}, default_pool_size=4,
                         workers=2, secrets={"limited": ""})
    names = ["postgres", "other", "template1"]
    in_threads(9, lambda index: busy_clients(howdah, 1, 10, "limited", names[index % 3]))
    assert refusals() == []
    assert postgres.sessions("limited") <= 4


def test_pool_size_per_database_and_user(make_howdah, postgres):
    """A user's pool_size goes before a database's, and that before the global one."""
    target = f"host={postgres.host} port={postgres.port} dbname=postgres"
    howdah = make_howdah(
        default_pool_size=3, databases={"small": f"{target} pool_size=2", "normal": target},
        users={"limited": "pool_size=1"}, secrets={"limited": "", "plain_user": "secret"})
    for database, user, size in (("small", "plain_user", 2), ("normal", "plain_user", 3),
                                 ("small", "limited", 1), ("normal", "limited", 1)):
        clients = [howdah.connect(user=user, database=database) for _ in range(size + 1)]
        for client in clients:
            client.send(wire.query("begin"))
        # Which of them is heard first is the kernel's choice, so anybody may be the one who waits.
        howdah.wait_for_pool(database, user, cl_active=size, cl_waiting=1, sv_active=size)
        for client in clients:
            client.close()
        howdah.wait_for_pool(database, user, cl_active=0, cl_waiting=0)


def test_no_pool_size(make_howdah, postgres):
    """default_pool_size = 0: no limit."""
    howdah = make_howdah(default_pool_size=0)
    clients = [howdah.connect() for _ in range(30)]
    for client in clients:
        client.rows("begin")
    assert howdah.pool()["sv_active"] == 30
    for client in clients:
        client.close()


def test_min_pool_size(make_howdah, postgres):
    """Servers are opened before they are needed, for a database that clients have."""
    howdah = make_howdah(min_pool_size=3, default_pool_size=5)
    with howdah.connect() as client:
        client.value("select 1")
        row = machine.wait_until(
            lambda: (row := howdah.pool())["sv_idle"] + row["sv_used"] >= 3 and row,
            "three servers")
        assert row["sv_idle"] + row["sv_used"] == 3


def test_reserve_pool(make_howdah, postgres):
    """A client that waits long enough gets a server beyond the pool's size, up to the reserve."""
    howdah = make_howdah(default_pool_size=1, reserve_pool_size=1, reserve_pool_timeout="0.3")
    clients = [howdah.connect() for _ in range(3)]
    for client in clients:
        client.send(wire.query("begin"))
    howdah.wait_for_log("taking connection from reserve_pool")
    row = howdah.wait_for_pool(cl_active=2, cl_waiting=1)
    assert row["sv_active"] == 2
    for client in clients:
        client.close()


@pytest.mark.parametrize("setting, text", [
    ("max_client_conn", "no more connections allowed (max_client_conn)"),
    ("max_db_client_connections", "client connections exceeded (max_db_client_connections)"),
    ("max_user_client_connections", "client connections exceeded (max_user_client_connections)"),
])
@pytest.mark.parametrize("workers", [1, 4])
def test_client_limits(make_howdah, setting, text, workers):
    """So many and no more, over all workers; one that leaves makes room."""
    howdah = make_howdah(**{setting: 5}, workers=workers, default_pool_size=2)
    clients = [howdah.connect() for _ in range(5)]
    for _ in range(3):
        with pytest.raises(wire.Refused) as refused:
            howdah.connect()
        assert (refused.value.text, refused.value.code) == (text, "53300")
    clients.pop().close()

    def room():
        try:
            clients.append(howdah.connect())
            return True
        except wire.Refused:
            return False
    machine.wait_until(room, "room for one more")
    # The console is for trouble, so it is not counted.
    assert howdah.console("SHOW VERSION")
    for client in clients:
        assert client.value("select 1") == "1"
        client.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_waiters_are_served_in_order(make_howdah, workers):
    """First come, first served: of clients that wait, the oldest gets the next server."""
    howdah = make_howdah(default_pool_size=1, workers=workers)
    holder = howdah.connect()
    holder.rows("begin")
    waiting = []
    for index in range(6):
        client = howdah.connect()
        client.send(wire.query(f"select {index}, clock_timestamp()"))
        waiting.append(client)
        howdah.wait_for_pool(cl_waiting=index + 1)
    holder.rows("commit")
    times = []
    for client in waiting:
        rows = [got.row() for got in client.read_until("Z") if got.tag == "D"]
        times.append(rows[0][1])
    assert times == sorted(times)


def test_login_while_all_servers_are_busy(make_howdah):
    """A client need not wait for a server to be let in, on whichever worker it is."""
    howdah = make_howdah(workers=2, max_user_connections=1)
    with howdah.connect() as busy:
        busy.rows("begin")
        for _ in range(4):
            howdah.connect().close()


@pytest.mark.parametrize("workers", [1, 2])
def test_replication_makes_room(make_howdah, workers):
    """A replication client has an idle server closed that holds its place, and its start-up
    options reach the server it gets."""
    howdah = make_howdah(workers=workers, default_pool_size=1)
    howdah.connect().close()
    howdah.wait_for_pool(sv_idle=1)
    with howdah.connect(replication="database", options="-c enable_seqscan=off") as client:
        assert client.value("show enable_seqscan") == "off"
    howdah.wait_for_log("closing because: evicted")


@pytest.mark.parametrize("workers", [1, 2])
def test_two_bounds_at_once(make_howdah, postgres, refusals, workers):
    """A pool that both its database's and its user's bound hold back gets its turn, although the
    servers of the others under these bounds are never idle."""
    postgres.sql("drop database if exists single")
    postgres.sql("create database single connection limit 1")
    postgres.sql("drop role if exists alone")
    postgres.sql("create role alone login connection limit 1")
    howdah = make_howdah(
        workers=workers, max_db_connections=1, max_user_connections=1, default_pool_size=1,
        secrets={"alone": "", "plain_user": "secret"})
    stop = threading.Event()
    rounds = {"plain_user": 0, "alone": 0}

    def keep_busy(user, database):
        with howdah.connect(user=user, database=database) as client:
            while not stop.is_set():
                assert client.value("select current_user, pg_sleep(0.005)") == user
                rounds[user] += 1

    busy = [("plain_user", "single"), ("alone", "postgres")]
    threads = [threading.Thread(target=keep_busy, args=pair) for pair in 3 * busy]
    for thread in threads:
        thread.start()
    try:
        machine.wait_until(lambda: min(rounds.values()) > 50, "the load")
        with howdah.connect(user="alone", database="single") as client:
            for _ in range(5):
                before = dict(rounds)
                assert client.value("select current_database()") == "single"
                # The others go on, too.
                machine.wait_until(lambda: all(rounds[user] > before[user] for user in rounds),
                                   "the others to get their turn", 30)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert refusals() == []


def idle_pool(howdah, database, servers):
    """Leaves idle servers in the pool of a database."""
    clients = [howdah.connect(database=database) for _ in range(servers)]
    for client in clients:
        client.rows("begin")
    for client in clients:
        client.rows("commit")
        client.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_full_postgres(make_howdah, system_programs, scratch, request, workers):
    """Where PostgreSQL has no room, another pool's idlest server goes, and is counted."""
    full = pg.Postgres(system_programs, scratch, unique_name(request, "small"),
                       max_connections="8", superuser_reserved_connections="0",
                       max_wal_senders="0")
    try:
        for name in ("one", "two", "three"):
            full.sql(f"create database {name}")
        howdah = make_howdah(postgres=full, workers=workers, default_pool_size=6,
                             server_login_retry=15)
        idle_pool(howdah, "one", 4)
        idle_pool(howdah, "two", 4)
        with howdah.connect(database="three", seconds=10) as client:
            assert client.value("select current_database()") == "three"
        evicted = sum(int(row["evictions"]) for row in howdah.console("show workers"))
        assert evicted >= 1
        assert howdah.wait_for_lines("evicted: PostgreSQL has no room", evicted) == evicted
        # The newer servers are still there. One that goes is listed until PostgreSQL is rid of it.
        def left(name):
            return [row["database"] for row in howdah.console("show servers")].count(name)
        machine.wait_until(lambda: left("one") == 4 - evicted, "the idlest servers to be gone")
        assert left("two") == 4
    finally:
        full.stop()


def test_strangers_on_the_console_are_bounded(make_howdah):
    """With auth_type=any everybody may look at the console: as many as there may be clients."""
    howdah = make_howdah(auth_type="any", max_client_conn=5,
                         databases={"*": "host=127.0.0.1 user=postgres"})
    strangers = [howdah.connect(user=f"nobody{number}", database="pgbouncer")
                 for number in range(5)]
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(user="another", database="pgbouncer")
    assert refused.value.code == "53300"
    assert howdah.console("show version")
    for client in strangers:
        client.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_host_limit(make_howdah, postgres, refusals, request, workers):
    """max_host_connections bounds the servers of all databases and users at a host, and idle ones make
    room for others."""
    names = [f"d{at}" for at in range(6)]
    user = unique_name(request, "hosted")
    postgres.sql(f"create role {user} login connection limit 4")
    entry = f"host=127.0.0.1 port={postgres.port} dbname=postgres user={user}"
    howdah = make_howdah(databases={name: entry for name in names}, workers=workers,
                         pool_spread="always", default_pool_size=3, secrets={"limited": ""},
                         hosts={"127.0.0.1": "max_host_connections=4"})

    def work(at):
        busy_clients(howdah, 2, 4, database=names[at])

    in_threads(len(names), work)
    assert refusals() == []
    # Who keeps all servers busy makes others wait for that reason.
    holders = [howdah.connect(database=names[at]) for at in range(4)]
    for holder in holders:
        holder.rows("begin")
    waiting = howdah.connect(database=names[5])
    waiting.send(wire.query("select 1"))
    machine.wait_until(lambda: "max_host_connections is reached" in str(howdah.console("SHOW VERDICT")),
                       "the reason")
    holders[0].rows("commit")
    waiting.read_until("Z")
    assert refusals() == []


def test_logins_to_a_host_take_turns(make_howdah, own_postgres):
    """max_host_logins: no more than so many logins to a host at a time, whatever the databases."""
    names = [f"d{at}" for at in range(8)]
    own_postgres.sql("alter system set pre_auth_delay = 1")
    own_postgres.sql("select pg_reload_conf()")
    entry = f"host=127.0.0.1 port={own_postgres.port} dbname=postgres"
    howdah = make_howdah(databases={name: entry for name in names}, workers=2, pool_spread="always",
                         max_host_logins=3)
    logins, done = [], threading.Event()

    def watch():
        while not done.is_set():
            logins.append(sum(int(row["sv_login"]) for row in howdah.console("SHOW POOLS")))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        in_threads(len(names), lambda at: howdah.connect(database=names[at], seconds=40).close())
    finally:
        done.set()
        watcher.join()
    assert max(logins) == 3, "as many as are allowed, and no more"
