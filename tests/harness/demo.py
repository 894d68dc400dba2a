"""`./run`: Howdah in front of a PostgreSQL, with a short proof, until Ctrl-C."""

import argparse
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import urllib.parse

from . import machine, postgres as pg, wire
from .howdah import ADMIN, Howdah

CLIENTS = 40
CROWD = 500  # clients; the throw-away PostgreSQL takes 120 connections
POOL = 10
SECONDS = 3
USER = "demo"
PASSWORD = "elephant"
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")

COLOURS = sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def bold(text):
    """Bold on a terminal."""
    return f"\033[1m{text}\033[0m" if COLOURS else text


def say(text):
    """One line of what is being done."""
    print(bold("== " + text), flush=True)


class Target:
    """The PostgreSQL behind: where it is and who logs in."""

    def __init__(self, host, port, user, password, database, script=(), sslmode="",
                 sslrootcert=""):
        self.host, self.port = host, port
        self.user, self.password, self.database = user, password, database
        self.script = list(script)  # pgbench's options that say what to run
        self.sslmode, self.sslrootcert = sslmode, sslrootcert  # empty: libpq's defaults


def throw_away(scratch):
    """Starts a PostgreSQL with a role that has a password, and fills pgbench's tables."""
    found = pg.installations()
    if not found:
        sys.exit("No PostgreSQL server found.")
    version = min(found)
    say(f"Starting a throw-away PostgreSQL {version}")
    programs = pg.Programs(version, found[version], scratch)
    cluster = pg.Postgres(programs, scratch, "postgresql")
    cluster.sql(f"create role {USER} login password '{PASSWORD}'")
    cluster.sql(f"create database {USER} owner {USER}")
    cluster.write_hba("local all all trust", "host all postgres 127.0.0.1/32 trust",
                      "host all all 127.0.0.1/32 scram-sha-256")
    cluster.reload()
    target = Target(cluster.host, cluster.port, USER, PASSWORD, USER, ["-S"])
    say("Filling pgbench's tables")
    pgbench(programs.path("pgbench"), target, target.port, target.host,
            ["-i", "-q", "-s", "5"])
    return cluster, programs.path("pgbench"), target


def users_own(url):
    """Reads a postgres:// URL; nothing is ever written there."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        sys.exit(f"--to wants a URL such as postgres://user:password@host:5432/database, not {url}")
    more = dict(urllib.parse.parse_qsl(parts.query))
    sslmode = more.pop("sslmode", "")
    if sslmode and sslmode not in SSL_MODES:
        sys.exit(f"--to has an sslmode that is none of {', '.join(SSL_MODES)}: {sslmode}")
    sslrootcert = more.pop("sslrootcert", "")
    if sslrootcert and not os.path.isfile(sslrootcert):
        sys.exit(f"--to names an sslrootcert that is not there: {sslrootcert}")
    user = urllib.parse.unquote(parts.username or more.pop("user", "") or os.environ.get("PGUSER")
                                or machine.unprivileged_user().pw_name)
    password = urllib.parse.unquote(parts.password or os.environ.get("PGPASSWORD", ""))
    database = urllib.parse.unquote(parts.path.lstrip("/")) or user
    host = more.pop("host", "") or urllib.parse.unquote(parts.hostname or "") or "127.0.0.1"
    try:
        port = int(more.pop("port", "") or parts.port or 5432)
    except ValueError:
        sys.exit(f"--to has no port that is a number: {url}")
    return Target(host, port, user, password, database, sslmode=sslmode,
                  sslrootcert=sslrootcert and os.path.abspath(sslrootcert))


def ini_name(name):
    """A name as a key of the ini file."""
    return '"' + name.replace('"', '""') + '"'


def ini_value(value):
    """A value of a connection string."""
    return "'" + str(value).replace("'", "''") + "'"


def find_pgbench():
    """pgbench of the machine, if there is one."""
    for path in pg.installations().values():
        if os.access(os.path.join(path, "pgbench"), os.X_OK):
            return os.path.join(path, "pgbench")
    return shutil.which("pgbench")


def pgbench(program, target, port, host, options):
    """Runs pgbench and gives what it printed."""
    environment = {**os.environ, "PGPASSWORD": target.password, "PGSSLMODE": "prefer"}
    if (host, port) == (target.host, target.port):
        environment["PGSSLMODE"] = target.sslmode or "prefer"
        if target.sslrootcert:
            environment["PGSSLROOTCERT"] = target.sslrootcert
    return machine.run([program, "-h", host, "-p", str(port), "-U", target.user, *options,
                        target.database], as_user=False, env=environment)


def measure(program, target, port, host, pooler=None, clients=CLIENTS, length=("-T", SECONDS)):
    """A short pgbench run: transactions per second, latency, failures, CPU of the pooler."""
    before = machine.cpu_seconds(pooler) if pooler else 0
    said = pgbench(program, target, port, host,
                   ["-n", "-c", str(clients), "-j", "2", *map(str, length), "-M", "prepared",
                    *target.script])
    def number(pattern):
        match = re.search(pattern, said)
        if not match:
            sys.exit("pgbench said something unexpected:\n" + said)
        return float(match.group(1))
    result = {
        "transactions": number(r"transactions actually processed: (\d+)"),
        "tps": number(r"tps = ([\d.]+)"),
        "latency": number(r"latency average = ([\d.]+)"),
    }
    failed = re.search(r"number of failed transactions: (\d+)", said)
    result["failed"] = int(failed.group(1)) if failed else 0
    if pooler:
        used = machine.cpu_seconds(pooler) - before
        result["cpu"] = 1e6 * used / max(result["transactions"], 1)
    return result


def prove(program, target, howdah):
    """pgbench directly and through Howdah, side by side, and more clients than PostgreSQL would take;
    whether no transaction failed."""
    say(f"pgbench -c {CLIENTS} -T {SECONDS} -M prepared, directly and through Howdah")
    direct = measure(program, target, target.port, target.host)
    through = measure(program, target, howdah.port, howdah.host, howdah.child.pid)
    servers = servers_of(howdah, target)
    print(f"{'':16}{'TPS':>10}{'latency ms':>12}{'failed':>8}{'connections':>13}")
    print(f"{'PostgreSQL':16}{direct['tps']:>10,.0f}{direct['latency']:>12.2f}"
          f"{direct['failed']:>8}{CLIENTS:>13}")
    print(f"{'through Howdah':16}{through['tps']:>10,.0f}{through['latency']:>12.2f}"
          f"{through['failed']:>8}{servers:>13}")
    print(f"Howdah used {through['cpu']:.1f} µs of CPU per transaction.")
    each = max(1, int(through["tps"]) // CROWD)  # about a second, however far the server is
    crowd = measure(program, target, howdah.port, howdah.host, clients=CROWD, length=("-t", each))
    most = max(servers, servers_of(howdah, target))
    print(bold(f"{CROWD} clients on {most} connections to PostgreSQL: "
               f"{crowd['transactions']:,.0f} transactions, {crowd['tps']:,.0f} a second, "
               f"{crowd['failed']} errors."))
    if most > POOL:
        print(f"More than the {POOL} server connections allowed: a fault of Howdah's.")
    return direct["failed"] == through["failed"] == crowd["failed"] == 0 and 0 < most <= POOL


def servers_of(howdah, target):
    """How many connections to the target there are."""
    return sum(row["database"] == target.database for row in howdah.console("SHOW SERVERS"))


def select_one(scratch):
    """A script for other people's PostgreSQL: reads nothing, writes nothing."""
    path = os.path.join(scratch, "select-one.sql")
    with open(path, "w") as script:
        script.write("\\set n random(1, 1000000)\nSELECT :n;\n")
    return ["-f", path]


