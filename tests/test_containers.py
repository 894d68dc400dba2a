"""Howdah as images run it: the variables of PgBouncer's images, a root folder that nobody writes, health checks."""

import os
import shutil
import signal
import subprocess
import textwrap

import pytest

from harness import machine, wire
from harness import postgres as pg

pytestmark = [pytest.mark.timeout(60), pytest.mark.own, pytest.mark.one_driver]


@pytest.fixture(scope="module")
def strict(system_programs, scratch):
    """A cluster that asks everybody but its superuser for a SCRAM password."""
    cluster = pg.Postgres(system_programs, scratch, "images")
    cluster.sql("create database shop")
    for role in ("app", "lone"):
        cluster.sql(f"create role {role} login password '{role}_word'")
    cluster.sql("alter role postgres password 'root_word'")
    cluster.write_hba("host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256")
    cluster.reload()
    yield cluster
    cluster.stop()


def start(make_howdah, strict, variables, files=()):
    """A Howdah that has variables alone. <host> and its like stand for what the test has."""
    howdah = make_howdah(start=False, postgres=strict)
    for name, text in files:
        howdah._write_file(os.path.join(howdah.folder, name), text)
    text = textwrap.dedent(variables)
    for name, value in (("host", strict.host), ("port", strict.port), ("own", howdah.port), ("here", howdah.folder)):
        text = text.replace(f"<{name}>", str(value))
    given = dict(line.split("=", 1) for line in text.split("\n") if line)
    environment = {"PATH": os.environ["PATH"], "HOWDAH_LOGFILE": howdah.log_path, "HOWDAH_WORKERS": "1",
                   "HOWDAH_IO_DRIVER": howdah.driver, "USER": "nobody", "WORKERS": "77", **given}
    howdah.sections["pgbouncer"]["unix_socket_dir"] = ""
    howdah.environment = environment
    howdah.child = howdah.spawn("--quiet", "--environment", env=environment)
    machine.wait_until(howdah._listens, "it to listen")
    return howdah


def config(howdah, user, password):
    """SHOW CONFIG, as a dictionary."""
    with howdah.connect(user=user, database="pgbouncer", password=password) as console:
        return {row[0]: row[1] for row in console.rows("SHOW CONFIG")}


