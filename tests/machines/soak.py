"""The self-checking load for a long time, while one fault after the other is done.

It passes if no reply was wrong or missing, Howdah never went down, and its memory and descriptors
stayed flat.
"""

import argparse
import os
import random
import signal
import sys
import time

from harness import load as loads, machine, postgres as pg, wire
from harness.howdah import Howdah

from . import built, tell

# Idle, an allocator's reserves come and go. After the warm-up memory must be flat up to this.
GROWTH_KIB = 16 * 1024
WARM_UP = 0.2  # of the time: until then pools, caches and buffers reach their sizes
SERVICE_SECONDS = 15  # within which a newcomer must be served after each fault


class Soak:
    """One run: a PostgreSQL, a Howdah, a load, and what was seen of them."""

    def __init__(self, options, scratch):
        self.options = options
        found = pg.installations()
        programs = pg.Programs(min(found), found[min(found)], scratch)
        self.postgres = pg.Postgres(programs, scratch, "postgresql", synchronous_commit="on",
                                    shared_buffers="64MB", log_connections="off")
        self.howdah = Howdah(options.howdah, scratch, "howdah", postgres=self.postgres,
                             driver=options.driver, workers=options.workers,
                             default_pool_size=options.pool, max_client_conn=2000,
                             log_connections=0, log_disconnections=0)
        self.pid = self.howdah.child.pid
        self.dice = random.Random(options.seed)
        self.problems = []
        self.samples = []
        self.faults = {}
        self.victim = None
        self.slowest = 0.0

    # Faults: each takes its step and leaves all as it was ------------------------------------------

    def kill_backends(self):
        """Some of our sessions die by SIGKILL, PostgreSQL recovers."""
        rows = self.postgres.sql("select pid from pg_stat_activity where backend_type = "
                                 "'client backend' and pid <> pg_backend_pid()")
        try:
            os.kill(int(self.dice.choice(rows)[0]), signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended by itself meanwhile

    def terminate_backends(self):
        """Half of our sessions are ended in order."""
        self.postgres.sql("select pg_terminate_backend(pid) from pg_stat_activity where "
                          "backend_type = 'client backend' and pid <> pg_backend_pid() "
                          "and random() < 0.5")

    def restart_postgres(self):
        """A restart, fast or sudden."""
        self.postgres.stop(self.dice.choice([signal.SIGINT, signal.SIGQUIT]))
        time.sleep(self.dice.random())
        self.postgres.start()

    def stop_and_continue(self):
        """PostgreSQL's sessions stand still for a moment."""
        pids = [int(pid) for (pid,) in self.postgres.sql(
            "select pid from pg_stat_activity where backend_type = 'client backend' "
            "and pid <> pg_backend_pid()")]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            time.sleep(0.3)

    def kill_clients(self):
        """A process of clients dies by SIGKILL, another comes."""
        if self.victim:
            self.victim.kill()
        self.victim = self.load(clients=max(2, self.options.clients // 10), seconds=3600,
                                prepare=False, without="disconnect,cancel,cancel_sure,bystander")

    def reload_other_limits(self):
        """RELOAD with another pool size and other lifetimes."""
        size = self.dice.choice([2, self.options.pool // 2, self.options.pool])
        self.howdah.write(default_pool_size=size,
                          server_lifetime=self.dice.choice([5, 60, 3600]),
                          max_prepared_statements=self.dice.choice([5, 50, 200]))
        self.howdah.reload()

    def pause_and_resume(self):
        """PAUSE, a while, RESUME."""
        self.howdah.console("PAUSE")
        time.sleep(self.dice.random())
        self.howdah.console("RESUME")

    def reconnect(self):
        """RECONNECT."""
        self.howdah.console("RECONNECT")

    ROTATION = (reconnect, kill_clients, reload_other_limits, terminate_backends, pause_and_resume,
                kill_backends, stop_and_continue, restart_postgres)

    # What is watched -------------------------------------------------------------------------------

    def load(self, **more):
        """The mixed load, held to its share of a core by rests."""
        return loads.Load(self.howdah.address, (self.postgres.host, self.postgres.port),
                          faults=True, pause=self.options.pause, hang=30, **more)

    def served(self):
        """Waits until a newcomer is served."""
        began = time.monotonic()

        def serves():
            if not self.howdah.running():
                raise RuntimeError("Howdah is down:\n" + self.howdah.said()[-3000:])
            try:
                with self.howdah.connect(seconds=SERVICE_SECONDS) as client:
                    return client.value("select 'served'") == "served"
            except (OSError, wire.Refused, wire.Ended):
                return False
        machine.wait_until(serves, "a newcomer to be served", SERVICE_SECONDS)
        self.slowest = max(self.slowest, time.monotonic() - began)

    def sample(self, began):
        """How large the process is now."""
        row = {
            "seconds": round(time.monotonic() - began),
            "rss_kib": machine.resident_kib(self.pid),
            "descriptors": len(os.listdir(f"/proc/{self.pid}/fd")),
            "servers": sum(r["database"] != "pgbouncer"
                           for r in self.howdah.console("SHOW SERVERS")),
            "cpu_seconds": round(machine.cpu_seconds(self.pid), 1),
            "faults": sum(self.faults.values()),
        }
        self.samples.append(row)
        print(f"{row['seconds']:6} s  {row['rss_kib'] / 1024:7.1f} MiB  "
              f"{row['descriptors']:5} descriptors  {row['servers']:4} servers  "
              f"{row['cpu_seconds']:7.1f} s of CPU  {row['faults']:5} faults", flush=True)

    def one_fault(self, turn):
        """The next fault, and service after it."""
        fault = self.ROTATION[turn % len(self.ROTATION)]
        self.faults[fault.__name__] = self.faults.get(fault.__name__, 0) + 1
        try:
            fault(self)
            self.served()
        except (wire.Refused, wire.Ended, OSError, TimeoutError) as problem:
            self.problems.append(f"{fault.__name__}: {problem!r}")

    def run(self):
        """The whole of it; its figures."""
        self.served()
        quiet = self.quiet_sizes()
        began = time.monotonic()
        seconds = self.options.minutes * 60
        load = self.load(clients=self.options.clients, seconds=seconds)
        turn, next_sample = 0, began
        while load.running():
            if time.monotonic() >= next_sample:
                self.sample(began)
                next_sample += max(1, min(30, seconds / 40))
            time.sleep(self.options.every)
            if load.running():
                self.one_fault(turn)
                turn += 1
        if self.victim:
            self.victim.kill()
        sums = {}
        try:
            sums = load.result()
            sums.pop("said"), sums.pop("clean")
        except AssertionError as problem:
            self.problems.append(f"the load: {problem}")
        self.howdah.write(server_lifetime=3600, default_pool_size=self.options.pool)
        self.howdah.reload()
        self.served()
        self.sample(began)
        self.judge(quiet)
        sizes = [round(row["rss_kib"] / 1024, 1) for row in self.samples]
        return {**sums, "faults": self.faults, "mib_at_most": max(sizes), "mib_at_end": sizes[-1],
                "slowest_return_seconds": round(self.slowest, 2), "problems": self.problems,
                "seconds": round(time.monotonic() - began)}

    def quiet_sizes(self):
        """Descriptors that are no server's, with no client but the one that asks."""
        machine.wait_until(lambda: not [
            row for row in self.howdah.console("SHOW CLIENTS") if row["database"] != "pgbouncer"],
            "the clients to be gone")
        servers = sum(r["database"] != "pgbouncer" for r in self.howdah.console("SHOW SERVERS"))
        return len(os.listdir(f"/proc/{self.pid}/fd")) - servers

    def judge(self, quiet):
        """Flat memory, no descriptor too many, servers as PostgreSQL counts them, no panic."""
        try:
            machine.wait_until(lambda: self.quiet_sizes() <= quiet + 1, "the descriptors")
        except TimeoutError:
            self.problems.append(f"{self.quiet_sizes()} descriptors besides the servers', "
                                 f"{quiet} at the start")
        warm = self.options.minutes * 60 * WARM_UP
        sizes = [row["rss_kib"] for row in self.samples if row["seconds"] >= warm]
        third = max(1, len(sizes) // 3)
        # Between the first and the last third, by their largest: peaks are part of the work.
        grown = max(sizes[-third:]) - max(sizes[:third])
        if grown > GROWTH_KIB:
            self.problems.append(f"{grown} KiB more resident memory at the end than after the "
                                 "warm-up")
        try:
            machine.wait_until(lambda: self.postgres.sessions() == sum(
                row["database"] != "pgbouncer" for row in self.howdah.console("SHOW SERVERS")),
                "the servers to be PostgreSQL's sessions")
        except TimeoutError as problem:
            self.problems.append(str(problem))
        if self.howdah.child.pid != self.pid or "panicked" in self.howdah.said():
            self.problems.append("Howdah panicked or was restarted")


def main():
    parser = argparse.ArgumentParser(prog="./prove soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long (10)")
    parser.add_argument("--clients", type=int, default=60, help="how many clients (60)")
    parser.add_argument("--pool", type=int, default=16, help="servers (16)")
    parser.add_argument("--workers", type=int, default=2, help="workers of Howdah (2)")
    parser.add_argument("--driver", default="auto", help="auto, io_uring or epoll")
    parser.add_argument("--pause", type=float, default=60.0, metavar="MS",
                        help="rest of a client after each operation (60): all together, PostgreSQL "
                        "included, then take about half a core")
    parser.add_argument("--every", type=float, default=3.0, metavar="SECONDS",
                        help="from one fault to the next (3)")
    parser.add_argument("--seed", type=int, default=1, help="of the choices (1)")
    parser.add_argument("--debug", action="store_true", help="the debug build")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = built(options.debug)
    options.howdah = os.path.join(folder, "howdah")
    loads.PROGRAM = os.path.join(folder, "howdah-load")
    figures = Soak(options, machine.scratch()).run()
    print(f"a newcomer was served within {figures['slowest_return_seconds']} s of each fault")
    for problem in figures["problems"]:
        print("PROBLEM", problem)
    return tell("soak", not figures["problems"], **figures)


if __name__ == "__main__":
    sys.exit(main())
