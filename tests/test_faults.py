"""What goes wrong around a pooler, done to the real process: PostgreSQL and clients are killed,
stopped and cut off, descriptors, memory, connections and disks run out.

Each test ends with `Health.back`: no wrong answer was given, the same process still answers on
its console, serves again, holds no descriptor, server or memory too many, and its log says why
connections ended. The short forms run by default, the long ones with --long.
"""

import os
import random
import re
import signal
import subprocess
import tempfile
import time

import pytest
from conftest import unique_name

from harness import machine, postgres as pg, wire
from harness.load import Load
from harness.proxy import Proxy
from harness.wire import query
from test_scenarios import standby_of

pytestmark = pytest.mark.timeout(600)

MIB = 1024 * 1024
GROWTH_KIB = 48 * 1024  # what a fault may add to resident memory, allocator's reserves included
KILLED = "was terminated by signal 9"  # what PostgreSQL logs of a process that SIGKILL ended
SERVICE_SECONDS = 30  # within which service must be back once the fault is over


@pytest.fixture
def long(request):
    """Whether this is a long run."""
    return request.config.getoption("--long")


@pytest.fixture
def durable_postgres(system_programs, scratch, request):
    """A cluster that may crash: what it acknowledged, it keeps (as long as the machine lives)."""
    cluster = pg.Postgres(system_programs, scratch, unique_name(request, "pg"),
                          synchronous_commit="on")
    yield cluster
    # Some tests leave it stopped.
    if cluster.child is not None and cluster.child.poll() is None:
        cluster.stop()


class Health:
    """How a Howdah was before a fault, and that it is so again after it."""

    def __init__(self, howdah, cluster, user="postgres"):
        self.howdah, self.cluster, self.user = howdah, cluster, user
        # A pool and its servers exist, and what is allocated once is allocated.
        with howdah.connect(user=user) as client:
            assert client.value("select 1") == "1"
        self.pid = howdah.child.pid
        self.mark = howdah.log_mark()
        self.memory = machine.resident_kib(self.pid)
        self.spare = machine.wait_until(lambda: self._spare(), "all to be quiet")

    def _servers(self):
        return [row for row in self.howdah.console("SHOW SERVERS")
                if row["database"] != "pgbouncer"]

    def _spare(self):
        """The descriptors that are neither clients nor servers; nothing while it changes."""
        counts = []
        for _ in range(2):
            folder = f"/proc/{self.pid}/fd"
            links = [read_link(os.path.join(folder, name)) for name in os.listdir(folder)]
            counts.append((len(links) - len(self._servers()), len(self._servers())))
        return counts[0][0] if counts[0] == counts[1] else None

    def serves(self):
        """Whether a newcomer is served."""
        try:
            with self.howdah.connect(user=self.user, seconds=2) as client:
                return client.value("select 'served'") == "served"
        except (OSError, wire.Refused, wire.Ended):
            return False

    def back(self, log=None, growth=GROWTH_KIB, check_sessions=True):
        """All is as before. log: what a line of the log must match."""
        howdah = self.howdah
        machine.wait_until(self.serves, f"service; log:\n{howdah.log()[-3000:]}", SERVICE_SECONDS)
        assert howdah.running() and howdah.child.pid == self.pid
        machine.wait_until(lambda: all(
            row["cl_waiting"] == "0" and row["sv_active"] == "0" and row["sv_being_canceled"] == "0"
            and row["sv_login"] == "0"
            for row in howdah.console("SHOW POOLS") if row["database"] != "pgbouncer"),
            "idle pools", SERVICE_SECONDS)
        machine.wait_until(lambda: (self._spare() or self.spare + 1) <= self.spare,
                           f"the descriptors: {self._spare()} and not {self.spare}")
        if check_sessions:
            machine.wait_until(lambda: self.cluster.sessions(self.user) == len(self._servers()),
                               "the servers to be PostgreSQL's sessions")
        grown = machine.resident_kib(self.pid) - self.memory
        assert grown < growth, f"{grown} KiB more resident memory"
        if log:
            howdah.wait_for_log(log, self.mark)
        assert "panicked" not in howdah.said()


