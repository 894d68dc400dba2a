"""`./regress`: PostgreSQL's own regression suite, directly and through Howdah, must end alike.

In transaction mode nobody who keeps no server gets the same one twice running as long as another is
free, and a disturber uses servers in between, so that what a session has must really follow it.
"""

import argparse
import filecmp
import os
import re
import shutil
import subprocess
import sys
import threading

from . import machine, postgres as pg
from .howdah import Howdah

# What the suite's own installcheck needs of a cluster.
SETTINGS = {"max_connections": "100", "max_prepared_transactions": "2", "synchronous_commit": "on",
            "timezone": "Europe/Berlin", "log_connections": "off", "log_min_messages": "fatal"}


def find_pg_regress(programs):
    """The suite's driver, of Debian's postgresql-server-dev package or a like one."""
    library = subprocess.run([programs.path("pg_config"), "--pkglibdir"],
                             capture_output=True, text=True).stdout.strip()
    path = os.path.join(library, "pgxs/src/test/regress/pg_regress")
    if not os.access(path, os.X_OK):
        sys.exit(f"There is no {path}: install PostgreSQL's server development files.")
    return path


def run_suite(driver, programs, suite, scratch, name, port):
    """Runs the suite against a port; the folder of its results, and the summary."""
    output = machine.folder(scratch, name)
    child = machine.spawn(
        [driver, "--inputdir", suite, "--outputdir", output, "--dlpath", suite,
         "--bindir", programs.bin, "--schedule", os.path.join(suite, "parallel_schedule"),
         "--host", "127.0.0.1", "--port", str(port), "--user", pg.SUPERUSER],
        cwd=suite, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, _ = child.communicate()
    tests = len(re.findall(r"\b(?:ok|FAILED)\s+\d+ ms", said))
    failed = len(re.findall(r"FAILED\s+\d+ ms", said))
    print(f"{name:20} {tests} tests, {failed} differ from the expected output", flush=True)
    if not tests:
        sys.exit(said)
    return os.path.join(output, "results")


# What the disturber has in its session, each in turn: nobody else may see it.
DISTURBS = ("set search_path = nowhere", "set default_transaction_read_only = on", "set role nobody",
            "set work_mem = '65kB'", "set lock_timeout = '1h'", "set row_security = off",
            "set default_transaction_isolation = serializable", "set session authorization nobody",
            "set extra_float_digits = -15", "set check_function_bodies = off", "reset all",
            "reset role; reset session authorization", "discard all")


# Files that a pool in transaction mode may end otherwise; docs/session-state.md has the reasons.
KNOWN = {"session": set(),
         "transaction": {"guc", "limit", "sequence", "stats", "temp", "triggers"}}


class Disturber:
    """A client of the suite's database that uses servers all the time, with settings of its own."""

    def __init__(self, howdah, cluster):
        self.howdah, self.cluster = howdah, cluster
        self.ends, self.count = threading.Event(), 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        """Disturbs, once the database is there."""
        there = "select count(*) from pg_database where datname = 'regression'"
        while not self.ends.wait(0.1) and self.cluster.value(there) != "1":
            pass
        client = None
        while not self.ends.wait(0.002):
            try:
                if client is None:
                    client = self.howdah.connect(database="regression")
                client.rows(DISTURBS[self.count % len(DISTURBS)])
                self.count += 1
            except Exception:  # pylint: disable=broad-exception-caught
                # The database is not there, or the suite has ended this session, as it does others.
                client = None
                self.ends.wait(0.2)
        if client:
            client.close()

    def end(self):
        """Ends."""
        self.ends.set()
        self.thread.join()


def report_unpinned(howdah):
    """How many of the suite's transactions got a server of their own choosing."""
    for row in howdah.console("SHOW STATS"):
        if row["database"] == "regression":
            given, ran = (int(row[f"total_{what}_count"]) for what in ("server_assignment", "xact"))
            print(f"{ran} transactions, servers given out {given} times "
                  f"({100 * given / max(1, ran):.0f} %)", flush=True)
    for row in howdah.console("SHOW POOLS"):
        if row["database"] == "regression":
            print(f"{row['user']}: servers kept {row['pins']} times", flush=True)


def compare(direct, through):
    """The names of tests whose output is not the same byte for byte."""
    names = sorted(name for name in os.listdir(direct) if name.endswith(".out"))
    return [name for name in names if not os.path.exists(os.path.join(through, name))
            or not filecmp.cmp(os.path.join(direct, name), os.path.join(through, name), False)]


def verdict(different, mode):
    """The last line, and the exit code: whether only files differ that are known to."""
    different = [name.removesuffix(".out") for name in different]
    unknown = [name for name in different if name not in KNOWN[mode]]
    if not different:
        return "No test ends differently.", 0
    said = f"{len(different)} tests end differently: {' '.join(different)}"
    if unknown:
        return f"{said}; NOT EXPECTED of {mode} mode: {' '.join(unknown)}", 1
    return f"{said}; all are expected of {mode} mode", 0


def main():
    """Runs both and compares."""
    parser = argparse.ArgumentParser(
        prog="./regress", description=__doc__,
        epilog="SUITE is src/test/regress of the sources of the PostgreSQL that is installed, with "
               "its modules regress.so, refint.so and autoinc.so beside the schedules.")
    parser.add_argument("suite", metavar="SUITE")
    parser.add_argument("--driver", default="auto", help="io_uring or epoll")
    parser.add_argument("--workers", default=1, type=int)
    parser.add_argument("--mode", default="session", choices=KNOWN)
    parser.add_argument("--reuse", action="store_true",
                        help="clients follow each other on a server, which PostgreSQL lets them "
                             "see: loaded libraries, for one")
    parser.add_argument("--howdah", required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()

    found = pg.installations()
    scratch = machine.scratch()
    programs = pg.Programs(min(found), found[min(found)], scratch)
    driver = find_pg_regress(programs)
    suite = os.path.join(scratch, "suite")
    shutil.copytree(options.suite, suite)
    for folder, _, files in os.walk(suite):
        for path in [folder, *(os.path.join(folder, file) for file in files)]:
            machine.hand_over(path)

    results = []
    for through in (False, True):
        name = "through Howdah" if through else "directly"
        cluster = pg.Postgres(programs, scratch, name.replace(" ", "-") + "-cluster", **SETTINGS)
        cluster.sql("create role nobody")
        port, howdah = cluster.port, None
        if through:
            session = options.mode == "session"
            more = {"server_lifetime": 0} if session and not options.reuse else {}
            if not session:
                more = {"server_round_robin": 1, "pin_limit": 80, "min_pool_size": 6}
            howdah = Howdah(options.howdah, scratch, "howdah", postgres=cluster,
                            driver=options.driver, workers=options.workers,
                            pool_mode=options.mode, default_pool_size=90, max_client_conn=1000,
                            **more)
            port = howdah.port
        disturber = Disturber(howdah, cluster) if through and options.mode != "session" else None
        try:
            results.append(run_suite(driver, programs, suite, scratch, name, port))
            if disturber:
                disturber.end()
                print(f"The disturber ran {disturber.count} transactions.")
                report_unpinned(howdah)
        finally:
            if disturber:
                disturber.end()
            for child in (howdah, cluster):
                if child:
                    child.stop()
    different = compare(*results)
    for name in different:
        subprocess.run(["diff", "-u", *(os.path.join(folder, name) for folder in results)])
    said, code = verdict(different, options.mode)
    print(said)
    sys.exit(code)


if __name__ == "__main__":
    main()
