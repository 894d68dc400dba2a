"""A raw client of PostgreSQL's protocol 3: sends any bytes, reads messages as they come.

The functions up to `connect` build messages; `Wire` is a connection. Nothing here hides what goes
over the wire, so a test can say exactly which bytes it means.
"""

import base64
import fcntl
import hashlib
import hmac
import os
import socket
import ssl
import struct
import sys
import termios
from typing import NamedTuple

from . import machine

PROTOCOL_3_0 = 3 << 16
PROTOCOL_3_2 = (3 << 16) + 2
CANCEL_CODE = 80877102
SSL_CODE = 80877103
GSSENC_CODE = 80877104

SECONDS = 40.0  # how long a read waits before the test fails


class Ended(Exception):
    """The other side closed the connection where a message was expected."""


class Refused(Exception):
    """An ErrorResponse where none was expected."""

    def __init__(self, fields):
        super().__init__(f"{fields.get('C')}: {fields.get('M')}")
        self.fields = fields
        self.code = fields.get("C")
        self.text = fields.get("M")


class Message(NamedTuple):
    """One message of the other side."""

    tag: str
    body: bytes

    def fields(self):
        """The fields of an ErrorResponse or NoticeResponse."""
        parts = self.body.rstrip(b"\0").split(b"\0")
        return {part[:1].decode(): part[1:].decode("utf-8", "replace") for part in parts if part}

    def row(self):
        """The values of a DataRow: bytes, or None for NULL."""
        (count,), at, values = struct.unpack_from("!h", self.body), 2, []
        for _ in range(count):
            (length,) = struct.unpack_from("!i", self.body, at)
            at += 4
            if length < 0:
                values.append(None)
            else:
                values.append(self.body[at:at + length])
                at += length
        return values

    def text(self):
        """The body up to its first zero byte: a CommandComplete's tag, for one."""
        return self.body.split(b"\0")[0].decode()


# Building messages ------------------------------------------------------------------------------

def cstr(text):
    """Text with its closing zero byte."""
    return (text.encode() if isinstance(text, str) else text) + b"\0"


def message(tag, body=b""):
    """A tagged message with its right length."""
    return tag.encode() + struct.pack("!i", len(body) + 4) + body


def startup(user="postgres", database=None, protocol=PROTOCOL_3_0, **more):
    """A startup packet. Keys with odd characters: **{"_pq_.x": "y"}."""
    pairs = {"user": user, "database": database, **more}
    body = struct.pack("!i", protocol)
    for key, value in pairs.items():
        if value is not None:
            body += cstr(key) + cstr(value)
    return untagged(body + b"\0")


def untagged(body):
    """A packet without a tag, as before login: length and body."""
    return struct.pack("!i", len(body) + 4) + body


def cancel_request(pid, key):
    """A CancelRequest; the key is bytes (4 of them in protocol 3.0)."""
    return untagged(struct.pack("!ii", CANCEL_CODE, pid) + key)


def ssl_request():
    """An SSLRequest."""
    return untagged(struct.pack("!i", SSL_CODE))


def gssenc_request():
    """A GSSENCRequest."""
    return untagged(struct.pack("!i", GSSENC_CODE))


def query(sql):
    """A simple query."""
    return message("Q", cstr(sql))


def parse(sql, name="", types=()):
    """Parse: a statement's text and, where given, the type numbers of its parameters."""
    body = cstr(name) + cstr(sql) + struct.pack("!h", len(types))
    return message("P", body + b"".join(struct.pack("!I", oid) for oid in types))


def bind(name="", values=(), portal="", formats=(), results=()):
    """Bind: parameters are text, bytes or None."""
    body = cstr(portal) + cstr(name) + struct.pack("!h", len(formats))
    body += b"".join(struct.pack("!h", f) for f in formats) + struct.pack("!h", len(values))
    for value in values:
        if value is None:
            body += struct.pack("!i", -1)
        else:
            raw = value if isinstance(value, bytes) else str(value).encode()
            body += struct.pack("!i", len(raw)) + raw
    return message("B", body + struct.pack("!h", len(results))
                   + b"".join(struct.pack("!h", f) for f in results))


def describe(name="", kind="S"):
    """Describe of a statement (S) or portal (P)."""
    return message("D", kind.encode() + cstr(name))


def close(name="", kind="S"):
    """Close of a statement (S) or portal (P)."""
    return message("C", kind.encode() + cstr(name))


def execute(portal="", rows=0):
    """Execute: at most so many rows; 0 means all."""
    return message("E", cstr(portal) + struct.pack("!i", rows))


def copy_data(data):
    """CopyData."""
    return message("d", data)


def copy_done():
    """CopyDone."""
    return message("c")


def copy_fail(reason):
    """CopyFail."""
    return message("f", cstr(reason))


def function_call(oid, values, formats=(1,), result=1):
    """FunctionCall: a function's number and its arguments as bytes or None."""
    body = struct.pack("!Ih", oid, len(formats)) + b"".join(struct.pack("!h", f) for f in formats)
    body += struct.pack("!h", len(values))
    for value in values:
        body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
    return message("F", body + struct.pack("!h", result))