def read_link(path):
    """Where a link leads; it may be gone."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def backends(cluster, user="postgres"):
    """The process ids of PostgreSQL's sessions, but for the one that asks."""
    return [int(pid) for (pid,) in cluster.sql(
        "select pid from pg_stat_activity where backend_type = 'client backend' and "
        f"usename = '{user}' and pid <> pg_backend_pid()")]


def under_load(howdah, cluster, seconds=3, **options):
    """How a Howdah is, and a load through it, with options of `Load`."""
    health = Health(howdah, cluster)
    return health, Load(howdah.address, (cluster.host, cluster.port), seconds=seconds, **options)


def meanwhile(load, *steps, rest=0.4):
    """Takes each step while the load runs, some time apart."""
    for step in steps:
        time.sleep(rest)
        assert load.running(), load.result()
        step()


# PostgreSQL --------------------------------------------------------------------------------------

def test_backends_terminated(make_howdah, postgres, long):
    """Sessions are ended from inside PostgreSQL, again and again, under load."""
    howdah = make_howdah(default_pool_size=10, pin_limit=10, workers=2)
    health, load = under_load(howdah, postgres, seconds=60 if long else 3, faults=True)
    while load.running():
        try:
            postgres.sql("select pg_terminate_backend(pid) from pg_stat_activity where "
                         f"usename = 'postgres' and client_port in ({ports(howdah)}) "
                         "order by random() limit 1")
        except wire.Refused:
            pass
        time.sleep(0.1)
    assert load.result()["unexpected"] > 0
    health.back(log="closing because: server conn crashed")


def ports(howdah):
    """The local ports of a Howdah's servers, for SQL."""
    found = [row["local_port"] for row in howdah.console("SHOW SERVERS")]
    return ", ".join(found) or "-2"


def kill_backend(cluster):
    """SIGKILL for some session: PostgreSQL ends all others and recovers, which begins as soon as it
    has seen that the session died."""
    deaths = cluster.log().count(KILLED)
    try:
        found = backends(cluster)
    except (OSError, wire.Refused, wire.Ended):
        return  # it recovers yet
    victim = random.choice(found or [None])
    if victim and signal_if_there(victim, signal.SIGKILL):
        # It may have ended by itself just before.
        machine.wait_until(lambda: cluster.log().count(KILLED) > deaths
                           or not signal_if_there(victim, 0), "its death to be seen")


def test_backend_killed(make_howdah, durable_postgres, long):
    """A session dies by SIGKILL; PostgreSQL takes all others down with it, and recovers."""
    howdah = make_howdah(postgres=durable_postgres, default_pool_size=10, pin_limit=10, workers=2)
    health, load = under_load(howdah, durable_postgres, seconds=60 if long else 3, faults=True)
    while load.running():
        time.sleep(1)
        kill_backend(durable_postgres)
    machine.wait_until(durable_postgres._answers, "PostgreSQL to recover")
    assert load.result()["unexpected"] > 0
    health.back(log="closing because: server conn crashed|server login failed")


def kill_postmaster(cluster):
    """SIGKILL for the whole of PostgreSQL's main process; its children follow by themselves."""
    cluster.child.kill()
    cluster.child.wait()


def start_again(cluster):
    """Starts a cluster that was killed, as soon as its last process has gone."""
    def starts():
        try:
            return cluster.start()
        except RuntimeError:
            return None  # a process of the killed one lives yet
    machine.wait_until(starts, "PostgreSQL to start again", 30)


def test_postmaster_killed(make_howdah, durable_postgres):
    """PostgreSQL's main process dies by SIGKILL, and comes back a second later."""
    howdah = make_howdah(postgres=durable_postgres, default_pool_size=10, pin_limit=10, workers=2)
    health, load = under_load(howdah, durable_postgres, seconds=4, faults=True)
    meanwhile(load, lambda: None, lambda: kill_postmaster(durable_postgres))
    # Who asks meanwhile is refused or waits, as the moment has it.
    start_again(durable_postgres)
    assert load.result()["unexpected"] > 0
    health.back(log="closing because: server conn crashed")


