"""OpenSSL's and GnuTLS's own clients: programs that speak TLS with any options, and pass on what they
are told on standard input."""

import os
import select
import shutil
import subprocess

import pytest

from . import machine, wire

READY = b"Z\0\0\0\x05I"


class TlsClient:
    """One that runs. What it says of itself and what the server says are one stream, `seen`."""

    def __init__(self, command):
        if not shutil.which(command[0]):
            pytest.skip(f"{command[0]} is missing")
        self.command = command
        self.child = machine.spawn(command, as_user=False, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.seen = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()

    def _fill(self):
        """Reads what comes next; False if nothing does any more."""
        out = self.child.stdout.fileno()
        readable, _, _ = select.select([out], [], [], wire.SECONDS)
        assert readable, f"{self.command} says nothing more than:\n{self.text()}"
        data = os.read(out, 65536)
        self.seen.extend(data)
        return bool(data)

    def text(self):
        """The end of what was seen."""
        return self.seen[-3000:].decode("utf-8", "backslashreplace")

    def until(self, *ends, times=1):
        """Reads until one of these has come so many times more."""
        counts = [self.seen.count(end) + times for end in ends]
        while all(self.seen.count(end) < count for end, count in zip(ends, counts)):
            assert self._fill(), f"{self.command} ended:\n{self.text()}"

    def to_end(self):
        """Reads all, and gives the exit code."""
        while self._fill():
            pass
        return self.child.wait(wire.SECONDS)

    def say(self, data):
        """Passes this on to the server, or tells it to the program."""
        self.child.stdin.write(data)
        self.child.stdin.flush()

    def login(self, user="postgres", database="postgres"):
        """Logs in, where no password is asked for."""
        self.say(wire.startup(user, database))
        self.until(READY)
        return self

    def ask(self, text):
        """A query, and its answer."""
        # A Query's Q would have OpenSSL's client quit.
        self.say(wire.parse(text) + wire.bind() + wire.execute() + wire.sync())
        self.until(READY)

    def leave(self):
        """Has it end by itself, and gives the exit code."""
        self.child.stdin.close()
        return self.to_end()


class OpenSsl(TlsClient):
    """`openssl s_client`. direct: without SSLRequest."""

    def __init__(self, howdah, authority, *options, direct=False):
        start = ["-alpn", "postgresql"] if direct else ["-starttls", "postgres"]
        super().__init__(["openssl", "s_client", "-connect", f"{howdah.host}:{howdah.port}", *start,
                          "-CAfile", authority.certificate, "-verify_return_error",
                          "-verify_hostname", "localhost", *options])

    def shake_hands(self):
        """Reads until the session stands, as it says."""
        self.until(b"Verify return code: 0")
        return self

    def update(self, both=True):
        """New keys for what it says, or for both sides."""
        self.say(b"K\n" if both else b"k\n")
        # What it reads together with the command would be taken for part of that.
        self.until(b"KEYUPDATE")


class GnuTls(TlsClient):
    """`gnutls-cli`. direct: without SSLRequest."""

    def __init__(self, howdah, authority, *options, direct=False):
        start = ["--alpn=postgresql"] if direct else ["--starttls-proto=postgres"]
        super().__init__(["gnutls-cli", f"--port={howdah.port}", *start,
                          f"--x509cafile={authority.certificate}", "--verify-hostname=localhost",
                          "--sni-hostname=localhost", *options, howdah.host])

    def shake_hands(self):
        """Reads until the session stands, as it says."""
        self.until(b"- Simple Client Mode:")
        return self