def flush():
    """Flush."""
    return message("H")


def sync():
    """Sync."""
    return message("S")


def terminate():
    """Terminate."""
    return message("X")


# Talking ----------------------------------------------------------------------------------------

def split_messages(received):
    """Cuts a stream of bytes into messages; gives them and what is left of an unfinished one."""
    found, at = [], 0
    while len(received) - at >= 5:
        (length,) = struct.unpack_from("!i", received, at + 1)
        if len(received) - at < 1 + length:
            break
        found.append(Message(chr(received[at]), bytes(received[at + 5:at + 1 + length])))
        at += 1 + length
    return found, bytes(received[at:])


class Wire:
    """One connection. Use it with `with`; leaving it closes the socket without Terminate."""

    def __init__(self, address, seconds=SECONDS, receive_buffer=None, source=None):
        """address: (host, port), or the path of a unix socket. source: the address to come from."""
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
        else:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            self.socket = socket.socket(family)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(seconds)
        self.address = address
        try:
            if source:
                self.socket.bind((source, 0))
            self.socket.connect(address)
            if self.socket.family != socket.AF_UNIX:
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            self.socket.close()
            raise
        self._received = bytearray()
        self.binding = None
        self.parameters = {}
        self.protocol = None
        self.pid = None
        self.key = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def close(self):
        """Closes the socket, without a Terminate."""
        self.socket.close()

    def abort(self):
        """Closes the socket so that the other side gets a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, *parts):
        """Sends bytes, all in one go."""
        self.socket.sendall(b"".join(parts))

    def start_tls(self, context, name="localhost", direct=False, session=None):
        """Has all that follows go through TLS, after an SSLRequest or without it (direct). name:
        whom the other side is asked for, by SNI, and whom its certificate must be for where the
        context checks that. session: an ssl.SSLSession to be resumed."""
        if not direct:
            self.send(ssl_request())
            answer = self.read_bytes(1)
            if answer != b"S":
                raise Ended(f"{answer!r} to the SSLRequest")
        self.socket = context.wrap_socket(self.socket, server_hostname=name, session=session)
        # tls-server-end-point: the tests' certificates are signed with SHA-256.
        self.binding = hashlib.sha256(self.socket.getpeercert(True)).digest()
        return self

    def _fill(self):
        data = self.socket.recv(65536)
        if not data:
            raise Ended(f"closed after {bytes(self._received)!r}" if self._received else "closed")
        self._received += data

    def read_bytes(self, count):
        """Exactly so many raw bytes."""
        while len(self._received) < count:
            self._fill()
        data = bytes(self._received[:count])
        del self._received[:count]
        return data

    def read(self):
        """The next message."""
        tag, length = struct.unpack("!ci", self.read_bytes(5))
        return Message(tag.decode("latin-1"), self.read_bytes(length - 4))

    def read_until(self, tags="Z"):
        """Messages up to and with the first whose tag is one of `tags`."""
        found = []
        while not found or found[-1].tag not in tags:
            try:
                found.append(self.read())
            except (Ended, ConnectionResetError):
                # The reason is better told than the end.
                if found and found[-1].tag == "E":
                    raise Refused(found[-1].fields()) from None
                raise
        return found

    def read_to_end(self):
        """All messages until the other side closes; a reset counts as a close."""
        found = []
        try:
            while True:
                found.append(self.read())
        except (Ended, ConnectionResetError, ssl.SSLEOFError):
            return found

    def ends(self):
        """Waits until the other side closes; true if it said nothing more before."""
        try:
            self.read_bytes(1)
            return False
        except (Ended, ConnectionResetError, ssl.SSLEOFError):
            return True

    def taken(self):
        """Waits until the other side has read all that was sent, so that the next send is read
        on its own. Unix sockets only, of which the kernel tells what the peer has not read."""
        assert self.socket.family == socket.AF_UNIX
        unread = bytearray(4)

        def read():
            fcntl.ioctl(self.socket, termios.TIOCOUTQ, unread)
            return not any(unread)

        machine.wait_until(read, "the other side to read what was sent")

    def waiting(self):
        """How many bytes the kernel has for us."""
        count = bytearray(4)
        fcntl.ioctl(self.socket, termios.FIONREAD, count)
        return int.from_bytes(count, sys.byteorder)

    def peek(self):
        """What the kernel has for us, which stays there."""
        return self.socket.recv(1 << 20, socket.MSG_PEEK)

    def quiet(self, seconds=0.05):
        """True when nothing came so far: to show that a reply is not there *before* its time."""
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            if not self._received:
                self._fill()
            return False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)

    def login(self, user="postgres", database=None, password=None, packet=None, **startup_keys):
        """Sends a startup packet and answers what is asked, up to the first ReadyForQuery."""
        self.send(packet or startup(user, database, **startup_keys))
        scram = None
        greeting = []
        while True:
            got = self.read()
            greeting.append(got)
            if got.tag == "E":
                raise Refused(got.fields())
            if got.tag == "v":
                self.protocol = struct.unpack_from("!i", got.body)[0]
            elif got.tag == "S":
                key, value = got.body[:-1].split(b"\0")
                self.parameters[key.decode()] = value.decode()
            elif got.tag == "K":
                self.pid, self.key = struct.unpack_from("!i", got.body)[0], got.body[4:]
            elif got.tag == "Z":
                return greeting
            elif got.tag == "R":
                scram = self._authenticate(got.body, user, password or "", scram)

    def _authenticate(self, body, user, password, scram):
        (kind,) = struct.unpack_from("!i", body)
        if kind == 3:
            self.send(password_message(password))
        elif kind == 5:
            self.send(password_message(md5_password(user, password, body[4:8])))
        elif kind == 10:
            offered = body[4:].split(b"\0")
            bound = self.binding if b"SCRAM-SHA-256-PLUS" in offered else None
            scram = Scram(password, bound)
            self.send(scram.first())
        elif kind == 11:
            self.send(scram.final(body[4:]))
        elif kind == 12:
            scram.verify(body[4:])
        elif kind != 0:
            raise AssertionError(f"asked for a login of kind {kind}")
        return scram

    def ask(self, *parts):
        """Sends messages and reads up to ReadyForQuery."""
        self.send(*parts)
        return self.read_until("Z")

    def rows(self, sql):
        """Runs simple SQL; gives all its rows as lists of texts; raises on an error."""
        found, problem = [], None
        for got in self.ask(query(sql)):
            if got.tag == "D":
                found.append([None if v is None else v.decode() for v in got.row()])
            elif got.tag == "E":
                problem = Refused(got.fields())
        if problem:
            raise problem
        return found

    def value(self, sql):
        """The first column of the first row."""
        return self.rows(sql)[0][0]

    def error(self, *parts):
        """Sends messages; gives the fields of the one error that must come before Ready."""
        errors = [got.fields() for got in self.ask(*parts) if got.tag == "E"]
        assert len(errors) == 1, errors
        return errors[0]

    def cancel(self):
        """Sends a cancel request for this connection, and waits until that was taken."""
        with Wire(self.address) as other:
            other.send(cancel_request(self.pid, self.key))
            assert other.ends()


# Who connects there listens: of `pytest --listening`.
LISTENING = set()
LISTEN = "listen everybody"


def connect(address, user="postgres", database=None, password=None, seconds=SECONDS, tls=None,
            **startup_keys):
    """A logged-in connection. tls: the ssl.SSLContext of a connection that goes through TLS."""
    client = Wire(address, seconds)
    try:
        if tls:
            client.start_tls(tls)
        client.login(user, database, password, **startup_keys)
        if address in LISTENING and database != "pgbouncer" and "replication" not in startup_keys:
            client.ask(query(LISTEN))
    except BaseException:
        client.close()
        raise
    return client


# Logins -----------------------------------------------------------------------------------------

def password_message(password):
    """A PasswordMessage."""
    return message("p", cstr(password))


def md5_secret(user, password):
    """What PostgreSQL stores for an md5 password."""
    return "md5" + hashlib.md5((password + user).encode()).hexdigest()


def md5_password(user, password, salt):
    """The answer to an md5 challenge."""
    inner = md5_secret(user, password)[3:].encode()
    return "md5" + hashlib.md5(inner + salt).hexdigest()


def scram_secret(password, iterations=4096, salt=None):
    """What PostgreSQL stores for a SCRAM password."""
    salt = salt or os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    text = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${iterations}:{text[0]}${text[1]}:{text[2]}"


class Scram:
    """A SCRAM-SHA-256 login as the client; binding: the hash that binds the channel, if it is
    to be bound. header: what is said of that instead of what is true."""

    def __init__(self, password, binding=None, header=None):
        self.password = password
        self.binding = binding or b""
        self.header = header or (b"p=tls-server-end-point,," if binding else b"n,,")
        self.mechanism = "SCRAM-SHA-256-PLUS" if binding else "SCRAM-SHA-256"
        self.bare = "n=,r=" + base64.b64encode(os.urandom(18)).decode()

    def first(self):
        """SASLInitialResponse."""
        text = self.header + self.bare.encode()
        return message("p", cstr(self.mechanism) + struct.pack("!i", len(text)) + text)

    def final(self, challenge):
        """SASLResponse to the server's first message."""
        parts = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, rounds = base64.b64decode(parts["s"]), int(parts["i"])
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), salt, rounds)
        bound = base64.b64encode(self.header + self.binding).decode()
        without_proof = f"c={bound},r=" + parts["r"]
        self.exchange = ",".join((self.bare, challenge.decode(), without_proof)).encode()
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), self.exchange, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature))
        self.server_key = hmac.digest(salted, b"Server Key", "sha256")
        return message("p", f"{without_proof},p={base64.b64encode(proof).decode()}".encode())

    def verify(self, final):
        """Checks that the other side knows the password's secret as well."""
        expected = base64.b64encode(hmac.digest(self.server_key, self.exchange, "sha256")).decode()
        assert final.decode() == "v=" + expected, "the server's SCRAM signature is wrong"