def test_postgres_restarted(make_howdah, durable_postgres, long):
    """PostgreSQL is restarted in order while it is used."""
    howdah = make_howdah(postgres=durable_postgres, default_pool_size=10, pin_limit=10, workers=2)
    health, load = under_load(howdah, durable_postgres, seconds=60 if long else 3, faults=True)
    while load.running():
        time.sleep(1)
        durable_postgres.stop()
        durable_postgres.start()
    assert load.result()["unexpected"] > 0
    health.back(log="closing because: server conn crashed")


def test_postgres_stopped_and_continued(make_howdah, own_postgres):
    """All of PostgreSQL stands still for a second, then goes on: nobody loses anything."""
    howdah = make_howdah(postgres=own_postgres, default_pool_size=10, pin_limit=10, workers=2)
    health = Health(howdah, own_postgres)
    # Without cancels, whose races have other outcomes on a clock that stands still.
    load = Load(howdah.address, (own_postgres.host, own_postgres.port), seconds=3,
                without="cancel,cancel_sure,bystander")
    found = []

    def stop():
        found.extend([*backends(own_postgres), own_postgres.child.pid])
        for pid in found:
            signal_if_there(pid, signal.SIGSTOP)

    def go_on():
        for pid in found:
            signal_if_there(pid, signal.SIGCONT)
    meanwhile(load, lambda: None, stop)
    with howdah.connect() as patient:
        patient.send(query("select 'patient'"))
        machine.wait_until(lambda: howdah.pool()["maxwait"] >= 1, "it to wait for long")
        go_on()
        assert [got.row() for got in patient.read_until() if got.tag == "D"] == [[b"patient"]]
    sums = load.result()
    assert sums["unexpected"] == 0, sums["said"]
    health.back()


