"""A primary and two standbys, with one fault after the other: for `./prove load lists`."""

import contextlib
import http.client
import random
import re
import signal
import subprocess
import time

from harness import machine, postgres as pg, wire

PROBLEMS = (OSError, RuntimeError, AssertionError, subprocess.SubprocessError, wire.Refused, wire.Ended)
# Of howdah-load. Clients rest a little, so that there is time for standbys to follow.
DEFAULTS = {"--only": "list_append,list_read,list_look", "--clients": "60", "--pause": "20"}


class Standbys:
    """The cluster and its faults. Each fault leaves all as it was, but for who is the primary."""

    def __init__(self, postgres, scratch, options):
        # Without synchronous_commit, standbys get a commit up to wal_writer_delay later.
        for setting in ("synchronous_commit = on", "wal_keep_size = '1GB'"):
            postgres.sql(f"alter system set {setting}")
        postgres.reload()
        self.primary = postgres
        self.standbys = [pg.Standby(postgres, scratch, f"standby{i}") for i in (1, 2)]
        self.hosts = [self.primary, *self.standbys]
        self.dice = random.Random(options.seed)
        self.pool, self.every = options.pool, options.every
        self.faults = {name: fault for name, fault in FAULTS.items()
                       if options.faults == "all" or name in options.faults.split(",")}
        self.done = dict.fromkeys(self.faults, 0)
        self.bound = 0  # how many errors the faults may have caused: one for each server that was lost
        self.problem = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.stop(signal.SIGQUIT)

    def entry(self):
        """The database of all three."""
        ports = ",".join(str(host.port) for host in self.hosts)
        return f"host={','.join(['127.0.0.1'] * 3)} port={ports} target_session_attrs=primary"

    def suffer(self, howdah, load):
        """One fault after the other, in random order, while the thread of a load runs."""
        turns, name = [], "none"
        try:
            while True:
                load.join(self.every * self.dice.uniform(0.3, 1.7))
                if not load.is_alive():
                    return
                turns = turns or self.dice.sample(sorted(self.faults), len(self.faults))
                if turns:
                    name = turns.pop()
                    self.faults[name](self, howdah)
                    self.done[name] += 1
        except PROBLEMS as problem:
            self.problem = f"{name}: {problem!r}"
            load.join()

    def lose(self, *hosts):
        """All servers at these hosts are lost."""
        self.bound += len(hosts) * self.pool

    # Faults

    def pause_replay(self, _):
        """A standby does not replay for a while."""
        standby = self.dice.choice(self.standbys)
        standby.sql("select pg_wal_replay_pause()")
        time.sleep(self.dice.uniform(1, 3))
        standby.sql("select pg_wal_replay_resume()")

    def crash_standby(self, _):
        """One of its processes is killed. After that a standby may show less than before."""
        standby = self.dice.choice(self.standbys)
        self.lose(standby)
        standby.crash()

    def crash_primary(self, _):
        """One of its processes is killed. What it has confirmed is there afterwards."""
        self.lose(self.primary)
        self.primary.crash()
        self.wait_for_streams()

    def restart_standby(self, _):
        """A standby is stopped, in order or at once, and started."""
        standby = self.dice.choice(self.standbys)
        self.lose(standby)
        standby.stop(self.dice.choice([signal.SIGINT, signal.SIGQUIT]))
        time.sleep(self.dice.uniform(0, 1))
        standby.start()

    def freeze_standby(self, _):
        """A standby is silent for a second."""
        with self.dice.choice(self.standbys).frozen():
            time.sleep(1)

    def busy_primary(self, howdah):
        """All servers at the primary are busy for a while."""
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(howdah.connect(seconds=60)) for _ in range(self.pool)]
            for client in clients:
                client.send(wire.query("select pg_sleep(0.5)"))
            for client in clients:
                client.read_until()

    def take_over(self, howdah):
        """Another Howdah takes over all clients and servers."""
        howdah.take_over()

    def reload(self, howdah):
        """RELOAD with other settings."""
        howdah.write(read_wait=self.dice.choice([0.02, 0.2, 1]),
                     default_pool_size=self.dice.choice([self.pool, self.pool // 2]))
        howdah.reload()

    def switch_over(self, _):
        """The primary and a standby change places in order: nothing that was confirmed is lost."""
        self.wait_for_streams()
        old, new = self.primary, self.dice.choice(self.standbys)
        other = next(host for host in self.standbys if host is not new)
        self.lose(old, new)
        old.stop(signal.SIGINT)
        new.promote()
        machine.wait_until(lambda: not new.is_standby(), "a promotion")
        self.primary, self.standbys = new, [other, old]
        other.sql("alter system set primary_conninfo = "
                  f"'host={new.host} port={new.port} user={pg.SUPERUSER}'")
        other.sql("select pg_reload_conf()")
        old.stand_by_for(new)
        self.wait_for_streams()

    def wait_for_streams(self):
        """Waits until both standbys receive what the primary writes."""
        machine.wait_until(lambda: all(host.is_standby_of(self.primary) for host in self.standbys),
                           "standbys that stream", 30)


FAULTS = {name: getattr(Standbys, name) for name in (
    "pause_replay", "crash_standby", "crash_primary", "restart_standby", "freeze_standby", "busy_primary",
    "take_over", "reload", "switch_over")}


def median_wait_ms(port):
    """Between which two durations the median wait for a server lies, in milliseconds; from the metrics of
    this process of Howdah, at this HTTP port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    sums = {}
    for labels, count in re.findall(r"^howdah_pool_wait_seconds_bucket\{(.*)\} (\d+)", text, re.M):
        if 'database="postgres"' in labels:
            le = float(re.search(r'le="([^"]+)"', labels)[1])
            sums[le] = sums.get(le, 0) + int(count)
    below = 0.0
    for le in sorted(sums):
        if sums[le] * 2 >= sums[max(sums)]:
            return [round(below * 1000, 3), round(le * 1000, 3)]
        below = le
    return None