def start(options, scratch, target, secret):
    """Howdah in front of the target; clients log in as they would at PostgreSQL."""
    where = {"host": target.host, "port": target.port, "dbname": target.database}
    if target.sslmode:
        where["sslmode"] = target.sslmode
    entry = " ".join(f"{key}={ini_value(value)}" for key, value in where.items())
    say(f"Starting Howdah: {POOL} server connections, transaction pooling")
    # Without a password there is nothing to ask clients for; only this machine can connect.
    howdah = Howdah(
        os.path.abspath(options.howdah), scratch, "howdah", start=False, workers=0,
        databases={ini_name(target.database): entry},
        auth_type="scram-sha-256" if secret else "trust",
        admin_users=f"{ADMIN}, {target.user}",
        default_pool_size=POOL, max_client_conn=1000,
        http_listen_port=machine.free_port(), http_page=1,
        server_tls_ca_file=target.sslrootcert or None,
    )
    howdah.secrets = {ADMIN: secrets.token_hex(16), target.user: secret}
    howdah.write()
    return howdah.start()


def how_to_connect(howdah, target):
    """Ready-made lines for a shell."""
    def quoted(text):
        return urllib.parse.quote(text, safe="")
    login = quoted(target.user) + (f":{quoted(target.password)}" if target.password else "")
    base = f"postgres://{login}@{howdah.host}:{howdah.port}"
    print()
    print(f"Connect:   psql '{base}/{quoted(target.database)}'")
    print(f"Console:   psql '{base}/pgbouncer' -c 'SHOW POOLS'")
    print(f"Page:      http://{howdah.host}:{howdah.sections['pgbouncer']['http_listen_port']}/")
    print(f"Config:    {howdah.ini_path}")


def main():
    """Starts everything, proves it, and waits."""
    parser = argparse.ArgumentParser(prog="./run", description=__doc__)
    parser.add_argument("--once", action="store_true", help="leave after the proof")
    parser.add_argument("--to", metavar="URL", help="your own PostgreSQL: postgres://user@host/db")
    parser.add_argument("--howdah", required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    # However we are ended, the children are ended in order.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)

    cluster = howdah = None
    good = False
    try:
        scratch = machine.scratch()
        if options.to:
            target, program = users_own(options.to), find_pgbench()
            target.script = select_one(scratch)
            secret = target.password
        else:
            cluster, program, target = throw_away(scratch)
            secret = cluster.secret(USER)
        howdah = start(options, scratch, target, secret)
        if program:
            good = prove(program, target, howdah)
        else:
            good = True
            print("There is no pgbench on this machine, so no figures.")
        how_to_connect(howdah, target)
        if not options.once:
            print("\nCtrl-C ends everything.", flush=True)
            howdah.child.wait()
            print("Howdah has ended by itself:\n" + howdah.said())
            good = False
    except KeyboardInterrupt:
        good = True
        print()
    except (RuntimeError, TimeoutError, OSError, wire.Refused, wire.Ended) as problem:
        print(problem, file=sys.stderr)
        if howdah:
            print(howdah.said(), file=sys.stderr)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        say("Ending everything")
        for child in (howdah, cluster):
            if child:
                child.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    try:
        main()
    except subprocess.TimeoutExpired as problem:
        sys.exit(f"A child did not end: {problem}")
