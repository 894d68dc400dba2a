"""PostgreSQL's own regression suite, directly and through Howdah, must end alike.

In transaction mode nobody who keeps no server gets the same one twice running as long as another is
free, and a disturber uses servers in between, so that what a session has must really follow it.
"""

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import threading
import time

from harness import machine, postgres as pg
from harness.howdah import Howdah

from . import built, tell

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
    """Runs the suite against a port; the folder of its results."""
    output = machine.folder(scratch, name)
    child = machine.spawn(
        [driver, "--inputdir", suite, "--outputdir", output, "--dlpath", suite,
         "--bindir", programs.bin, "--schedule", os.path.join(suite, "parallel_schedule"),
         "--host", "127.0.0.1", "--port", str(port), "--user", pg.SUPERUSER],
        cwd=suite, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, _ = child.communicate()
    results = os.path.join(output, "results")
    if not os.path.isdir(results) or not outputs(results):
        sys.exit(said)
    print(f"{name:20} {len(outputs(results))} files", flush=True)
    return results


def outputs(results):
    """The files of a folder of results."""
    return sorted(name for name in os.listdir(results) if name.endswith(".out"))


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


def given_out(howdah):
    """How many of the suite's transactions ran, and how often a server was given out for one."""
    row = next(row for row in howdah.console("SHOW STATS") if row["database"] == "regression")
    return {"transactions": int(row["total_xact_count"]),
            "given": int(row["total_server_assignment_count"])}


def compare(direct, through):
    """The names of tests whose output is not the same byte for byte."""
    return [name.removesuffix(".out") for name in outputs(direct)
            if not os.path.exists(os.path.join(through, name))
            or not filecmp.cmp(os.path.join(direct, name), os.path.join(through, name), False)]


def unexpected(different, mode):
    """Those that may not end differently in this mode."""
    return [name for name in different if name not in KNOWN[mode]]


def main():
    parser = argparse.ArgumentParser(
        prog="./prove regress", description=__doc__,
        epilog="SUITE is src/test/regress of the sources of the PostgreSQL that is installed, with "
               "its modules regress.so, refint.so and autoinc.so beside the schedules.")
    parser.add_argument("suite", metavar="SUITE")
    parser.add_argument("--driver", default="auto", help="io_uring or epoll")
    parser.add_argument("--workers", default=1, type=int)
    parser.add_argument("--mode", default="transaction", choices=KNOWN)
    parser.add_argument("--reuse", action="store_true",
                        help="clients follow each other on a server, which PostgreSQL lets them "
                             "see: loaded libraries, for one")
    parser.add_argument("--debug", action="store_true", help="the debug build")
    options = parser.parse_args()

    program = os.path.join(built(options.debug), "howdah")
    began, figures = time.monotonic(), {}
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
            howdah = Howdah(program, scratch, "howdah", postgres=cluster,
                            driver=options.driver, workers=options.workers,
                            pool_mode=options.mode, default_pool_size=90, max_client_conn=1000,
                            **more)
            port = howdah.port
        disturber = Disturber(howdah, cluster) if through and options.mode != "session" else None
        try:
            results.append(run_suite(driver, programs, suite, scratch, name, port))
            if disturber:
                disturber.end()
                figures = {**given_out(howdah), "disturber": disturber.count}
        finally:
            if disturber:
                disturber.end()
            for child in (howdah, cluster):
                if child:
                    child.stop()
    different = compare(*results)
    for name in different:
        subprocess.run(["diff", "-u", *(os.path.join(folder, f"{name}.out") for folder in results)])
    wrong = unexpected(different, options.mode)
    print(f"{len(different)} files end differently, {len(wrong)} of them must not")
    return tell("regress", not wrong, mode=options.mode, files=len(outputs(results[0])),
                different=different, unexpected=wrong, **figures,
                seconds=round(time.monotonic() - began))


if __name__ == "__main__":
    sys.exit(main())
