"""howdah-load as a child: every reply it gets is compared with what PostgreSQL gives."""

import json
import os
import signal
import subprocess
import tempfile

from . import machine

PROGRAM = os.environ.get("HOWDAH_LOAD", os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
    "target", "debug", "howdah-load"))


class Load:
    """A run of the load against an address, with its tables in another one: PostgreSQL's."""

    # RESET and DISCARD ALL through a pool do not bring back what was set at login, as in PgBouncer.
    WITHOUT = "settings_reset"

    def __init__(self, address, direct, clients=20, seconds=3.0, prepare=True, user="postgres",
                 database="postgres", direct_user=None, **options):
        """direct_user: who makes the tables, if not `user`. options: further ones of howdah-load, `faults=True`, `only="simple,bank"` and so on."""
        def url(where, who):
            return f"postgres://{who}@{where[0]}:{where[1]}/{database}"
        words = [PROGRAM, "--url", url(address, user),
                 "--prepare-url", url(direct, direct_user or user),
                 "--clients", str(clients), "--seconds", str(seconds)]
        if "only" not in options:
            options["without"] = ",".join(filter(None, (options.get("without"), self.WITHOUT)))
        if prepare:
            words.append("--prepare")
        for name, value in options.items():
            words.append("--" + name)
            if value is not True:
                words.append(str(value))
        # Into files: a pipe that nobody reads yet would stop it.
        self.out, self.said = (tempfile.TemporaryFile("w+", errors="replace") for _ in range(2))
        self.child = machine.spawn(words, as_user=False, stdin=subprocess.DEVNULL,
                                   stdout=self.out, stderr=self.said)
        if prepare:
            machine.wait_until(self._prepared, "the load's tables")

    def _prepared(self):
        """Whether its tables are made, so that its clients come; a fault if it ended before."""
        assert self.running(), self.result()
        return b"The tables are made.\n" in os.pread(self.said.fileno(), 1000, 0)

    def running(self):
        """Whether it still works."""
        return self.child.poll() is None

    def kill(self):
        """Ends it as the kernel ends a process that has gone too far."""
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    def result(self, seconds=120):
        """Waits for its end: the sums of its table; a fault if any reply was wrong or missing."""
        self.child.wait(seconds)
        self.out.seek(0), self.said.seek(0)
        out, said = self.out.read(), self.said.read()
        assert self.child.returncode in (0, 1), f"{self.child.returncode}: {said[-3000:]}"
        table = json.loads(out.splitlines()[-1])
        sums = {key: table[key] for key in ("operations", "wrong", "unexpected", "hangs")}
        bad = [row for row in table["rows"] if row["wrong"] or row["hangs"]]
        # Of what it said, only what tells of these.
        told = [part for part in said.split("\n--- ") if ": Wrong: " in part or ": Hang: " in part]
        assert not bad, "\n--- ".join([str(bad), *told])[:20_000]
        sums["clean"] = table["ok"]
        sums["said"] = said
        assert sums["operations"] > 0
        return sums