def signal_if_there(pid, number):
    """Signals a process that may be gone; false if it is."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def test_postgres_out_of_connections(make_howdah, system_programs, scratch, request):
    """PostgreSQL takes fewer connections than the pool may have: those there are serve all, and
    nobody is refused. (One worker: another that has no server yet does not know of these. And no
    clients that cost a server: without any, the refusal is passed on to who waits.)"""
    cluster = pg.Postgres(system_programs, scratch, unique_name(request, "pg"), max_connections=9,
                          max_wal_senders=1, autovacuum="off")
    try:
        cluster.sql("create role load login; "
                    "alter default privileges grant all on schemas to load; "
                    "alter default privileges grant all on tables to load; "
                    "alter default privileges grant all on sequences to load")
        howdah = make_howdah(postgres=cluster, default_pool_size=20, pin_limit=20,
                             secrets={"load": ""})
        health = Health(howdah, cluster, user="load")
        load = Load(howdah.address, (cluster.host, cluster.port), seconds=3, clients=30,
                    user="load", direct_user="postgres",
                    without="cancel,cancel_sure,bystander,disconnect,flush_leave,copy_in_fails,"
                            "large_rows,sql_prepare,deallocate")
        sums = load.result()
        assert sums["unexpected"] == 0, sums["said"]
        assert "too many clients" in cluster.log() or "remaining connection slots" in cluster.log()
        health.back(log="server login failed: FATAL (sorry, too many clients already"
                        "|remaining connection slots)")
    finally:
        cluster.stop()


def test_standby_promoted(make_howdah, own_postgres, system_programs, scratch, request):
    """A standby becomes the primary: clients stay, and may write from then on."""
    standby = standby_of(own_postgres, system_programs, scratch, unique_name(request, "s"))
    try:
        howdah = make_howdah(postgres=standby, default_pool_size=4, workers=2)
        health = Health(howdah, standby)

        def psql(sql):
            return machine.run([system_programs.path("psql"), howdah.url(), "-XAtc", sql]).strip()
        assert psql("select pg_is_in_recovery()") == "t"
        with howdah.connect() as client:
            assert client.error(query("create table t (x int)"))["C"] == "25006"
            standby.sql("select pg_promote()")
            client.rows("create table t (x int)")
        assert psql("select pg_is_in_recovery()") == "f"
        health.back()
    finally:
        standby.stop()


# The network -------------------------------------------------------------------------------------

@pytest.fixture
def behind_proxy(make_howdah, postgres):
    """A Howdah whose servers are behind a proxy."""
    proxies = []

    def make(**options):
        proxy = Proxy(postgres.host, postgres.port)
        proxies.append(proxy)
        howdah = make_howdah(default_pool_size=8, pin_limit=8, workers=2, databases={
            "postgres": f"host={proxy.host} port={proxy.port}"}, **options)
        return howdah, proxy
    yield make
    for proxy in proxies:
        proxy.close()


def test_network_is_slow_and_stalls(behind_proxy, postgres):
    """Every piece is late, and for a second nothing passes: nobody loses anything."""
    howdah, proxy = behind_proxy()
    health = Health(howdah, postgres)
    proxy.delay = 0.005
    load = Load(howdah.address, (postgres.host, postgres.port), seconds=3, clients=8,
                without="cancel,cancel_sure,bystander,large_rows,large_params,copy_in,copy_out,"
                        "copy_in_fails,disconnect")
    meanwhile(load, lambda: None, proxy.stall, lambda: time.sleep(0.6), proxy.flow)
    sums = load.result()
    assert sums["unexpected"] == 0, sums["said"]
    proxy.delay = 0.0
    health.back()


def test_network_is_cut(behind_proxy, postgres, long):
    """All connections are reset, again and again; for a while none can be made."""
    howdah, proxy = behind_proxy()
    health = Health(howdah, postgres)
    load = Load(howdah.address, (postgres.host, postgres.port), seconds=60 if long else 3,
                faults=True)
    turn = 0
    while load.running():
        time.sleep(0.3)
        turn += 1
        if turn % 3 == 0:
            proxy.refuse()
            proxy.cut()
            time.sleep(0.2)
            proxy.listen()
        else:
            proxy.cut()
    assert load.result()["unexpected"] > 0
    health.back(log="closing because: server conn crashed")


def test_servers_are_half_open(behind_proxy, postgres):
    """What is sent to the servers vanishes, and nobody is told: a time limit finds out, new
    connections take their place."""
    howdah, proxy = behind_proxy(query_timeout=1)
    health = Health(howdah, postgres)
    clients = [howdah.connect() for _ in range(6)]
    for client in clients:
        client.rows("begin")
    proxy.lose()
    for client in clients:
        client.send(query("select 'lost'"))
    for client in clients:
        errors = [got.fields() for got in client.read_to_end() if got.tag == "E"]
        assert [error["C"] for error in errors] == ["57014"]
        client.close()
    # PostgreSQL holds the other ends until it is told; that is its matter, not the pool's.
    health.back(log="closing because: query timeout", check_sessions=False)
    proxy.close()


def test_clients_are_half_open(make_howdah, postgres):
    """Clients' hosts vanish without a word: limits free what they held."""
    howdah = make_howdah(default_pool_size=2)
    health = Health(howdah, postgres)
    with Proxy(*howdah.address) as proxy:
        gone = [wire.connect(proxy.address, database="postgres") for _ in range(10)]
        for client in gone[:2]:
            client.rows("begin")
        proxy.lose()
        howdah.write(idle_transaction_timeout=1, client_idle_timeout=2)
        howdah.reload()
        with howdah.connect() as client:
            assert client.value("select 'served'") == "served"
        machine.wait_until(lambda: len([
            row for row in howdah.console("SHOW CLIENTS") if row["database"] == "postgres"]) == 0,
            "the lost clients to be forgotten")
    for client in gone:
        client.close()
    health.back(log="closing because: idle transaction timeout")


class Apart:
    """A network namespace joined to ours by a pair of devices."""

    def __init__(self, name):
        self.name = name
        self.near, self.far = "10.211.7.1", "10.211.7.2"
        self.ip("netns", "add", name)
        self.ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        self.ip("addr", "add", self.near + "/30", "dev", name)
        self.ip("link", "set", name, "up")
        self.inside("addr", "add", self.far + "/30", "dev", "eth0")
        self.inside("link", "set", "eth0", "up")
        self.inside("link", "set", "lo", "up")

    @staticmethod
    def ip(*words):
        """Runs `ip`."""
        machine.run(["ip", *words], as_user=False)

    def inside(self, *words):
        """Runs `ip` in the namespace."""
        self.ip("-n", self.name, *words)

    def cut(self):
        """Pulls the plug at the far end: packets vanish, and nobody is told."""
        self.inside("link", "set", "eth0", "down")

    def join(self):
        """Plugs it in again."""
        self.inside("link", "set", "eth0", "up")

    def remove(self):
        """Takes it away."""
        self.ip("netns", "del", self.name)