# Shapes of compose files: variables, who logs in with which password to which database, and settings.
SHAPES = {
    "a host alone": ("""
        DB_HOST=<host>
        DB_PORT=<port>
        DB_USER=postgres
        DB_PASSWORD=root_word
        LISTEN_PORT=<own>
        AUTH_TYPE=trust
        MAX_CLIENT_CONN=200
        DEFAULT_POOL_SIZE=20
        POOL_MODE=transaction
        """, ("postgres", "", "shop"), {"pool_mode": "transaction", "auth_type": "trust"}),
    "a URL": ("""
        DATABASE_URL=postgres://app:app_word@<host>:<port>/shop
        LISTEN_PORT=<own>
        ADMIN_USERS=app
        """, ("app", "app_word", "shop"), {"auth_type": "md5", "listen_addr": "0.0.0.0"}),
    "several URLs": ("""
        DATABASE_URLS=postgres://lone:lone_word@<host>:<port>/postgres,postgres://app:app_word@<host>:<port>/shop
        LISTEN_PORT=<own>
        ADMIN_USERS=app,lone
        """, ("app", "app_word", "shop"), {"admin_users": "app,lone"}),
    "parts, SCRAM": ("""
        DB_USER=app
        DB_PASSWORD=app_word
        DB_HOST=<host>
        DB_PORT=<port>
        DB_NAME=shop
        AUTH_TYPE=scram-sha-256
        POOL_MODE=transaction
        ADMIN_USERS=postgres,app
        LISTEN_PORT=<own>
        SERVER_IDLE_TIMEOUT=30
        """, ("app", "app_word", "shop"), {"server_idle_timeout": "30", "auth_type": "scram-sha-256"}),
    "plain, with links of Kubernetes": ("""
        DB_USER=app
        DB_PASSWORD=app_word
        DB_HOST=<host>
        DB_PORT=<port>
        AUTH_TYPE=plain
        ADMIN_USERS=app
        LISTEN_PORT=<own>
        PGBOUNCER_PORT=tcp://10.0.0.1:6432
        PGBOUNCER_SERVICE_HOST=10.0.0.1
        POSTGRESQL_PORT=tcp://10.0.0.2:5432
        """, ("app", "app_word", "shop"), {"auth_type": "plain"}),
    "a user file": ("""
        DB_HOST=<host>
        DB_PORT=<port>
        DB_USER=app
        DB_PASSWORD=not_this_one
        AUTH_FILE=<here>/users
        ADMIN_USERS=app
        LISTEN_PORT=<own>
        """, ("app", "app_word", "postgres"), {"auth_file": "<here>/users"}),
    "trust": ("""
        POSTGRESQL_HOST=<host>
        POSTGRESQL_PORT=<port>
        PGBOUNCER_AUTH_TYPE=trust
        PGBOUNCER_PORT=<own>
        PGBOUNCER_SOCKET_DIR=<here>
        """, ("postgres", "", "postgres"), {"stats_period": "60", "unix_socket_dir": "<here>"}),
    "a password and a database": ("""
        POSTGRESQL_HOST=<host>
        POSTGRESQL_PORT=<port>
        POSTGRESQL_USERNAME=app
        POSTGRESQL_PASSWORD=app_word
        POSTGRESQL_DATABASE=shop
        PGBOUNCER_DATABASE=front
        PGBOUNCER_POOL_MODE=transaction
        PGBOUNCER_PORT=<own>
        PGBOUNCER_SOCKET_DIR=<here>
        """, ("app", "app_word", "front"), {"admin_users": "app", "pool_mode": "transaction"}),
    "a file with the password, all databases": ("""
        POSTGRESQL_HOST=<host>
        POSTGRESQL_PORT=<port>
        POSTGRESQL_USERNAME=app
        POSTGRESQL_PASSWORD_FILE=<here>/word
        PGBOUNCER_DATABASE=*
        PGBOUNCER_SET_DATABASE_USER=yes
        PGBOUNCER_SET_DATABASE_PASSWORD=yes
        PGBOUNCER_PORT=<own>
        PGBOUNCER_SOCKET_DIR=<here>
        """, ("app", "app_word", "shop"), {"auth_type": "scram-sha-256"}),
    "entries of their own": ("""
        POSTGRESQL_HOST=<host>
        POSTGRESQL_PORT=<port>
        POSTGRESQL_USERNAME=app
        POSTGRESQL_PASSWORD=app_word
        PGBOUNCER_DSN_0=orders=host=<host> port=<port> dbname=shop connect_query='select 1'
        PGBOUNCER_DSN_1=other=host=<host> port=<port> dbname=postgres
        PGBOUNCER_PORT=<own>
        PGBOUNCER_SOCKET_DIR=<here>
        """, ("app", "app_word", "orders"), {"server_tls_sslmode": "disable"}),
    "a list of users": ("""
        POSTGRESQL_HOST=<host>
        POSTGRESQL_PORT=<port>
        POSTGRESQL_USERNAME=app
        POSTGRESQL_PASSWORD=app_word
        PGBOUNCER_DATABASE=shop
        PGBOUNCER_USERLIST="lone" "lone_word"
        PGBOUNCER_STATS_USERS=lone
        PGBOUNCER_PORT=<own>
        PGBOUNCER_SOCKET_DIR=<here>
        """, ("lone", "lone_word", "shop"), {"stats_users": "lone"}),
    "with a setting of Howdah's": ("""
        DATABASE_URL=postgres://app:app_word@<host>:<port>/shop
        LISTEN_PORT=<own>
        ADMIN_USERS=app
        POOL_MODE=session
        HOWDAH_POOL_MODE=transaction
        """, ("app", "app_word", "shop"), {"pool_mode": "transaction"}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_variables_of_images(make_howdah, strict, shape):
    """Each shape starts, takes its client to PostgreSQL, and has its settings; nothing shows a password."""
    variables, (user, password, database), settings = SHAPES[shape]
    howdah = start(make_howdah, strict, variables,
                   [("users", '"app" "app_word"\n'), ("word", "app_word\n")])
    with howdah.connect(user=user, database=database, password=password) as client:
        assert client.value("select current_user") == user
    shown = config(howdah, user, password)
    expected = {key: value.replace("<here>", howdah.folder) for key, value in settings.items()}
    assert {key: shown[key] for key in settings} == expected
    assert shown["listen_port"] == str(howdah.port) and shown["workers"] == "1"
    code, said = howdah.run_to_end("config", "show", "--environment", env=howdah.environment)
    assert code == 0 and f"pool_mode = {shown['pool_mode']}" in said
    assert "_word" not in said + howdah.log()


def test_ready(make_howdah, postgres):
    """`howdah ready` asks the HTTP endpoint, or a listener, or the unix socket."""
    port = machine.free_port()
    howdah = make_howdah(http_listen_port=port)
    http = f"howdah: not ready: 127.0.0.1:{port}: "
    machine.wait_until(lambda: howdah.run_to_end("ready", howdah.ini_path) == (0, "ready\n"), "it to be ready")
    howdah.console("PAUSE")
    machine.wait_until(lambda: howdah.run_to_end("ready", howdah.ini_path)
                       == (1, f"{http}paused\n"), "it to be paused")
    howdah.stop()
    refused = f"howdah: not ready: 127.0.0.1:{howdah.port}: Connection refused\n"
    assert howdah.run_to_end("ready", howdah.ini_path) == (1, refused)
    for settings in ({"http_listen_port": None, "proxy_protocol": "127.0.0.0/8"}, {"listen_addr": ""}):
        howdah.write(**settings)
        start_on_socket(howdah)
        machine.wait_until(lambda: howdah.run_to_end("ready", howdah.ini_path)[0] == 0, "it to listen")
        mark = howdah.log_mark()
        assert howdah.run_to_end("ready", howdah.ini_path) == (0, "ready\n")
        howdah.stop()
        assert "closing because" not in howdah.log()[mark:]
        code, said = howdah.run_to_end("ready", howdah.ini_path)
        assert code == 1 and said.startswith("howdah: not ready: "), said


def start_on_socket(howdah):
    """Starts a Howdah that we can't connect to by its port."""
    howdah.child = howdah.spawn("--quiet", howdah.ini_path)
    machine.wait_until(lambda: os.path.exists(howdah.socket_path), "its socket")


def libraries(program):
    """The files that a program needs to start."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    words = [word for line in said.splitlines() for word in line.split() if word.startswith("/")]
    return sorted(set(words))


@pytest.fixture
def image(make_howdah, postgres):
    """A root folder as the image has it: the program under both names, its libraries, its users, nothing else."""
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False)
    if os.geteuid() != 0 or done.returncode != 0:
        pytest.skip("this machine does not let us make namespaces")
    howdah = make_howdah(start=False)
    howdah.root = os.path.join(howdah.folder, "root")
    howdah.run = machine.folder(howdah.folder, "run")
    for path in ("usr/bin", "proc", "run", "etc/pgbouncer"):
        os.makedirs(os.path.join(howdah.root, path))
    for path in libraries(howdah.program):
        os.makedirs(os.path.dirname(howdah.root + path), exist_ok=True)
        shutil.copy(path, howdah.root + path)
    subprocess.run(["strip", "-o", f"{howdah.root}/usr/bin/howdah", howdah.program], check=True)
    os.symlink("howdah", f"{howdah.root}/usr/bin/pgbouncer")
    put(howdah, "etc/passwd", "howdah:x:100:101::/:/none\npgbouncer:x:998:996::/:/none\n")
    put(howdah, "etc/group", "howdah:x:101:\npgbouncer:x:996:\n")
    subprocess.run(["chmod", "-R", "a+rX", howdah.root], check=True)
    # Above the folder, and what would be an emptyDir.
    for path, mode in ((howdah.run, 0o777), (howdah.folder, 0o755), (os.path.dirname(howdah.folder), 0o755)):
        os.chmod(path, mode)
    howdah.kept = []
    yield howdah
    for child in howdah.kept:
        # The first process of a namespace takes all others along.
        for pid in children(child):
            os.kill(pid, signal.SIGKILL)
        machine.end(child, signal.SIGKILL)


def children(child):
    """The pids of the processes that a child has started."""
    try:
        with open(f"/proc/{child.pid}/task/{child.pid}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        return []


def put(image, path, text):
    """A file of the image."""
    with open(os.path.join(image.root, path), "w") as file:
        file.write(text)
    os.chmod(os.path.join(image.root, path), 0o644)


INSIDE = """
set -e
mount --bind "$ROOT" "$ROOT"
mount -o remount,bind,ro "$ROOT"
mount -t proc none "$ROOT/proc"
mount --bind "$RUN" "$ROOT/run"
exec chroot --userspec="$WHO" --groups= "$ROOT" "$@"
"""


def begin(image, argv, who="998:996", **variables):
    """Starts a program of the image as its first process, which can't write the root. Gives its pid."""
    environment = {"PATH": os.environ["PATH"], "ROOT": image.root, "RUN": image.run, "WHO": who, **variables}
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "setpriv", "--no-new-privs",
            "sh", "-c", INSIDE, "sh", *argv]
    with open(image.log_path, "a") as log:
        child = machine.spawn(argv, as_user=False, env=environment, stdin=subprocess.DEVNULL,
                              stdout=log, stderr=log)
    image.kept.append(child)

    def found():
        assert child.poll() is None, image.log()
        pids = children(child)
        listens = os.path.exists(os.path.join(image.run, f".s.PGSQL.{image.port}"))
        return pids[0] if pids and listens else None
    return child, machine.wait_until(found, f"the program of the image to listen: {image.log_path}")


def ask(image, sql, user, database, who="998:996"):
    """What psql prints for a user of the system, over the socket of the image."""
    uid, gid = who.split(":")
    argv = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups",
            os.path.join(image.postgres.programs.bin, "psql"), "-XAt", "-h", image.run,
            "-p", str(image.port), "-U", user, "-d", database, "-c", sql]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30,
                          env={"PATH": os.environ["PATH"], "PGCONNECT_TIMEOUT": "10"})
    return done.stdout.strip() or done.stderr.strip()


