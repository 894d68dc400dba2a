"""What more workers cost and bring, and what clients' settings cost, in interleaved pairs, each pair a
moment apart:

    PYTHONPATH=tests target/python/bin/python -m harness.core_pairs --pairs 10 --only "p99"

`pgbench -S` in transaction mode, CPU by the task clock of performance events. Each row says what is to
be reached, the median of the pairs' ratios, and the least and the most of them. Needs root."""

import argparse
import os
import re
import statistics
import subprocess
import sys

from . import machine, postgres as pg
from .core_cost import counted, totals
from .howdah import Howdah

# What is measured; settings of the one and of the other; clients; transactions a second, if not all
# that can be; what is compared, and its bound.
ONE, TWO, EIGHT = {"workers": 1}, {"workers": 2}, {"workers": 8}
ALWAYS = {"workers": 2, "pool_spread": "always"}
AT_MOST, AT_LEAST = "at most", "at least"
# The first statement of each client, in place of `pgbench -S` alone.
NO_SET = {**ONE, "first": "SELECT 1"}
SAME_SET = {**ONE, "first": "SET work_mem = 5000"}
OTHER_SETS = {**ONE, "first": "SET work_mem = :number"}


def pooled(settings, size):
    return {**settings, "default_pool_size": size}


ROWS = [
    *[(f"workers = 2 against 1, {clients} clients, {rate} transactions/s", TWO, ONE, clients, rate,
       [("cpu", AT_MOST, 1.03)]) for clients, rate in ((1, 3000), (8, 8000), (40, 9000))],
    *[(f"workers = 8 against 2, {clients} clients", EIGHT, TWO, clients, None,
       [("tps", AT_LEAST, 0.95), ("cpu", AT_MOST, 1.05)]) for clients in (40, 120, 500)],
    *[(f"pool_spread = load against always, {clients} clients", TWO, ALWAYS, clients, None,
       [("tps", AT_LEAST, 1.0), ("cpu", AT_MOST, 1.0)]) for clients in (40, 120, 500)],
    *[(f"p99/p50, workers = 2 against 1, pool of {size}, {clients} clients", pooled(TWO, size),
       pooled(ONE, size), clients, None, [("tail", AT_MOST, 1.0), ("tps", AT_LEAST, 1.0)])
      for size, clients in ((8, 40), (20, 120), (40, 120))],
    *[(f"the same SET by all against none, {clients} clients", SAME_SET, NO_SET, clients, None,
       [("cpu", AT_MOST, 1.02)]) for clients in (40, 120)],
    *[(f"another SET by each against none, {clients} clients", OTHER_SETS, NO_SET, clients, None,
       [("cpu", AT_MOST, 1.40)]) for clients in (40, 120)],
]

# `pgbench -S`, with a first statement of the session.
SCRIPT = r"""\if :begins = 1
\set begins 0
\set number 5000 + :client_id
{first};
\endif
\set aid random(1, 100000 * 10)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
"""


