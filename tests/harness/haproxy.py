"""HAProxy in front of Howdahs."""

import os
import shutil
import signal

import pytest

from . import machine, wire

PROGRAM = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
needed = pytest.mark.skipif(not PROGRAM, reason="HAProxy is missing")

CONFIG = """
defaults
    mode tcp
    timeout connect 5s
    timeout client 10m
    timeout server 10m
listen howdahs
    bind 127.0.0.1:{port}
    balance roundrobin
{lines}
"""


class HaProxy:
    """One process, which takes connections and hands them to servers."""

    def __init__(self, scratch, name, *lines):
        """lines: what else the only `listen` section says."""
        self.folder = machine.folder(scratch, name)
        self.host, self.port = "127.0.0.1", machine.free_port()
        path = os.path.join(self.folder, "haproxy.cfg")
        with open(path, "w") as file:
            file.write(CONFIG.format(port=self.port, lines="\n".join(f"    {it}" for it in lines)))
        machine.hand_over(path)
        self.log_path = os.path.join(self.folder, "log")
        with open(self.log_path, "w") as log:
            self.child = machine.spawn([PROGRAM, "-f", path, "-db"], stdout=log, stderr=log)
        machine.wait_until(self._listens, "HAProxy to listen")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        machine.end(self.child, how=signal.SIGTERM)

    def _listens(self):
        assert self.child.poll() is None, open(self.log_path).read()
        try:
            wire.Wire(self.address).close()
            return True
        except OSError:
            return False

    @property
    def address(self):
        """Where clients connect."""
        return (self.host, self.port)
