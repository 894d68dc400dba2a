"""A scripted server: a stand-in for PostgreSQL that misbehaves exactly as told."""

import socket
import struct
import threading

from . import wire

PARAMETERS = {"server_version": "15.0", "client_encoding": "UTF8", "server_encoding": "UTF8",
              "DateStyle": "ISO, MDY", "TimeZone": "UTC", "standard_conforming_strings": "on",
              "integer_datetimes": "on", "IntervalStyle": "postgres", "application_name": "",
              "is_superuser": "on", "session_authorization": "postgres"}


def authentication(kind, rest=b""):
    """An Authentication message."""
    return wire.message("R", struct.pack("!i", kind) + rest)


def parameter_status(key, value):
    """A ParameterStatus message."""
    return wire.message("S", wire.cstr(key) + wire.cstr(value))


def error(severity, code, text):
    """An ErrorResponse; without a field where the value is None."""
    fields = b""
    for tag, value in (("S", severity), ("V", severity), ("C", code), ("M", text)):
        if value is not None:
            fields += tag.encode() + wire.cstr(value)
    return wire.message("E", fields + b"\0")


def ready(status="I"):
    """A ReadyForQuery message."""
    return wire.message("Z", status.encode())


def welcome():
    """All that follows a successful login."""
    body = authentication(0)
    body += b"".join(parameter_status(key, value) for key, value in PARAMETERS.items())
    return body + wire.message("K", struct.pack("!iI", 4711, 42)) + ready()


def row(*values):
    """A DataRow of texts."""
    body = struct.pack("!h", len(values))
    for value in values:
        body += struct.pack("!i", len(value)) + value.encode()
    return wire.message("D", body)


def answer(*values, status="I"):
    """What follows a simple query of one row: text columns without a table."""
    columns = struct.pack("!h", len(values))
    for index, _ in enumerate(values):
        columns += wire.cstr(f"c{index}") + struct.pack("!IhIhih", 0, 0, 25, -1, -1, 0)
    return (wire.message("T", columns) + row(*values)
            + wire.message("C", wire.cstr("SELECT 1")) + ready(status))


class Peer:
    """The server's side of one connection from a pooler."""

    def __init__(self, connection):
        self.socket = connection
        self.socket.settimeout(wire.SECONDS)
        self._received = b""

    def send(self, *parts):
        """Sends bytes."""
        self.socket.sendall(b"".join(parts))

    def _exactly(self, count):
        while len(self._received) < count:
            data = self.socket.recv(65536)
            if not data:
                raise wire.Ended("the pooler closed")
            self._received += data
        data, self._received = self._received[:count], self._received[count:]
        return data

    def startup(self):
        """Reads the startup packet, refusing TLS if it is asked for."""
        while True:
            (length,) = struct.unpack("!i", self._exactly(4))
            body = self._exactly(length - 4)
            (code,) = struct.unpack_from("!i", body)
            if code in (wire.SSL_CODE, wire.GSSENC_CODE):
                self.send(b"N")
            elif code == wire.CANCEL_CODE:
                raise wire.Ended("a cancel request")
            else:
                return body

    def read(self):
        """The next message of the pooler."""
        tag, length = struct.unpack("!ci", self._exactly(5))
        return wire.Message(tag.decode(), self._exactly(length - 4))

    def read_query(self):
        """The text of the next simple query; empty ones (server checks) are answered."""
        while True:
            got = self.read()
            if got.tag == "X":
                raise wire.Ended("Terminate")
            if got.tag == "Q" and got.text().strip(" ;"):
                return got.text()
            self.send(wire.message("I"), ready())


class ScriptedServer:
    """Listens on a port; each connection runs `script(peer)` in a thread, then is closed."""

    def __init__(self, script):
        self.script = script
        self.host = "127.0.0.1"
        self.listener = socket.create_server((self.host, 0))
        self.port = self.listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            try:
                self.script(Peer(connection))
            except (OSError, wire.Ended):
                pass