@pytest.fixture
def apart():
    """A network namespace of the test's own."""
    if os.geteuid() != 0:
        pytest.skip("only root may make network namespaces")
    name = f"howdah{os.getpid() % 100000}"
    try:
        namespace = Apart(name)
    except (RuntimeError, FileNotFoundError) as problem:
        pytest.skip(f"no network namespaces here: {problem}")
    yield namespace
    namespace.remove()


def test_host_is_unplugged(make_howdah, own_postgres, apart):
    """PostgreSQL's host is off the network: the kernel's time limit ends what is under way, new
    connections fail within theirs, and all is well once it is back."""
    own_postgres.stop()
    own_postgres.write_hba("local all all trust", f"host all all {apart.near}/32 trust",
                           f"host all all {apart.far}/32 trust")
    spawn = machine.spawn
    user = machine.unprivileged_user()

    def spawn_inside(argv, **popen):
        return spawn(["ip", "netns", "exec", apart.name, "setpriv", f"--reuid={user.pw_uid}",
                      f"--regid={user.pw_gid}", "--clear-groups", "--", *argv],
                     as_user=False, **popen)
    own_postgres.host = apart.far
    machine.spawn = spawn_inside
    try:
        own_postgres.start()
    finally:
        machine.spawn = spawn
    howdah = make_howdah(postgres=own_postgres, default_pool_size=4, tcp_user_timeout=1000,
                         server_connect_timeout=1, query_wait_timeout=3, client_login_timeout=3)
    health = Health(howdah, own_postgres)
    with howdah.connect() as busy, howdah.connect() as other:
        busy.rows("begin")
        apart.cut()
        busy.send(query("select 'lost'"))
        errors = [got.fields() for got in busy.read_to_end() if got.tag == "E"]
        assert [error["C"] for error in errors] in (["57014"], ["08006"]), errors
        # Whoever asks now is told within a limit.
        other.send(query("select 1"))
        assert [got.tag for got in other.read_to_end()][:1] == ["E"]
    apart.join()
    health.back(log="closing because: server conn crashed", check_sessions=False)


# Limits of the process -----------------------------------------------------------------------------

def test_descriptors_run_out(make_howdah, postgres):
    """No descriptor is left: those who are in work on; when some leave, newcomers come in."""
    howdah = make_howdah(files=64, max_client_conn=1000, default_pool_size=4, tcp_defer_accept=0)
    health = Health(howdah, postgres)
    with howdah.connect() as witness:
        assert witness.value("select 1") == "1"
        crowd = [howdah.raw() for _ in range(120)]
        howdah.wait_for_log("(?i)too many open files|descriptor", since=health.mark)
        for turn in range(20):
            assert witness.value(f"select 'undisturbed {turn}'") == f"undisturbed {turn}"
        for client in crowd:
            client.close()
    health.back(log="(?i)too many open files|descriptor")
    lines = re.findall("(?i)too many open files", howdah.log())
    assert len(lines) <= 4, "one line is enough"


def test_many_clients_and_slow_readers(make_howdah, postgres, long):
    """Clients that are idle, and readers of large results that take their time: memory stays
    within bounds, also when the kernel would not give more."""
    idle, readers, size = (10_000, 40, 64 * MIB) if long else (300, 20, 16 * MIB)
    howdah = make_howdah(default_pool_size=readers + 2, max_client_conn=idle + 100, workers=2)
    health = Health(howdah, postgres)
    with open(f"/proc/{health.pid}/statm") as statm:
        mapped = int(statm.read().split()[0]) * os.sysconf("SC_PAGESIZE")
    set_limit(health.pid, "as", mapped + 512 * MIB)
    crowd = [howdah.connect() for _ in range(idle)]
    per_client = (machine.resident_kib(health.pid) - health.memory) * 1024 / idle
    assert per_client < 6000, f"{per_client:.0f} bytes a client"
    slow = []
    for _ in range(readers):
        client = howdah.raw(receive_buffer=4096)
        client.login("postgres", "postgres")
        client.send(query(f"select repeat('x', {size})"))
        slow.append(client)
    for client in slow:
        assert client.read().tag == "T"
        client.read_bytes(100_000)
    peak = machine.peak_resident_kib(health.pid) - health.memory
    # 256 KB may wait for a reader, and as much again be on its way.
    assert peak < idle * 6 + readers * 1536 + 8 * 1024, f"{peak} KiB at the peak"
    assert crowd[0].value("select 'quick'") == "quick"
    for client in slow[::2]:
        client.close()
    for client in slow[1::2]:
        client.read_bytes(size - 100_000 + 11)
        assert [got.tag for got in client.read_until()] == ["C", "Z"]
        client.close()
    for client in crowd:
        client.close()
    health.back()


