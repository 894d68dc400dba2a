"""The self-checking load, through a pooler or straight to PostgreSQL: every reply must be right.

    ./prove load all          Howdah on both drivers with one, two and four workers, with clients that
                              move between workers at random, and with TLS on both sides
    ./prove load howdah       one Howdah in transaction mode, as the options say
    ./prove load roles        the same, while a primary and its standby change places every few seconds:
                              no wrong answer, no hang, nothing lost that was confirmed, at most one
                              error for each server that is lost. --kill: not in order, but by failovers
    ./prove load lists        reads on standbys: clients append to lists and read them, while one fault after
                              the other hits a primary, two standbys and Howdah. No connection reads back in
                              time, nothing that was confirmed is lost. --consistency eventual is the proof
                              that the judge sees something: it must fail
    ./prove load shards       a database on two shards: each client writes and reads rows of its own keys, in
                              statements of their own and in transactions, and sees these rows and no other.
                              In the end no key has rows on both shards
    ./prove load postgres     PostgreSQL itself: must pass
    ./prove load pgbouncer    a PgBouncer, for comparison

Howdah gives servers out in turn, and disturbers leave on them what a session can hold. Options that
are not listed below go to howdah-load: --clients, --seconds, --minutes, --each, --only and so
on (target/release/howdah-load --help).
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

from harness import certificates, machine, postgres as pg, wire
from harness.howdah import Howdah

from . import built, tell
from .lists import DEFAULTS, FAULTS, Standbys, median_wait_ms

SUMS = ("operations", "wrong", "unexpected", "hangs")


def variants(options):
    """The Howdahs of `all`, as options."""
    for driver in ("io_uring", "epoll"):
        for more in ({"workers": 1}, {"workers": 2}, {"workers": 4},
                     {"workers": 4, "spread": "random"}, {"workers": 2, "tls": True}):
            yield argparse.Namespace(**{**vars(options), "driver": driver, **more})


class Load:
    """A PostgreSQL, and the sums of all runs against it."""

    def __init__(self, options, words):
        self.words = [*words, "--seed", str(options.seed)]
        self.built = built(options.debug)
        self.scratch = machine.scratch()
        found = pg.installations()
        programs = pg.Programs(min(found), found[min(found)], self.scratch)
        self.postgres = pg.Postgres(programs, self.scratch, "postgresql", max_connections="320",
                                    shared_buffers="256MB", log_connections="off")
        self.authority = certificates.Authority(self.scratch, "authority")
        self.certificate = self.authority.issue()
        self.postgres.use_tls(self.certificate, hba=("host all all 127.0.0.1/32 trust",
                                                      "host replication all 127.0.0.1/32 trust"))
        self.title = ""
        self.failed, self.runs, self.began = set(), 0, time.monotonic()
        self.more = {}  # figures of some runs
        self.sums = dict.fromkeys((*SUMS, "transactions", "given"), 0)

    def play(self, title, port, *more, tables=None, defaults=None, database="postgres"):
        """Runs the load against a port, and adds its counts. tables: the port where they are made and
        looked at, if not PostgreSQL's. defaults: options of howdah-load, if they are not given.
        database: where the load connects to."""
        for name, value in (defaults or {}).items():
            more += () if name in self.words else (name, value)
        self.title = title
        print(f"== {title}", flush=True)
        url = "postgres://postgres@127.0.0.1:{}/{}"
        child = machine.spawn(
            [os.path.join(self.built, "howdah-load"), "--url", url.format(port, database), "--prepare",
             "--prepare-url", url.format(tables or self.postgres.port, "postgres"), *more, *self.words],
            as_user=False, stdout=subprocess.PIPE, text=True)
        *table, last = child.communicate()[0].splitlines() or [""]
        print("\n".join(table), flush=True)
        self.runs += 1
        if child.returncode not in (0, 1):
            self.fail(f"howdah-load ended with {child.returncode}")
            return False
        figures = json.loads(last)
        self.failed.update(figures["failed"])
        for name in SUMS:
            self.sums[name] += figures[name]
        if figures["lists"]:
            self.more["lists"] = figures["lists"]
        if any(row["behaviour"] == "end" for row in figures["rows"]):
            self.fail("the tables could not be looked at")
        return figures["ok"]

    def fail(self, what):
        """Something besides a reply is wrong; the other variants are played all the same."""
        print(f"{self.title}: {what}", file=sys.stderr, flush=True)
        self.failed.add(f"{self.title}: {what.splitlines()[0]}")

    def pooler(self, options, program, **settings):
        """A pooler in front of PostgreSQL."""
        return Howdah(program, self.scratch, f"pooler{self.runs}", postgres=self.postgres,
                      default_pool_size=options.pool, max_client_conn=2000, log_connections=0,
                      log_disconnections=0, **settings)

    def through_howdah(self, options):
        """Runs the load through a Howdah."""
        title = f"Howdah, {options.driver}, {options.workers} workers, spread by {options.spread}, " \
                f"a pool of {options.pool}" + (", TLS on both sides" if options.tls else "")
        settings, more = {"server_tls_sslmode": "disable"}, ["--state"]
        if options.tls:
            settings = certificates.listener(self.certificate, self.authority,
                                             server_tls_sslmode="require")
            more.append("--tls")
        moves = options.spread == "random"
        howdah = self.pooler(options, os.path.join(self.built, "howdah"), driver=options.driver,
                             workers=options.workers, server_round_robin=1, pin_limit=options.pool,
                             pool_spread="always" if moves else options.spread, **settings)
        with howdah, howdah.shuffled() if moves else contextlib.nullcontext():
            clean = self.play(title, howdah.port, *more)
            if not howdah.running():
                self.fail("Howdah ended by itself")
                clean = False
            else:
                self.count(howdah)
                if moves and not any(int(row["moves_in"]) for row in howdah.console("SHOW WORKERS")):
                    self.fail("no client was moved")
            if not clean:
                told = [line for line in howdah.said().splitlines() if " LOG " not in line]
                print("\n".join(told[-10:]), file=sys.stderr)
        if options.keep:
            shutil.copytree(howdah.folder, os.path.join(options.keep, f"howdah{self.runs}"),
                            ignore=shutil.ignore_patterns(".s.PGSQL*"), dirs_exist_ok=True)

    def through_switchovers(self, options):
        """Runs the load through a Howdah whose PostgreSQL is another one every few seconds."""
        kind = Failovers if options.kill else Switchovers
        changes = kind(self.postgres, self.scratch, options.every)
        howdah = self.pooler(options, os.path.join(self.built, "howdah"), driver=options.driver,
                             workers=options.workers, databases={"postgres": changes.entry()},
                             server_round_robin=1, pin_limit=options.pool,
                             host_check_user=pg.SUPERUSER, server_tls_sslmode="disable")
        title = f"Howdah, {options.driver}, {options.workers} workers, a pool of {options.pool}; " \
                f"{'failovers' if options.kill else 'switchovers'} every {options.every:g} s"
        with changes, howdah:
            before = self.sums["unexpected"]
            with changes.going_on(howdah):
                self.play(title, howdah.port, "--state", "--faults", tables=howdah.port)
            errors = self.sums["unexpected"] - before
            print(f"{changes.count} changes, {errors} errors, at most {changes.longest:.2f} s without a primary",
                  flush=True)
            if changes.problem:
                self.fail(f"a switchover: {changes.problem!r}")
            if not howdah.running():
                self.fail("Howdah ended by itself")
            if not 0 < errors <= changes.count * options.pool:
                self.fail(f"{errors} errors in {changes.count} changes with {options.pool} servers each")

    def through_standbys(self, options):
        """Runs appends and readings through a Howdah that gives reads to standbys."""
        cluster = Standbys(self.postgres, self.scratch, options)
        http = machine.free_port()
        howdah = self.pooler(options, os.path.join(self.built, "howdah"), driver=options.driver,
                             workers=options.workers or 2, databases={"postgres": cluster.entry()},
                             pool_spread="always", server_round_robin=1, pin_limit=options.pool,
                             host_check_user=pg.SUPERUSER, server_tls_sslmode="disable",
                             read_routing="statements", read_consistency=options.consistency,
                             read_wait=options.read_wait,
                             http_listen_port=http)
        title = f"Howdah, {options.driver}, {options.workers or 2} workers, pools of {options.pool}, " \
                f"two standbys, read_consistency = {options.consistency}"
        with cluster, howdah:
            before = self.sums["unexpected"]
            # What is started by a thread ends with this thread: the load, not hosts and Howdahs.
            load = threading.Thread(target=self.play, args=(title, howdah.port, "--faults"), kwargs={
                "tables": howdah.port, "defaults": DEFAULTS})
            load.start()
            cluster.suffer(howdah, load)
            errors = self.sums["unexpected"] - before
            if howdah.running():
                self.more.update(faults=cluster.done, median_wait_ms=median_wait_ms(http))
            else:
                self.fail("Howdah ended by itself")
            if cluster.problem:
                self.fail(f"a fault: {cluster.problem}")
            if errors > cluster.bound:
                self.fail(f"{errors} errors, {cluster.bound} servers lost at most")
            if "panicked" in howdah.said():
                self.fail("Howdah panicked")
        if options.keep:
            shutil.copytree(howdah.folder, os.path.join(options.keep, f"howdah{self.runs}"),
                            ignore=shutil.ignore_patterns(".s.PGSQL*"), dirs_exist_ok=True)

    def through_shards(self, options):
        """Runs the load through a Howdah in front of a sharded database."""
        shards = ("kept_0", "kept_1")
        for shard in shards:
            self.postgres.sql(f"drop database if exists {shard}")
            self.postgres.sql(f"create database {shard}")
            for sql in ("create schema howdah_load", "create table howdah_load.kept (key int8 not null, n int4)"):
                self.postgres.sql(sql, database=shard)
        entries = {shard: f"host=127.0.0.1 port={self.postgres.port}" for shard in shards}
        howdah = self.pooler(options, os.path.join(self.built, "howdah"), driver=options.driver,
                             workers=options.workers or 2, server_round_robin=1, server_tls_sslmode="disable",
                             databases={**entries, "kept": "shards=" + ",".join(shards)},
                             maps={"distributions:kept": {"client": "hash bigint slots=16 0-7=kept_0 8-15=kept_1"},
                                   "tables:kept": {"howdah_load.*": "client(key)"}})
        title = f"Howdah, {options.driver}, {options.workers or 2} workers, two shards, pools of {options.pool}"
        with howdah:
            self.play(title, howdah.port, "--only", "shard_single,shard_tx", database="kept")
            if not howdah.running():
                self.fail("Howdah ended by itself")
        keys = [{key for [key] in self.postgres.sql("select distinct key from howdah_load.kept", shard)}
                for shard in shards]
        print(f"keys on the shards: {[len(of) for of in keys]}", flush=True)
        if keys[0] & keys[1] or not all(keys):
            self.fail("keys are on both shards, or on one only")

    def count(self, howdah):
        """How many transactions were given a server, and did not run on one that was kept."""
        row = next(row for row in howdah.console("SHOW STATS_TOTALS") if row["database"] == "postgres")
        ran, given = int(row["xact_count"]), int(row["server_assignment_count"])
        self.sums["transactions"] += ran
        self.sums["given"] += given
        print(f"{given} of {ran} transactions were given a server ({100 * given // max(1, ran)} %)")


class Switchovers:
    """A primary and its standby, which change places in order: nothing that was confirmed is lost."""

    def __init__(self, postgres, scratch, every):
        self.primary = postgres
        self.standby = pg.Standby(postgres, scratch, "standby")
        self.every = every
        self.count, self.longest, self.problem = 0, 0.0, None  # longest: without a primary, in seconds

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for host in (self.primary, self.standby):
            host.stop()

    def entry(self):
        """The database of both."""
        ports = f"{self.primary.port},{self.standby.port}"
        return f"host=127.0.0.1,127.0.0.1 port={ports} target_session_attrs=primary"

    @contextlib.contextmanager
    def going_on(self, howdah):
        """They change places again and again meanwhile."""
        over = threading.Event()

        def change():
            try:
                while not over.wait(self.every):
                    machine.wait_until(lambda: self.standby.is_standby_of(self.primary), "a standby")
                    self.one(howdah)
                    self.primary, self.standby = self.standby, self.primary
                    self.count += 1
            except (OSError, RuntimeError, subprocess.SubprocessError, wire.Refused, wire.Ended) as problem:
                self.problem = problem
        thread = threading.Thread(target=change)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def promote(self, how):
        """The primary ends, the standby is promoted."""
        began = time.monotonic()
        self.primary.stop(how)
        self.standby.promote()
        machine.wait_until(lambda: not self.standby.is_standby(), "a promotion")
        self.longest = max(self.longest, time.monotonic() - began)

    def one(self, howdah):
        """One change, behind which the standby has all that the primary has."""
        self.promote(signal.SIGINT)
        self.primary.stand_by_for(self.standby)


class Failovers(Switchovers):
    """A primary that dies while its standby has all that it has confirmed, and comes back unchanged: whatever
    it confirms then is lost."""

    def __init__(self, postgres, scratch, every):
        for setting in ("synchronous_standby_names = '*'", "synchronous_commit = on", "wal_log_hints = on",
                        "full_page_writes = on", "wal_keep_size = '1GB'"):
            postgres.sql(f"alter system set {setting}")
        postgres.stop()
        postgres.start()
        super().__init__(postgres, scratch, every)
        self.seen = 0  # how much of Howdah's log

    def one(self, howdah):
        """One failover. The old primary takes writes for a while, before it is a standby."""
        self.promote(signal.SIGQUIT)
        howdah.wait_for_log(f"host 127.0.0.1:{self.standby.port} is the primary", since=self.seen)
        self.seen = howdah.log_mark()
        self.primary.set_offline("synchronous_standby_names", "")
        self.primary.start()
        howdah.wait_for_log(f"host 127.0.0.1:{self.primary.port} is up again", since=self.seen)
        time.sleep(1)
        self.primary.rewind(self.standby)


def main():
    parser = argparse.ArgumentParser(prog="./prove load", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["all", "howdah", "roles", "lists", "shards",
                                                     "postgres", "pgbouncer"])
    parser.add_argument("--workers", type=int, default=0, help="of Howdah (0: one for each core)")
    parser.add_argument("--driver", default="auto", help="auto, io_uring or epoll")
    parser.add_argument("--spread", default="load", choices=["load", "always", "random"],
                        help="pool_spread; random: always, and SHUFFLE all the time")
    parser.add_argument("--pool", type=int, default=20, help="servers (20)")
    parser.add_argument("--tls", action="store_true", help="of Howdah's clients and servers")
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS",
                        help="of roles: from one switchover to the next (5)")
    parser.add_argument("--kill", action="store_true",
                        help="of roles: failovers, with synchronous replication, from a primary that comes back "
                        "and takes writes")
    parser.add_argument("--consistency", default="session", choices=["session", "eventual"],
                        help="of lists: read_consistency (session)")
    parser.add_argument("--read-wait", type=float, default=0.2, metavar="SECONDS",
                        help="of lists: read_wait (0.2)")
    parser.add_argument("--faults", default="all", metavar="NAMES",
                        help=f"of lists: all, none, or some of {', '.join(FAULTS)}")
    parser.add_argument("--seed", type=int, default=1, help="of the choices (1)")
    parser.add_argument("--pgbouncer", default="pgbouncer", metavar="PROGRAM")
    parser.add_argument("--keep", metavar="FOLDER", help="where Howdah's log and settings go")
    parser.add_argument("--debug", action="store_true", help="the debug build")
    options, words = parser.parse_known_args()
    load = Load(options, words)
    if options.what == "postgres":
        load.play("PostgreSQL itself", load.postgres.port)
    elif options.what == "roles":
        load.through_switchovers(options)
    elif options.what == "lists":
        load.through_standbys(options)
    elif options.what == "shards":
        for driver in ("io_uring", "epoll") if options.driver == "auto" else (options.driver,):
            load.through_shards(argparse.Namespace(**{**vars(options), "driver": driver}))
    elif options.what == "pgbouncer":
        with load.pooler(options, shutil.which(options.pgbouncer) or options.pgbouncer) as pooler:
            load.play(f"PgBouncer, a pool of {options.pool}", pooler.port)
            if not pooler.running():
                load.fail("PgBouncer ended by itself")
    else:
        for one in variants(options) if options.what == "all" else [options]:
            load.through_howdah(one)
    return tell("load", not load.failed, runs=load.runs, **load.sums, **load.more, failed=sorted(load.failed),
                seconds=round(time.monotonic() - load.began))


if __name__ == "__main__":
    sys.exit(main())