class Bench:
    """PostgreSQL, pgbench, and a Howdah for each setting."""

    def __init__(self, options, scratch, programs):
        self.options, self.scratch, self.programs = options, scratch, programs
        self.postgres = pg.Postgres(programs, scratch, "postgresql", log_connections="off")
        self.howdahs, self.started = {}, 0
        machine.run([programs.path("pgbench"), "-i", "-q", "-s", "10", "-h",
                     self.postgres.socket_folder, "-p", str(self.postgres.port), "-U", "postgres",
                     "postgres"])

    def howdah(self, settings):
        settings = {name: value for name, value in settings.items() if name != "first"}
        words = tuple(sorted(settings.items()))
        if words not in self.howdahs:
            settings = {"default_pool_size": 20, "max_client_conn": 1000, "log_connections": 0,
                        "log_disconnections": 0, **settings}
            self.started += 1
            name = f"pooler{self.started}"
            self.howdahs[words] = Howdah(self.options.pooler, self.scratch, name,
                                         postgres=self.postgres, **settings)
        return self.howdahs[words]

    def measure(self, settings, clients, rate):
        """Transactions a second, CPU in microseconds each, and p99/p50 of their times."""
        howdah, seconds = self.howdah(settings), self.options.secs
        prefix = os.path.join(self.scratch, "times")
        words = [self.programs.path("pgbench"), "-n", "-S", "-c", str(clients), "-j", "1", "-T",
                 str(seconds + 2), "-l", "--log-prefix", prefix, "-U", "postgres", "-h",
                 howdah.host, "-p", str(howdah.port)]
        words += ["--rate", str(rate)] if rate else []
        if "first" in settings:
            path = os.path.join(self.scratch, "script")
            with open(path, "w") as file:
                file.write(SCRIPT.format(first=settings["first"]))
            machine.hand_over(path)
            words[words.index("-S"):words.index("-S") + 1] = ["-f", path, "-D", "begins=1"]
        load = machine.spawn([*words, "postgres"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        begun = totals(howdah)["xact_count"]
        machine.wait_until(lambda: totals(howdah)["xact_count"] > begun + 20 * clients, "the load")
        before = totals(howdah)["xact_count"]
        counts = counted(howdah.child.pid, seconds)
        done = totals(howdah)["xact_count"] - before
        if load.wait(60) != 0:
            raise RuntimeError("pgbench has failed")
        return {"tps": done / seconds, "cpu": counts["task-clock"] * 1000 / done,
                "tail": self.tail(prefix)}

    @staticmethod
    def tail(prefix):
        folder, name = os.path.split(prefix)
        times = []
        for file in os.listdir(folder):
            if re.fullmatch(re.escape(name) + r"\.\d+(\.\d+)?", file):
                path = os.path.join(folder, file)
                with open(path) as lines:
                    times += [int(line.split()[2]) for line in lines]
                os.unlink(path)
        times.sort()
        return times[len(times) * 99 // 100] / times[len(times) // 2]

    def stop_poolers(self):
        """The next row's poolers need PostgreSQL's connections."""
        for howdah in self.howdahs.values():
            howdah.stop()
        self.howdahs.clear()

    def stop(self):
        self.stop_poolers()
        self.postgres.stop()


def row(bench, what, one, other, clients, rate, compared):
    """One row of the table: pairs in turn, the one and the other first."""
    ratios = {name: [] for name, *_ in compared}
    for number in range(bench.options.pairs):
        if sys.stderr.isatty():
            print(f"\r{what}: pair {number + 1} of {bench.options.pairs} ", end="", file=sys.stderr)
        first, second = (one, other) if number % 2 == 0 else (other, one)
        found = [bench.measure(settings, clients, rate) for settings in (first, second)]
        this, that = found if number % 2 == 0 else reversed(found)
        for name, values in ratios.items():
            values.append(this[name] / that[name])
    for name, which, bound in compared:
        values = ratios[name]
        middle = statistics.median(values)
        good = middle <= bound if which == AT_MOST else middle >= bound
        within = min(values) <= bound if which == AT_MOST else max(values) >= bound
        verdict = "reached" if good else "within the spread" if within else "missed"
        print(f"| {what} | {name} | {which} {bound:.2f} | {middle:.3f} | {min(values):.2f} - "
              f"{max(values):.2f} | {verdict} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pooler", default="target/release/howdah", metavar="PROGRAM")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--secs", type=int, default=3)
    parser.add_argument("--only", default="", help="rows with this in their names")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("the kernel's counters need root")
    scratch = machine.scratch("howdah-pairs-")
    found = pg.installations()
    bench = Bench(options, scratch, pg.Programs(min(found), found[min(found)], scratch))
    try:
        print("| measure | of | to reach | ratio | range | |\n|---|---|---|---|---|---|")
        for what in ROWS:
            if options.only in what[0]:
                row(bench, *what)
                bench.stop_poolers()
    finally:
        bench.stop()


if __name__ == "__main__":
    main()