FILE = """[databases]
* = host={host} port={to}
[pgbouncer]
listen_addr = *
listen_port = {port}
unix_socket_dir = /run
auth_type = hba
auth_hba_file = /etc/pgbouncer/pg_hba.conf
auth_file = /etc/pgbouncer/userlist.txt
admin_users = pgbouncer
user = postgres
pool_mode = {mode}
"""


def test_a_mounted_file(image):
    """As operators run it: PgBouncer's name and uid, a rule with peer, SIGHUP; SIGINT under load."""
    def write(mode):
        put(image, "etc/pgbouncer/pgbouncer.ini",
            FILE.format(host=image.postgres.host, to=image.postgres.port, port=image.port, mode=mode))
    write("session")
    put(image, "etc/pgbouncer/pg_hba.conf", "local pgbouncer pgbouncer peer\nlocal all all trust\n")
    put(image, "etc/pgbouncer/userlist.txt", '"postgres" ""\n')
    child, pid = begin(image, ["/usr/bin/pgbouncer", "--container"])
    with open(f"/proc/{pid}/status") as file:
        status = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    assert status["Name"] == "pgbouncer" and status["Uid"].split() == ["998"] * 4
    assert status["CapEff"] == "0" * 16 and status["NSpid"].split()[-1] == "1"
    assert not os.access(os.path.join("/proc", str(pid), "root/etc/passwd"), os.W_OK) or \
        os.statvfs(f"/proc/{pid}/root").f_flag & os.ST_RDONLY
    assert ask(image, "SHOW VERSION", "pgbouncer", "pgbouncer").startswith("PgBouncer 1.")
    assert "FATAL" in ask(image, "SHOW VERSION", "pgbouncer", "pgbouncer", who="65534:65534")
    assert ask(image, "select 41 + 1", "postgres", "postgres") == "42"
    inside = ["nsenter", f"--target={pid}", "--mount", "--pid", "--root", "/usr/bin/howdah", "ready"]
    assert subprocess.run(inside, capture_output=True, check=False).stdout == b"ready\n"

    write("transaction")
    os.kill(pid, signal.SIGHUP)
    machine.wait_until(lambda: "transaction" in [line.split("|")[1] for line in ask(
        image, "SHOW CONFIG", "pgbouncer", "pgbouncer").splitlines() if line.startswith("pool_mode|")], "the reload")
    with wire.connect(os.path.join(image.run, f".s.PGSQL.{image.port}"), user="postgres",
                      database="postgres") as client:
        client.send(wire.query("select pg_sleep(0.3)"))
        machine.wait_until(lambda: ask(image, "SHOW POOLS", "pgbouncer", "pgbouncer").find("postgres|postgres|1|") >= 0,
                           "the query to run")
        os.kill(pid, signal.SIGINT)
        assert "E" not in [got.tag for got in client.read_until()]
        assert child.wait(30) == 0, image.log()


def test_variables_in_an_image(image):
    """Without a mounted file the image reads variables; nothing but the socket is written."""
    put(image, "etc/pgbouncer/userlist.txt", "")
    _, pid = begin(image, ["/usr/bin/howdah", "--container"], "100:101",
                   POSTGRESQL_HOST=image.postgres.host, POSTGRESQL_PORT=str(image.postgres.port),
                   PGBOUNCER_AUTH_TYPE="trust", PGBOUNCER_PORT=str(image.port), PGBOUNCER_SOCKET_DIR="/run")
    assert ask(image, "select 41 + 1", "postgres", "postgres") == "42"
    assert ask(image, "SHOW VERSION", "postgres", "pgbouncer").startswith("PgBouncer 1.")
    assert os.listdir(image.run) and all(name.startswith(".s.PGSQL.") for name in os.listdir(image.run))
