"""What it costs to look inside: CPU per transaction with metrics, top queries, slow queries and JSON
logs on and off, by the task clock of performance events, and waiting times while a pooler with many
clients and pools is scraped once a second, and while it is not. From the project's folder:

    PYTHONPATH=tests target/python/bin/python -m harness.seeing_cost cpu scrape

Each round does both in turn, so that what else the machine does hits both. Needs perf, and root or
a machine that lets its users count."""

import argparse
import glob
import os
import resource
import statistics
import threading
import time
import urllib.request

from . import machine, postgres as pg, wire
from .howdah import Howdah
from .tls_cost import Clock


class Seeing:
    """One run."""

    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        found = pg.installations()
        self.programs = pg.Programs(min(found), found[min(found)], scratch)
        self.postgres = pg.Postgres(self.programs, scratch, "postgresql", log_connections="off")
        machine.run([self.programs.path("pgbench"), "-i", "-q", "-h", self.postgres.socket_folder,
                     "-p", str(self.postgres.port), "-U", "postgres", "postgres"])
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the pooler's as well

    def start(self, name, **settings):
        """A pooler."""
        return Howdah(self.options.pooler, self.scratch, name, postgres=self.postgres,
                      log_connections=0, log_disconnections=0, max_prepared_statements=100,
                      max_client_conn=self.options.clients + 200, **settings)

    def pgbench(self, pooler, *arguments, database="postgres"):
        """Runs it to its end."""
        return machine.run([self.programs.path("pgbench"), "-n", "-S", *map(str, arguments), "-U",
                            "postgres", "-h", pooler.host, "-p", str(pooler.port), database])

    # What is measured ----------------------------------------------------------------------------

    def cpu(self):
        """CPU per transaction with all of it on, and off."""
        port = machine.free_port()
        poolers = {
            "off": self.start("off"),
            "on": self.start("on", http_listen_port=port, http_listen_addr="127.0.0.1",
                             top_queries=500, slow_query_time=1, log_format="json"),
        }
        busy = self.options.busy
        each = self.options.transactions // busy
        try:
            with Scraper(port):
                for mode in ("simple", "extended", "prepared"):
                    seen = {name: [] for name in poolers}
                    for _ in range(self.options.rounds):
                        for name, pooler in poolers.items():
                            with Clock(pooler.child.pid) as clock:
                                self.pgbench(pooler, "-M", mode, "-c", busy, "-j", 1, "-t", each)
                            seen[name].append(clock.microseconds / (each * busy))
                    ratios = [on / off for on, off in zip(seen["on"], seen["off"])]
                    print(f"CPU per transaction, {mode:9} off {statistics.median(seen['off']):6.2f}"
                          f"  on {statistics.median(seen['on']):6.2f} us  on/off "
                          f"{statistics.median(ratios):.3f} ({min(ratios):.3f} - "
                          f"{max(ratios):.3f})", flush=True)
        finally:
            for pooler in poolers.values():
                pooler.stop()

    def scrape(self):
        """Waiting times at a fixed rate, scraped and not."""
        port, pools = machine.free_port(), self.options.pools
        target = f"host={self.postgres.host} port={self.postgres.port} dbname=postgres"
        databases = {f"d{number}": target for number in range(pools)}
        pooler = self.start("scraped", databases=databases, http_listen_port=port,
                            http_listen_addr="127.0.0.1", metrics_max_pools=pools + 10,
                            workers=self.options.workers)
        idle, seen = [], {False: [], True: []}
        try:
            for number in range(self.options.clients):
                idle.append(wire.connect(pooler.address, user="postgres",
                                         database=f"d{number % pools}"))
            print(f"{len(idle)} clients in {pools} pools, {self.options.rate} transactions/s",
                  flush=True)
            for _ in range(self.options.rounds):
                for scraped in (False, True):
                    if scraped:
                        with Scraper(port) as scraper:
                            times = self.latencies(pooler)
                        assert scraper.count >= self.options.secs - 2, scraper.count
                    else:
                        times = self.latencies(pooler)
                    seen[scraped].append([percentile(times, share)
                                          for share in (0.5, 0.95, 0.99, 0.999)])
            for scraped, rounds in seen.items():
                name = "scraped every second" if scraped else "not scraped"
                cells = [f"{label} {statistics.median(values) / 1000:.3f} "
                         f"({min(values) / 1000:.3f} - {max(values) / 1000:.3f})"
                         for label, values in zip(("p50", "p95", "p99", "p99.9"), zip(*rounds))]
                print(f"{name:22} ms: " + "  ".join(cells), flush=True)
            print(f"a scrape: {scraper.size / 1024:.0f} KB, {scraper.took * 1000:.0f} ms")
        finally:
            for client in idle:
                client.close()
            pooler.stop()

    def latencies(self, pooler):
        """Microseconds of each transaction, from when it was to begin."""
        prefix = os.path.join(machine.folder(self.scratch, "latencies"), "log")
        for old in glob.glob(prefix + "*"):
            os.remove(old)
        self.pgbench(pooler, "-c", self.options.busy, "-j", 1, "-T", self.options.secs, "-R",
                     self.options.rate, "-l", f"--log-prefix={prefix}", database="d0")
        times = []
        for path in glob.glob(prefix + "*"):
            with open(path) as file:
                times.extend(int(line.split()[2]) for line in file)
        return sorted(times)


class Scraper(threading.Thread):
    """Asks for the metrics once a second while it is entered."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.url = f"http://127.0.0.1:{port}/metrics"
        self.ended = threading.Event()
        self.count = self.size = self.took = 0

    def run(self):
        while not self.ended.wait(1):
            start = time.monotonic()
            with urllib.request.urlopen(self.url, timeout=10) as answer:
                self.size = len(answer.read())
            self.took = time.monotonic() - start
            self.count += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def percentile(ordered, share):
    """The value below which this share of the values lies."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pooler", default="target/release/howdah", metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=10_000, help="idle ones")
    parser.add_argument("--pools", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--busy", type=int, default=40, help="clients that run transactions")
    parser.add_argument("--rate", type=int, default=8_000, help="transactions a second")
    parser.add_argument("--secs", type=int, default=10, help="of each half of a round")
    parser.add_argument("--transactions", type=int, default=60_000)
    parser.add_argument("what", nargs="+", choices=["cpu", "scrape"])
    options = parser.parse_args()
    seeing = Seeing(options, machine.scratch("howdah-seeing-"))
    try:
        for what in options.what:
            getattr(seeing, what)()
    finally:
        seeing.postgres.stop()


if __name__ == "__main__":
    main()
