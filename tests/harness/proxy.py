"""A TCP proxy between Howdah and PostgreSQL, or a client and Howdah: delays, stalls, loses, cuts."""

import socket
import struct
import threading
import time

from . import wire

CHUNK = 65536


class Line:
    """One proxied connection: two sockets and the threads that carry bytes between them."""

    def __init__(self, proxy, near, far):
        self.proxy = proxy
        self.near, self.far = near, far
        self.lost = False  # what is sent vanishes, and nobody is told
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source, target):
        try:
            while data := source.recv(CHUNK):
                self.proxy.wait_for_passage()
                if not self.lost:
                    target.sendall(data)
            self.proxy.wait_for_passage()
            if not self.lost:
                target.shutdown(socket.SHUT_WR)
        except OSError:
            self.cut()

    def cut(self):
        """Resets both sides."""
        if self.lost:
            return
        for end in (self.near, self.far):
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)
                end.close()
            except OSError:
                pass


class Proxy:
    """Listens on a port of its own and passes connections on to an address."""

    def __init__(self, host, port):
        self.target = (host, port)
        self.host = "127.0.0.1"
        self.delay = 0.0  # seconds which every piece of a stream is late
        self.hold_cancels = False  # cancel requests wait in `held` until `release_cancels`
        self.held = []
        self._open = threading.Event()
        self._open.set()
        self._lines = []
        self._lock = threading.Lock()
        self._listener = socket.create_server((self.host, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def address(self):
        """Where it listens."""
        return (self.host, self.port)

    def _accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._begin, args=(near,), daemon=True).start()

    def _begin(self, near):
        try:
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first = b""
            if self.hold_cancels:
                first = near.recv(CHUNK)
                if first[4:8] == struct.pack("!i", wire.CANCEL_CODE):
                    self.held.append((near, first))
                    return
            self._pass_on(near, first)
        except OSError:
            near.close()

    def _pass_on(self, near, first=b""):
        self.wait_for_passage()
        far = socket.create_connection(self.target)
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far.sendall(first)
        with self._lock:
            self._lines.append(Line(self, near, far))

    def wait_for_passage(self):
        """Returns when the next piece may go on."""
        if self.delay:
            time.sleep(self.delay)
        self._open.wait()

    def stall(self):
        """Nothing goes through any more, in either direction, and nobody is told."""
        self._open.clear()

    def flow(self):
        """The end of a stall."""
        self._open.set()

    def lose(self):
        """All connections there are become half-open: what is sent into them vanishes for ever.
        New ones work."""
        with self._lock:
            for line in self._lines:
                line.lost = True

    def cut(self):
        """Resets every connection."""
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            line.cut()

    def refuse(self):
        """Nobody listens any more: new connections are refused."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def listen(self):
        """Listens again, on the same port."""
        self._listener = socket.create_server(self.address)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def release_cancels(self):
        """Lets go of the cancel requests that were held."""
        self.hold_cancels = False
        held, self.held = self.held, []
        for near, first in held:
            self._pass_on(near, first)

    def close(self):
        """Ends everything."""
        self._open.set()
        try:
            self.refuse()
        except OSError:
            pass
        with self._lock:
            for line in self._lines:
                line.lost = False
        self.cut()