def test_clients_are_killed(make_howdah, postgres, long):
    """A tenth of all clients a second die by SIGKILL, others come; nobody else notices."""
    howdah = make_howdah(default_pool_size=10, pin_limit=10, workers=2, max_client_conn=500)
    health = Health(howdah, postgres)
    direct = (postgres.host, postgres.port)
    seconds = 60 if long else 4
    # The witness shares the pool with them and must not see a thing.
    witness = Load(howdah.address, direct, seconds=seconds, clients=10,
                   without="cancel,cancel_sure,bystander")
    victims = [new_victim(howdah, direct) for _ in range(10)]
    turn = 0
    while witness.running():
        time.sleep(0.9)
        turn += 1
        index = turn % len(victims)
        victims[index].kill()
        victims[index] = new_victim(howdah, direct)
    for victim in victims:
        victim.kill()
    sums = witness.result()
    assert sums["unexpected"] == 0, sums["said"]
    health.back(log="closing because: client unexpected eof")


def new_victim(howdah, direct):
    """A process of four clients that will be killed."""
    return Load(howdah.address, direct, clients=4, seconds=600, prepare=False, faults=True,
                only="simple,multi,named,tx,tx_failed,pipeline,flush,large_rows,copy_out,bystander")


@pytest.fixture
def small_disk(scratch):
    """A file system with room for a few lines."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    path = tempfile.mkdtemp(prefix="disk", dir=scratch)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=777", "none", path],
                             capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr}")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def churn(howdah, count):
    """Clients that come and go, each with lines in the log."""
    for index in range(count):
        with howdah.connect() as client:
            assert client.value(f"select {index}") == str(index)


def test_log_on_a_full_disk(small_disk, make_howdah, postgres):
    """The log cannot be written: service goes on, and the log tells of it when there is room."""
    path = os.path.join(small_disk, "log")
    howdah = make_howdah(start=False, logfile=path)
    howdah.log_path = path
    howdah.start()
    health = Health(howdah, postgres)
    churn(howdah, 20)
    with open(os.path.join(small_disk, "ballast"), "wb") as ballast:
        try:
            ballast.write(bytes(64 * 1024))
            ballast.flush()
        except OSError:
            pass
    churn(howdah, 60)
    os.unlink(ballast.name)
    health.back(log=r"(?m)^\S+ \S+ \S+ \[\d+\] WARNING \d+ lines? of the log could not be written: "
                    "No space left on device")


def set_limit(pid, name, value):
    """Sets a soft limit of a running process, as its own user."""
    machine.run(["prlimit", f"--pid={pid}", f"--{name}={value}:"])


def test_log_at_its_largest_size(make_howdah, postgres):
    """The log may not grow (RLIMIT_FSIZE): that is no reason to die."""
    howdah = make_howdah()
    health = Health(howdah, postgres)
    size = os.path.getsize(howdah.log_path)
    set_limit(health.pid, "fsize", size + 300)
    # Lines of earlier connections may have come before the limit.
    most = max(size + 300, os.path.getsize(howdah.log_path))
    churn(howdah, 20)
    assert os.path.getsize(howdah.log_path) <= most
    set_limit(health.pid, "fsize", size + MIB)
    churn(howdah, 1)
    health.back(log=r"WARNING \d+ lines? of the log could not be written: File too large")
