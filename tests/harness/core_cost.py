"""What a transaction takes of the machine, counted in the running program: system calls, wake-ups (the
pooler's threads going to sleep), mails between workers, processor time. From the project's folder:

    PYTHONPATH=tests target/python/bin/python -m harness.core_cost --workers 1,2 --clients 1,40,500

`pgbench -S` through a pool of 40, in each of pgbench's modes. `pool_spread = always` puts the pool on
all workers at once. The counters are the kernel's (perf), begin behind the logins and
end before the clients leave. Needs perf and root."""

import argparse
import itertools
import os
import re
import signal
import subprocess
import tempfile

from . import machine, postgres as pg
from .howdah import Howdah

EVENTS = ("raw_syscalls:sys_enter", "context-switches", "task-clock")


def counted(pid, seconds):
    """The kernel's counts of a process over so many seconds."""
    with tempfile.NamedTemporaryFile("r") as out:
        words = ["perf", "stat", "-x", ",", "-o", out.name, "-p", str(pid)]
        for event in EVENTS:
            words += ["-e", event]
        subprocess.run([*words, "--timeout", str(seconds * 1000)], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        counts = {}
        for line in out.read().splitlines():
            fields = line.split(",")
            if len(fields) > 2 and fields[2] in EVENTS:
                counts[fields[2]] = float(fields[0])
    return counts


def totals(howdah):
    """Transactions, lent servers, moves and mails so far, of all workers."""
    rows = howdah.console("SHOW WORKERS")
    return {name: sum(int(row[name]) for row in rows)
            for name in ("xact_count", "lends", "moves_in", "mails")}


def measure(options, postgres, programs, scratch, mode, workers, spread, clients):
    """One line."""
    howdah = Howdah(options.pooler, scratch, "pooler", postgres=postgres, workers=workers,
                    default_pool_size=40, max_client_conn=clients + 50, log_connections=0,
                    log_disconnections=0, pool_spread=spread)
    seconds = options.secs
    load = machine.spawn(
        [programs.path("pgbench"), "-n", "-S", "-M", mode, "-c", str(clients), "-j",
         str(min(clients, 2)), "-T", str(seconds + 30), "-U", "postgres", "-h", howdah.host, "-p",
         str(howdah.port), "postgres"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        machine.wait_until(lambda: totals(howdah)["xact_count"] > 20 * clients, "the load")
        # The balancer finds its place first.
        subprocess.run(["sleep", "4"], check=True)
        before = totals(howdah)
        counts = counted(howdah.child.pid, seconds)
        after = totals(howdah)
    finally:
        load.send_signal(signal.SIGTERM)
        load.wait()
        howdah.stop()
    each = {name: after[name] - before[name] for name in after}
    count = each["xact_count"]
    print(f"| {mode} | {workers} | {spread} | {clients} | {count / seconds:,.0f} | "
          f"{counts['task-clock'] * 1000 / count:.1f} | {counts[EVENTS[0]] / count:.3f} | "
          f"{counts['context-switches'] / count:.4f} | {each['mails'] / count:.4f} | "
          f"{each['lends'] / count:.4f} | {each['moves_in']} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(word) for word in re.split("[, ]+", text)]  # noqa: E731
    words = lambda *known: {"nargs": "+", "default": known, "choices": known}  # noqa: E731
    parser.add_argument("--pooler", default="target/release/howdah", metavar="PROGRAM")
    parser.add_argument("--workers", type=numbers, default=[1, 2])
    parser.add_argument("--clients", type=numbers, default=[1, 40, 500])
    parser.add_argument("--mode", **words("simple", "extended", "prepared"))
    parser.add_argument("--spread", **words("load", "always"),
                        help="pool_spread, if there is more than one worker")
    parser.add_argument("--secs", type=int, default=3)
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("the kernel's counters of system calls need root")
    scratch = machine.scratch("howdah-cores-")
    found = pg.installations()
    programs = pg.Programs(min(found), found[min(found)], scratch)
    postgres = pg.Postgres(programs, scratch, "postgresql", log_connections="off")
    try:
        machine.run([programs.path("pgbench"), "-i", "-q", "-h", postgres.socket_folder, "-p",
                     str(postgres.port), "-U", "postgres", "postgres"])
        print("| mode | workers | pool_spread | clients | transactions/s | CPU us | system calls | "
              "wake-ups | mails | lent servers | moves |\n" + "|---" * 11 + "|")
        for mode, workers, spread, clients in itertools.product(
                options.mode, options.workers, options.spread, options.clients):
            if workers > 1 or spread == options.spread[0]:
                measure(options, postgres, programs, scratch, mode, workers, spread, clients)
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
